//! Surfaces that were seen: `surface/observed_*.json` of an audit directory.

use crate::{
    model::{
        WallTime,
        surface::{Snapshot, snapshot::SnapshotError},
    },
    paths::AuditDir,
};
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Longest document, in bytes.
const MAX_DOCUMENT: u64 = 128 << 20;
/// Files that are read to find what was seen last of every server.
pub const MOST: usize = 2000;

/// One surface that was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The file.
    pub path: PathBuf,
    /// When it was seen: the time in the file's name, as `20260315T113000Z`.
    pub at: String,
    /// What was seen.
    pub snapshot: Snapshot,
}

/// What cannot be read, and why.
pub type Unread = (PathBuf, String);

/// The newest surfaces of an audit directory, the newest first, and what could not be read.
#[derive(Debug, Default)]
pub struct Observed {
    /// What was seen.
    pub seen: Vec<Seen>,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// Whether there are older files that were not read.
    pub more: bool,
}

impl Observed {
    /// Reads them, at most [`MOST`]; with `server`, until `enough` of that server were found.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn read(dir: &AuditDir, server: Option<(&str, usize)>) -> io::Result<Self> {
        let mut files = Vec::new();
        for name in dir.files().names(&dir.surface())? {
            let Some(name) = name.to_str() else { continue };
            let Some(stem) = name.strip_prefix("observed_").and_then(|n| n.strip_suffix(".json")) else { continue };
            let path = dir.surface().join(name);
            let changed = dir.files().open(&path).and_then(|f| f.metadata()?.modified());
            let at = stem.split('_').next().unwrap_or_default().to_owned();
            files.push((at, changed.unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
        // A session may see more after another began: what was written last is the newest.
        files.sort_by(|a, b| (b.1, &b.0, &b.2).cmp(&(a.1, &a.0, &a.2)));
        let mut out = Self { more: files.len() > MOST, ..Self::default() };
        for (at, _, path) in files.into_iter().take(MOST) {
            match read(dir, &path) {
                Ok(snapshot) if server.is_none_or(|(id, _)| snapshot.identity.id == id) => {
                    out.seen.push(Seen { path, at, snapshot });
                }
                // Of another server, or of a version that has no identity: nothing of that can be decided about.
                Ok(_) | Err(ReadError::First) => {}
                Err(ReadError::Other(why)) => out.unread.push((path, why)),
            }
            if server.is_some_and(|(_, enough)| out.seen.len() >= enough) {
                out.more = false;
                break;
            }
        }
        Ok(out)
    }

    /// What was seen last of a server.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn newest(dir: &AuditDir, server_id: &str) -> io::Result<Option<Seen>> {
        Ok(Self::read(dir, Some((server_id, 1)))?.seen.into_iter().next())
    }

    /// What was seen last of a server as a whole, among what was seen of it lately.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn newest_whole(dir: &AuditDir, server_id: &str) -> io::Result<Option<Seen>> {
        const LATELY: usize = 50;
        let seen = Self::read(dir, Some((server_id, LATELY)))?.seen;
        Ok(seen.into_iter().find(|s| s.snapshot.root().is_ok()))
    }

    /// What was seen last of each server at each place, in the order of ids.
    #[must_use]
    pub fn newest_of_each(&self) -> Vec<&Seen> {
        let mut known = BTreeSet::new();
        let mut newest: Vec<&Seen> = self.seen.iter().filter(|s| known.insert(&s.snapshot.identity.id)).collect();
        newest.sort_by(|a, b| a.snapshot.identity.id.cmp(&b.snapshot.identity.id));
        newest
    }
}

enum ReadError {
    First,
    Other(String),
}

fn read(dir: &AuditDir, path: &Path) -> Result<Snapshot, ReadError> {
    let bytes = dir.files().read(path, MAX_DOCUMENT).map_err(|e| ReadError::Other(e.to_string()))?;
    Snapshot::read(&bytes).map_err(|e| {
        let version = crate::model::line::number(crate::model::line::member(&bytes, "v"));
        if version == Some(1) { ReadError::First } else { ReadError::Other(e.to_string()) }
    })
}

/// Reads the document of a surface that somebody named.
///
/// # Errors
/// It cannot be read, or it is no surface.
pub fn read_named(path: &Path) -> Result<Snapshot, String> {
    let bytes = crate::files::named(path).and_then(|file| crate::files::read_all(file, MAX_DOCUMENT));
    let bytes = bytes.map_err(|e| e.to_string())?;
    Snapshot::read(&bytes).map_err(|e: SnapshotError| e.to_string())
}

/// Keeps a surface that was asked for.
///
/// # Errors
/// An I/O error.
pub fn keep(dir: &AuditDir, snapshot: &Snapshot) -> io::Result<PathBuf> {
    let document = snapshot.document().map_err(io::Error::other)?;
    dir.create().map_err(io::Error::other)?;
    dir.files().make_dir(&dir.surface())?;
    let id = getrandom::u64().map_err(io::Error::other)?;
    let name = format!("observed_{}_{id:016x}.json", WallTime::now().compact());
    let path = dir.surface().join(name);
    let staged = dir.surface().join(format!(".observed_{id:016x}.tmp"));
    dir.files().replace(&staged, &path, &document, true)?;
    Ok(path)
}
