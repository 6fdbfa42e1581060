//! What a verification found: stages, findings, four verdict channels, and the exit code they lead to (FORMATS §7, §11).

use super::unread::VERSION_UNSUPPORTED;
use crate::{
    error::Exit,
    model::{SessionDoc, WallTime},
    pack::claims::ClaimSetResult,
};
use serde::{Serialize, Serializer};
use serde_json::json;

/// How many findings a report keeps; the rest is counted in [`VerifyReport::errors_omitted`].
pub const MAX_FINDINGS: usize = 200;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// The word in reports.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words!(
    /// The stages of a verification, in the order in which they run.
    Stage {
        /// `pack_manifest.json` is strict JSON of exactly the manifest's schema.
        ValidateSchema = "validate_schema",
        /// Every name stays in the pack and is an ordinary file; nothing unlisted lies beside them.
        ValidatePaths = "validate_paths",
        /// Every listed file has the listed SHA-256 and length.
        ValidateFileHashes = "validate_file_hashes",
        /// The receipts parse, are canonical and unique, and give the attested counts and head hash.
        ValidateReceipts = "validate_receipts",
        /// The attestation hashes to `attestation_sha256` and agrees with the manifest.
        ValidateAttestation = "validate_attestation",
        /// The Ed25519 signature holds over the manifest, and the detached one is the same.
        VerifySignature = "verify_signature",
        /// `pack_root_sha256` is `attestation_sha256`.
        CheckD12Invariant = "check_d12_invariant",
        /// The audit events form one unbroken chain.
        VerifyChain = "verify_chain",
        /// Every receipt is bound by one event and says the same.
        MatchReceiptsToChain = "match_receipts_to_chain",
        /// Whether the session was recorded from start to end.
        SessionCompleteness = "session_completeness",
        /// Whether the key is one that the caller trusts.
        SignerTrust = "signer_trust",
    }
);

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 11] = [
        Self::ValidateSchema,
        Self::ValidatePaths,
        Self::ValidateFileHashes,
        Self::ValidateReceipts,
        Self::ValidateAttestation,
        Self::VerifySignature,
        Self::CheckD12Invariant,
        Self::VerifyChain,
        Self::MatchReceiptsToChain,
        Self::SessionCompleteness,
        Self::SignerTrust,
    ];
}

words!(
    /// How a stage ended.
    StageStatus {
        /// Nothing to report.
        Ok = "ok",
        /// At least one finding, or a demand of this stage that is not met.
        Fail = "fail",
        /// Not applicable, or not reached; `reason` says why.
        Skipped = "skipped",
    }
);

words!(
    /// Are these the bytes that were signed, and do they agree with each other?
    Integrity {
        /// Yes.
        Pass = "PASS",
        /// No.
        Tampered = "TAMPERED",
        /// It cannot be said: a later version wrote part of the pack. Signature and hashes hold, where the manifest reads.
        Unsupported = "UNSUPPORTED",
    }
);

words!(
    /// Was the whole session recorded?
    Completeness {
        /// From start to end, every call with its receipt.
        Complete = "COMPLETE",
        /// It ended, but something is missing; the pack says what.
        Incomplete = "INCOMPLETE",
        /// The recording stops without an end.
        Unterminated = "UNTERMINATED",
        /// The pack has no `session.json` and `audit_log.jsonl`: it does not say.
        NotEvaluated = "NOT_EVALUATED",
    }
);

words!(
    /// Does the evidence show what the claim cards demand?
    Claims {
        /// Every critical claim holds.
        Pass = "PASS",
        /// The evidence is authentic and does not satisfy a claim.
        HonestFail = "HONEST_FAIL",
        /// No card was asked for, or the evidence does not hold.
        NotEvaluated = "NOT_EVALUATED",
    }
);

words!(
    /// Whose key signed?
    SignerVerdict {
        /// One that the caller named.
        Pinned = "PINNED",
        /// The one that lies in the pack; nobody vouched for it.
        Unpinned = "UNPINNED",
        /// None of those that the caller named.
        Untrusted = "UNTRUSTED",
    }
);

/// The key that a pack names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signer {
    /// The verdict.
    pub verdict: SignerVerdict,
    /// SHA-256 of the raw 32-byte Ed25519 public key, hex; `null` when the pack has no readable key.
    pub fingerprint: Option<String>,
    /// The name that the pack gives the key; self-reported.
    pub signer_id: Option<String>,
}

/// One stage of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageReport {
    /// Which.
    pub stage: Stage,
    /// How it ended.
    pub status: StageStatus,
    /// Code of its first finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// Its first finding, or why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Counts.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub detail: serde_json::Map<String, serde_json::Value>,
}

/// Something that is wrong with a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Error code, as assay-ai names them where it has one (`E_…`).
    pub code: &'static str,
    /// Stage that found it.
    pub stage: Stage,
    /// What is wrong; raw text that may hold parts of the pack: pass it through [`crate::text::visible`] for a terminal.
    pub message: String,
    /// File in the pack, or field of the manifest; assay-ai's name for it.
    #[serde(rename = "field", skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in that file, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Byte offset in that file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_id: Option<String>,
    /// Position of the receipt in the file, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_index: Option<u64>,
    /// What should stand there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl Finding {
    /// A finding without a place.
    pub fn new(code: &'static str, stage: Stage, message: impl Into<String>) -> Self {
        Self {
            code,
            stage,
            message: message.into(),
            file: None,
            line: None,
            offset: None,
            receipt_id: None,
            receipt_index: None,
            expected: None,
            found: None,
        }
    }

    /// Names the file or manifest field.
    #[must_use]
    pub fn file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Names the line (from 1) and where it begins in bytes.
    #[must_use]
    pub fn line(mut self, line: u64, offset: u64) -> Self {
        self.line = Some(line);
        self.offset = Some(offset);
        self
    }

    /// Names the receipt.
    #[must_use]
    pub fn receipt(mut self, index: u64, id: Option<String>) -> Self {
        self.receipt_index = Some(index);
        self.receipt_id = id;
        self
    }

    /// Both sides of a disagreement.
    #[must_use]
    #[allow(clippy::needless_pass_by_value)]
    pub fn sides(mut self, expected: impl ToString, found: impl ToString) -> Self {
        self.expected = Some(expected.to_string());
        self.found = Some(found.to_string());
        self
    }
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
    /// Findings, at most [`MAX_FINDINGS`].
    pub errors: Vec<Finding>,
    /// Findings beyond those.
    pub errors_omitted: u64,
    /// Worth saying, no finding.
    pub warnings: Vec<String>,
    /// Integrity channel.
    pub integrity: Integrity,
    /// Completeness channel.
    pub completeness: Completeness,
    /// Why it is not [`Completeness::Complete`], one reason each.
    pub completeness_reasons: Vec<String>,
    /// It is incomplete for no other reason than that the proxy was killed: what a reader may rely on.
    pub crashed: Option<&'static str>,
    /// Claims channel.
    pub claims: Claims,
    /// The claims one by one, when cards were evaluated.
    pub claim_results: Option<ClaimSetResult>,
    /// Signer channel.
    pub signer: Signer,
    /// Demands of the caller that an authentic pack does not meet.
    pub unmet: Vec<String>,
    /// What the pack says about itself.
    pub facts: PackFacts,
    /// When it was verified.
    pub verified_at: WallTime,
}

impl VerifyReport {
    /// The exit code (FORMATS §11): 2 TAMPERED or UNTRUSTED, 3 UNSUPPORTED, 1 authentic with an unmet demand, else 0.
    #[must_use]
    pub fn exit(&self) -> Exit {
        if self.integrity == Integrity::Tampered || self.signer.verdict == SignerVerdict::Untrusted {
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

impl Serialize for VerifyReport {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        super::json::document(self).map_err(serde::ser::Error::custom)?.serialize(s)
    }
}

/// A stage's counts, from pairs.
#[must_use]
pub fn counts(pairs: &[(&str, u64)]) -> serde_json::Map<String, serde_json::Value> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect()
}
