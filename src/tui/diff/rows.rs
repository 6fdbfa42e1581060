//! The rows of the list: what each side verified to, then the differences, under headings that fold.

use super::Side;
use crate::{
    filter::{Facts, Filter},
    model::{Outcome, PolicyVerdict},
    pack::{
        calls::word,
        diff::{CallChange, CallSide, ChangeKind, Document, SideView, SurfaceGroup, ToolRow},
        verify::{Integrity, SignerVerdict},
    },
    tui::kit::Sections,
};
use serde::Serialize;

/// A part of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// What the packs verified to.
    Sides,
    /// What is worse in B.
    Worse,
    /// Calls in both packs that differ.
    Changed,
    /// Calls only in B.
    New,
    /// Calls only in A.
    Gone,
    /// Round trips and outcomes by tool.
    Tools,
    /// What the sessions ran with.
    Context,
    /// What the servers offered.
    Surface,
}

impl Section {
    /// All sections, in the order in which they are listed.
    pub const ALL: [Self; 8] =
        [Self::Sides, Self::Worse, Self::Changed, Self::New, Self::Gone, Self::Tools, Self::Context, Self::Surface];

    /// Heading of the section.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sides => "Verified first",
            Self::Worse => "Worse in B",
            Self::Changed => "Changed calls",
            Self::New => "New calls, only in B",
            Self::Gone => "Gone calls, only in A",
            Self::Tools => "Latency by tool",
            Self::Context => "Ran with: policy, surface, versions",
            Self::Surface => "The server's surface",
        }
    }

    const fn of(kind: ChangeKind) -> Self {
        match kind {
            ChangeKind::Changed => Self::Changed,
            ChangeKind::New => Self::New,
            ChangeKind::Gone => Self::Gone,
        }
    }
}

impl From<Section> for u8 {
    fn from(section: Section) -> Self {
        section as Self
    }
}

/// A row of the list; numbers are places in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffRow {
    /// Heading of a section.
    Head(Section),
    /// One of the two packs.
    Side(Side),
    /// The four verdicts on a pack.
    Verdicts(Side),
    /// Something that is wrong with it.
    Finding(Side, usize),
    /// That nothing was compared.
    NotCompared,
    /// Something that is worse in B.
    Worse(usize),
    /// A call that differs.
    Change(usize),
    /// Calls of this section that are counted and not listed.
    Omitted(Section),
    /// The sums over all tools.
    AllTools,
    /// A tool, by its position in the document.
    Tool(usize),
    /// Something that the sessions ran with.
    Context(usize),
    /// Equal changes of what the server offers.
    Surface(usize),
}

/// One of the two.
pub const fn side(document: &Document, which: Side) -> &SideView {
    match which {
        Side::A => &document.a,
        Side::B => &document.b,
    }
}

/// All rows that pass, without those of folded sections.
pub fn rows(document: &Document, filter: &Filter, folds: Sections<Section>) -> Vec<DiffRow> {
    let all = if document.comparison.is_some() { &Section::ALL[..] } else { &[Section::Sides] };
    // Where not both sessions asked what their servers offer, there is nothing to say about it.
    let all = all.iter().copied().filter(|section| *section != Section::Surface || total(document, *section) > 0);
    folds.rows(all, DiffRow::Head, |section| within(document, filter, section))
}

/// The rows of a section that pass.
pub fn within(document: &Document, filter: &Filter, section: Section) -> Vec<DiffRow> {
    let Some(c) = &document.comparison else { return sides(document) };
    match section {
        Section::Sides => sides(document),
        Section::Worse => (0..document.regressions.len()).map(DiffRow::Worse).collect(),
        Section::Changed | Section::New | Section::Gone => {
            let of = c.changes.iter().enumerate().filter(|(_, x)| Section::of(x.kind) == section);
            let passing: Vec<_> = of.filter(|(_, x)| passes(x, filter)).collect();
            // What is worse is found without looking for it.
            let (worse, rest): (Vec<_>, Vec<_>) = passing.into_iter().partition(|(_, x)| change_is_worse(x));
            let mut rows: Vec<DiffRow> = worse.into_iter().chain(rest).map(|(n, _)| DiffRow::Change(n)).collect();
            if omitted(document, section) > 0 {
                rows.push(DiffRow::Omitted(section));
            }
            rows
        }
        Section::Tools => {
            let all = Some(DiffRow::AllTools).filter(|_| filter.is_empty() && c.tools.len() > 1);
            let tools = c.tools.iter().enumerate().filter(|(_, t)| tool_passes(t, filter));
            let mut rows: Vec<DiffRow> = all.into_iter().chain(tools.map(|(n, _)| DiffRow::Tool(n))).collect();
            if c.tools_omitted > 0 {
                rows.push(DiffRow::Omitted(section));
            }
            rows
        }
        Section::Context => {
            let passing = c.context.iter().enumerate().filter(|(_, x)| {
                let facts = Facts { tool: x.what, ..Facts::default() };
                filter.is_empty() || filter.passes(&facts)
            });
            passing.map(|(n, _)| DiffRow::Context(n)).collect()
        }
        Section::Surface => {
            let of_any = |group: &SurfaceGroup| {
                let mut names = group.names.iter();
                filter.is_empty() || names.any(|tool| filter.passes(&Facts { tool, ..Facts::default() }))
            };
            let passing = c.surface.iter().enumerate().filter(|(_, group)| of_any(group));
            passing.map(|(n, _)| DiffRow::Surface(n)).collect()
        }
    }
}

fn sides(document: &Document) -> Vec<DiffRow> {
    let mut out = Vec::new();
    for which in [Side::A, Side::B] {
        out.extend([DiffRow::Side(which), DiffRow::Verdicts(which)]);
        out.extend((0..side(document, which).errors.len()).map(|n| DiffRow::Finding(which, n)));
    }
    if document.comparison.is_none() {
        out.push(DiffRow::NotCompared);
    }
    out
}

/// How many of a section's calls or tools there are in all, listed or not.
pub fn total(document: &Document, section: Section) -> u64 {
    let Some(c) = &document.comparison else { return 2 };
    match section {
        Section::Sides => 2,
        Section::Worse => document.regressions.len() as u64,
        // Every change is listed or omitted; only for new and missing calls is the number known.
        Section::Changed => {
            (c.changes.len() as u64 + c.changes_omitted).saturating_sub(c.calls.new).saturating_sub(c.calls.gone)
        }
        Section::New => c.calls.new,
        Section::Gone => c.calls.gone,
        Section::Tools => c.tools.len() as u64 + c.tools_omitted,
        Section::Context => c.context.len() as u64,
        Section::Surface => c.surface.len() as u64,
    }
}

/// How many of them are not listed.
pub fn omitted(document: &Document, section: Section) -> u64 {
    let Some(c) = &document.comparison else { return 0 };
    let listed = match section {
        Section::Tools => c.tools.len(),
        _ => c.changes.iter().filter(|x| Section::of(x.kind) == section).count(),
    };
    total(document, section).saturating_sub(listed as u64)
}

/// Calls that are listed and pass, of all that are listed.
pub fn counts(document: &Document, filter: &Filter) -> (u64, u64) {
    let Some(c) = &document.comparison else { return (0, 0) };
    (c.changes.iter().filter(|x| passes(x, filter)).count() as u64, c.changes.len() as u64)
}

/// A call that differs passes when either side does.
fn passes(change: &CallChange, filter: &Filter) -> bool {
    let of = |side: &CallSide| {
        filter.passes(&Facts {
            tool: &change.tool,
            verdict: word(&side.policy_verdict),
            outcome: word(&side.outcome),
            ids: vec![side.receipt_id.clone(), change.arguments_hash.clone()],
            us: side.duration_us,
            ..Facts::default()
        })
    };
    filter.is_empty() || [&change.a, &change.b].into_iter().flatten().any(of)
}

fn tool_passes(tool: &ToolRow, filter: &Filter) -> bool {
    let us = tool.b.latency.p95_us.or(tool.a.latency.p95_us);
    filter.is_empty() || filter.passes(&Facts { tool: &tool.tool, us, ..Facts::default() })
}

/// Whether a call is worse in B: the rule of the comparison itself (docs/diff.md).
pub fn change_is_worse(change: &CallChange) -> bool {
    let (Some(a), Some(b)) = (&change.a, &change.b) else { return false };
    let outcome = |s: &CallSide| word::<Outcome>(&s.outcome);
    let denied =
        |s: &CallSide| outcome(s) == Some(Outcome::Denied) || word(&s.policy_verdict) == Some(PolicyVerdict::Denied);
    let unanswered = matches!(outcome(b), Some(Outcome::Error | Outcome::Timeout));
    !denied(a) && denied(b) || outcome(a) == Some(Outcome::Forwarded) && unanswered
}

/// Whether a side does not verify.
pub fn is_unverified(side: &SideView) -> bool {
    side.integrity != Integrity::Pass || side.signer.verdict == SignerVerdict::Untrusted
}

/// Whether `n` stops at a row.
pub fn is_worse(document: &Document, row: DiffRow) -> bool {
    match row {
        DiffRow::Worse(_) | DiffRow::NotCompared | DiffRow::Finding(..) => true,
        DiffRow::Change(n) => document.comparison.as_ref().and_then(|c| c.changes.get(n)).is_some_and(change_is_worse),
        DiffRow::Verdicts(which) => is_unverified(side(document, which)),
        _ => false,
    }
}

/// What the detail of a row is called.
pub fn title(document: &Document, row: DiffRow) -> String {
    let c = document.comparison.as_ref();
    match row {
        DiffRow::Head(section) => section.title().to_owned(),
        DiffRow::Side(which) | DiffRow::Verdicts(which) | DiffRow::Finding(which, _) => match which {
            Side::A => "A, the baseline".to_owned(),
            Side::B => "B, compared with A".to_owned(),
        },
        DiffRow::NotCompared => "Not compared".to_owned(),
        DiffRow::Worse(_) => "Worse in B".to_owned(),
        DiffRow::Change(n) => c.and_then(|c| c.changes.get(n)).map_or_else(String::new, |x| x.tool.clone()),
        DiffRow::Omitted(_) => "Not listed".to_owned(),
        DiffRow::AllTools => "All tools".to_owned(),
        DiffRow::Tool(n) => c.and_then(|c| c.tools.get(n)).map_or_else(String::new, |x| x.tool.clone()),
        DiffRow::Context(n) => c.and_then(|c| c.context.get(n)).map_or_else(String::new, |x| x.what.replace('_', " ")),
        DiffRow::Surface(n) => c.and_then(|c| c.surface.get(n)).map_or_else(String::new, SurfaceGroup::place),
    }
}

/// What `y` takes from a row: what it is, and the text.
pub fn copied(document: &Document, row: DiffRow) -> Option<(String, String)> {
    let c = document.comparison.as_ref();
    let own = |what: &str, text: String| Some((what.to_owned(), text));
    match row {
        DiffRow::Side(which) | DiffRow::Verdicts(which) => own("path of the pack", side(document, which).path.clone()),
        DiffRow::Finding(which, n) => {
            let finding = side(document, which).errors.get(n)?;
            own("finding", format!("{} {}", finding.code, finding.message))
        }
        DiffRow::Worse(n) => own("what is worse", document.regressions.get(n)?.what.clone()),
        DiffRow::Change(n) => {
            let change = c?.changes.get(n)?;
            let ids = [&change.a, &change.b].into_iter().flatten().map(|s| s.receipt_id.as_str());
            own("receipt ids", ids.collect::<Vec<_>>().join("\n"))
        }
        DiffRow::Tool(n) => own("tool name", c?.tools.get(n)?.tool.clone()),
        DiffRow::Context(n) => {
            let change = c?.context.get(n)?;
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            own("both values", format!("{}\n{}", text(&change.a), text(&change.b)))
        }
        DiffRow::Surface(n) => own("items", c?.surface.get(n)?.place()),
        DiffRow::Head(_) | DiffRow::NotCompared | DiffRow::Omitted(_) | DiffRow::AllTools => None,
    }
}

/// A row as the document of `assay diff --json` has it.
pub fn raw(document: &Document, row: DiffRow) -> String {
    fn json<T: Serialize>(value: Option<&T>) -> String {
        value.and_then(|v| serde_json::to_string_pretty(v).ok()).unwrap_or_default()
    }
    let c = document.comparison.as_ref();
    match row {
        DiffRow::Side(which) | DiffRow::Verdicts(which) => json(Some(side(document, which))),
        DiffRow::Finding(which, n) => json(side(document, which).errors.get(n)),
        DiffRow::Worse(n) => json(document.regressions.get(n)),
        DiffRow::Change(n) => json(c.and_then(|c| c.changes.get(n))),
        DiffRow::Tool(n) => json(c.and_then(|c| c.tools.get(n))),
        DiffRow::Context(n) => json(c.and_then(|c| c.context.get(n))),
        DiffRow::Surface(n) => json(c.and_then(|c| c.surface.get(n))),
        DiffRow::AllTools | DiffRow::Head(_) | DiffRow::Omitted(_) | DiffRow::NotCompared => json(Some(document)),
    }
}
