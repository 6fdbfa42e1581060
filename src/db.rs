//! A small SQLite database in a directory of ours: made when it is not there, locked while it is open, brought to the version
//! that is read, refused when a later version or something else made it, checked for damage. No such database is evidence:
//! what is in one can be made again from evidence and from what people wrote.

use crate::{
    files::{self, Lock, Tree},
    model::reading::TooNew,
    paths::create_private_dir,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Suffixes of the files that SQLite keeps beside the database: its journal, the write-ahead log, and the index of
/// that.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];

/// What a database is.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// What people call it: `history`.
    pub what: &'static str,
    /// File name of the database.
    pub file: &'static str,
    /// The name of the lock file: locked shared by each process that has the database open, exclusively by one that
    /// replaces it.
    pub lock: &'static str,
    /// SQLite's `application_id`, by which it is known.
    pub application_id: i64,
    /// SQLite's `user_version`: the major version, and a minor one above its lower 16 bits.
    pub version: i64,
    /// Makes the tables of an empty one.
    pub tables: &'static str,
    /// How older ones become this one, the oldest first.
    pub upgrades: &'static [Upgrade],
    /// Whether what was committed survives a power cut.
    pub durable: bool,
}

/// A step from one version to the next.
#[derive(Debug, Clone, Copy)]
pub struct Upgrade {
    /// The version before it.
    pub from: i64,
    /// The version after it.
    pub to: i64,
    /// What is changed.
    pub sql: &'static str,
}

/// What keeps a database from being used.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The system does not let us.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the database.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not read.
    #[error("the {what} {} is damaged: {why}", .path.display())]
    Damaged {
        /// What people call it.
        what: &'static str,
        /// Path of the database.
        path: PathBuf,
        /// The error of SQLite.
        why: String,
    },
    /// A later version made it.
    #[error("{}: {source}", .path.display())]
    Newer {
        /// Path of the database.
        path: PathBuf,
        /// The version that was found, and the newest that is read.
        source: TooNew,
    },
    /// It is the database of something else.
    #[error("{} is not a {what} of assay", .path.display())]
    Foreign {
        /// What people call ours.
        what: &'static str,
        /// Path of the database.
        path: PathBuf,
    },
    /// Other processes hold it, and did not release it in time.
    #[error("the {what} is in use by other processes")]
    Busy {
        /// What people call it.
        what: &'static str,
    },
    /// Anything else that SQLite says.
    #[error("the {what} {}: {source}", .path.display())]
    Sql {
        /// What people call it.
        what: &'static str,
        /// Path of the database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

impl DbError {
    /// The error of the system at a path.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// An open database.
#[derive(Debug)]
pub struct Db {
    connection: Connection,
    place: Place,
    /// While it is held, no process replaces the file.
    _lock: File,
}

/// Which database, and its file: the place that errors name.
#[derive(Debug, Clone)]
struct Place {
    schema: Schema,
    path: PathBuf,
}

impl Db {
    /// Opens the database in a user directory, or makes an empty one, 0600; waits for others no longer than `patience`
    /// each time.
    ///
    /// # Errors
    /// [`DbError`].
    pub fn open(dir: &Path, schema: Schema, patience: Duration) -> Result<Self, DbError> {
        let held = hold(dir, &schema, patience, |file| files::try_lock_shared(file))?;
        let place = Place { schema, path: dir.join(schema.file) };
        let mut connection = place.connect(patience)?;
        if let Some(old) = place.prepare(&mut connection)? {
            place.upgrade(&mut connection, old, &held, patience)?;
        }
        if schema.durable {
            // Only now is it known to be ours.
            connection.pragma_update(None, "journal_mode", "WAL").map_err(|e| place.error(e))?;
        }
        Ok(Self { connection, place, _lock: held })
    }

    /// The connection, for reading.
    #[must_use]
    pub const fn read(&self) -> &Connection {
        &self.connection
    }

    /// The connection, for writing.
    pub const fn write(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// What SQLite says, as an error of this database.
    #[must_use]
    pub fn error(&self, source: rusqlite::Error) -> DbError {
        self.place.error(source)
    }

    /// That something in it does not read.
    #[must_use]
    pub fn damaged(&self, why: impl Into<String>) -> DbError {
        self.place.damaged(why)
    }

    /// Copies it to a new file, 0600, while others use it; for another thread, too.
    ///
    /// A process must not [open](Self::open) a database twice: what that closes on its way would release the locks that
    /// SQLite has here, and another process would take itself for the last one.
    pub fn copier(&self) -> impl FnOnce(&Path) -> Result<(), DbError> + Send + use<> {
        let place = self.place.clone();
        move |to| {
            // SQLite would make it readable for others; it fills an empty file.
            let file = files::create_new(to).map_err(DbError::io(to))?;
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let copied = Connection::open_with_flags(&place.path, flags)
                .and_then(|connection| connection.execute("VACUUM INTO ?1", [to.to_string_lossy()]));
            let copied = copied.map_err(|e| place.error(e));
            let synced = copied.and_then(|_| files::sync_all(&file).map_err(DbError::io(to)));
            synced.inspect_err(|_| drop(std::fs::remove_file(to)))
        }
    }

    /// Whether the whole of it reads.
    ///
    /// # Errors
    /// [`DbError::Damaged`].
    pub fn check(&self) -> Result<(), DbError> {
        self.place.check(&self.connection)
    }
}

/// Empties the database with a statement; one that is damaged is removed, so that the next who opens it makes a new
/// one.
///
/// # Errors
/// [`DbError`]; one of a later version or of something else is left alone.
pub fn wipe(dir: &Path, schema: Schema, patience: Duration, emptying: &str) -> Result<(), DbError> {
    let _held = hold(dir, &schema, patience, |file| files::try_lock(file))?;
    let place = Place { schema, path: dir.join(schema.file) };
    let emptied = place.connect(patience).and_then(|mut connection| {
        place.prepare(&mut connection)?;
        place.check(&connection)?;
        connection.execute_batch(emptying).map_err(|e| place.error(e))
    });
    match emptied {
        Err(DbError::Damaged { .. }) => {}
        other => return other,
    }
    // Its journal goes first: it must never be played back into the new database.
    for file in BESIDE.map(|end| place.beside(end)).iter().chain([&place.path]) {
        match std::fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(DbError::io(file)(e)),
            _ => {}
        }
    }
    Ok(())
}

fn hold(
    dir: &Path,
    schema: &Schema,
    patience: Duration,
    attempt: impl Fn(&File) -> io::Result<Lock>,
) -> Result<File, DbError> {
    create_private_dir(dir).map_err(|e| DbError::io(dir)(io::Error::other(e)))?;
    let path = dir.join(schema.lock);
    let file = Tree::at(dir).append(&path).map_err(DbError::io(&path))?;
    match files::patiently(patience, || attempt(&file)) {
        Ok(Lock::Busy) => Err(DbError::Busy { what: schema.what }),
        // Another error means a file system without locks.
        _ => Ok(file),
    }
}

impl Place {
    fn error(&self, source: rusqlite::Error) -> DbError {
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => self.damaged(source.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DbError::Busy { what: self.schema.what },
            _ => DbError::Sql { what: self.schema.what, path: self.path.clone(), source },
        }
    }

    fn damaged(&self, why: impl Into<String>) -> DbError {
        DbError::Damaged { what: self.schema.what, path: self.path.clone(), why: why.into() }
    }

    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(end);
        name.into()
    }

    fn connect(&self, patience: Duration) -> Result<Connection, DbError> {
        let files = Tree::at(self.path.parent().unwrap_or(Path::new(".")));
        // SQLite would make it readable for others.
        files.append(&self.path).map_err(DbError::io(&self.path))?;
        // It writes and truncates the files beside it without checking what they are.
        for beside in BESIDE.map(|end| self.beside(end)) {
            match files.open(&beside) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(DbError::io(&beside)(e)),
                _ => {}
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&self.path, flags).and_then(|connection| {
            connection.busy_timeout(patience)?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.pragma_update(None, "trusted_schema", false)?;
            connection.pragma_update(None, "cell_size_check", true)?;
            // A session's end does not wait for the disk: what a power cut damages is found and made anew.
            connection.pragma_update(None, "synchronous", if self.schema.durable { "FULL" } else { "OFF" })?;
            Ok(connection)
        });
        opened.map_err(|e| self.error(e))
    }

    /// Makes the tables of an empty database, and refuses one that is not ours; the version of an older one, which is left
    /// as it is.
    fn prepare(&self, connection: &mut Connection) -> Result<Option<i64>, DbError> {
        let Schema { what, application_id, version, tables, .. } = self.schema;
        // In a transaction, or another process that makes the tables just now is seen half.
        let now = connection.transaction().and_then(|t| state(&t)).map_err(|e| self.error(e))?;
        if (now.0, now.1) == (application_id, version) {
            return Ok(None);
        }
        if now.0 == application_id && self.schema.upgrades.iter().any(|step| step.from == now.1) {
            return Ok(Some(now.1));
        }
        if now.0 == application_id {
            return Err(match self.newer(now.1) {
                Some(source) => DbError::Newer { path: self.path.clone(), source },
                None => self.damaged(format!("version {} was never written", now.1)),
            });
        }
        if now != (0, 0, 0) {
            return Err(DbError::Foreign { what, path: self.path.clone() });
        }
        let mut made = || -> rusqlite::Result<()> {
            let t = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Another process may have been faster.
            if state(&t)? == (0, 0, 0) {
                t.execute_batch(tables)?;
                t.pragma_update(None, "application_id", application_id)?;
                t.pragma_update(None, "user_version", version)?;
            }
            t.commit()
        };
        made().map_err(|e| self.error(e)).map(|()| None)
    }

    /// Takes an older one to the version that is read, step by step, while nobody else has it open. A copy of it stays
    /// beside it.
    fn upgrade(&self, connection: &mut Connection, old: i64, held: &File, patience: Duration) -> Result<(), DbError> {
        let locked = files::patiently(patience, || files::try_lock(held)).map_err(DbError::io(&self.path))?;
        if locked == Lock::Busy {
            return Err(DbError::Busy { what: self.schema.what });
        }
        let files = Tree::at(self.path.parent().unwrap_or(Path::new(".")));
        let copy = self.beside(&format!(".v{old}"));
        // SQLite would make it readable for others; it fills an empty file.
        let made = files.remove(&copy).and_then(|()| files.create(&copy));
        made.map_err(DbError::io(&copy))?;
        let into = connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]);
        into.map_err(|e| self.error(e))?;
        for step in self.schema.upgrades.iter().skip_while(|step| step.from != old) {
            let mut done = || -> rusqlite::Result<()> {
                let t = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                // Another process may have taken it while we waited for the lock.
                if state(&t)?.1 == step.from {
                    t.execute_batch(step.sql)?;
                    t.pragma_update(None, "user_version", step.to)?;
                }
                t.commit()
            };
            done().map_err(|e| self.error(e))?;
        }
        files::try_lock_shared(held).map(|_| ()).map_err(DbError::io(&self.path))
    }

    /// Whether this is a later version than the one that is read.
    fn newer(&self, found: i64) -> Option<TooNew> {
        let Schema { what, version: known, .. } = self.schema;
        let (major, minor) = (found & 0xffff, found >> 16);
        let name = if minor == 0 { major.to_string() } else { format!("{major}.{minor}") };
        (found > known).then(|| TooNew { what, found: name, known: known.to_string() })
    }

    fn check(&self, connection: &Connection) -> Result<(), DbError> {
        let said: rusqlite::Result<String> = connection.query_row("PRAGMA quick_check(1)", [], |r| r.get(0));
        match said.map_err(|e| self.error(e))?.as_str() {
            "ok" => Ok(()),
            said => Err(self.damaged(said)),
        }
    }
}

/// Application id, version and number of tables.
fn state(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    let one = |query: &str| connection.query_row(query, [], |r| r.get(0));
    Ok((one("PRAGMA application_id")?, one("PRAGMA user_version")?, one("SELECT count(*) FROM sqlite_master")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: Schema = Schema {
        what: "notebook",
        file: "notes.sqlite3",
        lock: "notes.lock",
        application_id: 7,
        version: 3,
        tables: "CREATE TABLE notes (text TEXT NOT NULL) STRICT;",
        upgrades: &[],
        durable: false,
    };

    fn open(dir: &Path) -> Result<Db, DbError> {
        Db::open(dir, NOTES, Duration::ZERO)
    }

    #[test]
    fn any_room_can_have_one_and_two_lie_beside_each_other() {
        let tmp = tempfile::tempdir().unwrap();
        let other = Schema { file: "other.sqlite3", lock: "other.lock", application_id: 8, ..NOTES };
        let mut db = open(tmp.path()).unwrap();
        db.write().execute("INSERT INTO notes VALUES ('one')", []).unwrap();
        let beside = Db::open(tmp.path(), other, Duration::ZERO).unwrap();
        let count = |db: &Db| db.read().query_row("SELECT count(*) FROM notes", [], |r| r.get::<_, i64>(0)).unwrap();
        assert_eq!((count(&db), count(&beside)), (1, 0));
        db.check().unwrap();
        // A database that is open is not emptied; one that is not, is.
        let wiped = || wipe(tmp.path(), NOTES, Duration::ZERO, "DELETE FROM notes");
        assert!(matches!(wiped(), Err(DbError::Busy { what: "notebook" })));
        drop(db);
        wiped().unwrap();
        assert_eq!(count(&open(tmp.path()).unwrap()), 0);
    }

    #[test]
    fn an_older_one_is_taken_step_by_step_to_the_version_that_is_read_and_a_copy_stays() {
        const LATER: Schema = Schema {
            version: 5,
            tables: "",
            upgrades: &[
                Upgrade { from: 3, to: 4, sql: "ALTER TABLE notes ADD COLUMN at TEXT;" },
                Upgrade { from: 4, to: 5, sql: "ALTER TABLE notes ADD COLUMN by TEXT; UPDATE notes SET by = 'me';" },
            ],
            durable: true,
            ..NOTES
        };
        let tmp = tempfile::tempdir().unwrap();
        let mut old = open(tmp.path()).unwrap();
        old.write().execute("INSERT INTO notes VALUES ('one')", []).unwrap();
        // While somebody has it open, it is left as it is.
        let later = || Db::open(tmp.path(), LATER, Duration::ZERO);
        assert!(matches!(later(), Err(DbError::Busy { .. })));
        drop(old);
        let db = later().unwrap();
        let row = db.read().query_row("SELECT text, at, by FROM notes", [], |r| {
            Ok((r.get::<_, String>(0)?, r.get::<_, Option<String>>(1)?, r.get::<_, String>(2)?))
        });
        assert_eq!(row.unwrap(), ("one".to_owned(), None, "me".to_owned()));
        let mode: String = db.read().query_row("PRAGMA journal_mode", [], |r| r.get(0)).unwrap();
        assert_eq!(mode, "wal");
        drop(db);
        later().unwrap().check().unwrap();
        // An older program refuses it, and reads the copy.
        assert!(matches!(open(tmp.path()), Err(DbError::Newer { .. })));
        std::fs::rename(tmp.path().join("notes.sqlite3.v3"), tmp.path().join(NOTES.file)).unwrap();
        let copy = open(tmp.path()).unwrap();
        assert_eq!(copy.read().query_row("SELECT text FROM notes", [], |r| r.get::<_, String>(0)).unwrap(), "one");
    }

    #[test]
    fn a_step_that_fails_leaves_the_old_version() {
        const BROKEN: Schema = Schema {
            version: 4,
            upgrades: &[Upgrade { from: 3, to: 4, sql: "DELETE FROM notes; ALTER TABLE nothing ADD COLUMN x;" }],
            ..NOTES
        };
        let tmp = tempfile::tempdir().unwrap();
        open(tmp.path()).unwrap().write().execute("INSERT INTO notes VALUES ('one')", []).unwrap();
        assert!(matches!(Db::open(tmp.path(), BROKEN, Duration::ZERO), Err(DbError::Sql { .. })));
        let db = open(tmp.path()).unwrap();
        assert_eq!(db.read().query_row("SELECT count(*) FROM notes", [], |r| r.get::<_, i64>(0)).unwrap(), 1);
    }

    #[test]
    fn the_file_of_another_is_not_touched_and_an_error_says_what_it_would_be() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join(NOTES.file);
        drop(Db::open(tmp.path(), Schema { application_id: 8, ..NOTES }, Duration::ZERO).unwrap());
        let before = std::fs::read(&path).unwrap();
        let e = open(tmp.path()).unwrap_err();
        assert!(matches!(e, DbError::Foreign { .. }) && e.to_string().ends_with("is not a notebook of assay"), "{e}");
        assert!(wipe(tmp.path(), NOTES, Duration::ZERO, "DELETE FROM notes").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);

        std::fs::write(&path, vec![0xa5; 4096]).unwrap();
        let e = open(tmp.path()).and_then(|db| db.check()).unwrap_err();
        assert!(e.to_string().contains("the notebook") && e.to_string().contains("is damaged"), "{e}");
        wipe(tmp.path(), NOTES, Duration::ZERO, "DELETE FROM notes").unwrap();
        open(tmp.path()).unwrap().check().unwrap();
    }
}
