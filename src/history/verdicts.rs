//! What verifications said, remembered: a list shows it beside each pack as long as the files of that are the same.
//!
//! It is no evidence, and never taken for a verification: it may be deleted at any time.

use super::{HistoryError, list};
use crate::{
    db::{Db, Schema},
    model::WallTime,
    pack::verify::VerifyReport,
};
use rusqlite::params;
use serde::Serialize;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// The database, in the user directory.
pub const DATABASE: &str = "verdicts.sqlite3";
/// `user_version` of the database.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const VERDICTS_VERSION: i64 = 1;
/// How long a command that has verified waits for others: the verdict is said already.
const PATIENCE: Duration = Duration::from_millis(500);

const VERDICTS: Schema = Schema {
    what: "memory of verdicts",
    file: DATABASE,
    lock: "verdicts.lock",
    // `aVer`.
    application_id: 0x6156_6572,
    version: VERDICTS_VERSION,
    tables: "CREATE TABLE verdicts (
        pack TEXT PRIMARY KEY,
        stamp INTEGER NOT NULL,
        integrity TEXT NOT NULL,
        completeness TEXT NOT NULL,
        claims TEXT NOT NULL,
        signer TEXT NOT NULL,
        verified_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;",
    upgrades: &[],
    durable: false,
};

/// What a verification said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The first channel.
    pub integrity: String,
    /// The second.
    pub completeness: String,
    /// The third.
    pub claims: String,
    /// The fourth.
    pub signer: String,
    /// When it was said.
    pub verified_at: WallTime,
}

/// All that are remembered, by pack.
#[derive(Debug, Default)]
pub struct Verdicts(HashMap<PathBuf, (u64, Verdict)>);

impl Verdicts {
    /// Those of a user directory.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn read(home: &Path) -> Result<Self, HistoryError> {
        if !home.join(DATABASE).is_file() {
            return Ok(Self::default());
        }
        let db = Db::open(home, VERDICTS, PATIENCE)?;
        let read = || -> rusqlite::Result<_> {
            let mut query = db
                .read()
                .prepare("SELECT pack, stamp, integrity, completeness, claims, signer, verified_at FROM verdicts")?;
            let rows = query.query_map([], |r| {
                let verdict = Verdict {
                    integrity: r.get(2)?,
                    completeness: r.get(3)?,
                    claims: r.get(4)?,
                    signer: r.get(5)?,
                    verified_at: WallTime::from_millis(r.get(6)?),
                };
                Ok((PathBuf::from(r.get::<_, String>(0)?), (r.get::<_, i64>(1)?.cast_unsigned(), verdict)))
            })?;
            rows.collect()
        };
        Ok(Self(read().map_err(|e| db.error(e))?))
    }

    /// What was said of a pack, if its files still have the names, lengths and times that they had.
    #[must_use]
    pub fn of(&self, pack: &Path, stamp: u64) -> Option<&Verdict> {
        self.0.get(pack).filter(|(then, _)| *then == stamp).map(|(_, verdict)| verdict)
    }
}

/// Remembers what was said of a pack, if it lies in an audit directory that this user recorded in: nothing is written
/// about packs of others.
///
/// # Errors
/// The database cannot be written; a pack whose path is not UTF-8 is not remembered.
pub fn remember(home: &Path, pack: &Path, report: &VerifyReport) -> Result<(), HistoryError> {
    let pack = pack.canonicalize().map_err(HistoryError::io(pack))?;
    let root = pack.parent().and_then(Path::parent);
    let is_ours = match root {
        Some(root) => super::directories(home)?.iter().any(|dir| dir == root),
        None => false,
    };
    let Some(name) = pack.to_str().filter(|_| is_ours) else { return Ok(()) };
    let mut db = Db::open(home, VERDICTS, PATIENCE)?;
    let said = db.write().execute(
        "INSERT OR REPLACE INTO verdicts (pack, stamp, integrity, completeness, claims, signer, verified_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            name,
            list::stamp(&pack).cast_signed(),
            report.integrity.as_str(),
            report.completeness.as_str(),
            report.claims.as_str(),
            report.signer.verdict.as_str(),
            report.verified_at.millis(),
        ],
    );
    said.map(drop).map_err(|e| db.error(e).into())
}
