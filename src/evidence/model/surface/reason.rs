//! Why a listing is not complete.

use std::fmt;

/// What of a listing is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Pages.
    Pages,
    /// Items over all pages.
    Items,
    /// Bytes of results over all pages.
    Bytes,
}

/// Why a listing is not complete. Its `Display` is for people, [`Reason::word`] is what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The facet changed while it was listed.
    #[error("the server said that the list had changed while it was being listed")]
    ChangedMeanwhile,
    /// A cursor came twice.
    #[error("the server gave a cursor a second time")]
    CursorTwice,
    /// A cursor that is neither a string nor null.
    #[error("a cursor is not a string")]
    BadCursor,
    /// A page was asked for with a cursor that no listing waits for.
    #[error("a page was asked for with a cursor that no page had given")]
    StrayCursor,
    /// An error took the place of a page.
    #[error("the server answered with error {0}")]
    Failed(i64),
    /// The result holds no list.
    #[error("the answer holds no list")]
    NoList,
    /// The result can be read in two ways.
    #[error("the answer can be read in two ways")]
    Ambiguous,
    /// Longer than what is read.
    #[error("the list is too long: it has more {0} than are read")]
    TooLong(Bound),
    /// No further page was asked for, or its answer never came.
    #[error("not all pages were asked for")]
    Abandoned,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pages => "pages",
            Self::Items => "items",
            Self::Bytes => "bytes",
        })
    }
}

/// Reasons that are one word.
const WORDS: [(&str, Reason); 10] = [
    ("changed_meanwhile", Reason::ChangedMeanwhile),
    ("cursor_twice", Reason::CursorTwice),
    ("bad_cursor", Reason::BadCursor),
    ("stray_cursor", Reason::StrayCursor),
    ("no_list", Reason::NoList),
    ("ambiguous", Reason::Ambiguous),
    ("too_many_pages", Reason::TooLong(Bound::Pages)),
    ("too_many_items", Reason::TooLong(Bound::Items)),
    ("too_many_bytes", Reason::TooLong(Bound::Bytes)),
    ("abandoned", Reason::Abandoned),
];

impl Reason {
    /// As it is written: a word, or `error:` and the code of a JSON-RPC error.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Failed(code) => format!("error:{code}"),
            other => WORDS.iter().find(|(_, r)| r == other).map_or("", |(word, _)| word).to_owned(),
        }
    }

    /// The reason that a word stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        if let Some(code) = word.strip_prefix("error:") {
            return code.parse().ok().map(Self::Failed);
        }
        WORDS.iter().find(|(known, _)| *known == word).map(|(_, reason)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_read_as_it_is_written() {
        for reason in WORDS.iter().map(|(_, r)| *r).chain([Reason::Failed(-32_601)]) {
            assert_eq!(Reason::of(&reason.word()), Some(reason));
            assert!(!reason.word().is_empty());
        }
        assert_eq!(Reason::of("later"), None);
    }
}
