//! The relay loop: read into the capture, publish, write out of the same memory. Blocking, one thread per direction.
//!
//! Standard error has a simpler loop of its own in `stdio/stderr.rs`.
//!
//! The loop knows no messages: how bytes are chunked by the kernel never limits what can pass.

mod inserts;
mod stderr;

pub use inserts::Inserts;
pub use stderr::{StderrCounts, Tap, relay_stderr};

use super::capture::Producer;
use crate::sys::fd::{Want, pipe, wait_ready, wait_three};
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

/// What a decider is shown: everything that was read and not yet decided.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Stream offset of the first of them; `None` while bytes pass uncaptured because the recorder is stuck.
    pub offset: Option<u64>,
    /// The sender said its last word: nothing will follow.
    pub ended: bool,
    /// No more can be held (end of input, or the capture is full): [`Decision::More`] is then taken as a refusal of
    /// everything held, and what follows of the same message is shown next: a decider remembers that it is still inside a
    /// refused message.
    pub last: bool,
}

/// What a decider can do beside deciding.
#[derive(Debug)]
pub struct Desk<'a> {
    capture: &'a Producer,
    stop: &'a Stop,
}

impl Desk<'_> {
    /// The message that begins at this stream offset is refused, and no decision record could say so. `false`: this cannot
    /// be noted either.
    #[must_use]
    pub fn refused_blind(&self, offset: u64) -> bool {
        self.capture.refused_blind(offset)
    }

    /// Nothing is passed on any more, whatever is decided: nobody has to wait for room.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.wish() == NOW
    }
}

/// Guard mode's say in what passes. Audit has none, and does not pay for it.
///
/// `decide` may block (a message waits for its verdict; bytes behind it wait with it). It is called again at once while
/// something is held and it does not ask for more.
pub trait Decider: Send {
    /// Decides about the first of the held bytes. Whatever the recorder needs to know of the decision is where it finds
    /// it when this returns.
    fn decide(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Decision;

    /// Whether what was passed on so far ends with the end of a message: only then something can be put in between.
    fn is_between_messages(&self) -> bool {
        true
    }

    /// What others want to have written to the receiver of this stream.
    fn inserts(&self) -> Option<Arc<Inserts>> {
        None
    }

    /// The sender said its last word: what has to be said in its place to who waits for more.
    fn farewell(&mut self) -> Vec<u8> {
        Vec::new()
    }
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
    let inserts = match &mode {
        Mode::Audit => None,
        Mode::Guard(decider) => decider.inserts(),
    };
    let mut relay = Relay { output, capture, stop, read: 0, written: 0, draining: false, inserts };
    let reason = relay.run(&input, mode);
    if let Some(inserts) = &relay.inserts {
        inserts.close();
    }
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
    inserts: Option<Arc<Inserts>>,
}

enum Filled {
    Some,
    /// Nothing came, but there is something to insert.
    Woken,
    Eof,
    /// Everything that fits is held back by a decider.
    NoRoom,
}

impl Relay<'_> {
    fn run(&mut self, input: &OwnedFd, mut mode: Mode<'_>) -> EndReason {
        if matches!(mode, Mode::Guard(_)) {
            self.capture.guard();
        }
        loop {
            let between = match &mode {
                Mode::Audit => false,
                Mode::Guard(decider) => decider.is_between_messages(),
            };
            if between && let Err(reason) = self.insert() {
                return reason;
            }
            let filled = self.fill(input, between);
            if matches!(filled, Ok(Filled::Woken)) {
                continue;
            }
            let passed = match &mut mode {
                Mode::Audit => self.flush(usize::MAX),
                // What is held when a stop comes is half a message, perhaps: nobody decides about it.
                Mode::Guard(_) if matches!(filled, Err(EndReason::Stopped)) => Ok(()),
                Mode::Guard(decider) => self.consult(
                    *decider,
                    matches!(filled, Ok(Filled::NoRoom)),
                    matches!(filled, Ok(Filled::Eof) | Err(_)),
                ),
            };
            let end = match filled {
                Ok(Filled::Some | Filled::NoRoom | Filled::Woken) => None,
                Ok(Filled::Eof) => Some(EndReason::Eof),
                Err(reason) => Some(reason),
            };
            if let Err(reason) = passed {
                return reason;
            }
            if let Some(reason) = end {
                if let Mode::Guard(decider) = &mut mode
                    && !matches!(reason, EndReason::Stopped)
                {
                    self.say_farewell(*decider);
                }
                return reason;
            }
        }
    }

    /// Writes what waits to be inserted.
    fn insert(&mut self) -> Result<(), EndReason> {
        while let Some(bytes) = self.inserts.as_ref().and_then(|i| i.take()) {
            self.write_own(&bytes)?;
        }
        Ok(())
    }

    fn say_farewell(&mut self, decider: &mut dyn Decider) {
        let waiting = self.inserts.as_ref().and_then(|i| i.take()).unwrap_or_default();
        let words = [waiting, decider.farewell()].concat();
        if words.is_empty() {
            return;
        }
        // Nothing of ours is ever glued to half a line.
        let broken: &[u8] = if decider.is_between_messages() { b"" } else { b"\n" };
        let _ = self.write_own(broken).and_then(|()| self.write_own(&words));
    }

    fn write_own(&mut self, mut bytes: &[u8]) -> Result<(), EndReason> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.output, bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) => self.write_failed(e)?,
            }
        }
        Ok(())
    }

    /// Reads once into the capture.
    fn fill(&mut self, input: &OwnedFd, wakes: bool) -> Result<Filled, EndReason> {
        loop {
            if !self.await_input(input, wakes)? {
                return Ok(Filled::Woken);
            }
            let space = self.capture.reserve();
            let len = space.len().min(CHUNK);
            if len == 0 {
                self.capture.commit(0, 0);
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
                Err(Errno::INTR | Errno::AGAIN) => self.capture.commit(0, 0),
                Err(e) => return Err(EndReason::ReadFailed(e.into())),
            }
        }
    }

    /// Waits for input or a stop. `false`: there is something to insert, and nothing to read.
    fn await_input(&mut self, input: &OwnedFd, wakes: bool) -> Result<bool, EndReason> {
        loop {
            match self.stop.wish() {
                RUN => {}
                DRAIN => self.draining = true,
                _ => return Err(EndReason::Stopped),
            }
            if self.draining {
                let ready = wait_ready(input.as_fd(), Want::Read, None, Some(std::time::Duration::ZERO))
                    .map_err(EndReason::ReadFailed)?;
                return if ready.fd { Ok(true) } else { Err(EndReason::Drained) };
            }
            let wake = self.inserts.as_ref().filter(|_| wakes).map(|i| i.fd());
            let ready = wait_three(input.as_fd(), Want::Read, Some(self.stop.fd()), wake, None)
                .map_err(EndReason::ReadFailed)?;
            if ready.stop {
                continue;
            }
            if ready.fd {
                return Ok(true);
            }
            if ready.wake {
                return Ok(false);
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
                Err(e) => self.write_failed(e)?,
            }
        }
        Ok(())
    }

    /// What follows from a failed write: try again, or an end.
    fn write_failed(&self, e: Errno) -> Result<(), EndReason> {
        match e {
            Errno::INTR => Ok(()),
            Errno::AGAIN => self.await_output(),
            Errno::PIPE | Errno::CONNRESET => Err(EndReason::OutputClosed),
            e => Err(EndReason::WriteFailed(e.into())),
        }
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
    fn consult(&mut self, decider: &mut dyn Decider, full: bool, ended: bool) -> Result<(), EndReason> {
        loop {
            let held = self.capture.pending().len();
            if held == 0 {
                return Ok(());
            }
            let last = ended || full || self.capture.is_bypassing() || held == self.capture.capacity();
            let offset = self.capture.pending_at();
            let shown = Held { bytes: self.capture.pending(), offset, ended, last };
            match decider.decide(shown, &Desk { capture: &self.capture, stop: self.stop }) {
                Decision::Forward(0) | Decision::Discard(0) | Decision::More if !last => {
                    return Ok(());
                }
                Decision::Forward(n) if n > 0 => {
                    self.capture.decided(n);
                    self.flush(n)?;
                }
                // It may stand nowhere that this was refused; what was not decided was not passed on.
                Decision::Discard(_) if self.stop.wish() == NOW => return Ok(()),
                Decision::Discard(n) if n > 0 => self.discard(n.min(held)),
                _ => self.discard(held),
            }
        }
    }

    fn discard(&mut self, n: usize) {
        self.capture.decided(n);
        self.capture.discard(n);
    }
}
