//! Receipts: one per tool call, and those that frame a session (FORMATS §3).

pub use super::schema::SCHEMA_VERSION;

use super::words::{EndReason, GapReason, OutcomeReason, Word};
use super::{DurationMs, InvocationId, ReceiptId, RpcId, SessionId, WallTime};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Forwarded, and an ordinary response came.
    Forwarded,
    /// Guard mode refused it.
    Denied,
    /// A JSON-RPC error, or a result with `isError: true`.
    Error,
    /// No response came; `outcome_reason` says why.
    Timeout,
}

/// The policy's verdict, whatever the profile did with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyVerdict {
    /// The policy permits the call.
    Allowed,
    /// The policy rejects it.
    Denied,
    /// No policy was loaded.
    NoPolicy,
}

/// The proxy's security profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Observe only.
    Audit,
    /// Enforce the policy.
    Guard,
}

/// Microseconds after `request_observed_at`, monotonic; `null` where it did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// The policy's verdict stood.
    pub policy_decided: Option<u64>,
    /// The request's last byte was written to the server.
    pub request_forwarded: Option<u64>,
    /// The response's first byte was read.
    pub response_first_byte: Option<u64>,
    /// The response's last byte was written to the client.
    pub response_forwarded: Option<u64>,
    /// The response's last byte was read.
    pub response_observed: Option<u64>,
}

/// `mcp_tool_call`: one tool call, or one leg of it. All members always present.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Sorted machine words.
    pub anomalies: Vec<String>,
    /// The arguments in canonical form, only with `--store-args` and where a pack can hold them.
    pub arguments_content: Option<Box<RawValue>>,
    /// `sha256:` or `sha256-raw:` (FORMATS §2).
    pub arguments_hash: String,
    /// Round trip on the monotonic clock, milliseconds.
    pub duration_ms: Option<DurationMs>,
    /// [`INTEGRATION_SOURCE`].
    pub integration_source: String,
    /// The call.
    pub invocation_id: InvocationId,
    /// JSON-RPC id.
    pub mcp_request_id: RpcId,
    /// Self-reported correlation members of `params._meta`, canonical.
    pub meta: Option<Box<RawValue>>,
    /// What became of it.
    pub outcome: Outcome,
    /// Why there was no ordinary response.
    pub outcome_reason: Option<Word<OutcomeReason>>,
    /// Receipt of the leg before.
    pub parent_receipt_id: Option<ReceiptId>,
    /// Phase timings.
    pub phases_us: Phases,
    /// Wall clock of the verdict.
    pub policy_decided_at: Option<WallTime>,
    /// SHA-256 of the active policy file.
    pub policy_hash: Option<String>,
    /// Short machine word for the verdict.
    pub policy_reason: Option<String>,
    /// The rule that matched.
    pub policy_ref: Option<String>,
    /// The verdict.
    pub policy_verdict: PolicyVerdict,
    /// Version of the recorder.
    pub proxy_version: String,
    /// This receipt.
    pub receipt_id: ReceiptId,
    /// Wall clock when the request's last byte was read.
    pub request_observed_at: WallTime,
    /// Wall clock when the response's last byte was read.
    pub response_observed_at: Option<WallTime>,
    /// The result in canonical form, only with `--store-results` and where a pack can hold it.
    pub result_content: Option<Box<RawValue>>,
    /// Hash of the result, or of the error body.
    pub result_hash: Option<String>,
    /// MCP `isError`; `true` for a JSON-RPC error.
    pub result_is_error: Option<bool>,
    /// `complete`, `input_required`, `task`, another value as sent.
    pub result_type: Option<String>,
    /// [`SCHEMA_VERSION`].
    #[serde(deserialize_with = "super::schema::known")]
    pub schema_version: String,
    /// Position among the session's receipts.
    pub seq: u64,
    /// Server id.
    pub server_id: String,
    /// `stdio`.
    pub server_transport: String,
    /// The session.
    pub session_id: SessionId,
    /// Wall clock of this receipt.
    pub timestamp: WallTime,
    /// Tool name as sent.
    pub tool_name: String,
    /// The session again: one value per pack.
    pub trace_id: SessionId,
    /// [`TOOL_CALL`].
    pub r#type: String,
}

/// A client or server as it names itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerInfo {
    /// `clientInfo.name`, `serverInfo.name`.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
}

/// Counts over a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Tool call receipts.
    pub calls: u64,
    /// Of these, denied.
    pub denied: u64,
    /// Of these, errors.
    pub errors: u64,
    /// Lines that were no JSON-RPC message.
    pub malformed: u64,
    /// Messages whose evidence was lost.
    pub missed: u64,
    /// Wire bytes that crossed unrecorded.
    pub missed_bytes: u64,
    /// Receipts whose policy verdict is `denied`, enforced or not.
    pub policy_denied: u64,
    /// Recorded requests of any method, both directions.
    pub requests: u64,
    /// Calls without a response.
    pub timeouts: u64,
}

/// `mcp.session_start`, seq 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionStart {
    /// `hash` of the `chain_start` event.
    pub chain_head: String,
    /// The client as it names itself; `null` when it had not yet.
    pub client_info: Option<PeerInfo>,
    /// SHA-256 of the server command.
    pub command_digest: String,
    /// The session before this one in the same process.
    pub continues: Option<SessionId>,
    /// [`INTEGRATION_SOURCE`].
    pub integration_source: String,
    /// SHA-256 of the active policy file.
    pub policy_hash: Option<String>,
    /// Profile.
    pub profile: Profile,
    /// Protocol version agreed, or last asked for per message (modern).
    pub protocol_version: Option<String>,
    /// Version of the recorder.
    pub proxy_version: String,
    /// This receipt.
    pub receipt_id: ReceiptId,
    /// [`SCHEMA_VERSION`].
    #[serde(deserialize_with = "super::schema::known")]
    pub schema_version: String,
    /// 0.
    pub seq: u64,
    /// Server id.
    pub server_id: String,
    /// The server as it names itself.
    pub server_info: Option<PeerInfo>,
    /// `stdio`.
    pub server_transport: String,
    /// The session.
    pub session_id: SessionId,
    /// When the session began.
    pub started_at: WallTime,
    /// Wall clock of this receipt.
    pub timestamp: WallTime,
    /// The session again.
    pub trace_id: SessionId,
    /// [`SESSION_START`].
    pub r#type: String,
}

/// `mcp.session_end`, last seq.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionEnd {
    /// `hash` of the `chain_end` event.
    pub chain_hash: String,
    /// Counts.
    pub counts: Counts,
    /// Why the session ended.
    pub end_reason: Word<EndReason>,
    /// [`INTEGRATION_SOURCE`].
    pub integration_source: String,
    /// Version of the recorder.
    pub proxy_version: String,
    /// This receipt.
    pub receipt_id: ReceiptId,
    /// [`SCHEMA_VERSION`].
    #[serde(deserialize_with = "super::schema::known")]
    pub schema_version: String,
    /// Last.
    pub seq: u64,
    /// Whether everything was recorded and every call ended.
    pub session_complete: bool,
    /// The session.
    pub session_id: SessionId,
    /// Wall clock of this receipt.
    pub timestamp: WallTime,
    /// The session again.
    pub trace_id: SessionId,
    /// [`SESSION_END`].
    pub r#type: String,
}

/// `mcp.recorder_gap`: evidence that is missing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GapReceipt {
    /// Wire bytes that crossed unrecorded.
    pub bytes: u64,
    /// [`INTEGRATION_SOURCE`].
    pub integration_source: String,
    /// Messages whose evidence was lost.
    pub messages: u64,
    /// `disk`, `capture_stuck`, `fsync`, `crash`.
    pub reason: Word<GapReason>,
    /// This receipt.
    pub receipt_id: ReceiptId,
    /// [`SCHEMA_VERSION`].
    #[serde(deserialize_with = "super::schema::known")]
    pub schema_version: String,
    /// Position among the session's receipts.
    pub seq: u64,
    /// The session.
    pub session_id: SessionId,
    /// Wall clock of this receipt.
    pub timestamp: WallTime,
    /// The session again.
    pub trace_id: SessionId,
    /// [`RECORDER_GAP`].
    pub r#type: String,
}
