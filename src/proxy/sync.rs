//! Syncs evidence to disk, off every other path: files that grew are synced once a second, and then stated in checkpoints.

use crate::{
    model::SessionId,
    record::session::{Synced, Written},
};
use std::{
    collections::HashMap,
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How often files are synced.
const EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two segments that are given up because syncing fails.
const LONGEST: Duration = Duration::from_mins(1);

/// Syncs the files of every session that comes over `written`, until its sender is gone; each set replaces the one
/// before of its session.
///
/// A failed sync is never repeated on the same file: its pages may be gone and the next sync would say that all is
/// well. The recorder is told to begin another segment.
///
/// # Errors
/// No thread could be made.
pub(super) fn start(written: Receiver<Written>) -> std::io::Result<()> {
    let run = move || {
        let mut sessions: HashMap<SessionId, Synced> = HashMap::new();
        let mut pause = EVERY;
        let mut next = Instant::now() + pause;
        loop {
            match written.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Written { session, files: None }) => drop(sessions.remove(&session)),
                Ok(Written { session, files: Some(files) }) => drop(sessions.insert(session, files)),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let before = sessions.len();
                    sessions.retain(|_, files| files.sync());
                    if sessions.len() < before {
                        pause = (pause * 2).min(LONGEST);
                    }
                    next = Instant::now() + pause;
                }
            }
        }
    };
    thread::Builder::new().name("assay-sync".into()).spawn(run).map(drop)
}
