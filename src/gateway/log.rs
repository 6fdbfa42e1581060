//! The log on stderr, in lines of JSON. It never waits: what a slow reader has no room for is dropped.

use super::metrics::ServiceMetrics;
use crate::{canon, model::WallTime, relay::http::witness};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Lines that wait to be written, at most.
const LINES: usize = 4096;
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Writes lines; none without a writer.
#[derive(Clone, Default)]
pub struct Log(Option<NonBlocking>);

impl Log {
    /// Lines on stderr from a thread of its own, which writes what is left when the guard goes.
    pub fn stderr() -> (Self, WorkerGuard) {
        let (lines, guard) = NonBlockingBuilder::default().buffered_lines_limit(LINES).finish(std::io::stderr());
        (Self(Some(lines)), guard)
    }

    /// Writes a line; members that are null are left out.
    pub fn line(&self, event: &str, members: Value) {
        let Some(mut lines) = self.0.clone() else { return };
        let mut line = json!({"at": WallTime::now(), "event": event});
        if let (Some(line), Value::Object(members)) = (line.as_object_mut(), members) {
            line.extend(members.into_iter().filter(|(_, value)| !value.is_null()));
        }
        // It drops what it has no room for, and says nothing.
        let _ = lines.write_all(format!("{line}\n").as_bytes());
    }
}

/// A request, from its head to the end of its answer.
pub struct Request {
    log: Log,
    id: String,
    service: Option<(String, Arc<ServiceMetrics>)>,
    method: Method,
    session: Option<String>,
    began: Instant,
    answered: Option<(StatusCode, Duration)>,
    is_stream: bool,
}

impl Request {
    /// Has begun; `service` is the one that it is for.
    #[must_use]
    pub fn begins(log: Log, asked: &witness::Asked<'_>, service: Option<(String, Arc<ServiceMetrics>)>) -> Self {
        Self {
            log,
            id: asked.id.to_owned(),
            service,
            method: asked.method.clone(),
            session: session(asked.headers),
            began: Instant::now(),
            answered: None,
            is_stream: false,
        }
    }

    fn line(&self, event: &str, ends: bool) {
        let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
        self.log.line(
            event,
            json!({
                "first_byte_ms": self.answered.map(|(_, first)| ms(first)),
                "method": self.method.as_str(),
                "ms": ends.then(|| ms(self.began.elapsed())),
                "request_id": self.id,
                "service": self.service.as_ref().map(|(name, _)| name),
                "session": self.session,
                "status": self.answered.map(|(status, _)| status.as_u16()),
            }),
        );
    }
}

/// A session as it is logged: who reads the log must not be able to use it.
fn session(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(SESSION)?;
    Some(hex::encode(&canon::sha256(id.as_bytes())[..8]))
}

impl witness::Witness for Request {
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        let first = self.began.elapsed();
        self.answered = Some((status, first));
        if self.session.is_none() {
            self.session = session(headers);
        }
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        self.is_stream = kind.starts_with("text/event-stream");
        if self.is_stream {
            self.service.iter().for_each(|(_, metrics)| metrics.stream_opened());
            self.line("stream_opened", false);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some((_, metrics)) = &self.service {
            metrics.request(
                &self.method,
                self.answered.map(|(status, _)| status),
                self.answered.map(|(_, first)| first),
            );
            if self.is_stream {
                metrics.stream_closed();
            }
        }
        self.line(if self.is_stream { "stream_closed" } else { "request" }, true);
    }
}
