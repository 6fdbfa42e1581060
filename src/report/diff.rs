//! `assay diff --report`: the comparison as a page.

use super::html::{self, escape};
use crate::{
    model::surface::{self, Severity},
    numbers::{NONE, counted, duration_if, grouped},
    pack::{
        diff::{
            Answer, CallChange, ChangeKind, Comparison, Document, SideView, ToolRow, TotalsRow, gates::GateReport,
            totals_rows,
        },
        verify::{Claims, Completeness, Integrity, SignerVerdict},
    },
    text::{noun, where_they_part},
};
use std::fmt::Write as _;

/// Most tools, and most changes of one kind, that the page shows.
const SHOWN: usize = 100;
/// Places in one result that it shows.
const PLACES: usize = 20;
/// Characters of a value that it shows.
const VALUE: usize = 240;

/// The report as one HTML page.
#[must_use]
pub fn page(d: &Document) -> String {
    let mut out = String::new();
    let (tone, text) = match d.answer {
        Answer::NoRegression => ("good", "No regression"),
        Answer::Regression => ("bad", "Regression: B is worse than A, or a gate does not hold"),
        Answer::NotVerified => ("bad", "Nothing was compared: a pack does not verify"),
        Answer::Unsupported => ("warn", "Nothing was compared: a later version wrote part of a pack"),
    };
    out.push_str("<h1>Proof packs compared</h1>\n");
    let _ = writeln!(out, "<p class=\"answer {tone}\">{text}</p>");
    out.push_str("<div class=\"sides\">\n");
    side(&mut out, "A, the baseline", &d.a);
    side(&mut out, "B", &d.b);
    out.push_str("</div>\n");
    if let Some(gates) = &d.gates {
        gate_table(&mut out, gates);
    }
    if !d.regressions.is_empty() {
        out.push_str("<h2>Worse in B</h2>\n<ul>\n");
        for r in &d.regressions {
            let judged =
                r.judged_by.map_or_else(String::new, |g| format!(" <span class=\"dim\">decided by {g}</span>"));
            let _ = writeln!(out, "<li>{}{judged}</li>", escape(&r.what));
        }
        out.push_str("</ul>\n");
    }
    if let Some(c) = &d.comparison {
        comparison(&mut out, c);
    }
    html::page("Proof packs compared", &out)
}

fn side(out: &mut String, title: &str, s: &SideView) {
    let tone = |good: bool, soft: &'static str| if good { "good" } else { soft };
    let signer = match s.signer.verdict {
        SignerVerdict::Pinned => "good",
        SignerVerdict::Unpinned => "warn",
        SignerVerdict::Untrusted => "bad",
    };
    let claims = match s.claims {
        Claims::Pass => "good",
        Claims::HonestFail => "bad",
        Claims::NotEvaluated => "dim",
    };
    let _ = writeln!(
        out,
        "<div class=\"side\">\n<h2>{title}</h2>\n<p><code>{}</code></p>\n<p><span class=\"{}\">{}</span> · \
         <span class=\"{}\">{}</span> · <span class=\"{signer}\">{}</span> · <span class=\"{claims}\">claims {}</span></p>\n\
         <p>{}, <span class=\"time\">{}</span> to <span class=\"time\">{}</span></p>\n\
         <p class=\"dim\">signed by <code>{}</code></p>",
        escape(&s.path),
        tone(s.integrity == Integrity::Pass, if s.integrity == Integrity::Unsupported { "warn" } else { "bad" }),
        s.integrity,
        tone(s.completeness == Completeness::Complete, "warn"),
        s.completeness,
        s.signer.verdict,
        s.claims,
        s.receipts(),
        escape(s.timestamp_start.as_deref().unwrap_or(NONE)),
        escape(s.timestamp_end.as_deref().unwrap_or("–")),
        escape(s.signer.fingerprint.as_deref().unwrap_or("no readable key")),
    );
    if s.surface_truncated {
        let _ = writeln!(out, "<p class=\"warn\">{}</p>", escape(surface::TRUNCATED));
    }
    for finding in &s.errors {
        let _ = writeln!(out, "<p class=\"bad\">{} {}</p>", escape(finding.code), escape(&finding.message));
    }
    out.push_str("</div>\n");
}

/// A table; with `cards`, a narrow page shows the cells of each row one below the other.
fn table(out: &mut String, title: &str, cards: bool, head: &[&str], rows: impl Iterator<Item = String>) {
    let class = if cards { " class=\"cards\"" } else { "" };
    let _ = writeln!(out, "<h2>{}</h2>\n<div class=\"wide\"><table{class}>\n<thead><tr>", escape(title));
    for cell in head {
        let (class, cell) = cell.strip_prefix('#').map_or(("", *cell), |cell| (" class=\"n\"", cell));
        let _ = write!(out, "<th{class}>{}</th>", escape(cell));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        let _ = writeln!(out, "<tr>{row}</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

fn gate_table(out: &mut String, gates: &GateReport) {
    let rows = gates.results.iter().map(|g| {
        let (tone, word) = if g.passed { ("good", "pass") } else { ("bad", "FAIL") };
        let actual = if g.actual.is_null() { NONE.to_owned() } else { g.actual.to_string() };
        format!(
            "<td class=\"{tone}\">{word}</td><td><code>{}</code></td><td class=\"n\" data-is=\"limit\">{}</td>\
             <td class=\"n\" data-is=\"found\">{}</td><td class=\"text\">{}</td>",
            escape(g.gate),
            escape(&g.limit.to_string()),
            escape(&actual),
            escape(g.note.as_deref().unwrap_or_default())
        )
    });
    table(out, "Gates", true, &["", "gate", "#limit", "#found", "note"], rows);
}

fn totals(out: &mut String, c: &Comparison) {
    let rows = totals_rows(&c.totals_a, &c.totals_b, &c.latency_a, &c.latency_b);
    let rows = rows.into_iter().map(|TotalsRow { label, a, b, by }| {
        format!("<td>{label}</td><td class=\"n\">{a}</td><td class=\"n\">{b}</td><td class=\"n\">{by}</td>")
    });
    table(out, "Totals", false, &["", "#A", "#B", "#change"], rows);
}

fn comparison(out: &mut String, c: &Comparison) {
    totals(out, c);
    let p = &c.calls;
    let _ = writeln!(
        out,
        "<p>{} in both packs, {} only in B, {} only in A. Pairs that differ: {} in outcome, {} in policy verdict, {} in \
         result.</p>",
        counted(p.paired, "call"),
        grouped(p.new),
        grouped(p.gone),
        grouped(p.outcome_changed),
        grouped(p.verdict_changed),
        grouped(p.result_changed)
    );
    let head = ["tool", "", "#calls A", "#calls B", "#failed A", "#failed B", "#p50 A", "#p50 B", "#p95 A", "#p95 B"];
    table(out, "Tools", false, &head, c.tools.iter().take(SHOWN).map(tool_row));
    let more = c.tools.len().saturating_sub(SHOWN) as u64 + c.tools_omitted;
    if more > 0 {
        let _ = writeln!(out, "<p class=\"dim\">and {} more {}</p>", grouped(more), noun(more, "tool"));
    }
    if !c.context.is_empty() {
        let rows = c.context.iter().map(|change| {
            let text = |t: &Option<String>| escape(t.as_deref().unwrap_or(NONE));
            format!(
                "<td>{}</td><td class=\"text\" data-is=\"A\">{}</td><td class=\"text\" data-is=\"B\">{}</td>",
                change.what.replace('_', " "),
                text(&change.a),
                text(&change.b)
            )
        });
        table(out, "Ran with", true, &["", "A", "B"], rows);
    }
    if !c.surface.is_empty() {
        let rows = c.surface.iter().take(SHOWN).map(|g| {
            let tone = if g.severity >= Severity::High { "bad" } else { "dim" };
            let text = |t: &Option<String>| escape(t.as_deref().unwrap_or(NONE));
            format!(
                "<td class=\"{tone}\">{}</td><td>{}</td><td class=\"text\">{}</td><td class=\"text\" data-is=\"A\">{}</td>\
                 <td class=\"text\" data-is=\"B\">{}</td>",
                g.severity,
                g.kind,
                escape(&g.place()),
                text(&g.before),
                text(&g.after)
            )
        });
        table(out, "The server's surface", true, &["", "change", "where", "A", "B"], rows);
    }
    for (kind, title) in [
        (ChangeKind::Changed, "Changed calls"),
        (ChangeKind::New, "New calls, only in B"),
        (ChangeKind::Gone, "Gone calls, only in A"),
    ] {
        let all: Vec<_> = c.changes.iter().filter(|x| x.kind == kind).collect();
        if !all.is_empty() {
            let head = ["tool", "arguments", "what", "receipt"];
            table(out, title, true, &head, all.iter().take(SHOWN).map(|x| change_row(x)));
        }
        if all.len() > SHOWN {
            let _ = writeln!(
                out,
                "<p class=\"dim\">and {} more in the JSON document</p>",
                grouped((all.len() - SHOWN) as u64)
            );
        }
    }
    if c.changes_omitted > 0 {
        let _ = writeln!(out, "<p class=\"dim\">{} counted but not listed</p>", counted(c.changes_omitted, "change"));
    }
}

fn tool_row(row: &ToolRow) -> String {
    let (a, b) = (&row.a, &row.b);
    let note = match (a.totals.calls, b.totals.calls) {
        (0, _) => "<span class=\"warn\">new</span>",
        (_, 0) => "<span class=\"warn\">gone</span>",
        _ => "",
    };
    let mut out = format!("<td class=\"name\">{}</td><td>{note}</td>", escape(&row.tool));
    for cell in [
        grouped(a.totals.calls),
        grouped(b.totals.calls),
        grouped(a.totals.failed()),
        grouped(b.totals.failed()),
        duration_if(a.latency.p50_us),
        duration_if(b.latency.p50_us),
        duration_if(a.latency.p95_us),
        duration_if(b.latency.p95_us),
    ] {
        let _ = write!(out, "<td class=\"n\">{cell}</td>");
    }
    out
}

fn change_row(change: &CallChange) -> String {
    let mut what = Vec::new();
    match (&change.a, &change.b) {
        (Some(a), Some(b)) => what.extend(a.changed(b, "→").iter().map(|said| escape(said))),
        (None, Some(one)) | (Some(one), None) => what.push(escape(&one.outcome)),
        (None, None) => {}
    }
    for place in change.result_differences.iter().take(PLACES) {
        let path = if place.path.is_empty() { "(the whole value)" } else { &place.path };
        let mut said = format!("<p class=\"place\">{}", escape(path));
        let text = |v: &Option<serde_json::Value>| v.as_ref().map(ToString::to_string).unwrap_or_default();
        let (old, new) = (text(&place.old), text(&place.new));
        let (old, new) = where_they_part(&old, &new, VALUE);
        for (sign, tone, value) in [("−", "warn", old), ("+", "good", new)] {
            if !value.is_empty() {
                let _ = write!(said, "<code class=\"{tone}\">{sign} {}</code>", escape(&head(&value)));
            }
        }
        what.push(said + "</p>");
    }
    let more = change.result_differences.len().saturating_sub(PLACES) as u64 + change.result_differences_omitted;
    if more > 0 {
        what.push(format!("and {more} more {}", noun(more, "place")));
    }
    let receipt = change.b.as_ref().or(change.a.as_ref()).map_or("", |s| s.receipt_id.as_str());
    let hash: String = change.arguments_hash.rsplit(':').next().unwrap_or_default().chars().take(16).collect();
    format!(
        "<td class=\"name\">{}</td><td data-is=\"arguments\"><code>{}</code></td><td class=\"text\">{}</td>\
         <td data-is=\"receipt\"><code>{}</code></td>",
        escape(&change.tool),
        escape(&hash),
        what.join("<br>").replace("<br><p", "<p").replace("</p><br>", "</p>"),
        escape(receipt)
    )
}

/// The beginning of a long value; the JSON document has more of it.
fn head(text: &str) -> String {
    match text.char_indices().nth(VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
