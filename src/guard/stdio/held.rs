//! Where messages begin and end in what is held.

use crate::record::frames::{self, Frame};

/// A whole message at the beginning of what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of Content-Length headers before it.
    header: usize,
    len: usize,
    /// Bytes of all of it, headers and newline included.
    pub(super) end: usize,
}

impl Found {
    /// The message, without headers and newline.
    pub(super) fn body(self, window: &[u8]) -> &[u8] {
        &window[self.header..self.header + self.len]
    }

    /// Bytes of its headers and its body, if it is framed.
    pub(super) fn frame(self) -> Option<(usize, usize)> {
        (self.header > 0).then_some((self.header, self.len))
    }
}

/// Finds messages, without looking at any byte twice while one grows.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// Bytes of an unfinished message in which no end of a line was found.
    scanned: usize,
}

impl Finder {
    /// The first message; `None` while it has not ended. `ended`: nothing will follow.
    pub(super) fn next(&mut self, window: &[u8], ended: bool) -> Option<Found> {
        let scanned = std::mem::take(&mut self.scanned);
        match frames::next(window, scanned.min(window.len()), ended) {
            Frame::Line { len } => Some(Found { header: 0, len, end: len + usize::from(len < window.len()) }),
            Frame::Framed { header, len } => Some(Found { header, len, end: header + len }),
            Frame::Partial => {
                self.scanned = window.len();
                None
            }
        }
    }

    /// What was held is gone.
    pub(super) fn forget(&mut self) {
        self.scanned = 0;
    }
}

/// How many bytes belong to a line that is not held, and whether it ends there.
pub(super) fn rest_of_line(bytes: &[u8]) -> (usize, bool) {
    memchr::memchr(b'\n', bytes).map_or((bytes.len(), false), |at| (at + 1, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_when_it_is_whole() {
        let mut finder = Finder::default();
        assert_eq!(finder.next(b"{\"a\":", false), None);
        assert_eq!(finder.scanned, 5);
        let found = finder.next(b"{\"a\":1}\n{", false).unwrap();
        assert_eq!((found.body(b"{\"a\":1}\n{"), found.frame(), found.end), (&b"{\"a\":1}"[..], None, 8));
        let framed = b"Content-Length: 7\r\n\r\n{\"a\":1}";
        assert_eq!(finder.next(&framed[..25], false), None);
        let found = finder.next(framed, false).unwrap();
        assert_eq!((found.body(framed), found.frame(), found.end), (&b"{\"a\":1}"[..], Some((21, 7)), 28));
        assert_eq!(finder.next(b"rest", true).map(|f| f.end), Some(4));
    }

    #[test]
    fn a_header_that_is_none_after_all_is_a_line_of_its_own() {
        let mut finder = Finder::default();
        let sent = b"Content-Length: 50\r\n\r\n{\"method\":\"x\"}\n{}\n";
        assert_eq!(finder.next(&sent[..22], false), None);
        assert_eq!(finder.next(sent, false).map(|f| f.end), Some(20));
    }
}
