//! Guard mode with real processes, and against a reader more lenient than any server.
//!
//! The server is this binary's own and writes down exactly what it received; [`assay_support::guard::lenient`] then looks for calls in that.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod bypass;
mod faults;
mod forged;
mod http;
mod kills;
mod lenient_server;
mod listings;
mod message;
mod outlet;
mod policy;
mod property;
mod session;
mod surface;

use assay_support::peer;

#[test]
#[ignore = "this is the server that the other tests start"]
fn server() {
    match (peer::log(), std::env::var_os("GUARD_SERVER")) {
        (Some(log), Some(_)) => lenient_server::serve(&log),
        _ => peer::serve_if_asked(),
    }
}
