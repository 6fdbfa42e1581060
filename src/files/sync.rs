//! What must be there after a power cut.

use super::ours::DIRECTORY;
use assay_evidence::plain::is_unsupported;
use rustix::fs::{Mode, OFlags};
use std::{fs::File, io, path::Path};

/// Bytes that are free where something more can be written.
const ROOM: u64 = 1 << 20;

/// Whether the file system of a directory has room and can be written; one that does not say so is taken to.
#[must_use]
pub fn has_room(dir: &Path) -> bool {
    let Ok(stat) = rustix::fs::statvfs(dir) else { return true };
    let is_read_only = stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY);
    !is_read_only && (stat.f_blocks == 0 || stat.f_bavail.saturating_mul(stat.f_frsize) >= ROOM)
}

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
