//! One exchange: the request to the upstream, the answer to the client, both through the log.

use super::{
    access::{self, Access, Admitted},
    answer::{Answer, Passing, drain},
    connect::ConnectError,
    endpoint::FirstEvent,
    headers::{self, Front, RequestRules},
    metered::{Marks, Out},
    post::Poster,
    reduce::{self, Reducer},
    review::{AnswerVerdict, Head, OwnReply, RequestFacts, Reviewer, Reviewing, Verdict},
    reviewed::Reviewed,
    source::Source,
    stop::{Level, Stop},
    tap::{Broken, Course, Keep, Tap, Upload},
    upstream::{Answered, Lines, SendError, Upstream},
};
use crate::relay::log::{AnsweredBy, BodyEnd, Cause, Entry, ExchangeLog, Flow, NoteCode};
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request,
    uri::PathAndQuery,
};
use http_body::Body as _;
use http_body_util::Full;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;

/// Bytes of all held requests together.
const HELD_TOGETHER: usize = 64 << 20;
/// How long a held request may send nothing.
const HELD_PATIENCE: Duration = Duration::from_secs(60);
/// Targets of the old transport that are remembered.
const LEARNED: usize = 4096;

/// What all clients of a listener share.
pub(super) struct Shared {
    pub(super) log: Arc<dyn ExchangeLog>,
    pub(super) reducer: Reducer,
    pub(super) access: Access,
    pub(super) upstream: Arc<Upstream>,
    pub(super) authority: HeaderValue,
    pub(super) origin: url::Origin,
    pub(super) inject: Vec<(HeaderName, HeaderValue)>,
    /// Paths of the endpoint.
    pub(super) endpoints: Vec<String>,
    /// Its path is another one for clients, and others stand beside it.
    pub(super) is_one_of_several: bool,
    /// Digests of the paths that `endpoint` events named.
    pub(super) learned: Mutex<VecDeque<String>>,
    pub(super) reviewer: Option<Arc<dyn Reviewer>>,
    /// Bytes of requests that are held.
    pub(super) held: AtomicUsize,
    /// Held by each exchange that is not over.
    pub(super) open: Arc<()>,
    /// It stops: set with the next one.
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) stop: Stop,
}

/// One connection of a client.
pub(super) struct Wire {
    pub(super) origin: reduce::Origin,
    /// Where the client connected to; `None` is a Unix socket.
    pub(super) local: Option<SocketAddr>,
    pub(super) out: Arc<Out>,
    pub(super) is_h2: bool,
    /// The request that is answered on a connection of HTTP/1.
    pub(super) current: Mutex<Weak<Mutex<Tap<Source>>>>,
}

impl Wire {
    /// Whether a request is whole and its answer is not: what is not read then belongs to a later request.
    pub(super) fn is_answering(&self) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Upload::upgrade(&current).is_some_and(|upload| upload.lock().is_over())
    }
}

/// One connection of a client, to one upstream.
pub(super) struct Client {
    pub(super) shared: Arc<Shared>,
    pub(super) wire: Arc<Wire>,
    pub(super) marks: Arc<Marks>,
    pub(super) lines: Arc<Lines>,
}

/// The client gets no answer: its connection is closed, or its stream reset.
#[derive(Debug)]
pub(super) struct HangUp;

impl fmt::Display for HangUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the upstream hung up without an answer")
    }
}

impl std::error::Error for HangUp {}

/// An exchange until its answer begins. Dropped before, it ends without one: the client has gone.
struct Exchange {
    number: u64,
    log: Arc<dyn ExchangeLog>,
    course: Arc<Course>,
    upload: Upload<Source>,
    is_h2: bool,
    answered: bool,
    /// The page that may read the answer.
    page: Option<HeaderValue>,
    /// It is not over.
    open: Arc<()>,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.answered {
            let cause = self.course.cause_or(Cause::ClientGone);
            let end = BodyEnd { bytes: 0, cause, trailers: Vec::new(), sha256: None };
            self.log.put(Flow::response(self.number), &Entry::End(end));
        }
    }
}

impl Exchange {
    fn note(&self, code: NoteCode, text: &str) {
        self.log.put(Flow::request(self.number), &Entry::Note { code, text });
    }
}

impl Shared {
    fn is_endpoint(&self, path: &str) -> (bool, bool) {
        let named = self.endpoints.iter().any(|e| e.trim_end_matches('/') == path.trim_end_matches('/'));
        let clear = named || path.starts_with("/.well-known/");
        if named {
            return (true, clear);
        }
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_learned = !learned.is_empty() && learned.contains(&self.reducer.digests().of(path.as_bytes()));
        (is_learned, clear)
    }

    /// Requests to this path are messages from now on. It may carry a session's id, so it is kept as a digest.
    fn learn(&self, path: &str) {
        let digest = self.reducer.digests().of(path.as_bytes());
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.contains(&digest) {
            return;
        }
        if learned.len() >= LEARNED {
            learned.pop_front();
        }
        learned.push_back(digest);
    }
}

impl Client {
    /// Answers one request.
    pub(super) async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Answer>, HangUp> {
        let shared = &self.shared;
        let (mut head, body) = request.into_parts();
        head.extensions.remove::<OnUpgrade>();
        let number = shared.log.begin();
        let (endpoint, clear) = shared.is_endpoint(head.uri.path());
        let reduced = shared.reducer.request(&head, &self.wire.origin, endpoint, clear);
        let flow = Flow::request(number);
        shared.log.put(flow, &Entry::Request(reduced.clone()));
        let admitted = access::admit(&shared.access, &head, self.wire.local);
        let course = Course::new(shared.stopping.clone());
        let keep = if endpoint && admitted.is_ok() { Keep::Bytes } else { Keep::Hash };
        let source = Source::Client(body);
        let tap = Tap::new(source, shared.log.clone(), flow, keep, course.clone(), Cause::UpstreamLost);
        let is_h2 = head.version == Version::HTTP_2;
        let upload = Upload::new(tap);
        if !is_h2 {
            *self.wire.current.lock().unwrap_or_else(PoisonError::into_inner) = upload.downgrade();
        }
        let mut exchange = Exchange {
            number,
            log: shared.log.clone(),
            course,
            upload,
            is_h2,
            answered: false,
            page: None,
            open: shared.open.clone(),
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(denied) => {
                exchange.course.ends_by(Cause::Refused);
                exchange.note(NoteCode::Forbidden, denied.why);
                return Ok(self.reply(&mut exchange, OwnReply::line(denied.status, denied.why)));
            }
        };
        exchange.page = head.headers.get(header::ORIGIN).cloned();
        let mut reviewing = shared.reviewer.clone().map(|reviewer| {
            let target = head.uri.path_and_query().map_or("", PathAndQuery::as_str).to_owned();
            let (method, headers) = (head.method.clone(), head.headers.clone());
            let (has_body, recorded) = (!exchange.upload.is_end_stream(), true);
            let facts = RequestFacts { exchange: number, head: reduced, method, target, headers, has_body, recorded };
            Reviewing { reviewer, facts }
        });
        if let Some(reviewing) = &mut reviewing {
            exchange.upload.lock().ends_late();
            let reviewed = self.review(reviewing, &exchange).await;
            exchange.upload.lock().tell_end();
            if let Err(reply) = reviewed {
                exchange.course.ends_by(Cause::Refused);
                return Ok(self.reply(&mut exchange, reply));
            }
        }
        let identity = endpoint && reviewing.is_some();
        let asked = self.ask(&head, &exchange, admitted.token_in.clone(), identity);
        let answered = tokio::select! {
            answered = asked => answered,
            () = shared.stop.clone().reached(Level::Ends), if shared.is_one_of_several => {
                exchange.course.ends_by(Cause::Shutdown);
                return Ok(self.reply(&mut exchange, OwnReply::line(StatusCode::SERVICE_UNAVAILABLE, "the route was closed")));
            }
        };
        let answered = match answered {
            Ok(answered) => answered,
            Err(error) => return self.no_answer(&mut exchange, &error),
        };
        if answered.retried {
            exchange.note(NoteCode::Retried, "the idle connection was closed; sent over a new one");
        }
        self.answer(exchange, &head, &admitted, answered, reviewing).await
    }

    /// Sends the request.
    async fn ask(
        &self,
        head: &request::Parts,
        exchange: &Exchange,
        token_in: Option<HeaderName>,
        identity: bool,
    ) -> Result<Answered, SendError> {
        let shared = &self.shared;
        let to_h2 = self.lines.will_speak_h2().await?;
        let rules = RequestRules {
            authority: &shared.authority,
            inject: &shared.inject,
            strip: token_in,
            identity,
            to_h2,
            unframed: exchange.is_h2 && !exchange.upload.is_end_stream(),
        };
        let mut request = Request::new(exchange.upload.clone());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = origin_form(&head.uri);
        *request.headers_mut() = headers::of_request(&head.headers, &rules);
        // How the names were written.
        *request.extensions_mut() = head.extensions.clone();
        self.lines.send(request, to_h2).await
    }

    /// Holds the request until it may pass; the reply that it gets otherwise.
    async fn review(&self, reviewing: &mut Reviewing, exchange: &Exchange) -> Result<(), OwnReply> {
        let verdict = if reviewing.facts.head.endpoint {
            let (body, trailers, _held) = self.hold(reviewing, exchange).await?;
            let Reviewing { reviewer, facts } = &mut *reviewing;
            facts.recorded = exchange.upload.lock().is_recorded();
            let verdict = reviewer.review_request(facts, body.clone()).await;
            exchange.upload.lock().replay(Source::Held(body, trailers));
            verdict
        } else {
            let verdict = reviewing.reviewer.review_elsewhere(&reviewing.facts);
            if matches!(verdict, Verdict::Reply(_)) {
                exchange.note(NoteCode::Forbidden, "a guard lets no body pass beside the endpoint");
            }
            verdict
        };
        match verdict {
            Verdict::Pass => Ok(()),
            Verdict::Reply(reply) => Err(reply),
        }
    }

    async fn hold(
        &self,
        Reviewing { reviewer, facts }: &Reviewing,
        exchange: &Exchange,
    ) -> Result<(Bytes, Option<HeaderMap>, Reserved<'_>), OwnReply> {
        let limit = reviewer.max_body();
        let mut upload = exchange.upload.clone();
        if upload.size_hint().lower() > limit as u64 {
            return Err(reviewer.too_large(facts, &[]));
        }
        let mut reserved = Reserved { held: &self.shared.held, bytes: 0 };
        let (mut body, mut trailers) = (BytesMut::new(), None);
        loop {
            let Ok(frame) = timeout(HELD_PATIENCE, poll_fn(|cx| Pin::new(&mut upload).poll_frame(cx))).await else {
                exchange.course.ends_by(Cause::Timeout);
                return Err(OwnReply::line(StatusCode::REQUEST_TIMEOUT, "the request did not go on"));
            };
            match frame {
                None => return Ok((body.freeze(), trailers, reserved)),
                Some(Err(_)) => return Err(Self::broken(exchange)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        if body.len() + bytes.len() > limit || !reserved.more(bytes.len()) {
                            return Err(reviewer.too_large(facts, &body));
                        }
                        body.extend_from_slice(&bytes);
                    }
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    /// What a client gets whose body could not be read.
    fn broken(exchange: &Exchange) -> OwnReply {
        exchange.note(NoteCode::BadFraming, "the framing of the body cannot be read");
        OwnReply::line(StatusCode::BAD_REQUEST, "the framing of the request's body cannot be read")
    }

    /// There is no answer of the upstream.
    fn no_answer(&self, exchange: &mut Exchange, error: &SendError) -> Result<Response<Answer>, HangUp> {
        if exchange.upload.lock().broken() == Some(Broken::Framing) {
            let reply = Self::broken(exchange);
            return Ok(self.reply(exchange, reply));
        }
        exchange.course.ends_by(Cause::UpstreamLost);
        let line = match error {
            SendError::Lost => return Err(HangUp),
            SendError::Connect(e) => {
                // Where it is may be a secret; what is wrong is none.
                let text = match e {
                    ConnectError::Unreachable { why, .. } => why.as_str(),
                    ConnectError::Tls { .. } => "no TLS with the upstream",
                    ConnectError::Proxy { .. } => "the proxy does not connect to the upstream",
                };
                exchange.note(NoteCode::ConnectFailed, text);
                e.to_string()
            }
            SendError::NotHttp(why) => format!("the upstream's answer is no HTTP: {why}"),
        };
        Ok(self.reply(exchange, OwnReply::line(StatusCode::BAD_GATEWAY, &line)))
    }

    /// Passes the upstream's answer on.
    async fn answer(
        &self,
        mut exchange: Exchange,
        head: &request::Parts,
        admitted: &Admitted,
        answered: Answered,
        reviewing: Option<Reviewing>,
    ) -> Result<Response<Answer>, HangUp> {
        let shared = &self.shared;
        let (mut parts, body) = answered.response.into_parts();
        let why = if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            Some("the upstream switched protocols without being asked")
        } else if !headers::is_framing_known(&parts.headers) {
            Some("the upstream's answer has a Transfer-Encoding other than chunked")
        } else if shared.is_one_of_several
            && parts.status.is_redirection()
            && parts.headers.contains_key(header::LOCATION)
        {
            // Whoever followed it would go past us.
            Some("the upstream redirects to another URL: its `url` has to be that one")
        } else {
            None
        };
        if let Some(why) = why {
            drop((body, answered.lease));
            exchange.course.ends_by(Cause::UpstreamLost);
            return Ok(self.reply(&mut exchange, OwnReply::line(StatusCode::BAD_GATEWAY, why)));
        }
        let flow = Flow::response(exchange.number);
        let by = AnsweredBy::Upstream;
        let status = parts.status.as_u16();
        let reduced = shared.reducer.response(by, status, parts.version, &parts.headers, answered.reused);
        let verdict = reviewing.as_ref().map_or(AnswerVerdict::Pass, |Reviewing { reviewer, facts }| {
            reviewer.review_answer(facts, &reduced, &parts.headers)
        });
        let reviewed = reviewing.as_ref().is_some_and(|reviewing| reviewing.facts.head.endpoint);
        if let AnswerVerdict::Reply(reply) = verdict {
            drop((body, answered.lease));
            exchange.course.ends_by(Cause::Refused);
            return Ok(self.reply(&mut exchange, reply));
        }
        shared.log.put(flow, &Entry::Response(reduced));
        let front = Front { upstream: &shared.origin, authority: admitted.authority.as_ref(), to_h2: exchange.is_h2 };
        let (passed, rewrote) = headers::of_response(&parts.headers, &front);
        if rewrote {
            exchange.note(NoteCode::RewroteLocation, "Location was moved to the origin that the client uses");
        }
        let is_stream = is_event_stream(&passed);
        let keep = if reviewed || shared.is_endpoint(head.uri.path()).0 { Keep::Bytes } else { Keep::Hash };
        let is_hollow = parts.status == StatusCode::NOT_MODIFIED && passed.contains_key(header::CONTENT_LENGTH);
        parts.headers = passed;
        // A version that a client of HTTP/1 is told is what the upstream spoke.
        if exchange.is_h2 || parts.version == Version::HTTP_2 {
            parts.version = if exchange.is_h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        }
        // From here on its body says how it ends.
        exchange.answered = true;
        let tap = Tap::new(body, shared.log.clone(), flow, keep, exchange.course.clone(), Cause::ClientGone);
        let mut passing = Passing::new(tap, answered.lease, exchange.upload.clone(), self.marks.clone());
        if is_hollow {
            passing.is_hollow();
        }
        passing.is_open(exchange.open.clone());
        if is_stream && head.method == Method::GET {
            passing.close_on(shared.stop.clone().reached(Level::Drains));
        } else if shared.is_one_of_several {
            passing.close_on(shared.stop.clone().reached(Level::Ends));
        }
        // The old transport has paths of its own, which lead nowhere beside other upstreams.
        let is_endless = is_stream
            && head.method == Method::GET
            && !shared.is_one_of_several
            && !parts.headers.contains_key(header::CONTENT_LENGTH);
        if let AnswerVerdict::Through(review) = verdict {
            let has_length = parts.headers.contains_key(header::CONTENT_LENGTH);
            let resizes = if is_stream { review.resizes() } else { review.head() == Head::Passes };
            if has_length && resizes {
                parts.headers = without(&parts.headers, &[header::CONTENT_LENGTH]);
            }
            let told = Arc::new(OnceLock::new());
            let first = is_endless.then(|| self.first_event(&exchange, &head.uri, reviewing.as_ref(), &told));
            let poster = Poster { endpoint: told, ..self.poster(head, admitted.token_in.clone()) };
            let fills = has_length && is_stream && !resizes;
            passing.judged_by(Box::new(Reviewed { review, poster, first, fills, upto: 0 }), self.marks.clone());
        } else if is_endless {
            let told = Arc::default();
            let first = self.first_event(&exchange, &head.uri, reviewing.as_ref(), &told);
            passing.through(Box::new(first), self.marks.clone());
        }
        match poll_fn(|cx| passing.poll_head(cx)).await {
            Head::Held | Head::Passes => {}
            Head::Resized(bytes) => {
                parts.headers = without(&parts.headers, &OF_ALL_BYTES);
                if let Some(length) = parts.headers.get_mut(header::CONTENT_LENGTH) {
                    *length = HeaderValue::from(bytes);
                }
            }
            Head::Replaced(reply) => {
                exchange.note(NoteCode::Replaced, "the answer may not pass: the client got an error in its place");
                parts.status = reply.status;
                parts.headers = headers_of(&reply, exchange.page.as_ref());
                parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(reply.body.len()));
                // How the names of the other headers were written.
                parts.extensions = http::Extensions::new();
            }
        }
        passing.reviewed_by(reviewing);
        Ok(Response::from_parts(parts, Answer::Upstream(Box::new(passing))))
    }

    fn poster(&self, head: &request::Parts, strip: Option<HeaderName>) -> Poster {
        let shared = &self.shared;
        Poster {
            upstream: shared.upstream.clone(),
            reducer: shared.reducer.clone(),
            authority: shared.authority.clone(),
            inject: shared.inject.clone(),
            stopping: shared.stopping.clone(),
            origin: self.wire.origin.clone(),
            headers: head.headers.clone(),
            uri: origin_form(&head.uri),
            endpoint: Arc::default(),
            strip,
        }
    }

    /// What looks at the first event of a stream for the endpoint of the old transport.
    fn first_event(
        &self,
        exchange: &Exchange,
        uri: &Uri,
        reviewing: Option<&Reviewing>,
        told: &Arc<OnceLock<Uri>>,
    ) -> FirstEvent {
        let (shared, log, number) = (self.shared.clone(), exchange.log.clone(), exchange.number);
        let (path, told) = (uri.path().to_owned(), told.clone());
        let reviewer = reviewing.map(|reviewing| reviewing.reviewer.clone());
        let named = move |target: &str, rewrote: bool| {
            if let Some(path) = path_of(&path, target) {
                shared.learn(&path);
            }
            if let Some(reviewer) = &reviewer {
                reviewer.endpoint(number, target);
            }
            if let Some(uri) = target_below(&path, target) {
                // The first one counts.
                let _ = told.set(uri);
            }
            if rewrote {
                let text = "the endpoint event named a URL of the upstream; the client got the path";
                log.put(Flow::response(number), &Entry::Note { code: NoteCode::RewroteEndpoint, text });
            }
        };
        FirstEvent::new(self.shared.origin.clone(), Box::new(named))
    }

    /// An answer of ours. What the client still sends is read within bounds, so that it gets to the answer.
    fn reply(&self, exchange: &mut Exchange, reply: OwnReply) -> Response<Answer> {
        let mut response = Response::new(());
        *response.status_mut() = reply.status;
        let headers = response.headers_mut();
        *headers = headers_of(&reply, exchange.page.as_ref());
        let unread = !exchange.upload.lock().is_over();
        if unread {
            drain(exchange.upload.clone(), Cause::Refused);
            if !exchange.is_h2 {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
        }
        let flow = Flow::response(exchange.number);
        let version = if exchange.is_h2 { Version::HTTP_2 } else { Version::HTTP_11 };
        let status = reply.status.as_u16();
        let reduced = self.shared.reducer.response(AnsweredBy::Assay, status, version, headers, false);
        self.shared.log.put(flow, &Entry::Response(reduced));
        exchange.answered = true;
        let course = Course::new(self.shared.stopping.clone());
        let body = Full::new(reply.body);
        let mut tap = Tap::new(body, self.shared.log.clone(), flow, Keep::Own, course, Cause::ClientGone);
        tap.set_out(Some(self.marks.clone()));
        response.map(|()| Answer::Own(tap))
    }
}

/// Room in what all held requests may take together.
struct Reserved<'a> {
    held: &'a AtomicUsize,
    bytes: usize,
}

impl Reserved<'_> {
    fn more(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= HELD_TOGETHER
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The headers of an answer of ours; `page`: the origin of the page that may read it.
pub(super) fn headers_of(reply: &OwnReply, page: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, reply.content_type.clone());
    if reply.status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(page) = page {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page.clone());
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    }
    headers
}

/// Path and query as they came, without scheme and authority.
fn origin_form(uri: &Uri) -> Uri {
    uri.path_and_query().cloned().map_or_else(Uri::default, Uri::from)
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|t| t.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Headers that are true of a body only as it was (RFC 9110 §8.8.3, RFC 9530, RFC 3230, RFC 1864).
const OF_ALL_BYTES: [HeaderName; 5] = [
    header::ETAG,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

fn without(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| !names.contains(name));
    let mut out = HeaderMap::with_capacity(headers.len());
    kept.for_each(|(name, value)| {
        out.append(name.clone(), value.clone());
    });
    out
}

/// The path of a target that a document at `path` names.
fn path_of(path: &str, target: &str) -> Option<String> {
    let base = url::Url::parse("http://host").ok()?.join(path).ok()?;
    let url = base.join(target).ok()?;
    // What is asked for is compared as it is written.
    let written = target.split(['?', '#']).next().filter(|t| t.starts_with('/') && !t.starts_with("//"));
    Some(written.map_or_else(|| url.path().to_owned(), ToOwned::to_owned))
}

/// Path and query of a target that a document at `path` names, if it is on the same origin.
fn target_below(path: &str, target: &str) -> Option<Uri> {
    let base = url::Url::parse("http://host").ok()?.join(path).ok()?;
    let url = base.join(target).ok().filter(|url| url.origin() == base.origin())?;
    let written = target.split('#').next().filter(|t| t.starts_with('/') && !t.starts_with("//"));
    written.unwrap_or(&url[url::Position::BeforePath..url::Position::AfterQuery]).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_old_transport_names_is_where_we_post_to() {
        for (target, uri) in [
            ("/m/?session_id=%2f1#x", Some("/m/?session_id=%2f1")),
            ("m?x", Some("/a/m?x")),
            ("?x", Some("/a/sse?x")),
            ("http://other/m", None),
            ("//other/m", None),
        ] {
            let found = target_below("/a/sse", target);
            assert_eq!(found.map(|uri| uri.to_string()).as_deref(), uri, "{target}");
        }
    }

    #[test]
    fn the_path_of_messages_is_found_from_all_ways_to_name_it() {
        for (target, path) in [
            ("/messages/?session_id=1", "/messages/"),
            ("messages?x", "/a/messages"),
            ("?x", "/a/sse"),
            ("/a//b%2f#x", "/a//b%2f"),
            ("http://host/m?y", "/m"),
        ] {
            assert_eq!(path_of("/a/sse", target).as_deref(), Some(path), "{target}");
        }
    }
}
