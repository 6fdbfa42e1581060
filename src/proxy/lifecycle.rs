//! Who ends a session, and what follows from it.

use super::{Status, Stops};
use crate::{
    record::recorder::Ending,
    relay::{Child, Exit, Group, RelayEnd, child::EndStep, stdio::EndReason},
};
use rustix::process::Signal;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

/// How long it may take after SIGTERM of our own, before SIGKILL.
const AFTER_TERM: Duration = Duration::from_secs(3);
/// How long a server that shares our group gets to act on a signal to the group, before it is passed on.
const AFTER_GROUP: Duration = Duration::from_millis(100);
/// How long a killed server's pipes may take.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// How long processes that the server left behind get after SIGTERM.
const LEFTOVERS: Duration = Duration::from_millis(500);

/// What the main thread hears.
#[derive(Debug)]
pub(super) enum Event {
    /// Client to server ended.
    ClientEnd(Ended),
    /// Server to client ended.
    ServerEnd(Ended),
    /// The server's stderr ended.
    StderrEnd,
    /// The server process ended.
    Exited(Option<Exit>),
    /// We were sent a signal.
    Signal(i32),
}

/// How a relay ended.
#[derive(Debug)]
pub(super) struct Ended {
    output_closed: bool,
    failed: Option<String>,
}

impl From<&RelayEnd> for Ended {
    fn from(end: &RelayEnd) -> Self {
        let failed = match &end.reason {
            EndReason::ReadFailed(e) | EndReason::WriteFailed(e) => Some(e.to_string()),
            _ => None,
        };
        Self { output_closed: matches!(end.reason, EndReason::OutputClosed), failed }
    }
}

/// Sends every SIGTERM, SIGINT and SIGHUP as an event.
pub(super) fn watch_signals(events: &Sender<Event>) -> io::Result<()> {
    use signal_hook::{consts, iterator::Signals};
    let mut signals = Signals::new([consts::SIGTERM, consts::SIGINT, consts::SIGHUP])?;
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

/// What ended the session first.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    ClientClosed,
    ServerEnded,
    Signal(i32),
}

/// The next thing to do to a server that does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    PassOn(Signal, Instant),
    Term(Instant),
    Kill(Instant),
    GiveUp(Instant),
}

/// One session's life.
pub(super) struct Life {
    child: Arc<Child>,
    stops: Stops,
    shutdown_timeout: Duration,
    activity: Arc<AtomicU64>,
    seen_activity: u64,
    status: Status,
    cause: Option<Cause>,
    interrupted: bool,
    signals: u32,
    step: Step,
    ended_by: EndStep,
    timed_out: bool,
    exit: Option<Exit>,
    exited: bool,
    open: [bool; 3],
    reload: Option<Sender<()>>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;
const STDERR: usize = 2;

impl Life {
    pub(super) fn new(
        child: Arc<Child>,
        stops: Stops,
        shutdown_timeout: Duration,
        activity: Arc<AtomicU64>,
        status: Status,
    ) -> Self {
        Self {
            child,
            stops,
            shutdown_timeout,
            activity,
            seen_activity: 0,
            status,
            cause: None,
            interrupted: false,
            signals: 0,
            step: Step::None,
            ended_by: EndStep::StdinClosed,
            timed_out: false,
            exit: None,
            exited: false,
            open: [true; 3],
            reload: None,
        }
    }

    /// SIGHUP has the policy read again, and does not end the session.
    pub(super) fn reload_on_hangup(&mut self, reload: Sender<()>) {
        self.reload = Some(reload);
    }

    /// Until the server has ended and everything it said has been passed on.
    pub(super) fn run(&mut self, inbox: &Receiver<Event>) {
        while !self.is_over() {
            let event = match self.step {
                Step::None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Step::PassOn(_, at) | Step::Term(at) | Step::Kill(at) | Step::GiveUp(at) => {
                    inbox.recv_timeout(at.saturating_duration_since(Instant::now()))
                }
            };
            match event {
                Ok(event) => self.hear(event),
                Err(RecvTimeoutError::Timeout) => {
                    if self.next_step() {
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Nobody is left to write to the server; what the client still says has no receiver.
        self.stops.c2s.now();
        self.stops.s2c.now();
        self.stops.stderr.now();
        let until = Instant::now() + AFTER_KILL;
        while self.open[CLIENT] || self.open[SERVER] {
            match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(event) => self.hear(event),
                Err(_) => break,
            }
        }
    }

    fn is_over(&self) -> bool {
        self.exited && !self.open[SERVER] && !self.open[STDERR]
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::ClientEnd(end) => {
                self.open[CLIENT] = false;
                self.note_end("client to server", &end);
                // EPIPE here means that the server closed its stdin or is ending: its exit tells the cause.
                if !self.exited && !end.output_closed {
                    self.began(Cause::ClientClosed);
                    self.still_works();
                    self.step = Step::Term(Instant::now() + self.shutdown_timeout);
                }
            }
            Event::ServerEnd(end) => {
                self.open[SERVER] = false;
                self.note_end("server to client", &end);
                if !self.exited && end.output_closed {
                    // The client reads no more: it is gone, whatever its stdin says.
                    self.began(Cause::ClientClosed);
                    self.stops.c2s.drain();
                }
            }
            Event::StderrEnd => self.open[STDERR] = false,
            Event::Exited(exit) => {
                self.exited = true;
                self.exit = exit;
                self.began(Cause::ServerEnded);
                self.step = Step::None;
                self.stops.s2c.drain();
                self.stops.stderr.drain();
            }
            Event::Signal(signal) => self.signalled(signal),
        }
    }

    fn began(&mut self, cause: Cause) {
        if self.cause.is_none() {
            tracing::info!(?cause, "the session ends");
            self.cause = Some(cause);
        }
    }

    fn note_end(&self, which: &str, end: &Ended) {
        if let Some(e) = &end.failed {
            self.status.warn(&format!("relaying {which} ended: {e}"));
        }
    }

    fn signalled(&mut self, signal: i32) {
        if signal == signal_hook::consts::SIGHUP
            && let Some(reload) = &self.reload
        {
            let _ = reload.send(());
            return;
        }
        self.began(Cause::Signal(signal));
        self.interrupted |= signal == signal_hook::consts::SIGINT;
        self.signals += 1;
        if self.exited {
            // Somebody is in a hurry and the client does not read: what it does not take now is given up.
            self.stops.s2c.now();
            self.stops.stderr.now();
            return;
        }
        let pass_on = match signal {
            signal_hook::consts::SIGINT => Signal::INT,
            signal_hook::consts::SIGHUP => Signal::HUP,
            _ => Signal::TERM,
        };
        if self.signals > 1 {
            self.step = Step::Kill(Instant::now());
            return;
        }
        // Whoever signals the group that the server shares with us has signalled the server, too: it gets its chance
        // before it is told a second time.
        let wait = if self.child.group() == Group::Shared { AFTER_GROUP } else { Duration::ZERO };
        self.step = Step::PassOn(pass_on, Instant::now() + wait);
    }

    fn signal(&self, signal: Signal) {
        if let Err(e) = self.child.signal_group(signal) {
            tracing::warn!(error = %e, ?signal, "the server could not be signalled");
        }
    }

    /// Whether the server has said something since this was asked last: a client may close its end and read on.
    fn still_works(&mut self) -> bool {
        let now = self.activity.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen_activity, now) != now
    }

    /// A deadline has passed; returns whether nothing more can be done.
    fn next_step(&mut self) -> bool {
        match self.step {
            Step::PassOn(signal, _) => {
                self.signal(signal);
                self.ended_by = EndStep::Terminated;
                self.step = Step::Kill(Instant::now() + self.shutdown_timeout);
                false
            }
            Step::Term(_) => {
                if self.still_works() {
                    self.step = Step::Term(Instant::now() + self.shutdown_timeout);
                    return false;
                }
                self.status.warn("the server did not end after its stdin was closed; sending SIGTERM");
                self.signal(Signal::TERM);
                self.ended_by = EndStep::Terminated;
                self.step = Step::Kill(Instant::now() + AFTER_TERM);
                false
            }
            Step::Kill(_) => {
                self.status.warn("the server did not end in time; sending SIGKILL");
                self.timed_out = self.cause.as_ref().is_some_and(|c| matches!(c, Cause::Signal(_)));
                self.signal(Signal::KILL);
                self.ended_by = EndStep::Killed;
                self.step = Step::GiveUp(Instant::now() + AFTER_KILL);
                false
            }
            Step::GiveUp(_) => {
                self.ended_by = EndStep::Stuck;
                true
            }
            Step::None => false,
        }
    }

    /// Ends what a server left running that had to be ended itself. What a server leaves behind that ended by itself is
    /// its own business, as it is without us.
    pub(super) fn sweep(&self) {
        if !self.exited {
            return;
        }
        if !matches!(self.ended_by, EndStep::Terminated | EndStep::Killed) {
            if self.child.group_alive() {
                tracing::info!("the server left processes running");
            }
            return;
        }
        match self.child.end_group(LEFTOVERS) {
            Ok(crate::relay::child::GroupEnd::Empty) => {}
            Ok(end) => {
                tracing::warn!(?end, "the server left processes behind");
                self.status.warn(&format!("the server left processes behind: {end:?}").to_lowercase());
            }
            Err(e) => tracing::warn!(error = %e, "the server's process group could not be checked"),
        }
    }

    /// The exit code of a server that ended by itself, if it says that something failed.
    pub(super) fn server_code(&self) -> Option<u8> {
        match (&self.cause, self.exit) {
            (Some(Cause::Signal(_)), _) => None,
            (_, Some(Exit::Code(code))) if self.ended_by == EndStep::StdinClosed => {
                u8::try_from(code).ok().filter(|c| *c != 0)
            }
            _ => None,
        }
    }

    /// Whether the server died without an exit code, or had to be killed after a signal to us.
    pub(super) fn died(&self) -> bool {
        self.timed_out || self.cause == Some(Cause::ServerEnded) && !matches!(self.exit, Some(Exit::Code(_)))
    }

    /// Whether we were sent SIGINT.
    pub(super) const fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// What the evidence says of the end.
    pub(super) fn ending(&self) -> Ending {
        let exit_code = match self.exit {
            Some(Exit::Code(code)) => Some(code),
            _ => None,
        };
        let failed = exit_code != Some(0);
        let (reason, no_response, clean, pending_is_clean) = match &self.cause {
            Some(Cause::ClientClosed) => ("client_closed".to_owned(), "client_closed", true, true),
            Some(Cause::Signal(signal)) => {
                let name = signal_hook::low_level::signal_name(*signal).unwrap_or("SIG");
                let no_response = if self.timed_out { "shutdown_timeout" } else { "server_exited" };
                (format!("signal_{}", name.trim_start_matches("SIG")), no_response, true, false)
            }
            // How the server ended is a fact beside the evidence, and none of it is missing for that.
            Some(Cause::ServerEnded) if failed => ("server_failed".to_owned(), "server_exited", true, false),
            Some(Cause::ServerEnded) | None => ("server_exited".to_owned(), "server_exited", self.exited, false),
        };
        let teardown = match self.ended_by {
            EndStep::StdinClosed if self.cause == Some(Cause::ServerEnded) => "exited",
            EndStep::StdinClosed if self.signals > 0 => "terminated",
            EndStep::StdinClosed => "stdin_closed",
            EndStep::Terminated => "terminated",
            EndStep::Killed => "killed",
            EndStep::Stuck => "stuck",
        };
        Ending {
            reason,
            no_response: no_response.to_owned(),
            clean,
            pending_is_clean,
            exit_code,
            teardown: Some(teardown.to_owned()),
            ..Ending::default()
        }
    }
}
