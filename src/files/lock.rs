//! Locks, which the system drops with the process that holds them.

use assay_evidence::plain::is_unsupported;
use rustix::{fd::AsFd, fs::FlockOperation, io::Errno};
use std::{
    io,
    time::{Duration, Instant},
};

/// What became of a try for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// It is ours until the file is closed.
    Taken,
    /// Another process has it.
    Busy,
    /// The file system has no locks: it cannot be told.
    Unsupported,
}

/// Tries for the exclusive lock of a file or directory.
///
/// # Errors
/// An I/O error.
pub fn try_lock(file: impl AsFd) -> io::Result<Lock> {
    lock_with(file, FlockOperation::NonBlockingLockExclusive)
}

/// Tries for a lock that others may hold at the same time.
///
/// # Errors
/// An I/O error.
pub fn try_lock_shared(file: impl AsFd) -> io::Result<Lock> {
    lock_with(file, FlockOperation::NonBlockingLockShared)
}

/// Waits for the exclusive lock of a file or directory.
///
/// # Errors
/// An I/O error.
pub fn lock(file: impl AsFd) -> io::Result<Lock> {
    lock_with(file, FlockOperation::LockExclusive)
}

fn lock_with(file: impl AsFd, how: FlockOperation) -> io::Result<Lock> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, how)) {
        Ok(()) => Ok(Lock::Taken),
        Err(Errno::AGAIN) => Ok(Lock::Busy),
        Err(e) if is_unsupported(&e.into()) => Ok(Lock::Unsupported),
        Err(e) => Err(e.into()),
    }
}

/// Tries repeatedly to get a lock, for no longer than `patience`.
///
/// # Errors
/// An I/O error.
pub fn patiently(patience: Duration, mut attempt: impl FnMut() -> io::Result<Lock>) -> io::Result<Lock> {
    let begun = Instant::now();
    loop {
        match attempt()? {
            Lock::Busy if begun.elapsed() < patience => std::thread::sleep(Duration::from_millis(10)),
            other => return Ok(other),
        }
    }
}
