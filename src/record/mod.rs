//! From bytes that crossed to evidence on disk: framing, correlation, the hash chain, receipts, and recovery.
//!
//! Everything here works on what the capture holds and on files; it does not know where the bytes come from and never
//! is on the forwarding path.
//!
//! [`engine`] takes messages out of a [`source`] (over stdio: [`rings`]) and gives each to its [`session`]. That has
//! the [`recorder`] turn them into lines, which the [`store`] puts on disk; only then does the source forget the bytes.

pub mod activity;
pub mod bridged;
pub mod broadcast;
pub mod card;
pub mod chain;
pub mod checkpoint;
pub mod content;
pub mod correlate;
pub mod engine;
pub mod envelope;
pub mod exchange;
pub mod frames;
pub mod health;
pub mod http;
pub mod judge;
pub mod lane;
pub mod ledger;
pub mod library;
pub mod log;
pub mod mark;
pub mod opening;
pub mod recorder;
pub mod recover;
pub mod redact;
pub mod rings;
pub mod rollback;
pub mod rulings;
pub mod session;
pub mod sink;
pub mod source;
pub mod store;
pub mod stream;
pub mod surface;
pub mod witness;

use crate::model::SessionId;

/// The id of a new session.
///
/// # Errors
/// The system's random source failed.
pub fn new_session_id() -> Result<SessionId, getrandom::Error> {
    getrandom::u64().map(SessionId::from_bits)
}
