//! Strings: RFC 8259 §7 on the way in, RFC 8785 §3.2.2.2 on the way out, and the order of RFC 8785 §3.2.3 between them.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::error::{Anomalies, ScanError, ScanErrorKind};

/// Longest run handled at once: small enough to still be in the cache when it is copied or hashed after it was looked at.
const RUN: usize = 64 * 1024;

/// Bytes from some position on that need no escape.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Where the run ends: at a quote, a backslash, a control byte, the end of input, or after [`RUN`] bytes.
    pub end: usize,
    /// Whether it is all ASCII.
    pub ascii: bool,
}

const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const HIGH: u64 = splat(0x80);

/// Marks, by their high bit, the bytes of `word` that end a run. Borrows can set bits above the lowest true one, so only
/// the lowest is meaningful.
#[inline]
const fn stops(word: u64) -> u64 {
    let ones = splat(1);
    let quote = word ^ splat(b'"');
    let slash = word ^ splat(b'\\');
    (quote.wrapping_sub(ones) & !quote | slash.wrapping_sub(ones) & !slash | word.wrapping_sub(splat(0x20)) & !word)
        & HIGH
}

/// Whether the block has a byte that ends a run, and the union of its bytes. Branch-free so that it becomes vector code.
#[inline]
fn survey(block: &[u8; 64]) -> (bool, u8) {
    let mut stop = 0u8;
    let mut union = 0u8;
    for &byte in block {
        stop |= u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
        union |= byte;
    }
    (stop != 0, union)
}

/// The run that starts at `start`. A run cut for its length is cut between characters.
#[inline]
pub(super) fn run(bytes: &[u8], start: usize) -> Run {
    let window = bytes.get(start..bytes.len().min(start.saturating_add(RUN))).unwrap_or_default();
    let mut at = 0;
    let mut high = 0u64;
    // Most names and values are short: two words before the blocks.
    while at < 16
        && let Some(word) = window.get(at..).and_then(<[u8]>::first_chunk::<8>)
    {
        let word = u64::from_le_bytes(*word);
        let found = stops(word);
        if found != 0 {
            return finish(start, at, word, found, high);
        }
        high |= word;
        at += 8;
    }
    let mut union = 0u8;
    while let Some(block) = window.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let (stop, seen) = survey(block);
        if stop {
            break;
        }
        union |= seen;
        at += 64;
    }
    high |= u64::from(union);
    while let Some(word) = window.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let found = stops(word);
        if found != 0 {
            return finish(start, at, word, found, high);
        }
        high |= word;
        at += 8;
    }
    while let Some(&byte) = window.get(at) {
        if byte < 0x20 || byte == b'"' || byte == b'\\' {
            return Run { end: start + at, ascii: high & HIGH == 0 };
        }
        high |= u64::from(byte);
        at += 1;
    }
    let ascii = high & HIGH == 0;
    Run { end: if ascii { start + at } else { cut(bytes, start, start + at) }, ascii }
}

#[inline]
fn finish(start: usize, at: usize, word: u64, found: u64, high: u64) -> Run {
    let offset = (found.trailing_zeros() / 8) as usize;
    let before = word & ((1u64 << (offset * 8)) - 1);
    Run { end: start + at + offset, ascii: (high | before) & HIGH == 0 }
}

/// Moves a cut at `end` back so that it does not split a character.
fn cut(bytes: &[u8], start: usize, end: usize) -> usize {
    (0..4)
        .filter_map(|back| end.checked_sub(back))
        .take_while(|&at| at > start)
        .find(|&at| bytes.get(at).is_none_or(|byte| byte & 0xC0 != 0x80))
        .unwrap_or(end)
}

#[inline]
pub(super) fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// What a string turned out to be.
#[derive(Clone, Copy)]
pub(super) struct Scanned {
    /// One past the closing quote.
    pub end: usize,
    /// Whether it has escapes.
    pub escaped: bool,
    /// Lone surrogates and invalid UTF-8.
    pub anomalies: Anomalies,
}

/// Scans the string whose opening quote is at `start`; `passed` hears of the progress through long ones.
#[inline]
pub(super) fn scan(bytes: &[u8], start: usize, passed: &mut impl FnMut(usize)) -> Result<Scanned, ScanError> {
    let first = run(bytes, start + 1);
    if first.ascii && bytes.get(first.end) == Some(&b'"') {
        return Ok(Scanned { end: first.end + 1, escaped: false, anomalies: Anomalies::NONE });
    }
    scan_rest(bytes, start + 1, first, passed)
}

fn scan_rest(bytes: &[u8], mut at: usize, mut run: Run, passed: &mut impl FnMut(usize)) -> Result<Scanned, ScanError> {
    let mut escaped = false;
    let mut anomalies = Anomalies::NONE;
    loop {
        if !run.ascii && !is_utf8(&bytes[at..run.end]) {
            anomalies |= Anomalies::INVALID_UTF8;
        }
        at = run.end;
        match bytes.get(at) {
            Some(b'"') => {
                return Ok(Scanned { end: at + 1, escaped, anomalies });
            }
            Some(b'\\') => {
                escaped = true;
                let escape = Escape::read(bytes, at)?;
                if matches!(escape.unit, Unit::Surrogate(_)) {
                    anomalies |= Anomalies::LONE_SURROGATE;
                }
                at = escape.end;
            }
            Some(0..0x20) => return Err(ScanError::new(at, ScanErrorKind::ControlByte)),
            Some(_) => {}
            None => return Err(ScanError::unexpected(bytes, at)),
        }
        passed(at);
        run = self::run(bytes, at);
    }
}

/// What an escape stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Char(char),
    /// Half of a surrogate pair without the other half.
    Surrogate(u16),
}

/// One escape, or two that form a surrogate pair.
pub(super) struct Escape {
    pub unit: Unit,
    pub end: usize,
}

impl Escape {
    /// Reads the escape whose backslash is at `at`.
    pub(super) fn read(bytes: &[u8], at: usize) -> Result<Self, ScanError> {
        let bad = || ScanError::new(at, ScanErrorKind::BadEscape);
        let simple = match bytes.get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = hex4(bytes, at + 2).ok_or_else(bad)?;
                return Ok(Self::from_unit(bytes, at + 6, unit));
            }
            Some(_) => return Err(bad()),
            None => return Err(ScanError::unexpected(bytes, at + 1)),
        };
        Ok(Self { unit: Unit::Char(simple), end: at + 2 })
    }

    fn from_unit(bytes: &[u8], end: usize, unit: u16) -> Self {
        if let Some(plain) = char::from_u32(u32::from(unit)) {
            return Self { unit: Unit::Char(plain), end };
        }
        if (0xD800..0xDC00).contains(&unit)
            && bytes.get(end..end + 2) == Some(br"\u")
            && let Some(low) = hex4(bytes, end + 2)
            && (0xDC00..0xE000).contains(&low)
        {
            let code = 0x10000 + (u32::from(unit & 0x3FF) << 10) + u32::from(low & 0x3FF);
            if let Some(pair) = char::from_u32(code) {
                return Self { unit: Unit::Char(pair), end: end + 6 };
            }
        }
        Self { unit: Unit::Surrogate(unit), end }
    }
}

fn hex4(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 4)?;
    digits.iter().try_fold(0u16, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | digit as u16)
    })
}

/// The text of a JSON string, given with its quotes: the member name or value that `raw` spells. Borrowed where nothing
/// is escaped. `None` for a lone surrogate, invalid UTF-8, or anything that is not exactly one string.
pub fn decode_string(raw: &[u8]) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut at = 0;
    let mut text = String::new();
    loop {
        let mut end = at;
        let stop = loop {
            end = run(inner, end).end;
            match inner.get(end) {
                None => break None,
                Some(b'\\') => break Some(()),
                Some(b'"' | 0..0x20) => return None,
                Some(_) => {}
            }
        };
        let plain = std::str::from_utf8(&inner[at..end]).ok()?;
        if stop.is_none() && at == 0 {
            return Some(Cow::Borrowed(plain));
        }
        text.push_str(plain);
        if stop.is_none() {
            return Some(Cow::Owned(text));
        }
        // The escape must not reach for the closing quote, which `inner` no longer has.
        let escape = Escape::read(inner, end).ok()?;
        let Unit::Char(decoded) = escape.unit else {
            return None;
        };
        text.push(decoded);
        at = escape.end;
    }
}

/// Appends the decoded text of the string that starts at `start` and is known to be valid.
pub(super) fn decode_into(bytes: &[u8], start: usize, text: &mut Vec<u8>) -> Option<()> {
    let mut at = start + 1;
    loop {
        let end = run(bytes, at).end;
        text.extend_from_slice(bytes.get(at..end)?);
        at = match bytes.get(end)? {
            b'"' => return Some(()),
            b'\\' => {
                let escape = Escape::read(bytes, end).ok()?;
                let Unit::Char(decoded) = escape.unit else {
                    return None;
                };
                text.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
                escape.end
            }
            _ => end,
        };
    }
}

/// Where canonical bytes go.
pub(super) trait Out {
    fn put(&mut self, bytes: &[u8]);
    fn byte(&mut self, byte: u8);
    /// The input has been written up to `at`.
    fn passed(&mut self, _at: usize) {}
}

impl Out for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    #[inline]
    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }
}

/// Writes the string that starts at `start` as RFC 8785 §3.2.2.2 has it. Gives its end and whether it had escapes;
/// `None` where it has no canonical form or is no string.
#[inline]
pub(super) fn write(bytes: &[u8], start: usize, out: &mut impl Out) -> Option<(usize, bool)> {
    let first = run(bytes, start + 1);
    if first.ascii && bytes.get(first.end) == Some(&b'"') {
        out.put(&bytes[start..=first.end]);
        return Some((first.end + 1, false));
    }
    out.byte(b'"');
    write_rest(bytes, start + 1, first, out)
}

fn write_rest(bytes: &[u8], mut at: usize, mut run: Run, out: &mut impl Out) -> Option<(usize, bool)> {
    let mut escaped = false;
    loop {
        let plain = &bytes[at..run.end];
        if !run.ascii && !is_utf8(plain) {
            return None;
        }
        out.put(plain);
        at = run.end;
        match bytes.get(at)? {
            b'"' => {
                out.byte(b'"');
                return Some((at + 1, escaped));
            }
            b'\\' => {
                escaped = true;
                let escape = Escape::read(bytes, at).ok()?;
                let Unit::Char(decoded) = escape.unit else {
                    return None;
                };
                put_char(decoded, out);
                at = escape.end;
            }
            0..0x20 => return None,
            _ => {}
        }
        out.passed(at);
        run = self::run(bytes, at);
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn put_char(decoded: char, out: &mut impl Out) {
    match decoded {
        '"' => out.put(br#"\""#),
        '\\' => out.put(br"\\"),
        '\u{8}' => out.put(br"\b"),
        '\t' => out.put(br"\t"),
        '\n' => out.put(br"\n"),
        '\u{c}' => out.put(br"\f"),
        '\r' => out.put(br"\r"),
        '\0'..='\u{1f}' => {
            let code = decoded as usize;
            out.put(br"\u00");
            out.byte(HEX[code >> 4]);
            out.byte(HEX[code & 15]);
        }
        _ => out.put(decoded.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// The end of the string at `start` if it is spelt exactly as RFC 8785 §3.2.2.2 has it, and whether it has escapes.
#[inline]
pub(super) fn check(bytes: &[u8], start: usize) -> Option<(usize, bool)> {
    let mut at = start + 1;
    let mut escaped = false;
    loop {
        let run = run(bytes, at);
        if !run.ascii && !is_utf8(&bytes[at..run.end]) {
            return None;
        }
        at = run.end;
        match bytes.get(at)? {
            b'"' => return Some((at + 1, escaped)),
            b'\\' => {
                escaped = true;
                at = match bytes.get(at + 1)? {
                    b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => at + 2,
                    b'u' => match bytes.get(at + 2..at + 6)? {
                        [b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f'] => at + 6,
                        [b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f'] => at + 6,
                        _ => return None,
                    },
                    _ => return None,
                };
            }
            0..0x20 => return None,
            _ => {}
        }
    }
}

/// Moves U+E000…U+FFFF, whose UTF-8 starts with 0xEE or 0xEF, behind the supplementary planes: then the order of bytes is
/// the order of UTF-16 code units.
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

/// The code points of a string; surrogate halves stand for themselves, bytes that are not UTF-8 lie beyond Unicode.
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
