//! Why a line or a document does not parse: a later version wrote it, or it is damaged. Asked only of what did
//! not read as ours.

use super::{finding::Finding, words::Stage};
use crate::{
    canon,
    model::{
        cursor::shown,
        reading::{self, TooNew, Versioned},
    },
};

/// Why something does not read.
#[derive(Debug)]
pub enum Unread {
    /// A later version wrote it.
    TooNew(TooNew),
    /// It is wrong: an error code and words.
    Wrong(&'static str, String),
}

impl Unread {
    /// Of a schema that is not the one of this version, and does not say that it is a later one.
    pub fn schema(what: impl Into<String>) -> Self {
        Self::Wrong("E_SCHEMA_UNKNOWN", what.into())
    }

    /// The finding for a line, and whether a later version wrote it.
    pub fn of_line(self, stage: Stage, expected: &str, line: &[u8]) -> (Finding, bool) {
        match self {
            Self::TooNew(newer) => (Finding::too_new(stage, &newer), true),
            Self::Wrong(code, what) => (Finding::new(code, stage, what).sides(expected, shown(line)), false),
        }
    }

    /// The finding for a document, and whether a later version wrote it.
    pub fn of_document(self, stage: Stage, name: &str) -> (Finding, bool) {
        match self {
            Self::TooNew(newer) => (Finding::too_new(stage, &newer).file(name), true),
            Self::Wrong(code, what) => (Finding::new(code, stage, format!("{name}: {what}")).file(name), false),
        }
    }
}

/// What keeps a line from being unambiguous JSON at all: then it states no version either.
pub fn not_json(line: &[u8]) -> Option<(&'static str, String)> {
    match canon::scan(line) {
        Err(e) => Some(("E_CANON_MISMATCH", format!("not JSON: {e}"))),
        Ok(anomalies) if !anomalies.is_empty() => Some(("E_CANON_MISMATCH", format!("ambiguous JSON: {anomalies}"))),
        Ok(_) => None,
    }
}

/// What says the right thing in the wrong bytes.
pub fn not_canonical() -> Unread {
    Unread::Wrong("E_CANON_MISMATCH", "not the canonical line (RFC 8785) of what it says".to_owned())
}

/// Checks `json` before its members are looked at: it is not JSON, or it is a `T` of a later version.
pub fn foremost<T: Versioned>(json: &[u8]) -> Option<Unread> {
    if let Some((code, words)) = not_json(json) {
        return Some(Unread::Wrong(code, words));
    }
    reading::newer::<T>(json).map(Unread::TooNew)
}

/// Why a document that is one line is not the canonical form of a `T`.
pub fn explain_document<T: Versioned>(line: &[u8], newline: bool) -> Unread {
    if let Some(reason) = foremost::<T>(line) {
        return reason;
    }
    match serde_json::from_slice::<T>(line) {
        Err(e) => Unread::schema(plain(&e)),
        Ok(_) if !newline || !canon::is_canonical(line) => not_canonical(),
        Ok(_) => Unread::schema("a member has a value that the schema does not allow"),
    }
}

/// A serde error without the position, which is always line 1.
pub fn plain(e: &serde_json::Error) -> String {
    let text = e.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}
