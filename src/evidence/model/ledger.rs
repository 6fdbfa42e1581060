//! The ledger: the chain of segments of one audit directory (docs/formats.md, "Ledger").

use super::{
    SessionId, WallTime,
    line::line,
    reading::{self, versioned},
    words::vocabulary,
};

/// Format version of a ledger line.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | `surface_approval`, and lines that are of no session |
pub const LEDGER_VERSION: u32 = 2;

/// The version of a line: what a session leaves could be said from the first version on.
#[must_use]
pub const fn version_of(session: Option<SessionId>) -> u32 {
    if session.is_some() { 1 } else { LEDGER_VERSION }
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
        /// File name of the segment, without directory.
        segment: String,
        /// Hash of the segment's first (start) or last (end) event.
        segment_hash: String,
        /// Id of the session; `null` for what is of none.
        session_id: Option<SessionId>,
        /// [`version_of`] the session.
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
