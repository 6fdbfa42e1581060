//! The bridge between a client over stdio and scripted HTTP servers.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod loss;
mod old;
mod rig;
mod streams;
mod ways;
mod wired;
mod words;
