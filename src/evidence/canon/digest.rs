//! Digests of values (docs/formats.md, "What is hashed").

use std::fmt;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::emit::{canonicalize_within, emit};
use super::error::{Anomalies, CanonError, ScanError};
use super::index::Limits;
use super::outline::Indexed;
use super::pair::Pair;
use super::scan::skip_ws;

/// Bytes that are hashed without a pause.
const REST: usize = 64 * 1024;

/// The digest of a JSON value.
///
/// Its `Display` is the form that receipts carry: `sha256:<64 hex>` for [`Digest::Jcs`], `sha256-raw:<64 hex>` for
/// [`Digest::Raw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Digest {
    /// SHA-256 of the value's RFC 8785 form.
    Jcs([u8; 32]),
    /// SHA-256 of the value's exact bytes, because it has no unambiguous RFC 8785 form, and why.
    Raw([u8; 32], Anomalies),
}

impl Digest {
    /// Why the digest is over raw bytes; empty for [`Digest::Jcs`].
    pub const fn anomalies(&self) -> Anomalies {
        match self {
            Self::Jcs(_) => Anomalies::NONE,
            Self::Raw(_, anomalies) => *anomalies,
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, hash) = match self {
            Self::Jcs(hash) => ("sha256", hash),
            Self::Raw(hash, _) => ("sha256-raw", hash),
        };
        write!(f, "{scheme}:{}", hex::encode(hash))
    }
}

/// The digest of `value`, one whole JSON document; white space around it does not count, for [`Digest::Raw`] neither.
///
/// Memory beyond `value` itself stays under about 48 MiB. Large values are read twice from start to end, but for the
/// members of large objects that have to be reordered, which the second time are read in canonical order.
///
/// Once for about each MiB read, `page` is called with an offset: nothing below it is needed for reading on, so a caller
/// that maps a file can release all pages from the start up to there. They can be read again all the same, in the second
/// pass and for comparing long names. The offsets rise in the first pass; in the second they may fall, or be the length of
/// `value` after reading went back.
pub fn digest(value: &[u8], page: Option<&dyn Fn(usize)>) -> Result<Digest, ScanError> {
    digest_within(value, &Limits::DEFAULT, page)
}

pub(super) fn digest_within(value: &[u8], limits: &Limits, page: Option<&dyn Fn(usize)>) -> Result<Digest, ScanError> {
    let mut hash = Sha256::new();
    match canonicalize_within(value, limits, page, &mut |part| hash.update(part)) {
        Ok(()) => Ok(Digest::Jcs(hash.finalize().into())),
        Err(CanonError::Syntax(error)) => Err(error),
        Err(CanonError::Ambiguous(anomalies)) => {
            let mut hash = Sha256::new();
            raw(value, limits, page, &mut |part| hash.update(part));
            Ok(Digest::Raw(hash.finalize().into(), anomalies))
        }
    }
}

/// The [`digest()`] of the value at `value` in a document, and the SHA-256 of `whole`, which may be the document. Both
/// together take not much longer than one. `page` is called as by [`digest()`], with offsets in the document; `rest`
/// after about each 64 KiB.
///
/// # Errors
/// As [`digest()`].
pub fn digest_in(
    document: &[u8],
    indexed: &Indexed,
    value: Range<usize>,
    whole: &[u8],
    page: Option<&dyn Fn(usize)>,
    rest: &dyn Fn(),
) -> Result<(Digest, [u8; 32]), ScanError> {
    let limits = &Limits::DEFAULT;
    let mut pair = Pair::new(whole);
    let start = value.start;
    let part = &document[value];
    let in_part = page.map(|page| move |upto: usize| page(start + upto));
    let in_part = in_part.as_ref().map(|page| page as &dyn Fn(usize));
    let mut worked = 0;
    let mut sink = |part: &[u8]| {
        for part in part.chunks(REST) {
            pair.update(part);
            worked += part.len();
            if worked >= REST {
                worked = 0;
                rest();
            }
        }
    };
    let written = match &indexed.0 {
        Some(index) => emit(document, start, index, limits, page, &mut sink),
        None => canonicalize_within(part, limits, in_part, &mut sink),
    };
    let anomalies = match written {
        Ok(()) => None,
        Err(CanonError::Syntax(error)) => return Err(error),
        Err(CanonError::Ambiguous(anomalies)) => {
            pair = Pair::new(whole);
            raw(part, limits, in_part, &mut |part| {
                pair.update(part);
                rest();
            });
            Some(anomalies)
        }
    };
    while let Some(upto) = pair.go_on(limits.page) {
        if let Some(page) = page {
            page(upto);
        }
        rest();
    }
    let (hash, of_whole) = pair.finish();
    Ok((anomalies.map_or(Digest::Jcs(hash), |anomalies| Digest::Raw(hash, anomalies)), of_whole))
}

fn raw(value: &[u8], limits: &Limits, page: Option<&dyn Fn(usize)>, sink: &mut dyn FnMut(&[u8])) {
    let start = skip_ws(value, 0);
    let blank = value.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\r' | b'\t')).count();
    let mut at = start;
    for part in value[start..value.len() - blank].chunks(limits.page.max(1)) {
        sink(part);
        at += part.len();
        if let Some(page) = page {
            page(at);
        }
    }
}

/// SHA-256 (FIPS 180-4) of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 of `bytes` as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(sha256(bytes))
}
