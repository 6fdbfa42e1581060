//! Spans in the JSON of OpenTelemetry (OTLP 1.x, `ExportTraceServiceRequest`): one for the session, and one for each call,
//! with the attributes that the semantic conventions name for clients of MCP.
//!
//! A call whose request had a `traceparent` stands in that trace, and its parent is the span that made it; every other call is in
//! the trace of its session. Ids are lower-case hex, and 64-bit integers are texts, as OTLP's JSON mapping demands.

use super::Export;
use crate::{
    canon,
    model::{Outcome, WallTime, line, receipt::CallMembers},
    pack::stored::Call,
};
use serde_json::{Value, json};

/// `SPAN_KIND_CLIENT`.
const CLIENT: u8 = 3;
/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// Attributes with a value, in the form of OTLP.
fn attributes<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    let valued = all.into_iter().filter_map(|(key, value)| Some(json!({"key": key, "value": value?})));
    valued.collect()
}

/// A text, if there is one.
fn text<'a>(text: impl Into<Option<&'a str>>) -> Option<Value> {
    text.into().map(|text| json!({"stringValue": text}))
}

/// The first hex digits of a hash: an id that is the same in every export.
fn id(of: &str, digits: usize) -> String {
    canon::sha256_hex(of.as_bytes())[..digits].to_owned()
}

fn nanos(at: &str) -> Option<u64> {
    u64::try_from(WallTime::parse(at)?.millis()).ok()?.checked_mul(1_000_000)
}

/// Trace and span of a `traceparent` (W3C Trace Context).
fn parent(meta: Option<&[u8]>) -> Option<(String, String)> {
    let text = line::text(line::member(meta?, "traceparent"))?;
    let mut parts = text.split('-').skip(1);
    let mut hex = |len: usize| {
        let part = parts.next()?;
        let is_id = part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (is_id && part.bytes().any(|b| b != b'0')).then(|| part.to_owned())
    };
    Some((hex(32)?, hex(16)?))
}

/// The document.
#[must_use]
pub fn document(export: &Export<'_>) -> String {
    let source = &export.source;
    let session = export.stored.session.as_ref();
    let name = source.session_id.clone().unwrap_or_default();
    let (trace, root) = (id(&format!("{name}:trace"), 32), id(&format!("{name}:span"), 16));
    let mut spans = Vec::new();
    if let Some(session) = session {
        let (from, to) = (nanos(&session.started_at.to_string()), nanos(&session.ended_at.to_string()));
        spans.push(json!({
            "traceId": trace, "spanId": root, "name": "mcp.session", "kind": INTERNAL,
            "startTimeUnixNano": from.unwrap_or_default().to_string(),
            "endTimeUnixNano": to.unwrap_or_default().to_string(),
            "attributes": attributes([
                ("mcp.session.id", text(name.as_str())),
                ("mcp.protocol.version", text(session.protocol_version.as_deref())),
                ("network.transport", text(if session.http.is_some() { "tcp" } else { "pipe" })),
                ("assay.session.complete", Some(json!({"boolValue": session.session_complete}))),
                ("assay.session.end_reason", text(session.end_reason.to_string().as_str())),
            ]),
        }));
    }
    let version = session.and_then(|s| s.protocol_version.clone());
    spans.extend(export.calls.iter().map(|call| span(call, &trace, &root, version.as_ref())));
    let info = session.and_then(|s| s.server_info.as_ref());
    let resource = attributes([
        ("service.name", text(session.map_or("mcp-server", |s| s.server_id.as_str()))),
        ("service.version", info.and_then(|i| text(i.version.as_deref()))),
        ("assay.note", text(source.note)),
        ("assay.pack.id", text(source.pack_id.as_deref())),
        ("assay.pack.manifest_sha256", text(source.pack_manifest_sha256.as_deref())),
        ("assay.pack.root_sha256", text(source.pack_root_sha256.as_deref())),
        ("assay.pack.signer", text(source.signer.as_deref())),
        ("assay.pack.integrity", text(source.integrity)),
        ("assay.pack.completeness", text(source.completeness)),
        ("assay.filter", text(source.filter.as_deref())),
    ]);
    let scope = json!({"name": "assay", "version": env!("CARGO_PKG_VERSION")});
    json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"scope": scope, "spans": spans}]}]})
        .to_string()
}

fn span(call: &Call, trace: &str, root: &str, version: Option<&String>) -> Value {
    let members = CallMembers::of_line(&call.line).unwrap_or_default();
    let given = parent(members.meta);
    let (trace, over) = given.clone().unwrap_or_else(|| (trace.to_owned(), root.to_owned()));
    let start = nanos(&call.asked_at).unwrap_or_default();
    let took = call.took.and_then(|took| u64::try_from(took.as_nanos()).ok()).unwrap_or_default();
    let code = call.result.as_deref().filter(|_| call.is_rpc_error()).and_then(|body| line::member(body, "code"));
    let code = code.and_then(|raw| std::str::from_utf8(raw).ok()).map(str::to_owned);
    let failed = call.outcome.is_some_and(|outcome| outcome != Outcome::Forwarded);
    // The name that the conventions have for a tool that answered with an error.
    let kind = code.clone().or_else(|| call.outcome_reason.clone()).or_else(|| match call.outcome {
        Some(Outcome::Error) => Some("tool_error".to_owned()),
        Some(Outcome::Forwarded) | None => None,
        Some(outcome) => Some(outcome.as_str().to_owned()),
    });
    let rpc_id = members.mcp_request_id.filter(|raw| *raw != b"null");
    let rpc_id = rpc_id.map(|raw| line::text(Some(raw)).unwrap_or_else(|| String::from_utf8_lossy(raw)).into_owned());
    let mut span = json!({
        "traceId": trace, "spanId": id(&call.receipt_id, 16), "parentSpanId": over,
        "name": format!("tools/call {}", call.tool), "kind": CLIENT,
        "startTimeUnixNano": start.to_string(), "endTimeUnixNano": start.saturating_add(took).to_string(),
        "attributes": attributes([
            ("mcp.method.name", text("tools/call")),
            ("mcp.protocol.version", text(version.map(String::as_str))),
            ("gen_ai.operation.name", text("execute_tool")),
            ("gen_ai.tool.name", text(call.tool.as_str())),
            ("jsonrpc.request.id", text(rpc_id.as_deref())),
            ("rpc.response.status_code", text(code.as_deref())),
            ("error.type", text(kind.as_deref())),
            ("assay.outcome", call.outcome.and_then(|o| text(o.as_str()))),
            ("assay.policy.verdict", call.verdict.and_then(|v| text(v.as_str()))),
            ("assay.policy.reason", text(call.policy_reason.as_deref())),
            ("assay.arguments_hash", text(call.arguments_hash.as_str())),
            ("assay.result_hash", text(call.result_hash.as_deref())),
            ("assay.receipt_id", text(call.receipt_id.as_str())),
        ]),
    });
    if failed {
        span["status"] = json!({"code": ERROR, "message": kind.unwrap_or_default()});
    }
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_parent_is_taken_only_whole() {
        let of = |text: &str| parent(Some(json!({"traceparent": text}).to_string().as_bytes()));
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        assert_eq!(of(&format!("00-{trace}-{span}-01")), Some((trace.into(), span.into())));
        for broken in ["", "00", "00-xyz-1-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert_eq!(of(broken), None, "{broken}");
        }
        assert_eq!((parent(None), parent(Some(b"null"))), (None, None));
    }
}
