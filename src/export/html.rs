//! One page, for reading and printing: no script, nothing loaded.

use super::Export;
use crate::{
    model::Outcome,
    numbers::{counted, duration_if},
    pack::stored::Call,
    report::html::{self, escape},
};
use std::fmt::Write as _;

/// The page. Times are UTC, as in the evidence.
#[must_use]
pub fn page(export: &Export<'_>) -> String {
    let source = &export.source;
    let mut out = String::new();
    let title = format!("Session with {}", export.server());
    let _ = writeln!(
        out,
        "<h1>{}</h1>\n<p class=\"answer warn\">{}</p>\n<div class=\"side\">",
        escape(&title),
        escape(source.note)
    );
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let session = export.stored.session.as_ref();
    for (name, value) in [
        ("pack", source.pack.clone()),
        ("manifest, SHA-256", text(&source.pack_manifest_sha256)),
        ("root, SHA-256", text(&source.pack_root_sha256)),
        ("signed by", format!("{} {}", text(&source.signer), text(&source.signer_id))),
        ("verdict when exported", format!("{}, {}", source.integrity, source.completeness)),
        ("session", text(&source.session_id)),
        ("recorded", session.map(|s| format!("{} to {}", s.started_at, s.ended_at)).unwrap_or_default()),
        ("client", session.and_then(|s| s.client_info.as_ref()).map(ToString::to_string).unwrap_or_default()),
        ("filter", text(&source.filter)),
        (
            "redacted",
            if source.redacted { "rules took something out that the pack may have".to_owned() } else { String::new() },
        ),
        ("exported", format!("{} by {}", source.exported_at, source.exported_by)),
    ] {
        if !value.trim().is_empty() {
            let _ = writeln!(out, "<p><span class=\"dim\">{name}</span> <code>{}</code></p>", escape(value.trim()));
        }
    }
    let all = counted(source.calls_recorded, "call");
    let _ = writeln!(out, "</div>\n<h2>{} of {all}</h2>", source.calls_exported);
    out.push_str(
        "<div class=\"wide\"><table class=\"cards\">\n<thead><tr><th>at, UTC</th><th>tool</th><th>outcome</th>",
    );
    out.push_str("<th class=\"n\">took</th><th>arguments and result</th></tr></thead>\n<tbody>\n");
    for call in &export.calls {
        row(&mut out, call);
    }
    out.push_str("</tbody></table></div>\n");
    html::page(&title, &out)
}

fn row(out: &mut String, call: &Call) {
    let tone = match call.outcome {
        Some(Outcome::Forwarded) => "good",
        Some(Outcome::Denied | Outcome::Error | Outcome::Timeout) => "bad",
        None => "dim",
    };
    let mut outcome = vec![call.outcome.map_or("", |o| o.as_str()).to_owned()];
    outcome.extend(call.outcome_reason.clone());
    outcome.extend(call.verdict.map(|v| v.as_str().replace('_', " ")));
    outcome.extend(call.policy_reason.clone());
    let _ = write!(
        out,
        "<tr><td class=\"time\" data-is=\"at\">{}</td><td class=\"name\" data-is=\"tool\">{}</td>\
         <td class=\"{tone}\" data-is=\"outcome\">{}</td><td class=\"n\" data-is=\"took\">{}</td><td class=\"text\">",
        escape(&call.asked_at),
        escape(&call.tool),
        escape(&outcome.join(", ")),
        duration_if(call.took.and_then(|took| u64::try_from(took.as_micros()).ok())),
    );
    for (name, value, hash) in [
        ("arguments", &call.arguments, Some(&call.arguments_hash)),
        ("result", &call.result, call.result_hash.as_ref()),
    ] {
        let said = match (value, hash) {
            (Some(value), _) => String::from_utf8_lossy(value).into_owned(),
            (None, Some(hash)) => format!("not stored: {hash}"),
            (None, None) => continue,
        };
        let _ = write!(out, "<p class=\"place\"><span class=\"dim\">{name}</span> <code>{}</code></p>", escape(&said));
    }
    if !call.anomalies.is_empty() {
        let _ = write!(out, "<p class=\"warn\">{}</p>", escape(&call.anomalies.join(", ").replace('_', " ")));
    }
    let _ = writeln!(out, "<p class=\"dim\"><code>{}</code></p></td></tr>", escape(&call.receipt_id));
}
