//! Decisions about surfaces, line by line: form, version, hash, chain and signature.

use super::ed25519::{SignatureProblem, verify_ed25519};
use crate::model::{
    GENESIS,
    line::Canonical as _,
    reading::{self, Reading, TooNew},
    sha256_hex,
    surface::approval::{APPROVAL_TYPE, Approval},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Longest line of a file of decisions, in bytes: 10 000 items with long names.
pub const MAX_APPROVAL: usize = 16 << 20;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalProblem {
    /// Only a later version knows what it means.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// It is no decision.
    #[error("it is no decision about a surface: {0}")]
    Form(String),
    /// It is not in canonical form.
    #[error("it is not in RFC 8785 form")]
    NotCanonical,
    /// It was changed.
    #[error("it is not what its hash says: expected {expected}, found {found}")]
    Hash {
        /// What the line hashes to.
        expected: String,
        /// What it says.
        found: String,
    },
    /// Lines are missing, repeated or in another order.
    #[error("its number is {found}, expected {expected}: lines are missing, repeated or in another order")]
    Number {
        /// The next number.
        expected: u64,
        /// Its own.
        found: u64,
    },
    /// It does not follow the line before.
    #[error("it does not follow the line before: prev_hash is {found}, expected {expected}")]
    Link {
        /// Hash of the line before.
        expected: String,
        /// What it says.
        found: String,
    },
    /// The fingerprint is another key's.
    #[error("the signer's fingerprint is not that of the public key")]
    Fingerprint,
    /// The signature does not hold.
    #[error("it is not signed: {0}")]
    Signature(SignatureProblem),
}

/// Checks decisions one after the other.
#[derive(Debug, Clone)]
pub struct ApprovalWalk {
    next: Option<(u64, String)>,
}

impl ApprovalWalk {
    /// A walk over a whole file, from its first line.
    #[must_use]
    pub fn whole() -> Self {
        Self { next: Some((0, GENESIS.to_owned())) }
    }

    /// A walk over the end of a file: the first line may be any.
    #[must_use]
    pub const fn rest() -> Self {
        Self { next: None }
    }

    /// Number and `prev_hash` of the line that comes next, if they are known.
    #[must_use]
    pub fn next(&self) -> Option<(u64, &str)> {
        self.next.as_ref().map(|(seq, hash)| (*seq, hash.as_str()))
    }

    /// Checks the next line, which is without its line feed.
    ///
    /// # Errors
    /// The first thing that is wrong with it; the walk is then where it was.
    pub fn step(&mut self, line: &[u8]) -> Result<Approval, ApprovalProblem> {
        let approval = read(line)?;
        if let Some((seq, prev)) = &self.next {
            if approval.seq != *seq {
                return Err(ApprovalProblem::Number { expected: *seq, found: approval.seq });
            }
            if approval.prev_hash != *prev {
                return Err(ApprovalProblem::Link { expected: prev.clone(), found: approval.prev_hash });
            }
        }
        self.next = Some((approval.seq.saturating_add(1), approval.hash.clone()));
        Ok(approval)
    }
}

/// Reads one decision and checks its hash and its signature.
///
/// # Errors
/// What is wrong with it.
pub fn read(line: &[u8]) -> Result<Approval, ApprovalProblem> {
    let approval = match Approval::of_line(line) {
        Some(approval) => *approval,
        None => {
            return Err(match reading::read::<Approval>(line) {
                Reading::TooNew(e) => ApprovalProblem::TooNew(e),
                Reading::Damaged(why) => ApprovalProblem::Form(why),
                Reading::Readable(_) => ApprovalProblem::NotCanonical,
            });
        }
    };
    if approval.r#type != APPROVAL_TYPE {
        return Err(ApprovalProblem::Form(format!("its type is {:?}", approval.r#type)));
    }
    let expected = approval.expected_hash().unwrap_or_default();
    if expected != approval.hash {
        return Err(ApprovalProblem::Hash { expected, found: approval.hash });
    }
    let public = STANDARD.decode(&approval.signer.public_key).unwrap_or_default();
    if sha256_hex(&public) != approval.signer.fingerprint {
        return Err(ApprovalProblem::Fingerprint);
    }
    let signature = STANDARD.decode(&approval.signature).unwrap_or_default();
    verify_ed25519(&public, &approval.signed_bytes(), &signature).map_err(ApprovalProblem::Signature)?;
    Ok(approval)
}
