use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Whole {
    name: Option<Vec<u8>>,
    id: Vec<u8>,
    data: Vec<u8>,
    place: (u64, u64),
}

/// The events of a stream that comes in these pieces.
fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Whole>, Framer) {
    let (mut all, mut data, mut framer) = (Vec::new(), Vec::new(), Framer::default());
    for piece in pieces {
        framer.read(piece, &mut |item| match item {
            Item::Data(more) => data.extend_from_slice(more),
            Item::Event(e) => all.push(Whole {
                name: e.name.map(<[u8]>::to_vec),
                id: e.id.to_vec(),
                data: std::mem::take(&mut data),
                place: (e.start, e.end),
            }),
            Item::Nothing => assert!(data.is_empty()),
        });
    }
    (all, framer)
}

fn data(stream: &[u8]) -> Vec<String> {
    let (all, _) = events([stream]);
    all.into_iter().map(|e| String::from_utf8_lossy(&e.data).into_owned()).collect()
}

/// Named as the tests of the Web Platform Tests are (`eventsource/format-*`).
#[test]
fn the_format_is_read_as_browsers_read_it() {
    let cases: [(&str, &[u8], &[&str]); 20] = [
        ("bom", b"\xef\xbb\xbfdata:1\n\n\xef\xbb\xbfdata:2\n\ndata:3\n\n", &["1", "3"]),
        ("bom-2", b"\xef\xbb\xbf\xef\xbb\xbfdata:1\n\ndata:2\n\n", &["2"]),
        ("comments", b"data:1\n:\0\n:\r\ndata:2\n:x:y\ndata:3\r\n\n", &["1\n2\n3"]),
        ("data-before-final-empty-line", b"data:test1\n\ndata:test2\n", &["test1"]),
        ("field-data", b"data:\n\ndata\ndata\n\ndata:test\n\n", &["", "\n", "test"]),
        ("field-event-empty", b"event: \ndata:data\n\n", &["data"]),
        ("field-parsing", b"data:\0\ndata:  2\rData:1\ndata\0:2\ndata:1\r\0data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n", &["\0\n 2\n1\n3\n\n4"]),
        ("field-unknown", b"data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n", &["test\n\ntest"]),
        ("leading-space", b"data:\ttest\rdata: \ndata:test\n\n", &["\ttest\n\ntest"]),
        ("newlines", b"data:test\r\ndata\ndata:test\r\n\r", &["test\n\ntest"]),
        ("null-character", b"data:\0\n\n\n\n", &["\0"]),
        ("utf-8", b"data:ok\xe2\x80\xa6\n\n", &["ok\u{2026}"]),
        ("only CR", b"data:1\r\rdata:2\r\r", &["1", "2"]),
        ("no data", b"event:x\nid:1\n\n", &[]),
        ("colon in the value", b"data:a:b\n\n", &["a:b"]),
        ("two blanks", b"data:  x\n\n", &[" x"]),
        ("empty stream", b"", &[]),
        ("blank lines only", b"\n\r\n\r", &[]),
        ("a part of a mark", b"\xef\xbbdata:1\n\ndata:2\n\n", &["2"]),
        ("mark in the middle", b"data:1\n\xef\xbb\xbfdata:2\n\n", &["1"]),
    ];
    for (name, stream, wanted) in cases {
        assert_eq!(data(stream), wanted, "{name}");
    }
}

#[test]
fn names_ids_and_retry() {
    let (all, framer) = events([&b"event: message\nid: 1\ndata:a\n\ndata:b\n\nid\ndata:c\n\nid:x\0y\nretry:15\nretry:1x\nretry:\nevent:ping\ndata:d\n\n"[..]]);
    let said: Vec<_> = all.iter().map(|e| (e.name.as_deref(), &*e.id)).collect();
    assert_eq!(said, [(Some(&b"message"[..]), &b"1"[..]), (None, b"1"), (None, b""), (Some(b"ping"), b"")]);
    assert_eq!(framer.retry_ms(), Some(15));
}

#[test]
fn an_event_is_where_its_lines_are() {
    let stream = b"\xef\xbb\xbf: hello\r\ndata: 1\r\n\r\n\ndata: 2\n\n";
    let (all, _) = events([&stream[..]]);
    let lines: Vec<_> = all.iter().map(|e| &stream[e.place.0 as usize..e.place.1 as usize]).collect();
    // The LF of the blank line's CRLF is between the two.
    assert_eq!(lines, [&b": hello\r\ndata: 1\r\n\r"[..], b"data: 2\n\n"]);
}

#[test]
fn fields_without_end_take_no_memory() {
    let mut framer = Framer::default();
    let mut pieces = 0_u64;
    framer.read(b"event:", &mut |_| ());
    for _ in 0..100 {
        framer.read(&[b'x'; 4096], &mut |_| ());
    }
    framer.read(b"\ndata:", &mut |_| ());
    for _ in 0..100 {
        framer.read(&[b'y'; 4096], &mut |item| pieces += u64::from(matches!(item, Item::Data(_))));
    }
    let mut names = Vec::new();
    framer.read(b"\n\n", &mut |item| {
        if let Item::Event(e) = item {
            names.push(e.name.map(<[u8]>::to_vec));
        }
    });
    assert_eq!((pieces, names), (100, vec![None]));
    assert!(framer.text.capacity() <= 2 * MAX_FIELD);
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let parts = ["data", "event", "id", "retry", ":", ": ", "\n", "\r", "\r\n", "\n\n", "x", " ", "7", "\u{feff}", "é"];
    let part = prop::sample::select(parts.map(str::as_bytes).to_vec());
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    /// However a stream is divided, it has the same events.
    #[test]
    fn any_division_gives_the_same_events(stream in streams(), cuts in prop::collection::vec(0_usize..200, 0..8)) {
        let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|w| &stream[w[0]..w[1]]);
        prop_assert_eq!(events(pieces).0, events([&stream[..]]).0);
        let bytes = stream.chunks(1);
        prop_assert_eq!(events(bytes).0, events([&stream[..]]).0);
    }

    /// The same events as the algorithm of the standard finds.
    #[test]
    fn the_algorithm_of_the_standard_finds_the_same_events(stream in streams()) {
        let ours: Vec<_> = events([&stream[..]]).0.into_iter().map(|e| (e.name, e.data)).collect();
        let theirs = oracle(&stream);
        prop_assert_eq!(ours, theirs, "{:?}", String::from_utf8_lossy(&stream));
    }
}

/// A reader of whole streams, written down as the standard's algorithm is.
fn oracle(stream: &[u8]) -> Vec<(Option<Vec<u8>>, Vec<u8>)> {
    let stream = stream.strip_prefix(&BOM).unwrap_or(stream);
    let mut lines = Vec::new();
    let (mut line, mut at) = (Vec::new(), 0);
    while at < stream.len() {
        match stream[at] {
            b'\r' => {
                lines.push(std::mem::take(&mut line));
                at += usize::from(stream.get(at + 1) == Some(&b'\n'));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            byte => line.push(byte),
        }
        at += 1;
    }
    let (mut all, mut data, mut name) = (Vec::new(), None::<Vec<u8>>, Vec::new());
    for line in lines {
        if line.is_empty() {
            let name = std::mem::take(&mut name);
            if let Some(data) = data.take() {
                all.push((Some(name).filter(|name| !name.is_empty()), data));
            }
            continue;
        }
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => match &mut data {
                Some(data) => data.extend([b"\n", value].concat()),
                None => data = Some(value.to_vec()),
            },
            b"event" => name = value.to_vec(),
            _ => {}
        }
    }
    all
}
