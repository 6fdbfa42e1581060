//! Services: listed, made, changed, removed.

use super::{
    Answer, Api, Call, Paging,
    auth::{Role, Who},
    body::merge,
    desk::Office,
    problem::{Problem, ProblemDocument},
    reply::{Reply, Wanted, asked, if_match},
    types::{NewService, OnUnreachable, Page, ServicePatch, ServiceView},
};
use crate::{
    approvals::{decide::Wish, observed},
    gateway::{
        config::{MAX_SERVICES, Service, is_name},
        decisions,
        look::{Approvers, Look, Measure, Seen, Standing, hash},
        reach::{credentials, endpoint},
        registry::{Found, ManagedBy, ServiceRow, State as RouteState},
        spec::Spec,
    },
    model::{
        WallTime,
        surface::{Approver, Decision, Snapshot},
    },
    operate::evidence,
    paths::AuditDir,
};
use http::StatusCode;
use serde_json::{Map, Value};
use std::{path::PathBuf, time::Instant};
use tokio::{sync::oneshot, task::spawn_blocking};

/// That there is no such service.
pub fn unknown() -> Problem {
    Problem::not_found("no service has this name")
}

/// The row of a service.
pub fn row(office: &mut dyn Office, name: &str) -> Result<ServiceRow, Problem> {
    office.registry().service(name)?.ok_or_else(unknown)
}

/// A service, as it is shown.
pub fn view(office: &mut dyn Office, name: &str) -> Result<ServiceView, Problem> {
    let row = row(office, name)?;
    Ok(ServiceView::of(row, office.service(name)))
}

fn shown(status: StatusCode, view: &ServiceView) -> Reply {
    Reply::json(status, view).etag(&view.version.to_string())
}

/// The services.
#[utoipa::path(
    get, path = "/api/admin/services", tag = "services", operation_id = "listServices", params(Paging),
    responses((status = 200, description = "a page of them, by name", body = Page<ServiceView>,
               headers(("Link" = String, description = "the next page, `rel=\"next\"`"))))
)]
pub async fn list(call: Call) -> Answer {
    let Call { api, uri, .. } = call;
    let asked = asked(&uri)?;
    let all = api.desk.ask(|office| -> Result<Vec<ServiceView>, Problem> {
        let rows = office.registry().services()?;
        Ok(rows
            .into_iter()
            .map(|row| {
                let service = office.service(&row.name);
                ServiceView::of(row, service)
            })
            .collect())
    });
    let mut all = all.await??;
    if let Some(after) = &asked.cursor {
        all.retain(|service| service.name > *after);
    }
    Ok(Reply::page(&uri, &asked, all, |service| service.name.clone()).into())
}

/// A service.
#[utoipa::path(
    get, path = "/api/admin/services/{name}", tag = "services", operation_id = "getService",
    params(("name" = String, Path, description = "its name")),
    responses((status = 200, description = "the service", body = ServiceView,
               headers(("ETag" = String, description = "its version"))))
)]
pub async fn get(call: Call) -> Answer {
    let Call { api, parts, .. } = call;
    let [name] = parts.take()?;
    let view = api.desk.ask(move |office| view(office, &name)).await??;
    Ok(shown(StatusCode::OK, &view).into())
}

/// What a service that is to be made comes to.
struct Plan {
    service: Service,
    data: PathBuf,
    approvers: Approvers,
}

fn plan(office: &mut dyn Office, name: &str, spec: &Spec, who: &Who) -> Result<Plan, Problem> {
    let service = spec.service(name, office.config()).map_err(Problem::invalid)?;
    if who.auth != "local_user" {
        let beyond = spec.beyond(office.config());
        if !beyond.is_empty() {
            return Err(Problem::invalid(beyond));
        }
    }
    credentials(&service).map_err(|e| Problem::invalid_at("/headers", e.what))?;
    Ok(Plan { service, data: office.data().to_owned(), approvers: office.config().admin.approvers.clone() })
}

fn is_free(office: &mut dyn Office, name: &str) -> Result<(), Problem> {
    let all = office.registry().services()?;
    if all.iter().any(|row| row.name == name) {
        return Err(Problem::conflict("exists", "there is a service of this name"));
    }
    if all.len() >= MAX_SERVICES {
        return Err(Problem::conflict("too-many", format!("there are {MAX_SERVICES} services, which is the most")));
    }
    Ok(())
}

/// Makes a service: it is asked what it offers, and that is approved.
#[utoipa::path(
    post, path = "/api/admin/services", tag = "services", operation_id = "createService", request_body = NewService,
    responses(
        (status = 201, description = "it is made", body = ServiceView,
         headers(("Location" = String, description = "where it is"), ("ETag" = String, description = "its version"))),
        (status = 409, description = "`exists`, `too-many`, `ambiguous`, `approver-key-required`: nothing is made", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 502, description = "`upstream-unreachable`, `snapshot-incomplete`: nothing is made", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn create(call: Call) -> Answer {
    let Call { api, who, body, .. } = call;
    who.may(Role::Admin)?;
    let new: NewService = body.json().await?;
    make(&api, &who, new).await.map(Into::into)
}

/// Makes a service, and shows it.
pub async fn make(api: &Api, who: &Who, new: NewService) -> Result<Reply, Problem> {
    let (name, on_unreachable) = (new.name.clone(), new.on_unreachable);
    is_name(&name).map_err(|why| Problem::invalid_at("/name", why))?;
    let spec = new.spec();
    let (asked, wanted, by) = (name.clone(), spec.clone(), who.clone());
    let planned = api.desk.ask(move |office| {
        is_free(office, &asked)?;
        plan(office, &asked, &wanted, &by)
    });
    let plan = planned.await??;
    let seen = if spec.enabled { first_look(plan, who.clone(), on_unreachable).await? } else { None };
    let (made, actor) = (name.clone(), who.actor());
    let made = api.desk.ask(move |office| -> Result<ServiceView, Problem> {
        is_free(office, &made)?;
        office.make(&made, &spec, &actor)?;
        if let Some(seen) = seen {
            office.take_up(&seen);
            if let Some(hash) = seen.offered.as_ref().ok().and_then(hash) {
                office.registry().approve(&made, &hash, &actor, WallTime::now())?;
            }
        }
        view(office, &made)
    });
    let view = made.await??;
    Ok(shown(StatusCode::CREATED, &view).location(&format!("/api/admin/services/{name}")))
}

/// Looks at a service that is to be made, and approves what it offers. Nothing is written of one that is not seen whole.
async fn first_look(plan: Plan, who: Who, on_unreachable: OnUnreachable) -> Result<Option<Seen>, Problem> {
    let looked = spawn_blocking(move || {
        let (began, clock) = (WallTime::now(), Instant::now());
        let Plan { service, data, approvers } = plan;
        let offered = Look::new(&service, (&data, None), &approvers, None).and_then(|look| look.ask());
        let bad_gateway = |word, why: String| Err(Problem::new(StatusCode::BAD_GATEWAY, word, why));
        let refused = match &offered {
            Err(why) => bad_gateway("upstream-unreachable", why.clone()),
            Ok(snapshot) => match snapshot.root() {
                Ok(_) => Ok(()),
                Err(why) => bad_gateway("snapshot-incomplete", why.to_string()),
            },
        };
        match refused {
            Err(_) if on_unreachable == OnUnreachable::Pending => return Ok(None),
            refused => refused?,
        }
        let measure = Measure::of(&service, &approvers);
        let dir = AuditDir::at(evidence(&data, &service.name)).of_user();
        let standing = offered.as_ref().map(|snapshot| approve_all(&dir, &measure, snapshot, &who));
        let Ok(standing) = standing else { return Ok(None) };
        let ms = clock.elapsed().as_millis() as u64;
        let (name, endpoint) = (service.name.clone(), endpoint(&service));
        Ok(Some(Seen { name, endpoint, began, ms, offered, standing: standing?, first_use: None, warning: None }))
    });
    looked.await.map_err(|_| Problem::failed("the look at the server ended by a fault of its own"))?
}

fn approve_all(dir: &AuditDir, measure: &Measure, snapshot: &Snapshot, who: &Who) -> Result<Standing, Problem> {
    let wish = Wish {
        decision: Decision::Approve,
        items: Vec::new(),
        expect: None,
        reason: Some("the service was made".to_owned()),
        approver: Approver { auth: who.auth.to_owned(), name: who.name.clone(), via: who.via.to_owned() },
    };
    decisions::take(dir, measure, snapshot, wish)?;
    // It is what a person sees of the service in the evidence, too.
    observed::keep(dir, snapshot).map_err(|e| Problem::failed(format!("what it offers cannot be kept: {e}")))?;
    Ok(Standing::of(dir, measure, snapshot))
}

/// Whether a service can be changed by the API, and is the one that was looked at.
fn mine(office: &mut dyn Office, name: &str, looked_at: Option<&Wanted>) -> Result<ServiceRow, Problem> {
    let row = row(office, name)?;
    if let Some(wanted) = looked_at
        && !wanted.holds(&row.version.to_string())
    {
        return Err(Problem::changed(format!("the service changed: its version is {} now", row.version)));
    }
    if row.managed_by == ManagedBy::File {
        let detail = "the configuration says what this service is: change it there, and have it read again (SIGHUP)";
        return Err(Problem::conflict("managed-by-file", detail));
    }
    Ok(row)
}

/// Changes a service: what the patch names is as it says.
#[utoipa::path(
    patch, path = "/api/admin/services/{name}", tag = "services", operation_id = "changeService",
    params(("name" = String, Path, description = "its name"),
           ("If-Match" = Option<String>, Header, description = "the version that was looked at")),
    request_body(content = ServicePatch, content_type = "application/merge-patch+json"),
    responses(
        (status = 200, description = "it is so now. With another URL it is looked at there, and its route is closed until that is approved",
         body = ServiceView, headers(("ETag" = String, description = "its version"))),
        (status = 409, description = "`managed-by-file`, `approval-required`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 412, description = "`changed`: it is not the one that was looked at", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn change(call: Call) -> Answer {
    let Call { api, who, headers, parts, body, .. } = call;
    let [name] = parts.take()?;
    who.may(Role::Admin)?;
    let patch = body.merge_patch().await?;
    let view = alter(&api, who, name, if_match(&headers)?, patch).await?;
    Ok(shown(StatusCode::OK, &view).into())
}

/// What a service of the API was made of.
pub fn spec_of(row: &ServiceRow) -> Result<Spec, Problem> {
    let spec = row.made.as_deref().and_then(|made| serde_json::from_str(made).ok());
    spec.ok_or_else(|| Problem::failed("what the service was made of does not read"))
}

/// Changes a service, if it is the one that was looked at, and waits until it was looked at where that is needed.
pub async fn alter(
    api: &Api,
    who: Who,
    name: String,
    looked_at: Option<Wanted>,
    patch: Map<String, Value>,
) -> Result<ServiceView, Problem> {
    let changed = api.desk.ask(move |office| -> Result<_, Problem> {
        let row = mine(office, &name, looked_at.as_ref())?;
        let spec = spec_of(&row)?;
        let mut value = serde_json::to_value(&spec).map_err(|e| Problem::failed(e.to_string()))?;
        if patch.contains_key("name") {
            return Err(Problem::invalid_at("/name", "the name of a service stays"));
        }
        merge(&mut value, &patch);
        let spec: Spec = super::body::parse(value.to_string().as_bytes())?;
        let service = plan(office, &name, &spec, &who)?.service;
        let is_moved = endpoint(&service) != row.endpoint;
        let was_off = row.state == RouteState::DisabledAdmin;
        let is_approved = row.latest.is_none() || row.latest == row.approved;
        let asks = patch.get("enabled") == Some(&Value::Bool(true));
        let is_closed = matches!(row.state, RouteState::Pending | RouteState::DisabledDrift);
        if asks && !is_moved && (was_off && !is_approved || is_closed && row.latest.is_some()) {
            let detail = "what it offers is not approved: approving opens the route";
            return Err(Problem::conflict("approval-required", detail));
        }
        office.make(&name, &spec, &who.actor())?;
        let (done, looked) = oneshot::channel();
        // The answer says what was found there.
        let looks = spec.enabled && (is_moved || was_off) && office.check(&name, done).is_ok();
        Ok((name, looks.then_some(looked)))
    });
    let (name, looked) = changed.await??;
    if let Some(looked) = looked {
        // If nobody looked, the service says so.
        let _ = looked.await;
    }
    api.desk.ask(move |office| view(office, &name)).await?
}

/// Removes a service. What was recorded of it stays.
#[utoipa::path(
    delete, path = "/api/admin/services/{name}", tag = "services", operation_id = "removeService",
    params(("name" = String, Path, description = "its name"),
           ("If-Match" = Option<String>, Header, description = "the version that was looked at")),
    responses(
        (status = 204, description = "it is gone"),
        (status = 409, description = "`managed-by-file`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 412, description = "`changed`: it is not the one that was looked at", body = ProblemDocument, content_type = "application/problem+json"),
    )
)]
pub async fn remove(call: Call) -> Answer {
    let Call { api, who, headers, parts, .. } = call;
    let [name] = parts.take()?;
    who.may(Role::Admin)?;
    take_away(&api, who, name, if_match(&headers)?).await?;
    Ok(Reply::none().into())
}

/// The same, for whoever asks.
pub async fn take_away(api: &Api, who: Who, name: String, looked_at: Option<Wanted>) -> Result<(), Problem> {
    let removed = api.desk.ask(move |office| -> Result<(), Problem> {
        mine(office, &name, looked_at.as_ref())?;
        Ok(office.remove(&name, &who.actor())?)
    });
    removed.await?
}

/// What a check found, and how a check differs from it: used by those who wait for one.
pub const fn word(found: Found) -> &'static str {
    found.as_str()
}
