//! Surfaces, changes and decisions: as JSON, and in words.

use crate::{
    approvals::{
        lockfile::named,
        observed::Seen,
        summary::{Standing, Summary},
    },
    cli::out::{Style, Tone, short},
    model::surface::{Approval, Difference, Outcome, Severity, State},
    surface::diff::{Group, groups},
    text::{counted, visible},
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Names of one group, and items, that are printed; `--json` has all.
const NAMES: usize = 6;
/// Characters of a text that are printed.
const TEXT: usize = 400;

pub fn difference(d: &Difference) -> Value {
    json!({
        "kind": d.kind.as_str(), "severity": d.severity().as_str(), "facet": d.facet, "name": d.name, "path": d.path,
        "before": d.before, "after": d.after, "new_context": d.new_context,
    })
}

fn group(g: &Group) -> Value {
    json!({
        "kind": g.kind.as_str(), "severity": g.severity().as_str(), "facet": g.facet, "path": g.path, "before": g.before,
        "after": g.after, "new_context": g.new_context, "names": g.names,
    })
}

/// What a comparison came to.
pub fn outcome(o: &Outcome) -> Value {
    let reason = match o {
        Outcome::Incomplete(why) | Outcome::Unreachable(why) => Some(why),
        Outcome::Identical | Outcome::Equivalent(_) | Outcome::Changed(_) => None,
    };
    json!({
        "outcome": o.word(), "reason": reason,
        "groups": groups(o.differences()).iter().map(group).collect::<Vec<_>>(),
        "changes": o.differences().iter().map(difference).collect::<Vec<_>>(),
    })
}

fn item(i: &Standing) -> Value {
    json!({
        "item": named(i.pin.facet, &i.pin.name), "facet": i.pin.facet, "name": i.pin.name, "hash": i.pin.hash,
        "state": i.state.as_str(), "approval_id": i.approval_id,
    })
}

/// An item with all that the server says of it; null where only its hash is kept.
pub fn definition(i: &Standing) -> Value {
    let mut value = item(i);
    value["content"] = json!(i.content);
    value
}

/// A server as it was seen, and how it stands.
pub fn server(seen: &Seen, s: &Summary) -> Value {
    let snapshot = &seen.snapshot;
    let states: serde_json::Map<String, Value> =
        s.states().into_iter().map(|(state, n)| (state.as_str().to_owned(), json!(n))).collect();
    json!({
        "server_id": snapshot.identity.id, "endpoint": snapshot.identity.endpoint,
        "server_info": snapshot.server_info, "context": snapshot.context, "seen_at": seen.at,
        "file": crate::files::text(&seen.path), "root": s.root.as_ref().ok(), "incomplete": s.root.as_ref().err(),
        "rules_hash": snapshot.rules_hash, "state": s.words(), "items_by_state": states, "comparison": outcome(&s.outcome),
    })
}

pub fn items(s: &Summary) -> Vec<Value> {
    s.items.iter().map(item).collect()
}

/// A decision.
pub fn approval(a: &Approval) -> Value {
    serde_json::to_value(a).unwrap_or_default()
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Critical | Severity::High => Tone::Bad,
        Severity::Medium => Tone::Warn,
        Severity::Low | Severity::Info => Tone::Dim,
    }
}

/// The tone of a server's or item's state.
pub fn state_tone(state: &str) -> Tone {
    match state {
        "approved" | "approved, incomplete" => Tone::Good,
        "first use" | "first use, incomplete" | "first_use" => Tone::Warn,
        "blocked" => Tone::Dim,
        _ => Tone::Bad,
    }
}

/// A text from outside, of bounded length; what is left out is said.
fn bounded(text: &str) -> String {
    let mut chars = visible(text).chars().collect::<Vec<_>>();
    let all = chars.len();
    if all <= TEXT {
        return chars.into_iter().collect();
    }
    chars.truncate(TEXT);
    let shown: String = chars.into_iter().collect();
    format!("{shown} … ({} more)", counted(all - TEXT, "character"))
}

/// Groups of changes, in words.
pub fn changes(out: &mut String, o: &Outcome, style: Style) {
    for g in groups(o.differences()) {
        let severity = format!("{:<8}", g.severity().as_str());
        let facet = g.facet.map(|f| f.to_string()).unwrap_or_default();
        let place = [facet.as_str(), g.path.as_str()].concat();
        let _ = write!(out, "  {} {}", style.paint(tone(g.severity()), &severity), g.kind);
        if !place.is_empty() {
            let _ = write!(out, "  {}", visible(&place));
        }
        if g.new_context {
            let _ = write!(out, "  (of a client that was not seen before)");
        }
        let names: Vec<String> = g.names.iter().filter(|n| !n.is_empty()).map(|n| short(n)).collect();
        if !names.is_empty() {
            let more = names.len().saturating_sub(NAMES);
            let _ = write!(out, "  {}: {}", counted(names.len(), "item"), names[..names.len() - more].join(", "));
            if more > 0 {
                let _ = write!(out, " and {more} more");
            }
        }
        out.push('\n');
        for (mark, text, tone) in [("-", &g.before, Tone::Bad), ("+", &g.after, Tone::Good)] {
            if let Some(text) = text {
                let _ = writeln!(out, "           {}", style.paint(tone, &format!("{mark} {}", bounded(text))));
            }
        }
    }
}

/// What a comparison came to, in words.
pub fn told(out: &mut String, o: &Outcome, style: Style) {
    match o {
        Outcome::Identical => {}
        Outcome::Equivalent(_) | Outcome::Changed(_) => changes(out, o, style),
        Outcome::Incomplete(why) | Outcome::Unreachable(why) => {
            let _ = writeln!(out, "  {}: {}", o.word(), visible(why));
        }
    }
}

/// Counts of items, in words: `12 approved, 1 changed`.
pub fn counts(s: &Summary) -> String {
    let count = |(state, n): (State, usize)| format!("{n} {}", state.as_str().replace('_', " "));
    let all: Vec<String> = s.states().into_iter().map(count).collect();
    if all.is_empty() { "no items".to_owned() } else { all.join(", ") }
}
