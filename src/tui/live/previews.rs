//! What calls ask for, in one line each: of those on the screen whose arguments are stored, read beside it.

use crate::{
    live::{
        evidence::{self, StoredArguments},
        row::CallRow,
        state::State,
    },
    model::{InvocationId, SessionId, WallTime},
    tui::msg::{Effect, Job, Ticket, Told, hear},
};
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

/// Receipts are looked up at most this often, milliseconds.
const AGAIN_MS: i64 = 200;
/// Previews that are kept.
const KEPT: usize = 20_000;

type Found = Vec<(SessionId, InvocationId, StoredArguments)>;

/// The previews that are known.
#[derive(Debug, Default)]
pub(super) struct Previews {
    known: HashMap<InvocationId, Option<String>>,
    /// Sessions that do not store arguments.
    without: HashSet<SessionId>,
    reading: Option<Ticket<Found>>,
    started: i64,
}

impl Previews {
    /// Whether any call has one.
    pub fn any(&self, state: &State) -> bool {
        state.messages().has_contents() || self.known.values().any(Option::is_some)
    }

    /// What a call asks for.
    pub fn of<'a>(&'a self, state: &'a State, row: &CallRow) -> Option<&'a str> {
        let [sent, _] = state.messages().contents_of(row.session_id, row.invocation_id);
        sent.map(|content| content.said.preview.as_str())
            .or_else(|| self.known.get(&row.invocation_id).and_then(Option::as_deref))
    }

    /// Looks up those of these calls that have a receipt and are not known.
    pub fn poll<'a>(&mut self, state: &State, calls: impl Iterator<Item = &'a CallRow>, now: WallTime) -> Vec<Effect> {
        if self.reading.is_some() || (now.millis() - self.started).abs() < AGAIN_MS {
            return Vec::new();
        }
        let receipts = |row: &CallRow| {
            let card = state.sessions().get(&row.session_id)?.card.as_ref()?;
            Some((card.receipts.clone(), row.clone()))
        };
        let wanted: Vec<(PathBuf, CallRow)> = calls
            .filter(|row| row.receipt_id.is_some() && row.arguments_hash.is_some())
            .filter(|row| !self.known.contains_key(&row.invocation_id) && !self.without.contains(&row.session_id))
            .filter_map(receipts)
            .collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        if self.known.len() > KEPT {
            self.known.clear();
        }
        self.started = now.millis();
        let ticket = Ticket::new();
        self.reading = Some(ticket.clone());
        vec![Effect::Start(Job::new(&ticket, "previews", move |teller| {
            let stop = teller.flag();
            let read = |(path, row): &(PathBuf, CallRow)| {
                (row.session_id, row.invocation_id, evidence::arguments(path, row, &stop))
            };
            teller.tell(wanted.iter().map(read).collect());
        }))]
    }

    /// Takes what a job found; gives back what is another's.
    pub fn told(&mut self, told: Told) -> Result<(), Told> {
        let found = hear(self.reading.as_ref(), told)?;
        self.reading = None;
        for (session, call, stored) in found {
            let preview = match stored {
                StoredArguments::Preview(text) => Some(text),
                StoredArguments::Elsewhere => None,
                StoredArguments::Nowhere => {
                    self.without.insert(session);
                    None
                }
            };
            self.known.insert(call, preview);
        }
        Ok(())
    }
}
