//! MCP Flight Recorder: evidence for every tool call an agent makes.
//!
//! The crate sits between an MCP client and an unmodified MCP server, passes every byte through untouched and turns the
//! session into receipts, a hash chain and a signed proof pack that anyone can verify offline.
//!
//! | room | owns | must not know |
//! |---|---|---|
//! | [`model`] | plain data on disk: receipts, events, ledger, `session.json` | how it comes about |
//! | [`canon`] | strict JSON scan, RFC 8785 canonical form, digests | MCP, files |
//! | [`policy`] | policy files, and what they say of a call | relays, recording, terminals |
//! | [`pack`] | keys, building, signing, verifying and explaining packs | relays, terminals |
//! | [`live`] | the live socket, who is found on it, the reducer behind every screen | relays, terminals |
//! | [`demo`] | a small MCP server, a client and a script for them | recording, packs, terminals |
//! | [`history`] | the index over all sessions of this user | the truth: it is rebuilt from the journals |
//! | [`report`] | pages for a browser | how their content comes about |
//! | [`cli`] | arguments, printing, exit codes | formats |
#![warn(clippy::pedantic)]
#![allow(
    clippy::module_name_repetitions,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::doc_markdown,
    clippy::similar_names,
    clippy::too_many_lines,
    clippy::struct_excessive_bools
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::manual_is_multiple_of,
        clippy::duration_suboptimal_units
    )
)]

pub mod canon;
pub mod cli;
pub mod demo;
pub mod error;
pub mod files;
pub mod filter;
pub mod guard;
pub mod history;
pub mod live;
pub mod model;
pub mod pack;
pub mod paths;
pub mod policy;
pub mod print;
pub mod proxy;
pub mod record;
pub mod relay;
pub mod report;
#[allow(unsafe_code)]
pub mod sys;
pub mod text;
pub mod tui;
