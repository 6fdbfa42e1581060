//! What the log of exchanges is told of each request to the server, before it is sent and as its answer comes.
//!
//! The messages of the client are captured where it speaks with the bridge, and so are those for it. Of the bodies that
//! carry them the log has the hashes. What the bridge asks by itself crosses nowhere else: of that it has the bodies.

use crate::relay::{
    http::reduce::{Origin, Reducer},
    log::{AnsweredBy, BodyEnd, Cause, Entry, ExchangeLog, Flow, NoteCode},
};
use bytes::Bytes;
use http::{request, response};
use sha2::{Digest as _, Sha256};
use std::{cell::Cell, rc::Rc, sync::Arc};

/// Ids of more bytes are told by their hash, as evidence has them.
const LONGEST_ID: usize = 256;

/// Where exchanges are logged.
#[derive(Clone)]
pub struct Book {
    /// The log.
    pub log: Arc<dyn ExchangeLog>,
    /// Leaves of heads what may be evidence.
    pub reducer: Reducer,
}

/// What a request is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Purpose {
    /// The texts of the ids of the client's messages that it carries, or whose answers it asks for.
    pub(super) carries: Vec<String>,
    /// The bridge asks by itself.
    pub(super) is_own: bool,
}

impl Purpose {
    /// A request of the bridge.
    pub(super) const OWN: Self = Self { carries: Vec::new(), is_own: true };

    /// A request about these messages of the client.
    pub(super) fn of(ids: impl IntoIterator<Item = String>) -> Self {
        Self { carries: ids.into_iter().collect(), is_own: false }
    }
}

/// Begins a [`Page`] for each request.
pub(super) struct Pages {
    book: Book,
    /// Path of the endpoint, which is no secret. The older transport names another one, which may be.
    path: String,
    is_closing: Rc<Cell<bool>>,
}

impl Pages {
    pub(super) fn new(book: Book, path: &str) -> Self {
        Self { book, path: path.to_owned(), is_closing: Rc::default() }
    }

    /// What is given up from here on ends because the bridge does.
    pub(super) fn close(&self) {
        self.is_closing.set(true);
    }

    /// Notes something that is about no exchange.
    pub(super) fn note(&self, code: NoteCode, text: &str) {
        self.book.log.put(Flow::request(0), &Entry::Note { code, text });
    }

    /// A request that is about to be sent.
    pub(super) fn begin(&self, head: &request::Parts, body: &Bytes, purpose: &Purpose) -> Page {
        let Book { log, reducer } = &self.book;
        let exchange = log.begin();
        let origin = Origin { route: 0, connection: 0, peer: "stdio".into() };
        let head = reducer.request(head, &origin, true, head.uri.path() == self.path);
        log.put(Flow::request(exchange), &Entry::Request(head));
        let page = Page {
            log: log.clone(),
            reducer: reducer.clone(),
            exchange,
            is_own: purpose.is_own,
            request: Some((body.len() as u64, Sha256::digest(body).into())),
            answer: (0, Sha256::new()),
            is_over: false,
            is_closing: self.is_closing.clone(),
        };
        for id in &purpose.carries {
            let hashed = || format!("\"sha256-raw:{}\"", hex::encode(Sha256::digest(id)));
            page.note(NoteCode::Carries, &if id.len() > LONGEST_ID { hashed() } else { id.clone() });
        }
        if purpose.is_own && !body.is_empty() {
            page.log.put(Flow::request(exchange), &Entry::Data { offset: 0, bytes: body, own: false });
        }
        page
    }
}

/// What is told of one exchange. One that is dropped before its end was given up.
pub(super) struct Page {
    log: Arc<dyn ExchangeLog>,
    reducer: Reducer,
    exchange: u64,
    is_own: bool,
    /// Bytes and SHA-256 of the request's body, until its end is told.
    request: Option<(u64, [u8; 32])>,
    /// The same of what was read of the answer's.
    answer: (u64, Sha256),
    is_over: bool,
    is_closing: Rc<Cell<bool>>,
}

impl Page {
    pub(super) fn note(&self, code: NoteCode, text: &str) {
        self.log.put(Flow::request(self.exchange), &Entry::Note { code, text });
    }

    /// The head of the answer has come: all of the request has reached the server.
    pub(super) fn answered(&mut self, head: &response::Parts, is_reused: bool) {
        self.end_request(Cause::Complete);
        let status = head.status.as_u16();
        let head = self.reducer.response(AnsweredBy::Upstream, status, head.version, &head.headers, is_reused);
        self.log.put(Flow::response(self.exchange), &Entry::Response(head));
    }

    /// A piece of the answer has come, and is used after this.
    pub(super) fn piece(&mut self, bytes: &Bytes) {
        let (offset, hash) = &mut self.answer;
        if self.is_own {
            let entry = Entry::Data { offset: *offset, bytes, own: false };
            self.log.put(Flow::response(self.exchange), &entry);
        }
        hash.update(bytes);
        *offset += bytes.len() as u64;
    }

    /// Nothing more will come.
    pub(super) fn end(&mut self, cause: Cause) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.end_request(cause);
        let (bytes, hash) = &self.answer;
        self.end_body(Flow::response(self.exchange), *bytes, hash.clone().finalize().into(), cause);
    }

    fn end_request(&mut self, cause: Cause) {
        if let Some((bytes, sha256)) = self.request.take() {
            self.end_body(Flow::request(self.exchange), bytes, sha256, cause);
        }
    }

    fn end_body(&self, flow: Flow, bytes: u64, sha256: [u8; 32], cause: Cause) {
        if bytes > 0 && cause == Cause::Complete {
            self.log.put(flow, &Entry::Wrote { upto: bytes });
        }
        self.log.put(flow, &Entry::End(BodyEnd { bytes, cause, trailers: Vec::new(), sha256: Some(sha256) }));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.end(if self.is_closing.get() { Cause::Shutdown } else { Cause::ClientGone });
    }
}
