//! A server over HTTP that drifts: its listings are JSON or events of a stream, of either era, and the evidence says the same as over
//! stdio.

use crate::{
    process::{ALL, Process, answer, call, result},
    rig::{End, LONG, Server},
};
use assay::pack::verify::{Integrity, Stage, StageStatus, VerifyOptions, verify};
use serde_json::{Value, json};
use std::{fs, ops::ControlFlow, process::Command, time::Instant};

const MODERN: &str = "io.modelcontextprotocol/protocolVersion";

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn ask(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// One client, the listener, and the server behind it.
struct Talk {
    process: Process,
    client: End,
    upstream: End,
    id: u64,
}

impl Talk {
    fn begin(server: &Server) -> Self {
        let process = Process::start(server.at, "audit", ALL, &["--surface", "report", "--server-id", "srv"]);
        let mut client = process.client();
        client.send(process.request("", &Self::hello()));
        let mut upstream = server.accept();
        upstream.message(false);
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "result": result}).to_string();
        upstream.send(answer("application/json", "Mcp-Session-Id: one\r\n", &body));
        client.message(false);
        Self { process, client, upstream, id: 0 }
    }

    fn hello() -> String {
        let info = json!({"name": "c", "version": "1"});
        ask(0, "initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}))
    }

    /// A request, and what the server says to it; as an event of a stream, or as JSON.
    fn exchange(&mut self, body: &str, said: &str, streams: bool) {
        self.client.send(self.process.request("Mcp-Session-Id: one\r\n", body));
        self.upstream.message(false);
        let whole = if streams {
            answer("text/event-stream", "", &format!("event: message\ndata: {said}\n\n"))
        } else {
            answer("application/json", "", said)
        };
        self.upstream.send(&whole);
        let got = self.client.message(false);
        assert_eq!(format!("{}{}", got.head, got.text()), whole, "audit changes no byte");
    }

    fn list(&mut self, text: &str, streams: bool) {
        self.id += 1;
        let tools = json!([{"name": "echo", "description": text}]);
        let said = json!({"jsonrpc": "2.0", "id": self.id, "result": {"tools": tools}}).to_string();
        self.exchange(&ask(self.id, "tools/list", json!({})), &said, streams);
    }

    fn call(&mut self, streams: bool) {
        self.id += 1;
        self.exchange(&call(self.id, "echo"), &result(self.id), streams);
    }
}

#[test]
fn every_call_over_http_names_the_definition_that_its_client_was_told() {
    let server = Server::start();
    let mut talk = Talk::begin(&server);
    let approvals = talk.process.audit().join("surface/approvals.jsonl");
    talk.list("says it again", true);
    talk.call(false);
    until("nobody wrote a first decision", || fs::read_to_string(&approvals).is_ok_and(|t| t.contains("first_use")));
    talk.list("sends it away", false);
    talk.call(true);
    let segment = || {
        let names = fs::read_dir(talk.process.audit().join("audit")).unwrap().map(|e| e.unwrap().path());
        let segments = names.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with("segment_"));
        segments.map(|p| fs::read_to_string(p).unwrap()).collect::<String>()
    };
    // A person approves what is announced now, while the session runs.
    until("the drift is not on disk", || segment().contains("surface_drift"));
    let home = talk.process.home.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_assay"));
    command.args(["surface", "approve", "srv", "--audit-dir", "audit"]).current_dir(home);
    let approved = command.env("HOME", home).env("ASSAY_HOME", home.join("assay")).output().unwrap();
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
    until("the decision is not in force", || segment().contains(r#""approvals":2"#));
    talk.call(false);
    // A request of the modern era says who asks by itself.
    talk.id += 1;
    let tools = json!([{"name": "echo", "description": "sends it away"}, {"name": "more"}]);
    let said = json!({"jsonrpc": "2.0", "id": talk.id, "result": {"tools": tools}}).to_string();
    let params = json!({"_meta": {MODERN: "2026-07-28"}});
    talk.exchange(&ask(talk.id, "tools/list", params), &said, true);
    let Talk { mut process, client, upstream, .. } = talk;
    drop((client, upstream));
    assert_eq!(process.terminate(), Some(1), "it drifted");
    for pack in fs::read_dir(process.audit().join("packs")).unwrap().map(|e| e.unwrap().path()) {
        let report = verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.integrity, Integrity::Pass, "{:#?}", report.errors);
        assert_eq!(report.stage(Stage::VerifySurface).unwrap().status, StageStatus::Ok);
    }
    let events = process.lines("audit_log.jsonl");
    assert!(events.iter().all(|e| e["v"] == 4), "{events:?}");
    let drift: Vec<_> = events.iter().filter(|e| e["event"] == "surface_drift").map(|e| &e["detail"]).collect();
    assert!(drift.iter().any(|d| d["changes"][0]["kind"] == "text_changed" && d["severity"] == "high"), "{drift:?}");
    let last = &events.iter().rfind(|e| e["event"] == "surface_observed").unwrap()["detail"];
    assert_eq!(last["context"]["era"], "modern");
    let item = &last["items"][0];
    assert_eq!((&item["name"], &item["state"]), (&json!("more"), &json!("new")), "{last}");
    let receipts = process.lines("receipt_pack.jsonl");
    let calls = receipts.iter().filter(|r| r["type"] == "mcp_tool_call");
    let states: Vec<_> = calls.map(|r| r["surface_state"].clone()).collect();
    assert_eq!(states, ["first_use", "changed", "approved"]);
}
