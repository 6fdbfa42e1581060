//! The registry as a SQLite database.

use super::{
    Adopted, Approved, AuditRow, Checked, Copier, Declared, ManagedBy, NewSnapshot, Registry, ServiceRow, SnapshotRow,
    State, TokenRow,
};
use crate::{
    canon,
    db::{Db, DbError, Schema, Upgrade},
    model::{Vocabulary, WallTime},
};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

/// `user_version` of the registry.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | services that the API made, their versions, tokens |
pub const REGISTRY_VERSION: i64 = 2;

/// File name of the registry.
pub const DATABASE: &str = "gateway.sqlite3";

/// How long others are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Checks that are kept of a service.
const CHECKS: u32 = 1000;
/// Snapshots that are kept of a service.
const SNAPSHOTS: u32 = 1000;

const TABLES: &str = "
CREATE TABLE mcp_services (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    upstream_url TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    check_frequency_minutes INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT,
    state_since TEXT NOT NULL,
    approved_id INTEGER REFERENCES mcp_snapshots (id),
    latest_id INTEGER REFERENCES mcp_snapshots (id),
    check_started_at TEXT,
    last_check_at TEXT,
    last_success_at TEXT,
    next_due_at TEXT,
    failures INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    deleted_at TEXT,
    managed_by TEXT NOT NULL DEFAULT 'file',
    config_json TEXT,
    version INTEGER NOT NULL DEFAULT 1
) STRICT;
CREATE TABLE mcp_snapshots (
    id INTEGER PRIMARY KEY,
    service_id INTEGER NOT NULL REFERENCES mcp_services (id),
    snapshot_json TEXT,
    snapshot_hash TEXT NOT NULL CHECK (length(snapshot_hash) = 64),
    approved_status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    first_id INTEGER REFERENCES mcp_snapshots (id),
    CHECK ((snapshot_json IS NULL) <> (first_id IS NULL))
) STRICT;
CREATE INDEX snapshots_of ON mcp_snapshots (service_id, id);
CREATE INDEX snapshots_by_text ON mcp_snapshots (service_id, snapshot_hash) WHERE first_id IS NULL;
CREATE INDEX snapshots_by_first ON mcp_snapshots (first_id);
CREATE TABLE checks (
    id INTEGER PRIMARY KEY,
    service_id INTEGER NOT NULL REFERENCES mcp_services (id),
    started_at TEXT NOT NULL,
    ms INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    reason TEXT,
    snapshot_id INTEGER REFERENCES mcp_snapshots (id) ON DELETE SET NULL
) STRICT;
CREATE INDEX checks_of ON checks (service_id, id);
CREATE INDEX checks_by_snapshot ON checks (snapshot_id);
CREATE TABLE audit_log (
    id INTEGER PRIMARY KEY,
    ts TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    details_json TEXT NOT NULL,
    prev_hash TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TABLE api_tokens (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    created_at TEXT NOT NULL
) STRICT;
";

const TO_2: &str = "
ALTER TABLE mcp_services ADD COLUMN managed_by TEXT NOT NULL DEFAULT 'file';
ALTER TABLE mcp_services ADD COLUMN config_json TEXT;
ALTER TABLE mcp_services ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
CREATE TABLE api_tokens (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    created_at TEXT NOT NULL
) STRICT;
";

const REGISTRY: Schema = Schema {
    what: "registry",
    file: DATABASE,
    lock: "gateway.sqlite3.lock",
    // `aGat`.
    application_id: 0x6147_6174,
    version: REGISTRY_VERSION,
    tables: TABLES,
    upgrades: &[Upgrade { from: 1, to: 2, sql: TO_2 }],
    durable: true,
};

const COLUMNS: &str =
    "name, upstream_url, endpoint, enabled, state, state_reason, state_since, check_frequency_minutes,
    created_at, updated_at, check_started_at, last_check_at, last_success_at, next_due_at, failures, last_error,
    (SELECT snapshot_hash FROM mcp_snapshots WHERE id = approved_id),
    (SELECT snapshot_hash FROM mcp_snapshots WHERE id = latest_id), managed_by, version, config_json";

/// The registry in a directory of the gateway.
#[derive(Debug)]
pub struct SqliteRegistry(pub(super) Db);

impl SqliteRegistry {
    /// Opens the registry in a directory, or makes an empty one.
    ///
    /// # Errors
    /// [`DbError`].
    pub fn open(dir: &Path) -> Result<Self, DbError> {
        Ok(Self(Db::open(dir, REGISTRY, PATIENCE)?))
    }

    fn error(&self) -> impl Fn(rusqlite::Error) -> DbError + '_ {
        |e| match e {
            // A word that no version has written.
            rusqlite::Error::FromSqlConversionFailure(..) => self.0.damaged(e.to_string()),
            e => self.0.error(e),
        }
    }

    /// Does something as a whole or not at all.
    fn whole<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>) -> Result<T, DbError> {
        let done = || {
            let t = self.0.write().transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&t)?;
            t.commit().map(|()| result)
        };
        let done = done();
        done.map_err(|e| self.error()(e))
    }
}

impl Registry for SqliteRegistry {
    fn services(&self) -> Result<Vec<ServiceRow>, DbError> {
        let sql = format!("SELECT {COLUMNS} FROM mcp_services WHERE deleted_at IS NULL ORDER BY name");
        all(self.0.read(), &sql, [], service).map_err(self.error())
    }

    fn adopt(&mut self, declared: &[Declared], actor: &str, now: WallTime) -> Result<Adopted, DbError> {
        let at = now.to_string();
        self.whole(|t| {
            let mut adopted = Adopted::default();
            for d in declared {
                let known = t
                    .query_row(
                        "SELECT upstream_url, endpoint, state, check_frequency_minutes, deleted_at IS NOT NULL, config_json
                         FROM mcp_services WHERE name = ?1",
                        [&d.name],
                        |r| {
                            Ok((
                                r.get::<_, String>(0)?,
                                r.get::<_, String>(1)?,
                                word(r, 2)?,
                                r.get::<_, u32>(3)?,
                                r.get::<_, bool>(4)?,
                                r.get::<_, Option<String>>(5)?,
                            ))
                        },
                    )
                    .optional()?;
                let state = match &known {
                    _ if !d.enabled => State::DisabledAdmin,
                    Some((_, endpoint, state, _, false, _))
                        if *endpoint == d.endpoint && *state != State::DisabledAdmin =>
                    {
                        *state
                    }
                    _ => State::Pending,
                };
                let same = known.as_ref().is_some_and(|(url, endpoint, old, minutes, deleted, made)| {
                    let place = *url == d.upstream_url && *endpoint == d.endpoint && *made == d.made;
                    place && *old == state && *minutes == d.check_frequency_minutes && !deleted
                });
                if same {
                    continue;
                }
                t.execute(
                    "INSERT INTO mcp_services (name, upstream_url, enabled, check_frequency_minutes, created_at, updated_at,
                                               endpoint, state, state_since, managed_by, config_json)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?5, ?8, ?9)
                     ON CONFLICT (name) DO UPDATE SET
                         upstream_url = ?2, enabled = ?3, check_frequency_minutes = ?4, updated_at = ?5, endpoint = ?6,
                         state_since = iif(state = ?7, state_since, ?5),
                         state_reason = iif(state = ?7, state_reason, NULL),
                         next_due_at = iif(endpoint = ?6, next_due_at, NULL), state = ?7, deleted_at = NULL,
                         managed_by = ?8, config_json = ?9, version = version + 1",
                    params![
                        d.name,
                        d.upstream_url,
                        state == State::Enabled,
                        d.check_frequency_minutes,
                        at,
                        d.endpoint,
                        state.as_str(),
                        if d.made.is_some() { ManagedBy::Api } else { ManagedBy::File }.as_str(),
                        d.made
                    ],
                )?;
                let is_new = known.is_none_or(|(.., deleted, _)| deleted);
                let action = if is_new { "service_added" } else { "service_changed" };
                let details = json!({"name": d.name, "state": state, "upstream_url": d.upstream_url});
                note(t, &at, actor, action, &details)?;
                if is_new { &mut adopted.added } else { &mut adopted.changed }.push(d.name.clone());
            }
            let names: Vec<String> =
                all(t, "SELECT name FROM mcp_services WHERE deleted_at IS NULL ORDER BY name", [], |r| r.get(0))?;
            for name in names.into_iter().filter(|name| declared.iter().all(|d| d.name != *name)) {
                t.execute("UPDATE mcp_services SET deleted_at = ?2, enabled = 0 WHERE name = ?1", params![name, at])?;
                note(t, &at, actor, "service_removed", &json!({"name": name}))?;
                adopted.removed.push(name);
            }
            Ok(adopted)
        })
    }

    fn touch(&mut self) -> Result<(), DbError> {
        self.whole(|t| {
            let version: i64 = t.query_row("PRAGMA user_version", [], |row| row.get(0))?;
            t.pragma_update(None, "user_version", version)?;
            Ok(())
        })
    }

    fn turn(
        &mut self,
        name: &str,
        state: State,
        reason: Option<&str>,
        actor: &str,
        now: WallTime,
    ) -> Result<bool, DbError> {
        let at = now.to_string();
        self.whole(|t| {
            let turned = t.execute(
                "UPDATE mcp_services SET state = ?2, enabled = ?3, state_reason = ?4, state_since = ?5, updated_at = ?5,
                     version = version + 1
                 WHERE name = ?1 AND deleted_at IS NULL AND (state <> ?2 OR state_reason IS NOT ?4)",
                params![name, state.as_str(), state == State::Enabled, reason, at],
            )?;
            if turned > 0 {
                note(t, &at, actor, "route_state", &json!({"name": name, "reason": reason, "state": state}))?;
            }
            Ok(turned > 0)
        })
    }

    fn check_begins(&mut self, name: &str, now: WallTime) -> Result<(), DbError> {
        self.whole(|t| {
            t.execute("UPDATE mcp_services SET check_started_at = ?2 WHERE name = ?1", params![name, now.to_string()])
        })
        .map(|_| ())
    }

    fn check_dropped(&mut self, name: &str, now: WallTime) -> Result<(), DbError> {
        let sql = "UPDATE mcp_services SET check_started_at = NULL, next_due_at = ?2 WHERE name = ?1";
        self.whole(|t| t.execute(sql, params![name, now.to_string()])).map(|_| ())
    }

    fn check_ends(&mut self, name: &str, checked: &Checked, now: WallTime) -> Result<(), DbError> {
        let at = now.to_string();
        self.whole(|t| {
            let begun = t
                .query_row("SELECT id, check_started_at FROM mcp_services WHERE name = ?1", [name], |r| {
                    Ok((r.get::<_, i64>(0)?, r.get::<_, Option<String>>(1)?))
                })
                .optional()?;
            let Some((service, started)) = begun else { return Ok(()) };
            let snapshot = checked.snapshot.as_ref().map(|s| keep(t, service, s, &at)).transpose()?;
            t.execute(
                "INSERT INTO checks (service_id, started_at, ms, outcome, reason, snapshot_id)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    service,
                    started.as_ref().unwrap_or(&at),
                    checked.ms as i64,
                    checked.found.as_str(),
                    checked.reason,
                    snapshot
                ],
            )?;
            let whole = checked.found.is_whole();
            t.execute(
                "UPDATE mcp_services SET check_started_at = NULL, last_check_at = ?2,
                     last_success_at = iif(?3, ?2, last_success_at), failures = iif(?3, 0, failures + 1),
                     last_error = iif(?3, NULL, ?4), next_due_at = ?5
                 WHERE id = ?1",
                params![service, at, whole, checked.reason, checked.next_due.map(|t| t.to_string())],
            )?;
            t.execute(
                "DELETE FROM checks WHERE service_id = ?1 AND id <= (
                     SELECT id FROM checks WHERE service_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                params![service, CHECKS],
            )?;
            // What others repeat, and what the service stands on, stays.
            t.execute(
                "DELETE FROM mcp_snapshots WHERE service_id = ?1 AND id <= (
                     SELECT id FROM mcp_snapshots WHERE service_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)
                 AND NOT EXISTS (SELECT 1 FROM mcp_snapshots AS later WHERE later.first_id = mcp_snapshots.id)
                 AND NOT EXISTS (SELECT 1 FROM mcp_services WHERE approved_id = mcp_snapshots.id OR latest_id = mcp_snapshots.id)",
                params![service, SNAPSHOTS],
            )?;
            Ok(())
        })
    }

    fn due(&mut self, name: &str, next: Option<WallTime>) -> Result<(), DbError> {
        let next = next.map(|t| t.to_string());
        self.whole(|t| t.execute("UPDATE mcp_services SET next_due_at = ?2 WHERE name = ?1", params![name, next]))
            .map(|_| ())
    }

    fn copier(&self) -> Copier {
        Box::new(self.0.copier())
    }

    fn snapshots(&self, name: &str, below: Option<i64>, most: u32) -> Result<Vec<SnapshotRow>, DbError> {
        let sql = "SELECT s.id, snapshot_hash, approved_status, s.created_at
                   FROM mcp_snapshots AS s JOIN mcp_services AS m ON m.id = s.service_id
                   WHERE m.name = ?1 AND s.id < ?2 ORDER BY s.id DESC LIMIT ?3";
        let row = |r: &Row<'_>| {
            Ok(SnapshotRow { id: r.get(0)?, hash: r.get(1)?, approved: word(r, 2)?, created_at: r.get(3)? })
        };
        all(self.0.read(), sql, params![name, below.unwrap_or(i64::MAX), most], row).map_err(self.error())
    }

    fn snapshot_json(&self, id: i64) -> Result<Option<String>, DbError> {
        let sql = "SELECT coalesce(s.snapshot_json, f.snapshot_json) FROM mcp_snapshots AS s
                   LEFT JOIN mcp_snapshots AS f ON f.id = s.first_id WHERE s.id = ?1";
        self.0.read().query_row(sql, [id], |r| r.get(0)).optional().map_err(self.error())
    }

    fn approve(&mut self, name: &str, hash: &str, actor: &str, now: WallTime) -> Result<bool, DbError> {
        let at = now.to_string();
        self.whole(|t| {
            let latest = t
                .query_row(
                    "SELECT s.id FROM mcp_snapshots AS s JOIN mcp_services AS m ON m.latest_id = s.id
                     WHERE m.name = ?1 AND m.deleted_at IS NULL AND s.snapshot_hash = ?2",
                    params![name, hash],
                    |r| r.get::<_, i64>(0),
                )
                .optional()?;
            let Some(id) = latest else { return Ok(false) };
            t.execute(
                "UPDATE mcp_snapshots SET approved_status = ?2 WHERE id = ?1",
                params![id, Approved::ByUser.as_str()],
            )?;
            t.execute(
                "UPDATE mcp_services SET approved_id = ?2, updated_at = ?3, version = version + 1 WHERE name = ?1",
                params![name, id, at],
            )?;
            note(t, &at, actor, "snapshot_approved", &json!({"name": name, "snapshot_hash": hash}))?;
            Ok(true)
        })
    }

    fn audit(&self, below: Option<i64>, most: u32) -> Result<Vec<AuditRow>, DbError> {
        let sql =
            "SELECT id, ts, actor, action, details_json, hash FROM audit_log WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
        let row = |r: &Row<'_>| {
            Ok(AuditRow {
                id: r.get(0)?,
                ts: r.get(1)?,
                actor: r.get(2)?,
                action: r.get(3)?,
                details: serde_json::from_str(&r.get::<_, String>(4)?).unwrap_or_default(),
                hash: r.get(5)?,
            })
        };
        all(self.0.read(), sql, params![below.unwrap_or(i64::MAX), most], row).map_err(self.error())
    }

    fn note(&mut self, actor: &str, action: &str, details: &Value, now: WallTime) -> Result<(), DbError> {
        self.whole(|t| note(t, &now.to_string(), actor, action, details))
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, DbError> {
        let sql = "SELECT name, role, digest, created_at FROM api_tokens ORDER BY name";
        let row =
            |r: &Row<'_>| Ok(TokenRow { name: r.get(0)?, role: r.get(1)?, digest: r.get(2)?, created_at: r.get(3)? });
        all(self.0.read(), sql, [], row).map_err(self.error())
    }

    fn add_token(&mut self, token: &TokenRow, actor: &str, now: WallTime) -> Result<bool, DbError> {
        self.whole(|t| {
            let added = t.execute(
                "INSERT INTO api_tokens (name, role, digest, created_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                params![token.name, token.role, token.digest, token.created_at],
            )?;
            if added > 0 {
                let details = json!({"name": token.name, "role": token.role});
                note(t, &now.to_string(), actor, "token_created", &details)?;
            }
            Ok(added > 0)
        })
    }

    fn remove_token(&mut self, name: &str, actor: &str, now: WallTime) -> Result<bool, DbError> {
        self.whole(|t| {
            let removed = t.execute("DELETE FROM api_tokens WHERE name = ?1", [name])?;
            if removed > 0 {
                note(t, &now.to_string(), actor, "token_revoked", &json!({"name": name}))?;
            }
            Ok(removed > 0)
        })
    }

    fn check(&self) -> Result<u64, DbError> {
        self.0.check()?;
        let sql = "SELECT id, ts, actor, action, details_json, prev_hash, hash FROM audit_log ORDER BY id";
        let mut statement = self.0.read().prepare(sql).map_err(self.error())?;
        let mut rows = statement.query([]).map_err(self.error())?;
        let (mut lines, mut head) = (0, String::new());
        while let Some(row) = rows.next().map_err(self.error())? {
            let read = || -> rusqlite::Result<_> {
                let details: String = row.get(4)?;
                let (ts, actor, action): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(3)?);
                Ok((hash(&ts, &actor, &action, &details, &head), row.get::<_, String>(5)?, row.get::<_, String>(6)?))
            };
            let (computed, prev, written) = read().map_err(self.error())?;
            lines += 1;
            if prev != head || written != computed {
                return Err(self.0.damaged(format!("line {lines} of what was done is not the one that was written")));
            }
            head = written;
        }
        Ok(lines)
    }
}

fn all<T>(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map(params, row)?.collect()
}

/// Reads a word of a vocabulary.
fn word<T: Vocabulary>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let text: String = row.get(at)?;
    T::of(text.as_bytes()).ok_or_else(|| {
        let why = format!("{text:?} is no word that is written there").into();
        rusqlite::Error::FromSqlConversionFailure(at, rusqlite::types::Type::Text, why)
    })
}

fn service(r: &Row<'_>) -> rusqlite::Result<ServiceRow> {
    Ok(ServiceRow {
        name: r.get(0)?,
        upstream_url: r.get(1)?,
        endpoint: r.get(2)?,
        enabled: r.get(3)?,
        state: word(r, 4)?,
        reason: r.get(5)?,
        since: r.get(6)?,
        check_frequency_minutes: r.get(7)?,
        created_at: r.get(8)?,
        updated_at: r.get(9)?,
        check_started_at: r.get(10)?,
        last_check_at: r.get(11)?,
        last_success_at: r.get(12)?,
        next_due_at: r.get(13)?,
        failures: r.get(14)?,
        last_error: r.get(15)?,
        approved: r.get(16)?,
        latest: r.get(17)?,
        managed_by: word(r, 18)?,
        version: r.get(19)?,
        made: r.get(20)?,
    })
}

/// Keeps a snapshot; its text only where the service has no snapshot with the same.
fn keep(t: &Transaction<'_>, service: i64, s: &NewSnapshot, at: &str) -> rusqlite::Result<i64> {
    let first: Option<i64> = t
        .query_row(
            "SELECT id FROM mcp_snapshots WHERE service_id = ?1 AND snapshot_hash = ?2 AND snapshot_json = ?3",
            params![service, s.hash, s.json],
            |r| r.get(0),
        )
        .optional()?;
    t.execute(
        "INSERT INTO mcp_snapshots (service_id, snapshot_json, snapshot_hash, approved_status, created_at, first_id)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![service, first.is_none().then_some(&s.json), s.hash, s.approved.as_str(), at, first],
    )?;
    let id = t.last_insert_rowid();
    t.execute(
        "UPDATE mcp_services SET latest_id = ?2, approved_id = iif(?3, ?2, approved_id) WHERE id = ?1",
        params![service, id, s.approved != Approved::Not],
    )?;
    Ok(id)
}

/// The hash of a line of what was done: over its members and the hash of the line before it, in canonical form.
fn hash(ts: &str, actor: &str, action: &str, details: &str, prev: &str) -> String {
    let line = json!({"action": action, "actor": actor, "details_json": details, "prev_hash": prev, "ts": ts});
    // These are texts: they always have a canonical form.
    hex::encode(canon::sha256(&canon::to_vec(&line).unwrap_or_default()))
}

/// Says what was done.
fn note(t: &Transaction<'_>, at: &str, actor: &str, action: &str, details: &Value) -> rusqlite::Result<()> {
    let prev: Option<String> =
        t.query_row("SELECT hash FROM audit_log ORDER BY id DESC LIMIT 1", [], |r| r.get(0)).optional()?;
    let (prev, details) = (prev.unwrap_or_default(), details.to_string());
    t.execute(
        "INSERT INTO audit_log (ts, actor, action, details_json, prev_hash, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![at, actor, action, details, prev, hash(at, actor, action, &details, &prev)],
    )?;
    Ok(())
}
