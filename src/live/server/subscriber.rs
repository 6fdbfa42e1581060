//! A subscriber: its place in the ring of each session that it follows, and a bounded buffer of bytes to send.

use super::sessions::{Session, Sessions};
use crate::{
    live::{
        protocol::{CaughtUp, ErrorLine, Gap, Hello, LiveLine, MAX_REQUEST, PROTOCOL, Request, Subject},
        ring::Ring,
    },
    model::SessionId,
};
use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// Most bytes that wait for one subscriber, except for a single longer line.
const MAX_WAITING: usize = 128 << 10;
/// Bytes that one session gives to a subscriber before it is another one's turn.
const TURN: usize = 32 << 10;
/// Most requests that are read in one round.
const REQUESTS: usize = 16;

/// What the lines for subscribers are made from.
pub(super) struct View<'a> {
    pub sessions: &'a Sessions,
    /// Which sessions begin and end.
    pub notices: &'a Ring,
    /// Whether contents can be asked for.
    pub contents: bool,
}

/// From where a session is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// From its beginning: it has begun, or follows one that was heard of.
    Beginning,
    Now,
    Cursor(u64),
    Last(u64),
}

/// What a subscriber has heard of one session.
#[derive(Debug)]
struct Stream {
    from: From,
    /// Whether it has got the state of the session.
    greeted: bool,
    /// Number of the next line in the ring.
    place: u64,
    /// Cursor of the event that is next.
    expected: u64,
    /// It asked for past events, and gets a line when it has caught up.
    asked: bool,
    /// What it asked for may have left the ring; that does not count as lost.
    forgiven: bool,
    /// Events before this cursor that it has lost are counted.
    counted: u64,
}

impl Stream {
    const fn new(from: From) -> Self {
        let asked = matches!(from, From::Cursor(_) | From::Last(_));
        Self { from, greeted: false, place: 0, expected: 0, asked, forgiven: asked, counted: 0 }
    }

    /// Sends the state of the session.
    fn stands(&mut self, s: &Session, output: &mut Vec<u8>) {
        let head = &s.head;
        self.expected = match self.from {
            From::Beginning => 0,
            From::Now => head.cursor,
            From::Cursor(cursor) => cursor.min(head.cursor),
            From::Last(n) => head.cursor.saturating_sub(n),
        };
        self.place = if self.from == From::Now { s.ring.end() } else { s.ring.find(self.expected) };
        self.greeted = true;
        let told = s.as_it_is(self.expected);
        output.extend_from_slice(&LiveLine::Session(Box::new(told)).to_bytes());
    }

    /// Events that have left the ring before they were sent, whether or not a gap will report them later.
    fn overrun(&mut self, s: &Session) -> u64 {
        if !self.greeted || self.place >= s.ring.first() {
            return 0;
        }
        self.count(s.ring.oldest().unwrap_or(s.head.cursor))
    }

    /// How many of the events up to `to` are lost and were not counted.
    fn count(&mut self, to: u64) -> u64 {
        let from = self.expected.max(self.counted);
        self.counted = self.counted.max(to);
        if self.forgiven { 0 } else { to.saturating_sub(from) }
    }

    /// Sends a gap for the events from the expected one up to `to`, if there are any; returns how many of them were
    /// lost for slowness and not counted.
    fn gap(&mut self, session_id: SessionId, to: u64, output: &mut Vec<u8>) -> u64 {
        if to <= self.expected {
            return 0;
        }
        let lost = self.count(to);
        let (gap, from) = (to - self.expected, self.expected);
        output.extend_from_slice(&LiveLine::Gap(Gap { gap, from, session_id, to }).to_bytes());
        self.expected = to;
        lost
    }

    /// Takes lines over from the ring until `output` is `full`; returns how many events are lost.
    fn fill(&mut self, s: &Session, output: &mut Vec<u8>, full: usize, contents: bool) -> u64 {
        let mut lost = 0;
        if !self.greeted && (s.is_read || self.from == From::Beginning) {
            self.stands(s, output);
        }
        while self.greeted && output.len() < full {
            self.place = self.place.max(s.ring.first());
            let Some(entry) = s.ring.get(self.place) else {
                // What was read up to here and is not in the ring is lost.
                lost += self.gap(s.id(), s.head.cursor, output);
                self.forgiven = false;
                if std::mem::take(&mut self.asked) {
                    let line = LiveLine::CaughtUp(CaughtUp { cursor: self.expected, session_id: Some(s.id()) });
                    output.extend_from_slice(&line.to_bytes());
                }
                break;
            };
            if entry.chained {
                lost += self.gap(s.id(), entry.cursor, output);
                self.expected = entry.cursor + 1;
                self.forgiven = false;
            }
            if contents || !entry.is_content {
                output.extend_from_slice(&entry.bytes);
            }
            self.place += 1;
        }
        lost
    }
}

#[derive(Debug)]
pub(super) struct Subscriber {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    greeted: bool,
    /// Number of the next notice.
    notice: u64,
    /// It wants to hear of every session that begins.
    all: bool,
    /// It wants to see what messages hold.
    contents: bool,
    streams: BTreeMap<u32, Stream>,
    /// The session whose turn it is.
    turn: u32,
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
            greeted: false,
            notice: 0,
            all: false,
            contents: false,
            streams: BTreeMap::new(),
            turn: 0,
            took: Instant::now(),
        })
    }

    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub const fn wants_contents(&self) -> bool {
        self.contents
    }

    /// Whether it hears of a session.
    pub fn hears(&self, session: u32) -> bool {
        self.streams.contains_key(&session)
    }

    /// Whether it has got the state of a session, and gets what follows.
    pub fn is_at(&self, session: u32) -> bool {
        self.streams.get(&session).is_some_and(|s| s.greeted || s.from == From::Beginning)
    }

    pub const fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Whether there is more for it than it has taken.
    pub fn has_more(&self, view: &View<'_>) -> bool {
        let more = |(number, stream): (&u32, &Stream)| {
            view.sessions.get(*number).is_some_and(|s| !stream.greeted || stream.place < s.ring.end())
        };
        self.has_output() || self.notice < view.notices.end() || self.streams.iter().any(more)
    }

    /// Whether bytes have waited for it for this long.
    pub fn is_stalled(&self, long: Duration) -> bool {
        self.has_output() && self.took.elapsed() >= long
    }

    /// A session has begun: follow it, if it subscribed to all sessions or to the one that is continued.
    pub fn begun(&mut self, session: u32, continues: Option<u32>) {
        if self.all || continues.is_some_and(|before| self.hears(before)) {
            self.streams.insert(session, Stream::new(From::Beginning));
        }
    }

    /// A session was dropped: what it has not got is in the files.
    pub fn forgotten(&mut self, number: u32, session: &Session) {
        let Some(mut stream) = self.streams.remove(&number) else { return };
        if stream.greeted && stream.place >= session.ring.end() && !session.is_behind() {
            return;
        }
        if !stream.greeted {
            stream.stands(session, &mut self.output);
        }
        stream.gap(session.id(), session.head.cursor, &mut self.output);
        let error = "this session has ended and is not sent any more: read the rest from its files".to_owned();
        self.say(&LiveLine::Error(ErrorLine { error, session_id: Some(session.id()) }));
    }

    /// Reads its requests, and sends as much as it can take.
    ///
    /// # Errors
    /// It has disconnected, or must be dropped.
    pub fn serve(&mut self, view: &View<'_>) -> io::Result<()> {
        self.greet(view);
        self.hear(view)?;
        loop {
            for (number, stream) in &mut self.streams {
                if let Some(s) = view.sessions.get(*number) {
                    s.reach.missed(stream.overrun(s));
                }
            }
            self.fill(view);
            if !self.has_output() || !self.write()? {
                return Ok(());
            }
        }
    }

    /// Lists the sessions, at first and whenever it was too slow for notices of sessions that begin and end.
    fn greet(&mut self, view: &View<'_>) {
        if !self.greeted || self.notice < view.notices.first() {
            self.greeted = true;
            self.notice = view.notices.end();
            let sessions = view.sessions.iter().map(|(_, s)| s.brief()).collect();
            self.say(&LiveLine::Hello(Hello { contents: view.contents, protocol: PROTOCOL, sessions }));
        }
    }

    fn say(&mut self, line: &LiveLine) {
        self.output.extend_from_slice(&line.to_bytes());
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
                // No valid request is that long, and a peer that asks faster than it reads is not served.
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
                return self.say(&LiveLine::Error(ErrorLine { error, session_id: None }));
            }
        };
        let from = match (request.from, request.last) {
            (None, None) => From::Now,
            (Some(cursor), None) => From::Cursor(cursor),
            (None, Some(n)) => From::Last(n),
            (Some(_), Some(_)) => {
                let error = "from and last cannot be used together".to_owned();
                return self.say(&LiveLine::Error(ErrorLine { error, session_id: None }));
            }
        };
        self.contents |= request.contents && view.contents;
        match request.subscribe {
            Subject::All => {
                self.all = true;
                for (number, _) in view.sessions.iter() {
                    self.streams.entry(number).or_insert_with(|| Stream::new(from));
                }
            }
            Subject::Session(id) => {
                if let Some(number) = view.sessions.number(id) {
                    self.streams.insert(number, Stream::new(from));
                } else {
                    let error = "this process has no events of that session, or no longer".to_owned();
                    self.say(&LiveLine::Error(ErrorLine { error, session_id: Some(id) }));
                }
            }
        }
    }

    /// Takes lines over while there is room: what begins and ends first, then of each session in turn.
    fn fill(&mut self, view: &View<'_>) {
        if self.sent == self.output.len() {
            self.output.clear();
            self.output.shrink_to(2 * MAX_WAITING);
            self.sent = 0;
        }
        let Self { output, streams, notice, turn, sent, contents, .. } = self;
        let full = *sent + MAX_WAITING;
        while let Some(entry) = view.notices.get(*notice).filter(|_| output.len() < full) {
            output.extend_from_slice(&entry.bytes);
            *notice += 1;
        }
        let mut quiet = 0;
        while output.len() < full && quiet < streams.len() {
            let next = streams.range(*turn..).next().or_else(|| streams.iter().next()).map(|(number, _)| *number);
            let Some(number) = next else { return };
            *turn = number + 1;
            let before = output.len();
            if let (Some(s), Some(stream)) = (view.sessions.get(number), streams.get_mut(&number)) {
                s.reach.missed(stream.fill(s, output, full.min(before + TURN), *contents));
            }
            quiet = if output.len() == before { quiet + 1 } else { 0 };
        }
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
