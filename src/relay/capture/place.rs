//! Where ring files live: the first directory that is ours, private, and has room.

use crate::files::{self, Lock, try_lock};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Directories to try, best first: `$XDG_RUNTIME_DIR/assay`, `/dev/shm/assay-<uid>` (Linux), `fallback`. The first two
/// are memory; a fallback on disk works, with write-back of the ring as its cost.
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

/// Where ring files of this user may be: [`ring_dirs`], also those of a process that had another environment.
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

/// Creates `dir/name`, `bytes` bytes long with the `first` reserved, locked for us alone. `dir` is created 0700 if need
/// be (not its parents) and refused unless it is a directory of ours that nobody else can enter.
pub(super) fn make(dir: &Path, name: &str, bytes: u64, first: u64) -> io::Result<Made> {
    let dir_fd = files::exclusive_dir(dir)?;
    let file = files::create_in(&dir_fd, name)?;
    if let Err(e) = lock(&file).and_then(|()| reserve(&file, bytes, first)).and_then(|()| still_there(&file)) {
        let _ = rustix::fs::unlinkat(&dir_fd, name, AtFlags::empty());
        return Err(e);
    }
    Ok(Made { file, path: dir.join(name) })
}

/// A sweeper may have removed the file in the instant before it was locked.
fn still_there(file: &OwnedFd) -> io::Result<()> {
    if rustix::fs::fstat(file)?.st_nlink == 0 { Err(Errno::AGAIN.into()) } else { Ok(()) }
}

/// The longest note of a place, in bytes.
const MAX_NOTE: u64 = 1 << 16;

/// The file beside a ring file that says where the session is kept.
fn note_beside(ring: &Path) -> Option<PathBuf> {
    let session = ring.file_name()?.to_str()?.split('.').next().filter(|name| is_session(name))?;
    Some(ring.with_file_name(format!("{session}.place")))
}

/// Notes beside a ring file in which directory the cards are that lead to it: without any such card the ring will never
/// be read.
///
/// # Errors
/// An I/O error; the ring stays for good then, if its process is killed and that directory removed.
pub fn note_cards(ring: &Path, cards: &Path) -> io::Result<()> {
    let Some(note) = note_beside(ring) else { return Ok(()) };
    match crate::paths::write_new(&note, cards.as_os_str().as_encoded_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// Removes the note beside a ring file.
pub(super) fn forget_note(ring: &Path) {
    if let Some(note) = note_beside(ring) {
        let _ = std::fs::remove_file(note);
    }
}

/// Removes ring files whose process is gone and that are not needed: they hold nothing, since it was killed before its
/// session began, or no card leads to them any more, since its audit directory was removed. Other ring files are left
/// to the recovery of their audit directory, and those of a later version to that version.
///
/// A directory that somebody else made, or a link to one, is not looked into: others may write where these are
/// (`/dev/shm`).
///
/// What is known of a log (`.log.state`) is removed when there is no log.
pub fn sweep(dirs: &[PathBuf]) {
    for dir in dirs.iter().filter(|dir| files::is_own_dir(dir)) {
        let paths = |extension: &str| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
            entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect::<Vec<_>>()
        };
        // A note is made after its rings, and so is what is known of a log: what is seen first has them, or had.
        let notes = paths("place");
        let states: Vec<PathBuf> =
            paths("state").into_iter().chain(paths("new")).filter(|path| is_state(path)).collect();
        let mut rings = paths("ring");
        rings.retain(|ring| note_beside(ring).is_some());
        for path in &rings {
            if let Err(e) = sweep_one(path) {
                tracing::debug!(path = %path.display(), error = %e, "a ring file was left alone");
            }
        }
        // A later version may keep a capture under another extension.
        let beside: Vec<PathBuf> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        let is_capture = |path: &PathBuf| {
            path.extension().is_none_or(|e| e != "place" && e != "json" && e != "sock") && !is_state(path)
        };
        let is_needed =
            |note: &PathBuf| beside.iter().any(|path| is_capture(path) && note_beside(path).as_ref() == Some(note));
        let lone = |state: &&PathBuf| note_beside(state).is_some_and(|note| !is_needed(&note));
        for state in states.iter().filter(lone) {
            let _ = std::fs::remove_file(state);
        }
        for note in notes.iter().filter(|note| !is_needed(note)) {
            if note.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_session) {
                let _ = std::fs::remove_file(note);
            }
        }
    }
}

/// Whether it is what was known of the released part of a log, or is about to be.
fn is_state(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(".new").unwrap_or(name);
    name.strip_suffix(".log.state").is_some_and(is_session)
}

/// Whether no card leads to this ring file any more, as far as can be known.
fn is_orphan(ring: &Path) -> io::Result<bool> {
    let (Some(note), Some(name)) = (note_beside(ring), ring.file_name()) else { return Ok(false) };
    let cards = match files::plain(&note) {
        Ok(file) => files::read_all(file, MAX_NOTE)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    let cards = PathBuf::from(OsString::from_vec(cards));
    if !cards.is_absolute() {
        return Ok(false);
    }
    let entries = match std::fs::read_dir(cards) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(true),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let path = entry?.path();
        // Sessions over HTTP may have begun only in the log of their process, which leads to it.
        if path.extension().is_some_and(|e| e == "run") && path.with_extension("place").file_name() == note.file_name()
        {
            return Ok(false);
        }
        if path.extension().is_some_and(|e| e == "json") {
            let card = files::plain(&path).and_then(|file| files::read_all(file, MAX_NOTE));
            // A card that cannot be read may be the one.
            if card.map_or(true, |card| memchr::memmem::find(&card, name.as_encoded_bytes()).is_some()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn sweep_one(path: &Path) -> io::Result<()> {
    let file = files::open_own(path)?;
    // Held until the file is gone, so that no process can begin to use it.
    if !matches!(try_lock(&file)?, Lock::Taken) {
        return Ok(());
    }
    let word = |at: u64| {
        let mut word = [0; 8];
        rustix::io::pread(&file, &mut word, at).map(|n| (n == 8).then(|| u64::from_le_bytes(word)))
    };
    // The magic is written last; `head` counts the bytes that were captured.
    let empty = match word(super::layout::MAGIC_AT)? {
        None | Some(0) => true,
        Some(super::layout::MAGIC) => {
            if let Some(e) = word(super::layout::VERSION_AT)?.and_then(super::layout::newer) {
                return Err(e.into());
            }
            word(super::layout::HEAD_AT)? == Some(0)
        }
        // Whatever it is, this version did not make it.
        Some(_) => return Ok(()),
    };
    if empty || is_orphan(path)? {
        // Beside a log there may be what was known of its released part.
        let _ = std::fs::remove_file(path.with_extension("state"));
        std::fs::remove_file(path)
    } else {
        Ok(())
    }
}

/// Gives the file its length, and space for the `first` bytes.
fn reserve(file: &OwnedFd, bytes: u64, first: u64) -> io::Result<()> {
    rustix::fs::ftruncate(file, bytes)?;
    crate::sys::reserve(file.as_fd(), 0, first)
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
pub(super) fn anonymous(bytes: u64, first: u64) -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let file = rustix::fs::memfd_create("assay-ring", rustix::fs::MemfdFlags::CLOEXEC)?;
    #[cfg(not(target_os = "linux"))]
    let file = {
        let dir = std::env::temp_dir();
        let name = format!("assay-ring-{}-{}", std::process::id(), crate::sys::clock::mono_ns());
        let path = dir.join(name);
        let file: OwnedFd = files::create_new(&path)?.into();
        let _ = rustix::fs::unlink(&path);
        file
    };
    reserve(&file, bytes, first)?;
    Ok(file)
}
