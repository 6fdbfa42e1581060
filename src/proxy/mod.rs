//! One proxied session from spawn to exit code: the server, the relay threads, the recorder, and the order in which they
//! end (FIELD-NOTES of proxies: stdin end, server exit, signals, drain, leftover processes).
//!
//! The proxied session never fails because evidence cannot be kept: everything that can go wrong with directories, disks
//! and packs after the server runs is said on stderr and in the exit code.

mod client;
mod lifecycle;
mod patience;
mod policy;
pub mod seal;
mod status;
mod sync;

use status::ServerEnd;
pub use status::Status;

use crate::{
    error::{Exit, Failure},
    guard::{self, Gate, Outlet},
    live::{hub::Hub, server},
    model::{Profile, SessionId, WallTime},
    pack::keys::{KeyError, KeyStore, Signer},
    paths::{AuditDir, DEFAULT_AUDIT_DIR, PathError},
    policy::{Dns, Policy},
    record::{
        broadcast::{Broadcast, Silent},
        card::Card,
        engine::{Activity, Config, Engine, PackInterval, Report},
        judgement::{self, Health, News},
        lane::Lane,
        recorder::{Ending, Setup, command_digest},
    },
    relay::{
        self, Capture, Child, Producer, Stop, Waker,
        capture::{note_cards, ring_dirs},
        child::{Pipes, SpawnError, Stderr},
        stdio::{Decider, Mode, StderrCounts, Told, relay_and_tell, relay_stderr},
    },
    sys::{self, clock, fd},
};
use lifecycle::{Event, Life, Underway};
use rustix::fd::{AsFd as _, OwnedFd};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

/// What `assay mcp-proxy` was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server command.
    pub command: Vec<OsString>,
    /// Audit directory.
    pub audit_dir: PathBuf,
    /// Observe or enforce.
    pub profile: Profile,
    /// Policy file; enforcing needs one.
    pub policy: Option<PathBuf>,
    /// Whether names in arguments are resolved.
    pub dns: bool,
    /// Bytes of a client's message that guard looks at; longer ones are refused.
    pub max_message: usize,
    /// Server id for receipts; `None` takes the command's name.
    pub server_id: Option<String>,
    /// Store tool arguments in cleartext.
    pub store_args: bool,
    /// Store tool results in cleartext.
    pub store_results: bool,
    /// Store the server's command line in cleartext.
    pub store_command: bool,
    /// Content over this many bytes stays out of receipts.
    pub store_limit: usize,
    /// Build packs.
    pub auto_pack: bool,
    /// When packs are closed.
    pub interval: PackInterval,
    /// How long a shutdown may take before the server is killed.
    pub shutdown_timeout: Duration,
    /// Status messages as JSON lines.
    pub json: bool,
}

/// Runs one session and returns the proxy's exit code.
///
/// # Errors
/// Bad input, before the server is started: no or no such command, an audit directory that is a file, an unusable key.
pub fn run(options: &Options) -> Result<Exit, Failure> {
    let status = Status::new(options.json);
    sys::process::ignore_write_signals();
    sys::process::hear_signals();
    let program = options.command.first().ok_or_else(no_command)?;
    relay::child::find_command(program).map_err(|e| Failure::bad_input(e).hint(COMMAND_HINT))?;
    let rules = match &options.policy {
        Some(path) => Some(Arc::new(Policy::load_if_quiet(path).map_err(Failure::bad_input)?)),
        None if options.profile == Profile::Guard => return Err(no_policy()),
        None => None,
    };
    let (dir, usable) = audit_dir(options, status)?;
    let signer = signer()?.map(Arc::new);
    let (events, inbox) = mpsc::channel();
    lifecycle::watch_signals(&events).map_err(|e| Failure::failed(format_args!("signals cannot be watched: {e}")))?;
    let session = SessionId::random().map_err(|e| Failure::failed(format_args!("no random session id: {e}")))?;
    let started = (clock::mono_ns(), WallTime::now());
    // The server starts up while we do: nothing that could still be refused as bad input comes behind this.
    let (child, pipes) =
        Child::spawn(&options.command, Stderr::Piped, relay::Group::fitting()).map_err(spawn_failure)?;
    let child = Arc::new(child);
    let waker = Arc::new(Waker::new());
    let guarded = (options.profile == Profile::Guard).then_some(options.max_message);
    let mut captures = Captures::make(&dir, session, &waker, status, guarded)?;
    let mut setup = setup(options);
    setup.policy_hash = rules.as_ref().map(|policy| policy.hash().to_owned());
    let setup = Arc::new(setup);
    let news = Arc::new(News::new(setup.policy_hash.clone()));
    let health = Arc::new(Health::default());
    let judging = rules.map(|policy| {
        if usable && let Err(e) = policy::keep(&dir, &policy) {
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
            Some(marks) => marks.begin(&dir, session, started.1).map_err(|e| e.to_string()),
            None => Err("there is no user directory: set HOME or ASSAY_HOME".to_owned()),
        };
        if let Err(e) = remembered {
            status
                .warn(&format!("this session cannot be remembered ({e}); a crash of the proxy could not be recovered"));
        }
        let card = Card::of(&setup, session, started.0, started.1, &captures.lanes);
        let paths = dir.session(started.1, session);
        if let Err(e) = card.write(&paths) {
            status.warn(&format!("{}: {e}; a crash of the proxy could not be recovered", paths.card.display()));
        }
    }
    let live = usable.then(|| live(&dir)).flatten();
    let hub = live.as_ref().map(|(hub, _)| Arc::clone(hub));
    let running = Running::start(pipes, captures.producers, deciders, &child, &events, hub.as_ref())?;
    let _log = usable.then(|| status::log_to(&dir, status)).flatten();
    let (ended, sealed) = mpsc::channel();
    let (files, to_sync) = mpsc::channel();
    let sync_failed = Arc::new(AtomicBool::new(false));
    let activity = Arc::new(Activity::default());
    let recorder = {
        let config = Config {
            dir: dir.clone(),
            setup,
            session,
            started_ns: started.0,
            started_at: started.1,
            interval: options.interval,
            activity: activity.clone(),
            sync_failed: sync_failed.clone(),
            broadcast: match hub.clone() {
                Some(hub) => hub,
                None => Arc::new(Silent) as Arc<dyn Broadcast>,
            },
            ended,
            files,
            advisor: judging.clone().filter(|_| guarded.is_none()).map(|j| Box::new(j) as _),
            news: news.clone(),
            health: health.clone(),
        };
        let engine = Engine::new(config, captures.lanes, waker.clone());
        spawn("assay-recorder", move |finish: mpsc::Receiver<Ending>| engine.run(&finish), 10)?
    };
    sync::start(to_sync, sync_failed)?;
    if usable {
        status.recording(&dir, session, child.pid());
        seal::recover_in_background(&dir, signer.clone(), status);
    }
    let recovering = signer.clone();
    let sealer = seal::Sealer { dir: dir.clone(), signer, auto_pack: options.auto_pack, status, live: hub };
    let sealing = thread::Builder::new()
        .name("assay-sealer".into())
        .spawn(move || sealer.run(&sealed))
        .map_err(|e| Failure::failed(format_args!("no thread for sealing: {e}")))?;
    let recording = Underway { activity, waker: waker.clone() };
    let mut life = Life::new(child, running.stops.clone(), options.shutdown_timeout, recording, status);
    if let (Some(judging), Some(path)) = (judging, &options.policy) {
        let path = std::path::absolute(path).map_err(Failure::failed)?;
        life.reload_on_hangup(watch(policy::Watcher { path, dir: dir.clone(), judging, news, status })?);
    }
    life.run(&inbox);
    let stderr_bytes = running.stderr.bytes.load(Ordering::Relaxed);
    let ending = Ending { stderr_bytes, ..life.ending() };
    let _ = recorder.0.send(ending);
    waker.urge();
    // A disk that answers nothing must not keep us: what is not sealed is finished by `recover`.
    let patience = options.shutdown_timeout.max(LEAST_PATIENCE);
    let report = patience::join(recorder.1, patience, &|| health.silence() < patience);
    // Who waits for the recorder waits for the same disk.
    let patience = if report.is_some() { patience } else { Duration::ZERO };
    let report = report.unwrap_or_else(|| Report { left_for_recovery: true, ..Report::default() });
    let seals = patience::join(sealing, patience, &|| false);
    let is_sealed = seals.is_some();
    if report.damaged && is_sealed && options.auto_pack {
        // What is left of sessions whose files somebody else has changed.
        let run = move || seal::recover_now(&dir, recovering.as_ref(), status);
        if let Ok(thread) = thread::Builder::new().name("assay-recover".into()).spawn(run) {
            patience::join(thread, patience, &|| false);
        }
    }
    let seals = seals.unwrap_or_default();
    if !is_sealed {
        status.warn("the disk does not respond: the last pack was not built; run `assay recover` once it does");
    }
    if let Some((hub, thread)) = live {
        hub.close();
        let _ = thread.join();
    }
    life.sweep();
    let report = Report { left_for_recovery: report.left_for_recovery || !is_sealed, ..report };
    let end = ServerEnd { code: life.server_code(), died: life.died() };
    Ok(status.finish(&report, &seals, life.interrupted(), end))
}

/// The audit directory, and whether it can be used. One that is not ours, or in which something is not, is not touched.
fn audit_dir(options: &Options, status: Status) -> Result<(AuditDir, bool), Failure> {
    let given = std::path::absolute(&options.audit_dir).unwrap_or_else(|_| options.audit_dir.clone());
    let reached = AuditDir::reach(&options.audit_dir);
    let dir = reached.as_ref().ok().cloned().unwrap_or_else(|| AuditDir::at(&given)).of_user();
    match reached.and_then(|dir| dir.create()) {
        Ok(()) => Ok((dir, true)),
        // A mistake of whoever named it. What stands in the way of the default one may have come with a repository.
        Err(e @ PathError::NotADirectory(_)) if options.audit_dir != Path::new(DEFAULT_AUDIT_DIR) => {
            Err(Failure::bad_input(e).hint("name another directory with --audit-dir"))
        }
        Err(e) => {
            let so = match options.profile {
                Profile::Audit => "",
                Profile::Guard => ", and every tool call will be refused",
            };
            status.warn(&format!(
                "the audit directory cannot be used: {e}; nothing of this session will be recorded{so}; name another \
                 directory with --audit-dir"
            ));
            let refused = matches!(e, PathError::NotOurs(_));
            Ok((if refused { AuditDir::refused(given, e.to_string()) } else { dir }, false))
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

/// A disk gets at least so long.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

const COMMAND_HINT: &str =
    "give the server's command after `--`, for example: assay mcp-proxy -- npx -y some-mcp-server";

fn no_command() -> Failure {
    Failure::bad_input("no server command after `--`").hint(COMMAND_HINT)
}

fn spawn_failure(e: SpawnError) -> Failure {
    Failure::bad_input(e).hint(COMMAND_HINT)
}

/// The key that packs are signed with, made on first use. A key that must not be used is bad input; a key store that
/// cannot be written is not: the session goes on, and the pack is finished by `recover`.
fn signer() -> Result<Option<Signer>, Failure> {
    let of_user = KeyStore::of_user().map_err(KeyError::from);
    match of_user.and_then(|keys| keys.load_or_generate(&keys.active()?)) {
        Ok(signer) => Ok(Some(signer)),
        Err(e) if e.is_environment() => {
            eprintln!("assay: warning: no pack can be signed: {e}");
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

impl From<PathError> for Failure {
    fn from(e: PathError) -> Self {
        Self::bad_input(e)
    }
}

pub(crate) fn no_policy() -> Failure {
    Failure::bad_input("--profile guard needs --policy")
        .hint("assay policy init writes one to begin with; there is no implicit allow-all or deny-all policy")
}

/// Has the policy read again when it changes; what is returned asks for it.
fn watch(watcher: policy::Watcher) -> Result<Sender<()>, Failure> {
    let (ask, asked) = mpsc::channel();
    thread::Builder::new()
        .name("assay-policy".into())
        .spawn(move || watcher.run(&asked))
        .map_err(|e| Failure::failed(format_args!("no thread for the policy: {e}")))?;
    Ok(ask)
}

/// Who decides in the two directions, client to server first.
type Deciders = [Box<dyn Decider>; 2];

fn deciders(
    journal: judgement::Writer,
    judging: &policy::Judging,
    health: &Arc<Health>,
    news: &Arc<News>,
    max_message: usize,
) -> Result<Deciders, Failure> {
    let shared = guard::Shared::new(Box::new(judging.clone()), journal, health.clone(), news.clone())
        .map_err(|e| Failure::failed(format_args!("the guard cannot begin: {e}")))?;
    Ok([Box::new(Gate::new(shared.clone(), max_message)), Box::new(Outlet::new(shared))])
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
    ) -> Result<Self, Failure> {
        let mut dirs = ring_dirs(&dir.live());
        dirs.retain(|at| *at != dir.live() || dir.files().dir(at).is_ok());
        let paths = dir.session(WallTime::from_millis(0), session);
        let hex = session.hex();
        let failed = |e| Failure::failed(format_args!("no memory for the capture: {e}"));
        let capture = |direction, capacity| {
            let made = Capture::create(&dirs, &hex, direction, capacity, waker);
            let (producer, consumer, placement) = made.map_err(failed)?;
            if placement.path.is_none() {
                status.warn(
                    "no directory could hold the capture: a crash of the proxy would lose what is not on disk yet",
                );
            }
            Ok::<_, Failure>((producer, consumer))
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
            Ok::<_, Failure>((producer, lane))
        };
        // A message is held whole until it was judged, and the reader of the next one needs room, too.
        let held = guarded.map_or(0, |max| max.saturating_add(max / 4).saturating_add(1 << 20).next_power_of_two());
        let (c2s, c2s_lane) = make(relay::Direction::ClientToServer, Capture::DEFAULT_CAPACITY.max(held), 0)?;
        let (s2c, s2c_lane) = make(relay::Direction::ServerToClient, Capture::DEFAULT_CAPACITY, 1)?;
        Ok(Self { producers: [c2s, s2c], lanes: [c2s_lane, s2c_lane], journal })
    }
}

/// Ends the relays from outside.
#[derive(Debug, Clone)]
pub(crate) struct Stops {
    pub(crate) c2s: Stop,
    pub(crate) s2c: Stop,
    pub(crate) stderr: Stop,
}

struct Running {
    stops: Stops,
    stderr: Arc<StderrCounts>,
}

impl Running {
    fn start(
        pipes: Pipes,
        producers: [Producer; 2],
        deciders: Option<Deciders>,
        child: &Arc<Child>,
        events: &Sender<Event>,
        hub: Option<&Arc<Hub>>,
    ) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::failed(format_args!("the session cannot be relayed: {e}"));
        let stops = Stops {
            c2s: Stop::new().map_err(failed)?,
            s2c: Stop::new().map_err(failed)?,
            stderr: Stop::new().map_err(failed)?,
        };
        let stderr = Arc::new(StderrCounts::default());
        let (told, server) = (events.clone(), child.clone());
        let parent_gone = move |was_client| {
            let after_server = server.has_ended();
            let _ = told.send(Event::ParentGone { was_client, after_server });
        };
        client::watch(parent_gone).map_err(failed)?;
        let stdin = fd::take_stdio(fd::Stdio::In).map_err(failed)?;
        let stdout = fd::take_stdio(fd::Stdio::Out).map_err(failed)?;
        let [c2s, s2c] = producers;
        let Pipes { stdin: to_server, stdout: from_server, stderr: server_stderr } = pipes;
        let [mut gate, mut outlet] = deciders.map_or([None, None], |d| d.map(Some));
        let c2s_stop = stops.c2s.clone();
        // The relay from the server holds it, and closing it is telling the server.
        let from_server = Arc::new(from_server);
        let (looked_at, server) = (Arc::downgrade(&from_server), child.clone());
        let after_server = move || {
            let hung_up = |fd: Arc<OwnedFd>| fd::has_hung_up(fd.as_fd());
            server.has_ended() || looked_at.upgrade().is_none_or(hung_up)
        };
        relay_thread("assay-c2s", events, move |tell| {
            let mode = match &mut gate {
                Some(gate) => Mode::Guard(gate.as_mut()),
                None => Mode::Audit,
            };
            let said = |told: Told<'_>| {
                if let Some(event) = Event::of_client(&told, &after_server) {
                    tell(event);
                }
            };
            relay_and_tell(&stdin, to_server, c2s, &c2s_stop, mode, &said);
        })?;
        let (s2c_stop, server) = (stops.s2c.clone(), child.clone());
        relay_thread("assay-s2c", events, move |tell| {
            let mode = match &mut outlet {
                Some(outlet) => Mode::Guard(outlet.as_mut()),
                None => Mode::Audit,
            };
            let said = |told: Told<'_>| tell(Event::of_server(&told, || server.has_ended()));
            relay_and_tell(&from_server, stdout, s2c, &s2c_stop, mode, &said);
        })?;
        if let Some(from) = server_stderr {
            let to = fd::copy_stdio(fd::Stdio::Err).map_err(failed)?;
            let (counts, stop) = (stderr.clone(), stops.stderr.clone());
            let hub = hub.cloned();
            relay_thread("assay-stderr", events, move |tell| {
                let tap = |piece: &[u8]| hub.as_ref().is_none_or(|hub| hub.stderr(piece));
                relay_stderr(from, to, &counts, Some(&tap), &stop);
                tell(Event::StderrEnd);
            })?;
        }
        let (child, events) = (child.clone(), events.clone());
        thread::Builder::new()
            .name("assay-wait".into())
            .spawn(move || {
                let exit = child.wait();
                let _ = events.send(Event::Exited(exit.ok()));
            })
            .map_err(failed)?;
        Ok(Self { stops, stderr })
    }
}

fn relay_thread(
    name: &str,
    events: &Sender<Event>,
    body: impl FnOnce(&dyn Fn(Event)) + Send + 'static,
) -> Result<(), Failure> {
    let events = events.clone();
    // The main thread may have gone on without this one.
    let run = move || body(&|event| drop(events.send(event)));
    thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map(drop)
        .map_err(|e| Failure::failed(format_args!("no thread for relaying: {e}")))
}

type Recording = (Sender<Ending>, thread::JoinHandle<Report>);

fn spawn(
    name: &str,
    body: impl FnOnce(mpsc::Receiver<Ending>) -> Report + Send + 'static,
    nice: i32,
) -> Result<Recording, Failure> {
    let (finish, ending) = mpsc::channel();
    let run = move || {
        if let Err(e) = sys::process::nice_this_thread(nice) {
            tracing::debug!(error = %e, "the recorder keeps its priority");
        }
        body(ending)
    };
    let thread = thread::Builder::new()
        .name(name.into())
        .spawn(run)
        .map_err(|e| Failure::failed(format_args!("no thread for recording: {e}")))?;
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
