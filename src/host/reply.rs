//! Answers of a command over HTTP: one JSON document, or a stream of events.

use crate::relay::http::host::Hosted;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};

/// An answer that is there within this time is a document; a later one is a stream, which can be resumed.
const SOON: Duration = Duration::from_secs(1);

/// A message on its way to a client.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Its place, from which the stream can be resumed.
    pub(super) id: Option<String>,
    pub(super) data: Bytes,
    /// Nothing comes after it.
    pub(super) is_last: bool,
}

impl Event {
    /// Its bytes in a stream. A carriage return would end a line of it; in a message it stands between parts of JSON.
    fn bytes(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.data.len() + 32);
        if let Some(id) = &self.id {
            out.put_slice(format!("id: {id}\n").as_bytes());
        }
        for line in self.data.split(|b| *b == b'\r') {
            out.put_slice(b"data: ");
            out.put_slice(line);
            out.put_u8(b'\n');
        }
        out.put_u8(b'\n');
        out.freeze()
    }
}

/// What a client takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Takes {
    /// Streams of events.
    pub(super) streams: bool,
    /// A first event without a message, as from 2025-11-25 on.
    pub(super) primed: bool,
}

impl Takes {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let accept = text(header::ACCEPT).unwrap_or("*/*");
        let version = text(header::HeaderName::from_static("mcp-protocol-version")).unwrap_or_default();
        Self {
            streams: accept.contains("text/event-stream") || accept.contains("*/*"),
            primed: version >= "2025-11-25",
        }
    }
}

/// The answer to requests whose messages come from there; `first` is the id of an event before them.
pub(super) async fn answer(mut from: mpsc::Receiver<Event>, takes: Takes, first: Option<String>) -> Response<Hosted> {
    let event = if takes.streams { timeout(SOON, from.recv()).await } else { Ok(from.recv().await) };
    match event {
        Ok(None) => error(StatusCode::BAD_GATEWAY, None, "the server's process is gone"),
        Ok(Some(event)) if event.is_last => document(StatusCode::OK, event.data),
        event => {
            let first = first.filter(|_| takes.primed).map(|id| Bytes::from(format!("id: {id}\ndata:\n\n")));
            let event = event.ok().flatten().map(|event| event.bytes());
            stream(first.into_iter().chain(event).collect(), from)
        }
    }
}

/// A stream of events: these, and what comes from there.
pub(super) fn stream(ready: VecDeque<Bytes>, from: mpsc::Receiver<Event>) -> Response<Hosted> {
    let body = Events { ready, from, is_over: false };
    let mut response = Response::new(body.boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    response
}

/// Events that are sent once more.
pub(super) fn again(events: impl Iterator<Item = Event>) -> VecDeque<Bytes> {
    events.map(|event| event.bytes()).collect()
}

fn document(status: StatusCode, body: Bytes) -> Response<Hosted> {
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer without content.
pub(super) fn empty(status: StatusCode) -> Response<Hosted> {
    let mut response = Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// The error of a request, as JSON-RPC.
pub(super) fn failed(id: &str, code: i32, why: &str) -> Bytes {
    let why = serde_json::Value::from(why);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{why}}}}}"#).into()
}

/// An error of HTTP, with one of JSON-RPC.
pub(super) fn error(status: StatusCode, id: Option<&str>, why: &str) -> Response<Hosted> {
    let code = match status {
        StatusCode::BAD_REQUEST => -32600,
        StatusCode::NOT_FOUND => -32001,
        _ => -32000,
    };
    document(status, failed(id.unwrap_or("null"), code, why))
}

struct Events {
    ready: VecDeque<Bytes>,
    from: mpsc::Receiver<Event>,
    is_over: bool,
}

impl Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(bytes) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        Poll::Ready(ready!(self.from.poll_recv(cx)).map(|event| {
            self.is_over = event.is_last;
            Ok(Frame::data(event.bytes()))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_holds_the_message_and_nothing_ends_it_early() {
        let event = |data: &'static str| Event { id: Some("3-1".into()), data: data.into(), is_last: false };
        assert_eq!(event("{\"a\":1}").bytes(), "id: 3-1\ndata: {\"a\":1}\n\n");
        assert_eq!(event("{\r\"a\":1}").bytes(), "id: 3-1\ndata: {\ndata: \"a\":1}\n\n");
    }

    #[test]
    fn errors_of_requests_are_json_whatever_is_said() {
        let bytes = failed("\"a\"", -32000, "it \"ended\"\n");
        let read: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&read["id"], &read["error"]["message"]), (&"a".into(), &"it \"ended\"\n".into()));
    }
}
