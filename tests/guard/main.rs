//! Guard mode with real processes, and against a reader more lenient than any server.
//!
//! The server is this binary's own and writes down exactly what it received; [`lenient`] then looks for calls in that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

mod bypass;
mod cases;
#[path = "../crash/check.rs"]
mod check;
mod faults;
#[path = "../attacks/forge.rs"]
mod forge;
mod forged;
mod kills;
mod lenient;
mod lenient_server;
mod oracle;
mod outlet;
#[path = "../crash/peer.rs"]
mod peer;
mod policy;
mod property;
#[path = "../crash/rig.rs"]
mod rig;
mod session;

#[test]
#[ignore = "this is the server that the other tests start"]
fn server() {
    if let Some(log) = std::env::var_os("CRASH_SERVER_LOG") {
        match std::env::var_os("GUARD_SERVER") {
            Some(_) => lenient_server::serve(log.as_ref()),
            None => peer::serve(log.as_ref()),
        }
    }
}
