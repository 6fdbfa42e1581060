//! Attacks on what was stated of a session while it was recorded. The attacker holds the key that signs packs, and signs
//! everything anew; what they do not have is the session's own key.

use assay::pack::verify::{Claims, Completeness, Exit, Integrity, SignerVerdict, Stage, StageStatus, VerifyOptions};
use assay::{
    model::{SessionId, checkpoint::Role},
    note::Key,
};
use assay_support::{
    forge::{
        CHECKPOINTS, EVENTS, MANIFEST, Pack, RECEIPTS, SIGNATURE, Sealer, canonical, check_pack, key_e, key_k, other,
        pinned, recorded, unpinned,
    },
    sessions::Plan,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::sync::LazyLock;

/// Events of the session that is attacked.
const EVENTS_OF_IT: usize = 82;
/// Where it was stated.
const SIZES: [usize; 3] = [1, 40, EVENTS_OF_IT];

/// The recorder of the session that is attacked: its key is gone.
pub(super) fn recorder(session: SessionId) -> Sealer {
    Sealer::of(session, 3, key_k())
}

pub(super) fn sealed() -> Pack {
    static P: LazyLock<Pack> = LazyLock::new(|| {
        let mut pack = Pack::read(&recorded(&Plan::default()).1);
        let lines = pack.sealed_at(&recorder(pack.session()), &SIZES);
        pack.set_lines(CHECKPOINTS, &lines);
        pack.sign(&key_k());
        pack
    });
    P.clone()
}

fn with(p: &mut Pack, f: impl FnOnce(&mut Vec<String>)) {
    let mut lines = p.lines(CHECKPOINTS);
    f(&mut lines);
    p.set_lines(CHECKPOINTS, &lines);
}

/// Changes the note of one line.
fn note(p: &mut Pack, line: usize, f: impl FnOnce(String) -> String) {
    p.edit(CHECKPOINTS, line, |l| l["note"] = f(l["note"].as_str().unwrap().to_owned()).into());
}

/// The signature's line of a note, with its line feed.
fn signature(note: &str) -> String {
    note.split_once("\n\n").unwrap().1.to_owned()
}

fn with_signature(note: &str, signature: &str) -> String {
    format!("{}\n\n{signature}", note.split_once("\n\n").unwrap().0)
}

/// A line below a note, by a key of this name and id.
fn line_of(name: &str, id: [u8; 4], signature: &[u8]) -> String {
    format!("\u{2014} {name} {}\n", STANDARD.encode([&id[..], signature].concat()))
}

fn late(p: &Pack, by: fn() -> assay::pack::keys::Signer) -> Sealer {
    Sealer::of(p.session(), 4, by())
}

/// What must come of it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Want {
    /// The stage finds it.
    Tampered,
    /// All holds, but for who certified it.
    Untrusted,
}
use Want::{Tampered, Untrusted};

type Row = (&'static str, fn(&mut Pack), Want);

const ROWS: &[Row] = &[
    (
        "the root of another size",
        |p| {
            let root = p.root(41);
            let line = recorder(p.session()).checkpoint(40, &root);
            with(p, |lines| lines[2] = line);
        },
        Tampered,
    ),
    ("a size twice", |p| with(p, |lines| lines.insert(2, lines[2].clone())), Tampered),
    ("sizes that fall", |p| with(p, |lines| lines.swap(2, 3)), Tampered),
    (
        "more events than there are",
        |p| {
            let line = recorder(p.session()).checkpoint(EVENTS_OF_IT as u64 + 1, &[7; 32]);
            with(p, |lines| lines.push(line));
        },
        Tampered,
    ),
    (
        "2^63 events",
        |p| {
            let line = recorder(p.session()).checkpoint(1 << 63, &[7; 32]);
            with(p, |lines| lines.push(line));
        },
        Tampered,
    ),
    ("the last one is missing", |p| with(p, |lines| drop(lines.pop())), Tampered),
    ("all are missing", |p| with(p, |lines| lines.truncate(1)), Tampered),
    ("nothing is there", |p| p.set(CHECKPOINTS, ""), Tampered),
    ("the key is missing", |p| with(p, |lines| drop(lines.remove(0))), Tampered),
    (
        "another key signs the last one",
        |p| {
            let line = late(p, key_k).checkpoint(EVENTS_OF_IT as u64, &p.root(EVENTS_OF_IT));
            with(p, |lines| lines[3] = line);
        },
        Tampered,
    ),
    (
        "a second recorder",
        |p| {
            let lines = p.sealed_at(&late(p, key_k), &[EVENTS_OF_IT]);
            with(p, |all| all.splice(3.., lines).for_each(drop));
        },
        Tampered,
    ),
    (
        "the last events are cut, and everything signed anew",
        |p| {
            let events = p.lines(EVENTS);
            p.set_lines(EVENTS, &[&events[..EVENTS_OF_IT - 5], &events[EVENTS_OF_IT - 1..]].concat());
            let receipts = p.lines(RECEIPTS);
            p.set_lines(RECEIPTS, &[&receipts[..20], &receipts[21..]].concat());
            p.make_consistent();
        },
        Tampered,
    ),
    (
        "an event is changed, and everything after it",
        |p| {
            p.edit(EVENTS, 13, |e| e["wire_bytes"] = 1.into());
            p.make_consistent();
        },
        Tampered,
    ),
    (
        "the certificate of another session",
        |p| {
            let line = recorder(other().session()).certified(Role::Recorder);
            with(p, |lines| lines[0] = line);
        },
        Tampered,
    ),
    (
        "the checkpoints of another session",
        |p| {
            let other = other();
            let lines = other.sealed_at(&recorder(other.session()), &SIZES);
            p.set_lines(CHECKPOINTS, &lines);
        },
        Tampered,
    ),
    (
        "a key with the name of another session",
        |p| {
            let (session, sealer) = (p.session(), recorder(other().session()));
            let text = assay::model::checkpoint::key_text(session, &sealer.key, Role::Recorder);
            let note = sealer.signer().note(&text, &key_k().sign(text.as_bytes()).unwrap());
            p.edit(CHECKPOINTS, 0, |l| l["note"] = note.into());
        },
        Tampered,
    ),
    (
        "a recovery that calls itself the recorder",
        |p| {
            let sealer = late(p, key_k);
            let line = sealer.certified(Role::Recovery).replacen("recovery", "recorder", 1);
            let stated = sealer.checkpoint(EVENTS_OF_IT as u64, &p.root(EVENTS_OF_IT));
            p.set_lines(CHECKPOINTS, &[line, stated]);
        },
        Tampered,
    ),
    (
        "the recorder after a recovery",
        |p| {
            let line = late(p, key_k).certified(Role::Recovery);
            with(p, |lines| lines.insert(0, line));
        },
        Tampered,
    ),
    ("a role that there is not", |p| note(p, 0, |n| n.replacen("\nrecorder\n", "\nwitness\n", 1)), Tampered),
    (
        "certified by another key",
        |p| {
            let lines = p.sealed_at(&Sealer::of(p.session(), 3, key_e()), &SIZES);
            p.set_lines(CHECKPOINTS, &lines);
        },
        Untrusted,
    ),
    (
        "a recovery that another key certified",
        |p| {
            let sealer = late(p, key_e);
            let lines =
                [sealer.certified(Role::Recovery), sealer.checkpoint(EVENTS_OF_IT as u64, &p.root(EVENTS_OF_IT))];
            with(p, |all| all.splice(3.., lines).for_each(drop));
        },
        Untrusted,
    ),
    (
        "certified by another key in the owner's name",
        |p| {
            let signer = recorder(p.session()).signer().to_string();
            let lines = p.sealed_at(&Sealer::of(p.session(), 3, key_e()), &SIZES);
            p.set_lines(CHECKPOINTS, &lines);
            p.edit(CHECKPOINTS, 0, |l| l["signer"] = signer.into());
        },
        Tampered,
    ),
    (
        "the key is not one of a signer",
        |p| {
            p.edit(CHECKPOINTS, 0, |l| {
                l["signer"] = l["signer"].as_str().unwrap().replacen("assay/signer/", "", 1).into()
            });
        },
        Tampered,
    ),
    (
        "a weak key",
        |p| {
            let mut weak = [0; 32];
            weak[0] = 1;
            let key = Key::new(&assay::model::checkpoint::origin(p.session()), weak).unwrap();
            let signer = recorder(p.session()).signer();
            let text = assay::model::checkpoint::key_text(p.session(), &key, Role::Recorder);
            let certified = signer.note(&text, &key_k().sign(text.as_bytes()).unwrap());
            p.edit(CHECKPOINTS, 0, |l| l["note"] = certified.into());
            for n in 1..=3 {
                note(p, n, |n| with_signature(&n, &line_of(key.name(), key.id(), &weak_signature())));
            }
        },
        Tampered,
    ),
    // A note is taken whole, or not at all.
    ("a control byte in a note", |p| note(p, 1, |n| n.replacen("\n1\n", "\n1\u{1}\n", 1)), Tampered),
    ("a note with CR LF", |p| note(p, 1, |n| n.replace('\n', "\r\n")), Tampered),
    ("no blank line", |p| note(p, 1, |n| n.replacen("\n\n", "\n", 1)), Tampered),
    (
        "101 signatures",
        |p| {
            note(p, 1, |n| format!("{n}{}", line_of("somebody", [1; 4], &[1; 64]).repeat(100)));
        },
        Tampered,
    ),
    ("a known key twice", |p| note(p, 1, |n| format!("{n}{}", signature(&n))), Tampered),
    (
        "a known key that fails beside one that holds",
        |p| {
            let key = recorder(p.session()).key;
            note(p, 1, |n| {
                format!("{}{}", with_signature(&n, &line_of(key.name(), key.id(), &[1; 64])), signature(&n))
            });
        },
        Tampered,
    ),
    (
        "another key with the same name and id",
        |p| {
            let key = recorder(p.session()).key;
            note(p, 1, |n| with_signature(&n, &line_of(key.name(), key.id(), &[1; 32])));
        },
        Tampered,
    ),
    ("no signature", |p| note(p, 1, |n| with_signature(&n, "")), Tampered),
    (
        "a line more in a checkpoint",
        |p| {
            let text = format!("assay/session/{}\n1\n{}\nmore\n", p.session(), STANDARD.encode(p.root(1)));
            let line = recorder(p.session()).signed(&text);
            with(p, |lines| lines[1] = line);
        },
        Tampered,
    ),
    (
        "a size with a zero in front",
        |p| {
            let text = format!("assay/session/{}\n01\n{}\n", p.session(), STANDARD.encode(p.root(1)));
            let line = recorder(p.session()).signed(&text);
            with(p, |lines| lines[1] = line);
        },
        Tampered,
    ),
    // The same meaning in other bytes.
    ("a space", |p| p.replace(CHECKPOINTS, "\"kind\":\"key\"", "\"kind\": \"key\""), Tampered),
    ("a member more", |p| p.replace(CHECKPOINTS, "\"v\":1", "\"v\":1,\"w\":1"), Tampered),
    ("a member twice", |p| p.replace(CHECKPOINTS, "\"v\":1", "\"v\":1,\"v\":1"), Tampered),
    ("a version that no version writes", |p| p.replace(CHECKPOINTS, "\"v\":1", "\"v\":0"), Tampered),
    ("an unknown kind", |p| p.replace(CHECKPOINTS, "\"kind\":\"checkpoint\"", "\"kind\":\"tombstone\""), Tampered),
    ("a blank line", |p| p.file(CHECKPOINTS).push(b'\n'), Tampered),
    (
        "the last line is torn",
        |p| {
            p.file(CHECKPOINTS).pop();
        },
        Tampered,
    ),
    ("garbage behind the end", |p| p.file(CHECKPOINTS).extend(b"{}\n"), Tampered),
    // A signature of the long-term key in the place of another.
    (
        "the manifest's signature as a certificate",
        |p| {
            let (signer, raw) = (recorder(p.session()).signer(), p.0[SIGNATURE].clone());
            note(p, 0, |n| with_signature(&n, &line_of(signer.name(), signer.id(), &raw)));
        },
        Tampered,
    ),
    (
        "the manifest as a certificate",
        |p| {
            let signer = recorder(p.session()).signer();
            let text = format!("{}\n", canonical(&serde_json::from_slice::<Value>(&p.0[MANIFEST]).unwrap()));
            let certified = signer.note(&text, &key_k().sign(text.as_bytes()).unwrap());
            p.edit(CHECKPOINTS, 0, |l| l["note"] = certified.into());
        },
        Tampered,
    ),
    (
        "a checkpoint signed by the long-term key",
        |p| {
            let signer = recorder(p.session()).signer();
            note(p, 1, |n| {
                let text = format!("{}\n", n.split_once("\n\n").unwrap().0);
                signer.note(&text, &key_k().sign(text.as_bytes()).unwrap())
            });
        },
        Tampered,
    ),
];

fn weak_signature() -> [u8; 64] {
    let mut signature = [0; 64];
    signature[0] = 1;
    signature
}

#[test]
fn the_pack_with_checkpoints_is_sound() {
    let cards = vec!["mcp_checkpoints".to_owned()];
    let report = check_pack(&sealed(), &VerifyOptions { cards, strict: true, ..pinned() });
    assert_eq!((report.exit(), report.claims), (Exit::Ok, Claims::Pass), "{report:#?}");
    assert_eq!(report.signer.verdict, SignerVerdict::Pinned);
    let stage = report.stage(Stage::VerifyCheckpoints).unwrap();
    assert_eq!(stage.status, StageStatus::Ok);
    assert_eq!((&stage.detail["checkpoints"], &stage.detail["events_by_recorder"]), (&3.into(), &EVENTS_OF_IT.into()));
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[test]
fn every_attack_on_checkpoints_is_found() {
    let mut wrong = Vec::new();
    for (name, mutate, want) in ROWS {
        let mut pack = sealed();
        mutate(&mut pack);
        pack.sign(&key_k());
        let report = check_pack(&pack, &pinned());
        let stage = report.stage(Stage::VerifyCheckpoints).unwrap().status;
        let got = match (report.integrity, stage, report.signer.verdict) {
            (Integrity::Tampered, StageStatus::Fail, SignerVerdict::Pinned) => Some(Tampered),
            (Integrity::Pass, StageStatus::Ok, SignerVerdict::Untrusted) => Some(Untrusted),
            _ => None,
        };
        if got != Some(*want) || report.exit() != Exit::Failed {
            wrong.push(format!("{name}: {stage} {} {:#?}", report.integrity, report.errors));
        }
        // Without a key that was named, the certificate's key is said to be another one.
        if *want == Untrusted {
            let report = check_pack(&pack, &unpinned());
            assert_eq!(report.signer.verdict, SignerVerdict::Unpinned, "{name}");
            assert!(
                report.warnings.iter().any(|w| w.contains(&key_e().fingerprint())),
                "{name}: {:?}",
                report.warnings
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_certificate_s_signature_signs_nothing_else() {
    let mut pack = sealed();
    let line: Value = serde_json::from_str(&pack.lines(CHECKPOINTS)[0]).unwrap();
    let below = signature(line["note"].as_str().unwrap());
    let raw = STANDARD.decode(below.trim_end().rsplit(' ').next().unwrap()).unwrap()[4..].to_vec();
    let mut manifest: Value = serde_json::from_slice(&pack.0[MANIFEST]).unwrap();
    manifest["signature"] = STANDARD.encode(&raw).into();
    let text = pack.text(MANIFEST);
    let old: Value = serde_json::from_str(&text).unwrap();
    pack.set(MANIFEST, text.replace(old["signature"].as_str().unwrap(), manifest["signature"].as_str().unwrap()));
    pack.set(SIGNATURE, raw);
    let report = check_pack(&pack, &pinned());
    assert_eq!(report.stage(Stage::VerifySignature).unwrap().status, StageStatus::Fail, "{:#?}", report.stages);
}

#[test]
fn what_recovery_sealed_is_said_and_makes_nothing_complete() {
    let mut pack = sealed();
    let sealer = late(&pack, key_k);
    let lines = [sealer.certified(Role::Recovery), sealer.checkpoint(EVENTS_OF_IT as u64, &pack.root(EVENTS_OF_IT))];
    with(&mut pack, |all| all.splice(3.., lines).for_each(drop));
    pack.sign(&key_k());
    let cards = vec!["mcp_checkpoints".to_owned()];
    let report = check_pack(&pack, &VerifyOptions { cards, ..pinned() });
    assert_eq!((report.integrity, report.completeness), (Integrity::Pass, Completeness::Incomplete), "{report:#?}");
    assert_eq!(report.completeness_reasons, ["events 40…81 were sealed by recovery"]);
    assert_eq!((report.claims, report.exit()), (Claims::HonestFail, Exit::Violation));
    // Without checkpoints the claim does not hold either; everything else is as it always was.
    let mut pack = sealed();
    pack.0.remove(CHECKPOINTS);
    pack.sign(&key_k());
    let cards = vec!["mcp_checkpoints".to_owned()];
    let report = check_pack(&pack, &VerifyOptions { cards, ..pinned() });
    assert_eq!((report.integrity, report.completeness), (Integrity::Pass, Completeness::Complete));
    assert_eq!((report.claims, report.exit()), (Claims::HonestFail, Exit::Violation));
    let stage = report.stage(Stage::VerifyCheckpoints).unwrap();
    assert_eq!(stage.status, StageStatus::Skipped);
    assert!(stage.reason.as_ref().unwrap().contains("no checkpoints"), "{stage:?}");
}

#[test]
fn checkpoints_of_a_later_version_are_named_and_hide_nothing() {
    for (from, to) in
        [("\"v\":1", "\"v\":2"), ("\"v\":1", "\"v\":\"1.1\""), ("\"kind\":\"key\"", "\"kind\":\"cosigned\"")]
    {
        let mut pack = sealed();
        pack.replace(CHECKPOINTS, from, to);
        if !from.contains('v') {
            pack.replace(CHECKPOINTS, "\"v\":1", "\"v\":2");
        }
        pack.sign(&key_k());
        let report = check_pack(&pack, &pinned());
        assert_eq!((report.integrity, report.exit()), (Integrity::Unsupported, Exit::BadInput), "{to}: {report:#?}");
        let newer = report.errors.iter().find(|e| e.code == "E_VERSION_UNSUPPORTED").unwrap();
        assert_eq!(newer.file.as_deref(), Some(CHECKPOINTS));
        pack.edit(EVENTS, 13, |e| e["wire_bytes"] = 1.into());
        pack.sign(&key_k());
        let report = check_pack(&pack, &pinned());
        assert_eq!((report.integrity, report.exit()), (Integrity::Tampered, Exit::Failed), "{to}");
    }
}
