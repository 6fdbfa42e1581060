//! How sessions end, with real processes: who ends first, what is said of it, and the exit code.

use assay::pack::verify::Completeness;
use assay_support::{
    check::{self, Crossed},
    rig::{Client, INITIALIZE, call, rig, until},
};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

/// How a session goes and what must come of it.
struct Story {
    name: &'static str,
    /// Flags of the server.
    server: &'static str,
    /// Shell text before the server.
    before: &'static str,
    /// Calls that are answered.
    calls: u64,
    /// A last call, which is not.
    last: Option<(&'static str, u64)>,
    /// A notification that the server dies of: with this exit code, or by SIGKILL.
    dies: Option<&'static str>,
    /// How it is ended; nothing: the client closes stdin.
    signals: &'static [Signal],
    /// Whether the client closes its stdin.
    closes: bool,
    exit: i32,
    reason: &'static str,
    teardown: &'static str,
    complete: bool,
    /// Outcome and reason of the last call's receipt.
    outcome: Option<(&'static str, &'static str)>,
}

const PLAIN: Story = Story {
    name: "the client closes",
    server: "",
    before: "",
    calls: 2,
    last: None,
    dies: None,
    signals: &[],
    closes: true,
    exit: 0,
    reason: "client_closed",
    teardown: "stdin_closed",
    complete: true,
    outcome: None,
};

const STORIES: &[Story] = &[
    PLAIN,
    Story {
        name: "the client closes with a call in flight",
        last: Some(("hang", 0)),
        outcome: Some(("timeout", "client_closed")),
        ..PLAIN
    },
    // The server's own exit code is the proxy's.
    Story { name: "a server that fails once its stdin is closed", server: "exit=3", exit: 3, ..PLAIN },
    Story { name: "a server that ignores the end of stdin", server: "ignore-eof", teardown: "terminated", ..PLAIN },
    Story {
        name: "a server that ignores the end of stdin and SIGTERM",
        server: "ignore-eof",
        before: "trap '' TERM;",
        teardown: "killed",
        ..PLAIN
    },
    Story { name: "a grandchild that holds stdout", server: "grandchild", ..PLAIN },
    Story {
        name: "a server that dies with a call in flight",
        last: Some(("die", 0)),
        closes: false,
        exit: 2,
        reason: "server_exited",
        teardown: "exited",
        complete: false,
        outcome: Some(("timeout", "server_exited")),
        ..PLAIN
    },
    // How the server ends is a fact beside the evidence: nothing is missing.
    Story {
        name: "a server that fails with nothing in flight",
        dies: Some("5"),
        closes: false,
        exit: 5,
        reason: "server_failed",
        teardown: "exited",
        ..PLAIN
    },
    Story {
        name: "a server that dies by a signal with nothing in flight",
        dies: Some("KILL"),
        closes: false,
        exit: 2,
        reason: "server_failed",
        teardown: "exited",
        ..PLAIN
    },
    Story {
        name: "a server that fails with a call in flight",
        last: Some(("die", 7)),
        closes: false,
        exit: 7,
        reason: "server_failed",
        teardown: "exited",
        complete: false,
        outcome: Some(("timeout", "server_exited")),
        ..PLAIN
    },
    // First its stdin is closed; what takes no notice of that is told.
    Story {
        name: "SIGTERM and a server that ignores the end of stdin",
        server: "ignore-eof",
        signals: &[Signal::TERM],
        closes: false,
        reason: "signal_TERM",
        teardown: "terminated",
        ..PLAIN
    },
    Story {
        name: "SIGTERM and a server that ignores everything",
        server: "ignore-eof",
        before: "trap '' TERM;",
        signals: &[Signal::TERM],
        closes: false,
        exit: 2,
        reason: "signal_TERM",
        teardown: "killed",
        ..PLAIN
    },
    Story { name: "SIGINT", signals: &[Signal::INT], closes: false, exit: 130, reason: "signal_INT", ..PLAIN },
    Story { name: "SIGTERM", signals: &[Signal::TERM], closes: false, reason: "signal_TERM", ..PLAIN },
    Story { name: "SIGHUP", signals: &[Signal::HUP], closes: false, reason: "signal_HUP", ..PLAIN },
    Story {
        name: "two signals at a server that ignores the first",
        server: "ignore-eof",
        before: "trap '' TERM;",
        signals: &[Signal::TERM, Signal::TERM],
        closes: false,
        exit: 2,
        reason: "signal_TERM",
        teardown: "killed",
        ..PLAIN
    },
];

fn play(story: &Story) {
    let rig = rig!();
    let mut command = rig.wrapped(&[], &["--shutdown-timeout", "1"], story.before);
    command.env("CRASH_SERVER", story.server);
    let mut client = Client::start(command);
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=story.calls).map(|i| call(i, "echo", i))));
    if let Some((tool, n)) = story.last {
        client.send(&call(story.calls + 1, tool, n));
        until("the last call at the server", || {
            let log = fs::read_to_string(rig.server_log()).unwrap();
            log.contains(&format!("\"{tool}\"")).then_some(())
        });
    }
    if let Some(how) = story.dies {
        let notification =
            serde_json::json!({ "jsonrpc": "2.0", "method": "notifications/die", "params": { "how": how } });
        client.send(&notification.to_string());
    }
    for (i, signal) in story.signals.iter().enumerate() {
        client.signal(*signal);
        // Two signals at once are one.
        if i + 1 < story.signals.len() {
            let log = rig.audit.join("recorder.log");
            until("the first signal", || fs::read_to_string(&log).ok()?.contains("Signal(15)").then_some(()));
        }
    }
    let status = if story.closes { client.end() } else { client.wait() };
    let said = client.said();
    assert_eq!(status.code(), Some(story.exit), "{said}");
    check::settled(&rig);
    let mut sessions = check::sessions(&rig);
    assert_eq!(sessions.len(), 1);
    let session = sessions.remove(0);
    assert_eq!(session.doc.end_reason, story.reason, "{said}");
    assert_eq!(session.doc.teardown.as_deref(), Some(story.teardown), "{said}");
    assert_eq!(session.doc.session_complete, story.complete, "{said}");
    assert_eq!(session.completeness == Completeness::Complete, story.complete);
    if let Some((outcome, reason)) = story.outcome {
        let last: Vec<&Value> = session.receipts.iter().filter(|r| r["type"] == "mcp_tool_call").collect();
        let last = last.last().unwrap();
        assert_eq!((&last["outcome"], &last["outcome_reason"]), (&outcome.into(), &reason.into()));
    }
    check::evidence(&[session], &Crossed::of(&rig, &client));
}

fn play_every(which: usize) {
    let mut failed = Vec::new();
    for story in STORIES.iter().skip(which).step_by(2) {
        if std::panic::catch_unwind(|| play(story)).is_err() {
            failed.push(story.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn sessions_end_as_they_should() {
    play_every(0);
}

#[test]
fn more_sessions_end_as_they_should() {
    play_every(1);
}

#[test]
fn nothing_lives_on_when_the_client_is_killed() {
    let rig = rig!();
    // The client is a shell that hands its own stdin and stdout on; killing it closes what only it held.
    let mut client = Client::start(rig.proxy(&[]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    assert!(!rig.processes().is_empty());
    // What SIGKILL of a client is to a proxy: both pipes closed at once, nothing said.
    client.stdin = None;
    drop(client.child.stdout.take());
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    rig.await_silence();
}

#[test]
fn the_server_ends_when_the_proxy_is_killed() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    client.kill();
    rig.await_silence();
}

#[test]
fn all_of_the_servers_stderr_comes_through_and_nothing_of_ours_is_on_stdout() {
    const NOISE: u64 = 300_000;
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse([INITIALIZE.to_owned(), call(1, "noise", NOISE), call(2, "echo", 2)].into_iter());
    assert_eq!(client.end().code(), Some(0));
    assert_eq!(client.said().bytes().filter(|b| *b == b'!').count() as u64, NOISE);
    let got = client.got();
    assert_eq!(got.split(|b| *b == b'\n').filter(|l| !l.is_empty()).count(), 3);
    for line in got.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        assert_eq!(serde_json::from_slice::<Value>(line).unwrap()["jsonrpc"], "2.0");
    }
    let session = check::sessions(&rig).remove(0);
    assert_eq!(session.doc.stderr_bytes, NOISE);
}

#[test]
fn a_command_that_does_not_exist_is_named_with_the_places_that_were_searched() {
    let rig = rig!();
    let dirs = [rig.root.join("bin-one"), rig.root.join("bin-two")];
    let mut command = rig.program(&["mcp-proxy", "--audit-dir", "audit", "--", "no-such-server"]);
    command.env("PATH", std::env::join_paths(&dirs).unwrap());
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let said = String::from_utf8(out.stderr).unwrap();
    for part in ["no-such-server", dirs[0].to_str().unwrap(), dirs[1].to_str().unwrap()] {
        assert!(said.contains(part), "{said}");
    }
    assert!(out.stdout.is_empty());
    assert!(!rig.audit.exists(), "nothing is made for a command that does not exist");
}

#[test]
fn an_audit_directory_that_is_a_file_is_refused_and_the_server_never_started() {
    let rig = rig!();
    fs::write(&rig.audit, "precious").unwrap();
    let mut client = Client::start(rig.proxy(&[]));
    assert_eq!(client.end().code(), Some(3));
    assert!(client.said().contains("is not a directory"), "{}", client.said());
    assert!(!rig.server_log().exists());
    assert_eq!(fs::read_to_string(&rig.audit).unwrap(), "precious");
}

#[test]
fn a_bare_environment_and_a_root_directory_are_enough() {
    let rig = rig!();
    let mut command = rig.proxy(&[]);
    command.env_clear().current_dir("/").env("PATH", "/usr/bin:/bin").env("ASSAY_HOME", rig.root.join("home"));
    command.env("CRASH_SERVER_LOG", rig.server_log());
    let mut client = Client::start(command);
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    let session = check::sessions(&rig).remove(0);
    assert_eq!(session.completeness, Completeness::Complete);
    let mode = fs::metadata(&rig.audit).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_client_that_is_slow_to_read_gets_every_byte_before_the_proxy_ends() {
    const BYTES: u64 = 3 << 20;
    let rig = rig!();
    let mut child = rig
        .proxy(&[])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    use std::io::{Read as _, Write as _};
    writeln!(stdin, "{INITIALIZE}\n{}\n{}", call(1, "big", BYTES), call(2, "die", 0)).unwrap();
    let start = Instant::now();
    until("the server to have read it", || {
        fs::read_to_string(rig.server_log()).ok()?.contains("\"die\"").then_some(())
    });
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    assert!(got.len() as u64 > BYTES && got.ends_with(b"\n"));
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(start.elapsed() < Duration::from_secs(30));
}
