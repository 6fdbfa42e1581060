//! What all clients of one server share: the decisions in force, and what was seen first of what nobody decided about.

use super::{Baseline, Decided, First, Quarantine};
use crate::{
    model::surface::{Context, Facet, Item, State},
    surface::rules::Rules,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// One server, for the gates of its clients.
#[derive(Debug, Clone)]
pub struct Server(Arc<Mutex<Known>>);

/// What is known of a server.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) decided: Decided,
    pub(super) rules: Rules,
    first: First,
    pub(super) quarantine: Quarantine,
    /// Of facets about which nothing was decided: what was seen first.
    seen_first: HashMap<(Facet, String), String>,
    /// Of these, the facets that were read to their end once: what comes later is new.
    closed: HashSet<Facet>,
    /// Of the others: what passed. A client that is ready may read such a facet to its end; else this is all there was.
    open: BTreeMap<Facet, (BTreeMap<String, Item>, Context)>,
    baselines: Vec<Baseline>,
}

/// A definition that a client was told.
#[derive(Debug, Clone)]
pub(super) struct Announced {
    pub(super) hash: String,
    pub(super) ambiguous: bool,
}

impl Server {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(decided: Decided, rules: Rules, first: First, quarantine: Quarantine) -> Self {
        Self(Arc::new(Mutex::new(Known {
            decided,
            rules,
            first,
            quarantine,
            seen_first: HashMap::new(),
            closed: HashSet::new(),
            open: BTreeMap::new(),
            baselines: Vec::new(),
        })))
    }

    /// Also after a panic of another thread: what is known is never half.
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other decisions are in force from here on.
    pub fn decide(&self, decided: Decided) {
        self.lock().decided = decided;
    }

    /// What became a baseline since this was asked last. `over`: nobody will ask the server for more.
    pub fn take_baselines(&self, over: bool) -> Vec<Baseline> {
        let mut known = self.lock();
        if over {
            for (facet, (items, context)) in std::mem::take(&mut known.open) {
                known.baseline(facet, items.values(), &context);
            }
        }
        std::mem::take(&mut known.baselines)
    }
}

impl Known {
    /// How a definition stands, which was announced just now.
    pub(super) fn state(&mut self, item: &Item) -> State {
        if self.decided.unknown.is_some() {
            return State::New;
        }
        let state = self.decided.in_force.judge(item);
        if state != State::New || self.decided.in_force.is_decided(item.facet) || self.first == First::Approve {
            return state;
        }
        let key = (item.facet, item.name.clone());
        let hash = item.hash.to_string();
        match self.seen_first.get(&key) {
            Some(first) if *first == hash => State::FirstUse,
            Some(_) => State::Changed,
            None if self.closed.contains(&item.facet) => State::New,
            None => {
                self.seen_first.insert(key, hash);
                State::FirstUse
            }
        }
    }

    /// Whether what is seen of a facet is what later sessions are compared with.
    fn is_open(&self, facet: Facet) -> bool {
        let undecided = self.decided.unknown.is_none() && !self.decided.in_force.is_decided(facet);
        undecided && self.first == First::Tofu && !self.closed.contains(&facet)
    }

    /// These passed, of a facet that may have more.
    pub(super) fn passed<'a>(&mut self, facet: Facet, items: impl Iterator<Item = &'a Item>, context: &Context) {
        if self.is_open(facet) {
            let (known, last) = self.open.entry(facet).or_default();
            last.clone_from(context);
            for item in items {
                known.entry(item.name.clone()).or_insert_with(|| item.clone());
            }
        }
    }

    /// A facet was read to its end, by a client that had said that it is ready: a server may offer more to one that is. Where
    /// another definition passed before, that is the first.
    pub(super) fn baseline<'a>(&mut self, facet: Facet, items: impl IntoIterator<Item = &'a Item>, context: &Context) {
        if self.is_open(facet) {
            let (passed, _) = self.open.remove(&facet).unwrap_or_default();
            let all = items.into_iter().filter(|item| item.ambiguity.is_none());
            let first = |item: &'a Item| {
                if self.state(item).passes() { Some(item.clone()) } else { passed.get(&item.name).cloned() }
            };
            let items = all.filter_map(first).collect();
            self.closed.insert(facet);
            self.baselines.push(Baseline { facet, items, context: context.clone() });
        }
    }

    /// How an item stands that somebody asks for. `announced`: the definition that the client was told last; `listed`: it
    /// had a list of such items.
    pub(super) fn stands(&self, key: &(Facet, String), announced: Option<&Announced>, listed: bool) -> State {
        let (facet, name) = key;
        if self.decided.unknown.is_some() {
            return State::New;
        }
        if let Some(announced) = announced {
            if announced.ambiguous {
                return State::Ambiguous;
            }
            let state = self.decided.in_force.state(*facet, name, &announced.hash);
            return match (state, self.seen_first.get(key)) {
                (State::New, Some(first)) if !self.decided.in_force.is_decided(*facet) && self.first == First::Tofu => {
                    if *first == announced.hash {
                        State::FirstUse
                    } else {
                        State::Changed
                    }
                }
                _ => state,
            };
        }
        if listed {
            return State::Unlisted;
        }
        // This client had no listing, perhaps because it kept one: the newest that is known of the name decides.
        match (self.decided.in_force.is_decided(*facet), self.first) {
            (true, _) => self.decided.in_force.of_name(*facet, name),
            (false, First::Tofu) => State::FirstUse,
            (false, First::Approve) => State::New,
        }
    }
}
