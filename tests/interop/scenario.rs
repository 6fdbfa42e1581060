//! Runs the scripted sessions of `scenarios/*.json`, each directly and through the proxy, and compares them: over stdio, and
//! over HTTP through the listener and through the bridge.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    evidence,
    http::{Cutter, Listener, Profile, Upstream, bridge},
    install,
};

/// A scenario file. Strings may hold `{work}`, `{venv}`, `{npm}`, `{sdk}`, `{modules}` and `{interop}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// Servers by name: the command.
    #[serde(default)]
    servers: BTreeMap<String, Vec<String>>,
    /// Servers that listen on `{port}` of this machine, at `/mcp`.
    #[serde(default)]
    over_http: BTreeMap<String, Vec<String>>,
    /// Between the client and a server over HTTP, the first connection on which the server says this is cut.
    cut: Option<String>,
    /// SDK and mode: `py:legacy`.
    clients: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The server does not end when its stdin does, so the client has to signal it.
    #[serde(default)]
    stubborn: bool,
    /// Files that are in the working directory before the session.
    #[serde(default)]
    files: BTreeMap<PathBuf, String>,
    /// Commands that are run in the working directory before the session.
    #[serde(default)]
    setup: Vec<Vec<String>>,
    /// What the client does. `only`: just where the label `<server> <client>` holds one of these strings; `except`: not
    /// where it does; `volatile`: the result has the time in it, so only success or failure is compared.
    steps: Vec<Value>,
}

/// What a driver saw.
#[derive(Deserialize)]
pub struct Report {
    /// The session's directory, which is part of some results.
    #[serde(skip)]
    dir: PathBuf,
    pub results: Vec<Value>,
    /// Every message that the client wrote.
    pub sent: Vec<String>,
    /// Every message that the client read.
    pub received: Vec<String>,
    /// Exit code of the process that the client spawned; none over HTTP.
    pub exit: Option<i32>,
    pub stderr: String,
}

impl Report {
    /// Ids of calls that the client gave up. One without a session tells nobody: it closes the stream of the answer.
    pub fn given_up(&self) -> Vec<Value> {
        let parse = |text: &String| serde_json::from_str::<Value>(text).expect("a message that the SDK took for JSON");
        let answers: Vec<Value> = self.received.iter().map(parse).filter(|m| m.get("method").is_none()).collect();
        let given_up = |message: Value| match message["method"].as_str() {
            Some("notifications/cancelled") => Some(message["params"]["requestId"].clone()),
            Some("tools/call") if !answers.iter().any(|answer| answer["id"] == message["id"]) => {
                Some(message["id"].clone())
            }
            _ => None,
        };
        self.sent.iter().map(parse).filter_map(given_up).collect()
    }

    /// The end of stderr, for a failure's message.
    pub fn said(&self) -> &str {
        let start = self.stderr.len().saturating_sub(2000);
        self.stderr.get(start..).unwrap_or(&self.stderr)
    }
}

/// How a client reaches a server.
enum Way {
    /// It starts this command.
    Spawn(Vec<String>),
    /// It connects to this URL.
    Url(String),
}

fn load(name: &str) -> Scenario {
    let file = install::sources().join(format!("scenarios/{name}.json"));
    serde_json::from_slice(&fs::read(&file).unwrap()).expect("scenario")
}

/// Runs the sessions whose label `<server> <client>` holds `wanted`, and fails with all that failed.
fn each(name: &str, wanted: &str, servers: &[&str], clients: &[String], compare: impl Fn(&str, &str)) {
    let mut failed = Vec::new();
    let mut ran = 0;
    for server in servers {
        for client in clients {
            let label = format!("{server} {client}");
            if label.contains(wanted) {
                ran += 1;
                if catch_unwind(AssertUnwindSafe(|| compare(server, client))).is_err() {
                    failed.push(label);
                }
            }
        }
    }
    assert!(ran > 0, "no session of {name} matches {wanted:?}");
    assert!(failed.is_empty(), "{} of {ran} sessions failed (reasons above): {failed:?}", failed.len());
}

/// The sessions of a scenario over stdio.
pub fn run(name: &str, wanted: &str) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let scenario = load(name);
    let servers: Vec<&str> = scenario.servers.keys().map(String::as_str).collect();
    each(name, wanted, &servers, &scenario.clients, |server, client| compare(&scenario, server, client));
}

/// Records the sessions of `replay.json`, and lets the same client have its answers from the pack, without the server.
/// `ts2:auto` asks a server of the newer family who it is in a process of its own, which has another pack.
pub fn replay(wanted: &str) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let scenario = load("replay");
    let servers: Vec<&str> = scenario.servers.keys().map(String::as_str).collect();
    each("replay", wanted, &servers, &scenario.clients, |server, client| replayed(&scenario, server, client));
}

/// Runs the program to its end in a directory; what it prints.
fn prints(dir: &Path, args: &[&str]) -> String {
    let mut program = Command::new(install::assay());
    let out = program.args(args).current_dir(dir).env("ASSAY_HOME", dir.join("home")).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// A session of the Python client with server-everything, exported and read by parsers that others wrote.
pub fn export() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let scenario = load("replay");
    let temp = tempfile::tempdir().unwrap();
    let audit = temp.path().join("audit").display().to_string();
    let assay = install::assay().display().to_string();
    let recorder = ["mcp-proxy", "--audit-dir", &audit, "--store-args", "--store-results", "--"].map(String::from);
    let recorder = [std::slice::from_ref(&assay), &recorder[..], &scenario.servers["everything"]].concat();
    let label = "everything py:legacy";
    drive(&scenario, label, "py:legacy", &Way::Spawn(recorder), &temp.path().join("live"));
    for (format, file) in
        [("html", "session.html"), ("csv", "session.csv"), ("json", "session.json"), ("otlp", "session.otlp.json")]
    {
        prints(temp.path(), &["export", "last", "--audit-dir", &audit, "--format", format, "--out", file]);
    }
    let out = install::python("exports.py").arg(temp.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let read: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(read["open"], json!([]), "tags that were not closed");
    let tags: Vec<&str> = read["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    assert!(!tags.contains(&"script") && tags.contains(&"table"), "{tags:?}");
    let calls = read["json"]["calls"].as_array().unwrap();
    assert_eq!((calls.len(), read["rows"].as_array().unwrap().len()), (16, 16));
    for (call, row) in calls.iter().zip(read["rows"].as_array().unwrap()) {
        assert_eq!((&call["receipt"]["receipt_id"], &call["receipt"]["tool_name"]), (&row["receipt_id"], &row["tool"]));
        let arguments: Value = serde_json::from_str(row["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(call["arguments"], arguments);
        assert!(read["page"].as_str().unwrap().contains(row["receipt_id"].as_str().unwrap()));
    }
    let spans = read["spans"].as_array().unwrap();
    assert_eq!((spans.len(), &spans[0], &spans[1]), (17, &json!("mcp.session"), &json!("tools/call echo")));
}

/// A session over HTTP as an HTTP Archive: the members that its specification demands, and the exchanges of the calls.
pub fn archive() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let everything = load("everything");
    let temp = tempfile::tempdir().unwrap();
    let command: Vec<String> =
        everything.over_http["everything http"].iter().map(|word| fill(word, temp.path())).collect();
    let upstream = Upstream::start(&command, "/mcp", temp.path());
    let audit = temp.path().join("audit").display().to_string();
    let assay = install::assay().display().to_string();
    let flags =
        ["mcp-proxy", "--audit-dir", &audit, "--store-args", "--store-results", "--upstream-url", &upstream.url];
    let recorder = [vec![assay], flags.map(String::from).to_vec()].concat();
    let scenario = Scenario {
        steps: vec![
            json!({"op": "call", "name": "echo", "args": {"message": "hallo"}}),
            json!({"op": "call", "name": "get-sum", "args": {"a": 1, "b": 2}}),
        ],
        ..everything
    };
    drive(&scenario, "everything http py:legacy", "py:legacy", &Way::Spawn(recorder), &temp.path().join("live"));
    let read = |flags: &[&str]| -> Value {
        let flags = [&["export", "last", "--audit-dir", &audit, "--format", "har"], flags].concat();
        serde_json::from_str(&prints(temp.path(), &flags)).unwrap()
    };
    let all = read(&[]);
    let log = &all["log"];
    assert_eq!((&log["version"], &log["creator"]["name"]), (&json!("1.2"), &json!("assay")));
    assert!(log["_assay"]["pack_manifest_sha256"].is_string());
    let entries = log["entries"].as_array().unwrap();
    for entry in entries {
        let has = |value: &Value, names: &[&str]| {
            for name in names {
                assert!(!value[name].is_null(), "{name}: {entry}");
            }
        };
        has(entry, &["startedDateTime", "time", "request", "response", "cache", "timings"]);
        let both = ["httpVersion", "cookies", "headers", "headersSize", "bodySize"];
        has(&entry["request"], &[&both[..], &["method", "url", "queryString"]].concat());
        has(&entry["response"], &[&both[..], &["status", "statusText", "content", "redirectURL"]].concat());
        has(&entry["response"]["content"], &["size", "mimeType"]);
        has(&entry["timings"], &["send", "wait", "receive"]);
        assert!(entry["request"]["url"].as_str().unwrap().starts_with("http://"), "{entry}");
        assert!(
            entry["time"].as_f64().unwrap() >= 0.0 && entry["timings"]["receive"].as_f64().unwrap() >= 0.0,
            "{entry}"
        );
    }
    let some = read(&["--filter", "tool:echo"]);
    let some = some["log"]["entries"].as_array().unwrap();
    assert!(some.len() == 1 && entries.len() > 2, "{} of {}", some.len(), entries.len());
    let text = |value: &Value| value["text"].as_str().unwrap().to_owned();
    assert!(text(&some[0]["request"]["postData"]).contains("hallo"), "{}", some[0]);
    assert!(text(&some[0]["response"]["content"]).contains("Echo: hallo"), "{}", some[0]);
    assert_eq!((&some[0]["request"]["method"], &some[0]["response"]["status"]), (&json!("POST"), &json!(200)));
}

fn replayed(scenario: &Scenario, server: &str, client: &str) {
    let label = format!("{server} {client}");
    let temp = tempfile::tempdir().unwrap();
    let audit = temp.path().join("audit").display().to_string();
    let assay = install::assay().display().to_string();
    let recorder = ["mcp-proxy", "--audit-dir", &audit, "--store-args", "--store-results", "--"].map(String::from);
    let recorder = [std::slice::from_ref(&assay), &recorder[..], &scenario.servers[server]].concat();
    let live = drive(scenario, &label, client, &Way::Spawn(recorder), &temp.path().join("live"));
    assert_eq!(live.exit, Some(0), "{label}: {}", live.said());
    let player = [&assay, "replay", "--audit-dir", &audit, "last"].map(String::from).to_vec();
    // A replay asks its client nothing.
    let offline = format!("{label} offline");
    let again = drive(scenario, &offline, client, &Way::Spawn(player), &temp.path().join("again"));
    assert_eq!(again.exit, Some(0), "{label}: {}", again.said());
    let seen = |label: &str, report: &Report| -> Vec<(Value, Value)> {
        let mut seen: Vec<_> = steps(scenario, label).into_iter().zip(report.results.clone()).collect();
        seen.retain(|(step, _)| step["op"] != "notified");
        for (step, result) in &mut seen {
            match step["op"].as_str() {
                // A pack has name and version of the server, and lists in the order of names.
                Some("server") => result["info"] = json!([result["info"]["name"], result["info"]["version"]]),
                Some("tools" | "prompts") => {
                    result.as_array_mut().expect("a list").sort_by_key(|item| item["name"].to_string());
                }
                _ => {}
            }
        }
        seen
    };
    let (live, again) = (seen(&label, &live), seen(&offline, &again));
    assert_eq!(live.len(), again.len(), "{label}");
    for ((step, live), (_, again)) in live.iter().zip(&again) {
        assert!(
            live == again,
            "{label}: {step}:\nrecorded: {}\nreplayed: {}",
            cut(&live.to_string()),
            cut(&again.to_string())
        );
    }
}

/// The sessions of a scenario over HTTP.
pub fn run_over_http(name: &str, wanted: &str) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let scenario = load(name);
    for (server, command) in &scenario.over_http {
        let temp = tempfile::tempdir().unwrap();
        let command: Vec<String> = command.iter().map(|word| fill(word, temp.path())).collect();
        let upstream = Upstream::start(&command, "/mcp", temp.path());
        each(name, wanted, &[server], &scenario.clients, |server, client| {
            compare_over_http(&scenario, server, client, &upstream.url);
        });
    }
}

/// One session, directly and through the proxy.
fn compare(scenario: &Scenario, server: &str, client: &str) {
    let label = format!("{server} {client}");
    let temp = tempfile::tempdir().unwrap();
    // The same length, so that paths do not change the size of messages.
    let (direct_dir, proxied_dir) = (temp.path().join("d"), temp.path().join("p"));
    let audit = temp.path().join("audit");
    let proxy = ["mcp-proxy", "--audit-dir", audit.to_str().unwrap(), "--"].map(String::from);
    let proxy: Vec<String> = std::iter::once(install::assay().display().to_string()).chain(proxy).collect();
    let server_itself = &scenario.servers[server];
    let proxied = [&proxy[..], server_itself].concat();
    let (direct, proxied) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| drive(scenario, &label, client, &Way::Spawn(server_itself.clone()), &direct_dir));
        let proxied = drive(scenario, &label, client, &Way::Spawn(proxied), &proxied_dir);
        (direct.join().expect("direct session"), proxied)
    });
    same(&label, &steps(scenario, &label), &direct, &proxied);
    let of_server = if scenario.stubborn { None } else { Some(0) };
    assert_eq!(direct.exit, of_server, "{label}: exit of the server itself");
    assert_eq!(proxied.exit, Some(0), "{label}: exit of the proxy\n{}", proxied.said());
    evidence::check(&label, &audit, &proxied_dir.join("home"), &proxied, "no_policy");
}

/// One session with a server that has a URL: directly, through the listener, through the bridge.
fn compare_over_http(scenario: &Scenario, server: &str, client: &str, url: &str) {
    let label = format!("{server} {client}");
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let steps = steps(scenario, &label);
    // Through a network that cuts, if the scenario has one.
    let through = |url: &str, session: &dyn Fn(String) -> Report| {
        let Some(mark) = &scenario.cut else { return session(url.to_owned()) };
        let cutter = Cutter::start(url, mark);
        let report = session(cutter.url.clone());
        assert!(cutter.has_cut(), "{label}: {mark} was not said");
        report
    };
    let direct = through(url, &|url| drive(scenario, &label, client, &Way::Url(url), &at("direct")));
    for profile in Profile::ALL {
        for cut_upstream in [false, true].into_iter().take(1 + usize::from(scenario.cut.is_some())) {
            let label = format!("{label}, listener in {profile:?}, cut upstream: {cut_upstream}");
            let dir = at(&format!("listener-{profile:?}-{cut_upstream}"));
            // What is between has another port.
            let flags: &[&str] = if scenario.cut.is_some() { &["--allow-host", "127.0.0.1"] } else { &[] };
            let listener = |url: &str| Listener::start(profile, url, &dir, flags);
            let client = |url: String| drive(scenario, &label, client, &Way::Url(url), &dir);
            let audit = Cell::default();
            let proxied = if cut_upstream {
                through(url, &|url| {
                    let listener = listener(&url);
                    let report = client(listener.url.clone());
                    audit.set(listener.end());
                    report
                })
            } else {
                let listener = listener(url);
                let report = through(&listener.url, &client);
                audit.set(listener.end());
                report
            };
            same(&label, &steps, &direct, &proxied);
            evidence::check(&label, &audit.take(), &dir.join("home"), &proxied, profile.verdict());
        }
    }
    for profile in Profile::ALL {
        let label = format!("{label}, bridge in {profile:?}");
        let dir = at(&format!("bridge-{profile:?}"));
        let audit = dir.join("audit");
        let bridged =
            through(url, &|url| drive(scenario, &label, client, &Way::Spawn(bridge(profile, &url, &dir)), &dir));
        same(&label, &steps, &direct, &bridged);
        assert_eq!(bridged.exit, Some(0), "{label}: exit of the bridge\n{}", bridged.said());
        evidence::check(&label, &audit, &dir.join("home"), &bridged, profile.verdict());
    }
}

/// The steps that this pair takes.
fn steps(scenario: &Scenario, label: &str) -> Vec<Value> {
    let named = |parts: &Vec<Value>| parts.iter().any(|part| label.contains(part.as_str().expect("strings")));
    let applies =
        |step: &&Value| step["only"].as_array().is_none_or(named) && !step["except"].as_array().is_some_and(named);
    scenario.steps.iter().filter(applies).cloned().collect()
}

/// Lets a driver run the session in a fresh directory.
fn drive(scenario: &Scenario, label: &str, client: &str, way: &Way, dir: &Path) -> Report {
    let (work, home) = (dir.join("work"), dir.join("home"));
    fs::create_dir_all(&work).unwrap();
    fs::create_dir_all(&home).unwrap();
    for (path, text) in &scenario.files {
        let path = work.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let fill = |text: &str| fill(text, &work);
    for command in &scenario.setup {
        let command: Vec<String> = command.iter().map(|word| fill(word)).collect();
        let done = Command::new(&command[0]).args(&command[1..]).current_dir(&work).status().unwrap();
        assert!(done.success(), "{label}: {command:?}: {done}");
    }
    let mut env: BTreeMap<&str, String> =
        scenario.env.iter().map(|(name, value)| (name.as_str(), fill(value))).collect();
    env.insert("ASSAY_HOME", home.join(".assay").display().to_string());
    let (sdk, mode) = client.split_once(':').expect("client: sdk:mode");
    let steps: Value = serde_json::from_str(&fill(&json!(steps(scenario, label)).to_string())).unwrap();
    let mut job = json!({
        "env": env,
        "cwd": work,
        "client": sdk,
        "mode": mode,
        "modules": install::root(),
        "stubborn": scenario.stubborn,
        "steps": steps,
    });
    match way {
        Way::Spawn(command) => job["command"] = command.iter().map(|word| fill(word)).collect(),
        Way::Url(url) => job["url"] = json!(url),
    }
    let (job_file, out, log) = (dir.join("job.json"), dir.join("out.json"), dir.join("driver.log"));
    fs::write(&job_file, job.to_string()).unwrap();
    let mut driver = if sdk == "py" {
        install::python("drive.py")
    } else {
        let mut node = Command::new("node");
        node.arg(install::sources().join("drive.mjs"));
        node
    };
    driver.arg(job_file).arg(&out).current_dir(&work).env("HOME", &home).env_remove("ASSAY_HOME");
    let status = install::finish(driver, &log, Duration::from_secs(180));
    assert!(status.success(), "{label}: driver: {status}\n{}", install::tail(&log));
    let report: Report = serde_json::from_slice(&fs::read(out).unwrap()).expect("report");
    Report { dir: dir.to_path_buf(), ..report }
}

fn fill(text: &str, work: &Path) -> String {
    let root = install::root();
    let places = [
        ("{work}", work.to_path_buf()),
        ("{venv}", install::venv()),
        ("{npm}", root.join("node_modules/.bin")),
        ("{sdk}", root.join("mcp-sdist")),
        ("{modules}", root),
        ("{interop}", install::sources()),
    ];
    places.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, path.to_str().unwrap()))
}

/// Same results, same progress notifications, same lines of the server's own on stderr.
fn same(label: &str, steps: &[Value], direct: &Report, proxied: &Report) {
    for (index, step) in steps.iter().enumerate() {
        let view = |report: &Report| {
            let result = &report.results[index];
            if step["volatile"] == true {
                return json!({"error": result["error"], "isError": result["isError"]}).to_string();
            }
            result.to_string().replace(report.dir.to_str().unwrap(), "<session>")
        };
        let (direct, proxied) = (view(direct), view(proxied));
        if direct != proxied {
            panic!("{label}: step {index}, {step}:\ndirect:  {}\nproxied: {}", cut(&direct), cut(&proxied));
        }
    }
    assert_eq!(progress(direct), progress(proxied), "{label}: progress notifications");
    let said = |report: &Report| report.stderr.lines().filter(|line| line.starts_with("interop:")).count();
    assert_eq!(said(direct), said(proxied), "{label}: lines on the server's stderr");
}

/// The progress notifications that reached the client, in no order; without those of calls that it gave up, which come
/// or do not come as time will have it.
fn progress(report: &Report) -> Vec<String> {
    let parse = |line: &String| serde_json::from_str::<Value>(line).expect("a line that the SDK took for JSON");
    let given_up = report.given_up();
    let mut seen: Vec<String> = report
        .received
        .iter()
        .map(parse)
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| message["params"].clone())
        .filter(|params| !given_up.contains(&params["progressToken"]))
        .map(|params| params.to_string())
        .collect();
    seen.sort();
    seen
}

fn cut(text: &str) -> String {
    text.chars().take(2000).collect()
}
