//! The client's side: start a way to the server, call, measure.

use crate::watchers::{Watcher, Watching};
use assay_support::{alone::peak_kib, rig::piped};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A way from client to server.
#[derive(Debug, Clone)]
pub struct Way {
    /// Name in the table.
    pub name: &'static str,
    /// Command line, server included.
    pub command: Vec<OsString>,
    /// Who is at its live socket.
    pub watcher: Watcher,
}

/// All ways that exist in this build; with the proxy of `other`, another build of `assay`.
pub fn ways(other: Option<&str>) -> io::Result<Vec<Way>> {
    let me = std::env::current_exe()?.into_os_string();
    let assay = OsString::from(env!("CARGO_BIN_EXE_assay"));
    let server = [me.clone(), "server".into()];
    let way = |name, before: &[OsString]| Way {
        name,
        command: before.iter().chain(&server).cloned().collect(),
        watcher: Watcher::Nobody,
    };
    let mut ways = vec![
        way("direct", &[]),
        way("bare relay", &[me.clone(), "bare".into(), "--".into()]),
        way("relay only", &[me, "relay-only".into(), "--".into()]),
    ];
    let help = Command::new(&assay).args(["mcp-proxy", "--help"]).stderr(Stdio::null()).output()?;
    if help.status.success() && !help.stdout.is_empty() {
        let proxy = way("assay", &[assay.clone(), "mcp-proxy".into(), "--".into()]);
        ways.push(proxy.clone());
        let storing = ["mcp-proxy", "--store-args", "--store-results", "--"].map(OsString::from);
        ways.push(way("stored", &[&[assay.clone()][..], &storing].concat()));
        ways.push(Way { name: "watched", watcher: Watcher::Follows, ..proxy });
        if let Some(other) = other {
            ways.push(way("other", &[other.into(), "mcp-proxy".into(), "--".into()]));
        }
        let guard = ["mcp-proxy", "--profile", "guard", "--policy", POLICY, "--"].map(OsString::from);
        ways.push(way("guard", &[&[assay][..], &guard].concat()));
    }
    Ok(ways)
}

/// The guard's policy, in the directory of each session.
const POLICY: &str = "policy.yaml";

/// A policy of a hundred rules, the last of which allows what is called.
fn policy() -> String {
    let names = |what: &str| (0..49).map(|n| format!("{what}_{n}.*, ")).collect::<String>();
    format!(
        "version: \"1\"\ndefault: deny\ndenylist: [{}rm]\nallowlist: [{}echo]\nconstraints:\n  echo:\n    deny_patterns: [\"AKIA[0-9A-Z]{{16}}\"]\n",
        names("denied"),
        names("allowed")
    )
}

/// A running session.
pub struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    buffer: Vec<u8>,
    id: u64,
    watching: Option<Watching>,
    home: tempfile::TempDir,
    _runtime: tempfile::TempDir,
}

impl Session {
    /// Starts `way` in a directory of its own.
    pub fn start(way: &Way) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        // In memory, as `XDG_RUNTIME_DIR` is where people log in.
        let memory = Path::new("/dev/shm");
        let runtime = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let run = runtime.path().to_owned();
        let policy_file = home.path().join(POLICY);
        std::fs::write(&policy_file, policy())?;
        // One that was written just now is read twice, with a pause between.
        std::fs::File::options().write(true).open(policy_file)?.set_modified(SystemTime::UNIX_EPOCH)?;
        let mut command = Command::new(&way.command[0]);
        command
            .args(&way.command[1..])
            .current_dir(home.path())
            .env("ASSAY_HOME", home.path().join("home"))
            .env("XDG_RUNTIME_DIR", &run);
        let (child, stdin, stdout) = piped(&mut command)?;
        let watching = (way.watcher != Watcher::Nobody).then(|| Watching::start(way.watcher, run.join("assay")));
        Ok(Self {
            child,
            stdin: Some(stdin),
            stdout,
            buffer: vec![0; 256 * 1024],
            id: 0,
            watching,
            home,
            _runtime: runtime,
        })
    }

    /// Waits until whoever watches has been greeted.
    pub fn ready(&self) -> io::Result<()> {
        self.watching.as_ref().map_or(Ok(()), Watching::ready)
    }

    /// Live events that subscribers missed, as the session's pack says; after [`Session::finish`].
    fn missed(&self) -> u64 {
        let packs = std::fs::read_dir(self.home.path().join(".assay/mcp/packs")).into_iter().flatten().flatten();
        let documents = packs.filter_map(|p| std::fs::read(p.path().join("session.json")).ok());
        let document = documents.filter_map(|text| serde_json::from_slice::<serde_json::Value>(&text).ok()).next();
        document.and_then(|d| d["live_events_missed"].as_u64()).unwrap_or_default()
    }

    /// One call of `sent` bytes whose answer has `wanted` bytes. Returns the time from before the write to the last byte.
    pub fn call(&mut self, sent: usize, wanted: usize) -> io::Result<Duration> {
        self.id += 1;
        let mut line = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"echo","arguments":{{"size":{wanted},"pad":""#,
            self.id
        )
        .into_bytes();
        let tail = b"\"}}}\n";
        line.resize(line.len().max(sent.saturating_sub(tail.len())), b'y');
        line.extend_from_slice(tail);
        let start = Instant::now();
        let stdin = self.stdin.as_mut().ok_or_else(|| io::Error::other("closed"))?;
        stdin.write_all(&line)?;
        let mut received = 0;
        loop {
            let n = self.stdout.read(&mut self.buffer)?;
            if n == 0 {
                return Err(io::Error::other("the server's answer ended early"));
            }
            received += n;
            if self.buffer[n - 1] == b'\n' {
                break;
            }
        }
        let took = start.elapsed();
        if received == wanted.max(1) || wanted < 100 { Ok(took) } else { Err(io::Error::other("answer of wrong size")) }
    }

    /// Peak resident memory of the first process of the way, KiB (Linux).
    pub fn peak_kib(&self) -> Option<u64> {
        Some(peak_kib(self.child.id())).filter(|kib| *kib > 0)
    }

    /// Closes stdin and waits for the exit. Returns how long that took.
    pub fn finish(self) -> io::Result<Duration> {
        self.finish_and_tell().map(|(took, _)| took)
    }

    /// The same, with the number of events that subscribers missed.
    pub fn finish_and_tell(mut self) -> io::Result<(Duration, u64)> {
        let start = Instant::now();
        drop(self.stdin.take());
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest)?;
        let status = self.child.wait()?;
        let took = start.elapsed();
        drop(self.watching.take());
        if rest.is_empty() && status.success() {
            Ok((took, self.missed()))
        } else {
            Err(io::Error::other(format!("ended with {status} and {} bytes left over", rest.len())))
        }
    }
}
