//! The server process: found, started without a shell in a group of its own, watched, and reliably ended.

mod lookup;

pub use lookup::{LookupError, Tried, Why, find_command, find_in, search_path};

use crate::sys::{fd, process};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Pipe buffer asked for on the server's stdin and stdout, in bytes. More is not faster, and what one user may hold in
/// pipes is limited (`pipe-user-pages-soft`, 64 MiB).
pub const PIPE_BYTES: usize = 256 * 1024;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It called `exit` with this code (0..=255).
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl Exit {
    /// The code a shell would report: the exit code, or 128 plus the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(255),
        }
    }
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No command was given.
    #[error("no command was given")]
    Empty,
    /// The command was not found, or cannot be executed.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The command was found, and starting it failed all the same.
    #[error("cannot start {path:?}: {source}")]
    Start {
        /// What was to be started.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What to do with the server's stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stderr {
    /// A pipe for [`super::relay_stderr`].
    Piped,
    /// The stderr of this process.
    Inherited,
}

/// What a server has around it that is not ours.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Variables, besides those that every program needs. They may be secrets.
    pub env: Vec<(OsString, OsString)>,
    /// Its directory.
    pub dir: Option<PathBuf>,
}

/// Variables that every program needs.
const NEEDED: [&str; 10] = ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"];

/// Our ends of the server's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Write end of its stdin, non-blocking.
    pub stdin: OwnedFd,
    /// Read end of its stdout.
    pub stdout: OwnedFd,
    /// Read end of its stderr, if piped.
    pub stderr: Option<OwnedFd>,
}

/// Which step of [`Child::terminate`] ended the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndStep {
    /// It ended by itself, at the latest after its stdin was closed.
    StdinClosed,
    /// `SIGTERM` to its group.
    Terminated,
    /// `SIGKILL` to its group.
    Killed,
    /// Not even `SIGKILL` (a process stuck in the kernel).
    Stuck,
}

/// What became of the processes that the server left in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupEnd {
    /// There were no such processes.
    Empty,
    /// They ended after `SIGTERM`.
    Terminated,
    /// They ended after `SIGKILL`.
    Killed,
    /// Some are still there.
    Left,
}

/// Which process group a server is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// One of its own.
    Own,
    /// Ours: our client made it for us and signals all of it, as it would for a server without us.
    Shared,
}

impl Group {
    /// [`Group::Shared`] if this process was started as the leader of a group, else [`Group::Own`]: never the group of
    /// our client itself.
    #[must_use]
    pub fn fitting() -> Self {
        if process::leads_a_group() { Self::Shared } else { Self::Own }
    }
}

/// A running (or ended, not yet released) server process.
///
/// It is reaped only in [`Child::end_group`] or on drop, so that its pid, and with it the group's id, cannot come to
/// name anything else while signals are sent to it.
#[derive(Debug)]
pub struct Child {
    inner: Mutex<std::process::Child>,
    pid: Pid,
    group: Group,
    exit: OnceLock<Exit>,
    path: PathBuf,
}

impl Child {
    /// Starts `command[0]` (looked up as [`find_command`] says) with the arguments after it.
    ///
    /// The child has its own process group unless that is shared with us, default signal dispositions, an empty signal
    /// mask, no descriptors of ours but the three pipes, and on Linux gets `SIGKILL` when the *thread* that called this
    /// ends: call it from one that lives as long as the session.
    pub fn spawn(command: &[OsString], stderr: Stderr, group: Group) -> Result<(Self, Pipes), SpawnError> {
        Self::spawn_in(command, Around::default(), stderr, group)
    }

    /// As [`Child::spawn`], in other surroundings.
    ///
    /// # Errors
    /// It was not found, or cannot be started.
    pub fn spawn_in(
        command: &[OsString],
        around: Around<'_>,
        stderr: Stderr,
        group: Group,
    ) -> Result<(Self, Pipes), SpawnError> {
        Self::start(prepared(command, around)?, stderr, group)
    }

    /// As [`Child::spawn`], in a group of its own, with its stderr piped, and with an environment that is not ours.
    ///
    /// # Errors
    /// It was not found, or cannot be started.
    pub fn spawn_clean(command: &[OsString], around: &Surroundings) -> Result<(Self, Pipes), SpawnError> {
        let search = around.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let (path, mut builder) = prepared(command, Around { search: search.as_deref(), ..Around::default() })?;
        builder.env_clear();
        builder.envs(NEEDED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        builder.envs(around.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &around.dir {
            builder.current_dir(dir);
        }
        Self::start((path, builder), Stderr::Piped, Group::Own)
    }

    fn start(
        (path, mut builder): (PathBuf, Command),
        stderr: Stderr,
        group: Group,
    ) -> Result<(Self, Pipes), SpawnError> {
        if group == Group::Own {
            builder.process_group(0);
        }
        builder.stdin(Stdio::piped()).stdout(Stdio::piped());
        builder.stderr(match stderr {
            Stderr::Piped => Stdio::piped(),
            Stderr::Inherited => Stdio::inherit(),
        });
        process::harden_child(&mut builder);
        let failed = |source| SpawnError::Start { path: path.clone(), source };
        let mut inner = builder.spawn().map_err(failed)?;
        let (stdin, stdout) = match (inner.stdin.take(), inner.stdout.take()) {
            (Some(stdin), Some(stdout)) => (OwnedFd::from(stdin), OwnedFd::from(stdout)),
            _ => return Err(failed(io::Error::other("the pipes were not made"))),
        };
        let stderr = inner.stderr.take().map(OwnedFd::from);
        // Larger pipes are a favour, not a need.
        fd::grow_pipe(&stdin, PIPE_BYTES);
        fd::grow_pipe(&stdout, PIPE_BYTES);
        fd::set_nonblocking(&stdin).map_err(failed)?;
        let pid = Pid::from_child(&inner);
        let child = Self { inner: Mutex::new(inner), pid, group, exit: OnceLock::new(), path: path.clone() };
        Ok((child, Pipes { stdin, stdout, stderr }))
    }

    /// Process id, and id of its process group.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The file that was executed.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Blocks until the process has ended. Any number of threads may wait, again and again.
    pub fn wait(&self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)? {
                return Ok(exit);
            }
        }
    }

    /// How the process ended, if it has.
    pub fn try_wait(&self) -> io::Result<Option<Exit>> {
        self.look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG)
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.try_wait(), Ok(Some(_)))
    }

    /// As [`Child::wait`], for at most `limit`.
    pub fn wait_timeout(&self, limit: Duration) -> io::Result<Option<Exit>> {
        poll_until(limit, || self.try_wait().transpose()).transpose()
    }

    fn look(&self, options: WaitIdOptions) -> io::Result<Option<Exit>> {
        loop {
            if let Some(&exit) = self.exit.get() {
                return Ok(Some(exit));
            }
            match waitid(WaitId::Pid(self.pid), options) {
                Ok(None) => return Ok(None),
                Ok(Some(status)) => {
                    let exit = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Exit::Code(code & 0xff),
                        (None, Some(signal)) => Exit::Signal(signal),
                        (None, None) => continue,
                    };
                    return Ok(Some(*self.exit.get_or_init(|| exit)));
                }
                Err(Errno::INTR) => {}
                // It was reaped elsewhere: the thread that did so has stored how it ended.
                Err(e) => {
                    return self.exit.get().map(|&exit| Some(exit)).ok_or_else(|| e.into());
                }
            }
        }
    }

    /// Sends a signal to every process in the server's group, but not to this one. Quietly nothing if none is left.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        let result = match self.group {
            Group::Own => kill_process_group(self.pid, signal),
            Group::Shared => self.signal_members(signal),
        };
        match result {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends any signal to the server's process alone, as its parent would.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        process::send(self.pid(), signal)
    }

    fn signal_members(&self, signal: Signal) -> Result<(), Errno> {
        let ours = rustix::process::getpgrp().as_raw_nonzero().get().unsigned_abs();
        let members = process::group_members(ours).unwrap_or_else(|| vec![self.pid()]);
        for pid in members.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            match rustix::process::kill_process(pid, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Whether any process of the group but this one still runs; zombies do not count (Linux; elsewhere they may).
    pub fn group_alive(&self) -> bool {
        if self.group == Group::Shared {
            let ours = rustix::process::getpgrp().as_raw_nonzero().get().unsigned_abs();
            return process::group_has_running(ours).unwrap_or(false);
        }
        match test_kill_process_group(self.pid) {
            Err(Errno::SRCH) => false,
            _ => process::group_has_running(self.pid()).unwrap_or(true),
        }
    }

    /// Which group the server is in.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Ends the server: `close_stdin`, wait `after_stdin`, `SIGTERM` to the group, wait `after_term`, `SIGKILL` to the
    /// group. Follow with [`Child::end_group`]. Returns the step that ended it, and how it ended.
    pub fn terminate(
        &self,
        after_stdin: Duration,
        after_term: Duration,
        close_stdin: impl FnOnce(),
    ) -> io::Result<(EndStep, Option<Exit>)> {
        close_stdin();
        if let Some(exit) = self.wait_timeout(after_stdin)? {
            return Ok((EndStep::StdinClosed, Some(exit)));
        }
        self.signal_group(Signal::TERM)?;
        if let Some(exit) = self.wait_timeout(after_term)? {
            return Ok((EndStep::Terminated, Some(exit)));
        }
        self.signal_group(Signal::KILL)?;
        match self.wait_timeout(Duration::from_secs(2))? {
            Some(exit) => Ok((EndStep::Killed, Some(exit))),
            None => Ok((EndStep::Stuck, None)),
        }
    }

    /// After the server has ended: ends what it left in its group (`SIGTERM`, `grace`, `SIGKILL`) and checks that
    /// nothing is left. Blocks until the server has ended.
    pub fn end_group(&self, grace: Duration) -> io::Result<GroupEnd> {
        self.wait()?;
        self.reap()?;
        // A pid is not given out again while a group bears its number: members found now are the server's own.
        if !self.group_alive() {
            return Ok(GroupEnd::Empty);
        }
        self.signal_group(Signal::TERM)?;
        if self.group_ends_within(grace) {
            return Ok(GroupEnd::Terminated);
        }
        // The group has had members without a break since its leader was reaped, so its id is still its own.
        self.signal_group(Signal::KILL)?;
        Ok(if self.group_ends_within(Duration::from_secs(2)) { GroupEnd::Killed } else { GroupEnd::Left })
    }

    fn group_ends_within(&self, limit: Duration) -> bool {
        poll_until(limit, || (!self.group_alive()).then_some(())).is_some()
    }

    fn reap(&self) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let status = inner.wait()?;
        self.exit.get_or_init(|| status.into());
        Ok(())
    }
}

/// What is different for a child than for us.
#[derive(Debug, Clone, Copy, Default)]
pub struct Around<'a> {
    /// The `PATH` that it is looked up in, and has.
    pub search: Option<&'a OsStr>,
    /// Variables that it does not have.
    pub without: &'a [&'a str],
}

/// The file that a command names, and how it is started.
fn prepared(command: &[OsString], around: Around<'_>) -> Result<(PathBuf, Command), SpawnError> {
    let Around { search, without } = around;
    let (program, args) = command.split_first().ok_or(SpawnError::Empty)?;
    let path = search.map_or_else(|| find_command(program), |search| find_in(program, search))?;
    let mut builder = Command::new(&path);
    builder.arg0(program).args(args);
    if let Some(search) = search {
        builder.env("PATH", search);
    }
    for name in without {
        builder.env_remove(name);
    }
    Ok((path, builder))
}

/// A server on our own streams and in our group, with nothing in between.
#[derive(Debug)]
pub struct Alone(std::process::Child);

impl Alone {
    /// Starts `command[0]` (looked up as [`find_command`] says) with the arguments after it.
    ///
    /// # Errors
    /// It was not found, or cannot be started.
    pub fn start(command: &[OsString], around: Around<'_>) -> Result<Self, SpawnError> {
        Self::spawn(prepared(command, around)?)
    }

    /// The same with one more variable in its environment.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(command: &[OsString], (name, value): (&str, &OsStr)) -> Result<Self, SpawnError> {
        let (path, mut builder) = prepared(command, Around::default())?;
        builder.env(name, value);
        Self::spawn((path, builder))
    }

    fn spawn((path, mut builder): (PathBuf, Command)) -> Result<Self, SpawnError> {
        process::harden_child(&mut builder);
        builder.spawn().map(Self).map_err(|source| SpawnError::Start { path, source })
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end and leaves it to be asked for: until [`Self::exit`], nothing else has its process id.
    ///
    /// # Errors
    /// An I/O error.
    pub fn await_end(&self) -> io::Result<()> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(Pid::from_child(&self.0)), options) {
                Err(Errno::INTR) => {}
                other => return other.map(drop).map_err(io::Error::from),
            }
        }
    }

    /// How it ended; waits for that.
    ///
    /// # Errors
    /// An I/O error.
    pub fn exit(&mut self) -> io::Result<Exit> {
        self.0.wait().map(Exit::from)
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// An I/O error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        process::send(self.0.id(), signal)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = inner.try_wait();
    }
}

/// Asks `done` again and again, at growing intervals up to 5 ms, until it answers or `limit` has passed.
fn poll_until<T>(limit: Duration, mut done: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(answer) = done() {
            return Some(answer);
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}
