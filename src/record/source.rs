//! Where the recorder's messages come from.
//!
//! A source holds what has crossed until its evidence is on disk. The engine takes messages out of it, in the order in which
//! they crossed, and does not ask which transport they came over.

use super::{
    opening::Opening,
    recorder::{Ending, Message},
    stream::StreamId,
};
use crate::model::SessionId;
use std::io;

/// A session of a source, as long as the process runs. When packs roll over, the sessions that follow each other have one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// What a source hands out.
pub enum Seen<'a> {
    /// A session begins.
    Begins(Box<Opening>),
    /// A whole message.
    Message(&'a Message<'a>),
    /// A message of which only a part was captured.
    Torn {
        /// Bytes of it that were.
        bytes: u64,
        /// When the last of them was read, monotonic ns.
        read_ns: u64,
    },
    /// Bytes that crossed uncaptured.
    Gap {
        /// How many bytes there are.
        bytes: u64,
        /// When the last of them crossed, monotonic ns.
        read_ns: u64,
    },
    /// The session is over, while others of the process go on.
    Ends(Ending),
}

/// A disk kept a source from doing something.
#[derive(Debug)]
pub struct SourceError {
    /// Id of the session.
    pub session: SessionKey,
    /// What it was about to do.
    pub what: &'static str,
    /// Messages that are lost by it.
    pub messages: u64,
    /// What the system said.
    pub source: io::Error,
}

/// Told what is lost: the session, messages, bytes.
pub type Lost<'a> = &'a mut dyn FnMut(SessionKey, u64, u64);

/// Told up to where a stream of a session has reached its receiver, and how to ask when a byte of it did (monotonic ns).
pub type Delivered<'a> = &'a mut dyn FnMut(SessionKey, StreamId, u64, &dyn Fn(u64) -> Option<u64>);

/// What has crossed, and is not evidence on disk yet.
pub trait Source: Send {
    /// Touches the memory that it will need.
    fn prefault(&self) {}

    /// A round begins; recovery needs to know how far the wall clock is before the monotonic one.
    fn look(&mut self, wall_minus_mono_ns: i64);

    /// Hands out what crossed next. `false`: there is nothing, or what there is has no room on a disk ([`Source::take_error`]).
    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool;

    /// What a disk refused since this was asked last.
    fn take_error(&mut self) -> Option<SourceError>;

    /// Tells how far each stream was delivered.
    fn delivered(&self, tell: Delivered<'_>);

    /// Whether something has come that [`Source::next`] did not look at.
    fn has_work(&self) -> bool;

    /// Whether a message waits for room on a disk.
    fn is_stuck(&self) -> bool;

    /// Whether nothing is left, and nothing will come.
    fn is_drained(&self) -> bool;

    /// Whether what was handed out and is not on disk holds a call that a guard passed on: that must not be lost.
    fn holds_passed(&self) -> bool;

    /// Whether it holds so much that whatever can be released has to be.
    fn is_filling(&self) -> bool;

    /// The evidence of everything that was handed out is on disk.
    fn settled(&mut self);

    /// The same, but what was handed out is kept a little longer: recovery needs it.
    fn keep(&mut self);

    /// A disk that failed can be written again.
    fn retry(&mut self);

    /// Makes room where there is hardly any. `failing`: a disk does not take evidence; what crosses goes before it.
    fn make_room(&mut self, failing: bool);

    /// Nothing came for a moment; `give_back`: for so long that memory beyond the first goes back to the system.
    fn rest(&mut self, give_back: bool);

    /// Gives up messages that wait for room on a disk; whether there was one.
    fn give_up_stuck(&mut self) -> bool;

    /// Tells what was given up since this was asked last.
    fn take_lost(&mut self, lost: Lost<'_>);

    /// Tells what was captured of messages that never came to their end.
    fn unfinished(&self, lost: Lost<'_>);

    /// From now on, what it holds of this session belongs to the one with this id. What was handed out is on disk.
    fn goes_on_as(&mut self, session: SessionKey, id: SessionId);

    /// Bytes of a session are in no chain; recovery will say so.
    fn note_lost(&self, session: SessionKey, bytes: u64);

    /// The session is over, and nothing that is held of it is needed.
    fn forget(&mut self, session: SessionKey);
}
