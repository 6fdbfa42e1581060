//! The client's stream: what a client says is held until it was judged.

use super::{
    Judge, Shared,
    held::{Ends, Finder, rest_of_line},
    inspect::{self, Item, Reading, Refusal, Review, Shape},
    judgement, refused, replies,
};
use crate::{
    model::{Direction, PolicyVerdict},
    record::judgement::{Ruled, Subject},
    relay::{
        Producer,
        stdio::{Decider, Decision, Desk, Held, Inserts},
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The stream that is judged here.
const DIRECTION: Direction = Direction::ClientToServer;
/// What was approved is passed on after so long, before more is looked at.
const IMPATIENT: Duration = Duration::from_micros(100);

/// Stands between client and server.
pub struct Gate {
    shared: Arc<Shared>,
    max_message: usize,
    finder: Finder,
    /// A message was judged and refused while others before it wait to be passed on.
    refused_next: Option<usize>,
    /// Inside a message that was refused before its end was seen.
    skipping: Option<Skipped>,
}

/// A message that is being thrown away.
struct Skipped {
    ends: Ends,
    refusal: Refusal,
}

/// What became of one message.
struct Outcome {
    passes: bool,
    /// It took a verdict, which may have taken time.
    judged: bool,
}

/// Where a message stands, and how.
#[derive(Clone, Copy)]
struct Place {
    offset: Option<u64>,
    frame: Option<(usize, usize)>,
    batch: bool,
}

impl Gate {
    /// Messages longer than `max_message` bytes are refused.
    #[must_use]
    pub fn new(shared: Arc<Shared>, max_message: usize) -> Self {
        Self { shared, max_message, finder: Finder::default(), refused_next: None, skipping: None }
    }

    /// The rest of a message that was refused already.
    fn skip(&mut self, bytes: &[u8], ended: bool) -> Decision {
        let (n, is_end) = rest_of_line(bytes);
        if let Some(skipped) = &mut self.skipping {
            skipped.ends.add(&bytes[..n]);
        }
        if let Some(skipped) = self.skipping.take_if(|_| is_end || ended) {
            self.tell_skipped(&skipped);
        }
        Decision::Discard(n)
    }

    fn tell_skipped(&self, skipped: &Skipped) {
        if !skipped.ends.asks() {
            return;
        }
        let (ruled, message) = refused(skipped.refusal, None);
        let told = replies::Refused { id: skipped.ends.id(), ruled: &ruled, message: &message };
        self.tell(&[told], &self.shared.policy(), false, false);
    }

    fn tell(&self, told: &[replies::Refused<'_>], policy: &str, batch: bool, framed: bool) {
        let reply = replies::denied(told, policy, batch, framed);
        if !reply.is_empty() {
            self.shared.inserts[0].push(&reply);
        }
    }

    /// Everything held belongs to a message that cannot be judged.
    fn give_up(&mut self, held: Held<'_>, refusal: Refusal, desk: &Desk<'_>) -> Decision {
        let bytes = held.bytes;
        if let Some(offset) = held.offset {
            let (ruled, _) = refused(refusal, None);
            let judgement = judgement(DIRECTION, offset, None, true, vec![ruled], self.shared.policy());
            self.shared.put_down_refusal(&judgement, desk);
        }
        self.finder.forget();
        self.skipping = Some(Skipped { ends: Ends::of(bytes), refusal });
        Decision::Discard(bytes.len())
    }

    /// Judges one message. `frame` is its Content-Length framing.
    fn message(&self, body: &[u8], offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> Outcome {
        let reading = if frame.is_some() && memchr::memchr2(b'\n', b'\r', body).is_some() {
            // A reader of lines would find others in it.
            Reading::One(Item { id: None, shape: Shape::Unreadable, refused: Some(Refusal::LineBreak), review: None })
        } else {
            inspect::read(body)
        };
        let (items, batch) = match &reading {
            Reading::Blank => return Outcome { passes: true, judged: false },
            Reading::One(item) => (std::slice::from_ref(item), false),
            Reading::Batch(items) => (&items[..], true),
            Reading::TooMany(ids, all) => {
                self.refuse_whole(Refusal::BadBatch, ids, *all, Place { offset, frame, batch: true }, desk);
                return Outcome { passes: false, judged: true };
            }
        };
        let asked = items.iter().any(|item| item.review.is_some() && item.refused.is_none());
        let complaint = if asked { self.shared.complaint(offset.is_some()) } else { None };
        let mut verdicts: Vec<Option<(Ruled, String)>> = Vec::with_capacity(items.len());
        // One policy judges all of a message.
        let policy = self.shared.with_judge(asked && complaint.is_none(), |mut judge| {
            let policy = judge.as_mut().map(|judge| judge.begin());
            for (at, item) in items.iter().enumerate() {
                verdicts.push(self.item(judge.as_deref_mut(), item, batch.then_some(at), complaint.as_deref()));
            }
            policy
        });
        let judged = verdicts.iter().any(Option::is_some);
        let policy = policy.or_else(|| judged.then(|| self.shared.policy()));
        let denied = |v: &Option<(Ruled, String)>| v.as_ref().is_some_and(|(r, _)| r.verdict == PolicyVerdict::Denied);
        let mut passes = !verdicts.iter().any(denied);
        if passes && (judged || frame.is_some()) {
            let ruled = verdicts.iter_mut().filter_map(Option::take).map(|(r, _)| r).collect();
            let policy = policy.clone().unwrap_or_default();
            let stands =
                offset.is_some_and(|at| self.shared.put_down(&judgement(DIRECTION, at, frame, false, ruled, policy)));
            // Without a record only what needs no verdict may pass, and only what the recorder does not see at all.
            passes = stands || (offset.is_none() && !judged);
            if !passes {
                for (at, verdict) in verdicts.iter_mut().enumerate() {
                    *verdict = Some(refused(Refusal::RecorderUnavailable, batch.then_some(at)));
                }
            }
        }
        if passes {
            self.pass(items);
        } else {
            let policy = policy.unwrap_or_else(|| self.shared.policy());
            self.refuse(items, verdicts, Place { offset, frame, batch }, policy, desk);
        }
        Outcome { passes, judged }
    }

    /// What is decided about one element; `None` if nobody has to decide anything.
    fn item(
        &self,
        judge: Option<&mut (dyn Judge + 'static)>,
        item: &Item<'_>,
        index: Option<usize>,
        complaint: Option<&str>,
    ) -> Option<(Ruled, String)> {
        if let Some(refusal) = item.refused {
            return Some(refused(refusal, index));
        }
        if item.shape == Shape::Response && !item.id.is_some_and(|id| self.shared.answers(id)) {
            return Some(refused(Refusal::AnswersNothing, index));
        }
        if item.shape == Shape::Request && !self.shared.has_room(Direction::ClientToServer) {
            return Some(refused(Refusal::TooManyInFlight, index));
        }
        let Review { tool, arguments } = item.review.as_ref()?;
        let Some(judge) = judge else {
            let (ruled, message) = refused(Refusal::RecorderUnavailable, index);
            return Some((ruled, complaint.map_or(message, str::to_owned)));
        };
        let (ruled, message) = judge.judge(Subject { tool, arguments: *arguments }, Producer::now());
        Some((Ruled { index, ..ruled }, message))
    }

    fn pass(&self, items: &[Item<'_>]) {
        for item in items {
            match (item.shape, item.id) {
                (Shape::Request, Some(id)) => self.shared.waits(Direction::ClientToServer, id),
                (Shape::Response, Some(id)) => self.shared.takes_answer(id),
                _ => {}
            }
        }
    }

    fn refuse(
        &self,
        items: &[Item<'_>],
        verdicts: Vec<Option<(Ruled, String)>>,
        place: Place,
        policy: String,
        desk: &Desk<'_>,
    ) {
        let Place { offset, frame, batch } = place;
        let with_others = |at: usize| {
            let ruled = Ruled {
                index: batch.then_some(at),
                verdict: PolicyVerdict::Denied,
                reason: "guard:batch".to_owned(),
                rule: Some("guard.batch".to_owned()),
                unseen: Vec::new(),
            };
            (ruled, "another element of its batch was denied".to_owned())
        };
        let all: Vec<(Ruled, String)> = verdicts
            .into_iter()
            .enumerate()
            .map(|(at, v)| v.filter(|(r, _)| r.verdict == PolicyVerdict::Denied).unwrap_or_else(|| with_others(at)))
            .collect();
        let ruled = all.iter().map(|(r, _)| r.clone()).collect();
        let judgement = judgement(DIRECTION, offset.unwrap_or(0), frame, true, ruled, policy);
        if offset.is_some() {
            self.shared.put_down_refusal(&judgement, desk);
        }
        let told: Vec<_> = items
            .iter()
            .zip(&all)
            .filter(|(item, _)| matches!(item.shape, Shape::Request | Shape::Unreadable))
            .map(|(item, (ruled, message))| replies::Refused { id: item.id, ruled, message })
            .collect();
        self.tell(&told, &judgement.policy, batch, frame.is_some());
    }

    /// Refuses a message that was not read element by element: one decision for all of it. `all`: it has no other ids.
    fn refuse_whole(&self, refusal: Refusal, ids: &[&[u8]], all: bool, place: Place, desk: &Desk<'_>) {
        let Place { offset, frame, batch } = place;
        let (ruled, message) = refused(refusal, None);
        let policy = self.shared.policy();
        if let Some(offset) = offset {
            let judgement = judgement(DIRECTION, offset, frame, true, vec![ruled.clone()], policy.clone());
            self.shared.put_down_refusal(&judgement, desk);
        }
        let ids = ids.iter().map(|id| Some(*id)).chain((!all).then_some(None));
        let told: Vec<_> = ids.map(|id| replies::Refused { id, ruled: &ruled, message: &message }).collect();
        self.tell(&told, &policy, batch, frame.is_some());
    }
}

impl Decider for Gate {
    fn decide(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Decision {
        if let Some(n) = self.refused_next.take() {
            return Decision::Discard(n);
        }
        if self.skipping.is_some() {
            return self.skip(held.bytes, held.ended);
        }
        let mut approved = 0;
        let mut start = None;
        loop {
            let window = &held.bytes[approved..];
            if window.is_empty() {
                return Decision::Forward(approved);
            }
            let Some(found) = self.finder.next(window, held.ended) else {
                return match (approved, window.len() > self.max_message) {
                    (1.., _) => Decision::Forward(approved),
                    (0, true) => self.give_up(held, Refusal::TooLarge, desk),
                    (0, false) if held.last => self.give_up(held, Refusal::RecorderUnavailable, desk),
                    (0, false) => Decision::More,
                };
            };
            let offset = held.offset.map(|offset| offset + approved as u64);
            let body = found.body(window);
            let is_last = found.end == window.len();
            if !is_last && start.is_none() {
                start = Some(Instant::now());
            }
            let outcome = if body.len() > self.max_message {
                self.too_large(body, offset, found.frame(), desk)
            } else {
                self.message(body, offset, found.frame(), desk)
            };
            if !outcome.passes {
                if approved == 0 {
                    return Decision::Discard(found.end);
                }
                self.refused_next = Some(found.end);
                return Decision::Forward(approved);
            }
            approved += found.end;
            if outcome.judged && start.is_some_and(|start| start.elapsed() > IMPATIENT) {
                return Decision::Forward(approved);
            }
        }
    }

    fn inserts(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(&self.shared.inserts[1]))
    }

    fn answers(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(&self.shared.inserts[0]))
    }
}

impl Gate {
    /// A whole message that is longer than what is looked at.
    fn too_large(&self, body: &[u8], offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> Outcome {
        let ends = Ends::of(body);
        let ids: Vec<&[u8]> = ends.id().filter(|_| ends.asks()).into_iter().collect();
        let is_answered = !ids.is_empty() || !ends.asks();
        self.refuse_whole(Refusal::TooLarge, &ids, is_answered, Place { offset, frame, batch: false }, desk);
        Outcome { passes: false, judged: true }
    }
}
