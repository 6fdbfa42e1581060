//! Enforcement: which items a client may see and call, whatever transport they cross.
//!
//! A [`Gate`] remembers which requests ask for a part of the surface, and is shown exactly their answers before they pass.
//! It says what is cut out, and it judges calls against the definitions that this client was told last, under the decisions
//! in force at that moment.

mod server;

pub use server::Server;

use super::{
    cut::{self, Ambiguous, Answer, Edits, Parts},
    listing::{Cursor, Limits, Listings, Outcome, Page},
};
use crate::{
    canon,
    model::{
        limits,
        surface::{Context, Facet, Ignored, InForce, Item, List, Reason, State, Value, pinned_name},
    },
};
use server::{Announced, Known};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
};

pub use crate::model::surface::First;

/// What is kept back where something is not approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quarantine {
    /// The item.
    Item,
    /// Everything of the server.
    Server,
}

/// The decisions in force.
#[derive(Debug, Clone, Default)]
pub struct Decided {
    /// What they come to.
    pub in_force: InForce,
    /// Why they cannot be known: then nothing passes that needs one.
    pub unknown: Option<String>,
}

/// The first items of a facet, about which nothing was decided.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// The facet.
    pub facet: Facet,
    /// Its items: of a list that was read to its end, all; of a facet that is one value, that.
    pub items: Vec<Item>,
    /// Who asked.
    pub context: Context,
}

/// What was cut out of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Where it was.
    pub facet: Facet,
    /// What it is pinned by; empty for instructions.
    pub name: String,
    /// Why it does not pass.
    pub state: State,
}

/// What becomes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passes {
    /// All of it.
    Whole,
    /// All but for this.
    Cut(Edits, Vec<Cut>),
    /// Nothing: its request is refused.
    Refused(State),
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// What the server says of itself; whether it is the beginning of a session.
    Server(bool),
    List(Facet),
}

/// Enforcement for one client of a server. `T` is what tells one request that waits for an answer from another.
#[derive(Debug)]
pub struct Gate<T> {
    server: Server,
    ignored: Vec<Ignored>,
    /// Requests for parts of the surface, and which of them were answered: some client may not have taken the answer for one.
    asked: HashMap<T, (Asked, bool)>,
    order: VecDeque<T>,
    /// How many were not.
    unanswered: usize,
    listings: Listings<T>,
    context: Context,
    /// What the server last announced to this client, cut or not.
    announced: HashMap<(Facet, String), Announced>,
    /// Facets of which the client had an answer.
    listed: HashSet<Facet>,
    /// The client began a session and has not said yet that it is ready.
    beginning: bool,
    /// Lists that were asked for meanwhile.
    early: HashSet<T>,
    /// The notifications that the server promised a client which it keeps a session with.
    promised: Vec<&'static str>,
}

/// Requests that are remembered at once: more than a client may have in flight.
const MOST_ASKED: usize = 2 * limits::GUARDED;

impl<T: Clone + Eq + Hash> Gate<T> {
    /// Nothing seen yet by this client.
    #[must_use]
    pub fn new(server: Server) -> Self {
        let ignored = server.lock().rules.ignored();
        let listings = Listings::new(Limits::DEFAULT, ignored.clone());
        Self {
            server,
            ignored,
            asked: HashMap::new(),
            order: VecDeque::new(),
            unanswered: 0,
            listings,
            context: Context::default(),
            announced: HashMap::new(),
            listed: HashSet::new(),
            beginning: false,
            early: HashSet::new(),
            promised: Vec::new(),
        }
    }

    /// The notifications by which a client learns that other decisions are in force, as far as it was promised them.
    #[must_use]
    pub fn promised(&self) -> &[&'static str] {
        &self.promised
    }

    /// A message of the client passes on to the server: a request if it has an id.
    pub fn asked(&mut self, id: Option<T>, method: &str, params: Option<&[u8]>) {
        let Some(id) = id else {
            self.beginning &= method != "notifications/initialized";
            return;
        };
        let asked = match method {
            "initialize" | "server/discover" => Asked::Server(method == "initialize"),
            list => match Facet::listed_by(list) {
                Some(facet) => Asked::List(facet),
                // An id that is used again: what waited for its answer never gets it.
                None => return self.forget(&id),
            },
        };
        self.beginning |= asked == Asked::Server(true);
        if let Asked::List(facet) = asked {
            let raw = params.and_then(|p| member(p, "cursor"));
            let text = raw.and_then(canon::decode_string);
            let cursor = match (raw.map(canon::kind), &text) {
                (None | Some(Some(canon::Kind::Null)), _) => Cursor::First,
                (_, Some(text)) => Cursor::After(text),
                _ => Cursor::Bad,
            };
            let _ = self.listings.asked(id.clone(), facet, cursor, &self.context);
        }
        let early = self.beginning;
        // The id as this request has it.
        self.forget(&id);
        if early {
            self.early.insert(id.clone());
        }
        self.asked.insert(id.clone(), (asked, false));
        self.order.push_back(id);
        self.unanswered += 1;
        if self.order.len() > MOST_ASKED
            && let Some(oldest) = self.order.front().cloned()
        {
            self.forget(&oldest);
        }
    }

    /// Whether anybody waits for a part of the surface.
    #[must_use]
    pub fn awaits_any(&self) -> bool {
        self.unanswered > 0
    }

    /// Whether a request for a part of the surface waits for its answer.
    #[must_use]
    pub fn awaits(&self, id: &T) -> bool {
        self.asked.get(id).is_some_and(|(_, answered)| !answered)
    }

    /// The request that is like this one and asked for a part of the surface.
    #[must_use]
    pub fn asked_as(&self, id: &T) -> Option<&T> {
        self.asked.get_key_value(id).map(|(asked, _)| asked)
    }

    /// The requests for parts of the surface, those that wait for an answer first, and of these the oldest first.
    pub fn asked_for(&self) -> impl Iterator<Item = &T> {
        let waits = |id: &&T| self.awaits(id);
        self.order.iter().filter(waits).chain(self.order.iter().rev().filter(move |id| !waits(id)))
    }

    /// The request will not be answered by what the server said.
    pub fn forget(&mut self, id: &T) {
        if let Some((_, answered)) = self.asked.remove(id) {
            self.unanswered -= usize::from(!answered);
            self.order.retain(|other| other != id);
            self.early.remove(id);
        }
    }

    /// The server says that a list has changed.
    pub fn notified(&mut self, method: &str) {
        for facet in Facet::made_stale_by(method) {
            self.listings.changed(*facet);
        }
    }

    /// The answer to a request that [asked](Self::asked_for) for a part of the surface, before any of it passes. `is_last`:
    /// it waits no longer for one.
    pub fn answered(&mut self, id: &T, message: &[u8], is_last: bool) -> Passes {
        let Some((asked, answered)) = self.asked.get_mut(id) else { return Passes::Whole };
        let asked = *asked;
        if is_last && !std::mem::replace(answered, true) {
            self.unanswered -= 1;
        }
        let ready = !self.early.contains(id);
        let result = match cut::answer(message) {
            Ok(Answer::Error) => {
                let _ = self.listings.failed(id, 0, true);
                return Passes::Whole;
            }
            Ok(Answer::Result(result)) => result,
            Err(Ambiguous) => return Passes::Refused(State::Ambiguous),
        };
        let facet = match asked {
            Asked::Server(_) => None,
            Asked::List(facet) => Some(facet),
        };
        let Ok(parts) = cut::parts(message, result, facet) else { return Passes::Refused(State::Ambiguous) };
        match asked {
            Asked::Server(begins) => self.server(message, &parts, begins),
            Asked::List(facet) => self.list(id, facet, message, &parts, ready),
        }
    }

    fn server(&mut self, message: &[u8], parts: &Parts, begins: bool) -> Passes {
        let mut server = self.server.lock();
        if let Some(raw) = member(&message[parts.result.clone()], "capabilities")
            && let Ok(value) = Value::of(raw)
        {
            if begins {
                self.promised = promised(raw);
            }
            // What a server can do is shown and compared, and not kept back: a client must know it.
            let item = whole(Facet::Capabilities, value);
            let _ = server.state(&item);
            server.baseline(Facet::Capabilities, &[item], &self.context);
        }
        let said = parts.instructions.as_ref().map(|(_, value)| &message[value.clone()]);
        let said = said.filter(|raw| canon::kind(raw) != Some(canon::Kind::Null));
        if !server.rules.pins(Facet::Instructions) {
            return Passes::Whole;
        }
        let Some(raw) = said else {
            // None are what was seen first.
            server.baseline(Facet::Instructions, &[], &self.context);
            return Passes::Whole;
        };
        let Ok(value) = Value::of(raw) else { return Passes::Refused(State::Ambiguous) };
        let item = whole(Facet::Instructions, value);
        let state = server.state(&item);
        let announced = Announced { hash: item.hash.to_string(), ambiguous: state == State::Ambiguous };
        self.announced.insert((Facet::Instructions, String::new()), announced);
        server.baseline(Facet::Instructions, &[item], &self.context);
        if state.passes() {
            return Passes::Whole;
        }
        if server.quarantine == Quarantine::Server {
            return Passes::Refused(state);
        }
        let edits = cut::without(parts, &|_| false, true);
        Passes::Cut(edits, vec![Cut { facet: Facet::Instructions, name: String::new(), state }])
    }

    fn list(&mut self, id: &T, facet: Facet, message: &[u8], parts: &Parts, ready: bool) -> Passes {
        if !self.server.lock().rules.pins(facet) {
            return Passes::Whole;
        }
        // Other clients wait for what all of them share: what takes long with a long list is done before.
        let read = |range: &std::ops::Range<usize>| Item::of(facet, &message[range.clone()], &self.ignored);
        let Ok(items) = parts.elements.iter().map(read).collect::<Result<Vec<_>, _>>() else {
            return Passes::Refused(State::Ambiguous);
        };
        let twice = ambiguous(&items);
        let mut server = self.server.lock();
        let state = |item: &Item| {
            if twice.contains(item.name.as_str()) { State::Ambiguous } else { server.state(item) }
        };
        let states: Vec<State> = items.iter().map(state).collect();
        let passed = items.iter().zip(&states).filter(|(_, state)| state.passes()).map(|(item, _)| item);
        server.passed(facet, passed, &self.context);
        let page = Page {
            bytes: parts.result.len(),
            items: items.clone(),
            next: parts.next.clone().map(|next| &message[next]),
            twice: parts.twice,
        };
        let outcome = self.listings.answered_with(id, page);
        self.listed.insert(facet);
        for (item, state) in items.iter().zip(&states) {
            let announced = Announced { hash: item.hash.to_string(), ambiguous: *state == State::Ambiguous };
            self.announced.insert((facet, item.name.clone()), announced);
        }
        for (_, _, outcome) in outcome {
            match outcome {
                Outcome::Complete(all) => {
                    let list = List::complete(all);
                    let names: HashSet<&str> = list.items().iter().map(|i| i.name.as_str()).collect();
                    self.announced.retain(|(f, name), _| *f != facet || names.contains(name.as_str()));
                    for item in list.items().iter().filter(|i| i.ambiguity.is_some()) {
                        if let Some(a) = self.announced.get_mut(&(facet, item.name.clone())) {
                            a.ambiguous = true;
                        }
                    }
                    if ready {
                        server.baseline(facet, list.items(), &self.context);
                    }
                }
                Outcome::Incomplete(_, Reason::TooLong(_)) => return Passes::Refused(State::Ambiguous),
                _ => {}
            }
        }
        let cut: Vec<Cut> = items
            .iter()
            .zip(&states)
            .filter(|(_, state)| !state.passes())
            .map(|(item, state)| Cut { facet, name: item.name.clone(), state: *state })
            .collect();
        match cut.first() {
            None => Passes::Whole,
            Some(first) if server.quarantine == Quarantine::Server => Passes::Refused(first.state),
            Some(_) => Passes::Cut(cut::without(parts, &|n| !states[n].passes(), false), cut),
        }
    }

    /// Why a request cannot pass; `None` if it can. `params` is the raw JSON of its parameters.
    #[must_use]
    pub fn refuses(&self, method: &str, params: Option<&[u8]>) -> Option<State> {
        let (facet, name) = match method {
            "tools/call" => (Facet::Tools, "name"),
            "prompts/get" => (Facet::Prompts, "name"),
            "resources/read" => (Facet::Resources, "uri"),
            _ => return None,
        };
        let server = self.server.lock();
        if let Some(state) = self.quarantined(&server) {
            return Some(state);
        }
        if !server.rules.pins(facet) {
            return None;
        }
        // What has no name that everybody reads alike may be anything.
        let Some(name) = params.and_then(|p| one_member(p, name)).and_then(canon::decode_string) else {
            return Some(State::Ambiguous);
        };
        let key = (facet, pinned_name(facet, &name));
        let state = server.stands(&key, self.announced.get(&key), self.listed.contains(&facet));
        // A list of resources is never all that can be read.
        let unlisted = matches!(state, State::Unlisted | State::NotListedHere | State::New);
        if facet == Facet::Resources && unlisted && server.decided.unknown.is_none() {
            return None;
        }
        (!state.passes()).then_some(state)
    }

    /// Why everything of the server is kept back, where that is done for one item.
    fn quarantined(&self, server: &Known) -> Option<State> {
        if server.quarantine == Quarantine::Item {
            return None;
        }
        let states = self.announced.iter().map(|(key, announced)| server.stands(key, Some(announced), true));
        states.filter(|state| !state.passes()).max()
    }
}

fn whole(facet: Facet, value: Value) -> Item {
    Item { facet, name: String::new(), hash: value.hash, content: value.content, ambiguity: value.ambiguity }
}

/// The notifications of changes that these capabilities promise.
fn promised(capabilities: &[u8]) -> Vec<&'static str> {
    let promises = |name: &str| {
        let of_list = member(capabilities, name).and_then(|of| member(of, "listChanged"));
        of_list == Some(b"true")
    };
    [
        ("tools", "notifications/tools/list_changed"),
        ("prompts", "notifications/prompts/list_changed"),
        ("resources", "notifications/resources/list_changed"),
    ]
    .into_iter()
    .filter(|(name, _)| promises(name))
    .map(|(_, method)| method)
    .collect()
}

/// The names of items that are ambiguous, or of which there are two.
fn ambiguous(items: &[Item]) -> HashSet<&str> {
    let (mut hashes, mut found) = (HashMap::new(), HashSet::new());
    for item in items {
        let first = hashes.entry(item.name.as_str()).or_insert(&item.hash);
        if item.ambiguity.is_some() || **first != item.hash {
            found.insert(item.name.as_str());
        }
    }
    found
}

/// The raw value of the one member of this name.
fn one_member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut found = canon::members(object).ok()?.flatten().filter(|m| m.key.as_deref() == Some(name));
    let value = found.next()?.value;
    found.next().is_none().then(|| &object[value])
}

/// The raw value of the last member of this name.
fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let found = canon::members(object).ok()?.flatten().filter(|m| m.key.as_deref() == Some(name)).last()?;
    Some(&object[found.value])
}

#[cfg(test)]
mod tests;
