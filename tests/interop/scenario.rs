//! Runs the scripted sessions of `scenarios/*.json`, each directly and through the proxy, and compares them.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{evidence, install};

/// A scenario file. Strings may hold `{work}`, `{venv}`, `{npm}`, `{modules}` and `{interop}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// Servers by name: the command.
    servers: BTreeMap<String, Vec<String>>,
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
    /// What the client does. `only`: just where the label `<server> <client>` holds one of these strings; `volatile`:
    /// the result has the time in it, so only success or failure is compared.
    steps: Vec<Value>,
}

/// What a driver saw.
#[derive(Deserialize)]
pub struct Report {
    /// The session's directory, which is part of some results.
    #[serde(skip)]
    dir: PathBuf,
    pub results: Vec<Value>,
    /// Every line that the client wrote.
    pub sent: Vec<String>,
    /// Every line that the client read.
    pub received: Vec<String>,
    /// Exit code of the process that the client spawned.
    pub exit: Option<i32>,
    pub stderr: String,
}

impl Report {
    /// The end of stderr, for a failure's message.
    pub fn said(&self) -> &str {
        let start = self.stderr.len().saturating_sub(2000);
        self.stderr.get(start..).unwrap_or(&self.stderr)
    }
}

/// Runs the sessions of a scenario whose label `<server> <client>` holds `wanted`, and fails with all that failed.
pub fn run(name: &str, wanted: &str) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let file = install::sources().join(format!("scenarios/{name}.json"));
    let scenario: Scenario = serde_json::from_slice(&fs::read(&file).unwrap()).expect("scenario");
    let mut failed = Vec::new();
    let mut ran = 0;
    for server in scenario.servers.keys() {
        for client in &scenario.clients {
            let label = format!("{server} {client}");
            if label.contains(wanted) {
                ran += 1;
                if catch_unwind(AssertUnwindSafe(|| compare(&scenario, server, client))).is_err() {
                    failed.push(label);
                }
            }
        }
    }
    assert!(ran > 0, "no session of {name} matches {wanted:?}");
    assert!(failed.is_empty(), "{} of {ran} sessions failed (reasons above): {failed:?}", failed.len());
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
    let (direct, proxied) = std::thread::scope(|scope| {
        let direct = scope.spawn(|| drive(scenario, server, client, &[], &direct_dir));
        let proxied = drive(scenario, server, client, &proxy, &proxied_dir);
        (direct.join().expect("direct session"), proxied)
    });
    same(&label, &steps(scenario, &label), &direct, &proxied);
    let of_server = if scenario.stubborn { None } else { Some(0) };
    assert_eq!(direct.exit, of_server, "{label}: exit of the server itself");
    assert_eq!(proxied.exit, Some(0), "{label}: exit of the proxy\n{}", proxied.said());
    evidence::check(&label, &audit, &proxied_dir.join("home"), &proxied);
}

/// The steps that this pair takes.
fn steps(scenario: &Scenario, label: &str) -> Vec<Value> {
    let applies = |step: &&Value| match step["only"].as_array() {
        Some(only) => only.iter().any(|part| label.contains(part.as_str().expect("only: strings"))),
        None => true,
    };
    scenario.steps.iter().filter(applies).cloned().collect()
}

/// Lets a driver run the session in a fresh directory; `prefix` goes before the server's command.
fn drive(scenario: &Scenario, server: &str, client: &str, prefix: &[String], dir: &Path) -> Report {
    let label = format!("{server} {client}");
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
    let server = scenario.servers[server].iter().map(|word| fill(word));
    let command: Vec<String> = prefix.iter().cloned().chain(server).collect();
    let steps: Value = serde_json::from_str(&fill(&json!(steps(scenario, &label)).to_string())).unwrap();
    let job = json!({
        "command": command,
        "env": env,
        "cwd": work,
        "client": sdk,
        "mode": mode,
        "modules": install::root(),
        "stubborn": scenario.stubborn,
        "steps": steps,
    });
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
    let given_up: Vec<Value> = report
        .sent
        .iter()
        .map(parse)
        .filter(|message| message["method"] == "notifications/cancelled")
        .map(|message| message["params"]["requestId"].clone())
        .collect();
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
