//! Policies: which tools may be called, with what arguments, how often (docs/policy.md).
//!
//! A [`Policy`] is a file, loaded and compiled. An [`Evaluator`] applies it to the calls of one session and keeps that
//! session's counts. Knows nothing of relays, recording, sockets or terminals; only [`dry_run`] reads what was
//! recorded.
//!
//! Precedence, first match wins: denylist, then constraints (any that fails denies), then allowlist, then default; a
//! call that is allowed until then is counted against the budget.

mod compat;
pub mod constraints;
pub mod dry_run;
mod eval;
pub mod init;
mod load;
pub mod model;
mod names;
mod read;

#[cfg(test)]
mod tests;

pub use crate::model::PolicyReason as Reason;
pub use constraints::hosts::{Beside, Dns, Resolve};
pub use eval::{Arguments, Call, Decision, Evaluator, Surroundings, Verdict};
pub use load::MAX_POLICY;
pub use names::is_glob;
pub use read::POLICY_VERSION;

/// A policy file that cannot be used, and where.
pub use crate::yaml::Error as PolicyError;

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
    /// The remark, as text for people.
    pub text: String,
}

impl Policy {
    /// `sha256:<hex>` of the file's exact bytes.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether a rule needs the addresses of names.
    #[must_use]
    pub fn resolves_names(&self) -> bool {
        self.rules.constraints.iter().any(|constraint| constraint.hosts)
    }

    /// The file's exact bytes.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The path that it was loaded from, or what errors call it instead.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What of an assay-ai policy maps to what, and other remarks.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Compiles what is otherwise compiled on first use: of a policy with very many rules, the later ones.
    ///
    /// # Errors
    /// The first rule that cannot be compiled.
    pub fn compile(&self) -> Result<(), PolicyError> {
        let rules = &self.rules;
        let words = rules.words();
        for (set, word) in
            [(&rules.deny, words.deny), (&rules.allow, words.allow), (&rules.constrained, words.constraints)]
        {
            if let Err(n) = set.compile() {
                let message = format!("the globs of {word} from `{}` on are too big", set.text(n));
                return Err(PolicyError::file(&self.name, message));
            }
        }
        let text = String::from_utf8_lossy(&self.source);
        let source = crate::yaml::Source { name: &self.name, text: &text };
        for c in &rules.constraints {
            let place = crate::yaml::Place { line: c.line, column: 1, width: 1 };
            if c.patterns.as_ref().is_some_and(|p| p.compile().is_err()) {
                return Err(source.error(place, format!("deny_patterns of `{}` cannot be compiled", c.key)));
            }
            if let Some(Err(wrong)) = c.schema.as_ref().map(constraints::schema::Schema::compile) {
                return Err(source.error(place, format!("bad JSON Schema of `{}`: {}", c.key, wrong.what)));
            }
        }
        Ok(())
    }

    /// The rules of the policy.
    #[must_use]
    pub fn rules(&self) -> &model::Rules {
        &self.rules
    }
}
