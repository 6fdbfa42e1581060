//! `session.json`: what a pack says about its session as a whole (FORMATS §5).

use super::words::{EndReason, Teardown, Word};
use super::{
    Profile, SessionId, WallTime,
    reading::{self, versioned},
    receipt::{Counts, PeerInfo},
};
use serde::{Deserialize, Serialize};

/// Format version of `session.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const SESSION_VERSION: u32 = 1;

/// The wall clock moved against the monotonic one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockStep {
    /// Wall clock after the step.
    pub at: WallTime,
    /// By how many milliseconds; negative means back.
    pub delta_ms: i64,
}

/// Who takes part in a session, as they say themselves.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The client.
    pub client: Option<PeerInfo>,
    /// The server.
    pub server: Option<PeerInfo>,
    /// Protocol version agreed, or asked for per message.
    pub protocol: Option<String>,
}

/// `session.json`; its RFC 8785 form and a newline.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionDoc {
    /// Hash of the first event.
    pub chain_first: String,
    /// Hash of the last event.
    pub chain_last: String,
    /// The client as it names itself.
    pub client_info: Option<PeerInfo>,
    /// Steps of the wall clock during the session.
    pub clock_steps: Vec<ClockStep>,
    /// The server command, only with `--store-command`.
    pub command: Option<Vec<String>>,
    /// SHA-256 of the RFC 8785 form of the command.
    pub command_digest: String,
    /// The session before this one in the same process.
    pub continues: Option<SessionId>,
    /// Counts.
    pub counts: Counts,
    /// Why it ended.
    pub end_reason: Word<EndReason>,
    /// When it ended; for a crashed session the last thing known.
    pub ended_at: WallTime,
    /// Monotonic microseconds from start to end.
    pub ended_mono_us: u64,
    /// Number of events in `audit_log.jsonl`.
    pub event_count: u64,
    /// Exit code of the server; `null` when a signal ended it or it is not known.
    pub exit_code: Option<i32>,
    /// Hash of the ledger line before this segment's start: what its `chain_start` links to.
    pub ledger_hash: String,
    /// How many live events subscribers missed.
    pub live_events_missed: u64,
    /// SHA-256 of the active policy file.
    pub policy_hash: Option<String>,
    /// Profile.
    pub profile: Profile,
    /// Protocol version.
    pub protocol_version: Option<String>,
    /// Number of receipts.
    pub receipt_count: u64,
    /// Version of the recorder.
    pub recorder_version: String,
    /// What recovery found and did, in words; empty for a session that ended by itself.
    pub recovery_notes: Vec<String>,
    /// Server id.
    pub server_id: String,
    /// The server as it names itself.
    pub server_info: Option<PeerInfo>,
    /// Whether everything was recorded and every call ended.
    pub session_complete: bool,
    /// The session.
    pub session_id: SessionId,
    /// When it began.
    pub started_at: WallTime,
    /// Lines and bytes of the server's stderr.
    pub stderr_bytes: u64,
    /// Hash of `surface.json`.
    pub surface_hash: Option<String>,
    /// How the server was ended: `exited`, `stdin_closed`, `terminated`, `killed`.
    pub teardown: Option<Word<Teardown>>,
    /// `stdio`.
    pub transport: String,
    /// [`SESSION_VERSION`].
    #[serde(deserialize_with = "reading::known::<SessionDoc, _>")]
    pub v: u32,
}

versioned!(SessionDoc, "session.json", SESSION_VERSION);
