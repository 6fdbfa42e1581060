//! What stands on the server's side of a session over stdio: the server's process, or a bridge to a server over HTTP.

use super::Status;
use crate::{
    bridge::{Book, Bridge, BridgeHandle, Config},
    relay::{
        Child, Exit, Group,
        child::{GroupEnd, Pipes},
    },
    sys::fd,
};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::Signal,
};
use std::{io, sync::Arc, time::Duration};

/// The server's side. A bridge is told to end where a process would get a signal.
#[derive(Debug)]
pub(super) enum Served {
    Process(Child),
    Bridge(BridgeHandle),
}

impl Served {
    /// Starts a bridge, on pipes like those of a process.
    ///
    /// # Errors
    /// There are no descriptors or threads for it.
    pub(super) fn bridge(config: &Config, book: Book, status: Status) -> io::Result<(Self, Pipes)> {
        let (reader, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fd::set_nonblocking(&stdin)?;
        let notice = Arc::new(move |text: &str| status.warn(text));
        let bridge = Bridge::start(Config { notice, book: Some(book), ..config.clone() }, reader, writer)?;
        Ok((Self::Bridge(bridge), Pipes { stdin, stdout, stderr: None }))
    }

    /// The id of its process; a bridge is in ours.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Process(child) => child.pid(),
            Self::Bridge(_) => std::process::id(),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Process(child) => child.has_ended(),
            Self::Bridge(bridge) => bridge.ended().is_some(),
        }
    }

    /// Blocks until it has ended.
    pub(super) fn wait(&self) -> io::Result<Exit> {
        match self {
            Self::Process(child) => child.wait(),
            Self::Bridge(bridge) => Ok(Exit::Code(bridge.wait().code.into())),
        }
    }

    /// Has it end.
    pub(super) fn signal_group(&self, signal: Signal) -> io::Result<()> {
        match self {
            Self::Process(child) => child.signal_group(signal),
            Self::Bridge(bridge) => {
                if signal == Signal::KILL {
                    bridge.kill();
                } else {
                    bridge.stop();
                }
                Ok(())
            }
        }
    }

    /// A signal that does not end us; it means nothing to a bridge.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        match self {
            Self::Process(child) => child.signal(signal),
            Self::Bridge(_) => Ok(()),
        }
    }

    pub(super) fn group(&self) -> Group {
        match self {
            Self::Process(child) => child.group(),
            Self::Bridge(_) => Group::Own,
        }
    }

    pub(super) fn group_alive(&self) -> bool {
        match self {
            Self::Process(child) => child.group_alive(),
            Self::Bridge(_) => false,
        }
    }

    pub(super) fn end_group(&self, grace: Duration) -> io::Result<GroupEnd> {
        match self {
            Self::Process(child) => child.end_group(grace),
            Self::Bridge(_) => Ok(GroupEnd::Empty),
        }
    }
}
