//! The hand-written reader of audit events, from before the generated one: tests compare the two.

use crate::model::{
    AnomalyKind, Direction, EventKind, InvocationId, ReceiptId, SessionId, Vocabulary, WallTime,
    cursor::{JsonCursor, hex_of},
    event::detail,
    http::InExchange,
};
use sha2::{Digest as _, Sha256};

/// An event of a line. Texts are as they appear in the line, without quotes and with their escapes: canonical, so equal
/// texts are equal bytes.
#[derive(Debug)]
pub struct Event<'a> {
    /// When it happened.
    pub at: WallTime,
    /// What this kind adds.
    pub detail: Detail<'a>,
    /// Direction of the message.
    pub direction: Option<Direction>,
    /// Kind of the event.
    pub kind: EventKind,
    /// Position in its file, from 0.
    pub seq: u64,
    /// Its hash as stated, 64 hex digits.
    pub hash: &'a [u8],
    /// Where `"hash":…,` is in the line.
    pub hash_at: usize,
    /// Id of the request that it belongs to.
    pub invocation: Option<InvocationId>,
    /// Method of the JSON-RPC message.
    pub method: Option<&'a [u8]>,
    /// Microseconds since the session began, on the monotonic clock.
    pub mono_us: u64,
    /// Hash of the event before as stated.
    pub prev_hash: &'a [u8],
    /// JSON-RPC id, verbatim.
    pub rpc_id: &'a [u8],
    /// Id of the session.
    pub session: SessionId,
    /// How client and server talk; `stdio`.
    pub transport: &'a [u8],
    /// Length of the message.
    pub wire_bytes: Option<u64>,
    /// SHA-256 of the message, hex.
    pub wire_sha256: Option<&'a [u8]>,
    /// What details have in common.
    pub more: More<'a>,
    /// The exchange of the message; `None` for kinds that are about none.
    pub exchange: Option<InExchange>,
}

/// Members that several details have.
#[derive(Debug, Clone, Copy, Default)]
pub struct More<'a> {
    /// Stream offset of the message.
    pub offset: Option<u64>,
    /// A reason or note, verbatim.
    pub reason: Option<&'a [u8]>,
    /// The exchange of the message.
    pub exchange: InExchange,
    /// Whether there is the code of a JSON-RPC error.
    pub has_error_code: bool,
}

/// The receipt that an event closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Binding<'a> {
    /// Id of the receipt.
    pub id: Option<ReceiptId>,
    /// SHA-256 of its line, hex.
    pub sha256: Option<&'a [u8]>,
}

/// `detail` by kind.
#[derive(Debug)]
pub enum Detail<'a> {
    /// `chain_start`.
    ChainStart(Box<detail::ChainStart>),
    /// `request_received`.
    RequestReceived {
        /// An array of strings, verbatim.
        anomalies: &'a [u8],
        /// Hash of the value, `sha256:` or `sha256-raw:`.
        arguments_hash: Option<&'a [u8]>,
        /// A value, verbatim.
        meta: &'a [u8],
        /// Receipt of the leg before.
        parent: Option<ReceiptId>,
        /// Name of the tool.
        tool_name: Option<&'a [u8]>,
    },
    /// `request_forwarded`, `response_sent`.
    Forwarded(Binding<'a>),
    /// `response_received`.
    ResponseReceived {
        /// An array of strings, verbatim.
        anomalies: &'a [u8],
        /// Microseconds since the session began, on the monotonic clock.
        first_byte_us: u64,
        /// `isError`.
        is_error: Option<bool>,
        /// Hash of the value, `sha256:` or `sha256-raw:`.
        result_hash: Option<&'a [u8]>,
        /// `resultType`.
        result_type: Option<&'a [u8]>,
    },
    /// `malformed`, `notification`.
    Seen,
    /// `anomaly`.
    Anomaly {
        /// Which; `None` for one that this version does not know.
        kind: Option<AnomalyKind>,
        /// Receipt that it closes.
        binding: Binding<'a>,
    },
    /// `recorder_gap`.
    Gap {
        /// Number of wire bytes that crossed unrecorded.
        bytes: u64,
        /// Number of messages whose evidence was lost.
        messages: u64,
        /// Why, as a machine word.
        reason: &'a [u8],
        /// Receipt that says the same.
        binding: Binding<'a>,
    },
    /// `chain_end`.
    ChainEnd(Box<detail::ChainEnd>),
    /// `policy_decision`.
    Decision(Box<detail::PolicyDecision>),
    /// `request_blocked`.
    Blocked(Binding<'a>),
    /// `policy_reloaded`.
    Reload(Box<detail::PolicyReload>),
    /// `http_exchange`.
    Exchange(Box<detail::HttpExchange>),
}

impl<'a> Detail<'a> {
    /// The receipt that the event closes.
    #[must_use]
    pub fn binding(&self) -> Binding<'a> {
        match self {
            Self::Forwarded(b) | Self::Anomaly { binding: b, .. } | Self::Gap { binding: b, .. } | Self::Blocked(b) => {
                *b
            }
            _ => Binding::default(),
        }
    }
}

/// Reads a line; `None` when it is not the canonical line of an event.
#[must_use]
pub fn read(line: &[u8]) -> Option<Event<'_>> {
    let mut c = JsonCursor::new(line);
    c.lit(b"{\"at\":")?;
    let at = c.time()?;
    c.lit(b",\"detail\":")?;
    let mut more = More::default();
    let (shape, raw) = shape(&mut c, &mut more)?;
    c.lit(b",\"direction\":")?;
    let direction = c.opt(direction)?;
    c.lit(b",\"event\":")?;
    let kind = kind(c.string()?)?;
    c.lit(b",\"event_seq\":")?;
    let seq = c.uint()?;
    c.lit(b",")?;
    let hash_at = c.at();
    c.lit(b"\"hash\":")?;
    let hash = c.hex64()?;
    c.lit(b",\"invocation_id\":")?;
    let invocation = c.opt(|c| c.id(b"inv_").map(InvocationId::from_bits))?;
    c.lit(b",\"method\":")?;
    let method = c.opt(JsonCursor::string)?;
    c.lit(b",\"mono_us\":")?;
    let mono_us = c.uint()?;
    c.lit(b",\"prev_hash\":")?;
    let prev_hash = c.hex64()?;
    c.lit(b",\"rpc_id\":")?;
    let rpc_id = c.rpc_id()?;
    c.lit(b",\"session_id\":")?;
    let session = SessionId::from_bits(c.id(b"mcp_")?);
    c.lit(b",\"transport\":")?;
    let transport = c.string()?;
    c.lit(b",\"v\":")?;
    let v = c.uint()?;
    c.lit(b",\"wire_bytes\":")?;
    let wire_bytes = c.opt(JsonCursor::uint)?;
    c.lit(b",\"wire_sha256\":")?;
    let wire_sha256 = c.opt(JsonCursor::hex64)?;
    c.lit(b"}")?;
    c.end()?;
    let detail = settle(kind, shape, raw)?;
    if let Detail::Decision(d) = &detail {
        more.offset = Some(d.offset);
    }
    let exchange = match &detail {
        Detail::Decision(d) => Some(d.exchange),
        Detail::RequestReceived { .. }
        | Detail::Forwarded(_)
        | Detail::ResponseReceived { .. }
        | Detail::Seen
        | Detail::Anomaly { .. }
        | Detail::Blocked(_) => Some(more.exchange),
        _ => None,
    };
    let versions = match (&detail, exchange) {
        (Detail::Exchange(_), _) | (_, Some(InExchange::Said(_))) => 2..=2,
        (_, Some(InExchange::Unsaid) | None) => 1..=3,
    };
    if !versions.contains(&v) || v == 2 && exchange == Some(InExchange::Unsaid) {
        return None;
    }
    Some(Event {
        at,
        detail,
        direction,
        kind,
        seq,
        hash,
        hash_at,
        invocation,
        method,
        mono_us,
        prev_hash,
        rpc_id,
        session,
        transport,
        wire_bytes,
        wire_sha256,
        more,
        exchange,
    })
}

/// The hash that the line must carry: of everything but `"hash":"…",`.
#[must_use]
pub fn hash_without(line: &[u8], hash_at: usize) -> [u8; 64] {
    let mut hasher = Sha256::new();
    hasher.update(&line[..hash_at]);
    hasher.update(&line[hash_at + 74..]);
    hex_of(hasher.finalize().into())
}

/// What `detail` looks like, before the kind of event is known.
enum Shape<'a> {
    Is(Detail<'a>),
    Object,
}

fn shape<'a>(c: &mut JsonCursor<'a>, more: &mut More<'a>) -> Option<(Shape<'a>, &'a [u8])> {
    let from = c.at();
    let mut ahead = c.clone();
    if let Some(detail) = known(&mut ahead, more) {
        *c = ahead;
        return Some((Shape::Is(detail), c.since(from)));
    }
    *more = More::default();
    c.sees(b"{").then_some(())?;
    c.value().map(|raw| (Shape::Object, raw))
}

fn known<'a>(c: &mut JsonCursor<'a>, more: &mut More<'a>) -> Option<Detail<'a>> {
    if c.sees(b"{\"anomalies\":") {
        return message(c, more);
    }
    c.lit(b"{")?;
    exchange(c, more, b"\"exchange\":", b",")?;
    if c.sees(b"\"offset\":") { with_offset(c, more) } else { rare(c, more) }
}

/// Parses the member `exchange`, if it is here, between `before` and `after`.
fn exchange<'a>(c: &mut JsonCursor<'a>, more: &mut More<'a>, before: &[u8], after: &[u8]) -> Option<()> {
    if c.lit(before).is_none() {
        return Some(());
    }
    more.exchange = InExchange::Said(c.opt(JsonCursor::uint)?);
    c.lit(after)
}

fn with_offset<'a>(c: &mut JsonCursor<'a>, more: &mut More<'a>) -> Option<Detail<'a>> {
    c.lit(b"\"offset\":")?;
    more.offset = Some(c.uint()?);
    if c.lit(b",\"reason\":").is_some() {
        more.reason = c.opt(JsonCursor::string)?;
        if c.lit(b"}").is_some() {
            return Some(Detail::Seen);
        }
        return binding(c).map(Detail::Blocked);
    }
    binding(c).map(Detail::Forwarded)
}

/// Parses `,"receipt_id":…,"receipt_sha256":…}`.
fn binding<'a>(c: &mut JsonCursor<'a>) -> Option<Binding<'a>> {
    c.lit(b",\"receipt_id\":")?;
    let id = c.opt(receipt)?;
    c.lit(b",\"receipt_sha256\":")?;
    let sha256 = c.opt(JsonCursor::hex64)?;
    c.lit(b"}")?;
    Some(Binding { id, sha256 })
}

fn receipt(c: &mut JsonCursor<'_>) -> Option<ReceiptId> {
    c.id(b"mtc_").map(ReceiptId::from_bits)
}

fn message<'a>(c: &mut JsonCursor<'a>, more: &mut More<'a>) -> Option<Detail<'a>> {
    c.lit(b"{\"anomalies\":")?;
    let anomalies = c.strings()?;
    if c.lit(b",\"arguments_hash\":").is_some() {
        let arguments_hash = c.opt(JsonCursor::digest)?;
        c.lit(b",\"era\":")?;
        c.string()?;
        exchange(c, more, b",\"exchange\":", b"")?;
        c.lit(b",\"meta\":")?;
        let meta = c.value()?;
        c.lit(b",\"offset\":")?;
        more.offset = Some(c.uint()?);
        c.lit(b",\"parent_receipt_id\":")?;
        let parent = c.opt(receipt)?;
        c.lit(b",\"tool_name\":")?;
        let tool_name = c.opt(JsonCursor::string)?;
        c.lit(b"}")?;
        return Some(Detail::RequestReceived { anomalies, arguments_hash, meta, parent, tool_name });
    }
    c.lit(b",\"error_code\":")?;
    more.has_error_code = c.opt(JsonCursor::int)?.is_some();
    exchange(c, more, b",\"exchange\":", b"")?;
    c.lit(b",\"first_byte_us\":")?;
    let first_byte_us = c.uint()?;
    c.lit(b",\"is_error\":")?;
    let is_error = c.opt(JsonCursor::bool)?;
    c.lit(b",\"offset\":")?;
    more.offset = Some(c.uint()?);
    c.lit(b",\"result_hash\":")?;
    let result_hash = c.opt(JsonCursor::digest)?;
    c.lit(b",\"result_type\":")?;
    let result_type = c.opt(JsonCursor::string)?;
    c.lit(b"}")?;
    Some(Detail::ResponseReceived { anomalies, first_byte_us, is_error, result_hash, result_type })
}

fn rare<'a>(c: &mut JsonCursor<'a>, more: &mut More<'a>) -> Option<Detail<'a>> {
    if c.lit(b"\"kind\":").is_some() {
        let kind = AnomalyKind::of(c.string()?);
        c.lit(b",\"note\":")?;
        more.reason = c.opt(JsonCursor::string)?;
        c.lit(b",\"offset\":")?;
        more.offset = c.opt(JsonCursor::uint)?;
        return Some(Detail::Anomaly { kind, binding: binding(c)? });
    }
    if !more.exchange.is_unsaid() {
        return None;
    }
    c.lit(b"\"bytes\":")?;
    let bytes = c.uint()?;
    c.lit(b",\"messages\":")?;
    let messages = c.uint()?;
    c.lit(b",\"reason\":")?;
    let reason = c.string()?;
    Some(Detail::Gap { bytes, messages, reason, binding: binding(c)? })
}

/// The detail, if its shape is that of the kind.
fn settle<'a>(kind: EventKind, shape: Shape<'a>, raw: &'a [u8]) -> Option<Detail<'a>> {
    use EventKind as K;
    match (kind, shape) {
        (K::ChainStart, _) => typed(raw).map(Detail::ChainStart),
        (K::ChainEnd, _) => typed(raw).map(Detail::ChainEnd),
        (K::PolicyDecision, _) => typed(raw).map(Detail::Decision),
        (K::PolicyReloaded, _) => typed(raw).map(Detail::Reload),
        (K::HttpExchange, _) => typed(raw).map(Detail::Exchange),
        (K::RequestReceived, Shape::Is(d @ Detail::RequestReceived { .. }))
        | (K::RequestForwarded | K::ResponseSent, Shape::Is(d @ Detail::Forwarded(_)))
        | (K::ResponseReceived, Shape::Is(d @ Detail::ResponseReceived { .. }))
        | (K::RequestBlocked, Shape::Is(d @ Detail::Blocked(_)))
        | (K::Malformed | K::Notification, Shape::Is(d @ Detail::Seen))
        | (K::Anomaly, Shape::Is(d @ Detail::Anomaly { .. }))
        | (K::RecorderGap, Shape::Is(d @ Detail::Gap { .. })) => Some(d),
        _ => None,
    }
}

/// Texts in a row that a value may hold: no command line has more, and each costs far more in memory than in a line.
const MAX_TEXTS: usize = 1 << 20;

/// A value that serializes to exactly these bytes: serde alone would also read an array where an object must be.
pub fn typed<'a, T: serde::Deserialize<'a> + serde::Serialize>(raw: &'a [u8]) -> Option<Box<T>> {
    // Quote, comma, quote appears between two texts and, since a quote within a text is escaped, nowhere else.
    if raw.len() > MAX_TEXTS && memchr::memmem::find_iter(raw, b"\",\"").nth(MAX_TEXTS).is_some() {
        return None;
    }
    let value: T = serde_json::from_slice(raw).ok()?;
    (crate::model::to_line(&value).ok()? == raw).then(|| Box::new(value))
}

fn direction(c: &mut JsonCursor<'_>) -> Option<Direction> {
    match c.string()? {
        b"client_to_server" => Some(Direction::ClientToServer),
        b"server_to_client" => Some(Direction::ServerToClient),
        _ => None,
    }
}

fn kind(text: &[u8]) -> Option<EventKind> {
    use EventKind as K;
    [
        K::RequestReceived,
        K::RequestForwarded,
        K::ResponseReceived,
        K::ResponseSent,
        K::PolicyDecision,
        K::RequestBlocked,
        K::PolicyReloaded,
        K::Notification,
        K::Anomaly,
        K::Malformed,
        K::RecorderGap,
        K::HttpExchange,
        K::ChainStart,
        K::ChainEnd,
    ]
    .into_iter()
    .find(|k| k.as_str().as_bytes() == text)
}
