//! The state that a guard keeps of a client and its server.

use super::{
    Refusal,
    inspect::{Item, ItemKind, ends::Ends},
};
use crate::{
    model::{Direction, limits},
    record::{
        envelope::IdKey,
        health::Health,
        judge::{Judge, PolicyFeed},
    },
};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// One client and its server: the judge of their calls, with its budgets, and the requests that wait for an answer.
///
/// Both directions use it at once, each from its own thread.
pub struct Session {
    judge: Mutex<Box<dyn Judge>>,
    feed: Arc<PolicyFeed>,
    health: Arc<Health>,
    max_message: usize,
    /// Requests of the client that wait for the server, and of the server that wait for the client.
    waiting: [Mutex<Waiting>; 2],
    /// Requests of the server that passed unread because they were too long to hold.
    unread: AtomicU64,
    /// An answer passed unread whose request is not known: it is not known what is still unanswered.
    lost_count: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    /// How many of each, and the id as it was sent.
    ids: HashMap<IdKey, (Box<[u8]>, u32)>,
    /// Number of these requests, and the bytes of their ids.
    count: usize,
    bytes: usize,
}

impl Waiting {
    /// Whether one more can be remembered.
    fn has_room(&self) -> bool {
        self.count < limits::GUARDED && self.bytes < limits::GUARDED_BYTES
    }

    /// Those of one message come together, and what is too long to be read passes: a caller that can checks first
    /// whether there is room, and what comes all the same is not remembered.
    fn add(&mut self, id: &[u8]) {
        if self.count >= 2 * limits::GUARDED || self.bytes >= 2 * limits::GUARDED_BYTES {
            return;
        }
        self.count += 1;
        let bytes = &mut self.bytes;
        let new = || {
            *bytes += id.len();
            (id.into(), 0)
        };
        self.ids.entry(IdKey::of(id)).or_insert_with(new).1 += 1;
    }

    fn has(&self, id: &[u8]) -> bool {
        self.ids.contains_key(&IdKey::of(id))
    }

    /// Removes one request with this id. Whether there was one.
    fn answer(&mut self, id: &[u8]) -> bool {
        let Entry::Occupied(mut waiting) = self.ids.entry(IdKey::of(id)) else { return false };
        self.count = self.count.saturating_sub(1);
        let (_, count) = waiting.get_mut();
        *count -= 1;
        if *count == 0 {
            let (id, _) = waiting.remove();
            self.bytes = self.bytes.saturating_sub(id.len());
        }
        true
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Begins with nothing in flight. The client's messages of more than `max_message` bytes are refused.
    #[must_use]
    pub fn new(judge: Box<dyn Judge>, health: Arc<Health>, feed: Arc<PolicyFeed>, max_message: usize) -> Self {
        Self {
            judge: Mutex::new(judge),
            feed,
            health,
            max_message,
            waiting: [Mutex::default(), Mutex::default()],
            unread: AtomicU64::new(0),
            lost_count: AtomicBool::new(false),
        }
    }

    /// Bytes of the longest message of the client that is read.
    #[must_use]
    pub const fn max_message(&self) -> usize {
        self.max_message
    }

    /// With the judge, if there is something for one: a name that is being resolved for the other direction holds up
    /// nothing that needs no verdict.
    pub(super) fn with_judge<R>(&self, needed: bool, ask: impl FnOnce(Option<&mut (dyn Judge + 'static)>) -> R) -> R {
        if needed { ask(Some(locked(&self.judge).as_mut())) } else { ask(None) }
    }

    /// Why nothing that is reviewed may pass at the moment.
    pub(super) fn complaint(&self, captured: bool) -> Option<String> {
        let complaint = if captured { self.health.complaint() } else { Some("the recorder does not respond") };
        complaint.map(|complaint| format!("{}: {complaint}", Refusal::RecorderUnavailable.message()))
    }

    /// Whether evidence cannot be written at the moment.
    pub(super) fn is_failing(&self) -> bool {
        self.health.is_failing()
    }

    /// `sha256:` of the policy in force. Not the judge's word, who may be waiting for a name to be resolved.
    pub(super) fn policy(&self) -> String {
        self.feed.in_force().unwrap_or_default()
    }

    /// Why an element cannot pass, whatever the policy says.
    pub(super) fn refusal(&self, direction: Direction, item: &Item<'_>, in_batch: bool) -> Option<Refusal> {
        let crowded = || {
            let full = item.kind == ItemKind::Request && !locked(&self.waiting[direction.lane()]).has_room();
            full.then_some(Refusal::TooManyInFlight)
        };
        match direction {
            Direction::ClientToServer => item.refused.or_else(|| {
                let answers = item.kind != ItemKind::Response || item.id.is_some_and(|id| self.is_awaited(id));
                if answers { crowded() } else { Some(Refusal::AnswersNothing) }
            }),
            // Elements of a server's batch are not refused one by one.
            Direction::ServerToClient if in_batch => None,
            Direction::ServerToClient => crowded().or(item.refused),
        }
    }

    /// A message, or an element of one, passes on.
    pub(super) fn forwarded(&self, direction: Direction, item: &Item<'_>) {
        match (item.kind, item.id) {
            (ItemKind::Request, Some(id)) => self.waits(direction, id),
            (ItemKind::Response, Some(id)) => self.answers(direction, id),
            _ => {}
        }
    }

    /// A message of the server passed on unread.
    pub(super) fn forwarded_unread(&self, ends: Ends<'_>) {
        let id = ends.id();
        if let Some(id) = id.filter(|_| ends.begins_to_ask()) {
            self.waits(Direction::ServerToClient, id);
        } else if !id.is_some_and(|id| self.answered(Direction::ClientToServer, id)) {
            // The server asks something, or it answered in a way that we cannot tell.
            self.unread.fetch_add(1, Ordering::AcqRel);
            self.lost_count.store(true, Ordering::Release);
        }
    }

    fn waits(&self, direction: Direction, id: &[u8]) {
        locked(&self.waiting[direction.lane()]).add(id);
    }

    /// Whether a request of this side waited.
    fn answered(&self, of: Direction, id: &[u8]) -> bool {
        locked(&self.waiting[of.lane()]).answer(id)
    }

    /// Whether a response of the client answers a request that waits.
    fn is_awaited(&self, id: &[u8]) -> bool {
        locked(&self.waiting[1]).has(id) || self.unread.load(Ordering::Acquire) > 0
    }

    /// A response passes on.
    fn answers(&self, direction: Direction, id: &[u8]) {
        match direction {
            Direction::ServerToClient => {
                self.answered(Direction::ClientToServer, id);
            }
            Direction::ClientToServer if !self.answered(Direction::ServerToClient, id) => {
                let _ = self.unread.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
            }
            Direction::ClientToServer => {}
        }
    }

    /// The replies to requests of the client that will not be answered any more: a JSON text each. Nothing, where
    /// nobody can say which they are.
    pub fn server_gone(&self) -> Vec<Vec<u8>> {
        let mut waiting = std::mem::take(&mut *locked(&self.waiting[0]));
        if self.lost_count.load(Ordering::Acquire) {
            return Vec::new();
        }
        let ids = waiting.ids.drain();
        let mut all: Vec<Vec<u8>> = ids.flat_map(|(_, (id, n))| vec![id.into_vec(); n as usize]).collect();
        all.sort_unstable();
        let policy = self.policy();
        all.iter().filter_map(|id| super::replies::server_gone(id, &policy)).collect()
    }
}
