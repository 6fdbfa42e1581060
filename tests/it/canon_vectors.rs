//! Canonicalization against vectors that others published.

use std::path::{Path, PathBuf};

use assay::canon::{self, canonicalize, is_canonical, sha256_hex};

fn data(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cyberphone").join(part)
}

#[test]
fn the_reference_vectors_of_rfc_8785_come_out_byte_for_byte() {
    let mut seen = 0;
    for entry in std::fs::read_dir(data("input")).unwrap() {
        let input = entry.unwrap().path();
        let output = data("output").join(input.file_name().unwrap());
        let expected = std::fs::read(output).unwrap();
        let text = std::fs::read(&input).unwrap();
        let canonical = canonicalize(&text).unwrap();
        assert_eq!(String::from_utf8_lossy(&canonical), String::from_utf8_lossy(&expected), "{}", input.display());
        assert!(is_canonical(&expected), "{}", input.display());
        assert_eq!(is_canonical(&text), text == expected, "{}", input.display());
        seen += 1;
    }
    assert_eq!(seen, 6);
}

/// The head of the ECMAScript number sequence of the reference implementation: values that broke formatters.
fn hard_numbers() -> Vec<f64> {
    let lines = include_str!("../data/cyberphone/numbers.txt").lines();
    lines.map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap())).collect()
}

/// The sequence of IEEE 754 doubles of the reference implementation: hard cases, 2000 serial ones, then finite and non-zero
/// doubles out of a chain of SHA-256 blocks.
fn es6_numbers() -> impl Iterator<Item = f64> {
    let serial = (0..2000).map(|nth| f64::from_bits(0x0010_0000_0000_0000 + nth));
    let blocks = std::iter::successors(Some(canon::sha256(&[0; 32])), |block| Some(canon::sha256(block)));
    let hashed = blocks.flat_map(|block| {
        let words: [u64; 4] = std::array::from_fn(|nth| u64::from_le_bytes(*block[nth * 8..].first_chunk().unwrap()));
        words.map(f64::from_bits)
    });
    hard_numbers().into_iter().chain(serial).chain(hashed.filter(|value| *value != 0.0 && value.is_finite()))
}

#[test]
fn a_million_ecmascript_numbers_are_spelt_like_the_reference() {
    let mut lines = Vec::with_capacity(50 << 20);
    for (nth, value) in es6_numbers().take(1_000_000).enumerate() {
        let spelt = canonicalize(format!("{value:e}").as_bytes()).unwrap();
        assert!(is_canonical(&spelt), "{value:e}");
        lines.extend_from_slice(format!("{:x},", value.to_bits()).as_bytes());
        lines.extend_from_slice(&spelt);
        lines.push(b'\n');
        let expected = match nth + 1 {
            1_000 => "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
            100_000 => "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
            1_000_000 => "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16",
            _ => continue,
        };
        assert_eq!(sha256_hex(&lines), expected, "the first {} numbers", nth + 1);
    }
}

#[test]
fn serde_floats_are_spelt_like_literals() {
    for value in es6_numbers().take(10_000) {
        assert_eq!(canon::to_vec(&value).unwrap(), canonicalize(format!("{value:e}").as_bytes()).unwrap());
    }
}
