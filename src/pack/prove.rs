//! A proof of one event, from a pack that verifies (docs/formats.md, "Proof of an event").

use super::{
    calls::{CallsError, lines},
    verify::{
        Integrity, VerifyError, VerifyOptions,
        proof::{Extra, Proof},
        source::PackDir,
        verify,
    },
};
use crate::{
    model::{
        ReceiptId,
        checkpoint::Role,
        event::EventView,
        line,
        pack::{AUDIT_LOG, CHECKPOINTS, RECEIPTS},
    },
    tree::{self, Frontier, Hash, leaf},
};
use std::{ops::ControlFlow, ops::Range, path::Path};

/// What is to be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The event that binds this receipt, and the receipt.
    Receipt(ReceiptId),
    /// The event of this number, from 0, without its receipt.
    Event(u64),
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// It cannot be verified at all.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// It does not verify: nothing is proven from it.
    #[error("the pack is {0}: nothing can be proven from it")]
    NotSound(Integrity),
    /// Its session has no checkpoints.
    #[error("the pack has no checkpoints: the session was recorded before there were any, or without a key")]
    NoCheckpoints,
    /// It has no such event.
    #[error("the session has {0} events, numbered from 0")]
    NoEvent(u64),
    /// No event binds such a receipt.
    #[error(
        "no event binds a receipt {0}: the first and the last receipt are covered by the signature of the pack alone"
    )]
    NoReceipt(ReceiptId),
    /// A file of it cannot be read.
    #[error(transparent)]
    Read(#[from] CallsError),
}

/// A checkpoint, and the key that signed it, as their lines say.
struct Stated {
    key: String,
    note: String,
    size: u64,
    by_recorder: bool,
}

/// Proves one event of a pack to whoever has neither the pack nor the other events.
///
/// # Errors
/// [`ProveError`].
pub fn prove(pack: &Path, what: What) -> Result<Proof, ProveError> {
    let report = verify(pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(()))?;
    if report.integrity != Integrity::Pass {
        return Err(ProveError::NotSound(report.integrity));
    }
    let dir = PackDir::open(pack)?;
    if dir.open_file(CHECKPOINTS).is_err() {
        return Err(ProveError::NoCheckpoints);
    }
    let (index, receipt) = match what {
        What::Event(index) if index >= report.facts.event_count => {
            return Err(ProveError::NoEvent(report.facts.event_count));
        }
        What::Event(index) => (index, None),
        What::Receipt(id) => (binding(&dir, id)?, Some(receipt(&dir, id)?)),
    };
    let Stated { key, note, size, .. } = stated(&dir, index)?.ok_or(ProveError::NoCheckpoints)?;
    let beside = tree::inclusion(index, size).map_err(|_| ProveError::NoEvent(size))?;
    let (event, path) = path(&dir, index, &beside)?;
    let mut extra = Extra { event, key, ledger: None, receipt, reveal: [], v: 0 };
    extra.v = extra.version();
    Ok(Proof { index, path, note, extra })
}

/// The last checkpoint of the recorder that covers this event; of recovery if there is none.
fn stated(dir: &PackDir, index: u64) -> Result<Option<Stated>, CallsError> {
    let (mut key, mut found) = (String::new(), None::<Stated>);
    lines(dir, CHECKPOINTS, |l| {
        let note = line::text(line::member(l.bytes, "note")).unwrap_or_default().into_owned();
        let second = note.split('\n').nth(1).unwrap_or_default();
        match second.parse() {
            Ok(size) if size > index => {
                let by_recorder = key.contains(&format!("\\n{}\\n", Role::Recorder.as_str()));
                if by_recorder || found.as_ref().is_none_or(|f| !f.by_recorder) {
                    found = Some(Stated { key: key.clone(), note, size, by_recorder });
                }
            }
            Ok(_) => {}
            Err(_) => key = String::from_utf8_lossy(l.bytes).into_owned(),
        }
    })?;
    Ok(found)
}

/// The number of the event that binds a receipt.
fn binding(dir: &PackDir, id: ReceiptId) -> Result<u64, ProveError> {
    let mut found = None;
    lines(dir, AUDIT_LOG, |l| {
        let event = EventView::of_line(l.bytes).filter(|e| e.detail.binding().receipt_id == Some(id));
        found = event.map(|e| e.event_seq).or(found);
    })?;
    found.ok_or(ProveError::NoReceipt(id))
}

fn receipt(dir: &PackDir, id: ReceiptId) -> Result<String, ProveError> {
    let (mut found, wanted) = (None, id.to_string());
    lines(dir, RECEIPTS, |l| {
        if line::text(line::member(l.bytes, "receipt_id")).as_deref() == Some(&*wanted) {
            found = Some(String::from_utf8_lossy(l.bytes).into_owned());
        }
    })?;
    found.ok_or(ProveError::NoReceipt(id))
}

/// The event's line, and the roots of these subtrees beside it.
fn path(dir: &PackDir, index: u64, beside: &[Range<u64>]) -> Result<(String, Vec<Hash>), CallsError> {
    let (mut event, mut trees) = (String::new(), vec![Frontier::default(); beside.len()]);
    lines(dir, AUDIT_LOG, |l| {
        let n = l.number - 1;
        if n == index {
            event = String::from_utf8_lossy(l.bytes).into_owned();
        }
        let tree = beside.iter().zip(&mut trees).find(|(range, _)| range.contains(&n));
        let mut hash = Hash::default();
        if let Some((_, tree)) = tree
            && EventView::of_line(l.bytes).is_some_and(|e| hex::decode_to_slice(e.hash, &mut hash).is_ok())
        {
            tree.push(leaf(&hash));
        }
    })?;
    Ok((event, trees.iter().map(Frontier::root).collect()))
}
