//! Strings: RFC 8259 §7 on the way in, RFC 8785 §3.2.2.2 on the way out.

use std::borrow::Cow;

use super::error::{Anomalies, ScanError, ScanErrorKind};
use super::run::{Section, section};

#[inline]
pub(super) fn is_utf8(bytes: &[u8]) -> bool {
    simdutf8::basic::from_utf8(bytes).is_ok()
}

/// What a string turned out to be.
#[derive(Clone, Copy)]
pub(super) struct Scanned {
    /// One past the closing quote.
    pub end: usize,
    /// Whether it has escapes.
    pub escaped: bool,
    /// Whether it is spelt as RFC 8785 §3.2.2.2 has it.
    pub canonical: bool,
    /// Lone surrogates and invalid UTF-8.
    pub anomalies: Anomalies,
}

/// Scans the string whose opening quote is at `start`; `passed` hears of the progress through long ones.
#[inline]
pub(super) fn scan(bytes: &[u8], start: usize, passed: &mut impl FnMut(usize)) -> Result<Scanned, ScanError> {
    let first = section(bytes, start + 1);
    if first.ascii && bytes.get(first.end) == Some(&b'"') {
        let (end, escaped) = (first.end + 1, first.escaped);
        return Ok(Scanned { end, escaped, canonical: true, anomalies: Anomalies::NONE });
    }
    scan_rest(bytes, start + 1, first, passed)
}

fn scan_rest(
    bytes: &[u8],
    mut at: usize,
    mut section: Section,
    passed: &mut impl FnMut(usize),
) -> Result<Scanned, ScanError> {
    let mut string = Scanned { end: at, escaped: false, canonical: true, anomalies: Anomalies::NONE };
    loop {
        string.escaped |= section.escaped;
        if !section.ascii && !is_utf8(&bytes[at..section.end]) {
            string.anomalies |= Anomalies::INVALID_UTF8;
        }
        at = section.end;
        match bytes.get(at) {
            Some(_) if section.cut => {}
            Some(b'"') => {
                string.canonical &= string.anomalies.is_empty();
                string.end = at + 1;
                return Ok(string);
            }
            Some(b'\\') => {
                let escape = Escape::read(bytes, at)?;
                if matches!(escape.unit, Unit::Surrogate(_)) {
                    string.anomalies |= Anomalies::LONE_SURROGATE;
                }
                string.escaped = true;
                string.canonical = false;
                at = escape.end;
            }
            Some(_) => return Err(ScanError::new(at, ScanErrorKind::ControlByte)),
            None => return Err(ScanError::unexpected(bytes, at)),
        }
        passed(at);
        section = self::section(bytes, at);
    }
}

/// What an escape means.
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

/// The value of each hex digit; 0xFF for other bytes.
const HEX_VALUES: [u8; 256] = {
    let mut values = [0xFF; 256];
    let mut digit = 0;
    while digit < 16 {
        values[HEX[digit] as usize] = digit as u8;
        values[HEX[digit].to_ascii_uppercase() as usize] = digit as u8;
        digit += 1;
    }
    values
};

#[inline]
fn hex4(bytes: &[u8], at: usize) -> Option<u16> {
    let digits: &[u8; 4] = bytes.get(at..)?.first_chunk()?;
    let [a, b, c, d] = digits.map(|digit| HEX_VALUES[usize::from(digit)]);
    let value = u16::from(a) << 12 | u16::from(b) << 8 | u16::from(c) << 4 | u16::from(d);
    (a | b | c | d < 16).then_some(value)
}

/// The text of a JSON string, given with its quotes: the member name or value that `raw` spells. Borrowed where nothing
/// is escaped. `None` for a lone surrogate, invalid UTF-8, or anything that is not exactly one string.
pub fn decode_string(raw: &[u8]) -> Option<Cow<'_, str>> {
    if raw.first() != Some(&b'"') {
        return None;
    }
    let scanned = scan(raw, 0, &mut |_| ()).ok()?;
    if scanned.end != raw.len() || !scanned.anomalies.is_empty() {
        return None;
    }
    let inner = &raw[1..raw.len() - 1];
    if !scanned.escaped {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    let mut text = Vec::with_capacity(inner.len());
    decode_into(inner, &mut text)?;
    String::from_utf8(text).ok().map(Cow::Owned)
}

/// Appends the decoded text of what is between the quotes of a valid string.
pub(super) fn decode_into(inner: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let mut at = 0;
    while let Some(plain) = memchr::memchr(b'\\', &inner[at..]) {
        text.extend_from_slice(&inner[at..at + plain]);
        let escape = Escape::read(inner, at + plain).ok()?;
        let Unit::Char(decoded) = escape.unit else {
            return None;
        };
        text.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        at = escape.end;
    }
    text.extend_from_slice(&inner[at..]);
    Some(())
}

/// Where canonical bytes go.
pub(super) trait Out {
    /// Whether the input has been found to be valid UTF-8 before.
    const CHECKED: bool = false;

    fn put(&mut self, bytes: &[u8]);
    fn byte(&mut self, byte: u8);
    /// The input has been written up to `at`, inside of a string.
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
/// `None` where it has no canonical form or is not a string.
#[inline]
pub(super) fn write<O: Out>(bytes: &[u8], start: usize, out: &mut O) -> Option<(usize, bool)> {
    let first = section(bytes, start + 1);
    if first.ascii && bytes.get(first.end) == Some(&b'"') {
        out.put(&bytes[start..=first.end]);
        return Some((first.end + 1, first.escaped));
    }
    write_rest(bytes, start + 1, first, out)
}

fn write_rest<O: Out>(bytes: &[u8], mut at: usize, mut section: Section, out: &mut O) -> Option<(usize, bool)> {
    let mut escaped = false;
    out.byte(b'"');
    loop {
        let plain = &bytes[at..section.end];
        if !O::CHECKED && !section.ascii && !is_utf8(plain) {
            return None;
        }
        out.put(plain);
        escaped |= section.escaped;
        at = section.end;
        match bytes.get(at)? {
            _ if section.cut => {}
            b'"' => {
                out.byte(b'"');
                return Some((at + 1, escaped));
            }
            b'\\' => {
                escaped = true;
                at = put_escape(bytes, at, out)?;
            }
            _ => return None,
        }
        out.passed(at);
        section = self::section(bytes, at);
    }
}

/// Writes the character that the escape at `at` means, and returns the end of the escape.
fn put_escape(bytes: &[u8], at: usize, out: &mut impl Out) -> Option<usize> {
    let escape = Escape::read(bytes, at).ok()?;
    let Unit::Char(decoded) = escape.unit else {
        return None;
    };
    put_char(decoded, out);
    Some(escape.end)
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
        let section = section(bytes, at);
        if !section.ascii && !is_utf8(&bytes[at..section.end]) {
            return None;
        }
        escaped |= section.escaped;
        at = section.end;
        match bytes.get(at)? {
            _ if section.cut => {}
            b'"' => return Some((at + 1, escaped)),
            _ => return None,
        }
    }
}
