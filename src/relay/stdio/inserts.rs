//! Lines of our own between the lines of a peer: how one relay thread has something written by the other.
//!
//! A message is refused in one relay thread, and the answer has to go out on the stream that belongs to the
//! other. The other takes it between two messages, and is woken if it waits for input.

use crate::sys::fd::pipe;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Bytes that may wait; a thread that adds more has to wait.
const MAX_WAITING: usize = 4 << 20;

/// What waits to be written between two messages.
#[derive(Debug)]
pub struct Inserts {
    queue: Mutex<Queue>,
    some: AtomicBool,
    read: OwnedFd,
    write: OwnedFd,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    closed: bool,
}

impl Inserts {
    /// An empty queue of inserts.
    ///
    /// # Errors
    /// No pipe could be made.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe()?;
        Ok(Self { queue: Mutex::default(), some: AtomicBool::new(false), read, write })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `message` written, its terminator included. Never waits: the relay that is held up by a full queue waits
    /// before it looks at more ([`Inserts::is_full`]). Beyond twice that, which only a session that is ending reaches,
    /// nothing is added.
    pub fn push(&self, message: &[u8]) {
        let mut queue = self.lock();
        if queue.closed || queue.bytes.len() > 2 * MAX_WAITING {
            return;
        }
        queue.bytes.extend_from_slice(message);
        if !self.some.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.write, &[1]);
        }
    }

    /// Whether so much waits that adding to it has to wait: a peer that asks without reading is held up as it would be
    /// by any server.
    pub fn is_full(&self) -> bool {
        let queue = self.lock();
        queue.bytes.len() > MAX_WAITING && !queue.closed
    }

    /// Everything that waits, if anything does.
    pub fn take(&self) -> Option<Vec<u8>> {
        if !self.some.load(Ordering::Acquire) {
            return None;
        }
        let mut queue = self.lock();
        if self.some.swap(false, Ordering::AcqRel) {
            let _ = rustix::io::read(&self.read, &mut [0u8; 1][..]);
        }
        Some(std::mem::take(&mut queue.bytes)).filter(|bytes| !bytes.is_empty())
    }

    /// Nothing will be taken out any more.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Readable while something waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_taken_once_and_what_waits_is_bounded() {
        let inserts = Inserts::new().unwrap();
        assert_eq!(inserts.take(), None);
        inserts.push(b"a\n");
        inserts.push(b"b\n");
        assert_eq!(inserts.take().as_deref(), Some(&b"a\nb\n"[..]));
        assert_eq!(inserts.take(), None);
        assert!(!inserts.is_full());
        (0..20).for_each(|_| inserts.push(&vec![b'x'; 1 << 20]));
        assert!(inserts.is_full());
        assert_eq!(inserts.take().map(|bytes| bytes.len()), Some(9 << 20));
        (0..20).for_each(|_| inserts.push(&vec![b'x'; 1 << 20]));
        inserts.close();
        assert!(!inserts.is_full(), "nobody waits for a queue that nobody empties");
    }
}
