//! Files of an untrusted directory: opened relative to it, never through a link, never blocking, read once, hashed and
//! parsed from the same bytes.

use super::{
    options::{Progress, VerifyError},
    words::Stage,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, Dir, FileType, Mode, OFlags},
};
use sha2::{Digest as _, Sha256};
use std::{
    fs::File,
    io::{self, Read as _},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Longest line of an evidence file, and largest file that is scanned as a whole.
pub const MAX_LINE: usize = 64 << 20;
/// Largest document that is parsed as a whole.
pub const MAX_DOCUMENT: usize = 16 << 20;
/// Largest listed file that is no evidence read line by line. Nothing that builders write comes near it, and a sparse file
/// of terabytes costs nobody anything but who hashes it.
pub const MAX_SIDE_FILE: u64 = 256 << 20;
/// Largest file of evidence.
pub const MAX_EVIDENCE: u64 = 1 << 40;
/// Bytes beyond its listed length that a file of evidence is still read with, to say what is wrong with it.
pub const MAX_BEYOND: u64 = 1 << 20;
/// Most entries that a directory is listed to.
pub const MAX_ENTRIES: usize = 1_000_000;
/// How much is read, hashed and parsed at a time: small enough to stay in a core's cache between the three.
const CHUNK: usize = 128 << 10;
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
    /// What the system says.
    Io(io::Error),
}

/// Why reading ended before the end of a file.
#[derive(Debug)]
pub enum ReadStop {
    /// A line is longer than [`MAX_LINE`], or a file that is read whole than it may be.
    TooLong,
    /// So much of it reads as nothing that the rest does not matter.
    Garbage,
    /// What the system says.
    Io(io::Error),
    /// The caller's progress function broke.
    Cancelled,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name; bytes that are no UTF-8 are replaced.
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
    /// What the system says.
    pub fn list(&self) -> io::Result<Option<Vec<Entry>>> {
        let mut entries = Vec::new();
        let all = self.visit(&mut |entry| entries.push(entry))?;
        entries.sort();
        Ok(all.then_some(entries))
    }

    /// Shows its entries in no order, without `.` and `..`; `false` where there are more than [`MAX_ENTRIES`].
    ///
    /// # Errors
    /// What the system says.
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
        meter: &mut Meter<'_>,
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

/// Bytes read so far, and the caller who hears of them.
pub struct Meter<'p> {
    progress: &'p mut dyn FnMut(Progress) -> ControlFlow<()>,
    /// What is being done.
    pub stage: Stage,
    /// Bytes read.
    pub done: u64,
    /// Bytes to read.
    pub total: u64,
    next: u64,
}

impl<'p> Meter<'p> {
    /// Nothing read yet.
    pub fn new(progress: &'p mut dyn FnMut(Progress) -> ControlFlow<()>) -> Self {
        Self { progress, stage: Stage::ValidateSchema, done: 0, total: 0, next: 0 }
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

/// A file that was read whole.
pub struct Whole {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their SHA-256, hex.
    pub sha256: String,
}

impl Whole {
    /// Reads an open file that is `len` long, and may be `max` long.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn read(file: File, len: u64, max: usize, meter: &mut Meter<'_>) -> Result<Self, ReadStop> {
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

/// The SHA-256 (hex) and length of a file that is not parsed.
///
/// # Errors
/// Why it could not be read to its end.
pub fn hash_file(mut file: File, meter: &mut Meter<'_>) -> Result<(String, u64), ReadStop> {
    let mut buffer = vec![0; CHUNK];
    let (mut hasher, mut len) = (Sha256::new(), 0u64);
    loop {
        let n = retry(|| file.read(&mut buffer)).map_err(ReadStop::Io)?;
        if n == 0 {
            return Ok((hex::encode(hasher.finalize()), len));
        }
        hasher.update(&buffer[..n]);
        len += n as u64;
        meter.add(n)?;
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The lines of a file in one pass, with the SHA-256 of all its bytes.
pub struct Lines {
    file: File,
    hasher: Sha256,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file of `buffer[start]`.
    offset: u64,
    number: u64,
    read: u64,
    eof: bool,
    last: std::ops::Range<usize>,
}

/// One line.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// Without its newline.
    pub bytes: &'a [u8],
    /// From 1.
    pub number: u64,
    /// Where it begins.
    pub offset: u64,
    /// Whether a newline ends it; only the last can lack one.
    pub terminated: bool,
}

impl Lines {
    /// The lines of `file` from where it stands.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self {
            file,
            hasher: Sha256::new(),
            buffer: vec![0; 2 * CHUNK],
            start: 0,
            end: 0,
            offset: 0,
            number: 0,
            read: 0,
            eof: false,
            last: 0..0,
        }
    }

    /// The next line.
    ///
    /// # Errors
    /// [`ReadStop`]; the reader must not be used afterwards.
    pub fn next(&mut self, meter: &mut Meter<'_>) -> Result<Option<Line<'_>>, ReadStop> {
        let mut searched = 0;
        let (len, terminated) = loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start + searched..self.end]) {
                break (searched + at, true);
            }
            // No text has these, and the holes of a sparse file nothing else.
            let holes = |bytes: &[u8]| bytes.len() >= CHUNK / 2 && bytes.iter().all(|b| *b == 0);
            if holes(&self.buffer[self.start + searched..self.end]) {
                return Err(ReadStop::Garbage);
            }
            searched = self.end - self.start;
            if searched > MAX_LINE {
                return Err(ReadStop::TooLong);
            }
            if self.eof || !self.fill(meter)? {
                if self.start == self.end {
                    return Ok(None);
                }
                break (self.end - self.start, false);
            }
        };
        if len > MAX_LINE {
            return Err(ReadStop::TooLong);
        }
        let (start, offset) = (self.start, self.offset);
        let taken = len + usize::from(terminated);
        self.start += taken;
        self.offset += taken as u64;
        self.number += 1;
        self.last = start..start + len;
        Ok(Some(Line { bytes: &self.buffer[start..start + len], number: self.number, offset, terminated }))
    }

    /// The bytes of the line that [`next`](Self::next) gave last.
    #[must_use]
    pub fn last(&self) -> &[u8] {
        &self.buffer[self.last.clone()]
    }

    fn fill(&mut self, meter: &mut Meter<'_>) -> Result<bool, ReadStop> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() - self.end < CHUNK {
            // By a quarter beyond the first megabytes: a long line may not cost twice its length.
            let grown = if self.buffer.len() < 8 << 20 { self.buffer.len() * 2 } else { self.buffer.len() / 4 * 5 };
            self.buffer.resize(grown.max(self.end + CHUNK), 0);
        }
        let room = self.end..self.end + CHUNK;
        let n = retry(|| self.file.read(&mut self.buffer[room.clone()])).map_err(ReadStop::Io)?;
        self.hasher.update(&self.buffer[self.end..self.end + n]);
        self.end += n;
        self.read += n as u64;
        self.eof = n == 0;
        meter.add(n)?;
        Ok(n > 0)
    }

    /// Reads and hashes what is left, and gives the SHA-256 (hex) and the length of the whole file.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn finish(mut self, meter: &mut Meter<'_>) -> Result<(String, u64), ReadStop> {
        while !self.eof {
            self.start = self.end;
            self.fill(meter)?;
        }
        Ok((hex::encode(self.hasher.finalize()), self.read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter_test<T>(f: impl FnOnce(&mut Meter<'_>) -> T) -> T {
        f(&mut Meter::new(&mut |_| ControlFlow::Continue(())))
    }

    fn lines_of(content: &[u8]) -> Vec<(Vec<u8>, u64, bool)> {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, content).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut lines = Lines::new(file);
        let mut out = Vec::new();
        meter_test(|m| {
            while let Some(line) = lines.next(m).unwrap() {
                out.push((line.bytes.to_vec(), line.offset, line.terminated));
            }
            let (sha, len) = lines.finish(m).unwrap();
            assert_eq!((sha, len), (crate::model::sha256_hex(content), content.len() as u64));
        });
        out
    }

    #[test]
    fn lines_do_not_depend_on_how_the_file_is_read() {
        assert_eq!(lines_of(b""), []);
        assert_eq!(lines_of(b"a"), [(b"a".to_vec(), 0, false)]);
        let long = vec![b'x'; 3 * CHUNK + 7];
        let content = [b"a\n\n".as_slice(), &long, b"\nlast\n"].concat();
        let expected = [
            (b"a".to_vec(), 0, true),
            (vec![], 2, true),
            (long.clone(), 3, true),
            (b"last".to_vec(), 3 + long.len() as u64 + 1, true),
        ];
        assert_eq!(lines_of(&content), expected);
    }

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
