//! One decision after the other, with kills and damage in between.

use super::{
    chain::{Chain, ChainError},
    store::{Contents, Draft, StoreError, append, content},
};
use crate::{
    model::{
        sha256_hex,
        surface::{Approver, Decision, Facet, Facets, Identity, Pin, State},
    },
    pack::keys::{Signer, SignerId},
    paths::AuditDir,
};
use std::io::Write as _;

fn dir() -> (tempfile::TempDir, AuditDir) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = AuditDir::at(tmp.path().join("audit")).remembered_in(Some(tmp.path().join("home")));
    (tmp, dir)
}

fn signer(n: u8) -> Signer {
    Signer::from_seed(SignerId::parse("alice").unwrap(), &[n; 32])
}

fn server() -> Identity {
    Identity { endpoint: "sha256:e".into(), id: "files".into() }
}

fn digest(n: u8) -> String {
    format!("sha256:{}", sha256_hex(&[n]))
}

fn draft(decision: Decision, hash: u8) -> Draft {
    Draft {
        approver: Approver { auth: "local_user".into(), name: "alice".into(), via: "cli".into() },
        changes: Vec::new(),
        changes_hash: None,
        contexts: Vec::new(),
        decision,
        facets: Facets::default(),
        items: vec![Pin { facet: Facet::Tools, hash: digest(hash), name: "t".into() }],
        reason: None,
        root: None,
        rules_hash: None,
        server: server(),
    }
}

fn decide(dir: &AuditDir, decision: Decision, hash: u8) -> Result<String, StoreError> {
    let contents = Contents::from([(sha256_hex(&[hash]), vec![hash])]);
    append(dir, &contents, |chain| draft(decision, hash).signed(chain, &signer(1))).map(|a| a.approval_id)
}

fn state(dir: &AuditDir, hash: u8) -> State {
    Chain::read(dir).unwrap().in_force(&server(), None).state(Facet::Tools, "t", &digest(hash))
}

fn ledger(dir: &AuditDir) -> String {
    std::fs::read_to_string(dir.ledger()).unwrap()
}

#[test]
fn decisions_are_a_chain_that_the_ledger_names_and_contents_are_kept() {
    let (_tmp, dir) = dir();
    assert!(Chain::read(&dir).unwrap().approvals.is_empty());
    let first = decide(&dir, Decision::Approve, 1).unwrap();
    decide(&dir, Decision::Approve, 2).unwrap();
    let chain = Chain::read(&dir).unwrap();
    assert_eq!((chain.approvals.len(), chain.in_ledger, chain.torn), (2, 2, 0));
    assert_eq!(chain.approvals[1].previous, Some(first));
    assert_eq!(chain.approvals[1].prev_hash, chain.approvals[0].hash);
    assert_eq!(ledger(&dir).matches("\"kind\":\"surface_approval\"").count(), 2);
    assert_eq!(content(&dir, &digest(2)).unwrap(), Some(vec![2]));
    assert_eq!(content(&dir, &digest(3)).unwrap(), None);
    std::fs::write(dir.surface_items().join(format!("{}.json", sha256_hex(&[2]))), [3]).unwrap();
    assert!(content(&dir, &digest(2)).unwrap_err().to_string().contains("was changed"));
    for (hash, expected) in [(1, State::Approved), (2, State::Approved), (3, State::Changed)] {
        assert_eq!(state(&dir, hash), expected, "{hash}");
    }
}

#[test]
fn a_writer_that_died_at_any_byte_left_the_old_or_the_new_decision() {
    let (_tmp, dir) = dir();
    decide(&dir, Decision::Approve, 1).unwrap();
    let (old, old_ledger) = (std::fs::read(dir.approvals()).unwrap(), ledger(&dir));
    decide(&dir, Decision::Block, 1).unwrap();
    let new = std::fs::read(dir.approvals()).unwrap();
    for zeros in [0, 5] {
        for cut in old.len()..=new.len() {
            // Killed in the line, or between it and the ledger.
            std::fs::write(dir.approvals(), [&new[..cut], &vec![0; zeros]].concat()).unwrap();
            std::fs::write(dir.ledger(), &old_ledger).unwrap();
            let is_whole = cut == new.len();
            assert_eq!(state(&dir, 1), if is_whole { State::Blocked } else { State::Approved }, "{cut}");
            if cut % 97 != 0 && !is_whole {
                continue;
            }
            // The next writer goes on, and the ledger catches up.
            decide(&dir, Decision::Approve, 2).unwrap();
            let chain = Chain::read(&dir).unwrap();
            let decisions = 2 + usize::from(is_whole);
            assert_eq!((chain.approvals.len(), chain.in_ledger, chain.torn), (decisions, decisions, 0), "{cut}");
            assert_eq!(state(&dir, 1), if is_whole { State::Blocked } else { State::Approved }, "{cut}");
        }
    }
    let aside = dir.files().names(&dir.surface()).unwrap();
    assert!(aside.iter().any(|n| n.to_string_lossy().starts_with("approvals.jsonl.torn_none_")), "{aside:?}");
}

#[test]
fn damage_is_named_with_its_line_and_nothing_is_decided_on_it() {
    let (_tmp, dir) = dir();
    for (decision, hash) in [(Decision::Approve, 1), (Decision::Approve, 2), (Decision::Block, 2)] {
        decide(&dir, decision, hash).unwrap();
    }
    let good = std::fs::read_to_string(dir.approvals()).unwrap();
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let other = sha256_hex(b"other");
    for (what, damaged, line) in [
        ("a changed hash of an item", good.replacen(&digest(2)[8..], &other, 1), 2),
        ("another decision", good.replacen("\"approve\"", "\"block\"", 1), 1),
        ("a missing line", [lines[0], lines[2]].concat(), 2),
        ("an exchanged line", [lines[1], lines[0], lines[2]].concat(), 1),
        ("a line twice", [lines[0], lines[0], lines[1], lines[2]].concat(), 2),
        ("the last line gone", lines[..2].concat(), 3),
        ("all lines gone", String::new(), 1),
        ("the last line cut", good[..good.len() - 9].to_owned(), 3),
        ("garbage in the middle", [lines[0], "x\n", lines[2]].concat(), 2),
        ("garbage for the last line", [lines[0], lines[1], "x\n"].concat(), 3),
        ("a later version", good.replacen("\"v\":1}", "\"v\":9}", 1), 1),
        ("other space", good.replacen("{\"approval_id\"", "{ \"approval_id\"", 1), 1),
    ] {
        assert_ne!(damaged, good, "{what}");
        std::fs::write(dir.approvals(), &damaged).unwrap();
        let said = Chain::read(&dir).unwrap_err().to_string();
        assert!(said.contains(&format!("approvals.jsonl:{line}: ")), "{what}: {said}");
        assert!(matches!(decide(&dir, Decision::Approve, 1), Err(StoreError::Chain(_))), "{what}");
        assert_eq!(std::fs::read_to_string(dir.approvals()).unwrap(), damaged, "{what}");
    }
    std::fs::write(dir.approvals(), &good).unwrap();
    // Whoever can write there, but has no key, cannot sign: another key's fingerprint does not help.
    let mut forged = Chain::read(&dir).unwrap();
    forged.approvals.truncate(3);
    let mine = draft(Decision::Approve, 9).signed(&forged, &signer(2)).unwrap();
    let mut line = crate::model::to_line(&mine).unwrap();
    line.push(b'\n');
    let text = String::from_utf8(line).unwrap().replace(&signer(2).fingerprint(), &signer(1).fingerprint());
    std::fs::OpenOptions::new().append(true).open(dir.approvals()).unwrap().write_all(text.as_bytes()).unwrap();
    assert!(matches!(Chain::read(&dir), Err(ChainError::Line { line: 4, .. })));
}

#[test]
fn what_does_not_fit_is_a_conflict_and_nothing_is_written() {
    let (_tmp, dir) = dir();
    decide(&dir, Decision::Approve, 1).unwrap();
    let before = (std::fs::read(dir.approvals()).unwrap(), ledger(&dir));
    let refused = append(&dir, &Contents::new(), |_| Err(StoreError::Conflict("it changed".into())));
    assert!(matches!(refused, Err(StoreError::Conflict(_))));
    assert_eq!((std::fs::read(dir.approvals()).unwrap(), ledger(&dir)), before);
}

#[test]
fn twenty_who_decide_at_once_make_one_chain() {
    let (_tmp, dir) = dir();
    std::thread::scope(|s| {
        for n in 0..20 {
            let dir = dir.clone();
            s.spawn(move || decide(&dir, Decision::Approve, n).unwrap());
        }
    });
    let chain = Chain::read(&dir).unwrap();
    assert_eq!((chain.approvals.len(), chain.in_ledger), (20, 20));
}

#[test]
fn only_approvers_open_and_everybody_closes() {
    let (_tmp, dir) = dir();
    let by = |decision, hash, key: u8| {
        append(&dir, &Contents::new(), |chain| draft(decision, hash).signed(chain, &signer(key))).unwrap();
    };
    by(Decision::Approve, 1, 1);
    by(Decision::Approve, 2, 2);
    let trusted = [signer(2).fingerprint()].into();
    let state = |hash| {
        let chain = Chain::read(&dir).unwrap();
        chain.in_force(&server(), Some(&trusted)).state(Facet::Tools, "t", &digest(hash))
    };
    assert_eq!((state(1), state(2)), (State::Changed, State::Approved));
    by(Decision::Block, 2, 1);
    assert_eq!(state(2), State::Blocked);
}
