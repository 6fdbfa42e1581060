//! Verdicts: what a guard decided, or what the policy would have said in audit, on their way into events and receipts.

use super::{Clock, Message, Recorder, wire_of};
use crate::{
    model::{Detail, Direction, InvocationId, PolicyReason, PolicyVerdict, RpcId, WallTime, event::detail},
    record::{
        chain::Entry,
        content,
        correlate::{Pending, RequestDecision},
        envelope::{self, Envelope, Reviewed},
        judge::{Decision, Judge, Subject},
        rulings::RulingRecord,
        stream::MessagePlace,
    },
};
use std::collections::BTreeSet;

impl Recorder {
    /// Has the policy judge a message that passes in any case.
    pub fn set_judge(&mut self, judge: Box<dyn Judge>) {
        self.judge = Some(judge);
    }

    /// The policy in force when the session began. A session that follows another one in the same process may begin
    /// with another policy than the process did.
    pub fn set_policy(&mut self, sha256: Option<String>) {
        self.policy = sha256;
    }

    /// Messages that the policy rejects, enforced or not.
    #[must_use]
    pub const fn violations(&self) -> u64 {
        self.violations
    }

    /// The policy file was read again.
    pub fn reloaded(&mut self, reload: detail::PolicyReload, now_ns: u64) {
        self.last_ns = self.last_ns.max(now_ns);
        self.plain_event((self.clock.wall(now_ns), now_ns), Detail::PolicyReloaded(reload));
    }

    /// What was decided about a request, or is to be said of it; `None` where nobody judges it.
    pub(super) fn decide(
        &mut self,
        m: &Message<'_>,
        index: Option<usize>,
        subject: Option<Subject<'_>>,
    ) -> Option<RequestDecision> {
        if let Some(ruling) = m.ruling {
            return decision_of(ruling, index, &self.clock);
        }
        let judge = self.judge.as_mut().filter(|_| !m.undecided)?;
        let subject = subject?;
        let policy = judge.begin();
        let if_named = Reviewed::of(m.direction()).any(|r| r.if_named && r.method == subject.tool);
        if if_named && !judge.names(subject.tool) {
            return None;
        }
        let (decision, _) = judge.judge(subject, m.read_ns);
        let at_ns = crate::sys::clock::mono_ns().max(m.read_ns);
        Some(RequestDecision::of(&decision, policy, (at_ns, self.clock.wall(at_ns)), false, false))
    }

    /// Puts a decision into the chain.
    pub(super) fn decision_event(&mut self, invocation: InvocationId, decision: &RequestDecision, place: MessagePlace) {
        let Some(said_of) = self.table.get(invocation).map(|p| (p.method.clone(), p.rpc_id.clone())) else { return };
        self.decision_said(invocation, decision, place, said_of);
    }

    /// Puts a decision into the chain, of a request that is not in the table any more.
    pub(super) fn decision_of(&mut self, pending: &Pending, decision: &RequestDecision) {
        let said_of = (pending.method.clone(), pending.rpc_id.clone());
        self.decision_said(pending.invocation, decision, pending.place, said_of);
    }

    fn decision_said(
        &mut self,
        invocation: InvocationId,
        decision: &RequestDecision,
        place: MessagePlace,
        (method, rpc_id): (String, RpcId),
    ) {
        self.last_ns = self.last_ns.max(decision.at_ns);
        self.violations += u64::from(decision.verdict == PolicyVerdict::Denied);
        let short = |text: &str| envelope::short(text);
        let detail = detail::PolicyDecision {
            enforced: decision.enforced,
            exchange: self.exchange_of(place),
            offset: place.offset,
            policy_hash: decision.policy_hash.clone(),
            reason: envelope::short_word(&decision.reason),
            rule: decision.rule.as_deref().map(short),
            unseen: decision.unseen.clone(),
            verdict: decision.verdict,
        };
        self.event(Entry {
            at: decision.at,
            mono_us: self.mono_us(decision.at_ns),
            direction: Some(place.direction()),
            method: Some(&method),
            rpc_id: Some(&rpc_id),
            invocation: Some(invocation),
            wire: None,
            detail: Detail::PolicyDecision(detail),
        });
    }

    /// A message that is not a request and was not passed on.
    pub(super) fn blocked_message(&mut self, m: &Message<'_>, e: &Envelope<'_>) {
        self.violations += u64::from(m.is_blocked() && m.direction() == Direction::ClientToServer);
        let wire = wire_of(m);
        let rpc_id = content::evidence_id(e.id, &mut BTreeSet::new());
        let method = e.method.as_deref().map(envelope::short);
        let reason = m.ruling.map_or(PolicyReason::NotDecided.into(), RulingRecord::why);
        self.event(Entry {
            at: self.clock.wall(m.read_ns),
            mono_us: self.mono_us(m.read_ns),
            direction: Some(m.direction()),
            method: method.as_deref(),
            rpc_id: e.id.is_some().then_some(&rpc_id),
            invocation: None,
            wire: Some(&wire),
            detail: Detail::RequestBlocked(detail::Blocked {
                exchange: self.exchange_of(m.place),
                offset: m.place.offset,
                reason: envelope::short_word(&reason),
                receipt_id: None,
                receipt_sha256: None,
            }),
        });
    }

    /// The first event of this message is on disk already; the others may not be.
    pub(super) fn catch_up(&mut self, m: &Message<'_>) {
        self.recall(m);
        let Some(ruling) = m.ruling else { return };
        for decision in &ruling.decisions {
            self.catch_up_one(m, ruling, decision.index);
        }
    }

    pub(super) fn catch_up_one(&mut self, m: &Message<'_>, ruling: &RulingRecord, index: Option<usize>) {
        let invocation = self.invocation(m, index);
        let decision = decision_of(ruling, index, &self.clock);
        let (Some(pending), Some(mut decision)) = (self.table.get_mut(invocation), decision) else { return };
        let missing = pending.decision.is_none();
        let blocked = decision.blocked;
        if let Some(there) = pending.decision.take() {
            // Its event is there, with its times.
            (decision.at_ns, decision.at) = (there.at_ns, there.at);
        }
        pending.decision = Some(Box::new(decision.clone()));
        if missing {
            self.decision_event(invocation, &decision, m.place);
        }
        if blocked {
            self.awaiting.forget(Some(invocation), false);
            self.close(invocation);
        }
    }
}

fn decision_of(ruling: &RulingRecord, index: Option<usize>, clock: &Clock) -> Option<RequestDecision> {
    let of_it = ruling.of(index)?;
    let policy = ruling.policy.clone();
    let reason_of_all = of_it.index != index;
    let when = (ruling.ns, clock.wall(ruling.ns));
    let mut decision = RequestDecision::of(of_it, policy, when, true, ruling.blocked);
    if ruling.blocked && (reason_of_all || of_it.verdict != PolicyVerdict::Denied) {
        // Alone it might have passed; it was blocked with the rest of its message.
        decision.verdict = PolicyVerdict::Denied;
        decision.reason = PolicyReason::GuardBatch.into();
        decision.rule = Some("guard.batch".to_owned());
    }
    Some(decision)
}

impl RequestDecision {
    fn of(decision: &Decision, policy: String, (at_ns, at): (u64, WallTime), enforced: bool, blocked: bool) -> Self {
        Self {
            verdict: decision.verdict,
            reason: decision.reason.clone(),
            rule: decision.rule.clone(),
            unseen: decision.unseen.clone(),
            policy_hash: Some(policy).filter(|p| !p.is_empty()),
            at_ns,
            at,
            enforced,
            blocked,
        }
    }
}
