//! `assay analyze`, run as a user runs it, and the history that the proxy fills.

use assay_support::{
    rig::{Rig, rig},
    sessions::Plan,
};
use serde_json::{Value, json};
use std::fs;

/// Calls of `echo`, and one that fails.
fn record(rig: &Rig, audit: &str, echoes: usize) {
    let mut calls: Vec<Value> =
        (1..=echoes).map(|n| json!({"name": "echo", "arguments": {"text": n.to_string()}})).collect();
    calls.push(json!({"name": "fail", "arguments": {}}));
    rig.record(audit, &["--server-id", "demo"], &calls);
}

#[test]
fn packs_are_counted_by_tool_server_and_day() {
    let rig = rig!();
    let one = rig.pack(&Plan { error_every: 5, ..Plan::default() });
    let two = rig.pack(&Plan { seed: 2, calls: 10, timeout_every: 10, ..Plan::default() });
    let args = ["analyze", one.to_str().unwrap(), two.to_str().unwrap()];
    let doc = rig.json(0, &args);
    assert_eq!(doc["schema"], "assay.analysis.v1");
    let total = &doc["total"];
    assert_eq!((&total["calls"], &total["errors"], &total["timeouts"]), (&30.into(), &4.into(), &1.into()));
    for rows in ["tools", "servers", "days"] {
        let sum: u64 = doc[rows].as_array().unwrap().iter().map(|r| r["calls"].as_u64().unwrap()).sum();
        assert_eq!(sum, 30, "{rows}");
    }
    assert_eq!(doc["days"][0]["name"], "2026-03-15");
    let text = String::from_utf8(rig.run(&args).stdout).unwrap();
    assert!(text.contains("read_file") && text.contains("2026-03-15") && text.contains("日本語の道具"), "{text}");
}

#[test]
fn a_tampered_pack_is_left_out_and_nothing_to_count_is_bad_input() {
    let rig = rig!();
    let good = rig.pack(&Plan::default());
    let bad = rig.pack(&Plan { seed: 2, ..Plan::default() });
    fs::write(bad.join("receipt_pack.jsonl"), "{}\n").unwrap();
    let doc = rig.json(2, &["analyze", good.to_str().unwrap(), bad.to_str().unwrap()]);
    assert_eq!((&doc["total"]["calls"], &doc["packs"][1]["integrity"]), (&20.into(), &"TAMPERED".into()));
    assert_eq!(rig.json(3, &["analyze"])["status"], "error");
    assert_eq!(rig.json(3, &["analyze", "none"])["status"], "error");
    assert_eq!(rig.json(3, &["analyze", "--audit-dir", "none"])["status"], "error");
}

#[test]
fn hostile_names_are_harmless() {
    let rig = rig!();
    let evil = "\u{1b}]52;c;eA==\u{7}\u{202e}\u{9b}2J\r\n";
    let pack = rig.pack(&Plan { tools: vec![evil.into(), "x".repeat(1 << 20)], ..Plan::default() });
    let out = rig.run(&["analyze", pack.to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
    assert!(text.len() < 10_000);
}

#[test]
fn what_the_proxy_recorded_is_in_the_history_whatever_the_directory() {
    let rig = rig!();
    record(&rig, "one", 3);
    record(&rig, "two", 4);
    let doc = rig.json(0, &["analyze", "--history"]);
    let h = &doc["history"];
    assert_eq!((&h["sessions"], &h["complete"], &h["directories"]), (&2.into(), &2.into(), &2.into()), "{h}");
    // The proxy noted them; there was nothing left to read.
    assert_eq!((&h["indexed"], &h["problems"]), (&0.into(), &serde_json::json!([])));
    assert_eq!((&doc["total"]["calls"], &doc["total"]["errors"]), (&9.into(), &2.into()));
    assert_eq!(doc["servers"][0]["name"], "demo");
    let rebuilt = rig.json(0, &["analyze", "--rebuild"]);
    assert_eq!((&rebuilt["history"]["rebuilt"], &rebuilt["history"]["indexed"]), (&true.into(), &2.into()));
    for rows in ["total", "tools", "servers", "days"] {
        assert_eq!(rebuilt[rows], doc[rows], "{rows}");
    }
}

#[test]
fn a_history_that_cannot_be_written_does_not_fail_a_session() {
    let rig = rig!();
    fs::create_dir_all(rig.at("home/history.lock")).unwrap();
    record(&rig, "one", 1);
    let log = fs::read_to_string(rig.at("one/recorder.log")).unwrap();
    assert!(log.contains("not in the history yet"), "{log}");
    fs::remove_dir(rig.at("home/history.lock")).unwrap();
    let doc = rig.json(0, &["analyze", "--history"]);
    assert_eq!((&doc["history"]["indexed"], &doc["total"]["calls"]), (&1.into(), &2.into()));
}

#[test]
fn a_damaged_history_is_said_and_rebuilt() {
    let rig = rig!();
    record(&rig, "one", 2);
    let database = rig.at("home/history.sqlite3");
    fs::write(&database, "no database at all, however long this text may be").unwrap();
    let out = rig.run(&["analyze", "--history"]);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("is damaged") && said.contains("--rebuild"), "{said}");
    assert_eq!(rig.json(0, &["analyze", "--history", "--rebuild"])["total"]["calls"], 3);
    assert_eq!(rig.json(0, &["analyze", "--history"])["total"]["calls"], 3);
}
