//! What is left when things go wrong: killed proxies, full disks, torn files, crowds and bad ends, with real processes.
//!
//! The server and the client are this binary's own; each writes down exactly what it received. `ASSAY_KILLS` sets how many
//! times the proxy is killed (default 100), `ASSAY_ENDS=all` plays every end of a session, `ASSAY_VERSIONS=all` forges
//! every later version of every format. Feature `interop` adds the tests that need `strace` or root.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod again;
#[cfg(feature = "interop")]
mod approvals;
mod checkpoints;
mod crowd;
mod damage;
mod disk;
mod ends;
mod fills;
mod flood;
mod foreign;
mod http;
mod junk;
mod kills;
mod lifecycle;
#[cfg(target_os = "linux")]
mod limits;
mod meddled;
mod prune;
mod silent;
mod steps;
#[cfg(feature = "interop")]
mod strace;
mod table;
mod tails;
mod versions;
mod written;

assay_support::server!();
