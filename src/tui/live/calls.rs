//! Which calls are listed, which one is selected, and how far the list is scrolled: the selection follows the call, not
//! the row.

use crate::{
    filter::Filter,
    live::{
        row::{CallRow, Place},
        state::{State, facts},
        words::CallState,
    },
    model::{InvocationId, SessionId},
    numbers::nearest_rank,
};
use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    ops::Bound::{Excluded, Unbounded},
};

/// Round trips of which quantiles are shown.
const RECENT: usize = 1000;
/// No call below this is called slow, microseconds.
const SLOW_US: u64 = 100_000;

#[derive(Debug, Clone)]
pub(super) struct Calls {
    shown: BTreeSet<Place>,
    places: HashMap<InvocationId, Place>,
    only: Option<SessionId>,
    selected: Option<Place>,
    /// Line of the pane on which the selected call is.
    line: u64,
    follow: bool,
    /// Calls that came at the end while it did not follow.
    new: u64,
    recent: VecDeque<u64>,
    ended: HashSet<InvocationId>,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            shown: BTreeSet::new(),
            places: HashMap::new(),
            only: None,
            selected: None,
            line: 0,
            follow: true,
            new: 0,
            recent: VecDeque::new(),
            ended: HashSet::new(),
        }
    }
}

impl Calls {
    /// How many are listed.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    pub const fn follows(&self) -> bool {
        self.follow
    }

    pub const fn new_ones(&self) -> u64 {
        self.new
    }

    pub fn selected(&self) -> Option<InvocationId> {
        self.selected.map(|p| p.1)
    }

    pub fn stop(&mut self) {
        self.follow = false;
        self.new = 0;
    }

    /// A call is new or has changed.
    pub fn touched(&mut self, state: &State, invocation: InvocationId, filter: &Filter) {
        let row = state.row(invocation);
        if let Some(us) = row.filter(|r| !r.is_running()).and_then(|r| r.duration_ms)
            && self.ended.insert(invocation)
        {
            self.recent.push_back(us.0);
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
        let before = self.places.remove(&invocation);
        if let Some(place) = before {
            self.shown.remove(&place);
        }
        if let Some(row) = row.filter(|row| self.passes(row, filter)) {
            let place = row.place();
            let last = self.shown.last().is_none_or(|l| place > *l);
            self.shown.insert(place);
            self.places.insert(invocation, place);
            if before.is_none() && !self.follow && last {
                self.new += 1;
            }
            if before.is_some() && self.selected.is_some_and(|s| s.1 == invocation) {
                self.selected = Some(place);
            }
        }
        // What has left the window leaves the list.
        while let Some(first) = self.shown.first().copied().filter(|p| state.row(p.1).is_none()) {
            self.shown.pop_first();
            self.places.remove(&first.1);
            self.ended.remove(&first.1);
        }
        if self.ended.len() > 4 * RECENT && self.ended.len() > 2 * self.places.len() {
            self.ended.retain(|i| state.row(*i).is_some());
        }
        self.settle();
    }

    /// Lists all calls again: of one session, or of all; those that pass.
    pub fn only(&mut self, state: &State, only: Option<SessionId>, filter: &Filter) {
        self.only = only;
        let kept = state.rows().filter(|row| self.passes(row, filter)).map(CallRow::place);
        let shown: BTreeSet<Place> = kept.collect();
        self.places = shown.iter().map(|p| (p.1, *p)).collect();
        self.shown = shown;
        self.new = 0;
        self.settle();
    }

    fn passes(&self, row: &CallRow, filter: &Filter) -> bool {
        self.only.is_none_or(|s| row.session_id == s) && (filter.is_empty() || filter.passes(&facts(row)))
    }

    /// The selection is a call that is listed: the last while it follows, else the nearest to the one that went.
    fn settle(&mut self) {
        if self.follow {
            self.selected = self.shown.last().copied();
        } else if let Some(place) = self.selected.filter(|p| !self.shown.contains(p)) {
            let near = self.shown.range(place..).next().or_else(|| self.shown.range(..place).next_back());
            self.selected = near.copied();
        } else if self.selected.is_none() {
            self.selected = self.shown.last().copied();
        }
    }

    /// Which of the listed calls is selected, from 0.
    fn rank(&self) -> u64 {
        // From the end: that is where one is, mostly.
        self.selected.map_or(0, |s| (self.shown.len() - self.shown.range(s..).count()) as u64)
    }

    /// Moves the selection. Upwards stops following, the end resumes it.
    pub fn step(&mut self, lines: i64, height: u16) {
        if self.shown.is_empty() {
            self.follow |= lines > 0;
            return;
        }
        let (rank, last) = (self.rank(), self.shown.len() as u64 - 1);
        let to = rank.saturating_add_signed(lines).min(last);
        let top = self.top(rank, height);
        self.follow = if lines < 0 { false } else { self.follow || to == last };
        if self.follow {
            self.new = 0;
        }
        self.go(to, top, height);
    }

    fn go(&mut self, to: u64, top: u64, height: u16) {
        self.selected = self.shown.iter().nth(to as usize).copied();
        let height = u64::from(height.max(1));
        let top = top.min(to).max((to + 1).saturating_sub(height));
        self.line = to - top;
    }

    /// The first listed call that is shown.
    fn top(&self, rank: u64, height: u16) -> u64 {
        let (len, height) = (self.shown.len() as u64, u64::from(height.max(1)));
        let line = if self.follow { height - 1 } else { self.line.min(height - 1) };
        rank.saturating_sub(line).min(len.saturating_sub(height))
    }

    /// Selects what is on a line of the pane.
    pub fn click(&mut self, line: u16, height: u16) {
        let top = self.top(self.rank(), height);
        let to = top + u64::from(line);
        if to < self.shown.len() as u64 {
            self.follow = to + 1 == self.shown.len() as u64 && self.follow;
            self.go(to, top, height);
        }
    }

    /// Goes to the next call that is worth a look; whether there is one.
    pub fn problem(&mut self, state: &State, forwards: bool, slow_us: u64, height: u16) -> bool {
        let Some(here) = self.selected else { return false };
        let wanted = |p: &&Place| {
            state
                .row(p.1)
                .is_some_and(|row| CallState::of(row).is_problem() || row.duration_ms.is_some_and(|d| d.0 >= slow_us))
        };
        let found = if forwards {
            self.shown.range((Excluded(here), Unbounded)).find(wanted)
        } else {
            self.shown.range(..here).rev().find(wanted)
        };
        let Some(found) = found.copied() else { return false };
        let top = self.top(self.rank(), height);
        let to = (self.shown.len() - self.shown.range(found..).count()) as u64;
        self.follow = false;
        self.go(to, top, height);
        true
    }

    /// The calls on the screen, and which line of them is selected.
    pub fn window<'a>(&self, state: &'a State, height: u16) -> (Vec<&'a CallRow>, Option<u16>) {
        let rank = self.rank();
        let top = self.top(rank, height);
        // The end is near: counting from there is quick.
        let behind = self.shown.len().saturating_sub(top as usize + usize::from(height));
        let places = self.shown.iter().rev().skip(behind).take(usize::from(height).min(self.shown.len()));
        let mut rows: Vec<_> = places.filter_map(|p| state.row(p.1)).collect();
        rows.reverse();
        let line = self.selected.and_then(|s| rows.iter().position(|r| r.invocation_id == s.1));
        (rows, line.map(|l| l as u16))
    }

    /// Whether the first listed call is on the screen.
    pub fn at_top(&self, height: u16) -> bool {
        self.top(self.rank(), height) == 0
    }

    /// The quantile of so many thousandths of recent round trips, microseconds.
    pub fn quantile(&self, per_mille: u64) -> Option<u64> {
        if self.recent.is_empty() {
            return None;
        }
        let mut all: Vec<u64> = self.recent.iter().copied().collect();
        let at = nearest_rank(all.len() as u64, per_mille) as usize - 1;
        Some(*all.select_nth_unstable(at).1)
    }

    /// From which round trip on a call is called slow.
    pub fn slow_us(&self) -> u64 {
        self.quantile(950).unwrap_or(u64::MAX).max(SLOW_US)
    }
}
