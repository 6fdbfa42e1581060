//! `session.json`: what a pack says about its session as a whole (docs/formats.md, "Session").

use super::words::{EndReason, RecorderKind, Teardown, Word};
use super::{
    Coverage, Profile, SessionId, WallTime,
    line::line,
    reading::{self, versioned},
    receipt::{Counts, PeerInfo},
};

/// Format version of `session.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
/// | 2 | sessions over HTTP: `http` |
/// | 3 | `key_lasts` in it |
/// | 4 | recordings of a server by itself: `coverage` and `recorder`; otherwise as version 1 |
pub const SESSION_VERSION: u32 = 4;

/// The version of what a proxy writes of a session over HTTP.
pub const HTTP_SESSION: u32 = 3;

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
    /// Where a server is that has a URL.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct Endpoint {
        /// `sha256:` of the RFC 8785 form of the URL without user information, query and fragment.
        digest: String,
        /// That URL, only with `--store-args`.
        url: Option<String>,
    }
}

line! {
    /// What a session over HTTP adds to `session.json`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub exact struct HttpSession {
        /// `c` and 8 hex digits of the client's key; `null` for what is no MCP.
        client_key: Option<String>,
        /// Several people may be this client: nothing tells them apart.
        client_key_shared: bool,
        /// What the client spoke, sorted: `h1`, `h2`.
        downstream: Vec<String>,
        /// Where the server is.
        endpoint: Endpoint,
        /// How many exchanges its events name.
        exchanges: u64,
        /// Its client had begun it before the recorder saw it.
        joined_midway: bool,
        /// Digests are made with the key of the user, so those of several processes can be compared; otherwise with one of
        /// the process. Absent in version 2.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key_lasts: Option<bool>,
        /// Digest of the MCP session id, 16 hex digits; `null` for a session without one.
        mcp_session: Option<String>,
        /// What the upstream spoke, sorted: `h1`, `h2`.
        upstream: Vec<String>,
    }
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
        /// How many calls have an outcome, of a recording that a server made of itself; absent otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        coverage: Option<Coverage>,
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
        /// What a session over HTTP adds; absent over stdio (version 1).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        http: Option<HttpSession>,
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
        /// `library` in a recording that a server made of itself; absent otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recorder: Option<Word<RecorderKind>>,
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
        /// As in the events: `stdio`, `streamable-http`, `sse`.
        transport: String,
        /// The version of its events.
        #[serde(deserialize_with = "reading::known::<SessionDoc, _>")]
        v: u32,
    }
}

versioned!(SessionDoc, "session.json", from 1, to SESSION_VERSION, "v");

impl SessionDoc {
    /// The note of recovery that says that only the pack was missing: the recorder itself had ended the chain.
    #[must_use]
    pub fn finished_later(end_reason: &Word<EndReason>) -> String {
        format!("the chain had ended ({end_reason}); its pack was finished later")
    }
}
