//! `assay prove` and `assay verify-proof`: one call, shown to people who have neither the pack nor the session.

use assay_support::rig::{rig, stderr, stdout};
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_call_is_proven_and_the_proof_says_what_it_says_and_no_more() {
    let rig = rig!();
    rig.record(
        "audit",
        &["--store-args"],
        &[
            json!({"name": "echo", "arguments": {"text": "shown"}}),
            json!({"name": "echo", "arguments": {"text": "hidden"}}),
        ],
    );
    let pack = fs::read_dir(rig.audit.join("packs")).unwrap().next().unwrap().unwrap().path();
    let receipts = fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
    let receipt: Value =
        receipts.lines().map(|l| serde_json::from_str(l).unwrap()).find(|r: &Value| r["tool_name"] == "echo").unwrap();
    let id = receipt["receipt_id"].as_str().unwrap();
    let pack = pack.to_str().unwrap();
    assert_eq!(rig.run(&["prove", pack, id, "--out", "call.tlog-proof"]).status.code(), Some(0));
    let proof = fs::read_to_string(rig.root.join("call.tlog-proof")).unwrap();
    assert_eq!(stdout(&rig.run(&["prove", pack, id])), proof);
    let again = rig.run(&["prove", pack, id, "--out", "call.tlog-proof"]);
    assert!(again.status.code() == Some(3) && stderr(&again).contains("exists"), "{}", stderr(&again));

    // Elsewhere, without the pack.
    fs::remove_dir_all(&rig.audit).unwrap();
    let said = rig.json(0, &["verify-proof", "call.tlog-proof"]);
    assert_eq!((&said["receipt"], &said["signer_verdict"]), (&receipt, &json!("UNPINNED")));
    assert_eq!(
        (&said["event"], &said["stated_by"], &said["schema"]),
        (&json!("response_sent"), &json!("recorder"), &json!("assay.proof.v1"))
    );
    assert!(!said.to_string().contains("hidden"));
    let ledger = &said["ledger"];
    assert!(ledger["origin"].as_str().unwrap().starts_with("assay/ledger/"), "{ledger}");
    assert_eq!((&ledger["ledger_seq"], &ledger["lines"]), (&json!(1), &json!(3)));
    let signer = said["signer"].as_str().unwrap();
    let text = stdout(&rig.run(&["verify-proof", "--signer", signer, "call.tlog-proof"]));
    assert!(
        text.contains("PINNED") && text.contains("Nothing is said of other events") && text.contains("shown"),
        "{text}"
    );
    let other = rig.run(&["verify-proof", "--signer", &"0".repeat(64), "call.tlog-proof"]);
    assert!(other.status.code() == Some(2) && stdout(&other).contains("UNTRUSTED"), "{}", stdout(&other));
    let (from, to) = (format!("\n{}\n", said["events"]), format!("\n{}\n", said["events"].as_u64().unwrap() + 1));
    fs::write(rig.root.join("changed"), proof.replacen(&from, &to, 1)).unwrap();
    let changed = rig.run(&["verify-proof", "changed"]);
    assert!(changed.status.code() == Some(2) && stderr(&changed).contains("does not hold"), "{}", stderr(&changed));
    for none in ["gone", "home", "."] {
        assert_eq!(rig.run(&["verify-proof", none]).status.code(), Some(3), "{none}");
    }
    fs::write(rig.root.join("none"), "\u{1b}]0;x\u{7}").unwrap();
    let none = rig.run(&["verify-proof", "none"]);
    assert!(none.status.code() == Some(3) && stderr(&none).contains("not a proof"), "{}", stderr(&none));
}

#[test]
fn what_cannot_be_proven_is_said() {
    let rig = rig!();
    rig.record("audit", &[], &[json!({"name": "echo", "arguments": {"text": "a"}})]);
    let pack = fs::read_dir(rig.audit.join("packs")).unwrap().next().unwrap().unwrap().path();
    let pack = pack.to_str().unwrap();
    for (args, why) in [
        (&["mtc_00000000000000aa"][..], "no event binds a receipt"),
        (&["--event", "99"], "numbered from 0"),
        (&["receipt"], "the id of a receipt"),
        (&[], "required"),
    ] {
        let out = rig.run(&[&["prove", pack][..], args].concat());
        assert!(out.status.code() == Some(3) && stderr(&out).contains(why), "{args:?}: {}", stderr(&out));
    }
    let proof = rig.run(&["prove", "last", "--audit-dir", "audit", "--event", "0"]);
    fs::write(rig.root.join("first"), &proof.stdout).unwrap();
    let said = rig.json(0, &["verify-proof", "first"]);
    assert_eq!((&said["event"], &said["receipt"]), (&json!("chain_start"), &Value::Null));
}
