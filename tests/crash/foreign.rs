//! Audit directories that somebody else made: nothing in them is finished or signed as if it were ours.

use assay::{model::SessionId, paths::AuditDir};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, rig, until},
    sessions::{self, Ending, Plan, Written},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

/// A session that never was: segment, receipts and ledger as a recorder would leave them.
fn planted(rig: &Rig, seed: u64, ending: Ending, with_card: bool) -> Written {
    let dir = AuditDir::at(&rig.audit);
    let written = sessions::write(&Plan { seed, ending, ..Plan::default() }, dir.root()).unwrap();
    if with_card {
        let paths = &written.paths;
        let card = json!({
            "command_digest": "", "pid": 1 << 30, "profile": "audit", "rings": [null, null], "server_id": "planted",
            "session_id": paths.id, "spools": paths.spools, "started_at": written.doc.started_at, "started_mono_ns": 0,
            "v": 1,
        });
        fs::write(&paths.card, card.to_string()).unwrap();
    }
    written
}

fn said(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{out:?}"))
}

/// What recovery says of each session that it does not finish.
fn states(out: &Output) -> Vec<String> {
    let sessions = said(out)["sessions"].as_array().unwrap().clone();
    sessions.iter().filter_map(|s| s["state"].as_str().map(str::to_owned)).collect()
}

/// Kills a proxy in the middle of its session.
fn crashed(rig: &Rig, flags: &[&str]) -> PathBuf {
    let mut client = Client::start(rig.proxy(flags));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=2).map(|i| call(i, "echo", i))));
    rig.await_events(5);
    client.kill();
    rig.await_silence();
    rig.segments().pop().unwrap()
}

fn packs(rig: &Rig) -> Vec<PathBuf> {
    files(&rig.audit.join("packs"), |_| true)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in files(from, |_| true) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

#[test]
fn a_session_that_never_was_is_named_left_alone_and_never_signed() {
    let rig = rig!();
    let all = [
        planted(&rig, 1, Ending::Unterminated, true),
        planted(&rig, 2, Ending::Unterminated, false),
        planted(&rig, 3, Ending::Complete, true),
    ];
    fs::write(rig.audit.join("live/00000000000000aa.json"), "{}").unwrap();
    fs::write(rig.audit.join("live/notes.json"), "{}").unwrap();
    // A ledger that does not know the end of a session.
    let four = planted(&rig, 4, Ending::Complete, false);
    let ledger = rig.audit.join("audit/ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    fs::write(
        &ledger,
        text.lines().filter(|l| !l.contains("segment_end")).map(|l| format!("{l}\n")).collect::<String>(),
    )
    .unwrap();
    let before = check::tree(&rig.audit);
    for _ in 0..2 {
        let out = rig.recover();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        let mut states = states(&out);
        states.sort();
        assert_eq!(states, ["damaged", "foreign", "foreign", "foreign", "foreign", "foreign"], "{out:?}");
        assert_eq!(check::tree(&rig.audit), before);
    }
    assert!(!rig.root.join("home/keys").exists(), "there was nothing to sign");
    // The same beside a session of our own.
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=2).map(|i| call(i, "echo", i))));
    client.await_said("not yours to finish");
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert_eq!(packs(&rig).len(), 1, "only ours");
    for written in all.iter().chain([&four]) {
        assert!(!written.paths.pack.exists());
        for path in [&written.paths.segment, &written.paths.receipts] {
            assert_eq!(check::tree(&rig.audit)[path], before[path]);
        }
    }
}

#[test]
fn a_copy_of_our_own_session_is_signed_nowhere_but_where_it_was_begun() {
    let rig = rig!();
    let segment = crashed(&rig, &[]);
    let clone = rig.root.join("clone");
    copy(&rig.audit, &clone);
    let out = rig.run(&["recover", "--json", "--audit-dir", clone.to_str().unwrap()]);
    assert_eq!((out.status.code(), states(&out)), (Some(2), vec!["foreign".to_owned()]), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("this is a copy"));
    assert_eq!(files(&clone.join("packs"), |_| true), Vec::<PathBuf>::new());
    // Where it was begun it is finished once; put back as it was, it is not signed again.
    let (text, card) = (fs::read(&segment).unwrap(), files(&clone.join("live"), |n| n.ends_with(".json")).remove(0));
    assert_eq!(rig.recover().status.code(), Some(0));
    fs::remove_dir_all(&packs(&rig)[0]).unwrap();
    fs::write(&segment, &text).unwrap();
    fs::copy(&card, rig.audit.join("live").join(card.file_name().unwrap())).unwrap();
    fs::copy(clone.join("audit/ledger.jsonl"), rig.audit.join("audit/ledger.jsonl")).unwrap();
    let out = rig.recover();
    assert_eq!((out.status.code(), states(&out)), (Some(2), vec!["foreign".to_owned()]), "{out:?}");
    assert!(packs(&rig).is_empty());
}

#[test]
fn a_chain_that_begins_otherwise_than_it_was_begun_is_not_finished() {
    let rig = rig!();
    let segment = crashed(&rig, &[]);
    let other = rig!();
    let another = crashed(&other, &[]);
    // Another whole chain under the session's name.
    let id = |p: &Path| p.file_stem().unwrap().to_str().unwrap().rsplit('_').next().unwrap().to_owned();
    let (old, new) = (id(&another), id(&segment));
    assert!(SessionId::parse(&format!("mcp_{new}")).is_ok());
    let lines: Vec<String> =
        fs::read_to_string(&another).unwrap().replace(&old, &new).lines().map(str::to_owned).collect();
    let mut head = String::new();
    let mut text = String::new();
    for line in lines {
        let mut event: assay::model::AuditEvent = serde_json::from_str(&line).unwrap();
        if !head.is_empty() {
            event.prev_hash.clone_from(&head);
        }
        event.seal().unwrap();
        head.clone_from(&event.hash);
        text += &(serde_json::to_string(&event).unwrap() + "\n");
    }
    fs::write(&segment, &text).unwrap();
    let out = rig.recover();
    assert_eq!((out.status.code(), states(&out)), (Some(2), vec!["foreign".to_owned()]), "{out:?}");
    assert!(packs(&rig).is_empty() && fs::read_to_string(&segment).unwrap() == text);
}

#[test]
fn a_directory_that_was_moved_is_still_ours_and_another_home_knows_nothing() {
    let rig = rig!();
    crashed(&rig, &[]);
    let elsewhere = |rig: &Rig| {
        let mut command = rig.program(&["recover", "--json", "--audit-dir", "audit"]);
        command.env("ASSAY_HOME", rig.root.join("other")).output().unwrap()
    };
    let out = elsewhere(&rig);
    assert_eq!((out.status.code(), states(&out)), (Some(2), vec!["foreign".to_owned()]), "{out:?}");
    assert!(!rig.root.join("other/keys").exists() && packs(&rig).is_empty());
    let moved = rig.root.join("moved");
    fs::rename(&rig.audit, &moved).unwrap();
    let out = rig.run(&["recover", "--json", "--audit-dir", moved.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(files(&moved.join("packs"), |_| true).len(), 1);
    assert_eq!(files(&rig.root.join("home/sessions"), |_| true), Vec::<PathBuf>::new());
}

#[test]
fn a_session_that_runs_is_nobodys_to_finish_whoever_recorded_it() {
    let rig = rig!();
    let mut command = rig.proxy(&[]);
    command.env("ASSAY_HOME", rig.root.join("other"));
    let mut client = Client::start(command);
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=2).map(|i| call(i, "echo", i))));
    rig.await_events(5);
    let out = rig.recover();
    assert_eq!((out.status.code(), said(&out)["sessions"].clone()), (Some(0), json!([])), "{out:?}");
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert_eq!(packs(&rig).len(), 1);
    let out = rig.recover();
    assert_eq!((out.status.code(), said(&out)["sessions"].clone()), (Some(0), json!([])), "{out:?}");
}

#[test]
fn a_home_that_cannot_remember_costs_the_recovery_and_not_the_session() {
    let rig = rig!();
    fs::create_dir(rig.root.join("home")).unwrap();
    fs::write(rig.root.join("home/sessions"), "in the way").unwrap();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=2).map(|i| call(i, "echo", i))));
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert!(client.said().contains("a crash of the proxy could not be recovered"), "{}", client.said());
    assert_eq!(packs(&rig).len(), 1);
    crashed(&rig, &[]);
    let out = rig.recover();
    assert_eq!((out.status.code(), states(&out)), (Some(2), vec!["foreign".to_owned()]), "{out:?}");
}

#[test]
fn what_lies_beside_a_session_goes_into_its_pack_only_as_it_was_recorded() {
    let policy = |rig: &Rig| {
        let path = rig.root.join("policy.yaml");
        fs::write(&path, "version: \"1\"\ndefault: allow\n").unwrap();
        path.to_str().unwrap().to_owned()
    };
    // A surface that is not the one that was seen.
    let rig = rig!();
    crashed(&rig, &[]);
    let surface = files(&rig.audit.join("surface"), |_| true).remove(0);
    let text = fs::read_to_string(&surface).unwrap();
    fs::write(&surface, text.replacen("\"changes\":0", "\"changes\":7", 1)).unwrap();
    let out = rig.recover();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert!(said(&out)["sessions"][0]["notes"].to_string().contains("is not what the recorder wrote"), "{out:?}");
    assert!(!packs(&rig)[0].join("surface.json").exists());
    // One that is.
    let rig = rig!();
    crashed(&rig, &[]);
    assert_eq!(rig.recover().status.code(), Some(0));
    assert!(packs(&rig)[0].join("surface.json").exists());
    // A policy that is not the one that judged.
    let rig = rig!();
    let path = policy(&rig);
    crashed(&rig, &["--policy", &path]);
    let kept = files(&rig.audit.join("policy"), |_| true).remove(0);
    fs::write(&kept, "version: \"1\"\ndefault: deny\n").unwrap();
    for _ in 0..2 {
        let out = rig.recover();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        assert!(String::from_utf8_lossy(&out.stdout).contains("the SHA-256 of the policy"), "{out:?}");
        assert!(packs(&rig).is_empty());
    }
    fs::write(&kept, "version: \"1\"\ndefault: allow\n").unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    assert_eq!(packs(&rig).len(), 1);
    check::settled(&rig);
}

#[test]
fn a_pack_that_lies_in_the_place_of_ours_is_not_taken_for_it() {
    let rig = rig!();
    let segment = crashed(&rig, &[]);
    let name = segment.file_stem().unwrap().to_str().unwrap().replacen("segment", "proof_pack", 1);
    let other = rig!();
    let theirs = planted(&other, 9, Ending::Complete, false).pack();
    copy(&theirs, &rig.audit.join("packs").join(&name));
    for _ in 0..2 {
        let out = rig.recover();
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        assert!(String::from_utf8_lossy(&out.stdout).contains("another key signed it"), "{out:?}");
    }
    fs::remove_dir_all(rig.audit.join("packs").join(&name)).unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    check::settled(&rig);
}

#[test]
fn who_took_part_is_known_after_recovery_also_when_no_receipt_says_it() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&["--pack-interval", "3r"]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
    // The next session has begun, and nothing has been said in it.
    until("another session", || (rig.segments().len() > 1).then_some(()));
    let named = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|t| t.contains("crash-client"));
    until("its card", || files(&rig.audit.join("live"), |n| n.ends_with(".json")).iter().any(named).then_some(()));
    client.kill();
    rig.await_silence();
    let out = rig.recover();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    for session in check::sessions(&rig) {
        assert_eq!(session.doc.client_info.unwrap().name, "crash-client");
        assert!(session.doc.server_info.is_some() && session.doc.protocol_version.is_some());
    }
}

#[test]
fn a_ledger_that_was_rolled_back_is_said_by_whoever_reads_the_directory() {
    let rig = rig!();
    let session = || {
        let mut client = Client::start(rig.proxy(&[]));
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        client.end();
        client.said()
    };
    assert!(!session().contains("rolled back"));
    let ledger = rig.audit.join("audit/ledger.jsonl");
    let older = fs::read(&ledger).unwrap();
    assert!(!session().contains("rolled back"));
    fs::write(&ledger, &older).unwrap();
    let audit = rig.audit.to_str().unwrap();
    let id = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().rsplit('_').next().unwrap().to_owned();
    let id = format!("mcp_{}", id(&rig.segments()[0]));
    let recover: &[&str] = &["recover", "--audit-dir", audit];
    let readers = [
        recover,
        &["open", "--json", "--audit-dir", audit, &id],
        &["analyze", "--history"],
        &["watch", "--plain", "--audit-dir", audit],
    ];
    let before = check::tree(&rig.audit);
    for args in readers {
        let out = rig.run(args);
        let said = [out.stdout, out.stderr].concat();
        assert!(
            String::from_utf8_lossy(&said).contains("was rolled back"),
            "{args:?}: {}",
            String::from_utf8_lossy(&said)
        );
        assert_eq!(out.status.code() == Some(2), args == recover, "{args:?}");
    }
    assert_eq!(check::tree(&rig.audit), before, "nothing is papered over");
    // It stays said when the ledger goes on.
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()));
    client.await_said("was rolled back");
    client.end();
    assert_eq!(rig.run(recover).status.code(), Some(2));
}
