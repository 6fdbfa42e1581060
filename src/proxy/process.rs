//! The parts of a recording process that exist once, however many sessions it records: live thread, sync, sealer,
//! recorder.

use super::{
    lifecycle::Event,
    patience,
    seal::{self, Keeping},
    status::{self, Tally},
    sync,
};
use crate::{
    live::{hub::Hub, server},
    paths::AuditDir,
    record::{
        broadcast::{Broadcast, Silent},
        engine::Engine,
        health::Health,
        recorder::Ending,
        session::{RecorderReport, Shared},
        source::Source,
    },
    relay::Waker,
    seal::certifier_every,
    sys,
};
use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tracing_appender::non_blocking::WorkerGuard;

/// What the main thread hears.
pub(super) type Inbox = Receiver<Event>;

/// Most sessions that wait for their packs, each with its files open.
const WAITING: usize = 64;

const NOT_SEALED: &str = "the disk does not respond: some packs were not built; run `assay recover` once it does";

/// The threads of the process.
pub(super) struct Process {
    keeping: Keeping,
    /// Tells the main thread.
    pub(super) events: Sender<Event>,
    live: Option<(Arc<Hub>, JoinHandle<()>)>,
    shared: Shared,
    sealing: JoinHandle<Tally>,
    /// Lives as long as anything may be logged.
    log: Option<WorkerGuard>,
}

/// A process whose recorder runs.
pub(super) struct Recording {
    keeping: Keeping,
    live: Option<(Arc<Hub>, JoinHandle<()>)>,
    recorder: JoinHandle<RecorderReport>,
    finish: Sender<Ending>,
    sealing: JoinHandle<Tally>,
    waker: Arc<Waker>,
    log: Option<WorkerGuard>,
}

/// What became of everything that was recorded.
pub(super) struct Finished {
    pub(super) report: RecorderReport,
    pub(super) sealed: Tally,
    /// The last status messages go there, too.
    _log: Option<WorkerGuard>,
}

impl Finished {
    /// Whether everything that was recorded is sealed.
    pub(super) const fn is_kept(&self) -> bool {
        !self.report.left_for_recovery && !self.report.damaged && !self.sealed.has_problems
    }
}

impl Process {
    /// The threads that need no session. The error says what the system does not have.
    pub(super) fn start(keeping: Keeping, events: Sender<Event>) -> Result<Self, String> {
        let live = keeping.usable.then(|| live(&keeping.dir, keeping.live_content)).flatten();
        let hub = live.as_ref().map(|(hub, _)| hub.clone());
        let log = keeping.usable.then(|| status::log_to(&keeping.dir, keeping.status)).flatten();
        let (ended, sealed) = mpsc::sync_channel(WAITING);
        let (files, to_sync) = mpsc::channel();
        let certify = keeping.signer.as_ref().and_then(|signer| certifier_every(signer, keeping.checkpoint_every));
        let sealer = seal::Sealer { keeping: keeping.clone(), live: hub.clone() };
        let started = sync::start(to_sync).map_err(|e| format!("no thread for syncing: {e}")).and_then(|()| {
            let seal = move || sealer.run(&sealed);
            let sealing = thread::Builder::new().name("assay-sealer".into()).spawn(seal);
            sealing.map_err(|e| format!("no thread for sealing: {e}"))
        });
        let broadcast: Arc<dyn Broadcast> = match hub {
            Some(hub) => hub,
            None => Arc::new(Silent),
        };
        match started {
            Ok(sealing) => Ok(Self {
                keeping,
                events,
                live,
                shared: Shared { broadcast, ended, files, health: Arc::default(), certify },
                sealing,
                log,
            }),
            Err(why) => {
                close(live);
                Err(why)
            }
        }
    }

    /// Where the sessions can be watched.
    pub(super) fn hub(&self) -> Option<&Arc<Hub>> {
        self.live.as_ref().map(|(hub, _)| hub)
    }

    /// Has the recorder tell here how it is.
    pub(super) fn tells(&mut self, health: Arc<Health>) {
        self.shared.health = health;
    }

    /// There will be no session.
    pub(super) fn stop(self) {
        close(self.live);
    }

    /// Starts the recorder, `nice` steps below the priority of others: it begins the sessions of this source on disk. The
    /// error says what the system does not have.
    pub(super) fn record(self, source: Box<dyn Source>, waker: Arc<Waker>, nice: i32) -> Result<Recording, String> {
        let Self { keeping, live, shared, sealing, log, .. } = self;
        let (finish, ending) = mpsc::channel();
        let engine = Engine::new(shared, source, waker.clone());
        let run = move || {
            if let Err(e) = sys::process::nice_this_thread(nice) {
                tracing::debug!(error = %e, "the recorder keeps its priority");
            }
            engine.run(&ending)
        };
        match thread::Builder::new().name("assay-recorder".into()).spawn(run) {
            Ok(recorder) => Ok(Recording { keeping, live, recorder, finish, sealing, waker, log }),
            Err(e) => {
                close(live);
                Err(format!("no thread for recording: {e}"))
            }
        }
    }
}

impl Recording {
    /// Finishes what earlier processes left in this directory.
    pub(super) fn recover_others(&self) {
        if self.keeping.usable {
            seal::recover_in_background(&self.keeping);
        }
    }

    /// Removes what is not to be kept.
    pub(super) fn pruning(&self) -> Option<impl FnOnce() + Send + use<>> {
        seal::pruning(&self.keeping)
    }

    /// Ends every session with this ending, and has it sealed. A disk that answers nothing must not keep us: what is
    /// not sealed is finished by `recover`. `lives` says whether the recorder does.
    pub(super) fn finish(self, ending: Ending, patience: Duration, lives: &dyn Fn() -> bool) -> Finished {
        let Self { keeping, live, recorder, finish, sealing, waker, log } = self;
        let _ = finish.send(ending);
        waker.urge();
        let report = patience::join(recorder, patience, lives);
        // A thread that waits for the recorder waits for the same disk.
        let patience = if report.is_some() { patience } else { Duration::ZERO };
        let report = report.unwrap_or_else(|| RecorderReport { left_for_recovery: true, ..RecorderReport::default() });
        let tally = patience::join(sealing, patience, &|| false);
        let (is_sealed, status) = (tally.is_some(), keeping.status);
        if report.damaged && is_sealed && keeping.auto_pack {
            // Finishes sessions whose files another process has changed.
            let run = move || seal::recover_now(&keeping);
            if let Ok(thread) = thread::Builder::new().name("assay-recover".into()).spawn(run)
                && patience::join(thread, patience, &|| false).is_none()
            {
                status.warn(NOT_SEALED);
            }
        } else if !is_sealed {
            status.warn(NOT_SEALED);
        }
        close(live);
        let report = RecorderReport { left_for_recovery: report.left_for_recovery || !is_sealed, ..report };
        Finished { report, sealed: tally.unwrap_or_default(), _log: log }
    }
}

/// Starts the live thread. If sessions cannot be watched, they are still recorded.
fn live(dir: &AuditDir, contents: bool) -> Option<(Arc<Hub>, JoinHandle<()>)> {
    match server::start(dir.root(), contents) {
        Ok(live) => Some(live),
        Err(e) => {
            tracing::warn!(error = %e, "this process cannot be watched");
            None
        }
    }
}

fn close(live: Option<(Arc<Hub>, JoinHandle<()>)>) {
    if let Some((hub, thread)) = live {
        hub.close();
        let _ = thread.join();
    }
}
