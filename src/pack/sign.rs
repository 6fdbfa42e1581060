//! Signing: an attestation and the files that it covers become a manifest (docs/formats.md, "Manifest").

use super::keys::Signer;
use crate::model::{
    pack::{
        Attestation, FileEntry, KERNEL, MANIFEST, MANIFEST_VERSION, Manifest, PACK_VERSION, SIGNATURE, SIGNATURE_SCOPE,
        canonical,
    },
    sha256_hex,
};
use base64::Engine as _;
use std::io;

/// The signed manifest over `files`, and the raw signature.
///
/// # Errors
/// The key cannot sign; the types have no value that JSON cannot hold.
pub fn sign(attestation: Attestation, files: Vec<FileEntry>, signer: &Signer) -> io::Result<(Manifest, [u8; 64])> {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let attestation_sha256 = sha256_hex(&canonical(&attestation)?);
    // The order of assay-ai: its five kernel files, then what else there is.
    let (kernel, more) = files.split_at(files.len().min(KERNEL.len()));
    let names = |files: &[FileEntry]| files.iter().map(|f| f.path.clone()).collect::<Vec<_>>();
    let own = [MANIFEST, SIGNATURE].map(str::to_owned).to_vec();
    let mut manifest = Manifest {
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
    let signature = signer.sign(&manifest.signed_bytes()?)?;
    manifest.signature = encode(&signature);
    manifest.pack_root_sha256 = attestation_sha256;
    Ok((manifest, signature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::pack::{AUDIT_LOG, DEFAULT_POLICY, EMPTY_HEAD, RECEIPTS, REPORT, TRANSCRIPT, pretty},
        pack::{ci, keys::SignerId},
    };

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
            ci_binding: Some(ci::detect(|name| match name {
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
        let files = [RECEIPTS, REPORT, TRANSCRIPT, AUDIT_LOG].map(file);
        let actor = "Zoë \u{1}\u{8}\u{7f}\u{2028}\"\\/😀";
        let (manifest, signature) = sign(attestation(actor), files.to_vec(), &signer).unwrap();
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
}
