//! The sessions of the process, as far as subscribers can hear of them: those that run, and for some time those that ended.

use super::feed::{Feed, Head};
use crate::{
    live::{
        discovery::OwnCard,
        hub::Reach,
        protocol::{Brief, LiveLine, RunCard, SessionHead, SessionState, SessionStreams},
        ring::{Entry, Ring},
    },
    model::SessionId,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(in crate::live) struct Limits {
    /// Bytes of lines of one session.
    pub each: usize,
    /// Bytes of lines of all sessions together.
    pub all: usize,
    /// Sessions that have ended.
    pub ended: usize,
    /// How long after the last that was said of it a session that has ended is kept.
    pub ended_for: Duration,
}

/// What a process keeps.
pub(in crate::live) const LIMITS: Limits =
    Limits { each: 8 << 20, all: 32 << 20, ended: 64, ended_for: Duration::from_mins(15) };

#[derive(Debug)]
pub(super) struct Session {
    pub card: RunCard,
    pub reach: Arc<Reach>,
    pub ring: Ring,
    /// As far as its segment was read.
    pub head: Head,
    /// The session that continues it.
    pub next: Option<SessionId>,
    /// It was read up to what is there in this round, or as far as those are who hear of it already.
    pub is_read: bool,
    /// While it is found in the run directory.
    pub own: Option<OwnCard>,
    /// `None` once there is nothing more to read, or nothing can be read.
    feed: Option<Feed>,
    /// Length of its segment, once it has ended.
    ended: Option<u64>,
    last_word: Instant,
    /// How often its open streams had changed when they were last told of.
    streams: u64,
}

impl Session {
    /// Its open streams, if they are others than after `seen` changes.
    fn streams_after(&self, seen: u64) -> Option<SessionStreams> {
        let (seq, streams) = self.reach.streams_after(seen).filter(|_| self.ended.is_none())?;
        Some(SessionStreams { seq, session_id: self.id(), streams })
    }

    /// Its open streams, once there have been any.
    pub fn streams(&self) -> Option<SessionStreams> {
        self.streams_after(0)
    }

    /// Tells of its open streams if they have changed.
    pub fn tell_streams(&mut self) {
        let Some(told) = self.streams_after(self.streams) else { return };
        self.streams = told.seq;
        self.say(&LiveLine::Streams(told));
    }

    fn segment_len(&self) -> u64 {
        self.ended.unwrap_or_else(|| self.reach.mark().segment_len)
    }

    /// Whether there is something to read.
    pub fn is_behind(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.is_behind(self.segment_len()))
    }

    pub const fn id(&self) -> SessionId {
        self.card.card.session_id
    }

    pub fn brief(&self) -> Brief {
        let card = &self.card.card;
        let state = if self.ended.is_some() { SessionState::Ended } else { SessionState::Running };
        Brief { continues: card.continues, server_id: card.server_id.clone(), session_id: card.session_id, state }
    }

    /// The state of the session, for who gets its events from this cursor on.
    pub fn as_it_is(&self, from: u64) -> SessionHead {
        SessionHead {
            chain_head: self.head.hash.clone(),
            cursor: self.head.cursor,
            from,
            oldest: self.ring.oldest().unwrap_or(self.head.cursor),
            session: self.card.clone(),
            streams: self.streams(),
            totals: self.head.totals,
        }
    }

    /// Tells what is not in the chain.
    pub fn say(&mut self, line: &LiveLine) {
        self.last_word = Instant::now();
        self.push(line, false);
    }

    /// Tells what a message holds.
    pub fn say_content(&mut self, line: &LiveLine) {
        self.push(line, true);
    }

    fn push(&mut self, line: &LiveLine, is_content: bool) {
        let bytes = line.to_bytes().into();
        self.ring.push(Entry { cursor: self.head.cursor, chained: false, is_content, bytes });
    }

    /// Makes lines of what has been written since: of all of it, if `eager`, else of a piece.
    fn read(&mut self, eager: bool) {
        let Self { feed: Some(feed), ring, reach, ended, next, .. } = self else { return };
        self.is_read = true;
        if let Err(e) = feed.read(reach.mark(), *ended, eager, *next, ring) {
            tracing::warn!(path = %self.card.segment.display(), error = %e, "the segment cannot be read; this session is watched no further");
            self.feed = None;
            return;
        }
        self.head = feed.head();
    }
}

/// All of them, by their number in the process.
#[derive(Debug)]
pub(super) struct Sessions {
    limits: Limits,
    all: BTreeMap<u32, Session>,
    numbers: HashMap<SessionId, u32>,
    last: u32,
}

impl Sessions {
    pub fn new(limits: Limits) -> Self {
        Self { limits, all: BTreeMap::new(), numbers: HashMap::new(), last: 0 }
    }

    pub fn get(&self, number: u32) -> Option<&Session> {
        self.all.get(&number)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Session> {
        self.all.get_mut(&number)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Session)> {
        self.all.iter().map(|(number, session)| (*number, session))
    }

    pub fn number(&self, id: SessionId) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    pub fn of_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(self.numbers.get(&id)?)
    }

    /// A session has begun on disk. Calls in flight may come over from the one that it continues.
    pub fn begin(&mut self, card: RunCard, own: Option<OwnCard>, reach: Arc<Reach>) -> u32 {
        let before = card.card.continues.and_then(|id| self.of_mut(id));
        let before = before.filter(|s| s.ended.is_some() && !s.is_behind()).and_then(|s| s.feed.take());
        let feed = Feed::open(before, &card).inspect_err(|e| {
            tracing::warn!(path = %card.segment.display(), error = %e, "this session cannot be watched");
        });
        self.last += 1;
        self.numbers.insert(card.card.session_id, self.last);
        let (ring, head) = (Ring::new(self.limits.each), Head::default());
        let last_word = Instant::now();
        let session = Session {
            card,
            reach,
            ring,
            head,
            next: None,
            is_read: false,
            own,
            feed: feed.ok(),
            ended: None,
            last_word,
            streams: 0,
        };
        self.all.insert(self.last, session);
        self.last
    }

    /// A session's chain has its end.
    pub fn end(&mut self, id: SessionId, segment_len: u64, next: Option<SessionId>) {
        if let Some(s) = self.of_mut(id) {
            (s.ended, s.next, s.last_word) = (Some(segment_len), next, Instant::now());
        }
    }

    /// A round begins: what was read up to now may not be all that is there by now.
    pub fn look(&mut self) {
        self.all.values_mut().for_each(|s| s.is_read = !s.is_behind());
    }

    /// Makes lines of what a session has written since.
    pub fn read(&mut self, number: u32, eager: bool) {
        self.make_room(number);
        let Some(s) = self.all.get_mut(&number) else { return };
        s.read(eager);
        if s.ended.is_some() && s.next.is_none() && !s.is_behind() {
            s.feed = None;
        }
    }

    /// Each session may keep what the others leave, and no less than its share of all: for that those with the most give way.
    fn make_room(&mut self, number: u32) {
        let Limits { each, all, .. } = self.limits;
        let share = (all / self.all.len().max(1)).min(each);
        let mut others: usize = self.all.iter().filter(|(n, _)| **n != number).map(|(_, s)| s.ring.bytes()).sum();
        while others > all - share {
            let most = self.all.iter_mut().filter(|(n, _)| **n != number).max_by_key(|(_, s)| s.ring.bytes());
            let Some((_, most)) = most else { break };
            let had = most.ring.bytes();
            most.ring.keep(had.saturating_sub(others - (all - share)));
            others -= had - most.ring.bytes();
        }
        if let Some(s) = self.all.get_mut(&number) {
            s.ring.keep(each.min(all - others));
        }
    }

    /// Nobody is to find them any more.
    pub fn take_cards(&mut self) -> impl Iterator<Item = OwnCard> {
        self.all.values_mut().filter_map(|s| s.own.take())
    }

    /// When the next session that has ended is to be forgotten.
    pub fn forget_at(&self) -> Option<Instant> {
        let ended = self.all.values().filter(|s| s.ended.is_some());
        ended.map(|s| s.last_word + self.limits.ended_for).min()
    }

    /// Takes out sessions that ended long ago, and the oldest of too many.
    pub fn forget(&mut self) -> Vec<(u32, Session)> {
        let mut ended: Vec<_> =
            self.all.iter().filter(|(_, s)| s.ended.is_some()).map(|(n, s)| (s.last_word, *n)).collect();
        ended.sort_unstable();
        let (now, many) = (Instant::now(), ended.len().saturating_sub(self.limits.ended));
        let over = ended
            .into_iter()
            .enumerate()
            .filter(|(at, (last_word, _))| *at < many || *last_word + self.limits.ended_for <= now);
        over.filter_map(|(_, (_, number))| {
            let session = self.all.remove(&number)?;
            self.numbers.remove(&session.id());
            Some((number, session))
        })
        .collect()
    }
}
