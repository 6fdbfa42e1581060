//! The state that a guard keeps of a client and its server.

use super::{
    Refusal,
    inspect::{Item, ItemKind, ends::Ends},
    refusal::refused,
    replies,
    surface::{self, Came, Instead, Origin, SharedGate},
};
use crate::{
    model::{Direction, limits},
    record::{
        envelope::IdKey,
        health::Health,
        judge::{Decision, Judge, PolicyFeed},
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
    /// What of the server's surface passes; `None` if that is not enforced.
    surface: Option<SharedGate>,
    feed: Arc<PolicyFeed>,
    health: Arc<Health>,
    /// How far the recorder must have come for the session to be on disk.
    since: u64,
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
            surface: None,
            feed,
            health,
            since: 0,
            max_message,
            waiting: [Mutex::default(), Mutex::default()],
            unread: AtomicU64::new(0),
            lost_count: AtomicBool::new(false),
        }
    }

    /// The session began before anything of it was seen: answers pass whose requests are not known.
    #[must_use]
    pub fn joined_midway(self) -> Self {
        // So many are never answered.
        self.unread.store(u64::MAX / 2, Ordering::Release);
        self.lost_count.store(true, Ordering::Release);
        self
    }

    /// The recorder begins the session on disk when it has [come](Health::come_to) so far: nothing that is reviewed passes
    /// before.
    #[must_use]
    pub fn begun_at(mut self, since: u64) -> Self {
        self.since = since;
        self
    }

    /// Keeps back what of the server's surface is not approved.
    #[must_use]
    pub fn with_surface(mut self, gate: SharedGate) -> Self {
        self.surface = Some(gate);
        self
    }

    /// Why an element of the client's cannot pass for what it asks for.
    pub(super) fn surface_refusal(
        &self,
        direction: Direction,
        item: &Item<'_>,
        index: Option<usize>,
    ) -> Option<(Decision, String)> {
        let gate = self.surface.as_ref().filter(|_| direction == Direction::ClientToServer)?;
        surface::refusal(gate, item, index)
    }

    /// With the gate of the surface, if there is one, and what is known of a message of the server.
    fn with_gate<R>(&self, came: Came<'_>, ask: impl FnOnce(&SharedGate, &Origin<'_>) -> R) -> Option<R> {
        let gate = self.surface.as_ref()?;
        let is_open = |id: &[u8]| locked(&self.waiting[0]).has(id);
        let policy = || self.policy();
        Some(ask(gate, &Origin { came, is_open: &is_open, policy: &policy }))
    }

    /// What the client gets in the place of a message of the server; `None`: the message.
    pub(super) fn instead(&self, came: Came<'_>, text: &[u8]) -> Option<Instead> {
        let instead = self.with_gate(came, |gate, origin| surface::instead(gate, text, origin))??;
        self.forwarded_unread(Ends::of(text));
        Some(instead)
    }

    /// Whether a message is, for some client, an answer of which something may have to be kept back.
    pub(super) fn is_listing(&self, came: Came<'_>, text: &[u8]) -> bool {
        self.with_gate(came, |gate, origin| surface::is_answer(gate, text, origin)).unwrap_or_default()
    }

    /// Whether anybody waits for a part of the surface.
    pub(super) fn awaits_any_listing(&self) -> bool {
        self.surface.as_ref().is_some_and(|gate| surface::locked(gate).awaits_any())
    }

    /// Whether what begins like this may be a listing, which has to be held.
    pub(super) fn may_be_listing(&self, came: Came<'_>, head: Ends<'_>) -> bool {
        self.with_gate(came, |gate, origin| surface::may_be_held(gate, head, origin)).unwrap_or_default()
    }

    /// The answer to who asked for a listing that was too long to be held.
    pub(super) fn listing_too_long(&self, came: Came<'_>, id: &[u8]) -> Option<Vec<u8>> {
        self.with_gate(came, |gate, origin| surface::too_long(gate, id, origin))?
    }

    /// Whether an answer with this id may be a listing, which has to be held.
    pub(super) fn is_of_listing(&self, came: Came<'_>, id: &[u8]) -> bool {
        self.with_gate(came, |gate, origin| surface::is_of_listing(gate, id, origin)).unwrap_or_default()
    }

    /// An answer was cut off while it passed: what who waits for it gets in its place. `id`: as far as it is known.
    pub(super) fn cut_off(&self, came: Came<'_>, id: Option<&[u8]>, refusal: Refusal) -> Option<Vec<u8>> {
        let id = id?;
        let listing = self.listing_too_long(came, id);
        let is_open = self.answered(Direction::ClientToServer, id);
        let worded = refused(refusal, None);
        let told = || replies::denied(&[replies::Refused::new(Some(id), &worded)], &self.policy(), false);
        listing.or_else(|| is_open.then(told)?)
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

    /// Whether the policy has a rule for this name.
    pub(super) fn names(&self, tool: &str) -> bool {
        let mut judge = locked(&self.judge);
        judge.begin();
        judge.names(tool)
    }

    /// Why nothing that is reviewed may pass at the moment.
    pub(super) fn complaint(&self, captured: bool) -> Option<String> {
        let complaint =
            if captured { self.health.complaint_since(self.since) } else { Some("the recorder does not respond") };
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
    pub(super) fn forwarded(&self, direction: Direction, item: &Item<'_>, exchange: u64) {
        if let (Some(gate), Direction::ClientToServer) = (&self.surface, direction) {
            surface::asked(gate, item, exchange);
        }
        match (item.kind, item.id) {
            (ItemKind::Request, Some(id)) => self.waits(direction, id),
            (ItemKind::Response, Some(id)) => self.answers(direction, id),
            (ItemKind::Notification, _) if direction == Direction::ClientToServer => {
                // Who cancels a request waits for no answer any more. One that comes all the same passes.
                item.cancels().iter().for_each(|id| self.gave_up(id));
            }
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

    /// A request of the client will not be answered any more.
    pub fn gave_up(&self, id: &[u8]) {
        self.answered(Direction::ClientToServer, id);
    }

    /// Whether a verdict may have to wait: the recorder cannot record at the moment, or a list of this client is being looked at.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        !self.health.is_well_since(self.since) || self.surface.as_ref().is_some_and(surface::is_busy)
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
