//! A listener whose disk, recorder, memory or policy is not as it should be: audit passes everything and counts what it could
//! not record, and a guard lets no call pass without evidence.

use crate::{
    process::{ALL, Process, answer, call, json_of, result, verdicts},
    rig::{End, Message, Server, until},
};
use assay::{paths::AuditDir, record::ledger::Ledger};
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// A server that answers every call, until its process ends.
fn answering(server: Server) -> std::net::SocketAddr {
    let at = server.at;
    thread::spawn(move || {
        loop {
            let mut end = server.accept();
            thread::spawn(move || {
                loop {
                    let got = end.message(false);
                    if got.cut {
                        return;
                    }
                    let said: Value = serde_json::from_slice(&got.body).unwrap_or_default();
                    match said["id"].as_u64() {
                        Some(id) => end.send(answer("application/json", "", &result(id))),
                        None => end.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
                    }
                }
            });
        }
    });
    at
}

fn ask(process: &Process, client: &mut End, body: &str) -> Message {
    client.send(process.request("", body));
    client.message(false)
}

/// What of receipts is on disk.
fn receipts_so_far(process: &Process) -> String {
    let files = process.audit().join("receipts").read_dir().into_iter().flatten();
    files.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok()).collect()
}

/// No file may become longer than this; `None`: as long as it likes.
fn limit(process: &Process, bytes: Option<u64>) {
    prlimit(Some(process.pid()), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

fn rule_of(message: &Message) -> String {
    json_of(message)["error"]["data"]["rule"].as_str().unwrap_or_default().to_owned()
}

const UNAVAILABLE: &str = "guard.recorder_unavailable";

#[test]
fn the_first_call_on_a_full_disk_does_not_pass_a_guard() {
    let server = Server::start();
    let guard = Process::guard(&server, ALL, &[]);
    limit(&guard, Some(0));
    // It begins a session, as each of a client that gives itself another name.
    for n in 0..3 {
        let mut client = guard.client();
        let info = json!({"io.modelcontextprotocol/clientInfo": {"name": format!("c{n}"), "version": "1"}});
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "_meta": info}});
        let got = ask(&guard, &mut client, &body.to_string());
        assert_eq!(rule_of(&got), UNAVAILABLE, "{got:?}");
    }
    assert!(server.is_left_alone());
    limit(&guard, None);
    answering(server);
    let mut client = guard.client();
    until(|| json_of(&ask(&guard, &mut client, &call(1, "echo"))).get("result").is_some());
    assert!(guard.said().contains("beginning a session"), "{}", guard.said());
    let (code, receipts) = guard.end();
    assert!(verdicts(&receipts).contains(&("echo".into(), "allowed".into(), "forwarded".into())), "{receipts:?}");
    assert_ne!(code, Some(0));
}

#[test]
fn on_a_full_disk_audit_passes_everything_and_counts() {
    let process = Process::start(answering(Server::start()), "audit", ALL, &[]);
    let mut client = process.client();
    assert!(json_of(&ask(&process, &mut client, &call(1, "before"))).get("result").is_some());
    until(|| receipts_so_far(&process).contains("before"));
    limit(&process, Some(0));
    for id in 2..40 {
        assert!(json_of(&ask(&process, &mut client, &call(id, "meanwhile"))).get("result").is_some());
    }
    until(|| process.said().contains("what cannot be recorded is counted"));
    limit(&process, None);
    for id in 40..50 {
        assert!(json_of(&ask(&process, &mut client, &call(id, "after"))).get("result").is_some());
    }
    let (_, receipts) = process.end();
    // What had room in memory is there, too.
    assert_eq!(verdicts(&receipts).iter().filter(|(tool, ..)| tool != "meanwhile").count(), 11, "{receipts:?}");
}

#[test]
fn on_a_full_disk_a_guard_passes_what_is_no_call() {
    let process = Process::start(answering(Server::start()), "guard", ALL, &[]);
    let mut client = process.client();
    assert!(json_of(&ask(&process, &mut client, &call(1, "echo"))).get("result").is_some());
    limit(&process, Some(0));
    until(|| rule_of(&ask(&process, &mut client, &call(2, "echo"))) == UNAVAILABLE);
    let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"}).to_string();
    assert!(json_of(&ask(&process, &mut client, &ping)).get("result").is_some());
    limit(&process, None);
    until(|| json_of(&ask(&process, &mut client, &call(4, "echo"))).get("result").is_some());
    let (code, receipts) = process.end();
    let all = verdicts(&receipts);
    assert!(all.iter().all(|(_, verdict, outcome)| (verdict == "allowed") == (outcome == "forwarded")), "{all:?}");
    assert!(code.is_some_and(|code| code != 0), "a call was refused");
}

/// Keeps the recorder from going on: it waits for the ledger, which somebody else holds.
fn stopped(process: &Process) -> Ledger {
    let dir = AuditDir::at(process.audit());
    until(|| dir.ledger().parent().is_some_and(std::path::Path::exists));
    Ledger::lock(&dir, None).unwrap()
}

#[test]
fn past_a_stopped_recorder_audit_passes_everything_and_counts() {
    let process = Process::start(answering(Server::start()), "audit", ALL, &["--capture-size", "1M"]);
    let held = stopped(&process);
    let mut client = process.client();
    let pad = "x".repeat(50_000);
    for id in 0..60 {
        let body = call(id, "echo").replace("{}", &json!({ "pad": pad }).to_string());
        assert!(json_of(&ask(&process, &mut client, &body)).get("result").is_some(), "{id}");
    }
    drop(held);
    let (code, receipts) = process.end();
    assert_eq!(code, Some(2), "bytes crossed unrecorded");
    assert!(receipts.len() < 60);
}

#[test]
fn past_a_stopped_recorder_no_call_passes_a_guard() {
    let server = Server::start();
    let guard = Process::guard(&server, ALL, &[]);
    let held = stopped(&guard);
    let mut client = guard.client();
    let got = ask(&guard, &mut client, &call(1, "echo"));
    assert_eq!(rule_of(&got), UNAVAILABLE, "{got:?}");
    assert!(server.is_left_alone());
    drop(held);
    answering(server);
    until(|| json_of(&ask(&guard, &mut client, &call(2, "echo"))).get("result").is_some());
    let (_, receipts) = guard.end();
    assert!(verdicts(&receipts).contains(&("echo".into(), "allowed".into(), "forwarded".into())), "{receipts:?}");
}

#[test]
fn a_policy_that_changes_is_in_force_for_the_next_call_of_every_session() {
    const DENY: &str = "version: \"1\"\ndefault: allow\ndenylist: [echo]\n";
    for profile in ["audit", "guard"] {
        let process = Process::start(answering(Server::start()), profile, ALL, &[]);
        let mut clients = [process.client(), process.client()];
        let sessions = ["s1", "s2"];
        let mut ask = |n: usize, id: u64| {
            clients[n].send(process.request(&format!("Mcp-Session-Id: {}\r\n", sessions[n]), &call(id, "echo")));
            json_of(&clients[n].message(false))
        };
        assert!((0..2).all(|n| ask(n, 1).get("result").is_some()));
        // In audit the recorder judges, and it comes later.
        until(|| receipts_so_far(&process).matches("mcp_tool_call").count() == 2);
        fs::write(process.home.path().join("new.yaml"), DENY).unwrap();
        fs::rename(process.home.path().join("new.yaml"), process.home.path().join("policy.yaml")).unwrap();
        rustix::process::kill_process(process.pid(), rustix::process::Signal::HUP).unwrap();
        until(|| process.said().contains("is in force"));
        for n in 0..2 {
            assert_eq!(ask(n, 2).get("result").is_some(), profile == "audit", "{profile} {n}");
        }
        fs::write(process.home.path().join("policy.yaml"), "version: 1\nno policy").unwrap();
        rustix::process::kill_process(process.pid(), rustix::process::Signal::HUP).unwrap();
        until(|| process.said().contains("stays in force"));
        assert_eq!(ask(0, 3).get("result").is_some(), profile == "audit", "{profile}");
        let mut process = process;
        assert_eq!(process.terminate(), Some(1));
        let mut receipts = process.lines("receipt_pack.jsonl");
        receipts.retain(|receipt| receipt["type"] == "mcp_tool_call");
        let of = |verdict: &str| receipts.iter().filter(|r| r["policy_verdict"] == verdict).collect::<Vec<_>>();
        assert_eq!((of("denied").len(), receipts.len()), (3, 5), "{profile}: {receipts:?}");
        assert!(of("denied").iter().all(|r| r["policy_hash"] != of("allowed")[0]["policy_hash"]), "{profile}");
    }
}

#[test]
fn held_bodies_take_64_mib_together_and_one_more_is_refused() {
    const LARGE: usize = 40 << 20;
    let process = Process::start(answering(Server::start()), "guard", ALL, &["--max-message", "48M"]);
    let body = |id: u64| call(id, "echo").replace("{}", &json!({ "pad": "x".repeat(LARGE) }).to_string());
    let (first, second) = (process.request("", &body(1)), process.request("", &body(2)));
    let mut one = process.client();
    // All but its last byte is held.
    one.send(&first[..first.len() - 1]);
    let refused = Arc::new(AtomicBool::new(false));
    let got = thread::scope(|scope| {
        let (mut sender, is_refused) = (process.client(), refused.clone());
        let mut reader = End::from(sender.stream.try_clone().unwrap());
        scope.spawn(move || {
            use std::io::Write as _;
            // It may be cut off.
            let _ = sender.stream.write_all(second.as_bytes());
            until(|| is_refused.load(Ordering::Relaxed));
        });
        let got = reader.message(false);
        refused.store(true, Ordering::Relaxed);
        got
    });
    assert_eq!((got.status(), rule_of(&got).as_str()), (413, "guard.too_large"), "{}", got.head);
    one.send(&first[first.len() - 1..]);
    assert!(json_of(&one.message(false)).get("result").is_some());
    // Its room is free again.
    let mut two = process.client();
    assert!(json_of(&ask(&process, &mut two, &body(3))).get("result").is_some());
    let (code, receipts) = process.end();
    let allowed = || ("echo".into(), "allowed".into(), "forwarded".into());
    assert_eq!((code, verdicts(&receipts)), (Some(1), vec![allowed(), allowed()]), "what is cut off is no call");
}

#[test]
fn a_request_that_is_refused_beside_the_endpoint_counts_and_one_that_nobody_may_send_does_not() {
    for (host, code) in [(None, 1), (Some("elsewhere.example"), 0)] {
        let server = Server::start();
        let guard = Process::guard(&server, ALL, &[]);
        let mut client = guard.client();
        let host = host.map_or_else(|| guard.at.to_string(), str::to_owned);
        client.send(format!("POST /token HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n\r\na=b"));
        assert_eq!(client.message(false).status(), 403);
        assert!(server.is_left_alone());
        assert_eq!(guard.end().0, Some(code), "{host}");
    }
}

/// One message of the server that is too long to be held, in an event stream: refused if it asks, passed if it answers.
#[test]
fn an_event_of_many_mebibytes_is_recorded_once() {
    for (head, passes) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/message","params":""#, false),
        (r#"{"jsonrpc":"2.0","id":1,"result":""#, true),
    ] {
        let server = Server::start();
        let mut guard = Process::guard(&server, ALL, &[]);
        let mut client = guard.client();
        client.send(guard.request("", &call(1, "echo")));
        let mut upstream = server.accept();
        upstream.message(false);
        let event = format!("data: {head}{}\"}}\n\n", "x".repeat(6 << 20));
        let last = format!("data: {}\n\n", result(1));
        let whole = answer("text/event-stream", "", &format!("{event}{last}"));
        let sender = thread::spawn(move || {
            upstream.send(whole);
            upstream
        });
        let got = client.message(false);
        assert_eq!(got.text().contains(head), passes);
        assert!(got.text().ends_with(&last));
        drop(sender.join().unwrap());
        guard.terminate();
        let events = guard.lines("audit_log.jsonl");
        // That it reached the client is an event of its own.
        let is_seen = |e: &&Value| e["event"] != "response_sent" && e["wire_bytes"].as_u64() > Some(4 << 20);
        let of_it: Vec<_> = events.iter().filter(is_seen).collect();
        assert_eq!(of_it.len(), 1, "{of_it:?}");
        let blocked = events.iter().filter(|e| e["event"] == "request_blocked").count();
        assert_eq!(blocked, usize::from(!passes), "{events:?}");
    }
}
