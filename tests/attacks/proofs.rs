//! Attacks on a proof of one call: each change of it is refused.

use super::checkpoints::{recorder, sealed};
use assay::{
    model::{LedgerKind, LedgerLine, ReceiptId, event::hash_of_line},
    pack::{
        keys::Signer,
        prove::{ProveError, What, prove},
        verify::{
            Integrity, SignerVerdict,
            proof::{Proof, ProofError, Proven},
        },
    },
    tree::MAX_PROOF,
};
use assay_support::{
    forge::{EVENTS, Pack, RECEIPTS, canonical, in_ledger, key_e, key_k, other},
    rig::scratch,
};
use serde_json::Value;
use std::sync::LazyLock;

/// The event that closes the call which is proven, and its receipt.
const EVENT: u64 = 16;

fn of(pack: &Pack, what: What) -> Result<Proof, ProveError> {
    let tmp = scratch();
    let dir = tmp.path().join("p");
    pack.write(&dir);
    prove(&dir, what)
}

fn receipt(pack: &Pack, n: usize) -> ReceiptId {
    let receipt: Value = serde_json::from_str(&pack.lines(RECEIPTS)[n]).unwrap();
    ReceiptId::parse(receipt["receipt_id"].as_str().unwrap()).unwrap()
}

fn proven() -> Proof {
    static P: LazyLock<Proof> = LazyLock::new(|| of(&sealed(), What::Receipt(receipt(&sealed(), 4))).unwrap());
    P.clone()
}

fn verified(proof: &Proof) -> Result<Proven, ProofError> {
    let text = proof.to_string();
    let proven = Proof::parse(text.as_bytes()).and_then(|read| read.verify(&[key_k().fingerprint()]));
    let tmp = scratch();
    let file = tmp.path().join("f");
    std::fs::write(&file, text).unwrap();
    let args = ["verify-proof", file.to_str().unwrap(), "--signer", &key_k().fingerprint()];
    let (code, said) = crate::by_assay_verify(&args);
    let expected = match &proven {
        Ok(proven) => (if proven.signer_verdict == SignerVerdict::Pinned { 0 } else { 2 }, Some(proven.event_seq)),
        Err(e) => (if e.is_refusal() { 2 } else { 3 }, None),
    };
    assert_eq!((code, said["event_seq"].as_u64()), expected, "{said}");
    proven
}

fn event(p: &mut Proof, f: impl FnOnce(&mut Value)) {
    let mut event: Value = serde_json::from_str(&p.extra.event).unwrap();
    f(&mut event);
    p.extra.event = canonical(&event);
}

type Row = (&'static str, fn(&mut Proof));

const ROWS: &[Row] = &[
    ("a path that is one hash longer", |p| p.path.push([1; 32])),
    ("a path that is one hash shorter", |p| p.path.truncate(p.path.len() - 1)),
    ("a path without hashes", |p| p.path.clear()),
    ("63 hashes", |p| p.path.resize(MAX_PROOF, [1; 32])),
    ("another hash", |p| p.path[0][0] ^= 1),
    ("hashes in another order", |p| p.path.swap(0, 1)),
    ("another place", |p| p.index += 1),
    ("a place behind the end", |p| p.index = 82),
    ("another event in the place", |p| p.extra.event = sealed().lines(EVENTS)[20].clone()),
    ("an event that is changed, its hash kept", |p| event(p, |e| e["wire_bytes"] = 1.into())),
    ("an event that is changed, its hash recomputed", |p| {
        event(p, |e| e["wire_bytes"] = 1.into());
        let hash = hash_of_line(p.extra.event.as_bytes()).unwrap();
        event(p, |e| e["hash"] = hash.into());
    }),
    ("an event with a space", |p| p.extra.event = p.extra.event.replacen("\":", "\": ", 1)),
    ("no event", |p| p.extra.event = "{}".to_owned()),
    ("the receipt of another call", |p| p.extra.receipt = Some(sealed().lines(RECEIPTS)[5].clone())),
    ("a receipt that is changed", |p| {
        p.extra.receipt = p.extra.receipt.take().map(|r| r.replacen("\"seq\":4", "\"seq\":5", 1))
    }),
    ("a receipt of an event that binds none", |p| {
        let receipt = p.extra.receipt.take();
        *p = of(&sealed(), What::Event(EVENT - 1)).unwrap();
        p.extra.receipt = receipt;
    }),
    ("the key of another session", |p| {
        p.extra.key = recorder(other().session()).certified(assay::model::checkpoint::Role::Recorder);
    }),
    ("no key", |p| p.extra.key = sealed().lines("checkpoints.jsonl")[1].clone()),
    ("a checkpoint of another size", |p| p.note = note(2)),
    ("a checkpoint that does not cover it", |p| p.note = note(1)),
    ("a checkpoint of another session", |p| {
        let other = other();
        let line = recorder(other.session()).checkpoint(82, &other.root(82));
        p.note = serde_json::from_str::<Value>(&line).unwrap()["note"].as_str().unwrap().to_owned();
    }),
    ("a checkpoint with another root", |p| p.note = p.note.replacen("\n82\n", "\n81\n", 1)),
];

/// The proof with the ledger's line about the end of the session after these changes; `log` signs.
fn with_ledger(change: impl FnOnce(&mut LedgerLine), log: &str, signer: &Signer) -> Proof {
    in_ledger(proven(), &sealed(), &recorder(sealed().session()), change, log, signer)
}

const LOG: &str = "assay/ledger/0123456789abcdef0123456789abcdef";

#[test]
fn a_proof_says_where_its_session_stands_in_the_ledger_and_no_other_line_is_taken_for_that() {
    let good = |log: &str| verified(&with_ledger(|_| {}, log, &key_k())).map(|proven| proven.ledger.unwrap());
    for log in [LOG, "example.com/mcp"] {
        let ledger = good(log).unwrap();
        assert_eq!((ledger.origin.as_str(), ledger.ledger_seq, ledger.lines), (log, 2, 5));
    }
    let changes: [fn(&mut LedgerLine); 9] = [
        |l| l.event_count = 81,
        |l| l.kind = LedgerKind::SegmentCheckpoint,
        |l| l.session_id = Some(other().session()),
        |l| l.session_key = Some("0".repeat(64)),
        |l| l.tree_root = Some("0".repeat(64)),
        |l| (l.session_key, l.tree_root, l.v) = (None, None, 1),
        |l| l.ledger_seq = 3,
        |l| l.v = 3,
        |l| l.note = Some("x".repeat(70_000)),
    ];
    let mut wrong: Vec<Proof> = changes.into_iter().map(|change| with_ledger(change, LOG, &key_k())).collect();
    wrong.push(with_ledger(|_| {}, LOG, &key_e()));
    wrong.extend(
        ["assay/session/mcp_0123456789abcdef", "assay/signer/owner"].map(|log| with_ledger(|_| {}, log, &key_k())),
    );
    for (from, to) in [("\n5\n", "\n6\n"), ("index 2", "index 1"), ("index 2\n", "index 2\n\n")] {
        let mut proof = with_ledger(|_| {}, LOG, &key_k());
        proof.extra.ledger = proof.extra.ledger.map(|text| text.replacen(from, to, 1));
        wrong.push(proof);
    }
    for proof in wrong {
        let said = verified(&proof);
        assert!(said.is_err(), "{:?}: {said:?}", proof.extra.ledger);
    }
    // It must be of the whole session.
    let mut proof = with_ledger(|l| l.event_count = 82, LOG, &key_k());
    proof.note = note(2);
    assert!(verified(&proof).is_err());
}

/// The note of a checkpoint of the session, by its line.
fn note(line: usize) -> String {
    let line: Value = serde_json::from_str(&sealed().lines("checkpoints.jsonl")[line]).unwrap();
    line["note"].as_str().unwrap().to_owned()
}

#[test]
fn a_call_is_proven_without_its_session() {
    let pack = sealed();
    let p = verified(&proven()).unwrap();
    assert_eq!((p.session_id, p.event_seq, p.events), (pack.session(), EVENT, 82));
    assert_eq!((p.signer_verdict, p.stated_by), (SignerVerdict::Pinned, "recorder"));
    assert_eq!((p.receipt_id, p.receipt_line.as_ref()), (Some(receipt(&pack, 4)), Some(&pack.lines(RECEIPTS)[4])));
    assert_eq!(p.event_line, pack.lines(EVENTS)[EVENT as usize]);
    // Every event can be proven, and nothing of its receipt is disclosed.
    for n in 0..82 {
        let proof = of(&pack, What::Event(n)).unwrap();
        let p = verified(&proof).unwrap();
        assert_eq!((p.event_seq, &p.event_line, p.receipt_line), (n, &pack.lines(EVENTS)[n as usize], None));
    }
    let unnamed = Proof::parse(proven().to_string().as_bytes()).unwrap();
    assert_eq!(unnamed.clone().verify(&[]).unwrap().signer_verdict, SignerVerdict::Unpinned);
    let untrusted = unnamed.verify(&[key_e().fingerprint()]).unwrap();
    assert_eq!((untrusted.signer_verdict, untrusted.signer), (SignerVerdict::Untrusted, key_k().fingerprint()));
}

#[test]
fn every_attack_on_a_proof_is_refused() {
    let mut wrong = Vec::new();
    for (name, change) in ROWS {
        let mut proof = proven();
        change(&mut proof);
        match verified(&proof) {
            Err(ProofError::Refused(_)) => {}
            other => wrong.push(format!("{name}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_proof_has_one_form() {
    let text = proven().to_string();
    let index = format!("\nindex {EVENT}\n");
    assert!(text.contains(&index));
    let with = |from: &str, to: &str| text.replacen(from, to, 1);
    for bad in [
        String::new(),
        with("@v1", "@v2"),
        with(&index, "\nindex 016\n"),
        with(&index, "\nindex -1\n"),
        with(&index, "\nindex +16\n"),
        with(&index, "\n"),
        with("\nextra ", "\nother "),
        with("\n\n", "\n"),
        with("\n\n", "\n\n\n"),
        with("\n", "\r\n"),
        with(&index, &format!("{index}{}", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n".repeat(64))),
        with(&index, &format!("{index}AAAA\n")),
        format!("\u{feff}{text}"),
    ] {
        let read = Proof::parse(bad.as_bytes()).and_then(|p| p.verify(&[]));
        assert!(read.is_err(), "{}", &bad[..bad.len().min(200)]);
    }
    // Every flipped bit of it is refused, or of somebody else's signature.
    let bytes = text.clone().into_bytes();
    for at in (0..bytes.len()).step_by(3) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        let read = Proof::parse(&changed).and_then(|p| p.verify(&[key_k().fingerprint()]));
        assert!(read.is_err(), "byte {at}: {read:?}");
    }
    let later = |from: &str, to: &str| {
        let extra = serde_json::to_string(&proven().extra).unwrap();
        assert!(extra.contains(from));
        let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        Proof::parse(with(&encode(&extra), &encode(&extra.replacen(from, to, 1))).as_bytes())
    };
    assert!(matches!(later("],\"v\":1}", "],\"v\":3}"), Err(ProofError::TooNew(_))));
    assert!(matches!(later("],\"v\":1}", "],\"v\":2}"), Err(ProofError::Form(_))), "it has no more than version 1");
    for (from, to) in
        [("\"reveal\":[]", "\"reveal\":[{}]"), ("\"ledger\":null", "\"ledger\":\"x\""), ("],\"v\"", "], \"v\"")]
    {
        assert!(matches!(later(from, to), Err(ProofError::Form(_))), "{to}");
    }
}

#[test]
fn nothing_is_proven_from_a_pack_that_does_not_hold_or_says_too_little() {
    let mut pack = sealed();
    assert!(matches!(of(&pack, What::Event(82)), Err(ProveError::NoEvent(82))));
    let start = receipt(&pack, 0);
    assert!(matches!(of(&pack, What::Receipt(start)), Err(ProveError::NoReceipt(id)) if id == start));
    pack.edit(EVENTS, 3, |e| e["wire_bytes"] = 1.into());
    assert!(matches!(of(&pack, What::Event(1)), Err(ProveError::NotSound(Integrity::Tampered))));
    assert!(matches!(of(&other(), What::Event(1)), Err(ProveError::NoCheckpoints)));
}
