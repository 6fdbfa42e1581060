//! What recording costs the recorder thread: one event on the chain, the check of one event's hash, and one whole call
//! (four events and a receipt) from its bytes to its lines.
#![allow(clippy::pedantic)]
#![allow(missing_docs, clippy::unwrap_used)]

use assay::{
    model::{
        Detail, Direction, GENESIS, SessionId, Transport, WallTime,
        event::{detail, hash_of_line},
        http::InExchange,
    },
    record::{
        chain::{Chain, Entry, Wire},
        recorder::{Begin, Clock, Recorder},
    },
};
use assay_support::recording::{self, Streams};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

fn entry(wire: &Wire) -> Entry<'_> {
    Entry {
        at: WallTime::from_millis(1_700_000_000_000),
        mono_us: 1,
        direction: Some(Direction::ClientToServer),
        method: Some("tools/call"),
        rpc_id: None,
        invocation: None,
        wire: Some(wire),
        detail: Detail::RequestForwarded(detail::Forwarded {
            exchange: InExchange::Unsaid,
            offset: 0,
            receipt_id: None,
            receipt_sha256: None,
        }),
    }
}

fn chain(c: &mut Criterion) {
    let wire = Wire { bytes: 200, sha256: GENESIS.to_owned() };
    let mut chain = Chain::new(SessionId::from_bits(1), Transport::Stdio, GENESIS.to_owned());
    let mut line = Vec::new();
    chain.append(entry(&wire), &mut line).unwrap();
    line.pop();
    let mut group = c.benchmark_group("chain");
    group.throughput(Throughput::Elements(1));
    let mut out = Vec::with_capacity(4096);
    group.bench_function("append one event", |b| {
        b.iter(|| {
            out.clear();
            chain.append(entry(black_box(&wire)), &mut out).unwrap();
        });
    });
    group.bench_function("hash of one line", |b| b.iter(|| hash_of_line(black_box(&line)).unwrap()));
    group.finish();
}

fn call(c: &mut Criterion) {
    let setup = recording::setup();
    let begin = Begin {
        session: SessionId::from_bits(1),
        continues: None,
        started_ns: 0,
        started_at: WallTime::from_millis(0),
        clock: Clock::new(0),
        prev_hash: GENESIS.into(),
    };
    let mut recorder = Recorder::begin(setup, begin);
    let request = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"{}"}}}}}}"#,
        "x".repeat(100)
    );
    let result = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
        "x".repeat(100)
    );
    let (mut streams, mut ns) = (Streams::default(), 0);
    c.bench_function("record one call", |b| {
        b.iter(|| {
            for (direction, text) in [(Direction::ClientToServer, &request), (Direction::ServerToClient, &result)] {
                ns += 200;
                streams.say(&mut recorder, direction, text, ns, ns);
            }
            recorder.lines.receipts.clear();
            recorder.lines.segment.clear();
            recorder.lines.hashes.clear();
        });
    });
}

criterion_group!(benches, chain, call);
criterion_main!(benches);
