//! The key of digests in evidence: of session ids, credentials and targets. It never leaves the user directory; without
//! it nobody can try out what a digest is of.

use crate::{files, paths::assay_home};
use std::{io, path::Path};
use zeroize::Zeroizing;

/// The key, and whether digests of other processes of this user are made with it, too.
pub struct EvidenceKey {
    /// The key.
    pub bytes: Zeroizing<[u8; 32]>,
    /// It is in the user directory.
    pub lasts: bool,
}

impl EvidenceKey {
    /// The key of this user, made on first use; if it cannot be kept, one for this process.
    ///
    /// # Errors
    /// The system's random source failed.
    pub fn of_user() -> Result<Self, String> {
        let home = assay_home().map_err(|e| e.to_string());
        let kept = home.and_then(|home| of_home(&home).map_err(|e| format!("{}: {e}", home.display())));
        match kept {
            Ok(bytes) => Ok(Self { bytes, lasts: true }),
            Err(e) => {
                tracing::warn!(error = %e, "the key of digests cannot be kept; it is one of this process");
                Ok(Self { bytes: fresh()?, lasts: false })
            }
        }
    }
}

fn fresh() -> Result<Zeroizing<[u8; 32]>, String> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).map_err(|e| format!("cannot get a random key: {e}"))?;
    Ok(bytes)
}

/// The key in `evidence.key`: 64 hexadecimal digits and a newline.
fn of_home(home: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let path = home.join("evidence.key");
    match read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    files::make_dirs(home)?;
    let bytes = fresh().map_err(io::Error::other)?;
    let text = Zeroizing::new(format!("{}\n", hex::encode(*bytes)));
    match files::place_new(&path.with_extension(format!("key.{}.new", std::process::id())), &path, text.as_bytes()) {
        // Another process made it meanwhile.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => read(&path),
        placed => placed.map(|()| bytes),
    }
}

fn read(path: &Path) -> io::Result<Zeroizing<[u8; 32]>> {
    let text = Zeroizing::new(files::read_all(files::open_own(path)?, 128)?);
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii_end(), &mut *bytes)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("evidence.key is no key: {e}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_user_has_one_key() {
        let tmp = tempfile::tempdir().unwrap();
        let home = tmp.path().join("home");
        let made = of_home(&home).unwrap();
        assert_eq!(*of_home(&home).unwrap(), *made);
        assert_ne!(*made, [0; 32]);
        let mode = std::fs::metadata(home.join("evidence.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(home.join("evidence.key"), "short\n").unwrap();
        let e = of_home(&home).unwrap_err();
        assert!(e.to_string().contains("evidence.key is no key"), "{e}");
    }
}
