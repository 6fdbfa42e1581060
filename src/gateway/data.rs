//! The data directory of a gateway: who holds it, and what to do when its registry cannot be used.

use super::registry::DATABASE;
use crate::{
    db::DbError,
    error::Failure,
    files::{self, Lock, Tree},
    paths,
};
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// The file that is locked while a gateway runs: its process id, and where it listens.
pub const LOCK: &str = "gateway.lock";

/// Who only asks whether a gateway runs holds the lock for a moment: so long is waited for that.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of the lock file that are read.
const MAX_LOCK: u64 = 4096;

/// Where a gateway keeps everything if nobody says otherwise: below the user directory.
///
/// # Errors
/// There is no home directory; bad input.
pub fn default_data() -> Result<PathBuf, Failure> {
    Ok(paths::assay_home()?.join("gateway"))
}

/// A gateway that runs in a data directory: its process id, and where it listens.
///
/// # Errors
/// The system's error.
pub fn running(data: &Path) -> io::Result<Option<(String, String)>> {
    let path = data.join(LOCK);
    let file = match Tree::at(data).open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if files::try_lock_shared(&file)? != Lock::Busy {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_LOCK).read_to_string(&mut text)?;
    let (pid, url) = text.trim_end().split_once('\n').unwrap_or((text.trim_end(), ""));
    Ok(Some((pid.to_owned(), url.to_owned())))
}

/// Holds a data directory, which no other gateway may use.
pub(super) fn hold(data: &Path) -> Result<File, Failure> {
    let cannot = |e: io::Error| {
        Failure::bad_input(format_args!("cannot use {}: {e}", data.display()))
            .hint("name another directory with --data")
    };
    paths::create_private_dir(data)?;
    let file = Tree::at(data).append(&data.join(LOCK)).map_err(cannot)?;
    if files::patiently(PATIENCE, || files::try_lock(&file)).map_err(cannot)? == Lock::Busy {
        let who = running(data).ok().flatten().map_or_else(String::new, |(pid, _)| format!(" (process {pid})"));
        return Err(Failure::bad_input(format_args!("another gateway{who} uses {}", data.display()))
            .hint("end that one, or give this one its own directory with --data"));
    }
    Ok(file)
}

/// Tells others in the lock file who and where we are.
pub(super) fn tell(file: &mut File, url: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}\n{url}\n", std::process::id())
}

/// What to do about a registry that cannot be used.
pub fn registry_failure(data: &Path, e: &DbError) -> Failure {
    let file = data.join(DATABASE);
    match e {
        DbError::Newer { .. } => Failure::bad_input(e)
            .hint("use the later assay, or put the copy that it made in its place (.v and a number)"),
        DbError::Damaged { .. } => Failure::failed(e).hint(format_args!(
            "assay gateway restore puts a copy back; without one, assay gateway rebuild makes {} again from the \
             configuration and the approvals",
            file.display()
        )),
        DbError::Foreign { .. } | DbError::Io { .. } => {
            Failure::bad_input(e).hint("name another directory with --data")
        }
        DbError::Busy { .. } | DbError::Sql { .. } => Failure::failed(e),
    }
}
