//! Checkpoints of real proxies: what they cover, and what recovery makes of a session that has some.

use assay::{
    model::LedgerKind,
    pack::verify::{self, Claims, Completeness, Integrity, Stage, VerifyOptions, VerifyReport},
    paths::AuditDir,
    record::ledger::{Entry, Ledger},
    tree::{Frontier, leaf},
};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, journal, rig, until},
};
use serde_json::Value;
use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Those of all sessions, the sealed ones' in their packs.
fn checkpoints(rig: &Rig) -> Vec<PathBuf> {
    let all = AuditDir::at(&rig.audit).sessions().into_values();
    all.filter(|paths| paths.checkpoints.exists() || paths.pack.exists())
        .map(|paths| journal(&paths.checkpoints))
        .collect()
}

/// Events that the last checkpoint of a file covers.
fn covered(path: &Path) -> Option<usize> {
    let text = fs::read_to_string(path).ok()?;
    let last: Value = serde_json::from_str(text.strip_suffix('\n')?.lines().last()?).ok()?;
    last["note"].as_str()?.lines().nth(1)?.parse().ok()
}

fn verified(rig: &Rig) -> VerifyReport {
    let packs = files(&rig.audit.join("packs"), |_| true);
    let [pack] = &packs[..] else { panic!("{packs:?}") };
    let cards = vec!["mcp_checkpoints".to_owned()];
    let options = VerifyOptions { cards, ..VerifyOptions::default() };
    let report = verify::verify(pack, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{:#?}", report.errors);
    report
}

/// A proxy that was killed when it had two checkpoints and events after them, all on disk; nothing is left in its captures. The
/// segment, what it holds, and how many events the last checkpoint covers.
fn dead() -> (Rig, PathBuf, String, usize) {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()));
    let covers = || checkpoints(&rig).pop().and_then(|path| covered(&path));
    // The first checkpoint is of the beginning alone; there is another one after 1 024 events.
    let first = until("a checkpoint", covers);
    client.converse((1..=260).map(|i| call(i, "echo", i)));
    until("another one", || covers().filter(|size| *size > first));
    client.converse((261..=265).map(|i| call(i, "echo", i)));
    rig.await_events(1 + 4 * 265);
    client.kill();
    rig.await_silence();
    for ring in files(&rig.root.join("run/assay"), |_| true) {
        fs::remove_file(ring).unwrap();
    }
    let segment = rig.segments().remove(0);
    let text = fs::read_to_string(&segment).unwrap();
    let size = covered(&checkpoints(&rig)[0]).unwrap();
    (rig, segment, text, size)
}

/// The first lines of a text.
fn lines(text: &str, n: usize) -> String {
    text.split_inclusive('\n').take(n).collect()
}

/// Recovery names it as damaged, signs nothing, and changes nothing, each time.
fn damaged(rig: &Rig, why: &str) {
    let before = check::tree(&rig.audit);
    for _ in 0..2 {
        let out = rig.recover();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains("damaged") && said.contains(why), "{said}");
        assert_eq!(check::tree(&rig.audit), before, "{said}");
    }
    assert!(files(&rig.audit.join("packs"), |_| true).is_empty());
}

#[test]
fn a_session_that_ends_is_stated_whole_by_the_recorder_that_saw_it() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    let report = verified(&rig);
    assert_eq!((report.completeness, report.claims), (Completeness::Complete, Claims::Pass), "{report:#?}");
    let packed = files(&rig.audit.join("packs"), |_| true).remove(0).join("checkpoints.jsonl");
    assert_eq!(checkpoints(&rig), [packed], "they go with the journal");
    assert_eq!(covered(&checkpoints(&rig)[0]), Some(14));
    assert!(!fs::read_to_string(&checkpoints(&rig)[0]).unwrap().contains("recovery"));
}

/// A session that ended while something else stood where its pack was to go: only that is missing. What there is of it then is changed
/// by `meddle`, and recovered.
fn without_pack(meddle: impl FnOnce(&Rig)) -> VerifyReport {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
    let dir = AuditDir::at(&rig.audit);
    let paths = until("the session", || dir.sessions().into_values().next());
    fs::create_dir_all(paths.pack.join("in the way")).unwrap();
    assert_ne!(client.end().code(), Some(0), "{}", client.said());
    assert!(paths.segment.exists(), "{}", client.said());
    fs::remove_dir_all(&paths.pack).unwrap();
    meddle(&rig);
    assert_eq!(rig.recover().status.code(), Some(0));
    let report = verified(&rig);
    check::settled(&rig);
    report
}

#[test]
fn a_session_that_lacks_nothing_but_its_pack_is_complete_when_that_is_made_later() {
    let report = without_pack(|_| ());
    assert_eq!((report.completeness, report.completeness_reasons), (Completeness::Complete, Vec::new()));
    assert!(report.warnings.iter().any(|said| said.contains("its pack was finished later")), "{:?}", report.warnings);
    // The proxy was killed between the end of the chain and its last checkpoint: nobody who saw the end has stated it.
    let report = without_pack(|rig| {
        let path = checkpoints(rig).remove(0);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, lines(&text, text.lines().count() - 1)).unwrap();
    });
    assert_eq!(report.completeness, Completeness::Incomplete);
    let reasons = report.completeness_reasons.join("; ");
    assert!(reasons.contains("sealed by recovery") && reasons.contains("finished later"), "{reasons}");
    // Its last receipt is bound by no event. It says what the end of the chain says.
    let receipts = |rig: &Rig| AuditDir::at(&rig.audit).sessions().into_values().next().unwrap().receipts;
    let report = without_pack(|rig| {
        let text = fs::read_to_string(receipts(rig)).unwrap();
        fs::write(receipts(rig), lines(&text, text.lines().count() - 1)).unwrap();
    });
    assert_eq!(report.completeness, Completeness::Complete, "{:?}", report.completeness_reasons);
    // What was torn may have been more.
    let report = without_pack(|rig| {
        let text = fs::read_to_string(receipts(rig)).unwrap();
        fs::write(receipts(rig), format!("{text}{{\"torn")).unwrap();
    });
    assert_eq!(report.completeness, Completeness::Incomplete);
}

#[test]
fn a_killed_session_s_events_after_the_last_checkpoint_are_sealed_by_recovery() {
    let (rig, segment, text, size) = dead();
    // What was cut off above the last checkpoint cannot be known.
    fs::write(&segment, lines(&text, size)).unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    let report = verified(&rig);
    assert_eq!((report.completeness, report.claims), (Completeness::Incomplete, Claims::HonestFail));
    let reason = format!("events {size}…{} were sealed by recovery", report.facts.event_count - 1);
    assert!(report.completeness_reasons.contains(&reason), "{:?}", report.completeness_reasons);
    let stage = report.stage(Stage::VerifyCheckpoints).unwrap();
    assert_eq!(stage.detail["events_by_recorder"], size);
    let all = fs::read_to_string(&checkpoints(&rig)[0]).unwrap();
    assert_eq!(all.matches("\\nrecorder\\n").count(), 1, "{all}");
    assert_eq!(all.matches("\\nrecovery\\n").count(), 1, "{all}");
    check::settled(&rig);
}

#[test]
fn a_killed_session_that_was_cut_together_with_its_checkpoints_is_named_by_the_ledger() {
    let (rig, segment, text, size) = dead();
    let dir = AuditDir::at(&rig.audit).remembered_in(Some(rig.root.join("home")));
    let paths = dir.sessions().into_values().next().unwrap();
    // As the recorder of a session that runs for long says it.
    let hash = |line: &str| serde_json::from_str::<Value>(line).unwrap()["hash"].as_str().unwrap().to_owned();
    let hashes: Vec<String> = text.lines().take(size).map(hash).collect();
    let tree: Frontier = hashes.iter().map(|hash| leaf(&hex::decode(hash).unwrap())).collect();
    let name = segment.file_name().unwrap().to_str().unwrap();
    let entry = Entry {
        event_count: size as u64,
        tree_root: Some(hex::encode(tree.root())),
        ..Entry::new(LedgerKind::SegmentCheckpoint, Some(paths.id), name, &hashes[size - 1])
    };
    Ledger::lock(&dir, None).unwrap().append(&entry).unwrap();
    let whole = fs::read_to_string(&paths.checkpoints).unwrap();
    fs::write(&paths.checkpoints, lines(&whole, 2)).unwrap();
    let first = covered(&paths.checkpoints).unwrap();
    assert!(first < size, "{whole}");
    fs::write(&segment, lines(&text, first)).unwrap();
    fs::write(&paths.receipts, "").unwrap();
    damaged(&rig, "the ledger names a checkpoint of");
}

#[test]
fn a_killed_session_that_was_cut_or_changed_below_a_checkpoint_is_named_and_not_signed() {
    let (rig, segment, text, size) = dead();
    fs::write(&segment, lines(&text, size - 1)).unwrap();
    damaged(&rig, "a checkpoint says that this segment had");
    // Changed, and hashed anew to the end.
    let mut head = String::new();
    let changed = text.lines().enumerate().map(|(n, line)| {
        let mut event: assay::model::AuditEvent = serde_json::from_str(line).unwrap();
        if n > 0 {
            event.prev_hash.clone_from(&head);
            event.wire_bytes = event.wire_bytes.map(|bytes| bytes + 1);
        }
        event.seal().unwrap();
        head.clone_from(&event.hash);
        serde_json::to_string(&event).unwrap() + "\n"
    });
    fs::write(&segment, changed.collect::<String>()).unwrap();
    damaged(&rig, "are not those that a checkpoint states");
    // Checkpoints that somebody else made, or changed.
    fs::write(&segment, &text).unwrap();
    let path = checkpoints(&rig).remove(0);
    let whole = fs::read_to_string(&path).unwrap();
    for (from, to, why) in [
        ("\"kind\":\"key\"", "\"kind\":\"lock\"", "neither a key nor a checkpoint"),
        (&*format!("\\n{size}\\n"), &*format!("\\n{}\\n", size + 1), "does not hold"),
        ("\\nrecorder\\n", "\\nrecovery\\n", "does not hold"),
    ] {
        assert!(whole.contains(from), "{from}: {whole}");
        fs::write(&path, whole.replacen(from, to, 1)).unwrap();
        damaged(&rig, why);
    }
    // As it was, it is finished.
    fs::write(&path, whole).unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    assert_eq!(verified(&rig).completeness, Completeness::Incomplete);
    check::settled(&rig);
}

#[test]
fn checkpoints_that_are_torn_are_set_aside_and_those_that_are_gone_are_said_to_be() {
    let (rig, _, _, size) = dead();
    let path = checkpoints(&rig).remove(0);
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{}", &whole[..100])).unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    let report = verified(&rig);
    assert!(report.completeness_reasons.iter().any(|r| r.contains("set aside")), "{:?}", report.completeness_reasons);
    assert_eq!(report.stage(Stage::VerifyCheckpoints).unwrap().detail["events_by_recorder"], size);
    check::settled(&rig);
    let (rig, ..) = dead();
    fs::remove_file(checkpoints(&rig).remove(0)).unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    let report = verified(&rig);
    let all = format!("events 0…{} were sealed by recovery", report.facts.event_count - 1);
    assert!(report.completeness_reasons.contains(&all), "{:?}", report.completeness_reasons);
    check::settled(&rig);
}
