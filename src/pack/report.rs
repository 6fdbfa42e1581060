//! `verify_report.json` and `verify_transcript.md` of a pack: what its builder checked before it signed.

use super::verify::{
    Claims, Completeness, Finding, Integrity, SignerVerdict,
    document::{Check, EvidenceRef, NOT_RUN, Parts, Subject, Verdicts, document},
};
use crate::{
    model::{
        SessionDoc,
        pack::{Attestation, FileEntry, MANIFEST, canonical, pretty},
    },
    text::markdown::escape,
};
use serde::Serialize;

/// What the builder found.
#[derive(Debug, Clone)]
pub struct Checked<'a> {
    /// The attestation that will be signed.
    pub attestation: &'a Attestation,
    /// SHA-256 over its RFC 8785 form.
    pub root: &'a str,
    /// Id of the session.
    pub session: &'a SessionDoc,
    /// Whether it is all there.
    pub completeness: Completeness,
    /// The first [`REPORT_FINDINGS`](crate::model::pack::REPORT_FINDINGS).
    pub findings: &'a [Finding],
    /// Number of all findings, including those not listed.
    pub finding_count: u64,
    /// The manifest's entry for `receipt_pack.jsonl`.
    pub receipts: &'a FileEntry,
    /// What ours has more than assay's kernel.
    pub more: &'a [FileEntry],
    /// When the report was made.
    pub at: &'a str,
}

/// A finding as a builder lists it: about one receipt, and, where it is about one member, that.
#[derive(Serialize)]
struct Listed<'a> {
    code: &'static str,
    message: &'a str,
    receipt_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl<'a> Listed<'a> {
    fn of(f: &'a Finding) -> Self {
        Self { code: f.code, message: &f.message, receipt_index: f.receipt_index, field: f.file.as_deref() }
    }
}

/// The members that assay-ai's document has not.
#[derive(Serialize)]
struct Own<'a> {
    session_complete: bool,
    completeness_verdict: Completeness,
    end_reason: &'a str,
    error_count: u64,
}

/// `verify_report.json`, as assay-ai prints it.
///
/// # Errors
/// As `serde_json`.
pub fn report(c: &Checked<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let a = c.attestation;
    let integrity = if c.finding_count == 0 { Integrity::Pass } else { Integrity::Tampered };
    let verdicts = Verdicts { integrity, claims: Claims::NotEvaluated, signer: SignerVerdict::Unpinned };
    let id = canonical(&serde_json::json!({
        "pack_root_sha256": c.root, "verified_at": c.at, "integrity_verdict": integrity,
        "claim_verdict": verdicts.claims, "replay_verdict": NOT_RUN, "trust_verdict": verdicts.trust(),
        "verifier_version": a.verifier_version,
    }))?;
    let mut evidence = vec![
        EvidenceRef { kind: "pack_manifest", path: MANIFEST, sha256: None },
        EvidenceRef { kind: "receipt_pack", path: &c.receipts.path, sha256: Some(&c.receipts.sha256) },
    ];
    evidence.extend(c.more.iter().map(|f| EvidenceRef { kind: "other", path: &f.path, sha256: Some(&f.sha256) }));
    let errors: Vec<Listed<'_>> = c.findings.iter().map(Listed::of).collect();
    pretty(&document(Parts {
        verifier: ("assay-mcp-recorder", &a.verifier_version),
        id,
        at: c.at,
        subject: Subject {
            pack_id: Some(&a.pack_id),
            run_id: Some(&a.run_id),
            root: Some(c.root),
            // The manifest covers this report: there is none yet.
            manifest_sha256: None,
            policy_hash: Some(&a.policy_hash),
            claim_set_id: Some(&a.claim_set_id),
            claim_set_hash: Some(&a.claim_set_hash),
            provenance: a.ci_binding.as_ref().and_then(Option::as_ref).map(serde_json::to_value).transpose()?,
            receipt_count: a.n_receipts,
            head_hash: Some(&a.head_hash),
        },
        verdicts,
        evidence,
        checks: vec![
            Check::new("receipt_pack_integrity", integrity.as_str()),
            Check::with("session_completeness", c.completeness.as_str(), Some(c.session.end_reason.as_str())),
        ],
        integrity: if integrity == Integrity::Pass {
            "Every receipt was read back and checked when the pack was built; hashes and signature are for the reader to verify."
        } else {
            "Receipts were damaged when the pack was built; the errors name them."
        },
        trust: "Trust policy was not evaluated.",
        errors: &errors,
        warnings: &c.session.recovery_notes,
        own: Own {
            session_complete: c.session.session_complete,
            completeness_verdict: c.completeness,
            end_reason: c.session.end_reason.as_str(),
            error_count: c.finding_count,
        },
    }))
}

/// `verify_transcript.md`. Holds nothing that came from outside but what [`escape`] has made harmless.
#[must_use]
pub fn transcript(c: &Checked<'_>) -> String {
    use std::fmt::Write as _;
    let a = c.attestation;
    let mut out = String::from(
        "# Proof Pack Verification Transcript\n\n## Attestation\n\n| Field | Value |\n|-------|-------|\n",
    );
    for (field, value) in [
        ("Pack ID", escape(&a.pack_id)),
        ("Run ID", escape(&a.run_id)),
        ("Receipt Integrity", format!("**{}**", a.receipt_integrity)),
        ("Claim Check", a.claim_check.clone()),
        ("Assurance Level", a.assurance_level.clone()),
        ("Mode", a.mode.clone()),
        ("Receipts", a.n_receipts.to_string()),
        ("Audit Events", c.session.event_count.to_string()),
        ("Session", format!("**{}** ({})", c.completeness.as_str(), escape(c.session.end_reason.as_str()))),
        ("Head Hash", format!("`{}`", a.head_hash)),
        ("Policy Hash", format!("`{}`", a.policy_hash)),
        ("Suite ID", a.suite_id.clone()),
        ("Time Range", format!("{} to {}", a.timestamp_start, a.timestamp_end)),
    ] {
        let _ = writeln!(out, "| {field} | {value} |");
    }
    out.push_str("\n## Verification Errors\n\n");
    for f in c.findings {
        let _ =
            writeln!(out, "- **{}** (receipt {}): {}", f.code, f.receipt_index.unwrap_or_default(), escape(&f.message));
    }
    match c.finding_count.saturating_sub(c.findings.len() as u64) {
        0 if c.finding_count == 0 => out.push_str("None\n"),
        0 => {}
        more => drop(writeln!(out, "- and {more} more")),
    }
    out.push_str("\n## Verification Warnings\n\n");
    for note in &c.session.recovery_notes {
        let _ = writeln!(out, "- {}", escape(note));
    }
    if c.session.recovery_notes.is_empty() {
        out.push_str("None\n");
    }
    let _ = write!(
        out,
        "\n## Claim Verification\n\nNo claim set provided.\n\n---\nGenerated by MCP Flight Recorder {} at {}\n\
         Verify: `assay verify-pack <pack_dir>`\n",
        escape(&a.verifier_version),
        c.at
    );
    out
}
