//! A listener as a process of its own, in audit or as a guard, and what is in its packs.

use crate::rig::{End, LONG, Message, Server};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Instant,
};

/// A policy that lets everything pass.
pub const ALL: &str = "version: \"1\"\ndefault: allow\n";

/// A listener in front of a server.
pub struct Process {
    pub home: tempfile::TempDir,
    pub child: Child,
    pub at: SocketAddr,
    /// What it said since it listens, a line each.
    said: Arc<Mutex<Vec<String>>>,
}

impl Process {
    pub fn guard(server: &Server, policy: &str, flags: &[&str]) -> Self {
        Self::start(server.at, "guard", policy, flags)
    }

    pub fn start(upstream: SocketAddr, profile: &str, policy: &str, flags: &[&str]) -> Self {
        Self::to(&format!("http://{upstream}/mcp"), profile, policy, flags)
    }

    /// In front of a server that has a URL.
    pub fn to(url: &str, profile: &str, policy: &str, flags: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("policy.yaml"), policy).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
        command.args([
            "mcp-proxy",
            "--json",
            "--no-check",
            "--no-dns",
            "--profile",
            profile,
            "--policy",
            "policy.yaml",
        ]);
        command.args(["--audit-dir", "audit", "--listen", "127.0.0.1:0", "--upstream-url", url]).args(flags);
        command.current_dir(home.path()).env("HOME", home.path()).env("ASSAY_HOME", home.path().join("assay"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let at = loop {
            let text = lines.next().expect("the listener has ended").unwrap();
            let line: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            if line["event"] == "listening" {
                let url = line["url"].as_str().unwrap();
                break url.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
            }
        };
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        std::thread::spawn(move || lines.for_each(|line| heard.lock().unwrap().push(line.unwrap_or_default())));
        Self { home, child, at, said }
    }

    pub fn client(&self) -> End {
        End::connect(self.at)
    }

    pub fn audit(&self) -> PathBuf {
        self.home.path().join("audit")
    }

    pub fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// A request to the endpoint, with these headers more.
    pub fn request(&self, more: &str, body: &str) -> String {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, \
             text/event-stream\r\n{more}Content-Length: {}\r\n\r\n{body}",
            self.at,
            body.len()
        )
    }

    /// Ends it; its exit code, and all receipts of calls.
    pub fn end(mut self) -> (Option<i32>, Vec<Value>) {
        let code = self.terminate();
        let mut receipts = self.lines("receipt_pack.jsonl");
        receipts.retain(|receipt| receipt["type"] == "mcp_tool_call");
        (code, receipts)
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(&mut self) -> Option<i32> {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LONG, "it does not end: {}", self.said());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.child.wait().unwrap().code()
    }

    /// All lines of these files of all packs.
    pub fn lines(&self, file: &str) -> Vec<Value> {
        lines(&self.audit(), file)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(audit: &Path, file: &str) -> Vec<Value> {
    let packs = fs::read_dir(audit.join("packs")).into_iter().flatten().map(|pack| pack.unwrap().path());
    let lines = packs.flat_map(|pack| {
        let text = fs::read_to_string(pack.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    });
    lines.collect()
}

/// Tool, verdict and outcome of each call.
pub fn verdicts(receipts: &[Value]) -> Vec<(String, String, String)> {
    let text = |receipt: &Value, name: &str| receipt[name].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> =
        receipts.iter().map(|r| (text(r, "tool_name"), text(r, "policy_verdict"), text(r, "outcome"))).collect();
    all.sort();
    all
}

pub fn call(id: u64, tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}}).to_string()
}

pub fn result(id: u64) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}).to_string()
}

pub fn answer(kind: &str, more: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

pub fn json_of(message: &Message) -> Value {
    serde_json::from_slice(&message.body).unwrap_or_else(|e| panic!("{e}: {message:?}"))
}
