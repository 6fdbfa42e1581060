//! Stages `validate_attestation`, `verify_signature` and `check_d12_invariant`.

use super::{
    ed25519::verify_ed25519,
    finding::Finding,
    manifest::Parsed,
    notebook::Notebook,
    source::{OpenProblem, PackDir},
    words::Stage,
};
use crate::model::pack::{MANIFEST, SIGNATURE};
use crate::model::sha256_hex;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::io::Read as _;

/// The attestation hashes to what the manifest says, and both agree.
pub(super) fn attestation(notes: &mut Notebook<'_>, parsed: &Parsed) {
    let m = &parsed.manifest;
    let a = &m.attestation;
    let stage = Stage::ValidateAttestation;
    let hash = sha256_hex(parsed.attestation_bytes());
    if hash != m.attestation_sha256 {
        let text = "attestation_sha256 is not the hash of the attestation";
        notes.found(
            Finding::new("E_MANIFEST_TAMPER", stage, text)
                .file("attestation_sha256")
                .sides(&m.attestation_sha256, hash),
        );
    }
    for (field, outside, inside) in [
        ("pack_id", &m.pack_id, &a.pack_id),
        ("suite_hash", &m.suite_hash, &a.suite_hash),
        ("claim_set_id", &m.claim_set_id, &a.claim_set_id),
        ("claim_set_hash", &m.claim_set_hash, &a.claim_set_hash),
        ("receipt_count_expected", &m.receipt_count_expected.to_string(), &a.n_receipts.to_string()),
    ] {
        if outside != inside {
            let text = format!("manifest and attestation disagree on {field}");
            notes.found(Finding::new("E_MANIFEST_TAMPER", stage, text).file(field).sides(inside, outside));
        }
    }
}

/// The manifest's signature, and the detached one.
pub(super) fn signature(notes: &mut Notebook<'_>, dir: &PackDir, parsed: &Parsed) {
    let stage = Stage::VerifySignature;
    let m = &parsed.manifest;
    let bad = |field: &str, text: String| Finding::new("E_PACK_SIG_INVALID", stage, text).file(field);
    let public = STANDARD.decode(&m.signer_pubkey);
    let signature = STANDARD.decode(&m.signature);
    if let Ok(public) = &public {
        let fingerprint = sha256_hex(public);
        if fingerprint != m.signer_pubkey_sha256 {
            let text = "signer_pubkey_sha256 is not the hash of signer_pubkey".to_owned();
            notes.found(bad("signer_pubkey_sha256", text).sides(&m.signer_pubkey_sha256, &fingerprint));
        }
        notes.fingerprint = Some(fingerprint);
    }
    match (&public, &signature) {
        (Err(e), _) => notes.found(bad("signer_pubkey", format!("signer_pubkey is not base64: {e}"))),
        (_, Err(e)) => notes.found(bad("signature", format!("signature is not base64: {e}"))),
        (Ok(public), Ok(signature)) => {
            if let Err(e) = verify_ed25519(public, &parsed.signed_bytes(), signature) {
                notes.found(bad("signature", format!("{e}: {MANIFEST} has changed since it was signed")));
            }
        }
    }
    match detached(dir) {
        Ok(bytes) if signature.as_ref().is_ok_and(|s| *s == bytes) => {}
        Ok(_) => notes.found(bad(SIGNATURE, "the detached signature is not that of the manifest".to_owned())),
        Err(e) => notes.found(bad(SIGNATURE, e)),
    }
}

fn detached(dir: &PackDir) -> Result<Vec<u8>, String> {
    let (file, _) = dir.open_file(SIGNATURE).map_err(|e| match e {
        OpenProblem::Missing => "the detached signature is missing".to_owned(),
        OpenProblem::Special(what) => format!("the detached signature is {what}"),
        OpenProblem::Io(e) => format!("cannot read the detached signature: {e}"),
    })?;
    let mut bytes = Vec::new();
    // One byte more than a signature has is enough to see that it is none.
    file.take(65).read_to_end(&mut bytes).map_err(|e| format!("cannot read the detached signature: {e}"))?;
    Ok(bytes)
}

/// `pack_root_sha256` equals `attestation_sha256`: the invariant that assay calls D12.
pub(super) fn d12(notes: &mut Notebook<'_>, parsed: &Parsed) {
    let m = &parsed.manifest;
    if m.pack_root_sha256 != m.attestation_sha256 {
        let text = "pack_root_sha256 differs from attestation_sha256";
        notes.found(
            Finding::new("E_MANIFEST_TAMPER", Stage::CheckD12Invariant, text)
                .file("pack_root_sha256")
                .sides(&m.attestation_sha256, &m.pack_root_sha256),
        );
    }
}
