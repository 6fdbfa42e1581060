//! From the audit events of a session, in their order, to the lines of the live protocol: the one way from evidence to
//! rows, for the socket, for a journal that is read, and for a pack.

use super::{
    message::Told,
    protocol::{Chained, End, LiveLine, Unread},
    row::{CallRow, Totals},
};
use crate::model::words::{AnomalyKind, ExchangeEnd, OutcomeReason};
use crate::model::{
    AuditEvent, CallAnomaly, Detail, DurationMs, InvocationId, Outcome, PolicyVerdict, RpcId, SessionId, WallTime,
    Word, event::detail,
};
use crate::text::counted;
use std::collections::HashMap;

/// Most calls in flight that are remembered; rows of further ones are less complete.
const MAX_OPEN: usize = 1 << 16;

/// A call that has not ended.
#[derive(Debug)]
struct Open {
    row: CallRow,
    /// When its request was read, microseconds on the session's clock; negative for one that came over.
    asked_us: i64,
    /// When its response was read.
    answered: Option<(u64, WallTime)>,
    cancelled: bool,
    /// It was not forwarded.
    blocked: bool,
    /// A leg of a task: a call only when it has a receipt.
    leg: bool,
}

/// What was seen so far of one session.
#[derive(Debug, Default)]
pub struct Fold {
    open: HashMap<InvocationId, Open>,
    server_id: Option<String>,
    totals: Totals,
    session: Option<SessionId>,
    /// Number of events that did not parse.
    unread: u64,
    /// The chain has its end.
    ended: bool,
    /// By how much the clock of the next session begins later than this one's, microseconds.
    shift_us: i64,
}

impl Fold {
    /// Counts so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Counts from here on, when not everything before was seen. What is in flight is added.
    pub fn set_totals(&mut self, totals: Totals) {
        let open = self.open.values().filter(|o| !o.leg).count() as u64;
        self.totals = Totals { started: totals.finished + open, ..totals };
    }

    /// The server's name, for a segment that is not read from its beginning.
    pub fn set_server(&mut self, server_id: &str) {
        self.server_id = Some(server_id.to_owned());
    }

    /// The next session's clock begins `us` microseconds later; calls in flight may go over into it.
    pub fn rolls(&mut self, us: i64) {
        self.shift_us = us;
    }

    /// Forgets the calls in flight: events were skipped.
    pub fn forget(&mut self) {
        self.open.clear();
    }

    /// The calls of a chain without an end that have none either. Those that went over into the next session are that one's.
    pub fn running(&self) -> impl Iterator<Item = &CallRow> {
        self.open.values().filter(|o| !o.leg && !self.ended).map(|o| &o.row)
    }

    /// The line for an event that does not parse: its number, and why.
    pub fn unread(&mut self, session_id: SessionId, cursor: u64, why: String) -> LiveLine {
        self.unread += 1;
        LiveLine::Unread(Unread { cursor, session_id, unread: self.unread, why })
    }

    /// The line for one event.
    pub fn event(&mut self, e: &AuditEvent) -> LiveLine {
        let mut told = Chained {
            at: e.at,
            call: None,
            cursor: e.event_seq,
            direction: e.direction,
            end: None,
            hash: e.hash.clone(),
            kind: e.event,
            message: Told::of(e).map(Box::new),
            method: e.method.clone(),
            mono_us: e.mono_us,
            note: None,
            session_id: e.session_id,
            totals: self.totals,
        };
        let line: fn(Box<Chained>) -> LiveLine = match &e.detail {
            Detail::ChainStart(d) => {
                self.begins(d);
                LiveLine::Chain
            }
            Detail::RequestReceived(d) => self.asked(e, d, &mut told),
            Detail::PolicyDecision(d) => self.decided(e, d, &mut told),
            Detail::RequestBlocked(d) => self.blocked(e, d, &mut told),
            Detail::RequestForwarded(_) => {
                self.forwarded(e, &mut told);
                LiveLine::Chain
            }
            Detail::ResponseReceived(d) => {
                self.answered(e, d, &mut told);
                LiveLine::Chain
            }
            Detail::ResponseSent(d) => self.ends(e, d.receipt_id, None, &mut told),
            Detail::Anomaly(d) => self.anomaly(e, d, &mut told),
            Detail::Notification(_) => {
                if e.method.as_deref() == Some("notifications/cancelled")
                    && let Some(open) = e.invocation_id.and_then(|i| self.open.get_mut(&i))
                {
                    open.cancelled = true;
                }
                LiveLine::Notification
            }
            Detail::SurfaceDrift(d) => {
                let whose = if d.new_context { "new for this client" } else { "the surface changed" };
                told.note = Some(format!("{whose}: {}, {}", counted(d.count, "change"), d.severity));
                LiveLine::Chain
            }
            Detail::SurfaceDecision(d) => {
                let last = d.last.as_deref().unwrap_or("none");
                told.note = Some(d.error.clone().unwrap_or_else(|| format!("the last decision is {last}")));
                LiveLine::Chain
            }
            Detail::PolicyReloaded(_) | Detail::SurfaceObserved(_) => LiveLine::Chain,
            Detail::HttpExchange(d) => {
                told.note = failed_exchange(d);
                LiveLine::Chain
            }
            Detail::Malformed(d) => {
                told.note.clone_from(&d.reason);
                LiveLine::Chain
            }
            Detail::MalformedLines(d) => {
                let reason = d.reason.as_deref().unwrap_or_default();
                told.note = Some(format!("{}, the first: {reason}", counted(d.lines, "line")));
                LiveLine::Chain
            }
            Detail::RecorderGap(d) => {
                let (messages, bytes) = (counted(d.messages, "message"), counted(d.bytes, "byte"));
                told.note = Some(format!("{}: {messages}, {bytes} unrecorded", d.reason));
                LiveLine::Chain
            }
            Detail::ToolRequested(_) => self.requested(e, &mut told),
            Detail::ToolDenied(d) => {
                if let Some(open) = e.invocation_id.and_then(|i| self.open.get_mut(&i)) {
                    open.blocked = true;
                }
                self.ends(e, d.receipt_id, None, &mut told)
            }
            Detail::ToolExecuted(d) => self.executed(e, d, &mut told),
            Detail::ChainEnd(d) => {
                // It has the counts, also for a reader that has not seen everything before it.
                let c = &d.counts;
                self.totals.join(Totals {
                    started: c.calls + d.carried_out.len() as u64,
                    finished: c.calls,
                    denied: c.denied,
                    errors: c.errors,
                    timeouts: c.timeouts,
                });
                self.ended = true;
                told.end = Some(End { complete: d.complete, next: None, reason: d.reason.to_string() });
                LiveLine::SessionEnd
            }
        };
        self.session = Some(e.session_id);
        told.totals = self.totals;
        line(Box::new(told))
    }

    fn begins(&mut self, start: &detail::ChainStart) {
        let goes_on = start.continues.is_some() && start.continues == self.session;
        if goes_on {
            self.open.retain(|i, _| start.carried_in.contains(i));
            let shift = std::mem::take(&mut self.shift_us);
            for open in self.open.values_mut() {
                open.asked_us -= shift;
                open.answered = open.answered.map(|(us, at)| (us.saturating_sub_signed(shift), at));
            }
        } else {
            self.open.clear();
        }
        self.totals = Totals::default();
        (self.unread, self.ended) = (0, false);
        if goes_on {
            self.totals.started = self.open.values().filter(|o| !o.leg).count() as u64;
        }
        self.server_id = Some(start.server_id.clone());
    }

    fn asked(
        &mut self,
        e: &AuditEvent,
        d: &detail::RequestReceived,
        told: &mut Chained,
    ) -> fn(Box<Chained>) -> LiveLine {
        let Some((invocation, tool)) = e.invocation_id.zip(d.tool_name.clone()) else { return LiveLine::Chain };
        let leg = e.method.as_deref() != Some("tools/call");
        let mut row = CallRow::new(e.session_id, invocation);
        row.anomalies = d.anomalies.iter().map(ToString::to_string).collect();
        if leg {
            row.anomalies.insert(CallAnomaly::TaskLeg.as_str().to_owned());
        }
        row.arguments_hash.clone_from(&d.arguments_hash);
        row.mcp_request_id = e.rpc_id.clone().filter(|id| *id != RpcId::Null);
        row.parent_receipt_id = d.parent_receipt_id;
        row.requested_at = Some(e.at);
        row.server_id.clone_from(&self.server_id);
        row.tool_name = Some(tool);
        if !leg {
            self.totals.started += 1;
            told.call = Some(row.clone());
        }
        if self.open.len() < MAX_OPEN {
            let asked_us = e.mono_us as i64;
            self.open.insert(invocation, Open { row, asked_us, answered: None, cancelled: false, blocked: false, leg });
        }
        if leg { LiveLine::Chain } else { LiveLine::CallStarted }
    }

    /// A server recorded that a call is asked for. Its tool is in the receipt.
    fn requested(&mut self, e: &AuditEvent, told: &mut Chained) -> fn(Box<Chained>) -> LiveLine {
        let Some(invocation) = e.invocation_id else { return LiveLine::Chain };
        let mut row = CallRow::new(e.session_id, invocation);
        row.requested_at = Some(e.at);
        row.server_id.clone_from(&self.server_id);
        self.totals.started += 1;
        told.call = Some(row.clone());
        if self.open.len() < MAX_OPEN {
            let open =
                Open { row, asked_us: e.mono_us as i64, answered: None, cancelled: false, blocked: false, leg: false };
            self.open.insert(invocation, open);
        }
        LiveLine::CallStarted
    }

    /// A server recorded that its handler is done. What came of it is in the receipt.
    fn executed(&mut self, e: &AuditEvent, d: &detail::ToolStep, told: &mut Chained) -> fn(Box<Chained>) -> LiveLine {
        let Some(mut open) = e.invocation_id.and_then(|i| self.open.remove(&i)) else { return LiveLine::Chain };
        open.row.receipt_id = d.receipt_id;
        open.row.ended_at = Some(e.at);
        self.totals.finished += 1;
        told.call = Some(open.row);
        LiveLine::CallFinished
    }

    fn decided(
        &mut self,
        e: &AuditEvent,
        d: &detail::PolicyDecision,
        told: &mut Chained,
    ) -> fn(Box<Chained>) -> LiveLine {
        if let Some(open) = e.invocation_id.and_then(|i| self.open.get_mut(&i)) {
            open.row.policy_verdict = Some(d.verdict);
            open.row.policy_reason = Some(d.reason.to_string());
            open.row.policy_ref.clone_from(&d.rule);
            open.row.anomalies.extend(d.unseen.iter().map(ToString::to_string));
            open.row.phases_us.policy_decided = Some(open.after(e.mono_us));
            open.tell(told);
        }
        LiveLine::PolicyDecided
    }

    /// A guard did not forward it: a call ends with that.
    fn blocked(&mut self, e: &AuditEvent, d: &detail::Blocked, told: &mut Chained) -> fn(Box<Chained>) -> LiveLine {
        if let Some(open) = e.invocation_id.and_then(|i| self.open.get_mut(&i)) {
            open.blocked = true;
        }
        match d.receipt_id {
            Some(receipt) => self.ends(e, Some(receipt), None, told),
            None => LiveLine::PolicyDecided,
        }
    }

    fn forwarded(&mut self, e: &AuditEvent, told: &mut Chained) {
        if let Some(open) = e.invocation_id.and_then(|i| self.open.get_mut(&i)) {
            open.row.phases_us.request_forwarded = Some(open.after(e.mono_us));
            open.tell(told);
        }
    }

    fn answered(&mut self, e: &AuditEvent, d: &detail::ResponseReceived, told: &mut Chained) {
        let Some(open) = e.invocation_id.and_then(|i| self.open.get_mut(&i)) else { return };
        open.answered = Some((e.mono_us, e.at));
        open.row.anomalies.extend(d.anomalies.iter().map(ToString::to_string));
        open.row.duration_ms = Some(DurationMs(open.after(e.mono_us)));
        open.row.phases_us.response_first_byte = Some(open.after(d.first_byte_us));
        open.row.phases_us.response_observed = Some(open.after(e.mono_us));
        open.row.result_hash.clone_from(&d.result_hash);
        open.row.result_is_error = d.is_error;
        open.row.result_type.clone_from(&d.result_type);
        open.tell(told);
    }

    fn anomaly(&mut self, e: &AuditEvent, d: &detail::Anomaly, told: &mut Chained) -> fn(Box<Chained>) -> LiveLine {
        if matches!(d.kind.known(), Some(AnomalyKind::NoResponse | AnomalyKind::NotDelivered)) {
            return self.ends(e, d.receipt_id, Some(Undelivered { why: d.note.clone() }), told);
        }
        told.note = Some(d.note.as_ref().map_or_else(|| d.kind.to_string(), |note| format!("{}: {note}", d.kind)));
        LiveLine::Chain
    }

    fn ends(
        &mut self,
        e: &AuditEvent,
        receipt: Option<crate::model::ReceiptId>,
        undelivered: Option<Undelivered>,
        told: &mut Chained,
    ) -> fn(Box<Chained>) -> LiveLine {
        let Some(invocation) = e.invocation_id else { return LiveLine::Chain };
        let open = self.open.remove(&invocation);
        let Some(receipt) = receipt else { return LiveLine::Chain };
        let leg = open.as_ref().is_some_and(|o| o.leg);
        let (mut row, known) = match open {
            Some(mut open) => {
                finish(&mut open, e, undelivered);
                (open.row, true)
            }
            None => (CallRow::new(e.session_id, invocation), false),
        };
        row.session_id = e.session_id;
        row.receipt_id = Some(receipt);
        if let Some(outcome) = row.outcome {
            self.totals.started += u64::from(leg);
            self.totals.ended(outcome);
        } else {
            self.totals.finished += 1;
            self.totals.started = (self.totals.started + u64::from(!known)).max(self.totals.finished);
        }
        told.call = Some(row);
        LiveLine::CallFinished
    }
}

/// An exchange that failed, in one line: what was asked for, how it was answered, how it ended. That a client closes a
/// stream that it opened is no failure.
fn failed_exchange(d: &detail::HttpExchange) -> Option<String> {
    let is_ended_well = match d.ended.as_ref().map(Word::known) {
        None | Some(Some(ExchangeEnd::Complete | ExchangeEnd::Shutdown)) => true,
        Some(Some(ExchangeEnd::ClientGone)) => d.method == "GET",
        Some(_) => false,
    };
    if is_ended_well && d.status().is_none_or(|status| status < 400) {
        return None;
    }
    let status = d.status().map(|status| format!(" {status}")).unwrap_or_default();
    let state = d.ended.as_ref().map_or("open", Word::as_str);
    Some(format!("exchange {}: {} {}{status}, {state}", d.exchange, d.method, d.target.path))
}

/// There is no ordinary end.
struct Undelivered {
    why: Option<String>,
}

/// Completes a call as its receipt does.
fn finish(open: &mut Open, e: &AuditEvent, undelivered: Option<Undelivered>) {
    let after = open.after(e.mono_us);
    let row = &mut open.row;
    match (open.answered, undelivered) {
        _ if open.blocked => row.ended_at = Some(e.at),
        (Some(_), None) => {
            row.phases_us.response_forwarded = Some(after);
            row.ended_at = Some(e.at);
        }
        (Some((_, at)), Some(_)) => {
            row.ended_at = Some(at);
            row.anomalies.insert(CallAnomaly::ResponseNotDelivered.as_str().to_owned());
        }
        (None, why) => {
            row.ended_at = Some(e.at);
            row.duration_ms = Some(DurationMs(after));
            row.outcome_reason = if open.cancelled {
                Some(OutcomeReason::CancelledByClient.as_str().to_owned())
            } else {
                why.and_then(|u| u.why)
            };
        }
    }
    row.policy_verdict = row.policy_verdict.or(Some(PolicyVerdict::NoPolicy));
    row.outcome = Some(match (open.answered, row.result_is_error) {
        _ if open.blocked => Outcome::Denied,
        (None, _) if row.outcome_reason.as_deref() == Some(OutcomeReason::HttpError.as_str()) => Outcome::Error,
        (None, _) => Outcome::Timeout,
        (Some(_), Some(true)) => Outcome::Error,
        (Some(_), _) => Outcome::Forwarded,
    });
}

impl Open {
    /// Microseconds after the request.
    fn after(&self, us: u64) -> u64 {
        (us as i64).saturating_sub(self.asked_us).max(0).unsigned_abs()
    }

    fn tell(&self, told: &mut Chained) {
        told.call = (!self.leg).then(|| self.row.clone());
    }
}
