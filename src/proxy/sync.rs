//! Syncs evidence to disk, off every other path: files that grew are synced once a second.

use crate::{model::SessionId, record::session::Written};
use std::{
    collections::HashMap,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// How often files are synced.
const EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two segments that are given up because syncing fails.
const LONGEST: Duration = Duration::from_mins(1);

/// The files of one session, each with the length up to which it was synced.
struct Synced {
    files: Vec<(File, u64)>,
    failed: Arc<AtomicBool>,
}

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
                Ok(Written { session, files, .. }) if files.is_empty() => drop(sessions.remove(&session)),
                Ok(Written { session, files, failed }) => {
                    let files = files.into_iter().map(|file| (file, 0)).collect();
                    sessions.insert(session, Synced { files, failed });
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let before = sessions.len();
                    sessions.retain(|session, synced| match sync(&mut synced.files) {
                        None => true,
                        Some(e) => {
                            tracing::error!(%session, error = %e, "evidence could not be synced; a new segment is started");
                            synced.failed.store(true, Ordering::Release);
                            false
                        }
                    });
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

fn sync(files: &mut [(File, u64)]) -> Option<std::io::Error> {
    for (file, synced) in files {
        let len = file.metadata().map_or(*synced + 1, |m| m.len());
        if len == *synced {
            continue;
        }
        if let Err(e) = crate::files::sync_data(file) {
            return Some(e);
        }
        *synced = len;
    }
    None
}
