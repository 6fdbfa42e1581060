//! `assay mcp-proxy` from spawn to exit code: what the process has once (`process.rs`), and its session between a
//! client and a server (`session.rs`).
//!
//! The proxied session never fails because evidence cannot be kept: everything that can go wrong with directories,
//! disks and packs after the server runs is said on stderr and in the exit code.

mod captures;
mod client;
mod lifecycle;
mod patience;
mod policy;
mod process;
mod relays;
pub mod seal;
mod session;
mod status;
mod sync;
mod unrecorded;

pub use status::{Sealed, Status};

use crate::{
    error::{Exit, Failure},
    model::{Profile, WallTime},
    pack::keys::{KeyError, KeyStore, Signer},
    paths::{AuditDir, DEFAULT_AUDIT_DIR, PathError},
    policy::Policy,
    record::{self, opening::PackInterval},
    relay::{
        self, Child,
        child::{Pipes, SpawnError, Stderr},
    },
    sys::{self, clock},
};
use lifecycle::Event;
use process::{Process, Recording};
use seal::Keeping;
use session::{Session, Start};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    time::Duration,
};

/// What `assay mcp-proxy` was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server command: program and arguments.
    pub command: Vec<OsString>,
    /// The audit directory of the session.
    pub audit_dir: PathBuf,
    /// How the policy is applied: audit or guard.
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
    /// Whether a pack is built when a session ends.
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
    let watched = lifecycle::watch_signals(&events).map_err(|e| format!("cannot handle signals: {e}"));
    let session =
        record::new_session_id().map_err(|e| Failure::failed(format_args!("cannot get a random session id: {e}")))?;
    let started = (clock::mono_ns(), WallTime::now());
    // The server starts up while we do: nothing that could still be refused as bad input comes after this.
    let spawned = match watched.map(|()| Child::spawn(&options.command, Stderr::Piped, relay::Group::fitting())) {
        Err(why) => Err(why),
        Ok(Err(e)) if unrecorded::lacks_something(&e) => Err(e.to_string()),
        Ok(spawned) => Ok(spawned.map_err(spawn_failure)?),
    };
    let start = Start { options, dir: &dir, usable, session, started, status };
    let keeping = Keeping { dir: dir.clone(), usable, signer, auto_pack: options.auto_pack, status };
    let begun = spawned.and_then(|(child, pipes)| {
        let child = Arc::new(child);
        begin(&start, keeping, events, rules, &child, pipes).inspect_err(|_| {
            start.forget();
            // It has heard nothing yet.
            let _ = child.signal_group(rustix::process::Signal::KILL);
            let _ = child.wait();
        })
    });
    let (mut session, recording) = match begun {
        Ok(begun) => begun,
        Err(why) if options.profile == Profile::Guard => return Ok(unrecorded::refuse(&why, Some(&inbox), status)),
        Err(why) => return unrecorded::pass(&options.command, &why, Some(&inbox), status),
    };
    session.go();
    recording.recover_others();
    let ending = session.run(&inbox);
    let patience = options.shutdown_timeout.max(LEAST_PATIENCE);
    let health = session.health.clone();
    let finished = recording.finish(ending, patience, &|| health.silence() < patience);
    let end = session.close();
    Ok(status.finish(&finished.report, &finished.sealed, end.interrupted, end.server))
}

/// The process, its session, and the recorder last: that begins the session on disk.
fn begin(
    start: &Start<'_>,
    keeping: Keeping,
    events: Sender<Event>,
    rules: Option<Arc<Policy>>,
    child: &Arc<Child>,
    pipes: Pipes,
) -> Result<(Session, Recording), String> {
    let process = Process::start(keeping, events)?;
    match start.begin(rules, child, pipes, &process) {
        Ok((session, rings)) => {
            let recording = process.record(Box::new(rings), session.waker.clone())?;
            Ok((session, recording))
        }
        Err(why) => {
            process.stop();
            Err(why)
        }
    }
}

/// The audit directory, and whether it can be used. One that is not ours, or in which something is not, is not touched.
fn audit_dir(options: &Options, status: Status) -> Result<(AuditDir, bool), Failure> {
    let given = std::path::absolute(&options.audit_dir).unwrap_or_else(|_| options.audit_dir.clone());
    let reached = AuditDir::reach(&options.audit_dir);
    let dir = reached.as_ref().ok().cloned().unwrap_or_else(|| AuditDir::at(&given)).of_user();
    match reached.and_then(|dir| dir.create()) {
        Ok(()) => Ok((dir, true)),
        // The user named it, so it is the user's mistake. What blocks the default one may have come with a repository.
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

/// How long a disk gets at least.
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
/// cannot be written is not: the session continues, and the pack is finished by `recover`.
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
        .hint("write a first one with assay policy init; there is no implicit allow-all or deny-all policy")
}
