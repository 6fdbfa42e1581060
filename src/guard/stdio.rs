//! The guard between two streams: where a message begins and ends, what waits meanwhile, and who writes a reply.
//!
//! [`Gate`] is in the client's stream, [`Outlet`] in the server's. [`judge_message`] decides about
//! a message; both put its ruling into [`record::rulings`](crate::record::rulings) before it takes effect. The reply to
//! the sender of a refused message goes out on the other stream, between two messages.

mod gate;
mod held;
mod outlet;

pub use gate::Gate;
pub use outlet::Outlet;

use super::{
    Message, Refusal, Ruling, Session,
    inspect::{LineBreaks, ends::Gathered},
    judge_message,
    surface::Came,
};
use crate::{
    model::Direction,
    record::rulings::{RulingRecord, RulingWriter},
    relay::stdio::{Action, Desk, Inserts},
    sys::clock,
};
use held::{Found, rest_of_line};
use std::sync::{Arc, Mutex, PoisonError};

/// What both directions share.
pub struct StdioGuard {
    session: Session,
    rulings: Mutex<RulingWriter>,
    /// For the client, and for the server.
    inserts: [Arc<Inserts>; 2],
}

/// Where a message is in its stream.
#[derive(Clone, Copy)]
struct Place {
    /// Stream offset of its first byte, headers included; `None` while the stream passes uncaptured.
    offset: Option<u64>,
    /// Bytes of Content-Length headers and of the body after them.
    frame: Option<(usize, usize)>,
}

/// What became of one message.
struct Handled {
    passes: bool,
    /// Whether anything was decided, which may have taken time.
    decided: bool,
}

/// A message that is being thrown away.
struct Skipped {
    gathered: Gathered,
    refusal: Refusal,
}

impl StdioGuard {
    /// # Errors
    /// No pipes could be made.
    pub fn new(session: Session, rulings: RulingWriter) -> std::io::Result<Arc<Self>> {
        let inserts = [Arc::new(Inserts::new()?), Arc::new(Inserts::new()?)];
        Ok(Arc::new(Self { session, rulings: Mutex::new(rulings), inserts }))
    }

    /// For who sends in this direction.
    fn replies(&self, direction: Direction) -> &Arc<Inserts> {
        &self.inserts[direction.lane()]
    }

    /// For who receives in this direction.
    fn inserts(&self, direction: Direction) -> &Arc<Inserts> {
        &self.inserts[1 - direction.lane()]
    }

    /// Has a whole message judged. When this returns, the recorder can find what was decided, and the
    /// sender has got a reply to what does not pass.
    fn message(
        &self,
        direction: Direction,
        found: Found,
        window: &[u8],
        offset: Option<u64>,
        desk: &Desk<'_>,
    ) -> Handled {
        let place = Place { offset, frame: found.frame() };
        let breaks = if place.frame.is_some() { LineBreaks::Nowhere } else { LineBreaks::AtEnd };
        let message = Message { direction, text: found.body(window), breaks, captured: offset.is_some() };
        let mut ruling = judge_message(message, &self.session);
        let decided = ruling.is_decided();
        if ruling.passes() && !ruling.is_blank() && (decided || place.frame.is_some()) {
            let stands = offset.is_some_and(|at| self.rulings().push(&record(&ruling, at, place.frame), true));
            // Without a record only what needs no verdict may pass: what the recorder does not see at all, and what a
            // server says, where all that would be lost is how it was framed.
            if !stands && (decided || (offset.is_some() && direction == Direction::ClientToServer)) {
                ruling.unrecorded(&self.session);
            }
        }
        if ruling.passes() {
            ruling.forwarded(&self.session, 0);
        } else {
            self.put_down_refusal(&ruling, place, desk);
            self.tell(&ruling, place.frame.is_some());
        }
        Handled { passes: ruling.passes(), decided }
    }

    /// Keeps back a message of the server and gives the client another in its place. Whether it did.
    fn replaces(&self, found: Found, window: &[u8], offset: Option<u64>) -> bool {
        let body = found.body(window);
        let Some(instead) = self.session.instead(Came::default(), body) else { return false };
        let text = instead.edits.apply(body);
        if let Some(offset) = offset {
            let record = RulingRecord {
                direction: Direction::ServerToClient,
                offset,
                frame: found.frame(),
                blocked: false,
                ns: clock::mono_ns(),
                policy: self.session.policy(),
                decisions: instead.decisions(&text),
            };
            if !self.rulings().push(&record, !self.session.is_failing()) {
                tracing::warn!("what was cut out of an answer could not be recorded");
            }
        }
        self.inserts(Direction::ServerToClient).push(&delimited(text, found.frame().is_some()));
        true
    }

    /// Sends the client a message of ours.
    pub fn tell_client(&self, text: &[u8]) {
        self.inserts(Direction::ServerToClient).push(&delimited(text.to_vec(), false));
    }

    /// Refuses a message that began at this offset and has not ended.
    fn refuse_unread(&self, direction: Direction, refusal: Refusal, offset: Option<u64>, desk: &Desk<'_>) {
        let ruling = Ruling::refused_unread(direction, refusal, &self.session);
        self.put_down_refusal(&ruling, Place { offset, frame: None }, desk);
    }

    /// Takes more of a message that is thrown away; its sender gets the reply at its end.
    fn skip(&self, direction: Direction, skipping: &mut Option<Skipped>, bytes: &[u8], ended: bool) -> Action {
        let (n, is_end) = rest_of_line(bytes);
        if let Some(skipped) = skipping {
            skipped.gathered.add(&bytes[..n]);
        }
        if let Some(Skipped { gathered, refusal }) = skipping.take_if(|_| is_end || ended) {
            if direction == Direction::ServerToClient
                && let Some(id) = gathered.ends().id()
                && let Some(text) = self.session.listing_too_long(Came::default(), id)
            {
                self.tell_client(&text);
                return Action::Replace(n);
            }
            self.tell(&Ruling::refused_by_ends(direction, refusal, gathered.ends(), &self.session), false);
        }
        Action::Discard(n)
    }

    fn rulings(&self) -> std::sync::MutexGuard<'_, RulingWriter> {
        self.rulings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a refusal where the recorder finds it, however long that takes.
    fn put_down_refusal(&self, ruling: &Ruling<'_>, Place { offset, frame }: Place, desk: &Desk<'_>) {
        let Some(offset) = offset else { return };
        let record = record(ruling, offset, frame);
        loop {
            // A recorder that cannot write makes no room: waiting for it is useless.
            let patient = !self.session.is_failing();
            let stands = self.rulings().push(&record, patient) || desk.refused_blind(offset);
            if stands || desk.is_stopped() {
                return;
            }
            // The record must not show that anything passed or was refused that was not.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    fn tell(&self, ruling: &Ruling<'_>, framed: bool) {
        if let Some(reply) = ruling.reply() {
            self.replies(ruling.direction()).push(&delimited(reply, framed));
        }
    }

    /// What is sent to the client when its server is gone.
    fn farewell(&self) -> Vec<u8> {
        self.session.server_gone().into_iter().flat_map(|text| delimited(text, false)).collect()
    }
}

/// What the recorder gets to know of a message.
fn record(ruling: &Ruling<'_>, offset: u64, frame: Option<(usize, usize)>) -> RulingRecord {
    RulingRecord {
        direction: ruling.direction(),
        offset,
        frame,
        blocked: !ruling.passes(),
        ns: clock::mono_ns(),
        policy: ruling.policy().to_owned(),
        decisions: ruling.decisions().cloned().collect(),
    }
}

/// A message as it is written: a line, or after a header of its length.
fn delimited(mut text: Vec<u8>, framed: bool) -> Vec<u8> {
    if framed {
        let header = format!("Content-Length: {}\r\n\r\n", text.len());
        text.splice(0..0, header.into_bytes());
    } else {
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_framed_as_what_it_replies_to() {
        assert_eq!(delimited(b"[1]".to_vec(), false), b"[1]\n");
        assert_eq!(delimited(b"[1]".to_vec(), true), b"Content-Length: 3\r\n\r\n[1]");
    }
}
