//! How the recorder reports its progress to those who watch its sessions while they run.
//!
//! The recorder knows nothing of sockets and subscribers: it says that evidence has reached the files, and how far.
//! What subscribers get is read from the files; nothing is handed over that could pile up. A process may record many
//! sessions at a time: whatever is said names its session.

use super::card::Card;
use crate::{
    model::{Direction, SessionId, WallTime, receipt::Counts},
    paths::SessionPaths,
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Streams of one session that are named; of more, the newest.
pub const MAX_STREAMS: usize = 64;

/// A session has begun on disk.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The card of the session.
    pub card: Card,
    /// The paths of the session's files.
    pub paths: SessionPaths,
    /// Length of its segment in bytes, all of it whole lines.
    pub segment_len: u64,
}

/// How far a session has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Length of the segment in bytes, all of it whole lines.
    pub segment_len: u64,
    /// Counts of the session so far.
    pub counts: &'a Counts,
}

/// An answer of an HTTP session that is a `text/event-stream` and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStream {
    /// Bytes of its body that have reached the client's side.
    pub bytes: u64,
    /// Number of its exchange in the process.
    pub exchange: u64,
    /// When the last of those bytes did; `null` before the first.
    pub last_byte_at: Option<WallTime>,
    /// JSON-RPC messages in it so far.
    pub messages: u64,
    /// Method of the request that it answers: `GET` for the stream that a client keeps open, `POST` for one that ends with
    /// an answer.
    pub method: String,
    /// When its head was read.
    pub since: WallTime,
}

/// The streams of one session that are open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// The newest [`MAX_STREAMS`] of them, oldest first.
    pub open: Vec<OpenStream>,
    /// How many there are.
    pub total: u64,
}

/// Bytes of a message that are told of.
pub const MAX_CONTENT: usize = 4096;

/// The beginning of a message that crossed.
#[derive(Debug, Clone)]
pub struct Crossed {
    /// The session that it belongs to.
    pub session: SessionId,
    /// When its last byte was read.
    pub at: WallTime,
    /// Which way it went.
    pub direction: Direction,
    /// Number of its exchange over HTTP.
    pub exchange: Option<u64>,
    /// Its offset in its stream.
    pub offset: u64,
    /// At most [`MAX_CONTENT`] of its bytes, without what rules take out of it.
    pub beginning: Vec<u8>,
    /// Whether that is not all of it.
    pub cut: bool,
    /// Its length in bytes.
    pub wire_bytes: u64,
}

/// Called by the recorder thread, for any number of sessions. No method may wait for anything or anyone, and
/// [`Broadcast::written`] may cost no more than a few stores while there is no subscriber.
pub trait Broadcast: Send + Sync {
    /// A session has begun on disk.
    fn begun(&self, begun: Begun);
    /// Evidence has reached the files of a session.
    fn written(&self, session: SessionId, progress: Progress<'_>);
    /// The card of a session, which it names, has changed.
    fn card(&self, card: &Card);
    /// The chain of the session has ended; `next` is the session that follows in the same process.
    fn ended(&self, session: SessionId, segment_len: u64, next: Option<SessionId>);
    /// Whether anybody watches: whoever asks need not tell of streams otherwise.
    fn is_watched(&self) -> bool;
    /// The streams of a session that are open now.
    fn streams(&self, session: SessionId, streams: Streams);
    /// Whether anybody wants to see what messages hold, and may.
    fn wants_contents(&self) -> bool {
        false
    }
    /// A message crossed; called only while somebody wants that. It may be dropped.
    fn crossed(&self, _: Crossed) {}
    /// Where the sessions of this process can be watched, once that is known.
    fn socket(&self) -> Option<&Path>;
    /// Number of live events of a session that subscribers missed since the last call.
    fn take_missed(&self, session: SessionId) -> u64;
}

/// A broadcast that does nothing, for processes without a live socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Broadcast for Silent {
    fn begun(&self, _: Begun) {}
    fn written(&self, _: SessionId, _: Progress<'_>) {}
    fn card(&self, _: &Card) {}
    fn ended(&self, _: SessionId, _: u64, _: Option<SessionId>) {}
    fn is_watched(&self) -> bool {
        false
    }
    fn streams(&self, _: SessionId, _: Streams) {}
    fn socket(&self) -> Option<&Path> {
        None
    }
    fn take_missed(&self, _: SessionId) -> u64 {
        0
    }
}
