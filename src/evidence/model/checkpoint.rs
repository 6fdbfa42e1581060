//! Checkpoints: how many events a session had, with the root of their tree, signed by a key of the session alone
//! (docs/formats.md, "Checkpoints").

use super::{
    SessionId,
    line::line,
    reading::{self, Reading, TooNew, versioned},
};
use crate::{
    note::{self, Key, Verifier},
    tree::Hash,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Format version of a line of checkpoints.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const CHECKPOINT_VERSION: u32 = 1;

/// Keys that a session may have: each recovery that was interrupted leaves one.
const MAX_KEYS: u32 = 1000;

/// The first line of what a long-term key signs of a session's key.
const SESSION_KEY: &str = "assay/session-key/v1";
/// What the names of long-term keys begin with.
const SIGNER: &str = "assay/signer/";
const KEY: &str = "key";
const CHECKPOINT: &str = "checkpoint";

/// Who holds a session's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The recorder that saw the session.
    Recorder,
    /// Whoever sealed afterwards what was found on disk.
    Recovery,
}

impl Role {
    /// The word in a note.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorder => "recorder",
            Self::Recovery => "recovery",
        }
    }
}

line! {
    /// A line that names a key of the session: the long-term key certifies it.
    #[derive(Debug, Clone)]
    pub exact struct KeyLine {
        /// `key`
        kind: String,
        /// The signed note with the session's key.
        note: String,
        /// The long-term key that signed the note.
        signer: String,
        /// [`CHECKPOINT_VERSION`].
        #[serde(deserialize_with = "reading::known::<KeyLine, _>")]
        v: u32,
    }
}

line! {
    /// A line that states how far the session was.
    #[derive(Debug, Clone)]
    pub exact struct CheckpointLine {
        /// `checkpoint`
        kind: String,
        /// The signed note with size and root.
        note: String,
        /// [`CHECKPOINT_VERSION`].
        #[serde(deserialize_with = "reading::known::<CheckpointLine, _>")]
        v: u32,
    }
}

versioned!(KeyLine, "line of checkpoints", CHECKPOINT_VERSION);
versioned!(CheckpointLine, "line of checkpoints", CHECKPOINT_VERSION);

/// What the notes of a session are about, which is also the name of its keys.
#[must_use]
pub fn origin(session: SessionId) -> String {
    format!("assay/session/{session}")
}

/// The long-term key of a signer, as notes name it; `None` for an id that no signer has.
#[must_use]
pub fn signer(id: &str, public: [u8; 32]) -> Option<Key> {
    Key::new(&format!("{SIGNER}{id}"), public)
}

/// What a long-term key signs of a session's key.
#[must_use]
pub fn key_text(session: SessionId, key: &Key, role: Role) -> String {
    format!("{SESSION_KEY}\n{}\n{key}\n{}\n", origin(session), role.as_str())
}

/// What a session's key signs: of how many events this is the root.
#[must_use]
pub fn checkpoint_text(session: SessionId, size: u64, root: &Hash) -> String {
    text_of(&origin(session), size, root)
}

/// The text of a checkpoint (c2sp.org/tlog-checkpoint) without further lines: of how many leaves of a log this is the root.
#[must_use]
pub fn text_of(origin: &str, size: u64, root: &Hash) -> String {
    format!("{origin}\n{size}\n{}\n", STANDARD.encode(root))
}

/// What the text of a checkpoint says: origin, size and root; `None` for what is not the one form of it.
#[must_use]
pub fn read_text(text: &str) -> Option<(&str, u64, Hash)> {
    let mut parts = text.split('\n');
    let origin = parts.next().filter(|origin| !origin.is_empty())?;
    let size = parts.next()?.parse().ok()?;
    let root = Hash::try_from(STANDARD.decode(parts.next()?).ok()?).ok()?;
    (text_of(origin, size, &root) == text).then_some((origin, size, root))
}

/// What the text of any log's checkpoint says, which may have further lines (c2sp.org/tlog-checkpoint).
#[must_use]
pub fn read_any(text: &str) -> Option<(&str, u64, Hash)> {
    let (third, _) = text.match_indices('\n').nth(2)?;
    let (head, more) = text.split_at(third + 1);
    let is_lines = more.is_empty() || more.ends_with('\n') && !more[..more.len() - 1].split('\n').any(str::is_empty);
    read_text(head).filter(|_| is_lines)
}

/// The line of a certified key, with its line feed.
///
/// # Errors
/// As [`super::to_line`].
pub fn key_line(signer: &Key, note: String) -> Result<Vec<u8>, serde_json::Error> {
    ended(&KeyLine { kind: KEY.to_owned(), note, signer: signer.to_string(), v: CHECKPOINT_VERSION })
}

/// The line of a signed checkpoint, with its line feed.
///
/// # Errors
/// As [`super::to_line`].
pub fn checkpoint_line(note: String) -> Result<Vec<u8>, serde_json::Error> {
    ended(&CheckpointLine { kind: CHECKPOINT.to_owned(), note, v: CHECKPOINT_VERSION })
}

fn ended<T: serde::Serialize>(line: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = super::to_line(line)?;
    line.push(b'\n');
    Ok(line)
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// From here on this key signs, which the long-term key certified.
    Key {
        /// The long-term key.
        signer: Key,
        /// Who holds the session's key.
        role: Role,
    },
    /// So many events had this root.
    Checkpoint {
        /// How many.
        size: u64,
        /// The root of their tree.
        root: Hash,
        /// Who signed it.
        role: Role,
    },
}

/// Why a line is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A later version wrote it.
    TooNew(TooNew),
    /// It is no line of checkpoints; why.
    Form(String),
    /// Its signature does not hold; why.
    Signature(String),
    /// It contradicts the lines before it, or the session; how.
    Says(&'static str),
}

impl From<note::Refused> for Wrong {
    fn from(e: note::Refused) -> Self {
        match e {
            note::Refused::Form(_) | note::Refused::Key => Self::Form(e.to_string()),
            note::Refused::Unsigned(_) | note::Refused::Signature(_) => Self::Signature(e.to_string()),
        }
    }
}

/// The lines of one session, in their order.
#[derive(Debug)]
pub struct Checkpoints {
    session: SessionId,
    /// The key that signs, and who holds it.
    key: Option<(Key, Role)>,
    keys: u32,
    size: u64,
}

impl Checkpoints {
    /// Nothing was read of this session yet.
    #[must_use]
    pub const fn of(session: SessionId) -> Self {
        Self { session, key: None, keys: 0, size: 0 }
    }

    /// The session key that signs, and who holds it; `None` before one is named.
    #[must_use]
    pub const fn key_in_use(&self) -> Option<&(Key, Role)> {
        self.key.as_ref()
    }

    /// Events that the last checkpoint covers; 0 without one.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next line, without its line feed.
    ///
    /// # Errors
    /// [`Wrong`]; what comes after it has no meaning.
    pub fn line(&mut self, line: &[u8], holds: Verifier<'_>) -> Result<Said, Wrong> {
        let kind = super::line::text(super::line::member(line, "kind"));
        match kind.as_deref() {
            Some(KEY) => self.key(&exact(line)?, holds),
            Some(CHECKPOINT) => self.checkpoint(&exact(line)?, holds),
            // A later version may have kinds of its own.
            _ => Err(reading::newer::<KeyLine>(line)
                .map_or_else(|| Wrong::Form("it is neither a key nor a checkpoint".to_owned()), Wrong::TooNew)),
        }
    }

    fn key(&mut self, line: &KeyLine, holds: Verifier<'_>) -> Result<Said, Wrong> {
        let signer = Key::parse(&line.signer)?;
        if !signer.name().starts_with(SIGNER) {
            return Err(Wrong::Form("the key that signed is not named as one of a signer".to_owned()));
        }
        let text = note::open(&line.note, &signer, holds)?;
        let key = text.split('\n').nth(2).and_then(|key| Key::parse(key).ok());
        let key = key.ok_or_else(|| Wrong::Form("the note names no key".to_owned()))?;
        let role =
            [Role::Recorder, Role::Recovery].into_iter().find(|role| key_text(self.session, &key, *role) == text);
        let Some(role) = role.filter(|_| key.name() == origin(self.session)) else {
            return Err(Wrong::Says("the certificate is not that of a key of this session"));
        };
        if role == Role::Recorder && self.key.is_some() {
            return Err(Wrong::Says("a recorder has one key, and none after a recovery"));
        }
        self.keys += 1;
        if self.keys > MAX_KEYS {
            return Err(Wrong::Says("there are more keys than a session has"));
        }
        self.key = Some((key, role));
        Ok(Said::Key { signer, role })
    }

    fn checkpoint(&mut self, line: &CheckpointLine, holds: Verifier<'_>) -> Result<Said, Wrong> {
        let Some((key, role)) = &self.key else { return Err(Wrong::Says("a checkpoint stands before every key")) };
        let text = note::open(&line.note, key, holds)?;
        let Some((_, size, root)) = read_text(text).filter(|(of, ..)| *of == origin(self.session)) else {
            return Err(Wrong::Says("the note is not a checkpoint of this session"));
        };
        if size <= self.size {
            return Err(Wrong::Says("the checkpoint covers no more than the one before it"));
        }
        self.size = size;
        Ok(Said::Checkpoint { size, root, role: *role })
    }
}

/// Reads a line that is exactly the RFC 8785 form of what it says.
fn exact<T: reading::Versioned + serde::Serialize>(line: &[u8]) -> Result<T, Wrong> {
    match reading::read::<T>(line) {
        Reading::Readable(read) if super::to_line(&read).is_ok_and(|same| same == line) => Ok(read),
        Reading::Readable(_) => Err(Wrong::Form("it is not the canonical line (RFC 8785) of what it says".to_owned())),
        Reading::TooNew(e) => Err(Wrong::TooNew(e)),
        Reading::Damaged(why) => Err(Wrong::Form(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SessionId = SessionId::from_bits(5);

    /// A signature that holds is 64 times the first byte of the public key.
    fn holds(public: &[u8], _: &[u8], signature: &[u8]) -> bool {
        signature == [public[0]; 64]
    }

    fn certified(session: SessionId, byte: u8, role: Role) -> (Key, Vec<u8>) {
        let (signer, key) = (signer("owner", [9; 32]).unwrap(), Key::new(&origin(session), [byte; 32]).unwrap());
        let line = key_line(&signer, signer.note(&key_text(session, &key, role), &[9; 64])).unwrap();
        (key, line)
    }

    fn checkpoint(key: &Key, session: SessionId, size: u64) -> Vec<u8> {
        let signature = [key.public()[0]; 64];
        checkpoint_line(key.note(&checkpoint_text(session, size, &[3; 32]), &signature)).unwrap()
    }

    fn read(lines: &[Vec<u8>]) -> Result<u64, Wrong> {
        let mut all = Checkpoints::of(ID);
        for line in lines {
            all.line(line.strip_suffix(b"\n").unwrap(), &holds)?;
        }
        Ok(all.size())
    }

    #[test]
    fn a_recorder_s_lines_and_those_of_recoveries_after_it_read() {
        let (key, recorder) = certified(ID, 1, Role::Recorder);
        let (late, recovery) = certified(ID, 2, Role::Recovery);
        let lines = [recorder, checkpoint(&key, ID, 1), checkpoint(&key, ID, 7), recovery, checkpoint(&late, ID, 9)];
        assert_eq!(read(&lines), Ok(9));
        assert_eq!(read(&lines[3..]), Ok(9));
        assert_eq!(read(&[]), Ok(0));
    }

    #[test]
    fn what_does_not_follow_is_refused() {
        let other = SessionId::from_bits(6);
        let (key, recorder) = certified(ID, 1, Role::Recorder);
        let (late, recovery) = certified(ID, 2, Role::Recovery);
        let at = |size| checkpoint(&key, ID, size);
        let changed = |line: &[u8], from: &str, to: &str| {
            let text = String::from_utf8(line.to_vec()).unwrap();
            assert!(text.contains(from), "{text}");
            text.replacen(from, to, 1).into_bytes()
        };
        let says = |lines: &[Vec<u8>]| matches!(read(lines), Err(Wrong::Says(_)));
        assert!(says(&[at(1)]), "no key");
        assert!(says(&[recorder.clone(), at(2), at(2)]), "equal");
        assert!(says(&[recorder.clone(), at(2), at(1)]), "falling");
        assert!(says(&[recorder.clone(), at(0)]), "of nothing");
        assert!(says(&[recorder.clone(), checkpoint(&key, other, 1)]), "of another session");
        assert!(says(&[certified(other, 1, Role::Recorder).1]), "another session's key");
        assert!(says(&[recovery.clone(), recorder.clone()]), "a recorder after a recovery");
        assert!(says(&[recorder.clone(), recorder.clone()]), "two recorders");
        let signature = |lines: &[Vec<u8>]| matches!(read(lines), Err(Wrong::Signature(_)));
        assert!(signature(&[recorder.clone(), checkpoint(&late, ID, 1)]), "another key of the session");
        let wrong = checkpoint_line(key.note(&checkpoint_text(ID, 1, &[3; 32]), &[8; 64])).unwrap();
        assert!(signature(&[recorder.clone(), wrong]), "a signature that does not hold");
        let form = |lines: &[Vec<u8>]| matches!(read(lines), Err(Wrong::Form(_)));
        assert!(form(&[changed(&recorder, "\"kind\":\"key\"", "\"kind\":\"keys\"")]));
        assert!(form(&[changed(&recorder, ",\"v\":1", ", \"v\":1")]));
        assert!(form(&[changed(&recorder, ",\"v\":1", ",\"v\":0")]));
        assert!(form(&[changed(&recorder, "\"signer\":\"assay/signer/owner+", "\"signer\":\"owner+")]));
        assert!(form(&[b"[]\n".to_vec()]) && form(&[b"\n".to_vec()]));
        let newer = |line: &[u8]| matches!(read(&[line.to_vec()]), Err(Wrong::TooNew(_)));
        assert!(newer(&changed(&recorder, "\"v\":1", "\"v\":2")));
        assert!(newer(b"{\"kind\":\"cosigned\",\"v\":\"1.1\"}\n"));
    }

    #[test]
    fn numbers_of_a_checkpoint_have_one_form() {
        let (key, recorder) = certified(ID, 1, Role::Recorder);
        for text in [
            format!("{}\n01\n{}\n", origin(ID), STANDARD.encode([3; 32])),
            format!("{}\n+1\n{}\n", origin(ID), STANDARD.encode([3; 32])),
            format!("{}\n-1\n{}\n", origin(ID), STANDARD.encode([3; 32])),
            format!("{}\n1\n{}\nmore\n", origin(ID), STANDARD.encode([3; 32])),
            format!("{}\n1\n{}\n", origin(ID), STANDARD.encode([3; 31])),
            format!("{}\n1\n", origin(ID)),
        ] {
            let line = checkpoint_line(key.note(&text, &[1; 64])).unwrap();
            assert!(matches!(read(&[recorder.clone(), line]), Err(Wrong::Says(_))), "{text}");
        }
    }
}
