//! `assay explain`.

use super::{named, out};
use crate::{
    error::{Exit, Failure},
    history::list::Places,
    pack::explain::{Explanation, text},
    zone::Zone,
};
use clap::Args;
use std::path::PathBuf;

/// Arguments of `assay explain`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay explain .assay/mcp/packs/proof_pack_20260315T113000Z_0123456789abcdef\n\n\
                        This command checks nothing. To verify a pack, use assay verify-pack.")]
pub struct ExplainArgs {
    /// A pack: its directory, an archive of it, last, or a session's id or the beginning of that
    pack: PathBuf,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
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
        let pack = named::pack(&args.pack, &Places::of_command(args.audit_dir.as_deref()))?;
        let explanation = Explanation::of_pack(&pack.dir)?;
        if args.json {
            out::json(&explanation)?;
        } else {
            out::stdout(text(&explanation, &pack.shown, &|time| Zone::Local.said(time)).as_bytes())?;
        }
        Ok(Exit::Ok)
    })
}
