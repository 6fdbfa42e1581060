//! Requests to the server: connections that are used again, redirects, cookies.

use super::{
    book::{Book, Page, Pages, Purpose},
    cookies::Cookies,
};
use crate::relay::{
    http::connect::{ConnectError, Connector, SetupError, UpstreamHttp, one_line, without_secrets},
    log::{Cause, NoteCode},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header, response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::{
    body::Incoming,
    client::conn::http1::{Builder, SendRequest},
};
use hyper_util::rt::TokioIo;
use std::{
    cell::RefCell,
    convert::Infallible,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use url::Url;

/// Redirects that are followed.
const REDIRECTS: usize = 5;
/// A connection that was idle for longer is not used again: servers close such connections, and what is sent to one that
/// closes is lost.
const IDLE: Duration = Duration::from_secs(3);
/// Connections that are kept.
const KEPT: usize = 16;

/// What is called when a request has been handed to the connection.
pub(super) type Sent = Box<dyn FnOnce()>;

/// The body of a request, in one piece.
pub(super) struct Once {
    bytes: Option<Bytes>,
    sent: Option<Sent>,
}

impl HttpBody for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(sent) = self.sent.take() {
            sent();
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the connection to the server ended before its answer: {0}")]
    Lost(String),
    #[error("the server redirects to {to} (HTTP {status}); give that URL with --upstream-url if it is the right one")]
    Redirected { status: u16, to: String },
    #[error("the server redirects more than {REDIRECTS} times")]
    Redirects,
    #[error("this request cannot be sent: {0}")]
    Unsendable(String),
}

/// Sends requests to one origin.
pub(super) struct Client {
    connector: Connector,
    origin: url::Origin,
    over_tls: bool,
    /// What every request has, and what stands above it.
    fixed: HeaderMap,
    cookies: RefCell<Cookies>,
    pages: Option<Pages>,
    idle: RefCell<Vec<(Instant, SendRequest<Once>)>>,
}

/// An answer whose body has not been read.
pub(super) struct Reply {
    pub(super) head: response::Parts,
    pub(super) body: Body,
}

/// A body. When it has been read to its end, its connection is used again.
pub(super) struct Body {
    incoming: Incoming,
    connection: Option<SendRequest<Once>>,
    client: Rc<Client>,
    page: Option<Page>,
}

impl Client {
    pub(super) fn new(
        connector: Connector,
        url: &Url,
        headers: &[(HeaderName, HeaderValue)],
        book: Option<Book>,
    ) -> Result<Self, SetupError> {
        let mut fixed = HeaderMap::new();
        let agent = concat!("assay/", env!("CARGO_PKG_VERSION"));
        fixed.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        if !url.username().is_empty() {
            let decode = |text| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
            let pair = [&decode(url.username())[..], b":", &decode(url.password().unwrap_or_default())].concat();
            let mut basic = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)))
                .map_err(|_| SetupError::Url(without_secrets(url)))?;
            basic.set_sensitive(true);
            fixed.insert(header::AUTHORIZATION, basic);
        }
        for (name, _) in headers {
            fixed.remove(name);
        }
        for (name, value) in headers {
            fixed.append(name, value.clone());
        }
        let over_tls = url.scheme() == "https";
        Ok(Self {
            connector,
            origin: url.origin(),
            over_tls,
            fixed,
            cookies: RefCell::default(),
            pages: book.map(|book| Pages::new(book, url.path())),
            idle: RefCell::default(),
        })
    }

    /// Whether a URL is one of the server's origin.
    pub(super) fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.origin
    }

    /// Notes in the log something that is about no exchange.
    pub(super) fn note(&self, code: NoteCode, text: &str) {
        if let Some(pages) = &self.pages {
            pages.note(code, text);
        }
    }

    /// What is given up from here on ends because the bridge does.
    pub(super) fn close(&self) {
        if let Some(pages) = &self.pages {
            pages.close();
        }
    }

    /// Sends one request. `sent` is called when it has been handed to a connection: requests that are sent one after the
    /// other in this sense leave in that order.
    pub(super) async fn send(
        self: &Rc<Self>,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
        purpose: &Purpose,
        sent: Option<Sent>,
    ) -> Result<Reply, SendError> {
        let (mut url, mut sent) = (url.clone(), sent);
        for _ in 0..=REDIRECTS {
            let request = self.request(&method, &url, headers, body.clone(), sent.take())?;
            let (head, once) = request.into_parts();
            let page = self.pages.as_ref().map(|pages| pages.begin(&head, &body, purpose));
            let reply = self.once(Request::from_parts(head, once), page).await?;
            self.cookies.borrow_mut().take(&reply.head.headers, url.path());
            let status = reply.head.status;
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(reply);
            }
            if let Some(page) = &reply.body.page {
                page.note(NoteCode::Redirected, "the server redirects to another place");
            }
            let location = reply.head.headers.get(header::LOCATION).and_then(|v| v.to_str().ok());
            let target = location.and_then(|location| url.join(location).ok());
            let is_same = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            match target {
                Some(target) if is_same && self.is_own(&target) => url = target,
                target => {
                    let to = target.map_or_else(|| "no place".to_owned(), |t| t.origin().ascii_serialization());
                    return Err(SendError::Redirected { status: status.as_u16(), to });
                }
            }
        }
        Err(SendError::Redirects)
    }

    fn request(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
        sent: Option<Sent>,
    ) -> Result<Request<Once>, SendError> {
        let unsendable = |e: &dyn std::fmt::Display| SendError::Unsendable(e.to_string());
        let has_body = method == Method::POST;
        let mut request = Request::new(Once { bytes: has_body.then_some(body), sent });
        *request.method_mut() = method.clone();
        let target = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        *request.uri_mut() = target.parse().map_err(|e| unsendable(&e))?;
        let host = url.port().map_or_else(
            || url.host_str().unwrap_or_default().to_owned(),
            |port| format!("{}:{port}", url.host_str().unwrap_or_default()),
        );
        let all = request.headers_mut();
        all.insert(header::HOST, HeaderValue::from_str(&host).map_err(|e| unsendable(&e))?);
        all.extend(headers.clone());
        for name in self.fixed.keys() {
            all.remove(name);
        }
        all.extend(self.fixed.clone());
        if !all.contains_key(header::COOKIE) {
            all.extend(self.cookies.borrow().header(url.path(), self.over_tls).map(|value| (header::COOKIE, value)));
        }
        Ok(request)
    }

    async fn once(self: &Rc<Self>, mut request: Request<Once>, mut page: Option<Page>) -> Result<Reply, SendError> {
        loop {
            let (mut connection, is_new) = match self.kept() {
                Some(connection) => (connection, false),
                None => match self.connect().await {
                    Ok(connection) => (connection, true),
                    Err(e) => {
                        if let Some(page) = &mut page {
                            page.note(NoteCode::ConnectFailed, &e.to_string());
                            page.end(Cause::UpstreamLost);
                        }
                        return Err(e);
                    }
                },
            };
            match connection.try_send_request(request).await {
                Ok(response) => {
                    let (head, incoming) = response.into_parts();
                    if let Some(page) = &mut page {
                        page.answered(&head, !is_new);
                    }
                    if incoming.is_end_stream()
                        && let Some(page) = &mut page
                    {
                        page.end(Cause::Complete);
                    }
                    let body = Body { incoming, connection: Some(connection), client: self.clone(), page };
                    return Ok(Reply { head, body });
                }
                Err(mut e) => match e.take_message() {
                    // Nothing of it was sent, as the connection had been closed meanwhile.
                    Some(unsent) if !is_new => {
                        if let Some(page) = &page {
                            page.note(NoteCode::Retried, "the connection had been closed; nothing was sent on it");
                        }
                        request = unsent;
                    }
                    _ => {
                        if let Some(page) = &mut page {
                            page.end(Cause::UpstreamLost);
                        }
                        return Err(SendError::Lost(one_line(e.error())));
                    }
                },
            }
        }
    }

    fn kept(&self) -> Option<SendRequest<Once>> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(since, connection)| since.elapsed() < IDLE && connection.is_ready());
        idle.pop().map(|(_, connection)| connection)
    }

    async fn connect(&self) -> Result<SendRequest<Once>, SendError> {
        let connected = self.connector.connect(UpstreamHttp::Http1).await?;
        let mut builder = Builder::new();
        builder.title_case_headers(true).max_headers(128);
        let shaken = builder.handshake::<_, Once>(TokioIo::new(connected.io)).await;
        let (connection, driver) = shaken.map_err(|e| SendError::Lost(one_line(&e)))?;
        tokio::task::spawn_local(async move {
            if let Err(e) = driver.await {
                tracing::debug!(error = %e, "a connection to the server ended");
            }
        });
        Ok(connection)
    }
}

impl Body {
    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.incoming.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if let Some(page) = &mut self.page {
                            page.piece(&data);
                        }
                        return Some(Ok(data));
                    }
                }
                Some(Err(e)) => {
                    self.end(Cause::UpstreamLost);
                    return Some(Err(one_line(&e)));
                }
                None => {
                    self.end(Cause::Complete);
                    let mut idle = self.client.idle.borrow_mut();
                    if let Some(connection) = self.connection.take().filter(|_| idle.len() < KEPT) {
                        idle.push((Instant::now(), connection));
                    }
                    return None;
                }
            }
        }
    }

    fn end(&mut self, cause: Cause) {
        if let Some(page) = &mut self.page {
            page.end(cause);
        }
    }

    /// All of it, if it is not larger than this many bytes.
    pub(super) async fn all(mut self, limit: usize) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if all.len() + piece.len() > limit {
                return Err(format!("it is larger than {}", crate::text::counted(limit as u64, "byte")));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}
