//! `--redact`: what rules match is stored nowhere, and the evidence says so; hashes and verdicts are those of the originals.

use assay::canon::{canonicalize, sha256_hex};
use assay_support::{
    forge::{Pack, check_pack, key_e, unpinned},
    rig::{Client, INITIALIZE, rig, stderr, stdout, until},
};
use memchr::memmem::find;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What must be nowhere.
const SECRET: &str = "TCK-483920";
const RULES: &str = "version: \"1\"\nrules:\n  - { name: ticket, regex: 'TCK-[0-9]{6}' }\n  - { name: who, pointer: /user/name, in: arguments }\n";
const STORE: [&str; 4] = ["--store-args", "--store-results", "--redact", "r.yaml"];

/// Files below a directory that hold a text.
fn holders(dir: &Path, text: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| if path.is_dir() { holders(&path, text) } else { vec![path] });
    below.filter(|path| find(&fs::read(path).unwrap_or_default(), text.as_bytes()).is_some()).collect()
}

fn hash(value: &Value) -> String {
    format!("sha256:{}", sha256_hex(&canonicalize(value.to_string().as_bytes()).unwrap()))
}

fn echo(arguments: &Value) -> Value {
    json!({"name": "echo", "arguments": arguments})
}

fn words(receipt: &Value) -> Vec<&str> {
    receipt["anomalies"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn what_rules_match_is_stored_nowhere_and_the_pack_verifies_and_says_so() {
    let rig = rig!();
    rig.file("r.yaml", RULES);
    let asked = [
        json!({"text": format!("see {SECRET}."), "user": {"name": "Eve", "id": 1}}),
        json!({"text": "nothing to hide"}),
        json!({"text": "x".repeat(2000), "key": SECRET}),
        // Outside ASCII: a pack cannot hold it, the investigation log can.
        json!({"text": "é", "é": SECRET}),
    ];
    let calls_asked: Vec<Value> = asked.iter().map(echo).collect();
    rig.record("audit", &[&STORE[..], &["--store-limit", "1K"]].concat(), &calls_asked);
    let receipts = rig.receipts_of_calls("audit");
    assert_eq!(receipts.len(), asked.len());
    for (receipt, asked) in receipts.iter().zip(&asked) {
        assert_eq!(receipt["arguments_hash"], hash(asked), "the hash is of the original");
    }
    assert_eq!(
        receipts[0]["arguments_content"],
        json!({"text": "see [redacted:ticket].", "user": {"name": "[redacted:who]", "id": 1}})
    );
    assert_eq!(words(&receipts[0])[..2], ["redacted:arguments:ticket", "redacted:arguments:who"]);
    assert!(words(&receipts[0]).contains(&"redacted:result:ticket"), "{}", receipts[0]);
    assert!(receipts[0]["result_content"].to_string().contains("see [redacted:ticket]."));
    assert_eq!(receipts[0]["schema_version"], "3.3");
    assert_eq!((&receipts[1]["arguments_content"], &receipts[1]["schema_version"]), (&asked[1], &json!("3.0")));
    assert_eq!(
        (words(&receipts[2]), &receipts[2]["arguments_content"]),
        (vec!["redaction_not_possible"], &Value::Null)
    );
    assert!(words(&receipts[3]).contains(&"content_in_investigation_log"));
    assert_eq!(holders(&rig.root, SECRET), Vec::<PathBuf>::new());
    assert_eq!(holders(&rig.root, "\"Eve\""), Vec::<PathBuf>::new());

    let pack = rig.only_pack("audit");
    let path = pack.to_str().unwrap();
    let report = rig.json(0, &["verify-pack", path, "--cards", "mcp_session_completeness"]);
    assert_eq!((&report["integrity_verdict"], &report["redacted_contents"]), (&json!("PASS"), &json!(2)));
    assert!(report["claim_verification"].to_string().contains("2 contents redacted before it was stored"), "{report}");
    assert!(stdout(&rig.run(&["verify-pack", path])).contains("redacted      2 contents"));
    let said = stdout(&rig.run(&["explain", path]));
    assert!(
        said.contains(
            "Redacted   before it was stored: ticket in the arguments of 2 calls, who in the arguments of 1 call"
        ),
        "{said}"
    );

    // What was stored beside the pack is read again as what it is.
    let out = rig.run(&["export", path, "--format", "json"]);
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let exported: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(exported["calls"][3]["arguments"], json!({"text": "é", "é": "[redacted:ticket]"}));

    // A policy is not judged on what is left: it is not known what was sent.
    let policy =
        rig.file("p.yaml", "version: \"1\"\ndefault: allow\nconstraints: { echo: { deny_patterns: ['redacted'] } }\n");
    let judged = rig.json(0, &["policy", "dry-run", &policy, "--against", path]);
    assert_eq!((&judged["denied"], &judged["unknown"]), (&json!(0), &json!(3)), "{judged}");

    let replayed = rig.shell(&format!("\"$0\" replay {path} < /dev/null")).output().unwrap();
    assert!(stderr(&replayed).contains("1 of them answers with a redacted result"), "{}", stderr(&replayed));

    // Only what was sent is sent again.
    let again = rig.run(&["replay", path, "--against", "--yes", "--json", "--", rig.assay, "demo-server"]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["same"], 1, "{again}");
    assert!(
        again["skipped"].to_string().contains(r#"{"calls":2,"reason":"arguments_redacted","tool":"echo"}"#),
        "{again}"
    );
}

#[test]
fn content_that_nothing_says_is_redacted_is_tampered_with() {
    let rig = rig!();
    rig.file("r.yaml", RULES);
    rig.record("audit", &STORE, &[echo(&json!({"text": format!("see {SECRET}")}))]);
    let packs = rig.only_pack("audit");
    for (from, to) in [
        ("\"redacted:arguments:ticket\",", ""),
        ("\"schema_version\":\"3.3\"", "\"schema_version\":\"3.0\""),
        ("see [redacted:ticket]", "see something else!!!"),
    ] {
        let mut forged = Pack::read(&packs);
        forged.replace("receipt_pack.jsonl", from, to);
        forged.make_consistent();
        forged.sign(&key_e());
        let errors = check_pack(&forged, &unpinned()).errors;
        assert!(errors.iter().any(|e| e.message.contains("does not match its hash")), "{from}: {errors:?}");
    }
}

#[test]
fn judges_have_the_original() {
    let rig = rig!();
    rig.file("r.yaml", RULES);
    let policy =
        rig.file("p.yaml", "version: \"1\"\ndefault: allow\nconstraints: { echo: { deny_patterns: ['TCK-48'] } }\n");
    let flags = ["--audit-dir", "audit", "--profile", "guard", "--policy", &policy];
    let mut client =
        Client::start(rig.program(&[&["mcp-proxy"], &flags[..], &STORE, &["--", rig.assay, "demo-server"]].concat()));
    let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": echo(&json!({"text": SECRET}))});
    client.converse([INITIALIZE.to_owned(), asked.to_string()].into_iter());
    assert_eq!(client.end().code(), Some(1), "{}", client.said());
    let receipt = &rig.receipts_of_calls("audit")[0];
    assert_eq!(
        (&receipt["outcome"], &receipt["policy_reason"]),
        (&json!("denied"), &json!("constraint:deny_patterns"))
    );
    assert_eq!(receipt["arguments_content"], json!({"text": "[redacted:ticket]"}));
    assert_eq!(holders(&rig.audit, SECRET), Vec::<PathBuf>::new());
}

#[test]
fn single_arguments_in_cleartext_are_redacted_too() {
    let rig = rig!();
    rig.file("r.yaml", RULES);
    let asked = json!({"text": SECRET, "key": SECRET, SECRET: 1});
    rig.record("audit", &["--redact", "r.yaml", "--cleartext", "echo=text"], &[echo(&asked)]);
    let receipt = &rig.receipts_of_calls("audit")[0];
    let sha = |text: &str| format!("sha256:{}", sha256_hex(text.as_bytes()));
    let kept = json!({"text": "[redacted:ticket]", "key": sha(&format!("\"{SECRET}\"")), sha(SECRET): sha("1")});
    assert_eq!((&receipt["arguments_redacted"], &receipt["schema_version"]), (&kept, &json!("3.2")));
    assert_eq!(words(receipt), ["redacted:arguments:ticket"]);
    let path = rig.only_pack("audit");
    assert_eq!(rig.json(0, &["verify-pack", path.to_str().unwrap()])["integrity_verdict"], "PASS");
    assert_eq!(holders(&rig.root, SECRET), Vec::<PathBuf>::new());
}

#[test]
fn after_a_kill_recovery_stores_nothing_that_rules_would_have_taken_out() {
    let rig = rig!();
    let rules = rig.file("r.yaml", RULES);
    let flags = ["--store-args", "--store-results", "--redact", &rules];
    let mut client = Client::start(rig.proxy(&flags));
    let asked = |id: u64| {
        let params = echo(&json!({"text": SECRET}));
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    client.converse([INITIALIZE.to_owned(), asked(1)].into_iter());
    until("the receipt of the call", || {
        (!holders(&rig.audit.join("receipts"), "[redacted:ticket]").is_empty()).then_some(())
    });
    client.send(&asked(2));
    client.kill();
    assert_eq!(holders(&rig.audit, SECRET), Vec::<PathBuf>::new(), "before the recovery");
    assert_eq!(rig.recover().status.code(), Some(0));
    for dir in [&rig.audit, &rig.at("run"), &rig.at("home")] {
        assert_eq!(holders(dir, SECRET), Vec::<PathBuf>::new(), "after it");
    }
    let receipts = rig.receipts_of_calls("audit");
    assert_eq!(
        (&receipts[0]["arguments_content"], &receipts[0]["schema_version"]),
        (&json!({"text": "[redacted:ticket]"}), &json!("3.3"))
    );
    let path = rig.only_pack("audit");
    assert_eq!(rig.json(1, &["verify-pack", path.to_str().unwrap()])["integrity_verdict"], "PASS");
}

#[test]
fn an_export_is_redacted_where_the_pack_is_not() {
    let rig = rig!();
    rig.file("r.yaml", RULES);
    rig.record(
        "audit",
        &["--store-args", "--store-results"],
        &[echo(&json!({"text": format!("see {SECRET}"), "password": "hunter22"}))],
    );
    let export = |format: &str, rules: &[&str]| {
        let out = rig.run(&[&["export", "last", "--audit-dir", "audit", "--format", format], rules].concat());
        assert_eq!(out.status.code(), Some(0), "{format} {}", stderr(&out));
        stdout(&out)
    };
    for format in ["html", "json", "csv"] {
        assert!(export(format, &[]).contains(SECRET), "{format}");
        let text = export(format, &["--redact", "r.yaml", "--redact", "preset:secrets"]);
        assert!(!text.contains(SECRET) && !text.contains("hunter22"), "{format}: {text}");
        assert!(
            text.contains("see [redacted:ticket]") && text.contains("[redacted:member-password]"),
            "{format}: {text}"
        );
    }
    let document: Value = serde_json::from_str(&export("json", &["--redact", "r.yaml"])).unwrap();
    assert_eq!((&document["source"]["redacted"], &document["source"]["integrity"]), (&json!(true), &json!("PASS")));
    let call = &document["calls"][0];
    assert_eq!(call["receipt"]["arguments_hash"], rig.receipts_of_calls("audit")[0]["arguments_hash"]);
    assert_eq!(words(&call["receipt"]), ["redacted:arguments:ticket", "redacted:result:ticket"]);
    assert_eq!(holders(&rig.only_pack("audit"), SECRET).len(), 1, "the pack is as it was");
}

#[test]
fn rules_that_mean_nothing_start_no_server() {
    let rig = rig!();
    let server = ["--", "sh", "-c", "touch started"];
    rig.file("bad.yaml", "version: \"1\"\nrules:\n  - { name: x, regex: '(' }\n");
    for (flag, said) in [
        ("bad.yaml", "bad.yaml:3:23: this is no regular expression for a rule: unclosed group (at character 1)"),
        ("none.yaml", "none.yaml: "),
        ("preset:other", "there is no preset `other`"),
    ] {
        for command in [&["mcp-proxy", "--redact", flag][..], &["export", "last", "--format", "csv", "--redact", flag]]
        {
            let is_proxy = command[0] == "mcp-proxy";
            let out = rig.run(&[command, if is_proxy { &server[..] } else { &[] }].concat());
            assert_eq!(out.status.code(), Some(3), "{command:?} {}", stderr(&out));
            assert!(stderr(&out).contains(said), "{command:?} {}", stderr(&out));
        }
    }
    fs::create_dir_all(rig.at("home")).unwrap();
    rig.file("home/r.yaml", RULES);
    rig.file("home/assay.toml", "[mcp-proxy]\nstore-args = true\nredact = [\"r.yaml\", \"preset:secrets\"]\n");
    rig.record("audit", &[], &[echo(&json!({"text": SECRET}))]);
    assert_eq!(rig.receipts_of_calls("audit")[0]["arguments_content"], json!({"text": "[redacted:ticket]"}));
    rig.file("home/r.yaml", "version: \"9\"\n");
    let out = rig.run(&[&["mcp-proxy"][..], &server].concat());
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("r.yaml:1:10: "), "{}", stderr(&out));
    assert!(!rig.at("started").exists());
}
