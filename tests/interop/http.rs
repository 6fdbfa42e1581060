//! Servers with a URL, and the recorder in front of them: the listener and the bridge.

mod clients;
pub mod conformance;
mod cut;
mod stories;

pub use cut::Cutter;

use crate::install;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);

/// What the recorder does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Audit,
    /// With a policy that allows everything.
    Guard,
    /// The same, and of the server `s` nothing passes that nobody approved.
    Approved,
}

impl Profile {
    pub const ALL: [Self; 2] = [Self::Audit, Self::Guard];

    /// The verdict on every call.
    pub fn verdict(self) -> &'static str {
        match self {
            Self::Audit => "no_policy",
            Self::Guard | Self::Approved => "allowed",
        }
    }
}

/// `assay mcp-proxy` in front of a URL, which is the last word. Its audit directory is `audit` in `dir`.
pub fn bridge(profile: Profile, url: &str, dir: &Path) -> Vec<String> {
    fs::create_dir_all(dir).unwrap();
    let mut words = vec![install::assay().display().to_string(), "mcp-proxy".to_owned()];
    words.extend(["--audit-dir", dir.join("audit").to_str().unwrap()].map(str::to_owned));
    if profile != Profile::Audit {
        let policy = dir.join("policy.yaml");
        fs::write(&policy, "version: \"1\"\ndefault: allow\n").unwrap();
        let surface: &[&str] = match profile {
            Profile::Approved => &["--server-id", "s", "--surface-first", "approve"],
            // What a server says otherwise than at first passes, too.
            _ => &["--surface", "report"],
        };
        let flags = [&["--profile", "guard", "--policy", policy.to_str().unwrap()], surface].concat();
        words.extend(flags.into_iter().map(str::to_owned));
    }
    words.extend(["--upstream-url", url].map(str::to_owned));
    words
}

/// A listener of the recorder in front of a URL.
pub struct Listener {
    child: Child,
    /// Where clients connect.
    pub url: String,
    audit: PathBuf,
    log: PathBuf,
}

impl Listener {
    pub fn start(profile: Profile, url: &str, dir: &Path, flags: &[&str]) -> Self {
        let words = bridge(profile, url, dir);
        let home = dir.join("home");
        fs::create_dir_all(&home).unwrap();
        let log = dir.join("listener.log");
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["--listen", "127.0.0.1:0"]).args(flags).env("HOME", &home);
        command.env("ASSAY_HOME", home.join(".assay")).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "the listener has ended");
        let of_client = line.strip_prefix("assay: listening on ").unwrap_or_else(|| panic!("{line}"));
        let url = of_client.split(' ').next().unwrap().to_owned();
        let mut file = fs::File::create(&log).unwrap();
        thread::spawn(move || std::io::copy(&mut said, &mut file));
        Self { child, url, audit: dir.join("audit"), log }
    }

    /// Ends it as a user would; its audit directory, in which every session is a pack.
    pub fn end(self) -> PathBuf {
        self.end_with(&[0])
    }

    /// The same, where it may end with one of these codes: 1 says that a guard has refused something.
    pub fn end_with(mut self, codes: &[i32]) -> PathBuf {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        assert!(codes.iter().any(|one| code == Some(*one)), "{code:?}\n{}", install::tail(&self.log));
        self.audit.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that listens on this machine.
pub struct Upstream {
    child: Child,
    pub url: String,
}

impl Upstream {
    /// Starts the command, in which `{port}` is a free port, and waits until it listens.
    pub fn start(command: &[String], path: &str, dir: &Path) -> Self {
        let log = dir.join("upstream.log");
        for _ in 0..5 {
            let port = free_port();
            let words: Vec<String> = command.iter().map(|word| word.replace("{port}", &port.to_string())).collect();
            let output = fs::File::create(&log).unwrap();
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]).current_dir(dir).env("HOME", dir).stdin(Stdio::null());
            let mut child = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
            let begun = Instant::now();
            // If somebody else has taken the port meanwhile, it ends.
            while child.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self { child, url: format!("http://127.0.0.1:{port}{path}") };
                }
                assert!(begun.elapsed() < LIMIT, "{words:?} does not listen\n{}", install::tail(&log));
                thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("{command:?} does not start\n{}", install::tail(&log));
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody has, below those that the system gives to clients.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add((std::process::id() % 10_000) as u16);
        let port = 20_000 + step % 10_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
