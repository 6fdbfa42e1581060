//! The data directory of a gateway: who holds it, and what to do when its registry cannot be used.

use super::registry::DATABASE;
use crate::{
    db::DbError,
    error::Failure,
    files::{self, Lock, Tree},
    operate::{LOCK, running},
    paths,
};
use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::Path,
    time::Duration,
};

/// Who only asks whether a gateway runs holds the lock for a moment: so long is waited for that.
const PATIENCE: Duration = Duration::from_secs(1);
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

/// Says that all was written when the gateway ended.
const ENDED: &str = "gateway.ended";

/// The gateway ends, and knows nothing that is not written down.
pub(super) fn ends_well(data: &Path) -> io::Result<()> {
    let mark = data.join(ENDED);
    Tree::at(data).replace(&mark.with_extension("tmp"), &mark, b"", true)?;
    files::sync_dir(data)
}

/// Whether the last gateway ended so. From now on that is not known of this one.
pub(super) fn ended_well(data: &Path) -> Result<bool, Failure> {
    let (tree, mark) = (Tree::at(data), data.join(ENDED));
    let well = tree.exists(&mark);
    let gone = tree.remove(&mark).and_then(|()| files::sync_dir(data));
    gone.map(|()| well).map_err(|e| Failure::failed(format_args!("{}: {e}", mark.display())))
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
