//! Ends of a session with servers that are driven step by step.

use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, rig, until},
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    thread,
};

pub const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
pub const NEVER: &str = "1000";

/// A proxy before a server that is a shell script; all of its streams are pipes.
pub fn proxy(rig: &Rig, guard: bool, timeout: &str, script: &str) -> Command {
    let mut command = rig.program(&["mcp-proxy", "--audit-dir", "audit", "--shutdown-timeout", timeout]);
    if guard {
        fs::write(rig.root.join("policy.yaml"), "version: \"1\"\ndefault: allow\n").unwrap();
        command.args(["--profile", "guard", "--policy", "policy.yaml"]);
    }
    command.args(["sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

pub fn said_by_recorder(rig: &Rig, text: &str) {
    let log = rig.audit.join("recorder.log");
    until(text, || fs::read_to_string(&log).ok()?.contains(text).then_some(()));
}

/// Everything of one session with a server that is driven by files: `go` lets it end.
fn ends_after_closing_stdout(code: i32) {
    let rig = rig!();
    let go = rig.root.join("go");
    let script =
        format!("read -r line; exec 1>&-; while [ ! -e '{}' ]; do sleep 0.01; done; exit {code}", go.display());
    let mut child = proxy(&rig, false, NEVER, &script).spawn().unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{INITIALIZE}").unwrap();
    // The client sees the end of the server's output, and hangs up for that.
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    drop(child.stdin.take());
    said_by_recorder(&rig, "the session ends");
    fs::write(&go, "").unwrap();
    let status = until("the proxy to end", || child.try_wait().unwrap());
    let session = check::sessions(&rig).remove(0);
    let reason = if code == 0 { "server_exited" } else { "server_failed" };
    assert_eq!((session.doc.end_reason.as_str(), session.doc.teardown.as_deref()), (reason, Some("exited")));
    assert_eq!(status.code(), Some(code));
}

#[test]
fn a_server_that_closes_its_stdout_before_it_ends_has_ended_first() {
    for code in [0, 1, 7] {
        ends_after_closing_stdout(code);
    }
}

#[test]
fn a_wrapper_that_starts_in_the_background_and_ends_changes_nothing() {
    let assay = env!("CARGO_BIN_EXE_assay");
    let serve = "while read -r line; do echo \"$line\"; done";
    let around_us = format!("{assay} mcp-proxy --audit-dir audit -- sh -c '{serve}' <&3 & exit 0");
    let around_server =
        format!("exec {assay} mcp-proxy --audit-dir audit -- sh -c 'exec 3<&0; sh -c \"$0\" <&3 & exit 0' '{serve}'");
    for script in [format!("exec 3<&0; {around_us}"), around_server] {
        let rig = rig!();
        let mut command = rig.command("sh");
        command.args(["-c", &script]);
        let mut client = Client::start(command);
        for n in 1..=3 {
            client.converse(std::iter::once(NOTE.to_owned()));
            if n == 1 {
                // What started it is over by the time that there is a second message.
                until("the wrapper's end", || {
                    let log = fs::read_to_string(rig.audit.join("recorder.log")).unwrap_or_default();
                    let left = log.contains("has ended and left others");
                    (left || client.child.try_wait().unwrap().is_some()).then_some(())
                });
            }
        }
        client.stdin = None;
        until("the pack", || (!rig::files(&rig.audit.join("packs"), |_| true).is_empty()).then_some(()));
        assert_eq!(client.lines(), 3);
        rig.await_silence();
        let session = check::sessions(&rig).remove(0);
        assert_eq!((session.doc.end_reason.as_str(), session.doc.session_complete), ("client_closed", true));
    }
}

#[test]
fn a_server_that_dies_in_a_call_has_ended_first_and_what_was_said_to_it_is_evidence() {
    for round in 0..10 {
        let rig = rig!();
        let mut client = Client::start(rig.proxy(&["--shutdown-timeout", NEVER]));
        client.converse([INITIALIZE.to_owned(), rig::call(1, "echo", 1)].into_iter());
        client.send(&rig::call(2, "hang", 0));
        until("the call at the server", || fs::read_to_string(rig.server_log()).ok()?.contains("hang").then_some(()));
        let server = rig.processes().into_iter().find(|p| {
            fs::read_to_string(p.join("cmdline")).is_ok_and(|c| c.contains("--nocapture") && !c.contains("mcp-proxy"))
        });
        let pid: i32 = server.unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        // At once, before anybody can have noticed, or a little later.
        client.send(&rig::call(3, "late", 0));
        if round % 2 == 0 {
            // The client hangs up because the server has ended.
            let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
            until("the server's end", || {
                (state().is_empty() || state().contains(") Z ") && threads() < 2).then_some(())
            });
            client.stdin = None;
        }
        let status = client.wait();
        let session = check::sessions(&rig).remove(0);
        assert_eq!(status.code(), Some(2), "{}", client.said());
        assert_eq!((session.doc.end_reason.as_str(), session.doc.exit_code), ("server_failed", None));
        assert!(!session.doc.session_complete);
        let tools: Vec<_> = session.receipts.iter().filter_map(|r| r["tool_name"].as_str()).collect();
        assert_eq!(tools, ["echo", "hang", "late"]);
        assert_eq!(session.receipts.iter().filter(|r| r["outcome_reason"] == "server_exited").count(), 2);
    }
}

/// What a parent leaves to those that it starts: `SIGCHLD` ignored (daemons), signals blocked (threads that wait for them).
#[test]
#[cfg(target_os = "linux")]
fn what_is_inherited_of_signals_keeps_nobody_from_hearing_how_the_server_ended() {
    for inherited in ["--ignore-signal=CHLD", "--block-signal=TERM", "--block-signal"] {
        let wrapper = ["env", inherited];
        if !Command::new("env").args([inherited, "true"]).output().is_ok_and(|o| o.status.success()) {
            eprintln!("env has no {inherited}");
            continue;
        }
        let rig = rig!();
        let mut client = Client::start(rig.wrapped(&wrapper, &["--shutdown-timeout", NEVER], ""));
        client.converse([INITIALIZE.to_owned(), rig::call(1, "echo", 1)].into_iter());
        client.send(&rig::call(2, "die", 3));
        let status = client.wait();
        assert_eq!(status.code(), Some(3), "{inherited}: {}", client.said());
        let session = check::sessions(&rig).remove(0);
        assert_eq!((session.doc.end_reason.as_str(), session.doc.exit_code), ("server_failed", Some(3)), "{inherited}");
        // And the proxy hears what is sent to it.
        let rig = rig!();
        let mut client = Client::start(rig.wrapped(&wrapper, &[], ""));
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        client.signal(Signal::TERM);
        client.wait();
        assert_eq!(check::sessions(&rig).remove(0).events.len(), 2, "{inherited}");
    }
}

#[test]
fn a_working_directory_that_is_gone_costs_the_evidence_and_not_the_session() {
    let rig = rig!();
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" mcp-proxy \"$@\" -- cat";
    for (flags, code) in [(&[][..], 2), (&["--audit-dir", rig.audit.to_str().unwrap()][..], 0)] {
        let mut command = rig.shell(script);
        command.args(flags);
        let mut client = Client::start(command);
        client.converse(std::iter::once(INITIALIZE.to_owned()));
        assert_eq!(client.end().code(), Some(code), "{}", client.said());
        assert_eq!(client.said().contains("the working directory is gone"), code == 2, "{}", client.said());
    }
    assert_eq!(check::sessions(&rig).len(), 1);
}

#[test]
fn a_client_that_is_killed_is_noticed_though_another_process_holds_both_pipes() {
    let rig = rig!();
    // The client holds both pipes, and so does what it started; then it is killed.
    let client = r#"mkfifo in out; "$0" mcp-proxy --audit-dir audit --shutdown-timeout 1000 cat <in >out & exec 3>in 4<out
        echo '{"jsonrpc":"2.0","method":"notifications/initialized"}' >&3; read -r line <&4; (exec sleep 300) & echo "$! $line"; wait"#;
    let mut child = rig.shell(client).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("initialized"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
    until("the pack", || {
        (!rig::files(&rig.audit.join("packs"), |n| n.starts_with("proof_pack")).is_empty()).then_some(())
    });
    let holder: i32 = line.split(' ').next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(holder).unwrap(), Signal::KILL).unwrap();
    assert_eq!(check::sessions(&rig).remove(0).doc.end_reason, "client_closed");
    rig.await_silence();
}

/// Both ends of a stream, the one to read from first.
fn stream(kind: &str) -> (OwnedFd, OwnedFd) {
    if kind == "socket" {
        let (a, b) = UnixStream::pair().unwrap();
        return (a.into(), b.into());
    }
    let (read, write) = std::io::pipe().unwrap();
    (read.into(), write.into())
}

/// Starts a proxy whose server says nothing, has another process hold its own ends of the pipes, and waits.
#[test]
#[ignore = "this is the client that another test kills"]
#[expect(clippy::zombie_processes, reason = "it is killed with both of them running")]
fn client() {
    let Ok(kind) = std::env::var("CRASH_CLIENT") else { return };
    let ((stdin, to), (from, stdout)) = (stream(&kind), stream(&kind));
    let mut proxy = Command::new(env!("CARGO_BIN_EXE_assay"));
    proxy.args(["mcp-proxy", "--audit-dir", "audit", "--shutdown-timeout", NEVER, "--"]);
    proxy.args(["sh", "-c", "while read -r line; do :; done"]);
    let _proxy = proxy.stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
    drop(proxy);
    let mut to = fs::File::from(to);
    writeln!(to, "{}", rig::call(1, "hang", 0)).unwrap();
    let mut holder = Command::new("sleep");
    let holder = holder.arg("1000").stdin(to.try_clone().unwrap()).stdout(from).stderr(Stdio::null()).spawn().unwrap();
    fs::write("holder.new", holder.id().to_string()).unwrap();
    fs::rename("holder.new", "holder").unwrap();
    thread::sleep(rig::LIMIT);
}

#[cfg(target_os = "linux")]
#[test]
fn a_client_that_is_killed_before_the_server_says_anything_is_noticed() {
    for kind in ["pipe", "socket"] {
        let rig = rig!();
        let mut client = rig.command(std::env::current_exe().unwrap());
        client.args(["--ignored", "--exact", "ends::client", "--nocapture"]).env("CRASH_CLIENT", kind);
        let mut client = client.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let holder: i32 = until("the client", || fs::read_to_string(rig.root.join("holder")).ok()).parse().unwrap();
        rig.await_events(2);
        client.kill().unwrap();
        client.wait().unwrap();
        let log = rig.audit.join("recorder.log");
        until(kind, || fs::read_to_string(&log).ok()?.contains("the proxy ends exit=0").then_some(()));
        kill_process(Pid::from_raw(holder).unwrap(), Signal::KILL).unwrap();
        rig.await_silence();
        let session = check::sessions(&rig).remove(0);
        assert_eq!((session.doc.end_reason.as_str(), session.doc.session_complete), ("client_closed", true), "{kind}");
    }
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::zombie_processes, reason = "it is waited for in the first round")]
fn a_wrapper_that_ends_is_not_taken_for_the_client_whatever_the_client_connects_it_with() {
    for kind in ["pipe", "socket"] {
        let rig = rig!();
        let ((stdin, to), (from, stdout)) = (stream(kind), stream(kind));
        let script = "exec 3<&0; \"$0\" mcp-proxy --audit-dir audit -- sh -c 'while read -r line; do echo \"$line\"; done' \
                      <&3 & while [ ! -e go ]; do sleep 0.01; done";
        let mut wrapper = rig.shell(script);
        let mut child = wrapper.stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
        drop(wrapper);
        let (mut to, mut from) = (fs::File::from(to), BufReader::new(fs::File::from(from)).lines());
        for n in 0..3 {
            writeln!(to, "{NOTE}").unwrap();
            assert_eq!(from.next().unwrap().unwrap(), NOTE, "{kind}");
            if n == 0 {
                said_by_recorder(&rig, "recording");
                fs::write(rig.root.join("go"), "").unwrap();
                child.wait().unwrap();
                said_by_recorder(&rig, "what started the proxy has ended; the client goes on");
            }
        }
        drop(to);
        assert!(from.next().is_none());
        rig.await_silence();
        assert_eq!(check::sessions(&rig).remove(0).doc.end_reason, "client_closed", "{kind}");
    }
}

#[test]
fn signals_that_mean_something_to_a_server_reach_it_and_what_is_ignored_stays_so() {
    let rig = rig!();
    let traps: String =
        ["USR1", "USR2", "ALRM", "QUIT"].map(|s| format!("trap 'echo {{\\\"got\\\":\\\"{s}\\\"}}' {s};")).concat();
    let script = format!("{traps} grep SigIgn /proc/self/status; while :; do read -r line && exit 0; done");
    let mut child = proxy(&rig, false, NEVER, &script).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ignored = |line: &str| u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("SigIgn")).unwrap();
    assert_eq!(ignored(&lines.next().unwrap()) & 1, ignored(own) & 1, "SIGHUP is as it was found");
    for (name, number) in
        [("USR1", Signal::USR1), ("USR2", Signal::USR2), ("ALRM", Signal::ALARM), ("QUIT", Signal::QUIT)]
    {
        signal(&child, number);
        assert_eq!(lines.next().unwrap(), format!("{{\"got\":\"{name}\"}}"));
    }
    writeln!(child.stdin.as_mut().unwrap(), "{NOTE}").unwrap();
    assert_eq!(until("the proxy to end", || child.try_wait().unwrap()).code(), Some(0));

    let rig = rig!();
    let script = "trap '' HUP; exec \"$0\" mcp-proxy --audit-dir audit sh -c 'grep SigIgn /proc/self/status; cat'";
    let mut client = Client::start(rig.shell(script));
    client.await_lines(1);
    assert_eq!(ignored(String::from_utf8(client.got()).unwrap().trim()) & 1, 1, "SIGHUP is ignored by the server, too");
    client.signal(Signal::HUP);
    client.converse(std::iter::once(NOTE.to_owned()));
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert_eq!(check::sessions(&rig).remove(0).doc.end_reason, "client_closed");
}

#[test]
fn what_a_server_leaves_behind_before_anybody_spoke_does_not_keep_the_proxy() {
    let rig = rig!();
    let mut child = proxy(&rig, false, NEVER, "exec 3<&0; (read -r line <&3) & exit 0").spawn().unwrap();
    let status = until("the proxy to end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let session = check::sessions(&rig).remove(0);
    assert_eq!(session.doc.end_reason, "server_exited");
}

#[test]
fn a_guard_whose_client_floods_and_never_reads_ends_with_it() {
    let rig = rig!();
    let mut child = proxy(&rig, true, "1", "while read -r line; do :; done").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Each of these is answered with an error, and nobody reads the answers.
    let writer = thread::spawn(move || {
        for n in 0..400_000 {
            if writeln!(stdin, "{{\"jsonrpc\":\"2.0\",\"id\":{n},\"method\":\"tools/call\",\"params\":[{n}]}}").is_err()
            {
                return;
            }
        }
    });
    let pid = child.id();
    let mut most = 0;
    let mut still = (0, std::time::Instant::now());
    // It stands still once all that may wait does.
    until("the flood to stand still", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("0 kB");
            line.split_whitespace().find_map(|w| w.parse::<u64>().ok()).unwrap_or(0)
        };
        most = most.max(kib("RssAnon:"));
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
        let read: u64 = io.lines().find_map(|l| l.strip_prefix("rchar: ")?.parse().ok()).unwrap();
        if read != still.0 {
            still = (read, std::time::Instant::now());
        }
        (writer.is_finished() || still.1.elapsed() > std::time::Duration::from_secs(1)).then_some(())
    });
    assert!(most < 100 << 10, "{most} KiB");
    signal(&child, Signal::TERM);
    until("the proxy to end", || child.try_wait().unwrap());
    writer.join().unwrap();
    rig.await_silence();
    check::settled(&rig);
}
