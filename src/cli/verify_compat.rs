//! Options of assay-ai's `verify-pack` that mean nothing here; the verifier says what to do instead.

use clap::Args;

/// Taken so that they can be refused in words of their own.
#[derive(Debug, Default, Args)]
pub(super) struct Elsewhere {
    #[arg(long, hide = true)]
    coverage_contract: Option<String>,
    #[arg(long, hide = true)]
    min_coverage: Option<String>,
    #[arg(long, hide = true)]
    require_witness: bool,
    #[arg(long, hide = true)]
    html: Option<String>,
    #[arg(long, hide = true)]
    badge: Option<String>,
    #[arg(long, hide = true)]
    trust_target: Option<String>,
    #[arg(long, hide = true)]
    trust_policy_dir: Option<String>,
    #[arg(long, hide = true)]
    enforce_trust_gate: bool,
}

impl Elsewhere {
    /// The names of those that were given.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let given = [
            ("coverage-contract", self.coverage_contract.is_some()),
            ("min-coverage", self.min_coverage.is_some()),
            ("require-witness", self.require_witness),
            ("html", self.html.is_some()),
            ("badge", self.badge.is_some()),
            ("trust-target", self.trust_target.is_some()),
            ("trust-policy-dir", self.trust_policy_dir.is_some()),
            ("enforce-trust-gate", self.enforce_trust_gate),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }
}
