//! A client's socket, which is watched while somebody else reads from it and writes to it.

use crate::sys::fd::has_hung_up;
use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// TCP or Unix.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that several may hold; one of them reads and writes.
#[derive(Clone)]
pub(super) struct Socket(Arc<Stream>);

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self(Arc::new(Stream::Tcp(stream)))
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self(Arc::new(Stream::Unix(stream)))
    }
}

impl Socket {
    /// Whether the other side has closed its end, whatever is still to be read.
    pub(super) fn has_hung_up(&self) -> bool {
        has_hung_up(self.as_fd())
    }

    fn poll_io<T>(
        mut ready: impl FnMut() -> Poll<io::Result<()>>,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(ready())?;
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &*self.0 {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = match &*self.0 {
            Stream::Tcp(s) => Self::poll_io(|| s.poll_read_ready(cx), || s.try_read(buf.initialize_unfilled())),
            Stream::Unix(s) => Self::poll_io(|| s.poll_read_ready(cx), || s.try_read(buf.initialize_unfilled())),
        };
        let read = ready!(read)?;
        buf.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &*self.0 {
            Stream::Tcp(s) => Self::poll_io(|| s.poll_write_ready(cx), || s.try_write(buf)),
            Stream::Unix(s) => Self::poll_io(|| s.poll_write_ready(cx), || s.try_write(buf)),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &*self.0 {
            Stream::Tcp(s) => Self::poll_io(|| s.poll_write_ready(cx), || s.try_write_vectored(bufs)),
            Stream::Unix(s) => Self::poll_io(|| s.poll_write_ready(cx), || s.try_write_vectored(bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Write).map_err(Into::into))
    }
}
