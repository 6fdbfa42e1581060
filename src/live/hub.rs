//! Where the recorder and the live thread meet: the recorder reports its sessions without waiting, and the live thread
//! picks the reports up.
//!
//! The evidence itself is not handed over. It is in the files, and the hub only says how far they are written; so
//! nothing piles up here, and without subscribers a round of the recorder costs a few stores.

use super::{
    bell::{Bell, Heard},
    crossed::Contents,
    protocol::{PackProgress, PackState},
    voice::Voice,
};
use crate::{
    model::SessionId,
    record::{
        broadcast::{Begun, Broadcast, Crossed, Progress, Streams},
        card::Card,
    },
};
use rustix::fd::BorrowedFd;
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, Sender},
    },
};

/// Rare news: it wakes the live thread, even without subscribers.
#[derive(Debug)]
pub(super) enum Note {
    Begun(Box<Begun>, Arc<Reach>),
    Card(Box<Card>),
    Ended { session: SessionId, segment_len: u64, next: Option<SessionId> },
    Voice(SessionId, Arc<Voice>),
    Pack(PackProgress),
    Close,
}

/// How far the segment is, with the counts up to there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub segment_len: u64,
    pub calls: u64,
    pub denied: u64,
    pub errors: u64,
    pub timeouts: u64,
}

/// A [`Mark`] that one thread writes and another reads without either waiting for the other.
#[derive(Debug, Default)]
struct MarkCell {
    /// Odd while it is written.
    version: AtomicU64,
    fields: [AtomicU64; 5],
}

impl MarkCell {
    fn store(&self, m: Mark) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::SeqCst);
        for (field, value) in self.fields.iter().zip([m.segment_len, m.calls, m.denied, m.errors, m.timeouts]) {
            field.store(value, Ordering::SeqCst);
        }
        self.version.store(version + 2, Ordering::SeqCst);
    }

    fn load(&self) -> Mark {
        loop {
            let before = self.version.load(Ordering::SeqCst);
            let [segment_len, calls, denied, errors, timeouts] =
                std::array::from_fn(|i| self.fields[i].load(Ordering::SeqCst));
            if before.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == before {
                return Mark { segment_len, calls, denied, errors, timeouts };
            }
            std::hint::spin_loop();
        }
    }
}

/// How far one session is, how many of its events were lost on the way to subscribers, and its open streams.
#[derive(Debug, Default)]
pub(super) struct Reach {
    mark: MarkCell,
    missed: AtomicU64,
    /// The streams, and how often they have changed.
    streams: Mutex<(u64, Streams)>,
}

impl Reach {
    pub fn mark(&self) -> Mark {
        self.mark.load()
    }

    /// Notes which streams are open; whether that is new. While they are being read it waits for the next time.
    fn set_streams(&self, streams: Streams) -> bool {
        let Ok(mut held) = self.streams.try_lock() else { return false };
        let is_new = held.1 != streams;
        if is_new {
            *held = (held.0 + 1, streams);
        }
        is_new
    }

    /// The streams that are open, if they are others than those of this number of changes.
    pub fn streams_after(&self, seen: u64) -> Option<(u64, Streams)> {
        let held = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        (held.0 > seen).then(|| held.clone())
    }

    pub fn missed(&self, events: u64) {
        if events > 0 {
            self.missed.fetch_add(events, Ordering::Relaxed);
        }
    }
}

/// What the recorder and the live thread share.
#[derive(Debug)]
pub struct Hub {
    notes: Sender<Note>,
    /// Marks of the running sessions. The live thread gets those that it needs from [`Note::Begun`] and never asks
    /// here, so that the recorder never waits.
    reaches: Mutex<HashMap<SessionId, Arc<Reach>>>,
    bell: Arc<Bell>,
    socket: OnceLock<PathBuf>,
    pub(super) contents: Contents,
}

/// The live thread's end.
#[derive(Debug)]
pub(super) struct Ear {
    pub hub: Arc<Hub>,
    pub notes: Receiver<Note>,
    bell: Heard,
}

impl Hub {
    /// Makes a hub, and the live thread's end of it; `contents`: subscribers may have what messages hold.
    pub(super) fn new(contents: bool) -> io::Result<(Arc<Self>, Ear)> {
        let (bell, heard) = Bell::new()?;
        let (notes, inbox) = mpsc::channel();
        let hub = Arc::new(Self {
            notes,
            reaches: Mutex::default(),
            bell: Arc::new(bell),
            socket: OnceLock::new(),
            contents: Contents::new(contents),
        });
        Ok((Arc::clone(&hub), Ear { hub, notes: inbox, bell: heard }))
    }

    fn note(&self, note: Note) {
        // The live thread may have ended.
        let _ = self.notes.send(note);
        self.bell.ring();
    }

    /// Stderr of a session's server: for that session, and later for those that continue it.
    pub fn voice(&self, session: SessionId) -> Arc<Voice> {
        let voice = Arc::new(Voice::new(Arc::clone(&self.bell)));
        self.note(Note::Voice(session, Arc::clone(&voice)));
        voice
    }

    /// Reports how far a session's pack is.
    pub fn pack(&self, session_id: SessionId, state: PackState, pack: Option<PathBuf>, problems: Vec<String>) {
        self.note(Note::Pack(PackProgress { pack, problems, session_id, state }));
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.note(Note::Close);
    }

    fn reaches(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Reach>>> {
        self.reaches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watched_by(&self, subscribers: usize) {
        self.bell.heard_by(subscribers);
    }

    pub(super) fn listens_at(&self, socket: PathBuf) {
        let _ = self.socket.set(socket);
    }
}

impl Broadcast for Hub {
    fn begun(&self, begun: Begun) {
        let reach = Arc::new(Reach::default());
        reach.mark.store(Mark { segment_len: begun.segment_len, ..Mark::default() });
        self.reaches().insert(begun.card.session_id, Arc::clone(&reach));
        self.note(Note::Begun(Box::new(begun), reach));
    }

    fn written(&self, session: SessionId, p: Progress<'_>) {
        let c = p.counts;
        let (calls, denied, errors, timeouts) = (c.calls, c.denied, c.errors, c.timeouts);
        if let Some(reach) = self.reaches().get(&session) {
            reach.mark.store(Mark { segment_len: p.segment_len, calls, denied, errors, timeouts });
        }
        self.bell.ring_if_heard();
    }

    fn card(&self, card: &Card) {
        self.note(Note::Card(Box::new(card.clone())));
    }

    fn ended(&self, session: SessionId, segment_len: u64, next: Option<SessionId>) {
        self.reaches().remove(&session);
        self.note(Note::Ended { session, segment_len, next });
    }

    fn is_watched(&self) -> bool {
        self.bell.is_heard()
    }

    fn streams(&self, session: SessionId, streams: Streams) {
        if self.reaches().get(&session).is_some_and(|reach| reach.set_streams(streams)) {
            self.bell.ring_if_heard();
        }
    }

    fn wants_contents(&self) -> bool {
        self.contents.is_wanted()
    }

    fn crossed(&self, crossed: Crossed) {
        if self.contents.put(crossed) {
            self.bell.ring_if_heard();
        }
    }

    fn socket(&self) -> Option<&Path> {
        self.socket.get().map(PathBuf::as_path)
    }

    fn take_missed(&self, session: SessionId) -> u64 {
        self.reaches().get(&session).map_or(0, |reach| reach.missed.swap(0, Ordering::Relaxed))
    }
}

impl Ear {
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// To be called before looking at what there is: what comes later rings again.
    pub fn hush(&self) {
        self.bell.hush(&self.hub.bell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_never_seen_half_written() {
        let cell = Arc::new(MarkCell::default());
        let writer = {
            let cell = Arc::clone(&cell);
            std::thread::spawn(move || {
                for n in 1..=20_000 {
                    cell.store(Mark { segment_len: n, calls: n, denied: n, errors: n, timeouts: n });
                }
            })
        };
        while !writer.is_finished() {
            let m = cell.load();
            assert!([m.calls, m.denied, m.errors, m.timeouts].iter().all(|n| *n == m.segment_len), "{m:?}");
        }
        writer.join().unwrap();
        assert_eq!(cell.load().timeouts, 20_000);
    }
}
