//! The signed manifest: `pack_manifest.json` with its attestation, in assay's pack contract (docs/formats.md, "Proof pack"), and the names of
//! the files of a pack.
//!
//! Members, their order and the bytes of the file have one owner, here: the builder writes them, and the verifier holds
//! a pack against the same types and the same [`pretty`].

// A member that is absent is not one that is null: packs of other builders may leave out what we write as `null`.
#![allow(clippy::option_option)]

use crate::canon;
use serde::{Deserialize, Deserializer, Serialize};

/// `pack_version` and `pack_format_version` of assay's pack contract.
pub const PACK_VERSION: &str = "0.1.0";
/// `manifest_version`.
pub const MANIFEST_VERSION: &str = "1.0.0";
/// `fingerprint_version` of the attestation.
pub const FINGERPRINT_VERSION: u32 = 1;
/// What `signature_scope` says is signed.
pub const SIGNATURE_SCOPE: &str = "JCS(pack_manifest_excluding_signature_and_pack_root_sha256)";
/// The hash of this text is the policy hash if there is no policy.
pub const DEFAULT_POLICY: &[u8] = b"default-policy-v0";
/// The hash of this is the `head_hash` of a pack without receipts.
pub const EMPTY_HEAD: &[u8] = b"empty";
/// Id of the claim set of a pack whose builder evaluated no claims, and the text whose hash is then its
/// `claim_set_hash`.
pub const NO_CLAIMS: &str = "none";

/// `schema_version` of `verify_report.json`, and of the reports that are printed.
pub const REPORT_VERSION: &str = "assay.verify_report.v0.1";
/// Findings that `verify_report.json` lists; the rest is counted.
pub const REPORT_FINDINGS: usize = 100;

/// Name of the manifest in a pack.
pub const MANIFEST: &str = "pack_manifest.json";
/// Name of the detached signature.
pub const SIGNATURE: &str = "pack_signature.sig";
/// Name of the receipts.
pub const RECEIPTS: &str = "receipt_pack.jsonl";
/// Name of the builder's report.
pub const REPORT: &str = "verify_report.json";
/// Name of the builder's transcript.
pub const TRANSCRIPT: &str = "verify_transcript.md";
/// Name of the audit events: only in packs of this recorder.
pub const AUDIT_LOG: &str = "audit_log.jsonl";
/// Name of the checkpoints: only in packs of this recorder.
pub const CHECKPOINTS: &str = "checkpoints.jsonl";
/// Name of the session document: only in packs of this recorder.
pub const SESSION: &str = "session.json";
/// Name of the policy in force: only in packs of this recorder.
pub const POLICY: &str = "policy.yaml";
/// Name of the server's surface: only in packs of this recorder.
pub const SURFACE: &str = "surface.json";
/// Name of the decisions about the server's surface: only in packs of sessions that were compared with some.
pub const SURFACE_APPROVALS: &str = "surface_approvals.jsonl";
/// Name of what they come to, with the definitions.
pub const SURFACE_APPROVED: &str = "surface_approved.json";
/// What may be beside the listed files without being one.
pub const UNSIGNED: &str = "_unsigned";
/// What others have signed of the pack, in [`UNSIGNED`].
pub const ANCHORS: &str = "anchors";
/// Files that every pack lists under `files`.
pub const KERNEL: [&str; 3] = [RECEIPTS, REPORT, TRANSCRIPT];

/// File name of the snapshot of a policy that came into force during the session; with or without `sha256:`.
#[must_use]
pub fn policy_file(hash: &str) -> String {
    format!("policy_sha256_{}.yaml", hash.trim_start_matches("sha256:"))
}

/// The hash, in hex, that a file's name says it has, if it is named as [`policy_file`] does.
#[must_use]
pub fn policy_hash(file: &str) -> Option<&str> {
    file.strip_prefix("policy_sha256_")?.strip_suffix(".yaml")
}

/// An optional member that is there, be it `null`.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// The CI run that a pack was built in; members and their order are assay-ai's, absent ones are not written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CiBinding {
    /// `github_actions`.
    pub provider: String,
    /// 40 lower-case hex digits.
    pub commit_sha: String,
    /// The repository, as `owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub repo: Option<String>,
    /// The Git ref that it built.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub r#ref: Option<String>,
    /// The number of the run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub run_id: Option<String>,
    /// The number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub run_attempt: Option<String>,
    /// The workflow file and its ref, as the CI system names them.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub workflow_ref: Option<String>,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub actor: Option<String>,
}

/// What the signer says about the evidence. Members and their order are assay-ai's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// [`PACK_VERSION`].
    pub pack_format_version: String,
    /// [`FINGERPRINT_VERSION`].
    pub fingerprint_version: u64,
    /// Id of the pack.
    pub pack_id: String,
    /// Id of the session.
    pub run_id: String,
    /// `manual`: no test suite was run.
    pub suite_id: String,
    /// SHA-256 of the suite id.
    pub suite_hash: String,
    /// Version of the program that checked the receipts before they were signed.
    pub verifier_version: String,
    /// `jcs-rfc8785`.
    pub canon_version: String,
    /// Module that canonicalizes.
    pub canon_impl: String,
    /// Version of that module.
    pub canon_impl_version: String,
    /// SHA-256 of the policy file, or of [`DEFAULT_POLICY`].
    pub policy_hash: String,
    /// `none`.
    pub claim_set_id: String,
    /// SHA-256 of the claim set id.
    pub claim_set_hash: String,
    /// `PASS` or `FAIL`.
    pub receipt_integrity: String,
    /// `PASS`, `FAIL` or `N/A`.
    pub claim_check: String,
    /// Hash over claim results.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub discrepancy_fingerprint: Option<Option<String>>,
    /// `L0`.
    pub assurance_level: String,
    /// `signed-pack`.
    pub proof_tier: String,
    /// `shadow` or `enforced`.
    pub mode: String,
    /// SHA-256 of the last receipt's canonical form.
    pub head_hash: String,
    /// `last-receipt-digest-v0`.
    pub head_hash_algorithm: String,
    /// `local_clock`.
    pub time_authority: String,
    /// Receipts in the pack.
    pub n_receipts: u64,
    /// Time of the earliest receipt.
    pub timestamp_start: String,
    /// Time of the latest receipt.
    pub timestamp_end: String,
    /// The CI run that built the pack, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub ci_binding: Option<Option<CiBinding>>,
    /// When the pack expires, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub valid_until: Option<Option<String>>,
    /// Id of the pack that replaces this one, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub superseded_by: Option<Option<String>>,
}

/// A file of the pack that the manifest covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Path of the file, relative to the pack directory.
    pub path: String,
    /// SHA-256 of the file, in lower-case hex.
    pub sha256: String,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// `pack_manifest.json`; members and their order are assay-ai's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Id of the pack.
    pub pack_id: String,
    /// [`PACK_VERSION`].
    pub pack_version: String,
    /// [`MANIFEST_VERSION`].
    pub manifest_version: String,
    /// `sha256`.
    pub hash_alg: String,
    /// What the signer says about the pack.
    pub attestation: Attestation,
    /// SHA-256 over its RFC 8785 form.
    pub attestation_sha256: String,
    /// As in the attestation.
    pub suite_hash: String,
    /// As in the attestation.
    pub claim_set_id: String,
    /// As in the attestation.
    pub claim_set_hash: String,
    /// Not written by us; a pack of assay-ai may have it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub redaction_policy_sha256: Option<String>,
    /// Receipts in the pack.
    pub receipt_count_expected: u64,
    /// Files whose bytes are covered.
    pub files: Vec<FileEntry>,
    /// Files that must be there.
    pub expected_files: Vec<String>,
    /// The signer's name, as the signer states it.
    pub signer_id: String,
    /// Base64 of the raw Ed25519 public key.
    pub signer_pubkey: String,
    /// SHA-256 of the raw public key.
    pub signer_pubkey_sha256: String,
    /// `ed25519`.
    pub signature_alg: String,
    /// [`SIGNATURE_SCOPE`].
    pub signature_scope: String,
    /// Base64 of the signature; empty while the manifest is not signed.
    pub signature: String,
    /// [`Manifest::attestation_sha256`] again; empty while the manifest is not signed.
    pub pack_root_sha256: String,
}

impl Manifest {
    /// The entry of a listed file.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<&FileEntry> {
        self.files.iter().find(|f| f.path == name)
    }

    /// Whether the snapshot of a policy is listed, by its `sha256:` hash. That the file has that hash is looked at where
    /// files are.
    #[must_use]
    pub fn has_policy(&self, hash: &str) -> bool {
        let Some(hex) = hash.strip_prefix("sha256:") else { return false };
        let named = policy_file(hash);
        self.files.iter().any(|f| (f.path == POLICY || f.path == named) && f.sha256 == hex)
    }

    /// Whether this recorder built it: then it has a chain and a session document, and one form.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.file(AUDIT_LOG).is_some() || self.file(SESSION).is_some()
    }

    /// What the signature covers: RFC 8785 of the manifest without `signature` and `pack_root_sha256`.
    ///
    /// # Errors
    /// As `serde_json`.
    pub fn signed_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        if let Some(members) = value.as_object_mut() {
            members.remove("signature");
            members.remove("pack_root_sha256");
        }
        canonical(&value)
    }
}

/// The RFC 8785 form of a value. A `Value` has its own order of members in a program that turns on `preserve_order`.
///
/// # Errors
/// As `serde_json`, and for what has no such form.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    canon::to_vec(value).map_err(serde::ser::Error::custom)
}

/// JSON as Python's `json.dumps(value, indent=2)` prints it: two blanks, members in order, ASCII only.
///
/// # Errors
/// As `serde_json`.
pub fn pretty<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    use std::fmt::Write as _;
    let text = serde_json::to_string_pretty(value)?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ordered;
    impl Serialize for Ordered {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeMap as _;
            let mut map = s.serialize_map(None)?;
            map.serialize_entry("b", &serde_json::json!([1, {}]))?;
            map.serialize_entry("a", &serde_json::json!([]))?;
            map.serialize_entry("é😀\u{7f}\n", &())?;
            map.end()
        }
    }

    #[test]
    fn pretty_is_what_python_prints() {
        // python3 -c 'import json; print(json.dumps({"b":[1,{}],"a":[],"é😀\x7f\n":None,"t":True}, indent=2))'
        let python =
            "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": [],\n  \"\\u00e9\\ud83d\\ude00\\u007f\\n\": null\n}";
        assert_eq!(String::from_utf8(pretty(&Ordered).unwrap()).unwrap(), python);
    }
}
