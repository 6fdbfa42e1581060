//! Taking up a session whose process is gone: the state of the recorder from the evidence that is on disk.

use super::{Begin, Message, Recorder, end::HeldGap, request::MODERN};
use crate::model::words::{AnomalyKind, EndReason, GapReason};
use crate::{
    model::{
        AuditEvent, CallAnomaly, Detail, Direction, EventKind, InvocationId, PolicyVerdict, ReceiptId, RpcId,
        SessionId, Word,
        event::{EventHead, detail},
        http::InExchange,
        receipt::{Counts, PeerInfo},
        session::Identity,
    },
    record::{
        chain::{Chain, Wire},
        correlate::{Call, Pending, RequestDecision, Response},
        envelope::IdKey,
        stream::{MessagePlace, StreamId},
    },
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Receipts that events bind, with the SHA-256 of their lines.
type Bound = HashMap<ReceiptId, String>;

/// What is on disk already, while the rest of a dead session is read from its capture.
#[derive(Debug, Default)]
pub struct Restored {
    /// The last message of each stream whose events are on disk.
    known: HashMap<StreamId, Known>,
    /// Receipts that no event binds yet, in file order.
    pub(super) unbound: Vec<OnDisk>,
    pub(super) by_id: HashMap<ReceiptId, String>,
    /// Receipts that events bind and that are not on disk, with the SHA-256 of their lines.
    pub(super) lost: Vec<(ReceiptId, String)>,
    /// Calls that were answered, in the order in which they were.
    pub(super) held: Vec<Pending>,
    /// Gaps that were found meanwhile.
    pub(super) gaps: Vec<HeldGap>,
    /// The `chain_end` event, if it is on disk.
    pub ended: Option<detail::ChainEnd>,
    /// Whether the receipt `mcp.session_end` is on disk.
    pub session_end_written: bool,
}

/// The last message of a stream whose events are on disk.
#[derive(Debug, Default)]
struct Known {
    /// Stream offset of its first byte.
    offset: u64,
    /// The requests in it that the segment holds: a batch may be there in part.
    requests: HashSet<InvocationId>,
}

impl Restored {
    /// Whether everything of this message is on disk already.
    pub(super) fn is_known(&self, m: &Message<'_>) -> bool {
        match self.known.get(&m.place.stream) {
            Some(known) if m.place.offset == known.offset => !super::envelope::is_batch(m.bytes),
            Some(known) => m.place.offset < known.offset,
            None => false,
        }
    }

    pub(super) fn holds(&self, invocation: InvocationId) -> bool {
        self.known.values().any(|known| known.requests.contains(&invocation))
    }

    pub(super) fn is_partial(&self, m: &Message<'_>) -> bool {
        self.known.get(&m.place.stream).is_some_and(|known| known.offset == m.place.offset)
    }

    pub(super) fn hold(&mut self, pending: Pending) {
        self.held.push(pending);
    }

    pub(super) fn take_receipt(&mut self, id: ReceiptId) -> Option<String> {
        self.by_id.remove(&id)
    }
}

/// A receipt that is on disk.
#[derive(Debug)]
pub struct OnDisk {
    /// Its line, without newline.
    pub line: Vec<u8>,
    /// Where the line begins in its file.
    pub start: u64,
    /// Id of the receipt.
    pub id: ReceiptId,
    /// Type of the receipt, such as `mcp.tool_call`.
    pub kind: String,
    /// SHA-256 of its line.
    pub sha256: String,
    /// What a tool call's outcome adds to the counts.
    pub counts: Counts,
    /// Client, server and protocol version of `mcp.session_start`.
    pub identity: Option<(Option<PeerInfo>, Option<PeerInfo>, Option<String>)>,
}

impl Recorder {
    /// The recorder in its state when these events and receipts were written. `carried` are the events of the session
    /// before, for the calls that were in flight when it rolled over.
    pub fn restore(
        setup: std::sync::Arc<super::Setup>,
        begin: Begin,
        carried: &mut dyn Iterator<Item = AuditEvent>,
        events: &mut dyn Iterator<Item = AuditEvent>,
        receipts: &mut dyn Iterator<Item = OnDisk>,
    ) -> Self {
        let mut r = Self::bare(setup, begin);
        let mut state = Restored::default();
        let mut bound = HashMap::new();
        let started_ns = r.started_ns;
        for event in carried {
            if event.event == EventKind::ChainStart {
                r.exchanges = std::mem::take(&mut r.exchanges).roll();
                let earlier_ms = r.started_at.millis() - event.at.millis();
                r.started_ns =
                    started_ns.saturating_sub(u64::try_from(earlier_ms).unwrap_or(0).saturating_mul(1_000_000));
            }
            r.replay(event, &mut Restored::default(), &mut HashMap::new());
        }
        r.started_ns = started_ns;
        r.exchanges = std::mem::take(&mut r.exchanges).roll();
        r.counts = Counts::default();
        r.unfollowed = (0, 0);
        r.clock.steps.clear();
        let mut ends: Option<(String, u64, String)> = None;
        for event in events {
            if ends.is_none() {
                r.keep_only_carried(&event);
                r.ledger_hash.clone_from(&event.prev_hash);
            }
            let first = ends.take().map_or_else(|| event.hash.clone(), |(first, ..)| first);
            ends = Some((first, event.event_seq + 1, event.hash.clone()));
            r.replay(event, &mut state, &mut bound);
        }
        if let Some((first, len, head)) = ends {
            let chain = Chain::resume(r.session, r.setup.transport, len, first, head);
            r.chain = r.setup.chain(chain);
        }
        for receipt in receipts {
            r.take_on_disk(receipt, &mut bound, &mut state);
        }
        if !r.chain.is_empty() && state.ended.is_none() && !r.is_compared() {
            r.say_first_decisions();
        }
        state.lost = bound.into_iter().collect();
        state.lost.sort_unstable_by_key(|(id, _)| id.bits());
        r.restored = Some(state);
        r.recovering = true;
        r
    }

    fn take_on_disk(&mut self, receipt: OnDisk, bound: &mut Bound, state: &mut Restored) {
        self.next_receipt += 1;
        add_call(&mut self.counts, &receipt.counts);
        match receipt.kind.as_str() {
            crate::model::receipt::SESSION_START => {
                self.session_start_written = true;
                if let Some((client, server, protocol)) = receipt.identity {
                    self.identity = Identity { client, server, protocol };
                }
            }
            crate::model::receipt::SESSION_END => state.session_end_written = true,
            _ if bound.remove(&receipt.id).is_some() => {}
            _ => {
                state.by_id.insert(receipt.id, receipt.sha256.clone());
                state.unbound.push(receipt);
            }
        }
    }

    /// Begins the chain of a session that died before it could.
    pub fn begin_restored(&mut self) {
        let order = self.table.in_order();
        let carried = order.into_iter().filter(|i| self.table.get(*i).is_some_and(|p| p.recorded)).collect();
        self.write_chain_start(carried);
    }

    /// What is known of a restored session, until [`Recorder::finish_restore`].
    #[must_use]
    pub const fn restored(&self) -> Option<&Restored> {
        self.restored.as_ref()
    }

    fn keep_only_carried(&mut self, chain_start: &AuditEvent) {
        let start = chain_start.chain_start();
        let carried: HashSet<InvocationId> = start.iter().flat_map(|s| s.carried_in.iter().copied()).collect();
        for invocation in self.table.in_order() {
            if !carried.contains(&invocation) {
                self.table.remove(invocation);
            }
        }
        self.awaiting.retain(|a| carried.contains(&a.invocation));
    }

    fn replay(&mut self, e: AuditEvent, state: &mut Restored, bound: &mut Bound) {
        let ns = self.started_ns.saturating_add(e.mono_us.saturating_mul(1000));
        self.last_ns = self.last_ns.max(ns);
        let (detail, e) = e.with(());
        if let Some(exchange) = detail.read_in() {
            self.exchanges.mention(exchange);
        }
        match detail {
            Detail::RequestReceived(d) => {
                state.note(&e, d.exchange, d.offset);
                self.replay_request(e, d, ns);
            }
            Detail::RequestForwarded(_) => {
                if let Some(p) = e.invocation_id.and_then(|i| self.table.get_mut(i)) {
                    p.forwarded_ns = Some(ns);
                }
                self.awaiting.forget(e.invocation_id, false);
            }
            Detail::ResponseReceived(d) => {
                state.note(&e, d.exchange, d.offset);
                self.replay_response(e, d, ns);
            }
            Detail::ResponseSent(d) => {
                self.awaiting.forget(e.invocation_id, true);
                e.invocation_id.and_then(|i| self.table.remove(i));
                bound.extend(d.receipt_id.zip(d.receipt_sha256));
            }
            Detail::Malformed(d) | Detail::Notification(d) => {
                self.counts.malformed += u64::from(e.event == EventKind::Malformed);
                state.note(&e, d.exchange, d.offset);
                if let Some(p) = e.invocation_id.and_then(|i| self.table.get_mut(i)) {
                    p.cancelled = true;
                }
                self.grow_stale(e.method.as_deref().unwrap_or_default());
            }
            Detail::MalformedLines(d) => {
                self.counts.malformed += d.lines;
                // No line of them begins after their end.
                let end = d.offset + e.wire_bytes.unwrap_or_default();
                state.note(&e, InExchange::Unsaid, end);
            }
            Detail::Anomaly(d) => self.replay_anomaly(&e, d, state, bound),
            Detail::RecorderGap(d) => {
                if d.reason == GapReason::InFlightLimit {
                    self.unfollowed = (0, 0);
                }
                self.counts.missed += d.messages;
                self.counts.missed_bytes += d.bytes;
                bound.extend(d.receipt_id.zip(d.receipt_sha256));
            }
            Detail::ChainEnd(d) => {
                self.exchanges.is_lost = d.reason == EndReason::SessionLost;
                state.ended = Some(d);
            }
            Detail::PolicyDecision(d) => self.replay_decision(&e, d, ns),
            Detail::RequestBlocked(d) => {
                state.note(&e, d.exchange, d.offset);
                bound.extend(d.receipt_id.zip(d.receipt_sha256));
                self.awaiting.forget(e.invocation_id, false);
                e.invocation_id.and_then(|i| self.table.remove(i));
            }
            Detail::HttpExchange(d) => self.replay_exchange(&d),
            Detail::ToolRequested(d) | Detail::ToolDenied(d) | Detail::ToolExecuted(d) => {
                if let Some(invocation) = e.invocation_id {
                    self.count_step(e.event, invocation);
                    self.counts.requests += u64::from(e.event == EventKind::ToolRequested);
                }
                bound.extend(d.receipt_id.zip(d.receipt_sha256));
            }
            Detail::SurfaceDecision(d) => self.replay_decided(&d),
            Detail::SurfaceObserved(d) => self.replay_observed(&e, &d),
            Detail::SurfaceDrift(d) => self.replay_drift(&d),
            Detail::ChainStart(_) => self.forget_told(),
            Detail::PolicyReloaded(_) => {}
        }
    }

    fn replay_decision(&mut self, e: &EventHead, d: detail::PolicyDecision, ns: u64) {
        let Some(pending) = e.invocation_id.and_then(|i| self.table.get_mut(i)) else { return };
        if let Some(call) = &mut pending.call {
            call.surface = call.surface.take().map(|stands| stands.refused_for(Some(&d.reason)));
        }
        pending.decision = Some(Box::new(RequestDecision {
            verdict: d.verdict,
            reason: d.reason,
            rule: d.rule,
            unseen: d.unseen,
            policy_hash: d.policy_hash,
            at_ns: ns,
            at: e.at,
            enforced: d.enforced,
            // The event that says so is still to come.
            blocked: false,
        }));
        // Its receiver never saw it, whatever is found later.
        if d.enforced && d.verdict == PolicyVerdict::Denied {
            self.awaiting.forget(e.invocation_id, false);
        }
    }

    fn replay_anomaly(&mut self, e: &EventHead, d: detail::Anomaly, state: &mut Restored, bound: &mut Bound) {
        if let Some(offset) = d.offset {
            state.note(e, d.exchange, offset);
        }
        if d.kind == AnomalyKind::ReceiptLost {
            d.receipt_id.and_then(|id| bound.remove(&id));
            return;
        }
        if d.kind == AnomalyKind::NotFollowed {
            self.unfollowed.0 += 1;
            self.unfollowed.1 += e.wire_bytes.unwrap_or_default();
        }
        if d.kind == AnomalyKind::ClockStep
            && self.clock.steps.len() < super::MAX_STEPS
            && let Some(delta_ms) = d.note.as_deref().and_then(super::step_of_note)
        {
            self.clock.steps.push(crate::model::session::ClockStep { at: e.at, delta_ms });
        }
        bound.extend(d.receipt_id.zip(d.receipt_sha256));
        if matches!(d.kind.known(), Some(AnomalyKind::NoResponse | AnomalyKind::NotDelivered)) || d.receipt_id.is_some()
        {
            self.awaiting.forget(e.invocation_id, true);
            e.invocation_id.and_then(|i| self.table.remove(i));
        }
    }

    fn replay_request(&mut self, e: EventHead, d: detail::RequestReceived, ns: u64) {
        let (Some(invocation), Some(direction)) = (e.invocation_id, e.direction) else { return };
        self.counts.requests += 1;
        let rpc_id = e.rpc_id.unwrap_or(RpcId::Null);
        let key = key_of(&rpc_id, &d.anomalies);
        let method = e.method.unwrap_or_default();
        let call = d.tool_name.zip(d.arguments_hash).map(|(tool_name, arguments_hash)| Call {
            tool_name,
            arguments_hash,
            arguments_content: None,
            arguments_redacted: None,
            anomalies: d.anomalies.into_iter().collect(),
            meta: d.meta,
            parent: d.parent_receipt_id,
            at: e.at,
            task_leg: method != "tools/call",
            surface: None,
        });
        let call = call.map(|call| Call { surface: self.stands(&call.tool_name, None, ns), ..call });
        let wire_bytes = e.wire_bytes.unwrap_or_default();
        let place = place_of(d.exchange, direction, d.offset);
        self.awaiting.push(place, d.offset + wire_bytes, invocation, false);
        self.table.insert(Pending {
            invocation,
            place,
            key,
            method,
            recorded: true,
            modern: d.era == MODERN,
            over: false,
            cut: None,
            rpc_id,
            wire: e.wire_sha256.map(|sha256| Wire { bytes: wire_bytes, sha256 }),
            read_ns: ns,
            forwarded_ns: None,
            cancelled: false,
            call,
            decision: None,
            response: None,
            surface: None,
        });
    }

    fn replay_response(&mut self, e: EventHead, d: detail::ResponseReceived, ns: u64) {
        let (Some(invocation), Some(direction)) = (e.invocation_id, e.direction) else { return };
        self.table.answered(invocation, None);
        let first_byte_ns = self.started_ns.saturating_add(d.first_byte_us.saturating_mul(1000));
        let Some(p) = self.table.get_mut(invocation) else { return };
        let wire_bytes = e.wire_bytes.unwrap_or_default();
        p.response = Some(Box::new(Response {
            at: e.at,
            first_byte_ns,
            read_ns: ns,
            delivered_ns: None,
            wire: Wire { bytes: wire_bytes, sha256: e.wire_sha256.unwrap_or_default() },
            place: place_of(d.exchange, direction, d.offset),
            result_hash: d.result_hash,
            result_content: None,
            is_error: d.is_error,
            is_final: p.method == "tasks/result" || d.result_type.as_deref() == Some("complete"),
            result_type: d.result_type,
            anomalies: d.anomalies.into_iter().collect::<BTreeSet<_>>(),
        }));
        let place = place_of(d.exchange, direction, d.offset);
        self.awaiting.push(place, d.offset + wire_bytes, invocation, true);
    }

    /// `mcp.session_end` and `session.json` of a chain that has ended already.
    pub fn complete_ended(
        &mut self,
        ended: &detail::ChainEnd,
        end_written: bool,
        ending: &super::Ending,
    ) -> crate::model::SessionDoc {
        self.counts = ended.counts;
        if !end_written {
            self.write_session_end(&ended.reason, ended.complete);
        }
        let ending = super::Ending { reason: ended.reason.clone(), ..ending.clone() };
        self.restored = None;
        self.doc(&ending, ended.complete)
    }

    /// Whether a server records itself.
    #[must_use]
    pub fn is_library(&self) -> bool {
        self.setup.is_library()
    }

    /// The session's id and what it continues, for messages.
    #[must_use]
    pub const fn continues(&self) -> Option<SessionId> {
        self.continues
    }
}

impl Restored {
    fn note(&mut self, e: &EventHead, exchange: InExchange, offset: u64) {
        let Some(direction) = e.direction else { return };
        let known = self.known.entry(place_of(exchange, direction, offset).stream).or_default();
        if offset > known.offset {
            *known = Known { offset, requests: HashSet::new() };
        }
        known.requests.extend(e.invocation_id.filter(|_| e.event == EventKind::RequestReceived));
    }
}

/// Where the message of an event was.
fn place_of(exchange: InExchange, direction: Direction, offset: u64) -> MessagePlace {
    let stream = match exchange.number() {
        Some(exchange) => StreamId::Exchange { exchange, direction },
        None => StreamId::Stdio(direction),
    };
    MessagePlace { stream, offset }
}

fn key_of(rpc_id: &RpcId, anomalies: &[Word<CallAnomaly>]) -> Option<IdKey> {
    let flagged = |word: CallAnomaly| anomalies.iter().any(|a| *a == word);
    match rpc_id {
        _ if flagged(CallAnomaly::NotificationCall) => None,
        RpcId::Text(t) if flagged(CallAnomaly::IdTooLong) => {
            let hash = t.strip_prefix("sha256-raw:").and_then(|digits| hex::decode(digits).ok());
            Some(IdKey::Other(hash.unwrap_or_default()))
        }
        RpcId::Null => Some(IdKey::Other(b"null".to_vec())),
        RpcId::Int(n) => Some(IdKey::Other(n.to_string().into_bytes())),
        RpcId::Text(t) if flagged(CallAnomaly::IdOutOfRange) => Some(IdKey::of(t.as_bytes())),
        RpcId::Text(t) => Some(IdKey::Text(t.clone())),
    }
}

fn add_call(counts: &mut Counts, call: &Counts) {
    counts.calls += call.calls;
    counts.denied += call.denied;
    counts.errors += call.errors;
    counts.timeouts += call.timeouts;
    counts.policy_denied += call.policy_denied;
}

pub(super) fn take_call(counts: &mut Counts, call: &Counts) {
    counts.calls = counts.calls.saturating_sub(call.calls);
    counts.denied = counts.denied.saturating_sub(call.denied);
    counts.errors = counts.errors.saturating_sub(call.errors);
    counts.timeouts = counts.timeouts.saturating_sub(call.timeouts);
    counts.policy_denied = counts.policy_denied.saturating_sub(call.policy_denied);
}
