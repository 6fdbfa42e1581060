//! The program `assay-verify` as a process: what it prints, where, and its exit code. That it says what `assay verify-pack`
//! says is tested beside that (`tests/it/assay_verify.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn old_pack() -> PathBuf {
    let packs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/v0.1/audit/packs");
    fs::read_dir(packs).unwrap().next().unwrap().unwrap().path()
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay-verify"));
    command.env("NO_COLOR", "1").env_remove("CLICOLOR_FORCE");
    command
}

fn verify(pack: &Path, args: &[&str]) -> Output {
    program().arg(pack).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).unwrap()
}

#[test]
fn a_pack_is_verified_and_the_next_step_is_one_of_this_program() {
    let out = verify(&old_pack(), &[]);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
    let said = text(&out.stdout);
    assert!(said.contains("integrity     PASS") && said.contains("\n  assay-verify --signer "), "{said}");
    let out = verify(&old_pack(), &["--json", "--strict"]);
    assert_eq!(out.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&report["integrity_verdict"], &report["exit_code"]), (&"PASS".into(), &1.into()));
}

#[test]
fn a_changed_byte_a_missing_pack_and_wrong_arguments_have_their_exit_codes() {
    let tmp = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(old_pack()).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_dir() {
            continue;
        }
        let mut bytes = fs::read(entry.path()).unwrap();
        if entry.file_name() == "receipt_pack.jsonl" {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        fs::write(tmp.path().join(entry.file_name()), bytes).unwrap();
    }
    let out = verify(tmp.path(), &[]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stdout).contains("integrity     TAMPERED"), "{}", text(&out.stdout));
    let out = verify(&tmp.path().join("gone"), &[]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(3), 0));
    assert!(text(&out.stderr).starts_with("assay-verify: error: "), "{}", text(&out.stderr));
    assert_eq!(program().output().unwrap().status.code(), Some(3));
}

#[test]
fn an_output_that_is_full_or_closed_is_told_apart() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let out = program().arg("--help").stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).starts_with("assay-verify: error: standard output: "), "{}", text(&out.stderr));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = program().arg("--help").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), String::new()));
}
