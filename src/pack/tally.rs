//! What a pack's receipts add up to: calls, outcomes and latency by tool, in bounded memory.

use super::{calls::Seen, verify::Covered};
use crate::{
    model::{
        InvocationId, Outcome, limits,
        server::{TOOL_DENIED, TOOL_EXECUTED, TOOL_REQUESTED, flat},
    },
    numbers::nearest_rank,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Most tool names and receipt types that are counted apart; further ones are counted together.
const MAX_NAMES: usize = 500;
/// Bytes of a name that are kept.
const MAX_NAME: usize = 256;

/// Latencies in microseconds, as a histogram with 16 buckets an octave: quantiles are at most 7 % too high.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    buckets: Vec<u32>,
    count: u64,
    max: u64,
}

fn bucket(us: u64) -> usize {
    match us.checked_ilog2() {
        Some(octave) if octave >= 4 => (octave as usize - 3) * 16 + ((us >> (octave - 4)) & 15) as usize,
        _ => us as usize,
    }
}

/// The highest value that falls into a bucket.
fn upper(bucket: usize) -> u64 {
    let (octave, step) = (bucket / 16, (bucket % 16) as u64);
    if octave == 0 { step } else { ((16 + step + 1) << (octave - 1)).wrapping_sub(1) }
}

impl Latency {
    /// Counts one round trip.
    pub fn add(&mut self, us: u64) {
        let at = bucket(us);
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] = self.buckets[at].saturating_add(1);
        self.count += 1;
        self.max = self.max.max(us);
    }

    /// The value that a share of `per_mille` thousandths does not exceed.
    #[must_use]
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        let rank = nearest_rank(self.count, per_mille);
        let mut seen = 0;
        for (at, n) in self.buckets.iter().enumerate() {
            seen += u64::from(*n);
            if seen >= rank {
                return Some(upper(at).min(self.max));
            }
        }
        None
    }

    /// The longest round trip in microseconds.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Its buckets that are not empty, with how many fell into each, for storing; [`Latency::from_parts`] reads them.
    pub fn parts(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, n)| (at as u16, *n))
    }

    /// What [`Latency::parts`] gave, and the longest; `None` for a bucket that there is not.
    #[must_use]
    pub fn from_parts(parts: impl IntoIterator<Item = (u16, u32)>, max: u64) -> Option<Self> {
        let mut out = Self { max, ..Self::default() };
        for (at, n) in parts {
            let at = usize::from(at);
            if at > bucket(u64::MAX) {
                return None;
            }
            if out.buckets.len() <= at {
                out.buckets.resize(at + 1, 0);
            }
            out.buckets[at] = out.buckets[at].saturating_add(n);
            out.count += u64::from(n);
        }
        Some(out)
    }

    fn merge(&mut self, other: &Self) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }
}

/// Calls of one tool.
#[derive(Debug, Clone, Default)]
pub struct ToolTally {
    /// Number of receipts.
    pub calls: u64,
    /// Number of calls with an ordinary response.
    pub forwarded: u64,
    /// Receipts of calls that a policy denied.
    pub denied: u64,
    /// Number of calls that ended in an error.
    pub errors: u64,
    /// Receipts of calls that got no response.
    pub timeouts: u64,
    /// Quantiles of the round trips.
    pub latency: Latency,
}

impl ToolTally {
    /// One more call; `None` for an outcome that is not ours.
    pub fn add(&mut self, outcome: Option<Outcome>, duration_us: Option<u64>) {
        self.calls += 1;
        match outcome {
            Some(Outcome::Forwarded) => self.forwarded += 1,
            Some(Outcome::Denied) => self.denied += 1,
            Some(Outcome::Error) => self.errors += 1,
            Some(Outcome::Timeout) => self.timeouts += 1,
            None => {}
        }
        // A call without a response has no latency: its duration is how long it was waited for.
        if let Some(us) = duration_us.filter(|_| outcome != Some(Outcome::Timeout)) {
            self.latency.add(us);
        }
    }

    /// Adds the calls of another.
    pub fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.forwarded += other.forwarded;
        self.denied += other.denied;
        self.errors += other.errors;
        self.timeouts += other.timeouts;
        self.latency.merge(&other.latency);
    }
}

/// A row for reports; times in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct TallyRow {
    /// Tool name as sent; `null` for all that were too many to tell apart.
    pub tool: Option<String>,
    /// Number of receipts.
    pub calls: u64,
    /// Number of calls with an ordinary response.
    pub forwarded: u64,
    /// Receipts of calls that a policy denied.
    pub denied: u64,
    /// Number of calls that ended in an error.
    pub errors: u64,
    /// Receipts of calls that got no response.
    pub timeouts: u64,
    /// Median round trip, microseconds.
    pub p50_us: Option<u64>,
    /// 95th percentile of the round trips in microseconds; `None` without any.
    pub p95_us: Option<u64>,
    /// Longest round trip in microseconds; `None` without any.
    pub max_us: Option<u64>,
}

impl TallyRow {
    fn new(tool: Option<String>, t: &ToolTally) -> Self {
        Self {
            tool,
            calls: t.calls,
            forwarded: t.forwarded,
            denied: t.denied,
            errors: t.errors,
            timeouts: t.timeouts,
            p50_us: t.latency.quantile(500),
            p95_us: t.latency.quantile(950),
            max_us: t.latency.max(),
        }
    }
}

/// Counts of receipts by tool, type and anomaly.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    tools: BTreeMap<String, ToolTally>,
    other_tools: ToolTally,
    types: BTreeMap<String, u64>,
    anomalies: BTreeMap<String, u64>,
    surface: BTreeMap<String, u64>,
    receipts: u64,
    redacted: u64,
    /// What a server's own receipts say of its calls.
    pub accounts: Accounts,
}

/// What a server's own receipts say of its calls.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// Without the calls that are open.
    covered: Covered,
    /// Calls that have no outcome yet, by when they were asked for.
    open: HashMap<InvocationId, u64>,
}

impl Accounts {
    /// A receipt of any type.
    pub fn receipt(&mut self, seen: &Seen<'_>) {
        match flat(&seen.kind) {
            Some(TOOL_REQUESTED) => seen.invocation.into_iter().for_each(|call| self.asked(call)),
            Some(TOOL_DENIED) => self.settled(seen.invocation, true),
            Some(TOOL_EXECUTED) if !seen.is_leg => self.settled(seen.invocation, false),
            _ => {}
        }
    }

    /// A server says that this call is asked for.
    pub fn asked(&mut self, call: InvocationId) {
        if self.open.len() < limits::VERIFIED {
            self.open.insert(call, self.covered.coverage.requested);
        }
        self.covered.coverage.requested += 1;
    }

    /// A server says what became of the call, which may be that its policy refused it.
    pub fn settled(&mut self, call: Option<InvocationId>, denied: bool) {
        let coverage = &mut self.covered.coverage;
        match call.and_then(|call| self.open.remove(&call)) {
            None => self.covered.stray += 1,
            Some(_) if denied => coverage.denied += 1,
            Some(_) => coverage.executed += 1,
        }
    }

    /// How many of the calls that a server was asked for have an outcome; `None` where no receipt is a server's own.
    #[must_use]
    pub fn coverage(&self) -> Option<Covered> {
        let mut covered = self.covered.clone();
        let coverage = &mut covered.coverage;
        coverage.open = coverage.requested - coverage.denied - coverage.executed;
        let mut open: Vec<(&u64, &InvocationId)> = self.open.iter().map(|(id, at)| (at, id)).collect();
        open.sort_unstable();
        covered.open = open.into_iter().take(Covered::NAMED).map(|(_, id)| *id).collect();
        (covered.coverage.requested + covered.stray > 0).then_some(covered)
    }
}

/// A name as it is kept: cut where it is too long.
pub(super) fn name(text: &str) -> String {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end == text.len() { text.to_owned() } else { format!("{}…", &text[..end]) }
}

fn count(map: &mut BTreeMap<String, u64>, text: &str) {
    let text = name(text);
    let full = map.len() >= MAX_NAMES && !map.contains_key(&text);
    *map.entry(if full { "…".to_owned() } else { text }).or_default() += 1;
}

impl Tally {
    /// A receipt of any type.
    pub fn receipt(&mut self, kind: &str) {
        self.receipts += 1;
        count(&mut self.types, kind);
    }

    /// A tool call, after [`Tally::receipt`]; `None` for an outcome that is not ours.
    pub fn call(&mut self, tool: &str, outcome: Option<Outcome>, duration_us: Option<u64>) {
        let known = self.tools.len() < MAX_NAMES || self.tools.contains_key(tool);
        let tally = if known { self.tools.entry(name(tool)).or_default() } else { &mut self.other_tools };
        tally.add(outcome, duration_us);
    }

    /// A call of which some arguments are in cleartext, and the others as their hashes.
    pub fn redacted(&mut self) {
        self.redacted += 1;
    }

    /// How many such calls there are.
    #[must_use]
    pub fn redacted_calls(&self) -> u64 {
        self.redacted
    }

    /// How the definition of a call stood, its `surface_state`.
    pub fn stood(&mut self, state: &str) {
        count(&mut self.surface, state);
    }

    /// How many calls stood in each way; empty where receipts do not say.
    #[must_use]
    pub fn surface(&self) -> &BTreeMap<String, u64> {
        &self.surface
    }

    /// A word in a receipt's `anomalies`.
    pub fn anomaly(&mut self, word: &str) {
        count(&mut self.anomalies, word);
    }

    /// Receipts of all types.
    #[must_use]
    pub fn receipts(&self) -> u64 {
        self.receipts
    }

    /// Receipts by type.
    #[must_use]
    pub fn types(&self) -> &BTreeMap<String, u64> {
        &self.types
    }

    /// Anomalies by word.
    #[must_use]
    pub fn anomalies(&self) -> &BTreeMap<String, u64> {
        &self.anomalies
    }

    /// One row a tool, most called first.
    #[must_use]
    pub fn rows(&self) -> Vec<TallyRow> {
        let mut rows: Vec<TallyRow> = self.tools.iter().map(|(n, t)| TallyRow::new(Some(n.clone()), t)).collect();
        rows.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.tool.cmp(&b.tool)));
        if self.other_tools.calls > 0 {
            rows.push(TallyRow::new(None, &self.other_tools));
        }
        rows
    }

    /// All tools together.
    #[must_use]
    pub fn total(&self) -> TallyRow {
        let mut total = self.other_tools.clone();
        for t in self.tools.values() {
            total.merge(t);
        }
        TallyRow::new(None, &total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quantile_is_never_too_low_and_at_most_7_percent_too_high(
            mut values in prop::collection::vec(0u64..u64::MAX >> 8, 1..200), per_mille in 1u64..=1000,
        ) {
            let mut latency = Latency::default();
            for v in &values {
                latency.add(*v);
            }
            values.sort_unstable();
            let exact = values[(values.len() as u64 * per_mille).div_ceil(1000) as usize - 1];
            let found = latency.quantile(per_mille).unwrap();
            prop_assert!(found >= exact && found as f64 <= exact as f64 * 1.07, "{found} for {exact}");
            prop_assert_eq!(latency.max(), values.last().copied());
            let stored = Latency::from_parts(latency.parts(), latency.max().unwrap()).unwrap();
            prop_assert_eq!(stored.quantile(per_mille), latency.quantile(per_mille));
        }
    }

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let mut tally = Tally::default();
        for n in 0..2000 {
            tally.receipt("mcp_tool_call");
            tally.call(&format!("tool_{n:04}"), Some(Outcome::Forwarded), Some(n));
        }
        tally.call(&"é".repeat(1 << 20), None, None);
        assert_eq!(tally.rows().len(), MAX_NAMES + 1);
        assert_eq!(tally.total().calls, 2001);
        assert_eq!(tally.rows().iter().map(|r| r.calls).sum::<u64>(), 2001);
        assert_eq!(Latency::default().quantile(500), None);
        assert!(upper(bucket(u64::MAX)) >= u64::MAX - 1);
    }
}
