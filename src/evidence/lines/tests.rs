use super::*;
use proptest::prelude::*;
use std::io::Write as _;

fn holding(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    file
}

fn lines_of(content: &[u8]) -> Lines {
    Lines::of(holding(content).reopen().unwrap())
}

/// What every reader must agree with: number, offset, bytes, whether a line feed is there.
fn model(content: &[u8]) -> Vec<(u64, u64, Vec<u8>, bool)> {
    let (mut out, mut offset) = (Vec::new(), 0);
    for piece in content.split_inclusive(|b| *b == b'\n') {
        let line = piece.strip_suffix(b"\n");
        out.push((out.len() as u64 + 1, offset, line.unwrap_or(piece).to_vec(), line.is_some()));
        offset += piece.len() as u64;
    }
    out
}

fn told(line: Line<'_>) -> (u64, u64, Vec<u8>, bool) {
    (line.number, line.offset, line.bytes.to_vec(), line.terminated)
}

/// Files of lines with lengths around those at which a reader changes its behaviour.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![
        12 => 0..200usize,
        1 => CHUNK - 3..CHUNK + 3,
        1 => 2 * CHUNK - 3..2 * CHUNK + 3,
        1 => 4 * CHUNK..5 * CHUNK,
    ];
    let line = (len, b'a'..=b'z').prop_map(|(len, byte)| vec![byte; len]);
    (prop::collection::vec(line, 0..40), any::<bool>()).prop_map(|(lines, whole)| {
        let mut all = lines.join(&b'\n');
        if whole {
            all.push(b'\n');
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_way_of_reading_agrees_with_a_split(content in content(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6)) {
        let expected = model(&content);
        let mut lines = Lines::hashed(holding(&content).reopen().unwrap());
        let mut found = Vec::new();
        while let Some(line) = lines.next(&mut ()).unwrap() {
            found.push(told(line));
            prop_assert_eq!(lines.last(), &found.last().unwrap().2[..]);
        }
        prop_assert!(found == expected);
        let sum = (crate::model::sha256_hex(&content), content.len() as u64);
        prop_assert_eq!(lines.finish(&mut ()).unwrap(), sum.clone());
        // Also for bytes that were not asked for.
        let mut lines = Lines::hashed(holding(&content).reopen().unwrap());
        lines.next(&mut ()).unwrap();
        prop_assert_eq!(lines.finish(&mut ()).unwrap(), sum);

        let whole: Vec<_> = expected.iter().filter(|l| l.3).cloned().collect();
        let torn = expected.last().filter(|l| !l.3).map_or(0, |l| l.2.len() as u64);

        // A file that grows, and is known to be good up to some place; what is after it is not there yet, or is taken
        // back.
        let mut ends: Vec<usize> = cuts.iter().map(|i| i.index(content.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(content.len());
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut lines = Lines::of(file.reopen().unwrap());
        let mut found = Vec::new();
        for upto in ends {
            std::fs::write(file.path(), [&content[..upto], b"taken\nback"].concat()).unwrap();
            while let Some(line) = lines.whole(upto as u64).unwrap() {
                found.push(told(line));
                if found.len() % 7 == 3 {
                    lines.unread();
                    prop_assert_eq!(told(lines.whole(upto as u64).unwrap().unwrap()), found.last().unwrap().clone());
                }
            }
            prop_assert_eq!(lines.position(), whole.iter().filter(|l| l.1 + (l.2.len() as u64) < upto as u64).map(|l| l.1 + l.2.len() as u64 + 1).max().unwrap_or(0));
        }
        prop_assert!(found == whole);

        // From any place.
        let file = holding(&content);
        let mut lines = Lines::of(file.reopen().unwrap());
        for place in cuts {
            let offset = place.index(content.len() + 1) as u64;
            lines.seek(offset).unwrap();
            let here = expected.iter().find(|l| l.1 >= offset).map_or(content.len() as u64, |l| l.1);
            prop_assert_eq!(lines.position(), here);
            let Some(first) = whole.iter().find(|l| l.1 >= offset) else { continue };
            lines.go(first.1, first.0);
            let mut found = Vec::new();
            let rest = lines.each(&mut |l| {
                found.push((l.number, l.offset, l.bytes.unwrap().to_vec(), true));
                true
            }).unwrap();
            prop_assert!(found == whole[first.0 as usize - 1..]);
            prop_assert_eq!(rest, Some(torn));
            prop_assert_eq!(at(file.as_file(), first.1, usize::MAX).unwrap(), (first.2.clone(), true));
            let before_it = whole.get((first.0 as usize).wrapping_sub(2)).map(|l| l.2.clone()).unwrap_or_default();
            prop_assert_eq!(before(file.as_file(), first.1, content.len()).unwrap(), before_it);
        }
        prop_assert_eq!(first(file.reopen().unwrap(), u64::MAX), whole.first().map(|l| l.2.clone()));
        let tail = good_tail(file.as_file(), &|_| true).unwrap();
        prop_assert_eq!(tail.last, whole.last().map(|l| l.2.clone()));
        prop_assert_eq!((tail.end, tail.torn), (content.len() as u64 - torn, torn));
    }

    #[test]
    fn any_key_is_found(lens in prop::collection::vec(0..3000usize, 1..900), wanted in 0..2000u64) {
        let mut content = Vec::new();
        for (n, len) in lens.iter().enumerate() {
            // Every line's key is even; of some it cannot be read.
            let key = if n % 13 == 5 { "?".to_owned() } else { (2 * n).to_string() };
            content.extend_from_slice(format!("{key} {}\n", "p".repeat(*len)).as_bytes());
        }
        let key = |line: &[u8]| std::str::from_utf8(line).ok()?.split(' ').next()?.parse::<u64>().ok();
        let mut lines = lines_of(&content);
        lines.bisect(content.len() as u64, &key, &wanted).unwrap();
        let from = lines.position();
        prop_assert!(from == 0 || content[from as usize - 1] == b'\n');
        let (mut first, mut at) = (None, None);
        lines.each(&mut |line| {
            let k = line.bytes.and_then(key);
            first = first.or(k);
            at = k.filter(|k| *k >= wanted).map(|_| line.offset);
            at.is_none()
        }).unwrap();
        // It is not passed over, and not far.
        let here = model(&content).into_iter().find(|l| key(&l.2).is_some_and(|k| k >= wanted)).map(|l| l.1);
        prop_assert_eq!(at, here);
        prop_assert!(from == 0 || first.is_some_and(|k| k < wanted));
        prop_assert!(here.unwrap_or(content.len() as u64) - from <= 4 * CHUNK as u64);
    }
}

#[test]
fn a_line_that_is_too_long_is_refused_or_passed_over() {
    let long = "x".repeat(3 * CHUNK);
    for (most, fits) in [(3 * CHUNK, true), (3 * CHUNK - 1, false), (10, false)] {
        for end in ["\nlast\n", "\n", ""] {
            let content = format!("one\n{long}{end}");
            let mut lines = lines_of(content.as_bytes()).at_most(most);
            assert_eq!(lines.next(&mut ()).unwrap().unwrap().bytes, b"one");
            let second = lines.next(&mut ());
            assert!(if fits {
                second.unwrap().unwrap().bytes == long.as_bytes()
            } else {
                matches!(second, Err(ReadStop::TooLong))
            });
            let mut lines = lines_of(content.as_bytes()).at_most(most);
            let mut found = Vec::new();
            let rest = lines.each(&mut |l| {
                found.push((l.number, l.offset, l.len, l.bytes.is_some()));
                true
            });
            let len = long.len() as u64;
            let mut expected = vec![(1, 0, 3, true), (2, 4, len, fits), (3, 4 + len + 1, 4, true)];
            expected.truncate(1 + end.matches('\n').count());
            assert_eq!(found, expected, "{most} {end:?}");
            assert_eq!(rest.unwrap(), Some(if end.is_empty() { len } else { 0 }));
        }
    }
}

#[test]
fn a_long_line_costs_little_more_than_its_length_and_goes_back() {
    let long = vec![b'x'; 3 * KEEP];
    let mut lines = lines_of(&[&long, b"\n".as_slice(), &b"short\n".repeat(CHUNK)].concat());
    assert_eq!(lines.next(&mut ()).unwrap().unwrap().bytes.len(), long.len());
    assert!(lines.buffer.len() < long.len() / 4 * 5 + 2 * CHUNK, "{}", lines.buffer.len());
    while lines.next(&mut ()).unwrap().is_some() {}
    assert_eq!(lines.buffer.len(), 2 * CHUNK);
}

#[test]
fn holes_are_garbage_to_who_reads_evidence_and_torn_to_who_follows() {
    let file = holding(b"one\n");
    file.as_file().set_len(1 << 40).unwrap();
    let mut lines = Lines::of(file.reopen().unwrap());
    assert_eq!(lines.next(&mut ()).unwrap().unwrap().bytes, b"one");
    assert!(matches!(lines.next(&mut ()), Err(ReadStop::Garbage)));
    let mut lines = Lines::of(file.reopen().unwrap());
    assert_eq!(lines.whole(4).unwrap().unwrap().bytes, b"one");
    assert!(lines.whole(1 << 20).unwrap().is_none());
}

#[test]
fn who_watches_hears_of_every_byte_and_can_end_it() {
    struct Until(usize, usize);
    impl Watch for Until {
        fn took(&mut self, bytes: usize) -> Result<(), ReadStop> {
            self.1 += bytes;
            if self.1 > self.0 { Err(ReadStop::Cancelled) } else { Ok(()) }
        }
    }
    let content = b"line\n".repeat(CHUNK);
    let mut all = Until(usize::MAX, 0);
    let mut lines = lines_of(&content);
    while lines.next(&mut all).unwrap().is_some() {}
    assert_eq!(all.1, content.len());
    let mut some = Until(2 * CHUNK, 0);
    let mut lines = lines_of(&content);
    let stop = loop {
        if let Err(stop) = lines.next(&mut some) {
            break stop;
        }
    };
    assert!(matches!(stop, ReadStop::Cancelled) && some.1 == 3 * CHUNK);
}

#[test]
fn what_is_appended_after_the_end_is_not_part_of_one_pass() {
    let mut file = holding(b"one\ntw");
    let mut lines = Lines::hashed(file.reopen().unwrap());
    while lines.next(&mut ()).unwrap().is_some() {}
    file.write_all(b"o\nthree\n").unwrap();
    assert!(lines.next(&mut ()).unwrap().is_none());
    assert_eq!(lines.finish(&mut ()).unwrap(), (crate::model::sha256_hex(b"one\ntw"), 6));
}

#[test]
fn a_part_of_a_line_is_said_to_be_one() {
    let file = holding(b"12345\n67890\n");
    let part = |offset, most| at(file.as_file(), offset, most).unwrap();
    assert_eq!(part(0, 5), (b"12345".to_vec(), false));
    assert_eq!(part(0, 6), (b"12345".to_vec(), true));
    assert_eq!(part(2, 2), (b"34".to_vec(), false));
    assert_eq!(part(12, 9), (Vec::new(), true));
    assert_eq!(before(file.as_file(), 6, 3).unwrap(), b"345");
    assert_eq!(before(file.as_file(), 0, 3).unwrap(), b"");
    assert_eq!((first(file.reopen().unwrap(), 5), first(file.reopen().unwrap(), 6)), (None, Some(b"12345".to_vec())));
}

#[test]
fn the_good_part_ends_with_the_last_good_line_wherever_that_is() {
    let good = |line: &[u8]| line.starts_with(b"{");
    let pad = "p".repeat(40_000);
    for torn in ["", "x", "\n", "\0\0\n\0", &pad, &format!("{pad}\n{pad}")] {
        for line in ["{}".to_owned(), format!("{{{pad}")] {
            let file = holding(format!("{{a\n{line}\n{torn}").as_bytes());
            let tail = good_tail(file.as_file(), &good).unwrap();
            let end = line.len() as u64 + 4;
            assert_eq!(tail, GoodTail { end, last: Some(line.into_bytes()), torn: torn.len() as u64 });
        }
        let tail = good_tail(holding(torn.as_bytes()).as_file(), &good).unwrap();
        assert_eq!(tail, GoodTail { end: 0, last: None, torn: torn.len() as u64 });
    }
    // Across the border of two pieces.
    for len in (1 << 20) - 3..(1 << 20) + 3 {
        let file = holding(&[b"{}\n".as_slice(), &vec![b'x'; len]].concat());
        assert_eq!(good_end(file.as_file()).unwrap(), GoodTail { end: 3, last: None, torn: len as u64 });
    }
}
