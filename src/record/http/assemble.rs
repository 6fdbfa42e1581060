//! From the pieces of a body to its messages.
//!
//! | body | messages |
//! |---|---|
//! | `text/event-stream` | the data of each event |
//! | JSON, by its type or by its first byte (`{`, `[`) | the whole body |
//! | anything else | none |
//!
//! A message's place is where its first byte, or the first byte of its event, is in the body; in an encoded one, in what it
//! decodes to. Of all bodies the bytes are counted and hashed as they cross.

use super::{
    decode::Decoder,
    kept::{Kept, KeptState, SpoolPlace},
};
use crate::{
    canon::{Hash, Page},
    sse::{Framer, Item},
};
use serde::{Deserialize, Serialize};
use std::{cell::OnceCell, io};

/// A whole message.
pub struct Part<'a> {
    /// Offset in the body of its first byte, or of that of its event.
    pub offset: u64,
    /// Offset in the body after it, in bytes as they cross: behind the blank line of an event.
    pub end: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Their SHA-256, where it is known without reading them again; who reads them all leaves it here.
    pub sha256: &'a OnceCell<[u8; 32]>,
    /// Releases memory of the first of its bytes, which are not read again.
    pub page: Option<&'a dyn Fn(usize)>,
    /// When its first byte was read, monotonic ns.
    pub first_byte_ns: u64,
    /// When its last byte was read, monotonic ns.
    pub read_ns: u64,
    /// Name of its event; `None` is `message`, and a body that is no event stream.
    pub event: Option<&'a [u8]>,
    /// The last event id of its stream; empty without one.
    pub id: &'a [u8],
}

/// Called with each message that is whole.
pub type Parts<'p> = &'p mut dyn FnMut(Part<'_>);

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// Its first byte will tell.
    Unknown,
    Json,
    Events,
    /// It holds no messages, or none can be found in it.
    Opaque,
}

/// SHA-256 of a body as it crosses.
enum Sum {
    /// Of what has crossed.
    Running(Hash),
    /// What has crossed is kept, all of it: it is hashed at its end, together with what is hashed of the message that it is.
    Kept,
    /// Of all of it.
    Whole([u8; 32]),
    /// Part of it was not read.
    Unknown,
}

impl Sum {
    fn of(kind: Kind, is_coded: bool) -> Self {
        if kind == Kind::Json && !is_coded { Self::Kept } else { Self::Running(Hash::default()) }
    }

    /// The next piece.
    fn update(&mut self, piece: &[u8]) {
        if let Self::Running(hash) = self {
            hash.update(piece);
        }
    }
}

/// A body on its way.
pub struct Assembly {
    kind: Kind,
    framer: Framer,
    kept: Kept,
    /// When the first byte of the message that is read was read, monotonic ns.
    first_ns: Option<u64>,
    /// When its last byte so far was read, monotonic ns.
    last_ns: Option<u64>,
    /// Part of the message that is read is missing: it will be none.
    torn: bool,
    sum: Sum,
    /// Hash of the data of the event that is read, if none of it is missing.
    data: Option<Hash>,
    bytes: u64,
    is_coded: bool,
    /// Undoes its coding, in a copy.
    decoder: Option<Decoder>,
    /// Why it cannot be decoded.
    undecoded: Option<String>,
}

/// What is needed to go on with a body.
#[derive(Debug, Serialize, Deserialize)]
pub struct AssemblyState {
    kind: Kind,
    is_coded: bool,
    undecoded: Option<String>,
    framer: Framer,
    kept: KeptState,
    first_ns: Option<u64>,
    torn: bool,
    bytes: u64,
}

/// The media type of a `Content-Type`, in lower case, without its parameters (RFC 9110 §8.3.1).
pub(super) fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl Assembly {
    /// A body of this `Content-Type` and `Content-Encoding`.
    #[must_use]
    pub fn new(content_type: Option<&str>, coding: Option<&str>, place: Option<SpoolPlace>) -> Self {
        let (decoder, undecoded) = match coding.map_or(Ok(None), Decoder::new) {
            Ok(decoder) => (decoder, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let kind = match media_type(content_type.unwrap_or_default()).as_str() {
            _ if undecoded.is_some() => Kind::Opaque,
            "text/event-stream" => Kind::Events,
            "application/json" => Kind::Json,
            _ => Kind::Unknown,
        };
        Self {
            kind,
            framer: Framer::default(),
            kept: Kept::new(place),
            first_ns: None,
            last_ns: None,
            torn: false,
            sum: Sum::of(kind, decoder.is_some()),
            data: Some(Hash::default()),
            bytes: 0,
            is_coded: decoder.is_some(),
            decoder,
            undecoded,
        }
    }

    /// Reads a piece.
    ///
    /// # Errors
    /// A large message cannot be kept: it will be none.
    pub fn take(&mut self, bytes: &[u8], ns: u64, parts: Parts<'_>) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.last_ns = Some(ns);
        if self.kind == Kind::Events && self.decoder.is_none() {
            return self.events(bytes, bytes, ns, parts);
        }
        self.sum.update(bytes);
        let Some(mut decoder) = self.decoder.take() else { return self.plain(bytes, ns, parts) };
        let mut kept = Ok(());
        let fed = decoder.feed(bytes, &mut |piece| {
            let piece = self.plain(piece, ns, parts);
            if kept.is_ok() {
                kept = piece;
            }
        });
        match fed {
            Ok(()) => self.decoder = Some(decoder),
            Err(e) => self.give_up(e.to_string()),
        }
        kept
    }

    /// It cannot be decoded any further: it holds no message from here on.
    fn give_up(&mut self, why: String) {
        self.kind = Kind::Opaque;
        self.undecoded = Some(why);
        self.kept.clear();
    }

    fn plain(&mut self, bytes: &[u8], ns: u64, parts: Parts<'_>) -> io::Result<()> {
        if self.kind == Kind::Unknown
            && let Some(first) = bytes.iter().find(|b| !b.is_ascii_whitespace())
        {
            self.kind = if matches!(first, b'{' | b'[') { Kind::Json } else { Kind::Opaque };
        }
        match self.kind {
            Kind::Events => self.events(bytes, &[], ns, parts),
            Kind::Json if !self.torn => {
                self.first_ns.get_or_insert(ns);
                let kept = self.kept.push(bytes);
                if kept.is_err() {
                    self.torn = true;
                    self.hash_kept(bytes);
                }
                kept
            }
            _ => Ok(()),
        }
    }

    /// Reads a piece of an event stream; `crossed` is what of the body is not hashed yet, and is hashed beside the data.
    fn events(&mut self, bytes: &[u8], crossed: &[u8], ns: u64, parts: Parts<'_>) -> io::Result<()> {
        let mut unhashed = crossed;
        // Of an encoded body, what crossed so far.
        let crossed = self.undecoded_end();
        let Self { framer, kept, first_ns, torn, sum, data: of_data, .. } = self;
        let mut failed = None;
        if !bytes.is_empty() {
            first_ns.get_or_insert(ns);
        }
        framer.read(bytes, &mut |item| match item {
            Item::Data(_) if *torn => {}
            Item::Data(data) => {
                let (beside, rest) = unhashed.split_at(unhashed.len().min(data.len()));
                match (&mut *sum, &mut *of_data) {
                    (Sum::Running(hash), Some(of_data)) => of_data.update_both(data, hash, beside),
                    (sum, None) => sum.update(beside),
                    (_, Some(of_data)) => of_data.update(data),
                }
                unhashed = rest;
                if let Err(e) = kept.push(data) {
                    failed = Some(e);
                    *torn = true;
                    kept.clear();
                }
            }
            Item::Nothing => {
                *torn = false;
                kept.clear();
                *of_data = Some(Hash::default());
                *first_ns = Some(ns);
            }
            Item::Event(event) => {
                let first_byte_ns = first_ns.replace(ns).unwrap_or(ns);
                let sha256 = of_data.replace(Hash::default()).map(Hash::finish);
                let sha256 = &sha256.map_or_else(OnceCell::new, OnceCell::from);
                if std::mem::take(torn) || kept.is_empty() {
                    kept.clear();
                    return;
                }
                let given = kept.take(|bytes, page| {
                    parts(Part {
                        offset: event.start,
                        end: crossed.unwrap_or(event.end),
                        bytes,
                        sha256,
                        page,
                        first_byte_ns,
                        read_ns: ns,
                        event: event.name,
                        id: event.id,
                    });
                });
                failed = failed.take().or(given.err());
            }
        });
        sum.update(unhashed);
        if !framer.is_within() {
            *first_ns = None;
        }
        failed.map_or(Ok(()), Err)
    }

    /// While a piece of an encoded body is decoded: how much of it crossed.
    fn undecoded_end(&self) -> Option<u64> {
        self.is_coded.then_some(self.bytes)
    }

    /// The body has ended; `whole`: as its sender wanted.
    ///
    /// # Errors
    /// A large message cannot be read.
    pub fn end(&mut self, whole: bool, ns: u64, parts: Parts<'_>) -> io::Result<()> {
        if let Some(Err(e)) = self.decoder.take().map(|decoder| decoder.end()) {
            self.give_up(e.to_string());
        }
        let is_message = self.kind == Kind::Json && whole && !self.torn && !self.kept.is_empty();
        if !is_message {
            self.hash_kept(&[]);
            return Ok(());
        }
        // Its end may be told later than its last byte.
        let (end, read_ns) = (self.bytes, self.last_ns.unwrap_or(ns));
        let first_byte_ns = self.first_ns.unwrap_or(read_ns);
        // It is the body, if that is not encoded and does not begin with blanks that came alone.
        let is_body = !self.is_coded && self.kept.len() == self.bytes;
        let known = self.digest().filter(|_| is_body);
        let sha256 = &known.map_or_else(OnceCell::new, OnceCell::from);
        let sum = &mut self.sum;
        self.kept.take(|bytes, page| {
            parts(Part { offset: 0, end, bytes, sha256, page, first_byte_ns, read_ns, event: None, id: b"" });
            if matches!(sum, Sum::Kept) {
                *sum = Sum::Whole(*sha256.get_or_init(|| Hash::paged(bytes, page).finish()));
            }
        })
    }

    /// The body will not be hashed as a message: of what of it is kept, and of `more`.
    fn hash_kept(&mut self, more: &[u8]) {
        if matches!(self.sum, Sum::Kept) {
            self.sum = self.kept.peek(Hash::paged).map_or(Sum::Unknown, Sum::Running);
            self.sum.update(more);
        }
    }

    /// Bytes crossed that were not given to it; how many it forgets of the message that they are part of.
    pub fn tear(&mut self) -> u64 {
        let torn = self.kept.len();
        self.kept.clear();
        self.torn = true;
        self.sum = Sum::Unknown;
        self.data = None;
        if self.decoder.take().is_some() {
            self.give_up("part of it crossed unrecorded".to_owned());
        }
        torn
    }

    /// It holds no message: it is ours.
    pub fn is_ours(&mut self) {
        self.hash_kept(&[]);
        self.kind = Kind::Opaque;
    }

    /// Whether its messages are events.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.kind == Kind::Events
    }

    /// Shows what was read of the message that is not whole; nothing of what is no message.
    ///
    /// # Errors
    /// A large message cannot be read.
    pub fn peek<R>(&mut self, with: impl FnOnce(&[u8], Page<'_>) -> R) -> io::Result<R> {
        self.kept.peek(with)
    }

    /// Offset in the body of the first byte of the event that is being read.
    #[must_use]
    pub fn within_event(&self) -> Option<u64> {
        (self.has_events() && self.framer.is_within()).then(|| self.framer.start())
    }

    /// Bytes that it keeps of a message that is not whole.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        self.kept.len()
    }

    /// SHA-256 of the body, once it has ended; `None` if not all of it was read.
    #[must_use]
    pub fn digest(&self) -> Option<[u8; 32]> {
        match &self.sum {
            Sum::Running(hash) => Some(hash.clone().finish()),
            Sum::Whole(sha256) => Some(*sha256),
            Sum::Kept | Sum::Unknown => None,
        }
    }

    /// Why it could not be decoded.
    #[must_use]
    pub fn undecoded(&self) -> Option<&str> {
        self.undecoded.as_deref()
    }

    /// What is needed to go on with it. Neither a hash that runs nor a decoder can be carried over: an encoded body has no
    /// more messages then.
    #[must_use]
    pub fn state(&self) -> AssemblyState {
        let is_lost = self.decoder.is_some() && self.bytes > 0;
        AssemblyState {
            kind: if is_lost { Kind::Opaque } else { self.kind },
            is_coded: self.is_coded,
            undecoded: if is_lost { Some("the proxy was killed".to_owned()) } else { self.undecoded.clone() },
            framer: self.framer.clone(),
            kept: self.kept.state(),
            first_ns: self.first_ns,
            torn: self.torn,
            bytes: self.bytes,
        }
    }

    /// Goes on with it.
    ///
    /// # Errors
    /// Its file is not as it was.
    pub fn restore(state: AssemblyState, place: Option<SpoolPlace>) -> io::Result<Self> {
        let AssemblyState { kind, is_coded, undecoded, framer, kept, first_ns, torn, bytes } = state;
        let kept = Kept::restore(kept, place)?;
        let sum = match Sum::of(kind, is_coded) {
            sum if bytes == 0 => sum,
            Sum::Kept if !torn && kept.len() == bytes => Sum::Kept,
            _ => Sum::Unknown,
        };
        let data = kept.is_empty().then(Hash::default);
        let (last_ns, decoder) = (None, None);
        Ok(Self { kind, framer, kept, first_ns, last_ns, torn, sum, data, bytes, is_coded, decoder, undecoded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::sha256;

    type Found = (String, u64, u64, u64, u64);

    fn run(kind: &str, pieces: &[&str], whole: bool) -> Vec<Found> {
        let mut assembly = Assembly::new(Some(kind), None, None);
        let mut all = Vec::new();
        let mut note = |part: Part<'_>| {
            let text = String::from_utf8_lossy(part.bytes).into_owned();
            assert!(part.sha256.get().is_none_or(|hash| *hash == sha256(part.bytes)));
            all.push((text, part.offset, part.end, part.first_byte_ns, part.read_ns));
        };
        for (n, piece) in pieces.iter().enumerate() {
            assembly.take(piece.as_bytes(), n as u64 + 1, &mut note).unwrap();
        }
        assembly.end(whole, 99, &mut note).unwrap();
        let all_of_it = pieces.concat();
        assert_eq!(assembly.digest().unwrap(), sha256(all_of_it.as_bytes()));
        all
    }

    #[test]
    fn a_body_of_json_is_one_message_when_it_is_whole() {
        let text = r#"{"a":1}"#;
        let found = [(text.to_owned(), 0, 7, 1, 2)];
        for kind in ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", ""] {
            assert_eq!(run(kind, &[&text[..3], &text[3..]], true), found, "{kind}");
        }
        assert!(run("application/json", &[text], false).is_empty(), "cut off");
        assert!(run("text/html", &["<p>{}</p>"], true).is_empty());
        assert!(run("application/json", &[], true).is_empty());
    }

    #[test]
    fn who_reads_a_body_as_a_message_has_hashed_the_body() {
        let mut assembly = Assembly::new(Some("application/json"), None, None);
        assembly.take(b"{}", 1, &mut |_| panic!()).unwrap();
        assembly.end(true, 2, &mut |part| part.sha256.set([7; 32]).unwrap()).unwrap();
        assert_eq!(assembly.digest(), Some([7; 32]));
        for own in [true, false] {
            let mut assembly = Assembly::new(Some("application/json"), None, None);
            assembly.take(b"{\"a\":", 1, &mut |_| panic!()).unwrap();
            let state = postcard::to_allocvec(&assembly.state()).unwrap();
            let mut assembly = Assembly::restore(postcard::from_bytes(&state).unwrap(), None).unwrap();
            if own {
                assembly.is_ours();
            }
            assembly.take(b"1}", 2, &mut |_| panic!()).unwrap();
            assembly.end(own, 3, &mut |_| panic!()).unwrap();
            assert_eq!(assembly.digest(), Some(sha256(b"{\"a\":1}")), "no message: {own}");
        }
    }

    #[test]
    fn events_are_messages_as_soon_as_they_are_whole() {
        let pieces = [": hi\n\ndata: {\"a\"", ":1}\n\nevent: ping\ndata: x\n\n", "data:\n\ndata: cut"];
        let found = run("text/event-stream", &pieces, true);
        let texts: Vec<_> = found.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!(texts, [r#"{"a":1}"#, "x"]);
        assert_eq!((found[0].1, found[0].2, found[0].3, found[0].4), (6, 21, 1, 2));
        assert_eq!((found[1].3, found[1].4), (2, 2));
    }

    #[test]
    fn encoded_bodies_are_decoded_in_a_copy() {
        let gzip = |text: &str| {
            let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            std::io::Write::write_all(&mut to, text.as_bytes()).unwrap();
            to.finish().unwrap()
        };
        let json = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        for (kind, text) in [("application/json", json.to_owned()), ("text/event-stream", format!("data: {json}\n\n"))]
        {
            let coded = gzip(&text);
            let mut assembly = Assembly::new(Some(kind), Some("gzip"), None);
            let mut all = Vec::new();
            let mut note = |part: Part<'_>| {
                assert!(part.sha256.get().is_none_or(|hash| *hash == sha256(part.bytes)));
                all.push((String::from_utf8_lossy(part.bytes).into_owned(), part.end));
            };
            for piece in coded.chunks(7) {
                assembly.take(piece, 1, &mut note).unwrap();
            }
            assembly.end(true, 2, &mut note).unwrap();
            assert_eq!(assembly.digest().unwrap(), sha256(&coded));
            assert_eq!((all.len(), all[0].0.as_str()), (1, json), "{kind}");
            assert!(all[0].1 <= coded.len() as u64 && assembly.undecoded().is_none());
        }
        let mut broken = Assembly::new(Some("application/json"), Some("gzip"), None);
        broken.take(b"no gzip", 1, &mut |_| panic!()).unwrap();
        broken.end(true, 2, &mut |_| panic!()).unwrap();
        assert!(broken.undecoded().is_some());
        assert!(Assembly::new(None, Some("rot13"), None).undecoded().is_some());
    }

    #[test]
    fn what_is_torn_is_no_message_and_the_next_event_is() {
        let mut assembly = Assembly::new(Some("text/event-stream"), None, None);
        let mut all = Vec::new();
        let mut note = |part: Part<'_>| {
            assert_eq!(part.sha256.get(), Some(&sha256(part.bytes)));
            all.push(String::from_utf8_lossy(part.bytes).into_owned());
        };
        assembly.take(b"data: {\"a\"", 1, &mut note).unwrap();
        assert_eq!(assembly.tear(), 4);
        assembly.take(b":1}\n\ndata: 2\n\n", 2, &mut note).unwrap();
        assert_eq!(all, ["2"]);
        assert_eq!(assembly.digest(), None);
    }

    #[test]
    fn a_body_goes_on_from_its_state_at_every_byte() {
        let text = "id: 7\ndata: {\"a\":\ndata: 1}\r\n\r\ndata: 2\n\n";
        let whole = run("text/event-stream", &[text], true).into_iter().map(|(text, ..)| text).collect::<Vec<_>>();
        for at in 0..text.len() {
            let mut all = Vec::new();
            let mut note = |part: Part<'_>| {
                assert!(part.sha256.get().is_none_or(|hash| *hash == sha256(part.bytes)));
                all.push(String::from_utf8_lossy(part.bytes).into_owned());
            };
            let mut first = Assembly::new(Some("text/event-stream"), None, None);
            first.take(&text.as_bytes()[..at], 1, &mut note).unwrap();
            let state = postcard::to_allocvec(&first.state()).unwrap();
            let mut second = Assembly::restore(postcard::from_bytes(&state).unwrap(), None).unwrap();
            second.take(&text.as_bytes()[at..], 2, &mut note).unwrap();
            assert_eq!(all, whole, "{at}");
        }
    }
}
