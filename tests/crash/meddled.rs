//! Somebody cuts, replaces or removes the files of a session while it is recorded.

use assay::pack::verify::{self, Completeness, Integrity, VerifyOptions};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, journal, rig, until},
};
use std::{fs, ops::ControlFlow, path::Path};

fn cut(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn empty(path: &Path) {
    fs::OpenOptions::new().write(true).truncate(true).open(path).unwrap();
}

/// In its first line.
fn cut_to_the_beginning(path: &Path) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(70).unwrap();
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

fn replace(path: &Path) {
    let text = fs::read(path).unwrap();
    fs::write(path.with_extension("new"), text).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

fn append(path: &Path) {
    use std::io::Write as _;
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"{}\n").unwrap();
}

/// `what` begins the name of the file, in this directory.
fn meddled(dir: &str, what: &str, how: fn(&Path)) {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
    rig.await_events(13);
    let before: Vec<_> = rig.segments();
    let file = until("the file", || files(&rig.audit.join(dir), |name| name.starts_with(what)).pop());
    client.send(&call(4, "hang", 0));
    rig.await_events(15);
    how(&file);
    let new = until("another segment", || rig.segments().into_iter().find(|s| !before.contains(s)));
    client.await_said("another segment is begun");
    assert!(client.said().contains(file.to_str().unwrap()), "{}", client.said());
    client.converse((5..8).map(|i| call(i, "echo", i)));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    // What is left of the first session is recovered, or named as damaged and not signed, and that each time alike.
    packs_hold(&rig, false);
    let out = rig.recover();
    packs_hold(&rig, out.status.code() == Some(0));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.code() == Some(0) || said.contains("damaged"), "{said}");
    let tree = check::tree(&rig.audit);
    assert_eq!(rig.recover().status.code(), out.status.code(), "{said}");
    assert_eq!(check::tree(&rig.audit), tree, "{said}");
    let name = new.file_name().unwrap().to_str().unwrap().replacen("segment", "proof_pack", 1);
    let pack = rig.audit.join("packs").join(name.trim_end_matches(".jsonl"));
    let receipts = fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap();
    assert_eq!(receipts.matches("\"mcp_tool_call\"").count(), 4, "three calls, and the one in flight");
    assert!(receipts.contains("evidence_damaged"));
    let report = verify::verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.integrity, Integrity::Pass, "{pack:?}: {:?}", report.errors);
    assert_eq!(report.completeness, Completeness::Incomplete);
}

/// Every pack is sound; with `all`, every segment has one.
fn packs_hold(rig: &Rig, all: bool) {
    let packs = files(&rig.audit.join("packs"), |_| true);
    for pack in &packs {
        let report = verify::verify(pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.integrity, Integrity::Pass, "{pack:?}: {:?}", report.errors);
        assert_eq!(report.completeness, Completeness::Incomplete, "{pack:?}");
    }
    assert!(!packs.is_empty());
    assert!(!all || packs.len() == rig.segments().len(), "{packs:?}");
}

#[test]
fn files_that_are_changed_while_they_are_written_are_noticed_and_another_segment_is_begun() {
    type How = (&'static str, fn(&Path));
    let how: [How; 6] = [
        ("cut in its first line", cut_to_the_beginning),
        ("cut", cut),
        ("emptied", empty),
        ("removed", remove),
        ("replaced", replace),
        ("appended to", append),
    ];
    for (dir, what) in [("audit", "segment_"), ("receipts", "session_"), ("audit", "checkpoints_")] {
        for (word, how) in how {
            eprintln!("{what} {word}");
            meddled(dir, what, how);
        }
    }
}

#[test]
fn a_segment_that_lost_its_beginning_is_written_as_it_was_or_named_and_never_signed() {
    for with_card in [true, false] {
        for left in [0, 70] {
            let rig = rig!();
            let mut client = Client::start(rig.proxy(&[]));
            client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
            rig.await_events(13);
            client.kill();
            rig.await_silence();
            let segment = rig.segments().remove(0);
            // On a slow machine it has checkpoints already, and would be named: `checkpoints.rs` does that.
            files(&rig.audit.join("audit"), |name| name.starts_with("checkpoints_")).iter().for_each(|c| remove(c));
            let first = fs::read_to_string(&segment).unwrap().lines().next().unwrap().to_owned();
            fs::OpenOptions::new().write(true).open(&segment).unwrap().set_len(left).unwrap();
            if !with_card {
                files(&rig.audit.join("live"), |name| name.ends_with(".json")).iter().for_each(|card| remove(card));
            }
            let out = rig.recover();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            if with_card {
                assert_eq!(out.status.code(), Some(0), "{said}");
                packs_hold(&rig, true);
                assert!(
                    fs::read_to_string(journal(&segment)).unwrap().starts_with(&first),
                    "the beginning is as it was"
                );
                check::settled(&rig);
                continue;
            }
            // Only the card tells how it began.
            assert!(files(&rig.audit.join("packs"), |_| true).is_empty(), "{said}");
            assert_eq!(out.status.code(), Some(2), "{said}");
            assert!(said.contains("damaged") && said.contains("was cut off"), "{said}");
            let tree = check::tree(&rig.audit);
            assert_eq!(rig.recover().status.code(), out.status.code());
            assert_eq!(check::tree(&rig.audit), tree);
        }
    }
}
