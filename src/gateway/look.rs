//! A check: the service is asked what it offers, and that is compared with what is approved.

use super::{
    config::Service,
    reach::{self, Headers},
    registry::{Approved, Checked, Found, NewSnapshot, ServiceRow, State},
};
use crate::{
    approvals::{
        chain::Chain,
        first::first_use,
        observed, standing,
        store::{Draft, hex_of},
        summary::Summary,
    },
    bridge,
    model::{
        Profile, WallTime,
        surface::{ChangeKind, First, Identity, Outcome, Snapshot, State as ItemState},
    },
    operate::evidence,
    pack::keys::{KeyStore, Signer},
    paths::AuditDir,
    probe::{self, How, Wire},
    relay::{child::Stderr, http::connect::Destination},
    surface::rules::Rules,
    text::counted,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

/// Fingerprints of the keys whose decisions count; any does if there are none.
pub type Approvers = BTreeSet<String>;

/// By what a surface is judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measure {
    /// What of it is pinned.
    pub rules: Rules,
    /// What is blocked is cut out.
    pub guarded: bool,
    /// Whose decisions count.
    pub approvers: Approvers,
}

impl Measure {
    /// Of a service.
    #[must_use]
    pub fn of(service: &Service, approvers: &Approvers) -> Self {
        let guarded = service.profile == Profile::Guard;
        Self { rules: service.rules.clone(), guarded, approvers: approvers.clone() }
    }

    /// As functions take it that know only the decisions.
    #[must_use]
    pub fn counting(&self) -> Option<&Approvers> {
        Some(&self.approvers).filter(|keys| !keys.is_empty())
    }
}

/// What is asked, and where the answer goes.
pub struct Look {
    identity: Identity,
    dir: AuditDir,
    destination: Destination,
    headers: Headers,
    measure: Measure,
    first: First,
    /// The hash of the latest snapshot: the same is not written again.
    known: Option<String>,
}

/// What was seen.
pub struct Seen {
    /// Name of the service.
    pub name: String,
    /// The digest of its URL.
    pub endpoint: String,
    /// When it was asked.
    pub began: WallTime,
    /// How long that took.
    pub ms: u64,
    /// All that it offers, or why that is not known.
    pub offered: Result<Snapshot, String>,
    /// How it stands with what is approved.
    pub standing: Standing,
    /// That it was seen for the first time.
    pub first_use: Option<String>,
    /// What did not work beside that.
    pub warning: Option<String>,
}

/// Numbers by word.
type Numbers = BTreeMap<&'static str, u64>;

/// What is counted of items and decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items by how they stand.
    pub items: Numbers,
    /// Decisions by kind.
    pub decisions: Numbers,
}

/// How a snapshot stands with what is approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What a check says.
    pub found: Found,
    /// Why, in a few words, where it is not what was approved.
    pub reason: Option<String>,
    /// Requests may pass.
    pub clean: bool,
    /// All that differs is that something is gone.
    pub only_removed: bool,
    /// The newest decision about the service: when, and by whom.
    pub decided: Option<(WallTime, String)>,
    /// How many of its items stand in each way, and how many decisions of each kind there are.
    pub counts: Counts,
}

impl Standing {
    /// Nothing was seen.
    fn unknown(found: Found, why: String) -> Self {
        Self { found, reason: Some(why), clean: false, only_removed: false, decided: None, counts: Counts::default() }
    }

    /// How a snapshot stands now.
    #[must_use]
    pub fn of(dir: &AuditDir, measure: &Measure, seen: &Snapshot) -> Self {
        let read = Chain::read(dir).map_err(|e| e.to_string()).and_then(|chain| {
            let counting = measure.counting();
            let approved = standing::approved(dir, &chain, &seen.identity, counting).map_err(|e| e.to_string())?;
            let (mut decisions, mut last) = (Numbers::new(), None);
            for approval in chain.counted(counting).filter(|a| a.server_id == seen.identity.id) {
                *decisions.entry(approval.decision.as_str()).or_default() += 1;
                last = Some((approval.at, approval.approver.name.clone()));
            }
            Ok((Summary::of(seen, &approved, &measure.rules), last, decisions))
        });
        let (summary, decided, decisions) = match read {
            Ok(read) => read,
            Err(e) => return Self::unknown(Found::Incomplete, format!("decisions cannot be read: {e}")),
        };
        let differences = summary.outcome.differences();
        let only_removed = !differences.is_empty() && differences.iter().all(|d| d.kind == ChangeKind::Removed);
        let (found, reason) = match &summary.outcome {
            Outcome::Unreachable(why) => (Found::Unreachable, Some(why.clone())),
            Outcome::Incomplete(why) => (Found::Incomplete, Some(why.clone())),
            _ if !summary.decided => (Found::Changed, Some("nothing is approved yet".to_owned())),
            Outcome::Identical => (Found::Identical, None),
            Outcome::Equivalent(_) => (Found::Equivalent, None),
            Outcome::Changed(all) => {
                let worst = summary.severities().first().map(|(severity, n)| format!(", {n} {severity}"));
                (Found::Changed, Some(format!("{}{}", counted(all.len(), "change"), worst.unwrap_or_default())))
            }
        };
        // Under guard what is blocked is cut out. Elsewhere clients would get it.
        let blocked = summary.items.iter().filter(|item| item.state == ItemState::Blocked).count();
        let may_pass = |state: ItemState| state.passes() || state == ItemState::Blocked;
        let clean = match found {
            Found::Identical | Found::Equivalent => measure.guarded || blocked == 0,
            Found::Changed => {
                measure.guarded && summary.decided && summary.items.iter().all(|item| may_pass(item.state))
            }
            Found::Incomplete | Found::Unreachable => false,
        };
        let is_blocked = || format!("it offers {}, and nobody guards", counted(blocked, "blocked item"));
        let reason = reason.or_else(|| (!clean).then(is_blocked));
        let items = summary.states().into_iter().map(|(state, n)| (state.as_str(), n as u64)).collect();
        Self { found, reason, clean, only_removed, decided, counts: Counts { items, decisions } }
    }

    /// How a route stands after this, and why. A route that was closed by a change is opened by a decision only, and a
    /// server that does not answer changes nothing.
    #[must_use]
    pub fn state(&self, row: &ServiceRow) -> (State, Option<String>) {
        let stays = (row.state, row.reason.clone());
        // What the server or the network said is not for clients: it is in the registry.
        let not_yet = match self.found {
            Found::Unreachable => Some("the server could not be asked yet"),
            Found::Incomplete => Some("not all of the server could be seen yet"),
            Found::Identical | Found::Equivalent | Found::Changed => None,
        };
        match (row.state, not_yet) {
            (State::Pending, Some(why)) => return (State::Pending, Some(why.to_owned())),
            (State::DisabledAdmin, _) | (_, Some(_)) => return stays,
            _ => {}
        }
        let since = WallTime::parse(&row.since);
        let is_newer = |at: WallTime| since.is_none_or(|since| at > since);
        match row.state {
            _ if !self.clean && self.decided.is_none() => (State::Pending, self.reason.clone()),
            _ if !self.clean => (State::DisabledDrift, self.reason.clone()),
            State::DisabledDrift if !self.decided.as_ref().is_some_and(|(at, ..)| is_newer(*at)) => stays,
            _ => (State::Enabled, None),
        }
    }
}

impl Look {
    /// What is asked of a service, which is kept in this data directory; a command is served at a socket.
    ///
    /// # Errors
    /// A credential that is not there.
    pub fn new(
        service: &Service,
        (data, served): (&Path, Option<&Path>),
        approvers: &Approvers,
        known: Option<String>,
    ) -> Result<Self, String> {
        let failed = |e: crate::error::Failure| e.what;
        Ok(Self {
            identity: Identity { endpoint: reach::endpoint(service), id: service.name.clone() },
            dir: AuditDir::at(evidence(data, &service.name)).of_user(),
            destination: reach::destination(service, served).map_err(failed)?,
            headers: reach::credentials(service).map_err(failed)?,
            measure: Measure::of(service, approvers),
            first: service.first,
            known,
        })
    }

    /// Asks, and nothing else. This takes as long as the server does.
    ///
    /// # Errors
    /// It could not be asked.
    pub fn ask(&self) -> Result<Snapshot, String> {
        let config = bridge::Config {
            destination: self.destination.clone(),
            headers: self.headers.clone(),
            transport: bridge::Transport::Auto,
            session_loss: bridge::SessionLoss::Error,
            timing: bridge::Timing::default(),
            notice: Arc::new(|text: &str| tracing::debug!("a check: {text}")),
            book: None,
        };
        let rules = &self.measure.rules;
        let how =
            How { ignored: rules.ignored(), left_out: rules.left_out(), rules_hash: rules.hash(), ..How::default() };
        let asked = Wire::open(probe::Server::Url(Box::new(config)), Stderr::Piped)
            .and_then(|mut wire| probe::ask(&mut wire, self.identity.clone(), &how));
        asked.map_err(|e| e.to_string())
    }

    /// Asks, and compares the answer with what is approved.
    #[must_use]
    pub fn look(self) -> Seen {
        let (began, clock) = (WallTime::now(), Instant::now());
        let (mut first_use, mut warning) = (None, None);
        let (offered, standing) = match self.ask() {
            Err(why) => (Err(why.clone()), Standing::unknown(Found::Unreachable, why)),
            Ok(snapshot) => {
                if hash(&snapshot).is_some_and(|hash| Some(hash) != self.known)
                    && let Err(e) = observed::keep(&self.dir, &snapshot)
                {
                    warning = Some(format!("what {} offers cannot be kept: {e}", self.identity.id));
                }
                let stands = || Standing::of(&self.dir, &self.measure, &snapshot);
                let mut standing = stands();
                // Where certain keys have to approve, nobody else does.
                let is_first = standing.decided.is_none() && self.measure.approvers.is_empty();
                if standing.found.is_whole() && is_first && self.first == First::Tofu {
                    match first(&self.dir, &self.identity, &snapshot) {
                        Ok(text) => {
                            first_use = text;
                            standing = stands();
                        }
                        Err(why) => warning = Some(why),
                    }
                }
                (Ok(snapshot), standing)
            }
        };
        let ms = clock.elapsed().as_millis() as u64;
        let Identity { endpoint, id: name } = self.identity;
        Seen { name, endpoint, began, ms, offered, standing, first_use, warning }
    }
}

/// Makes what is seen first the baseline; what is said of that.
fn first(dir: &AuditDir, identity: &Identity, snapshot: &Snapshot) -> Result<Option<String>, String> {
    let failed = |why: String| format!("what {} offers cannot be kept for comparing it next time: {why}", identity.id);
    let signer = || -> Result<Signer, crate::pack::keys::KeyError> {
        let keys = KeyStore::of_user()?;
        keys.load_or_generate(&keys.active()?)
    };
    let signer = signer().map_err(|e| failed(e.to_string()))?;
    let count = first_use(dir, identity, snapshot, &signer).map_err(|e| failed(e.to_string()))?;
    Ok(count.map(|count| Draft::first_use_in_words(&identity.id, count)))
}

/// The 64 hex digits of a snapshot's root; `None` for one that is not whole.
#[must_use]
pub fn hash(snapshot: &Snapshot) -> Option<String> {
    snapshot.root().ok().and_then(|root| hex_of(&root.to_string()).map(ToOwned::to_owned))
}

impl Seen {
    /// A service that cannot even be asked.
    #[must_use]
    pub fn unreachable(service: &Service, why: String) -> Self {
        Self {
            name: service.name.clone(),
            endpoint: reach::endpoint(service),
            began: WallTime::now(),
            ms: 0,
            offered: Err(why.clone()),
            standing: Standing::unknown(Found::Unreachable, why),
            first_use: None,
            warning: None,
        }
    }

    /// What the registry keeps of it.
    #[must_use]
    pub fn checked(&self, row: &ServiceRow, next_due: Option<WallTime>) -> Checked {
        let approved = match (self.standing.clean, &row.approved) {
            (false, _) => Approved::Not,
            // The configuration lets what is seen first pass, or somebody approved it.
            (true, None) => Approved::ByUser,
            (true, Some(_)) => Approved::BySystem,
        };
        let snapshot = self.offered.as_ref().ok().and_then(|snapshot| {
            let json = String::from_utf8(snapshot.document().ok()?).ok()?;
            Some(NewSnapshot { json, hash: hash(snapshot)?, approved })
        });
        let Standing { found, reason, .. } = self.standing.clone();
        Checked { found, reason, ms: self.ms, snapshot, next_due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::registry::ManagedBy;

    fn at(second: i64) -> WallTime {
        WallTime::from_millis(1_700_000_000_000 + second * 1000)
    }

    fn row(state: State) -> ServiceRow {
        ServiceRow {
            name: "a".into(),
            upstream_url: String::new(),
            endpoint: String::new(),
            enabled: state == State::Enabled,
            state,
            reason: Some("before".into()),
            since: at(10).to_string(),
            check_frequency_minutes: 60,
            created_at: String::new(),
            updated_at: String::new(),
            check_started_at: None,
            last_check_at: None,
            last_success_at: None,
            next_due_at: None,
            failures: 0,
            last_error: None,
            approved: None,
            latest: None,
            managed_by: ManagedBy::File,
            version: 1,
            made: None,
        }
    }

    fn standing(found: Found, clean: bool, decided: Option<i64>) -> Standing {
        let decided = decided.map(|second| (at(second), "me".to_owned()));
        Standing { found, reason: Some("why".into()), clean, only_removed: false, decided, counts: Counts::default() }
    }

    #[test]
    fn a_route_opens_only_for_what_is_approved_and_after_a_change_only_by_a_decision() {
        use State::{DisabledAdmin, DisabledDrift, Enabled, Pending};
        let (clean, changed) = (Found::Identical, Found::Changed);
        for (before, found, is_clean, decided, after) in [
            // Nothing is decided, and nothing may become the baseline by itself.
            (Pending, changed, false, None, Pending),
            (Pending, clean, true, Some(1), Enabled),
            (Pending, changed, false, Some(1), DisabledDrift),
            (Enabled, clean, true, Some(1), Enabled),
            (Enabled, Found::Equivalent, true, Some(1), Enabled),
            (Enabled, changed, false, Some(1), DisabledDrift),
            // Whoever took all decisions away has approved nothing.
            (Enabled, changed, false, None, Pending),
            // It changed back: the decision is older than the change.
            (DisabledDrift, clean, true, Some(1), DisabledDrift),
            (DisabledDrift, clean, true, Some(11), Enabled),
            (DisabledDrift, changed, false, Some(11), DisabledDrift),
            // What is blocked is cut out, so the rest may pass.
            (DisabledDrift, changed, true, Some(11), Enabled),
            (DisabledAdmin, clean, true, Some(11), DisabledAdmin),
        ] {
            let state = standing(found, is_clean, decided).state(&row(before)).0;
            assert_eq!(state, after, "{before:?} {found:?} {is_clean} {decided:?}");
        }
        for found in [Found::Unreachable, Found::Incomplete] {
            for before in [Pending, Enabled, DisabledDrift, DisabledAdmin] {
                let (state, reason) = standing(found, false, Some(11)).state(&row(before));
                assert_eq!(state, before, "{found:?}");
                assert_ne!(reason.as_deref(), Some("why"), "what the server said is not for clients");
            }
        }
    }
}
