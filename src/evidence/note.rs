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
pub const ED25519: u8 = 1;
/// That of cosignatures with a time, by Ed25519 (c2sp.org/tlog-cosignature).
pub const COSIGNATURE: u8 = 4;
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

/// A public Ed25519 key with its name, for what one algorithm signs: `<name>+<8 hex digits>+<base64>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOf<const ALGORITHM: u8> {
    name: String,
    public: [u8; 32],
}

/// The key of who signs a note.
pub type Key = KeyOf<ED25519>;
/// The key of a witness, which signs checkpoints of others together with the time (c2sp.org/tlog-cosignature, Ed25519).
pub type WitnessKey = KeyOf<COSIGNATURE>;

impl<const ALGORITHM: u8> KeyOf<ALGORITHM> {
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
        let AnyKey { name, algorithm, public } = AnyKey::parse(text).ok_or(Refused::Key)?;
        let key = public.try_into().ok().and_then(|public| Self::new(name, public));
        key.filter(|key| algorithm == ALGORITHM && key.to_string() == text).ok_or(Refused::Key)
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
        let hash = Sha256::new().chain_update(&self.name).chain_update([b'\n', ALGORITHM]).chain_update(self.public);
        let hash: [u8; 32] = hash.finalize().into();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// The lines below a note that name this key, as they stand there; whether they hold is another question.
    ///
    /// # Errors
    /// [`Refused::Form`].
    pub fn lines_in(&self, note: &str) -> Result<String, Refused> {
        let (_, lines) = read(note)?;
        Ok(lines.iter().filter(|line| self.names(line)).flat_map(|line| [line.whole, "\n"]).collect())
    }

    /// Whether a line below a note names this key.
    fn names(&self, line: &Line<'_>) -> bool {
        line.name == self.name && line.raw[..4] == self.id()
    }
}

impl<const ALGORITHM: u8> fmt::Display for KeyOf<ALGORITHM> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = STANDARD.encode([&[ALGORITHM][..], &self.public].concat());
        write!(f, "{}+{}+{raw}", self.name, hex::encode(self.id()))
    }
}

impl Key {
    /// The note of a text, which ends in a line feed, and this key's signature of the text.
    #[must_use]
    pub fn note(&self, text: &str, signature: &[u8; 64]) -> String {
        let signature = STANDARD.encode([&self.id()[..], signature].concat());
        format!("{text}\n{DASH}{} {signature}\n", self.name)
    }
}

impl WitnessKey {
    /// What it signs of the text of a checkpoint, at a time in seconds since 1970.
    #[must_use]
    pub fn message(text: &str, time: u64) -> String {
        format!("cosignature/v1\ntime {time}\n{text}")
    }

    /// The line of its signature below a note, with its line feed.
    #[must_use]
    pub fn line(&self, time: u64, signature: &[u8; 64]) -> String {
        let raw = STANDARD.encode([&self.id()[..], &time.to_be_bytes(), signature].concat());
        format!("{DASH}{} {raw}\n", self.name)
    }

    /// When it signed a note, in seconds since 1970; `None` if it did not.
    ///
    /// # Errors
    /// [`Refused`]: also if it signed twice, or if a signature that names it does not hold.
    pub fn cosigned(&self, note: &str, holds: Verifier<'_>) -> Result<Option<u64>, Refused> {
        let (text, lines) = read(note)?;
        let mut ours = lines.iter().filter(|line| self.names(line));
        let Some(line) = ours.next() else { return Ok(None) };
        let time = || {
            let (time, signature) = line.raw[4..].split_first_chunk::<8>()?;
            let time = u64::from_be_bytes(*time);
            let is_time = time > 0 && i64::try_from(time).is_ok();
            (is_time && holds(&self.public, Self::message(text, time).as_bytes(), signature)).then_some(time)
        };
        match (time(), ours.next()) {
            (Some(time), None) => Ok(Some(time)),
            _ => Err(Refused::Signature(self.name.clone())),
        }
    }
}

/// A key of any algorithm: of those that are not known here no more than the form is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnyKey<'a> {
    /// Its name.
    pub name: &'a str,
    /// The byte that names the algorithm.
    pub algorithm: u8,
    /// What the text has of the key itself.
    pub public: Vec<u8>,
}

impl<'a> AnyKey<'a> {
    /// Reads a text of the form `<name>+<8 hex digits>+<base64>`.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (name, rest) = text.split_once('+')?;
        let (id, raw) = rest.split_once('+')?;
        let is_id = id.len() == 8 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let raw = STANDARD.decode(raw).ok()?;
        let (algorithm, public) = raw.split_first()?;
        (is_id && is_name(name)).then(|| Self { name, algorithm: *algorithm, public: public.to_vec() })
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

/// A line below the text of a note.
struct Line<'n> {
    whole: &'n str,
    name: &'n str,
    /// Id of the key, and the signature.
    raw: Vec<u8>,
}

/// The text of a note, and the lines below it.
fn read(note: &str) -> Result<(&str, Vec<Line<'_>>), Refused> {
    if note.len() > MAX_NOTE {
        return Err(Refused::Form("it is too long"));
    }
    if note.bytes().any(|b| b < b' ' && b != b'\n') {
        return Err(Refused::Form("it has control characters"));
    }
    let at = note.rfind("\n\n").ok_or(Refused::Form("no blank line stands before its signatures"))?;
    let (text, below) = (&note[..=at], &note[at + 2..]);
    let below = below.strip_suffix('\n').ok_or(Refused::Form("its last line has no end"))?;
    let mut lines = Vec::new();
    for line in below.split('\n') {
        if lines.len() == MAX_SIGNATURES {
            return Err(Refused::Form("it has too many signatures"));
        }
        let signature = line.strip_prefix(DASH).and_then(|line| line.split_once(' '));
        let signature = signature.filter(|(name, _)| is_name(name));
        let raw = signature.and_then(|(name, raw)| Some(Line { whole: line, name, raw: STANDARD.decode(raw).ok()? }));
        lines
            .push(raw.filter(|line| line.raw.len() > 4).ok_or(Refused::Form("a line below its text is no signature"))?);
    }
    Ok((text, lines))
}

/// The text of a note that this key has signed. Signatures by other keys are not looked at.
///
/// # Errors
/// [`Refused`]: also if the key signed twice, or if one of the signatures that name it does not hold.
pub fn open<'n>(note: &'n str, key: &Key, holds: Verifier<'_>) -> Result<&'n str, Refused> {
    let (text, lines) = read(note)?;
    let mut ours = lines.iter().filter(|line| key.names(line));
    let Some(line) = ours.next() else { return Err(Refused::Unsigned(key.name.clone())) };
    if ours.next().is_some() || !holds(&key.public, text.as_bytes(), &line.raw[4..]) {
        return Err(Refused::Signature(key.name.clone()));
    }
    Ok(text)
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

    #[test]
    fn a_cosignature_counts_with_its_time_and_only_as_one() {
        let witness = WitnessKey::new("w", [7; 32]).unwrap();
        assert_eq!(WitnessKey::parse(&witness.to_string()), Ok(witness.clone()));
        let of_log = Key::new("w", [7; 32]).unwrap();
        assert_eq!(
            (Key::parse(&witness.to_string()), WitnessKey::parse(&of_log.to_string())),
            (Err(Refused::Key), Err(Refused::Key))
        );
        // Holds if the time that is signed is the one that is stated.
        let at = |n: u64| {
            move |_: &[u8], text: &[u8], signature: &[u8]| {
                signature == [0; 64] && text == format!("cosignature/v1\ntime {n}\ntext\n").as_bytes()
            }
        };
        let line = |time| witness.line(time, &[0; 64]);
        let read = |below: &str, n| witness.cosigned(&format!("text\n\n{below}"), &at(n));
        let max = u64::MAX >> 1;
        assert_eq!((read(&line(9), 9), read(&line(max), max)), (Ok(Some(9)), Ok(Some(max))));
        let other = WitnessKey::new("w", [8; 32]).unwrap().line(9, &[0; 64]);
        assert_eq!(read(&other, 9), Ok(None));
        assert_eq!(read(&format!("{other}{}", line(9)), 9), Ok(Some(9)));
        // A signature without a time, under the same name, is by another key.
        assert_eq!(read(&of_log.note("", &[0; 64])[1..], 9), Ok(None));
        let short = format!("{DASH}w {}\n", STANDARD.encode([&witness.id()[..], &[0; 64]].concat()));
        for (below, n) in [
            (line(9), 10),
            (line(0), 0),
            (line(max + 1), max + 1),
            (witness.line(9, &[1; 64]), 9),
            (line(9).repeat(2), 9),
            (format!("{}{}", line(9), line(10)), 9),
            (short, 0),
        ] {
            assert_eq!(read(&below, n), Err(Refused::Signature("w".into())), "{below}");
        }
    }
}
