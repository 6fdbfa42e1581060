//! Lines to a server and from it.

use super::ProbeError;
use crate::{
    bridge::{Bridge, BridgeHandle, Config},
    lines::MAX_LINE,
    relay::child::{Child, Group, Stderr},
    sys::fd,
};
use rustix::fd::OwnedFd;
use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// Lines that wait to be read.
const WAITING: usize = 64;
/// How long a server may take to end when its input is closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes of what a server writes to standard error that are kept.
const COMPLAINTS: usize = 4 << 10;

/// What is asked.
pub enum Server {
    /// A command, with its arguments.
    Command(Vec<OsString>),
    /// A URL.
    Url(Box<Config>),
}

enum Peer {
    Process(Child),
    Bridge(BridgeHandle),
}

/// A conversation with a server, which ends with it.
pub struct Wire {
    peer: Peer,
    to: Option<File>,
    from: Receiver<Vec<u8>>,
    /// The end of what it wrote to standard error, when that is closed.
    complaints: Option<Receiver<Vec<u8>>>,
}

impl Wire {
    /// Starts the server, or connects with it. What a server that is started writes to standard error goes to ours, or is
    /// [kept](Self::complaints): many write at length about a question that they do not know.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn open(server: Server, stderr: Stderr) -> Result<Self, ProbeError> {
        let (peer, to, from, complaints) = match server {
            Server::Command(command) => {
                let (child, pipes) = Child::spawn(&command, stderr, Group::Own)?;
                let complaints = pipes.stderr.map(end_of).transpose()?;
                (Peer::Process(child), pipes.stdin, pipes.stdout, complaints)
            }
            Server::Url(config) => {
                let (reader, to) = fd::pipe()?;
                let (from, writer) = fd::pipe()?;
                (Peer::Bridge(Bridge::start(*config, reader, writer)?), to, from, None)
            }
        };
        fd::set_blocking(&to)?;
        Ok(Self { peer, to: Some(to.into()), from: lines_of(from)?, complaints })
    }

    /// Ends the conversation; the end of what the server wrote to standard error, as far as it has closed that.
    #[must_use]
    pub fn complaints(mut self) -> Vec<u8> {
        let complaints = self.complaints.take();
        drop(self);
        complaints.and_then(|end| end.recv_timeout(GRACE).ok()).unwrap_or_default()
    }

    /// Sends one message.
    ///
    /// # Errors
    /// The server is gone.
    pub fn send(&mut self, message: &str) -> io::Result<()> {
        let to = self.to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        to.write_all(format!("{message}\n").as_bytes())
    }

    /// The next line of the server; `None` if none came within `limit`.
    ///
    /// # Errors
    /// The server is gone.
    pub fn next(&self, limit: Duration) -> io::Result<Option<Vec<u8>>> {
        match self.from.recv_timeout(limit) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Why the server ended, if there is more to say than that it did.
    #[must_use]
    pub fn why_ended(&self) -> Option<String> {
        match &self.peer {
            Peer::Process(child) => {
                let exit = child.wait_timeout(Duration::from_millis(500)).ok()??;
                Some(format!("it ended with exit code {}", exit.shell_code()))
            }
            // It says so after it has closed its output.
            Peer::Bridge(bridge) => Some(bridge.wait().why),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.to.take());
        match &self.peer {
            Peer::Process(child) => {
                let _ = child.terminate(GRACE, GRACE, || ());
                let _ = child.end_group(GRACE);
            }
            Peer::Bridge(bridge) => {
                bridge.stop();
                let _ = bridge.wait();
            }
        }
    }
}

/// The last bytes of a stream, once it has ended.
fn end_of(from: OwnedFd) -> io::Result<Receiver<Vec<u8>>> {
    let (send, receive) = sync_channel(1);
    let read = move || {
        let (mut from, mut piece, mut end) = (File::from(from), [0; 8 << 10], Vec::new());
        while let Ok(n @ 1..) = from.read(&mut piece) {
            end.extend_from_slice(&piece[..n]);
            end.drain(..end.len().saturating_sub(COMPLAINTS));
        }
        let _ = send.send(end);
    };
    thread::Builder::new().name("assay-probe".into()).spawn(read)?;
    Ok(receive)
}

fn lines_of(from: OwnedFd) -> io::Result<Receiver<Vec<u8>>> {
    let (send, receive) = sync_channel(WAITING);
    let read = move || {
        let mut from = BufReader::with_capacity(1 << 16, File::from(from));
        loop {
            let mut line = Vec::new();
            let most = MAX_LINE as u64;
            match from.by_ref().take(most).read_until(b'\n', &mut line) {
                // A line that never ends is not read on.
                Ok(n) if n > 0 && (line.ends_with(b"\n") || (n as u64) < most) => {
                    if send.send(line).is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    thread::Builder::new().name("assay-probe".into()).spawn(read)?;
    Ok(receive)
}
