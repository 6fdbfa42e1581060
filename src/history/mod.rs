//! The history: an embedded SQLite index over every audit directory that this user recorded in (docs/analyze.md).
//!
//! It is never evidence. Everything in it comes from the receipts in the audit directories, in journals and packs, by one function,
//! whether a session is noted when it ends or the whole is rebuilt; so it may be deleted at any time. Which directories
//! there are is kept in a text file beside it, one JSON string a line, and survives a database that does not.

pub mod list;
pub mod named;
mod store;
pub mod verdicts;

pub use store::{CallCounts, History, HistoryError, SCHEMA_VERSION, SessionRow};

use crate::{
    db::DbError,
    files::{self, Lock, Tree},
    model::{WallTime, receipt::SCHEMA_VERSION as SCHEMA_OF_RECEIPTS, version},
    pack::{
        analysis::Analysis,
        calls::{self, CallsError, Seen},
        tally::Accounts,
        verify::source::PackDir,
    },
    paths::{self, AuditDir, SessionPaths, create_private_dir},
};
use std::{
    io::{self, Read as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

/// The database, in the user directory.
pub const DATABASE: &str = "history.sqlite3";
/// The audit directories, in the user directory.
pub const DIRECTORIES: &str = "audit_dirs.jsonl";
/// Name of the lock file: locked shared by each process that has the database open, exclusively by one that replaces
/// it.
const LOCK: &str = "history.lock";
/// Bytes of the list of directories that are read.
const MAX_DIRECTORIES: u64 = 4 << 20;
/// How long a proxy that ends waits for others.
const PATIENCE_OF_PROXY: Duration = Duration::from_secs(5);
/// How long a command waits for others.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// One session as its journal has it.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Id of the server, the `server_id` of the receipts.
    pub server_id: String,
    /// Time of the first receipt, as it is written.
    pub started_at: String,
    /// Time of the last receipt.
    pub ended_at: String,
    /// `end_reason`; empty where the session has no end.
    pub end_reason: String,
    /// Whether the journal says that everything was recorded.
    pub complete: bool,
    /// Number of receipts.
    pub receipts: u64,
    /// Lines that are not receipts.
    pub unreadable: u64,
    /// Length and time of change of the journal, to notice changes.
    pub stamp: (u64, i64),
    /// Counts and latency of its calls.
    pub analysis: Analysis,
    /// What a server's own receipts say of its calls.
    pub accounts: Accounts,
}

/// What a look at the directories changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Directories that could be read.
    pub directories: u64,
    /// Sessions that were read anew.
    pub indexed: u64,
    /// Sessions whose journal is gone.
    pub dropped: u64,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

/// Adds a session that has just been sealed. Waits at most a few seconds for other processes.
///
/// # Errors
/// [`HistoryError`]; the next `assay analyze --history` finds the session then.
pub fn note(home: &Path, dir: &AuditDir, paths: &SessionPaths) -> Result<(), HistoryError> {
    let root = register(home, dir.root())?;
    let summary = summarize(paths).map_err(HistoryError::Journal)?;
    History::open(home, PATIENCE_OF_PROXY)?.put(&root, paths, &summary)
}

/// Adds an audit directory to the list; gives its absolute path.
///
/// # Errors
/// [`HistoryError`].
pub fn register(home: &Path, dir: &Path) -> Result<PathBuf, HistoryError> {
    let root = dir.canonicalize().map_err(HistoryError::io(dir))?;
    let text = root.to_str().ok_or_else(|| HistoryError::Path(root.clone()))?;
    let line = serde_json::to_string(text).map_err(|_| HistoryError::Path(root.clone()))?;
    create_private_dir(home).map_err(|e| HistoryError::io(home)(io::Error::other(e)))?;
    let path = home.join(DIRECTORIES);
    let mut file = Tree::at(home).append(&path).map_err(HistoryError::io(&path))?;
    // Another error means a file system without locks.
    if matches!(files::patiently(PATIENCE_OF_PROXY, || files::try_lock(&file)), Ok(Lock::Busy)) {
        return Err(DbError::Busy { what: "history" }.into());
    }
    let mut known = String::new();
    (&file).take(MAX_DIRECTORIES).read_to_string(&mut known).map_err(HistoryError::io(&path))?;
    if !known.lines().any(|l| l == line) {
        // A line that a power cut tore is ended first.
        let gap = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
        file.write_all(format!("{gap}{line}\n").as_bytes()).map_err(HistoryError::io(&path))?;
    }
    Ok(root)
}

/// The audit directories of the list, sorted; lines that do not read are passed over.
///
/// # Errors
/// [`DbError::Io`].
pub fn directories(home: &Path) -> Result<Vec<PathBuf>, HistoryError> {
    let path = home.join(DIRECTORIES);
    let mut text = String::new();
    match files::plain(&path) {
        Ok(file) => file.take(MAX_DIRECTORIES).read_to_string(&mut text).map_err(HistoryError::io(&path))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
        Err(e) => return Err(HistoryError::io(&path)(e)),
    };
    let mut all: Vec<PathBuf> =
        text.lines().filter_map(|l| serde_json::from_str::<String>(l).ok()).map(PathBuf::from).collect();
    all.sort();
    all.dedup();
    Ok(all)
}

/// Empties the history, replacing a database that is damaged, and reads every journal again.
///
/// # Errors
/// [`HistoryError`]; a database of a newer version or of something else is left alone.
pub fn rebuild(home: &Path) -> Result<(History, Refreshed), HistoryError> {
    store::wipe(home, PATIENCE)?;
    let mut history = History::open(home, PATIENCE)?;
    let refreshed = refresh(&mut history, home)?;
    Ok((history, refreshed))
}

/// Reads the journals that are new or have changed.
///
/// # Errors
/// [`HistoryError`] of the database; a journal that does not read is a problem in [`Refreshed`].
pub fn refresh(history: &mut History, home: &Path) -> Result<Refreshed, HistoryError> {
    let mut out = Refreshed::default();
    for root in directories(home)? {
        let dir = AuditDir::at(&root).remembered_in(Some(home.to_owned()));
        out.problems.extend(crate::record::rollback::look(&dir).map(|said| said.to_string()));
        let names = match std::fs::read_dir(dir.receipts()) {
            Ok(entries) => entries.filter_map(Result::ok).filter_map(|e| e.file_name().into_string().ok()),
            // What is not mounted today is not forgotten.
            Err(e) => {
                out.problems.push(format!("{}: {e}", dir.receipts().display()));
                continue;
            }
        };
        out.directories += 1;
        let known = history.stamps(&root)?;
        let mut all = dir.sessions();
        all.retain(|_, paths| receipts_of(paths).symlink_metadata().is_ok());
        all.extend(names.filter_map(|name| session_of(&dir, &name)).map(|paths| (paths.stem.clone(), paths)));
        let mut seen = std::collections::BTreeSet::new();
        for paths in all.into_values() {
            let stamp = receipts_of(&paths).symlink_metadata().map(|m| stamp_of(&m)).ok();
            if known.get(&paths.stem).copied() != stamp || stamp.is_none() {
                match summarize(&paths) {
                    Ok(summary) => {
                        history.put(&root, &paths, &summary)?;
                        out.indexed += 1;
                    }
                    Err(e) => out.problems.push(e.to_string()),
                }
            }
            seen.insert(paths.stem);
        }
        for stem in known.keys().filter(|stem| !seen.contains(*stem)) {
            history.forget(&root, stem)?;
            out.dropped += 1;
        }
    }
    Ok(out)
}

fn session_of(dir: &AuditDir, name: &str) -> Option<SessionPaths> {
    dir.session_of_segment(&format!("segment_{}", name.strip_prefix("session_")?))
}

/// The receipts of a session: its journal, or once that went, those of its pack.
fn receipts_of(paths: &SessionPaths) -> PathBuf {
    let sealed = || paths::in_pack(&paths.receipts).filter(|there| there.symlink_metadata().is_ok());
    let journal = paths.receipts.symlink_metadata().is_ok();
    if journal { paths.receipts.clone() } else { sealed().unwrap_or_else(|| paths.receipts.clone()) }
}

fn stamp_of(m: &std::fs::Metadata) -> (u64, i64) {
    (m.len(), m.mtime().wrapping_mul(1_000_000_000).wrapping_add(m.mtime_nsec()))
}

/// Reads the journal of a session, or what its pack has of it, unless a part of it is of a later version. A torn last line
/// of a session that is running or was cut is counted, not refused.
fn summarize(paths: &SessionPaths) -> Result<Summary, CallsError> {
    let path = receipts_of(paths);
    let failed = |what: String| CallsError::NotOpened { path: path.clone(), what };
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(failed("it has no name".to_owned()));
    };
    let opened = PackDir::open(dir).map_err(|e| failed(e.to_string()))?;
    let stamp = path.symlink_metadata().map(|m| stamp_of(&m)).map_err(|e| failed(e.to_string()))?;
    let (mut out, mut too_new) = (Summary { stamp, ..Summary::default() }, None);
    calls::lines(&opened, name, |line| {
        let Some(seen) = Seen::read(line.bytes) else {
            out.unreadable += u64::from(!line.bytes.is_empty());
            return;
        };
        too_new = too_new.take().or_else(|| version::newer_text("receipt", &seen.schema, SCHEMA_OF_RECEIPTS));
        out.receipts += 1;
        if let Some(at) = WallTime::parse(&seen.timestamp) {
            out.ended_at = at.to_string();
            if out.started_at.is_empty() {
                out.started_at = at.to_string();
            }
        }
        if out.server_id.is_empty() {
            out.server_id = seen.server.to_string();
        }
        if seen.kind == crate::model::receipt::SESSION_END {
            out.end_reason = seen.end_reason.to_string();
            out.complete = seen.session_complete == Some(true);
        }
        out.analysis.receipt(&seen);
        out.accounts.receipt(&seen);
    })?;
    match too_new {
        Some(source) => Err(CallsError::TooNew { path, source }),
        None => Ok(out),
    }
}

#[cfg(test)]
mod tests;
