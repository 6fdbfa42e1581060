//! Calls, errors, denials and latency by tool, server and day: of packs, or of the history.

use super::{
    calls::{self, Seen},
    tally::{ToolTally, name},
};
use crate::model::surface::State;
use serde::Serialize;
use std::collections::BTreeMap;

/// Format of the document.
///
/// | version | change |
/// |---|---|
/// | `assay.analysis.v1` | first; later with `surface` |
pub const ANALYSIS_SCHEMA: &str = "assay.analysis.v1";
/// Most combinations of tool, server and day that are counted apart; further ones are counted under `…`.
const MAX_CELLS: usize = 20_000;

/// What is counted together.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Tool name as sent, cut at 256 bytes.
    pub tool: String,
    /// `server_id`, cut at 256 bytes.
    pub server: String,
    /// Day of the receipt in UTC, `2026-03-15`; empty where the receipt does not say.
    pub day: String,
}

/// A row; times in microseconds, at most 7 % too high.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnalysisRow {
    /// Tool, server or day.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls with an ordinary response.
    pub forwarded: u64,
    /// Calls that a policy denied.
    pub denied: u64,
    /// Number of calls that ended in an error.
    pub errors: u64,
    /// Calls that got no response.
    pub timeouts: u64,
    /// Median round trip, microseconds.
    pub p50_us: Option<u64>,
    /// 95th percentile of the round trips in microseconds; `None` without any.
    pub p95_us: Option<u64>,
    /// 99th percentile of the round trips in microseconds; `None` without any.
    pub p99_us: Option<u64>,
    /// Longest round trip in microseconds; `None` without any.
    pub max_us: Option<u64>,
}

impl AnalysisRow {
    fn new(name: &str, t: &ToolTally) -> Self {
        Self {
            name: name.to_owned(),
            calls: t.calls,
            forwarded: t.forwarded,
            denied: t.denied,
            errors: t.errors,
            timeouts: t.timeouts,
            p50_us: t.latency.quantile(500),
            p95_us: t.latency.quantile(950),
            p99_us: t.latency.quantile(990),
            max_us: t.latency.max(),
        }
    }
}

/// Counts of calls and round trips by tool, server and day.
#[derive(Debug, Clone, Default)]
pub struct Analysis {
    cells: BTreeMap<Cell, ToolTally>,
    /// Calls by what was known of the definition that they ran under, in the words of receipts.
    surface: BTreeMap<String, u64>,
}

impl Analysis {
    /// Counts a receipt, if it is a tool call.
    pub fn receipt(&mut self, seen: &Seen<'_>) {
        if !seen.is_call() {
            return;
        }
        let outcome = calls::word(&seen.outcome);
        if !seen.surface.is_empty() {
            // Words that are not known count together: a receipt could have any.
            let state = calls::word::<State>(&seen.surface).map_or("…", State::as_str);
            *self.surface.entry(state.to_owned()).or_default() += 1;
        }
        let cell =
            Cell { tool: name(&seen.tool), server: name(&seen.server), day: seen.day().unwrap_or_default().to_owned() };
        self.entry(cell).add(outcome, seen.duration_us);
    }

    /// Adds what was counted before.
    pub fn add(&mut self, cell: Cell, tally: &ToolTally) {
        self.entry(cell).merge(tally);
    }

    fn entry(&mut self, cell: Cell) -> &mut ToolTally {
        let full = self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&cell);
        let other = || Cell { tool: "…".to_owned(), server: "…".to_owned(), day: String::new() };
        self.cells.entry(if full { other() } else { cell }).or_default()
    }

    /// What was counted, in order.
    pub fn cells(&self) -> impl Iterator<Item = (&Cell, &ToolTally)> {
        self.cells.iter()
    }

    /// Calls that were compared with what is approved of their server's surface, by what came of that: `surface_state` of
    /// receipts.
    #[must_use]
    pub const fn surface(&self) -> &BTreeMap<String, u64> {
        &self.surface
    }

    fn by(&self, key: impl Fn(&Cell) -> &str) -> Vec<AnalysisRow> {
        let mut sums: BTreeMap<&str, ToolTally> = BTreeMap::new();
        for (cell, tally) in &self.cells {
            sums.entry(key(cell)).or_default().merge(tally);
        }
        sums.iter().map(|(name, tally)| AnalysisRow::new(name, tally)).collect()
    }

    /// By tool, most called first.
    #[must_use]
    pub fn by_tool(&self) -> Vec<AnalysisRow> {
        let mut rows = self.by(|c| &c.tool);
        rows.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// By server, most called first.
    #[must_use]
    pub fn by_server(&self) -> Vec<AnalysisRow> {
        let mut rows = self.by(|c| &c.server);
        rows.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// By day, the earliest first.
    #[must_use]
    pub fn by_day(&self) -> Vec<AnalysisRow> {
        self.by(|c| &c.day)
    }

    /// The sums over all tools, servers and days.
    #[must_use]
    pub fn total(&self) -> AnalysisRow {
        let mut sum = ToolTally::default();
        self.cells.values().for_each(|t| sum.merge(t));
        AnalysisRow::new("total", &sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_counting_gives_the_same_sum() {
        let (mut a, mut b) = (Analysis::default(), Analysis::default());
        for n in 0..MAX_CELLS as u64 + 500 {
            let tool = format!("tool{n}");
            let seen = Seen {
                kind: "mcp_tool_call".into(),
                tool: tool.as_str().into(),
                server: if n % 2 == 0 { "a" } else { "b" }.into(),
                timestamp: if n % 3 == 0 { "2026-03-15T00:00:00.000Z" } else { "soon" }.into(),
                outcome: if n % 5 == 0 { "error" } else { "forwarded" }.into(),
                duration_us: Some(n),
                ..Seen::default()
            };
            a.receipt(&seen);
        }
        a.receipt(&Seen { kind: "mcp.session_end".into(), ..Seen::default() });
        assert!(a.surface().is_empty());
        for state in ["approved", "changed", "approved", "later words"] {
            let seen = Seen { kind: "mcp_tool_call".into(), surface: state.into(), ..Seen::default() };
            b.receipt(&seen);
        }
        assert_eq!(
            b.surface().iter().map(|(s, n)| (s.as_str(), *n)).collect::<Vec<_>>(),
            [("approved", 2), ("changed", 1), ("…", 1)]
        );
        let total = a.total();
        assert_eq!(total.calls, MAX_CELLS as u64 + 500);
        assert_eq!(total.errors, total.calls.div_ceil(5));
        for rows in [a.by_tool(), a.by_server(), a.by_day()] {
            assert_eq!(rows.iter().map(|r| r.calls).sum::<u64>(), total.calls);
            assert_eq!(rows.iter().map(|r| r.errors).sum::<u64>(), total.errors);
        }
        assert_eq!(a.by_tool()[0].name, "…");
    }
}
