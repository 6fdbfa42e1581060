//! The verifier lock file `assay.lock` of assay-ai: which cards, which signers, which formats a repository accepts.

/// A lock file that was read and is of its documented form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// `pack_format_version` that a pack must have.
    pub pack_format_version: String,
    /// Fingerprints that may sign; `None` when any may.
    pub allowed_signers: Option<Vec<String>>,
    /// Ids of the locked cards.
    pub cards: Vec<String>,
    /// Flattened claim set hash that a pack built with these cards attests.
    pub claim_set_hash: String,
    /// What about the lock does not fit this verifier; each an unmet demand.
    pub problems: Vec<String>,
}
