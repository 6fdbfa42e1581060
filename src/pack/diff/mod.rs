//! What differs between two packs: calls paired by tool and arguments, outcomes, results, latency, and what they ran with
//! (docs/diff.md).
//!
//! Nothing is compared before both sides have been verified. Memory is about 70 bytes a call and side and 300 a tool,
//! whatever the receipts hold; listings are cut and say how much was left out.

pub mod gates;
mod json;
mod latency;
mod listing;
mod pair;
mod regress;
mod side;
mod surface;
mod table;
mod view;

pub use json::{Difference, DifferenceKind, differences};
pub use latency::Quantiles;
pub use listing::{CallChange, CallSide, ChangeKind, Listing};
pub use regress::Regression;
pub use surface::SurfaceGroup;
pub use table::{TotalsRow, totals_rows};
pub use view::{ContextChange, DiffTotals, SideView, ToolRow, ToolSide};

use super::{
    calls::CallsError,
    verify::{self, Exit, Integrity, Progress, SignerVerdict, Stage, VerifyError, VerifyOptions, VerifyReport},
};
use gates::{GateReport, Gates};
use serde::Serialize;
use std::{ops::ControlFlow, path::Path};

/// Format of the document.
///
/// | version | change |
/// |---|---|
/// | `assay.diff.v1` | first |
pub const DIFF_SCHEMA: &str = "assay.diff.v1";
/// Changes that are listed one by one for each [`ChangeKind`]; all are counted.
pub const MAX_LISTED: usize = 200;
/// Tools with a row of their own; all are counted.
pub const MAX_ROWS: usize = 500;

/// Why two packs could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A side gives no verdict.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A side's receipts could not be read again.
    #[error(transparent)]
    Read(#[from] CallsError),
}

/// How calls were paired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pairing {
    /// Number of calls that are in both packs.
    pub paired: u64,
    /// Number of calls that are only in B.
    pub new: u64,
    /// Number of calls that are only in A.
    pub gone: u64,
    /// Pairs with another outcome.
    pub outcome_changed: u64,
    /// Pairs with another policy verdict.
    pub verdict_changed: u64,
    /// Pairs with another result hash, or one where there was none.
    pub result_changed: u64,
}

/// A tool that only one side has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolCount {
    /// Its name as sent, cut at 256 bytes.
    pub tool: String,
    /// Number of calls.
    pub calls: u64,
}

/// What two verified packs differ in.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What the sessions ran with and how they were recorded, where it differs.
    pub context: Vec<ContextChange>,
    /// Outcomes in A.
    pub totals_a: DiffTotals,
    /// Outcomes in B.
    pub totals_b: DiffTotals,
    /// Round trips in A, microseconds.
    pub latency_a: Quantiles,
    /// Round trips in B, microseconds.
    pub latency_b: Quantiles,
    /// Tools that only B calls.
    pub new_tools: Vec<ToolCount>,
    /// Tools that only A calls.
    pub gone_tools: Vec<ToolCount>,
    /// Every tool, most called in B first; at most [`MAX_ROWS`].
    pub tools: Vec<ToolRow>,
    /// Tools without a row.
    pub tools_omitted: u64,
    /// How calls were paired.
    pub calls: Pairing,
    /// Pairs that differ, new and missing calls, up to the limit of the listing.
    pub changes: Vec<CallChange>,
    /// Changes that are not listed.
    pub changes_omitted: u64,
    /// What the server offers otherwise, as far as both sessions saw it; equal changes of many items are one group.
    pub surface: Vec<SurfaceGroup>,
}

/// The answer as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing is worse, and every gate holds.
    NoRegression,
    /// Something is worse, or a gate does not hold.
    Regression,
    /// A side does not verify: nothing was compared.
    NotVerified,
    /// A later version wrote part of a side: nothing was compared.
    Unsupported,
}

/// The document of `assay diff --json`.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// [`DIFF_SCHEMA`].
    pub schema: &'static str,
    /// The answer to "is B worse than A?".
    pub answer: Answer,
    /// Exit code of the command.
    pub exit_code: u8,
    /// Pack A, the baseline.
    pub a: SideView,
    /// What is compared with it.
    pub b: SideView,
    /// The differences; `null` when a side does not verify.
    pub comparison: Option<Comparison>,
    /// What is worse in B.
    pub regressions: Vec<Regression>,
    /// The gates, where a file of them was given.
    pub gates: Option<GateReport>,
}

impl Document {
    /// The exit code as a type.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.answer {
            Answer::NoRegression => Exit::Ok,
            Answer::Regression => Exit::Violation,
            Answer::NotVerified => Exit::Failed,
            Answer::Unsupported => Exit::BadInput,
        }
    }
}

fn verified(report: &VerifyReport) -> bool {
    report.integrity == Integrity::Pass && report.signer.verdict != SignerVerdict::Untrusted
}

/// Verifies both packs, compares B with the baseline A and judges it. `progress` hears of the verifications, and of
/// [`Stage::SignerTrust`] with everything read before each step of the comparison; when it breaks, that is
/// [`VerifyError::Cancelled`].
///
/// # Errors
/// [`DiffError`]. A tampered pack is not an error: the document says so.
pub fn diff(
    a: &Path,
    b: &Path,
    options: &VerifyOptions,
    gates: Option<&Gates>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Document, DiffError> {
    let reports = [verify::verify(a, options, progress)?, verify::verify(b, options, progress)?];
    let [report_a, report_b] = &reports;
    let mut document = Document {
        schema: DIFF_SCHEMA,
        answer: Answer::NotVerified,
        exit_code: Exit::Failed.code(),
        a: SideView::new(a, report_a),
        b: SideView::new(b, report_b),
        comparison: None,
        regressions: Vec::new(),
        gates: None,
    };
    if reports.iter().all(verified) {
        let comparison = compare([a, b], [report_a, report_b], progress)?;
        document.regressions = regress::find(report_a, report_b, &comparison.1, gates);
        document.gates = gates.map(|g| g.judge(&comparison.0, report_a, report_b));
        document.comparison = Some(comparison.0);
        let worse = document.regressions.iter().any(|r| r.judged_by.is_none());
        let failed = document.gates.as_ref().is_some_and(|g| !g.passed);
        document.answer = if worse || failed { Answer::Regression } else { Answer::NoRegression };
    }
    if document.comparison.is_none() && reports.iter().all(|r| r.exit() != Exit::Failed) {
        document.answer = Answer::Unsupported;
    }
    document.exit_code = document.exit().code();
    Ok(document)
}

fn compare(
    [a, b]: [&Path; 2],
    [report_a, report_b]: [&VerifyReport; 2],
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Comparison, pair::Paired), DiffError> {
    let mut step = || match progress(Progress { stage: Stage::SignerTrust, done_bytes: 1, total_bytes: 1 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(VerifyError::Cancelled),
    };
    let mut names = side::Names::default();
    step()?;
    let side_a = side::Side::load(a, report_a, &mut names)?;
    step()?;
    let side_b = side::Side::load(b, report_b, &mut names)?;
    step()?;
    let paired = pair::pair(&side_a.calls, &side_b.calls);
    let listing = Listing::read(&paired, &side_a, &side_b, &names)?;
    let (rows, new_tools, gone_tools) = view::tools(&side_a, &side_b, &names);
    let tools_omitted = rows.len().saturating_sub(MAX_ROWS) as u64;
    let comparison = Comparison {
        context: view::context(report_a, report_b),
        totals_a: DiffTotals::of(&side_a.calls),
        totals_b: DiffTotals::of(&side_b.calls),
        latency_a: Quantiles::of(side_a.durations()),
        latency_b: Quantiles::of(side_b.durations()),
        new_tools,
        gone_tools,
        tools: rows.into_iter().take(MAX_ROWS).collect(),
        tools_omitted,
        calls: paired.counts,
        changes: listing.changes,
        changes_omitted: listing.omitted,
        surface: surface::changes([a, b], [report_a, report_b]),
    };
    Ok((comparison, paired))
}
