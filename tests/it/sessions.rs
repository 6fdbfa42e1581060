//! The sessions that tests write by hand are what a recorder would leave.

use assay::{
    model::{AuditEvent, GENESIS, event::hash_of_line, sha256_hex},
    paths::AuditDir,
};
use assay_support::sessions::{Ending, Plan, write};
use std::path::Path;

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn every_line_is_its_canonical_form_chained_and_bound() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = AuditDir::at(tmp.path().join("a"));
    let plan = Plan { calls: 30, error_every: 7, timeout_every: 11, big_result: Some(1 << 12), ..Plan::default() };
    let written = write(&plan, dir.root()).unwrap();
    let (events, receipts) = (lines(&written.paths.segment), lines(&written.paths.receipts));
    assert_eq!(receipts.len() as u64, written.doc.receipt_count);
    assert_eq!(events.len() as u64, written.doc.event_count);
    assert_eq!((written.doc.counts.errors, written.doc.counts.timeouts), (4, 2));
    for line in events.iter().chain(&receipts).chain(&lines(&dir.ledger())) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(&serde_jcs::to_string(&value).unwrap(), line);
    }
    let mut prev = GENESIS.to_owned();
    let mut bound = Vec::new();
    for (n, line) in events.iter().enumerate() {
        let event: AuditEvent = serde_json::from_str(line).unwrap();
        assert_eq!((event.event_seq, &event.prev_hash), (n as u64, &prev));
        assert_eq!(Some(&event.hash), hash_of_line(line.as_bytes()).as_ref());
        prev = event.hash;
        bound.extend(event.detail.binding().receipt_sha256.map(|hex| String::from_utf8(hex.to_vec()).unwrap()));
    }
    let calls: Vec<_> = receipts[1..=30].iter().map(|l| sha256_hex(l.as_bytes())).collect();
    assert_eq!(bound, calls);
    assert_eq!(prev, written.doc.chain_last);
}

#[test]
fn sessions_of_one_directory_are_chained_and_the_same_plan_gives_the_same_bytes() {
    let tmp = tempfile::tempdir().unwrap();
    let (a, b) = (AuditDir::at(tmp.path().join("a")), AuditDir::at(tmp.path().join("b")));
    let first = write(&Plan::default(), a.root()).unwrap();
    let again = write(&Plan::default(), b.root()).unwrap();
    assert_eq!(std::fs::read(&first.paths.segment).unwrap(), std::fs::read(&again.paths.segment).unwrap());
    let second = write(&Plan { seed: 2, ending: Ending::Unterminated, ..Plan::default() }, a.root()).unwrap();
    let event: AuditEvent = serde_json::from_str(&lines(&second.paths.segment)[0]).unwrap();
    let ledger = lines(&a.ledger());
    assert_eq!(Some(event.prev_hash), hash_of_line(ledger[1].as_bytes()));
    assert_eq!(ledger.len(), 3);
    assert!(write(&Plan::default(), a.root()).is_err(), "nothing is replaced");
}
