//! SIGKILL of a relaying process: everything that its peer received is in the evidence.

use assay::model::reading::TooNew;
use assay::relay::Waker;
use assay::relay::capture::{Capture, Consumer, Direction};
use assay::relay::stdio::{Mode, Stop, relay};
use assay_support::alone::only;
use proptest::prelude::*;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

const DIR: &str = "ASSAY_TEST_RELAY_DIR";
const RING: &str = "ring/00000000000000cc.s2c.ring";

/// The process that is killed. It relays between two FIFOs and records into a file.
#[test]
#[ignore = "a part of the test below, which starts it as a process of its own"]
fn victim() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let waker = Arc::new(Waker::new());
    let dirs = [dir.join("ring")];
    let (producer, mut consumer, _) =
        Capture::create(&dirs, "00000000000000cc", Direction::ServerToClient, 16384, &waker).unwrap();
    let recorded = File::create(dir.join("recorded")).unwrap();
    thread::spawn(move || {
        loop {
            let n = consumer.available().len().min(3000);
            recorded.write_all_at(&consumer.available()[..n], consumer.tail()).unwrap();
            consumer.advance(n);
            waker.nap(std::time::Duration::from_micros(50));
        }
    });
    let input = File::open(dir.join("in")).unwrap();
    let output = OpenOptions::new().write(true).open(dir.join("out")).unwrap();
    relay(input.into(), output.into(), producer, &Stop::new().unwrap(), Mode::Audit);
}

/// Bytes that tell where they are.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn kill_after(received: usize, total: usize) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["in", "out"] {
        let made = Command::new("mkfifo").arg(dir.path().join(name)).status().unwrap();
        assert!(made.success());
    }
    let mut victim =
        only("relay_crash::victim").env(DIR, dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let sent = pattern(total);
    let feeder = thread::spawn({
        let (path, sent) = (dir.path().join("in"), sent.clone());
        move || {
            let mut sink = OpenOptions::new().write(true).open(path).unwrap();
            for chunk in sent.chunks(977) {
                if sink.write_all(chunk).is_err() {
                    return;
                }
            }
        }
    });
    let mut source = File::open(dir.path().join("out")).unwrap();
    let mut seen = vec![0; received];
    source.read_exact(&mut seen).unwrap();
    victim.kill().unwrap();
    source.read_to_end(&mut seen).unwrap();
    victim.wait().unwrap();
    feeder.join().unwrap();

    let consumer = Consumer::open(&dir.path().join(RING)).unwrap();
    let mut evidence = std::fs::read(dir.path().join("recorded")).unwrap();
    // What was written to the file but not yet released is still in the ring, too: once is enough.
    assert!(evidence.len() as u64 >= consumer.tail());
    evidence.truncate(consumer.tail() as usize);
    evidence.extend_from_slice(consumer.available());
    assert!(evidence.len() >= seen.len(), "{} bytes seen, {} in evidence", seen.len(), evidence.len());
    assert!(evidence == sent[..evidence.len()]);
    assert!(seen == sent[..seen.len()]);
    assert!(!consumer.is_closed());
    assert!(consumer.written() <= consumer.head() && consumer.gap_bytes() == 0);
    assert!(consumer.read_mark(evidence.len() as u64 - 1).is_some());
}

#[test]
fn what_a_peer_received_before_the_kill_is_in_the_evidence() {
    for round in 1..=40usize {
        kill_after(round * round * 701 % 600_000 + 1, 1_000_000);
    }
}

fn ring_file(dir: &Path) -> Vec<u8> {
    let dirs = [dir.join("made")];
    let made = Capture::create(&dirs, "00000000000000dd", Direction::ServerToClient, 4096, &Arc::new(Waker::new()));
    let (mut producer, consumer, placement) = made.unwrap();
    producer.reserve()[..4].copy_from_slice(b"abc\n");
    producer.commit(4, 1);
    drop((producer, consumer));
    let bytes = std::fs::read(placement.path.unwrap()).unwrap();
    std::fs::remove_dir_all(&dirs[0]).unwrap();
    bytes
}

/// Uses everything that reads the header.
fn read_all(consumer: &mut Consumer) {
    let len = consumer.available().iter().fold(0usize, |n, &b| n + usize::from(b) / 256 + 1);
    assert!(len <= consumer.capacity());
    for at in [0, 1, consumer.tail(), consumer.head(), u64::MAX] {
        consumer.read_mark(at);
        consumer.write_mark(at);
    }
    assert!(consumer.gaps().len() <= 64);
    assert_eq!(consumer.session().len(), 16);
    consumer.advance(usize::MAX);
    assert!(consumer.available().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_corrupt_header_is_an_error_or_harmless(
        edits in prop::collection::vec((0usize..4300, prop_oneof![Just(0u8), Just(255u8), any::<u8>()]), 1..12),
        cut in prop_oneof![3 => Just(None), 1 => (0usize..600_000).prop_map(Some)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = ring_file(dir.path());
        for (at, value) in edits {
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        let path = dir.path().join("x.ring");
        std::fs::write(&path, &bytes).unwrap();
        match Consumer::open(&path) {
            Ok(mut consumer) => {
                prop_assert_eq!(bytes.len(), consumer.capacity() + 65536 + 32 * 16384);
                read_all(&mut consumer);
            }
            // A version above ours is not damage.
            Err(error) if TooNew::carried_by(&error).is_some() => {
                prop_assert!(u64::from_le_bytes(bytes[8..16].try_into().unwrap()) > 5);
            }
            Err(error) => prop_assert_eq!(error.kind(), std::io::ErrorKind::InvalidData),
        }
    }
}

#[test]
fn things_that_are_not_rings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let link = dir.path().join("link");
    std::fs::write(&file, ring_file(dir.path())).unwrap();
    assert!(Consumer::open(&file).is_ok());
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(Consumer::open(&link).is_err());
    assert!(Consumer::open(dir.path()).is_err());
    assert!(Consumer::open(Path::new("/dev/null")).is_err());
    assert!(Consumer::open(&dir.path().join("none")).is_err());
    std::fs::write(&file, "").unwrap();
    assert!(Consumer::open(&file).is_err());
}
