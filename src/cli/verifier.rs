//! `assay verifier`: the second verifier, as a page for a browser or as a script for node.

use super::out;
use crate::error::{Exit, Failure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use sha2::{Digest as _, Sha256};
use std::path::PathBuf;

/// The verifier: the page and the program for node are this one script.
pub const SCRIPT: &str = include_str!("../../assets/verifier/verify.mjs");
const PAGE: &str = include_str!("../../assets/verifier/page.html");
const STYLE: &str = include_str!("../../assets/verifier/page.css");

/// Arguments of `assay verifier`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay verifier --out verify.html\n  \
                  assay verifier --node --out verify.mjs && node verify.mjs PACK_DIR\n\n\
                  It shares no code with assay verify-pack and needs nothing but a browser or node. Give it to\n\
                  those who receive your packs.")]
pub struct VerifierArgs {
    /// The script for node (20 or later) instead of the page
    #[arg(long)]
    node: bool,
    /// Write to this new file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs `assay verifier`.
///
/// # Errors
/// A file that exists or cannot be written.
pub fn run(args: &VerifierArgs) -> Result<Exit, Failure> {
    let text = if args.node { SCRIPT.to_owned() } else { page() };
    match &args.out {
        Some(path) => out::new_file(path, text.as_bytes())?,
        None => out::stdout(text.as_bytes())?,
    }
    Ok(Exit::Ok)
}

/// The page. Its content security policy allows this script and this style, and no network.
fn page() -> String {
    let hash = |text: &str| format!("sha256-{}", STANDARD.encode(Sha256::digest(text)));
    let filled = [("{{script-hash}}", &*hash(SCRIPT)), ("{{style-hash}}", &*hash(STYLE)), ("{{style}}", STYLE)];
    let head = filled.iter().fold(PAGE.to_owned(), |page, (name, text)| page.replacen(name, text, 1));
    head.replacen("{{script}}", SCRIPT, 1)
}
