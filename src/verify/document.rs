//! The one document `assay.verify_report.v0.1`: a builder puts it into a pack, and a verification is printed as it.
//!
//! The members are assay-ai's, in its order. Members that only one of the two has come after them: its schema admits
//! more.

use super::words::{Claims, Integrity, SignerVerdict};
use crate::model::{pack::REPORT_VERSION, sha256_hex};
use serde::Serialize;
use serde_json::Value;

/// `policy_id` of the document.
const POLICY_ID: &str = "assay.verify_policy.v0.1";
/// No document says that evidence was replayed.
pub const NOT_RUN: &str = "NOT_RUN";

/// The verdicts that decide what the document says overall.
#[derive(Debug, Clone, Copy)]
pub struct Verdicts {
    /// Verdict of the integrity channel.
    pub integrity: Integrity,
    /// Verdict of the claims channel.
    pub claims: Claims,
    /// Verdict of the signer channel.
    pub signer: SignerVerdict,
}

impl Verdicts {
    /// assay-ai's word for the signer channel.
    #[must_use]
    pub const fn trust(self) -> &'static str {
        match self.signer {
            SignerVerdict::Pinned => "PASS",
            SignerVerdict::Untrusted => "UNTRUSTED",
            SignerVerdict::Unpinned => "NOT_EVALUATED",
        }
    }

    fn is_trust_evaluated(self) -> bool {
        self.signer != SignerVerdict::Unpinned
    }

    /// The channels that had to pass.
    fn required(self) -> Vec<&'static str> {
        let claim = (self.claims != Claims::NotEvaluated).then_some("claim");
        let trust = self.is_trust_evaluated().then_some("trust");
        ["integrity"].into_iter().chain(claim).chain(trust).collect()
    }

    /// The overall word, the channel that decided it, and why.
    fn overall(self) -> (&'static str, Option<&'static str>, String) {
        if self.integrity == Integrity::Tampered {
            ("TAMPERED", Some("integrity"), "integrity_verdict=TAMPERED".into())
        } else if self.signer == SignerVerdict::Untrusted {
            ("UNTRUSTED", Some("trust"), "trust_verdict=UNTRUSTED".into())
        } else if self.integrity == Integrity::Unsupported {
            ("UNSUPPORTED", Some("integrity"), "integrity_verdict=UNSUPPORTED".into())
        } else if self.claims == Claims::HonestFail {
            ("HONEST_FAIL", Some("claim"), "claim_verdict=HONEST_FAIL".into())
        } else {
            let claim = (self.claims == Claims::NotEvaluated).then_some("claim");
            let trust = (!self.is_trust_evaluated()).then_some("trust");
            let left: Vec<_> = claim.into_iter().chain(["replay"]).chain(trust).collect();
            ("PASS", None, format!("required_channels_passed; optional_channels_not_evaluated={}", left.join(",")))
        }
    }
}

/// What the pack says of itself, as far as it is known.
#[derive(Debug, Default)]
pub struct Subject<'a> {
    /// `pack_id`.
    pub pack_id: Option<&'a str>,
    /// `run_id`.
    pub run_id: Option<&'a str>,
    /// `pack_root_sha256`.
    pub root: Option<&'a str>,
    /// SHA-256 of the bytes of the manifest.
    pub manifest_sha256: Option<&'a str>,
    /// `policy_hash`.
    pub policy_hash: Option<&'a str>,
    /// `claim_set_id`.
    pub claim_set_id: Option<&'a str>,
    /// `claim_set_hash`.
    pub claim_set_hash: Option<&'a str>,
    /// The CI run that built it.
    pub provenance: Option<Value>,
    /// Number of receipts in the pack.
    pub receipt_count: u64,
    /// Hash of the last one.
    pub head_hash: Option<&'a str>,
}

/// A file that was looked at.
#[derive(Debug, Serialize)]
pub struct EvidenceRef<'a> {
    /// `pack_manifest`, `receipt_pack` or `other`.
    pub kind: &'static str,
    /// Its name in the pack.
    pub path: &'a str,
    /// SHA-256 of its bytes.
    pub sha256: Option<&'a str>,
}

/// Something that was checked.
#[derive(Debug, Serialize)]
pub struct Check<'a> {
    name: &'a str,
    verdict: &'a str,
    /// Left out, `null`, or a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[allow(clippy::option_option)]
    detail: Option<Option<&'a str>>,
}

impl<'a> Check<'a> {
    /// A check and its verdict alone.
    #[must_use]
    pub const fn new(name: &'a str, verdict: &'a str) -> Self {
        Self { name, verdict, detail: None }
    }

    /// One that has a member for more to say.
    #[must_use]
    pub const fn with(name: &'a str, verdict: &'a str, detail: Option<&'a str>) -> Self {
        Self { name, verdict, detail: Some(detail) }
    }
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
    policy_sha256: Option<&'a str>,
    claim_set_id: Option<&'a str>,
    claim_set_hash: Option<&'a str>,
}

#[derive(Serialize)]
struct Summary<'a> {
    integrity: &'a str,
    claim: &'a str,
    replay: &'a str,
    trust: &'a str,
}

/// What a builder and a verification say differently.
#[derive(Debug)]
pub struct Parts<'a, F, O> {
    /// Name and version of the program.
    pub verifier: (&'a str, &'a str),
    /// What `report_id` is the hash of.
    pub id: Vec<u8>,
    /// When the report was made.
    pub at: &'a str,
    /// What the pack says of itself.
    pub subject: Subject<'a>,
    /// The verdicts of the four channels.
    pub verdicts: Verdicts,
    /// Files that were looked at.
    pub evidence: Vec<EvidenceRef<'a>>,
    /// What was checked, but for claims, replay and trust.
    pub checks: Vec<Check<'a>>,
    /// The integrity channel in words.
    pub integrity: &'a str,
    /// The trust channel in words.
    pub trust: &'a str,
    /// What was found wrong.
    pub errors: &'a [F],
    /// What is worth knowing, but not wrong.
    pub warnings: &'a [String],
    /// Members that only this document has.
    pub own: O,
}

#[allow(clippy::struct_field_names)]
#[derive(Serialize)]
struct Document<'a, F, O> {
    schema_version: &'static str,
    report_id: String,
    pack_id: Option<&'a str>,
    run_id: Option<&'a str>,
    pack_root_sha256: Option<&'a str>,
    pack_manifest_sha256: Option<&'a str>,
    integrity_verdict: Integrity,
    claim_verdict: Claims,
    replay_verdict: &'static str,
    trust_verdict: &'static str,
    evaluation_profile: String,
    required_channels: Vec<&'static str>,
    overall_verdict: &'static str,
    overall_reason: String,
    blocking_channel: Option<&'static str>,
    verified_at: &'a str,
    verifier: Verifier<'a>,
    expectations: Expectations<'a>,
    verification_inputs_sha256: Option<&'a str>,
    verifier_config_sha256: (),
    provenance: Value,
    evidence_refs: Vec<EvidenceRef<'a>>,
    checks: Vec<Check<'a>>,
    summary: Summary<'a>,
    errors: &'a [F],
    warnings: &'a [String],
    passed: bool,
    receipt_count: u64,
    head_hash: Option<&'a str>,
    #[serde(flatten)]
    own: O,
}

/// The document of these parts.
pub fn document<F: Serialize, O: Serialize>(parts: Parts<'_, F, O>) -> impl Serialize {
    let Parts { subject, verdicts, mut checks, .. } = parts;
    let (overall_verdict, blocking_channel, overall_reason) = verdicts.overall();
    let (required_channels, trust) = (verdicts.required(), verdicts.trust());
    checks.extend([
        Check::new("claim_check", verdicts.claims.as_str()),
        Check::new("replay", NOT_RUN),
        Check::new("trust", trust),
    ]);
    Document {
        schema_version: REPORT_VERSION,
        report_id: format!("vr_{}", &sha256_hex(&parts.id)[..20]),
        pack_id: subject.pack_id,
        run_id: subject.run_id,
        pack_root_sha256: subject.root,
        pack_manifest_sha256: subject.manifest_sha256,
        integrity_verdict: verdicts.integrity,
        claim_verdict: verdicts.claims,
        replay_verdict: NOT_RUN,
        trust_verdict: trust,
        evaluation_profile: format!("{}_required", required_channels.join("_")),
        required_channels,
        overall_verdict,
        overall_reason,
        blocking_channel,
        verified_at: parts.at,
        verifier: Verifier { name: parts.verifier.0, version: parts.verifier.1, policy_id: POLICY_ID },
        expectations: Expectations {
            policy_id: POLICY_ID,
            policy_sha256: subject.policy_hash,
            claim_set_id: subject.claim_set_id,
            claim_set_hash: subject.claim_set_hash,
        },
        verification_inputs_sha256: subject.root,
        verifier_config_sha256: (),
        provenance: subject.provenance.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
        evidence_refs: parts.evidence,
        checks,
        summary: Summary {
            integrity: parts.integrity,
            claim: match verdicts.claims {
                Claims::Pass => "Evidence satisfied the evaluated claim set.",
                Claims::HonestFail => "Evidence was intact but did not satisfy the claim set.",
                Claims::NotEvaluated => "No claim set was evaluated.",
            },
            replay: "Replay was not run.",
            trust: parts.trust,
        },
        errors: parts.errors,
        warnings: parts.warnings,
        passed: verdicts.integrity == Integrity::Pass,
        receipt_count: subject.receipt_count,
        head_hash: subject.head_hash,
        own: parts.own,
    }
}
