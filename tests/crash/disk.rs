//! Disks that are full, full again, or cannot be written at all: the session goes on, and what is missing is said.
//!
//! A limit on file sizes stands in for a full disk: it needs no privileges, and cuts a write in the middle as a full disk
//! does. The `interop` tests do the same with a file system that is really full.

use assay::{model::EventKind, pack::verify::Completeness};
use assay_support::{
    check::{self, Crossed, Session},
    rig::{Client, INITIALIZE, LIMIT, Rig, call, files, rig, until},
};
use rustix::process::{Pid, Resource, Rlimit};
use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, time::Duration};

/// The longest that a client may wait for a small answer, whatever the disk does. The machine may be busy.
const STALL: Duration = Duration::from_millis(2500);

fn begin(flags: &[&str]) -> (Rig, Client) {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(flags));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
    rig.await_events(13);
    (rig, client)
}

/// From now on no file of the proxy can be longer than `bytes`.
fn limit(client: &Client, bytes: Option<u64>) {
    let pid = Pid::from_child(&client.child);
    rustix::process::prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
}

/// Only a hundred bytes more fit: the next write is cut in the middle of a line.
fn fill(rig: &Rig, client: &Client) {
    let len = fs::metadata(&rig.segments()[0]).unwrap().len();
    limit(client, Some(len + 100));
}

fn only(rig: &Rig) -> Session {
    let mut sessions = check::sessions(rig);
    assert_eq!(sessions.len(), 1);
    sessions.remove(0)
}

fn small_calls(from: u64, n: u64) -> impl Iterator<Item = String> {
    (from..from + n).map(|i| call(i, "echo", i))
}

/// Every answer is the one that the server gave, in order.
fn assert_answers(client: &Client, last: u64) {
    let got = client.got();
    let ids: Vec<u64> = got
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice::<serde_json::Value>(l).unwrap()["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (0..=last).collect::<Vec<_>>());
}

#[test]
fn what_a_short_outage_of_the_disk_held_back_is_written_afterwards() {
    let (rig, mut client) = begin(&[]);
    fill(&rig, &client);
    let longest = client.converse(small_calls(4, 40));
    assert!(longest < STALL, "{longest:?}");
    client.await_said("warning: writing evidence");
    limit(&client, None);
    client.converse(small_calls(44, 2));
    rig.await_events(13 + 4 * 42);
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert_answers(&client, 45);
    check::settled(&rig);
    let session = only(&rig);
    assert_eq!((session.doc.counts.calls, session.completeness), (45, Completeness::Complete));
    check::evidence(&[session], &Crossed::of(&rig, &client));
}

/// Results with content of nearly 1 MiB: more evidence than is kept in memory, or, with enough of them, in the capture.
fn flood(client: &mut Client, from: u64, calls: u64) -> u64 {
    client.converse((from..from + calls).map(|i| call(i, "big", 1_000_000)));
    from + calls
}

/// More than fits into memory and the capture.
const MANY: u64 = 85;

#[test]
fn a_long_outage_of_the_disk_leaves_a_gap_that_is_in_the_chain_a_receipt_and_the_exit_code() {
    let (rig, mut client) = begin(&["--store-results"]);
    fill(&rig, &client);
    // However far the recorder is behind, this cannot all be kept until the disk has room again.
    let next = flood(&mut client, 4, MANY);
    client.converse(small_calls(next, 5));
    limit(&client, None);
    client.converse(small_calls(next + 5, 1));
    until("the gap", || fs::read_to_string(&rig.segments()[0]).unwrap().contains("recorder_gap").then_some(()));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    assert_answers(&client, next + 5);
    assert!(client.said().contains("evidence is missing"), "{}", client.said());
    check::settled(&rig);
    let session = only(&rig);
    assert!(session.count(EventKind::RecorderGap) > 0);
    assert!(session.receipts.iter().any(|r| r["type"] == "mcp.recorder_gap"));
    assert!(session.doc.counts.missed > 0 && session.doc.counts.missed_bytes > 0);
    assert_eq!(session.completeness, Completeness::Incomplete);
}

#[test]
fn a_disk_that_stays_full_to_the_end_is_made_up_for_by_recover() {
    let (rig, mut client) = begin(&[]);
    fill(&rig, &client);
    let longest = client.converse(small_calls(4, 40));
    assert!(longest < STALL, "{longest:?}");
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    assert_answers(&client, 43);
    assert!(client.said().contains("assay recover"), "{}", client.said());
    let sessions = check::recovered(&rig, &Crossed::of(&rig, &client));
    assert_eq!(sessions[0].doc.counts.calls, 43);
}

#[test]
fn what_was_let_go_of_while_the_disk_stayed_full_is_a_gap_after_recover() {
    let (rig, mut client) = begin(&["--store-results"]);
    fill(&rig, &client);
    let next = flood(&mut client, 4, MANY);
    client.converse(small_calls(next, 3));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    assert_answers(&client, next + 2);
    let sessions = check::recovered(&rig, &Crossed::damaged());
    assert!(sessions[0].count(EventKind::RecorderGap) > 0);
    assert!(sessions[0].doc.counts.missed_bytes > 0);
}

/// Arguments that run a command as a user who is not root, and that user's id; nothing if we are not.
fn unprivileged() -> (&'static [&'static str], Option<u32>) {
    const NOBODY: u32 = 65534;
    match rustix::process::geteuid().is_root() {
        true => (&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], Some(NOBODY)),
        false => (&[], None),
    }
}

#[test]
fn an_audit_directory_that_cannot_be_written_costs_the_evidence_and_not_the_session() {
    let rig = rig!();
    fs::create_dir(&rig.audit).unwrap();
    fs::create_dir(rig.root.join("home")).unwrap();
    fs::create_dir(rig.root.join("logs")).unwrap();
    let (wrapper, user) = unprivileged();
    fs::set_permissions(&rig.audit, fs::Permissions::from_mode(0o555)).unwrap();
    for dir in ["home", "run", "logs", ""] {
        std::os::unix::fs::chown(rig.root.join(dir), user, user).unwrap();
    }
    let mut command = rig.wrapped(wrapper, &[], "");
    command.env("CRASH_SERVER_LOG", rig.root.join("logs/server.log"));
    let mut client = Client::start(command);
    let longest = client.converse(std::iter::once(INITIALIZE.to_owned()).chain(small_calls(1, 20)));
    assert!(longest < LIMIT, "{longest:?}");
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    assert_answers(&client, 20);
    let said = client.said();
    assert!(said.contains("warning: the audit directory cannot be used"), "{said}");
    assert!(said.contains("nothing of this session was recorded"), "{said}");
    assert_eq!(files(&rig.audit, |_| true), Vec::<std::path::PathBuf>::new());
    assert_eq!(files(&rig.root.join("run/assay"), |_| true), Vec::<std::path::PathBuf>::new());
}

/// User and system time of the proxy, in ticks of 10 ms.
fn ticks(client: &Client) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", client.child.id())).unwrap();
    stat.rsplit(')').next().unwrap().split(' ').skip(12).take(2).map(|t| t.parse::<u64>().unwrap()).sum()
}

/// How the session ends whose large message has no room.
#[derive(Debug, Clone, Copy)]
enum Finale {
    ClientLeaves,
    Terminated,
    RoomThenClientLeaves,
    Killed,
}

/// No file of the proxy may grow beyond what the segment has and some more: small evidence fits, a spool does not. The
/// message pauses in the middle, or is longer than the capture.
fn large_message(pauses: bool, finale: Finale) {
    let (rig, mut client) = begin(&[]);
    let len = fs::metadata(&rig.segments()[0]).unwrap().len();
    limit(&client, Some(len + 300_000));
    let size = if pauses { 24 << 20 } else { 90 << 20 };
    let pad = format!("\"n\":4,\"pad\":\"{}\"", "x".repeat(size));
    let request = call(4, "echo", 4).replace("\"n\":4", &pad) + "\n";
    let (before, mut stdin) = (client.lines(), client.stdin.take().unwrap());
    let (first, second) = request.as_bytes().split_at(size * 3 / 4);
    stdin.write_all(first).unwrap();
    if pauses {
        client.await_said("warning: spooling a large message");
    }
    stdin.write_all(second).unwrap();
    client.stdin = Some(stdin);
    client.await_lines(before + 1);
    let longest = client.converse(small_calls(5, 2));
    assert!(longest < STALL, "{longest:?}");
    client.await_said("warning: spooling a large message");
    // It may still be busy with what has come; then it waits, and does not spin.
    until("the recorder to rest", || {
        let before = ticks(&client);
        std::thread::sleep(Duration::from_secs(1));
        (ticks(&client) - before < 40).then_some(())
    });
    if let Finale::Terminated = finale {
        client.signal(rustix::process::Signal::TERM);
    }
    if let Finale::RoomThenClientLeaves = finale {
        limit(&client, None);
        rig.await_events(if pauses { 25 } else { 22 });
    }
    let started = std::time::Instant::now();
    if let Finale::Killed = finale {
        client.kill();
        rig.await_silence();
        // An answer whose request was given up is recorded as one that answers nothing.
        let all = if pauses { Crossed::of(&rig, &client) } else { Crossed::damaged() };
        let sessions = check::recovered(&rig, &all);
        assert_eq!(sessions[0].completeness, Completeness::Incomplete);
        return;
    }
    let status = client.end();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let out = rig.recover();
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    check::settled(&rig);
    let session = only(&rig);
    if let (Finale::RoomThenClientLeaves, true) = (finale, pauses) {
        assert_eq!(status.code(), Some(0), "{}", client.said());
        assert_eq!((session.doc.counts.calls, session.completeness), (6, Completeness::Complete));
        check::evidence(&[session], &Crossed::of(&rig, &client));
        return;
    }
    assert_eq!(status.code(), Some(2), "{}", client.said());
    assert_eq!(session.completeness, Completeness::Incomplete);
    // Where there is room again, what has not been missed by then is recorded.
    let least = if let Finale::RoomThenClientLeaves = finale { 0 } else { size as u64 };
    assert!(session.doc.counts.missed_bytes > least);
    assert!(session.count(EventKind::RecorderGap) > 0);
}

#[test]
fn a_message_that_no_spool_has_room_for_is_a_gap_and_keeps_nobody() {
    for finale in [Finale::ClientLeaves, Finale::Terminated, Finale::RoomThenClientLeaves, Finale::Killed] {
        for pauses in [true, false] {
            eprintln!("{finale:?} {pauses}");
            large_message(pauses, finale);
        }
    }
}

#[test]
fn a_message_that_no_spool_has_room_for_on_a_disk_that_has_none_for_anything() {
    let (rig, mut client) = begin(&[]);
    fill(&rig, &client);
    client.converse([call(4, "big", 20 << 20), call(5, "big", 70 << 20), call(6, "echo", 6)].into_iter());
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    let sessions = check::recovered(&rig, &Crossed::damaged());
    assert_eq!(sessions[0].completeness, Completeness::Incomplete);
}
