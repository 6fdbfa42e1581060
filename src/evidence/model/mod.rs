//! Plain data that goes on disk and on the wire: receipts, audit events, the ledger, `session.json`.
//!
//! Every struct declares its fields in the order of their JSON names, so that `serde_json` writes exactly the RFC 8785
//! form of it (all numbers are integers or have their own serializer); a test holds that against [`crate::canon`].

pub mod checkpoint;
pub mod cursor;
pub mod direction;
pub mod event;
pub mod form;
pub mod http;
pub mod ids;
pub mod ledger;
pub mod limits;
pub mod line;
pub mod pack;
pub mod reading;
pub mod receipt;
pub mod redaction;
pub mod said;
pub mod schema;
pub mod server;
pub mod session;
pub mod surface;
pub mod time;
pub mod version;
pub mod words;

pub use direction::Direction;
pub use event::{AuditEvent, Detail, EventKind};
pub use ids::{ClientSessionId, InvocationId, MAX_INTEGER, ReceiptId, ReceiptPrefix, RpcId, SessionId, exact_integer};
pub use ledger::{LedgerKind, LedgerLine};
pub use receipt::{GapReceipt, Phases, Profile, SessionEnd, SessionStart, ToolCall};
pub use server::{Coverage, Execution, ToolDenied, ToolExecuted, ToolRequested};
pub use session::SessionDoc;
pub use time::{DurationMs, WallTime};
pub use words::{
    AnomalyKind, CallAnomaly, EndReason, GapReason, Outcome, OutcomeReason, PolicyReason, PolicyVerdict, RecorderKind,
    Teardown, Transport, Vocabulary, Word,
};

/// Version of this recorder, as it appears in receipts (`proxy_version`) and `session.json`.
pub const RECORDER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The hash before the first: what a chain or ledger without a predecessor links to.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// SHA-256 in lower-case hex, 64 digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

/// One line of a JSONL evidence file: the RFC 8785 form of `value`, without a newline.
///
/// Only for the types of this module, whose serializers are canonical by construction.
///
/// # Errors
/// A value that JSON cannot hold; the types of this module have none.
pub fn to_line<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(value)
}
