//! Where the recorder's messages come from.
//!
//! A source holds what has crossed until its evidence is on disk. The engine takes messages out of it, in the order in
//! which they crossed, and does not ask which transport they came over.

use super::{
    broadcast::OpenStream,
    exchange::Exchange,
    opening::Opening,
    recorder::{Ending, Message},
    stream::StreamId,
};
use crate::model::{SessionId, words::EndReason};
use serde::{Deserialize, Serialize};
use std::io;

/// A session of a source, as long as the process runs. When packs roll over, the sessions that follow each other have
/// one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub u64);

/// What a source hands out.
pub enum Seen<'a> {
    /// A session begins with this opening.
    Begins(Box<Opening>),
    /// An exchange of HTTP has begun, or is over.
    Exchange(Box<Exchange>),
    /// A message that was captured whole.
    Message(&'a Message<'a>),
    /// A message of which only a part was captured.
    Torn {
        /// How many of its bytes were captured.
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
    /// A stream has reached its receiver up to an offset, after everything of it that was handed out before.
    Delivered {
        /// The stream.
        stream: StreamId,
        /// The offset.
        upto: u64,
        /// When the byte before an offset was delivered, monotonic ns.
        when: &'a dyn Fn(u64) -> Option<u64>,
    },
    /// The session is over, while others of the process continue.
    Ends(Ending),
    /// What follows belongs to another session, which continues this one, for this reason. The source hands out nothing
    /// more before it [goes on](Source::goes_on_as).
    Rolls(EndReason),
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

/// Called with what is lost: session, number of messages, bytes.
pub type Lost<'a> = &'a mut dyn FnMut(SessionKey, u64, u64);

/// Called with the offset up to which a stream of a session has reached its receiver, and with a function that says
/// when a byte did (monotonic ns).
pub type Delivered<'a> = &'a mut dyn FnMut(SessionKey, StreamId, u64, &dyn Fn(u64) -> Option<u64>);

/// Where the recorder gets what has crossed and is not evidence on disk yet.
pub trait Source: Send {
    /// Touches the memory that it will need.
    fn prefault(&self) {}

    /// Begins a round; recovery needs to know how far the wall clock is before the monotonic one.
    fn look(&mut self, wall_minus_mono_ns: i64);

    /// Hands out what crossed next: all of it of one session, and the beginning of a session by itself. `false`: there is
    /// nothing, or what there is has no room on a disk ([`Source::take_error`]).
    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool;

    /// The disk error since the last call, if there was one.
    fn take_error(&mut self) -> Option<SourceError>;

    /// Tells how far each stream was delivered, of those of which [`Seen::Delivered`] does not tell.
    fn delivered(&self, tell: Delivered<'_>);

    /// Tells of the streams that are open, oldest first: for those who watch, it is no evidence.
    fn streams(&self, _tell: &mut dyn FnMut(SessionKey, OpenStream)) {}

    /// Whether anything has come that [`Source::next`] did not look at.
    fn has_work(&self) -> bool;

    /// The offset in a log before which everything was handed out.
    fn come(&self) -> u64 {
        0
    }

    /// Whether a message waits for room on a disk.
    fn is_stuck(&self) -> bool;

    /// Whether nothing is left, and nothing will come.
    fn is_drained(&self) -> bool;

    /// Whether what was handed out and is not on disk holds a call that a guard passed on: that must not be lost.
    fn holds_passed(&self) -> bool;

    /// Whether it holds so much that everything that can be released must be.
    fn is_filling(&self) -> bool;

    /// Whether so much was handed out since [`Source::look`] that it is written, and released, before more is taken.
    fn has_given_much(&self) -> bool {
        false
    }

    /// Whether so much waits to be handed out that the recorder takes it without a pause.
    fn presses(&self) -> bool {
        false
    }

    /// The evidence of everything that was handed out is on disk.
    fn settled(&mut self);

    /// The same, but what was handed out is kept a little longer: recovery needs it.
    fn keep(&mut self);

    /// A disk that failed can be written again.
    fn retry(&mut self);

    /// The evidence of everything that was handed out of this session is on disk, and recovery needs none of it.
    fn written(&mut self, _session: SessionKey) {}

    /// Makes room where there is hardly any. `failing` says of a session whether its disk does not take evidence: what
    /// crosses goes before that.
    fn make_room(&mut self, failing: &dyn Fn(SessionKey) -> bool);

    /// Called when nothing came for a moment; `give_back`: for so long that memory beyond the first goes back to the
    /// system.
    fn rest(&mut self, give_back: bool);

    /// Gives up messages that wait for room on a disk; whether there was one.
    fn give_up_stuck(&mut self) -> bool;

    /// Reports what was given up since the last call.
    fn take_lost(&mut self, lost: Lost<'_>);

    /// Reports what was captured of messages whose end never came.
    fn unfinished(&self, lost: Lost<'_>);

    /// From now on, what it holds of this session belongs to the one with this id. What was handed out is on disk.
    fn goes_on_as(&mut self, session: SessionKey, id: SessionId);

    /// Notes that bytes of a session are in no chain; recovery will say so.
    fn note_lost(&self, session: SessionKey, bytes: u64);

    /// Releases everything of a session that is over.
    fn forget(&mut self, session: SessionKey);
}
