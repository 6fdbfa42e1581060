//! Receipts: one per tool call, and those that frame a session (docs/formats.md, "Receipts").

use super::{
    CallAnomaly, DurationMs, EndReason, GapReason, InvocationId, OutcomeReason, PolicyReason, ReceiptId, RpcId,
    SessionId, WallTime, Word,
    line::{Canonical as _, Digest, Words, line, member, text},
    said::Said,
    schema::OfCall,
    server::{
        SERVER_SOURCE, TOOL_DENIED, TOOL_EXECUTED, TOOL_REQUESTED, ToolDenied, ToolExecuted, ToolRequested, flat,
    },
    surface::State,
    words::vocabulary,
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

pub use super::schema::{
    FIELDS_SCHEMA, OWN_REDACTED_SCHEMA, PLAIN_SCHEMA, REDACTED_SCHEMA, SCHEMA_VERSION, SURFACE_SCHEMA,
};
pub use super::words::{Outcome, PolicyVerdict};

/// `integration_source` of every receipt.
pub const INTEGRATION_SOURCE: &str = "assay.mcp_proxy";
/// `type` of a [`ToolCall`].
pub const TOOL_CALL: &str = "mcp_tool_call";
/// `type` of a [`SessionStart`].
pub const SESSION_START: &str = "mcp.session_start";
/// `type` of a [`SessionEnd`].
pub const SESSION_END: &str = "mcp.session_end";
/// `type` of a [`GapReceipt`].
pub const RECORDER_GAP: &str = "mcp.recorder_gap";

vocabulary! {
    /// The proxy's security profile.
    #[derive(Hash)]
    Profile {
        /// Verdicts are recorded, and everything is forwarded.
        Audit = "audit",
        /// Enforce the policy.
        Guard = "guard",
    }
}

line! {
    /// Microseconds after `request_observed_at`, monotonic; `null` where it did not happen.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Phases {
        /// The policy's verdict was known.
        policy_decided: Option<u64>,
        /// The request's last byte was written to the server.
        request_forwarded: Option<u64>,
        /// The response's first byte was read.
        response_first_byte: Option<u64>,
        /// The response's last byte was written to the client.
        response_forwarded: Option<u64>,
        /// The response's last byte was read.
        response_observed: Option<u64>,
    }
}

line! {
    /// `mcp_tool_call`: one tool call, or one leg of it. All members always present.
    #[derive(Debug, Clone)]
    pub struct ToolCall, CallView<'a>, CallMembers<'a> {
        /// Sorted machine words.
        anomalies: Vec<Word<CallAnomaly>> as Words,
        /// The arguments in canonical form, only with `--store-args` and where a pack can hold them.
        arguments_content: Option<Box<RawValue>>,
        /// `sha256:` or `sha256-raw:` and 64 hex digits.
        arguments_hash: String as Digest,
        /// Each argument, in cleartext or as its hash; `null` for a tool of which nothing was named. From schema 3.2 on.
        #[serde(default, skip_serializing_if = "Said::is_unsaid")]
        arguments_redacted: Said<Box<RawValue>>,
        /// Round trip on the monotonic clock, milliseconds.
        duration_ms: Option<DurationMs>,
        /// [`INTEGRATION_SOURCE`].
        integration_source: String = INTEGRATION_SOURCE,
        /// Id of the call.
        invocation_id: InvocationId,
        /// JSON-RPC id of the request.
        mcp_request_id: RpcId,
        /// Self-reported correlation members of `params._meta`, canonical.
        meta: Option<Box<RawValue>>,
        /// What became of it.
        outcome: Outcome,
        /// Why there was no ordinary response.
        outcome_reason: Option<Word<OutcomeReason>>,
        /// Receipt of the leg before.
        parent_receipt_id: Option<ReceiptId>,
        /// When each phase ended.
        phases_us: Phases,
        /// Wall clock of the verdict.
        policy_decided_at: Option<WallTime>,
        /// SHA-256 of the active policy file.
        policy_hash: Option<String>,
        /// Short machine word for the verdict.
        policy_reason: Option<Word<PolicyReason>> as Option<String>,
        /// The rule that matched.
        policy_ref: Option<String>,
        /// What the policy says about the call.
        policy_verdict: PolicyVerdict,
        /// Version of the recorder.
        proxy_version: String,
        /// Id of this receipt.
        receipt_id: ReceiptId,
        /// Wall clock when the request's last byte was read.
        request_observed_at: WallTime,
        /// Wall clock when the response's last byte was read.
        response_observed_at: Option<WallTime>,
        /// The result in canonical form, only with `--store-results` and where a pack can hold it.
        result_content: Option<Box<RawValue>>,
        /// Hash of the result, or of the error body.
        result_hash: Option<String> as Option<Digest>,
        /// MCP `isError`; `true` for a JSON-RPC error.
        result_is_error: Option<bool>,
        /// `complete`, `input_required`, `task`, another value as sent.
        result_type: Option<String>,
        /// [`REDACTED_SCHEMA`] if a content is redacted; else [`FIELDS_SCHEMA`] if it has `arguments_redacted`,
        /// [`SURFACE_SCHEMA`] if it says how its definition stood, or [`PLAIN_SCHEMA`].
        #[serde(deserialize_with = "super::schema::known_of_call")]
        schema_version: String as OfCall,
        /// Position among the session's receipts.
        seq: u64,
        /// The server's id: from `--server-id`, or derived from its command.
        server_id: String,
        /// `stdio`.
        server_transport: String,
        /// Id of the session.
        session_id: SessionId,
        /// Milliseconds since this client was told the list that the tool is in; this and the next four from schema 3.1 on.
        #[serde(default, skip_serializing_if = "Said::is_unsaid")]
        surface_age_ms: Said<u64>,
        /// The decision that the tool's definition rests on.
        #[serde(default, skip_serializing_if = "Said::is_unsaid")]
        surface_approval_id: Said<String>,
        /// Hash of the definition that this client was told last.
        #[serde(default, skip_serializing_if = "Said::is_unsaid")]
        surface_item_hash: Said<String> as Said<Digest>,
        /// Root of the surface as this client had seen it.
        #[serde(default, skip_serializing_if = "Said::is_unsaid")]
        surface_root: Said<String> as Said<Digest>,
        /// How the definition stood with what was decided.
        #[serde(default, skip_serializing_if = "Said::is_unsaid")]
        surface_state: Said<State>,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// Tool name as sent.
        tool_name: String,
        /// The session again: one value per pack.
        trace_id: SessionId,
        /// [`TOOL_CALL`].
        r#type: String = TOOL_CALL,
    }
}

impl CallView<'_> {
    /// Whether it has the members of its schema version, and of those that say how its definition stood all or none.
    fn is_of_its_schema(&self) -> bool {
        let unsaid = [
            self.surface_age_ms.is_unsaid(),
            self.surface_approval_id.is_unsaid(),
            self.surface_item_hash.is_unsaid(),
            self.surface_root.is_unsaid(),
            self.surface_state.is_unsaid(),
        ];
        let silent = unsaid.iter().all(|unsaid| *unsaid);
        let stands = unsaid.iter().all(|unsaid| !unsaid);
        match self.schema_version {
            OfCall::Plain => silent && self.arguments_redacted.is_unsaid(),
            OfCall::Surface => stands && self.arguments_redacted.is_unsaid(),
            OfCall::Fields => (silent || stands) && !self.arguments_redacted.is_unsaid(),
            OfCall::Redacted => silent || stands,
        }
    }
}

line! {
    /// A client or server as it names itself.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct PeerInfo {
        /// `clientInfo.name`, `serverInfo.name`.
        name: String,
        /// Its version, as it states it.
        version: Option<String>,
    }
}

/// Name and version, as they are stated: not safe for a terminal.
impl fmt::Display for PeerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.version.as_ref().map_or(Ok(()), |version| write!(f, " {version}"))
    }
}

line! {
    /// Counts over a session.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Counts {
        /// Tool call receipts.
        calls: u64,
        /// Of these, denied.
        denied: u64,
        /// Of these, errors.
        errors: u64,
        /// Lines that were not JSON-RPC messages.
        malformed: u64,
        /// Messages whose evidence was lost.
        missed: u64,
        /// Wire bytes that crossed unrecorded.
        missed_bytes: u64,
        /// Receipts whose policy verdict is `denied`, enforced or not.
        policy_denied: u64,
        /// Recorded requests of any method, both directions.
        requests: u64,
        /// Calls without a response.
        timeouts: u64,
    }
}

impl Counts {
    /// Counts one call that a server recorded itself.
    pub fn execution(&mut self, outcome: super::Execution, verdict: PolicyVerdict) {
        self.call(outcome.of_call(), verdict);
    }

    /// Counts one call.
    pub fn call(&mut self, outcome: Outcome, verdict: PolicyVerdict) {
        self.calls += 1;
        match outcome {
            Outcome::Denied => self.denied += 1,
            Outcome::Error => self.errors += 1,
            Outcome::Timeout => self.timeouts += 1,
            Outcome::Forwarded => {}
        }
        self.policy_denied += u64::from(verdict == PolicyVerdict::Denied);
    }
}

line! {
    /// `mcp.session_start`, seq 0.
    #[derive(Debug, Clone)]
    pub exact struct SessionStart, StartMembers<'a> {
        /// `hash` of the `chain_start` event.
        chain_head: String,
        /// The client as it names itself; `null` when it had not yet.
        client_info: Option<PeerInfo>,
        /// SHA-256 of the server command.
        command_digest: String,
        /// The session before this one in the same process.
        continues: Option<SessionId>,
        /// [`INTEGRATION_SOURCE`].
        integration_source: String,
        /// SHA-256 of the active policy file.
        policy_hash: Option<String>,
        /// How the policy was applied: audit or guard.
        profile: Profile,
        /// Protocol version agreed, or last asked for per message (modern).
        protocol_version: Option<String>,
        /// Version of the recorder.
        proxy_version: String,
        /// Id of this receipt.
        receipt_id: ReceiptId,
        /// [`PLAIN_SCHEMA`].
        #[serde(deserialize_with = "super::schema::known")]
        schema_version: String,
        /// Always 0: the start is the first receipt.
        seq: u64,
        /// The server's id: from `--server-id`, or derived from its command.
        server_id: String,
        /// The server as it names itself.
        server_info: Option<PeerInfo>,
        /// `stdio`.
        server_transport: String,
        /// Id of the session.
        session_id: SessionId,
        /// When the session began.
        started_at: WallTime,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// The session again.
        trace_id: SessionId,
        /// [`SESSION_START`].
        r#type: String,
    }
}

line! {
    /// `mcp.session_end`, last seq.
    #[derive(Debug, Clone)]
    pub exact struct SessionEnd, EndMembers<'a> {
        /// `hash` of the `chain_end` event.
        chain_hash: String,
        /// Counts over the session.
        counts: Counts,
        /// Why the session ended.
        end_reason: Word<EndReason>,
        /// [`INTEGRATION_SOURCE`].
        integration_source: String,
        /// Version of the recorder.
        proxy_version: String,
        /// Id of this receipt.
        receipt_id: ReceiptId,
        /// [`PLAIN_SCHEMA`].
        #[serde(deserialize_with = "super::schema::known")]
        schema_version: String,
        /// Position among the receipts; the last one.
        seq: u64,
        /// Whether everything was recorded and every call ended.
        session_complete: bool,
        /// Id of the session.
        session_id: SessionId,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// The session again.
        trace_id: SessionId,
        /// [`SESSION_END`].
        r#type: String,
    }
}

line! {
    /// `mcp.recorder_gap`: evidence that is missing.
    #[derive(Debug, Clone)]
    pub exact struct GapReceipt, GapMembers<'a> {
        /// Wire bytes that crossed unrecorded.
        bytes: u64,
        /// [`INTEGRATION_SOURCE`].
        integration_source: String,
        /// Messages whose evidence was lost.
        messages: u64,
        /// `disk`, `capture_stuck`, `fsync`, `crash`.
        reason: Word<GapReason>,
        /// Id of this receipt.
        receipt_id: ReceiptId,
        /// [`PLAIN_SCHEMA`].
        #[serde(deserialize_with = "super::schema::known")]
        schema_version: String,
        /// Position among the session's receipts.
        seq: u64,
        /// Id of the session.
        session_id: SessionId,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// The session again.
        trace_id: SessionId,
        /// [`RECORDER_GAP`].
        r#type: String,
    }
}

/// The `type` of a receipt of any builder; `None` for what is not a JSON object with one.
#[must_use]
pub fn kind(line: &[u8]) -> Option<Cow<'_, str>> {
    text(member(line, "type"))
}

/// A receipt of a session of ours, in either form of its line.
#[derive(Debug, Clone)]
pub enum Receipt {
    /// `mcp_tool_call`
    Call(Box<ToolCall>),
    /// `mcp.session_start`
    Start(Box<SessionStart>),
    /// `mcp.session_end`
    End(Box<SessionEnd>),
    /// `mcp.recorder_gap`
    Gap(Box<GapReceipt>),
    /// `mcp_tool_requested`
    Requested(Box<ToolRequested>),
    /// `mcp_tool_denied`
    Denied(Box<ToolDenied>),
    /// `mcp_tool_executed`
    Executed(Box<ToolExecuted>),
}

/// Why a line is not a [`Receipt`].
#[derive(Debug, thiserror::Error)]
pub enum NotAReceipt {
    /// Its type is not one of this recorder.
    #[error("unknown type {0:?}")]
    Unknown(String),
    /// Its members are not those of its type.
    #[error(transparent)]
    Members(#[from] serde_json::Error),
}

impl Receipt {
    /// Reads a line whose [`kind`] is known.
    ///
    /// # Errors
    /// [`NotAReceipt`].
    pub fn of_kind(kind: &str, line: &[u8]) -> Result<Self, NotAReceipt> {
        Ok(match kind {
            TOOL_CALL => Self::Call(serde_json::from_slice(line)?),
            SESSION_START => Self::Start(serde_json::from_slice(line)?),
            SESSION_END => Self::End(serde_json::from_slice(line)?),
            RECORDER_GAP => Self::Gap(serde_json::from_slice(line)?),
            other if flat(other) == Some(TOOL_REQUESTED) => Self::Requested(serde_json::from_slice(line)?),
            other if flat(other) == Some(TOOL_DENIED) => Self::Denied(serde_json::from_slice(line)?),
            other if flat(other) == Some(TOOL_EXECUTED) => Self::Executed(serde_json::from_slice(line)?),
            other => return Err(NotAReceipt::Unknown(other.to_owned())),
        })
    }
}

/// A receipt of a session of ours. A call is by far the most frequent and is not boxed for it.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum ReceiptView<'a> {
    /// `mcp_tool_call`
    Call(CallView<'a>),
    /// `mcp.session_start`
    Start(Box<SessionStart>),
    /// `mcp.session_end`
    End(Box<SessionEnd>),
    /// `mcp.recorder_gap`
    Gap(Box<GapReceipt>),
    /// `mcp_tool_requested`
    Requested(Box<ToolRequested>),
    /// `mcp_tool_denied`
    Denied(Box<ToolDenied>),
    /// `mcp_tool_executed`
    Executed(Box<ToolExecuted>),
}

impl<'a> ReceiptView<'a> {
    /// Reads a line; `None` when it is not the canonical line of a receipt of ours.
    #[must_use]
    pub fn of_line(line: &'a [u8]) -> Option<Self> {
        ToolCall::of_line(line).filter(CallView::is_of_its_schema).map(Self::Call).or_else(|| {
            match flat(&kind(line)?) {
                Some(kind) => Self::of_server(kind, line),
                None => Self::of_session(line),
            }
        })
    }

    /// What a server recorded itself.
    fn of_server(kind: &str, line: &[u8]) -> Option<Self> {
        let (source, read) = match kind {
            TOOL_REQUESTED => {
                ToolRequested::of_line(line).map(|r| (r.integration_source.clone(), Self::Requested(r)))?
            }
            TOOL_DENIED => ToolDenied::of_line(line).map(|r| (r.integration_source.clone(), Self::Denied(r)))?,
            _ => ToolExecuted::of_line(line).map(|r| (r.integration_source.clone(), Self::Executed(r)))?,
        };
        (source == SERVER_SOURCE).then_some(read)
    }

    /// The session's own receipts; there are few.
    fn of_session(line: &[u8]) -> Option<Self> {
        let ours = |source: &str, stated: &str, kind: &str| {
            (source == INTEGRATION_SOURCE || source == SERVER_SOURCE) && stated == kind
        };
        if let Some(r) = SessionStart::of_line(line) {
            return ours(&r.integration_source, &r.r#type, SESSION_START).then_some(Self::Start(r));
        }
        if let Some(r) = SessionEnd::of_line(line) {
            return ours(&r.integration_source, &r.r#type, SESSION_END).then_some(Self::End(r));
        }
        let r = GapReceipt::of_line(line)?;
        ours(&r.integration_source, &r.r#type, RECORDER_GAP).then_some(Self::Gap(r))
    }
}

/// What every receipt has.
macro_rules! in_common {
    ($receipt:ty) => {
        impl $receipt {
            /// Id of the receipt.
            #[must_use]
            pub fn id(&self) -> ReceiptId {
                match self {
                    Self::Call(r) => r.receipt_id,
                    Self::Start(r) => r.receipt_id,
                    Self::End(r) => r.receipt_id,
                    Self::Gap(r) => r.receipt_id,
                    Self::Requested(r) => r.receipt_id,
                    Self::Denied(r) => r.receipt_id,
                    Self::Executed(r) => r.receipt_id,
                }
            }

            /// Position among the session's receipts, from 0.
            #[must_use]
            pub fn seq(&self) -> u64 {
                match self {
                    Self::Call(r) => r.seq,
                    Self::Start(r) => r.seq,
                    Self::End(r) => r.seq,
                    Self::Gap(r) => r.seq,
                    Self::Requested(r) => r.seq,
                    Self::Denied(r) => r.seq,
                    Self::Executed(r) => r.seq,
                }
            }

            /// Its session and trace.
            #[must_use]
            pub fn session(&self) -> (SessionId, SessionId) {
                match self {
                    Self::Call(r) => (r.session_id, r.trace_id),
                    Self::Start(r) => (r.session_id, r.trace_id),
                    Self::End(r) => (r.session_id, r.trace_id),
                    Self::Gap(r) => (r.session_id, r.trace_id),
                    Self::Requested(r) => (r.trace_id, r.trace_id),
                    Self::Denied(r) => (r.trace_id, r.trace_id),
                    Self::Executed(r) => (r.trace_id, r.trace_id),
                }
            }

            /// When it was made.
            #[must_use]
            pub fn timestamp(&self) -> WallTime {
                match self {
                    Self::Call(r) => r.timestamp,
                    Self::Start(r) => r.timestamp,
                    Self::End(r) => r.timestamp,
                    Self::Gap(r) => r.timestamp,
                    Self::Requested(r) => r.timestamp,
                    Self::Denied(r) => r.timestamp,
                    Self::Executed(r) => r.timestamp,
                }
            }

            /// The `type` of the receipt.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    Self::Call(_) => TOOL_CALL,
                    Self::Start(_) => SESSION_START,
                    Self::End(_) => SESSION_END,
                    Self::Gap(_) => RECORDER_GAP,
                    Self::Requested(_) => TOOL_REQUESTED,
                    Self::Denied(_) => TOOL_DENIED,
                    Self::Executed(_) => TOOL_EXECUTED,
                }
            }
        }
    };
}
in_common!(Receipt);
in_common!(ReceiptView<'_>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_reads_by_its_type_whatever_the_order_of_its_members() {
        let gap = r#"{"type":"mcp.recorder_gap","bytes":1,"messages":2,"reason":"a word of later","integration_source":"x",
            "receipt_id":"mtc_0000000000000001","schema_version":"3.0","seq":3,"session_id":"mcp_0000000000000001",
            "timestamp":"2026-03-15T11:30:00.000Z","trace_id":"mcp_0000000000000001"}"#;
        let stated = kind(gap.as_bytes()).unwrap();
        let receipt = Receipt::of_kind(&stated, gap.as_bytes()).unwrap();
        assert_eq!((receipt.kind(), receipt.seq(), receipt.id()), (RECORDER_GAP, 3, ReceiptId::from_bits(1)));
        let more = gap.replacen("\"bytes\"", "\"other\":0,\"bytes\"", 1);
        for (kind, line, unknown) in [("mcp.recorder_gap", &*more, false), (SESSION_END, gap, false), ("x", gap, true)]
        {
            let e = Receipt::of_kind(kind, line.as_bytes()).unwrap_err();
            assert_eq!(matches!(e, NotAReceipt::Unknown(_)), unknown, "{e}");
        }
        for untyped in ["[]", "{}", r#"{"type":7}"#, "", "{"] {
            assert_eq!(super::kind(untyped.as_bytes()), None, "{untyped}");
        }
    }
}
