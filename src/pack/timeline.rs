//! Calls as a picture of time: lanes by server, calls in flight, totals by tool. Where it is drawn is another's matter.

use crate::{
    model::{Outcome, WallTime},
    pack::calls::{Seen, word},
};
use std::collections::{BTreeMap, HashMap};

/// Calls that are kept one by one; of more, the first. All are counted.
pub const MAX_SPANS: usize = 200_000;
/// Servers that have a lane of their own, and tools that are counted apart.
const MAX_NAMES: usize = 1000;
/// Rows of one lane: calls that overlap more often lie over each other.
pub const MAX_ROWS: usize = 4;

/// What became of a call; of several in one place, the last of these is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It was answered.
    Answered,
    /// It has no end yet.
    Running,
    /// It was denied.
    Denied,
    /// It failed, or was never answered.
    Failed,
}

impl Fate {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Answered, Self::Running, Self::Denied, Self::Failed];

    /// That of a call that came to this; `None` while it runs.
    #[must_use]
    pub const fn of(outcome: Option<Outcome>) -> Self {
        match outcome {
            None => Self::Running,
            Some(Outcome::Forwarded) => Self::Answered,
            Some(Outcome::Denied) => Self::Denied,
            Some(Outcome::Error | Outcome::Timeout) => Self::Failed,
        }
    }

    /// In a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Running => "running",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

/// One call; times in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: i64,
    to: i64,
    lane: usize,
    fate: Fate,
}

/// Counts of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolTotal {
    /// Its calls.
    pub calls: u64,
    /// Of these, those that were denied.
    pub denied: u64,
    /// Those that failed or were never answered.
    pub failed: u64,
    /// Time of all of them together, microseconds.
    pub us: u64,
}

/// Calls in time.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    servers: Vec<String>,
    lanes: HashMap<String, usize>,
    tools: BTreeMap<String, ToolTotal>,
    spans: Vec<Span>,
    calls: u64,
}

/// The calls of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The server's id.
    pub server: String,
    /// Its calls in this stretch of time.
    pub calls: u64,
    /// Rows of places: what is at each.
    pub rows: Vec<Vec<Option<Fate>>>,
}

/// A stretch of time, divided into places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Lanes that have a call in it.
    pub lanes: Vec<Lane>,
    /// The most calls that were in flight at once, at each place.
    pub in_flight: Vec<u32>,
}

impl View {
    /// The most calls that were in flight at once.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.in_flight.iter().copied().max().unwrap_or(0)
    }
}

impl Timeline {
    /// Adds a call that was asked for at this time, and took so long.
    pub fn add(&mut self, server: &str, tool: &str, from: WallTime, us: u64, fate: Fate) {
        self.calls += 1;
        let full = self.tools.len() >= MAX_NAMES && !self.tools.contains_key(tool);
        let total = match self.tools.get_mut(if full { "…" } else { tool }) {
            Some(total) => total,
            None => self.tools.entry(if full { "…" } else { tool }.to_owned()).or_default(),
        };
        total.calls += 1;
        total.denied += u64::from(fate == Fate::Denied);
        total.failed += u64::from(fate == Fate::Failed);
        total.us = total.us.saturating_add(us);
        if self.spans.len() >= MAX_SPANS {
            return;
        }
        let known = self.lanes.get(server).copied();
        let lane = known.unwrap_or_else(|| {
            let name = if self.servers.len() >= MAX_NAMES { "…" } else { server };
            self.lanes.get(name).copied().unwrap_or_else(|| {
                self.servers.push(name.to_owned());
                self.lanes.insert(name.to_owned(), self.servers.len() - 1);
                self.servers.len() - 1
            })
        });
        let from = from.millis().saturating_mul(1000);
        self.spans.push(Span { from, to: from.saturating_add_unsigned(us.max(1)), lane, fate });
    }

    /// Adds a receipt, if it is of a call and says when that was.
    pub fn receipt(&mut self, seen: &Seen<'_>) {
        if !seen.is_call() {
            return;
        }
        let us = seen.duration_us.unwrap_or(0);
        let ended = || Some(WallTime::parse(&seen.timestamp)?.millis() - i64::try_from(us / 1000).ok()?);
        let asked = WallTime::parse(&seen.asked_at).or_else(|| ended().map(WallTime::from_millis));
        if let (Some(asked), Some(outcome)) = (asked, word::<Outcome>(&seen.outcome)) {
            self.add(&seen.server, &seen.tool, asked, us, Fate::of(Some(outcome)));
        }
    }

    /// Calls that were added.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls that are in no lane because there are too many.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.calls - self.spans.len() as u64
    }

    /// When the first call began and the last one ended, microseconds since 1970.
    #[must_use]
    pub fn range(&self) -> Option<(i64, i64)> {
        let from = self.spans.iter().map(|s| s.from).min()?;
        Some((from, self.spans.iter().map(|s| s.to).max()?))
    }

    /// The tools, those that took most time first.
    #[must_use]
    pub fn tools(&self) -> Vec<(&str, &ToolTotal)> {
        let mut all: Vec<_> = self.tools.iter().map(|(name, total)| (name.as_str(), total)).collect();
        all.sort_by(|a, b| (b.1.us, b.1.calls, a.0).cmp(&(a.1.us, a.1.calls, b.0)));
        all
    }

    /// What was between two times, in so many places.
    #[must_use]
    pub fn view(&self, from: i64, to: i64, places: usize) -> View {
        let (places, long) = (places.max(1), i128::from(to.saturating_sub(from).max(1)));
        let place = |at: i64| {
            let within = i128::from(at.clamp(from, to).saturating_sub(from));
            usize::try_from(within * places as i128 / long).unwrap_or(0).min(places - 1)
        };
        let mut spans: Vec<&Span> = self.spans.iter().filter(|s| s.to > from && s.from < to).collect();
        spans.sort_by_key(|s| (s.from, s.to));
        let mut lanes: BTreeMap<usize, Lane> = BTreeMap::new();
        // Where the last call of each row ends.
        let mut ends: HashMap<usize, Vec<usize>> = HashMap::new();
        for s in &spans {
            let lane = lanes.entry(s.lane).or_insert_with(|| Lane {
                server: self.servers.get(s.lane).cloned().unwrap_or_default(),
                calls: 0,
                rows: Vec::new(),
            });
            lane.calls += 1;
            let (first, last) = (place(s.from), place(s.to - 1));
            let ends = ends.entry(s.lane).or_default();
            let row = match ends.iter().position(|end| *end < first) {
                Some(row) => row,
                None if ends.len() < MAX_ROWS => {
                    ends.push(0);
                    lane.rows.push(vec![None; places]);
                    ends.len() - 1
                }
                None => ends.iter().enumerate().min_by_key(|(_, end)| **end).map_or(0, |(row, _)| row),
            };
            ends[row] = ends[row].max(last);
            for cell in &mut lane.rows[row][first..=last] {
                *cell = (*cell).max(Some(s.fate));
            }
        }
        View { lanes: lanes.into_values().collect(), in_flight: in_flight(&spans, places, place) }
    }
}

/// The most calls that were in flight at once, at each place.
fn in_flight(spans: &[&Span], places: usize, place: impl Fn(i64) -> usize) -> Vec<u32> {
    let mut changes: Vec<(i64, i32)> = spans.iter().flat_map(|s| [(s.from, 1), (s.to, -1)]).collect();
    // One that ends when another begins is not beside it.
    changes.sort_unstable();
    let mut out = vec![0; places];
    let (mut now, mut at) = (0u32, 0);
    for (time, change) in changes {
        // What ends where a place begins was not in it.
        let last = place(time - 1);
        if now > 0 && last >= at {
            for most in &mut out[at..=last] {
                *most = now.max(*most);
            }
        }
        now = now.saturating_add_signed(change);
        at = place(time);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(calls: &[(&str, i64, u64, Fate)]) -> Timeline {
        let mut timeline = Timeline::default();
        for (server, ms, us, fate) in calls {
            timeline.add(server, "t", WallTime::from_millis(*ms), *us, *fate);
        }
        timeline
    }

    fn drawn(lane: &Lane) -> Vec<String> {
        let glyph = |cell: &Option<Fate>| match cell {
            None => '.',
            Some(Fate::Answered) => 'a',
            Some(Fate::Running) => 'r',
            Some(Fate::Denied) => 'd',
            Some(Fate::Failed) => 'f',
        };
        lane.rows.iter().map(|row| row.iter().map(glyph).collect()).collect()
    }

    #[test]
    fn calls_beside_each_other_have_rows_of_their_own() {
        let t = of(&[
            ("one", 0, 30_000, Fate::Answered),
            ("one", 10, 50_000, Fate::Failed),
            ("one", 40, 10_000, Fate::Denied),
            ("two", 90, 10_000, Fate::Running),
        ]);
        assert_eq!(t.range(), Some((0, 100_000)));
        let view = t.view(0, 100_000, 10);
        assert_eq!(
            view.lanes.iter().map(|l| (l.server.as_str(), l.calls)).collect::<Vec<_>>(),
            [("one", 3), ("two", 1)]
        );
        assert_eq!(drawn(&view.lanes[0]), ["aaa.d.....", ".fffff...."]);
        assert_eq!(drawn(&view.lanes[1]), [".........r"]);
        assert_eq!((view.in_flight.as_slice(), view.most()), (&[1, 2, 2, 1, 2, 1, 0, 0, 0, 1][..], 2));
        // A part of it: what is outside is not there.
        let part = t.view(50_000, 70_000, 4);
        assert_eq!(drawn(&part.lanes[0]), ["ff.."]);
        assert_eq!(t.view(60_000, 80_000, 4).lanes, []);
    }

    #[test]
    fn more_calls_than_rows_lie_over_each_other_and_the_worst_is_seen() {
        let all: Vec<_> =
            (0..20).map(|n| ("s", 0, 1_000, if n == 7 { Fate::Failed } else { Fate::Answered })).collect();
        let view = of(&all).view(0, 1_000, 3);
        assert_eq!((view.lanes[0].rows.len(), view.most()), (MAX_ROWS, 20));
        assert!(drawn(&view.lanes[0]).contains(&"fff".to_owned()));
        // One after the other within one place is one at a time.
        let all: Vec<_> = (0..20).map(|n| ("s", n, 1_000, Fate::Answered)).collect();
        assert_eq!(of(&all).view(0, 1_000_000, 5).in_flight, [1, 0, 0, 0, 0]);
        let nothing = Timeline::default();
        assert_eq!((nothing.range(), nothing.view(0, 0, 0).in_flight), (None, vec![0]));
    }

    #[test]
    fn tools_are_ordered_by_their_time_and_all_calls_are_counted() {
        let mut t = Timeline::default();
        for n in 0..MAX_SPANS as u64 + 10 {
            let tool = if n.is_multiple_of(3) { "slow" } else { "quick" };
            let us = if tool == "slow" { 1_000_000 } else { 5 };
            t.add("s", tool, WallTime::from_millis(0), us, if n == 4 { Fate::Denied } else { Fate::Answered });
        }
        let tools = t.tools();
        assert_eq!(tools.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["slow", "quick"]);
        assert_eq!(tools[0].1.calls + tools[1].1.calls, t.calls());
        assert_eq!((tools[1].1.denied, t.left_out()), (1, 10));
        for n in 0..2 * MAX_NAMES {
            t.add("s", &format!("{n}"), WallTime::from_millis(0), 1, Fate::Answered);
        }
        assert_eq!(t.tools().len(), MAX_NAMES + 1);
    }
}
