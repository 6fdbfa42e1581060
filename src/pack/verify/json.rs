//! The report as JSON: assay-ai's `assay.verify_report.v0.1` with our channels beside its own.

use super::{
    report::VerifyReport,
    words::{Claims, Integrity, SignerVerdict, StageStatus},
};
use crate::model::{
    RECORDER_VERSION,
    pack::{MANIFEST, RECEIPTS},
    sha256_hex,
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// `schema_version` of the document.
pub const SCHEMA_VERSION: &str = "assay.verify_report.v0.1";
/// `policy_id` of the document.
pub const POLICY_ID: &str = "assay.verify_policy.v0.1";

impl Serialize for VerifyReport {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        document(self).map_err(serde::ser::Error::custom)?.serialize(s)
    }
}

/// The overall word, the channel that decided it, and why.
fn overall(r: &VerifyReport, trust: &str) -> (&'static str, Option<&'static str>, String) {
    if r.integrity == Integrity::Tampered {
        ("TAMPERED", Some("integrity"), "integrity_verdict=TAMPERED".into())
    } else if r.signer.verdict == SignerVerdict::Untrusted {
        ("UNTRUSTED", Some("trust"), "trust_verdict=UNTRUSTED".into())
    } else if r.integrity == Integrity::Unsupported {
        ("UNSUPPORTED", Some("integrity"), "integrity_verdict=UNSUPPORTED".into())
    } else if r.claims == Claims::HonestFail {
        ("HONEST_FAIL", Some("claim"), "claim_verdict=HONEST_FAIL".into())
    } else {
        let mut left = Vec::new();
        if r.claims == Claims::NotEvaluated {
            left.push("claim");
        }
        left.push("replay");
        if trust == "NOT_EVALUATED" {
            left.push("trust");
        }
        ("PASS", None, format!("required_channels_passed; optional_channels_not_evaluated={}", left.join(",")))
    }
}

/// The document.
///
/// # Errors
/// A part that JSON cannot hold; there is none.
fn document(r: &VerifyReport) -> Result<Value, serde_json::Error> {
    let trust = match r.signer.verdict {
        SignerVerdict::Pinned => "PASS",
        SignerVerdict::Untrusted => "UNTRUSTED",
        SignerVerdict::Unpinned => "NOT_EVALUATED",
    };
    let (word, blocking, reason) = overall(r, trust);
    let mut channels = vec!["integrity"];
    if r.claims != Claims::NotEvaluated {
        channels.push("claim");
    }
    if trust != "NOT_EVALUATED" {
        channels.push("trust");
    }
    let f = &r.facts;
    let id = json!([f.pack_root_sha256, r.verified_at, r.integrity, r.claims, trust, RECORDER_VERSION]);
    let mut checks: Vec<Value> = r
        .stages
        .iter()
        .map(|s| {
            let verdict = match s.status {
                StageStatus::Ok => "PASS",
                StageStatus::Fail => "FAIL",
                StageStatus::Skipped => "NOT_EVALUATED",
            };
            json!({"name": s.stage, "verdict": verdict, "detail": s.reason})
        })
        .collect();
    checks.push(json!({"name": "claim_check", "verdict": r.claims}));
    checks.push(json!({"name": "replay", "verdict": "NOT_RUN"}));
    checks.push(json!({"name": "trust", "verdict": trust}));
    let mut doc = json!({
        "schema_version": SCHEMA_VERSION,
        "report_id": format!("vr_{}", &sha256_hex(id.to_string().as_bytes())[..20]),
        "pack_id": f.pack_id,
        "run_id": f.run_id,
        "pack_root_sha256": f.pack_root_sha256,
        "pack_manifest_sha256": f.pack_manifest_sha256,
        "integrity_verdict": r.integrity,
        "completeness_verdict": r.completeness,
        "completeness_reasons": r.completeness_reasons,
        "claim_verdict": r.claims,
        "replay_verdict": "NOT_RUN",
        "trust_verdict": trust,
        "signer_verdict": r.signer.verdict,
        "signer": r.signer,
        "evaluation_profile": format!("{}_required", channels.join("_")),
        "required_channels": channels,
        "overall_verdict": word,
        "overall_reason": reason,
        "blocking_channel": blocking,
        "unmet": r.unmet,
        "exit_code": r.exit().code(),
        "verified_at": r.verified_at,
        "verifier": {"name": "assay", "version": RECORDER_VERSION, "policy_id": POLICY_ID},
        "expectations": {
            "policy_id": POLICY_ID,
            "policy_sha256": f.policy_hash,
            "claim_set_id": f.claim_set_id,
            "claim_set_hash": f.claim_set_hash,
        },
        "verification_inputs_sha256": f.pack_root_sha256,
        "verifier_config_sha256": null,
        "provenance": f.ci_binding.clone().unwrap_or_else(|| json!({})),
        "evidence_refs": [
            {"kind": "pack_manifest", "path": MANIFEST, "sha256": f.pack_manifest_sha256},
            {"kind": "receipt_pack", "path": RECEIPTS, "sha256": f.receipt_pack_sha256},
        ],
        "checks": checks,
        "summary": summary(r),
        "passed": r.integrity == Integrity::Pass,
        "errors": r.errors,
        "errors_omitted": r.errors_omitted,
        "warnings": r.warnings,
        "receipt_count": f.receipt_count,
        "event_count": f.event_count,
        "head_hash": f.head_hash,
        "stages": r.stages,
        "session": f.session,
    });
    if let (Some(claims), Some(members)) = (&r.claim_results, doc.as_object_mut()) {
        members.insert("claim_verification".into(), serde_json::to_value(claims)?);
    }
    Ok(doc)
}

fn summary(r: &VerifyReport) -> Value {
    json!({
        "integrity": match r.integrity {
            Integrity::Pass => "Manifest, file hashes, signature and hash chain verified.",
            Integrity::Tampered => "Evidence object integrity failed.",
            Integrity::Unsupported if r.signature_holds() => {
                "Signature and file hashes verified; a later version wrote part of the pack, which was not checked."
            }
            Integrity::Unsupported => "A later version wrote the manifest: nothing was checked, the signature neither.",
        },
        "claim": match r.claims {
            Claims::Pass => "Evidence satisfied the evaluated claim set.",
            Claims::HonestFail => "Evidence was intact but did not satisfy the claim set.",
            Claims::NotEvaluated => "No claim set was evaluated.",
        },
        "replay": "Replay was not run.",
        "trust": match r.signer.verdict {
            SignerVerdict::Pinned => "The signing key is one that was asked for.",
            SignerVerdict::Unpinned => "The pack verifies only against the key inside it; nobody vouched for that key.",
            SignerVerdict::Untrusted => "The signing key is none of those that were asked for.",
        },
    })
}
