//! The recorder of a dead session, rebuilt, and fed what the capture still holds.

use super::{
    RecoverError,
    evidence::{Events, carried_events, receipts_on_disk},
    owner_of,
};
use crate::{
    lines::GoodTail,
    model::{
        AuditEvent, Direction, EndReason, GapReason, LedgerKind, OutcomeReason, Profile, SessionDoc, SessionId,
        WallTime, session::Identity,
    },
    paths::{AuditDir, SessionPaths},
    record::{
        card::{Card, Places},
        lane::Lane,
        ledger,
        mark::Mark,
        recorder::{Begin, Clock, Ending, Recorder, Setup, command_digest},
        rings::Rings,
        rulings::RulingReader,
        source::{Seen, SessionKey, Source as _},
    },
    relay::Consumer,
    text::{counted, either},
};
use std::{cell::RefCell, io, sync::Arc};

/// The only session of the captures that a session over stdio left.
pub(super) const SESSION: SessionKey = SessionKey(0);

/// The recorder of a dead session, as far as it is restored.
pub(super) struct Dead {
    pub(super) recorder: Recorder,
    pub(super) captures: Rings,
    notes: Vec<String>,
    /// Nothing of its chain was on disk.
    pub(super) begun_anew: bool,
    /// Where the receipts begin that are written again.
    pub(super) again_from: Option<u64>,
}

impl Dead {
    pub(super) fn read(
        dir: &AuditDir,
        paths: &SessionPaths,
        card: Option<&Card>,
        mark: &Mark,
    ) -> Result<Self, RecoverError> {
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
            recorder.restore_identity(Identity {
                client: card.client_info.clone(),
                server: card.server_info.clone(),
                protocol: card.protocol_version.clone(),
            });
        }
        Ok(Self { recorder, captures: Rings::left(lanes), notes, begun_anew: first.is_none(), again_from: None })
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

fn setup_of(first: Option<&AuditEvent>, card: Option<&Card>) -> (Arc<Setup>, Option<SessionId>) {
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
                profile: Profile::Audit,
                transport: "stdio",
                server_id: "unknown".to_owned(),
                command: None,
                command_digest: command_digest(&[]),
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
    let note = ledger::copy_aside(&paths.files, &file, &paths.receipts, &tail, paths.id)?;
    Ok(note.replace("were no whole line, set", "had lost their events and are written again, set"))
}
