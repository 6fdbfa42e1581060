//! What differs between two definitions of an item, and between a surface and what is approved.
//!
//! Changes have a type ([`ChangeKind`]), so that a person sees what matters and what does not. Equal changes of many
//! items are one [`Group`]: that is what an upgrade of a server is.

mod annotations;
mod group;
mod listed;
mod schema;
mod whole;

pub use group::{Group, groups};
pub use listed::{changes, changes_hash};
pub use whole::{Approved, against, between, worst};

use crate::{
    canon::Digest,
    model::surface::{ChangeKind, Difference, Facet, Item},
    text,
};
use serde_json::Value;

/// Text of a value in a difference is kept up to this many bytes; a longer one is cut, and says so by ending in `…`.
const MAX_SHOWN: usize = 16 * 1024;

/// Where changes of one item are collected.
struct Changes<'a> {
    facet: Facet,
    name: &'a str,
    all: Vec<Difference>,
}

impl Changes<'_> {
    fn add(&mut self, kind: ChangeKind, path: &str, before: Option<&Value>, after: Option<&Value>) {
        self.all.push(Difference {
            kind,
            facet: Some(self.facet),
            name: self.name.to_owned(),
            path: path.to_owned(),
            before: before.map(shown),
            after: after.map(shown),
            new_context: false,
        });
        let (had, has) = (before.is_some_and(holds_hidden), after.is_some_and(holds_hidden));
        if has && !had && kind != ChangeKind::HiddenCharacters {
            self.add(ChangeKind::HiddenCharacters, path, before, after);
        }
    }
}

/// Whether a text in a value holds what is not seen. Line ends and tabs are seen as what they are.
fn holds_hidden(value: &Value) -> bool {
    match value {
        Value::String(s) => {
            let plain: String = s.chars().filter(|c| !matches!(c, '\n' | '\r' | '\t')).collect();
            text::visible(&plain) != plain
        }
        Value::Array(all) => all.iter().any(holds_hidden),
        Value::Object(all) => all.values().any(holds_hidden),
        _ => false,
    }
}

fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > MAX_SHOWN {
        let mut at = MAX_SHOWN;
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.truncate(at);
        text.push('…');
    }
    text
}

/// A step of a JSON pointer (RFC 6901).
fn step(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// A name as people compare names: without case and without what separates words.
fn folded(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Whether a title only repeats a name, or is one word.
fn is_identifier(title: Option<&Value>, name: &str) -> bool {
    let Some(Value::String(title)) = title else { return title.is_none() };
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    title.len() <= 64 && title.chars().all(word) || folded(title) == folded(name)
}

/// The kind of a change of a title of what is called `name`.
fn title(before: Option<&Value>, after: Option<&Value>, name: &str) -> ChangeKind {
    let identifiers = is_identifier(before, name) && is_identifier(after, name);
    if identifiers { ChangeKind::Title } else { ChangeKind::TextChanged }
}

/// The names of the members of two objects.
fn names<'v>(before: Option<&'v Value>, after: Option<&'v Value>) -> Vec<&'v str> {
    let of = |v: Option<&'v Value>| v.and_then(Value::as_object).into_iter().flat_map(|o| o.keys().map(String::as_str));
    let mut all: Vec<&str> = of(before).chain(of(after)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What changed from one definition of an item to another. What differs in its bytes alone is a `member_changed` of all of
/// it, so two hashes that differ always give at least one change.
#[must_use]
pub fn items(before: &Item, after: &Item) -> Vec<Difference> {
    let mut changes = Changes { facet: after.facet, name: &after.name, all: Vec::new() };
    if before.hash == after.hash {
        return Vec::new();
    }
    let read = |item: &Item| serde_json::from_slice::<Value>(&item.content).ok();
    let (old, new) = (read(before), read(after));
    if let (Some(Value::Object(_)), Some(Value::Object(_))) = (&old, &new) {
        for name in names(old.as_ref(), new.as_ref()) {
            let (old, new) = (old.as_ref().and_then(|v| v.get(name)), new.as_ref().and_then(|v| v.get(name)));
            if old != new {
                member(&mut changes, name, old, new);
            }
        }
    }
    let raw = matches!(before.hash, Digest::Raw(..)) || matches!(after.hash, Digest::Raw(..));
    if changes.all.is_empty() || raw && changes.all.iter().all(|d| d.severity() <= crate::model::surface::Severity::Low)
    {
        let whole = |item: &Item| Value::String(String::from_utf8_lossy(&item.content).into_owned());
        let known = |item: &Item| (!item.content.is_empty()).then(|| whole(item));
        changes.add(ChangeKind::MemberChanged, "", known(before).as_ref(), known(after).as_ref());
    }
    changes.all
}

/// A member of an item that is not the same.
fn member(c: &mut Changes<'_>, name: &str, old: Option<&Value>, new: Option<&Value>) {
    let path = &step("", name);
    match (c.facet, name) {
        (_, "description") => c.add(ChangeKind::TextChanged, path, old, new),
        (_, "title") => {
            let kind = title(old, new, c.name);
            c.add(kind, path, old, new);
        }
        (_, "_meta") => c.add(ChangeKind::MetaChanged, path, old, new),
        (_, "icons") => {
            let kind = if hosts(new).iter().all(|h| hosts(old).contains(h)) {
                ChangeKind::Icons
            } else {
                ChangeKind::IconHost
            };
            c.add(kind, path, old, new);
        }
        (Facet::Tools, "inputSchema") => schema::compare(c, schema::Of::Input, path, old, new),
        (Facet::Tools, "outputSchema") => schema::compare(c, schema::Of::Output, path, old, new),
        (Facet::Tools, "annotations") => annotations::compare(c, path, old, new),
        (Facet::Tools, "execution") => c.add(ChangeKind::Execution, path, old, new),
        (Facet::Prompts, "arguments") => arguments(c, path, old, new),
        (Facet::Resources | Facet::ResourceTemplates, "mimeType") => c.add(ChangeKind::MimeType, path, old, new),
        (Facet::Resources | Facet::ResourceTemplates, "name") => {
            let kind = title(old, new, "");
            c.add(kind, path, old, new);
        }
        _ => c.add(ChangeKind::MemberChanged, path, old, new),
    }
}

/// The hosts that icons come from; one that is in the item itself (`data:`) comes from nowhere.
fn hosts(icons: Option<&Value>) -> Vec<String> {
    let sources = icons.and_then(Value::as_array).into_iter().flatten().filter_map(|i| i.get("src")?.as_str());
    let host = |src: &str| {
        src.split_once("://").map(|(scheme, rest)| {
            format!("{scheme}://{}", rest.split(['/', '?', '#']).next().unwrap_or_default()).to_lowercase()
        })
    };
    sources.filter_map(host).collect()
}

/// The arguments of a prompt, by name.
fn arguments(c: &mut Changes<'_>, path: &str, old: Option<&Value>, new: Option<&Value>) {
    let list = |v: Option<&Value>| v.and_then(Value::as_array).cloned().unwrap_or_default();
    let (old_list, new_list) = (list(old), list(new));
    let find =
        |all: &[Value], name: &str| all.iter().find(|a| a.get("name").and_then(Value::as_str) == Some(name)).cloned();
    let named = |a: &Value| a.get("name").and_then(Value::as_str).map(str::to_owned);
    let mut all: Vec<String> = old_list.iter().chain(&new_list).filter_map(named).collect();
    all.sort();
    all.dedup();
    let known = c.all.len();
    for name in &all {
        let (a, b) = (find(&old_list, name), find(&new_list, name));
        if a == b {
            continue;
        }
        let path = step(path, name);
        if a.is_none() || b.is_none() {
            c.add(ChangeKind::PromptArguments, &path, a.as_ref(), b.as_ref());
        }
        for member in names(a.as_ref(), b.as_ref()) {
            let (old, new) = (a.as_ref().and_then(|v| v.get(member)), b.as_ref().and_then(|v| v.get(member)));
            let kind = match member {
                _ if old == new => continue,
                "description" => ChangeKind::TextChanged,
                "title" => title(old, new, name),
                _ if a.is_none() || b.is_none() => continue,
                _ => ChangeKind::PromptArguments,
            };
            c.add(kind, &step(&path, member), old, new);
        }
    }
    if c.all.len() == known {
        c.add(ChangeKind::PromptArguments, path, old, new);
    }
}

#[cfg(test)]
mod tests;
