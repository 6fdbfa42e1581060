//! Which calls and which messages are listed, and which of the calls are slow.

use super::follow::Follow;
use crate::{
    filter::{Facts, Filter},
    live::{
        message::What,
        messages::{MessageId, MessageRow},
        row::CallRow,
        state::{State, facts, rpc_text},
        words::CallState,
    },
    model::{InvocationId, Outcome, SessionId},
    numbers::nearest_rank,
};
use std::collections::{HashSet, VecDeque};

/// Round trips of which quantiles are shown.
const RECENT: usize = 1000;
/// No call below this is called slow, microseconds.
const SLOW_US: u64 = 100_000;

#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    /// Those that are listed.
    pub list: Follow<InvocationId>,
    only: Option<SessionId>,
    recent: VecDeque<u64>,
    ended: HashSet<InvocationId>,
}

impl Calls {
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
        self.list.put(invocation, row.filter(|row| self.passes(row, filter)).map(CallRow::place));
        // What has left the window leaves the list.
        for gone in self.list.forget(|i| state.row(i).is_none()) {
            self.ended.remove(&gone);
        }
        if self.ended.len() > 4 * RECENT && self.ended.len() > 2 * self.list.len() {
            self.ended.retain(|i| state.row(*i).is_some());
        }
        self.list.settle();
    }

    /// Lists all calls again: of one session, or of all; those that pass.
    pub fn only(&mut self, state: &State, only: Option<SessionId>, filter: &Filter) {
        self.only = only;
        let places: Vec<_> = state.rows().filter(|row| self.passes(row, filter)).map(CallRow::place).collect();
        self.list.list(places.into_iter());
    }

    fn passes(&self, row: &CallRow, filter: &Filter) -> bool {
        self.only.is_none_or(|s| row.session_id == s) && (filter.is_empty() || filter.passes(&facts(row)))
    }

    /// Goes to the next call that is worth a look; whether there is one.
    pub fn problem(&mut self, state: &State, forwards: bool, slow_us: u64, height: u16) -> bool {
        self.list.next(forwards, height, |i| {
            state
                .row(i)
                .is_some_and(|row| CallState::of(row).is_problem() || row.duration_ms.is_some_and(|d| d.0 >= slow_us))
        })
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

/// The messages, as the calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages {
    /// Those that are listed.
    pub list: Follow<MessageId>,
    only: Option<SessionId>,
}

impl Messages {
    /// A message is new, or what was known of it has its event now.
    pub fn touched(&mut self, state: &State, id: MessageId, filter: &Filter) {
        let row = state.messages().row(id);
        self.list.put(id, row.filter(|row| self.passes(state, row, filter)).map(MessageRow::place));
        self.list.forget(|id| state.messages().row(id).is_none());
        self.list.settle();
    }

    /// Lists all again: of one session, or of all; those that pass.
    pub fn only(&mut self, state: &State, only: Option<SessionId>, filter: &Filter) {
        self.only = only;
        let rows = state.messages().rows().filter(|row| self.passes(state, row, filter));
        let places: Vec<_> = rows.map(MessageRow::place).collect();
        self.list.list(places.into_iter());
    }

    fn passes(&self, state: &State, row: &MessageRow, filter: &Filter) -> bool {
        self.only.is_none_or(|s| row.session_id == s)
            && (filter.is_empty() || filter.passes(&facts_of_message(state, row)))
    }
}

/// What a filter looks at in a message: its tool or else its method, and what the call that it belongs to came to.
fn facts_of_message<'a>(state: &'a State, row: &'a MessageRow) -> Facts<'a> {
    let call = row.call.and_then(|call| state.row(call));
    let mut all = call.map(facts).unwrap_or_default();
    if all.tool.is_empty() {
        all.tool = row.method.as_deref().unwrap_or(row.what.word());
    }
    if call.is_none() {
        // A message that belongs to no call is over once it was read.
        all.outcome = Some(match row.what {
            What::Error => Outcome::Error,
            What::Blocked => Outcome::Denied,
            _ => Outcome::Forwarded,
        });
        let card = state.sessions().get(&row.session_id).and_then(|view| view.card.as_ref());
        all.server = card.map(|card| card.card.server_id.as_str()).unwrap_or_default();
    }
    all.ids.extend(row.method.clone());
    all.ids.push(row.what.word().to_owned());
    all.ids.extend(row.rpc_id.as_ref().map(rpc_text));
    all
}
