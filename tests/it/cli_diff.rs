//! `assay diff` on whole packs, run as a user runs it.

use assay_support::{
    rig::{Rig, rig, stderr, stdout},
    sessions::{self, Ending, Plan},
};
use serde_json::Value;
use std::{fs, path::PathBuf};

/// The pack of a synthetic session, under a name of its own.
fn pack(rig: &Rig, name: &str, plan: &Plan) -> PathBuf {
    fs::rename(sessions::packed(plan, rig.at(&format!("{name}_audit"))), rig.at(name)).unwrap();
    rig.at(name)
}

fn plan(seed: u64) -> Plan {
    Plan { seed, ..Plan::default() }
}

#[test]
fn a_pack_does_not_differ_from_itself() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    let doc = rig.json(0, &["diff", "a", "a"]);
    assert_eq!(doc["schema"], "assay.diff.v1");
    assert_eq!(doc["answer"], "no_regression");
    let c = &doc["comparison"];
    assert_eq!(c["calls"]["paired"], 20);
    for none in ["new", "gone", "outcome_changed", "verdict_changed", "result_changed"] {
        assert_eq!(c["calls"][none], 0, "{none}");
    }
    assert_eq!((&c["changes"], &c["context"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(c["latency_a"], c["latency_b"]);
    let text = stdout(&rig.run(&["diff", "a", "a"]));
    assert!(text.contains("20 paired, 0 new, 0 gone") && text.ends_with("No regression.\n"), "{text}");
}

#[test]
fn another_session_of_the_same_calls_pairs_call_by_call() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    pack(&rig, "b", &plan(2));
    let doc = rig.json(0, &["diff", "a", "b"]);
    assert_eq!(doc["comparison"]["calls"]["paired"], 20);
    assert_eq!(doc["comparison"]["changes"], serde_json::json!([]));
    assert_ne!(doc["comparison"]["latency_a"], doc["comparison"]["latency_b"]);
}

#[test]
fn new_and_gone_calls_and_tools_are_differences_but_no_regression() {
    let rig = rig!();
    pack(&rig, "a", &Plan { calls: 10, tools: vec!["read".into(), "old".into()], ..plan(1) });
    pack(&rig, "b", &Plan { calls: 12, tools: vec!["read".into(), "new".into()], ..plan(2) });
    let doc = rig.json(0, &["diff", "a", "b"]);
    let c = &doc["comparison"];
    assert_eq!(c["new_tools"], serde_json::json!([{"tool": "new", "calls": 6}]));
    assert_eq!(c["gone_tools"], serde_json::json!([{"tool": "old", "calls": 5}]));
    assert_eq!((&c["calls"]["paired"], &c["calls"]["new"], &c["calls"]["gone"]), (&5.into(), &7.into(), &5.into()));
    let kinds: Vec<_> = c["changes"].as_array().unwrap().iter().map(|x| x["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, [vec!["new"; 7], vec!["gone"; 5]].concat());
    let text = stdout(&rig.run(&["diff", "a", "b"]));
    assert!(text.contains("New calls (only in B)") && text.contains("Gone calls (only in A)"), "{text}");
}

#[test]
fn a_call_that_fails_where_it_did_not_is_a_regression_and_the_other_way_is_not() {
    let rig = rig!();
    pack(&rig, "good", &plan(1));
    pack(&rig, "bad", &Plan { error_every: 5, ..plan(2) });
    let doc = rig.json(1, &["diff", "good", "bad"]);
    assert_eq!(doc["regressions"][0]["kind"], "errors");
    assert_eq!(doc["regressions"][0]["count"], 4);
    assert_eq!(doc["comparison"]["changes"][0]["a"]["outcome"], "forwarded");
    assert_eq!(doc["comparison"]["changes"][0]["b"]["outcome"], "error");
    assert_eq!(rig.json(0, &["diff", "bad", "good"])["regressions"], serde_json::json!([]));
}

#[test]
fn less_complete_is_a_regression() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    pack(&rig, "b", &Plan { ending: Ending::Incomplete, ..plan(2) });
    pack(&rig, "c", &Plan { timeout_every: 10, ..plan(3) });
    let kinds = |doc: &Value| -> Vec<String> {
        doc["regressions"].as_array().unwrap().iter().map(|r| r["kind"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds(&rig.json(1, &["diff", "a", "b"])), ["completeness"]);
    assert_eq!(kinds(&rig.json(1, &["diff", "a", "c"])), ["completeness", "timeouts"]);
    assert!(kinds(&rig.json(0, &["diff", "b", "a"])).is_empty());
}

#[test]
fn stored_results_are_compared_place_by_place() {
    let rig = rig!();
    pack(&rig, "a", &Plan { big_result: Some(300), ..plan(1) });
    pack(&rig, "b", &Plan { big_result: Some(400), ..plan(2) });
    let doc = rig.json(0, &["diff", "a", "b"]);
    let change = &doc["comparison"]["changes"][0];
    assert_eq!(doc["comparison"]["calls"]["result_changed"], 1);
    let place = &change["result_differences"][0];
    assert!(place["path"].as_str().unwrap().starts_with('/'), "{change}");
    assert_eq!(place["kind"], "changed");
    assert_ne!(place["old"], place["new"]);
}

#[test]
fn a_side_that_is_tampered_is_not_compared() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    let b = pack(&rig, "b", &plan(2));
    let receipts = b.join("receipt_pack.jsonl");
    let text = fs::read_to_string(&receipts).unwrap();
    fs::write(&receipts, text.replacen("read_file", "read_fild", 1)).unwrap();
    for (args, side) in [(["diff", "a", "b"], "b"), (["diff", "b", "a"], "a")] {
        let doc = rig.json(2, &args);
        assert_eq!((&doc["answer"], &doc["comparison"]), (&"not_verified".into(), &Value::Null));
        assert_eq!(doc[side]["integrity"], "TAMPERED");
        assert!(!doc[side]["errors"].as_array().unwrap().is_empty());
        let out = rig.run(&args);
        assert!(stdout(&out).contains("TAMPERED") && stdout(&out).contains("Nothing was compared"));
    }
    let other = "ab".repeat(32);
    assert_eq!(rig.json(2, &["diff", "a", "a", "--signer", &other])["a"]["signer"]["verdict"], "UNTRUSTED");
    assert_eq!(
        rig.json(0, &["diff", "a", "a", "--signer", &sessions::signer().fingerprint()])["a"]["signer"]["verdict"],
        "PINNED"
    );
}

#[test]
fn what_is_no_pack_is_bad_input() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    fs::create_dir(rig.at("empty")).unwrap();
    fs::write(rig.at("notes.txt"), "x").unwrap();
    for (other, said) in [
        ("empty", "is not a proof pack"),
        ("none", "none does not exist"),
        ("notes.txt", "neither a pack nor the evidence of a session"),
    ] {
        let out = rig.run(&["diff", "a", other]);
        assert_eq!(out.status.code(), Some(3), "{other}");
        assert!(stderr(&out).contains(said), "{}", stderr(&out));
    }
    assert_eq!(rig.json(3, &["diff", "none", "a"])["status"], "error");
}

#[test]
fn gates_are_judged_one_by_one() {
    let rig = rig!();
    pack(&rig, "a", &Plan { tools: vec!["read".into(), "old".into()], ..plan(1) });
    pack(
        &rig,
        "b",
        &Plan { tools: vec!["read".into(), "new".into()], error_every: 7, big_result: Some(10), ..plan(2) },
    );
    let tight = rig.file(
        "tight.yaml",
        "max_new_tools: 0\nmax_gone_tools: 0\nmax_denied: 0\nmax_errors: 1\nmax_timeouts: 0\nmax_changed_results: 0\n\
         p95_increase_pct: 0\np50_increase_pct: 100000\nrequire_complete: true\nrequire_pinned: true\n",
    );
    let doc = rig.json(1, &["diff", "a", "b", "--gates", &tight]);
    let of = |name: &str| {
        let all = doc["gates"]["results"].as_array().unwrap();
        all.iter().find(|g| g["gate"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    for (gate, passed) in [
        ("max_new_tools", false),
        ("max_gone_tools", false),
        ("max_denied", true),
        ("max_errors", false),
        ("max_timeouts", true),
        ("max_changed_results", false),
        ("p50_increase_pct", true),
        ("require_complete", true),
        ("require_pinned", false),
    ] {
        assert_eq!(of(gate)["passed"], passed, "{}", of(gate));
    }
    assert_eq!((&of("max_errors")["limit"], &of("max_errors")["actual"]), (&1.into(), &2.into()));
    assert_eq!(of("max_new_tools")["note"], "new");
    let loose = rig.file("loose.yaml", "max_errors: 2\nallowed_new_tools: [new]\n");
    let doc = rig.json(0, &["diff", "a", "b", "--gates", &loose]);
    assert_eq!(doc["gates"]["passed"], true);
    let text = stdout(&rig.run(&["diff", "a", "b", "--gates", &tight]));
    assert!(text.contains("✗ max_errors"), "{text}");
}

#[test]
fn a_regression_that_a_gate_speaks_to_is_judged_by_the_gate() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    pack(&rig, "b", &Plan { error_every: 10, ..plan(2) });
    let gates = rig.file("g.yaml", "max_errors: 5\n");
    let doc = rig.json(0, &["diff", "a", "b", "--gates", &gates]);
    assert_eq!(doc["regressions"][0]["judged_by"], "max_errors");
    let gates = rig.file("h.yaml", "max_denied: 5\n");
    let doc = rig.json(1, &["diff", "a", "b", "--gates", &gates]);
    assert_eq!(doc["gates"]["passed"], true);
    assert_eq!(doc["regressions"][0]["judged_by"], Value::Null);
}

#[test]
fn gates_that_are_not_understood_are_bad_input_with_their_place() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    for (text, said) in [
        ("max_errors: 1\nmax_typo: 2\n", "g.yaml:2:1: unknown key `max_typo`"),
        ("max_errors: 1\nmax_errors: 2\n", "g.yaml:2:1: `max_errors` occurs twice"),
        ("max_errors: lots\n", "g.yaml:1:13: "),
        ("", "g.yaml"),
    ] {
        let gates = rig.file("g.yaml", text);
        let out = rig.run(&["diff", "a", "a", "--gates", &gates]);
        assert_eq!(out.status.code(), Some(3), "{text}");
        assert!(stderr(&out).contains(said), "{text:?}: {}", stderr(&out));
    }
    let big = rig.file("big.yaml", &format!("# {}\nmax_errors: 1\n", "x".repeat(1 << 20)));
    assert!(stderr(&rig.run(&["diff", "a", "a", "--gates", &big])).contains("longer than 1 MiB"));
    assert_eq!(rig.run(&["diff", "a", "a", "--gates", "none.yaml"]).status.code(), Some(3));
}

/// ATTACKS row 25: names with escape sequences, bidi overrides and markup, and a megabyte long.
#[test]
fn hostile_names_are_harmless_on_the_terminal_and_in_the_report() {
    let rig = rig!();
    let evil = "<script>alert(1)</script>\"'`\u{1b}]52;c;eA==\u{7}\u{202e}\u{9b}2J\r\n&lt;";
    let long = "x".repeat(1 << 20);
    pack(&rig, "a", &Plan { calls: 4, tools: vec!["read".into()], ..plan(1) });
    pack(&rig, "b", &Plan { calls: 6, tools: vec![evil.into(), long], big_result: Some(50), ..plan(2) });
    let out = rig.run(&["diff", "a", "b", "--report", "report.html"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let json = rig.run(&["diff", "a", "b", "--json"]);
    let html = fs::read_to_string(rig.at("report.html")).unwrap();
    for text in [&stdout(&out), &stdout(&json), &html] {
        let hidden = text.chars().find(|c| c.is_control() && *c != '\n' || ('\u{202a}'..='\u{202e}').contains(c));
        assert_eq!(hidden, None);
        assert!(text.len() < 200_000, "{}", text.len());
    }
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
}

#[test]
fn the_report_is_one_file_that_loads_nothing_and_replaces_nothing() {
    let rig = rig!();
    pack(&rig, "a", &plan(1));
    pack(&rig, "b", &Plan { error_every: 5, ..plan(2) });
    let gates = rig.file("g.yaml", "max_errors: 1\nrequire_complete: true\n");
    assert_eq!(rig.run(&["diff", "a", "b", "--gates", &gates, "--report", "r.html"]).status.code(), Some(1));
    let html = fs::read_to_string(rig.at("r.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("Content-Security-Policy"));
    assert!(
        html.contains("default-src 'none'") && html.contains("width=device-width") && html.contains("@media print")
    );
    for loads in ["<script", "<link", "<img", "<iframe", "src=", "href=", "url(", "@import", "http:", "https:"] {
        assert!(!html.contains(loads), "{loads}");
    }
    for said in ["max_errors", "FAIL", "Regression", "forwarded → error"] {
        assert!(html.contains(said), "{said}");
    }
    let out = rig.run(&["diff", "a", "b", "--report", "r.html"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("exists already"), "{}", stderr(&out));
    assert_eq!(fs::read_to_string(rig.at("r.html")).unwrap(), html);
    assert_eq!(rig.run(&["diff", "a", "b", "--report", "b/r.html"]).status.code(), Some(3));
}
