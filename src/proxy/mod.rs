//! `assay mcp-proxy` from spawn to exit code: what the process has once (`process.rs`), and its session between a
//! client and a server (`session.rs`).
//!
//! The proxied session never fails because evidence cannot be kept: everything that can go wrong with directories,
//! disks and packs after the server runs is said on stderr and in the exit code.

mod captures;
mod client;
mod exchanges;
pub mod http;
mod lifecycle;
mod outbox;
mod patience;
mod pins;
mod policy;
mod process;
mod relays;
mod reviewer;
pub mod seal;
mod served;
mod session;
mod status;
mod surface;
mod sync;
mod unrecorded;

pub use crate::seal::Sealed;
pub use status::{Status, log_level, log_to};
pub use surface::{Compared, SurfaceOptions};

use crate::{
    bridge,
    error::{Exit, Failure},
    model::{Profile, WallTime},
    pack::keys::{KeyError, KeyStore, Signer},
    paths::{self, AuditDir, DEFAULT_AUDIT_DIR, PathError},
    policy::{Dns, Policy},
    prune::Keep,
    record::{
        self,
        opening::PackInterval,
        recorder::Origin,
        redact::{Cleartext, Redactor},
        witness::Witness,
    },
    relay::{
        self, Child, Waker,
        child::{Around, Pipes, SpawnError, Stderr},
        http::reduce::Reducer,
    },
    sys::{self, clock},
};
use captures::BridgeLog;
use lifecycle::Event;
use process::{Process, Recording};
use seal::Keeping;
use served::Served;
use session::{Session, Start};
use std::{
    ffi::{OsStr, OsString},
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
    /// Directories in front of the server's `PATH`.
    pub path: Vec<PathBuf>,
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
    /// Of which tools which arguments are kept in cleartext, and the others as their hashes.
    pub cleartext: Cleartext,
    /// Store tool results in cleartext.
    pub store_results: bool,
    /// What is taken out of contents before they are stored or shown.
    pub redact: Option<Arc<dyn Redactor>>,
    /// Store the server's command line in cleartext.
    pub store_command: bool,
    /// Send what messages hold to this user's dashboards, and nowhere else.
    pub live_content: bool,
    /// Who counts what is recorded.
    pub witness: Option<Arc<dyn Witness>>,
    /// Content over this many bytes stays out of receipts.
    pub store_limit: usize,
    /// Whether a pack is built when a session ends.
    pub auto_pack: bool,
    /// How long a session that grew goes without a checkpoint at most.
    pub checkpoint_every: Duration,
    /// Which sessions of the audit directory stay when one has ended; `None` keeps all.
    pub keep: Option<Keep>,
    /// When packs are closed.
    pub interval: PackInterval,
    /// How long a shutdown may take before the server is killed.
    pub shutdown_timeout: Duration,
    /// Status messages as JSON lines.
    pub json: bool,
    /// What a guard does about what the server offers.
    pub surface: SurfaceOptions,
}

impl Options {
    /// Whether what a rule would take out is in a text.
    fn is_redacted(&self, text: &str) -> bool {
        self.redact.as_ref().is_some_and(|rules| rules.touches(text))
    }

    /// Where a server is that has a URL; it is stored with arguments, unless something would have to be taken out of it.
    fn origin_of(&self, url: &str) -> Origin {
        Origin::of_url(url, self.store_args && !self.is_redacted(url))
    }

    /// What keeps of requests over HTTP no more than digests; with rules also of what it would keep with arguments.
    fn reducer(&self, key: &[u8; 32]) -> Reducer {
        Reducer::new(key, self.store_args && self.redact.is_none())
    }

    /// How names in arguments are resolved.
    fn resolver(&self) -> Dns {
        match (self.dns, self.profile) {
            (false, _) => Dns::Off,
            (true, Profile::Guard) => Dns::System,
            // The recorder judges, and must keep up with the traffic.
            (true, Profile::Audit) => Dns::system_beside(),
        }
    }
}

/// Runs one session and returns the proxy's exit code.
///
/// # Errors
/// Bad input, before the server is started: no or no such command, an audit directory that is a file, an unusable key.
pub fn run(options: &Options) -> Result<Exit, Failure> {
    run_with(options, None)
}

/// Runs one session between a client over stdio and a server over HTTP.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_bridged(options: &Options, upstream: &Upstream) -> Result<Exit, Failure> {
    run_with(options, Some(upstream))
}

/// A server that a bridge reaches over HTTP.
pub(crate) struct Upstream {
    /// How it is reached and spoken with.
    pub(crate) bridge: bridge::Config,
    /// Bytes of the log of exchanges.
    pub(crate) capture_size: u64,
}

/// What to do about a command that was not found: it may be a whole line in one word.
fn hint_for(program: &OsStr) -> String {
    let words: Vec<&str> = program.to_str().map(|text| text.split_whitespace().collect()).unwrap_or_default();
    if words.len() < 2 {
        return COMMAND_HINT.to_owned();
    }
    format!("the command is one word here; without quotes it is: assay mcp-proxy -- {}", words.join(" "))
}

fn run_with(options: &Options, upstream: Option<&Upstream>) -> Result<Exit, Failure> {
    let status = Status::new(options.json);
    sys::process::ignore_write_signals();
    sys::process::hear_signals();
    sys::process::keep_memory_private();
    let search = (!options.path.is_empty()).then(|| relay::child::search_path(&options.path));
    if upstream.is_none() {
        let program = options.command.first().ok_or_else(no_command)?;
        let found = match &search {
            Some(search) => relay::child::find_in(program, search),
            None => relay::child::find_command(program),
        };
        let hint = hint_for(program);
        found.map_err(|e| Failure::bad_input(e).hint(hint))?;
    }
    let rules = rules(options)?;
    let (dir, usable) = audit_dir(options, status)?;
    let signer = signer()?.map(Arc::new);
    let (events, inbox) = mpsc::channel();
    let watched = lifecycle::watch_signals(&events).map_err(|e| format!("cannot handle signals: {e}"));
    let session =
        record::new_session_id().map_err(|e| Failure::failed(format_args!("cannot get a random session id: {e}")))?;
    let started = (clock::mono_ns(), WallTime::now());
    // The server starts up while we do: nothing that could still be refused as bad input comes after this.
    let around = Around { search: search.as_deref(), without: hidden(signer.as_deref()) };
    let spawn = || Child::spawn_in(&options.command, around, Stderr::Piped, relay::Group::fitting());
    let waker = Arc::new(Waker::new());
    let spawned = match (watched, upstream) {
        (Err(why), _) => Err(why),
        (Ok(()), Some(upstream)) => {
            BridgeLog::make(options, &dir, session, upstream.capture_size, &waker).and_then(|(log, book)| {
                let served = Served::bridge(&upstream.bridge, book, status);
                let (served, pipes) = served.map_err(|e| format!("the bridge to the server cannot begin: {e}"))?;
                Ok((served, pipes, Some(log)))
            })
        }
        (Ok(()), None) => match spawn() {
            Err(e) if unrecorded::lacks_something(&e) => Err(e.to_string()),
            spawned => {
                spawned.map(|(child, pipes)| Ok((Served::Process(child), pipes, None))).map_err(spawn_failure)?
            }
        },
    };
    let upstream = upstream.map(|upstream| &upstream.bridge);
    let start = Start { options, upstream, dir: &dir, usable, session, started, status, waker, signer: signer.clone() };
    let (auto_pack, keep, live_content) = (options.auto_pack, options.keep, options.live_content);
    let keeping = Keeping {
        dir: dir.clone(),
        usable,
        signer,
        auto_pack,
        checkpoint_every: options.checkpoint_every,
        keep,
        live_content,
        status,
    };
    let begun = spawned.and_then(|(child, pipes, log)| {
        let child = Arc::new(child);
        begin(&start, keeping, events, rules, &child, (pipes, log)).inspect_err(|_| {
            start.forget();
            // It has heard nothing yet.
            let _ = child.signal_group(rustix::process::Signal::KILL);
            let _ = child.wait();
        })
    });
    let (mut session, recording) = match begun {
        Ok(begun) => begun,
        Err(why) if options.profile == Profile::Guard => return Ok(unrecorded::refuse(&why, Some(&inbox), status)),
        Err(why) if upstream.is_some() => return unrecorded::pass_bridged(upstream, &why, &inbox, status),
        Err(why) => return unrecorded::pass(&options.command, around, &why, Some(&inbox), status),
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

/// What a server does not get of our environment: an agent that signs for us would sign for it, too.
fn hidden(signer: Option<&Signer>) -> &'static [&'static str] {
    if signer.is_some_and(Signer::is_in_agent) { &["SSH_AUTH_SOCK", "SSH_AGENT_PID"] } else { &[] }
}

/// The policy that was asked for.
fn rules(options: &Options) -> Result<Option<Arc<Policy>>, Failure> {
    match &options.policy {
        Some(path) => Ok(Some(Arc::new(Policy::load_if_quiet(path).map_err(Failure::bad_input)?))),
        None if options.profile == Profile::Guard => Err(no_policy()),
        None => Ok(None),
    }
}

/// The process, its session, and the recorder last: that begins the session on disk.
fn begin(
    start: &Start<'_>,
    keeping: Keeping,
    events: Sender<Event>,
    rules: Option<Arc<Policy>>,
    child: &Arc<Served>,
    streams: (Pipes, Option<BridgeLog>),
) -> Result<(Session, Recording), String> {
    let process = Process::start(keeping, events)?;
    match start.begin(rules, child, streams, &process) {
        Ok((session, source)) => {
            let recording = process.record(source, start.waker.clone(), 10)?;
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
    let (named, _) = paths::named_audit_dir(&options.audit_dir).map_err(Failure::bad_input)?;
    let given = std::path::absolute(&named).unwrap_or(named);
    let reached = AuditDir::reach(&options.audit_dir);
    let may_be_the_repositorys =
        options.audit_dir == Path::new(DEFAULT_AUDIT_DIR) || paths::is_in_repository(&options.audit_dir);
    let dir = reached.as_ref().ok().cloned().unwrap_or_else(|| AuditDir::at(&given)).of_user();
    match reached.and_then(|dir| dir.create()) {
        Ok(()) => Ok((dir, true)),
        // The user named it, so it is the user's mistake. What blocks the default one may have come with a repository.
        Err(e @ PathError::NotADirectory(_)) if !may_be_the_repositorys => {
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
        Ok(signer) => {
            if signer.lacks_agent() {
                eprintln!(
                    "assay: warning: the key {} is in an ssh-agent, but SSH_AUTH_SOCK is not set: there are no checkpoints, \
                     and assay recover has to make the pack",
                    signer.id()
                );
            }
            Ok(Some(signer))
        }
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
