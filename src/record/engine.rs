//! The recorder thread: takes messages out of the captures in the order in which they crossed, has them recorded, and
//! releases the captures once the evidence is on disk.
//!
//! It is never woken per message and never waited for by the forwarding path, unless a capture is full. While a disk
//! fails it keeps what it can (the ring, then lines in memory) and counts what it cannot.

use super::{
    broadcast::{Begun, Broadcast, Progress},
    card::Card,
    judgement::{Advisor, Health, News},
    lane::{self, Lane, Taken},
    recorder::{BigPayload, Clock, Ending, Lines, Message, Recorder, Setup},
    store::Store,
    stream::StreamId,
};
use crate::model::words::{EndReason, GapReason, OutcomeReason};
use crate::{
    model::{Direction, SessionDoc, SessionId, WallTime, session::Identity},
    paths::AuditDir,
    relay::{Pacer, Waker},
    sys::clock,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, TryRecvError},
    },
    time::{Duration, Instant},
};

/// Lines that wait in memory while a disk fails; beyond this, messages are counted instead of recorded.
const MAX_WAITING: usize = 8 << 20;
/// How full a capture may get with evidence that could not be written before it is released all the same.
const HELD_PERCENT: u64 = 75;
/// Messages are written out at least this often within one burst.
const BURST: usize = 512;
/// After so much work, 0.1 ms, others that wait for the processor go first.
const TURN_NS: u64 = 100_000;
/// Quiet time after which captures that have grown give memory back: the next burst may come soon. 1 s.
const GIVE_BACK_NS: u64 = 1_000_000_000;
/// Pause between two attempts on a disk that fails.
const RETRY: Duration = Duration::from_millis(100);
/// Pause between two attempts to begin a session on disk.
const RETRY_BEGIN: Duration = Duration::from_secs(2);
/// How often the last evidence is tried to be written when the disk fails at the end.
const LAST_TRIES: u32 = 5;
/// After the session's end, a capture that gives nothing for so long is not waited for any more.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// How often it is looked whether somebody else has changed the files.
const LOOK: Duration = Duration::from_secs(1);

/// When a pack is closed and the next one begun (`--pack-interval`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackInterval {
    /// One pack for the session.
    Session,
    /// Every so often.
    Every(Duration),
    /// After so many receipts.
    Receipts(u64),
}

/// A session whose chain has ended and whose files wait to be sealed.
#[derive(Debug)]
pub struct Ended {
    /// Its open files; their lock keeps recovery away.
    pub store: Store,
    /// `session.json`.
    pub doc: SessionDoc,
    /// `surface.json`.
    pub surface: Option<Vec<u8>>,
    /// Its card in `live/`.
    pub card: Card,
}

/// What became of the recording when the engine ended.
#[derive(Debug, Default)]
pub struct Report {
    /// Messages whose evidence was lost.
    pub missed_messages: u64,
    /// Wire bytes that crossed unrecorded.
    pub missed_bytes: u64,
    /// Those of the messages that were requests beyond what is followed in flight.
    pub not_followed: u64,
    /// The last error of the disk, with what was being done.
    pub disk_error: Option<String>,
    /// Evidence of the last session stayed in the capture, for `recover`.
    pub left_for_recovery: bool,
    /// No session could be begun on disk at all.
    pub nothing_recorded: bool,
    /// Messages that the policy rejects, enforced or not.
    pub violations: u64,
    /// Somebody else changed files of a session while it was written: what is left of it waits for `recover`.
    pub damaged: bool,
}

/// What is still under way, as whoever ends the session has to know it.
#[derive(Debug)]
pub struct Activity {
    /// Set by whoever wants to know `in_flight`; counting costs something.
    pub asked: AtomicBool,
    /// The client's requests that wait for their answers.
    pub in_flight: AtomicU64,
    /// Stream offset up to which the client has taken what the server said.
    pub written: AtomicU64,
    /// Stream offset up to which the client has said something.
    pub said: AtomicU64,
}

impl Activity {
    /// Nobody has counted, or nobody can.
    pub const UNKNOWN: u64 = u64::MAX;
}

impl Default for Activity {
    fn default() -> Self {
        let in_flight = AtomicU64::new(Self::UNKNOWN);
        Self { asked: AtomicBool::new(false), in_flight, written: AtomicU64::new(0), said: AtomicU64::new(0) }
    }
}

/// What the engine is given.
pub struct Config {
    /// Audit directory.
    pub dir: AuditDir,
    /// What does not change.
    pub setup: Arc<Setup>,
    /// The first session.
    pub session: SessionId,
    /// When the process began, monotonic ns.
    pub started_ns: u64,
    /// When it began, wall clock.
    pub started_at: WallTime,
    /// When packs are closed.
    pub interval: PackInterval,
    /// What the session's end is told of what is still under way.
    pub activity: Arc<Activity>,
    /// A sync failed: the segment must not be trusted any more.
    pub sync_failed: Arc<AtomicBool>,
    /// Told what is on disk.
    pub broadcast: Arc<dyn Broadcast>,
    /// Ended sessions go here.
    pub ended: Sender<Ended>,
    /// New files to sync go here.
    pub files: Sender<Vec<std::fs::File>>,
    /// Judges what passes in any case (audit with a policy).
    pub advisor: Option<Box<dyn Advisor>>,
    /// The policy in force.
    pub news: Arc<News>,
    /// Told how the recorder is.
    pub health: Arc<Health>,
}

struct Live {
    store: Store,
    recorder: Recorder,
    card: Card,
    began: Instant,
    /// Length of the segment that the broadcast knows.
    told: u64,
}

/// A session that was rolled over, and whose end is not on disk yet.
struct Closing {
    ended: Ended,
    lines: Lines,
}

/// The session that is begun next.
#[derive(Debug, Clone, Copy)]
struct Next {
    session: SessionId,
    started_ns: u64,
    started_at: WallTime,
}

/// The engine; [`Engine::run`] is the recorder thread.
pub struct Engine {
    config: Config,
    lanes: [Lane; 2],
    waker: Arc<Waker>,
    live: Option<Live>,
    retry_at: Option<Instant>,
    missed: (u64, u64),
    /// What of `missed` is in no chain yet.
    unsaid: (u64, u64),
    report: Report,
    next: Next,
    /// What goes over into the next session, as long as that cannot be begun on disk.
    rolled: Option<Recorder>,
    closing: Vec<Closing>,
    looked: Instant,
    /// Evidence that somebody else destroyed, in bytes, and that no chain tells of yet.
    damage: u64,
    /// It was said that there are no locks.
    said_unlocked: bool,
    /// When something came last, monotonic ns.
    worked_ns: u64,
    /// When others went first, monotonic ns.
    rested_ns: u64,
    /// The captures still hold messages whose evidence is on disk.
    kept: bool,
}

impl Engine {
    /// An engine over the two directions, client to server first.
    #[must_use]
    pub fn new(config: Config, lanes: [Lane; 2], waker: Arc<Waker>) -> Self {
        let next = Next { session: config.session, started_ns: config.started_ns, started_at: config.started_at };
        Self {
            config,
            lanes,
            waker,
            live: None,
            retry_at: None,
            worked_ns: 0,
            rested_ns: 0,
            kept: false,
            missed: (0, 0),
            unsaid: (0, 0),
            report: Report::default(),
            next,
            rolled: None,
            closing: Vec::new(),
            looked: Instant::now(),
            damage: 0,
            said_unlocked: false,
        }
    }

    /// Records until `finish` brings an ending and the captures are drained.
    pub fn run(mut self, finish: &Receiver<Ending>) -> Report {
        let mut pacer = Pacer::default();
        let mut ending = None;
        let mut worked_at = Instant::now();
        for lane in &self.lanes {
            lane.consumer().prefault();
            if let Some(judgements) = lane.judgements() {
                judgements.prefault();
            }
        }
        self.begin();
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
                if waited && self.give_up_stuck() {
                    continue;
                }
                if (waited || self.lanes.iter().all(Lane::is_drained)) && self.finish(ending) {
                    return self.report;
                }
            }
            self.roll_if_due();
            self.look_at_files();
            let deepest = if ending.is_some() { Duration::from_millis(1) } else { self.deepest() };
            let lanes = &self.lanes;
            // What waits behind a message that has no room is looked at when that is tried again.
            let has_work = || lanes.iter().any(Lane::has_work) && !lanes.iter().any(Lane::is_stuck);
            pacer.pause(&self.waker, worked, deepest, has_work);
        }
    }

    fn deepest(&self) -> Duration {
        match (self.retry_at, self.config.interval) {
            (Some(at), _) => at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
            (None, PackInterval::Every(_)) => Duration::from_millis(250),
            _ => Duration::from_secs(1),
        }
    }

    /// One look at everything; returns whether there was anything.
    fn round(&mut self) -> bool {
        let now = clock::mono_ns();
        let offset = clock::wall_minus_mono_ns();
        for lane in &self.lanes {
            lane.consumer().set_wall_offset(offset);
        }
        self.config.activity.written.store(self.lanes[1].consumer().written(), Ordering::Relaxed);
        self.config.activity.said.store(self.lanes[0].consumer().head(), Ordering::Relaxed);
        if let Some(live) = &mut self.live {
            live.recorder.clock_now(offset, now);
        }
        self.policy_news(now);
        let mut worked = false;
        for _ in 0..BURST {
            if self.must_wait() {
                break;
            }
            let Some(which) = self.earliest() else { break };
            worked = true;
            self.take(which);
            self.delivered();
            self.say_health();
            if self.live.as_ref().is_some_and(|l| l.recorder.lines.len() > 1 << 20) {
                break;
            }
        }
        self.delivered();
        self.say_in_flight();
        self.flush();
        self.make_room();
        if worked {
            self.worked_ns = now;
        }
        let give_back = now.saturating_sub(self.worked_ns) > GIVE_BACK_NS;
        self.lanes.iter_mut().for_each(|lane| lane.rewind(give_back));
        self.say_health();
        worked
    }

    fn say_in_flight(&self) {
        let activity = &self.config.activity;
        if !activity.asked.load(Ordering::Relaxed) {
            return;
        }
        let asked = self.live.as_ref().map(|live| live.recorder.asked() as u64);
        activity.in_flight.store(asked.unwrap_or(Activity::UNKNOWN), Ordering::Relaxed);
    }

    fn say_health(&self) {
        self.config.health.beat(self.live.is_some() && self.retry_at.is_none());
    }

    /// Puts reloads of the policy into the chain.
    fn policy_news(&mut self, now: u64) {
        let Some(live) = &mut self.live else { return };
        for reload in self.config.news.take() {
            live.recorder.reloaded(reload, now);
        }
    }

    fn earliest(&mut self) -> Option<usize> {
        let first = lane::earliest(&mut self.lanes);
        for which in 0..self.lanes.len() {
            if let Some(e) = self.lanes[which].take_failure() {
                self.disk_failed("spooling a large message", &e);
            }
        }
        first.ok().flatten()
    }

    /// A guard's captures keep what cannot be written: a call that passed must not be in a gap's bytes.
    fn must_wait(&self) -> bool {
        let is_full = || self.live.as_ref().is_some_and(|l| l.recorder.lines.len() >= MAX_WAITING);
        self.retry_at.is_some() && self.lanes.iter().any(Lane::holds_passed) && is_full()
    }

    /// Gives up messages that no spool has room for; whether there was one.
    fn give_up_stuck(&mut self) -> bool {
        let mut any = false;
        for which in 0..self.lanes.len() {
            if self.lanes[which].is_stuck() {
                let bytes = self.lanes[which].give_up();
                self.miss(1, bytes);
                any = true;
            }
        }
        any
    }

    fn take(&mut self, which: usize) {
        let now = clock::mono_ns();
        let Self { lanes, live, .. } = self;
        let lane = &mut lanes[which];
        if now.saturating_sub(self.rested_ns) > TURN_NS {
            lane.give_way();
            self.rested_ns = now;
        }
        let read_ns = lane.peek().ok().flatten().unwrap_or(now);
        let mut unstored = None;
        // What is lost: messages, bytes, and whether the chain says so already.
        let taken = lane.take(read_ns, |taken| match (taken, live.as_mut()) {
            (Taken::Message(m), Some(live)) if live.recorder.lines.len() < MAX_WAITING => {
                let big = live.recorder.message(m);
                (0, write_big(live, m, &big, &mut unstored), false)
            }
            (Taken::Message(m), _) => (u64::from(!m.bytes.is_empty()), m.bytes.len() as u64, false),
            (Taken::Torn(bytes), _) => (1, bytes, false),
            (Taken::Gap(bytes), Some(live)) if live.recorder.lines.len() < MAX_WAITING => {
                live.recorder.gap(GapReason::CaptureStuck, 0, bytes, now);
                (0, bytes, true)
            }
            (Taken::Gap(bytes), _) => (0, bytes, false),
        });
        match taken {
            Ok(None) => {}
            Ok(Some((messages, bytes, true))) => {
                self.missed.0 += messages;
                self.missed.1 += bytes;
            }
            Ok(Some((messages, bytes, false))) => self.miss(messages, bytes),
            Err(e) => {
                self.disk_failed("reading a spooled message", &e);
                self.miss(1, 0);
            }
        }
        if let Some(e) = unstored {
            self.disk_failed("storing a payload", &e);
        }
    }

    fn miss(&mut self, messages: u64, bytes: u64) {
        for count in [&mut self.missed, &mut self.unsaid] {
            count.0 += messages;
            count.1 += bytes;
        }
    }

    fn delivered(&mut self) {
        let Some(live) = &mut self.live else { return };
        for lane in &self.lanes {
            let written = lane.consumer().written();
            live.recorder
                .delivered(StreamId::Stdio(lane.direction()), written, &|offset| lane.consumer().write_mark(offset));
        }
    }

    /// Writes what waits; the captures are released only behind it.
    fn flush(&mut self) {
        if self.live.is_none() {
            if self.retry_at.is_none_or(|at| at <= Instant::now()) {
                self.begin();
            }
            self.lanes.iter_mut().for_each(Lane::settled);
            return;
        }
        if self.retry_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        let Some(live) = &mut self.live else { return };
        if let Some(surface) = live.recorder.new_surface()
            && let Err(e) = live.store.surface(&surface)
        {
            tracing::warn!(error = %e, "the observed surface could not be written; it goes into the pack all the same");
        }
        if let Err(e) = live.store.write(&mut live.recorder.lines) {
            return self.disk_failed("writing evidence", &e);
        }
        if self.retry_at.take().is_some() {
            if !self.lanes.iter().any(Lane::is_stuck) {
                tracing::info!("evidence can be written again");
            }
            self.lanes.iter_mut().for_each(Lane::retry);
        }
        self.close_rolled();
        // What was let go of is told by the captures until the chain tells it.
        if self.say_missed() {
            self.announce();
            self.kept = self.keeps_captured();
            if !self.kept {
                self.lanes.iter_mut().for_each(Lane::settled);
            }
        }
    }

    /// Whether the captures keep what is on disk a little longer: whoever finishes this session after a crash needs it.
    fn keeps_captured(&self) -> bool {
        let needs = |live: &Live| live.recorder.needs_captured(clock::mono_ns());
        self.live.as_ref().is_some_and(needs) && !self.lanes.iter().any(Lane::is_filling)
    }

    /// Tells who watches how far the files have come, and who takes part.
    fn announce(&mut self) {
        let broadcast = &self.config.broadcast;
        let Some(live) = &mut self.live else { return };
        let segment_len = live.store.segment_len();
        let identity = live.recorder.identity();
        let (socket, card) = (broadcast.socket(), &mut live.card);
        let new = socket != card.socket.as_deref()
            || identity.client != card.client_info
            || identity.server != card.server_info
            || identity.protocol != card.protocol_version;
        if new {
            card.socket = socket.map(std::path::Path::to_owned);
            card.client_info.clone_from(&identity.client);
            card.server_info.clone_from(&identity.server);
            card.protocol_version.clone_from(&identity.protocol);
            if let Err(e) = card.write(&live.store.paths) {
                tracing::warn!(error = %e, "the live card could not be brought up to date");
            }
            broadcast.card(card);
        }
        if new || segment_len != live.told {
            live.told = segment_len;
            broadcast.written(live.recorder.session(), Progress { segment_len, counts: live.recorder.counts() });
        }
    }

    /// Puts what was missed into the chain; whether that is on disk.
    fn say_missed(&mut self) -> bool {
        for which in 0..self.lanes.len() {
            let skipped = self.lanes[which].take_skipped();
            self.miss(0, skipped);
        }
        let Some(live) = &mut self.live else { return false };
        let (messages, bytes) = std::mem::take(&mut self.unsaid);
        let damage = std::mem::take(&mut self.damage);
        if messages + bytes + damage == 0 {
            return true;
        }
        if damage > 0 {
            live.recorder.gap(GapReason::EvidenceDamaged, 0, damage, clock::mono_ns());
        }
        if messages + bytes > 0 {
            live.recorder.gap(GapReason::Disk, messages, bytes, clock::mono_ns());
        }
        match live.store.write(&mut live.recorder.lines) {
            Ok(()) => true,
            Err(e) => {
                self.disk_failed("writing evidence", &e);
                false
            }
        }
    }

    fn disk_failed(&mut self, what: &str, e: &io::Error) {
        let text = format!("{what}: {e}");
        if self.report.disk_error.as_ref() != Some(&text) {
            tracing::error!(error = %e, "{what} failed; retrying");
            eprintln!("assay: warning: {text}; the session goes on, what cannot be recorded is counted");
        }
        self.report.disk_error = Some(text);
        self.retry_at = Some(Instant::now() + RETRY);
    }

    /// While the disk fails, captures must not stay full: the session goes before the evidence, and that is counted.
    fn make_room(&mut self) {
        let failing = self.retry_at.is_some();
        if self.lanes.iter().any(Lane::is_crowded) {
            self.give_up_stuck();
        }
        for which in 0..self.lanes.len() {
            let lane = &mut self.lanes[which];
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
                self.miss(1, bytes);
            }
        }
    }

    /// Begins the next session on disk.
    fn begin(&mut self) {
        let c = &self.config;
        let Next { session, started_ns, started_at } = self.next;
        let clock = Clock::of_start(started_ns, started_at);
        let begun = Store::begin(&c.dir, &c.setup, started_ns, started_at, clock, session, self.rolled.take());
        let (store, recorder) = match begun {
            Ok(begun) => begun,
            Err(e) => {
                let in_the_way = e.source.kind() == io::ErrorKind::AlreadyExists;
                self.disk_failed(&format!("beginning a session at {}", e.path.display()), &e.source);
                self.rolled = e.rolled.map(|r| *r);
                self.retry_at = Some(Instant::now() + RETRY_BEGIN);
                if in_the_way && let Some(next) = fresh() {
                    self.forget_card();
                    self.next = next;
                }
                return;
            }
        };
        self.retry_at = None;
        let mut recorder = recorder;
        if let Some(advisor) = self.config.advisor.take() {
            recorder.set_advisor(advisor);
        }
        let card = self.card(recorder.continues(), recorder.identity());
        if let Err(e) = card.write(&store.paths) {
            tracing::warn!(path = %store.paths.card.display(), error = %e, "the live card could not be written");
        }
        if !store.is_locked() && !std::mem::replace(&mut self.said_unlocked, true) {
            let text = format!(
                "the file system of {} has no locks: sessions that run at the same time may spoil its ledger, and `assay \
                 recover` cannot tell a session that died from one that runs; recording goes on, better in a local \
                 directory (--audit-dir)",
                self.config.dir.root().display()
            );
            tracing::warn!("{text}");
            eprintln!("assay: warning: {text}");
        }
        self.own_captures(session);
        if let Ok(files) = store.sync_handles() {
            let _ = self.config.files.send(files);
        }
        let told = store.segment_len();
        self.config.broadcast.begun(Begun { card: card.clone(), paths: store.paths.clone(), segment_len: told });
        self.live = Some(Live { store, recorder, card, began: Instant::now(), told });
        self.say_missed();
    }

    /// Tells recovery whose messages the captures hold, which from now on are those of this session alone. The first lane
    /// decides.
    fn own_captures(&mut self, session: SessionId) {
        for lane in &mut self.lanes {
            if self.kept {
                lane.settled();
            }
            lane.consumer().set_note(lane::NOTE_OWNER, session.bits());
        }
    }

    fn card(&self, continues: Option<SessionId>, identity: &Identity) -> Card {
        let Next { session, started_ns, started_at } = self.next;
        let socket = self.config.broadcast.socket().map(std::path::Path::to_owned);
        let policy_hash = self.config.news.in_force();
        Card {
            continues,
            policy_hash,
            socket,
            client_info: identity.client.clone(),
            server_info: identity.server.clone(),
            protocol_version: identity.protocol.clone(),
            ..Card::of(&self.config.setup, session, started_ns, started_at, &self.lanes)
        }
    }

    fn remember_next(&self) {
        if let Some(marks) = self.config.dir.marks()
            && let Err(e) = marks.begin(&self.config.dir, self.next.session, self.next.started_at)
        {
            tracing::warn!(error = %e, "the next session could not be remembered");
        }
    }

    fn forget_card(&self) {
        if let Some(marks) = self.config.dir.marks() {
            marks.forget(self.next.session);
        }
        let card = self.config.dir.session(self.next.started_at, self.next.session).card;
        let _ = self.config.dir.files().remove(&card);
    }

    fn roll_if_due(&mut self) {
        let Some(live) = &self.live else { return };
        if self.retry_at.is_some() {
            return;
        }
        let due = match self.config.interval {
            PackInterval::Session => false,
            PackInterval::Every(period) => live.began.elapsed() >= period,
            PackInterval::Receipts(n) => live.recorder.receipts() > n,
        };
        let failed = self.config.sync_failed.swap(false, Ordering::AcqRel);
        if due && !failed && live.recorder.chain().len() > 1 {
            self.roll(EndReason::Rolled, true);
        } else if failed {
            // What the failed sync covered may be gone from disk: another segment starts clean.
            self.roll(EndReason::FsyncFailed, false);
        }
    }

    fn roll(&mut self, reason: EndReason, clean: bool) {
        let Some(next) = fresh() else { return };
        let Some(mut live) = self.live.take() else { return };
        self.next = next;
        self.remember_next();
        // The next card is there before this chain ends: whenever we are killed, recovery finds whose the messages are
        // that the captures hold, and which calls go over.
        let paths = self.config.dir.session(next.started_at, next.session);
        if let Err(e) = self.card(Some(live.recorder.session()), live.recorder.identity()).write(&paths) {
            self.live = Some(live);
            self.disk_failed("rolling over", &e);
            return;
        }
        let ending = Ending {
            reason: reason.into(),
            clean,
            pending_is_clean: true,
            carries_over: true,
            live_events_missed: self.config.broadcast.take_missed(live.recorder.session()),
            ..Ending::default()
        };
        let surface = live.recorder.surface();
        let doc = live.recorder.end(&ending, clock::mono_ns());
        let mut lines = std::mem::take(&mut live.recorder.lines);
        let written = live.store.write(&mut lines);
        self.config.broadcast.ended(live.recorder.session(), live.store.segment_len(), Some(next.session));
        self.own_captures(next.session);
        live.recorder.set_policy(self.config.news.in_force());
        self.rolled = Some(live.recorder);
        self.begin();
        let ended = Ended { store: live.store, doc, surface, card: live.card };
        if let Err(e) = written {
            self.disk_failed("ending a segment", &e);
            self.closing.push(Closing { ended, lines });
        } else {
            let _ = self.config.ended.send(ended);
        }
    }

    /// Writes the ends of sessions that were rolled over while the disk failed; whether none is left.
    fn close_rolled(&mut self) -> bool {
        while let Some(mut closing) = self.closing.pop() {
            if let Err(e) = closing.ended.store.write(&mut closing.lines) {
                self.closing.push(closing);
                self.disk_failed("ending a segment", &e);
                return false;
            }
            let _ = self.config.ended.send(closing.ended);
        }
        true
    }

    /// Whoever cuts, replaces or removes the files of a session that is being written ends it: what is there stays as it is,
    /// for `recover`, and another segment is begun, which says so.
    fn look_at_files(&mut self) {
        if self.retry_at.is_some() || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let Some((what, bytes)) = self.live.as_ref().and_then(|live| live.store.damage()) else { return };
        let Some(next) = fresh() else { return };
        let Some(live) = self.live.take() else { return };
        tracing::error!("{what}; another segment is begun");
        eprintln!(
            "assay: warning: {what}; another segment is begun, and what is left of this one is recovered at the end"
        );
        let before = self.next;
        self.next = next;
        self.remember_next();
        let paths = self.config.dir.session(next.started_at, next.session);
        if let Err(e) = self.card(Some(live.recorder.session()), live.recorder.identity()).write(&paths) {
            self.next = before;
            self.live = Some(live);
            return self.disk_failed("beginning another segment", &e);
        }
        self.report.damaged = true;
        self.damage += bytes.max(1);
        self.config.broadcast.ended(live.recorder.session(), live.store.segment_len(), Some(next.session));
        self.own_captures(next.session);
        let mut recorder = live.recorder;
        recorder.set_policy(self.config.news.in_force());
        self.rolled = Some(recorder);
        self.begin();
    }

    /// Ends the last session. `false`: the disk has room again, and there is more to be taken.
    fn finish(&mut self, ending: &Ending) -> bool {
        let waiting = self.must_wait();
        if !waiting {
            // Nobody closed it, and its relay is not waited for any more.
            let unfinished = self.lanes.iter().map(Lane::unfinished).sum();
            self.miss(0, unfinished);
        }
        self.delivered();
        self.say_missed();
        (self.report.missed_messages, self.report.missed_bytes) = self.missed;
        let Some(mut live) = self.live.take() else {
            let card = self.config.dir.session(self.next.started_at, self.next.session).card;
            if self.rolled.is_some() && self.config.dir.files().exists(&card) {
                // A session that could not be begun behind one that was: `recover` begins it, for the calls that went over.
                self.lanes[0].note_lost(self.unsaid.1);
                self.report.left_for_recovery = true;
                return true;
            }
            self.report.nothing_recorded = true;
            self.lanes.iter().for_each(Lane::remove);
            self.forget_card();
            return true;
        };
        let mut written = live.store.write(&mut live.recorder.lines);
        for _ in 0..LAST_TRIES {
            if written.is_ok() {
                break;
            }
            std::thread::sleep(RETRY);
            written = live.store.write(&mut live.recorder.lines);
        }
        if let Err(e) = written {
            // The chain stays open: `recover` goes on from the capture and ends it as what it is.
            self.disk_failed("writing the last evidence", &e);
            self.report.left_for_recovery = true;
            return true;
        }
        if waiting {
            self.live = Some(live);
            return false;
        }
        if !self.close_rolled() {
            self.report.left_for_recovery = true;
        }
        let (messages, bytes) = std::mem::take(&mut self.unsaid);
        if messages + bytes > 0 {
            live.recorder.gap(GapReason::Disk, messages, bytes, clock::mono_ns());
        }
        let surface = live.recorder.surface();
        self.report.violations = live.recorder.violations();
        let ending =
            Ending { live_events_missed: self.config.broadcast.take_missed(live.recorder.session()), ..ending.clone() };
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
        if let Err(e) = live.store.write(&mut live.recorder.lines) {
            self.disk_failed("ending the segment", &e);
            self.report.left_for_recovery = true;
            return true;
        }
        self.config.broadcast.ended(live.recorder.session(), live.store.segment_len(), None);
        for lane in &mut self.lanes {
            lane.settled();
            lane.remove();
        }
        let _ = self.config.ended.send(Ended { store: live.store, doc, surface, card: live.card });
        true
    }
}

fn fresh() -> Option<Next> {
    let session = super::new_session_id().ok()?;
    Some(Next { session, started_ns: clock::mono_ns(), started_at: WallTime::now() })
}

/// Stores payloads; how many bytes of them could not be stored, and why. Their hashes are in the receipts.
fn write_big(live: &mut Live, m: &Message<'_>, big: &[BigPayload], failed: &mut Option<io::Error>) -> u64 {
    let mut lost = 0;
    for payload in big {
        let value = m.bytes.get(payload.value.clone()).unwrap_or_default();
        if let Err(e) = live.store.payload(&payload.head, value, payload.canonical) {
            lost += value.len() as u64;
            *failed = Some(e);
        }
    }
    lost
}

/// The two directions, client to server first, as lanes are ordered.
pub const DIRECTIONS: [Direction; 2] = [Direction::ClientToServer, Direction::ServerToClient];
