//! What real servers offer, pinned: the same server is never drift, and an upgrade is what it is.

use crate::{
    http::{Listener, Profile, Upstream},
    install,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Output, Stdio},
};

struct Rig {
    tmp: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let git = Command::new("git").args(["init", "-q", "repository"]).current_dir(tmp.path()).status().unwrap();
        assert!(git.success());
        Self { tmp }
    }

    fn surface(&self, args: &[&str]) -> Output {
        let mut command = Command::new(install::assay());
        command.current_dir(self.tmp.path()).env("ASSAY_HOME", self.tmp.path().join("home")).arg("surface").args(args);
        command.output().unwrap()
    }

    /// Asks a server; the document, if the exit code is `code`.
    fn asks(&self, code: i32, command: &str, flags: &[&str], server: &[&str]) -> Value {
        let out = self.surface(&[&[command, "--json", "--server-id", "s"], flags, &["--"], server].concat());
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(out.status.code(), Some(code), "{server:?} {}{}", said(&out.stdout), said(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn approve(&self) {
        let out = self.surface(&["approve", "s"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

/// How many changes of each kind there are.
fn kinds(found: &Value) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for change in found["comparison"]["changes"].as_array().unwrap() {
        *kinds.entry(change["kind"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    kinds
}

fn node(name: &str) -> String {
    install::root().join("node_modules/.bin").join(name).to_str().unwrap().to_owned()
}

#[test]
fn server_everything_is_no_drift_whatever_the_client_can_do() {
    let rig = Rig::new();
    let server = [node("mcp-server-everything")];
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let all = rig.asks(0, "snapshot", &["--capabilities", "all"], &server);
    rig.approve();
    // A client that can do less sees fewer tools, each of them approved.
    let fewer = rig.asks(0, "check", &["--capabilities", "none"], &server);
    assert_ne!(fewer["root"], all["root"]);
    assert_eq!(fewer["comparison"]["outcome"], "identical");
    for _ in 0..5 {
        let again = rig.asks(0, "check", &["--capabilities", "all"], &server);
        assert_eq!(again["root"], all["root"]);
    }
    // The other way round, what is new is of a new client, and nothing else differs.
    let rig = Rig::new();
    rig.asks(0, "snapshot", &["--capabilities", "none"], &server);
    rig.approve();
    let more = rig.asks(1, "check", &["--capabilities", "all"], &server);
    let changes = more["comparison"]["changes"].as_array().unwrap();
    assert!(!changes.is_empty());
    for change in changes {
        assert_eq!((&change["kind"], &change["new_context"]), (&"added".into(), &true.into()), "{change}");
    }
}

#[test]
fn one_server_offers_the_same_in_both_families_of_revisions() {
    let rig = Rig::new();
    let server = install::venv().join("mcp-server-git").to_str().unwrap().to_owned();
    let server = [server.as_str(), "--repository", "repository"];
    let legacy = rig.asks(0, "snapshot", &["--era", "legacy"], &server);
    let modern = rig.asks(0, "snapshot", &["--era", "modern"], &server);
    assert_eq!(legacy["root"], modern["root"]);
    assert_ne!(legacy["context"], modern["context"]);
}

/// A server at one version, then at another, at the same place.
fn upgrade(from: &Path, to: &Path) -> Value {
    let rig = Rig::new();
    let link = rig.tmp.path().join("venv");
    let server = link.join("bin/mcp-server-git").to_str().unwrap().to_owned();
    let server = [server.as_str(), "--repository", "repository"];
    std::os::unix::fs::symlink(from, &link).unwrap();
    rig.asks(0, "snapshot", &[], &server);
    rig.approve();
    rig.asks(0, "check", &[], &server);
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(to, &link).unwrap();
    rig.asks(1, "check", &[], &server)
}

#[test]
fn an_upgrade_that_only_adds_annotations_is_four_groups() {
    let old = |version: &str| install::root().join("old").join(version);
    let found = upgrade(&old("2025.11.25"), &old("2026.6.16"));
    let high: Vec<&Value> =
        found["comparison"]["groups"].as_array().unwrap().iter().filter(|g| g["severity"] == "high").collect();
    assert_eq!(high.len(), 4, "{high:?}");
    assert!(high.iter().all(|g| g["kind"] == "claims_safer"), "{high:?}");
    assert_eq!(high.iter().map(|g| g["names"].as_array().unwrap().len()).sum::<usize>(), 12);
    let kinds = kinds(&found);
    assert!(kinds.keys().all(|k| k == "claims_safer" || k == "explicit_default"), "{kinds:?}");
}

#[test]
fn an_upgrade_that_changes_titles_and_one_text_says_which_text() {
    let venv = install::venv();
    let found = upgrade(&install::root().join("old/2026.8.18"), venv.parent().unwrap());
    let kinds = kinds(&found);
    assert_eq!((kinds["text_changed"], kinds["constraint_added"]), (1, 1), "{kinds:?}");
    let titles = found["comparison"]["groups"].as_array().unwrap().iter().find(|g| g["kind"] == "title").unwrap();
    assert_eq!(titles["names"].as_array().unwrap().len(), 12, "{titles}");
}

#[test]
fn an_sdks_client_gets_a_tool_through_a_listener_once_it_is_approved() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path();
    let everything =
        ["env".to_owned(), "PORT={port}".to_owned(), node("mcp-server-everything"), "streamableHttp".to_owned()];
    let upstream = Upstream::start(&everything, "/mcp", dir);
    let surface = |args: &[&str]| {
        let mut command = Command::new(install::assay());
        command.current_dir(dir).env("HOME", dir.join("home")).env("ASSAY_HOME", dir.join("home/.assay"));
        let out = command.arg("surface").args(args).args(["--audit-dir", "audit"]).output().unwrap();
        assert!(out.status.success(), "{args:?} {}", String::from_utf8_lossy(&out.stderr));
    };
    std::fs::create_dir_all(dir.join("home")).unwrap();
    surface(&["snapshot", "--server-id", "s", "--url", &upstream.url]);
    surface(&["approve", "s", "--item", "tools/echo"]);
    let listener = Listener::start(Profile::Approved, &upstream.url, dir, &[]);
    let sum = json!({"op": "call", "name": "get-sum", "args": {"a": 2, "b": 3}});
    let refused = dir.join("refused");
    let job = json!({"url": listener.url, "mode": "legacy", "steps": [
        {"op": "tools"}, sum, {"op": "make", "path": refused}, {"op": "offered", "name": "get-sum"}, sum,
    ]});
    std::fs::write(dir.join("job.json"), job.to_string()).unwrap();
    let report = dir.join("report.json");
    let mut driver = install::python("drive.py").args([dir.join("job.json"), report.clone()]).spawn().unwrap();
    while !refused.exists() {
        assert!(driver.try_wait().unwrap().is_none(), "the client ended before the tool was refused");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The server may say that its list has changed while the client is listing: then that listing is not all of it.
    surface(&["snapshot", "--server-id", "s", "--url", &upstream.url]);
    surface(&["approve", "s", "--item", "tools/get-sum"]);
    assert!(driver.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let [first, refused, _, offered, sum] = &report["results"].as_array().unwrap()[..] else { panic!("{report}") };
    let names: Vec<&str> = first.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo"]);
    assert_eq!(refused["error"]["code"], -32001, "{refused}");
    let mut offered: Vec<&str> = offered.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    offered.sort_unstable();
    assert_eq!(offered, ["echo", "get-sum"]);
    assert!(sum["content"].to_string().contains('5'), "{sum}");
    listener.end_with(&[1]);
}

/// A recorded session with a server, in audit: what its chain says of the surface, and the exit code of the proxy.
fn recorded(
    rig: &Rig,
    flags: &[&str],
    server: &[&str],
    capabilities: &Value,
    early: bool,
) -> (Option<i32>, Vec<Value>) {
    let mut command = Command::new(install::assay());
    command.current_dir(rig.tmp.path()).env("ASSAY_HOME", rig.tmp.path().join("home"));
    command.args(["mcp-proxy", "--server-id", "s"]).args(flags).arg("--").args(server);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    let mut ask = |id: u64, method: &str, params: Value| {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).unwrap();
        // Its own requests and notifications come in between.
        let is_answer = |line: &str| {
            let said: Value = serde_json::from_str(line).unwrap();
            said["id"] == id && said.get("method").is_none()
        };
        while !is_answer(&lines.next().expect("an answer").unwrap()) {}
    };
    let info = json!({"name": "interop", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": info});
    ask(0, "initialize", hello);
    if early {
        ask(1, "tools/list", json!({}));
    }
    // Nothing answers the requests that a server may make once it hears this; it lists all the same.
    ask(2, "ping", json!({}));
    for (id, list) in (3..).zip(["tools/list", "prompts/list", "resources/list", "resources/templates/list"]) {
        ask(id, list, json!({}));
    }
    drop(stdin);
    let code = child.wait().unwrap().code();
    let packs = std::fs::read_dir(rig.tmp.path().join(".assay/mcp/packs")).unwrap().map(|e| e.unwrap().path());
    let pack = packs.max_by_key(|p| p.metadata().unwrap().modified().unwrap()).unwrap();
    let out = Command::new(install::assay()).args(["verify-pack", "--json"]).arg(&pack).output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["exit_code"], 0, "{report}");
    let log = std::fs::read_to_string(pack.join("audit_log.jsonl")).unwrap();
    let events = log.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    (code, events.filter(|e| e["event"].as_str().unwrap().starts_with("surface_")).collect())
}

fn drifts(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|e| e["event"] == "surface_drift").map(|e| &e["detail"]).collect()
}

#[test]
fn recorded_sessions_with_server_everything_are_no_drift_whatever_the_client_can_do() {
    let server = [node("mcp-server-everything")];
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let all = json!({"sampling": {}, "roots": {}, "elicitation": {}});
    let rig = Rig::new();
    rig.asks(0, "snapshot", &["--capabilities", "all"], &server);
    rig.approve();
    for (capabilities, early) in [(&all, false), (&json!({}), false), (&json!({}), true), (&all, true)] {
        let (code, events) = recorded(&rig, &[], &server, capabilities, early);
        assert_eq!((code, drifts(&events)), (Some(0), vec![]), "{capabilities} {early}");
        let seen = events.iter().filter(|e| e["event"] == "surface_observed");
        let states = seen.flat_map(|e| e["detail"]["items"].as_array().unwrap().clone());
        assert!(states.map(|i| i["state"].clone()).all(|state| state == "approved"), "{events:?}");
    }
    // What was listed before the client said what it can do is the first use, and what came later is of a client that can do more.
    let rig = Rig::new();
    for (capabilities, early) in [(&json!({}), true), (&all, true)] {
        let (code, events) = recorded(&rig, &["--surface", "report"], &server, capabilities, early);
        assert_eq!(code, Some(0), "{events:?}");
        assert!(drifts(&events).iter().all(|d| d["new_context"] == true), "{:?}", drifts(&events));
    }
}

#[test]
fn an_upgrade_is_in_the_chain_of_the_session_that_meets_it() {
    let rig = Rig::new();
    let link = rig.tmp.path().join("venv");
    let server = link.join("bin/mcp-server-git").to_str().unwrap().to_owned();
    let server = [server.as_str(), "--repository", "repository"];
    std::os::unix::fs::symlink(install::root().join("old/2025.11.25"), &link).unwrap();
    rig.asks(0, "snapshot", &[], &server);
    rig.approve();
    let (code, events) = recorded(&rig, &[], &server, &json!({}), false);
    assert_eq!((code, drifts(&events)), (Some(0), vec![]));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(install::root().join("old/2026.6.16"), &link).unwrap();
    let (code, events) = recorded(&rig, &[], &server, &json!({}), false);
    let drift = drifts(&events);
    assert_eq!((code, drift.len()), (Some(1), 1), "{drift:?}");
    let changes = drift[0]["changes"].as_array().unwrap();
    let high: Vec<&Value> = changes.iter().filter(|c| c["severity"] == "high").collect();
    assert_eq!(high.len(), 12, "{changes:?}");
    assert!(high.iter().all(|c| c["kind"] == "claims_safer"), "{high:?}");
}
