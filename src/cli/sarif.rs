//! Findings as SARIF 2.1.0, for services that show them beside code.

use crate::clients::{
    scan::{Scan, Server},
    state::State,
};
use serde_json::{Value, json};
use std::path::Path;

/// What a scan finds. Places are relative to the root of the project, as such services want them.
#[must_use]
pub fn of_scan(scan: &Scan, project: &Path, strict: bool) -> String {
    let root = crate::paths::repository(project).unwrap_or(project);
    let mut results = Vec::new();
    for file in &scan.clients {
        let uri = file.file.strip_prefix(root).unwrap_or(&file.file);
        let at = |line: usize, column: usize| place(uri, line, column);
        for problem in &file.problems {
            let level = if problem.kind == "unreadable" { "error" } else { "warning" };
            results.push(json!({
                "ruleId": problem.kind, "level": level, "message": {"text": problem.message},
                "locations": at(problem.line, problem.column),
            }));
        }
        for server in file.servers.iter().filter(|server| server.enabled) {
            if let Some((rule, level, message)) = finding(server, strict) {
                results.push(json!({
                    "ruleId": rule, "level": level, "message": {"text": message},
                    "locations": at(server.line, server.column),
                }));
            }
        }
    }
    log("assay scan", RULES.into_iter(), &results)
}

/// The log of one run of a tool, whose rules have an id and a short description.
#[must_use]
pub fn log<'a>(tool: &str, rules: impl Iterator<Item = (&'a str, &'a str)>, results: &[Value]) -> String {
    let rule = |(id, text): (&str, &str)| json!({"id": id, "shortDescription": {"text": text}});
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": tool, "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.map(rule).collect::<Vec<Value>>(),
            }},
            // Columns are counted in characters.
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

/// The locations of a finding: one place in a file.
#[must_use]
pub fn place(file: &Path, line: usize, column: usize) -> Value {
    json!([{"physicalLocation": {
        "artifactLocation": {"uri": encoded(file)},
        "region": {"startLine": line.max(1), "startColumn": column.max(1)},
    }}])
}

const RULES: [(&str, &str); 5] = [
    ("unrecorded", "Calls of this MCP server leave no evidence"),
    ("stale", "This MCP server leads through a recorder that is gone"),
    ("remote", "This MCP server is reached by a URL and leaves no evidence"),
    ("unreadable", "This file or entry cannot be read"),
    ("client_rejects_file", "The client refuses this file"),
];

fn finding(server: &Server, strict: bool) -> Option<(&'static str, &'static str, String)> {
    let name = &server.name;
    match server.state {
        State::Unrecorded | State::Bridge | State::Other => {
            Some(("unrecorded", "warning", format!("calls of the MCP server {name} leave no evidence; run assay wrap")))
        }
        State::Stale => Some(("stale", "error", format!("the MCP server {name}: {}", server.problems.join("; ")))),
        State::Remote if strict => {
            Some(("remote", "warning", format!("the MCP server {name} is reached by a URL and leaves no evidence")))
        }
        State::Unreadable => {
            Some(("unreadable", "error", format!("the MCP server {name}: {}", server.problems.join("; "))))
        }
        State::Remote | State::Recorded | State::Guarded | State::Builtin => None,
    }
}

/// A path as a relative reference (RFC 3986).
fn encoded(path: &Path) -> String {
    use std::{fmt::Write as _, os::unix::ffi::OsStrExt as _};
    let mut uri = String::new();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
