//! What must be there after a power cut.

use super::ours::DIRECTORY;
use assay_evidence::plain::is_unsupported;
use rustix::fs::{Mode, OFlags};
use std::{fs::File, io, path::Path};

/// Syncs a file and what describes it. A file system that has no such thing is taken at its word.
///
/// # Errors
/// An I/O error.
pub fn sync_all(file: &File) -> io::Result<()> {
    allowing_unsupported(file.sync_all())
}

/// Syncs a file. A file system that has no such thing is taken at its word.
///
/// # Errors
/// An I/O error.
pub fn sync_data(file: &File) -> io::Result<()> {
    allowing_unsupported(file.sync_data())
}

/// Syncs a directory, so that names made in it are there after a power cut. A file system that cannot is taken at its
/// word.
///
/// # Errors
/// An I/O error.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = rustix::fs::open(dir, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?;
    allowing_unsupported(File::from(dir).sync_all())
}

fn allowing_unsupported(synced: io::Result<()>) -> io::Result<()> {
    synced.or_else(|e| {
        if is_unsupported(&e) {
            tracing::debug!(error = %e, "the file system cannot sync");
            Ok(())
        } else {
            Err(e)
        }
    })
}
