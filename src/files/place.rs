//! Names that appear all at once or not at all.

use super::sync::sync_dir;
use assay_evidence::plain::{create_new, write_new};
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
};

/// Writes a file, 0600, under `staged`, then gives it the name `path`, whatever was there before: a reader sees the
/// one or the other. Both are in one directory. `ready` is what is done with the whole file before it has its name:
/// syncing, a lock, other permissions. Gives the file.
///
/// # Errors
/// An I/O error; then `path` is what it was.
pub fn replace(
    staged: &Path,
    path: &Path,
    bytes: &[u8],
    ready: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    // Left by a writer that was killed.
    let _ = fs::remove_file(staged);
    let mut file = create_new(staged)?;
    let placed = file.write_all(bytes).and_then(|()| ready(&file)).and_then(|()| fs::rename(staged, path));
    if let Err(e) = placed {
        let _ = fs::remove_file(staged);
        return Err(e);
    }
    Ok(file)
}

/// Writes a whole new file, 0600, synced, under `staged`, then gives it the name `path` unless that exists. Both are in
/// one directory, and `staged` is gone afterwards.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or an I/O error.
pub fn place_new(staged: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let placed = write_new(staged, bytes).and_then(|()| place_file(staged, path));
    if placed.is_err() {
        let _ = fs::remove_file(staged);
    }
    placed?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes a directory, 0700.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or an I/O error.
pub fn new_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes a directory and its parents, 0700 for everything that is new; existing ones are left as they are.
///
/// # Errors
/// An I/O error.
pub fn make_dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Gives the finished file `temp` the name `target` unless that exists; `temp` is gone afterwards either way.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or an I/O error.
pub fn place_file(temp: &Path, target: &Path) -> io::Result<()> {
    let placed = fs::hard_link(temp, target).or_else(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Err(e),
        // File systems without hard links (FAT, some network mounts) may still rename without replacing.
        _ => rename_noreplace(temp, target),
    });
    // After a rename there is nothing left to remove, after a link there is.
    let _ = fs::remove_file(temp);
    placed
}

/// Renames `from` to `to` unless that exists.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or an I/O error.
pub fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            // Not atomic, but for a directory a plain rename can replace only an empty one.
            if fs::symlink_metadata(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_replaced_and_no_temporary_file_stays() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::write(at("new"), "new").unwrap();
        assert_eq!(place_file(&at("new"), &at("old")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!at("new").exists());
        fs::create_dir(at("a")).unwrap();
        fs::create_dir(at("b")).unwrap();
        assert_eq!(rename_noreplace(&at("a"), &at("b")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        rename_noreplace(&at("a"), &at("c")).unwrap();
        assert!(at("c").is_dir() && !at("a").exists());
        assert_eq!(fs::read(at("old")).unwrap(), b"old");
    }

    #[test]
    fn what_is_replaced_is_the_old_or_the_new_and_what_is_staged_goes() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        let names = || fs::read_dir(tmp.path()).unwrap().count();
        // A leftover of a killed writer is not an obstacle.
        fs::write(at("staged"), "left").unwrap();
        replace(&at("staged"), &at("file"), b"one", crate::files::sync_all).unwrap();
        replace(&at("staged"), &at("file"), b"two", |_| Ok(())).unwrap();
        assert_eq!((fs::read(at("file")).unwrap(), names()), (b"two".to_vec(), 1));
        let failed = replace(&at("staged"), &at("file"), b"three", |_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!((fs::read(at("file")).unwrap(), names()), (b"two".to_vec(), 1));
        // A link is replaced, not what it leads to.
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        replace(&at("staged"), &at("link"), b"four", |_| Ok(())).unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"two");

        place_new(&at("staged"), &at("new"), b"new").unwrap();
        assert_eq!(place_new(&at("staged"), &at("new"), b"again").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((fs::read(at("new")).unwrap(), at("staged").exists()), (b"new".to_vec(), false));
    }
}
