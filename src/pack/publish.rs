//! Names that appear all at once or not at all: new files and whole directories put in place without replacing anything.

use std::{fs, io, path::Path};

/// Gives the finished file `temp` the name `target` unless that exists; `temp` is gone afterwards either way.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or what the system says.
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
/// [`io::ErrorKind::AlreadyExists`], or what the system says.
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
}
