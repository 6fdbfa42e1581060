//! One who watches: a place in the ring, and as many bytes as it may keep us holding.

use super::{Session, feed::Head};
use crate::live::{
    protocol::{CaughtUp, ErrorLine, Gap, Hello, Line, MAX_REQUEST, PROTOCOL, Request},
    ring::Ring,
};
use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// Bytes that wait for one subscriber at most, but for a single longer line.
const MAX_WAITING: usize = 128 << 10;
/// Requests that are heard in one round.
const REQUESTS: usize = 16;

/// What subscribers are told from.
pub(super) struct View<'a> {
    pub ring: &'a Ring,
    pub sessions: &'a BTreeMap<u32, Session>,
    pub current: u32,
    pub head: Option<Head>,
}

impl View<'_> {
    /// Cursor behind the last event of a session that has ended.
    fn end_of(&self, session: u32) -> u64 {
        self.sessions.get(&session).and_then(|s| s.end).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(super) struct Subscriber {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    /// Number of the next line in the ring.
    place: u64,
    /// The session that it was greeted for; 0 before.
    session: u32,
    /// Cursor of the event that it expects.
    expected: u64,
    /// It asked for the past and is told when that is over.
    asked: bool,
    /// What it asked for may be gone; that is no loss of ours.
    forgiven: bool,
    /// Events before this cursor that it has lost are counted.
    counted: u64,
    took: Instant,
}

impl Subscriber {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            place: 0,
            session: 0,
            expected: 0,
            asked: false,
            forgiven: false,
            counted: 0,
            took: Instant::now(),
        })
    }

    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Whether it has not been greeted.
    pub const fn is_new(&self) -> bool {
        self.session == 0
    }

    /// Number of the session that it is told of.
    pub const fn session(&self) -> u32 {
        self.session
    }

    pub const fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Whether there is more for it than it has taken.
    pub fn has_more(&self, ring: &Ring) -> bool {
        self.has_output() || self.session > 0 && self.place < ring.end()
    }

    /// Whether bytes have waited for it for so long.
    pub fn is_stalled(&self, long: Duration) -> bool {
        self.has_output() && self.took.elapsed() >= long
    }

    /// Hears it and tells it what it can take; `lost` counts events that it has lost for being slow, before it is told.
    ///
    /// # Errors
    /// It is gone, or to be dropped.
    pub fn serve(&mut self, view: &View<'_>, lost: &dyn Fn(u64)) -> io::Result<()> {
        self.greet(view);
        self.hear(view)?;
        loop {
            lost(self.overrun(view));
            lost(self.fill(view));
            if !self.has_output() || !self.write()? {
                return Ok(());
            }
        }
    }

    /// Events that have left the ring since, before it was told of them. That it will hear of the gap later, or never, does
    /// not matter.
    fn overrun(&mut self, view: &View<'_>) -> u64 {
        let oldest = view.ring.get(view.ring.first()).filter(|_| self.place < view.ring.first());
        let Some(oldest) = oldest.filter(|_| self.session > 0 && !self.forgiven) else { return 0 };
        let to = if oldest.session == self.session { oldest.cursor } else { view.end_of(self.session) };
        self.count(to)
    }

    /// How many of the events up to `to` are lost and were not counted.
    fn count(&mut self, to: u64) -> u64 {
        let from = self.expected.max(self.counted);
        self.counted = self.counted.max(to);
        if self.forgiven { 0 } else { to.saturating_sub(from) }
    }

    fn greet(&mut self, view: &View<'_>) {
        if self.session == 0
            && let Some(head) = &view.head
            && view.sessions.contains_key(&view.current)
        {
            self.place = view.ring.end();
            self.session = view.current;
            self.expected = head.cursor;
            self.hello(view);
        }
    }

    fn say(&mut self, line: &Line) {
        self.output.extend_from_slice(&line.to_bytes());
    }

    fn hello(&mut self, view: &View<'_>) {
        let Some(session) = view.sessions.get(&self.session) else { return };
        let head = view.head.as_ref().filter(|_| self.session == view.current);
        let hello = Hello {
            chain_head: head.and_then(|h| h.hash.clone()),
            cursor: head.map_or(self.expected, |h| h.cursor),
            oldest: view.ring.oldest(self.session).unwrap_or(self.expected),
            protocol: PROTOCOL,
            session: session.card.clone(),
            totals: head.map(|h| h.totals).unwrap_or_default(),
        };
        self.say(&Line::Hello(Box::new(hello)));
    }

    fn hear(&mut self, view: &View<'_>) -> io::Result<()> {
        let mut buffer = [0; 1024];
        for _ in 0..REQUESTS {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            while let Some(end) = memchr::memchr(b'\n', &self.input) {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.asks(&line, view);
            }
            if self.input.len() >= MAX_REQUEST || self.output.len() > 2 * MAX_WAITING {
                // Nothing that it could want is that long, and who asks faster than it reads is not served.
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(())
    }

    fn asks(&mut self, line: &[u8], view: &View<'_>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let request = match serde_json::from_slice::<Request>(line) {
            Ok(request) => request,
            Err(e) => {
                let error = e.to_string().chars().take(200).collect();
                return self.say(&Line::Error(ErrorLine { error }));
            }
        };
        let wanted = request.session_id.map_or(Some(view.current), |id| {
            view.sessions.iter().find(|(_, s)| s.card.card.session_id == id).map(|(number, _)| *number)
        });
        let Some(session) = wanted.filter(|_| self.session > 0) else {
            let error = "this process does not tell of that session any more".to_owned();
            return self.say(&Line::Error(ErrorLine { error }));
        };
        let head = view.head.as_ref().filter(|_| session == view.current).map_or(u64::MAX, |h| h.cursor);
        let changed = std::mem::replace(&mut self.session, session) != session;
        self.expected = request.from.min(head);
        self.place = view.ring.find(session, self.expected);
        self.asked = true;
        self.forgiven = true;
        self.counted = 0;
        if changed {
            self.hello(view);
        }
    }

    /// Takes lines over from the ring while there is room.
    fn fill(&mut self, view: &View<'_>) -> u64 {
        let mut lost = 0;
        if self.sent == self.output.len() {
            self.output.clear();
            self.output.shrink_to(2 * MAX_WAITING);
            self.sent = 0;
        }
        if self.session == 0 {
            return 0;
        }
        while self.output.len() - self.sent < MAX_WAITING {
            self.place = self.place.max(view.ring.first());
            let Some(entry) = view.ring.get(self.place) else {
                self.all_told(view);
                break;
            };
            if entry.session != self.session {
                lost += self.gap(view, view.end_of(self.session));
                self.session = entry.session;
                self.expected = 0;
                self.counted = 0;
                self.hello(view);
            }
            if entry.chained {
                lost += self.gap(view, entry.cursor);
            }
            self.output.extend_from_slice(&entry.bytes);
            if entry.chained {
                self.expected = entry.cursor + 1;
                self.forgiven = false;
            }
            self.place += 1;
        }
        lost
    }

    /// Tells that the events from the expected one up to `to` do not come, if there are any; returns how many of them it has
    /// lost for being slow and that were not counted.
    fn gap(&mut self, view: &View<'_>, to: u64) -> u64 {
        let Some(session) = view.sessions.get(&self.session).filter(|_| to > self.expected) else { return 0 };
        let lost = self.count(to);
        let (gap, from) = (to - self.expected, self.expected);
        self.say(&Line::Gap(Gap { gap, from, session_id: session.card.card.session_id, to }));
        self.expected = to;
        lost
    }

    fn all_told(&mut self, view: &View<'_>) {
        if !self.asked {
            return;
        }
        // What was asked for may be older than all that the ring holds.
        if let Some(head) = view.head.as_ref().filter(|_| self.session == view.current) {
            self.gap(view, head.cursor);
        }
        self.asked = false;
        self.forgiven = false;
        self.say(&Line::CaughtUp(CaughtUp { cursor: self.expected }));
    }

    /// Writes what waits; returns whether all of it went.
    fn write(&mut self) -> io::Result<bool> {
        while self.has_output() {
            match (&self.stream).write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.sent += n;
                    self.took = Instant::now();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.sent > MAX_WAITING / 2 {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(false);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}
