//! What was done, by whom.

use super::{
    Answer, Call,
    look::{Page, further, time},
    text::line,
};
use crate::gateway::api::reply::asked;
use http::StatusCode;
use maud::html;

/// The audit log, the newest lines first.
pub async fn list(call: Call) -> Answer {
    let Call { api, viewer, uri, .. } = call;
    let asked = asked(&uri)?;
    let (below, most) = (asked.below()?, asked.limit + 1);
    let mut rows = api.desk.ask(move |office| office.registry().audit(below, most)).await??;
    let more = rows.len() > asked.limit as usize;
    rows.truncate(asked.limit as usize);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let body = html! {
        p .soft { "Each line has the hash of the one before it in its own." }
        table .cards {
            thead { tr { th { "No." } th { "When" } th { "Who" } th { "What" } th { "Details" } th { "Hash" } } }
            tbody {
                @for row in &rows {
                    tr {
                        td data-label="No." { (row.id) }
                        td data-label="When" { (time(Some(&row.ts))) }
                        td data-label="Who" { (line(&row.actor)) }
                        td data-label="What" { (line(&row.action)) }
                        td data-label="Details" { code { (line(&row.details.to_string())) } }
                        td data-label="Hash" { code title=(row.hash) { (row.hash.get(..12).unwrap_or(&row.hash)) } }
                    }
                }
            }
        }
        (further(&uri, asked.limit, next.as_deref(), below.is_some()))
    };
    Ok(Page::of("Audit log").show(Some(&viewer), StatusCode::OK, &body))
}
