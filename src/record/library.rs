//! A recording that a server makes of itself: what its threads say is written at once, not taken out of a capture.
//!
//! It has the [`session`](super::session) of every recording: files, chain, retries while a disk fails, gaps. What is said before
//! that could be begun on disk waits here.

use super::{
    broadcast::Silent,
    checkpoint::Certify,
    opening::Opening,
    recorder::{Ending, Step},
    session::{Ended, Finish, RecorderReport, Session, Shared, Synced, Written},
    source::{Delivered, Lost, Seen, SessionKey, Source, SourceError},
};
use crate::{model::SessionId, sys::clock};
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        mpsc::{Receiver, channel, sync_channel},
    },
};

/// Steps that wait until the recording could be begun on disk; each further one is counted as missed.
const MAX_HELD: usize = 4096;

/// A recording that a server makes of itself.
pub struct Library {
    session: Session,
    shared: Shared,
    ended: Receiver<Ended>,
    files: Receiver<Written>,
    held: VecDeque<(u64, Step, u64)>,
    /// Calls that were asked for, which is not in the evidence: their outcomes may not be, either.
    unasked: BTreeSet<u64>,
}

impl Library {
    /// One that begins on disk when it is first flushed.
    #[must_use]
    pub fn new(opening: Opening, certify: Option<Arc<dyn Certify>>) -> Self {
        let (ended, ends) = sync_channel(1);
        let (files, written) = channel();
        let shared = Shared { broadcast: Arc::new(Silent), ended, files, health: Arc::default(), certify };
        let session = Session::new(SessionKey(0), opening);
        Self { session, shared, ended: ends, files: written, held: VecDeque::new(), unasked: BTreeSet::new() }
    }

    /// Records what a server says of its nth call at this time (monotonic ns); `false`: there was no room, and it is counted as missed.
    pub fn step(&mut self, call: u64, step: Step, ns: u64) -> bool {
        if !self.session.has_begun() {
            self.session.flush(&self.shared, &mut Nothing, true);
        }
        if self.session.has_begun() {
            self.take_held();
            return self.put(call, step, ns);
        }
        if self.held.len() >= MAX_HELD {
            if matches!(step, Step::Requested(_)) {
                self.unasked.insert(call);
            }
            self.session.miss(1, 0);
            return false;
        }
        self.held.push_back((call, step, ns));
        true
    }

    fn take_held(&mut self) {
        while let Some((call, step, ns)) = self.held.pop_front() {
            self.put(call, step, ns);
        }
    }

    fn put(&mut self, call: u64, step: Step, ns: u64) -> bool {
        let asks = matches!(step, Step::Requested(_));
        if !asks && self.unasked.contains(&call) {
            // A task has another outcome later.
            if !matches!(&step, Step::Executed(done) if done.result_type.as_deref() == Some("task")) {
                self.unasked.remove(&call);
            }
            self.session.miss(1, 0);
            return false;
        }
        let is_kept = self.session.step(call, step, ns);
        if asks && !is_kept {
            self.unasked.insert(call);
        }
        is_kept
    }

    /// Writes what waits; whether all of it is on disk.
    pub fn flush(&mut self) -> bool {
        self.session.look(clock::wall_minus_mono_ns(), clock::mono_ns());
        let flushed = self.session.flush(&self.shared, &mut Nothing, true);
        let held = !self.held.is_empty();
        if held && self.session.has_begun() {
            self.take_held();
            return self.flush();
        }
        flushed && !held && !self.session.is_failing()
    }

    /// Whether the disk does not take evidence.
    #[must_use]
    pub const fn is_failing(&self) -> bool {
        self.session.is_failing()
    }

    /// The last error of the disk.
    #[must_use]
    pub fn disk_error(&self) -> Option<&str> {
        self.session.disk_error()
    }

    /// Steps that are in no receipt.
    #[must_use]
    pub const fn missed(&self) -> u64 {
        self.session.all_missed()
    }

    /// The files to sync, if they are others than before.
    pub fn new_files(&self) -> Option<Synced> {
        self.files.try_iter().last()?.files
    }

    /// What another process did to the files, and how many bytes that cost. This recording is over then: it is dropped, what
    /// is left of it is for recovery, and another one [follows](Self::follows_damage).
    pub fn look_for_damage(&mut self) -> Option<(String, u64)> {
        self.session.look_for_damage()
    }

    /// The recording before this one lost so many bytes to another process: this one says so.
    pub fn follows_damage(&mut self, bytes: u64) {
        self.session.follows_damage(bytes);
    }

    /// Ends the chain. What is to be sealed, unless the disk failed or nothing was ever on it.
    pub fn end(mut self, ending: &Ending) -> (Option<Ended>, RecorderReport) {
        self.flush();
        let left = self.held.len() as u64;
        self.session.miss(left, 0);
        self.held.clear();
        let _: Finish = self.session.finish(ending, (true, false), &self.shared, &mut Nothing);
        (self.ended.try_recv().ok(), self.session.report())
    }

    /// Records that evidence was lost before it came here.
    pub fn miss(&mut self, steps: u64) {
        self.session.miss(steps, 0);
    }
}

/// There is no capture: what is not on disk is in memory.
struct Nothing;

impl Source for Nothing {
    fn look(&mut self, _: i64) {}
    fn next(&mut self, _: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        false
    }
    fn take_error(&mut self) -> Option<SourceError> {
        None
    }
    fn delivered(&self, _: Delivered<'_>) {}
    fn has_work(&self) -> bool {
        false
    }
    fn is_stuck(&self) -> bool {
        false
    }
    fn is_drained(&self) -> bool {
        true
    }
    fn holds_passed(&self) -> bool {
        false
    }
    fn is_filling(&self) -> bool {
        false
    }
    fn settled(&mut self) {}
    fn keep(&mut self) {}
    fn retry(&mut self) {}
    fn make_room(&mut self, _: &dyn Fn(SessionKey) -> bool) {}
    fn rest(&mut self, _: bool) {}
    fn give_up_stuck(&mut self) -> bool {
        false
    }
    fn take_lost(&mut self, _: Lost<'_>) {}
    fn unfinished(&self, _: Lost<'_>) {}
    fn goes_on_as(&mut self, _: SessionKey, _: SessionId) {}
    fn note_lost(&self, _: SessionKey, _: u64) {}
    fn forget(&mut self, _: SessionKey) {}
}
