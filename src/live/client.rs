//! Following live sessions: connect, read, fill gaps from the files, and reconnect.
//!
//! One blocking thread per proxy, which follows all of its sessions or the wanted ones, and sends updates into a
//! bounded channel: a slow reader slows the thread, which then is a slow subscriber that loses events and reads them
//! from the files.

mod followed;

use super::{
    discovery::{self, Unread},
    former,
    protocol::{Brief, Hello, LiveLine, MAX_LINE, Request, RunCard, SessionHead, Subject},
    row::{CallRow, Totals},
};
use crate::{
    model::{
        SessionId,
        reading::{self, TooNew},
        version,
    },
    paths::AuditDir,
    record::{card::Card, mark::NotOurs},
    sys,
};
pub(super) use followed::built;
use followed::{Followed, Teller};
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, atomic::AtomicBool, mpsc::SyncSender},
    thread::{self, JoinHandle},
    time::Duration,
};

/// How often a waiting thread checks whether it must stop.
const LOOK: Duration = Duration::from_millis(100);
/// Pause before a lost connection is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Sessions of a process that are remembered; those that have ended are forgotten first.
const MAX_FOLLOWED: usize = 1024;

/// As the proxy's live thread.
const NICE: i32 = 10;

/// An update from a follower.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// A line of the protocol, from the socket or made from the files. In the order of cursors, each event once.
    Line(Box<LiveLine>),
    /// A call whose beginning was not seen, from its receipt.
    Call(Box<CallRow>),
    /// What was skipped, because a later version wrote it or it does not parse. The list is complete, and sent whenever
    /// it changes.
    Unread(Vec<Unread>),
    /// A later version wrote the session's lines or files: no more updates about it follow.
    TooNew {
        /// Id of the session.
        session: SessionId,
        /// What it is, and its version.
        why: String,
    },
    /// The connection was lost; the follower reconnects.
    Lost(SessionId),
    /// The process has ended, and there are no more updates.
    Gone(Gone),
}

/// A session whose process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// Id of the session.
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
    /// Looks it up in its audit directory and in the user directory.
    #[must_use]
    pub fn of(session: SessionId, audit_dir: &Path) -> Self {
        // If its directory was removed as well, nothing is known.
        let mark = audit_dir.is_dir().then(|| AuditDir::at(audit_dir).of_user().mark(session));
        let left_alone = mark.and_then(Result::err).map(|why| match why {
            NotOurs::TooNew { .. } => LeftAlone::TooNew,
            _ => LeftAlone::NotOurs,
        });
        Self { session, left_alone }
    }
}

/// Starts following all sessions of a proxy, given the card of one. The last `backlog` events of each come first,
/// from the files if need be.
///
/// # Errors
/// No thread could be made.
pub fn follow(
    card: RunCard,
    backlog: u64,
    updates: SyncSender<Update>,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    follow_only(card, None, (backlog, false), updates, stop)
}

/// The same, but only for sessions whose hexadecimal digits begin with `only`, and those that continue them; and with what their
/// messages hold, where proxies offer that and it is asked for.
///
/// # Errors
/// No thread could be made.
pub fn follow_only(
    card: RunCard,
    only: Option<String>,
    (backlog, contents): (u64, bool),
    updates: SyncSender<Update>,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    let teller = Teller { updates, stop };
    let mut follower = Follower { card, only, backlog, contents, sessions: BTreeMap::new(), teller };
    let run = move || {
        // Reading lost events from the files must not slow down a busy session.
        if let Err(e) = sys::process::nice_this_thread(NICE) {
            tracing::debug!(error = %e, "the follower keeps its priority");
        }
        follower.run();
    };
    thread::Builder::new().name("assay-follow".into()).spawn(run)
}

/// Why a connection is over.
enum Over {
    /// No one receives the updates any more.
    Stopped,
    /// The other side closed it, or it broke.
    Closed,
    /// The other side speaks a later version.
    TooNew(TooNew),
}

struct Follower {
    /// The card by which the process was found.
    card: RunCard,
    only: Option<String>,
    backlog: u64,
    /// Ask for what messages hold.
    contents: bool,
    /// The sessions that were heard of, running or not.
    sessions: BTreeMap<SessionId, Followed>,
    teller: Teller,
}

impl Follower {
    fn run(&mut self) {
        loop {
            match self.connected() {
                Ok(Over::Stopped) => return,
                Ok(Over::Closed) => {}
                Ok(Over::TooNew(e)) => return self.wait(e.to_string()),
                Err(e) => tracing::debug!(session = %self.id(), error = %e, "the live connection broke"),
            }
            if self.teller.stopped() {
                return;
            }
            if !self.still_there() {
                break;
            }
            let mut lost: Vec<_> = self.sessions.values().filter(|s| !s.ended).map(Followed::id).collect();
            if self.sessions.is_empty() {
                lost.push(self.id());
            }
            if lost.into_iter().try_for_each(|id| self.teller.tell(Update::Lost(id))).is_none() {
                return;
            }
            thread::sleep(RETRY);
        }
        self.gone();
    }

    const fn id(&self) -> SessionId {
        self.card.card.session_id
    }

    /// The process has ended: the rest is read from its files.
    fn gone(&mut self) -> Option<()> {
        if self.sessions.is_empty() {
            self.begin(self.card.clone(), 0);
        }
        let open: Vec<_> = self.sessions.values().filter(|s| !s.is_over()).map(Followed::id).collect();
        open.into_iter().try_for_each(|id| self.rest(id, None))?;
        let last = |s: &&Followed| s.next.is_none_or(|next| !self.sessions.contains_key(&next));
        self.sessions.values().filter(last).try_for_each(|s| self.teller.tell(Update::Gone(s.gone())))
    }

    /// No session of the process can be read: reports that, and later that the process has ended.
    fn wait(&self, why: String) {
        if self.teller.tell(Update::TooNew { session: self.id(), why }).is_none() {
            return;
        }
        while !self.teller.stopped() {
            if !self.still_there() {
                let _ = self.teller.tell(Update::Gone(Gone::of(self.id(), &self.card.audit_dir)));
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Whether the process that is followed lives.
    fn still_there(&self) -> bool {
        let Some(socket) = self.card.card.socket.as_deref() else { return false };
        let live = socket.parent().map(discovery::live_in).unwrap_or_default();
        live.iter().any(|c| c.card.socket.as_deref() == Some(socket))
    }

    fn connected(&mut self) -> io::Result<Over> {
        let Some(socket) = self.card.card.socket.clone() else { return Ok(Over::Closed) };
        let stream = discovery::connect(&socket)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        let mut reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let (mut bytes, mut greeted) = (Vec::new(), false);
        loop {
            match self.line(&mut reader, &mut bytes) {
                Ok(true) => {}
                Ok(false) => return Ok(Over::Closed),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Over::Stopped),
                Err(e) => return Err(e),
            }
            let heard = match LiveLine::parse(&bytes) {
                Ok(LiveLine::Hello(hello)) => self.greeted(&hello, !greeted, &stream)?,
                Ok(_) if !greeted => return Err(io::Error::new(io::ErrorKind::InvalidData, "no hello")),
                Ok(line) => self.hear(line, &stream)?,
                Err(e) => match (former::hello(&bytes), newer_hello(&bytes)) {
                    (Some(hello), _) => self.greeted_by_former(hello, !greeted, &stream)?,
                    (None, Some(e)) => return Ok(Over::TooNew(e)),
                    (None, None) => return Err(e.into()),
                },
            };
            greeted = true;
            bytes.clear();
            if heard.is_none() {
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
                    if self.teller.stopped() {
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

    /// Asks for what is missing up to now, and for what is to come.
    fn greeted(&mut self, hello: &Hello, first: bool, stream: &UnixStream) -> io::Result<Option<()>> {
        let new = self.sessions.is_empty();
        let contents = self.contents && hello.contents;
        let listed = |id: SessionId| hello.sessions.iter().any(|s| s.session_id == id);
        if first {
            let open: Vec<_> = self.sessions.values().filter(|s| !s.is_over()).map(|s| (s.id(), s.cursor)).collect();
            for (id, cursor) in open {
                if listed(id) {
                    ask(
                        stream,
                        &Request { contents, from: Some(cursor), last: None, subscribe: Subject::Session(id) },
                    )?;
                } else if self.rest(id, None).is_none() {
                    return Ok(None);
                }
            }
        }
        // The first time, ask for some of the past; after that, for every session that began meanwhile.
        let (from, last) = if new { (None, Some(self.backlog)) } else { (Some(0), None) };
        if self.only.is_none() {
            ask(stream, &Request { contents, from, last, subscribe: Subject::All })?;
            return Ok(Some(()));
        }
        for brief in hello.sessions.iter().filter(|s| self.wants(s)) {
            ask(stream, &Request { contents, from, last, subscribe: Subject::Session(brief.session_id) })?;
        }
        Ok(Some(()))
    }

    /// Whether a session was asked for by its digits and is not followed.
    fn wants(&self, session: &Brief) -> bool {
        self.only.as_ref().is_some_and(|only| session.session_id.hex().starts_with(only))
            && !self.sessions.contains_key(&session.session_id)
    }

    /// The same for a proxy of protocol 1: it serves one session after the other.
    fn greeted_by_former(&mut self, hello: SessionHead, first: bool, stream: &UnixStream) -> io::Result<Option<()>> {
        let (id, new) = (hello.session.card.session_id, self.sessions.is_empty());
        // Sessions whose end was not heard: read it from their files, and the sessions between.
        let open = self.sessions.values().filter(|s| s.id() != id && !(s.ended && s.next == Some(id)));
        let open: Vec<_> =
            open.filter(|s| s.next.is_none_or(|n| !self.sessions.contains_key(&n))).map(Followed::id).collect();
        if open.into_iter().try_for_each(|open| self.rest(open, Some(id))).is_none() {
            return Ok(None);
        }
        if !self.sessions.contains_key(&id) {
            self.begin(hello.session.clone(), if new { hello.cursor.saturating_sub(self.backlog) } else { 0 });
        }
        if first {
            let from = self.sessions.get(&id).map_or(0, |s| s.cursor);
            ask(stream, &former::Request { from, session_id: id })?;
        }
        Ok(self.teller.tell(Update::Line(Box::new(LiveLine::Session(Box::new(hello))))))
    }

    fn begin(&mut self, card: RunCard, cursor: u64) {
        if self.sessions.len() >= MAX_FOLLOWED {
            let over = self.sessions.values().find(|s| s.is_over()).or_else(|| self.sessions.values().next());
            if let Some(id) = over.map(Followed::id) {
                self.sessions.remove(&id);
            }
        }
        self.sessions.insert(card.card.session_id, Followed::new(card, cursor));
    }

    fn hear(&mut self, line: LiveLine, stream: &UnixStream) -> io::Result<Option<()>> {
        let id = match &line {
            LiveLine::Session(head) => {
                let card = head.session.clone();
                match self.sessions.get_mut(&card.card.session_id) {
                    Some(known) => known.card = card,
                    None => self.begin(card, head.from),
                }
                None
            }
            LiveLine::Begun(brief) => {
                if self.wants(brief) {
                    let subscribe = Subject::Session(brief.session_id);
                    // What was asked for contents once stays so.
                    ask(stream, &Request { contents: false, from: Some(0), last: None, subscribe })?;
                }
                return Ok(Some(()));
            }
            LiveLine::Ended(_) => return Ok(Some(())),
            LiveLine::Gap(gap) => Some(gap.session_id),
            LiveLine::PackProgress(p) => Some(p.session_id),
            // The proxy had dropped the session before: read its files.
            LiveLine::Error(e) if e.session_id.is_some_and(|id| self.sessions.contains_key(&id)) => {
                return Ok(e.session_id.and_then(|id| self.rest(id, None)));
            }
            line => line.place().map(|(id, _)| id),
        };
        let Some(id) = id else { return Ok(self.teller.tell(Update::Line(Box::new(line)))) };
        match self.sessions.get_mut(&id) {
            Some(session) => Ok(session.hear(line, &self.teller)),
            None => Ok(Some(())),
        }
    }

    /// Reads the rest of a session from its files, and the sessions that continued it, up to but without `before`.
    fn rest(&mut self, id: SessionId, before: Option<SessionId>) -> Option<()> {
        let mut id = id;
        loop {
            let session = self.sessions.get_mut(&id)?;
            session.rest(&self.teller)?;
            let next = session.continued_by();
            let Some(card) = next.filter(|card| Some(card.card.session_id) != before) else { return Some(()) };
            id = card.card.session_id;
            if self.sessions.contains_key(&id) {
                return Some(());
            }
            self.begin(card, 0);
        }
    }
}

fn ask(mut stream: &UnixStream, request: &impl serde::Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(request)?;
    bytes.push(b'\n');
    stream.write_all(&bytes)
}

/// Whether a line that does not parse begins a stream of a later version, or names a session of one.
fn newer_hello(line: &[u8]) -> Option<TooNew> {
    let session = || version::stated(line, "session");
    reading::newer::<Hello>(line)
        .or_else(|| session().and_then(reading::newer::<RunCard>))
        .or_else(|| session().and_then(|s| version::stated(s, "card")).and_then(reading::newer::<Card>))
}

/// Removes the counts of a line, for streams that do not start at the beginning of the session.
fn uncounted(line: &mut LiveLine) {
    match line {
        LiveLine::CallStarted(c)
        | LiveLine::PolicyDecided(c)
        | LiveLine::CallFinished(c)
        | LiveLine::Chain(c)
        | LiveLine::Notification(c) => c.totals = Totals::default(),
        // The end itself holds the counts of the whole session.
        _ => {}
    }
}
