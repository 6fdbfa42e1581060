//! Attacks on the event that tells of several lines which are no messages.

use assay::pack::verify::{Exit, Integrity, VerifyReport};
use assay_support::forge::{EVENTS, RECEIPTS, SESSION, canonical, check_pack, key_k, pinned, valid};
use serde_json::{Value, json};

/// What is told instead, and how.
type Lie = (&'static str, fn(&mut Value));

/// A sound session with such an event before its end, and a change to it; whoever holds the key makes everything else agree.
fn told_with(change: impl FnOnce(&mut Value)) -> VerifyReport {
    let mut pack = valid();
    let mut lines = pack.lines(EVENTS);
    let end = lines.len() - 1;
    let mut event: Value = serde_json::from_str(&lines[end - 1]).unwrap();
    let mono_us = event["mono_us"].as_u64().unwrap();
    for member in ["invocation_id", "method", "rpc_id"] {
        event[member] = Value::Null;
    }
    event["detail"] = json!({"first_us": mono_us, "lines": 3, "offset": 1_u64 << 40, "reason": "not JSON"});
    event["direction"] = "server_to_client".into();
    event["event"] = "malformed_lines".into();
    event["v"] = 5.into();
    event["wire_bytes"] = 5.into();
    event["wire_sha256"] = "ab".repeat(32).into();
    change(&mut event);
    let malformed = event["detail"]["lines"].clone();
    lines.insert(end, canonical(&event));
    pack.set_lines(EVENTS, &lines);
    pack.edit(EVENTS, end + 1, |e| e["detail"]["counts"]["malformed"] = malformed.clone());
    let last = pack.lines(RECEIPTS).len() - 1;
    pack.edit(RECEIPTS, last, |r| r["counts"]["malformed"] = malformed.clone());
    pack.edit(SESSION, 0, |s| s["counts"]["malformed"] = malformed);
    pack.make_consistent();
    pack.sign(&key_k());
    check_pack(&pack, &pinned())
}

#[test]
fn several_lines_are_told_of_as_a_recorder_tells_of_them_or_not_at_all() {
    let sound: &[fn(&mut Value)] = &[
        |_| (),
        |e| e["detail"]["reason"] = Value::Null,
        |e| (e["detail"]["lines"], e["wire_bytes"]) = (2.into(), 3.into()),
        |e| (e["detail"]["lines"], e["wire_bytes"]) = (1000.into(), 1999.into()),
    ];
    for (n, change) in sound.iter().enumerate() {
        let report = told_with(change);
        assert_eq!((report.exit(), report.integrity), (Exit::Ok, Integrity::Pass), "{n}: {:#?}", report.errors);
    }
    let lies: &[Lie] = &[
        ("one line", |e| (e["detail"]["lines"], e["wire_bytes"]) = (1.into(), 1.into())),
        ("none", |e| e["detail"]["lines"] = 0.into()),
        ("too many", |e| (e["detail"]["lines"], e["wire_bytes"]) = (1001.into(), 9000.into())),
        ("more lines than bytes", |e| e["wire_bytes"] = 4.into()),
        ("first after last", |e| e["detail"]["first_us"] = (e["mono_us"].as_u64().unwrap() + 1).into()),
        ("before what was read", |e| e["detail"]["offset"] = 1.into()),
        ("no bytes", |e| e["wire_bytes"] = Value::Null),
        ("no hash", |e| e["wire_sha256"] = Value::Null),
        ("no direction", |e| e["direction"] = Value::Null),
        ("of a request", |e| e["invocation_id"] = "inv_0000000000000001".into()),
        ("with an id", |e| e["rpc_id"] = 1.into()),
        ("with a method", |e| e["method"] = "ping".into()),
        ("in an exchange", |e| e["detail"]["exchange"] = 1.into()),
        ("with the version of the others", |e| e["v"] = 1.into()),
        ("over HTTP", |e| e["transport"] = "streamable-http".into()),
        ("another event with its version", |e| {
            e["event"] = "malformed".into();
            e["detail"] = json!({"offset": 1_u64 << 40, "reason": "not JSON"});
        }),
    ];
    for (name, change) in lies {
        let report = told_with(change);
        assert_eq!((report.exit(), report.integrity), (Exit::Failed, Integrity::Tampered), "{name}");
    }
}
