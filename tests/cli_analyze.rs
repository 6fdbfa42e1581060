//! `assay analyze`, run as a user runs it, and the history that the proxy fills.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use assay_support::sessions::{self, Plan};
use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn assay(cwd: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.current_dir(cwd).env("ASSAY_HOME", cwd.join("home")).env("NO_COLOR", "1").env_remove("CLICOLOR_FORCE");
    command
}

fn analyze(cwd: &Path, args: &[&str]) -> Output {
    assay(cwd).arg("analyze").args(args).output().unwrap()
}

fn json(cwd: &Path, code: i32, args: &[&str]) -> Value {
    let out = analyze(cwd, &[args, &["--json"]].concat());
    assert_eq!(out.status.code(), Some(code), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn pack(cwd: &Path, plan: &Plan) -> PathBuf {
    let written = sessions::write(plan, cwd.join("audit")).unwrap();
    written.pack()
}

/// A session through the real proxy with the built-in server: calls of `echo`, and one that fails.
fn record(cwd: &Path, audit: &str, echoes: usize) {
    let exe = env!("CARGO_BIN_EXE_assay");
    let mut proxy = assay(cwd)
        .args(["mcp-proxy", "--audit-dir", audit, "--server-id", "demo", "--", exe, "demo-server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = vec![
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
    ];
    for n in 1..=echoes {
        lines.push(format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{n}"}}}}}}"#
        ));
    }
    lines
        .push(r#"{"jsonrpc":"2.0","id":"f","method":"tools/call","params":{"name":"fail","arguments":{}}}"#.to_owned());
    let mut stdin = proxy.stdin.take().unwrap();
    stdin.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(proxy.stdout.take().unwrap()));
    for _ in 0..echoes + 2 {
        answers.next().unwrap().unwrap();
    }
    drop(stdin);
    let out = proxy.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn packs_are_counted_by_tool_server_and_day() {
    let tmp = tempfile::tempdir().unwrap();
    let one = pack(tmp.path(), &Plan { error_every: 5, ..Plan::default() });
    let two = pack(tmp.path(), &Plan { seed: 2, calls: 10, timeout_every: 10, ..Plan::default() });
    let args = [one.to_str().unwrap(), two.to_str().unwrap()];
    let doc = json(tmp.path(), 0, &args);
    assert_eq!(doc["schema"], "assay.analysis.v1");
    let total = &doc["total"];
    assert_eq!((&total["calls"], &total["errors"], &total["timeouts"]), (&30.into(), &4.into(), &1.into()));
    for rows in ["tools", "servers", "days"] {
        let sum: u64 = doc[rows].as_array().unwrap().iter().map(|r| r["calls"].as_u64().unwrap()).sum();
        assert_eq!(sum, 30, "{rows}");
    }
    assert_eq!(doc["days"][0]["name"], "2026-03-15");
    let text = String::from_utf8(analyze(tmp.path(), &args).stdout).unwrap();
    assert!(text.contains("read_file") && text.contains("2026-03-15") && text.contains("日本語の道具"), "{text}");
}

#[test]
fn a_tampered_pack_is_left_out_and_nothing_to_count_is_bad_input() {
    let tmp = tempfile::tempdir().unwrap();
    let good = pack(tmp.path(), &Plan::default());
    let bad = pack(tmp.path(), &Plan { seed: 2, ..Plan::default() });
    fs::write(bad.join("receipt_pack.jsonl"), "{}\n").unwrap();
    let doc = json(tmp.path(), 2, &[good.to_str().unwrap(), bad.to_str().unwrap()]);
    assert_eq!((&doc["total"]["calls"], &doc["packs"][1]["integrity"]), (&20.into(), &"TAMPERED".into()));
    assert_eq!(json(tmp.path(), 3, &[])["status"], "error");
    assert_eq!(json(tmp.path(), 3, &["none"])["status"], "error");
    assert_eq!(json(tmp.path(), 3, &["--audit-dir", "none"])["status"], "error");
}

#[test]
fn hostile_names_are_harmless() {
    let tmp = tempfile::tempdir().unwrap();
    let evil = "\u{1b}]52;c;eA==\u{7}\u{202e}\u{9b}2J\r\n";
    let pack = pack(tmp.path(), &Plan { tools: vec![evil.into(), "x".repeat(1 << 20)], ..Plan::default() });
    let out = analyze(tmp.path(), &[pack.to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'), "{text:?}");
    assert!(text.len() < 10_000);
}

#[test]
fn what_the_proxy_recorded_is_in_the_history_whatever_the_directory() {
    let tmp = tempfile::tempdir().unwrap();
    record(tmp.path(), "one", 3);
    record(tmp.path(), "two", 4);
    let doc = json(tmp.path(), 0, &["--history"]);
    let h = &doc["history"];
    assert_eq!((&h["sessions"], &h["complete"], &h["directories"]), (&2.into(), &2.into(), &2.into()), "{h}");
    // The proxy noted them; there was nothing left to read.
    assert_eq!((&h["indexed"], &h["problems"]), (&0.into(), &serde_json::json!([])));
    assert_eq!((&doc["total"]["calls"], &doc["total"]["errors"]), (&9.into(), &2.into()));
    assert_eq!(doc["servers"][0]["name"], "demo");
    let rebuilt = json(tmp.path(), 0, &["--rebuild"]);
    assert_eq!((&rebuilt["history"]["rebuilt"], &rebuilt["history"]["indexed"]), (&true.into(), &2.into()));
    for rows in ["total", "tools", "servers", "days"] {
        assert_eq!(rebuilt[rows], doc[rows], "{rows}");
    }
}

#[test]
fn a_history_that_cannot_be_written_does_not_fail_a_session() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("home/history.lock")).unwrap();
    record(tmp.path(), "one", 1);
    let log = fs::read_to_string(tmp.path().join("one/recorder.log")).unwrap();
    assert!(log.contains("not in the history yet"), "{log}");
    fs::remove_dir(tmp.path().join("home/history.lock")).unwrap();
    let doc = json(tmp.path(), 0, &["--history"]);
    assert_eq!((&doc["history"]["indexed"], &doc["total"]["calls"]), (&1.into(), &2.into()));
}

#[test]
fn a_damaged_history_is_said_and_rebuilt() {
    let tmp = tempfile::tempdir().unwrap();
    record(tmp.path(), "one", 2);
    let database = tmp.path().join("home/history.sqlite3");
    fs::write(&database, "no database at all, however long this text may be").unwrap();
    let out = analyze(tmp.path(), &["--history"]);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("is damaged") && said.contains("--rebuild"), "{said}");
    assert_eq!(json(tmp.path(), 0, &["--history", "--rebuild"])["total"]["calls"], 3);
    assert_eq!(json(tmp.path(), 0, &["--history"])["total"]["calls"], 3);
}
