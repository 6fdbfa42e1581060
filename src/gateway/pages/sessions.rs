//! What was recorded of a service: sessions, their calls, their packs.

use super::{
    Answer, Call,
    look::{Page, encoded, of_service, part, state, time},
    text::line,
};
use crate::{
    gateway::api::{
        Api,
        problem::Problem,
        sessions::{archive, entries_of, pack_of, report_of},
        surface::beside,
        types::SessionView,
    },
    history::list::{Entry, Standing},
    live::{fold::Fold, journal, row::CallRow, state::State, words::CallState},
    model::{
        pack::{AUDIT_LOG, RECEIPTS},
        reading::Reading,
    },
    numbers::{duration_if, size},
    pack::verify::VerifyReport,
};
use http::StatusCode;
use maud::{Markup, html};
use std::path::Path;

/// Calls of a session that are shown.
const CALLS: usize = 200;
/// Bytes of a journal that is read for calls in flight.
const MAX_JOURNAL: u64 = 64 << 20;

/// Sessions of a service.
pub async fn list(call: Call) -> Answer {
    page(call, "Sessions", |_| true).await
}

/// Those that have a pack.
pub async fn packs(call: Call) -> Answer {
    page(call, "Packs", |entry| entry.standing == Standing::Packed).await
}

async fn page(mut call: Call, title: &str, wanted: fn(&Entry) -> bool) -> Answer {
    let [name] = call.take()?;
    let Call { api, viewer, uri, .. } = call;
    let all: Vec<Entry> = entries_of(&api, name.clone()).await?.into_iter().filter(wanted).collect();
    let none = all.is_empty();
    // The newest first; the cursor is the last one that was shown.
    let mut seen = false;
    let seen = std::cell::RefCell::new(&mut seen);
    let after = |entry: &Entry, last: &str| {
        let is_after = **seen.borrow();
        **seen.borrow_mut() |= entry.name() == last;
        is_after
    };
    let (all, further) = part(&uri, all, Entry::name, after)?;
    let body = html! {
        div #sessions data-live {
            @if none { p { "There are none yet." } } @else {
                table .cards {
                    thead { tr { th { "Session" } th { "State" } th { "Began" } th { "Client" } th { "Calls" } th { "Failed" } th { "Denied" } th { "Size" } th { "Pack" } } }
                    tbody { @for entry in &all { (listed(&name, &SessionView::from(entry))) } }
                }
            }
        }
        (further)
    };
    let page = Page { service: Some(&name), refresh: Some(5), ..Page::of(title) };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

fn listed(service: &str, s: &SessionView) -> Markup {
    let count = |n: Option<u64>| n.map_or_else(|| "–".to_owned(), |n| n.to_string());
    let at = |below: &str| of_service(service, &format!("{below}/{}", encoded(&s.id)));
    html! {
        tr {
            th scope="row" { a href=(at("/sessions")) { code { (line(&s.id)) } } }
            td data-label="State" { (state(s.state)) }
            td data-label="Began" { (time(s.started_at.as_deref())) }
            td data-label="Client" { (line(&s.client)) }
            td data-label="Calls" { (count(s.calls)) }
            td data-label="Failed" { (count(s.failed)) }
            td data-label="Denied" { (count(s.denied)) }
            td data-label="Size" { (size(s.bytes)) }
            td data-label="Pack" {
                @if s.packed { a href=(at("/packs")) aria-label={ "Verify " (line_text(&s.id)) } { "verify" } " "
                    a href={ (at("/packs")) "/download" } aria-label={ "Download " (line_text(&s.id)) } { "download" } }
                @else { span .soft { "none" } }
            }
        }
    }
}

/// For an attribute, which has no markup.
fn line_text(text: &str) -> std::borrow::Cow<'_, str> {
    crate::text::visible(text)
}

async fn entry_of(api: &Api, name: &str, id: &str) -> Result<Entry, Problem> {
    let all = entries_of(api, name.to_owned()).await?;
    all.into_iter().find(|e| e.name() == id).ok_or_else(|| Problem::not_found("the service has no session of this id"))
}

/// What is known of the calls of a session, and what could not be read.
fn calls(entry: &Entry) -> (State, Vec<String>) {
    let in_pack = || (entry.pack.join(AUDIT_LOG), entry.pack.join(RECEIPTS));
    let (segment, receipts) = entry.files.clone().unwrap_or_else(in_pack);
    let (mut state, mut wrong) = (State::new(CALLS), Vec::new());
    if entry.standing == Standing::Recording {
        // Receipts have no calls in flight.
        let len = crate::paths::open_journal(&segment).and_then(|file| file.metadata()).map(|m| m.len());
        match len {
            Ok(len) if len > MAX_JOURNAL => wrong.push("it is too long to show calls in flight".to_owned()),
            _ => wrong.extend(events(&segment, &mut state).err().map(|e| format!("its events: {e}"))),
        }
    }
    match journal::calls(&receipts, None, &mut |r| state.call(CallRow::of_receipt(r))) {
        Ok(Some(newer)) => wrong.push(newer.to_string()),
        Ok(None) => {}
        Err(e) => wrong.push(format!("its receipts: {e}")),
    }
    (state, wrong)
}

fn events(segment: &Path, state: &mut State) -> std::io::Result<()> {
    let mut fold = Fold::default();
    journal::events(segment, 0, u64::MAX, &mut |_, event| {
        if let Reading::Readable(event) = event {
            state.apply(&fold.event(&event));
        }
    })
}

/// A session and its calls.
pub async fn show(mut call: Call) -> Answer {
    let [name, id] = call.take()?;
    let Call { api, viewer, .. } = call;
    let entry = entry_of(&api, &name, &id).await?;
    let is_live = entry.standing == Standing::Recording;
    let (known, wrong, entry) = beside(move || {
        let (known, wrong) = calls(&entry);
        (known, wrong, entry)
    })
    .await?;
    let view = SessionView::from(&entry);
    let body = html! {
        dl {
            dt { "Id" } dd { code { (line(&view.session_id)) } }
            dt { "State" } dd { (state(view.state)) }
            dt { "Began" } dd { (time(view.started_at.as_deref())) }
            dt { "Client" } dd { (line(&view.client)) }
            dt { "Server" } dd { (line(&view.server)) }
            dt { "Pack" } dd {
                @if view.packed { a href=(of_service(&name, &format!("/packs/{}", encoded(&view.id)))) { "verify or download it" } }
                @else { "none yet" }
            }
        }
        h2 { "Calls" }
        div #calls data-live {
            @for why in &wrong { p .note .open { (line(why)) } }
            @if known.is_cut() { p .soft { "The newest " (CALLS) " of them." } }
            @if known.rows().next().is_none() { p { "There are none." } } @else {
                table .cards {
                    thead { tr { th { "Tool" } th { "Outcome" } th { "Asked" } th { "Took" } th { "Why" } th { "Receipt" } } }
                    tbody { @for row in known.rows().rev() { (called(row)) } }
                }
            }
        }
    };
    let title = format!("Session {id}");
    let page = Page { service: Some(&name), refresh: is_live.then_some(2), ..Page::of(&title) };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

fn called(row: &CallRow) -> Markup {
    let why = row.policy_reason.as_deref().or(row.outcome_reason.as_deref()).unwrap_or_default();
    let asked = row.requested_at.map(|at| at.to_string());
    html! {
        tr {
            th scope="row" { code { (line(row.tool_name.as_deref().unwrap_or("unknown"))) } }
            td data-label="Outcome" { (state(CallState::of(row).word())) }
            td data-label="Asked" { (time(asked.as_deref())) }
            td data-label="Took" { (duration_if(row.duration_ms.map(|d| d.0))) }
            td data-label="Why" { (line(why)) @for odd in &row.anomalies { " " (state(odd)) } }
            td data-label="Receipt" { @if let Some(id) = row.receipt_id { code { (id.to_string()) } } }
        }
    }
}

/// What a verification of a pack says.
pub async fn verified(mut call: Call) -> Answer {
    let [name, id] = call.take()?;
    let Call { api, viewer, .. } = call;
    let report = report_of(&api, name.clone(), &id).await?;
    let body = html! {
        (channels(&report))
        p { a .action href=(of_service(&name, &format!("/packs/{}/download", encoded(&id)))) { "Download the pack" } }
        p .soft { "Verify it where you trust the program: " code { "assay verify-pack FILE" } "." }
        (stages(&report))
    };
    let title = format!("Pack {id}");
    let page = Page { service: Some(&name), ..Page::of(&title) };
    Ok(page.show(Some(&viewer), StatusCode::OK, &body))
}

fn channels(report: &VerifyReport) -> Markup {
    html! {
        dl {
            dt { "Integrity" } dd { (state(report.integrity.as_str())) }
            dt { "Completeness" } dd {
                (state(report.completeness.as_str()))
                @for why in &report.completeness_reasons { div { (line(why)) } }
            }
            dt { "Claims" } dd { (state(report.claims.as_str())) }
            dt { "Signer" } dd {
                (state(report.signer.verdict.as_str()))
                " " code { (line(report.signer.fingerprint.as_deref().unwrap_or("no key"))) }
            }
            dt { "Receipts" } dd { (report.facts.receipt_count) }
            dt { "Events" } dd { (report.facts.event_count) }
        }
        @if !report.errors.is_empty() {
            h2 { "Findings" }
            ul { @for e in &report.errors { li { code { (e.code) } " " (line(&e.message)) } } }
        }
        @if !report.warnings.is_empty() {
            h2 { "Warnings" }
            ul { @for warning in &report.warnings { li { (line(warning)) } } }
        }
    }
}

fn stages(report: &VerifyReport) -> Markup {
    html! {
        h2 { "Stages" }
        table .cards {
            thead { tr { th { "Stage" } th { "Status" } th { "Why" } } }
            tbody {
                @for stage in &report.stages {
                    tr {
                        th scope="row" { (stage.stage.as_str().replace('_', " ")) }
                        td data-label="Status" { (state(stage.status.as_str())) }
                        td data-label="Why" { (line(stage.reason.as_deref().unwrap_or_default())) }
                    }
                }
            }
        }
    }
}

/// The pack, as an archive.
pub async fn download(mut call: Call) -> Answer {
    let [name, id] = call.take()?;
    archive(&pack_of(&call.api, name, &id).await?)
}
