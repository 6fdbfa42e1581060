//! One recording: what the threads of a server say is put in one order, written at once, and ends in a pack.

use super::settings::{Judged, Settings};
use crate::{
    model::{
        EndReason, Execution, InvocationId, OutcomeReason, Profile, RECORDER_VERSION, ReceiptId, ReceiptPrefix,
        SessionId, ToolExecuted, Transport, WallTime, Word,
        receipt::PLAIN_SCHEMA,
        server::{DOTTED, SERVER_SOURCE, TOOL_EXECUTED},
    },
    paths::AuditDir,
    record::{
        self,
        card::Captures,
        judge::PolicyFeed,
        library::Library,
        opening::{Opening, PackInterval},
        recorder::{Ending, Origin, Setup, Step},
        session::Synced,
    },
    seal::{self, Sealed},
    sys::clock,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a call waits while another one writes.
const PATIENCE: Duration = Duration::from_millis(50);
/// Steps that wait for a disk that hangs.
const MAX_QUEUED: usize = 8192;

/// What is known of a call while it runs.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) call: u64,
    pub(super) invocation: InvocationId,
    pub(super) tool: String,
    pub(super) arguments_hash: String,
    /// Digest of what tells its client's session from others.
    pub(super) session: Option<u64>,
}

/// A call without an outcome.
struct Open {
    facts: Arc<Facts>,
    judged: Option<Judged>,
    since: Instant,
}

/// Where a step has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// On disk.
    Written,
    /// Not on disk yet: it is in memory.
    Waiting,
    /// Counted as missed.
    Missed,
    /// Counted as missed; nothing more may be said of the call.
    Lost,
}

impl Said {
    /// Whether it is in the evidence, or will be.
    pub(super) const fn is_kept(self) -> bool {
        matches!(self, Self::Written | Self::Waiting)
    }
}

/// One recording, which becomes one pack.
pub(super) struct Recording {
    pub(super) id: SessionId,
    settings: Arc<Settings>,
    dir: AuditDir,
    next_call: AtomicU64,
    open: Mutex<BTreeMap<u64, Open>>,
    settled: Condvar,
    queue: Mutex<VecDeque<(u64, Step, u64)>>,
    library: Mutex<Option<Library>>,
    /// Steps that found no room in the queue.
    overflow: AtomicU64,
    /// Steps that were missed, and the last error of the disk.
    lost: Mutex<(u64, Option<String>)>,
    receipts: AtomicU64,
    began: Instant,
    /// It takes no more calls, and is sealed when those that run are done.
    pub(super) is_over: AtomicBool,
    /// `None`: nothing is to be synced, or a sync failed.
    synced: Mutex<Option<Synced>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recording {
    /// One that begins on disk with its first call. The one before it lost `damage` bytes to another process.
    pub(super) fn new(settings: Arc<Settings>, dir: AuditDir, damage: u64) -> Result<Self, getrandom::Error> {
        let id = record::new_session_id()?;
        let started_at = WallTime::now();
        if let Some(marks) = dir.marks()
            && let Err(e) = marks.begin(&dir, id, started_at)
        {
            Settings::warn(&format!("the recording cannot be remembered ({e}); a crash could not be recovered"));
        }
        let setup = Arc::new(Setup {
            profile: if settings.enforces() { Profile::Guard } else { Profile::Audit },
            transport: settings.transport,
            server_id: settings.server_id.clone(),
            origin: Origin::of_this_process(),
            http: None,
            store_args: false,
            cleartext: crate::record::redact::Cleartext::default(),
            store_results: false,
            store_limit: settings.store_limit,
            redact: None,
            policy_hash: settings.policy_hash(),
            surface: None,
            witness: None,
        });
        let opening = Opening {
            dir: dir.clone(),
            setup,
            session: id,
            started_ns: clock::mono_ns(),
            started_at,
            interval: PackInterval::Session,
            captures: Captures::default(),
            activity: Arc::default(),
            judge: None,
            feed: Arc::new(PolicyFeed::new(settings.policy_hash())),
            health: Arc::default(),
        };
        let mut library = Library::new(opening, settings.signer().as_ref().and_then(seal::certifier));
        library.follows_damage(damage);
        Ok(Self {
            id,
            settings,
            dir,
            next_call: AtomicU64::new(0),
            open: Mutex::default(),
            settled: Condvar::new(),
            queue: Mutex::default(),
            library: Mutex::new(Some(library)),
            overflow: AtomicU64::new(0),
            lost: Mutex::default(),
            receipts: AtomicU64::new(0),
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            synced: Mutex::default(),
        })
    }

    /// The number of the next call.
    pub(super) fn number(&self) -> u64 {
        self.next_call.fetch_add(1, Ordering::Relaxed)
    }

    /// A call has begun.
    pub(super) fn begin(&self, facts: Arc<Facts>) {
        lock(&self.open).insert(facts.call, Open { facts, judged: None, since: Instant::now() });
    }

    /// Its policy permits the call, or only advises.
    pub(super) fn judged(&self, call: u64, judged: Option<Judged>) {
        if let Some(open) = lock(&self.open).get_mut(&call) {
            (open.judged, open.since) = (judged, Instant::now());
        }
    }

    /// A call has its outcome; `false`: it had one before, because the recording was closed.
    pub(super) fn settle(&self, call: u64) -> bool {
        let was_open = lock(&self.open).remove(&call).is_some();
        self.settled.notify_all();
        was_open
    }

    /// How many calls run.
    pub(super) fn running(&self) -> usize {
        lock(&self.open).len()
    }

    /// Waits until no call runs; whether that came.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let open = lock(&self.open);
        let waited = self.settled.wait_timeout_while(open, patience, |open| !open.is_empty());
        waited.is_ok_and(|(open, _)| open.is_empty())
    }

    /// Puts a step behind all that were said before, and has it written. What hangs is waited for only a moment: whoever
    /// writes takes what waits with it.
    pub(super) fn say(&self, call: u64, step: Step) -> Said {
        {
            let mut queue = lock(&self.queue);
            if queue.len() >= MAX_QUEUED {
                self.overflow.fetch_add(1, Ordering::Relaxed);
                return Said::Lost;
            }
            queue.push_back((call, step, clock::mono_ns()));
        }
        self.receipts.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let mut tries = 0_u32;
        loop {
            if let Ok(mut library) = self.library.try_lock() {
                return self.write(&mut library, Some(call));
            }
            if began.elapsed() > PATIENCE {
                return Said::Waiting;
            }
            tries += 1;
            if tries < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }

    /// Writes what waits; where it has come to, above all the step of this call.
    fn write(&self, library: &mut Option<Library>, of: Option<u64>) -> Said {
        let Some(library) = library else {
            // Its files are let go of.
            lock(&self.lost).0 += std::mem::take(&mut *lock(&self.queue)).len() as u64;
            return Said::Lost;
        };
        let overflow = self.overflow.swap(0, Ordering::Relaxed);
        if overflow > 0 {
            library.miss(overflow);
        }
        let mut is_kept = true;
        loop {
            let next = lock(&self.queue).pop_front();
            let Some((call, step, ns)) = next else { break };
            is_kept &= library.step(call, step, ns) || of != Some(call);
        }
        let flushed = library.flush();
        if library.missed() > 0 || !flushed || library.disk_error().is_some() {
            *lock(&self.lost) = (library.missed(), library.disk_error().map(str::to_owned));
        }
        match (is_kept, flushed) {
            (false, _) => Said::Missed,
            (true, true) => Said::Written,
            (true, false) => Said::Waiting,
        }
    }

    /// Syncs what is on disk, and tries again what is not. If another process damaged the files, they are let go of, for
    /// recovery; how many bytes that cost.
    pub(super) fn look_after(&self) -> Option<u64> {
        let files = {
            let mut place = self.library.try_lock().ok()?;
            self.write(&mut place, None);
            let library = place.as_mut()?;
            if let Some((what, bytes)) = library.look_for_damage() {
                Settings::warn(&format!(
                    "{what}; another recording is begun, and assay recover finishes what is left of this one"
                ));
                *lock(&self.lost) = (library.missed(), Some(what));
                *place = None;
                return Some(bytes);
            }
            library.new_files()
        };
        let mut synced = lock(&self.synced);
        *synced = files.or(synced.take()).and_then(|mut files| files.sync().then_some(files));
        None
    }

    /// Receipts lost, and the last error of the disk.
    pub(super) fn losses(&self) -> (u64, Option<String>) {
        let (missed, error) = lock(&self.lost).clone();
        (missed + self.overflow.load(Ordering::Relaxed), error)
    }

    /// Whether it is long enough for a pack.
    pub(super) fn is_due(&self) -> bool {
        let receipts = self.receipts.load(Ordering::Relaxed);
        receipts > 0
            && (self.settings.pack_receipts.is_some_and(|n| receipts >= n)
                || self.settings.pack_period.is_some_and(|period| self.began.elapsed() >= period))
    }

    /// Lets go of its files.
    #[cfg(test)]
    pub(super) fn abandon(&self) {
        drop(lock(&self.library).take());
    }

    /// Ends the chain and builds the pack. Calls that run have no outcome then, and the recording says so. `None`: there is
    /// nothing on disk.
    pub(super) fn end(&self, reason: EndReason) -> Option<Sealed> {
        self.is_over.store(true, Ordering::Release);
        let open: Vec<Open> = std::mem::take(&mut *lock(&self.open)).into_values().collect();
        for Open { facts, judged, since } in open {
            let cut = Cut { reason: OutcomeReason::Shutdown, error: "shutdown" };
            let receipt = without_result(&self.settings, &facts, judged.as_ref(), since.elapsed(), &cut, None);
            self.say(facts.call, Step::Executed(Box::new(receipt)));
        }
        let mut place = lock(&self.library);
        self.write(&mut place, None);
        let library = place.take()?;
        drop(place);
        let ending = Ending { reason: reason.into(), clean: true, ..Ending::default() };
        let (ended, report) = library.end(&ending);
        *lock(&self.lost) = (report.missed_messages, report.disk_error.clone());
        let Some(mut ended) = ended else {
            if let (Some(error), false) = (report.disk_error, report.nothing_recorded) {
                Settings::warn(&format!(
                    "the recording {} was not ended ({error}); assay recover finishes it",
                    self.id
                ));
            }
            if report.nothing_recorded
                && let Some(marks) = self.dir.marks()
            {
                marks.forget(self.id);
            }
            return None;
        };
        // The directory may have been away when it was stored first.
        self.settings.keep_policy(&self.dir);
        let signer = if self.settings.auto_pack { self.settings.signer() } else { None };
        let surface = ended.surface.as_deref();
        let mut sealed =
            seal::seal(&mut ended.store, &ended.doc, (surface, None), self.settings.auto_pack, signer.as_deref(), None);
        if sealed.problems.is_empty() {
            seal::forget(&self.dir, &ended.store.paths, &mut sealed);
        }
        for problem in sealed.problems.iter().chain(&sealed.rolled_back) {
            Settings::warn(problem);
        }
        Some(sealed)
    }
}

/// Why there is no result.
pub(super) struct Cut {
    pub(super) reason: OutcomeReason,
    pub(super) error: &'static str,
}

/// The receipt of a call whose handler gave no result.
pub(super) fn without_result(
    settings: &Settings,
    facts: &Facts,
    judged: Option<&Judged>,
    took: Duration,
    cut: &Cut,
    decision: Option<ReceiptId>,
) -> ToolExecuted {
    let panicked = cut.reason == OutcomeReason::HandlerPanicked;
    ToolExecuted {
        decision_receipt_id: decision,
        duration_ms: Some(super::millis(took)),
        error: Some(cut.error.to_owned()),
        outcome: if panicked { Execution::Error } else { Execution::Timeout },
        outcome_reason: Some(Word::Known(cut.reason)),
        ..executed(settings, facts, judged)
    }
}

/// The receipt of an execution, as far as it does not depend on the result.
pub(super) fn executed(settings: &Settings, facts: &Facts, judged: Option<&Judged>) -> ToolExecuted {
    let decision = judged.map(|j| &j.decision);
    let mut anomalies: Vec<_> = decision.map(|d| d.unseen.clone()).unwrap_or_default();
    anomalies.sort();
    anomalies.dedup();
    ToolExecuted {
        anomalies,
        arguments_hash: facts.arguments_hash.clone(),
        decision_receipt_id: None,
        duration_ms: None,
        error: None,
        integration_source: SERVER_SOURCE.to_owned(),
        invocation_id: facts.invocation,
        outcome: Execution::Success,
        outcome_reason: None,
        parent_receipt_id: None,
        policy_hash: judged.map(|j| j.policy_hash.clone()),
        policy_reason: decision.map(|d| d.reason.clone()),
        policy_ref: decision.and_then(|d| d.rule.clone()),
        policy_verdict: decision.map_or(crate::model::PolicyVerdict::NoPolicy, |d| d.verdict),
        receipt_id: ReceiptId::of(ReceiptPrefix::Executed, facts.invocation.bits()),
        recorder_version: RECORDER_VERSION.to_owned(),
        request_receipt_id: ReceiptId::of(ReceiptPrefix::Requested, facts.invocation.bits()),
        result_content: None,
        result_hash: None,
        result_is_error: None,
        result_redacted: None,
        result_type: None,
        schema_version: PLAIN_SCHEMA.to_owned(),
        seq: 0,
        server_id: settings.server_id.clone(),
        timestamp: WallTime::from_millis(0),
        tool_name: facts.tool.clone(),
        trace_id: SessionId::from_bits(0),
        r#type: settings.kind(TOOL_EXECUTED, DOTTED[2]),
    }
}

/// Whether a name of a transport is one that servers have.
pub(super) const fn is_http(transport: Transport) -> bool {
    !matches!(transport, Transport::Stdio)
}
