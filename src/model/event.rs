//! Audit events: the hash chain of one session (FORMATS §4).

use super::{
    Direction, InvocationId, RpcId, SessionId, WallTime,
    reading::{self, versioned},
    sha256_hex,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Format version of an audit event.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const EVENT_VERSION: u32 = 1;

/// What an audit event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The first event of a segment; its `prev_hash` is the hash of the ledger line before it.
    ChainStart,
    /// A recorded request was read from its sender.
    RequestReceived,
    /// That request was written to its receiver.
    RequestForwarded,
    /// The response to a recorded request was read.
    ResponseReceived,
    /// That response was written to its receiver.
    ResponseSent,
    /// A policy was evaluated for a request.
    PolicyDecision,
    /// Guard mode did not forward a message.
    RequestBlocked,
    /// The policy file changed, or was to be read again.
    PolicyReloaded,
    /// A line that is no JSON-RPC message.
    Malformed,
    /// A notification that matters to the evidence: cancelled, list_changed.
    Notification,
    /// Something that does not fit: a late response, an id in use, a call whose response never came.
    Anomaly,
    /// Evidence that could not be recorded, with counts.
    RecorderGap,
    /// The last event of a segment.
    ChainEnd,
}

impl EventKind {
    /// The word in evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ChainStart => "chain_start",
            Self::RequestReceived => "request_received",
            Self::RequestForwarded => "request_forwarded",
            Self::ResponseReceived => "response_received",
            Self::ResponseSent => "response_sent",
            Self::PolicyDecision => "policy_decision",
            Self::RequestBlocked => "request_blocked",
            Self::PolicyReloaded => "policy_reloaded",
            Self::Malformed => "malformed",
            Self::Notification => "notification",
            Self::Anomaly => "anomaly",
            Self::RecorderGap => "recorder_gap",
            Self::ChainEnd => "chain_end",
        }
    }
}

/// One event of the chain. Its line on disk is its RFC 8785 form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvent {
    /// Wall clock when it happened.
    pub at: WallTime,
    /// What this kind of event adds; canonical JSON, an object. See [`detail`].
    pub detail: Box<RawValue>,
    /// Which way the message went; `null` for events of the recorder itself.
    pub direction: Option<Direction>,
    /// What happened.
    pub event: EventKind,
    /// Position in the segment, from 0 without gaps.
    pub event_seq: u64,
    /// SHA-256 over the RFC 8785 form of this event without `hash`, lower-case hex.
    pub hash: String,
    /// The request that this belongs to.
    pub invocation_id: Option<InvocationId>,
    /// JSON-RPC method.
    pub method: Option<String>,
    /// Microseconds on the monotonic clock since the session began.
    pub mono_us: u64,
    /// `hash` of the event before; for the first, of the ledger line before.
    pub prev_hash: String,
    /// JSON-RPC id.
    pub rpc_id: Option<RpcId>,
    /// The session.
    pub session_id: SessionId,
    /// `stdio`.
    pub transport: String,
    /// [`EVENT_VERSION`].
    #[serde(deserialize_with = "reading::known::<AuditEvent, _>")]
    pub v: u32,
    /// Length of the whole message as it crossed, without its line terminator.
    pub wire_bytes: Option<u64>,
    /// SHA-256 of these bytes, lower-case hex.
    pub wire_sha256: Option<String>,
}

versioned!(AuditEvent, "audit event", EVENT_VERSION);

impl AuditEvent {
    /// Computes `hash` from everything else.
    ///
    /// # Errors
    /// As [`super::to_line`].
    pub fn seal(&mut self) -> Result<(), serde_json::Error> {
        super::GENESIS.clone_into(&mut self.hash);
        let line = super::to_line(self)?;
        self.hash = hash_of_line(&line).unwrap_or_default();
        Ok(())
    }
}

/// The hash that an event's (or ledger line's) canonical line must carry: SHA-256 of the line with its member `hash` cut
/// out. `None` when the line has no top-level `"hash":"<64 digits>",` where a canonical line has it.
#[must_use]
pub fn hash_of_line(line: &[u8]) -> Option<String> {
    let at = hash_member(line)?;
    let mut without = Vec::with_capacity(line.len());
    without.extend_from_slice(&line[..at]);
    without.extend_from_slice(&line[at + HASH_MEMBER_LEN..]);
    Some(sha256_hex(&without))
}

/// Length of `"hash":"<64 digits>",`.
pub const HASH_MEMBER_LEN: usize = 8 + 64 + 2;

/// Where the top-level `"hash":"<64 digits>",` of a canonical event or ledger line begins: it is the last one, because no
/// member behind it can hold a quote unescaped and `prev_hash` has other letters before its quote.
#[must_use]
pub fn hash_member(line: &[u8]) -> Option<usize> {
    let at = memchr::memmem::rfind(line, b",\"hash\":\"")? + 1;
    let end = at + HASH_MEMBER_LEN;
    (line.len() > end && &line[end - 2..end] == b"\",").then_some(at)
}

/// What `detail` holds, by kind of event. Fields in JSON name order; absent means `null`.
pub mod detail {
    use super::super::{AnomalyKind, EndReason, GapReason, InvocationId, ReceiptId, Word, receipt::Counts};
    use serde::{Deserialize, Serialize};
    use serde_json::value::RawValue;

    /// Where a message lay in its stream: byte offset since the session began, this direction.
    pub type StreamOffset = u64;

    /// `chain_start`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ChainStart {
        /// Calls that were in flight when the session before this one rolled over.
        pub carried_in: Vec<InvocationId>,
        /// The command, only with `--store-command`.
        pub command: Option<Vec<String>>,
        /// SHA-256 of the server command (RFC 8785 form of its argv).
        pub command_digest: String,
        /// The session before this one in the same process (rolling packs).
        pub continues: Option<super::SessionId>,
        /// `sha256:` of the policy file in force; absent where there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub policy_hash: Option<String>,
        /// `audit` or `guard`.
        pub profile: super::super::Profile,
        /// Version of the recorder.
        pub recorder_version: String,
        /// Server id.
        pub server_id: String,
    }

    /// `request_received`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RequestReceived {
        /// As in the receipt.
        pub anomalies: Vec<String>,
        /// `tools/call` only.
        pub arguments_hash: Option<String>,
        /// `legacy` or `modern` (MCP.md §1).
        pub era: String,
        /// Self-reported correlation members of `params._meta`.
        pub meta: Option<Box<RawValue>>,
        /// Stream offset of the message.
        pub offset: StreamOffset,
        /// Receipt of the leg before.
        pub parent_receipt_id: Option<ReceiptId>,
        /// `tools/call` only.
        pub tool_name: Option<String>,
    }

    /// `request_forwarded`, `response_sent`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Forwarded {
        /// Stream offset of the message.
        pub offset: StreamOffset,
        /// Receipt that this event closes, in `response_sent` of a tool call.
        pub receipt_id: Option<ReceiptId>,
        /// SHA-256 of that receipt's line, hex.
        pub receipt_sha256: Option<String>,
    }

    /// `response_received`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ResponseReceived {
        /// As in the receipt.
        pub anomalies: Vec<String>,
        /// Code of a JSON-RPC error response.
        pub error_code: Option<i64>,
        /// Microseconds (session clock) when the first byte of the message was read.
        pub first_byte_us: u64,
        /// Whether the result says `isError: true`, or it is a JSON-RPC error.
        pub is_error: Option<bool>,
        /// Stream offset of the message.
        pub offset: StreamOffset,
        /// Hash of the result, or of the error body.
        pub result_hash: Option<String>,
        /// `result.resultType`, `complete` where absent; `task` for a legacy task handle.
        pub result_type: Option<String>,
    }

    /// `policy_decision`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PolicyDecision {
        /// Whether the message was held for this verdict (guard), or only judged (audit).
        pub enforced: bool,
        /// Stream offset of the message.
        pub offset: StreamOffset,
        /// `sha256:` of the policy file that judged.
        pub policy_hash: Option<String>,
        /// Short machine word for the verdict, as in the receipt.
        pub reason: String,
        /// The rule that matched, as in the receipt's `policy_ref`.
        pub rule: Option<String>,
        /// What the judgement could not see: `redirects_not_seen`, `dns_after_check`, …
        pub unseen: Vec<String>,
        /// The verdict.
        pub verdict: super::super::PolicyVerdict,
    }

    /// `request_blocked`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Blocked {
        /// Stream offset of the message.
        pub offset: StreamOffset,
        /// Short machine word: the `reason` of the decision.
        pub reason: String,
        /// Receipt that this event closes, for a tool call.
        pub receipt_id: Option<ReceiptId>,
        /// SHA-256 of that receipt's line, hex.
        pub receipt_sha256: Option<String>,
    }

    /// `policy_reloaded`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PolicyReload {
        /// Why the file could not take the place of the policy in force; `null` when it did.
        pub error: Option<String>,
        /// `sha256:` of the policy in force from here on.
        pub policy_hash: String,
        /// `sha256:` of the policy in force before.
        pub previous: String,
    }

    /// `malformed`, `notification`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Seen {
        /// Stream offset of the message.
        pub offset: StreamOffset,
        /// What is wrong with it, or what it refers to.
        pub reason: Option<String>,
    }

    /// `anomaly`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Anomaly {
        /// What it is.
        pub kind: Word<AnomalyKind>,
        /// More, in words.
        pub note: Option<String>,
        /// Stream offset of the message, where there is one.
        pub offset: Option<StreamOffset>,
        /// Receipt that this event closes (`no_response`).
        pub receipt_id: Option<ReceiptId>,
        /// SHA-256 of that receipt's line, hex.
        pub receipt_sha256: Option<String>,
    }

    /// `recorder_gap`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Gap {
        /// Wire bytes that crossed unrecorded.
        pub bytes: u64,
        /// Messages whose evidence was lost; 0 when only bytes could be counted.
        pub messages: u64,
        /// Why.
        pub reason: Word<GapReason>,
        /// Receipt (`mcp.recorder_gap`) that says the same.
        pub receipt_id: Option<ReceiptId>,
        /// SHA-256 of that receipt's line, hex.
        pub receipt_sha256: Option<String>,
    }

    /// `chain_end`.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ChainEnd {
        /// Calls in flight when the session rolled over.
        pub carried_out: Vec<InvocationId>,
        /// Whether everything was recorded and every call ended.
        pub complete: bool,
        /// Counts over the session.
        pub counts: Counts,
        /// Events in the segment, this one included.
        pub events: u64,
        /// Why the session ended.
        pub reason: Word<EndReason>,
        /// Receipts so far, `mcp.session_start` included, `mcp.session_end` not.
        pub receipts: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(detail: &str) -> AuditEvent {
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
        let expected = sha256_hex(serde_jcs::to_string(&value).unwrap().as_bytes());
        assert_eq!(e.hash, expected);
        assert_eq!(hash_of_line(&line), Some(expected));
    }
}
