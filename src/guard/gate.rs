//! The client's stream: what a client says is held until it was judged.

use super::{
    Judge, Shared,
    inspect::{self, Item, Reading, Refusal, Review, Shape},
    refused, replies,
};
use crate::{
    model::{Direction, PolicyVerdict},
    record::{
        frames::{self, Frame},
        judgement::{Judgement, Ruled, Subject},
    },
    relay::{
        Producer,
        stdio::{Decider, Decision, Desk, Held, Inserts},
    },
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// What was approved is passed on after so long, before more is looked at.
const IMPATIENT: Duration = Duration::from_micros(100);
/// Bytes of a message that is too large in which its id is looked for.
const ENDS: usize = 4096;

/// Stands between client and server.
pub struct Gate {
    shared: Arc<Shared>,
    max_message: usize,
    /// Bytes of what is held in which no end of a line was found.
    scanned: usize,
    /// A message was judged and refused while others before it wait to be passed on.
    refused_next: Option<usize>,
    /// Inside a message that was refused before its end was seen.
    skipping: Option<Skipped>,
}

/// The last bytes of a message that is being thrown away, for its id.
struct Skipped {
    head: Vec<u8>,
    tail: Vec<u8>,
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

fn judgement(
    offset: u64,
    frame: Option<(usize, usize)>,
    blocked: bool,
    ruled: Vec<Ruled>,
    policy: String,
) -> Judgement {
    let direction = Direction::ClientToServer;
    Judgement { direction, offset, frame, blocked, ns: Producer::now(), policy, ruled }
}

impl Gate {
    /// Messages longer than `max_message` bytes are refused.
    #[must_use]
    pub fn new(shared: Arc<Shared>, max_message: usize) -> Self {
        Self { shared, max_message, scanned: 0, refused_next: None, skipping: None }
    }

    /// The rest of a message that was refused already.
    fn skip(&mut self, bytes: &[u8], last: bool) -> Decision {
        let end = memchr::memchr(b'\n', bytes);
        let n = end.map_or(bytes.len(), |at| at + 1);
        if let Some(skipped) = &mut self.skipping {
            let part = &bytes[n.saturating_sub(ENDS)..n];
            skipped.tail.extend_from_slice(part);
            let surplus = skipped.tail.len().saturating_sub(ENDS);
            skipped.tail.drain(..surplus);
        }
        if (end.is_some() || last)
            && let Some(skipped) = self.skipping.take_if(|_| end.is_some())
        {
            self.tell_skipped(&skipped);
        }
        Decision::Discard(n)
    }

    fn tell_skipped(&self, skipped: &Skipped) {
        let Some(id) = inspect::id_of_parts(&skipped.head, &skipped.tail) else { return };
        let (ruled, message) = refused(skipped.refusal, None);
        let policy = self.shared.policy();
        let reply =
            replies::denied(&[replies::Refused { id, ruled: &ruled, message: &message }], &policy, false, false);
        self.shared.inserts[0].push(&reply);
    }

    /// Everything held belongs to a message that cannot be judged.
    fn give_up(&mut self, held: Held<'_>, at: usize, refusal: Refusal, desk: &Desk<'_>) -> Decision {
        let bytes = &held.bytes[at..];
        if let Some(offset) = held.offset {
            let (ruled, _) = refused(refusal, None);
            let judgement = judgement(offset + at as u64, None, true, vec![ruled], self.shared.policy());
            self.shared.put_down_refusal(&judgement, desk);
        }
        self.skipping = Some(Skipped {
            head: bytes[..bytes.len().min(ENDS)].to_vec(),
            tail: bytes[bytes.len().saturating_sub(ENDS)..].to_vec(),
            refusal,
        });
        self.scanned = 0;
        Decision::Discard(bytes.len())
    }

    /// Judges one message. `frame` is its Content-Length framing.
    fn message(&self, body: &[u8], offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> Outcome {
        let reading = if frame.is_some() && memchr::memchr2(b'\n', b'\r', body).is_some() {
            // A reader of lines would find others in it.
            Reading::One(Item { id: None, shape: Shape::Notification, refused: Some(Refusal::LineBreak), review: None })
        } else {
            inspect::read(body)
        };
        let (items, batch) = match reading {
            Reading::Blank => return Outcome { passes: true, judged: false },
            Reading::One(item) => (vec![item], false),
            Reading::Batch(items) => (items, true),
        };
        let asked = items.iter().any(|item| item.review.is_some() && item.refused.is_none());
        let complaint = if asked { self.shared.complaint(offset.is_some()) } else { None };
        let mut verdicts: Vec<Option<(Ruled, String)>> = Vec::with_capacity(items.len());
        // One policy judges all of a message.
        let policy = self.shared.with_judge(|judge| {
            for (at, item) in items.iter().enumerate() {
                verdicts.push(self.item(judge, item, batch.then_some(at), complaint.as_deref()));
            }
            verdicts.iter().any(Option::is_some).then(|| judge.policy())
        });
        let judged = verdicts.iter().any(Option::is_some);
        let denied = |v: &Option<(Ruled, String)>| v.as_ref().is_some_and(|(r, _)| r.verdict == PolicyVerdict::Denied);
        let mut passes = !verdicts.iter().any(denied);
        if passes && (judged || frame.is_some()) {
            let ruled = verdicts.iter().flatten().map(|(r, _)| r.clone()).collect();
            let policy = policy.clone().unwrap_or_default();
            let stands = offset.is_some_and(|at| self.shared.put_down(&judgement(at, frame, false, ruled, policy)));
            // Without a record only what needs no verdict may pass, and only what the recorder does not see at all.
            passes = stands || (offset.is_none() && !judged);
            if !passes {
                for (at, verdict) in verdicts.iter_mut().enumerate() {
                    *verdict = Some(refused(Refusal::RecorderUnavailable, batch.then_some(at)));
                }
            }
        }
        if passes {
            self.pass(&items);
        } else {
            let policy = policy.unwrap_or_else(|| self.shared.policy());
            self.refuse(&items, verdicts, Place { offset, frame, batch }, policy, desk);
        }
        Outcome { passes, judged }
    }

    /// What is decided about one element; `None` if nobody has to decide anything.
    fn item(
        &self,
        judge: &mut dyn Judge,
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
        let Review { tool, arguments } = item.review.as_ref()?;
        if let Some(complaint) = complaint {
            let (ruled, _) = refused(Refusal::RecorderUnavailable, index);
            return Some((ruled, complaint.to_owned()));
        }
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
        let judgement = judgement(offset.unwrap_or(0), frame, true, ruled, policy);
        if offset.is_some() {
            self.shared.put_down_refusal(&judgement, desk);
        }
        let told: Vec<_> = items
            .iter()
            .zip(&all)
            .filter(|(item, _)| item.shape == Shape::Request)
            .filter_map(|(item, (ruled, message))| Some(replies::Refused { id: item.id?, ruled, message }))
            .collect();
        let reply = replies::denied(&told, &judgement.policy, batch, frame.is_some());
        if !reply.is_empty() {
            self.shared.inserts[0].push(&reply);
        }
    }
}

impl Decider for Gate {
    fn decide(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Decision {
        if let Some(n) = self.refused_next.take() {
            return Decision::Discard(n);
        }
        if self.skipping.is_some() {
            return self.skip(held.bytes, held.last);
        }
        let start = Instant::now();
        let mut approved = 0;
        loop {
            let window = &held.bytes[approved..];
            if window.is_empty() {
                return Decision::Forward(approved);
            }
            let scanned = std::mem::take(&mut self.scanned);
            let (skip, len, end) = match frames::next(window, scanned.min(window.len()), held.ended) {
                Frame::Line { len } => (0, len, len + usize::from(len < window.len())),
                Frame::Framed { header, len } => (header, len, header + len),
                Frame::Partial if approved > 0 => return Decision::Forward(approved),
                Frame::Partial if window.len() > self.max_message => {
                    return self.give_up(held, 0, Refusal::TooLarge, desk);
                }
                Frame::Partial if held.last => {
                    return self.give_up(held, 0, Refusal::RecorderUnavailable, desk);
                }
                Frame::Partial => {
                    self.scanned = window.len();
                    return Decision::More;
                }
            };
            let offset = held.offset.map(|offset| offset + approved as u64);
            let frame = (skip > 0).then_some((skip, len));
            let outcome = if len > self.max_message {
                self.too_large(&window[skip..skip + len], offset, frame, desk)
            } else {
                self.message(&window[skip..skip + len], offset, frame, desk)
            };
            if !outcome.passes {
                if approved == 0 {
                    return Decision::Discard(end);
                }
                self.refused_next = Some(end);
                return Decision::Forward(approved);
            }
            approved += end;
            if outcome.judged && start.elapsed() > IMPATIENT {
                return Decision::Forward(approved);
            }
        }
    }

    fn inserts(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(&self.shared.inserts[1]))
    }
}

impl Gate {
    /// A whole message that is longer than what is looked at.
    fn too_large(&self, body: &[u8], offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> Outcome {
        let (head, tail) = (&body[..body.len().min(ENDS)], &body[body.len().saturating_sub(ENDS)..]);
        let id = inspect::id_of_parts(head, tail);
        let shape = if id.is_some() { Shape::Request } else { Shape::Notification };
        let item = Item { id, shape, refused: Some(Refusal::TooLarge), review: None };
        let place = Place { offset, frame, batch: false };
        let verdicts = vec![Some(refused(Refusal::TooLarge, None))];
        self.refuse(&[item], verdicts, place, self.shared.policy(), desk);
        Outcome { passes: false, judged: true }
    }
}
