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
            server::{Beginning, beginning},
        },
    },
    model::Direction,
    relay::stdio::{Action, Desk, Held, Inserts, Inspector},
};
use std::sync::Arc;

/// The stream that is judged here.
const DIRECTION: Direction = Direction::ServerToClient;
/// A longer answer passes while it comes, unread: results of a server are never held up for their size.
const STREAM_AT: usize = 1 << 20;
/// A message that is not an answer is held until it is whole, and refused if it is longer. Less than the capture holds.
const MOST_HELD: usize = 3 << 20;

/// Inspects the stream from server to client.
pub struct Outlet {
    shared: Arc<StdioGuard>,
    finder: Finder,
    refused_next: Option<usize>,
    /// Inside a line that passes while it comes.
    streaming: Option<Gathered>,
    /// Inside a line that was refused before its end was seen.
    skipping: Option<Skipped>,
}

impl Outlet {
    /// Over what it shares with the client's side.
    #[must_use]
    pub fn new(shared: Arc<StdioGuard>) -> Self {
        Self { shared, finder: Finder::default(), refused_next: None, streaming: None, skipping: None }
    }

    /// More of a line that is passing.
    fn stream(&mut self, bytes: &[u8]) -> Action {
        let (n, is_end) = rest_of_line(bytes);
        if let Some(line) = &mut self.streaming {
            line.add(&bytes[..n]);
        }
        if let Some(line) = self.streaming.take_if(|_| is_end) {
            self.shared.session.forwarded_unread(line.ends());
        }
        Action::Forward(n)
    }

    /// A line that is too long to be waited for, and has not ended.
    fn long(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Action {
        let bytes = held.bytes;
        let is_long = bytes.len() > STREAM_AT;
        match beginning(bytes) {
            // A recorder that is stuck does not hold up what may become an answer.
            Beginning::Open if !is_long => {}
            Beginning::Answer => {}
            _ if bytes.len() <= MOST_HELD && !held.last => return Action::More,
            _ => {
                let refusal = if is_long { Refusal::TooLarge } else { Refusal::RecorderUnavailable };
                self.finder.forget();
                self.shared.refuse_unread(DIRECTION, refusal, held.offset, desk);
                self.skipping = Some(Skipped { gathered: Gathered::begin(bytes), refusal });
                return self.shared.skip(DIRECTION, &mut self.skipping, bytes, held.ended);
            }
        }
        self.finder.forget();
        self.streaming = Some(Gathered::begin(bytes));
        self.stream(bytes)
    }
}

impl Inspector for Outlet {
    fn inspect(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Action {
        if let Some(n) = self.refused_next.take() {
            return Action::Discard(n);
        }
        if self.streaming.is_some() {
            return self.stream(held.bytes);
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
            if body.len() > STREAM_AT && beginning(body) == Beginning::Answer {
                self.shared.session.forwarded_unread(Ends::of(body));
            } else if !self.shared.message(DIRECTION, found, window, offset, desk).passes {
                if approved == 0 {
                    return Action::Discard(found.end);
                }
                self.refused_next = Some(found.end);
                return Action::Forward(approved);
            }
            approved += found.end;
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
