//! A bit of every byte of every file, and a byte inserted or deleted everywhere. `ASSAY_BITS=all`: every bit, and both.

use assay::{model::sha256_hex, pack::verify::Exit};
use assay_support::{
    forge::{Pack, check, check_alone, pinned, small},
    rig::scratch,
};
use std::{fs, path::Path};

fn is_all() -> bool {
    std::env::var("ASSAY_BITS").is_ok_and(|bits| bits == "all")
}

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
        // Up to two hundred thousand: the second verifier sees some.
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
fn a_bit_flipped_in_any_byte_of_any_file_is_never_a_pass() {
    let pack = small();
    let per_byte = if is_all() { 8 } else { 1 };
    let mutants: usize = pack.0.values().map(|f| f.len() * per_byte).sum();
    let names: Vec<&String> = pack.0.keys().collect();
    let (left, right) = names.split_at(names.len() / 2);
    let flip = |good: &[u8], n: usize| {
        let mut bad = good.to_vec();
        // Where one bit of each byte is flipped, it is another from byte to byte.
        bad[n / per_byte] ^= 1 << ((n / per_byte * 2 + n) % 8);
        Some(bad)
    };
    let run = |names: &[&String]| -> usize {
        names.iter().map(|name| never_passes(&pack, name, pack.0[*name].len() * per_byte, flip)).sum()
    };
    let tried = std::thread::scope(|s| {
        let other = s.spawn(|| run(left));
        run(right) + other.join().unwrap()
    });
    assert_eq!(tried, mutants);
}

#[test]
fn a_byte_inserted_or_deleted_anywhere_is_never_a_pass() {
    let pack = small();
    for (name, good) in &pack.0 {
        never_passes(&pack, name, good.len() + 1, |good, n| {
            (is_all() || n % 2 == 0).then_some(())?;
            let mut bad = good.to_vec();
            bad.insert(n, [b' ', b'\n', b'0', 0][n / 2 % 4]);
            Some(bad)
        });
        never_passes(&pack, name, good.len(), |good, n| {
            (is_all() || n % 2 == 1).then_some(())?;
            let mut bad = good.to_vec();
            bad.remove(n);
            // Deleting one of two equal neighbours is the same mutant.
            (sha256_hex(&bad) != sha256_hex(good)).then_some(bad)
        });
    }
}
