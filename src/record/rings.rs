//! The source of a session over stdio: a capture ring for each direction.

use super::{
    activity::Activity,
    card::Captures,
    lane::{self, Lane, Taken},
    opening::Opening,
    rulings::RulingReader,
    source::{Delivered, Lost, Seen, SessionKey, Source, SourceError},
    stream::StreamId,
};
use crate::{model::SessionId, sys::clock};
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

/// How full a capture may get with evidence that could not be written, in percent, before it is released all the same.
const HELD_PERCENT: u64 = 75;
/// Work after which other threads that wait for the processor go first: 0.1 ms.
const TURN_NS: u64 = 100_000;
/// A source of rings has one session only; this is its key.
const SESSION: SessionKey = SessionKey(0);

/// The two lanes of a session, client to server first; of a dead one, those that are left.
pub struct Rings {
    lanes: Vec<Lane>,
    /// What the session begins with, until it is handed out.
    pub(super) opening: Option<Box<Opening>>,
    activity: Arc<Activity>,
    /// When this thread last let others go first, monotonic ns.
    rested_ns: u64,
    /// Whether the rings still hold messages whose evidence is on disk.
    kept: bool,
    /// What was given up and not yet reported: messages, bytes.
    lost: (u64, u64),
    errors: Vec<SourceError>,
}

impl Rings {
    /// The rings of a session that begins.
    #[must_use]
    pub fn new(lanes: [Lane; 2], opening: Opening) -> Self {
        let activity = opening.activity.clone();
        Self { opening: Some(Box::new(opening)), activity, ..Self::left(lanes.into()) }
    }

    /// What a dead session left.
    #[must_use]
    pub fn left(mut lanes: Vec<Lane>) -> Self {
        lanes.sort_by_key(|lane| lane.direction().lane());
        Self {
            lanes,
            opening: None,
            activity: Arc::default(),
            rested_ns: 0,
            kept: false,
            lost: (0, 0),
            errors: Vec::new(),
        }
    }

    /// The lanes of the session, by direction: client to server first.
    #[must_use]
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// When what is handed out next crossed, monotonic ns.
    pub(super) fn upcoming(&mut self) -> Option<u64> {
        let which = lane::earliest(&mut self.lanes).ok().flatten()?;
        self.lanes[which].peek().ok().flatten()
    }

    fn failed(&mut self, what: &'static str, messages: u64, source: std::io::Error) {
        self.errors.push(SourceError { session: SESSION, what, messages, source });
    }
}

impl Captures {
    /// The paths of the captures of these lanes.
    #[must_use]
    pub fn of(lanes: &[Lane; 2]) -> Self {
        Self {
            log: None,
            decisions: lanes[0].rulings().and_then(RulingReader::path),
            rings: [0, 1].map(|i: usize| lanes[i].consumer().path().map(Path::to_owned)),
            spools: [0, 1].map(|i: usize| lanes[i].spool_path().to_owned()),
        }
    }
}

impl Source for Rings {
    fn prefault(&self) {
        for lane in &self.lanes {
            lane.consumer().prefault();
            if let Some(rulings) = lane.rulings() {
                rulings.prefault();
            }
        }
    }

    fn look(&mut self, wall_minus_mono_ns: i64) {
        for lane in &self.lanes {
            lane.consumer().set_wall_offset(wall_minus_mono_ns);
        }
        if let [c2s, s2c] = &*self.lanes {
            self.activity.written.store(s2c.consumer().written(), Ordering::Relaxed);
            self.activity.said.store(c2s.consumer().head(), Ordering::Relaxed);
        }
    }

    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        if let Some(opening) = self.opening.take() {
            take(SESSION, Seen::Begins(opening));
            return true;
        }
        let first = lane::earliest(&mut self.lanes);
        for which in 0..self.lanes.len() {
            if let Some(e) = self.lanes[which].take_failure() {
                self.failed("spooling a large message", 0, e);
            }
        }
        let Some(which) = first.ok().flatten() else { return false };
        let now = clock::mono_ns();
        let lane = &mut self.lanes[which];
        if now.saturating_sub(self.rested_ns) > TURN_NS {
            lane.give_way();
            self.rested_ns = now;
        }
        let read_ns = lane.peek().ok().flatten().unwrap_or(now);
        let taken = lane.take(read_ns, |taken| {
            let seen = match taken {
                Taken::Message(m) => Seen::Message(m),
                Taken::Torn(bytes) => Seen::Torn { bytes, read_ns },
                Taken::Gap(bytes) => Seen::Gap { bytes, read_ns },
            };
            take(SESSION, seen);
        });
        if let Err(e) = taken {
            self.failed("reading a spooled message", 1, e);
        }
        true
    }

    fn take_error(&mut self) -> Option<SourceError> {
        self.errors.pop()
    }

    fn delivered(&self, tell: Delivered<'_>) {
        for lane in &self.lanes {
            let consumer = lane.consumer();
            let stream = StreamId::Stdio(lane.direction());
            tell(SESSION, stream, consumer.written(), &|offset| consumer.write_mark(offset));
        }
    }

    /// What waits after a message that has no room is looked at when that is tried again.
    fn has_work(&self) -> bool {
        self.opening.is_some() || self.lanes.iter().any(Lane::has_work) && !self.is_stuck()
    }

    fn is_stuck(&self) -> bool {
        self.lanes.iter().any(Lane::is_stuck)
    }

    fn is_drained(&self) -> bool {
        self.lanes.iter().all(Lane::is_drained)
    }

    fn holds_passed(&self) -> bool {
        self.lanes.iter().any(Lane::holds_passed)
    }

    fn is_filling(&self) -> bool {
        self.lanes.iter().any(Lane::is_filling)
    }

    fn settled(&mut self) {
        self.kept = false;
        self.lanes.iter_mut().for_each(Lane::settled);
    }

    fn keep(&mut self) {
        self.kept = true;
    }

    fn retry(&mut self) {
        self.lanes.iter_mut().for_each(Lane::retry);
    }

    fn make_room(&mut self, failing: &dyn Fn(SessionKey) -> bool) {
        let failing = failing(SESSION);
        if self.lanes.iter().any(Lane::is_crowded) {
            self.give_up_stuck();
        }
        for lane in &mut self.lanes {
            // What a guard let run stays; its peer's further messages pass uncaptured once the capture is full.
            let may_go = failing && !lane.holds_passed();
            if may_go && lane.held_percent() > HELD_PERCENT {
                lane.let_go();
            }
            if lane.is_stuffed() && (may_go || lane.is_stuck()) {
                let bytes = lane.give_up();
                if may_go {
                    lane.let_go();
                }
                self.lost.0 += 1;
                self.lost.1 += bytes;
            }
        }
    }

    fn rest(&mut self, give_back: bool) {
        self.lanes.iter_mut().for_each(|lane| lane.rewind(give_back));
    }

    fn give_up_stuck(&mut self) -> bool {
        let mut any = false;
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_stuck()) {
            self.lost.0 += 1;
            self.lost.1 += lane.give_up();
            any = true;
        }
        any
    }

    fn take_lost(&mut self, lost: Lost<'_>) {
        let (messages, mut bytes) = std::mem::take(&mut self.lost);
        bytes += self.lanes.iter_mut().map(Lane::take_skipped).sum::<u64>();
        if messages + bytes > 0 {
            lost(SESSION, messages, bytes);
        }
    }

    fn unfinished(&self, lost: Lost<'_>) {
        lost(SESSION, 0, self.lanes.iter().map(Lane::unfinished).sum());
    }

    /// The first lane decides.
    fn goes_on_as(&mut self, _: SessionKey, id: SessionId) {
        for lane in &mut self.lanes {
            if self.kept {
                lane.settled();
            }
            lane.consumer().set_note(lane::NOTE_OWNER, id.bits());
        }
    }

    fn note_lost(&self, _: SessionKey, bytes: u64) {
        if let Some(lane) = self.lanes.first() {
            lane.note_lost(bytes);
        }
    }

    fn forget(&mut self, _: SessionKey) {
        for lane in &mut self.lanes {
            lane.settled();
            lane.remove();
        }
    }
}
