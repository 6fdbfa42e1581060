//! From bytes that crossed to evidence on disk: framing, correlation, the hash chain, receipts, and recovery.
//!
//! Everything here works on what the capture holds and on files; it does not know where the bytes come from and never
//! stands on the forwarding path.
//!
//! A session is recorded by [`engine`], which takes messages out of the capture and gives them to the [`recorder`], which
//! turns them into lines, which the [`store`] puts on disk; only then does the capture forget the bytes.

pub mod broadcast;
pub mod card;
pub mod chain;
pub mod content;
pub mod correlate;
pub mod engine;
pub mod envelope;
pub mod frames;
pub mod health;
pub mod judge;
pub mod judgement;
pub mod lane;
pub mod ledger;
pub mod mark;
pub mod recorder;
pub mod recover;
pub mod rollback;
pub mod rulings;
pub mod store;
pub mod stream;
pub mod surface;

use crate::model::SessionId;

/// The id of a new session.
///
/// # Errors
/// The system's random source failed.
pub fn new_session_id() -> Result<SessionId, getrandom::Error> {
    getrandom::u64().map(SessionId::from_bits)
}
