//! From recording to enforcing: the same scripted session recorded, judged and guarded, seen live, packed and compared.

use crate::{evidence, install, scenario::Report};
use assay::{
    live::{
        client::{self, Update},
        discovery,
        row::CallRow,
        state::State,
    },
    model::{Outcome, PolicyVerdict},
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, atomic::AtomicBool, mpsc},
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);
const POLICY: &str = "version: \"1\"\ndefault: deny\nallowlist: [echo]\ndenylist: [get-*]\n";

/// A session, as everyone who can tell has it.
struct Session {
    report: Report,
    pack: PathBuf,
    home: PathBuf,
    /// Its calls while it was live.
    live: Vec<CallRow>,
}

/// The Python SDK's client calls `echo` and `get-sum` of server-everything, and stays until both were seen live.
fn session(dir: &Path, flags: &[&str]) -> Session {
    let (audit, run, home, seen) = (dir.join("audit"), dir.join("run"), dir.join("home"), dir.join("seen"));
    fs::create_dir_all(&run).unwrap();
    fs::create_dir_all(&home).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    let words = [install::assay(), "mcp-proxy".into(), "--audit-dir".into(), audit.clone()];
    let server = ["--".into(), install::root().join("node_modules/.bin/mcp-server-everything")];
    let command: Vec<PathBuf> = words.into_iter().chain(flags.iter().map(PathBuf::from)).chain(server).collect();
    let job = json!({
        "command": command,
        "env": {"ASSAY_HOME": home.join(".assay"), "XDG_RUNTIME_DIR": run},
        "cwd": dir,
        "mode": "legacy",
        "steps": [
            {"op": "call", "name": "echo", "args": {"message": "hello"}},
            {"op": "call", "name": "get-sum", "args": {"a": 2, "b": 40}},
            // If the client leaves before, the server waits for its answer, and not for the end of its stdin.
            {"op": "notified", "method": "roots/list"},
            {"op": "exists", "path": seen},
        ],
    });
    let (job_file, out, log) = (dir.join("job.json"), dir.join("out.json"), dir.join("driver.log"));
    fs::write(&job_file, job.to_string()).unwrap();
    let mut driver = install::python("drive.py");
    driver.arg(job_file).arg(&out).env("HOME", &home);
    let live = std::thread::scope(|scope| {
        let driver = scope.spawn(|| install::finish(driver, &log, LIMIT * 2));
        let live = both_calls(&run.join("assay"));
        fs::write(&seen, "").unwrap();
        let status = driver.join().unwrap();
        assert!(status.success(), "driver: {status}\n{}", install::tail(&log));
        live
    });
    let report: Report = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    let packs = install::directories(&audit.join("packs"));
    assert_eq!(packs.len(), 1, "{}", report.said());
    Session { report, pack: packs[0].clone(), home, live }
}

/// Follows the one session of a run directory until two calls have ended.
fn both_calls(run: &Path) -> Vec<CallRow> {
    let deadline = Instant::now() + LIMIT;
    let card = loop {
        let card = discovery::live_in(run).pop();
        if let Some(card) = card.filter(|c| c.card.socket.as_ref().is_some_and(|s| s.exists())) {
            break card;
        }
        assert!(Instant::now() < deadline, "no live session in {}", run.display());
        std::thread::sleep(Duration::from_millis(10));
    };
    let (updates, inbox) = mpsc::sync_channel(10_000);
    client::follow(card, u64::MAX, updates, Arc::new(AtomicBool::new(false))).unwrap();
    let mut state = State::default();
    loop {
        match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Update::Line(line)) => state.apply(&line),
            Ok(Update::Call(row)) => state.call(*row),
            // It is tried again.
            Ok(Update::Lost(_)) => {}
            Ok(other @ (Update::Unread(_) | Update::TooNew { .. } | Update::Gone(_))) => {
                panic!("the session ended before two calls were seen: {other:?}")
            }
            Err(error) => panic!("two calls were not seen: {error}"),
        }
        let ended: Vec<CallRow> = state.rows().filter(|row| !row.is_running()).cloned().collect();
        if ended.len() == 2 {
            return ended;
        }
    }
}

/// Tool, verdict and outcome of each call, as the live socket told them.
fn told(session: &Session) -> Vec<(&str, PolicyVerdict, Outcome)> {
    let rows = session.live.iter();
    rows.map(|r| (r.tool_name.as_deref().unwrap(), r.policy_verdict.unwrap(), r.outcome.unwrap())).collect()
}

/// `assay diff --json`, and its exit code.
fn diff(a: &Session, b: &Session) -> (Value, Option<i32>) {
    let mut command = Command::new(install::assay());
    command.args(["diff", "--json"]).arg(&a.pack).arg(&b.pack).env("ASSAY_HOME", b.home.join(".assay"));
    let output = command.output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

/// Verdict and outcome of the one call of `get-sum`, in A and in B.
fn of_get_sum(diff: &Value) -> Vec<&str> {
    let all = diff["comparison"]["changes"].as_array().unwrap();
    let change = all.iter().find(|change| change["tool"] == "get-sum").unwrap();
    let sides =
        ["a", "b"].map(|side| ["policy_verdict", "outcome"].map(|member| change[side][member].as_str().unwrap()));
    sides.concat()
}

#[test]
fn a_real_client_sees_a_policy_advise_and_then_enforce() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let tmp = tempfile::tempdir().unwrap();
    let policy = tmp.path().join("policy.yaml");
    fs::write(&policy, POLICY).unwrap();
    let policy = ["--policy", policy.to_str().unwrap()];
    let guard = [&policy[..], &["--profile", "guard"]].concat();
    let [recorded, advised, guarded] = [("r", &[][..]), ("a", &policy[..]), ("g", &guard[..])]
        .map(|(name, flags)| session(&tmp.path().join(name), flags));

    use {Outcome::*, PolicyVerdict as Verdict};
    let forwarded = |verdict| vec![("echo", verdict, Forwarded), ("get-sum", verdict, Forwarded)];
    assert_eq!(told(&recorded), forwarded(Verdict::NoPolicy));
    assert_eq!(told(&advised), [("echo", Verdict::Allowed, Forwarded), ("get-sum", Verdict::Denied, Forwarded)]);
    assert_eq!(told(&guarded), [("echo", Verdict::Allowed, Forwarded), ("get-sum", Verdict::Denied, Outcome::Denied)]);

    for (session, exit) in [(&recorded, 0), (&advised, 1), (&guarded, 1)] {
        let Report { results, exit: code, .. } = &session.report;
        assert_eq!(results[0]["content"][0]["text"], "Echo: hello");
        assert_eq!(*code, Some(exit), "{}", session.report.said());
        assert_eq!(evidence::verify(&session.pack, &session.home), Some(0));
        assert!(evidence::assay_ai_accepts(std::slice::from_ref(&session.pack), &session.home));
    }
    assert_eq!(advised.report.results[..2], recorded.report.results[..2]);
    let denial = &guarded.report.results[1]["error"];
    assert_eq!(*denial, json!({"code": -32001, "message": "denied by policy: the tool get-sum is on the denylist"}),);

    let (enforced, code) = diff(&advised, &guarded);
    assert_eq!((of_get_sum(&enforced), code), (vec!["denied", "forwarded", "denied", "denied"], Some(0)));
    let (both, code) = diff(&recorded, &guarded);
    assert_eq!((of_get_sum(&both), code), (vec!["no_policy", "forwarded", "denied", "denied"], Some(1)));
    assert_eq!(both["regressions"][0]["kind"], "denied");
}
