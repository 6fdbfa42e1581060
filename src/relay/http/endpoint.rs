//! The first event of the old transport names where messages go: an absolute URL would lead clients past us.

use super::{answer::Layer, review::Passed};
use bytes::{Bytes, BytesMut};
use url::{Origin, Url};

/// Bytes of a first event that are held.
const LIMIT: usize = 8 << 10;

/// Told once the event is whole: the target of messages, and whether it was rewritten.
pub(super) type Named = Box<dyn FnOnce(&str, bool) + Send>;

/// Holds the first event of a stream until it is whole, if it may be an `endpoint` event.
pub(super) struct FirstEvent {
    held: BytesMut,
    upstream: Origin,
    named: Option<Named>,
    /// Bytes of the upstream's answer that were taken.
    read: u64,
}

impl FirstEvent {
    pub(super) fn new(upstream: Origin, named: Named) -> Self {
        Self { held: BytesMut::new(), upstream, named: Some(named), read: 0 }
    }

    fn pass(&mut self, passes: &mut Vec<Passed>) {
        self.named = None;
        if !self.held.is_empty() {
            passes.push(Passed { bytes: self.held.split().freeze(), upto: self.read });
        }
    }
}

impl Layer for FirstEvent {
    fn push(&mut self, piece: Bytes, upto: u64, passes: &mut Vec<Passed>) {
        self.read = upto;
        if self.named.is_none() {
            passes.push(Passed { bytes: piece, upto: self.read });
            return;
        }
        self.held.extend_from_slice(&piece);
        match look(&self.held) {
            Look::More if self.held.len() <= LIMIT => {}
            Look::More | Look::Other => self.pass(passes),
            Look::Endpoint { start, end } => {
                let data = String::from_utf8_lossy(&self.held[start..end]).into_owned();
                let path = below(&data, &self.upstream);
                if let Some(named) = self.named.take() {
                    named(path.as_deref().unwrap_or(&data), path.is_some());
                }
                if let Some(path) = path {
                    let rest = self.held.split_off(end);
                    self.held.truncate(start);
                    self.held.extend_from_slice(path.as_bytes());
                    self.held.unsplit(rest);
                }
                self.pass(passes);
            }
        }
    }

    fn finish(&mut self, passes: &mut Vec<Passed>) {
        self.pass(passes);
    }
}

/// Path and query of a URL on this origin, as they were written; `None` for anything else.
fn below(data: &str, upstream: &Origin) -> Option<String> {
    let url = Url::parse(data).ok().filter(|url| url.origin() == *upstream)?;
    let after = data.split_once("://")?.1;
    match after.find(['/', '?', '#']) {
        Some(at) if after[at..].starts_with('/') => Some(after[at..].to_owned()),
        _ => Some(url[url::Position::BeforePath..].to_owned()),
    }
}

enum Look {
    /// It may become one.
    More,
    /// It is none.
    Other,
    /// It is one, and whole: where its data is.
    Endpoint { start: usize, end: usize },
}

/// Looks at the begin of a stream: comments and blank lines, then `event: endpoint` and one line of data in any order.
fn look(bytes: &[u8]) -> Look {
    let start = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let (mut at, mut event, mut data) = (start, false, None);
    loop {
        let Some(len) = bytes[at..].iter().position(|b| matches!(b, b'\r' | b'\n')) else {
            let line = &bytes[at..];
            let may = |field: &[u8]| field.starts_with(line) || line.starts_with(field);
            let possible = line.starts_with(b":") || may(b"event:") || may(b"data:") || may(b"id:") || may(b"retry:");
            return if possible || start == 0 && b"\xef\xbb\xbf".starts_with(line) { Look::More } else { Look::Other };
        };
        let line = &bytes[at..at + len];
        let value = |field: &[u8]| {
            let value = line.strip_prefix(field)?.strip_prefix(b":")?;
            Some(value.strip_prefix(b" ").unwrap_or(value))
        };
        if let Some(name) = value(b"event") {
            if name != b"endpoint" {
                return Look::Other;
            }
            event = true;
        } else if let Some(value) = value(b"data") {
            if data.is_some() {
                return Look::Other;
            }
            data = Some((at + len - value.len(), at + len));
        } else if line.is_empty() {
            match data {
                Some((start, end)) if event => return Look::Endpoint { start, end },
                Some(_) => return Look::Other,
                None => event = false,
            }
        }
        at += len + 1;
        if bytes.get(at - 1..=at) == Some(b"\r\n") {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn through(pieces: &[&[u8]]) -> (Vec<u8>, Vec<usize>, Option<(String, bool)>) {
        let told = Arc::new(Mutex::new(None));
        let tell = told.clone();
        let named = Box::new(move |target: &str, rewrote| *tell.lock().unwrap() = Some((target.to_owned(), rewrote)));
        let mut layer = FirstEvent::new(Url::parse("http://up:8000/sse").unwrap().origin(), named);
        let (mut passes, mut at) = (Vec::new(), Vec::new());
        for (n, piece) in pieces.iter().enumerate() {
            let upto = pieces[..=n].iter().map(|p| p.len() as u64).sum();
            layer.push(Bytes::copy_from_slice(piece), upto, &mut passes);
            at.push(passes.iter().map(|p| p.bytes.len()).sum());
        }
        layer.finish(&mut passes);
        let upto = passes.last().map_or(0, |p| p.upto);
        assert_eq!(upto as usize, pieces.iter().map(|p| p.len()).sum::<usize>());
        let told = told.lock().unwrap().take();
        (passes.iter().flat_map(|p| p.bytes.to_vec()).collect(), at, told)
    }

    #[test]
    fn an_absolute_url_of_the_upstream_becomes_a_path_wherever_it_is_cut() {
        let given =
            b"event: endpoint\r\ndata: http://up:8000/messages//?session_id=%2f1\r\n\r\nevent: message\ndata: {}\n\n";
        let wanted = b"event: endpoint\r\ndata: /messages//?session_id=%2f1\r\n\r\nevent: message\ndata: {}\n\n";
        for cut in 0..given.len() {
            let (out, _, told) = through(&[&given[..cut], &given[cut..]]);
            assert_eq!(out, wanted, "{cut}");
            assert_eq!(told, Some(("/messages//?session_id=%2f1".into(), true)));
        }
        let each: Vec<&[u8]> = given.chunks(1).collect();
        assert_eq!(through(&each).0, wanted);
    }

    #[test]
    fn anything_else_is_left_as_it_is() {
        for (given, told) in [
            (&b"event: endpoint\ndata: /messages?x\n\nrest"[..], Some(("/messages?x".to_owned(), false))),
            (b"data:http://other/x\nevent:endpoint\n\n", Some(("http://other/x".to_owned(), false))),
            (b": hello\n\nevent: endpoint\ndata: m\n\n", Some(("m".to_owned(), false))),
            (b"event: message\ndata: http://up:8000/x\n\n", None),
            (b"data: http://up:8000/x\n\n", None),
            (b"event: endpoint\ndata: http://up:8000/a\ndata: b\n\n", None),
            (b"event: endpoint\ndata: http://up:8000/a", None),
            (b"", None),
            (b"\n\n\n", None),
        ] {
            let (out, _, seen) = through(&[given]);
            assert_eq!((out, seen), (given.to_vec(), told), "{}", String::from_utf8_lossy(given));
        }
        assert_eq!(
            through(&[b"\xef\xbb\xbfevent: endpoint\ndata: http://up:8000\n\n"]).0,
            b"\xef\xbb\xbfevent: endpoint\ndata: /\n\n"
        );
    }

    #[test]
    fn nothing_waits_that_cannot_be_an_endpoint_and_what_may_be_is_bounded() {
        assert_eq!(through(&[b"data: {}\n\n", b"x"]).1, [10, 11]);
        assert_eq!(through(&[b"{\"a\"", b"x"]).1, [4, 5]);
        assert_eq!(through(&[b"event: mess", b"age\n"]).1, [0, 15]);
        let long = [b"event: endpoint\ndata: ".to_vec(), vec![b'x'; LIMIT]].concat();
        let (out, at, told) = through(&[&long]);
        assert_eq!((out, at, told), (long.clone(), vec![long.len()], None));
    }
}
