//! `mcp-proxy --cleartext`: of the arguments of a call, those that were named, the others as their hashes, and nothing else.

use assay::canon::sha256_hex;
use assay_support::rig::{Client, INITIALIZE, call, files, rig, stderr, stdout, until};
use serde_json::{Value, json};
use std::{fs, path::Path};

fn hash(json: &str) -> String {
    format!("sha256:{}", sha256_hex(json.as_bytes()))
}

/// All that is in files below a directory.
fn everything(dir: &Path) -> Vec<u8> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { everything(&path) } else { fs::read(&path).unwrap_or_default() })
        .collect()
}

#[test]
fn fields_that_were_named_are_kept_and_others_are_hashes() {
    let rig = rig!();
    let flags = ["--cleartext", "echo=text,é", "--cleartext", "fail=", "--store-limit", "1K"];
    // What is called, what its receipt has of the arguments, and whether it says that something was not kept.
    let cases = [
        ("echo", json!({"text": "shown", "key": "s3cret"}), json!({"text": "shown", "key": hash("\"s3cret\"")}), false),
        ("echo", json!({"text": {"b": 1.0, "a": "x"}}), json!({"text": {"b": 1, "a": "x"}}), false),
        ("echo", json!({"text": 1e30}), json!({"text": hash("1e+30")}), true),
        ("echo", json!({"text": {"é": 1}}), json!({"text": hash(r#"{"é":1}"#)}), true),
        ("echo", json!({"text": "a", "é": 1}), json!({"text": "a", hash("é"): 1}), false),
        (
            "echo",
            json!({"text": "a", "n".repeat(129): 1}),
            json!({"text": "a", hash(&"n".repeat(129)): hash("1")}),
            false,
        ),
        ("echo", json!({}), json!({}), false),
        ("echo", json!({"text": "x".repeat(2000)}), Value::Null, true),
        ("fail", json!({"text": "s3cret"}), json!({"text": hash("\"s3cret\"")}), false),
        ("ECHO", json!({"text": "s3cret"}), Value::Null, false),
    ];
    let asked: Vec<Value> = cases.iter().map(|(tool, args, ..)| json!({"name": tool, "arguments": args})).collect();
    rig.record("audit", &flags, &asked);
    let calls = rig.receipts_of_calls("audit");
    assert_eq!(calls.len(), cases.len());
    for (receipt, (tool, arguments, kept, lost)) in calls.iter().zip(&cases) {
        assert_eq!(receipt["arguments_redacted"], *kept, "{tool} {arguments}");
        let says = receipt["anomalies"].as_array().unwrap().contains(&"cleartext_not_kept".into());
        assert_eq!(says, *lost, "{tool} {arguments}");
        assert_eq!((&receipt["schema_version"], &receipt["arguments_content"]), (&"3.2".into(), &Value::Null));
    }
    assert!(memchr::memmem::find(&everything(&rig.root), b"s3cret").is_none());
    let pack = rig.only_pack("audit");
    assert_eq!(rig.json(0, &["verify-pack", pack.to_str().unwrap()])["integrity_verdict"], "PASS");
    assert_eq!(rig.json(0, &["explain", pack.to_str().unwrap()])["redacted_calls"], 8);
    let text = stdout(&rig.run(&["explain", pack.to_str().unwrap()]));
    assert!(text.contains("Cleartext  arguments that were named, of 8 calls"), "{text}");
}

#[test]
fn a_call_that_a_guard_refuses_has_them_and_a_session_without_the_option_has_none() {
    let rig = rig!();
    let policy = rig.file("p.yaml", "version: \"1\"\ndefault: deny\n");
    let flags = ["--audit-dir", "guarded", "--profile", "guard", "--policy", &policy, "--cleartext", "echo=n"];
    let mut client =
        Client::start(rig.program(&[&["mcp-proxy"], &flags[..], &["--", rig.assay, "demo-server"]].concat()));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 5)].into_iter());
    assert_eq!(client.end().code(), Some(1), "{}", client.said());
    let refused = &rig.receipts_of_calls("guarded")[0];
    assert_eq!((&refused["outcome"], &refused["arguments_redacted"]["n"]), (&"denied".into(), &5.into()));
    rig.record("plain", &[], &[json!({"name": "echo", "arguments": {"text": "shown"}})]);
    let plain = &rig.receipts_of_calls("plain")[0];
    assert_eq!((plain.get("arguments_redacted"), &plain["schema_version"]), (None, &"3.0".into()));
}

#[test]
fn a_file_may_say_it_but_not_a_projects_and_what_means_nothing_starts_no_server() {
    let rig = rig!();
    fs::create_dir_all(rig.at("home")).unwrap();
    let said = "[mcp-proxy]\ncleartext = [\"echo=text\", \"fail=why\"]\n";
    rig.file("home/assay.toml", said);
    rig.record("audit", &[], &[json!({"name": "echo", "arguments": {"text": "shown"}})]);
    assert_eq!(rig.receipts_of_calls("audit")[0]["arguments_redacted"]["text"], "shown");
    let options = &rig.json(0, &["config"])["options"];
    let shown = options.as_array().unwrap().iter().find(|one| one["name"] == "cleartext").unwrap();
    assert_eq!(shown["value"], json!(["echo=text", "fail=why"]));
    let server = ["--", "sh", "-c", "touch started"];
    for bad in ["", "echo", "=text", "echo=,", "echo=text,", "echo=a, b"] {
        let out = rig.run(&[&["mcp-proxy", "--cleartext", bad][..], &server].concat());
        assert_eq!(out.status.code(), Some(3), "{bad}: {}", stderr(&out));
        assert!(stderr(&out).contains("TOOL=FIELD"), "{bad}: {}", stderr(&out));
        rig.file("home/assay.toml", &said.replace("fail=why", bad));
        let out = rig.run(&[&["mcp-proxy"][..], &server].concat());
        assert_eq!(out.status.code(), Some(3), "{bad}: {}", stderr(&out));
        assert!(stderr(&out).contains("assay.toml: --cleartext"), "{bad}: {}", stderr(&out));
    }
    fs::rename(rig.at("home/assay.toml"), rig.at("assay.toml")).unwrap();
    rig.file("assay.toml", said);
    let out = rig.run(&[&["mcp-proxy"][..], &server].concat());
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("cannot be set by a project"), "{}", stderr(&out));
    assert!(!rig.at("started").exists());
}

#[test]
fn what_was_kept_before_a_crash_is_in_the_pack_of_the_recovery() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&["--cleartext", "echo=n"]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 5)].into_iter());
    let written = || {
        files(&rig.audit.join("receipts"), |_| true)
            .iter()
            .any(|path| memchr::memmem::find(&fs::read(path).unwrap(), b"\"arguments_redacted\":{").is_some())
    };
    until("the receipt of the call", || written().then_some(()));
    client.send(&call(2, "echo", 6));
    client.kill();
    assert_eq!(rig.recover().status.code(), Some(0));
    let receipts = rig.receipts_of_calls("audit");
    assert_eq!(receipts[0]["arguments_redacted"]["n"], 5);
    let pack = rig.only_pack("audit");
    assert_eq!(rig.json(1, &["verify-pack", pack.to_str().unwrap()])["integrity_verdict"], "PASS");
}
