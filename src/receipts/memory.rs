//! What of earlier calls a later one may refer to: denials that are tried again, legs, tasks.

use super::recording::{Facts, Recording};
use crate::{
    canon,
    model::{ReceiptId, SessionId},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// Denials, legs and tasks that are remembered, each.
const MAX_REMEMBERED: usize = 4096;
/// How long a denial is remembered.
const FOR: Duration = Duration::from_hours(1);

/// A call that another one goes on from.
pub(super) struct Leg {
    pub(super) recording: Weak<Recording>,
    pub(super) facts: Arc<Facts>,
    pub(super) receipt: ReceiptId,
}

struct Refusal {
    at: Instant,
    recording: SessionId,
    facts: Arc<Facts>,
    receipt: ReceiptId,
}

/// A table that forgets what came first when it is full.
struct Bounded<T> {
    entries: HashMap<[u8; 32], T>,
    order: VecDeque<[u8; 32]>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }
}

impl<T> Bounded<T> {
    fn insert(&mut self, key: [u8; 32], value: T) {
        if self.entries.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_REMEMBERED {
            self.order.pop_front().and_then(|old| self.entries.remove(&old));
        }
    }
}

/// What is remembered of the calls of a server.
#[derive(Default)]
pub(super) struct Memory {
    refusals: VecDeque<Refusal>,
    legs: Bounded<(SessionId, String, String, ReceiptId)>,
    tasks: Bounded<Leg>,
}

impl Memory {
    /// A call was refused.
    pub(super) fn denied(&mut self, recording: SessionId, facts: &Arc<Facts>, receipt: ReceiptId) {
        self.refusals.push_back(Refusal { at: Instant::now(), recording, facts: facts.clone(), receipt });
        if self.refusals.len() > MAX_REMEMBERED {
            self.refusals.pop_front();
        }
    }

    /// The newest denial of the same call in the same client's session that no execution has named yet.
    pub(super) fn denial(&mut self, recording: SessionId, facts: &Facts) -> Option<ReceiptId> {
        while self.refusals.front().is_some_and(|r| r.at.elapsed() > FOR) {
            self.refusals.pop_front();
        }
        let same = |r: &Refusal| {
            r.recording == recording
                && r.facts.session == facts.session
                && r.facts.tool == facts.tool
                && r.facts.arguments_hash == facts.arguments_hash
        };
        let at = self.refusals.iter().rposition(same)?;
        self.refusals.remove(at).map(|r| r.receipt)
    }

    /// A call asks for more input, and goes on with this state.
    pub(super) fn asks(&mut self, state: Option<String>, leg: &Leg) {
        let (Some(state), Some(recording)) = (state, leg.recording.upgrade()) else { return };
        let entry = (recording.id, leg.facts.tool.clone(), leg.facts.arguments_hash.clone(), leg.receipt);
        self.legs.insert(canon::sha256(state.as_bytes()), entry);
    }

    /// The receipt of the leg before.
    pub(super) fn leg(&self, recording: SessionId, state: &str, facts: &Facts) -> Option<ReceiptId> {
        let (of, tool, arguments, receipt) = self.legs.entries.get(&canon::sha256(state.as_bytes()))?;
        (*of == recording && *tool == facts.tool && *arguments == facts.arguments_hash).then_some(*receipt)
    }

    /// A call began a task.
    pub(super) fn task(&mut self, id: Option<String>, leg: Leg) {
        if let Some(id) = id {
            self.tasks.insert(canon::sha256(id.as_bytes()), leg);
        }
    }

    /// The call that began a task, once.
    pub(super) fn take_task(&mut self, id: &str) -> Option<Leg> {
        self.tasks.entries.remove(&canon::sha256(id.as_bytes()))
    }
}
