//! What the checkpoints of a dead session say of its segment: nothing is signed over less than was stated, or over something
//! else.

use super::{RecoverError, evidence::Lines};
use crate::{
    model::{
        LedgerLine,
        checkpoint::{Checkpoints, Said, Wrong},
        event,
    },
    note::Verifier,
    paths::SessionPaths,
    text::counted,
    tree::{Frontier, Hash, leaf},
};

/// A segment as it is on disk, and how much of it checkpoints cover.
pub(super) struct Sealed {
    pub(super) tree: Frontier,
    pub(super) size: u64,
}

/// Reads both files and compares them, also with the checkpoint that the ledger names.
///
/// # Errors
/// [`RecoverError`]; `Damaged` also if the segment is not what a checkpoint says it was.
pub(super) fn read(
    paths: &SessionPaths,
    named: Option<&LedgerLine>,
    holds: Verifier<'_>,
) -> Result<Sealed, RecoverError> {
    let mut events = Lines::open(&paths.files, &paths.segment)?;
    let named = named.map(|line| (line.event_count, line.tree_root.as_deref()));
    let named = named.filter(|(size, _)| *size > 0);
    if let Some((size, root)) = named {
        let mut tree = Frontier::default();
        while tree.size() < size && next(&mut events, &mut tree)? {}
        if tree.size() < size || root != Some(&hex::encode(tree.root())) {
            return Err(events.damaged(format_args!(
                "the ledger names a checkpoint of {} of this segment, and these are not there any more: it was cut or changed \
                 after that, together with its checkpoints, and nothing is signed over it",
                counted(size, "event")
            )));
        }
        events = Lines::open(&paths.files, &paths.segment)?;
    }
    let mut lines = Lines::open(&paths.files, &paths.checkpoints)?;
    let (mut said, mut tree) = (Checkpoints::of(paths.id), Frontier::default());
    while lines.next()? {
        let (size, root) = match said.line(lines.last(), holds) {
            Ok(Said::Key { .. }) => continue,
            Ok(Said::Checkpoint { size, root, .. }) => (size, root),
            Err(Wrong::TooNew(source)) => return Err(RecoverError::TooNew { path: lines.path, source }),
            Err(Wrong::Form(what) | Wrong::Signature(what)) => return Err(lines.damaged(what)),
            Err(Wrong::Says(what)) => return Err(lines.damaged(what)),
        };
        while tree.size() < size && next(&mut events, &mut tree)? {}
        if tree.size() < size {
            return Err(events.damaged(format_args!(
                "a checkpoint says that this segment had {}, and it has {}: it was cut after that, and nothing is signed \
                 over it",
                counted(size, "event"),
                tree.size()
            )));
        }
        if tree.root() != root {
            return Err(events.damaged(format_args!(
                "the first {} of this segment are not those that a checkpoint states: they were changed after that, and \
                 nothing is signed over them",
                counted(size, "event")
            )));
        }
    }
    while next(&mut events, &mut tree)? {}
    Ok(Sealed { tree, size: said.size() })
}

/// Takes the next event into the tree; `false` at the end.
fn next(events: &mut Lines, tree: &mut Frontier) -> Result<bool, RecoverError> {
    if !events.next()? {
        return Ok(false);
    }
    let hash = event::hash_of_line(events.last()).and_then(|hash| {
        let mut bytes = Hash::default();
        hex::decode_to_slice(hash, &mut bytes).is_ok().then_some(bytes)
    });
    tree.push(leaf(&hash.ok_or_else(|| events.damaged("it is not the line of an event"))?));
    Ok(true)
}
