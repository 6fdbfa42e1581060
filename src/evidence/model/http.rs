//! What evidence says of HTTP: the exchange of a message, and the event about an exchange (docs/formats.md, "Detail of
//! `http_exchange`").

use super::{
    RpcId, Word,
    cursor::JsonCursor,
    form::Canonical,
    line::line,
    words::{AnsweredBy, ExchangeEnd, ExchangeOrigin, ExchangePhase},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::collections::BTreeMap;

/// The exchange in which a message crossed: a member that `detail` has from version 2 of an event on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InExchange {
    /// There is no such member: the event is of version 1, of a session over stdio.
    #[default]
    Unsaid,
    /// Number of the exchange in its process; `None` for a message that crossed in no exchange, because that side of a
    /// bridge is stdio, or for an event that is about no message.
    Said(Option<u64>),
}

impl InExchange {
    /// Whether there is no such member.
    #[must_use]
    pub const fn is_unsaid(&self) -> bool {
        matches!(self, Self::Unsaid)
    }

    /// Number of the exchange, if there is one.
    #[must_use]
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::Unsaid => None,
            Self::Said(number) => number,
        }
    }
}

impl Serialize for InExchange {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.number().serialize(to)
    }
}

impl<'de> Deserialize<'de> for InExchange {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::deserialize(from).map(Self::Said)
    }
}

impl Canonical for InExchange {
    type View<'a> = Self;

    #[inline]
    fn read(c: &mut JsonCursor<'_>) -> Option<Self> {
        c.opt(JsonCursor::uint).map(Self::Said)
    }

    #[inline]
    fn member(c: &mut JsonCursor<'_>, before: &mut u8, name: &[u8]) -> Option<Self> {
        if c.key(*before, name).is_none() {
            return Some(Self::Unsaid);
        }
        *before = b',';
        Self::read(c)
    }
}

/// Values of headers by name. A header's name is ASCII, so that they are in the order of RFC 8785.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct HeaderValues(BTreeMap<String, String>);

impl HeaderValues {
    /// These values; names that are not ASCII are left out. Values of one name are joined as HTTP joins them.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut all = BTreeMap::<String, String>::new();
        for (name, value) in values.into_iter().filter(|(name, _)| name.is_ascii()) {
            all.entry(name).and_modify(|there| *there = format!("{there}, {value}")).or_insert(value);
        }
        Self(all)
    }

    /// The value of a header, its name in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<'de> Deserialize<'de> for HeaderValues {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let values = BTreeMap::<String, String>::deserialize(from)?;
        match values.keys().find(|name| !name.is_ascii()) {
            Some(name) => Err(D::Error::custom(format_args!("{name:?} is not the name of a header"))),
            None => Ok(Self(values)),
        }
    }
}

line! {
    /// What a request asks for.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub exact struct HttpTarget {
        /// The path, in clear for the endpoint and below `/.well-known/`; else `#` and 16 hex digits of its digest.
        path: String,
        /// Names of the query's members, in order.
        query: Vec<String>,
    }
}

line! {
    /// The request of an exchange.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub exact struct HttpRequest {
        /// Bytes of its body as they crossed, after chunk framing, before decoding; `null` while it is open.
        bytes: Option<u64>,
        /// Its `Content-Encoding`.
        encoding: Option<String>,
        /// Names of all headers, in order, as they were written.
        headers: Vec<String>,
        /// SHA-256 of its body, hex; `null` while it is open, and where part of it passed unrecorded.
        sha256: Option<String>,
        /// Values of the headers whose values are evidence, by lower-case name.
        values: HeaderValues,
    }
}

line! {
    /// The answer of an exchange.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub exact struct HttpResponse {
        /// As in the request.
        bytes: Option<u64>,
        /// Its `Content-Encoding`.
        encoding: Option<String>,
        /// Microseconds (session clock) when the first byte of its body was read.
        first_byte_us: Option<u64>,
        /// Microseconds (session clock) when its head was read.
        head_us: Option<u64>,
        /// Names of all headers, in order, as they were written.
        headers: Vec<String>,
        /// As in the request.
        sha256: Option<String>,
        /// Status code.
        status: u16,
        /// Names of its trailers.
        trailers: Vec<String>,
        /// As in the request.
        values: HeaderValues,
    }
}

line! {
    /// `http_exchange`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct HttpExchange {
        /// Who made the answer; `null` while there is none.
        answered_by: Option<Word<AnsweredBy>>,
        /// JSON-RPC ids of the messages that it carries although they crossed elsewhere (bridge).
        carries: Vec<RpcId>,
        /// `c` and 8 hex digits of the client's key.
        client: Option<String>,
        /// Digest of the credential, 16 hex digits.
        credential: Option<String>,
        /// What the client spoke: `h1`, `h2`; `null` for a request of the bridge.
        downstream: Option<String>,
        /// How it ended; `null` while it is open.
        ended: Option<Word<ExchangeEnd>>,
        /// Whether it went to the MCP endpoint.
        endpoint: bool,
        /// Its number in its process, from 1.
        exchange: u64,
        /// Method.
        method: String,
        /// What else people want to know of it, in words.
        notes: Vec<String>,
        /// Who asked.
        origin: ExchangeOrigin,
        /// Whether it is over.
        phase: ExchangePhase,
        /// Its request.
        request: HttpRequest,
        /// Its answer, once there is one.
        response: Option<HttpResponse>,
        /// Headers and data that were rewritten.
        rewrote: Vec<String>,
        /// Digest of the MCP session id, 16 hex digits.
        session: Option<String>,
        /// What it asks for.
        target: HttpTarget,
        /// What the upstream spoke: `h1`, `h2`.
        upstream: Option<String>,
        /// Whether the connection to the upstream had carried an exchange before.
        upstream_reused: Option<bool>,
    }
}

impl HttpExchange {
    /// An exchange of which nothing is known but its number.
    #[must_use]
    pub fn new(exchange: u64) -> Self {
        Self {
            answered_by: None,
            carries: Vec::new(),
            client: None,
            credential: None,
            downstream: None,
            ended: None,
            endpoint: true,
            exchange,
            method: String::new(),
            notes: Vec::new(),
            origin: ExchangeOrigin::Client,
            phase: ExchangePhase::Open,
            request: HttpRequest::default(),
            response: None,
            rewrote: Vec::new(),
            session: None,
            target: HttpTarget::default(),
            upstream: None,
            upstream_reused: None,
        }
    }

    /// Status code of the answer, once there is one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.response.as_ref().map(|response| response.status)
    }

    /// Whether it was answered with a status that is not one of success.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.status().is_some_and(|status| !(200..300).contains(&status))
    }
}
