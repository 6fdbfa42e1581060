//! Stage `verify_chain`: one segment's audit events, line by line.

use super::{event_line::explain, finding::Finding, source::Line, words::Stage};
use crate::model::words::AnomalyKind;
use crate::model::{
    EventKind, SessionId, WallTime,
    event::{DetailView as Detail, EventView as Event, JUNK_EVENTS, detail},
};

/// What a segment amounts to, as far as it was walked.
#[derive(Debug, Clone, Default)]
pub struct ChainSummary {
    /// Lines, whether they read or not.
    pub events: u64,
    /// Hash of the first event.
    pub first_hash: Option<String>,
    /// `prev_hash` of the first event: the previous ledger line.
    pub first_prev: Option<String>,
    /// Hash of the last event.
    pub last_hash: Option<String>,
    /// Time of the first event.
    pub first_at: Option<WallTime>,
    /// The first steps of the clock: when, and the words of the event.
    pub steps: Vec<(WallTime, String)>,
    /// Time of the last event.
    pub last_at: Option<WallTime>,
    /// Session clock of the last event.
    pub last_mono_us: u64,
    /// Id of the session.
    pub session: Option<SessionId>,
    /// How client and server talk.
    pub transport: Option<String>,
    /// Version of its events.
    pub version: Option<u32>,
    /// `detail` of `chain_start`.
    pub start: Option<detail::ChainStart>,
    /// `detail` of `chain_end`.
    pub end: Option<detail::ChainEnd>,
    /// Number of `request_received` events.
    pub requests: u64,
    /// Lines that are no messages.
    pub malformed: u64,
    /// Number of `recorder_gap` events.
    pub gaps: u64,
    /// Messages lost in them.
    pub missed: u64,
    /// Bytes lost in them.
    pub missed_bytes: u64,
    /// `anomaly` events of kind `clock_step`.
    pub clock_steps: u64,
    /// `anomaly` events with which a recovery says that receipts, or the events of receipts, are missing.
    pub lost: u64,
    /// Lines that are wrong.
    pub broken: u64,
}

/// Steps of the clock that a session's document lists.
pub const MAX_STEPS: usize = 256;

/// Walks the lines of one segment.
#[derive(Debug)]
pub struct ChainWalk {
    file: String,
    /// What was found in the chain so far.
    pub summary: ChainSummary,
    next_seq: u64,
    prev: Option<[u8; 64]>,
    session: Option<SessionId>,
    /// A later version wrote the last line, or one before it.
    pub newer: bool,
}

impl ChainWalk {
    /// A walk over the segment in `file`, which must be of `session` if that is given.
    #[must_use]
    pub fn new(file: &str, session: Option<SessionId>) -> Self {
        Self { file: file.to_owned(), summary: ChainSummary::default(), next_seq: 0, prev: None, session, newer: false }
    }

    /// Takes the next line. What is wrong goes to `found`; the event, if the line is one.
    pub fn step<'a>(&mut self, line: &Line<'a>, found: &mut dyn FnMut(Finding)) -> Option<Event<'a>> {
        self.summary.events += 1;
        let mut wrong = 0;
        let mut report = |code: &'static str, what: String, sides: Option<(String, String)>| {
            wrong += 1;
            let mut f = Finding::new(code, Stage::VerifyChain, what).file(&*self.file).line(line.number, line.offset);
            if let Some((expected, actual)) = sides {
                f = f.sides(expected, actual);
            }
            found(f);
        };
        if !line.terminated {
            report("E_CHAIN_BROKEN", "the last line has no newline: it was cut".into(), None);
        }
        let Some(event) = Event::of_line(line.bytes) else {
            let expected = "the canonical line of an audit event";
            let (finding, newer) = explain(line.bytes).of_line(Stage::VerifyChain, expected, line.bytes);
            found(finding.file(&*self.file).line(line.number, line.offset));
            self.newer |= newer;
            self.next_seq += 1;
            // The next event says what this one's hash was; only its own statement can be judged.
            self.prev = None;
            self.summary.broken += 1;
            return None;
        };
        let hash = event.hash_of(line.bytes);
        if hash != event.hash {
            report(
                "E_CHAIN_BROKEN",
                "the event is not what its hash says".into(),
                Some((text(event.hash), text(&hash))),
            );
        }
        if event.event_seq != self.next_seq {
            let what = "event_seq has a gap or a repetition".to_owned();
            report("E_CHAIN_BROKEN", what, Some((self.next_seq.to_string(), event.event_seq.to_string())));
        }
        if let Some(prev) = self.prev.filter(|p| p != event.prev_hash) {
            let what = "prev_hash is not the hash of the previous event".to_owned();
            report("E_CHAIN_BROKEN", what, Some((text(&prev), text(event.prev_hash))));
        }
        match self.session {
            None => self.session = Some(event.session_id),
            Some(s) if s == event.session_id => {}
            Some(s) => {
                let what = "the event belongs to another session".to_owned();
                report("E_CHAIN_BROKEN", what, Some((s.to_string(), event.session_id.to_string())));
            }
        }
        match &self.summary.transport {
            None => self.summary.transport = Some(text(event.transport)),
            Some(t) if t.as_bytes() == event.transport => {}
            Some(t) => {
                report("E_CHAIN_BROKEN", "transport changed".into(), Some((t.clone(), text(event.transport))));
            }
        }
        match self.summary.version {
            // Such lines may come in any session.
            _ if event.v == JUNK_EVENTS => {}
            None => self.summary.version = Some(event.v),
            Some(v) if v == event.v => {}
            Some(v) => {
                report("E_CHAIN_BROKEN", "the version changed".into(), Some((v.to_string(), event.v.to_string())));
            }
        }
        let first = self.summary.events == 1;
        if first != (event.event == EventKind::ChainStart) {
            let what = if first { "the first event is not chain_start" } else { "chain_start is not the first event" };
            report("E_CHAIN_BROKEN", what.into(), None);
        }
        if self.summary.end.is_some() {
            report("E_CHAIN_BROKEN", "an event follows chain_end".into(), None);
        }
        if wrong > 0 {
            self.summary.broken += 1;
        }
        self.note(&event, first);
        Some(event)
    }

    fn note(&mut self, event: &Event<'_>, first: bool) {
        self.next_seq = event.event_seq + 1;
        self.prev = event.hash.try_into().ok();
        let s = &mut self.summary;
        if first {
            s.first_hash = Some(text(event.hash));
            s.first_prev = Some(text(event.prev_hash));
            s.first_at = Some(event.at);
        }
        s.session = self.session;
        s.last_at = Some(event.at);
        s.last_mono_us = event.mono_us;
        match &event.detail {
            Detail::ChainStart(d) if s.start.is_none() => s.start = Some((**d).clone()),
            Detail::ChainEnd(d) => s.end = Some((**d).clone()),
            Detail::RequestReceived(_) | Detail::ToolRequested(_) => s.requests += 1,
            Detail::RecorderGap(d) => {
                s.gaps += 1;
                s.missed = s.missed.saturating_add(d.messages);
                s.missed_bytes = s.missed_bytes.saturating_add(d.bytes);
            }
            Detail::Anomaly(d) => match d.kind.known {
                Some(AnomalyKind::ClockStep) => {
                    s.clock_steps += 1;
                    if s.steps.len() < MAX_STEPS {
                        let note = d.note.unwrap_or_default();
                        s.steps.push((event.at, text(&note[..note.len().min(80)])));
                    }
                }
                Some(AnomalyKind::ReceiptWithoutEvents | AnomalyKind::ReceiptLost) => s.lost += 1,
                _ => {}
            },
            Detail::Malformed(_) => s.malformed += 1,
            Detail::MalformedLines(d) => s.malformed = s.malformed.saturating_add(d.lines),
            _ => {}
        }
    }

    /// What it amounts to; `chain_end` must have counted the lines.
    pub fn finish(mut self, found: &mut dyn FnMut(Finding)) -> ChainSummary {
        self.summary.last_hash = self.prev.map(|p| text(&p));
        let s = &self.summary;
        if s.events == 0 {
            found(Finding::new("E_CHAIN_BROKEN", Stage::VerifyChain, "there is no event").file(&*self.file));
        }
        if let Some(end) = &s.end {
            for (what, stated, actual) in [
                ("events", end.events, s.events),
                ("counts.requests", end.counts.requests, s.requests),
                ("counts.malformed", end.counts.malformed, s.malformed),
                ("counts.missed", end.counts.missed, s.missed),
                ("counts.missed_bytes", end.counts.missed_bytes, s.missed_bytes),
            ] {
                if stated != actual {
                    let text = format!("chain_end counts other {what} than the chain has");
                    found(
                        Finding::new("E_PACK_OMISSION_DETECTED", Stage::VerifyChain, text)
                            .file(&*self.file)
                            .sides(stated, actual),
                    );
                }
            }
        }
        self.summary
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
