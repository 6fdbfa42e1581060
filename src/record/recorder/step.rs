//! What a server records of itself: a call is asked for, refused, or done. Each is a receipt, and an event that binds it.

use super::{Binding, Recorder, restore::OnDisk};
use crate::{
    model::{
        Coverage, Detail, EventKind, InvocationId, Outcome, OutcomeReason, PolicyVerdict, ReceiptPrefix, ToolDenied,
        ToolExecuted, ToolRequested,
        event::detail,
        line::{member, text},
        receipt::INTEGRATION_SOURCE,
        server::{SERVER_SOURCE, flat},
    },
    record::chain::Entry,
};
use std::collections::HashSet;

/// A receipt that a server writes of itself, but for what the recorder knows: place, time, recording.
#[derive(Debug, Clone)]
pub enum Step {
    /// A call is asked for.
    Requested(Box<ToolRequested>),
    /// The policy refused it.
    Denied(Box<ToolDenied>),
    /// Its handler is done.
    Executed(Box<ToolExecuted>),
}

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Steps {
    open: HashSet<InvocationId>,
    requested: u64,
    denied: u64,
    executed: u64,
}

impl Steps {
    pub(super) fn coverage(&self) -> Coverage {
        Coverage {
            denied: self.denied,
            executed: self.executed,
            open: self.open.len() as u64,
            requested: self.requested,
        }
    }
}

impl Recorder {
    /// Records what a server says of its nth call.
    pub fn step(&mut self, call: u64, step: Step, now_ns: u64) {
        self.last_ns = self.last_ns.max(now_ns);
        self.write_session_start(now_ns);
        let (seq, timestamp, trace) = (self.next_receipt, self.clock.wall(now_ns), self.session);
        macro_rules! write {
            ($receipt:ident) => {{
                ($receipt.seq, $receipt.timestamp, $receipt.trace_id) = (seq, timestamp, trace);
                (self.receipt_line($receipt.receipt_id, &*$receipt), $receipt.invocation_id)
            }};
        }
        let (kind, (binding, invocation)) = match step {
            Step::Requested(mut r) => (EventKind::ToolRequested, write!(r)),
            Step::Denied(mut r) => {
                self.counts.call(Outcome::Denied, PolicyVerdict::Denied);
                (EventKind::ToolDenied, write!(r))
            }
            Step::Executed(mut r) => {
                if !r.is_of_task() {
                    self.counts.execution(r.outcome, r.policy_verdict);
                }
                let is_cut = r.outcome_reason.as_ref().is_some_and(|w| *w == OutcomeReason::Shutdown);
                self.failed += u64::from(is_cut);
                (EventKind::ToolExecuted, write!(r))
            }
        };
        self.count_step(kind, invocation);
        self.counts.requests += u64::from(kind == EventKind::ToolRequested);
        let Binding { id, sha256 } = binding;
        let detail = detail::ToolStep { call, receipt_id: id, receipt_sha256: sha256 };
        let mono_us = self.mono_us(now_ns);
        self.event(Entry {
            at: timestamp,
            mono_us,
            direction: None,
            method: None,
            rpc_id: None,
            invocation: Some(invocation),
            wire: None,
            detail: match kind {
                EventKind::ToolRequested => Detail::ToolRequested(detail),
                EventKind::ToolDenied => Detail::ToolDenied(detail),
                _ => Detail::ToolExecuted(detail),
            },
        });
    }

    /// Counts what an event says of a call. What a task came to is no outcome of its own.
    pub(super) fn count_step(&mut self, kind: EventKind, invocation: InvocationId) {
        let steps = &mut self.steps;
        match kind {
            EventKind::ToolRequested => {
                steps.requested += 1;
                steps.open.insert(invocation);
            }
            EventKind::ToolDenied => steps.denied += u64::from(steps.open.remove(&invocation)),
            _ => steps.executed += u64::from(steps.open.remove(&invocation)),
        }
    }

    /// `integration_source` of what this recorder writes of the session as a whole.
    pub(super) fn integration_source(&self) -> String {
        if self.setup.is_library() { SERVER_SOURCE } else { INTEGRATION_SOURCE }.to_owned()
    }
}

/// Of which call a receipt on disk is, if a server wrote it of itself, and what it says.
pub(super) fn of_receipt(receipt: &OnDisk) -> Option<(EventKind, InvocationId)> {
    flat(&receipt.kind)?;
    let kind = match receipt.id.prefix() {
        ReceiptPrefix::Requested => EventKind::ToolRequested,
        ReceiptPrefix::Denied => EventKind::ToolDenied,
        ReceiptPrefix::Executed => EventKind::ToolExecuted,
        ReceiptPrefix::Call => return None,
    };
    Some((kind, InvocationId::parse(&text(member(&receipt.line, "invocation_id"))?).ok()?))
}
