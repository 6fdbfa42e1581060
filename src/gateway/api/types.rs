//! What the API takes and gives, as the OpenAPI document describes it.

use super::{auth::Role, problem::Problem};
use crate::gateway::{
    config::{COMMAND, Service},
    registry::{AuditRow, ServiceRow, SnapshotRow, TokenRow},
    spec::{Credential, FirstWord, ProfileWord, Spec},
};
use crate::model::{Profile, surface::First};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What becomes of a service that cannot be seen whole when it is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnUnreachable {
    /// It is not made.
    #[default]
    Refuse,
    /// It is made, and waits.
    Pending,
}

/// A service to make.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewService {
    /// Its name, which is the first part of its path, and stays.
    #[schema(example = "search", pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    /// The MCP endpoint. It has no query: that could be a secret.
    #[schema(example = "https://mcp.example.com/mcp", max_length = 2048)]
    pub upstream_url: String,
    /// Whether it is wanted. One that is not is not looked at.
    #[serde(default = "yes")]
    #[schema(default = true)]
    pub enabled: bool,
    /// Minutes between checks: 0, or 5 to 43200; what the configuration says without it.
    #[schema(maximum = 43200)]
    pub check_frequency_minutes: Option<u32>,
    /// Credentials for it, by header.
    #[serde(default)]
    pub headers: BTreeMap<String, Credential>,
    /// Whether requests of clients get the headers, too, in place of what they have.
    #[serde(default)]
    pub inject: bool,
    /// Whether a policy is enforced.
    pub profile: Option<ProfileWord>,
    /// The policy, by its name in `policies` of the configuration.
    pub policy: Option<String>,
    /// What is done while nothing was decided about it.
    pub surface_first: Option<FirstWord>,
    /// What becomes of it if it cannot be seen whole now.
    #[serde(default)]
    #[schema(inline, default = "refuse")]
    pub on_unreachable: OnUnreachable,
}

const fn yes() -> bool {
    true
}

impl NewService {
    /// What the registry keeps of it.
    #[must_use]
    pub fn spec(self) -> Spec {
        Spec {
            upstream_url: self.upstream_url,
            enabled: self.enabled,
            check_frequency_minutes: self.check_frequency_minutes,
            headers: self.headers,
            inject: self.inject,
            profile: self.profile,
            policy: self.policy,
            surface_first: self.surface_first,
        }
    }
}

/// What of a service is to be other (RFC 7396): null takes a member away.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes a merge patch; what is read is the value itself")]
pub struct ServicePatch {
    /// Another MCP endpoint: the route is closed until what is there is approved.
    #[schema(example = "https://mcp.example.com/mcp", max_length = 2048)]
    upstream_url: Option<String>,
    /// Whether it is wanted.
    enabled: Option<bool>,
    /// Minutes between checks: 0, or 5 to 43200.
    #[schema(maximum = 43200)]
    check_frequency_minutes: Option<u32>,
    /// Credentials for it, by header; null takes one away.
    #[schema(value_type = Option<BTreeMap<String, Object>>)]
    headers: Option<BTreeMap<String, Option<Credential>>>,
    /// Whether requests of clients get the headers, too.
    inject: Option<bool>,
    /// Whether a policy is enforced.
    profile: Option<ProfileWord>,
    /// The policy, by its name.
    policy: Option<String>,
    /// What is done while nothing was decided about it.
    surface_first: Option<FirstWord>,
}

/// A credential, as it is shown: where it is, never what it is.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CredentialView {
    /// `env:NAME` or `file:PATH`.
    #[schema(example = "env:SEARCH_TOKEN")]
    pub from: String,
    /// Whether it is there.
    pub set: bool,
}

/// A service.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// Where clients find it.
    #[schema(example = "/search/mcp")]
    pub path: String,
    /// Its URL without what may be a secret; `command:` and the name of the program, if a command starts it.
    pub upstream_url: String,
    /// Whether requests pass.
    pub enabled: bool,
    /// Minutes between checks; 0: it is looked at until it was seen whole, and then no more.
    pub check_frequency_minutes: u32,
    /// When it was made (RFC 3339).
    pub created_at: String,
    /// When anything of it changed last.
    pub updated_at: String,
    /// How the gateway reaches it: `http`, `command`.
    #[schema(example = "http")]
    pub kind: &'static str,
    /// How its route stands: `enabled`, `pending`, `disabled_drift`, `disabled_admin`.
    pub state: &'static str,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    pub since: String,
    /// Whether a policy is enforced.
    pub profile: Option<&'static str>,
    /// What is done while nothing was decided about it.
    pub surface_first: Option<&'static str>,
    /// Who says what it is: `file`, `api`.
    pub managed_by: &'static str,
    /// Counts what changed of it; the ETag.
    pub version: i64,
    /// The hash of the snapshot that is approved.
    pub approved: Option<String>,
    /// The hash of the latest snapshot.
    pub latest: Option<String>,
    /// How its checks went: `unknown`, `ok`, `failing`, `unreachable`.
    pub health: &'static str,
    /// Whether it is looked at just now.
    pub checking: bool,
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
    /// Credentials for it, by header.
    pub headers: BTreeMap<String, CredentialView>,
    /// Whether requests of clients get the headers, too.
    pub inject: bool,
}

impl ServiceView {
    /// A service as the registry and the configuration have it.
    #[must_use]
    pub fn of(row: ServiceRow, service: Option<&Service>) -> Self {
        let shown = |(name, reference): &(http::HeaderName, crate::gateway::credential::Reference)| {
            let view = CredentialView { from: reference.place.to_string(), set: reference.header().is_ok() };
            (name.to_string(), view)
        };
        let kind = if row.upstream_url.starts_with(COMMAND) { "command" } else { "http" };
        Self {
            path: format!("/{}/mcp", row.name),
            health: row.health(),
            checking: row.check_started_at.is_some(),
            name: row.name,
            upstream_url: row.upstream_url,
            enabled: row.enabled,
            check_frequency_minutes: row.check_frequency_minutes,
            created_at: row.created_at,
            updated_at: row.updated_at,
            kind,
            state: row.state.as_str(),
            reason: row.reason,
            since: row.since,
            profile: service.map(|s| match s.profile {
                Profile::Guard => "guard",
                Profile::Audit => "audit",
            }),
            surface_first: service.map(|s| match s.first {
                First::Tofu => "tofu",
                First::Approve => "approve",
            }),
            managed_by: row.managed_by.as_str(),
            version: row.version,
            approved: row.approved,
            latest: row.latest,
            last_check_at: row.last_check_at,
            last_success_at: row.last_success_at,
            next_due_at: row.next_due_at,
            failures: row.failures,
            last_error: row.last_error,
            headers: service.map(|s| s.headers.iter().map(shown).collect()).unwrap_or_default(),
            inject: service.is_some_and(|s| s.inject),
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// What asks for the next one; null on the last page.
    pub next_cursor: Option<String>,
}

/// What was asked of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// How many.
    pub limit: u32,
    /// After which.
    pub cursor: Option<String>,
}

impl Asked {
    /// The number that a cursor is.
    ///
    /// # Errors
    /// It is none.
    pub fn below(&self) -> Result<Option<i64>, Problem> {
        let number = |cursor: &String| cursor.parse().ok().filter(|n| *n > 0);
        match &self.cursor {
            None => Ok(None),
            Some(cursor) => number(cursor).map(Some).ok_or_else(|| Problem::bad("cursor is none that this list gave")),
        }
    }
}

/// A snapshot of what a service offers.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SnapshotView {
    /// Its number.
    pub id: i64,
    /// The 64 hex digits of its root.
    pub snapshot_hash: String,
    /// `user_approved`, `system_approved` or `unapproved`.
    pub approved_status: &'static str,
    /// When it was taken.
    pub created_at: String,
}

impl From<SnapshotRow> for SnapshotView {
    fn from(row: SnapshotRow) -> Self {
        let SnapshotRow { id, hash, approved, created_at } = row;
        Self { id, snapshot_hash: hash, approved_status: approved.as_str(), created_at }
    }
}

/// A snapshot with all that was seen.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WholeSnapshot {
    /// What is known of it.
    #[serde(flatten)]
    pub of: SnapshotView,
    /// What was seen, as docs/formats.md describes a surface.
    #[schema(value_type = Object)]
    pub snapshot: Value,
}

/// A change of one item.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChangeView {
    /// What kind of change it is.
    pub kind: &'static str,
    /// How much it matters: `info`, `low`, `medium`, `high`, `critical`.
    pub severity: &'static str,
    /// Where; null for what is of the server as a whole.
    #[schema(value_type = Option<String>)]
    pub facet: Option<String>,
    /// The items.
    pub names: Vec<String>,
    /// JSON pointer into each.
    pub path: String,
    /// JSON text of what was there.
    pub before: Option<String>,
    /// JSON text of what is there now.
    pub after: Option<String>,
}

/// How an item stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ItemView {
    /// As it is named where it is decided about, as in `tools/search`.
    pub item: String,
    /// Its hash.
    pub hash: String,
    /// `approved`, `first_use`, `new`, `changed`, `blocked`, `ambiguous`, …
    pub state: &'static str,
    /// The decision that it rests on.
    pub approval_id: Option<String>,
}

/// What differs between two snapshots, or between one and what is approved.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DiffView {
    /// The service.
    pub service: String,
    /// What it is compared with: `approved`, or the hash of a snapshot.
    pub from: String,
    /// The hash of the snapshot that is compared; the ETag.
    pub to: String,
    /// `identical`, `equivalent` or `changed`.
    pub outcome: &'static str,
    /// Changes; those that are the same for many items are one.
    pub groups: Vec<ChangeView>,
    /// How each item stands, where it is compared with what is approved.
    pub items: Vec<ItemView>,
    /// What takes the document of `from` to that of `to` (RFC 6902); null where there is no document of it.
    #[schema(value_type = Option<Vec<Object>>)]
    pub patch: Option<Value>,
}

/// A decision to take.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveBody {
    /// The items, as in `tools/search`; all that was seen without it.
    #[schema(max_items = 1000)]
    pub items: Option<Vec<String>>,
    /// Whether requests may pass after that.
    #[schema(default = true)]
    pub enable: Option<bool>,
    /// Why.
    #[schema(max_length = 1000)]
    pub reason: Option<String>,
    /// A decision that was signed elsewhere, as `assay surface approve --out` writes it: it is taken in place of one of ours.
    #[schema(max_length = 4_194_304)]
    pub approval: Option<String>,
}

/// Items to block.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockBody {
    /// The items, as in `tools/search`.
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<String>,
    /// Why.
    #[schema(max_length = 1000)]
    pub reason: Option<String>,
}

/// What a decision came to.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DecisionView {
    /// The decision; null where all of it was so already.
    pub approval_id: Option<String>,
    /// The service after it.
    pub service: ServiceView,
}

/// What a check came to.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CheckView {
    /// `identical`, `equivalent`, `changed`, `incomplete` or `unreachable`.
    pub outcome: &'static str,
    /// Why, where it is not what was approved.
    pub reason: Option<String>,
    /// How long it took.
    pub ms: u64,
    /// The hash of what was seen.
    pub snapshot_hash: Option<String>,
    /// The service after it.
    pub service: ServiceView,
}

/// A session that was recorded, or is.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionView {
    /// Its id, as evidence names it.
    pub session_id: String,
    /// Its short name, by which its pack is found.
    pub id: String,
    /// When it began.
    pub started_at: Option<String>,
    /// `live`, `sealing`, `complete`, `incomplete`, `ended`, `died`, `failed`, …
    pub state: &'static str,
    /// The client, as it names itself.
    pub client: String,
    /// The server, as it names itself.
    pub server: String,
    /// Calls.
    pub calls: Option<u64>,
    /// Calls that a guard refused.
    pub denied: Option<u64>,
    /// Calls that failed.
    pub failed: Option<u64>,
    /// Receipts.
    pub receipts: Option<u64>,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether it has a pack.
    pub packed: bool,
}

/// A token, as it is shown. What it is, nobody keeps.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct TokenView {
    /// Its name: that of who has it.
    pub name: String,
    /// What it is good for.
    #[schema(inline)]
    pub role: String,
    /// When it was made.
    pub created_at: String,
}

impl From<TokenRow> for TokenView {
    fn from(row: TokenRow) -> Self {
        Self { name: row.name, role: row.role, created_at: row.created_at }
    }
}

/// A token to make.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name: that of who gets it.
    #[schema(example = "alice", min_length = 1, max_length = 64)]
    pub name: String,
    /// What it is good for.
    pub role: Role,
}

/// A token that was made. It is shown this once.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct MadeToken {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// The token.
    pub token: String,
}

/// A line of what was done.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AuditView {
    /// Its number.
    pub id: i64,
    /// When.
    pub ts: String,
    /// Who: `system`, `config`, or `user:NAME`.
    pub actor: String,
    /// What.
    pub action: String,
    /// More of it.
    #[schema(value_type = Object)]
    pub details: Value,
    /// The hash of the line, which is over the one before it, too.
    pub hash: String,
}

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> Self {
        let AuditRow { id, ts, actor, action, details, hash } = row;
        Self { id, ts, actor, action, details, hash }
    }
}
