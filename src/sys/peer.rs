//! Unix sockets: connecting to one, and who is at its other end.

use rustix::{
    fd::AsFd,
    io::FdFlags,
    net::{AddressFamily, SocketAddrUnix, SocketType},
};
use std::{io, os::unix::net::UnixStream, path::Path};

/// Connects without waiting for a listener that does not answer: `WouldBlock` if its queue is full. The
/// stream blocks.
///
/// # Errors
/// The system's error.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream: UnixStream = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?.into();
    rustix::io::fcntl_setfd(&stream, FdFlags::CLOEXEC)?;
    stream.set_nonblocking(true)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Effective user id of the process that connected, as the kernel noted it at that moment.
///
/// # Errors
/// An I/O error; not a connected Unix socket.
#[cfg(target_os = "linux")]
pub fn peer_uid(socket: impl AsFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid.as_raw())
}

/// Effective user id of the process that connected, as the kernel noted it at that moment.
///
/// # Errors
/// An I/O error; not a connected Unix socket.
#[cfg(not(target_os = "linux"))]
pub fn peer_uid(socket: impl AsFd) -> io::Result<u32> {
    use std::os::fd::AsRawFd as _;
    let (mut uid, mut gid) = (0, 0);
    // SAFETY: writes two integers that live until the call returns.
    if unsafe { libc::getpeereid(socket.as_fd().as_raw_fd(), &raw mut uid, &raw mut gid) } == 0 {
        Ok(uid)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_user() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(peer_uid(&a).unwrap(), rustix::process::geteuid().as_raw());
        assert!(peer_uid(tempfile::tempfile().unwrap()).is_err());
    }
}
