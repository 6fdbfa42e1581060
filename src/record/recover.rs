//! Finishing the evidence of sessions whose process is gone (FORMATS §4, §6; FIELD-NOTES "Evidence").
//!
//! Recovery goes on where the recorder stopped: it rebuilds the recorder's state from the segment and the receipts, feeds
//! it what the capture still holds, closes what is open and ends the chain as what it is: a crashed session. It never
//! rewrites a line, sets torn bytes aside, says what it found, and never makes a session look more complete than it is.

mod newer;

use super::{
    card::{Card, Places},
    lane::{self, Lane},
    ledger,
    mark::{Mark, NotOurs},
    recorder::{Begin, Clock, Ending, LostSurface, OnDisk, Recorder, Setup},
    rings::Rings,
    rulings::Reader,
    source::{Seen, SessionKey, Source as _},
    store::{self, Store},
};
use crate::model::pack::MANIFEST;
use crate::model::words::{EndReason, GapReason, OutcomeReason};
use crate::{
    canon,
    files::Tree,
    lines::{self, GoodTail, MAX_LINE, ReadStop},
    model::{
        AuditEvent, Direction, EventKind, LedgerKind, Outcome, PolicyVerdict, ReceiptId, SessionDoc, SessionId,
        WallTime, event,
        reading::{self, Reading, TooNew},
        receipt::{Counts, SESSION_START, SessionStart, TOOL_CALL, ToolCall},
        session::Identity,
    },
    paths::{AuditDir, SessionPaths},
    relay::Consumer,
    text::{counted, either},
};
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
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
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The evidence does not hold together: nothing is signed over it.
    #[error("{path}:{line}: {what}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
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
        /// Which file.
        path: PathBuf,
        /// What is known of it.
        source: TooNew,
    },
}

impl RecoverError {
    /// What the system said of a file, or that it is too new.
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

    /// One word for it.
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

/// A session whose evidence is whole again, as far as it goes.
pub struct Recovered {
    /// Its files, still locked.
    pub store: Store,
    /// `session.json`.
    pub doc: SessionDoc,
    /// What was found and done, in words.
    pub notes: Vec<String>,
    /// `surface.json`, as the dead recorder wrote it last.
    pub surface: Option<Vec<u8>>,
}

/// What may have to be finished in an audit directory.
#[derive(Debug, Default)]
pub struct Found {
    /// Sessions that have a card or a segment, oldest first, and none before the one that it continues.
    pub sessions: Vec<SessionPaths>,
    /// Cards that cannot be read: nothing is done about their sessions.
    pub unread: Vec<RecoverError>,
}

/// Looks for what may have to be finished; `only_cards` looks at the sessions alone that say so themselves.
///
/// # Errors
/// The directory cannot be read.
pub fn sessions(dir: &AuditDir, only_cards: bool) -> io::Result<Found> {
    let mut found: Vec<SessionPaths> = Vec::new();
    let mut continues = HashMap::new();
    let (mut unread, mut left_alone) = (Vec::new(), HashSet::new());
    for path in paths_in(dir, &dir.live())? {
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        match card_at(dir, &path) {
            Ok(Some(card)) => {
                continues.extend(card.continues.map(|before| (card.session_id, before)));
                found.push(dir.session(card.started_at, card.session_id));
            }
            Ok(None) => {}
            Err(e) => {
                left_alone.extend(session_of_card(&path));
                unread.push(e);
            }
        }
    }
    if !only_cards {
        let names = dir.files().names(&dir.audit())?;
        found.extend(names.iter().filter_map(|name| dir.session_of_segment(name.to_str()?)));
    }
    found.retain(|paths| !left_alone.contains(&paths.id));
    found.sort_by(|a, b| a.stem.cmp(&b.stem));
    found.dedup_by(|a, b| a.stem == b.stem);
    unread.sort_by(|a, b| a.path().cmp(b.path()));
    Ok(Found { sessions: in_succession(found, &continues), unread })
}

/// The session whose card has this file name.
fn session_of_card(path: &Path) -> Option<SessionId> {
    SessionId::parse(&format!("{}{}", SessionId::PREFIX, path.file_stem()?.to_str()?)).ok()
}

/// The card at a place; `None` if there is none.
fn card_at(dir: &AuditDir, path: &Path) -> Result<Option<Card>, RecoverError> {
    let owned = || path.to_owned();
    match Card::reading(dir.files(), path) {
        Ok(Reading::Readable(card)) => Ok(Some(card)),
        Ok(Reading::TooNew(source)) => Err(RecoverError::TooNew { path: owned(), source }),
        Ok(Reading::Damaged(what)) => Err(match session_of_card(path).map(|id| dir.mark(id)) {
            Some(Err(why)) => RecoverError::not_ours(owned(), why),
            Some(Ok(_)) => {
                RecoverError::Damaged { path: owned(), line: 1, what: format!("no card of a session: {what}") }
            }
            None => RecoverError::Damaged { path: owned(), line: 1, what: "it has not the name of a card".to_owned() },
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RecoverError::Io { path: owned(), source }),
    }
}

/// Puts what is continued before what continues it: names tell the order only of sessions that began in different seconds.
fn in_succession(found: Vec<SessionPaths>, continues: &HashMap<SessionId, SessionId>) -> Vec<SessionPaths> {
    let mut left: Vec<Option<SessionPaths>> = found.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(left.len());
    for n in 0..left.len() {
        let mut chain: Vec<SessionPaths> = left[n].take().into_iter().collect();
        while let Some(before) = chain.last().and_then(|paths| continues.get(&paths.id))
            && let Some(found) = left.iter_mut().find(|paths| paths.as_ref().is_some_and(|p| p.id == *before))
        {
            chain.extend(found.take());
        }
        ordered.extend(chain.into_iter().rev());
    }
    ordered
}

fn paths_in(dir: &AuditDir, part: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(dir.files().names(part)?.into_iter().map(|name| part.join(name)).collect())
}

/// Finishes the evidence of one session. `None`: its process lives, or there is nothing to finish. `ends` are the ends that
/// the ledger held a while ago.
///
/// # Errors
/// [`RecoverError`].
pub fn recover(dir: &AuditDir, paths: &SessionPaths, ends: &ledger::Ends) -> Result<Option<Recovered>, RecoverError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| RecoverError::of_io(&path, source)
    };
    let card = card_at(dir, &paths.card)?;
    let places = card.as_ref().map(|card| card.places(dir)).unwrap_or_default();
    // The version that wrote those lines has finished it.
    if card.is_none() && ends.is_unread(paths.id) && has_pack(paths) {
        return Ok(None);
    }
    if card.is_none() && nothing_left(dir, paths, ends.get(paths.id)).map_err(at(&paths.segment))? {
        return Ok(None);
    }
    if card.as_ref().is_some_and(|c| is_alive(c, &places, paths)) {
        return Ok(None);
    }
    // It may have ended since.
    let end = ledger::holds(dir, paths.id, LedgerKind::SegmentEnd).map_err(at(&dir.ledger()))?;
    let end = end.map(|line| ledger::SegmentEnd { hash: line.segment_hash, events: line.event_count });
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
    if card.as_ref().is_some_and(|c| never_began(c, &places, paths)) {
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
    for path in [&paths.segment, &paths.receipts, &paths.investigation] {
        set_torn_aside(path, paths, &mut notes).map_err(at(path))?;
    }
    let mut store = {
        drop(store);
        store = Store::take_over(dir, paths).map_err(at(&paths.segment))?;
        store
    };
    hand_over(dir, paths, &places).map_err(at(&dir.live()))?;
    let mut dead = Dead::read(dir, paths, card.as_ref(), &mark)?;
    dead.recorder.restore_surface(surface_of(paths, &mark, &mut notes));
    if dead.begun_anew
        && let Some(marks) = dir.marks()
    {
        marks
            .chain_start(dir, paths.id, mark.started_at, dead.recorder.chain().first())
            .map_err(at(&marks.path(paths.id)))?;
    }
    let doc = dead.finish(paths, card.as_ref(), notes.clone()).map_err(at(&paths.segment))?;
    let surface = dead.recorder.surface();
    if let Some(from) = dead.again_from {
        store.write_receipts_again(from, &mut dead.recorder.lines).map_err(at(&paths.receipts))?;
    }
    store.write(&mut dead.recorder.lines).map_err(at(&paths.segment))?;
    dead.captures.forget(SESSION);
    // The spool of a capture that is gone (a reboot) is of no use.
    for (ring, spool) in places.rings.iter().zip(&places.spools) {
        if let Some(spool) = spool
            && ring.as_ref().is_none_or(|r| !r.exists())
        {
            let _ = dir.files().remove(spool);
        }
    }
    notes.clone_from(&doc.recovery_notes);
    Ok(Some(Recovered { store, doc, notes, surface }))
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
        let what = "there are bytes behind the end of this session, whose pack stands".to_owned();
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
fn is_alive(card: &Card, places: &Places, paths: &SessionPaths) -> bool {
    let mut rings = places.rings.iter().flatten().peekable();
    if rings.peek().is_none() {
        // Without captures only the segment's lock can tell, once it is there.
        return crate::sys::process::is_alive(card.pid, card.pid_started) && !paths.files.exists(&paths.segment);
    }
    rings.any(|ring| matches!(Consumer::open(ring), Err(e) if e.kind() == io::ErrorKind::WouldBlock))
}

/// Whether a proxy was killed after it had announced its next session and before that one began.
fn never_began(card: &Card, places: &Places, paths: &SessionPaths) -> bool {
    card.continues.is_some() && !paths.files.exists(&paths.segment) && owner_of(places) != Some(paths.id.bits())
}

/// The session whose messages the captures of a card hold.
fn owner_of(places: &Places) -> Option<u64> {
    let consumer = places.rings.iter().flatten().find_map(|ring| Consumer::open(ring).ok())?;
    let owner = consumer.note(lane::NOTE_OWNER);
    let first = || u64::from_str_radix(consumer.session(), 16).ok();
    if owner == 0 { first() } else { Some(owner) }
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
        for ring in places.rings.iter().flatten() {
            Consumer::open(ring)?.set_note(lane::NOTE_OWNER, next.session_id.bits());
        }
    }
    Ok(())
}

fn last_event(paths: &SessionPaths) -> io::Result<Option<AuditEvent>> {
    let file = match paths.files.open(&paths.segment) {
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
        notes.push(ledger::set_aside(&paths.files, &file, path, &tail, paths.id)?);
    }
    Ok(())
}

/// Copies the receipts from this place on aside: what is found now contradicts them, and they are written again. They stay
/// where they are until that is done ([`Store::write_receipts_again`]): a recovery that is killed loses none.
fn set_receipts_aside(paths: &SessionPaths, at: u64) -> io::Result<String> {
    let file = paths.files.open(&paths.receipts)?;
    let torn = file.metadata()?.len().saturating_sub(at);
    let tail = GoodTail { end: at, last: None, torn };
    let note = ledger::copy_aside(&paths.files, &file, &paths.receipts, &tail, paths.id)?;
    Ok(note.replace("were no whole line, set", "had lost their events and are written again, set"))
}

/// The only session of the captures that a session over stdio left.
const SESSION: SessionKey = SessionKey(0);

/// A dead session's recorder, as far as it came.
struct Dead {
    recorder: Recorder,
    captures: Rings,
    notes: Vec<String>,
    /// Nothing of its chain was on disk.
    begun_anew: bool,
    /// Where the receipts begin that are written again.
    again_from: Option<u64>,
}

impl Dead {
    fn read(dir: &AuditDir, paths: &SessionPaths, card: Option<&Card>, mark: &Mark) -> Result<Self, RecoverError> {
        let mut notes = Vec::new();
        let first = Events::open(&paths.files, &paths.segment)?.next().transpose()?;
        let started_ns = card.map_or(0, |c| c.started_mono_ns);
        let started_at =
            first.as_ref().map(|e| e.at).or(card.map(|c| c.started_at)).unwrap_or(WallTime::from_millis(0));
        let (setup, continues) = setup_of(first.as_ref(), card);
        let lanes = card.map(|c| lanes_of(&c.places(dir), paths, &mut notes)).unwrap_or_default();
        let offset = lanes
            .iter()
            .map(|l| l.consumer().wall_offset())
            .find(|o| *o != 0)
            .unwrap_or_else(|| started_at.millis().saturating_mul(1_000_000).saturating_sub_unsigned(started_ns));
        let begun = match &first {
            Some(_) => None,
            None => ledger::holds(dir, paths.id, LedgerKind::SegmentStart)
                .map_err(|source| RecoverError::of_io(&dir.ledger(), source))?,
        };
        let prev_hash = match (&first, &begun) {
            (Some(e), _) => e.prev_hash.clone(),
            (None, Some(line)) => line.prev_hash.clone(),
            (None, None) => ledger::Ledger::lock(dir, paths.id)
                .map(|l| l.head().to_owned())
                .map_err(|source| RecoverError::of_io(&dir.ledger(), source))?,
        };
        let begin =
            Begin { session: paths.id, continues, started_ns, started_at, clock: Clock::new(offset), prev_hash };
        let failed = RefCell::new(None);
        let mut carried = carried_events(dir, continues, &failed);
        let mut events = Events::open(&paths.files, &paths.segment)?.checked(&failed);
        let mut receipts = receipts_on_disk(paths, &failed)?;
        let mut recorder = Recorder::restore(setup, begin, &mut carried, &mut events, &mut receipts);
        drop((carried, events, receipts));
        if let Some(e) = failed.into_inner() {
            return Err(e);
        }
        if first.is_none() {
            let has_receipts = recorder.receipts() > 0;
            recorder.begin_restored();
            let start = recorder.chain().first();
            // Receipts and ledger come behind a beginning: one that was there and is gone can only be written as it was.
            if has_receipts && mark.chain_start.as_deref() != Some(start)
                || begun.is_some_and(|line| line.segment_hash != start)
            {
                let what = "the beginning of this segment was cut off after it was written, and what its receipts and the \
                            ledger say of it cannot be written again; nothing is signed over it";
                return Err(RecoverError::Damaged { path: paths.segment.clone(), line: 1, what: what.to_owned() });
            }
        }
        if let Some(card) = card {
            recorder.restore_identity(Identity {
                client: card.client_info.clone(),
                server: card.server_info.clone(),
                protocol: card.protocol_version.clone(),
            });
        }
        Ok(Self { recorder, captures: Rings::left(lanes), notes, begun_anew: first.is_none(), again_from: None })
    }

    fn finish(&mut self, paths: &SessionPaths, card: Option<&Card>, torn: Vec<String>) -> io::Result<SessionDoc> {
        let ended = self.recorder.restored().and_then(|r| r.ended.clone());
        let end_written = self.recorder.restored().is_some_and(|r| r.session_end_written);
        if let Some(ended) = ended {
            // What became of its captures does not matter any more.
            let mut notes = torn;
            notes.push(format!("the chain had ended ({}); its pack was finished later", ended.reason));
            let ending = Ending { recovery_notes: notes, ..Ending::default() };
            return Ok(self.recorder.complete_ended(&ended, end_written, &ending));
        }
        let mut notes = torn;
        notes.append(&mut self.notes);
        if card.is_none() {
            notes.push("there is no card of this session: what its capture held is lost".to_owned());
        }
        let unfinished = self.drain(&mut notes)?;
        if let Some(at) = self.recorder.finish_restore() {
            notes.push(set_receipts_aside(paths, at)?);
            self.again_from = Some(at);
        }
        let lost: u64 = self.captures.lanes().iter().map(Lane::lost).sum();
        if lost > 0 {
            notes.push(format!("{} crossed while no evidence could be written", counted(lost, "byte")));
            self.recorder.gap(GapReason::Disk, 0, lost, 0);
        }
        if unfinished > 0 {
            notes.push(format!(
                "{} of unfinished messages {} in the capture",
                counted(unfinished, "byte"),
                either(unfinished, "was", "were")
            ));
            self.recorder.gap(GapReason::Crash, 0, unfinished, 0);
        }
        notes.push(format!("the proxy of session {} ended without ending its chain", paths.id));
        let ending = Ending {
            reason: EndReason::Crashed.into(),
            no_response: Some(OutcomeReason::ProxyKilled),
            recovery_notes: notes,
            ..Ending::default()
        };
        Ok(self.recorder.end(&ending, 0))
    }

    /// Feeds the recorder what the capture still holds; returns how many bytes of unfinished messages are left.
    fn drain(&mut self, notes: &mut Vec<String>) -> io::Result<u64> {
        let mut messages = 0;
        let Self { captures, recorder, .. } = self;
        loop {
            let any = captures.next(&mut |_, seen| match seen {
                Seen::Message(m) => {
                    recorder.message(m);
                    messages += 1;
                }
                Seen::Torn { bytes, read_ns } => recorder.gap(GapReason::CaptureStuck, 1, bytes, read_ns),
                Seen::Gap { bytes, read_ns } => recorder.gap(GapReason::CaptureStuck, 0, bytes, read_ns),
                Seen::Begins(_) | Seen::Ends(_) => {}
            });
            if let Some(e) = captures.take_error() {
                return Err(e.source);
            }
            if !any {
                break;
            }
        }
        captures.delivered(&mut |_, stream, written, when| recorder.delivered(stream, written, when));
        let mut unfinished = 0;
        captures.unfinished(&mut |_, _, bytes| unfinished += bytes);
        if messages > 0 {
            notes.push(format!(
                "{} {} read from the capture",
                counted(messages, "message"),
                either(messages, "was", "were")
            ));
        }
        Ok(unfinished)
    }
}

fn setup_of(first: Option<&AuditEvent>, card: Option<&Card>) -> (Arc<Setup>, Option<crate::model::SessionId>) {
    match (first.and_then(AuditEvent::chain_start), card) {
        (Some(start), _) => {
            let setup = Setup {
                profile: start.profile,
                transport: "stdio",
                server_id: start.server_id.clone(),
                command: start.command.clone(),
                command_digest: start.command_digest.clone(),
                store_args: false,
                store_results: false,
                store_limit: 0,
                policy_hash: start.policy_hash.clone(),
            };
            (Arc::new(setup), start.continues)
        }
        (None, Some(card)) => (card.setup(), card.continues),
        (None, None) => (
            Arc::new(Setup {
                profile: crate::model::Profile::Audit,
                transport: "stdio",
                server_id: "unknown".to_owned(),
                command: None,
                command_digest: super::recorder::command_digest(&[]),
                store_args: false,
                store_results: false,
                store_limit: 0,
                policy_hash: None,
            }),
            None,
        ),
    }
}

fn lanes_of(places: &Places, paths: &SessionPaths, notes: &mut Vec<String>) -> Vec<Lane> {
    let owner = owner_of(places);
    let mut lanes = Vec::new();
    let rulings = places.decisions.as_deref().and_then(|path| {
        Reader::open(path)
            .inspect_err(|e| notes.push(format!("what the guard decided ({}) cannot be read: {e}", path.display())))
            .ok()
    });
    for (i, direction) in [Direction::ClientToServer, Direction::ServerToClient].into_iter().enumerate() {
        let name = direction.as_str();
        let (Some(ring), Some(spool)) = (&places.rings[i], &places.spools[i]) else {
            notes.push(format!("{name}: the capture did not survive the process"));
            continue;
        };
        let consumer = match Consumer::open(ring) {
            Ok(consumer) => consumer,
            Err(e) => {
                notes.push(format!("{name}: the capture {} cannot be read: {e}", ring.display()));
                continue;
            }
        };
        if owner != Some(paths.id.bits()) {
            notes.push(format!("{name}: the capture went on to a later session"));
            continue;
        }
        match Lane::new(direction, consumer, paths.files.clone(), spool.clone()) {
            Ok(mut lane) => {
                lane.mark_dead();
                if lane.consumer().decided().is_some() && rulings.is_none() {
                    notes.push(format!("{name}: what the guard decided is lost: nobody knows what was passed on"));
                }
                lanes.push(match &rulings {
                    Some(rulings) => lane.guarded(rulings.clone()),
                    None => lane,
                });
            }
            Err(e) => notes.push(format!("{name}: the spool {} cannot be read: {e}", spool.display())),
        }
    }
    lanes
}

/// The lines of a JSONL file, bounded.
struct Lines {
    path: PathBuf,
    /// `None`: there is no such file.
    all: Option<lines::Lines>,
    /// The line that was given last.
    number: u64,
}

impl Lines {
    fn open(files: &Tree, path: &Path) -> Result<Self, RecoverError> {
        let all = match files.open(path) {
            Ok(file) => Some(lines::Lines::of(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RecoverError::Io { path: path.to_owned(), source }),
        };
        Ok(Self { path: path.to_owned(), all, number: 0 })
    }

    /// Goes to the next line, which is then the [`last`](Self::last) one; `false` at the end.
    fn next(&mut self) -> Result<bool, RecoverError> {
        let Some(lines) = &mut self.all else { return Ok(false) };
        let whole = match lines.next(&mut ()) {
            Ok(None) => return Ok(false),
            Ok(Some(line)) => line.terminated,
            Err(ReadStop::Io(source)) => return Err(RecoverError::Io { path: self.path.clone(), source }),
            Err(_) => false,
        };
        self.number += 1;
        if whole { Ok(true) } else { Err(self.damaged("not a whole line")) }
    }

    fn last(&self) -> &[u8] {
        self.all.as_ref().map_or(&[], |lines| lines.last())
    }

    fn damaged(&self, what: impl std::fmt::Display) -> RecoverError {
        RecoverError::Damaged { path: self.path.clone(), line: self.number, what: what.to_string() }
    }

    /// Why the last line is none that can be read.
    fn unread<T: reading::Versioned>(&self) -> RecoverError {
        match reading::read::<T>(self.last()) {
            Reading::TooNew(source) => RecoverError::TooNew { path: self.path.clone(), source },
            Reading::Damaged(what) => self.damaged(what),
            Reading::Readable(_) => self.damaged("the line does not read"),
        }
    }
}

/// The events of a segment, each checked against the one before.
struct Events {
    lines: Lines,
    head: Option<(u64, String)>,
}

impl Events {
    fn open(files: &Tree, path: &Path) -> Result<Self, RecoverError> {
        Ok(Self { lines: Lines::open(files, path)?, head: None })
    }

    fn read(&mut self) -> Result<Option<AuditEvent>, RecoverError> {
        if !self.lines.next()? {
            return Ok(None);
        }
        let line = self.lines.last();
        let Ok(event) = serde_json::from_slice::<AuditEvent>(line) else {
            return Err(self.lines.unread::<AuditEvent>());
        };
        if event::hash_of_line(line).as_deref() != Some(&event.hash) {
            return Err(self.lines.damaged("the event's hash is not the hash of its line"));
        }
        if let Some((seq, hash)) = &self.head
            && (event.event_seq != seq + 1 || event.prev_hash != *hash)
        {
            return Err(self.lines.damaged("the event does not follow the one before it"));
        }
        self.head = Some((event.event_seq, event.hash.clone()));
        Ok(Some(event))
    }

    fn checked(self, failed: &RefCell<Option<RecoverError>>) -> impl Iterator<Item = AuditEvent> + '_ {
        stop_at_error(self, failed)
    }
}

impl Iterator for Events {
    type Item = Result<AuditEvent, RecoverError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

fn stop_at_error<'a, T: 'a>(
    mut items: impl Iterator<Item = Result<T, RecoverError>> + 'a,
    failed: &'a RefCell<Option<RecoverError>>,
) -> impl Iterator<Item = T> + 'a {
    std::iter::from_fn(move || match items.next()? {
        Ok(item) => Some(item),
        Err(e) => {
            failed.borrow_mut().get_or_insert(e);
            None
        }
    })
}

/// Events of the sessions before, the oldest first, as far back as calls were carried over. Missing ones leave those calls
/// without a receipt.
fn carried_events<'a>(
    dir: &AuditDir,
    continues: Option<SessionId>,
    failed: &'a RefCell<Option<RecoverError>>,
) -> Box<dyn Iterator<Item = AuditEvent> + 'a> {
    let all = if continues.is_some() { segments(dir) } else { HashMap::new() };
    let open = |id| Events::open(dir.files(), all.get(&id)?).ok();
    let mut before = Vec::new();
    let mut next = continues;
    while let Some(id) = next.take().filter(|_| before.len() < all.len()) {
        let first = open(id).and_then(|mut events| events.next()?.ok());
        let start = first.as_ref().and_then(AuditEvent::chain_start);
        next = start.filter(|start| !start.carried_in.is_empty()).and_then(|start| start.continues);
        before.extend(open(id));
    }
    Box::new(before.into_iter().rev().flat_map(|events| events.checked(failed)))
}

/// Where the segment of each session lies.
fn segments(dir: &AuditDir) -> HashMap<SessionId, PathBuf> {
    let names = dir.files().names(&dir.audit()).unwrap_or_default();
    let names = names.into_iter().filter_map(|name| name.into_string().ok());
    names.filter_map(|name| dir.session_of_segment(&name)).map(|paths| (paths.id, paths.segment)).collect()
}

fn receipts_on_disk<'a>(
    paths: &SessionPaths,
    failed: &'a RefCell<Option<RecoverError>>,
) -> Result<impl Iterator<Item = OnDisk> + use<'a>, RecoverError> {
    let mut lines = Lines::open(&paths.files, &paths.receipts)?;
    let mut start = 0;
    let items = std::iter::from_fn(move || {
        let line = match lines.next() {
            Ok(true) => lines.last(),
            Ok(false) => return None,
            Err(e) => return Some(Err(e)),
        };
        let at = start;
        start += line.len() as u64 + 1;
        Some(match reading::newer_receipt(line) {
            Some(source) => Err(RecoverError::TooNew { path: lines.path.clone(), source }),
            None => on_disk(line.to_vec(), at).map_err(|e| lines.damaged(e)),
        })
    });
    Ok(stop_at_error(items, failed))
}

fn on_disk(line: Vec<u8>, start: u64) -> Result<OnDisk, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Any {
        receipt_id: ReceiptId,
        r#type: String,
    }
    let any: Any = serde_json::from_slice(&line)?;
    let mut counts = Counts::default();
    let mut identity = None;
    if any.r#type == TOOL_CALL {
        let receipt: ToolCall = serde_json::from_slice(&line)?;
        counts.calls = 1;
        counts.denied = u64::from(receipt.outcome == Outcome::Denied);
        counts.errors = u64::from(receipt.outcome == Outcome::Error);
        counts.timeouts = u64::from(receipt.outcome == Outcome::Timeout);
        counts.policy_denied = u64::from(receipt.policy_verdict == PolicyVerdict::Denied);
    } else if any.r#type == SESSION_START {
        let receipt: SessionStart = serde_json::from_slice(&line)?;
        identity = Some((receipt.client_info, receipt.server_info, receipt.protocol_version));
    }
    Ok(OnDisk { id: any.receipt_id, kind: any.r#type, sha256: canon::sha256_hex(&line), line, start, counts, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_continued_is_recovered_first_whatever_its_name() {
        let dir = AuditDir::at("/nowhere");
        let id = |n: u64| SessionId::parse(&format!("mcp_{n:016x}")).unwrap();
        let session = |n| dir.session(WallTime::from_millis(0), id(n));
        // 5 continues 9, which continues 7; 3 continues one that is gone, 4 nothing.
        let continues = HashMap::from([(id(5), id(9)), (id(9), id(7)), (id(3), id(1))]);
        let found = [3, 4, 5, 7, 9].map(session).to_vec();
        let ordered: Vec<SessionId> = in_succession(found, &continues).into_iter().map(|paths| paths.id).collect();
        assert_eq!(ordered, [3, 4, 7, 9, 5].map(id));
        let circle = HashMap::from([(id(1), id(2)), (id(2), id(1))]);
        assert_eq!(in_succession([1, 2].map(session).to_vec(), &circle).len(), 2);
    }
}
