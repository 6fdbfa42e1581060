//! The exchanges of a session over HTTP as an HTTP Archive 1.2, for the tools of browsers.
//!
//! A pack has no bodies and, of most headers, only names. So bodies are put together from stored arguments and results, and say
//! so in a `comment`; a header whose value is not recorded has none.

use super::{Export, said};
use crate::{
    model::{WallTime, event::EventMembers, line, pack::AUDIT_LOG, receipt::CallMembers},
    pack::{
        calls::{self, CallsError},
        stored::Call,
        verify::source::PackDir,
    },
};
use serde_json::{Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

/// What the events of a session say of one exchange.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// When the first of its events happened, and on the session's clock (µs).
    began: Option<(String, u64)>,
    /// When it was over, or the session.
    ended: Option<(String, u64)>,
    /// Ids of the requests that crossed in it.
    invocations: Vec<String>,
    /// The detail of its `http_exchange`.
    detail: Value,
}

/// The exchanges of a pack, in the order of their numbers.
///
/// # Errors
/// [`CallsError`].
pub fn exchanges(dir: &PackDir) -> Result<Vec<Exchange>, CallsError> {
    let mut all = BTreeMap::<u64, Exchange>::new();
    calls::lines(dir, AUDIT_LOG, |event| {
        let Some(m) = EventMembers::of_line(event.bytes) else { return };
        let detail: Value = m.detail.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
        let (Some(number), Some(at)) = (detail["exchange"].as_u64(), line::text(m.at)) else { return };
        let when = (at.into_owned(), line::number(m.mono_us).unwrap_or_default());
        let one = all.entry(number).or_default();
        match line::text(m.event).as_deref() {
            Some("http_exchange") => {
                one.ended = Some(when);
                one.detail = detail;
                return;
            }
            Some("request_received") => one.invocations.extend(line::text(m.invocation_id).map(Cow::into_owned)),
            _ => {}
        }
        one.began.get_or_insert(when);
    })?;
    Ok(all.into_values().filter(|one| one.detail.is_object()).collect())
}

/// The document: every exchange, or those that carried one of the exported calls if a filter chose them.
#[must_use]
pub fn document(export: &Export<'_>, exchanges: &[Exchange]) -> String {
    let calls: HashMap<&str, &Call> = export.calls.iter().map(|call| (call.invocation_id.as_str(), *call)).collect();
    // Over a bridge requests cross on stdio, and an exchange names the ids of those that it carries.
    let by_rpc_id: HashMap<String, &Call> =
        export.calls.iter().filter_map(|call| Some((rpc_id(call)?.to_string(), *call))).collect();
    let of = |one: &Exchange| {
        let carried = one.detail["carries"].as_array().into_iter().flatten();
        let carried = carried.filter_map(|id| by_rpc_id.get(&id.to_string()).copied());
        one.invocations.iter().filter_map(|id| calls.get(id.as_str()).copied()).chain(carried).collect::<Vec<_>>()
    };
    let chosen = exchanges.iter().map(|one| (one, of(one)));
    let chosen = chosen.filter(|(_, calls)| export.source.filter.is_none() || !calls.is_empty());
    let entries: Vec<Value> = chosen.map(|(one, calls)| entry(export, one, &calls)).collect();
    json!({"log": {
        "version": "1.2",
        "creator": {"name": "assay", "version": env!("CARGO_PKG_VERSION")},
        "comment": export.source.note,
        "_assay": export.source,
        "entries": entries,
    }})
    .to_string()
}

fn rpc_id(call: &Call) -> Option<Value> {
    serde_json::from_slice(CallMembers::of_line(&call.line)?.mcp_request_id?).ok()
}

fn entry(export: &Export<'_>, one: &Exchange, calls: &[&Call]) -> Value {
    let d = &one.detail;
    let (began, from_us) = one.began.clone().or_else(|| one.ended.clone()).unwrap_or_default();
    let (_, to_us) = one.ended.clone().unwrap_or_default();
    let ms = |us: u64| us as f64 / 1000.0;
    let time = ms(to_us.saturating_sub(from_us));
    let wait = d["response"]["head_us"].as_u64().map_or(time, |us| ms(us.saturating_sub(from_us)).min(time));
    let version = |who: &str| if d[who] == "h2" { "HTTP/2" } else { "HTTP/1.1" };
    let request = &d["request"];
    let mut out = json!({
        "startedDateTime": WallTime::parse(&began).map_or(began, |at| at.to_string()),
        "time": time,
        "request": {
            "method": d["method"], "url": url(export, d), "httpVersion": version("downstream"), "cookies": [],
            "headers": headers(request), "queryString": query(d),
            "headersSize": -1, "bodySize": request["bytes"].as_i64().unwrap_or(-1),
        },
        "response": response(d, calls, version("upstream")),
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": time - wait},
        "comment": format!("exchange {}, ended: {}", d["exchange"], d["ended"].as_str().unwrap_or("open")),
    });
    if d["method"] == "POST" && !calls.is_empty() {
        out["request"]["postData"] = body(request, &calls.iter().filter_map(|call| asked(call)).collect::<Vec<_>>());
    }
    out
}

fn url(export: &Export<'_>, d: &Value) -> String {
    let http = export.stored.session.as_ref().and_then(|session| session.http.as_ref());
    let known = http.and_then(|http| http.endpoint.url.as_deref()).unwrap_or("http://not-recorded.invalid");
    let after = known.find("://").map_or(0, |at| at + 3);
    let origin = &known[..known[after..].find('/').map_or(known.len(), |at| after + at)];
    let path = d["target"]["path"].as_str().unwrap_or_default();
    // A path that is only known by its digest.
    let path = path.strip_prefix('#').map_or_else(|| path.to_owned(), |digest| format!("/not-recorded/{digest}"));
    let query: Vec<String> =
        query(d).iter().map(|one| format!("{}=", one["name"].as_str().unwrap_or_default())).collect();
    format!("{origin}{path}{}{}", if query.is_empty() { "" } else { "?" }, query.join("&"))
}

fn query(d: &Value) -> Vec<Value> {
    let names = d["target"]["query"].as_array().into_iter().flatten();
    names.map(|name| json!({"name": name, "value": "", "comment": "the value is not recorded"})).collect()
}

fn headers(side: &Value) -> Vec<Value> {
    let names = side["headers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let one = |name: &str| match side["values"][name.to_ascii_lowercase()].as_str() {
        Some(value) => json!({"name": name, "value": value}),
        None => json!({"name": name, "value": "", "comment": "the value is not recorded"}),
    };
    names.map(one).collect()
}

fn kind(side: &Value) -> &str {
    side["values"]["content-type"].as_str().unwrap_or("application/json")
}

/// A body, put together from what was stored.
fn body(side: &Value, texts: &[String]) -> Value {
    let sha256 = side["sha256"].as_str().unwrap_or("not known");
    json!({
        "mimeType": kind(side), "params": [], "text": texts.join("\n"),
        "comment": format!("put together from receipts; SHA-256 of the body that crossed: {sha256}"),
    })
}

/// The request of a call, as far as it is known.
fn asked(call: &Call) -> Option<String> {
    let arguments = said(call.arguments.as_ref())?;
    let named = json!(call.tool);
    Some(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{{\"arguments\":{arguments},\"name\":{named}}}}}"
    ))
}

fn response(d: &Value, calls: &[&Call], version: &str) -> Value {
    let response = &d["response"];
    let answered = |call: &&Call| {
        let name = if call.is_rpc_error() { "error" } else { "result" };
        Some(format!("{{\"jsonrpc\":\"2.0\",\"{name}\":{}}}", said(call.result.as_ref())?))
    };
    let bytes = response["bytes"].as_i64();
    let mut content = json!({"size": bytes.unwrap_or(0), "mimeType": kind(response)});
    let texts: Vec<String> = calls.iter().filter_map(answered).collect();
    if !texts.is_empty() {
        let built = body(response, &texts);
        (content["text"], content["comment"]) = (built["text"].clone(), built["comment"].clone());
    }
    json!({
        // HAR has 0 where there was no answer.
        "status": response["status"].as_u64().unwrap_or(0), "statusText": "", "httpVersion": version, "cookies": [],
        "headers": headers(response), "content": content, "redirectURL": "",
        "headersSize": -1, "bodySize": bytes.unwrap_or(-1),
    })
}
