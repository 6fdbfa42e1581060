//! Annotations, compared by what they come to.
//!
//! A hint that is not given has the default of the specification (MCP 2025-11-25, `ToolAnnotations`): not read-only,
//! destructive, not idempotent, open world. `destructiveHint` and `idempotentHint` mean something only where a tool is not
//! read-only.

use super::{ChangeKind, Changes, names, step, title};
use serde_json::{Map, Value};

/// Hints, their defaults, the value that claims what is harmless, and whether they mean something for a read-only tool.
const HINTS: [(&str, bool, bool, bool); 4] = [
    ("readOnlyHint", false, true, true),
    ("destructiveHint", true, false, false),
    ("idempotentHint", false, true, false),
    ("openWorldHint", true, false, true),
];

/// The value of a hint; `None` where it means nothing.
fn effective(annotations: Option<&Value>, hint: &str, default: bool, of_readers: bool) -> Option<bool> {
    let said = |name: &str, default: bool| annotations.and_then(|a| a.get(name)?.as_bool()).unwrap_or(default);
    (of_readers || !said("readOnlyHint", false)).then(|| said(hint, default))
}

/// Compares the annotations of a tool. Hints that moved the same way are one change.
pub(super) fn compare(c: &mut Changes<'_>, path: &str, old: Option<&Value>, new: Option<&Value>) {
    let (mut safer, mut riskier, mut same) = (Vec::new(), Vec::new(), Vec::new());
    for name in names(old, new) {
        let raw = |v: Option<&Value>| v.and_then(|v| v.get(name)).cloned();
        let (a, b) = (raw(old), raw(new));
        if a == b {
            continue;
        }
        let Some((_, default, harmless, of_readers)) = HINTS.iter().find(|(hint, ..)| *hint == name) else {
            let kind = if name == "title" { title(a.as_ref(), b.as_ref(), c.name) } else { ChangeKind::MemberChanged };
            c.add(kind, &step(path, name), a.as_ref(), b.as_ref());
            continue;
        };
        let not_a_hint = [&a, &b].into_iter().flatten().any(|v| !v.is_boolean());
        let value = |v| effective(v, name, *default, *of_readers);
        match (value(old), value(new)) {
            _ if not_a_hint => riskier.push(name),
            (Some(was), Some(is)) if was != is && is == *harmless => safer.push(name),
            (Some(was), Some(is)) if was != is => riskier.push(name),
            _ => same.push(name),
        }
    }
    for (kind, hints) in
        [(ChangeKind::ClaimsSafer, safer), (ChangeKind::ClaimsRiskier, riskier), (ChangeKind::ExplicitDefault, same)]
    {
        if hints.is_empty() {
            continue;
        }
        let only = |v: Option<&Value>| {
            let given = hints.iter().filter_map(|h| Some(((*h).to_owned(), v?.get(*h)?.clone())));
            Some(given.collect::<Map<_, _>>()).filter(|m| !m.is_empty()).map(Value::Object)
        };
        c.add(kind, path, only(old).as_ref(), only(new).as_ref());
    }
    if !matches!((old, new), (None | Some(Value::Object(_)), None | Some(Value::Object(_)))) {
        c.add(ChangeKind::MemberChanged, path, old, new);
    }
}
