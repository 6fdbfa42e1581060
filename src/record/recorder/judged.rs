//! The server's surface against what was decided about it: which decisions are in force, what was announced, what differs,
//! and under which definition each call ran.

use super::Recorder;
use crate::{
    model::{
        Detail, InvocationId, PolicyReason, Word,
        event::{EventHead, detail},
        said::Said,
        surface::{Announced, Difference, Facet, Outcome, Standing, Stands, Told, pinned_name},
    },
    record::{chain::Entry, surface::Heard},
    surface::{
        diff::{against, changes, changes_hash, worst},
        feed::{Pinned, SurfaceFeed},
    },
};
use std::{collections::BTreeSet, sync::Arc};

/// A session that is compared with decisions.
pub(super) struct Judged {
    feed: Arc<SurfaceFeed>,
    /// Which of the feed's decisions are in force here.
    number: u64,
    pinned: Arc<Pinned>,
    /// The last decisions that could be read: what the pack has.
    kept: Option<Arc<Pinned>>,
    standing: Standing,
    told: Told,
    /// Digest of the differences that were said last.
    said: Option<String>,
    /// How often something was announced that is not approved.
    drifts: u64,
    /// The chain says which decisions are in force.
    is_said: bool,
    /// Lists that the server said had changed, and that this client was not told again.
    stale: BTreeSet<Facet>,
}

impl Judged {
    pub(super) fn new(feed: Arc<SurfaceFeed>) -> Self {
        let (number, pinned) = (feed.number(), feed.now());
        let standing = feed.standing(&pinned);
        let kept = Some(pinned.clone()).filter(|pinned| pinned.error.is_none());
        Self {
            feed,
            number,
            pinned,
            kept,
            standing,
            told: Told::default(),
            said: None,
            drifts: 0,
            is_said: false,
            stale: BTreeSet::new(),
        }
    }

    fn take(&mut self, pinned: Arc<Pinned>) {
        self.standing = self.feed.standing(&pinned);
        self.is_said = true;
        if pinned.error.is_none() {
            self.kept = Some(pinned.clone());
        }
        self.pinned = pinned;
    }

    fn decision(&self) -> detail::SurfaceDecision {
        detail::SurfaceDecision {
            approvals: self.pinned.lines,
            error: self.pinned.error.clone(),
            first: self.feed.first(),
            last: self.pinned.last().map(str::to_owned),
            mode: self.feed.mode(),
            pinned: self.feed.pinned(),
            rules_hash: self.feed.rules().hash(),
            sha256: self.pinned.sha256(),
        }
    }

    fn observed(&self, facet: Facet, new: &[Announced], gone: Vec<String>, whole: bool) -> detail::SurfaceObserved {
        let item = |a: &Announced| detail::ObservedItem {
            approval_id: Told::rests_on(&self.standing, facet, a),
            hash: a.hash.clone(),
            name: a.name.clone(),
            state: self.told.judge(&self.standing, facet, a),
        };
        detail::SurfaceObserved {
            age_ms: 0,
            context: crate::model::surface::Context::default(),
            facet,
            gone,
            items: new.iter().map(item).collect(),
            root: self.told.root().map(str::to_owned),
            whole,
        }
    }
}

impl Recorder {
    /// The decisions in force as far as they could be read, if this session is compared with any.
    #[must_use]
    pub fn pinned(&self) -> Option<Arc<Pinned>> {
        self.judged.as_ref().and_then(|judged| judged.kept.clone())
    }

    /// How often something was announced that is not approved.
    #[must_use]
    pub fn drifts(&self) -> u64 {
        self.judged.as_ref().map_or(0, |judged| judged.drifts)
    }

    fn surface_event(&mut self, detail: Detail, invocation: Option<InvocationId>, ns: u64) {
        let mono_us = self.mono_us(ns);
        self.event(Entry {
            at: self.clock.wall(ns),
            mono_us,
            direction: None,
            method: None,
            rpc_id: None,
            invocation,
            wire: None,
            detail,
        });
    }

    /// Says which decisions are in force when the session begins.
    pub(super) fn say_first_decisions(&mut self) {
        let Some(judged) = &self.judged else { return };
        let detail = Detail::SurfaceDecision(judged.decision());
        self.surface_event(detail, None, self.started_ns);
    }

    /// Takes up decisions that were made meanwhile.
    pub fn look_at_decisions(&mut self, now_ns: u64) {
        let Some(judged) = self.judged.as_mut().filter(|judged| judged.feed.number() != judged.number) else { return };
        judged.number = judged.feed.number();
        let now = judged.feed.now();
        let same =
            (now.lines, &now.error, &now.bytes) == (judged.pinned.lines, &judged.pinned.error, &judged.pinned.bytes);
        judged.take(now);
        if same {
            return;
        }
        let detail = Detail::SurfaceDecision(judged.decision());
        self.last_ns = self.last_ns.max(now_ns);
        self.surface_event(detail, None, now_ns);
        self.say_drift(now_ns);
    }

    /// Says what an answer announced. It comes before the event of the answer itself: after a crash the answer is read
    /// again unless that is on disk.
    pub(super) fn say_heard(&mut self, invocation: Option<InvocationId>, ns: u64) {
        let heard = self.surface.take_heard();
        if self.judged.is_none() || heard.is_empty() {
            return;
        }
        let root = self.root();
        let (context, at_us) = (self.surface.context().clone(), self.mono_us(ns));
        for Heard { facet, items, whole } in heard {
            let Some(judged) = self.judged.as_mut().filter(|judged| judged.standing.pinned.contains(&facet)) else {
                continue;
            };
            let (new, gone) = judged.told.news(facet, &items, whole);
            let at_us = i64::try_from(at_us).unwrap_or(i64::MAX);
            judged.told.hear(&judged.standing, facet, (&new, &gone, whole), root.as_deref(), at_us);
            if whole {
                judged.stale.remove(&facet);
            }
            let detail =
                detail::SurfaceObserved { context: context.clone(), ..judged.observed(facet, &new, gone, whole) };
            self.surface_event(Detail::SurfaceObserved(detail), invocation, ns);
        }
        self.offer();
        self.say_drift(ns);
    }

    /// The root of what was observed; `None` while that is not all.
    fn root(&self) -> Option<String> {
        let seen = self.surface.snapshot(&self.identity)?;
        seen.root().ok().map(|root| root.to_string())
    }

    /// The first whole surface of a server about which nothing is decided becomes what later ones are compared with.
    fn offer(&self) {
        let Some(judged) = self.judged.as_ref().filter(|j| !j.pinned.is_any() && !self.recovering) else { return };
        let seen = self.surface.snapshot(&self.identity);
        if let Some(seen) = seen.filter(|seen| seen.root().is_ok() && seen.surface.ambiguous().is_empty()) {
            judged.feed.offer(seen);
        }
    }

    /// Says how what was announced differs from what is approved, if that was not said yet.
    fn say_drift(&mut self, ns: u64) {
        let Some(judged) = self.judged.as_ref().filter(|j| j.pinned.lines > 0 && j.pinned.error.is_none()) else {
            return;
        };
        let Some(seen) = self.surface.snapshot(&self.identity) else { return };
        let Outcome::Changed(all) = against(&judged.pinned.approved, &seen, judged.feed.rules()) else { return };
        // Of a part about which nothing is decided, what is seen first is no drift.
        let tolerated = |d: &Difference| judged.feed.rules().tolerates(d.kind);
        let counts = |d: &&Difference| d.facet.is_none_or(|f| judged.standing.in_force.is_decided(f)) && !tolerated(d);
        let all: Vec<&Difference> = all.iter().filter(counts).collect();
        let own: Vec<Difference> = all.iter().map(|d| (*d).clone()).collect();
        let Some(severity) = worst(&own) else { return };
        let hash = changes_hash(&all);
        if hash == judged.said {
            return;
        }
        let new_context = all.iter().all(|d| d.new_context);
        let detail = detail::SurfaceDrift {
            changes: changes(&all),
            changes_hash: hash.clone(),
            count: all.len() as u64,
            new_context,
            root: seen.root().ok().map(|root| root.to_string()),
            severity,
        };
        if let Some(judged) = &mut self.judged {
            judged.said = hash;
            if !new_context {
                judged.drifts += 1;
                judged.feed.doubt();
            }
        }
        self.surface_event(Detail::SurfaceDrift(detail), None, ns);
    }

    /// The server says that a list has changed.
    pub(super) fn grow_stale(&mut self, method: &str) {
        if let Some(judged) = &mut self.judged {
            let stale = judged.stale.len();
            judged.stale.extend(Facet::made_stale_by(method));
            if judged.stale.len() > stale {
                judged.feed.doubt();
            }
        }
    }

    /// Whether the server said that a list had changed, and this client was not told it again.
    pub(super) fn is_stale(&self, facet: Facet) -> bool {
        self.judged.as_ref().is_some_and(|judged| judged.stale.contains(&facet))
    }

    /// Under which definition a call of this tool runs, that is read at this time.
    pub(super) fn stands(&self, tool: &str, reason: Option<&Word<PolicyReason>>, ns: u64) -> Option<Stands> {
        let judged = self.judged.as_ref()?;
        let at_us = i64::try_from(self.mono_us(ns)).unwrap_or(i64::MAX);
        let name = pinned_name(Facet::Tools, tool);
        Some(judged.told.stands(&judged.standing, Facet::Tools, &name, at_us).refused_for(reason))
    }

    /// The session that follows says once more what its client was told.
    pub(super) fn judge_on(&mut self, before: Option<Judged>, before_started_ns: u64) {
        let Some(mut judged) = before else { return };
        let told = std::mem::take(&mut judged.told);
        let elapsed = self.started_ns.saturating_sub(before_started_ns) / 1000;
        let all: Vec<_> = told.facets(i64::try_from(elapsed).unwrap_or(i64::MAX)).collect();
        let root = told.root().map(str::to_owned);
        judged.said = None;
        self.judged = Some(judged);
        self.restate = all.into_iter().map(|(facet, items, age_ms)| (facet, items, age_ms, root.clone())).collect();
    }

    /// Says it, once the chain has begun.
    pub(super) fn say_restated(&mut self) {
        let context = self.surface.context().clone();
        for (facet, items, age_ms, root) in std::mem::take(&mut self.restate) {
            let Some(judged) = &mut self.judged else { return };
            let at_us = i64::try_from(age_ms).unwrap_or(i64::MAX).saturating_mul(-1000);
            judged.told.hear(&judged.standing, facet, (&items, &[], false), root.as_deref(), at_us);
            let detail = detail::SurfaceObserved {
                age_ms,
                context: context.clone(),
                ..judged.observed(facet, &items, Vec::new(), false)
            };
            self.surface_event(Detail::SurfaceObserved(detail), None, self.started_ns);
        }
    }

    /// Whether the chain says which decisions are in force, or need not.
    pub(super) fn is_compared(&self) -> bool {
        self.judged.as_ref().is_none_or(|judged| judged.is_said)
    }

    pub(super) fn replay_decided(&mut self, d: &detail::SurfaceDecision) {
        let Some(judged) = &mut self.judged else { return };
        let pinned = match &d.error {
            Some(error) => Pinned::unknown(error),
            None => judged.feed.now().first(d.approvals),
        };
        let same = pinned.sha256() == d.sha256 && d.rules_hash == judged.feed.rules().hash();
        judged.take(Arc::new(if same || pinned.error.is_some() {
            pinned
        } else {
            Pinned::unknown("the decisions that were in force are not there any more")
        }));
    }

    pub(super) fn replay_observed(&mut self, e: &EventHead, d: &detail::SurfaceObserved) {
        let Some(judged) = &mut self.judged else { return };
        let new: Vec<Announced> = d.items.iter().map(detail::ObservedItem::announced).collect();
        let age_us = i64::try_from(d.age_ms).unwrap_or(i64::MAX).saturating_mul(1000);
        let at_us = i64::try_from(e.mono_us).unwrap_or(i64::MAX).saturating_sub(age_us);
        judged.told.hear(&judged.standing, d.facet, (&new, &d.gone, d.whole), d.root.as_deref(), at_us);
        if d.whole {
            judged.stale.remove(&d.facet);
        }
    }

    pub(super) fn replay_drift(&mut self, d: &detail::SurfaceDrift) {
        if let Some(judged) = &mut self.judged {
            judged.said.clone_from(&d.changes_hash);
            judged.drifts += u64::from(!d.new_context);
        }
    }

    pub(super) fn forget_told(&mut self) {
        if let Some(judged) = &mut self.judged {
            judged.told = Told::default();
            (judged.said, judged.kept, judged.is_said) = (None, None, false);
        }
    }
}

/// What a receipt says of it; nothing where the session is compared with nothing.
pub(super) fn said<T>(stands: Option<&Stands>, value: impl Fn(&Stands) -> Option<T>) -> Said<T> {
    stands.map_or(Said::Unsaid, |stands| Said::Said(value(stands)))
}
