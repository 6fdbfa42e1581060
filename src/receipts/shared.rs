//! What all handles of a recorder share: the recording in force, and those that wait for their last calls.

use super::{
    Health,
    memory::{Leg, Memory},
    outcome::{Outcome, with_outcome},
    recording::{Recording, executed, lock},
    settings::Settings,
};
use crate::{
    model::{EndReason, ReceiptId, words::CallAnomaly},
    paths::AuditDir,
    record::{recorder::Step, redact::Anomalies},
    seal::Sealed,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// How long the end waits for calls that run.
const PATIENCE: Duration = Duration::from_secs(2);

/// What all handles of a recorder share.
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    pub(super) dir: AuditDir,
    current: Mutex<Option<Arc<Recording>>>,
    /// Recordings that take no more calls, until they are sealed.
    leaving: Mutex<Vec<Arc<Recording>>>,
    sealing: Mutex<Vec<JoinHandle<()>>>,
    sealed: Mutex<Vec<Sealed>>,
    memory: Mutex<Memory>,
    closed: AtomicBool,
    said_closed: AtomicBool,
    requested: AtomicU64,
    settled: AtomicU64,
    /// Receipts that are in no recording, of recordings that are over.
    lost: AtomicU64,
    /// Bytes that another process cost the recordings before the next one, which says so.
    damage: AtomicU64,
}

impl Shared {
    pub(super) fn new(settings: Arc<Settings>, dir: AuditDir) -> Self {
        Self {
            settings,
            dir,
            current: Mutex::default(),
            leaving: Mutex::default(),
            sealing: Mutex::default(),
            sealed: Mutex::default(),
            memory: Mutex::default(),
            closed: AtomicBool::new(false),
            said_closed: AtomicBool::new(false),
            requested: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            damage: AtomicU64::new(0),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    pub(super) fn count_requested(&self) {
        self.requested.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_settled(&self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// The recording that takes the next call; `None`: the recorder was closed.
    pub(super) fn recording(&self) -> Option<Arc<Recording>> {
        let mut current = lock(&self.current);
        if self.closed.load(Ordering::Acquire) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            if !self.said_closed.swap(true, Ordering::Relaxed) {
                Settings::warn("the recorder was closed; calls are not recorded any more");
            }
            return None;
        }
        if current.is_none() {
            let damage = self.damage.swap(0, Ordering::Relaxed);
            match Recording::new(self.settings.clone(), self.dir.clone(), damage) {
                Ok(recording) => *current = Some(Arc::new(recording)),
                Err(e) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    Settings::warn(&format!("a call is not recorded: no random number for the recording: {e}"));
                }
            }
        }
        current.clone()
    }

    /// A call of this recording is over: it may have been the last one that it waited for.
    pub(super) fn call_is_over(self: &Arc<Self>, recording: &Arc<Recording>) {
        if !recording.is_over.load(Ordering::Acquire) {
            if recording.is_due() {
                self.roll(recording);
            }
        } else if recording.running() == 0 {
            self.seal_soon(recording);
        }
    }

    /// The next call begins another recording; this one is sealed when those that run are done.
    pub(super) fn roll(self: &Arc<Self>, recording: &Arc<Recording>) {
        {
            let mut current = lock(&self.current);
            if current.as_ref().is_none_or(|c| c.id != recording.id) {
                return;
            }
            *current = None;
            recording.is_over.store(true, Ordering::Release);
            lock(&self.leaving).push(recording.clone());
        }
        if recording.running() == 0 {
            self.seal_soon(recording);
        }
    }

    fn take_leaving(&self, recording: &Recording) -> bool {
        let mut leaving = lock(&self.leaving);
        let before = leaving.len();
        leaving.retain(|r| r.id != recording.id);
        leaving.len() < before
    }

    /// Seals a recording beside the calls.
    fn seal_soon(self: &Arc<Self>, recording: &Arc<Recording>) {
        if !self.take_leaving(recording) {
            return;
        }
        let (shared, ending) = (self.clone(), recording.clone());
        let spawned = std::thread::Builder::new().name("assay-sealer".into()).spawn(move || {
            shared.end(&ending, EndReason::Rolled);
        });
        match spawned {
            Ok(thread) => lock(&self.sealing).push(thread),
            Err(_) => drop(self.end(recording, EndReason::Rolled)),
        }
    }

    fn end(&self, recording: &Recording, reason: EndReason) -> Option<Sealed> {
        let sealed = recording.end(reason);
        self.lost.fetch_add(recording.losses().0, Ordering::Relaxed);
        lock(&self.sealed).extend(sealed.clone());
        sealed
    }

    /// Seals what is recorded so far; the next call begins another recording. `Ok(None)`: nothing is recorded.
    pub(super) fn pack_now(self: &Arc<Self>) -> Result<Option<Sealed>, usize> {
        let recording = {
            let mut current = lock(&self.current);
            let Some(recording) = current.take() else { return Ok(None) };
            recording.is_over.store(true, Ordering::Release);
            lock(&self.leaving).push(recording.clone());
            recording
        };
        if !recording.wait(PATIENCE) {
            return Err(recording.running());
        }
        if self.take_leaving(&recording) {
            return Ok(self.end(&recording, EndReason::Rolled));
        }
        self.join();
        Ok(lock(&self.sealed).iter().find(|sealed| sealed.session == recording.id).cloned())
    }

    fn join(&self) {
        let threads = std::mem::take(&mut *lock(&self.sealing));
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Ends everything; what was sealed since the recorder began.
    pub(super) fn close(&self, reason: EndReason) -> Vec<Sealed> {
        let current = {
            let mut current = lock(&self.current);
            self.closed.store(true, Ordering::Release);
            current.take()
        };
        let left: Vec<_> = current.into_iter().chain(std::mem::take(&mut *lock(&self.leaving))).collect();
        for recording in left {
            recording.wait(PATIENCE);
            self.end(&recording, reason);
        }
        self.join();
        lock(&self.sealed).clone()
    }

    /// Lets go of all files, as a process does that is killed.
    #[cfg(test)]
    pub(super) fn abandon(&self) {
        let current = lock(&self.current).take();
        self.closed.store(true, Ordering::Release);
        if let Some(recording) = &current {
            recording.abandon();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Called once a second.
    pub(super) fn look_after(self: &Arc<Self>) {
        let current = lock(&self.current).clone();
        let leaving = lock(&self.leaving).clone();
        for recording in current.iter().chain(&leaving) {
            if let Some(bytes) = recording.look_after() {
                self.damage.fetch_add(bytes, Ordering::Relaxed);
                self.roll(recording);
            }
        }
        if let Some(recording) = current.filter(|r| r.is_due()) {
            self.roll(&recording);
        }
    }

    pub(super) fn health(&self) -> Health {
        let recordings: Vec<_> =
            lock(&self.current).iter().cloned().chain(lock(&self.leaving).iter().cloned()).collect();
        let mut health = Health {
            requested: self.requested.load(Ordering::Relaxed),
            settled: self.settled.load(Ordering::Relaxed),
            open: 0,
            lost: self.lost.load(Ordering::Relaxed),
            disk_error: None,
        };
        for recording in recordings {
            let (lost, error) = recording.losses();
            health.lost += lost;
            health.open += recording.running() as u64;
            health.disk_error = error.or(health.disk_error);
        }
        health
    }

    /// A task has ended with this; the receipt that says so. `None` if no call of this recorder began it, or it is known
    /// already.
    pub(super) fn task_ended(&self, id: &str, outcome: Outcome<'_>) -> Option<ReceiptId> {
        let Leg { recording, facts, receipt: first } = self.memory().take_task(id)?;
        let recording = recording.upgrade().filter(|r| !r.is_over.load(Ordering::Acquire))?;
        let mut receipt = executed(&self.settings, &facts, None);
        let mut flags = Anomalies::from([CallAnomaly::TaskLeg.into()]);
        with_outcome(&self.settings, &facts, outcome, &mut receipt, &mut flags);
        receipt.anomalies = flags.into_iter().collect();
        receipt.parent_receipt_id = Some(first);
        receipt.receipt_id = ReceiptId::of_task(recording.id, facts.call);
        let id = receipt.receipt_id;
        recording.say(facts.call, Step::Executed(Box::new(receipt)));
        Some(id)
    }
}
