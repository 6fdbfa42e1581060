//! `assay verify-dir`: a whole audit directory.

use super::{
    anchored::Anchored,
    out::{self, Style},
};
use crate::{
    error::{Exit, Failure},
    note::{Key, key_of_user},
    pack::verify::{dir_request::DirRequest, request::fingerprint, terminal::ProgressLine},
    paths::DEFAULT_AUDIT_DIR,
};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `assay verify-dir`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay verify-dir .assay/mcp\n  \
                  assay verify-dir --signer 4f1c…e2 --state ~/assay.state --update-state /srv/audit\n\n\
                  What was cut off at the end of a ledger leaves no trace in the directory. --state is your memory:\n\
                  a file outside of the directory, with the largest signed checkpoint that you have seen.\n\n\
                  States: RUNNING, ENDED, PRUNED; UNTERMINATED (its recorder died: assay recover); BROKEN, MISSING,\n\
                  NOT_IN_LEDGER, PACK_MISSING, PACK_REPLACED; TOO_NEW (a later version wrote it).\n\n\
                  Exit codes: 0 nothing is wrong; 1 a demand is not met, or a session has no end; 2 something is\n\
                  missing, changed, rolled back or signed by another key; 3 bad input, or a later version wrote\n\
                  part of it. The worst decides: 2, then 3, then 1.")]
pub struct VerifyDirArgs {
    /// Audit directory
    #[arg(value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Verify every pack (all), or only compare them with the ledger (none)
    #[arg(long, value_enum, value_name = "all|none", default_value_t = Packs::All, hide_possible_values = true)]
    packs: Packs,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    /// Key that may have signed the ledger, as assay ledger vkey prints it; may be repeated [default: those of packs]
    #[arg(long, value_name = "VKEY", value_parser = key_of_user)]
    log_key: Vec<Key>,
    /// Your memory: compare the directory with what you have seen before
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    #[command(flatten)]
    anchored: Anchored,
    /// Remember what was seen, where it does not contradict what was remembered
    #[arg(long, requires = "state")]
    update_state: bool,
}

impl VerifyDirArgs {
    fn request(&self) -> DirRequest {
        DirRequest {
            dir: self.dir.clone(),
            json: self.json,
            without_packs: self.packs == Packs::None,
            signers: self.signer.clone(),
            log_keys: self.log_key.clone(),
            state: self.state.clone().map(|path| (path, self.update_state)),
            anchors: self.anchored.given(),
        }
    }
}

/// `--packs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Packs {
    /// Every pack is verified.
    All,
    /// None is.
    None,
}

/// Runs `assay verify-dir`.
///
/// # Errors
/// A directory that cannot be read, a state that does not read or lies in it.
pub fn run(args: &VerifyDirArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let mut progress = ProgressLine::new();
        let said = args.request().answer(Style::of_stdout(), &mut |p| progress.show(p));
        progress.clear();
        let said = said?;
        out::stdout(said.text.as_bytes())?;
        Ok(said.exit.into())
    })
}
