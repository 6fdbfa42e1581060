//! Writing a client's file: after a backup, whole or not at all, and looked at again, because clients write their files, too.

use crate::{
    files::{self, Kept, Lock, Tree},
    model::{WallTime, sha256_hex},
    paths,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Backups that are kept of one file.
const BACKUPS: usize = 20;
/// How often a change is begun anew because the file has changed.
const TRIES: usize = 3;
/// How long another run of ours is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after writing a file is looked at again.
pub const LATER: Duration = Duration::from_secs(1);

/// Why a file was not written, or is not what was written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It could not be read, backed up or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else writes it all the time.
    #[error("{0} changes while it is changed; nothing was written")]
    Busy(PathBuf),
    /// Another run of ours holds the lock.
    #[error("another assay wrap or unwrap is running")]
    Locked,
    /// Somebody has replaced what was written.
    #[error("{0} was written by another program right after; it is not what was written here")]
    Overwritten(PathBuf),
    /// The user directory cannot be used.
    #[error(transparent)]
    Home(#[from] paths::PathError),
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Io { path, source }
}

/// Our right to change files, until it is dropped.
#[derive(Debug)]
pub struct Writer {
    home: PathBuf,
    _lock: File,
}

/// A file that was written.
#[derive(Debug)]
pub struct Written {
    /// The file itself, wherever links lead.
    pub real: PathBuf,
    /// The copy of what it was.
    pub backup: PathBuf,
    /// What it must be now.
    pub bytes: Vec<u8>,
    /// How it was written.
    pub how: Kept,
}

impl Writer {
    /// Takes the lock, in the user directory.
    ///
    /// # Errors
    /// Another run of ours is at work, or the user directory cannot be used.
    pub fn take(home: &Path) -> Result<Self, WriteError> {
        paths::create_private_dir(home)?;
        let path = home.join("clients.lock");
        let lock = Tree::at(home).append(&path).map_err(failed(&path))?;
        match files::patiently(PATIENCE, || files::try_lock(&lock)).map_err(failed(&path))? {
            Lock::Busy => Err(WriteError::Locked),
            Lock::Taken | Lock::Unsupported => Ok(Self { home: home.to_owned(), _lock: lock }),
        }
    }

    /// Changes a file: `edit` is given its bytes, as often as they change meanwhile, and gives the new ones, or none to leave it.
    ///
    /// # Errors
    /// [`WriteError`], or that of `edit`.
    pub fn change<E: From<WriteError>>(
        &self,
        path: &Path,
        mut edit: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Written>, E> {
        let real = path.canonicalize().map_err(failed(path))?;
        for _ in 0..TRIES {
            let old = files::plain(&real).and_then(|file| files::read_all(file, super::read::LARGEST));
            let old = old.map_err(failed(&real))?;
            let Some(new) = edit(&old)? else { return Ok(None) };
            let backup = self.back_up(&real, &old)?;
            match files::replace_kept(&real, &old, &new).map_err(failed(&real))? {
                Kept::Changed => {}
                how => {
                    let written = Written { real, backup, bytes: new, how };
                    written.look()?;
                    return Ok(Some(written));
                }
            }
        }
        Err(WriteError::Busy(real).into())
    }

    /// Copies what a file is; the oldest copies of it go.
    fn back_up(&self, real: &Path, bytes: &[u8]) -> Result<PathBuf, WriteError> {
        let dir = self.home.join("backups");
        paths::create_private_dir(&dir)?;
        let hash = name_hash(real);
        let name: String = real.file_name().unwrap_or_default().to_string_lossy().chars().take(100).collect();
        let stamp = WallTime::now().compact();
        for n in 0..1000 {
            let path = dir.join(format!("{stamp}-{n:03}-{hash}-{name}"));
            match paths::write_new(&path, bytes) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => {
                    let _ = std::fs::remove_file(&path);
                    return Err(failed(&path)(e));
                }
                Ok(()) => {
                    let _ = files::sync_dir(&dir);
                    thin(&dir, &hash);
                    return Ok(path);
                }
            }
        }
        Err(failed(&dir)(io::ErrorKind::AlreadyExists.into()))
    }
}

/// Removes the oldest copies of a file but for some.
fn thin(dir: &Path, hash: &str) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut names: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
    names.retain(|name| name.to_str().is_some_and(|name| name.split('-').nth(2) == Some(hash)));
    names.sort();
    for name in names.iter().take(names.len().saturating_sub(BACKUPS)) {
        let _ = std::fs::remove_file(dir.join(name));
    }
}

/// Short name of a path, for files that are about it.
#[must_use]
pub fn name_hash(path: &Path) -> String {
    let hash = sha256_hex(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
    hash.trim_start_matches("sha256:").chars().take(12).collect()
}

impl Written {
    /// Whether the file is still what was written.
    ///
    /// # Errors
    /// It is not, or cannot be read.
    pub fn look(&self) -> Result<(), WriteError> {
        let now = files::plain(&self.real).and_then(|file| files::read_all(file, super::read::LARGEST));
        if now.map_err(failed(&self.real))? == self.bytes {
            Ok(())
        } else {
            Err(WriteError::Overwritten(self.real.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a_link_stays_a_link_and_what_was_there_is_in_a_backup() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        fs::create_dir(at("dotfiles")).unwrap();
        fs::write(at("dotfiles/mcp.json"), "one").unwrap();
        symlink("dotfiles/mcp.json", at("mcp.json")).unwrap();
        let writer = Writer::take(&at("home")).unwrap();
        let change = |to: &'static str| {
            writer.change::<WriteError>(&at("mcp.json"), |_| Ok(Some(to.as_bytes().to_vec()))).unwrap().unwrap()
        };
        let first = change("two");
        assert_eq!(
            (fs::read(&first.backup).unwrap(), fs::read(at("dotfiles/mcp.json")).unwrap()),
            (b"one".to_vec(), b"two".to_vec())
        );
        assert!(at("mcp.json").symlink_metadata().unwrap().is_symlink());
        for n in 0..25 {
            change(if n % 2 == 0 { "a" } else { "b" });
        }
        assert_eq!(fs::read_dir(at("home/backups")).unwrap().count(), BACKUPS);
        assert!(writer.change::<WriteError>(&at("mcp.json"), |_| Ok(None)).unwrap().is_none());
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_read_again_and_one_that_always_does_is_left() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        fs::write(at("f"), "0").unwrap();
        let writer = Writer::take(&at("home")).unwrap();
        let mut turn = 0;
        let written = writer.change::<WriteError>(&at("f"), |old| {
            turn += 1;
            if turn < 3 {
                fs::write(at("f"), turn.to_string()).unwrap();
            }
            Ok(Some([old, b"!"].concat()))
        });
        assert_eq!((written.unwrap().unwrap().bytes, turn), (b"2!".to_vec(), 3));
        let busy = writer.change::<WriteError>(&at("f"), |old| {
            fs::write(at("f"), [old, b"x"].concat()).unwrap();
            Ok(Some(b"ours".to_vec()))
        });
        assert!(matches!(busy, Err(WriteError::Busy(_))));
        assert_eq!(fs::read(at("f")).unwrap(), b"2!xxx");
        fs::write(at("f"), "theirs").unwrap();
        let late = Written { real: at("f"), backup: at("b"), bytes: b"ours".to_vec(), how: Kept::Renamed };
        assert!(matches!(late.look(), Err(WriteError::Overwritten(_))));
    }
}
