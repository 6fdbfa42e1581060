//! MCP Flight Recorder: evidence for every tool call an agent makes.
//!
//! The crate sits between an MCP client and an unmodified MCP server, passes every byte through untouched and turns the
//! session into receipts, a hash chain and a signed proof pack that anyone can verify offline.
//!
//! | room | owns |
//! |---|---|
//! | [`cli`] | arguments, printing, exit codes |
//! | [`tui`] | the dashboard |
//! | [`gateway`] | several servers behind one listener, each under a path of its own |
//! | [`host`] | a command as a server over HTTP |
//! | [`proxy`] | one session from spawn to exit code |
//! | [`bridge`] | the server's place in a session over stdio, for a server that is reached over HTTP |
//! | [`probe`] | asks a server what it offers, as a client would |
//! | [`demo`] | a small MCP server, a client and a script for them |
//! | [`export`] | sessions in formats of others |
//! | [`report`] | pages for a browser |
//! | [`replay`] | recordings that are played again: to a client, or to a server |
//! | [`receipts`] | receipts that a server writes of itself |
//! | [`witness`] | witnesses of logs: one that remembers those of others, and the questions to those that remember ours |
//! | [`seal`] | from ended evidence to a signed pack; sessions that died |
//! | [`clients`] | configurations of MCP clients, and how one entry of them is changed |
//! | [`history`] | the index over all sessions of this user, which is rebuilt from journals and packs |
//! | [`prune`] | sessions that are no longer wanted: named in the ledger, then removed |
//! | [`live`] | the live socket, how it is found, and the fold that every screen uses |
//! | [`guard`] | the strict reading, verdicts before anything passes |
//! | [`policy`] | policy files, and what they say of a call |
//! | [`redact`] | rules that take something out of contents before they are stored |
//! | [`verdict`] | what a policy says of calls, in the words of the evidence |
//! | [`approvals`] | decisions about the surfaces of servers: kept, signed, brought from elsewhere |
//! | [`pack`] | keys, building, signing, comparing and explaining packs; [`pack::verify`], the verifier |
//! | [`record`] | frames, envelope, correlation, chain, ledger, recovery |
//! | [`surface`] | what a server offers: listings from pages, items, fingerprint |
//! | [`relay`] | bytes across, child process, capture |
//! | [`model`] | plain data on disk: receipts, events, ledger, `session.json` |
//! | [`canon`] | strict JSON scan, RFC 8785 canonical form, digests |
//! | [`sse`] | event streams (`text/event-stream`) |
//! | [`sys`] | the unsafe code |
//!
//! Each uses only rooms below it; `docs/architecture.md` says which, and what they must not know.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod approvals;
#[cfg(feature = "proxy")]
pub mod bridge;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "tui")]
pub mod clients;
#[cfg(feature = "history")]
pub mod db;
#[cfg(feature = "cli")]
pub mod demo;
pub mod error;
#[cfg(feature = "cli")]
pub mod export;
mod failure;
pub mod files;
pub mod filter;
#[cfg(feature = "cli")]
pub mod gateway;
pub mod guard;
#[cfg(feature = "history")]
pub mod history;
#[cfg(feature = "proxy")]
pub mod host;
pub mod live;
#[cfg(feature = "tui")]
pub mod operate;
pub mod pack;
pub mod paths;
#[cfg(feature = "policy")]
pub mod policy;
pub mod print;
#[cfg(feature = "proxy")]
pub mod probe;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "proxy")]
pub mod prune;
pub mod receipts;
pub mod record;
#[cfg(feature = "policy")]
pub mod redact;
pub mod relay;
#[cfg(feature = "cli")]
pub mod replay;
#[cfg(feature = "cli")]
pub mod report;
pub mod seal;
pub mod sse;
pub mod surface;
#[allow(unsafe_code)]
pub mod sys;
#[cfg(feature = "tui")]
pub mod tui;
#[cfg(feature = "policy")]
pub mod verdict;
#[cfg(feature = "proxy")]
pub mod witness;
pub mod yaml;
#[cfg(feature = "tui")]
pub mod zone;

pub use assay_evidence::{canon, lines, model, note, numbers, text, tiles, tree};
