//! Servers that die, talk nonsense or ask for too much; disks that are full; messages that are too large.

use crate::session::{Guarded, POLICY, got_by, receipts};
use assay::model::{AuditEvent, Detail, EventKind};
use assay_support::{
    check,
    rig::{call, rig, until},
};
use rustix::process::{Pid, Resource, Rlimit};
use serde_json::json;
use std::{fs, io::Write as _};

#[test]
fn requests_that_the_server_did_not_live_to_answer_get_an_error_each() {
    let mut guarded = Guarded::guard();
    guarded.call(1, "echo");
    for id in [2, 3] {
        guarded.client.send(&call(id, "hang", 0));
    }
    // Who cancels waits for no answer: with an id of its own, and with one that was written otherwise.
    for (id, name) in [("5", "5"), ("\"six\"", "\"s\\u0069x\"")] {
        guarded.client.send(&call(0, "hang", 0).replace("\"id\":0", &format!("\"id\":{id}")));
        let cancels = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{name},"reason":"enough"}}}}"#
        );
        guarded.client.send(&cancels);
    }
    guarded.client.send(&call(4, "die", 0));
    for id in [2, 3, 4] {
        let error = guarded.answer(&json!(id))["error"].clone();
        assert_eq!((error["code"].as_i64(), error["data"]["action"].as_str()), (Some(-32000), Some("server_exited")));
    }
    let status = guarded.client.wait();
    assert!(guarded.got().iter().all(|m| m["id"] != json!(5) && m["id"] != json!("six")), "{:?}", guarded.got());
    assert_eq!(status.code(), Some(2), "{}", guarded.client.said());
}

#[test]
fn what_is_no_message_does_not_reach_the_client() {
    let rig = rig!();
    let policy = crate::session::policy_file(&rig, POLICY);
    let flags = ["--profile", "guard", "--policy", policy.to_str().unwrap()];
    let command = rig.wrapped(
        &[],
        &flags,
        "echo a banner; printf '{\"half\\n[]x\\n'; printf '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\\n';",
    );
    let client = rig::Client::start(command);
    let mut guarded = Guarded { rig, client, policy };
    guarded.client.converse(std::iter::once(rig::INITIALIZE.to_owned()));
    guarded.call(1, "echo");
    let got = guarded.got();
    assert_eq!(got[0]["method"], "notifications/x");
    assert_eq!(got.iter().filter(|m| m["id"].is_null()).count(), 1);
    let (session, ..) = guarded.end(0);
    assert_eq!(session.doc.counts.malformed, 3);
    let junk = |e: &&AuditEvent| matches!(e.event, EventKind::Malformed | EventKind::MalformedLines);
    let reason = |e: &AuditEvent| match &e.detail {
        Detail::Malformed(d) => d.reason.clone().unwrap(),
        Detail::MalformedLines(d) => d.reason.clone().unwrap(),
        other => panic!("{other:?}"),
    };
    let reasons: Vec<_> = session.events.iter().filter(junk).map(reason).collect();
    assert!(!reasons.is_empty() && reasons.iter().all(|r| r.contains("not forwarded")), "{reasons:?}");
}

#[test]
fn a_server_that_wants_to_sample_is_judged_too() {
    for (policy, asked) in [(POLICY.to_owned(), true), (POLICY.replace(", sampling/createMessage", ""), false)] {
        let mut guarded = Guarded::start(&policy, "guard", &[]);
        guarded.call(1, "ask");
        let asks = guarded.got().iter().any(|m| m["method"] == "sampling/createMessage");
        assert_eq!(asks, asked);
        if asked {
            guarded.client.send(r#"{"jsonrpc":"2.0","id":"s1","result":{"ok":true}}"#);
            // The same answer once more answers nothing.
            guarded.client.send(r#"{"jsonrpc":"2.0","id":"s1","result":{"ok":true}}"#);
        }
        guarded.call(2, "echo");
        let read = String::from_utf8(guarded.server_read()).unwrap();
        assert_eq!(read.matches("\"ok\":true").count(), usize::from(asked));
        assert_eq!(read.contains("-32001"), !asked, "{read}");
        let (session, ..) = guarded.end(1);
        let kind = if asked { "answers_nothing" } else { "not_in_allowlist" };
        let mut blocked = session.events.iter().filter_map(|e| match &e.detail {
            Detail::RequestBlocked(d) => Some(&d.reason),
            _ => None,
        });
        let reason = blocked.next().unwrap();
        assert!(reason.contains(kind), "{reason}");
    }
}

#[test]
fn a_message_is_held_up_to_the_limit_and_refused_beyond() {
    let mut guarded = Guarded::start(POLICY, "guard", &["--max-message", "6M"]);
    for (id, size, passes) in [(1, 5 << 20, true), (2, 7 << 20, false), (3, 40 << 20, false), (4, 1000, true)] {
        let pad = "x".repeat(size);
        // The id at the front, and at the end.
        let line = if id % 2 == 0 {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"pad":"{pad}"}}}}}}"#
            )
        } else {
            format!(
                r#"{{"method":"tools/call","params":{{"name":"echo","arguments":{{"pad":"{pad}"}}}},"jsonrpc":"2.0","id":{id}}}"#
            )
        };
        guarded.client.send(&line);
        let answer = guarded.answer(&json!(id));
        assert_eq!(answer["result"].is_object(), passes, "{id}: {answer}");
        if !passes {
            assert_eq!(answer["error"]["data"]["rule"], "guard.too_large");
        }
    }
    assert!(guarded.server_read().len() < 6 << 20);
    let (session, ..) = guarded.end(1);
    let outcomes: Vec<_> = receipts(&session).iter().map(|r| r["outcome"].as_str().unwrap().to_owned()).collect();
    assert_eq!(outcomes, ["forwarded", "denied", "denied", "forwarded"]);
}

#[test]
fn a_result_of_many_mebibytes_streams_and_refusals_wait_for_its_end() {
    let mut guarded = Guarded::guard();
    guarded.client.send(&call(1, "big", 20 << 20));
    for id in 2..40 {
        guarded.client.send(&call(id, "rm", 0));
    }
    guarded.client.send(&call(40, "echo", 0));
    guarded.answer(&json!(40));
    let (.., client) = guarded.end(1);
    assert_eq!(got_by(&client).iter().filter(|m| m["error"]["code"] == -32001).count(), 38);
}

fn limit(guarded: &Guarded, bytes: Option<u64>) {
    let pid = Pid::from_child(&guarded.client.child);
    rustix::process::prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

#[test]
fn while_evidence_cannot_be_written_no_call_passes_and_everything_else_does() {
    let mut guarded = Guarded::guard();
    guarded.call(1, "echo");
    guarded.rig.await_events(6);
    limit(&guarded, Some(fs::metadata(&guarded.rig.segments()[0]).unwrap().len() + 100));
    let mut id = 1;
    let refused = until("the first refusal", || {
        id += 1;
        let answer = guarded.call(id, "echo");
        answer["error"].is_object().then_some(answer)
    });
    assert_eq!(refused["error"]["data"]["rule"], "guard.recorder_unavailable");
    assert!(refused["error"]["message"].as_str().unwrap().contains("cannot be written"), "{refused}");
    guarded.client.send(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    assert!(guarded.answer(&json!("p"))["result"].is_object());
    guarded.client.await_said("warning: writing evidence");
    limit(&guarded, None);
    let first = id + 1;
    id = first;
    until("calls to pass again", || {
        id += 1;
        guarded.call(id, "echo")["result"].is_object().then_some(())
    });
    let (session, ..) = guarded.end(1);
    let all = receipts(&session);
    assert!(all.iter().any(|r| r["policy_reason"] == "guard:recorder_unavailable" && r["outcome"] == "denied"));
    assert!(session.doc.session_complete);
}

#[test]
fn an_audit_directory_that_cannot_be_written_lets_no_call_pass() {
    use std::os::unix::fs::PermissionsExt as _;
    if rustix::process::geteuid().is_root() {
        // Nothing is read-only for root; the test above has the same on a disk that is full.
        return;
    }
    let rig = rig!();
    fs::create_dir(&rig.audit).unwrap();
    fs::set_permissions(&rig.audit, fs::Permissions::from_mode(0o500)).unwrap();
    let policy = crate::session::policy_file(&rig, POLICY);
    let client = rig::Client::start(rig.proxy(&["--profile", "guard", "--policy", policy.to_str().unwrap()]));
    let mut guarded = Guarded { rig, client, policy };
    guarded.client.converse(std::iter::once(rig::INITIALIZE.to_owned()));
    assert_eq!(guarded.call(1, "echo")["error"]["data"]["rule"], "guard.recorder_unavailable");
}

#[test]
fn more_requests_than_are_followed_are_refused_and_every_call_that_ran_has_its_decision() {
    let mut guarded = Guarded::guard();
    let limit = assay::model::limits::GUARDED as u64;
    let mut lines = String::new();
    for id in 1..=limit + 50 {
        lines += &(rig::call(id, "hang", id) + "\n");
    }
    guarded.raw(lines.as_bytes());
    // One of them may be the answer to `initialize`, whose request was answered by then.
    let refused = guarded.answer(&json!(limit + 50));
    assert_eq!(refused["error"]["data"]["rule"], "guard.too_many_in_flight");
    let read = guarded.server_read();
    assert_eq!(memchr::memmem::find_iter(&read, b"\"hang\"").count() as u64, limit);
    let (session, ..) = guarded.end(1);
    let all = receipts(&session);
    assert_eq!(all.len() as u64, limit + 50);
    assert_eq!(all.iter().filter(|r| r["policy_verdict"] == "allowed").count() as u64, limit);
    assert_eq!(all.iter().filter(|r| r["outcome"] == "denied").count(), 50);
}

/// A client that goes on while the disk is full, for longer than captures and decisions have room.
fn full_disk(more: u64, kill: bool, room_again: bool) {
    let mut guarded = Guarded::start(POLICY, "guard", &["--max-message", "1M"]);
    guarded.call(1, "echo");
    guarded.rig.await_events(6);
    limit(&guarded, Some(fs::metadata(&guarded.rig.segments()[0]).unwrap().len() + more));
    let last = 14_000;
    let mut stdin = guarded.client.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for id in 2..=last {
            let pad = "x".repeat(300);
            let line = match id % 10 {
                // Something between the refusals that passes.
                0 => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#),
                _ => rig::call(id, "echo", id).replacen("{\"n\"", &format!("{{\"pad\":\"{pad}\",\"n\""), 1),
            };
            stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
        stdin
    });
    until("every answer", || (guarded.client.lines() as u64 > last).then_some(()));
    guarded.client.stdin = Some(feeder.join().unwrap());
    if room_again {
        limit(&guarded, None);
        let mut id = last;
        until("calls to pass again", || {
            id += 1;
            guarded.call(id, "echo")["result"].is_object().then_some(())
        });
    }
    if kill {
        guarded.client.kill();
    } else {
        guarded.client.end();
    }
    guarded.rig.await_silence();
    let out = guarded.rig.recover();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    check::settled(&guarded.rig);
    let sessions = check::sessions(&guarded.rig);
    let read = guarded.server_read();
    let ran = read.split(|b| *b == b'\n').filter(|l| memchr::memmem::find(l, b"tools/call").is_some());
    let verdicts: std::collections::HashMap<u64, &str> = sessions
        .iter()
        .flat_map(|s| &s.receipts)
        .filter_map(|r| Some((r["mcp_request_id"].as_u64()?, r["policy_verdict"].as_str()?)))
        .collect();
    let mut n = 0;
    for line in ran {
        let id = serde_json::from_slice::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap();
        assert_eq!(verdicts.get(&id), Some(&"allowed"), "call {id} ran, and no decision of it is recorded");
        n += 1;
    }
    assert!(n < last * 9 / 10 - 100, "the disk was not full");
}

#[test]
fn whatever_a_full_disk_loses_it_is_no_call_that_ran() {
    let all = [(true, false, 100), (false, true, 60_000), (false, false, 100), (true, true, 60_000)];
    // Each takes thousands of calls: the others are for long runs.
    let n = if std::env::var_os("ASSAY_KILLS").is_some() { all.len() } else { 2 };
    for (kill, room_again, more) in all.into_iter().take(n) {
        eprintln!("kill {kill}, room again {room_again}, {more} bytes more");
        full_disk(more, kill, room_again);
    }
}
