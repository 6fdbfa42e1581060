//! What the server says: answers, event streams that are continued where they were cut, and the stream of its own messages.

use super::{
    answers,
    book::Purpose,
    client::{Reply, SendError},
    era::{Message, SESSION_ID, session_headers},
    failed::{Failed, LOST, Place, is_passing, refusal},
    resume::{Cursor, Events, LARGEST},
    wire::{Talk, Wire},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use std::rc::Rc;
use tokio::{
    task::spawn_local,
    time::{sleep, timeout},
};

const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

impl Talk {
    /// Reads the answer to a message.
    pub(super) async fn hear(self: &Rc<Self>, reply: Reply, message: &Message, exchange: u64) -> Result<Place, Failed> {
        if message.is("initialize") {
            self.state().session = reply.head.headers.get(SESSION_ID).cloned();
        }
        let status = reply.head.status.as_u16();
        if is_stream(&reply.head.headers) {
            return self.hear_stream(reply, message, exchange).await;
        }
        let is_old = matches!(self.state().wire, Wire::Old(_));
        let coding = reply.head.headers.get(header::CONTENT_ENCODING).filter(|c| *c != "identity").cloned();
        let body = reply.body.all(LARGEST).await;
        if is_old {
            return Ok(Place::Stream);
        }
        if message.requests.is_empty() {
            return Ok(Place::Here);
        }
        let failed = |why: String| Failed { status: Some(status), ..Failed::new(why) };
        let body = body.map_err(|e| failed(format!("the server's answer did not come whole: {e}")))?;
        if let Some(coding) = coding {
            return Err(failed(format!("the server sent its answer coded ({coding:?}), which it was not asked for")));
        }
        if body.trim_ascii().is_empty() {
            return Err(failed(format!("the server took the request and gave no answer (HTTP {status})")));
        }
        if answers::one_line(&body).is_none() {
            return Err(failed(format!("the server's answer is no JSON (HTTP {status}); check its URL")));
        }
        self.deliver(Some(exchange), &body).await;
        Ok(Place::Here)
    }

    /// Reads an answer that is a stream, and continues it where it was cut.
    async fn hear_stream(self: &Rc<Self>, reply: Reply, message: &Message, exchange: u64) -> Result<Place, Failed> {
        let timing = self.config.timing;
        let generation = self.state().generation;
        let asked = Purpose::of(message.requests.iter().map(|request| request.id.clone()));
        let mut cursor = Cursor::new(timing.first_retry, timing.longest_retry);
        let mut cut = self.read_stream(reply, Some(exchange), &mut cursor, false).await;
        loop {
            if !self.state().is_open(exchange) {
                return Ok(Place::Here);
            }
            let ended = cut.take().map_or_else(|| "the server ended it".to_owned(), |e| format!("it was cut: {e}"));
            let failed = || Failed::new(format!("stream ended without an answer to this request: {ended}"));
            if message.is_modern() || cursor.last_id.is_empty() || cursor.failures() >= timing.tries {
                return Err(failed());
            }
            let wait = cursor.wait();
            if timeout(wait, self.until(|state| !state.is_open(exchange))).await.is_ok() {
                continue;
            }
            match self.get(&cursor.last_id, &asked).await {
                Ok(reply) if is_stream(&reply.head.headers) && reply.head.status.as_u16() == 200 => {
                    cursor.reached();
                    cut = self.read_stream(reply, Some(exchange), &mut cursor, true).await;
                }
                Ok(reply) if reply.head.status.as_u16() == 404 && self.state().session.is_some() => {
                    // The server may have seen this request: it is not sent again.
                    drop(Box::pin(self.lose_session(generation, None)).await?);
                    return Err(Failed::new(LOST));
                }
                Ok(reply) if is_passing(reply.head.status.as_u16()) => cut = Some(refusal(reply.head.status.as_u16())),
                Ok(reply) => return Err(Failed { status: Some(reply.head.status.as_u16()), ..failed() }),
                Err(e) => cut = Some(e.to_string()),
            }
        }
    }

    /// Passes on the messages of a stream as they come. What cut it, if it did not end well.
    async fn read_stream(
        &self,
        mut reply: Reply,
        exchange: Option<u64>,
        cursor: &mut Cursor,
        is_resumed: bool,
    ) -> Option<String> {
        let mut events = Events::default();
        let mut cut = None;
        while let Some(piece) = reply.body.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(e) => {
                    cut = Some(e);
                    break;
                }
            };
            for event in events.read(&piece) {
                let Ok(event) = event else {
                    self.say("the server sent an event that is too large; the client does not get it");
                    continue;
                };
                cursor.heard(&events, &event.id);
                let is_message = event.name.as_deref().is_none_or(|name| name == b"message");
                let is_again = self.state().passed.has(&event);
                if is_message && !event.data.trim_ascii().is_empty() && !(is_again && is_resumed) {
                    self.deliver(exchange, &event.data).await;
                }
            }
        }
        cursor.ended(&events);
        cut
    }

    pub(super) async fn get(self: &Rc<Self>, last_id: &[u8], purpose: &Purpose) -> Result<Reply, SendError> {
        let mut headers = {
            let state = self.state();
            session_headers(state.session.as_ref(), state.version.as_ref())
        };
        headers.insert(header::ACCEPT, HeaderValue::from_static(EVENT_STREAM));
        if let Some(id) = HeaderValue::from_bytes(last_id).ok().filter(|id| !id.is_empty()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        self.client.send(Method::GET, &self.url, &headers, Bytes::new(), purpose, None).await
    }

    /// Begins to listen to what the server says by itself.
    pub(super) fn listen_on(self: &Rc<Self>) {
        if self.state().wire != Wire::Streamable || self.state().listener.is_some() {
            return;
        }
        let listener = spawn_local(self.clone().listen()).abort_handle();
        self.state().listener = Some(listener);
    }

    async fn listen(self: Rc<Self>) {
        let timing = self.config.timing;
        let mut cursor = Cursor::new(timing.first_retry, timing.longest_retry);
        let mut is_said = false;
        loop {
            let is_resumed = !cursor.last_id.is_empty();
            let why = match self.get(&cursor.last_id, &Purpose::default()).await {
                Ok(reply) if reply.head.status.as_u16() == 200 && is_stream(&reply.head.headers) => {
                    self.read_stream(reply, None, &mut cursor, is_resumed).await;
                    None
                }
                Ok(reply) => match reply.head.status.as_u16() {
                    // It has no such stream.
                    405 => return,
                    status if is_passing(status) => Some(refusal(status)),
                    status => {
                        self.say(&format!("the server gives no stream of its own messages: {}", refusal(status)));
                        return;
                    }
                },
                Err(e) => Some(e.to_string()),
            };
            if let Some(why) = why.filter(|_| !std::mem::replace(&mut is_said, true)) {
                self.say(&format!("the stream of the server's own messages is asked for again: {why}"));
            }
            sleep(cursor.wait()).await;
        }
    }
}

pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(EVENT_STREAM)
}
