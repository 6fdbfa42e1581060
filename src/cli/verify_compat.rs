//! Options of assay-ai's `verify-pack` that mean nothing here: refused with the name of what does the same, or why nothing can.

use crate::error::Failure;
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

const COVERAGE: &str = "call sites in source code are not what a recorder sees; that every tool call has its receipt is \
                        --cards mcp_session_completeness --require-claim-pass";
const TRUST: &str = "name the keys that you trust with --signer, or keep them in a file for --lock";

impl Elsewhere {
    /// Says what to use instead of the first one that was given.
    pub(super) fn refuse(&self) -> Result<(), Failure> {
        let given = [
            ("--coverage-contract", self.coverage_contract.is_some(), COVERAGE),
            ("--min-coverage", self.min_coverage.is_some(), COVERAGE),
            (
                "--require-witness",
                self.require_witness,
                "packs have no witness bundles; --signer pins the key that signed",
            ),
            ("--html", self.html.is_some(), "--json and --out give the report as JSON"),
            ("--badge", self.badge.is_some(), "make it from the exit code, or from --json"),
            ("--trust-target", self.trust_target.is_some(), TRUST),
            ("--trust-policy-dir", self.trust_policy_dir.is_some(), TRUST),
            ("--enforce-trust-gate", self.enforce_trust_gate, TRUST),
        ];
        match given.into_iter().find(|(_, given, _)| *given) {
            Some((option, _, instead)) => {
                Err(Failure::bad_input(format_args!("{option} is an option of assay-ai that is not offered here"))
                    .hint(instead))
            }
            None => Ok(()),
        }
    }
}
