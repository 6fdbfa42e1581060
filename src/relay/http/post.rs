//! Messages of ours to the upstream, on behalf of a client's exchange: answers to what a guard withheld.

use super::{
    headers::{self, RequestRules},
    reduce::{Origin, Reducer},
    source::Source,
    tap::{Course, Keep, Tap, Upload},
    upstream::{Lines, Upstream},
};
use crate::relay::log::{AnsweredBy, BodyEnd, Cause, Entry, Flow};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body::Body as _;
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};
use tokio::time::timeout;

/// How long the upstream may take to accept a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends messages for one exchange.
#[derive(Clone)]
pub(super) struct Poster {
    pub(super) upstream: Arc<Upstream>,
    pub(super) reducer: Reducer,
    pub(super) authority: HeaderValue,
    pub(super) inject: Vec<(HeaderName, HeaderValue)>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) origin: Origin,
    /// The exchange's own: its session, credentials and version are in there.
    pub(super) headers: HeaderMap,
    pub(super) uri: Uri,
    /// Where messages go instead, once a stream of the old transport has named it.
    pub(super) endpoint: Arc<OnceLock<Uri>>,
    /// The header with our token.
    pub(super) strip: Option<HeaderName>,
}

impl Poster {
    /// Sends a message, in a task and over a connection of its own.
    pub(super) fn post(&self, body: Bytes) {
        let this = self.clone();
        tokio::spawn(async move {
            // An upstream that does not take it has been told as well as it could be.
            let _ = timeout(PATIENCE, this.send(body)).await;
        });
    }

    async fn send(self, body: Bytes) {
        let log = self.upstream.log.clone();
        let number = log.begin();
        let lines = Lines::new(self.upstream.clone(), false);
        let Ok(to_h2) = lines.will_speak_h2().await else { return };
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.get().unwrap_or(&self.uri).clone();
        *request.headers_mut() = of_message(&self.headers, body.len());
        let (head, ()) = request.into_parts();
        let (flow, back) = (Flow::request(number), Flow::response(number));
        log.put(flow, &Entry::Request(self.reducer.request(&head, &self.origin, true, true)));
        let course = Course::new(self.stopping.clone());
        let source = Source::Held(body, None);
        let tap = Tap::new(source, log.clone(), flow, Keep::Own, course.clone(), Cause::UpstreamLost);
        let rules = RequestRules {
            authority: &self.authority,
            inject: &self.inject,
            strip: self.strip.clone(),
            identity: true,
            to_h2,
            unframed: false,
        };
        let headers = headers::of_request(&head.headers, &rules);
        let mut request = Request::from_parts(head, Upload::new(tap));
        *request.headers_mut() = headers;
        let Ok(answered) = lines.send(request, to_h2).await else {
            let end = BodyEnd { bytes: 0, cause: Cause::UpstreamLost, trailers: Vec::new(), sha256: None };
            log.put(back, &Entry::End(end));
            return;
        };
        let (parts, body) = answered.response.into_parts();
        let (status, by) = (parts.status.as_u16(), AnsweredBy::Upstream);
        let reduced = self.reducer.response(by, status, parts.version, &parts.headers, answered.reused);
        log.put(back, &Entry::Response(reduced));
        let mut tap = Tap::new(body, log, back, Keep::Bytes, course, Cause::ClientGone);
        while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut tap).poll_frame(cx)).await {}
        drop(answered.lease);
    }
}

/// The headers of an exchange, for another message of its client.
fn of_message(headers: &HeaderMap, len: usize) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len() + 3);
    for (name, value) in headers {
        let of_body = name.as_str().starts_with("content-") || name.as_str().starts_with("mcp-param-");
        let other = matches!(
            name.as_str(),
            "accept" | "expect" | "last-event-id" | "mcp-method" | "mcp-name" | "te" | "trailer" | "transfer-encoding"
        );
        if !of_body && !other {
            out.append(name.clone(), value.clone());
        }
    }
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    out.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    out.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    out
}
