//! What the empty screen says of this machine's MCP servers: which leave no evidence. Found beside the screen.

use crate::{
    clients::{
        discover::{self, Surroundings, Wanted},
        scan::scan,
        state::State,
        table::CLIENTS,
    },
    model::WallTime,
    tui::msg::{self, Effect, Job, Ticket, Told},
};
use std::path::PathBuf;

/// How long what was found is taken to be so while nothing else happens, milliseconds.
const AGAIN_MS: i64 = 30_000;

/// Where servers are looked for.
#[derive(Debug, Clone)]
pub struct Place {
    /// The user's configurations.
    pub around: Surroundings,
    /// The project: the directory where the dashboard was started.
    pub project: PathBuf,
}

/// What was found. It names clients, and nothing that a configuration says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Local servers that leave no evidence.
    pub missing: usize,
    /// Those that are recorded.
    pub recorded: usize,
    /// The clients that start the former.
    pub clients: Vec<&'static str>,
}

/// What is known, and how it is kept up to date.
#[derive(Debug, Default)]
pub(super) struct Hint {
    place: Option<Place>,
    ticket: Option<Ticket<Found>>,
    asked: Option<WallTime>,
    pub found: Found,
}

impl Hint {
    pub fn at(place: Option<Place>) -> Self {
        Self { place, ..Self::default() }
    }

    /// Looks, unless that was done just now.
    pub fn look(&mut self, now: WallTime) -> Vec<Effect> {
        let is_fresh = self.asked.is_some_and(|at| now.millis().abs_diff(at.millis()) < AGAIN_MS.unsigned_abs());
        let Some(place) = self.place.clone().filter(|_| !is_fresh && self.ticket.is_none()) else { return Vec::new() };
        self.asked = Some(now);
        let ticket = Ticket::new();
        self.ticket = Some(ticket.clone());
        vec![Effect::Start(Job::new(&ticket, "scan", move |teller| teller.tell(find(&place))))]
    }

    /// Takes what was found.
    pub fn told(&mut self, told: Told) -> Result<(), Told> {
        self.found = msg::hear(self.ticket.as_ref(), told)?;
        self.ticket = None;
        Ok(())
    }
}

fn find(place: &Place) -> Found {
    let files = discover::files(&place.around, &Wanted::default(), &place.project, false);
    let scan = scan(&files, &place.project, false);
    let mut clients: Vec<&'static str> = Vec::new();
    for file in &scan.clients {
        let is_missing = file.servers.iter().any(|server| server.enabled && server.state.is_missing());
        let name = CLIENTS.iter().find(|client| client.id == file.client).map_or(file.client, |client| client.name);
        if is_missing && !clients.contains(&name) {
            clients.push(name);
        }
    }
    let recorded = scan.summary.count(State::Recorded) + scan.summary.count(State::Guarded);
    Found { missing: scan.summary.missing(), recorded, clients }
}
