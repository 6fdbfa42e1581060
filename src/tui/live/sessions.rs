//! The sessions on the left, and what is known of all of them together.

use crate::{
    live::{
        client::{Gone, LeftAlone},
        protocol::PackState,
        row::Totals,
        state::{SessionView, State},
    },
    model::SessionId,
    tui::{cursor::Cursor, theme::Role},
};
use std::collections::{HashMap, HashSet};

/// Which sessions are listed and how they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions {
    lost: HashSet<SessionId>,
    gone: HashSet<SessionId>,
    /// Of those, the ones that recovery leaves alone, and a word for why.
    foreign: HashMap<SessionId, &'static str>,
    pub cursor: Cursor,
    only: Option<SessionId>,
}

impl Sessions {
    /// It speaks, for the first time or again.
    pub fn found(&mut self, session: SessionId) {
        self.lost.remove(&session);
        self.gone.remove(&session);
    }

    /// Forgets what is said of sessions that are not known any more.
    pub fn forget(&mut self, state: &State) {
        let known = |id: &SessionId| state.sessions().contains_key(id);
        self.lost.retain(known);
        self.gone.retain(known);
        self.foreign.retain(|id, _| known(id));
    }

    pub fn lost(&mut self, session: SessionId) {
        self.lost.insert(session);
    }

    /// Its process has ended.
    pub fn gone(&mut self, gone: &Gone) {
        self.lost.remove(&gone.session);
        self.gone.insert(gone.session);
        if let Some(why) = gone.left_alone {
            let word = if why == LeftAlone::TooNew { "died, too new" } else { "died, not yours" };
            self.foreign.insert(gone.session, word);
        }
    }

    pub const fn only(&self) -> Option<SessionId> {
        self.only
    }

    pub const fn set_only(&mut self, only: Option<SessionId>) {
        self.only = only;
    }

    /// Whether it still records. Of one that does not, no stream is open, whatever was told of it last.
    pub fn is_alive(&self, id: SessionId, view: &SessionView) -> bool {
        view.end.is_none() && !self.gone.contains(&id)
    }

    /// Those that live first, the newest of each kind first.
    pub fn listed<'a>(&self, state: &'a State) -> Vec<(SessionId, &'a SessionView)> {
        let mut all: Vec<_> = state.sessions().iter().map(|(id, view)| (*id, view)).collect();
        all.sort_by_key(|(id, view)| {
            let started = view.card.as_ref().map(|c| c.card.started_at);
            (!self.is_alive(*id, view), std::cmp::Reverse(started), *id)
        });
        all
    }

    pub fn selected(&self, state: &State) -> Option<SessionId> {
        let listed = self.listed(state);
        listed.get(self.at(listed.len())).map(|(id, _)| *id)
    }

    /// Which one is selected of so many.
    pub fn at(&self, len: usize) -> usize {
        (self.cursor.at as usize).min(len.saturating_sub(1))
    }

    /// Sessions that record.
    pub fn alive(&self, state: &State) -> u64 {
        state.sessions().iter().filter(|(id, view)| self.is_alive(**id, view)).count() as u64
    }

    /// Calls that run in sessions that record.
    pub fn in_flight(&self, state: &State) -> u64 {
        let alive = state.sessions().iter().filter(|(id, view)| self.is_alive(**id, view));
        alive.map(|(_, view)| view.totals.in_flight()).sum()
    }

    /// Counts over all sessions, or the one that is shown.
    pub fn totals(&self, state: &State) -> Totals {
        let mut sum = Totals::default();
        for (id, view) in state.sessions().iter().filter(|(id, _)| self.only.is_none_or(|o| o == **id)) {
            let t = view.totals;
            // What went over into the next session is counted there; what died never ends.
            sum.started += if self.is_alive(*id, view) { t.started } else { t.finished };
            sum.finished += t.finished;
            sum.denied += t.denied;
            sum.errors += t.errors;
            sum.timeouts += t.timeouts;
        }
        sum
    }

    /// How the recorders are, all together.
    pub fn recorder(&self, state: &State, missed: u64) -> (&'static str, Role) {
        if missed > 0 {
            return ("evidence missing", Role::Bad);
        }
        let lost = state.sessions().iter().any(|(id, view)| self.is_alive(*id, view) && self.lost.contains(id));
        let died = |(id, view): (&SessionId, &SessionView)| {
            view.end.is_none() && view.pack.is_none() && self.gone.contains(id) && !self.foreign.contains_key(id)
        };
        match (lost, self.alive(state)) {
            (true, _) => ("connection lost, retrying", Role::Warn),
            (false, 0) if state.sessions().iter().any(died) => ("died: assay recover", Role::Bad),
            (false, 0) => ("not recorded", Role::Dim),
            (false, _) => ("recording", Role::Good),
        }
    }

    fn died(&self, id: SessionId) -> (&'static str, Role) {
        (self.foreign.get(&id).copied().unwrap_or("died: assay recover"), Role::Bad)
    }

    /// How a session is, in words.
    pub fn word(&self, id: SessionId, view: &SessionView) -> (&'static str, Role) {
        let pack = view.pack.as_ref().map(|p| p.state);
        match (&view.end, pack) {
            (_, Some(PackState::Failed)) => ("pack failed", Role::Bad),
            (_, Some(PackState::Sealing)) if self.gone.contains(&id) => self.died(id),
            (_, Some(PackState::Sealing)) => ("building its pack", Role::Accent),
            (Some(end), Some(PackState::Built)) if !end.complete => ("INCOMPLETE, pack built", Role::Bad),
            (Some(end), Some(PackState::Verified)) if !end.complete => ("INCOMPLETE, pack verified", Role::Bad),
            (Some(end), _) if !end.complete => ("ended, INCOMPLETE", Role::Bad),
            (None, Some(PackState::Built)) if self.gone.contains(&id) => ("died, recovered", Role::Bad),
            (_, Some(PackState::Built)) => ("pack built", Role::Accent),
            (_, Some(PackState::Verified)) => ("pack verified", Role::Good),
            (Some(_), Some(PackState::None)) => ("ended, no pack", Role::Dim),
            (Some(_), None) if self.gone.contains(&id) => ("ended", Role::Dim),
            (Some(_), None) => ("waiting for its pack", Role::Accent),
            (None, _) if self.gone.contains(&id) => self.died(id),
            (None, _) if self.lost.contains(&id) => ("lost, retrying", Role::Warn),
            (None, _) => ("recording", Role::Good),
        }
    }
}
