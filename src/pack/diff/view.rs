//! Sides, tools and what sessions ran with, as they are shown.

use super::{
    Quantiles, ToolCount,
    side::{Call, NO_DURATION, Names, Side},
};
use crate::model::{Outcome, pack::DEFAULT_POLICY};
use crate::{
    model::sha256_hex,
    pack::verify::{Claims, Completeness, Finding, Integrity, Signer, VerifyReport},
    text::counted,
};
use serde::Serialize;
use std::path::Path;

/// Findings of a side that are shown.
const MAX_FINDINGS: usize = 5;

/// One of the two packs of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct SideView {
    /// Where it was read.
    pub path: String,
    /// `pack_id`.
    pub pack_id: Option<String>,
    /// Id of the session in which it was made.
    pub session_id: Option<String>,
    /// Time of the first receipt.
    pub timestamp_start: Option<String>,
    /// Time of the last receipt.
    pub timestamp_end: Option<String>,
    /// Number of receipts in the pack.
    pub receipt_count: u64,
    /// Verdict of the integrity channel.
    pub integrity: Integrity,
    /// Verdict of the completeness channel.
    pub completeness: Completeness,
    /// Why it is not complete.
    pub completeness_reasons: Vec<String>,
    /// Verdict of the claims channel.
    pub claims: Claims,
    /// Verdict of the signer channel.
    pub signer: Signer,
    /// What is wrong with it, the first few.
    pub errors: Vec<Finding>,
    /// Number of all errors, including those not listed.
    pub error_count: u64,
    /// Whether its surface did not fit: equal hashes are still equal surfaces, but its entries are not all there.
    pub surface_truncated: bool,
}

impl SideView {
    /// Number of receipts in words; it is unknown if a later version wrote the pack.
    #[must_use]
    pub fn receipts(&self) -> String {
        match (self.integrity, self.receipt_count) {
            (Integrity::Unsupported, 0) => "receipts not counted".to_owned(),
            (_, n) => counted(n, "receipt"),
        }
    }

    pub(super) fn new(path: &Path, r: &VerifyReport) -> Self {
        Self {
            path: path.display().to_string(),
            pack_id: r.facts.pack_id.clone(),
            session_id: r.facts.session.as_ref().map(|s| s.session_id.to_string()).or_else(|| r.facts.run_id.clone()),
            timestamp_start: r.facts.timestamp_start.clone(),
            timestamp_end: r.facts.timestamp_end.clone(),
            receipt_count: r.facts.receipt_count,
            integrity: r.integrity,
            completeness: r.completeness,
            completeness_reasons: r.completeness_reasons.clone(),
            claims: r.claims,
            signer: r.signer.clone(),
            errors: r.errors.iter().take(MAX_FINDINGS).cloned().collect(),
            error_count: r.errors.len() as u64 + r.errors_omitted,
            surface_truncated: r.facts.surface_truncated,
        }
    }
}

/// Calls by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DiffTotals {
    /// Number of tool calls.
    pub calls: u64,
    /// Number of calls with an ordinary response.
    pub forwarded: u64,
    /// Calls that a policy denied.
    pub denied: u64,
    /// Calls that the policy rejects, refused or only recorded.
    pub policy_denied: u64,
    /// Number of calls that ended in an error.
    pub errors: u64,
    /// Calls that got no response.
    pub timeouts: u64,
    /// Outcomes of another builder.
    pub other: u64,
}

impl DiffTotals {
    pub(super) fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Self {
        let mut out = Self::default();
        for call in calls {
            out.add(call);
        }
        out
    }

    /// Calls that were not answered in the ordinary way.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.denied + self.errors + self.timeouts
    }

    fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.policy_denied += u64::from(call.is_denied());
        match call.outcome {
            Some(Outcome::Forwarded) => self.forwarded += 1,
            Some(Outcome::Denied) => self.denied += 1,
            Some(Outcome::Error) => self.errors += 1,
            Some(Outcome::Timeout) => self.timeouts += 1,
            None => self.other += 1,
        }
    }
}

/// A tool on one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolSide {
    /// Calls by outcome and verdict.
    pub totals: DiffTotals,
    /// Quantiles of the round trips.
    pub latency: Quantiles,
}

/// A tool on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolRow {
    /// Its name as sent, cut at 256 bytes.
    pub tool: String,
    /// The value in pack A, the baseline.
    pub a: ToolSide,
    /// The value in pack B.
    pub b: ToolSide,
}

/// Rows, tools only in B, tools only in A.
pub(super) fn tools(a: &Side, b: &Side, names: &Names) -> (Vec<ToolRow>, Vec<ToolCount>, Vec<ToolCount>) {
    let (sides_a, sides_b) = (by_tool(&a.calls, names.len()), by_tool(&b.calls, names.len()));
    let rows = sides_a.into_iter().zip(sides_b).enumerate();
    let mut rows: Vec<ToolRow> =
        rows.map(|(n, (a, b))| ToolRow { tool: names.name(n as u32).to_owned(), a, b }).collect();
    rows.sort_by(|x, y| {
        let calls = |r: &ToolRow| (r.b.totals.calls, r.a.totals.calls);
        calls(y).cmp(&calls(x)).then_with(|| x.tool.cmp(&y.tool))
    });
    let count = |r: &ToolRow, calls| ToolCount { tool: r.tool.clone(), calls };
    let new = rows.iter().filter(|r| r.a.totals.calls == 0).map(|r| count(r, r.b.totals.calls)).collect();
    let gone = rows.iter().filter(|r| r.b.totals.calls == 0).map(|r| count(r, r.a.totals.calls)).collect();
    (rows, new, gone)
}

fn by_tool(calls: &[Call], tools: usize) -> Vec<ToolSide> {
    let mut out = vec![ToolSide::default(); tools];
    let mut durations = Vec::with_capacity(calls.len());
    for call in calls {
        out[call.tool as usize].totals.add(call);
        if call.duration_us != NO_DURATION {
            durations.push((call.tool, call.duration_us));
        }
    }
    durations.sort_unstable();
    for group in durations.chunk_by(|x, y| x.0 == y.0) {
        out[group[0].0 as usize].latency = Quantiles::of_sorted(group, |d| d.1);
    }
    out
}

/// Something that sessions ran with, and that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContextChange {
    /// Which: `policy_hash`, `surface_hash`, `server_version`, …
    pub what: &'static str,
    /// The value in pack A, the baseline.
    pub a: Option<String>,
    /// The value in pack B.
    pub b: Option<String>,
}

pub(super) fn context(a: &VerifyReport, b: &VerifyReport) -> Vec<ContextChange> {
    let changes = known(a).into_iter().zip(known(b));
    changes.filter(|(x, y)| x.1 != y.1).map(|((what, a), (_, b))| ContextChange { what, a, b }).collect()
}

fn known(r: &VerifyReport) -> Vec<(&'static str, Option<String>)> {
    let s = r.facts.session.as_ref();
    let client = s.and_then(|s| s.client_info.as_ref());
    let server = s.and_then(|s| s.server_info.as_ref());
    let no_policy = sha256_hex(DEFAULT_POLICY);
    vec![
        ("policy_hash", r.facts.policy_hash.clone().filter(|hash| *hash != no_policy)),
        ("surface_hash", s.and_then(|s| s.surface_hash.clone())),
        ("mode", r.facts.mode.clone()),
        ("server_id", s.map(|s| s.server_id.clone())),
        ("server_name", server.map(|p| p.name.clone())),
        ("server_version", server.and_then(|p| p.version.clone())),
        ("client_name", client.map(|p| p.name.clone())),
        ("client_version", client.and_then(|p| p.version.clone())),
        ("protocol_version", s.and_then(|s| s.protocol_version.clone())),
        ("recorder_version", s.map(|s| s.recorder_version.clone()).or_else(|| r.facts.built_by.clone())),
        ("transport", s.map(|s| s.transport.clone())),
        ("command_digest", s.map(|s| s.command_digest.clone())),
        ("completeness", Some(r.completeness.to_string())),
        ("end_reason", s.map(|s| s.end_reason.to_string())),
        ("claims", Some(r.claims.to_string())),
        ("signer_fingerprint", r.signer.fingerprint.clone()),
        ("signer_id", r.signer.signer_id.clone()),
    ]
}
