//! A message far larger than everything crosses with flat memory.

use assay::relay::capture::{Capture, Direction};
use assay::relay::stdio::{Mode, Stop, StopReason, relay};
use assay::relay::{Pacer, Waker};
use assay_support::alone::{alone, peak_kib};
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const TOTAL: u64 = 1 << 30;
const PERIOD: usize = 251;

/// A repeating block with room to start anywhere in its period.
fn block() -> Vec<u8> {
    (0..(1 << 20) + PERIOD).map(|i| (i % PERIOD) as u8).collect()
}

fn matches_at(block: &[u8], at: u64, bytes: &[u8]) -> bool {
    let start = (at % PERIOD as u64) as usize;
    block.get(start..start + bytes.len()) == Some(bytes)
}

#[test]
fn one_gibibyte_through_a_small_ring_byte_for_byte_in_flat_memory() {
    alone("relay_flat::one_gibibyte_through_a_small_ring_byte_for_byte_in_flat_memory", one_gibibyte);
}

fn one_gibibyte() {
    let dir = tempfile::tempdir().unwrap();
    let waker = Arc::new(Waker::new());
    let dirs = [dir.path().join("ring")];
    let (mut producer, mut consumer, _) =
        Capture::create(&dirs, "00000000000000ee", Direction::ServerToClient, 64 << 10, &waker).unwrap();
    producer.set_stall_bound(Duration::from_secs(60));
    let (in_read, mut in_write) = std::io::pipe().unwrap();
    let (mut out_read, out_write) = std::io::pipe().unwrap();
    let block = Arc::new(block());
    let before = peak_kib("self");
    let feeder = thread::spawn({
        let block = Arc::clone(&block);
        move || {
            let mut at = 0;
            while at < TOTAL {
                let start = (at % PERIOD as u64) as usize;
                let n = (TOTAL - at).min(1 << 20) as usize;
                in_write.write_all(&block[start..start + n]).unwrap();
                at += n as u64;
            }
        }
    });
    let reader = thread::spawn({
        let block = Arc::clone(&block);
        move || {
            let mut buffer = vec![0; 1 << 16];
            let mut at = 0;
            loop {
                let n = out_read.read(&mut buffer).unwrap();
                if n == 0 {
                    return at;
                }
                assert!(matches_at(&block, at, &buffer[..n]));
                at += n as u64;
            }
        }
    });
    let recorder = thread::spawn(move || {
        let mut pacer = Pacer::default();
        loop {
            let closed = consumer.is_closed();
            let n = consumer.available().len();
            if n > 0 {
                assert!(matches_at(&block, consumer.tail(), consumer.available()));
                consumer.advance(n);
            } else if closed {
                return consumer;
            }
            pacer.pause(&waker, n > 0, Duration::from_secs(60), || {
                consumer.is_closed() || !consumer.available().is_empty()
            });
        }
    });
    let end = relay(in_read.into(), out_write.into(), producer, &Stop::new().unwrap(), Mode::Audit);
    feeder.join().unwrap();
    assert_eq!(reader.join().unwrap(), TOTAL);
    let consumer = recorder.join().unwrap();
    assert!(matches!(end.reason, StopReason::Eof));
    assert_eq!((end.read, end.written, consumer.tail(), consumer.gap_bytes()), (TOTAL, TOTAL, TOTAL, 0));
    let grown = peak_kib("self") - before;
    assert!(grown < 8 << 10, "grew by {grown} KiB");
}
