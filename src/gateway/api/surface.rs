//! What a service offers: seen, compared, decided about.

use super::{
    Answer, Api, Call, Paging,
    auth::{Role, Who},
    desk::{NotNow, Office},
    problem::{Problem, ProblemDocument},
    reply::{Reply, asked, bare, if_match, query},
    services::{row, spec_of, unknown, view},
    types::{
        ApproveBody, BlockBody, ChangeView, CheckView, DecisionView, DiffView, ItemView, Page, SnapshotView,
        WholeSnapshot,
    },
};
use crate::{
    approvals::{
        decide::{Refused, Wish},
        lockfile::named,
        store::StoreError,
        summary::{Summary, item_named},
    },
    gateway::{
        decisions::{self, Undecided},
        look::Measure,
        registry::{ManagedBy, ServiceRow, SnapshotRow, State as RouteState},
        spec::Spec,
    },
    model::{
        WallTime,
        surface::{Approval, Approver, Decision, Difference, Facet, Outcome, Snapshot},
    },
    operate::evidence,
    paths::AuditDir,
    surface::diff::{between, groups},
};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::spawn_blocking};

/// Snapshots of a service that are looked through for one.
const KEPT: u32 = 1100;
/// Items that one decision can name.
const MAX_ITEMS: usize = 1000;
/// Characters of a reason.
const MAX_REASON: usize = 1000;

impl From<Undecided> for Problem {
    fn from(e: Undecided) -> Self {
        let text = e.to_string();
        match e {
            Undecided::NotAnApprover(_) => Self::conflict("approver-key-required", text),
            Undecided::Key(_) => Self::failed(text),
            Undecided::Elsewhere(why) => Self::invalid_at("/approval", why),
            Undecided::Refused(refused) => match refused {
                Refused::Conflict { .. } | Refused::Store(StoreError::Conflict(_)) => Self::changed(text),
                Refused::Incomplete(_) | Refused::IncompleteList(_) => Self::conflict("incomplete", text),
                Refused::Ambiguous(_) => Self::conflict("ambiguous", text),
                Refused::NotSeen(_) | Refused::NotDecided(_) => Self::invalid_at("/items", text),
                Refused::Nothing => Self::conflict("nothing", text),
                Refused::Store(_) => Self::failed(text),
            },
        }
    }
}

/// A snapshot, and what it is judged by.
#[derive(Clone)]
pub struct Judged {
    /// The service.
    pub row: ServiceRow,
    /// The snapshot.
    pub of: SnapshotRow,
    /// Its document.
    pub document: String,
    /// By what it is judged.
    pub measure: Measure,
    /// The audit directory of the service.
    pub dir: AuditDir,
}

impl Judged {
    /// What was seen.
    pub fn snapshot(&self) -> Result<Snapshot, Problem> {
        Snapshot::read(self.document.as_bytes()).map_err(|e| Problem::failed(format!("snapshot {}: {e}", self.of.id)))
    }

    /// The same, if it was seen where the service is.
    fn snapshot_in_place(&self) -> Result<Snapshot, Problem> {
        let snapshot = self.snapshot()?;
        if snapshot.identity.endpoint != self.row.endpoint {
            let detail = "it has another URL since, and was not seen whole there";
            return Err(Problem::conflict("incomplete", detail));
        }
        Ok(snapshot)
    }
}

/// One of the snapshots of a service.
pub fn snapshot_of(office: &mut dyn Office, row: &ServiceRow, id: i64) -> Result<(SnapshotRow, String), Problem> {
    let missing = || Problem::not_found("the service has no snapshot of this number");
    let registry = office.registry();
    let found = registry.snapshots(&row.name, id.checked_add(1), 1)?.into_iter().find(|s| s.id == id);
    let found = found.ok_or_else(missing)?;
    let document = registry.snapshot_json(id)?.ok_or_else(missing)?;
    Ok((found, document))
}

/// The latest snapshot of a service, to be decided about.
pub fn latest(office: &mut dyn Office, name: &str) -> Result<Judged, Problem> {
    let row = row(office, name)?;
    let newest = office.registry().snapshots(name, None, 1)?.into_iter().next();
    let newest = newest.filter(|newest| Some(&newest.hash) == row.latest.as_ref());
    let incomplete = || Problem::conflict("incomplete", "there is no complete snapshot of it yet");
    let id = newest.ok_or_else(incomplete)?.id;
    judged(office, row, id)
}

fn judged(office: &mut dyn Office, row: ServiceRow, id: i64) -> Result<Judged, Problem> {
    let (of, document) = snapshot_of(office, &row, id)?;
    let approvers = office.config().admin.approvers.clone();
    let service = office.service(&row.name).ok_or_else(unknown)?;
    let measure = Measure::of(service, &approvers);
    let dir = AuditDir::at(evidence(office.data(), &row.name)).of_user();
    Ok(Judged { row, of, document, measure, dir })
}

/// Snapshots of a service.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/snapshots", tag = "surface", operation_id = "listSnapshots",
    params(("name" = String, Path, description = "its name"), Paging),
    responses((status = 200, description = "a page of them, the newest first", body = Page<SnapshotView>,
               headers(("Link" = String, description = "the next page, `rel=\"next\"`"))))
)]
pub async fn snapshots(call: Call) -> Answer {
    let Call { api, uri, parts, .. } = call;
    let [name] = parts.take()?;
    let asked = asked(&uri)?;
    let (below, most) = (asked.below()?, asked.limit + 1);
    let rows = api.desk.ask(move |office| -> Result<Vec<SnapshotRow>, Problem> {
        row(office, &name)?;
        Ok(office.registry().snapshots(&name, below, most)?)
    });
    let rows: Vec<SnapshotView> = rows.await??.into_iter().map(Into::into).collect();
    Ok(Reply::page(&uri, &asked, rows, |s| s.id.to_string()).into())
}

/// A snapshot, with all that was seen.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/snapshots/{id}", tag = "surface", operation_id = "getSnapshot",
    params(("name" = String, Path, description = "the service's name"), ("id" = i64, Path, description = "its number")),
    responses((status = 200, description = "the snapshot", body = WholeSnapshot,
               headers(("ETag" = String, description = "its hash"))))
)]
pub async fn snapshot(call: Call) -> Answer {
    let Call { api, parts, .. } = call;
    let [name, id] = parts.take()?;
    let id: i64 = id.parse().map_err(|_| Problem::not_found("the service has no snapshot of this number"))?;
    let found = api.desk.ask(move |office| {
        let row = row(office, &name)?;
        snapshot_of(office, &row, id)
    });
    let (of, document) = found.await??;
    let snapshot = serde_json::from_str(&document).map_err(|e| Problem::failed(format!("snapshot {id}: {e}")))?;
    let hash = of.hash.clone();
    Ok(Reply::json(StatusCode::OK, &WholeSnapshot { of: of.into(), snapshot }).etag(&hash).into())
}

fn changes(differences: &[Difference]) -> Vec<ChangeView> {
    let view = |g: crate::surface::diff::Group| ChangeView {
        kind: g.kind.as_str(),
        severity: g.severity().as_str(),
        facet: g.facet.map(|f| f.to_string()),
        names: g.names,
        path: g.path,
        before: g.before,
        after: g.after,
    };
    groups(differences).into_iter().map(view).collect()
}

fn items(summary: &Summary) -> Vec<ItemView> {
    let view = |i: &crate::approvals::summary::Standing| ItemView {
        item: named(i.pin.facet, &i.pin.name),
        hash: i.pin.hash.clone(),
        state: i.state.as_str(),
        approval_id: i.approval_id.clone(),
    };
    summary.items.iter().map(view).collect()
}

fn patch(from: &str, to: &str) -> Option<Value> {
    let (from, to): (Value, Value) = (serde_json::from_str(from).ok()?, serde_json::from_str(to).ok()?);
    serde_json::to_value(json_patch::diff(&from, &to)).ok()
}

/// What a comparison is with.
pub enum Against {
    /// What is approved, and the document of the snapshot that was approved last, if it is kept.
    Approved(Option<String>),
    /// Another snapshot.
    Snapshot(SnapshotRow, String),
}

/// Compares a snapshot. This reads files.
///
/// # Errors
/// Nothing is approved, or something does not read.
pub fn compare(to: &Judged, from: &Against) -> Result<DiffView, Problem> {
    let snapshot = to.snapshot()?;
    let (service, hash) = (to.row.name.clone(), to.of.hash.clone());
    match from {
        Against::Approved(document) => {
            let summary = decisions::summary(&to.dir, &to.measure, &snapshot).map_err(Undecided::from)?;
            if !summary.decided {
                let detail = "nothing was approved of this service yet";
                return Err(Problem::new(StatusCode::NOT_FOUND, "nothing-approved", detail));
            }
            Ok(DiffView {
                service,
                from: "approved".to_owned(),
                to: hash,
                outcome: summary.outcome.word(),
                groups: changes(summary.outcome.differences()),
                items: items(&summary),
                patch: document.as_ref().and_then(|from| patch(from, &to.document)),
            })
        }
        Against::Snapshot(of, document) => {
            let before = Snapshot::read(document.as_bytes());
            let before = before.map_err(|e| Problem::failed(format!("snapshot {}: {e}", of.id)))?;
            let all = between(&before.surface, &snapshot.surface);
            let groups = changes(&all);
            let drift = all.iter().any(|d| !to.measure.rules.tolerates(d.kind));
            let outcome = match (all.is_empty(), drift) {
                (true, _) => Outcome::Identical,
                (false, false) => Outcome::Equivalent(all),
                (false, true) => Outcome::Changed(all),
            };
            let (from, outcome) = (of.hash.clone(), outcome.word());
            let patch = patch(document, &to.document);
            Ok(DiffView { service, from, to: hash, outcome, groups, items: Vec::new(), patch })
        }
    }
}

/// What is to be compared: each is `approved`, `latest` or the number of a snapshot.
pub fn compared(office: &mut dyn Office, name: &str, from: &str, to: &str) -> Result<(Judged, Against), Problem> {
    let row = row(office, name)?;
    let number = |text: &str| {
        let number: Option<i64> = text.parse().ok();
        number.ok_or_else(|| Problem::bad("from is approved or the number of a snapshot, to is latest or one"))
    };
    let of_hash = |office: &mut dyn Office, hash: &Option<String>| -> Result<Option<i64>, Problem> {
        let Some(hash) = hash else { return Ok(None) };
        let all = office.registry().snapshots(name, None, KEPT)?;
        Ok(all.into_iter().find(|s| s.hash == *hash).map(|s| s.id))
    };
    let id = match to {
        "latest" => of_hash(office, &row.latest)?,
        number_of => Some(number(number_of)?),
    };
    let id = id.ok_or_else(|| Problem::not_found("there is no complete snapshot of it yet"))?;
    let from = match from {
        "approved" => {
            let id = of_hash(office, &row.approved)?;
            Against::Approved(id.map(|id| snapshot_of(office, &row, id)).transpose()?.map(|(_, document)| document))
        }
        number_of => {
            let (of, document) = snapshot_of(office, &row, number(number_of)?)?;
            Against::Snapshot(of, document)
        }
    };
    Ok((judged(office, row, id)?, from))
}

/// What differs.
#[utoipa::path(
    get, path = "/api/admin/services/{name}/diff", tag = "surface", operation_id = "diff",
    params(("name" = String, Path, description = "the service's name"),
           ("from" = Option<String>, Query, description = "`approved`, or the number of a snapshot; `approved` without it"),
           ("to" = Option<String>, Query, description = "`latest`, or the number of a snapshot; `latest` without it")),
    responses(
        (status = 200, description = "what differs", body = DiffView, headers(("ETag" = String, description = "the hash of `to`"))),
        (status = 404, description = "`not-found`, `nothing-approved`", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn diff(call: Call) -> Answer {
    let Call { api, uri, parts, .. } = call;
    let [name] = parts.take()?;
    let query = query(&uri, &["from", "to"])?;
    let of = |key: &str, usual: &str| query.get(key).map_or_else(|| usual.to_owned(), Clone::clone);
    let (from, to) = (of("from", "approved"), of("to", "latest"));
    let diff = compare_of(&api, name, from, to).await?;
    let hash = diff.to.clone();
    Ok(Reply::json(StatusCode::OK, &diff).etag(&hash).into())
}

/// The same, for whoever shows it.
pub async fn compare_of(api: &Api, name: String, from: String, to: String) -> Result<DiffView, Problem> {
    let (to, from) = api.desk.ask(move |office| compared(office, &name, &from, &to)).await??;
    beside(move || compare(&to, &from)).await?
}

/// Does what reads and writes files beside the threads that answer.
pub async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(work).await.map_err(|_| Problem::failed("the work ended by a fault of its own"))
}

/// What somebody decides.
pub struct Wanted {
    /// What.
    pub decision: Decision,
    /// About which items; about all that was seen if none are named.
    pub items: Vec<String>,
    /// Whether requests may pass after that.
    pub enable: bool,
    /// Why.
    pub reason: Option<String>,
    /// A decision that was signed elsewhere.
    pub approval: Option<String>,
}

impl Wanted {
    fn items(&self) -> Result<Vec<(Facet, String)>, Problem> {
        if self.items.len() > MAX_ITEMS {
            return Err(Problem::invalid_at("/items", format!("there are more than {MAX_ITEMS}")));
        }
        if self.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
            return Err(Problem::invalid_at("/reason", format!("it is longer than {MAX_REASON} characters")));
        }
        let read = self.items.iter().enumerate();
        let read =
            read.map(|(n, item)| item_named(item).map_err(|why| Problem::invalid_at(&format!("/items/{n}"), why)));
        read.collect()
    }
}

/// Takes a decision about the latest snapshot of a service, if that is the one that was looked at.
pub async fn decide(
    api: &Api,
    who: Who,
    name: String,
    looked_at: Option<super::reply::Wanted>,
    wanted: Wanted,
) -> Result<DecisionView, Problem> {
    let items = wanted.items()?;
    let (of, actor, enable) = (name.clone(), who.actor(), wanted.enable);
    let judged = api.desk.ask(move |office| -> Result<Judged, Problem> {
        let judged = latest(office, &of)?;
        if let Some(looked_at) = looked_at
            && !looked_at.holds(&judged.of.hash)
        {
            return Err(Problem::changed(format!("what it offers changed: it is {} now", judged.of.hash)));
        }
        if !enable && judged.row.managed_by == ManagedBy::File {
            let detail = "the configuration says whether this service is wanted";
            return Err(Problem::conflict("managed-by-file", detail));
        }
        Ok(judged)
    });
    let mut judged = judged.await??;
    let is_whole = items.is_empty() && wanted.decision == Decision::Approve;
    let approver = Approver { auth: who.auth.to_owned(), name: who.name.clone(), via: who.via.to_owned() };
    let wish = Wish { decision: wanted.decision, items, expect: None, reason: wanted.reason, approver };
    let signed = wanted.approval;
    if !enable {
        // What is refused changes nothing, and what is approved must not open the route before it is closed for good.
        let (wish, signed) = (wish.clone(), signed.clone());
        let tried = beside(move || -> Result<Judged, Problem> {
            let (snapshot, dir, measure) = (judged.snapshot_in_place()?, &judged.dir, &judged.measure);
            match &signed {
                Some(line) => decisions::may_take_signed(measure, &snapshot, line)?,
                None => decisions::may_take(dir, measure, &snapshot, wish)?,
            }
            Ok(judged)
        });
        let (tried, by) = (tried.await??, actor.clone());
        let closed = api.desk.ask(move |office| stay_closed(office, &tried.row, &by).map(|()| tried));
        judged = closed.await??;
    }
    let decided = beside(move || -> Result<(Option<Approval>, Judged, bool), Problem> {
        let snapshot = judged.snapshot_in_place()?;
        let (dir, measure) = (&judged.dir, &judged.measure);
        let approval = match &signed {
            Some(line) => Some(decisions::take_signed(dir, measure, &snapshot, line)?),
            None => decisions::take(dir, measure, &snapshot, wish)?,
        };
        let clean = decisions::is_clean(dir, measure, &snapshot);
        Ok((approval, judged, clean))
    });
    let (approval, judged, clean) = decided.await??;
    let done = api.desk.ask(move |office| -> Result<DecisionView, Problem> {
        let now = WallTime::now();
        if let Some(a) = &approval {
            let action = match a.decision {
                Decision::Block => "surface_blocked",
                Decision::Revoke => "surface_revoked",
                Decision::Approve | Decision::FirstUse => "surface_approved",
            };
            let details = json!({
                "approval_id": a.approval_id, "items": a.items.len(), "name": name, "reason": a.reason,
                "snapshot_hash": judged.of.hash,
            });
            office.registry().note(&actor, action, &details, now)?;
        }
        if clean && (is_whole || approval.is_some()) {
            // Not if another one was seen since.
            office.registry().approve(&name, &judged.of.hash, &actor, now)?;
        }
        office.decided();
        Ok(DecisionView { approval_id: approval.map(|a| a.approval_id), service: view(office, &name)? })
    });
    done.await?
}

/// A route that is not to be opened by what is approved.
fn stay_closed(office: &mut dyn Office, row: &ServiceRow, actor: &str) -> Result<(), Problem> {
    if row.state == RouteState::DisabledAdmin {
        return Ok(());
    }
    let spec = spec_of(row)?;
    Ok(office.make(&row.name, &Spec { enabled: false, ..spec }, actor)?)
}

/// Approves what a service offers, as it was looked at.
#[utoipa::path(
    post, path = "/api/admin/services/{name}/approve", tag = "surface", operation_id = "approve",
    params(("name" = String, Path, description = "the service's name"),
           ("If-Match" = Option<String>, Header, description = "the hash of the snapshot that was looked at; `*` is whatever is latest")),
    request_body(content = ApproveBody, description = "nothing is needed"),
    responses(
        (status = 200, description = "it is approved", body = DecisionView),
        (status = 409, description = "`incomplete`, `ambiguous`, `approver-key-required`, `managed-by-file`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 412, description = "`changed`: it is not what was looked at", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 428, description = "`precondition-required`: If-Match is missing", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn approve(call: Call) -> Answer {
    let Call { api, who, headers, parts, body, .. } = call;
    let [name] = parts.take()?;
    who.may(Role::Approver)?;
    let body: ApproveBody = body.json_or_default().await?;
    let known = name.clone();
    api.desk.ask(move |office| row(office, &known).map(drop)).await??;
    let Some(looked_at) = if_match(&headers)? else {
        let detail = "say what you looked at: If-Match with the snapshot's hash in quotes, or * for whatever is latest";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, "precondition-required", detail));
    };
    let wanted = Wanted {
        decision: Decision::Approve,
        items: body.items.unwrap_or_default(),
        enable: body.enable.unwrap_or(true),
        reason: body.reason,
        approval: body.approval,
    };
    let view = decide(&api, who, name, Some(looked_at), wanted).await?;
    Ok(Reply::json(StatusCode::OK, &view).into())
}

/// Blocks items: who guards cuts them out, and where nobody does the route is closed.
#[utoipa::path(
    post, path = "/api/admin/services/{name}/block", tag = "surface", operation_id = "block",
    params(("name" = String, Path, description = "the service's name"),
           ("If-Match" = Option<String>, Header, description = "the hash of the snapshot that was looked at")),
    request_body = BlockBody,
    responses(
        (status = 200, description = "they are blocked", body = DecisionView),
        (status = 409, description = "`incomplete`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 412, description = "`changed`: it is not what was looked at", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn block(call: Call) -> Answer {
    let Call { api, who, headers, parts, body, .. } = call;
    let [name] = parts.take()?;
    who.may(Role::Approver)?;
    let BlockBody { items, reason } = body.json().await?;
    let known = name.clone();
    api.desk.ask(move |office| row(office, &known).map(drop)).await??;
    if items.is_empty() {
        return Err(Problem::invalid_at("/items", "name at least one, as in tools/search"));
    }
    let wanted = Wanted { decision: Decision::Block, items, enable: true, reason, approval: None };
    let view = decide(&api, who, name, if_match(&headers)?, wanted).await?;
    Ok(Reply::json(StatusCode::OK, &view).into())
}

/// Has a service looked at now.
#[utoipa::path(
    post, path = "/api/admin/services/{name}/check", tag = "surface", operation_id = "check",
    params(("name" = String, Path, description = "the service's name")),
    responses(
        (status = 200, description = "what was found", body = CheckView),
        (status = 409, description = "`check-running`, `disabled`, `service-changed`", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn check(call: Call) -> Answer {
    let Call { api, who, uri, parts, .. } = call;
    let [name] = parts.take()?;
    who.may(Role::Approver)?;
    bare(&uri)?;
    let view = look(&api, &who, name).await?;
    Ok(Reply::json(StatusCode::OK, &view).into())
}

/// Has a service looked at, and waits.
pub async fn look(api: &Api, who: &Who, name: String) -> Result<CheckView, Problem> {
    let (done, looked) = oneshot::channel();
    let (of, actor) = (name.clone(), who.actor());
    let asked = api.desk.ask(move |office| -> Result<(), Problem> {
        row(office, &of)?;
        office.check(&of, done).map_err(|e| match e {
            NotNow::Running => Problem::conflict("check-running", "it is looked at just now"),
            NotNow::Off => Problem::conflict("disabled", "it is not wanted, so nobody looks at it"),
        })?;
        Ok(office.registry().note(&actor, "check_asked", &json!({"name": of}), WallTime::now())?)
    });
    asked.await??;
    let gone = |_| Problem::conflict("service-changed", "the service changed while it was looked at");
    let looked = looked.await.map_err(gone)?;
    let service = api.desk.ask(move |office| view(office, &name)).await??;
    Ok(CheckView {
        outcome: looked.found.as_str(),
        reason: looked.reason,
        ms: looked.ms,
        snapshot_hash: looked.snapshot_hash,
        service,
    })
}
