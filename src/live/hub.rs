//! Where the recorder and the live thread meet: the recorder leaves word of its sessions and goes on, the live thread comes by.
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
    collections::{HashMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
};

/// Lines of stderr that are kept for who comes later.
const MAX_STDERR: usize = 64 << 10;
/// The longest piece of stderr that is told as one line, in bytes; a longer line is told in pieces.
const MAX_STDERR_LINE: usize = 4096;
/// How often stderr tries to be heard before it goes on. The live thread holds the place for nanoseconds, but may be taken
/// off its core while it does.
const TRIES: usize = 64;

/// Word that is rare: it wakes the live thread, whoever watches.
#[derive(Debug)]
pub(super) enum Note {
    Begun(Box<Begun>, Arc<Reach>),
    Card(Box<Card>),
    Ended { session: SessionId, segment_len: u64, next: Option<SessionId> },
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

/// How far one session is, and how many of its events were lost on the way to subscribers.
#[derive(Debug, Default)]
pub(super) struct Reach {
    mark: MarkCell,
    missed: AtomicU64,
}

impl Reach {
    pub fn mark(&self) -> Mark {
        self.mark.load()
    }

    pub fn missed(&self, events: u64) {
        if events > 0 {
            self.missed.fetch_add(events, Ordering::Relaxed);
        }
    }
}

/// Lines of the server's stderr that the live thread has not taken yet.
#[derive(Debug, Default)]
struct Stderr {
    lines: VecDeque<StderrLine>,
    bytes: usize,
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    /// Number of the next line. Lost ones have theirs too.
    next: u64,
    lost: u64,
}

/// A line of the server's stderr.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StderrLine {
    /// Its number.
    pub seq: u64,
    /// When it ended.
    pub at: WallTime,
    /// Without its line feed.
    pub text: Vec<u8>,
}

/// What the live thread takes.
#[derive(Debug, Default)]
pub(super) struct StderrTaken {
    /// Oldest first.
    pub lines: VecDeque<StderrLine>,
    /// Lines that were lost since the process began.
    pub lost: u64,
    /// Number of the line that comes next.
    pub next: u64,
}

/// The meeting place.
#[derive(Debug)]
pub struct Hub {
    notes: Sender<Note>,
    /// Of the sessions that run. The live thread has those that it needs from [`Note::Begun`] and never asks here, so that
    /// whoever records waits for nobody.
    reaches: Mutex<HashMap<SessionId, Arc<Reach>>>,
    subscribers: AtomicUsize,
    woken: AtomicBool,
    bell: OwnedFd,
    socket: OnceLock<PathBuf>,
    stderr: Mutex<Stderr>,
    /// Lines of stderr that found nobody to hear them, not counted in `stderr` yet.
    unheard: AtomicU64,
    /// A piece of stderr was not heard: the line it was part of is cut there.
    torn: AtomicBool,
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
            reaches: Mutex::default(),
            subscribers: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            bell,
            socket: OnceLock::new(),
            stderr: Mutex::default(),
            unheard: AtomicU64::new(0),
            torn: AtomicBool::new(false),
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

    /// Takes bytes of the server's stderr, without waiting; says whether it did. What it did not take is counted.
    pub fn stderr(&self, bytes: &[u8]) -> bool {
        let at = WallTime::now();
        let Some(mut held) = self.try_stderr() else {
            self.unheard.fetch_add(memchr::memchr_iter(b'\n', bytes).count() as u64, Ordering::SeqCst);
            self.torn.store(true, Ordering::SeqCst);
            return false;
        };
        self.settle(&mut held, at);
        held.take(at, bytes);
        drop(held);
        if self.subscribers.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
        true
    }

    fn try_stderr(&self) -> Option<MutexGuard<'_, Stderr>> {
        for _ in 0..TRIES {
            match self.stderr.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    /// Counts what was not heard.
    fn settle(&self, held: &mut Stderr, at: WallTime) {
        if self.torn.swap(false, Ordering::SeqCst) {
            held.cut(at);
            let unheard = self.unheard.swap(0, Ordering::SeqCst);
            held.lost += unheard;
            held.next += unheard;
        }
    }

    /// What has come since; with the beginning of a line that has no end, if none will come.
    pub(super) fn take_stderr(&self, all: bool) -> StderrTaken {
        let mut held = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let at = WallTime::now();
        self.settle(&mut held, at);
        if all {
            held.cut(at);
        }
        held.bytes = 0;
        StderrTaken { lines: std::mem::take(&mut held.lines), lost: held.lost, next: held.next }
    }

    fn reaches(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Reach>>> {
        self.reaches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watched_by(&self, subscribers: usize) {
        self.subscribers.store(subscribers, Ordering::SeqCst);
    }

    pub(super) fn listens_at(&self, socket: PathBuf) {
        let _ = self.socket.set(socket);
    }
}

impl Stderr {
    fn take(&mut self, at: WallTime, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            for part in text.chunks(MAX_STDERR_LINE) {
                self.open.extend_from_slice(part);
                while self.open.len() > MAX_STDERR_LINE {
                    let rest = self.open.split_off(whole_chars(&self.open[..MAX_STDERR_LINE]));
                    let line = std::mem::replace(&mut self.open, rest);
                    self.push(at, line);
                }
            }
            if piece.len() > text.len() {
                let mut line = std::mem::take(&mut self.open);
                while line.last() == Some(&b'\r') {
                    line.pop();
                }
                self.push(at, line);
            }
        }
    }

    /// Ends a line that was begun.
    fn cut(&mut self, at: WallTime) {
        if !self.open.is_empty() {
            let line = std::mem::take(&mut self.open);
            self.push(at, line);
        }
    }

    fn push(&mut self, at: WallTime, text: Vec<u8>) {
        self.bytes += text.len() + 32;
        self.lines.push_back(StderrLine { seq: self.next, at, text });
        self.next += 1;
        while self.bytes > MAX_STDERR {
            let Some(old) = self.lines.pop_front() else { return };
            self.bytes -= old.text.len() + 32;
            self.lost += 1;
        }
    }
}

/// Length of `bytes` without the beginning of a UTF-8 character at their end.
fn whole_chars(bytes: &[u8]) -> usize {
    let tail = bytes.iter().rev().take(4).position(|b| b & 0xc0 != 0x80).map(|n| bytes.len() - n - 1);
    match tail {
        Some(at) if std::str::from_utf8(&bytes[at..]).is_err_and(|e| e.error_len().is_none()) => at,
        _ => bytes.len(),
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
        if self.subscribers.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    fn card(&self, card: &Card) {
        self.note(Note::Card(Box::new(card.clone())));
    }

    fn ended(&self, session: SessionId, segment_len: u64, next: Option<SessionId>) {
        self.reaches().remove(&session);
        self.note(Note::Ended { session, segment_len, next });
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

    fn texts(taken: &StderrTaken) -> Vec<String> {
        taken.lines.iter().map(|l| String::from_utf8(l.text.clone()).unwrap()).collect()
    }

    #[test]
    fn stderr_is_cut_into_lines() {
        let (hub, _ear) = Hub::new().unwrap();
        assert!(hub.stderr(b"one\r\ntw") && hub.stderr(b"o\n\nthr"));
        assert_eq!(texts(&hub.take_stderr(false)), ["one", "two", ""]);
        assert!(hub.stderr(b"ee"));
        let last = hub.take_stderr(true);
        assert_eq!((texts(&last), last.lines[0].seq, last.next, last.lost), (vec!["three".to_owned()], 3, 4, 0));
    }

    #[test]
    fn a_long_line_is_told_in_pieces_and_no_character_is_torn() {
        let (hub, _ear) = Hub::new().unwrap();
        let long = "€".repeat(6000);
        for piece in long.as_bytes().chunks(5000) {
            hub.stderr(piece);
        }
        hub.stderr(b"\n");
        let taken = hub.take_stderr(false);
        assert_eq!(texts(&taken).concat(), long);
        assert!(taken.lines.len() == 5 && taken.lines.iter().all(|l| l.text.len() <= MAX_STDERR_LINE));
        assert_eq!(taken.lost, 0);
    }

    #[test]
    fn stderr_is_bounded_and_what_is_lost_is_counted() {
        let (hub, _ear) = Hub::new().unwrap();
        for n in 0..100_000 {
            hub.stderr(format!("{n}\n").as_bytes());
        }
        let taken = hub.take_stderr(false);
        let kept = taken.lines.len() as u64;
        assert!(kept > 1000 && taken.lines.iter().map(|l| l.text.len() + 32).sum::<usize>() <= MAX_STDERR);
        assert_eq!((taken.lost, taken.next), (100_000 - kept, 100_000));
        assert!(taken.lines.iter().all(|l| l.text == l.seq.to_string().as_bytes()));
    }

    #[test]
    fn stderr_that_is_not_heard_is_counted_and_not_glued() {
        let (hub, _ear) = Hub::new().unwrap();
        hub.stderr(b"one\ntw");
        let held = hub.stderr.lock().unwrap();
        assert!(!hub.stderr(b"o\nthree\nfo"));
        drop(held);
        hub.stderr(b"ur\n");
        let taken = hub.take_stderr(false);
        assert_eq!((texts(&taken), taken.lost), (vec!["one".to_owned(), "tw".to_owned(), "ur".to_owned()], 2));
        assert_eq!(taken.lines.iter().map(|l| l.seq).collect::<Vec<_>>(), [0, 1, 4]);
    }
}
