//! Policies: which tools may be called, with what arguments, how often (FORMATS §8).
//!
//! A [`Policy`] is a file, loaded and compiled. An [`Evaluator`] applies it to the calls of one session and keeps that
//! session's counts. Knows nothing of relays, recording, sockets or terminals; only [`dry_run`] reads what was recorded.
//!
//! Precedence, first match wins: denylist, then constraints (any that fails denies), then allowlist, then default; a call
//! that is allowed until then is counted against the budget.

mod compat;
pub mod constraints;
mod error;
mod eval;
mod load;
pub mod model;
mod names;
mod read;
mod yaml;

#[cfg(test)]
mod tests;

pub use constraints::hosts::{Dns, Resolve};
pub use error::PolicyError;
pub use eval::{Arguments, Call, Evaluator, Reason, Ruling, Surroundings, Verdict};
pub use load::MAX_POLICY;
pub use names::is_glob;

/// A policy file, loaded and compiled.
#[derive(Debug)]
pub struct Policy {
    hash: String,
    source: Vec<u8>,
    name: String,
    notes: Vec<Note>,
    rules: model::Rules,
}

/// A remark on a policy for the person who wrote it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The remark.
    pub text: String,
}

impl Policy {
    /// `sha256:<hex>` of the file's exact bytes.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The file's exact bytes.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The path that it was loaded from, or what stood for it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What of an assay-ai policy maps to what, and other remarks.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &model::Rules {
        &self.rules
    }
}
