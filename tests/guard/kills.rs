//! SIGKILL of a guarding proxy at any moment: what the evidence says was kept back was, and what it says passed did.

use crate::session::Guarded;
use assay::model::EventKind;
use assay_support::{
    check,
    rig::{INITIALIZE, call},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    time::Duration,
};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)) % n
    }
}

fn line(i: u64) -> String {
    match i % 5 {
        0 => call(i, "rm", i),
        1 => format!("[{},{}]", call(i, "echo", i), call(100_000 + i, "rm", i)),
        2 => format!(r#"{{"jsonrpc":"2.0","id":{i},"method":"tools/call","params":{{"name":"echo","Name":"rm"}}}}"#),
        _ => call(i, "echo", i),
    }
}

fn kill(seed: u64) {
    let mut random = Random(seed);
    let flags: &[&str] = if seed.is_multiple_of(3) { &["--pack-interval", "7r"] } else { &[] };
    let mut guarded = Guarded::start(crate::session::POLICY, "guard", flags);
    let mut stdin = guarded.client.stdin.take().unwrap();
    let lines = 20 + random.below(300);
    let feeder = std::thread::spawn(move || {
        for i in 1..=lines {
            if stdin.write_all(format!("{}\n", line(i)).as_bytes()).is_err() {
                return;
            }
        }
        // Kept open until the proxy is gone.
        let mut wait = [0; 1];
        let _ = std::io::Read::read(&mut std::io::empty(), &mut wait);
        std::thread::sleep(Duration::from_millis(30));
    });
    guarded.client.await_lines(usize::try_from(1 + random.below(lines / 2)).unwrap());
    std::thread::sleep(Duration::from_micros(random.below(4000)));
    guarded.client.kill();
    feeder.join().unwrap();
    guarded.rig.await_silence();
    let read = guarded.server_read();
    assert!(!read.windows(4).any(|w| w == b"\"rm\""), "a denied call reached the server");
    let out = guarded.rig.recover();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    check::settled(&guarded.rig);
    let sessions = check::sessions(&guarded.rig);
    agree(&sessions, &read);
}

/// The server's record and the evidence say the same of every call. (The server ends with the proxy, so what was forwarded
/// may lie unread in its pipe.)
fn agree(sessions: &[check::Session], read: &[u8]) {
    let whole = read.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines = read[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty() && !l.starts_with(INITIALIZE.as_bytes()));
    let arrived: Vec<u64> =
        lines.map(|l| serde_json::from_slice::<Value>(l).unwrap()["id"].as_u64().unwrap()).collect();
    let events = || sessions.iter().flat_map(|s| &s.events);
    let mut recorded = BTreeSet::new();
    for event in events().filter(|e| e.event == EventKind::RequestReceived) {
        assert!(recorded.insert(event.invocation_id.unwrap().to_string()), "a call twice");
    }
    let mut outcomes = BTreeMap::new();
    for receipt in sessions.iter().flat_map(|s| &s.receipts).filter(|r| r["type"] == "mcp_tool_call") {
        let id = receipt["mcp_request_id"].as_u64().unwrap();
        assert!(outcomes.insert(id, receipt.clone()).is_none());
    }
    assert_eq!(recorded.len(), outcomes.len());
    for id in &arrived {
        let receipt = &outcomes[id];
        assert_ne!(receipt["outcome"], "denied", "{id} arrived, and the evidence says that it was denied");
        assert_eq!(receipt["policy_verdict"], "allowed", "{receipt}");
    }
    for (id, receipt) in &outcomes {
        let denied = id % 5 < 3;
        if denied {
            assert!(receipt["phases_us"]["request_forwarded"].is_null(), "{id} was denied and counts as forwarded");
            assert_ne!(receipt["outcome"], "forwarded");
            assert_ne!(receipt["policy_verdict"], "allowed");
        }
        if receipt["policy_verdict"] == "no_policy" {
            let anomalies = receipt["anomalies"].as_array().unwrap();
            assert!(anomalies.iter().any(|a| a == "not_decided"), "{receipt}");
        }
    }
    let forwarded = events().filter(|e| e.event == EventKind::RequestForwarded);
    for event in forwarded.filter(|e| e.method.as_deref() == Some("tools/call")) {
        let id = serde_json::to_value(&event.rpc_id).unwrap().as_u64().unwrap();
        assert!(id % 5 >= 3, "{id} was denied and has request_forwarded");
    }
}

fn some(first: u64) {
    let kills: u64 = std::env::var("ASSAY_KILLS").map_or(40, |n| n.parse().unwrap());
    let failed: Vec<u64> =
        (first..kills).step_by(2).filter(|seed| std::panic::catch_unwind(|| kill(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "failed for seeds {failed:?}");
}

#[test]
fn no_denied_call_ever_appears_as_forwarded_nor_a_forwarded_one_as_denied() {
    some(0);
}

#[test]
fn no_denied_call_ever_appears_as_forwarded_nor_a_forwarded_one_as_denied_for_other_seeds() {
    some(1);
}
