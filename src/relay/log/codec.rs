//! How an entry is a record of the log's file. Numbers are little-endian; a record begins at a multiple of 8 bytes.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | bytes of payload, at most 128 KiB |
//! | 4 | 2 | kind |
//! | 6 | 2 | flags: bit 0 server to client, bit 1 made by the recorder |
//! | 8 | 8 | exchange |
//! | 16 | 8 | place: an offset in the body |
//! | 24 | 8 | when it was put in, monotonic ns |
//! | 32 | 8 | bytes of a gap |
//! | 40 | | payload, then zeros up to a multiple of 8 bytes |
//!
//! | kind | entry | place | payload |
//! |---|---|---|---|
//! | 1 | request | 0 | [`RequestHead`](super::RequestHead) in postcard's format |
//! | 2 | response | 0 | [`ResponseHead`](super::ResponseHead), same |
//! | 3 | data | bytes before it | the bytes, at most 64 KiB |
//! | 4 | end | 0 | [`BodyEnd`](super::BodyEnd) in postcard's format |
//! | 5 | wrote | the offset | none |
//! | 6 | ruling | offset after the message | the ruling |
//! | 7 | gap | bytes before it | none |
//! | 8 | note | 0 | [`NoteCode`](super::NoteCode) and text in postcard's format |
//!
//! A change of any of this is a new [version](crate::relay::capture::VERSION) of the capture.

use super::{Entry, Flow};
use crate::model::Direction;
use serde::{Serialize, de::DeserializeOwned};

/// Bytes before the payload.
pub(super) const HEADER: usize = 40;
/// The longest piece of a body in one record, in bytes.
pub(super) const PIECE: usize = 64 << 10;
/// The longest payload, in bytes.
pub(super) const LARGEST: usize = 128 << 10;
/// The longest text of a note, in bytes.
const NOTE_TEXT: usize = 1 << 10;

const REQUEST: u16 = 1;
const RESPONSE: u16 = 2;
const DATA: u16 = 3;
const END: u16 = 4;
const WROTE: u16 = 5;
const RULING: u16 = 6;
const GAP: u16 = 7;
const NOTE: u16 = 8;

const TO_CLIENT: u16 = 1;
const OWN: u16 = 2;

/// An entry as it was put in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored<'a> {
    pub flow: Flow,
    pub ns: u64,
    pub entry: Entry<'a>,
}

/// Why there is no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// The record ends after these bytes.
    Incomplete,
    /// It is no record; so many bytes have to be left out.
    Damaged(usize),
}

/// Bytes of a record with so many bytes of payload.
pub(super) const fn size(payload: usize) -> usize {
    HEADER + payload.next_multiple_of(8)
}

/// Writes a record to the beginning of `space`, and says how many bytes it takes; `None`: there is no room, or it is
/// longer than a record can be.
pub(super) fn write(flow: Flow, ns: u64, entry: &Entry<'_>, space: &mut [u8]) -> Option<usize> {
    let (head, body) = space.split_first_chunk_mut::<HEADER>()?;
    let most = body.len().min(LARGEST);
    let body = &mut body[..most];
    let (kind, place, gap, payload) = match entry {
        Entry::Request(head) => (REQUEST, 0, 0, plain(head, body)?),
        Entry::Response(head) => (RESPONSE, 0, 0, plain(head, body)?),
        Entry::Data { offset, bytes, .. } => (DATA, *offset, 0, copy(bytes, body)?),
        Entry::End(end) => (END, 0, 0, plain(end, body)?),
        Entry::Wrote { upto } => (WROTE, *upto, 0, 0),
        Entry::Ruling { end, record } => (RULING, *end, 0, copy(record, body)?),
        Entry::Gap { offset, bytes } => (GAP, *offset, *bytes, 0),
        Entry::Note { code, text } => {
            let text = &text[..text.floor_char_boundary(NOTE_TEXT)];
            (NOTE, 0, 0, plain(&(code, text), body)?)
        }
    };
    let used = size(payload);
    body.get_mut(payload..used - HEADER)?.fill(0);
    let is_own = matches!(entry, Entry::Data { own: true, .. });
    let flags = if is_own { OWN } else { 0 } | if flow.direction == Direction::ServerToClient { TO_CLIENT } else { 0 };
    head[..4].copy_from_slice(&u32::try_from(payload).ok()?.to_le_bytes());
    head[4..6].copy_from_slice(&kind.to_le_bytes());
    head[6..8].copy_from_slice(&flags.to_le_bytes());
    for (at, word) in [(8, flow.exchange), (16, place), (24, ns), (32, gap)] {
        head[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    Some(used)
}

fn plain(value: &impl Serialize, space: &mut [u8]) -> Option<usize> {
    Some(postcard::to_slice(value, space).ok()?.len())
}

fn copy(bytes: &[u8], space: &mut [u8]) -> Option<usize> {
    space.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

/// Reads the record at the beginning of `bytes`, whatever they are, and says how many bytes it takes.
///
/// # Errors
/// It is not whole, or none.
pub(super) fn read(bytes: &[u8]) -> Result<(Stored<'_>, usize), Unread> {
    let (head, body) = bytes.split_first_chunk::<HEADER>().ok_or(Unread::Incomplete)?;
    let [p0, p1, p2, p3, k0, k1, f0, f1, ..] = *head;
    let payload = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
    if payload > LARGEST {
        return Err(Unread::Damaged(bytes.len()));
    }
    let used = size(payload);
    if bytes.len() < used {
        return Err(Unread::Incomplete);
    }
    let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let (kind, flags) = (u16::from_le_bytes([k0, k1]), u16::from_le_bytes([f0, f1]));
    let (place, gap) = (word(16), word(32));
    let direction = if flags & TO_CLIENT == 0 { Direction::ClientToServer } else { Direction::ServerToClient };
    let damaged = Unread::Damaged(used);
    if flags & !(TO_CLIENT | OWN) != 0 {
        return Err(damaged);
    }
    let body = &body[..payload];
    let entry = match kind {
        REQUEST => Entry::Request(value(body).ok_or(damaged)?),
        RESPONSE => Entry::Response(value(body).ok_or(damaged)?),
        DATA => Entry::Data { offset: place, bytes: body, own: flags & OWN != 0 },
        END => Entry::End(value(body).ok_or(damaged)?),
        WROTE if body.is_empty() => Entry::Wrote { upto: place },
        RULING => Entry::Ruling { end: place, record: body },
        GAP if body.is_empty() => Entry::Gap { offset: place, bytes: gap },
        NOTE => match postcard::take_from_bytes(body) {
            Ok(((code, text), [])) => Entry::Note { code, text },
            _ => return Err(damaged),
        },
        _ => return Err(damaged),
    };
    Ok((Stored { flow: Flow { exchange: word(8), direction }, ns: word(24), entry }, used))
}

fn value<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    postcard::take_from_bytes(body).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::super::{AnsweredBy, BodyEnd, Cause, HttpVersion, NoteCode, RequestHead, ResponseHead, Target};
    use super::*;
    use proptest::prelude::*;

    /// One of each kind.
    fn entries() -> Vec<Entry<'static>> {
        let request = RequestHead {
            route: 3,
            connection: u64::MAX,
            method: "POST".into(),
            version: HttpVersion::H11,
            endpoint: true,
            target: Target { path: "/mcp".into(), query: vec!["a".into(), String::new()], digest: "0".repeat(16) },
            names: vec!["Host".into(), "content-TYPE".into()],
            values: vec![("content-type".into(), "application/json".into())],
            session: Some("f".repeat(16)),
            credential: None,
            peer: "loopback".into(),
        };
        let response = ResponseHead {
            answered_by: AnsweredBy::Assay,
            status: 502,
            version: HttpVersion::H2,
            names: vec![],
            values: vec![("server".into(), "é\u{0}".into())],
            session: None,
            reused: true,
        };
        let end =
            BodyEnd { bytes: 1 << 40, cause: Cause::UpstreamLost, trailers: vec!["X".into()], sha256: Some([7; 32]) };
        vec![
            Entry::Request(request),
            Entry::Response(response),
            Entry::Data { offset: 9, bytes: b"{\"a\":1}", own: true },
            Entry::Data { offset: u64::MAX, bytes: b"", own: false },
            Entry::End(end),
            Entry::Wrote { upto: 77 },
            Entry::Ruling { end: 8, record: &[1, 2, 3] },
            Entry::Gap { offset: 1, bytes: 2 },
            Entry::Note { code: NoteCode::Retried, text: "once more" },
        ]
    }

    fn written(flow: Flow, entry: &Entry<'_>) -> Vec<u8> {
        let mut space = vec![0xaa; 2 * LARGEST];
        let used = write(flow, 12345, entry, &mut space).unwrap();
        space.truncate(used);
        space
    }

    #[test]
    fn every_entry_reads_as_it_was_written_and_takes_no_more_room_than_it_says() {
        for flow in [Flow::request(1), Flow::response(u64::MAX)] {
            for entry in entries() {
                let bytes = written(flow, &entry);
                assert_eq!(bytes.len() % 8, 0);
                let padded = [bytes.clone(), vec![0xff; 100]].concat();
                assert_eq!(read(&padded), Ok((Stored { flow, ns: 12345, entry: entry.clone() }, bytes.len())));
                for room in 0..bytes.len() {
                    assert_eq!(write(flow, 1, &entry, &mut vec![0; room]), None, "{entry:?} {room}");
                }
            }
        }
    }

    #[test]
    fn a_record_that_is_cut_anywhere_is_incomplete_and_any_bit_of_it_may_be_wrong() {
        for entry in entries() {
            let whole = written(Flow::response(5), &entry);
            for cut in 0..whole.len() {
                assert_eq!(read(&whole[..cut]), Err(Unread::Incomplete), "{entry:?} {cut}");
            }
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok((_, used)) | Err(Unread::Damaged(used)) = read(&bytes) {
                    assert!((HEADER..=bytes.len()).contains(&used), "{entry:?} {bit}");
                }
            }
        }
    }

    #[test]
    fn what_is_too_long_is_not_written_and_a_note_is_cut() {
        let mut space = vec![0; 4 * LARGEST];
        let flow = Flow::request(1);
        let long = vec![1; LARGEST + 1];
        assert_eq!(write(flow, 1, &Entry::Ruling { end: 1, record: &long }, &mut space), None);
        let used = write(flow, 1, &Entry::Ruling { end: 1, record: &long[1..] }, &mut space).unwrap();
        assert_eq!(used, size(LARGEST));
        assert!(read(&space).is_ok());
        let text = "é".repeat(NOTE_TEXT);
        write(flow, 1, &Entry::Note { code: NoteCode::Redirected, text: &text }, &mut space).unwrap();
        let Ok((Stored { entry: Entry::Note { text: cut, .. }, .. }, _)) = read(&space) else { panic!() };
        assert_eq!(cut, &text[..NOTE_TEXT]);
        space[..4].copy_from_slice(&(LARGEST as u32 + 1).to_le_bytes());
        assert_eq!(read(&space), Err(Unread::Damaged(space.len())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u16..10, payload in 0u32..400,
        ) {
            let _ = read(&bytes);
            if bytes.len() >= HEADER {
                bytes[..4].copy_from_slice(&payload.to_le_bytes());
                bytes[4..6].copy_from_slice(&kind.to_le_bytes());
                bytes[6..8].copy_from_slice(&[0, 0]);
                if let Ok((_, used)) | Err(Unread::Damaged(used)) = read(&bytes) {
                    prop_assert!(used == size(payload as usize) && used <= bytes.len());
                }
            }
        }
    }
}
