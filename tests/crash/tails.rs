//! Files that were cut, torn or filled with zeros behind a proxy that is gone.

use assay::{model::EventKind, pack::verify::Completeness};
use assay_support::{
    check::{self, Crossed, Session},
    rig::{Client, INITIALIZE, Rig, call, files, journal, rig},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A directory in which a proxy was killed with its evidence on disk and nothing in its captures.
struct Dead {
    rig: Rig,
    segment: PathBuf,
    receipts: PathBuf,
    crossed: Crossed,
}

fn dead(calls: u64) -> Dead {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=calls).map(|i| call(i, "echo", i))));
    // All four events of the last call are on disk.
    let segment = rig::until("a segment", || rig.segments().pop());
    let want = 1 + 4 * usize::try_from(calls).unwrap();
    rig::until("the evidence", || (lines(&segment) == want).then_some(()));
    client.kill();
    let crossed = Crossed::of(&rig, &client);
    // Only the files: what captures hold would make up for what is cut.
    for ring in files(&rig.root.join("run/assay"), |_| true) {
        fs::remove_file(ring).unwrap();
    }
    // On a slow machine it has checkpoints already, and may not be cut: `checkpoints.rs` cuts those.
    for checkpoints in files(&rig.audit.join("audit"), |name| name.starts_with("checkpoints_")) {
        fs::remove_file(checkpoints).unwrap();
    }
    let receipts = files(&rig.audit.join("receipts"), |_| true).remove(0);
    Dead { rig, segment, receipts, crossed }
}

fn lines(path: &Path) -> usize {
    fs::read(path).unwrap_or_default().iter().filter(|b| **b == b'\n').count()
}

/// Where the line begins that is the `n`th from the end, from 1.
fn line_start(text: &[u8], n: usize) -> usize {
    let mut ends = text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
    let count = ends.clone().count();
    if count > n { ends.nth(count - n - 1).unwrap() } else { 0 }
}

/// Puts the directory back as it was, and what the user directory remembers of it.
fn restore(rig: &Rig, saved: &[(PathBuf, Vec<u8>)]) {
    // The directory itself stays the same one.
    for path in files(&rig.audit, |_| true).into_iter().chain(remembered(rig)) {
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
    for (path, text) in saved {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for dir in ["receipts", "audit", "packs", "live"] {
        fs::create_dir_all(rig.audit.join(dir)).unwrap();
    }
}

fn save(rig: &Rig) -> Vec<(PathBuf, Vec<u8>)> {
    let all = check::tree(&rig.audit).into_keys();
    // What is cut here on purpose is not to be missed.
    let memory =
        remembered(rig).into_iter().filter(|dir| dir.ends_with("sessions")).flat_map(|dir| files(&dir, |_| true));
    let all = all.chain(memory);
    all.filter(|p| p.is_file()).map(|p| (p.clone(), fs::read(&p).unwrap())).collect()
}

/// Where the user directory remembers sessions, ledgers and logs.
fn remembered(rig: &Rig) -> Vec<PathBuf> {
    let home = rig.root.join("home");
    ["sessions", "ledgers", "logs"].map(|dir| home.join(dir)).into_iter().filter(|dir| dir.is_dir()).collect()
}

fn only(mut sessions: Vec<Session>) -> Session {
    assert_eq!(sessions.len(), 1);
    sessions.remove(0)
}

/// Cuts `file` at every offset of its last two lines, with `step`, leaves nothing, zeros or noise behind, and recovers.
fn tear(dead: &Dead, file: &Path, step: usize) {
    let saved = save(&dead.rig);
    let text = fs::read(file).unwrap();
    let from = line_start(&text, 2);
    let ends = [line_start(&text, 1), text.len()];
    for (i, cut) in (from..text.len()).step_by(step).chain(ends.map(|e| e - 1)).enumerate() {
        let fill: &[u8] = [&b""[..], &[0; 700], b"\x00\x00\n{\"a\":1\n"][i % 3];
        restore(&dead.rig, &saved);
        let mut torn = text[..cut].to_vec();
        let whole = cut == from || torn.ends_with(b"\n");
        torn.extend_from_slice(fill);
        fs::write(file, &torn).unwrap();
        let session = only(check::recovered(&dead.rig, &Crossed::damaged()));
        assert_ne!(session.completeness, Completeness::Complete, "cut at {cut}");
        let name = file.file_name().unwrap().to_str().unwrap();
        let said = session.doc.recovery_notes.iter().any(|n| n.contains("set aside") && n.contains(name));
        assert_eq!(said, !(whole && fill.is_empty()), "cut at {cut}: {:?}", session.doc.recovery_notes);
        let now = fs::read(journal(file)).unwrap();
        let kept = line_start(&text[..cut], 0).max(from);
        let kept = if kept > cut { from } else { kept };
        assert_eq!(now[..kept], text[..kept], "the prefix does not stand");
        if said {
            let aside = files(file.parent().unwrap(), |n| n.starts_with(name) && n.contains(".torn_"));
            assert_eq!(aside.len(), 1);
            assert_eq!(fs::read(&aside[0]).unwrap(), torn[kept..]);
        }
    }
}

#[test]
fn a_segment_that_is_torn_or_zero_filled_at_any_offset_keeps_its_prefix() {
    let dead = dead(2);
    tear(&dead, &dead.segment.clone(), 23);
}

#[test]
fn receipts_that_are_torn_or_zero_filled_at_any_offset_keep_their_prefix() {
    let dead = dead(2);
    tear(&dead, &dead.receipts.clone(), 41);
}

#[test]
fn a_ledger_that_is_torn_goes_on_and_says_so() {
    let dead = dead(1);
    let saved = save(&dead.rig);
    let path = dead.rig.audit.join("audit/ledger.jsonl");
    let text = fs::read(&path).unwrap();
    for cut in (1..text.len()).step_by(29) {
        restore(&dead.rig, &saved);
        let mut torn = text.clone();
        torn.extend_from_slice(&text[..cut]);
        torn.extend_from_slice(&vec![0; cut % 2 * 9]);
        fs::write(&path, &torn).unwrap();
        only(check::recovered(&dead.rig, &Crossed::damaged()));
        let kinds: Vec<_> = check::ledger(&dead.rig).iter().map(|l| l.kind).collect();
        assert!(kinds.contains(&assay::model::LedgerKind::TornTail), "{kinds:?}");
    }
}

#[test]
fn evidence_without_damage_is_recovered_whole_also_without_its_captures() {
    let dead = dead(3);
    let session = only(check::recovered(&dead.rig, &dead.crossed));
    assert_eq!(session.doc.counts.calls, 3);
    assert_eq!(session.completeness, Completeness::Incomplete);
}

#[test]
fn a_crashed_sessions_segment_that_was_cut_is_never_called_complete() {
    let dead = dead(3);
    let saved = save(&dead.rig);
    let text = fs::read(&dead.segment).unwrap();
    for n in 1..=12 {
        restore(&dead.rig, &saved);
        fs::write(&dead.segment, &text[..line_start(&text, n)]).unwrap();
        let session = only(check::recovered(&dead.rig, &Crossed::damaged()));
        assert_ne!(session.completeness, Completeness::Complete, "{n} events cut");
        assert_eq!(session.doc.end_reason, "crashed");
        // Receipts whose events were cut say that something is missing.
        let orphans = 3 - session.count(EventKind::ResponseSent);
        let kind = |e: &&assay::model::AuditEvent| matches!(&e.detail, assay::model::Detail::Anomaly(d) if d.kind == assay::model::AnomalyKind::ReceiptWithoutEvents);
        let named = session.events.iter().filter(kind).count();
        let reclosed = session.count(EventKind::Anomaly);
        assert!(named <= orphans && reclosed >= orphans, "{n} events cut: {named} {reclosed} {orphans}");
        let notes = session.doc.recovery_notes.join("\n");
        assert!(notes.contains("ended without ending its chain"), "{notes}");
    }
}

#[test]
fn a_finished_segment_that_was_shortened_since_is_named_and_never_signed() {
    for with_pack in [true, false] {
        let rig = rig!();
        let mut client = Client::start(rig.proxy(&[]));
        client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
        assert_eq!(client.end().code(), Some(0), "{}", client.said());
        rig.as_once();
        if !with_pack {
            fs::remove_dir_all(&files(&rig.audit.join("packs"), |_| true)[0]).unwrap();
        }
        let segment = rig.segments().remove(0);
        let text = fs::read(&segment).unwrap();
        for n in [1, 2, 5, lines(&segment)] {
            fs::write(&segment, &text[..line_start(&text, n)]).unwrap();
            let before = check::tree(&rig.audit);
            let out = rig.recover();
            assert_eq!(out.status.code(), Some(2), "{n} lines cut");
            let said = String::from_utf8(out.stdout).unwrap();
            assert!(said.contains("the ledger says that this segment ended with event 14"), "{said}");
            assert_eq!(check::tree(&rig.audit), before, "{n} lines cut");
        }
        fs::write(&segment, &text).unwrap();
        assert_eq!(rig.recover().status.code(), Some(0));
    }
}

#[test]
fn a_cut_journal_is_signed_by_the_next_start_as_what_it_is() {
    let dead = dead(3);
    let text = fs::read(&dead.segment).unwrap();
    fs::write(&dead.segment, &text[..line_start(&text, 5)]).unwrap();
    let mut client = Client::start(dead.rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=1).map(|i| call(i, "echo", i))));
    client.await_said("recovered proof pack");
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert!(client.said().contains("crashed, verified, INCOMPLETE"), "{}", client.said());
    check::settled(&dead.rig);
    let sessions = check::sessions(&dead.rig);
    let mut complete: Vec<bool> = sessions.iter().map(|s| s.completeness == Completeness::Complete).collect();
    complete.sort_unstable();
    assert_eq!(complete, [false, true]);
}

#[test]
fn a_payload_of_any_size_that_is_torn_is_set_aside() {
    for (whole, torn) in [(0, 300_000), (2, 5), (2, 3 << 20), (1, 1 << 20)] {
        let dead = dead(1);
        let name = dead.segment.file_name().unwrap().to_str().unwrap().replacen("segment", "session", 1);
        let log = dead.rig.audit.join("investigation").join(&name);
        fs::create_dir(log.parent().unwrap()).unwrap();
        let mut text = b"{\"content\":1}\n".repeat(whole);
        let kept = text.len();
        text.extend(std::iter::repeat_n(b'x', torn));
        fs::write(&log, &text).unwrap();
        let session = only(check::recovered(&dead.rig, &Crossed::damaged()));
        let notes = session.doc.recovery_notes.join("\n");
        assert!(notes.contains(&format!("{torn} bytes at offset {kept} of {name}")), "{notes}");
        assert_eq!(fs::read(&log).unwrap(), text[..kept]);
        let aside = files(log.parent().unwrap(), |n| n.contains(".torn_"));
        assert_eq!(fs::read(&aside[0]).unwrap(), text[kept..]);
    }
}

#[test]
fn a_part_of_what_is_torn_that_an_interrupted_recovery_left_is_made_whole() {
    let dead = dead(1);
    let saved = save(&dead.rig);
    let tear = || {
        let mut text = fs::read(&dead.segment).unwrap();
        text.extend_from_slice(b"{\"torn\":");
        fs::write(&dead.segment, text).unwrap();
    };
    tear();
    only(check::recovered(&dead.rig, &Crossed::damaged()));
    let dir = dead.segment.parent().unwrap().to_owned();
    let aside = files(&dir, |n| n.contains(".torn_")).remove(0);
    restore(&dead.rig, &saved);
    tear();
    fs::write(&aside, b"{\"to").unwrap();
    only(check::recovered(&dead.rig, &Crossed::damaged()));
    assert_eq!(fs::read(&aside).unwrap(), b"{\"torn\":");
}
