//! The life of one call: asked for, judged, started, done.

use super::{
    memory::Leg,
    outcome::{Outcome, schema_of, with_outcome},
    recording::{Cut, Facts, Recording, Said, executed, is_http, without_result},
    settings::Judged,
    shared::Shared,
};
use crate::{
    model::{
        ClientSessionId, InvocationId, PolicyReason, PolicyVerdict, RECORDER_VERSION, ReceiptId, ReceiptPrefix,
        SessionId, ToolDenied, ToolRequested, Transport, WallTime, Word,
        line::{member, text},
        receipt::PLAIN_SCHEMA,
        redaction::Side,
        server::{DOTTED, SERVER_SOURCE, TOOL_DENIED, TOOL_REQUESTED},
        words::{CallAnomaly, OutcomeReason},
    },
    record::{
        content,
        envelope::RequestMeta,
        recorder::Step,
        redact::{Anomalies, hash, store},
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of a text that a client says of itself.
const MAX_ACTOR: usize = 256;
/// A call, as the server was asked for it. Values are JSON text: they are hashed as what they mean, whatever their spelling.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// Name of the tool.
    pub tool: &'a str,
    /// The arguments; `None` is hashed as `{}`.
    pub arguments: Option<&'a [u8]>,
    /// JSON-RPC id of the request.
    pub id: Option<&'a [u8]>,
    /// `params._meta`.
    pub meta: Option<&'a [u8]>,
    /// The client as it calls itself.
    pub actor: Option<&'a str>,
    /// Version of MCP that client and server speak.
    pub protocol_version: Option<&'a str>,
    /// How the request came; `None`: as the server was built.
    pub transport: Option<Transport>,
    /// `Mcp-Session-Id` of a request over HTTP. It is a credential, and only its hash is kept.
    pub session: Option<&'a str>,
    /// `requestState`, by which a call that asked for more input goes on.
    pub request_state: Option<&'a str>,
}

/// A call that must not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// What the client is told.
    pub message: String,
    /// The rule that matched, or `recorder_unavailable`.
    pub rule: String,
    /// `sha256:` of the policy; `None` if the call cannot be recorded.
    pub policy_hash: Option<String>,
    /// The receipt that says so; `None` if the call was not recorded.
    pub receipt: Option<ReceiptId>,
}

/// A call that is recorded.
struct Recorded {
    shared: Arc<Shared>,
    recording: Arc<Recording>,
    facts: Arc<Facts>,
}

/// A call that was asked for, and is not judged yet.
#[must_use = "a call that is neither judged nor run stays open in the evidence"]
pub struct Pending {
    shared: Arc<Shared>,
    call: Option<Recorded>,
    tool: String,
    arguments: Vec<u8>,
    said: Said,
}

/// A call that may run.
#[must_use = "dropping it records that the handler was dropped"]
pub struct Running {
    call: Option<Recorded>,
    judged: Option<Judged>,
    decision: Option<ReceiptId>,
    started: Option<Instant>,
    took: Option<Duration>,
    cancelled: bool,
}

pub(super) fn request(shared: &Arc<Shared>, r: &Request<'_>) -> Pending {
    let arguments = r.arguments.unwrap_or(b"{}");
    let mut pending = Pending {
        shared: shared.clone(),
        call: None,
        tool: r.tool.to_owned(),
        arguments: arguments.to_owned(),
        said: Said::Lost,
    };
    let mut flags = Anomalies::new();
    let arguments_hash = hash(arguments, &mut flags);
    let s = &shared.settings;
    let (tool_name, changed) = content::receipt_text(r.tool);
    if changed {
        flags.insert(CallAnomaly::ToolNameNotVerbatim.into());
    }
    let meta = RequestMeta::of(r.meta);
    if meta.dropped {
        flags.insert(CallAnomaly::MetaNotKept.into());
    }
    let rpc_id = content::evidence_id(r.id, &mut flags);
    let is_kept = s.store_arguments || s.cleartext.names(r.tool);
    let left = s.left(is_kept, Side::Arguments, arguments, &mut flags);
    let to_keep = left.to_keep(arguments);
    let arguments_content =
        to_keep.filter(|_| s.store_arguments).and_then(|value| store(value, s.store_limit, &mut flags));
    let arguments_redacted =
        to_keep.and_then(|_| s.cleartext.redact(r.tool, arguments, left.part(), s.store_limit, &mut flags));
    let schema_version = schema_of(arguments_content.is_some(), &flags, Side::Arguments);
    let transport = r.transport.unwrap_or(s.transport);
    let Some(recording) = shared.recording() else { return pending };
    let call = recording.number();
    let session = match (r.session, is_http(transport)) {
        (None, true) => None,
        (session, _) => Some(ClientSessionId::of_session(recording.id, session)),
    };
    let invocation = InvocationId::of_call(recording.id, call);
    let facts = Arc::new(Facts {
        call,
        invocation,
        tool: tool_name.into_owned(),
        arguments_hash,
        session: session.map(ClientSessionId::bits),
    });
    let actor = r.actor.or(meta.client.as_ref().map(|c| c.name.as_str()));
    let short = |text: &str| content::receipt_text(&text[..text.floor_char_boundary(MAX_ACTOR)]).0.into_owned();
    let receipt = ToolRequested {
        actor: actor.map(short),
        anomalies: flags.into_iter().collect(),
        arguments_content,
        arguments_hash: facts.arguments_hash.clone(),
        arguments_redacted,
        integration_source: SERVER_SOURCE.to_owned(),
        invocation_id: invocation,
        mcp_request_id: rpc_id,
        meta: meta.kept,
        parent_receipt_id: r.request_state.and_then(|state| shared.memory().leg(recording.id, state, &facts)),
        protocol_version: r.protocol_version.map(short).or(meta.protocol_version),
        receipt_id: ReceiptId::of(ReceiptPrefix::Requested, invocation.bits()),
        recorder_version: RECORDER_VERSION.to_owned(),
        schema_version,
        seq: 0,
        server_id: s.server_id.clone(),
        server_transport: transport.as_str().to_owned(),
        session_id: session,
        timestamp: WallTime::from_millis(0),
        tool_name: facts.tool.clone(),
        trace_id: SessionId::from_bits(0),
        r#type: s.kind(TOOL_REQUESTED, DOTTED[0]),
    };
    recording.begin(facts.clone());
    shared.count_requested();
    pending.said = recording.say(call, Step::Requested(Box::new(receipt)));
    let call = Recorded { shared: shared.clone(), recording, facts };
    if pending.said == Said::Lost {
        // No outcome may follow what is not in the evidence.
        call.recording.settle(call.facts.call);
        shared.call_is_over(&call.recording);
    } else {
        pending.call = Some(call);
    }
    pending
}

impl Pending {
    /// The id of the call; `None` if it is not recorded.
    #[must_use]
    pub fn invocation(&self) -> Option<InvocationId> {
        self.call.as_ref().map(|call| call.facts.invocation)
    }

    /// Whether the call may run. What the policy has to look up may take a moment: this blocks.
    ///
    /// # Errors
    /// [`Denied`]: its receipt is written; nothing may run.
    pub fn judge(self) -> Result<Running, Denied> {
        let settings = self.shared.settings.clone();
        if settings.require_evidence && self.said != Said::Written {
            return Err(self.unavailable());
        }
        let judged = settings.judge(&self.tool, &self.arguments);
        let (judged, text) = judged.map_or((None, String::new()), |(judged, text)| (Some(judged), text));
        if let Some(judged) = &judged
            && judged.decision.verdict == PolicyVerdict::Denied
            && settings.enforces()
        {
            let policy_hash = Some(judged.policy_hash.clone());
            let decision = &judged.decision;
            let receipt = self.deny(&text, decision.reason.clone(), decision.rule.clone(), policy_hash.clone());
            let rule = decision.rule.clone().unwrap_or_else(|| decision.reason.to_string());
            return Err(Denied { message: format!("denied by policy: {text}"), rule, policy_hash, receipt });
        }
        let mut decision = None;
        if let Some(call) = &self.call {
            decision = call.shared.memory().denial(call.recording.id, &call.facts);
            call.recording.judged(call.facts.call, judged.clone());
        }
        Ok(Running { call: self.call, judged, decision, started: None, took: None, cancelled: false })
    }

    fn unavailable(self) -> Denied {
        let message = "this server refuses calls that it cannot record, and its recorder is not available".to_owned();
        let reason = PolicyReason::RecorderUnavailable;
        let receipt = self.deny(&message, reason.into(), Some(reason.as_str().to_owned()), None);
        Denied { message, rule: reason.as_str().to_owned(), policy_hash: None, receipt }
    }

    fn deny(
        &self,
        text: &str,
        policy_reason: Word<PolicyReason>,
        policy_ref: Option<String>,
        policy_hash: Option<String>,
    ) -> Option<ReceiptId> {
        let Recorded { shared, recording, facts } = self.call.as_ref()?;
        let id = ReceiptId::of(ReceiptPrefix::Denied, facts.invocation.bits());
        let receipt = ToolDenied {
            anomalies: Vec::new(),
            arguments_hash: facts.arguments_hash.clone(),
            denial_reason: content::receipt_text(text).0.into_owned(),
            denied: true,
            integration_source: SERVER_SOURCE.to_owned(),
            invocation_id: facts.invocation,
            policy_hash,
            policy_reason,
            policy_ref,
            receipt_id: id,
            recorder_version: RECORDER_VERSION.to_owned(),
            request_receipt_id: ReceiptId::of(ReceiptPrefix::Requested, facts.invocation.bits()),
            schema_version: PLAIN_SCHEMA.to_owned(),
            seq: 0,
            server_id: shared.settings.server_id.clone(),
            timestamp: WallTime::from_millis(0),
            tool_name: facts.tool.clone(),
            trace_id: SessionId::from_bits(0),
            r#type: shared.settings.kind(TOOL_DENIED, DOTTED[1]),
        };
        let mut said = Said::Lost;
        if recording.settle(facts.call) {
            said = recording.say(facts.call, Step::Denied(Box::new(receipt)));
            shared.memory().denied(recording.id, facts, id);
            shared.count_settled();
        }
        shared.call_is_over(recording);
        said.is_kept().then_some(id)
    }
}

impl Running {
    /// The handler begins: its time runs from here.
    pub fn start(&mut self) {
        self.started = Some(Instant::now());
    }

    /// The handler is done: its time ends here, not where [`finish`](Self::finish) is called.
    pub fn stop(&mut self) {
        self.took = Some(self.took());
    }

    /// The client cancelled the call; its handler may still run.
    pub const fn cancelled(&mut self) {
        self.cancelled = true;
    }

    /// The handler is done. The receipt that says so; `None` if the call is not recorded, its receipt is counted as missed,
    /// or the recording was closed before.
    pub fn finish(mut self, outcome: Outcome<'_>) -> Option<ReceiptId> {
        let took = self.took();
        let Recorded { shared, recording, facts } = self.call.take()?;
        let mut flags = Anomalies::new();
        let mut receipt = executed(&shared.settings, &facts, self.judged.as_ref());
        flags.extend(receipt.anomalies.drain(..));
        if self.cancelled {
            flags.insert(CallAnomaly::CancelledByClient.into());
        }
        receipt.decision_receipt_id = self.decision;
        receipt.duration_ms = Some(super::millis(took));
        with_outcome(&shared.settings, &facts, outcome, &mut receipt, &mut flags);
        receipt.anomalies = flags.into_iter().collect();
        let id = receipt.receipt_id;
        if let Outcome::Result(json) = outcome {
            let of = |name| text(member(json, name)).map(std::borrow::Cow::into_owned);
            let leg = Leg { recording: Arc::downgrade(&recording), facts: facts.clone(), receipt: id };
            match receipt.result_type.as_deref() {
                Some("input_required") => shared.memory().asks(of("requestState"), &leg),
                Some("task") => {
                    let task = member(json, "task").and_then(|task| text(member(task, "taskId"))).map(Into::into);
                    shared.memory().task(of("taskId").or(task), leg);
                }
                _ => {}
            }
        }
        let mut said = Said::Lost;
        if recording.settle(facts.call) {
            said = recording.say(facts.call, Step::Executed(Box::new(receipt)));
            shared.count_settled();
        }
        shared.call_is_over(&recording);
        said.is_kept().then_some(id)
    }

    fn took(&self) -> Duration {
        self.took.unwrap_or_else(|| self.started.map_or(Duration::ZERO, |started| started.elapsed()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let took = self.took();
        let Some(Recorded { shared, recording, facts }) = self.call.take() else { return };
        let cut = if std::thread::panicking() {
            Cut { reason: OutcomeReason::HandlerPanicked, error: "panicked" }
        } else {
            Cut { reason: OutcomeReason::HandlerDropped, error: "dropped" }
        };
        if recording.settle(facts.call) {
            let mut receipt = without_result(&shared.settings, &facts, self.judged.as_ref(), took, &cut, self.decision);
            if self.cancelled {
                receipt.anomalies.push(CallAnomaly::CancelledByClient.into());
                receipt.anomalies.sort();
            }
            recording.say(facts.call, Step::Executed(Box::new(receipt)));
            shared.count_settled();
        }
        shared.call_is_over(&recording);
    }
}
