//! The audit events of a session.

use super::{Pages, Progress};
use crate::{
    live::row::CallRow,
    model::{AuditEvent, EventKind, ReceiptId, WallTime},
};
use serde::Deserialize;
use std::{collections::BTreeMap, io, ops::Range, path::Path};

/// Events that are looked at from the beginning of a call on, and again from its end on.
const AROUND: u64 = 1 << 14;
/// How far the wall clock of an event may be behind that of one before it, milliseconds.
const SLACK_MS: i64 = 100;

/// Audit events: a segment of an audit directory, or `audit_log.jsonl` of a pack. An event's number is that of its line; in
/// a file that is as it should be, its `event_seq`.
#[derive(Debug, Clone)]
pub struct Events {
    pages: Pages,
}

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

/// The audit events of one call.
#[derive(Debug, Clone, Default)]
pub struct EventsOfCall {
    /// In the order of the file.
    pub events: Vec<EventAt>,
    /// Whether its beginning and, if it has ended, its end are among them. If not, the clock was set meanwhile, or they are
    /// further from it than is looked.
    pub whole: bool,
}

impl Events {
    /// Opens a file and begins to index it in the background. Its last events can be read at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Pages::open(path, Some(event_seq)).map(|pages| Self { pages })
    }

    /// The lines.
    #[must_use]
    pub const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// How many events there are: see [`Pages::len`].
    #[must_use]
    pub fn len(&self) -> u64 {
        self.pages.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How far the index is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.pages.progress()
    }

    /// Looks whether the file has grown: see [`Pages::refresh`].
    ///
    /// # Errors
    /// What the system says.
    pub fn refresh(&self) -> io::Result<()> {
        self.pages.refresh()
    }

    /// The events with these numbers, as far as they are there.
    ///
    /// # Errors
    /// What the system says.
    pub fn events(&self, range: Range<u64>) -> io::Result<Vec<EventAt>> {
        let mut events = Vec::new();
        self.pages.lines(range, &mut |line| {
            events.push(at(&line));
            true
        })?;
        Ok(events)
    }

    /// The exact bytes of an event, as they are hashed.
    ///
    /// # Errors
    /// What the system says.
    pub fn event_line(&self, number: u64) -> io::Result<Option<Vec<u8>>> {
        self.pages.line(number)
    }

    /// The events of a call, found by its times: those around its beginning and around its end.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_call(&self, row: &CallRow) -> io::Result<EventsOfCall> {
        let wanted = format!("\"invocation_id\":\"{}\"", row.invocation_id);
        let mut found = BTreeMap::new();
        let times = [row.requested_at, row.ended_at];
        for near in times.into_iter().flatten() {
            let from = self.pages.bisect(&time, &WallTime::from_millis(near.millis() - SLACK_MS))?;
            let Some(first) = self.pages.number_at(from)? else { continue };
            self.pages.lines(first..first.saturating_add(AROUND), &mut |line| {
                if line.bytes.is_some_and(|b| memchr::memmem::find(b, wanted.as_bytes()).is_some()) {
                    let event = at(&line);
                    if event.event.as_ref().is_some_and(|e| e.invocation_id == Some(row.invocation_id)) {
                        found.insert(line.number, event);
                    }
                }
                // More may come of one that runs.
                row.is_running() || !is_whole(&found, row)
            })?;
            if is_whole(&found, row) {
                break;
            }
        }
        let whole = is_whole(&found, row);
        Ok(EventsOfCall { events: found.into_values().collect(), whole })
    }
}

fn is_whole(found: &BTreeMap<u64, EventAt>, row: &CallRow) -> bool {
    let kind = |e: Option<&EventAt>| e.and_then(|e| e.event.as_ref()).map(|e| e.event);
    let begun = kind(found.values().next()) == Some(EventKind::RequestReceived);
    begun && (row.is_running() || found.values().next_back().is_some_and(binds))
}

/// Whether an event names the receipt of the call that it closes.
fn binds(e: &EventAt) -> bool {
    #[derive(Deserialize)]
    struct Binding {
        receipt_id: Option<ReceiptId>,
    }
    let detail = e.event.as_ref().and_then(|e| serde_json::from_str::<Binding>(e.detail.get()).ok());
    detail.is_some_and(|d| d.receipt_id.is_some())
}

fn at(line: &super::LineAt<'_>) -> EventAt {
    let event = line.bytes.and_then(|b| serde_json::from_slice::<AuditEvent>(b).ok()).map(Box::new);
    EventAt { number: line.number, offset: line.offset, len: line.len, event }
}

fn event_seq(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Seq {
        event_seq: u64,
    }
    serde_json::from_slice::<Seq>(line).ok().map(|s| s.event_seq)
}

fn time(line: &[u8]) -> Option<WallTime> {
    #[derive(Deserialize)]
    struct Time {
        at: WallTime,
    }
    serde_json::from_slice::<Time>(line).ok().map(|t| t.at)
}
