//! Whether a ledger still holds what this user's recorder wrote last: the user directory remembers it.
//!
//! A line is remembered after it was synced, so one that is remembered and not there was taken away.

use super::mark::{self, DirectoryPlace};

use crate::{
    files::Tree,
    lines::Lines,
    model::{
        reading::{self, Reading, TooNew, versioned},
        sha256_hex,
    },
    paths::AuditDir,
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// Longest ledger in bytes: enough for two million sessions.
const MAX_LEDGER: u64 = 1 << 30;

/// Format version of the file that remembers a ledger.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const MEMORY_VERSION: u32 = 1;

/// Bytes of a ledger that are looked at at a time.
const PIECE: u64 = 256 << 10;
/// Bytes of the first line that are looked at.
const FIRST: u64 = 64 << 10;

/// One line of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Hash of the line, hex.
    pub hash: String,
    /// Position of the line in the ledger, from 0.
    pub ledger_seq: u64,
}

/// `ledgers/<32 hex digits of the path's SHA-256>.json` in the user directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The audit directory.
    pub audit_dir: DirectoryPlace,
    /// The line that was written last.
    pub head: Head,
    /// A line that was written and was found missing; it stays until it is there again.
    pub missing: Option<Head>,
    /// SHA-256 of the ledger's first line, hex.
    pub origin: String,
    /// Format version of the file, [`MEMORY_VERSION`].
    #[serde(deserialize_with = "reading::known::<Memory, _>")]
    pub v: u32,
}

fn memory_path(home: &Path, place: &DirectoryPlace) -> PathBuf {
    home.join("ledgers").join(format!("{}.json", &sha256_hex(place.path.as_bytes())[..32]))
}

versioned!(Memory, "memory of a ledger", MEMORY_VERSION);

/// Refuses what is too long to be a ledger, before it is read.
pub(super) fn check_length(file: &File) -> io::Result<()> {
    if file.metadata()?.len() > MAX_LEDGER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long to be a ledger"));
    }
    Ok(())
}

/// What there is to say of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It lacks a line, or it cannot be told whether it does; as text for people.
    Damaged(String),
    /// A later version remembers it: whether it lacks a line is not known.
    TooNew {
        /// Path of the memory.
        path: PathBuf,
        /// The version that was found, and the newest that is read.
        source: TooNew,
    },
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(what) => f.write_str(what),
            Self::TooNew { path, source } => {
                write!(f, "{}: {source}; whether the ledger was rolled back is unknown", path.display())
            }
        }
    }
}

/// What is remembered of the ledger; `None` if nothing is, or it cannot be read at all.
fn remembered(home: &Path, path: &Path) -> Option<Reading<Memory>> {
    Some(reading::read(&mark::read_own(&Tree::at(home), path).ok()?))
}

/// What of a memory a ledger does not hold. Nothing if this is another directory with another ledger.
fn missing(memory: &Memory, place: &DirectoryPlace, ledger: Option<&File>) -> io::Result<Option<Head>> {
    let origin = ledger.map(origin).transpose()?.flatten();
    if !memory.audit_dir.is(place) && origin.as_ref() != Some(&memory.origin) {
        return Ok(None);
    }
    for head in memory.missing.iter().chain([&memory.head]) {
        let there = ledger.map(|file| holds(file, &head.hash)).transpose()?;
        if there != Some(true) {
            return Ok(Some(head.clone()));
        }
    }
    Ok(None)
}

/// Remembers the line that was appended last; the ledger is locked. Gives a line that was there before and is not there now. What a
/// later version remembers is not replaced.
///
/// # Errors
/// An I/O error; that the memory is of a later version.
pub(super) fn remember(dir: &AuditDir, ledger: &File, head: Head) -> io::Result<Option<Head>> {
    let Some(home) = dir.home() else { return Ok(None) };
    let place = DirectoryPlace::of(dir.root())?;
    let path = memory_path(home, &place);
    let before = match remembered(home, &path) {
        Some(Reading::TooNew(e)) => return Err(e.into()),
        before => before.and_then(Reading::ok),
    };
    let missing = before.map(|memory| missing(&memory, &place, Some(ledger))).transpose()?.flatten();
    let origin = origin(ledger)?.unwrap_or_default();
    let memory = Memory { audit_dir: place, head, missing: missing.clone(), origin, v: MEMORY_VERSION };
    mark::replace(&Tree::at(home), &path, &memory, false)?;
    Ok(missing)
}

/// Forgets what is missing, if anything is; the ledger is locked.
///
/// # Errors
/// An I/O error; that the memory is of a later version.
pub(super) fn forget_missing(dir: &AuditDir) -> io::Result<()> {
    let Some(home) = dir.home() else { return Ok(()) };
    let path = memory_path(home, &DirectoryPlace::of(dir.root())?);
    match remembered(home, &path) {
        Some(Reading::TooNew(e)) => Err(e.into()),
        Some(Reading::Readable(memory)) if memory.missing.is_some() => {
            mark::replace(&Tree::at(home), &path, &Memory { missing: None, ..memory }, true)
        }
        _ => Ok(()),
    }
}

/// Says it if the ledger of an audit directory lacks what this user's recorder wrote there. It reads the end of the
/// ledger, as far as the line that is remembered.
#[must_use]
pub fn look(dir: &AuditDir) -> Option<Said> {
    let home = dir.home()?;
    let place = DirectoryPlace::of(dir.root()).ok()?;
    let path = memory_path(home, &place);
    let memory = match remembered(home, &path)? {
        Reading::Readable(memory) => memory,
        Reading::TooNew(source) => return Some(Said::TooNew { path, source }),
        Reading::Damaged(why) => {
            return Some(Said::Damaged(format!(
                "{}: what your recorder remembers of the ledger {} does not read: {why}; whether it was rolled back is not \
                 known until the next session is recorded there",
                path.display(),
                dir.ledger().display()
            )));
        }
    };
    let ledger = match dir.files().open(&dir.ledger()) {
        Ok(file) => Some(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(_) => return None,
    };
    // One without end would be read for hours.
    if let Some(Err(e)) = ledger.as_ref().map(check_length) {
        let what = format!("{}: {e}; what your recorder wrote there is not looked for", dir.ledger().display());
        return Some(Said::Damaged(what));
    }
    let head = missing(&memory, &place, ledger.as_ref()).ok()??;
    Some(Said::Damaged(format!(
        "the ledger {} was rolled back: line {} of hash {}, which your recorder wrote, is not in it; lines were removed, or \
         an older copy was put back. If that was you, say so: assay ledger renew",
        dir.ledger().display(),
        head.ledger_seq,
        head.hash,
    )))
}

/// SHA-256 of the first line.
fn origin(ledger: &File) -> io::Result<Option<String>> {
    let mut lines = Lines::of(ledger.try_clone()?);
    Ok(lines.whole(FIRST)?.map(|line| sha256_hex(line.bytes)))
}

/// Whether a line has this hash, looked for from the end.
fn holds(ledger: &File, hash: &str) -> io::Result<bool> {
    let needle = format!("\"hash\":\"{hash}\"");
    let mut upto = ledger.metadata()?.len();
    while upto > 0 {
        let from = upto.saturating_sub(PIECE);
        let mut piece = vec![0; usize::try_from(upto - from).map_err(io::Error::other)?];
        ledger.read_exact_at(&mut piece, from)?;
        if memchr::memmem::rfind(&piece, needle.as_bytes()).is_some() {
            return Ok(true);
        }
        // What crosses the border of two pieces is in the next one.
        upto = if from == 0 { 0 } else { from + needle.len() as u64 };
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{GENESIS, LedgerKind, SessionId},
        record::ledger::{Entry, Ledger},
    };

    fn append(dir: &AuditDir) {
        let session = Some(SessionId::from_bits(1));
        let entry = Entry::new(LedgerKind::SegmentStart, session, "segment_x.jsonl", GENESIS);
        Ledger::lock(dir, session).unwrap().append(&entry).unwrap();
    }

    #[test]
    fn a_ledger_that_lacks_what_was_written_is_said_until_it_is_there_again() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path().join("audit")).remembered_in(Some(tmp.path().join("home")));
        dir.create().unwrap();
        assert_eq!(look(&dir), None);
        // What a later version remembers is named and not replaced.
        append(&dir);
        let path = memory_path(dir.home().unwrap(), &DirectoryPlace::of(dir.root()).unwrap());
        let memory = std::fs::read_to_string(&path).unwrap();
        for v in ["2", "\"1.1\"", "4000000000"] {
            let later = memory.replace("\"v\":1", &format!("\"v\":{v}"));
            std::fs::write(&path, &later).unwrap();
            append(&dir);
            assert!(matches!(look(&dir), Some(Said::TooNew { .. })), "{v}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), later);
        }
        std::fs::write(&path, "{}").unwrap();
        assert!(look(&dir).unwrap().to_string().contains("does not read"));
        std::fs::remove_file(dir.ledger()).unwrap();
        std::fs::remove_file(&path).unwrap();
        for n in 1..700 {
            append(&dir);
            assert!(n % 100 != 0 || look(&dir).is_none());
        }
        let whole = std::fs::read_to_string(dir.ledger()).unwrap();
        let upto = |n: usize| whole.split_inclusive('\n').take(n).collect::<String>();
        for keep in [0, 1, 350, 698] {
            std::fs::write(dir.ledger(), upto(keep)).unwrap();
            assert!(look(&dir).unwrap().to_string().contains("line 698 of hash"), "{keep}");
        }
        File::options().write(true).open(dir.ledger()).unwrap().set_len(1 << 42).unwrap();
        assert!(look(&dir).unwrap().to_string().contains("too long to be a ledger"));
        std::fs::remove_file(dir.ledger()).unwrap();
        assert!(look(&dir).is_some());
        // Going on does not make up for it.
        std::fs::write(dir.ledger(), upto(5)).unwrap();
        append(&dir);
        append(&dir);
        assert!(look(&dir).unwrap().to_string().contains("line 698 of hash"));
        // An older copy of the whole directory, under another inode number.
        std::fs::rename(dir.root(), tmp.path().join("aside")).unwrap();
        dir.create().unwrap();
        assert_eq!(look(&dir), None, "a new directory in its place");
        std::fs::write(dir.ledger(), upto(100)).unwrap();
        assert!(look(&dir).is_some());
        std::fs::write(dir.ledger(), &whole).unwrap();
        assert!(look(&dir).is_some(), "what was written since is gone");
    }
}
