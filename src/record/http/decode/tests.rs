use super::*;
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use proptest::prelude::*;
use std::io::Write as _;

/// Three events, each flushed: what Node.js 20 makes of them, and how it ends.
const BR: [&str; 4] = [
    "6004008040b9adafa47179881a3f553169b18975081b70e010ce830c38d20ac3c6d83922ad6e846b3993ed5a224f0af7bcbb10bd5482b3510b3206254f70ad31ff373300",
    "3002004042a6983026b0a5d400",
    "3002004062a68c602200b5",
    "03",
];
/// The same three events in one frame with a check sum, by zstd 1.5 at level 19.
const ZSTD: &str = "28b52ffd24d56d020092c40f11907d02c40e0a3e107497381a2422f3191dc700d0bb4ae833759956f61c7d961abbfba2a06ff0c593611e3db397561c9f07b4f26ac0bd85b19b0165eab60b0300209401f40e14339c01b31489b6";
/// 40 MiB of zeros.
const BR_BOMB: &str = "cbffff3ff82700e2b14020f7fe8fffff7ff04f00c4611180eefd1fffffffe09f0088c30200ddfb3ffeffffc13f0110870500baf77ff9ffff877f02200e0b0074efff00";

fn event(n: usize) -> String {
    format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{n},\"result\":{{\"content\":[]}}}}\n\n")
}

fn events() -> Vec<u8> {
    (1..=3).map(event).collect::<String>().into_bytes()
}

fn hex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut to = ZlibEncoder::new(Vec::new(), Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn bare(bytes: &[u8]) -> Vec<u8> {
    let mut to = DeflateEncoder::new(Vec::new(), Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Brotli data that is not compressed: RFC 7932 §9.2, pieces of at most 64 KiB.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    // The window has 16 bits; the first meta-block shares a byte with that.
    let mut to = Vec::new();
    for (n, piece) in bytes.chunks(1 << 16).enumerate() {
        let len = (piece.len() - 1) as u32;
        // ISLAST 0, MNIBBLES 00, MLEN - 1, ISUNCOMPRESSED 1.
        let bits = len << 3 | 1 << 19;
        let bits = if n == 0 { bits << 1 } else { bits };
        to.extend_from_slice(&bits.to_le_bytes()[..3]);
        to.extend_from_slice(piece);
    }
    to.push(if bytes.is_empty() { 6 } else { 3 });
    to
}

/// Everything that a body gives, what is said of it, and the bytes behind its end.
fn decode(codings: &str, pieces: &[&[u8]]) -> (Vec<u8>, Result<(), Undecoded>, u64) {
    let mut decoder = Decoder::new(codings).unwrap().unwrap();
    let mut all = Vec::new();
    let mut said = Ok(());
    for piece in pieces {
        said = said.and(decoder.feed(piece, &mut |out| all.extend_from_slice(out)));
    }
    assert_eq!(said.clone().and(decoder.end()), decoder.end(), "what it said first stays");
    if said.is_ok() {
        assert_eq!(decoder.decoded(), all.len() as u64);
    }
    (all, decoder.end(), decoder.trailing())
}

fn coded(bytes: &[u8]) -> [(&'static str, Vec<u8>); 10] {
    [
        ("gzip", gzip(bytes)),
        ("X-GZip", gzip(bytes)),
        ("deflate", zlib(bytes)),
        ("deflate", bare(bytes)),
        ("br", brotli(bytes)),
        ("zstd", zstd(bytes)),
        ("identity, gzip", gzip(bytes)),
        ("deflate, gzip", gzip(&zlib(bytes))),
        ("gzip,br ,zstd", zstd(&brotli(&gzip(bytes)))),
        ("br, zstd, deflate", bare(&zstd(&brotli(bytes)))),
    ]
}

#[test]
fn every_coding_is_undone_in_pieces_of_any_size() {
    let text = events().repeat(300);
    for text in [&text[..], &events(), b"x", b""] {
        for (codings, body) in coded(text) {
            for size in [1, 2, 7, 1000, 1 << 20] {
                let pieces: Vec<&[u8]> = body.chunks(size).collect();
                assert_eq!(
                    decode(codings, &pieces),
                    (text.to_vec(), Ok(()), 0),
                    "{codings} by {size}, {} bytes",
                    text.len()
                );
            }
        }
    }
}

#[test]
fn data_of_other_encoders_is_read() {
    let body = BR.map(hex).concat();
    assert_eq!(decode("br", &[&body]), (events(), Ok(()), 0));
    assert_eq!(decode("zstd", &[&hex(ZSTD)]), (events(), Ok(()), 0));
}

#[test]
fn what_a_server_flushed_is_there_at_once() {
    let mut decoder = Decoder::new("br").unwrap().unwrap();
    for (n, piece) in BR[..3].iter().enumerate() {
        let mut given = Vec::new();
        decoder.feed(&hex(piece), &mut |out| given.extend_from_slice(out)).unwrap();
        assert_eq!(given, event(n + 1).into_bytes());
    }
    let mut to = GzEncoder::new(Vec::new(), Compression::default());
    let mut inner = ZlibEncoder::new(Vec::new(), Compression::default());
    let (mut gzip, mut both) =
        (Decoder::new("gzip").unwrap().unwrap(), Decoder::new("deflate, gzip").unwrap().unwrap());
    let mut outer = GzEncoder::new(Vec::new(), Compression::default());
    for n in 1..=3 {
        to.write_all(event(n).as_bytes()).unwrap();
        to.flush().unwrap();
        let mut given = Vec::new();
        gzip.feed(&std::mem::take(to.get_mut()), &mut |out| given.extend_from_slice(out)).unwrap();
        assert_eq!(given, event(n).into_bytes());
        inner.write_all(event(n).as_bytes()).unwrap();
        inner.flush().unwrap();
        outer.write_all(&std::mem::take(inner.get_mut())).unwrap();
        outer.flush().unwrap();
        given.clear();
        both.feed(&std::mem::take(outer.get_mut()), &mut |out| given.extend_from_slice(out)).unwrap();
        assert_eq!(given, event(n).into_bytes());
    }
}

#[test]
fn members_and_frames_follow_each_other_and_the_rest_is_passed_over() {
    let skipped = hex("532a4d1803000000616263");
    for (codings, one) in [("gzip", gzip(b"one")), ("zstd", zstd(b"one"))] {
        let two = [&one[..], &one, &one].concat();
        assert_eq!(decode(codings, &[&two]), (b"oneoneone".to_vec(), Ok(()), 0), "{codings}");
    }
    let frames = [&skipped[..], &zstd(b"a"), &skipped, &zstd(b"b"), &skipped].concat();
    for size in [1, 5, 100] {
        let pieces: Vec<&[u8]> = frames.chunks(size).collect();
        assert_eq!(decode("zstd", &pieces), (b"ab".to_vec(), Ok(()), 0));
    }
    for (codings, body) in coded(b"one").into_iter().take(6) {
        let (text, said, trailing) = decode(codings, &[&[&body[..], b"\0\0\0junk"].concat()]);
        assert_eq!((text, said, trailing), (b"one".to_vec(), Ok(()), 7), "{codings}");
    }
}

#[test]
fn a_header_of_gzip_may_hold_all_that_it_can() {
    let body = gzip(b"text");
    let mut full = [&body[..3], &[4 | 8 | 16 | 2], &body[4..10]].concat();
    full.extend_from_slice(b"\x03\0abcname\0comment\0\x12\x34");
    full.extend_from_slice(&body[10..]);
    for size in [1, 4, 100] {
        let pieces: Vec<&[u8]> = full.chunks(size).collect();
        assert_eq!(decode("gzip", &pieces), (b"text".to_vec(), Ok(()), 0));
    }
    let endless = [&body[..3], &[8], &body[4..10], &vec![b'x'; 20_000]].concat();
    assert_eq!(decode("gzip", &[&endless]).1, Err(Undecoded::Damaged(Coding::Gzip)));
}

#[test]
fn what_is_cut_off_is_decoded_as_far_as_it_goes() {
    for (codings, body) in coded(&events()) {
        let (text, said, _) = decode(codings, &[&body[..body.len() - 1]]);
        assert_eq!(said, Err(Undecoded::Truncated), "{codings}");
        assert!(events().starts_with(&text), "{codings}");
        assert_eq!(decode(codings, &[]), (Vec::new(), Ok(()), 0), "{codings}: an answer without a body");
    }
    // Without the check sum behind the data, many readers take it.
    assert_eq!(decode("gzip", &[&gzip(b"all")[..gzip(b"all").len() - 8]]).0, b"all");
}

#[test]
fn damage_is_found() {
    for (codings, body) in [("gzip", gzip(&events())), ("deflate", zlib(&events()))] {
        for at in [body.len() / 2, body.len() - 1] {
            let mut body = body.clone();
            body[at] ^= 0x55;
            assert!(decode(codings, &[&body]).1.is_err(), "{codings} at {at}");
        }
    }
    let mut wrong = hex(ZSTD);
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(decode("zstd", &[&wrong]).1, Err(Undecoded::Damaged(Coding::Zstd)), "the check sum");
    let mut wrong = gzip(b"text");
    *wrong.last_mut().unwrap() ^= 1;
    assert_eq!(decode("gzip", &[&wrong]).1, Err(Undecoded::Damaged(Coding::Gzip)), "the length");
    let json = b"{\"jsonrpc\":\"2.0\"}";
    for codings in ["gzip", "br", "zstd"] {
        assert!(matches!(decode(codings, &[json]).1, Err(Undecoded::Damaged(_))), "{codings}");
    }
    // Bare deflate data has no mark, so other text may be the beginning of some.
    assert_eq!(decode("deflate", &[json]).1, Err(Undecoded::Truncated));
    // A frame of zstd with a window of 16 MiB.
    assert_eq!(decode("zstd", &[&hex("28b52ffd0070")]).1, Err(Undecoded::Window(Coding::Zstd)));
    assert_eq!(decode("zstd", &[&hex("28b52ffda000000001")]).1, Err(Undecoded::Window(Coding::Zstd)));
}

#[test]
fn what_expands_too_much_is_left() {
    let zeros = vec![0; 8 << 20];
    for (codings, body) in [
        ("gzip", gzip(&zeros)),
        ("deflate", zlib(&zeros)),
        ("br", hex(BR_BOMB)),
        ("zstd", zstd(&zeros)),
        ("gzip, gzip", gzip(&gzip(&zeros))),
    ] {
        let (text, said, _) = decode(codings, &[&body, &body]);
        assert_eq!(said, Err(Undecoded::Expansion), "{codings}");
        assert!(text.len() as u64 <= FREE.max(body.len() as u64 * MAX_EXPANSION), "{codings}: {}", text.len());
    }
    let little = vec![0; 1 << 20];
    assert_eq!(decode("gzip", &[&gzip(&little)]), (little, Ok(()), 0), "a MiB may be anything");
}

#[test]
fn a_gibibyte_is_the_end() {
    let mut decoder = Decoder::new("gzip").unwrap().unwrap();
    decoder.bytes = MAX_DECODED;
    decoder.layers[0].decoded = MAX_DECODED - 3;
    let mut all = Vec::new();
    let said = decoder.feed(&gzip(b"four"), &mut |out| all.extend_from_slice(out));
    assert_eq!((said, all.len()), (Err(Undecoded::TooLarge), 0));
    assert_eq!(decoder.feed(b"", &mut |_| ()), Err(Undecoded::TooLarge));
    assert_eq!(decoder.memory(), 0, "what failed holds nothing");
}

#[test]
fn codings_that_cannot_be_undone_are_named() {
    assert!(Decoder::new("").unwrap().is_none());
    assert!(Decoder::new(" Identity , ,identity").unwrap().is_none());
    let why = |codings| Decoder::new(codings).err();
    assert_eq!(why("gzip, compress"), Some(Undecoded::Unknown("compress".to_owned())));
    assert_eq!(why("aes128gcm"), Some(Undecoded::Unknown("aes128gcm".to_owned())));
    assert_eq!(why("gzip, gzip, gzip, gzip"), Some(Undecoded::TooMany));
    assert_eq!(why("br;q=1"), Some(Undecoded::Unknown("br;q=1".to_owned())));
    assert!(matches!(why(&"é".repeat(99)), Some(Undecoded::Unknown(name)) if name.chars().count() == 32));
    let mut torn = Decoder::new("gzip").unwrap().unwrap();
    torn.tear();
    assert_eq!(torn.feed(b"x", &mut |_| ()), Err(Undecoded::Missing));
}

proptest! {
    /// Whatever comes, it ends, in bounded memory, and the size of the pieces changes nothing.
    #[test]
    fn any_bytes_are_read_the_same_in_any_pieces(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        which in 0..10_usize,
        size in 1..50_usize,
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (codings, mut body) = coded(&events())[which].clone();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.extend_from_slice(&noise);
        let whole = decode(codings, &[&body]);
        let pieces: Vec<&[u8]> = body.chunks(size).collect();
        let cut = decode(codings, &pieces);
        prop_assert_eq!(cut.1.is_ok(), whole.1.is_ok());
        if !codings.contains(',') {
            // Of several codings that are damaged, the one is named that came to its damage first.
            prop_assert_eq!(cut.1, whole.1);
        }
        // A part of what is no member may be taken for the beginning of one.
        prop_assert!(cut.0 == whole.0 && cut.2.abs_diff(whole.2) < 5 || whole.0.starts_with(&cut.0) || cut.0.starts_with(&whole.0));
    }
}
