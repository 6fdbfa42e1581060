//! What a source says of an exchange of HTTP as a whole: one request and its answer.

use crate::model::http::HttpExchange;

/// An exchange, as far as it has come.
///
/// A source tells of each exchange that it has begun (before the first of its messages), and that it is over. When it
/// says that one is over, nothing more may come of it: no message, and no delivery.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// What its event says, as far as it is known. The recorder sets `phase`, and of the answer `head_us` and
    /// `first_byte_us`.
    pub detail: HttpExchange,
    /// How far it has come.
    pub stage: Stage,
    /// When that was, monotonic ns.
    pub at_ns: u64,
    /// When the head of the answer was read, monotonic ns.
    pub head_ns: Option<u64>,
    /// When the first byte of the answer's body was read, monotonic ns.
    pub first_byte_ns: Option<u64>,
    /// What is asked in it may be answered in another exchange: it is of a session with a session id, or of the old
    /// transport.
    pub resumable: bool,
}

/// How far an exchange has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has begun. An event says so only if the session ends before the exchange does.
    Begun,
    /// The same, but an event says so now: what is known of it will not be kept until its end.
    Open,
    /// It is over.
    Over,
}
