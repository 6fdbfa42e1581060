//! A server writes lines that are no messages. They are told of together, and nothing of them is lost or said twice when the proxy is
//! killed before it has said it, or after.

use assay::model::{Detail, EventKind, sha256_hex};
use assay_support::{
    check,
    rig::{Client, Rig, files, rig, until},
};
use std::fs;

const LINES: &str = "starting\n[INFO] listening\n\n{\"level\":30}\n";

fn proxy(rig: &Rig) -> Client {
    rig.file("lines", LINES);
    let client = Client::start(rig.program(&["mcp-proxy", "--audit-dir", "audit", "--", "sh", "-c", "cat lines -"]));
    until("the lines", || (client.got().len() == LINES.len()).then_some(()));
    client
}

/// Kills the proxy and recovers the session; what is told of the lines.
fn killed(rig: &Rig, mut client: Client) {
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    rig.await_silence();
    assert!(rig.recover().status.code().is_some());
    let sessions = check::sessions(rig);
    let [session] = &sessions[..] else { panic!("{}", sessions.len()) };
    assert_eq!(session.doc.counts.malformed, 3);
    assert_eq!(session.count(EventKind::Malformed), 0);
    let all: Vec<_> = session.events.iter().filter(|e| e.event == EventKind::MalformedLines).collect();
    let [event] = all[..] else { panic!("{all:?}") };
    let Detail::MalformedLines(d) = &event.detail else { panic!("{event:?}") };
    let whole = LINES.trim_end();
    assert_eq!((d.lines, d.offset, event.wire_bytes), (3, 0, Some(whole.len() as u64)));
    assert_eq!(event.wire_sha256.as_deref(), Some(&*sha256_hex(whole.as_bytes())));
}

#[test]
fn lines_that_no_event_tells_of_yet_are_in_the_capture() {
    let rig = rig!();
    let client = proxy(&rig);
    killed(&rig, client);
}

#[test]
fn lines_are_told_of_in_time_and_not_once_more_after_a_crash() {
    let rig = rig!();
    let client = proxy(&rig);
    until("the event", || {
        let segment = files(&rig.audit.join("audit"), |name| name.starts_with("segment_")).pop()?;
        fs::read_to_string(segment).ok()?.contains("malformed_lines").then_some(())
    });
    killed(&rig, client);
}
