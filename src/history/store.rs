//! The database of the history: its tables, and how they are read and written.

use super::{DATABASE, LOCK, Summary};
use crate::{
    db::{self, Db, DbError, Schema, Upgrade},
    model::Coverage,
    pack::{
        analysis::{Analysis, Cell},
        calls::CallsError,
        tally::{Latency, ToolTally},
        verify::Covered,
    },
    paths::SessionPaths,
};
use rusqlite::{TransactionBehavior, params};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// `user_version` of the database.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | how many calls of a server that records itself have an outcome |
pub const SCHEMA_VERSION: i64 = 2;
/// `application_id` of the database: `aSay`.
const APPLICATION_ID: i64 = 0x6153_6179;

const TABLES: &str = "
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
    requested INTEGER,
    executed INTEGER,
    refused INTEGER,
    stray INTEGER,
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

/// All receipts are read again.
const TO_2: &str = "
ALTER TABLE sessions ADD COLUMN requested INTEGER;
ALTER TABLE sessions ADD COLUMN executed INTEGER;
ALTER TABLE sessions ADD COLUMN refused INTEGER;
ALTER TABLE sessions ADD COLUMN stray INTEGER;
UPDATE sessions SET journal_bytes = -1;
";

/// What the database is.
const HISTORY: Schema = Schema {
    what: "history",
    file: DATABASE,
    lock: LOCK,
    application_id: APPLICATION_ID,
    version: SCHEMA_VERSION,
    tables: TABLES,
    upgrades: &[Upgrade { from: 1, to: 2, sql: TO_2 }],
    durable: false,
};

/// What keeps the history from being used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The database cannot be used, or a file beside it.
    #[error(transparent)]
    Db(#[from] DbError),
    /// A path that cannot be written as text.
    #[error("{}: a directory whose name is not UTF-8 cannot be in the history", .0.display())]
    Path(PathBuf),
    /// A session's journal does not read.
    #[error(transparent)]
    Journal(CallsError),
}

impl HistoryError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let error = DbError::io(path);
        move |source| Self::Db(error(source))
    }
}

/// How many calls a session has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// All.
    pub calls: u64,
    /// Of these, denied.
    pub denied: u64,
    /// Of these, those that failed or got no answer.
    pub failed: u64,
}

/// A session in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionRow {
    /// The audit directory of the session.
    pub audit_dir: String,
    /// Id of the session.
    pub session_id: String,
    /// Where its pack is, if one was built.
    pub pack: PathBuf,
    /// Id of the server.
    pub server_id: String,
    /// Time of the first receipt.
    pub started_at: String,
    /// Time of the last receipt.
    pub ended_at: String,
    /// Why it ended; empty where it has no end yet.
    pub end_reason: String,
    /// Whether everything was recorded.
    pub complete: bool,
    /// Number of receipts.
    pub receipts: u64,
    /// Counts of its calls.
    #[serde(skip)]
    pub counts: CallCounts,
}

/// The open history.
#[derive(Debug)]
pub struct History(Db);

impl History {
    /// Opens the history of a user directory, or makes an empty one, 0600; waits for others no longer than `patience`
    /// each time.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn open(home: &Path, patience: Duration) -> Result<Self, HistoryError> {
        Ok(Self(Db::open(home, HISTORY, patience)?))
    }

    /// Whether the whole of it reads.
    ///
    /// # Errors
    /// [`DbError::Damaged`].
    pub fn check(&self) -> Result<(), HistoryError> {
        Ok(self.0.check()?)
    }

    fn error(&self, e: rusqlite::Error) -> HistoryError {
        self.0.error(e).into()
    }

    /// Writes a session, replacing what the history had of it.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn put(&mut self, root: &Path, paths: &SessionPaths, s: &Summary) -> Result<(), HistoryError> {
        self.put_all(&root.to_string_lossy(), paths, s).map_err(|e| self.error(e))
    }

    fn put_all(&mut self, root: &str, paths: &SessionPaths, s: &Summary) -> rusqlite::Result<()> {
        let t = self.0.write().transaction_with_behavior(TransactionBehavior::Immediate)?;
        t.execute("DELETE FROM sessions WHERE dir = ?1 AND stem = ?2", params![root, paths.stem])?;
        let covered = s.accounts.coverage();
        let accounted = |of: fn(&Covered) -> u64| covered.as_ref().map(|covered| of(covered) as i64);
        t.execute(
            "INSERT INTO sessions (dir, stem, session_id, server_id, started_at, ended_at, end_reason, complete, receipts,
                                   unreadable, journal_bytes, journal_mtime_ns, requested, executed, refused, stray)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
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
                s.stamp.1,
                accounted(|c| c.coverage.requested),
                accounted(|c| c.coverage.executed),
                accounted(|c| c.coverage.denied),
                accounted(|c| c.stray)
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

    /// Removes a session from the history.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn forget(&mut self, root: &Path, stem: &str) -> Result<(), HistoryError> {
        let dir = root.to_string_lossy();
        let gone = self.0.write().execute("DELETE FROM sessions WHERE dir = ?1 AND stem = ?2", params![dir, stem]);
        gone.map(drop).map_err(|e| self.error(e))
    }

    /// Length and time of change of the journals of a directory when they were read, by stem.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn stamps(&self, root: &Path) -> Result<BTreeMap<String, (u64, i64)>, HistoryError> {
        let read = || {
            let mut query =
                self.0.read().prepare("SELECT stem, journal_bytes, journal_mtime_ns FROM sessions WHERE dir = ?1")?;
            let rows = query
                .query_map([root.to_string_lossy()], |r| Ok((r.get(0)?, (r.get::<_, i64>(1)? as u64, r.get(2)?))))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|e| self.error(e))
    }

    /// All sessions, the latest first.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn sessions(&self) -> Result<Vec<SessionRow>, HistoryError> {
        let read = || {
            let mut query = self.0.read().prepare(
                "SELECT dir, stem, session_id, server_id, started_at, ended_at, end_reason, complete, receipts,
                        coalesce(sum(calls), 0), coalesce(sum(denied), 0), coalesce(sum(errors + timeouts), 0)
                 FROM sessions LEFT JOIN cells ON cells.session = sessions.id
                 GROUP BY sessions.id ORDER BY started_at DESC, dir, stem",
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
                    counts: CallCounts {
                        calls: r.get::<_, i64>(9)? as u64,
                        denied: r.get::<_, i64>(10)? as u64,
                        failed: r.get::<_, i64>(11)? as u64,
                    },
                })
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|e| self.error(e))
    }

    /// How many calls of servers that recorded themselves have an outcome; `None` without such a session.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn coverage(&self) -> Result<Option<Covered>, HistoryError> {
        let sums = "SELECT sum(requested), sum(executed), sum(refused), sum(stray) FROM sessions";
        let read = |r: &rusqlite::Row<'_>| {
            let n = |at| r.get::<_, Option<i64>>(at).map(|n| n.map(|n| n as u64));
            let (Some(requested), Some(executed), Some(denied), Some(stray)) = (n(0)?, n(1)?, n(2)?, n(3)?) else {
                return Ok(None);
            };
            let open = requested.saturating_sub(executed).saturating_sub(denied);
            Ok(Some(Covered { coverage: Coverage { denied, executed, open, requested }, stray, open: Vec::new() }))
        };
        self.0.read().query_row(sums, [], read).map_err(|e| self.error(e))
    }

    /// The calls of all sessions.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn analysis(&self) -> Result<Analysis, HistoryError> {
        let sql = |e| self.error(e);
        let mut out = Analysis::default();
        let mut query = self
            .0
            .read()
            .prepare("SELECT tool, server, day, calls, forwarded, denied, errors, timeouts, max_us, latency FROM cells")
            .map_err(sql)?;
        let mut rows = query.query([]).map_err(sql)?;
        while let Some(r) = rows.next().map_err(sql)? {
            let read = || -> rusqlite::Result<_> {
                let cell = Cell { tool: r.get(0)?, server: r.get(1)?, day: r.get(2)? };
                let n = |at| r.get::<_, i64>(at).map(|n| n as u64);
                let latency = unpack(r.get_ref(9)?.as_blob()?, n(8)?);
                let (calls, forwarded, denied, errors, timeouts) = (n(3)?, n(4)?, n(5)?, n(6)?, n(7)?);
                Ok((cell, latency.map(|latency| ToolTally { calls, forwarded, denied, errors, timeouts, latency })))
            };
            let (cell, tally) = read().map_err(sql)?;
            out.add(cell, &tally.ok_or_else(|| self.0.damaged("unreadable latencies"))?);
        }
        Ok(out)
    }
}

/// Empties the history; a database that is damaged is replaced.
///
/// # Errors
/// [`HistoryError`]; one of a newer version or of something else is left alone.
pub(super) fn wipe(home: &Path, patience: Duration) -> Result<(), HistoryError> {
    Ok(db::wipe(home, HISTORY, patience, "DELETE FROM sessions")?)
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
