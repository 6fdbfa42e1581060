//! Whether the client is still there, where its pipes do not say it: another process may hold our stdin open.
//!
//! The death of our parent alone says little: a wrapper may have started us in the background and ended, and the client
//! that started the wrapper goes on. So those above our parent are asked whether one of them holds the other end of our stdin.

#[cfg(target_os = "linux")]
mod linux {
    use rustix::{
        event::{PollFd, PollFlags, poll},
        fd::OwnedFd,
        process::{Pid, PidfdFlags, getppid, pidfd_open},
    };
    use std::{fs, io, os::unix::fs::MetadataExt as _, thread};

    /// Most processes above us that are looked at.
    const GENERATIONS: usize = 16;

    /// Calls `gone` once when the process that started us has ended and nobody above it holds our stdin. Call before stdin is
    /// taken.
    ///
    /// # Errors
    /// No thread could be made.
    pub(in crate::proxy) fn watch(gone: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let Some((parent, pidfd)) = parent() else { return Ok(()) };
        // The other end of a pipe has the same inode; of a socket it has not, and nobody above can be asked.
        let pipe = fs::metadata("/proc/self/fd/0").ok().map(|m| format!("pipe:[{}]", m.ino()));
        thread::Builder::new().name("assay-parent".into()).spawn(move || {
            let above = above(parent);
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
            let held = |pid: &(u32, u64)| {
                crate::sys::process::start_time(pid.0) == Some(pid.1)
                    && pipe.as_ref().is_some_and(|pipe| holds(pid.0, pipe))
            };
            if !above.iter().any(held) {
                gone();
            }
        })?;
        Ok(())
    }

    /// Our parent, if it is one whose end means something.
    fn parent() -> Option<(Pid, OwnedFd)> {
        let parent = getppid().filter(|pid| *pid != Pid::INIT)?;
        let pidfd = pidfd_open(parent, PidfdFlags::empty()).ok()?;
        // It may have ended in between, and its number may be another's.
        (getppid() == Some(parent)).then_some((parent, pidfd))
    }

    /// The processes above `pid`, with their start times.
    fn above(pid: Pid) -> Vec<(u32, u64)> {
        let mut all = Vec::new();
        let mut pid = pid.as_raw_nonzero().get().unsigned_abs();
        while all.len() < GENERATIONS {
            let Some(above) = parent_of(pid).filter(|above| *above > 1) else { break };
            let Some(started) = crate::sys::process::start_time(above) else { break };
            all.push((above, started));
            pid = above;
        }
        all
    }

    fn parent_of(pid: u32) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    }

    /// Whether a process has this file open. One that cannot be asked belongs to somebody else, and has not started us.
    fn holds(pid: u32, file: &str) -> bool {
        let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == file))
    }
}

#[cfg(target_os = "linux")]
pub(super) use linux::watch;

/// Elsewhere only the pipes tell.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub(super) fn watch(_gone: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    Ok(())
}
