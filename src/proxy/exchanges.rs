//! The recording of a process that serves HTTP: its log, and what its sessions begin with.

use super::{
    Options, Status,
    captures::{dirs_of, spools},
    pins,
    policy::{self, InForce},
};
use crate::{
    model::{Profile, SessionId, WallTime, surface::Identity},
    pack::keys::Signer,
    paths::AuditDir,
    policy::Policy,
    record::{
        self,
        http::{
            demux::Open,
            key::EvidenceKey,
            run::{Run, Stored},
            sessions::{Limits, SessionMap},
            source::{HttpSource, Parts},
        },
        opening::Opening,
        recorder::{Setup, server_id_of_url},
    },
    relay::{
        Waker,
        capture::note_cards,
        log::{self, Digests, LogWriter},
    },
    surface::feed::SurfaceFeed,
    sys::clock,
};
use std::{
    path::PathBuf,
    sync::{Arc, mpsc::Sender},
};

/// What is recorded of a process that serves HTTP.
pub(super) struct Exchanges {
    /// Where the I/O threads put what crosses.
    pub(super) log: Arc<LogWriter>,
    /// The key of digests.
    pub(super) key: EvidenceKey,
    /// Wakes the recorder.
    pub(super) waker: Arc<Waker>,
    /// What the recorder reads.
    pub(super) source: HttpSource,
    /// Removes what the process leaves when it ends by itself.
    pub(super) leftovers: Leftovers,
    /// Has the policy read again.
    pub(super) reload: Option<Sender<()>>,
    /// The policy.
    pub(super) policy: Option<InForce>,
    /// The number of the process in evidence.
    pub(super) process: u64,
    /// The server, and where it is.
    pub(super) identity: Identity,
    /// What its surface is compared with.
    pub(super) pins: Option<Arc<SurfaceFeed>>,
}

/// Files of a process that are needed only if it is killed.
pub(super) struct Leftovers {
    dir: AuditDir,
    run: PathBuf,
    process: SessionId,
    /// The log, and the state beside it.
    log: Option<PathBuf>,
}

impl Leftovers {
    /// Removes them: every session is sealed.
    pub(super) fn remove(&self) {
        let _ = self.dir.files().remove(&self.run);
        if let Some(log) = &self.log {
            let _ = std::fs::remove_file(log.with_extension("state"));
            let _ = std::fs::remove_file(log);
            let _ = std::fs::remove_file(log.with_file_name(format!("{}.place", self.process.hex())));
        }
        self.dir.marks().iter().for_each(|marks| marks.forget(self.process));
    }
}

/// What a server that is reached over HTTP is recorded as.
pub(super) struct Served<'a> {
    pub(super) url: &'a str,
    pub(super) limits: Limits,
    /// Bytes of the log.
    pub(super) capacity: u64,
}

impl Exchanges {
    /// Everything that needs memory, files or random numbers. The error says what the system does not have.
    pub(super) fn begin(
        options: &Options,
        served: &Served<'_>,
        (dir, usable): (&AuditDir, bool),
        (rules, signer): (Option<Arc<Policy>>, Option<Arc<Signer>>),
        status: Status,
    ) -> Result<Self, String> {
        let process = record::new_session_id().map_err(|e| format!("cannot get a random id: {e}"))?;
        let key = EvidenceKey::of_user()?;
        let waker = Arc::new(Waker::new());
        let capacity = usize::try_from(served.capacity).unwrap_or(log::DEFAULT_CAPACITY).next_power_of_two();
        let (writer, reader, placement) = log::create(&dirs_of(dir), &process.hex(), capacity, &waker)
            .map_err(|e| format!("no memory for the log of exchanges: {e}"))?;
        if placement.path.is_none() {
            status.warn(
                "no directory could hold the log of exchanges: a crash of the proxy would lose what is not on disk yet",
            );
        }
        let origin = options.origin_of(served.url);
        let server_id = options.server_id.clone().unwrap_or_else(|| server_id_of_url(served.url));
        let identity = Identity { endpoint: origin.digest().to_owned(), id: server_id.clone() };
        let pins = usable.then(|| pins::begin(dir, identity.clone(), &options.surface, signer, status)).flatten();
        let mut run = Run::begin(process, options.profile, server_id, &origin, served.limits);
        run.key_lasts = key.lasts;
        run.policy = rules.as_ref().map(|policy| policy.hash().to_owned());
        if usable {
            remember(dir, process, &run, placement.path.as_ref(), status);
        }
        let leftovers =
            Leftovers { dir: dir.clone(), run: Run::path(dir, &run.process), process, log: placement.path.clone() };
        let in_force = rules.map(|policy| {
            if usable && let Err(e) = policy::keep(dir, &policy) {
                status.warn(&format!("the policy cannot be kept for the evidence: {e}"));
            }
            InForce::new(policy)
        });
        let reload = if let (Some(policy), Some(path)) = (&in_force, &options.policy) {
            let path = std::path::absolute(path).map_err(|e| e.to_string())?;
            let policy = policy.clone();
            Some(policy::watch(policy::Watcher { path, dir: dir.clone(), policy, status })?)
        } else {
            None
        };
        let digests = Digests::new(&key.bytes);
        let map = SessionMap::new(process.bits(), served.limits);
        let source = HttpSource::new(Parts {
            reader,
            capacity,
            map,
            open: Some(open(options, dir, run, (in_force.clone(), pins.clone()), placement.path)),
            digest: Box::new(move |target| digests.of(target)),
            spools: spools(dir, process),
            guarded: options.profile == Profile::Guard,
        });
        let (log, process) = (Arc::new(writer), process.bits());
        Ok(Self { log, key, waker, source, leftovers, reload, policy: in_force, process, identity, pins })
    }
}

/// From here on a crash can be recovered, whatever has crossed.
fn remember(dir: &AuditDir, process: SessionId, run: &Run, log: Option<&PathBuf>, status: Status) {
    if let Some(log) = log.filter(|log| !log.starts_with(dir.root()))
        && let Err(e) = note_cards(log, &dir.live())
    {
        tracing::warn!(error = %e, "a log that a crash leaves behind would stay if this directory is removed");
    }
    let remembered = match dir.marks() {
        Some(marks) => marks.begin(dir, process, run.started_at).map_err(|e| e.to_string()),
        None => Err("there is no user directory: set HOME or ASSAY_HOME".to_owned()),
    };
    let written = remembered.and_then(|()| run.write(dir).map_err(|e| e.to_string()));
    if let Err(e) = written {
        status.warn(&format!("this process cannot be remembered ({e}); a crash of it could not be recovered wholly"));
    }
}

/// What a session of this process begins with.
fn open(
    options: &Options,
    dir: &AuditDir,
    run: Run,
    (policy, pins): (Option<InForce>, Option<Arc<SurfaceFeed>>),
    log: Option<PathBuf>,
) -> Open {
    let dir = dir.clone();
    let (interval, profile, witness) = (options.interval, options.profile, options.witness.clone());
    let stored = Stored {
        args: options.store_args,
        cleartext: options.cleartext.clone(),
        results: options.store_results,
        limit: options.store_limit,
        redact: options.redact.clone(),
    };
    let dns = options.resolver();
    Box::new(move |new, ns| {
        let (judge, feed) = match &policy {
            Some(policy) => {
                let (judge, feed) = policy.session(dns.clone(), ns);
                (Some(judge), feed)
            }
            None => (None, Arc::default()),
        };
        let started_at = WallTime::from_millis(
            i64::try_from(ns).unwrap_or(i64::MAX).saturating_add(clock::wall_minus_mono_ns()).div_euclid(1_000_000),
        );
        Opening {
            dir: dir.clone(),
            setup: Arc::new(Setup {
                surface: pins.clone(),
                witness: witness.clone(),
                ..run.setup(new, feed.in_force(), stored.clone())
            }),
            session: new.id,
            started_ns: ns,
            started_at,
            interval,
            captures: run.captures(log.as_deref(), new.route),
            activity: Arc::default(),
            judge: judge.filter(|_| profile == Profile::Audit).map(|judge| Box::new(judge) as _),
            feed,
            health: Arc::default(),
        }
    })
}
