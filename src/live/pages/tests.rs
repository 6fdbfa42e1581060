use super::*;
use crate::{
    filter::Filter,
    live::{journal, row::CallRow},
    pack::testkit::{self, Plan},
    paths::{AuditDir, SessionPaths},
};
use proptest::prelude::*;
use std::io::Write as _;

fn session(calls: u64) -> (tempfile::TempDir, SessionPaths) {
    let tmp = tempfile::tempdir().unwrap();
    let plan = Plan { calls, error_every: 5, timeout_every: 7, ..Plan::default() };
    let paths = testkit::write(&plan, &AuditDir::at(tmp.path())).unwrap().paths;
    (tmp, paths)
}

fn lines_of(path: &Path) -> Vec<Vec<u8>> {
    let text = std::fs::read(path).unwrap();
    let mut lines: Vec<Vec<u8>> = text.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    lines.pop();
    lines
}

fn all(pages: &Pages) {
    pages.wait(&mut |_| true);
    assert!(pages.progress().is_done());
}

/// As it is while a thread that has not begun indexes it.
fn not_indexed(path: &Path, number: Number) -> Pages {
    let pages = Pages::unindexed(path, Some(number)).unwrap();
    let len = path.metadata().unwrap().len();
    let said = pages.shared.said(len).unwrap();
    *pages.shared.state() = State { len, said, busy: true, ..State::default() };
    pages
}

fn seq(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(line).ok()?["seq"].as_u64()
}

#[test]
fn every_receipt_and_event_is_found_by_its_number() {
    let (_tmp, paths) = session(3000);
    let (receipts, events) = (Receipts::open(&paths.receipts).unwrap(), Events::open(&paths.segment).unwrap());
    all(receipts.pages());
    all(events.pages());
    let lines = lines_of(&paths.receipts);
    assert_eq!((receipts.len(), lines.len()), (3002, 3002));
    let mut expected = Vec::new();
    journal::calls(&paths.receipts, None, &mut |r| expected.push(CallRow::of_receipt(r))).unwrap();
    for range in [0..5, 250..262, 2990..4000, 4000..4001, 7..7] {
        let rows = receipts.rows(range.clone()).unwrap();
        assert!(rows.iter().map(|r| r.number).eq(range.start.min(3002)..range.end.min(3002)));
        for row in rows {
            let at = usize::try_from(row.number).unwrap();
            assert_eq!(row.len, lines[at].len() as u64);
            match row.number {
                0 | 3001 => assert!(row.call.is_none() && row.kind.starts_with("mcp.session_")),
                _ => assert_eq!((*row.call.unwrap(), row.kind.as_str()), (expected[at - 1].clone(), "mcp_tool_call")),
            }
        }
    }
    for at in [0, 1, 255, 256, 257, 3001] {
        assert_eq!(receipts.line(at).unwrap().as_ref(), lines.get(usize::try_from(at).unwrap()));
    }
    assert_eq!(receipts.line(3002).unwrap(), None);
    let of_segment = lines_of(&paths.segment);
    assert_eq!(events.len(), of_segment.len() as u64);
    let page = events.rows(5000..5100).unwrap();
    assert_eq!(page.len(), 100);
    assert!(page.iter().all(|e| e.event.as_ref().unwrap().event_seq == e.number));
    assert_eq!(events.line(77).unwrap().unwrap(), of_segment[77]);
}

#[test]
fn the_end_and_any_other_page_are_there_before_the_index() {
    let (_tmp, paths) = session(3000);
    let lines = lines_of(&paths.receipts);
    let pages = not_indexed(&paths.receipts, seq);
    assert_eq!((pages.len(), pages.progress().lines), (3002, 0));
    for at in [0u64, 1, 700, 1500, 2999, 3001] {
        assert_eq!(pages.line(at).unwrap().as_ref(), lines.get(usize::try_from(at).unwrap()), "{at}");
    }
    let mut last = Vec::new();
    pages
        .lines(2950..3002, &mut |l| {
            last.push((l.number, l.bytes.unwrap().to_vec()));
            true
        })
        .unwrap();
    assert!(last.iter().map(|(n, _)| *n).eq(2950..3002));
    assert!(last.iter().map(|(_, l)| l).eq(&lines[2950..]));
    // What the lines say of themselves is taken on trust no longer than necessary.
    pages.shared.work();
    assert_eq!((pages.len(), pages.progress().is_done()), (3002, true));
}

#[test]
fn lines_are_counted_where_their_numbers_lie() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for n in [3u64, 900_000_000_000] {
        writeln!(file, "{{\"seq\":{n}}}").unwrap();
    }
    let pages = Pages::open(file.path(), Some(seq)).unwrap();
    assert_eq!(pages.len(), 2);
    assert_eq!(pages.line(1).unwrap().unwrap(), b"{\"seq\":900000000000}");
    let pages = not_indexed(file.path(), seq);
    assert_eq!(pages.len(), 900_000_000_001);
    assert_eq!(pages.line(5).unwrap(), None);
    pages.shared.work();
    assert_eq!(pages.len(), 2);
    let nothing = Receipts::open(Path::new("/dev/null")).unwrap();
    assert!(nothing.is_empty() && nothing.rows(0..9).unwrap().is_empty());
    assert!(Receipts::open(&file.path().join("x")).is_err());
}

#[test]
fn a_file_that_grows_and_one_that_is_cut_are_followed() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"seq\":0}\n{\"se").unwrap();
    let pages = Pages::open(file.path(), Some(seq)).unwrap();
    assert_eq!((pages.len(), pages.progress().torn), (1, 4));
    file.write_all(b"q\":1}\n").unwrap();
    assert_eq!(pages.len(), 1);
    pages.refresh().unwrap();
    assert_eq!((pages.len(), pages.progress().torn), (2, 0));
    for n in 2..200_000 {
        writeln!(file, "{{\"seq\":{n}}}").unwrap();
    }
    pages.refresh().unwrap();
    assert_eq!(pages.len(), 200_000);
    assert_eq!(pages.line(199_999).unwrap().unwrap(), b"{\"seq\":199999}");
    all(&pages);
    assert_eq!(pages.len(), 200_000);
    file.as_file().set_len(15).unwrap();
    pages.refresh().unwrap();
    assert_eq!((pages.len(), pages.progress().torn), (1, 5));
}

#[test]
fn long_lines_are_whole_and_those_beyond_measure_are_named_and_passed_over() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let long = vec![b'x'; 3 << 20];
    file.write_all(b"a\n").unwrap();
    for part in [&long[..], b"\n", &vec![b'y'; MAX_LINE + 1], b"\nb\n"] {
        file.write_all(part).unwrap();
    }
    let pages = Pages::open(file.path(), Some(seq)).unwrap();
    all(&pages);
    let mut got = Vec::new();
    pages
        .lines(0..9, &mut |l| {
            got.push((l.number, l.len, l.bytes.map(<[u8]>::len)));
            true
        })
        .unwrap();
    let (three, huge) = (long.len(), MAX_LINE + 1);
    assert_eq!(got, [(0, 1, Some(1)), (1, three as u64, Some(three)), (2, huge as u64, None), (3, 1, Some(1))]);
    assert_eq!((pages.line(2).unwrap(), pages.line(3).unwrap()), (None, Some(b"b".to_vec())));
}

fn search(receipts: &Receipts, filter: &str) -> Scan {
    let scan = receipts.scan(Filter::parse(filter).unwrap()).unwrap();
    finish(&scan);
    scan
}

fn finish(scan: &Scan) {
    let start = std::time::Instant::now();
    while !scan.progress().done {
        assert!(start.elapsed() < std::time::Duration::from_secs(120));
        thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_search_finds_what_the_filter_lets_through() {
    let (_tmp, paths) = session(6000);
    let receipts = Receipts::open(&paths.receipts).unwrap();
    for text in ["outcome:error", "tool:日本語", "!tool:read_file ms>2", "id:id-77", "", "nothing-like-it"] {
        let filter = Filter::parse(text).unwrap();
        let scan = search(&receipts, text);
        let expected: Vec<u64> = receipts
            .rows(0..9999)
            .unwrap()
            .iter()
            .filter(|r| r.call.as_ref().is_some_and(|c| filter.passes(&crate::live::state::facts(c))))
            .map(|r| r.number)
            .collect();
        assert_eq!(scan.matches(0, usize::MAX), expected, "{text}");
        let progress = scan.progress();
        assert_eq!((progress.lines, progress.of, progress.matches), (6002, 6002, expected.len() as u64));
        assert_eq!(scan.matches(3, 2), expected.iter().copied().skip(3).take(2).collect::<Vec<_>>());
        if let Some(some) = expected.get(expected.len() / 2).copied() {
            assert!(scan.contains(some));
            assert_eq!(scan.nth(scan.rank(some)), Some(some));
            assert_eq!(scan.after(some - 1), Some(some));
            assert_eq!(scan.before(some + 1), Some(some));
        }
    }
}

#[test]
fn a_search_goes_on_when_the_file_grows_and_ends_when_it_is_told() {
    let (_tmp, paths) = session(10_000);
    let growing = paths.receipts.with_extension("growing");
    let lines = lines_of(&paths.receipts);
    let write = |from: usize, to: usize| {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&growing).unwrap();
        for line in &lines[from..to] {
            file.write_all(line).and_then(|()| file.write_all(b"\n")).unwrap();
        }
    };
    write(0, 100);
    let receipts = Receipts::open(&growing).unwrap();
    let scan = search(&receipts, "outcome:error");
    let mut before = scan.progress().matches;
    assert!(before > 0);
    for end in [101, 200, 9_000] {
        write(usize::try_from(scan.progress().of).unwrap(), end);
        receipts.refresh().unwrap();
        all(receipts.pages());
        scan.refresh().unwrap();
        finish(&scan);
        assert_eq!(scan.progress().lines, end as u64);
        assert!(scan.progress().matches >= before);
        before = scan.progress().matches;
    }
    assert_eq!(search(&receipts, "outcome:error").progress().matches, before);
    scan.cancel();
    write(9_000, 9_100);
    receipts.refresh().unwrap();
    scan.refresh().unwrap();
    assert_eq!((scan.progress().lines, scan.progress().matches), (9_000, before));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_file_cut_anywhere_shows_its_whole_lines(cut in any::<prop::sample::Index>(), damage in any::<prop::sample::Index>()) {
        let (_tmp, paths) = session(300);
        let mut text = std::fs::read(&paths.receipts).unwrap();
        text.truncate(cut.index(text.len() + 1));
        if !text.is_empty() {
            let at = damage.index(text.len());
            text[at] = b'#';
        }
        std::fs::write(&paths.receipts, &text).unwrap();
        let lines = lines_of(&paths.receipts);
        let torn = text.len() as u64 - lines.iter().map(|l| l.len() as u64 + 1).sum::<u64>();
        let receipts = Receipts::open(&paths.receipts).unwrap();
        let early = receipts.rows(0..1000).unwrap();
        all(receipts.pages());
        let rows = receipts.rows(0..1000).unwrap();
        prop_assert!(early == rows || early.len() < rows.len());
        prop_assert_eq!((receipts.len(), receipts.progress().torn), (lines.len() as u64, torn));
        prop_assert_eq!(rows.len(), lines.len());
        for (row, line) in rows.iter().zip(&lines) {
            prop_assert_eq!(row.len, line.len() as u64);
            prop_assert_eq!(&text[usize::try_from(row.offset).unwrap()..][..line.len()], &line[..]);
        }
        // Not yet counted, and with a line that is not what it was: nothing but lines that are there.
        let pages = not_indexed(&paths.receipts, seq);
        for number in (0..pages.len().min(400)).step_by(37) {
            if let Some(found) = pages.line(number).unwrap() {
                prop_assert!(lines.contains(&found) && seq(&found) == Some(number));
            }
        }
    }
}
