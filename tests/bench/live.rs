//! Watching: how late an event reaches a client at a given rate, and how fast the evidence of a call is found in a long session.
//!
//! `cargo bench --bench live -- [--rates 1000,10000] [--seconds N] [--calls N]`
//!
//! A real client, proxy and server are driven at each rate (events a second; a call has four), with one client of the live
//! socket that keeps a dashboard's state. The time is from the event itself, as the recorder notes it, to the client having
//! applied it. Then receipt and events of single calls are looked for in a session of `--calls` (in `ASSAY_BENCH_DIR`, else the
//! system's temporary directory; a million take 3.9 GB).
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay::{
    live::{
        client::{self, Update},
        discovery, evidence,
        protocol::{LiveLine, RunCard},
        row::CallRow,
        state::State,
    },
    model::{SessionDoc, ToolCall},
    paths::SessionPaths,
    sys::clock::mono_ns,
};
use assay_support::{
    rig::{bench_scratch, piped},
    sessions::{self, Plan},
};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Command,
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread,
    time::{Duration, Instant},
};

/// What a follower saw.
struct Seen {
    /// Nanoseconds from an event to its being known, of those behind the first half second.
    late: Vec<u64>,
    events: u64,
    /// The longest time without an update, while calls were made.
    pause: Duration,
}

fn follow(card: RunCard) -> thread::JoinHandle<Seen> {
    let (updates, inbox) = mpsc::sync_channel(4096);
    let begun = card.card.started_mono_ns;
    client::follow(card, u64::MAX, updates, Arc::new(AtomicBool::new(false))).unwrap();
    thread::spawn(move || {
        let (mut state, mut next) = (State::default(), 0);
        let mut seen = Seen { late: Vec::new(), events: 0, pause: Duration::ZERO };
        let (mut last, first) = (Instant::now(), Instant::now());
        for update in inbox {
            let Update::Line(line) = update else { continue };
            state.apply(&line);
            let Some(event) = line.chained() else { continue };
            assert_eq!(event.cursor, next, "an event is missing");
            next += 1;
            seen.events += 1;
            if matches!(*line, LiveLine::SessionEnd(_)) {
                continue;
            }
            if first.elapsed() > Duration::from_millis(500) {
                seen.late.push(mono_ns().saturating_sub(begun + event.mono_us * 1000));
                seen.pause = seen.pause.max(last.elapsed());
            }
            last = Instant::now();
        }
        seen
    })
}

fn drive(rate: u64, seconds: u64) {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command
        .args(["mcp-proxy", "--"])
        .arg(std::env::current_exe().unwrap())
        .arg("server")
        .current_dir(home.path())
        .env("ASSAY_HOME", home.path().join("home"))
        .env("XDG_RUNTIME_DIR", &run);
    let (mut proxy, mut stdin, stdout) = piped(&mut command).unwrap();
    let answers = BufReader::new(stdout);
    let answers = thread::spawn(move || answers.lines().map_while(Result::ok).count() as u64);
    let card = loop {
        let card = discovery::live_in(&run.join("assay")).pop();
        if let Some(card) = card.filter(|c| c.card.socket.as_ref().is_some_and(|s| s.exists())) {
            break card;
        }
        thread::sleep(Duration::from_millis(1));
    };
    let follower = follow(card);
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(seconds) {
        // Whoever was held up makes up for it.
        let due = (start.elapsed().as_secs_f64() * rate as f64 / 4.0) as u64;
        while sent < due {
            sent += 1;
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{sent},"method":"tools/call","params":{{"name":"echo","arguments":{{"size":200,"pad":"{}"}}}}}}"#,
                "y".repeat(100)
            );
            stdin.write_all(call.as_bytes()).and_then(|()| stdin.write_all(b"\n")).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
    let took = start.elapsed().as_secs_f64();
    drop(stdin);
    assert_eq!(answers.join().unwrap(), sent);
    assert!(proxy.wait().unwrap().success());
    let mut seen = follower.join().unwrap();
    assert_eq!(seen.events, 4 * sent + 2);
    seen.late.sort_unstable();
    let late =
        |share: f64| seen.late[((seen.late.len() as f64 * share) as usize).min(seen.late.len() - 1)] as f64 / 1e6;
    let pack = std::fs::read_dir(home.path().join(".assay/mcp/packs")).unwrap().next().unwrap().unwrap().path();
    let doc: SessionDoc = serde_json::from_slice(&std::fs::read(pack.join("session.json")).unwrap()).unwrap();
    println!(
        "{rate:>6} events/s: {:.0} made, event to client p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; longest pause {:.0} ms; \
         {} healed from the files",
        4.0 * sent as f64 / took,
        late(0.5),
        late(0.99),
        late(1.0),
        seen.pause.as_secs_f64() * 1e3,
        doc.live_events_missed,
    );
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// The evidence of calls here and there.
fn find(paths: &SessionPaths, calls: u64) {
    let read = |path| std::io::BufReader::new(std::fs::File::open(path).unwrap()).lines().map_while(Result::ok);
    let wanted: Vec<CallRow> = read(&paths.receipts)
        .skip(1)
        .step_by((calls as usize / 20).max(1))
        .filter_map(|line| serde_json::from_str::<ToolCall>(&line).ok().map(|call| CallRow::of_receipt(&call)))
        .collect();
    let mut times: Vec<f64> = wanted
        .iter()
        .map(|row| {
            let begun = Instant::now();
            let found = evidence::find(&paths.receipts, &paths.segment, row, &AtomicBool::new(false));
            assert!(found.receipt.is_some() && found.events.len() == 4);
            ms(begun)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "  receipt and events of a call: p50 {:.1} ms, longest {:.1} ms",
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

fn session(calls: u64) {
    let tmp = bench_scratch();
    let plan = Plan { calls, error_every: 50, ..Plan::default() };
    let paths = sessions::write(&plan, tmp.path()).unwrap().paths;
    println!("a session of {calls} calls:");
    find(&paths, calls);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "server") {
        return assay_support::sized::serve().unwrap();
    }
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|at| args.get(at + 1)).cloned();
    // `cargo test --benches` asks whether all of it runs.
    let bench = args.iter().any(|a| a == "--bench");
    let rates = value("--rates").unwrap_or_else(|| if bench { "1000,10000" } else { "1000" }.to_owned());
    let number = |name, full, quick| value(name).map_or(if bench { full } else { quick }, |v| v.parse().unwrap());
    for rate in rates.split(',').filter(|r| !r.is_empty()) {
        drive(rate.parse().unwrap(), number("--seconds", 10, 1));
    }
    match number("--calls", 100_000, 5000) {
        0 => {}
        calls => session(calls),
    }
}
