//! The decisions about one server's surface, for the recorders of its sessions.

use super::{diff::Approved, rules::Rules};
use crate::{
    canon,
    model::{
        surface::{Approval, Facet, First, Identity, InForce, Mode, Snapshot, Standing, approved::ApprovedFile},
        to_line,
    },
};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// The decisions that are in force at one moment.
#[derive(Debug, Clone, Default)]
pub struct Pinned {
    /// What is approved, with its content, as far as that is known.
    pub approved: Approved,
    /// What the decisions come to at this server's place.
    pub in_force: InForce,
    /// How many decisions there are about this server, at any place.
    pub lines: u64,
    /// These decisions, each with a line feed.
    pub bytes: Vec<u8>,
    /// Whose surface it is.
    pub server: Identity,
    /// These decisions, oldest first.
    decisions: Vec<Approval>,
    /// Why they cannot be known.
    pub error: Option<String>,
}

/// Longest text of an error that evidence holds, in bytes.
const MAX_ERROR: usize = 1000;

impl Pinned {
    /// What these decisions come to, oldest first; those about other servers do not count. `approved` is what is known of
    /// the content.
    #[must_use]
    pub fn of(decisions: &[Approval], server: &Identity, approved: Approved) -> Self {
        let decisions: Vec<Approval> = decisions.iter().filter(|d| d.server_id == server.id).cloned().collect();
        let in_force = InForce::of(&decisions, server);
        let mut bytes = Vec::new();
        for decision in &decisions {
            // Texts and integers: there is nothing that JSON cannot hold.
            bytes.extend(to_line(decision).unwrap_or_default());
            bytes.push(b'\n');
        }
        let lines = decisions.len() as u64;
        Self { approved, in_force, lines, bytes, error: None, server: server.clone(), decisions }
    }

    /// What the first of these decisions come to.
    #[must_use]
    pub fn first(&self, lines: u64) -> Self {
        let lines = usize::try_from(lines).unwrap_or(usize::MAX).min(self.decisions.len());
        if lines == self.decisions.len() {
            return self.clone();
        }
        let mut before = Self::of(&self.decisions[..lines], &self.server, self.approved.clone());
        before.approved.in_force = before.in_force.clone();
        before
    }

    /// Id of the last decision.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.decisions.last().map(|d| d.approval_id.as_str())
    }

    /// What is approved and blocked, with its content as far as that is known.
    ///
    /// # Errors
    /// As `serde_json`; there is no value that JSON cannot hold.
    pub fn document(&self) -> Result<Vec<u8>, serde_json::Error> {
        ApprovedFile::of(&self.server, &self.in_force, &|hash| self.approved.content.get(hash).cloned()).to_bytes()
    }

    /// Decisions that cannot be known: nothing is approved.
    #[must_use]
    pub fn unknown(error: &str) -> Self {
        let end = error.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_ERROR).last().unwrap_or_default();
        let error = if error.len() > MAX_ERROR { &error[..end] } else { error };
        Self { error: Some(error.to_owned()), ..Self::default() }
    }

    /// SHA-256 of these decisions, hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        canon::sha256_hex(&self.bytes)
    }

    /// Whether there is anything that a surface can be compared with.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.lines > 0 || self.error.is_some()
    }
}

/// How a surface is compared, and with which decisions: read again whenever somebody decides.
#[derive(Debug)]
pub struct SurfaceFeed {
    mode: Mode,
    first: First,
    rules: Rules,
    number: AtomicU64,
    now: Mutex<Arc<Pinned>>,
    /// The first whole surface of a server about which nothing is decided.
    seen: Mutex<Option<Snapshot>>,
    /// Reasons to ask the server what it offers.
    doubts: AtomicU64,
}

impl SurfaceFeed {
    /// Begins with these decisions.
    #[must_use]
    pub fn new(mode: Mode, first: First, rules: Rules, now: Pinned) -> Self {
        let now = Mutex::new(Arc::new(now));
        Self { mode, first, rules, number: AtomicU64::new(0), now, seen: Mutex::default(), doubts: AtomicU64::new(0) }
    }

    /// What is done about what is not approved.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// What is done while nothing was decided.
    #[must_use]
    pub const fn first(&self) -> First {
        self.first
    }

    /// What is pinned.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How many times other decisions came into force.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// The decisions in force.
    #[must_use]
    pub fn now(&self) -> Arc<Pinned> {
        lock(&self.now).clone()
    }

    /// Other decisions are in force from here on.
    pub fn tell(&self, pinned: Pinned) {
        *lock(&self.now) = Arc::new(pinned);
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    /// The facets that are compared.
    #[must_use]
    pub fn pinned(&self) -> Vec<Facet> {
        let all = [Facet::Capabilities, Facet::Instructions].into_iter().chain(Facet::LISTS);
        all.filter(|facet| self.rules.pins(*facet)).collect()
    }

    /// These decisions, as they are used here.
    #[must_use]
    pub fn standing(&self, pinned: &Pinned) -> Standing {
        Standing {
            in_force: pinned.in_force.clone(),
            unknown: pinned.error.is_some(),
            first: self.first,
            pinned: self.pinned().into_iter().collect(),
        }
    }

    /// What crossed is a reason to ask the server: a client was told what is not approved, or that a list has changed.
    pub fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such reasons there were.
    #[must_use]
    pub fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Relaxed)
    }

    /// A whole surface was seen, and nothing is decided about this server: it may become what later ones are compared with.
    pub fn offer(&self, seen: Snapshot) {
        lock(&self.seen).get_or_insert(seen);
    }

    /// The surface that was offered since this was asked last.
    #[must_use]
    pub fn offered(&self) -> Option<Snapshot> {
        lock(&self.seen).take()
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
