//! `assay ledger`: the ledger of an audit directory as a log.

use super::{named::not_here, out};
use crate::{
    error::{Exit, Failure},
    files,
    pack::keys::{KeyStore, SignerId},
    paths::{AuditDir, DEFAULT_AUDIT_DIR},
    record::log::{self, LogError},
    seal,
    text::counted,
};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Arguments of `assay ledger`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay ledger vkey\n  \
                        assay ledger renew --reason 'restored the backup of 3 March'\n\n\
                        docs/ledger.md says what the ledger protects from, and what not.")]
pub struct LedgerArgs {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Begin another log, after the ledger was put back on purpose
    #[command(after_help = "Example:\n  assay ledger renew --reason 'restored the backup of 3 March'\n\n\
                            A line in the ledger says so, with the last checkpoint that was signed before. Whoever\n\
                            remembers that checkpoint still sees what is missing.\n\n\
                            Exit codes: 0 it is another log; 2 it could not be written; 3 bad input")]
    Renew {
        /// Why: it is written into the ledger
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: String,
        /// A name of your own for the log, as witnesses want it: example.com/mcp
        #[arg(long, value_name = "NAME", value_parser = origin)]
        log_origin: Option<String>,
        /// Audit directory
        #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
        audit_dir: PathBuf,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Print the key that verifies checkpoints of the ledger, with the name of the log
    #[command(after_help = "Example:\n  assay ledger vkey --audit-dir .assay/mcp")]
    Vkey {
        /// Name of the signer; the active one if none is given
        #[arg(value_parser = signer)]
        signer: Option<SignerId>,
        /// Audit directory
        #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
        audit_dir: PathBuf,
    },
}

fn signer(text: &str) -> Result<SignerId, String> {
    SignerId::parse(text).map_err(|e| e.to_string())
}

fn reason(text: &str) -> Result<String, String> {
    let plain = !text.trim().is_empty() && text.len() <= 1000;
    if plain { Ok(text.to_owned()) } else { Err("expected a reason of at most 1000 bytes".to_owned()) }
}

fn origin(text: &str) -> Result<String, String> {
    let expected =
        "expected a name as in example.com/mcp: ASCII without spaces and plus signs, not beginning with assay/";
    if crate::model::ledger::LogName::is_free(text) { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// Runs `assay ledger`.
///
/// # Errors
/// Bad input, a directory or a key that cannot be used.
pub fn run(args: &LedgerArgs) -> Result<Exit, Failure> {
    match &args.command {
        LedgerCommand::Renew { reason, log_origin, audit_dir, json } => {
            out::answering(*json, || renew(audit_dir, reason, log_origin.as_deref(), *json))
        }
        LedgerCommand::Vkey { signer, audit_dir } => vkey(audit_dir, signer.as_ref()),
    }
}

fn directory(named: &Path) -> Result<AuditDir, Failure> {
    let dir = AuditDir::reach(named)?.of_user();
    if dir.ledger().is_file() {
        return Ok(dir);
    }
    Err(not_here(format_args!("{} has no ledger", named.display())))
}

fn failed(e: &LogError) -> Failure {
    match e {
        LogError::Name(_) | LogError::TooNew { .. } => Failure::bad_input(e),
        LogError::RolledBack(_) | LogError::Io { .. } | LogError::Unsigned(_) => Failure::failed(e),
    }
}

fn renew(named: &Path, reason: &str, origin: Option<&str>, json: bool) -> Result<Exit, Failure> {
    let dir = directory(named)?;
    let keys = KeyStore::of_user()?;
    let signer = keys.load(&keys.active()?)?.patiently();
    let signed = seal::renew(&dir, &signer, reason, origin).map_err(|e| failed(&e))?;
    if json {
        out::json(&serde_json::json!({
            "schema": "assay.ledger_renew.v1", "audit_dir": files::text(dir.root()), "origin": signed.origin,
            "size": signed.size, "checkpoint": signed.note,
        }))?;
    } else {
        let text = format!("the ledger is the log {} now, with {}\n", signed.origin, counted(signed.size, "line"));
        out::stdout(text.as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn vkey(named: &Path, signer: Option<&SignerId>) -> Result<Exit, Failure> {
    let dir = directory(named)?;
    let keys = KeyStore::of_user()?;
    let signer = match signer {
        Some(signer) => signer.clone(),
        None => keys.active()?,
    };
    let key = log::verifier_key(&dir, keys.public(&signer)?.bytes).map_err(|e| failed(&e))?;
    out::stdout(format!("{key}\n").as_bytes())?;
    Ok(Exit::Ok)
}
