//! How a session rolls over into the next, and how it ends.

use super::{Closing, Ended, Live, RETRY, Session, Shared, Written, fresh};
use crate::{
    model::{EndReason, GapReason, SessionId},
    record::{
        opening::PackInterval,
        recorder::{Ending, Recorder},
        source::Source,
    },
    sys::clock,
};
use std::{
    sync::{atomic::Ordering, mpsc::TrySendError},
    time::{Duration, Instant},
};

/// How often writing the last evidence is tried when the disk fails at the end of the process.
const LAST_TRIES: u32 = 5;
/// How often the files are checked for changes by another process.
const LOOK: Duration = Duration::from_secs(1);

/// How far the end of a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::record) enum Finish {
    /// The session has ended: nothing is left to write.
    Over,
    /// The disk has room again, and there may be more to be taken first; or it fails, and the process continues.
    NotYet,
}

impl Session {
    /// Prepares the session that follows: whenever we are killed from here on, recovery finds whose the messages are
    /// that the captures hold, and which calls go over. `None`: that could not be made sure, and nothing has changed.
    fn make_way(&mut self, shared: &Shared, what: &str) -> Option<Live> {
        let next = fresh()?;
        let live = self.live.take()?;
        let before = std::mem::replace(&mut self.next, next);
        if let Some(marks) = self.opening.dir.marks()
            && let Err(e) = marks.begin(&self.opening.dir, next.session, next.started_at)
        {
            tracing::warn!(error = %e, "the mark of the next session could not be written");
        }
        let paths = self.opening.dir.session(next.started_at, next.session);
        let card = self.card(shared, Some(live.recorder.session()), live.recorder.identity());
        if let Err(e) = card.write(&paths) {
            self.next = before;
            self.live = Some(live);
            self.disk_failed(what, &e);
            return None;
        }
        Some(live)
    }

    /// The session before has its end: the one that was prepared continues.
    fn follow(&mut self, mut recorder: Recorder, segment_len: u64, shared: &Shared, source: &mut dyn Source) {
        let (before, next) = (recorder.session(), self.next.session);
        shared.broadcast.ended(before, segment_len, Some(next));
        Self::no_files(before, shared);
        source.goes_on_as(self.key, next);
        recorder.set_policy(self.opening.feed.in_force());
        self.rolled = Some(recorder);
        self.begin(shared, source);
    }

    fn no_files(session: SessionId, shared: &Shared) {
        let _ = shared.files.send(Written { session, files: None });
    }

    pub(in crate::record) fn roll_if_due(&mut self, shared: &Shared, source: &mut dyn Source) {
        let Some(live) = &self.live else { return };
        if self.is_failing() {
            return;
        }
        if let Some(reason) = self.rolls {
            self.roll(reason, true, shared, source);
            return;
        }
        let due = match self.opening.interval {
            PackInterval::Session => false,
            PackInterval::Every(period) => live.began.elapsed() >= period,
            PackInterval::Receipts(n) => live.recorder.receipts() > n,
        };
        let failed = self.sync_failed.swap(false, Ordering::AcqRel);
        if due && !failed && live.recorder.chain().len() > 1 {
            self.roll(EndReason::Rolled, true, shared, source);
        } else if failed {
            // What the failed sync covered may be gone from disk: another segment starts clean.
            self.roll(EndReason::FsyncFailed, false, shared, source);
        }
    }

    fn roll(&mut self, reason: EndReason, clean: bool, shared: &Shared, source: &mut dyn Source) {
        let Some(Live { mut store, mut recorder, card, .. }) = self.make_way(shared, "rolling over") else { return };
        let ending = Ending {
            reason: reason.into(),
            clean,
            pending_is_clean: true,
            carries_over: true,
            live_events_missed: shared.broadcast.take_missed(recorder.session()),
            ..Ending::default()
        };
        let (surface, pinned) = (recorder.surface(), recorder.pinned());
        let doc = recorder.end(&ending, clock::mono_ns());
        let mut lines = std::mem::take(&mut recorder.lines);
        let written = store.write(&mut lines);
        self.rolls = None;
        self.follow(recorder, store.segment_len(), shared, source);
        let ended = Ended { store, doc, surface, pinned, card };
        match written {
            Ok(()) => self.hand_over(ended, false, shared),
            Err(e) => {
                self.disk_failed("ending a segment", &e);
                self.closing.push(Closing { ended, lines });
            }
        }
    }

    /// Hands the session to the sealer. If that has no place left, it is left as if this process had died here; at the
    /// end of the process (`is_last`), when nothing else has to be recorded, it is waited for.
    fn hand_over(&mut self, ended: Ended, is_last: bool, shared: &Shared) {
        if is_last {
            // Without a sealer there are no packs.
            let _ = shared.ended.send(ended);
        } else if let Err(TrySendError::Full(ended)) = shared.ended.try_send(ended) {
            tracing::warn!(session = %ended.doc.session_id, "too many sessions wait for their packs; this one is recovered");
            self.report.damaged = true;
        }
    }

    /// Writes the ends of chains that ended while the disk failed; whether none is left.
    pub(super) fn close_ended(&mut self, shared: &Shared) -> bool {
        while let Some(mut closing) = self.closing.pop() {
            if let Err(e) = closing.ended.store.write(&mut closing.lines) {
                self.closing.push(closing);
                self.disk_failed("ending a segment", &e);
                return false;
            }
            self.hand_over(closing.ended, false, shared);
        }
        true
    }

    /// What another process did to the files while they are written, and how many bytes that cost, at least one. Looked at
    /// once in a while.
    pub(in crate::record) fn look_for_damage(&mut self) -> Option<(String, u64)> {
        if self.is_failing() || self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        let (what, bytes) = self.live.as_ref().and_then(|live| live.store.damage())?;
        // The whole directory may be gone. If it cannot be made, the next segment cannot be begun, which is said.
        let _ = self.opening.dir.create();
        Some((what, bytes.max(1)))
    }

    /// Says in the chain that so many bytes of evidence before it were damaged.
    pub(in crate::record) fn follows_damage(&mut self, bytes: u64) {
        self.damage += bytes;
    }

    /// A session ends if another process cuts, replaces or removes its files while it is written: what is there stays
    /// as it is, for `recover`, and another segment is begun, which says so.
    pub(in crate::record) fn look_at_files(&mut self, shared: &Shared, source: &mut dyn Source) {
        let Some((what, bytes)) = self.look_for_damage() else { return };
        tracing::error!("{what}; another segment is begun");
        eprintln!(
            "assay: warning: {what}; another segment is begun, and what is left of this one is recovered at the end"
        );
        let Some(live) = self.make_way(shared, "beginning another segment") else { return };
        self.report.damaged = true;
        self.report.disk_error.get_or_insert(what);
        self.follows_damage(bytes);
        self.follow(live.recorder, live.store.segment_len(), shared, source);
    }

    /// Ends the session. `is_last`: the process ends, and a disk that fails is not waited for any longer. `held`: what
    /// passed under a guard waits for room on the disk, and more of it in the captures.
    pub(in crate::record) fn finish(
        &mut self,
        ending: &Ending,
        (is_last, held): (bool, bool),
        shared: &Shared,
        source: &mut dyn Source,
    ) -> Finish {
        if !is_last && self.is_failing() {
            return Finish::NotYet;
        }
        self.say_missed();
        (self.report.missed_messages, self.report.missed_bytes) = self.missed;
        let Some(mut live) = self.live.take() else { return self.finish_unbegun(is_last, shared, source) };
        let mut written = live.store.write(&mut live.recorder.lines);
        for _ in 0..if is_last { LAST_TRIES } else { 0 } {
            if written.is_ok() {
                break;
            }
            std::thread::sleep(RETRY);
            written = live.store.write(&mut live.recorder.lines);
        }
        if let Err(e) = written {
            self.disk_failed("writing the last evidence", &e);
            if is_last {
                // The chain stays open: `recover` continues from the capture and ends it as what it is.
                self.report.left_for_recovery = true;
                return Finish::Over;
            }
            self.live = Some(live);
            return Finish::NotYet;
        }
        if held {
            self.live = Some(live);
            return Finish::NotYet;
        }
        if !self.close_ended(shared) {
            self.report.left_for_recovery = true;
        }
        let (messages, bytes) = std::mem::take(&mut self.unsaid);
        if messages + bytes > 0 {
            live.recorder.gap(GapReason::Disk, messages, bytes, clock::mono_ns());
        }
        let (surface, pinned) = (live.recorder.surface(), live.recorder.pinned());
        self.report.violations = live.recorder.violations();
        self.report.drifts = live.recorder.drifts();
        let ending =
            Ending { live_events_missed: shared.broadcast.take_missed(live.recorder.session()), ..ending.clone() };
        let ended_ns = clock::mono_ns();
        while live.recorder.close_open(&ending, ended_ns, 4 << 20) {
            // What is not written waits for the rest of the end.
            if live.store.write(&mut live.recorder.lines).is_err() {
                break;
            }
        }
        self.report.not_followed = live.recorder.all_not_followed();
        let doc = live.recorder.end(&ending, ended_ns);
        (self.report.missed_messages, self.report.missed_bytes) = (doc.counts.missed, doc.counts.missed_bytes);
        let Live { mut store, mut recorder, card, .. } = live;
        let written = store.write(&mut recorder.lines);
        let (session, segment_len) = (recorder.session(), store.segment_len());
        let ended = Ended { store, doc, surface, pinned, card };
        if let Err(e) = written {
            self.disk_failed("ending the segment", &e);
            if is_last {
                self.report.left_for_recovery = true;
                return Finish::Over;
            }
            self.closing.push(Closing { ended, lines: recorder.lines });
            self.is_ended = true;
            return Finish::NotYet;
        }
        shared.broadcast.ended(session, segment_len, None);
        Self::no_files(session, shared);
        source.forget(self.key);
        self.hand_over(ended, is_last, shared);
        Finish::Over
    }

    /// There is no session on disk to end.
    fn finish_unbegun(&mut self, is_last: bool, shared: &Shared, source: &mut dyn Source) -> Finish {
        if self.is_ended {
            let last = self.closing.last().map(|closing| &closing.ended);
            let last = last.map(|ended| (ended.doc.session_id, ended.store.segment_len()));
            if self.close_ended(shared) {
                if let Some((session, segment_len)) = last {
                    shared.broadcast.ended(session, segment_len, None);
                    Self::no_files(session, shared);
                }
                source.forget(self.key);
                return Finish::Over;
            }
            self.report.left_for_recovery = is_last;
            return if is_last { Finish::Over } else { Finish::NotYet };
        }
        let card = self.opening.dir.session(self.next.started_at, self.next.session).card;
        if self.rolled.is_some() && self.opening.dir.files().exists(&card) {
            // A session that could not be begun after one that was: `recover` begins it, for the calls that rolled
            // over.
            source.note_lost(self.key, self.unsaid.1);
            self.report.left_for_recovery = true;
        } else {
            self.report.nothing_recorded = true;
            source.forget(self.key);
            self.forget_card();
        }
        Finish::Over
    }
}
