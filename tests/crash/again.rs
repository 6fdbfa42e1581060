//! Receipts that recovery sets aside and writes again, and a recovery that is killed in between.

use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, journal, rig},
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

type Saved = Vec<(PathBuf, Vec<u8>)>;

fn all_files(rig: &Rig) -> Vec<PathBuf> {
    let dirs = [rig.audit.clone(), rig.root.join("home"), rig.root.join("run")];
    dirs.iter().flat_map(|dir| check::tree(dir).into_keys()).filter(|path| path.is_file()).collect()
}

fn save(rig: &Rig) -> Saved {
    all_files(rig).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn put_back(rig: &Rig, saved: &Saved) {
    all_files(rig).into_iter().for_each(|path| fs::remove_file(path).unwrap());
    files(&rig.audit.join("packs"), |_| true).into_iter().for_each(|pack| fs::remove_dir_all(pack).unwrap());
    saved.iter().for_each(|(path, bytes)| write(path, bytes));
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|b| *b == b'\n').collect()
}

/// Recovers; returns the receipts as they are then.
fn recovered(rig: &Rig, receipts: &Path) -> Vec<u8> {
    let out = rig.recover();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("had lost their events and are written again"), "{said}");
    check::settled(rig);
    assert_eq!(check::sessions(rig).len(), 1);
    assert_eq!(files(&rig.audit.join("receipts"), |name| name.ends_with(".new")), Vec::<PathBuf>::new());
    fs::read(journal(receipts)).unwrap()
}

#[test]
fn a_recovery_that_is_killed_while_receipts_are_written_again_loses_none() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=4).map(|i| call(i, "echo", i))));
    rig.await_events(17);
    client.kill();
    rig.await_silence();
    let segment = rig.segments().remove(0);
    let receipts = files(&rig.audit.join("receipts"), |_| true).remove(0);
    // The answer to call 3 has lost its last event, and its receipt says what the capture does not; of call 4 there is the
    // receipt alone.
    let text = fs::read(&segment).unwrap();
    write(&segment, &lines(&text)[..12].concat());
    let text = fs::read_to_string(&receipts).unwrap();
    let edited: Vec<String> = text
        .split_inclusive('\n')
        .map(|line| {
            let receipt: Value = serde_json::from_str(line).unwrap();
            if receipt["mcp_request_id"] != 3 {
                return line.to_owned();
            }
            let us = receipt["phases_us"]["response_forwarded"].as_u64().unwrap();
            let new = line.replace(
                &format!("\"response_forwarded\":{us}"),
                &format!("\"response_forwarded\":{}", us + 1_000_000),
            );
            assert_ne!(new, line);
            new
        })
        .collect();
    write(&receipts, edited.concat().as_bytes());
    let dead = save(&rig);
    let old = fs::read(&receipts).unwrap();
    let new = recovered(&rig, &receipts);
    let aside = files(&rig.audit.join("receipts"), |name| name.contains(".torn_")).remove(0);
    let away = fs::read(&aside).unwrap();
    assert!(old.ends_with(&away), "from the first that does not hold together to the end");
    assert_eq!(lines(&away).len(), 2);
    let calls = |bytes: &[u8]| {
        let all = lines(bytes).into_iter().map(|line| serde_json::from_slice::<Value>(line).unwrap());
        all.filter_map(|r| r["mcp_request_id"].as_u64()).collect::<Vec<u64>>()
    };
    let mut ids = calls(&new);
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);

    // Killed while it copied what it sets aside, and behind that.
    for part in [away.len() / 2, away.len()] {
        put_back(&rig, &dead);
        write(&aside, &away[..part]);
        assert_eq!(recovered(&rig, &receipts), new);
    }
    // While it wrote the new receipts.
    put_back(&rig, &dead);
    write(&aside, &away);
    write(&receipts.with_extension("jsonl.new"), &new[..new.len() / 2]);
    assert_eq!(recovered(&rig, &receipts), new);
    // The new receipts stand, and their events are to come.
    put_back(&rig, &dead);
    write(&aside, &away);
    let without_end = lines(&new)[..lines(&new).len() - 1].concat();
    write(&receipts, &without_end);
    let out = rig.recover();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    check::settled(&rig);
    let session = check::sessions(&rig).remove(0);
    let text = fs::read(journal(&receipts)).unwrap();
    let mut ids = calls(&text);
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4], "{:?}", session.doc.recovery_notes);
}
