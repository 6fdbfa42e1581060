//! One row for each call (RFC 4180). A cell that a spreadsheet would take for a formula begins with an apostrophe.

use super::{Export, said};

/// The columns.
pub const COLUMNS: [&str; 20] = [
    "asked_at",
    "server",
    "tool",
    "outcome",
    "outcome_reason",
    "policy_verdict",
    "policy_reason",
    "policy_ref",
    "duration_ms",
    "arguments",
    "result",
    "arguments_hash",
    "result_hash",
    "anomalies",
    "receipt_id",
    "session_id",
    "note",
    "pack_manifest_sha256",
    "signer",
    "integrity",
];

/// The table.
#[must_use]
pub fn table(export: &Export<'_>) -> String {
    let source = &export.source;
    let server = export.server();
    let mut out = COLUMNS.join(",") + "\r\n";
    for call in &export.calls {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let value = |value| said(value).unwrap_or_default().to_owned();
        let cells: [String; COLUMNS.len()] = [
            call.asked_at.clone(),
            server.clone(),
            call.tool.clone(),
            call.outcome.map_or("", |o| o.as_str()).to_owned(),
            text(&call.outcome_reason),
            call.verdict.map_or("", |v| v.as_str()).to_owned(),
            text(&call.policy_reason),
            text(&call.policy_ref),
            call.took.map(|took| (took.as_micros() as f64 / 1000.0).to_string()).unwrap_or_default(),
            value(call.arguments.as_ref()),
            value(call.result.as_ref()),
            call.arguments_hash.clone(),
            text(&call.result_hash),
            call.anomalies.join(" "),
            call.receipt_id.clone(),
            text(&source.session_id),
            source.note.to_owned(),
            text(&source.pack_manifest_sha256),
            text(&source.signer),
            source.integrity.to_owned(),
        ];
        out.push_str(&cells.map(|text| cell(&text)).join(","));
        out.push_str("\r\n");
    }
    out
}

/// A cell. What begins like a formula, also behind blanks, is made a text: spreadsheets pass over blanks and quotes.
fn cell(text: &str) -> String {
    let first = text.trim_start_matches([' ', '\u{a0}', '\u{feff}']).chars().next();
    let formula = first.is_some_and(|c| {
        matches!(c, '=' | '+' | '-' | '@' | '\t' | '\r' | '\n' | '|' | '%' | '＝' | '＋' | '－' | '＠')
    });
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    // A zero byte ends a cell for some readers.
    let text = text.replace('\0', "\u{2400}");
    if text.contains(['"', ',', '\r', '\n', ';', '\t', '\'']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_ends_early() {
        for (text, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=1+1", "\"'=1+1\""),
            (" @SUM(A1)", "\"' @SUM(A1)\""),
            ("＝cmd", "\"'＝cmd\""),
            ("-2", "\"'-2\""),
            ("two\nlines", "\"two\nlines\""),
            ("a\0b", "a\u{2400}b"),
        ] {
            assert_eq!(cell(text), written, "{text:?}");
        }
    }
}
