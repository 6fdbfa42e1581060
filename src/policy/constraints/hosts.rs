//! `deny_private_hosts`: every URL and host among the arguments, in every spelling, must be a public one.

mod address;
mod beside;
mod find;
mod keys;
mod lists;
mod name;
mod urls;

pub use address::is_public;
pub use beside::Beside;
#[cfg(test)]
pub(crate) use name::{Reading, Seen, host};
#[cfg(test)]
pub use {find::MAX_NESTED, keys::MAX_KEY, name::MAX_HOST, urls::MAX_URLS};

use super::walk::{WalkError, walk};
use std::{
    collections::BTreeSet,
    io,
    net::{IpAddr, ToSocketAddrs as _},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

/// How long the names of one call may take to resolve, all together.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Names of one call that are resolved.
const MAX_NAMES: usize = 16;
/// Lookups that have not come back, of all calls; a resolver that hangs does not take all threads with it.
const MAX_LOOKUPS: usize = 32;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync {
    /// All addresses of `host`.
    ///
    /// # Errors
    /// Why there are none.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver, `getaddrinfo`.
struct System;

impl Resolve for System {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok((host, 0).to_socket_addrs()?.map(|a| a.ip()).collect())
    }
}

/// Where names are resolved.
#[derive(Clone)]
pub enum Dns {
    /// Nowhere: only the names and addresses as written are judged.
    Off,
    /// With the resolver of the system.
    System,
    /// In other threads; a verdict does not wait for every answer.
    Beside(Arc<Beside>),
    /// With another resolver, for tests.
    Test(Arc<dyn Resolve>),
}

impl Dns {
    /// By the system, beside the judging.
    #[must_use]
    pub fn system_beside() -> Self {
        Self::Beside(Arc::new(Beside::new(Arc::new(System))))
    }
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Off => "Off",
            Self::System => "System",
            Self::Beside(_) => "Beside",
            Self::Test(_) => "Test",
        })
    }
}

/// What a look at the arguments gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No host among them.
    Nothing,
    /// All hosts are public.
    Public {
        /// Whether there were names that were resolved.
        resolved: bool,
        /// Whether there were names that were not: [`Dns::Off`], or [`Dns::Beside`] without an answer yet.
        unresolved: bool,
    },
    /// One is not public, or cannot be read.
    Denied(String),
    /// One has no address that could be judged in time.
    Unresolved(String),
}

/// What the arguments alone tell.
pub enum Look {
    /// Everything.
    Done(Found),
    /// It depends on names, which have to be resolved.
    Names(Names),
}

/// Names that have to be resolved, which may take a while.
pub struct Names {
    names: BTreeSet<String>,
    resolver: Arc<dyn Resolve>,
}

impl Names {
    /// Resolves them, and waits for that at most so long.
    pub fn resolve(self, patience: Duration) -> Found {
        resolve(self.names, &self.resolver, patience).unwrap_or_else(|| public(true, false))
    }
}

/// Looks at every host in the arguments. Waits for nothing, or with [`Dns::Beside`] only a moment.
///
/// # Errors
/// The arguments cannot be read.
pub fn look(arguments: &[u8], dns: &Dns) -> Result<Look, WalkError> {
    let mut seen = name::Seen::default();
    let mut looked = false;
    let mut denied = None;
    walk(arguments, &mut |leaf, around| {
        match find::hosts(leaf, around, &mut seen) {
            Ok(some) => looked |= some,
            Err(message) => denied = Some(message),
        }
        if denied.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if let Some(message) = denied {
        return Ok(Look::Done(Found::Denied(message)));
    }
    let names = seen.names;
    let resolver: Arc<dyn Resolve> = match dns {
        _ if names.is_empty() => return Ok(Look::Done(if looked { public(false, false) } else { Found::Nothing })),
        Dns::Off => return Ok(Look::Done(public(false, true))),
        Dns::System => Arc::new(System),
        Dns::Beside(lookups) => return Ok(Look::Done(lookups.judge(&names))),
        Dns::Test(resolver) => Arc::clone(resolver),
    };
    Ok(Look::Names(Names { names, resolver }))
}

/// The same, and waits at most so long for names to be resolved.
#[cfg(test)]
pub fn check(arguments: &[u8], dns: &Dns, patience: Duration) -> Result<Found, WalkError> {
    Ok(match look(arguments, dns)? {
        Look::Done(found) => found,
        Look::Names(names) => names.resolve(patience),
    })
}

const fn public(resolved: bool, unresolved: bool) -> Found {
    Found::Public { resolved, unresolved }
}

/// Resolves all names; the reason to deny one of them, or `None`.
fn resolve(names: BTreeSet<String>, resolver: &Arc<dyn Resolve>, patience: Duration) -> Option<Found> {
    if names.len() > MAX_NAMES {
        return Some(too_many());
    }
    let until = Instant::now() + patience;
    // Asked all at once, judged in the order of their names.
    let asked: Vec<_> = names.into_iter().map(|name| (ask(&name, resolver), name)).collect();
    for (answer, name) in asked {
        let Some(answer) = answer else {
            let shown = name::shown(&name);
            return Some(Found::Unresolved(format!(
                "the host {shown} was not looked up: too many lookups are waiting"
            )));
        };
        let answer = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
        let found = match &answer {
            Err(_) => against(&name, Err(io::ErrorKind::TimedOut)),
            Ok(Err(e)) => against(&name, Err(e.kind())),
            Ok(Ok(addresses)) => against(&name, Ok(addresses)),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn too_many() -> Found {
    Found::Unresolved(format!("more than {MAX_NAMES} host names in one call"))
}

/// The reason to deny a name, given the answer of its lookup.
fn against(name: &str, answer: Result<&[IpAddr], io::ErrorKind>) -> Option<Found> {
    let shown = name::shown(name);
    match answer {
        Err(io::ErrorKind::TimedOut) => Some(Found::Unresolved(format!("the host {shown} did not resolve in time"))),
        Err(_) => Some(Found::Unresolved(format!("the host {shown} does not resolve"))),
        Ok([]) => Some(Found::Unresolved(format!("the host {shown} has no address"))),
        Ok(addresses) => addresses
            .iter()
            .find(|a| !is_public(**a))
            .map(|private| Found::Denied(format!("the host {shown} resolves to {private}, which is not public"))),
    }
}

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Counts a lookup until it is done, also when the resolver panics.
struct Lookup;

impl Lookup {
    fn begin() -> Option<Self> {
        LOOKUPS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < MAX_LOOKUPS).then_some(n + 1))
            .ok()
            .map(|_| Self)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}

fn ask(name: &str, resolver: &Arc<dyn Resolve>) -> Option<mpsc::Receiver<io::Result<Vec<IpAddr>>>> {
    let lookup = Lookup::begin()?;
    let (tell, answer) = mpsc::sync_channel(1);
    let (name, resolver) = (name.to_owned(), Arc::clone(resolver));
    let thread = std::thread::Builder::new().name("resolve".to_owned()).spawn(move || {
        let _lookup = lookup;
        let _ = tell.send(resolver.resolve(&name));
    });
    thread.ok().map(|_| answer)
}
