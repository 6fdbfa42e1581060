//! Errors in files that people write: what is wrong, and where.

use crate::text::visible;
use std::{fmt, path::PathBuf};

/// Longest line that is quoted, in characters; of a longer one the part around the place is quoted.
const MAX_EXCERPT: usize = 100;

/// A file that cannot be used. `Display` gives several lines: place and message, the line, a caret, a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Path of the file.
    pub path: PathBuf,
    /// Line, from 1; `None` if the error has no place.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// What is wrong; a lower-case fragment.
    pub message: String,
    /// What to do about it.
    pub hint: Option<Box<str>>,
    /// The text of the line.
    pub excerpt: Option<Box<str>>,
    /// How many characters the place is wide.
    pub width: usize,
}

impl Error {
    /// An error of the whole file.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            column: None,
            message: message.into(),
            hint: None,
            excerpt: None,
            width: 0,
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible(&self.path.display().to_string()))?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", visible(&self.message))?;
        if let (Some(line), Some(column), Some(excerpt)) = (self.line, self.column, &self.excerpt) {
            let from = column.saturating_sub(MAX_EXCERPT / 2);
            let shown: String = excerpt.chars().skip(from).take(MAX_EXCERPT).collect();
            let before: String = shown.chars().take(column - 1 - from).collect();
            let there: String = shown.chars().skip(column - 1 - from).take(self.width.max(1)).collect();
            let (before, there) = (crate::text::width(&visible(&before)), crate::text::width(&visible(&there)));
            let gutter = " ".repeat(line.to_string().len());
            write!(f, "\n  {line} | {}", visible(&shown))?;
            write!(f, "\n  {gutter} | {}{}", " ".repeat(before), "^".repeat(there.max(1)))?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {}", visible(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
