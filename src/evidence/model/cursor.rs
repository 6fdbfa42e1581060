//! Reading a canonical line from left to right against the one form it can have: no tree, no allocation, and nothing
//! accepted that is not RFC 8785.

use super::{limits::MAX_INTEGER, time::WallTime};
use crate::canon;

/// A place in a line. Every method either passes what it names or gives `None`; then the line is not of the form.
#[derive(Clone)]
pub struct JsonCursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> JsonCursor<'a> {
    /// The beginning of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How far it is.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What is between `from` and here.
    #[must_use]
    pub fn since(&self, from: usize) -> &'a [u8] {
        &self.bytes[from..self.at]
    }

    /// Whether `text` is next.
    #[inline]
    #[must_use]
    pub fn sees(&self, text: &[u8]) -> bool {
        self.bytes.len() - self.at >= text.len() && &self.bytes[self.at..self.at + text.len()] == text
    }

    /// Consumes `text`; `None`, without moving, if something else is here.
    #[inline]
    pub fn lit(&mut self, text: &[u8]) -> Option<()> {
        self.sees(text).then(|| self.at += text.len())
    }

    /// Consumes what is before a member of an object, `{` or `,`, and its name with the colon.
    #[inline]
    pub fn key(&mut self, before: u8, name: &[u8]) -> Option<()> {
        let rest = self.rest();
        (rest.first() == Some(&before) && rest[1..].starts_with(name)).then(|| self.at += 1 + name.len())
    }

    /// What has not been passed.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(taken)
    }

    /// The end of the line.
    pub fn end(&self) -> Option<()> {
        (self.at == self.bytes.len()).then_some(())
    }

    /// `null`, or what `f` reads.
    #[inline]
    #[allow(clippy::option_option)]
    pub fn opt<T>(&mut self, f: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.lit(b"null").is_some() { Some(None) } else { f(self).map(Some) }
    }

    /// A string; returns the text between its quotes, escapes included.
    #[inline]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        self.lit(b"\"")?;
        let start = self.at;
        let mut plain = true;
        loop {
            match *self.bytes.get(self.at)? {
                b'"' => break,
                b'\\' => {
                    plain = false;
                    self.at += 2;
                }
                b => {
                    plain &= (0x20..0x80).contains(&b);
                    self.at += 1;
                }
            }
        }
        let text = &self.bytes[start..self.at];
        self.at += 1;
        (plain || canon::is_canonical(&self.bytes[start - 1..self.at])).then_some(text)
    }

    /// A string of 64 lower-case hex digits.
    #[inline]
    pub fn hex64(&mut self) -> Option<&'a [u8]> {
        self.lit(b"\"")?;
        let digits = self.take(64)?;
        self.lit(b"\"")?;
        is_hex(digits).then_some(digits)
    }

    /// A string `sha256:` or `sha256-raw:` and 64 hex digits; gives all of it.
    #[inline]
    pub fn digest(&mut self) -> Option<&'a [u8]> {
        self.lit(b"\"")?;
        let length = if self.sees(b"sha256:") { 7 + 64 } else { 11 + 64 };
        let text = self.take(length)?;
        self.lit(b"\"")?;
        is_digest(text).then_some(text)
    }

    /// A string of `prefix` and 16 lower-case hex digits; gives their bits.
    #[inline]
    pub fn id(&mut self, prefix: &[u8]) -> Option<u64> {
        self.lit(b"\"")?;
        self.lit(prefix)?;
        let digits = self.take(16)?;
        self.lit(b"\"")?;
        let (bits, seen) = digits.iter().fold((0, 0), |(bits, seen), &d| {
            let value = VALUES[usize::from(d)];
            (bits << 4 | u64::from(value), seen | value)
        });
        (seen < 16).then_some(bits)
    }

    /// A time of the one form.
    #[inline]
    pub fn time(&mut self) -> Option<WallTime> {
        self.lit(b"\"")?;
        let text = self.take(24)?;
        self.lit(b"\"")?;
        WallTime::parse(std::str::from_utf8(text).ok()?)
    }

    /// An integer from 0 to [`MAX_INTEGER`].
    #[inline]
    pub fn uint(&mut self) -> Option<u64> {
        self.up_to(MAX_INTEGER)
    }

    #[inline]
    fn up_to(&mut self, max: u64) -> Option<u64> {
        let start = self.at;
        let mut n = 0u64;
        while let Some(d) = self.bytes.get(self.at).filter(|b| b.is_ascii_digit()) {
            if self.at - start >= 16 {
                return None;
            }
            n = n * 10 + u64::from(d - b'0');
            self.at += 1;
        }
        let digits = self.at - start;
        (digits > 0 && n <= max && (digits == 1 || self.bytes[start] != b'0')).then_some(n)
    }

    /// A peer's integer, from -[`MAX_INTEGER`] to [`MAX_INTEGER`]; no `-0`. The first release wrote ±2^53 as well.
    pub fn int(&mut self) -> Option<i64> {
        if self.lit(b"-").is_some() {
            return self.up_to(MAX_INTEGER + 1).filter(|n| *n != 0).map(|n| -(n as i64));
        }
        self.up_to(MAX_INTEGER + 1).map(|n| n as i64)
    }

    /// `true` or `false`.
    #[inline]
    pub fn bool(&mut self) -> Option<bool> {
        if self.lit(b"true").is_some() { Some(true) } else { self.lit(b"false").map(|()| false) }
    }

    /// Milliseconds with at most three decimals; gives microseconds.
    pub fn millis(&mut self) -> Option<u64> {
        let whole = self.uint()?;
        if self.lit(b".").is_none() {
            return whole.checked_mul(1000);
        }
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let decimals = self.since(start);
        if decimals.is_empty() || decimals.len() > 3 || decimals.last() == Some(&b'0') {
            return None;
        }
        let fraction =
            decimals.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')) * 10u64.pow(3 - decimals.len() as u32);
        whole.checked_mul(1000)?.checked_add(fraction)
    }

    /// An id of JSON-RPC: `null`, an integer, or a string; returns its text.
    #[inline]
    pub fn rpc_id(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        if self.sees(b"\"") {
            self.string()?;
        } else if self.lit(b"null").is_none() {
            self.int()?;
        }
        Some(self.since(start))
    }

    /// An array of strings; returns its text.
    #[inline]
    pub fn strings(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.lit(b"[")?;
        if self.lit(b"]").is_none() {
            loop {
                self.string()?;
                if self.lit(b"]").is_some() {
                    break;
                }
                self.lit(b",")?;
            }
        }
        Some(self.since(start))
    }

    /// Any canonical value; returns its text.
    #[inline]
    pub fn value(&mut self) -> Option<&'a [u8]> {
        if self.lit(b"null").is_some() {
            return Some(b"null");
        }
        let end = canon::scan_at(self.bytes, self.at).ok()?;
        let value = &self.bytes[self.at..end];
        self.at = end;
        canon::is_canonical(value).then_some(value)
    }
}

/// Value of each lower-case hex digit; 255 for any other byte.
const VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Whether all of it are lower-case hex digits.
#[inline]
#[must_use]
pub fn is_hex(text: &[u8]) -> bool {
    // Without an early end, so that the compiler can take many bytes at a time.
    text.iter().fold(true, |ok, &d| ok & ((d.wrapping_sub(b'0') < 10) | (d.wrapping_sub(b'a') < 6)))
}

/// Whether it is `sha256:` or `sha256-raw:` and 64 hex digits.
#[inline]
#[must_use]
pub fn is_digest(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"sha256:").or_else(|| text.strip_prefix(b"sha256-raw:"));
    digits.is_some_and(|d| d.len() == 64 && is_hex(d))
}

/// A SHA-256 of 64 lower-case hex digits. Each event has one, so it looks its digits up.
#[must_use]
pub fn digest_of(hex: &[u8]) -> Option<[u8; 32]> {
    let (pairs, []) = <&[u8; 64]>::try_from(hex).ok()?.as_chunks::<2>() else { return None };
    let (mut out, mut seen) = ([0; 32], 0);
    for (byte, &[high, low]) in out.iter_mut().zip(pairs) {
        let (high, low) = (VALUES[usize::from(high)], VALUES[usize::from(low)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    (seen < 16).then_some(out)
}

/// SHA-256 as 64 hex digits, without an allocation.
#[must_use]
pub fn hex_of(digest: [u8; 32]) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; 64];
    for (i, b) in digest.into_iter().enumerate() {
        out[2 * i] = DIGITS[usize::from(b >> 4)];
        out[2 * i + 1] = DIGITS[usize::from(b & 15)];
    }
    out
}

/// Bytes of evidence as text for a message, at most 120 characters of them.
#[must_use]
pub fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(480)]);
    let mut out: String = text.chars().take(120).collect();
    if out.len() < bytes.len() && text.chars().count() >= 120 || bytes.len() > 480 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_digest_is_what_its_digits_say(digest: [u8; 32], at in 0..64_usize, other: u8) {
            let hex = hex_of(digest);
            prop_assert_eq!(digest_of(&hex), Some(digest));
            prop_assert_eq!(digest_of(&hex[1..]), None);
            let mut hex = hex;
            hex[at] = other;
            prop_assert_eq!(digest_of(&hex).is_some(), is_hex(&hex));
        }
    }

    fn whole<'a, T>(text: &'a [u8], f: impl FnOnce(&mut JsonCursor<'a>) -> Option<T>) -> Option<T> {
        let mut c = JsonCursor::new(text);
        let value = f(&mut c)?;
        c.end().map(|()| value)
    }

    #[test]
    fn integers_have_one_form() {
        for (text, value) in [("0", Some(0)), ("7", Some(7)), ("9007199254740991", Some(MAX_INTEGER))] {
            assert_eq!(whole(text.as_bytes(), JsonCursor::uint), value);
        }
        for bad in ["", "-1", "-0", "01", "1.0", "1e3", "9007199254740992", "18446744073709551616", "1e400"] {
            assert_eq!(whole(bad.as_bytes(), JsonCursor::uint), None, "{bad}");
        }
        assert_eq!(whole(b"-32001", JsonCursor::int), Some(-32001));
        assert_eq!(whole(b"-0", JsonCursor::int), None);
        for (text, read) in [("9007199254740992", true), ("-9007199254740992", true), ("9007199254740993", false)] {
            assert_eq!(whole(text.as_bytes(), JsonCursor::int).is_some(), read, "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        for us in [0, 1, 999, 1000, 1500, 12_340, 86_400_000_001] {
            let text = serde_json::to_vec(&crate::model::DurationMs(us)).unwrap();
            assert_eq!(whole(&text, JsonCursor::millis), Some(us));
        }
        for bad in ["1.0", "1.50", "1.2345", ".5", "1.", "-1", "1e3"] {
            assert_eq!(whole(bad.as_bytes(), JsonCursor::millis), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_string_is_accepted_exactly_when_it_is_canonical(s in "\\PC*|.*", raw in "\"[a-z\\\\u0-9\u{7f}\u{80}\u{1f}/\"]*\"") {
            let canonical = serde_jcs::to_vec(&s).unwrap();
            prop_assert!(whole(&canonical, JsonCursor::string).is_some());
            prop_assert_eq!(whole(raw.as_bytes(), JsonCursor::string).is_some(), canon::is_canonical(raw.as_bytes()));
        }
    }
}
