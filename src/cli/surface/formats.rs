//! What a check finds, for the services that run it: SARIF 2.1.0 and JUnit XML.

use crate::{
    approvals::{lockfile::named, summary::Summary},
    cli::{
        findings::{self, Suite},
        sarif,
    },
    error::Failure,
    model::{
        Vocabulary as _,
        surface::{ChangeKind, Difference, Identity, Outcome, Severity},
    },
    surface::diff::groups,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

/// Rules beside the kinds of changes.
const MORE: [(&str, &str); 3] = [
    ("incomplete", "Not all of the surface of this MCP server could be listed"),
    ("unreachable", "This MCP server did not say what it offers"),
    ("nothing_approved", "Nothing of this MCP server is approved"),
];

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical | Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low | Severity::Info => "note",
    }
}

/// A finding that is no change, if there is one: its rule, and its text.
fn beside(summary: &Summary) -> Option<(&'static str, String)> {
    match &summary.outcome {
        Outcome::Incomplete(why) => Some(("incomplete", why.clone())),
        Outcome::Unreachable(why) => Some(("unreachable", why.clone())),
        _ if !summary.decided => Some(("nothing_approved", "nothing of this server is approved".to_owned())),
        Outcome::Identical | Outcome::Equivalent(_) | Outcome::Changed(_) => None,
    }
}

/// The SARIF log. A result is a group of equal changes, and its place is the lock file, where there is one.
pub fn sarif(server: &Identity, summary: &Summary, lock: Option<&Path>) -> String {
    let at = lock.map(|path| sarif::place(path, 1, 1));
    let result = |rule: &str, level: &str, text: String| {
        let mut result = json!({"ruleId": rule, "level": level, "message": {"text": text}});
        if let Some(at) = &at {
            result["locations"] = at.clone();
        }
        result
    };
    let mut results: Vec<Value> = Vec::new();
    if let Some((rule, text)) = beside(summary) {
        results.push(result(rule, "error", format!("the MCP server {}: {text}", server.id)));
    }
    for g in groups(summary.outcome.differences()) {
        let place = g.facet.map(|f| format!(" in {f}{}", g.path)).unwrap_or_default();
        let names =
            if g.names.iter().all(String::is_empty) { String::new() } else { format!(": {}", g.names.join(", ")) };
        let sides = match (&g.before, &g.after) {
            (Some(before), Some(after)) => format!(" (was {before}, is {after})"),
            (Some(before), None) => format!(" (was {before})"),
            (None, Some(after)) => format!(" (is {after})"),
            (None, None) => String::new(),
        };
        let text = format!("the MCP server {} changed: {}{place}{names}{sides}", server.id, g.kind);
        results.push(result(g.kind.as_str(), level(g.severity()), text));
    }
    let kind = |k: &ChangeKind| (k.as_str(), format!("The surface of this MCP server changed: {}", k.as_str()));
    let kinds: Vec<(&str, String)> = ChangeKind::ALL.iter().map(kind).collect();
    let rules = MORE.iter().copied().chain(kinds.iter().map(|(id, text)| (*id, text.as_str())));
    sarif::log("assay surface check", rules, &results)
}

/// The JUnit report: a test case for each item, and for what is not of one.
///
/// # Errors
/// As [`findings::junit`].
pub fn junit(server: &Identity, summary: &Summary) -> Result<String, Failure> {
    let mut of_item: BTreeMap<String, Vec<&Difference>> = BTreeMap::new();
    for d in summary.outcome.differences() {
        let case = d.facet.map_or_else(|| "server".to_owned(), |f| named(f, &d.name));
        of_item.entry(case).or_default().push(d);
    }
    let mut cases: BTreeMap<String, Option<String>> = BTreeMap::new();
    for item in &summary.items {
        cases.insert(named(item.pin.facet, &item.pin.name), None);
    }
    if let Some((rule, text)) = beside(summary) {
        cases.insert("surface".to_owned(), Some(format!("{rule}: {text}")));
    } else {
        cases.entry("surface".to_owned()).or_insert(None);
    }
    let tolerated = !matches!(summary.outcome, Outcome::Changed(_));
    for (case, all) in of_item {
        let line = |d: &&Difference| {
            let side =
                |name: &str, text: &Option<String>| text.as_ref().map(|t| format!(" {name} {t}")).unwrap_or_default();
            format!(
                "{} {}{}{}{}",
                d.severity().as_str(),
                d.kind,
                prefixed(&d.path),
                side("was", &d.before),
                side("is", &d.after)
            )
        };
        let text = all.iter().map(line).collect::<Vec<_>>().join("\n");
        cases.insert(case, (!tolerated).then_some(text));
    }
    let suite = Suite::of_checks(format!("assay surface check: {}", server.id), &server.id, cases);
    findings::junit("assay surface check", &[suite])
}

fn prefixed(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" {path}") }
}
