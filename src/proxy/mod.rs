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
mod start;
mod status;
mod sync;
mod unrecorded;

use status::ServerEnd;
pub use status::{Sealed, Status};

use crate::{
    error::{Exit, Failure},
    live::hub::Hub,
    model::{Profile, WallTime},
    pack::keys::{KeyError, KeyStore, Signer},
    paths::{AuditDir, DEFAULT_AUDIT_DIR, PathError},
    policy::Policy,
    record::{
        self,
        engine::{PackInterval, Report},
        recorder::Ending,
    },
    relay::{
        self, Child, Producer, Stop,
        child::{Pipes, SpawnError, Stderr},
        stdio::{Mode, StderrCounts, Told, relay_and_tell, relay_stderr},
    },
    sys::{self, clock, fd},
};
use lifecycle::Event;
use rustix::fd::{AsFd as _, OwnedFd};
use start::{Begun, Deciders, Start};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::Ordering,
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
    let watched = lifecycle::watch_signals(&events).map_err(|e| format!("signals cannot be watched: {e}"));
    let session = record::new_session_id().map_err(|e| Failure::failed(format_args!("no random session id: {e}")))?;
    let started = (clock::mono_ns(), WallTime::now());
    // The server starts up while we do: nothing that could still be refused as bad input comes behind this.
    let spawned = match watched.map(|()| Child::spawn(&options.command, Stderr::Piped, relay::Group::fitting())) {
        Err(why) => Err(why),
        Ok(Err(e)) if unrecorded::lacks_something(&e) => Err(e.to_string()),
        Ok(spawned) => Ok(spawned.map_err(spawn_failure)?),
    };
    let start = Start { options, dir: &dir, usable, session, started, events: &events, status };
    let begun = spawned.and_then(|(child, pipes)| {
        let child = Arc::new(child);
        start.begin(rules, signer.clone(), &child, pipes).inspect_err(|_| {
            start.forget();
            // It has heard nothing yet.
            let _ = child.signal_group(rustix::process::Signal::KILL);
            let _ = child.wait();
        })
    });
    let begun = match begun {
        Ok(begun) => begun,
        Err(why) if options.profile == Profile::Guard => return Ok(unrecorded::refuse(&why, Some(&inbox), status)),
        Err(why) => return unrecorded::pass(&options.command, &why, Some(&inbox), status),
    };
    let Begun { running, recorder, sealing, mut life, live, waker, health, log: _log } = begun;
    running.go();
    if usable {
        seal::recover_in_background(&dir, signer.clone(), status);
    }
    let recovering = signer;
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
    /// What the threads wait for.
    waiting: Vec<Sender<()>>,
    /// What comes in the place of our stdin and stdout then.
    blank: OwnedFd,
}

impl Running {
    fn start(
        pipes: Pipes,
        producers: [Producer; 2],
        deciders: Option<Deciders>,
        child: &Arc<Child>,
        events: &Sender<Event>,
        hub: Option<&Arc<Hub>>,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("the session cannot be relayed: {e}");
        let mut waiting = Vec::new();
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
        let stdin = fd::copy_stdio(fd::Stdio::In).map_err(failed)?;
        let stdout = fd::copy_stdio(fd::Stdio::Out).map_err(failed)?;
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
        relay_thread(&mut waiting, "assay-c2s", events, move |tell| {
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
        relay_thread(&mut waiting, "assay-s2c", events, move |tell| {
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
            relay_thread(&mut waiting, "assay-stderr", events, move |tell| {
                let tap = |piece: &[u8]| hub.as_ref().is_none_or(|hub| hub.stderr(piece));
                relay_stderr(from, to, &counts, Some(&tap), &stop);
                tell(Event::StderrEnd);
            })?;
        }
        let child = child.clone();
        relay_thread(&mut waiting, "assay-wait", events, move |tell| {
            let exit = child.wait();
            tell(Event::Exited(exit.ok()));
        })?;
        let blank = fd::null().map_err(failed)?;
        Ok(Self { stops, stderr, waiting, blank })
    }

    /// Lets the relays begin. If this is never called, they never do.
    fn go(&self) {
        fd::blank_stdio(&self.blank);
        for thread in &self.waiting {
            let _ = thread.send(());
        }
    }
}

fn relay_thread(
    waiting: &mut Vec<Sender<()>>,
    name: &str,
    events: &Sender<Event>,
    body: impl FnOnce(&dyn Fn(Event)) + Send + 'static,
) -> Result<(), String> {
    let events = events.clone();
    let (go, gone) = mpsc::channel();
    waiting.push(go);
    let run = move || {
        if gone.recv().is_ok() {
            // The main thread may have gone on without this one.
            body(&|event| drop(events.send(event)));
        }
    };
    thread::Builder::new().name(name.into()).spawn(run).map(drop).map_err(|e| format!("no thread for relaying: {e}"))
}
