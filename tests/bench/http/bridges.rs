//! The bridge beside others: a client over stdio, the same server.

use crate::{
    Options,
    client::{Process, call, command},
    scenarios::{Row, print, quantile},
};
use assay_support::rig::{INITIALIZE, piped};
use std::{
    ffi::OsString,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout},
    time::{Duration, Instant},
};

struct Bridge {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    id: u64,
    _home: tempfile::TempDir,
}

impl Bridge {
    /// Starts it and a session; how long that took.
    fn start(words: &[OsString]) -> io::Result<(Self, Duration)> {
        let begun = Instant::now();
        let (home, mut command) = command(words)?;
        let (child, stdin, stdout) = piped(&mut command)?;
        let mut bridge = Self { child, stdin, stdout: BufReader::new(stdout), id: 0, _home: home };
        bridge.ask(0, INITIALIZE)?;
        let took = begun.elapsed();
        bridge.stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        bridge.call()?;
        Ok((bridge, took))
    }

    /// Sends a request and reads up to its answer: a bridge may have something of its own to say.
    fn ask(&mut self, id: u64, line: &str) -> io::Result<()> {
        self.stdin.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        loop {
            answer.clear();
            if self.stdout.read_line(&mut answer)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let answer: serde_json::Value = serde_json::from_str(&answer).map_err(io::Error::other)?;
            if answer["id"] == id && answer.get("method").is_none() {
                return if answer["result"].is_object() { Ok(()) } else { Err(io::Error::other(answer.to_string())) };
            }
        }
    }

    fn call(&mut self) -> io::Result<Duration> {
        self.id += 1;
        let line = call(self.id, "echo", "\"size\":200", 200);
        let begun = Instant::now();
        self.ask(self.id, &line)?;
        Ok(begun.elapsed())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All bridges that are there.
fn ways(url: &str) -> Vec<(&'static str, Vec<OsString>)> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let assay = env!("CARGO_BIN_EXE_assay");
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop");
    let (remote, fastmcp) = (installed.join("node_modules/.bin/mcp-remote"), installed.join("venv/bin/fastmcp"));
    let mut ways = vec![
        ("audit", words(&[assay, "mcp-proxy", "--upstream-url", url])),
        ("guard", words(&[assay, "mcp-proxy", "--upstream-url", url, "--profile", "guard", "--policy", "policy.yaml"])),
    ];
    let others = [
        ("mcp-remote", &remote, &[url, "--allow-http", "--transport", "http-only"][..]),
        ("fastmcp", &fastmcp, &["run", url, "--no-banner"]),
    ];
    for (name, program, flags) in others {
        if program.exists() {
            ways.push((name, [&[program.into()][..], &words(flags)].concat()));
        } else {
            eprintln!("without {name}: tests/run.sh --install-only installs it");
        }
    }
    ways
}

/// Calls through each bridge, in turns.
pub fn run(options: &Options) -> io::Result<()> {
    let server = Process::start(&[std::env::current_exe()?.into_os_string(), "server".into()])?;
    let mut bridges = Vec::new();
    for (name, words) in ways(&format!("http://{}/mcp", server.at)) {
        let (bridge, started) = Bridge::start(&words).map_err(|e| io::Error::other(format!("{name}: {e}")))?;
        bridges.push((name, bridge, started, Vec::new()));
    }
    for _ in 0..options.rounds {
        for (_, bridge, _, measured) in &mut bridges {
            for _ in 0..options.calls / 4 {
                measured.push(bridge.call()?);
            }
        }
    }
    let rows = bridges.iter_mut().map(|(name, bridge, started, measured)| {
        measured.sort_unstable();
        let micros = |of_thousand| quantile(measured, of_thousand).as_secs_f64() * 1e6;
        let peak = assay_support::alone::peak_kib(bridge.child.id()) as f64 / 1024.0;
        Row { way: (*name).to_owned(), values: vec![micros(500), micros(990), started.as_secs_f64() * 1e3, peak] }
    });
    let rows: Vec<Row> = rows.collect();
    print("bridge: 200-byte call, back to back", &["p50 µs", "p99 µs", "start ms", "peak MiB"], "audit", &rows);
    Ok(())
}
