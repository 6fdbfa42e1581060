//! Requests in flight while the chain is walked: what later events and the receipt are compared with.

use super::{
    exchanges::{Exchanges, Over},
    sense,
};
use crate::model::words::{AnomalyKind, OutcomeReason};
use crate::{
    canon,
    model::{
        Direction, EventKind, InvocationId, Outcome, PolicyVerdict, ReceiptId, WallTime, cursor,
        event::{DetailView as Detail, EventView as Event, detail::RequestReceivedView},
        receipt::CallView as Call,
    },
};
use std::collections::{HashMap, HashSet};

/// Most requests in flight at once; more is not a session of a recorder.
pub const MAX_IN_FLIGHT: usize = crate::model::limits::VERIFIED;
/// Longer texts are kept as their hash: memory per request stays small whatever the pack holds.
const KEEP: usize = 96;

/// Texts in one allocation.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u16>,
}

/// A text that is absent; no canonical JSON token begins so.
const ABSENT: &[u8] = b"\x00";

impl Texts {
    fn push(&mut self, text: Option<&[u8]>) {
        let text = text.unwrap_or(ABSENT);
        if text.len() > KEEP {
            self.bytes.extend_from_slice(&cursor::hex_of(canon::sha256(text)));
            self.bytes.push(0);
        } else {
            self.bytes.extend_from_slice(text);
        }
        self.ends.push(self.bytes.len() as u16);
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { usize::from(self.ends[at - 1]) };
        &self.bytes[start..usize::from(self.ends[at])]
    }

    fn is(&self, at: usize, text: Option<&[u8]>) -> bool {
        match text {
            None => self.absent(at),
            Some(text) if text.len() > KEEP => {
                self.get(at).strip_suffix(b"\x00") == Some(&cursor::hex_of(canon::sha256(text)))
            }
            Some(text) => self.get(at) == text,
        }
    }

    fn absent(&self, at: usize) -> bool {
        self.get(at) == ABSENT
    }

    fn show(&self, at: usize) -> String {
        if self.absent(at) { "null".to_owned() } else { cursor::shown(self.get(at)) }
    }
}

const TOOL: usize = 0;
const ARGUMENTS: usize = 1;
const RPC: usize = 2;
const META: usize = 3;
const METHOD: usize = 4;

/// Place of a message in its stream, and its hash.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Place {
    direction: Option<Direction>,
    offset: Option<u64>,
    bytes: Option<u64>,
    sha256: Option<[u8; 32]>,
}

impl Place {
    fn of(e: &Event<'_>) -> Self {
        let sha256 = e.wire_sha256.and_then(cursor::digest_of);
        Self { direction: e.direction, offset: e.detail.offset(), bytes: e.wire_bytes, sha256 }
    }
}

#[derive(Debug)]
struct Flight {
    texts: Texts,
    /// Its anomalies and those of its response, each verbatim; almost always empty.
    anomalies: [Box<[u8]>; 2],
    parent: Option<ReceiptId>,
    at: WallTime,
    mono_us: u64,
    place: Place,
    /// The exchange of HTTP in which it was asked.
    exchange: Option<u64>,
    is_call: bool,
    cancelled: bool,
    forwarded_us: Option<u64>,
    decision: Option<Box<Decision>>,
    response: Option<Box<Response>>,
}

const POLICY: usize = 0;
const REASON: usize = 1;
const RULE: usize = 2;

/// The decision on a request.
#[derive(Debug)]
struct Decision {
    at: WallTime,
    mono_us: u64,
    texts: Texts,
    verdict: PolicyVerdict,
    enforced: bool,
    /// What it could not see, as JSON.
    unseen: Box<[u8]>,
}

const RESULT: usize = 0;
const RESULT_TYPE: usize = 1;

#[derive(Debug)]
struct Response {
    at: WallTime,
    mono_us: u64,
    first_byte_us: u64,
    is_error: Option<bool>,
    place: Place,
    texts: Texts,
}

impl Flight {
    /// The guard denied it: it may not be forwarded.
    fn is_refused(&self) -> bool {
        self.decision.as_ref().is_some_and(|d| d.enforced && d.verdict == PolicyVerdict::Denied)
    }

    /// The event is about this request, as far as method and id tell.
    fn is_named_by(&self, e: &Event<'_>) -> bool {
        self.texts.is(METHOD, e.method) && self.texts.is(RPC, Some(e.rpc_id))
    }
}

/// A field on which a receipt and its events disagree: its name, the chain's value, the receipt's.
pub type Disagreement = (&'static str, String, String);

/// What is known of a session while its chain is walked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Another process than the one that recorded it ended it: some moments are known to it otherwise.
    pub recovered: bool,
    /// Whether the session was recorded with the profile `guard`.
    pub guarded: bool,
}

/// All requests in flight.
#[derive(Debug, Default)]
pub struct Flights {
    open: HashMap<InvocationId, Flight>,
    /// Calls that the session before this one handed over, and that have not ended here.
    pub carried: HashSet<InvocationId>,
    /// Calls whose receipt an event binds and that is not in the pack.
    lost: Vec<InvocationId>,
    /// How many those are.
    lost_count: u64,
}

/// Ids of calls that are named.
const NAMED: usize = 5;

const STRANGER: &str = "the event belongs to a request that is not in the chain";
const OTHERWISE: &str = "the event and the one before it disagree about their request or message";

impl Flights {
    /// Takes note of an event that closes no call. `Err` when too many requests are in flight; what is wrong goes to `wrong`.
    pub fn note(&mut self, e: &Event<'_>, known: Known, wrong: &mut Vec<&'static str>) -> Result<(), ()> {
        let Some(invocation) = e.invocation_id else { return Ok(()) };
        if let Detail::RequestReceived(request) = &e.detail {
            return self.received(e, request, invocation, wrong);
        }
        let Some(f) = self.open.get_mut(&invocation) else {
            // Its other events are in the previous pack.
            if !self.carried.contains(&invocation) {
                wrong.push(STRANGER);
            } else if ends(e) {
                self.carried.remove(&invocation);
            }
            return Ok(());
        };
        match &e.detail {
            Detail::RequestForwarded(_) => {
                if !f.is_named_by(e) || f.place != Place::of(e) {
                    wrong.push(OTHERWISE);
                }
                if f.forwarded_us.is_some() {
                    wrong.push("the request was already forwarded");
                }
                if f.is_refused() {
                    wrong.push("the request was forwarded although the guard refused it");
                }
                if known.guarded && !known.recovered && f.is_call && f.decision.is_none() {
                    wrong.push("the call was forwarded although the guard had made no decision on it");
                }
                f.forwarded_us = Some(e.mono_us);
            }
            Detail::PolicyDecision(said) => {
                if !f.is_named_by(e) || (f.place.direction, f.place.offset) != (e.direction, e.detail.offset()) {
                    wrong.push(OTHERWISE);
                }
                // Recovery learns from a receipt that is on disk what a policy had said, when the answer has been read again.
                let too_late = f.response.is_some() && (said.enforced || !known.recovered);
                if f.decision.is_some() || too_late {
                    wrong.push("the request already has a decision or an answer");
                    return Ok(());
                }
                let mut texts = Texts::default();
                for text in [said.policy_hash, Some(said.reason), said.rule] {
                    texts.push(text);
                }
                f.decision = Some(Box::new(Decision {
                    at: e.at,
                    mono_us: e.mono_us,
                    texts,
                    verdict: said.verdict,
                    enforced: said.enforced,
                    unseen: kept(said.unseen),
                }));
            }
            Detail::ResponseReceived(said) => {
                if !f.is_named_by(e) || e.direction != f.place.direction.map(Direction::reverse) {
                    wrong.push(OTHERWISE);
                }
                if f.response.is_some() {
                    wrong.push("the request was already answered");
                    return Ok(());
                }
                if f.is_refused() {
                    wrong.push("the request was answered although the guard refused it");
                }
                let elsewhere = e.direction == Some(Direction::ServerToClient) && said.exchange.number() != f.exchange;
                if elsewhere != sense::has(said.anomalies, b"answered_on_other_exchange") {
                    wrong.push("the anomalies of the response disagree with whether it came in another exchange");
                }
                if f.cancelled != sense::has(said.anomalies, b"response_after_cancel") {
                    wrong.push("the anomalies of the response disagree with whether the request had been cancelled");
                }
                let mut texts = Texts::default();
                texts.push(said.result_hash);
                texts.push(said.result_type);
                f.anomalies[1] = kept(said.anomalies);
                f.response = Some(Box::new(Response {
                    at: e.at,
                    mono_us: e.mono_us,
                    first_byte_us: said.first_byte_us,
                    is_error: said.is_error,
                    place: Place::of(e),
                    texts,
                }));
            }
            Detail::Malformed(_) | Detail::Notification(_) => {
                // Its id may be spelt otherwise: 1.0 names the request 1.
                if e.method != Some(b"notifications/cancelled") || e.direction != f.place.direction {
                    wrong.push(OTHERWISE);
                }
                f.cancelled = true;
            }
            _ if ends(e) => {
                if f.is_call {
                    wrong.push("a call ends without a receipt");
                    return Ok(());
                }
                wrong.extend(f.ending(e));
                self.open.remove(&invocation);
            }
            _ => {}
        }
        Ok(())
    }

    fn received(
        &mut self,
        e: &Event<'_>,
        request: &RequestReceivedView<'_>,
        invocation: InvocationId,
        wrong: &mut Vec<&'static str>,
    ) -> Result<(), ()> {
        if self.open.len() >= MAX_IN_FLIGHT {
            return Err(());
        }
        let mut texts = Texts { bytes: Vec::with_capacity(160), ends: Vec::with_capacity(5) };
        for text in [request.tool_name, request.arguments_hash, Some(e.rpc_id), request.meta, e.method] {
            texts.push(text);
        }
        let flight = Flight {
            texts,
            anomalies: [kept(request.anomalies), Box::default()],
            parent: request.parent_receipt_id,
            at: e.at,
            mono_us: e.mono_us,
            place: Place::of(e),
            exchange: request.exchange.number(),
            is_call: e.method == Some(b"tools/call") && e.direction == Some(Direction::ClientToServer),
            cancelled: false,
            forwarded_us: None,
            decision: None,
            response: None,
        };
        if self.open.insert(invocation, flight).is_some() || self.carried.contains(&invocation) {
            wrong.push("the request was already received");
        }
        Ok(())
    }

    /// Whether this request is in flight.
    #[must_use]
    pub fn has(&self, invocation: InvocationId) -> bool {
        self.open.contains_key(&invocation)
    }

    /// Compares a call's receipt with its events and forgets them. `None` when there is no such request in flight.
    pub fn close(
        &mut self,
        event: &Event<'_>,
        call: &Call<'_>,
        known: Known,
        exchanges: &Exchanges,
    ) -> Option<Vec<Disagreement>> {
        let flight = self.open.remove(&call.invocation_id)?;
        let over = flight.exchange.and_then(|exchange| exchanges.over(exchange)).unwrap_or_default();
        Some(compare(&flight, event, call, known, over))
    }

    /// An event binds a receipt of this call, and it is not in the pack.
    pub fn lose(&mut self, invocation: Option<InvocationId>) {
        let Some(invocation) = invocation.filter(|i| self.open.remove(i).is_some_and(|f| f.is_call)) else { return };
        self.lost_count += 1;
        if self.lost.len() < NAMED {
            self.lost.push(invocation);
        }
    }

    /// Requests that are still in flight or handed over to another session: how many are not among `carried`, and whether all
    /// of `carried` are.
    #[must_use]
    pub fn left(&self, carried: &HashSet<InvocationId>) -> (u64, bool) {
        let left = self.open.keys().chain(&self.carried).filter(|id| !carried.contains(id)).count() as u64;
        (left, carried.iter().all(|id| self.open.contains_key(id) || self.carried.contains(id)))
    }

    /// Tool calls without a receipt that are not among `carried`: how many, and the first few.
    #[must_use]
    pub fn unreceipted(&self, carried: &HashSet<InvocationId>) -> (u64, Vec<InvocationId>) {
        let mut open: Vec<_> =
            self.open.iter().filter(|(id, f)| f.is_call && !carried.contains(id)).map(|(id, _)| *id).collect();
        let n = open.len() as u64 + self.lost_count;
        open.extend(&self.lost);
        open.sort_unstable();
        open.truncate(NAMED);
        (n, open)
    }
}

/// Whether a request ends with this event.
fn ends(e: &Event<'_>) -> bool {
    matches!(e.event, EventKind::ResponseSent | EventKind::Anomaly | EventKind::RequestBlocked)
}

/// Words that are kept verbatim; no recorder writes a long list, so only the hash of one is kept.
fn kept(array: &[u8]) -> Box<[u8]> {
    match array {
        b"[]" => Box::default(),
        _ if array.len() <= 16 * KEEP => array.into(),
        _ => Box::from(&b"[\"\"]"[..]),
    }
}

impl Flight {
    /// What is wrong with the event that ends it.
    fn ending(&self, e: &Event<'_>) -> Option<&'static str> {
        match &e.detail {
            Detail::ResponseSent(_) => match &self.response {
                None => Some("a response was delivered that was never received"),
                Some(r) if r.place != Place::of(e) || !self.is_named_by(e) => Some(OTHERWISE),
                Some(_) => None,
            },
            Detail::RequestBlocked(said) => {
                if self.place != Place::of(e) || !self.is_named_by(e) {
                    Some(OTHERWISE)
                } else if self.forwarded_us.is_some() || self.response.is_some() {
                    Some("the request was both blocked and forwarded")
                } else if !self.is_refused() {
                    Some("the request was blocked, but no guard refused it")
                } else if !self.decision.as_ref().is_some_and(|d| d.texts.is(REASON, Some(said.reason))) {
                    Some("the request was blocked for another reason than the guard's")
                } else {
                    None
                }
            }
            Detail::Anomaly(said) if said.kind.known == Some(AnomalyKind::NoResponse) && self.response.is_some() => {
                Some("the request is said to have no response, but there is one")
            }
            Detail::Anomaly(said) if said.kind.known == Some(AnomalyKind::NotDelivered) && self.response.is_none() => {
                Some("a response was not delivered that was never received")
            }
            _ => None,
        }
    }
}

fn compare(f: &Flight, event: &Event<'_>, call: &Call<'_>, known: Known, over: Over) -> Vec<Disagreement> {
    let mut out = Vec::new();
    let mut text = |name, texts: &Texts, at: usize, found: Option<&[u8]>| {
        if !texts.is(at, found) {
            out.push((name, texts.show(at), found.map_or("null".to_owned(), cursor::shown)));
        }
    };
    // A call that was sent as a notification has no id; its event has none either.
    text("mcp_request_id", &f.texts, RPC, Some(call.mcp_request_id));
    text("meta", &f.texts, META, call.meta);
    text("tool_name", &f.texts, TOOL, Some(call.tool_name));
    text("arguments_hash", &f.texts, ARGUMENTS, Some(call.arguments_hash));
    if let Some(r) = &f.response {
        text("result_hash", &r.texts, RESULT, call.result_hash);
        text("result_type", &r.texts, RESULT_TYPE, call.result_type);
    }
    // A recovery that found the segment cut binds receipts by an event of its own: what was cut off is in the receipt alone.
    let cut = event.is_anomaly(AnomalyKind::ReceiptWithoutEvents);
    if !cut {
        out.extend(f.ending(event).map(|what| ("the event that ends the call", what.to_owned(), "bound".to_owned())));
    }
    anomalies(&mut out, f, call, known, cut);
    verdict(&mut out, f, event, call, cut);
    times(&mut out, f, event, call, known, cut);
    let cancelled = super::sense::is_for(call, OutcomeReason::CancelledByClient);
    // Over HTTP a client also cancels by hanging up.
    let hung_up = cancelled && over.client_gone;
    if call.outcome == Outcome::Timeout && cancelled != f.cancelled && !hung_up && !(cut && cancelled) {
        let word = |yes: bool| if yes { "cancelled" } else { "not cancelled" }.to_owned();
        out.push(("outcome_reason", word(f.cancelled), word(cancelled)));
    }
    if let (Detail::Anomaly(said), Some(reason)) = (&event.detail, &call.outcome_reason)
        && said.kind.known == Some(AnomalyKind::NoResponse)
        && !f.cancelled
        && said.note != Some(reason.text)
    {
        let note = said.note.map_or_else(|| "null".to_owned(), cursor::shown);
        out.push(("outcome_reason", note, cursor::shown(reason.text)));
    }
    if super::sense::is_for(call, OutcomeReason::HttpError) && !over.failed && !cut {
        out.push(("outcome_reason", "no exchange that failed".to_owned(), "http_error".to_owned()));
    }
    // Put into words only where they differ: this runs for every call of a pack.
    differ(&mut out, "parent_receipt_id", f.parent, call.parent_receipt_id);
    out
}

/// A receipt has the anomalies of both messages, and these of its own.
fn anomalies(out: &mut Vec<Disagreement>, f: &Flight, call: &Call<'_>, known: Known, cut: bool) {
    const OWN: [&[u8]; 4] = [b"delivery_unknown", b"recovered", b"response_not_delivered", b"task_leg"];
    let of = |at: usize| sense::words(if f.anomalies[at].is_empty() { b"[]" } else { &f.anomalies[at] });
    let unseen = f.decision.as_ref().filter(|_| !known.recovered).map_or(&b""[..], |d| &d.unseen);
    let judged = if unseen.is_empty() { None } else { Some(sense::words(unseen)) };
    let expected: Vec<&[u8]> = of(0).chain(of(1)).chain(judged.into_iter().flatten()).collect();
    let task = f.texts.get(METHOD).starts_with(b"tasks/");
    let show = |w: &[u8]| cursor::shown(w);
    if call.anomalies.len() > 2 || !expected.is_empty() {
        let there: Vec<&[u8]> = sense::words(call.anomalies).collect();
        if let Some(missing) = expected.iter().find(|w| !there.contains(w)) {
            out.push(("anomalies", show(missing), show(call.anomalies)));
        }
        let strange = there.iter().find(|w| !cut && !expected.contains(w) && !OWN.contains(w));
        if let Some(strange) = strange {
            out.push(("anomalies", format!("no {}", show(strange)), show(call.anomalies)));
        }
    }
    if task != sense::has(call.anomalies, b"task_leg") {
        out.push(("anomalies", f.texts.show(METHOD), show(call.anomalies)));
    }
    if !known.recovered && [&b"recovered"[..], b"delivery_unknown"].iter().any(|w| sense::has(call.anomalies, w)) {
        out.push(("anomalies", "a session that nobody recovered".to_owned(), show(call.anomalies)));
    }
}

/// The policy's part of a receipt, and that what it kept back was kept back.
fn verdict(out: &mut Vec<Disagreement>, f: &Flight, event: &Event<'_>, call: &Call<'_>, cut: bool) {
    let (blocked, denied) = (event.event == EventKind::RequestBlocked, call.outcome == Outcome::Denied);
    if blocked != denied && !cut {
        let word = |kept: bool| if kept { "denied" } else { "not denied" }.to_owned();
        out.push(("outcome", word(blocked), word(denied)));
    }
    if (blocked || denied) && (f.forwarded_us.is_some() || f.response.is_some()) {
        out.push(("outcome", "the request was forwarded".to_owned(), "denied".to_owned()));
    }
    let d = f.decision.as_deref();
    if d.is_none() && cut {
        return;
    }
    for (name, at, receipt) in [
        ("policy_hash", POLICY, call.policy_hash),
        ("policy_reason", REASON, call.policy_reason),
        ("policy_ref", RULE, call.policy_ref),
    ] {
        let same = d.map_or(receipt.is_none(), |d| d.texts.is(at, receipt));
        if !same {
            let chain = d.map_or_else(|| "null".to_owned(), |d| d.texts.show(at));
            out.push((name, chain, receipt.map_or_else(|| "null".to_owned(), cursor::shown)));
        }
    }
    let stated = d.map_or(PolicyVerdict::NoPolicy, |d| d.verdict);
    if stated != call.policy_verdict {
        let word = |v: PolicyVerdict| format!("{v:?}").to_lowercase();
        out.push(("policy_verdict", word(stated), word(call.policy_verdict)));
    }
    differ(out, "policy_decided_at", d.map(|d| d.at), call.policy_decided_at);
    let decided_us = d.map(|d| d.mono_us.saturating_sub(f.mono_us));
    differ(out, "phases_us.policy_decided", decided_us, call.phases_us.policy_decided);
}

/// When things happened.
fn times(out: &mut Vec<Disagreement>, f: &Flight, event: &Event<'_>, call: &Call<'_>, known: Known, cut: bool) {
    differ(out, "request_observed_at", Some(f.at), Some(call.request_observed_at));
    let response = f.response.as_deref();
    if response.is_some() || !cut {
        differ(out, "response_observed_at", response.map(|r| r.at), call.response_observed_at);
        differ(out, "result_is_error", response.and_then(|r| r.is_error), call.result_is_error);
    }
    let sent = (event.event == EventKind::ResponseSent).then_some(event.mono_us);
    let p = &call.phases_us;
    for (name, chain, receipt) in [
        ("phases_us.request_forwarded", f.forwarded_us, p.request_forwarded),
        ("phases_us.response_first_byte", response.map(|r| r.first_byte_us), p.response_first_byte),
        ("phases_us.response_observed", response.map(|r| r.mono_us), p.response_observed),
        ("phases_us.response_forwarded", sent, p.response_forwarded),
    ] {
        if chain.is_some() || !cut {
            differ(out, name, chain.map(|us| us.saturating_sub(f.mono_us)), receipt);
        }
    }
    if let Some(r) = response {
        differ(out, "duration_ms (µs)", Some(r.mono_us.saturating_sub(f.mono_us)), call.duration_ms);
    }
    if known.recovered || cut {
        return;
    }
    let no_response = event.is_anomaly(AnomalyKind::NoResponse);
    if no_response {
        differ(out, "duration_ms (µs)", Some(event.mono_us.saturating_sub(f.mono_us)), call.duration_ms);
    }
    if no_response || matches!(event.event, EventKind::ResponseSent | EventKind::RequestBlocked) {
        differ(out, "timestamp", Some(event.at), Some(call.timestamp));
    }
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
