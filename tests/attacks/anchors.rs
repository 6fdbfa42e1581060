//! Attacks on the anchors of a pack: what is not what witnesses signed of this pack does not count (rows w1 of the attacks on witnesses;
//! w2 is in `src/verify/tlog_policy.rs`, w3 and w4 are in `tests/it/cli_witness.rs` and `src/witness/keep.rs`).

use assay::{
    model::{
        LedgerKind, LedgerLine, SessionId, WallTime,
        checkpoint::text_of,
        ledger::entry,
        pack::{ANCHORS, UNSIGNED},
        sha256_hex, to_line,
    },
    note::{Key, WitnessKey},
    pack::{
        keys::{Signer, SignerId},
        verify::{AnchorOptions, AnchorVerdict, Exit, Integrity, VerifyOptions, proof::of_ledger, tlog_policy::Policy},
    },
    tree::{Frontier, Hash, Nodes, leaf},
};
use assay_support::forge::{MANIFEST, Pack, check_pack, key_e, key_k, pinned, small};

const LOG: &str = "assay/ledger/0123456789abcdef0123456789abcdef";
/// When witnesses signed, in seconds since 1970: before the time at which packs are verified here.
const SIGNED: u64 = 1_773_500_000;

fn witness(n: u8) -> (Signer, WitnessKey) {
    let key = Signer::from_seed(SignerId::parse("w").unwrap(), &[n; 32]);
    let named = WitnessKey::new(&format!("w{n}.example"), key.public()).unwrap();
    (key, named)
}

/// Both of two witnesses are needed.
fn policy() -> Policy {
    let [one, two] = [11, 12].map(|n| witness(n).1);
    Policy::parse(format!("witness a {one}\nwitness b {two}\ngroup g all a b\nquorum g\n").as_bytes()).unwrap()
}

/// A signature: by whom, at what time, what it states of that, and how the text that is signed differs.
struct Cosigned(u8, u64, u64, fn(&str) -> String);

/// An anchor as it is made, before it is attacked.
struct Anchor {
    line: LedgerLine,
    /// What is written of the line, if that is something else.
    written: Option<Vec<u8>>,
    log: Signer,
    cosigned: Vec<Cosigned>,
    more: String,
    proof: fn(String) -> String,
}

fn anchor() -> Anchor {
    let line = LedgerLine {
        anchored: None,
        at: WallTime::from_millis(0),
        complete: Some(true),
        event_count: 9,
        hash: String::new(),
        kind: LedgerKind::PackSealed,
        ledger_seq: 2,
        note: None,
        pack_manifest_sha256: Some(sha256_hex(&small().0[MANIFEST])),
        prev_hash: "0".repeat(64),
        pruned: None,
        renewed: None,
        segment: "segment_x.jsonl".to_owned(),
        segment_hash: "0".repeat(64),
        session_id: Some(small().session()),
        session_key: None,
        tree_root: None,
        v: 4,
    };
    let by = |n| Cosigned(n, SIGNED, SIGNED, str::to_owned);
    Anchor {
        line,
        written: None,
        log: key_k(),
        cosigned: vec![by(11), by(12)],
        more: String::new(),
        proof: |text| text,
    }
}

impl Anchor {
    /// Its file: the line is the third of five.
    fn made(mut self) -> String {
        self.line.seal().unwrap();
        let text = to_line(&self.line).unwrap();
        let leaves: Vec<Hash> = (0..5).map(|n| leaf(&if n == 2 { entry(&text) } else { [n; 32] })).collect();
        let root = leaves.iter().copied().collect::<Frontier>().root();
        let said = text_of(LOG, 5, &root);
        let signed = Key::new(LOG, self.log.public()).unwrap().note(&said, &self.log.sign(said.as_bytes()).unwrap());
        let line = |Cosigned(n, time, stated, text): &Cosigned| {
            let (key, named) = witness(*n);
            named.line(*stated, &key.sign(WitnessKey::message(&text(&said), *time).as_bytes()).unwrap())
        };
        let cosigned: String = self.cosigned.iter().map(line).collect();
        let path = Nodes::of(leaves).inclusion(2).unwrap();
        let note = format!("{signed}{cosigned}{}", self.more);
        (self.proof)(of_ledger(&self.written.unwrap_or(text), 2, path, &note))
    }
}

type Row = (&'static str, fn(&mut Anchor), AnchorVerdict);
use AnchorVerdict::{Anchored, Fork, Invalid, Unanchored};

const ROWS: &[Row] = &[
    ("as it was signed", |_| (), Anchored),
    ("by nobody but the log", |a| a.cosigned.clear(), Unanchored),
    ("by too few", |a| a.cosigned.truncate(1), Unanchored),
    ("by a stranger", |a| a.cosigned[1].0 = 13, Unanchored),
    ("by one witness twice", |a| a.cosigned[1].0 = 11, Invalid),
    ("the time changed", |a| a.cosigned[0].2 -= 1000, Invalid),
    ("time 0", |a| (a.cosigned[0].1, a.cosigned[0].2) = (0, 0), Invalid),
    ("time 2^63", |a| (a.cosigned[0].1, a.cosigned[0].2) = (1 << 63, 1 << 63), Invalid),
    ("a time that is yet to come", |a| (a.cosigned[0].1, a.cosigned[0].2) = (1_900_000_000, 1_900_000_000), Invalid),
    ("of another origin", |a| a.cosigned[0].3 = |text| text.replacen("/ledger/0", "/ledger/1", 1), Invalid),
    ("of another size", |a| a.cosigned[0].3 = |text| text.replacen("\n5\n", "\n6\n", 1), Invalid),
    ("of another root", |a| a.cosigned[0].3 = |text| text.replacen("\n5\n", "\n5\nA", 1), Invalid),
    (
        "a signature without a time",
        |a| {
            let (key, named) = witness(12);
            a.cosigned.pop();
            let plain = Key::new(named.name(), key.public()).unwrap();
            a.more = plain.note("", &key.sign(b"x").unwrap())[1..].to_owned();
        },
        Unanchored,
    ),
    ("a line that is no signature", |a| a.more = "x\n".to_owned(), Invalid),
    (
        "a line that is changed, its hash kept",
        |a| {
            a.line.seal().unwrap();
            let text = String::from_utf8(to_line(&a.line).unwrap()).unwrap();
            a.written = Some(text.replacen("\"event_count\":9", "\"event_count\":8", 1).into_bytes());
        },
        Invalid,
    ),
    (
        "another line",
        |a| {
            let mut other = a.line.clone();
            other.event_count = 8;
            other.seal().unwrap();
            a.written = Some(to_line(&other).unwrap());
        },
        Invalid,
    ),
    (
        "a line of another kind",
        |a| {
            (a.line.kind, a.line.pack_manifest_sha256) = (LedgerKind::SegmentEnd, None);
            a.line.v = a.line.version();
        },
        Invalid,
    ),
    ("another place", |a| a.proof = |text| text.replacen("index 2\n", "index 1\n", 1), Invalid),
    ("cut off", |a| a.proof = |text| text[..text.len() / 2].to_owned(), Invalid),
    ("a space more", |a| a.proof = |text| text.replacen("index 2", "index  2", 1), Invalid),
    ("nothing", |a| a.proof = |_| String::new(), Invalid),
    ("the checkpoint alone", |a| a.proof = |text| text.split_once("\n\n").unwrap().1.to_owned(), Invalid),
    (
        "of another pack and session",
        |a| {
            a.line.pack_manifest_sha256 = Some("0".repeat(64));
            a.line.session_id = Some(SessionId::from_bits(1));
        },
        Invalid,
    ),
    (
        "of another pack of the session, as anybody's ledger has it",
        |a| {
            a.line.pack_manifest_sha256 = Some("0".repeat(64));
            a.log = key_e();
        },
        Invalid,
    ),
    (
        "of another pack of the session, as a ledger of its key has it",
        |a| {
            a.line.pack_manifest_sha256 = Some("0".repeat(64));
        },
        Fork,
    ),
    (
        "the same, signed by nobody who counts",
        |a| {
            a.line.pack_manifest_sha256 = Some("0".repeat(64));
            a.cosigned.clear();
        },
        Unanchored,
    ),
    // Who has it signed does not matter: the witnesses saw the hash.
    ("in a ledger of somebody else", |a| a.log = key_e(), Anchored),
];

fn with(anchors: &[String]) -> Pack {
    let mut pack = small();
    for (n, anchor) in anchors.iter().enumerate() {
        pack.set(&format!("{UNSIGNED}/{ANCHORS}/{n}.tlog-proof"), anchor.as_str());
    }
    pack
}

fn demanding(policy: Option<Policy>) -> VerifyOptions {
    let is_required = policy.is_some();
    VerifyOptions { anchors: AnchorOptions { policy, is_required, ..AnchorOptions::default() }, ..pinned() }
}

#[test]
fn what_witnesses_did_not_sign_of_a_pack_does_not_count_and_takes_nothing_away() {
    let good = anchor().made();
    let mut wrong = Vec::new();
    for (name, change, expected) in ROWS {
        let mut attacked = anchor();
        change(&mut attacked);
        let attacked = attacked.made();
        let report = check_pack(&with(std::slice::from_ref(&attacked)), &demanding(Some(policy())));
        let exit = match expected {
            Anchored => Exit::Ok,
            Fork => Exit::Failed,
            _ => Exit::Violation,
        };
        let found = (report.anchor.verdict, report.exit(), report.integrity);
        if found != (*expected, exit, Integrity::Pass) {
            wrong.push(format!("{name}: {found:?}, {:?}", report.anchor.problems));
        }
        // Nobody is trusted: it counts for nothing, whatever it is.
        let report = check_pack(&with(std::slice::from_ref(&attacked)), &demanding(None));
        assert_eq!((report.anchor.verdict, report.anchor.present), (AnchorVerdict::NotEvaluated, 1), "{name}");
        let beside = check_pack(&with(&[attacked, good.clone()]), &demanding(Some(policy())));
        let both = if *expected == Fork { Fork } else { Anchored };
        assert_eq!(beside.anchor.verdict, both, "{name}: {:?}", beside.anchor.problems);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_earliest_anchor_decides_and_one_that_is_kept_elsewhere_may_be_of_another_pack() {
    let at = |time| {
        let mut one = anchor();
        one.cosigned.iter_mut().for_each(|by| (by.1, by.2) = (time, time));
        one.made()
    };
    let seconds = |time: u64| Some(WallTime::from_millis(time as i64 * 1000));
    let mut options = demanding(Some(policy()));
    let report = check_pack(&with(&[at(SIGNED), at(SIGNED - 50), at(SIGNED + 50)]), &options);
    assert_eq!((report.anchor.not_after, report.anchor.present), (seconds(SIGNED - 50), 3));
    assert_eq!((report.anchor.size, report.anchor.witnesses), (Some(5), vec!["a".to_owned(), "b".to_owned()]));
    for (before, exit) in [(SIGNED - 50, Exit::Violation), (SIGNED - 49, Exit::Ok)] {
        options.anchors.before = seconds(before);
        assert_eq!(check_pack(&with(&[at(SIGNED), at(SIGNED - 50)]), &options).exit(), exit, "{before}");
    }
    options.anchors.before = None;
    let mut other = anchor();
    other.line.pack_manifest_sha256 = Some("0".repeat(64));
    other.line.session_id = Some(SessionId::from_bits(1));
    options.anchors.kept = vec![other.made().into_bytes()];
    assert_eq!(check_pack(&small(), &options).anchor.verdict, Unanchored);
    options.anchors.kept.push(at(SIGNED).into_bytes());
    assert_eq!(check_pack(&small(), &options).anchor.verdict, Anchored);
}
