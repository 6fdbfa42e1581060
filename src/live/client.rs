//! Following live sessions: connect, hear, heal what was missed from the files, and connect again.
//!
//! One blocking thread a proxy, which gives updates into a bounded channel: a reader that is slow slows the thread, which
//! then is the slow subscriber that loses events and heals them.

use super::{
    discovery::{self, Unread},
    fold::Fold,
    journal,
    protocol::{Hello, Line, MAX_LINE, PackProgress, PackState, Request, RunCard},
    row::{CallRow, Totals},
};
use crate::{
    model::{
        ReceiptId, SessionId,
        reading::{self, Reading, TooNew},
        version,
    },
    paths::AuditDir,
    record::{card::Card, mark::NotOurs},
    sys,
};
use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Pause before a lost connection is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Events that are read before a gap, so that calls which began there are whole.
const RUN_UP: u64 = 512;

/// As the proxy's live thread.
const NICE: i32 = 10;

/// What a follower has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// A line of the protocol, from the socket or made from the files. In the order of cursors, each event once.
    Line(Box<Line>),
    /// A call whose beginning was not seen, from its receipt.
    Call(Box<CallRow>),
    /// What only a later version reads, or what does not read: it is passed over. These are all, each time that they change.
    Unread(Vec<Unread>),
    /// What a session says or left is of a later version: from here on nothing of it is told.
    TooNew {
        /// The session.
        session: SessionId,
        /// What it is, and its version.
        why: String,
    },
    /// The connection was lost; it is tried again.
    Lost(SessionId),
    /// The process has ended, and everything that it left has been told.
    Gone(Gone),
}

/// A session whose process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// The session.
    pub session: SessionId,
    /// Why recovery does not finish it, if it does not.
    pub left_alone: Option<LeftAlone>,
}

/// Why recovery leaves a session alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftAlone {
    /// Its mark is of a later version.
    TooNew,
    /// The user directory does not know it.
    NotOurs,
}

impl Gone {
    /// What its directory and the user's own say of it.
    #[must_use]
    pub fn of(session: SessionId, audit_dir: &Path) -> Self {
        // Nothing is known where its directory is gone, too.
        let mark = audit_dir.is_dir().then(|| AuditDir::at(audit_dir).of_user().mark(session));
        let left_alone = mark.and_then(Result::err).map(|why| match why {
            NotOurs::TooNew { .. } => LeftAlone::TooNew,
            _ => LeftAlone::NotOurs,
        });
        Self { session, left_alone }
    }
}

/// Starts following a proxy. `backlog` events before the present are told first, from the files if need be.
///
/// # Errors
/// No thread could be made.
pub fn follow(
    card: RunCard,
    backlog: u64,
    updates: SyncSender<Update>,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    let mut follower = Follower {
        session: card.card.session_id,
        card,
        cursor: None,
        backlog,
        ended: false,
        next: None,
        sealed: false,
        updates,
        stop,
    };
    let run = move || {
        // To heal what was lost while a session works hard must not be at its cost.
        if let Err(e) = sys::process::nice_this_thread(NICE) {
            tracing::debug!(error = %e, "the follower keeps its priority");
        }
        follower.run();
    };
    thread::Builder::new().name("assay-follow".into()).spawn(run)
}

/// Why a connection is over.
enum Over {
    /// Nobody wants to hear more.
    Stopped,
    /// The other side closed it, or it broke.
    Closed,
    /// The other side speaks a later version.
    TooNew(TooNew),
}

struct Follower {
    card: RunCard,
    session: SessionId,
    /// Cursor of the next event that is to be told; `None` before the first.
    cursor: Option<u64>,
    backlog: u64,
    /// The session's chain has its end, and the session that follows.
    ended: bool,
    /// The session that its end announced.
    next: Option<SessionId>,
    /// Its pack is done.
    sealed: bool,
    updates: SyncSender<Update>,
    stop: Arc<AtomicBool>,
}

impl Follower {
    fn run(&mut self) {
        loop {
            match self.connected() {
                Ok(Over::Stopped) => return,
                Ok(Over::Closed) => {}
                Ok(Over::TooNew(e)) => return self.wait(e.to_string()),
                Err(e) => tracing::debug!(session = %self.session, error = %e, "the live connection broke"),
            }
            if self.stopped() {
                return;
            }
            let Some(card) = self.still_there() else { break };
            if self.tell(Update::Lost(self.session)).is_none() {
                return;
            }
            self.card = card;
            thread::sleep(RETRY);
        }
        if self.rest(None).is_some() {
            let _ = self.tell(Update::Gone(Gone::of(self.session, &self.card.audit_dir)));
        }
    }

    /// Nothing of the session can be told: says so, and when its process has ended.
    fn wait(&self, why: String) {
        if self.tell(Update::TooNew { session: self.session, why }).is_none() {
            return;
        }
        while !self.stopped() {
            if self.still_there().is_none() {
                let _ = self.tell(Update::Gone(Gone::of(self.session, &self.card.audit_dir)));
                return;
            }
            thread::sleep(LOOK);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// `None` if nobody listens any more.
    fn tell(&self, update: Update) -> Option<()> {
        if self.stopped() { None } else { self.updates.send(update).ok() }
    }

    /// The card of the process that is followed, if it lives.
    fn still_there(&self) -> Option<RunCard> {
        let socket = self.card.card.socket.as_deref()?;
        let dir = socket.parent()?;
        discovery::live_in(dir).into_iter().find(|c| c.card.socket.as_deref() == Some(socket))
    }

    fn connected(&mut self) -> io::Result<Over> {
        let Some(socket) = self.card.card.socket.clone() else { return Ok(Over::Closed) };
        let stream = discovery::connect(&socket)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        let mut reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let mut bytes = Vec::new();
        let mut asked = false;
        loop {
            match self.line(&mut reader, &mut bytes) {
                Ok(true) => {}
                Ok(false) => return Ok(Over::Closed),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Over::Stopped),
                Err(e) => return Err(e),
            }
            let line = match Line::parse(&bytes) {
                Ok(line) => line,
                Err(e) => match newer_hello(&bytes) {
                    Some(e) => return Ok(Over::TooNew(e)),
                    None => return Err(e.into()),
                },
            };
            bytes.clear();
            if !asked {
                let Line::Hello(hello) = &line else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "no hello"));
                };
                asked = true;
                self.ask(hello, &stream)?;
            }
            if self.hear(line).is_none() {
                return Ok(Over::Stopped);
            }
        }
    }

    /// Reads a line; `false` at the end, `Interrupted` when it is to stop.
    fn line(&self, reader: &mut BufReader<UnixStream>, bytes: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            match reader.read_until(b'\n', bytes) {
                Ok(0) => return Ok(false),
                Ok(_) if bytes.ends_with(b"\n") => return Ok(true),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if self.stopped() {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                }
                Err(e) => return Err(e),
            }
            if bytes.len() > MAX_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
        }
    }

    /// Asks for what is missing up to now.
    fn ask(&mut self, hello: &Hello, mut stream: &UnixStream) -> io::Result<()> {
        let now = hello.session.card.session_id;
        if self.cursor.is_some() && now != self.session {
            // Sessions have passed since; their files tell of them.
            let _ = self.rest(Some(now));
        }
        if now != self.session || self.cursor.is_none() {
            let first = self.cursor.is_none();
            self.begin(hello);
            self.cursor = Some(if first { hello.cursor.saturating_sub(self.backlog) } else { 0 });
        }
        let request = Request { from: self.cursor.unwrap_or_default(), session_id: Some(self.session) };
        let mut bytes = serde_json::to_vec(&request)?;
        bytes.push(b'\n');
        stream.write_all(&bytes)
    }

    fn begin(&mut self, hello: &Hello) {
        self.session = hello.session.card.session_id;
        self.card = hello.session.clone();
        self.ended = false;
        self.next = None;
        self.sealed = false;
    }

    fn hear(&mut self, line: Line) -> Option<()> {
        match &line {
            Line::Hello(hello) if hello.session.card.session_id != self.session => {
                if !self.ended || self.next != Some(hello.session.card.session_id) {
                    // The end of this session has not been heard, or others lie between: the files tell of them.
                    self.rest(Some(hello.session.card.session_id))?;
                }
                self.begin(hello);
                self.cursor = Some(0);
            }
            Line::Gap(gap) if gap.session_id == self.session => {
                self.heal(gap.from, gap.to)?;
                return Some(());
            }
            Line::PackProgress(p) => self.sealed |= p.session_id == self.session && p.state != PackState::Sealing,
            _ => {}
        }
        match line.place() {
            Some((session, _)) if session != self.session => Some(()),
            Some((_, cursor)) => {
                let expected = self.cursor.unwrap_or_default();
                if cursor < expected {
                    return Some(());
                }
                // What a lost line leaves behind is a gap, whoever lost it.
                if cursor > expected {
                    self.heal(expected, cursor)?;
                }
                self.cursor = Some(cursor + 1);
                self.chained(line)
            }
            None => self.tell(Update::Line(Box::new(line))),
        }
    }

    /// Tells an event of the chain that is next.
    fn chained(&mut self, line: Line) -> Option<()> {
        let chained = line.chained();
        if let Some(end) = chained.and_then(|c| c.end.as_ref()) {
            (self.ended, self.next) = (true, end.next);
        }
        let call = chained.and_then(|c| c.call.as_ref()).filter(|call| call.tool_name.is_none());
        let partial = call.and_then(|call| call.receipt_id);
        self.tell(Update::Line(Box::new(line)))?;
        if let Some(receipt) = partial {
            self.receipts(&BTreeSet::from([receipt]))?;
        }
        Some(())
    }

    /// Tells the events `from..to` from the segment.
    fn heal(&mut self, from: u64, to: u64) -> Option<()> {
        let from = from.max(self.cursor.unwrap_or_default());
        let mut fold = Fold::default();
        fold.set_server(&self.card.card.server_id);
        let (segment, mut ends) = (self.card.segment.clone(), None);
        let mut partial = BTreeSet::new();
        let (mut listening, mut behind, mut too_new) = (Some(()), from, None);
        let healed = journal::events(&segment, from.saturating_sub(RUN_UP), to, &mut |seq, read| {
            let mut line = match read {
                Reading::Readable(e) => fold.event(&e),
                Reading::TooNew(e) => {
                    let line = fold.unread(self.session, seq, e.to_string());
                    too_new = too_new.take().or(Some(e));
                    line
                }
                Reading::Damaged(why) => fold.unread(self.session, seq, why),
            };
            if seq < from || listening.is_none() {
                return;
            }
            if from > RUN_UP {
                uncounted(&mut line);
            }
            if let Some(c) = line.chained() {
                ends.clone_from(&c.end);
                let call = c.call.as_ref().filter(|call| call.tool_name.is_none());
                partial.extend(call.and_then(|call| call.receipt_id));
            }
            listening = self.tell(Update::Line(Box::new(line)));
            behind = seq.saturating_add(1);
        });
        match (healed, too_new) {
            (Ok(()), None) => {}
            (Ok(()), Some(e)) => {
                let why = format!("{}: {e}", segment.display());
                self.tell(Update::TooNew { session: self.session, why })?;
            }
            (Err(e), _) => tracing::warn!(path = %segment.display(), error = %e, "a gap could not be healed"),
        }
        self.cursor = Some(if to == u64::MAX { behind } else { to });
        if let Some(end) = ends {
            (self.ended, self.next) = (true, end.next);
        }
        listening?;
        if partial.is_empty() { Some(()) } else { self.receipts(&partial) }
    }

    fn receipts(&self, wanted: &BTreeSet<ReceiptId>) -> Option<()> {
        let mut rows = Vec::new();
        let path = &self.card.receipts;
        match journal::calls(path, Some(wanted), &mut |r| rows.push(CallRow::of_receipt(r))) {
            Ok(None) => {}
            Ok(Some(e)) => {
                self.tell(Update::TooNew { session: self.session, why: format!("{}: {e}", path.display()) })?;
            }
            Err(e) => tracing::warn!(path = %path.display(), error = %e, "receipts could not be read"),
        }
        rows.into_iter().try_for_each(|row| self.tell(Update::Call(Box::new(row))))
    }

    /// Tells what a process left in its files, behind what was heard: the rest of the session, and those that followed it,
    /// but `before`.
    fn rest(&mut self, before: Option<SessionId>) -> Option<()> {
        loop {
            if !self.ended {
                self.heal(self.cursor.unwrap_or_default(), u64::MAX)?;
            }
            self.tell_of_pack()?;
            let follower = self.follower_of().filter(|(next, _)| Some(*next) != before);
            let Some((next, card)) = follower else { return Some(()) };
            self.card = card;
            self.session = next;
            self.ended = false;
            self.next = None;
            self.cursor = Some(0);
        }
    }

    /// Nobody is left who could say how far the pack is; whether there is one can be seen.
    fn tell_of_pack(&mut self) -> Option<()> {
        if self.sealed {
            return Some(());
        }
        let name = self.card.segment.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let paths = AuditDir::at(&self.card.audit_dir).session_of_segment(name);
        let Some(pack) = paths.map(|p| p.pack).filter(|p| p.is_dir()) else { return Some(()) };
        let (session_id, problems) = (self.session, Vec::new());
        let told = PackProgress { pack: Some(pack), problems, session_id, state: PackState::Built };
        self.tell(Update::Line(Box::new(Line::PackProgress(told))))
    }

    /// The session that continues this one, from the files alone.
    fn follower_of(&self) -> Option<(SessionId, RunCard)> {
        let dir = AuditDir::at(&self.card.audit_dir);
        let segments: Vec<PathBuf> = std::fs::read_dir(dir.audit()).ok()?.flatten().map(|e| e.path()).collect();
        let announced = self.next;
        segments.into_iter().find_map(|path| {
            let paths = dir.session_of_segment(path.file_name()?.to_str()?)?;
            if announced.is_some_and(|id| id != paths.id) || paths.id == self.session {
                return None;
            }
            let mut continues = None;
            journal::events(&paths.segment, 0, 1, &mut |_, read| {
                continues = read.ok().and_then(|e| e.chain_start().and_then(|s| s.continues));
            })
            .ok()?;
            (continues == Some(self.session)).then(|| {
                let mut card = self.card.clone();
                card.card.session_id = paths.id;
                card.segment = paths.segment;
                card.receipts = paths.receipts;
                (paths.id, card)
            })
        })
    }
}

/// Whether a line that does not read begins a stream of a later version, or names a session of one.
fn newer_hello(line: &[u8]) -> Option<TooNew> {
    let session = || version::stated(line, "session");
    reading::newer::<Hello>(line)
        .or_else(|| session().and_then(reading::newer::<RunCard>))
        .or_else(|| session().and_then(|s| version::stated(s, "card")).and_then(reading::newer::<Card>))
}

/// Counts that were not made from the beginning say nothing.
fn uncounted(line: &mut Line) {
    match line {
        Line::CallStarted(c)
        | Line::PolicyDecided(c)
        | Line::CallFinished(c)
        | Line::Chain(c)
        | Line::Notification(c) => c.totals = Totals::default(),
        // The end itself has the counts of all.
        _ => {}
    }
}
