//! File descriptors: the standard streams, pipes, and readiness.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Which standard stream to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdio {
    /// Descriptor 0, stdin.
    In,
    /// Descriptor 1, stdout.
    Out,
    /// Descriptor 2, stderr.
    Err,
}

/// Opens `/dev/null`.
pub fn null() -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    Ok(open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Puts `null` in the place of stdin and stdout, of which there are copies: nothing this process prints by accident can
/// reach the peer, and closing a copy really closes the stream.
pub fn blank_stdio(null: &OwnedFd) {
    // Both numbers are in use, and so nothing is missing to use them again.
    let _ = rustix::stdio::dup2_stdin(null);
    let _ = rustix::stdio::dup2_stdout(null);
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

/// The process that made a pair of Unix sockets, or connected this one; `None` if that cannot be told, as for other
/// sockets and for processes that are not seen from here.
#[cfg(target_os = "linux")]
pub fn peer_process(fd: BorrowedFd<'_>) -> Option<u32> {
    use std::os::fd::AsRawFd as _;
    let mut told = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: `told` is a `ucred` of `len` bytes, which is what this option writes.
    let done = unsafe {
        let to = std::ptr::from_mut(&mut told).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
    };
    u32::try_from(told.pid).ok().filter(|pid| done == 0 && *pid > 0)
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
    nonblocking(fd, true)
}

/// Clears `O_NONBLOCK`; likewise only for descriptors of ours.
pub fn set_blocking(fd: impl AsFd) -> io::Result<()> {
    nonblocking(fd, false)
}

fn nonblocking(fd: impl AsFd, on: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let fd = fd.as_fd();
    let mut flags = fcntl_getfl(fd)?;
    flags.set(OFlags::NONBLOCK, on);
    Ok(fcntl_setfl(fd, flags)?)
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ready {
    /// `fd` can be used as wanted (hang-up and errors count as ready: the call that follows reports them).
    pub fd: bool,
    /// `stop` has bytes or is closed.
    pub stop: bool,
    /// The third descriptor of [`wait_more`] has bytes or is closed.
    pub wake: bool,
    /// The peer of the fourth descriptor of [`wait_more`] has gone.
    pub gone: bool,
}

/// What else ends a wait of [`wait_more`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Also<'a> {
    /// Becomes readable when waiting is to end.
    pub stop: Option<BorrowedFd<'a>>,
    /// Becomes readable when there is something else to do.
    pub wake: Option<BorrowedFd<'a>>,
    /// Nothing is expected of its peer, except that it may go away.
    pub peer: Option<Peer<'a>>,
}

/// A descriptor whose other end is watched.
#[derive(Debug, Clone, Copy)]
pub enum Peer<'a> {
    /// Another process writes to it; once that has gone, nothing more will come, whatever is still to be read.
    Writer(BorrowedFd<'a>),
    /// Somebody reads from it.
    Reader(BorrowedFd<'a>),
}

/// A hang-up of a writer that may have left bytes.
#[cfg(any(target_os = "linux", target_os = "android"))]
const HUNG_UP: PollFlags = PollFlags::RDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const HUNG_UP: PollFlags = PollFlags::empty();

/// Waits until `fd` is ready, `stop` becomes readable, or `timeout` (for ever if `None`) has passed.
pub fn wait_ready(
    fd: BorrowedFd<'_>,
    want: Want,
    stop: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    wait_more(fd, want, Also { stop, ..Also::default() }, timeout)
}

/// As [`wait_ready`], and ends for what is in `also`, too.
pub fn wait_more(fd: BorrowedFd<'_>, want: Want, also: Also<'_>, timeout: Option<Duration>) -> io::Result<Ready> {
    let flags = match want {
        Want::Read => PollFlags::IN,
        Want::Write => PollFlags::OUT,
    };
    let (peer, peer_flags) = match also.peer {
        Some(Peer::Writer(fd)) => (Some(fd), HUNG_UP),
        Some(Peer::Reader(fd)) => (Some(fd), PollFlags::empty()),
        None => (None, PollFlags::empty()),
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
        // The array has one place for each.
        let place = |other: Option<BorrowedFd<'_>>, at: &mut usize| {
            let here = *at;
            *at += usize::from(other.is_some());
            other.map(|_| here)
        };
        let mut used = 1;
        let at = [place(also.stop, &mut used), place(also.wake, &mut used), place(peer, &mut used)];
        let others = [(also.stop, PollFlags::IN), (also.wake, PollFlags::IN), (peer, peer_flags)];
        let mut fds = [fd; 4].map(|fd| PollFd::from_borrowed_fd(fd, flags));
        for (at, (other, flags)) in at.iter().zip(others) {
            if let (Some(at), Some(other)) = (at, other) {
                fds[*at] = PollFd::from_borrowed_fd(other, flags);
            }
        }
        match poll(&mut fds[..used], limit.as_ref()) {
            Ok(_) => {
                let seen = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
                return Ok(Ready { fd: seen(Some(0)), stop: seen(at[0]), wake: seen(at[1]), gone: seen(at[2]) });
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether no process can write to what this reads from any more, whatever is still to be read.
#[must_use]
pub fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let also = Also { peer: Some(Peer::Writer(fd)), ..Also::default() };
    wait_more(fd, Want::Read, also, Some(Duration::ZERO)).is_ok_and(|ready| ready.gone)
}

/// A stream with a foreign reader, written to without ever waiting for it.
///
/// What the descriptor shares with others is left as it is: `O_NONBLOCK` would be theirs, too.
#[derive(Debug)]
pub struct Sink {
    fd: OwnedFd,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is non-blocking, or never waits.
    Plain,
    /// For a socket each call is made non-blocking.
    Send,
    /// Written only when it is ready, and so little that it is taken at once.
    Pieces,
}

/// A pipe that is ready takes this much without waiting (`PIPE_BUF`).
const PIECE: usize = 4096;

impl Sink {
    /// Takes the descriptor over. A pipe is opened once more, where the system allows it: the second opening is ours
    /// alone and does not wait.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
        let kind = fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let waits = !fcntl_getfl(&fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        match kind {
            Ok(FileType::Socket) => Self { fd, how: How::Send },
            Ok(FileType::Fifo) if waits => match open_again(&fd) {
                Some(fd) => Self { fd, how: How::Plain },
                None => Self { fd, how: How::Pieces },
            },
            Ok(FileType::CharacterDevice) if waits && std::io::IsTerminal::is_terminal(&fd.as_fd()) => {
                Self { fd, how: How::Pieces }
            }
            _ => Self { fd, how: How::Plain },
        }
    }

    /// Writes what is taken at once; [`Errno::AGAIN`] if nothing is.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        use rustix::net::{SendFlags, send};
        match self.how {
            How::Plain => rustix::io::write(&self.fd, bytes),
            How::Send => send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            How::Pieces => match wait_ready(self.as_fd(), Want::Write, None, Some(Duration::ZERO)) {
                Ok(ready) if ready.fd => rustix::io::write(&self.fd, &bytes[..bytes.len().min(PIECE)]),
                Ok(_) => Err(Errno::AGAIN),
                Err(e) => Err(e.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
            },
        }
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(target_os = "linux")]
fn open_again(fd: &OwnedFd) -> Option<OwnedFd> {
    use rustix::fd::AsRawFd;
    use rustix::fs::{Mode, OFlags, open};
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn open_again(_fd: &OwnedFd) -> Option<OwnedFd> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn who_made_a_pair_of_sockets_is_told_and_of_nothing_else() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_process(ours.as_fd()), Some(std::process::id()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(peer_process(listener.as_fd()), None);
        assert_eq!(peer_process(pipe().unwrap().0.as_fd()), None);
    }

    #[test]
    fn readiness_of_a_pipe() {
        let (read, write) = pipe().unwrap();
        let now = Some(Duration::ZERO);
        let ready = wait_ready(read.as_fd(), Want::Read, None, now).unwrap();
        assert_eq!(ready, Ready::default());
        rustix::io::write(&write, b"x").unwrap();
        let ready = wait_ready(write.as_fd(), Want::Write, Some(read.as_fd()), None).unwrap();
        assert_eq!(ready, Ready { fd: true, stop: true, ..Ready::default() });
        drop(write);
        assert!(wait_ready(read.as_fd(), Want::Read, None, None).unwrap().fd);
    }

    #[test]
    fn a_sink_never_waits_for_its_reader_and_leaves_the_readers_flags_alone() {
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        for (read, write) in [pipe().unwrap(), (OwnedFd::from(a), OwnedFd::from(b))] {
            let shared = rustix::io::dup(&write).unwrap();
            let sink = Sink::new(write);
            let mut written = 0;
            let end = loop {
                match sink.write(&vec![7; 100_000]) {
                    Ok(n) => written += n,
                    Err(e) => break e,
                }
            };
            assert_eq!(end, Errno::AGAIN);
            assert!(written >= 4096);
            assert!(!rustix::fs::fcntl_getfl(&shared).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
            drop((read, shared));
            assert!(matches!(sink.write(b"x"), Err(Errno::PIPE | Errno::CONNRESET)));
        }
    }

    #[test]
    fn whoever_goes_away_is_noticed_while_nothing_is_expected_of_them() {
        let (idle, _keep) = pipe().unwrap();
        let (read, write) = pipe().unwrap();
        let also = Also { peer: Some(Peer::Reader(write.as_fd())), ..Also::default() };
        let now = Some(Duration::ZERO);
        assert!(!wait_more(idle.as_fd(), Want::Read, also, now).unwrap().gone);
        drop(read);
        assert!(wait_more(idle.as_fd(), Want::Read, also, None).unwrap().gone);
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
