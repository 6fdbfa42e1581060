//! The policy of a running proxy: loaded, kept for the evidence, applied, and read again when its file changes.

use super::Status;
pub(super) use crate::verdict::{PolicyJudge, keep};
use crate::{
    model::event::detail::PolicyReload,
    paths::AuditDir,
    policy::{Dns, Policy},
    record::judge::PolicyFeed,
};
use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How long a changed file must have stayed the same before it is read: some editors write in pieces.
const SETTLED: Duration = Duration::from_millis(100);

/// Metadata by which a new or changed file is noticed.
type Stamp = Option<(u64, u64, i64, i64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let m = std::fs::metadata(path).ok()?;
    Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
}

/// The policy in force, for all sessions of a process: each has a judge of its own, because budgets are counted by
/// session.
#[derive(Clone)]
pub(super) struct InForce(Arc<Mutex<Sessions>>);

struct Sessions {
    policy: Arc<Policy>,
    judged: Vec<(PolicyJudge, Weak<PolicyFeed>)>,
}

impl InForce {
    /// This policy, and no session yet.
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        Self(Arc::new(Mutex::new(Sessions { policy, judged: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The judge of a session that began at this time (monotonic ns), and what tells it of other policies, as long as
    /// that is kept.
    pub(super) fn session(&self, dns: Dns, started_ns: u64) -> (PolicyJudge, Arc<PolicyFeed>) {
        let mut sessions = self.lock();
        let judge = PolicyJudge::new(sessions.policy.clone(), dns, started_ns);
        let feed = Arc::new(PolicyFeed::new(Some(sessions.policy.hash().to_owned())));
        sessions.judged.retain(|(_, feed)| feed.strong_count() > 0);
        sessions.judged.push((judge.clone(), Arc::downgrade(&feed)));
        (judge, feed)
    }

    /// Whether a verdict may have to wait for a name to be resolved.
    pub(super) fn resolves_names(&self) -> bool {
        self.lock().policy.resolves_names()
    }

    /// `sha256:` of the policy in force.
    pub(super) fn hash(&self) -> String {
        self.lock().policy.hash().to_owned()
    }

    /// The file was read again; `policy` is the new one, if it can be used.
    fn reloaded(&self, policy: Option<Arc<Policy>>, told: &PolicyReload) {
        let mut sessions = self.lock();
        for (judge, feed) in &sessions.judged {
            if let Some(policy) = &policy {
                judge.reload(policy.clone());
            }
            if let Some(feed) = feed.upgrade() {
                feed.tell(told.clone());
            }
        }
        if let Some(policy) = policy {
            sessions.policy = policy;
        }
    }
}

/// Reads the policy again when its file changes, or on request.
pub(super) struct Watcher {
    pub(super) path: PathBuf,
    pub(super) dir: AuditDir,
    pub(super) policy: InForce,
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
        let previous = self.policy.hash();
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
                let told = PolicyReload { error: None, policy_hash, previous };
                self.policy.reloaded(Some(Arc::new(policy)), &told);
                self.status.policy(&format!("policy {} is in force: {}", self.path.display(), told.policy_hash));
            }
            Err(e) => {
                self.status.warn(&format!("the policy in force stays in force, the new one cannot be used: {e}"));
                let first = e.lines().next().unwrap_or_default();
                let error = Some(crate::record::envelope::short(first));
                self.policy.reloaded(None, &PolicyReload { error, policy_hash: previous.clone(), previous });
            }
        }
    }
}

/// Has the policy read again when it changes; what is returned asks for it.
pub(super) fn watch(watcher: Watcher) -> Result<Sender<()>, String> {
    let (ask, asked) = mpsc::channel();
    thread::Builder::new()
        .name("assay-policy".into())
        .spawn(move || watcher.run(&asked))
        .map_err(|e| format!("no thread for the policy: {e}"))?;
    Ok(ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallAnomaly, PolicyVerdict};
    use crate::policy::{Beside, Resolve};
    use crate::record::judge::{Judge as _, Subject};
    use std::{
        io,
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
