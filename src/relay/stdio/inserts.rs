//! Lines of our own between the lines of a peer: how one relay thread has something written by the other.
//!
//! Whoever refuses a message stands in one relay thread, and its answer has to go out on the stream that belongs to the
//! other. The other takes it between two messages, and is woken if it waits for input.

use crate::sys::fd::pipe;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{
    io,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Bytes that may wait before whoever adds more waits, too.
const MAX_WAITING: usize = 4 << 20;

/// What waits to be written between two messages.
#[derive(Debug)]
pub struct Inserts {
    queue: Mutex<Queue>,
    some: AtomicBool,
    taken: Condvar,
    read: OwnedFd,
    write: OwnedFd,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    closed: bool,
}

impl Inserts {
    /// Nothing waits.
    ///
    /// # Errors
    /// No pipe could be made.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe()?;
        Ok(Self { queue: Mutex::default(), some: AtomicBool::new(false), taken: Condvar::new(), read, write })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `message` written, its terminator included. Waits while much is waiting already: a peer that asks without
    /// reading is held up as it would be by any server. After [`Inserts::close`] nothing happens.
    pub fn push(&self, message: &[u8]) {
        let mut queue = self.lock();
        while queue.bytes.len() > MAX_WAITING && !queue.closed {
            let waited = self.taken.wait_timeout(queue, Duration::from_millis(100));
            queue = waited.map_or_else(|e| e.into_inner().0, |(queue, _)| queue);
        }
        if queue.closed {
            return;
        }
        queue.bytes.extend_from_slice(message);
        if !self.some.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.write, &[1]);
        }
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
        self.taken.notify_all();
        Some(std::mem::take(&mut queue.bytes)).filter(|bytes| !bytes.is_empty())
    }

    /// Nobody will take anything any more.
    pub fn close(&self) {
        self.lock().closed = true;
        self.taken.notify_all();
    }

    /// Readable while something waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_is_pushed_is_taken_once_and_a_closed_queue_holds_nobody_up() {
        let inserts = Arc::new(Inserts::new().unwrap());
        assert_eq!(inserts.take(), None);
        inserts.push(b"a\n");
        inserts.push(b"b\n");
        assert_eq!(inserts.take().as_deref(), Some(&b"a\nb\n"[..]));
        assert_eq!(inserts.take(), None);
        let full = Arc::clone(&inserts);
        let pusher = std::thread::spawn(move || (0..20).for_each(|_| full.push(&vec![b'x'; 1 << 20])));
        while !pusher.is_finished() {
            if inserts.take().is_some_and(|bytes| bytes.len() >= 4 << 20) {
                inserts.close();
            }
            std::thread::yield_now();
        }
        pusher.join().unwrap();
    }
}
