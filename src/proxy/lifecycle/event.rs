//! What the main thread hears of a session.

use crate::relay::{
    Exit, RelayEnd,
    stdio::{RelayEvent, StopReason},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{io, sync::mpsc::Sender, thread};

/// What the main thread hears.
#[derive(Debug)]
pub(in crate::proxy) enum Event {
    /// Client to server ended.
    ClientEnd(Ended),
    /// The client has hung up, and its last message waits for the server; whether the server ended before that.
    ClientHungUp { after_server: bool },
    /// The output of the server has no reader any more; whether the server ended before that.
    ClientGone { after_server: bool },
    /// The process that started us has ended, and no other process is known to be the client.
    ParentGone { was_client: bool, after_server: bool },
    /// Server to client ended.
    ServerEnd(Ended),
    /// The server has closed its stdout, and its last message waits for the client.
    ServerHungUp,
    /// The server's stderr ended.
    StderrEnd,
    /// The server process ended.
    Exited(Option<Exit>),
    /// We were sent a signal.
    Signal(i32),
}

/// Who is first where a relay's input ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum How {
    /// The sender hung up.
    HungUp,
    /// The receiver is gone.
    NobodyReads,
    /// We asked for it.
    Asked,
}

/// How a relay ended.
#[derive(Debug)]
pub(in crate::proxy) struct Ended {
    pub(in crate::proxy) how: How,
    pub(in crate::proxy) failed: Option<String>,
    pub(in crate::proxy) after_server: bool,
}

impl Ended {
    /// `after_server`: the server ended before.
    pub(in crate::proxy) fn new(end: &RelayEnd, after_server: bool) -> Self {
        let (how, failed) = match &end.reason {
            StopReason::Eof => (How::HungUp, None),
            StopReason::ReadFailed(e) => (How::HungUp, Some(e.to_string())),
            StopReason::OutputClosed => (How::NobodyReads, None),
            StopReason::WriteFailed(e) => (How::NobodyReads, Some(e.to_string())),
            StopReason::Drained | StopReason::Stopped => (How::Asked, None),
        };
        Self { how, failed, after_server }
    }
}

impl Event {
    /// The event for the end of the relay from the client. `after_server` says whether the server has ended already.
    pub(in crate::proxy) fn of_client(told: &RelayEvent<'_>, after_server: impl Fn() -> bool) -> Option<Self> {
        match told {
            RelayEvent::InputHungUp => Some(Self::ClientHungUp { after_server: after_server() }),
            // A server may close its stdin and work on.
            RelayEvent::OutputHungUp => None,
            RelayEvent::Ended(end) => Some(Self::ClientEnd(Ended::new(end, after_server()))),
        }
    }

    /// The event for the end of the relay from the server. `after_server` says whether the server's process has ended
    /// already.
    pub(in crate::proxy) fn of_server(told: &RelayEvent<'_>, after_server: impl Fn() -> bool) -> Self {
        match told {
            RelayEvent::InputHungUp => Self::ServerHungUp,
            RelayEvent::OutputHungUp => Self::ClientGone { after_server: after_server() },
            RelayEvent::Ended(end) => Self::ServerEnd(Ended::new(end, after_server())),
        }
    }
}

/// Sends every signal that would end us as an event. What is ignored stays so (`nohup`, a shell's background jobs), for
/// the server, too.
pub(in crate::proxy) fn watch_signals(events: &Sender<Event>) -> io::Result<()> {
    use crate::sys::process;
    let mut wanted = vec![SIGTERM, SIGINT, SIGHUP];
    wanted.extend(process::forwarded_signals());
    wanted.retain(|signal| !process::is_ignored(*signal));
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    let events = events.clone();
    thread::Builder::new().name("assay-signals".into()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
