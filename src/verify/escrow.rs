//! What a server recorded of itself: each receipt by itself, and the links between the receipts of one call.

use super::sense::{raw_needs_a_word, sorted};
use crate::model::{
    Coverage, EventKind, Execution, InvocationId, OutcomeReason, PolicyReason, PolicyVerdict, ReceiptId,
    ReceiptPrefix as Prefix, SessionId, ToolDenied, ToolExecuted, ToolRequested, Word, cursor::is_hex,
    event::DetailView as Detail, event::EventView as Event, receipt::ReceiptView as Receipt, words::CallAnomaly,
};
use serde::{Serialize, Serializer};
use serde_json::json;
use std::{collections::HashMap, fmt};

/// Calls that are followed at once; a recorder refuses to have more in flight.
pub const MAX_OPEN: usize = crate::model::limits::VERIFIED;
/// Denials that a later call may name.
const MAX_DENIALS: usize = 1 << 18;

/// Whether it is `sha256:` or `sha256-raw:` and 64 hex digits.
fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").or_else(|| text.strip_prefix("sha256-raw:"));
    digits.is_some_and(|digits| digits.len() == 64 && is_hex(digits.as_bytes()))
}

fn anomalies(words: &[Word<CallAnomaly>], hash: Option<&str>) -> Option<&'static str> {
    let line = serde_json::to_vec(words).unwrap_or_default();
    if !sorted(&line) {
        Some("anomalies are not sorted, or repeated")
    } else if raw_needs_a_word(hash.map(str::as_bytes), &line) {
        Some("a hash over raw bytes, but no anomaly that says why")
    } else {
        None
    }
}

fn is_of(id: ReceiptId, prefix: Prefix, invocation: InvocationId) -> bool {
    id == ReceiptId::of(prefix, invocation.bits())
}

/// What is wrong with the receipt of a request by itself.
#[must_use]
pub fn requested(r: &ToolRequested) -> Option<&'static str> {
    if !is_of(r.receipt_id, Prefix::Requested, r.invocation_id) {
        Some("receipt_id is not derived from its invocation")
    } else if !is_digest(&r.arguments_hash) {
        Some("arguments_hash is no hash")
    } else if r.parent_receipt_id.is_some_and(|id| id.prefix() != Prefix::Executed) {
        Some("the leg before is not one that was executed")
    } else {
        anomalies(&r.anomalies, Some(&r.arguments_hash))
    }
}

/// What is wrong with the receipt of a denial by itself.
#[must_use]
pub fn denied(r: &ToolDenied) -> Option<&'static str> {
    if !is_of(r.receipt_id, Prefix::Denied, r.invocation_id) {
        Some("receipt_id is not derived from its invocation")
    } else if !r.denied {
        Some("a denial says that it is none")
    } else if !is_digest(&r.arguments_hash) || r.policy_hash.as_deref().is_some_and(|hash| !is_digest(hash)) {
        Some("a hash is none")
    } else if r.policy_hash.is_none() != (r.policy_reason == PolicyReason::RecorderUnavailable) {
        Some("a denial names its policy, unless the server refuses what it cannot record")
    } else {
        // That of the arguments has its reason in the receipt of the request.
        anomalies(&r.anomalies, None)
    }
}

/// What is wrong with the receipt of an execution by itself.
#[must_use]
pub fn executed(r: &ToolExecuted) -> Option<&'static str> {
    let task = r.is_of_task();
    let reason = r.outcome_reason.as_ref().map(Word::known);
    let panicked = reason == Some(Some(OutcomeReason::HandlerPanicked));
    let answered = r.result_is_error.is_some();
    let outcome = match r.outcome {
        Execution::Success => r.result_is_error == Some(false) && r.error.is_none() && reason.is_none(),
        Execution::Error => {
            r.error.is_some() && (r.result_is_error == Some(true) && reason.is_none() || panicked && !answered)
        }
        Execution::Timeout => r.error.is_some() && !answered && reason.is_some() && !panicked,
    };
    let verdict = r.policy_verdict != PolicyVerdict::NoPolicy;
    if !task && !is_of(r.receipt_id, Prefix::Executed, r.invocation_id) || r.receipt_id.prefix() != Prefix::Executed {
        Some("receipt_id is not derived from its invocation")
    } else if task != r.parent_receipt_id.is_some() || r.duration_ms.is_none() != task {
        Some("what a task came to, and only that, names the call that began it and has no duration")
    } else if !outcome {
        Some("the outcome does not match what the receipt says about the result")
    } else if answered != r.result_hash.is_some()
        || !answered && (r.result_content.is_some() || r.result_redacted.is_some())
    {
        Some("only part of a result is there")
    } else if r.result_hash.as_deref().is_some_and(|hash| !is_digest(hash)) || !is_digest(&r.arguments_hash) {
        Some("a hash is none")
    } else if verdict != r.policy_hash.is_some()
        || verdict != r.policy_reason.is_some()
        || !verdict && r.policy_ref.is_some()
    {
        Some("only part of a policy's verdict is there")
    } else {
        anomalies(&r.anomalies, r.result_hash.as_deref())
    }
}

/// A call, from its request on.
#[derive(Debug)]
struct Asked {
    call: u64,
    tool: String,
    arguments: String,
    session: Option<u64>,
    /// It began a task with this receipt, and what that came to may follow.
    task: Option<ReceiptId>,
}

/// The calls of a recording that a server made of itself.
#[derive(Debug, Default)]
pub struct Escrow {
    asked: HashMap<InvocationId, Asked>,
    denials: HashMap<ReceiptId, (String, String, Option<u64>)>,
    /// Calls that asked for more input: a later leg may name them.
    legs: HashMap<ReceiptId, (String, String)>,
    coverage: Coverage,
    /// Outcomes that belong to no request.
    stray: u64,
    overflow: bool,
}

/// What a recording shows of its calls. Serializes as one object: the members of [`Coverage`], `ratio`, `stray` and
/// `open_calls`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Covered {
    /// How many have an outcome.
    pub coverage: Coverage,
    /// Outcomes that belong to no request.
    pub stray: u64,
    /// The first calls that have none; empty where they are not named.
    pub open: Vec<InvocationId>,
}

impl Covered {
    /// Calls without an outcome that are named.
    pub const NAMED: usize = 20;
}

impl Serialize for Covered {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let Coverage { denied, executed, open, requested } = self.coverage;
        json!({
            "denied": denied,
            "executed": executed,
            "open": open,
            "open_calls": self.open,
            "ratio": self.coverage.ratio(),
            "requested": requested,
            "stray": self.stray,
        })
        .serialize(s)
    }
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coverage { denied, executed, open, requested } = self.coverage;
        write!(f, "{} of {requested}", executed + denied)?;
        if let Some(ratio) = self.coverage.ratio() {
            // Rounded down: what is not whole must not read as 100.0 %.
            write!(f, " ({:.1} %)", (ratio * 1000.0).floor() / 10.0)?;
        }
        if open > 0 {
            let first: Vec<String> = self.open.iter().take(3).map(ToString::to_string).collect();
            let more = if open > first.len() as u64 { ", …" } else { "" };
            write!(f, ", {open} open")?;
            if !first.is_empty() {
                write!(f, ": {}{more}", first.join(", "))?;
            }
        }
        if self.stray > 0 {
            write!(f, ", {} without a request", self.stray)?;
        }
        Ok(())
    }
}

impl Escrow {
    /// Whether anything was recorded in this way.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.coverage.requested > 0 || self.stray > 0
    }

    /// A receipt of a server, in the order of the file, and the event that binds it. What is wrong with it goes into `wrong`.
    pub fn receipt(
        &mut self,
        receipt: &Receipt<'_>,
        event: &Event<'_>,
        session: SessionId,
        wrong: &mut Vec<&'static str>,
    ) {
        let call = match (&event.detail, receipt) {
            (Detail::ToolRequested(d), Receipt::Requested(_))
            | (Detail::ToolDenied(d), Receipt::Denied(_))
            | (Detail::ToolExecuted(d), Receipt::Executed(_)) => Some(d.call),
            // A recovery found the segment cut.
            (Detail::Anomaly(_), _) if event.event == EventKind::Anomaly => None,
            _ => return wrong.push("an event of another kind binds the receipt"),
        };
        match receipt {
            Receipt::Requested(r) => self.asked(r, call, session, wrong),
            Receipt::Denied(r) => {
                self.links((r.invocation_id, r.request_receipt_id), (&r.tool_name, &r.arguments_hash), call, wrong);
                match self.asked.remove(&r.invocation_id) {
                    Some(asked) if asked.task.is_none() => {
                        self.coverage.denied += 1;
                        if self.denials.len() < MAX_DENIALS {
                            self.denials.insert(r.receipt_id, (asked.tool, asked.arguments, asked.session));
                        }
                    }
                    other => {
                        self.stray += u64::from(other.is_none());
                        wrong.push("the call was not asked for, or has its outcome already");
                    }
                }
            }
            Receipt::Executed(r) => self.executed(r, call, session, wrong),
            Receipt::Call(_) | Receipt::Start(_) | Receipt::End(_) | Receipt::Gap(_) => {}
        }
    }

    fn asked(&mut self, r: &ToolRequested, call: Option<u64>, session: SessionId, wrong: &mut Vec<&'static str>) {
        if call.is_some_and(|n| r.invocation_id != InvocationId::of_call(session, n)) {
            wrong.push("invocation_id is not derived from the number of the call");
        }
        let before = r.parent_receipt_id.map(|id| self.legs.get(&id));
        if before.is_some_and(|leg| leg.is_none_or(|(tool, args)| (tool, args) != (&r.tool_name, &r.arguments_hash))) {
            wrong.push("the leg before is not one of the same call that asked for more input");
        }
        self.coverage.requested += 1;
        if self.asked.len() >= MAX_OPEN {
            if !std::mem::replace(&mut self.overflow, true) {
                wrong.push("more calls have no outcome than can be followed");
            }
            return;
        }
        let asked = Asked {
            call: call.unwrap_or(u64::MAX),
            tool: r.tool_name.clone(),
            arguments: r.arguments_hash.clone(),
            session: r.session_id.map(crate::model::ClientSessionId::bits),
            task: None,
        };
        if self.asked.insert(r.invocation_id, asked).is_some() {
            wrong.push("the call was already asked for");
        }
    }

    /// Whether an outcome names the request that it is of.
    fn links(
        &self,
        (invocation, request): (InvocationId, ReceiptId),
        (tool, arguments): (&str, &str),
        call: Option<u64>,
        wrong: &mut Vec<&'static str>,
    ) {
        if !is_of(request, Prefix::Requested, invocation) {
            wrong.push("request_receipt_id is not the receipt of the request");
        }
        let Some(asked) = self.asked.get(&invocation) else { return };
        if asked.tool != tool || asked.arguments != arguments {
            wrong.push("tool or arguments are not those of the request");
        }
        if call.is_some_and(|n| n != asked.call && asked.call != u64::MAX) {
            wrong.push("the event has another number of the call than that of the request");
        }
    }

    fn executed(&mut self, r: &ToolExecuted, call: Option<u64>, session: SessionId, wrong: &mut Vec<&'static str>) {
        self.links((r.invocation_id, r.request_receipt_id), (&r.tool_name, &r.arguments_hash), call, wrong);
        let of_session = self.asked.get(&r.invocation_id).and_then(|asked| asked.session);
        if let Some(id) = r.decision_receipt_id {
            let same = |(tool, arguments, session): &(String, String, Option<u64>)| {
                (tool, arguments, session) == (&r.tool_name, &r.arguments_hash, &of_session)
            };
            if !self.denials.remove(&id).as_ref().is_some_and(same) {
                wrong.push("decision_receipt_id is not an earlier denial of the same call");
            }
        }
        let Some(asked) = self.asked.get_mut(&r.invocation_id) else {
            self.stray += 1;
            return wrong.push("the call was not asked for, or has its outcome already");
        };
        match (asked.task, r.is_of_task()) {
            (None, false) => {
                self.coverage.executed += 1;
                if r.result_type.as_deref() == Some("input_required") && self.legs.len() < MAX_DENIALS {
                    self.legs.insert(r.receipt_id, (r.tool_name.clone(), r.arguments_hash.clone()));
                }
                if r.result_type.as_deref() == Some("task") {
                    asked.task = Some(r.receipt_id);
                } else {
                    self.asked.remove(&r.invocation_id);
                }
            }
            (Some(first), true) => {
                if r.parent_receipt_id != Some(first) {
                    wrong.push("what a task came to does not name the call that began it");
                }
                if call.is_some_and(|n| r.receipt_id != ReceiptId::of_task(session, n)) {
                    wrong.push("receipt_id is not derived from its task");
                }
                self.asked.remove(&r.invocation_id);
            }
            (Some(_), false) | (None, true) => wrong.push("the call has its outcome already, or began no task"),
        }
    }

    /// What became of all calls.
    #[must_use]
    pub fn finish(self) -> Covered {
        let mut open: Vec<(u64, InvocationId)> =
            self.asked.iter().filter(|(_, a)| a.task.is_none()).map(|(id, a)| (a.call, *id)).collect();
        open.sort_unstable();
        let Coverage { requested, executed, denied, .. } = self.coverage;
        let coverage = Coverage { open: requested.saturating_sub(executed + denied), ..self.coverage };
        Covered { coverage, stray: self.stray, open: open.into_iter().take(Covered::NAMED).map(|(_, id)| id).collect() }
    }
}
