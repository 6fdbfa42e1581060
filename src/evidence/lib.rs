//! The format of the evidence, and what it rests on: strict JSON, plain data on disk, text made visible.
//!
//! Whoever writes or reads evidence needs this crate; it needs neither a terminal, nor a database, nor a relay.
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
pub mod lines;
pub mod model;
pub mod numbers;
pub mod plain;
#[allow(unsafe_code)]
mod sha256;
pub mod text;
