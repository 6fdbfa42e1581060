//! What a guard is asked: about requests before anything of them goes upstream, and about answers while they pass.

use crate::relay::log::{RequestHead, ResponseHead};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// A request, as far as it is known before its body is read.
pub struct RequestFacts {
    /// Number of its exchange.
    pub exchange: u64,
    /// What of its head may be evidence.
    pub head: RequestHead,
    /// Method.
    pub method: Method,
    /// Path and query, as they came. Not for evidence.
    pub target: String,
    /// All headers, as they came. Not for evidence.
    pub headers: HeaderMap,
    /// It may have a body.
    pub has_body: bool,
    /// Everything of its body that was read is in the log.
    pub recorded: bool,
}

/// An answer that is given in place of the upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnReply {
    /// Status.
    pub status: StatusCode,
    /// `Content-Type`.
    pub content_type: HeaderValue,
    /// Body.
    pub body: Bytes,
}

impl OwnReply {
    /// One line of text.
    #[must_use]
    pub fn line(status: StatusCode, line: &str) -> Self {
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        Self { status, content_type, body: Bytes::from(format!("assay: {line}\n")) }
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It goes upstream as it is.
    Pass,
    /// Nothing of it goes upstream.
    Reply(OwnReply),
}

/// What becomes of an answer.
pub enum AnswerVerdict {
    /// It passes as it is.
    Pass,
    /// It is replaced, body and all.
    Reply(OwnReply),
    /// It passes through this.
    Through(Box<dyn AnswerReview>),
}

/// What becomes of the head of an answer that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// It waits: the body may be replaced.
    Held,
    /// It passes. If it was held, the body passes as it is from its first byte on.
    Passes,
    /// It passes, and the body is so many bytes long.
    Resized(u64),
    /// Head and body are replaced.
    Replaced(OwnReply),
}

/// A piece that passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// What the client gets.
    pub bytes: Bytes,
    /// Bytes of the answer, as the upstream sent it, that are settled with this piece.
    pub upto: u64,
}

/// Judges the messages of one answer. An event stream may lose events: where it has a `Content-Length`, comments fill their
/// places.
pub trait AnswerReview: Send {
    /// Takes a piece that was read, and appends what passes now: the piece, something else, or nothing yet.
    fn push(&mut self, piece: Bytes, passes: &mut Vec<Passed>);

    /// The answer is whole: appends what was held. The head is not held any longer.
    fn finish(&mut self, passes: &mut Vec<Passed>);

    /// What becomes of the head, after what was read so far.
    fn head(&self) -> Head {
        Head::Passes
    }

    /// Whether the next piece, or the end, may have to wait for something: then it is taken beside the threads that move
    /// bytes.
    fn may_wait(&self) -> bool {
        false
    }

    /// Whether an event may become shorter or longer: then the client is not told how long the stream will be.
    fn resizes(&self) -> bool {
        false
    }

    /// An event of ours, to be sent before what comes next; it is asked for only between two that passed.
    fn poll_own(&mut self, _cx: &mut Context<'_>) -> Poll<Bytes> {
        Poll::Pending
    }

    /// Messages to POST upstream for this exchange's session: answers to what was withheld.
    fn replies(&mut self) -> Vec<Bytes> {
        Vec::new()
    }
}

/// A future that may go to another thread.
pub type Judging<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// Judges requests and answers. It records its rulings itself, before it returns.
pub trait Reviewer: Send + Sync {
    /// Bytes of one request's body that are held; a longer one is refused with 413.
    fn max_body(&self) -> usize;

    /// The answer to a request that is longer; `start` is what was read of it.
    fn too_large(&self, _request: &RequestFacts, _start: &[u8]) -> OwnReply {
        OwnReply::line(StatusCode::PAYLOAD_TOO_LARGE, "the request is longer than --max-message allows")
    }

    /// A request that goes elsewhere than to the endpoint: its body is not held.
    fn review_elsewhere(&self, request: &RequestFacts) -> Verdict;

    /// A request to the endpoint, whole.
    fn review_request<'a>(&'a self, request: &'a RequestFacts, body: Bytes) -> Judging<'a>;

    /// The head of an answer, wherever the request went to.
    fn review_answer(&self, request: &RequestFacts, head: &ResponseHead, headers: &HeaderMap) -> AnswerVerdict;

    /// The stream of the old transport that answers this exchange names where its client has to post: path and query.
    fn endpoint(&self, _exchange: u64, _target: &str) {}

    /// An exchange is over, or its client has gone.
    fn over(&self, _exchange: u64) {}
}

/// A request that a guard looks at, until its exchange is over.
pub(super) struct Reviewing {
    pub(super) reviewer: Arc<dyn Reviewer>,
    pub(super) facts: RequestFacts,
}

impl Drop for Reviewing {
    fn drop(&mut self) {
        self.reviewer.over(self.facts.exchange);
    }
}
