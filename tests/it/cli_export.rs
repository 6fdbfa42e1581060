//! `assay export`: a session in formats of others, of which each says that it is a copy.

use assay_support::rig::{Rig, rig, stderr, stdout};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

const NOTE: &str = "This is a copy and not evidence.";

/// Records calls whose texts mean something to spreadsheets and browsers; the pack.
fn record(rig: &Rig) -> PathBuf {
    let echo = |text: &str| json!({"name": "echo", "arguments": {"text": text}});
    let calls = [
        echo("plain"),
        echo("<script>alert(1)</script>"),
        json!({"name": "fail", "arguments": {"why": "é, \"quoted\"\nsecond line"}}),
        json!({"name": "=HYPERLINK(\"http://x\")"}),
    ];
    rig.record("audit", &["--store-args", "--store-results"], &calls);
    fs::read_dir(rig.audit.join("packs")).unwrap().next().unwrap().unwrap().path()
}

fn export(rig: &Rig, flags: &[&str]) -> String {
    let out = rig.run(&[&["export", "last", "--audit-dir", "audit"], flags].concat());
    assert_eq!(out.status.code(), Some(0), "{flags:?} {}", stderr(&out));
    stdout(&out)
}

/// SHA-256 of the pack's manifest, which every export has.
fn manifest(rig: &Rig, pack: &Path) -> String {
    let report = rig.json(0, &["verify-pack", pack.to_str().unwrap()]);
    report["pack_manifest_sha256"]
        .as_str()
        .map_or_else(|| assay::model::sha256_hex(&fs::read(pack.join("pack_manifest.json")).unwrap()), str::to_owned)
}

#[test]
fn every_format_says_that_it_is_a_copy_and_of_what() {
    let rig = rig!();
    let pack = record(&rig);
    let manifest = manifest(&rig, &pack);
    for format in ["html", "json", "csv", "otlp"] {
        let text = export(&rig, &["--format", format]);
        assert!(text.contains(NOTE) && text.contains(&manifest), "{format}: {text}");
    }
    let out = rig.run(&["export", "last", "--audit-dir", "audit", "--format", "har"]);
    assert_eq!((out.status.code(), stdout(&out).as_str()), (Some(3), ""));
    assert!(stderr(&out).contains("not over HTTP"), "{}", stderr(&out));
}

#[test]
fn the_json_has_the_receipts_as_they_are_and_what_was_stored() {
    let rig = rig!();
    let pack = record(&rig);
    let document: Value = serde_json::from_str(&export(&rig, &["--format", "json"])).unwrap();
    assert_eq!((&document["schema"], &document["source"]["integrity"]), (&json!("assay.export.v1"), &json!("PASS")));
    let calls = document["calls"].as_array().unwrap();
    let receipts = fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
    let receipts: Vec<Value> = receipts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for call in calls {
        assert!(receipts.contains(&call["receipt"]), "{call}");
    }
    assert_eq!((calls.len(), &calls[0]["arguments"]), (4, &json!({"text": "plain"})));
    assert_eq!(calls[2]["result"]["isError"], true);
}

#[test]
fn no_text_of_a_call_is_markup_or_a_formula() {
    let rig = rig!();
    record(&rig);
    let html = export(&rig, &["--format", "html"]);
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
    assert!(html.contains("default-src 'none'") && html.contains("@media print"));
    let csv = export(&rig, &["--format", "csv"]);
    assert!(csv.starts_with("asked_at,server,tool,"), "{csv}");
    assert!(csv.contains(",\"'=HYPERLINK(\"\"http://x\"\")\","), "{csv}");
}

#[test]
fn spans_are_those_of_the_session_and_of_its_calls() {
    let rig = rig!();
    record(&rig);
    let document: Value = serde_json::from_str(&export(&rig, &["--format", "otlp"])).unwrap();
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!((spans.len(), &spans[0]["name"]), (5, &json!("mcp.session")));
    for span in &spans[1..] {
        assert_eq!((&span["parentSpanId"], &span["traceId"]), (&spans[0]["spanId"], &spans[0]["traceId"]));
        let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
        assert!(time("startTimeUnixNano") > 0 && time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
    }
    assert_eq!((&spans[1]["name"], &spans[1]["status"]), (&json!("tools/call echo"), &Value::Null));
    assert_eq!(spans[3]["status"], json!({"code": 2, "message": "tool_error"}));
    let says = |key: &str| spans[4]["attributes"].as_array().unwrap().iter().find(|a| a["key"] == key).unwrap().clone();
    assert_eq!(says("error.type")["value"]["stringValue"], "-32602");
}

#[test]
fn a_filter_leaves_calls_out_and_a_file_is_never_replaced() {
    let rig = rig!();
    let pack = record(&rig);
    let some = ["--format", "json", "--filter", "tool:echo !outcome:error", "--out", "some.json"];
    assert_eq!(export(&rig, &some), "");
    let document: Value = serde_json::from_slice(&fs::read(rig.at("some.json")).unwrap()).unwrap();
    assert_eq!(document["calls"].as_array().unwrap().len(), 2);
    let source = &document["source"];
    assert_eq!((&source["filter"], &source["calls_recorded"]), (&json!("tool:echo !outcome:error"), &json!(4)));
    for (flags, what) in [
        (&some[..], "some.json"),
        (&["--format", "csv", "--filter", "colour:red"], "calls have tool:"),
        (&["--format", "csv", "--filter", "tool:nothing"], "no call passes"),
        (&["--format", "pdf"], "pdf"),
        (&["--format", "csv", "--out", pack.join("x").to_str().unwrap()], "--out"),
    ] {
        let out = rig.run(&[&["export", "last", "--audit-dir", "audit"], flags].concat());
        assert_eq!((out.status.code(), stdout(&out).as_str()), (Some(3), ""), "{flags:?}");
        assert!(stderr(&out).contains(what), "{flags:?}: {}", stderr(&out));
    }
    let receipts = pack.join("receipt_pack.jsonl");
    fs::write(&receipts, fs::read_to_string(&receipts).unwrap().replacen("plain", "plane", 1)).unwrap();
    let out = rig.run(&["export", "last", "--audit-dir", "audit", "--format", "json"]);
    assert_eq!((out.status.code(), stdout(&out).as_str()), (Some(2), ""), "{}", stderr(&out));
}
