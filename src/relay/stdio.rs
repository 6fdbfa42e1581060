//! The relay loop: read into the capture, publish, write out of the same memory. Blocking, one thread per direction.
//!
//! Standard error has a simpler loop of its own in `stdio/stderr.rs`.
//!
//! The loop knows no messages: how bytes are chunked by the kernel never limits what can pass.

mod stderr;

pub use stderr::{StderrCounts, Tap, relay_stderr};

use super::capture::Producer;
use crate::sys::fd::{Want, pipe, wait_ready};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Most bytes taken by one `read`.
pub const CHUNK: usize = 256 * 1024;

/// Ends relay loops from outside. Clone it for the one who asks; asking twice is fine, and the stronger wish wins.
#[derive(Debug, Clone)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wish: AtomicU8,
    read: OwnedFd,
    write: OwnedFd,
}

const RUN: u8 = 0;
const DRAIN: u8 = 1;
const NOW: u8 = 2;

impl Stop {
    /// A stop that nobody has asked for yet.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe()?;
        Ok(Self { shared: Arc::new(Shared { wish: AtomicU8::new(RUN), read, write }) })
    }

    /// Relay what can be read without waiting, then end: for the output of a process that has exited, whose pipe a
    /// grandchild may hold open for ever. A loop whose output takes nothing goes on waiting for it; [`Stop::now`] ends
    /// that, if the output is non-blocking.
    pub fn drain(&self) {
        self.ask(DRAIN);
    }

    /// End as soon as the current call returns; what was read and cannot be written at once is given up (it stays
    /// captured).
    pub fn now(&self) {
        self.ask(NOW);
    }

    fn ask(&self, wish: u8) {
        if self.shared.wish.fetch_max(wish, Ordering::AcqRel) == RUN {
            // One byte that is never read keeps the pipe readable for every loop that shares this stop.
            let _ = rustix::io::write(&self.shared.write, &[1]);
        }
    }

    fn wish(&self) -> u8 {
        self.shared.wish.load(Ordering::Acquire)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.shared.read.as_fd()
    }
}

/// Why a relay ended.
#[derive(Debug)]
pub enum EndReason {
    /// The input said end of file; everything was passed on.
    Eof,
    /// The reader of the output is gone (`EPIPE`, for sockets also `ECONNRESET`); the input was closed, so that its writer learns it.
    OutputClosed,
    /// [`Stop::drain`]: all that was there has been passed on.
    Drained,
    /// [`Stop::now`].
    Stopped,
    /// Reading failed. Some systems report the end of a tty or a reset socket so.
    ReadFailed(io::Error),
    /// Writing failed other than with `EPIPE`.
    WriteFailed(io::Error),
}

/// What a relay did.
#[derive(Debug)]
pub struct RelayEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Bytes read, captured or not.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// What is to be done with the first bytes that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Pass the first `n` bytes on.
    Forward(usize),
    /// Never pass the first `n` bytes on. The decider answers the sender by its own means.
    Discard(usize),
    /// Hold everything until more has been read.
    More,
}

/// Guard mode's say in what passes from client to server. Audit has none, and does not pay for it.
///
/// `decide` may block (a message waits for its verdict; bytes behind it wait with it). It is called again at once while
/// something is held and it does not ask for more.
pub trait Decider: Send {
    /// `held` is everything that was read and not yet decided. `last` says that no more can be held (end of input, or
    /// the capture is full): [`Decision::More`] is then taken as a refusal of everything held, and what
    /// follows of the same message is shown next: a decider remembers that it is still inside a refused message.
    fn decide(&mut self, held: &[u8], last: bool) -> Decision;
}

/// How a relay treats what it reads.
#[derive(Default)]
pub enum Mode<'a> {
    /// Pass everything on at once.
    #[default]
    Audit,
    /// Ask first.
    Guard(&'a mut dyn Decider),
}

/// Relays `input` to `output` until either ends or `stop` is asked for, then closes both and the capture.
///
/// Works for pipes, sockets, files and ttys, blocking or not (a peer may have set `O_NONBLOCK` on what we share with it).
pub fn relay(input: OwnedFd, output: OwnedFd, capture: Producer, stop: &Stop, mode: Mode<'_>) -> RelayEnd {
    relay_and_tell(input, output, capture, stop, mode, |_| ())
}

/// As [`relay`]; tells `ended` before anything is closed. What follows from the closing, the exit of a server for one,
/// follows the telling.
pub fn relay_and_tell(
    input: OwnedFd,
    output: OwnedFd,
    capture: Producer,
    stop: &Stop,
    mode: Mode<'_>,
    ended: impl FnOnce(&RelayEnd),
) -> RelayEnd {
    let mut relay = Relay { output, capture, stop, read: 0, written: 0, draining: false };
    let reason = relay.run(&input, mode);
    let end = RelayEnd { reason, read: relay.read, written: relay.written };
    ended(&end);
    drop(input);
    end
}

struct Relay<'a> {
    output: OwnedFd,
    capture: Producer,
    stop: &'a Stop,
    read: u64,
    written: u64,
    draining: bool,
}

enum Filled {
    Some,
    Eof,
    /// Everything that fits is held back by a decider.
    NoRoom,
}

impl Relay<'_> {
    fn run(&mut self, input: &OwnedFd, mut mode: Mode<'_>) -> EndReason {
        loop {
            let filled = self.fill(input);
            let passed = match &mut mode {
                Mode::Audit => self.flush(usize::MAX),
                Mode::Guard(decider) => self.consult(*decider, !matches!(filled, Ok(Filled::Some))),
            };
            let end = match filled {
                Ok(Filled::Some | Filled::NoRoom) => None,
                Ok(Filled::Eof) => Some(EndReason::Eof),
                Err(reason) => Some(reason),
            };
            if let Err(reason) = passed {
                return reason;
            }
            if let Some(reason) = end {
                return reason;
            }
        }
    }

    /// Reads once into the capture.
    fn fill(&mut self, input: &OwnedFd) -> Result<Filled, EndReason> {
        loop {
            self.await_input(input)?;
            let space = self.capture.reserve();
            let len = space.len().min(CHUNK);
            if len == 0 {
                return Ok(Filled::NoRoom);
            }
            match rustix::io::read(input, &mut space[..len]) {
                Ok(0) => return Ok(Filled::Eof),
                Ok(n) => {
                    self.capture.commit(n, Producer::now());
                    self.read += n as u64;
                    return Ok(Filled::Some);
                }
                // A spurious readiness on a descriptor that a peer made non-blocking: wait again.
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(EndReason::ReadFailed(e.into())),
            }
        }
    }

    /// Waits for input or a stop.
    fn await_input(&mut self, input: &OwnedFd) -> Result<(), EndReason> {
        loop {
            match self.stop.wish() {
                RUN => {}
                DRAIN => self.draining = true,
                _ => return Err(EndReason::Stopped),
            }
            if self.draining {
                let ready = wait_ready(input.as_fd(), Want::Read, None, Some(std::time::Duration::ZERO))
                    .map_err(EndReason::ReadFailed)?;
                return if ready.fd { Ok(()) } else { Err(EndReason::Drained) };
            }
            let ready =
                wait_ready(input.as_fd(), Want::Read, Some(self.stop.fd()), None).map_err(EndReason::ReadFailed)?;
            if ready.fd && !ready.stop {
                return Ok(());
            }
        }
    }

    /// Writes the first `limit` pending bytes.
    fn flush(&mut self, limit: usize) -> Result<(), EndReason> {
        let mut left = self.capture.pending().len().min(limit);
        while left > 0 {
            match rustix::io::write(&self.output, &self.capture.pending()[..left]) {
                Ok(n) => {
                    self.capture.wrote(n, Producer::now());
                    self.written += n as u64;
                    left -= n;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.await_output()?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(EndReason::OutputClosed),
                Err(e) => return Err(EndReason::WriteFailed(e.into())),
            }
        }
        Ok(())
    }

    fn await_output(&self) -> Result<(), EndReason> {
        // While draining, the stop is readable for good; only the stronger wish ends a write then.
        if self.stop.wish() == NOW {
            return Err(EndReason::Stopped);
        }
        let (stop, limit) = match self.stop.wish() {
            RUN => (Some(self.stop.fd()), None),
            _ => (None, Some(std::time::Duration::from_millis(20))),
        };
        wait_ready(self.output.as_fd(), Want::Write, stop, limit).map_err(EndReason::WriteFailed)?;
        Ok(())
    }

    /// Guard mode: lets the decider go over what is held.
    fn consult(&mut self, decider: &mut dyn Decider, ended: bool) -> Result<(), EndReason> {
        loop {
            let held = self.capture.pending().len();
            if held == 0 {
                return Ok(());
            }
            let last = ended || self.capture.is_bypassing() || held == self.capture.capacity();
            match decider.decide(self.capture.pending(), last) {
                Decision::Forward(0) | Decision::Discard(0) | Decision::More if !last => {
                    return Ok(());
                }
                Decision::Forward(n) if n > 0 => self.flush(n)?,
                Decision::Discard(n) if n > 0 => self.capture.discard(n.min(held)),
                _ => self.capture.discard(held),
            }
        }
    }
}
