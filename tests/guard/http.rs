//! The guard over HTTP, sentence by sentence: what passes, what is recorded, and what client and server are told.

use assay::{
    guard::{
        Session,
        http::{
            AnswerFacts, AnswerForm, AnswerHead, AnswerMessage, Header, HttpReply, HttpRuling, Pace, Passing,
            RequestFacts, begins_like_json, pace, request_too_large, review_answer, review_answer_head, review_request,
        },
    },
    model::Direction,
    record::rulings::RulingRecord,
};
use assay_support::guard::oracle::{self, POLICY};
use serde_json::{Value, json};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
const DENIED: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"rm"}}"#;

fn headers<'a>(all: &[(&'a str, &'a str)]) -> Vec<Header<'a>> {
    all.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

fn facts<'a>(headers: &'a [Header<'a>]) -> RequestFacts<'a> {
    RequestFacts { headers, captured: true }
}

/// The ruling on a request with these headers.
fn asked<'a>(all: &[(&str, &str)], body: &'a str, session: &Session) -> HttpRuling<'a> {
    review_request(&facts(&headers(all)), body.as_bytes(), session)
}

fn json_of(reply: &HttpReply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_else(|e| panic!("{e} {reply:?}"))
}

/// The reasons that are recorded.
fn reasons(ruling: &HttpRuling<'_>) -> Vec<String> {
    ruling.record().map_or_else(Vec::new, |r| r.decisions.iter().map(|d| d.reason.as_str().to_owned()).collect())
}

#[test]
fn what_is_allowed_passes_and_is_recorded() {
    let session = oracle::session(POLICY);
    let spread = CALL.replace(',', " ,\r\n\t");
    for body in [CALL, &spread, &format!("[{CALL},{CALL}]")] {
        let ruling = asked(&[("Mcp-Method", "tools/call"), ("Mcp-Name", "echo"), ("Accept", "*/*")], body, &session);
        assert!(ruling.passes() && ruling.reply().is_none() && ruling.upstream().is_none(), "{body}");
        let record = ruling.record().unwrap();
        assert_eq!((record.direction, record.offset, record.blocked), (Direction::ClientToServer, 0, false));
        assert!(record.policy.starts_with("sha256:") && record.ns > 0);
        assert_eq!(RulingRecord::from_bytes(&record.to_bytes()), Some(record));
        ruling.forwarded(&session, 1);
    }
    for body in ["", " \r\n ", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#] {
        let ruling = asked(&[("MCP-Protocol-Version", "2025-11-25")], body, &session);
        assert!(ruling.passes() && ruling.record().is_none(), "{body}: nothing has to be decided");
    }
}

#[test]
fn a_denied_request_is_answered_with_the_error_of_stdio() {
    let session = oracle::session(POLICY);
    let ruling = asked(&[("Accept", "application/json, text/event-stream")], DENIED, &session);
    let reply = ruling.reply().unwrap();
    assert_eq!((ruling.passes(), reply.status), (false, 200));
    assert_eq!(reply.content_type, "application/json");
    let said = json_of(&reply);
    assert_eq!((&said["id"], &said["error"]["code"]), (&json!(2), &json!(-32001)));
    assert_eq!(said["error"]["data"]["rule"], "denylist[1] (rm)");
    assert_eq!(reasons(&ruling), ["denylist"]);
    assert!(ruling.record().unwrap().blocked);
    let events = asked(&[("Accept", "text/event-stream")], DENIED, &session).reply().unwrap();
    assert_eq!((events.status, events.content_type), (200, "text/event-stream"));
    let expected = [b"event: message\ndata: ", &reply.body[..], b"\n\n"].concat();
    assert_eq!(events.body, expected);
}

#[test]
fn a_batch_passes_as_a_whole_or_not_at_all() {
    let session = oracle::session(POLICY);
    let batch = format!("[{CALL},{DENIED},{{\"method\":\"x\"}}]");
    let ruling = asked(&[], &batch, &session);
    let reply = ruling.reply().unwrap();
    let said = json_of(&reply);
    assert_eq!((reply.status, said.as_array().unwrap().len()), (200, 2));
    assert_eq!((&said[0]["id"], &said[1]["id"]), (&json!(1), &json!(2)));
    assert_eq!(reasons(&ruling), ["guard:batch", "denylist", "guard:batch"]);
}

#[test]
fn who_waits_for_no_answer_is_told_by_the_status() {
    let session = oracle::session(POLICY);
    let notification = r#"{"method":"tools/call","params":{"name":"rm"}}"#;
    let batch = format!("[{notification}]");
    for (body, reason) in [
        (notification, "denylist"),
        (batch.as_str(), "denylist"),
        (r#"{"id":"s","result":{}}"#, "guard:answers_nothing"),
    ] {
        let ruling = asked(&[("Accept", "text/event-stream")], body, &session);
        let reply = ruling.reply().unwrap();
        let said = json_of(&reply);
        assert_eq!((reply.status, said.get("id"), reasons(&ruling)[0].as_str()), (403, None, reason), "{body}");
        assert_eq!(said["error"]["code"], -32001);
        assert_eq!(reply.content_type, "application/json");
    }
}

#[test]
fn what_cannot_be_read_is_answered_without_an_id() {
    let session = oracle::session(POLICY);
    let hidden = format!("{{\"id\":1,\"method\":\"x\",\"params\":\n{DENIED}\n}}");
    for (body, status, id, code) in [
        ("noise", 400, json!(null), -32700),
        ("\u{feff}{}", 400, json!(null), -32700),
        ("{\"id\":1", 400, json!(null), -32700),
        ("7", 400, json!(null), -32600),
        ("{}", 400, json!(null), -32600),
        ("[]", 400, json!(null), -32600),
        (r#"{"id":{},"method":"x"}"#, 400, json!(null), -32600),
        // An id that can be read is waited for.
        (r#"{"id":5,"id":5,"method":"x"}"#, 200, json!(5), -32001),
        (&hidden, 200, json!(1), -32001),
    ] {
        let reply = asked(&[], body, &session).reply().unwrap();
        let said = json_of(&reply);
        assert_eq!((reply.status, &said["id"], &said["error"]["code"]), (status, &id, &json!(code)), "{body}");
    }
}

#[test]
fn headers_that_do_not_fit_the_body_are_refused_in_any_era_before_the_policy_is_asked() {
    let policy = "version: \"1\"\ndefault: allow\nconstraints:\n  echo:\n    max_calls: 1\n";
    let session = oracle::session(policy);
    let modern = CALL.replace(
        "\"name\":\"echo\"",
        "\"name\":\"echo\",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}",
    );
    for (all, body) in [
        (vec![("Mcp-Method", "tools/list")], CALL),
        (vec![("mcp-name", "rm")], CALL),
        (vec![("Mcp-Name", "=?base64?cm0=?=")], CALL),
        (vec![("MCP-Protocol-Version", "2025-11-25")], &modern),
        (vec![("Mcp-Method", "tools/call"), ("Mcp-Method", "tools/call")], CALL),
        (vec![("Mcp-Name", "echo"), ("Mcp_Name", "echo")], CALL),
        (vec![("MCP-Protocol-Version", "1"), ("MCP-Protocol-Version", "1")], CALL),
        (vec![("Mcp-Name", "echo"), ("Connection", "close, mcp-name")], CALL),
        (vec![("Connection", "Authorization")], CALL),
    ] {
        let ruling = asked(&all, body, &session);
        let reply = ruling.reply().unwrap();
        let said = json_of(&reply);
        assert_eq!((reply.status, &said["error"]["code"], &said["id"]), (400, &json!(-32020), &json!(1)), "{all:?}");
        assert_eq!(said["error"]["data"]["rule"], "guard.header_mismatch");
        assert_eq!(reasons(&ruling), ["guard:header_mismatch"]);
    }
    let twice = [("MCP-Protocol-Version", "1"), ("MCP-Protocol-Version", "2")];
    for (body, id) in [("", None), (r#"{"method":"x"}"#, None), (&format!("[{CALL}]"), Some(json!(1)))] {
        let reply = asked(&twice, body, &session).reply().unwrap();
        let said = json_of(&reply);
        let one = said.as_array().map_or(&said, |all| &all[0]);
        assert_eq!((reply.status, one.get("id"), &one["error"]["code"]), (400, id.as_ref(), &json!(-32020)), "{body}");
    }
    // None of these was a call.
    assert!(asked(&[("Mcp-Name", "=?base64?ZWNobw==?=")], CALL, &session).passes());
    assert!(!asked(&[], CALL, &session).passes());
}

#[test]
fn what_is_coded_or_not_utf8_is_not_read() {
    let session = oracle::session(POLICY);
    for (all, body, reason) in [
        (vec![("Content-Encoding", "gzip")], CALL.as_bytes(), "guard:encoded"),
        (vec![("Content-Encoding", "identity"), ("content-encoding", "br")], CALL.as_bytes(), "guard:encoded"),
        (vec![("Content-Type", "application/json; charset=utf-16le")], CALL.as_bytes(), "guard:invalid_utf8"),
        (vec![], &b"{\"id\":1,\"method\":\"\xff\"}"[..], "guard:invalid_utf8"),
    ] {
        let ruling = review_request(&facts(&headers(&all)), body, &session);
        let reply = ruling.reply().unwrap();
        assert_eq!((reply.status, reasons(&ruling)[0].as_str()), (415, reason), "{all:?}");
        assert_eq!(json_of(&reply)["id"], json!(null));
    }
    assert!(asked(&[("Content-Encoding", "identity")], CALL, &session).passes());
    assert!(asked(&[("Content-Encoding", "gzip")], "", &session).passes(), "there is nothing to read");
}

#[test]
fn what_is_too_long_is_refused_held_or_not() {
    let session = oracle::session(POLICY);
    let long = format!(r#"{{"id":1,"method":"x","params":"{}"}}"#, "y".repeat(70_000));
    let headers = headers(&[]);
    let facts = facts(&headers);
    for ruling in [asked(&[], &long, &session), request_too_large(&facts, &long.as_bytes()[..1000], &session)] {
        let reply = ruling.reply().unwrap();
        assert_eq!((reply.status, reasons(&ruling)[0].as_str()), (413, "guard:too_large"));
        assert_eq!(json_of(&reply)["id"], 1);
    }
    let reply = request_too_large(&facts, b"", &session).reply().unwrap();
    assert_eq!((reply.status, json_of(&reply).get("id")), (413, None));
}

#[test]
fn what_cannot_be_recorded_does_not_pass() {
    let session = oracle::session(POLICY);
    let mut ruling = asked(&[], CALL, &session);
    ruling.unrecorded(&session);
    let unseen = RequestFacts { headers: &[], captured: false };
    for ruling in [ruling, review_request(&unseen, CALL.as_bytes(), &session)] {
        let reply = ruling.reply().unwrap();
        assert_eq!((reply.status, &json_of(&reply)["id"]), (200, &json!(1)));
        assert_eq!(reasons(&ruling), ["guard:recorder_unavailable"]);
    }
    let ping = br#"{"id":1,"method":"ping"}"#;
    assert!(review_request(&unseen, ping, &session).passes(), "it needs no verdict");
}

#[test]
fn in_a_session_that_was_joined_midway_unknown_answers_pass() {
    let answer = r#"{"jsonrpc":"2.0","id":"s","result":{}}"#;
    let session = oracle::session(POLICY);
    assert!(!asked(&[], answer, &session).passes());
    let session = oracle::session(POLICY).joined_midway();
    for _ in 0..3 {
        let ruling = asked(&[], answer, &session);
        assert!(ruling.passes());
        ruling.forwarded(&session, 1);
    }
    assert!(!asked(&[], DENIED, &session).passes());
}

#[test]
fn the_head_of_an_answer_tells_what_is_looked_at() {
    let session = oracle::session(POLICY);
    let look = |status, all: &[(&str, &str)]| {
        let headers = headers(all);
        match review_answer_head(&AnswerFacts { status, headers: &headers }, &session) {
            AnswerHead::Passes(form) => Ok(form),
            AnswerHead::Refused(ruling) => {
                assert_eq!(reasons(&ruling), ["guard:encoded"]);
                assert_eq!((ruling.record().unwrap().direction, ruling.upstream()), (Direction::ServerToClient, None));
                Err((
                    ruling.reply().unwrap().status,
                    json_of(&ruling.reply().unwrap())["error"]["data"]["rule"].clone(),
                ))
            }
        }
    };
    assert_eq!(look(200, &[("content-type", "text/event-stream; charset=utf-8")]), Ok(AnswerForm::Events));
    assert_eq!(look(200, &[("Content-Type", "Application/JSON")]), Ok(AnswerForm::Json));
    assert_eq!(look(400, &[("Content-Type", "application/problem+json")]), Ok(AnswerForm::Json));
    assert_eq!(look(200, &[("Content-Type", "text/html")]), Ok(AnswerForm::Unknown));
    assert_eq!(look(200, &[]), Ok(AnswerForm::Unknown));
    assert_eq!(look(200, &[("Content-Encoding", "identity")]), Ok(AnswerForm::Unknown));
    for status in [101, 204, 304] {
        assert_eq!(look(status, &[("Content-Encoding", "gzip")]), Ok(AnswerForm::Nothing));
    }
    for coding in ["gzip", "br, identity", "zstd"] {
        assert_eq!(look(200, &[("Content-Encoding", coding)]), Err((502, json!("guard.encoded"))));
    }
    for (start, begins) in [
        ("", None),
        (" \r\n", None),
        ("\u{feff}", None),
        ("\u{feff} {", Some(true)),
        ("\n[", Some(true)),
        ("<html>", Some(false)),
        ("\"text\"", Some(false)),
    ] {
        assert_eq!(begins_like_json(start.as_bytes()), begins, "{start}");
    }
    assert_eq!(begins_like_json(b"\xef\xbb"), None);
}

fn message(text: &str, declared: bool) -> AnswerMessage<'_> {
    AnswerMessage { text: text.as_bytes(), offset: 77, declared, captured: true }
}

#[test]
fn a_denied_request_of_the_server_is_withheld_and_answered() {
    let sampling = r#"{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{}}"#;
    let session = oracle::session(POLICY);
    for declared in [true, false] {
        let ruling = review_answer(&message(sampling, declared), &session);
        let record = ruling.record().unwrap();
        assert!(!ruling.passes() && record.blocked);
        assert_eq!((record.direction, record.offset), (Direction::ServerToClient, 77));
        let error: Value = serde_json::from_slice(&ruling.upstream().unwrap()).unwrap();
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!("s1"), &json!(-32001)));
        let reply = ruling.reply().unwrap();
        assert_eq!((reply.status, json_of(&reply).get("id")), (502, None), "if it was all of the body");
    }
    let allowed = oracle::session("version: \"1\"\ndefault: deny\nallowlist: [sampling/createMessage]\n");
    let mut ruling = review_answer(&message(sampling, true), &allowed);
    assert!(ruling.passes() && ruling.record().is_some_and(|r| !r.blocked));
    ruling.forwarded(&allowed, 1);
    assert!(asked(&[], r#"{"id":"s1","result":{}}"#, &allowed).passes(), "its answer is awaited");
    ruling.unrecorded(&allowed);
    assert_eq!((ruling.passes(), ruling.reply().unwrap().status), (false, 502));
    let like = review_answer(&message(r#"{"id":1,"method":"Sampling/CreateMessage"}"#, true), &allowed);
    assert_eq!((like.passes(), reasons(&like)), (false, vec!["guard:bad_method".to_owned()]));
}

#[test]
fn elicitation_is_judged_only_where_the_policy_names_it() {
    let ask = r#"{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}"#;
    let like = r#"{"jsonrpc":"2.0","id":"e","method":"Elicitation/create","params":{}}"#;
    // What is decided: nothing, that it passes, that it does not.
    for (policy, decided) in [
        ("default: deny\n", None),
        ("default: deny\nallowlist: [\"*\"]\n", None),
        ("default: deny\nbudget:\n  max_tool_calls: 0\n", None),
        ("default: deny\nallowlist: [elicitation/create]\n", Some(true)),
        ("default: allow\n", None),
        ("default: allow\ndenylist: [elicitation/create]\n", Some(false)),
        ("default: allow\ndenylist: [\"elicitation/*\"]\n", Some(false)),
        ("default: allow\nconstraints:\n  elicitation/create:\n    max_calls: 0\n", Some(false)),
    ] {
        let session = oracle::session(&format!("version: \"1\"\n{policy}"));
        let ruling = review_answer(&message(ask, true), &session);
        assert_eq!(ruling.record().map(|r| !r.blocked), decided, "{policy}");
        assert_eq!(ruling.passes(), decided != Some(false), "{policy}");
        assert_eq!(review_answer(&message(like, true), &session).passes(), decided.is_none(), "{policy}");
    }
    // Without a recorder only what has to be judged is refused.
    let silent = AnswerMessage { captured: false, ..message(ask, true) };
    assert!(review_answer(&silent, &oracle::session(POLICY)).passes());
    let named = oracle::session("version: \"1\"\ndefault: allow\nallowlist: [elicitation/create]\n");
    assert!(!review_answer(&silent, &named).passes());
}

#[test]
fn what_does_not_claim_to_be_a_message_passes() {
    let session = oracle::session(POLICY);
    for (text, if_declared) in [
        (r#"{"detail":"Not Found"}"#, false),
        ("noise", false),
        ("{\"a\":", false),
        (r#"{"error":"invalid_token"}"#, true),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#, true),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":""}}"#, true),
        ("", true),
    ] {
        let ruling = review_answer(&message(text, false), &session);
        assert!(ruling.passes() && ruling.record().is_none(), "{text}");
        let ruling = review_answer(&message(text, true), &session);
        assert_eq!((ruling.passes(), ruling.upstream()), (if_declared, None), "{text}");
    }
}

#[test]
fn a_long_answer_passes_while_it_comes_and_a_long_request_does_not() {
    let session = oracle::session(POLICY);
    let pad = "x".repeat(4 << 20);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{pad}"}}"#);
    let ask = format!(r#"{{"jsonrpc":"2.0","method":"roots/list","params":"{pad}","id":"s"}}"#);
    for (text, held, last, expected) in [
        (&answer, 1 << 20, false, Pace::Hold),
        (&answer, (1 << 20) + 1, false, Pace::Stream),
        (&answer, 100, true, Pace::Stream),
        (&ask, (1 << 20) + 1, false, Pace::Hold),
        (&ask, (3 << 20) + 1, false, Pace::Refuse),
        (&ask, 100, true, Pace::Refuse),
    ] {
        assert_eq!(pace(&text.as_bytes()[..held], last), expected, "{held} {last}");
    }
    assert!(asked(&[], CALL, &session).passes());
    let whole = review_answer(&message(&answer, true), &session);
    assert!(whole.passes() && whole.record().is_none());
    let mut passing = Passing::begin(&ask.as_bytes()[..1 << 20]);
    passing.add(&ask.as_bytes()[1 << 20..]);
    let ruling = passing.refused(5, &session);
    assert_eq!((reasons(&ruling), ruling.record().unwrap().offset), (vec!["guard:too_large".to_owned()], 5));
    let error: Value = serde_json::from_slice(&ruling.upstream().unwrap()).unwrap();
    assert_eq!(error["id"], "s");
    passing.passed(&session);
    assert!(asked(&[], r#"{"id":"s","result":{}}"#, &session).passes(), "it asks something, and passed");
}
