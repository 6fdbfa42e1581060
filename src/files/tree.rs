//! A directory that we keep, walked name by name.

use super::{
    ours::{DIRECTORY, PRIVATE, directory_of_ours, file_of_ours},
    sync::sync_all,
};
use assay_evidence::plain::{FILE, LINK, link_said, read_all, refuse};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::unix::ffi::OsStringExt as _,
    path::{Component, Path, PathBuf},
};

const APPEND: OFlags = OFlags::RDWR.union(OFlags::APPEND).union(OFlags::CREATE);

/// A directory that we keep, and everything below it. Holding one says nothing about what exists.
///
/// Every directory on the way from the root down, the root among them, and every file must be ours: it belongs to this
/// user, and neither group nor others may write to it. What is found otherwise is an error of which
/// [`is_refusal`](super::is_refusal) is true; it is neither changed nor removed. How the root itself is reached is up
/// to the caller that chose it.
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

    /// Path of the root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Opens the root, or a directory below it.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
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

    /// The names from the root to `path`, which is below it.
    fn below<'a>(&self, path: &'a Path) -> io::Result<Vec<&'a OsStr>> {
        let outside = || io::Error::new(io::ErrorKind::InvalidInput, "the path is not in this directory");
        let below = path.strip_prefix(&self.root).map_err(|_| outside())?;
        let name = |part| match part {
            Component::Normal(name) => Ok(name),
            _ => Err(outside()),
        };
        below.components().map(name).collect()
    }

    /// The directory in which `path` is, and its name there.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let mut names = self.below(path)?;
        let name = names.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no name of a file"))?;
        Ok((self.dir(path.parent().unwrap_or(&self.root))?, name))
    }

    /// Makes a directory below the root and those on the way, 0700; one that is there must be ours. The root must
    /// exist.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
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
    /// A refusal, or an I/O error.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, OFlags::RDONLY)
    }

    /// Opens a file to append to it and to read it; it is made if need be.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
    pub fn append(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, APPEND)
    }

    /// Opens a file that is there, to append to it and to read it.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
    pub fn append_existing(&self, path: &Path) -> io::Result<File> {
        self.open_with(path, APPEND.difference(OFlags::CREATE))
    }

    /// Makes a file, 0600, to append to it and to read it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if anything has that name, or an I/O error.
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
    /// A refusal, also of what is longer, or an I/O error.
    pub fn read(&self, path: &Path, max: u64) -> io::Result<Vec<u8>> {
        read_all(self.open(path)?, max)
    }

    /// Writes a file, 0600, under `staged`, then gives it the name `path`, whatever was there before: a reader sees
    /// the one or the other. Both are in one directory. Nothing is synced unless `sync`.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
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
    /// A refusal, or an I/O error.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) = (self.parent(from)?, self.parent(to)?);
        Ok(rustix::fs::renameat(from_dir, from, to_dir, to)?)
    }

    /// Removes a name that is not a directory's; one that is not there is not an error. A link goes, not what it leads
    /// to.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let gone = self.parent(path).and_then(|(dir, name)| Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?));
        match gone {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Removes a directory and what is in it; one that is not there is not an error. No link is followed.
    ///
    /// # Errors
    /// A refusal, or an I/O error.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let gone = self.dir(path).and_then(|_| std::fs::remove_dir_all(path));
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
    /// A refusal, or an I/O error.
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

fn open_dir(parent: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<OwnedFd> {
    rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()).map_err(|e| match e {
        // A link to a directory gives either, by system.
        Errno::LOOP | Errno::NOTDIR => {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
            let link = stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
            refuse(format!("{}: {}", path.display(), if link { LINK } else { "it is not a directory" }))
        }
        e => e.into(),
    })
}
