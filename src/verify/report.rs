//! What a verification found (docs/formats.md, "Verifier's report").

use super::{
    anchor::AnchorReport,
    escrow::Covered,
    finding::{Finding, VERSION_UNSUPPORTED},
    words::{Claims, Completeness, Exit, Integrity, Memory, SignerVerdict, Stage, StageStatus},
};
use crate::{
    claims::ClaimSetResult,
    model::{SessionDoc, WallTime},
};
use serde::Serialize;
use serde_json::json;

/// The key that a pack names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signer {
    /// The verdict on the signer.
    pub verdict: SignerVerdict,
    /// SHA-256 of the raw 32-byte Ed25519 public key, hex; `null` when the pack has no readable key.
    pub fingerprint: Option<String>,
    /// The name that the pack gives the key; self-reported.
    pub signer_id: Option<String>,
}

/// One stage of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageReport {
    /// The stage that this is about.
    pub stage: Stage,
    /// How the stage ended.
    pub status: StageStatus,
    /// Code of its first finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// Its first finding, or why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the stage counted, by name.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub detail: serde_json::Map<String, serde_json::Value>,
}

/// What a pack says about itself, as far as it could be read. Nothing here is a verdict.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PackFacts {
    /// `pack_id`.
    pub pack_id: Option<String>,
    /// `run_id`.
    pub run_id: Option<String>,
    /// `pack_root_sha256`.
    pub pack_root_sha256: Option<String>,
    /// SHA-256 of the bytes of `pack_manifest.json`.
    pub pack_manifest_sha256: Option<String>,
    /// SHA-256 of the bytes of `receipt_pack.jsonl`.
    pub receipt_pack_sha256: Option<String>,
    /// Recomputed: SHA-256 of the last receipt's canonical form.
    pub head_hash: Option<String>,
    /// Receipts in the file.
    pub receipt_count: u64,
    /// Audit events in the file.
    pub event_count: u64,
    /// Bytes in the pack's listed files, as read.
    pub total_bytes: u64,
    /// `mode`: `shadow`, `enforced`, `breakglass`.
    pub mode: Option<String>,
    /// `policy_hash` of the attestation.
    pub policy_hash: Option<String>,
    /// `claim_set_id`.
    pub claim_set_id: Option<String>,
    /// `claim_set_hash`.
    pub claim_set_hash: Option<String>,
    /// `claim_check` that the builder attested: `PASS`, `FAIL`, `N/A`.
    pub claim_check: Option<String>,
    /// `timestamp_start`.
    pub timestamp_start: Option<String>,
    /// `timestamp_end`.
    pub timestamp_end: Option<String>,
    /// `verifier_version`: the version that built the pack.
    pub built_by: Option<String>,
    /// Whether `surface.json` says that something of the surface did not fit.
    pub surface_truncated: bool,
    /// `ci_binding`.
    pub ci_binding: Option<serde_json::Value>,
    /// The calls that a server recorded of itself; `None` where a proxy recorded.
    pub coverage: Option<Covered>,
    /// Stored contents that rules redacted before they were stored.
    pub redacted_contents: u64,
    /// `session.json`, where the pack has one that reads.
    pub session: Option<SessionDoc>,
}

/// The result of a verification.
///
/// Serializes as `assay.verify_report.v0.1` with the members `completeness_verdict`, `completeness_reasons`, `signer`,
/// `unmet`, `errors_omitted`, `session`, `event_count` and `exit_code` added (the schema admits additional members).
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// Every stage, in order.
    pub stages: Vec<StageReport>,
    /// Findings, at most [`MAX_FINDINGS`](super::finding::MAX_FINDINGS).
    pub errors: Vec<Finding>,
    /// Number of findings that are not listed.
    pub errors_omitted: u64,
    /// Worth saying, no finding.
    pub warnings: Vec<String>,
    /// Verdict of the integrity channel.
    pub integrity: Integrity,
    /// Verdict of the completeness channel.
    pub completeness: Completeness,
    /// Why it is not [`Completeness::Complete`], one reason each.
    pub completeness_reasons: Vec<String>,
    /// It is incomplete for no other reason than that the proxy was killed: what a reader may rely on.
    pub crashed: Option<&'static str>,
    /// Verdict of the claims channel.
    pub claims: Claims,
    /// The claims one by one, when cards were evaluated.
    pub claim_results: Option<ClaimSetResult>,
    /// Verdict of the signer channel.
    pub signer: Signer,
    /// The anchor channel: what others have signed of the pack.
    pub anchor: AnchorReport,
    /// Demands of the caller that an authentic pack does not meet.
    pub unmet: Vec<String>,
    /// What the pack says about itself.
    pub facts: PackFacts,
    /// What the verifier's memory says of the session; `None` without one, or where nothing can be said.
    pub memory: Option<Memory>,
    /// When it was verified.
    pub verified_at: WallTime,
}

impl VerifyReport {
    /// The exit code: 2 TAMPERED, UNTRUSTED or another pack than the one that is remembered or that witnesses signed, 3 UNSUPPORTED, 1 authentic with an unmet demand, else 0.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let is_refuted = self.integrity == Integrity::Tampered || self.signer.verdict == SignerVerdict::Untrusted;
        if is_refuted || self.memory == Some(Memory::Fork) || self.anchor.is_contradicted() {
            Exit::Failed
        } else if self.integrity == Integrity::Unsupported {
            Exit::BadInput
        } else if self.unmet.is_empty() {
            Exit::Ok
        } else {
            Exit::Violation
        }
    }

    /// Whether the evidence is what was signed.
    #[must_use]
    pub fn authentic(&self) -> bool {
        self.integrity == Integrity::Pass
    }

    /// Whether the signature was checked, and holds.
    #[must_use]
    pub fn signature_holds(&self) -> bool {
        self.stage(Stage::VerifySignature).is_some_and(|s| s.status == StageStatus::Ok)
    }

    /// What needs a later assay, if something does: which file, its version, and the one that is read.
    #[must_use]
    pub fn too_new(&self) -> Option<String> {
        let newer = self.errors.iter().filter(|f| f.code == VERSION_UNSUPPORTED);
        let said = newer.map(|f| {
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            format!("{} is of version {}, this assay reads {}", text(&f.file), text(&f.found), text(&f.expected))
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// The report of one stage.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<&StageReport> {
        self.stages.iter().find(|s| s.stage == stage)
    }
}

/// A stage's counts, from pairs.
#[must_use]
pub fn counts(pairs: &[(&str, u64)]) -> serde_json::Map<String, serde_json::Value> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect()
}
