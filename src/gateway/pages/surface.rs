//! What a service offers: snapshots, what differs, decisions.

use super::{
    Answer, Call, Viewer,
    form::Fields,
    look::{Page, csrf, encoded, further, may, of_service, see_other, state, time},
    services::note,
    text::{beside, line, value},
};
use crate::{
    approvals::lockfile::{named, pins},
    gateway::api::{
        Api,
        auth::Role,
        problem::Problem,
        reply::{Wanted as Hash, asked},
        services::row,
        surface::{Wanted, beside as in_background, compare_of, decide as take, snapshot_of},
        types::{ChangeView, DiffView, ItemView},
    },
    model::surface::{Decision, Snapshot},
    text::counted,
};
use http::StatusCode;
use maud::{Markup, html};
use percent_encoding::percent_decode_str;

/// Snapshots that can be chosen for a comparison.
const CHOSEN: u32 = 50;

/// What a form about a snapshot needs.
struct Standing {
    /// The hash of the latest snapshot.
    latest: Option<String>,
    /// Only keys that are named may approve.
    by_key: bool,
}

async fn standing(api: &Api, name: &str) -> Result<Standing, Problem> {
    let name = name.to_owned();
    let found = api.desk.ask(move |office| -> Result<_, Problem> {
        let row = row(office, &name)?;
        Ok(Standing { latest: row.latest, by_key: !office.config().admin.approvers.is_empty() })
    });
    found.await?
}

/// Snapshots of a service.
pub async fn list(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, uri, .. } = call;
    let asked = asked(&uri)?;
    let (below, most, of) = (asked.below()?, asked.limit + 1, name.clone());
    let rows = api.desk.ask(move |office| -> Result<_, Problem> {
        row(office, &of)?;
        Ok((office.registry().snapshots(&of, below, most)?, office.registry().snapshots(&of, None, CHOSEN)?))
    });
    let (mut rows, chosen) = rows.await??;
    let more = rows.len() > asked.limit as usize;
    rows.truncate(asked.limit as usize);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let choice = |id: &str, word: &str, usual: (&str, &str)| {
        html! {
            label for=(id) { (word) }
            select id=(id) name=(id) {
                option value=(usual.0) { (usual.1) }
                @for s in &chosen { option value=(s.id) { (s.id) " of " (s.created_at) } }
            }
        }
    };
    let body = html! {
        @if rows.is_empty() { p { "It was not seen whole yet." } } @else {
            form .compare method="get" action=(of_service(&name, "/diff")) {
                (choice("from", "Compare", ("approved", "what is approved")))
                (choice("to", "with", ("latest", "the latest")))
                button type="submit" { "Compare" }
            }
            table .cards {
                thead { tr { th { "No." } th { "Taken" } th { "Approved" } th { "Hash" } } }
                tbody {
                    @for s in &rows {
                        tr {
                            th scope="row" { a href=(of_service(&name, &format!("/snapshots/{}", s.id))) { (s.id) } }
                            td data-label="Taken" { (time(Some(&s.created_at))) }
                            td data-label="Approved" { (state(s.approved.as_str())) }
                            td data-label="Hash" { code { (s.hash) } }
                        }
                    }
                }
            }
            (further(&uri, asked.limit, next.as_deref(), below.is_some()))
        }
    };
    let page = Page { service: Some(&name), ..Page::of("Snapshots") };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

/// A snapshot, with all that was seen.
pub async fn show(mut call: Call) -> Answer {
    let [name, id] = call.take()?;
    let Call { api, viewer, .. } = call;
    let id: i64 = id.parse().map_err(|_| Problem::not_found("the service has no snapshot of this number"))?;
    let of = name.clone();
    let found = api.desk.ask(move |office| {
        let row = row(office, &of)?;
        snapshot_of(office, &row, id)
    });
    let (of, document) = found.await??;
    let standing = standing(&api, &name).await?;
    let seen = Snapshot::read(document.as_bytes()).map_err(|e| Problem::failed(format!("snapshot {id}: {e}")))?;
    let items = pins(&seen);
    let is_latest = standing.latest.as_ref() == Some(&of.hash);
    let server = seen.server_info.as_ref().and_then(|info| serde_json::to_string(info).ok());
    let body = html! {
        dl {
            dt { "Taken" } dd { (time(Some(&of.created_at))) }
            dt { "Approved" } dd { (state(of.approved.as_str())) }
            dt { "Hash" } dd { code { (of.hash) } @if is_latest { " (the latest)" } }
            dt { "Server" } dd { code { (line(server.as_deref().unwrap_or("unnamed"))) } }
            dt { "Protocol" } dd { (line(seen.protocol_version.as_deref().unwrap_or("unknown"))) }
            dt { "Items" } dd { (items.len()) }
        }
        p { a href=(of_service(&name, &format!("/diff?to={id}"))) { "What differs from what is approved" } }
        h2 { "What was seen" }
        @for (pin, content) in &items {
            details {
                summary { (line(&named(pin.facet, &pin.name))) }
                p { code { (pin.hash) } }
                @match content {
                    None => p { (state("ambiguous")) " Others may read it otherwise, so it cannot be approved." },
                    Some(None) => p .soft { "Its text is not kept." },
                    Some(Some(content)) => pre tabindex="0" { (value(content)) },
                }
            }
        }
        @if is_latest && may(&viewer, Role::Approver) {
            @let items: Vec<_> = items.iter().map(|(pin, _)| (named(pin.facet, &pin.name), None)).collect();
            (decision(&viewer, &name, &of.hash, &items, standing.by_key))
        }
    };
    let title = format!("Snapshot {id}");
    let page = Page { service: Some(&name), ..Page::of(&title) };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

/// What differs.
pub async fn diff(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, fields, .. } = call;
    let of = |key: &str, usual: &str| fields.some(key).unwrap_or_else(|| usual.to_owned());
    let (from, to) = (of("from", "approved"), of("to", "latest"));
    let with_approved = from == "approved";
    let standing = standing(&api, &name).await?;
    let page = Page { service: Some(&name), ..Page::of("What differs") };
    let diff = match compare_of(&api, name.clone(), from, to).await {
        Err(problem) if problem.word == "nothing-approved" => {
            let body = html! {
                p .note .open { "Nothing was approved of this service yet." }
                p { a href=(of_service(&name, "/snapshots")) { "Snapshots" } " show what it offers; the latest one can be approved there." }
            };
            return Ok(page.show(Some(&viewer), StatusCode::OK, &body));
        }
        Err(problem) if problem.status == StatusCode::NOT_FOUND && standing.latest.is_none() => {
            let body = html! { p { "It was not seen whole yet." } };
            return Ok(page.show(Some(&viewer), StatusCode::OK, &body));
        }
        diff => diff?,
    };
    let may_decide = with_approved && standing.latest.as_ref() == Some(&diff.to) && may(&viewer, Role::Approver);
    let groups = in_background(move || (groups(&diff.groups), diff)).await?;
    let (groups, diff) = groups;
    let body = html! {
        (note(fields.one("done")))
        (head(&diff))
        (groups)
        @if may_decide {
            @let items: Vec<_> = diff.items.iter().map(|item| (item.item.clone(), Some(item.state))).collect();
            (decision(&viewer, &name, &diff.to, &items, standing.by_key))
        } @else if !diff.items.is_empty() {
            (items(&diff.items))
        }
    };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

fn head(diff: &DiffView) -> Markup {
    html! {
        dl {
            dt { "Outcome" } dd { (state(diff.outcome)) " " (counted(diff.groups.len(), "group")) " of changes" }
            dt { "From" } dd { @if diff.from == "approved" { "what is approved" } @else { code { (diff.from) } } }
            dt { "To" } dd { code { (diff.to) } }
        }
    }
}

/// The changes, those that matter most first.
fn groups(all: &[ChangeView]) -> Markup {
    html! {
        @for group in all {
            section .change {
                h2 {
                    (state(group.severity)) " " (line(&group.kind.replace('_', " ")))
                    @if let Some(facet) = &group.facet { " in " (line(facet)) }
                }
                @if !group.names.iter().all(String::is_empty) {
                    p { @for name in &group.names { code { (line(name)) } " " } }
                }
                @if !group.path.is_empty() { p .soft { "at " code { (line(&group.path)) } } }
                @if group.before.is_some() || group.after.is_some() { (sides(group)) }
            }
        }
    }
}

fn sides(group: &ChangeView) -> Markup {
    let (before, after) = match (&group.before, &group.after) {
        (Some(before), Some(after)) => beside(before, after),
        (before, after) => {
            let one = |json: &Option<String>| json.as_deref().map(value);
            let nothing = || html! { span .soft { "nothing" } };
            let before = one(before).map_or_else(nothing, |text| html! { del { (text) } });
            (before, one(after).map_or_else(nothing, |text| html! { ins { (text) } }))
        }
    };
    html! {
        div .sides {
            div { h3 { "Before" } pre tabindex="0" { (before) } }
            div { h3 { "Now" } pre tabindex="0" { (after) } }
        }
    }
}

fn items(all: &[ItemView]) -> Markup {
    html! {
        h2 { "Items" }
        ul .items { @for item in all { li { code { (line(&item.item)) } " " (state(item.state)) } } }
    }
}

/// The form of a decision. It carries the hash of what is shown.
fn decision(viewer: &Viewer, name: &str, hash: &str, items: &[(String, Option<&str>)], by_key: bool) -> Markup {
    html! {
        form .decision method="post" action=(of_service(name, "/decide")) {
            h2 { "Decide" }
            (csrf(viewer))
            input type="hidden" name="hash" value=(hash);
            @if by_key {
                p { "Approvals are signed by a key that the configuration names, where that key is: "
                    code { "assay surface request" } ", " code { "assay surface approve --request" } "." }
                label for="approval" { "The signed decision" }
                textarea #approval name="approval" rows="4" maxlength="4194304" required spellcheck="false" {}
                button type="submit" name="decision" value="signed" { "Take the signed decision" }
            } @else {
                label for="reason" { "Reason" }
                textarea #reason name="reason" rows="2" maxlength="1000" {}
                div .actions {
                    button type="submit" name="decision" value="approve" { "Approve all that was seen" }
                }
                fieldset {
                    legend { "Or only some items" }
                    @for (item, stands) in items {
                        label .box {
                            input type="checkbox" name="item" value=(encoded(item));
                            " " code { (line(item)) } " " @if let Some(stands) = stands { (state(stands)) }
                        }
                    }
                    div .actions {
                        button type="submit" name="decision" value="approve-some" { "Approve the ticked ones" }
                        button .danger type="submit" name="decision" value="block" { "Block the ticked ones" }
                    }
                }
            }
        }
    }
}

fn wanted(fields: &Fields) -> Result<(Wanted, &'static str), Problem> {
    let read = |item: &str| percent_decode_str(item).decode_utf8().ok().map(std::borrow::Cow::into_owned);
    let items: Option<Vec<String>> = fields.all("item").map(read).collect();
    let items = items.ok_or_else(|| Problem::invalid_at("/items", "an item is no text"))?;
    let some = |items: Vec<String>| {
        if items.is_empty() { Err(Problem::invalid_at("/items", "tick at least one item")) } else { Ok(items) }
    };
    let (decision, items, word) = match fields.one("decision") {
        "approve" | "signed" => (Decision::Approve, Vec::new(), "approved"),
        "approve-some" => (Decision::Approve, some(items)?, "approved"),
        "block" => (Decision::Block, some(items)?, "blocked"),
        _ => return Err(Problem::bad("the form does not say what is decided")),
    };
    // The fields of a form have line ends of their own.
    let reason = fields.some("reason").map(|reason| reason.replace("\r\n", "\n"));
    let approval = fields.some("approval").map(|approval| approval.replace("\r\n", "\n"));
    if fields.one("decision") == "signed" && approval.is_none() {
        return Err(Problem::invalid_at("/approval", "the signed decision is missing"));
    }
    let approval = approval.filter(|_| fields.one("decision") == "signed");
    Ok((Wanted { decision, items, enable: true, reason, approval }, word))
}

/// Takes a decision, if what was shown is still what the service offers.
pub async fn decide(mut call: Call) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, fields, .. } = call;
    let (wanted, word) = wanted(&fields)?;
    let hash = Hash::These(vec![fields.one("hash").to_owned()]);
    match take(&api, viewer.who.clone(), name.clone(), Some(hash), wanted).await {
        Ok(_) => Ok(see_other(&of_service(&name, &format!("?done={word}")))),
        Err(problem) if problem.word == "changed" => {
            let body = html! {
                p .note .bad role="alert" { "Nothing was decided: what the service offers is not what you were shown any more." }
                p { a .action href=(of_service(&name, "/diff")) { "Look at what it offers now" } }
            };
            let page = Page { service: Some(&name), ..Page::of("It changed meanwhile") };
            Ok(page.show(Some(&viewer), StatusCode::CONFLICT, &body))
        }
        Err(problem) => Err(problem),
    }
}
