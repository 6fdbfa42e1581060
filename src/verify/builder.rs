//! What the builder's own report and transcript say, against what was recomputed: no reader has to trust them, and they
//! must not say anything else.

use super::{
    finding::Finding,
    notebook::Notebook,
    receipts::ReceiptTotals,
    words::{Completeness, Stage},
};
use crate::model::pack::{FileEntry, Manifest, REPORT, REPORT_FINDINGS, REPORT_VERSION, TRANSCRIPT};
use crate::{
    canon,
    model::{SessionDoc, reading::TooNew, version},
    text::markdown::escape,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// The members of `verify_report.json` that say what can be recomputed.
#[derive(Debug, Deserialize)]
pub struct BuilderReport {
    schema_version: String,
    pack_id: String,
    run_id: String,
    pack_root_sha256: String,
    integrity_verdict: String,
    claim_verdict: String,
    replay_verdict: String,
    trust_verdict: String,
    overall_verdict: String,
    /// Any value: the builder's clock may have been wrong.
    #[serde(rename = "verified_at")]
    _verified_at: String,
    verifier: Verifier,
    expectations: Expectations,
    verification_inputs_sha256: String,
    provenance: Value,
    evidence_refs: Vec<EvidenceRef>,
    warnings: Vec<String>,
    passed: bool,
    receipt_count: u64,
    head_hash: String,
    session_complete: bool,
    completeness_verdict: String,
    end_reason: String,
    error_count: u64,
    blocking_channel: Option<String>,
    errors: Vec<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Verifier {
    version: String,
}

#[derive(Debug, Deserialize)]
struct Expectations {
    policy_sha256: String,
    claim_set_id: String,
    claim_set_hash: String,
}

#[derive(Debug, Deserialize)]
struct EvidenceRef {
    path: String,
    sha256: Option<String>,
}

/// Reads a report that is unambiguous JSON; one of a later version is a finding.
pub fn read(notes: &mut Notebook<'_>, bytes: &[u8]) -> Option<BuilderReport> {
    if let Some(newer) = newer(bytes) {
        notes.found(Finding::too_new(Stage::SessionCompleteness, &newer).file(REPORT));
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// Whether a report says that it is of a later version.
pub fn newer(json: &[u8]) -> Option<TooNew> {
    let (name, known) = REPORT_VERSION.rsplit_once('v')?;
    let stated = version::stated(json, "schema_version").and_then(canon::decode_string)?;
    version::newer_text("builder's report", stated.strip_prefix(name)?.strip_prefix('v')?, known)
}

/// The rows of `verify_transcript.md` that say what can be recomputed, by their first cell.
pub type Rows = HashMap<String, String>;

const ROWS: [&str; 13] = [
    "Pack ID",
    "Run ID",
    "Receipt Integrity",
    "Claim Check",
    "Assurance Level",
    "Mode",
    "Receipts",
    "Audit Events",
    "Session",
    "Head Hash",
    "Policy Hash",
    "Suite ID",
    "Time Range",
];

/// The first row of each kind; a second one, or one that is missing, is not a row of a builder's.
pub fn rows(transcript: &[u8]) -> Option<Rows> {
    let text = std::str::from_utf8(transcript).ok()?;
    let mut rows = Rows::new();
    for line in text.lines() {
        let Some((field, value)) = line.strip_prefix("| ").and_then(|l| l.strip_suffix(" |")?.split_once(" | ")) else {
            continue;
        };
        if ROWS.contains(&field) && rows.insert(field.to_owned(), value.to_owned()).is_some() {
            return None;
        }
    }
    (rows.len() == ROWS.len()).then_some(rows)
}

/// What both must say.
pub struct Facts<'a> {
    pub doc: &'a SessionDoc,
    pub manifest: &'a Manifest,
    pub totals: &'a ReceiptTotals,
    pub events: u64,
    pub ended: bool,
}

impl Facts<'_> {
    /// As the builder judges completeness.
    fn completeness(&self) -> Completeness {
        match (self.ended, self.doc.session_complete) {
            (false, _) => Completeness::Unterminated,
            (true, true) => Completeness::Complete,
            (true, false) => Completeness::Incomplete,
        }
    }
}

/// Compares the builder's report; `None`: it has not the members of one.
pub fn report(notes: &mut Notebook<'_>, report: Option<&BuilderReport>, facts: &Facts<'_>) {
    let Some(r) = report else {
        let text = "verify_report.json does not have the members of a builder's report";
        return notes.found(Finding::new("E_SCHEMA_UNKNOWN", Stage::ValidateAttestation, text).file(REPORT));
    };
    let (m, doc) = (facts.manifest, facts.doc);
    let a = &m.attestation;
    // A builder that attests damaged receipts must report `TAMPERED` as well.
    let sound = if a.receipt_integrity == "PASS" { "PASS" } else { "TAMPERED" };
    let ci = a.ci_binding.clone().flatten().and_then(|ci| serde_json::to_value(ci).ok());
    let ci = ci.unwrap_or_else(|| serde_json::json!({}));
    let head = facts.totals.head.map_or_else(|| a.head_hash.clone(), |h| String::from_utf8_lossy(&h).into_owned());
    let text = |t: &str| t.to_owned();
    let mut same: Vec<(&str, String, String)> = vec![
        ("schema_version", text(REPORT_VERSION), text(&r.schema_version)),
        ("pack_id", text(&a.pack_id), text(&r.pack_id)),
        ("run_id", text(&a.run_id), text(&r.run_id)),
        ("pack_root_sha256", text(&m.pack_root_sha256), text(&r.pack_root_sha256)),
        ("verification_inputs_sha256", text(&m.pack_root_sha256), text(&r.verification_inputs_sha256)),
        ("integrity_verdict", text(sound), text(&r.integrity_verdict)),
        ("overall_verdict", text(sound), text(&r.overall_verdict)),
        ("claim_verdict", text("NOT_EVALUATED"), text(&r.claim_verdict)),
        ("replay_verdict", text("NOT_RUN"), text(&r.replay_verdict)),
        ("trust_verdict", text("NOT_EVALUATED"), text(&r.trust_verdict)),
        ("verifier.version", text(&a.verifier_version), text(&r.verifier.version)),
        ("expectations.policy_sha256", text(&a.policy_hash), text(&r.expectations.policy_sha256)),
        ("expectations.claim_set_id", text(&a.claim_set_id), text(&r.expectations.claim_set_id)),
        ("expectations.claim_set_hash", text(&a.claim_set_hash), text(&r.expectations.claim_set_hash)),
        ("provenance", ci.to_string(), r.provenance.to_string()),
        ("warnings", format!("{:?}", doc.recovery_notes), format!("{:?}", r.warnings)),
        ("passed", (sound == "PASS").to_string(), r.passed.to_string()),
        ("errors", (sound != "PASS").to_string(), (r.error_count > 0).to_string()),
        ("errors", r.error_count.min(REPORT_FINDINGS as u64).to_string(), r.errors.len().to_string()),
        // Every file but the report and the transcript themselves, and the manifest.
        ("evidence_refs", m.files.len().saturating_sub(1).to_string(), r.evidence_refs.len().to_string()),
        ("blocking_channel", (sound != "PASS").to_string(), r.blocking_channel.is_some().to_string()),
        ("receipt_count", facts.totals.count.to_string(), r.receipt_count.to_string()),
        ("head_hash", head, text(&r.head_hash)),
        ("session_complete", doc.session_complete.to_string(), r.session_complete.to_string()),
        ("completeness_verdict", facts.completeness().to_string(), text(&r.completeness_verdict)),
        ("end_reason", text(doc.end_reason.as_str()), text(&r.end_reason)),
    ];
    for reference in &r.evidence_refs {
        let entry: Option<&FileEntry> = m.file(&reference.path);
        let (expected, found) = (entry.map(|e| e.sha256.clone()), reference.sha256.clone());
        same.push(("evidence_refs", expected.unwrap_or_default(), found.unwrap_or_default()));
    }
    differences(notes, REPORT, same);
}

/// Compares the builder's transcript; `None`: it has not the rows of one.
pub fn transcript(notes: &mut Notebook<'_>, rows: Option<&Rows>, facts: &Facts<'_>) {
    let Some(rows) = rows else {
        let text = "verify_transcript.md does not have the rows of a builder's transcript";
        return notes.found(Finding::new("E_SCHEMA_UNKNOWN", Stage::ValidateAttestation, text).file(TRANSCRIPT));
    };
    let a = &facts.manifest.attestation;
    let expected = [
        escape(&a.pack_id),
        escape(&a.run_id),
        format!("**{}**", a.receipt_integrity),
        a.claim_check.clone(),
        a.assurance_level.clone(),
        a.mode.clone(),
        facts.totals.count.to_string(),
        facts.events.to_string(),
        format!("**{}** ({})", facts.completeness(), escape(facts.doc.end_reason.as_str())),
        format!("`{}`", a.head_hash),
        format!("`{}`", a.policy_hash),
        a.suite_id.clone(),
        format!("{} to {}", a.timestamp_start, a.timestamp_end),
    ];
    let same =
        ROWS.iter().zip(expected).map(|(row, expected)| (*row, expected, rows.get(*row).cloned().unwrap_or_default()));
    differences(notes, TRANSCRIPT, same.collect());
}

fn differences(notes: &mut Notebook<'_>, file: &str, same: Vec<(&str, String, String)>) {
    for (field, expected, found) in same.into_iter().filter(|(_, expected, found)| expected != found) {
        let what = format!("{file} does not match the evidence: {field}");
        let f = Finding::new("E_MANIFEST_TAMPER", Stage::ValidateAttestation, what).file(file);
        notes.found(f.sides(expected, found));
    }
}
