//! What a caller asks of a verification, and hears of it.

use super::{anchor::AnchorOptions, words::Stage};
use crate::{lock::Lock, model::WallTime};
use std::{io, path::PathBuf};

/// What a caller demands of a pack beyond that it is intact.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Unlisted files and an unpinned signer are not accepted.
    pub strict: bool,
    /// SHA-256 fingerprints (hex) of raw Ed25519 public keys of which one must have signed; empty means any may.
    pub signers: Vec<String>,
    /// The lock file that the pack must meet, if any.
    pub lock: Option<Lock>,
    /// Ids of claim cards to evaluate, besides those of the lock.
    pub cards: Vec<String>,
    /// SHA-256 fingerprints (hex) of keys whose approvals of a surface count; empty means any do.
    pub approvers: Vec<String>,
    /// Oldest acceptable `timestamp_end`, hours before `now`.
    pub max_age_hours: Option<f64>,
    /// Claims must have been evaluated and hold.
    pub require_claim_pass: bool,
    /// `valid_until` must not have passed.
    pub check_expiry: bool,
    /// The attestation must say which CI run built the pack.
    pub require_ci_binding: bool,
    /// The commit (40 lower-case hex digits) of that run.
    pub expected_commit_sha: Option<String>,
    /// Whose anchors count, and what is demanded of them.
    pub anchors: AnchorOptions,
    /// The time of verification.
    pub now: WallTime,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            strict: false,
            signers: Vec::new(),
            lock: None,
            cards: Vec::new(),
            approvers: Vec::new(),
            max_age_hours: None,
            require_claim_pass: false,
            check_expiry: false,
            require_ci_binding: false,
            expected_commit_sha: None,
            anchors: AnchorOptions::default(),
            now: WallTime::now(),
        }
    }
}

/// How far a verification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes that the pack's files have.
    pub total_bytes: u64,
}

/// Nothing could be verified (exit code 3), or the caller stopped it.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No directory, or one without `pack_manifest.json`.
    #[error("{} is not a proof pack: {why}", .dir.display())]
    NotAPack {
        /// What was to be verified.
        dir: PathBuf,
        /// Why it is none.
        why: String,
    },
    /// The system does not let us read it.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A card, fingerprint or other option that means nothing.
    #[error("{0}")]
    Option(String),
    /// `progress` said so.
    #[error("verification was cancelled")]
    Cancelled,
}

impl VerifyError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotAPack { .. } => Some("give the directory that has pack_manifest.json"),
            Self::Cancelled | Self::Io { .. } | Self::Option(_) => None,
        }
    }
}
