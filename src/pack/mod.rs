//! Proof packs: build, sign, verify, explain.

pub mod analysis;
pub mod build;
pub mod calls;
pub mod ci;
pub mod diff;
pub mod explain;
pub mod keys;
pub mod payloads;
pub mod prove;
pub mod report;
pub mod sign;
pub mod staging;
pub mod stored;
pub mod tally;
pub mod timeline;

pub use assay_verify::{self as verify, claims, lock};
