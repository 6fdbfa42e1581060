//! JSON-RPC errors that a guard writes in the place of a server or a client.

use super::Refusal;
use crate::record::judge::Decision;
use serde::Serialize;
use serde_json::value::RawValue;

/// Code of the JSON-RPC error that a refused request is answered with.
pub const DENIED: i64 = -32001;
/// Code of the JSON-RPC error for a request whose headers do not fit its body.
pub const HEADER_MISMATCH: i64 = -32020;
/// Code of the JSON-RPC error for a request whose server ended before it answered.
pub const SERVER_GONE: i64 = -32000;
/// Code of the JSON-RPC error for what is not JSON, whose id cannot be read therefore (JSON-RPC 2.0 §5.1).
pub const NO_JSON: i64 = -32700;
/// Code of the JSON-RPC error for what is JSON but no message with an id that could be read (JSON-RPC 2.0 §5.1).
pub const INVALID: i64 = -32600;

#[derive(Serialize)]
struct Reply<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: i64,
    message: &'a str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    action: &'static str,
    policy_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
}

/// What the reply to one refused request is made of.
pub(super) struct Refused<'a> {
    /// Its raw id, if that can be read.
    pub(super) id: Option<&'a [u8]>,
    /// The decision on the request.
    pub(super) decision: &'a Decision,
    /// The message of the reply, for people.
    pub(super) message: &'a str,
}

impl<'a> Refused<'a> {
    pub(super) fn new(id: Option<&'a [u8]>, (decision, message): &'a (Decision, String)) -> Self {
        Self { id, decision, message }
    }
}

/// The replies to these requests: an array for a batch. `None` if there are none.
pub(super) fn denied(all: &[Refused<'_>], policy: &str, batch: bool) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for refused in all {
        let code = match refused.id {
            _ if is_by(refused.decision, &[Refusal::HeaderMismatch]) => HEADER_MISMATCH,
            Some(_) => DENIED,
            None => code_without_id(refused.decision),
        };
        add(&mut text, Some(refused.id.unwrap_or(b"null")), refused, code, policy);
    }
    if text.is_empty() {
        return None;
    }
    if batch {
        text.insert(0, b'[');
        text.push(b']');
    }
    Some(text)
}

/// The reply to who waits for no answer, over a transport that has one for everything: its id is `null` if the sender may
/// not know that, else it has none.
pub(super) fn unasked(refused: &Refused<'_>, policy: &str, null: bool) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let code = match () {
        () if is_by(refused.decision, &[Refusal::HeaderMismatch]) => HEADER_MISMATCH,
        () if null => code_without_id(refused.decision),
        () => DENIED,
    };
    add(&mut text, null.then_some(b"null"), refused, code, policy);
    Some(text).filter(|text| !text.is_empty())
}

/// Whether what is refused is no JSON.
pub(super) fn is_no_json(decision: &Decision) -> bool {
    is_by(decision, &[Refusal::Malformed, Refusal::ByteOrderMark, Refusal::Nul])
}

fn is_by(decision: &Decision, refusals: &[Refusal]) -> bool {
    let rule = decision.rule.as_deref().and_then(|rule| rule.strip_prefix("guard."));
    refusals.iter().any(|refusal| Some(refusal.as_str()) == rule)
}

fn add(text: &mut Vec<u8>, id: Option<&[u8]>, refused: &Refused<'_>, code: i64, policy: &str) {
    let by_guard = refused.decision.reason.starts_with("guard:");
    let by_surface = refused.decision.reason.starts_with("surface:");
    let by = match (by_guard, by_surface) {
        (true, _) => "refused by guard",
        (_, true) => "not approved",
        _ => "denied by policy",
    };
    let message = format!("{by}: {}", refused.message);
    let data = Data { action: "deny", policy_hash: policy, rule: refused.decision.rule.as_deref() };
    write(text, id, Error { code, message: &message, data });
}

/// JSON-RPC 2.0 §5.1 has a code for what has no id that could be read.
fn code_without_id(decision: &Decision) -> i64 {
    if is_no_json(decision) { NO_JSON } else { INVALID }
}

/// What answers a request whose server is gone.
pub(super) fn server_gone(id: &[u8], policy: &str) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let data = Data { action: "server_exited", policy_hash: policy, rule: None };
    write(&mut text, Some(id), Error { code: SERVER_GONE, message: "the server ended before it answered", data });
    Some(text).filter(|text| !text.is_empty())
}

fn write(text: &mut Vec<u8>, id: Option<&[u8]>, error: Error<'_>) {
    // An id that was read is one JSON value.
    let read = |id| std::str::from_utf8(id).ok().and_then(|id| serde_json::from_str::<&RawValue>(id).ok());
    let is_there = id.is_some();
    let id = id.and_then(read);
    if id.is_none() && is_there {
        return;
    }
    let Ok(reply) = serde_json::to_vec(&Reply { jsonrpc: "2.0", id, error }) else { return };
    if !text.is_empty() {
        text.push(b',');
    }
    text.extend_from_slice(&reply);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PolicyVerdict;

    #[test]
    fn a_denial_has_the_callers_id_and_says_by_what_rule() {
        let decision = Decision {
            index: None,
            verdict: PolicyVerdict::Denied,
            reason: "denylist".into(),
            rule: Some("denylist[0]".into()),
            unseen: Vec::new(),
        };
        let one = |id: &'static [u8]| Refused { id: Some(id), decision: &decision, message: "no" };
        let text = denied(&[one(b"9007199254740993")], "sha256:x", false).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"error\":{\"code\":-32001,\"message\":\"denied by policy: no\",\
             \"data\":{\"action\":\"deny\",\"policy_hash\":\"sha256:x\",\"rule\":\"denylist[0]\"}}}"
        );
        let batch = denied(&[one(b"1"), one(b"\"a\"")], "sha256:x", true).unwrap();
        let all: serde_json::Value = serde_json::from_slice(&batch).unwrap();
        assert_eq!((all[0]["id"].clone(), all[1]["id"].clone()), (1.into(), "a".into()));
        assert_eq!(denied(&[], "x", true), None);
    }

    #[test]
    fn what_has_no_id_is_answered_with_the_codes_of_json_rpc() {
        for (refusal, code) in [
            (Refusal::Malformed, -32700),
            (Refusal::ByteOrderMark, -32700),
            (Refusal::BadBatch, -32600),
            (Refusal::Shape, -32600),
        ] {
            let (decision, _) = super::super::refusal::refused(refusal, None);
            let line = denied(&[Refused { id: None, decision: &decision, message: "no" }], "sha256:x", false).unwrap();
            let reply: serde_json::Value = serde_json::from_slice(&line).unwrap();
            assert_eq!((reply["id"].clone(), reply["error"]["code"].as_i64()), (serde_json::Value::Null, Some(code)));
            assert_eq!(reply["error"]["data"]["rule"], format!("guard.{}", refusal.as_str()));
        }
    }
}
