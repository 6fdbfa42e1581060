//! Stage `verify_checkpoints`: what was stated of the session while it was recorded, against the events that there are.

use super::{
    chain::ChainSummary,
    ed25519::verify_ed25519,
    finding::Finding,
    notebook::Notebook,
    source::{HashedLines, ReadMeter, ReadStop},
    words::Stage,
};
use crate::{
    model::{
        checkpoint::{Checkpoints, Role, Said, Wrong},
        event::EventView as Event,
        pack::CHECKPOINTS,
        sha256_hex,
    },
    text::counted,
    tree::{Frontier, Hash, leaf},
};
use std::collections::BTreeSet;

/// What the checkpoints of a session amount to.
#[derive(Debug, Clone, Default)]
pub struct Seals {
    /// How many there are.
    pub checkpoints: u64,
    /// Events that they cover.
    pub events: u64,
    /// Events that the recorder which saw them stated itself.
    pub by_recorder: u64,
    /// SHA-256 (hex) of the long-term keys that certified the session's keys.
    pub signers: BTreeSet<String>,
}

/// A checkpoint that was read and not compared yet.
struct Stated {
    size: u64,
    root: Hash,
    role: Role,
    line: u64,
    offset: u64,
}

/// The file of checkpoints, read beside the events.
pub struct SealFile {
    lines: HashedLines,
    said: Option<Checkpoints>,
    tree: Frontier,
    next: Option<Stated>,
    seals: Seals,
    /// Nothing more can be compared; what is wrong was said.
    stopped: bool,
}

impl SealFile {
    /// Nothing was read yet.
    #[must_use]
    pub fn new(lines: HashedLines) -> Self {
        Self { lines, said: None, tree: Frontier::default(), next: None, seals: Seals::default(), stopped: false }
    }

    /// Takes the next event; `None`: it does not read, and the tree ends here.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn event(
        &mut self,
        notes: &mut Notebook<'_>,
        meter: &mut ReadMeter<'_>,
        event: Option<&Event<'_>>,
    ) -> Result<(), ReadStop> {
        let mut hash = Hash::default();
        let Some(event) = event.filter(|event| hex::decode_to_slice(event.hash, &mut hash).is_ok()) else {
            self.stopped = true;
            return Ok(());
        };
        if self.stopped {
            return Ok(());
        }
        self.said.get_or_insert_with(|| Checkpoints::of(event.session_id));
        self.tree.push(leaf(&hash));
        if self.next.is_none() && self.tree.size() == 1 {
            self.read(notes, meter)?;
        }
        while let Some(stated) = self.next.take_if(|next| next.size == self.tree.size()) {
            if stated.root != self.tree.root() {
                let what =
                    format!("the first {} are not those that the checkpoint states", counted(stated.size, "event"));
                let found = hex::encode(self.tree.root());
                self.wrong(notes, "E_CHAIN_BROKEN", &stated, what, Some((hex::encode(stated.root), found)));
                return Ok(());
            }
            self.seals.checkpoints += 1;
            self.seals.events = stated.size;
            if stated.role == Role::Recorder {
                self.seals.by_recorder = stated.size;
            }
            self.read(notes, meter)?;
        }
        Ok(())
    }

    fn wrong(
        &mut self,
        notes: &mut Notebook<'_>,
        code: &'static str,
        at: &Stated,
        what: String,
        sides: Option<(String, String)>,
    ) {
        self.stopped = true;
        let mut f = Finding::new(code, Stage::VerifyCheckpoints, what).file(CHECKPOINTS).line(at.line, at.offset);
        if let Some((expected, found)) = sides {
            f = f.sides(expected, found);
        }
        notes.found(f);
    }

    /// Reads up to the next checkpoint.
    fn read(&mut self, notes: &mut Notebook<'_>, meter: &mut ReadMeter<'_>) -> Result<(), ReadStop> {
        let holds = |key: &[u8], text: &[u8], signature: &[u8]| verify_ed25519(key, text, signature).is_ok();
        let Some(said) = &mut self.said else { return Ok(()) };
        while let Some(line) = self.lines.next(meter)? {
            let at = |f: Finding| f.file(CHECKPOINTS).line(line.number, line.offset);
            let wrong = |code, what: &str| at(Finding::new(code, Stage::VerifyCheckpoints, what));
            let read = if line.terminated {
                said.line(line.bytes, &holds)
            } else {
                Err(Wrong::Form("the last line has no newline: it was cut".to_owned()))
            };
            let found = match read {
                Ok(Said::Key { signer, .. }) => {
                    self.seals.signers.insert(sha256_hex(signer.public()));
                    continue;
                }
                Ok(Said::Checkpoint { size, root, role }) => {
                    self.next = Some(Stated { size, root, role, line: line.number, offset: line.offset });
                    return Ok(());
                }
                Err(Wrong::TooNew(newer)) => at(Finding::too_new(Stage::VerifyCheckpoints, &newer)),
                Err(Wrong::Form(what)) => wrong("E_SCHEMA_UNKNOWN", &what),
                Err(Wrong::Signature(what)) => wrong("E_PACK_SIG_INVALID", &what),
                Err(Wrong::Says(what)) => wrong("E_CHAIN_BROKEN", what),
            };
            notes.found(found);
            self.stopped = true;
            return Ok(());
        }
        Ok(())
    }

    /// What they amount to after the last event; `None` if that is not known.
    pub fn finish(&mut self, notes: &mut Notebook<'_>, chain: &ChainSummary) -> Option<Seals> {
        if let Some(stated) = self.next.take().filter(|_| !self.stopped) {
            let (what, events) = ("the checkpoint states more events than there are".to_owned(), self.tree.size());
            self.wrong(
                notes,
                "E_PACK_OMISSION_DETECTED",
                &stated,
                what,
                Some((stated.size.to_string(), events.to_string())),
            );
        }
        if self.stopped {
            return None;
        }
        // A session that has its end was sealed as a whole.
        if chain.end.is_some() && self.seals.events < chain.events {
            let what = "the last checkpoint does not cover the whole chain";
            let f = Finding::new("E_PACK_OMISSION_DETECTED", Stage::VerifyCheckpoints, what).file(CHECKPOINTS);
            notes.found(f.sides(chain.events, self.seals.events));
        }
        Some(self.seals.clone())
    }

    /// Reads what is left; SHA-256 (hex) and length of the whole file.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn hash(self, meter: &mut ReadMeter<'_>) -> Result<(String, u64), ReadStop> {
        self.lines.finish(meter)
    }
}
