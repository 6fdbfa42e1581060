//! Proof packs: build, sign, verify, explain.

pub mod analysis;
pub mod build;
pub mod calls;
pub mod ci;
pub mod claims;
pub mod diff;
pub mod explain;
pub mod keys;
pub mod lock;
pub mod publish;
pub mod report;
pub mod sign;
pub mod staging;
pub mod tally;
pub mod verify;
