//! Proof packs: build, sign, verify, explain.

pub mod claims;
pub mod lock;
pub mod verify;
