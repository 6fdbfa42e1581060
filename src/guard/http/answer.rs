//! An answer of the server, and its event streams: message by message.

use super::{Form, Header, HttpRuling, headers};
use crate::{
    guard::{
        Message, Refusal, Ruling, Session,
        inspect::{
            LineBreaks,
            ends::{Ends, Gathered},
            follow::Followed,
            server::{self, STREAM_AT},
        },
        judge_message,
        surface::Came,
    },
    model::Direction,
};

const DIRECTION: Direction = Direction::ServerToClient;

/// What is known of an answer when its head is there.
#[derive(Debug, Clone, Copy)]
pub struct AnswerFacts<'a> {
    /// Status code.
    pub status: u16,
    /// All its headers, in order.
    pub headers: &'a [Header<'a>],
}

/// What becomes of an answer when its head is there.
#[derive(Debug)]
pub enum AnswerHead {
    /// It does not pass: nothing in it could be judged. The ruling has the reply.
    Refused(Box<HttpRuling<'static>>),
    /// Its body is looked at.
    Passes(AnswerForm),
}

/// What the messages in the body of an answer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// Events of a stream.
    Events,
    /// All of the body is one.
    Json,
    /// All of the body is one if it [begins like one](begins_like_json).
    Unknown,
    /// There is no body.
    Nothing,
}

/// Looks at the head of an answer from the endpoint.
#[must_use]
pub fn review_answer_head(facts: &AnswerFacts<'_>, session: &Session) -> AnswerHead {
    if matches!(facts.status, 100..=199 | 204 | 304) {
        return AnswerHead::Passes(AnswerForm::Nothing);
    }
    if headers::are_of_coded(facts.headers) {
        let ruling = Ruling::refused_unreadable(DIRECTION, Refusal::Encoded, session);
        return AnswerHead::Refused(Box::new(HttpRuling::new(ruling, 0, Some(502), Form::default())));
    }
    let media_type = headers::media_type(facts.headers);
    AnswerHead::Passes(match media_type.as_deref() {
        Some("text/event-stream") => AnswerForm::Events,
        Some(name) if name == "application/json" || name.ends_with("+json") => AnswerForm::Json,
        _ => AnswerForm::Unknown,
    })
}

/// Whether a body begins like JSON; `None`: that does not show yet.
#[must_use]
pub fn begins_like_json(start: &[u8]) -> Option<bool> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if start.len() < MARK.len() && MARK.starts_with(start) {
        return None;
    }
    let first = start.strip_prefix(MARK).unwrap_or(start).trim_ascii_start().first()?;
    Some(matches!(first, b'{' | b'['))
}

/// One whole message of the server.
#[derive(Debug, Clone, Copy)]
pub struct AnswerMessage<'a> {
    /// The body, or the data of an event.
    pub text: &'a [u8],
    /// Bytes of the body before it; of an event, before that.
    pub offset: u64,
    /// It claims to be a message: an event named `message` or not at all, or the body of a 2xx answer that is JSON by
    /// its content type. Anything else passes unless it is a request that may not: error pages, events of other names.
    pub declared: bool,
    /// The recorder will see it.
    pub captured: bool,
}

/// Decides about one message of an answer. What does not pass is taken out of the stream, or replaced by the
/// [reply](HttpRuling::reply) if it is the body; what the [server is told](HttpRuling::upstream) is POSTed with the
/// session, the credentials and the version of the exchange.
#[must_use]
pub fn review_answer<'a>(message: &AnswerMessage<'a>, session: &Session) -> HttpRuling<'a> {
    let AnswerMessage { text, offset, declared, captured } = *message;
    let ruled = |ruling| HttpRuling::new(ruling, offset, Some(502), Form::default());
    let is_streamed =
        text.len() > STREAM_AT && server::beginning(text) == server::Beginning::Answer && Followed::is_whole(text);
    let passes_unread = is_streamed || !declared && !server::is_message(text);
    if is_streamed {
        session.forwarded_unread(Ends::of(text));
    }
    if passes_unread {
        return ruled(Ruling::unread(DIRECTION));
    }
    let message = Message { direction: DIRECTION, text, breaks: LineBreaks::Anywhere, captured };
    ruled(judge_message(message, session))
}

/// A message that is not held, while it passes or is thrown away: [`pace`](super::pace) said so.
#[derive(Debug)]
pub struct Passing {
    ends: Gathered,
    followed: Followed,
}

impl Passing {
    /// It begins with these bytes.
    #[must_use]
    pub fn begin(bytes: &[u8]) -> Self {
        Self { ends: Gathered::begin(bytes), followed: Followed::default() }
    }

    /// More of it, which is thrown away.
    pub fn add(&mut self, bytes: &[u8]) {
        self.ends.add(bytes);
    }

    /// More of it, which may pass unless a part of it [may not](Followed::add).
    pub(super) fn follow(&mut self, bytes: &[u8], came: Came<'_>, session: &Session) -> Option<(usize, Refusal)> {
        self.ends.add(bytes);
        self.followed.add(bytes, &mut |id| session.is_of_listing(came, id))
    }

    /// It has passed.
    pub fn passed(&self, session: &Session) {
        session.forwarded_unread(self.ends.ends());
    }

    /// What the client gets in its place, if it is a listing that is too long to be held.
    pub(super) fn listing_too_long(&self, came: Came<'_>, session: &Session) -> Option<Vec<u8>> {
        session.listing_too_long(came, self.ends.ends().id()?)
    }

    /// What the client gets besides it, if it was cut off while it passed.
    pub(super) fn cut_off(&self, refusal: Refusal, came: Came<'_>, session: &Session) -> Option<Vec<u8>> {
        session.cut_off(came, self.followed.id(), refusal)
    }

    /// It is thrown away; `offset`: bytes of the body before it.
    #[must_use]
    pub fn refused(&self, offset: u64, session: &Session) -> HttpRuling<'_> {
        let ruling = Ruling::refused_by_ends(DIRECTION, Refusal::TooLarge, self.ends.ends(), session);
        HttpRuling::new(ruling, offset, Some(502), Form::default())
    }
}
