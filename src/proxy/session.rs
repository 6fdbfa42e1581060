//! One proxied session: its server, its captures, its inspectors, its relays and its life.

use super::{
    Options, Status,
    captures::{BridgeLog, Captures},
    lifecycle::{Life, Underway},
    pins, policy,
    process::{Inbox, Process},
    relays::{Inspectors, Running},
    served::Served,
    status::ServerEnd,
    surface::Keeper,
};
use crate::{
    bridge,
    guard::{self, Gate, Outlet},
    model::{Profile, SessionId, Transport, WallTime, surface::Identity},
    pack::keys::Signer,
    paths::AuditDir,
    policy::Policy,
    record::{
        activity::Activity,
        bridged::Bridged,
        card::{self, Card, LogPlace},
        health::Health,
        opening::Opening,
        recorder::{Ending, HttpBinding, Origin, Setup, server_id_of_command, server_id_of_url},
        rings::Rings,
        rulings,
        source::Source,
    },
    relay::{
        Waker,
        capture::{note_cards, ring_dirs},
        child::Pipes,
    },
};
use std::sync::Arc;

/// What a session begins with.
pub(super) struct Start<'a> {
    pub(super) options: &'a Options,
    /// The server over HTTP, if it is one.
    pub(super) upstream: Option<&'a bridge::Config>,
    pub(super) dir: &'a AuditDir,
    /// Whether anything can be written there.
    pub(super) usable: bool,
    pub(super) session: SessionId,
    /// When it began: monotonic ns, wall clock.
    pub(super) started: (u64, WallTime),
    pub(super) status: Status,
    /// Wakes the recorder.
    pub(super) waker: Arc<Waker>,
    /// Signs the first decisions about the server's surface.
    pub(super) signer: Option<Arc<Signer>>,
}

/// A session between a client and a server over stdio. Nothing crosses before [`Session::run`].
pub(super) struct Session {
    running: Running,
    life: Life,
    /// The state of the recorder.
    pub(super) health: Arc<Health>,
    keeper: Option<Keeper>,
}

/// How a session over stdio ended.
pub(super) struct SessionEnd {
    pub(super) interrupted: bool,
    pub(super) server: ServerEnd,
}

impl Start<'_> {
    /// Everything of the session that needs memory, descriptors or threads, and what the recorder reads it from. The
    /// error says what the system does not have.
    pub(super) fn begin(
        &self,
        rules: Option<Arc<Policy>>,
        child: &Arc<Served>,
        (pipes, log): (Pipes, Option<BridgeLog>),
        process: &Process,
    ) -> Result<(Session, Box<dyn Source>), String> {
        let Self { options, upstream, dir, usable, session, started, status, ref waker, ref signer } = *self;
        let guarded = (options.profile == Profile::Guard).then_some(options.max_message);
        let mut captures = Captures::make(dir, session, waker, status, guarded)?;
        let mut places = card::Captures::of(&captures.lanes);
        places.log = log.as_ref().map(|log| LogPlace {
            file: log.file.clone(),
            process: session.bits(),
            route: 0,
            is_beside_rings: true,
        });
        let mut setup = setup(options, upstream);
        setup.http = log.as_ref().map(|log| HttpBinding { key_lasts: log.key_lasts, ..HttpBinding::default() });
        setup.policy_hash = rules.as_ref().map(|policy| policy.hash().to_owned());
        if usable {
            let server = Identity { endpoint: setup.origin.digest().to_owned(), id: setup.server_id.clone() };
            setup.surface = pins::begin(dir, server, &options.surface, signer.clone(), status);
        }
        let setup = Arc::new(setup);
        let health = Arc::new(Health::default());
        let in_force = rules.map(|policy| {
            if usable && let Err(e) = policy::keep(dir, &policy) {
                status.warn(&format!("the policy cannot be kept for the evidence: {e}"));
            }
            policy::InForce::new(policy)
        });
        let (judge, feed) = match &in_force {
            Some(policy) => {
                let (judge, feed) = policy.session(options.resolver(), started.0);
                (Some(judge), feed)
            }
            None => (None, Arc::default()),
        };
        let keeper = if guarded.is_some() && options.surface.enforce {
            let server = Identity { endpoint: setup.origin.digest().to_owned(), id: setup.server_id.clone() };
            let signer = signer.clone().filter(|_| usable);
            Some(Keeper::begin(dir, server, &options.surface, signer, status)?)
        } else {
            None
        };
        let inspectors = match (captures.rulings.take(), &judge) {
            (Some(rulings), Some(judge)) => {
                let session =
                    guard::Session::new(Box::new(judge.clone()), health.clone(), feed.clone(), options.max_message);
                Some(inspectors(session, rulings, keeper.as_ref())?)
            }
            _ => None,
        };
        if usable {
            self.remember(&setup, &places);
        }
        let voice = process.hub().map(|hub| hub.voice(session));
        let running = Running::start(pipes, captures.producers, inspectors, child, &process.events, voice)?;
        if usable {
            status.recording(dir, session, child.pid());
        }
        let activity = Arc::new(Activity::default());
        let recording = Underway { activity: activity.clone(), waker: waker.clone() };
        let mut life = Life::new(child.clone(), running.stops.clone(), options.shutdown_timeout, recording, status);
        if let (Some(policy), Some(path)) = (in_force, &options.policy) {
            let path = std::path::absolute(path).map_err(|e| e.to_string())?;
            life.reload_on_hangup(policy::watch(policy::Watcher { path, dir: dir.clone(), policy, status })?);
        }
        let opening = Opening {
            dir: dir.clone(),
            setup,
            session,
            started_ns: started.0,
            started_at: started.1,
            interval: options.interval,
            captures: places,
            activity,
            judge: judge.filter(|_| guarded.is_none()).map(|j| Box::new(j) as _),
            feed,
            health: health.clone(),
        };
        let source: Box<dyn Source> = match log {
            Some(log) => Box::new(Bridged::new(captures.lanes, opening, log.source, is_open(upstream))),
            None => Box::new(Rings::new(captures.lanes, opening)),
        };
        Ok((Session { running, life, health, keeper }, source))
    }

    /// From here on a crash can be recovered, whatever has crossed.
    fn remember(&self, setup: &Setup, captures: &card::Captures) {
        let Self { dir, session, started, status, .. } = *self;
        let log = captures.log.iter().filter_map(|log| log.file.as_ref());
        for ring in captures.rings.iter().flatten().chain(log) {
            if !ring.starts_with(dir.root())
                && let Err(e) = note_cards(ring, &dir.live())
            {
                tracing::warn!(error = %e, "a capture that a crash leaves behind would stay if this directory is removed");
            }
        }
        let remembered = match dir.marks() {
            Some(marks) => marks.begin(dir, session, started.1).map_err(|e| e.to_string()),
            None => Err("there is no user directory: set HOME or ASSAY_HOME".to_owned()),
        };
        if let Err(e) = remembered {
            status
                .warn(&format!("this session cannot be remembered ({e}); a crash of the proxy could not be recovered"));
        }
        let card = Card::of(setup, session, started.0, started.1, captures);
        let paths = dir.session(started.1, session);
        if let Err(e) = card.write(&paths) {
            status.warn(&format!("{}: {e}; a crash of the proxy could not be recovered", paths.card.display()));
        }
    }

    /// Removes the mark and the card of a session that did not begin.
    pub(super) fn forget(&self) {
        if let Some(marks) = self.dir.marks() {
            marks.forget(self.session);
        }
        let _ = self.dir.files().remove(&self.dir.session(self.started.1, self.session).card);
        let hex = self.session.hex();
        for dir in ring_dirs(&self.dir.live()) {
            for name in ["c2s.ring", "s2c.ring", "dec.ring", "log.ring", "log.state", "place"] {
                let path = dir.join(format!("{hex}.{name}"));
                let _ =
                    if dir == self.dir.live() { self.dir.files().remove(&path) } else { std::fs::remove_file(path) };
            }
        }
    }
}

impl Session {
    /// Lets bytes cross until the server has ended and everything that it said has been passed on. What the evidence
    /// says of the end.
    pub(super) fn run(&mut self, inbox: &Inbox) -> Ending {
        self.life.run(inbox);
        Ending { stderr_bytes: self.running.stderr_bytes(), ..self.life.ending() }
    }

    /// Lets the relays begin.
    pub(super) fn go(&self) {
        self.running.go();
    }

    /// Ends what the server left behind.
    pub(super) fn close(self) -> SessionEnd {
        self.life.sweep();
        if let Some(keeper) = &self.keeper {
            keeper.end();
        }
        let server = ServerEnd { code: self.life.server_code(), died: self.life.died() };
        SessionEnd { interrupted: self.life.interrupted(), server }
    }
}

fn inspectors(
    session: guard::Session,
    rulings: rulings::RulingWriter,
    keeper: Option<&Keeper>,
) -> Result<Inspectors, String> {
    let gate = keeper.map(Keeper::gate);
    let session = match &gate {
        Some(gate) => session.with_surface(gate.clone()),
        None => session,
    };
    let shared = guard::StdioGuard::new(session, rulings).map_err(|e| format!("the guard cannot begin: {e}"))?;
    if let (Some(keeper), Some(gate)) = (keeper, &gate) {
        let guard = Arc::downgrade(&shared);
        keeper.tells(gate, move |text| {
            if let Some(guard) = guard.upgrade() {
                guard.tell_client(text);
            }
        });
    }
    Ok([Box::new(Gate::new(shared.clone())), Box::new(Outlet::new(shared))])
}

fn setup(options: &Options, upstream: Option<&bridge::Config>) -> Setup {
    let argv: Vec<String> = options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let (transport, origin, automatic_id) = match upstream {
        None => {
            let id = server_id_of_command(&argv);
            let store = options.store_command && !argv.iter().any(|arg| options.is_redacted(arg));
            (Transport::Stdio, Origin::of_command(argv, store), id)
        }
        Some(upstream) => {
            let transport = match upstream.transport {
                // Which it is shows with the first message.
                bridge::Transport::Auto | bridge::Transport::StreamableHttp => Transport::StreamableHttp,
                bridge::Transport::Sse => Transport::Sse,
            };
            let url = upstream.destination.url.as_str();
            (transport, options.origin_of(url), server_id_of_url(url))
        }
    };
    Setup {
        profile: options.profile,
        transport,
        server_id: options.server_id.clone().unwrap_or(automatic_id),
        origin,
        http: None,
        store_args: options.store_args,
        cleartext: options.cleartext.clone(),
        store_results: options.store_results,
        store_limit: options.store_limit,
        redact: options.redact.clone(),
        policy_hash: None,
        surface: None,
        witness: None,
    }
}

/// Whether the server will show which transport it speaks.
fn is_open(upstream: Option<&bridge::Config>) -> bool {
    upstream.is_some_and(|upstream| upstream.transport == bridge::Transport::Auto)
}
