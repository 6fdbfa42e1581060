//! One proxied session: its server, its captures, its inspectors, its relays and its life.

use super::{
    Options, Status,
    captures::Captures,
    lifecycle::{Life, Underway},
    policy,
    process::{Inbox, Process},
    relays::{Inspectors, Running},
    status::ServerEnd,
};
use crate::{
    guard::{self, Gate, Outlet},
    model::{Profile, SessionId, WallTime},
    paths::AuditDir,
    policy::{Dns, Policy},
    record::{
        activity::Activity,
        card::{self, Card},
        health::Health,
        judge::PolicyFeed,
        opening::Opening,
        recorder::{Ending, Setup, command_digest},
        rings::Rings,
        rulings,
    },
    relay::{
        Child, Waker,
        capture::{note_cards, ring_dirs},
        child::Pipes,
    },
};
use std::{
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
};

/// What a session begins with.
pub(super) struct Start<'a> {
    pub(super) options: &'a Options,
    pub(super) dir: &'a AuditDir,
    /// Whether anything can be written there.
    pub(super) usable: bool,
    pub(super) session: SessionId,
    /// When it began: monotonic ns, wall clock.
    pub(super) started: (u64, WallTime),
    pub(super) status: Status,
}

/// A session between a client and a server over stdio. Nothing crosses before [`Session::run`].
pub(super) struct Session {
    running: Running,
    life: Life,
    /// Wakes the recorder.
    pub(super) waker: Arc<Waker>,
    /// The state of the recorder.
    pub(super) health: Arc<Health>,
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
        child: &Arc<Child>,
        pipes: Pipes,
        process: &Process,
    ) -> Result<(Session, Rings), String> {
        let Self { options, dir, usable, session, started, status } = *self;
        let waker = Arc::new(Waker::new());
        let guarded = (options.profile == Profile::Guard).then_some(options.max_message);
        let mut captures = Captures::make(dir, session, &waker, status, guarded)?;
        let places = card::Captures::of(&captures.lanes);
        let mut setup = setup(options);
        setup.policy_hash = rules.as_ref().map(|policy| policy.hash().to_owned());
        let setup = Arc::new(setup);
        let feed = Arc::new(PolicyFeed::new(setup.policy_hash.clone()));
        let health = Arc::new(Health::default());
        let judge = rules.map(|policy| {
            if usable && let Err(e) = policy::keep(dir, &policy) {
                status.warn(&format!("the policy cannot be kept for the evidence: {e}"));
            }
            let dns = match (options.dns, guarded) {
                (false, _) => Dns::Off,
                (true, Some(_)) => Dns::System,
                // The recorder judges, and must keep up with the traffic.
                (true, None) => Dns::system_beside(),
            };
            policy::PolicyJudge::new(policy, dns, started.0)
        });
        let inspectors = match (captures.rulings.take(), &judge) {
            (Some(rulings), Some(judge)) => Some(inspectors(rulings, judge, &health, &feed, options.max_message)?),
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
        if let (Some(judge), Some(path)) = (judge.clone(), &options.policy) {
            let path = std::path::absolute(path).map_err(|e| e.to_string())?;
            life.reload_on_hangup(watch(policy::Watcher {
                path,
                dir: dir.clone(),
                judge,
                feed: feed.clone(),
                status,
            })?);
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
        Ok((Session { running, life, waker, health }, Rings::new(captures.lanes, opening)))
    }

    /// From here on a crash can be recovered, whatever has crossed.
    fn remember(&self, setup: &Setup, captures: &card::Captures) {
        let Self { dir, session, started, status, .. } = *self;
        for ring in captures.rings.iter().flatten() {
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
            for name in ["c2s.ring", "s2c.ring", "dec.ring", "place"] {
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
        let server = ServerEnd { code: self.life.server_code(), died: self.life.died() };
        SessionEnd { interrupted: self.life.interrupted(), server }
    }
}

/// Has the policy read again when it changes; what is returned asks for it.
fn watch(watcher: policy::Watcher) -> Result<Sender<()>, String> {
    let (ask, asked) = mpsc::channel();
    thread::Builder::new()
        .name("assay-policy".into())
        .spawn(move || watcher.run(&asked))
        .map_err(|e| format!("no thread for the policy: {e}"))?;
    Ok(ask)
}

fn inspectors(
    rulings: rulings::RulingWriter,
    judge: &policy::PolicyJudge,
    health: &Arc<Health>,
    feed: &Arc<PolicyFeed>,
    max_message: usize,
) -> Result<Inspectors, String> {
    let session = guard::Session::new(Box::new(judge.clone()), health.clone(), feed.clone(), max_message);
    let shared = guard::StdioGuard::new(session, rulings).map_err(|e| format!("the guard cannot begin: {e}"))?;
    Ok([Box::new(Gate::new(shared.clone())), Box::new(Outlet::new(shared))])
}

fn setup(options: &Options) -> Setup {
    let argv: Vec<String> = options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let server_id = options.server_id.clone().unwrap_or_else(|| auto_server_id(&argv));
    Setup {
        profile: options.profile,
        transport: "stdio",
        server_id,
        command_digest: command_digest(&argv),
        command: options.store_command.then_some(argv),
        store_args: options.store_args,
        store_results: options.store_results,
        store_limit: options.store_limit,
        policy_hash: None,
    }
}

/// The server's name as its command says it: the script or package after an interpreter or package runner, else the
/// program.
fn auto_server_id(argv: &[String]) -> String {
    const RUNNERS: [&str; 12] =
        ["npx", "node", "python", "python3", "uvx", "uv", "bunx", "bun", "deno", "pipx", "npm", "pnpm"];
    let base = |arg: &str| {
        let name = arg.trim_end_matches('/').rsplit('/').next().unwrap_or(arg);
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-@".contains(*c)).take(100).collect::<String>()
    };
    let program = argv.first().map(|p| base(p)).unwrap_or_default();
    let behind = argv.iter().skip(1).find(|a| !a.starts_with('-') && !matches!(a.as_str(), "run" | "exec" | "dlx"));
    let name = match behind {
        Some(arg) if RUNNERS.contains(&program.as_str()) => base(arg),
        _ => program,
    };
    if name.is_empty() { "server".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_ids_name_the_server_and_are_safe() {
        for (argv, id) in [
            (&["npx", "-y", "@modelcontextprotocol/server-everything"][..], "server-everything"),
            (&["/usr/bin/python3", "my_server.py"], "my_server.py"),
            (&["uv", "run", "server"], "server"),
            (&["/opt/x/mcp-server-git", "--repository", "/r"], "mcp-server-git"),
            (&["node"], "node"),
            (&["日本"], "server"),
        ] {
            let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
            assert_eq!(auto_server_id(&argv), id);
        }
    }
}
