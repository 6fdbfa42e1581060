//! File descriptors: the standard streams, pipes, and readiness.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Which standard stream to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// Descriptor 0.
    In,
    /// Descriptor 1.
    Out,
    /// Descriptor 2.
    Err,
}

/// Moves a standard stream to a descriptor of its own (close-on-exec) and puts `/dev/null` in its place: nothing this
/// process prints by accident can reach the peer, and closing the returned descriptor really closes the stream.
pub fn take_stdio(which: Stdio) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    use rustix::stdio;
    let from = match which {
        Stdio::In => stdio::stdin(),
        Stdio::Out => stdio::stdout(),
        Stdio::Err => stdio::stderr(),
    };
    let taken = rustix::io::fcntl_dupfd_cloexec(from, 3)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    match which {
        Stdio::In => stdio::dup2_stdin(&null)?,
        Stdio::Out => stdio::dup2_stdout(&null)?,
        Stdio::Err => stdio::dup2_stderr(&null)?,
    }
    Ok(taken)
}

/// A copy of a standard stream, close-on-exec; the original stays in place.
pub fn copy_stdio(which: Stdio) -> io::Result<OwnedFd> {
    use rustix::stdio;
    let from = match which {
        Stdio::In => stdio::stdin(),
        Stdio::Out => stdio::stdout(),
        Stdio::Err => stdio::stderr(),
    };
    Ok(rustix::io::fcntl_dupfd_cloexec(from, 3)?)
}

/// Asks for a pipe buffer of at least `bytes`; returns the size in force, or `None` if `fd` is not a pipe, the limit of
/// the user is reached, or the system has no such call. Never shrinks.
#[cfg(target_os = "linux")]
pub fn grow_pipe(fd: impl AsFd, bytes: usize) -> Option<usize> {
    let fd = fd.as_fd();
    let now = rustix::pipe::fcntl_getpipe_size(fd).ok()?;
    if now >= bytes {
        return Some(now);
    }
    rustix::pipe::fcntl_setpipe_size(fd, bytes).ok()
}

/// Asks for a pipe buffer of at least `bytes`: this system has no such call.
#[cfg(not(target_os = "linux"))]
pub fn grow_pipe(_fd: impl AsFd, _bytes: usize) -> Option<usize> {
    None
}

/// A pipe, both ends close-on-exec: (read end, write end).
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(not(target_vendor = "apple"))]
    let ends = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    #[cfg(target_vendor = "apple")]
    let ends = {
        let ends = rustix::pipe::pipe()?;
        for end in [&ends.0, &ends.1] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        ends
    };
    Ok(ends)
}

/// Sets `O_NONBLOCK`. Only for descriptors whose open file description is ours alone, such as our end of a pipe.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let fd = fd.as_fd();
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Bytes, end of file or an error to read.
    Read,
    /// Room to write, or an error.
    Write,
}

/// Which of the two descriptors of [`wait_ready`] is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// `fd` can be used as wanted (hang-up and errors count as ready: the call that follows reports them).
    pub fd: bool,
    /// `stop` has bytes or is closed.
    pub stop: bool,
    /// The third descriptor of [`wait_three`] has bytes or is closed.
    pub wake: bool,
}

/// Waits until `fd` is ready, `stop` becomes readable, or `timeout` (for ever if `None`) has passed.
pub fn wait_ready(
    fd: BorrowedFd<'_>,
    want: Want,
    stop: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    wait_three(fd, want, stop, None, timeout)
}

/// As [`wait_ready`], and also ends when `wake` becomes readable.
pub fn wait_three(
    fd: BorrowedFd<'_>,
    want: Want,
    stop: Option<BorrowedFd<'_>>,
    wake: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let flags = match want {
        Want::Read => PollFlags::IN,
        Want::Write => PollFlags::OUT,
    };
    let end = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let limit = end.map(|end| {
            let left = end.saturating_duration_since(Instant::now());
            rustix::time::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let mut fds = [
            PollFd::from_borrowed_fd(fd, flags),
            PollFd::from_borrowed_fd(stop.or(wake).unwrap_or(fd), PollFlags::IN),
            PollFd::from_borrowed_fd(wake.unwrap_or(fd), PollFlags::IN),
        ];
        let used = 1 + usize::from(stop.is_some()) + usize::from(wake.is_some());
        match poll(&mut fds[..used], limit.as_ref()) {
            Ok(_) => {
                let seen = |at: usize| at < used && !fds[at].revents().is_empty();
                let at_wake = if stop.is_some() { 2 } else { 1 };
                return Ok(Ready {
                    fd: seen(0),
                    stop: stop.is_some() && seen(1),
                    wake: wake.is_some() && seen(at_wake),
                });
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_of_a_pipe() {
        let (read, write) = pipe().unwrap();
        let now = Some(Duration::ZERO);
        let ready = wait_ready(read.as_fd(), Want::Read, None, now).unwrap();
        assert_eq!(ready, Ready { fd: false, stop: false, wake: false });
        rustix::io::write(&write, b"x").unwrap();
        let ready = wait_ready(write.as_fd(), Want::Write, Some(read.as_fd()), None).unwrap();
        assert_eq!(ready, Ready { fd: true, stop: true, wake: false });
        drop(write);
        assert!(wait_ready(read.as_fd(), Want::Read, None, None).unwrap().fd);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn pipes_grow_and_never_shrink() {
        let (read, _write) = pipe().unwrap();
        let before = grow_pipe(&read, 1).unwrap();
        assert!(before >= 4096);
        assert!(grow_pipe(&read, before * 2).is_none_or(|size| size >= before * 2));
        assert!(grow_pipe(&read, 1).unwrap() >= before);
        assert_eq!(grow_pipe(tempfile::tempfile().unwrap(), 1), None);
    }
}
