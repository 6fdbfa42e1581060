//! The policy of a running proxy: loaded, kept for the evidence, applied, and read again when its file changes.

use super::Status;
use crate::{
    model::{PolicyVerdict, Word, event::detail::PolicyReload},
    paths::AuditDir,
    policy::{Arguments, Call, Dns, Evaluator, Policy, Surroundings, Verdict},
    record::judge::{Decision, Judge, PolicyFeed, Subject},
};
use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How long a changed file must have stayed the same before it is read: some editors write in pieces.
const SETTLED: Duration = Duration::from_millis(100);

/// An evaluator, and when its session began.
struct Applied {
    evaluator: Evaluator,
    /// A newer policy, which is taken up between two messages.
    next: Option<Arc<Policy>>,
    started_ns: u64,
}

/// Judges calls by a policy; clones share the counts.
#[derive(Clone)]
pub(super) struct PolicyJudge(Arc<Mutex<Applied>>);

impl PolicyJudge {
    /// Judges by this policy, for a session that began at this time (monotonic ns).
    pub(super) fn new(policy: Arc<Policy>, dns: Dns, started_ns: u64) -> Self {
        let evaluator = Evaluator::new(policy, Arc::new(Surroundings::here(dns)));
        Self(Arc::new(Mutex::new(Applied { evaluator, next: None, started_ns })))
    }

    fn lock(&self) -> MutexGuard<'_, Applied> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload(&self, policy: Arc<Policy>) {
        self.lock().next = Some(policy);
    }

    /// `sha256:` of the newest policy.
    fn newest(&self) -> String {
        let applied = self.lock();
        applied.next.as_ref().unwrap_or_else(|| applied.evaluator.policy()).hash().to_owned()
    }
}

impl Judge for PolicyJudge {
    fn begin(&mut self) -> String {
        let mut applied = self.lock();
        if let Some(policy) = applied.next.take() {
            applied.evaluator.reload(policy);
        }
        applied.evaluator.policy().hash().to_owned()
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
pub(super) fn keep(dir: &AuditDir, policy: &Policy) -> io::Result<()> {
    let files = dir.files();
    files.make_dir(&dir.policies())?;
    let path = dir.policy(policy.hash());
    if files.read(&path, policy.source().len() as u64).is_ok_and(|there| there == policy.source()) {
        return Ok(());
    }
    let staged = path.with_extension(format!("yaml.{}.new", std::process::id()));
    files.replace(&staged, &path, policy.source(), true)
}

/// Metadata by which a new or changed file is noticed.
type Stamp = Option<(u64, u64, i64, i64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let m = std::fs::metadata(path).ok()?;
    Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}

/// Reads the policy again when its file changes, or on request.
pub(super) struct Watcher {
    pub(super) path: PathBuf,
    pub(super) dir: AuditDir,
    pub(super) judge: PolicyJudge,
    pub(super) feed: Arc<PolicyFeed>,
    pub(super) status: Status,
}

impl Watcher {
    /// Runs until no more requests can come. `asked` is a SIGHUP.
    pub(super) fn run(self, asked: &Receiver<()>) {
        let mut seen = stamp(&self.path);
        let mut changing = None;
        loop {
            let pause = if changing.is_some() { SETTLED } else { EVERY };
            let forced = match asked.recv_timeout(pause) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now = stamp(&self.path);
            if forced || (changing == Some(now) && now != seen) {
                changing = None;
                seen = now;
                self.reload(forced);
            } else {
                changing = (now != seen).then_some(now);
            }
        }
    }

    fn reload(&self, forced: bool) {
        let previous = self.judge.newest();
        let loaded = Policy::load_whole(&self.path).map_err(|e| e.to_string()).and_then(|policy| {
            let changed = policy.hash() != previous;
            match keep(&self.dir, &policy) {
                Err(e) if changed => Err(format!("its snapshot cannot be written: {e}")),
                _ => Ok(policy),
            }
        });
        match loaded {
            Ok(policy) => {
                let policy_hash = policy.hash().to_owned();
                if policy_hash == previous && !forced {
                    return;
                }
                self.judge.reload(Arc::new(policy));
                self.status.policy(&format!("policy {} is in force: {policy_hash}", self.path.display()));
                self.feed.tell(PolicyReload { error: None, policy_hash, previous });
            }
            Err(e) => {
                self.status.warn(&format!("the policy in force stays in force, the new one cannot be used: {e}"));
                let first = e.lines().next().unwrap_or_default();
                let error = Some(crate::record::envelope::short(first));
                self.feed.tell(PolicyReload { error, policy_hash: previous.clone(), previous });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CallAnomaly;
    use crate::policy::{Beside, Resolve};
    use std::{
        net::IpAddr,
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    /// Answers nothing until it is told to give up.
    struct Hangs(AtomicBool);

    impl Resolve for Hangs {
        fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            while !self.0.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    #[test]
    fn a_policy_is_taken_up_between_two_messages_and_its_hash_with_it() {
        let policy = |default: &str| {
            let text = format!("version: \"1\"\ndefault: {default}\n");
            Arc::new(Policy::parse(text.as_bytes(), "test").unwrap())
        };
        let (old, new) = (policy("allow"), policy("deny"));
        let judge = PolicyJudge::new(old.clone(), Dns::Off, 0);
        let mut guard = judge.clone();
        let subject = Subject { tool: "t", arguments: None };
        assert_eq!(guard.begin(), old.hash());
        assert_eq!(guard.judge(subject, 1).0.verdict, PolicyVerdict::Allowed);
        // In the middle of a batch.
        judge.reload(new.clone());
        assert_eq!(judge.newest(), new.hash());
        assert_eq!(guard.judge(subject, 1).0.verdict, PolicyVerdict::Allowed);
        assert_eq!(guard.begin(), new.hash());
        assert_eq!(guard.judge(subject, 1).0.verdict, PolicyVerdict::Denied);
        // In audit a call is a message.
        judge.reload(old.clone());
        let (hash, (decision, _)) = (guard.begin(), guard.judge(subject, 1));
        assert_eq!((decision.verdict, hash.as_str()), (PolicyVerdict::Allowed, old.hash()));
        // Called from any thread at any time: verdict and hash belong together.
        let changing = judge.clone();
        let swaps = std::thread::spawn(move || {
            for n in 0..2000 {
                changing.reload(if n % 2 == 0 { new.clone() } else { old.clone() });
            }
            (old, new)
        });
        let seen: Vec<_> = (0..2000).map(|_| (guard.begin(), guard.judge(subject, 1).0)).collect();
        let (old, _) = swaps.join().unwrap();
        for (hash, decision) in seen {
            assert_eq!(decision.verdict == PolicyVerdict::Allowed, hash == old.hash());
        }
    }

    #[test]
    fn a_resolver_that_hangs_does_not_hold_up_who_records() {
        let policy = "version: \"1\"\ndefault: allow\nconstraints:\n  fetch:\n    deny_private_hosts: true\n";
        let policy = Arc::new(Policy::parse(policy.as_bytes(), "test").unwrap());
        let hangs = Arc::new(Hangs(AtomicBool::new(false)));
        let dns = Dns::Beside(Arc::new(Beside::new(hangs.clone())));
        let mut judge = PolicyJudge::new(policy, dns, 0);
        let start = Instant::now();
        for n in 0..500 {
            let arguments = format!(r#"{{"url":"https://h{}.example/"}}"#, n % 4);
            let subject = Subject { tool: "fetch", arguments: Some(arguments.as_bytes()) };
            judge.begin();
            let (decision, _) = judge.judge(subject, 1);
            // What a guard would not have waited for any longer is judged as it would be there.
            let is_late = start.elapsed() > Duration::from_secs(2) && decision.reason == "constraint:host_unresolved";
            let is_open = decision.unseen.iter().any(|word| *word == CallAnomaly::NamesNotResolved);
            assert!(is_late || (is_open && decision.verdict == PolicyVerdict::Allowed), "{n}: {decision:?}");
        }
        // If each of them was waited for, it would take a thousand seconds.
        assert!(start.elapsed() < Duration::from_secs(100));
        hangs.0.store(true, Ordering::Release);
    }
}
