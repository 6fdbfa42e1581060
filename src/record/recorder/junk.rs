//! Lines that are no JSON-RPC messages: those that follow each other on stdio, with nothing recorded between them, are
//! told of together.

use super::{Message, Recorder, wire_of};
use crate::{
    model::{
        Detail, Direction, PolicyReason, Transport, WallTime, Word,
        event::detail,
        limits::{JUNK_LINES, MAX_INTEGER},
    },
    record::{
        chain::{Entry, Wire},
        envelope,
        rulings::RulingRecord,
        stream::StreamId,
    },
};
use sha2::{Digest as _, Sha256};

/// How long lines are collected, ns. Meanwhile the capture keeps them.
const COLLECTED_NS: u64 = 1_000_000_000;
/// A longer line stands by itself.
const MAX_LINE: usize = 1 << 20;
/// Blank lines between two of them count only if there are few.
const MAX_BLANK: usize = 4096;

/// Lines that are collected: one at least.
pub(super) struct Junk {
    direction: Direction,
    /// Stream offset of the first one.
    offset: u64,
    /// Where the next one must begin.
    next: u64,
    lines: u64,
    /// From the first byte of the first line to the last byte of the last one.
    bytes: u64,
    hash: Sha256,
    /// What comes between the last line and the next one.
    between: Vec<u8>,
    /// What is wrong with the first line.
    reason: String,
    /// Why a guard kept them back.
    blocked: Option<Word<PolicyReason>>,
    first_ns: u64,
    last_ns: u64,
    last_at: WallTime,
}

impl Junk {
    fn is_followed_by(&self, m: &Message<'_>, blocked: Option<&Word<PolicyReason>>) -> bool {
        let has_room = self.lines < JUNK_LINES && self.bytes + (m.bytes.len() as u64) < MAX_INTEGER;
        let is_next = self.direction == m.direction() && self.next == m.place.offset && !self.between.is_empty();
        has_room && is_next && self.blocked.as_ref() == blocked
    }

    fn take(&mut self, m: &Message<'_>, at: WallTime) {
        self.hash.update(&self.between);
        self.hash.update(m.bytes);
        self.bytes += (self.between.len() + m.bytes.len()) as u64;
        self.lines += 1;
        (self.last_ns, self.last_at) = (m.read_ns, at);
        self.between.clear();
        self.ends(m);
    }

    /// The place of the next line, if this one has an end.
    fn ends(&mut self, m: &Message<'_>) {
        self.next = m.end;
        if m.end == m.place.offset + m.bytes.len() as u64 + 1 {
            self.between.push(b'\n');
        } else {
            self.between.clear();
        }
    }
}

impl Recorder {
    /// A line of nothing but white space, which is recorded only between two that are no messages.
    pub(super) fn blank(&mut self, m: &Message<'_>) {
        let Some(junk) = &mut self.junk else { return };
        if junk.direction == m.direction() && junk.next == m.place.offset && junk.between.len() < MAX_BLANK {
            junk.between.extend_from_slice(m.bytes);
            junk.ends(m);
        }
    }

    /// A whole line that is no message.
    pub(super) fn junk(&mut self, m: &Message<'_>, reason: &str) {
        // Recovery finds that it is on disk.
        if self.restored.as_ref().is_some_and(|r| r.is_partial(m)) {
            return;
        }
        let is_line = matches!(m.place.stream, StreamId::Stdio(_)) && self.setup.transport == Transport::Stdio;
        let blocked = m.ruling.filter(|j| j.blocked).map(RulingRecord::why);
        // Each that a client was refused is told of by itself.
        let is_refused = blocked.is_some() && m.direction() == Direction::ClientToServer;
        if !is_line || is_refused || m.page.is_some() || m.bytes.len() > MAX_LINE {
            self.malformed(m, reason);
            return;
        }
        let at = self.clock.wall(m.read_ns);
        if !self.junk.as_ref().is_some_and(|junk| junk.is_followed_by(m, blocked.as_ref())) {
            self.say_junk();
            let reason = self.why_malformed(m, reason);
            self.junk = Some(Junk {
                direction: m.direction(),
                offset: m.place.offset,
                next: 0,
                lines: 0,
                bytes: 0,
                hash: Sha256::new(),
                between: Vec::new(),
                reason,
                blocked,
                first_ns: m.read_ns,
                last_ns: m.read_ns,
                last_at: at,
            });
        }
        if let Some(junk) = &mut self.junk {
            junk.take(m, at);
        }
    }

    /// When the lines that are collected must be told of, monotonic ns.
    #[must_use]
    pub fn junk_is_due(&self) -> Option<u64> {
        self.junk.as_ref().map(|junk| junk.first_ns.saturating_add(COLLECTED_NS))
    }

    /// Tells of the lines that were collected.
    pub fn say_junk(&mut self) {
        let Some(junk) = self.junk.take() else { return };
        self.counts.malformed += junk.lines;
        let wire = Wire { bytes: junk.bytes, sha256: hex::encode(junk.hash.finalize()) };
        let (offset, reason) = (junk.offset, Some(junk.reason));
        let detail = if junk.lines > 1 {
            let first_us = self.mono_us(junk.first_ns);
            Detail::MalformedLines(detail::Lines { first_us, lines: junk.lines, offset, reason })
        } else {
            Detail::Malformed(detail::Seen { exchange: self.in_no_exchange(), offset, reason })
        };
        self.append(Entry {
            at: junk.last_at,
            mono_us: self.mono_us(junk.last_ns),
            direction: Some(junk.direction),
            method: None,
            rpc_id: None,
            invocation: None,
            wire: Some(&wire),
            detail,
        });
    }

    pub(super) fn malformed(&mut self, m: &Message<'_>, reason: &str) {
        self.counts.malformed += 1;
        let wire = wire_of(m);
        let reason = self.why_malformed(m, reason);
        self.event(Entry {
            at: self.clock.wall(m.read_ns),
            mono_us: self.mono_us(m.read_ns),
            direction: Some(m.direction()),
            method: None,
            rpc_id: None,
            invocation: None,
            wire: Some(&wire),
            detail: Detail::Malformed(detail::Seen {
                exchange: self.exchange_of(m.place),
                offset: m.place.offset,
                reason: Some(reason),
            }),
        });
    }

    /// What is wrong with it, and that it was kept back.
    fn why_malformed(&mut self, m: &Message<'_>, reason: &str) -> String {
        match m.ruling.filter(|j| j.blocked) {
            Some(ruling) => {
                self.violations += u64::from(m.direction() == Direction::ClientToServer);
                envelope::short(&format!("not forwarded ({}): {reason}", ruling.why()))
            }
            None => envelope::short(reason),
        }
    }
}
