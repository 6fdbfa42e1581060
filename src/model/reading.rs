//! What comes of reading a document that has a version: it reads, it needs a later assay, or it is damaged.

use super::version;
use serde::de::DeserializeOwned;

/// A document on disk that says which version of its format it is in.
pub trait Versioned: DeserializeOwned {
    /// What it is called, in words.
    const WHAT: &'static str;
    /// The newest version that is read.
    const KNOWN: u32;

    /// The version that it says.
    fn version(&self) -> u32;
}

/// The one answer to "can this be read?", for every format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading<T> {
    /// It reads.
    Readable(T),
    /// A later version wrote it: nobody but that version can say what it means.
    TooNew(TooNew),
    /// It is what no version writes; why, in words.
    Damaged(String),
}

/// A document of a version above the newest that is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this {what} is of version {found}; this assay reads up to {known}: too new, it needs a later assay")]
pub struct TooNew {
    /// What it is.
    pub what: &'static str,
    /// Its version.
    pub found: String,
    /// The newest version that is read.
    pub known: String,
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

/// Reads a document whose version is the integer `v`.
#[must_use]
pub fn read<T: Versioned>(bytes: &[u8]) -> Reading<T> {
    let damaged = match serde_json::from_slice::<T>(bytes) {
        Ok(document) if document.version() == T::KNOWN => return Reading::Readable(document),
        Ok(document) => format!("version {} of a {} was never written", document.version(), T::WHAT),
        Err(e) => e.to_string(),
    };
    // A later version may have members that this one does not know.
    match version::newer(T::WHAT, bytes, "v", &T::KNOWN.to_string()) {
        Some(newer) => Reading::TooNew(newer),
        None => Reading::Damaged(damaged),
    }
}

/// Whether the `schema_version` of a receipt is above the one that is read.
#[must_use]
pub fn newer_receipt(bytes: &[u8]) -> Option<TooNew> {
    let known = super::receipt::SCHEMA_VERSION;
    // Of most lines this is all that is looked at: stored content may have such a member too, so it must be the only one.
    let mut named = memchr::memmem::find_iter(bytes, "\"schema_version\"");
    let here = named.next().map_or(&[][..], |at| &bytes[at..]);
    if here.starts_with(format!("\"schema_version\":\"{known}\"").as_bytes()) && named.next().is_none() {
        return None;
    }
    later_receipt(bytes)
}

/// The same of a line that does not read as a receipt: looked at as a whole.
#[must_use]
pub fn later_receipt(bytes: &[u8]) -> Option<TooNew> {
    version::newer("receipt", bytes, "schema_version", super::receipt::SCHEMA_VERSION)
}

macro_rules! versioned {
    ($type:ty, $what:literal, $known:expr) => {
        impl $crate::model::reading::Versioned for $type {
            const WHAT: &'static str = $what;
            const KNOWN: u32 = $known;

            fn version(&self) -> u32 {
                self.v
            }
        }
    };
}
pub(crate) use versioned;

versioned!(super::AuditEvent, "audit event", super::event::EVENT_VERSION);
versioned!(super::LedgerLine, "ledger line", super::ledger::LEDGER_VERSION);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LedgerLine;

    const LINE: &str = r#"{"at":"2026-03-15T11:30:00.000Z","complete":null,"event_count":1,"hash":"","kind":"segment_start","ledger_seq":0,"note":null,"prev_hash":"","segment":"s","segment_hash":"","session_id":"mcp_0000000000000001","v":1}"#;

    #[test]
    fn a_document_reads_or_is_too_new_or_is_damaged() {
        let read = |text: &str| super::read::<LedgerLine>(text.as_bytes());
        assert!(matches!(read(LINE), Reading::Readable(_)));
        for later in [LINE.replace("\"v\":1", "\"v\":2"), r#"{"v":99,"other":[]}"#.into(), r#"{"v":4294967296}"#.into()]
        {
            assert!(matches!(read(&later), Reading::TooNew(_)), "{later}");
        }
        for bad in
            [LINE.replace("\"v\":1", "\"v\":0"), LINE.replace("segment_start", "x"), "{".into(), r#"{"v":"2"}"#.into()]
        {
            assert!(matches!(read(&bad), Reading::Damaged(_)), "{bad}");
        }
    }

    #[test]
    fn a_receipt_is_too_new_by_its_schema() {
        let newer = |v: &str| newer_receipt(format!(r#"{{"schema_version":"{v}"}}"#).as_bytes()).is_some();
        assert!(newer("3.1") && newer("4.0") && newer("3.10"));
        let decoy = br#"{"arguments_content":{"schema_version":"3.0"},"schema_version":"3.1"}"#;
        assert!(newer_receipt(decoy).is_some());
        assert!(!newer("3.0") && !newer("2.9") && !newer("x") && !newer("3") && newer_receipt(b"{}").is_none());
    }
}
