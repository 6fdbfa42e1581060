//! Bringing a secret key into the store, and taking one away.

use super::{ACTIVE_SIGNER, KEY_LEN, KeyError, KeyStore, Signer, SignerId};
use crate::{files, paths};
use base64::Engine as _;
use std::{fs, io, path::Path};
use zeroize::Zeroizing;

/// The largest file that can have a key, in bytes.
pub const LARGEST: u64 = 64 << 10;
/// What stands before the seed in PKCS #8: version, the algorithm Ed25519, two octet strings (RFC 8410, section 7).
const VERSIONS: [[u8; 3]; 2] = [[0x02, 0x01, 0x00], [0x02, 0x01, 0x01]];
const BEFORE: [u8; 11] = [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// Reads a secret key: the 32 bytes of a seed, or PKCS #8 as openssl writes it, in PEM or DER.
///
/// # Errors
/// What is wrong with it, in words; nothing of the key is in them.
pub fn seed(bytes: &[u8]) -> Result<Zeroizing<[u8; KEY_LEN]>, &'static str> {
    let mut seed = Zeroizing::new([0; KEY_LEN]);
    if bytes.len() == KEY_LEN {
        seed.copy_from_slice(bytes);
        return Ok(seed);
    }
    let der = match std::str::from_utf8(bytes) {
        Ok(text) if text.contains("-----BEGIN") => {
            let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
            let (body, _) = body.ok_or("it is not a private key in PKCS #8")?;
            let body = Zeroizing::new(body.split_whitespace().collect::<String>());
            let engine = base64::engine::general_purpose::STANDARD;
            Zeroizing::new(engine.decode(body.as_bytes()).map_err(|_| "its Base64 is damaged")?)
        }
        _ => Zeroizing::new(bytes.to_vec()),
    };
    let found = match der.as_slice() {
        [0x30, len, rest @ ..] if usize::from(*len) == rest.len() => rest
            .split_first_chunk::<3>()
            .filter(|(version, _)| VERSIONS.contains(version))
            .and_then(|(_, rest)| rest.strip_prefix(&BEFORE))
            .and_then(|rest| rest.first_chunk::<KEY_LEN>()),
        _ => None,
    };
    seed.copy_from_slice(found.ok_or("it is neither the 32 bytes of a seed nor an Ed25519 key in PKCS #8")?);
    Ok(seed)
}

impl KeyStore {
    /// Keeps a secret key that was made elsewhere.
    ///
    /// # Errors
    /// [`KeyError::Exists`]: a key is never replaced; [`KeyError::Mismatch`]: there is another public key of this name.
    pub fn import(&self, signer: &SignerId, seed: &[u8; KEY_LEN]) -> Result<Signer, KeyError> {
        paths::create_private_dir(&self.dir)?;
        let path = self.key_path(signer);
        if self.is_in_agent(signer) {
            return Err(KeyError::Exists(self.agent_path(signer)));
        }
        let made = Signer::from_seed(signer.clone(), seed);
        if self.stored_public(signer)?.is_some_and(|stored| stored != made.public()) {
            return Err(KeyError::Mismatch { public: self.pub_path(signer), secret: path });
        }
        self.write(&path, seed)?;
        self.write_public(&made)?;
        Ok(made)
    }

    /// Removes a key for good, usable or not. If it was the one that signs by default, none is chosen any more.
    ///
    /// # Errors
    /// [`KeyError::NoSuchSigner`], or what the system says.
    pub fn delete(&self, signer: &SignerId) -> Result<(), KeyError> {
        if !self.has(signer) {
            return Err(KeyError::NoSuchSigner { signer: signer.clone(), dir: self.dir.clone() });
        }
        // Killed in between, what is left is a key as it was: its public half is made from it again.
        let marker = self.dir.join(ACTIVE_SIGNER);
        let chosen =
            files::plain(&marker).and_then(|file| files::read_all(file, super::MAX_ACTIVE)).unwrap_or_default();
        if String::from_utf8_lossy(&chosen).trim() == signer.as_str() {
            gone(&marker)?;
        }
        gone(&self.pub_path(signer))?;
        gone(&self.key_path(signer))?;
        gone(&self.agent_path(signer))?;
        files::sync_dir(&self.dir).map_err(|source| KeyError::Write { path: self.dir.clone(), source })
    }
}

fn gone(path: &Path) -> Result<(), KeyError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(KeyError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8410, section 10.3, and its seed.
    const PEM: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    const SEED: &str = "d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842";
    /// The same key in the second version, with an attribute and its public key.
    const WITH_PUBLIC: &str = "-----BEGIN PRIVATE KEY-----\n\
        MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB\n\
        Z9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PRIVATE KEY-----\n";

    #[test]
    fn seeds_are_read_as_openssl_and_this_store_write_them() {
        let raw = hex::decode(SEED).unwrap();
        for form in [raw.as_slice(), PEM.as_bytes(), WITH_PUBLIC.as_bytes(), PEM.replace('\n', "\r\n").as_bytes()] {
            assert_eq!(seed(form).unwrap().as_slice(), raw);
        }
        for other in [
            &b""[..],
            &raw[..31],
            b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n",
            b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQ\n-----END PRIVATE KEY-----\n",
            PEM.replace("MC4CAQAwBQYDK2Vw", "MC4CAQAwBQYDK2Vu").as_bytes(),
        ] {
            assert!(seed(other).is_err(), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn an_imported_key_signs_and_a_deleted_one_is_gone_with_its_mark() {
        let tmp = tempfile::tempdir().unwrap();
        let store = KeyStore::at(tmp.path().join("keys"));
        let name = SignerId::parse("ci").unwrap();
        let made = store.import(&name, &seed(PEM.as_bytes()).unwrap()).unwrap();
        assert_eq!(store.load(&name).unwrap().fingerprint(), made.fingerprint());
        assert!(matches!(store.import(&name, &[7; 32]), Err(KeyError::Mismatch { .. })));
        assert!(matches!(store.import(&name, &seed(PEM.as_bytes()).unwrap()), Err(KeyError::Exists(_))));
        store.set_active(&name).unwrap();
        let other = SignerId::parse("other").unwrap();
        store.generate(&other).unwrap();
        store.delete(&name).unwrap();
        assert_eq!(store.active().unwrap(), other);
        assert!(!store.has(&name) && !store.pub_path(&name).exists());
        assert!(matches!(store.delete(&name), Err(KeyError::NoSuchSigner { .. })));
        store.delete(&other).unwrap();
        assert!(store.list().unwrap().is_empty());
    }
}
