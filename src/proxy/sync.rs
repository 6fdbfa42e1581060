//! Evidence onto the disk itself, off every other path: files that grew are synced once a second.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

/// How often files are synced.
const EVERY: Duration = Duration::from_secs(1);
/// The longest pause between two segments that are given up because syncing fails.
const LONGEST: Duration = Duration::from_mins(1);

/// Syncs what comes over `files` until its sender is gone; each set replaces the one before.
///
/// A failed sync is never repeated on the same file: its pages may be gone and the next sync would say that all is well.
/// `failed` tells the recorder to begin another segment.
///
/// # Errors
/// No thread could be made.
pub(super) fn start(files: Receiver<Vec<File>>, failed: Arc<AtomicBool>) -> std::io::Result<()> {
    let run = move || {
        let mut current: Vec<(File, u64)> = Vec::new();
        let mut pause = EVERY;
        loop {
            match files.recv_timeout(pause) {
                Ok(set) => current = set.into_iter().map(|f| (f, 0)).collect(),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(e) = sync(&mut current) {
                        tracing::error!(error = %e, "evidence could not be synced; another segment is begun");
                        current.clear();
                        failed.store(true, Ordering::Release);
                        pause = (pause * 2).min(LONGEST);
                    }
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
