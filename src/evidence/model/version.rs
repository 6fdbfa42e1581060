//! Versions of formats, and which of them is the later one.
//!
//! A version is a major and a minor number. The integer `N` is `N.0`; a later minor version is in the same member, as
//! the text `N.M`. Members that are texts from the first (`3.0`, `0.1.0`) may also be `N` alone.

use super::ids::MAX_INTEGER;
use crate::canon;
use std::{borrow::Cow, io};

/// A version; versions of assay's contract have a third number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version([u64; 3]);

impl Version {
    /// Reads `N`, `N.M` or `N.M.P`: decimal digits without leading zeros, each number below 2^53.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0; 3];
        for (n, part) in text.split('.').enumerate() {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            let plain = plain && (part == "0" || !part.starts_with('0'));
            *out.get_mut(n)? = part.parse().ok().filter(|n| plain && *n <= MAX_INTEGER)?;
        }
        Some(Self(out))
    }
}

/// A document of a version above the newest that is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this {what} is of version {found}; this assay reads up to {known}: too new, it needs a later assay")]
pub struct TooNew {
    /// What it is.
    pub what: &'static str,
    /// The version that was found.
    pub found: String,
    /// The newest version that is read.
    pub known: String,
}

impl TooNew {
    /// What an error of the system carries, if it is this.
    #[must_use]
    pub fn carried_by(e: &io::Error) -> Option<&Self> {
        e.get_ref()?.downcast_ref()
    }
}

impl From<TooNew> for io::Error {
    fn from(e: TooNew) -> Self {
        Self::new(io::ErrorKind::Unsupported, e)
    }
}

/// The version that a JSON object states in one of its members, if that is above the one that is `known`. Nothing for a value
/// that is not a version, a member that is not there or is there twice, and for what is not a JSON object.
#[must_use]
pub fn newer(what: &'static str, json: &[u8], member: &str, known: &str) -> Option<TooNew> {
    newer_value(what, stated(json, member)?, known)
}

/// The same for the raw value of such a member.
#[must_use]
pub fn newer_value(what: &'static str, raw: &[u8], known: &str) -> Option<TooNew> {
    let number = std::str::from_utf8(raw).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    let found = match number {
        Some(number) => Cow::Borrowed(number),
        // A text counts as a version only if it or `known` has a minor part.
        None => canon::decode_string(raw).filter(|text| known.contains('.') || text.contains('.'))?,
    };
    newer_text(what, &found, known)
}

/// The same of a version that was read.
#[must_use]
pub fn newer_text(what: &'static str, found: &str, known: &str) -> Option<TooNew> {
    let later = Version::parse(found)? > Version::parse(known)?;
    later.then(|| TooNew { what, found: found.to_owned(), known: known.to_owned() })
}

/// The raw value of one member of a JSON object.
#[must_use]
pub fn stated<'a>(json: &'a [u8], member: &str) -> Option<&'a [u8]> {
    let mut found = None;
    // To the end: what is torn states nothing.
    for m in canon::members(json).ok()? {
        let m = m.ok()?;
        if m.key.as_deref() == Some(member) && found.replace(&json[m.value]).is_some() {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_version_is_one_that_says_so_in_a_form_that_is_written() {
        let v = |raw: &str| newer("x", format!("{{\"a\":[],\"v\":{raw}}}").as_bytes(), "v", "1").map(|t| t.found);
        for later in ["2", "4294967296", "9007199254740991", "\"1.1\"", "\"2.0\"", "\"1.10\"", "\"\\u0032.0\""] {
            assert!(v(later).is_some(), "{later}");
        }
        for none in [
            "0",
            "1",
            "-1",
            "-0",
            "1.5",
            "2.0",
            "1e3",
            "18446744073709551616",
            "9007199254740992",
            "02",
            "\"2\"",
            "\"1.0\"",
            "\"0.9\"",
            "\"01.1\"",
            "\"1.\"",
            "\".1\"",
            "\"1.1.1.1\"",
            "\"+2.0\"",
            "\" 2.0\"",
            "\"v2.0\"",
            "\"\"",
            "null",
            "true",
            "[2]",
            "{}",
            "2,\"v\":2",
            "2,\"\\u0076\":2",
            "2}x",
        ] {
            assert_eq!(v(none), None, "{none}");
        }
        let text = |raw: &str| newer("x", format!("{{\"s\":{raw}}}").as_bytes(), "s", "3.0").map(|t| t.found);
        assert_eq!([text("\"3.1\""), text("\"4\""), text("4")].map(|t| t.unwrap()), ["3.1", "4", "4"]);
        assert_eq!([text("\"3.0\""), text("\"3\""), text("3"), text("\"2.9\""), text("3.1")], [const { None }; 5]);
        let three = |found| newer_text("x", found, "0.1.0").is_some();
        assert!(three("0.1.1") && three("0.2.0") && three("1.0.0") && three("999") && three("0.10.0"));
        assert!(!three("0.1.0") && !three("0.0.9") && !three("0.1") && !three("0.1.0.1") && !three("0.1.0-rc1"));
    }
}
