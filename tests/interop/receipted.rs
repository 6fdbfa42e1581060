//! Servers with receipts of their own: the example that authors copy, its guide word by word, a proxy in front of it, and the
//! official conformance suite.

use crate::{
    evidence,
    http::{Listener, Profile, Upstream, conformance},
    install,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Calls that the test client makes, and those of them that the policy refuses.
const CALLS: (usize, usize) = (31, 5);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of the example.
pub fn example() -> PathBuf {
    root().join("assets/examples/mcp-demo-server")
}

/// A program of the example or of `tests/receipts`, which `tests/run.sh` builds.
pub fn built(program: &str) -> PathBuf {
    let program = install::assay().with_file_name(program);
    assert!(program.is_file(), "{} is not there: run tests/run.sh", program.display());
    program
}

/// The command in the example's directory, with evidence and keys in `dir`.
fn command(program: impl AsRef<std::ffi::OsStr>, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(example()).env("ASSAY_HOME", dir.join("home")).env("ASSAY_AUDIT_DIR", dir.join("audit"));
    command.env("HOME", dir);
    command
}

/// Runs it to its end; what it printed.
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{said}", out.status);
    said
}

/// The receipts of every pack below an audit directory.
fn receipts(audit: &Path) -> Vec<Value> {
    let packs = install::directories(&audit.join("packs"));
    let texts = packs.iter().map(|pack| fs::read_to_string(pack.join("receipt_pack.jsonl")).unwrap());
    texts.flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>()).collect()
}

fn of<'r>(all: &'r [Value], kind: &str) -> Vec<&'r Value> {
    all.iter().filter(|receipt| receipt["type"] == kind).collect()
}

/// Flags of the test client for both revisions of MCP, over stdio and HTTP.
const WAYS: [&[&str]; 4] = [&[], &["--modern"], &["--http"], &["--http", "--modern"]];

#[test]
fn the_example_records_every_call_and_its_gates_hold() {
    let temp = tempfile::tempdir().unwrap();
    let mut baseline = None;
    for (n, flags) in WAYS.into_iter().enumerate() {
        let dir = temp.path().join(n.to_string());
        run(command(built("test-client"), &dir).args(flags));
        let all = receipts(&dir.join("audit"));
        let (requested, denied) = (of(&all, "mcp_tool_requested"), of(&all, "mcp_tool_denied"));
        let executed = of(&all, "mcp_tool_executed");
        assert_eq!((requested.len(), denied.len(), executed.len()), (CALLS.0, CALLS.1, CALLS.0 - CALLS.1), "{flags:?}");
        assert!(requested.iter().all(|r| r["actor"] == "test-client"), "{flags:?}");
        let packs = install::directories(&dir.join("audit/packs"));
        let [pack] = &packs[..] else { panic!("{flags:?}: {packs:?}") };
        let verify = ["verify-pack", "--cards", "mcp_escrow_completeness"];
        let said = run(command(install::assay(), &dir).args(verify).arg(pack));
        assert!(said.contains("31 of 31 (100.0 %)"), "{said}");
        let report = dir.join("gate_report.html");
        let baseline = baseline.get_or_insert_with(|| pack.clone());
        let diff = ["diff", "--gates", "assay.gates.yaml", "--report", report.to_str().unwrap()];
        run(command(install::assay(), &dir).args(diff).args([baseline, pack]));
        assert!(report.exists());
    }
}

/// What both recorders say of a call.
#[derive(Debug, PartialEq)]
struct Call {
    tool: Value,
    arguments: Value,
    /// `None`: the policy refused it, which the proxy sees as an error.
    result: Option<Value>,
    is_error: bool,
}

/// What a server said of its own calls, by the id of the request.
fn by_the_server(audit: &Path) -> BTreeMap<u64, Call> {
    let all = receipts(audit);
    let done: BTreeMap<&str, &Value> =
        of(&all, "mcp_tool_executed").into_iter().map(|r| (r["invocation_id"].as_str().unwrap(), r)).collect();
    let call = |asked: &Value| {
        let done = done.get(asked["invocation_id"].as_str().unwrap());
        let call = Call {
            tool: asked["tool_name"].clone(),
            arguments: asked["arguments_hash"].clone(),
            result: done.map(|done| done["result_hash"].clone()),
            is_error: done.is_none_or(|done| done["outcome"] == "error"),
        };
        (asked["mcp_request_id"].as_u64().unwrap(), call)
    };
    of(&all, "mcp_tool_requested").into_iter().map(call).collect()
}

/// What a proxy in front of it said.
fn by_the_proxy(audit: &Path) -> BTreeMap<u64, Call> {
    let call = |r: &Value| {
        let call = Call {
            tool: r["tool_name"].clone(),
            arguments: r["arguments_hash"].clone(),
            result: Some(r["result_hash"].clone()),
            is_error: r["outcome"] == "error",
        };
        (r["mcp_request_id"].as_u64().unwrap(), call)
    };
    of(&receipts(audit), "mcp_tool_call").into_iter().map(call).collect()
}

#[test]
fn a_proxy_in_front_of_a_server_with_receipts_says_the_same_of_every_call() {
    let server = built("mcp-demo-server");
    let temp = tempfile::tempdir().unwrap();
    for (n, flags) in WAYS.into_iter().enumerate() {
        let dir = temp.path().join(n.to_string());
        let proxy = dir.join("proxy");
        let mut client = command(built("test-client"), &dir);
        client.args(flags.iter().filter(|flag| **flag != "--http"));
        let in_front = if flags.contains(&"--http") {
            let mut server = command(&server, &dir);
            server.args(["--http", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
            let mut server = server.spawn().unwrap();
            let mut url = String::new();
            BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
            let listener = Listener::start(Profile::Audit, url.trim(), &proxy, &[]);
            run(client.args(["--url", &listener.url]));
            let audit = listener.end();
            kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
            server.wait().unwrap();
            audit
        } else {
            let audit = proxy.join("audit");
            client
                .arg("--")
                .arg(install::assay())
                .args(["mcp-proxy", "--audit-dir"])
                .arg(&audit)
                .arg("--")
                .arg(&server);
            run(&mut client);
            audit
        };
        let (own, seen) = (by_the_server(&dir.join("audit")), by_the_proxy(&in_front));
        assert_eq!((own.len(), seen.len()), (CALLS.0, CALLS.0), "{flags:?}");
        for (id, mut seen) in seen {
            let own = &own[&id];
            if own.result.is_none() {
                seen.result = None;
            }
            assert_eq!(&seen, own, "{flags:?}: request {id}, by the proxy (left) and by the server (right)");
        }
    }
}

#[test]
fn the_conformance_suite_finds_the_same_in_a_server_with_receipts() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let server = built("receipted-conformance").display().to_string();
    for revision in ["2025-11-25", "2026-07-28"] {
        let found = |how: &str| {
            let dir = temp.path().join(revision).join(how);
            fs::create_dir_all(&dir).unwrap();
            let upstream = Upstream::start(&[&*server, how, "127.0.0.1:{port}"].map(str::to_owned), "/mcp", &dir);
            conformance::counts(&upstream.url, revision, &dir.join("suite.log"))
        };
        let bare = found("--bare");
        assert!(conformance::total(&bare).0 > 40, "{revision}: {bare:#?}");
        assert_eq!(found("--recorded"), bare, "{revision}: with receipts (left) and without (right)");
        // It was killed.
        let dir = temp.path().join(revision).join("--recorded");
        let audit = dir.join(".assay/mcp");
        run(command(install::assay(), &dir)
            .env("ASSAY_HOME", dir.join(".assay"))
            .args(["recover", "--audit-dir"])
            .arg(&audit));
        let packs = install::directories(&audit.join("packs"));
        assert!(!packs.is_empty(), "{revision}");
        for pack in packs {
            assert!(matches!(evidence::verify(&pack, &dir), Some(0 | 1)), "{}", pack.display());
        }
    }
}

/// The guide's blocks as one script: commands as they stand, other blocks as the files that they name.
fn script(guide: &str) -> String {
    let mut script = String::new();
    let mut blocks = guide.split("\n```");
    blocks.next();
    // Every second part is text.
    for block in blocks.step_by(2) {
        let (kind, body) = block.split_once('\n').unwrap();
        match kind.split_once(' ') {
            None => {
                assert_eq!(kind, "sh", "a block that is neither commands nor a file");
                script += body;
            }
            Some((_, file)) => script += &format!("cat >{file} <<'BLOCK'\n{body}\nBLOCK"),
        }
        script += "\n";
        if body.starts_with("cargo new ") {
            // The versions that are here, and what is built of them.
            script += "cp \"$ASSAY/Cargo.lock\" . && ln -s \"$SHARED_TARGET\" target\n";
        }
    }
    script
}

#[test]
fn the_guide_leads_to_a_server_with_receipts() {
    let temp = tempfile::tempdir().unwrap();
    let programs = built("test-client").parent().unwrap().to_owned();
    // Dependencies are built as here, so that they need not be built again.
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let sections = manifest.split("\n[").filter(|section| section.starts_with("profile.dev"));
    let profile: String = sections.map(|section| format!("[{section}\n")).collect();
    fs::create_dir(temp.path().join(".cargo")).unwrap();
    fs::write(temp.path().join(".cargo/config.toml"), profile).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths([programs.clone()].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let guide = fs::read_to_string(example().join("README.md")).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", &script(&guide)]).current_dir(temp.path());
    bash.env("ASSAY", root()).env("SHARED_TARGET", programs.parent().unwrap()).env("PATH", path);
    bash.env("ASSAY_HOME", temp.path().join("home")).env("CARGO_NET_OFFLINE", "true").env("CARGO_TERM_QUIET", "true");
    bash.env_remove("ASSAY_AUDIT_DIR").env_remove("CARGO_TARGET_DIR");
    let said = run(&mut bash);
    assert!(said.contains("coverage") && said.contains("3 of 3 (100.0 %)"), "{said}");
    let there = temp.path().join("my-server");
    assert!(there.join("gate_report.html").exists(), "{said}");
    let all = receipts(&there.join(".assay/mcp"));
    assert_eq!((of(&all, "mcp_tool_executed").len(), of(&all, "mcp_tool_denied").len()), (2, 4), "{said}");
    assert!(of(&all, "mcp_tool_requested")[0]["arguments_redacted"]["left"] == 2, "{said}");
}
