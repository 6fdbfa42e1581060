//! The second verifier against the first: packs, proofs and their notes that are changed at random, and signed anew.

use assay::pack::{
    prove::{What, prove},
    verify::{
        VerifyOptions,
        proof::{Proof, ProofError},
    },
};
use assay_support::{
    forge::{
        CHECKPOINTS, EVENTS, MANIFEST, Pack, RECEIPTS, SESSION, SIGNATURE, Sealer, check_alone, in_ledger, key_e,
        key_k, recorded, unpinned,
    },
    rig::scratch,
    second::{Second, differs},
    sessions::Plan,
};
use serde_json::{Value, json};
use std::{env, fs, path::Path};

/// How many mutants: `ASSAY_MUTANTS`.
fn mutants() -> u64 {
    env::var("ASSAY_MUTANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A small pack with checkpoints.
fn genuine() -> Pack {
    let tools = vec!["t".to_owned(), "u".to_owned()];
    let mut pack = Pack::read(&recorded(&Plan { calls: 4, tools, ..Plan::default() }).1);
    let sealer = Sealer::of(pack.session(), 3, key_k());
    let lines = pack.sealed_at(&sealer, &[1, 9, pack.lines(EVENTS).len()]);
    pack.set_lines(CHECKPOINTS, &lines);
    pack.sign(&key_k());
    pack
}

fn leaves(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(all) if !all.is_empty() => {
            all.iter().for_each(|(name, v)| leaves(v, &format!("{path}/{name}"), out));
        }
        Value::Array(all) if !all.is_empty() => {
            all.iter().enumerate().for_each(|(n, v)| leaves(v, &format!("{path}/{n}"), out));
        }
        // Without it no hash could be made anew.
        _ if path.ends_with("/hash") => {}
        _ => out.push(path.to_owned()),
    }
}

/// One member that is no container, somewhere in a value, set to another value; says which.
fn change_a_member(value: &mut Value, random: &mut Random) -> String {
    let mut all = Vec::new();
    leaves(value, "", &mut all);
    let path = random.of(&all);
    let Some(leaf) = value.pointer_mut(path) else { return format!("{path} has another name") };
    *leaf = another(leaf, random);
    format!("{path} = {leaf}")
}

fn another(old: &Value, random: &mut Random) -> Value {
    let other = match old {
        Value::String(s) if !s.is_empty() && s.is_ascii() => {
            let mut text = s.clone().into_bytes();
            let n = random.below(text.len());
            text[n] = *random.of(b"0129afxzT.:-_ ");
            json!(String::from_utf8(text).unwrap())
        }
        Value::Number(n) => json!(n.as_i64().unwrap_or(0) + *random.of(&[-1, 1, 1000])),
        Value::Bool(b) => json!(!b),
        _ => json!(1),
    };
    let word = random.of(&[
        "",
        "x",
        "denied",
        "timeout",
        "server_to_client",
        "2026-03-15T11:30:00.000Z",
        "\u{1b}[2J",
        "\u{202e}",
    ]);
    let fixed = [
        Value::Null,
        json!(0),
        json!(true),
        json!([]),
        json!({}),
        json!(9_007_199_254_740_991_u64),
        json!(1.5),
        json!(word),
    ];
    if random.below(3) == 0 { random.of(&fixed).clone() } else { other }
}

/// Changes bytes, lines or members; says what it did.
fn mutate(pack: &mut Pack, random: &mut Random) -> String {
    let names: Vec<String> = pack.0.keys().cloned().collect();
    let by_line = [EVENTS, RECEIPTS, SESSION, CHECKPOINTS];
    let kind = random.below(10);
    let name = if kind < 3 { random.of(&names).clone() } else { (*random.of(&by_line)).to_owned() };
    let said = match kind {
        0..=2 => {
            let file = pack.file(&name);
            let at = random.below(file.len());
            match kind {
                0 => file[at] ^= 1 << random.below(8),
                1 => drop(file.remove(at)),
                _ => file.insert(at, *random.of(b"\n 0\"}\x00\xff")),
            }
            format!("byte {at} of {name}")
        }
        3 | 4 => {
            let mut lines = pack.lines(&name);
            let (a, b) = (random.below(lines.len()), random.below(lines.len()));
            match random.below(3) {
                0 => lines.swap(a, b),
                1 => drop(lines.remove(a)),
                _ => lines.insert(a, lines[b].clone()),
            }
            pack.set_lines(&name, &lines);
            format!("lines {a} and {b} of {name}")
        }
        _ => {
            let line = random.below(pack.lines(&name).len());
            let mut what = String::new();
            pack.edit(&name, line, |value| what = change_a_member(value, random));
            // Nobody has the session's key: who makes hashes anew must leave the checkpoints out.
            if kind > 6 {
                pack.0.remove(CHECKPOINTS);
                pack.make_consistent();
            }
            format!("{name}:{line} {what}")
        }
    };
    // What is no manifest any more cannot be signed.
    if ![MANIFEST, SIGNATURE].contains(&&*name) && random.below(5) > 0 {
        pack.sign(&key_e());
    }
    said
}

#[test]
fn mutants_of_packs_get_the_same_verdicts_from_both() {
    let seed = env::var("ASSAY_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (tmp, pack, mut second) = (scratch(), genuine(), Second::start());
    let dir = tmp.path().join("p");
    let named = VerifyOptions { signers: vec![key_e().fingerprint()], ..unpinned() };
    let (mut wrong, mut passed) = (Vec::new(), 0);
    for n in 0..mutants() {
        let mut random = Random(seed + n);
        let mut mutant = pack.clone();
        let what = if n == 0 { "nothing".to_owned() } else { mutate(&mut mutant, &mut random) };
        let _ = fs::remove_dir_all(&dir);
        mutant.write(&dir);
        let options = if random.below(2) == 0 { unpinned() } else { named.clone() };
        let report = check_alone(&dir, &options);
        passed += u64::from(report.authentic());
        if let Some(how) = differs(&report, &second.verify(&dir, &options.signers)) {
            wrong.push(format!("mutant {}, {what}:\n{how}", seed + n));
        }
    }
    assert!(passed > 0, "nothing was authentic");
    assert!(wrong.is_empty(), "{} differences\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
}

/// What the first verifier says of a proof, in the words of the second.
fn judged(bytes: &[u8], signers: &[String]) -> (&'static str, Value) {
    match Proof::parse(bytes).and_then(|p| p.verify(signers)) {
        Ok(proven) => ("PROVEN", json!(proven.signer_verdict)),
        Err(ProofError::TooNew(_)) => ("UNSUPPORTED", Value::Null),
        Err(_) => ("REFUSED", Value::Null),
    }
}

#[test]
fn mutants_of_proofs_get_the_same_verdicts_from_both() {
    let (tmp, pack, mut second) = (scratch(), genuine(), Second::start());
    let (dir, file) = (tmp.path().join("p"), tmp.path().join("a.tlog-proof"));
    pack.write(&dir);
    let first = prove(&dir, What::Event(7)).unwrap();
    let sealer = Sealer::of(pack.session(), 3, key_k());
    // One of each version.
    let second_of = in_ledger(first.clone(), &pack, &sealer, |_| {}, "example.com/mcp", &key_k());
    let goods = [first, second_of];
    let mut compare = |bytes: &[u8], signers: &[String], file: &Path| {
        fs::write(file, bytes).unwrap();
        let said = second.verify(file, signers);
        let first = judged(bytes, signers);
        assert_eq!(
            first,
            (said["verdict"].as_str().unwrap(), said["signer_verdict"].clone()),
            "{said}\n{}",
            String::from_utf8_lossy(bytes)
        );
        first.0
    };
    for good in &goods {
        for signers in [vec![], vec![key_k().fingerprint()], vec![key_e().fingerprint()]] {
            assert_eq!(compare(good.to_string().as_bytes(), &signers, &file), "PROVEN");
        }
    }
    let mut random = Random(7);
    for n in 0..mutants() {
        let mut proof = goods[(n % 2) as usize].clone();
        // What the ledger's line is proven by is within the extra data, in a form of its own.
        match proof.extra.ledger.take() {
            Some(text) if random.below(2) == 0 => {
                proof.extra.ledger = Some(String::from_utf8_lossy(&mutant_of(&text, &mut random)).into_owned());
                compare(proof.to_string().as_bytes(), &[], &file);
            }
            ledger => {
                proof.extra.ledger = ledger;
                compare(&mutant_of(&proof.to_string(), &mut random), &[], &file);
            }
        }
    }
}

/// A proof with another byte, or with a line elsewhere.
fn mutant_of(good: &str, random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_owned().into_bytes();
    let at = random.below(bytes.len());
    match random.below(4) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, *random.of(b"\n =A/+")),
        _ => {
            let mut lines: Vec<&str> = good.split_inclusive('\n').collect();
            let (a, b) = (random.below(lines.len()), random.below(lines.len()));
            if random.below(2) == 0 {
                lines.swap(a, b)
            } else {
                lines.insert(a, lines[b])
            }
            bytes = lines.concat().into_bytes();
        }
    }
    bytes
}
