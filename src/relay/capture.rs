//! The capture of one direction: a ring file between the relay thread, which fills it and writes out of it, and the
//! recorder, which empties it.
//!
//! **Stream offset**: captured bytes of one direction since the start, the first byte has offset 0. Bytes that were
//! relayed while the recorder was stuck (bypass) are *not* captured and have no offset: a [`CaptureGap`] at offset `X`
//! of `n` bytes says that `n` bytes crossed between the captured bytes `X - 1` and `X`, so the message on either side
//! of `X` may be torn. A gap's slot is published before any byte after it.
//!
//! **After SIGKILL** the file holds everything that was read and not yet released by the recorder, which includes
//! everything a peer can have seen; [`Consumer::open`] reads it. A reboot empties it (it is in memory).
//!
//! The file's layout is described in `capture/layout.rs`.

mod consumer;
mod layout;
mod place;
mod producer;
#[cfg(test)]
mod tests;

pub use consumer::{CaptureGap, Consumer};
pub use layout::{NOTES, VERSION};
pub use place::{is_session, note_cards, ring_dirs, search_dirs, sweep};
pub use producer::Producer;

use crate::relay::waker::Waker;
use crate::sys::{RingMemory, clock, process, wait};
use layout::{Fixed, MARKS, MAX_CAPACITY, header_bytes};
use rustix::fd::OwnedFd;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the MCP client's stdout to the server's stdin.
    ClientToServer,
    /// From the server's stdout to the MCP client's stdin.
    ServerToClient,
    /// From the server's stderr to ours.
    ServerStderr,
    /// The rulings of a guard: not bytes of a peer, but records of its own.
    Decisions,
    /// Both ways, of all exchanges of a process, as records of the [log](super::log).
    Log,
}

impl Direction {
    fn short(self) -> &'static str {
        match self {
            Self::ClientToServer => "c2s",
            Self::ServerToClient => "s2c",
            Self::ServerStderr => "err",
            Self::Decisions => "dec",
            Self::Log => "log",
        }
    }

    fn to_word(self) -> u64 {
        match self {
            Self::ClientToServer => 0,
            Self::ServerToClient => 1,
            Self::ServerStderr => 2,
            Self::Decisions => 3,
            Self::Log => 4,
        }
    }

    fn from_word(word: u64) -> Option<Self> {
        [Self::ClientToServer, Self::ServerToClient, Self::ServerStderr, Self::Decisions, Self::Log]
            .into_iter()
            .find(|d| d.to_word() == word)
    }
}

/// Where a ring was placed.
#[derive(Debug)]
pub struct Placement {
    /// The ring file; `None` if no directory could be used: the capture works but does not survive this process.
    pub path: Option<PathBuf>,
    /// Directories that were tried before, with what was wrong with each.
    pub refused: Vec<(PathBuf, io::Error)>,
}

/// Creates captures.
#[derive(Debug)]
pub struct Capture;

impl Capture {
    /// Default capacity of a ring: 64 MiB. It takes memory only as far as it is used.
    pub const DEFAULT_CAPACITY: usize = 64 << 20;
    /// The memory that a ring keeps when nothing is in it: 4 MiB, less if its capacity is less. It begins with
    /// an eighth of that.
    pub const KEPT: usize = 4 << 20;
    /// Default time after which a recorder that releases nothing is taken for stuck: 5 s.
    pub const DEFAULT_STALL_BOUND: Duration = Duration::from_secs(5);

    /// Creates the ring file `<session>.<c2s|s2c|err|dec|log>.ring` in the first usable of `dirs` (see [`ring_dirs`]), or
    /// an anonymous ring if none is usable.
    ///
    /// `session` is 16 lower-case hex digits; `capacity` in bytes is a power of two, at least one memory page and at
    /// most 1 GiB; `waker` is the one of the recorder that will consume.
    pub fn create(
        dirs: &[PathBuf],
        session: &str,
        direction: Direction,
        capacity: usize,
        waker: &Arc<Waker>,
    ) -> io::Result<(Producer, Consumer, Placement)> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let id = <[u8; 16]>::try_from(session.as_bytes()).map_err(|_| invalid("session id is not 16 bytes"))?;
        if !is_session(session) {
            return Err(invalid("session id is not lower-case hexadecimal"));
        }
        if !capacity.is_power_of_two() || capacity as u64 > MAX_CAPACITY {
            return Err(invalid("ring capacity is not a power of two up to 1 GiB"));
        }
        let bytes = header_bytes(MARKS) + capacity as u64;
        let first = header_bytes(MARKS) + RingMemory::first(capacity.min(Self::KEPT)) as u64;
        let name = format!("{session}.{}.ring", direction.short());
        let mut refused = Vec::new();
        let mut made = None;
        for dir in dirs {
            match place::make(dir, &name, bytes, first) {
                Ok(ok) => {
                    made = Some(ok);
                    break;
                }
                Err(e) => refused.push((dir.clone(), e)),
            }
        }
        let (file, path) = match made {
            Some(made) => (made.file, Some(made.path)),
            None => (place::anonymous(bytes, first)?, None),
        };
        let fixed = Fixed {
            capacity: capacity as u64,
            marks: MARKS,
            direction: direction.to_word(),
            session: id,
            owner: u64::from(std::process::id()),
            owner_start: process::start_time(std::process::id()).unwrap_or(0),
            created: clock::mono_ns(),
        };
        match Self::join(file, fixed, direction, path.clone(), waker) {
            Ok((producer, consumer)) => Ok((producer, consumer, Placement { path, refused })),
            Err(e) => {
                if let Some(path) = path {
                    let _ = std::fs::remove_file(path);
                }
                Err(e)
            }
        }
    }

    fn join(
        file: OwnedFd,
        fixed: Fixed,
        direction: Direction,
        path: Option<PathBuf>,
        waker: &Arc<Waker>,
    ) -> io::Result<(Producer, Consumer)> {
        let header = usize::try_from(fixed.header()).map_err(|_| layout::corrupt("ring header too large"))?;
        let capacity = usize::try_from(fixed.capacity).map_err(|_| layout::corrupt("ring too large"))?;
        let memory = RingMemory::map(file, header, capacity, Self::KEPT)?;
        fixed.write(&memory);
        let (writer, reader) = memory.split();
        let link = Arc::new(Link { room: Room::default() });
        let producer = Producer::new(writer, fixed.marks, Arc::clone(&link), Arc::clone(waker));
        Ok((producer, Consumer::new(reader, fixed, direction, path, link)))
    }
}

/// What the two ends of a capture share beside the memory, whose open file carries the lock that says "alive".
#[derive(Debug)]
struct Link {
    room: Room,
}

/// Lets the producer wait until the consumer has released something.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Room {
    waiting: AtomicU32,
}

impl Room {
    /// Producer: waits for a release, unless `there` says that it has happened already; at most `timeout`.
    fn wait(&self, timeout: Duration, there: impl FnOnce() -> bool) {
        self.waiting.store(1, Ordering::SeqCst);
        // Pairs with the fence in `released`: either we see the new tail, or the consumer sees that we wait.
        fence(Ordering::SeqCst);
        if !there() {
            wait::wait(&self.waiting, 1, timeout);
        }
        self.waiting.store(0, Ordering::SeqCst);
    }

    /// Consumer: the tail has moved.
    #[inline]
    fn released(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 1 {
            self.waiting.store(0, Ordering::SeqCst);
            wait::wake(&self.waiting);
        }
    }
}
