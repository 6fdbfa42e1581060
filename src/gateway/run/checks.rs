//! Checks of services: when one is due, how many run, and what becomes of what they saw.

use super::{AGAIN, Gateway, Heard};
use crate::{
    gateway::{
        api::desk::Looked,
        look::{Look, Seen, hash},
        reach::endpoint,
        registry::{Found, ServiceRow, State},
        timing::{Timing, spread},
    },
    model::{WallTime, surface::Snapshot},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Checks at the same time.
const LOOKS: usize = 4;
/// The same, of services on one host.
const LOOKS_OF_HOST: usize = 2;
/// A check that takes longer is given up; what it still says is not heard.
const LONGEST_LOOK: Duration = Duration::from_secs(120);
/// When something is gone, it is looked again after so long: servers that restart have empty lists for a while.
const CONFIRM_MS: i64 = 60_000;

/// A check that runs.
pub(super) struct Looking {
    pub(super) number: u64,
    host: String,
    began: Instant,
}

/// The checks that have taken too long.
fn given_up(looking: &BTreeMap<String, Looking>, now: Instant) -> Vec<String> {
    let is_late = |look: &&Looking| now.duration_since(look.began) >= LONGEST_LOOK;
    looking.iter().filter(|(_, look)| is_late(look)).map(|(name, _)| name.clone()).collect()
}

impl Gateway<'_> {
    /// Goes on where the last gateway ended. What it knew may not be written down if it did not end `well`, so every route waits
    /// for a check then; checks that were due while nobody was there are spread over a minute.
    pub(super) fn resume(&mut self, now: WallTime, well: bool) {
        let rows = self.registry.services();
        let rows = self.worked(rows).unwrap_or_default();
        for row in &rows {
            if row.check_started_at.is_some() && row.state == State::Enabled {
                self.turn(row, State::Pending, Some("the last check was interrupted".to_owned()), "system");
            } else if matches!(row.state, State::Enabled | State::DisabledDrift) {
                self.catch_up(row);
            }
        }
        if !well {
            self.doubt_all();
        }
        let is_overdue = |row: &&ServiceRow| {
            let timing = Timing::of(row);
            self.lanes.contains_key(&row.name) && timing.seen && !timing.interrupted && timing.is_due(now)
        };
        let overdue: Vec<String> = rows.iter().filter(is_overdue).map(|row| row.name.clone()).collect();
        for (n, name) in overdue.iter().enumerate() {
            let due = self.registry.due(name, Some(spread(now, n, overdue.len())));
            self.wrote(due);
        }
    }

    /// Has every open route wait for a check. A server that cannot be asked serves nobody: its route waits until it can be.
    fn doubt_all(&mut self) {
        let rows = self.registry.services();
        for row in self.worked(rows).unwrap_or_default() {
            let row = self.as_it_stands(row);
            if row.state != State::Enabled {
                continue;
            }
            if let Some(lane) = self.lanes.get_mut(&row.name) {
                (lane.seen, lane.look_now, lane.confirming) = (None, true, false);
            }
            let why = "the gateway did not end in order: it is looked at again";
            self.turn(&row, State::Pending, Some(why.to_owned()), "system");
        }
    }

    /// The last gateway may have been killed when it knew something and had not written it down, and somebody may have
    /// decided something since: what was seen last is judged anew.
    fn catch_up(&mut self, row: &ServiceRow) {
        let latest = self.registry.latest_json(&row.name);
        let latest = self.worked(latest).flatten();
        let Some(lane) = self.lanes.get_mut(&row.name) else { return };
        let of_it = |seen: &Snapshot| seen.identity.endpoint == endpoint(&lane.service);
        lane.seen = latest.and_then(|json| Snapshot::read(json.as_bytes()).ok()).filter(of_it);
        let is_open = row.state == State::Enabled;
        match lane.judged(&self.config.admin.approvers) {
            Some(standing) if is_open && standing.found == Found::Changed && standing.only_removed => {
                (lane.confirming, lane.look_now) = (true, true);
            }
            Some(standing) if !is_open || standing.found.is_whole() => self.stands(&row.name, standing),
            _ if is_open => {
                let why = "what is approved of it is not known: it is looked at again";
                self.turn(row, State::Pending, Some(why.to_owned()), "system");
            }
            _ => {}
        }
    }

    /// Has services looked at that are due, as many as may be at the same time.
    pub(super) fn look(&mut self, now: WallTime) {
        for name in given_up(&self.looking, Instant::now()) {
            if let Some(service) = self.lanes.get(&name).map(|lane| lane.service.clone()) {
                let why = format!("the check took longer than {} s", LONGEST_LOOK.as_secs());
                self.looked(&Seen::unreachable(&service, why));
            }
            self.looking.remove(&name);
        }
        let rows = self.registry.services();
        if let Some(rows) = self.worked(rows) {
            self.rows = rows;
        }
        for row in self.rows.clone() {
            let Some(lane) = self.lanes.get_mut(&row.name) else { continue };
            let timing = Timing::of(&row);
            {
                let mut known = lane.metrics.known();
                known.last_success = row.last_success_at.as_deref().and_then(WallTime::parse);
                known.next_due = timing.due;
            }
            lane.look_now |= lane.is_doubted(Instant::now());
            let host = lane.service.url.host_str().unwrap_or_default().to_owned();
            let of_host = self.looking.values().filter(|look| look.host == host).count();
            // What is closed is looked at when the gateway starts: a decision about it cannot be judged otherwise.
            let is_closed = matches!(row.state, State::Pending | State::DisabledDrift);
            let is_unknown = is_closed && lane.seen.is_none() && row.failures == 0;
            let is_due = lane.look_now || is_unknown || timing.is_due(now);
            let rests = lane.rests_until.is_some_and(|until| Instant::now() < until);
            let is_full = self.looking.len() >= LOOKS || of_host >= LOOKS_OF_HOST;
            if !is_due || rests || is_full || self.looking.contains_key(&row.name) {
                continue;
            }
            lane.look_now = false;
            let (service, served) = (lane.service.clone(), lane.served().map(Path::to_owned));
            let begins = self.registry.check_begins(&row.name, now);
            if self.wrote(begins).is_none() {
                self.rest(&row.name);
            }
            let approvers = &self.config.admin.approvers;
            let at = (self.settings.data.as_path(), served.as_deref());
            match Look::new(&service, at, approvers, row.latest.clone()) {
                Err(why) => self.looked(&Seen::unreachable(&service, why)),
                Ok(look) => {
                    self.looks += 1;
                    let (hears, number) = (self.hears.clone(), self.looks);
                    let run = move || {
                        let _ = hears.send(Heard::Looked(number, Box::new(look.look())));
                    };
                    let looking = Looking { number, host, began: Instant::now() };
                    match thread::Builder::new().name("assay-look".into()).spawn(run) {
                        Ok(_) => drop(self.looking.insert(row.name, looking)),
                        Err(e) => self.looked(&Seen::unreachable(&service, format!("no thread for a check: {e}"))),
                    }
                }
            }
        }
    }

    /// Nothing can be written of a service: it is not looked at all the time.
    fn rest(&mut self, name: &str) {
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.rests_until = Some(Instant::now() + AGAIN);
        }
    }

    /// Takes up what a check saw, and tells who waits for it.
    pub(super) fn looked(&mut self, seen: &Seen) {
        self.take_up_seen(seen);
        for done in self.waiting.remove(&seen.name).unwrap_or_default() {
            // Who does not wait any more need not know.
            let _ = done.send(Looked {
                found: seen.standing.found,
                reason: seen.standing.reason.clone(),
                ms: seen.ms,
                snapshot_hash: seen.offered.as_ref().ok().and_then(hash),
            });
        }
    }

    fn take_up_seen(&mut self, seen: &Seen) {
        self.looking.remove(&seen.name);
        let now = WallTime::now();
        seen.first_use.iter().for_each(|text| self.status.first_use(text));
        seen.warning.iter().for_each(|text| self.status.warn(text));
        let Some(lane) = self.lanes.get_mut(&seen.name).filter(|lane| endpoint(&lane.service) == seen.endpoint) else {
            // Nobody wants to know any more.
            return;
        };
        let standing = &seen.standing;
        lane.metrics.checked(standing.found);
        self.table.metrics.snapshot(Duration::from_millis(seen.ms));
        self.log.line(
            "check",
            json!({"ms": seen.ms, "outcome": standing.found, "reason": standing.reason, "service": seen.name}),
        );
        let to_confirm = standing.found == Found::Changed && standing.only_removed && !lane.confirming;
        lane.confirming = to_confirm;
        if let Ok(snapshot) = &seen.offered {
            lane.seen = Some(snapshot.clone());
            lane.stands(standing);
        }
        let row = self.registry.service(&seen.name);
        let row = self.worked(row).flatten().map(|row| self.as_it_stands(row));
        let Some(row) = row else {
            // What is not approved does not pass, whoever cannot write that down.
            if standing.found.is_whole() && !standing.clean && !to_confirm {
                self.close_unwritten(&seen.name, standing.reason.clone());
            }
            return self.rest(&seen.name);
        };
        let is_open = row.state == State::Enabled;
        let next = if to_confirm && is_open {
            Some(WallTime::from_millis(now.millis() + CONFIRM_MS))
        } else {
            Timing::of(&row).next(seen.began, standing.found.is_whole(), roll())
        };
        let (state, reason) = if to_confirm && is_open { (row.state, None) } else { standing.state(&row) };
        if is_open && state != State::Enabled {
            self.close_in_memory(&seen.name, reason.clone());
        }
        let ends = self.registry.check_ends(&seen.name, &seen.checked(&row, next), now);
        if self.wrote(ends).is_none() {
            self.rest(&seen.name);
        }
        self.turn(&row, state, reason, "system");
    }
}

/// A random number from -1 to 1.
fn roll() -> f64 {
    // Without random numbers everything is looked at when it is due.
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(random) / f64::from(u32::MAX) * 2.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_takes_too_long_is_given_up() {
        let began = Instant::now();
        let look = |number| Looking { number, host: String::new(), began: began + Duration::from_secs(number) };
        let looking = [("a".to_owned(), look(0)), ("b".to_owned(), look(60))].into();
        let after = |seconds| given_up(&looking, began + Duration::from_secs(seconds));
        assert_eq!((after(119), after(120)), (vec![], vec!["a".to_owned()]));
        assert_eq!(after(180), ["a", "b"]);
    }
}
