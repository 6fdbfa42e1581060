//! Plain files: how to open one for reading that another user may have made, and how to write a new one.
//!
//! Nothing here waits for a writer of a fifo, follows a link that the user did not choose, opens a device, reads without a
//! limit, or replaces what is there.

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// What is there is not what we would have made, and is not touched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// The error of which [`is_refusal`] is true; `what` says what is there.
pub fn refuse(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Refusal(what.into()))
}

/// Whether this is not a failure of the system, but a file or directory that is not as we would have made it.
#[must_use]
pub fn is_refusal(e: &io::Error) -> bool {
    e.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Refusal>)
}

/// Whether the file system cannot do what was asked (locks, syncing a directory), which is not a failure of the disk.
#[must_use]
pub fn is_unsupported(e: &io::Error) -> bool {
    let codes = [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::INVAL];
    e.raw_os_error().is_some_and(|code| codes.iter().any(|known| known.raw_os_error() == code))
}

/// What is said of a link.
pub const LINK: &str = "it is a symbolic link, which is not followed";

/// What every file is opened with: no waiting, no link, no terminal of ours.
pub const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Whether it is a plain file.
///
/// # Errors
/// A refusal that says what it is.
pub fn is_plain(stat: &Stat) -> io::Result<()> {
    Err(refuse(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => LINK,
        FileType::Directory => "it is a directory, not a plain file",
        FileType::Fifo => "it is a fifo, not a plain file",
        FileType::Socket => "it is a socket, not a plain file",
        _ => "it is a device, not a plain file",
    }))
}

/// What the system says of a link that must not be followed is a refusal.
pub fn link_said(e: Errno) -> io::Error {
    match e {
        Errno::LOOP => refuse(LINK),
        e => e.into(),
    }
}

/// Opens a plain file to read it, which must not be a link.
///
/// # Errors
/// A refusal, or what the system says.
pub fn plain(path: &Path) -> io::Result<File> {
    is_plain(&rustix::fs::lstat(path)?)?;
    let file = rustix::fs::open(path, FILE | OFlags::RDONLY, Mode::empty()).map_err(link_said)?;
    is_plain(&rustix::fs::fstat(&file)?)?;
    Ok(file.into())
}

/// Opens a plain file that the user named to read it, also through links.
///
/// # Errors
/// A refusal, or what the system says.
pub fn named(path: &Path) -> io::Result<File> {
    is_plain(&rustix::fs::stat(path)?)?;
    let file = rustix::fs::open(path, FILE.difference(OFlags::NOFOLLOW) | OFlags::RDONLY, Mode::empty())?;
    is_plain(&rustix::fs::fstat(&file)?)?;
    Ok(file.into())
}

/// Reads a file of at most `max` bytes to its end.
///
/// # Errors
/// A refusal of what is longer, or what the system says.
pub fn read_all(file: File, max: u64) -> io::Result<Vec<u8>> {
    let long = || match max {
        max if max > 0 && max.is_multiple_of(1 << 20) => refuse(format!("it is longer than {} MiB", max >> 20)),
        max => refuse(format!("it is longer than {max} bytes")),
    };
    if file.metadata()?.len() > max {
        return Err(long());
    }
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(long()) } else { Ok(bytes) }
}

/// Makes a new file, 0600, to write it and to read it; refuses to replace one.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or what the system says.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

/// Puts a whole file, 0600, synced, in the place of the one before: a reader sees the one or the other.
///
/// # Errors
/// The system's error; the one before then stays.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut staged = path.as_os_str().to_owned();
    staged.push(format!(".{}.new", std::process::id()));
    let staged = Path::new(&staged);
    let placed = write_new(staged, bytes).and_then(|()| std::fs::rename(staged, path));
    if placed.is_err() {
        let _ = std::fs::remove_file(staged);
    }
    placed
}

/// Writes a whole new file, 0600, synced; refuses to replace one.
///
/// # Errors
/// The system's error.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = create_new(path)?;
    file.write_all(bytes)?;
    // A file system that has no such thing is taken at its word.
    file.sync_all().or_else(|e| if is_unsupported(&e) { Ok(()) } else { Err(e) })
}
