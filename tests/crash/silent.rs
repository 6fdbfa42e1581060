//! The proxy is killed while a request that leaves no event waits for its answer, or right after that has come.

use assay::model::EventKind;
use assay_support::{
    check,
    rig::{Client, INITIALIZE, Rig, files, rig, until},
};
use std::fs;

const ANSWER: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"capabilities":{},"protocolVersion":"2025-06-18","serverInfo":{"name":"late","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;

/// A server that says nothing before the file `go` is there, and then `answer`.
fn proxy(rig: &Rig, answer: &str) -> Client {
    let server = format!("read a; while [ ! -e go ]; do sleep 0.02; done; echo '{answer}'; cat >/dev/null");
    Client::start(rig.program(&["mcp-proxy", "--audit-dir", "audit", "--", "sh", "-c", &server]))
}

/// Waits until the recorder has taken `initialize`, and a little longer: then it would have released it, too.
fn await_taken(rig: &Rig) {
    until("the client's name on the card", || {
        let card = files(&rig.audit.join("live"), |name| name.ends_with(".json")).pop()?;
        fs::read_to_string(card).ok()?.contains("crash-client").then_some(())
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
}

fn killed(rig: &Rig, mut client: Client) -> check::Session {
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    rig.await_silence();
    assert!(rig.recover().status.code().is_some());
    let mut sessions = check::sessions(rig);
    assert_eq!(sessions.len(), 1);
    sessions.remove(0)
}

fn with_more(more: &[&str]) -> [check::Session; 2] {
    [false, true].map(|answered| {
        let rig = rig!();
        let mut client = proxy(&rig, ANSWER);
        client.send(INITIALIZE);
        more.iter().for_each(|line| client.send(line));
        await_taken(&rig);
        if answered {
            fs::write(rig.root.join("go"), "").unwrap();
            until("the answer", || client.got().ends_with(b"}\n").then_some(()));
        }
        killed(&rig, client)
    })
}

#[test]
fn initialize_is_in_the_capture_until_its_answer_is_known() {
    // Alone, and with a request behind it that is on disk.
    for (more, captured) in [(&[] as &[&str], "1 message was read"), (&[LIST, PING], "3 messages were read")] {
        let [waiting, answered] = with_more(more);
        let notes = waiting.doc.recovery_notes.join("; ");
        assert!(notes.contains(captured), "{notes}");
        assert!(waiting.doc.server_info.is_none());
        assert_eq!(waiting.doc.client_info.unwrap().name, "crash-client");
        assert_eq!(answered.doc.server_info.as_ref().unwrap().name, "late");
        assert_eq!(answered.doc.protocol_version.as_deref(), Some("2025-06-18"));
        assert_eq!(answered.count(EventKind::Anomaly), usize::from(!more.is_empty()), "of the unanswered tools/list");
    }
}

#[test]
fn the_answer_to_a_ping_answers_it_after_a_crash() {
    let rig = rig!();
    let mut client = proxy(&rig, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    client.send(INITIALIZE);
    client.send(PING);
    await_taken(&rig);
    fs::write(rig.root.join("go"), "").unwrap();
    until("the answer", || client.got().ends_with(b"}\n").then_some(()));
    let session = killed(&rig, client);
    assert_eq!(session.count(EventKind::Anomaly), 0);
}
