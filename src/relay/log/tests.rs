use super::codec::HEADER;
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::task::{Wake, Waker as Task};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

const PROCESS: &str = "0123456789abcdef";
const FOREVER: Duration = Duration::from_secs(3600);

fn log(dir: &Path, capacity: usize) -> (LogWriter, LogReader, PathBuf) {
    let dirs = [dir.join("ring")];
    let (writer, reader, placement) = create(&dirs, PROCESS, capacity, &Arc::new(Waker::new())).unwrap();
    writer.set_stall_bound(FOREVER);
    (writer, reader, placement.path.unwrap())
}

fn poll(writer: &LogWriter, flow: Flow, offset: u64, bytes: &[u8]) -> bool {
    writer.poll_data(&mut Context::from_waker(Task::noop()), flow, offset, bytes).is_ready()
}

struct Parked(std::thread::Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Puts a piece in as a task does.
fn put(writer: &LogWriter, flow: Flow, offset: u64, bytes: &[u8]) {
    let task = Task::from(Arc::new(Parked(std::thread::current())));
    while writer.poll_data(&mut Context::from_waker(&task), flow, offset, bytes).is_pending() {
        std::thread::park();
    }
}

/// The bytes of a body from an offset on.
fn body(flow: Flow, offset: u64, len: usize) -> Vec<u8> {
    let seed = flow.exchange * 7 + flow.direction.lane() as u64 * 101;
    (offset..offset + len as u64).map(|at| (at * 31 + seed) as u8).collect()
}

fn end(bytes: u64) -> Entry<'static> {
    Entry::End(BodyEnd { bytes, cause: Cause::Complete, trailers: vec!["t".into()], sha256: None })
}

/// What a recorder knows of one body.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// Bytes that are accounted for.
    upto: u64,
    gaps: u64,
    wrote: u64,
    notes: u64,
    ended: Option<u64>,
}

/// All bodies, from the entries in their order.
#[derive(Debug, Default)]
struct Book(BTreeMap<Flow, Seen>);

impl Book {
    fn enter(&mut self, record: &Record<'_>) {
        let flow = record.flow;
        let seen = self.0.entry(flow).or_default();
        assert_eq!(seen.ended, None, "nothing follows an end");
        match &record.entry {
            Entry::Data { offset, bytes, .. } => {
                assert_eq!(*offset, seen.upto, "{flow:?}");
                assert!(**bytes == body(flow, *offset, bytes.len()), "{flow:?}");
                seen.upto += bytes.len() as u64;
            }
            Entry::Gap { offset, bytes } => {
                assert_eq!(*offset, seen.upto, "{flow:?}");
                seen.upto += bytes;
                seen.gaps += bytes;
            }
            Entry::Wrote { upto } => {
                assert!((seen.wrote..=seen.upto).contains(upto), "{flow:?}");
                seen.wrote = *upto;
            }
            Entry::Note { code: NoteCode::Unrecorded, text } => seen.notes += text.parse::<u64>().unwrap(),
            Entry::Note { .. } => seen.notes += 1,
            Entry::End(end) => seen.ended = Some(end.bytes),
            other => panic!("{other:?}"),
        }
    }

    fn read(&mut self, reader: &mut LogReader, most: usize) -> usize {
        let mut n = 0;
        while n < most
            && let Some(record) = reader.next()
        {
            self.enter(&record);
            n += 1;
        }
        n
    }
}

#[derive(Debug, Clone)]
enum Op {
    /// A task polls: with a new piece, or with the one that waits.
    Piece(usize, usize),
    Wrote(usize),
    Note(usize),
    End(usize),
    Own(usize, usize),
    Take(usize),
    /// Releases what was taken, without the last so many entries.
    Release(usize),
    Rewind,
    /// A recorder that releases nothing is taken for stuck at once, or never.
    Patience(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let flow = 0..6usize;
    prop_oneof![
        8 => (flow.clone(), 1..3000usize).prop_map(|(f, n)| Op::Piece(f, n)),
        4 => flow.clone().prop_map(Op::Wrote),
        2 => flow.clone().prop_map(Op::Note),
        1 => flow.clone().prop_map(Op::End),
        1 => (flow, 1..2000usize).prop_map(|(f, n)| Op::Own(f, n)),
        4 => (1..40usize).prop_map(Op::Take),
        4 => (0..10usize).prop_map(Op::Release),
        1 => Just(Op::Rewind),
        1 => any::<bool>().prop_map(Op::Patience),
    ]
}

/// One body, as the I/O thread has it.
#[derive(Debug)]
struct Sent {
    flow: Flow,
    upto: u64,
    waits: Option<Vec<u8>>,
    expected: Seen,
}

impl Sent {
    fn new(flow: Flow) -> Self {
        Self { flow, upto: 0, waits: None, expected: Seen::default() }
    }

    fn poll(&mut self, writer: &LogWriter) -> bool {
        let Some(piece) = &self.waits else { return true };
        if !poll(writer, self.flow, self.upto, piece) {
            return false;
        }
        self.upto += piece.len() as u64;
        self.waits = None;
        true
    }
}

fn drive(ops: Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 4096);
    let mut next = 0;
    let mut open = || {
        next += 1;
        if next % 2 == 0 { Flow::response(next) } else { Flow::request(next) }
    };
    let mut flows: Vec<Sent> = (0..6).map(|_| Sent::new(open())).collect();
    let (mut over, mut book) = (Vec::new(), Book::default());
    // Where the entries are that were taken and not released.
    let mut taken = VecDeque::new();
    let mut last = 0;
    for op in ops {
        match op {
            Op::Piece(f, n) => {
                let sent = &mut flows[f];
                let (flow, at) = (sent.flow, sent.upto);
                sent.waits.get_or_insert_with(|| body(flow, at, n));
                sent.poll(&writer);
            }
            Op::Wrote(f) => writer.put(flows[f].flow, &Entry::Wrote { upto: flows[f].upto }),
            Op::Note(f) => {
                flows[f].expected.notes += 1;
                writer.put(flows[f].flow, &Entry::Note { code: NoteCode::Retried, text: "x" });
            }
            Op::End(f) if flows[f].waits.is_none() => {
                let mut sent = std::mem::replace(&mut flows[f], Sent::new(open()));
                writer.put(sent.flow, &end(sent.upto));
                sent.expected.ended = Some(sent.upto);
                over.push(sent);
            }
            Op::Own(f, n) if flows[f].waits.is_none() => {
                let sent = &mut flows[f];
                let bytes = body(sent.flow, sent.upto, n);
                writer.put(sent.flow, &Entry::Data { offset: sent.upto, bytes: &bytes, own: true });
                sent.upto += n as u64;
            }
            Op::End(_) | Op::Own(..) => {}
            Op::Take(n) => {
                for _ in 0..n {
                    let Some(record) = reader.next() else { break };
                    assert_eq!(record.at, last, "nothing is left out");
                    last = record.end;
                    taken.push_back(record.end);
                    book.enter(&record);
                }
            }
            Op::Release(keep) => {
                if let Some(upto) = taken.len().checked_sub(keep + 1).and_then(|at| taken.get(at)) {
                    reader.release(*upto);
                    assert_eq!(reader.tail(), *upto);
                    taken.retain(|end| *end > reader.tail());
                }
            }
            Op::Rewind => reader.rewind(true),
            Op::Patience(none) => writer.set_stall_bound(if none { Duration::ZERO } else { FOREVER }),
        }
        assert!(reader.head() - reader.tail() <= 4096);
    }
    // The recorder comes back to life: nobody waits for ever, and nothing is missing.
    loop {
        let n = book.read(&mut reader, usize::MAX);
        reader.release(reader.head());
        let done = flows.iter_mut().fold(true, |done, sent| sent.poll(&writer) & done);
        if n == 0 && done && reader.taken() == reader.head() && reader.untold() == (0, 0) {
            break;
        }
    }
    assert!(!writer.is_bypassing());
    assert_eq!(reader.unreadable(), 0);
    for mut sent in flows.into_iter().chain(over) {
        let seen = book.0.remove(&sent.flow).unwrap_or_default();
        sent.expected.upto = sent.upto;
        (sent.expected.gaps, sent.expected.wrote) = (seen.gaps, seen.wrote);
        assert_eq!(seen, sent.expected, "{:?}", sent.flow);
    }
    drop(writer);
    assert!(reader.is_closed());
}

proptest! {
    #[test]
    fn every_byte_and_every_entry_is_told_whatever_the_recorder_does(ops in proptest::collection::vec(op(), 0..200)) {
        drive(ops);
    }
}

/// Own bytes that found no room are owed; the next piece of the body is so small that it has room, but comes after them.
#[test]
fn a_small_piece_does_not_overtake_what_is_owed_of_its_body() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 4096);
    let flow = Flow::request(1);
    let mut upto = 0;
    let mut piece = |n: usize| {
        let bytes = body(flow, upto, n);
        let is_in = poll(&writer, flow, upto, &bytes);
        upto += if is_in { n as u64 } else { 0 };
        is_in
    };
    // Down to the room that is left for other entries.
    while piece(200) {}
    while piece(1) {}
    let mut book = Book::default();
    // One entry after the other is released: at some point a byte has room, and what is owed by rule does not.
    let own = body(flow, upto, 1800);
    writer.put(flow, &Entry::Data { offset: upto, bytes: &own, own: true });
    upto += own.len() as u64;
    while let Some(record) = reader.next() {
        let end = record.end;
        book.enter(&record);
        reader.release(end);
        let bytes = body(flow, upto, 1);
        if poll(&writer, flow, upto, &bytes) {
            upto += 1;
        }
        if upto > 12_000 || book.0[&flow].upto > 3600 {
            break;
        }
    }
    assert!(book.0[&flow].gaps > 0, "{:?}", book.0[&flow]);
}

#[test]
fn two_writers_wait_for_a_slow_recorder_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 16384);
    let writer = Arc::new(writer);
    let tasks: Vec<_> = [Flow::request(1), Flow::response(1)]
        .into_iter()
        .map(|flow| {
            let writer = Arc::clone(&writer);
            std::thread::spawn(move || {
                let mut upto = 0;
                for n in 0..1500usize {
                    let piece = body(flow, upto, 1 + n * 37 % 5000);
                    put(&writer, flow, upto, &piece);
                    upto += piece.len() as u64;
                    writer.put(flow, &Entry::Wrote { upto });
                }
                writer.put(flow, &end(upto));
                upto
            })
        })
        .collect();
    drop(writer);
    let mut book = Book::default();
    loop {
        let closed = reader.is_closed();
        let n = book.read(&mut reader, 20);
        reader.release(reader.taken());
        reader.rewind(false);
        if n == 0 && closed {
            break;
        }
    }
    for (task, (flow, seen)) in tasks.into_iter().zip(book.0) {
        let upto = task.join().unwrap();
        assert_eq!(seen, Seen { upto, gaps: 0, wrote: upto, notes: 0, ended: Some(upto) }, "{flow:?}");
    }
}

#[test]
fn a_recorder_that_is_stuck_is_waited_for_up_to_the_bound_and_what_passes_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 4096);
    let (one, two) = (Flow::response(1), Flow::response(2));
    let mut upto = 0;
    while poll(&writer, one, upto, &body(one, upto, 100)) {
        upto += 100;
    }
    assert!((1000..4096).contains(&upto) && !writer.is_bypassing());
    writer.put(one, &Entry::Wrote { upto });
    assert_eq!(reader.untold(), (0, 0), "there is room for what is not a piece");
    writer.set_stall_bound(Duration::from_millis(20));
    // Only the thread that looks after the recorder can wake these.
    std::thread::scope(|scope| {
        scope.spawn(|| put(&writer, one, upto, &body(one, upto, 100)));
        scope.spawn(|| put(&writer, two, 0, &body(two, 0, 7)));
    });
    assert!(writer.is_bypassing());
    assert!(poll(&writer, two, 7, &body(two, 7, 3)), "nobody waits any more");
    assert_eq!(reader.untold(), (110, 0));
    writer.put(two, &Entry::Wrote { upto: 10 });
    let mut book = Book::default();
    book.read(&mut reader, usize::MAX);
    assert_eq!(book.0[&one], Seen { upto, wrote: upto, ..Seen::default() });
    // As soon as there is room it is told, without any traffic.
    reader.release(reader.taken());
    assert!(!writer.is_bypassing());
    book.read(&mut reader, usize::MAX);
    assert_eq!(book.0[&one], Seen { upto: upto + 100, gaps: 100, wrote: upto, ..Seen::default() });
    assert_eq!(book.0[&two], Seen { upto: 10, gaps: 10, wrote: 10, ..Seen::default() });
    assert_eq!(reader.untold(), (0, 0));
    assert!(poll(&writer, one, upto + 100, &body(one, upto + 100, 50)));
    book.read(&mut reader, usize::MAX);
    assert_eq!(book.0[&one].gaps, 100);
}

#[test]
fn a_recorder_that_is_at_work_is_waited_for_beyond_the_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 4096);
    let (one, pulse) = (Flow::response(1), reader.pulse());
    let mut upto = 0;
    while poll(&writer, one, upto, &body(one, upto, 100)) {
        upto += 100;
    }
    let bound = Duration::from_secs(1);
    writer.set_stall_bound(bound);
    let (done, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pulse.beat();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        while begun.elapsed() < bound + bound / 2 {
            assert!(!poll(&writer, one, upto, &body(one, upto, 100)) && !writer.is_bypassing());
            std::thread::sleep(Duration::from_millis(10));
        }
        writer.set_stall_bound(FOREVER);
        done.store(true, Ordering::Relaxed);
    });
    while reader.next().is_some() {}
    reader.release(reader.taken());
    assert!(poll(&writer, one, upto, &body(one, upto, 100)));
    assert_eq!(reader.untold(), (0, 0));
}

#[test]
fn what_needs_to_be_recorded_first_is_told_whether_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 4096);
    let flow = Flow::request(1);
    let ruling = Entry::Ruling { end: 5, record: &[3; 200] };
    let mut n = 0;
    while writer.put_now(flow, &ruling) {
        n += 1;
    }
    assert!(n >= 10);
    assert_eq!(reader.untold(), (0, 1));
    assert!(!writer.put_now(flow, &Entry::Ruling { end: 5, record: &vec![3; 200 << 10] }));
    while reader.next().is_some() {}
    reader.release(reader.taken());
    let told = reader.next().unwrap();
    assert_eq!(told.entry, Entry::Note { code: NoteCode::Unrecorded, text: "2" });
    assert!(writer.put_now(flow, &ruling));
}

#[test]
fn a_log_left_behind_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, path) = log(dir.path(), 1 << 16);
    assert_eq!(path, dir.path().join("ring").join("0123456789abcdef.log.ring"));
    let flow = Flow::response(9);
    let mut upto = 0;
    for _ in 0..10 {
        assert!(poll(&writer, flow, upto, &body(flow, upto, 777)));
        upto += 777;
    }
    let first = reader.next().unwrap().end;
    reader.release(first);
    reader.set_wall_offset(-5);
    reader.set_note(2, 8);
    assert_eq!(LogReader::open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let mut left = LogReader::open(&copy).unwrap();
    assert_eq!((left.process(), left.tail(), left.is_closed()), (PROCESS, first, false));
    assert_eq!((left.wall_offset(), left.note(2)), (-5, 8));
    let mut book = Book(BTreeMap::from([(flow, Seen { upto: 777, ..Seen::default() })]));
    assert_eq!(book.read(&mut left, 4), 4);
    let middle = left.taken();
    left.release(middle);
    drop(left);
    let mut left = LogReader::open(&copy).unwrap();
    assert_eq!(left.tail(), middle);
    assert_eq!(book.read(&mut left, usize::MAX), 5);
    assert_eq!((book.0[&flow].upto, left.taken()), (upto, left.head()));
    drop((writer, reader));
    let left = LogReader::open(&path).unwrap();
    assert!(left.is_closed());
    left.remove().unwrap();
    left.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn damage_is_counted_and_what_stands_behind_it_is_read_where_the_length_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, reader, path) = log(dir.path(), 1 << 16);
    let flow = Flow::request(1);
    for n in 0..4u64 {
        writer.put(flow, &Entry::Note { code: NoteCode::Redirected, text: &format!("note {n}") });
    }
    let (size, file) = (reader.head() / 4, std::fs::read(&path).unwrap());
    let header = file.len() - (1 << 16);
    let copy = dir.path().join("copy");
    let read = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[header + at..][..bytes.len()].copy_from_slice(bytes);
        std::fs::write(&copy, file).unwrap();
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let mut left = LogReader::open(&copy).unwrap();
        let n = std::iter::from_fn(|| left.next().map(|_| ())).count();
        (n, left.unreadable())
    };
    assert_eq!(read(0, b""), (4, 0));
    let second = size as usize;
    assert_eq!(read(second + 4, &[0xff]), (3, size), "another kind");
    assert_eq!(read(second + HEADER, &[0xff; 8]), (3, size), "another payload");
    assert_eq!(read(second, &[0xff; 4]), (1, 3 * size), "no length");
    assert_eq!(read(3 * second, &[0xff, 0, 0, 0]), (3, size), "a length beyond the end");
}

#[test]
fn another_capture_is_no_log_and_a_log_is_not_too_small() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = [dir.path().join("ring")];
    let waker = Arc::new(Waker::new());
    let made = Capture::create(&dirs, PROCESS, capture::Direction::ServerToClient, 4096, &waker).unwrap();
    let path = made.2.path.unwrap();
    drop((made.0, made.1));
    assert_eq!(LogReader::open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    for capacity in [0, 1, 2048, 4097] {
        assert_eq!(create(&dirs, PROCESS, capacity, &waker).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn exchanges_have_numbers_from_one_on() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, ..) = log(dir.path(), 4096);
    assert_eq!([writer.begin(), writer.begin(), writer.begin()], [1, 2, 3]);
}

#[test]
fn a_piece_costs_no_allocation() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, mut reader, _) = log(dir.path(), 8 << 20);
    let flow = Flow::response(1);
    let piece = body(flow, 0, 5000);
    let mut cx = Context::from_waker(Task::noop());
    let cost = allocation_counter::measure(|| {
        for n in 0..1000 {
            assert!(writer.poll_data(&mut cx, flow, n * 5000, &piece).is_ready());
            writer.put(flow, &Entry::Wrote { upto: (n + 1) * 5000 });
            while let Some(record) = reader.next() {
                let end = record.end;
                reader.release(end);
            }
        }
    });
    assert_eq!((cost.count_total, reader.unreadable()), (0, 0));
}
