//! The connections to the upstream that belong to one connection of a client. They are never shared between clients: an
//! upstream may tie a session to a connection, and a slow client must slow down nobody else.

use super::{
    connect::{ConnectError, Connector, UpstreamHttp},
    metered::{Marks, Metered, Out},
    source::Source,
    tap::Upload,
};
use crate::relay::log::ExchangeLog;
use http::{Request, Response, Uri, Version, uri::PathAndQuery};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::{
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

/// Bytes of a head, and of what waits to be written.
pub(super) const BUFFER: usize = 64 << 10;
/// Lines of a head.
pub(super) const MAX_HEADERS: usize = 128;

/// What is sent to an upstream.
pub(super) type Sent = Request<Upload<Source>>;

/// The upstream of all clients.
pub(super) struct Upstream {
    pub(super) connector: Connector,
    pub(super) http: UpstreamHttp,
    /// Scheme and authority for HTTP/2.
    pub(super) base: Uri,
    pub(super) log: Arc<dyn ExchangeLog>,
}

/// The upstream's connections of one client.
pub(super) struct Lines {
    upstream: Arc<Upstream>,
    /// The client speaks HTTP/2, so the upstream may.
    both: bool,
    idle: Mutex<Vec<H1>>,
    h2: tokio::sync::Mutex<Option<H2>>,
    /// It was asked, and does not.
    only_h1: AtomicBool,
}

struct H1 {
    sender: http1::SendRequest<Upload<Source>>,
    marks: Arc<Marks>,
    _task: Ends,
    used: bool,
    since: Instant,
}

#[derive(Clone)]
struct H2 {
    sender: http2::SendRequest<Upload<Source>>,
    marks: Arc<Marks>,
    _task: Arc<Ends>,
}

/// A task that ends with its owner.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T> From<JoinHandle<T>> for Ends {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum SendError {
    /// There is no connection, and nothing was sent.
    Connect(ConnectError),
    /// The answer's head is no HTTP that can be passed on.
    NotHttp(String),
    /// It hung up after something was sent.
    Lost,
}

/// An answer's head, and its connection.
pub(super) struct Answered {
    pub(super) response: Response<Incoming>,
    pub(super) lease: Lease,
    /// The connection had carried an exchange before.
    pub(super) reused: bool,
    /// It was sent once more, over a new connection.
    pub(super) retried: bool,
}

/// A connection while it carries an exchange. Dropped before the answer is over, it is closed: so the upstream learns that
/// nobody waits any more.
pub(super) struct Lease {
    line: Option<H1>,
    home: Arc<Lines>,
}

impl Lease {
    /// The exchange is over: the next one may have the connection.
    pub(super) fn release(mut self) {
        if let Some(mut line) = self.line.take() {
            line.used = true;
            line.since = Instant::now();
            self.home.idle().push(line);
        }
    }
}

impl Lines {
    pub(super) fn new(upstream: Arc<Upstream>, client_speaks_h2: bool) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            both: client_speaks_h2,
            idle: Mutex::default(),
            h2: tokio::sync::Mutex::default(),
            only_h1: AtomicBool::new(false),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<H1>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which HTTP requests will go out with, as far as it is known: headers differ.
    pub(super) async fn will_speak_h2(&self) -> Result<bool, SendError> {
        match self.upstream.http {
            UpstreamHttp::Http1 => Ok(false),
            UpstreamHttp::Http2 => Ok(true),
            UpstreamHttp::Auto if !self.both || self.only_h1.load(Ordering::Relaxed) => Ok(false),
            UpstreamHttp::Auto => Ok(self.h2().await?.is_some()),
        }
    }

    /// Sends a request, over a connection that is there or a new one. One that turns out to be closed before anything was
    /// written is replaced once.
    pub(super) async fn send(self: &Arc<Self>, request: Sent, over_h2: bool) -> Result<Answered, SendError> {
        if over_h2 { self.send_h2(request).await } else { self.send_h1(request).await }
    }

    async fn send_h1(self: &Arc<Self>, mut request: Sent) -> Result<Answered, SendError> {
        *request.version_mut() = Version::HTTP_11;
        let mut retried = false;
        loop {
            let idle = if retried { None } else { self.take_idle().await };
            let mut line = match idle {
                Some(line) => line,
                None => self.open_h1().await?,
            };
            request.body().lock().set_out(Some(line.marks.clone()));
            let reused = line.used;
            match line.sender.try_send_request(request).await {
                Ok(response) => {
                    let lease = Lease { line: Some(line), home: self.clone() };
                    return Ok(Answered { response, lease, reused, retried });
                }
                Err(e) => request = again(e, retried)?,
            }
            retried = true;
        }
    }

    async fn send_h2(self: &Arc<Self>, mut request: Sent) -> Result<Answered, SendError> {
        *request.version_mut() = Version::HTTP_2;
        let target = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut uri = self.upstream.base.clone().into_parts();
        uri.path_and_query = Some(target);
        *request.uri_mut() = Uri::from_parts(uri).map_err(|e| SendError::NotHttp(e.to_string()))?;
        let mut retried = false;
        loop {
            let reused = self.h2.lock().await.is_some();
            let Some(mut line) = self.h2().await? else { return Err(SendError::Lost) };
            request.body().lock().set_out(Some(line.marks.clone()));
            match line.sender.try_send_request(request).await {
                Ok(response) => {
                    let lease = Lease { line: None, home: self.clone() };
                    return Ok(Answered { response, lease, reused, retried });
                }
                Err(e) => request = again(e, retried)?,
            }
            *self.h2.lock().await = None;
            retried = true;
        }
    }

    async fn take_idle(&self) -> Option<H1> {
        loop {
            let mut line = self.idle().pop()?;
            if line.since.elapsed().as_secs() >= 1 {
                // Its task sees an end of file that has come meanwhile.
                tokio::task::yield_now().await;
            }
            if line.sender.ready().await.is_ok() {
                return Some(line);
            }
        }
    }

    async fn open_h1(&self) -> Result<H1, SendError> {
        let connected = self.upstream.connector.connect(UpstreamHttp::Http1).await.map_err(SendError::Connect)?;
        self.start_h1(connected.io).await
    }

    async fn start_h1(&self, io: Box<dyn super::connect::Duplex>) -> Result<H1, SendError> {
        let out = Out::new(false);
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_buf_size(BUFFER)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(Metered::upstream(io, out.clone())))
            .await
            .map_err(|_| SendError::Lost)?;
        let task = tokio::spawn(connection).into();
        let marks = out.of(self.upstream.log.clone());
        Ok(H1 { sender, marks, _task: task, used: false, since: Instant::now() })
    }

    /// The HTTP/2 connection; `None` if the upstream does not speak it.
    async fn h2(&self) -> Result<Option<H2>, SendError> {
        let mut slot = self.h2.lock().await;
        if self.only_h1.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(line) = slot.as_ref().filter(|line| !line.sender.is_closed()) {
            return Ok(Some(line.clone()));
        }
        let connected = self.upstream.connector.connect(self.upstream.http).await.map_err(SendError::Connect)?;
        if self.upstream.http == UpstreamHttp::Auto && !connected.chose_h2 {
            self.only_h1.store(true, Ordering::Relaxed);
            let line = self.start_h1(connected.io).await?;
            self.idle().push(line);
            return Ok(None);
        }
        let out = Out::new(true);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(16 << 20)
            .max_header_list_size(BUFFER as u32)
            .handshake(TokioIo::new(Metered::upstream(connected.io, out.clone())))
            .await
            .map_err(|_| SendError::Lost)?;
        let marks = out.of(self.upstream.log.clone());
        let line = H2 { sender, marks, _task: Arc::new(tokio::spawn(connection).into()) };
        *slot = Some(line.clone());
        Ok(Some(line))
    }
}

/// The request, if nothing of it was written and it was not sent twice.
fn again(mut error: TrySendError<Sent>, retried: bool) -> Result<Sent, SendError> {
    if let Some(request) = error.take_message().filter(|_| !retried) {
        return Ok(request);
    }
    let error = error.into_error();
    if error.is_parse() { Err(SendError::NotHttp(error.to_string())) } else { Err(SendError::Lost) }
}
