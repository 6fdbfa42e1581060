//! The client's stream: each message is held until it has been judged.

use super::{Skipped, StdioGuard, held::Finder};
use crate::{
    guard::{Refusal, inspect::ends::Gathered},
    model::Direction,
    relay::stdio::{Action, Desk, Held, Inserts, Inspector},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The stream that is judged here.
const DIRECTION: Direction = Direction::ClientToServer;
/// Approved messages are passed on after this long, before more is looked at.
const IMPATIENT: Duration = Duration::from_micros(100);

/// Inspects the stream from client to server.
pub struct Gate {
    shared: Arc<StdioGuard>,
    finder: Finder,
    /// A message was judged and refused while others before it wait to be passed on.
    refused_next: Option<usize>,
    /// Inside a message that was refused before its end was seen.
    skipping: Option<Skipped>,
}

impl Gate {
    /// Over what it shares with the server's side.
    #[must_use]
    pub fn new(shared: Arc<StdioGuard>) -> Self {
        Self { shared, finder: Finder::default(), refused_next: None, skipping: None }
    }

    /// Everything held belongs to a message that cannot be judged.
    fn give_up(&mut self, held: Held<'_>, refusal: Refusal, desk: &Desk<'_>) -> Action {
        let bytes = held.bytes;
        self.shared.refuse_unread(DIRECTION, refusal, held.offset, desk);
        self.finder.forget();
        let mut gathered = Gathered::begin(bytes);
        gathered.add(bytes);
        self.skipping = Some(Skipped { gathered, refusal });
        Action::Discard(bytes.len())
    }
}

impl Inspector for Gate {
    fn inspect(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Action {
        if let Some(n) = self.refused_next.take() {
            return Action::Discard(n);
        }
        if self.skipping.is_some() {
            return self.shared.skip(DIRECTION, &mut self.skipping, held.bytes, held.ended);
        }
        let mut approved = 0;
        let mut start = None;
        loop {
            let window = &held.bytes[approved..];
            if window.is_empty() {
                return Action::Forward(approved);
            }
            let Some(found) = self.finder.next(window, held.ended) else {
                return match (approved, window.len() > self.shared.session.max_message()) {
                    (1.., _) => Action::Forward(approved),
                    (0, true) => self.give_up(held, Refusal::TooLarge, desk),
                    (0, false) if held.last => self.give_up(held, Refusal::RecorderUnavailable, desk),
                    (0, false) => Action::More,
                };
            };
            let offset = held.offset.map(|offset| offset + approved as u64);
            let is_last = found.end == window.len();
            if !is_last && start.is_none() {
                start = Some(Instant::now());
            }
            let outcome = self.shared.message(DIRECTION, found, window, offset, desk);
            if !outcome.passes {
                if approved == 0 {
                    return Action::Discard(found.end);
                }
                self.refused_next = Some(found.end);
                return Action::Forward(approved);
            }
            approved += found.end;
            if outcome.decided && start.is_some_and(|start| start.elapsed() > IMPATIENT) {
                return Action::Forward(approved);
            }
        }
    }

    fn inserts(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(self.shared.inserts(DIRECTION)))
    }

    fn answers(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(self.shared.replies(DIRECTION)))
    }
}
