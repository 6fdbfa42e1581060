//! Digests of what must not be in evidence itself: session ids, credentials, targets.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Makes digests under a key of the user.
#[derive(Clone)]
pub struct Digests {
    mac: Hmac<Sha256>,
}

impl Digests {
    /// Under this key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        // A key is filled up with zeros to the size of a block.
        let mut block = [0; 64];
        block[..32].copy_from_slice(key);
        Self { mac: Hmac::new(&block.into()) }
    }

    /// The first 16 hex digits of the HMAC-SHA-256 of `bytes`.
    #[must_use]
    pub fn of(&self, bytes: &[u8]) -> String {
        let mut mac = self.mac.clone();
        mac.update(bytes);
        hex::encode(&mac.finalize().into_bytes()[..8])
    }
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digests")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_apart_and_depend_on_the_key() {
        let (a, b) = (Digests::new(&[1; 32]), Digests::new(&[2; 32]));
        let mut mac = Hmac::<Sha256>::new_from_slice(&[1; 32]).unwrap();
        mac.update(b"x");
        assert_eq!(a.of(b"x"), hex::encode(mac.finalize().into_bytes())[..16]);
        assert_eq!(a.of(b"x"), a.of(b"x"));
        assert_ne!(a.of(b"x"), b.of(b"x"));
    }
}
