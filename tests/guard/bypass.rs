//! The ways past a guard, with the server's own record as the judge.

use crate::session::{Guarded, got_by, receipts};
use assay::model::EventKind;
use assay_support::{
    guard::cases::{
        Told::{Nothing, Null, Rule},
        cases, line,
    },
    guard::lenient,
};
use serde_json::json;

#[test]
fn a_server_that_takes_anything_for_a_call_executes_only_what_is_allowed() {
    for (profile, is_kept_back) in [("guard", true), ("audit", false)] {
        let mut guarded = Guarded::lenient(profile);
        guarded.call(1, "echo");
        for (at, (_, text, _)) in cases().iter().enumerate() {
            guarded.raw(&line(text, 1000 + at));
        }
        guarded.call(2, "echo");
        let status = guarded.client.end();
        assert_eq!(status.code(), Some(1), "{}", guarded.client.said());
        let executed = crate::lenient_server::executed(&guarded.rig.server_log());
        let executed = std::fs::read_to_string(executed).unwrap();
        let all_allowed = executed.lines().all(|name| name == "echo");
        assert_eq!(all_allowed, is_kept_back, "{executed}");
    }
}

#[test]
fn no_way_past_the_guard_that_was_seen_in_the_wild() {
    let mut guarded = Guarded::guard();
    let cases = cases();
    guarded.call(1, "echo");
    for (at, (_, text, _)) in cases.iter().enumerate() {
        guarded.raw(&line(text, 1000 + at));
    }
    guarded.call(2, "echo");
    let read = guarded.server_read();
    let (session, _, client) = guarded.end(1);
    let got = got_by(&client);
    for (at, (name, _, told)) in cases.iter().enumerate() {
        let id = 1000 + at;
        let answers: Vec<_> =
            got.iter().filter(|m| m["id"] == json!(id) || m["id"] == json!(format!("s{id}"))).collect();
        match told {
            Nothing | Null(..) => assert!(answers.is_empty(), "{name}: {answers:?}"),
            Rule(rule) => {
                assert_eq!(answers.len(), 1, "{name}: {answers:?}");
                let error = &answers[0]["error"];
                assert_eq!(
                    (error["code"].as_i64(), error["data"]["action"].as_str()),
                    (Some(-32001), Some("deny")),
                    "{name}"
                );
                assert_eq!(error["data"]["rule"], *rule, "{name}: {error}");
                assert!(error["data"]["policy_hash"].as_str().unwrap().starts_with("sha256:"));
                assert!(!error["message"].as_str().unwrap().is_empty());
            }
        }
    }
    // What has no id is answered in the order in which it was sent.
    let without_id: Vec<_> = got
        .iter()
        .filter(|m| m.get("id").is_some_and(serde_json::Value::is_null))
        .map(|m| (m["error"]["code"].as_i64(), m["error"]["data"]["rule"].as_str().map(str::to_owned)))
        .collect();
    let expected: Vec<_> = cases
        .iter()
        .filter_map(|(_, _, told)| match told {
            Null(code, rule) => Some((Some(*code), Some((*rule).to_owned()))),
            _ => None,
        })
        .collect();
    assert_eq!(without_id, expected);
    let lines: Vec<_> = read.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()).collect();
    assert_eq!(lines.len(), 3, "{}", String::from_utf8_lossy(&read));
    // Everything is in the evidence: as a blocked request or message, or as a malformed line that says so.
    let blocked = session.count(EventKind::RequestBlocked) + session.count(EventKind::Malformed);
    assert!(blocked >= cases.len(), "{blocked} of {}", cases.len());
    let all = receipts(&session);
    assert_eq!(all.iter().filter(|r| r["outcome"] == "forwarded").count(), 2);
    for receipt in all.iter().filter(|r| r["outcome"] == "denied") {
        assert_eq!(receipt["policy_verdict"], "denied");
        assert!(
            receipt["duration_ms"].is_null()
                && receipt["result_hash"].is_null()
                && receipt["response_observed_at"].is_null()
        );
        assert!(receipt["policy_decided_at"].is_string() && receipt["policy_hash"].is_string(), "{receipt}");
        assert!(receipt["phases_us"]["request_forwarded"].is_null());
    }
    assert!(all.iter().filter(|r| r["outcome"] == "denied").count() > 20);
    assert_eq!(session.doc.counts.denied, session.doc.counts.policy_denied);
    assert!(lenient::calls(&read).iter().all(|name| name == "echo"));
}

#[test]
fn what_is_allowed_arrives_as_it_was_sent() {
    let mut guarded = Guarded::guard();
    let body = br#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo"},"x":1}"#;
    let framed = [format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    let lines: [&[u8]; 9] = [
        b"{ \"jsonrpc\" : \"2.0\" , \"id\" : 1e0 , \"method\":\"tools\\/call\", \"params\":{\"arguments\":{\"a\":\"\\u00e9\\/\"},\"name\":\"e\\u0063ho\"}}\r\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"n\":18446744073709551616,\"t\":\"\xe2\x80\xa8 text {a: [tools, call]}\"}}}\n",
        b"[{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}]\n",
        b"\n",
        b"  \r\n",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}\n",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7}}\n",
        &framed,
        b"\n{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"vendor/own\",\"params\":{\"Method\":\"x\",\"name\":1,\"Name\":2}}\n",
    ];
    let before = guarded.server_read().len();
    let all = lines.concat();
    // In pieces that are not messages.
    for piece in all.chunks(7) {
        guarded.raw(piece);
    }
    guarded.call(77, "echo");
    let read = guarded.server_read();
    assert_eq!(String::from_utf8_lossy(&read[before..before + all.len()]), String::from_utf8_lossy(&all));
    let (session, ..) = guarded.end(0);
    let tools = receipts(&session);
    assert_eq!(tools.len(), 6, "{tools:?}");
    assert!(tools.iter().all(|r| r["policy_verdict"] == "allowed" && r["policy_reason"] == "allowlist"));
}

#[test]
fn every_request_of_a_batch_that_is_too_long_is_answered() {
    let mut guarded = Guarded::guard();
    let elements: Vec<String> = (0..300)
        .map(|id| {
            if id % 10 == 9 {
                r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.to_owned()
            } else {
                assay_support::rig::call(1000 + id, "echo", id)
            }
        })
        .collect();
    guarded.raw(format!("[{}]\n", elements.join(",")).as_bytes());
    guarded.call(2, "echo");
    let read = guarded.server_read();
    let (session, _, client) = guarded.end(1);
    let got = got_by(&client);
    let refused: Vec<_> = got.iter().filter(|m| m["error"]["data"]["rule"] == "guard.bad_batch").collect();
    assert_eq!(refused.len(), 270);
    for id in (0..300).filter(|id| id % 10 != 9) {
        assert!(refused.iter().any(|m| m["id"] == 1000 + id && m["error"]["code"] == -32001), "{id}");
    }
    assert_eq!(read.split(|b| *b == b'\n').filter(|l| !l.is_empty()).count(), 2, "{}", read.escape_ascii());
    assert!(receipts(&session).iter().all(|r| (r["outcome"] == "denied") != (r["mcp_request_id"] == 2)));
}

#[test]
fn no_more_answers_than_that_are_written_for_one_line() {
    let mut guarded = Guarded::guard();
    let elements = vec![r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#; 10_000];
    guarded.raw(format!("[{}]\n", elements.join(",")).as_bytes());
    guarded.call(2, "echo");
    let (.., client) = guarded.end(1);
    let got = got_by(&client);
    let refused: Vec<_> = got.iter().filter(|m| m["error"]["data"]["rule"] == "guard.bad_batch").collect();
    assert_eq!(refused.iter().filter(|m| m["id"] == 7).count(), 4096);
    assert_eq!(refused.iter().filter(|m| m["id"].is_null() && m["error"]["code"] == -32600).count(), 1);
}
