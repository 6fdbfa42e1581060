//! Those who mean well: what they see, when, and that nothing is missing.

use super::hostile::{CALLS, wide};
use super::*;
use assay::live::protocol::{LiveLine, PackState};
use assay::model::{Outcome, SessionId};
use assay_support::rig::{call, rig};
use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, process::Stdio};

#[test]
fn a_call_is_seen_while_it_runs_and_when_it_ends() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    let socket = card.card.socket.clone().unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(&run_dir(&rig))), (0o600, 0o700));
    assert_eq!(card.card.server_info.as_ref().unwrap().name, "crash-server");
    // The recorder hears of the socket after those who look for it.
    let in_audit_dir = rig.audit.join("live").join(format!("{}.json", card.card.session_id.hex()));
    let told =
        || serde_json::from_slice::<assay::record::card::Card>(&fs::read(&in_audit_dir).unwrap()).unwrap().socket;
    until("the socket in its card", || (told() == card.card.socket).then_some(()));
    let (inbox, mut state) = (follow(&card, 10_000), State::default());
    client.send(&call(1, "hang", 0));
    watch_until("a running call", &inbox, &mut state, |s| s.rows().any(|r| r.is_running()));
    client.converse([call(2, "echo", 0), call(3, "fail", 0), call(4, "noise", 10)].into_iter());
    let ended = |s: &State, o| s.rows().any(|r| r.outcome == Some(o));
    watch_until("ends of calls", &inbox, &mut state, |s| {
        ended(s, Outcome::Forwarded) && ended(s, Outcome::Error) && s.rows().filter(|r| !r.is_running()).count() == 3
    });
    assert_eq!(
        state.rows().filter(|r| r.is_running()).map(|r| r.tool_name.as_deref()).collect::<Vec<_>>(),
        [Some("hang")]
    );
    client.end();
    let updates = to_the_end(&inbox, &mut state);
    assert!(updates.iter().any(|u| matches!(u, Update::Line(l) if matches!(**l, LiveLine::SessionEnd(_)))));
    let view = &state.sessions()[&card.card.session_id];
    assert_eq!(view.pack.as_ref().unwrap().state, PackState::Verified);
    assert_eq!(view.totals.finished, 4);
    assert!(state.rows().cloned().eq(receipts(&rig)));
    assert!(!socket.exists() && discovery::live_in(&run_dir(&rig)).is_empty());
    assert_eq!(documents(&rig)[0].live_events_missed, 0);
}

#[test]
fn the_servers_stderr_is_told_in_lines() {
    let rig = rig!();
    let mut command = rig.wrapped(&[], &[], "echo one >&2; echo two >&2;");
    command.env("CRASH_SERVER", "");
    let mut client = Client::start(command);
    client.converse([rig::INITIALIZE.to_owned()].into_iter());
    let card = until("a live session", || {
        discovery::live_in(&run_dir(&rig)).pop().filter(|c| c.card.socket.as_ref().is_some_and(|s| s.exists()))
    });
    let (inbox, mut state) = (follow(&card, 1000), State::default());
    watch_until("stderr", &inbox, &mut state, |s| {
        let view = s.sessions().get(&card.card.session_id);
        view.is_some_and(|v| v.stderr.values().map(|l| l.line.as_str()).collect::<Vec<_>>() == ["one", "two"])
    });
    client.end();
}

#[test]
fn stderr_of_before_is_told_as_far_as_it_is_kept_and_the_rest_is_counted() {
    const LINES: u64 = 20_000;
    let rig = rig!();
    let mut client = Client::start(rig.wrapped(&[], &[], &format!("seq 1 {LINES} >&2; printf unfinished >&2;")));
    client.converse([rig::INITIALIZE.to_owned()].into_iter());
    let card = until("a live session", || {
        discovery::live_in(&run_dir(&rig)).pop().filter(|c| c.card.socket.as_ref().is_some_and(|s| s.exists()))
    });
    let (inbox, mut state) = (follow(&card, 100_000), State::default());
    let view = |s: &State| s.sessions().get(&card.card.session_id).cloned().unwrap_or_default();
    let mut told = Vec::new();
    until("the last line", || {
        while let Ok(update) = inbox.try_recv() {
            apply(&mut state, &update);
            if let Update::Line(line) = &update
                && let LiveLine::Stderr(line) = &**line
            {
                told.push((line.seq, line.line.clone()));
            }
        }
        told.last().is_some_and(|(seq, _)| *seq + 1 == LINES).then_some(())
    });
    assert!(told.iter().all(|(seq, line)| *line == (seq + 1).to_string()));
    assert_eq!(view(&state).stderr_lost + told.len() as u64, LINES);
    assert!(told.len() > 1000);
    client.end();
    to_the_end(&inbox, &mut state);
    assert_eq!(
        view(&state).stderr.last_key_value().map(|(seq, l)| (*seq, l.line.as_str())),
        Some((LINES, "unfinished"))
    );
}

fn falls_behind(flags: &[&str]) {
    let rig = rig!();
    let (mut client, card) = start(&rig, flags);
    // Nobody takes anything from this one until all is over.
    let inbox = follow(&card, 1);
    for id in 1..=CALLS {
        client.send(&wide(id));
    }
    client.await_lines(usize::try_from(CALLS).unwrap() + 1);
    let mut state = State::new(usize::MAX);
    watch_until("all calls", &inbox, &mut state, |s| s.rows().filter(|r| !r.is_running()).count() as u64 == CALLS);
    client.end();
    let mut cursors: BTreeMap<SessionId, u64> = BTreeMap::new();
    for update in to_the_end(&inbox, &mut state) {
        if let Update::Line(line) = update
            && let Some(c) = line.chained()
        {
            let before = cursors.insert(c.session_id, c.cursor);
            assert!(before.is_none_or(|b| b + 1 == c.cursor), "each event once, in order");
        }
    }
    let untimed = |row: &CallRow| CallRow { phases_us: Default::default(), duration_ms: None, ..row.clone() };
    assert_eq!(state.rows().map(untimed).collect::<Vec<_>>(), receipts(&rig).iter().map(untimed).collect::<Vec<_>>());
    assert!(state.sessions().values().all(|v| v.end.is_some()));
    assert_eq!(state.sessions().len(), rig.segments().len());
}

#[test]
fn whoever_falls_behind_heals_from_the_files_and_misses_nothing() {
    falls_behind(&["--auto-pack=false"]);
}

#[test]
fn whoever_falls_behind_by_whole_sessions_misses_nothing() {
    falls_behind(&["--auto-pack=false", "--pack-interval", "50r"]);
}

#[test]
fn a_killed_proxy_is_told_to_the_end_from_its_files_and_swept_by_the_next() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    let (inbox, mut state) = (follow(&card, 1000), State::default());
    client.converse([call(1, "echo", 0)].into_iter());
    watch_until("the call", &inbox, &mut state, |s| s.rows().any(|r| !r.is_running()));
    let socket = card.card.socket.clone().unwrap();
    client.kill();
    to_the_end(&inbox, &mut state);
    let (mut client, next) = start(&rig, &[]);
    assert!(fs::symlink_metadata(&socket).is_err());
    let live = discovery::live_in(&run_dir(&rig));
    assert_eq!(live.iter().map(|c| c.card.session_id).collect::<Vec<_>>(), [next.card.session_id]);
    client.end();
}

#[test]
fn recovery_sweeps_what_a_killed_proxy_left_and_leaves_the_living() {
    let rig = rig!();
    let (mut client, _) = start(&rig, &[]);
    client.kill();
    // Once it has recovered that one, it does not look for the dead again.
    let (mut living, card) = start(&rig, &[]);
    living.await_said("recovered proof pack");
    let (mut killed, dead) = start(&rig, &[]);
    let left = |c: &RunCard| {
        let stem = c.card.session_id.hex();
        rig::files(&run_dir(&rig), |n| n.starts_with(&stem)).len()
    };
    killed.kill();
    rig::until("its server to end", || (rig.processes().len() == 2).then_some(()));
    assert!(left(&dead) >= 2);
    assert_eq!(rig.recover().status.code(), Some(0));
    assert_eq!(left(&dead), 0);
    assert_eq!(
        discovery::live_in(&run_dir(&rig)).iter().map(|c| c.card.session_id).collect::<Vec<_>>(),
        [card.card.session_id]
    );
    let (inbox, mut state) = (follow(&card, 1000), State::default());
    living.converse([call(1, "echo", 0)].into_iter());
    watch_until("the call", &inbox, &mut state, |s| s.rows().any(|r| !r.is_running()));
    assert_eq!(living.end().code(), Some(0));
}

#[test]
fn sessions_that_roll_over_are_followed_one_into_the_next() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &["--pack-interval", "3r"]);
    let (inbox, mut state) = (follow(&card, 10_000), State::default());
    client.send(&call(100, "hang", 0));
    client.converse((1..=20).map(|id| call(id, "echo", id)));
    client.end();
    to_the_end(&inbox, &mut state);
    assert!(state.sessions().len() > 1);
    assert_eq!(state.rows().count(), 21);
    // Two sessions' clocks begin at different nanoseconds: times of a call that went over may differ by a microsecond.
    let untimed = |row: &CallRow| CallRow { phases_us: Default::default(), duration_ms: None, ..row.clone() };
    let expected: Vec<_> = receipts(&rig).iter().map(untimed).collect();
    assert_eq!(state.rows().map(untimed).collect::<Vec<_>>(), expected);
    let ends: BTreeMap<_, _> = state.sessions().iter().map(|(id, v)| (*id, v.end.clone().unwrap().next)).collect();
    assert_eq!(ends.values().filter(|n| n.is_none()).count(), 1, "{ends:?}");
    assert!(ends.values().flatten().all(|next| ends.contains_key(next)));
}

#[test]
fn watch_prints_two_sessions_at_once_and_ends_with_them() {
    let rig = rig!();
    let (mut a, _) = start(&rig, &["--server-id", "alpha"]);
    let (mut b, card) = start(&rig, &["--server-id", "beta"]);
    let assay = |args: &[&str]| {
        let mut command = rig.program(&["watch"]);
        command.args(args).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        Client::start(command)
    };
    let mut plain = assay(&[]);
    let mut json = assay(&["--json", "--session", &card.card.session_id.to_string()]);
    let mut errors = assay(&["--filter", "outcome:error", "--audit-dir", rig.audit.to_str().unwrap()]);
    let text = |c: &Client| String::from_utf8(c.got()).unwrap();
    a.converse([call(1, "echo", 0)].into_iter());
    b.converse([call(1, "fail", 0)].into_iter());
    until("both sessions in plain text", || {
        let text = text(&plain);
        let has = |server: &str, state: &str| text.lines().any(|l| l.contains(server) && l.contains(state));
        (has("alpha", "… running") && has("alpha", "✓ forwarded") && has("beta", "! error")).then_some(())
    });
    until("the filtered call", || text(&errors).contains("! error").then_some(()));
    until("the event", || text(&json).contains("call_finished").then_some(()));
    a.end();
    b.end();
    for watch in [&mut plain, &mut json, &mut errors] {
        assert_eq!(watch.wait().code(), Some(0));
        watch.end();
    }
    assert!(!text(&errors).contains("✓"));
    for line in text(&json).lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(value["event"].is_string());
        assert!(value["session_id"].as_str().is_none_or(|s| s == card.card.session_id.to_string()));
    }
    assert!(text(&plain).contains("ended: client_closed"));
}

#[test]
fn watch_without_a_session_says_how_to_start_one_and_ends() {
    let rig = rig!();
    let out = rig.run(&["watch"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8(out.stdout).unwrap().contains("assay mcp-proxy -- "));
    assert_eq!(rig.run(&["watch", "--session", "mcp_0000000000000001"]).status.code(), Some(3));
    let out = rig.run(&["watch", "--filter", "tool:x colour:red"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8(out.stderr).unwrap().contains("\n       ^ "));
}

#[test]
fn watch_waits_for_the_first_session_if_it_is_asked_to() {
    let rig = rig!();
    // The directory is made by the first session.
    assert!(!rig.audit.exists());
    let dir = ["--audit-dir", rig.audit.to_str().unwrap()];
    assert_eq!(rig.run(&[&["watch"], &dir[..]].concat()).status.code(), Some(3));
    let mut watch = Client::start(rig.program(&[&["watch", "--wait", "--filter", "tool:echo"], &dir[..]].concat()));
    watch.await_said("waiting for a live session");
    assert_eq!(watch.lines(), 0);
    let (mut client, _) = start(&rig, &[]);
    client.converse([call(1, "echo", 0)].into_iter());
    until("its call", || String::from_utf8(watch.got()).unwrap().contains("echo").then_some(()));
    client.end();
    assert_eq!(watch.wait().code(), Some(0));
    let mut watch = Client::start(rig.program(&["watch", "--wait"]));
    watch.await_said("waiting for a live session");
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.wait().code(), Some(0));
}

#[test]
fn assay_alone_without_a_terminal_prints_the_same_lines() {
    let rig = rig!();
    let (mut client, _) = start(&rig, &["--server-id", "alpha"]);
    let mut alone = Client::start(rig.program(&[]));
    until("the session", || (alone.lines() > 0).then_some(()));
    client.converse([call(1, "echo", 0)].into_iter());
    client.end();
    assert_eq!(alone.wait().code(), Some(0));
    let text = String::from_utf8(alone.got()).unwrap();
    let has = |what: &str| text.lines().any(|line| line.contains(what));
    assert!(has("alpha  echo") && has("forwarded") && has("ended: client_closed") && has("pack verified"), "{text}");
}

#[test]
fn watch_ends_clean_on_an_interrupt() {
    let rig = rig!();
    let (mut client, _) = start(&rig, &[]);
    let mut watch = Client::start(rig.program(&["watch"]));
    until("its first line", || (watch.lines() > 0).then_some(()));
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.wait().code(), Some(0));
    assert_eq!(watch.said(), "");
    assert_eq!(client.end().code(), Some(0));
}

#[test]
fn a_call_that_a_guard_denies_has_an_end() {
    let rig = rig!();
    let policy = rig.root.join("policy.yaml");
    fs::write(&policy, "version: \"1\"\ndefault: allow\ndenylist: [rm]\n").unwrap();
    let (mut client, card) = start(&rig, &["--profile", "guard", "--policy", policy.to_str().unwrap()]);
    let inbox = follow(&card, 1000);
    let mut state = State::new(100);
    client.converse([rig::call(1, "echo", 1), rig::call(2, "rm", 1), rig::call(3, "echo", 1)].into_iter());
    let denied = |s: &State| s.rows().any(|r| r.outcome == Some(Outcome::Denied));
    watch_until("the denied call", &inbox, &mut state, |s| denied(s) && s.rows().all(|r| !r.is_running()));
    client.end();
    to_the_end(&inbox, &mut state);
    assert_eq!(state.rows().cloned().collect::<Vec<_>>(), receipts(&rig));
    let view = state.sessions().values().next().unwrap();
    assert_eq!((view.totals.started, view.totals.finished, view.totals.denied), (3, 3, 1));
}
