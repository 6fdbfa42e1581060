//! Who is at the other end of a Unix socket.

use rustix::fd::AsFd;
use std::io;

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
