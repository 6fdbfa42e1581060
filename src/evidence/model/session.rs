//! `session.json`: what a pack says about its session as a whole (docs/formats.md, "Session").

use super::words::{EndReason, Teardown, Word};
use super::{
    Profile, SessionId, WallTime,
    line::line,
    reading::{self, versioned},
    receipt::{Counts, PeerInfo},
};

/// Format version of `session.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const SESSION_VERSION: u32 = 1;

line! {
    /// The wall clock moved against the monotonic one.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct ClockStep {
        /// Wall clock after the step.
        at: WallTime,
        /// By how many milliseconds; negative means back.
        delta_ms: i64,
    }
}

/// Who takes part in a session, as they say themselves.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The client, as it names itself.
    pub client: Option<PeerInfo>,
    /// The server, as it names itself.
    pub server: Option<PeerInfo>,
    /// Protocol version agreed, or asked for per message.
    pub protocol: Option<String>,
}

line! {
    /// `session.json`; its RFC 8785 form and a newline.
    #[derive(Debug, Clone)]
    pub exact struct SessionDoc {
        /// Hash of the first event.
        chain_first: String,
        /// Hash of the last event.
        chain_last: String,
        /// The client as it names itself.
        client_info: Option<PeerInfo>,
        /// Steps of the wall clock during the session.
        clock_steps: Vec<ClockStep>,
        /// The server command, only with `--store-command`.
        command: Option<Vec<String>>,
        /// SHA-256 of the RFC 8785 form of the command.
        command_digest: String,
        /// The session before this one in the same process.
        continues: Option<SessionId>,
        /// Counts over the session.
        counts: Counts,
        /// Why it ended.
        end_reason: Word<EndReason>,
        /// When it ended; for a crashed session the last thing known.
        ended_at: WallTime,
        /// Monotonic microseconds from start to end.
        ended_mono_us: u64,
        /// Number of events in `audit_log.jsonl`.
        event_count: u64,
        /// Exit code of the server; `null` when a signal ended it or it is not known.
        exit_code: Option<i32>,
        /// Hash of the previous ledger line this segment's start: what its `chain_start` links to.
        ledger_hash: String,
        /// How many live events subscribers missed.
        live_events_missed: u64,
        /// SHA-256 of the active policy file.
        policy_hash: Option<String>,
        /// How the policy was applied: audit or guard.
        profile: Profile,
        /// Version of MCP that client and server agreed on.
        protocol_version: Option<String>,
        /// Number of receipts.
        receipt_count: u64,
        /// Version of the recorder.
        recorder_version: String,
        /// What recovery found and did, in words; empty for a session that ended by itself.
        recovery_notes: Vec<String>,
        /// The server's id: from `--server-id`, or derived from its command.
        server_id: String,
        /// The server as it names itself.
        server_info: Option<PeerInfo>,
        /// Whether everything was recorded and every call ended.
        session_complete: bool,
        /// Id of the session.
        session_id: SessionId,
        /// When it began.
        started_at: WallTime,
        /// Lines and bytes of the server's stderr.
        stderr_bytes: u64,
        /// Hash of `surface.json`.
        surface_hash: Option<String>,
        /// How the server was ended: `exited`, `stdin_closed`, `terminated`, `killed`.
        teardown: Option<Word<Teardown>>,
        /// `stdio`.
        transport: String,
        /// [`SESSION_VERSION`].
        #[serde(deserialize_with = "reading::known::<SessionDoc, _>")]
        v: u32,
    }
}

versioned!(SessionDoc, "session.json", SESSION_VERSION);
