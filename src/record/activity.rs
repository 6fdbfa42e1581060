//! The calls that are still in flight in a session, for the thread that ends the session.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// Written by the recorder's thread, read by the thread that ends the session.
#[derive(Debug)]
pub struct Activity {
    /// Whether `in_flight` is wanted: it is counted only then, because counting takes time.
    pub asked: AtomicBool,
    /// Number of requests of the client that wait for their answers.
    pub in_flight: AtomicU64,
    /// Stream offset up to which the client has read the output of the server.
    pub written: AtomicU64,
    /// Stream offset up to which the client has sent anything.
    pub said: AtomicU64,
}

impl Activity {
    /// It was not counted, or cannot be.
    pub const UNKNOWN: u64 = u64::MAX;
}

impl Default for Activity {
    fn default() -> Self {
        let in_flight = AtomicU64::new(Self::UNKNOWN);
        Self { asked: AtomicBool::new(false), in_flight, written: AtomicU64::new(0), said: AtomicU64::new(0) }
    }
}
