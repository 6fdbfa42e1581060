//! A verification as JSON: the document with our channels beside assay-ai's own.

use super::{
    anchor::{AnchorReport, AnchorVerdict},
    document::{Check, EvidenceRef, Parts, Subject, Verdicts, document},
    escrow::Covered,
    report::{Signer, StageReport, VerifyReport},
    words::{Completeness, Integrity, Memory, SignerVerdict, StageStatus},
};
use crate::{
    claims::ClaimSetResult,
    model::{
        RECORDER_VERSION, SessionDoc,
        pack::{MANIFEST, RECEIPTS},
    },
};
use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::json;

/// The members that assay-ai's document has not.
#[derive(Serialize)]
struct Own<'a> {
    completeness_verdict: Completeness,
    completeness_reasons: &'a [String],
    signer_verdict: SignerVerdict,
    signer: &'a Signer,
    unmet: &'a [String],
    exit_code: u8,
    errors_omitted: u64,
    event_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    anchor: Option<&'a AnchorReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<&'a Covered>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redacted_contents: Option<u64>,
    stages: &'a [StageReport],
    session: Option<&'a SessionDoc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_verification: Option<&'a ClaimSetResult>,
}

impl Serialize for VerifyReport {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let verdicts = Verdicts { integrity: self.integrity, claims: self.claims, signer: self.signer.verdict };
        let f = &self.facts;
        let at = self.verified_at.to_string();
        let id = json!([f.pack_root_sha256, at, self.integrity, self.claims, verdicts.trust(), RECORDER_VERSION]);
        let document = document(Parts {
            verifier: ("assay", RECORDER_VERSION),
            id: id.to_string().into_bytes(),
            at: &at,
            subject: Subject {
                pack_id: f.pack_id.as_deref(),
                run_id: f.run_id.as_deref(),
                root: f.pack_root_sha256.as_deref(),
                manifest_sha256: f.pack_manifest_sha256.as_deref(),
                policy_hash: f.policy_hash.as_deref(),
                claim_set_id: f.claim_set_id.as_deref(),
                claim_set_hash: f.claim_set_hash.as_deref(),
                provenance: f.ci_binding.clone(),
                receipt_count: f.receipt_count,
                head_hash: f.head_hash.as_deref(),
            },
            verdicts,
            evidence: vec![
                EvidenceRef { kind: "pack_manifest", path: MANIFEST, sha256: f.pack_manifest_sha256.as_deref() },
                EvidenceRef { kind: "receipt_pack", path: RECEIPTS, sha256: f.receipt_pack_sha256.as_deref() },
            ],
            checks: self.stages.iter().map(check).collect(),
            integrity: self.integrity_in_words(),
            trust: match self.signer.verdict {
                SignerVerdict::Pinned => "The signing key is one of the pinned keys.",
                SignerVerdict::Unpinned => "The pack verifies only against the key inside it; no key was pinned.",
                SignerVerdict::Untrusted => "The signing key is not one of the pinned keys.",
            },
            errors: &self.errors,
            warnings: &self.warnings,
            own: Own {
                completeness_verdict: self.completeness,
                completeness_reasons: &self.completeness_reasons,
                signer_verdict: self.signer.verdict,
                signer: &self.signer,
                unmet: &self.unmet,
                exit_code: self.exit().code(),
                errors_omitted: self.errors_omitted,
                event_count: f.event_count,
                anchor: Some(&self.anchor).filter(|a| a.present > 0 || a.verdict != AnchorVerdict::NotEvaluated),
                memory: self.memory,
                coverage: f.coverage.as_ref(),
                redacted_contents: Some(f.redacted_contents).filter(|n| *n > 0),
                stages: &self.stages,
                session: f.session.as_ref(),
                claim_verification: self.claim_results.as_ref(),
            },
        });
        // A value: its members are sorted, as those of every printed document.
        serde_json::to_value(document).map_err(S::Error::custom)?.serialize(s)
    }
}

impl VerifyReport {
    fn integrity_in_words(&self) -> &'static str {
        match self.integrity {
            Integrity::Pass => "Manifest, file hashes, signature and hash chain verified.",
            Integrity::Tampered => "Evidence object integrity failed.",
            Integrity::Unsupported if self.signature_holds() => {
                "Signature and file hashes verified; a later version wrote part of the pack, which was not checked."
            }
            Integrity::Unsupported => {
                "A later version wrote the manifest: nothing was checked, not even the signature."
            }
        }
    }
}

fn check(s: &StageReport) -> Check<'_> {
    let verdict = match s.status {
        StageStatus::Ok => "PASS",
        StageStatus::Fail => "FAIL",
        StageStatus::Skipped => "NOT_EVALUATED",
    };
    Check::with(s.stage.as_str(), verdict, s.reason.as_deref())
}
