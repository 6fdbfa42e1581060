//! Which files are ours: those that belong to this user and that no other user may write to.

use assay_evidence::plain::{FILE, is_plain, link_said, refuse};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat};
use std::{fs::File, io, path::Path};

/// How a directory is opened: links in its last name are not followed.
pub const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How a file of ours is made.
pub const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Whether this is a directory of ours that nobody else may write to, and no link: what is in it may be swept.
#[must_use]
pub fn is_own_dir(path: &Path) -> bool {
    let dir = rustix::fs::open(path, DIRECTORY, Mode::empty());
    dir.is_ok_and(|dir| directory_of_ours(&dir, path).is_ok())
}

/// Whether a directory is ours.
pub fn directory_of_ours(dir: impl AsFd, path: &Path) -> io::Result<()> {
    ours(&rustix::fs::fstat(dir)?).map_err(|what| refuse(format!("the directory {} {what}", path.display())))
}

/// Whether it is a plain file of ours without other names.
pub fn file_of_ours(stat: &Stat) -> io::Result<()> {
    is_plain(stat)?;
    // A file with a second name could make us change a file somewhere else.
    if stat.st_nlink > 1 {
        return Err(refuse("it is a hard link, a file with other names"));
    }
    ours(stat).map_err(|what| refuse(format!("the file {what}")))
}

fn ours(stat: &Stat) -> Result<(), &'static str> {
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        Err("belongs to another user")
    } else if stat.st_mode & 0o022 != 0 {
        Err("can be written by others; run chmod go-w")
    } else {
        Ok(())
    }
}

/// Opens a plain file of ours to read it and to write in it, where it is under a name that we chose.
///
/// # Errors
/// A refusal, or an I/O error.
pub fn open_own(path: &Path) -> io::Result<File> {
    let file = rustix::fs::open(path, FILE | OFlags::RDWR, Mode::empty()).map_err(link_said)?;
    let stat = rustix::fs::fstat(&file)?;
    is_plain(&stat)?;
    ours(&stat).map_err(|what| refuse(format!("the file {what}")))?;
    Ok(file.into())
}

/// Opens a directory, which must not be a link, to lock it or to sync it.
///
/// # Errors
/// An I/O error.
pub fn open_dir(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?.into())
}

/// Makes a file in a directory, 0600, to read it and to write in it.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or an I/O error.
pub fn create_in(dir: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, PRIVATE)?)
}

/// Makes `dir` 0700 unless it is there, and opens it. It is refused unless it is a directory of ours that nobody else
/// can even enter. Its parent must exist.
///
/// # Errors
/// A refusal, or an I/O error.
pub fn exclusive_dir(dir: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let fd = rustix::fs::open(dir, DIRECTORY, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refuse("the directory belongs to another user"));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(refuse("the directory is open to other users"));
    }
    Ok(fd)
}
