//! What one session needs, made before anything crosses: captures, deciders, threads, its card. Where the system has not
//! enough for it, nothing was begun.

use super::{
    Options, Running, Status,
    lifecycle::{Event, Life, Underway},
    policy, seal, status, sync,
};
use crate::{
    guard::{self, Gate, Outlet},
    live::{hub::Hub, server},
    model::{Profile, SessionId, WallTime},
    pack::keys::Signer,
    paths::AuditDir,
    policy::{Dns, Policy},
    record::{
        broadcast::{Broadcast, Silent},
        card::Card,
        engine::{Activity, Config, Engine, Report},
        judgement::{self, Health, News},
        lane::Lane,
        recorder::{Ending, Setup, command_digest},
    },
    relay::{
        self, Capture, Child, Producer, Waker,
        capture::{note_cards, ring_dirs},
        child::Pipes,
        stdio::Decider,
    },
    sys,
};
use std::{
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{self, Sender},
    },
    thread,
};
use tracing_appender::non_blocking::WorkerGuard;

/// Bytes of a capture with which a session can be recorded, where there is no room for more.
const LEAST_CAPTURE: usize = 64 << 10;

/// What a session begins with.
pub(super) struct Start<'a> {
    pub(super) options: &'a Options,
    pub(super) dir: &'a AuditDir,
    pub(super) usable: bool,
    pub(super) session: SessionId,
    /// When the process began: monotonic ns, wall clock.
    pub(super) started: (u64, WallTime),
    pub(super) events: &'a Sender<Event>,
    pub(super) status: Status,
}

/// A session that waits for [`Running::go`].
pub(super) struct Begun {
    pub(super) running: Running,
    pub(super) recorder: Recording,
    pub(super) sealing: thread::JoinHandle<Vec<super::Sealed>>,
    pub(super) life: Life,
    pub(super) live: Option<(Arc<Hub>, thread::JoinHandle<()>)>,
    pub(super) waker: Arc<Waker>,
    pub(super) health: Arc<Health>,
    /// Lives as long as anything may be logged.
    pub(super) log: Option<WorkerGuard>,
}

impl Start<'_> {
    /// Everything that needs memory, descriptors or threads. The error says what the system does not have.
    pub(super) fn begin(
        &self,
        rules: Option<Arc<Policy>>,
        signer: Option<Arc<Signer>>,
        child: &Arc<Child>,
        pipes: Pipes,
    ) -> Result<Begun, String> {
        let live = self.usable.then(|| live(self.dir)).flatten();
        match self.make(rules, signer, child, pipes, live.as_ref().map(|(hub, _)| hub)) {
            Ok(begun) => Ok(Begun { live, ..begun }),
            Err(why) => {
                if let Some((hub, thread)) = live {
                    hub.close();
                    let _ = thread.join();
                }
                Err(why)
            }
        }
    }

    fn make(
        &self,
        rules: Option<Arc<Policy>>,
        signer: Option<Arc<Signer>>,
        child: &Arc<Child>,
        pipes: Pipes,
        hub: Option<&Arc<Hub>>,
    ) -> Result<Begun, String> {
        let Self { options, dir, usable, session, started, events, status } = *self;
        let waker = Arc::new(Waker::new());
        let guarded = (options.profile == Profile::Guard).then_some(options.max_message);
        let mut captures = Captures::make(dir, session, &waker, status, guarded)?;
        let mut setup = setup(options);
        setup.policy_hash = rules.as_ref().map(|policy| policy.hash().to_owned());
        let setup = Arc::new(setup);
        let news = Arc::new(News::new(setup.policy_hash.clone()));
        let health = Arc::new(Health::default());
        let judging = rules.map(|policy| {
            if usable && let Err(e) = policy::keep(dir, &policy) {
                status.warn(&format!("the policy cannot be kept for the evidence: {e}"));
            }
            let dns = match (options.dns, guarded) {
                (false, _) => Dns::Off,
                (true, Some(_)) => Dns::System,
                // The recorder judges, and must keep up with what crosses.
                (true, None) => Dns::system_beside(),
            };
            policy::Judging::new(policy, dns, started.0)
        });
        let deciders = match (captures.journal.take(), &judging) {
            (Some(journal), Some(judging)) => Some(deciders(journal, judging, &health, &news, options.max_message)?),
            _ => None,
        };
        if usable {
            for ring in captures.lanes.iter().filter_map(|lane| lane.consumer().path()) {
                if !ring.starts_with(dir.root())
                    && let Err(e) = note_cards(ring, &dir.live())
                {
                    tracing::warn!(error = %e, "a capture that a crash leaves behind would stay if this directory is removed");
                }
            }
            // From here on a crash is recovered, whatever has crossed.
            let remembered = match dir.marks() {
                Some(marks) => marks.begin(dir, session, started.1).map_err(|e| e.to_string()),
                None => Err("there is no user directory: set HOME or ASSAY_HOME".to_owned()),
            };
            if let Err(e) = remembered {
                status.warn(&format!(
                    "this session cannot be remembered ({e}); a crash of the proxy could not be recovered"
                ));
            }
            let card = Card::of(&setup, session, started.0, started.1, &captures.lanes);
            let paths = dir.session(started.1, session);
            if let Err(e) = card.write(&paths) {
                status.warn(&format!("{}: {e}; a crash of the proxy could not be recovered", paths.card.display()));
            }
        }
        let running = Running::start(pipes, captures.producers, deciders, child, events, hub)?;
        let log = usable.then(|| status::log_to(dir, status)).flatten();
        let (ended, sealed) = mpsc::channel();
        let (files, to_sync) = mpsc::channel();
        let sync_failed = Arc::new(AtomicBool::new(false));
        let activity = Arc::new(Activity::default());
        sync::start(to_sync, sync_failed.clone()).map_err(|e| format!("no thread for syncing: {e}"))?;
        if usable {
            status.recording(dir, session, child.pid());
        }
        let sealer =
            seal::Sealer { dir: dir.clone(), signer, auto_pack: options.auto_pack, status, live: hub.cloned() };
        let sealing = thread::Builder::new()
            .name("assay-sealer".into())
            .spawn(move || sealer.run(&sealed))
            .map_err(|e| format!("no thread for sealing: {e}"))?;
        let recording = Underway { activity: activity.clone(), waker: waker.clone() };
        let mut life = Life::new(child.clone(), running.stops.clone(), options.shutdown_timeout, recording, status);
        if let (Some(judging), Some(path)) = (judging.clone(), &options.policy) {
            let path = std::path::absolute(path).map_err(|e| e.to_string())?;
            life.reload_on_hangup(watch(policy::Watcher {
                path,
                dir: dir.clone(),
                judging,
                news: news.clone(),
                status,
            })?);
        }
        // Last: it begins the session on disk.
        let recorder = {
            let config = Config {
                dir: dir.clone(),
                setup,
                session,
                started_ns: started.0,
                started_at: started.1,
                interval: options.interval,
                activity,
                sync_failed,
                broadcast: match hub {
                    Some(hub) => hub.clone(),
                    None => Arc::new(Silent) as Arc<dyn Broadcast>,
                },
                ended,
                files,
                advisor: judging.filter(|_| guarded.is_none()).map(|j| Box::new(j) as _),
                news: news.clone(),
                health: health.clone(),
            };
            let engine = Engine::new(config, captures.lanes, waker.clone());
            spawn("assay-recorder", move |finish: mpsc::Receiver<Ending>| engine.run(&finish), 10)?
        };
        Ok(Begun { running, recorder, sealing, life, live: None, waker, health, log })
    }

    /// Nothing was begun.
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

/// The live thread. That a session cannot be watched is no failure of it.
fn live(dir: &AuditDir) -> Option<(Arc<Hub>, thread::JoinHandle<()>)> {
    match server::start(dir.root()) {
        Ok(live) => Some(live),
        Err(e) => {
            tracing::warn!(error = %e, "this session cannot be watched");
            None
        }
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

/// Who decides in the two directions, client to server first.
pub(super) type Deciders = [Box<dyn Decider>; 2];

fn deciders(
    journal: judgement::Writer,
    judging: &policy::Judging,
    health: &Arc<Health>,
    news: &Arc<News>,
    max_message: usize,
) -> Result<Deciders, String> {
    let session = guard::Session::new(Box::new(judging.clone()), health.clone(), news.clone(), max_message);
    let shared = guard::Shared::new(session, journal).map_err(|e| format!("the guard cannot begin: {e}"))?;
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

/// The server's name as its command says it: the script or package behind an interpreter or package runner, else the
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

struct Captures {
    producers: [Producer; 2],
    lanes: [Lane; 2],
    /// Where a guard tells its decisions.
    journal: Option<judgement::Writer>,
}

impl Captures {
    /// `guarded`: bytes of the longest message that a guard holds.
    fn make(
        dir: &AuditDir,
        session: SessionId,
        waker: &Arc<Waker>,
        status: Status,
        guarded: Option<usize>,
    ) -> Result<Self, String> {
        let mut dirs = ring_dirs(&dir.live());
        dirs.retain(|at| *at != dir.live() || dir.files().dir(at).is_ok());
        let paths = dir.session(WallTime::from_millis(0), session);
        let hex = session.hex();
        let failed = |e| format!("no memory for the capture: {e}");
        let capture = |direction, capacity| {
            let mut fits = capacity;
            let (producer, consumer, placement) = loop {
                match Capture::create(&dirs, &hex, direction, fits, waker) {
                    Ok(made) => break made,
                    Err(_) if fits > LEAST_CAPTURE => fits /= 2,
                    Err(e) => return Err(failed(e)),
                }
            };
            if placement.path.is_none() {
                status.warn(
                    "no directory could hold the capture: a crash of the proxy would lose what is not on disk yet",
                );
            }
            Ok::<_, String>((producer, consumer))
        };
        let (journal, reader) = match guarded {
            Some(_) => {
                let (producer, consumer) = capture(relay::Direction::Decisions, judgement::CAPACITY)?;
                (Some(judgement::Writer::new(producer)), Some(judgement::Reader::new(consumer)))
            }
            None => (None, None),
        };
        let make = |direction, capacity, index: usize| {
            let (producer, consumer) = capture(direction, capacity)?;
            let model = crate::record::engine::DIRECTIONS[index];
            let lane = Lane::new(model, consumer, dir.files().clone(), paths.spools[index].clone()).map_err(failed)?;
            let lane = match &reader {
                Some(reader) => lane.guarded(reader.clone()),
                None => lane,
            };
            Ok::<_, String>((producer, lane))
        };
        // A message is held whole until it was judged, and the reader of the next one needs room, too.
        let held = guarded.map_or(0, |max| max.saturating_add(max / 4).saturating_add(1 << 20).next_power_of_two());
        let (c2s, c2s_lane) = make(relay::Direction::ClientToServer, Capture::DEFAULT_CAPACITY.max(held), 0)?;
        let (s2c, s2c_lane) = make(relay::Direction::ServerToClient, Capture::DEFAULT_CAPACITY, 1)?;
        Ok(Self { producers: [c2s, s2c], lanes: [c2s_lane, s2c_lane], journal })
    }
}

pub(super) type Recording = (Sender<Ending>, thread::JoinHandle<Report>);

fn spawn(
    name: &str,
    body: impl FnOnce(mpsc::Receiver<Ending>) -> Report + Send + 'static,
    nice: i32,
) -> Result<Recording, String> {
    let (finish, ending) = mpsc::channel();
    let run = move || {
        if let Err(e) = sys::process::nice_this_thread(nice) {
            tracing::debug!(error = %e, "the recorder keeps its priority");
        }
        body(ending)
    };
    let thread =
        thread::Builder::new().name(name.into()).spawn(run).map_err(|e| format!("no thread for recording: {e}"))?;
    Ok((finish, thread))
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
