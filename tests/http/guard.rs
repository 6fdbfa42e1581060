//! `assay mcp-proxy --profile guard --listen` as a process: what reaches the server, what a client is told, and what is
//! in the packs.

use crate::{
    process::{ALL, Process as Guard, answer, call, json_of, result, verdicts},
    rig::Server,
};
use serde_json::{Value, json};

const POLICY: &str =
    "version: \"1\"\ndefault: allow\ndenylist: [rm, sampling/createMessage]\nconstraints:\n  once:\n    max_calls: 1\n";

#[test]
fn a_denied_call_is_answered_here_and_recorded() {
    let server = Server::start();
    let guard = Guard::guard(&server, POLICY, &[]);
    let mut client = guard.client();
    let batch = format!("[{},{}]", call(3, "echo"), call(4, "rm"));
    for (more, body, status, error) in [
        ("", call(2, "rm"), 200, (json!(2), -32001)),
        (
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: rm\r\n",
            call(5, "rm"),
            200,
            (json!(5), -32001),
        ),
        ("Mcp-Name: echo\r\n", call(6, "rm"), 400, (json!(6), -32020)),
        ("Mcp-Name: echo\r\nMcp-Name: echo\r\n", call(7, "echo"), 400, (json!(7), -32020)),
        ("", "{".to_owned(), 400, (Value::Null, -32700)),
    ] {
        client.send(guard.request(more, &body));
        let got = client.message(false);
        let said = json_of(&got);
        assert_eq!(
            (got.status(), &said["id"], said["error"]["code"].as_i64()),
            (status, &error.0, Some(error.1)),
            "{body}"
        );
    }
    client.send(guard.request("Origin: http://localhost:7\r\n", &batch));
    let got = client.message(false);
    assert_eq!(json_of(&got).as_array().unwrap().len(), 2);
    assert_eq!(got.header("access-control-allow-origin"), Some("http://localhost:7"));
    let events = guard.request("", &call(8, "rm")).replace("application/json, text/event-stream", "text/event-stream");
    client.send(events);
    let got = client.message(false);
    assert_eq!(got.header("content-type"), Some("text/event-stream"));
    assert!(got.text().starts_with("event: message\ndata: {") && got.text().ends_with("}\n\n"), "{}", got.text());
    assert!(server.is_left_alone());
    let (code, receipts) = guard.end();
    let denied = verdicts(&receipts);
    assert_eq!(denied.len(), 7, "{denied:?}");
    assert!(denied.iter().all(|(_, verdict, outcome)| verdict == "denied" && outcome == "denied"), "{denied:?}");
    let mut reasons: Vec<_> = receipts.iter().map(|r| r["policy_reason"].as_str().unwrap()).collect();
    reasons.sort_unstable();
    let mismatch = "guard:header_mismatch";
    assert_eq!(reasons, ["denylist", "denylist", "denylist", "denylist", "guard:batch", mismatch, mismatch]);
    assert_eq!(code, Some(1), "something was denied");
}

#[test]
fn what_is_allowed_passes_as_it_came_and_has_its_decision() {
    let server = Server::start();
    let guard = Guard::guard(&server, POLICY, &[]);
    let mut client = guard.client();
    client.send(guard.request("", &call(1, "echo")));
    let mut upstream = server.accept();
    assert_eq!(upstream.message(false).text(), call(1, "echo"));
    let whole = answer("application/json", "X-Case: yes\r\n", &result(1));
    upstream.send(&whole);
    let got = client.message(false);
    assert_eq!(format!("{}{}", got.head, got.text()), whole);
    // An event stream with a length keeps it.
    client.send(guard.request("", &call(2, "echo")));
    upstream.message(false);
    let stream = format!("event: message\ndata: {}\n\n", result(2));
    let whole = answer("text/event-stream", "", &stream);
    upstream.send(&whole);
    let got = client.message(false);
    assert_eq!(format!("{}{}", got.head, got.text()), whole);
    // An answer that is too long to be held is recorded to its end, too.
    client.send(guard.request("", &call(3, "echo")));
    upstream.message(false);
    let long = result(3).replace("[]", &format!("[{}]", "1,".repeat(1 << 20) + "1"));
    upstream.send(answer("application/json", "", &long));
    assert_eq!(client.message(false).text(), long);
    let (code, receipts) = guard.end();
    let allowed = || ("echo".to_owned(), "allowed".to_owned(), "forwarded".to_owned());
    assert_eq!(verdicts(&receipts), [allowed(), allowed(), allowed()]);
    for receipt in &receipts {
        let phases = receipt["timing"].to_string();
        assert!(phases.contains("policy_decided") || receipt.to_string().contains("policy_decided"), "{receipt}");
    }
    assert_eq!(code, Some(0));
}

#[test]
fn a_denied_request_of_the_server_is_taken_out_and_answered_to_it() {
    let server = Server::start();
    let guard = Guard::guard(&server, POLICY, &[]);
    let mut client = guard.client();
    client.send(guard.request("Mcp-Session-Id: s1\r\n", &call(1, "echo")));
    let mut upstream = server.accept();
    upstream.message(false);
    let asks = json!({"jsonrpc": "2.0", "id": "a", "method": "sampling/createMessage", "params": {}});
    let (first, last) = (format!("data: {asks}\n\n"), format!("data: {}\n\n", result(1)));
    upstream.send(answer("text/event-stream", "", &format!("{first}{last}")));
    let got = client.message(false);
    // Its length is what the head says: a comment fills the place.
    assert_eq!(got.body.len(), first.len() + last.len());
    assert!(got.text().starts_with(':') && got.text().ends_with(&last) && !got.text().contains("sampling"));
    let mut back = server.accept();
    let told = back.message(false);
    assert_eq!((told.header("mcp-session-id"), &json_of(&told)["id"]), (Some("s1"), &json!("a")));
    assert_eq!(json_of(&told)["error"]["code"], -32001);
    back.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    // In a body of JSON it is replaced.
    client.send(guard.request("Mcp-Session-Id: s1\r\n", &call(2, "echo")));
    upstream.message(false);
    upstream.send(answer("application/json", "", &asks.to_string()));
    let got = client.message(false);
    assert_eq!((got.status(), &json_of(&got)["id"]), (200, &json!(2)));
    assert_eq!(json_of(&got)["error"]["data"]["action"], "deny");
    let mut back = server.accept();
    assert_eq!(json_of(&back.message(false))["id"], "a");
    back.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    // And of what is coded nothing is known.
    client.send(guard.request("Mcp-Session-Id: s1\r\n", &call(3, "echo")));
    upstream.message(false);
    upstream.send(answer("application/json", "Content-Encoding: gzip\r\n", "xyz"));
    let got = client.message(false);
    assert_eq!(json_of(&got)["error"]["data"]["rule"], "guard.encoded");
    guard.end();
}

#[test]
fn the_stream_of_the_old_transport_names_where_the_server_is_answered() {
    let server = Server::start();
    let guard = Guard::guard(&server, POLICY, &[]);
    let mut stream = guard.client();
    stream.send(format!("GET /mcp HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n\r\n", guard.at));
    let mut upstream = server.accept();
    upstream.head();
    upstream.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    upstream.send(chunk(&format!("event: endpoint\ndata: http://{}/messages?session_id=9\n\n", server.at)));
    assert!(stream.head().starts_with("HTTP/1.1 200"));
    assert_eq!(stream.chunk().unwrap(), b"event: endpoint\ndata: /messages?session_id=9\n\n");
    let asks = json!({"jsonrpc": "2.0", "id": "a", "method": "sampling/createMessage", "params": {}});
    upstream.send(chunk(&format!("data: {asks}\n\n")));
    let mut back = server.accept();
    let told = back.message(false);
    assert!(told.head.starts_with("POST /messages?session_id=9 "), "{}", told.head);
    assert_eq!(json_of(&told)["id"], "a");
    back.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    // What is posted there is judged, and a request of the server may be answered.
    let asks = json!({"jsonrpc": "2.0", "id": "b", "method": "roots/list"});
    upstream.send(chunk(&format!("data: {asks}\n\n")));
    assert_eq!(stream.chunk().unwrap(), format!("data: {asks}\n\n").as_bytes());
    let mut client = guard.client();
    let to = |body: &str| guard.request("", body).replace("/mcp", "/messages?session_id=9");
    client.send(to(&call(1, "rm")));
    assert_eq!(json_of(&client.message(false))["error"]["code"], -32001);
    client.send(to(&json!({"jsonrpc": "2.0", "id": "c", "result": {}}).to_string()));
    assert_eq!(client.message(false).status(), 403, "nobody asked");
    client.send(to(&json!({"jsonrpc": "2.0", "id": "b", "result": {}}).to_string()));
    let mut posted = server.accept();
    assert_eq!(json_of(&posted.message(false))["id"], "b");
    posted.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.message(false).status(), 202);
    drop(guard);
}

#[test]
fn every_session_has_budgets_of_its_own() {
    let server = Server::start();
    let guard = Guard::guard(&server, POLICY, &[]);
    let mut client = guard.client();
    let mut upstream = None;
    for session in ["s1", "s2"] {
        for (id, passes) in [(1, true), (2, false)] {
            client.send(guard.request(&format!("Mcp-Session-Id: {session}\r\n"), &call(id, "once")));
            if passes {
                let upstream = upstream.get_or_insert_with(|| server.accept());
                upstream.message(false);
                upstream.send(answer("application/json", "", &result(id)));
            }
            assert_eq!(json_of(&client.message(false)).get("error").is_none(), passes, "{session} {id}");
        }
    }
    let (code, receipts) = guard.end();
    let outcomes: Vec<_> = verdicts(&receipts).into_iter().map(|(.., outcome)| outcome).collect();
    assert_eq!((code, outcomes), (Some(1), ["forwarded", "forwarded", "denied", "denied"].map(String::from).to_vec()));
}

#[test]
fn what_is_too_long_or_elsewhere_does_not_pass() {
    let server = Server::start();
    let guard = Guard::guard(&server, ALL, &["--max-message", "1K", "--pass-path", "/token"]);
    let mut client = guard.client();
    client.send(guard.request("", &format!("{}{}", call(1, "echo"), " ".repeat(2000))));
    assert_eq!(client.message(false).status(), 413);
    let mut client = guard.client();
    client.send(guard.request("", &call(1, "echo")).replace("/mcp", "/other"));
    assert_eq!(client.message(false).status(), 403);
    assert!(server.is_left_alone());
    let mut client = guard.client();
    client.send(guard.request("", "x=y").replace("/mcp", "/token"));
    let mut upstream = server.accept();
    assert_eq!(upstream.message(false).text(), "x=y");
    upstream.send(answer("application/json", "", "{}"));
    assert_eq!(client.message(false).text(), "{}");
    // An event stream elsewhere could ask for anything.
    client.send(format!("GET /sse HTTP/1.1\r\nHost: {}\r\n\r\n", guard.at));
    upstream.message(false);
    upstream.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 3\r\n\r\n:x\n");
    assert_eq!(client.message(false).status(), 502);
}
