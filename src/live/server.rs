//! The proxy's side of the live socket: one low-priority thread that waits for everything at once and for nobody.
//!
//! Plain `poll(2)` on non-blocking sockets, not an asynchronous runtime: there is one listener and a handful of sockets, and
//! a session must not pay for a runtime that nobody may ever need. The thread reads what is told from the segment that the
//! recorder has written, makes each line once for all subscribers, and keeps the last of them in a bounded ring. A
//! subscriber is a place in that ring and a bounded buffer: one that does not read falls behind, is told how many events it
//! lost, and costs nothing. While there is no subscriber, nothing is read and nothing is made.

mod feed;
mod subscriber;

use super::{
    discovery::{self, OwnCard},
    hub::{Ear, Hub, Note, Reach, StderrLine},
    protocol::{Line, PackProgress, RUN_CARD_VERSION, RunCard, Stderr, StderrLost},
    ring::{Entry, Ring},
};
use crate::{
    model::SessionId,
    record::{broadcast::Begun, card::Card},
    sys,
};
use feed::Feed;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::AsFd as _,
};
use std::{
    collections::BTreeMap,
    io,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use subscriber::Subscriber;

/// Subscribers at a time; whoever comes beyond is turned away.
pub const MAX_SUBSCRIBERS: usize = 16;
/// Connections that are taken in one round.
const ACCEPTS: usize = 64;
/// How long nobody is let in after somebody was turned away.
const PAUSE: Duration = Duration::from_millis(50);
/// A subscriber that has taken nothing for this long gives its place to another who comes.
const STALLED: Duration = Duration::from_secs(5);
/// How long the last lines are tried to be given to subscribers that read.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// At most this often the segment is looked at, however often the recorder writes.
const ROUND: Duration = Duration::from_millis(4);

/// As the recorder: on a busy machine a dashboard is not to starve. That it takes little from the recorder is [`REST`]'s part.
const NICE: i32 = 10;
/// After working for some time it rests for twice as long, but no longer than this: whatever happens, most of a core is left.
const REST: Duration = Duration::from_millis(20);

/// Starts the live thread. It makes its socket when the first session has begun on disk.
///
/// # Errors
/// No pipe or no thread could be made.
pub fn start(audit_dir: &Path) -> io::Result<(Arc<Hub>, JoinHandle<()>)> {
    start_in(audit_dir, discovery::run_dirs())
}

/// The same with given run directories.
///
/// # Errors
/// As [`start`].
pub fn start_in(audit_dir: &Path, run_dirs: Vec<PathBuf>) -> io::Result<(Arc<Hub>, JoinHandle<()>)> {
    let (hub, ear) = Hub::new()?;
    let mut server = Server {
        ear,
        audit_dir: audit_dir.to_owned(),
        run_dirs,
        place: None,
        sessions: BTreeMap::new(),
        current: 0,
        feed: None,
        ring: Ring::default(),
        subscribers: Vec::new(),
        paused_until: None,
        next_round: Instant::now(),
        closing: false,
        stderr_lost: 0,
    };
    let run = move || {
        if let Err(e) = sys::process::nice_this_thread(NICE) {
            tracing::debug!(error = %e, "the live thread keeps its priority");
        }
        server.run();
    };
    Ok((hub, thread::Builder::new().name("assay-live".into()).spawn(run)?))
}

/// Where the process can be found.
struct Place {
    listener: UnixListener,
    socket: PathBuf,
    card: OwnCard,
}

/// A session of this process.
struct Session {
    card: RunCard,
    reach: Arc<Reach>,
    next: Option<SessionId>,
    /// Cursor behind its last event, once it has ended.
    end: Option<u64>,
}

struct Server {
    ear: Ear,
    audit_dir: PathBuf,
    run_dirs: Vec<PathBuf>,
    place: Option<Place>,
    /// By their number in this process; those of which the ring still tells.
    sessions: BTreeMap<u32, Session>,
    current: u32,
    feed: Option<Feed>,
    ring: Ring,
    subscribers: Vec<Subscriber>,
    paused_until: Option<Instant>,
    next_round: Instant,
    closing: bool,
    /// Lines of stderr whose loss has been told.
    stderr_lost: u64,
}

impl Server {
    fn run(&mut self) {
        while !self.closing {
            if let Err(e) = self.wait() {
                tracing::warn!(error = %e, "the live socket is given up");
                break;
            }
            self.round();
        }
        self.last_words();
        if let Some(place) = self.place.take() {
            place.card.remove();
            let _ = std::fs::remove_file(&place.socket);
        }
        self.ear.hub.watched_by(0);
    }

    /// Until something can be done.
    fn wait(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.paused_until.is_some_and(|at| at <= now) {
            self.paused_until = None;
        }
        if !self.subscribers.is_empty() && self.next_round > now {
            thread::sleep(self.next_round - now);
        }
        // There may be more in the file than one round has taken.
        let busy = !self.subscribers.is_empty() && self.is_behind();
        let limit = if busy { Some(Duration::ZERO) } else { self.paused_until.map(|_| PAUSE) };
        let limit = limit.map(|d| rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(d.subsec_nanos()) });
        let mut fds = vec![PollFd::from_borrowed_fd(self.ear.bell(), PollFlags::IN)];
        if let (Some(place), None) = (&self.place, self.paused_until) {
            fds.push(PollFd::new(&place.listener, PollFlags::IN));
        }
        for s in &self.subscribers {
            let wanted = if s.has_output() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::from_borrowed_fd(s.stream().as_fd(), wanted));
        }
        match poll(&mut fds, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) | Ok(_) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn round(&mut self) {
        let began = worked();
        self.ear.hush();
        self.accept();
        while let Ok(note) = self.ear.notes.try_recv() {
            self.hear(note);
        }
        if !self.subscribers.is_empty() {
            self.catch_up(None);
            self.tell_stderr(false);
            self.serve();
        }
        self.next_round = Instant::now() + (2 * worked().saturating_sub(began)).clamp(ROUND, REST);
    }

    /// Whether there is something to read.
    fn is_behind(&self) -> bool {
        let (Some(feed), Some(session)) = (&self.feed, self.sessions.get(&self.current)) else { return false };
        feed.is_behind(session.reach.mark())
    }

    fn serve(&mut self) {
        let Self { subscribers, ring, sessions, feed, ear, current, .. } = self;
        let head = feed.as_ref().map(Feed::head);
        let view = subscriber::View { ring, sessions, current: *current, head };
        let reach = sessions.get(current).map(|s| Arc::clone(&s.reach)).unwrap_or_default();
        let before = subscribers.len();
        subscribers.retain_mut(|s| {
            let lost = |events| reach.missed(events);
            s.serve(&view, &lost).is_ok()
        });
        if subscribers.len() != before {
            ear.hub.watched_by(subscribers.len());
        }
    }

    fn accept(&mut self) {
        let Some(place) = &self.place else { return };
        if self.paused_until.is_some() {
            return;
        }
        for _ in 0..ACCEPTS {
            let Ok((stream, _)) = place.listener.accept() else { return };
            let ours = sys::peer::peer_uid(&stream).is_ok_and(|uid| uid == rustix::process::geteuid().as_raw());
            if !ours {
                tracing::warn!("another user's connection to the live socket was refused");
                continue;
            }
            if self.subscribers.len() >= MAX_SUBSCRIBERS {
                let Some(at) = self.subscribers.iter().position(|s| s.is_stalled(STALLED)) else {
                    // A thousand who come in a row must not keep this thread busy.
                    self.paused_until = Some(Instant::now() + PAUSE);
                    continue;
                };
                drop(self.subscribers.swap_remove(at));
            }
            if let Ok(subscriber) = Subscriber::new(stream) {
                self.subscribers.push(subscriber);
                self.ear.hub.watched_by(self.subscribers.len());
            }
        }
    }

    fn hear(&mut self, note: Note) {
        match note {
            Note::Begun(begun, reach) => self.begun(&begun, reach),
            Note::Card(card) => self.card(*card),
            Note::Ended { session, segment_len, next } => {
                if let Some(s) = self.sessions.get_mut(&self.current).filter(|s| s.card.card.session_id == session) {
                    s.next = next;
                }
                self.catch_up(Some(segment_len));
                let end = self.feed.as_ref().map(Feed::cursor);
                if let Some(s) = self.sessions.get_mut(&self.current).filter(|s| s.card.card.session_id == session) {
                    s.end = end;
                }
            }
            Note::Pack(progress) => self.pack(progress),
            Note::Close => self.closing = true,
        }
    }

    fn begun(&mut self, begun: &Begun, reach: Arc<Reach>) {
        let card = RunCard {
            audit_dir: self.audit_dir.clone(),
            card: begun.card.clone(),
            receipts: begun.paths.receipts.clone(),
            segment: begun.paths.segment.clone(),
            v: RUN_CARD_VERSION,
        };
        self.current += 1;
        self.feed = match Feed::open(self.feed.take(), &card, self.current) {
            Ok(feed) => Some(feed),
            Err(e) => {
                tracing::warn!(path = %card.segment.display(), error = %e, "this session cannot be watched");
                None
            }
        };
        self.sessions.insert(self.current, Session { card: card.clone(), reach, next: None, end: None });
        let oldest = self.ring.get(self.ring.first()).map_or(self.current, |e| e.session);
        let (current, subscribers) = (self.current, &self.subscribers);
        let wanted = |number| number + 1 >= current || subscribers.iter().any(|s| s.session() == number);
        self.sessions.retain(|number, _| *number >= oldest || wanted(*number));
        match &mut self.place {
            Some(place) => {
                if let Err(e) = place.card.update(card) {
                    tracing::warn!(error = %e, "the card in the run directory could not be brought up to date");
                }
            }
            None => self.open_place(&card),
        }
    }

    /// Makes the socket and its card in the first run directory that serves.
    fn open_place(&mut self, card: &RunCard) {
        for dir in &self.run_dirs {
            match open_place_in(dir, card) {
                Ok(place) => {
                    self.ear.hub.listens_at(place.socket.clone());
                    self.place = Some(place);
                    return;
                }
                Err(e) => tracing::info!(dir = %dir.display(), error = %e, "no live socket in this directory"),
            }
        }
        tracing::warn!("no directory could hold the live socket: this session cannot be watched");
    }

    fn card(&mut self, card: Card) {
        let Some(s) = self.sessions.get_mut(&self.current).filter(|s| s.card.card.session_id == card.session_id) else {
            return;
        };
        s.card.card = card;
        if let Some(place) = &mut self.place
            && let Err(e) = place.card.update(s.card.clone())
        {
            tracing::warn!(error = %e, "the card in the run directory could not be brought up to date");
        }
    }

    /// Makes lines of what has been written since; of all of it, up to `end`, or of what is there now.
    fn catch_up(&mut self, end: Option<u64>) {
        if self.subscribers.is_empty() {
            return;
        }
        let Self { feed: Some(feed), ring, sessions, current, subscribers, .. } = self else { return };
        let Some(session) = sessions.get(current) else { return };
        let (mark, next) = (session.reach.mark(), session.next);
        if let Err(e) = feed.read(mark, end, subscribers.iter().any(Subscriber::is_new), next, ring) {
            tracing::warn!(error = %e, "the segment cannot be read; this session is watched no further");
            self.feed = None;
        }
    }

    /// Makes lines of the server's stderr; of an unfinished one too, if `all`.
    fn tell_stderr(&mut self, all: bool) {
        let Some(session) = self.sessions.get(&self.current) else { return };
        let session_id = session.card.card.session_id;
        let taken = self.ear.hub.take_stderr(all);
        if taken.lost > self.stderr_lost {
            self.stderr_lost = taken.lost;
            let next = taken.lines.front().map_or(taken.next, |l| l.seq);
            self.say(&Line::StderrLost(StderrLost { lost: taken.lost, next, session_id }));
        }
        let cursor = self.cursor();
        for StderrLine { seq, at, text } in taken.lines {
            let line = String::from_utf8_lossy(&text).into_owned();
            self.say(&Line::Stderr(Stderr { at, cursor, line, seq, session_id }));
        }
    }

    fn cursor(&self) -> u64 {
        self.feed.as_ref().map_or(0, Feed::cursor)
    }

    /// Tells what is not in the chain.
    fn say(&mut self, line: &Line) {
        let cursor = self.cursor();
        self.ring.push(Entry { session: self.current, cursor, chained: false, bytes: line.to_bytes().into() });
    }

    fn pack(&mut self, progress: PackProgress) {
        self.say(&Line::PackProgress(progress));
    }

    /// What is left to say is said to those who listen.
    fn last_words(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        loop {
            self.catch_up(None);
            self.tell_stderr(true);
            self.serve();
            let behind = self.is_behind();
            // Who has taken nothing of late is not waited for.
            let waiting = self.subscribers.iter().any(|s| s.has_more(&self.ring) && !s.is_stalled(LAST_WORDS / 4));
            if self.subscribers.is_empty() || !waiting && !behind || Instant::now() >= until {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How long this thread has worked; what it waited for a core does not count.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn open_place_in(dir: &Path, card: &RunCard) -> io::Result<Place> {
    let stem = dir.join(card.card.session_id.hex());
    let socket = stem.with_extension("sock");
    if !discovery::fits(&socket) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    discovery::private_run_dir(dir)?;
    drop(discovery::live_in(dir));
    let mut card = card.clone();
    card.card.socket = Some(socket.clone());
    // The card first: a socket without one is taken for a dead proxy's.
    let card = OwnCard::create(stem.with_extension("json"), card)?;
    let bound = UnixListener::bind(&socket).and_then(|listener| {
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match bound {
        Ok(listener) => Ok(Place { listener, socket, card }),
        Err(e) => {
            card.remove();
            let _ = std::fs::remove_file(&socket);
            Err(e)
        }
    }
}
