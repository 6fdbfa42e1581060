//! Guard mode: every message is judged before a byte of it passes on, and refused where the policy says so or where
//! servers could disagree on what it says.
//!
//! One choke point: [`Gate`] stands in the client's stream, [`Outlet`] in the server's, and both put every decision into
//! [`record::judgement`](crate::record::judgement) before it takes effect. What a refused message's sender is told goes out
//! on the other stream, between two messages.
//!
//! Must not know: policy files (it is given a [`Judge`]), receipts, packs.

pub mod folding;
mod gate;
mod held;
pub mod inspect;
mod outlet;
mod replies;

pub use gate::Gate;
pub use outlet::Outlet;

use crate::{
    model::{Direction, PolicyVerdict, limits},
    record::{
        envelope::IdKey,
        judgement::{Health, Judgement, News, Ruled, Subject, Writer},
    },
    relay::{
        Producer,
        stdio::{Desk, Inserts},
    },
};
use inspect::Refusal;
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// What is decided now of a message, or of one frame in it.
fn judgement(
    direction: Direction,
    offset: u64,
    frame: Option<(usize, usize)>,
    blocked: bool,
    ruled: Vec<Ruled>,
    policy: String,
) -> Judgement {
    Judgement { direction, offset, frame, blocked, ns: Producer::now(), policy, ruled }
}

/// Code of the JSON-RPC error that a refused request is answered with.
pub const DENIED: i64 = -32001;
/// Code of the JSON-RPC error for a request that the server did not live to answer.
pub const SERVER_GONE: i64 = -32000;
/// Code of the JSON-RPC error for what is no JSON, whose id cannot be read therefore (JSON-RPC 2.0 §5.1).
pub const NO_JSON: i64 = -32700;
/// Code of the JSON-RPC error for what is JSON but no message with an id that could be read (JSON-RPC 2.0 §5.1).
pub const INVALID: i64 = -32600;
/// Says what the policy says.
pub trait Judge: Send {
    /// The verdict on a call at this time (monotonic ns), and words for who asked. May wait, but not for long.
    fn judge(&mut self, subject: Subject<'_>, ns: u64) -> (Ruled, String);

    /// Takes up the newest policy, and judges by no other until this is asked again; its `sha256:`.
    fn begin(&mut self) -> String;
}

/// What both directions share.
pub struct Shared {
    judge: Mutex<Box<dyn Judge>>,
    news: Arc<News>,
    journal: Mutex<Writer>,
    health: Arc<Health>,
    /// Requests of the client that wait for the server, and of the server that wait for the client.
    waiting: [Mutex<Waiting>; 2],
    /// For the client, and for the server.
    inserts: [Arc<Inserts>; 2],
    /// Requests of the server that passed unread because they were too long to hold.
    unread: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// How many of each, and the id as it was sent.
    ids: HashMap<IdKey, (Box<[u8]>, u32)>,
    /// How many requests that are, and the bytes of their ids.
    count: usize,
    bytes: usize,
}

impl Waiting {
    /// Whether one more can be remembered.
    fn has_room(&self) -> bool {
        self.count < limits::GUARDED && self.bytes < limits::GUARDED_BYTES
    }

    /// Those of one message come together, and what is too long to be read passes: whoever can looks before whether there
    /// is room, and what comes all the same is not remembered.
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

    /// Takes one out.
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

impl Shared {
    /// # Errors
    /// No pipes could be made.
    pub fn new(
        judge: Box<dyn Judge>,
        journal: Writer,
        health: Arc<Health>,
        news: Arc<News>,
    ) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            judge: Mutex::new(judge),
            news,
            journal: Mutex::new(journal),
            health,
            waiting: [Mutex::default(), Mutex::default()],
            inserts: [Arc::new(Inserts::new()?), Arc::new(Inserts::new()?)],
            unread: AtomicU64::new(0),
        }))
    }

    /// With the judge, if there is something for one: a name that is being resolved for the other direction holds up
    /// nothing that needs no verdict.
    fn with_judge<R>(&self, needed: bool, ask: impl FnOnce(Option<&mut (dyn Judge + 'static)>) -> R) -> R {
        if needed { ask(Some(locked(&self.judge).as_mut())) } else { ask(None) }
    }

    /// Why nothing that is reviewed may pass at the moment.
    fn complaint(&self, captured: bool) -> Option<String> {
        let complaint = if captured { self.health.complaint() } else { Some("the recorder does not respond") };
        complaint.map(|complaint| format!("{}: {complaint}", Refusal::RecorderUnavailable.message()))
    }

    /// Not the judge's word, who may be waiting for a name to be resolved.
    fn policy(&self) -> String {
        self.news.in_force().unwrap_or_default()
    }

    /// Puts a decision where the recorder finds it. `false`: it does not stand anywhere.
    fn put_down(&self, judgement: &Judgement) -> bool {
        locked(&self.journal).push(judgement, true)
    }

    /// Puts a refusal where the recorder finds it, whatever it takes.
    fn put_down_refusal(&self, judgement: &Judgement, desk: &Desk<'_>) {
        loop {
            // A recorder that cannot write makes no room: there is no use in waiting for it.
            let patient = !self.health.is_failing();
            let stands = locked(&self.journal).push(judgement, patient) || desk.refused_blind(judgement.offset);
            if stands || desk.is_stopped() {
                return;
            }
            // Nothing may pass that looks as if it had passed, and nothing was refused that does not.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Whether one more request of this side can be in flight.
    fn has_room(&self, direction: Direction) -> bool {
        locked(&self.waiting[direction.lane()]).has_room()
    }

    fn waits(&self, direction: Direction, id: &[u8]) {
        locked(&self.waiting[direction.lane()]).add(id);
    }

    fn answered(&self, direction: Direction, id: &[u8]) -> bool {
        locked(&self.waiting[direction.lane()]).answer(id)
    }

    /// Whether a client's response answers something.
    fn answers(&self, id: &[u8]) -> bool {
        locked(&self.waiting[1]).has(id) || self.unread.load(Ordering::Acquire) > 0
    }

    /// A client's response passes on.
    fn takes_answer(&self, id: &[u8]) {
        if !self.answered(Direction::ServerToClient, id) {
            let _ = self.unread.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
        }
    }

    /// Ids of the client's requests that will not be answered any more.
    fn unanswered(&self) -> Vec<Vec<u8>> {
        let mut waiting = locked(&self.waiting[0]);
        (waiting.count, waiting.bytes) = (0, 0);
        let ids = waiting.ids.drain();
        let mut all: Vec<Vec<u8>> = ids.flat_map(|(_, (id, n))| vec![id.into_vec(); n as usize]).collect();
        all.sort_unstable();
        all
    }
}

/// A refusal as the record has it, and its words.
fn refused(refusal: Refusal, index: Option<usize>) -> (Ruled, String) {
    let ruled = Ruled {
        index,
        verdict: PolicyVerdict::Denied,
        reason: format!("guard:{}", refusal.as_str()),
        rule: Some(format!("guard.{}", refusal.as_str())),
        unseen: Vec::new(),
    };
    (ruled, refusal.message().to_owned())
}
