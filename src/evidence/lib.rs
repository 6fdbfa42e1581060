//! The format of the evidence, and what it rests on: strict JSON, plain data on disk, text made visible.
//!
//! Whoever writes or reads evidence needs this crate; it needs neither a terminal, nor a database, nor a relay.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod canon;
pub mod lines;
pub mod model;
pub mod numbers;
pub mod plain;
#[allow(unsafe_code)]
mod sha256;
pub mod text;
