//! Services: listed, shown, made, changed, removed.

use super::{
    Answer, Call, Viewer,
    form::{Draft, Line},
    look::{Page, button, csrf, may, of_service, said, see_other, state, time},
    text::line,
};
use crate::gateway::{
    api::{
        Api,
        auth::Role,
        body,
        problem::Problem,
        reply::Wanted,
        services::{alter, make, row, spec_of, take_away, view},
        surface::look,
        types::{NewService, ServiceView},
    },
    spec::Spec,
};
use http::{Response, StatusCode};
use maud::{Markup, html};
use serde_json::{Map, json};

/// Lines for credentials that are free in a form.
const FREE: usize = 2;

/// What was done, by the word of it in a query: nothing that a query says is shown.
fn done(word: &str) -> Option<&'static str> {
    Some(match word {
        "made" => "The service is made.",
        "changed" => "The service is changed.",
        "removed" => "The service is removed. What was recorded of it stays.",
        "enabled" => "The service is wanted again.",
        "disabled" => "The service is not wanted any more: its route is closed.",
        "identical" | "equivalent" => "It was looked at: it is what was approved.",
        "differs" => "It was looked at: it differs from what was approved.",
        "incomplete" => "It was looked at: not all of it could be seen.",
        "unreachable" => "It was looked at: it could not be asked.",
        "approved" => "It is approved.",
        "blocked" => "It is blocked.",
        _ => return None,
    })
}

/// That something was done.
pub fn note(word: &str) -> Markup {
    html! { @if let Some(said) = done(word) { p .note .good role="status" { (said) } } }
}

/// Whether what is offered is what is approved.
fn drifts(service: &ServiceView) -> bool {
    service.latest.is_some() && service.latest != service.approved
}

/// The services.
pub async fn list(call: Call) -> Answer {
    let Call { api, viewer, fields, .. } = call;
    let all = api.desk.ask(|office| -> Result<Vec<ServiceView>, Problem> {
        let rows = office.registry().services()?;
        let view = |row: crate::gateway::registry::ServiceRow| {
            let service = office.service(&row.name);
            ServiceView::of(row, service)
        };
        Ok(rows.into_iter().map(view).collect())
    });
    let all = all.await??;
    let body = html! {
        (note(fields.one("done")))
        @if may(&viewer, Role::Admin) { p { a .action href="/ADMIN/new" { "Add a service" } } }
        div #services data-live {
            @if all.is_empty() { p { "There are no services yet." } } @else {
                table .cards {
                    thead { tr { th { "Service" } th { "State" } th { "Health" } th { "Last check" } th { "Drift" } th { "Server" } } }
                    tbody {
                        @for service in &all {
                            tr {
                                th scope="row" { a href=(of_service(&service.name, "")) { (line(&service.name)) } }
                                td data-label="State" { (state(service.state)) }
                                td data-label="Health" { (state(service.health)) }
                                td data-label="Last check" { (time(service.last_check_at.as_deref())) }
                                td data-label="Drift" {
                                    @if drifts(service) { a href=(of_service(&service.name, "/diff")) { "look at it" } } @else { "none" }
                                }
                                td data-label="Server" { code { (line(&service.upstream_url)) } }
                            }
                        }
                    }
                }
            }
        }
    };
    let page = Page { refresh: Some(5), ..Page::of("Services") };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

/// A service.
pub async fn show(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, fields, .. } = call;
    let service = api.desk.ask(move |office| view(office, &name)).await??;
    let body = html! {
        (note(fields.one("done")))
        div #service data-live { (facts(&service)) }
        @if may(&viewer, Role::Approver) { (actions(&viewer, &service)) }
    };
    let page = Page { service: Some(&service.name), refresh: Some(5), ..Page::of("Service") };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

fn facts(s: &ServiceView) -> Markup {
    html! {
        @if drifts(s) {
            p .note .open {
                "What it offers is not what was approved. " a href=(of_service(&s.name, "/diff")) { "Look at what differs" }
            }
        }
        dl {
            dt { "State" } dd { (state(s.state)) @if let Some(reason) = &s.reason { " " (line(reason)) } " since " (time(Some(&s.since))) }
            dt { "Health" } dd {
                (state(s.health))
                @if s.failures > 0 { " " (crate::text::counted(s.failures, "check")) " in a row did not see it whole" }
                @if let Some(error) = &s.last_error { ": " (line(error)) }
                @if s.checking { " (looked at just now)" }
            }
            dt { "Last check" } dd { (time(s.last_check_at.as_deref())) }
            dt { "Seen whole" } dd { (time(s.last_success_at.as_deref())) }
            dt { "Next check" } dd { @if s.next_due_at.is_some() { (time(s.next_due_at.as_deref())) } @else { "none" } }
            dt { "Every" } dd { @if s.check_frequency_minutes == 0 { "until it was seen whole" } @else { (crate::text::counted(s.check_frequency_minutes, "minute")) } }
            dt { "For clients" } dd { code { (line(&s.path)) } }
            dt { "Server" } dd { code { (line(&s.upstream_url)) } " (" (s.kind) ")" }
            dt { "Profile" } dd { (s.profile.unwrap_or("unknown")) }
            dt { "First use" } dd { (s.surface_first.unwrap_or("unknown")) }
            dt { "Credentials" } dd {
                @if s.headers.is_empty() { "none" }
                @for (header, from) in &s.headers {
                    div { code { (line(header)) } " from " code { (line(&from.from)) } @if !from.set { " " (state("missing")) } }
                }
                @if s.inject { div { "Requests of clients get them, too." } }
            }
            dt { "Approved" } dd { code { (s.approved.as_deref().unwrap_or("nothing")) } }
            dt { "Latest" } dd { code { (s.latest.as_deref().unwrap_or("nothing")) } }
            dt { "Managed by" } dd { @if s.managed_by == "file" { "the configuration" } @else { "the API" } }
            dt { "Made" } dd { (time(Some(&s.created_at))) }
            dt { "Changed" } dd { (time(Some(&s.updated_at))) " (version " (s.version) ")" }
        }
    }
}

fn actions(viewer: &Viewer, s: &ServiceView) -> Markup {
    let at = |below: &str| of_service(&s.name, below);
    html! {
        section .actions aria-label="Actions" {
            (button(viewer, &at("/check"), "Check now"))
            @if may(viewer, Role::Admin) && s.managed_by != "file" {
                @if s.state == "disabled_admin" { (button(viewer, &at("/enable"), "Enable")) }
                @else { (button(viewer, &at("/disable"), "Disable")) }
                a .action href=(at("/edit")) { "Edit" }
                a .action href=(at("/delete")) { "Delete" }
            }
        }
        @if s.managed_by == "file" { p .soft { "The configuration says what this service is: it is changed there." } }
    }
}

/// Has a service looked at now.
pub async fn check(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let found = look(&call.api, &call.viewer.who, name.clone()).await?;
    let word = if found.outcome == "changed" { "differs" } else { found.outcome };
    Ok(see_other(&of_service(&name, &format!("?done={word}"))))
}

async fn wanted(mut call: Call, enabled: bool) -> Answer {
    let [name] = call.take()?;
    let patch = Map::from_iter([("enabled".to_owned(), json!(enabled))]);
    let word = if enabled { "enabled" } else { "disabled" };
    alter(&call.api, call.viewer.who, name.clone(), None, patch).await?;
    Ok(see_other(&of_service(&name, &format!("?done={word}"))))
}

/// A service is wanted again.
pub async fn enable(call: Call) -> Answer {
    wanted(call, true).await
}

/// A service is not wanted.
pub async fn disable(call: Call) -> Answer {
    wanted(call, false).await
}

/// Whether a service is to be removed.
pub async fn confirm(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, .. } = call;
    let service = api.desk.ask(move |office| view(office, &name)).await??;
    let body = html! {
        @if service.managed_by == "file" { p { "The configuration says that there is this service: take it out there." } } @else {
            p { "Its route goes at once, with the streams and calls on it. What was recorded of it stays, and so do the decisions about it." }
            form method="post" action=(of_service(&service.name, "/delete")) {
                (csrf(&viewer))
                input type="hidden" name="version" value=(service.version);
                button .danger type="submit" { "Delete " (line(&service.name)) }
            }
        }
        p { a href=(of_service(&service.name, "")) { "Back to the service" } }
    };
    let page = Page { service: Some(&service.name), ..Page::of("Delete") };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

/// Removes a service, if it is still the one that was shown.
pub async fn remove(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let looked_at = Wanted::These(vec![call.fields.one("version").to_owned()]);
    take_away(&call.api, call.viewer.who, name, Some(looked_at)).await?;
    Ok(see_other("/ADMIN/?done=removed"))
}

async fn policies(api: &Api) -> Result<Vec<String>, Problem> {
    api.desk.ask(|office| office.config().policies.keys().cloned().collect()).await
}

/// The form of a service, and what is wrong with it.
async fn form(
    api: &Api,
    viewer: &Viewer,
    draft: &Draft,
    version: Option<&str>,
    wrong: Option<&Problem>,
) -> Result<Response<crate::relay::http::host::Hosted>, Problem> {
    let policies = policies(api).await?;
    let bad = |field: &str| {
        let pointer = format!("/{field}");
        let is_of = |at: &str| at == pointer || at.starts_with(&format!("{pointer}/"));
        wrong.is_some_and(|p| p.errors.iter().any(|e| is_of(&e.pointer))).then_some("true")
    };
    let choice = |name: &str, of: &str, all: &[(&str, &str)]| {
        html! {
            select id=(name) name=(name) aria-invalid=[bad(name)] {
                @for (value, word) in all { option value=(value) selected[*value == of] { (line(word)) } }
            }
        }
    };
    let named: Vec<(&str, &str)> = std::iter::once(("", "as the configuration says"))
        .chain(policies.iter().map(|name| (name.as_str(), name.as_str())))
        .collect();
    let (first, last) = (draft.lines.iter().cloned(), std::iter::repeat_n(Line::default(), FREE));
    let lines: Vec<Line> = first.chain(last).collect();
    let is_new = version.is_none();
    let action = if is_new { "/ADMIN/new".to_owned() } else { of_service(&draft.name, "/edit") };
    let body = html! {
        @if let Some(wrong) = wrong { (said(wrong)) }
        form .fields method="post" action=(action) {
            (csrf(viewer))
            @if let Some(version) = version { input type="hidden" name="version" value=(version); }
            @if is_new {
                label for="name" { "Name" }
                input #name name="name" value=(draft.name) required maxlength="63" aria-invalid=[bad("name")] aria-describedby="name-is" spellcheck="false";
                small #name-is { "The first part of its path; it stays. Small letters, digits, '.', '_' and '-'." }
            }
            label for="upstream_url" { "URL of the server" }
            input #upstream_url name="upstream_url" type="url" value=(draft.url) required maxlength="2048" aria-invalid=[bad("upstream_url")] aria-describedby="url-is";
            small #url-is {
                "The MCP endpoint, without a query: that could be a secret."
                @if !is_new { " At another URL its route is closed until what is there is approved." }
            }
            label for="check_frequency_minutes" { "Minutes between checks" }
            input #check_frequency_minutes name="check_frequency_minutes" inputmode="numeric" value=(draft.minutes) aria-invalid=[bad("check_frequency_minutes")] aria-describedby="minutes-are";
            small #minutes-are { "5 to 43200; 0: until it was seen whole; empty: as the configuration says." }
            label for="profile" { "Profile" }
            (choice("profile", &draft.profile, &[("", "as the configuration says"), ("audit", "audit: calls are recorded"), ("guard", "guard: calls are judged before they pass")]))
            label for="policy" { "Policy" }
            (choice("policy", &draft.policy, &named))
            label for="surface_first" { "While nothing was decided" }
            (choice("surface_first", &draft.first, &[("", "as the configuration says"), ("tofu", "what is seen first is approved"), ("approve", "nothing passes before a person approves")]))
            fieldset #headers {
                legend { "Credentials" }
                p .soft { "Where each is, never what it is: an environment variable of the gateway, or a file, of those that the configuration allows." }
                @for (n, at) in lines.iter().enumerate() {
                    div .line role="group" aria-label={ "Credential " (n + 1) } {
                        input name="header" value=(at.header) placeholder="Header" aria-label="Header" spellcheck="false" aria-invalid=[bad("headers")];
                        select name="from" aria-label="Where it is" {
                            option value="env" selected[at.from != "file"] { "variable" }
                            option value="file" selected[at.from == "file"] { "file" }
                        }
                        input name="place" value=(at.place) placeholder="Name or path" aria-label="Name of the variable, or path of the file" spellcheck="false";
                        input name="prefix" value=(at.prefix) placeholder="Prefix" aria-label="What stands in front of it" spellcheck="false";
                    }
                }
                label .box { input type="checkbox" name="inject" checked[draft.inject]; " Requests of clients get them, too" }
            }
            @if is_new {
                label .box { input type="checkbox" name="enabled" checked[draft.enabled]; " It is looked at, and what it offers is approved" }
                label .box { input type="checkbox" name="pending" checked[draft.pending]; " Make it also if it cannot be seen whole now" }
            }
            button type="submit" { @if is_new { "Add the service" } @else { "Save" } }
        }
    };
    let status = wrong.map_or(StatusCode::OK, |wrong| wrong.status);
    let page = if is_new { Page::of("Add a service") } else { Page { service: Some(&draft.name), ..Page::of("Edit") } };
    Ok(page.show(Some(viewer), status, &body))
}

/// The form of a service that is to be made.
pub async fn new(call: Call) -> Answer {
    form(&call.api, &call.viewer, &Draft { enabled: true, ..Draft::default() }, None, None).await
}

/// Makes a service.
pub async fn create(call: Call) -> Answer {
    let Call { api, viewer, fields, .. } = call;
    let draft = Draft::of(&fields);
    let service = draft.service().and_then(|value| body::parse::<NewService>(value.to_string().as_bytes()));
    let made = match service {
        Ok(service) => make(&api, &viewer.who, service).await.map(drop),
        Err(problem) => Err(problem),
    };
    match made {
        Ok(()) => Ok(see_other(&of_service(&draft.name, "?done=made"))),
        Err(problem) => form(&api, &viewer, &draft, None, Some(&problem)).await,
    }
}

async fn made_of(api: &Api, name: &str) -> Result<(Spec, i64), Problem> {
    let name = name.to_owned();
    let found = api.desk.ask(move |office| -> Result<_, Problem> {
        let row = row(office, &name)?;
        if row.made.is_none() {
            let detail = "the configuration says what this service is: change it there";
            return Err(Problem::conflict("managed-by-file", detail));
        }
        Ok((spec_of(&row)?, row.version))
    });
    found.await?
}

/// The form of a service that there is.
pub async fn edit(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let (spec, version) = made_of(&call.api, &name).await?;
    form(&call.api, &call.viewer, &Draft::of_spec(&name, &spec), Some(&version.to_string()), None).await
}

/// Changes a service, if it is still the one that was shown.
pub async fn change(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, fields, .. } = call;
    let (spec, _) = made_of(&api, &name).await?;
    let draft = Draft { name: name.clone(), ..Draft::of(&fields) };
    let version = fields.one("version").to_owned();
    let changed = match draft.patch(&spec) {
        Ok(patch) => {
            let looked_at = Wanted::These(vec![version.clone()]);
            alter(&api, viewer.who.clone(), name.clone(), Some(looked_at), patch).await.map(drop)
        }
        Err(problem) => Err(problem),
    };
    match changed {
        Ok(()) => Ok(see_other(&of_service(&name, "?done=changed"))),
        Err(problem) if problem.word == "invalid" => form(&api, &viewer, &draft, Some(&version), Some(&problem)).await,
        Err(problem) => Err(problem),
    }
}
