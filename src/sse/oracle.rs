//! Another reader of event streams, `sse-stream`, as a second opinion.

use super::{Framer, Item};
use futures_core::Stream as _;
use proptest::prelude::*;
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// An event as both report it: its name, empty if it has none, and its data.
type Told = (Vec<u8>, Vec<u8>);

/// The events of a stream that comes in these pieces.
fn ours<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Told, Vec<u8>)> {
    let (mut all, mut data, mut framer) = (Vec::new(), Vec::new(), Framer::default());
    for piece in pieces {
        framer.read(piece, &mut |item| match item {
            Item::Data(more) => data.extend_from_slice(more),
            Item::Event(e) => {
                let told = (e.name.unwrap_or_default().to_vec(), std::mem::take(&mut data));
                all.push((told, e.id.to_vec()));
            }
            Item::Nothing => assert!(data.is_empty()),
        });
        // It can be written down between any two pieces.
        framer = postcard::from_bytes(&postcard::to_extend(&framer, Vec::new()).unwrap()).unwrap();
    }
    all
}

/// What `sse-stream` dispatches, with the last event id at that time. It demands UTF-8.
fn theirs(stream: &[u8]) -> Vec<(Told, Vec<u8>)> {
    let body = http_body_util::Full::new(bytes::Bytes::copy_from_slice(stream));
    let mut events = pin!(sse_stream::SseStream::new(body));
    let (mut all, mut id) = (Vec::new(), Vec::new());
    while let Poll::Ready(Some(event)) = events.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
        let event = event.unwrap();
        id = event.id.map_or(id, String::into_bytes);
        if let Some(data) = event.data {
            all.push(((event.event.unwrap_or_default().into_bytes(), data.into_bytes()), id.clone()));
        }
    }
    all
}

/// Streams that have much of what matters.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&[u8]] = &[
        b"data",
        b"data:",
        b"data: ",
        b"event:",
        b"event",
        b"id:",
        b"id: ",
        b"id",
        b"retry:",
        b"retry: 12",
        b":",
        b" ",
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b"\0",
        b"\xEF\xBB\xBF",
        b"\xEF\xBB",
        b"\xFF\xC3",
        b"7",
        b"x",
        b"{\"jsonrpc\":\"2.0\",\"id\":1}",
        b"message",
        b"dat",
        b"a:",
    ];
    prop::collection::vec(prop::sample::select(WORDS), 0..80).prop_map(|words| words.concat())
}

fn cut<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|w| &stream[w[0]..w[1]]).collect()
}

proptest! {
    #[test]
    fn another_reader_finds_the_same_events(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let stream = String::from_utf8_lossy(&stream).into_owned().into_bytes();
        prop_assert_eq!(ours(cut(&stream, &cuts)), theirs(&stream), "{:?}", String::from_utf8_lossy(&stream));
    }

    /// Also where bytes are no UTF-8, and these stay as they are.
    #[test]
    fn no_cut_changes_events_that_are_no_text(
        stream in streams(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let whole = ours([&stream[..]]);
        prop_assert_eq!(&ours(cut(&stream, &cuts)), &whole);
        prop_assert_eq!(&ours(stream.chunks(1)), &whole);
    }
}

#[test]
fn bytes_that_are_no_text_stay_as_they_are() {
    let found = ours([&b"event: \xFF\ndata: \xC3\xFF\ndata: \xE2\x80\nid: \xFE\n\n"[..]]);
    assert_eq!(found, [((b"\xFF".to_vec(), b"\xC3\xFF\n\xE2\x80".to_vec()), b"\xFE".to_vec())]);
}
