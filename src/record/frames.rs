//! Where messages begin and end in a stream: one JSON message per line (MCP stdio), and Content-Length framing where a
//! peer uses it.
//!
//! A Content-Length header is believed only if what follows is as it says: the body must be one JSON document that ends
//! exactly there, and no line within it may be a message of its own. Otherwise the header is a junk line like any other
//! and everything after it is read line by line, as a newline peer would: no header can make us miss a message.

use crate::canon;

/// Bodies over this are not looked for after a Content-Length header.
const MAX_FRAMED: usize = 1 << 20;
/// A header block is at most this long.
const MAX_HEADER: usize = 4096;

/// What is at the beginning of a window of stream bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line of `len` bytes and its newline.
    Line {
        /// Length without the newline.
        len: usize,
    },
    /// A Content-Length header of `header` bytes, its blank line included, and a body of `len` bytes.
    Framed {
        /// Bytes before the body.
        header: usize,
        /// Length of the body.
        len: usize,
    },
    /// Neither has ended yet.
    Partial,
}

/// Looks at the beginning of `window`. `scanned` bytes of it are known to hold no newline. `closed` means that nothing
/// will follow, so a last line needs no newline.
#[must_use]
pub fn next(window: &[u8], scanned: usize, closed: bool) -> Frame {
    if could_be_header(window) {
        return match framed(window) {
            Framed::Whole { header, len } => Frame::Framed { header, len },
            // Waiting is safe: nothing is consumed, and a window that cannot grow any further is read as lines.
            Framed::Maybe if !closed && window.len() < MAX_HEADER + MAX_FRAMED => Frame::Partial,
            // What looked like a header has line ends in it.
            _ => line(window, 0, closed),
        };
    }
    line(window, scanned, closed)
}

/// The same, where no header counts.
#[must_use]
pub fn line(window: &[u8], scanned: usize, closed: bool) -> Frame {
    match memchr::memchr(b'\n', window.get(scanned..).unwrap_or_default()) {
        Some(at) => Frame::Line { len: scanned + at },
        None if closed && !window.is_empty() => Frame::Line { len: window.len() },
        None => Frame::Partial,
    }
}

fn could_be_header(window: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length:";
    let n = window.len().min(NAME.len());
    n > 0 && window[..n].eq_ignore_ascii_case(&NAME[..n])
}

enum Framed {
    No,
    Maybe,
    Whole { header: usize, len: usize },
}

fn framed(window: &[u8]) -> Framed {
    let mut at = 0;
    let mut length = None;
    loop {
        let rest = &window[at..];
        let Some(eol) = memchr::memchr(b'\n', rest) else {
            return if window.len() < MAX_HEADER { Framed::Maybe } else { Framed::No };
        };
        let line = rest[..eol].strip_suffix(b"\r").unwrap_or(&rest[..eol]);
        at += eol + 1;
        if line.is_empty() {
            break;
        }
        match header_line(line) {
            Some(found) if at <= MAX_HEADER => length = found.or(length),
            _ => return Framed::No,
        }
    }
    let Some(len) = length else { return Framed::No };
    let body = &window[at..];
    if body.len() < len {
        return if no_message_within(body) { Framed::Maybe } else { Framed::No };
    }
    let body = &body[..len];
    if canon::scan(body).is_ok() && no_message_within(body) { Framed::Whole { header: at, len } } else { Framed::No }
}

/// `None`: no header line. Otherwise the length that it declares, if it is the one that does.
#[expect(clippy::option_option, reason = "no header, a header, the header")]
fn header_line(line: &[u8]) -> Option<Option<usize>> {
    let (name, value) = line.split_at(memchr::memchr(b':', line)?);
    if !name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-') {
        return None;
    }
    if !name.eq_ignore_ascii_case(b"content-length") {
        return Some(None);
    }
    let digits = std::str::from_utf8(&value[1..]).ok()?.trim();
    digits.parse::<usize>().ok().filter(|n| (2..=MAX_FRAMED).contains(n)).map(Some)
}

/// Whether no line of a body, taken alone, is a JSON object: a newline peer would read it as a message.
fn no_message_within(body: &[u8]) -> bool {
    let mut lines = body.split(|b| *b == b'\n').peekable();
    while let Some(line) = lines.next() {
        let last = lines.peek().is_none();
        let trimmed = line.trim_ascii();
        if !last && trimmed.first() == Some(&b'{') && canon::scan(trimmed).is_ok() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_newlines_and_at_the_end_of_the_stream() {
        assert_eq!(next(b"{}\n{}", 0, false), Frame::Line { len: 2 });
        assert_eq!(next(b"{}", 0, false), Frame::Partial);
        assert_eq!(next(b"{}", 2, true), Frame::Line { len: 2 });
        assert_eq!(next(b"", 0, true), Frame::Partial);
        assert_eq!(next(b"\n", 0, false), Frame::Line { len: 0 });
    }

    #[test]
    fn a_content_length_message_is_one_whole_body() {
        let msg = b"Content-Length: 13\r\nContent-Type: x\r\n\r\n{\"a\":\"b\\n\" }\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(next(msg, 0, false), Frame::Framed { header: 39, len: 13 });
        assert_eq!(next(b"content-length: 2\n\n{}", 0, false), Frame::Framed { header: 19, len: 2 });
        for partial in [&b"C"[..], b"Content-Len", b"Content-Length: 5\r\n", b"Content-Length: 5\r\n\r\n{\"a"] {
            assert_eq!(next(partial, 0, false), Frame::Partial, "{}", String::from_utf8_lossy(partial));
        }
    }

    #[test]
    fn a_header_that_lies_is_a_junk_line_and_hides_nothing() {
        let hidden =
            b"Content-Length: 60\n\n{\"method\":\"tools/call\",\"id\":1}\n{\"method\":\"tools/call\",\"id\":2}\n";
        assert_eq!(next(hidden, 0, false), Frame::Line { len: 18 });
        for junk in [
            &b"Content-Length: 99999999999\n\n{}\n"[..],
            b"Content-Length: x\n",
            b"content-length of it\n",
            b"Content-Length: 1\r\n\r\n{}\n",
        ] {
            assert!(matches!(next(junk, 0, false), Frame::Line { .. }), "{}", String::from_utf8_lossy(junk));
        }
        let early = b"Content-Length: 500\n\n{\"method\":\"tools/call\",\"id\":1}\n";
        assert_eq!(next(early, 0, false), Frame::Line { len: 19 });
    }
}
