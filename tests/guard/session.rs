//! A guarded session, and what became of it.

use assay_support::{
    check::{self, Session},
    rig::{Client, INITIALIZE, Rig, rig, until},
};
use serde_json::Value;
use std::{fs, path::PathBuf};

/// Nothing but `echo`, `ask`, `big`, `die`, `hang` and the names that a case adds.
pub const POLICY: &str = "version: \"1\"\ndefault: deny\nallowlist: [echo, ask, big, die, hang, fail, sampling/createMessage]\ndenylist: [rm, \"sh*\"]\n";

pub struct Guarded {
    pub rig: Rig,
    pub client: Client,
    pub policy: PathBuf,
}

pub fn policy_file(rig: &Rig, text: &str) -> PathBuf {
    let path = rig.root.join("policy.yaml");
    fs::write(&path, text).unwrap();
    path
}

impl Guarded {
    pub fn start(policy: &str, profile: &str, flags: &[&str]) -> Self {
        let rig = rig!();
        let path = policy_file(&rig, policy);
        let all = [&["--profile", profile, "--policy", path.to_str().unwrap()], flags].concat();
        let mut client = Client::start(rig.proxy(&all));
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        Self { rig, client, policy: path }
    }

    /// In front of a server that takes for a call whatever could be one.
    pub fn lenient(profile: &str) -> Self {
        let rig = rig!();
        let path = policy_file(&rig, POLICY);
        let mut command = rig.proxy(&["--profile", profile, "--policy", path.to_str().unwrap()]);
        command.env("GUARD_SERVER", "lenient");
        let mut client = Client::start(command);
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        Self { rig, client, policy: path }
    }

    pub fn guard() -> Self {
        Self::start(POLICY, "guard", &[])
    }

    /// Sends raw bytes, newline included.
    pub fn raw(&mut self, bytes: &[u8]) {
        use std::io::Write as _;
        self.client.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Everything the client got until now, as JSON; batches flattened. Answers of the guard and of the server come in no order:
    /// all are there when the session is over ([`got_by`]).
    pub fn got(&self) -> Vec<Value> {
        got_by(&self.client)
    }

    /// Waits for the answer with this id.
    pub fn answer(&self, id: &Value) -> Value {
        until(&format!("an answer to {id}"), || {
            self.got().into_iter().find(|m| m["id"] == *id && m.get("method").is_none())
        })
    }

    pub fn call(&mut self, id: u64, tool: &str) -> Value {
        self.client.send(&rig::call(id, tool, id));
        self.answer(&id.into())
    }

    /// What the server read.
    pub fn server_read(&self) -> Vec<u8> {
        fs::read(self.rig.server_log()).unwrap_or_default()
    }

    /// Ends it with this exit code, and gives its one verified session.
    pub fn end(mut self, code: i32) -> (Session, Rig, Client) {
        let status = self.client.end();
        assert_eq!(status.code(), Some(code), "{}", self.client.said());
        check::settled(&self.rig);
        let mut sessions = check::sessions(&self.rig);
        assert_eq!(sessions.len(), 1);
        (sessions.remove(0), self.rig, self.client)
    }
}

/// Everything that a client got until now, as JSON; batches flattened.
pub fn got_by(client: &Client) -> Vec<Value> {
    let got = client.got();
    let whole = got.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let lines = got[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty());
    lines
        .flat_map(|line| match serde_json::from_slice::<Value>(line) {
            Ok(Value::Array(all)) => all,
            Ok(one) => vec![one],
            Err(e) => panic!("{e}: {}", String::from_utf8_lossy(line)),
        })
        .collect()
}

/// Tool call receipts.
pub fn receipts(session: &Session) -> Vec<&Value> {
    session.receipts.iter().filter(|r| r["type"] == "mcp_tool_call").collect()
}
