//! Finishing the evidence of sessions whose process is gone.
//!
//! Recovery continues where the recorder stopped: it rebuilds the recorder's state from the segment and the receipts,
//! feeds it what the capture still holds, closes what is open and ends the chain as what it is: a crashed session. It
//! never rewrites a line, sets torn bytes aside, says what it found, and never makes a session look more complete than
//! it is.

mod dead;
mod evidence;
mod find;
mod log;
mod newer;
mod sealed;

pub use find::{Found, sessions};
pub use log::{begin_sessions, sweep};

use super::{
    card::{Card, Places},
    checkpoint::Certify,
    lane, ledger,
    mark::{Mark, NotOurs},
    recorder::LostSurface,
    store::{self, Store},
};
use crate::{
    canon,
    lines::{self, MAX_LINE},
    model::{AuditEvent, EventKind, LedgerKind, SessionDoc, pack::MANIFEST, reading::TooNew, surface::Identity},
    note::Verifier,
    paths::{AuditDir, SessionPaths},
    relay::Consumer,
    surface::feed::Pinned,
};
use dead::Dead;
use evidence::Events;
use find::{card_at, paths_in};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What keeps a session from being recovered. Nothing of it was changed then, but for torn bytes that were set aside.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The evidence contradicts itself: nothing is signed over it.
    #[error("{path}:{line}: {what}")]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong with the line, as text for people.
        what: String,
    },
    /// Nothing says that this user's recorder began the session: it is left alone, and nothing of it is signed.
    #[error("{path}: this session is not yours to finish: {why}; it is left alone, and nothing of it is signed")]
    Foreign {
        /// Its card, or its segment.
        path: PathBuf,
        /// Why it is not taken for one of this user's.
        why: NotOurs,
    },
    /// A later version wrote it.
    #[error("{path}: {source}; it is left alone")]
    TooNew {
        /// Path of the file.
        path: PathBuf,
        /// What is known of it.
        source: TooNew,
    },
}

impl RecoverError {
    /// Wraps an I/O error of a file, or the finding that it is of a later version.
    fn of_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match TooNew::carried_by(&source) {
            Some(e) => Self::TooNew { path, source: e.clone() },
            None => Self::Io { path, source },
        }
    }

    /// Why a session is not one of this user's; `path` is its card or its segment.
    fn not_ours(path: PathBuf, why: NotOurs) -> Self {
        match why {
            NotOurs::TooNew { path, source } => Self::TooNew { path, source },
            why => Self::Foreign { path, why },
        }
    }

    /// Its machine-readable code.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Io { .. } => "failed",
            Self::Damaged { .. } => "damaged",
            Self::Foreign { .. } => "foreign",
            Self::TooNew { .. } => "too_new",
        }
    }

    /// The file that it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::Damaged { path, .. }
            | Self::Foreign { path, .. }
            | Self::TooNew { path, .. } => path,
        }
    }
}

/// A session whose evidence is whole again, as far as it could be recovered.
pub struct Recovered {
    /// Its files, still locked.
    pub store: Store,
    /// The content of `session.json`.
    pub doc: SessionDoc,
    /// What was found and done, as text for people.
    pub notes: Vec<String>,
    /// `surface.json`, as the dead recorder wrote it last.
    pub surface: Option<Vec<u8>>,
    /// The decisions about the surface that were in force at its end; `None` if it was compared with none.
    pub pinned: Option<Arc<Pinned>>,
}

/// How recovery seals.
pub struct Sealing<'a> {
    /// Who certifies its keys; `None`: it states nothing. Asked once a session is found to be sound.
    pub certify: &'a dyn Fn() -> Option<Arc<dyn Certify>>,
    /// Whether a signature holds.
    pub holds: Verifier<'a>,
}

/// All decisions about a server's surface that an audit directory has.
pub type Decisions<'a> = &'a dyn Fn(&Identity) -> Pinned;

/// Finishes the evidence of one session. `None`: its process lives, or there is nothing to finish. `ends` are the ends
/// that the ledger held a while ago; `decisions` are those about surfaces.
///
/// # Errors
/// [`RecoverError`].
pub fn recover(
    dir: &AuditDir,
    paths: &SessionPaths,
    ends: &ledger::Ends,
    decisions: Decisions<'_>,
    sealing: &Sealing<'_>,
) -> Result<Option<Recovered>, RecoverError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| RecoverError::of_io(&path, source)
    };
    let card = card_at(dir, &paths.card)?;
    let places = card.as_ref().map(|card| card.places(dir)).unwrap_or_default();
    // The later version that wrote those lines has finished it.
    if card.is_none() && ends.is_unread(paths.id) && has_pack(paths) {
        return Ok(None);
    }
    if card.is_none() && nothing_left(dir, paths, ends.get(paths.id)).map_err(at(&paths.segment))? {
        return Ok(None);
    }
    if card.as_ref().is_some_and(|c| is_alive(dir, c, &places, paths)) {
        return Ok(None);
    }
    // It may have ended since.
    let end = ledger::holds(dir, paths.id, LedgerKind::SegmentEnd).map_err(at(&dir.ledger()))?;
    let end = end.map(ledger::SegmentEnd::from);
    if card.is_none() && nothing_left(dir, paths, end.as_ref()).map_err(at(&paths.segment))? {
        return Ok(None);
    }
    match newer::refuse(dir, paths, &places) {
        Err(_) if store::is_held(paths) => return Ok(None),
        checked => checked?,
    }
    check_ledger(paths, end.as_ref())?;
    let mark = match our_mark(dir, paths) {
        Ok(mark) => mark,
        Err(_) if store::is_held(paths) => return Ok(None),
        Err(e @ RecoverError::TooNew { .. }) => return Err(e),
        Err(_) if card.is_none() && has_pack(paths) => return Err(not_as_it_was_packed(dir, paths, end.as_ref())),
        Err(e) => return Err(e),
    };
    if card.as_ref().is_some_and(|c| never_began(dir, c, &places, paths)) {
        dir.files().remove(&paths.card).map_err(at(&paths.card))?;
        dir.marks().iter().for_each(|marks| marks.forget(paths.id));
        return Ok(None);
    }
    let mut store = match Store::take_over(dir, paths) {
        Ok(store) => store,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) => return Err(at(&paths.segment)(e)),
    };
    let mut notes = Vec::new();
    for path in [&paths.segment, &paths.receipts, &paths.checkpoints, &paths.investigation] {
        set_torn_aside(path, paths, &mut notes).map_err(at(path))?;
    }
    let mut store = {
        drop(store);
        store = Store::take_over(dir, paths).map_err(at(&paths.segment))?;
        store
    };
    let named = ledger::holds(dir, paths.id, LedgerKind::SegmentCheckpoint).map_err(at(&dir.ledger()))?;
    let sealed = sealed::read(paths, named.as_ref(), sealing.holds)?;
    hand_over(dir, paths, &places).map_err(at(&dir.live()))?;
    let mut dead = Dead::read(dir, paths, card.as_ref(), &mark, decisions)?;
    dead.recorder.restore_surface(surface_of(paths, &mark, &mut notes));
    if dead.begun_anew
        && let Some(marks) = dir.marks()
    {
        marks
            .chain_start(dir, paths.id, mark.started_at, dead.recorder.chain().first())
            .map_err(at(&marks.path(paths.id)))?;
    }
    let doc = dead.finish(paths, card.as_ref(), notes.clone()).map_err(at(&paths.segment))?;
    let (surface, pinned) = (dead.recorder.surface(), dead.recorder.pinned());
    store.checkpoints().found(sealed.tree, sealed.size);
    store.checkpoints().certified_by((sealing.certify)());
    // What was found is stated before anything is added to it.
    store.seal().map_err(at(&paths.checkpoints))?;
    if let Some(from) = dead.again_from {
        store.write_receipts_again(from, &mut dead.recorder.lines).map_err(at(&paths.receipts))?;
    }
    store.write(&mut dead.recorder.lines).map_err(at(&paths.segment))?;
    dead.captures.forget();
    // The spool of a capture that is gone (a reboot) is useless.
    for (ring, spool) in places.rings.iter().zip(&places.spools) {
        if let Some(spool) = spool
            && ring.as_ref().is_none_or(|r| !r.exists())
        {
            let _ = dir.files().remove(spool);
        }
    }
    notes.clone_from(&doc.recovery_notes);
    Ok(Some(Recovered { store, doc, notes, surface, pinned }))
}

/// The observed surface, if it is what the recorder wrote: no event binds it, so its hash is remembered.
fn surface_of(paths: &SessionPaths, mark: &Mark, notes: &mut Vec<String>) -> Result<Option<Vec<u8>>, LostSurface> {
    let bytes = match paths.files.read(&paths.surface, MAX_LINE as u64) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            notes.push(format!("{} was left out: {e}", paths.surface.display()));
            return Err(LostSurface);
        }
    };
    let known = mark.surfaces.contains(&canon::sha256_hex(&bytes)) && canon::is_canonical(&bytes);
    if !known {
        notes.push(format!("{} is not what the recorder wrote and was left out", paths.surface.display()));
    }
    if known { Ok(Some(bytes)) } else { Err(LostSurface) }
}

/// The mark of a session that this user's recorder began, here and as the segment says.
fn our_mark(dir: &AuditDir, paths: &SessionPaths) -> Result<Mark, RecoverError> {
    let path = || if paths.card.exists() { paths.card.clone() } else { paths.segment.clone() };
    let mark = dir.mark(paths.id).map_err(|why| RecoverError::not_ours(path(), why))?;
    // What does not read as an event is named as damaged later.
    let first = Events::open(&paths.files, &paths.segment)?.next().and_then(Result::ok);
    match first {
        Some(event) if mark.chain_start.as_ref() != Some(&event.hash) => {
            Err(RecoverError::Foreign { path: paths.segment.clone(), why: NotOurs::OtherStart })
        }
        _ => Ok(mark),
    }
}

fn has_pack(paths: &SessionPaths) -> bool {
    paths.pack.join(MANIFEST).exists()
}

/// A session was packed, and its evidence is not as it was then.
fn not_as_it_was_packed(dir: &AuditDir, paths: &SessionPaths, end: Option<&ledger::SegmentEnd>) -> RecoverError {
    if let Some(end) = end {
        let what = "there are bytes after the end of this session, which has a pack".to_owned();
        return RecoverError::Damaged { path: paths.segment.clone(), line: end.events.saturating_add(1), what };
    }
    let what = format!(
        "the ledger does not know the end of session {}, which ended and has a pack: its last lines were removed, or an \
         older ledger was put back; nothing is written over that",
        paths.id
    );
    RecoverError::Damaged { path: dir.ledger(), line: 0, what }
}

/// Whether the process of this card lives: it holds the locks of its captures. (A zombie does not.)
fn is_alive(dir: &AuditDir, card: &Card, places: &Places, paths: &SessionPaths) -> bool {
    if let Some(process) = log::process_of(card)
        && log::log_of(dir, process).is_some()
    {
        return log::is_alive(dir, process);
    }
    let mut rings = places.rings.iter().flatten().peekable();
    if rings.peek().is_none() {
        // Without captures only the segment's lock can tell, once it is there.
        return crate::sys::process::is_alive(card.pid, card.pid_started) && !paths.files.exists(&paths.segment);
    }
    rings.any(|ring| matches!(Consumer::open(ring), Err(e) if e.kind() == io::ErrorKind::WouldBlock))
}

/// Whether a proxy was killed after it had announced its next session and before that one began.
fn never_began(dir: &AuditDir, card: &Card, places: &Places, paths: &SessionPaths) -> bool {
    let Some(before) = card.continues.filter(|_| !paths.files.exists(&paths.segment)) else { return false };
    match log::process_of(card) {
        Some(_) => log::owner(dir, before).is_ok_and(|owner| owner != paths.id),
        None => owner_of(places) != Some(paths.id.bits()),
    }
}

/// The session whose messages the captures of a card hold.
fn owner_of(places: &Places) -> Option<u64> {
    let consumer = places.rings.iter().flatten().find_map(|ring| Consumer::open(ring).ok())?;
    lane::owner(consumer.note(lane::NOTE_OWNER), consumer.session())
}

/// A proxy was killed between the end of this segment and the beginning of the next one: what its captures hold goes to
/// the session whose card says that it continues this one.
fn hand_over(dir: &AuditDir, paths: &SessionPaths, places: &Places) -> io::Result<()> {
    if owner_of(places) != Some(paths.id.bits()) {
        return Ok(());
    }
    if !last_event(paths)?.is_some_and(|e| e.event == EventKind::ChainEnd) {
        return Ok(());
    }
    for path in paths_in(dir, &dir.live())? {
        let Some(next) = Card::read(dir.files(), &path).filter(|c| c.continues == Some(paths.id)) else { continue };
        if dir.mark(next.session_id).is_err() {
            continue;
        }
        for ring in places.rings.iter().flatten().chain(&places.log) {
            Consumer::open(ring)?.set_note(lane::NOTE_OWNER, next.session_id.bits());
        }
    }
    Ok(())
}

fn last_event(paths: &SessionPaths) -> io::Result<Option<AuditEvent>> {
    let file = match paths.files.open(&paths.chain()) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let tail = ledger::good_tail(&file)?;
    Ok(tail.last.and_then(|line| serde_json::from_slice(&line).ok()))
}

/// A segment whose end the ledger knows must end so: nothing is signed over one that was shortened or changed since.
fn check_ledger(paths: &SessionPaths, end: Option<&ledger::SegmentEnd>) -> Result<(), RecoverError> {
    let Some(end) = end else { return Ok(()) };
    let last = last_event(paths).map_err(|source| RecoverError::Io { path: paths.segment.clone(), source })?;
    let (count, hash) = last.map_or((0, String::new()), |e| (e.event_seq.saturating_add(1), e.hash));
    if count == end.events && hash == end.hash {
        return Ok(());
    }
    let what = format!(
        "the ledger says that this segment ended with event {} of hash {}, but it ends with event {count} of hash {hash}; \
         it was shortened or changed after its end, and nothing is signed over it",
        end.events, end.hash
    );
    Err(RecoverError::Damaged { path: paths.segment.clone(), line: count, what })
}

/// Whether there is nothing to finish: the segment has its end and the ledger knows it, or nothing was ever written.
pub(crate) fn is_finished(paths: &SessionPaths, end: Option<&ledger::SegmentEnd>) -> io::Result<bool> {
    let file = match paths.files.open(&paths.segment) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(e),
    };
    if file.metadata()?.len() == 0 {
        return Ok(end.is_none());
    }
    let Some(end) = end else { return Ok(false) };
    let tail = ledger::good_tail(&file)?;
    let last = tail.last.and_then(|line| serde_json::from_slice::<AuditEvent>(&line).ok());
    // What does not agree with the ledger is looked at, and named.
    Ok(tail.torn == 0
        && last.is_some_and(|e| {
            e.event == EventKind::ChainEnd && e.hash == end.hash && e.event_seq.saturating_add(1) == end.events
        }))
}

/// As [`is_finished`]; an empty segment that the ledger saw begin was emptied since.
fn nothing_left(dir: &AuditDir, paths: &SessionPaths, end: Option<&ledger::SegmentEnd>) -> io::Result<bool> {
    let is_empty = || Ok::<_, io::Error>(paths.files.open(&paths.segment)?.metadata()?.len() == 0);
    if newer::ended_it(paths, end)? {
        return Ok(true);
    }
    Ok(is_finished(paths, end)?
        && (!paths.files.exists(&paths.segment)
            || !is_empty()?
            || ledger::holds(dir, paths.id, LedgerKind::SegmentStart)?.is_none()))
}

fn set_torn_aside(path: &Path, paths: &SessionPaths, notes: &mut Vec<String>) -> io::Result<()> {
    let file = match paths.files.append_existing(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let tail = if path == paths.investigation { lines::good_end(&file)? } else { ledger::good_tail(&file)? };
    if tail.torn > 0 {
        notes.push(ledger::set_aside(&paths.files, &file, path, &tail, Some(paths.id))?);
    }
    Ok(())
}
