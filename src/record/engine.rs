//! The recorder thread: takes messages out of a source in the order in which they crossed, has each recorded in its
//! session, and lets the source forget them once the evidence is on disk.
//!
//! It is never woken per message and never waited for by the forwarding path, unless a capture is full.

use super::{
    broadcast::{MAX_STREAMS, Streams},
    recorder::Ending,
    session::{Finish, RecorderReport, Session, Shared},
    source::{Seen, SessionKey, Source},
};
use crate::model::words::{EndReason, OutcomeReason};
use crate::{
    relay::{Pacer, Waker},
    sys::clock,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

/// Messages are written out at least this often within one burst.
const BURST: usize = 512;
/// Quiet time after which captures that have grown give memory back: the next burst may come soon. 1 s.
const GIVE_BACK_NS: u64 = 1_000_000_000;
/// How often those who watch are told of open streams, if anything about them has changed. 500 ms.
const STREAMS_NS: u64 = 500_000_000;
/// After the end of the session, a capture that gives nothing for this long is no longer waited for.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// The engine; [`Engine::run`] is the recorder thread.
pub struct Engine {
    shared: Shared,
    source: Box<dyn Source>,
    waker: Arc<Waker>,
    sessions: BTreeMap<SessionKey, Session>,
    report: RecorderReport,
    /// When something came last, monotonic ns.
    worked_ns: u64,
    /// When it was last told of open streams, monotonic ns.
    streams_ns: u64,
}

impl Engine {
    /// An engine that records what this source gives.
    #[must_use]
    pub fn new(shared: Shared, source: Box<dyn Source>, waker: Arc<Waker>) -> Self {
        let (sessions, report) = (BTreeMap::new(), RecorderReport::default());
        Self { shared, source, waker, sessions, report, worked_ns: 0, streams_ns: 0 }
    }

    /// Records until `finish` returns an ending for all sessions that exist then, and the source is drained.
    pub fn run(mut self, finish: &Receiver<Ending>) -> RecorderReport {
        let mut pacer = Pacer::default();
        let mut ending = None;
        let mut worked_at = Instant::now();
        self.source.prefault();
        loop {
            match finish.try_recv() {
                Ok(e) => ending = Some(e),
                Err(TryRecvError::Disconnected) if ending.is_none() => {
                    ending = Some(Ending {
                        reason: EndReason::RecorderAbandoned.into(),
                        no_response: Some(OutcomeReason::ProxyKilled),
                        ..Ending::default()
                    });
                }
                Err(_) => {}
            }
            let worked = self.round();
            if worked || ending.is_none() {
                worked_at = Instant::now();
            }
            if let Some(ending) = &ending
                && !worked
            {
                let waited = worked_at.elapsed() > LAST_WAIT;
                if waited && self.source.give_up_stuck() {
                    continue;
                }
                if (waited || self.source.is_drained()) && self.finish(ending) {
                    return self.report;
                }
            }
            let Self { shared, source, sessions, .. } = &mut self;
            for session in sessions.values_mut() {
                session.roll_if_due(shared, source.as_mut());
                session.look_at_files(shared, source.as_mut());
            }
            let sessions = self.sessions.values().map(Session::deepest);
            let deepest = sessions.min().filter(|_| ending.is_none());
            let deepest = deepest.unwrap_or(Duration::from_millis(if ending.is_some() { 1 } else { 1000 }));
            let source = &self.source;
            if worked && source.presses() {
                continue;
            }
            pacer.pause(&self.waker, worked, deepest, || source.has_work());
        }
    }

    /// Looks at everything once; returns whether there was anything.
    fn round(&mut self) -> bool {
        let now = clock::mono_ns();
        let offset = clock::wall_minus_mono_ns();
        self.source.look(offset);
        self.sessions.values_mut().for_each(|session| session.look(offset, now));
        let mut worked = false;
        for _ in 0..BURST {
            if self.must_wait() {
                break;
            }
            let Some(key) = self.take() else { break };
            worked = true;
            self.delivered();
            let Some(session) = self.sessions.get(&key) else { continue };
            session.say_health();
            if session.has_much() || self.source.has_given_much() {
                break;
            }
        }
        self.delivered();
        self.sessions.values().for_each(Session::say_in_flight);
        self.flush();
        let sessions = &self.sessions;
        self.source.make_room(&|key| sessions.get(&key).is_some_and(Session::is_failing));
        self.take_lost();
        self.end_sessions();
        if worked {
            self.worked_ns = now;
        }
        self.source.rest(now.saturating_sub(self.worked_ns) > GIVE_BACK_NS);
        self.sessions.values().for_each(Session::say_health);
        self.say_streams(now);
        self.shared.health.beat(self.sessions.values().all(Session::is_able));
        self.shared.health.come_to(self.source.come());
        worked
    }

    /// Tells those who watch which streams are open.
    fn say_streams(&mut self, now: u64) {
        if now.saturating_sub(self.streams_ns) < STREAMS_NS || !self.shared.broadcast.is_watched() {
            return;
        }
        self.streams_ns = now;
        let mut streams: BTreeMap<SessionKey, Streams> = BTreeMap::new();
        self.source.streams(&mut |key, stream| {
            let of = streams.entry(key).or_default();
            of.total += 1;
            if of.open.len() == MAX_STREAMS {
                of.open.remove(0);
            }
            of.open.push(stream);
        });
        for (key, session) in &self.sessions {
            session.say_streams(streams.remove(key).unwrap_or_default(), self.shared.broadcast.as_ref());
        }
    }

    /// What a guard passed on stays in the captures while it cannot be written: a call that passed must not be in a
    /// gap's bytes.
    fn must_wait(&self) -> bool {
        self.source.holds_passed() && self.sessions.values().any(Session::is_full)
    }

    /// Takes what crossed next; whose it was.
    fn take(&mut self) -> Option<SessionKey> {
        let Self { source, sessions, report, shared, .. } = self;
        let (mut whose, mut begins) = (None, None);
        source.next(&mut |key, seen| {
            whose = Some(key);
            match (seen, sessions.get_mut(&key)) {
                (Seen::Begins(opening), _) => begins = Some(opening),
                (seen, Some(session)) => {
                    if let Seen::Message(m) = &seen {
                        session.say_crossed(m, shared.broadcast.as_ref());
                    }
                    session.take(seen);
                }
                // Of a session that is over: there is no chain to say so.
                (Seen::Message(m), None) => report.miss(1, m.bytes.len() as u64),
                (Seen::Torn { bytes, .. }, None) => report.miss(1, bytes),
                (Seen::Gap { bytes, .. }, None) => report.miss(0, bytes),
                (Seen::Exchange(_) | Seen::Delivered { .. } | Seen::Ends(_) | Seen::Rolls(_), None) => {}
            }
        });
        if let (Some(key), Some(opening)) = (whose, begins) {
            let session = self.sessions.entry(key).insert_entry(Session::new(key, *opening)).into_mut();
            session.begin(&self.shared, self.source.as_mut());
        }
        while let Some(e) = self.source.take_error() {
            if let Some(session) = self.sessions.get_mut(&e.session) {
                session.disk_failed(e.what, &e.source);
                session.miss(e.messages, 0);
            }
        }
        whose
    }

    fn delivered(&mut self) {
        let Self { source, sessions, .. } = self;
        source.delivered(&mut |key, stream, written, when| {
            if let Some(session) = sessions.get_mut(&key) {
                session.delivered(stream, written, when);
            }
        });
    }

    fn take_lost(&mut self) {
        let Self { source, sessions, .. } = self;
        source.take_lost(&mut |key, messages, bytes| {
            if let Some(session) = sessions.get_mut(&key) {
                session.miss(messages, bytes);
            }
        });
    }

    /// Writes what waits; the captures are released only after it.
    fn flush(&mut self) {
        self.take_lost();
        let Self { shared, source, sessions, .. } = self;
        let (mut is_safe, now) = (true, clock::mono_ns());
        // Asked once: what is collected in memory is written before its capture is released.
        let is_filling = source.is_filling();
        for (key, session) in sessions.iter_mut() {
            let is_written = session.flush(shared, source.as_mut(), is_filling);
            is_safe &= is_written;
            if is_written && !session.needs_captured(now) {
                source.written(*key);
            }
        }
        if !is_safe {
            return;
        }
        if sessions.values().any(|session| session.needs_captured(now)) && !is_filling {
            source.keep();
        } else {
            source.settled();
        }
    }

    /// Ends the sessions that are over while the process continues.
    fn end_sessions(&mut self) {
        let Self { shared, source, sessions, report, .. } = self;
        let over = sessions.extract_if(.., |_, session| {
            let Some(ending) = session.ending.clone() else { return false };
            session.finish(&ending, (false, false), shared, source.as_mut()) == Finish::Over
        });
        over.for_each(|(_, session)| report.add(session.report()));
    }

    /// Ends all sessions. `false`: a disk has room again, and there is more to record first.
    fn finish(&mut self, ending: &Ending) -> bool {
        let held = self.must_wait();
        if !held {
            // It was not closed, and its relay is no longer waited for.
            let Self { source, sessions, .. } = self;
            source.unfinished(&mut |key, messages, bytes| {
                if let Some(session) = sessions.get_mut(&key) {
                    session.miss(messages, bytes);
                }
            });
        }
        self.delivered();
        self.take_lost();
        let Self { shared, source, sessions, report, .. } = self;
        let over = sessions.extract_if(.., |_, session| {
            let ending = session.ending.clone().unwrap_or_else(|| ending.clone());
            session.finish(&ending, (true, held), shared, source.as_mut()) == Finish::Over
        });
        over.for_each(|(_, session)| report.add(session.report()));
        self.sessions.is_empty()
    }
}

#[cfg(test)]
mod tests;
