//! What a server says on its stderr, on its way from the relay to the live thread: lines, bounded, numbered, the oldest lost first.

use super::bell::Bell;
use crate::model::WallTime;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Lines of stderr that are kept for later subscribers.
const MAX_STDERR: usize = 64 << 10;
/// The longest piece of stderr that becomes one line, in bytes; a longer line is split.
const MAX_STDERR_LINE: usize = 4096;
/// How often the relay tries to take the lock before it gives up. The live thread holds it for nanoseconds, but may be
/// taken off its core while it does.
const TRIES: usize = 64;

/// Lines of the server's stderr that the live thread has not taken yet.
#[derive(Debug, Default)]
struct Stderr {
    lines: VecDeque<StderrLine>,
    bytes: usize,
    /// The beginning of a line that has not ended yet.
    open: Vec<u8>,
    /// Number of the next line. Lost ones have theirs too.
    next: u64,
    lost: u64,
}

/// A line of the server's stderr.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StderrLine {
    /// Position of the line among all lines of this server's stderr.
    pub seq: u64,
    /// Time at which the line ended.
    pub at: WallTime,
    /// Without its line feed.
    pub text: Vec<u8>,
}

/// What the live thread takes.
#[derive(Debug, Default)]
pub(super) struct StderrTaken {
    /// The lines, oldest first.
    pub lines: VecDeque<StderrLine>,
    /// Lines that were lost since the server began.
    pub lost: u64,
    /// Number of the line that comes next.
    pub next: u64,
}

/// One server's stderr.
#[derive(Debug)]
pub struct Voice {
    bell: Arc<Bell>,
    held: Mutex<Stderr>,
    /// Lines that were dropped because the lock was taken, not yet counted in `held`.
    unheard: AtomicU64,
    /// A piece was dropped: the line that it belongs to is cut there.
    torn: AtomicBool,
}

impl Voice {
    pub(super) fn new(bell: Arc<Bell>) -> Self {
        Self { bell, held: Mutex::default(), unheard: AtomicU64::new(0), torn: AtomicBool::new(false) }
    }

    /// Takes bytes of the server's stderr, without waiting; returns whether it did. Bytes not taken are counted as
    /// lost.
    pub fn take(&self, bytes: &[u8]) -> bool {
        let at = WallTime::now();
        let Some(mut held) = self.try_held() else {
            self.unheard.fetch_add(memchr::memchr_iter(b'\n', bytes).count() as u64, Ordering::SeqCst);
            self.torn.store(true, Ordering::SeqCst);
            return false;
        };
        self.settle(&mut held, at);
        held.take(at, bytes);
        drop(held);
        self.bell.ring_if_heard();
        true
    }

    fn try_held(&self) -> Option<MutexGuard<'_, Stderr>> {
        for _ in 0..TRIES {
            match self.held.try_lock() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    /// Counts what was dropped.
    fn settle(&self, held: &mut Stderr, at: WallTime) {
        if self.torn.swap(false, Ordering::SeqCst) {
            held.cut(at);
            let unheard = self.unheard.swap(0, Ordering::SeqCst);
            held.lost += unheard;
            held.next += unheard;
        }
    }

    /// What has come since; with the beginning of a line that has no end, if none will come.
    pub(super) fn said(&self, all: bool) -> StderrTaken {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = WallTime::now();
        self.settle(&mut held, at);
        if all {
            held.cut(at);
        }
        held.bytes = 0;
        StderrTaken { lines: std::mem::take(&mut held.lines), lost: held.lost, next: held.next }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(taken: &StderrTaken) -> Vec<String> {
        taken.lines.iter().map(|l| String::from_utf8(l.text.clone()).unwrap()).collect()
    }

    #[test]
    fn stderr_is_cut_into_lines() {
        let voice = Voice::new(Arc::new(Bell::new().unwrap().0));
        assert!(voice.take(b"one\r\ntw") && voice.take(b"o\n\nthr"));
        assert_eq!(texts(&voice.said(false)), ["one", "two", ""]);
        assert!(voice.take(b"ee"));
        let last = voice.said(true);
        assert_eq!((texts(&last), last.lines[0].seq, last.next, last.lost), (vec!["three".to_owned()], 3, 4, 0));
    }

    #[test]
    fn a_long_line_is_told_in_pieces_and_no_character_is_torn() {
        let voice = Voice::new(Arc::new(Bell::new().unwrap().0));
        let long = "€".repeat(6000);
        for piece in long.as_bytes().chunks(5000) {
            voice.take(piece);
        }
        voice.take(b"\n");
        let taken = voice.said(false);
        assert_eq!(texts(&taken).concat(), long);
        assert!(taken.lines.len() == 5 && taken.lines.iter().all(|l| l.text.len() <= MAX_STDERR_LINE));
        assert_eq!(taken.lost, 0);
    }

    #[test]
    fn stderr_is_bounded_and_what_is_lost_is_counted() {
        let voice = Voice::new(Arc::new(Bell::new().unwrap().0));
        for n in 0..100_000 {
            voice.take(format!("{n}\n").as_bytes());
        }
        let taken = voice.said(false);
        let kept = taken.lines.len() as u64;
        assert!(kept > 1000 && taken.lines.iter().map(|l| l.text.len() + 32).sum::<usize>() <= MAX_STDERR);
        assert_eq!((taken.lost, taken.next), (100_000 - kept, 100_000));
        assert!(taken.lines.iter().all(|l| l.text == l.seq.to_string().as_bytes()));
    }

    #[test]
    fn stderr_that_is_not_heard_is_counted_and_not_glued() {
        let voice = Voice::new(Arc::new(Bell::new().unwrap().0));
        voice.take(b"one\ntw");
        let held = voice.held.lock().unwrap();
        assert!(!voice.take(b"o\nthree\nfo"));
        drop(held);
        voice.take(b"ur\n");
        let taken = voice.said(false);
        assert_eq!((texts(&taken), taken.lost), (vec!["one".to_owned(), "tw".to_owned(), "ur".to_owned()], 2));
        assert_eq!(taken.lines.iter().map(|l| l.seq).collect::<Vec<_>>(), [0, 1, 4]);
    }
}
