//! The audit events of a session.

use super::{Entries, Entry, LineAt};
use crate::model::AuditEvent;
use serde::Deserialize;

/// Audit events: a segment of an audit directory, or `audit_log.jsonl` of a pack.
pub type Events = Entries<EventAt>;

/// An audit event in its place.
#[derive(Debug, Clone)]
pub struct EventAt {
    /// Number of its line, from 0.
    pub number: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// The event; `None` if the line is none that this version knows.
    pub event: Option<Box<AuditEvent>>,
}

impl Entry for EventAt {
    fn number(line: &[u8]) -> Option<u64> {
        #[derive(Deserialize)]
        struct Seq {
            event_seq: u64,
        }
        serde_json::from_slice::<Seq>(line).ok().map(|s| s.event_seq)
    }

    fn of(line: &LineAt<'_>) -> Self {
        let event = line.bytes.and_then(|b| serde_json::from_slice::<AuditEvent>(b).ok()).map(Box::new);
        Self { number: line.number, offset: line.offset, len: line.len, event }
    }
}
