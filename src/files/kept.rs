//! A new content for a file that belongs to another program: the name keeps its mode, its owner and its attributes, and a reader
//! finds the old content or the new one.

use super::sync::{sync_all, sync_dir};
use assay_evidence::plain::{FILE, create_new, is_plain, is_unsupported, read_all};
use rustix::{
    fs::{Gid, Mode, OFlags, Stat, Uid, XattrFlags},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
};

/// How a content was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A new file has the name.
    Renamed,
    /// The file itself was written: it has other names, is mounted, or its directory cannot be written.
    InPlace,
    /// It has another content than was expected: nothing was done.
    Changed,
}

/// Replaces the content of a plain file that is `old`. `path` must be a real path, without links.
///
/// # Errors
/// A refusal, or an I/O error. Only a process that is killed while it writes in place leaves something else than either content.
pub fn replace_kept(path: &Path, old: &[u8], new: &[u8]) -> io::Result<Kept> {
    let file = rustix::fs::open(path, FILE | OFlags::RDONLY, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    is_plain(&stat)?;
    let file = File::from(file);
    if stat.st_nlink > 1 {
        return in_place(path, old, new);
    }
    let staged = staged(path);
    let placed = stage(&staged, &file, &stat, new).and_then(|()| {
        if !is(path, old)? {
            return Ok(Kept::Changed);
        }
        fs::rename(&staged, path).map(|()| Kept::Renamed)
    });
    match placed {
        Ok(Kept::Renamed) => {
            path.parent().map_or(Ok(()), sync_dir)?;
            Ok(Kept::Renamed)
        }
        Ok(other) => {
            let _ = fs::remove_file(&staged);
            Ok(other)
        }
        Err(e) => {
            let _ = fs::remove_file(&staged);
            let lasting = [Errno::BUSY, Errno::PERM, Errno::ACCESS, Errno::ROFS, Errno::XDEV, Errno::NOTSUP];
            if lasting.iter().any(|errno| e.raw_os_error() == Some(errno.raw_os_error())) {
                return in_place(path, old, new);
            }
            Err(e)
        }
    }
}

/// The name beside a file under which its new content is written.
fn staged(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".assay-new");
    path.with_file_name(name)
}

fn stage(staged: &Path, file: &File, stat: &Stat, new: &[u8]) -> io::Result<()> {
    // One that a killed run left.
    let _ = fs::remove_file(staged);
    let mut made = create_new(staged)?;
    made.write_all(new)?;
    let own = rustix::fs::fstat(&made)?;
    if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
        rustix::fs::fchown(&made, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    }
    rustix::fs::fchmod(&made, Mode::from_raw_mode(stat.st_mode))?;
    copy_attributes(file, &made)?;
    sync_all(&made)
}

/// Copies extended attributes, access lists among them. What the system gives by itself (`security.*`) is left to it.
fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    let mut names = vec![0; 64 << 10];
    let len = match rustix::fs::flistxattr(from, &mut names[..]) {
        Ok(len) => len,
        Err(e) if is_unsupported(&e.into()) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    for name in names[..len].split(|b| *b == 0).filter(|name| !name.is_empty() && !name.starts_with(b"security.")) {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..len], XattrFlags::empty())?;
    }
    Ok(())
}

/// Whether a file has this content.
fn is(path: &Path, content: &[u8]) -> io::Result<bool> {
    let file: File = rustix::fs::open(path, FILE | OFlags::RDONLY, Mode::empty())?.into();
    Ok(file.metadata()?.len() == content.len() as u64 && read_all(file, content.len() as u64)? == content)
}

fn in_place(path: &Path, old: &[u8], new: &[u8]) -> io::Result<Kept> {
    let mut file = File::from(rustix::fs::open(path, FILE | OFlags::RDWR, Mode::empty())?);
    if !is(path, old)? {
        return Ok(Kept::Changed);
    }
    let written = overwrite(&mut file, new);
    if written.is_err() {
        // The old content had room.
        let _ = overwrite(&mut file, old);
    }
    written.map(|()| Kept::InPlace)
}

fn overwrite(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    sync_all(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    #[test]
    fn mode_and_attributes_stay_and_other_names_stay_the_same_file() {
        let tmp = tempfile::tempdir().unwrap();
        let at = |name: &str| tmp.path().join(name);
        fs::write(at("f"), "old").unwrap();
        fs::set_permissions(at("f"), fs::Permissions::from_mode(0o640)).unwrap();
        let file = File::open(at("f")).unwrap();
        let attributes = rustix::fs::fsetxattr(&file, "user.note", b"x", XattrFlags::empty()).is_ok();
        // What a killed run left is no hindrance.
        fs::write(at(".f.assay-new"), "torn").unwrap();
        assert_eq!(replace_kept(&at("f"), b"old", b"new one").unwrap(), Kept::Renamed);
        assert_eq!(fs::read(at("f")).unwrap(), b"new one");
        assert_eq!(at("f").metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        if attributes {
            let mut value = [0; 8];
            let file = File::open(at("f")).unwrap();
            let len = rustix::fs::fgetxattr(&file, "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"x");
        }
        assert_eq!(replace_kept(&at("f"), b"old", b"newer").unwrap(), Kept::Changed);
        assert_eq!(fs::read(at("f")).unwrap(), b"new one");
        fs::hard_link(at("f"), at("g")).unwrap();
        assert_eq!(replace_kept(&at("f"), b"new one", b"n").unwrap(), Kept::InPlace);
        assert_eq!(fs::read(at("g")).unwrap(), b"n");
        assert_eq!(at("f").metadata().unwrap().ino(), at("g").metadata().unwrap().ino());
        assert_eq!(replace_kept(&at("f"), b"new one", b"m").unwrap(), Kept::Changed);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 2);
    }
}
