//! What a killed process that served HTTP left: its log, in which the exchanges of all its sessions are.

use super::{find::paths_in, last_event};
use crate::{
    model::{EventKind, LedgerKind, Profile, SessionId, WallTime},
    paths::{AuditDir, SessionPaths},
    record::{
        card::{Card, MAX_CARD},
        http::{
            demux::Spools,
            kept::{SpoolPlace, spool_name},
            key::EvidenceKey,
            run::{Run, Stored},
            sessions::SessionMap,
            source::{HttpSource, Parts},
            state::StateFile,
        },
        lane, ledger,
        opening::{Opening, PackInterval},
        source::{Seen, SessionKey, Source as _},
    },
    relay::{
        capture,
        log::{Digests, Flow, LogReader},
    },
};
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// How the file of a log is named behind the name of its process.
const LOG: &str = "log.ring";

/// Where the log of a process is, if it is there: whatever a card says, it is looked for by its name in the directories
/// where captures are.
pub(super) fn log_of(dir: &AuditDir, process: &str) -> Option<PathBuf> {
    let mut dirs = capture::search_dirs(&dir.live());
    dirs.retain(|dir| crate::files::is_own_dir(dir));
    dirs.into_iter().map(|dir| dir.join(format!("{process}.{LOG}"))).find(|path| path.symlink_metadata().is_ok())
}

/// Whether the process of this log lives: it holds its lock.
pub(super) fn is_alive(dir: &AuditDir, process: &str) -> bool {
    log_of(dir, process)
        .is_some_and(|log| matches!(LogReader::open(&log), Err(e) if e.kind() == io::ErrorKind::WouldBlock))
}

/// The name of the process in the card of a session that is in a log alone.
pub(super) fn process_of(card: &Card) -> Option<&str> {
    let http = card.http.as_ref().filter(|_| card.bridge().is_none());
    http.map(|http| http.process.as_str()).filter(|process| capture::is_session(process))
}

/// The log that a bridge left beside the rings of this session; `None` if it is that of a later one.
///
/// # Errors
/// It cannot be read.
pub(super) fn of_bridge(dir: &AuditDir, log: &Path, session: SessionId) -> io::Result<Option<HttpSource>> {
    let reader = LogReader::open(log)?;
    let process = reader.process().to_owned();
    if lane::owner(reader.note(lane::NOTE_OWNER), reader.process()) != Some(session.bits()) {
        return Ok(None);
    }
    let source = HttpSource::left(Parts {
        capacity: reader.capacity(),
        reader,
        map: SessionMap::of_bridge(),
        open: None,
        digest: Box::new(|_| String::new()),
        spools: spools_again(dir, process),
        guarded: false,
    });
    source.map(Some)
}

/// Where large messages that a process kept are kept once more.
fn spools_again(dir: &AuditDir, process: String) -> Spools {
    let dir = dir.clone();
    Box::new(move |flow: Flow| {
        let from = dir.live().join(spool_name(&process, flow));
        let path = from.with_extension("spool.again");
        Some(SpoolPlace { files: dir.files().clone(), path, from: Some(from) })
    })
}

/// A session that the log of a dead process begins.
#[derive(Debug, Clone)]
pub(super) struct InLog {
    id: SessionId,
    started_at: WallTime,
    card: Card,
}

type Begun = Arc<Mutex<Vec<InLog>>>;

/// What a dead process left.
pub(super) struct Left {
    source: HttpSource,
    begun: Begun,
}

impl Left {
    /// Opens the log of a process; `None` if it is gone. `digest` makes digests of targets.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn open(dir: &AuditDir, process: &str) -> io::Result<Option<Self>> {
        let Some(path) = log_of(dir, process) else { return Ok(None) };
        let run = Run::read(dir.files(), &Run::path(dir, process))?;
        let reader = LogReader::open(&path)?;
        let (offset, begun) = (reader.wall_offset(), Begun::default());
        let of_log = begun.clone();
        let (here, name) = (dir.clone(), path.clone());
        let limits = run.limits;
        let (number, guarded) = (run.number(), run.profile == Profile::Guard);
        let open = move |new: &crate::record::http::sessions::NewSession, ns: u64| {
            let millis = i64::try_from(ns).unwrap_or(i64::MAX).saturating_add(offset).div_euclid(1_000_000);
            let started_at = WallTime::from_millis(millis);
            let setup = Arc::new(run.setup(new, run.policy.clone(), Stored::default()));
            let captures = run.captures(Some(&name), new.route);
            let mut card = Card::of(&setup, new.id, ns, started_at, &captures);
            (card.pid, card.pid_started) = (run.pid, run.pid_started);
            let found = InLog { id: new.id, started_at, card };
            of_log.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            Opening {
                dir: here.clone(),
                setup,
                session: new.id,
                started_ns: ns,
                started_at,
                interval: PackInterval::Session,
                captures,
                activity: Arc::default(),
                judge: None,
                feed: Arc::default(),
                health: Arc::default(),
            }
        };
        let capacity = reader.capacity();
        let key = EvidenceKey::of_user().map_err(io::Error::other)?;
        let digests = Digests::new(&key.bytes);
        let source = HttpSource::left(Parts {
            reader,
            capacity,
            map: SessionMap::new(number, limits),
            open: Some(Box::new(open)),
            digest: Box::new(move |target| digests.of(target)),
            spools: spools_again(dir, process.to_owned()),
            guarded,
        })?;
        Ok(Some(Self { source, begun }))
    }

    /// Sessions that begin in what is left of the log.
    pub(super) fn sessions(mut self) -> Vec<InLog> {
        while self.source.next(&mut |_, _| {}) {}
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.clone()
    }
}

/// What is left of one session in the log of its process.
pub(super) struct OfSession {
    source: HttpSource,
    session: SessionId,
    keys: BTreeSet<SessionKey>,
    /// Errors about it.
    errors: Vec<io::Error>,
}

impl OfSession {
    /// Opens the log of a session's process; `None` if it is gone.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn open(dir: &AuditDir, process: &str, session: SessionId) -> io::Result<Option<Self>> {
        let Some(Left { source, .. }) = Left::open(dir, process)? else { return Ok(None) };
        let ids = source.demux().ids();
        let keys = ids.filter(|(_, id)| owner(dir, *id).is_ok_and(|owner| owner == session)).map(|(key, _)| key);
        let keys = keys.collect();
        Ok(Some(Self { source, session, keys, errors: Vec::new() }))
    }

    /// Hands out what crossed next in this session. `false`: nothing is left.
    pub(super) fn next(&mut self, take: &mut dyn FnMut(Seen<'_>)) -> bool {
        let Self { source, session, keys, errors } = self;
        let any = source.next(&mut |key, seen| {
            if let Seen::Begins(opening) = &seen
                && opening.session == *session
            {
                keys.insert(key);
            }
            if keys.contains(&key) {
                take(seen);
            }
        });
        while let Some(e) = source.take_error() {
            if keys.contains(&e.session) {
                errors.push(e.source);
            }
        }
        any
    }

    /// The error since the last call, if there was one.
    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        self.errors.pop()
    }

    /// Bytes and entries of which no entry tells: nobody knows of which session they were, so one counts them.
    pub(super) fn untold(&self) -> (u64, u64) {
        let first = self.source.demux().any_session();
        if first.is_some_and(|key| self.keys.contains(&key)) { self.source.untold() } else { (0, 0) }
    }

    /// Bytes of messages whose end is not in the log.
    pub(super) fn unfinished(&self) -> u64 {
        let mut all = 0;
        self.source.unfinished(&mut |key, _, bytes| all += if self.keys.contains(&key) { bytes } else { 0 });
        all
    }

    /// Wall clock minus monotonic clock of its process, ns.
    pub(super) fn wall_offset(&self) -> i64 {
        self.source.wall_offset()
    }
}

/// The session to which what a log holds of this one belongs: packs roll over, and a process may have been killed between
/// two of them.
pub(super) fn owner(dir: &AuditDir, mut id: SessionId) -> io::Result<SessionId> {
    for path in paths_in(dir, &dir.live())? {
        let Some(next) = Card::read(dir.files(), &path).filter(|card| card.continues == Some(id)) else { continue };
        let Some(before) = files_of(dir, id) else { continue };
        if last_event(&before)?.is_some_and(|e| e.event == EventKind::ChainEnd) {
            id = next.session_id;
        }
    }
    Ok(id)
}

/// The files of a session that has a segment, or a pack.
fn files_of(dir: &AuditDir, id: SessionId) -> Option<SessionPaths> {
    dir.sessions().into_values().find(|paths| paths.id == id)
}

/// Runs whose process is dead.
fn dead(dir: &AuditDir) -> io::Result<Vec<(PathBuf, String)>> {
    let runs = paths_in(dir, &dir.live())?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "run"));
    let named = runs.filter_map(|path| {
        let process = path.file_stem()?.to_str().filter(|name| capture::is_session(name))?.to_owned();
        Some((path, process))
    });
    Ok(named.filter(|(_, process)| !is_alive(dir, process)).collect())
}

/// Gives a card and a mark to each session that killed processes had begun only in their logs; whether there was one.
///
/// # Errors
/// The directory cannot be read, or written.
pub fn begin_sessions(dir: &AuditDir) -> io::Result<bool> {
    let mut any = false;
    for (_, process) in dead(dir)? {
        let ours = SessionId::parse(&format!("{}{process}", SessionId::PREFIX)).is_ok_and(|id| dir.mark(id).is_ok());
        let Some(marks) = dir.marks().filter(|_| ours) else { continue };
        let left = match Left::open(dir, &process) {
            Ok(Some(left)) => left,
            Ok(None) => continue,
            Err(e) => {
                tracing::warn!(%process, error = %e, "the log of a process that died cannot be read");
                continue;
            }
        };
        for InLog { id, started_at, card } in left.sessions() {
            let begun = files_of(dir, id);
            let paths = begun.clone().unwrap_or_else(|| dir.session(started_at, id));
            let is_over = ledger::holds(dir, id, LedgerKind::SegmentEnd)?.is_some();
            if is_over || paths.files.exists(&paths.card) {
                continue;
            }
            // The name of a segment that is there was made from a clock that may have been read a moment earlier.
            let near = [0, -1000, 1000].map(|ms| WallTime::from_millis(started_at.millis() + ms));
            let of_name = near.into_iter().find(|at| dir.session(*at, id).stem == paths.stem);
            let started_at = of_name.unwrap_or(started_at);
            if dir.mark(id).is_err() {
                marks.begin(dir, id, started_at)?;
            }
            Card { started_at, ..card }.write(&paths)?;
            any = true;
        }
    }
    Ok(any)
}

/// Removes what dead processes left whose sessions are all finished.
///
/// # Errors
/// The directory cannot be read.
pub fn sweep(dir: &AuditDir) -> io::Result<()> {
    let live = paths_in(dir, &dir.live())?;
    for (run, process) in dead(dir)? {
        let is_card = |path: &&PathBuf| path.extension().is_some_and(|e| e == "json");
        let needs = |path: &PathBuf| {
            let card = dir.files().read(path, MAX_CARD);
            // A card that cannot be read may be one of it.
            card.map_or(true, |card| memchr::memmem::find(&card, process.as_bytes()).is_some())
        };
        if live.iter().filter(is_card).any(needs) {
            continue;
        }
        if let Some(log) = log_of(dir, &process) {
            StateFile::beside(&log).remove();
            if let Ok(log) = LogReader::open(&log) {
                log.remove()?;
            }
        }
        let of_it = |path: &&PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(&format!("{process}.x")) && name.contains(".spool")
        };
        for path in live.iter().filter(of_it) {
            dir.files().remove(path)?;
        }
        dir.files().remove(&run)?;
        if let (Some(marks), Ok(id)) = (dir.marks(), SessionId::parse(&format!("{}{process}", SessionId::PREFIX))) {
            marks.forget(id);
        }
    }
    Ok(())
}
