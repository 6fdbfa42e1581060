//! One session of the recorder: begun on disk, written, rolled over into the next, ended.
//!
//! While its disk fails it keeps what it can in memory, and counts what it cannot.

mod end;

use super::{
    activity::Activity,
    broadcast::{Begun, Broadcast, Progress, Streams},
    card::Card,
    checkpoint::{Certify, Checkpoints, Failed},
    health::Health,
    opening::{Opening, PackInterval},
    recorder::{BigPayload, Ending, Message, Recorder, Step, UnwrittenLines},
    source::{Seen, SessionKey, Source},
    store::Store,
    stream::StreamId,
};
use crate::model::words::{EndReason, GapReason};
use crate::{
    model::{SessionDoc, SessionId, WallTime, session::Identity},
    surface::feed::Pinned,
    sys::clock,
};
pub(super) use end::Finish;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, SyncSender},
    },
    time::{Duration, Instant},
};

/// Bytes of lines that wait in memory while a disk fails; beyond this, messages are counted instead of recorded.
const MAX_WAITING: usize = 8 << 20;
/// Bytes of lines that are written out before more messages are taken.
const WRITE_AT: usize = 1 << 20;
/// Pause between two attempts on a disk that fails.
const RETRY: Duration = Duration::from_millis(100);
/// Pause between two attempts to begin a session on disk.
const RETRY_BEGIN: Duration = Duration::from_secs(2);

/// What the sessions of a process share.
pub struct Shared {
    /// Receives what is on disk.
    pub broadcast: Arc<dyn Broadcast>,
    /// Ended sessions go here. The channel is bounded; sessions that find it full are finished as if the process had
    /// died.
    pub ended: SyncSender<Ended>,
    /// Files that are written go here.
    pub files: Sender<Written>,
    /// How the recorder is, of all sessions together.
    pub health: Arc<Health>,
    /// Who certifies the keys of sessions; `None`: they have no checkpoints.
    pub certify: Option<Arc<dyn Certify>>,
}

/// What the thread that syncs hears of a session.
#[derive(Debug)]
pub struct Written {
    /// Id of the session.
    pub session: SessionId,
    /// The files that it writes from now on; `None`: it has ended.
    pub files: Option<Synced>,
}

/// The files of one session, each with the length up to which it was synced.
#[derive(Debug)]
pub struct Synced {
    /// Receipts, segment, then what else there is.
    files: Vec<(std::fs::File, u64)>,
    checkpoints: Arc<Checkpoints>,
    /// Set when a sync failed: the segment must not be trusted any more.
    failed: Arc<AtomicBool>,
}

impl Synced {
    /// Syncs those that grew, and has a checkpoint made if one is due; `false`: a sync failed, and these files must not be
    /// synced again.
    pub fn sync(&mut self) -> bool {
        match self.checkpoints.sync(false, &mut self.files) {
            Ok(()) => true,
            // If somebody else changed the files, the recorder finds that, and says so.
            Err(Failed::Checkpoint(e)) => {
                tracing::warn!(error = %e, "no checkpoint could be made; it is tried again");
                true
            }
            Err(Failed::Sync(e)) => {
                tracing::error!(error = %e, "evidence could not be synced; a new segment is started");
                self.failed.store(true, Ordering::Release);
                false
            }
        }
    }
}

/// A session whose chain has ended and whose files wait to be sealed.
#[derive(Debug)]
pub struct Ended {
    /// Its open files; their lock keeps recovery away.
    pub store: Store,
    /// The content of `session.json`.
    pub doc: SessionDoc,
    /// The content of `surface.json`; `None` if there is none.
    pub surface: Option<Vec<u8>>,
    /// The decisions about the surface that were in force at its end; `None` if it was compared with none.
    pub pinned: Option<Arc<Pinned>>,
    /// Its card in `live/`.
    pub card: Card,
}

/// What became of a recording.
#[derive(Debug, Default)]
pub struct RecorderReport {
    /// Messages whose evidence was lost.
    pub missed_messages: u64,
    /// Wire bytes that crossed unrecorded.
    pub missed_bytes: u64,
    /// Those of the messages that were requests beyond what is followed in flight.
    pub not_followed: u64,
    /// The last error of the disk, with the operation that failed.
    pub disk_error: Option<String>,
    /// Evidence of a session stayed in the capture, for `recover`.
    pub left_for_recovery: bool,
    /// A session could not be begun on disk at all.
    pub nothing_recorded: bool,
    /// Messages that the policy rejects, enforced or not.
    pub violations: u64,
    /// How often a server announced what is not approved.
    pub drifts: u64,
    /// Whether part of a session waits for `recover`: another process changed files while it was written, or too many
    /// ended at once.
    pub damaged: bool,
}

impl RecorderReport {
    /// So much crossed unrecorded.
    pub(super) fn miss(&mut self, messages: u64, bytes: u64) {
        self.missed_messages += messages;
        self.missed_bytes += bytes;
    }

    /// The same of one session more.
    pub(super) fn add(&mut self, one: Self) {
        self.missed_messages += one.missed_messages;
        self.missed_bytes += one.missed_bytes;
        self.not_followed += one.not_followed;
        self.disk_error = one.disk_error.or(self.disk_error.take());
        self.left_for_recovery |= one.left_for_recovery;
        self.nothing_recorded |= one.nothing_recorded;
        self.violations += one.violations;
        self.drifts += one.drifts;
        self.damaged |= one.damaged;
    }
}

struct Live {
    store: Store,
    recorder: Recorder,
    card: Card,
    began: Instant,
    /// Length of the segment that the broadcast knows.
    told: u64,
}

/// A chain that has ended, and whose end is not on disk yet.
struct Closing {
    ended: Ended,
    lines: UnwrittenLines,
}

/// The session that is begun next.
#[derive(Debug, Clone, Copy)]
struct Next {
    session: SessionId,
    started_ns: u64,
    started_at: WallTime,
}

/// One session; when packs roll over, the sessions that follow each other.
pub(super) struct Session {
    key: SessionKey,
    opening: Opening,
    live: Option<Live>,
    retry_at: Option<Instant>,
    missed: (u64, u64),
    /// What of `missed` is in no chain yet.
    unsaid: (u64, u64),
    report: RecorderReport,
    next: Next,
    /// What rolls over into the next session, while that cannot be begun on disk.
    rolled: Option<Recorder>,
    closing: Vec<Closing>,
    /// Its last chain has ended.
    is_ended: bool,
    looked: Instant,
    /// Bytes of evidence that another process destroyed and that no chain has recorded yet.
    damage: u64,
    /// It was said that there are no locks.
    said_unlocked: bool,
    sync_failed: Arc<AtomicBool>,
    /// How it ends, once it does while the process continues.
    pub(super) ending: Option<Ending>,
    /// What follows belongs to the session that continues this one, for this reason.
    rolls: Option<EndReason>,
}

impl Session {
    pub(super) fn new(key: SessionKey, opening: Opening) -> Self {
        let Opening { session, started_ns, started_at, .. } = opening;
        Self {
            key,
            opening,
            live: None,
            retry_at: None,
            missed: (0, 0),
            unsaid: (0, 0),
            report: RecorderReport::default(),
            next: Next { session, started_ns, started_at },
            rolled: None,
            closing: Vec::new(),
            is_ended: false,
            looked: Instant::now(),
            damage: 0,
            said_unlocked: false,
            sync_failed: Arc::default(),
            ending: None,
            rolls: None,
        }
    }

    /// Whether its disk does not take evidence.
    pub(super) const fn is_failing(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Whether so much waits in memory that nothing more may be taken: the disk fails, and what passed must not be
    /// lost.
    pub(super) fn is_full(&self) -> bool {
        self.is_failing() && self.waiting() >= MAX_WAITING
    }

    /// Whether so much waits that it must be written first.
    pub(super) fn has_much(&self) -> bool {
        self.waiting() > WRITE_AT
    }

    fn waiting(&self) -> usize {
        self.live.as_ref().map_or(0, |live| live.recorder.lines.len())
    }

    /// When to look again although nothing has come.
    pub(super) fn deepest(&self) -> Duration {
        let due = self.live.as_ref().and_then(|live| live.recorder.junk_is_due());
        match (self.retry_at, self.opening.interval) {
            (Some(at), _) => at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
            (None, _) if due.is_some() => {
                let left = due.map(|due| due.saturating_sub(clock::mono_ns())).unwrap_or_default();
                Duration::from_nanos(left).max(Duration::from_millis(1))
            }
            (None, PackInterval::Every(_)) => Duration::from_millis(250),
            _ => Duration::from_secs(1),
        }
    }

    /// Called at the start of each round of the recorder.
    pub(super) fn look(&mut self, wall_minus_mono_ns: i64, now: u64) {
        let Some(live) = &mut self.live else { return };
        live.recorder.clock_now(wall_minus_mono_ns, now);
        for reload in self.opening.feed.take() {
            live.recorder.reloaded(reload, now);
        }
        live.recorder.look_at_decisions(now);
    }

    /// What crossed becomes lines, or is counted.
    pub(super) fn take(&mut self, seen: Seen<'_>) {
        let has_room = self.waiting() < MAX_WAITING;
        let live = self.live.as_mut().filter(|_| has_room);
        match (seen, live) {
            (Seen::Message(m), Some(live)) => {
                let big = live.recorder.message(m);
                let mut failed = None;
                let lost = write_big(live, m, &big, &mut failed);
                self.miss(0, lost);
                if let Some(e) = failed {
                    self.disk_failed("storing a payload", &e);
                }
            }
            (Seen::Exchange(exchange), Some(live)) => live.recorder.exchange(*exchange),
            (Seen::Message(m), None) => self.miss(u64::from(!m.bytes.is_empty()), m.bytes.len() as u64),
            (Seen::Torn { bytes, .. }, _) => self.miss(1, bytes),
            (Seen::Gap { bytes, .. }, Some(live)) => {
                live.recorder.gap(GapReason::CaptureStuck, 0, bytes, clock::mono_ns());
                self.missed.1 += bytes;
            }
            (Seen::Gap { bytes, .. }, None) => self.miss(0, bytes),
            (Seen::Ends(ending), _) => self.ending = Some(ending),
            (Seen::Rolls(reason), _) => self.rolls = Some(reason),
            // Of an exchange that is not told of, its messages are counted.
            (Seen::Delivered { stream, upto, when }, Some(live)) => live.recorder.delivered(stream, upto, when),
            (Seen::Begins(_), _) | (Seen::Exchange(_) | Seen::Delivered { .. }, None) => {}
        }
    }

    /// Records what a server says of its nth call; `false`: there is no room, and it is counted.
    pub(super) fn step(&mut self, call: u64, step: Step, ns: u64) -> bool {
        let has_room = self.waiting() < MAX_WAITING;
        let Some(live) = self.live.as_mut().filter(|_| has_room) else {
            self.miss(1, 0);
            return false;
        };
        live.recorder.step(call, step, ns);
        true
    }

    /// Whether it has begun on disk.
    pub(super) const fn has_begun(&self) -> bool {
        self.live.is_some()
    }

    /// The last error of the disk.
    pub(super) fn disk_error(&self) -> Option<&str> {
        self.report.disk_error.as_deref()
    }

    /// Messages without evidence so far.
    pub(super) const fn all_missed(&self) -> u64 {
        self.missed.0
    }

    /// Counts what crossed without evidence.
    pub(super) fn miss(&mut self, messages: u64, bytes: u64) {
        for count in [&mut self.missed, &mut self.unsaid] {
            count.0 += messages;
            count.1 += bytes;
        }
    }

    pub(super) fn delivered(&mut self, stream: StreamId, written: u64, when: &dyn Fn(u64) -> Option<u64>) {
        if let Some(live) = &mut self.live {
            live.recorder.delivered(stream, written, when);
        }
    }

    pub(super) fn say_in_flight(&self) {
        let activity = &self.opening.activity;
        if activity.asked.load(Ordering::Relaxed) {
            let asked = self.live.as_ref().map(|live| live.recorder.asked() as u64);
            activity.in_flight.store(asked.unwrap_or(Activity::UNKNOWN), Ordering::Relaxed);
        }
    }

    /// Tells those who want it what a message holds.
    pub(super) fn say_crossed(&self, m: &Message<'_>, broadcast: &dyn Broadcast) {
        if let Some(live) = self.live.as_ref().filter(|_| broadcast.wants_contents()) {
            broadcast.crossed(live.recorder.beginning(m));
        }
    }

    /// Tells those who watch which of its streams are open.
    pub(super) fn say_streams(&self, streams: Streams, broadcast: &dyn Broadcast) {
        if let Some(live) = &self.live {
            broadcast.streams(live.recorder.session(), streams);
        }
    }

    /// Whether its evidence can be written.
    pub(super) const fn is_able(&self) -> bool {
        self.live.is_some() && !self.is_failing()
    }

    pub(super) fn say_health(&self) {
        self.opening.health.beat(self.is_able());
    }

    /// Whether the captures keep what is on disk a little longer: recovery needs it.
    pub(super) fn needs_captured(&self, now: u64) -> bool {
        self.live.as_ref().is_some_and(|live| live.recorder.needs_captured(now))
    }

    /// Writes what waits. Whether the captures may release what was taken for it. `releases`: they will, unless something
    /// of it fails.
    pub(super) fn flush(&mut self, shared: &Shared, source: &mut dyn Source, releases: bool) -> bool {
        let is_due = self.retry_at.is_none_or(|at| at <= Instant::now());
        if self.live.is_none() {
            if is_due && !self.is_ended {
                self.begin(shared, source);
            }
            // Until it has begun, what crossed is in the captures alone.
            return self.is_ended && self.closing.is_empty();
        }
        if !is_due {
            return false;
        }
        let Some(live) = &mut self.live else { return true };
        if live.recorder.junk_is_due().is_some_and(|due| releases || due <= clock::mono_ns()) {
            live.recorder.say_junk();
        }
        if let Some(surface) = live.recorder.new_surface()
            && let Err(e) = live.store.surface(&surface)
        {
            tracing::warn!(error = %e, "the observed surface could not be written; it goes into the pack all the same");
        }
        if let Err(e) = live.store.write(&mut live.recorder.lines) {
            self.disk_failed("writing evidence", &e);
            return false;
        }
        if self.retry_at.take().is_some() {
            if !source.is_stuck() {
                tracing::info!("evidence can be written again");
            }
            source.retry();
        }
        self.close_ended(shared);
        // The captures say what was released unrecorded, until the chain says it.
        let is_said = self.say_missed();
        if is_said {
            self.announce(shared);
        }
        is_said
    }

    /// Reports to subscribers how far the files have come, and who takes part.
    fn announce(&mut self, shared: &Shared) {
        let broadcast = &shared.broadcast;
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
                tracing::warn!(error = %e, "the live card could not be updated");
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

    /// Says it once, and tries again after a pause.
    pub(super) fn disk_failed(&mut self, what: &str, e: &io::Error) {
        let text = format!("{what}: {e}");
        if self.report.disk_error.as_ref() != Some(&text) {
            tracing::error!(error = %e, "{what} failed; retrying");
            eprintln!("assay: warning: {text}; the session goes on, what cannot be recorded is counted");
        }
        self.report.disk_error = Some(text);
        self.retry_at = Some(Instant::now() + RETRY);
    }

    /// Begins the next session on disk.
    pub(super) fn begin(&mut self, shared: &Shared, source: &mut dyn Source) {
        let o = &self.opening;
        if self.report.disk_error.is_some() {
            // The directory that could not be made, or was removed, may be possible now.
            let _ = o.dir.create();
        }
        let Next { session, started_ns, started_at } = self.next;
        let (certify, rolled) = (shared.certify.clone(), self.rolled.take());
        let begun = Store::begin(&o.dir, &o.setup, started_ns, started_at, session, certify, rolled);
        let (store, mut recorder) = match begun {
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
        if let Some(judge) = self.opening.judge.take() {
            recorder.set_judge(judge);
        }
        let card = self.card(shared, recorder.continues(), recorder.identity());
        if let Err(e) = card.write(&store.paths) {
            tracing::warn!(path = %store.paths.card.display(), error = %e, "the live card could not be written");
        }
        if !store.is_locked() && !std::mem::replace(&mut self.said_unlocked, true) {
            let text = format!(
                "the file system of {} has no locks: sessions that run at the same time may spoil its ledger, and `assay \
                 recover` cannot tell a session that died from one that runs; recording continues, better in a local \
                 directory (--audit-dir)",
                self.opening.dir.root().display()
            );
            tracing::warn!("{text}");
            eprintln!("assay: warning: {text}");
        }
        // Makes recovery find that the messages in the captures are from now on those of this session alone.
        source.goes_on_as(self.key, session);
        let checkpoints = store.checkpoints().clone();
        if let Ok(files) = store.sync_handles() {
            let files = files.into_iter().map(|file| (file, 0)).collect();
            let files = Some(Synced { files, checkpoints, failed: self.sync_failed.clone() });
            let _ = shared.files.send(Written { session, files });
        }
        let told = store.segment_len();
        shared.broadcast.begun(Begun { card: card.clone(), paths: store.paths.clone(), segment_len: told });
        self.live = Some(Live { store, recorder, card, began: Instant::now(), told });
        self.say_missed();
    }

    fn card(&self, shared: &Shared, continues: Option<SessionId>, identity: &Identity) -> Card {
        let Next { session, started_ns, started_at } = self.next;
        Card {
            continues,
            policy_hash: self.opening.feed.in_force(),
            socket: shared.broadcast.socket().map(std::path::Path::to_owned),
            client_info: identity.client.clone(),
            server_info: identity.server.clone(),
            protocol_version: identity.protocol.clone(),
            ..Card::of(&self.opening.setup, session, started_ns, started_at, &self.opening.captures)
        }
    }

    fn forget_card(&self) {
        if let Some(marks) = self.opening.dir.marks() {
            marks.forget(self.next.session);
        }
        let card = self.opening.dir.session(self.next.started_at, self.next.session).card;
        let _ = self.opening.dir.files().remove(&card);
    }

    /// What became of it.
    pub(super) fn report(self) -> RecorderReport {
        self.report
    }
}

fn fresh() -> Option<Next> {
    let session = crate::record::new_session_id().ok()?;
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
