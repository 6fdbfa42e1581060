//! What recovery reads may be damaged in any way: it is named and left, or what is signed holds.

use assay::pack::verify::{self, Integrity, VerifyOptions};
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, call, files, rig, until},
};
use serde_json::Value;
use std::{
    fs,
    ops::ControlFlow,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Output, Stdio},
};

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    /// A place in a file: of a capture mostly one that holds something.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let at = if self.roll(2) == 0 { self.roll(bytes.len().min(7 << 10)) } else { self.roll(bytes.len()) };
        (at..bytes.len()).find(|at| bytes[*at] != 0).unwrap_or(at)
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) -> &'static str {
        let at = self.place(bytes);
        let len = (1 + self.roll(200)).min(bytes.len().saturating_sub(at));
        let piece = bytes[at..at + len].to_vec();
        match self.roll(7) {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.roll(8);
                }
                "a bit"
            }
            2 => {
                let new = self.roll(256) as u8;
                bytes[at..at + len].fill(new);
                "bytes"
            }
            3 => {
                bytes.truncate(at);
                "cut"
            }
            4 => {
                bytes.splice(at..at, piece);
                "twice"
            }
            5 => {
                bytes.drain(at..at + len);
                "taken out"
            }
            _ => {
                let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
                let (a, b) = (self.roll(lines.len()), self.roll(lines.len()));
                if a < lines.len() && b < lines.len() {
                    lines.swap(a, b);
                }
                *bytes = lines.concat();
                "swapped"
            }
        }
    }
}

/// Recovery, which must end.
fn recover(rig: &Rig) -> Output {
    let mut command = rig.program(&["recover", "--json", "--audit-dir", "audit"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("recovery to end", || child.try_wait().unwrap());
    child.wait_with_output().unwrap()
}

fn packs_hold(rig: &Rig, what: &str) {
    for pack in files(&rig.audit.join("packs"), |_| true) {
        let report = verify::verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.integrity, Integrity::Pass, "{what}: {:?}", report.errors);
    }
}

const POLICY: &str = "version: \"1\"\ndefault: deny\nallowlist: [echo, big, hang]\n";

/// A session that was killed with a call in flight, and, where `spooled`, in the middle of a message that is spooled.
fn dead(flags: &[&str], spooled: bool) -> Rig {
    let rig = rig!();
    fs::write(rig.root.join("policy.yaml"), POLICY).unwrap();
    // Captures of 4 MiB, of which a message that takes more than a quarter is spooled.
    let small: &[&str] = if spooled { &["prlimit", "--fsize=5000000"] } else { &[] };
    let mut client = Client::start(rig.wrapped(small, flags, ""));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=4).map(|i| call(i, "echo", i))));
    rig.await_events(9);
    client.send(&call(9, "hang", 9));
    if spooled {
        let half = call(10, "echo", 10).replace("\"n\":10", &format!("\"n\":\"{}", "x".repeat(3 << 20)));
        use std::io::Write as _;
        client.stdin.as_mut().unwrap().write_all(&half.as_bytes()[..2 << 20]).unwrap();
        until("a spool", || spools(&rig).iter().any(|s| s.metadata().is_ok_and(|m| m.len() > 1 << 19)).then_some(()));
    }
    client.kill();
    rig.await_silence();
    rig
}

fn spools(rig: &Rig) -> Vec<PathBuf> {
    let dirs = [rig.audit.clone(), rig.root.join("run")];
    let all = dirs.iter().flat_map(|dir| check::tree(dir).into_keys());
    all.filter(|path| path.extension().is_some_and(|e| e == "spool")).collect()
}

/// `ASSAY_DAMAGES` says how many times something is damaged (default 60), `ASSAY_SEED` with what dice.
#[test]
fn damaged_evidence_is_named_and_left_or_what_is_signed_holds() {
    damaged(&dead(&["--store-args", "--store-results"], false), 6);
}

#[test]
fn damaged_evidence_of_a_guard_is_named_and_left_or_what_is_signed_holds() {
    damaged(&dead(&["--profile", "guard", "--policy", "policy.yaml"], false), 6);
}

#[test]
fn damaged_evidence_with_a_spool_is_named_and_left_or_what_is_signed_holds() {
    let rig = dead(&[], true);
    assert_eq!(spools(&rig).len(), 1);
    damaged(&rig, 6);
}

fn damaged(rig: &Rig, least: usize) {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let rounds = number("ASSAY_DAMAGES", 60);
    let mut dice = Dice(number("ASSAY_SEED", 1));
    let dirs = [rig.audit.clone(), rig.root.join("home"), rig.root.join("run")];
    let all = || dirs.iter().flat_map(|dir| check::tree(dir).into_keys()).collect::<Vec<PathBuf>>();
    let saved: Vec<(PathBuf, Vec<u8>)> =
        all().into_iter().filter(|p| p.is_file()).map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    let targets: Vec<usize> = (0..saved.len())
        .filter(|n| {
            let name = saved[*n].0.file_name().unwrap().to_str().unwrap();
            let known = name.ends_with(".jsonl")
                || name.ends_with(".ring")
                || name.ends_with(".json")
                || name.ends_with(".spool");
            known && !saved[*n].0.starts_with(&dirs[1])
        })
        .collect();
    assert!(
        targets.len() >= least,
        "segment, receipts, payloads or decisions, ledger, card, captures: {}",
        targets.len()
    );
    let (mut named, mut signed) = (0, 0);
    for round in 0..rounds {
        for path in all().into_iter().filter(|p| p.symlink_metadata().is_ok_and(|m| !m.is_dir())) {
            fs::remove_file(path).unwrap();
        }
        for pack in files(&rig.audit.join("packs"), |_| true) {
            fs::remove_dir_all(pack).unwrap();
        }
        for (path, bytes) in &saved {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let (path, bytes) = &saved[targets[dice.roll(targets.len())]];
        let mut bytes = bytes.clone();
        let how = dice.damage(&mut bytes);
        fs::write(path, bytes).unwrap();
        let what = format!("round {round}: {how} of {}", path.display());
        let out = recover(rig);
        packs_hold(rig, &what);
        let again = recover(rig);
        packs_hold(rig, &what);
        assert_eq!(out.status.code(), again.status.code(), "{what}: {out:?}, then {again:?}");
        let document: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{what}: {out:?}"));
        match out.status.code() {
            Some(0) => signed += 1,
            Some(2) => {
                named += 1;
                let said = document["sessions"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|s| s["error"].is_string() || s["problems"].as_array().is_some_and(|p| !p.is_empty()));
                assert!(said || document["rolled_back"].is_string(), "{what}: {document}");
            }
            other => panic!("{what}: {other:?} {out:?}"),
        }
    }
    println!("{rounds} times damaged: {named} named, {signed} signed and sound");
    assert!(named > 0 && signed > 0);
}
