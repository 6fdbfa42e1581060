//! Where ring files live: the first directory that is ours, private, and has room.

use crate::files::{Lock, try_lock};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Directories to try, best first: `$XDG_RUNTIME_DIR/assay`, `/dev/shm/assay-<uid>` (Linux), `fallback`. The first two are
/// memory; a fallback on disk works, with write-back of the ring as its cost.
pub fn ring_dirs(fallback: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && runtime.is_absolute()
    {
        dirs.push(runtime.join("assay"));
    }
    #[cfg(target_os = "linux")]
    dirs.push(PathBuf::from(format!("/dev/shm/assay-{}", rustix::process::geteuid().as_raw())));
    dirs.push(fallback.to_path_buf());
    dirs
}

/// Where ring files of this user may lie: [`ring_dirs`], also those of a process that had another environment.
pub fn search_dirs(fallback: &Path) -> Vec<PathBuf> {
    let mut dirs = ring_dirs(fallback);
    let of_system = PathBuf::from(format!("/run/user/{}/assay", rustix::process::geteuid().as_raw()));
    if !dirs.contains(&of_system) {
        dirs.insert(0, of_system);
    }
    dirs
}

/// Whether this is the session in the name of a ring file: 16 lower-case hex digits.
pub fn is_session(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// A file that was created for a ring.
#[derive(Debug)]
pub(super) struct Made {
    pub file: OwnedFd,
    pub path: PathBuf,
}

/// Creates `dir/name`, `bytes` bytes long with the first `kept` reserved, locked for us alone. `dir` is created 0700 if need be (not its
/// parents) and refused unless it is a directory of ours that nobody else can enter.
pub(super) fn make(dir: &Path, name: &str, bytes: u64, kept: u64) -> io::Result<Made> {
    let dir_fd = private_dir(dir)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir_fd, name, flags, Mode::RUSR | Mode::WUSR)?;
    if let Err(e) = lock(&file).and_then(|()| reserve(&file, bytes, kept)).and_then(|()| still_there(&file)) {
        let _ = rustix::fs::unlinkat(&dir_fd, name, AtFlags::empty());
        return Err(e);
    }
    Ok(Made { file, path: dir.join(name) })
}

fn private_dir(dir: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "directory belongs to another user"));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "directory is open to other users"));
    }
    Ok(fd)
}

/// A sweeper may have removed the file in the instant before it was locked.
fn still_there(file: &OwnedFd) -> io::Result<()> {
    if rustix::fs::fstat(file)?.st_nlink == 0 { Err(Errno::AGAIN.into()) } else { Ok(()) }
}

/// Removes ring files that hold nothing and whose process is gone: it was killed before its session began. Whatever holds
/// bytes is left to the recovery of its audit directory.
pub fn sweep(dirs: &[PathBuf]) {
    for dir in dirs {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        for path in entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "ring")) {
            if let Err(e) = sweep_one(&path) {
                tracing::debug!(path = %path.display(), error = %e, "a ring file was left alone");
            }
        }
    }
}

fn sweep_one(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if !ours || !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Ok(());
    }
    // Held until the file is gone, so that no process can begin to use it.
    if !matches!(try_lock(&file)?, Lock::Taken) {
        return Ok(());
    }
    let word = |at: u64| {
        let mut word = [0; 8];
        rustix::io::pread(&file, &mut word, at).map(|n| (n == 8).then(|| u64::from_le_bytes(word)))
    };
    // The magic is written last; `head` counts the bytes that were captured.
    let empty =
        word(super::layout::MAGIC_AT)? != Some(super::layout::MAGIC) || word(super::layout::HEAD_AT)? == Some(0);
    if empty { std::fs::remove_file(path) } else { Ok(()) }
}

/// Gives the file its length, and space for the first `kept` bytes.
fn reserve(file: &OwnedFd, bytes: u64, kept: u64) -> io::Result<()> {
    rustix::fs::ftruncate(file, bytes)?;
    crate::sys::reserve(file.as_fd(), 0, kept)
}

/// Takes the lock that says "this ring's session lives"; the kernel drops it with the process. File systems without
/// locks are accepted.
fn lock(file: &OwnedFd) -> io::Result<()> {
    match try_lock(file)? {
        Lock::Taken | Lock::Unsupported => Ok(()),
        Lock::Busy => Err(Errno::AGAIN.into()),
    }
}

/// A file without a name, for a ring that does not survive its process.
pub(super) fn anonymous(bytes: u64, kept: u64) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let file = rustix::fs::memfd_create("assay-ring", rustix::fs::MemfdFlags::CLOEXEC)?;
    #[cfg(not(target_os = "linux"))]
    let file = {
        let dir = std::env::temp_dir();
        let name = format!("assay-ring-{}-{}", std::process::id(), crate::sys::clock::mono_ns());
        let path = dir.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        let _ = rustix::fs::unlink(&path);
        file
    };
    reserve(&file, bytes, kept)?;
    Ok(file)
}
