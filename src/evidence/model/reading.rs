//! What comes of reading a document that has a version: it reads, it needs a later assay, or it is damaged.

use super::version;
use serde::{
    Deserialize as _, Deserializer,
    de::{DeserializeOwned, Error as _},
};

pub use super::{
    schema::{later_receipt, newer_receipt},
    version::TooNew,
};

/// A document that says which version of its format it is in. What parses as one is of the version that is read: `known`
/// reads the member.
pub trait Versioned: DeserializeOwned {
    /// What it is called, in words.
    const WHAT: &'static str;
    /// The oldest version that is read.
    const OLDEST: u32;
    /// The newest version that is read.
    const KNOWN: u32;
    /// The member that says it.
    const MEMBER: &'static str;
}

/// The one answer to "can this be read?", for every format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading<T> {
    /// The document reads.
    Readable(T),
    /// A later version wrote it: only that version knows what it means.
    TooNew(TooNew),
    /// It is what no version writes; why, in words.
    Damaged(String),
}

impl<T> Reading<T> {
    /// The document, if it reads.
    #[must_use]
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Readable(document) => Some(document),
            Self::TooNew(_) | Self::Damaged(_) => None,
        }
    }
}

/// Reads a document whose version is an integer.
#[must_use]
pub fn read<T: Versioned>(bytes: &[u8]) -> Reading<T> {
    let damaged = match serde_json::from_slice::<T>(bytes) {
        Ok(document) => return Reading::Readable(document),
        Err(e) => e.to_string(),
    };
    // A later version may have members that this one does not know.
    match newer::<T>(bytes) {
        Some(newer) => Reading::TooNew(newer),
        None => Reading::Damaged(damaged),
    }
}

/// Whether a document is of a version above the one that is read; nothing else of it is looked at.
#[must_use]
pub fn newer<T: Versioned>(bytes: &[u8]) -> Option<TooNew> {
    version::newer(T::WHAT, bytes, T::MEMBER, &T::KNOWN.to_string())
}

/// Reads the version of a `T`, and refuses each but those that are read.
///
/// # Errors
/// It is another one, or none.
pub fn known<'de, T: Versioned, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    match u32::deserialize(d)? {
        found if (T::OLDEST..=T::KNOWN).contains(&found) => Ok(found),
        found => Err(D::Error::custom(format_args!("version {found} of a {} is unknown", T::WHAT))),
    }
}

/// Says which version of a document can be read, and in which member the version is.
#[macro_export]
macro_rules! versioned {
    ($type:ty, $what:literal, $known:expr) => {
        $crate::model::reading::versioned!($type, $what, $known, "v");
    };
    ($type:ty, $what:literal, $known:expr, $member:literal) => {
        $crate::model::reading::versioned!($type, $what, from $known, to $known, $member);
    };
    ($type:ty, $what:literal, from $oldest:expr, to $known:expr, $member:literal) => {
        impl $crate::model::reading::Versioned for $type {
            const WHAT: &'static str = $what;
            const OLDEST: u32 = $oldest;
            const KNOWN: u32 = $known;
            const MEMBER: &'static str = $member;
        }
    };
}
pub use versioned;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LedgerLine;

    const LINE: &str = r#"{"at":"2026-03-15T11:30:00.000Z","complete":null,"event_count":1,"hash":"","kind":"segment_start","ledger_seq":0,"note":null,"prev_hash":"","segment":"s","segment_hash":"","session_id":"mcp_0000000000000001","v":1}"#;

    #[test]
    fn a_document_reads_or_is_too_new_or_is_damaged() {
        let read = |text: &str| super::read::<LedgerLine>(text.as_bytes());
        assert!(matches!(read(LINE), Reading::Readable(_)));
        let next = format!("\"v\":{}", LedgerLine::KNOWN + 1);
        for later in [LINE.replace("\"v\":1", &next), r#"{"v":99,"other":[]}"#.into(), r#"{"v":4294967296}"#.into()] {
            assert!(matches!(read(&later), Reading::TooNew(_)), "{later}");
        }
        for bad in
            [LINE.replace("\"v\":1", "\"v\":0"), LINE.replace("segment_start", "x"), "{".into(), r#"{"v":"2"}"#.into()]
        {
            assert!(matches!(read(&bad), Reading::Damaged(_)), "{bad}");
        }
    }
}
