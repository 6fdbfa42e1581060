//! The ledger as a log: what is signed of it, what is refused, `assay ledger`.

use assay::{
    model::{LedgerKind, LedgerLine, checkpoint::read_text, sha256_hex},
    note::{self, Key},
    pack::verify::verify_ed25519,
    record::ledger::Ledger,
    tiles::{Edge, Kind, Place, Tile, places},
    tree::{Hash, leaf},
};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, rig, stderr, stdout},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn record(rig: &Rig) {
    rig.record("audit", &[], &[json!({"name": "echo", "arguments": {"text": "x"}})]);
}

/// A session whose end is not as it should be; what the proxy said, and its exit code.
fn refused(rig: &Rig, audit: &str) -> (String, Option<i32>) {
    let argv = ["mcp-proxy", "--audit-dir", audit, "--", rig.assay, "demo-server"];
    let mut client = Client::start(rig.program(&argv));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    let ended = client.end();
    (client.said(), ended.code())
}

fn key(rig: &Rig, audit: &str) -> Key {
    let out = rig.run(&["ledger", "vkey", "--audit-dir", audit]);
    assert!(out.status.success(), "{}", stderr(&out));
    Key::parse(stdout(&out).trim()).unwrap()
}

/// The lines that the checkpoint of a log covers, and its root: it must hold under the key that is printed.
fn checkpoint(rig: &Rig, audit: &str) -> (String, u64, Hash) {
    let note = fs::read_to_string(rig.at(audit).join("audit/log/checkpoint")).unwrap();
    let holds = |key: &[u8], text: &[u8], signature: &[u8]| verify_ed25519(key, text, signature).is_ok();
    let text = note::open(&note, &key(rig, audit), &holds).unwrap();
    let (origin, size, root) = read_text(text).unwrap();
    (origin.to_owned(), size, root)
}

fn entries(rig: &Rig, audit: &str) -> Vec<Hash> {
    let text = fs::read_to_string(rig.at(audit).join("audit/ledger.jsonl")).unwrap();
    let hash = |line: &str| {
        let line: LedgerLine = serde_json::from_str(line).unwrap();
        assert!(line.is_of_its_kind(), "{line:?}");
        let mut hash = Hash::default();
        hex::decode_to_slice(line.hash, &mut hash).unwrap();
        hash
    };
    text.lines().map(hash).collect()
}

/// What lies beside the ledger is what the ledger says, and nothing else.
fn sound(rig: &Rig, audit: &str) {
    let (_, size, root) = checkpoint(rig, audit);
    let entries = entries(rig, audit);
    assert_eq!(size, entries.len() as u64);
    let (mut edge, mut tiles) = (Edge::default(), Vec::new());
    entries.iter().for_each(|entry| edge.push(*entry, &mut |tile| tiles.push(tile)));
    assert_eq!(edge.root(), root);
    tiles.extend(edge.partial());
    let log = rig.at(audit).join("audit/log");
    let mut there = tree(&log.join("tile"));
    for Tile { place, .. } in &tiles {
        let path = log.join(place.path());
        let read = Tile::read(*place, &fs::read(&path).unwrap()).unwrap();
        assert!(tiles.contains(&read), "{path:?}");
        there.retain(|other| *other != path);
    }
    assert_eq!(there, Vec::<PathBuf>::new(), "left in tile/");
}

fn tree(dir: &Path) -> Vec<PathBuf> {
    files(dir, |_| true).into_iter().flat_map(|p| if p.is_dir() { tree(&p) } else { vec![p] }).collect()
}

fn kinds(rig: &Rig) -> Vec<LedgerKind> {
    check::ledger(rig).iter().map(|line| line.kind).collect()
}

#[test]
fn each_session_is_named_with_its_key_its_root_and_its_pack_and_the_ledger_is_signed() {
    use LedgerKind::{PackSealed, SegmentEnd, SegmentStart};
    let rig = rig!();
    record(&rig);
    sound(&rig, "audit");
    record(&rig);
    sound(&rig, "audit");
    let lines = check::ledger(&rig);
    assert_eq!(kinds(&rig), [SegmentStart, SegmentEnd, PackSealed].repeat(2));
    assert_eq!(checkpoint(&rig, "audit").0, format!("assay/ledger/{}", &lines[0].hash[..32]));
    for (n, pack) in files(&rig.audit.join("packs"), |_| true).into_iter().enumerate() {
        let sealed = lines.iter().filter(|line| line.kind == PackSealed);
        let sealed: Vec<_> = sealed
            .filter(|l| pack.ends_with(l.segment.replace("segment", "proof_pack").trim_end_matches(".jsonl")))
            .collect();
        let manifest = sha256_hex(&fs::read(pack.join("pack_manifest.json")).unwrap());
        assert_eq!(sealed[0].pack_manifest_sha256, Some(manifest), "{n}");
        // The key that the first line names certified itself in the pack, and signed the root that the last one names.
        let of = |kind| lines.iter().find(|line| line.segment == sealed[0].segment && line.kind == kind).unwrap();
        let checkpoints = fs::read_to_string(pack.join("checkpoints.jsonl")).unwrap();
        let notes: Vec<String> = checkpoints
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["note"].as_str().unwrap().to_owned())
            .collect();
        let session = Key::parse(notes[0].lines().nth(2).unwrap()).unwrap();
        assert_eq!(of(SegmentStart).session_key, Some(sha256_hex(session.public())));
        assert_eq!(of(SegmentEnd).session_key, of(SegmentStart).session_key);
        let (text, _) = notes.last().unwrap().rsplit_once("\n\n").unwrap();
        let (_, size, root) = read_text(&format!("{text}\n")).unwrap();
        assert_eq!((of(SegmentEnd).event_count, of(SegmentEnd).tree_root.clone()), (size, Some(hex::encode(root))));
    }
}

#[test]
fn tiles_that_are_lost_or_changed_are_made_again_and_never_believed() {
    let rig = rig!();
    record(&rig);
    let log = rig.audit.join("audit/log");
    let other = [7; 32 * 3];
    let meddle: [&dyn Fn(); 7] = [
        &|| fs::remove_dir_all(&log).unwrap(),
        &|| fs::remove_dir_all(log.join("tile/0")).unwrap(),
        &|| fs::write(&tree(&log.join("tile/0"))[0], other).unwrap(),
        &|| fs::write(&tree(&log.join("tile/entries"))[0], other).unwrap(),
        &|| fs::write(log.join("origin"), "assay/ledger/00000000000000000000000000000000\n").unwrap(),
        &|| fs::write(log.join("origin"), "example.com/other\n").unwrap(),
        &|| fs::write(log.join("checkpoint"), "nothing").unwrap(),
    ];
    for meddle in meddle {
        meddle();
        record(&rig);
        sound(&rig, "audit");
    }
    let recorded = fs::read_to_string(rig.audit.join("recorder.log")).unwrap();
    assert!(recorded.contains("did not fit the ledger, and was made again"), "{recorded}");
}

#[test]
fn a_long_ledger_of_an_earlier_version_becomes_a_log_and_goes_on() {
    let rig = rig!();
    assay_support::sessions::write(&assay_support::sessions::Plan::default(), &rig.audit).unwrap();
    let dir = assay::paths::AuditDir::at(&rig.audit);
    let mut ledger = Ledger::lock(&dir, None).unwrap();
    let entry = assay::record::ledger::Entry::new(LedgerKind::SurfaceApproval, None, "x", assay::model::GENESIS);
    ledger.append_all(&vec![entry; 255 * 3], &|_| Ok(String::new())).unwrap();
    drop(ledger);
    // The third line from here on makes a tile whole.
    for _ in 0..2 {
        record(&rig);
        sound(&rig, "audit");
    }
    let whole = Place { kind: Kind::Level(0), index: 2, width: 256 };
    assert!(rig.audit.join("audit/log").join(whole.path()).is_file());
    assert_eq!(places(checkpoint(&rig, "audit").1).len(), 3);
}

#[test]
fn a_ledger_that_was_rolled_back_is_not_signed_until_its_user_says_that_this_was_meant() {
    let rig = rig!();
    record(&rig);
    let ledger = rig.audit.join("audit/ledger.jsonl");
    let older = fs::read(&ledger).unwrap();
    record(&rig);
    let (first, size, _) = checkpoint(&rig, "audit");
    let whole = fs::read_to_string(&ledger).unwrap();
    let last = check::ledger(&rig).pop().unwrap().hash;
    let note = fs::read(rig.audit.join("audit/log/checkpoint")).unwrap();
    // As many lines as were signed, and another one among them.
    fs::write(&ledger, whole.replace(&last, &"ab".repeat(32))).unwrap();
    fs::remove_dir_all(rig.at("home/ledgers")).unwrap();
    let (said, code) = refused(&rig, "audit");
    assert!(code == Some(2) && said.contains("are not those of which you signed a checkpoint"), "{said}");
    // Each memory by itself, and the checkpoint in the directory, give a rollback away.
    for (n, forget) in [None, Some("home/logs"), Some("home/ledgers")].into_iter().enumerate() {
        fs::write(&ledger, &older).unwrap();
        if let Some(forget) = forget {
            fs::remove_dir_all(rig.at(forget)).unwrap();
        }
        let packs = files(&rig.audit.join("packs"), |_| true).len();
        let (said, code) = refused(&rig, "audit");
        assert!(said.contains("the ledger was rolled back") && said.contains("assay ledger renew"), "{n}: {said}");
        assert_eq!((code, files(&rig.audit.join("packs"), |_| true).len()), (Some(2), packs + 1), "{n}: {said}");
        assert_eq!(fs::read(rig.audit.join("audit/log/checkpoint")).unwrap(), note, "{n}");
        assert_eq!(files(&rig.audit.join("live"), |_| true), Vec::<PathBuf>::new(), "the session is over");
    }
    let renewed = rig.json(0, &["ledger", "renew", "--reason", "restored a backup", "--audit-dir", "audit"]);
    let line = check::ledger(&rig).pop().unwrap();
    assert_eq!((line.kind, line.note.as_deref()), (LedgerKind::LogRenewed, Some("restored a backup")));
    assert_eq!(line.renewed.unwrap().checkpoint.unwrap().as_bytes(), note);
    assert_eq!(renewed["origin"], format!("assay/ledger/{}", &line.hash[..32]));
    assert!(renewed["origin"] != *first && renewed["size"].as_u64().unwrap() > size, "{renewed}");
    sound(&rig, "audit");
    record(&rig);
    sound(&rig, "audit");
    assert!(rig.recover().status.success());
}

#[test]
fn of_two_copies_of_a_directory_one_is_signed() {
    let rig = rig!();
    record(&rig);
    let copied = rig.command("cp").args(["-a", "audit", "copy"]).status().unwrap();
    assert!(copied.success());
    record(&rig);
    sound(&rig, "audit");
    let (said, code) = refused(&rig, "copy");
    assert!(code == Some(2) && said.contains("the ledger was rolled back"), "{said}");
    rig.json(0, &["ledger", "renew", "--reason", "a copy", "--log-origin", "example.com/mcp", "--audit-dir", "copy"]);
    assert_eq!(checkpoint(&rig, "copy").0, "example.com/mcp");
    rig.record("copy", &[], &[]);
    sound(&rig, "copy");
    assert_eq!(checkpoint(&rig, "copy").0, "example.com/mcp");
    assert_ne!(checkpoint(&rig, "audit").0, "example.com/mcp");
}

#[test]
fn names_and_directories_that_mean_nothing_are_refused() {
    let rig = rig!();
    record(&rig);
    for (args, said) in [
        (&["renew", "--audit-dir", "audit"][..], "--reason"),
        (&["renew", "--reason", " ", "--audit-dir", "audit"], "expected a reason"),
        (&["renew", "--reason", "x", "--log-origin", "assay/ledger/1", "--audit-dir", "audit"], "expected a name"),
        (&["renew", "--reason", "x", "--log-origin", "a b", "--audit-dir", "audit"], "expected a name"),
        (&["renew", "--reason", "x", "--audit-dir", "home"], "has no ledger"),
        (&["vkey", "--audit-dir", "home"], "has no ledger"),
        (&["vkey", "nobody", "--audit-dir", "audit"], "nobody"),
    ] {
        let out = rig.run(&[&["ledger"], args].concat());
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(said), "{args:?}: {}", stderr(&out));
    }
    assert_eq!(check::ledger(&rig).len(), 3);
    let memory = files(&rig.at("home/logs"), |_| true).remove(0);
    let text = fs::read_to_string(&memory).unwrap();
    let later = text.replace("\"v\":1", "\"v\":2");
    fs::write(&memory, &later).unwrap();
    record(&rig);
    assert_eq!(fs::read_to_string(&memory).unwrap(), later, "what a later version remembers is not replaced");
    let recorded = fs::read_to_string(rig.audit.join("recorder.log")).unwrap();
    assert!(
        recorded.contains("no checkpoint of the ledger was signed") && recorded.contains("later assay"),
        "{recorded}"
    );
}

/// A hash as it is in a leaf, for who reads this test.
#[test]
fn a_leaf_is_made_of_the_bytes_of_a_line_s_hash() {
    let rig = rig!();
    record(&rig);
    let tile = fs::read(rig.audit.join("audit/log/tile/0/000.p/3")).unwrap();
    let first = hex::decode(&check::ledger(&rig)[0].hash).unwrap();
    assert_eq!(tile[..32], leaf(&first));
}
