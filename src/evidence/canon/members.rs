//! Direct members of an object and elements of an array, without a look into them beyond their syntax.

use std::borrow::Cow;
use std::ops::Range;

use super::error::{ScanError, ScanErrorKind};
use super::scan::{Events, finish, name, scan_at, skip_ws, walk};
use super::string::decode_string;

/// A direct member of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// The name verbatim, with its quotes.
    pub raw_key: &'a [u8],
    /// The decoded name; `None` where it has none (lone surrogate, invalid UTF-8).
    pub key: Option<Cow<'a, str>>,
    /// Where `raw_key` is in the bytes given to [`members`].
    pub key_range: Range<usize>,
    /// Where the value is in the bytes given to [`members`], without white space around it.
    pub value: Range<usize>,
}

/// Iterator of [`members`].
#[derive(Debug, Clone)]
pub struct Members<'a>(Walk<'a>);

/// Iterator of [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a>(Walk<'a>);

/// Told, now and then, an offset below which nothing will be read again in this pass.
pub type Page<'a> = Option<&'a dyn Fn(usize)>;

pub(super) struct Paging<'a>(pub(super) Page<'a>);

impl Events for Paging<'_> {
    fn passed(&mut self, at: usize) {
        if let Some(page) = self.0 {
            page(at);
        }
    }
}

fn skip(bytes: &[u8], pos: usize, page: Page<'_>) -> Result<usize, ScanError> {
    match page {
        None => scan_at(bytes, pos),
        Some(_) => walk(bytes, pos, &mut Paging(page)),
    }
}

#[derive(Clone)]
struct Walk<'a> {
    bytes: &'a [u8],
    page: Page<'a>,
    /// Just after the opening bracket or the last value.
    at: usize,
    first: bool,
    done: bool,
}

/// The direct members of the one object that `bytes` is, white space around it allowed, in the order of the text;
/// duplicate names are not judged. Values are skipped with their syntax checked. After an error the iterator ends.
pub fn members(bytes: &[u8]) -> Result<Members<'_>, ScanError> {
    members_paged(bytes, None)
}

/// As [`members`], for bytes in pages that can be released.
pub fn members_paged<'a>(bytes: &'a [u8], page: Page<'a>) -> Result<Members<'a>, ScanError> {
    Walk::new(bytes, b'{', ScanErrorKind::NotAnObject, page).map(Members)
}

/// The ranges of the elements of the one array that `bytes` is, white space around it allowed. Elements are skipped with
/// their syntax checked. After an error the iterator ends.
pub fn elements(bytes: &[u8]) -> Result<Elements<'_>, ScanError> {
    elements_paged(bytes, None)
}

/// As [`elements`], for bytes in pages that can be released.
pub fn elements_paged<'a>(bytes: &'a [u8], page: Page<'a>) -> Result<Elements<'a>, ScanError> {
    Walk::new(bytes, b'[', ScanErrorKind::NotAnArray, page).map(Elements)
}

impl std::fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("at", &self.at).field("done", &self.done).finish_non_exhaustive()
    }
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], opening: u8, otherwise: ScanErrorKind, page: Page<'a>) -> Result<Self, ScanError> {
        let at = skip_ws(bytes, 0);
        match bytes.get(at) {
            Some(&byte) if byte == opening => Ok(Self { bytes, page, at: at + 1, first: true, done: false }),
            Some(_) => Err(ScanError::new(at, otherwise)),
            None => Err(ScanError::unexpected(bytes, at)),
        }
    }

    /// The start of the next member or element, or `None` at the end, after the closing bracket.
    fn advance(&mut self, closing: u8) -> Result<Option<usize>, ScanError> {
        let at = skip_ws(self.bytes, self.at);
        match self.bytes.get(at) {
            Some(&byte) if byte == closing => {
                finish(self.bytes, at + 1)?;
                Ok(None)
            }
            Some(b',') if !self.first => Ok(Some(skip_ws(self.bytes, at + 1))),
            Some(_) if self.first => {
                self.first = false;
                Ok(Some(at))
            }
            _ => Err(ScanError::unexpected(self.bytes, at)),
        }
    }

    fn step<T>(
        &mut self,
        closing: u8,
        read: impl FnOnce(&mut Self, usize) -> Result<T, ScanError>,
    ) -> Option<Result<T, ScanError>> {
        if self.done {
            return None;
        }
        let item = match self.advance(closing) {
            Ok(Some(at)) => read(self, at),
            Ok(None) => {
                self.done = true;
                return None;
            }
            Err(error) => Err(error),
        };
        self.done = item.is_err();
        Some(item)
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.step(b'}', |walk, at| {
            let bytes = walk.bytes;
            let (scanned, value) = name(bytes, at, &mut |passed| Paging(walk.page).passed(passed))?;
            walk.at = skip(bytes, value, walk.page)?;
            let raw_key = &bytes[at..scanned.end];
            Ok(Member { raw_key, key: decode_string(raw_key), key_range: at..scanned.end, value: value..walk.at })
        })
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Range<usize>, ScanError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.step(b']', |walk, at| {
            walk.at = skip(walk.bytes, at, walk.page)?;
            Ok(at..walk.at)
        })
    }
}

impl std::iter::FusedIterator for Members<'_> {}
impl std::iter::FusedIterator for Elements<'_> {}
