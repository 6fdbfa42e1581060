//! Where the session and its live thread meet: the session leaves word and goes on, the live thread comes by.
//!
//! The evidence itself is not handed over. It is in the files, and this says only up to where; so nothing piles up here, and
//! while nobody watches a round of the recorder costs a few stores.

use super::protocol::{PackProgress, PackState};
use crate::{
    model::{SessionId, WallTime},
    record::{
        broadcast::{Begun, Broadcast, Progress},
        card::Card,
    },
    sys::fd,
};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
};

/// Lines of stderr that are kept for who comes later.
const MAX_STDERR: usize = 64 << 10;
/// The longest piece of stderr that is told as one line, in bytes.
const MAX_STDERR_LINE: usize = 4096;

/// Word that is rare: it wakes the live thread, whoever watches.
#[derive(Debug)]
pub(super) enum Note {
    Begun(Box<Begun>),
    Card(Box<Card>),
    Ended { session: SessionId, segment_len: u64, next: Option<SessionId> },
    Pack(PackProgress),
    Close,
}

/// How far the segment is, with the counts up to there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The session, its 64 bits.
    pub session: u64,
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
    fields: [AtomicU64; 6],
}

impl MarkCell {
    fn store(&self, m: Mark) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::SeqCst);
        for (field, value) in
            self.fields.iter().zip([m.session, m.segment_len, m.calls, m.denied, m.errors, m.timeouts])
        {
            field.store(value, Ordering::SeqCst);
        }
        self.version.store(version + 2, Ordering::SeqCst);
    }

    fn load(&self) -> Mark {
        loop {
            let before = self.version.load(Ordering::SeqCst);
            let [session, segment_len, calls, denied, errors, timeouts] =
                std::array::from_fn(|i| self.fields[i].load(Ordering::SeqCst));
            if before.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == before {
                return Mark { session, segment_len, calls, denied, errors, timeouts };
            }
            std::hint::spin_loop();
        }
    }
}

/// Lines of the server's stderr that the live thread has not taken yet.
#[derive(Debug, Default)]
struct Stderr {
    lines: VecDeque<(WallTime, Vec<u8>)>,
    bytes: usize,
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    lost: u64,
}

/// The meeting place.
#[derive(Debug)]
pub struct Hub {
    notes: Sender<Note>,
    mark: MarkCell,
    /// The session that the recorder is at.
    session: AtomicU64,
    subscribers: AtomicUsize,
    woken: AtomicBool,
    bell: OwnedFd,
    socket: OnceLock<PathBuf>,
    missed: AtomicU64,
    stderr: Mutex<Stderr>,
}

/// The live thread's end.
#[derive(Debug)]
pub(super) struct Ear {
    pub hub: Arc<Hub>,
    pub notes: Receiver<Note>,
    bell: OwnedFd,
}

impl Hub {
    /// A hub and what the live thread needs of it.
    pub(super) fn new() -> io::Result<(Arc<Self>, Ear)> {
        let (heard, bell) = fd::pipe()?;
        fd::set_nonblocking(&heard)?;
        fd::set_nonblocking(&bell)?;
        let (notes, inbox) = mpsc::channel();
        let hub = Arc::new(Self {
            notes,
            mark: MarkCell::default(),
            session: AtomicU64::new(0),
            subscribers: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            bell,
            socket: OnceLock::new(),
            missed: AtomicU64::new(0),
            stderr: Mutex::default(),
        });
        Ok((Arc::clone(&hub), Ear { hub, notes: inbox, bell: heard }))
    }

    fn ring(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // Full means that it has been rung.
            let _ = rustix::io::write(&self.bell, &[1]);
        }
    }

    fn note(&self, note: Note) {
        // The live thread may be gone.
        let _ = self.notes.send(note);
        self.ring();
    }

    /// Tells how far a session's pack is.
    pub fn pack(&self, session_id: SessionId, state: PackState, pack: Option<PathBuf>, problems: Vec<String>) {
        self.note(Note::Pack(PackProgress { pack, problems, session_id, state }));
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.note(Note::Close);
    }

    /// Takes bytes of the server's stderr.
    pub fn stderr(&self, bytes: &[u8]) {
        let at = WallTime::now();
        {
            let mut held = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            for piece in bytes.split_inclusive(|b| *b == b'\n') {
                held.open.extend_from_slice(piece);
                if piece.ends_with(b"\n") || held.open.len() >= MAX_STDERR_LINE {
                    let mut line = std::mem::take(&mut held.open);
                    while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
                        line.pop();
                    }
                    let rest = line.split_off(line.len().min(MAX_STDERR_LINE));
                    held.lost += u64::from(!rest.is_empty());
                    held.push(at, line);
                }
            }
        }
        if self.subscribers.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    pub(super) fn take_stderr(&self) -> Vec<(WallTime, Vec<u8>)> {
        let mut held = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        held.bytes = 0;
        let lost = std::mem::take(&mut held.lost);
        if lost > 0 {
            tracing::debug!(lost, "lines of stderr were not told in full");
        }
        held.lines.drain(..).collect()
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark.load()
    }

    pub(super) fn missed(&self, events: u64) {
        self.missed.fetch_add(events, Ordering::Relaxed);
    }

    pub(super) fn watched_by(&self, subscribers: usize) {
        self.subscribers.store(subscribers, Ordering::SeqCst);
    }

    pub(super) fn listens_at(&self, socket: PathBuf) {
        let _ = self.socket.set(socket);
    }
}

impl Stderr {
    fn push(&mut self, at: WallTime, line: Vec<u8>) {
        self.bytes += line.len() + 32;
        self.lines.push_back((at, line));
        while self.bytes > MAX_STDERR {
            let Some((_, old)) = self.lines.pop_front() else { return };
            self.bytes -= old.len() + 32;
            self.lost += 1;
        }
    }
}

impl Broadcast for Hub {
    fn begun(&self, begun: Begun) {
        let session = begun.card.session_id.bits();
        self.session.store(session, Ordering::Relaxed);
        self.mark.store(Mark { session, segment_len: begun.segment_len, ..Mark::default() });
        self.note(Note::Begun(Box::new(begun)));
    }

    fn written(&self, p: Progress<'_>) {
        let c = p.counts;
        let (calls, denied, errors, timeouts) = (c.calls, c.denied, c.errors, c.timeouts);
        let session = self.session.load(Ordering::Relaxed);
        self.mark.store(Mark { session, segment_len: p.segment_len, calls, denied, errors, timeouts });
        if self.subscribers.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    fn card(&self, card: &Card) {
        self.note(Note::Card(Box::new(card.clone())));
    }

    fn ended(&self, session: SessionId, segment_len: u64, next: Option<SessionId>) {
        self.note(Note::Ended { session, segment_len, next });
    }

    fn socket(&self) -> Option<&Path> {
        self.socket.get().map(PathBuf::as_path)
    }

    fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

impl Ear {
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// To be called before looking at what there is: what comes later rings again.
    pub fn hush(&self) {
        let mut buffer = [0; 64];
        while matches!(rustix::io::read(&self.bell, &mut buffer), Ok(1..)) {}
        self.hub.woken.store(false, Ordering::SeqCst);
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
                    cell.store(Mark { session: n, segment_len: n, calls: n, denied: n, errors: n, timeouts: n });
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

    #[test]
    fn stderr_is_cut_into_lines_and_bounded() {
        let (hub, _ear) = Hub::new().unwrap();
        hub.stderr(b"one\r\ntw");
        hub.stderr(b"o\nthree");
        let lines = |hub: &Hub| hub.take_stderr().into_iter().map(|(_, l)| l).collect::<Vec<_>>();
        assert_eq!(lines(&hub), [b"one".to_vec(), b"two".to_vec()]);
        hub.stderr(&vec![b'x'; 1 << 20]);
        hub.stderr(&b"y\n".repeat(100_000));
        let held = lines(&hub);
        assert!(held.len() < 4000 && held.iter().map(Vec::len).sum::<usize>() <= MAX_STDERR);
        assert_eq!(held.last().unwrap(), b"y");
    }
}
