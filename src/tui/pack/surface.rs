//! What the server of a pack offered, item by item, how each stood with the decisions in the pack, and what differs.

use super::rows::{TextRow, wrapped};
use crate::{
    model::{
        pack::{SURFACE, SURFACE_APPROVED},
        reading,
        surface::{Facet, Item, List, Snapshot, State, approved::ApprovedFile},
    },
    pack::verify::source::PackDir,
    surface::diff::{groups, items},
    text::counted,
    tui::{
        msg::{Effect, Job, Ticket},
        theme::Role,
    },
};
use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

/// Longest document that is read, in bytes.
const MAX_DOCUMENT: u64 = 64 << 20;
/// Columns that texts are wrapped at: the list scrolls, and is not read anew when the window changes.
const WIDTH: u16 = 100;

/// Reads it beside the screen; `None` where the pack has no surface of this version.
pub(super) fn read(ticket: &Ticket<Option<Vec<TextRow>>>, dir: PathBuf) -> Effect {
    Effect::Start(Job::new(ticket, "surface", move |teller| teller.tell(rows(&dir))))
}

fn document(dir: &Path, name: &str) -> Option<Vec<u8>> {
    let (file, len) = PackDir::open(dir).ok()?.open_file(name).ok()?;
    let mut bytes = Vec::new();
    file.take(len.min(MAX_DOCUMENT)).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn rows(dir: &Path) -> Option<Vec<TextRow>> {
    let seen = Snapshot::read(&document(dir, SURFACE)?).ok()?;
    let decided = document(dir, SURFACE_APPROVED);
    let decided = decided.and_then(|bytes| reading::read::<ApprovedFile>(&bytes).ok());
    let root = seen.root().map_or_else(|why| why.to_string(), |root| format!("root {root}"));
    let mut out = vec![TextRow::text(format!("{}: {root}", seen.identity.id), Role::Strong)];
    let about = match &decided {
        Some(decided) => {
            format!("{} in force when the session ended", counted(decided.items.len(), "decided definition"))
        }
        None => "The session was compared with no decision: nothing here is approved or refused.".to_owned(),
    };
    out.push(TextRow::text(about, Role::Dim));
    for facet in [Facet::Instructions, Facet::Tools, Facet::Prompts, Facet::Resources, Facet::ResourceTemplates] {
        let (said, all) = listed(&seen, facet);
        if said.is_empty() {
            continue;
        }
        out.push(TextRow::default());
        out.push(TextRow::text(format!("{facet}: {said}"), Role::Strong));
        for item in &all {
            item_rows(item, decided.as_ref(), &mut out);
        }
    }
    Some(out)
}

/// What is known of a part in words, nothing for what the server does not have; and its items.
fn listed(seen: &Snapshot, facet: Facet) -> (String, Vec<Item>) {
    if facet == Facet::Instructions {
        let one = seen.surface.instructions.iter().map(|v| Item {
            facet,
            name: String::new(),
            hash: v.hash,
            content: v.content.clone(),
            ambiguity: v.ambiguity,
        });
        let all: Vec<Item> = one.collect();
        return (if all.is_empty() { String::new() } else { "there are some".to_owned() }, all);
    }
    let list = seen.surface.list(facet);
    let count = counted(list.items().len(), "item");
    let said = match list {
        List::Unknown => "nobody asked".to_owned(),
        List::NotOffered => String::new(),
        List::Incomplete(_, why) => format!("{count}, incomplete: {why}"),
        List::Complete(_) => count,
    };
    (said, list.items().to_vec())
}

/// How a definition stands with what was decided.
fn state(item: &Item, decided: &ApprovedFile) -> State {
    let hash = item.hash.to_string();
    let mut of_name = decided.items.iter().filter(|d| d.facet == item.facet && d.name == item.name);
    match of_name.clone().find(|d| d.hash == hash) {
        _ if item.ambiguity.is_some() => State::Ambiguous,
        Some(known) => known.state,
        None if of_name.any(|d| d.state != State::Blocked) => State::Changed,
        None => State::New,
    }
}

fn item_rows(item: &Item, decided: Option<&ApprovedFile>, out: &mut Vec<TextRow>) {
    let state = decided.map(|decided| state(item, decided));
    let (word, role) = match state {
        None => ("seen", Role::Dim),
        Some(state @ State::Approved) => (state.as_str(), Role::Good),
        Some(state @ State::FirstUse) => (state.as_str(), Role::Warn),
        Some(state @ State::Blocked) => (state.as_str(), Role::Dim),
        Some(state) => (state.as_str(), Role::Bad),
    };
    let name = if item.name.is_empty() { item.facet.to_string() } else { item.name.clone() };
    let mut row = TextRow::new(vec![(format!("  {:<11}", word.replace('_', " ")), role), (name, Role::Text)]);
    row.value = item.hash.to_string();
    row.first = matches!(state, Some(s) if !s.passes());
    out.push(row);
    let before = decided.into_iter().flat_map(|d| &d.items).find(|d| {
        state == Some(State::Changed) && d.facet == item.facet && d.name == item.name && d.state != State::Blocked
    });
    let Some(content) = before.and_then(|d| d.content.as_ref()) else { return };
    let old = Item {
        hash: crate::canon::Digest::Jcs(crate::canon::sha256(content.as_bytes())),
        content: content.clone().into_bytes(),
        ..item.clone()
    };
    for group in groups(&items(&old, item)) {
        let what = format!("{} {}  {}", group.severity(), group.kind, group.path);
        out.push(TextRow::text(format!("    {}", what.trim_end()), Role::Warn));
        for (mark, text, role) in [("- ", &group.before, Role::Bad), ("+ ", &group.after, Role::Good)] {
            out.extend(text.iter().flat_map(|text| wrapped(&format!("{mark}{text}"), "      ", WIDTH, role)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::surface::{
        Decision, Identity, InForce, Surface,
        approval::{APPROVAL_TYPE, APPROVAL_VERSION, Approval, Approver, Facets, Pin, SignedBy},
    };

    fn tool(text: &str) -> Item {
        Item::of(Facet::Tools, format!(r#"{{"description":"{text}","name":"t"}}"#).as_bytes(), &[]).unwrap()
    }

    fn approval(item: &Item) -> Approval {
        let none = String::new;
        Approval {
            approval_id: "sap_0123456789abcdef".into(),
            approver: Approver { auth: none(), name: none(), via: none() },
            at: crate::model::WallTime::from_millis(0),
            changes: Vec::new(),
            changes_hash: None,
            contexts: Vec::new(),
            decision: Decision::Approve,
            endpoint: "sha256:e".into(),
            facets: Facets::default(),
            hash: none(),
            items: vec![Pin { facet: item.facet, hash: item.hash.to_string(), name: item.name.clone() }],
            prev_hash: none(),
            previous: None,
            reason: None,
            root: None,
            rules_hash: None,
            seq: 0,
            server_id: "s".into(),
            signature: none(),
            signer: SignedBy { fingerprint: none(), id: none(), public_key: none() },
            r#type: APPROVAL_TYPE.into(),
            v: APPROVAL_VERSION,
        }
    }

    fn said(rows: &[TextRow]) -> String {
        let line = |row: &TextRow| row.pieces.iter().map(|(text, _)| text.as_str()).collect::<String>();
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_changed_is_shown_beside_what_was_approved() {
        let tmp = tempfile::tempdir().unwrap();
        assert!(rows(tmp.path()).is_none());
        let identity = Identity { endpoint: "sha256:e".into(), id: "s".into() };
        let surface = Surface {
            lists: [(Facet::Tools, List::complete(vec![tool("sends")])), (Facet::Prompts, List::NotOffered)].into(),
            ..Surface::default()
        };
        let seen = Snapshot { identity: identity.clone(), surface, ..Snapshot::default() };
        std::fs::write(tmp.path().join("pack_manifest.json"), "{}").unwrap();
        std::fs::write(tmp.path().join(SURFACE), seen.document().unwrap()).unwrap();
        let alone = said(&rows(tmp.path()).unwrap());
        assert!(alone.contains("compared with no decision") && alone.contains("seen       t"), "{alone}");
        let was = tool("reads");
        let in_force = InForce::of(&[approval(&was)], &identity);
        let file = ApprovedFile::of(&identity, &in_force, &|_| Some(was.content.clone()));
        std::fs::write(tmp.path().join(SURFACE_APPROVED), file.to_bytes().unwrap()).unwrap();
        let shown = rows(tmp.path()).unwrap();
        let text = said(&shown);
        for part in ["changed    t", "high text_changed  /description", "- \"reads\"", "+ \"sends\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(shown.iter().any(|row| row.first), "n stops at it");
    }
}
