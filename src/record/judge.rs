//! The interface to the policy: who judges calls, and by which policy.

use crate::model::{CallAnomaly, PolicyReason, PolicyVerdict, Word, event::detail::PolicyReload};
use serde::{Deserialize, Serialize};
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// What was decided about one request, call or other message: the verdict, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Place in its batch.
    pub index: Option<usize>,
    /// What the policy says about the call.
    pub verdict: PolicyVerdict,
    /// Its short machine-readable code.
    pub reason: Word<PolicyReason>,
    /// The rule that matched.
    pub rule: Option<String>,
    /// What could not be seen at the time.
    pub unseen: Vec<Word<CallAnomaly>>,
}

/// What is judged: a tool, or a method that is treated as one.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The tool's name; for `resources/read`, `sampling/createMessage` and `elicitation/create` the method.
    pub tool: &'a str,
    /// Raw JSON of the arguments; of all parameters, for a method. `None` when absent.
    pub arguments: Option<&'a [u8]>,
}

/// Applies a policy to calls: in guard mode before they pass, in audit in the recorder's thread.
pub trait Judge: Send {
    /// Takes up the newest policy, which then stays in force until the next call of this; returns its `sha256:`.
    fn begin(&mut self) -> String;

    /// Whether the policy that is in force since [`begin`](Self::begin) has a rule for this name. Its default is none, and a
    /// pattern that allows many names means none of them.
    fn names(&mut self, tool: &str) -> bool;

    /// The decision on a call at this time (monotonic ns), and text that names the sender. May wait for a name to be
    /// resolved, but not for long.
    fn judge(&mut self, subject: Subject<'_>, ns: u64) -> (Decision, String);
}

/// The policy in force, and its reloads for the chain.
#[derive(Debug, Default)]
pub struct PolicyFeed {
    some: AtomicBool,
    all: Mutex<Reloads>,
}

#[derive(Debug, Default)]
struct Reloads {
    in_force: Option<String>,
    new: Vec<PolicyReload>,
}

impl PolicyFeed {
    /// Begins with the policy of this `sha256:`.
    #[must_use]
    pub fn new(in_force: Option<String>) -> Self {
        Self { some: AtomicBool::new(false), all: Mutex::new(Reloads { in_force, new: Vec::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Reloads> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file was read again.
    pub fn tell(&self, reload: PolicyReload) {
        let mut reloads = self.lock();
        reloads.in_force = Some(reload.policy_hash.clone());
        reloads.new.push(reload);
        self.some.store(true, Ordering::Release);
    }

    /// `sha256:` of the policy in force.
    #[must_use]
    pub fn in_force(&self) -> Option<String> {
        self.lock().in_force.clone()
    }

    /// The reloads since this was asked last.
    pub fn take(&self) -> Vec<PolicyReload> {
        if !self.some.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().new)
    }
}
