//! `assay explain`.

use super::out;
use crate::{
    error::{Exit, Failure},
    pack::explain::{Explanation, text},
};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `assay explain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay explain .assay/mcp/packs/proof_pack_20260315T113000Z_0123456789abcdef\n\n\
                        This command checks nothing. To verify a pack, use assay verify-pack.")]
pub struct ExplainArgs {
    /// Directory of the pack
    pack: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs `assay explain`.
///
/// # Errors
/// A directory that is not a pack, or one that cannot be read.
pub fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let explanation = Explanation::of_pack(&args.pack)?;
        if args.json {
            out::json(&explanation)?;
        } else {
            out::stdout(text(&explanation, &args.pack).as_bytes())?;
        }
        Ok(Exit::Ok)
    })
}
