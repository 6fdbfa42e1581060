//! `assay recover`: its flags.

use crate::{
    error::{Exit, Failure},
    paths::DEFAULT_AUDIT_DIR,
};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `assay recover`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay recover --audit-dir .assay/mcp\n\n\
                  Sessions that are still running are left alone. A second run changes nothing.")]
pub struct RecoverArgs {
    /// Audit directory
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    pub audit_dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs `assay recover`.
///
/// # Errors
/// Bad input, or what keeps a session from being finished.
pub fn run(args: &RecoverArgs) -> Result<Exit, Failure> {
    Err(Failure::failed(format_args!("this build has no recorder to recover {}", args.audit_dir.display())))
}
