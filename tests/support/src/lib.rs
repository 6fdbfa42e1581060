//! What tests and benchmarks share. `tests/README.md` says what to take for what.
//!
//! Unit tests of the library that use this see it through another copy of the library than the one under test: paths,
//! strings and numbers pass between the two, types of `assay` do not.

pub mod alone;
pub mod check;
pub mod drift;
pub mod forge;
pub mod guard;
pub mod peer;
pub mod recording;
pub mod rig;
pub mod second;
pub mod sessions;
pub mod sized;
pub mod surface;
pub mod svg;
pub mod tty;
