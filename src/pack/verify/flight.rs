//! Requests in flight while the chain is walked: what a receipt will be compared with.

use super::{
    event_line::{Detail, Event},
    receipt_line::Call,
};
use crate::{
    canon,
    model::{EventKind, InvocationId, Outcome, PolicyVerdict, ReceiptId, WallTime, event::detail},
};
use std::collections::HashMap;

/// Most requests in flight at once; more is no session of a recorder.
pub const MAX_IN_FLIGHT: usize = crate::model::limits::VERIFIED;
/// Longer texts are kept as their hash.
const KEEP: usize = 512;

/// Texts in one allocation.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// A text that is absent; no canonical JSON token begins so.
const ABSENT: &[u8] = b"\x00";

impl Texts {
    fn push(&mut self, text: Option<&[u8]>) {
        let text = text.unwrap_or(ABSENT);
        if text.len() > KEEP {
            self.bytes.extend_from_slice(&super::cursor::hex_of(canon::sha256(text)));
            self.bytes.push(0);
        } else {
            self.bytes.extend_from_slice(text);
        }
        self.ends.push(self.bytes.len() as u32);
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    fn is(&self, at: usize, text: &[u8]) -> bool {
        if text.len() > KEEP {
            self.get(at).strip_suffix(b"\x00") == Some(&super::cursor::hex_of(canon::sha256(text)))
        } else {
            self.get(at) == text
        }
    }

    fn absent(&self, at: usize) -> bool {
        self.get(at) == ABSENT
    }

    fn show(&self, at: usize) -> String {
        if self.absent(at) { "null".to_owned() } else { super::cursor::shown(self.get(at)) }
    }
}

const TOOL: usize = 0;
const ARGUMENTS: usize = 1;
const RPC: usize = 2;
const META: usize = 3;
const ANOMALIES: usize = 4;
const RESULT: usize = 5;
const RESULT_TYPE: usize = 6;
const RESPONSE_ANOMALIES: usize = 7;

/// One request.
#[derive(Debug)]
struct Flight {
    texts: Texts,
    parent: Option<ReceiptId>,
    at: WallTime,
    mono_us: u64,
    is_call: bool,
    forwarded_us: Option<u64>,
    decision: Option<Box<Decided>>,
    response: Option<Response>,
}

/// What a policy said of a request.
#[derive(Debug)]
struct Decided {
    at: WallTime,
    mono_us: u64,
    said: detail::PolicyDecision,
}

#[derive(Debug)]
struct Response {
    at: WallTime,
    mono_us: u64,
    first_byte_us: u64,
    is_error: Option<bool>,
}

/// A field on which a receipt and its events disagree: its name, the chain's value, the receipt's.
pub type Disagreement = (&'static str, String, String);

/// All requests in flight.
#[derive(Debug, Default)]
pub struct Flights {
    open: HashMap<InvocationId, Flight>,
}

impl Flights {
    #[allow(clippy::collapsible_match)] // a guard that looks into the map would hide what happens
    /// Takes note of an event that closes nothing. `false` when too many requests are in flight.
    pub fn note(&mut self, event: &Event<'_>) -> bool {
        let Some(invocation) = event.invocation else { return true };
        match &event.detail {
            Detail::RequestReceived { anomalies, arguments_hash, meta, parent, tool_name } => {
                if self.open.len() >= MAX_IN_FLIGHT {
                    return false;
                }
                let mut texts = Texts { bytes: Vec::with_capacity(256), ends: Vec::with_capacity(8) };
                texts.push(*tool_name);
                texts.push(*arguments_hash);
                texts.push(Some(event.rpc_id));
                texts.push(Some(meta));
                texts.push(Some(anomalies));
                let is_call = event.method == Some(b"tools/call")
                    && event.direction == Some(crate::model::Direction::ClientToServer);
                let flight = Flight {
                    texts,
                    parent: *parent,
                    at: event.at,
                    mono_us: event.mono_us,
                    is_call,
                    forwarded_us: None,
                    decision: None,
                    response: None,
                };
                self.open.insert(invocation, flight);
            }
            Detail::Forwarded(_) if event.kind == EventKind::RequestForwarded => {
                if let Some(f) = self.open.get_mut(&invocation) {
                    f.forwarded_us = Some(event.mono_us);
                }
            }
            Detail::Decision(said) => {
                // Only the first one is the call's.
                if let Some(f) = self.open.get_mut(&invocation).filter(|f| f.decision.is_none()) {
                    let said = detail::PolicyDecision::clone(said);
                    f.decision = Some(Box::new(Decided { at: event.at, mono_us: event.mono_us, said }));
                }
            }
            Detail::ResponseReceived { anomalies, first_byte_us, is_error, result_hash, result_type } => {
                // Only the first response is the call's; a later one is an anomaly of its own.
                if let Some(f) = self.open.get_mut(&invocation).filter(|f| f.response.is_none()) {
                    f.texts.push(*result_hash);
                    f.texts.push(*result_type);
                    f.texts.push(Some(anomalies));
                    f.response = Some(Response {
                        at: event.at,
                        mono_us: event.mono_us,
                        first_byte_us: *first_byte_us,
                        is_error: *is_error,
                    });
                }
            }
            _ if matches!(event.kind, EventKind::ResponseSent | EventKind::Anomaly | EventKind::RequestBlocked) => {
                // A tool call ends with its receipt, any other request with its last event.
                if self.open.get(&invocation).is_some_and(|f| !f.is_call) {
                    self.open.remove(&invocation);
                }
            }
            _ => {}
        }
        true
    }

    /// Compares a call's receipt with its events and forgets them. `None` when there is no such request in flight.
    pub fn close(&mut self, event: &Event<'_>, call: &Call<'_>) -> Option<Vec<Disagreement>> {
        let flight = self.open.remove(&call.invocation)?;
        Some(compare(&flight, event, call))
    }

    /// Tool calls without a receipt that are not among `carried`: how many, and the first few.
    #[must_use]
    pub fn unreceipted(&self, carried: &[InvocationId]) -> (u64, Vec<InvocationId>) {
        let mut open: Vec<_> =
            self.open.iter().filter(|(id, f)| f.is_call && !carried.contains(id)).map(|(id, _)| *id).collect();
        open.sort_unstable();
        let n = open.len() as u64;
        open.truncate(5);
        (n, open)
    }
}

fn compare(f: &Flight, event: &Event<'_>, call: &Call<'_>) -> Vec<Disagreement> {
    let mut out = Vec::new();
    let mut text = |name, at: usize, found: Option<&[u8]>| {
        let same = found.map_or(f.texts.absent(at), |t| f.texts.is(at, t));
        if !same {
            out.push((name, f.texts.show(at), found.map_or("null".to_owned(), super::cursor::shown)));
        }
    };
    text("mcp_request_id", RPC, Some(call.rpc_id));
    text("meta", META, Some(call.meta));
    // The recorder leaves these null where a call has no name or no arguments to hash.
    if !f.texts.absent(TOOL) {
        text("tool_name", TOOL, Some(call.tool_name));
    }
    if !f.texts.absent(ARGUMENTS) {
        text("arguments_hash", ARGUMENTS, Some(call.arguments_hash));
    }
    // A receipt has the anomalies of both messages, and may have more of its own.
    let here = |at: usize| missing(f.texts.get(at), call.anomalies);
    let anomaly = here(ANOMALIES).or_else(|| f.response.as_ref().and_then(|_| here(RESPONSE_ANOMALIES)));
    if f.response.is_some() {
        text("result_hash", RESULT, call.result_hash);
        text("result_type", RESULT_TYPE, call.result_type);
    }
    if let Some(anomaly) = anomaly {
        out.push(("anomalies", anomaly, super::cursor::shown(call.anomalies)));
    }
    verdict(&mut out, f, event, call);
    // Put into words only where they differ: this runs for every call of a pack.
    differ(&mut out, "parent_receipt_id", f.parent, call.parent);
    differ(&mut out, "request_observed_at", Some(f.at), Some(call.request_at));
    if let Some(r) = &f.response {
        differ(&mut out, "response_observed_at", Some(r.at), call.response_at);
        differ(&mut out, "result_is_error", r.is_error, call.is_error);
    }
    let response = f.response.as_ref();
    let sent = (event.kind == EventKind::ResponseSent).then_some(event.mono_us);
    for (name, chain, receipt) in [
        ("phases_us.request_forwarded", f.forwarded_us, call.phases.request_forwarded),
        ("phases_us.response_first_byte", response.map(|r| r.first_byte_us), call.phases.response_first_byte),
        ("phases_us.response_observed", response.map(|r| r.mono_us), call.phases.response_observed),
        ("phases_us.response_forwarded", sent, call.phases.response_forwarded),
        ("duration_ms (µs)", response.map(|r| r.mono_us), call.duration_us),
    ] {
        if let (Some(chain), Some(receipt)) = (chain, receipt) {
            let chain = chain.saturating_sub(f.mono_us);
            if chain != receipt {
                out.push((name, chain.to_string(), receipt.to_string()));
            }
        }
    }
    out
}

/// The policy's part of a receipt, and that what it kept back was kept back.
fn verdict(out: &mut Vec<Disagreement>, f: &Flight, event: &Event<'_>, call: &Call<'_>) {
    let escaped = |text: &str| {
        let quoted = serde_json::to_vec(text).unwrap_or_default();
        quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_vec()
    };
    let (blocked, denied) = (event.kind == EventKind::RequestBlocked, call.outcome == Outcome::Denied);
    // A recovery that found the segment cut binds receipts by an event of its own.
    let cut = event.kind == EventKind::Anomaly;
    if blocked != denied && !(cut && denied) {
        let word = |kept: bool| if kept { "denied" } else { "not denied" }.to_owned();
        out.push(("outcome", word(blocked), word(denied)));
    }
    if (blocked || denied) && (f.forwarded_us.is_some() || f.response.is_some()) {
        out.push(("outcome", "the request was forwarded".to_owned(), "denied".to_owned()));
    }
    let said = f.decision.as_ref().map(|d| &d.said);
    for (name, chain, receipt) in [
        ("policy_hash", said.and_then(|d| d.policy_hash.as_deref()), call.policy_hash),
        ("policy_reason", said.map(|d| d.reason.as_str()), call.policy_reason),
        ("policy_ref", said.and_then(|d| d.rule.as_deref()), call.policy_ref),
    ] {
        let chain = chain.map(escaped);
        if chain.as_deref() != receipt {
            let show = |text: Option<&[u8]>| text.map_or_else(|| "null".to_owned(), super::cursor::shown);
            out.push((name, show(chain.as_deref()), show(receipt)));
        }
    }
    let stated = said.map_or(PolicyVerdict::NoPolicy, |d| d.verdict);
    if stated != call.verdict {
        out.push((
            "policy_verdict",
            format!("{stated:?}").to_lowercase(),
            format!("{:?}", call.verdict).to_lowercase(),
        ));
    }
    differ(out, "policy_decided_at", f.decision.as_ref().map(|d| d.at), call.decided_at);
    let decided_us = f.decision.as_ref().map(|d| d.mono_us.saturating_sub(f.mono_us));
    differ(out, "phases_us.policy_decided", decided_us, call.phases.policy_decided);
}

fn differ<T: PartialEq + std::fmt::Display>(
    out: &mut Vec<(&'static str, String, String)>,
    name: &'static str,
    expected: Option<T>,
    found: Option<T>,
) {
    if expected != found {
        let show = |v: Option<T>| v.map_or_else(|| "null".to_owned(), |v| v.to_string());
        out.push((name, show(expected), show(found)));
    }
}

/// The first element of one array of strings that is not in another.
fn missing(of: &[u8], within: &[u8]) -> Option<String> {
    if of == b"[]" || of == within {
        return None;
    }
    let elements = |array| canon::elements(array).into_iter().flatten().flatten();
    let there: Vec<&[u8]> = elements(within).map(|r| &within[r]).collect();
    elements(of).map(|r| &of[r]).find(|a| !there.contains(a)).map(super::cursor::shown)
}
