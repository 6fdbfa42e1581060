//! What the guard does with a message, apart from reading, writing and wake-ups: a file of calls and a file of results, through
//! the relay to /dev/null, with and without the guard.
//!
//! `cargo bench --bench guard` times a message; `-- --messages N` relays N calls and N results under the guard once, for
//! counting instructions (`valgrind --tool=callgrind`).
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay::{
    guard::{Gate, Outlet, Session, StdioGuard},
    policy::{Dns, Evaluator, Policy, Surroundings},
    record::{
        health::Health,
        judge::PolicyFeed,
        rulings::{self, RulingWriter},
    },
    relay::{
        Capture, Consumer, Direction, Stop, Waker,
        stdio::{Inspector, Mode, relay},
    },
};
use assay_support::guard::policed::Policed;
use std::{
    fs::File,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A policy of a hundred rules, the last of which allows what is called.
fn policy() -> Policy {
    let names = |what: &str| (0..49).map(|n| format!("{what}_{n}.*, ")).collect::<String>();
    let text = format!(
        "version: \"1\"\ndefault: deny\ndenylist: [{}rm]\nallowlist: [{}echo]\nconstraints:\n  echo:\n    deny_patterns: [\"AKIA[0-9A-Z]{{16}}\"]\n",
        names("denied"),
        names("allowed")
    );
    Policy::parse(text.as_bytes(), "bench").unwrap()
}

/// Files of `messages` calls and results of 200 bytes.
fn traffic(dir: &Path, messages: usize) {
    let mut calls = String::new();
    let mut results = String::new();
    // All of them cross before the first answer: a guard lets 8 192 wait.
    for id in (1..=64).cycle().take(messages) {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"size":200,"pad":""#
        );
        calls += &format!("{call}{}\"}}}}}}\n", "y".repeat(195 - call.len()));
        let result = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#);
        results += &format!("{result}{}\"}}]}}}}\n", "x".repeat(194 - result.len()));
    }
    std::fs::write(dir.join("calls"), calls).unwrap();
    std::fs::write(dir.join("results"), results).unwrap();
}

/// Empties captures until it is told to end, as a recorder would.
fn discard(mut captures: Vec<Consumer>, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        for capture in &mut captures {
            capture.advance(capture.available().len());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Relays both files, the calls first; how long each took.
fn run(dir: &Path, guarded: bool) -> [Duration; 2] {
    let waker = Arc::new(Waker::new());
    let dirs = [dir.join("ring")];
    let make = |direction, room| Capture::create(&dirs, "0123456789abcdef", direction, room, &waker).unwrap();
    let (c2s, sent, _) = make(Direction::ClientToServer, Capture::DEFAULT_CAPACITY);
    let (s2c, received, _) = make(Direction::ServerToClient, Capture::DEFAULT_CAPACITY);
    let (told, decisions, _) = make(Direction::Decisions, rulings::CAPACITY);
    let captures = vec![sent, received, decisions];
    captures.iter().for_each(Consumer::prefault);
    let policy = Arc::new(policy());
    let feed = Arc::new(PolicyFeed::new(Some(policy.hash().to_owned())));
    let around = Surroundings { cwd: "/".into(), home: None, dns: Dns::Off };
    let health = Arc::new(Health::default());
    health.beat(true);
    let judge = Box::new(Policed(Evaluator::new(policy, Arc::new(around))));
    let session = Session::new(judge, health, feed, 64 << 20);
    let shared = StdioGuard::new(session, RulingWriter::new(told)).unwrap();
    let (mut gate, mut outlet) = (Gate::new(Arc::clone(&shared)), Outlet::new(shared));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| discard(captures, &over));
        let mut times = [Duration::ZERO; 2];
        let inspectors: [&mut dyn Inspector; 2] = [&mut gate, &mut outlet];
        for (n, ((name, capture), inspector)) in
            [("calls", c2s), ("results", s2c)].into_iter().zip(inspectors).enumerate()
        {
            let input = File::open(dir.join(name)).unwrap();
            let output = File::options().write(true).open("/dev/null").unwrap();
            let mode = if guarded { Mode::Guard(inspector) } else { Mode::Audit };
            let start = Instant::now();
            let end = relay(input.into(), output.into(), capture, &Stop::new().unwrap(), mode);
            times[n] = start.elapsed();
            assert_eq!(end.read, end.written, "everything passes: {:?}", end.reason);
        }
        over.store(true, Ordering::Release);
        times
    })
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = tempfile::tempdir().unwrap();
    if let Some(n) = args.iter().position(|a| a == "--messages") {
        traffic(dir.path(), args[n + 1].parse().unwrap());
        run(dir.path(), true);
        return;
    }
    let (messages, rounds) = if args.iter().any(|a| a == "--bench") { (8_000, 30) } else { (100, 1) };
    traffic(dir.path(), messages);
    let mut all: [Vec<Duration>; 4] = Default::default();
    for _ in 0..rounds {
        for guarded in [false, true] {
            let [calls, results] = run(dir.path(), guarded);
            all[2 * usize::from(guarded)].push(calls);
            all[2 * usize::from(guarded) + 1].push(results);
        }
    }
    let [calls, results, guarded_calls, guarded_results] = all.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e9 / messages as f64
    });
    let mut out = std::io::stdout();
    writeln!(out, "200-byte call:   relayed {calls:5.0} ns, guarded {guarded_calls:5.0} ns").unwrap();
    writeln!(out, "200-byte result: relayed {results:5.0} ns, guarded {guarded_results:5.0} ns").unwrap();
}
