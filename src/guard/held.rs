//! Where messages begin and end in what is held, and what is kept of one that is too long to be held.

use super::inspect;
use crate::record::frames::{self, Frame};

/// Bytes of both ends of a long message in which its id is looked for.
const MOST: usize = 4096;

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
    /// The message itself.
    pub(super) fn body(self, window: &[u8]) -> &[u8] {
        &window[self.header..self.header + self.len]
    }

    /// Bytes of its headers and its body, where it is framed.
    pub(super) fn frame(self) -> Option<(usize, usize)> {
        (self.header > 0).then_some((self.header, self.len))
    }
}

/// Finds messages, and looks at no byte twice while one grows.
#[derive(Debug, Default)]
pub(super) struct Finder {
    /// Bytes of an unfinished message in which no end of a line was found.
    scanned: usize,
}

impl Finder {
    /// The message that stands first; `None` while it has not ended. `ended`: nothing will follow.
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

/// How many bytes of a line that is not held belong to it, and whether it ends there.
pub(super) fn rest_of_line(bytes: &[u8]) -> (usize, bool) {
    memchr::memchr(b'\n', bytes).map_or((bytes.len(), false), |at| (at + 1, true))
}

/// The first and the last bytes of a message that is not held.
#[derive(Debug)]
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    /// Of a message that begins with these bytes. They are its head alone: what they end with is [added](Self::add).
    pub(super) fn begin(bytes: &[u8]) -> Self {
        Self { head: bytes[..bytes.len().min(MOST)].to_vec(), tail: Vec::new() }
    }

    /// Of a whole message.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut ends = Self::begin(bytes);
        ends.add(bytes);
        ends
    }

    /// More of it.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(MOST)..]);
        let surplus = self.tail.len().saturating_sub(MOST);
        self.tail.drain(..surplus);
    }

    /// Its beginning.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Its id, if it can be found there.
    pub(super) fn id(&self) -> Option<&[u8]> {
        inspect::id_of_parts(&self.head, &self.tail)
    }

    /// Whether it may be a request or notification: a response names no method.
    pub(super) fn asks(&self) -> bool {
        [&self.head, &self.tail].into_iter().any(|part| memchr::memmem::find(part, b"\"method\"").is_some())
    }
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

    #[test]
    fn the_id_of_a_long_message_is_found_at_either_end() {
        let pad = "x".repeat(3 * MOST);
        for (message, id, asks) in [
            (format!(r#"{{"id":7,"method":"m","params":"{pad}"}}"#), Some(&b"7"[..]), true),
            (format!(r#"{{"method":"m","params":"{pad}","id":"a"}}"#), Some(b"\"a\""), true),
            (format!(r#"{{"id":8,"result":"{pad}"}}"#), Some(b"8"), false),
            (format!(r#"{{"params":"{pad}","method":"m"}}"#), None, true),
        ] {
            let mut ends = Ends::begin(message.as_bytes());
            message.as_bytes().chunks(100).for_each(|part| ends.add(part));
            assert_eq!((ends.id(), ends.asks()), (id, asks));
            assert_eq!(Ends::of(message.as_bytes()).id(), id);
        }
    }
}
