//! Packs in an archive: it is unpacked into a private directory that goes away again, and only into that.

use crate::{error::Failure, model::pack::MANIFEST, numbers::size};
use flate2::read::MultiGzDecoder;
use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
};
use tempfile::TempDir;

/// Entries that an archive may have.
const MAX_ENTRIES: usize = 100_000;
/// Bytes that any archive may unpack to.
const MAX_BYTES: u64 = 256 << 20;
/// How many times its own size a larger one may unpack to: lines of evidence shrink to a thirtieth.
const MAX_RATIO: u64 = 100;
/// Directories above a pack.
const MAX_DEPTH: usize = 8;
/// Where the format of a tar archive has its name (POSIX.1-1988, `ustar`).
const USTAR: std::ops::Range<usize> = 257..262;

/// What an archive was unpacked to; removed when it is dropped.
#[derive(Debug)]
pub struct Unpacked {
    _dir: TempDir,
    /// The packs in it, sorted: where they are, and what they are called in the archive.
    pub packs: Vec<(PathBuf, PathBuf)>,
}

#[derive(Debug, Clone, Copy)]
enum Format {
    Zip,
    Tar,
    TarGz,
}

/// The kind of archive that a file is.
fn format(file: &mut File) -> io::Result<Option<Format>> {
    let mut head = Vec::new();
    file.take(USTAR.end as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(if head.starts_with(b"PK\x03\x04") {
        Some(Format::Zip)
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Some(Format::TarGz)
    } else if head.get(USTAR) == Some(b"ustar") {
        Some(Format::Tar)
    } else {
        None
    })
}

/// Unpacks a `.zip`, `.tar` or `.tar.gz`; `None` for a file that is none of them.
///
/// # Errors
/// An archive that is damaged, that would write elsewhere, that is far too large, or that has no pack.
pub fn unpack(path: &Path) -> Result<Option<Unpacked>, Failure> {
    let failed = |e: io::Error| Failure::bad_input(format_args!("{}: {e}", path.display()));
    let mut file = File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(None);
    }
    let Some(format) = format(&mut file).map_err(failed)? else { return Ok(None) };
    let len = file.metadata().map_err(failed)?.len();
    let dir = tempfile::Builder::new().prefix("assay-").tempdir().map_err(failed)?;
    let mut into = Into {
        dir: dir.path(),
        seen: HashSet::new(),
        entries: 0,
        left: len.saturating_mul(MAX_RATIO).max(MAX_BYTES),
        most: len.saturating_mul(MAX_RATIO).max(MAX_BYTES),
    };
    let unpacked = match format {
        Format::Zip => into.zip(file),
        Format::Tar => into.tar(file),
        Format::TarGz => into.tar(MultiGzDecoder::new(file)),
    };
    unpacked.map_err(|e| failed(e).hint("unpack it yourself, and name the directory of the pack"))?;
    let mut packs = Vec::new();
    packs_in(dir.path(), Path::new(""), &mut packs);
    packs.sort();
    if packs.is_empty() {
        return Err(Failure::bad_input(format_args!("{}: no pack is in this archive", path.display()))
            .hint("a pack is the directory that has pack_manifest.json"));
    }
    let packs = packs.into_iter().map(|inside| (dir.path().join(&inside), path.join(inside))).collect();
    Ok(Some(Unpacked { _dir: dir, packs }))
}

fn packs_in(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    let here = root.join(below);
    if here.join(MANIFEST).is_file() {
        found.push(below.to_owned());
        return;
    }
    if below.components().count() >= MAX_DEPTH {
        return;
    }
    for entry in std::fs::read_dir(here).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            packs_in(root, &below.join(entry.file_name()), found);
        }
    }
}

/// A directory that is filled, and what may still come.
struct Into<'a> {
    dir: &'a Path,
    seen: HashSet<PathBuf>,
    entries: usize,
    left: u64,
    most: u64,
}

fn wrong(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Into<'_> {
    fn zip(&mut self, file: File) -> io::Result<()> {
        let mut archive = zip::ZipArchive::new(file).map_err(wrong)?;
        for nth in 0..archive.len() {
            let entry = archive.by_index(nth).map_err(wrong)?;
            let name = PathBuf::from(entry.name().map_err(wrong)?.as_ref());
            if entry.is_dir() {
                self.directory(&name)?;
            } else if entry.is_symlink() {
                return Err(wrong(format_args!("{} is a link", name.display())));
            } else {
                self.file(&name, entry)?;
            }
        }
        Ok(())
    }

    fn tar(&mut self, bytes: impl io::Read) -> io::Result<()> {
        let mut archive = tar::Archive::new(bytes);
        for entry in archive.entries()? {
            let entry = entry?;
            let name = entry.path()?.into_owned();
            match entry.header().entry_type() {
                tar::EntryType::Directory => self.directory(&name)?,
                tar::EntryType::Regular | tar::EntryType::Continuous => self.file(&name, entry)?,
                tar::EntryType::XGlobalHeader => {}
                _ => return Err(wrong(format_args!("{} is neither a file nor a directory", name.display()))),
            }
        }
        Ok(())
    }

    /// Where an entry goes: never out of the directory, and never where one has gone before.
    fn place(&mut self, name: &Path) -> io::Result<PathBuf> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(wrong(format_args!("it has more than {MAX_ENTRIES} entries")));
        }
        let mut place = PathBuf::new();
        for part in name.components() {
            match part {
                Component::Normal(part) => place.push(part),
                Component::CurDir => {}
                _ => return Err(wrong(format_args!("{} leads out of the archive", name.display()))),
            }
        }
        Ok(place)
    }

    fn directory(&mut self, name: &Path) -> io::Result<()> {
        let place = self.place(name)?;
        std::fs::create_dir_all(self.dir.join(place))
    }

    fn file(&mut self, name: &Path, mut bytes: impl io::Read) -> io::Result<()> {
        let place = self.place(name)?;
        if !self.seen.insert(place.clone()) {
            return Err(wrong(format_args!("{} is in it twice", name.display())));
        }
        let to = self.dir.join(&place);
        std::fs::create_dir_all(to.parent().unwrap_or(self.dir))?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(to)?;
        let copied = io::copy(&mut (&mut bytes).take(self.left + 1), &mut file)?;
        self.left = self
            .left
            .checked_sub(copied)
            .ok_or_else(|| wrong(format_args!("it unpacks to more than {}", size(self.most))))?;
        Ok(())
    }
}
