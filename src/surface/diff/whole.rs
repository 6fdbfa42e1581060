//! A surface against what is approved, and two surfaces against each other.

use super::{folded, items, shown};
use crate::model::surface::{
    ChangeKind, Context, Difference, Facet, Identity, InForce, Item, List, Outcome, Severity, Snapshot, State, Surface,
    Value,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is approved, and what is known of it.
#[derive(Debug, Clone, Default)]
pub struct Approved {
    /// What the decisions come to.
    pub in_force: InForce,
    /// The content of what was approved, by hash; what is not here differs as a whole.
    pub content: HashMap<String, Vec<u8>>,
    /// The contexts in which surfaces were approved, and the names that the newest approval there knows.
    pub contexts: BTreeMap<Context, BTreeSet<(Facet, String)>>,
}

/// How much of two items is the same: 1 for the same but for the name.
fn likeness(a: &Item, b: &Item) -> f64 {
    let parts = |item: &Item| {
        let mut out = HashMap::new();
        if let Ok(serde_json::Value::Object(mut members)) = serde_json::from_slice(&item.content) {
            members.remove("name");
            leaves("", &serde_json::Value::Object(members), &mut out);
        }
        out
    };
    let (a, b) = (parts(a), parts(b));
    let weight = |all: &HashMap<String, usize>| all.values().sum::<usize>();
    let both: usize = a.iter().filter(|(k, _)| b.contains_key(*k)).map(|(_, n)| n).sum();
    let all = weight(&a) + weight(&b);
    if all == 0 { 0.0 } else { 2.0 * both as f64 / all as f64 }
}

/// Words of texts and values, each with its place, and how long they are.
fn leaves(path: &str, value: &serde_json::Value, out: &mut HashMap<String, usize>) {
    use serde_json::Value as V;
    match value {
        V::Object(all) => all.iter().for_each(|(k, v)| leaves(&format!("{path}/{k}"), v, out)),
        V::Array(all) => all.iter().for_each(|v| leaves(&format!("{path}/*"), v, out)),
        V::String(text) => {
            for word in text.split_whitespace() {
                *out.entry(format!("{path}={word}")).or_default() += word.len();
            }
        }
        other => *out.entry(format!("{path}={other}")).or_default() += other.to_string().len(),
    }
}

/// A removed and an added item that are so much alike are one that was renamed.
const ALIKE: f64 = 0.85;
/// So many removed and added items of a facet are compared with each other.
const COMPARED: usize = 200;

fn whole(kind: ChangeKind, item: &Item, new_context: bool) -> Difference {
    let content = serde_json::from_slice::<serde_json::Value>(&item.content).ok();
    let gone = matches!(kind, ChangeKind::Removed);
    let text = content.as_ref().map(shown);
    Difference {
        kind,
        facet: Some(item.facet),
        name: item.name.clone(),
        path: String::new(),
        before: text.clone().filter(|_| gone),
        after: text.filter(|_| !gone),
        new_context,
    }
}

/// What came and what went, with what was renamed found among them.
fn moved(added: &[&Item], removed: &[&Item], known: &[&str], new_context: bool, out: &mut Vec<Difference>) {
    let mut gone: Vec<Option<&Item>> = removed.iter().map(|i| Some(*i)).collect();
    let few = added.len() <= COMPARED && removed.len() <= COMPARED;
    let looks: HashMap<String, &str> = known.iter().map(|n| (seen_as(n), *n)).collect();
    for item in added {
        if let Some(like) = looks.get(&seen_as(&item.name)).filter(|n| **n != item.name) {
            out.push(Difference {
                before: serde_json::to_string(like).ok(),
                ..whole(ChangeKind::LookalikeName, item, new_context)
            });
        }
        let twin = gone.iter_mut().filter(|_| few).find(|g| g.is_some_and(|g| likeness(g, item) >= ALIKE));
        match twin.and_then(Option::take) {
            Some(old) => out.push(Difference {
                before: serde_json::to_string(&old.name).ok(),
                ..whole(ChangeKind::Renamed, item, new_context)
            }),
            None => out.push(whole(ChangeKind::Added, item, new_context)),
        }
    }
    out.extend(gone.into_iter().flatten().map(|item| whole(ChangeKind::Removed, item, false)));
}

/// What a name looks like to a person (UTS #39, skeleton), without case and without what separates words.
fn seen_as(name: &str) -> String {
    unicode_security::skeleton(&folded(&unicode_security::skeleton(name).collect::<String>())).collect()
}

/// An item that nobody can approve.
fn unclear(item: &Item) -> Difference {
    let kind = match item.ambiguity {
        Some(crate::model::surface::Ambiguity::TwoDefinitions) => ChangeKind::DuplicateName,
        _ => ChangeKind::Ambiguous,
    };
    whole(kind, item, false)
}

/// A facet that is one value, as an item of it.
fn as_item(facet: Facet, value: &Value) -> Item {
    Item { facet, name: String::new(), hash: value.hash, content: value.content.clone(), ambiguity: value.ambiguity }
}

/// The items of a facet; of one that is a value, that.
fn listed(surface: &Surface, facet: Facet) -> Vec<Item> {
    match facet {
        Facet::Capabilities => surface.capabilities.iter().map(|v| as_item(facet, v)).collect(),
        Facet::Instructions => surface.instructions.iter().map(|v| as_item(facet, v)).collect(),
        list => surface.list(list).items().to_vec(),
    }
}

const FACETS: [Facet; 6] = [
    Facet::Capabilities,
    Facet::Instructions,
    Facet::Prompts,
    Facet::ResourceTemplates,
    Facet::Resources,
    Facet::Tools,
];

/// Whether items that are not there are really gone.
fn is_whole(surface: &Surface, facet: Facet) -> bool {
    match facet {
        Facet::Capabilities | Facet::Instructions => surface.capabilities.is_some(),
        list => matches!(surface.list(list), List::Complete(_) | List::NotOffered),
    }
}

fn values(facet: Facet, old: Option<&Item>, new: Option<&Item>, out: &mut Vec<Difference>) {
    let read = |i: Option<&Item>| i.and_then(|i| serde_json::from_slice::<serde_json::Value>(&i.content).ok());
    let (old, new) = (read(old), read(new));
    let mut c = super::Changes { facet, name: "", all: Vec::new() };
    if facet == Facet::Instructions {
        c.add(ChangeKind::TextChanged, "", old.as_ref(), new.as_ref());
    } else {
        capabilities(&mut c, "", old.as_ref(), new.as_ref(), 0);
    }
    out.append(&mut c.all);
}

fn capabilities(
    c: &mut super::Changes<'_>,
    path: &str,
    old: Option<&serde_json::Value>,
    new: Option<&serde_json::Value>,
    depth: usize,
) {
    use serde_json::Value::{Bool, Object};
    match (old, new) {
        _ if old == new => {}
        (Some(Object(_)), Some(Object(_))) if depth < 32 => {
            for name in super::names(old, new) {
                let of = |v: Option<&serde_json::Value>| v.and_then(|v| v.get(name)).cloned();
                capabilities(c, &super::step(path, name), of(old).as_ref(), of(new).as_ref(), depth + 1);
            }
        }
        // A capability that is false is none.
        (None, Some(Bool(false))) | (Some(Bool(false)), None) => c.add(ChangeKind::ExplicitDefault, path, old, new),
        (None | Some(Bool(false)), _) => c.add(ChangeKind::CapabilityAdded, path, old, new),
        (_, None | Some(Bool(false))) => c.add(ChangeKind::CapabilityRemoved, path, old, new),
        _ => c.add(ChangeKind::MemberChanged, path, old, new),
    }
}

/// What differs between two surfaces of one server, the first of which is taken as what is known.
#[must_use]
pub fn between(before: &Surface, after: &Surface) -> Vec<Difference> {
    let mut out = Vec::new();
    for facet in FACETS {
        let (old, new) = (listed(before, facet), listed(after, facet));
        if facet.members().is_none() {
            if old.first().map(|i| i.hash) != new.first().map(|i| i.hash) {
                values(facet, old.first(), new.first(), &mut out);
            }
            continue;
        }
        let by_name = |all: &[Item]| -> BTreeMap<String, Vec<usize>> {
            let mut out: BTreeMap<String, Vec<usize>> = BTreeMap::new();
            for (n, item) in all.iter().enumerate() {
                out.entry(item.name.clone()).or_default().push(n);
            }
            out
        };
        let (a, b) = (by_name(&old), by_name(&new));
        let mut added = Vec::new();
        for (name, places) in &b {
            for item in places.iter().map(|n| &new[*n]) {
                let known = a.get(name);
                let same = |n: &usize| old[*n].hash == item.hash && old[*n].ambiguity == item.ambiguity;
                if known.is_some_and(|places| places.iter().any(same)) {
                } else if item.ambiguity.is_some() {
                    out.push(unclear(item));
                } else if let Some(n) = known.and_then(|places| places.first()) {
                    out.extend(items(&old[*n], item));
                } else {
                    added.push(item);
                }
            }
        }
        let whole = is_whole(after, facet);
        let removed: Vec<&Item> = old.iter().filter(|i| whole && !b.contains_key(&i.name)).collect();
        let known: Vec<&str> = a.keys().map(String::as_str).collect();
        moved(&added, &removed, &known, false, &mut out);
    }
    out
}

/// What a surface that was seen comes to, against what is approved. What is tolerated leaves it `equivalent`; what is
/// missing counts only in a context in which it was approved.
#[must_use]
pub fn against(approved: &Approved, seen: &Snapshot, rules: &crate::surface::rules::Rules) -> Outcome {
    let mut out = Vec::new();
    if let Some(other) = &approved.in_force.other_endpoint {
        let text = |s: &Identity| serde_json::to_string(&s.endpoint).ok();
        out.push(Difference {
            kind: ChangeKind::EndpointChanged,
            facet: None,
            name: String::new(),
            path: String::new(),
            before: serde_json::to_string(other).ok(),
            after: text(&seen.identity),
            new_context: false,
        });
    }
    let known_context = approved.contexts.contains_key(&seen.context);
    for facet in FACETS.into_iter().filter(|f| rules.pins(*f)) {
        of_facet(approved, seen, facet, known_context, &mut out);
    }
    let (tolerated, drift): (Vec<_>, Vec<_>) = out.into_iter().partition(|d| rules.tolerates(d.kind));
    if !drift.is_empty() {
        return Outcome::Changed(drift.into_iter().chain(tolerated).collect());
    }
    match seen.surface.root(&rules.left_out()) {
        Err(why) => Outcome::Incomplete(why.to_string()),
        Ok(_) if tolerated.is_empty() => Outcome::Identical,
        Ok(_) => Outcome::Equivalent(tolerated),
    }
}

fn of_facet(approved: &Approved, seen: &Snapshot, facet: Facet, known_context: bool, out: &mut Vec<Difference>) {
    let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, name, hash, _) in approved.in_force.approved().filter(|(f, ..)| *f == facet) {
        known.entry(name).or_default().push(hash);
    }
    let content = |name: &str, hash: &str| {
        approved.content.get(hash).map(|content| Item {
            facet,
            name: name.to_owned(),
            hash: crate::canon::Digest::Jcs(crate::canon::sha256(content)),
            content: content.clone(),
            ambiguity: None,
        })
    };
    let now = listed(&seen.surface, facet);
    let mut added = Vec::new();
    for item in &now {
        match approved.in_force.judge(item) {
            State::Ambiguous => out.push(unclear(item)),
            State::Changed => {
                let old =
                    known.get(item.name.as_str()).into_iter().flatten().find_map(|hash| content(&item.name, hash));
                match old {
                    Some(old) if facet.members().is_none() => values(facet, Some(&old), Some(item), out),
                    Some(old) => out.extend(items(&old, item)),
                    None if facet.members().is_none() => values(facet, None, Some(item), out),
                    None => out.push(whole(ChangeKind::MemberChanged, item, false)),
                }
            }
            State::New if facet.members().is_none() => values(facet, None, Some(item), out),
            State::New => added.push(item),
            _ => {}
        }
    }
    let names: BTreeSet<&str> = now.iter().map(|i| i.name.as_str()).collect();
    // What is missing counts only where it was approved.
    let here = approved.contexts.get(&seen.context);
    let is_known = |name: &str| here.is_some_and(|names| names.contains(&(facet, name.to_owned())));
    let gone: Vec<Item> = known
        .iter()
        .filter(|(name, _)| is_known(name) && is_whole(&seen.surface, facet) && !names.contains(*name))
        .map(|(name, hashes)| {
            hashes.iter().find_map(|hash| content(name, hash)).unwrap_or_else(|| Item {
                facet,
                name: (*name).to_owned(),
                hash: crate::canon::Digest::Jcs([0; 32]),
                content: Vec::new(),
                ambiguity: None,
            })
        })
        .collect();
    if facet.members().is_none() {
        if let Some(old) = gone.first() {
            values(facet, Some(old), None, out);
        }
        return;
    }
    let before: Vec<&str> = known.keys().copied().collect();
    moved(&added, &gone.iter().collect::<Vec<_>>(), &before, !known_context && !approved.contexts.is_empty(), out);
}

/// The severity of the worst of some changes.
#[must_use]
pub fn worst(differences: &[Difference]) -> Option<Severity> {
    differences.iter().map(Difference::severity).max()
}
