//! What a chain of decisions allows: derived by reading it, there is no second truth.

use super::{Approval, Decision, Facet, Identity, Item, Pin};
use crate::model::words::vocabulary;
use std::collections::{BTreeMap, BTreeSet};

vocabulary! {
    /// How an item stands with what was decided.
    #[derive(PartialOrd, Ord, Hash)]
    State {
        /// A person approved this definition.
        Approved = "approved",
        /// It is of the first surface that was seen; no person approved it.
        FirstUse = "first_use",
        /// Nothing was decided about an item of this name.
        New = "new",
        /// Another definition of it was approved.
        Changed = "changed",
        /// It is not wanted.
        Blocked = "blocked",
        /// It can be read in two ways.
        Ambiguous = "ambiguous",
        /// No listing that this client had holds it.
        Unlisted = "unlisted",
        /// This client had no listing; there is no newer one to go by.
        NotListedHere = "not_listed_here",
    }
}

impl State {
    /// Whether an item in this state may be shown and called under enforcement.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Approved | Self::FirstUse)
    }
}

/// The decision that an approved item rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// Its id.
    pub approval_id: String,
    /// Whether no person made it.
    pub first_use: bool,
}

type Name = (Facet, String);

/// What is decided about one server, at one place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    approved: BTreeMap<Name, BTreeMap<String, By>>,
    blocked: BTreeMap<Name, BTreeSet<String>>,
    /// Facets of which everything was decided about once: what appears there later is new.
    whole: BTreeSet<Facet>,
    /// The endpoint of the last approval under this id, if it is not the one that was asked about.
    pub other_endpoint: Option<String>,
    /// Id of the last decision that counts.
    pub last: Option<String>,
    /// Root of the last approval of a whole surface.
    pub root: Option<String>,
}

impl InForce {
    /// What the decisions, oldest first, come to for a server.
    #[must_use]
    pub fn of<'a>(decisions: impl IntoIterator<Item = &'a Approval>, server: &Identity) -> Self {
        let mut out = Self::default();
        for decision in decisions.into_iter().filter(|d| d.server_id == server.id) {
            if decision.endpoint == server.endpoint {
                out.take(decision);
            } else if matches!(decision.decision, Decision::Approve | Decision::FirstUse) {
                out.other_endpoint = Some(decision.endpoint.clone());
            }
        }
        out
    }

    fn take(&mut self, d: &Approval) {
        self.last = Some(d.approval_id.clone());
        if matches!(d.decision, Decision::Approve | Decision::FirstUse) {
            self.other_endpoint = None;
            self.root = d.root.clone().or(self.root.take());
            self.whole.extend(whole(d));
        }
        for Pin { facet, hash, name } in &d.items {
            let name = (*facet, name.clone());
            if let Some(hashes) = self.blocked.get_mut(&name) {
                hashes.remove(hash);
            }
            let approved = self.approved.entry(name.clone()).or_default();
            match d.decision {
                Decision::Approve | Decision::FirstUse => {
                    let by = By { approval_id: d.approval_id.clone(), first_use: d.decision == Decision::FirstUse };
                    approved.insert(hash.clone(), by);
                }
                Decision::Block => {
                    approved.remove(hash);
                    self.blocked.entry(name.clone()).or_default().insert(hash.clone());
                }
                Decision::Revoke => {
                    approved.remove(hash);
                }
            }
            if self.approved.get(&name).is_some_and(BTreeMap::is_empty) {
                self.approved.remove(&name);
            }
        }
    }

    /// Whether nothing is approved or blocked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.approved.is_empty() && self.blocked.values().all(BTreeSet::is_empty)
    }

    /// The decision that a definition rests on.
    #[must_use]
    pub fn by(&self, facet: Facet, name: &str, hash: &str) -> Option<&By> {
        self.approved.get(&(facet, name.to_owned()))?.get(hash)
    }

    /// How a definition stands.
    #[must_use]
    pub fn state(&self, facet: Facet, name: &str, hash: &str) -> State {
        let key = (facet, name.to_owned());
        if self.blocked.get(&key).is_some_and(|hashes| hashes.contains(hash)) {
            return State::Blocked;
        }
        match self.approved.get(&key) {
            None => State::New,
            Some(hashes) => match hashes.get(hash) {
                None => State::Changed,
                Some(by) if by.first_use => State::FirstUse,
                Some(_) => State::Approved,
            },
        }
    }

    /// Whether anything is decided about a facet.
    #[must_use]
    pub fn decides(&self, facet: Facet) -> bool {
        if self.whole.contains(&facet) {
            return true;
        }
        let blocks = self.blocked.iter().any(|((f, _), hashes)| *f == facet && !hashes.is_empty());
        blocks || self.approved.keys().any(|(f, _)| *f == facet)
    }

    /// Whether a first look at a facet is none any more: something is decided about it, or about this server at another endpoint.
    #[must_use]
    pub fn is_decided(&self, facet: Facet) -> bool {
        self.other_endpoint.is_some() || self.decides(facet)
    }

    /// How an item stands of which only the name is known: as the best of its definitions.
    #[must_use]
    pub fn of_name(&self, facet: Facet, name: &str) -> State {
        let key = (facet, name.to_owned());
        match self.approved.get(&key) {
            Some(hashes) if hashes.values().any(|by| !by.first_use) => State::Approved,
            Some(_) => State::FirstUse,
            None if self.blocked.get(&key).is_some_and(|hashes| !hashes.is_empty()) => State::Blocked,
            None => State::NotListedHere,
        }
    }

    /// How an item stands.
    #[must_use]
    pub fn judge(&self, item: &Item) -> State {
        if item.ambiguity.is_some() {
            return State::Ambiguous;
        }
        self.state(item.facet, &item.name, &item.hash.to_string())
    }

    /// What is approved.
    pub fn approved(&self) -> impl Iterator<Item = (Facet, &str, &str, &By)> {
        self.approved.iter().flat_map(|((facet, name), hashes)| {
            hashes.iter().map(move |(hash, by)| (*facet, name.as_str(), hash.as_str(), by))
        })
    }

    /// What is blocked.
    pub fn blocked(&self) -> impl Iterator<Item = (Facet, &str, &str)> {
        self.blocked
            .iter()
            .flat_map(|((facet, name), hashes)| hashes.iter().map(move |hash| (*facet, name.as_str(), hash.as_str())))
    }
}

/// The facets that a decision is about as a whole: all of them if it names a root; what a `first_use` has the hash of, and
/// the instructions, also if there were none, with the capabilities beside them.
fn whole(d: &Approval) -> impl Iterator<Item = Facet> {
    let all = d.root.is_some();
    let first = d.decision == Decision::FirstUse;
    let f = &d.facets;
    [
        (Facet::Capabilities, &f.capabilities),
        (Facet::Instructions, &f.capabilities),
        (Facet::Prompts, &f.prompts),
        (Facet::ResourceTemplates, &f.resource_templates),
        (Facet::Resources, &f.resources),
        (Facet::Tools, &f.tools),
    ]
    .into_iter()
    .filter(move |(_, hash)| all || first && hash.is_some())
    .map(|(facet, _)| facet)
}

#[cfg(test)]
mod tests {
    use super::{super::approval::tests::approval, *};

    fn files() -> Identity {
        Identity { endpoint: "sha256:e".into(), id: "files".into() }
    }

    #[test]
    fn the_last_decision_about_a_definition_counts() {
        use Decision::{Approve, Block, FirstUse, Revoke};
        for (decisions, state) in [
            (vec![], State::New),
            (vec![(Approve, "1")], State::Approved),
            (vec![(FirstUse, "1")], State::FirstUse),
            (vec![(FirstUse, "1"), (Approve, "1")], State::Approved),
            (vec![(Approve, "2")], State::Changed),
            (vec![(Approve, "1"), (Approve, "2")], State::Approved),
            (vec![(Approve, "1"), (Block, "1")], State::Blocked),
            (vec![(Block, "1"), (Approve, "1")], State::Approved),
            (vec![(Block, "1"), (Revoke, "1")], State::New),
            (vec![(Approve, "1"), (Revoke, "1")], State::New),
            (vec![(Block, "2")], State::New),
        ] {
            let lines: Vec<Approval> = decisions.iter().map(|(d, hash)| approval(*d, &[("t", hash)])).collect();
            let in_force = InForce::of(&lines, &files());
            assert_eq!(in_force.state(Facet::Tools, "t", "1"), state, "{decisions:?}");
            assert_eq!(in_force.state(Facet::Prompts, "t", "1"), State::New);
        }
    }

    #[test]
    fn what_was_approved_elsewhere_approves_nothing_here_and_is_said() {
        let there = Approval { endpoint: "sha256:there".into(), ..approval(Decision::Approve, &[("t", "1")]) };
        let other = Approval { server_id: "other".into(), ..approval(Decision::Approve, &[("t", "1")]) };
        let in_force = InForce::of([&there, &other], &files());
        assert_eq!(in_force.state(Facet::Tools, "t", "1"), State::New);
        assert!(in_force.is_empty());
        assert_eq!(in_force.other_endpoint.as_deref(), Some("sha256:there"));
        let here = approval(Decision::Approve, &[("t", "1")]);
        assert_eq!(InForce::of([&there, &here], &files()).other_endpoint, None);
    }

    #[test]
    fn a_list_that_was_empty_and_instructions_that_were_not_there_were_decided_about() {
        let first = |of: fn(&mut super::super::Facets)| {
            let mut line = approval(Decision::FirstUse, &[]);
            (line.root, line.facets) = (None, super::super::Facets::default());
            of(&mut line.facets);
            InForce::of([&line], &files())
        };
        let tools = first(|f| f.tools = Some("sha256:of-none".into()));
        assert!(tools.decides(Facet::Tools) && !tools.decides(Facet::Prompts));
        let hello = first(|f| f.capabilities = Some("sha256:c".into()));
        assert!(hello.decides(Facet::Instructions) && !hello.decides(Facet::Tools));
        let all = Approval { root: Some("sha256:r".into()), ..approval(Decision::Approve, &[("t", "1")]) };
        assert!(InForce::of([&all], &files()).decides(Facet::Instructions));
        let some = Approval { root: None, ..all };
        assert!(!InForce::of([&some], &files()).decides(Facet::Instructions));
    }
}
