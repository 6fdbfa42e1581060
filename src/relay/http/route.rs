//! Where the requests of a connection go: to the one upstream of a listener, or to one of several.

use super::{
    access::{self, Access},
    answer::{Answer, drain_unrecorded},
    browser,
    connect::{Connector, UpstreamHttp},
    forward::{Client, HangUp, Shared, Wire},
    host::{Host, Peer},
    reduce::Reducer,
    review::{OwnReply, Reviewer},
    stop::Stop,
    upstream::{Lines, Upstream},
    witness::{Asked, REQUEST_ID, Witness, request_id},
};
use crate::relay::log::{Entry, ExchangeLog, Flow, NoteCode};
use http::{HeaderName, HeaderValue, Request, Response, Uri, Version, header, uri::PathAndQuery};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use std::{
    collections::VecDeque,
    fmt, io,
    str::FromStr as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use url::Url;

/// An upstream, and how it is recorded.
#[derive(Clone)]
pub struct TargetConfig {
    /// The upstream. Its path is the endpoint's.
    pub url: Url,
    /// Makes the connections to it.
    pub connector: Connector,
    /// Which HTTP is spoken with it.
    pub http: UpstreamHttp,
    /// Headers that replace what the client sent.
    pub inject: Vec<(HeaderName, HeaderValue)>,
    /// Paths of the endpoint besides the URL's.
    pub endpoints: Vec<String>,
    /// Who may use it.
    pub access: Access,
    /// Its path is another one for clients, and others stand beside it.
    pub is_one_of_several: bool,
    /// What of heads may be evidence.
    pub reducer: Reducer,
    /// Where everything is put.
    pub log: Arc<dyn ExchangeLog>,
    /// A guard.
    pub reviewer: Option<Arc<dyn Reviewer>>,
}

/// An upstream that requests can be sent to.
#[derive(Clone)]
pub struct Target {
    pub(super) shared: Arc<Shared>,
    /// Path and query of its endpoint.
    endpoint: Arc<(String, Option<String>)>,
}

impl Target {
    /// Makes one. Nothing is connected yet.
    ///
    /// # Errors
    /// A URL that no request can be made for.
    pub fn new(config: TargetConfig) -> io::Result<Self> {
        let bad = |e: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
        let host = config.url.host_str().unwrap_or_default();
        let authority = config.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let base = Uri::from_str(&format!("{}://{authority}/", config.url.scheme())).map_err(|e| bad(&e))?;
        let endpoints = [vec![config.url.path().to_owned()], config.endpoints].concat();
        let upstream = Upstream { connector: config.connector, http: config.http, base, log: config.log.clone() };
        let endpoint = (config.url.path().to_owned(), config.url.query().map(ToOwned::to_owned));
        let shared = Shared {
            log: config.log,
            reducer: config.reducer,
            access: config.access,
            upstream: Arc::new(upstream),
            authority: HeaderValue::from_str(&authority).map_err(|e| bad(&e))?,
            origin: config.url.origin(),
            inject: config.inject,
            endpoints,
            is_one_of_several: config.is_one_of_several,
            learned: Mutex::new(VecDeque::new()),
            reviewer: config.reviewer,
            held: AtomicUsize::new(0),
            open: Arc::default(),
            stopping: Arc::default(),
            stop: Stop::default(),
        };
        Ok(Self { shared: Arc::new(shared), endpoint: Arc::new(endpoint) })
    }

    /// No request is sent to it any more, its streams are closed, calls in flight are waited for.
    pub fn drain(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.stop.drain();
    }

    /// Nothing of it is waited for.
    pub fn end(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.stop.end();
    }

    /// Exchanges with it that are not over.
    #[must_use]
    pub fn open(&self) -> usize {
        Arc::strong_count(&self.shared.open) - 1
    }

    /// The URI of a request to the endpoint: its own query stands behind that of the upstream.
    fn at_endpoint(&self, asked: &Uri) -> Result<Uri, http::Error> {
        let (path, query) = &*self.endpoint;
        let both = [query.as_deref(), asked.query()].into_iter().flatten().collect::<Vec<_>>().join("&");
        let target = if both.is_empty() { path.clone() } else { format!("{path}?{both}") };
        let mut parts = asked.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::from_maybe_shared(target)?);
        Ok(Uri::from_parts(parts)?)
    }
}

/// Where a request goes that is sent to a listener with several upstreams.
pub enum Found {
    /// To the endpoint of this one.
    Upstream(Target),
    /// To us.
    Host(Arc<dyn Host>),
    /// Nowhere.
    Answer {
        /// The answer to who may use the listener.
        reply: OwnReply,
        /// More headers of it.
        headers: Vec<(HeaderName, HeaderValue)>,
        /// Everybody gets it.
        public: bool,
    },
}

/// The routes of a listener with several upstreams. They are looked up for each request, so that must not wait.
pub trait Routes: Send + Sync {
    /// Where a request goes.
    fn find(&self, asked: &Asked<'_>) -> Found;

    /// Who sees how it goes.
    fn witness(&self, asked: &Asked<'_>) -> Box<dyn Witness>;
}

/// Where the requests of a listener go.
pub(super) enum Serves {
    One(Target),
    Several(Arc<dyn Routes>),
}

/// What all connections of a listener share.
pub(super) struct Front {
    pub(super) serves: Serves,
    pub(super) access: Access,
    pub(super) head_time: Duration,
    pub(super) stop: Stop,
}

/// A connection of a client: takes its requests to where they go.
pub(super) struct Desk {
    front: Arc<Front>,
    wire: Arc<Wire>,
    /// One for each upstream that it has sent requests to.
    clients: Mutex<Vec<Arc<Client>>>,
}

impl Desk {
    pub(super) fn new(front: Arc<Front>, wire: Arc<Wire>) -> Self {
        Self { front, wire, clients: Mutex::default() }
    }

    /// Answers one request.
    pub(super) async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Answer>, HangUp> {
        match &self.front.serves {
            Serves::One(target) => self.client(&target.shared).serve(request).await,
            Serves::Several(routes) => self.serve_one_of_several(&**routes, request).await,
        }
    }

    async fn serve_one_of_several(
        &self,
        routes: &dyn Routes,
        mut request: Request<Incoming>,
    ) -> Result<Response<Answer>, HangUp> {
        let id = request_id(request.headers());
        let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
        let asked = Asked { method, path, headers, id: &id };
        let (found, mut witness) = (routes.find(&asked), routes.witness(&asked));
        let mut response = match found {
            Found::Upstream(target) => {
                let Ok(uri) = target.at_endpoint(request.uri()) else { return Err(HangUp) };
                *request.uri_mut() = uri;
                browser::without_logins(request.headers_mut());
                let mut response = self.client(&target.shared).serve(request).await?;
                browser::tame(response.headers_mut());
                response
            }
            Found::Host(host) => self.hosted(request, &*host, &id).await,
            Found::Answer { reply, headers, public } => self.answer(request, reply, headers, public),
        };
        witness.answered(response.status(), response.headers());
        if let Answer::Upstream(passing) = response.body_mut() {
            passing.seen_by(witness);
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            // One of the upstream's own stays.
            response.headers_mut().entry(REQUEST_ID).or_insert(id);
        }
        Ok(response)
    }

    fn client(&self, shared: &Arc<Shared>) -> Arc<Client> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.iter().find(|client| Arc::ptr_eq(&client.shared, shared)) {
            return client.clone();
        }
        // Nothing more is sent there.
        clients.retain(|client| !client.shared.stop.is_asked());
        let client = Arc::new(Client {
            shared: shared.clone(),
            wire: self.wire.clone(),
            marks: self.wire.out.of(shared.log.clone()),
            lines: Lines::new(shared.upstream.clone(), self.wire.is_h2),
        });
        clients.push(client.clone());
        client
    }

    async fn hosted(&self, request: Request<Incoming>, host: &dyn Host, id: &str) -> Response<Answer> {
        let (head, body) = request.into_parts();
        let access = Access { token: None, ..self.front.access.clone() };
        let answer = match access::admit(&access, &head, self.wire.local) {
            Ok(_) => {
                let from = Peer { address: self.wire.origin.peer.clone(), is_user: self.wire.local.is_none() };
                host.answer(Request::from_parts(head, body), &from, id).await
            }
            Err(denied) => host.refuse(denied.status, denied.why, id),
        };
        answer.map(Answer::Hosted)
    }

    /// An answer of ours, to a request that goes to no upstream: it is in no recording.
    fn answer(
        &self,
        request: Request<Incoming>,
        reply: OwnReply,
        more: Vec<(HeaderName, HeaderValue)>,
        public: bool,
    ) -> Response<Answer> {
        let (head, body) = request.into_parts();
        let denied = if public { None } else { access::admit(&self.front.access, &head, self.wire.local).err() };
        let (reply, more) = match denied {
            Some(denied) => (OwnReply::line(denied.status, denied.why), Vec::new()),
            None => (reply, more),
        };
        let mut headers = super::forward::headers_of(&reply, None);
        headers.extend(more);
        if !body.is_end_stream() {
            drain_unrecorded(body);
            if head.version != Version::HTTP_2 {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
        }
        let mut response = Response::new(Answer::Unrecorded(Full::new(reply.body)));
        *response.status_mut() = reply.status;
        *response.headers_mut() = headers;
        response
    }

    /// Its requests cannot be read.
    pub(super) fn unreadable(&self, why: &hyper::Error) {
        match &self.front.serves {
            Serves::One(target) => {
                let log = &target.shared.log;
                let text = format!("the request cannot be read: {why}");
                log.put(Flow::request(log.begin()), &Entry::Note { code: NoteCode::BadFraming, text: &text });
            }
            // Nobody knows whose it is.
            Serves::Several(_) => tracing::debug!(error = %why, "a request cannot be read"),
        }
    }
}
