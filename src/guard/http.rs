//! The guard over HTTP: what of a request goes upstream, what of an answer reaches the client, and what they are told
//! instead. It is given heads and whole messages, and knows nothing of how they are held.
//!
//! A [`HttpRuling`] takes effect as any other ([`HttpRuling::settle`]): where it is a decision, that is put into the log
//! first; if it cannot be, the message does not pass. Whose message does not pass is told: a client by
//! [`HttpRuling::reply`], a server by [`HttpRuling::upstream`]. An [`AnswerBody`] does all this for the messages of an
//! answer.

mod answer;
mod body;
mod headers;
mod request;

pub use super::inspect::server::{Pace, pace};
pub use answer::{
    AnswerFacts, AnswerForm, AnswerHead, AnswerMessage, Passing, begins_like_json, review_answer, review_answer_head,
};
pub use body::{AnswerBody, Head, Out};
pub use request::{RequestFacts, request_too_large, review_request};

use super::{Refusal, Ruling, Session, ruling::Asks};
use crate::{model::Direction, record::rulings::RulingRecord, sys::clock};

/// A header as it came: its name in any case, and its value.
pub type Header<'a> = (&'a str, &'a [u8]);

/// Where the rulings on one body are recorded: its flow in the log.
pub trait Desk {
    /// Records a ruling on the message that ends at this offset of the body; `false`: the recorder will not find it.
    fn record(&mut self, end: u64, ruling: &RulingRecord) -> bool;

    /// Whether the recorder sees what crosses.
    fn is_captured(&self) -> bool;

    /// The number of the exchange that the body belongs to.
    fn exchange(&self) -> u64;
}

/// An answer in the place of the upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// Status code.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

/// What becomes of one body, or of one message of it.
#[derive(Debug)]
pub struct HttpRuling<'a> {
    ruling: Ruling<'a>,
    /// Bytes of the body before the message.
    offset: u64,
    /// The status of the reply, where the message does not tell it.
    status: Option<u16>,
    form: Form,
}

/// How a client is told.
#[derive(Debug, Clone, Copy, Default)]
struct Form {
    /// It reads nothing but an event stream.
    events: bool,
}

impl<'a> HttpRuling<'a> {
    fn new(ruling: Ruling<'a>, offset: u64, status: Option<u16>, form: Form) -> Self {
        Self { ruling, offset, status, form }
    }

    /// Refuses a part of an event stream in which some readers of lines find a message that may not pass.
    fn hides_lines(offset: u64, session: &Session) -> Self {
        let ruling = Ruling::refused_unreadable(Direction::ServerToClient, Refusal::LineBreak, session);
        Self::new(ruling, offset, Some(502), Form::default())
    }

    /// Refuses the rest of a message of the server of which some has passed; `offset`: bytes of the body before it.
    fn cut_off(refusal: Refusal, offset: u64, session: &Session) -> Self {
        let ruling = Ruling::refused_unread(Direction::ServerToClient, refusal, session);
        Self::new(ruling, offset, Some(502), Form::default())
    }

    /// Whether the message passes.
    #[must_use]
    pub const fn passes(&self) -> bool {
        self.ruling.passes()
    }

    /// What has to be in the log before this takes effect; `None` where nothing had to be decided.
    #[must_use]
    pub fn record(&self) -> Option<RulingRecord> {
        self.ruling.is_decided().then(|| RulingRecord {
            direction: self.ruling.direction(),
            offset: self.offset,
            frame: None,
            blocked: !self.passes(),
            ns: clock::mono_ns(),
            policy: self.ruling.policy().to_owned(),
            decisions: self.ruling.decisions().cloned().collect(),
        })
    }

    /// Records what was decided, before it takes effect, and says whether the message passes; `end` is the offset after
    /// it. What was decided and cannot be recorded does not pass.
    #[must_use]
    pub fn settle(&mut self, end: u64, session: &Session, desk: &mut dyn Desk) -> bool {
        let is_recorded = self.record().is_none_or(|record| desk.record(end, &record));
        if !is_recorded && self.passes() {
            self.unrecorded(session);
            if let Some(record) = self.record()
                && !desk.record(end, &record)
            {
                tracing::debug!("a refusal could not be recorded");
            }
        }
        if self.passes() {
            self.forwarded(session, desk.exchange());
        }
        self.passes()
    }

    /// Keeps the message back, because what was decided cannot be recorded.
    pub fn unrecorded(&mut self, session: &Session) {
        self.ruling.unrecorded(session);
    }

    /// Notes that the message passes: its requests wait for their answers, and what it answers waits no longer.
    pub fn forwarded(&self, session: &Session, exchange: u64) {
        self.ruling.forwarded(session, exchange);
    }

    /// What the client gets in the place of an answer to its request, or of an answer that is one message. `None` if it
    /// passes.
    #[must_use]
    pub fn reply(&self) -> Option<HttpReply> {
        if self.passes() {
            return None;
        }
        let is_request = self.ruling.direction() == Direction::ClientToServer;
        let told = if is_request { self.ruling.reply() } else { None };
        let (status, body) = match (self.status, self.ruling.asks()) {
            (None, Asks::Request) => (200, told),
            (None, Asks::Unreadable) => (400, told),
            (None, Asks::Nobody) if self.ruling.is_no_json() => (400, self.ruling.reply_to_unknown(true)),
            (None, Asks::Nobody) => (403, None),
            (Some(status), _) => (status, told),
        };
        let body = body.or_else(|| self.ruling.reply_to_unknown(false)).unwrap_or_default();
        Some(self.form.told(status, body))
    }

    /// The requests in it, for the client to be told if their answer may not pass.
    #[must_use]
    pub fn asked(&self) -> Asked {
        let (ids, in_batch) = self.ruling.requests();
        Asked { ids: ids.into_iter().map(Into::into).collect(), in_batch, form: self.form }
    }

    /// What the client gets in the place of an answer that does not pass: an error for each of its requests. Where there
    /// are none, status 502 and an error without id.
    #[must_use]
    pub fn reply_to(&self, asked: &Asked) -> Option<HttpReply> {
        if self.passes() {
            return None;
        }
        match self.ruling.reply_to(asked.ids.iter().map(AsRef::as_ref), asked.in_batch) {
            Some(body) => Some(asked.form.told(200, body)),
            None => Some(asked.form.told(502, self.ruling.reply_to_unknown(false).unwrap_or_default())),
        }
    }

    /// The error with which the server's requests in a message are answered that does not pass: a body to POST. `None`
    /// where it waits for none.
    #[must_use]
    pub fn upstream(&self) -> Option<Vec<u8>> {
        if self.ruling.direction() == Direction::ServerToClient { self.ruling.reply() } else { None }
    }
}

/// What a client asked in one exchange.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The ids of its requests, as they were sent.
    pub ids: Vec<Box<[u8]>>,
    in_batch: bool,
    form: Form,
}

impl Form {
    fn told(self, status: u16, body: Vec<u8>) -> HttpReply {
        if status == 200 && self.events {
            let body = [b"event: message\ndata: ", &body[..], b"\n\n"].concat();
            HttpReply { status, content_type: "text/event-stream", body }
        } else {
            HttpReply { status, content_type: "application/json", body }
        }
    }
}
