//! What crosses the live socket: NDJSON, one object a line (docs/live-protocol.md).

use super::{
    content::Content,
    message::Told,
    row::{CallRow, Totals},
};
use crate::{
    model::{
        Direction, EventKind, SessionId, WallTime,
        reading::{self, versioned},
    },
    record::card::Card,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub use crate::record::broadcast::{OpenStream, Streams};

/// Version of the protocol.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | a socket serves all sessions of its process; a client subscribes to those that it wants |
pub const PROTOCOL: u32 = 2;

/// Format version of the card in the run directory.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | several cards may name one socket: it is the one that the card says, no longer the one beside it |
pub const RUN_CARD_VERSION: u32 = 2;

versioned!(RunCard, "run card", from 1, to RUN_CARD_VERSION, "v");
versioned!(Hello, "live protocol", PROTOCOL, "protocol");

/// The longest request that is read, in bytes with its line feed.
pub const MAX_REQUEST: usize = 4096;
/// The longest line that a client accepts, in bytes.
pub const MAX_LINE: usize = 4 << 20;

/// The card in the run directory: where a live session of this user is recorded and watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCard {
    /// The audit directory, absolute.
    pub audit_dir: PathBuf,
    /// The session's card, as it is in `live/` of the audit directory.
    pub card: Card,
    /// The file with the session's receipts.
    pub receipts: PathBuf,
    /// The session's audit events, from which a gap can be filled.
    pub segment: PathBuf,
    /// [`RUN_CARD_VERSION`], or an older one.
    #[serde(deserialize_with = "reading::known::<RunCard, _>")]
    pub v: u32,
}

/// One line from the proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LiveLine {
    /// The first line; sent again if a subscriber was too slow for notices of sessions that begin and end.
    Hello(Hello),
    /// A session has begun; sent to every subscriber.
    Begun(Brief),
    /// A session has ended; sent to every subscriber.
    Ended(Ended),
    /// The first line about a session after subscribing to it.
    Session(Box<SessionHead>),
    /// Events that this subscriber does not get here.
    Gap(Gap),
    /// A tool call was read from the client.
    CallStarted(Box<Chained>),
    /// A policy was evaluated for a call.
    PolicyDecided(Box<Chained>),
    /// A call has its receipt.
    CallFinished(Box<Chained>),
    /// Any other event of the chain.
    Chain(Box<Chained>),
    /// A notification that matters to the evidence.
    Notification(Box<Chained>),
    /// The chain has its end.
    SessionEnd(Box<Chained>),
    /// An event of the chain that does not parse.
    Unread(Unread),
    /// A line of the server's stderr.
    Stderr(Stderr),
    /// Lines of the server's stderr that were lost.
    StderrLost(StderrLost),
    /// How far the pack of a session is.
    PackProgress(PackProgress),
    /// Which streams of a session over HTTP are open, once that has changed.
    Streams(SessionStreams),
    /// What a message holds, for those who asked for it.
    Content(Box<Content>),
    /// All past events from `from` on have been sent; what follows is new.
    CaughtUp(CaughtUp),
    /// A request could not be understood.
    Error(ErrorLine),
    /// A kind that this version does not know: skip it.
    #[serde(other)]
    Unknown,
}

/// `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Whether what messages hold can be asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contents: bool,
    /// [`PROTOCOL`].
    #[serde(deserialize_with = "reading::known::<Hello, _>")]
    pub protocol: u32,
    /// The sessions that can be subscribed to.
    pub sessions: Vec<Brief>,
}

/// A session in `hello`, and `begun`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brief {
    /// The session that it continues in the same process.
    pub continues: Option<SessionId>,
    /// The server's name.
    pub server_id: String,
    /// Id of the session.
    pub session_id: SessionId,
    /// Whether the session is still recorded.
    pub state: SessionState,
}

/// Whether a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The session is being recorded.
    Running,
    /// Its chain has its end.
    Ended,
}

/// `ended`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The session that continues it in the same process.
    pub next: Option<SessionId>,
    /// Id of the session.
    pub session_id: SessionId,
}

/// `session`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHead {
    /// `hash` of the last event before `cursor`; `null` before the first.
    pub chain_head: Option<String>,
    /// Cursor of the next event.
    pub cursor: u64,
    /// Cursor of the first event that follows, or is named in a gap.
    pub from: u64,
    /// Cursor of the oldest event that is still available here; older ones are in the files.
    pub oldest: u64,
    /// The session's card.
    pub session: RunCard,
    /// Its open streams, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<SessionStreams>,
    /// Counts up to `cursor`.
    pub totals: Totals,
}

/// `streams`: the state as a whole, sent at most twice a second. It is in no file and does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStreams {
    /// How often it has changed: of two, the one with more is the later.
    pub seq: u64,
    /// Id of the session.
    pub session_id: SessionId,
    /// The streams.
    #[serde(flatten)]
    pub streams: Streams,
}

/// `gap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Number of events that were missed.
    pub gap: u64,
    /// Cursor of the first that is missing.
    pub from: u64,
    /// Id of the session.
    pub session_id: SessionId,
    /// Cursor of the next that follows here.
    pub to: u64,
}

/// An event of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chained {
    /// When it happened, wall clock.
    pub at: WallTime,
    /// The call, with all that is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallRow>,
    /// The event's `event_seq`.
    pub cursor: u64,
    /// Which way the message went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// `session_end`: what the chain says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The event's `hash`.
    pub hash: String,
    /// The event's `event`: its kind.
    pub kind: EventKind,
    /// The message, if this event is the one that says that it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<Told>>,
    /// Method of the JSON-RPC message; absent if the event is not about a message with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Microseconds since the session began, monotonic.
    pub mono_us: u64,
    /// What is wrong, for `malformed`, `malformed_lines`, `anomaly` and `recorder_gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Id of the session.
    pub session_id: SessionId,
    /// Counts up to this event.
    pub totals: Totals,
}

/// `unread`: sent in place of an event that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// The event's number.
    pub cursor: u64,
    /// Id of the session.
    pub session_id: SessionId,
    /// Number of events that did not parse, this one included, among those that this stream was made from.
    pub unread: u64,
    /// Why: it is of a later version, or is damaged.
    pub why: String,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Whether everything was recorded and every call ended.
    pub complete: bool,
    /// The session that follows in the same process (rolling packs).
    pub next: Option<SessionId>,
    /// `end_reason`.
    pub reason: String,
}

/// `stderr`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stderr {
    /// When it was read.
    pub at: WallTime,
    /// Cursor of the next event of the chain: stderr is in no file and does not count.
    pub cursor: u64,
    /// Its bytes, what is not UTF-8 replaced; not yet safe for a terminal.
    pub line: String,
    /// Its number among what this server says: the same line has the same number, and lost lines have theirs too.
    pub seq: u64,
    /// Id of the session.
    pub session_id: SessionId,
}

/// `stderr_lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StderrLost {
    /// Lines lost since the server began.
    pub lost: u64,
    /// Number of the line that comes next.
    pub next: u64,
    /// Id of the session.
    pub session_id: SessionId,
}

/// `pack_progress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackProgress {
    /// The pack, once there is one.
    pub pack: Option<PathBuf>,
    /// What went wrong.
    pub problems: Vec<String>,
    /// Id of the session.
    pub session_id: SessionId,
    /// How far it is.
    pub state: PackState,
}

/// How far a pack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackState {
    /// It is being built.
    Sealing,
    /// It exists; whether it verified is not known. Never on the socket: a follower says so that looks for the pack
    /// afterwards.
    Built,
    /// It is there and verified.
    Verified,
    /// No pack was asked for.
    None,
    /// It could not be built, or does not verify.
    Failed,
}

/// `caught_up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaughtUp {
    /// Cursor of the next event.
    pub cursor: u64,
    /// The session; a proxy of protocol 1 means the one of the last `hello`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// `error`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorLine {
    /// What is wrong with the request.
    pub error: String,
    /// The session that was asked for and is not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// One line from a subscriber. Without `from` and `last`, only new events are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Whether what messages hold is wanted, of all sessions; only where `hello` offers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contents: bool,
    /// Cursor of the first event that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// How many events before the present are wanted; not together with `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Which sessions to hear about.
    pub subscribe: Subject,
}

/// What a subscriber wants to hear of; as text `all`, or a session's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Subject {
    /// All sessions of the process that it does not hear of yet, now and later.
    All,
    /// A session, and those that continue it.
    Session(SessionId),
}

impl TryFrom<String> for Subject {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        SessionId::parse(&text).map(Self::Session).map_err(|_| format!("{text:?} is neither all nor a session's id"))
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::All => "all".to_owned(),
            Subject::Session(id) => id.to_string(),
        }
    }
}

impl LiveLine {
    /// The chain event in it.
    #[must_use]
    pub fn chained(&self) -> Option<&Chained> {
        match self {
            Self::CallStarted(c)
            | Self::PolicyDecided(c)
            | Self::CallFinished(c)
            | Self::Chain(c)
            | Self::Notification(c)
            | Self::SessionEnd(c) => Some(c),
            _ => None,
        }
    }

    /// The session and the number of the event in it, whether the event parses or not.
    #[must_use]
    pub fn place(&self) -> Option<(SessionId, u64)> {
        match self {
            Self::Unread(u) => Some((u.session_id, u.cursor)),
            _ => self.chained().map(|c| (c.session_id, c.cursor)),
        }
    }

    /// The line with its line feed.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // The types here hold nothing that JSON cannot.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Reads a line, with or without its line feed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}
