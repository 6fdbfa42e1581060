//! Proof packs: build, sign, verify, explain.

pub mod keys;
pub mod publish;
#[doc(hidden)]
pub mod testkit;
