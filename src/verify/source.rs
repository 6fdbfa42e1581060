//! Files of an untrusted directory: opened relative to it, never through a link, never blocking, read once, hashed and
//! parsed from the same bytes.

use super::{
    options::{Progress, VerifyError},
    words::Stage,
};
use crate::lines::{self, Watch};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Dir, FileType, Mode, OFlags},
};
use sha2::Sha256;
use std::{
    fs::File,
    io::{self, Read as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

pub use crate::lines::{Line, MAX_LINE, ReadStop};

/// The lines of a file of evidence, with the SHA-256 of all its bytes.
pub type HashedLines = lines::Lines<Sha256>;

/// Largest document that is parsed as a whole.
pub const MAX_DOCUMENT: usize = 16 << 20;
/// Largest listed file that is not evidence read line by line. Nothing that builders write comes near it, and a sparse file
/// of terabytes costs nothing but the time to hash it.
pub const MAX_SIDE_FILE: u64 = 256 << 20;
/// Largest file of evidence.
pub const MAX_EVIDENCE: u64 = 1 << 40;
/// Bytes beyond its listed length that a file of evidence is still read with, to say what is wrong with it.
pub const MAX_BEYOND: u64 = 1 << 20;
/// Most entries that a directory is listed to.
pub const MAX_ENTRIES: usize = 1_000_000;
/// How often the caller hears of progress.
const REPORT_EVERY: u64 = 4 << 20;

/// A directory whose files are read.
pub struct PackDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a name cannot be read as evidence.
#[derive(Debug)]
pub enum OpenProblem {
    /// There is no such file.
    Missing,
    /// It is something that is never followed or opened: a symlink, a directory, a device, a fifo, a hard link.
    Special(&'static str),
    /// The system's error.
    Io(io::Error),
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Whether it is a directory, and no link to one.
    pub is_dir: bool,
}

impl PackDir {
    /// Opens a directory for reading.
    ///
    /// # Errors
    /// [`VerifyError::NotAPack`] when it is none, [`VerifyError::Io`].
    pub fn open(path: &Path) -> Result<Self, VerifyError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path: path.to_owned() }),
            Err(rustix::io::Errno::NOTDIR) => {
                Err(VerifyError::NotAPack { dir: path.to_owned(), why: "it is not a directory".into() })
            }
            Err(rustix::io::Errno::NOENT) => {
                Err(VerifyError::NotAPack { dir: path.to_owned(), why: "it does not exist".into() })
            }
            Err(e) => Err(VerifyError::Io { path: path.to_owned(), source: e.into() }),
        }
    }

    /// A directory below this one; `None` where there is none.
    #[must_use]
    pub fn sub(&self, name: &str) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty()).ok()?;
        Some(Self { fd, path: self.path.join(name) })
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens an ordinary file with one name; gives its length.
    ///
    /// # Errors
    /// [`OpenProblem`].
    pub fn open_file(&self, name: &str) -> Result<(File, u64), OpenProblem> {
        // Looked at before it is opened: opening some devices has effects.
        let before = rustix::fs::statat(&self.fd, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).map_err(problem)?;
        ordinary(&before)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(problem)?;
        let stat = rustix::fs::fstat(fd.as_fd()).map_err(problem)?;
        ordinary(&stat)?;
        Ok((File::from(fd), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Its entries, sorted, without `.` and `..`; `None` where there are more than [`MAX_ENTRIES`].
    ///
    /// # Errors
    /// The system's error.
    pub fn list(&self) -> io::Result<Option<Vec<Entry>>> {
        let mut entries = Vec::new();
        let all = self.visit(&mut |entry| entries.push(entry))?;
        entries.sort();
        Ok(all.then_some(entries))
    }

    /// Shows its entries in no order, without `.` and `..`; `false` where there are more than [`MAX_ENTRIES`].
    ///
    /// # Errors
    /// The system's error.
    pub fn visit(&self, see: &mut dyn FnMut(Entry)) -> io::Result<bool> {
        let mut seen = 0;
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if name == "." || name == ".." {
                continue;
            }
            if seen >= MAX_ENTRIES {
                return Ok(false);
            }
            seen += 1;
            let is_dir = match entry.file_type() {
                FileType::Unknown => self.sub(&name).is_some(),
                t => t.is_dir(),
            };
            see(Entry { name: name.into_owned(), is_dir });
        }
        Ok(true)
    }

    /// Reads a file of at most `max` bytes whole.
    ///
    /// # Errors
    /// Why it could not be opened, or read to its end.
    pub fn read_whole(
        &self,
        name: &str,
        max: usize,
        meter: &mut ReadMeter<'_>,
    ) -> Result<Result<Whole, ReadStop>, OpenProblem> {
        let (file, len) = self.open_file(name)?;
        Ok(Whole::read(file, len, max, meter))
    }
}

fn problem(e: rustix::io::Errno) -> OpenProblem {
    match e {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => OpenProblem::Missing,
        rustix::io::Errno::LOOP => OpenProblem::Special("a symlink"),
        e => OpenProblem::Io(e.into()),
    }
}

fn ordinary(stat: &rustix::fs::Stat) -> Result<(), OpenProblem> {
    match FileType::from_raw_mode(stat.st_mode) {
        // A second name is a second way to change the bytes, outside the pack.
        FileType::RegularFile if stat.st_nlink == 1 => Ok(()),
        FileType::RegularFile => Err(OpenProblem::Special("a hard link (it has other names)")),
        FileType::Symlink => Err(OpenProblem::Special("a symlink")),
        FileType::Directory => Err(OpenProblem::Special("a directory")),
        FileType::Fifo => Err(OpenProblem::Special("a fifo")),
        FileType::Socket => Err(OpenProblem::Special("a socket")),
        _ => Err(OpenProblem::Special("a device")),
    }
}

/// Whether somebody else has the lock of a file, as the recorder of a session has that of its segment.
#[must_use]
pub fn is_locked(file: &File) -> bool {
    let tried = rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockShared);
    let _ = tried.is_ok().then(|| rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock));
    tried == Err(rustix::io::Errno::AGAIN)
}

/// Bytes read so far, and the caller who hears of them.
pub struct ReadMeter<'p> {
    progress: &'p mut dyn FnMut(Progress) -> ControlFlow<()>,
    /// What is being done.
    pub stage: Stage,
    /// Bytes read so far.
    pub done: u64,
    /// Bytes to read in all.
    pub total: u64,
    next: u64,
}

impl<'p> ReadMeter<'p> {
    /// Progress with nothing read yet, reported to `progress`.
    pub fn new(progress: &'p mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self { progress, stage: Stage::ValidateSchema, done: 0, total: 0, next: 0 }
    }

    /// The caller who hears of progress.
    pub fn progress(&mut self) -> &mut dyn FnMut(Progress) -> ControlFlow<()> {
        self.progress
    }

    /// Counts bytes.
    ///
    /// # Errors
    /// [`ReadStop::Cancelled`].
    pub fn add(&mut self, bytes: usize) -> Result<(), ReadStop> {
        self.done += bytes as u64;
        if self.done < self.next {
            return Ok(());
        }
        self.next = self.done + REPORT_EVERY;
        let now = Progress { stage: self.stage, done_bytes: self.done, total_bytes: self.total.max(self.done) };
        match (self.progress)(now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ReadStop::Cancelled),
        }
    }
}

impl Watch for ReadMeter<'_> {
    fn took(&mut self, bytes: usize) -> Result<(), ReadStop> {
        self.add(bytes)
    }
}

/// A file that was read whole.
pub struct Whole {
    /// Contents of the file.
    pub bytes: Vec<u8>,
    /// Their SHA-256, hex.
    pub sha256: String,
}

impl Whole {
    /// Reads an open file that is `len` long, and may be `max` long.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn read(file: File, len: u64, max: usize, meter: &mut ReadMeter<'_>) -> Result<Self, ReadStop> {
        if len > max as u64 {
            return Err(ReadStop::TooLong);
        }
        let mut bytes = Vec::with_capacity(len as usize);
        file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(ReadStop::Io)?;
        if bytes.len() > max {
            return Err(ReadStop::TooLong);
        }
        meter.add(bytes.len())?;
        let sha256 = crate::model::sha256_hex(&bytes);
        Ok(Self { bytes, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ordinary_file_with_one_name_is_opened() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        std::fs::write(at("plain"), "x").unwrap();
        std::fs::write(at("linked"), "x").unwrap();
        std::fs::hard_link(at("linked"), at("second")).unwrap();
        std::os::unix::fs::symlink("plain", at("symlink")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        let dir = PackDir::open(tmp.path()).unwrap();
        assert!(dir.open_file("plain").is_ok());
        for name in ["second", "symlink", "device", "dir", "fifo"] {
            assert!(matches!(dir.open_file(name), Err(OpenProblem::Special(_))), "{name}");
        }
        assert!(matches!(dir.open_file("none"), Err(OpenProblem::Missing)));
    }
}
