//! A pack under construction: a private directory beside the target that becomes the target in one rename.

use crate::{
    files::{self, Lock},
    model::pack::FileEntry,
};
use sha2::{Digest as _, Sha256};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
};

/// How our staging directories' names begin; the rest is 16 hex digits. assay-ai's have no `mcp` in them: it does not lock its
/// own, so they are not ours to sweep.
const OURS: &str = ".assay_pack_staging_mcp";

/// An error at one file of the pack.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub struct StagingError {
    /// Path of the file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StagingError {
    let path = path.to_owned();
    move |source| StagingError { path, source }
}

/// The directory; removed with everything in it unless it is published.
#[derive(Debug)]
pub struct Staging {
    dir: PathBuf,
    // Locked while its builder is alive, so that no other process removes it.
    lock: File,
    published: bool,
}

impl Staging {
    /// A fresh one in `parent`, which must exist.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(parent: &Path) -> Result<Self, StagingError> {
        // A sweeper may hold or remove a directory in the instant before it is locked; then another name is taken.
        for _ in 0..16 {
            let random = getrandom::u64().map_err(|e| at(parent)(io::Error::other(e)))?;
            let dir = parent.join(format!("{OURS}{random:016x}"));
            files::new_dir(&dir).map_err(at(&dir))?;
            match files::open_dir(&dir) {
                Ok(lock) => match files::try_lock(&lock) {
                    Ok(Lock::Taken) if dir.exists() => return Ok(Self { dir, lock, published: false }),
                    Ok(Lock::Taken | Lock::Busy) => {}
                    // A file system without locks has no sweeper either.
                    Ok(Lock::Unsupported) | Err(_) => return Ok(Self { dir, lock, published: false }),
                },
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let _ = fs::remove_dir(&dir);
                    return Err(at(&dir)(e));
                }
            }
        }
        Err(at(parent)(io::Error::other("cannot lock a staging directory")))
    }

    /// The staging directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new file in it, 0600.
    ///
    /// # Errors
    /// The system's error.
    pub fn file(&self, name: &str) -> Result<NewFile, StagingError> {
        let path = self.dir.join(name);
        let file = files::create_new(&path).map_err(at(&path))?;
        let entry = FileEntry { path: name.to_owned(), sha256: String::new(), bytes: 0 };
        Ok(NewFile { path, out: BufWriter::with_capacity(1 << 18, file), hash: Sha256::new(), entry })
    }

    /// A whole new file.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<FileEntry, StagingError> {
        let mut file = self.file(name)?;
        file.write(bytes)?;
        file.finish()
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// The system's error.
    pub fn subdir(&self, name: &str) -> Result<(), StagingError> {
        let path = self.dir.join(name);
        files::new_dir(&path).map_err(at(&path))
    }

    /// Syncs a directory in it.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync_subdir(&self, name: &str) -> Result<(), StagingError> {
        let path = self.dir.join(name);
        files::sync_dir(&path).map_err(at(&path))
    }

    /// Makes it `target`, which must not exist. Gives why its new name may not survive a power cut, if it may not.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], or what the system says.
    pub fn publish(mut self, target: &Path) -> Result<Option<StagingError>, StagingError> {
        files::sync_all(&self.lock).map_err(at(&self.dir))?;
        files::rename_noreplace(&self.dir, target).map_err(at(target))?;
        self.published = true;
        Ok(target.parent().and_then(|p| files::sync_dir(p).map_err(at(p)).err()))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// A file that is hashed while it is written.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    out: BufWriter<File>,
    hash: Sha256,
    entry: FileEntry,
}

impl NewFile {
    /// Appends.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StagingError> {
        self.hash.update(bytes);
        self.entry.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(at(&self.path))
    }

    /// Flushes and syncs; gives what the manifest says about it.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(mut self) -> Result<FileEntry, StagingError> {
        self.out.flush().and_then(|()| files::sync_all(self.out.get_ref())).map_err(at(&self.path))?;
        self.entry.sha256 = hex::encode(self.hash.finalize());
        Ok(self.entry)
    }
}

/// Copies a pack into another directory under its own name, whole or not at all. Gives where it is.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], something in it that is neither a file nor a directory, or what the system says.
pub fn copy(pack: &Path, into: &Path) -> Result<PathBuf, StagingError> {
    let staging = Staging::create(into)?;
    copy_below(&staging, pack, "")?;
    let target = into.join(pack.file_name().unwrap_or_default());
    staging.publish(&target)?;
    Ok(target)
}

fn copy_below(staging: &Staging, dir: &Path, below: &str) -> Result<(), StagingError> {
    for entry in fs::read_dir(dir).map_err(at(dir))? {
        let entry = entry.map_err(at(dir))?;
        let path = entry.path();
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(at(&path))?.is_dir() {
            staging.subdir(&name)?;
            copy_below(staging, &path, &format!("{name}/"))?;
            staging.sync_subdir(&name)?;
            continue;
        }
        let mut file = files::plain(&path).map_err(at(&path))?;
        let mut copy = staging.file(&name)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer).map_err(at(&path))? {
                0 => break,
                n => copy.write(&buffer[..n])?,
            }
        }
        copy.finish()?;
    }
    Ok(())
}

/// Removes staging directories of builders that are dead; gives how many. What cannot be removed stays.
pub fn sweep(parent: &Path) -> usize {
    let Ok(entries) = fs::read_dir(parent) else { return 0 };
    let stale = |name: &OsStr, path: &Path| {
        let ours = name.to_str().and_then(|n| n.strip_prefix(OURS));
        let ours = ours.is_some_and(|r| r.len() == 16 && r.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(dir) = ours.then(|| files::open_dir(path).ok()).flatten() else { return false };
        // The lock is held until the directory is removed, so that no builder takes it over meanwhile.
        matches!(files::try_lock(&dir), Ok(Lock::Taken)) && fs::remove_dir_all(path).is_ok()
    };
    entries.flatten().filter(|e| stale(&e.file_name(), &e.path())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_pack_is_whole_or_absent() {
        let tmp = tempfile::tempdir().unwrap();
        let target = tmp.path().join("pack");
        let staging = Staging::create(tmp.path()).unwrap();
        let dir = staging.dir().to_owned();
        staging.write("a", b"abc").unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(dir.join("a")).unwrap().permissions().mode() & 0o777, 0o600);
        drop(staging);
        assert!(!dir.exists());
        let staging = Staging::create(tmp.path()).unwrap();
        let entry = staging.write("a", b"abc").unwrap();
        assert_eq!((entry.bytes, entry.sha256), (3, crate::model::sha256_hex(b"abc")));
        staging.publish(&target).unwrap();
        assert_eq!(fs::read(target.join("a")).unwrap(), b"abc");
        let second = Staging::create(tmp.path()).unwrap();
        assert_eq!(second.publish(&target).unwrap_err().source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_has_all_that_the_pack_has_and_replaces_nothing() {
        let (tmp, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pack = tmp.path().join("proof_pack_1");
        fs::create_dir_all(pack.join("policies")).unwrap();
        let files = [("a", vec![7; 200_000]), ("policies/p", b"x".to_vec())];
        for (name, bytes) in &files {
            fs::write(pack.join(name), bytes).unwrap();
        }
        let there = copy(&pack, other.path()).unwrap();
        assert_eq!(there, other.path().join("proof_pack_1"));
        for (name, bytes) in &files {
            assert_eq!(fs::read(there.join(name)).unwrap(), *bytes);
        }
        assert_eq!(copy(&pack, other.path()).unwrap_err().source.kind(), io::ErrorKind::AlreadyExists);
        std::os::unix::fs::symlink("/etc/passwd", pack.join("link")).unwrap();
        fs::remove_dir_all(&there).unwrap();
        assert!(copy(&pack, other.path()).is_err());
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_dead_are_swept() {
        let tmp = tempfile::tempdir().unwrap();
        let alive = Staging::create(tmp.path()).unwrap();
        let dead = tmp.path().join(format!("{OURS}{:016x}", 5));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("receipt_pack.jsonl"), "x").unwrap();
        let foreign = tmp.path().join(".assay_pack_staging_abcdef");
        fs::create_dir(&foreign).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("keep"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), tmp.path().join(format!("{OURS}{:016x}", 6))).unwrap();
        assert_eq!(sweep(tmp.path()), 1);
        assert!(alive.dir().exists() && foreign.exists() && !dead.exists());
        assert!(elsewhere.path().join("keep").exists());
    }
}
