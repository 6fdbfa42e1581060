//! One proxied session from spawn to exit code: the server, the relay threads, the recorder, and the order in which they
//! end (FIELD-NOTES of proxies: stdin end, server exit, signals, drain, leftover processes).
//!
//! The proxied session never fails because evidence cannot be kept: everything that can go wrong with directories, disks
//! and packs after the server runs is said on stderr and in the exit code.

mod lifecycle;
pub mod seal;
mod status;
mod sync;

pub use status::Status;

use crate::{
    error::{Exit, Failure},
    model::{Profile, SessionId, WallTime},
    pack::keys::{KeyStore, Signer},
    paths::{AuditDir, PathError},
    record::{
        card::Card,
        engine::{Config, Engine, PackInterval, Report},
        lane::Lane,
        recorder::{Ending, Setup, command_digest},
    },
    relay::{
        self, Capture, Child, Producer, Stop, Waker,
        capture::ring_dirs,
        child::{Pipes, SpawnError, Stderr},
        stdio::{Mode, StderrCounts, relay_and_tell, relay_stderr},
    },
    sys::{self, clock, fd},
};
use lifecycle::{Event, Life};
use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    /// Server id for receipts; `None` takes the command's name.
    pub server_id: Option<String>,
    /// Store tool arguments in cleartext.
    pub store_args: bool,
    /// Store tool results in cleartext.
    pub store_results: bool,
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
    let program = options.command.first().ok_or_else(no_command)?;
    relay::child::find_command(program).map_err(|e| Failure::bad_input(e).hint(COMMAND_HINT))?;
    let dir = AuditDir::at(std::path::absolute(&options.audit_dir).map_err(Failure::bad_input)?);
    let usable = match dir.create() {
        Ok(()) => true,
        Err(e @ PathError::NotADirectory(_)) => {
            return Err(Failure::bad_input(e).hint("name another directory with --audit-dir"));
        }
        Err(e) => {
            status.warn(&format!("the audit directory cannot be used: {e}; nothing of this session will be recorded"));
            false
        }
    };
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
    let captures = Captures::make(&dir, session, &waker, status)?;
    let setup = setup(options);
    if usable {
        // From here on a crash is recovered, whatever has crossed.
        let card = Card::of(&setup, session, started.0, started.1, &captures.lanes);
        let path = dir.session(started.1, session).card;
        if let Err(e) = card.write(&path) {
            status.warn(&format!("{}: {e}; a crash of the proxy could not be recovered", path.display()));
        }
    }
    let running = Running::start(pipes, captures.producers, &child, &events)?;
    let _log = usable.then(|| status::log_to(dir.root())).flatten();
    let (ended, sealed) = mpsc::channel();
    let (files, to_sync) = mpsc::channel();
    let sync_failed = Arc::new(AtomicBool::new(false));
    let activity = Arc::new(AtomicU64::new(0));
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
            ended,
            files,
            advisor: None,
            news: Arc::default(),
            health: Arc::default(),
        };
        let engine = Engine::new(config, captures.lanes, waker.clone());
        spawn("assay-recorder", move |finish: mpsc::Receiver<Ending>| engine.run(&finish), 10)?
    };
    sync::start(to_sync, sync_failed)?;
    if usable {
        status.recording(&dir, session, child.pid());
        seal::recover_in_background(&dir, signer.clone(), status);
    }
    let sealer = seal::Sealer { dir: dir.clone(), signer, auto_pack: options.auto_pack, status };
    let sealing = thread::Builder::new()
        .name("assay-sealer".into())
        .spawn(move || sealer.run(&sealed))
        .map_err(|e| Failure::failed(format_args!("no thread for sealing: {e}")))?;
    let mut life = Life::new(child, running.stops.clone(), options.shutdown_timeout, activity, status);
    life.run(&inbox);
    let stderr_bytes = running.stderr.bytes.load(Ordering::Relaxed);
    let ending = Ending { stderr_bytes, ..life.ending() };
    let _ = recorder.0.send(ending);
    waker.urge();
    let report = recorder.1.join().unwrap_or_else(|_| Report { left_for_recovery: true, ..Report::default() });
    let seals = sealing.join().unwrap_or_default();
    life.sweep();
    Ok(status.finish(&report, &seals, life.interrupted(), life.server_code()))
}

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
    let keys = KeyStore::of_user()?;
    match keys.active().and_then(|id| keys.load_or_generate(&id)) {
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

fn setup(options: &Options) -> Arc<Setup> {
    let argv: Vec<String> = options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let server_id = options.server_id.clone().unwrap_or_else(|| auto_server_id(&argv));
    Arc::new(Setup {
        profile: Profile::Audit,
        transport: "stdio",
        server_id,
        command_digest: command_digest(&argv),
        command: options.store_args.then_some(argv),
        store_args: options.store_args,
        store_results: options.store_results,
        store_limit: options.store_limit,
        policy_hash: None,
    })
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
}

impl Captures {
    fn make(dir: &AuditDir, session: SessionId, waker: &Arc<Waker>, status: Status) -> Result<Self, Failure> {
        let dirs = ring_dirs(&dir.live());
        let paths = dir.session(WallTime::from_millis(0), session);
        let hex = session.hex();
        let make = |direction, index: usize| {
            let failed = |e| Failure::failed(format_args!("no memory for the capture: {e}"));
            let made = Capture::create(&dirs, &hex, direction, Capture::DEFAULT_CAPACITY, waker);
            let (producer, consumer, placement) = made.map_err(failed)?;
            if placement.path.is_none() {
                status.warn(
                    "no directory could hold the capture: a crash of the proxy would lose what is not on disk yet",
                );
            }
            let model = crate::record::engine::DIRECTIONS[index];
            let lane = Lane::new(model, consumer, paths.spools[index].clone()).map_err(failed)?;
            Ok::<_, Failure>((producer, lane))
        };
        let (c2s, c2s_lane) = make(relay::Direction::ClientToServer, 0)?;
        let (s2c, s2c_lane) = make(relay::Direction::ServerToClient, 1)?;
        Ok(Self { producers: [c2s, s2c], lanes: [c2s_lane, s2c_lane] })
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
        child: &Arc<Child>,
        events: &Sender<Event>,
    ) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::failed(format_args!("the session cannot be relayed: {e}"));
        let stops = Stops {
            c2s: Stop::new().map_err(failed)?,
            s2c: Stop::new().map_err(failed)?,
            stderr: Stop::new().map_err(failed)?,
        };
        let stderr = Arc::new(StderrCounts::default());
        let stdin = fd::take_stdio(fd::Stdio::In).map_err(failed)?;
        let stdout = fd::take_stdio(fd::Stdio::Out).map_err(failed)?;
        let [c2s, s2c] = producers;
        let Pipes { stdin: to_server, stdout: from_server, stderr: server_stderr } = pipes;
        let c2s_stop = stops.c2s.clone();
        relay_thread("assay-c2s", events, move |tell| {
            relay_and_tell(stdin, to_server, c2s, &c2s_stop, Mode::Audit, |end| tell(Event::ClientEnd(end.into())));
        })?;
        let s2c_stop = stops.s2c.clone();
        relay_thread("assay-s2c", events, move |tell| {
            relay_and_tell(from_server, stdout, s2c, &s2c_stop, Mode::Audit, |end| tell(Event::ServerEnd(end.into())));
        })?;
        if let Some(from) = server_stderr {
            let to = fd::copy_stdio(fd::Stdio::Err).map_err(failed)?;
            let (counts, stop) = (stderr.clone(), stops.stderr.clone());
            relay_thread("assay-stderr", events, move |tell| {
                relay_stderr(from, to, &counts, None, &stop);
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
