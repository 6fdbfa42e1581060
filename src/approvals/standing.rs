//! What is approved for a server, with the content of it, as far as it was kept.

use super::{chain::Chain, store};
use crate::{
    model::surface::{Context, Decision, Facet, Identity},
    paths::AuditDir,
    surface::{diff::Approved, feed::Pinned},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
};

/// All decisions about a server's surface, and what they come to.
#[must_use]
pub fn pinned(dir: &AuditDir, server: &Identity) -> Pinned {
    let read = Chain::read(dir).map_err(|e| e.to_string()).and_then(|chain| {
        let approved = approved(dir, &chain, server, None).map_err(|e| e.to_string())?;
        Ok(Pinned::of(&chain.approvals, server, approved))
    });
    read.unwrap_or_else(|e| Pinned::unknown(&e))
}

/// What is in force for a server, from the decisions and the contents that were kept with them.
///
/// # Errors
/// A content is not what its name says, or an I/O error.
pub fn approved(
    dir: &AuditDir,
    chain: &Chain,
    server: &Identity,
    approvers: Option<&BTreeSet<String>>,
) -> io::Result<Approved> {
    let mut in_force = chain.in_force(server, approvers);
    // Where this server was moved to is compared with what was approved where it was.
    let there = in_force.other_endpoint.clone().filter(|_| in_force.approved().next().is_none());
    if let Some(endpoint) = there {
        let moved = Identity { endpoint: endpoint.clone(), id: server.id.clone() };
        in_force = chain.in_force(&moved, approvers);
        in_force.other_endpoint = Some(endpoint);
    }
    let opens = |d: Decision| matches!(d, Decision::Approve | Decision::FirstUse);
    let of_it = chain.counted(approvers).filter(|a| a.server_id == server.id && opens(a.decision));
    let mut contexts: BTreeMap<Context, BTreeSet<(Facet, String)>> = BTreeMap::new();
    let mut newest: HashMap<(Facet, &str), &str> = HashMap::new();
    for approval in of_it {
        for context in &approval.contexts {
            let names = contexts.entry(context.clone()).or_default();
            // A whole surface without an item says that the item may be missing.
            if approval.root.is_some() {
                names.clear();
            }
            names.extend(approval.items.iter().map(|pin| (pin.facet, pin.name.clone())));
        }
        newest.extend(approval.items.iter().map(|pin| ((pin.facet, pin.name.as_str()), pin.hash.as_str())));
    }
    // What is seen is compared with the newest definition that was approved.
    let mut content = HashMap::new();
    for (facet, name, hash, _) in in_force.approved() {
        let is_newest = newest.get(&(facet, name)) == Some(&hash);
        if let Some(bytes) = is_newest.then(|| store::content(dir, hash)).transpose()?.flatten() {
            content.insert(hash.to_owned(), bytes);
        }
    }
    Ok(Approved { in_force, content, contexts })
}
