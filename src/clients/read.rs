//! Reading a client's configuration into a tree.

mod json;
mod toml;
mod yaml;

use super::tree::Node;
use std::fmt;

/// The largest file that is read, in bytes.
pub const LARGEST: u64 = 64 << 20;

/// The language that a file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// JSON, read with comments and trailing commas.
    Json,
    /// TOML 1.1.
    Toml,
    /// YAML 1.2.
    Yaml,
}

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong; a lower-case fragment.
    pub what: String,
}

impl Fault {
    /// A fault of the whole file.
    #[must_use]
    pub fn whole(what: impl Into<String>) -> Self {
        Self { line: 0, column: 0, what: what.into() }
    }

    /// A fault at a byte of a text.
    #[must_use]
    pub fn at(text: &str, byte: usize, what: impl Into<String>) -> Self {
        let (line, column) = place(text, byte);
        Self { line, column, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.what)
    }
}

/// Line and column (characters) of a byte, both from 1. A byte order mark is no column.
#[must_use]
pub fn place(text: &str, byte: usize) -> (usize, usize) {
    let mut end = byte.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = memchr::memchr_iter(b'\n', before.as_bytes()).count() + 1;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    (line, before[start..].trim_start_matches(MARK).chars().count() + 1)
}

/// The byte order mark.
pub const MARK: char = '\u{feff}';

/// The text of a file.
///
/// # Errors
/// It is not UTF-8.
pub fn text(bytes: &[u8]) -> Result<&str, Fault> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Fault::whole("the file is UTF-16; save it as UTF-8"));
    }
    std::str::from_utf8(bytes).map_err(|e| {
        let good = String::from_utf8_lossy(&bytes[..e.valid_up_to()]).into_owned();
        Fault::at(&good, good.len(), "this is not UTF-8")
    })
}

/// Reads a text; `None` if there is nothing in it.
///
/// # Errors
/// What is wrong with it, at its place.
pub fn tree(dialect: Dialect, text: &str) -> Result<Option<Node>, Fault> {
    let body = text.trim_start_matches(MARK);
    let mark = text.len() - body.len();
    if mark > MARK.len_utf8() {
        return Err(Fault::whole("the file begins with more than one byte order mark"));
    }
    match dialect {
        Dialect::Json => json::read(text, mark),
        Dialect::Toml => toml::read(text, mark).map(Some),
        Dialect::Yaml => yaml::read(text, mark),
    }
}

/// What a JSON reader may refuse of what is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// A comment.
    Comments,
    /// A comma behind the last element.
    TrailingCommas,
    /// A byte order mark.
    Mark,
}

/// Where a JSON text has something that strict JSON has not.
#[must_use]
pub fn has_extra(text: &str, extra: Extra) -> Option<Fault> {
    match extra {
        Extra::Mark => text.starts_with(MARK).then(|| Fault { line: 1, column: 1, what: "a byte order mark".into() }),
        Extra::Comments | Extra::TrailingCommas => json::has_extra(text, extra),
    }
}
