//! The ledger of an audit directory as a log: its tree against what was signed, against its tiles, and against what the verifier
//! remembers.

use super::{
    anchor::{self, Known},
    ed25519::verify_ed25519,
    finding::Finding,
    options::VerifyOptions,
    source::{PackDir, ReadMeter},
    state::{KnownLog, Remembered, State},
    trust,
    words::{SignerVerdict, Stage},
};
pub use super::{
    finding::{FORK, ROLLBACK},
    words::Memory,
};
use crate::{
    model::{
        checkpoint::read_text,
        ledger::{LedgerLine, LogName, entry},
        sha256_hex,
    },
    text::counted,
    tiles::{self, Edge, Tile},
};
use assay_evidence::note::{self, Key};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The directory of the log in `audit/`, and what it has.
const LOG: &str = "log";
const CHECKPOINT: &str = "checkpoint";

/// Code of a finding: the checkpoint is not one.
const CHECKPOINT_WRONG: &str = "E_LOG_CHECKPOINT";

/// What a log amounts to.
#[derive(Debug, Clone, Serialize)]
pub struct LogReport {
    /// Its name; empty without lines.
    pub origin: String,
    /// Lines.
    pub size: u64,
    /// The root of their tree, hex.
    pub root: String,
    /// What is signed of it; null if nothing is.
    pub checkpoint: Option<CheckpointReport>,
    /// Lines that nobody has signed yet.
    pub unsigned: u64,
    /// Names that it had before, with what its renewals say.
    pub renewed: Vec<RenewedReport>,
    /// What comes of what the verifier remembers.
    pub memory: MemoryReport,
}

impl LogReport {
    /// Lines that were signed and are not there, as its renewals say.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.renewed.iter().map(|renewed| renewed.missing).max().unwrap_or(0)
    }
}

/// A checkpoint whose signature holds.
#[derive(Debug, Clone, Serialize)]
pub struct CheckpointReport {
    /// Lines that it covers.
    pub size: u64,
    /// SHA-256 of the public key that signed, hex.
    pub signer: String,
    /// How it compares with the keys that the caller named.
    pub signer_verdict: SignerVerdict,
    /// The note.
    pub note: String,
}

/// A line that begins another log.
#[derive(Debug, Clone, Serialize)]
pub struct RenewedReport {
    /// Number of the line.
    pub ledger_seq: u64,
    /// The name that the log had.
    pub was: String,
    /// Lines of it that were signed, as the line says; null if none were.
    pub signed: Option<u64>,
    /// How many of these are not there.
    pub missing: u64,
    /// Why, as the line says.
    pub reason: Option<String>,
}

/// What was remembered, and what is there.
#[derive(Debug, Clone, Default, Serialize)]
pub struct MemoryReport {
    /// In one word.
    pub verdict: Memory,
    /// Lines that are remembered.
    pub size: Option<u64>,
    /// The note that is remembered, where it contradicts what is there.
    pub note: Option<String>,
    /// The first and the last line, from 1, among which is the first that differs.
    pub differs: Option<[u64; 2]>,
}

/// Reads the lines of a ledger as a log.
pub struct LogWalk<'a> {
    audit: &'a PackDir,
    state: Option<&'a State>,
    /// What lies beside the ledger: who signed it is not known yet.
    note: Option<String>,
    edge: Edge,
    name: LogName,
    names: BTreeSet<String>,
    renewed: Vec<RenewedReport>,
    /// The edge when the tree had one of these sizes.
    at: BTreeMap<u64, Option<Edge>>,
    /// Whole tiles of what the checkpoint covers that are not what they should be.
    tiles: Vec<String>,
    signed: u64,
}

impl<'a> LogWalk<'a> {
    /// Nothing was read yet.
    pub fn new(audit: &'a PackDir, state: Option<&'a State>, anchors: &[String], meter: &mut ReadMeter<'_>) -> Self {
        let note = audit.sub(LOG).and_then(|log| log.read_whole(CHECKPOINT, note::MAX_NOTE, meter).ok()?.ok());
        let note = note.and_then(|note| String::from_utf8(note.bytes).ok());
        let signed = note.as_deref().and_then(stated).map_or(0, |(_, size)| size);
        let remembered = state.into_iter().flat_map(State::logs).filter_map(KnownLog::remembered);
        let anchored = anchors.iter().filter_map(|note| anchor::size_of(note));
        let sizes = remembered.map(|known| known.size).chain(anchored).chain([signed]);
        let at = sizes.map(|size| (size, None)).collect();
        Self {
            audit,
            state,
            note,
            edge: Edge::default(),
            name: LogName::default(),
            names: BTreeSet::new(),
            renewed: Vec::new(),
            at,
            tiles: Vec::new(),
            signed,
        }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: &[u8]) {
        let number = self.edge.size();
        let was = self.name.origin().to_owned();
        if self.name.line(number, line) && !was.is_empty() {
            let line = serde_json::from_slice::<LedgerLine>(line).ok();
            let (reason, renewed) = line.map(|line| (line.note, line.renewed)).unwrap_or_default();
            let note = renewed.and_then(|renewed| renewed.checkpoint);
            let signed = note.as_deref().and_then(stated).map(|(_, size)| size);
            let missing = signed.unwrap_or(0).saturating_sub(number);
            self.renewed.push(RenewedReport { ledger_seq: number, was: was.clone(), signed, missing, reason });
            self.names.insert(was);
        }
        let (audit, signed, wrong) = (self.audit, self.signed, &mut self.tiles);
        self.edge.push(entry(line), &mut |tile| {
            if number < signed && !is_there(audit, &tile) {
                wrong.push(tile.place.path());
            }
        });
        if let Some(at) = self.at.get_mut(&self.edge.size()) {
            *at = Some(self.edge.clone());
        }
    }

    /// What lies beside the ledger.
    pub fn note(&self) -> Option<&String> {
        self.note.as_ref()
    }

    /// What is known of a log of this name at a size that was asked for.
    pub(super) fn known(&self, origin: &str, size: u64) -> Known {
        if origin != self.name.origin() && !self.names.contains(origin) {
            return Known::OtherLog;
        }
        let there = self.at.get(&size).and_then(Option::as_ref);
        there.map_or(Known::Fewer, |edge| Known::Root(edge.root()))
    }

    /// What it amounts to. `keys` are the public keys that are known from elsewhere in the directory, and from who asks.
    pub fn finish(
        mut self,
        keys: &BTreeSet<[u8; 32]>,
        options: &VerifyOptions,
        dir: &str,
        said: &mut Vec<Finding>,
        warnings: &mut Vec<String>,
    ) -> (LogReport, Option<KnownLog>) {
        let checkpoint = self.checkpoint(keys, options, said, warnings);
        let covered = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.size);
        if checkpoint.is_some() {
            let partial = self.at.get(&covered).and_then(Option::as_ref).map(Edge::partial).unwrap_or_default();
            let wrong = partial.iter().filter(|tile| !is_there(self.audit, tile)).map(|tile| tile.place.path());
            self.tiles.extend(wrong.collect::<Vec<_>>());
            if let Some(first) = self.tiles.first() {
                let tiles = counted(self.tiles.len() as u64, "tile");
                warnings.push(format!(
                    "{tiles} in audit/{LOG} are missing or not what the ledger has, the first {first}: whoever records next \
                     makes them again"
                ));
            }
        }
        let memory = self.memory(checkpoint.as_ref(), dir, said);
        let origin = self.name.origin().to_owned();
        let known = checkpoint.as_ref().and_then(|signed| {
            let edge = self.at.get(&signed.size)?.as_ref()?;
            let (origin, signer, note) = (origin.clone(), signed.signer.clone(), signed.note.clone());
            Some(KnownLog { dir: dir.to_owned(), edge: KnownLog::edge(edge.levels()), note, origin, signer })
        });
        let report = LogReport {
            origin,
            size: self.edge.size(),
            root: hex::encode(self.edge.root()),
            unsigned: self.edge.size().saturating_sub(covered),
            checkpoint,
            renewed: self.renewed,
            memory,
        };
        (report, known)
    }

    /// The checkpoint beside the ledger, if a key that is known signed it, and it is one of this ledger.
    fn checkpoint(
        &self,
        keys: &BTreeSet<[u8; 32]>,
        options: &VerifyOptions,
        said: &mut Vec<Finding>,
        warnings: &mut Vec<String>,
    ) -> Option<CheckpointReport> {
        let mut wrong = |code, what: String| said.push(finding(code, what));
        let note = self.note.as_ref()?;
        let Some((origin, size)) = stated(note) else {
            wrong(CHECKPOINT_WRONG, "it is not the checkpoint of a log".into());
            return None;
        };
        let holds = |key: &[u8], text: &[u8], signature: &[u8]| verify_ed25519(key, text, signature).is_ok();
        let key = keys.iter().filter_map(|public| Key::new(&origin, *public)).find_map(|key| {
            match note::open(note, &key, &holds) {
                Ok(_) => Some(Ok(key)),
                Err(note::Refused::Unsigned(_)) => None,
                Err(e) => Some(Err(e)),
            }
        });
        let key = match key {
            None => {
                warnings.push(
                    "nothing in the directory says which key signed the checkpoint of the ledger; give it with --log-key: assay \
                     ledger vkey prints it"
                        .into(),
                );
                return None;
            }
            Some(Err(e)) => {
                wrong(CHECKPOINT_WRONG, e.to_string());
                return None;
            }
            Some(Ok(key)) => key,
        };
        if origin != self.name.origin() {
            let what = format!("it is one of the log {origin}, and the ledger is {}", self.name.origin());
            wrong(CHECKPOINT_WRONG, what);
            return None;
        }
        let there = self.at.get(&size).and_then(Option::as_ref);
        let same = there.and_then(|edge| Some(read_text(&note[..=note.rfind("\n\n")?])?.2 == edge.root()));
        let lines = counted(size, "line");
        match same {
            None => {
                let now = self.edge.size();
                wrong(
                    ROLLBACK,
                    format!("the signed checkpoint covers {lines}, and the ledger has {now}: lines were removed"),
                );
            }
            Some(false) => wrong(FORK, format!("the first {lines} are not those of the signed checkpoint beside them")),
            Some(true) => {}
        }
        let signer = sha256_hex(key.public());
        let signer_verdict = trust::signer(options, Some(&signer));
        if signer_verdict == SignerVerdict::Untrusted {
            wrong(CHECKPOINT_WRONG, format!("the key {signer} signed it, which is none of those that were named"));
        }
        Some(CheckpointReport { size, signer, signer_verdict, note: note.clone() })
    }

    /// What is remembered, compared with the ledger itself: whether it still has a checkpoint does not matter.
    fn memory(&self, checkpoint: Option<&CheckpointReport>, dir: &str, said: &mut Vec<Finding>) -> MemoryReport {
        let Some(state) = self.state else { return MemoryReport::default() };
        let origin = self.name.origin();
        // Its name alone does not say which log it is: whoever writes a new ledger gives it a new name.
        let of_it = |log: &&KnownLog| log.origin == origin || self.names.contains(&log.origin) || log.dir == dir;
        let mut report = MemoryReport { verdict: Memory::FirstSeen, ..MemoryReport::default() };
        for (log, known) in state.logs().filter(of_it).filter_map(|log| Some((log, log.remembered()?))) {
            let (verdict, differs) = self.compare(&known);
            let is_worse = report.size.is_none() || verdict as u8 > report.verdict as u8;
            if !is_worse {
                continue;
            }
            report = MemoryReport { verdict, size: Some(known.size), note: None, differs };
            if verdict == Memory::Consistent {
                continue;
            }
            report.note = Some(log.note.clone());
            let (lines, now) = (counted(known.size, "line"), self.edge.size());
            let place = match differs {
                Some([a, b]) if a == b => format!("; the first line that differs is line {a}"),
                Some([a, b]) => format!("; the first line that differs is one of lines {a} to {b}"),
                None => String::new(),
            };
            let (code, what) = match verdict {
                Memory::Rollback => {
                    (ROLLBACK, format!("you saw a signed checkpoint of {lines}, and the ledger has {now}"))
                }
                _ => (
                    FORK,
                    format!("you saw a signed checkpoint of {lines}, and the first {lines} here are others{place}"),
                ),
            };
            let there = checkpoint.map_or_else(|| "none".to_owned(), |checkpoint| checkpoint.note.clone());
            said.push(finding(code, what).sides(&log.note, there));
        }
        report
    }

    fn compare(&self, known: &Remembered) -> (Memory, Option<[u64; 2]>) {
        match self.at.get(&known.size).and_then(Option::as_ref) {
            None => (Memory::Rollback, None),
            Some(edge) => match tiles::differs(known.size, &known.levels, edge.levels()) {
                None => (Memory::Consistent, None),
                Some(range) => (Memory::Fork, Some([range.start + 1, range.end])),
            },
        }
    }
}

fn finding(code: &'static str, what: String) -> Finding {
    Finding::new(code, Stage::VerifyChain, what).file("log/checkpoint")
}

/// Origin and size that a note states; whether it is signed is another question.
fn stated(note: &str) -> Option<(String, u64)> {
    let (origin, size, _) = read_text(&note[..=note.rfind("\n\n")?])?;
    Some((origin.to_owned(), size)).filter(|(origin, size)| LogName::is_one(origin) && *size > 0)
}

/// Whether a file has what the tile should have. Nothing is believed because of it.
fn is_there(audit: &PackDir, tile: &Tile) -> bool {
    let path = format!("{LOG}/{}", tile.place.path());
    let mut parts = path.split('/');
    let Some(name) = parts.next_back() else { return false };
    let dir = parts.try_fold(None::<PackDir>, |dir, part| Some(Some(dir.as_ref().unwrap_or(audit).sub(part)?)));
    let Some(Some(dir)) = dir else { return false };
    let mut quiet = |_| std::ops::ControlFlow::Continue(());
    let read = dir.read_whole(name, tile.place.len(), &mut ReadMeter::new(&mut quiet));
    read.is_ok_and(|read| read.is_ok_and(|whole| whole.bytes == tile.bytes()))
}
