//! The hand-written reader of receipts, from before the generated one: tests compare the two.

use super::event_line::typed;
use crate::model::{
    GapReceipt, InvocationId, Outcome, Phases, PolicyVerdict, ReceiptId, SessionEnd, SessionId, SessionStart, WallTime,
    cursor::JsonCursor,
    receipt::{INTEGRATION_SOURCE, PLAIN_SCHEMA, RECORDER_GAP, SESSION_END, SESSION_START},
};

/// A receipt of a session of ours. A call is by far the most frequent and is not boxed for it.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Receipt<'a> {
    /// `mcp_tool_call`
    Call(Call<'a>),
    /// `mcp.session_start`
    Start,
    /// `mcp.session_end`
    End,
    /// `mcp.recorder_gap`
    Gap,
}

/// What is compared of a tool call. Texts as in [`Event`](super::event_line::Event).
#[derive(Debug)]
pub struct Call<'a> {
    /// An array of strings, verbatim.
    pub anomalies: &'a [u8],
    /// A value, verbatim.
    pub arguments_content: &'a [u8],
    /// Hash of the value, `sha256:` or `sha256-raw:`.
    pub arguments_hash: &'a [u8],
    /// Round trip, microseconds.
    pub duration_us: Option<u64>,
    /// Id of the call.
    pub invocation: InvocationId,
    /// JSON-RPC id, verbatim.
    pub rpc_id: &'a [u8],
    /// A value, verbatim.
    pub meta: &'a [u8],
    /// What became of it.
    pub outcome: Outcome,
    /// Why there was no ordinary response, verbatim.
    pub outcome_reason: Option<&'a [u8]>,
    /// Receipt of the leg before.
    pub parent: Option<ReceiptId>,
    /// When each phase ended.
    pub phases: Phases,
    /// When the verdict was known.
    pub decided_at: Option<WallTime>,
    /// Hash of the policy.
    pub policy_hash: Option<&'a [u8]>,
    /// The word for the verdict.
    pub policy_reason: Option<&'a [u8]>,
    /// The rule that decided.
    pub policy_ref: Option<&'a [u8]>,
    /// What the policy says about the call.
    pub verdict: PolicyVerdict,
    /// Version of the recorder.
    pub proxy_version: &'a [u8],
    /// Id of this receipt.
    pub receipt_id: ReceiptId,
    /// When the request was read.
    pub request_at: WallTime,
    /// When the response was read.
    pub response_at: Option<WallTime>,
    /// A value, verbatim.
    pub result_content: &'a [u8],
    /// Hash of the value, `sha256:` or `sha256-raw:`.
    pub result_hash: Option<&'a [u8]>,
    /// `isError`.
    pub is_error: Option<bool>,
    /// `resultType`.
    pub result_type: Option<&'a [u8]>,
    /// Position in its file, from 0.
    pub seq: u64,
    /// The server's id.
    pub server_id: &'a [u8],
    /// How client and server talk; `stdio`.
    pub transport: &'a [u8],
    /// Id of the session.
    pub session: SessionId,
    /// When the receipt was made.
    pub timestamp: WallTime,
    /// Name of the tool.
    pub tool_name: &'a [u8],
    /// Id of the session.
    pub trace: SessionId,
}

/// Reads a line; `None` when it is not the canonical line of a receipt of ours.
#[must_use]
pub fn read(line: &[u8]) -> Option<Receipt<'_>> {
    call(line).map(Receipt::Call).or_else(|| framing(line))
}

/// The session's own receipts; there are few.
fn framing(line: &[u8]) -> Option<Receipt<'_>> {
    let constant = |a: &str, b: &str| a == INTEGRATION_SOURCE && b == PLAIN_SCHEMA;
    if let Some(r) = typed::<SessionStart>(line) {
        return (r.r#type == SESSION_START && constant(&r.integration_source, &r.schema_version))
            .then_some(Receipt::Start);
    }
    if let Some(r) = typed::<SessionEnd>(line) {
        return (r.r#type == SESSION_END && constant(&r.integration_source, &r.schema_version)).then_some(Receipt::End);
    }
    let r = typed::<GapReceipt>(line)?;
    (r.r#type == RECORDER_GAP && constant(&r.integration_source, &r.schema_version)).then_some(Receipt::Gap)
}

fn call(line: &[u8]) -> Option<Call<'_>> {
    let mut c = JsonCursor::new(line);
    c.lit(b"{\"anomalies\":")?;
    let anomalies = c.strings()?;
    c.lit(b",\"arguments_content\":")?;
    let arguments_content = c.value()?;
    c.lit(b",\"arguments_hash\":")?;
    let arguments_hash = c.digest()?;
    c.lit(b",\"duration_ms\":")?;
    let duration_us = c.opt(JsonCursor::millis)?;
    c.lit(b",\"integration_source\":\"assay.mcp_proxy\",\"invocation_id\":")?;
    let invocation = InvocationId::from_bits(c.id(b"inv_")?);
    c.lit(b",\"mcp_request_id\":")?;
    let rpc_id = c.rpc_id()?;
    c.lit(b",\"meta\":")?;
    let meta = c.value()?;
    c.lit(b",\"outcome\":")?;
    let outcome = outcome(c.string()?)?;
    c.lit(b",\"outcome_reason\":")?;
    let outcome_reason = c.opt(JsonCursor::string)?;
    c.lit(b",\"parent_receipt_id\":")?;
    let parent = c.opt(|c| c.id(b"mtc_").map(ReceiptId::from_bits))?;
    c.lit(b",\"phases_us\":")?;
    let phases = phases(&mut c)?;
    c.lit(b",\"policy_decided_at\":")?;
    let decided_at = c.opt(JsonCursor::time)?;
    c.lit(b",\"policy_hash\":")?;
    let policy_hash = c.opt(JsonCursor::string)?;
    c.lit(b",\"policy_reason\":")?;
    let policy_reason = c.opt(JsonCursor::string)?;
    c.lit(b",\"policy_ref\":")?;
    let policy_ref = c.opt(JsonCursor::string)?;
    c.lit(b",\"policy_verdict\":")?;
    let verdict = verdict(c.string()?)?;
    c.lit(b",\"proxy_version\":")?;
    let proxy_version = c.string()?;
    c.lit(b",\"receipt_id\":")?;
    let receipt_id = ReceiptId::from_bits(c.id(b"mtc_")?);
    c.lit(b",\"request_observed_at\":")?;
    let request_at = c.time()?;
    c.lit(b",\"response_observed_at\":")?;
    let response_at = c.opt(JsonCursor::time)?;
    c.lit(b",\"result_content\":")?;
    let result_content = c.value()?;
    c.lit(b",\"result_hash\":")?;
    let result_hash = c.opt(JsonCursor::digest)?;
    c.lit(b",\"result_is_error\":")?;
    let is_error = c.opt(JsonCursor::bool)?;
    c.lit(b",\"result_type\":")?;
    let result_type = c.opt(JsonCursor::string)?;
    c.lit(b",\"schema_version\":\"3.0\",\"seq\":")?;
    let seq = c.uint()?;
    c.lit(b",\"server_id\":")?;
    let server_id = c.string()?;
    c.lit(b",\"server_transport\":")?;
    let transport = c.string()?;
    c.lit(b",\"session_id\":")?;
    let session = SessionId::from_bits(c.id(b"mcp_")?);
    c.lit(b",\"timestamp\":")?;
    let timestamp = c.time()?;
    c.lit(b",\"tool_name\":")?;
    let tool_name = c.string()?;
    c.lit(b",\"trace_id\":")?;
    let trace = SessionId::from_bits(c.id(b"mcp_")?);
    c.lit(b",\"type\":\"mcp_tool_call\"}")?;
    c.end()?;
    Some(Call {
        anomalies,
        arguments_content,
        arguments_hash,
        duration_us,
        invocation,
        rpc_id,
        meta,
        outcome,
        outcome_reason,
        parent,
        phases,
        decided_at,
        policy_hash,
        policy_reason,
        policy_ref,
        verdict,
        proxy_version,
        receipt_id,
        request_at,
        response_at,
        result_content,
        result_hash,
        is_error,
        result_type,
        seq,
        server_id,
        transport,
        session,
        timestamp,
        tool_name,
        trace,
    })
}

fn phases(c: &mut JsonCursor<'_>) -> Option<Phases> {
    c.lit(b"{\"policy_decided\":")?;
    let policy_decided = c.opt(JsonCursor::uint)?;
    c.lit(b",\"request_forwarded\":")?;
    let request_forwarded = c.opt(JsonCursor::uint)?;
    c.lit(b",\"response_first_byte\":")?;
    let response_first_byte = c.opt(JsonCursor::uint)?;
    c.lit(b",\"response_forwarded\":")?;
    let response_forwarded = c.opt(JsonCursor::uint)?;
    c.lit(b",\"response_observed\":")?;
    let response_observed = c.opt(JsonCursor::uint)?;
    c.lit(b"}")?;
    Some(Phases { policy_decided, request_forwarded, response_first_byte, response_forwarded, response_observed })
}

fn outcome(text: &[u8]) -> Option<Outcome> {
    match text {
        b"forwarded" => Some(Outcome::Forwarded),
        b"denied" => Some(Outcome::Denied),
        b"error" => Some(Outcome::Error),
        b"timeout" => Some(Outcome::Timeout),
        _ => None,
    }
}

fn verdict(text: &[u8]) -> Option<PolicyVerdict> {
    match text {
        b"allowed" => Some(PolicyVerdict::Allowed),
        b"denied" => Some(PolicyVerdict::Denied),
        b"no_policy" => Some(PolicyVerdict::NoPolicy),
        _ => None,
    }
}
