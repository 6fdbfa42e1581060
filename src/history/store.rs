//! The database.

use super::{DATABASE, LOCK, Summary, lock};
use crate::{
    files::Tree,
    model::reading::TooNew,
    pack::{
        analysis::{Analysis, Cell},
        calls::CallsError,
        tally::{Latency, ToolTally},
    },
    paths::{SessionPaths, create_private_dir},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};
use rustix::fs::FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// `user_version` of the database.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const SCHEMA_VERSION: i64 = 1;
/// `application_id` of the database: `aSay`.
const APPLICATION_ID: i64 = 0x6153_6179;

const SCHEMA: &str = "
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    dir TEXT NOT NULL,
    stem TEXT NOT NULL,
    session_id TEXT NOT NULL,
    server_id TEXT NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT NOT NULL,
    end_reason TEXT NOT NULL,
    complete INTEGER NOT NULL,
    receipts INTEGER NOT NULL,
    unreadable INTEGER NOT NULL,
    journal_bytes INTEGER NOT NULL,
    journal_mtime_ns INTEGER NOT NULL,
    UNIQUE (dir, stem)
) STRICT;
CREATE TABLE cells (
    session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    tool TEXT NOT NULL,
    server TEXT NOT NULL,
    day TEXT NOT NULL,
    calls INTEGER NOT NULL,
    forwarded INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    timeouts INTEGER NOT NULL,
    max_us INTEGER NOT NULL,
    latency BLOB NOT NULL,
    PRIMARY KEY (session, tool, server, day)
) STRICT, WITHOUT ROWID;
";

/// What keeps the history from being used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The system does not let us.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database does not read.
    #[error("the history {} is damaged: {why}", .path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
    /// A newer version made it.
    #[error("{}: {source}", .path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// What is known of it.
        source: TooNew,
    },
    /// It is the database of something else.
    #[error("{} is not a history of assay", .path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// Others have it.
    #[error("the history is in use by other processes")]
    Busy,
    /// A path that cannot be written as text.
    #[error("{}: a directory whose name is not UTF-8 cannot be in the history", .0.display())]
    Path(PathBuf),
    /// A session's journal does not read.
    #[error(transparent)]
    Journal(CallsError),
    /// Anything else that SQLite says.
    #[error("the history {}: {source}", .path.display())]
    Sql {
        /// Which.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl HistoryError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn sql(path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path: path.clone(), why: source.to_string() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Sql { path: path.clone(), source },
        }
    }
}

/// A session in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionRow {
    /// Its audit directory.
    pub audit_dir: String,
    /// Its id.
    pub session_id: String,
    /// Where its pack lies, if one was built.
    pub pack: PathBuf,
    /// Its server.
    pub server_id: String,
    /// First receipt.
    pub started_at: String,
    /// Last receipt.
    pub ended_at: String,
    /// Why it ended; empty where it has no end yet.
    pub end_reason: String,
    /// Whether everything was recorded.
    pub complete: bool,
    /// Receipts.
    pub receipts: u64,
}

/// The history, open.
#[derive(Debug)]
pub struct History {
    db: Connection,
    path: PathBuf,
    /// While it is held, nobody replaces the file.
    _lock: File,
}

impl History {
    /// Opens the history of a user directory, or makes an empty one, 0600; waits for others no longer than `patience` each time.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn open(home: &Path, patience: Duration) -> Result<Self, HistoryError> {
        let held = hold(home, NonBlockingLockShared, patience)?;
        let path = home.join(DATABASE);
        let mut db = connect(&path, patience)?;
        prepare(&mut db, &path)?;
        Ok(Self { db, path, _lock: held })
    }

    /// Whether the whole of it reads.
    ///
    /// # Errors
    /// [`HistoryError::Damaged`].
    pub fn check(&self) -> Result<(), HistoryError> {
        let sql = HistoryError::sql(&self.path);
        let said: String = self.db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(sql)?;
        if said == "ok" { Ok(()) } else { Err(self.damaged(said)) }
    }

    fn damaged(&self, why: impl Into<String>) -> HistoryError {
        HistoryError::Damaged { path: self.path.clone(), why: why.into() }
    }

    /// Writes a session, in place of what was known of it.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn put(&mut self, root: &Path, paths: &SessionPaths, s: &Summary) -> Result<(), HistoryError> {
        self.put_all(&root.to_string_lossy(), paths, s).map_err(HistoryError::sql(&self.path))
    }

    fn put_all(&mut self, root: &str, paths: &SessionPaths, s: &Summary) -> rusqlite::Result<()> {
        let t = self.db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        t.execute("DELETE FROM sessions WHERE dir = ?1 AND stem = ?2", params![root, paths.stem])?;
        t.execute(
            "INSERT INTO sessions (dir, stem, session_id, server_id, started_at, ended_at, end_reason, complete, receipts,
                                   unreadable, journal_bytes, journal_mtime_ns)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            params![
                root,
                paths.stem,
                paths.id.to_string(),
                s.server_id,
                s.started_at,
                s.ended_at,
                s.end_reason,
                s.complete,
                s.receipts as i64,
                s.unreadable as i64,
                s.stamp.0 as i64,
                s.stamp.1
            ],
        )?;
        let session = t.last_insert_rowid();
        {
            let mut insert = t.prepare(
                "INSERT INTO cells (session, tool, server, day, calls, forwarded, denied, errors, timeouts, max_us, latency)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?;
            for (cell, tally) in s.analysis.cells() {
                insert.execute(params![
                    session,
                    cell.tool,
                    cell.server,
                    cell.day,
                    tally.calls as i64,
                    tally.forwarded as i64,
                    tally.denied as i64,
                    tally.errors as i64,
                    tally.timeouts as i64,
                    tally.latency.max().unwrap_or(0) as i64,
                    pack(&tally.latency)
                ])?;
            }
        }
        t.commit()
    }

    /// Drops a session.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn forget(&mut self, root: &Path, stem: &str) -> Result<(), HistoryError> {
        let sql = HistoryError::sql(&self.path);
        let dir = root.to_string_lossy();
        self.db.execute("DELETE FROM sessions WHERE dir = ?1 AND stem = ?2", params![dir, stem]).map(drop).map_err(sql)
    }

    /// Length and time of change of the journals of a directory when they were read, by stem.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn stamps(&self, root: &Path) -> Result<BTreeMap<String, (u64, i64)>, HistoryError> {
        let read = || {
            let mut query =
                self.db.prepare("SELECT stem, journal_bytes, journal_mtime_ns FROM sessions WHERE dir = ?1")?;
            let rows = query
                .query_map([root.to_string_lossy()], |r| Ok((r.get(0)?, (r.get::<_, i64>(1)? as u64, r.get(2)?))))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(HistoryError::sql(&self.path))
    }

    /// All sessions, the latest first.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn sessions(&self) -> Result<Vec<SessionRow>, HistoryError> {
        let read = || {
            let mut query = self.db.prepare(
                "SELECT dir, stem, session_id, server_id, started_at, ended_at, end_reason, complete, receipts
                 FROM sessions ORDER BY started_at DESC, dir, stem",
            )?;
            let rows = query.query_map([], |r| {
                let (audit_dir, stem): (String, String) = (r.get(0)?, r.get(1)?);
                let pack = Path::new(&audit_dir).join("packs").join(format!("proof_pack_{stem}"));
                Ok(SessionRow {
                    audit_dir,
                    session_id: r.get(2)?,
                    pack,
                    server_id: r.get(3)?,
                    started_at: r.get(4)?,
                    ended_at: r.get(5)?,
                    end_reason: r.get(6)?,
                    complete: r.get(7)?,
                    receipts: r.get::<_, i64>(8)? as u64,
                })
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(HistoryError::sql(&self.path))
    }

    /// The calls of all sessions.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn analysis(&self) -> Result<Analysis, HistoryError> {
        let sql = HistoryError::sql(&self.path);
        let mut out = Analysis::default();
        let mut query = self
            .db
            .prepare("SELECT tool, server, day, calls, forwarded, denied, errors, timeouts, max_us, latency FROM cells")
            .map_err(&sql)?;
        let mut rows = query.query([]).map_err(&sql)?;
        while let Some(r) = rows.next().map_err(&sql)? {
            let read = || -> rusqlite::Result<_> {
                let cell = Cell { tool: r.get(0)?, server: r.get(1)?, day: r.get(2)? };
                let n = |at| r.get::<_, i64>(at).map(|n| n as u64);
                let latency = unpack(r.get_ref(9)?.as_blob()?, n(8)?);
                let (calls, forwarded, denied, errors, timeouts) = (n(3)?, n(4)?, n(5)?, n(6)?, n(7)?);
                Ok((cell, latency.map(|latency| ToolTally { calls, forwarded, denied, errors, timeouts, latency })))
            };
            let (cell, tally) = read().map_err(&sql)?;
            out.add(cell, &tally.ok_or_else(|| self.damaged("latencies that do not read"))?);
        }
        Ok(out)
    }
}

/// Empties the history; a database that is damaged is replaced.
///
/// # Errors
/// [`HistoryError`]; one of a newer version or of something else is left alone.
pub(super) fn wipe(home: &Path, patience: Duration) -> Result<(), HistoryError> {
    let _held = hold(home, NonBlockingLockExclusive, patience)?;
    let path = home.join(DATABASE);
    let emptied = connect(&path, patience).and_then(|mut db| {
        prepare(&mut db, &path)?;
        let sql = HistoryError::sql(&path);
        let said: String = db.query_row("PRAGMA quick_check(1)", [], |r| r.get(0)).map_err(&sql)?;
        if said != "ok" {
            return Err(HistoryError::Damaged { path: path.clone(), why: said });
        }
        db.execute("DELETE FROM sessions", []).map_err(&sql)?;
        Ok(())
    });
    match emptied {
        Err(HistoryError::Damaged { .. }) => {}
        other => return other,
    }
    // Its journal goes first: it must never be played back into the new database.
    for suffix in ["-journal", "-wal", "-shm", ""] {
        let file = home.join(format!("{DATABASE}{suffix}"));
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(HistoryError::io(&file)(e)),
            _ => {}
        }
    }
    Ok(())
}

fn hold(home: &Path, how: rustix::fs::FlockOperation, patience: Duration) -> Result<File, HistoryError> {
    create_private_dir(home).map_err(|e| HistoryError::Io { path: home.to_owned(), source: io::Error::other(e) })?;
    let file = private_file(&home.join(LOCK))?;
    lock(&file, how, patience)?;
    Ok(file)
}

fn private_file(path: &Path) -> Result<File, HistoryError> {
    let home = path.parent().unwrap_or(Path::new("."));
    Tree::at(home).append(path).map_err(HistoryError::io(path))
}

fn connect(path: &Path, patience: Duration) -> Result<Connection, HistoryError> {
    let sql = HistoryError::sql(path);
    // SQLite would make it readable for others.
    private_file(path)?;
    // It writes and truncates what stands beside it without a look at what that is.
    for end in ["-journal", "-wal", "-shm"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(end);
        let beside = PathBuf::from(beside);
        match Tree::at(path.parent().unwrap_or(Path::new("."))).open(&beside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(HistoryError::io(&beside)(e)),
            _ => {}
        }
    }
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(&sql)?;
    db.busy_timeout(patience).map_err(&sql)?;
    db.pragma_update(None, "foreign_keys", true).map_err(&sql)?;
    db.pragma_update(None, "trusted_schema", false).map_err(&sql)?;
    // A session's end does not wait for the disk: what a power cut damages is found and made anew from the journals.
    db.pragma_update(None, "synchronous", "OFF").map_err(&sql)?;
    Ok(db)
}

/// Makes the tables of an empty database, and refuses one that is not ours.
fn prepare(db: &mut Connection, path: &Path) -> Result<(), HistoryError> {
    let sql = HistoryError::sql(path);
    // In a transaction, or another process that makes the tables just now is seen half.
    let state_now = db.transaction().and_then(|t| state(&t)).map_err(&sql)?;
    match state_now {
        (APPLICATION_ID, SCHEMA_VERSION, _) => return Ok(()),
        (APPLICATION_ID, found, _) => {
            let path = path.to_owned();
            return Err(match newer(found) {
                Some(source) => HistoryError::Newer { path, source },
                None => HistoryError::Damaged { path, why: format!("version {found} was never written") },
            });
        }
        (0, 0, 0) => {}
        _ => return Err(HistoryError::Foreign { path: path.to_owned() }),
    }
    let mut made = || -> rusqlite::Result<()> {
        let t = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been faster.
        if state(&t)? == (0, 0, 0) {
            t.execute_batch(SCHEMA)?;
            t.pragma_update(None, "application_id", APPLICATION_ID)?;
            t.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        t.commit()
    };
    made().map_err(&sql)
}

/// Whether this is a version above the one that is read. A later minor one stands above the lower 16 bits.
fn newer(found: i64) -> Option<TooNew> {
    let (major, minor) = (found & 0xffff, found >> 16);
    let name = if minor == 0 { major.to_string() } else { format!("{major}.{minor}") };
    (found > SCHEMA_VERSION).then(|| TooNew { what: "history", found: name, known: SCHEMA_VERSION.to_string() })
}

/// Application id, version and number of tables.
fn state(db: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let one = |query: &str| db.query_row(query, [], |r| r.get(0));
    Ok((one("PRAGMA application_id")?, one("PRAGMA user_version")?, one("SELECT count(*) FROM sqlite_master")?))
}

/// Buckets and counts, six bytes each, little-endian.
fn pack(latency: &Latency) -> Vec<u8> {
    latency.parts().flat_map(|(at, n)| at.to_le_bytes().into_iter().chain(n.to_le_bytes())).collect()
}

fn unpack(bytes: &[u8], max: u64) -> Option<Latency> {
    let (parts, rest) = bytes.as_chunks::<6>();
    let read = |p: &[u8; 6]| (u16::from_le_bytes([p[0], p[1]]), u32::from_le_bytes([p[2], p[3], p[4], p[5]]));
    if rest.is_empty() { Latency::from_parts(parts.iter().map(read), max) } else { None }
}
