//! A client's request: its headers and its body say the same, and what that is may pass.

use super::{Form, Header, HttpRuling, headers};
use crate::{
    guard::{Message, Refusal, Ruling, Session, inspect::LineBreaks, judge_message},
    model::Direction,
};

/// What is known of a request whose body is held.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    /// All its headers, in order.
    pub headers: &'a [Header<'a>],
    /// The recorder will see its body.
    pub captured: bool,
}

impl RequestFacts<'_> {
    fn form(&self) -> Form {
        Form { events: headers::accept_events_only(self.headers) }
    }
}

/// Reads a request with its whole body, whatever its method is, and decides about it. The judge may wait for a name to
/// be resolved.
#[must_use]
pub fn review_request<'a>(facts: &RequestFacts<'_>, body: &'a [u8], session: &Session) -> HttpRuling<'a> {
    let ruled = |ruling, status| HttpRuling::new(ruling, 0, status, facts.form());
    let refused = |refusal, status| {
        let ruling = Ruling::refused_for(Direction::ClientToServer, body, LineBreaks::Anywhere, refusal, session);
        ruled(ruling, Some(status))
    };
    let unread = |refusal| {
        let ruling = Ruling::refused_unreadable(Direction::ClientToServer, refusal, session);
        ruled(ruling, Some(415))
    };
    let is_empty = body.trim_ascii().is_empty();
    if !is_empty && headers::are_of_coded(facts.headers) {
        return unread(Refusal::Encoded);
    }
    if !is_empty && (headers::are_of_other_charset(facts.headers) || std::str::from_utf8(body).is_err()) {
        return unread(Refusal::InvalidUtf8);
    }
    if headers::are_ambiguous(facts.headers) || headers::contradict(facts.headers, body) {
        return refused(Refusal::HeaderMismatch, 400);
    }
    let message = Message {
        direction: Direction::ClientToServer,
        text: body,
        breaks: LineBreaks::Anywhere,
        captured: facts.captured,
    };
    let is_long = body.len() > session.max_message();
    ruled(judge_message(message, session), is_long.then_some(413))
}

/// Refuses a request whose body is not held, because it is too long; `start` are its first bytes.
#[must_use]
pub fn request_too_large<'a>(facts: &RequestFacts<'_>, start: &'a [u8], session: &Session) -> HttpRuling<'a> {
    let ends = crate::guard::inspect::ends::Ends::of(start);
    let ruling = Ruling::refused_by_ends(Direction::ClientToServer, Refusal::TooLarge, ends, session);
    HttpRuling::new(ruling, 0, Some(413), facts.form())
}
