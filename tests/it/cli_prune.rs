//! `assay prune` and `mcp-proxy --keep`, as a user types them; and what a session leaves on disk.

use assay::{
    model::LedgerKind,
    pack::verify::{SegmentState, verify_audit_dir},
    paths::AuditDir,
};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, rig, stderr, stdout, until},
    tty::Tty,
};
use serde_json::{Value, json};
use std::{fs, ops::ControlFlow, path::Path};

fn record(rig: &Rig, flags: &[&str]) {
    rig.record("audit", flags, &[json!({"name": "echo", "arguments": {"text": "x"}})]);
}

fn packs(rig: &Rig) -> usize {
    files(&rig.audit.join("packs"), |_| true).len()
}

fn sessions(rig: &Rig) -> Vec<Value> {
    rig.json(0, &["packs", "--audit-dir", "audit"])["sessions"].as_array().unwrap().clone()
}

fn states(rig: &Rig) -> Vec<SegmentState> {
    let report = verify_audit_dir(&rig.audit, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.intact(), "{:#?}", report.findings);
    report.segments.iter().map(|segment| segment.state).collect()
}

#[test]
fn what_is_pruned_is_named_in_the_ledger_and_nothing_is_wrong_without_it() {
    let rig = rig!();
    for server in ["first", "second", "third"] {
        record(&rig, &["--server-id", server]);
    }
    let before = check::tree(&rig.audit);
    let would = rig.json(0, &["prune", "--audit-dir", "audit", "--keep", "1", "--dry-run"]);
    assert_eq!((&would["schema"], &would["dry_run"]), (&json!("assay.prune.v1"), &json!(true)));
    assert_eq!(would["sessions"].as_array().unwrap().len(), 2, "{would}");
    assert_eq!(would, rig.json(0, &["prune", "--audit-dir", "audit", "--keep", "90d,1", "--dry-run"]));
    for args in [&["--dry-run"][..], &["--dry-run", "--json"]] {
        assert_eq!(rig.run(&[&["prune", "--audit-dir", "audit", "--keep", "1"], args].concat()).status.code(), Some(0));
    }
    for (args, said) in [
        (&["--keep", "1"][..], "nobody can be asked here"),
        (&["--keep", "1", "--json"], "nobody can be asked here"),
        (&["--yes"], "nothing says what stays"),
        (&["--older-than", "1", "--yes"], "is no age"),
        (&["--keep-bytes", "x", "--yes"], "is no size"),
        (&["--keep", "1x", "--yes"], "is no limit: expected an age (90d), a size (10G) or a number"),
        (&["--keep", "90d", "--older-than", "30d", "--yes"], "the age is limited twice"),
        (&["tool:x", "--keep", "1", "--yes"], "sessions have server:"),
    ] {
        let out = rig.run(&[&["prune", "--audit-dir", "audit"], args].concat());
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(said), "{args:?}: {}", stderr(&out));
    }
    assert_eq!(check::tree(&rig.audit), before, "nothing was removed");

    let listed = sessions(&rig);
    let first = listed.iter().find(|s| s["server_id"] == "first").unwrap()["pack"].as_str().unwrap().to_owned();
    let done = rig.json(0, &["prune", "server:first", "--audit-dir", "audit", "--keep", "0", "--yes"]);
    assert_eq!(done["sessions"].as_array().unwrap().len(), 1, "{done}");
    assert!(done["bytes"].as_u64().unwrap() > 1000 && done["left"] == json!([]), "{done}");
    assert!(!Path::new(&first).exists() && packs(&rig) == 2);
    let line = check::ledger(&rig).pop().unwrap();
    let tombstone = line.pruned.as_ref().unwrap();
    assert_eq!((line.kind, line.v, tombstone.count), (LedgerKind::Pruned, 3, 3), "{line:?}");
    assert!(first.ends_with(&tombstone.name) && tombstone.files > 8, "{line:?}");
    assert_eq!(done["bytes"], tombstone.bytes);
    assert!(assay::pack::verify::tombstone(&line).is_ok());
    assert_eq!(states(&rig).iter().filter(|state| **state == SegmentState::Pruned).count(), 1);
    let out = rig.recover();
    assert!(out.status.success() && stdout(&out).contains("\"sessions\": []"), "{}", stdout(&out));
    assert_eq!(sessions(&rig).len(), 2);
    let analyzed = rig.json(0, &["analyze", "--history"]);
    assert_eq!(analyzed["total"]["calls"], 2, "{analyzed}");
    // The chain of the ledger goes on.
    record(&rig, &["--server-id", "fourth"]);
    assert_eq!((packs(&rig), states(&rig).len()), (3, 4));
    let again = rig.json(0, &["prune", "--audit-dir", "audit", "--older-than", "1d", "--yes"]);
    assert_eq!((&again["sessions"], packs(&rig)), (&json!([]), 3));
}

#[test]
fn what_would_be_freed_is_what_is_freed() {
    let rig = rig!();
    // A member name that is not ASCII stays in the investigation log, which goes with its session.
    rig.record("audit", &["--store-args"], &[json!({"name": "echo", "arguments": {"é": "x".repeat(5000)}})]);
    rig.as_once();
    for what in ["packs", "payloads", "journals"].iter().rev() {
        let args = ["prune", "--what", what, "--audit-dir", "audit", "--keep", "0"];
        let would = rig.json(0, &[&args[..], &["--dry-run"]].concat());
        let done = rig.json(0, &[&args[..], &["--yes"]].concat());
        assert!(would["bytes"].as_u64().unwrap() > 1000, "{would}");
        assert_eq!(would["bytes"], done["bytes"], "{what}");
        if *what == "journals" {
            rig.record("audit", &["--store-args"], &[json!({"name": "echo", "arguments": {"é": "x".repeat(5000)}})]);
        }
    }
}

#[test]
fn who_sits_at_a_terminal_is_asked() {
    let rig = rig!();
    record(&rig, &[]);
    let args = ["prune", "--audit-dir", "audit", "--keep", "0"];
    for (answer, left) in [("n\r", 1), ("y\r", 0)] {
        let mut tty = Tty::start(&rig, &args, 120, 30);
        tty.wait("to be removed: 1 of 1 sealed session");
        tty.wait("Remove them? [y/N]");
        tty.keys(answer);
        tty.wait(if left == 1 { "nothing was removed" } else { "1 session:" });
        until("the answer is heeded", || (packs(&rig) == left).then_some(()));
    }
}

#[test]
fn sessions_that_are_live_or_have_no_pack_are_left_alone() {
    let rig = rig!();
    record(&rig, &["--auto-pack=false"]);
    let mut client = Client::start(rig.program(&["mcp-proxy", "--audit-dir", "audit", "--", rig.assay, "demo-server"]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    until("its segment", || (rig.segments().len() == 2).then_some(()));
    let done = rig.json(0, &["prune", "--audit-dir", "audit", "--keep", "0", "--yes"]);
    let why: Vec<&str> = done["left"].as_array().unwrap().iter().map(|left| left["why"].as_str().unwrap()).collect();
    assert_eq!((&done["sessions"], why.len()), (&json!([]), 2), "{done}");
    assert!(why.contains(&"it has no pack") && why.contains(&"it is being recorded, or not finished"), "{why:?}");
    client.converse(std::iter::once(call(2, "echo", 2)));
    assert!(client.end().success(), "{}", client.said());
    assert_eq!(packs(&rig), 1);
    assert_eq!(states(&rig), [SegmentState::Ended; 2]);
}

#[test]
fn payloads_and_second_copies_go_alone_and_the_packs_stand() {
    let rig = rig!();
    // A member name that is not ASCII stays in the investigation log.
    rig.record("audit", &["--store-args"], &[json!({"name": "echo", "arguments": {"é": "the secret"}})]);
    let log = files(&rig.audit.join("investigation"), |_| true).remove(0);
    let done = rig.json(0, &["prune", "--what", "payloads", "--audit-dir", "audit", "--keep", "0", "--yes"]);
    assert_eq!((done["sessions"].as_array().unwrap().len(), log.exists()), (1, false), "{done}");
    let tombstone = check::ledger(&rig).pop().unwrap().pruned.unwrap();
    assert_eq!((&*tombstone.name, tombstone.count), (log.file_name().unwrap().to_str().unwrap(), 1));
    assert_eq!(rig.run(&["verify-pack", "last", "--audit-dir", "audit"]).status.code(), Some(0));

    // Where assay once left a journal beside its pack.
    rig.as_once();
    let of = |dir: &str| files(&rig.audit.join(dir), |name| name != "ledger.jsonl" && name != "log").len();
    assert_eq!((of("receipts"), of("audit")), (1, 1));
    let text = stdout(&rig.run(&["prune", "--what", "journals", "--audit-dir", "audit", "--yes"]));
    assert!(text.contains("1 session: 2 files removed"), "{text}");
    assert_eq!((of("receipts"), of("audit"), states(&rig)), (0, 0, vec![SegmentState::Ended]));
    // One that says something else is no copy.
    rig.as_once();
    let receipts = rig.receipts().remove(0);
    fs::write(&receipts, fs::read_to_string(&receipts).unwrap().replace("echo", "ohce")).unwrap();
    for what in ["journals", "packs"] {
        let out = rig.run(&["prune", "--what", what, "--audit-dir", "audit", "--keep", "0", "--yes"]);
        assert_eq!(out.status.code(), Some(2), "{what}");
        assert!(stdout(&out).contains("is not what its pack has in"), "{}", stdout(&out));
    }
    assert!(receipts.exists() && packs(&rig) == 1);
}

#[test]
fn a_session_that_ends_prunes_its_directory() {
    let rig = rig!();
    for n in 1..=4 {
        record(&rig, &["--keep", "90d,1G,2"]);
        assert_eq!(packs(&rig), n.min(2));
    }
    assert_eq!(states(&rig).iter().filter(|state| **state == SegmentState::Pruned).count(), 2);
    // The user's file may say so, a project's may not.
    fs::create_dir_all(rig.at("home")).unwrap();
    fs::write(rig.at("home/assay.toml"), "[mcp-proxy]\nkeep = \"1\"\n").unwrap();
    record(&rig, &[]);
    assert_eq!(packs(&rig), 1);
    fs::remove_file(rig.at("home/assay.toml")).unwrap();
    fs::write(rig.at("assay.toml"), "[mcp-proxy]\nkeep = \"0\"\n").unwrap();
    let out = rig.run(&["mcp-proxy", "--audit-dir", "audit", "--", rig.assay, "demo-server"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("cannot be set by a project"), "{}", stderr(&out));
}

#[test]
fn a_sealed_session_is_on_disk_once_and_every_reader_finds_it() {
    let rig = rig!();
    record(&rig, &[]);
    let of = |dir: &str| files(&rig.audit.join(dir), |name| name != "ledger.jsonl" && name != "log");
    assert_eq!((of("receipts"), of("audit"), of("live")), (Vec::new(), Vec::new(), Vec::new()));
    let paths = AuditDir::at(&rig.audit).sessions().into_values().next().unwrap();
    assert_eq!(paths.chain(), paths.pack.join("audit_log.jsonl"));
    let journal = paths.receipts.to_str().unwrap();
    for args in [
        &["verify-pack", "last"][..],
        &["explain", "last"],
        &["open", "--plain", "last"],
        &["open", "--plain", journal],
        &["diff", "last", "last"],
    ] {
        let out = rig.run(&[args, &["--audit-dir", "audit"]].concat());
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", stderr(&out));
    }
    let analyzed = rig.json(0, &["analyze", "--history", "--rebuild"]);
    assert_eq!(analyzed["total"]["calls"], 1, "{analyzed}");
    check::settled(&rig);
    assert_eq!(states(&rig), [SegmentState::Ended]);
}
