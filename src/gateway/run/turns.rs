//! How routes stand: what is decided, kept in memory and in the registry. A route closes in memory first, and opens there last.

use super::{AGAIN, Gateway};
use crate::{
    error::Failure,
    gateway::{
        look::{Standing, hash},
        registry::{ServiceRow, State},
        routes::Route,
    },
    model::WallTime,
    operate::evidence,
};
use std::time::Instant;

/// A route that stands otherwise.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    state: State,
    reason: Option<String>,
    actor: String,
    since: WallTime,
}

impl Gateway<'_> {
    /// A service as the registry has it, but for what could not be written there yet.
    pub(super) fn as_it_stands(&self, row: ServiceRow) -> ServiceRow {
        match self.unwritten.get(&row.name).filter(|turn| turn.state != State::Enabled).cloned() {
            Some(Turn { state, reason, since, .. }) if row.state == State::Enabled => {
                ServiceRow { state, reason, since: since.to_string(), ..row }
            }
            _ => row,
        }
    }

    /// Closes a route of which the registry cannot even be asked.
    pub(super) fn close_unwritten(&mut self, name: &str, reason: Option<String>) {
        self.close_in_memory(name, reason.clone());
        let (state, actor, since) = (State::DisabledDrift, "system".to_owned(), WallTime::now());
        let turn = Turn { state, reason, actor, since };
        self.unwritten.insert(name.to_owned(), turn);
    }

    /// Writes down how routes stand, once that can be done again.
    pub(super) fn write(&mut self, now: Instant) {
        let is_all = self.unwritten.is_empty() && !self.unwritable;
        if is_all || self.tried.is_some_and(|tried| now.duration_since(tried) < AGAIN) {
            return;
        }
        self.tried = Some(now);
        let touched = self.registry.touch();
        if self.wrote(touched).is_none() {
            return;
        }
        for (name, Turn { state, reason, actor, .. }) in self.unwritten.clone() {
            let row = self.registry.service(&name);
            let Some(row) = self.worked(row) else { return };
            self.unwritten.remove(&name);
            if let Some(row) = row.filter(|row| row.state != State::DisabledAdmin) {
                self.turn(&row, state, reason, &actor);
            }
        }
    }

    /// Somebody may have decided something.
    pub(super) fn decided(&mut self) {
        let anew: Vec<(String, Standing)> = self
            .lanes
            .iter_mut()
            .filter_map(|(name, lane)| {
                lane.judged_anew(&self.config.admin.approvers).map(|standing| (name.clone(), standing))
            })
            .collect();
        for (name, standing) in anew {
            self.stands(&name, standing);
        }
    }

    /// A service stands so with what is decided about it.
    pub(super) fn stands(&mut self, name: &str, standing: Standing) {
        let row = self.registry.service(name);
        let Some(row) = self.worked(row) else {
            if standing.found.is_whole() && !standing.clean {
                self.close_unwritten(name, standing.reason);
            } else if let Some(lane) = self.lanes.get_mut(name) {
                lane.decide_again();
            }
            return;
        };
        let Some(row) = row.map(|row| self.as_it_stands(row)) else { return };
        let (state, reason) = standing.state(&row);
        let Some((_, who)) = standing.decided.filter(|_| state == State::Enabled && row.state != state) else {
            return self.turn(&row, state, reason, "system");
        };
        let actor = format!("user:{who}");
        let seen = self.lanes.get(name).and_then(|lane| hash(lane.seen.as_ref()?));
        if let Some(seen) = seen {
            let approved = self.registry.approve(name, &seen, &actor, WallTime::now());
            self.wrote(approved);
        }
        self.turn(&row, state, reason, &actor);
    }

    /// Has a route stand otherwise: one that closes is closed in memory first, one that opens is opened there last.
    pub(super) fn turn(&mut self, row: &ServiceRow, state: State, reason: Option<String>, actor: &str) {
        if row.state == State::Enabled && state != State::Enabled {
            self.close_in_memory(&row.name, reason.clone());
        }
        let turned = self.registry.turn(&row.name, state, reason.as_deref(), actor, WallTime::now());
        match self.wrote(turned) {
            // It stands so already, and may not in memory.
            Some(false) if self.unwritten.remove(&row.name).is_none() => return,
            Some(_) => {}
            None => {
                let turn = Turn { state, reason, actor: actor.to_owned(), since: WallTime::now() };
                return drop(self.unwritten.insert(row.name.clone(), turn));
            }
        }
        self.unwritten.remove(&row.name);
        let service = self.registry.service(&row.name);
        if let Some(service) = self.worked(service).flatten()
            && let Err(e) = self.route(&service)
        {
            self.status.warn(&e.to_string());
        }
        let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let text = match state {
            State::Enabled => "the route is open".to_owned(),
            State::Pending => format!("the route is not open yet{why}; assay gateway services {} says more", row.name),
            State::DisabledAdmin => format!("the route is closed{why}"),
            State::DisabledDrift => format!(
                "the route is closed{why}; assay surface --audit-dir {} diff {} shows it, and approve opens it",
                evidence(&self.settings.data, &row.name).display(),
                row.name
            ),
        };
        self.status.route(&row.name, state.as_str(), &text);
    }

    pub(super) fn close_in_memory(&mut self, name: &str, reason: Option<String>) {
        let (state, since) = (State::DisabledDrift, WallTime::now().to_string());
        self.table.put(name, &Route { state, reason, since, target: None });
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.close();
        }
    }

    /// Puts a route into the table as the registry has it.
    pub(super) fn route(&mut self, service: &ServiceRow) -> Result<(), Failure> {
        let service = &self.as_it_stands(service.clone());
        let target = match self.lanes.get_mut(&service.name) {
            Some(lane) if service.state == State::Enabled => Some(lane.current()?),
            Some(lane) => {
                lane.close();
                None
            }
            None => None,
        };
        let (state, reason, since) = (service.state, service.reason.clone(), service.since.clone());
        self.table.put(&service.name, &Route { state, reason, since, target });
        Ok(())
    }
}
