//! The end of a session, its roll-over into the next, and gaps.

use super::{Begin, Recorder};
use crate::model::{
    Detail, EndReason, GapReason, InvocationId, OutcomeReason, RECORDER_VERSION, RecorderKind, SessionDoc, Teardown,
    Transport, Word,
    event::detail,
    receipt::{GapReceipt, PLAIN_SCHEMA, RECORDER_GAP, SESSION_END, SessionEnd},
    session::{HTTP_SESSION, SESSION_VERSION},
};

/// Why and how a session ends.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// Why it ended, the `end_reason` of `session.json`.
    pub reason: Word<EndReason>,
    /// `outcome_reason` of calls that have no response.
    pub no_response: Option<OutcomeReason>,
    /// Whether this is a clean end, apart from calls without a response and lost evidence.
    pub clean: bool,
    /// Whether calls without a response are part of a clean end (the client left).
    pub pending_is_clean: bool,
    /// Calls in flight continue in the next session (rolling packs).
    pub carries_over: bool,
    /// Exit code of the server.
    pub exit_code: Option<i32>,
    /// How the server was ended.
    pub teardown: Option<Teardown>,
    /// Bytes of the server's stderr.
    pub stderr_bytes: u64,
    /// Live events that subscribers missed.
    pub live_events_missed: u64,
    /// What recovery found and did.
    pub recovery_notes: Vec<String>,
}

/// A gap that is recorded after the receipts that are on disk already.
#[derive(Debug)]
pub(super) struct HeldGap {
    pub(super) reason: Word<GapReason>,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) now_ns: u64,
}

/// Whether a call without a response for this reason keeps its session from being complete.
const fn is_failure(reason: OutcomeReason) -> bool {
    use OutcomeReason as R;
    !matches!(reason, R::ClientClosed | R::CancelledByClient | R::Notification | R::HttpError)
}

impl Recorder {
    /// Records in the chain and in a receipt that evidence was lost.
    pub fn gap(&mut self, reason: impl Into<Word<GapReason>>, messages: u64, bytes: u64, now_ns: u64) {
        let reason = reason.into();
        self.last_ns = self.last_ns.max(now_ns);
        if let Some(state) = &mut self.restored {
            // Its receipt must not come before the events of those that are on disk.
            state.gaps.push(HeldGap { reason, messages, bytes, now_ns });
            return;
        }
        self.counts.missed += messages;
        self.counts.missed_bytes += bytes;
        if let Some(witness) = &self.witness {
            witness.gap();
        }
        self.write_session_start(now_ns);
        let id = self.session_receipt("gap");
        let receipt = GapReceipt {
            bytes,
            integration_source: self.integration_source(),
            messages,
            reason: reason.clone(),
            receipt_id: id,
            schema_version: PLAIN_SCHEMA.to_owned(),
            seq: self.next_receipt,
            session_id: self.session,
            timestamp: self.clock.wall(now_ns),
            trace_id: self.session,
            r#type: RECORDER_GAP.to_owned(),
        };
        let binding = self.receipt_line(id, &receipt);
        self.gap_event(reason, messages, bytes, binding, (self.clock.wall(now_ns), now_ns));
    }

    /// Requests that came while the maximum of followed requests was in flight.
    #[must_use]
    pub fn all_not_followed(&self) -> u64 {
        self.not_followed
    }

    /// Counts the requests that are not followed.
    pub(super) fn say_unfollowed(&mut self) {
        let (messages, bytes) = std::mem::take(&mut self.unfollowed);
        self.not_followed += messages;
        if messages > 0 {
            self.gap(GapReason::InFlightLimit, messages, bytes, self.last_ns);
        }
    }

    /// Closes as much of what is open as `room` bytes of lines hold, as [`Recorder::end`] would; whether there is more.
    /// What is open may be very much, and need not wait in memory together.
    pub fn close_open(&mut self, ending: &Ending, now_ns: u64, room: usize) -> bool {
        self.last_ns = self.last_ns.max(now_ns);
        self.write_session_start(self.last_ns);
        self.say_unfollowed();
        for invocation in self.table.in_order() {
            if self.lines.len() >= room {
                return true;
            }
            let Some(pending) = self.table.remove(invocation) else { continue };
            if pending.call.is_some() && pending.response.is_none() && !pending.cancelled && pending.key.is_some() {
                match pending.cut {
                    Some(reason) => self.failed += u64::from(is_failure(reason)),
                    None => self.unanswered += 1,
                }
            }
            self.close_now(pending, ending.no_response);
        }
        false
    }

    /// Closes what is open, ends the chain and returns `session.json`.
    pub fn end(&mut self, ending: &Ending, now_ns: u64) -> SessionDoc {
        let mut carried_out = Vec::new();
        if ending.carries_over {
            self.last_ns = self.last_ns.max(now_ns);
            self.write_session_start(self.last_ns);
            self.say_unfollowed();
            carried_out = self.table.in_order();
            carried_out.retain(|invocation| self.table.get(*invocation).is_some_and(|p| p.recorded));
        } else {
            self.close_open(ending, now_ns, usize::MAX);
        }
        let unanswered = self.unanswered;
        let whole = self.counts.missed == 0 && self.counts.missed_bytes == 0;
        let complete = ending.clean && whole && self.failed == 0 && (unanswered == 0 || ending.pending_is_clean);
        self.end_chain(ending, complete, carried_out);
        self.doc(ending, complete)
    }

    /// Closes a request that has no answer: what it was asked in ended so.
    pub(super) fn close_cut(&mut self, invocation: InvocationId, reason: Option<OutcomeReason>) {
        let Some(pending) = self.table.get_mut(invocation) else { return };
        pending.cut = reason;
        let is_open = pending.call.is_some() && pending.response.is_none() && !pending.cancelled;
        self.failed += u64::from(is_open && pending.key.is_some() && reason.is_some_and(is_failure));
        self.close(invocation);
    }

    fn end_chain(&mut self, ending: &Ending, complete: bool, carried_out: Vec<crate::model::InvocationId>) {
        self.name_exchanges();
        self.say_junk();
        self.exchanges.is_lost = ending.reason == EndReason::SessionLost;
        let detail = detail::ChainEnd {
            carried_out,
            complete,
            counts: self.counts,
            events: self.chain.len() + 1,
            reason: ending.reason.clone(),
            receipts: self.next_receipt,
        };
        self.plain_event((self.clock.wall(self.last_ns), self.last_ns), Detail::ChainEnd(detail));
        self.write_session_end(&ending.reason, complete);
    }

    pub(super) fn write_session_end(&mut self, reason: &Word<EndReason>, complete: bool) {
        let id = self.session_receipt("session_end");
        let receipt = SessionEnd {
            chain_hash: self.chain.head().to_owned(),
            counts: self.counts,
            end_reason: reason.clone(),
            integration_source: self.integration_source(),
            proxy_version: RECORDER_VERSION.to_owned(),
            receipt_id: id,
            schema_version: PLAIN_SCHEMA.to_owned(),
            seq: self.next_receipt,
            session_complete: complete,
            session_id: self.session,
            timestamp: self.clock.wall(self.last_ns),
            trace_id: self.session,
            r#type: SESSION_END.to_owned(),
        };
        let before = self.lines.receipts.len();
        self.receipt_line(id, &receipt);
        self.lines.behind = self.lines.receipts.len() - before;
    }

    pub(super) fn doc(&self, ending: &Ending, complete: bool) -> SessionDoc {
        SessionDoc {
            chain_first: self.chain.first().to_owned(),
            chain_last: self.chain.head().to_owned(),
            client_info: self.identity.client.clone(),
            clock_steps: self.clock.steps.clone(),
            command: self.setup.origin.command().cloned(),
            command_digest: self.setup.origin.digest().to_owned(),
            continues: self.continues,
            counts: self.counts,
            coverage: self.setup.is_library().then(|| self.steps.coverage()),
            end_reason: ending.reason.clone(),
            ended_at: self.clock.wall(self.last_ns),
            ended_mono_us: self.mono_us(self.last_ns),
            event_count: self.chain.len(),
            exit_code: ending.exit_code,
            http: self.http_session(),
            ledger_hash: self.ledger_hash.clone(),
            live_events_missed: ending.live_events_missed,
            policy_hash: self.policy.clone(),
            profile: self.setup.profile,
            protocol_version: self.identity.protocol.clone(),
            receipt_count: self.next_receipt,
            recorder: self.setup.is_library().then_some(RecorderKind::Library.into()),
            recorder_version: RECORDER_VERSION.to_owned(),
            recovery_notes: ending.recovery_notes.clone(),
            server_id: self.setup.server_id.clone(),
            server_info: self.identity.server.clone(),
            session_complete: complete,
            session_id: self.session,
            started_at: self.started_at,
            stderr_bytes: ending.stderr_bytes,
            surface_hash: self.surface().map(|s| crate::canon::sha256_hex(&s)),
            teardown: ending.teardown.map(Word::Known),
            transport: self.setup.transport.as_str().to_owned(),
            v: match (self.setup.is_library(), self.setup.transport) {
                (true, _) => SESSION_VERSION,
                (false, Transport::Stdio) => 1,
                (false, _) => HTTP_SESSION,
            },
        }
    }

    /// The session that follows a rolled one: what is in flight and who takes part go with it.
    #[must_use]
    pub fn roll_into(mut self, mut begin: Begin) -> Self {
        // The same session once more: it could not be begun on disk before.
        begin.continues = if self.session == begin.session { self.continues } else { Some(self.session) };
        let mut next = Self::bare(self.setup.clone(), begin);
        next.table = std::mem::take(&mut self.table);
        next.awaiting = std::mem::take(&mut self.awaiting);
        next.exchanges = self.exchanges.roll();
        next.judge = self.judge.take();
        next.policy = self.policy;
        next.violations = self.violations;
        next.identity = self.identity;
        next.surface = self.surface;
        next.silent = self.silent;
        next.judge_on(self.judged.take(), self.started_ns);
        let order = next.table.in_order();
        let carried = order.into_iter().filter(|i| next.table.get(*i).is_some_and(|p| p.recorded)).collect();
        next.write_chain_start(carried);
        // Its files were taken away, and no chain had said this yet.
        next.junk = self.junk;
        next.say_junk();
        next
    }
}
