//! SIGKILL of a process that carries HTTP exchanges: everything that went on to a peer is in the log, or was recorded.

use assay::{
    model::Direction,
    relay::{
        Waker,
        log::{self, Entry, ExchangeLog, Flow, LogReader},
    },
};
use assay_support::alone::only;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
    sync::Arc,
    task::{Context, Wake},
    thread,
};

const DIR: &str = "ASSAY_TEST_LOG_DIR";
const LOG: &str = "ring/00000000000000cc.log.ring";
/// What it says of a piece that went on.
const WENT_ON: &str = "went on";

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Bytes that tell where they are, and of what.
fn body(flow: Flow, offset: u64, len: usize) -> Vec<u8> {
    let seed = flow.exchange * 31 + flow.direction.lane() as u64 * 7;
    (offset..offset + len as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed as u8).collect()
}

/// The process that is killed: tasks put pieces into the log and then say how far they are; a recorder takes them out.
#[test]
#[ignore = "a part of the test below, which starts it as a process of its own"]
fn victim() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let waker = Arc::new(Waker::new());
    let (writer, mut reader, _) = log::create(&[dir.join("ring")], "00000000000000cc", 1 << 16, &waker).unwrap();
    let writer = Arc::new(writer);
    for n in 0..3 {
        let writer = Arc::clone(&writer);
        thread::spawn(move || {
            let task = std::task::Waker::from(Arc::new(Unpark(thread::current())));
            let exchange = writer.begin();
            let flow = if n == 1 { Flow::response(exchange) } else { Flow::request(exchange) };
            let (mut upto, mut len) = (0, 1);
            loop {
                len = len * 5 % 9973;
                let piece = body(flow, upto, len);
                while writer.poll_data(&mut Context::from_waker(&task), flow, upto, &piece).is_pending() {
                    thread::park();
                }
                upto += piece.len() as u64;
                println!("{WENT_ON} {exchange} {} {upto}", flow.direction.lane());
                writer.put(flow, &Entry::Wrote { upto });
            }
        });
    }
    let mut recorded = File::create(dir.join("recorded")).unwrap();
    loop {
        for _ in 0..7 {
            let Some(record) = reader.next() else { break };
            if let Entry::Data { offset, bytes, .. } = record.entry {
                assert!(bytes == body(record.flow, offset, bytes.len()));
                let (exchange, lane) = (record.flow.exchange, record.flow.direction.lane());
                let line = format!("{exchange} {lane} {offset} {} {}\n", bytes.len(), record.end);
                recorded.write_all(line.as_bytes()).unwrap();
            }
        }
        reader.release(reader.taken());
        waker.nap(std::time::Duration::from_micros(50));
    }
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

fn flow(exchange: u64, lane: u64) -> Flow {
    let direction = if lane == 0 { Direction::ClientToServer } else { Direction::ServerToClient };
    Flow { exchange, direction }
}

fn kill_after(lines: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut victim =
        only("relay_log::victim").env(DIR, dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut seen = BTreeMap::new();
    let see = |seen: &mut BTreeMap<Flow, u64>, line: &str| {
        if let Some((_, rest)) = line.split_once(WENT_ON)
            && let [exchange, lane, upto] = numbers(rest)[..]
        {
            seen.insert(flow(exchange, lane), upto);
        }
    };
    // On a busy machine one task may say much before the others begin.
    let mut n = 0;
    while n < lines || seen.len() < 3 {
        see(&mut seen, &said.next().unwrap());
        n += 1;
    }
    victim.kill().unwrap();
    // The last line may be torn: a smaller number is not wrong.
    said.for_each(|line| see(&mut seen, &line));
    victim.wait().unwrap();

    let mut left = LogReader::open(&dir.path().join(LOG)).unwrap();
    assert!(!left.is_closed() && left.untold() == (0, 0));
    let mut known = BTreeMap::new();
    for line in fs::read_to_string(dir.path().join("recorded")).unwrap().lines() {
        // What was recorded and is still in the log is there twice: once is enough.
        if let [exchange, lane, offset, len, end] = numbers(line)[..]
            && end <= left.tail()
        {
            let upto = known.entry(flow(exchange, lane)).or_insert(0);
            assert_eq!(offset, *upto);
            *upto += len;
        }
    }
    while let Some(record) = left.next() {
        if let Entry::Data { offset, bytes, .. } = record.entry {
            let upto = known.entry(record.flow).or_insert(0);
            assert_eq!(offset, *upto);
            assert!(bytes == body(record.flow, offset, bytes.len()));
            *upto += bytes.len() as u64;
        }
    }
    assert_eq!(left.unreadable(), 0);
    for (flow, upto) in seen {
        assert!(known[&flow] >= upto, "{flow:?}: {upto} went on, {} is known", known[&flow]);
    }
}

#[test]
fn what_went_on_before_the_kill_is_in_the_log_or_recorded() {
    for round in 1..=12usize {
        kill_after(20 + round * round * 29);
    }
}
