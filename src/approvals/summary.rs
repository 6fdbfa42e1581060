//! How a surface that was seen stands with what is decided about it.

use super::lockfile;
use crate::{
    model::{
        Vocabulary as _,
        surface::{Facet, Outcome, Pin, Severity, Snapshot, State},
    },
    surface::{
        diff::{Approved, against},
        rules::Rules,
    },
};
use std::collections::BTreeMap;

/// One item, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The item.
    pub pin: Pin,
    /// How it stands.
    pub state: State,
    /// The decision that it rests on, if it is approved.
    pub approval_id: Option<String>,
    /// What was hashed, as text, where it is known.
    pub content: Option<String>,
}

/// A surface, how each of its items stands, and what it comes to.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The root, or why there is none.
    pub root: Result<String, String>,
    /// Every item.
    pub items: Vec<Standing>,
    /// What it comes to.
    pub outcome: Outcome,
    /// Whether anything was decided about this server at all.
    pub decided: bool,
}

impl Summary {
    /// How a surface stands.
    #[must_use]
    pub fn of(seen: &Snapshot, approved: &Approved, rules: &Rules) -> Self {
        let moved = approved.in_force.other_endpoint.is_some();
        let standing = |(pin, content): (Pin, Option<Option<String>>)| {
            let known = approved.in_force.state(pin.facet, &pin.name, &pin.hash);
            let state = match (&content, known) {
                (None, _) => State::Ambiguous,
                // What was approved was approved somewhere else.
                (Some(_), State::Approved | State::FirstUse) if moved => State::Changed,
                (Some(_), known) => known,
            };
            let by = approved.in_force.by(pin.facet, &pin.name, &pin.hash).filter(|_| state.passes());
            let approval_id = by.map(|by| by.approval_id.clone());
            Standing { approval_id, content: content.flatten(), pin, state }
        };
        Self {
            root: seen.root().map(|r| r.to_string()).map_err(|e| e.to_string()),
            items: lockfile::pins(seen).into_iter().map(standing).collect(),
            outcome: against(approved, seen, rules),
            decided: !approved.in_force.is_empty(),
        }
    }

    /// How many items stand in each way that any of them does.
    #[must_use]
    pub fn states(&self) -> Vec<(State, usize)> {
        let count = |state: State| self.items.iter().filter(|i| i.state == state).count();
        State::ALL.iter().map(|state| (*state, count(*state))).filter(|(_, n)| *n > 0).collect()
    }

    /// How many changes there are of each severity, the worst first.
    #[must_use]
    pub fn severities(&self) -> Vec<(Severity, usize)> {
        let mut all: BTreeMap<Severity, usize> = BTreeMap::new();
        for difference in self.outcome.differences() {
            *all.entry(difference.severity()).or_default() += 1;
        }
        all.into_iter().rev().collect()
    }

    /// In a few words, as every list shows it.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.outcome {
            Outcome::Unreachable(_) => "unreachable".to_owned(),
            _ if !self.decided => match &self.root {
                Ok(_) => "nothing approved".to_owned(),
                Err(_) => "nothing approved, incomplete".to_owned(),
            },
            Outcome::Changed(_) => {
                let worst = self.severities().first().map(|(s, n)| format!(" ({n} {s})"));
                format!("changed{}", worst.unwrap_or_default())
            }
            // A client that only asked for tools has seen no more of it.
            Outcome::Incomplete(_) if self.items.iter().all(|i| i.state.passes()) => {
                format!("{}, incomplete", self.by_whom())
            }
            Outcome::Incomplete(_) => "incomplete".to_owned(),
            Outcome::Identical | Outcome::Equivalent(_) => self.by_whom().to_owned(),
        }
    }

    /// What was seen first is never called approved.
    fn by_whom(&self) -> &'static str {
        if self.items.iter().any(|i| i.state == State::FirstUse) { "first use" } else { "approved" }
    }

    /// Items that can be read in two ways, as they are named on the command line.
    #[must_use]
    pub fn ambiguous(&self) -> Vec<String> {
        let unclear = self.items.iter().filter(|i| i.state == State::Ambiguous);
        unclear.map(|i| lockfile::named(i.pin.facet, &i.pin.name)).collect()
    }
}

/// Reads `tools/NAME`, or the name of a facet that is one value. A resource is named by its URI, or as it is shown.
///
/// # Errors
/// What was expected.
pub fn item_named(text: &str) -> Result<(Facet, String), String> {
    let (facet, name) = text.split_once('/').map_or((text, None), |(facet, name)| (facet, Some(name)));
    let values = [Facet::Capabilities, Facet::Instructions];
    let found = Facet::LISTS.into_iter().chain(values).find(|f| f.word() == facet);
    match (found, name) {
        (Some(facet), Some(name)) if facet.members().is_some() && !name.is_empty() => {
            let pinned = name.starts_with("sha256-raw:");
            let name = if pinned { name.to_owned() } else { crate::model::surface::pinned_name(facet, name) };
            Ok((facet, name))
        }
        (Some(facet), None) if facet.members().is_none() => Ok((facet, String::new())),
        _ => Err("expected tools/NAME, prompts/NAME, resources/URI, resource_templates/TEMPLATE, instructions or \
                  capabilities"
            .to_owned()),
    }
}
