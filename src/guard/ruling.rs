//! What the guard does with one whole message, whatever the transport.

use super::{
    Refusal, Session,
    inspect::{self, Item, ItemKind, LineBreaks, Reading, Review, ends::Ends},
    refusal::{denied, refused},
    replies::{self, Refused},
};
use crate::{
    model::{Direction, PolicyReason, PolicyVerdict},
    record::judge::{Decision, Judge, Subject},
    sys::clock,
};

/// One whole message, as the carrier found it in its stream.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The direction, and so the sender, of the message.
    pub direction: Direction,
    /// All of it, and nothing else.
    pub text: &'a [u8],
    /// Where line breaks may be in it, if it is the client's.
    pub breaks: LineBreaks,
    /// The recorder will see it.
    pub captured: bool,
}

/// A decision as the record has it, and text that names the sender.
type Worded = (Decision, String);

/// Whether a message passes on, and why.
///
/// It takes effect in this order: where something was [decided](Self::decisions), that is recorded; if it cannot be,
/// [`Ruling::unrecorded`] keeps the message back. Then it is [forwarded](Self::forwarded), or its sender is told the
/// [reply](Self::reply).
#[derive(Debug)]
pub struct Ruling<'a> {
    direction: Direction,
    reading: Reading<'a>,
    /// One for each element of a batch; one for all of it if that is too long; none of a single message that needs none.
    decisions: Vec<Option<Worded>>,
    /// `sha256:` of the one policy that judged all of it.
    policy: Option<String>,
    passes: bool,
}

/// Who waits for an answer to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// The sender of a request in it.
    Request,
    /// Perhaps its sender: it cannot be read well enough.
    Unreadable,
    /// Nobody.
    Nobody,
}

/// Reads a message and decides about it. The judge may wait for a name to be resolved.
pub fn judge_message<'a>(message: Message<'a>, session: &Session) -> Ruling<'a> {
    let Message { direction, text, breaks, captured } = message;
    let reading = match direction {
        Direction::ClientToServer if text.len() > session.max_message() => {
            Reading::One(Ends::of(text).refused(Refusal::TooLarge))
        }
        Direction::ClientToServer => inspect::read(text, breaks),
        Direction::ServerToClient => inspect::server::read(text, &mut |tool| session.names(tool)),
    };
    let (items, in_batch) = (reading.items(), matches!(reading, Reading::Batch(_)));
    let is_asked = items.iter().any(|item| item.review.is_some() && item.refused.is_none());
    let complaint = if is_asked { session.complaint(captured) } else { None };
    let mut decisions = Vec::new();
    let policy = session.with_judge(is_asked && complaint.is_none(), |mut judge| {
        let policy = judge.as_mut().map(|judge| judge.begin());
        for (at, item) in items.iter().enumerate() {
            let index = in_batch.then_some(at);
            let worded = match session.refusal(direction, item, in_batch) {
                Some(refusal) => Some(refused(refusal, index)),
                None => session
                    .surface_refusal(direction, item, index)
                    .or_else(|| review(item, index, judge.as_deref_mut(), complaint.as_deref())),
            };
            // For most messages there is nothing to decide, and nothing to allocate.
            if in_batch || worded.is_some() {
                decisions.push(worded);
            }
        }
        policy
    });
    if let Reading::TooMany(..) = reading {
        decisions.push(Some(refused(Refusal::BadBatch, None)));
    }
    let mut ruling = Ruling { direction, reading, decisions, policy, passes: true };
    if ruling.decisions().any(|decision| decision.verdict == PolicyVerdict::Denied) {
        ruling.block(session);
    }
    ruling
}

/// What the policy says of one element; `None` if nothing has to be decided.
fn review(
    item: &Item<'_>,
    index: Option<usize>,
    judge: Option<&mut (dyn Judge + 'static)>,
    complaint: Option<&str>,
) -> Option<Worded> {
    let Review { tool, arguments } = item.review.as_ref()?;
    let Some(judge) = judge else {
        let (decision, message) = refused(Refusal::RecorderUnavailable, index);
        return Some((decision, complaint.map_or(message, str::to_owned)));
    };
    let (decision, message) = judge.judge(Subject { tool, arguments: *arguments }, clock::mono_ns());
    Some((Decision { index, ..decision }, message))
}

impl<'a> Ruling<'a> {
    /// Refuses a message that is not held whole. Its sender gets the reply when its [ends](Self::refused_by_ends) are
    /// known.
    pub(super) fn refused_unread(direction: Direction, refusal: Refusal, session: &Session) -> Self {
        Self::refused_as(direction, Item::unread(ItemKind::Notification, refusal), session)
    }

    /// Refuses a message of which only the ends are known.
    pub(super) fn refused_by_ends(direction: Direction, refusal: Refusal, ends: Ends<'a>, session: &Session) -> Self {
        Self::refused_as(direction, ends.refused(refusal), session)
    }

    /// Refuses a message that nobody can read.
    pub(super) fn refused_unreadable(direction: Direction, refusal: Refusal, session: &Session) -> Self {
        Self::refused_as(direction, Item::unread(ItemKind::Unreadable, refusal), session)
    }

    /// Refuses a message for something that is not in it.
    pub(super) fn refused_for(
        direction: Direction,
        text: &'a [u8],
        breaks: LineBreaks,
        refusal: Refusal,
        session: &Session,
    ) -> Self {
        let reading = inspect::read(text, breaks);
        let in_batch = matches!(reading, Reading::Batch(_));
        let all = reading.items().len().max(1);
        let decisions = (0..all).map(|at| Some(refused(refusal, in_batch.then_some(at)))).collect();
        Self { direction, reading, decisions, policy: Some(session.policy()), passes: false }
    }

    /// Lets something pass about which nothing has to be decided.
    pub(super) const fn unread(direction: Direction) -> Self {
        Self { direction, reading: Reading::Blank, decisions: Vec::new(), policy: None, passes: true }
    }

    fn refused_as(direction: Direction, item: Item<'a>, session: &Session) -> Self {
        let decisions = item.refused.map(|refusal| Some(refused(refusal, None))).into_iter().collect();
        let policy = Some(session.policy());
        Self { direction, reading: Reading::One(item), decisions, policy, passes: false }
    }

    /// Denies everything in the message, because one element was denied.
    fn block(&mut self, session: &Session) {
        let in_batch = self.is_batch();
        for (at, worded) in self.decisions.iter_mut().enumerate() {
            if worded.as_ref().is_none_or(|(decision, _)| decision.verdict != PolicyVerdict::Denied) {
                let decision = denied(PolicyReason::GuardBatch, "guard.batch", in_batch.then_some(at));
                *worded = Some((decision, "another element of its batch was denied".to_owned()));
            }
        }
        self.policy.get_or_insert_with(|| session.policy());
        self.passes = false;
    }

    /// Blocks the message, because what was decided cannot be recorded.
    pub fn unrecorded(&mut self, session: &Session) {
        let in_batch = self.is_batch();
        let all = self.reading.items().len().max(self.decisions.len());
        self.decisions.resize_with(all, || None);
        for (at, worded) in self.decisions.iter_mut().enumerate() {
            *worded = Some(refused(Refusal::RecorderUnavailable, in_batch.then_some(at)));
        }
        self.block(session);
    }

    /// Notes that it passes on: the requests in it wait for their answers from now on, and what it answers no longer
    /// waits. `exchange` is where it came in, 0 over a transport without these.
    pub fn forwarded(&self, session: &Session, exchange: u64) {
        for item in self.reading.items() {
            session.forwarded(self.direction, item, exchange);
        }
    }

    /// The direction, and so the sender, of the message.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether it passes on.
    #[must_use]
    pub const fn passes(&self) -> bool {
        self.passes
    }

    /// Whether it is not a message, and no reader takes it for one.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        matches!(self.reading, Reading::Blank)
    }

    const fn is_batch(&self) -> bool {
        matches!(self.reading, Reading::Batch(_) | Reading::TooMany(..))
    }

    /// What was decided about it or about its elements; of what is blocked, about each of them. None where nothing
    /// has to be decided.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().flatten().map(|(decision, _)| decision)
    }

    /// Whether anything was decided, which may have taken time.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.decisions.iter().any(Option::is_some)
    }

    /// `sha256:` of the policy in force for it; empty where nothing was decided.
    #[must_use]
    pub fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or_default()
    }

    /// Who waits for an answer.
    pub(super) fn asks(&self) -> Asks {
        let is_there = |kind| self.reading.items().iter().any(|item| item.kind == kind);
        match &self.reading {
            Reading::TooMany(..) => Asks::Request,
            _ if is_there(ItemKind::Request) => Asks::Request,
            _ if is_there(ItemKind::Unreadable) => Asks::Unreadable,
            _ => Asks::Nobody,
        }
    }

    /// The ids of the requests in it, and whether it is a batch.
    pub(super) fn requests(&self) -> (Vec<&'a [u8]>, bool) {
        let requests = self.reading.items().iter().filter(|item| item.kind == ItemKind::Request);
        (requests.filter_map(|item| item.id).collect(), self.is_batch())
    }

    /// The reply to these requests, whose answer it is; `None` if there are none.
    pub(super) fn reply_to<'i>(&self, ids: impl Iterator<Item = &'i [u8]>, in_batch: bool) -> Option<Vec<u8>> {
        let worded = self.denied()?;
        let all: Vec<_> = ids.map(|id| Refused::new(Some(id), worded)).collect();
        replies::denied(&all, self.policy(), in_batch)
    }

    fn denied(&self) -> Option<&Worded> {
        self.decisions.iter().flatten().find(|(decision, _)| decision.verdict == PolicyVerdict::Denied)
    }

    /// Whether it is refused because it is not JSON.
    pub(super) fn is_no_json(&self) -> bool {
        self.denied().is_some_and(|(decision, _)| replies::is_no_json(decision))
    }

    /// The reply to a sender who waits for no answer, with the id `null` or none.
    pub(super) fn reply_to_unknown(&self, null: bool) -> Option<Vec<u8>> {
        replies::unasked(&Refused::new(None, self.denied()?), self.policy(), null)
    }

    /// The JSON reply to its sender about what does not pass; `None` if no answer is waited for.
    #[must_use]
    pub fn reply(&self) -> Option<Vec<u8>> {
        if self.passes {
            return None;
        }
        let decisions = || self.decisions.iter().flatten();
        let all: Vec<_> = match &self.reading {
            Reading::TooMany(ids, all) => {
                let ids = ids.iter().map(|id| Some(*id)).chain((!all).then_some(None));
                ids.zip(decisions().cycle()).map(|(id, worded)| Refused::new(id, worded)).collect()
            }
            reading => {
                // A server gets no reply that it cannot tell from others.
                let waits = |item: &Item<'_>| match item.kind {
                    ItemKind::Request => true,
                    ItemKind::Unreadable => self.direction == Direction::ClientToServer,
                    ItemKind::Notification | ItemKind::Response => false,
                };
                let of_each = reading.items().iter().zip(decisions());
                of_each.filter(|(item, _)| waits(item)).map(|(item, worded)| Refused::new(item.id, worded)).collect()
            }
        };
        replies::denied(&all, self.policy(), self.is_batch())
    }
}
