//! Signed notes as C2SP writes them (c2sp.org/signed-note): a text that people can read, and lines with signatures below it.
//!
//! Nothing here signs, and whether a signature holds is for a [`Verifier`] to say.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use std::fmt;
use thiserror::Error;

/// Bytes of a note that is read.
pub const MAX_NOTE: usize = 256 << 10;
/// Signatures of a note that is read.
pub const MAX_SIGNATURES: usize = 100;

/// The algorithm byte of Ed25519.
const ED25519: u8 = 1;
/// What a signature's line begins with.
const DASH: &str = "\u{2014} ";

/// Whether an Ed25519 signature (64 bytes) of a message holds under a public key (32 bytes).
pub type Verifier<'a> = &'a dyn Fn(&[u8], &[u8], &[u8]) -> bool;

/// Why a note, or a key, is not taken. Nothing of such a note counts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// It is too long, or its text is not one of a note.
    #[error("it is not a signed note: {0}")]
    Form(&'static str),
    /// The text of a key does not read.
    #[error("it is not the text of an Ed25519 key")]
    Key,
    /// The key has not signed it.
    #[error("{0} has not signed the note")]
    Unsigned(String),
    /// A signature that names the key is not one by the key.
    #[error("the signature of {0} does not hold")]
    Signature(String),
}

/// A public Ed25519 key with its name: `<name>+<8 hex digits>+<base64>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    name: String,
    public: [u8; 32],
}

impl Key {
    /// The key of this name; `None` for a name that cannot be in a note.
    #[must_use]
    pub fn new(name: &str, public: [u8; 32]) -> Option<Self> {
        is_name(name).then(|| Self { name: name.to_owned(), public })
    }

    /// Reads the one form of a key's text.
    ///
    /// # Errors
    /// [`Refused::Key`].
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let read = || {
            let (name, rest) = text.split_once('+')?;
            let (_, raw) = rest.split_once('+')?;
            let raw = STANDARD.decode(raw).ok()?;
            let (algorithm, public) = raw.split_first()?;
            let key = Self::new(name, public.try_into().ok()?)?;
            (*algorithm == ED25519 && key.to_string() == text).then_some(key)
        };
        read().ok_or(Refused::Key)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The raw public key.
    #[must_use]
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// The first four bytes of the SHA-256 of name, line feed, algorithm and key.
    #[must_use]
    pub fn id(&self) -> [u8; 4] {
        let hash = Sha256::new().chain_update(&self.name).chain_update([b'\n', ED25519]).chain_update(self.public);
        let hash: [u8; 32] = hash.finalize().into();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// The note of a text, which ends in a line feed, and this key's signature of the text.
    #[must_use]
    pub fn note(&self, text: &str, signature: &[u8; 64]) -> String {
        let signature = STANDARD.encode([&self.id()[..], signature].concat());
        format!("{text}\n{DASH}{} {signature}\n", self.name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = STANDARD.encode([&[ED25519][..], &self.public].concat());
        write!(f, "{}+{}+{raw}", self.name, hex::encode(self.id()))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == '+' || c < ' ')
}

/// What a user writes as a key: [`Key::parse`], with an error for people.
///
/// # Errors
/// What was expected.
pub fn key_of_user(text: &str) -> Result<Key, String> {
    Key::parse(text.trim())
        .map_err(|_| "expected a verifier key, name+id+key, as assay ledger vkey prints it".to_owned())
}

/// The text of a note that this key has signed. Signatures by other keys are not looked at.
///
/// # Errors
/// [`Refused`]: also if the key signed twice, or if one of the signatures that name it does not hold.
pub fn open<'n>(note: &'n str, key: &Key, holds: Verifier<'_>) -> Result<&'n str, Refused> {
    if note.len() > MAX_NOTE {
        return Err(Refused::Form("it is too long"));
    }
    if note.bytes().any(|b| b < b' ' && b != b'\n') {
        return Err(Refused::Form("it has control characters"));
    }
    let at = note.rfind("\n\n").ok_or(Refused::Form("no blank line stands before its signatures"))?;
    let (text, below) = (&note[..=at], &note[at + 2..]);
    let below = below.strip_suffix('\n').ok_or(Refused::Form("its last line has no end"))?;
    let mut signatures = 0;
    let mut ours = 0;
    for line in below.split('\n') {
        signatures += 1;
        if signatures > MAX_SIGNATURES {
            return Err(Refused::Form("it has too many signatures"));
        }
        let signature = line.strip_prefix(DASH).and_then(|line| line.split_once(' '));
        let signature = signature.filter(|(name, _)| is_name(name));
        let raw = signature.and_then(|(name, raw)| Some((name, STANDARD.decode(raw).ok()?)));
        let Some((name, raw)) = raw.filter(|(_, raw)| raw.len() > 4) else {
            return Err(Refused::Form("a line below its text is no signature"));
        };
        if name == key.name && raw[..4] == key.id() {
            if ours > 0 || !holds(&key.public, text.as_bytes(), &raw[4..]) {
                return Err(Refused::Signature(key.name.clone()));
            }
            ours += 1;
        }
    }
    if ours == 0 { Err(Refused::Unsigned(key.name.clone())) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the example in c2sp.org/signed-note, and golang.org/x/mod/sumdb/note.
    const PETER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const NOTE: &str = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
         \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

    /// Holds what was signed with zeros, so that the form of notes can be tested without keys.
    fn zeros(_: &[u8], _: &[u8], signature: &[u8]) -> bool {
        signature == [0; 64]
    }

    #[test]
    fn the_example_of_the_specification_reads() {
        let peter = Key::parse(PETER).unwrap();
        assert_eq!((peter.name(), peter.to_string()), ("PeterNeumann", PETER.to_owned()));
        let text = open(NOTE, &peter, &|_, _, signature| signature.len() == 64).unwrap();
        assert!(text.starts_with("If you think") && text.ends_with("problem is.\n"), "{text}");
        for bad in [
            "",
            "a",
            "a+b",
            "a+c74f20a3+",
            &PETER.replace("Pe", "P e"),
            &PETER.replace("c7", "C7"),
            &format!("{PETER} "),
        ] {
            assert_eq!(Key::parse(bad), Err(Refused::Key), "{bad}");
        }
    }

    #[test]
    fn a_note_is_refused_whole_for_anything_that_is_wrong_with_it() {
        let key = Key::new("a", [7; 32]).unwrap();
        let (other, sign) =
            (Key::new("b", [7; 32]).unwrap(), |key: &Key, byte| key.note("", &[byte; 64])[1..].to_owned());
        let note = |below: &str| format!("text\n\n{below}");
        let ours = sign(&key, 0);
        let read = |note: &str| open(note, &key, &zeros).map(str::to_owned);
        assert_eq!(read(&note(&ours)), Ok("text\n".to_owned()));
        // Whoever else signed does not matter, nor whether that holds.
        assert_eq!(read(&note(&format!("{}{ours}", sign(&other, 1)))), Ok("text\n".to_owned()));
        let same_id = ours.replacen(
            &STANDARD.encode([&key.id()[..], &[0; 64]].concat()),
            &STANDARD.encode([&key.id()[..], &[9; 32]].concat()),
            1,
        );
        for bad in [
            note(&sign(&other, 0)),
            note(&sign(&key, 1)),
            note(&format!("{ours}{ours}")),
            note(&format!("{ours}{}", sign(&key, 1))),
            note(&format!("{ours}{same_id}")),
            note(&ours.repeat(101)),
            note(&format!("{}{ours}", sign(&other, 0).repeat(100))),
            note(""),
            note(ours.trim_end()),
            note(&format!("{ours}\n")),
            note(&format!("{ours}x\n")),
            note(&ours.replace('=', "")),
            note(&ours.replace("\u{2014}", "-")),
            format!("text\n{ours}"),
            format!("te\rxt\n\n{ours}"),
            format!("te\u{1b}xt\n\n{ours}"),
            note(&ours).replace('\n', "\r\n"),
            format!("{}\n\n{ours}", "x".repeat(MAX_NOTE)),
        ] {
            assert!(read(&bad).is_err(), "{}", &bad[..bad.len().min(300)]);
        }
        for name in ["", "a b", "a+b", "a\u{a0}b", "a\nb"] {
            assert_eq!(Key::new(name, [0; 32]), None, "{name:?}");
        }
    }
}
