//! What the proxy costs: direct connection, bare two-thread relay, this crate's relay alone, and `assay mcp-proxy`
//! unwatched and with a subscriber on its live socket, one after the other in turns within one run, compared by ratio.
//!
//! `cargo bench --bench proxy -- [--only hot,think,big,sustained,burst,giant,argument,start,exit,contents,hostile] [--rounds N] [--calls N]
//! [--against PATH] [--quick] [--json]`; `--against` takes another build of `assay` as one more way.
//!
//! Percentiles are of single calls over all rounds, throughput is the median round. Compare ratios, not numbers, and
//! leave the machine alone meanwhile: a busy one shows in every column.
//!
//! The same executable plays all parts: `server` (ping-pong JSON-RPC server), `bare` and `relay-only` (proxies).
#![allow(clippy::pedantic)]

mod client;
mod proxies;
mod scenarios;
mod table;
mod watchers;

use std::ffi::OsString;
use std::io;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    only: Vec<String>,
    rounds: usize,
    calls: usize,
    quick: bool,
    json: bool,
    against: Option<String>,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { only: Vec::new(), rounds: 6, calls: 5000, quick: false, json: false, against: None };
        let mut args = args;
        let mut bench = false;
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--rounds" => options.rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
                "--calls" => options.calls = value()?.parse().map_err(|e| format!("--calls: {e}"))?,
                "--quick" => options.quick = true,
                "--against" => options.against = Some(value()?),
                "--json" => options.json = true,
                // `cargo bench` adds this; without it (`cargo test --benches`) the question is whether all of it runs.
                "--bench" => bench = true,
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        options.quick |= !bench;
        if options.quick {
            options.rounds = options.rounds.min(2);
            options.calls = options.calls.min(500);
        }
        Ok(options)
    }

    /// Whether a scenario was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn run() -> io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    match first.as_ref().and_then(|arg| arg.to_str()) {
        Some("server") => return assay_support::sized::serve(),
        Some("bare") => proxies::bare(&args.skip(1).collect::<Vec<OsString>>()),
        Some("relay-only") => proxies::relay_only(&args.skip(1).collect::<Vec<OsString>>()),
        _ => {}
    }
    let options = Options::parse(std::env::args().skip(1)).map_err(io::Error::other)?;
    let ways = client::ways(options.against.as_deref())?;
    let report = scenarios::run(&options, &ways)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        table::print(&report);
    }
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("proxy bench: {error}");
        std::process::exit(1);
    }
}
