//! What is tested from outside, but for what has a target of its own: attacks, crashes, the guard, the dashboard and real peers.
//!
//! All of it is one program, whose tests run as threads of one process. One that measures or limits its process starts another
//! for that (`assay_support::alone`).
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod action;
mod assay_verify;
mod canon_grammar;
mod canon_oracle;
mod canon_vectors;
mod cleartext;
mod cli_analyze;
mod cli_config;
mod cli_diff;
mod cli_export;
mod cli_findings;
mod cli_gateway;
mod cli_habits;
mod cli_keys;
mod cli_ledger;
mod cli_packs;
mod cli_policy;
mod cli_prove;
mod cli_prune;
mod cli_replay;
mod cli_run;
mod cli_surface;
mod cli_verifier;
mod cli_verify;
mod cli_verify_dir;
mod cli_witness;
mod cli_wrap;
mod cli_wrap_hostile;
mod cli_wrap_left;
mod cli_wrap_remote;
mod demo;
mod docs;
mod honest;
mod http_evidence;
mod live;
mod pack_build;
mod picture;
mod planted;
mod redact;
mod relay_child;
mod relay_crash;
mod relay_flat;
mod relay_log;
mod relay_stdio;
mod sessions;
mod surface_evidence;
mod walls;
mod wycheproof;

assay_support::server!();
