//! The relay loop over real descriptors: every byte arrives, in order, whatever the chunks, the ring and the recorder do.

use assay::relay::capture::{Capture, Consumer, Direction, Producer};
use assay::relay::stdio::{
    Action, Desk, Held, Inspector, Mode, RelayEnd, StderrCounts, Stop, StopReason, relay, relay_stderr,
};
use assay::relay::{Pacer, Waker};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Far beyond what any step here takes; reaching it is a hang.
const HANG: Duration = Duration::from_secs(60);

struct Rig {
    _dir: tempfile::TempDir,
    waker: Arc<Waker>,
    producer: Producer,
    consumer: Consumer,
    stop: Stop,
}

fn rig(capacity: usize) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let waker = Arc::new(Waker::new());
    let (mut producer, consumer, placement) =
        Capture::create(&[dir.path().join("ring")], "00000000000000aa", Direction::ClientToServer, capacity, &waker)
            .unwrap();
    assert!(placement.path.is_some());
    producer.set_stall_bound(HANG);
    Rig { _dir: dir, waker, producer, consumer, stop: Stop::new().unwrap() }
}

/// Consumes everything in steps of at most `step` bytes until the capture is closed.
fn record(mut consumer: Consumer, waker: &Waker, step: usize) -> (Vec<u8>, Consumer) {
    let mut pacer = Pacer::default();
    let mut all = Vec::new();
    loop {
        let closed = consumer.is_closed();
        let n = consumer.available().len().min(step);
        all.extend_from_slice(&consumer.available()[..n]);
        consumer.advance(n);
        if n == 0 && closed {
            return (all, consumer);
        }
        if n == 0 {
            pacer.pause(waker, false, HANG, || consumer.is_closed() || !consumer.available().is_empty());
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pipe,
    Socket,
    NonblockingSocket,
}

/// (read end, write end)
fn channel(kind: Kind) -> (OwnedFd, OwnedFd) {
    match kind {
        Kind::Pipe => {
            let (read, write) = std::io::pipe().unwrap();
            (read.into(), write.into())
        }
        Kind::Socket | Kind::NonblockingSocket => {
            let (read, write) = UnixStream::pair().unwrap();
            (read.into(), write.into())
        }
    }
}

fn pass(input: Kind, output: Kind, capacity: usize, step: usize, chunks: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>, RelayEnd) {
    let Rig { _dir, waker, producer, consumer, stop } = rig(capacity);
    let (in_read, in_write) = channel(input);
    let (out_read, out_write) = channel(output);
    for (kind, fd) in [(input, &in_read), (output, &out_write)] {
        if matches!(kind, Kind::NonblockingSocket) {
            rustix::io::ioctl_fionbio(fd, true).unwrap();
        }
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut sink = File::from(in_write);
            for chunk in chunks {
                sink.write_all(chunk).unwrap();
            }
        });
        let received = scope.spawn(move || {
            let mut all = Vec::new();
            File::from(out_read).read_to_end(&mut all).unwrap();
            all
        });
        let recorded = scope.spawn(|| record(consumer, &waker, step).0);
        let end = relay(in_read, out_write, producer, &stop, Mode::Audit);
        (received.join().unwrap(), recorded.join().unwrap(), end)
    })
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Pipe), Just(Kind::Socket), Just(Kind::NonblockingSocket)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn bytes_in_equal_bytes_out_and_bytes_recorded(
        input in kinds(),
        output in kinds(),
        ring in 12usize..17,
        step in 1usize..9000,
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 0..40),
    ) {
        let sent = chunks.concat();
        let (received, recorded, end) = pass(input, output, 1 << ring, step, &chunks);
        prop_assert!(received == sent);
        prop_assert!(recorded == sent);
        prop_assert!(matches!(end.reason, StopReason::Eof));
        prop_assert_eq!((end.read, end.written), (sent.len() as u64, sent.len() as u64));
    }
}

#[test]
fn a_file_is_relayed_into_a_file() {
    let Rig { _dir, waker, producer, consumer, stop } = rig(8192);
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 3) as u8).collect();
    let (from, to) = (_dir.path().join("from"), _dir.path().join("to"));
    std::fs::write(&from, &bytes).unwrap();
    let recorder = thread::spawn(move || record(consumer, &waker, usize::MAX).0);
    let output = File::create(&to).unwrap();
    let end = relay(File::open(&from).unwrap().into(), output.into(), producer, &stop, Mode::Audit);
    assert!(matches!(end.reason, StopReason::Eof));
    assert!(std::fs::read(&to).unwrap() == bytes);
    assert!(recorder.join().unwrap() == bytes);
}

#[test]
fn a_gone_reader_closes_the_input_and_what_was_read_stays_captured() {
    for kind in [Kind::Pipe, Kind::Socket] {
        let Rig { _dir, producer, consumer, stop, .. } = rig(8192);
        let (in_read, in_write) = channel(kind);
        let (out_read, out_write) = channel(kind);
        drop(out_read);
        assert_eq!(rustix::io::write(&in_write, b"seen\n"), Ok(5));
        let end = relay(in_read, out_write, producer, &stop, Mode::Audit);
        assert!(matches!(end.reason, StopReason::OutputClosed), "{:?}", end.reason);
        assert_eq!((end.read, end.written), (5, 0));
        assert_eq!(consumer.available(), b"seen\n");
        assert_eq!(consumer.written(), 0);
        assert!(consumer.is_closed());
        assert_eq!(rustix::io::write(&in_write, b"more"), Err(Errno::PIPE));
    }
}

#[test]
fn what_is_said_after_the_first_word_that_nobody_reads_is_captured_too() {
    let mut heard = 0;
    for kind in [Kind::Pipe, Kind::Socket, Kind::Pipe, Kind::Socket] {
        let Rig { _dir, producer, consumer, stop, .. } = rig(8192);
        let (in_read, in_write) = channel(kind);
        let (out_read, out_write) = channel(kind);
        drop(out_read);
        assert_eq!(rustix::io::write(&in_write, b"one\n"), Ok(4));
        let relay = thread::spawn(move || relay(in_read, out_write, producer, &stop, Mode::Audit));
        let start = Instant::now();
        while consumer.available().is_empty() && start.elapsed() < HANG {
            thread::sleep(Duration::from_millis(1));
        }
        // Only on a machine that stands still for so long comes this too late.
        let _ = rustix::io::write(&in_write, b"two\n");
        assert!(matches!(relay.join().unwrap().reason, StopReason::OutputClosed));
        let all = consumer.available();
        assert!(all == b"one\n" || all == b"one\ntwo\n");
        heard += usize::from(all.ends_with(b"two\n"));
    }
    assert!(heard > 0, "nothing that was said later was captured");
}

#[test]
fn drain_passes_on_what_is_there_and_ends_though_the_pipe_stays_open() {
    let Rig { _dir, producer, mut consumer, stop, .. } = rig(4096);
    let (in_read, in_write) = channel(Kind::Pipe);
    let (out_read, out_write) = channel(Kind::Pipe);
    let bytes = vec![b'x'; 60_000];
    rustix::io::write(&in_write, &bytes).unwrap();
    let loops = thread::spawn({
        let stop = stop.clone();
        move || relay(in_read, out_write, producer, &stop, Mode::Audit)
    });
    stop.drain();
    let mut all = Vec::new();
    while !loops.is_finished() {
        let n = consumer.available().len();
        consumer.advance(n);
        thread::yield_now();
    }
    File::from(out_read).read_to_end(&mut all).unwrap();
    let end = loops.join().unwrap();
    assert!(matches!(end.reason, StopReason::Drained), "{:?}", end.reason);
    assert!(all == bytes);
    drop(in_write);
}

#[test]
fn stop_ends_a_relay_that_waits_for_input_or_for_its_reader() {
    for blocked_on_output in [false, true] {
        let Rig { _dir, producer, consumer, stop, .. } = rig(1 << 20);
        let (in_read, in_write) = channel(Kind::Pipe);
        let (_out_read, out_write) = channel(Kind::NonblockingSocket);
        rustix::io::ioctl_fionbio(&out_write, true).unwrap();
        let loops = thread::spawn({
            let stop = stop.clone();
            move || relay(in_read, out_write, producer, &stop, Mode::Audit)
        });
        let feeder = thread::spawn(move || {
            // More than all buffers on the way, or too little to fill any; the pipe stays open until the relay ends.
            let bytes = vec![1; if blocked_on_output { 4 << 20 } else { 1 }];
            let mut sink = File::from(in_write);
            let sent = sink.write_all(&bytes);
            (sent, sink)
        });
        let start = Instant::now();
        while consumer.head() == 0 && start.elapsed() < HANG {
            thread::yield_now();
        }
        stop.now();
        let end = loops.join().unwrap();
        assert!(matches!(end.reason, StopReason::Stopped), "{:?}", end.reason);
        assert_eq!(consumer.available().len() as u64, end.read);
        assert!(start.elapsed() < HANG);
        assert_eq!(feeder.join().unwrap().0.is_err(), blocked_on_output);
    }
}

#[test]
fn a_recorder_that_never_comes_costs_a_counted_gap_and_no_byte_of_the_session() {
    let Rig { _dir, mut producer, consumer, stop, .. } = rig(8192);
    producer.set_stall_bound(Duration::from_millis(5));
    let (in_read, in_write) = channel(Kind::Pipe);
    let (out_read, out_write) = channel(Kind::Pipe);
    let bytes: Vec<u8> = (0..500_000u32).map(|i| (i % 253) as u8).collect();
    let expected = bytes.clone();
    let feeder = thread::spawn(move || File::from(in_write).write_all(&bytes).unwrap());
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        File::from(out_read).read_to_end(&mut all).unwrap();
        all
    });
    let end = relay(in_read, out_write, producer, &stop, Mode::Audit);
    feeder.join().unwrap();
    assert!(reader.join().unwrap() == expected);
    assert_eq!(end.read, 500_000);
    assert_eq!(consumer.available(), &expected[..8192]);
    assert_eq!(consumer.gap_bytes(), 500_000 - 8192);
    assert_eq!(consumer.gaps().len(), 1);
    assert_eq!(consumer.gaps()[0].offset, 8192);
}

#[test]
fn capture_resumes_after_a_gap_and_the_gap_lies_between_the_right_bytes() {
    let Rig { _dir, mut producer, mut consumer, stop, .. } = rig(4096);
    producer.set_stall_bound(Duration::from_millis(1));
    let (in_read, in_write) = channel(Kind::Pipe);
    let (out_read, out_write) = channel(Kind::Pipe);
    let loops = thread::spawn(move || relay(in_read, out_write, producer, &stop, Mode::Audit));
    let mut sink = File::from(in_write);
    let mut source = File::from(out_read);
    let mut send = |byte: u8, n: usize| {
        sink.write_all(&vec![byte; n]).unwrap();
        let mut back = vec![0; n];
        source.read_exact(&mut back).unwrap();
        assert_eq!(back, vec![byte; n]);
    };
    send(b'a', 4096);
    send(b'b', 1000);
    assert_eq!(consumer.available(), vec![b'a'; 4096]);
    consumer.advance(4096);
    send(b'c', 50);
    assert_eq!(consumer.available(), vec![b'c'; 50]);
    let gaps = consumer.gaps();
    assert_eq!((gaps.len(), gaps[0].offset, gaps[0].bytes), (1, 4096, 1000));
    drop(sink);
    assert_eq!(loops.join().unwrap().read, 5146);
}

/// Forwards lines, refuses those that contain `!`.
struct Lines;

impl Inspector for Lines {
    fn inspect(&mut self, Held { bytes: held, .. }: Held<'_>, _: &Desk<'_>) -> Action {
        match held.iter().position(|&b| b == b'\n') {
            None => Action::More,
            Some(at) if held[..at].contains(&b'!') => Action::Discard(at + 1),
            Some(at) => Action::Forward(at + 1),
        }
    }
}

#[test]
fn an_inspector_holds_passes_and_refuses_and_all_of_it_is_captured() {
    let Rig { _dir, producer, consumer, stop, .. } = rig(4096);
    let (in_read, in_write) = channel(Kind::Pipe);
    let (out_read, out_write) = channel(Kind::Pipe);
    let text = b"one\ntwo!\nthree\nfour!\nrest without end";
    rustix::io::write(&in_write, text).unwrap();
    drop(in_write);
    let end = relay(in_read, out_write, producer, &stop, Mode::Guard(&mut Lines));
    let mut all = String::new();
    File::from(out_read).read_to_string(&mut all).unwrap();
    assert_eq!(all, "one\nthree\n");
    assert_eq!(consumer.available(), text);
    assert_eq!((end.read, end.written), (text.len() as u64, 10));
}

#[test]
fn a_line_that_an_inspector_can_not_hold_is_refused_not_passed() {
    let Rig { _dir, mut producer, mut consumer, stop, .. } = rig(4096);
    producer.set_stall_bound(HANG);
    let (in_read, in_write) = channel(Kind::Pipe);
    let (out_read, out_write) = channel(Kind::Pipe);
    let mut sent = vec![b'z'; 5000];
    sent.extend_from_slice(b"\nok\n");
    rustix::io::write(&in_write, &sent).unwrap();
    drop(in_write);
    let loops = thread::spawn(move || relay(in_read, out_write, producer, &stop, Mode::Guard(&mut Lines)));
    let mut recorded = Vec::new();
    while !(consumer.is_closed() && consumer.available().is_empty()) {
        let there = consumer.available();
        recorded.extend_from_slice(there);
        let n = there.len();
        consumer.advance(n);
        thread::yield_now();
    }
    loops.join().unwrap();
    let mut all = Vec::new();
    File::from(out_read).read_to_end(&mut all).unwrap();
    assert!(recorded == sent);
    // The part that filled the ring was refused; the rest of that line came to the inspector as if it were a line.
    let mut expected = vec![b'z'; 5000 - 4096];
    expected.extend_from_slice(b"\nok\n");
    assert!(all == expected);
}

#[test]
fn stderr_is_drained_when_nobody_reads_ours() {
    for gone in [true, false] {
        let (in_read, in_write) = channel(Kind::Pipe);
        let (out_read, out_write) = channel(Kind::Pipe);
        let keep = if gone {
            drop(out_read);
            None
        } else {
            Some(out_read)
        };
        let feeder = thread::spawn(move || {
            let mut sink = File::from(in_write);
            for _ in 0..20_000 {
                sink.write_all(b"a line of a log, fifty bytes long or a little more\n").unwrap();
            }
        });
        let counts = StderrCounts::default();
        let (tap, tapped) = std::sync::mpsc::sync_channel(1);
        let tap = |piece: &[u8]| tap.try_send(piece.to_vec()).is_ok();
        let end = relay_stderr(in_read, out_write, &counts, Some(&tap), &Stop::new().unwrap());
        feeder.join().unwrap();
        assert!(matches!(end.reason, StopReason::Eof));
        assert_eq!(counts.lines.load(Ordering::Relaxed), 20_000);
        assert_eq!(counts.bytes.load(Ordering::Relaxed), 20_000 * 51);
        assert_eq!(counts.lost.load(Ordering::Relaxed) + end.written, 20_000 * 51);
        assert_eq!(end.written == 0, gone);
        assert!(!tapped.recv().unwrap().is_empty());
        assert!(counts.tap_missed.load(Ordering::Relaxed) > 0);
        drop(keep);
    }
}
