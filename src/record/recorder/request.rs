//! Requests and notifications.

use super::{BigPayload, Message, Recorder, UNFOLLOWED_EVERY, wire_of};
use crate::model::words::AnomalyKind;
use crate::{
    canon::{self, Digest},
    model::{CallAnomaly, Detail, Direction, InvocationId, Word, event::detail, redaction::Side, surface::Facet},
    record::{
        chain::{Entry, Wire},
        content,
        correlate::{Call, Pending},
        envelope::{self, Class, Envelope, IdKey, Params, RequestMeta, Reviewed},
        judge::Subject,
        redact::Left,
        surface::Part,
    },
};
use serde_json::value::RawValue;
use std::{collections::BTreeSet, ops::Range};

/// `era` of a request that names its protocol version.
pub(super) const MODERN: &str = "modern";

impl Recorder {
    pub(super) fn request(
        &mut self,
        m: &Message<'_>,
        e: &Envelope<'_>,
        index: Option<usize>,
        mut flags: BTreeSet<Word<CallAnomaly>>,
        big: &mut Vec<BigPayload>,
    ) {
        let params = Params::of(e);
        let raw_method = e.method.as_deref().unwrap_or_default();
        let class = envelope::classify(raw_method);
        let recorded = class != Class::Pass || m.is_blocked();
        let key = e.id.map(IdKey::of);
        let rpc_id = content::evidence_id(e.id, &mut flags);
        let meta = RequestMeta::of(params.meta);
        self.learn_client(raw_method, &params, &meta, m.direction());
        if params.duplicate_key {
            flags.insert(CallAnomaly::DuplicateKey.into());
        }
        if key.as_ref().is_some_and(|k| self.table.in_flight(m.scope(m.direction()), k)) {
            flags.insert(CallAnomaly::DuplicateInFlightId.into());
        }
        let invocation = self.invocation(m, index);
        if self.restored.as_ref().is_some_and(|r| r.is_partial(m) && r.holds(invocation)) {
            if let Some(ruling) = m.ruling {
                self.catch_up_one(m, ruling, index);
            }
            return;
        }
        let method = envelope::short(raw_method);
        let from_client = m.direction() == Direction::ClientToServer;
        // What a guard has judged is followed in any case: the guard has a limit of its own, below ours.
        if m.ruling.is_none() && !self.table.has_room() {
            if recorded {
                self.not_followed(m, &method, &rpc_id);
            }
            return;
        }
        let arguments = params.arguments_at.clone().filter(|_| from_client && method == "tools/call");
        let (wire, digest) = match arguments {
            Some(range) => {
                let (wire, digest) = digests(m, e, range, &mut flags);
                (Some(wire), Some(digest))
            }
            None => (recorded.then(|| wire_of(m)), None),
        };
        let modern = meta.protocol_version.is_some();
        let surface = Part::of(raw_method).filter(|_| from_client && !m.is_blocked());
        if let Some(part) = surface {
            self.surface.asked(invocation, part, e.params.clone().map(|range| &e.bytes[range]));
        }
        let tool = params.name.map(envelope::name_of).unwrap_or_default();
        let decision = self.decide(m, index, subject(raw_method, &tool, m.direction(), e, &params));
        if let Some(decision) = &decision {
            flags.extend(decision.unseen.iter().cloned());
        }
        if from_client && method == "tools/call" && self.is_stale(Facet::Tools) {
            flags.insert(CallAnomaly::SurfaceStale.into());
        }
        let mut call = if from_client {
            self.call_of(m, e, &method, &params, digest, meta, &mut flags, invocation, big)
        } else {
            None
        };
        if let Some(call) = &mut call {
            let asked: &str = if call.task_leg { &call.tool_name } else { &tool };
            call.surface = self.stands(asked, decision.as_ref().map(|d| &d.reason), m.read_ns);
        }
        if let Some(wire) = &wire {
            self.counts.requests += 1;
            self.request_event(m, &method, &rpc_id, invocation, wire, modern, &flags, call.as_ref());
            if !m.is_blocked() && !m.undecided {
                self.awaiting.push(m.place, m.end, invocation, false);
            }
        }
        if !recorded {
            self.followed_silently(invocation, m.read_ns);
        }
        self.table.insert(Pending {
            invocation,
            place: m.place,
            key,
            method,
            recorded,
            modern,
            over: false,
            cut: None,
            rpc_id,
            wire,
            // Its event cannot have a time before the session began (one that follows another in this process).
            read_ns: m.read_ns.max(self.started_ns),
            forwarded_ns: None,
            cancelled: false,
            call,
            decision: decision.clone().map(Box::new),
            response: None,
            surface,
        });
        if let Some(decision) = decision.filter(|_| recorded) {
            self.decision_event(invocation, &decision, m.place);
            if decision.blocked {
                self.close(invocation);
            }
        }
    }

    /// More requests are in flight than are followed: this one is named in the chain, and counted as missed.
    fn not_followed(&mut self, m: &Message<'_>, method: &str, rpc_id: &crate::model::RpcId) {
        let note = format!("more requests are in flight than are followed; this one is {method}");
        self.anomaly_event(
            AnomalyKind::NotFollowed,
            Some(envelope::short(&note)),
            m.read_ns,
            Some((m, rpc_id)),
            None,
            None,
        );
        self.unfollowed.0 += 1;
        self.unfollowed.1 += m.bytes.len() as u64;
        if m.read_ns.saturating_sub(self.unfollowed_ns) > UNFOLLOWED_EVERY {
            self.unfollowed_ns = m.read_ns;
            self.say_unfollowed();
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one event, all of it known here")]
    fn request_event(
        &mut self,
        m: &Message<'_>,
        method: &str,
        rpc_id: &crate::model::RpcId,
        invocation: InvocationId,
        wire: &Wire,
        modern: bool,
        flags: &BTreeSet<Word<CallAnomaly>>,
        call: Option<&Call>,
    ) {
        let detail = detail::RequestReceived {
            anomalies: call.map_or(flags, |c| &c.anomalies).iter().cloned().collect(),
            arguments_hash: call.map(|c| c.arguments_hash.clone()),
            era: if modern { MODERN } else { "legacy" }.to_owned(),
            exchange: self.exchange_of(m.place),
            meta: call.and_then(|c| c.meta.clone()),
            offset: m.place.offset,
            parent_receipt_id: call.and_then(|c| c.parent),
            tool_name: call.map(|c| c.tool_name.clone()),
        };
        self.event(Entry {
            at: self.clock.wall(m.read_ns),
            mono_us: self.mono_us(m.read_ns),
            direction: Some(m.direction()),
            method: Some(method),
            rpc_id: Some(rpc_id),
            invocation: Some(invocation),
            wire: Some(wire),
            detail: Detail::RequestReceived(detail),
        });
    }

    fn learn_client(&mut self, method: &str, params: &Params<'_>, meta: &RequestMeta, direction: Direction) {
        if direction != Direction::ClientToServer {
            return;
        }
        if let Some(version) = &meta.protocol_version {
            self.identity.protocol = Some(version.clone());
        }
        if meta.client.is_some() {
            self.identity.client.clone_from(&meta.client);
        }
        if method == "initialize" {
            let (version, client) = params.initialize;
            if self.identity.protocol.is_none() {
                self.identity.protocol = version.and_then(canon::decode_string).map(|v| envelope::short(&v));
            }
            self.identity.client = client.and_then(envelope::peer_info).or(self.identity.client.take());
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call, all of it known here")]
    fn call_of(
        &mut self,
        m: &Message<'_>,
        e: &Envelope<'_>,
        method: &str,
        params: &Params<'_>,
        arguments: Option<Digest>,
        meta: RequestMeta,
        flags: &mut BTreeSet<Word<CallAnomaly>>,
        invocation: InvocationId,
        big: &mut Vec<BigPayload>,
    ) -> Option<Call> {
        let at = self.clock.wall(m.read_ns);
        if meta.dropped && matches!(method, "tools/call" | "tasks/get" | "tasks/result") {
            flags.insert(CallAnomaly::MetaNotKept.into());
        }
        if matches!(method, "tasks/get" | "tasks/result") {
            let (parent, tool_name) = self.table.task(params.task_id.as_deref()?)?;
            let digest = e.params.clone().map_or_else(no_arguments, |range| digests(m, e, range, flags).1);
            return Some(Call {
                tool_name,
                arguments_hash: digest.to_string(),
                arguments_content: None,
                arguments_redacted: None,
                anomalies: std::mem::take(flags),
                meta: meta.kept,
                parent: Some(parent),
                at,
                task_leg: true,
                surface: None,
            });
        }
        if method != "tools/call" {
            return None;
        }
        if !params.is_object {
            flags.insert(CallAnomaly::ParamsNotAnObject.into());
        }
        let tool_name = tool_name(params.name, flags);
        let digest = arguments.unwrap_or_else(no_arguments);
        let kept = self.setup.store_args || self.setup.cleartext.names(&tool_name);
        let left = params.arguments.filter(|_| kept).map(|arguments| self.left(m, Side::Arguments, arguments, flags));
        let mut stored = None;
        if let Some(arguments) = params.arguments.filter(|_| self.setup.store_args) {
            stored = self.store(m, (Side::Arguments, arguments), left.as_ref(), &digest, invocation, flags, big);
        }
        let arguments_redacted = self.redacted(m, &tool_name, params.arguments, left.as_ref(), flags);
        let arguments_hash = digest.to_string();
        let parent = if params.input_responses.is_some() || params.request_state.is_some() {
            let state = params.request_state.map(canon::sha256_hex);
            let keys = params.input_responses.map(envelope::member_names).unwrap_or_default();
            self.table.leg_before(state.as_deref(), &tool_name, &arguments_hash, &keys)
        } else {
            None
        };
        Some(Call {
            tool_name,
            arguments_hash,
            arguments_content: stored,
            arguments_redacted,
            anomalies: std::mem::take(flags),
            meta: meta.kept,
            parent,
            at,
            task_leg: false,
            surface: None,
        })
    }

    /// What is kept of the arguments, field by field.
    fn redacted(
        &self,
        m: &Message<'_>,
        tool: &str,
        arguments: Option<&[u8]>,
        left: Option<&Left>,
        flags: &mut BTreeSet<Word<CallAnomaly>>,
    ) -> Option<Box<RawValue>> {
        let (arguments, limit) = (arguments.unwrap_or(b"{}"), self.setup.store_limit);
        if matches!(left, Some(Left::Nothing)) {
            return None;
        }
        if self.setup.cleartext.names(tool) && (m.page.is_some() || arguments.len() > limit) {
            flags.insert(CallAnomaly::CleartextNotKept.into());
            return None;
        }
        self.setup.cleartext.redact(tool, arguments, left.and_then(Left::part), limit, flags)
    }

    /// What rules leave of a content that is to be kept; what they took out, or that they could not, goes into `flags`.
    pub(super) fn left(
        &self,
        m: &Message<'_>,
        side: Side,
        value: &[u8],
        flags: &mut BTreeSet<Word<CallAnomaly>>,
    ) -> Left {
        // What is larger goes to the investigation log as it crossed.
        let fits = m.page.is_none() && value.len() <= self.setup.store_limit;
        Left::of(self.setup.redact.as_deref(), side, value, fits, flags)
    }

    /// Puts what is left of a payload into the investigation log, and returns it in canonical form if a pack can hold it.
    #[expect(clippy::too_many_arguments, reason = "one payload, all of it known here")]
    pub(super) fn store(
        &mut self,
        m: &Message<'_>,
        (side, value): (Side, &[u8]),
        left: Option<&Left>,
        digest: &Digest,
        invocation: InvocationId,
        flags: &mut BTreeSet<Word<CallAnomaly>>,
        big: &mut Vec<BigPayload>,
    ) -> Option<Box<RawValue>> {
        let value = left.map_or(Some(value), |left| left.to_keep(value))?;
        let kind = side.as_str();
        let canonical = matches!(digest, Digest::Jcs(_));
        let at = self.clock.wall(m.read_ns);
        let member = if canonical { "content" } else { "raw_base64" };
        let head = format!(
            "{{\"at\":\"{at}\",\"direction\":\"{}\",\"hash\":\"{digest}\",\"invocation_id\":\"{invocation}\",\"kind\":\"{kind}\",\"{member}\":",
            m.direction().as_str()
        );
        if m.page.is_some() || value.len() > self.setup.store_limit {
            flags.insert(CallAnomaly::ContentInInvestigationLog.into());
            let start = (value.as_ptr() as usize).wrapping_sub(m.bytes.as_ptr() as usize);
            if start + value.len() <= m.bytes.len() {
                big.push(BigPayload { head: head.into_bytes(), value: start..start + value.len(), canonical });
            }
            return None;
        }
        let log = &mut self.lines.investigation;
        log.extend_from_slice(head.as_bytes());
        let start = log.len();
        let written = canonical && canon::canonicalize_to(value, &mut |part| log.extend_from_slice(part)).is_ok();
        let text = &log[start..];
        let packs = written && text.len() <= self.setup.store_limit && content::packable(text);
        let packed = packs.then(|| String::from_utf8(text.to_vec()).ok()).flatten();
        let packed = packed.and_then(|t| RawValue::from_string(t).ok());
        if !written {
            use base64::Engine as _;
            log.truncate(start);
            log.push(b'"');
            log.extend_from_slice(base64::engine::general_purpose::STANDARD.encode(value).as_bytes());
            log.push(b'"');
        }
        log.extend_from_slice(b"}\n");
        if packed.is_none() {
            flags.insert(CallAnomaly::ContentInInvestigationLog.into());
        }
        packed
    }

    pub(super) fn notification(
        &mut self,
        m: &Message<'_>,
        e: &Envelope<'_>,
        index: Option<usize>,
        mut flags: BTreeSet<Word<CallAnomaly>>,
        big: &mut Vec<BigPayload>,
    ) {
        let params = Params::of(e);
        let raw_method = e.method.as_deref().unwrap_or_default();
        if raw_method == "tools/call" {
            // A server may well execute it: it gets a receipt, and there is no response to wait for.
            flags.insert(CallAnomaly::NotificationCall.into());
            self.request(m, e, index, flags, big);
            return;
        }
        if m.is_blocked() || m.undecided {
            self.blocked_message(m, e);
            return;
        }
        let cancelled = if raw_method == "notifications/cancelled" {
            let key = params.request_id.map(IdKey::of);
            key.and_then(|key| {
                let here = self.table.cancel(m.scope(m.direction()), &key);
                here.or_else(|| {
                    if m.may_answer_elsewhere(Direction::ClientToServer) {
                        self.table.cancel_elsewhere(&key)
                    } else {
                        None
                    }
                })
            })
        } else if raw_method.ends_with("/list_changed") {
            self.surface.notified(raw_method);
            self.grow_stale(raw_method);
            None
        } else {
            return;
        };
        let wire = wire_of(m);
        let rpc_id = content::evidence_id(params.request_id, &mut flags);
        let method = envelope::short(raw_method);
        self.event(Entry {
            at: self.clock.wall(m.read_ns),
            mono_us: self.mono_us(m.read_ns),
            direction: Some(m.direction()),
            method: Some(&method),
            rpc_id: params.request_id.is_some().then_some(&rpc_id),
            invocation: cancelled,
            wire: Some(&wire),
            detail: Detail::Notification(detail::Seen {
                exchange: self.exchange_of(m.place),
                offset: m.place.offset,
                reason: None,
            }),
        });
    }
}

/// What the policy judges of a request: tool calls, and the other methods that are reviewed (docs/guard.md).
fn subject<'a>(
    method: &'a str,
    tool: &'a str,
    direction: Direction,
    e: &Envelope<'a>,
    params: &Params<'a>,
) -> Option<Subject<'a>> {
    let reviewed = Reviewed::of(direction).find(|reviewed| reviewed.method == method)?;
    Some(match reviewed.method {
        envelope::TOOLS_CALL => Subject { tool, arguments: params.arguments },
        _ => Subject { tool: method, arguments: e.params.clone().map(|r| &e.bytes[r]) },
    })
}

/// What a call without arguments is hashed as.
fn no_arguments() -> Digest {
    Digest::Jcs(canon::sha256(b"{}"))
}

/// Hashes of a message and of the value that is in it at `range` of its envelope; what makes that ambiguous goes into
/// `flags`.
pub(super) fn digests(
    m: &Message<'_>,
    e: &Envelope<'_>,
    range: Range<usize>,
    flags: &mut BTreeSet<Word<CallAnomaly>>,
) -> (Wire, Digest) {
    let value = &e.bytes[range.clone()];
    // The envelope has been scanned: a value inside it is JSON.
    let not_json = || Digest::Raw(canon::sha256(value), canon::Anomalies::default());
    let whole = m.sha256.get().map_or(m.bytes, |_| &[]);
    let digest = match canon::digest_in(e.bytes, &e.indexed, range, whole, e.page, m.rest) {
        Ok((digest, of_whole)) => {
            m.sha256.get_or_init(|| of_whole);
            digest
        }
        Err(_) => not_json(),
    };
    if let Digest::Raw(_, anomalies) = &digest {
        flags.extend(envelope::words(*anomalies));
    }
    (wire_of(m), digest)
}

fn tool_name(raw: Option<&[u8]>, flags: &mut BTreeSet<Word<CallAnomaly>>) -> String {
    let Some(raw) = raw else {
        flags.insert(CallAnomaly::ToolNameMissing.into());
        return String::new();
    };
    let name = envelope::name_of(raw);
    let (text, changed) = content::receipt_text(&name);
    if changed || raw.len() > 8 * content::MAX_NAME || canon::decode_string(raw).is_none() {
        flags.insert(CallAnomaly::ToolNameNotVerbatim.into());
    }
    text.into_owned()
}
