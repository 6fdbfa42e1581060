//! What is measured. Every scenario visits all ways in turns, so that the machine's moods hit all alike.

use crate::Options;
use crate::client::{Session, Way};
use crate::watchers::Watcher;
use serde::Serialize;
use std::io;
use std::time::Duration;

/// One scenario's numbers.
#[derive(Debug, Serialize)]
pub struct Scenario {
    /// Its name and what it does.
    pub name: String,
    /// What the numbers are.
    pub columns: Vec<&'static str>,
    /// Whether more is better (throughput).
    pub more_is_better: bool,
    /// Names of the first two ways, with which the others are compared.
    pub against: [&'static str; 2],
    /// Per way, in the order of the ways.
    pub rows: Vec<Row>,
}

/// One way's numbers.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The way.
    pub way: &'static str,
    /// One per column.
    pub values: Vec<f64>,
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |d| d.as_secs_f64() * 1e6)
}

/// Runs `measure` for every way, `rounds` times in turns, and collects what it returns.
fn turns<T>(
    ways: &[Way],
    rounds: usize,
    mut measure: impl FnMut(&Way) -> io::Result<Vec<T>>,
) -> io::Result<Vec<Vec<T>>> {
    let mut all: Vec<Vec<T>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for step in 0..ways.len() {
            let at = (round + step) % ways.len();
            let context = |e| io::Error::other(format!("{}: {e}", ways[at].name));
            all[at].extend(measure(&ways[at]).map_err(context)?);
        }
    }
    Ok(all)
}

fn latencies(ways: &[Way], all: Vec<Vec<Duration>>) -> Vec<Row> {
    let row = |(way, mut times): (&Way, Vec<Duration>)| {
        times.sort_unstable();
        Row { way: way.name, values: vec![percentile(&times, 0.5), percentile(&times, 0.99)] }
    };
    ways.iter().zip(all).map(row).collect()
}

fn calls(ways: &[Way], rounds: usize, count: usize, think: Duration) -> io::Result<Vec<Row>> {
    let all = turns(ways, rounds, |way| {
        let mut session = Session::start(way)?;
        session.call(200, 200)?;
        session.ready()?;
        let mut times = Vec::with_capacity(count);
        for i in 0..count + count / 10 {
            let took = session.call(200, 200)?;
            // The first tenth warms up.
            if i >= count / 10 {
                times.push(took);
            }
            if !think.is_zero() {
                std::thread::sleep(think);
            }
        }
        session.finish()?;
        Ok(times)
    })?;
    Ok(latencies(ways, all))
}

fn big(ways: &[Way], rounds: usize, count: usize) -> io::Result<Vec<Row>> {
    let mut all = turns(ways, rounds, |way| {
        let mut session = Session::start(way)?;
        session.call(200, 1 << 20)?;
        let mut total = Duration::ZERO;
        for _ in 0..count {
            total += session.call(200, 1 << 20)?;
        }
        session.finish()?;
        Ok(vec![count as f64 / total.as_secs_f64()])
    })?;
    for rates in &mut all {
        rates.sort_by(f64::total_cmp);
    }
    Ok(ways.iter().zip(all).map(|(way, rates)| Row { way: way.name, values: vec![rates[rates.len() / 2]] }).collect())
}

/// Calls back to back whose results have `size` bytes, until `total` bytes of results have crossed; with a pause after each
/// `burst` bytes, in which a recorder that fell behind catches up.
fn stream(ways: &[Way], rounds: usize, size: usize, total: usize, burst: usize) -> io::Result<Vec<Row>> {
    let all = turns(ways, rounds, |way| {
        let mut session = Session::start(way)?;
        session.call(200, size)?;
        let mut times = Vec::new();
        for _ in 0..total.div_ceil(burst) {
            for _ in 0..burst.min(total).div_ceil(size) {
                times.push(session.call(200, size)?);
            }
            if burst < total {
                std::thread::sleep(Duration::from_millis(500));
            }
        }
        let peak = session.peak_kib().unwrap_or(0) as f64 / 1024.0;
        session.finish()?;
        Ok(vec![(times, peak)])
    })?;
    let row = |(way, rounds): (&Way, Vec<(Vec<Duration>, f64)>)| {
        let peak = rounds.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
        let mut rates: Vec<f64> = rounds
            .iter()
            .map(|(t, _)| (t.len() * size) as f64 / 1e6 / t.iter().sum::<Duration>().as_secs_f64())
            .collect();
        rates.sort_by(f64::total_cmp);
        let mut times: Vec<Duration> = rounds.into_iter().flat_map(|(times, _)| times).collect();
        times.sort_unstable();
        let values = vec![rates[rates.len() / 2], percentile(&times, 0.5), percentile(&times, 0.99), peak];
        Row { way: way.name, values }
    };
    Ok(ways.iter().zip(all).map(row).collect())
}

/// The ways that stand beside each other where results are large.
fn streaming(ways: &[Way]) -> Vec<Way> {
    let wanted = ["direct", "bare relay", "relay only", "assay", "stored", "other"];
    ways.iter().filter(|w| wanted.contains(&w.name)).cloned().collect()
}

fn giant(ways: &[Way], bytes: usize) -> io::Result<Vec<Row>> {
    let all = turns(ways, 1, |way| {
        let mut session = Session::start(way)?;
        let took = session.call(200, bytes)?;
        let peak = session.peak_kib().unwrap_or(0) as f64 / 1024.0;
        let exit = session.finish()?;
        Ok(vec![took.as_secs_f64() * 1e3, peak, exit.as_secs_f64() * 1e3])
    })?;
    Ok(ways.iter().zip(all).map(|(way, values)| Row { way: way.name, values }).collect())
}

/// Calls whose arguments take long to cross.
fn argument(ways: &[Way], rounds: usize, bytes: usize) -> io::Result<Vec<Row>> {
    let all = turns(ways, rounds, |way| {
        let mut session = Session::start(way)?;
        session.call(bytes, 200)?;
        let times = (0..5).map(|_| session.call(bytes, 200)).collect::<io::Result<Vec<_>>>()?;
        session.finish()?;
        Ok(times)
    })?;
    Ok(latencies(ways, all))
}

fn start(ways: &[Way], rounds: usize) -> io::Result<Vec<Row>> {
    let all = turns(ways, rounds, |way| {
        let begin = std::time::Instant::now();
        let mut session = Session::start(way)?;
        session.call(200, 200)?;
        let took = begin.elapsed();
        session.finish()?;
        Ok(vec![took])
    })?;
    Ok(latencies(ways, all))
}

fn ending(ways: &[Way], rounds: usize, count: usize) -> io::Result<Vec<Row>> {
    let all = turns(ways, rounds, |way| {
        let mut session = Session::start(way)?;
        for _ in 0..count {
            session.call(200, 200)?;
        }
        Ok(vec![session.finish()?])
    })?;
    Ok(latencies(ways, all))
}

/// What came of bursts of calls.
#[derive(Default)]
struct Bursts {
    /// The first call of each burst.
    first: Vec<Duration>,
    others: Vec<Duration>,
    /// Live events that subscribers missed.
    missed: u64,
}

/// Calls in bursts, with everyone at the live socket who could want to disturb them.
fn hostile(ways: &[Way], rounds: usize, count: usize) -> io::Result<Vec<Row>> {
    let all = turns(ways, rounds, |way| {
        let mut session = Session::start(way)?;
        session.call(200, 200)?;
        session.ready()?;
        let mut seen = Bursts::default();
        for i in 0..count {
            let took = session.call(200, 200)?;
            if i % 50 == 49 {
                std::thread::sleep(Duration::from_millis(5));
            }
            if i % 50 == 0 { seen.first.push(took) } else { seen.others.push(took) }
        }
        seen.missed = session.finish_and_tell()?.1;
        Ok(vec![seen])
    })?;
    let row = |(way, rounds): (&Way, Vec<Bursts>)| {
        let missed = rounds.iter().map(|r| r.missed).sum::<u64>() as f64 / rounds.len() as f64;
        let mut all = Bursts::default();
        for round in rounds {
            all.first.extend(round.first);
            all.others.extend(round.others);
        }
        all.first.sort_unstable();
        all.others.sort_unstable();
        let values =
            vec![percentile(&all.first, 0.5), percentile(&all.others, 0.5), percentile(&all.others, 0.99), missed];
        Row { way: way.name, values }
    };
    Ok(ways.iter().zip(all).map(row).collect())
}

/// The proxy alone, and with each kind of company.
fn company(ways: &[Way]) -> Vec<Way> {
    let mut all: Vec<Way> = ways.iter().filter(|w| matches!(w.name, "direct" | "assay" | "watched")).cloned().collect();
    if let Some(proxy) = ways.iter().find(|w| w.name == "assay") {
        let kinds = [
            ("16 deaf", Watcher::Deaf),
            ("1 byte/s", Watcher::Drip),
            ("flood", Watcher::Flood),
            ("crowd", Watcher::Crowd),
        ];
        all.extend(kinds.map(|(name, watcher)| Way { name, watcher, ..proxy.clone() }));
    }
    all
}

/// The proxy alone, and with three dashboards, with `--live-content` and without it.
fn dashboards(ways: &[Way]) -> Vec<Way> {
    let mut all: Vec<Way> = ways.iter().filter(|w| matches!(w.name, "direct" | "assay")).cloned().collect();
    if let Some(proxy) = ways.iter().find(|w| w.name == "assay") {
        let mut shows = proxy.command.clone();
        shows.insert(2, "--live-content".into());
        all.push(Way { name: "contents", command: shows.clone(), ..proxy.clone() });
        all.push(Way { name: "3 boards", watcher: Watcher::Dashboards, ..proxy.clone() });
        all.push(Way { name: "both", watcher: Watcher::Dashboards, command: shows });
    }
    all
}

/// Runs everything that was asked for.
pub fn run(options: &Options, ways: &[Way]) -> io::Result<Vec<Scenario>> {
    const US: [&str; 2] = ["p50 µs", "p99 µs"];
    let (rounds, quick) = (options.rounds, options.quick);
    let mut report = Vec::new();
    let mut add = |name: String, columns: &[&'static str], more_is_better, rows| {
        report.push(Scenario { name, columns: columns.to_vec(), more_is_better, against: ["direct", "bare"], rows });
    };
    if options.wants("hot") {
        let rows = calls(ways, rounds, options.calls, Duration::ZERO)?;
        add("hot: 200-byte calls back to back".into(), &US, false, rows);
    }
    if options.wants("think") {
        let rows = calls(ways, rounds, if quick { 20 } else { 200 }, Duration::from_millis(5))?;
        add("think: 200-byte calls, 5 ms apart".into(), &US, false, rows);
    }
    if options.wants("big") {
        let rows = big(ways, rounds, if quick { 10 } else { 200 })?;
        add("big: 1 MiB results".into(), &["MiB/s"], true, rows);
    }
    const STREAM: [&str; 4] = ["MB/s", "p50 µs", "p99 µs", "peak RSS MiB"];
    for (name, burst, total) in [("sustained", usize::MAX, 1 << 30), ("burst", 64 << 20, 4 * (64 << 20))] {
        for size in [32 << 10, 1 << 20, 8 << 20] {
            if options.wants(name) {
                let total = if quick { total / 8 } else { total };
                let rows = stream(&streaming(ways), rounds.min(3), size, total, burst.min(total))?;
                add(format!("{name}: results of {} KiB", size >> 10), &STREAM, true, rows);
            }
        }
    }
    if options.wants("giant") {
        let bytes = if quick { 64 << 20 } else { 1 << 30 };
        let rows = giant(ways, bytes)?;
        add(format!("giant: one {} MiB result", bytes >> 20), &["ms", "peak RSS MiB", "exit ms"], false, rows);
    }
    if options.wants("argument") {
        // With the envelope it is within the guard's default limit.
        let rows = argument(ways, rounds, (10 << 20) - 1024)?;
        add("argument: calls of 10 MiB".into(), &US, false, rows);
    }
    if options.wants("start") {
        let rows = start(ways, if quick { 5 } else { 40 })?;
        add("start: command to first answer".into(), &US, false, rows);
    }
    if options.wants("exit") {
        let count = if quick { 500 } else { 10_000 };
        let rows = ending(ways, rounds.min(3), count)?;
        add(format!("exit: stdin EOF to exit after {count} calls"), &US, false, rows);
    }
    if options.wants("contents") {
        let rows = calls(&dashboards(ways), rounds, options.calls, Duration::ZERO)?;
        report.push(Scenario {
            name: "contents: 200-byte calls back to back, three dashboards, --live-content".into(),
            columns: US.to_vec(),
            more_is_better: false,
            against: ["direct", "assay"],
            rows,
        });
    }
    if options.wants("hostile") {
        let rows = hostile(&company(ways), rounds, if quick { 500 } else { 10_000 })?;
        report.push(Scenario {
            name: "hostile: 200-byte calls, fifty at a time, 5 ms apart".into(),
            columns: vec!["first p50 µs", "others p50 µs", "others p99 µs", "missed"],
            more_is_better: false,
            against: ["direct", "assay"],
            rows,
        });
    }
    Ok(report)
}
