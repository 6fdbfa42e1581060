//! A place for one test: directories of its own, the program run in them, the proxy with its server, and a client that writes
//! down what it gets.

use crate::sessions::{self, Plan};
use assay::paths::AuditDir;
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The longest that anything here may take.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Polls until `done` answers; panics with `what` after [`LIMIT`].
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = done() {
            return answer;
        }
        assert!(start.elapsed() < LIMIT, "waited too long for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A new [`Rig`] with the program of the tests that ask for it: cargo tells only them where it is.
#[macro_export]
macro_rules! rig {
    () => {
        $crate::rig::Rig::new(env!("CARGO_BIN_EXE_assay"))
    };
}

pub use crate::rig;

/// Temporary directories of tests: on tmpfs where there is one, so that syncing costs nothing.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A temporary directory for what benchmarks make, gigabytes of it: in `ASSAY_BENCH_DIR`, else where the system has them.
pub fn bench_scratch() -> tempfile::TempDir {
    let root = std::env::var_os("ASSAY_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(root).unwrap()
}

/// Directories of one test, and the program in them.
pub struct Rig {
    /// Where commands run. The user directory is `home` in it, the run directory `run/assay`.
    pub root: PathBuf,
    pub audit: PathBuf,
    /// The program.
    pub assay: &'static str,
    _tmp: tempfile::TempDir,
}

impl Rig {
    /// See [`rig!`](crate::rig!).
    pub fn new(assay: &'static str) -> Self {
        let tmp = scratch();
        let root = tmp.path().canonicalize().unwrap();
        fs::create_dir(root.join("run")).unwrap();
        Self { audit: root.join("audit"), root, assay, _tmp: tmp }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes a file; its path as an argument.
    pub fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.at(name), text).unwrap();
        self.at(name).to_str().unwrap().to_owned()
    }

    /// The pack of a synthetic session in the audit directory.
    pub fn pack(&self, plan: &Plan) -> PathBuf {
        sessions::packed(plan, &self.audit)
    }

    pub fn server_log(&self) -> PathBuf {
        self.root.join("server.log")
    }

    /// Any command with this rig's environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("ASSAY_HOME", self.root.join("home"))
            .env("HOME", &self.root)
            .env("XDG_RUNTIME_DIR", self.root.join("run"))
            .env("CRASH_SERVER_LOG", self.server_log())
            .env("DRIFT_SCRIPT", self.at("drift.json"))
            .env_remove("ASSAY_AUDIT_DIR")
            .env_remove("CRASH_SERVER")
            .env_remove("CLICOLOR_FORCE")
            .env("NO_COLOR", "1");
        command
    }

    /// Arguments of a proxy in front of this binary's server, the program `assay` first. `before` is shell text that runs
    /// before the server.
    pub fn proxy_argv(&self, flags: &[&str], before: &str) -> Vec<String> {
        let mut argv = vec![self.assay.to_owned(), "mcp-proxy".to_owned()];
        argv.extend(["--audit-dir".to_owned(), self.audit.display().to_string()]);
        argv.extend(flags.iter().map(|f| (*f).to_owned()));
        argv.push("--".to_owned());
        argv.extend(Self::server_argv(before));
        argv
    }

    /// The command of this binary's server. `before` is shell text that runs before it.
    pub fn server_argv(before: &str) -> Vec<String> {
        let me = std::env::current_exe().unwrap().display().to_string();
        let wrapper = format!("{before} exec 3>&1 >/dev/null; exec \"$0\" \"$@\"");
        let test = ["--ignored", "--exact", "server", "--nocapture", "--test-threads=1"];
        ["sh", "-c", &wrapper, &me].into_iter().chain(test).map(str::to_owned).collect()
    }

    /// What this binary's server offers from now on: see [`crate::drift`].
    pub fn offers(&self, script: &Value) {
        fs::write(self.at("drift.tmp"), script.to_string()).unwrap();
        fs::rename(self.at("drift.tmp"), self.at("drift.json")).unwrap();
    }

    /// The proxy, ready to be started.
    pub fn proxy(&self, flags: &[&str]) -> Command {
        self.wrapped(&[], flags, "")
    }

    /// The same behind another command (`strace …`).
    pub fn wrapped(&self, wrapper: &[&str], flags: &[&str], before: &str) -> Command {
        let mut argv: Vec<String> = wrapper.iter().map(|w| (*w).to_owned()).collect();
        argv.extend(self.proxy_argv(flags, before));
        let mut command = self.command(&argv[0]);
        command.args(&argv[1..]);
        command
    }

    /// The program, ready to be started.
    pub fn program(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.assay);
        command.args(args);
        command
    }

    /// A shell script, ready to be started; in it `$0` is the program.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = self.command("sh");
        command.args(["-c", script, self.assay]);
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.program(args).output().unwrap()
    }

    /// Runs it with `--json`; the document, if its exit code is `code`.
    pub fn json(&self, code: i32, args: &[&str]) -> Value {
        let out = self.run(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(code), "{args:?} {}{}", stdout(&out), stderr(&out));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", stdout(&out)))
    }

    pub fn recover(&self) -> Output {
        self.run(&["recover", "--json", "--audit-dir", self.audit.to_str().unwrap()])
    }

    /// A session through the proxy with the built-in server, to its end; `calls` are the parameters of its tool calls.
    pub fn record(&self, audit: &str, flags: &[&str], calls: &[Value]) {
        let argv = [&["mcp-proxy", "--audit-dir", audit], flags, &["--", self.assay, "demo-server"]].concat();
        let mut client = Client::start(self.program(&argv));
        client.send(INITIALIZE);
        for (n, params) in calls.iter().enumerate() {
            client.send(&json!({"jsonrpc": "2.0", "id": n + 1, "method": "tools/call", "params": params}).to_string());
        }
        client.await_lines(calls.len() + 1);
        assert!(client.end().success(), "{}", client.said());
    }

    /// Processes of this rig: those whose environment names its server log.
    pub fn processes(&self) -> Vec<PathBuf> {
        let mark = self.server_log();
        let mut all = files(Path::new("/proc"), |n| n.bytes().all(|b| b.is_ascii_digit()));
        all.retain(|pid| {
            let environ = fs::read(pid.join("environ")).unwrap_or_default();
            memchr::memmem::find(&environ, mark.as_os_str().as_encoded_bytes()).is_some()
        });
        all
    }

    /// Waits until they are gone: a server may still write down what it has, and one that was just being started holds
    /// what the proxy held.
    pub fn await_silence(&self) {
        until("every process to end", || self.processes().is_empty().then_some(()));
    }

    /// Waits until the only segment of a session that is not sealed has so many events.
    pub fn await_events(&self, n: usize) {
        until(&format!("{n} events on disk"), || {
            let has =
                |path: &PathBuf| fs::read(path).is_ok_and(|text| text.iter().filter(|b| **b == b'\n').count() >= n);
            self.segments().iter().any(has).then_some(())
        });
    }

    /// The segments of all sessions, the oldest first. That of a sealed one is in its pack: see [`journal`].
    pub fn segments(&self) -> Vec<PathBuf> {
        AuditDir::at(&self.audit).sessions().into_values().map(|paths| paths.segment).collect()
    }

    /// The receipts of all sessions, the oldest first. Those of a sealed one are in its pack: see [`journal`].
    pub fn receipts(&self) -> Vec<PathBuf> {
        receipts(&self.audit)
    }

    /// The only pack of an audit directory.
    pub fn only_pack(&self, audit: &str) -> PathBuf {
        let packs = files(&self.at(audit).join("packs"), |name| name.starts_with("proof_pack_"));
        let [pack] = &packs[..] else { panic!("{packs:?}") };
        pack.clone()
    }

    /// The receipts of calls in the only pack of an audit directory.
    pub fn receipts_of_calls(&self, audit: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.only_pack(audit).join("receipt_pack.jsonl")).unwrap();
        let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|receipt| receipt["type"] == "mcp_tool_call").collect()
    }

    /// Puts the journals back beside their packs, where assay left them once.
    pub fn as_once(&self) {
        for path in self.segments().into_iter().chain(self.receipts()) {
            if !path.exists() {
                fs::copy(journal(&path), path).unwrap();
            }
        }
    }
}

/// Where the lines of a journal are: once its session is sealed, in its pack.
pub fn journal(path: &Path) -> PathBuf {
    if path.exists() { path.to_owned() } else { assay::paths::in_pack(path).unwrap() }
}

/// The receipts of all sessions of an audit directory; see [`journal`].
pub fn receipts(audit: &Path) -> Vec<PathBuf> {
    AuditDir::at(audit).sessions().into_values().map(|paths| paths.receipts).collect()
}

pub fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).unwrap()
}

pub fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).unwrap()
}

/// The entries of a directory whose name passes, sorted; none if there is no directory.
pub fn files(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut all: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    all.retain(|p| wanted(p.file_name().unwrap().to_str().unwrap()));
    all.sort();
    all
}

/// Starts a command with its standard input and output in our hands, and its errors nowhere.
///
/// # Errors
/// What the system says.
pub fn piped(command: &mut Command) -> io::Result<(Child, ChildStdin, ChildStdout)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    Ok((child, stdin, stdout))
}

/// A client in front of a running proxy.
pub struct Client {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    got: Arc<Mutex<Vec<u8>>>,
    said: Arc<Mutex<Vec<u8>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Client {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let (got, said) = (Arc::default(), Arc::default());
        let threads = vec![
            collect(child.stdout.take().unwrap(), Arc::clone(&got)),
            collect(child.stderr.take().unwrap(), Arc::clone(&said)),
        ];
        Self { child, stdin, got, said, threads }
    }

    /// Sends one line; a proxy that is gone is not an error.
    pub fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{line}\n").as_bytes());
        }
    }

    pub fn got(&self) -> Vec<u8> {
        self.got.lock().unwrap().clone()
    }

    pub fn shared(&self) -> Arc<Mutex<Vec<u8>>> {
        Arc::clone(&self.got)
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Lines received so far.
    pub fn lines(&self) -> usize {
        self.got.lock().unwrap().iter().filter(|b| **b == b'\n').count()
    }

    pub fn await_lines(&self, n: usize) {
        until(&format!("{n} lines"), || (self.lines() >= n).then_some(()));
    }

    /// Waits until the proxy has said this on stderr; a failure shows what it said, and what its threads do.
    pub fn await_said(&self, text: &str) {
        let start = Instant::now();
        while !self.said().contains(text) {
            let waits = start.elapsed() < LIMIT;
            assert!(waits, "waited too long for {text:?} in {:?}; threads: {:#?}", self.said(), self.threads());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The names of the proxy's threads, each with the system call that it is in.
    fn threads(&self) -> Vec<String> {
        let of = |task: &Path, name: &str| fs::read_to_string(task.join(name)).unwrap_or_default().trim().to_owned();
        let tasks = files(Path::new(&format!("/proc/{}/task", self.child.id())), |_| true);
        tasks.iter().map(|task| format!("{}: {}", of(task, "comm"), of(task, "syscall"))).collect()
    }

    /// Where a proxy with `--listen` listens.
    pub fn address(&self) -> SocketAddr {
        until("the listener", || {
            let said = self.said();
            let (_, rest) = said.split_once("listening on http://")?;
            rest.split_once('/').map(|(address, _)| address.parse().unwrap())
        })
    }

    /// Waits for an answer to each of `lines` in turn; returns the longest wait.
    pub fn converse(&mut self, lines: impl Iterator<Item = String>) -> Duration {
        let mut longest = Duration::ZERO;
        for line in lines {
            let (before, start) = (self.lines(), Instant::now());
            self.send(&line);
            self.await_lines(before + 1);
            longest = longest.max(start.elapsed());
        }
        longest
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills the proxy, whatever it does, and collects what is still in its pipes.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.end();
    }

    /// Kills proxies of one directory so that none of them lives to recover another one.
    pub fn kill_all<'a>(clients: impl IntoIterator<Item = &'a mut Self>) {
        let mut all: Vec<_> = clients.into_iter().collect();
        for client in &all {
            client.signal(rustix::process::Signal::STOP);
            let pid = rustix::process::Pid::from_child(&client.child);
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED).unwrap();
        }
        all.iter_mut().for_each(|client| client.kill());
    }

    /// Closes stdin and waits for the proxy.
    pub fn end(&mut self) -> ExitStatus {
        self.stdin = None;
        let status = self.wait();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        status
    }

    pub fn wait(&mut self) -> ExitStatus {
        until("the proxy to end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl std::io::Read + Send + 'static, into: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            into.lock().unwrap().extend_from_slice(&buffer[..n]);
        }
    })
}

/// A `tools/call`.
pub fn call(id: u64, tool: &str, n: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{n},"id":{id}}}}}}}"#
    )
}

pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"crash-client","version":"1"}}}"#;
