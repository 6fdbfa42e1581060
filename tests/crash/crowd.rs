//! Many proxies in one directory at once.

use assay::pack::verify::Completeness;
use assay_support::{
    check::{self, Crossed},
    rig::{Client, INITIALIZE, Rig, call, rig},
};

const CROWD: usize = 50;

/// Starts a crowd, lets everyone speak, ends everyone; returns what they said on stderr.
fn crowd(rig: &Rig) -> Vec<String> {
    let start = |n: usize| {
        let mut command = rig.proxy(&[]);
        command.env("CRASH_SERVER_LOG", rig.root.join(format!("server.{n}.log")));
        Client::start(command)
    };
    let mut clients: Vec<Client> = (0..CROWD).map(start).collect();
    for client in &mut clients {
        client.send(INITIALIZE);
        client.send(&call(1, "echo", 1));
    }
    for client in &clients {
        client.await_lines(2);
    }
    for client in &mut clients {
        client.stdin = None;
    }
    clients
        .iter_mut()
        .map(|client| {
            assert_eq!(client.end().code(), Some(0), "{}", client.said());
            client.said()
        })
        .collect()
}

#[test]
fn fifty_proxies_in_one_directory_make_one_chain() {
    let rig = rig!();
    crowd(&rig);
    check::settled(&rig);
    let sessions = check::sessions(&rig);
    assert_eq!(sessions.len(), CROWD);
    assert!(sessions.iter().all(|s| s.completeness == Completeness::Complete && s.doc.counts.calls == 1));
    // One key for all, made by whoever came first.
    // The start of each, its end, its pack.
    assert_eq!(check::ledger(&rig).len(), 3 * CROWD);
}

#[test]
fn of_fifty_proxies_that_start_beside_a_dead_session_one_recovers_it() {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    client.kill();
    let crossed = Crossed::of(&rig, &client);
    let said = crowd(&rig);
    let recovered = said.iter().filter(|s| s.contains("recovered proof pack")).count();
    assert!(recovered <= 1, "recovered {recovered} times");
    // A proxy that ended meanwhile may have left it half done.
    assert_eq!(rig.recover().status.code(), Some(0));
    check::settled(&rig);
    let sessions = check::sessions(&rig);
    assert_eq!(sessions.len(), CROWD + 1);
    assert_eq!(sessions.iter().filter(|s| s.doc.end_reason == "crashed").count(), 1);
    let of_the_dead: Vec<_> = sessions.into_iter().filter(|s| s.doc.end_reason == "crashed").collect();
    check::evidence(&of_the_dead, &crossed);
}
