//! The walk through a document: iterative, strict about the grammar of RFC 8259, silent about what it means.

use super::error::{ScanError, ScanErrorKind};
use super::string::Scanned;
use super::{number, string};

/// Levels the walk can follow: 2^27 at one bit each are 16 MiB.
const MAX_LEVELS: usize = 1 << 27;

/// What a walk tells. `depth` counts the containers that are open, including the one being opened or closed.
pub(super) trait Events {
    /// A container starts at `at`.
    fn open(&mut self, _at: usize, _object: bool, _depth: usize) {}
    /// The container that was opened last ends before `end`.
    fn close(&mut self, _bytes: &[u8], _end: usize, _object: bool, _depth: usize) {}
    /// The name of a member of the innermost open object, an object at `depth`; the member's value starts at `value`.
    fn name(&mut self, _bytes: &[u8], _start: usize, _name: Scanned, _depth: usize, _value: usize) {}
    /// The value of the member of the object at `depth` that was named last ends before `end`.
    fn member(&mut self, _end: usize, _depth: usize) {}
    /// A string value that starts at `start`.
    fn string(&mut self, _start: usize, _string: Scanned) {}
    /// A number: its bytes in the document, and what they parse to.
    fn number(&mut self, _bytes: &[u8], _number: number::Literal) {}
    /// Nothing before `at` will be read sequentially again.
    fn passed(&mut self, _at: usize) {}
}

struct Nothing;
impl Events for Nothing {}

/// Which containers are open: a bit per level, set for objects.
#[derive(Default)]
struct Levels {
    depth: usize,
    word: u64,
    spilled: Vec<u64>,
}

impl Levels {
    #[inline]
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.spilled.push(self.word);
        }
        self.word = self.word << 1 | u64::from(object);
        self.depth += 1;
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.word = self.spilled.pop().unwrap_or_default();
        } else {
            self.word >>= 1;
        }
    }

    #[inline]
    fn in_object(&self) -> bool {
        self.word & 1 == 1
    }
}

/// The first position from `at` on that is not white space (RFC 8259 §2).
#[inline]
pub(super) fn skip_ws(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// The end of `true`, `false` or `null` at `at`.
#[inline]
pub(super) fn literal(bytes: &[u8], at: usize) -> Result<usize, ScanError> {
    for word in [&b"true"[..], b"false", b"null"] {
        let Some(there) = bytes.get(at..) else { break };
        if there.starts_with(word) {
            return Ok(at + word.len());
        }
        if there.first() == word.first() {
            return Err(if word.starts_with(there) {
                ScanError::unexpected(bytes, bytes.len())
            } else {
                ScanError::new(at, ScanErrorKind::BadLiteral)
            });
        }
    }
    Err(ScanError::unexpected(bytes, at))
}

/// Reads the member name at `at`, the colon, and the white space around it; gives the start of the member's value.
#[inline]
pub(super) fn name(bytes: &[u8], at: usize, passed: &mut impl FnMut(usize)) -> Result<(Scanned, usize), ScanError> {
    if bytes.get(at) != Some(&b'"') {
        return Err(ScanError::unexpected(bytes, at));
    }
    let name = string::scan(bytes, at, passed)?;
    let colon = skip_ws(bytes, name.end);
    if bytes.get(colon) != Some(&b':') {
        return Err(ScanError::unexpected(bytes, colon));
    }
    Ok((name, skip_ws(bytes, colon + 1)))
}

/// Walks the value that starts at `start`, white space before it allowed, and gives its end.
pub(super) fn walk(bytes: &[u8], start: usize, events: &mut impl Events) -> Result<usize, ScanError> {
    let mut levels = Levels::default();
    let mut at = skip_ws(bytes, start);
    loop {
        // Here a value starts; a container that has elements goes round for the first of them.
        at = match bytes.get(at) {
            Some(b'"') => {
                let string = string::scan(bytes, at, &mut |passed| events.passed(passed))?;
                events.string(at, string);
                string.end
            }
            Some(b'-' | b'0'..=b'9') => {
                let number = number::lex(bytes, at)?;
                events.number(bytes, number);
                number.end
            }
            Some(&opening @ (b'{' | b'[')) => {
                let object = opening == b'{';
                if levels.depth == MAX_LEVELS {
                    return Err(ScanError::new(at, ScanErrorKind::TooDeep));
                }
                levels.push(object);
                events.open(at, object, levels.depth);
                let first = skip_ws(bytes, at + 1);
                if bytes.get(first) != Some(&(opening + 2)) {
                    at = if object { member(bytes, first, levels.depth, events)? } else { first };
                    continue;
                }
                events.close(bytes, first + 1, object, levels.depth);
                levels.pop();
                first + 1
            }
            _ => literal(bytes, at)?,
        };
        // Here a value has ended; so may have the containers around it.
        loop {
            events.passed(at);
            if levels.depth == 0 {
                return Ok(at);
            }
            let object = levels.in_object();
            if object {
                events.member(at, levels.depth);
            }
            at = skip_ws(bytes, at);
            match bytes.get(at) {
                Some(b',') => {
                    at = skip_ws(bytes, at + 1);
                    if object {
                        at = member(bytes, at, levels.depth, events)?;
                    }
                    break;
                }
                Some(b'}') if object => {}
                Some(b']') if !object => {}
                _ => return Err(ScanError::unexpected(bytes, at)),
            }
            at += 1;
            events.close(bytes, at, object, levels.depth);
            levels.pop();
        }
    }
}

#[inline]
fn member(bytes: &[u8], at: usize, depth: usize, events: &mut impl Events) -> Result<usize, ScanError> {
    let (scanned, value) = name(bytes, at, &mut |passed| events.passed(passed))?;
    events.name(bytes, at, scanned, depth, value);
    Ok(value)
}

/// Skips the value at `pos`, white space before it allowed, and gives the position after it. Checks syntax only; what
/// follows the value is not looked at. Offsets, in errors too, count from the start of `bytes`.
pub fn scan_at(bytes: &[u8], pos: usize) -> Result<usize, ScanError> {
    walk(bytes, pos, &mut Nothing)
}

/// Checks that nothing but white space follows from `at` on.
pub(super) fn finish(bytes: &[u8], at: usize) -> Result<(), ScanError> {
    let rest = skip_ws(bytes, at);
    if rest < bytes.len() { Err(ScanError::new(rest, ScanErrorKind::TrailingBytes)) } else { Ok(()) }
}
