//! Receipts that a server writes of itself: a call is recorded before anything runs, when the policy refuses it, and when
//! its handler is done (docs/library.md).
//!
//! ```no_run
//! use assay::receipts::{Outcome, Recorder, Request};
//!
//! let recorder = Recorder::builder("my-server@1.0.0").auto_pack(true).open()?;
//! let receipts = recorder.receipts();
//! let pending = receipts.request(&Request { tool: "echo", arguments: Some(br#"{"text":"hi"}"#), ..Request::default() });
//! match pending.judge() {
//!     Err(denied) => eprintln!("{}", denied.message),
//!     Ok(mut running) => {
//!         running.start();
//!         running.finish(Outcome::Result(br#"{"content":[{"type":"text","text":"hi"}]}"#));
//!     }
//! }
//! for pack in recorder.close().packs {
//!     println!("{}", pack.pack.unwrap_or_default().display());
//! }
//! # Ok::<(), assay::receipts::OpenError>(())
//! ```
//!
//! Nothing here knows an SDK. Nothing here fails a call: a disk that cannot be written is warned of, and what is missing is
//! counted in the evidence, unless [`Builder::require_evidence`] says otherwise.

mod call;
mod memory;
mod outcome;
mod recording;
#[cfg(feature = "rmcp")]
mod rmcp;
mod settings;
mod shared;
mod signals;
#[cfg(test)]
mod tests;

pub use crate::record::redact::Cleartext;
pub use crate::{
    model::{InvocationId, ReceiptId, Transport},
    seal::Sealed,
};
pub use call::{Denied, Pending, Request, Running};
pub use outcome::Outcome;
#[cfg(feature = "rmcp")]
pub use rmcp::{Receipted, ReceiptedRouter, ReceiptedService};
pub use settings::{Builder, Denial, Names, OnSignals, OpenError};

use crate::{
    model::{DurationMs, EndReason},
    paths::{self, AuditDir},
    seal,
};
use settings::Settings;
use shared::Shared;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

/// How often what is written is synced, and what could not be written is tried again.
const EVERY: Duration = Duration::from_secs(1);

/// How the recorder is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Calls that were recorded as asked for.
    pub requested: u64,
    /// Of these, calls with an outcome.
    pub settled: u64,
    /// Calls that run.
    pub open: u64,
    /// Receipts that are in no recording.
    pub lost: u64,
    /// The last error of the disk, with the operation that failed.
    pub disk_error: Option<String>,
}

/// What became of everything that a recorder recorded.
#[derive(Debug, Clone)]
pub struct Closed {
    /// Every recording that was sealed, the oldest first.
    pub packs: Vec<Sealed>,
    /// How the recorder was at its end.
    pub health: Health,
}

/// Why there is no pack now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Calls still run; the pack is built when the last of them is done.
    #[error("{0} calls still run after 2 s; the pack is built when the last of them is done")]
    Busy(usize),
    /// Nothing was recorded since the last pack.
    #[error("nothing was recorded since the last pack")]
    Nothing,
}

/// Owns the recording of a server; one a process. Dropping it closes it.
pub struct Recorder {
    shared: Arc<Shared>,
    signals: Option<signals::Listening>,
    #[cfg(test)]
    recovery: Option<thread::JoinHandle<()>>,
}

/// Records calls; cheap to clone, and for any number of threads.
#[derive(Clone)]
pub struct Receipts(Arc<Shared>);

impl Recorder {
    /// How a server records itself. The id names it in the evidence, for example `my-server@1.0.0`: at most 128 printable
    /// ASCII characters.
    pub fn builder(server_id: impl Into<String>) -> Builder {
        Builder::new(server_id.into())
    }

    fn begin(
        settings: Arc<Settings>,
        audit_dir: &Path,
        home: Option<PathBuf>,
        on_signals: Option<OnSignals>,
    ) -> Result<Self, OpenError> {
        let (named, _) = paths::named_audit_dir(audit_dir).map_err(OpenError::AuditDir)?;
        let given = std::path::absolute(&named).unwrap_or(named);
        let reached = AuditDir::reach(audit_dir);
        let dir = reached.as_ref().ok().cloned().unwrap_or_else(|| AuditDir::at(&given));
        let dir = if home.is_some() { dir.remembered_in(home) } else { dir.of_user() };
        if let Err(e) = reached.and_then(|dir| dir.create()) {
            Settings::warn(&format!("the audit directory cannot be used: {e}; calls are not recorded until it can be"));
        }
        settings.keep_policy(&dir);
        let shared = Arc::new(Shared::new(settings, dir));
        keep_looking(Arc::downgrade(&shared)).map_err(|e| OpenError::System(e.to_string()))?;
        let signals = match on_signals {
            Some(what) => Some(signals::listen(&shared, what).map_err(|e| OpenError::System(e.to_string()))?),
            None => None,
        };
        let recovery = recover_others(&shared);
        if let Err(e) = &recovery {
            tracing::warn!(error = %e, "cannot start a thread for recovery");
        }
        Ok(Self {
            shared,
            signals,
            #[cfg(test)]
            recovery: recovery.ok(),
        })
    }

    /// A handle that records calls.
    #[must_use]
    pub fn receipts(&self) -> Receipts {
        Receipts(self.shared.clone())
    }

    /// How the recorder is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Seals what was recorded so far; the next call begins another recording. Waits up to 2 s for calls that run.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn pack_now(&self) -> Result<Sealed, SealError> {
        self.shared.pack_now().map_err(SealError::Busy)?.ok_or(SealError::Nothing)
    }

    /// Ends the recording. Waits up to 2 s for calls that run; then the evidence says that they have no outcome. This
    /// blocks: in an async program call it where that may be, for example in `spawn_blocking`.
    #[must_use]
    pub fn close(mut self) -> Closed {
        self.end()
    }

    fn end(&mut self) -> Closed {
        drop(self.signals.take());
        let packs = self.shared.close(EndReason::Closed);
        Closed { packs, health: self.shared.health() }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.shared.is_closed() {
            let _ = self.end();
        }
    }
}

impl Receipts {
    /// Records that a call is asked for, before anything runs.
    pub fn request(&self, request: &Request<'_>) -> Pending {
        call::request(&self.0, request)
    }

    /// Records what a task came to that a call of this recorder began (`resultType: task`); only the first time.
    pub fn task_ended(&self, task_id: &str, outcome: Outcome<'_>) -> Option<ReceiptId> {
        self.0.task_ended(task_id, outcome)
    }

    /// How the recorder is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.0.health()
    }

    /// How the client of a refused call is to be told.
    #[must_use]
    pub fn denial(&self) -> Denial {
        self.0.settings.deny_as
    }
}

/// A duration as receipts have it.
fn millis(took: Duration) -> DurationMs {
    DurationMs(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

fn keep_looking(shared: Weak<Shared>) -> std::io::Result<()> {
    let look = move || {
        loop {
            thread::park_timeout(EVERY);
            match shared.upgrade() {
                Some(shared) if !shared.is_closed() => shared.look_after(),
                _ => return,
            }
        }
    };
    thread::Builder::new().name("assay-sync".into()).spawn(look).map(drop)
}

/// Finishes what earlier processes left in this directory, beside the calls.
fn recover_others(shared: &Arc<Shared>) -> std::io::Result<thread::JoinHandle<()>> {
    let shared = shared.clone();
    let run = move || {
        let _ = crate::sys::process::nice_this_thread(15);
        let signer = || shared.settings.signer();
        match seal::recover_dir(&shared.dir, &signer, true, &|_| ()) {
            Ok(all) => all.into_iter().filter_map(Result::err).for_each(|e| {
                Settings::warn(&format!("a session that died could not be recovered: {e}"));
            }),
            Err(e) => tracing::debug!(error = %e, "looking for sessions that died failed"),
        }
    };
    thread::Builder::new().name("assay-recover".into()).spawn(run)
}
