//! The signed manifest: `pack_manifest.json` with its attestation, in assay's pack contract (FORMATS §6).
//!
//! Members, their order and the bytes of the file have one owner, here: the builder writes them, and the verifier holds
//! a pack against the same types and the same [`pretty`].

// A member that is absent is not one that is null: packs of other builders may leave out what we write as `null`.
#![allow(clippy::option_option)]

use super::keys::Signer;
use crate::model::sha256_hex;
use base64::Engine as _;
use serde::{Deserialize, Deserializer, Serialize};

/// `pack_version` and `pack_format_version` of assay's pack contract.
pub const PACK_VERSION: &str = "0.1.0";
/// `manifest_version`.
pub const MANIFEST_VERSION: &str = "1.0.0";
/// `fingerprint_version` of the attestation.
pub const FINGERPRINT_VERSION: u32 = 1;
/// What `signature_scope` says is signed.
pub const SIGNATURE_SCOPE: &str = "JCS(pack_manifest_excluding_signature_and_pack_root_sha256)";
/// The hash of this stands for a policy where there is none.
pub const DEFAULT_POLICY: &[u8] = b"default-policy-v0";
/// The hash of this is the `head_hash` of a pack without receipts.
pub const EMPTY_HEAD: &[u8] = b"empty";

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
    /// `owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub repo: Option<String>,
    /// Git ref.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub r#ref: Option<String>,
    /// Run number.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub run_id: Option<String>,
    /// Attempt.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub run_attempt: Option<String>,
    /// Workflow file.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub workflow_ref: Option<String>,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub actor: Option<String>,
}

impl CiBinding {
    /// The binding that the process's environment describes.
    #[must_use]
    pub fn of_process() -> Option<Self> {
        Self::detect(|name| std::env::var(name).ok())
    }

    /// As assay-ai does it: GitHub Actions with a full commit hash, else none.
    pub fn detect(env: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let get = |name: &str| env(name).filter(|v| !v.is_empty());
        if get("GITHUB_ACTIONS").as_deref() != Some("true") {
            return None;
        }
        let commit_sha = get("GITHUB_SHA")?;
        let full = commit_sha.len() == 40 && commit_sha.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        full.then(|| Self {
            provider: "github_actions".to_owned(),
            commit_sha,
            repo: get("GITHUB_REPOSITORY"),
            r#ref: get("GITHUB_REF"),
            run_id: get("GITHUB_RUN_ID"),
            run_attempt: get("GITHUB_RUN_ATTEMPT"),
            workflow_ref: get("GITHUB_WORKFLOW_REF"),
            actor: get("GITHUB_ACTOR"),
        })
    }
}

/// What the signer says about the evidence. Members and their order are assay-ai's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// [`PACK_VERSION`].
    pub pack_format_version: String,
    /// [`FINGERPRINT_VERSION`].
    pub fingerprint_version: u64,
    /// The pack.
    pub pack_id: String,
    /// The session.
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
    /// Its version.
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
    /// Earliest receipt.
    pub timestamp_start: String,
    /// Latest receipt.
    pub timestamp_end: String,
    /// CI run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub ci_binding: Option<Option<CiBinding>>,
    /// Expiry.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub valid_until: Option<Option<String>>,
    /// Newer pack.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub superseded_by: Option<Option<String>>,
}

/// A file of the pack that the manifest covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Relative path.
    pub path: String,
    /// SHA-256, hex.
    pub sha256: String,
    /// Length.
    pub bytes: u64,
}

/// `pack_manifest.json`; members and their order are assay-ai's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The pack.
    pub pack_id: String,
    /// [`PACK_VERSION`].
    pub pack_version: String,
    /// [`MANIFEST_VERSION`].
    pub manifest_version: String,
    /// `sha256`.
    pub hash_alg: String,
    /// The attestation.
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
    /// Who signs.
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
    /// A manifest over `files`, signed. Gives the raw signature too.
    ///
    /// # Errors
    /// As `serde_json`; the types have no value that JSON cannot hold.
    pub fn signed(
        attestation: Attestation,
        files: Vec<FileEntry>,
        signer: &Signer,
    ) -> Result<(Self, [u8; 64]), serde_json::Error> {
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let attestation_sha256 = sha256_hex(&canonical(&attestation)?);
        // The order of assay-ai: its five kernel files, then what else there is.
        let (kernel, more) = files.split_at(files.len().min(3));
        let names = |files: &[FileEntry]| files.iter().map(|f| f.path.clone()).collect::<Vec<_>>();
        let own = vec!["pack_manifest.json".to_owned(), "pack_signature.sig".to_owned()];
        let mut manifest = Self {
            pack_id: attestation.pack_id.clone(),
            pack_version: PACK_VERSION.to_owned(),
            manifest_version: MANIFEST_VERSION.to_owned(),
            hash_alg: "sha256".to_owned(),
            suite_hash: attestation.suite_hash.clone(),
            claim_set_id: attestation.claim_set_id.clone(),
            claim_set_hash: attestation.claim_set_hash.clone(),
            redaction_policy_sha256: None,
            receipt_count_expected: attestation.n_receipts,
            expected_files: [names(kernel), own, names(more)].concat(),
            files,
            signer_id: signer.id().to_string(),
            signer_pubkey: encode(&signer.public()),
            signer_pubkey_sha256: signer.fingerprint(),
            signature_alg: "ed25519".to_owned(),
            signature_scope: SIGNATURE_SCOPE.to_owned(),
            signature: String::new(),
            pack_root_sha256: String::new(),
            attestation,
            attestation_sha256: attestation_sha256.clone(),
        };
        let signature = signer.sign(&manifest.signed_bytes()?);
        manifest.signature = encode(&signature);
        manifest.pack_root_sha256 = attestation_sha256;
        Ok((manifest, signature))
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
        serde_json::to_vec(&value)
    }
}

/// RFC 8785 of a type whose member names are ASCII and whose numbers are integers: sorted members are all it takes.
///
/// # Errors
/// As `serde_json`.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&serde_json::to_value(value)?)
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
    use crate::pack::keys::SignerId;

    fn attestation(actor: &str) -> Attestation {
        let text = |s: &str| s.to_owned();
        Attestation {
            pack_format_version: text(PACK_VERSION),
            fingerprint_version: 1,
            pack_id: text("pack_1"),
            run_id: text("mcp_1"),
            suite_id: text("manual"),
            suite_hash: sha256_hex(b"manual"),
            verifier_version: text("1"),
            canon_version: text("jcs-rfc8785"),
            canon_impl: text("assay.canon"),
            canon_impl_version: text("1"),
            policy_hash: sha256_hex(DEFAULT_POLICY),
            claim_set_id: text("none"),
            claim_set_hash: sha256_hex(b"none"),
            receipt_integrity: text("PASS"),
            claim_check: text("N/A"),
            discrepancy_fingerprint: Some(None),
            assurance_level: text("L0"),
            proof_tier: text("signed-pack"),
            mode: text("shadow"),
            head_hash: sha256_hex(EMPTY_HEAD),
            head_hash_algorithm: text("last-receipt-digest-v0"),
            time_authority: text("local_clock"),
            n_receipts: 0,
            timestamp_start: text("2026-01-01T00:00:00.000Z"),
            timestamp_end: text("2026-01-01T00:00:00.000Z"),
            ci_binding: Some(CiBinding::detect(|name| match name {
                "GITHUB_ACTIONS" => Some(text("true")),
                "GITHUB_SHA" => Some("a".repeat(40)),
                "GITHUB_ACTOR" => Some(text(actor)),
                _ => None,
            })),
            valid_until: Some(None),
            superseded_by: Some(None),
        }
    }

    #[test]
    fn the_signature_covers_the_rfc_8785_form_whatever_the_strings_hold() {
        use ed25519_dalek::{Signature, VerifyingKey};
        let signer = Signer::from_seed(SignerId::parse("t").unwrap(), &[3; 32]);
        let file = |path: &str| FileEntry { path: path.to_owned(), sha256: sha256_hex(b""), bytes: 0 };
        let files = ["receipt_pack.jsonl", "verify_report.json", "verify_transcript.md", "audit_log.jsonl"].map(file);
        let actor = "Zoë \u{1}\u{8}\u{7f}\u{2028}\"\\/😀";
        let (manifest, signature) = Manifest::signed(attestation(actor), files.to_vec(), &signer).unwrap();
        let mut value = serde_json::to_value(&manifest).unwrap();
        let members = value.as_object_mut().unwrap();
        assert_eq!(members.remove("pack_root_sha256"), members.get("attestation_sha256").cloned());
        members.remove("signature");
        let signed = serde_jcs::to_string(&value).unwrap();
        assert_eq!(manifest.signed_bytes().unwrap(), signed.as_bytes());
        let key = VerifyingKey::from_bytes(&signer.public()).unwrap();
        key.verify_strict(signed.as_bytes(), &Signature::from_bytes(&signature)).unwrap();
        assert_eq!(manifest.expected_files[3..], ["pack_manifest.json", "pack_signature.sig", "audit_log.jsonl"]);
        let printed = pretty(&manifest).unwrap();
        assert!(printed.is_ascii());
        assert_eq!(
            serde_json::from_slice::<Manifest>(&printed)
                .unwrap()
                .attestation
                .ci_binding
                .unwrap()
                .unwrap()
                .actor
                .unwrap(),
            actor
        );
    }

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

    #[test]
    fn a_ci_run_is_bound_only_with_a_full_commit_hash() {
        let with = |sha: &'static str| {
            CiBinding::detect(move |n| match n {
                "GITHUB_ACTIONS" => Some("true".to_owned()),
                "GITHUB_SHA" => Some(sha.to_owned()),
                _ => None,
            })
        };
        assert!(with("0123456789abcdef0123456789abcdef01234567").is_some());
        for bad in ["", "abc", "0123456789ABCDEF0123456789abcdef01234567"] {
            assert!(with(bad).is_none(), "{bad}");
        }
        assert!(CiBinding::detect(|_| None).is_none());
    }
}
