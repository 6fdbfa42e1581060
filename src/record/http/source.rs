//! The source of sessions over HTTP: a log and what is known of it.
//!
//! What a source knows is the state of all open exchanges and of the sessions. Before anything is released from the log,
//! this state is written beside it ([`super::state`]): who finishes what a killed process left continues from there. So
//! one half-sent answer does not hold the log for all others, and nothing has to be put aside for each of them.

use super::{
    demux::{Demux, Digest, Open, Spools},
    sessions::SessionMap,
    state::StateFile,
};
use crate::{
    model::{SessionId, Transport, Vocabulary as _},
    record::{
        broadcast::OpenStream,
        lane::NOTE_OWNER,
        source::{Delivered, Lost, Seen, SessionKey, Source, SourceError},
    },
    relay::log::{Entry, LogReader, NoteCode},
    sys::clock,
};
use std::{collections::BTreeMap, io};

/// Shares of the log that evidence may fill that is on disk, in sixteenths, before it is released: writing the state
/// costs more than a release.
const LAZY: u64 = 4;
/// The same where the state is large.
const LAZIEST: u64 = 10;
/// The same while a disk fails, before evidence is let go that is not on disk.
const HELD: u64 = 12;

/// What a source needs from its process.
pub struct Parts {
    /// The log.
    pub reader: LogReader,
    /// Bytes that fit into it.
    pub capacity: usize,
    /// The sessions.
    pub map: SessionMap,
    /// Opens a session; `None` for a bridge, whose session is begun elsewhere.
    pub open: Option<Open>,
    /// The digest of a target.
    pub digest: Digest,
    /// Where large messages are kept.
    pub spools: Spools,
    /// Whether a guard decides what passes.
    pub guarded: bool,
}

/// The share of the log that is taken in one round, and that waits before a pause, in sixteenths: who fills the log has
/// some of it back while the rest is read.
const ROUND: u64 = 2;
/// How long a recorder works before it gives way to others, ns.
const TURN_NS: u64 = 100_000;

/// Sessions over HTTP, out of a log.
pub struct HttpSource {
    reader: LogReader,
    capacity: u64,
    demux: Demux,
    /// `None` where the log does not survive the process either.
    state: Option<StateFile>,
    /// Up to where everything is on disk, offset in the log.
    settled: u64,
    /// What was taken when the round began, offset in the log.
    looked: u64,
    /// When others were given way, monotonic ns.
    rested_ns: u64,
    /// It must not be released yet, although it is.
    kept: bool,
    guarded: bool,
    /// Its process is dead, and what it left is not read to its end yet.
    left: bool,
    errors: Vec<SourceError>,
    /// Offset in the log of the first entry of each session whose evidence is not on disk.
    unwritten: BTreeMap<SessionKey, u64>,
    /// Offset in the log of the entry that was taken last.
    at: u64,
    /// Bytes that could not be read from the log, and that no session has counted.
    unreadable: u64,
}

impl HttpSource {
    /// The source of a process that begins.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { reader, capacity, map, open, digest, spools, guarded } = parts;
        let mut demux = Demux::new(map, open, digest, spools, guarded);
        demux.pulse = reader.pulse();
        Self {
            capacity: capacity as u64,
            state: reader.path().map(StateFile::beside),
            settled: reader.taken(),
            looked: reader.taken(),
            rested_ns: 0,
            reader,
            demux,
            kept: false,
            guarded,
            left: false,
            errors: Vec::new(),
            unwritten: BTreeMap::new(),
            at: 0,
            unreadable: 0,
        }
    }

    /// What a dead process left: its log, and what it knew of the part that is released.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn left(parts: Parts) -> io::Result<Self> {
        let mut source = Self::new(parts);
        let state = source.state.as_ref().map(StateFile::read).transpose()?.flatten();
        if let Some(state) = state {
            source.reader.skip_to(state.at);
            source.demux.restore(state)?;
        }
        source.state = None;
        source.left = true;
        Ok(source)
    }

    /// Wall clock minus monotonic clock, as the log has it, ns.
    #[must_use]
    pub fn wall_offset(&self) -> i64 {
        self.reader.wall_offset()
    }

    /// The transport that a bridge will say its server speaks, if that is in the log and was not taken yet.
    #[must_use]
    pub fn speaks(&self) -> Option<Transport> {
        self.reader.ahead().find_map(|record| match record.entry {
            Entry::Note { code: NoteCode::Speaks, text } => Transport::of(text.as_bytes()),
            _ => None,
        })
    }

    /// When what is handed out next was put in, monotonic ns.
    #[must_use]
    pub fn upcoming(&self) -> Option<u64> {
        if self.demux.waits() { Some(0) } else { self.reader.ahead().next().map(|record| record.ns) }
    }

    /// As [`Source::next`], of what was put in up to this time.
    pub fn next_until(&mut self, until: u64, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        let mut of = None;
        let any = self.hand_out_until(until, &mut |key, seen| {
            of = Some(key);
            take(key, seen);
        });
        if let Some(key) = of {
            self.unwritten.entry(key).or_insert(self.at);
        }
        any
    }

    fn hand_out_until(&mut self, until: u64, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        let mut any = self.demux.hand_out(take);
        while !any {
            if until != u64::MAX && self.upcoming().is_none_or(|ns| ns > until) {
                return false;
            }
            let Some(record) = self.reader.next() else {
                if std::mem::take(&mut self.left) {
                    self.demux.killed(self.demux.ticked_ns, &mut |key, seen| {
                        any = true;
                        take(key, seen);
                    });
                }
                return any || self.demux.hand_out(take);
            };
            self.at = record.at;
            self.demux.take(record.flow, record.ns, record.entry, &mut |key, seen| {
                any = true;
                take(key, seen);
            });
            for (session, what, source) in self.demux.errors.drain(..) {
                self.errors.push(SourceError { session, what, messages: 1, source });
            }
            any = any || self.demux.hand_out(take);
        }
        true
    }

    /// Whether nothing more will be put in.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.reader.is_closed()
    }

    /// Of what passed unrecorded and no entry tells of: bytes, and other entries. Of a log that was left behind.
    #[must_use]
    pub fn untold(&self) -> (u64, u64) {
        self.reader.untold()
    }

    /// Removes the log and the state beside it: everything in them is on disk elsewhere.
    pub fn remove(&self) {
        if let Some(path) = self.reader.path() {
            StateFile::beside(path).remove();
        }
        if let Err(e) = self.reader.remove() {
            tracing::warn!(error = %e, "a log of exchanges could not be removed");
        }
    }

    /// The sessions and exchanges that are open.
    #[must_use]
    pub fn demux(&self) -> &Demux {
        &self.demux
    }

    /// Releases what is on disk, once it is worth it; `now`: at once.
    fn release(&mut self, now: bool) {
        let held = self.settled.saturating_sub(self.reader.tail());
        let size = self.state.as_ref().map_or(0, |state| state.size);
        let worth = (self.capacity * LAZY / 16).max(size / 2).min(self.capacity * LAZIEST / 16);
        if held == 0 || !now && held < worth || self.demux.waits() {
            return;
        }
        if let Some(file) = &mut self.state
            && let Err(e) = file.write(&self.demux.state(self.settled))
        {
            tracing::warn!(error = %e, path = %file.path().display(), "what is open could not be written down");
            if held < self.capacity * HELD / 16 {
                return;
            }
        }
        self.reader.release(self.settled);
    }
}

impl Source for HttpSource {
    fn prefault(&self) {
        self.reader.prefault();
    }

    fn look(&mut self, wall_minus_mono_ns: i64) {
        self.looked = self.reader.taken();
        self.reader.set_wall_offset(wall_minus_mono_ns);
        if !self.has_work() {
            self.demux.tick(clock::mono_ns());
        }
    }

    fn next(&mut self, take: &mut dyn FnMut(SessionKey, Seen<'_>)) -> bool {
        let now = clock::mono_ns();
        if now.saturating_sub(self.rested_ns) > TURN_NS {
            self.rested_ns = now;
            // A thread that was woken for what crosses waits for the end of this one's turn.
            if !self.presses() && !self.reader.is_closed() {
                std::thread::yield_now();
            }
        }
        self.next_until(u64::MAX, take)
    }

    fn take_error(&mut self) -> Option<SourceError> {
        self.errors.pop()
    }

    fn delivered(&self, _: Delivered<'_>) {}

    fn streams(&self, tell: &mut dyn FnMut(SessionKey, OpenStream)) {
        self.demux.streams(self.reader.wall_offset(), tell);
    }

    fn has_work(&self) -> bool {
        self.demux.waits() || self.reader.head() > self.reader.taken()
    }

    fn come(&self) -> u64 {
        if self.demux.waits() { self.at } else { self.reader.taken() }
    }

    fn is_stuck(&self) -> bool {
        false
    }

    fn is_drained(&self) -> bool {
        self.reader.is_closed() && !self.has_work()
    }

    fn holds_passed(&self) -> bool {
        self.guarded && self.reader.taken() > self.settled
    }

    fn is_filling(&self) -> bool {
        self.reader.is_filling()
    }

    fn has_given_much(&self) -> bool {
        self.reader.taken() - self.looked > self.capacity * ROUND / 16
    }

    fn presses(&self) -> bool {
        self.reader.head() - self.reader.taken() > self.capacity * ROUND / 16
    }

    fn settled(&mut self) {
        self.kept = false;
        self.unwritten.clear();
        if !self.demux.waits() {
            self.settled = self.reader.taken();
        }
        self.release(false);
    }

    fn keep(&mut self) {
        self.kept = true;
    }

    fn retry(&mut self) {}

    fn written(&mut self, session: SessionKey) {
        self.unwritten.remove(&session);
    }

    fn make_room(&mut self, failing: &dyn Fn(SessionKey) -> bool) {
        let held = self.reader.taken().saturating_sub(self.reader.tail());
        let any = self.unwritten.keys().any(|key| failing(*key));
        if any && !self.guarded && held > self.capacity * HELD / 16 {
            // What crosses goes before evidence that a disk does not take, but for that of sessions whose disk does.
            self.unwritten.retain(|key, _| !failing(*key));
            self.settled = self.unwritten.values().copied().min().unwrap_or_else(|| self.reader.taken());
            self.reader.release(self.settled);
        }
    }

    fn rest(&mut self, give_back: bool) {
        if give_back && self.settled == self.reader.head() && !self.kept {
            self.release(true);
        }
        self.reader.rewind(give_back);
    }

    fn give_up_stuck(&mut self) -> bool {
        false
    }

    fn take_lost(&mut self, lost: Lost<'_>) {
        let unreadable = self.reader.unreadable();
        if let Some(key) = self.demux.any_session().filter(|_| unreadable > self.unreadable) {
            lost(key, 0, unreadable - self.unreadable);
            self.unreadable = unreadable;
        }
    }

    fn unfinished(&self, lost: Lost<'_>) {
        self.demux.unfinished(lost);
    }

    fn goes_on_as(&mut self, session: SessionKey, id: SessionId) {
        if self.demux.map.is_bridge() {
            self.reader.set_note(NOTE_OWNER, id.bits());
        }
        if self.demux.ids.insert(session, id).is_some_and(|before| before != id) {
            // What is in the log belongs to the one before.
            self.settled = self.reader.taken();
            self.release(true);
        }
    }

    fn note_lost(&self, session: SessionKey, bytes: u64) {
        tracing::warn!(?session, bytes, "bytes of a session are in no chain");
    }

    fn forget(&mut self, session: SessionKey) {
        self.demux.ids.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::http::sessions::Limits,
        relay::{
            Waker,
            log::{self, ExchangeLog as _, Flow},
        },
    };
    use std::sync::Arc;

    #[test]
    fn where_one_disk_fails_the_evidence_of_other_sessions_stays() {
        let tmp = tempfile::tempdir().unwrap();
        let waker = Arc::new(Waker::new());
        let capacity = 64 << 10;
        let dirs = [tmp.path().join("ring")];
        let (writer, reader, _) = log::create(&dirs, "0123456789abcdef", capacity, &waker).unwrap();
        let mut source = HttpSource::new(Parts {
            reader,
            capacity,
            map: SessionMap::new(1, Limits::default()),
            open: None,
            digest: Box::new(|_| String::new()),
            spools: Box::new(|_| None),
            guarded: false,
        });
        // What it is does not matter here, but whose: without a session, all that is unknown is of one.
        let put = |bytes| writer.put(Flow::response(1), &Entry::Gap { offset: 0, bytes });
        let (good, bad) = (SessionKey(5), SessionKey(6));
        for n in 0..1000 {
            put(n);
            while source.next(&mut |_, _| ()) {}
            source.written(SessionKey(0));
            let key = if n % 2 == 0 { good } else { bad };
            source.unwritten.entry(key).or_insert(source.at);
        }
        let first_of_good = source.unwritten[&good];
        let held = source.reader.taken() - source.reader.tail();
        assert!(held < capacity as u64 * HELD / 16, "{held}");
        source.make_room(&|key| key == bad);
        assert_eq!(source.reader.tail(), 0, "there is room");
        for n in 0..300 {
            put(n);
            while source.next(&mut |_, _| ()) {}
            source.written(SessionKey(0));
        }
        source.make_room(&|_| false);
        assert_eq!(source.reader.tail(), 0, "no disk fails");
        source.make_room(&|key| key == bad);
        assert_eq!((source.reader.tail(), source.unwritten.get(&bad)), (first_of_good, None));
        source.written(good);
        source.unwritten.insert(bad, 0);
        source.make_room(&|key| key == bad);
        assert_eq!(source.reader.tail(), source.reader.taken());
    }
}
