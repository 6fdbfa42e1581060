//! Ed25519, as strict as it can be.

use ed25519_dalek::{Signature, VerifyingKey};

/// Why a signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureProblem {
    /// Not 32 bytes, or no point of the curve.
    #[error("the public key is not an Ed25519 key")]
    Key,
    /// A key of small order: signatures under it hold for many messages.
    #[error("the public key is weak (a point of small order)")]
    WeakKey,
    /// The signature is not 64 bytes long.
    #[error("the signature is not 64 bytes long")]
    Length,
    /// It does not hold.
    #[error("the Ed25519 signature does not hold")]
    Wrong,
}

/// Verifies an Ed25519 signature (RFC 8032) strictly: no malleable form, no key or commitment of small order.
///
/// # Errors
/// [`SignatureProblem`].
pub fn verify_ed25519(public: &[u8], message: &[u8], signature: &[u8]) -> Result<(), SignatureProblem> {
    let raw = <&[u8; 32]>::try_from(public).map_err(|_| SignatureProblem::Key)?;
    let key = VerifyingKey::from_bytes(raw).map_err(|_| SignatureProblem::Key)?;
    if key.is_weak() {
        return Err(SignatureProblem::WeakKey);
    }
    let signature = Signature::from_slice(signature).map_err(|_| SignatureProblem::Length)?;
    key.verify_strict(message, &signature).map_err(|_| SignatureProblem::Wrong)
}
