//! The recorder of a dead session, rebuilt, and fed what the capture still holds.

use super::{
    Decisions, RecoverError,
    evidence::{Events, carried_events, receipts_on_disk},
    log::{self, OfSession},
    owner_of,
};
use crate::{
    lines::GoodTail,
    model::{
        AuditEvent, Detail, Direction, EndReason, GapReason, LedgerKind, OutcomeReason, Profile, SessionDoc, SessionId,
        Transport, Vocabulary as _, WallTime,
        event::{SERVER_EVENTS, SURFACE_EVENTS, detail::ChainStart},
        session,
        surface::{First, Identity, Mode},
    },
    paths::{AuditDir, SessionPaths},
    record::{
        bridged::Bridged,
        card::{Card, Places},
        http::{sessions::BRIDGE, source::HttpSource},
        lane::Lane,
        ledger,
        mark::Mark,
        recorder::{Begin, Clock, Ending, Origin, Recorder, Setup},
        redact::Cleartext,
        rings::Rings,
        rulings::RulingReader,
        source::{Delivered, Seen, SessionKey, Source as _},
    },
    relay::Consumer,
    surface::{
        feed::{Pinned, SurfaceFeed},
        rules::Rules,
    },
    text::{counted, either},
};
use std::{cell::RefCell, io, sync::Arc};

/// The only session of the captures that a session over stdio left.
const SESSION: SessionKey = SessionKey(0);

/// The recorder of a dead session, as far as it is restored.
pub(super) struct Dead {
    pub(super) recorder: Recorder,
    pub(super) captures: Captured,
    notes: Vec<String>,
    /// Nothing of its chain was on disk.
    pub(super) begun_anew: bool,
    /// Where the receipts begin that are written again.
    pub(super) again_from: Option<u64>,
}

/// What its process kept of what is not on disk.
pub(super) enum Captured {
    /// The rings of a session over stdio, as far as they are there.
    Rings(Rings),
    /// Its part of the log of exchanges.
    Log(Box<OfSession>),
    /// The rings and the log of a session over a bridge, as far as they are there.
    Bridged(Box<Bridged>),
}

impl Captured {
    fn next(&mut self, take: &mut dyn FnMut(Seen<'_>)) -> bool {
        match self {
            Self::Rings(rings) => rings.next(&mut |_, seen| take(seen)),
            Self::Log(log) => log.next(take),
            Self::Bridged(source) => source.next(&mut |_, seen| take(seen)),
        }
    }

    fn take_error(&mut self) -> Option<io::Error> {
        match self {
            Self::Rings(rings) => rings.take_error().map(|e| e.source),
            Self::Log(log) => log.take_error(),
            Self::Bridged(source) => source.take_error().map(|e| e.source),
        }
    }

    fn delivered(&self, recorder: &mut Recorder) {
        let tell: Delivered<'_> = &mut |_, stream, written, when| recorder.delivered(stream, written, when);
        match self {
            Self::Rings(rings) => rings.delivered(tell),
            Self::Bridged(source) => source.delivered(tell),
            Self::Log(_) => {}
        }
    }

    fn unfinished(&self) -> u64 {
        let mut all = 0;
        match self {
            Self::Rings(rings) => rings.unfinished(&mut |_, _, bytes| all += bytes),
            Self::Bridged(source) => source.unfinished(&mut |_, _, bytes| all += bytes),
            Self::Log(log) => return log.unfinished(),
        }
        all
    }

    /// Bytes that crossed while no evidence could be written, and entries of a log that had no room in it.
    fn lost(&self) -> (u64, u64) {
        let of_lanes = |lanes: &[Lane]| lanes.iter().map(Lane::lost).sum::<u64>();
        match self {
            Self::Rings(rings) => (of_lanes(rings.lanes()), 0),
            Self::Log(log) => log.untold(),
            Self::Bridged(source) => {
                let (bytes, entries) = source.log().map_or((0, 0), HttpSource::untold);
                (of_lanes(source.lanes()) + bytes, entries)
            }
        }
    }

    /// Wall clock minus monotonic clock of the process, ns; 0 if it is not known.
    fn wall_offset(&self) -> i64 {
        let of_lanes = |lanes: &[Lane]| lanes.iter().map(|l| l.consumer().wall_offset()).find(|o| *o != 0).unwrap_or(0);
        match self {
            Self::Rings(rings) => of_lanes(rings.lanes()),
            Self::Log(log) => log.wall_offset(),
            Self::Bridged(source) => of_lanes(source.lanes()),
        }
    }

    /// Everything of it is on disk. A log is that of other sessions, too.
    pub(super) fn forget(&mut self) {
        match self {
            Self::Rings(rings) => rings.forget(SESSION),
            Self::Bridged(source) => source.forget(BRIDGE),
            Self::Log(_) => {}
        }
    }
}

impl Dead {
    pub(super) fn read(
        dir: &AuditDir,
        paths: &SessionPaths,
        card: Option<&Card>,
        mark: &Mark,
        decisions: Decisions<'_>,
    ) -> Result<Self, RecoverError> {
        let mut notes = Vec::new();
        let mut beginning = Events::open(&paths.files, &paths.segment)?;
        let first = beginning.next().transpose()?;
        let decided = beginning.next().and_then(Result::ok);
        let started_ns = card.map_or(0, |c| c.started_mono_ns);
        let started_at =
            first.as_ref().map(|e| e.at).or(card.map(|c| c.started_at)).unwrap_or(WallTime::from_millis(0));
        let (mut setup, continues) = setup_of(first.as_ref(), decided.as_ref(), card, decisions);
        let captures = if let Some(process) = card.and_then(log::process_of) {
            match OfSession::open(dir, process, paths.id) {
                Ok(Some(log)) => Captured::Log(Box::new(log)),
                Ok(None) => {
                    notes.push("the log of exchanges did not survive the process".to_owned());
                    Captured::Rings(Rings::left(Vec::new()))
                }
                Err(e) => {
                    notes.push(format!("the log of exchanges cannot be read: {e}"));
                    Captured::Rings(Rings::left(Vec::new()))
                }
            }
        } else if setup.is_library() {
            // A server records before it answers: there is nothing but what is on disk.
            Captured::Rings(Rings::left(Vec::new()))
        } else {
            let places = card.map(|c| c.places(dir)).unwrap_or_default();
            let rings = Rings::left(card.map(|_| lanes_of(&places, paths, &mut notes)).unwrap_or_default());
            match card.and_then(Card::bridge) {
                Some(_) => {
                    let log = bridge_log(dir, &places, paths.id, &mut notes);
                    // What the server spoke may be known only there.
                    if let Some(transport) = log.as_ref().and_then(HttpSource::speaks).filter(|_| first.is_none()) {
                        setup = Arc::new(Setup { transport, ..(*setup).clone() });
                    }
                    Captured::Bridged(Box::new(Bridged::left(rings, log)))
                }
                None => Captured::Rings(rings),
            }
        };
        let offset = Some(captures.wall_offset())
            .filter(|offset| *offset != 0)
            .unwrap_or_else(|| started_at.millis().saturating_mul(1_000_000).saturating_sub_unsigned(started_ns));
        let begun = match &first {
            Some(_) => None,
            None => ledger::holds(dir, paths.id, LedgerKind::SegmentStart)
                .map_err(|source| RecoverError::of_io(&dir.ledger(), source))?,
        };
        let prev_hash = match (&first, &begun) {
            (Some(e), _) => e.prev_hash.clone(),
            (None, Some(line)) => line.prev_hash.clone(),
            (None, None) => ledger::Ledger::lock(dir, Some(paths.id))
                .map(|l| l.head().to_owned())
                .map_err(|source| RecoverError::of_io(&dir.ledger(), source))?,
        };
        let begin =
            Begin { session: paths.id, continues, started_ns, started_at, clock: Clock::new(offset), prev_hash };
        let failed = RefCell::new(None);
        // A session that came back continues one of which nothing goes over.
        let rolls = card.is_some_and(|card| card.continues.is_some())
            || first.as_ref().and_then(AuditEvent::chain_start).is_some_and(|start| !start.carried_in.is_empty());
        let mut carried = carried_events(dir, continues.filter(|_| rolls), &failed);
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
            // Receipts and ledger come after a beginning: one that was there and is gone can only be written as it was.
            if has_receipts && mark.chain_start.as_deref() != Some(start)
                || begun.is_some_and(|line| line.segment_hash != start)
            {
                let what = "the beginning of this segment was cut off after it was written, and what its receipts and the \
                            ledger say of it cannot be written again; nothing is signed over it";
                return Err(RecoverError::Damaged { path: paths.segment.clone(), line: 1, what: what.to_owned() });
            }
        }
        if let Some(card) = card {
            recorder.restore_identity(session::Identity {
                client: card.client_info.clone(),
                server: card.server_info.clone(),
                protocol: card.protocol_version.clone(),
            });
        }
        Ok(Self { recorder, captures, notes, begun_anew: first.is_none(), again_from: None })
    }

    pub(super) fn finish(
        &mut self,
        paths: &SessionPaths,
        card: Option<&Card>,
        torn: Vec<String>,
    ) -> io::Result<SessionDoc> {
        let ended = self.recorder.restored().and_then(|r| r.ended.clone());
        let end_written = self.recorder.restored().is_some_and(|r| r.session_end_written);
        if let Some(ended) = ended {
            // Its captures no longer matter.
            let mut notes = torn;
            notes.push(SessionDoc::finished_later(&ended.reason));
            let ending = Ending { recovery_notes: notes, ..Ending::default() };
            return Ok(self.recorder.complete_ended(&ended, end_written, &ending));
        }
        let mut notes = torn;
        notes.append(&mut self.notes);
        if card.is_none() && !self.recorder.is_library() {
            notes.push("there is no card of this session: what its capture held is lost".to_owned());
        }
        let unfinished = self.drain(&mut notes)?;
        if let Some(at) = self.recorder.finish_restore() {
            notes.push(set_receipts_aside(paths, at)?);
            self.again_from = Some(at);
        }
        let (lost, entries) = self.captures.lost();
        if lost > 0 {
            notes.push(format!("{} crossed while no evidence could be written", counted(lost, "byte")));
            self.recorder.gap(GapReason::Disk, 0, lost, 0);
        }
        if entries > 0 {
            notes.push(format!("{} of the log of exchanges had no room in it", counted(entries, "entry")));
            self.recorder.gap(GapReason::CaptureStuck, 0, 0, 0);
        }
        if unfinished > 0 {
            notes.push(format!(
                "{} of unfinished messages {} in the capture",
                counted(unfinished, "byte"),
                either(unfinished, "was", "were")
            ));
            self.recorder.gap(GapReason::Crash, 0, unfinished, 0);
        }
        let who = if self.recorder.is_library() { "server" } else { "proxy" };
        notes.push(format!("the {who} of session {} ended without ending its chain", paths.id));
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
            let any = captures.next(&mut |seen| match seen {
                Seen::Message(m) => {
                    recorder.message(m);
                    messages += 1;
                }
                Seen::Torn { bytes, read_ns } => recorder.gap(GapReason::CaptureStuck, 1, bytes, read_ns),
                Seen::Gap { bytes, read_ns } => recorder.gap(GapReason::CaptureStuck, 0, bytes, read_ns),
                Seen::Exchange(exchange) => recorder.exchange(*exchange),
                Seen::Delivered { stream, upto, when } => recorder.delivered(stream, upto, when),
                Seen::Rolls(reason) => notes.push(format!(
                    "the session was about to end ({}), and the next had not begun: what crossed after that is in this \
                     one, too",
                    reason.as_str()
                )),
                Seen::Begins(_) | Seen::Ends(_) => {}
            });
            if let Some(e) = captures.take_error() {
                return Err(e);
            }
            if !any {
                break;
            }
        }
        captures.delivered(recorder);
        let unfinished = captures.unfinished();
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

/// How the surface of a session was compared with decisions, as its second event says.
fn surface_of(
    start: &ChainStart,
    decided: Option<&AuditEvent>,
    card: Option<&Card>,
    decisions: Decisions<'_>,
) -> Arc<SurfaceFeed> {
    let server = Identity { endpoint: start.command_digest.clone(), id: start.server_id.clone() };
    let (mode, first, rules_hash) = match decided.map(|e| &e.detail) {
        Some(Detail::SurfaceDecision(d)) => (d.mode, d.first, d.rules_hash.as_ref()),
        _ => (Mode::Report, First::Tofu, None),
    };
    let said = card.and_then(|card| card.surface_rules.as_ref());
    let rules = said.and_then(|text| Rules::parse(text.as_bytes(), "card").ok()).unwrap_or_default();
    // The chain says which they are, and the card only what is in them.
    let pinned = if rules.hash().as_ref() == rules_hash {
        decisions(&server)
    } else {
        Pinned::unknown("the rules that were in force are not known after the end of their process")
    };
    Arc::new(SurfaceFeed::new(mode, first, rules, pinned))
}

fn setup_of(
    first: Option<&AuditEvent>,
    decided: Option<&AuditEvent>,
    card: Option<&Card>,
    decisions: Decisions<'_>,
) -> (Arc<Setup>, Option<SessionId>) {
    match (first.and_then(AuditEvent::chain_start), card) {
        (Some(start), _) => {
            let transport = first.and_then(|e| Transport::of(e.transport.as_bytes())).unwrap_or(Transport::Stdio);
            let digest = start.command_digest.clone();
            let origin = match transport {
                _ if first.is_some_and(|e| e.v == SERVER_EVENTS) => Origin::Process { digest },
                Transport::Stdio => Origin::Command { digest, argv: start.command.clone() },
                Transport::StreamableHttp | Transport::Sse => {
                    let url = card.and_then(|card| card.http.as_ref()?.url.clone());
                    Origin::Url { digest, url }
                }
            };
            let setup = Setup {
                profile: start.profile,
                transport,
                server_id: start.server_id.clone(),
                origin,
                http: card.and_then(|card| Some(card.http.as_ref()?.binding.clone())),
                store_args: false,
                cleartext: Cleartext::default(),
                store_results: false,
                store_limit: 0,
                redact: None,
                policy_hash: start.policy_hash.clone(),
                surface: first
                    .is_some_and(|e| e.v == SURFACE_EVENTS)
                    .then(|| surface_of(start, decided, card, decisions)),
                witness: None,
            };
            (Arc::new(setup), start.continues)
        }
        (None, Some(card)) => {
            let came_back = card.http.as_ref().and_then(|http| http.binding.continues);
            (card.setup(), card.continues.or(came_back))
        }
        (None, None) => (
            Arc::new(Setup {
                profile: Profile::Audit,
                transport: Transport::Stdio,
                server_id: "unknown".to_owned(),
                origin: Origin::of_command(Vec::new(), false),
                http: None,
                store_args: false,
                cleartext: Cleartext::default(),
                store_results: false,
                store_limit: 0,
                redact: None,
                policy_hash: None,
                surface: None,
                witness: None,
            }),
            None,
        ),
    }
}

fn bridge_log(dir: &AuditDir, places: &Places, session: SessionId, notes: &mut Vec<String>) -> Option<HttpSource> {
    let Some(path) = &places.log else {
        notes.push("the log of exchanges did not survive the process".to_owned());
        return None;
    };
    log::of_bridge(dir, path, session).unwrap_or_else(|e| {
        notes.push(format!("the log of exchanges cannot be read: {e}"));
        None
    })
}

fn lanes_of(places: &Places, paths: &SessionPaths, notes: &mut Vec<String>) -> Vec<Lane> {
    let owner = owner_of(places);
    let mut lanes = Vec::new();
    let rulings = places.decisions.as_deref().and_then(|path| {
        RulingReader::open(path)
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

/// Copies the receipts from this place on aside: what is found now contradicts them, and they are written again. They
/// stay where they are until that is done ([`Store::write_receipts_again`]): a recovery that is killed loses none.
fn set_receipts_aside(paths: &SessionPaths, at: u64) -> io::Result<String> {
    let file = paths.files.open(&paths.receipts)?;
    let torn = file.metadata()?.len().saturating_sub(at);
    let tail = GoodTail { end: at, last: None, torn };
    let note = ledger::copy_aside(&paths.files, &file, &paths.receipts, &tail, Some(paths.id))?;
    Ok(note.replace("were no whole line, set", "had lost their events and are written again, set"))
}
