//! What of the server's surface a guard keeps back: listings are cut before they pass, and calls of what was not approved
//! are refused.

use super::{
    inspect::{Item, ItemKind, ends::Ends},
    refusal::denied,
    replies::{self, Refused},
};
use crate::{
    canon,
    model::{
        PolicyReason, PolicyVerdict,
        surface::{Facet, State},
    },
    record::{
        envelope::{self, IdKey},
        judge::Decision,
    },
    surface::{
        cut::Edits,
        gate::{self, Cut, Passes, Server},
    },
    text::{alike, counted},
};
use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

/// A request of a client: the exchange that it came in, 0 over a transport without these, and its id.
#[derive(Debug, Clone)]
pub struct Asked {
    exchange: u64,
    id: IdKey,
    /// As it was sent: a client that compares texts takes nothing else.
    raw: Box<[u8]>,
}

impl Asked {
    fn new(exchange: u64, raw: &[u8]) -> Self {
        Self { exchange, id: IdKey::of(raw), raw: raw.into() }
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        (self.exchange, &self.id) == (other.exchange, &other.id)
    }
}

impl Eq for Asked {}

impl Hash for Asked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.exchange, &self.id).hash(state);
    }
}

/// The surface of a server for one client, shared with who brings other decisions.
pub type SharedGate = Arc<Mutex<gate::Gate<Asked>>>;

/// The gate of a client that begins.
#[must_use]
pub fn begin(server: Server) -> SharedGate {
    Arc::new(Mutex::new(gate::Gate::new(server)))
}

/// What the client gets in the place of a message, and what is recorded about that.
#[derive(Debug, Default)]
pub(super) struct Instead {
    pub(super) edits: Edits,
    notes: Vec<String>,
}

impl Instead {
    /// What is recorded: what was cut, and the message that the client got.
    pub(super) fn decisions(&self, got: &[u8]) -> Vec<Decision> {
        let sent = format!("the client got a text of length {} with SHA-256 {}", got.len(), canon::sha256_hex(got));
        let decision = |note: &String| Decision {
            index: None,
            verdict: PolicyVerdict::Allowed,
            reason: PolicyReason::SurfaceFiltered.into(),
            rule: Some(format!("{note}; {sent}")),
            unseen: Vec::new(),
        };
        self.notes.iter().map(decision).collect()
    }
}

/// The gate, also after a panic of another thread: what it knows is never half.
pub fn locked(gate: &SharedGate) -> MutexGuard<'_, gate::Gate<Asked>> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether somebody uses it at the moment, who may have a long list to look at.
pub(super) fn is_busy(gate: &SharedGate) -> bool {
    matches!(gate.try_lock(), Err(TryLockError::WouldBlock))
}

const fn reason(state: State) -> PolicyReason {
    match state {
        State::Changed => PolicyReason::SurfaceChanged,
        State::Blocked => PolicyReason::SurfaceBlocked,
        State::Ambiguous => PolicyReason::SurfaceAmbiguous,
        State::Unlisted | State::NotListedHere => PolicyReason::SurfaceUnlisted,
        State::New | State::Approved | State::FirstUse => PolicyReason::SurfaceNew,
    }
}

/// A refusal as the record has it, and its words.
fn refused(state: State, index: Option<usize>) -> (Decision, String) {
    let reason = reason(state);
    let words = match state {
        State::Changed => "its definition is not the one that was approved; see assay surface diff",
        State::Blocked => "it is blocked",
        State::Ambiguous => "its definition can be read in two ways",
        State::Unlisted | State::NotListedHere => "no approved listing holds it",
        State::New | State::Approved | State::FirstUse => "it is not approved; see assay surface approve",
    };
    (denied(reason, &reason.as_str().replace(':', "."), index), words.to_owned())
}

/// Why an element of the client's cannot pass; `None` if it can.
pub(super) fn refusal(gate: &SharedGate, item: &Item<'_>, index: Option<usize>) -> Option<(Decision, String)> {
    let method = item.method.and_then(canon::decode_string)?;
    let state = locked(gate).refuses(&method, item.params)?;
    Some(refused(state, index))
}

/// A message of the client passes on.
pub(super) fn asked(gate: &SharedGate, item: &Item<'_>, exchange: u64) {
    let Some(method) = item.method.and_then(canon::decode_string) else { return };
    match (item.kind, item.id) {
        (ItemKind::Request, Some(id)) => {
            locked(gate).asked(Some(Asked::new(exchange, id)), &method, item.params);
        }
        (ItemKind::Notification, _) => locked(gate).asked(None, &method, item.params),
        _ => {}
    }
}

/// Where a message of the server came in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Came<'a> {
    /// The exchange, 0 over a transport without these.
    pub(super) exchange: u64,
    /// The ids of the requests that the client sent in it.
    pub(super) own: &'a [Box<[u8]>],
}

/// What is known of what a message of the server may answer.
pub(super) struct Origin<'a> {
    pub(super) came: Came<'a>,
    /// Whether a request of the client with this very id waits for an answer.
    pub(super) is_open: &'a dyn Fn(&[u8]) -> bool,
    /// The policy in force.
    pub(super) policy: &'a dyn Fn() -> String,
}

/// Bytes of a notification: what is longer is not looked at for one.
const LONGEST_NOTIFICATION: usize = 64 << 10;

/// What the client gets in the place of a message of the server; `None`: the message.
pub(super) fn instead(gate: &SharedGate, text: &[u8], origin: &Origin<'_>) -> Option<Instead> {
    let mut gate = locked(gate);
    if text.len() < LONGEST_NOTIFICATION
        && memchr::memmem::find(text, b"list_changed").is_some()
        && let Some(method) = member(text, "method").and_then(canon::decode_string)
    {
        gate.notified(&method);
    }
    // Where nobody waits, an answer may still be a second one to who has got the first.
    if !gate.awaits_any() && !envelope::is_batch(text) && first_id(text).is_none_or(origin.is_open) {
        return None;
    }
    if envelope::is_batch(text) && canon::scan(text).is_err() {
        // It is no message, and refused as that.
        return None;
    }
    let (mut all, mut done) = (Instead::default(), Vec::new());
    for range in messages(text) {
        if let Some(one) = one(&mut gate, &text[range.clone()], origin, &mut done) {
            all.edits.and(one.edits.behind(range.start));
            all.notes.extend(one.notes);
        }
    }
    (!all.edits.is_empty()).then_some(all)
}

/// The first id of a message.
fn first_id(text: &[u8]) -> Option<&[u8]> {
    let mut members = canon::members(text).ok()?.map_while(Result::ok);
    members.find(|m| m.key.as_deref() == Some("id")).map(|m| &text[m.value])
}

/// The messages of a text: the elements, if it is a batch.
fn messages(text: &[u8]) -> Vec<std::ops::Range<usize>> {
    if !envelope::is_batch(text) {
        return std::iter::once(0..text.len()).collect();
    }
    canon::elements(text).map(|elements| elements.map_while(Result::ok).collect()).unwrap_or_default()
}

/// What of an answer says which request it answers.
#[derive(Default)]
struct Answer<'a> {
    /// A client may take any of several ids for the one that counts.
    ids: Vec<&'a [u8]>,
    has_result: bool,
    has_error: bool,
}

impl<'a> Answer<'a> {
    fn of(text: &'a [u8]) -> Self {
        let mut answer = Self::default();
        for m in canon::members(text).into_iter().flatten().map_while(Result::ok) {
            let Some(key) = m.key.as_deref() else { continue };
            let is = |name| alike::is_like(key, name) || alike::is_misread_as(&text[m.key_range.clone()], name);
            if is("id") {
                answer.ids.push(&text[m.value.clone()]);
            }
            answer.has_result |= is("result");
            answer.has_error |= is("error");
        }
        answer
    }

    /// The request for a part of the surface that it answers, with the id: one of its own exchange, else of another one of
    /// the client, if its own did not ask with this id.
    fn answers(&self, gate: &gate::Gate<Asked>, origin: &Origin<'_>) -> Option<(&'a [u8], Asked)> {
        self.ids.iter().find_map(|raw| {
            let here = Asked::new(origin.came.exchange, raw);
            let elsewhere = || {
                let is_own = origin.came.own.iter().any(|own| IdKey::of(own) == here.id);
                let found = gate.asked_for().find(|asked| asked.id == here.id).filter(|_| !is_own)?;
                (gate.awaits(found) || !(origin.is_open)(raw)).then_some(found)
            };
            let found = gate.asked_as(&here).or_else(elsewhere);
            found.map(|asked| (*raw, asked.clone()))
        })
    }

    /// The id by which some client takes it for the answer to a request for a part of the surface, and others do not:
    /// clients turn `"1"` into 1, and back.
    fn may_answer(&self, gate: &gate::Gate<Asked>, origin: &Origin<'_>) -> Option<&'a [u8]> {
        if !self.has_result {
            return None;
        }
        let is_like = |raw: &&&[u8]| {
            !(origin.is_open)(raw) && gate.asked_for().any(|asked| is_loosely(&asked.id, &IdKey::of(raw)))
        };
        self.ids.iter().find(is_like).copied()
    }
}

fn one(gate: &mut gate::Gate<Asked>, text: &[u8], origin: &Origin<'_>, done: &mut Vec<Asked>) -> Option<Instead> {
    let answer = Answer::of(text);
    if !answer.has_result && !answer.has_error {
        return None;
    }
    let refused = |id, state| refuse(text.len(), id, state, &(origin.policy)());
    if let Some(id) = answer.ids.iter().find(|id| done.iter().any(|asked| asked.id == IdKey::of(id))) {
        // Which of two answers counts is the client's business.
        return refused(id, State::Ambiguous);
    }
    let Some((id, asked)) = answer.answers(gate, origin) else {
        return refused(answer.may_answer(gate, origin)?, State::Ambiguous);
    };
    // One client takes 1.0 for 1, and another one goes on waiting.
    let is_last = *asked.raw == *id;
    let passes = gate.answered(&asked, text, is_last);
    done.push(asked);
    match passes {
        Passes::Whole => None,
        Passes::Cut(edits, cut) => Some(Instead { edits, notes: notes(&cut) }),
        Passes::Refused(state) => refused(id, state),
    }
}

/// Whether a message of the server is, for some client, the answer to a request for a part of the surface.
pub(super) fn is_answer(gate: &SharedGate, text: &[u8], origin: &Origin<'_>) -> bool {
    let gate = locked(gate);
    let is = |range: std::ops::Range<usize>| {
        let answer = Answer::of(&text[range]);
        answer.has_result && answer.answers(&gate, origin).is_some() || answer.may_answer(&gate, origin).is_some()
    };
    canon::scan(text).is_ok() && messages(text).into_iter().any(is)
}

/// Whether some client takes one id for the other.
fn is_loosely(a: &IdKey, b: &IdKey) -> bool {
    match (loose(a), loose(b)) {
        (Loose::Number(a), Loose::Number(b)) => a.partial_cmp(&b) == Some(Ordering::Equal),
        (Loose::SomeNumber, Loose::Number(_) | Loose::SomeNumber) | (Loose::Number(_), Loose::SomeNumber) => true,
        _ => false,
    }
}

/// An id, for a client that takes it for a number.
enum Loose {
    Number(f64),
    /// It is one in other digits than ours.
    SomeNumber,
    NoNumber,
}

/// JavaScript's `Number` and Python's `int`, and what is more lenient than these.
fn loose(id: &IdKey) -> Loose {
    let text = match id {
        IdKey::Text(text) => text.as_str(),
        IdKey::Other(raw) => match &raw[..] {
            b"null" | b"false" => "0",
            b"true" => "1",
            raw => std::str::from_utf8(raw).unwrap_or("x"),
        },
    };
    let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != '_' && *c != '\u{feff}').collect();
    if plain.chars().any(|c| !c.is_ascii() && c.is_numeric()) {
        return Loose::SomeNumber;
    }
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let based = |base: u32| u64::from_str_radix(digits.get(2..).unwrap_or_default(), base).ok().map(|n| n as f64);
    let number = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => based(16),
        Some("0o") => based(8),
        Some("0b") => based(2),
        _ if digits.is_empty() => Some(0.0),
        _ => digits.parse::<f64>().ok(),
    };
    number.map_or(Loose::NoNumber, |n| Loose::Number(sign * n))
}

fn refuse(len: usize, id: &[u8], state: State, policy: &str) -> Option<Instead> {
    let worded = refused(state, None);
    let told = |id| replies::denied(&[Refused::new(id, &worded)], policy, false);
    let text = told(Some(id)).or_else(|| told(None))?;
    let notes = vec![format!("all of it: {}", reason(state).as_str())];
    Some(Instead { edits: Edits::whole(len, text), notes })
}

/// The answer to a request for a part of the surface was too long to be held: what its client gets.
pub(super) fn too_long(gate: &SharedGate, id: &[u8], origin: &Origin<'_>) -> Option<Vec<u8>> {
    let mut gate = locked(gate);
    let (_, asked) = Answer { ids: vec![id], ..Answer::default() }.answers(&gate, origin)?;
    gate.forget(&asked);
    let (decision, _) = refused(State::Ambiguous, None);
    let worded = (decision, "the list is too long to be looked at before it passes".to_owned());
    replies::denied(&[Refused::new(Some(id), &worded)], &(origin.policy)(), false)
}

/// Whether what begins like this may be an answer that has to be held.
pub(super) fn may_be_held(gate: &SharedGate, head: Ends<'_>, origin: &Origin<'_>) -> bool {
    match head.id() {
        Some(id) => is_of_listing(gate, id, origin),
        None => locked(gate).awaits_any(),
    }
}

/// Whether an answer with this id is, for some client, one that has to be held.
pub(super) fn is_of_listing(gate: &SharedGate, id: &[u8], origin: &Origin<'_>) -> bool {
    let gate = locked(gate);
    let answer = Answer { ids: vec![id], has_result: true, has_error: false };
    answer.answers(&gate, origin).is_some() || answer.may_answer(&gate, origin).is_some()
}

/// Bytes of the names in one note. With what follows them it is no longer than a text in evidence may be.
const NOTE: usize = 640;
/// Bytes of a name that are written.
const NAME: usize = 256;
/// Notes about one answer: together they leave room where rulings wait for the recorder.
const MOST_NOTES: usize = 200;

/// What was cut, in few texts: as many names of one facet and state together as are easily read.
fn notes(cut: &[Cut]) -> Vec<String> {
    let mut notes: Vec<(Facet, State, String)> = Vec::new();
    let mut left = 0;
    for Cut { facet, name, state } in cut {
        let name = named(*facet, name);
        let is_full = notes.len() == MOST_NOTES;
        let newest = notes.iter_mut().rfind(|(f, s, _)| (f, s) == (facet, state));
        if let Some((.., names)) = newest.filter(|(.., names)| names.len() + name.len() < NOTE) {
            names.extend([", ", name.as_str()]);
        } else if is_full {
            left += 1;
        } else {
            notes.push((*facet, *state, name));
        }
    }
    let mut texts: Vec<String> =
        notes.into_iter().map(|(_, state, names)| format!("{names}: {}", reason(state).as_str())).collect();
    if left > 0 {
        texts.push(format!("{} more, which are in surface.json", counted(left, "item")));
    }
    texts
}

/// What an item is called: one that could be taken for several, or for a reason, is in quotes.
fn named(facet: Facet, name: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    match name {
        "" => facet.to_string(),
        name if name.len() > NAME => {
            let short = &name[..name.floor_char_boundary(NAME)];
            format!("{facet}/{short:?}\u{2026} (SHA-256 of the name {})", canon::sha256_hex(name.as_bytes()))
        }
        name if name.bytes().all(is_plain) => format!("{facet}/{name}"),
        name => format!("{facet}/{name:?}"),
    }
}

/// The raw value of the last member of this name.
fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let found = canon::members(object).ok()?.map_while(Result::ok).filter(|m| m.key.as_deref() == Some(name)).last()?;
    Some(&object[found.value])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::rules::Rules;

    #[test]
    fn a_gate_is_busy_while_somebody_looks_at_a_list() {
        let server = Server::new(gate::Decided::default(), Rules::default(), gate::First::Tofu, gate::Quarantine::Item);
        let gate = begin(server);
        assert!(!is_busy(&gate));
        let looking = locked(&gate);
        assert!(is_busy(&gate));
        drop(looking);
        assert!(!is_busy(&gate));
    }

    #[test]
    fn what_was_cut_is_named_in_few_texts_that_nobody_misreads() {
        let cut = |name: &str, state| Cut { facet: Facet::Tools, name: name.to_owned(), state };
        let whole = Cut { facet: Facet::Instructions, name: String::new(), state: State::New };
        let long = "x".repeat(300);
        let all = [
            cut("a", State::New),
            cut("b", State::Changed),
            cut("c", State::New),
            whole,
            cut("a, tools/b: surface:approved", State::Blocked),
            cut(&long, State::Ambiguous),
        ];
        let hash = canon::sha256_hex(long.as_bytes());
        assert_eq!(
            notes(&all),
            [
                "tools/a, tools/c: surface:new".to_owned(),
                "tools/b: surface:changed".to_owned(),
                "instructions: surface:new".to_owned(),
                "tools/\"a, tools/b: surface:approved\": surface:blocked".to_owned(),
                format!("tools/\"{}\"… (SHA-256 of the name {hash}): surface:ambiguous", "x".repeat(NAME)),
            ]
        );
        let many: Vec<Cut> = (0..100_000).map(|n| cut(&format!("tool_number_{n}"), State::New)).collect();
        let texts = notes(&many);
        assert_eq!(texts.len(), MOST_NOTES + 1);
        let named: usize = texts[..MOST_NOTES].iter().map(|text| text.matches("tools/").count()).sum();
        assert_eq!(texts[MOST_NOTES], format!("{} more, which are in surface.json", counted(100_000 - named, "item")));
        let instead = Instead { edits: Edits::default(), notes: texts };
        let record =
            instead.decisions(b"{}").iter().map(|d| d.rule.as_ref().map_or(0, String::len)).collect::<Vec<_>>();
        assert!(record.iter().all(|len| *len <= 1024) && record.iter().sum::<usize>() < 1 << 18, "{record:?}");
    }

    #[test]
    fn ids_that_some_client_takes_for_one_another() {
        for (a, b, same) in [
            ("1", "\"1\"", true),
            ("1", "\" 0x1 \"", true),
            ("1", "\"1e0\"", true),
            ("10", "\"1_0\"", true),
            ("0", "\"\"", true),
            ("0", "null", true),
            ("7", "\"\u{ff17}\"", true),
            ("1", "2", false),
            ("1", "\"a\"", false),
            ("\"a\"", "\"b\"", false),
        ] {
            assert_eq!(is_loosely(&IdKey::of(a.as_bytes()), &IdKey::of(b.as_bytes())), same, "{a} {b}");
            assert_eq!(is_loosely(&IdKey::of(b.as_bytes()), &IdKey::of(a.as_bytes())), same, "{b} {a}");
        }
    }
}
