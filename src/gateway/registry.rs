//! What a gateway knows of its services: how each stands, what was seen of it, what was done.
//!
//! The registry is not evidence. What was decided about surfaces is in the audit directory of each service, and which
//! services there are is in the configuration: from both the registry can be made again.

mod sqlite;

pub use sqlite::{DATABASE, REGISTRY_VERSION, SqliteRegistry};

use crate::{
    db::DbError,
    model::{WallTime, words::vocabulary},
};
use serde::Serialize;

vocabulary! {
    /// How a route stands.
    State {
        /// It is wanted and approved: requests pass.
        Enabled = "enabled",
        /// There is no complete snapshot of it that is approved yet.
        Pending = "pending",
        /// It offers something that is not approved.
        DisabledDrift = "disabled_drift",
        /// A person does not want it.
        DisabledAdmin = "disabled_admin",
    }
}

vocabulary! {
    /// Who approved a snapshot.
    Approved {
        /// A person, or the first use that the configuration allows.
        ByUser = "user_approved",
        /// Nobody had to: it is what was approved before.
        BySystem = "system_approved",
        /// Nobody.
        Not = "unapproved",
    }
}

vocabulary! {
    /// What a check came to.
    Found {
        /// It is what was approved.
        Identical = "identical",
        /// It differs in what is tolerated.
        Equivalent = "equivalent",
        /// It differs.
        Changed = "changed",
        /// Not all of it could be seen.
        Incomplete = "incomplete",
        /// It could not be asked.
        Unreachable = "unreachable",
    }
}

impl Found {
    /// Whether the server was seen whole.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Identical | Self::Equivalent | Self::Changed)
    }
}

vocabulary! {
    /// Who says what a service is.
    ManagedBy {
        /// The configuration.
        File = "file",
        /// The API.
        Api = "api",
    }
}

/// A service as the configuration or the API declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// Its URL without what may be a secret.
    pub upstream_url: String,
    /// The digest of its URL, with all of it.
    pub endpoint: String,
    /// Whether it is wanted.
    pub enabled: bool,
    /// How often it is looked at; 0: never.
    pub check_frequency_minutes: u32,
    /// What the API made it of; nothing for a service of the configuration.
    pub made: Option<String>,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceRow {
    /// Its name.
    pub name: String,
    /// Its URL without what may be a secret.
    pub upstream_url: String,
    /// The digest of its URL, with all of it.
    pub endpoint: String,
    /// Whether requests pass.
    pub enabled: bool,
    /// How its route stands.
    pub state: State,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    pub since: String,
    /// How often it is looked at; 0: never.
    pub check_frequency_minutes: u32,
    /// When it was made.
    pub created_at: String,
    /// When anything of it changed last.
    pub updated_at: String,
    /// When a check began that has not ended.
    pub check_started_at: Option<String>,
    /// When it was looked at last.
    pub last_check_at: Option<String>,
    /// When it was seen whole last.
    pub last_success_at: Option<String>,
    /// When it is looked at next.
    pub next_due_at: Option<String>,
    /// Checks in a row that did not see it whole.
    pub failures: u32,
    /// What the last one of these said.
    pub last_error: Option<String>,
    /// The hash of the snapshot that is approved.
    pub approved: Option<String>,
    /// The hash of the latest snapshot.
    pub latest: Option<String>,
    /// Who says what it is.
    pub managed_by: ManagedBy,
    /// Counts what changed of it, and how it stood.
    pub version: i64,
    /// What the API made it of.
    #[serde(skip)]
    pub made: Option<String>,
}

/// Checks in a row without an answer after which a service counts as unreachable.
const UNREACHABLE: u32 = 3;

impl ServiceRow {
    /// How its checks went, in a word: that disables nothing.
    #[must_use]
    pub const fn health(&self) -> &'static str {
        match self.failures {
            0 if self.last_check_at.is_none() => "unknown",
            0 => "ok",
            n if n < UNREACHABLE => "failing",
            _ => "unreachable",
        }
    }

    /// As it was declared last.
    #[must_use]
    pub fn declared(&self) -> Declared {
        Declared {
            name: self.name.clone(),
            upstream_url: self.upstream_url.clone(),
            endpoint: self.endpoint.clone(),
            enabled: self.state != State::DisabledAdmin,
            check_frequency_minutes: self.check_frequency_minutes,
            made: self.made.clone(),
        }
    }
}

/// A snapshot to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    /// All that the server offers, in canonical form.
    pub json: String,
    /// The 64 hex digits of its root.
    pub hash: String,
    /// Who approved it.
    pub approved: Approved,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotRow {
    /// Its number.
    pub id: i64,
    /// The 64 hex digits of its root.
    pub hash: String,
    /// Who approved it.
    pub approved: Approved,
    /// When it was taken.
    pub created_at: String,
}

/// What a check came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// What it found.
    pub found: Found,
    /// Why, where it did not see the server whole.
    pub reason: Option<String>,
    /// How long it took.
    pub ms: u64,
    /// What it saw.
    pub snapshot: Option<NewSnapshot>,
    /// When the next one is due.
    pub next_due: Option<WallTime>,
}

/// A token for the API. What it is, nobody keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Its name: that of who has it.
    pub name: String,
    /// What it is good for.
    pub role: String,
    /// Its SHA-256.
    pub digest: [u8; 32],
    /// When it was made.
    pub created_at: String,
}

/// A line of what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRow {
    /// Its number.
    pub id: i64,
    /// When.
    pub ts: String,
    /// Who: `system`, `config`, or `user:NAME`.
    pub actor: String,
    /// What.
    pub action: String,
    /// More of it.
    pub details: serde_json::Value,
    /// The hash of the line, which is over the one before it, too.
    pub hash: String,
}

/// What the configuration changed about the services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Services that are new.
    pub added: Vec<String>,
    /// Services that are other than they were.
    pub changed: Vec<String>,
    /// Services that are gone.
    pub removed: Vec<String>,
}

/// Copies a registry to a new file, in whatever thread.
pub type Copier = Box<dyn FnOnce(&std::path::Path) -> Result<(), DbError> + Send>;

/// Where a gateway keeps what it knows. Every call is done as a whole or not at all.
pub trait Registry: Send {
    /// The services that there are, by name.
    ///
    /// # Errors
    /// [`DbError`].
    fn services(&self) -> Result<Vec<ServiceRow>, DbError>;

    /// One of them.
    ///
    /// # Errors
    /// [`DbError`].
    fn service(&self, name: &str) -> Result<Option<ServiceRow>, DbError> {
        Ok(self.services()?.into_iter().find(|s| s.name == name))
    }

    /// Makes the services those that the configuration declares. One that is new, has another endpoint, or is wanted again
    /// is [`Pending`](State::Pending); one that is not wanted is [`DisabledAdmin`](State::DisabledAdmin); all others stay
    /// as they are.
    ///
    /// # Errors
    /// [`DbError`].
    fn adopt(&mut self, declared: &[Declared], actor: &str, now: WallTime) -> Result<Adopted, DbError>;

    /// Has a route stand otherwise; whether it did not stand so before.
    ///
    /// # Errors
    /// [`DbError`].
    fn turn(
        &mut self,
        name: &str,
        state: State,
        reason: Option<&str>,
        actor: &str,
        now: WallTime,
    ) -> Result<bool, DbError>;

    /// A check begins. If it does not end, it is the first one after the next start.
    ///
    /// # Errors
    /// [`DbError`].
    fn check_begins(&mut self, name: &str, now: WallTime) -> Result<(), DbError>;

    /// A check that had begun is given up, and is due again: nothing of it is known.
    ///
    /// # Errors
    /// [`DbError`].
    fn check_dropped(&mut self, name: &str, now: WallTime) -> Result<(), DbError>;

    /// A check has ended.
    ///
    /// # Errors
    /// [`DbError`].
    fn check_ends(&mut self, name: &str, checked: &Checked, now: WallTime) -> Result<(), DbError>;

    /// When the next check of a service is due.
    ///
    /// # Errors
    /// [`DbError`].
    fn due(&mut self, name: &str, next: Option<WallTime>) -> Result<(), DbError>;

    /// Writes something that changes nothing: whether that can be done.
    ///
    /// # Errors
    /// [`DbError`].
    fn touch(&mut self) -> Result<(), DbError>;

    /// Copies all of it to a new file, while it is used.
    fn copier(&self) -> Copier;

    /// The latest snapshots of a service, the newest first; only those below a number, if one is given.
    ///
    /// # Errors
    /// [`DbError`].
    fn snapshots(&self, name: &str, below: Option<i64>, most: u32) -> Result<Vec<SnapshotRow>, DbError>;

    /// The text of a snapshot.
    ///
    /// # Errors
    /// [`DbError`].
    fn snapshot_json(&self, id: i64) -> Result<Option<String>, DbError>;

    /// The text of the latest snapshot of a service.
    ///
    /// # Errors
    /// [`DbError`].
    fn latest_json(&self, name: &str) -> Result<Option<String>, DbError> {
        match self.snapshots(name, None, 1)?.first() {
            Some(latest) => self.snapshot_json(latest.id),
            None => Ok(None),
        }
    }

    /// The latest snapshot of a service is approved by a person, if it is the one with this hash; whether it is.
    ///
    /// # Errors
    /// [`DbError`].
    fn approve(&mut self, name: &str, hash: &str, actor: &str, now: WallTime) -> Result<bool, DbError>;

    /// What was done, the newest first; only lines below a number, if one is given.
    ///
    /// # Errors
    /// [`DbError`].
    fn audit(&self, below: Option<i64>, most: u32) -> Result<Vec<AuditRow>, DbError>;

    /// Says what was done.
    ///
    /// # Errors
    /// [`DbError`].
    fn note(&mut self, actor: &str, action: &str, details: &serde_json::Value, now: WallTime) -> Result<(), DbError>;

    /// The tokens for the API, by name.
    ///
    /// # Errors
    /// [`DbError`].
    fn tokens(&self) -> Result<Vec<TokenRow>, DbError>;

    /// Keeps another token; whether its name was free.
    ///
    /// # Errors
    /// [`DbError`].
    fn add_token(&mut self, token: &TokenRow, actor: &str, now: WallTime) -> Result<bool, DbError>;

    /// Takes a token away; whether there was one of this name.
    ///
    /// # Errors
    /// [`DbError`].
    fn remove_token(&mut self, name: &str, actor: &str, now: WallTime) -> Result<bool, DbError>;

    /// Whether the whole of it reads, and what was done is the chain that was written; the number of its lines.
    ///
    /// # Errors
    /// [`DbError::Damaged`] says what is wrong.
    fn check(&self) -> Result<u64, DbError>;
}

#[cfg(test)]
mod contract;
