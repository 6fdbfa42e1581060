//! What the recorder costs over HTTP: a direct connection, a plain reverse proxy of hyper with the same settings, and
//! `assay mcp-proxy --listen` in audit and guard, in turns within one run; and the bridge beside other bridges.
//!
//! `cargo bench --bench http -- [--only hot,think,many,streams,hangups,bulk,bridge] [--rounds N] [--calls N] [--size BYTES] [--quick]`
//!
//! Percentiles are of single calls over all rounds, throughput is the median round. Compare ratios, not numbers, and
//! leave the machine alone meanwhile. Other bridges are taken from `target/interop`, if `tests/run.sh` has installed them.
//!
//! The same executable plays all parts: `server` and `plain`.
#![allow(clippy::pedantic)]

mod bridges;
mod client;
mod plain;
mod scenarios;
mod server;

use std::io;

/// What to run.
pub struct Options {
    only: Vec<String>,
    /// How often each way has its turn.
    pub rounds: usize,
    /// Calls of a turn.
    pub calls: usize,
    /// Bytes of a large result.
    pub size: u64,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { only: Vec::new(), rounds: 5, calls: 2000, size: 1 << 30 };
        let (mut quick, mut bench) = (false, false);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--rounds" => options.rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
                "--calls" => options.calls = value()?.parse().map_err(|e| format!("--calls: {e}"))?,
                "--size" => options.size = value()?.parse().map_err(|e| format!("--size: {e}"))?,
                "--quick" => quick = true,
                // `cargo bench` adds this; without it (`cargo test --benches`) the question is whether all of it runs.
                "--bench" => bench = true,
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        if quick || !bench {
            options.rounds = options.rounds.min(2);
            options.calls = options.calls.min(200);
            options.size = options.size.min(16 << 20);
        }
        Ok(options)
    }

    /// Whether a scenario was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn run() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => return server::serve(),
        ["plain", upstream] => return plain::serve(upstream),
        _ => {}
    }
    let options = Options::parse(args.into_iter()).map_err(io::Error::other)?;
    scenarios::run(&options)?;
    if options.wants("bridge") {
        bridges::run(&options)?;
    }
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("http bench: {error}");
        std::process::exit(1);
    }
}
