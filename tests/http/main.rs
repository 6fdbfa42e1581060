//! The listener between a client and an upstream that are scripts over raw sockets: what either reads is compared with
//! what it reads without the listener.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod bytes;
mod cli;
mod ends;
mod faults;
mod front;
mod gateway;
mod gateway_api;
mod gateway_command;
mod gateway_pages;
mod guard;
mod h2;
mod leaks;
mod load;
mod memory;
mod probe;
mod process;
mod review;
mod rig;
mod secrets;
mod surface;
mod surface_evidence;
