//! Numbers: RFC 8259 §6 on the way in, RFC 8785 §3.2.2.3 (ECMAScript `Number::toString`) on the way out.

use super::error::{ScanError, ScanErrorKind};
use super::string::Out;

/// Two decimals of so many digits never share a double (`DBL_DIG`), so the shortest decimal that reads back as the double
/// is the literal itself.
const SAFE_DIGITS: usize = 15;

/// Below it every integer is exact; the literal 2^53 itself is too.
const EXACT: u64 = 1 << 53;

/// With fewer digits than this and no exponent nothing overflows or underflows.
const IN_RANGE_DIGITS: usize = 300;

/// The parts of a number literal.
#[derive(Clone, Copy)]
pub(super) struct Literal {
    start: usize,
    /// First digit, after the sign.
    int: usize,
    int_digits: usize,
    /// Digits after the point; 0 without a point.
    fraction_digits: usize,
    exponent: bool,
    /// One past its last byte.
    pub end: usize,
}

#[inline]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

#[cold]
fn bad(bytes: &[u8], at: usize) -> ScanError {
    match bytes.get(at) {
        Some(_) => ScanError::new(at, ScanErrorKind::BadNumber),
        None => ScanError::unexpected(bytes, at),
    }
}

/// Reads the number at `start`, where there is a sign or a digit.
#[inline]
pub(super) fn lex(bytes: &[u8], start: usize) -> Result<Literal, ScanError> {
    let int = start + usize::from(bytes.get(start) == Some(&b'-'));
    let mut end = digits(bytes, int);
    let int_digits = end - int;
    if int_digits == 0 || int_digits > 1 && bytes.get(int) == Some(&b'0') {
        return Err(bad(bytes, int));
    }
    let mut fraction_digits = 0;
    if bytes.get(end) == Some(&b'.') {
        let fraction = end + 1;
        end = digits(bytes, fraction);
        fraction_digits = end - fraction;
        if fraction_digits == 0 {
            return Err(bad(bytes, fraction));
        }
    }
    let exponent = matches!(bytes.get(end), Some(b'e' | b'E'));
    if exponent {
        let first = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = digits(bytes, first);
        if end == first {
            return Err(bad(bytes, first));
        }
    }
    Ok(Literal { start, int, int_digits, fraction_digits, exponent, end })
}

impl Literal {
    fn is_short(self) -> bool {
        !self.exponent && self.int_digits + self.fraction_digits <= SAFE_DIGITS
    }

    /// Whether the literal can be seen, without reading it as a double, to be what RFC 8785 writes for it.
    #[inline]
    fn is_plainly_canonical(self, bytes: &[u8]) -> bool {
        if !self.is_short() {
            return false;
        }
        let zero = bytes.get(self.int) == Some(&b'0');
        if self.fraction_digits == 0 {
            return !(zero && self.int > self.start);
        }
        // From 1e-7 down ECMAScript writes an exponent: five zeros may follow the point, not six.
        let small = || bytes.get(self.end - self.fraction_digits..self.end).is_some_and(|it| it.starts_with(b"000000"));
        bytes.get(self.end - 1) != Some(&b'0') && !(zero && small())
    }

    /// The nearest double, or `None` where the literal is out of range (rule in the module documentation of `canon`).
    fn value(self, bytes: &[u8]) -> Option<f64> {
        let value = self.nearest(bytes)?;
        let integer = self.fraction_digits == 0 && !self.exponent;
        (!integer || self.is_exact(bytes, value)).then_some(value)
    }

    /// The nearest double, or `None` where it would be infinite, or zero for a literal that is not.
    fn nearest(self, bytes: &[u8]) -> Option<f64> {
        let text = std::str::from_utf8(bytes.get(self.start..self.end)?).ok()?;
        let value: f64 = text.parse().ok()?;
        if value == 0.0 {
            let mantissa = text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
            return mantissa.into_iter().all(|byte| !matches!(byte, b'1'..=b'9')).then_some(value);
        }
        value.is_finite().then_some(value)
    }

    /// Whether `value` is exactly the integer of this literal.
    fn is_exact(self, bytes: &[u8], value: f64) -> bool {
        let Some(Ok(digits)) = bytes.get(self.int..self.end).map(std::str::from_utf8) else {
            return false;
        };
        match digits.parse::<u64>() {
            Ok(integer) => integer <= EXACT || value.abs() as u128 == u128::from(integer),
            Err(_) => format!("{:.0}", value.abs()) == digits,
        }
    }

    /// Whether an IEEE 754 double holds the number as the module documentation of `canon` demands.
    #[inline]
    pub(super) fn in_range(self, bytes: &[u8]) -> bool {
        self.is_short()
            || self.fraction_digits > 0 && !self.exponent && self.int_digits + self.fraction_digits < IN_RANGE_DIGITS
            || self.value(bytes).is_some()
    }
}

/// Writes the number that starts at `start` in its ECMAScript form and gives its end; `None` where it is malformed or out
/// of range.
#[inline]
pub(super) fn write(bytes: &[u8], start: usize, out: &mut impl Out) -> Option<usize> {
    let literal = lex(bytes, start).ok()?;
    if literal.is_plainly_canonical(bytes) {
        out.put(&bytes[start..literal.end]);
    } else {
        let value = literal.value(bytes)?;
        put(value, out);
    }
    Some(literal.end)
}

/// Writes a finite double as ECMAScript does; minus zero is `0`.
pub(super) fn put(value: f64, out: &mut impl Out) {
    if value == 0.0 {
        out.byte(b'0');
    } else {
        out.put(ryu_js::Buffer::new().format_finite(value).as_bytes());
    }
}

/// The end of the number at `start` if it is spelt as RFC 8785 writes the double it reads as.
///
/// That includes integers such as 295147905179352830000, the canonical spelling of 2^68, although that integer is not
/// held exactly: in canonical output it represents the double.
#[inline]
pub(super) fn check(bytes: &[u8], start: usize) -> Option<usize> {
    let literal = lex(bytes, start).ok()?;
    let canonical = literal.is_plainly_canonical(bytes) || {
        let value = literal.nearest(bytes)?;
        value != 0.0 && ryu_js::Buffer::new().format_finite(value).as_bytes() == &bytes[start..literal.end]
    };
    canonical.then_some(literal.end)
}
