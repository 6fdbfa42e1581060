//! The entries of the log.

use crate::model::Direction;
use serde::{Deserialize, Serialize};

/// One of the two bodies of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Number of the exchange in its process, from 1.
    pub exchange: u64,
    /// Client to server: the request's body. Server to client: the answer's.
    pub direction: Direction,
}

/// The version of HTTP that one side spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpVersion {
    /// HTTP/1.0.
    H10,
    /// HTTP/1.1.
    H11,
    /// HTTP/2.
    H2,
}

/// What a request asks for, without the values of its query.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Target {
    /// The path; in clear for the endpoint and `/.well-known/`, else its digest: 16 hex digits after `#`.
    pub path: String,
    /// The names of the query's members, in order.
    pub query: Vec<String>,
    /// Digest of path and query together, 16 hex digits: what the `endpoint` event of the old transport named.
    pub digest: String,
}

/// What of a request's head may be evidence. Digests are the first 16 hex digits of an HMAC under a key of the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestHead {
    /// Number of the route: where requests go.
    pub route: u32,
    /// Number of the client's connection in its process.
    pub connection: u64,
    /// Method.
    pub method: String,
    /// What the client spoke.
    pub version: HttpVersion,
    /// Whether it goes to the MCP endpoint: then its bodies are in the log, otherwise only their hashes.
    pub endpoint: bool,
    /// What it asks for.
    pub target: Target,
    /// Names of all headers, in order, as they were written.
    pub names: Vec<String>,
    /// Headers whose values are evidence: lower-case name, value.
    pub values: Vec<(String, String)>,
    /// Digest of `Mcp-Session-Id`.
    pub session: Option<String>,
    /// Digest of `Authorization` and `X-Api-Key` together.
    pub credential: Option<String>,
    /// Who the client is as far as its connection tells: `loopback`, an IP address, or `uid:` and a number.
    pub peer: String,
}

/// Who made an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnsweredBy {
    /// The upstream server.
    Upstream,
    /// The recorder itself: a refusal, or an error about the upstream.
    Assay,
}

/// What of an answer's head may be evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseHead {
    /// Who made it.
    pub answered_by: AnsweredBy,
    /// Status code.
    pub status: u16,
    /// What the upstream spoke; for an answer of ours, what the client speaks.
    pub version: HttpVersion,
    /// Names of all headers, in order, as they were written.
    pub names: Vec<String>,
    /// Headers whose values are evidence: lower-case name, value.
    pub values: Vec<(String, String)>,
    /// Digest of `Mcp-Session-Id`.
    pub session: Option<String>,
    /// Whether the connection to the upstream had carried an exchange before.
    pub reused: bool,
}

/// Why a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// It was whole.
    Complete,
    /// The client hung up.
    ClientGone,
    /// The upstream hung up.
    UpstreamLost,
    /// It was refused.
    Refused,
    /// The process stopped.
    Shutdown,
    /// Nothing came for too long.
    Timeout,
}

/// The end of a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyEnd {
    /// Bytes of it that were read, after chunk framing, before decoding.
    pub bytes: u64,
    /// Why it ended.
    pub cause: Cause,
    /// Names of its trailers.
    pub trailers: Vec<String>,
    /// SHA-256 of a body that is not in the log.
    pub sha256: Option<[u8; 32]>,
}

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoteCode {
    /// The upstream could not be reached.
    ConnectFailed,
    /// A `Location` header was rewritten to the client's origin.
    RewroteLocation,
    /// The `endpoint` event of the old transport was rewritten.
    RewroteEndpoint,
    /// The request was sent once more over a new connection: nothing of it had been written.
    Retried,
    /// A redirect was followed (bridge).
    Redirected,
    /// A request was refused before it could be read: its framing contradicts itself.
    BadFraming,
    /// The client's Host or Origin is not allowed, or its token is wrong.
    Forbidden,
    /// Entries had no room in the log; the text is how many. Of exchange 0: entries of any exchange.
    Unrecorded,
    /// The text of the id of a message of the client that the exchange carries (bridge).
    Carries,
    /// Of exchange 0: the transport that the server speaks, in the word of evidence (bridge).
    Speaks,
    /// Of exchange 0: the server has lost the session; what follows belongs to the next (bridge).
    SessionLost,
    /// A guard replaced an answer of which it had read the head already.
    Replaced,
    /// A guard holds this request, with whose message a session begins: it is on disk before anything is decided.
    Begins,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry<'a> {
    /// An exchange begins; the direction is client to server.
    Request(RequestHead),
    /// Its answer begins; the direction is server to client.
    Response(ResponseHead),
    /// A piece of a body.
    Data {
        /// Bytes of the body before it.
        offset: u64,
        /// The piece, as it crossed.
        bytes: &'a [u8],
        /// It was made by the recorder, not by the peer.
        own: bool,
    },
    /// A body ended.
    End(BodyEnd),
    /// Everything of the body before this offset is in the kernel, or with the HTTP/2 stack.
    Wrote {
        /// The offset.
        upto: u64,
    },
    /// A guard's ruling on the message that ends at this offset of the body: a `RulingRecord` in postcard's format.
    Ruling {
        /// Offset after the message.
        end: u64,
        /// The ruling.
        record: &'a [u8],
    },
    /// Bytes that passed unrecorded. Of exchange 0: bytes of any exchange, the offset means nothing.
    Gap {
        /// Bytes of the body before it.
        offset: u64,
        /// How many there are.
        bytes: u64,
    },
    /// Something that people want to know.
    Note {
        /// What it is about.
        code: NoteCode,
        /// In words, at most 1 KiB.
        text: &'a str,
    },
}
