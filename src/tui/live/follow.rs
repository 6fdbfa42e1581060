//! A list that grows at its end: what is listed, what is selected, and how far it is scrolled. The selection follows what
//! is selected, not the row.

use crate::model::WallTime;
use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    ops::Bound::{Excluded, Unbounded},
};

/// Where something is in the list: by its time.
pub(super) type At<K> = (WallTime, K);

#[derive(Debug, Clone)]
pub(super) struct Follow<K> {
    shown: BTreeSet<At<K>>,
    places: HashMap<K, At<K>>,
    selected: Option<At<K>>,
    /// Line of the pane on which the selected one is.
    line: u64,
    /// Whether it follows what comes.
    on: bool,
    /// How many came at the end while it did not follow.
    new: u64,
}

impl<K> Default for Follow<K> {
    fn default() -> Self {
        Self { shown: BTreeSet::new(), places: HashMap::new(), selected: None, line: 0, on: true, new: 0 }
    }
}

impl<K: Copy + Ord + Hash> Follow<K> {
    /// How many are listed.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    pub const fn follows(&self) -> bool {
        self.on
    }

    pub const fn new_ones(&self) -> u64 {
        self.new
    }

    pub fn selected(&self) -> Option<K> {
        self.selected.map(|p| p.1)
    }

    /// Stops following, or goes to the end and follows again.
    pub fn toggle(&mut self, height: u16) {
        if self.on {
            self.on = false;
            self.new = 0;
        } else {
            self.step(i64::MAX, height);
        }
    }

    /// Lists it at `place`, or no longer. [`Self::settle`] comes after.
    pub fn put(&mut self, key: K, place: Option<At<K>>) {
        let before = self.places.remove(&key);
        if let Some(place) = before {
            self.shown.remove(&place);
        }
        let Some(place) = place else { return };
        let last = self.shown.last().is_none_or(|l| place > *l);
        self.shown.insert(place);
        self.places.insert(key, place);
        if before.is_none() && !self.on && last {
            self.new += 1;
        }
        if before.is_some() && self.selected.is_some_and(|s| s.1 == key) {
            self.selected = Some(place);
        }
    }

    /// Takes out the first ones that are `gone`.
    pub fn forget(&mut self, gone: impl Fn(K) -> bool) -> Vec<K> {
        let mut out = Vec::new();
        while let Some(first) = self.shown.first().copied().filter(|p| gone(p.1)) {
            self.shown.pop_first();
            self.places.remove(&first.1);
            out.push(first.1);
        }
        out
    }

    /// Lists others.
    pub fn list(&mut self, all: impl Iterator<Item = At<K>>) {
        self.shown = all.collect();
        self.places = self.shown.iter().map(|p| (p.1, *p)).collect();
        self.new = 0;
        self.settle();
    }

    /// The selection is one that is listed: the last while it follows, else the nearest to the one that went.
    pub fn settle(&mut self) {
        if self.on {
            self.selected = self.shown.last().copied();
        } else if let Some(place) = self.selected.filter(|p| !self.shown.contains(p)) {
            let near = self.shown.range(place..).next().or_else(|| self.shown.range(..place).next_back());
            self.selected = near.copied();
        } else if self.selected.is_none() {
            self.selected = self.shown.last().copied();
        }
    }

    /// Which of them is selected, from 0.
    fn rank(&self) -> u64 {
        // From the end: that is where one is, mostly.
        self.selected.map_or(0, |s| (self.shown.len() - self.shown.range(s..).count()) as u64)
    }

    /// Moves the selection. Upwards stops following, the end resumes it.
    pub fn step(&mut self, lines: i64, height: u16) {
        if self.shown.is_empty() {
            self.on |= lines > 0;
            return;
        }
        let (rank, last) = (self.rank(), self.shown.len() as u64 - 1);
        let to = rank.saturating_add_signed(lines).min(last);
        let top = self.top(rank, height);
        self.on = if lines < 0 { false } else { self.on || to == last };
        if self.on {
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

    /// The first one that is shown.
    fn top(&self, rank: u64, height: u16) -> u64 {
        let (len, height) = (self.shown.len() as u64, u64::from(height.max(1)));
        let line = if self.on { height - 1 } else { self.line.min(height - 1) };
        rank.saturating_sub(line).min(len.saturating_sub(height))
    }

    /// Selects what is on a line of the pane.
    pub fn click(&mut self, line: u16, height: u16) {
        let top = self.top(self.rank(), height);
        let to = top + u64::from(line);
        if to < self.shown.len() as u64 {
            self.on = to + 1 == self.shown.len() as u64 && self.on;
            self.go(to, top, height);
        }
    }

    /// Goes to the next one that is `wanted`; whether there is one.
    pub fn next(&mut self, forwards: bool, height: u16, wanted: impl Fn(K) -> bool) -> bool {
        let Some(here) = self.selected else { return false };
        let is = |p: &&At<K>| wanted(p.1);
        let found = if forwards {
            self.shown.range((Excluded(here), Unbounded)).find(is)
        } else {
            self.shown.range(..here).rev().find(is)
        };
        let Some(found) = found.copied() else { return false };
        let top = self.top(self.rank(), height);
        let to = (self.shown.len() - self.shown.range(found..).count()) as u64;
        self.on = false;
        self.go(to, top, height);
        true
    }

    /// Those on the screen, and which line of them is selected.
    pub fn window(&self, height: u16) -> (Vec<K>, Option<u16>) {
        let rank = self.rank();
        let top = self.top(rank, height);
        // The end is near: counting from there is quick.
        let behind = self.shown.len().saturating_sub(top as usize + usize::from(height));
        let places = self.shown.iter().rev().skip(behind).take(usize::from(height).min(self.shown.len()));
        let mut keys: Vec<_> = places.map(|p| p.1).collect();
        keys.reverse();
        let line = self.selected.and_then(|s| keys.iter().position(|k| *k == s.1));
        (keys, line.map(|l| l as u16))
    }

    /// Whether the first one is on the screen.
    pub fn at_top(&self, height: u16) -> bool {
        self.top(self.rank(), height) == 0
    }

    /// All that are listed.
    pub fn all(&self) -> impl Iterator<Item = K> {
        self.shown.iter().map(|p| p.1)
    }
}
