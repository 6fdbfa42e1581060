//! One session that is followed: what the socket sent, and what its files hold where something is missing.

use super::{Gone, Update, uncounted};
use crate::{
    live::{
        fold::Fold,
        journal,
        protocol::{LiveLine, PackProgress, PackState, RunCard},
        row::CallRow,
    },
    model::{ReceiptId, SessionId, reading::Reading},
    paths::AuditDir,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
};

/// Events that are read before a gap, so that calls which began there are whole.
const RUN_UP: u64 = 512;

/// Receiver of the updates.
pub(super) struct Teller {
    pub updates: SyncSender<Update>,
    pub stop: Arc<AtomicBool>,
}

impl Teller {
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// `None` if there is no receiver any more.
    pub fn tell(&self, update: Update) -> Option<()> {
        if self.stopped() { None } else { self.updates.send(update).ok() }
    }
}

pub(super) struct Followed {
    pub card: RunCard,
    /// Cursor of the next event to report.
    pub cursor: u64,
    /// Its chain has its end.
    pub ended: bool,
    /// The session that its end announced.
    pub next: Option<SessionId>,
    /// Its pack is done.
    pub sealed: bool,
}

/// What is told of a session whose process is gone, once it has a pack.
pub fn built(card: &RunCard) -> Option<Update> {
    let (session_id, problems) = (card.card.session_id, Vec::new());
    let paths = AuditDir::at(&card.audit_dir).session(card.card.started_at, session_id);
    let pack = Some(paths.pack).filter(|pack| pack.is_dir())?;
    let told = PackProgress { pack: Some(pack), problems, session_id, state: PackState::Built };
    Some(Update::Line(Box::new(LiveLine::PackProgress(told))))
}

impl Followed {
    pub const fn new(card: RunCard, cursor: u64) -> Self {
        Self { card, cursor, ended: false, next: None, sealed: false }
    }

    pub const fn id(&self) -> SessionId {
        self.card.card.session_id
    }

    /// Whether no more lines about it can come.
    pub const fn is_over(&self) -> bool {
        self.ended && self.sealed
    }

    pub fn gone(&self) -> Gone {
        Gone::of(self.id(), &self.card.audit_dir)
    }

    /// Takes a line about it: an event, a gap, how far its pack is.
    pub fn hear(&mut self, line: LiveLine, teller: &Teller) -> Option<()> {
        match &line {
            LiveLine::Gap(gap) => return self.heal(gap.from, gap.to, teller),
            LiveLine::PackProgress(p) => self.sealed |= p.state != PackState::Sealing,
            _ => {}
        }
        if let Some((_, cursor)) = line.place() {
            if cursor < self.cursor {
                return Some(());
            }
            // A lost line leaves a gap, on whichever side it was lost.
            if cursor > self.cursor {
                self.heal(self.cursor, cursor, teller)?;
            }
            self.cursor = cursor.saturating_add(1);
        }
        let chained = line.chained();
        if let Some(end) = chained.and_then(|c| c.end.as_ref()) {
            (self.ended, self.next) = (true, end.next);
        }
        let call = chained.and_then(|c| c.call.as_ref()).filter(|call| call.tool_name.is_none());
        let partial = call.and_then(|call| call.receipt_id);
        teller.tell(Update::Line(Box::new(line)))?;
        if let Some(receipt) = partial {
            self.receipts(&BTreeSet::from([receipt]), teller)?;
        }
        Some(())
    }

    /// Reports the events `from..to`, read from the segment.
    fn heal(&mut self, from: u64, to: u64, teller: &Teller) -> Option<()> {
        let (id, from) = (self.id(), from.max(self.cursor));
        let mut fold = Fold::default();
        fold.set_server(&self.card.card.server_id);
        let (segment, mut ends) = (&self.card.segment, None);
        let mut partial = BTreeSet::new();
        let (mut listening, mut behind, mut too_new) = (Some(()), from, None);
        let healed = journal::events(segment, from.saturating_sub(RUN_UP), to, &mut |seq, read| {
            let mut line = match read {
                Reading::Readable(e) => fold.event(&e),
                Reading::TooNew(e) => {
                    let line = fold.unread(id, seq, e.to_string());
                    too_new = too_new.take().or(Some(e));
                    line
                }
                Reading::Damaged(why) => fold.unread(id, seq, why),
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
            listening = teller.tell(Update::Line(Box::new(line)));
            behind = seq.saturating_add(1);
        });
        match (healed, too_new) {
            (Ok(()), None) => {}
            (Ok(()), Some(e)) => {
                let why = format!("{}: {e}", segment.display());
                teller.tell(Update::TooNew { session: id, why })?;
            }
            (Err(e), _) => tracing::warn!(path = %segment.display(), error = %e, "a gap could not be healed"),
        }
        self.cursor = self.cursor.max(if to == u64::MAX { behind } else { to });
        if let Some(end) = ends {
            (self.ended, self.next) = (true, end.next);
        }
        listening?;
        if partial.is_empty() { Some(()) } else { self.receipts(&partial, teller) }
    }

    fn receipts(&self, wanted: &BTreeSet<ReceiptId>, teller: &Teller) -> Option<()> {
        let mut rows = Vec::new();
        let path = &self.card.receipts;
        match journal::calls(path, Some(wanted), &mut |r| rows.push(CallRow::of_receipt(r))) {
            Ok(None) => {}
            Ok(Some(e)) => {
                teller.tell(Update::TooNew { session: self.id(), why: format!("{}: {e}", path.display()) })?;
            }
            Err(e) => tracing::warn!(path = %path.display(), error = %e, "receipts could not be read"),
        }
        rows.into_iter().try_for_each(|row| teller.tell(Update::Call(Box::new(row))))
    }

    /// Reports the rest of the session from its files.
    pub fn rest(&mut self, teller: &Teller) -> Option<()> {
        if !self.ended {
            self.heal(self.cursor, u64::MAX, teller)?;
        }
        if self.sealed {
            return Some(());
        }
        // No process can report how far the pack is any more; check whether there is one.
        built(&self.card).map_or(Some(()), |told| teller.tell(told))
    }

    /// The session that continues this one, from the files alone.
    pub fn continued_by(&self) -> Option<RunCard> {
        if self.ended && self.next.is_none() {
            return None;
        }
        let dir = AuditDir::at(&self.card.audit_dir);
        dir.sessions().into_values().find_map(|paths| {
            if self.next.is_some_and(|id| id != paths.id) || paths.id == self.id() {
                return None;
            }
            let mut continues = None;
            journal::events(&paths.segment, 0, 1, &mut |_, read| {
                continues = read.ok().and_then(|e| e.chain_start().and_then(|s| s.continues));
            })
            .ok()?;
            (continues == Some(self.id())).then(|| {
                let mut card = self.card.clone();
                card.card.session_id = paths.id;
                card.segment = paths.segment;
                card.receipts = paths.receipts;
                card
            })
        })
    }
}
