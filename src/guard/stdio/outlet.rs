//! The server's stream: what is not a message is kept from the client, what the policy reviews is judged, and whatever
//! else the server says passes: an answer while it comes, anything else when it is whole.

use super::{
    Skipped, StdioGuard,
    held::{Finder, rest_of_line},
};
use crate::{
    guard::{
        Refusal,
        inspect::{
            ends::{Ends, Gathered},
            follow::Followed,
            server::{Beginning, MOST_HELD, Pace, STREAM_AT, beginning, pace},
        },
        surface::Came,
    },
    model::Direction,
    relay::stdio::{Action, Desk, Held, Inserts, Inspector},
};
use std::sync::Arc;

/// The stream that is judged here.
const DIRECTION: Direction = Direction::ServerToClient;

/// Inspects the stream from server to client.
pub struct Outlet {
    shared: Arc<StdioGuard>,
    finder: Finder,
    /// What becomes of a message that was decided about while others before it waited to be passed on.
    next: Option<Action>,
    /// Inside a line that passes while it comes.
    streaming: Option<Streamed>,
    /// Inside a line that was refused before its end was seen.
    skipping: Option<Skipped>,
}

/// A line that passes while it comes.
struct Streamed {
    /// Where it begins in the stream.
    offset: Option<u64>,
    line: Gathered,
    followed: Followed,
    /// Why the rest of it does not pass, but for the end of the line.
    cut: Option<Refusal>,
}

impl Outlet {
    /// Over what it shares with the client's side.
    #[must_use]
    pub fn new(shared: Arc<StdioGuard>) -> Self {
        Self { shared, finder: Finder::default(), next: None, streaming: None, skipping: None }
    }

    /// More of a line that is passing.
    fn stream(&mut self, bytes: &[u8], desk: &Desk<'_>) -> Action {
        let (n, is_end) = rest_of_line(bytes);
        let Some(streamed) = &mut self.streaming else { return Action::Forward(n) };
        let session = &self.shared.session;
        if streamed.cut.is_none() {
            let text = &bytes[..n - usize::from(is_end)];
            let is_kept_back = &mut |id: &[u8]| session.is_of_listing(Came::default(), id);
            let Some((passes, refusal)) = streamed.followed.add(text, is_kept_back) else {
                streamed.line.add(&bytes[..n]);
                if let Some(streamed) = self.streaming.take_if(|_| is_end) {
                    session.forwarded_unread(streamed.line.ends());
                }
                return Action::Forward(n);
            };
            // The recorder knows before the end of the line, when it could not tell it from one that passed.
            self.shared.refuse_unread(DIRECTION, refusal, streamed.offset, desk);
            streamed.cut = Some(refusal);
            if passes > 0 {
                return Action::Forward(passes);
            }
        }
        // What has passed of it stays a line, which no client can read.
        match n - usize::from(is_end) {
            0 => {
                let id = streamed.followed.id();
                let told = streamed.cut.and_then(|refusal| session.cut_off(Came::default(), id, refusal));
                if let Some(text) = told {
                    self.shared.tell_client(&text);
                }
                self.streaming = None;
                Action::Forward(1)
            }
            rest => Action::Discard(rest),
        }
    }

    /// A line that is too long to be waited for, and has not ended.
    fn long(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Action {
        let bytes = held.bytes;
        let begins = Gathered::begin(bytes);
        let pace = match pace(bytes, held.last) {
            // No part of a listing passes before all of it was looked at.
            Pace::Stream if self.shared.session.may_be_listing(Came::default(), begins.ends()) => {
                if bytes.len() <= MOST_HELD && !held.last { Pace::Hold } else { Pace::Refuse }
            }
            pace => pace,
        };
        match pace {
            Pace::Stream => {}
            Pace::Hold => return Action::More,
            Pace::Refuse => {
                let refusal = if bytes.len() > STREAM_AT { Refusal::TooLarge } else { Refusal::RecorderUnavailable };
                self.finder.forget();
                self.shared.refuse_unread(DIRECTION, refusal, held.offset, desk);
                self.skipping = Some(Skipped { gathered: Gathered::begin(bytes), refusal });
                return self.shared.skip(DIRECTION, &mut self.skipping, bytes, held.ended);
            }
        }
        self.finder.forget();
        let (line, followed) = (Gathered::begin(bytes), Followed::default());
        self.streaming = Some(Streamed { offset: held.offset, line, followed, cut: None });
        self.stream(bytes, desk)
    }
}

impl Inspector for Outlet {
    fn inspect(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Action {
        if let Some(next) = self.next.take() {
            return next;
        }
        if self.streaming.is_some() {
            return self.stream(held.bytes, desk);
        }
        if self.skipping.is_some() {
            return self.shared.skip(DIRECTION, &mut self.skipping, held.bytes, held.ended);
        }
        let mut approved = 0;
        loop {
            let window = &held.bytes[approved..];
            if window.is_empty() {
                return Action::Forward(approved);
            }
            let Some(found) = self.finder.next(window, held.ended) else {
                if approved > 0 {
                    return Action::Forward(approved);
                }
                return if window.len() > STREAM_AT || held.last { self.long(held, desk) } else { Action::More };
            };
            let offset = held.offset.map(|offset| offset + approved as u64);
            let body = found.body(window);
            let instead = if self.shared.replaces(found, window, offset) {
                Some(Action::Replace(found.end))
            } else if body.len() > STREAM_AT && beginning(body) == Beginning::Answer && Followed::is_whole(body) {
                self.shared.session.forwarded_unread(Ends::of(body));
                None
            } else {
                let passes = self.shared.message(DIRECTION, found, window, offset, desk).passes;
                (!passes).then_some(Action::Discard(found.end))
            };
            match instead {
                None => approved += found.end,
                Some(action) if approved == 0 => return action,
                later => {
                    self.next = later;
                    return Action::Forward(approved);
                }
            }
        }
    }

    fn is_between_messages(&self) -> bool {
        self.streaming.is_none()
    }

    fn inserts(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(self.shared.inserts(DIRECTION)))
    }

    fn answers(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(self.shared.replies(DIRECTION)))
    }

    fn farewell(&mut self) -> Vec<u8> {
        self.shared.farewell()
    }
}
