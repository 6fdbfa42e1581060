//! Is a whole document JSON, and is it its own canonical form?

use super::MAX_DEPTH;
use super::error::{Anomalies, ScanError};
use super::index::{Index, Limits};
use super::members::Page;
use super::scan::literal;
use super::{number, order, string};

/// Scans one whole JSON document: one value, white space around it allowed, nothing after it.
///
/// A document with valid syntax gives the reasons why it has no canonical form, none if it has one. Invalid UTF-8 inside
/// strings, lone surrogates and deep nesting are such reasons and not syntax errors, because lenient peers accept them.
/// Objects nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH) are not looked at for duplicate names.
///
/// Iterative, and bounded in memory like [`digest`](super::digest()).
pub fn scan(bytes: &[u8]) -> Result<Anomalies, ScanError> {
    scan_paged(bytes, None)
}

/// As [`scan`], for bytes in pages that can be released.
pub fn scan_paged(bytes: &[u8], page: Page<'_>) -> Result<Anomalies, ScanError> {
    Ok(Index::build(bytes, &Limits::scan_only(), page)?.anomalies)
}

/// Whether `bytes` are exactly the RFC 8785 form of the value they spell: no white space, minimal escapes, ECMAScript
/// numbers, names strictly ascending, valid UTF-8, nothing before or after. Allocates only for numbers of unusual length.
///
/// Numbers are judged as doubles. So the few integers above 2^53 that are the canonical spelling of a double without being
/// held exactly (295147905179352830000 for 2^68) pass here, though [`scan`](super::scan()) flags them on the wire.
pub fn is_canonical(bytes: &[u8]) -> bool {
    value(bytes, 0, 0) == Some(bytes.len())
}

fn value(bytes: &[u8], at: usize, depth: usize) -> Option<usize> {
    match bytes.get(at)? {
        b'"' => string::check(bytes, at).map(|(end, _)| end),
        b'{' if depth < MAX_DEPTH => object(bytes, at, depth + 1),
        b'[' if depth < MAX_DEPTH => array(bytes, at, depth + 1),
        b'-' | b'0'..=b'9' => number::check(bytes, at),
        _ => literal(bytes, at).ok(),
    }
}

fn array(bytes: &[u8], at: usize, depth: usize) -> Option<usize> {
    let mut at = at + 1;
    if bytes.get(at) == Some(&b']') {
        return Some(at + 1);
    }
    loop {
        at = value(bytes, at, depth)?;
        match bytes.get(at)? {
            b',' => at += 1,
            b']' => return Some(at + 1),
            _ => return None,
        }
    }
}

fn object(bytes: &[u8], at: usize, depth: usize) -> Option<usize> {
    let mut at = at + 1;
    if bytes.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    let mut last: Option<(usize, usize, bool)> = None;
    loop {
        if bytes.get(at) != Some(&b'"') {
            return None;
        }
        let start = at;
        let (end, escaped) = string::check(bytes, start)?;
        if let Some((last_start, last_end, last_escaped)) = last {
            let ascending = if escaped || last_escaped {
                order::compare_at(bytes, last_start, start).is_lt()
            } else {
                order::compare(&bytes[last_start + 1..last_end - 1], &bytes[start + 1..end - 1]).is_lt()
            };
            if !ascending {
                return None;
            }
        }
        last = Some((start, end, escaped));
        if bytes.get(end) != Some(&b':') {
            return None;
        }
        at = value(bytes, end + 1, depth)?;
        match bytes.get(at)? {
            b',' => at += 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}
