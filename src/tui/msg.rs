//! What comes in, what goes out, and work that is done beside the screen.

use super::{detail, diff, pack, packs, policy};
use crate::{live::client::Update, model::WallTime};
use crossterm::event::{KeyEvent, MouseEvent};
use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Everything that can happen.
#[derive(Debug)]
pub enum Msg {
    /// A key.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The mouse.
    Mouse(MouseEvent),
    /// The terminal has another size: columns, lines.
    Resize(u16, u16),
    /// News of a live session.
    Live(Update),
    /// A job has something to say.
    Told(Told),
    /// Something is asked for from outside.
    Ask(Effect),
    /// Time passes.
    Tick(WallTime),
}

/// A screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScreenId {
    /// Live sessions.
    Live,
    /// Packs that were recorded.
    Packs,
    /// One pack, or the files of a session.
    Pack,
    /// Two packs.
    Diff,
    /// A policy, and what it would do.
    Policy,
}

/// What can be opened on the pack screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A proof pack.
    Pack(PathBuf),
    /// The evidence files of a session that has no pack, or not yet.
    Journal {
        /// What to call it.
        title: String,
        /// Audit events.
        segment: PathBuf,
        /// Receipts.
        receipts: PathBuf,
    },
}

/// What an update asks for.
#[derive(Debug)]
pub enum Effect {
    /// The program ends.
    Leave,
    /// Another screen is shown.
    Show(ScreenId),
    /// Something is opened on the pack screen.
    Open(Target),
    /// Two packs are compared on the diff screen: baseline, other.
    Compare(PathBuf, PathBuf),
    /// Text goes to the clipboard.
    Copy {
        /// What it is, for the message.
        what: String,
        /// The text.
        text: String,
    },
    /// Something is said at the bottom for a while.
    Say(String),
    /// The same, for what went wrong.
    Warn(String),
    /// The mouse is listened to, or not.
    Mouse(bool),
    /// The screen is drawn from nothing.
    Redraw,
    /// The shell gets the terminal until it wants us back.
    Suspend,
    /// A job is started.
    Start(Job),
}

/// Says which job is meant, and stops it.
#[derive(Debug, Clone)]
pub struct Ticket {
    id: u64,
    stop: Arc<AtomicBool>,
}

impl Ticket {
    /// A new one.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), stop: Arc::new(AtomicBool::new(false)) }
    }

    /// Asks the job to stop; it may say some more things before it does.
    pub fn cancel(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether its job has ended, whatever it said or did not say: nobody else holds it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.stop) == 1
    }

    /// Whether something was said by this job.
    #[must_use]
    pub fn is_of(&self, told: &Told) -> bool {
        self.id == told.ticket
    }
}

impl Default for Ticket {
    fn default() -> Self {
        Self::new()
    }
}

/// Work on a thread of its own: reading, verifying, comparing.
pub struct Job {
    ticket: Ticket,
    /// What it does, for tests and logs.
    pub what: &'static str,
    work: Box<dyn FnOnce(&Teller) + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} {})", self.ticket.id, self.what)
    }
}

impl Job {
    /// A job.
    pub fn new(ticket: &Ticket, what: &'static str, work: impl FnOnce(&Teller) + Send + 'static) -> Self {
        Self { ticket: ticket.clone(), what, work: Box::new(work) }
    }

    /// Does the work; `hear` gets what it says, and says itself whether anybody still listens.
    pub fn run(self, hear: impl Fn(Told) -> bool + Send + Sync + 'static) {
        (self.work)(&Teller { ticket: self.ticket, hear: Arc::new(hear) });
    }
}

/// How a job speaks.
#[derive(Clone)]
pub struct Teller {
    ticket: Ticket,
    hear: Arc<dyn Fn(Told) -> bool + Send + Sync>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Teller({})", self.ticket.id)
    }
}

impl Teller {
    /// Says something.
    pub fn tell(&self, news: News) {
        if !(self.hear)(Told { ticket: self.ticket.id, news }) {
            self.ticket.cancel();
        }
    }

    /// Whether the job is to stop.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.ticket.stop.load(Ordering::Relaxed)
    }

    /// The flag behind [`Self::cancelled`], for code that watches one.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ticket.stop)
    }
}

/// What a job said.
#[derive(Debug)]
pub struct Told {
    ticket: u64,
    /// What.
    pub news: News,
}

/// What jobs say, by the screen that asked.
#[derive(Debug)]
pub enum News {
    /// Evidence of one call.
    Detail(detail::News),
    /// The list of packs.
    Packs(packs::News),
    /// A pack.
    Pack(pack::News),
    /// A comparison.
    Diff(diff::News),
    /// A policy.
    Policy(policy::News),
}
