//! Whether the client is still there, where its pipes do not say it: another process may hold our stdin open.
//!
//! The death of our parent alone says little: a wrapper may have started us in the background and ended, and the client
//! that started the wrapper continues. Our stdin shows which process is the client: of a pipe, it holds the end that is
//! written to, which a wrapper does not; of a pair of sockets, it has made them. Where neither tells, it stays open.

#[cfg(target_os = "linux")]
mod linux {
    use rustix::{
        event::{PollFd, PollFlags, poll},
        fd::OwnedFd,
        process::{Pid, PidfdFlags, getppid, pidfd_open},
        time::Timespec,
    };
    use std::{
        fs, io,
        os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
        path::{Path, PathBuf},
        thread,
    };

    /// Most processes above us that are looked at.
    const GENERATIONS: usize = 16;
    /// A parent may open its end after it has started us (a fifo): pauses before it is looked at again, in
    /// milliseconds.
    const LOOKS: [i64; 5] = [50, 200, 1_000, 5_000, 30_000];

    /// A process, with its start time, because its number may be reused.
    type Process = (u32, u64);

    /// What tells who the client is.
    enum Stdin {
        /// A pipe or fifo, by its name in `/proc`.
        Pipe(PathBuf),
        /// A socket, and who has made it.
        Socket(Option<Process>),
    }

    /// Calls `gone` once when the process that started us has ended, unless it is known that the client continues.
    /// The argument says whether that process was the client; `false` if that is not known. Call before stdin is taken.
    ///
    /// # Errors
    /// No thread could be made.
    pub(in crate::proxy) fn watch(gone: impl FnOnce(bool) + Send + 'static) -> io::Result<()> {
        // A file ends, and a terminal hangs up.
        let (Some((parent, pidfd)), Some(stdin)) = (parent(), stdin()) else { return Ok(()) };
        let others = match &stdin {
            Stdin::Pipe(_) => above(parent),
            Stdin::Socket(maker) => maker.iter().copied().collect(),
        };
        let mut was_client = is_client(parent, &stdin);
        thread::Builder::new().name("assay-parent".into()).spawn(move || {
            let mut looks = LOOKS.iter();
            while !has_ended(&pidfd, looks.next()) {
                let seen = is_client(parent, &stdin);
                // One that has ended holds nothing.
                if has_ended(&pidfd, Some(&0)) {
                    break;
                }
                was_client = seen;
            }
            if !was_client && others.into_iter().any(|other| is_client(other, &stdin)) {
                tracing::info!("what started the proxy has ended; the client goes on");
            } else {
                gone(was_client);
            }
        })?;
        Ok(())
    }

    /// Waits for a process to end, for at most this many milliseconds.
    fn has_ended(pidfd: &OwnedFd, limit: Option<&i64>) -> bool {
        let limit = limit.map(|ms| Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 });
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        // An interrupted wait is one look more.
        poll(&mut fds, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn stdin() -> Option<Stdin> {
        let kind = fs::metadata("/proc/self/fd/0").ok()?.file_type();
        if kind.is_fifo() {
            return fs::read_link("/proc/self/fd/0").ok().map(Stdin::Pipe);
        }
        let maker = || crate::sys::fd::peer_process(rustix::stdio::stdin()).and_then(process);
        kind.is_socket().then(|| Stdin::Socket(maker()))
    }

    fn process(pid: u32) -> Option<Process> {
        crate::sys::process::start_time(pid).map(|started| (pid, started))
    }

    /// Our parent, if it is a process whose end matters.
    fn parent() -> Option<(Process, OwnedFd)> {
        let parent = getppid().filter(|pid| *pid != Pid::INIT)?;
        let pidfd = pidfd_open(parent, PidfdFlags::empty()).ok()?;
        let process = process(parent.as_raw_nonzero().get().unsigned_abs())?;
        // It may have ended in between, and its number may be reused.
        (getppid() == Some(parent)).then_some((process, pidfd))
    }

    /// The processes above one.
    fn above((mut pid, _): Process) -> Vec<Process> {
        let mut all = Vec::new();
        while all.len() < GENERATIONS {
            let Some(above) = parent_of(pid).filter(|above| *above > 1).and_then(process) else { break };
            all.push(above);
            pid = above.0;
        }
        all
    }

    fn parent_of(pid: u32) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    }

    fn is_client(who: Process, stdin: &Stdin) -> bool {
        match stdin {
            Stdin::Socket(maker) => *maker == Some(who) && process(who.0) == Some(who),
            Stdin::Pipe(pipe) => process(who.0) == Some(who) && writes(who.0, pipe),
        }
    }

    /// Whether a process can write to what we read. One that cannot be inspected belongs to another user, and has not
    /// started us.
    fn writes(pid: u32, pipe: &Path) -> bool {
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let is_open_to_write = |fd: &Path| fs::symlink_metadata(fd).is_ok_and(|m| m.permissions().mode() & 0o200 != 0);
        let mut fds = fds.flatten().map(|fd| fd.path());
        fds.any(|fd| fs::read_link(&fd).is_ok_and(|to| to == pipe) && is_open_to_write(&fd))
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::watch;

/// Elsewhere only the pipes tell.
///
/// # Errors
/// It never fails.
#[cfg(not(target_os = "linux"))]
pub(super) fn watch(_gone: impl FnOnce(bool) + Send + 'static) -> std::io::Result<()> {
    Ok(())
}
