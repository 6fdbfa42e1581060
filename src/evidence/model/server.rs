//! Receipts that a server writes of itself: that a call was asked for, what its policy said, what its handler did
//! (docs/formats.md, "Receipts of a server").

use super::{
    CallAnomaly, ClientSessionId, DurationMs, InvocationId, Outcome, OutcomeReason, PolicyReason, PolicyVerdict,
    ReceiptId, RpcId, SessionId, WallTime, Word, line::line, words::vocabulary,
};
use serde_json::value::RawValue;

/// `integration_source` of receipts of a server.
pub const SERVER_SOURCE: &str = "assay.integrations.mcp";
/// `type` of a [`ToolRequested`].
pub const TOOL_REQUESTED: &str = "mcp_tool_requested";
/// `type` of a [`ToolDenied`].
pub const TOOL_DENIED: &str = "mcp_tool_denied";
/// `type` of a [`ToolExecuted`].
pub const TOOL_EXECUTED: &str = "mcp_tool_executed";
/// The same types as assay-ai's verifier takes them, which knows no flat ones but its own.
pub const DOTTED: [&str; 3] = ["mcp.tool_requested", "mcp.tool_denied", "mcp.tool_executed"];

/// The flat name of a type of a server's receipt, which may be dotted.
#[must_use]
pub fn flat(kind: &str) -> Option<&'static str> {
    let flat = [TOOL_REQUESTED, TOOL_DENIED, TOOL_EXECUTED];
    flat.into_iter().zip(DOTTED).find(|(flat, dotted)| kind == *flat || kind == *dotted).map(|(flat, _)| flat)
}

vocabulary! {
    /// `outcome` of a [`ToolExecuted`]: what became of the handler.
    #[derive(Hash)]
    Execution {
        /// It gave a result.
        Success = "success",
        /// A result with `isError: true`, a JSON-RPC error, or a panic.
        Error = "error",
        /// It gave none; `outcome_reason` says why.
        Timeout = "timeout",
    }
}

line! {
    /// `mcp_tool_requested`: a call is asked for; written before anything runs. All members always present.
    #[derive(Debug, Clone)]
    pub exact struct ToolRequested, RequestedMembers<'a> {
        /// The client as it calls itself.
        actor: Option<String>,
        /// Sorted machine words.
        anomalies: Vec<Word<CallAnomaly>>,
        /// The arguments in canonical form, only if they are stored and a pack can hold them.
        arguments_content: Option<Box<RawValue>>,
        /// `sha256:` or `sha256-raw:` and 64 hex digits.
        arguments_hash: String,
        /// Each argument, in cleartext or as its hash; `null` for a tool of which nothing is kept in cleartext.
        arguments_redacted: Option<Box<RawValue>>,
        /// [`SERVER_SOURCE`].
        integration_source: String,
        /// Id of the call.
        invocation_id: InvocationId,
        /// JSON-RPC id of the request.
        mcp_request_id: RpcId,
        /// Self-reported correlation members of `params._meta`, canonical.
        meta: Option<Box<RawValue>>,
        /// Receipt of the leg before.
        parent_receipt_id: Option<ReceiptId>,
        /// Version of MCP that client and server speak.
        protocol_version: Option<String>,
        /// Id of this receipt: `mtr_` and the digits of the call.
        receipt_id: ReceiptId,
        /// Version of the recorder.
        recorder_version: String,
        /// [`PLAIN_SCHEMA`](super::receipt::PLAIN_SCHEMA), or [`OWN_REDACTED_SCHEMA`](super::receipt::OWN_REDACTED_SCHEMA) if its content is redacted.
        #[serde(deserialize_with = "super::schema::known_of_server")]
        schema_version: String,
        /// Position among the receipts of the recording.
        seq: u64,
        /// The server, as its author calls it.
        server_id: String,
        /// How the request came.
        server_transport: String,
        /// The client's session; `null` for a request over HTTP without one.
        session_id: Option<ClientSessionId>,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// Tool name as sent.
        tool_name: String,
        /// The recording: one value per pack.
        trace_id: SessionId,
        /// [`TOOL_REQUESTED`], or its dotted name.
        r#type: String,
    }
}

line! {
    /// `mcp_tool_denied`: the policy refused the call, and nothing ran.
    #[derive(Debug, Clone)]
    pub exact struct ToolDenied, DeniedMembers<'a> {
        /// Sorted machine words.
        anomalies: Vec<Word<CallAnomaly>>,
        /// As in the receipt of the request.
        arguments_hash: String,
        /// What the policy says, in words, without values of arguments.
        denial_reason: String,
        /// `true`.
        denied: bool,
        /// [`SERVER_SOURCE`].
        integration_source: String,
        /// Id of the call.
        invocation_id: InvocationId,
        /// `sha256:` of the policy that refused it; `null` if the server refuses what it cannot record.
        policy_hash: Option<String>,
        /// Short machine word for the verdict.
        policy_reason: Word<PolicyReason>,
        /// The rule that matched.
        policy_ref: Option<String>,
        /// Id of this receipt: `mtd_` and the digits of the call.
        receipt_id: ReceiptId,
        /// Version of the recorder.
        recorder_version: String,
        /// The receipt of the request.
        request_receipt_id: ReceiptId,
        /// [`PLAIN_SCHEMA`](super::receipt::PLAIN_SCHEMA).
        #[serde(deserialize_with = "super::schema::known")]
        schema_version: String,
        /// Position among the receipts of the recording.
        seq: u64,
        /// The server, as its author calls it.
        server_id: String,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// Tool name as sent.
        tool_name: String,
        /// The recording.
        trace_id: SessionId,
        /// [`TOOL_DENIED`], or its dotted name.
        r#type: String,
    }
}

line! {
    /// `mcp_tool_executed`: the handler is done.
    #[derive(Debug, Clone)]
    pub exact struct ToolExecuted, ExecutedMembers<'a> {
        /// Sorted machine words.
        anomalies: Vec<Word<CallAnomaly>>,
        /// As in the receipt of the request.
        arguments_hash: String,
        /// The denial of the same call before, which was tried again.
        decision_receipt_id: Option<ReceiptId>,
        /// How long the handler ran, on the monotonic clock, milliseconds; `null` for what a task came to.
        duration_ms: Option<DurationMs>,
        /// What went wrong: a code, or its text where texts of errors are stored.
        error: Option<String>,
        /// [`SERVER_SOURCE`].
        integration_source: String,
        /// Id of the call.
        invocation_id: InvocationId,
        /// What became of the handler.
        outcome: Execution,
        /// Why there is no result, or not an ordinary one.
        outcome_reason: Option<Word<OutcomeReason>>,
        /// Of what a task came to: the receipt of the call that began it.
        parent_receipt_id: Option<ReceiptId>,
        /// `sha256:` of the policy that judged.
        policy_hash: Option<String>,
        /// Short machine word for the verdict.
        policy_reason: Option<Word<PolicyReason>>,
        /// The rule that matched.
        policy_ref: Option<String>,
        /// What the policy says about the call; `denied` where it only advises.
        policy_verdict: PolicyVerdict,
        /// Id of this receipt: `mte_` and the digits of the call, or of its task.
        receipt_id: ReceiptId,
        /// Version of the recorder.
        recorder_version: String,
        /// The receipt of the request.
        request_receipt_id: ReceiptId,
        /// The result in canonical form, only if results are stored and a pack can hold it.
        result_content: Option<Box<RawValue>>,
        /// Hash of the result, or of the error object, as it was sent; `null` without one.
        result_hash: Option<String>,
        /// MCP `isError`; `true` for a JSON-RPC error.
        result_is_error: Option<bool>,
        /// Members of `structuredContent`, in cleartext or as their hashes.
        result_redacted: Option<Box<RawValue>>,
        /// `complete`, `input_required`, `task`, another value as sent.
        result_type: Option<String>,
        /// [`PLAIN_SCHEMA`](super::receipt::PLAIN_SCHEMA), or [`OWN_REDACTED_SCHEMA`](super::receipt::OWN_REDACTED_SCHEMA) if its content is redacted.
        #[serde(deserialize_with = "super::schema::known_of_server")]
        schema_version: String,
        /// Position among the receipts of the recording.
        seq: u64,
        /// The server, as its author calls it.
        server_id: String,
        /// Wall clock of this receipt.
        timestamp: WallTime,
        /// Tool name as sent.
        tool_name: String,
        /// The recording.
        trace_id: SessionId,
        /// [`TOOL_EXECUTED`], or its dotted name.
        r#type: String,
    }
}

impl Execution {
    /// The same in the words of a proxy's receipt: a call with a result was forwarded.
    #[must_use]
    pub const fn of_call(self) -> Outcome {
        match self {
            Self::Success => Outcome::Forwarded,
            Self::Error => Outcome::Error,
            Self::Timeout => Outcome::Timeout,
        }
    }
}

impl ToolExecuted {
    /// Whether it says what a task came to, of a call that has its receipt.
    #[must_use]
    pub fn is_of_task(&self) -> bool {
        self.anomalies.iter().any(|a| *a == CallAnomaly::TaskLeg)
    }
}

line! {
    /// How many calls that a server was asked for have an outcome.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Coverage {
        /// Of those that were asked for: refused.
        denied: u64,
        /// Of those that were asked for: run.
        executed: u64,
        /// Of those that were asked for: neither.
        open: u64,
        /// Calls that were asked for.
        requested: u64,
    }
}

impl Coverage {
    /// The share of calls with an outcome, from 0 to 1; `None` if none was asked for.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.requested > 0).then(|| (self.executed + self.denied) as f64 / self.requested as f64)
    }
}
