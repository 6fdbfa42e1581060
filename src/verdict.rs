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
        let arguments = subject.arguments.map_or(Arguments::Absent, Arguments::Raw);
        let call = Call { tool: subject.tool, arguments };
        let mut hosts = None;
        let said = loop {
            let mut applied = self.lock();
            let elapsed = Duration::from_nanos(ns.saturating_sub(applied.started_ns));
            match applied.evaluator.decide_unless_names(&call, elapsed, hosts.as_ref()) {
                Ok(said) => break said,
                // A resolver that hangs delays only the call that needs it.
                Err(names) => {
                    drop(applied);
                    hosts = Some(names.resolve());
                }
            }
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Resolve;
    use std::{net::IpAddr, sync::OnceLock};

    /// Asks for a verdict on another call before it answers. That waits for ever if the first call holds what the second one needs.
    #[derive(Default)]
    struct AsksBack {
        judge: OnceLock<Mutex<PolicyJudge>>,
        said: Mutex<Vec<(PolicyVerdict, String)>>,
    }

    impl Resolve for AsksBack {
        fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            let said = ask(&mut self.judge.get().unwrap().lock().unwrap(), "https://8.8.8.8/");
            self.said.lock().unwrap().push(said);
            Ok(vec!["8.8.8.8".parse().unwrap()])
        }
    }

    fn ask(judge: &mut PolicyJudge, url: &str) -> (PolicyVerdict, String) {
        let arguments = format!(r#"{{"url":"{url}"}}"#);
        let (said, _) = judge.judge(Subject { tool: "fetch", arguments: Some(arguments.as_bytes()) }, 0);
        (said.verdict, said.reason.to_string())
    }

    #[test]
    fn while_names_resolve_other_calls_are_judged_and_no_budget_is_exceeded() {
        let policy =
            "version: \"1\"\ndefault: allow\nconstraints:\n  fetch: { deny_private_hosts: true, max_calls: 1 }\n";
        let resolver = Arc::new(AsksBack::default());
        let policy = Arc::new(Policy::parse(policy.as_bytes(), "p.yaml").unwrap());
        let mut judge = PolicyJudge::new(policy, Dns::Test(resolver.clone()), 0);
        assert!(resolver.judge.set(Mutex::new(judge.clone())).is_ok());
        let outer = ask(&mut judge, "https://public.example/");
        assert_eq!(*resolver.said.lock().unwrap(), [(PolicyVerdict::Allowed, "default".to_owned())]);
        // The call that came later has used up what the first one would have had.
        assert_eq!(outer, (PolicyVerdict::Denied, "constraint:max_calls".to_owned()));
    }
}
