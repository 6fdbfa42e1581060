//! Receipts that are on disk without the events that bind them: the proxy ended between two writes, or the disk was
//! full for one of them.
//!
//! A receipt stays as it is where what the capture still tells comes to the same. Where it does not (the times of a
//! message are gone, a policy's word, a leg's parent), its line would contradict the events that are written now: from
//! there on the receipts are set aside, and written again from the capture, or, where that has nothing of them, from
//! their own lines.

use super::{
    Binding, Recorder,
    end::HeldGap,
    restore::{OnDisk, take_call},
    step,
};
use crate::model::words::{AnomalyKind, GapReason, OutcomeReason, Word};
use crate::{
    model::{
        CallAnomaly, Detail, InvocationId, Outcome, PolicyVerdict, ReceiptId, ToolCall, WallTime,
        event::detail,
        receipt::{FIELDS_SCHEMA, GapReceipt, RECORDER_GAP, REDACTED_SCHEMA, TOOL_CALL},
        said::Said,
        to_line,
    },
    record::correlate::{Pending, RequestDecision},
};

impl Recorder {
    /// Everything that the capture still held was given to [`Recorder::message`] and [`Recorder::delivered`]: closes
    /// the calls that were answered, in the order of the receipts that are on disk, and binds receipts whose events are
    /// lost.
    ///
    /// Returns where in their file the receipts begin that do not hold together with this: set them aside before
    /// anything is written, they are written again.
    #[must_use]
    pub fn finish_restore(&mut self) -> Option<u64> {
        // Denied, and the event that says that it was kept back is not on disk, and no capture tells more: it was.
        for invocation in self.table.in_order() {
            let denied = |p: &Pending| {
                p.forwarded_ns.is_none()
                    && p.decision.as_ref().is_some_and(|d| d.enforced && d.verdict == PolicyVerdict::Denied)
            };
            if self.table.get(invocation).is_some_and(denied) {
                if let Some(decision) = self.table.get_mut(invocation).and_then(|p| p.decision.as_mut()) {
                    decision.blocked = true;
                }
                self.close(invocation);
            }
        }
        let state = self.restored.as_mut()?;
        let unbound = std::mem::take(&mut state.unbound);
        let mut held = std::mem::take(&mut state.held);
        let mut again = Vec::new();
        let mut cut = None;
        for receipt in unbound {
            let pending = held.iter().position(|p| p.invocation.bits() == receipt.id.bits());
            if cut.is_none() && self.agrees(&receipt, pending.map(|at| &held[at])) {
                let mut pending = pending.map(|at| held.remove(at));
                if let Some(pending) = &mut pending {
                    self.adopt(pending, &receipt);
                }
                match pending {
                    Some(pending) if pending.call.is_some() => self.close_now(pending, None),
                    pending => {
                        // A leg whose beginning is not known any more ends as what it looks like.
                        if let Some(pending) = pending {
                            self.close_now(pending, None);
                        }
                        self.bind(&receipt);
                    }
                }
                continue;
            }
            cut.get_or_insert(receipt.start);
            self.set_aside(&receipt);
            match pending.filter(|at| held[*at].call.is_some()) {
                // It is written again when its call is closed.
                Some(at) => self.adopt(&mut held[at], &receipt),
                None => again.push(receipt),
            }
        }
        let state = self.restored.take().unwrap_or_default();
        for pending in held {
            self.close_now(pending, None);
        }
        for receipt in again {
            self.write_again(&receipt);
        }
        for (id, sha256) in state.lost {
            let binding = Binding { id: Some(id), sha256: Some(sha256) };
            let note = "an event binds this receipt, and it is not on disk any more".to_owned();
            self.anomaly_event(AnomalyKind::ReceiptLost, Some(note), self.last_ns, None, None, Some(binding));
        }
        for HeldGap { reason, messages, bytes, now_ns } in state.gaps {
            self.gap(reason, messages, bytes, now_ns);
        }
        cut
    }

    /// Whether a receipt says what would be written now. Where there is no other source, it is taken as right.
    fn agrees(&self, receipt: &OnDisk, pending: Option<&Pending>) -> bool {
        let Some(pending) = pending.filter(|p| p.call.is_some()) else { return true };
        let Ok(mut there) = serde_json::from_slice::<ToolCall>(&receipt.line) else { return true };
        let mut pending = pending.clone();
        if pending.decision.is_none() {
            pending.decision = self.decision_in(&there, pending.read_ns).map(Box::new);
        }
        let reason = pending.cut.or(pending.key.is_none().then_some(OutcomeReason::Notification));
        let Some(mut here) = self.call_receipt(&pending, receipt.id, reason) else { return false };
        // What the recorder of this session knew beside the message: who was flagged, what was stored, how many there
        // were.
        if here.anomalies.iter().any(|a| *a != CallAnomaly::Recovered && !there.anomalies.contains(a)) {
            return false;
        }
        there.anomalies = Vec::new();
        here.anomalies = Vec::new();
        there.arguments_content = None;
        there.result_content = None;
        // These versions say only what of contents is there.
        if [FIELDS_SCHEMA, REDACTED_SCHEMA].contains(&&*there.schema_version) {
            there.arguments_redacted = Said::Unsaid;
            there.schema_version.clone_from(&here.schema_version);
        }
        here.seq = there.seq;
        here.proxy_version.clone_from(&there.proxy_version);
        to_line(&here).ok() == to_line(&there).ok()
    }

    /// What a receipt says of a policy's verdict, where nothing else does: in audit it is recorded nowhere else.
    fn decision_in(&self, there: &ToolCall, read_ns: u64) -> Option<RequestDecision> {
        if there.policy_verdict == PolicyVerdict::NoPolicy {
            return None;
        }
        Some(RequestDecision {
            verdict: there.policy_verdict,
            reason: there.policy_reason.clone()?,
            rule: there.policy_ref.clone(),
            unseen: Vec::new(),
            policy_hash: there.policy_hash.clone(),
            // Exactly as long after the event of its request as the receipt says.
            at_ns: self.started_ns + (self.mono_us(read_ns) + there.phases_us.policy_decided?) * 1000,
            at: there.policy_decided_at?,
            enforced: there.outcome == Outcome::Denied,
            blocked: there.outcome == Outcome::Denied,
        })
    }

    /// Gives a request the verdict of its receipt, and the chain the event of it.
    fn adopt(&mut self, pending: &mut Pending, receipt: &OnDisk) {
        if pending.decision.is_some() || !pending.recorded {
            return;
        }
        let there = serde_json::from_slice::<ToolCall>(&receipt.line).ok();
        let Some(decision) = there.and_then(|there| self.decision_in(&there, pending.read_ns)) else { return };
        self.decision_of(pending, &decision);
        pending.decision = Some(Box::new(decision));
    }

    /// Binds a receipt that is in its file, and whose events are lost.
    fn bind(&mut self, receipt: &OnDisk) {
        if let Some(state) = &mut self.restored {
            state.take_receipt(receipt.id);
        }
        let binding = Binding { id: Some(receipt.id), sha256: Some(receipt.sha256.clone()) };
        if receipt.kind == RECORDER_GAP {
            let Ok(gap) = serde_json::from_slice::<GapReceipt>(&receipt.line) else { return };
            self.counts.missed += gap.messages;
            self.counts.missed_bytes += gap.bytes;
            return self.gap_event(gap.reason, gap.messages, gap.bytes, binding, (gap.timestamp, self.last_ns));
        }
        let invocation = step::of_receipt(receipt);
        if let Some((step, invocation)) = invocation {
            self.count_step(step, invocation);
        }
        let invocation = invocation.map_or_else(|| InvocationId::from_bits(receipt.id.bits()), |(_, of)| of);
        if let Some(mut pending) = self.table.remove(invocation) {
            self.adopt(&mut pending, receipt);
        }
        let note = "the receipt was on disk, its response was not".to_owned();
        self.anomaly_event(
            AnomalyKind::ReceiptWithoutEvents,
            Some(note),
            self.last_ns,
            None,
            Some(invocation),
            Some(binding),
        );
    }

    /// Forgets that a receipt is there.
    fn set_aside(&mut self, receipt: &OnDisk) {
        if let Some(state) = &mut self.restored {
            state.take_receipt(receipt.id);
        }
        self.next_receipt = self.next_receipt.saturating_sub(1);
        take_call(&mut self.counts, &receipt.counts);
    }

    /// Writes a receipt again that was set aside and that has no other source.
    fn write_again(&mut self, receipt: &OnDisk) {
        if receipt.kind == RECORDER_GAP {
            if let Ok(gap) = serde_json::from_slice::<GapReceipt>(&receipt.line) {
                self.gap(gap.reason.clone(), gap.messages, gap.bytes, self.last_ns);
            }
            return;
        }
        let Ok(mut call) = serde_json::from_slice::<ToolCall>(&receipt.line) else { return };
        if receipt.kind != TOOL_CALL {
            return;
        }
        call.seq = self.next_receipt;
        if !call.anomalies.iter().any(|a| *a == CallAnomaly::Recovered) {
            call.anomalies.push(CallAnomaly::Recovered.into());
            call.anomalies.sort();
        }
        let Ok(line) = to_line(&call) else { return };
        self.lines.receipts.extend_from_slice(&line);
        self.lines.receipts.push(b'\n');
        self.next_receipt += 1;
        self.count_call(&call);
        let sha256 = crate::canon::sha256_hex(&line);
        self.bind(&OnDisk { line, sha256, ..OnDisk::of_call(receipt.id) });
    }

    /// The event of a gap; the time is its receipt's, on both clocks.
    pub(super) fn gap_event(
        &mut self,
        reason: Word<GapReason>,
        messages: u64,
        bytes: u64,
        binding: Binding,
        (at, now_ns): (WallTime, u64),
    ) {
        let Binding { id, sha256 } = binding;
        let detail = detail::Gap { bytes, messages, reason, receipt_id: id, receipt_sha256: sha256 };
        self.plain_event((at, now_ns), Detail::RecorderGap(detail));
    }
}

impl OnDisk {
    fn of_call(id: ReceiptId) -> Self {
        Self {
            line: Vec::new(),
            start: 0,
            id,
            kind: TOOL_CALL.to_owned(),
            sha256: String::new(),
            counts: crate::model::receipt::Counts::default(),
            identity: None,
        }
    }
}
