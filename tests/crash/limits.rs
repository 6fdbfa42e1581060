//! A system that has not enough for the recorder: the session goes on, or a guard refuses, and either is said.

use assay_support::{
    check,
    rig::{Client, call, files, rig},
};
use std::fs;

/// Limits of a shell, from what nothing can begin with to what is enough for a small capture.
const LIMITS: [&str; 10] =
    ["-f 0", "-f 1", "-f 100", "-f 1000", "-f 4000", "-f 20000", "-n 8", "-n 12", "-n 16", "-n 20"];

fn play(limit: &str, guard: bool) {
    let rig = rig!();
    let policy = if guard { "--profile guard --policy policy.yaml" } else { "" };
    fs::write(rig.root.join("policy.yaml"), "version: \"1\"\ndefault: allow\n").unwrap();
    let serve = "while read -r line; do echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'; done";
    let script = format!("ulimit {limit}; exec \"$0\" mcp-proxy --audit-dir audit {policy} -- sh -c \"$1\"");
    let mut command = rig.shell(&script);
    command.arg(serve);
    let mut client = Client::start(command);
    client.converse(std::iter::once(call(1, "echo", 1)));
    let status = client.end();
    let (said, got) = (client.said(), String::from_utf8(client.got()).unwrap());
    rig.await_silence();
    let packs = files(&rig.audit.join("packs"), |name| name.starts_with("proof_pack_"));
    let case = format!("{limit}, guard: {guard}: {status}: {got}{said}");
    let refused = got.contains("-32001");
    assert!(refused || got.contains("result"), "{case}");
    if packs.is_empty() {
        assert_eq!(status.code(), Some(2), "{case}");
        assert_eq!(refused, guard, "{case}");
        assert!(said.contains("nothing of this session was recorded"), "{case}");
        assert_eq!(files(&rig.audit.join("live"), |name| name.ends_with(".json")), Vec::<std::path::PathBuf>::new());
        let rings = files(&rig.root.join("run/assay"), |name| name.contains('.'));
        assert!(rings.is_empty(), "{rings:?}: {case}");
    } else {
        assert_eq!(status.code(), Some(0), "{case}");
        assert!(!refused, "{case}");
        assert_eq!(check::sessions(&rig).len(), 1);
    }
}

#[test]
fn whatever_the_system_lacks_the_session_goes_on_and_a_guard_refuses() {
    for limit in LIMITS {
        for guard in [false, true] {
            play(limit, guard);
        }
    }
}

#[test]
fn a_smaller_capture_is_made_where_files_must_not_be_longer() {
    let rig = rig!();
    let script = "ulimit -f 4000; exec \"$0\" mcp-proxy --audit-dir audit -- sh -c 'while read -r line; do echo \"$line\"; done'";
    let mut client = Client::start(rig.shell(script));
    client.converse((0..50).map(|n| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"{n}\"}}")));
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    assert_eq!(check::sessions(&rig).len(), 1);
}

#[test]
fn signals_reach_a_server_that_is_not_recorded() {
    let rig = rig!();
    let script = "ulimit -f 0; exec \"$0\" mcp-proxy --audit-dir audit -- \
                  sh -c 'trap \"echo ended; exit 0\" INT; echo ready; while :; do sleep 0.01; done'";
    let mut client = Client::start(rig.shell(script));
    client.await_lines(1);
    client.signal(rustix::process::Signal::INT);
    client.wait();
    assert_eq!(client.end().code(), Some(130), "{}", client.said());
    assert!(String::from_utf8(client.got()).unwrap().ends_with("ended\n"));
}
