//! `assay keys`, and what every command does with bad input, run as a user runs them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command
            .args(args)
            .current_dir(self.0.path())
            .env("ASSAY_HOME", self.0.path().join("home"))
            .env("NO_COLOR", "1");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn key(&self, name: &str) -> PathBuf {
        self.0.path().join("home/keys").join(name)
    }
}

fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).unwrap()
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn a_key_is_made_listed_shown_and_exported() {
    let home = Home::new();
    assert!(stdout(&home.run(&["keys", "list"])).starts_with("no keys in "));
    assert!(!home.0.path().join("home").exists(), "looking makes nothing");
    let made = home.run(&["keys", "generate"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(home.run(&["keys", "generate", "--signer", "ci", "--activate"]).status.success());
    let listed = json(&home.run(&["keys", "list", "--json"]));
    let signers: Vec<_> = listed["signers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["signer_id"].as_str().unwrap(), s["active"].as_bool().unwrap()))
        .collect();
    assert_eq!(signers, [("assay-local", false), ("ci", true)]);
    let shown = json(&home.run(&["keys", "show", "--json"]));
    assert_eq!(shown["signer_id"], "ci");
    let raw = home.run(&["keys", "export", "ci", "--format", "raw"]).stdout;
    assert_eq!(raw, fs::read(home.key("ci.pub")).unwrap());
    assert_eq!(shown["fingerprint"], assay::model::sha256_hex(&raw));
    assert!(stdout(&home.run(&["keys", "show"])).contains(shown["fingerprint"].as_str().unwrap()));
    assert_eq!(stdout(&home.run(&["keys", "export", "--format", "base64"])).trim(), shown["public_key"]);
    assert!(stdout(&home.run(&["keys", "export"])).starts_with("-----BEGIN PUBLIC KEY-----\n"));
}

#[test]
fn nothing_is_overwritten() {
    let home = Home::new();
    home.run(&["keys", "generate"]);
    let before = fs::read(home.key("assay-local.key")).unwrap();
    let again = home.run(&["keys", "generate"]);
    assert_eq!(again.status.code(), Some(3));
    assert!(stderr(&again).contains("already\n  hint: a key is never replaced"), "{}", stderr(&again));
    assert_eq!(fs::read(home.key("assay-local.key")).unwrap(), before);
    fs::write(home.0.path().join("mine.pem"), "mine").unwrap();
    let export = home.run(&["keys", "export", "--out", "mine.pem"]);
    assert_eq!(export.status.code(), Some(3));
    assert_eq!(fs::read(home.0.path().join("mine.pem")).unwrap(), b"mine");
    assert!(home.run(&["keys", "export", "--out", "new.pem"]).status.success());
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    let home = Home::new();
    home.run(&["keys", "generate"]);
    let key = home.key("assay-local.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    for args in [&["keys", "show"][..], &["keys", "export"], &["keys", "show", "--json"]] {
        let out = home.run(args);
        assert_eq!(out.status.code(), Some(3));
        let hint = format!("run: chmod 600 {}", key.display());
        assert!(stderr(&out).contains(&hint), "{}", stderr(&out));
        if args.contains(&"--json") {
            let answer = json(&out);
            assert_eq!((&answer["exit_code"], &answer["hint"]), (&3.into(), &hint.into()));
        }
    }
    let listed = home.run(&["keys", "list"]);
    assert_eq!(listed.status.code(), Some(3));
    assert!(stdout(&listed).contains("cannot be used"), "{}", stdout(&listed));
}

#[test]
fn fifty_processes_that_need_a_first_key_end_with_one() {
    let home = Home::new();
    // `generate` refuses what exists, so exactly one of them makes the key.
    let children: Vec<_> = (0..50)
        .map(|_| {
            home.command(&["keys", "generate", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let made = children.into_iter().map(|c| c.wait_with_output().unwrap()).filter(|o| o.status.success()).count();
    assert_eq!(made, 1);
    assert!(home.run(&["keys", "show"]).status.success());
    assert_eq!(fs::read_dir(home.0.path().join("home/keys")).unwrap().count(), 2, "no temporary files stay");
}

#[test]
fn bad_input_is_exit_code_3_and_makes_nothing() {
    let home = Home::new();
    fs::write(home.0.path().join("file"), "x").unwrap();
    for args in [
        &["mcp-proxy"][..],
        &["mcp-proxy", "--"],
        &["mcp-proxy", "--pack-interval", "0m", "--", "cat"],
        &["mcp-proxy", "--profile", "escrow", "--", "cat"],
        &["mcp-proxy", "--profile", "guard", "--", "cat"],
        &["mcp-proxy", "--no-such-flag", "--", "cat"],
        &["verify-pack"],
        &["verify-pack", "."],
        &["verify-pack", "file"],
        &["verify-pack", "gone"],
        &["verify-pack", "--signer", "abc", "."],
        &["explain", "."],
        &["explain", "file"],
        &["explain", "gone"],
        &["keys"],
        &["keys", "show", "../../etc/passwd"],
        &["keys", "show", "nobody"],
        &["keys", "generate", "--signer", ".hidden"],
        &["no-such-command"],
        &["\u{1b}[31mred"],
        &[],
    ] {
        let out = home.run(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        assert!(out.stdout.is_empty(), "{args:?}");
        assert!(!stderr(&out).is_empty(), "{args:?}");
        assert!(!stderr(&out).contains('\u{1b}'), "{args:?}");
    }
    let left: Vec<_> = fs::read_dir(home.0.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
}

#[test]
fn help_and_version_are_exit_code_0_on_standard_output() {
    let home = Home::new();
    for args in [&["--help"][..], &["--version"], &["mcp-proxy", "--help"], &["keys", "export", "--help"], &["help"]] {
        let out = home.run(args);
        assert_eq!(out.status.code(), Some(0), "{args:?}");
        assert!(!out.stdout.is_empty() && out.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    home.run(&["keys", "generate"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = home.command(&["keys", "list"]).stdout(writer).output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = home.command(&["keys", "list"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).starts_with("assay: error: standard output: "), "{}", stderr(&out));
}
