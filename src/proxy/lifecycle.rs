//! What ends a session, and what follows from it.
//!
//! | stage | begins with | ends with | at the latest |
//! |---|---|---|---|
//! | running | the start | an end: the client hangs up or is gone, a signal, the server ends | |
//! | draining | the server's stdin is closed, or will be when what waits is through | the server's end | [`Life::drain_until`] |
//! | terminated | SIGTERM to the server's group | the server's end | [`Life::kill_at`] |
//! | killed | SIGKILL to the server's group | the server's end | [`AFTER_KILL`], [`HURRY_KILL`] |
//! | delivering | the server has ended | everything that it said is through | [`Life::deliver_until`] |
//!
//! Whose end came first is the cause. The order of events is the order of ends: a relay tells its end before it closes
//! anything that another could react to, and where the client's end is told, it is checked whether the server had ended
//! before.

mod event;

pub(super) use event::{Event, watch_signals};

use super::{Status, served::Served};
use crate::model::words::{EndReason, OutcomeReason, Teardown};
use crate::{
    record::{activity::Activity, recorder::Ending},
    relay::{Exit, Group, Stop, Waker, child::EndStep, stdio::HEAR_OUT},
};
use event::{Ended, How};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

/// Time between our own SIGTERM and SIGKILL.
const AFTER_TERM: Duration = Duration::from_secs(2);
/// How long a server that shares our group gets to act on a signal to the group, before it is passed on; and how long
/// its end may come before the signal that caused it.
const AFTER_GROUP: Duration = Duration::from_millis(100);
/// How long a killed server may take to be gone.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// How long relays may take to end once they are asked to.
const AFTER_STOP: Duration = Duration::from_millis(500);
/// How long processes that the server left behind get after SIGTERM.
const LEFTOVERS: Duration = Duration::from_millis(500);
/// If somebody waits for our end, or no client is left: time between the end of the server's input and SIGTERM.
const HURRY_TERM: Duration = Duration::from_millis(400);
/// The same between SIGTERM and SIGKILL, and after that.
const HURRY_KILL: Duration = Duration::from_millis(500);
/// The same for what an ended server has said and the client does not take.
const HURRY_DELIVER: Duration = Duration::from_millis(300);
/// How long the stderr and stdout of an ended server are read at least.
const DELIVER_AT_LEAST: Duration = Duration::from_millis(500);
/// How long after our parent's end it is asked whether it had taken an answer.
const ORPHANED: Duration = Duration::from_millis(300);
/// How long what a server left behind when it ended may wait for the client's first word.
const LINGER: Duration = Duration::from_secs(2);
/// How often it is checked whether anything has moved while a session ends.
const TICK: Duration = Duration::from_millis(50);

/// What ended the session first.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cause {
    ClientClosed,
    ServerEnded,
    Signal(i32),
}

/// How far the end has come. Before any of these, an end is draining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    Terminated(Instant),
    Killed(Instant),
}

/// Ends the relays from outside.
#[derive(Debug, Clone)]
pub(super) struct Stops {
    pub(super) c2s: Stop,
    pub(super) s2c: Stop,
    pub(super) stderr: Stop,
}

/// What is read of the recorder.
pub(super) struct Underway {
    pub(super) activity: Arc<Activity>,
    pub(super) waker: Arc<Waker>,
}

impl Underway {
    /// Requests of the client that wait for an answer; `None` if it is not known.
    fn in_flight(&self) -> u64 {
        self.activity.asked.store(true, Ordering::Relaxed);
        self.waker.urge();
        self.activity.in_flight.load(Ordering::Relaxed)
    }

    fn written(&self) -> u64 {
        self.activity.written.load(Ordering::Relaxed)
    }

    fn client_has_spoken(&self) -> bool {
        self.activity.said.load(Ordering::Relaxed) > 0
    }
}

/// A number, and when it changed last.
#[derive(Debug, Clone, Copy)]
struct Moving {
    value: u64,
    at: Instant,
}

/// The life of one session: what has happened so far, and what ends it.
pub(super) struct Life {
    child: Arc<Served>,
    stops: Stops,
    shutdown_timeout: Duration,
    recording: Underway,
    status: Status,
    cause: Option<(Cause, Instant)>,
    interrupted: bool,
    signals: u32,
    /// The first signal that ends us: when, and which.
    signalled: Option<(Instant, i32)>,
    /// When the client hung up.
    hung_up: Option<Instant>,
    /// When the client was seen to be gone: it does not even read.
    gone: Option<Instant>,
    /// When our parent was seen to be gone; for a moment, until it is known whether it had been a client.
    orphaned: Option<Instant>,
    in_flight: Moving,
    written: Moving,
    step: Step,
    ended_by: EndStep,
    timed_out: bool,
    exit: Option<Exit>,
    exited: Option<Instant>,
    /// The process of the server ended well, and a process that it left behind still writes.
    lingers: bool,
    open: [bool; 3],
    reload: Option<Sender<()>>,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;
const STDERR: usize = 2;

impl Life {
    pub(super) fn new(
        child: Arc<Served>,
        stops: Stops,
        shutdown_timeout: Duration,
        recording: Underway,
        status: Status,
    ) -> Self {
        let at = Instant::now();
        Self {
            child,
            stops,
            shutdown_timeout,
            recording,
            status,
            cause: None,
            interrupted: false,
            signals: 0,
            signalled: None,
            hung_up: None,
            gone: None,
            orphaned: None,
            in_flight: Moving { value: Activity::UNKNOWN, at },
            written: Moving { value: 0, at },
            step: Step::None,
            ended_by: EndStep::StdinClosed,
            timed_out: false,
            exit: None,
            exited: None,
            lingers: false,
            open: [true; 3],
            reload: None,
        }
    }

    /// SIGHUP makes the policy be read again, and does not end the session.
    pub(super) fn reload_on_hangup(&mut self, reload: Sender<()>) {
        self.reload = Some(reload);
    }

    /// Runs until the server has ended and all its output has been passed on.
    pub(super) fn run(&mut self, inbox: &Receiver<Event>) {
        while !self.is_over() {
            let heard = match self.due().or(self.orphaned.map(|at| at + ORPHANED)) {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now()).min(TICK)),
            };
            match heard {
                Ok(event) => self.hear(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look();
            if self.due().is_some_and(|at| at <= Instant::now()) && self.next_step() {
                break;
            }
        }
        self.deliver(inbox);
    }

    fn is_over(&self) -> bool {
        self.exited.is_some() && !(self.lingers && self.open[SERVER])
    }

    /// What an ended server has said goes out, what the client says to it is heard, each for a bounded time.
    fn deliver(&mut self, inbox: &Receiver<Event>) {
        let begun = Instant::now();
        if self.exited.is_some() {
            self.stops.s2c.drain();
            self.stops.stderr.drain();
            while self.open.contains(&true) || self.may_be_signalled(Instant::now()) {
                let now = Instant::now();
                let until = self.deliver_until(begun);
                let heard = begun + HEAR_OUT.min(until.saturating_duration_since(begun));
                if now >= heard {
                    self.stops.c2s.drain();
                }
                // Another process holds the server's stdin and does not read.
                if now >= heard + HEAR_OUT {
                    self.stops.c2s.now();
                }
                if now >= until {
                    break;
                }
                if let Ok(event) = inbox.recv_timeout(until.saturating_duration_since(now).min(TICK)) {
                    self.hear(event);
                }
                self.look();
            }
        }
        self.stops.c2s.now();
        self.stops.s2c.now();
        self.stops.stderr.now();
        let until = Instant::now() + AFTER_STOP;
        while self.open[CLIENT] || self.open[SERVER] {
            match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(event) => self.hear(event),
                Err(_) => break,
            }
        }
    }

    /// A signal to the group that the server shares with us may reach it first.
    fn may_be_signalled(&self, now: Instant) -> bool {
        let Some((Cause::ServerEnded, at)) = &self.cause else { return false };
        self.child.group() == Group::Shared && now < *at + AFTER_GROUP
    }

    /// Looks at what moves without an event.
    fn look(&mut self) {
        let now = Instant::now();
        // The recorder reports a little later what the client has read.
        if self.orphaned.is_some() && self.recording.written() > 0 {
            self.client_gone(self.child.has_ended());
        }
        self.orphaned = self.orphaned.filter(|at| self.gone.is_none() && now < *at + ORPHANED);
        if self.lingers_unasked().is_some_and(|until| until <= now) {
            self.lingers = false;
            self.began(Cause::ServerEnded);
        }
        if self.cause.is_none() {
            return;
        }
        let in_flight = self.recording.in_flight();
        // Only answers are progress: a server that writes for ever makes none.
        if in_flight < self.in_flight.value {
            self.in_flight.at = now;
        }
        self.in_flight.value = in_flight;
        let written = self.recording.written();
        if written != self.written.value {
            self.written = Moving { value: written, at: now };
        }
    }

    /// Whether somebody waits for us to end, or no client is left.
    fn is_hurried(&self) -> bool {
        self.gone.is_some() || self.signals > 1 || (self.signalled.is_some() && self.hung_up.is_some())
    }

    /// Up to when what the server left behind is taken for the server, if nobody has said anything to it yet. Whoever
    /// waits for our end and not for an answer would wait for ever.
    fn lingers_unasked(&self) -> Option<Instant> {
        let waits = self.lingers && self.cause.is_none() && !self.recording.client_has_spoken();
        self.exited.filter(|_| waits).map(|at| at + LINGER)
    }

    /// When the next step is due, if an end has begun.
    fn due(&self) -> Option<Instant> {
        match self.step {
            Step::None => self.drain_until().or_else(|| self.lingers_unasked()),
            Step::Terminated(at) => Some(self.kill_at(at)),
            Step::Killed(at) => Some(at + if self.is_hurried() { HURRY_KILL } else { AFTER_KILL }),
        }
    }

    /// How long the server has to end on its own after its input has ended.
    fn drain_until(&self) -> Option<Instant> {
        let all = self.shutdown_timeout;
        let little = HURRY_TERM.min(all);
        let signalled = self.signalled.map(|(at, _)| at);
        let told = if self.child.group() == Group::Shared { AFTER_GROUP } else { Duration::ZERO };
        match (self.hung_up, signalled, self.gone) {
            _ if self.signals > 1 => signalled,
            (None, None, None) => None,
            (hung_up, _, Some(gone)) => Some(gone.max(hung_up.unwrap_or(gone)) + little),
            (Some(hung_up), Some(signalled), None) => Some((hung_up + little).max(signalled + told)),
            (Some(hung_up), None, None) => Some(hung_up.max(self.in_flight.at) + all),
            (None, Some(signalled), None) => {
                let wait = if self.in_flight.value == 0 { little } else { all };
                Some(signalled + wait.max(told))
            }
        }
    }

    fn kill_at(&self, terminated: Instant) -> Instant {
        match (self.signals, self.is_hurried()) {
            (3.., _) => terminated,
            (_, true) => terminated + HURRY_KILL,
            (_, false) => terminated + AFTER_TERM,
        }
    }

    /// How long the output of an ended server may take to be delivered.
    fn deliver_until(&self, begun: Instant) -> Instant {
        if self.is_hurried() {
            return begun + HURRY_DELIVER;
        }
        let ended = self.cause.as_ref().map_or(begun, |(_, at)| *at);
        let mut until = (ended + self.shutdown_timeout).max(begun + DELIVER_AT_LEAST);
        if self.written.at > begun {
            until = until.max(self.written.at + self.shutdown_timeout);
        }
        until
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::ClientEnd(end) => {
                self.open[CLIENT] = false;
                self.note_end("client to server", &end);
                // A server that no longer reads is ending, or has only closed its stdin: its exit shows which.
                if end.how == How::HungUp {
                    self.client_hung_up(end.after_server);
                }
            }
            Event::ClientHungUp { after_server } => self.client_hung_up(after_server),
            Event::ClientGone { after_server } | Event::ParentGone { was_client: true, after_server } => {
                self.client_gone(after_server);
            }
            Event::ParentGone { was_client: false, .. } => {
                // A parent that started us in the background and ended is not a client: a client has read the output of
                // the server.
                self.recording.waker.urge();
                self.orphaned = Some(Instant::now());
            }
            Event::ServerEnd(end) => {
                self.open[SERVER] = false;
                self.note_end("server to client", &end);
                match end.how {
                    How::HungUp => self.server_hung_up(),
                    How::NobodyReads => self.client_gone(end.after_server),
                    How::Asked => {}
                }
            }
            Event::ServerHungUp => self.server_hung_up(),
            Event::StderrEnd => self.open[STDERR] = false,
            Event::Exited(exit) => {
                self.exit = exit;
                self.exited = Some(Instant::now());
                // A wrapper that started the server in the background has done its part.
                let is_alone = self.cause.is_none() && self.open[SERVER] && exit == Some(Exit::Code(0));
                self.lingers = is_alone && self.child.group_alive();
                if self.lingers {
                    tracing::info!("the server's process has ended and left others that go on");
                } else {
                    self.began(Cause::ServerEnded);
                }
            }
            Event::Signal(signal) => self.signalled(signal),
        }
    }

    fn client_hung_up(&mut self, after_server: bool) {
        self.hung_up.get_or_insert_with(Instant::now);
        self.began(if after_server && !self.lingers { Cause::ServerEnded } else { Cause::ClientClosed });
    }

    fn server_hung_up(&mut self) {
        self.began(Cause::ServerEnded);
        // The processes that it left behind have closed its stdout too, although the client may not have read all of
        // it.
        self.lingers = false;
    }

    /// The client does not read any more: it is gone, even if another process holds our stdin.
    fn client_gone(&mut self, after_server: bool) {
        if self.gone.is_some() {
            return;
        }
        tracing::info!("the client is gone");
        self.gone = Some(Instant::now());
        self.began(if after_server && !self.lingers { Cause::ServerEnded } else { Cause::ClientClosed });
        self.stops.c2s.drain();
    }

    fn began(&mut self, cause: Cause) {
        if self.cause.is_none() {
            tracing::info!(?cause, "the session ends");
            let now = Instant::now();
            self.in_flight.at = now;
            self.written.at = now;
            self.cause = Some((cause, now));
        }
    }

    fn note_end(&self, which: &str, end: &Ended) {
        if let Some(e) = &end.failed {
            self.status.warn(&format!("relaying {which} ended: {e}"));
        }
    }

    fn signalled(&mut self, signal: i32) {
        if !matches!(signal, SIGTERM | SIGINT | SIGHUP) {
            if let Err(e) = self.child.signal(signal) {
                tracing::warn!(error = %e, signal, "the server could not be signalled");
            }
            return;
        }
        if signal == SIGHUP
            && let Some(reload) = &self.reload
        {
            let _ = reload.send(());
            return;
        }
        let now = Instant::now();
        self.interrupted |= signal == SIGINT;
        if self.may_be_signalled(now) {
            self.cause = None;
        } else if self.exited.is_some() && !self.lingers {
            // Somebody waits for the end and the client does not read: what it does not read now is given up.
            self.stops.s2c.now();
            self.stops.stderr.now();
        }
        self.began(Cause::Signal(signal));
        self.signals += 1;
        self.signalled.get_or_insert((now, signal));
        // What the client has said so far goes through; then the server's stdin is closed.
        self.stops.c2s.drain();
    }

    fn signal(&self, signal: Signal) {
        if let Err(e) = self.child.signal_group(signal) {
            tracing::warn!(error = %e, ?signal, "the server could not be signalled");
        }
    }

    /// A deadline has passed; returns whether nothing more can be done.
    fn next_step(&mut self) -> bool {
        let now = Instant::now();
        match self.step {
            Step::None => {
                let (signal, name) = match self.signalled {
                    Some((_, SIGINT)) => (Signal::INT, "SIGINT"),
                    Some((_, SIGHUP)) => (Signal::HUP, "SIGHUP"),
                    _ => (Signal::TERM, "SIGTERM"),
                };
                if self.signals <= 1 {
                    let text = format!("the server did not end after its stdin was closed; sending {name}");
                    self.status.warn(&text);
                }
                // Whatever still waits for a server that does not read.
                self.stops.c2s.now();
                self.signal(signal);
                self.ended_by = EndStep::Terminated;
                self.step = Step::Terminated(now);
                false
            }
            Step::Terminated(_) => {
                self.status.warn("the server did not end in time; sending SIGKILL");
                self.timed_out = matches!(self.cause, Some((Cause::Signal(_), _)));
                self.signal(Signal::KILL);
                self.ended_by = EndStep::Killed;
                self.step = Step::Killed(now);
                false
            }
            Step::Killed(_) => {
                if !self.lingers {
                    self.ended_by = EndStep::Stuck;
                }
                true
            }
        }
    }

    /// Ends what a server left running that had to be ended itself. What a server that ended on its own leaves behind
    /// is its own business, as it is without us.
    pub(super) fn sweep(&self) {
        if self.exited.is_none() {
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

    /// The exit code of a server that ended on its own, if it says that something failed.
    pub(super) fn server_code(&self) -> Option<u8> {
        match (self.cause(), self.exit) {
            (Some(Cause::Signal(_)), _) => None,
            (_, Some(Exit::Code(code))) if self.ended_by == EndStep::StdinClosed => {
                u8::try_from(code).ok().filter(|c| *c != 0)
            }
            _ => None,
        }
    }

    /// Whether the server died without an exit code, or had to be killed after a signal to us.
    pub(super) fn died(&self) -> bool {
        let by_itself = self.cause() == Some(&Cause::ServerEnded) && self.ended_by == EndStep::StdinClosed;
        self.timed_out || by_itself && !matches!(self.exit, Some(Exit::Code(_)))
    }

    fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref().map(|(cause, _)| cause)
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
        let failed = exit_code != Some(0) && self.ended_by == EndStep::StdinClosed;
        let (reason, no_response, clean, pending_is_clean) = match self.cause() {
            Some(Cause::ClientClosed) => (EndReason::ClientClosed, OutcomeReason::ClientClosed, true, true),
            Some(Cause::Signal(signal)) => {
                let reason = match *signal {
                    SIGHUP => EndReason::SignalHup,
                    SIGINT => EndReason::SignalInt,
                    _ => EndReason::SignalTerm,
                };
                let late = if self.timed_out { OutcomeReason::ShutdownTimeout } else { OutcomeReason::ServerExited };
                (reason, late, true, false)
            }
            // How the server ended is not part of the evidence, so none is missing.
            Some(Cause::ServerEnded) if failed => (EndReason::ServerFailed, OutcomeReason::ServerExited, true, false),
            Some(Cause::ServerEnded) | None => {
                (EndReason::ServerExited, OutcomeReason::ServerExited, self.exited.is_some(), false)
            }
        };
        let teardown = match self.ended_by {
            EndStep::StdinClosed if self.cause() == Some(&Cause::ServerEnded) => Teardown::Exited,
            // It was sent the signal together with us.
            EndStep::StdinClosed if self.signals > 0 && matches!(self.exit, Some(Exit::Signal(_))) => {
                Teardown::Terminated
            }
            EndStep::StdinClosed => Teardown::StdinClosed,
            EndStep::Terminated => Teardown::Terminated,
            EndStep::Killed => Teardown::Killed,
            EndStep::Stuck => Teardown::Stuck,
        };
        Ending {
            reason: reason.into(),
            no_response: Some(no_response),
            clean,
            pending_is_clean,
            exit_code,
            teardown: Some(teardown),
            ..Ending::default()
        }
    }
}
