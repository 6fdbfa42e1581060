//! Secrets by reference: the configuration says where one is, never what it is.

use crate::files;
use http::HeaderValue;
use std::{fmt, path::PathBuf};
use zeroize::Zeroizing;

/// Bytes of the longest file with a secret.
const MAX_SECRET: u64 = 64 << 10;

/// Where a secret is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// In an environment variable of the gateway.
    Env(String),
    /// In a file; line ends behind it are not part of it.
    File(PathBuf),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// Whether a text can be the name of a variable. A secret that stands in its place by mistake must not be shown.
#[must_use]
pub fn is_variable(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.bytes().next().is_some_and(|b| !b.is_ascii_digit()) && text.bytes().all(plain)
}

/// A secret: where it is, and what stands in front of it in a header.
#[derive(Clone, PartialEq, Eq)]
pub struct Reference {
    /// Where it is.
    pub place: Place,
    /// What is put in front of it, as in `Bearer `.
    pub prefix: String,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.place, f)
    }
}

impl Reference {
    /// The secret itself, as text.
    ///
    /// # Errors
    /// That it is not there, as a fragment that does not tell anything of it.
    pub fn read(&self) -> Result<Zeroizing<String>, String> {
        match &self.place {
            Place::Env(name) => match std::env::var(name) {
                Ok(text) => Ok(Zeroizing::new(text)),
                Err(std::env::VarError::NotPresent) => Err(format!("the environment variable {name} is not set")),
                Err(std::env::VarError::NotUnicode(_)) => Err(format!("the environment variable {name} is no text")),
            },
            Place::File(path) => {
                let bytes = files::named(path).and_then(|file| files::read_all(file, MAX_SECRET));
                let bytes = bytes.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
                let text = String::from_utf8(bytes).map_err(|e| {
                    drop(Zeroizing::new(e.into_bytes()));
                    format!("{} is no text", path.display())
                })?;
                let text = Zeroizing::new(text);
                Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
            }
        }
    }

    /// The value of a header.
    ///
    /// # Errors
    /// As [`read`](Self::read), or that no header can have it.
    pub fn header(&self) -> Result<HeaderValue, String> {
        let text = Zeroizing::new(format!("{}{}", self.prefix, *self.read()?));
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| format!("{} has characters that no header can have", self.place))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_where_it_is_and_told_nowhere() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("token");
        let reference =
            |path: &std::path::Path| Reference { place: Place::File(path.to_owned()), prefix: "Bearer ".to_owned() };
        std::fs::write(&path, "c4n4ry\r\n").unwrap();
        let value = reference(&path).header().unwrap();
        assert_eq!(value.as_bytes(), b"Bearer c4n4ry");
        assert!(!format!("{value:?} {:?}", reference(&path)).contains("c4n4ry"));
        for bad in [&b"c4n4ry\nx"[..], b"c4n4ry\xff"] {
            std::fs::write(&path, bad).unwrap();
            let why = reference(&path).header().unwrap_err();
            assert!(!why.contains("c4n4ry") && why.contains("token"), "{why}");
        }
        assert!(reference(tmp.path()).read().unwrap_err().contains("cannot read"));
        let unset = Reference { place: Place::Env("ASSAY_NO_SUCH_VARIABLE".to_owned()), prefix: String::new() };
        assert_eq!(unset.read().unwrap_err(), "the environment variable ASSAY_NO_SUCH_VARIABLE is not set");
    }
}
