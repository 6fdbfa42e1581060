//! The format of the evidence, and what it rests on: strict JSON, plain data on disk, text made visible.
//!
//! Everything that writes or reads evidence needs this crate. It needs no terminal, no database and no relay.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod canon;
pub mod lines;
pub mod model;
pub mod note;
pub mod numbers;
pub mod plain;
#[allow(unsafe_code)]
mod sha256;
pub mod text;
pub mod tiles;
pub mod tree;
