//! Differences of JSON Schemas, position by position (JSON Schema 2020-12; draft-07 where MCP servers still use it).

use super::{ChangeKind, Changes, names, step, title};
use serde_json::Value;
use std::collections::BTreeSet;

/// Whose schema it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// What a tool is given.
    Input,
    /// What it returns.
    Output,
}

/// Keywords whose value is a schema.
const ONE: [&str; 14] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$defs",
    "definitions",
];
/// Keywords whose value holds schemas by name.
const NAMED: [&str; 5] = ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
/// Keywords whose value holds schemas in a row.
const ROW: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords that a model reads as text.
const TEXTS: [&str; 8] = ["description", "enum", "default", "example", "examples", "const", "$comment", "enumNames"];
/// Keywords that allow less when they rise.
const LOWER: [&str; 6] = ["exclusiveMinimum", "minContains", "minItems", "minLength", "minProperties", "minimum"];
/// Keywords that allow less when they fall.
const UPPER: [&str; 6] = ["exclusiveMaximum", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum"];
/// Deepest that schemas are compared position by position: what is deeper is one change.
const MAX_DEPTH: usize = 64;

/// Whether a keyword says what it would mean if it were not there.
fn is_default(keyword: &str, value: Option<&Value>) -> bool {
    let Some(value) = value else { return true };
    match keyword {
        "additionalProperties" | "additionalItems" | "unevaluatedItems" | "unevaluatedProperties" => {
            value == &Value::Bool(true) || value.as_object().is_some_and(serde_json::Map::is_empty)
        }
        "uniqueItems" | "deprecated" | "readOnly" | "writeOnly" => value == &Value::Bool(false),
        "minItems" | "minLength" | "minProperties" => value.as_f64() == Some(0.0),
        "required" => value.as_array().is_some_and(Vec::is_empty),
        "properties" | "patternProperties" | "$defs" | "definitions" => {
            value.as_object().is_some_and(serde_json::Map::is_empty)
        }
        _ => false,
    }
}

/// Compares two schemas; either may be missing.
pub(super) fn compare(c: &mut Changes<'_>, of: Of, path: &str, old: Option<&Value>, new: Option<&Value>) {
    if old == new {
        return;
    }
    let from = c.all.len();
    if let (Some(Value::Object(_)), Some(Value::Object(_))) = (old, new) {
        schema(c, path, "", old, new, 0);
    } else {
        c.add(ChangeKind::SchemaChanged, path, old, new);
        texts(c, path, old, new, 0);
    }
    if of == Of::Output {
        // What a tool returns is no parameter: only what a model reads in it keeps its kind.
        for d in &mut c.all[from..] {
            if d.severity() == crate::model::surface::Severity::Medium {
                d.kind = ChangeKind::OutputSchema;
            }
        }
    }
}

fn schema(c: &mut Changes<'_>, path: &str, name: &str, old: Option<&Value>, new: Option<&Value>, depth: usize) {
    if old == new {
        return;
    }
    let objects = matches!((old, new), (Some(Value::Object(_)), Some(Value::Object(_))));
    if !objects || depth > MAX_DEPTH {
        c.add(ChangeKind::SchemaChanged, path, old, new);
        texts(c, path, old, new, depth);
        return;
    }
    for keyword in names(old, new) {
        let (a, b) = (old.and_then(|v| v.get(keyword)), new.and_then(|v| v.get(keyword)));
        if a != b {
            one_keyword(c, &step(path, keyword), keyword, (name, new, old), a, b, depth);
        }
    }
}

/// A keyword whose value is not the same. `around`: the name of the parameter, and the schemas that it is in.
fn one_keyword(
    c: &mut Changes<'_>,
    path: &str,
    keyword: &str,
    around: (&str, Option<&Value>, Option<&Value>),
    old: Option<&Value>,
    new: Option<&Value>,
    depth: usize,
) {
    if is_default(keyword, old) && is_default(keyword, new) {
        return c.add(ChangeKind::ExplicitDefault, path, old, new);
    }
    match keyword {
        "title" => {
            let name = if around.0.is_empty() { c.name } else { around.0 };
            let kind = title(old, new, name);
            c.add(kind, path, old, new);
        }
        "required" => required(c, path, around.1, around.2, old, new),
        "properties" => properties(c, path, old, new, depth),
        "enum" | "type" if same_set(old, new) => c.add(ChangeKind::Reordered, path, old, new),
        "type" => {
            let kind = if old.is_none() {
                ChangeKind::ConstraintAdded
            } else if new.is_none() {
                ChangeKind::ConstraintRemoved
            } else {
                ChangeKind::Retyped
            };
            c.add(kind, path, old, new);
        }
        "$ref" | "$dynamicRef" | "$schema" | "$id" => {
            let local = new.and_then(Value::as_str).is_none_or(|r| r.starts_with('#'));
            let names_itself = keyword.starts_with("$schema") || keyword == "$id";
            let kind = if local || names_itself { ChangeKind::SchemaChanged } else { ChangeKind::RemoteRef };
            c.add(kind, path, old, new);
        }
        "x-mcp-header" => c.add(ChangeKind::HeaderParam, path, old, new),
        "additionalProperties" | "unevaluatedProperties" if opens(old, new) => {
            c.add(ChangeKind::Opened, path, old, new);
        }
        _ if TEXTS.contains(&keyword) => c.add(ChangeKind::TextChanged, path, old, new),
        _ if LOWER.contains(&keyword) || UPPER.contains(&keyword) => {
            let kind = bound(keyword, old, new);
            c.add(kind, path, old, new);
        }
        _ if NAMED.contains(&keyword) => {
            for name in names(old, new) {
                let of = |v: Option<&Value>| v.and_then(|v| v.get(name)).cloned();
                schema(c, &step(path, name), name, of(old).as_ref(), of(new).as_ref(), depth + 1);
            }
        }
        _ if ROW.contains(&keyword) || keyword == "items" && new.is_some_and(Value::is_array) => {
            row(c, path, keyword, old, new, depth);
        }
        _ if ONE.contains(&keyword) => schema(c, path, around.0, old, new, depth + 1),
        _ => {
            let kind = match (old, new) {
                (None, _) => ChangeKind::ConstraintAdded,
                (_, None) => ChangeKind::ConstraintRemoved,
                _ => ChangeKind::SchemaChanged,
            };
            c.add(kind, path, old, new);
            // What no schema knows may be read by a model all the same.
            texts(c, path, old, new, depth);
        }
    }
}

fn opens(old: Option<&Value>, new: Option<&Value>) -> bool {
    let closed = |v: Option<&Value>| v == Some(&Value::Bool(false));
    closed(old) && !closed(new)
}

fn bound(keyword: &str, old: Option<&Value>, new: Option<&Value>) -> ChangeKind {
    let number = |v: Option<&Value>| v.and_then(Value::as_f64);
    match (old, new) {
        (None, _) => ChangeKind::ConstraintAdded,
        (_, None) => ChangeKind::ConstraintRemoved,
        _ => match (number(old), number(new)) {
            (Some(a), Some(b)) if (b > a) == LOWER.contains(&keyword) => ChangeKind::Narrowed,
            (Some(_), Some(_)) => ChangeKind::Widened,
            _ => ChangeKind::SchemaChanged,
        },
    }
}

fn same_set(old: Option<&Value>, new: Option<&Value>) -> bool {
    let set = |v: &Value| Some(v.as_array()?.iter().map(Value::to_string).collect::<BTreeSet<_>>());
    old.and_then(set).is_some_and(|a| new.and_then(set) == Some(a))
}

fn required(
    c: &mut Changes<'_>,
    path: &str,
    new_schema: Option<&Value>,
    old_schema: Option<&Value>,
    old: Option<&Value>,
    new: Option<&Value>,
) {
    if same_set(old, new) {
        return c.add(ChangeKind::Reordered, path, old, new);
    }
    let set = |v: Option<&Value>| -> BTreeSet<String> {
        v.and_then(Value::as_array).into_iter().flatten().filter_map(|n| n.as_str().map(str::to_owned)).collect()
    };
    let (a, b) = (set(old), set(new));
    let in_both = |name: &str| {
        let has = |schema: Option<&Value>| schema.and_then(|s| s.get("properties")?.get(name)).is_some();
        has(old_schema) == has(new_schema)
    };
    // A parameter that came or went says itself whether it is required.
    for name in b.difference(&a).filter(|n| in_both(n)) {
        c.add(ChangeKind::ParameterRequired, &step(path, name), None, Some(&Value::Bool(true)));
    }
    for name in a.difference(&b).filter(|n| in_both(n)) {
        c.add(ChangeKind::ParameterOptional, &step(path, name), Some(&Value::Bool(true)), None);
    }
}

fn properties(c: &mut Changes<'_>, path: &str, old: Option<&Value>, new: Option<&Value>, depth: usize) {
    for name in names(old, new) {
        let of = |v: Option<&Value>| v.and_then(|v| v.get(name)).cloned();
        let (a, b) = (of(old), of(new));
        let path = step(path, name);
        match (&a, &b) {
            (None, Some(_)) => {
                c.add(ChangeKind::ParameterAdded, &path, None, b.as_ref());
                texts(c, &path, None, b.as_ref(), depth);
            }
            (Some(_), None) => c.add(ChangeKind::ParameterRemoved, &path, a.as_ref(), None),
            _ => schema(c, &path, name, a.as_ref(), b.as_ref(), depth + 1),
        }
    }
}

/// Schemas in a row. Where their number changed, those that both have are compared as if the others had come last.
fn row(c: &mut Changes<'_>, path: &str, keyword: &str, old: Option<&Value>, new: Option<&Value>, depth: usize) {
    let list = |v: Option<&Value>| v.and_then(Value::as_array).cloned().unwrap_or_default();
    let (a, b) = (list(old), list(new));
    if keyword != "prefixItems" && same_set(old, new) {
        return c.add(ChangeKind::Reordered, path, old, new);
    }
    if a.len() != b.len() {
        let more = b.len() > a.len();
        let kind = match keyword {
            "anyOf" | "oneOf" if !a.is_empty() && !b.is_empty() => {
                if more {
                    ChangeKind::Widened
                } else {
                    ChangeKind::Narrowed
                }
            }
            _ if more => ChangeKind::ConstraintAdded,
            _ => ChangeKind::ConstraintRemoved,
        };
        c.add(kind, path, old, new);
    }
    for n in 0..a.len().max(b.len()) {
        let path = step(path, &n.to_string());
        match (a.get(n), b.get(n)) {
            (Some(a), Some(b)) => schema(c, &path, "", Some(a), Some(b), depth + 1),
            (None, b) => texts(c, &path, None, b, depth),
            _ => {}
        }
    }
}

/// What a model reads in a part that came, or that changed as a whole: each text that was not there, and what leads out of
/// the schema.
fn texts(c: &mut Changes<'_>, path: &str, old: Option<&Value>, new: Option<&Value>, depth: usize) {
    if depth > MAX_DEPTH || old == new {
        return;
    }
    match new {
        Some(Value::Object(members)) => {
            for (name, b) in members {
                let a = old.and_then(|v| v.get(name));
                let path = step(path, name);
                if a == Some(b) {
                } else if TEXTS.contains(&name.as_str()) && !b.is_object() {
                    c.add(ChangeKind::TextChanged, &path, a, Some(b));
                } else if name == "x-mcp-header" {
                    c.add(ChangeKind::HeaderParam, &path, a, Some(b));
                } else if name == "$ref" && b.as_str().is_some_and(|r| !r.starts_with('#')) {
                    c.add(ChangeKind::RemoteRef, &path, a, Some(b));
                } else {
                    texts(c, &path, a, Some(b), depth + 1);
                }
            }
        }
        Some(Value::Array(all)) => {
            for (n, b) in all.iter().enumerate() {
                texts(c, &step(path, &n.to_string()), old.and_then(|v| v.get(n)), Some(b), depth + 1);
            }
        }
        _ => {}
    }
}
