//! `assay prove` and `assay verify-proof`.

use super::{
    named,
    out::{self, short},
};
use crate::{
    error::{Exit, Failure},
    files,
    history::list::Places,
    model::ReceiptId,
    pack::{
        prove::{ProveError, What, prove},
        verify::{
            SignerVerdict,
            proof::{InLedger, MAX_PROOF_FILE, Proof, ProofError, Proven, of_ledger},
            request::fingerprint,
        },
    },
    paths::AuditDir,
    record::log::{self, Ended},
    text::counted,
};
use clap::Args;
use serde::Serialize;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// `schema` of the document about a proof.
const SCHEMA: &str = "assay.proof.v1";

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
                  Exit codes: 0 it holds; 2 it does not hold, or another key signed; 3 not a readable proof,\n\
                  or a later version wrote it.")]
pub struct VerifyProofArgs {
    /// The proof
    proof: PathBuf,
    /// Fingerprint of a key that may have signed: SHA-256 of the public key, 64 hex digits; may be repeated
    #[arg(long, value_name = "FPR", value_parser = fingerprint)]
    signer: Vec<String>,
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
/// the proof is of the whole session.
fn with_ledger(proof: Proof, pack: &Path) -> Proof {
    let Ok(proven) = proof.clone().verify(&[]) else { return proof };
    let Some(dir) = pack.canonicalize().ok().and_then(|pack| Some(AuditDir::at(pack.parent()?.parent()?))) else {
        return proof;
    };
    let Ok(Some(Ended { line, index, path, note })) = log::ended(&dir, proven.session_id) else { return proof };
    let mut more = proof.clone();
    more.extra.ledger = Some(of_ledger(&line, index, path, &note));
    more.extra.v = more.extra.version();
    if more.clone().verify(&[]).is_ok() { more } else { proof }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    proven: &'a Proven,
    receipt: Option<serde_json::Value>,
    exit_code: u8,
}

/// Runs `assay verify-proof`.
///
/// # Errors
/// A file that cannot be read, is no proof, or one that does not hold.
pub fn verify(args: &VerifyProofArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let shown = args.proof.display();
        let bytes = files::plain(&args.proof).and_then(|file| files::read_all(file, MAX_PROOF_FILE));
        let bytes = bytes.map_err(|e| Failure::bad_input(format_args!("{shown}: {e}")))?;
        let proven = Proof::parse(&bytes).and_then(|proof| proof.verify(&args.signer));
        let proven = proven.map_err(|e: ProofError| {
            let what = format!("{shown}: {e}");
            if e.is_refusal() { Failure::failed(what) } else { Failure::bad_input(what) }
        })?;
        let exit = if proven.signer_verdict == SignerVerdict::Untrusted { Exit::Failed } else { Exit::Ok };
        if args.json {
            let receipt = proven.receipt_line.as_deref().and_then(|line| serde_json::from_str(line).ok());
            out::json(&Document { schema: SCHEMA, proven: &proven, receipt, exit_code: exit.code() })?;
        } else {
            out::stdout(words(&proven).as_bytes())?;
        }
        Ok(exit)
    })
}

fn words(p: &Proven) -> String {
    let mut text = format!(
        "event {} ({}) of {} of session {}, as the {} stated\n",
        p.event_seq,
        p.event.as_str(),
        counted(p.events, "event"),
        p.session_id,
        p.stated_by
    );
    if let Some(line) = &p.receipt_line {
        let _ = writeln!(text, "receipt   {}", short(line));
    }
    if let Some(InLedger { origin, ledger_seq, lines, at }) = &p.ledger {
        let _ = writeln!(text, "ledger    line {ledger_seq} of {lines}, of {at}, in {}", short(origin));
    }
    let verdict = match p.signer_verdict {
        SignerVerdict::Pinned => "a key that you named",
        SignerVerdict::Unpinned => "a key that you have not named: anyone can have made this",
        SignerVerdict::Untrusted => "which is not a key that you named",
    };
    let _ = writeln!(text, "signer    {}  {} ({}), {verdict}", p.signer_verdict, p.signer, short(&p.signer_id));
    text + "Nothing is said of other events.\n"
}
