//! What the pages of any kind of evidence have in common.

use super::{LineAt, Pages, Progress};
use std::{io, marker::PhantomData, ops::Range, path::Path};

/// What a line of a file is.
pub trait Entry {
    /// The number that a line says it has.
    fn number(line: &[u8]) -> Option<u64>;

    /// Reads a line.
    fn of(line: &LineAt<'_>) -> Self;
}

/// An evidence file by its entries. An entry's number is that of its line; in a file that is as it should be, the one that it
/// says it has.
#[derive(Debug, Clone)]
pub struct Entries<T> {
    pages: Pages,
    _of: PhantomData<fn() -> T>,
}

impl<T: Entry> Entries<T> {
    /// Opens a file and begins to index it in the background. Its last entries can be read at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Pages::open(path, Some(T::number)).map(|pages| Self { pages, _of: PhantomData })
    }

    /// The lines.
    #[must_use]
    pub const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// How many there are: see [`Pages::len`].
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pages.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How far the index is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.pages.progress()
    }

    /// Looks whether the file has grown: see [`Pages::refresh`].
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh(&self) -> io::Result<()> {
        self.pages.refresh()
    }

    /// The entries with these numbers, as far as they are there.
    ///
    /// # Errors
    /// What the system says.
    pub fn rows(&self, range: Range<u64>) -> io::Result<Vec<T>> {
        let mut rows = Vec::new();
        self.pages.lines(range, &mut |line| {
            rows.push(T::of(&line));
            true
        })?;
        Ok(rows)
    }

    /// The exact bytes of an entry, as they are hashed: see [`Pages::line`].
    ///
    /// # Errors
    /// What the system says.
    pub fn line(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        self.pages.line(number)
    }
}
