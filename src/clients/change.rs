//! Changing the entries of one file: what becomes of each, the new text, and the difference as it may be shown.

use super::{
    discover::Found,
    entry::{Entry, Transport},
    names::Names,
    plan::{self, Ground, Step, Wishes},
    read::{self, Dialect, Fault},
    scan,
    splice::{self, Refusal, Slot},
    state::{Programs, Seen},
    tree::{Kind, Node},
};
use serde::Serialize;
use std::path::Path;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// The proxy goes in front.
    Wrap,
    /// The proxy goes away.
    Unwrap,
}

/// Which entries of a file are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// Name of the server; none means every one.
    pub name: Option<String>,
    /// The project, in a file that has several.
    pub project: Option<String>,
}

/// What became of an entry, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The proxy stands in front.
    Wrapped,
    /// Our part was replaced.
    Rewrapped,
    /// The proxy is gone.
    Unwrapped,
    /// It was as it is wanted.
    Unchanged,
    /// It was left alone.
    Skipped,
}

/// An entry, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Name of the server.
    pub name: String,
    /// The project, in a file that has several.
    pub project: Option<String>,
    /// What became of it.
    pub action: Action,
    /// Why it was left alone.
    pub reason: Option<String>,
    /// What somebody should know.
    pub warnings: Vec<String>,
    /// Whether it was asked for by its name.
    #[serde(skip)]
    pub named: bool,
}

/// A new text, and what became of the entries.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The new text.
    pub text: String,
    /// The entries that were meant, in the order of the file.
    pub done: Vec<Done>,
    /// Where the commands of entries that were changed are.
    pub slots: Vec<Slot>,
}

/// What a change depends on.
#[derive(Debug)]
pub struct Job<'a> {
    /// What is to be done.
    pub verb: Verb,
    /// The file, once for each way to servers in it.
    pub found: &'a [Found],
    /// Which entries are meant.
    pub picks: &'a [Pick],
    /// What is asked for.
    pub wishes: &'a Wishes,
    /// The user's home.
    pub home: Option<&'a Path>,
    /// Which servers would have which name.
    pub names: &'a Names,
    /// The program for files of the user.
    pub own: &'a Result<String, String>,
    /// Whether files that somebody else brought are changed, too.
    pub force: bool,
}

impl Job<'_> {
    /// Makes the new text of the file.
    ///
    /// # Errors
    /// The file cannot be read, or the client does not read it.
    pub fn apply(&self, real: &Path, bytes: &[u8], programs: &mut Programs) -> Result<Outcome, Fault> {
        let text = read::text(bytes)?;
        let mut outcome = Outcome { text: text.to_owned(), done: Vec::new(), slots: Vec::new() };
        for found in self.found {
            if found.place.dialect == Dialect::Json
                && let Some(fault) = scan::rejected(text, found.place.reads)
            {
                let what = format!("{} refuses this file: it has {}", found.client.name, fault.what);
                return Err(Fault { what, ..fault });
            }
            for (entry, seen) in scan::servers(found, text, programs)? {
                if let Some(named) = self.meant(&entry) {
                    let done = self.one(found, &entry, &seen, named, real, &mut outcome, programs);
                    outcome.done.push(done);
                }
            }
        }
        Ok(outcome)
    }

    /// Whether an entry is meant, and by its name.
    fn meant(&self, entry: &Entry) -> Option<bool> {
        let fits = |pick: &&Pick| {
            pick.name.as_ref().is_none_or(|name| *name == entry.name)
                && (pick.project.is_none() || pick.project == entry.project)
        };
        self.picks.iter().find(fits).map(|pick| pick.name.is_some())
    }

    #[allow(clippy::too_many_arguments)]
    fn one(
        &self,
        found: &Found,
        entry: &Entry,
        seen: &Seen,
        named: bool,
        real: &Path,
        outcome: &mut Outcome,
        programs: &Programs,
    ) -> Done {
        let mut done = Done {
            name: entry.name.clone(),
            project: entry.project.clone(),
            action: Action::Unchanged,
            reason: None,
            warnings: Vec::new(),
            named,
        };
        let skip = |done: &mut Done, why: String| {
            done.action = Action::Skipped;
            done.reason = Some(why);
        };
        let step = match self.verb {
            Verb::Unwrap if seen.wrapped.is_none() => Step::Nothing,
            Verb::Unwrap => match plan::untouchable(entry, found.place.scope, self.force) {
                Some(why) => Step::Skip(why),
                None => Step::Wrap(splice::Ours { program: String::new(), flags: Vec::new() }),
            },
            Verb::Wrap => plan::decide(
                entry,
                seen,
                &Ground {
                    client: found.client,
                    file: &found.file,
                    names: self.names,
                    scope: found.place.scope,
                    home: self.home,
                    own: self.own,
                    wishes: self.wishes,
                    force: self.force,
                },
            ),
        };
        let (dialect, text) = (found.place.dialect, outcome.text.as_str());
        let slot = entry.slot.as_ref().ok_or_else(|| Refusal::Skip("it has no command".to_owned()));
        let bridge =
            |text: &str, ours: &splice::Ours| splice::remote::wrap(dialect, text, &entry.path, found.client, ours);
        let with =
            |change: &dyn Fn(&Slot) -> Result<String, Refusal>| Ok((change(slot.clone()?)?, slot.clone()?.clone()));
        let by_hand = match &step {
            Step::Wrap(ours) if self.verb == Verb::Wrap => Some(ours.by_hand()),
            _ => None,
        };
        let (changed, action) = match step {
            Step::Nothing => return done,
            Step::Skip(why) => {
                skip(&mut done, why);
                return done;
            }
            _ if plan::generated(real, text) && !self.force => {
                let hand = match self.verb {
                    Verb::Wrap => "put assay mcp-proxy -- in front of the command there",
                    Verb::Unwrap => "remove assay mcp-proxy and its options there",
                };
                let why = format!("the file is generated; change what it is made from: {hand}; or give --force");
                skip(&mut done, why);
                return done;
            }
            Step::Wrap(_) if self.verb == Verb::Unwrap => {
                (with(&|slot| splice::unwrap(dialect, text, slot)), Action::Unwrapped)
            }
            Step::Wrap(ours) => (with(&|slot| splice::wrap(dialect, text, slot, &ours)), Action::Wrapped),
            Step::Bridge(ours) => (bridge(text, &ours), Action::Wrapped),
            Step::Rewrap(ours) if seen.wrapped.as_ref().is_some_and(splice::remote::is_remote) => {
                let ours = splice::Ours { flags: splice::remote::wished(seen.wrapped.as_ref(), &ours.flags), ..ours };
                let again = slot.and_then(|slot| bridge(&splice::unwrap(dialect, text, slot)?, &ours));
                (again, Action::Rewrapped)
            }
            Step::Rewrap(ours) => {
                let again = |slot: &Slot| splice::wrap(dialect, &splice::unwrap(dialect, text, slot)?, slot, &ours);
                (with(&again), Action::Rewrapped)
            }
        };
        match changed {
            Ok((text, slot)) => {
                outcome.text = text;
                outcome.slots.push(slot);
                done.action = action;
                if self.verb == Verb::Wrap {
                    done.warnings = self.warnings(found, entry, programs);
                }
            }
            Err(refusal) => {
                let hand = by_hand.map(|hand| format!("; in front of its command belongs: {hand}")).unwrap_or_default();
                skip(&mut done, format!("{refusal}{hand}"));
            }
        }
        done
    }

    fn warnings(&self, found: &Found, entry: &Entry, programs: &Programs) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(dir) = plan::out_of_sight(entry, found.client, programs).filter(|_| self.wishes.path.is_empty()) {
            let dir = dir.display();
            warnings.push(format!(
                "{} may start servers with a short PATH, without {dir}; if the server is not found: --path {dir}",
                found.client.name
            ));
        }
        if entry.transport == Transport::Remote {
            warnings.push(format!(
                "if the server asks for a login, {} cannot do that any more: assay unwrap it then",
                found.client.name
            ));
        }
        if entry.sandboxed {
            warnings.push("the client's sandbox must let assay write to its audit directory".to_owned());
        }
        warnings
    }
}

/// The difference between two texts. Whatever could be a secret is masked: every value but the commands of the entries that
/// change.
#[must_use]
pub fn difference(dialect: Dialect, old: &str, new: &str, slots: &[Slot], name: &str) -> String {
    let (old, new) = (masked(dialect, old, slots), masked(dialect, new, slots));
    similar::TextDiff::from_lines(&old, &new).unified_diff().context_radius(2).header(name, name).to_string()
}

fn masked(dialect: Dialect, text: &str, slots: &[Slot]) -> String {
    let Ok(Some(tree)) = read::tree(dialect, text) else { return String::new() };
    let open: Vec<&Node> = slots
        .iter()
        .flat_map(|slot| {
            let map = tree.at(&slot.path);
            [map.and_then(|map| map.get(&slot.command)), map.and_then(|map| map.get(&slot.args))]
        })
        .flatten()
        .collect();
    let mut spans = Vec::new();
    collect(&tree, &open, &mut spans);
    spans.sort_by_key(|span: &std::ops::Range<usize>| span.start);
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    for span in spans.into_iter().filter(|span| !span.is_empty()) {
        let Some(kept) = text.get(at..span.start) else { continue };
        shown.push_str(kept);
        shown.push('…');
        // Lines stay lines.
        shown.extend(text.get(span.clone()).unwrap_or_default().matches('\n'));
        at = span.end;
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    shown
}

fn collect(node: &Node, open: &[&Node], spans: &mut Vec<std::ops::Range<usize>>) {
    if open.iter().any(|known| std::ptr::eq(*known, node)) {
        return;
    }
    match &node.kind {
        Kind::List(items) => items.iter().for_each(|item| collect(item, open, spans)),
        Kind::Map(members) => members.iter().for_each(|member| collect(&member.value, open, spans)),
        Kind::Text(_) | Kind::Other(_) => spans.push(node.span.clone()),
        Kind::Flag(_) | Kind::Null => {}
    }
}
