//! The order of member names: by UTF-16 code units of their decoded text (RFC 8785 §3.2.3).

use std::cmp::Ordering;

use super::run::HIGH;
use super::string::{Escape, Unit};

/// Moves U+E000…U+FFFF, whose UTF-8 starts with 0xEE or 0xEF, after the supplementary planes: then the order of bytes
/// is the order of UTF-16 code units.
#[inline]
const fn weight(byte: u8) -> u8 {
    if byte & 0xFE == 0xEE { byte | 0x10 } else { byte }
}

/// Compares two decoded names, in UTF-8, by their UTF-16 code units (RFC 8785 §3.2.3).
#[inline]
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((&x, &y)) => weight(x).cmp(&weight(y)),
        None => a.len().cmp(&b.len()),
    }
}

/// The first eight bytes of a decoded name as a number that sorts like the name; equal prefixes decide nothing.
#[inline]
pub(super) fn prefix(decoded: &[u8]) -> u64 {
    let mut head = [0u8; 8];
    if let Some(full) = decoded.first_chunk::<8>() {
        head = *full;
    } else {
        head[..decoded.len()].copy_from_slice(decoded);
    }
    if u64::from_ne_bytes(head) & HIGH != 0 {
        head = head.map(weight);
    }
    u64::from_be_bytes(head)
}

/// [`prefix`] of the name whose raw string is at `raw`, without decoding the rest of it.
#[inline]
pub(super) fn prefix_at(bytes: &[u8], raw: std::ops::Range<usize>, escaped: bool) -> u64 {
    if escaped { prefix_decoded(bytes, raw.start) } else { prefix(&bytes[raw.start + 1..raw.end - 1]) }
}

fn prefix_decoded(bytes: &[u8], start: usize) -> u64 {
    let mut head = [0u8; 12];
    let mut filled = 0;
    let mut units = Units { bytes, at: start + 1 };
    while filled < 8
        && let Some(unit) = units.next()
    {
        // A name with half a surrogate is never sorted for output; any fixed weight will do to find duplicates.
        let decoded = char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER);
        filled += decoded.encode_utf8(&mut head[filled..]).len();
    }
    prefix(&head[..filled.min(8)])
}

/// Compares the names whose raw strings start at `a` and `b`, whatever their length, without memory of its own.
pub(super) fn compare_at(bytes: &[u8], a: usize, b: usize) -> Ordering {
    let order = |unit: u32| {
        if (0xE000..0x1_0000).contains(&unit) { unit | 0x40_0000 } else { unit }
    };
    Units { bytes, at: a + 1 }.map(order).cmp(Units { bytes, at: b + 1 }.map(order))
}

/// The code points of a string; surrogate halves are themselves, bytes that are not UTF-8 sort after all of Unicode.
struct Units<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Units<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let first = *self.bytes.get(self.at)?;
        if first == b'"' {
            return None;
        }
        if first == b'\\' {
            let escape = Escape::read(self.bytes, self.at).ok()?;
            self.at = escape.end;
            return Some(match escape.unit {
                Unit::Char(decoded) => decoded as u32,
                Unit::Surrogate(half) => u32::from(half),
            });
        }
        let length = match first {
            0..0x80 => {
                self.at += 1;
                return Some(u32::from(first));
            }
            0xC0..0xE0 => 2,
            0xE0..0xF0 => 3,
            _ => 4,
        };
        let decoded = self.bytes.get(self.at..self.at + length).and_then(|raw| std::str::from_utf8(raw).ok());
        if let Some(decoded) = decoded.and_then(|text| text.chars().next()) {
            self.at += length;
            return Some(decoded as u32);
        }
        self.at += 1;
        Some(0x20_0000 | u32::from(first))
    }
}
