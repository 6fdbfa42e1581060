//! The client plays every kind of call with the server, in both revisions of MCP.

use std::{path::PathBuf, process::Command};

#[test]
fn every_call_is_answered_as_it_should_be_in_both_revisions() {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    for revision in [&[][..], &["--modern"]] {
        let mut client = Command::new(env!("CARGO_BIN_EXE_test-client"));
        client.args(revision).env("ASSAY_HOME", home.join("home")).env("ASSAY_AUDIT_DIR", home.join("audit"));
        let played = client.output().unwrap();
        assert!(played.status.success(), "{revision:?}: {}", String::from_utf8_lossy(&played.stderr));
    }
    let packs = home.join("audit/packs");
    assert_eq!(packs.read_dir().unwrap().count(), 2, "a pack of each session in {}", packs.display());
    std::fs::remove_dir_all(home).unwrap();
}
