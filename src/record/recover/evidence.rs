//! What a dead session has on disk, line by line.

use super::RecoverError;
use crate::{
    canon,
    files::Tree,
    lines::{self, ReadStop},
    model::{
        AuditEvent, Outcome, PolicyVerdict, ReceiptId, SessionId, event,
        line::text,
        reading::{self, Reading},
        receipt::{CallMembers, Counts, Receipt, SESSION_START, TOOL_CALL},
        server::flat,
    },
    paths::{AuditDir, SessionPaths},
    record::recorder::OnDisk,
};
use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

/// The lines of a JSONL file, bounded.
pub(super) struct Lines {
    pub(super) path: PathBuf,
    /// `None`: there is no such file.
    all: Option<lines::Lines>,
    /// The line that was given last.
    number: u64,
}

impl Lines {
    pub(super) fn open(files: &Tree, path: &Path) -> Result<Self, RecoverError> {
        let all = match files.open(path) {
            Ok(file) => Some(lines::Lines::of(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RecoverError::Io { path: path.to_owned(), source }),
        };
        Ok(Self { path: path.to_owned(), all, number: 0 })
    }

    /// Goes to the next line, which is then the [`last`](Self::last) one; `false` at the end.
    pub(super) fn next(&mut self) -> Result<bool, RecoverError> {
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

    pub(super) fn last(&self) -> &[u8] {
        self.all.as_ref().map_or(&[], |lines| lines.last())
    }

    pub(super) fn damaged(&self, what: impl std::fmt::Display) -> RecoverError {
        RecoverError::Damaged { path: self.path.clone(), line: self.number, what: what.to_string() }
    }

    /// Why the last line cannot be read.
    pub(super) fn unread<T: reading::Versioned>(&self) -> RecoverError {
        match reading::read::<T>(self.last()) {
            Reading::TooNew(source) => RecoverError::TooNew { path: self.path.clone(), source },
            Reading::Damaged(what) => self.damaged(what),
            Reading::Readable(_) => self.damaged("the line cannot be read"),
        }
    }
}

/// The events of a segment, each checked against the one before.
pub(super) struct Events {
    lines: Lines,
    head: Option<(u64, String)>,
}

impl Events {
    pub(super) fn open(files: &Tree, path: &Path) -> Result<Self, RecoverError> {
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

    pub(super) fn checked(self, failed: &RefCell<Option<RecoverError>>) -> impl Iterator<Item = AuditEvent> + '_ {
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

/// Events of the sessions before, the oldest first, as far back as calls were carried over. Missing ones leave those
/// calls without a receipt.
pub(super) fn carried_events<'a>(
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

/// Where the chain of each session is.
fn segments(dir: &AuditDir) -> HashMap<SessionId, PathBuf> {
    dir.sessions().into_values().map(|paths| (paths.id, paths.chain())).collect()
}

pub(super) fn receipts_on_disk<'a>(
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

fn on_disk(line: Vec<u8>, start: u64) -> Result<OnDisk, String> {
    let m = CallMembers::of_line(&line).ok_or("it is not a JSON object")?;
    let id = text(m.receipt_id).and_then(|id| ReceiptId::parse(&id).ok()).ok_or("it has no receipt_id")?;
    let kind = text(m.r#type).ok_or("it has no type")?.into_owned();
    let mut counts = Counts::default();
    let mut identity = None;
    // Nothing else of the other lines is needed; if one is damaged, the verifier names it.
    if matches!(kind.as_str(), TOOL_CALL | SESSION_START) || flat(&kind).is_some() {
        match Receipt::of_kind(&kind, &line).map_err(|e| e.to_string())? {
            Receipt::Call(call) => counts.call(call.outcome, call.policy_verdict),
            Receipt::Start(start) => identity = Some((start.client_info, start.server_info, start.protocol_version)),
            Receipt::Denied(_) => counts.call(Outcome::Denied, PolicyVerdict::Denied),
            Receipt::Executed(done) if !done.is_of_task() => {
                counts.execution(done.outcome, done.policy_verdict);
            }
            Receipt::End(_) | Receipt::Gap(_) | Receipt::Requested(_) | Receipt::Executed(_) => {}
        }
    }
    Ok(OnDisk { id, kind, sha256: canon::sha256_hex(&line), line, start, counts, identity })
}
