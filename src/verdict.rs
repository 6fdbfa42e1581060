//! What a policy says of calls, in the words of the evidence, and its bytes for the evidence.

use crate::{
    model::{PolicyVerdict, Word},
    paths::AuditDir,
    policy::{Arguments, Call, Dns, Evaluator, Policy, Surroundings, Verdict},
    record::judge::{Decision, Judge, Subject},
};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// An evaluator, and when its session began.
struct Applied {
    evaluator: Evaluator,
    started_ns: u64,
}

/// Judges calls by a policy; clones share the counts.
#[derive(Clone)]
pub struct PolicyJudge {
    applied: Arc<Mutex<Applied>>,
    /// A newer policy, which is taken up between two messages. Who offers it does not wait for a verdict.
    next: Arc<Mutex<Option<Arc<Policy>>>>,
}

impl PolicyJudge {
    /// Judges by this policy, for a session that began at this time (monotonic ns).
    #[must_use]
    pub fn new(policy: Arc<Policy>, dns: Dns, started_ns: u64) -> Self {
        let evaluator = Evaluator::new(policy, Arc::new(Surroundings::here(dns)));
        Self { applied: Arc::new(Mutex::new(Applied { evaluator, started_ns })), next: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<Arc<Policy>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up another policy between two messages.
    pub fn reload(&self, policy: Arc<Policy>) {
        *self.next() = Some(policy);
    }
}

impl Judge for PolicyJudge {
    fn begin(&mut self) -> String {
        let mut applied = self.lock();
        if let Some(policy) = self.next().take() {
            applied.evaluator.reload(policy);
        }
        applied.evaluator.policy().hash().to_owned()
    }

    fn names(&mut self, tool: &str) -> bool {
        self.lock().evaluator.names(tool)
    }

    fn judge(&mut self, subject: Subject<'_>, ns: u64) -> (Decision, String) {
        let mut applied = self.lock();
        let arguments = subject.arguments.map_or(Arguments::Absent, Arguments::Raw);
        let elapsed = Duration::from_nanos(ns.saturating_sub(applied.started_ns));
        let said = applied.evaluator.decide(&Call { tool: subject.tool, arguments }, elapsed);
        let verdict = match said.verdict {
            Verdict::Allowed => PolicyVerdict::Allowed,
            // What is not known is not allowed.
            Verdict::Denied | Verdict::Unknown => PolicyVerdict::Denied,
        };
        let decision = Decision {
            index: None,
            verdict,
            reason: said.reason.into(),
            rule: Some(said.rule),
            unseen: said.unseen.into_iter().map(Word::Known).collect(),
        };
        (decision, said.message)
    }
}

/// Stores the bytes of a policy where packs take them from, under the name of their hash.
///
/// # Errors
/// An I/O error.
pub fn keep(dir: &AuditDir, policy: &Policy) -> io::Result<()> {
    let files = dir.files();
    files.make_dir(&dir.policies())?;
    let path = dir.policy(policy.hash());
    if files.read(&path, policy.source().len() as u64).is_ok_and(|there| there == policy.source()) {
        return Ok(());
    }
    let staged = path.with_extension(format!("yaml.{}.new", std::process::id()));
    files.replace(&staged, &path, policy.source(), true)
}
