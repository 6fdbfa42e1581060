//! Responses, and the delivery of messages.

use super::{Awaited, BigPayload, Message, Recorder, request::digests, wire_of};
use crate::model::words::AnomalyKind;
use crate::{
    canon,
    model::{
        CallAnomaly, Detail, Direction, InvocationId, PolicyReason, ReceiptId, Transport, Word, event::detail,
        exact_integer, redaction::Side,
    },
    record::{
        chain::Entry,
        content,
        correlate::{NextLeg, Response},
        envelope::{self, Envelope, IdKey, ResultFields},
        stream::StreamId,
    },
};
use std::collections::BTreeSet;

impl Recorder {
    pub(super) fn response(
        &mut self,
        m: &Message<'_>,
        e: &Envelope<'_>,
        mut flags: BTreeSet<Word<CallAnomaly>>,
        big: &mut Vec<BigPayload>,
    ) {
        let asked = m.scope(m.direction().reverse());
        let key = e.id.map(IdKey::of);
        if self.is_replay(m, e, key.as_ref()) {
            return;
        }
        let here = key.as_ref().and_then(|k| self.table.answer(asked, k));
        let Some(invocation) = here.or_else(|| self.answer_to_another(m, e, key.as_ref(), &mut flags)) else {
            self.unmatched(m, e, key.as_ref());
            return;
        };
        let fields = ResultFields::of(e);
        let Some((recorded, method)) = self.table.get(invocation).map(|p| (p.recorded, p.method.clone())) else {
            return;
        };
        if m.direction() == Direction::ServerToClient && matches!(method.as_str(), "initialize" | "server/discover") {
            self.learn_server(&fields, m.read_ns);
        }
        if let Some(part) = self.table.get(invocation).and_then(|p| p.surface) {
            self.surface.answered(invocation, part, e);
            self.say_heard(recorded.then_some(invocation), m.read_ns);
            self.filtered(m, e);
        }
        if !recorded {
            self.table.remove(invocation);
            return;
        }
        let range = e.error.clone().or(e.result.clone());
        let body = range.clone().map(|r| &e.bytes[r]);
        if e.error.is_some() && e.result.is_some() {
            flags.insert(CallAnomaly::ResultAndError.into());
        }
        if self.table.get(invocation).is_some_and(|p| p.cancelled) {
            flags.insert(CallAnomaly::ResponseAfterCancel.into());
        }
        let is_call = self.table.get(invocation).is_some_and(|p| p.call.is_some());
        let (wire, digest) = match range {
            Some(range) => {
                let (wire, digest) = digests(m, e, range, &mut flags);
                (wire, Some(digest))
            }
            None => (wire_of(m), None),
        };
        let mut stored = None;
        if let (true, Some(body), Some(digest)) = (is_call && self.setup.store_results, body, &digest) {
            let left = self.left(m, Side::Result, body, &mut flags);
            stored = self.store(m, (Side::Result, body), Some(&left), digest, invocation, &mut flags, big);
        }
        let error_code = e.error.clone().and_then(|r| error_code(&e.bytes[r], &mut flags));
        let response = Response {
            at: self.clock.wall(m.read_ns),
            first_byte_ns: m.first_byte_ns,
            read_ns: m.read_ns,
            delivered_ns: None,
            wire,
            place: m.place,
            result_hash: digest.map(|d| d.to_string()),
            result_content: stored,
            is_error: Some(e.error.is_some() || fields.is_error),
            result_type: e.error.is_none().then(|| result_type(&fields)),
            is_final: method == "tasks/result" || fields.has_result || e.error.is_some(),
            anomalies: flags,
        };
        self.response_event(m, error_code, invocation, &response);
        // The next leg may be read before this one is delivered.
        let call =
            self.table.get(invocation).and_then(|p| p.call.as_ref()).filter(|c| !c.task_leg || response.is_final);
        if let Some((tool, arguments)) = call.map(|c| (c.tool_name.clone(), c.arguments_hash.clone())) {
            let receipt = ReceiptId::from_bits(invocation.bits());
            self.table.open_leg(receipt, &tool, &arguments, next_leg(&fields));
        }
        if let Some(p) = self.table.get_mut(invocation) {
            p.response = Some(Box::new(response));
        }
        self.awaiting.push(m.place, m.end, invocation, true);
    }

    /// The request that a response answers although its id is not that of one in its exchange.
    fn answer_to_another(
        &mut self,
        m: &Message<'_>,
        e: &Envelope<'_>,
        key: Option<&IdKey>,
        flags: &mut BTreeSet<Word<CallAnomaly>>,
    ) -> Option<InvocationId> {
        let StreamId::Exchange { exchange, direction: Direction::ServerToClient } = m.place.stream else { return None };
        let asked = m.scope(Direction::ClientToServer);
        // In the old transport no request is answered in its own exchange.
        let old = self.setup.transport == Transport::Sse;
        if let Some(invocation) = key.filter(|_| m.resumable).and_then(|key| self.table.elsewhere(key, old)) {
            self.table.answered(invocation, Some(asked));
            flags.insert(CallAnomaly::AnsweredOnOtherExchange.into());
            return Some(invocation);
        }
        // The server could not read the id.
        let without_id = e.error.is_some() && e.id.is_none_or(|id| id == b"null");
        let invocation = self.table.only_one_of(exchange).filter(|_| without_id)?;
        self.table.answered(invocation, Some(asked));
        Some(invocation)
    }

    /// Whether this is a response that is known, sent once more. If the first copy did not reach the client, this one
    /// may.
    fn is_replay(&mut self, m: &Message<'_>, e: &Envelope<'_>, key: Option<&IdKey>) -> bool {
        if !m.anomalies.contains(&CallAnomaly::Replayed) {
            return false;
        }
        let undelivered = key.and_then(|key| self.table.undelivered(key));
        let waits = key.is_some_and(|key| {
            self.table.in_flight(m.scope(Direction::ClientToServer), key) || self.table.elsewhere(key, true).is_some()
        });
        if undelivered.is_none() && waits {
            return false;
        }
        let rpc_id = content::evidence_id(e.id, &mut BTreeSet::new());
        let note = "a response that had been read before was sent once more".to_owned();
        self.anomaly_event(AnomalyKind::LateResponse, Some(note), m.read_ns, Some((m, &rpc_id)), None, None);
        if let Some(invocation) = undelivered {
            self.awaiting.push(m.place, m.end, invocation, true);
        }
        true
    }

    fn response_event(
        &mut self,
        m: &Message<'_>,
        error_code: Option<i64>,
        invocation: InvocationId,
        response: &Response,
    ) {
        let Some(p) = self.table.get(invocation) else { return };
        let (method, rpc_id) = (p.method.clone(), p.rpc_id.clone());
        let detail = detail::ResponseReceived {
            anomalies: response.anomalies.iter().cloned().collect(),
            error_code,
            exchange: self.exchange_of(m.place),
            first_byte_us: self.mono_us(m.first_byte_ns),
            is_error: response.is_error,
            offset: m.place.offset,
            result_hash: response.result_hash.clone(),
            result_type: response.result_type.clone(),
        };
        self.event(Entry {
            at: response.at,
            mono_us: self.mono_us(m.read_ns),
            direction: Some(m.direction()),
            method: Some(&method),
            rpc_id: Some(&rpc_id),
            invocation: Some(invocation),
            wire: Some(&response.wire),
            detail: Detail::ResponseReceived(detail),
        });
    }

    /// A guard cut something out of the answer before it passed.
    fn filtered(&mut self, m: &Message<'_>, e: &Envelope<'_>) {
        let decisions = m.ruling.iter().flat_map(|ruling| &ruling.decisions);
        let cut = decisions.filter(|d| d.reason == PolicyReason::SurfaceFiltered).filter_map(|d| d.rule.clone());
        let rpc_id = content::evidence_id(e.id, &mut BTreeSet::new());
        for note in cut.collect::<Vec<_>>() {
            let note = Some(envelope::short(&note));
            self.anomaly_event(AnomalyKind::SurfaceFiltered, note, m.read_ns, Some((m, &rpc_id)), None, None);
        }
    }

    fn unmatched(&mut self, m: &Message<'_>, e: &Envelope<'_>, key: Option<&IdKey>) {
        if self.restored.as_ref().is_some_and(|r| r.is_partial(m)) {
            return;
        }
        let asked = m.scope(m.direction().reverse());
        let late = key.is_some_and(|k| self.table.was_answered(asked, k));
        let rpc_id = content::evidence_id(e.id, &mut BTreeSet::new());
        let (kind, note) = if late {
            (AnomalyKind::LateResponse, "a request with this id had its response already")
        } else {
            (AnomalyKind::UnmatchedResponse, "no request with this id is in flight")
        };
        self.anomaly_event(kind, Some(note.to_owned()), m.read_ns, Some((m, &rpc_id)), None, None);
    }

    fn learn_server(&mut self, fields: &ResultFields<'_>, now_ns: u64) {
        if let Some(server) = fields.server_info.and_then(envelope::peer_info) {
            self.identity.server = Some(server);
        }
        if let Some(version) = &fields.protocol_version {
            self.identity.protocol = Some(envelope::short(version));
        }
        self.write_session_start(now_ns);
    }

    /// Everything of this stream before offset `written` has reached the receiver; `when` tells when a byte did.
    pub fn delivered(&mut self, stream: StreamId, written: u64, when: &dyn Fn(u64) -> Option<u64>) {
        while let Some(awaited) = self.awaiting.next(stream, written) {
            let ns = when(awaited.end.saturating_sub(1)).unwrap_or(self.last_ns);
            self.deliver(&awaited, ns);
        }
    }

    fn deliver(&mut self, awaited: &Awaited, ns: u64) {
        let Some(p) = self.table.get_mut(awaited.invocation) else { return };
        self.last_ns = self.last_ns.max(ns);
        if awaited.response {
            if let Some(r) = &mut p.response {
                r.delivered_ns = Some(ns);
            }
        } else {
            p.forwarded_ns = Some(ns);
            self.forwarded_event(awaited, ns);
        }
        let Some(p) = self.table.get(awaited.invocation) else { return };
        let answered =
            (p.forwarded_ns.is_some() || p.over) && p.response.as_ref().is_some_and(|r| r.delivered_ns.is_some());
        if answered || p.key.is_none() {
            self.close(awaited.invocation);
        }
    }

    fn forwarded_event(&mut self, awaited: &Awaited, ns: u64) {
        let Some(p) = self.table.get(awaited.invocation) else { return };
        let (method, rpc_id, wire, place) = (p.method.clone(), p.rpc_id.clone(), p.wire.clone(), p.place);
        self.event(Entry {
            at: self.clock.wall(ns),
            mono_us: self.mono_us(ns),
            direction: Some(place.direction()),
            method: Some(&method),
            rpc_id: Some(&rpc_id),
            invocation: Some(awaited.invocation),
            wire: wire.as_ref(),
            detail: Detail::RequestForwarded(detail::Forwarded {
                exchange: self.exchange_of(place),
                offset: awaited.offset,
                receipt_id: None,
                receipt_sha256: None,
            }),
        });
    }
}

/// The code of an error response; one that evidence cannot hold as a number is left out, with an anomaly.
fn error_code(error: &[u8], flags: &mut BTreeSet<Word<CallAnomaly>>) -> Option<i64> {
    let raw = envelope::Fields::of(error, ["code"]).ok()?.get(0)?;
    let code = exact_integer(raw);
    if code.is_none() {
        flags.insert(CallAnomaly::ErrorCodeNotKept.into());
    }
    code
}

fn result_type(fields: &ResultFields<'_>) -> String {
    match &fields.result_type {
        Some(t) => envelope::short(t),
        None if fields.has_task => "task".to_owned(),
        None => "complete".to_owned(),
    }
}

fn next_leg(fields: &ResultFields<'_>) -> NextLeg {
    let input = fields.result_type.as_deref() == Some("input_required");
    NextLeg {
        request_state: fields.request_state.map(canon::sha256_hex),
        input_keys: input.then(|| fields.input_requests.map(envelope::member_names).unwrap_or_default()),
        task_id: fields.task_id.as_ref().map(|t| envelope::short(t)),
    }
}
