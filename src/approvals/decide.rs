//! A decision as a person takes it: on what was shown, all of it or some items.

use super::{
    chain::Chain,
    lockfile::{self, is_whole},
    observed::{Observed, Seen},
    store::{self, Contents, Draft, StoreError, hex_of},
    summary::Summary,
};
use crate::{
    model::surface::{Approval, Approver, Decision, Difference, Facet, Pin, State, approval::Facets as FacetHashes},
    pack::keys::Signer,
    paths::AuditDir,
    surface::diff::{Approved, changes, changes_hash},
};
use std::collections::BTreeSet;

/// What somebody wants.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What is decided.
    pub decision: Decision,
    /// About which items; about all that was seen if none are named.
    pub items: Vec<(Facet, String)>,
    /// The root that was looked at, if the decision is to hold only for that.
    pub expect: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Who decides.
    pub approver: Approver,
}

/// Why something cannot be decided.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The surface is another one than was looked at.
    #[error("the surface changed: it is {found} now, not {expected}; nothing was written")]
    Conflict {
        /// The root that was looked at.
        expected: String,
        /// The root that is there.
        found: String,
    },
    /// Not all of it was seen.
    #[error("the surface is incomplete and cannot be approved as a whole: {0}")]
    Incomplete(String),
    /// Not all of a facet was seen.
    #[error("{0} is in a list of which not all was seen, and cannot be approved")]
    IncompleteList(String),
    /// Items can be read in two ways.
    #[error("{} can be read in two ways and cannot be approved", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// There is no such item.
    #[error("the server has no {0}, as far as it was seen")]
    NotSeen(String),
    /// Nothing was decided about it.
    #[error("nothing is decided about {0}")]
    NotDecided(String),
    /// It is so already.
    #[error("all of this is approved already")]
    Nothing,
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The decision on what was shown, and the contents that it is about.
///
/// # Errors
/// It cannot be decided.
pub fn draft(seen: &Seen, summary: &Summary, approved: &Approved, wish: Wish) -> Result<(Draft, Contents), Refused> {
    let root = summary.root.clone().ok();
    let is_whole_surface = wish.items.is_empty();
    if let Some(expected) = wish.expect.filter(|e| Some(e) != root.as_ref()) {
        let found = root.unwrap_or_else(|| "incomplete".to_owned());
        return Err(Refused::Conflict { expected, found });
    }
    let chosen = match wish.decision {
        Decision::Approve | Decision::FirstUse => to_approve(seen, summary, &wish.items)?,
        Decision::Block => to_block(summary, approved, &wish.items)?,
        Decision::Revoke => to_revoke(approved, &wish.items)?,
    };
    let names: BTreeSet<(Facet, &str)> = chosen.iter().map(|p| (p.facet, p.name.as_str())).collect();
    let concerns = |d: &&Difference| d.facet.is_none_or(|f| names.contains(&(f, d.name.as_str())));
    let shown: Vec<&Difference> = summary.outcome.differences().iter().filter(concerns).collect();
    let contents = summary.items.iter().filter(|i| chosen.contains(&i.pin)).filter_map(|i| {
        let hash = hex_of(&i.pin.hash)?.to_owned();
        Some((hash, i.content.clone()?.into_bytes()))
    });
    let contents: Contents = contents.collect();
    let facets: FacetHashes = seen.snapshot.facets();
    let draft = Draft {
        approver: wish.approver,
        changes: changes(&shown),
        changes_hash: changes_hash(&shown),
        contexts: vec![seen.snapshot.context.clone()],
        decision: wish.decision,
        facets,
        items: chosen,
        reason: wish.reason,
        root: root.filter(|_| is_whole_surface),
        rules_hash: seen.snapshot.rules_hash.clone(),
        server: seen.snapshot.identity.clone(),
    };
    Ok((draft, contents))
}

fn to_approve(seen: &Seen, summary: &Summary, items: &[(Facet, String)]) -> Result<Vec<Pin>, Refused> {
    let mut chosen = Vec::new();
    if items.is_empty() {
        summary.root.as_ref().map_err(|why| Refused::Incomplete(why.clone()))?;
        let unclear = summary.ambiguous();
        if !unclear.is_empty() {
            return Err(Refused::Ambiguous(unclear));
        }
        // What is blocked stays so until somebody names it.
        chosen.extend(summary.items.iter().filter(|i| i.state != State::Blocked).map(|i| i.pin.clone()));
        if summary.items.iter().all(|i| matches!(i.state, State::Approved | State::Blocked)) {
            return Err(Refused::Nothing);
        }
    }
    for (facet, name) in items {
        let called = lockfile::named(*facet, name);
        let all: Vec<_> = summary.items.iter().filter(|i| i.pin.facet == *facet && i.pin.name == *name).collect();
        match all.as_slice() {
            [] => return Err(Refused::NotSeen(called)),
            [one] if one.state != State::Ambiguous => {
                if !is_whole(&seen.snapshot, *facet) {
                    return Err(Refused::IncompleteList(called));
                }
                chosen.push(one.pin.clone());
            }
            _ => return Err(Refused::Ambiguous(vec![called])),
        }
    }
    chosen.sort();
    chosen.dedup();
    Ok(chosen)
}

/// Every definition of a name that is known.
fn to_block(summary: &Summary, approved: &Approved, items: &[(Facet, String)]) -> Result<Vec<Pin>, Refused> {
    let mut chosen = BTreeSet::new();
    for (facet, name) in items {
        let before = chosen.len();
        let seen = summary.items.iter().filter(|i| i.pin.facet == *facet && i.pin.name == *name);
        chosen.extend(seen.map(|i| i.pin.clone()));
        chosen.extend(decided(approved, *facet, name));
        if chosen.len() == before {
            return Err(Refused::NotSeen(lockfile::named(*facet, name)));
        }
    }
    Ok(chosen.into_iter().collect())
}

fn to_revoke(approved: &Approved, items: &[(Facet, String)]) -> Result<Vec<Pin>, Refused> {
    let mut chosen = BTreeSet::new();
    if items.is_empty() {
        let approved = approved.in_force.approved().map(|(f, n, h, _)| (f, n, h));
        chosen.extend(approved.map(pin));
        if chosen.is_empty() {
            return Err(Refused::NotDecided("this server".to_owned()));
        }
    }
    for (facet, name) in items {
        let before = chosen.len();
        chosen.extend(decided(approved, *facet, name));
        if chosen.len() == before {
            return Err(Refused::NotDecided(lockfile::named(*facet, name)));
        }
    }
    Ok(chosen.into_iter().collect())
}

fn pin((facet, name, hash): (Facet, &str, &str)) -> Pin {
    Pin { facet, hash: hash.to_owned(), name: name.to_owned() }
}

fn decided<'a>(approved: &'a Approved, facet: Facet, name: &'a str) -> impl Iterator<Item = Pin> + 'a {
    let of_name = move |(f, n, _): &(Facet, &str, &str)| *f == facet && *n == name;
    let all = approved.in_force.approved().map(|(f, n, h, _)| (f, n, h)).chain(approved.in_force.blocked());
    all.filter(of_name).map(pin)
}

/// Takes a decision, if the server's surface and what was decided about it are still what was looked at.
///
/// # Errors
/// Something changed meanwhile, or it cannot be written; then nothing was decided, except after [`StoreError::Ledger`].
pub fn decide(
    dir: &AuditDir,
    shown: (&Seen, &Chain),
    (draft, contents): (Draft, Contents),
    signer: &Signer,
) -> Result<Approval, Refused> {
    let (seen, chain) = shown;
    let id = draft.server.id.clone();
    let before = chain.last_of(&id).map(|a| a.approval_id.clone());
    let approval = store::append(dir, &contents, |now| {
        let last = now.last_of(&id).map(|a| a.approval_id.clone());
        if last != before {
            let last = last.unwrap_or_default();
            return Err(StoreError::Conflict(format!(
                "somebody else decided about {id} meanwhile: {last}; look again, nothing was written"
            )));
        }
        still_seen(dir, seen)?;
        draft.signed(now, signer)
    })?;
    Ok(approval)
}

/// Whether a server's surface is still the one that was looked at.
fn still_seen(dir: &AuditDir, seen: &Seen) -> Result<(), StoreError> {
    let id = &seen.snapshot.identity.id;
    let io = |source| StoreError::Io { path: dir.surface(), source };
    // A file that somebody named is what it is.
    if seen.path.parent() != Some(dir.surface().as_path()) {
        return Ok(());
    }
    let Some(newest) = Observed::newest(dir, id).map_err(io)? else { return Ok(()) };
    let words = |s: &Seen| s.snapshot.root().map_or_else(|e| e.to_string(), |r| r.to_string());
    let (expected, found) = (words(seen), words(&newest));
    let same = newest.snapshot.surface == seen.snapshot.surface && newest.snapshot.identity == seen.snapshot.identity;
    if same {
        return Ok(());
    }
    Err(StoreError::Conflict(format!(
        "the surface of {id} changed: it is {found} now, not {expected}; nothing was written"
    )))
}
