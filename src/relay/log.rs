//! What crosses over HTTP, on its way to the recorder: one log for all exchanges of a process.
//!
//! An *exchange* is one request and its answer; each has two bodies, one in each direction. The I/O threads put what
//! they read into the log before they pass it on, and then tell how much has reached its receiver. The recorder takes
//! the entries out in that order. The log is a file in memory that survives SIGKILL, as a capture is.
//!
//! Nothing secret comes into the log: heads are reduced before they are put in ([`RequestHead`]).
//!
//! The log is a [capture](mod@super::capture) whose bytes are records (`log/codec.rs`). Its *offsets* count those bytes; what
//! is released is always everything before one of them.

mod codec;
mod digest;
mod entry;
mod owed;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use digest::Digests;
pub use reader::{LogReader, Record};
pub use writer::{LogWriter, Pulse};

pub use entry::{AnsweredBy, BodyEnd, Cause, Entry, Flow, HttpVersion, NoteCode, RequestHead, ResponseHead, Target};

use super::{Capture, Placement, Waker, capture};
use crate::model::Direction;
use std::{
    io,
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll},
};

/// Default capacity of a log: 8 MiB.
pub const DEFAULT_CAPACITY: usize = 8 << 20;
/// The smallest log: 4 KiB.
const SMALLEST: usize = 4 << 10;

/// Creates the log `<process>.log.ring` of a process; arguments and errors as [`Capture::create`].
///
/// # Errors
/// An argument is out of range, or no memory can be had.
pub fn create(
    dirs: &[PathBuf],
    process: &str,
    capacity: usize,
    waker: &Arc<Waker>,
) -> io::Result<(LogWriter, LogReader, Placement)> {
    if capacity < SMALLEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "log capacity is less than 4 KiB"));
    }
    let (producer, consumer, placement) = Capture::create(dirs, process, capture::Direction::Log, capacity, waker)?;
    let writer = LogWriter::new(producer);
    let reader = LogReader::new(consumer, Some(writer.shared()));
    Ok((writer, reader, placement))
}

/// Where the I/O threads put what they read, before they pass it on.
pub trait ExchangeLog: Send + Sync {
    /// The number of a new exchange: 1, 2, 3 … in a process.
    fn begin(&self) -> u64;

    /// Puts a piece of a body into the log. Pending: there is no room, and the task is woken when there is; what was
    /// not put in must not be passed on. A recorder that is stuck is not waited for beyond a bound: then the piece
    /// counts as a gap, and this is ready.
    fn poll_data(&self, cx: &mut Context<'_>, flow: Flow, offset: u64, bytes: &[u8]) -> Poll<()>;

    /// Puts anything else into the log. There is room that [`ExchangeLog::poll_data`] leaves for these entries.
    /// It never waits: an entry for which there is none is told later, or counted and the count told later.
    fn put(&self, flow: Flow, entry: &Entry<'_>);

    /// As [`put`](Self::put), and says whether the entry is in the log now: what must not happen before it is recorded
    /// may happen.
    #[must_use]
    fn put_now(&self, flow: Flow, entry: &Entry<'_>) -> bool {
        self.put(flow, entry);
        !self.is_bypassing()
    }

    /// Whether pieces of bodies pass unrecorded at the moment, because the recorder is stuck.
    fn is_bypassing(&self) -> bool;
}

impl Flow {
    /// The body of the request.
    #[must_use]
    pub const fn request(exchange: u64) -> Self {
        Self { exchange, direction: Direction::ClientToServer }
    }

    /// The body of the answer.
    #[must_use]
    pub const fn response(exchange: u64) -> Self {
        Self { exchange, direction: Direction::ServerToClient }
    }
}
