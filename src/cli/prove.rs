//! `assay prove` and `assay verify-proof`.

use super::{
    anchored::Trust,
    named,
    out::{self, Style},
};
use crate::{
    error::{Exit, Failure},
    history::list::Places,
    model::ReceiptId,
    pack::{
        prove::{ProveError, What, prove},
        verify::{
            proof::{Proof, of_ledger},
            proof_request::ProofRequest,
            request::fingerprint,
        },
    },
    paths::AuditDir,
    record::log::{self, Ended},
};
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `assay prove`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay prove last mtc_0123456789abcdef --out call.tlog-proof\n  \
                  assay prove PACK_DIR --event 9\n\n\
                  The proof shows one call to people who may not see the others. Besides the call it tells\n\
                  them hashes of what was before and beside it: arguments that can be guessed could be\n\
                  found by trying.")]
pub struct ProveArgs {
    /// A pack: its directory, an archive of it, last, or a session's id or the beginning of that
    pack: PathBuf,
    /// The receipt of a call, by its id; the proof has the receipt
    #[arg(value_parser = receipt_id, required_unless_present = "event", conflicts_with = "event")]
    receipt: Option<ReceiptId>,
    /// The event of this number instead, from 0; the proof has no receipt
    #[arg(long, value_name = "N")]
    event: Option<u64>,
    /// Write the proof to this new file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
}

/// Arguments of `assay verify-proof`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay verify-proof --signer 4f1c…e2 call.tlog-proof\n\n\
                  Exit codes: 0 it holds; 1 it holds, but a demand is not met; 2 it does not hold, or another key\n\
                  signed; 3 not a readable proof, or a later version wrote it.")]
pub struct VerifyProofArgs {
    /// The proof
    proof: PathBuf,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
    #[command(flatten)]
    trust: Trust,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn receipt_id(text: &str) -> Result<ReceiptId, String> {
    ReceiptId::parse(text).map_err(|_| "expected the id of a receipt, such as mtc_0123456789abcdef".to_owned())
}

impl From<ProveError> for Failure {
    fn from(e: ProveError) -> Self {
        match e {
            ProveError::Verify(e) => e.into(),
            ProveError::NotSound(_) | ProveError::Read(_) => {
                Self::failed(e).hint("assay verify-pack says what is wrong")
            }
            ProveError::NoCheckpoints | ProveError::NoEvent(_) | ProveError::NoReceipt(_) => Self::bad_input(e),
        }
    }
}

/// Runs `assay prove`.
///
/// # Errors
/// A pack that cannot be read, does not verify, or has no such event.
pub fn run(args: &ProveArgs) -> Result<Exit, Failure> {
    let pack = named::pack(&args.pack, &Places::of_command(args.audit_dir.as_deref()))?;
    let what = match (args.receipt, args.event) {
        (Some(id), _) => What::Receipt(id),
        (None, event) => What::Event(event.unwrap_or_default()),
    };
    let proof = with_ledger(prove(&pack.dir, what)?, &pack.dir).to_string();
    match &args.out {
        Some(path) => out::new_file(path, proof.as_bytes())?,
        None => out::stdout(proof.as_bytes())?,
    }
    Ok(Exit::Ok)
}

/// The same with the line of the ledger beside the pack that says how the session ended, if that is signed by the same key and
/// the proof is of the whole session; as witnesses signed it, if any did.
fn with_ledger(proof: Proof, pack: &Path) -> Proof {
    let Ok(proven) = proof.clone().verify(&[]) else { return proof };
    let Some(dir) = pack.canonicalize().ok().and_then(|pack| Some(AuditDir::at(pack.parent()?.parent()?))) else {
        return proof;
    };
    let with = |Ended { line, index, path, note }: Ended| {
        let mut more = proof.clone();
        more.extra.ledger = Some(of_ledger(&line, index, path, &note));
        more.extra.v = more.extra.version();
        more.clone().verify(&[]).is_ok().then_some(more)
    };
    let ended = log::ended(&dir, proven.session_id).unwrap_or_default();
    ended.into_iter().find_map(with).unwrap_or(proof)
}

/// Runs `assay verify-proof`.
///
/// # Errors
/// A file that cannot be read, is no proof, or one that does not hold.
pub fn verify(args: &VerifyProofArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let request = ProofRequest {
            proof: args.proof.clone(),
            json: args.json,
            signers: args.signer.clone(),
            anchors: args.trust.given(),
        };
        let said = request.answer(Style::of_stdout())?;
        out::stdout(said.text.as_bytes())?;
        Ok(said.exit.into())
    })
}
