//! Every bit of every file, and every byte inserted or deleted.

use assay::{model::sha256_hex, pack::verify::Exit};
use assay_support::{
    forge::{Pack, check, check_alone, pinned, small},
    rig::scratch,
};
use std::{fs, path::Path};

/// Verifies `mutants` variants of one file beside the unchanged others; none may pass.
fn never_passes(pack: &Pack, name: &str, mutants: usize, mutant: impl Fn(&[u8], usize) -> Option<Vec<u8>>) -> usize {
    let tmp = scratch();
    let dir = tmp.path();
    pack.write(dir);
    let (good, at, options) = (&pack.0[name], dir.join(name), pinned());
    let mut tried = 0;
    for n in 0..mutants {
        let Some(bad) = mutant(good, n) else { continue };
        fs::write(&at, &bad).unwrap();
        // Two hundred thousand of them: the second verifier sees some.
        let report = if n % 1009 == 0 { check(dir, &options) } else { check_alone(dir, &options) };
        assert_eq!(report.exit(), Exit::Failed, "{name}, mutant {n}: {report:#?}");
        assert!(!report.authentic() && !report.errors.is_empty(), "{name}, mutant {n}");
        tried += 1;
    }
    restored(&at, good, dir);
    tried
}

/// That it was the mutation, and nothing else, that was refused.
fn restored(at: &Path, good: &[u8], dir: &Path) {
    fs::write(at, good).unwrap();
    let report = check(dir, &pinned());
    assert_eq!(report.exit(), Exit::Ok, "{:#?}", report.errors);
}

#[test]
fn every_single_bit_of_every_file_flipped_is_never_a_pass() {
    let pack = small();
    let bits: usize = pack.0.values().map(|f| f.len() * 8).sum();
    let names: Vec<&String> = pack.0.keys().collect();
    let (left, right) = names.split_at(names.len() / 2);
    let flip = |good: &[u8], n: usize| {
        let mut bad = good.to_vec();
        bad[n / 8] ^= 1 << (n % 8);
        Some(bad)
    };
    let run = |names: &[&String]| -> usize {
        names.iter().map(|name| never_passes(&pack, name, pack.0[*name].len() * 8, flip)).sum()
    };
    let tried = std::thread::scope(|s| {
        let other = s.spawn(|| run(left));
        run(right) + other.join().unwrap()
    });
    assert_eq!(tried, bits);
}

#[test]
fn a_byte_inserted_or_deleted_anywhere_is_never_a_pass() {
    let pack = small();
    for (name, good) in &pack.0 {
        never_passes(&pack, name, good.len() + 1, |good, n| {
            let mut bad = good.to_vec();
            bad.insert(n, [b' ', b'\n', b'0', 0][n % 4]);
            Some(bad)
        });
        never_passes(&pack, name, good.len(), |good, n| {
            let mut bad = good.to_vec();
            bad.remove(n);
            // Deleting one of two equal neighbours is the same mutant.
            (sha256_hex(&bad) != sha256_hex(good)).then_some(bad)
        });
    }
}
