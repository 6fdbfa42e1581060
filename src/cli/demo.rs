//! `assay demo`: its flags.

use crate::error::{Exit, Failure};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `assay demo`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay demo --dir ./assay-demo")]
pub struct DemoArgs {
    /// A directory to leave the session and its pack in; must not exist
    #[arg(long, value_name = "DIR", default_value = "assay-demo")]
    pub dir: PathBuf,
}

/// Runs `assay demo`.
///
/// # Errors
/// A directory that exists, or what keeps the session from being recorded.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    Err(Failure::failed(format_args!("this build has no recorder to demonstrate in {}", args.dir.display())))
}
