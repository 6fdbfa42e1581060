//! `assay demo`, run as a newcomer runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command.args(args).current_dir(self.path()).env("ASSAY_HOME", self.path().join("home"));
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Processes that inherited this test's `ASSAY_HOME`: proxies and servers that outlived the demo.
    fn strays(&self) -> Vec<String> {
        let mark = format!("ASSAY_HOME={}\0", self.path().join("home").display());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ours = processes.filter(|p| {
            let environ = fs::read(p.path().join("environ")).unwrap_or_default();
            environ.windows(mark.len()).any(|w| w == mark.as_bytes())
        });
        ours.map(|p| fs::read_to_string(p.path().join("cmdline")).unwrap_or_default()).collect()
    }
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
    let place = Place::new();
    let demo = place.run(&["demo"]);
    let (out, err) = (text(&demo.stdout), text(&demo.stderr));
    assert_eq!(demo.status.code(), Some(0), "{out}{err}");
    assert_eq!(err, "");
    assert!(!out.contains('\u{1b}'), "no colours in a pipe");
    for said in [
        "made just now",
        "assay-demo-server 0.1.0, MCP 2025-11-25",
        "echo, slow, fail, big, search",
        "4 progress notes on the way",
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
        "Everything was as it should be.",
    ] {
        assert!(out.contains(said), "{said:?} is missing:\n{out}");
    }
    assert!(out.contains(env!("CARGO_BIN_EXE_assay")), "the client needs an absolute path:\n{out}");
    assert_eq!(place.strays(), [""; 0]);

    let dir = place.path().join("assay-demo");
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
    assert_eq!(place.run(&["verify-pack", &pack]).status.code(), Some(0));
    let verified = place.run(&["verify-pack", "--json", &copy]);
    assert_eq!(verified.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(report["integrity_verdict"], "TAMPERED");
}

#[test]
fn the_receipts_say_what_the_client_saw() {
    let place = Place::new();
    let demo = place.run(&["demo", "--dir", "here"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo.stdout));
    let receipts = lines(&only_entry(&place.path().join("here/mcp/packs")).join("receipt_pack.jsonl"));
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
    assert_eq!(place.strays(), [""; 0]);
}

#[test]
fn nothing_is_overwritten() {
    let place = Place::new();
    fs::create_dir(place.path().join("assay-demo")).unwrap();
    fs::write(place.path().join("assay-demo-2"), "mine").unwrap();
    let refused = place.run(&["demo", "--dir", "assay-demo-2"]);
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(said.contains("assay-demo-2 exists already") && said.contains("--dir"), "{said}");
    assert!(!place.path().join("home").exists(), "no key is made for a demo that does not begin");

    let demo = place.run(&["demo"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo.stdout));
    assert!(place.path().join("assay-demo-3/mcp/packs").is_dir());
    assert_eq!(fs::read_dir(place.path().join("assay-demo")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(place.path().join("assay-demo-2")).unwrap(), "mine");
}

#[test]
fn a_place_that_cannot_be_written_is_said_with_what_to_do() {
    let place = Place::new();
    // Also root cannot make a directory there.
    let refused = place.command(&["demo"]).current_dir("/proc/self").output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(said.contains("/assay-demo: ") && said.contains("assay demo --dir /tmp/assay-demo"), "{said}");
    assert_eq!(text(&refused.stdout), "");
}

#[test]
fn a_key_that_must_not_be_used_leaves_no_directory() {
    let place = Place::new();
    let keys = place.path().join("home/keys");
    fs::create_dir_all(&keys).unwrap();
    fs::write(keys.join("assay-local.key"), [7; 32]).unwrap();
    fs::set_permissions(keys.join("assay-local.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = place.run(&["demo"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("0600"));
    assert!(!place.path().join("assay-demo").exists());
}

#[test]
fn a_reader_that_goes_away_does_not_keep_the_demo_from_ending() {
    let place = Place::new();
    let mut child = place
        .command(&["demo"])
        .env("CLICOLOR_FORCE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, *b"\x1b[1m", "colours where they are forced");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.strays(), [""; 0]);
}

#[test]
fn the_built_in_server_is_not_in_the_help() {
    let place = Place::new();
    let help = text(&place.run(&["--help"]).stdout);
    assert!(help.contains("\n  demo "), "{help}");
    assert!(!help.contains("demo-server"), "{help}");
    let mut server = place.command(&["demo-server"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], 1);
    drop(stdin);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
