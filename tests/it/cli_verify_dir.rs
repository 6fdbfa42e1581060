//! `assay verify-dir`: what it says of directories of real sessions, and what a verifier's memory finds. The rows l1 to l4 of the
//! attacks on a ledger are here, since they need a signer that records.

use assay::{
    model::{
        LedgerKind,
        ledger::{LedgerLine, Pruned, PrunedWhat},
        surface::SignedBy,
    },
    paths::AuditDir,
    record::ledger::{Entry, Ledger},
};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, rig, stderr, stdout, until},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::fs;

fn record(rig: &Rig, audit: &str) {
    rig.record(audit, &[], &[json!({"name": "echo", "arguments": {"text": "x"}})]);
}

fn states(said: &Value) -> Vec<&str> {
    said["segments"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect()
}

fn codes(said: &Value) -> Vec<&str> {
    said["findings"].as_array().unwrap().iter().map(|found| found["code"].as_str().unwrap()).collect()
}

fn copy(rig: &Rig, from: &str, to: &str) {
    let _ = fs::remove_dir_all(rig.at(to));
    assert!(rig.command("cp").args(["-a", from, to]).status().unwrap().success());
}

/// With a memory that is updated.
fn seen(rig: &Rig, code: i32, dir: &str) -> Value {
    rig.json(code, &["verify-dir", "--state", "state", "--update-state", dir])
}

/// Records as somebody who has the same key and remembers nothing.
fn elsewhere(rig: &Rig, audit: &str) {
    let aside = ["logs", "ledgers"].map(|name| (rig.at("home").join(name), rig.at(&format!("aside-{name}"))));
    for (home, aside) in &aside {
        fs::rename(home, aside).unwrap();
    }
    record(rig, audit);
    for (home, aside) in &aside {
        fs::remove_dir_all(home).unwrap();
        fs::rename(aside, home).unwrap();
    }
}

#[test]
fn a_directory_that_nobody_touched_is_said_to_be_so() {
    let rig = rig!();
    for _ in 0..3 {
        record(&rig, "audit");
    }
    let mut client = Client::start(rig.program(&["mcp-proxy", "--audit-dir", "audit", "--", rig.assay, "demo-server"]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    let lines = || fs::read_to_string(rig.audit.join("audit/ledger.jsonl")).unwrap().lines().count();
    until("its line in the ledger", || (lines() == 10).then_some(()));
    let said = rig.json(0, &["verify-dir", "audit"]);
    assert_eq!(said["schema"], "assay.verify_dir.v1");
    assert_eq!(states(&said).iter().filter(|state| **state == "RUNNING").count(), 1, "{said}");
    assert_eq!(states(&said).iter().filter(|state| **state == "ENDED").count(), 3, "{said}");
    let rows = said["segments"].as_array().unwrap().iter().filter(|row| row["state"] == "ENDED");
    for pack in rows.map(|row| &row["pack"]) {
        assert_eq!(
            (&pack["integrity"], &pack["signer"], &pack["exit_code"]),
            (&json!("PASS"), &json!("UNPINNED"), &json!(0))
        );
    }
    assert_eq!(
        (&said["log"]["size"], &said["log"]["unsigned"], &said["log"]["checkpoint"]["size"]),
        (&json!(10), &json!(1), &json!(9))
    );
    let signer = said["log"]["checkpoint"]["signer"].as_str().unwrap().to_owned();
    assert_eq!(rig.json(0, &["keys", "show"])["fingerprint"], signer);
    let pinned = rig.json(0, &["verify-dir", "--signer", &signer, "audit"]);
    assert_eq!(pinned["log"]["checkpoint"]["signer_verdict"], "PINNED");
    let other = rig.json(2, &["verify-dir", "--signer", &"0".repeat(64), "audit"]);
    assert!(codes(&other).contains(&"E_LOG_CHECKPOINT"), "{other}");
    let text = stdout(&rig.run(&["verify-dir", "audit"]));
    for part in ["RUNNING", "ENDED", "PASS COMPLETE UNPINNED", "9 signed by UNPINNED", "nothing is missing or changed"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    client.kill();
    rig.await_silence();
    let said = rig.json(1, &["verify-dir", "--packs", "none", "audit"]);
    assert_eq!(states(&said).iter().filter(|state| **state == "UNTERMINATED").count(), 1, "{said}");
    assert!(rig.recover().status.success());
    let said = rig.json(1, &["verify-dir", "audit"]);
    assert!(states(&said).iter().all(|state| *state == "ENDED") && said["findings"] == json!([]), "{said}");
    assert_eq!(rig.json(0, &["verify-dir", "--packs", "none", "audit"])["segments"][0]["pack"], json!(null));
    // One pack goes, and the ledger says so.
    rig.json(0, &["prune", "--audit-dir", "audit", "--keep", "3", "--yes"]);
    let said = rig.json(0, &["verify-dir", "--packs", "none", "audit"]);
    // Sessions that began in the same second are not in their order.
    assert_eq!(states(&said).iter().filter(|state| **state == "PRUNED").count(), 1, "{said}");
    assert_eq!(said["log"]["unsigned"], json!(0), "{said}");
}

#[test]
fn bad_input_is_said() {
    let rig = rig!();
    record(&rig, "audit");
    fs::write(rig.at("bad"), "x\n").unwrap();
    fs::write(rig.at("later"), "{\"log\":null,\"pack\":null,\"v\":2}\n").unwrap();
    for (args, said) in [
        (&["none"][..], "does not exist"),
        (&["home"], "it has no audit/"),
        (&["--update-state", "audit"], "--state"),
        (&["--state", "audit/state", "audit"], "it lies in what is verified"),
        (&["--state", "bad", "audit"], "line 1"),
        (&["--state", "later", "audit"], "later assay"),
        (&["--log-key", "x", "audit"], "verifier key"),
    ] {
        let out = rig.run(&[&["verify-dir"], args].concat());
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(said), "{args:?}: {}", stderr(&out));
    }
}

/// l1: the last session and its lines are removed.
#[test]
fn a_session_that_is_removed_with_its_lines_is_missed_by_who_remembers() {
    let rig = rig!();
    record(&rig, "audit");
    copy(&rig, "audit", "older");
    assert_eq!(seen(&rig, 0, "audit")["log"]["memory"]["verdict"], "FIRST_SEEN");
    record(&rig, "audit");
    assert_eq!(seen(&rig, 0, "audit")["log"]["memory"]["verdict"], "CONSISTENT");
    let state = fs::read(rig.at("state")).unwrap();
    // The older copy by itself is sound: without a memory nothing is missing.
    copy(&rig, "older", "audit");
    assert_eq!(rig.json(0, &["verify-dir", "audit"])["findings"], json!([]));
    let said = seen(&rig, 2, "audit");
    assert_eq!(
        (codes(&said), &said["log"]["memory"]["verdict"]),
        (vec!["E_LOG_ROLLBACK"], &json!("ROLLBACK")),
        "{said}"
    );
    assert!(said["findings"][0]["expected"].as_str().unwrap().contains("\n6\n"), "{said}");
    assert!(said["findings"][0]["found"].as_str().unwrap().contains("\n3\n"), "{said}");
    assert_eq!(fs::read(rig.at("state")).unwrap(), state, "the memory stays");
    let text = stdout(&rig.run(&["verify-dir", "--state", "state", "audit"]));
    assert!(text.contains("ROLLBACK") && text.contains("you saw:") && text.contains("here is:"), "{text}");
    // The lines alone are missed by the checkpoint that lies beside them, and by the sessions.
    record(&rig, "fresh");
    record(&rig, "fresh");
    let ledger = rig.at("fresh/audit/ledger.jsonl");
    let whole = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, whole.split_inclusive('\n').take(3).collect::<String>()).unwrap();
    let said = rig.json(2, &["verify-dir", "fresh"]);
    assert!(codes(&said).contains(&"E_LOG_ROLLBACK") && states(&said).contains(&"NOT_IN_LEDGER"), "{said}");
    // A new ledger in the same place has another name, and is missed all the same.
    fs::remove_dir_all(rig.at("audit")).unwrap();
    elsewhere(&rig, "audit");
    let said = seen(&rig, 2, "audit");
    assert!(codes(&said)[0].starts_with("E_LOG_"), "{said}");
}

/// l2: the directory is copied, and a session is recorded in each.
#[test]
fn two_ledgers_that_begin_alike_are_a_fork_with_both_notes() {
    let rig = rig!();
    record(&rig, "audit");
    copy(&rig, "audit", "copy");
    record(&rig, "audit");
    seen(&rig, 0, "audit");
    elsewhere(&rig, "copy");
    let said = seen(&rig, 2, "copy");
    assert_eq!((codes(&said), &said["log"]["memory"]["verdict"]), (vec!["E_LOG_FORK"], &json!("FORK")), "{said}");
    assert_eq!(said["log"]["memory"]["differs"], json!([4, 4]), "{said}");
    let (one, other) = (&said["findings"][0]["expected"], &said["findings"][0]["found"]);
    let note = |audit: &str| fs::read_to_string(rig.at(audit).join("audit/log/checkpoint")).unwrap();
    assert_eq!((one.as_str().unwrap(), other.as_str().unwrap()), (&*note("audit"), &*note("copy")));
    assert!(
        said["findings"][0]["message"].as_str().unwrap().contains("the first line that differs is line 4"),
        "{said}"
    );
    assert_eq!(seen(&rig, 0, "audit")["log"]["memory"]["verdict"], "CONSISTENT", "the memory stays");
    // Whoever says that a copy was meant does not undo what others saw.
    rig.json(0, &["ledger", "renew", "--reason", "a copy", "--audit-dir", "copy"]);
    let said = seen(&rig, 2, "copy");
    assert_eq!((codes(&said), &said["log"]["renewed"][0]["reason"]), (vec!["E_LOG_FORK"], &json!("a copy")), "{said}");
}

/// l3: a pack is replaced by another one of its session that the same key signed; removed; or buried by hand.
#[test]
fn a_pack_that_is_replaced_or_removed_is_named() {
    let rig = rig!();
    record(&rig, "audit");
    copy(&rig, "audit", "other");
    seen(&rig, 0, "audit");
    let pack = files(&rig.audit.join("packs"), |_| true).remove(0);
    let named = pack.to_str().unwrap().to_owned();
    let remembered = |code, flags: &[&str]| {
        let said = rig.json(code, &[&["verify-pack", "--state", "mine"], flags, &[&named]].concat());
        said["memory"].as_str().unwrap().to_owned()
    };
    assert_eq!(remembered(0, &[]), "FIRST_SEEN");
    assert_eq!(remembered(0, &["--update-state"]), "FIRST_SEEN");
    assert_eq!(remembered(0, &["--update-state"]), "CONSISTENT");
    // The same session, sealed again by the same key: a report that says something else.
    let mut forged = assay_support::forge::Pack::read(&pack);
    let keys = assay::pack::keys::KeyStore::at(rig.at("home/keys"));
    let key = keys.load(&keys.active().unwrap()).unwrap();
    forged.sign_attesting(&key, |said| said.superseded_by = Some(Some("nothing".to_owned())));
    forged.write(&pack);
    assert_eq!(rig.run(&["verify-pack", pack.to_str().unwrap()]).status.code(), Some(0), "by itself it is sound");
    assert_eq!(remembered(2, &["--update-state"]), "FORK");
    assert_eq!(remembered(2, &[]), "FORK", "what was seen first stays");
    let said = rig.run(&["verify-pack", "--state", "mine", &named]);
    assert!(stdout(&said).contains("you saw another pack of this session"), "{}", stdout(&said));
    let inside = rig.run(&["verify-pack", "--state", &format!("{named}/mine"), &named]);
    assert_eq!(inside.status.code(), Some(3), "{}", stderr(&inside));
    let said = rig.json(2, &["verify-dir", "audit"]);
    assert_eq!((states(&said), codes(&said)), (vec!["PACK_REPLACED"], vec!["E_PACK_OMISSION_DETECTED"]), "{said}");
    let said = seen(&rig, 2, "audit");
    assert!(codes(&said).contains(&"E_LOG_FORK"), "who saw the pack knows, too: {said}");
    fs::remove_dir_all(&pack).unwrap();
    assert_eq!(states(&rig.json(2, &["verify-dir", "audit"])), ["PACK_MISSING"]);
    // A tombstone that has no signature counts for nothing, nor does one by a key that is none of those that are named.
    let before = check::ledger(&rig).pop().unwrap();
    let stranger = assay_support::sessions::signer();
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    let signer =
        SignedBy { fingerprint: stranger.fingerprint(), id: "tester".into(), public_key: encode(&stranger.public()) };
    let name = pack.file_name().unwrap().to_str().unwrap().to_owned();
    let (sha256, signature) = ("0".repeat(64), String::new());
    let pruned = Pruned { bytes: 1, count: 1, files: 1, name, sha256, signature, signer, what: PrunedWhat::Pack };
    let entry = Entry {
        event_count: before.event_count,
        complete: before.complete,
        pruned: Some(pruned),
        ..Entry::new(LedgerKind::Pruned, before.session_id, &before.segment, &before.segment_hash)
    };
    let dir = AuditDir::at(&rig.audit);
    let bury = |sign: &dyn Fn(&[u8]) -> std::io::Result<String>| {
        Ledger::lock(&dir, None).unwrap().append_all(std::slice::from_ref(&entry), sign).unwrap();
    };
    let (key, fingerprint) = (stdout(&rig.run(&["ledger", "vkey", "--audit-dir", "audit"])), key.fingerprint());
    let verified =
        |flags: &[&str]| rig.json(2, &[&["verify-dir", "--log-key", key.trim()], flags, &["audit"]].concat());
    bury(&|_| Ok(String::new()));
    let said = verified(&[]);
    assert_eq!((states(&said)[0], &said["log"]["unsigned"]), ("PACK_MISSING", &json!(1)), "{said}");
    assert!(codes(&said).contains(&"E_PACK_SIG_INVALID"), "{said}");
    bury(&|bytes| Ok(encode(&stranger.sign(bytes)?)));
    let said = verified(&["--signer", &fingerprint]);
    assert_eq!((states(&said)[0], &said["log"]["unsigned"]), ("PACK_MISSING", &json!(2)), "{said}");
    assert_eq!(codes(&said).iter().filter(|code| **code == "E_PACK_SIG_INVALID").count(), 2, "{said}");
    // Whoever names no key is told whose tombstone it is by nobody; that no checkpoint covers it is said.
    assert_eq!(states(&verified(&[]))[0], "PRUNED");
}

/// l4: tiles that are changed, missing, or of another log; a checkpoint of another key.
#[test]
fn tiles_and_checkpoints_beside_the_ledger_are_named_and_never_believed() {
    let rig = rig!();
    record(&rig, "audit");
    record(&rig, "foreign");
    let log = rig.audit.join("audit/log");
    let tile = log.join("tile/0/000.p/3");
    let whole = fs::read(&tile).unwrap();
    let other = fs::read(rig.at("foreign/audit/log/tile/0/000.p/3")).unwrap();
    for bytes in [&other[..], &[&whole[..], &[0; 32]].concat(), &[]] {
        fs::write(&tile, bytes).unwrap();
        let said = rig.json(0, &["verify-dir", "audit"]);
        assert!(said["warnings"][0].as_str().unwrap().contains("tile/0/000.p/3"), "{said}");
    }
    fs::remove_file(&tile).unwrap();
    assert_eq!(rig.json(0, &["verify-dir", "audit"])["warnings"].as_array().unwrap().len(), 1);
    let note = log.join("checkpoint");
    let ours = fs::read_to_string(&note).unwrap();
    let foreign = fs::read_to_string(rig.at("foreign/audit/log/checkpoint")).unwrap();
    for (bad, code) in [
        (foreign, "E_LOG_CHECKPOINT"),
        ("nothing".to_owned(), "E_LOG_CHECKPOINT"),
        (ours.replacen("\n3\n", "\n2\n", 1), "E_LOG_CHECKPOINT"),
        (ours.replacen("\n3\n", "\n03\n", 1), "E_LOG_CHECKPOINT"),
        (format!("{ours}x"), "E_LOG_CHECKPOINT"),
    ] {
        fs::write(&note, &bad).unwrap();
        assert_eq!(codes(&rig.json(2, &["verify-dir", "audit"])), [code], "{bad}");
    }
    fs::remove_file(&note).unwrap();
    let said = rig.json(0, &["verify-dir", "audit"]);
    assert_eq!((&said["log"]["checkpoint"], &said["log"]["unsigned"]), (&json!(null), &json!(3)), "{said}");
    // The key can be known from elsewhere; without any, nothing is said to hold.
    fs::write(&note, &ours).unwrap();
    fs::remove_dir_all(rig.audit.join("packs")).unwrap();
    let said = rig.json(2, &["verify-dir", "audit"]);
    assert_eq!(said["log"]["checkpoint"], json!(null), "{said}");
    let key = stdout(&rig.run(&["ledger", "vkey", "--audit-dir", "audit"]));
    let said = rig.json(2, &["verify-dir", "--log-key", key.trim(), "audit"]);
    assert_eq!(said["log"]["checkpoint"]["size"], 3, "{said}");
}

/// A session that is recorded anew with the stolen long-term key has another key of its own.
#[test]
fn a_session_that_was_made_again_is_not_the_one_whose_key_the_ledger_names() {
    let rig = rig!();
    record(&rig, "audit");
    let ledger = rig.audit.join("audit/ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    let key = |line: &str| serde_json::from_str::<LedgerLine>(line).unwrap().session_key;
    let named = key(text.lines().next().unwrap()).unwrap();
    // Each line is hashed anew, as who has the directory would do it.
    let mut lines = Vec::new();
    let mut prev = assay::model::GENESIS.to_owned();
    for line in text.lines() {
        let mut line: LedgerLine = serde_json::from_str(line).unwrap();
        line.session_key = line.session_key.map(|_| "ab".repeat(32));
        line.prev_hash = prev;
        line.seal().unwrap();
        prev = line.hash.clone();
        lines.extend(assay::model::to_line(&line).unwrap());
        lines.push(b'\n');
    }
    fs::write(&ledger, lines).unwrap();
    let said = rig.json(2, &["verify-dir", "--packs", "none", "audit"]);
    let all = said["findings"].to_string();
    assert!(all.contains("it was made again") && all.contains(&named), "{all}");
}
