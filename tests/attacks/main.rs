//! Attacks on packs and directories: each is a row of data with the verdict that it must get.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anchors;
mod bits;
mod checkpoints;
mod demands;
mod directory;
mod filesystem;
mod junk;
mod lies;
mod proofs;
mod rows;
mod surface;
mod versions;
