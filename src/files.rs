//! How files and directories are opened that somebody else may have made: a cloned repository can bring an audit directory
//! of its own, with links, fifos, devices and files without end in it.
//!
//! | what is opened | with |
//! |---|---|
//! | anything below a directory that we keep | [`Tree`]: no link on the way, plain files, ours alone |
//! | a file in somebody's directory, to read | [`plain`]: no link, a plain file |
//! | a file that the user named | [`named`]: a plain file, wherever a link leads |
//!
//! None of them waits for a writer of a fifo, and nothing is read without a limit.
//!
//! Directories are walked name by name rather than with `openat2`: on the way each of them is looked at, which that would not
//! do, and it is the same on every system.

pub use assay_evidence::plain::{is_refusal, is_unsupported, named, plain, read_all, write_new};

use assay_evidence::plain::{FILE, LINK, is_plain, link_said, refuse};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Component, Path, PathBuf},
};

/// How a directory is opened: links in its last name are not followed.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const APPEND: OFlags = OFlags::RDWR.union(OFlags::APPEND).union(OFlags::CREATE);
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A directory that we keep, and everything below it. Holding one says nothing about what exists.
///
/// Every directory on the way from the root down, the root among them, and every file must be ours: it belongs to this user,
/// and neither group nor others may write to it. What is found otherwise is an error of which [`is_refusal`] is true; it is
/// neither changed nor removed. How the root itself is reached is left to whoever chose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
    refused: Option<String>,
}

impl Tree {
    /// The directory at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), refused: None }
    }

    /// A directory that must not be used, and why: everything below it is refused.
    #[must_use]
    pub fn refused(root: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self { root: root.into(), refused: Some(why.into()) }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Opens the root, or a directory below it.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn dir(&self, path: &Path) -> io::Result<OwnedFd> {
        if let Some(why) = &self.refused {
            return Err(refuse(why.clone()));
        }
        let mut dir = rustix::fs::open(&self.root, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?;
        directory_of_ours(&dir, &self.root)?;
        let mut at = self.root.clone();
        for name in self.below(path)? {
            at.push(name);
            dir = open_dir(&dir, name, &at)?;
            directory_of_ours(&dir, &at)?;
        }
        Ok(dir)
    }

    /// The names from the root to `path`, which lies below it.
    fn below<'a>(&self, path: &'a Path) -> io::Result<Vec<&'a OsStr>> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "the path does not lie in this directory");
        let below = path.strip_prefix(&self.root).map_err(|_| outside())?;
        let name = |part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(outside()),
        };
        below.components().map(name).collect()
    }

    /// The directory in which `path` lies, and its name there.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let mut names = self.below(path)?;
        let name = names.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no name of a file"))?;
        Ok((self.dir(path.parent().unwrap_or(&self.root))?, name))
    }

    /// Makes a directory below the root and those on the way, 0700; one that is there must be ours. The root must exist.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut at = self.root.clone();
        let mut dir = self.dir(&at)?;
        for name in self.below(path)? {
            match rustix::fs::mkdirat(&dir, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            at.push(name);
            dir = open_dir(&dir, name, &at)?;
            directory_of_ours(&dir, &at)?;
        }
        Ok(())
    }

    /// Opens a file to read it.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, OFlags::RDONLY)
    }

    /// Opens a file to append to it and to read it; it is made if need be.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn append(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, APPEND)
    }

    /// Opens a file that is there, to append to it and to read it.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn append_existing(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, APPEND.difference(OFlags::CREATE))
    }

    /// Makes a file, 0600, to append to it and to read it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if anything has that name, or what the system says.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        let (dir, name) = self.parent(path)?;
        Ok(rustix::fs::openat(&dir, name, FILE | APPEND | OFlags::EXCL, PRIVATE)?.into())
    }

    fn open_with(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let (dir, name) = self.parent(path)?;
        // Looked at before it is opened: opening some devices has effects.
        match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => file_of_ours(&stat)?,
            Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let file = rustix::fs::openat(&dir, name, FILE | flags, PRIVATE).map_err(link_said)?;
        file_of_ours(&rustix::fs::fstat(&file)?)?;
        Ok(file.into())
    }

    /// Reads a file of at most `max` bytes.
    ///
    /// # Errors
    /// A refusal, also of what is longer, or what the system says.
    pub fn read(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        read_all(self.open(path)?, max)
    }

    /// Writes a file, 0600, under `staged`, then gives it the name `path`, whatever stood there before: a reader sees the one
    /// or the other. Both lie in one directory. Nothing is synced unless `sync`.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn replace(&self, staged: &Path, path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
        self.remove(staged)?;
        let placed = self.create(staged).and_then(|mut file| {
            file.write_all(bytes)?;
            if sync {
                sync_all(&file)?;
            }
            self.rename(staged, path)
        });
        if placed.is_err() {
            let _ = self.remove(staged);
        }
        placed
    }

    /// Gives a file another name, replacing what has it.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?)
    }

    /// Removes a name that is no directory's; one that is not there is no error. A link goes, not what it leads to.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let gone = self.parent(path).and_then(|(dir, name)| Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?));
        match gone {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Whether anything has this name; what cannot be looked at has not.
    #[must_use]
    pub fn exists(&self, path: &Path) -> bool {
        self.parent(path).is_ok_and(|(dir, name)| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// The names in a directory, without `.` and `..`; none where there is no directory.
    ///
    /// # Errors
    /// A refusal, or what the system says.
    pub fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let dir = match self.dir(path) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }
}

/// Whether this is a directory of ours that nobody else may write to, and no link: what lies in it may be swept.
#[must_use]
pub fn is_own_dir(path: &Path) -> bool {
    let dir = rustix::fs::open(path, DIRECTORY, Mode::empty());
    dir.is_ok_and(|dir| directory_of_ours(&dir, path).is_ok())
}

fn open_dir(parent: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<OwnedFd> {
    rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()).map_err(|e| match e {
        // A link to a directory gives either, by system.
        Errno::LOOP | Errno::NOTDIR => {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
            let link = stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
            refuse(format!("{}: {}", path.display(), if link { LINK } else { "it is no directory" }))
        }
        e => e.into(),
    })
}

fn directory_of_ours(dir: &OwnedFd, path: &Path) -> io::Result<()> {
    ours(&rustix::fs::fstat(dir)?).map_err(|what| refuse(format!("the directory {} {what}", path.display())))
}

fn file_of_ours(stat: &Stat) -> io::Result<()> {
    is_plain(stat)?;
    // A second name is a way to have us change a file somewhere else.
    if stat.st_nlink > 1 {
        return Err(refuse("it is a hard link, a file with other names"));
    }
    ours(stat).map_err(|what| refuse(format!("the file {what}")))
}

fn ours(stat: &Stat) -> Result<(), &'static str> {
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        Err("belongs to another user")
    } else if stat.st_mode & 0o022 != 0 {
        Err("can be written by others; take that away with chmod go-w")
    } else {
        Ok(())
    }
}

/// The first line of a plain file without its line feed, if it is whole and within the first `limit` bytes.
#[must_use]
pub fn first_line(path: &Path, limit: u64) -> Option<Vec<u8>> {
    crate::lines::first(plain(path).ok()?, limit)
}

/// The real path of a directory that a user named or that is the default: below the working directory no link is followed,
/// because what lies there may have come with a repository; elsewhere the user chose where links lead. What does not exist
/// yet is allowed.
///
/// # Errors
/// A refusal that names the link, or what the system says.
pub fn reach(named: &Path) -> io::Result<PathBuf> {
    let gone = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => io::Error::new(e.kind(), "the working directory is gone"),
        _ => e,
    };
    let absolute = std::path::absolute(named).map_err(gone)?;
    let here = std::env::current_dir().and_then(std::fs::canonicalize).ok();
    let is_here = |path: &Path| here.is_some() && std::fs::canonicalize(path).ok() == here;
    let mut real = PathBuf::new();
    let mut below = false;
    for part in absolute.components() {
        real.push(part);
        let link = std::fs::symlink_metadata(&real).is_ok_and(|m| m.is_symlink());
        if below && link {
            return Err(refuse(format!("{}: {LINK} below the working directory", real.display())));
        }
        if link || part == Component::ParentDir {
            real = std::fs::canonicalize(&real)?;
        }
        below = below || is_here(&real);
    }
    Ok(real)
}

/// What became of a try for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// It is ours until the file is closed.
    Taken,
    /// Another process has it.
    Busy,
    /// The file system has no locks: nobody can tell.
    Unsupported,
}

/// Tries for the exclusive lock of a file or directory.
///
/// # Errors
/// What the system says.
pub fn try_lock(file: impl AsFd) -> io::Result<Lock> {
    lock_with(file, FlockOperation::NonBlockingLockExclusive)
}

/// Waits for the exclusive lock of a file or directory.
///
/// # Errors
/// What the system says.
pub fn lock(file: impl AsFd) -> io::Result<Lock> {
    lock_with(file, FlockOperation::LockExclusive)
}

fn lock_with(file: impl AsFd, how: FlockOperation) -> io::Result<Lock> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, how)) {
        Ok(()) => Ok(Lock::Taken),
        Err(Errno::AGAIN) => Ok(Lock::Busy),
        Err(e) if is_unsupported(&e.into()) => Ok(Lock::Unsupported),
        Err(e) => Err(e.into()),
    }
}

/// Syncs a file and what describes it. A file system that has no such thing is taken at its word.
///
/// # Errors
/// What the system says.
pub fn sync_all(file: &File) -> io::Result<()> {
    allowing_unsupported(file.sync_all())
}

/// Syncs a file. A file system that has no such thing is taken at its word.
///
/// # Errors
/// What the system says.
pub fn sync_data(file: &File) -> io::Result<()> {
    allowing_unsupported(file.sync_data())
}

/// Syncs a directory, so that names made in it are there after a power cut. A file system that cannot is taken at its word.
///
/// # Errors
/// What the system says.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = rustix::fs::openat(CWD, dir, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?;
    allowing_unsupported(File::from(dir).sync_all())
}

fn allowing_unsupported(synced: io::Result<()>) -> io::Result<()> {
    synced.or_else(|e| {
        if is_unsupported(&e) {
            tracing::debug!(error = %e, "the file system does not sync");
            Ok(())
        } else {
            Err(e)
        }
    })
}

/// A path as text, for documents that hold text alone: bytes that are no UTF-8 are replaced.
#[must_use]
pub fn text(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn fifo(path: &Path) {
        rustix::fs::mknodat(CWD, path, FileType::Fifo, PRIVATE, 0).unwrap();
    }

    #[test]
    fn what_is_ours_is_made_written_and_read() {
        let tmp = tempfile::tempdir().unwrap();
        let tree = Tree::at(tmp.path());
        let at = |name: &str| tmp.path().join(name);
        tree.make_dir(&at("a/b")).unwrap();
        assert_eq!(at("a/b").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        tree.create(&at("a/b/new")).unwrap().write_all(b"one").unwrap();
        assert_eq!(tree.create(&at("a/b/new")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        tree.append(&at("a/b/new")).unwrap().write_all(b" two").unwrap();
        assert_eq!(tree.read(&at("a/b/new"), 7).unwrap(), b"one two");
        assert!(is_refusal(&tree.read(&at("a/b/new"), 6).unwrap_err()));
        tree.replace(&at("a/b/staged"), &at("a/b/new"), b"three", true).unwrap();
        assert_eq!(tree.read(&at("a/b/new"), 99).unwrap(), b"three");
        assert_eq!(tree.names(&at("a/b")).unwrap(), ["new"]);
        tree.remove(&at("a/b/new")).unwrap();
        tree.remove(&at("a/b/new")).unwrap();
        assert!(!tree.exists(&at("a/b/new")) && tree.names(&at("nowhere")).unwrap().is_empty());
        for outside in [Path::new("/etc/passwd"), &at("../x"), &at("a/../../x")] {
            assert_eq!(tree.append(outside).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{outside:?}");
        }
        assert_eq!(Tree::refused(tmp.path(), "no").open(&at("x")).unwrap_err().to_string(), "no");
    }

    #[test]
    fn whatever_else_has_the_name_is_refused_at_once_and_left() {
        let (tmp, canary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tree = Tree::at(tmp.path());
        let at = |name: &str| tmp.path().join(name);
        let precious = canary.path().join("precious");
        std::fs::write(&precious, "precious").unwrap();
        std::fs::create_dir(at("dir")).unwrap();
        fifo(&at("fifo"));
        symlink(&precious, at("link")).unwrap();
        symlink(canary.path().join("made"), at("dangling")).unwrap();
        std::fs::hard_link(&precious, at("hard")).unwrap();
        std::fs::write(at("open"), "x").unwrap();
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o666)).unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
        for name in ["dir", "fifo", "link", "dangling", "hard", "open", "socket"] {
            for opened in [tree.open(&at(name)), tree.append(&at(name)), tree.append_existing(&at(name))] {
                assert!(is_refusal(&opened.unwrap_err()), "{name}");
            }
            assert!(tree.create(&at(name)).is_err(), "{name}");
            // For reading, who it belongs to does not matter.
            assert_eq!(plain(&at(name)).is_ok(), matches!(name, "hard" | "open"), "{name}");
            assert_eq!(named(&at(name)).is_ok(), matches!(name, "hard" | "open" | "link"), "{name}");
        }
        for device in ["/dev/zero", "/dev/tty", "/dev/null"] {
            assert!(plain(Path::new(device)).is_err() && named(Path::new(device)).is_err());
        }
        // A link is removed, not what it leads to; and a name is replaced, not what it leads to.
        tree.replace(&at("staged"), &at("hard"), b"x", false).unwrap();
        tree.replace(&at("dangling"), &at("link"), b"x", false).unwrap();
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(canary.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_directory_on_the_way_is_a_link_or_open_to_others() {
        let (tmp, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| tmp.path().join(name);
        std::fs::create_dir(elsewhere.path().join("sub")).unwrap();
        std::fs::write(elsewhere.path().join("sub/file"), "x").unwrap();
        symlink(elsewhere.path(), at("link")).unwrap();
        std::fs::create_dir_all(at("open/sub")).unwrap();
        std::fs::set_permissions(at("open"), PermissionsExt::from_mode(0o770)).unwrap();
        std::fs::write(at("file"), "x").unwrap();
        let tree = Tree::at(tmp.path());
        for path in ["link/sub/file", "link/file", "open/sub/file", "open/file", "file/file"] {
            let path = at(path);
            assert!(is_refusal(&tree.append(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.create(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.make_dir(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.remove(&path).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.replace(&path, &path, b"", false).unwrap_err()), "{path:?}");
            assert!(is_refusal(&tree.names(path.parent().unwrap()).unwrap_err()), "{path:?}");
        }
        assert!(elsewhere.path().join("sub/file").exists());
        // The root may be reached through a link, and must be ours.
        let link = elsewhere.path().join("root");
        symlink(tmp.path(), &link).unwrap();
        assert!(is_own_dir(tmp.path()) && !is_own_dir(&link) && !is_own_dir(&at("open")) && !is_own_dir(&at("file")));
        assert!(Tree::at(&link).append(&link.join("made")).is_ok());
        std::fs::set_permissions(tmp.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(is_refusal(&tree.append(&at("made")).unwrap_err()));
    }

    #[test]
    fn a_file_that_never_ends_is_not_read() {
        let tmp = tempfile::tempdir().unwrap();
        let giant = tmp.path().join("giant");
        File::create(&giant).unwrap().set_len(1 << 40).unwrap();
        assert!(is_refusal(&Tree::at(tmp.path()).read(&giant, 1 << 20).unwrap_err()));
    }
}
