//! The proxy's side of the live socket: one low-priority thread that waits for all its inputs at once and never for a
//! single peer.
//!
//! Plain `poll(2)` on non-blocking sockets, not an asynchronous runtime: there is one listener and a handful of sockets, and
//! a session must not pay for a runtime that may never be needed. The thread reads the events of a session from the
//! segment that the recorder has written, makes each line once for all subscribers, and keeps the last of them in a
//! bounded ring. A subscriber is a place in the ring of each session that it hears of and a bounded buffer: one that
//! does not read falls behind, learns how many events it lost, and costs nothing. For a session without subscribers
//! nothing is read and nothing is made.

mod feed;
mod sessions;
mod subscriber;
#[cfg(test)]
mod tests;

use super::{
    content::Content,
    discovery::{self, OwnCard},
    hub::{Ear, Hub, Note, Reach},
    protocol::{Ended, LiveLine, PackProgress, PackState, RUN_CARD_VERSION, RunCard, SessionState, Stderr, StderrLost},
    ring::{Entry, Ring},
    voice::{StderrLine, Voice},
};
use crate::{
    model::SessionId,
    record::{broadcast::Begun, card::Card},
    sys,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::AsFd as _,
};
use sessions::{LIMITS, Limits, Sessions};
use std::{
    io,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use subscriber::{Subscriber, View};

/// Most subscribers at a time; further ones are turned away.
pub const MAX_SUBSCRIBERS: usize = 64;
/// Most bytes of kept notices about sessions that begin and end.
const NOTICES: usize = 64 << 10;
/// Connections that are taken in one round.
const ACCEPTS: usize = 64;
/// How long no connection is accepted after one was turned away.
const PAUSE: Duration = Duration::from_millis(50);
/// A subscriber that has read nothing for this long loses its place to a new one.
const STALLED: Duration = Duration::from_secs(5);
/// How long the thread tries to send the last lines to subscribers that still read.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Shortest time between two looks at the segment, however often the recorder writes.
const ROUND: Duration = Duration::from_millis(4);

/// As the recorder's: on a busy machine a dashboard must not starve. [`REST`] sees to it that this takes little from
/// the recorder.
const NICE: i32 = 10;
/// After working for some time the thread rests for twice as long, but at most this long: most of a core is always left
/// free.
const REST: Duration = Duration::from_millis(20);

/// Starts the live thread. It makes its socket when the first session has begun on disk. `contents`: subscribers that ask for
/// it are sent what messages hold.
///
/// # Errors
/// No pipe or no thread could be made.
pub fn start(audit_dir: &Path, contents: bool) -> io::Result<(Arc<Hub>, JoinHandle<()>)> {
    start_with(audit_dir, discovery::run_dirs(), LIMITS, contents)
}

/// The same with given run directories.
///
/// # Errors
/// As [`start`].
pub fn start_in(audit_dir: &Path, run_dirs: Vec<PathBuf>) -> io::Result<(Arc<Hub>, JoinHandle<()>)> {
    start_with(audit_dir, run_dirs, LIMITS, false)
}

/// The same with given limits.
fn start_with(
    audit_dir: &Path,
    run_dirs: Vec<PathBuf>,
    limits: Limits,
    contents: bool,
) -> io::Result<(Arc<Hub>, JoinHandle<()>)> {
    let (hub, ear) = Hub::new(contents)?;
    let mut server = Server {
        ear,
        audit_dir: audit_dir.to_owned(),
        run_dirs,
        place: None,
        sessions: Sessions::new(limits),
        turn: 0,
        notices: Ring::new(NOTICES),
        speakers: Vec::new(),
        subscribers: Vec::new(),
        paused_until: None,
        next_round: Instant::now(),
        closing: false,
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
}

/// The stderr of a server.
struct Speaker {
    voice: Arc<Voice>,
    /// The session that it belongs to: its first one, and then those that continue it.
    session: SessionId,
    /// Lost lines that have been reported to subscribers.
    lost: u64,
}

struct Server {
    ear: Ear,
    audit_dir: PathBuf,
    run_dirs: Vec<PathBuf>,
    place: Option<Place>,
    sessions: Sessions,
    /// The session to read next, so that each gets its turn.
    turn: u32,
    /// Which sessions begin and end.
    notices: Ring,
    speakers: Vec<Speaker>,
    subscribers: Vec<Subscriber>,
    paused_until: Option<Instant>,
    next_round: Instant,
    closing: bool,
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
        self.sessions.take_cards().for_each(OwnCard::remove);
        if let Some(place) = self.place.take() {
            let _ = std::fs::remove_file(&place.socket);
        }
        self.ear.hub.watched_by(0);
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if self.paused_until.is_some_and(|at| at <= now) {
            self.paused_until = None;
        }
        if !self.subscribers.is_empty() && self.next_round > now {
            thread::sleep(self.next_round - now);
        }
        // The files may hold more than one round reads.
        let limit = if self.is_behind() {
            Some(Duration::ZERO)
        } else {
            let forget = self.sessions.forget_at().map(|at| at.saturating_duration_since(now) + ROUND);
            self.paused_until.map(|_| PAUSE).into_iter().chain(forget).min()
        };
        let limit = limit.map(|d| rustix::time::Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(d.subsec_nanos()),
        });
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
        self.forget();
        if !self.subscribers.is_empty() {
            self.catch_up();
            self.tell_stderr(false);
            self.tell_streams();
            self.tell_contents();
            self.serve();
            // A subscriber that has just got the state of the session now gets the kept lines.
            if self.tell_stderr(false) {
                self.serve();
            }
        }
        self.next_round = Instant::now() + (2 * worked().saturating_sub(began)).clamp(ROUND, REST);
    }

    /// Whether there is something to read for a subscriber.
    fn is_behind(&self) -> bool {
        let heard = |number| self.subscribers.iter().any(|s| s.hears(number));
        self.sessions.iter().any(|(number, s)| s.is_behind() && heard(number))
    }

    fn serve(&mut self) {
        let Self { subscribers, sessions, notices, ear, .. } = self;
        let view = View { sessions, notices, contents: ear.hub.contents.offered };
        let before = subscribers.len();
        subscribers.retain_mut(|s| s.serve(&view).is_ok());
        ear.hub.contents.wanted_by(subscribers.iter().filter(|s| s.wants_contents()).count());
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
                    // A thousand connections in a row must not keep this thread busy.
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
            Note::Ended { session, segment_len, next } => self.ended(session, segment_len, next),
            Note::Voice(session, voice) => self.speakers.push(Speaker { voice, session, lost: 0 }),
            Note::Pack(progress) => self.pack(progress),
            Note::Close => self.closing = true,
        }
    }

    fn begun(&mut self, begun: &Begun, reach: Arc<Reach>) {
        let mut card = RunCard {
            audit_dir: self.audit_dir.clone(),
            card: begun.card.clone(),
            receipts: begun.paths.receipts.clone(),
            segment: begun.paths.segment.clone(),
            v: RUN_CARD_VERSION,
        };
        let own = self.place_card(&mut card);
        let continues = card.card.continues;
        let number = self.sessions.begin(card, own, reach);
        let before = continues.and_then(|id| self.sessions.number(id));
        for speaker in self.speakers.iter_mut().filter(|s| Some(s.session) == continues) {
            speaker.session = begun.card.session_id;
        }
        self.subscribers.iter_mut().for_each(|s| s.begun(number, before));
        // The run card of the session that continues it has replaced this one's.
        if let Some(own) = before.and_then(|n| self.sessions.get_mut(n)).and_then(|s| s.own.take()) {
            own.remove();
        }
        if let Some(brief) = self.sessions.get(number).map(sessions::Session::brief) {
            self.notice(&LiveLine::Begun(brief));
        }
    }

    fn ended(&mut self, id: SessionId, segment_len: u64, next: Option<SessionId>) {
        self.sessions.end(id, segment_len, next);
        let Some(number) = self.sessions.number(id) else { return };
        // The session that continues it takes over what is known of the calls in flight.
        if self.subscribers.iter().any(|s| s.hears(number)) {
            self.sessions.read(number, true);
        }
        self.notice(&LiveLine::Ended(Ended { next, session_id: id }));
    }

    fn notice(&mut self, line: &LiveLine) {
        self.notices.push(Entry { cursor: 0, chained: false, is_content: false, bytes: line.to_bytes().into() });
    }

    /// Makes the card of a session that has begun; with the first one, the socket of the process.
    fn place_card(&mut self, card: &mut RunCard) -> Option<OwnCard> {
        if self.place.is_none() {
            return self.open_place(card);
        }
        let socket = &self.place.as_ref()?.socket;
        card.card.socket = Some(socket.clone());
        let path = socket.with_file_name(card.card.session_id.hex()).with_extension("json");
        let own = OwnCard::create(path, card.clone()).inspect_err(|e| {
            tracing::warn!(error = %e, "a session could not be named in the run directory: it is found only by others' cards");
        });
        own.ok()
    }

    /// Makes the socket and its card in the first run directory that can be used.
    fn open_place(&mut self, card: &mut RunCard) -> Option<OwnCard> {
        for dir in &self.run_dirs {
            match open_place_in(dir, card) {
                Ok((place, own)) => {
                    self.ear.hub.listens_at(place.socket.clone());
                    self.place = Some(place);
                    return Some(own);
                }
                Err(e) => tracing::info!(dir = %dir.display(), error = %e, "no live socket in this directory"),
            }
        }
        tracing::warn!("no directory could hold the live socket: this session cannot be watched");
        card.card.socket = None;
        None
    }

    fn card(&mut self, card: Card) {
        let socket = self.place.as_ref().map(|place| place.socket.clone());
        let Some(s) = self.sessions.of_mut(card.session_id) else { return };
        s.card.card = Card { socket, ..card };
        if let Some(own) = &mut s.own
            && let Err(e) = own.update(s.card.clone())
        {
            tracing::warn!(error = %e, "the card in the run directory could not be brought up to date");
        }
        // Who subscribed before client and server had named themselves gets their names now.
        let head = s.as_it_is(s.head.cursor);
        s.say(&LiveLine::Session(Box::new(head)));
    }

    /// Makes lines of what sessions with subscribers have written since; for a bounded time, each in its turn.
    fn catch_up(&mut self) {
        let began = worked();
        self.sessions.look();
        let Self { sessions, subscribers, turn, .. } = self;
        let heard = |number: &u32| subscribers.iter().any(|s| s.hears(*number));
        let mut behind: Vec<u32> = sessions.iter().filter(|(_, s)| s.is_behind()).map(|(number, _)| number).collect();
        behind.retain(heard);
        let first = behind.partition_point(|number| *number < *turn);
        behind.rotate_left(first);
        for number in behind {
            // The first subscriber gets everything that there is; later ones join where the others are.
            let followed = subscribers.iter().any(|s| s.is_at(number));
            sessions.read(number, !followed);
            *turn = number + 1;
            if worked().saturating_sub(began) >= REST {
                return;
            }
        }
    }

    /// Drops sessions that ended long ago, and the oldest if there are too many.
    fn forget(&mut self) {
        for (number, session) in self.sessions.forget() {
            self.subscribers.iter_mut().for_each(|s| s.forgotten(number, &session));
            self.speakers.retain(|s| s.session != session.id());
            if let Some(own) = session.own {
                own.remove();
            }
        }
    }

    /// Makes lines of the servers' stderr, once their sessions have subscribers; of an unfinished line too, if `all`.
    /// Returns whether there was any.
    fn tell_stderr(&mut self, all: bool) -> bool {
        let Self { speakers, sessions, subscribers, .. } = self;
        let mut any = false;
        for Speaker { voice, session, lost } in speakers {
            let Some(number) = sessions.number(*session) else { continue };
            let heard = subscribers.iter().any(|s| s.is_at(number));
            let Some(told) = sessions.get_mut(number).filter(|_| heard) else { continue };
            let said = voice.said(all);
            if said.lost > *lost {
                *lost = said.lost;
                let next = said.lines.front().map_or(said.next, |l| l.seq);
                told.say(&LiveLine::StderrLost(StderrLost { lost: said.lost, next, session_id: *session }));
            }
            any |= !said.lines.is_empty();
            for StderrLine { seq, at, text } in said.lines {
                let (cursor, line) = (told.head.cursor, String::from_utf8_lossy(&text).into_owned());
                told.say(&LiveLine::Stderr(Stderr { at, cursor, line, seq, session_id: *session }));
            }
        }
        any
    }

    /// Makes lines of the streams that are open where that has changed, for sessions with subscribers.
    fn tell_streams(&mut self) {
        let Self { sessions, subscribers, .. } = self;
        let heard: Vec<u32> =
            sessions.iter().map(|(number, _)| number).filter(|n| subscribers.iter().any(|s| s.is_at(*n))).collect();
        for number in heard {
            if let Some(session) = sessions.get_mut(number) {
                session.tell_streams();
            }
        }
    }

    /// Makes lines of what messages hold, for sessions with subscribers.
    fn tell_contents(&mut self) {
        let Self { sessions, subscribers, ear, .. } = self;
        for crossed in ear.hub.contents.take() {
            let Some(number) = sessions.number(crossed.session) else { continue };
            let heard = subscribers.iter().any(|s| s.wants_contents() && s.is_at(number));
            if let Some(told) = sessions.get_mut(number).filter(|_| heard) {
                told.say_content(&LiveLine::Content(Box::new(Content::of(&crossed))));
            }
        }
    }

    fn pack(&mut self, progress: PackProgress) {
        let (id, over) = (progress.session_id, progress.state != PackState::Sealing);
        let Some(session) = self.sessions.of_mut(id) else { return };
        session.say(&LiveLine::PackProgress(progress));
        // When no session runs any more, the process can still be found until it ends.
        if over
            && self.sessions.iter().any(|(_, s)| s.brief().state == SessionState::Running)
            && let Some(own) = self.sessions.of_mut(id).and_then(|s| s.own.take())
        {
            own.remove();
        }
    }

    /// Sends what is left to the subscribers that still read.
    fn last_words(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        loop {
            self.catch_up();
            self.tell_stderr(true);
            self.tell_contents();
            self.serve();
            let (sessions, notices) = (&self.sessions, &self.notices);
            let view = View { sessions, notices, contents: self.ear.hub.contents.offered };
            // A subscriber that has read nothing lately is not waited for.
            let waiting = self.subscribers.iter().any(|s| s.has_more(&view) && !s.is_stalled(LAST_WORDS / 4));
            if self.subscribers.is_empty() || !waiting && !self.is_behind() || Instant::now() >= until {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How long this thread has worked; waiting for a core does not count.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The socket is named after the first session of the process.
fn open_place_in(dir: &Path, card: &mut RunCard) -> io::Result<(Place, OwnCard)> {
    let stem = dir.join(card.card.session_id.hex());
    let socket = stem.with_extension("sock");
    if !discovery::fits(&socket) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"));
    }
    discovery::private_run_dir(dir)?;
    drop(discovery::live_in(dir));
    card.card.socket = Some(socket.clone());
    // The card first: a socket without one is taken for a dead proxy's.
    let own = OwnCard::create(stem.with_extension("json"), card.clone())?;
    let bound = UnixListener::bind(&socket).and_then(|listener| {
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    match bound {
        Ok(listener) => Ok((Place { listener, socket }, own)),
        Err(e) => {
            own.remove();
            let _ = std::fs::remove_file(&socket);
            Err(e)
        }
    }
}
