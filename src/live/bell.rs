//! What wakes the live thread: a byte in a pipe, at most one however often the bell rings.

use crate::sys::fd;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::{
    io,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// The end that rings; ringing never blocks.
#[derive(Debug)]
pub(super) struct Bell {
    woken: AtomicBool,
    subscribers: AtomicUsize,
    fd: OwnedFd,
}

/// The end that is heard.
#[derive(Debug)]
pub(super) struct Heard(OwnedFd);

impl Bell {
    /// Makes a pipe: the end that rings, and the end that the live thread waits on.
    pub fn new() -> io::Result<(Self, Heard)> {
        let (heard, bell) = fd::pipe()?;
        fd::set_nonblocking(&heard)?;
        fd::set_nonblocking(&bell)?;
        Ok((Self { woken: AtomicBool::new(false), subscribers: AtomicUsize::new(0), fd: bell }, Heard(heard)))
    }

    pub fn ring(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // Full means that it has been rung.
            let _ = rustix::io::write(&self.fd, &[1]);
        }
    }

    /// Rings for news that matters only while there are subscribers.
    pub fn ring_if_heard(&self) {
        if self.is_heard() {
            self.ring();
        }
    }

    /// Whether there are subscribers.
    pub fn is_heard(&self) -> bool {
        self.subscribers.load(Ordering::SeqCst) > 0
    }

    pub fn heard_by(&self, subscribers: usize) {
        self.subscribers.store(subscribers, Ordering::SeqCst);
    }
}

impl Heard {
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// From now on it rings again.
    pub fn hush(&self, bell: &Bell) {
        let mut buffer = [0; 64];
        while matches!(rustix::io::read(&self.0, &mut buffer), Ok(1..)) {}
        bell.woken.store(false, Ordering::SeqCst);
    }
}
