//! The ledger: the chain of segments of one audit directory (docs/formats.md, "Ledger").

use super::{
    SessionId, WallTime,
    line::line,
    reading::{self, versioned},
    surface::approval::SignedBy,
    words::vocabulary,
};

/// Format version of a ledger line.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | `surface_approval`, and lines that are of no session |
/// | 3 | `pruned`: the kind, and the member that only it has |
pub const LEDGER_VERSION: u32 = 3;

/// What comes before the hash in the bytes that the signer of a tombstone signs.
pub const PRUNED_CONTEXT: &str = "assay/pruned/v1\n";

/// The version of a line: what a session leaves could be said from the first version on.
#[must_use]
pub const fn version_of(kind: LedgerKind, session: Option<SessionId>) -> u32 {
    match (kind, session) {
        (LedgerKind::Pruned, _) => LEDGER_VERSION,
        (_, Some(_)) => 1,
        (_, None) => 2,
    }
}

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
    /// One line of `audit/ledger.jsonl`; its line on disk is its RFC 8785 form, `hash` as for audit events.
    #[derive(Debug, Clone)]
    pub exact struct LedgerLine, LedgerMembers<'a> {
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
        /// `hash` of the line before.
        prev_hash: String,
        /// The tombstone, of the kind `pruned`; other lines do not have the member.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pruned: Option<Pruned>,
        /// File name of the segment, without directory.
        segment: String,
        /// Hash of the segment's first (start) or last (end) event.
        segment_hash: String,
        /// Id of the session; `null` for what is of none.
        session_id: Option<SessionId>,
        /// [`version_of`] the line.
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

    /// Whether it has the version and the members of its kind.
    #[must_use]
    pub fn is_of_its_kind(&self) -> bool {
        let tombstone = self.kind == LedgerKind::Pruned;
        let whole = self.pruned.is_some() == tombstone && (self.session_id.is_some() || !tombstone);
        whole && self.v == version_of(self.kind, self.session_id)
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

/// The session of a segment, by its file name `segment_<stem>.jsonl`, and the stem; `None` if it is not the name of a segment.
#[must_use]
pub fn session_of_segment(file_name: &str) -> Option<(&str, SessionId)> {
    let stem = file_name.strip_prefix("segment_")?.strip_suffix(".jsonl")?;
    let (utc, hex) = stem.split_once('_')?;
    let utc_ok = utc.len() == 16 && utc.bytes().all(|b| b.is_ascii_digit() || b == b'T' || b == b'Z');
    let id = SessionId::parse(&format!("{}{hex}", SessionId::PREFIX)).ok()?;
    utc_ok.then_some((stem, id))
}
