//! One tool call as a person watches it, and how two accounts of the same call become one.

use crate::model::{
    DurationMs, InvocationId, Outcome, Phases, PolicyVerdict, ReceiptId, RpcId, SessionId, ToolCall, WallTime,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A tool call: what is known of it so far. Members are the receipt's, `null` where not known yet.
///
/// Accounts of one call are joined member by member, what is known before what is not; the result does not depend on the
/// order in which they come, nor on how often. See [`CallRow::join`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    /// What was unusual, as machine words.
    pub anomalies: BTreeSet<String>,
    /// Hash of the arguments.
    pub arguments_hash: Option<String>,
    /// Round trip in milliseconds, once there is a response.
    pub duration_ms: Option<DurationMs>,
    /// Wall clock of the receipt.
    pub ended_at: Option<WallTime>,
    /// Id of the call.
    pub invocation_id: InvocationId,
    /// JSON-RPC id of the request; `None` if not known.
    pub mcp_request_id: Option<RpcId>,
    /// What became of it; `null` while it runs.
    pub outcome: Option<Outcome>,
    /// Why there was no ordinary response.
    pub outcome_reason: Option<String>,
    /// Receipt of the leg before.
    pub parent_receipt_id: Option<ReceiptId>,
    /// Microseconds after the request was read.
    pub phases_us: Phases,
    /// Short machine word for the verdict.
    pub policy_reason: Option<String>,
    /// The rule that matched.
    pub policy_ref: Option<String>,
    /// The verdict; `null` before it is known.
    pub policy_verdict: Option<PolicyVerdict>,
    /// Its receipt, once there is one.
    pub receipt_id: Option<ReceiptId>,
    /// Wall clock when the request was read.
    pub requested_at: Option<WallTime>,
    /// Hash of the result or error body.
    pub result_hash: Option<String>,
    /// `isError`, or a JSON-RPC error.
    pub result_is_error: Option<bool>,
    /// `complete`, `input_required`, `task`, …
    pub result_type: Option<String>,
    /// The server's id: from `--server-id`, or derived from its command.
    pub server_id: Option<String>,
    /// The session in which it ended; while it runs, the one in which it began.
    pub session_id: SessionId,
    /// Tool name as sent.
    pub tool_name: Option<String>,
}

/// Where a call is in the list: calls are listed by the time of their request.
pub type Place = (WallTime, InvocationId);

impl CallRow {
    /// A call of which nothing else is known.
    #[must_use]
    pub fn new(session_id: SessionId, invocation_id: InvocationId) -> Self {
        Self {
            anomalies: BTreeSet::new(),
            arguments_hash: None,
            duration_ms: None,
            ended_at: None,
            invocation_id,
            mcp_request_id: None,
            outcome: None,
            outcome_reason: None,
            parent_receipt_id: None,
            phases_us: Phases::default(),
            policy_reason: None,
            policy_ref: None,
            policy_verdict: None,
            receipt_id: None,
            requested_at: None,
            result_hash: None,
            result_is_error: None,
            result_type: None,
            server_id: None,
            session_id,
            tool_name: None,
        }
    }

    /// The call that a receipt is about.
    #[must_use]
    pub fn of_receipt(r: &ToolCall) -> Self {
        Self {
            anomalies: r.anomalies.iter().map(ToString::to_string).collect(),
            arguments_hash: Some(r.arguments_hash.clone()),
            duration_ms: r.duration_ms,
            ended_at: Some(r.timestamp),
            invocation_id: r.invocation_id,
            mcp_request_id: Some(r.mcp_request_id.clone()).filter(|id| *id != RpcId::Null),
            outcome: Some(r.outcome),
            outcome_reason: r.outcome_reason.as_ref().map(ToString::to_string),
            parent_receipt_id: r.parent_receipt_id,
            phases_us: r.phases_us,
            policy_reason: r.policy_reason.as_ref().map(ToString::to_string),
            policy_ref: r.policy_ref.clone(),
            policy_verdict: Some(r.policy_verdict),
            receipt_id: Some(r.receipt_id),
            requested_at: Some(r.request_observed_at),
            result_hash: r.result_hash.clone(),
            result_is_error: r.result_is_error,
            result_type: r.result_type.clone(),
            server_id: Some(r.server_id.clone()),
            session_id: r.session_id,
            tool_name: Some(r.tool_name.clone()),
        }
    }

    /// Whether it has no end yet.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.outcome.is_none()
    }

    /// Its place in the list. A call whose request has not been seen is listed by its end.
    #[must_use]
    pub fn place(&self) -> Place {
        (self.requested_at.or(self.ended_at).unwrap_or_else(|| WallTime::from_millis(0)), self.invocation_id)
    }

    /// Adds what `other`, an account of the same call, knows.
    ///
    /// Where two accounts contradict each other, which a recorder's never do, the greater one wins: the result is the
    /// same in any order.
    pub fn join(&mut self, other: Self) {
        if (other.outcome.is_some(), other.session_id) > (self.outcome.is_some(), self.session_id) {
            self.session_id = other.session_id;
        }
        self.anomalies.extend(other.anomalies);
        self.arguments_hash = self.arguments_hash.take().max(other.arguments_hash);
        self.duration_ms = self.duration_ms.max(other.duration_ms);
        self.ended_at = self.ended_at.max(other.ended_at);
        greater(&mut self.mcp_request_id, other.mcp_request_id, rpc_rank);
        greater(&mut self.outcome, other.outcome, |o| *o as u8);
        self.outcome_reason = self.outcome_reason.take().max(other.outcome_reason);
        self.parent_receipt_id = self.parent_receipt_id.max(other.parent_receipt_id);
        let (a, b) = (&mut self.phases_us, other.phases_us);
        a.policy_decided = a.policy_decided.max(b.policy_decided);
        a.request_forwarded = a.request_forwarded.max(b.request_forwarded);
        a.response_first_byte = a.response_first_byte.max(b.response_first_byte);
        a.response_forwarded = a.response_forwarded.max(b.response_forwarded);
        a.response_observed = a.response_observed.max(b.response_observed);
        self.policy_reason = self.policy_reason.take().max(other.policy_reason);
        self.policy_ref = self.policy_ref.take().max(other.policy_ref);
        greater(&mut self.policy_verdict, other.policy_verdict, |v| match v {
            PolicyVerdict::NoPolicy => 0,
            PolicyVerdict::Allowed => 1,
            PolicyVerdict::Denied => 2,
        });
        self.receipt_id = self.receipt_id.max(other.receipt_id);
        self.requested_at = self.requested_at.max(other.requested_at);
        self.result_hash = self.result_hash.take().max(other.result_hash);
        self.result_is_error = self.result_is_error.max(other.result_is_error);
        self.result_type = self.result_type.take().max(other.result_type);
        self.server_id = self.server_id.take().max(other.server_id);
        self.tool_name = self.tool_name.take().max(other.tool_name);
    }
}

fn rpc_rank(id: &RpcId) -> (u8, i64, String) {
    match id {
        RpcId::Null => (0, 0, String::new()),
        RpcId::Int(n) => (1, *n, String::new()),
        RpcId::Text(t) => (2, 0, t.clone()),
    }
}

fn greater<T, R: Ord>(mine: &mut Option<T>, theirs: Option<T>, rank: impl Fn(&T) -> R) {
    let wins = match (&*mine, &theirs) {
        (None, Some(_)) => true,
        (Some(a), Some(b)) => rank(b) > rank(a),
        _ => false,
    };
    if wins {
        *mine = theirs;
    }
}

/// Counts over the calls of one session; each only ever grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Calls that began, those that came over from the session before included.
    pub started: u64,
    /// Calls that have ended.
    pub finished: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// Of these, without a response.
    pub timeouts: u64,
}

impl Totals {
    /// Calls that have begun and not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.finished)
    }

    /// Adds what another count knows.
    pub fn join(&mut self, other: Self) {
        self.started = self.started.max(other.started);
        self.finished = self.finished.max(other.finished);
        self.denied = self.denied.max(other.denied);
        self.errors = self.errors.max(other.errors);
        self.timeouts = self.timeouts.max(other.timeouts);
    }

    /// Counts one more end.
    pub fn ended(&mut self, outcome: Outcome) {
        self.finished += 1;
        self.started = self.started.max(self.finished);
        match outcome {
            Outcome::Denied => self.denied += 1,
            Outcome::Error => self.errors += 1,
            Outcome::Timeout => self.timeouts += 1,
            Outcome::Forwarded => {}
        }
    }
}
