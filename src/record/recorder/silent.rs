//! Requests that leave no event of their own, `initialize` and `ping` among them: what is known of one that waits for
//! its answer is in memory and in the capture alone.

use super::{Message, Recorder};
use crate::{
    model::InvocationId,
    record::envelope::{self, Class, Envelope, IdKey, MessageKind},
};
use std::collections::BTreeSet;

/// How long the capture is kept for the answer to such a request, in ns.
const KEPT_NS: u64 = 5_000_000_000;

impl Recorder {
    /// Whether what was taken from the captures is still needed after a crash although its evidence is on disk: a
    /// request that left none may have its answer soon; and while lines are collected.
    #[must_use]
    pub fn needs_captured(&self, now_ns: u64) -> bool {
        let waits = |(invocation, read_ns)| {
            now_ns.saturating_sub(read_ns) < KEPT_NS && self.table.get(invocation).is_some_and(|p| p.key.is_some())
        };
        self.junk.is_some() || self.silent.is_some_and(waits)
    }

    pub(super) fn followed_silently(&mut self, invocation: InvocationId, read_ns: u64) {
        self.silent = Some((invocation, read_ns));
    }

    /// A message of which nothing is missing on disk, because it leaves nothing there or because what it leaves is
    /// there: a request of this kind is followed, and its answer taken, as the dead recorder did.
    pub(super) fn recall(&mut self, m: &Message<'_>) {
        if m.page.is_some() || m.is_blocked() || m.undecided {
            return;
        }
        let body = m.bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(m.bytes);
        let Ok(e) = envelope::parse(body, None) else { return };
        match e.kind {
            MessageKind::Request if envelope::classify(e.method.as_deref().unwrap_or_default()) == Class::Pass => {
                self.request(m, &e, None, BTreeSet::new(), &mut Vec::new());
            }
            MessageKind::Response if self.answers_silent(m, &e) => {
                self.response(m, &e, BTreeSet::new(), &mut Vec::new());
            }
            _ => {}
        }
    }

    fn answers_silent(&self, m: &Message<'_>, e: &Envelope<'_>) -> bool {
        let key = e.id.map(IdKey::of);
        let asked = key.and_then(|key| self.table.next_to_answer(m.scope(m.direction().reverse()), &key));
        asked.is_some_and(|pending| !pending.recorded)
    }
}
