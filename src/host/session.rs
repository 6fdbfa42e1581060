//! A session of up to 2025-11-25: a process of its own, the streams to its client, and what is kept to resume them.

use super::{
    message::{Asked, Message, line},
    process::Process,
    reply::{Event, Takes, again, answer, empty, error, failed, stream},
};
use crate::relay::http::host::Hosted;
use bytes::Bytes;
use http::{Response, StatusCode};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc};

/// Events that are kept, and their bytes.
const KEPT: (usize, usize) = (256, 1 << 20);
/// Events that wait for a client that reads slowly; then its process waits.
const WAITING: usize = 16;
/// The stream of what belongs to no request.
const OWN: u64 = 0;
/// That of `initialize`.
const FIRST: u64 = 1;

/// A session.
pub(super) struct Session {
    to: mpsc::Sender<Bytes>,
    state: Mutex<State>,
    over: Notify,
}

struct State {
    streams: BTreeMap<u64, Stream>,
    /// Streams so far.
    count: u64,
    kept: VecDeque<Kept>,
    bytes: usize,
    used: Instant,
    is_over: bool,
}

/// The answers to the requests of one message, or the stream of what belongs to none.
#[derive(Default)]
struct Stream {
    waits_for: Vec<Asked>,
    to: Option<mpsc::Sender<Event>>,
    /// Its client takes one document: only the answer goes there.
    is_document: bool,
    sent: u64,
    /// The last event that somebody was there for.
    taken: u64,
}

impl Stream {
    fn is_heard(&self) -> bool {
        self.to.as_ref().is_some_and(|to| !to.is_closed())
    }
}

struct Kept {
    stream: u64,
    number: u64,
    data: Bytes,
    is_last: bool,
}

impl Kept {
    fn event(&self) -> Event {
        Event { id: Some(format!("{}-{}", self.stream, self.number)), data: self.data.clone(), is_last: self.is_last }
    }
}

/// A message on its way.
struct Passing {
    stream: u64,
    number: u64,
    event: Event,
    to: Option<mpsc::Sender<Event>>,
}

impl State {
    fn new() -> Self {
        Self {
            streams: [(OWN, Stream::default())].into(),
            count: OWN,
            kept: VecDeque::new(),
            bytes: 0,
            used: Instant::now(),
            is_over: false,
        }
    }

    /// Which stream a message of the server goes to; `None`: it answers what nobody waits for.
    fn stream_for(&self, message: &Message) -> Option<u64> {
        let of = |is_its: &dyn Fn(&Asked) -> bool| {
            self.streams.iter().find(|(_, stream)| stream.waits_for.iter().any(is_its)).map(|(number, _)| *number)
        };
        if let Some(id) = message.answers.first() {
            return of(&|asked| asked.id == *id);
        }
        let by_token = message.progress.as_ref().and_then(|token| of(&|asked| asked.token.as_ref() == Some(token)));
        // Nothing tells what else belongs to which request: most likely to the newest.
        let newest = || {
            let takes = |(_, stream): &(&u64, &Stream)| !stream.waits_for.is_empty() && !stream.is_document;
            self.streams.iter().rev().find(takes).map(|(number, _)| *number)
        };
        Some(by_token.or_else(newest).unwrap_or(OWN))
    }

    /// Takes a message of the server: where it goes. Who listens from now on finds it among what is kept.
    fn take(&mut self, message: &Message, data: Bytes) -> Option<Passing> {
        let number = self.stream_for(message)?;
        let stream = self.streams.get_mut(&number)?;
        stream.waits_for.retain(|asked| !message.answers.contains(&asked.id));
        stream.sent += 1;
        let is_last = number != OWN && stream.waits_for.is_empty();
        let kept = Kept { stream: number, number: stream.sent, data, is_last };
        let passing = Passing { stream: number, number: stream.sent, event: kept.event(), to: stream.to.clone() };
        self.bytes += kept.data.len();
        self.kept.push_back(kept);
        while self.kept.len() > KEPT.0 || self.bytes > KEPT.1 {
            self.bytes -= self.kept.pop_front().map_or(self.bytes, |gone| gone.data.len());
        }
        Some(passing)
    }

    /// What is kept of a stream behind an event.
    fn behind(&self, stream: u64, number: u64) -> impl Iterator<Item = Event> {
        self.kept.iter().filter(move |kept| kept.stream == stream && kept.number > number).map(Kept::event)
    }

    fn is_idle(&self, limit: Duration) -> bool {
        self.used.elapsed() >= limit && !self.streams.values().any(Stream::is_heard)
    }
}

impl Session {
    /// Begins one. `gone` is called when its process has ended.
    pub(super) fn begin(mut process: Process, gone: impl FnOnce() + Send + 'static) -> Arc<Self> {
        let session = Arc::new(Self { to: process.to.clone(), state: Mutex::new(State::new()), over: Notify::new() });
        let of = session.clone();
        tokio::spawn(async move {
            let pass = async {
                while let Some(line) = process.lines.recv().await {
                    of.pass(line).await;
                }
            };
            tokio::select! {
                () = pass => {}
                () = of.over.notified() => {}
            }
            let why = process.end_in_words();
            drop(process);
            of.close(&why);
            gone();
        });
        session
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, and its process.
    pub(super) fn end(&self) {
        self.over.notify_one();
    }

    /// Whether its client has not been heard of for so long.
    pub(super) fn is_idle(&self, limit: Duration) -> bool {
        self.state().is_idle(limit)
    }

    /// Passes a message of the server on.
    async fn pass(&self, data: Bytes) {
        let Ok(message) = Message::read(&data) else {
            return tracing::debug!("a line of a command is no message");
        };
        let taken = self.state().take(&message, data);
        let Some(Passing { stream: place, number, event, to }) = taken else {
            return tracing::debug!("a command answers what nobody asked");
        };
        let is_last = event.is_last;
        let is_heard = match to {
            Some(to) => to.send(event).await.is_ok(),
            None => false,
        };
        let mut state = self.state();
        if is_last {
            state.streams.remove(&place);
        } else if let Some(stream) = state.streams.get_mut(&place).filter(|_| is_heard) {
            stream.taken = stream.taken.max(number);
        }
        if place == FIRST && is_last && message.is_error {
            // It was not initialized.
            self.end();
        }
    }

    /// Nothing comes any more: whoever waits is told.
    fn close(&self, why: &str) {
        let streams = {
            let mut state = self.state();
            state.is_over = true;
            std::mem::take(&mut state.streams)
        };
        for stream in streams.into_values() {
            let count = stream.waits_for.len();
            for (i, asked) in stream.waits_for.into_iter().enumerate() {
                let data = failed(&asked.text, -32000, why);
                if let Some(to) = &stream.to {
                    // Who reads nothing need not be waited for.
                    let _ = to.try_send(Event { id: None, data, is_last: i + 1 == count });
                }
            }
        }
    }

    /// Passes a message of the client on: the answer to it.
    pub(super) async fn ask(&self, message: Message, body: &[u8], takes: Takes) -> Response<Hosted> {
        let gone = || error(StatusCode::NOT_FOUND, None, "the session is over");
        if message.requests.is_empty() {
            self.state().used = Instant::now();
            return match self.to.send(line(body)).await {
                Ok(()) => empty(StatusCode::ACCEPTED),
                Err(_) => gone(),
            };
        }
        let (to, from) = mpsc::channel(WAITING);
        let number = {
            let mut state = self.state();
            if state.is_over {
                return gone();
            }
            state.used = Instant::now();
            state.count += 1;
            let number = state.count;
            let stream =
                Stream { waits_for: message.requests, to: Some(to), is_document: !takes.streams, ..Stream::default() };
            state.streams.insert(number, stream);
            number
        };
        if self.to.send(line(body)).await.is_err() {
            return gone();
        }
        answer(from, takes, Some(format!("{number}-0"))).await
    }

    /// Opens the stream of what belongs to no request, or resumes one behind the event of this id.
    pub(super) fn listen(&self, last: Option<&str>) -> Response<Hosted> {
        let unknown = || error(StatusCode::BAD_REQUEST, None, "nothing is known of this event");
        let mut state = self.state();
        if state.is_over {
            return error(StatusCode::NOT_FOUND, None, "the session is over");
        }
        state.used = Instant::now();
        let place = match last {
            None => Some((OWN, state.streams.get(&OWN).map_or(0, |own| own.taken))),
            Some(last) => last.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))),
        };
        let Some((number, after)) = place else { return unknown() };
        let missed: Vec<Event> = state.behind(number, after).collect();
        let (to, from) = mpsc::channel(WAITING);
        match state.streams.get_mut(&number) {
            Some(stream) => {
                stream.taken = stream.sent;
                stream.to = Some(to);
            }
            None if missed.is_empty() => return unknown(),
            None => {}
        }
        stream(again(missed.into_iter()), from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::envelope::IdKey;

    fn asked(id: &str) -> Asked {
        Asked { id: IdKey::of(id.as_bytes()), text: id.to_owned(), token: Some(IdKey::of(id.as_bytes())) }
    }

    fn take(state: &mut State, text: &'static str) -> Option<(u64, Event)> {
        let passing = state.take(&Message::read(text.as_bytes()).unwrap(), text.into())?;
        Some((passing.stream, passing.event))
    }

    #[test]
    fn messages_go_to_the_request_that_they_belong_to() {
        const ASKS: &str = r#"{"id":0,"method":"sampling/createMessage"}"#;
        let mut state = State::new();
        let place = |state: &mut State, text| {
            take(state, text).map(|(number, event)| (number, event.id.unwrap(), event.is_last))
        };
        assert_eq!(place(&mut state, ASKS), Some((OWN, "0-1".into(), false)));
        for (number, id) in [(1, "1"), (2, "2")] {
            state.streams.insert(number, Stream { waits_for: vec![asked(id)], ..Stream::default() });
        }
        let progress = r#"{"method":"notifications/progress","params":{"progressToken":1}}"#;
        assert_eq!(place(&mut state, progress), Some((1, "1-1".into(), false)));
        assert_eq!(place(&mut state, ASKS), Some((2, "2-1".into(), false)));
        assert_eq!(place(&mut state, r#"{"id":1,"result":{}}"#), Some((1, "1-2".into(), true)));
        assert_eq!(place(&mut state, r#"{"id":"1","result":{}}"#), None, "nobody asked that");
        // One that takes a document gets its answer and nothing else.
        state.streams.get_mut(&2).unwrap().is_document = true;
        assert_eq!(place(&mut state, ASKS), Some((OWN, "0-2".into(), false)));
    }

    #[test]
    fn what_is_kept_to_resume_has_limits() {
        let mut state = State::new();
        for _ in 0..300 {
            take(&mut state, r#"{"method":"n"}"#);
        }
        let all: Vec<_> = state.behind(OWN, 298).map(|event| event.id.unwrap()).collect();
        assert_eq!((all, state.kept.len()), (vec!["0-299".to_owned(), "0-300".to_owned()], KEPT.0));
        let long = format!(r#"{{"method":"n","params":"{}"}}"#, "x".repeat(KEPT.1 / 2));
        for _ in 0..3 {
            let message = Message::read(long.as_bytes()).unwrap();
            state.take(&message, long.clone().into());
        }
        assert_eq!(state.kept.len(), 1);
        assert_eq!(state.bytes, long.len());
    }
}
