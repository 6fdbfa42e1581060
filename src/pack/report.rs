//! `verify_report.json` and `verify_transcript.md` as they lie in a pack: what its builder checked before it signed.

use super::verify::Completeness;
use crate::model::{
    SessionDoc,
    pack::{Attestation, FileEntry, MANIFEST, REPORT_VERSION, canonical, pretty},
    sha256_hex,
};
use crate::text::markdown::escape;
use serde::Serialize;

/// `policy_id` of assay's report.
const POLICY_ID: &str = "assay.verify_policy.v0.1";

/// Something wrong with a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// assay's error code, `E_…`.
    pub code: &'static str,
    /// What was expected and found.
    pub message: String,
    /// Which receipt, from 0.
    pub receipt_index: u64,
    /// Which member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'static str>,
}

/// What the builder found.
#[derive(Debug, Clone)]
pub struct Checked<'a> {
    /// The attestation that will be signed.
    pub attestation: &'a Attestation,
    /// SHA-256 over its RFC 8785 form.
    pub root: &'a str,
    /// The session.
    pub session: &'a SessionDoc,
    /// Whether it is all there.
    pub completeness: Completeness,
    /// The first [`REPORT_FINDINGS`].
    pub findings: &'a [Finding],
    /// All of them.
    pub finding_count: u64,
    /// `receipt_pack.jsonl`.
    pub receipts: &'a FileEntry,
    /// What ours has more than assay's kernel.
    pub more: &'a [FileEntry],
    /// When.
    pub at: &'a str,
}

#[derive(Serialize)]
struct EvidenceRef<'a> {
    kind: &'a str,
    path: &'a str,
    sha256: Option<&'a str>,
}

#[derive(Serialize)]
struct Check<'a> {
    name: &'a str,
    verdict: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Serialize)]
struct Verifier<'a> {
    name: &'a str,
    version: &'a str,
    policy_id: &'a str,
}

#[derive(Serialize)]
struct Expectations<'a> {
    policy_id: &'a str,
    policy_sha256: &'a str,
    claim_set_id: &'a str,
    claim_set_hash: &'a str,
}

#[derive(Serialize)]
struct Summary<'a> {
    integrity: &'a str,
    claim: &'a str,
    replay: &'a str,
    trust: &'a str,
}

/// Members of assay's report in its order, then ours: its schema admits more.
#[allow(clippy::struct_field_names)]
#[derive(Serialize)]
struct Report<'a> {
    schema_version: &'a str,
    report_id: String,
    pack_id: &'a str,
    run_id: &'a str,
    pack_root_sha256: &'a str,
    pack_manifest_sha256: Option<&'a str>,
    integrity_verdict: &'a str,
    claim_verdict: &'a str,
    replay_verdict: &'a str,
    trust_verdict: &'a str,
    evaluation_profile: &'a str,
    required_channels: [&'a str; 1],
    overall_verdict: &'a str,
    overall_reason: &'a str,
    blocking_channel: Option<&'a str>,
    verified_at: &'a str,
    verifier: Verifier<'a>,
    expectations: Expectations<'a>,
    verification_inputs_sha256: &'a str,
    verifier_config_sha256: Option<&'a str>,
    provenance: serde_json::Value,
    evidence_refs: Vec<EvidenceRef<'a>>,
    checks: Vec<Check<'a>>,
    summary: Summary<'a>,
    errors: &'a [Finding],
    warnings: Vec<String>,
    passed: bool,
    receipt_count: u64,
    head_hash: &'a str,
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
    let passed = c.finding_count == 0;
    let integrity = if passed { "PASS" } else { "TAMPERED" };
    let seed = canonical(&serde_json::json!({
        "pack_root_sha256": c.root, "verified_at": c.at, "integrity_verdict": integrity,
        "claim_verdict": "NOT_EVALUATED", "replay_verdict": "NOT_RUN", "trust_verdict": "NOT_EVALUATED",
        "verifier_version": a.verifier_version,
    }))?;
    let mut evidence_refs = vec![
        EvidenceRef { kind: "pack_manifest", path: MANIFEST, sha256: None },
        EvidenceRef { kind: "receipt_pack", path: &c.receipts.path, sha256: Some(&c.receipts.sha256) },
    ];
    evidence_refs.extend(c.more.iter().map(|f| EvidenceRef { kind: "other", path: &f.path, sha256: Some(&f.sha256) }));
    let check = |name, verdict| Check { name, verdict, detail: None };
    pretty(&Report {
        schema_version: REPORT_VERSION,
        report_id: format!("vr_{}", &sha256_hex(&seed)[..20]),
        pack_id: &a.pack_id,
        run_id: &a.run_id,
        pack_root_sha256: c.root,
        pack_manifest_sha256: None,
        integrity_verdict: integrity,
        claim_verdict: "NOT_EVALUATED",
        replay_verdict: "NOT_RUN",
        trust_verdict: "NOT_EVALUATED",
        evaluation_profile: "integrity_required",
        required_channels: ["integrity"],
        overall_verdict: integrity,
        overall_reason: if passed {
            "required_channels_passed; optional_channels_not_evaluated=claim,replay,trust"
        } else {
            "integrity_verdict=TAMPERED"
        },
        blocking_channel: (!passed).then_some("integrity"),
        verified_at: c.at,
        verifier: Verifier { name: "assay-mcp-recorder", version: &a.verifier_version, policy_id: POLICY_ID },
        expectations: Expectations {
            policy_id: POLICY_ID,
            policy_sha256: &a.policy_hash,
            claim_set_id: &a.claim_set_id,
            claim_set_hash: &a.claim_set_hash,
        },
        verification_inputs_sha256: c.root,
        verifier_config_sha256: None,
        provenance: a
            .ci_binding
            .as_ref()
            .and_then(Option::as_ref)
            .map_or_else(|| Ok(serde_json::json!({})), serde_json::to_value)?,
        evidence_refs,
        checks: vec![
            check("receipt_pack_integrity", integrity),
            Check {
                name: "session_completeness",
                verdict: c.completeness.as_str(),
                detail: Some(c.session.end_reason.to_string()),
            },
            check("claim_check", "NOT_EVALUATED"),
            check("replay", "NOT_RUN"),
            check("trust", "NOT_EVALUATED"),
        ],
        summary: Summary {
            integrity: if passed {
                "Every receipt was read back and checked when the pack was built; hashes and signature are for the reader to verify."
            } else {
                "Receipts were damaged when the pack was built; the errors name them."
            },
            claim: "No claim set was evaluated.",
            replay: "Replay was not run.",
            trust: "Trust policy was not evaluated.",
        },
        errors: c.findings,
        warnings: c.session.recovery_notes.clone(),
        passed,
        receipt_count: a.n_receipts,
        head_hash: &a.head_hash,
        session_complete: c.session.session_complete,
        completeness_verdict: c.completeness,
        end_reason: c.session.end_reason.as_str(),
        error_count: c.finding_count,
    })
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
        let _ = writeln!(out, "- **{}** (receipt {}): {}", f.code, f.receipt_index, escape(&f.message));
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
