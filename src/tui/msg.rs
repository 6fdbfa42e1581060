//! What comes in, what goes out, and work that is done beside the screen.

use crate::{live::client::Update, model::WallTime};
use crossterm::event::{KeyEvent, MouseEvent};
use std::{
    any::Any,
    fmt,
    marker::PhantomData,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Everything that can happen.
#[derive(Debug)]
pub enum Msg {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The mouse was clicked, moved or scrolled.
    Mouse(MouseEvent),
    /// The terminal has another size: columns, lines.
    Resize(u16, u16),
    /// News of a live session.
    Live(Update),
    /// A job has something to say.
    Told(Told),
    /// Something is asked for from outside.
    Ask(Effect),
    /// A second has passed.
    Tick(WallTime),
}

/// The screens of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScreenId {
    /// The list of live sessions.
    Live,
    /// Packs that were recorded.
    Packs,
    /// One pack, or the files of a session.
    Pack,
    /// The comparison of two packs.
    Diff,
    /// A policy, and what it would do.
    Policy,
    /// What servers offer, and what of it is approved.
    Surface,
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
        /// Path of the segment.
        segment: PathBuf,
        /// Path of the file with the receipts.
        receipts: PathBuf,
    },
}

/// What an update asks for.
#[derive(Debug)]
pub enum Effect {
    /// Leave the program.
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
        /// The text to copy.
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

/// Says which job is meant, hears what it says, and stops it. `N` is the type of its messages: only the screen that
/// started the job needs to know it.
#[derive(Debug)]
pub struct Ticket<N> {
    id: u64,
    stop: Arc<AtomicBool>,
    news: PhantomData<fn() -> N>,
}

impl<N> Clone for Ticket<N> {
    fn clone(&self) -> Self {
        Self { id: self.id, stop: Arc::clone(&self.stop), news: PhantomData }
    }
}

impl<N: Send + 'static> Ticket<N> {
    /// A new one.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), stop: Arc::default(), news: PhantomData }
    }

    /// Asks the job to stop; it may say some more things before it does.
    pub fn cancel(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether its job has ended, with or without a last message: no other handle exists.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.stop) == 1
    }

    /// What this job said; gives back what another one did.
    ///
    /// # Errors
    /// It is another's.
    pub fn hear(&self, told: Told) -> Result<N, Told> {
        let Told { ticket, news } = told;
        if ticket != self.id {
            return Err(Told { ticket, news });
        }
        news.downcast().map(|news| *news).map_err(|news| Told { ticket, news })
    }
}

impl<N: Send + 'static> Default for Ticket<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// As [`Ticket::hear`], where there may be no job.
///
/// # Errors
/// As there.
pub fn hear<N: Send + 'static>(ticket: Option<&Ticket<N>>, told: Told) -> Result<N, Told> {
    match ticket {
        Some(ticket) => ticket.hear(told),
        None => Err(told),
    }
}

type Hear = Arc<dyn Fn(Told) -> bool + Send + Sync>;

/// Work on a thread of its own: reading, verifying, comparing.
pub struct Job {
    /// What it does, for tests and logs.
    pub what: &'static str,
    work: Box<dyn FnOnce(Hear) + Send>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({})", self.what)
    }
}

impl Job {
    /// A job that runs `work` beside the screen.
    pub fn new<N: Send + 'static>(
        ticket: &Ticket<N>,
        what: &'static str,
        work: impl FnOnce(&Teller<N>) + Send + 'static,
    ) -> Self {
        let ticket = ticket.clone();
        Self { what, work: Box::new(move |hear| work(&Teller { ticket, hear })) }
    }

    /// Does the work; `hear` gets what it says, and says itself whether anybody still listens.
    pub fn run(self, hear: impl Fn(Told) -> bool + Send + Sync + 'static) {
        (self.work)(Arc::new(hear));
    }
}

/// How a job speaks.
pub struct Teller<N> {
    ticket: Ticket<N>,
    hear: Hear,
}

impl<N: Send + 'static> Teller<N> {
    /// Sends news to the screen that started the job.
    pub fn tell(&self, news: N) {
        if !(self.hear)(Told { ticket: self.ticket.id, news: Box::new(news) }) {
            self.ticket.cancel();
        }
    }

    /// Whether the job is to stop.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.ticket.stop.load(Ordering::Relaxed)
    }

    /// The flag that [`Self::cancelled`] reads, for code that watches one.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ticket.stop)
    }
}

impl<N> fmt::Debug for Teller<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Teller({})", self.ticket.id)
    }
}

/// What a job said, for the one who has its ticket.
#[derive(Debug)]
pub struct Told {
    ticket: u64,
    news: Box<dyn Any + Send>,
}

#[cfg(test)]
impl Told {
    /// What it is, for tests.
    pub fn news<N: 'static>(&self) -> Option<&N> {
        self.news.downcast_ref()
    }
}
