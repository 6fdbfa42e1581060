//! Looks up names in other threads, for callers that must not be held up: the recorder in audit, which has a stream to
//! follow.
//!
//! A verdict waits a little for its names, and all verdicts together for a twentieth of the time at most. A lookup that
//! takes longer continues, and what comes of it is there for the next call with that name. What is not known yet is not
//! guessed: the decision says so.

use super::{Found, MAX_NAMES, PATIENCE, Resolve, against, ask, public, too_many};
use std::{
    collections::{BTreeSet, HashMap},
    io,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// How long one verdict waits at most.
const LITTLE: Duration = Duration::from_millis(50);
/// What all may have saved up to wait for.
const SAVED: Duration = Duration::from_millis(500);
/// Lookups may be waited for during one part in this many of the time.
const SHARE: u32 = 20;
/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(30);
/// Answers that are remembered.
const MAX_KNOWN: usize = 1024;

/// Lookups, and their answers for a while.
pub struct Beside {
    resolver: Arc<dyn Resolve>,
    state: Mutex<State>,
}

struct State {
    names: HashMap<String, Lookup>,
    /// How long may be waited in all, as of then.
    left: Duration,
    counted: Instant,
}

struct Lookup {
    asked: Instant,
    progress: Progress,
}

enum Progress {
    Waits(Receiver<io::Result<Vec<IpAddr>>>),
    Done(io::Result<Vec<IpAddr>>),
}

impl Beside {
    /// Looks names up with this resolver.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolve>) -> Self {
        let state = State { names: HashMap::new(), left: SAVED, counted: Instant::now() };
        Self { resolver, state: Mutex::new(state) }
    }

    /// What can be said of these names by now.
    pub(super) fn judge(&self, names: &BTreeSet<String>) -> Found {
        if names.len() > MAX_NAMES {
            return too_many();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        state.save_up(begun);
        for name in names {
            state.ask(name, &self.resolver, begun);
        }
        let until = begun + state.left.min(LITTLE);
        let (mut resolved, mut unresolved) = (false, false);
        let mut found = None;
        for name in names {
            match state.answer(name, until) {
                None => unresolved = true,
                Some(answer) => {
                    found = against(name, answer);
                    resolved = true;
                }
            }
            if found.is_some() {
                break;
            }
        }
        state.left = state.left.saturating_sub(begun.elapsed());
        found.unwrap_or_else(|| public(resolved, unresolved))
    }
}

impl State {
    fn save_up(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.counted);
        self.left = (self.left + passed / SHARE).min(SAVED);
        self.counted = now;
    }

    /// Begins a lookup, unless there is one or its answer is fresh.
    fn ask(&mut self, name: &str, resolver: &Arc<dyn Resolve>, now: Instant) {
        let is_old = |l: &Lookup| matches!(l.progress, Progress::Done(_)) && now.duration_since(l.asked) > FRESH;
        if self.names.get(name).is_some_and(|lookup| !is_old(lookup)) {
            return;
        }
        if self.names.len() >= MAX_KNOWN {
            self.names.retain(|_, lookup| matches!(lookup.progress, Progress::Waits(_)));
        }
        match ask(name, resolver) {
            Some(answer) => {
                let lookup = Lookup { asked: now, progress: Progress::Waits(answer) };
                self.names.insert(name.to_owned(), lookup);
            }
            None => drop(self.names.remove(name)),
        }
    }

    /// What came of the lookup, or that a guard would not have waited for it any longer; `None` while that is not
    /// known.
    fn answer(&mut self, name: &str, until: Instant) -> Option<Result<&[IpAddr], io::ErrorKind>> {
        let lookup = self.names.get_mut(name)?;
        if let Progress::Waits(answer) = &lookup.progress {
            match answer.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(answer) => lookup.progress = Progress::Done(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    lookup.progress = Progress::Done(Err(io::ErrorKind::Other.into()));
                }
                Err(RecvTimeoutError::Timeout) if lookup.asked.elapsed() > PATIENCE => {
                    return Some(Err(io::ErrorKind::TimedOut));
                }
                Err(RecvTimeoutError::Timeout) => return None,
            }
        }
        match &lookup.progress {
            Progress::Done(Ok(addresses)) => Some(Ok(addresses)),
            Progress::Done(Err(e)) => Some(Err(e.kind())),
            Progress::Waits(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dns, check};
    use super::*;
    use std::sync::{Barrier, Condvar};

    /// Answers when it is let.
    #[derive(Default)]
    struct Gated {
        open: Mutex<bool>,
        opened: Condvar,
    }

    impl Resolve for Gated {
        fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
            let mut open = self.open.lock().unwrap();
            while !*open {
                open = self.opened.wait(open).unwrap();
            }
            match host {
                "inside.example" => Ok(vec!["10.0.0.1".parse().unwrap()]),
                "none.example" => Err(io::ErrorKind::NotFound.into()),
                _ => Ok(vec!["8.8.8.8".parse().unwrap()]),
            }
        }
    }

    /// Answers when someone else waits, too.
    struct Hangs(Arc<Barrier>);
    impl Resolve for Hangs {
        fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            self.0.wait();
            Ok(Vec::new())
        }
    }

    fn look(dns: &Dns, host: &str) -> Found {
        check(format!(r#"{{"url":"https://{host}/"}}"#).as_bytes(), dns, PATIENCE).unwrap()
    }

    fn settled(dns: &Dns, host: &str) -> Found {
        let start = Instant::now();
        loop {
            match look(dns, host) {
                Found::Public { unresolved: true, .. } if start.elapsed() < Duration::from_secs(30) => {}
                found => return found,
            }
        }
    }

    #[test]
    fn what_comes_late_counts_for_the_next_call_and_what_is_not_known_is_said() {
        let gated = Arc::new(Gated::default());
        let dns = Dns::Beside(Arc::new(Beside::new(gated.clone())));
        let unknown = Found::Public { resolved: false, unresolved: true };
        for host in ["outside.example", "inside.example", "none.example"] {
            assert_eq!(look(&dns, host), unknown);
        }
        assert!(matches!(look(&dns, "127.0.0.1"), Found::Denied(_)), "what is written needs no lookup");
        *gated.open.lock().unwrap() = true;
        gated.opened.notify_all();
        assert_eq!(settled(&dns, "outside.example"), Found::Public { resolved: true, unresolved: false });
        assert!(matches!(settled(&dns, "inside.example"), Found::Denied(_)));
        assert!(matches!(settled(&dns, "none.example"), Found::Unresolved(_)));
    }

    #[test]
    fn all_verdicts_together_wait_for_a_share_of_the_time() {
        let begun = Instant::now();
        let mut state = State { names: HashMap::new(), left: Duration::ZERO, counted: begun };
        state.save_up(begun + Duration::from_secs(1));
        assert_eq!(state.left, Duration::from_millis(50));
        state.save_up(begun + Duration::from_secs(3600));
        assert_eq!(state.left, SAVED);
        // Someone who waits for a lookup that never ends has waited for nothing once all is used up.
        state.left = Duration::ZERO;
        let both = Arc::new(Barrier::new(2));
        let resolver: Arc<dyn Resolve> = Arc::new(Hangs(both.clone()));
        state.ask("a.example", &resolver, Instant::now());
        assert!(state.answer("a.example", Instant::now() + state.left).is_none());
        if let Some(lookup) = state.names.get_mut("a.example") {
            lookup.asked = Instant::now().checked_sub(2 * PATIENCE).unwrap();
        }
        assert_eq!(state.answer("a.example", Instant::now()), Some(Err(io::ErrorKind::TimedOut)));
        both.wait();
    }
}
