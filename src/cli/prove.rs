//! `assay prove` and `assay verify-proof`.

use super::{
    anchored::Trust,
    named,
    out::{self, Style, short},
};
use crate::{
    error::{Exit, Failure},
    files,
    history::list::Places,
    model::{ReceiptId, WallTime},
    pack::{
        prove::{ProveError, What, prove},
        verify::{
            AnchorReport, SignerVerdict,
            proof::{InLedger, MAX_PROOF_FILE, Proof, ProofError, Proven, of_ledger},
            request::fingerprint,
            verdict::anchor,
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

/// What is printed as JSON.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    proven: &'a Proven,
    receipt: Option<serde_json::Value>,
    anchor: &'a AnchorReport,
    unmet: &'a [String],
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
        let (anchored, unmet) = proven.anchored(&args.trust.given().read()?, WallTime::now());
        let exit = match proven.signer_verdict {
            SignerVerdict::Untrusted => Exit::Failed,
            _ if unmet.is_empty() => Exit::Ok,
            _ => Exit::Violation,
        };
        if args.json {
            let receipt = proven.receipt_line.as_deref().and_then(|line| serde_json::from_str(line).ok());
            let (anchor, unmet) = (&anchored, unmet.as_slice());
            out::json(&Document { schema: SCHEMA, proven: &proven, receipt, anchor, unmet, exit_code: exit.code() })?;
        } else {
            let mut text = words(&proven);
            anchor(&mut text, &anchored, Style::of_stdout());
            for unmet in &unmet {
                let _ = writeln!(text, "not met: {}", short(unmet));
            }
            out::stdout(text.as_bytes())?;
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
    if let Some(InLedger { origin, ledger_seq, lines, at, .. }) = &p.ledger {
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
