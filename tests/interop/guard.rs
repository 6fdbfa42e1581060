//! Guard mode in front of real servers: every way past it, what the server read, and that it works on for what is allowed.

use crate::install;
use assay::pack::verify::{self, Completeness, Integrity, VerifyOptions};
use assay_support::{
    guard::{
        cases::{Told, cases, line},
        lenient,
    },
    rig::{piped, rig},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    ops::ControlFlow,
    process::Command,
    sync::mpsc,
    time::Duration,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs `server` behind a guard that allows `tool`, and tries everything.
fn nothing_passes(server: &[String], tool: &str, arguments: &Value) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let rig = rig!();
    let read = rig.at("read");
    rig.file("policy.yaml", &format!("version: \"1\"\ndefault: deny\nallowlist: [{tool}]\ndenylist: [rm]\n"));
    // What the server reads, as it reads it.
    let tee = format!("tee '{}' | \"$0\" \"$@\"", read.display());
    let guarded = ["mcp-proxy", "--profile", "guard", "--audit-dir", "audit", "--policy", "policy.yaml"];
    let mut command = rig.program(&guarded);
    let (mut proxy, mut stdin, stdout) = piped(command.args(["--", "sh", "-c", &tee]).args(server)).unwrap();
    let stdout = BufReader::new(stdout);
    let (tell, told) = mpsc::channel::<Value>();
    let reader = std::thread::spawn(move || {
        for line in stdout.lines() {
            let message: Value = serde_json::from_str(&line.unwrap()).expect("a line of the proxy is no JSON");
            let all = if let Value::Array(all) = message { all } else { vec![message] };
            all.into_iter().for_each(|one| drop(tell.send(one)));
        }
    });
    let mut send = |bytes: &[u8]| stdin.write_all(bytes).unwrap();
    let mut seen = Vec::new();
    let mut await_id = |id: u64| loop {
        let message = told.recv_timeout(LIMIT).unwrap_or_else(|e| panic!("no answer to {id}: {e}"));
        seen.push(message.clone());
        if message["id"] == id && message.get("method").is_none() {
            return (message, seen.clone());
        }
    };
    let one = |value: Value| format!("{value}\n").into_bytes();
    let call = |id: u64| {
        one(
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}),
        )
    };
    send(&one(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}})));
    await_id(0);
    send(&one(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})));
    send(&call(1));
    assert!(await_id(1).0["result"].is_object());
    for (at, (_, text, _)) in cases().iter().enumerate() {
        send(&line(&text.replace_name(tool), 1000 + at));
    }
    send(&call(2));
    let (last, mut seen) = await_id(2);
    assert!(last["result"].is_object() && last["result"]["isError"] != true, "{last}");
    // The server's answer may come before those that the guard gives itself.
    let is_of = |m: &Value, id: usize| m["id"] == json!(id) || m["id"] == json!(format!("s{id}"));
    for (at, (name, _, told_of)) in cases().iter().enumerate() {
        while matches!(told_of, Told::Rule(_)) && !seen.iter().any(|m| is_of(m, 1000 + at)) {
            seen.push(told.recv_timeout(LIMIT).unwrap_or_else(|e| panic!("no answer to {name}: {e}")));
        }
    }
    for (at, (name, _, told)) in cases().iter().enumerate() {
        let id = 1000 + at;
        let answers: Vec<_> =
            seen.iter().filter(|m| m["id"] == json!(id) || m["id"] == json!(format!("s{id}"))).collect();
        match told {
            Told::Nothing => assert!(answers.is_empty(), "{name}: {answers:?}"),
            Told::Null(code, rule) => {
                let is_it = |m: &Value| {
                    m["id"].is_null() && m["error"]["code"] == *code && m["error"]["data"]["rule"] == **rule
                };
                assert!(answers.is_empty() && seen.iter().any(is_it), "{name}: {answers:?}");
            }
            Told::Rule(rule) => {
                assert!(answers.len() == 1 && answers[0]["error"]["code"] == -32001, "{name}: {answers:?}");
                assert_eq!(answers[0]["error"]["data"]["rule"], **rule, "{name}");
            }
        }
    }
    drop(stdin);
    assert_eq!(proxy.wait().unwrap().code(), Some(1));
    reader.join().unwrap();
    let read = fs::read(read).unwrap();
    let names = lenient::calls(&read);
    assert!(!names.is_empty() && names.iter().all(|name| name == tool), "{names:?}");
    let pack = fs::read_dir(rig.audit.join("packs")).unwrap().next().unwrap().unwrap().path();
    let report = verify::verify(&pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(
        (report.integrity, report.completeness),
        (Integrity::Pass, Completeness::Complete),
        "{:?}",
        report.errors
    );
    let accepted = Command::new(install::venv().join("assay"))
        .args(["verify-pack"])
        .arg(&pack)
        .env("HOME", &rig.root)
        .output()
        .unwrap();
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stdout));
}

/// The cases call the tool that is allowed `echo`.
trait ReplaceName {
    fn replace_name(&self, tool: &str) -> Vec<u8>;
}

impl ReplaceName for Vec<u8> {
    fn replace_name(&self, tool: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = &self[..];
        while let Some(at) = memchr::memmem::find(rest, b"\"echo\"") {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(format!("\"{tool}\"").as_bytes());
            rest = &rest[at + 6..];
        }
        out.extend_from_slice(rest);
        out
    }
}

#[test]
fn nothing_passes_to_server_everything() {
    let server = install::root().join("node_modules/.bin/mcp-server-everything").display().to_string();
    nothing_passes(&[server], "echo", &json!({"message": "hello"}));
}

#[test]
fn nothing_passes_to_a_server_of_the_python_sdk() {
    let server = install::venv().join("mcp-server-time").display().to_string();
    let server = [server, "--local-timezone".to_owned(), "UTC".to_owned()];
    nothing_passes(&server, "get_current_time", &json!({"timezone": "UTC"}));
}
