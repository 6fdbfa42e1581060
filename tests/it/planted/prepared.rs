//! A directory that somebody else prepared, something precious outside of it, and every command run in it within limits.

use assay_support::rig::{Rig, rig};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The longest that one command may take, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(60);
/// Address space of one command, in KiB: what is asked for beyond it ends the command.
const MEMORY: u64 = 3 << 20;
/// What a client sends; the server gives it back.
pub const LINES: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":1}}}"#,
    "\n"
);
/// Allows everything.
const POLICY: &str = "version: \"1\"\ndefault: allow\n";

const SWEPT: [&str; 9] = [
    "00000000000000ff.c2s.ring",
    "00000000000000ff.c2s.spool",
    "00000000000000ff.json",
    "00000000000000ff.4000000.new",
    "00000000000000ff.place",
    "00000000000000fe.place",
    "00000000000000fe.sock",
    "a.ring",
    "recorder.log",
];

pub struct Prepared {
    rig: Rig,
    pub root: PathBuf,
    /// The working directory, as it was cloned.
    pub work: PathBuf,
    /// The default audit directory in it.
    pub audit: PathBuf,
    /// What must not change.
    pub outside: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

impl Prepared {
    pub fn new() -> Self {
        let rig = rig!();
        let root = rig.root.clone();
        let (work, outside) = (root.join("work"), root.join("outside"));
        for dir in [&work, &outside, &outside.join("dir"), &root.join("home")] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(outside.join("key"), "a private key\n").unwrap();
        fs::write(outside.join("dir/document"), "a document\n").unwrap();
        // Names of what is swept away where it is ours.
        for name in SWEPT {
            fs::write(outside.join("dir").join(name), "of somebody\n").unwrap();
        }
        fs::create_dir_all(outside.join("dir/.assay_pack_staging_mcp00000000000000ff/kept")).unwrap();
        fs::write(work.join("policy.yaml"), POLICY).unwrap();
        let before = state(&outside);
        Self { audit: work.join(".assay/mcp"), work, outside, before, root, rig }
    }

    /// The command, with limits and in surroundings of its own.
    fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.rig.shell(&format!("ulimit -c 0; ulimit -v {MEMORY}; exec \"$0\" \"$@\""));
        command
            .args(args)
            .current_dir(&self.work)
            .env("HOME", self.root.join("home"))
            .env("ASSAY_HOME", self.root.join("home/.assay"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end; whatever it finds, it neither hangs nor dies, and nothing outside changes.
    pub fn run(&self, what: &str, args: &[impl AsRef<OsStr>], input: &str) -> Output {
        let mut child = self.command(args).spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = finish(child, what, LIMIT);
        self.is_unharmed(what, &output);
        output
    }

    /// The same in other surroundings.
    pub fn run_in(&self, what: &str, env: &[(&str, Option<&str>)], args: &[&str], input: &str) -> Output {
        let mut command = self.command(args);
        for (name, value) in env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = finish(child, what, LIMIT);
        self.is_unharmed(what, &output);
        output
    }

    /// The same for a command that goes on until it is interrupted.
    pub fn run_for_a_while(&self, what: &str, args: &[&str]) -> Output {
        let child = self.command(args).stdin(Stdio::null()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        thread::sleep(Duration::from_millis(300));
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let output = finish(child, what, LIMIT);
        self.is_unharmed(what, &output);
        output
    }

    fn is_unharmed(&self, what: &str, output: &Output) {
        let said = String::from_utf8_lossy(&output.stderr);
        let interrupted = output.status.signal() == Some(2);
        assert!(output.status.signal().is_none() || interrupted, "{what}: {}\n{said}", output.status);
        for word in ["panicked", "memory allocation", "stack overflow"] {
            assert!(!said.contains(word), "{what}: {said}");
        }
        assert_eq!(state(&self.outside), self.before, "{what}: something outside has changed\n{said}");
    }

    /// One session of an echoing server; what the peers see is not touched by what is planted.
    pub fn proxy(&self, what: &str, flags: &[&str]) -> Output {
        let args = [&["mcp-proxy"], flags, &["--", "cat"]].concat();
        let output = self.run(what, &args, LINES);
        Self::passed(what, &output);
        output
    }

    fn passed(what: &str, output: &Output) {
        let got = String::from_utf8_lossy(&output.stdout);
        assert_eq!(got, LINES, "{what}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 2)), "{what}: {output:?}");
    }

    /// The same where the key may be one that must not be used, which is said before the server starts.
    pub fn proxy_with_any_key(&self, what: &str, flags: &[&str]) {
        let args = [&["mcp-proxy"], flags, &["--", "cat"]].concat();
        let output = self.run(what, &args, LINES);
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(3) && said.contains("/keys/") {
            assert!(output.stdout.is_empty(), "{what}: {output:?}");
        } else {
            Self::passed(what, &output);
        }
    }

    /// A session whose proxy is killed after it was answered; gives the stem of its files.
    pub fn killed_session(&self) -> String {
        let before = self.stems();
        let mut child = self.command(&["mcp-proxy", "--", "cat"]).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(LINES.as_bytes()).unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        for _ in LINES.lines() {
            out.read_line(&mut String::new()).unwrap();
        }
        let start = Instant::now();
        let stem = loop {
            let new = self.stems().into_iter().find(|stem| !before.contains(stem));
            // Its first events are on disk.
            let begun = |stem: &String| {
                let path = self.audit.join(format!("audit/segment_{stem}.jsonl"));
                fs::metadata(path).is_ok_and(|m| m.len() > 500)
            };
            if let Some(stem) = new.filter(begun) {
                break stem;
            }
            assert!(start.elapsed() < LIMIT, "the session did not begin");
            thread::sleep(Duration::from_millis(1));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        stem
    }

    /// A session that ended as it should; gives the stem of its files.
    pub fn finished_session(&self) -> String {
        let before = self.stems();
        let output = self.proxy("a session to begin with", &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        self.stems().into_iter().find(|stem| !before.contains(stem)).unwrap()
    }

    /// The sessions that have a segment, or had one: those that the ledger names.
    pub fn stems(&self) -> Vec<String> {
        let stem = |name: &str| Some(name.strip_prefix("segment_")?.strip_suffix(".jsonl")?.to_owned());
        let mut all: BTreeSet<String> = names(&self.audit.join("audit")).iter().filter_map(|name| stem(name)).collect();
        let ledger = self.audit.join("audit/ledger.jsonl");
        // What is planted there may be no file, or never end.
        if fs::symlink_metadata(&ledger).is_ok_and(|m| m.is_file() && m.len() < 1 << 20) {
            let text = fs::read_to_string(ledger).unwrap_or_default();
            all.extend(text.split('"').filter_map(stem));
        }
        all.into_iter().collect()
    }

    /// The packs that stand.
    pub fn packs(&self) -> Vec<String> {
        names(&self.audit.join("packs")).into_iter().filter(|name| name.starts_with("proof_pack_")).collect()
    }
}

/// The 16 hex digits of a session in the stem of its files.
pub fn hex_of(stem: &str) -> &str {
    stem.rsplit_once('_').unwrap().1
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// Everything below a directory: kind, mode, names, and content or where it leads.
fn state(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut text = format!("{:o}", meta.mode());
        if meta.is_dir() {
            left.extend(names(&path).iter().map(|name| path.join(name)));
        } else if meta.is_symlink() {
            text += &format!(" -> {}", fs::read_link(&path).unwrap().display());
        } else {
            text += &format!(" {}", String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
        all.insert(path, text);
    }
    all
}

fn finish(mut child: Child, what: &str, limit: Duration) -> Output {
    let read = |from: Option<Box<dyn std::io::Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            from.unwrap().take(16 << 20).read_to_end(&mut bytes).unwrap();
            bytes
        })
    };
    let out = read(child.stdout.take().map(|s| Box::new(s) as _));
    let err = read(child.stderr.take().map(|s| Box::new(s) as _));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{what}: it hangs: {}", String::from_utf8_lossy(&err.join().unwrap()));
        }
        thread::sleep(Duration::from_millis(1));
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}
