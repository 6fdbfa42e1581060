//! The ledger: the chain of segments of one audit directory (docs/formats.md, "Ledger").

use super::{
    SessionId, WallTime,
    line::line,
    reading::{self, versioned},
    surface::approval::SignedBy,
    words::vocabulary,
};
use crate::tree::Hash;

/// Format version of a ledger line.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | `surface_approval`, and lines that are of no session |
/// | 3 | `pruned`: the kind, and the member that only it has |
/// | 4 | `segment_checkpoint`, `pack_sealed`, `log_renewed`; `session_key`, `tree_root`, `pack_manifest_sha256`, `renewed` |
/// | 5 | `anchored`: the kind, and the member that only it has |
pub const LEDGER_VERSION: u32 = 5;

/// Longest line of a ledger in bytes; what is longer counts as a line without content.
pub const MAX_LINE: usize = 64 << 10;

/// Bytes of a note with the signatures of witnesses that a line may hold.
pub const MAX_ANCHOR: usize = 48 << 10;

/// What comes before the hash in the bytes that the signer of a tombstone signs.
pub const PRUNED_CONTEXT: &str = "assay/pruned/v1\n";

vocabulary! {
    /// What a ledger line says.
    LedgerKind {
        /// A session opened its segment; `segment_hash` is the hash of its `chain_start`.
        SegmentStart = "segment_start",
        /// A session closed its segment; `segment_hash` is the hash of its last event.
        SegmentEnd = "segment_end",
        /// Bytes at the end of a file were not a whole line and were set aside; `segment` names the file, `note` says where to.
        TornTail = "torn_tail",
        /// Somebody decided about a surface; `segment` is the file of decisions, `segment_hash` the hash of this one, `event_count`
        /// how many there are with it. It is of no session.
        SurfaceApproval = "surface_approval",
        /// Somebody removes something of a session whose chain has ended; `pruned` says what. `segment`, `segment_hash`,
        /// `event_count` and `complete` are those of its end.
        Pruned = "pruned",
        /// So far a session was while it was recorded: its first `event_count` events have the root `tree_root`, and `segment_hash` is
        /// the hash of the last of them.
        SegmentCheckpoint = "segment_checkpoint",
        /// The pack of a session stands; `segment`, `segment_hash`, `event_count` and `complete` are those of its end.
        PackSealed = "pack_sealed",
        /// From here on the ledger is another log: `renewed` says which, `note` why. It is of no session.
        LogRenewed = "log_renewed",
        /// Witnesses have signed a checkpoint of the lines before; `anchored` has it. It is of no session.
        Anchored = "anchored",
    }
}

vocabulary! {
    /// What is removed.
    #[derive(PartialOrd, Ord, Hash)]
    PrunedWhat {
        /// The pack, the journal if there is one, and the surface that was seen.
        Pack = "pack",
        /// The investigation log.
        Payloads = "payloads",
    }
}

line! {
    /// A tombstone: what is removed, and who says so.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Pruned {
        /// Bytes in the files that are removed.
        bytes: u64,
        /// Receipts of the pack, or lines of the investigation log.
        count: u64,
        /// Number of files that are removed.
        files: u64,
        /// Name of the pack's directory, or of the investigation log.
        name: String,
        /// SHA-256 of the pack's manifest, or of the investigation log, 64 hex digits.
        sha256: String,
        /// Ed25519 over [`PRUNED_CONTEXT`] and the SHA-256 of the line's RFC 8785 form without `hash` and with an empty `signature`;
        /// Base64.
        signature: String,
        /// Who signed.
        signer: SignedBy,
        /// What is removed.
        what: PrunedWhat,
    }
}

line! {
    /// The beginning of another log.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Renewed {
        /// The largest checkpoint of the log before, as it was signed; `null` if there is none.
        checkpoint: Option<String>,
        /// The name of the log; `null` if this line's hash makes it.
        origin: Option<String>,
    }
}

line! {
    /// What witnesses have signed.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Anchored {
        /// A checkpoint of the lines before, with the signatures of the log and of the witnesses.
        checkpoint: String,
    }
}

line! {
    /// One line of `audit/ledger.jsonl`; its line on disk is its RFC 8785 form, `hash` as for audit events.
    #[derive(Debug, Clone)]
    pub exact struct LedgerLine, LedgerMembers<'a> {
        /// What witnesses have signed, of the kind `anchored`; other lines do not have the member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anchored: Option<Anchored>,
        /// Wall clock when the line was written.
        at: WallTime,
        /// Whether the session was complete; `null` at a start.
        complete: Option<bool>,
        /// Events in the segment so far.
        event_count: u64,
        /// SHA-256 over this line's RFC 8785 form without `hash`.
        hash: String,
        /// What this line says.
        kind: LedgerKind,
        /// Position in the ledger, from 0 without gaps.
        ledger_seq: u64,
        /// More, in words.
        note: Option<String>,
        /// SHA-256 of the manifest of the pack, 64 hex digits; only of the kind `pack_sealed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pack_manifest_sha256: Option<String>,
        /// `hash` of the line before.
        prev_hash: String,
        /// The tombstone, of the kind `pruned`; other lines do not have the member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pruned: Option<Pruned>,
        /// The log that begins, of the kind `log_renewed`; other lines do not have the member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        renewed: Option<Renewed>,
        /// File name of the segment, without directory.
        segment: String,
        /// Hash of the segment's first (start) or last (end) event.
        segment_hash: String,
        /// Id of the session; `null` for what is of none.
        session_id: Option<SessionId>,
        /// SHA-256 of the public key with which the recorder of the session signs its checkpoints, 64 hex digits; only in lines of a
        /// segment that has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_key: Option<String>,
        /// Root of the tree of so many events of the session, 64 hex digits; only in its checkpoints, and at its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree_root: Option<String>,
        /// [`LedgerLine::version`].
        #[serde(deserialize_with = "reading::known::<LedgerLine, _>")]
        v: u32,
    }
}

versioned!(LedgerLine, "ledger line", from 1, to LEDGER_VERSION, "v");

impl LedgerLine {
    /// Computes `hash` from everything else.
    ///
    /// # Errors
    /// As [`super::to_line`].
    pub fn seal(&mut self) -> Result<(), serde_json::Error> {
        super::GENESIS.clone_into(&mut self.hash);
        let line = super::to_line(self)?;
        self.hash = super::event::hash_of_line(&line).unwrap_or_default();
        Ok(())
    }

    /// The lowest version that can say it.
    #[must_use]
    pub const fn version(&self) -> u32 {
        let of_log = self.session_key.is_some() || self.tree_root.is_some();
        match (self.kind, self.session_id) {
            (LedgerKind::Anchored, _) => 5,
            (LedgerKind::SegmentCheckpoint | LedgerKind::PackSealed | LedgerKind::LogRenewed, _) => 4,
            _ if of_log => 4,
            (LedgerKind::Pruned, _) => 3,
            (_, Some(_)) => 1,
            (_, None) => 2,
        }
    }

    /// Whether it has the version and the members of its kind.
    #[must_use]
    pub fn is_of_its_kind(&self) -> bool {
        use LedgerKind::{Anchored, LogRenewed, PackSealed, Pruned, SegmentCheckpoint, SegmentEnd, SegmentStart};
        let of = |kinds: &[LedgerKind]| kinds.contains(&self.kind);
        self.pruned.is_some() == of(&[Pruned])
            && self.renewed.is_some() == of(&[LogRenewed])
            && self.anchored.is_some() == of(&[Anchored])
            && self.pack_manifest_sha256.is_some() == of(&[PackSealed])
            && (self.tree_root.is_some() || !of(&[SegmentCheckpoint]))
            && (self.tree_root.is_none() || of(&[SegmentCheckpoint, SegmentEnd]))
            && (self.session_key.is_none() || of(&[SegmentStart, SegmentCheckpoint, SegmentEnd]))
            && (self.session_id.is_some() || !of(&[Pruned, SegmentCheckpoint, PackSealed]))
            && self.v == self.version()
    }

    /// The bytes that the signer of a tombstone signs; empty for another line.
    ///
    /// # Errors
    /// As [`super::to_line`].
    pub fn signed_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut unsigned = self.clone();
        let Some(pruned) = &mut unsigned.pruned else { return Ok(Vec::new()) };
        pruned.signature.clear();
        unsigned.seal()?;
        Ok([PRUNED_CONTEXT.as_bytes(), unsigned.hash.as_bytes()].concat())
    }
}

/// What the leaf of a line is the hash of: the hash of the line, or that of its bytes if it has none.
#[must_use]
pub fn entry(line: &[u8]) -> Hash {
    use sha2::Digest as _;
    let line = if line.len() > MAX_LINE { &[] } else { line };
    let hash = LedgerMembers::of_line(line).and_then(|members| super::line::text(members.hash));
    let mut bytes = Hash::default();
    if hash.is_none_or(|hash| hex::decode_to_slice(hash.as_bytes(), &mut bytes).is_err()) {
        bytes = sha2::Sha256::digest(line).into();
    }
    bytes
}

/// The name of the log that a ledger is: its first line makes it, and each line that begins another log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogName(String);

/// What the names begin with that lines make.
const ORIGIN: &str = "assay/ledger/";

impl LogName {
    /// Takes the next line, whose number is given. `true`: from here on the log has another name.
    pub fn line(&mut self, number: u64, line: &[u8]) -> bool {
        let line = if line.len() > MAX_LINE { &[] } else { line };
        let members = LedgerMembers::of_line(line).unwrap_or_default();
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let hash = super::line::text(members.hash).filter(|hash| hash.len() == 64 && hash.bytes().all(is_digit));
        let is_renewed = super::line::text(members.kind).as_deref() == Some(LedgerKind::LogRenewed.as_str());
        if number > 0 && !is_renewed {
            return false;
        }
        let made = || hash.map_or_else(|| super::sha256_hex(line), std::borrow::Cow::into_owned);
        let named = members.renewed.filter(|_| is_renewed).and_then(|raw| serde_json::from_slice::<Renewed>(raw).ok());
        let named = named.and_then(|renewed| renewed.origin).filter(|origin| Self::is_free(origin));
        self.0 = named.unwrap_or_else(|| format!("{ORIGIN}{}", &made()[..32]));
        true
    }

    /// The name; empty for a ledger without lines.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0
    }

    /// The name.
    #[must_use]
    pub fn into_origin(self) -> String {
        self.0
    }

    /// Whether a log may have this name.
    #[must_use]
    pub fn is_one(name: &str) -> bool {
        let made =
            |hash: &str| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        name.strip_prefix(ORIGIN).is_some_and(made) || Self::is_free(name)
    }

    /// Whether a log may be given this name: none that begins as anything else that keys sign.
    #[must_use]
    pub fn is_free(name: &str) -> bool {
        let taken = ["assay/", "assay+", "{", "DSSE"].iter().any(|taken| name.starts_with(taken));
        let plain = |c: char| c.is_ascii_graphic() && c != '+';
        !taken && (1..=200).contains(&name.len()) && name.chars().all(plain)
    }
}

/// The session of a segment, by its file name `segment_<stem>.jsonl`, and the stem; `None` if it is not the name of a segment.
#[must_use]
pub fn session_of_segment(file_name: &str) -> Option<(&str, SessionId)> {
    let stem = file_name.strip_prefix("segment_")?.strip_suffix(".jsonl")?;
    let (utc, hex) = stem.split_once('_')?;
    let utc_ok = utc.len() == 16 && utc.bytes().all(|b| b.is_ascii_digit() || b == b'T' || b == b'Z');
    let id = SessionId::parse(&format!("{}{hex}", SessionId::PREFIX)).ok()?;
    utc_ok.then_some((stem, id))
}
