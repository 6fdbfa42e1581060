//! Audit events: the hash chain of one session (docs/formats.md, "Audit events").

use super::{
    AnomalyKind, Direction, InvocationId, ReceiptId, RpcId, SessionId, Transport, Vocabulary, WallTime,
    cursor::{JsonCursor, hex_of},
    http::InExchange,
    line::{Canonical, Sha256Hex, line},
    reading::{self, versioned},
    words::vocabulary,
};
use memchr::memmem::Finder;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

/// Format version of an audit event.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | sessions over HTTP: `exchange` in the detail of each event of a message, and `http_exchange` |
/// | 3 | recordings of a server by itself: `tool_requested`, `tool_denied`, `tool_executed`; otherwise as version 1 |
/// | 4 | sessions that are compared with decisions about the server's surface: `surface_decision`, `surface_observed`, `surface_drift`; otherwise as version 1 over stdio, and as version 2 over HTTP |
/// | 5 | `malformed_lines`, which alone has it: other events of the same session have the version that they had |
pub const EVENT_VERSION: u32 = 5;

/// The version of events of sessions over HTTP.
pub const HTTP_EVENTS: u32 = 2;
/// The version of events of recordings that a server makes of itself.
pub const SERVER_EVENTS: u32 = 3;

/// The version of events of sessions that are compared with decisions about the server's surface.
pub const SURFACE_EVENTS: u32 = 4;

/// The version of an event that tells of several lines that are no messages. Whatever the version of the others is.
pub const JUNK_EVENTS: u32 = 5;

/// The version of each event of a session with this transport: over stdio there is nothing that version 1 could not say.
/// `judged`: the session is compared with decisions about the server's surface.
#[must_use]
pub const fn version_of(transport: Transport, judged: bool) -> u32 {
    match transport {
        _ if judged => SURFACE_EVENTS,
        Transport::Stdio => 1,
        Transport::StreamableHttp | Transport::Sse => HTTP_EVENTS,
    }
}

macro_rules! kinds {
    ($($(#[$means:meta])* $kind:ident = $word:literal with $detail:ident,)+) => {
        vocabulary! {
            /// What an audit event says.
            #[derive(Hash)]
            EventKind {
                $($(#[$means])* $kind = $word,)+
            }
        }

        /// What a kind of event adds to the members that every event has: `detail`.
        // It is made for one event, written, and gone.
        #[derive(Debug, Clone)]
        #[allow(missing_docs, clippy::large_enum_variant)]
        pub enum Detail {
            $($kind(detail::$detail),)+
        }

        impl Detail {
            /// The kind of event.
            #[must_use]
            pub const fn kind(&self) -> EventKind {
                match self {
                    $(Self::$kind(_) => EventKind::$kind,)+
                }
            }

            /// Reads the `detail` of a kind of event.
            ///
            /// # Errors
            /// It is not what this kind has.
            pub fn of_json(kind: EventKind, json: &str) -> Result<Self, serde_json::Error> {
                match kind {
                    $(EventKind::$kind => serde_json::from_str(json).map(Self::$kind),)+
                }
            }
        }

        impl Serialize for Detail {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$kind(detail) => detail.serialize(serializer),)+
                }
            }
        }

        /// The canonical form of a [`Detail`], verbatim.
        #[derive(Debug)]
        #[allow(missing_docs)]
        pub enum DetailView<'a> {
            $($kind(<detail::$detail as Canonical>::View<'a>),)+
        }

        impl<'a> DetailView<'a> {
            /// The kind of event.
            #[must_use]
            pub const fn kind(&self) -> EventKind {
                match self {
                    $(Self::$kind(_) => EventKind::$kind,)+
                }
            }

            fn of_kind(kind: EventKind, c: &mut JsonCursor<'a>) -> Option<Self> {
                match kind {
                    $(EventKind::$kind => detail::$detail::read(c).map(Self::$kind),)+
                }
            }
        }
    };
}

kinds! {
    /// The first event of a segment; its `prev_hash` is the hash of the previous ledger line it.
    ChainStart = "chain_start" with ChainStart,
    /// A recorded request was read from its sender.
    RequestReceived = "request_received" with RequestReceived,
    /// That request was written to its receiver.
    RequestForwarded = "request_forwarded" with Forwarded,
    /// The response to a recorded request was read.
    ResponseReceived = "response_received" with ResponseReceived,
    /// That response was written to its receiver.
    ResponseSent = "response_sent" with Forwarded,
    /// A policy was evaluated for a request.
    PolicyDecision = "policy_decision" with PolicyDecision,
    /// Guard mode did not forward a message.
    RequestBlocked = "request_blocked" with Blocked,
    /// The policy file changed, or was to be read again.
    PolicyReloaded = "policy_reloaded" with PolicyReload,
    /// A line that is not a JSON-RPC message.
    Malformed = "malformed" with Seen,
    /// Lines that follow each other and are no JSON-RPC messages.
    MalformedLines = "malformed_lines" with Lines,
    /// A notification that matters to the evidence: cancelled, list_changed.
    Notification = "notification" with Seen,
    /// Something out of the ordinary: a late response, an id in use, a call without a response.
    Anomaly = "anomaly" with Anomaly,
    /// Evidence that could not be recorded, with counts.
    RecorderGap = "recorder_gap" with Gap,
    /// An exchange of HTTP: a request and its answer.
    HttpExchange = "http_exchange" with HttpExchange,
    /// A call was asked of a server that records itself.
    ToolRequested = "tool_requested" with ToolStep,
    /// Its policy refused the call.
    ToolDenied = "tool_denied" with ToolStep,
    /// Its handler is done.
    ToolExecuted = "tool_executed" with ToolStep,
    /// These decisions about the server's surface are in force from here on.
    SurfaceDecision = "surface_decision" with SurfaceDecision,
    /// The server announced part of its surface.
    SurfaceObserved = "surface_observed" with SurfaceObserved,
    /// What it announced differs from what is approved.
    SurfaceDrift = "surface_drift" with SurfaceDrift,
    /// The last event of a segment.
    ChainEnd = "chain_end" with ChainEnd,
}

impl Canonical for Detail {
    type View<'a> = DetailView<'a>;

    #[inline]
    fn read<'a>(c: &mut JsonCursor<'a>) -> Option<DetailView<'a>> {
        let mut ahead = c.clone();
        let nearest = KIND.find(c.rest());
        if let Some(detail) = kind_behind(c.rest(), nearest).and_then(|kind| DetailView::of_kind(kind, &mut ahead))
            && ahead.sees(b",\"direction\":")
        {
            *c = ahead;
            return Some(detail);
        }
        // What a client sends about itself may have a member of this name. No member after the event's own can have it:
        // a quote within a text is escaped.
        DetailView::of_kind(kind_behind(c.rest(), memchr::memmem::rfind(c.rest(), KIND.needle()))?, c)
    }
}

/// The text before the kind of an event, which comes after its `detail`.
static KIND: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b",\"event\":\""));

fn kind_behind(rest: &[u8], at: Option<usize>) -> Option<EventKind> {
    let word = &rest[at? + KIND.needle().len()..];
    EventKind::of(&word[..memchr::memchr(b'"', word)?])
}

/// A receipt that an event closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Binding<'a> {
    /// Id of the receipt.
    pub receipt_id: Option<ReceiptId>,
    /// SHA-256 of its line, 64 hex digits.
    pub receipt_sha256: Option<&'a [u8]>,
}

macro_rules! in_common {
    ($life:lifetime, $sha256:expr) => {
        /// Where the message was in its stream.
        #[must_use]
        pub const fn offset(&self) -> Option<u64> {
            match self {
                Self::RequestReceived(d) => Some(d.offset),
                Self::RequestForwarded(d) | Self::ResponseSent(d) => Some(d.offset),
                Self::ResponseReceived(d) => Some(d.offset),
                Self::PolicyDecision(d) => Some(d.offset),
                Self::RequestBlocked(d) => Some(d.offset),
                Self::Malformed(d) | Self::Notification(d) => Some(d.offset),
                Self::MalformedLines(d) => Some(d.offset),
                Self::Anomaly(d) => d.offset,
                Self::ChainStart(_)
                | Self::PolicyReloaded(_)
                | Self::RecorderGap(_)
                | Self::HttpExchange(_)
                | Self::ToolRequested(_)
                | Self::ToolDenied(_)
                | Self::ToolExecuted(_)
                | Self::SurfaceDecision(_)
                | Self::SurfaceObserved(_)
                | Self::SurfaceDrift(_)
                | Self::ChainEnd(_) => None,
            }
        }

        /// The exchange of the message; `None` for kinds that are about none.
        #[must_use]
        pub const fn exchange(&self) -> Option<InExchange> {
            match self {
                Self::RequestReceived(d) => Some(d.exchange),
                Self::RequestForwarded(d) | Self::ResponseSent(d) => Some(d.exchange),
                Self::ResponseReceived(d) => Some(d.exchange),
                Self::PolicyDecision(d) => Some(d.exchange),
                Self::RequestBlocked(d) => Some(d.exchange),
                Self::Malformed(d) | Self::Notification(d) => Some(d.exchange),
                Self::Anomaly(d) => Some(d.exchange),
                Self::MalformedLines(_)
                | Self::ChainStart(_)
                | Self::PolicyReloaded(_)
                | Self::RecorderGap(_)
                | Self::HttpExchange(_)
                | Self::ToolRequested(_)
                | Self::ToolDenied(_)
                | Self::ToolExecuted(_)
                | Self::SurfaceDecision(_)
                | Self::SurfaceObserved(_)
                | Self::SurfaceDrift(_)
                | Self::ChainEnd(_) => None,
            }
        }

        /// The exchange in which a message was read, if that is what the event is about.
        #[must_use]
        pub fn read_in(&self) -> Option<u64> {
            match self {
                Self::RequestForwarded(_) | Self::ResponseSent(_) => None,
                _ => self.exchange().and_then(InExchange::number),
            }
        }

        /// Whether an event of this version has such a detail; `over_http`: it is of a session over HTTP.
        const fn is_of(&self, v: u32, over_http: bool) -> bool {
            match (self, self.exchange()) {
                (Self::MalformedLines(_), _) => v == JUNK_EVENTS && !over_http,
                _ if v == JUNK_EVENTS => false,
                (Self::SurfaceDecision(_) | Self::SurfaceObserved(_) | Self::SurfaceDrift(_), _) => v == SURFACE_EVENTS,
                (Self::HttpExchange(_), _) | (_, Some(InExchange::Said(_))) if v == SURFACE_EVENTS => over_http,
                (_, Some(InExchange::Unsaid)) if v == SURFACE_EVENTS => !over_http,
                (Self::ToolRequested(_) | Self::ToolDenied(_) | Self::ToolExecuted(_), _) => v == SERVER_EVENTS,
                (Self::HttpExchange(_), _) | (_, Some(InExchange::Said(_))) => v == HTTP_EVENTS,
                (_, Some(InExchange::Unsaid)) => v != HTTP_EVENTS,
                (_, None) => true,
            }
        }

        /// The receipt that the event closes.
        #[must_use]
        pub fn binding(&self) -> Binding<$life> {
            let (receipt_id, sha256) = match self {
                Self::RequestForwarded(d) | Self::ResponseSent(d) => (d.receipt_id, &d.receipt_sha256),
                Self::RequestBlocked(d) => (d.receipt_id, &d.receipt_sha256),
                Self::Anomaly(d) => (d.receipt_id, &d.receipt_sha256),
                Self::RecorderGap(d) => (d.receipt_id, &d.receipt_sha256),
                Self::ToolRequested(d) | Self::ToolDenied(d) | Self::ToolExecuted(d) => {
                    (d.receipt_id, &d.receipt_sha256)
                }
                Self::ChainStart(_)
                | Self::RequestReceived(_)
                | Self::ResponseReceived(_)
                | Self::PolicyDecision(_)
                | Self::PolicyReloaded(_)
                | Self::Malformed(_)
                | Self::MalformedLines(_)
                | Self::Notification(_)
                | Self::HttpExchange(_)
                | Self::SurfaceDecision(_)
                | Self::SurfaceObserved(_)
                | Self::SurfaceDrift(_)
                | Self::ChainEnd(_) => return Binding::default(),
            };
            Binding { receipt_id, receipt_sha256: $sha256(sha256) }
        }
    };
}

impl Detail {
    in_common!('_, |sha256| Option::as_deref(sha256).map(str::as_bytes));
}

impl<'a> DetailView<'a> {
    in_common!('a, Option::clone);
}

line! {
    /// One event of the chain. Its line on disk is its RFC 8785 form.
    #[derive(Debug, Clone)]
    pub struct AuditEvent<D = Detail>(detail), EventView<'a>, EventMembers<'a> {
        /// Wall clock when it happened.
        at: WallTime,
        /// What this kind of event adds; an object. See [`detail`].
        detail: D as Detail,
        /// Which way the message went; `null` for events of the recorder itself.
        direction: Option<Direction>,
        /// Kind of the event, which determines the form of `detail`.
        event: EventKind,
        /// Position in the segment, from 0 without gaps.
        event_seq: u64,
        /// SHA-256 over the RFC 8785 form of this event without `hash`, lower-case hex.
        hash: String as Sha256Hex,
        /// The request that this belongs to.
        invocation_id: Option<InvocationId>,
        /// Method of the JSON-RPC message; `null` if the event is not about a message with one.
        method: Option<String>,
        /// Microseconds on the monotonic clock since the session began.
        mono_us: u64,
        /// `hash` of the event before; for the first, of the previous ledger line.
        prev_hash: String as Sha256Hex,
        /// JSON-RPC id of the message; `null` if the event is not about a message with one.
        rpc_id: Option<RpcId> as RpcId,
        /// Id of the session.
        session_id: SessionId,
        /// A [`Transport`].
        transport: String,
        /// [`EVENT_VERSION`], or an older one; one session has one version, but for [`JUNK_EVENTS`].
        #[serde(deserialize_with = "reading::known::<AuditEvent, _>")]
        v: u32 as Version,
        /// Length of the whole message as it crossed, without its line terminator.
        wire_bytes: Option<u64>,
        /// SHA-256 of these bytes, lower-case hex.
        wire_sha256: Option<String> as Option<Sha256Hex>,
    }
}

/// The version of an event.
pub struct Version;

impl Canonical for Version {
    type View<'a> = u32;

    #[inline]
    fn read(c: &mut JsonCursor<'_>) -> Option<u32> {
        u32::try_from(c.uint()?).ok().filter(|v| (1..=EVENT_VERSION).contains(v))
    }
}

/// An event without what its kind adds.
pub type EventHead = AuditEvent<()>;

impl<'a> EventView<'a> {
    /// Reads a line; `None` when it is not the canonical line of an event.
    #[must_use]
    pub fn of_line(line: &'a [u8]) -> Option<Self> {
        let over_http = |transport: &[u8]| transport != Transport::Stdio.as_str().as_bytes();
        AuditEvent::of_line(line).filter(|e| e.event == e.detail.kind() && e.detail.is_of(e.v, over_http(e.transport)))
    }

    /// Whether it is an `anomaly` of this kind.
    #[must_use]
    pub fn is_anomaly(&self, kind: AnomalyKind) -> bool {
        matches!(&self.detail, DetailView::Anomaly(d) if d.kind.known == Some(kind))
    }

    /// The hash that the line that this is of must carry, as 64 hex digits.
    #[must_use]
    pub fn hash_of(&self, line: &[u8]) -> [u8; 64] {
        hash_without(line, self.hash.as_ptr() as usize - line.as_ptr() as usize - HASH_AT)
    }
}

impl<'de> Deserialize<'de> for AuditEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (raw, head) = AuditEvent::<Box<RawValue>>::deserialize(deserializer)?.with(());
        let detail = Detail::of_json(head.event, raw.get()).map_err(D::Error::custom)?;
        if !detail.is_of(head.v, head.transport != Transport::Stdio.as_str()) {
            return Err(D::Error::custom("an event of this version has other members in `detail`"));
        }
        Ok(head.with(detail).1)
    }
}

versioned!(AuditEvent, "audit event", from 1, to EVENT_VERSION, "v");

impl AuditEvent {
    /// What it says, if it is the first event of a segment.
    #[must_use]
    pub const fn chain_start(&self) -> Option<&detail::ChainStart> {
        match &self.detail {
            Detail::ChainStart(start) => Some(start),
            _ => None,
        }
    }
}

impl<D: Serialize> AuditEvent<D> {
    /// Computes `hash` from everything else, and gives the line.
    ///
    /// # Errors
    /// As [`super::to_line`].
    pub fn seal(&mut self) -> Result<Vec<u8>, serde_json::Error> {
        super::GENESIS.clone_into(&mut self.hash);
        let mut line = super::to_line(self)?;
        if let Some(at) = hash_member(&line) {
            let hash = hash_without(&line, at);
            line[at + HASH_AT..at + HASH_AT + hash.len()].copy_from_slice(&hash);
            self.hash = String::from_utf8_lossy(&hash).into_owned();
        }
        Ok(line)
    }
}

/// The hash that an event's (or ledger line's) canonical line must carry: SHA-256 of the line with its member `hash` cut
/// out. `None` when the line has no top-level `"hash":"<64 digits>",` where a canonical line has it.
#[must_use]
pub fn hash_of_line(line: &[u8]) -> Option<String> {
    let hash = hash_without(line, hash_member(line)?);
    Some(String::from_utf8_lossy(&hash).into_owned())
}

/// The same where the member is known to begin at `at`, as 64 hex digits.
#[must_use]
pub fn hash_without(line: &[u8], at: usize) -> [u8; 64] {
    let mut hasher = Sha256::new();
    hasher.update(&line[..at]);
    hasher.update(&line[at + HASH_MEMBER_LEN..]);
    hex_of(hasher.finalize().into())
}

/// Where the digits begin in `"hash":"<64 digits>",`.
const HASH_AT: usize = 8;
/// Length of `"hash":"<64 digits>",`.
pub const HASH_MEMBER_LEN: usize = HASH_AT + 64 + 2;

/// Where the top-level `"hash":"<64 digits>",` of a canonical event or ledger line begins: it is the last one, because no
/// member after it can hold a quote unescaped and `prev_hash` has other letters before its quote.
#[must_use]
pub fn hash_member(line: &[u8]) -> Option<usize> {
    let at = memchr::memmem::rfind(line, b",\"hash\":\"")? + 1;
    let end = at + HASH_MEMBER_LEN;
    (line.len() > end && &line[end - 2..end] == b"\",").then_some(at)
}

/// What `detail` holds, by kind of event. Fields in JSON name order; absent means `null`.
pub mod detail {
    use super::super::{
        AnomalyKind, CallAnomaly, EndReason, GapReason, InvocationId, PolicyReason, PolicyVerdict, Profile, ReceiptId,
        SessionId, Word,
        http::InExchange,
        line::{Digest, Sha256Hex, Words, line},
        receipt::Counts,
        surface::{Announced, Change, Context, Facet, First, Mode, Severity, State},
    };
    use serde_json::value::RawValue;

    pub use super::super::http::HttpExchange;

    /// Where a message was in its stream: byte offset since the session began, this direction.
    pub type StreamOffset = u64;

    line! {
        /// `chain_start`.
        #[derive(Debug, Clone)]
        pub exact struct ChainStart {
            /// Calls that were in flight when the session before this one rolled over.
            carried_in: Vec<InvocationId>,
            /// The command, only with `--store-command`.
            command: Option<Vec<String>>,
            /// SHA-256 of the server command (RFC 8785 form of its argv).
            command_digest: String,
            /// The session before this one in the same process (rolling packs).
            continues: Option<SessionId>,
            /// `sha256:` of the policy file in force; absent where there is none.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            policy_hash: Option<String>,
            /// `audit` or `guard`.
            profile: Profile,
            /// Version of the recorder.
            recorder_version: String,
            /// The server's id: from `--server-id`, or derived from its command.
            server_id: String,
        }
    }

    line! {
        /// `request_received`.
        #[derive(Debug, Clone)]
        pub struct RequestReceived, RequestReceivedView<'a> {
            /// As in the receipt.
            anomalies: Vec<Word<CallAnomaly>> as Words,
            /// Hash of the arguments; of `tools/call` only.
            arguments_hash: Option<String> as Option<Digest>,
            /// `modern` if the request itself names its protocol version, else `legacy`.
            era: String,
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// Self-reported correlation members of `params._meta`.
            meta: Option<Box<RawValue>>,
            /// Stream offset of the message.
            offset: StreamOffset,
            /// Receipt of the leg before.
            parent_receipt_id: Option<ReceiptId>,
            /// Name of the tool; of `tools/call` only.
            tool_name: Option<String>,
        }
    }

    line! {
        /// `request_forwarded`, `response_sent`.
        #[derive(Debug, Clone)]
        pub struct Forwarded, ForwardedView<'a> {
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// Stream offset of the message.
            offset: StreamOffset,
            /// Receipt that this event closes, in `response_sent` of a tool call.
            receipt_id: Option<ReceiptId>,
            /// SHA-256 of that receipt's line, hex.
            receipt_sha256: Option<String> as Option<Sha256Hex>,
        }
    }

    line! {
        /// `response_received`.
        #[derive(Debug, Clone)]
        pub struct ResponseReceived, ResponseReceivedView<'a> {
            /// As in the receipt.
            anomalies: Vec<Word<CallAnomaly>> as Words,
            /// Code of a JSON-RPC error response.
            error_code: Option<i64>,
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// Microseconds (session clock) when the first byte of the message was read.
            first_byte_us: u64,
            /// Whether the result says `isError: true`, or it is a JSON-RPC error.
            is_error: Option<bool>,
            /// Stream offset of the message.
            offset: StreamOffset,
            /// Hash of the result, or of the error body.
            result_hash: Option<String> as Option<Digest>,
            /// `result.resultType`, `complete` where absent; `task` for a legacy task handle.
            result_type: Option<String>,
        }
    }

    line! {
        /// `policy_decision`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct PolicyDecision, PolicyDecisionView<'a> {
            /// Whether the message was held for this verdict (guard), or only judged (audit).
            enforced: bool,
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// Stream offset of the message.
            offset: StreamOffset,
            /// `sha256:` of the policy file that judged.
            policy_hash: Option<String>,
            /// Short machine word for the verdict, as in the receipt.
            reason: Word<PolicyReason> as String,
            /// The rule that matched, as in the receipt's `policy_ref`.
            rule: Option<String>,
            /// What could not be seen at the time: `redirects_not_seen`, `dns_after_check`, …
            unseen: Vec<Word<CallAnomaly>> as Words,
            /// Whether the policy allows the call.
            verdict: PolicyVerdict,
        }
    }

    line! {
        /// `request_blocked`.
        #[derive(Debug, Clone)]
        pub struct Blocked, BlockedView<'a> {
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// Stream offset of the message.
            offset: StreamOffset,
            /// Short machine word: the `reason` of the decision.
            reason: Word<PolicyReason> as String,
            /// Receipt that this event closes, for a tool call.
            receipt_id: Option<ReceiptId>,
            /// SHA-256 of that receipt's line, hex.
            receipt_sha256: Option<String> as Option<Sha256Hex>,
        }
    }

    line! {
        /// `policy_reloaded`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub exact struct PolicyReload {
            /// Why the file could not take the place of the policy in force; `null` when it did.
            error: Option<String>,
            /// `sha256:` of the policy in force from here on.
            policy_hash: String,
            /// `sha256:` of the policy in force before.
            previous: String,
        }
    }

    line! {
        /// `malformed`, `notification`.
        #[derive(Debug, Clone)]
        pub struct Seen, SeenView<'a> {
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// Stream offset of the message.
            offset: StreamOffset,
            /// What is wrong with it, or what it refers to.
            reason: Option<String>,
        }
    }

    line! {
        /// `malformed_lines`.
        #[derive(Debug, Clone)]
        pub struct Lines, LinesView<'a> {
            /// Microseconds (session clock) when the first line was read.
            first_us: u64,
            /// How many lines, blank ones between them not counted.
            lines: u64,
            /// Stream offset of the first line.
            offset: StreamOffset,
            /// What is wrong with the first line.
            reason: Option<String>,
        }
    }

    line! {
        /// `anomaly`.
        #[derive(Debug, Clone)]
        pub struct Anomaly, AnomalyView<'a> {
            /// The exchange of HTTP in which the message crossed; absent in version 1.
            #[serde(default, skip_serializing_if = "InExchange::is_unsaid")]
            exchange: InExchange,
            /// What it is.
            kind: Word<AnomalyKind>,
            /// More, in words.
            note: Option<String>,
            /// Stream offset of the message, where there is one.
            offset: Option<StreamOffset>,
            /// Receipt that this event closes (`no_response`).
            receipt_id: Option<ReceiptId>,
            /// SHA-256 of that receipt's line, hex.
            receipt_sha256: Option<String> as Option<Sha256Hex>,
        }
    }

    line! {
        /// `recorder_gap`.
        #[derive(Debug, Clone)]
        pub struct Gap, GapView<'a> {
            /// Wire bytes that crossed unrecorded.
            bytes: u64,
            /// Messages whose evidence was lost; 0 when only bytes could be counted.
            messages: u64,
            /// Why the evidence is missing.
            reason: Word<GapReason>,
            /// Receipt (`mcp.recorder_gap`) that says the same.
            receipt_id: Option<ReceiptId>,
            /// SHA-256 of that receipt's line, hex.
            receipt_sha256: Option<String> as Option<Sha256Hex>,
        }
    }

    line! {
        /// `tool_requested`, `tool_denied`, `tool_executed`.
        #[derive(Debug, Clone)]
        pub struct ToolStep, ToolStepView<'a> {
            /// Number of the call, from 0: its id is derived from it.
            call: u64,
            /// Receipt that says it.
            receipt_id: Option<ReceiptId>,
            /// SHA-256 of that receipt's line, hex.
            receipt_sha256: Option<String> as Option<Sha256Hex>,
        }
    }

    line! {
        /// `surface_decision`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub exact struct SurfaceDecision {
            /// How many lines of the pack's `surface_approvals.jsonl` are in force.
            approvals: u64,
            /// Why the decisions cannot be known: then nothing is approved.
            error: Option<String>,
            /// What is done while nothing was decided about a facet.
            first: First,
            /// The last of them.
            last: Option<String>,
            /// What is done about what is not approved.
            mode: Mode,
            /// The facets that are compared.
            pinned: Vec<Facet>,
            /// Digest of the rules; null for the defaults.
            rules_hash: Option<String>,
            /// SHA-256 of these lines with their line feeds, hex.
            sha256: String,
        }
    }

    line! {
        /// A definition that was announced.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub exact struct ObservedItem {
            /// The decision that it rests on.
            approval_id: Option<String>,
            /// Its hash.
            hash: String,
            /// Its name; empty for instructions and capabilities.
            name: String,
            /// How it stands.
            state: State,
        }
    }

    impl ObservedItem {
        /// The definition.
        #[must_use]
        pub fn announced(&self) -> Announced {
            let ambiguous = self.state == State::Ambiguous;
            Announced { name: self.name.clone(), hash: self.hash.clone(), ambiguous }
        }
    }

    line! {
        /// `surface_observed`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub exact struct SurfaceObserved {
            /// How long ago it was announced, ms: not 0 only where a session goes on from the one before.
            age_ms: u64,
            /// Who asked.
            context: Context,
            /// Which part.
            facet: Facet,
            /// The names that it no longer has.
            gone: Vec<String>,
            /// What was not announced before in this session, or differently.
            items: Vec<ObservedItem>,
            /// The root, once all of the surface was seen.
            root: Option<String>,
            /// Whether the part was read to its end.
            whole: bool,
        }
    }

    line! {
        /// `surface_drift`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub exact struct SurfaceDrift {
            /// The changes, at most 1 000.
            changes: Vec<Change>,
            /// Digest of all of them, whole, as in a decision.
            changes_hash: Option<String>,
            /// How many there are.
            count: u64,
            /// All of it is what a client was shown that can do more than those for which something was approved.
            new_context: bool,
            /// The root, if all of the surface was seen.
            root: Option<String>,
            /// The worst of them.
            severity: Severity,
        }
    }

    line! {
        /// `chain_end`.
        #[derive(Debug, Clone)]
        pub exact struct ChainEnd {
            /// Calls in flight when the session rolled over.
            carried_out: Vec<InvocationId>,
            /// Whether everything was recorded and every call ended.
            complete: bool,
            /// Counts over the session.
            counts: Counts,
            /// Events in the segment, this one included.
            events: u64,
            /// Why the session ended.
            reason: Word<EndReason>,
            /// Receipts so far, `mcp.session_start` included, `mcp.session_end` not.
            receipts: u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(detail: &str) -> AuditEvent<Box<RawValue>> {
        AuditEvent {
            at: WallTime::from_millis(1),
            detail: RawValue::from_string(detail.to_owned()).unwrap(),
            direction: Some(Direction::ClientToServer),
            event: EventKind::RequestReceived,
            event_seq: 3,
            hash: String::new(),
            invocation_id: Some(InvocationId::from_bits(1)),
            method: Some("tools/call\u{1}\"é".into()),
            mono_us: 17,
            prev_hash: super::super::GENESIS.into(),
            rpc_id: Some(RpcId::Int(1)),
            session_id: SessionId::from_bits(7),
            transport: "stdio".into(),
            v: EVENT_VERSION,
            wire_bytes: Some(5),
            wire_sha256: None,
        }
    }

    #[test]
    fn an_events_line_is_its_rfc_8785_form() {
        let mut e = event("{}");
        e.seal().unwrap();
        let line = super::super::to_line(&e).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), serde_jcs::to_string(&value).unwrap());
    }

    #[test]
    fn the_hash_covers_everything_but_itself_also_with_a_decoy_in_the_detail() {
        let decoy = format!("{{\"hash\":\"{}\",\"z\":1}}", "a".repeat(64));
        let mut e = event(&decoy);
        e.seal().unwrap();
        let line = super::super::to_line(&e).unwrap();
        let mut value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        value.as_object_mut().unwrap().remove("hash");
        let expected = super::super::sha256_hex(serde_jcs::to_string(&value).unwrap().as_bytes());
        assert_eq!(e.hash, expected);
        assert_eq!(hash_of_line(&line), Some(expected));
    }
}
