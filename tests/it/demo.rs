//! `assay demo`, run as a newcomer runs it.

use assay_support::rig::{Rig, rig};
use serde_json::Value;
use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The program, with colours where it wants them.
fn command(rig: &Rig, args: &[&str]) -> Command {
    let mut command = rig.program(args);
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

fn run(rig: &Rig, args: &[&str]) -> Output {
    command(rig, args).output().unwrap()
}

/// Proxies and servers that outlived the demo.
fn strays(rig: &Rig) -> Vec<String> {
    rig.processes().iter().map(|p| fs::read_to_string(p.join("cmdline")).unwrap_or_default()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn only_entry(dir: &Path) -> PathBuf {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn a_newcomer_sees_a_session_a_pack_that_verifies_and_a_changed_byte_found() {
    let rig = rig!();
    let demo = run(&rig, &["demo"]);
    let (out, err) = (text(&demo.stdout), text(&demo.stderr));
    assert_eq!(demo.status.code(), Some(0), "{out}{err}");
    assert_eq!(err, "");
    assert!(!out.contains('\u{1b}'), "no colours in a pipe");
    for said in [
        "just created",
        "assay-demo-server 0.1.0, MCP 2025-11-25",
        "echo, slow, fail, big, search",
        "answered, after 4 progress notes",
        "error: the tool failed: it was asked to",
        "answered with 4.",
        "cancelled by the client",
        "10: one per call (6 answered, 1 error, 1 cancelled)",
        "integrity     PASS",
        "completeness  COMPLETE",
        "claims        PASS",
        "signer        PINNED",
        "integrity     TAMPERED",
        "receipt_pack.jsonl, line 3",
        "receipt_pack.jsonl:3",
        "expected",
        "found",
        "\"mcp-proxy\"",
        "Everything was as expected.",
    ] {
        assert!(out.contains(said), "{said:?} is missing:\n{out}");
    }
    assert!(out.contains(rig.assay), "the client needs an absolute path:\n{out}");
    assert_eq!(strays(&rig), [""; 0]);

    let dir = rig.at("assay-demo");
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let pack = only_entry(&dir.join("mcp/packs"));
    let copy = only_entry(&dir.join("tampered"));
    let differ: usize = ["receipt_pack.jsonl", "audit_log.jsonl", "pack_manifest.json", "session.json"]
        .iter()
        .map(|name| {
            let (a, b) = (fs::read(pack.join(name)).unwrap(), fs::read(copy.join(name)).unwrap());
            assert_eq!(a.len(), b.len());
            a.iter().zip(&b).filter(|(a, b)| a != b).count()
        })
        .sum();
    assert_eq!(differ, 1, "bytes");
    let [pack, copy] = [pack, copy].map(|p| p.to_str().unwrap().to_owned());
    assert_eq!(run(&rig, &["verify-pack", &pack]).status.code(), Some(0));
    let verified = run(&rig, &["verify-pack", "--json", &copy]);
    assert_eq!(verified.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(report["integrity_verdict"], "TAMPERED");
}

#[test]
fn the_receipts_say_what_the_client_saw() {
    let rig = rig!();
    let demo = run(&rig, &["demo", "--dir", "here"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo.stdout));
    let receipts = lines(&only_entry(&rig.at("here/mcp/packs")).join("receipt_pack.jsonl"));
    let calls: Vec<_> = receipts
        .iter()
        .filter(|r| r["type"] == "mcp_tool_call")
        .map(|r| {
            (r["mcp_request_id"].as_u64().unwrap(), r["tool_name"].as_str().unwrap(), r["outcome"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        calls,
        [
            (3, "echo", "forwarded"),
            (4, "slow", "forwarded"),
            (5, "fail", "error"),
            (6, "big", "forwarded"),
            (9, "search", "forwarded"),
            (8, "search", "forwarded"),
            (7, "search", "forwarded"),
            (10, "slow", "timeout"),
        ]
    );
    assert!(receipts[2]["duration_ms"].as_f64().unwrap() >= 900.0);
    assert_eq!(receipts[8]["outcome_reason"], "cancelled_by_client");
    assert_eq!(receipts[0]["client_info"]["name"], "assay-demo-client");
    assert_eq!(receipts[0]["server_info"]["name"], "assay-demo-server");
    assert_eq!(strays(&rig), [""; 0]);
}

#[test]
fn nothing_is_overwritten() {
    let rig = rig!();
    fs::create_dir(rig.at("assay-demo")).unwrap();
    fs::write(rig.at("assay-demo-2"), "mine").unwrap();
    let refused = run(&rig, &["demo", "--dir", "assay-demo-2"]);
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(said.contains("assay-demo-2 exists already") && said.contains("--dir"), "{said}");
    assert!(!rig.at("home").exists(), "no key is made for a demo that does not begin");

    let demo = run(&rig, &["demo"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo.stdout));
    assert!(rig.at("assay-demo-3/mcp/packs").is_dir());
    assert_eq!(fs::read_dir(rig.at("assay-demo")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(rig.at("assay-demo-2")).unwrap(), "mine");
}

#[test]
fn a_place_that_cannot_be_written_is_said_with_what_to_do() {
    let rig = rig!();
    // Also root cannot make a directory there.
    let refused = command(&rig, &["demo"]).current_dir("/proc/self").output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(said.contains("/assay-demo: ") && said.contains("assay demo --dir /tmp/assay-demo"), "{said}");
    assert_eq!(text(&refused.stdout), "");
}

#[test]
fn a_key_that_must_not_be_used_leaves_no_directory() {
    let rig = rig!();
    let keys = rig.at("home/keys");
    fs::create_dir_all(&keys).unwrap();
    fs::write(keys.join("assay-local.key"), [7; 32]).unwrap();
    fs::set_permissions(keys.join("assay-local.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = run(&rig, &["demo"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("0600"));
    assert!(!rig.at("assay-demo").exists());
}

#[test]
fn a_reader_that_goes_away_does_not_keep_the_demo_from_ending() {
    let rig = rig!();
    let mut child = command(&rig, &["demo"])
        .env("CLICOLOR_FORCE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, *b"\x1b[1m", "colours where they are forced");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(strays(&rig), [""; 0]);
}

#[test]
fn the_built_in_server_is_not_in_the_help() {
    let rig = rig!();
    let help = text(&run(&rig, &["--help"]).stdout);
    assert!(help.contains("\n  demo "), "{help}");
    assert!(!help.contains("demo-server"), "{help}");
    let mut server = command(&rig, &["demo-server"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], 1);
    drop(stdin);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
