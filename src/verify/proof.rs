//! Proofs of single events: `.tlog-proof` files of C2SP (c2sp.org/tlog-proof), which need no pack (docs/formats.md, "Proof of an
//! event").

use super::{
    anchor::{AnchorOptions, AnchorReport, Found, Judging, demands},
    ed25519::verify_ed25519,
    options::VerifyOptions,
    trust,
    words::SignerVerdict,
};
use crate::{
    canon,
    model::{
        EventKind, LedgerKind, LedgerLine, ReceiptId, SessionId, WallTime,
        checkpoint::{Checkpoints, Said, Wrong, checkpoint_line, read_text},
        event::{EventView, hash_of_line},
        ledger::{LogName, MAX_LINE, entry},
        reading::{self, Reading, TooNew, versioned},
        sha256_hex, to_line,
    },
    tree::{self, Hash, MAX_PROOF, leaf},
};
use assay_evidence::note::{self, Key, Verifier};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Format version of what a proof holds beside the path.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | `ledger` may be a proof of the ledger's line about the session's end |
pub const PROOF_VERSION: u32 = 2;

/// Bytes of a proof that is read.
pub const MAX_PROOF_FILE: u64 = 4 << 20;

/// The first line of a proof.
pub(super) const HEAD: &str = "c2sp.org/tlog-proof@v1";

/// What a proof holds beside the path: all that leads from the event to who signed. Nothing vouches for it but that it fits.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extra {
    /// The event's line.
    pub event: String,
    /// The line of the session's key.
    pub key: String,
    /// A proof of the line of the ledger that has the checkpoint's root; always `null` in version 1.
    pub ledger: Option<String>,
    /// The line of the receipt that the event binds, if it is disclosed.
    pub receipt: Option<String>,
    /// Always empty in version 1.
    pub reveal: [(); 0],
    /// [`Extra::version`].
    #[serde(deserialize_with = "reading::known::<Extra, _>")]
    pub v: u32,
}

versioned!(Extra, "proof", from 1, to PROOF_VERSION, "v");

impl Extra {
    /// The lowest version that can say it.
    #[must_use]
    pub const fn version(&self) -> u32 {
        if self.ledger.is_some() { 2 } else { 1 }
    }
}

/// A proof of one event.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The number of the event.
    pub index: u64,
    /// Roots of the subtrees beside it.
    pub path: Vec<Hash>,
    /// The note of a checkpoint.
    pub note: String,
    /// What leads from the event to who signed.
    pub extra: Extra,
}

/// The line of a ledger that says how a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InLedger {
    /// The name of the log that the ledger is.
    pub origin: String,
    /// The number of the line, from 0.
    pub ledger_seq: u64,
    /// How many lines the ledger had when that was signed.
    pub lines: u64,
    /// When the line was written.
    pub at: WallTime,
    /// The signed note.
    #[serde(skip)]
    pub note: String,
}

/// A file of C2SP tlog-proof as it stands.
#[derive(Debug, Clone)]
struct Parts {
    extra: Vec<u8>,
    index: u64,
    path: Vec<Hash>,
    note: String,
}

/// Why a proof proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// It is no proof, or not one of ours.
    #[error("it is not a proof of an event: {0}")]
    Form(String),
    /// A later version wrote it.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// It is one, and does not hold.
    #[error("the proof does not hold: {0}")]
    Refused(String),
}

impl ProofError {
    /// Whether it reads, and is wrong.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// What a proof proves: this event is in that place of the session. Nothing is said of other events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proven {
    /// Id of the session.
    pub session_id: SessionId,
    /// The number of the event, from 0.
    pub event_seq: u64,
    /// How many events the session had when this was stated.
    pub events: u64,
    /// What happened.
    pub event: EventKind,
    /// The ledger's line about the end of the session, if the proof has it.
    pub ledger: Option<InLedger>,
    /// The receipt that the event binds.
    pub receipt_id: Option<ReceiptId>,
    /// The line of the event.
    #[serde(skip)]
    pub event_line: String,
    /// The line of the receipt, if it is disclosed.
    #[serde(skip)]
    pub receipt_line: Option<String>,
    /// `recorder`, or `recovery`: stated afterwards.
    pub stated_by: &'static str,
    /// SHA-256 (hex) of the long-term key that certified the session's key.
    pub signer: String,
    /// The name that it gives itself.
    pub signer_id: String,
    /// How it compares with the keys that the caller named.
    pub signer_verdict: SignerVerdict,
}

fn form(what: impl fmt::Display) -> ProofError {
    ProofError::Form(what.to_string())
}

fn refused(what: impl fmt::Display) -> ProofError {
    ProofError::Refused(what.to_string())
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}\nextra {}\nindex {}", STANDARD.encode(&self.extra), self.index)?;
        for hash in &self.path {
            writeln!(f, "{}", STANDARD.encode(hash))?;
        }
        write!(f, "\n{}", self.note)
    }
}

impl Parts {
    /// Reads the one form of a proof.
    fn parse(bytes: &[u8]) -> Result<Self, ProofError> {
        let text = std::str::from_utf8(bytes).map_err(|_| form("it is not UTF-8"))?;
        let (head, note) = text.split_once("\n\n").ok_or_else(|| form("no blank line stands before a checkpoint"))?;
        let mut lines = head.split('\n');
        if lines.next() != Some(HEAD) {
            return Err(form(format_args!("it does not begin with {HEAD}")));
        }
        let extra = lines.next().and_then(|line| STANDARD.decode(line.strip_prefix("extra ")?).ok());
        let extra = extra.ok_or_else(|| form("its second line is not extra data in base64"))?;
        let index = lines.next().and_then(|line| line.strip_prefix("index ")?.parse().ok());
        let index = index.ok_or_else(|| form("its third line is not the number of an event"))?;
        let hash = |line: &str| Hash::try_from(STANDARD.decode(line).ok()?).ok();
        let path: Option<Vec<Hash>> = lines.by_ref().take(MAX_PROOF + 1).map(hash).collect();
        let path = path.ok_or_else(|| form("a line of its path is not a hash"))?;
        let parts = Self { extra, index, path, note: note.to_owned() };
        if parts.path.len() > MAX_PROOF || parts.to_string() != text {
            return Err(form("it is not in the one form of a proof"));
        }
        Ok(parts)
    }
}

/// A proof that a line of a ledger stands in its log: `line` without its line feed, its number, the roots beside it, and the
/// signed note.
#[must_use]
pub fn of_ledger(line: &[u8], index: u64, path: Vec<Hash>, note: &str) -> String {
    Parts { extra: line.to_vec(), index, path, note: note.to_owned() }.to_string()
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extra = to_line(&self.extra).map_err(|_| fmt::Error)?;
        Parts { extra, index: self.index, path: self.path.clone(), note: self.note.clone() }.fmt(f)
    }
}

impl Proof {
    /// Reads the one form of a proof.
    ///
    /// # Errors
    /// [`ProofError::Form`], [`ProofError::TooNew`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ProofError> {
        let Parts { extra, index, path, note } = Parts::parse(bytes)?;
        let extra = match reading::read::<Extra>(&extra) {
            Reading::Readable(read) if to_line(&read).is_ok_and(|same| same == extra) => read,
            Reading::Readable(_) => return Err(form("its extra data is not in canonical form (RFC 8785)")),
            Reading::TooNew(e) => return Err(e.into()),
            Reading::Damaged(why) => return Err(form(format_args!("its extra data: {why}"))),
        };
        if extra.v != extra.version() {
            return Err(form("its extra data is not what its version has"));
        }
        Ok(Self { index, path, note, extra })
    }

    /// What it proves, to somebody who named these keys.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn verify(self, signers: &[String]) -> Result<Proven, ProofError> {
        let holds = |key: &[u8], text: &[u8], signature: &[u8]| verify_ed25519(key, text, signature).is_ok();
        let line = self.extra.event.as_bytes();
        let event = EventView::of_line(line).ok_or_else(|| refused("its event is not the canonical line of one"))?;
        let stated = event.hash_of(line);
        if stated != event.hash {
            return Err(refused("the event is not what its hash says"));
        }
        if event.event_seq != self.index {
            return Err(refused("the event has another number than the proof"));
        }
        let wrong = |e: Wrong| match e {
            Wrong::TooNew(e) => ProofError::TooNew(e),
            Wrong::Form(what) | Wrong::Signature(what) => refused(what),
            Wrong::Says(what) => refused(what),
        };
        let mut lines = Checkpoints::of(event.session_id);
        let Said::Key { signer, .. } = lines.line(self.extra.key.as_bytes(), &holds).map_err(wrong)? else {
            return Err(refused("its key is not the line of one"));
        };
        let note = checkpoint_line(self.note).map_err(form)?;
        let Said::Checkpoint { size, root, role } = lines.line(note.trim_ascii_end(), &holds).map_err(wrong)? else {
            return Err(refused("its note is not a checkpoint"));
        };
        let mut hash = Hash::default();
        hex::decode_to_slice(event.hash, &mut hash).map_err(form)?;
        tree::verify_inclusion(&leaf(&hash), self.index, size, &self.path, &root).map_err(refused)?;
        let binding = event.detail.binding();
        if let Some(receipt) = &self.extra.receipt {
            if binding.receipt_sha256 != Some(sha256_hex(receipt.as_bytes()).as_bytes()) {
                return Err(refused("the receipt is not the one that the event binds"));
            }
            if !canon::is_canonical(receipt.as_bytes()) {
                return Err(refused("the receipt is not in canonical form (RFC 8785)"));
            }
        }
        let key = lines.key_in_use().map(|(key, _)| sha256_hex(key.public())).unwrap_or_default();
        let end = End { session: event.session_id, events: size, root: hex::encode(root), key };
        let ledger = self.extra.ledger.as_ref().map(|text| in_ledger(text, &end, &signer, &holds)).transpose()?;
        let fingerprint = sha256_hex(signer.public());
        let options = VerifyOptions { signers: signers.to_vec(), ..VerifyOptions::default() };
        Ok(Proven {
            session_id: event.session_id,
            event_seq: event.event_seq,
            events: size,
            event: event.event,
            ledger,
            receipt_id: binding.receipt_id,
            stated_by: role.as_str(),
            signer_verdict: trust::signer(&options, Some(&fingerprint)),
            signer: fingerprint,
            signer_id: signer.name().rsplit('/').next().unwrap_or_default().to_owned(),
            receipt_line: self.extra.receipt.clone(),
            event_line: self.extra.event.clone(),
        })
    }
}

impl Proven {
    /// What witnesses whom the caller trusts have signed of the ledger's line, and the demands that are not met.
    #[must_use]
    pub fn anchored(&self, options: &AnchorOptions, now: WallTime) -> (AnchorReport, Vec<String>) {
        let note = self.ledger.as_ref().map(|ledger| ledger.note.as_str());
        // Below the signature of the log.
        let signatures =
            note.and_then(|note| note.get(note.rfind("\n\n")? + 2..)).map_or(0, |below| below.lines().count());
        let mut report = AnchorReport::default();
        if let Some(policy) = &options.policy {
            let mut judging = Judging::new(policy, now, true);
            if let Some(ledger) = &self.ledger {
                judging.note(&ledger.note, ledger.lines, &mut |_: &str| Found::Fits);
            }
            (report, _) = judging.done();
        }
        report.present = u64::from(signatures > 1);
        let unmet = demands(options, &report, "the event");
        (report, unmet)
    }
}

/// What a ledger's line about the end of a session must say.
struct End {
    session: SessionId,
    events: u64,
    root: String,
    key: String,
}

/// A line of a ledger that stands in the tree of a note. Who signed the note is another question.
#[derive(Debug, Clone)]
pub(super) struct InTree {
    pub line: LedgerLine,
    /// The name of the log.
    pub origin: String,
    /// Lines of the tree.
    pub lines: u64,
    /// The text of a checkpoint, and the signatures below it.
    pub note: String,
}

/// Reads a proof that a line of a ledger stands in its log.
///
/// # Errors
/// [`ProofError`].
pub(super) fn in_tree(text: &[u8]) -> Result<InTree, ProofError> {
    let Parts { extra: bytes, index, path, note } = Parts::parse(text)?;
    let line = match reading::read::<LedgerLine>(&bytes) {
        Reading::Readable(line) if to_line(&line).is_ok_and(|same| same == bytes) => line,
        Reading::TooNew(e) => return Err(e.into()),
        _ => return Err(refused("the ledger's line is not the canonical line of one")),
    };
    let hash = hash_of_line(&bytes).filter(|hash| *hash == line.hash);
    if hash.is_none() || bytes.len() > MAX_LINE || !line.is_of_its_kind() || line.ledger_seq != index {
        return Err(refused("the ledger's line is not what its hash, its kind or its number says"));
    }
    let said = note.rfind("\n\n").and_then(|end| read_text(&note[..=end]));
    let (origin, lines, root) = said.ok_or_else(|| refused("the note about the ledger is not a checkpoint"))?;
    tree::verify_inclusion(&leaf(&entry(&bytes)), index, lines, &path, &root).map_err(refused)?;
    Ok(InTree { origin: origin.to_owned(), line, lines, note })
}

/// The line of a ledger that such a proof is about: it says so, and the long-term key has signed a tree in which it stands.
fn in_ledger(text: &str, end: &End, signer: &Key, holds: Verifier<'_>) -> Result<InLedger, ProofError> {
    let InTree { line, origin, lines, note } = in_tree(text.as_bytes())?;
    let is_its_end = line.kind == LedgerKind::SegmentEnd
        && (line.session_id, line.event_count) == (Some(end.session), end.events)
        && (line.tree_root.as_ref(), line.session_key.as_ref()) == (Some(&end.root), Some(&end.key));
    if !is_its_end {
        return Err(refused("the ledger's line does not say that the session ended with this root and this key"));
    }
    let key = Some(origin.as_str()).filter(|origin| LogName::is_one(origin));
    let key = key.and_then(|origin| Key::new(origin, *signer.public()));
    let key = key.ok_or_else(|| refused("the note about the ledger has a name that no log has"))?;
    note::open(&note, &key, holds).map_err(refused)?;
    Ok(InLedger { ledger_seq: line.ledger_seq, origin, lines, at: line.at, note })
}
