//! What is still under way in a session: the thread that ends the session must know it.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Written by the recorder's thread, read by the thread that ends the session.
#[derive(Debug)]
pub struct Activity {
    /// Set if `in_flight` is wanted; counting costs something.
    pub asked: AtomicBool,
    /// The client's requests that wait for their answers.
    pub in_flight: AtomicU64,
    /// Stream offset up to which the client has taken what the server said.
    pub written: AtomicU64,
    /// Stream offset up to which the client has said something.
    pub said: AtomicU64,
}

impl Activity {
    /// Nobody has counted, or nobody can.
    pub const UNKNOWN: u64 = u64::MAX;
}

impl Default for Activity {
    fn default() -> Self {
        let in_flight = AtomicU64::new(Self::UNKNOWN);
        Self { asked: AtomicBool::new(false), in_flight, written: AtomicU64::new(0), said: AtomicU64::new(0) }
    }
}
