//! What one line says by itself: combinations of members that no recorder writes.

use crate::model::words::{AnomalyKind as A, ExchangePhase, OutcomeReason};
use crate::{
    canon,
    model::{
        Direction, EventKind, Outcome, PolicyVerdict, cursor,
        event::{DetailView as Detail, EventView as Event},
        http::HttpExchange,
        limits::JUNK_LINES,
        receipt::CallView as Call,
    },
};

/// Why a value is hashed over its raw bytes.
const RAW: [&[u8]; 6] = [
    b"depth_exceeded",
    b"duplicate_key",
    b"invalid_utf8",
    b"lone_surrogate",
    b"number_out_of_range",
    b"too_many_members",
];

/// The texts of an array of strings, verbatim, without quotes.
pub fn words(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    canon::elements(array).into_iter().flatten().flatten().map(|r| &array[r.start + 1..r.end - 1])
}

/// Whether a word is among the texts of an array.
pub fn has(array: &[u8], word: &[u8]) -> bool {
    array.len() > 2 && words(array).any(|w| w == word)
}

pub(super) fn sorted(array: &[u8]) -> bool {
    array.len() <= 2 || words(array).zip(words(array).skip(1)).all(|(a, b)| a < b)
}

pub(super) fn raw_needs_a_word(hash: Option<&[u8]>, anomalies: &[u8]) -> bool {
    hash.is_some_and(|h| h.starts_with(b"sha256-raw:")) && !RAW.iter().any(|w| has(anomalies, w))
}

/// What is wrong with an event by itself.
#[must_use]
pub fn event(e: &Event<'_>) -> Option<&'static str> {
    use EventKind as K;
    let wire = e.wire_bytes.is_some() && e.wire_sha256.is_some();
    let no_wire = e.wire_bytes.is_none() && e.wire_sha256.is_none();
    let nothing =
        e.direction.is_none() && e.invocation_id.is_none() && e.method.is_none() && e.rpc_id == b"null" && no_wire;
    let request = e.direction.is_some() && e.invocation_id.is_some() && e.method.is_some();
    let shape = match (e.event, &e.detail) {
        (
            K::ChainStart
            | K::ChainEnd
            | K::PolicyReloaded
            | K::RecorderGap
            | K::HttpExchange
            | K::SurfaceDecision
            | K::SurfaceDrift,
            _,
        ) => nothing,
        (K::SurfaceObserved, _) => e.direction.is_none() && e.method.is_none() && e.rpc_id == b"null" && no_wire,
        (K::RequestReceived | K::RequestForwarded | K::ResponseReceived | K::ResponseSent, _) => request && wire,
        (K::PolicyDecision, _) => request && no_wire,
        (K::ToolRequested | K::ToolDenied | K::ToolExecuted, _) => {
            e.direction.is_none()
                && e.invocation_id.is_some()
                && e.method.is_none()
                && e.rpc_id == b"null"
                && no_wire
                && e.detail.binding().receipt_id.is_some()
        }
        (K::RequestBlocked, _) => e.direction.is_some() && wire && (e.invocation_id.is_none() || e.method.is_some()),
        (K::Malformed | K::MalformedLines, _) => {
            e.direction.is_some() && wire && e.invocation_id.is_none() && e.method.is_none() && e.rpc_id == b"null"
        }
        (K::Notification, _) => e.direction.is_some() && wire && e.method.is_some(),
        (K::Anomaly, Detail::Anomaly(d)) if d.kind.known == Some(A::ClockStep) => {
            nothing && e.detail.offset().is_none()
        }
        (K::Anomaly, Detail::Anomaly(d)) if matches!(d.kind.known, Some(A::NoResponse | A::NotDelivered)) => {
            e.invocation_id.is_some() && no_wire && d.note.is_some()
        }
        (K::Anomaly, Detail::Anomaly(d)) if matches!(d.kind.known, Some(A::LateResponse | A::UnmatchedResponse)) => {
            e.direction.is_some() && wire && e.detail.offset().is_some()
        }
        (K::Anomaly, Detail::Anomaly(d)) if d.kind.known == Some(A::SurfaceFiltered) => {
            let of_server = e.direction == Some(Direction::ServerToClient);
            of_server && wire && e.detail.offset().is_some() && d.note.is_some()
        }
        (K::Anomaly, _) => true,
    };
    if !shape {
        return Some("the event does not have the members of its kind");
    }
    match &e.detail {
        Detail::ChainStart(_) if e.mono_us != 0 => Some("the session clock does not start at its first event"),
        Detail::RequestReceived(d) => {
            let from_client = e.direction == Some(Direction::ClientToServer);
            let call = d.arguments_hash.is_some() && d.tool_name.is_some();
            let none = d.arguments_hash.is_none()
                && d.tool_name.is_none()
                && d.parent_receipt_id.is_none()
                && d.meta.is_none();
            let fits = match e.method {
                Some(b"tools/call") if from_client => call,
                // A leg of a task that is not known is a request like any other.
                Some(b"tasks/get" | b"tasks/result") if from_client => call && d.parent_receipt_id.is_some() || none,
                _ => none,
            };
            if !fits {
                Some("the event's details about a call do not match its method")
            } else if !sorted(d.anomalies) {
                Some("anomalies are not sorted, or repeated")
            } else if raw_needs_a_word(d.arguments_hash, d.anomalies) {
                Some("a hash over raw bytes, but no anomaly that says why")
            } else {
                None
            }
        }
        Detail::ResponseReceived(d) => {
            if d.is_error.is_none() || d.result_type.is_none() && d.is_error != Some(true) {
                Some("a response is neither a result nor an error")
            } else if d.error_code.is_some() && d.result_type.is_some() {
                Some("a response has both an error code and a result type")
            } else if !sorted(d.anomalies) {
                Some("anomalies are not sorted, or repeated")
            } else if raw_needs_a_word(d.result_hash, d.anomalies) {
                Some("a hash over raw bytes, but no anomaly that says why")
            } else {
                None
            }
        }
        Detail::PolicyReloaded(r) if r.error.is_some() && r.policy_hash != r.previous => {
            Some("a policy that could not be read replaced another")
        }
        Detail::MalformedLines(d) => {
            // Each has a byte at least, and a line feed before the next one.
            let is_long_enough = e.wire_bytes.is_some_and(|bytes| bytes >= d.lines.saturating_mul(2).saturating_sub(1));
            if !(2..=JUNK_LINES).contains(&d.lines) || !is_long_enough {
                Some("lines that are told of together are too few, too many or too short")
            } else if d.first_us > e.mono_us {
                Some("the first of several lines was read after the last")
            } else {
                None
            }
        }
        Detail::HttpExchange(d) => exchange(d),
        _ => None,
    }
}

/// What is wrong with what is said of an exchange by itself.
fn exchange(d: &HttpExchange) -> Option<&'static str> {
    let hashes = [&d.request.sha256, &d.response.as_ref().and_then(|r| r.sha256.clone())];
    if d.exchange == 0 {
        Some("exchanges are numbered from 1")
    } else if (d.phase == ExchangePhase::End) != d.ended.is_some() {
        Some("an exchange that is over, and only that, says how it ended")
    } else if d.response.is_some() != d.answered_by.is_some() {
        Some("an exchange that was answered, and only that, says by whom")
    } else if hashes.into_iter().flatten().any(|hash| hash.len() != 64 || !cursor::is_hex(hash.as_bytes())) {
        Some("the hash of a body is none")
    } else {
        None
    }
}

/// What is wrong with the receipt of a call by itself.
#[must_use]
pub fn call(c: &Call<'_>) -> Option<&'static str> {
    let p = &c.phases_us;
    let answered = c.response_observed_at.is_some();
    let response = [p.response_observed.is_some(), p.response_first_byte.is_some(), c.result_is_error.is_some()];
    let late =
        [p.response_forwarded.is_some(), c.result_hash.is_some(), c.result_type.is_some(), c.result_content.is_some()];
    let judged = [p.policy_decided.is_some(), c.policy_reason.is_some(), c.policy_decided_at.is_some()];
    let verdict = c.policy_verdict != PolicyVerdict::NoPolicy;
    let outcome = match (answered, c.result_is_error) {
        (true, Some(true)) => c.outcome == Outcome::Error,
        (true, _) => c.outcome == Outcome::Forwarded,
        (false, _) if is_for(c, OutcomeReason::HttpError) => c.outcome == Outcome::Error,
        (false, _) => matches!(c.outcome, Outcome::Denied | Outcome::Timeout),
    };
    let denied = c.outcome == Outcome::Denied;
    if c.receipt_id.bits() != c.invocation_id.bits() {
        Some("receipt_id is not derived from its invocation")
    } else if !sorted(c.anomalies) {
        Some("anomalies are not sorted, or repeated")
    } else if response.iter().any(|there| *there != answered) || !answered && late.contains(&true) {
        Some("only part of a response is there")
    } else if !outcome {
        Some("the outcome does not match what the receipt says about the response")
    } else if answered && has(c.anomalies, b"response_not_delivered") == p.response_forwarded.is_some() {
        Some("the anomalies disagree with whether the response was delivered")
    } else if c.outcome_reason.is_some() != (!answered && c.outcome != Outcome::Denied) {
        Some("calls without a response, and only those, have a reason for their outcome")
    } else if is_for(c, OutcomeReason::Notification) && !has(c.anomalies, b"notification_call") {
        Some("a call with an id was not a notification")
    } else if has(c.anomalies, b"notification_call") && c.mcp_request_id != b"null" {
        Some("a notification has no id")
    } else if denied && (c.policy_verdict != PolicyVerdict::Denied || p.request_forwarded.is_some()) {
        Some("a call that was blocked was not denied, or was forwarded")
    } else if c.duration_ms.is_none() != denied {
        Some("calls that were forwarded, and only those, have a duration")
    } else if answered && c.duration_ms != p.response_observed {
        Some("duration_ms does not match when the response was observed")
    } else if judged.iter().any(|there| *there != verdict) || !verdict && c.policy_ref.is_some() {
        Some("only part of a policy's verdict is there")
    } else if raw_needs_a_word(Some(c.arguments_hash), c.anomalies) || raw_needs_a_word(c.result_hash, c.anomalies) {
        Some("a hash over raw bytes, but no anomaly that says why")
    } else if has(c.anomalies, b"task_leg") && c.parent_receipt_id.is_none() {
        Some("a leg of a task has no previous leg")
    } else {
        None
    }
}

/// Whether the call has no ordinary answer for this reason.
pub fn is_for(call: &Call<'_>, reason: OutcomeReason) -> bool {
    call.outcome_reason.is_some_and(|stated| stated.known == Some(reason))
}
