//! What was stated of a session of an audit directory while it was recorded, against its events.

use super::{
    ed25519::verify_ed25519,
    finding::Finding,
    source::{HashedLines, ReadMeter},
    words::Stage,
};
use crate::{
    model::{
        LedgerLine, SessionId,
        checkpoint::{Checkpoints, Role, Said, Wrong},
        sha256_hex,
    },
    text::counted,
    tree::{Frontier, Hash, leaf},
};
use std::{collections::BTreeMap, fs::File};

/// What was stated of a session while it was recorded, in the ledger and in its checkpoints.
pub struct Stated {
    tree: Frontier,
    /// Roots by size, with who stated them.
    roots: BTreeMap<u64, Vec<(Hash, &'static str)>>,
    /// SHA-256 of the recorder's key, as its certificate has it.
    key: Option<String>,
    wrong: Vec<String>,
}

impl Stated {
    /// What the ledger says: events, and their root.
    pub fn of(named: &[(u64, String)]) -> Self {
        let mut roots: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for (size, root) in named {
            let mut hash = Hash::default();
            // What is no hash is the root of nothing.
            let _ = hex::decode_to_slice(root, &mut hash);
            roots.entry(*size).or_default().push((hash, "the ledger"));
        }
        Self { tree: Frontier::default(), roots, key: None, wrong: Vec::new() }
    }

    /// Reads the file of checkpoints; `compare` them, and not only the key.
    pub fn read(
        &mut self,
        file: File,
        session: SessionId,
        compare: bool,
        meter: &mut ReadMeter<'_>,
        found: &mut dyn FnMut(Finding),
    ) {
        let holds = |key: &[u8], text: &[u8], signature: &[u8]| verify_ed25519(key, text, signature).is_ok();
        let (mut said, mut lines) = (Checkpoints::of(session), HashedLines::hashed(file));
        while let Ok(Some(line)) = lines.next(meter) {
            if !line.terminated {
                return;
            }
            match said.line(line.bytes, &holds) {
                Ok(Said::Key { role, .. }) => {
                    let key = said.key_in_use().filter(|_| role == Role::Recorder);
                    self.key = self.key.take().or(key.map(|(key, _)| sha256_hex(key.public())));
                }
                Ok(Said::Checkpoint { size, root, .. }) if compare => {
                    self.roots.entry(size).or_default().push((root, "a checkpoint"));
                }
                Ok(Said::Checkpoint { .. }) => {}
                Err(Wrong::TooNew(e)) if compare => {
                    return found(Finding::too_new(Stage::VerifyChain, &e).file("checkpoints"));
                }
                Err(Wrong::Form(what) | Wrong::Signature(what)) if compare => {
                    return self.wrong.push(format!("its checkpoints do not hold: {what}"));
                }
                Err(Wrong::Says(what)) if compare => {
                    return self.wrong.push(format!("its checkpoints do not hold: {what}"));
                }
                Err(_) => return,
            }
        }
    }

    /// The next event, by its hash.
    pub fn event(&mut self, hash: &[u8]) {
        let mut bytes = Hash::default();
        if hex::decode_to_slice(hash, &mut bytes).is_err() {
            return;
        }
        self.tree.push(leaf(&bytes));
        for (root, who) in self.roots.remove(&self.tree.size()).unwrap_or_default() {
            if root != self.tree.root() {
                let events = counted(self.tree.size(), "event");
                self.wrong.push(format!("its first {events} are not those that {who} states"));
            }
        }
    }

    /// What is wrong; `start` is the line of the segment's start.
    pub fn finish(self, file: &str, start: Option<&LedgerLine>, found: &mut dyn FnMut(Finding)) {
        let mut wrong = |what: String| found(Finding::new("E_CHAIN_BROKEN", Stage::VerifyChain, what).file(file));
        let there = self.tree.size();
        for (size, all) in self.roots.into_iter().filter(|(size, _)| *size > 0) {
            for (_, who) in all {
                let events = counted(size, "event");
                wrong(format!("{who} states {events} of this segment, and it has {there}: it was cut"));
            }
        }
        self.wrong.into_iter().for_each(&mut wrong);
        let named = start.and_then(|start| start.session_key.as_ref());
        if let Some((named, key)) = named.zip(self.key).filter(|(named, key)| *named != key) {
            wrong(format!(
                "its checkpoints are signed by the key {key}, and the ledger names {named}: it was made again"
            ));
        }
    }
}
