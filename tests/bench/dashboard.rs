//! The dashboard under load, as a person has it: the real binary on a pseudo terminal.
//!
//! `cargo bench --bench dashboard -- events --rate 1000 --seconds 20` sends calls through a real proxy, four events each, and
//! measures from the moment in which the client sends a call until it, or a later one, is on the screen.
//!
//! `cargo bench --bench dashboard -- pack --calls 1000000` opens a pack of so many calls, measures the time to the first
//! receipts on the screen, how keys are answered while it is verified, and memory.
//!
//! `cargo bench --bench dashboard -- policy --calls 1000000` types a rule into a policy beside such a pack, and measures how keys
//! are answered and when the result of the last one is there.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay_support::{
    alone::peak_kib,
    rig::{bench_scratch, piped, rig},
    sessions::{self, Plan},
    tty::Tty,
};
use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let value = |name: &str, default: u64| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|at| args.get(at + 1)).map_or(default, |v| v.parse().unwrap())
    };
    match args.first().map(String::as_str) {
        Some("events") => events(value("--rate", 1000), value("--seconds", 20)),
        Some("pack") => pack(value("--calls", 1_000_000)),
        Some("policy") => policy(value("--calls", 1_000_000)),
        _ => {
            events(value("--rate", 1000), 3);
            pack(value("--calls", 20_000));
            policy(value("--calls", 20_000));
        }
    }
}

fn quantile(sorted: &[Duration], q: f64) -> f64 {
    let at = ((sorted.len() as f64 * q).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted[at].as_secs_f64() * 1e3
}

fn told(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!(
        "{what}: {} samples, p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
        times.len(),
        quantile(&times, 0.5),
        quantile(&times, 0.9),
        quantile(&times, 0.99),
        quantile(&times, 1.0)
    );
}

/// Ticks of processor time, user and system.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|n| fields.get(*n)?.parse::<u64>().ok()).sum()
}

/// The number of the newest call on the screen: tools are named `n<number>.`.
fn newest(screen: &vt100::Screen) -> Option<usize> {
    let contents = screen.contents();
    let numbers = contents.split(['n', ' ', '\n']).filter_map(|w| w.strip_suffix('.')?.parse().ok());
    numbers.max()
}

fn events(rate: u64, seconds: u64) {
    let rig = rig!();
    let tty = Tty::start(&rig, &["watch"], 120, 40);
    tty.wait("No live session.");
    let mut command = rig.program(&["mcp-proxy", "--audit-dir", "audit", "--", rig.assay, "demo-server"]);
    let (mut proxy, mut stdin, mut answers) = piped(&mut command).unwrap();
    thread::spawn(move || while answers.read(&mut [0; 65_536]).is_ok_and(|n| n > 0) {});
    writeln!(stdin, "{}", rig::INITIALIZE).unwrap();
    tty.wait("recording");
    let seen: Arc<Mutex<Vec<(usize, Instant)>>> = Arc::default();
    let eye = Arc::clone(&seen);
    tty.watch(Box::new(move |screen| {
        let now = Instant::now();
        let mut seen = eye.lock().unwrap();
        if let Some(n) = newest(screen).filter(|n| seen.last().is_none_or(|l| l.0 < *n)) {
            seen.push((n, now));
        }
    }));
    let calls = (rate * seconds / 4) as usize;
    let (begun, frames, cpu) = (Instant::now(), tty.frames(), ticks(tty.pid()));
    let mut sent = Vec::with_capacity(calls);
    for n in 0..calls {
        let due = begun + Duration::from_nanos(4_000_000_000 / rate * n as u64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"n{n}.","arguments":{{"text":"x"}}}}}}"#
        );
        writeln!(stdin, "{call}").unwrap();
    }
    tty.wait(&format!("n{}.", calls - 1));
    let (elapsed, frames) = (begun.elapsed(), tty.frames() - frames);
    let cpu = (ticks(tty.pid()) - cpu) as f64;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let mut late = Vec::with_capacity(calls);
    let mut shown = seen.iter().peekable();
    for (n, sent) in sent.iter().enumerate() {
        while shown.peek().is_some_and(|s| s.0 < n) {
            shown.next();
        }
        if let Some(s) = shown.peek() {
            late.push(s.1.saturating_duration_since(*sent));
        }
    }
    println!(
        "{} events in {:.1} s: {:.0}/s",
        calls * 4,
        elapsed.as_secs_f64(),
        calls as f64 * 4.0 / elapsed.as_secs_f64()
    );
    told("from sending a call to the screen", late);
    println!(
        "frames: {frames}, {:.1}/s; dashboard: {:.0} % of a processor, {} MiB resident",
        frames as f64 / elapsed.as_secs_f64(),
        cpu / elapsed.as_secs_f64(),
        peak_kib(tty.pid()) / 1024
    );
    drop(stdin);
    let _ = proxy.wait();
}

fn built(root: &Path, calls: u64) -> PathBuf {
    sessions::packed(&Plan { calls, ..Plan::default() }, root.join("audit"))
}

/// How long each key takes to change the screen.
fn answers(tty: &mut Tty, keys: &[&str]) -> Vec<Duration> {
    let mut times = Vec::new();
    for key in keys {
        let (before, start) = (tty.bytes().len(), Instant::now());
        tty.keys(key);
        times.push(rig::until("an answer", || {
            let more = tty.bytes().len() > before;
            (more || start.elapsed() > Duration::from_secs(2)).then(|| start.elapsed())
        }));
        // A pace, as of somebody who types fast.
        thread::sleep(Duration::from_millis(20));
    }
    times
}

fn policy(calls: u64) {
    let tmp = bench_scratch();
    let dir = built(tmp.path(), calls);
    let rig = rig!();
    std::fs::write(rig.root.join("p.yaml"), "version: \"1\"\ndefault: allow\n").unwrap();
    let begun = Instant::now();
    let mut tty = Tty::start(&rig, &["policy", "edit", "p.yaml", "--against", dir.to_str().unwrap()], 140, 40);
    tty.wait("by tool");
    println!("{calls} calls: first results on the screen after {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    tty.keys("Gi");
    tty.wait("typing");
    let typed: Vec<String> = "denylist: [search]".chars().map(|c| c.to_string()).collect();
    let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
    told("keys while it judges", answers(&mut tty, &typed));
    let last = Instant::now();
    // Tools are called in turn.
    tty.wait(&format!("{} of {calls} calls would now be denied", (calls + 1) / 3));
    println!("the result of the last key after {:.1} s", last.elapsed().as_secs_f64());
    println!("{} MiB resident", peak_kib(tty.pid()) / 1024);
    tty.keys("\u{3}");
}

fn pack(calls: u64) {
    let tmp = bench_scratch();
    let dir = built(tmp.path(), calls);
    let rig = rig!();
    let begun = Instant::now();
    let mut tty = Tty::start(&rig, &["open", dir.to_str().unwrap()], 140, 40);
    tty.wait("validate_");
    println!("{calls} calls: verification on the screen after {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    tty.keys("]");
    tty.wait("mtc_");
    println!("receipts on the screen after {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    // Each key changes the screen; while it verifies, and after.
    for round in ["while it verifies", "when it is verified"] {
        let keys = ["j", "j", "\u{4}", "G", "g", "\u{4}", "j", "k", "G", "k"].repeat(5);
        told(&format!("keys {round}"), answers(&mut tty, &keys));
        println!("{} MiB resident", peak_kib(tty.pid()) / 1024);
        tty.keys("[");
        tty.wait("PASS");
        tty.keys("]");
    }
    println!("all of it after {:.1} s", begun.elapsed().as_secs_f64());
    tty.keys("\u{3}");
}
