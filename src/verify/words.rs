//! The words of a verification: its stages, its four verdict channels, and the exit code that follows from them (docs/verify.md).

use serde::Serialize;

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
        /// Every name stays in the pack and is an ordinary file; nothing unlisted is beside them.
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
        /// Every hash of the recorded surface is that of what is recorded.
        VerifySurface = "verify_surface",
        /// What was stated while the session was recorded holds of the events.
        VerifyCheckpoints = "verify_checkpoints",
        /// Whether the session was recorded from start to end.
        SessionCompleteness = "session_completeness",
        /// Whether the key is one that the caller trusts.
        SignerTrust = "signer_trust",
    }
);

impl Stage {
    /// All stages in order.
    pub const ALL: [Self; 13] = [
        Self::ValidateSchema,
        Self::ValidatePaths,
        Self::ValidateFileHashes,
        Self::ValidateReceipts,
        Self::ValidateAttestation,
        Self::VerifySignature,
        Self::CheckD12Invariant,
        Self::VerifyChain,
        Self::MatchReceiptsToChain,
        Self::VerifySurface,
        Self::VerifyCheckpoints,
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
        /// The pack is what was signed.
        Pass = "PASS",
        /// The pack is not what was signed.
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
    /// How the signer compares with those that the caller named.
    SignerVerdict {
        /// The signer is one that the caller named.
        Pinned = "PINNED",
        /// The key in the pack; the caller named no signer.
        Unpinned = "UNPINNED",
        /// The signer is not one that the caller named.
        Untrusted = "UNTRUSTED",
    }
);

/// What a verification comes to, as the exit code that says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Authentic, and every demand is met: 0.
    Ok,
    /// Authentic, and a demand is not met: 1.
    Violation,
    /// TAMPERED or UNTRUSTED: 2.
    Failed,
    /// There is no verdict: the pack is UNSUPPORTED, or the input is bad: 3.
    BadInput,
}

impl Exit {
    /// The exit code as a number.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Violation => 1,
            Self::Failed => 2,
            Self::BadInput => 3,
        }
    }
}
/// What the verifier's memory says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Memory {
    /// Nothing was asked.
    #[default]
    NotAsked,
    /// Nothing is remembered of this log, or session.
    FirstSeen,
    /// The ledger begins with what is remembered, or it is the pack that was seen.
    Consistent,
    /// It has less.
    Rollback,
    /// It has other lines, or another pack was seen.
    Fork,
}
