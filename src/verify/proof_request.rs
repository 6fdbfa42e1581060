//! What `verify-proof` is asked, and its answer: that of `assay verify-proof` and of `assay-verify verify-proof`.

use super::{
    anchor::AnchorReport,
    proof::{InLedger, MAX_PROOF_FILE, Proof, Proven},
    request::{Anchors, RequestError, Said},
    terminal::{self, Style, short},
    verdict::anchor,
    words::{Exit, SignerVerdict},
};
use crate::{model::WallTime, text::counted};
use assay_evidence::plain;
use serde::Serialize;
use std::{fmt::Write as _, path::PathBuf};

/// `schema` of the document.
const SCHEMA: &str = "assay.proof.v1";

/// What one run is asked.
#[derive(Debug, Default)]
pub struct ProofRequest {
    /// The file.
    pub proof: PathBuf,
    /// Whether the answer is one JSON document.
    pub json: bool,
    /// Fingerprints of keys that may have signed.
    pub signers: Vec<String>,
    /// Whose anchors count.
    pub anchors: Anchors,
}

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

impl ProofRequest {
    /// Verifies the proof, and says what it proves.
    ///
    /// # Errors
    /// A file that cannot be read, is no proof, or one that does not hold.
    pub fn answer(&self, style: Style) -> Result<Said, RequestError> {
        let bytes = plain::plain(&self.proof).and_then(|file| plain::read_all(file, MAX_PROOF_FILE));
        let bytes = bytes.map_err(RequestError::file(&self.proof))?;
        let proven = Proof::parse(&bytes).and_then(|proof| proof.verify(&self.signers));
        let proven = proven.map_err(|source| RequestError::Proof { path: self.proof.clone(), source })?;
        let (anchored, unmet) = proven.anchored(&self.anchors.read()?, WallTime::now());
        let exit = match proven.signer_verdict {
            SignerVerdict::Untrusted => Exit::Failed,
            _ if unmet.is_empty() => Exit::Ok,
            _ => Exit::Violation,
        };
        let text = if self.json {
            let receipt = proven.receipt_line.as_deref().and_then(|line| serde_json::from_str(line).ok());
            let (anchor, unmet) = (&anchored, unmet.as_slice());
            let exit_code = exit.code();
            terminal::json(&Document { schema: SCHEMA, proven: &proven, receipt, anchor, unmet, exit_code })?
        } else {
            let mut text = words(&proven);
            anchor(&mut text, &anchored, style);
            for unmet in &unmet {
                let _ = writeln!(text, "not met: {}", short(unmet));
            }
            text
        };
        Ok(Said { text, exit })
    }
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
