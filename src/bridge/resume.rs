//! Event streams of the server: whole events, where a cut stream is continued, and how long to wait before that.

use crate::sse::{Framer, Item};
use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

/// Largest event, and largest answer that is no stream, in bytes: one line to the client is held whole.
pub(super) const LARGEST: usize = 256 << 20;
/// Events that are remembered, to know those that are sent again.
const REMEMBERED: usize = 65_536;

/// An event with data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name; `None` is `message`.
    pub(super) name: Option<Vec<u8>>,
    /// The last id of the stream so far; empty if there is none.
    pub(super) id: Vec<u8>,
    pub(super) data: Vec<u8>,
}

/// Reads one stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    framer: Framer,
    data: Vec<u8>,
    is_too_large: bool,
}

impl Events {
    /// The events that end in this piece. One that is too large is told as an error.
    pub(super) fn read(&mut self, piece: &[u8]) -> Vec<Result<Event, usize>> {
        let Self { framer, data, is_too_large } = self;
        let mut whole = Vec::new();
        framer.read(piece, &mut |item| match item {
            Item::Data(piece) if *is_too_large || data.len() + piece.len() > LARGEST => {
                *is_too_large = true;
                *data = Vec::new();
            }
            Item::Data(piece) => data.extend_from_slice(piece),
            Item::Event(_) if std::mem::take(is_too_large) => whole.push(Err(LARGEST)),
            Item::Event(event) => whole.push(Ok(Event {
                name: event.name.map(<[u8]>::to_vec),
                id: event.id.to_vec(),
                data: std::mem::take(data),
            })),
            Item::Nothing => data.clear(),
        });
        whole
    }

    /// The reconnection time that the stream asked for.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.framer.retry_ms().map(Duration::from_millis)
    }
}

/// Where a stream that was cut is continued, and when.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Id of the last whole event; empty if there was none.
    pub(super) last_id: Vec<u8>,
    /// What the server asked for.
    retry: Option<Duration>,
    failures: u32,
    first: Duration,
    longest: Duration,
}

impl Cursor {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        Self { last_id: Vec::new(), retry: None, failures: 0, first, longest }
    }

    /// Takes what a stream has said.
    pub(super) fn heard(&mut self, events: &Events, id: &[u8]) {
        self.failures = 0;
        self.retry = events.retry().or(self.retry);
        if !id.is_empty() {
            self.last_id = id.to_vec();
        }
    }

    /// Takes what a stream that has ended asked for.
    pub(super) fn ended(&mut self, events: &Events) {
        self.retry = events.retry().or(self.retry);
    }

    /// The stream goes on. A server that says when to come back may have nothing to say each time.
    pub(super) const fn reached(&mut self) {
        if self.retry.is_some() {
            self.failures = 0;
        }
    }

    /// How often in a row nothing was heard.
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait before the next try: exactly what the server asked for, else twice as long each time, ± 20 %.
    pub(super) fn wait(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if let Some(asked) = self.retry {
            return asked;
        }
        let doubled = self.first.saturating_mul(1 << (self.failures - 1).min(16)).min(self.longest);
        // Without randomness all clients of a server that restarts come back together, which is all that is lost.
        let chance = getrandom::u32().unwrap_or(u32::MAX / 2);
        doubled.mul_f64(0.8 + 0.4 * f64::from(chance) / f64::from(u32::MAX))
    }
}

/// The events that have passed, so that one that is sent again passes once.
#[derive(Debug, Default)]
pub(super) struct Passed {
    hashes: HashMap<Vec<u8>, u64>,
    order: VecDeque<Vec<u8>>,
}

impl Passed {
    /// Whether this event, with the same id and data, has passed already; from now on it has.
    pub(super) fn has(&mut self, event: &Event) -> bool {
        if event.id.is_empty() {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        event.data.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(before) = self.hashes.insert(event.id.clone(), hash) {
            return before == hash;
        }
        self.order.push_back(event.id.clone());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.hashes.remove(&oldest);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, data: &str) -> Event {
        Event { name: None, id: id.into(), data: data.into() }
    }

    #[test]
    fn events_are_whole_however_they_come() {
        let stream = b"retry: 20\n: x\nid: 1\ndata: {\"a\":\ndata: 1}\n\nevent: endpoint\ndata: /p\n\ndata: cut";
        for size in [1, 2, 7, 1000] {
            let mut events = Events::default();
            let found: Vec<Event> = stream.chunks(size).flat_map(|c| events.read(c)).map(Result::unwrap).collect();
            let endpoint = Event { name: Some(b"endpoint".to_vec()), ..event("1", "/p") };
            assert_eq!(found, [event("1", "{\"a\":\n1}"), endpoint]);
            assert_eq!(events.retry(), Some(Duration::from_millis(20)));
        }
    }

    #[test]
    fn what_the_server_asks_for_is_waited_exactly_and_else_twice_as_long_each_time() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let mut cursor = Cursor::new(first, longest);
        for nominal in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let waited = cursor.wait().as_secs_f64();
            assert!((0.79 * nominal..=1.21 * nominal).contains(&waited), "{waited} of {nominal}");
        }
        let mut events = Events::default();
        events.read(b"retry: 7\nid: a\ndata: x\n\n");
        cursor.heard(&events, b"a");
        assert_eq!((cursor.failures(), &*cursor.last_id), (0, &b"a"[..]));
        for _ in 0..3 {
            assert_eq!(cursor.wait(), Duration::from_millis(7));
        }
    }

    #[test]
    fn an_event_that_is_sent_again_is_known() {
        let mut passed = Passed::default();
        assert!(!passed.has(&event("1", "a")));
        assert!(passed.has(&event("1", "a")));
        assert!(!passed.has(&event("1", "b")), "another event with its id");
        assert!(!passed.has(&event("", "a")) && !passed.has(&event("", "a")));
        for n in 0..REMEMBERED + 10 {
            passed.has(&event(&format!("n{n}"), ""));
        }
        assert_eq!(passed.hashes.len(), REMEMBERED);
    }
}
