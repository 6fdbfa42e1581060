//! The end of a call: its receipt, and the event that binds it into the chain.

use super::{Binding, Recorder, judged::said};
use crate::model::words::{AnomalyKind, OutcomeReason, Word};
use crate::{
    canon,
    model::{
        CallAnomaly, Detail, DurationMs, InvocationId, Outcome, Phases, PolicyVerdict, RECORDER_VERSION, ReceiptId,
        RpcId, ToolCall, Transport,
        event::detail,
        receipt::{
            FIELDS_SCHEMA, INTEGRATION_SOURCE, PLAIN_SCHEMA, REDACTED_SCHEMA, SESSION_START, SURFACE_SCHEMA,
            SessionStart, TOOL_CALL,
        },
        redaction::{self, Side},
        said::Said,
    },
    record::{
        chain::Entry,
        correlate::{Pending, RequestDecision},
        envelope,
    },
};

impl Recorder {
    /// The response was delivered, or none will come (a call sent as a notification).
    pub(super) fn close(&mut self, invocation: InvocationId) {
        let Some(pending) = self.table.remove(invocation) else { return };
        if let Some(restored) = &mut self.restored {
            // After a crash, calls are closed in the order of the receipts that are already on disk.
            restored.hold(pending);
            return;
        }
        self.close_now(pending, None);
    }

    /// Writes the receipt, if the request deserves one, and the closing event. `reason` says why there is no response,
    /// or why it was not delivered.
    pub(super) fn close_now(&mut self, mut pending: Pending, reason: Option<OutcomeReason>) {
        let reason = pending.cut.or(reason).or((pending.key.is_none()).then_some(OutcomeReason::Notification));
        let receipt =
            pending.call.as_ref().filter(|c| !c.task_leg || pending.response.as_ref().is_some_and(|r| r.is_final));
        let binding = receipt.is_some().then(|| self.write_call_receipt(&mut pending, reason));
        let now = self.last_ns;
        if let Some(decision) = pending.decision.as_ref().filter(|d| d.blocked) {
            self.blocked_event(&pending, decision, binding.unwrap_or_default());
            return;
        }
        match &pending.response {
            Some(response) if response.delivered_ns.is_some() => {
                let ns = response.delivered_ns.unwrap_or(now);
                let (wire, place) = (response.wire.clone(), response.place);
                let binding = binding.unwrap_or_default();
                self.event(Entry {
                    at: self.clock.wall(ns),
                    mono_us: self.mono_us(ns),
                    direction: Some(pending.place.direction().reverse()),
                    method: Some(&pending.method),
                    rpc_id: Some(&pending.rpc_id),
                    invocation: Some(pending.invocation),
                    wire: Some(&wire),
                    detail: Detail::ResponseSent(detail::Forwarded {
                        exchange: self.exchange_of(place),
                        offset: place.offset,
                        receipt_id: binding.id,
                        receipt_sha256: binding.sha256,
                    }),
                });
            }
            _ if !pending.recorded => {}
            response => {
                let kind = if response.is_some() { AnomalyKind::NotDelivered } else { AnomalyKind::NoResponse };
                let note = reason.map_or("unknown", OutcomeReason::as_str).to_owned();
                self.anomaly_event(kind, Some(note), now, None, Some(pending.invocation), binding);
            }
        }
    }

    fn blocked_event(&mut self, pending: &Pending, decision: &RequestDecision, binding: Binding) {
        self.event(Entry {
            at: decision.at,
            mono_us: self.mono_us(decision.at_ns),
            direction: Some(pending.place.direction()),
            method: Some(&pending.method),
            rpc_id: Some(&pending.rpc_id),
            invocation: Some(pending.invocation),
            wire: pending.wire.as_ref(),
            detail: Detail::RequestBlocked(detail::Blocked {
                exchange: self.exchange_of(pending.place),
                offset: pending.place.offset,
                reason: envelope::short_word(&decision.reason),
                receipt_id: binding.id,
                receipt_sha256: binding.sha256,
            }),
        });
    }

    fn write_call_receipt(&mut self, p: &mut Pending, reason: Option<OutcomeReason>) -> Binding {
        self.write_session_start(self.last_ns);
        let id = ReceiptId::from_bits(p.invocation.bits());
        if let Some(binding) = self.restored.as_mut().and_then(|r| r.take_receipt(id)) {
            return Binding { id: Some(id), sha256: Some(binding) };
        }
        let Some(mut receipt) = self.call_receipt(p, id, reason) else { return Binding::default() };
        if !self.setup.cleartext.is_empty() {
            receipt.arguments_redacted = Said::Said(p.call.as_mut().and_then(|c| c.arguments_redacted.take()));
            FIELDS_SCHEMA.clone_into(&mut receipt.schema_version);
        }
        receipt.arguments_content = p.call.as_mut().and_then(|c| c.arguments_content.take());
        receipt.result_content = p.response.as_mut().and_then(|r| r.result_content.take());
        let contents = [(Side::Arguments, &receipt.arguments_content), (Side::Result, &receipt.result_content)];
        let is_redacted = |side| redaction::is_redacted(&receipt.anomalies, side);
        if contents.into_iter().any(|(side, content)| content.is_some() && is_redacted(side)) {
            REDACTED_SCHEMA.clone_into(&mut receipt.schema_version);
        }
        self.count_call(&receipt);
        self.witness.iter().for_each(|witness| witness.call(&receipt));
        self.receipt_line(id, &receipt)
    }

    pub(super) fn count_call(&mut self, receipt: &ToolCall) {
        self.counts.call(receipt.outcome, receipt.policy_verdict);
    }

    /// What a receipt says of a call, without stored contents.
    pub(super) fn call_receipt(&self, p: &Pending, id: ReceiptId, reason: Option<OutcomeReason>) -> Option<ToolCall> {
        let call = p.call.as_ref()?;
        let stands = call.surface.as_ref();
        let response = p.response.as_ref();
        // The difference of the events' own times: a verifier has nothing else to compute it from. A call that was
        // carried over began before this session did.
        let us = |ns: u64| (ns as i64 - self.started_ns as i64).div_euclid(1000);
        let after = |ns: u64| us(ns).saturating_sub(us(p.read_ns)).max(0).unsigned_abs();
        let ended_ns = match (response, p.decision.as_ref().filter(|d| d.blocked)) {
            (_, Some(decision)) => decision.at_ns,
            (Some(r), None) => r.delivered_ns.unwrap_or(r.read_ns),
            (None, None) => self.last_ns,
        };
        let decision = p.decision.as_ref();
        let blocked = decision.is_some_and(|d| d.blocked);
        let short = |text: &String| envelope::short(text);
        let no_response = if p.cancelled { Some(OutcomeReason::CancelledByClient) } else { reason };
        let outcome = match response {
            _ if blocked => Outcome::Denied,
            None if no_response == Some(OutcomeReason::HttpError) => Outcome::Error,
            None => Outcome::Timeout,
            Some(r) if r.is_error == Some(true) => Outcome::Error,
            Some(_) => Outcome::Forwarded,
        };
        let mut anomalies = call.anomalies.clone();
        if let Some(r) = response {
            anomalies.extend(r.anomalies.iter().cloned());
            if r.delivered_ns.is_none() {
                anomalies.insert(CallAnomaly::ResponseNotDelivered.into());
                // What a peer has seen is not known of bytes that were with the HTTP stack.
                if self.recovering && self.setup.transport != Transport::Stdio {
                    anomalies.insert(CallAnomaly::DeliveryUnknown.into());
                }
            }
        }
        if call.task_leg {
            anomalies.insert(CallAnomaly::TaskLeg.into());
        }
        if self.recovering {
            anomalies.insert(CallAnomaly::Recovered.into());
        }
        Some(ToolCall {
            anomalies: anomalies.into_iter().collect(),
            arguments_content: None,
            arguments_hash: call.arguments_hash.clone(),
            arguments_redacted: Said::Unsaid,
            duration_ms: (!blocked)
                .then(|| DurationMs(response.map_or_else(|| after(self.last_ns), |r| after(r.read_ns)))),
            integration_source: INTEGRATION_SOURCE.to_owned(),
            invocation_id: p.invocation,
            mcp_request_id: if p.key.is_some() { p.rpc_id.clone() } else { RpcId::Null },
            meta: call.meta.clone(),
            outcome,
            outcome_reason: if response.is_none() && !blocked { no_response.map(Word::Known) } else { None },
            parent_receipt_id: call.parent,
            phases_us: Phases {
                policy_decided: decision.map(|d| after(d.at_ns)),
                request_forwarded: p.forwarded_ns.map(after),
                response_first_byte: response.map(|r| after(r.first_byte_ns)),
                response_forwarded: response.and_then(|r| r.delivered_ns).map(after),
                response_observed: response.map(|r| after(r.read_ns)),
            },
            policy_decided_at: decision.map(|d| d.at),
            policy_hash: decision.and_then(|d| d.policy_hash.clone()),
            policy_reason: decision.map(|d| envelope::short_word(&d.reason)),
            policy_ref: decision.and_then(|d| d.rule.as_ref()).map(short),
            policy_verdict: decision.map_or(PolicyVerdict::NoPolicy, |d| d.verdict),
            proxy_version: RECORDER_VERSION.to_owned(),
            receipt_id: id,
            request_observed_at: call.at,
            response_observed_at: response.map(|r| r.at),
            result_content: None,
            result_hash: response.and_then(|r| r.result_hash.clone()),
            result_is_error: response.and_then(|r| r.is_error),
            result_type: response.and_then(|r| r.result_type.clone()),
            schema_version: if stands.is_some() { SURFACE_SCHEMA } else { PLAIN_SCHEMA }.to_owned(),
            seq: self.next_receipt,
            server_id: self.setup.server_id.clone(),
            server_transport: self.setup.transport.as_str().to_owned(),
            session_id: self.session,
            surface_age_ms: said(stands, |s| s.age_ms),
            surface_approval_id: said(stands, |s| s.approval_id.clone()),
            surface_item_hash: said(stands, |s| s.item_hash.clone()),
            surface_root: said(stands, |s| s.root.clone()),
            surface_state: said(stands, |s| s.state),
            timestamp: self.clock.wall(ended_ns),
            tool_name: call.tool_name.clone(),
            trace_id: self.session,
            r#type: TOOL_CALL.to_owned(),
        })
    }

    /// Writes the line of a receipt; returns what the chain binds it with.
    pub(super) fn receipt_line<T: serde::Serialize>(&mut self, id: ReceiptId, receipt: &T) -> Binding {
        let lines = &mut self.lines.receipts;
        let start = lines.len();
        match serde_json::to_writer(&mut *lines, receipt) {
            Ok(()) => {
                let sha256 = Some(canon::sha256_hex(&lines[start..]));
                lines.push(b'\n');
                self.next_receipt += 1;
                Binding { id: Some(id), sha256 }
            }
            Err(e) => {
                lines.truncate(start);
                tracing::error!(error = %e, "a receipt could not be written as JSON");
                self.counts.missed += 1;
                Binding::default()
            }
        }
    }

    /// Writes `mcp.session_start` as the session's first receipt, unless it is there.
    pub(super) fn write_session_start(&mut self, now_ns: u64) {
        if self.session_start_written {
            return;
        }
        self.session_start_written = true;
        let id = self.session_receipt("session_start");
        let receipt = SessionStart {
            chain_head: self.chain.first().to_owned(),
            client_info: self.identity.client.clone(),
            command_digest: self.setup.origin.digest().to_owned(),
            continues: self.continues,
            integration_source: self.integration_source(),
            policy_hash: self.policy.clone(),
            profile: self.setup.profile,
            protocol_version: self.identity.protocol.clone(),
            proxy_version: RECORDER_VERSION.to_owned(),
            receipt_id: id,
            schema_version: PLAIN_SCHEMA.to_owned(),
            seq: self.next_receipt,
            server_id: self.setup.server_id.clone(),
            server_info: self.identity.server.clone(),
            server_transport: self.setup.transport.as_str().to_owned(),
            session_id: self.session,
            started_at: self.started_at,
            timestamp: self.clock.wall(now_ns),
            trace_id: self.session,
            r#type: SESSION_START.to_owned(),
        };
        self.receipt_line(id, &receipt);
    }
}
