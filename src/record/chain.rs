//! The hash chain of one segment, as it grows.

use crate::model::{
    AuditEvent, Detail, Direction, EventKind, GENESIS, InvocationId, RpcId, SessionId, Transport, WallTime, event,
};

/// The content of a new event; the chain adds sequence number and hashes.
pub struct Entry<'a> {
    /// Wall clock when the line was written.
    pub at: WallTime,
    /// Monotonic microseconds since the session began.
    pub mono_us: u64,
    /// The direction of the message.
    pub direction: Option<Direction>,
    /// Method of the JSON-RPC message; `None` for events without one.
    pub method: Option<&'a str>,
    /// Id of the JSON-RPC message; `None` for events without one.
    pub rpc_id: Option<&'a RpcId>,
    /// The request this belongs to.
    pub invocation: Option<InvocationId>,
    /// Length and SHA-256 (hex) of the message.
    pub wire: Option<&'a Wire>,
    /// What happened, and the members of that kind of event.
    pub detail: Detail,
}

/// A message's bytes, as evidence holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    /// Length without line terminator.
    pub bytes: u64,
    /// SHA-256 of these bytes, lower-case hex.
    pub sha256: String,
}

/// The growing end of a chain.
#[derive(Debug, Clone)]
pub struct Chain {
    session: SessionId,
    transport: Transport,
    version: u32,
    next_seq: u64,
    head: String,
    first: String,
}

impl Chain {
    /// An empty chain whose first event will link to `prev_hash`.
    #[must_use]
    pub fn new(session: SessionId, transport: Transport, prev_hash: String) -> Self {
        let version = event::version_of(transport, false);
        Self { session, transport, version, next_seq: 0, head: prev_hash, first: GENESIS.to_owned() }
    }

    /// A chain that continues after `next_seq` events, the first of which has hash `first` and the last `head`.
    #[must_use]
    pub fn resume(session: SessionId, transport: Transport, next_seq: u64, first: String, head: String) -> Self {
        Self { session, transport, version: event::version_of(transport, false), next_seq, head, first }
    }

    /// The same, for a recording that a server makes of itself.
    #[must_use]
    pub fn of_server(self) -> Self {
        Self { version: event::SERVER_EVENTS, ..self }
    }

    /// The same, for a session that is compared with decisions about the server's surface.
    #[must_use]
    pub fn judged(self) -> Self {
        Self { version: event::SURFACE_EVENTS, ..self }
    }

    /// The version of its events.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Number of events so far.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.next_seq
    }

    /// Whether the chain has no event.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next_seq == 0
    }

    /// Hash of the last event.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Hash of the first event.
    #[must_use]
    pub fn first(&self) -> &str {
        &self.first
    }

    /// Adds an event, appends its line and a newline to `out`.
    ///
    /// # Errors
    /// A detail that JSON cannot hold; the types of [`event::detail`] have none.
    pub fn append(&mut self, entry: Entry<'_>, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let kind = entry.detail.kind();
        let mut record = AuditEvent {
            at: entry.at,
            direction: entry.direction,
            event: kind,
            detail: entry.detail,
            event_seq: self.next_seq,
            hash: String::new(),
            invocation_id: entry.invocation,
            method: entry.method.map(ToOwned::to_owned),
            mono_us: entry.mono_us,
            prev_hash: self.head.clone(),
            rpc_id: entry.rpc_id.cloned(),
            session_id: self.session,
            transport: self.transport.as_str().to_owned(),
            v: if kind == EventKind::MalformedLines { event::JUNK_EVENTS } else { self.version },
            wire_bytes: entry.wire.map(|w| w.bytes),
            wire_sha256: entry.wire.map(|w| w.sha256.clone()),
        };
        out.extend_from_slice(&record.seal()?);
        out.push(b'\n');
        if self.next_seq == 0 {
            self.first.clone_from(&record.hash);
        }
        self.next_seq += 1;
        self.head = record.hash;
        Ok(())
    }
}
