//! What a client was told of a surface, and how what it asks for stands with the decisions in force.
//!
//! The recorder derives it from messages, the verifier from `surface_observed` events, both with this one code: so a
//! receipt can be recomputed.

use super::{Facet, InForce, Item, State};
use crate::model::words::{PolicyReason, Word, vocabulary};
use std::collections::{BTreeMap, BTreeSet};

vocabulary! {
    /// What is done while nothing was decided about a facet (`--surface-first`).
    First {
        /// What is seen first becomes what later listings are compared with.
        Tofu = "tofu",
        /// Nothing passes before a person approved it.
        Approve = "approve",
    }
}

vocabulary! {
    /// What is done about what is not approved (`--surface`).
    Mode {
        /// It passes, and the evidence says so.
        Report = "report",
        /// It is kept back.
        Enforce = "enforce",
    }
}

/// The decisions in force at one moment, and how they are used.
#[derive(Debug, Clone)]
pub struct Standing {
    /// What they come to.
    pub in_force: InForce,
    /// They cannot be known: then nothing is approved.
    pub unknown: bool,
    /// What is done while nothing was decided.
    pub first: First,
    /// The facets that are compared at all.
    pub pinned: BTreeSet<Facet>,
}

impl Standing {
    fn is_open(&self, facet: Facet) -> bool {
        !self.unknown && self.first == First::Tofu && !self.in_force.is_decided(facet)
    }
}

/// One definition that was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// What it is pinned by; empty for instructions and capabilities.
    pub name: String,
    /// Its hash.
    pub hash: String,
    /// It can be read in two ways.
    pub ambiguous: bool,
}

impl Announced {
    /// The definitions of a list that was [settled](super::List): of a name that comes more than once, one.
    #[must_use]
    pub fn of(items: &[Item]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::with_capacity(items.len());
        for item in items {
            if all.last().is_none_or(|before| before.name != item.name) {
                let ambiguous = item.ambiguity.is_some();
                all.push(Self { name: item.name.clone(), hash: item.hash.to_string(), ambiguous });
            }
        }
        all
    }
}

/// How something that a client asks for stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stands {
    /// Milliseconds since an answer to this client had the list that it is in; `None` if there was none.
    pub age_ms: Option<u64>,
    /// The decision that it rests on.
    pub approval_id: Option<String>,
    /// The definition that this client was told last.
    pub item_hash: Option<String>,
    /// The root of the surface as this client has seen it; `None` if it has not seen all of it.
    pub root: Option<String>,
    /// How it stands; `None` if its facet is not compared.
    pub state: Option<State>,
}

impl Stands {
    /// The same of a call that a guard refused for this reason: other decisions may have been in force when it judged.
    #[must_use]
    pub fn refused_for(self, reason: Option<&Word<PolicyReason>>) -> Self {
        use PolicyReason as R;
        let state = match reason.and_then(Word::known) {
            Some(R::SurfaceNew) => State::New,
            Some(R::SurfaceChanged) => State::Changed,
            Some(R::SurfaceUnlisted) => State::Unlisted,
            Some(R::SurfaceBlocked) => State::Blocked,
            Some(R::SurfaceAmbiguous) => State::Ambiguous,
            _ => return self,
        };
        match self.state {
            Some(known) if known.passes() => Self { approval_id: None, state: Some(state), ..self },
            _ => self,
        }
    }
}

type Name = (Facet, String);

/// What one client was told.
#[derive(Debug, Clone, Default)]
pub struct Told {
    known: BTreeMap<Name, (String, bool)>,
    /// When each list was answered last, microseconds on the session's clock; before the session if it is negative.
    listed: BTreeMap<Facet, i64>,
    /// Of facets about which nothing is decided: what was seen first.
    first: BTreeMap<Name, String>,
    /// Of these, the facets that were read to their end: what comes later is new.
    closed: BTreeSet<Facet>,
    /// The root that was seen last.
    root: Option<String>,
}

impl Told {
    /// What of an answer is not known yet, and the names that a whole list no longer has.
    #[must_use]
    pub fn news(&self, facet: Facet, all: &[Announced], whole: bool) -> (Vec<Announced>, Vec<String>) {
        let is_known = |a: &Announced| {
            let known = self.known.get(&(facet, a.name.clone()));
            known.is_some_and(|(hash, ambiguous)| (hash, ambiguous) == (&a.hash, &a.ambiguous))
        };
        let new = all.iter().filter(|a| !is_known(a)).cloned().collect();
        let names: BTreeSet<&str> = all.iter().map(|a| a.name.as_str()).collect();
        let of_facet = self.known.keys().filter(|(f, name)| whole && *f == facet && !names.contains(name.as_str()));
        (new, of_facet.map(|(_, name)| name.clone()).collect())
    }

    /// The client was told this, at this time of the session's clock (µs).
    pub fn hear(
        &mut self,
        now: &Standing,
        facet: Facet,
        (new, gone, whole): (&[Announced], &[String], bool),
        root: Option<&str>,
        at_us: i64,
    ) {
        let is_open = now.is_open(facet);
        for Announced { name, hash, ambiguous } in new {
            let key = (facet, name.clone());
            if is_open && !ambiguous && !self.closed.contains(&facet) {
                self.first.entry(key.clone()).or_insert_with(|| hash.clone());
            }
            self.known.insert(key, (hash.clone(), *ambiguous));
        }
        for name in gone {
            self.known.remove(&(facet, name.clone()));
        }
        if whole && is_open {
            self.closed.insert(facet);
        }
        self.listed.insert(facet, at_us);
        self.root = root.map(str::to_owned);
    }

    /// How a definition stands that was announced.
    #[must_use]
    pub fn judge(&self, now: &Standing, facet: Facet, a: &Announced) -> State {
        if a.ambiguous {
            return State::Ambiguous;
        }
        if now.unknown {
            return State::New;
        }
        match now.in_force.state(facet, &a.name, &a.hash) {
            State::New if now.is_open(facet) => match self.first.get(&(facet, a.name.clone())) {
                Some(first) if *first == a.hash => State::FirstUse,
                Some(_) => State::Changed,
                None => State::New,
            },
            state => state,
        }
    }

    /// The decision that a definition rests on.
    #[must_use]
    pub fn rests_on(now: &Standing, facet: Facet, a: &Announced) -> Option<String> {
        let by = now.in_force.by(facet, &a.name, &a.hash).filter(|_| !a.ambiguous && !now.unknown);
        by.map(|by| by.approval_id.clone())
    }

    /// How an item stands that is asked for at this time (µs on the session's clock).
    #[must_use]
    pub fn stands(&self, now: &Standing, facet: Facet, name: &str, at_us: i64) -> Stands {
        if !now.pinned.contains(&facet) {
            return Stands::default();
        }
        let listed = self.listed.get(&facet);
        let age_ms = listed.map(|listed| u64::try_from(at_us.saturating_sub(*listed) / 1000).unwrap_or_default());
        let root = self.root.clone();
        let Some((hash, ambiguous)) = self.known.get(&(facet, name.to_owned())) else {
            let state = Some(if listed.is_some() { State::Unlisted } else { State::NotListedHere });
            return Stands { age_ms, root, state, ..Stands::default() };
        };
        let a = Announced { name: name.to_owned(), hash: hash.clone(), ambiguous: *ambiguous };
        let state = self.judge(now, facet, &a);
        let approval_id = Self::rests_on(now, facet, &a).filter(|_| state.passes());
        Stands { age_ms, approval_id, item_hash: Some(a.hash), root, state: Some(state) }
    }

    /// The facets that were answered, with what was told of each and how long ago (ms) at this time.
    pub fn facets(&self, at_us: i64) -> impl Iterator<Item = (Facet, Vec<Announced>, u64)> + '_ {
        self.listed.iter().map(move |(facet, listed)| {
            let known = self.known.iter().filter(move |((f, _), _)| f == facet);
            let all = known.map(|((_, name), (hash, ambiguous))| Announced {
                name: name.clone(),
                hash: hash.clone(),
                ambiguous: *ambiguous,
            });
            let age = at_us.saturating_sub(*listed) / 1000;
            (*facet, all.collect(), u64::try_from(age).unwrap_or_default())
        })
    }

    /// The root that was seen last.
    #[must_use]
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::approval::tests::approval, *};
    use crate::model::surface::{Decision, Identity};

    fn now(decisions: &[(Decision, &str)], first: First) -> Standing {
        let lines: Vec<_> = decisions.iter().map(|(d, hash)| approval(*d, &[("t", hash)])).collect();
        let server = Identity { endpoint: "sha256:e".into(), id: "files".into() };
        Standing { in_force: InForce::of(&lines, &server), unknown: false, first, pinned: [Facet::Tools].into() }
    }

    fn list(told: &mut Told, now: &Standing, items: &[(&str, &str)], whole: bool, at: i64) {
        let all: Vec<Announced> = items
            .iter()
            .map(|(name, hash)| Announced { name: (*name).into(), hash: (*hash).into(), ambiguous: *hash == "?" })
            .collect();
        let (new, gone) = told.news(Facet::Tools, &all, whole);
        told.hear(now, Facet::Tools, (&new, &gone, whole), None, at);
    }

    fn state(told: &Told, now: &Standing, name: &str) -> State {
        told.stands(now, Facet::Tools, name, 9_000).state.unwrap()
    }

    #[test]
    fn a_call_stands_as_the_definition_that_its_client_was_told_last() {
        let now = now(&[(Decision::Approve, "1")], First::Tofu);
        let mut told = Told::default();
        assert_eq!(state(&told, &now, "t"), State::NotListedHere);
        list(&mut told, &now, &[("t", "1"), ("u", "1")], true, 2_000);
        let stands = told.stands(&now, Facet::Tools, "t", 9_000);
        let approval = Some("sap_0123456789abcdef".to_owned());
        assert_eq!((stands.state, stands.age_ms, stands.approval_id), (Some(State::Approved), Some(7), approval));
        assert_eq!((state(&told, &now, "u"), state(&told, &now, "v")), (State::New, State::Unlisted));
        list(&mut told, &now, &[("t", "2")], true, 3_000);
        let stands = told.stands(&now, Facet::Tools, "t", 3_500);
        assert_eq!((stands.state, stands.approval_id, stands.age_ms), (Some(State::Changed), None, Some(0)));
        assert_eq!(state(&told, &now, "u"), State::Unlisted, "a whole list without it takes it away");
        list(&mut told, &now, &[("t", "?")], false, 4_000);
        assert_eq!(state(&told, &now, "t"), State::Ambiguous);
        assert_eq!(told.stands(&now, Facet::Prompts, "t", 0), Stands::default(), "prompts are not compared");
    }

    #[test]
    fn while_nothing_is_decided_the_first_whole_list_is_the_baseline() {
        let open = now(&[], First::Tofu);
        let mut told = Told::default();
        list(&mut told, &open, &[("a", "1")], false, 0);
        list(&mut told, &open, &[("a", "1"), ("t", "1")], true, 0);
        assert_eq!((state(&told, &open, "a"), state(&told, &open, "t")), (State::FirstUse, State::FirstUse));
        list(&mut told, &open, &[("a", "2"), ("z", "1")], true, 0);
        assert_eq!((state(&told, &open, "a"), state(&told, &open, "z")), (State::Changed, State::New));
        // Once it is written the decision says the same, and one by a person says more.
        list(&mut told, &open, &[("t", "1")], true, 0);
        assert_eq!(state(&told, &now(&[(Decision::FirstUse, "1")], First::Tofu), "t"), State::FirstUse);
        assert_eq!(state(&told, &now(&[(Decision::Approve, "1")], First::Tofu), "t"), State::Approved);
        assert_eq!(state(&told, &now(&[], First::Approve), "t"), State::New);
        let unknown = Standing { unknown: true, ..now(&[(Decision::Approve, "1")], First::Tofu) };
        assert_eq!(told.stands(&unknown, Facet::Tools, "t", 0).approval_id, None);
        assert_eq!(state(&told, &unknown, "t"), State::New);
    }
}
