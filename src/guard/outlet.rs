//! The server's stream: what is no message is kept from the client, what the policy reviews is judged, and whatever else
//! the server says passes: an answer while it comes, anything else when it is whole.

use super::{
    Shared,
    held::{Ends, Finder, rest_of_line},
    inspect::{self, Beginning, Refusal, SAMPLING, Said, Sampling, Shape},
    judgement, refused, replies,
};
use crate::{
    canon,
    model::{Direction, PolicyVerdict},
    record::{
        envelope,
        judgement::{Ruled, Subject},
    },
    relay::{
        Producer,
        stdio::{Decider, Decision, Desk, Held, Inserts},
    },
};
use std::sync::{Arc, atomic::Ordering};

/// The stream that is judged here.
const DIRECTION: Direction = Direction::ServerToClient;
/// An answer that is longer passes while it comes, unread: a server's results are never held up for their size.
const STREAM_AT: usize = 1 << 20;
/// What is no answer is held until it is whole, and refused when it is longer. Less than the capture holds.
const MOST_HELD: usize = 3 << 20;

/// Stands between server and client.
pub struct Outlet {
    shared: Arc<Shared>,
    finder: Finder,
    refused_next: Option<usize>,
    /// Inside a line that passes while it comes.
    streaming: Option<Ends>,
    /// Inside a line that was refused before its end was seen.
    skipping: Option<(Ends, Refusal)>,
    /// A streamed response whose request is not known: nobody can say what is still unanswered.
    lost_count: bool,
}

impl Outlet {
    /// Over what it shares with the client's side.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            finder: Finder::default(),
            refused_next: None,
            streaming: None,
            skipping: None,
            lost_count: false,
        }
    }

    /// More of a line that is passing.
    fn stream(&mut self, bytes: &[u8]) -> Decision {
        let (n, is_end) = rest_of_line(bytes);
        if let Some(line) = &mut self.streaming {
            line.add(&bytes[..n]);
        }
        if let Some(line) = self.streaming.take_if(|_| is_end) {
            self.passed_unread(&line);
        }
        Decision::Forward(n)
    }

    /// More of a line that does not pass.
    fn skip(&mut self, bytes: &[u8], ended: bool) -> Decision {
        let (n, is_end) = rest_of_line(bytes);
        if let Some((line, _)) = &mut self.skipping {
            line.add(&bytes[..n]);
        }
        if let Some((line, refusal)) = self.skipping.take_if(|_| is_end || ended)
            && let Some(id) = line.id().filter(|_| line.asks())
        {
            self.tell(id, refused(refusal, None), false);
        }
        Decision::Discard(n)
    }

    /// A line that is too long to be waited for and has not ended.
    fn long(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Decision {
        let bytes = held.bytes;
        let is_long = bytes.len() > STREAM_AT;
        match inspect::beginning(bytes) {
            // A recorder that is stuck does not hold up what may become an answer.
            Beginning::Open if !is_long => {}
            Beginning::Answer => {}
            _ if bytes.len() <= MOST_HELD && !held.last => return Decision::More,
            _ => {
                let refusal = if is_long { Refusal::TooLarge } else { Refusal::RecorderUnavailable };
                self.finder.forget();
                self.put_down(held.offset, None, true, vec![refused(refusal, None).0], desk);
                self.skipping = Some((Ends::begin(bytes), refusal));
                return self.skip(bytes, held.ended);
            }
        }
        self.finder.forget();
        self.streaming = Some(Ends::begin(bytes));
        self.stream(bytes)
    }

    /// Tells the server that its request was refused.
    fn tell(&self, id: &[u8], refused: (Ruled, String), framed: bool) {
        self.tell_by(&self.shared.policy(), id, refused, framed);
    }

    fn tell_by(&self, policy: &str, id: &[u8], (ruled, message): (Ruled, String), framed: bool) {
        let refused = replies::Refused { id: Some(id), ruled: &ruled, message: &message };
        self.shared.inserts[1].push(&replies::denied(&[refused], policy, false, framed));
    }

    /// What can be known of a line that was not read.
    fn passed_unread(&mut self, line: &Ends) {
        let id = line.id();
        let asks = canon::members(line.head())
            .is_ok_and(|members| members.map_while(Result::ok).any(|m| m.key.as_deref() == Some("method")));
        if let (true, Some(id)) = (asks, id) {
            self.shared.waits(Direction::ServerToClient, id);
            return;
        }
        let answers = id.is_some_and(|id| self.shared.answered(Direction::ClientToServer, id));
        if !answers {
            // Either the server asks something, or it answered what we cannot tell.
            self.shared.unread.fetch_add(1, Ordering::AcqRel);
            self.lost_count = true;
        }
    }

    /// Whether one message may pass; what was decided stands where the recorder finds it.
    fn message(&self, body: &[u8], offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> bool {
        if body.iter().all(u8::is_ascii_whitespace) {
            return true;
        }
        if envelope::is_batch(body) {
            return self.batch(body, offset, frame, desk);
        }
        let Some(said) = inspect::said(body) else {
            let (ruled, _) = refused(Refusal::Malformed, None);
            self.put_down(offset, frame, true, vec![ruled], desk);
            return false;
        };
        if said.shape == Shape::Request && said.id.is_some() && !self.shared.has_room(Direction::ServerToClient) {
            let (ruled, message) = refused(Refusal::TooManyInFlight, None);
            self.put_down(offset, frame, true, vec![ruled.clone()], desk);
            if let Some(id) = said.id {
                self.tell(id, (ruled, message), frame.is_some());
            }
            return false;
        }
        match said.sampling {
            Sampling::No => {}
            Sampling::Asked => return self.sampling(&said, offset, frame, desk),
            Sampling::Doubtful(refusal) => {
                let (ruled, message) = refused(refusal, None);
                self.put_down(offset, frame, true, vec![ruled.clone()], desk);
                if let Some(id) = said.id.filter(|_| said.shape == Shape::Request) {
                    self.tell(id, (ruled, message), frame.is_some());
                }
                return false;
            }
        }
        if frame.is_some() {
            self.put_down(offset, frame, false, Vec::new(), desk);
        }
        self.note(&said);
        true
    }

    fn batch(&self, body: &[u8], offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> bool {
        let whole = canon::scan(body).is_ok();
        let elements = canon::elements(body).ok().filter(|_| whole);
        let Some(elements) = elements else {
            let (ruled, _) = refused(Refusal::Malformed, None);
            self.put_down(offset, frame, true, vec![ruled], desk);
            return false;
        };
        let said: Vec<_> = elements.flatten().filter_map(|range| inspect::said(&body[range])).collect();
        if said.iter().any(|said| said.sampling != Sampling::No) {
            // No server that samples sends batches; one that does is not followed into them.
            let (ruled, _) = refused(Refusal::BadBatch, None);
            self.put_down(offset, frame, true, vec![ruled], desk);
            return false;
        }
        if frame.is_some() {
            self.put_down(offset, frame, false, Vec::new(), desk);
        }
        for said in &said {
            self.note(said);
        }
        true
    }

    /// A server that wants the client's model to speak.
    fn sampling(&self, said: &Said<'_>, offset: Option<u64>, frame: Option<(usize, usize)>, desk: &Desk<'_>) -> bool {
        let subject = Subject { tool: SAMPLING, arguments: said.params };
        let complaint = self.shared.complaint(offset.is_some());
        let judged = self.shared.with_judge(complaint.is_none(), |judge| {
            judge.map(|judge| (judge.begin(), judge.judge(subject, Producer::now())))
        });
        let (policy, (mut ruled, mut message)) = judged.unwrap_or_else(|| {
            let refused = (refused(Refusal::RecorderUnavailable, None).0, complaint.unwrap_or_default());
            (self.shared.policy(), refused)
        });
        let mut passes = ruled.verdict != PolicyVerdict::Denied;
        if passes && !self.try_put_down(offset, frame, false, vec![ruled.clone()], policy.clone()) {
            passes = false;
            (ruled, message) = refused(Refusal::RecorderUnavailable, None);
        }
        if passes {
            self.note(said);
            return true;
        }
        self.put_down_by(policy.clone(), offset, frame, true, vec![ruled.clone()], desk);
        if let Some(id) = said.id {
            self.tell_by(&policy, id, (ruled, message), frame.is_some());
        }
        false
    }

    fn note(&self, said: &Said<'_>) {
        match (said.shape, said.id) {
            (Shape::Request, Some(id)) => self.shared.waits(Direction::ServerToClient, id),
            (Shape::Response, Some(id)) => {
                self.shared.answered(Direction::ClientToServer, id);
            }
            _ => {}
        }
    }

    fn try_put_down(
        &self,
        offset: Option<u64>,
        frame: Option<(usize, usize)>,
        blocked: bool,
        ruled: Vec<Ruled>,
        policy: String,
    ) -> bool {
        offset.is_some_and(|offset| self.shared.put_down(&judgement(DIRECTION, offset, frame, blocked, ruled, policy)))
    }

    fn put_down(
        &self,
        offset: Option<u64>,
        frame: Option<(usize, usize)>,
        blocked: bool,
        ruled: Vec<Ruled>,
        desk: &Desk<'_>,
    ) {
        self.put_down_by(self.shared.policy(), offset, frame, blocked, ruled, desk);
    }

    fn put_down_by(
        &self,
        policy: String,
        offset: Option<u64>,
        frame: Option<(usize, usize)>,
        blocked: bool,
        ruled: Vec<Ruled>,
        desk: &Desk<'_>,
    ) {
        let Some(offset) = offset else { return };
        let judgement = judgement(DIRECTION, offset, frame, blocked, ruled, policy);
        if blocked {
            self.shared.put_down_refusal(&judgement, desk);
        } else {
            // That it was framed is all that would be lost.
            let _ = self.shared.put_down(&judgement);
        }
    }
}

impl Decider for Outlet {
    fn decide(&mut self, held: Held<'_>, desk: &Desk<'_>) -> Decision {
        if let Some(n) = self.refused_next.take() {
            return Decision::Discard(n);
        }
        if self.streaming.is_some() {
            return self.stream(held.bytes);
        }
        if self.skipping.is_some() {
            return self.skip(held.bytes, held.ended);
        }
        let mut approved = 0;
        loop {
            let window = &held.bytes[approved..];
            if window.is_empty() {
                return Decision::Forward(approved);
            }
            let Some(found) = self.finder.next(window, held.ended) else {
                if approved > 0 {
                    return Decision::Forward(approved);
                }
                return if window.len() > STREAM_AT || held.last { self.long(held, desk) } else { Decision::More };
            };
            let offset = held.offset.map(|offset| offset + approved as u64);
            let body = found.body(window);
            if body.len() > STREAM_AT && inspect::beginning(body) == Beginning::Answer {
                self.passed_unread(&Ends::of(body));
            } else if !self.message(body, offset, found.frame(), desk) {
                if approved == 0 {
                    return Decision::Discard(found.end);
                }
                self.refused_next = Some(found.end);
                return Decision::Forward(approved);
            }
            approved += found.end;
        }
    }

    fn is_between_messages(&self) -> bool {
        self.streaming.is_none()
    }

    fn inserts(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(&self.shared.inserts[0]))
    }

    fn answers(&self) -> Option<Arc<Inserts>> {
        Some(Arc::clone(&self.shared.inserts[1]))
    }

    fn farewell(&mut self) -> Vec<u8> {
        let unanswered = self.shared.unanswered();
        if self.lost_count {
            return Vec::new();
        }
        replies::server_gone(&unanswered, &self.shared.policy())
    }
}
