//! What is measured with clients that speak HTTP.

use crate::{
    Options,
    client::{Connection, Process},
};
use rustix::time::{ClockId, clock_gettime};
use std::{ffi::OsString, io, thread, time::Duration};

/// A way from client to server: how its process is started, and the process.
struct Way {
    name: &'static str,
    words: Vec<OsString>,
}

/// All ways to a server that exist in this build.
fn ways(server: &Process) -> io::Result<Vec<Way>> {
    let (me, assay) = (std::env::current_exe()?.into_os_string(), OsString::from(env!("CARGO_BIN_EXE_assay")));
    let url = OsString::from(format!("http://{}/mcp", server.at));
    let listen = ["mcp-proxy", "--listen", "127.0.0.1:0", "--upstream-url"].map(OsString::from);
    let audit = [&[assay][..], &listen, &[url]].concat();
    let guard = [&audit[..], &["--profile", "guard", "--policy", "policy.yaml"].map(OsString::from)].concat();
    let mut ways = vec![
        Way { name: "direct", words: Vec::new() },
        Way { name: "plain", words: vec![me, "plain".into(), server.at.to_string().into()] },
        Way { name: "audit", words: audit },
    ];
    match Process::start(&guard) {
        Ok(_) => ways.push(Way { name: "guard", words: guard }),
        Err(error) => eprintln!("without guard: {error}"),
    }
    Ok(ways)
}

/// A quantile of what was measured, by the nearest rank.
pub fn quantile(sorted: &[Duration], of_thousand: usize) -> Duration {
    let rank = (sorted.len() * of_thousand).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// One line of a table.
pub struct Row {
    pub way: String,
    pub values: Vec<f64>,
}

/// Prints a table; each number with its ratio to that of the row named `base`.
pub fn print(title: &str, columns: &[&str], base: &str, rows: &[Row]) {
    println!(
        "\n{title}\n  {:<14}{}",
        "",
        columns.iter().map(|c| format!("{c:>16}{:>8}", format!("/{base}"))).collect::<String>()
    );
    let of_base = rows.iter().find(|row| row.way == base);
    for row in rows {
        let cells = row.values.iter().enumerate().map(|(i, value)| {
            let ratio = of_base.and_then(|base| base.values.get(i)).map_or(f64::NAN, |base| value / base);
            format!("{value:>16.2}{ratio:>8.2}")
        });
        println!("  {:<14}{}", row.way, cells.collect::<String>());
    }
}

/// The processes of all ways, each in front of the server.
struct Run {
    ways: Vec<(Way, Option<Process>)>,
    server: Process,
}

impl Run {
    fn start() -> io::Result<Self> {
        let me = std::env::current_exe()?.into_os_string();
        let server = Process::start(&[me, "server".into()])?;
        let started = ways(&server)?.into_iter().map(|way| {
            let process = (!way.words.is_empty()).then(|| Process::start(&way.words)).transpose()?;
            Ok((way, process))
        });
        Ok(Self { ways: started.collect::<io::Result<_>>()?, server })
    }

    /// Measures all ways in turns; what each was measured at, and its peak memory in MiB.
    fn turns<T>(
        &self,
        rounds: usize,
        mut measure: impl FnMut(&Process) -> io::Result<Vec<T>>,
    ) -> io::Result<Vec<(&'static str, Vec<T>, f64)>> {
        let mut all: Vec<(&str, Vec<T>, f64)> = self.ways.iter().map(|(way, _)| (way.name, Vec::new(), 0.0)).collect();
        for _ in 0..rounds {
            for ((_, process), (_, measured, peak)) in self.ways.iter().zip(&mut all) {
                let process = process.as_ref().unwrap_or(&self.server);
                measured.extend(measure(process)?);
                *peak = process.peak();
            }
        }
        Ok(all)
    }

    /// Prints quantiles in microseconds, and the peak memory.
    fn quantiles(
        &self,
        title: &str,
        rounds: usize,
        mut measure: impl FnMut(std::net::SocketAddr) -> io::Result<Vec<Duration>>,
    ) -> io::Result<()> {
        let rows = self.turns(rounds, |process| measure(process.at))?.into_iter().map(|(way, mut measured, peak)| {
            measured.sort_unstable();
            let micros = |of_thousand| quantile(&measured, of_thousand).as_secs_f64() * 1e6;
            Row { way: way.to_owned(), values: vec![micros(500), micros(990), micros(999), peak] }
        });
        print(title, &["p50 µs", "p99 µs", "p99.9 µs", "peak MiB"], "plain", &rows.collect::<Vec<_>>());
        Ok(())
    }
}

/// Processor time that this process has used, ns.
fn used_here() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 * 1e9 + used.tv_nsec as f64
}

fn calls(at: std::net::SocketAddr, n: usize, think: Duration) -> io::Result<Vec<Duration>> {
    let mut connection = Connection::open(at)?;
    (0..n)
        .map(|_| {
            thread::sleep(think);
            Ok(connection.call("echo", "\"size\":200")?.0)
        })
        .collect()
}

/// The same of many connections at once.
fn at_once<T: Send>(n: usize, measure: impl Fn() -> io::Result<Vec<T>> + Sync) -> io::Result<Vec<T>> {
    let measured: io::Result<Vec<Vec<T>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n).map(|_| scope.spawn(&measure)).collect();
        threads.into_iter().map(|one| one.join().map_err(|_| io::Error::other("a client died"))?).collect()
    });
    Ok(measured?.into_iter().flatten().collect())
}

/// Runs what was asked for.
pub fn run(options: &Options) -> io::Result<()> {
    let no_time = Duration::ZERO;
    if options.wants("hot") {
        Run::start()?
            .quantiles("200-byte call, back to back", options.rounds, |at| calls(at, options.calls, no_time))?;
    }
    if options.wants("think") {
        let think = Duration::from_millis(5);
        Run::start()?
            .quantiles("200-byte call, 5 ms think time", options.rounds, |at| calls(at, options.calls / 10, think))?;
    }
    if options.wants("many") {
        Run::start()?.quantiles("200-byte call, 64 connections", options.rounds, |at| {
            at_once(64, || calls(at, options.calls / 40, no_time))
        })?;
    }
    if options.wants("streams") {
        Run::start()?.quantiles("an event of 200 streams, from server to client", options.rounds, |at| {
            at_once(200, || Connection::open(at)?.ticks(20))
        })?;
    }
    if options.wants("hangups") {
        let (run, times) = (Run::start()?, options.calls.div_ceil(20));
        run.quantiles("a client hangs up: until the server knows", options.rounds, |at| {
            let mut witness = Connection::open(at)?;
            (0..times).map(|_| Connection::open(at)?.leave(&mut witness)).collect()
        })?;
        run.quantiles("a server hangs up: until the client knows", options.rounds, |at| {
            (0..times).map(|_| Connection::open(at)?.be_left()).collect()
        })?;
    }
    for (tool, title) in [("echo", "one JSON result"), ("events", "one event stream")] {
        if options.wants("bulk") {
            let arguments = format!("\"size\":{}", options.size);
            let run = Run::start()?;
            let measured = run.turns(options.rounds, |process| {
                // What one way does after an answer has passed is its own.
                let (before, ends) = (process.settle()?, run.server.used()? + used_here());
                let (took, bytes) = Connection::open(process.at)?.call(tool, &arguments)?;
                let ends = run.server.used()? + used_here() - ends;
                let used = if process.at == run.server.at { 0.0 } else { process.settle()? - before };
                let rate = bytes as f64 / took.as_secs_f64() / f64::from(1 << 20);
                Ok(vec![[rate, used / bytes as f64, ends / bytes as f64]])
            })?;
            let median = |measured: &[[f64; 3]], column: usize| {
                let mut all: Vec<_> = measured.iter().map(|row| row[column]).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let rows = measured.into_iter().map(|(way, measured, peak)| {
                let of = |column| median(&measured, column);
                Row { way: way.to_owned(), values: vec![of(0), of(1), of(2), peak] }
            });
            let title = format!("{title} of {} MiB (more is better)", options.size >> 20);
            print(
                &title,
                &["MiB/s", "ns/byte between", "ns/byte at ends", "peak MiB"],
                "plain",
                &rows.collect::<Vec<_>>(),
            );
        }
    }
    Ok(())
}
