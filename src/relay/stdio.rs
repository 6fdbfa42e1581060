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
use crate::sys::fd::{Also, Peer, Sink, Want, pipe, wait_more};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How long input is still captured after its receiver is gone: the writer may not have noticed yet.
pub const HEAR_OUT: Duration = Duration::from_millis(150);

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
    /// A stop that has not been asked for yet.
    pub fn new() -> io::Result<Self> {
        let (read, write) = pipe()?;
        Ok(Self { shared: Arc::new(Shared { wish: AtomicU8::new(RUN), read, write }) })
    }

    /// Relay what can be read without waiting, then end: for the output of a process that has exited, whose pipe a
    /// grandchild may hold open for ever. A loop whose output takes nothing keeps waiting for it; [`Stop::now`] ends
    /// that.
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
pub enum StopReason {
    /// The input said end of file; everything was passed on.
    Eof,
    /// The reader of the output is gone (`EPIPE`, for sockets also `ECONNRESET`). What came within [`HEAR_OUT`] is
    /// captured, and the input was closed, so that its writer learns it.
    OutputClosed,
    /// [`Stop::drain`]: all that was there has been passed on.
    Drained,
    /// [`Stop::now`] was called.
    Stopped,
    /// Reading failed. Some systems report the end of a tty or a reset socket so.
    ReadFailed(io::Error),
    /// Writing failed other than with `EPIPE`.
    WriteFailed(io::Error),
}

/// What a relay did.
#[derive(Debug)]
pub struct RelayEnd {
    /// Why the relay ended.
    pub reason: StopReason,
    /// Bytes read, captured or not.
    pub read: u64,
    /// Bytes that were written to the other side.
    pub written: u64,
}

/// What to do with the first bytes that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Pass the first `n` bytes on.
    Forward(usize),
    /// Never pass the first `n` bytes on. The inspector answers the sender by its own means.
    Discard(usize),
    /// Never pass the first `n` bytes on: what waits to be [inserted](Inspector::inserts) is written in their place, before
    /// anything that follows them.
    Replace(usize),
    /// Hold everything until more has been read.
    More,
}

/// What an inspector is shown: everything that was read and not yet decided.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// The bytes that were read and not yet decided.
    pub bytes: &'a [u8],
    /// Stream offset of the first of them; `None` while bytes pass uncaptured because the recorder is stuck.
    pub offset: Option<u64>,
    /// The sender has ended its stream: nothing will follow.
    pub ended: bool,
    /// No more can be held (end of input, or the capture is full): [`Action::More`] is then taken as a refusal of
    /// everything held, and what follows of the same message is shown next: an inspector remembers that it is still
    /// inside a refused message.
    pub last: bool,
}

/// What an inspector can do beside deciding.
#[derive(Debug)]
pub struct Desk<'a> {
    capture: &'a Producer,
    stop: &'a Stop,
}

impl Desk<'_> {
    /// The message that begins at this stream offset is refused, and no decision record could say so. `false`: this
    /// cannot be noted either.
    #[must_use]
    pub fn refused_blind(&self, offset: u64) -> bool {
        self.capture.refused_blind(offset)
    }

    /// Nothing is passed on any more, whatever is decided, so there is no need to wait for room.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.wish() == NOW
    }
}

/// Decides, in guard mode, what passes. In audit there is none, and it costs nothing.
///
/// `inspect` may block (a message waits for its verdict; bytes after it wait with it). It is called again at once while
/// something is held and it does not ask for more.
pub trait Inspector: Send {
    /// Decides about the first of the held bytes. Whatever the recorder needs to know of the decision is where it finds
    /// it when this returns.
    fn inspect(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Action;

    /// Whether what was passed on so far ends with the end of a message: only then something can be put in between.
    fn is_between_messages(&self) -> bool {
        true
    }

    /// Messages of others that are to be written to the receiver of this stream.
    fn inserts(&self) -> Option<Arc<Inserts>> {
        None
    }

    /// Where the answers of this inspector to the sender go; while that is full, nothing more is decided.
    fn answers(&self) -> Option<Arc<Inserts>> {
        None
    }

    /// The sender has ended its stream: what has to be sent in its place to the peer that waits for more.
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
    /// Ask the inspector before anything is forwarded.
    Guard(&'a mut dyn Inspector),
}

/// Relays `input` to `output` until either ends or `stop` is asked for, then closes both and the capture.
///
/// Works for pipes, sockets, files and ttys, blocking or not (a peer may have set `O_NONBLOCK` on what we share with
/// it).
#[expect(clippy::needless_pass_by_value, reason = "the end of a relay closes its input")]
pub fn relay(input: OwnedFd, output: OwnedFd, capture: Producer, stop: &Stop, mode: Mode<'_>) -> RelayEnd {
    relay_and_tell(&input, output, capture, stop, mode, &|_| ())
}

/// What a relay tells while it works.
#[derive(Debug)]
pub enum RelayEvent<'a> {
    /// The writer of the input has hung up, and its last bytes cannot be forwarded yet.
    InputHungUp,
    /// The reader of the output is gone; the input is still read for a while.
    OutputHungUp,
    /// It has ended. Told before anything is closed: what follows from the closing, the exit of a server for one,
    /// follows the telling.
    Ended(&'a RelayEnd),
}

/// As [`relay`], and reports its progress. Closes the output and the capture; the caller closes the input.
pub fn relay_and_tell(
    input: &impl AsFd,
    output: OwnedFd,
    capture: Producer,
    stop: &Stop,
    mode: Mode<'_>,
    tell: &dyn Fn(RelayEvent<'_>),
) -> RelayEnd {
    let (inserts, answers) = match &mode {
        Mode::Audit => (None, None),
        Mode::Guard(inspector) => (inspector.inserts(), inspector.answers()),
    };
    let mut relay = Relay {
        input: input.as_fd(),
        output: Sink::new(output),
        capture,
        stop,
        tell,
        read: 0,
        written: 0,
        draining: None,
        deaf: false,
        told: [false; 2],
        inserts,
        answers,
    };
    let reason = relay.run(mode);
    if let Some(inserts) = &relay.inserts {
        inserts.close();
    }
    let end = RelayEnd { reason, read: relay.read, written: relay.written };
    tell(RelayEvent::Ended(&end));
    end
}

/// How long a relay that is held up waits between two checks.
const HELD_UP: Duration = Duration::from_millis(20);

struct Relay<'a> {
    input: BorrowedFd<'a>,
    output: Sink,
    capture: Producer,
    stop: &'a Stop,
    tell: &'a dyn Fn(RelayEvent<'_>),
    read: u64,
    written: u64,
    /// Bytes that are still to be read.
    draining: Option<u64>,
    /// The output has no reader any more: input is captured and not passed on.
    deaf: bool,
    /// Which hang-ups were reported: of the input, of the output.
    told: [bool; 2],
    inserts: Option<Arc<Inserts>>,
    answers: Option<Arc<Inserts>>,
}

enum Filled {
    Some,
    /// Nothing came, but there is something to insert.
    Woken,
    Eof,
    /// Everything that fits is held back by an inspector.
    NoRoom,
}

impl Relay<'_> {
    fn run(&mut self, mut mode: Mode<'_>) -> StopReason {
        if matches!(mode, Mode::Guard(_)) {
            self.capture.guard();
        }
        loop {
            if self.deaf {
                return self.hear_out();
            }
            let between = match &mode {
                Mode::Audit => false,
                Mode::Guard(inspector) => inspector.is_between_messages(),
            };
            if between && let Err(reason) = self.insert() {
                return reason;
            }
            let filled = self.fill(between);
            if matches!(filled, Ok(Filled::Woken)) {
                continue;
            }
            let passed = match &mut mode {
                Mode::Audit => self.flush(usize::MAX),
                // What is held when a stop comes may be half a message: it is not decided.
                Mode::Guard(_) if matches!(filled, Err(StopReason::Stopped)) => Ok(()),
                Mode::Guard(inspector) => self.consult(
                    *inspector,
                    matches!(filled, Ok(Filled::NoRoom)),
                    matches!(filled, Ok(Filled::Eof) | Err(_)),
                ),
            };
            let end = match filled {
                Ok(Filled::Some | Filled::NoRoom | Filled::Woken) => None,
                Ok(Filled::Eof) => Some(StopReason::Eof),
                Err(reason) => Some(reason),
            };
            if let Err(reason) = passed {
                return reason;
            }
            if let Some(reason) = end {
                if self.deaf {
                    return StopReason::OutputClosed;
                }
                if let Mode::Guard(inspector) = &mut mode
                    && !matches!(reason, StopReason::Stopped)
                {
                    self.say_farewell(*inspector);
                }
                return reason;
            }
        }
    }

    /// Captures what is there and what comes within [`HEAR_OUT`], as far as there is room, though the output has no
    /// reader any more: what was said is evidence.
    fn hear_out(&mut self) -> StopReason {
        let until = Instant::now() + HEAR_OUT;
        while Instant::now() < until {
            match self.fill(false) {
                Ok(Filled::Some) => {}
                Ok(Filled::Eof) => {
                    self.hung_up(0);
                    return StopReason::OutputClosed;
                }
                Err(StopReason::Drained) if self.stop.wish() == RUN => {
                    self.draining = None;
                    let also = Also { stop: Some(self.stop.fd()), ..Also::default() };
                    let left = until.saturating_duration_since(Instant::now());
                    if wait_more(self.input, Want::Read, also, Some(left)).is_err() {
                        return StopReason::OutputClosed;
                    }
                }
                _ => return StopReason::OutputClosed,
            }
        }
        // Who talks on for ever is not heard for ever.
        self.draining = rustix::io::ioctl_fionread(self.input).ok();
        while self.draining.is_some() && matches!(self.fill(false), Ok(Filled::Some)) {}
        StopReason::OutputClosed
    }

    /// Writes what waits to be inserted.
    fn insert(&mut self) -> Result<(), StopReason> {
        while let Some(bytes) = self.inserts.as_ref().and_then(|i| i.take()) {
            self.write_own(&bytes)?;
        }
        Ok(())
    }

    fn say_farewell(&mut self, inspector: &mut dyn Inspector) {
        let waiting = self.inserts.as_ref().and_then(|i| i.take()).unwrap_or_default();
        let words = [waiting, inspector.farewell()].concat();
        if words.is_empty() {
            return;
        }
        // Nothing of ours is ever written after half a line.
        let broken: &[u8] = if inspector.is_between_messages() { b"" } else { b"\n" };
        let _ = self.write_own(broken).and_then(|()| self.write_own(&words));
    }

    fn write_own(&mut self, mut bytes: &[u8]) -> Result<(), StopReason> {
        while !bytes.is_empty() && !self.deaf {
            match self.output.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) => self.write_failed(e)?,
            }
        }
        Ok(())
    }

    /// Reads once into the capture.
    fn fill(&mut self, wakes: bool) -> Result<Filled, StopReason> {
        loop {
            if !self.await_input(wakes)? {
                return Ok(Filled::Woken);
            }
            let most = self.draining.map_or(CHUNK, |left| usize::try_from(left).unwrap_or(CHUNK));
            let space = self.capture.reserve();
            let len = space.len().min(CHUNK).min(most);
            if len == 0 {
                self.capture.commit(0, 0);
                return Ok(Filled::NoRoom);
            }
            match rustix::io::read(self.input, &mut space[..len]) {
                Ok(0) => return Ok(Filled::Eof),
                Ok(n) => {
                    self.capture.commit(n, Producer::now());
                    self.read += n as u64;
                    self.draining = self.draining.map(|left| left.saturating_sub(n as u64));
                    return Ok(Filled::Some);
                }
                // A spurious readiness on a descriptor that a peer made non-blocking: wait again.
                Err(Errno::INTR | Errno::AGAIN) => self.capture.commit(0, 0),
                Err(e) => return Err(StopReason::ReadFailed(e.into())),
            }
        }
    }

    /// Waits for input or a stop. `false`: there is something to insert, and nothing to read.
    fn await_input(&mut self, wakes: bool) -> Result<bool, StopReason> {
        loop {
            let wish = self.stop.wish();
            if wish == NOW {
                return Err(StopReason::Stopped);
            }
            if wish == DRAIN || self.deaf {
                return self.await_rest();
            }
            let wake = self.inserts.as_ref().filter(|_| wakes).map(|i| i.fd());
            let peer = (!self.told[1]).then(|| Peer::Reader(self.output.as_fd()));
            let also = Also { stop: Some(self.stop.fd()), wake, peer };
            let ready = wait_more(self.input, Want::Read, also, None).map_err(StopReason::ReadFailed)?;
            if ready.gone {
                self.hung_up(1);
            }
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

    /// Whether there is more to read without waiting. What comes after it was asked is not waited for, so that one who
    /// writes without end holds up nobody; where nobody reads any more, the capture is what ends it.
    fn await_rest(&mut self) -> Result<bool, StopReason> {
        let left = match self.draining {
            Some(left) => left,
            None if self.deaf => u64::MAX,
            None => rustix::io::ioctl_fionread(self.input).unwrap_or(u64::MAX),
        };
        self.draining = Some(left);
        let also = Also { peer: Some(Peer::Writer(self.input)), ..Also::default() };
        let ready = wait_more(self.input, Want::Read, also, Some(Duration::ZERO)).map_err(StopReason::ReadFailed)?;
        if ready.gone {
            // Nothing more can come: the end is read, too.
            self.draining = Some(left.max(CHUNK as u64));
            return Ok(true);
        }
        if ready.fd && left > 0 { Ok(true) } else { Err(StopReason::Drained) }
    }

    fn hung_up(&mut self, which: usize) {
        if !std::mem::replace(&mut self.told[which], true) {
            (self.tell)(if which == 0 { RelayEvent::InputHungUp } else { RelayEvent::OutputHungUp });
        }
    }

    /// Writes the first `limit` pending bytes.
    fn flush(&mut self, limit: usize) -> Result<(), StopReason> {
        let mut left = self.capture.pending().len().min(limit);
        while left > 0 && !self.deaf {
            match self.output.write(&self.capture.pending()[..left]) {
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
    fn write_failed(&mut self, e: Errno) -> Result<(), StopReason> {
        match e {
            Errno::INTR => Ok(()),
            Errno::AGAIN => self.await_output(),
            Errno::PIPE | Errno::CONNRESET => {
                self.deaf = true;
                self.hung_up(1);
                Ok(())
            }
            e => Err(StopReason::WriteFailed(e.into())),
        }
    }

    fn await_output(&mut self) -> Result<(), StopReason> {
        self.held_up(true)
    }

    /// Waits until the output takes something, if that is `wanted`, or for a short time; sees the input hang up
    /// meanwhile.
    fn held_up(&mut self, wanted: bool) -> Result<(), StopReason> {
        // While draining, the stop is readable for good; only the stronger wish ends a wait then.
        let (stop, limit) = match self.stop.wish() {
            NOW => return Err(StopReason::Stopped),
            RUN if wanted => (Some(self.stop.fd()), None),
            RUN => (Some(self.stop.fd()), Some(HELD_UP)),
            _ => (None, Some(HELD_UP)),
        };
        let peer = (!self.told[0]).then_some(Peer::Writer(self.input));
        let also = Also { stop, wake: None, peer };
        let ready = if wanted {
            wait_more(self.output.as_fd(), Want::Write, also, limit)
        } else {
            wait_more(self.stop.fd(), Want::Read, Also { stop: None, ..also }, limit)
        };
        if ready.map_err(StopReason::WriteFailed)?.gone {
            self.hung_up(0);
        }
        Ok(())
    }

    /// Waits while the earlier answers of the inspector are not taken.
    fn await_answers(&mut self) -> Result<(), StopReason> {
        while self.stop.wish() == RUN && self.answers.as_ref().is_some_and(|answers| answers.is_full()) {
            self.held_up(false)?;
        }
        Ok(())
    }

    /// Guard mode: lets the inspector go over what is held.
    fn consult(&mut self, inspector: &mut dyn Inspector, full: bool, ended: bool) -> Result<(), StopReason> {
        loop {
            self.await_answers()?;
            let held = self.capture.pending().len();
            if held == 0 || self.deaf {
                return Ok(());
            }
            let last = ended || full || self.capture.is_bypassing() || held == self.capture.capacity();
            let offset = self.capture.pending_at();
            let shown = Held { bytes: self.capture.pending(), offset, ended, last };
            match inspector.inspect(shown, &Desk { capture: &self.capture, stop: self.stop }) {
                Action::Forward(0) | Action::Discard(0) | Action::Replace(0) | Action::More if !last => {
                    return Ok(());
                }
                Action::Forward(n) if n > 0 => {
                    self.capture.decided(n);
                    self.flush(n)?;
                }
                // There may be no record of this refusal; what was not decided was not passed on.
                Action::Discard(_) | Action::Replace(_) if self.stop.wish() == NOW => return Ok(()),
                Action::Discard(n) if n > 0 => self.discard(n.min(held)),
                Action::Replace(n) if n > 0 => {
                    self.discard(n.min(held));
                    self.insert()?;
                }
                _ => self.discard(held),
            }
        }
    }

    fn discard(&mut self, n: usize) {
        self.capture.decided(n);
        self.capture.discard(n);
    }
}
