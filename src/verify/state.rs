//! What a verifier remembers of logs and packs, in a file that it keeps away from what it verifies (docs/formats.md, "State of a
//! verifier").

use super::{
    finding::{FORK, Finding},
    options::VerifyError,
    report::VerifyReport,
    words::{Exit, Memory, SignerVerdict, Stage},
};
use crate::{
    model::{
        SessionId,
        checkpoint::read_text,
        pack::MANIFEST,
        reading::{self, Reading, versioned},
        to_line,
    },
    tiles,
    tree::Hash,
};
use assay_evidence::plain;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// Format version of a line.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const STATE_VERSION: u32 = 1;

/// Bytes of a state that is read.
const MAX_STATE: u64 = 256 << 20;

/// A line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateLine {
    /// A log, or null.
    pub log: Option<KnownLog>,
    /// A pack, or null.
    pub pack: Option<KnownPack>,
    /// [`STATE_VERSION`].
    #[serde(deserialize_with = "reading::known::<StateLine, _>")]
    pub v: u32,
}

versioned!(StateLine, "state of a verifier", STATE_VERSION);

/// The largest checkpoint that was seen of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownLog {
    /// The directory that it was seen in.
    pub dir: String,
    /// The hashes in the tiles at its edge that are not whole, from the leaves up; hex.
    pub edge: Vec<String>,
    /// The signed note.
    pub note: String,
    /// The name of the log.
    pub origin: String,
    /// SHA-256 of the public key that signed, 64 hex digits.
    pub signer: String,
}

/// The pack that was seen of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownPack {
    /// SHA-256 of its manifest, 64 hex digits.
    pub manifest_sha256: String,
    /// The session.
    pub session_id: SessionId,
}

/// What a remembered note states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// Lines.
    pub size: u64,
    /// Hashes at the edge of their tree.
    pub levels: Vec<Vec<Hash>>,
}

impl KnownLog {
    /// What it states; `None` if its members do not fit each other.
    #[must_use]
    pub fn remembered(&self) -> Option<Remembered> {
        let text = &self.note[..=self.note.rfind("\n\n")?];
        let (origin, size, root) = read_text(text)?;
        let level = |text: &String| Some(hex::decode(text).ok()?.as_chunks::<32>().0.to_vec());
        let levels = self.edge.iter().map(level).collect::<Option<Vec<_>>>()?;
        let fits = origin == self.origin && tiles::fits(size, &levels) && tiles::root(&levels) == root;
        fits.then_some(Remembered { size, levels })
    }

    /// Hashes as a line has them.
    #[must_use]
    pub fn edge(levels: &[Vec<Hash>]) -> Vec<String> {
        levels.iter().map(|level| hex::encode(level.concat())).collect()
    }
}

/// A file of such lines, read.
#[derive(Debug, Clone, Default)]
pub struct State {
    path: PathBuf,
    logs: BTreeMap<(String, String), KnownLog>,
    packs: BTreeMap<SessionId, KnownPack>,
    is_changed: bool,
}

impl State {
    /// Reads the file; one that is not there remembers nothing. It must not lie in `dir`, which is verified.
    ///
    /// # Errors
    /// [`VerifyError::Option`]: a line that does not read, or a place that must not be.
    pub fn read(path: &Path, dir: &Path) -> Result<Self, VerifyError> {
        let io = |source| VerifyError::Io { path: path.to_owned(), source };
        let refuse = |what: String| VerifyError::Option(format!("--state {}: {what}", path.display()));
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (parent, dir) = (parent.canonicalize().map_err(io)?, dir.canonicalize().unwrap_or_else(|_| dir.to_owned()));
        if parent.starts_with(&dir) {
            return Err(refuse("it lies in what is verified: whoever changes that could change it as well".into()));
        }
        let mut state = Self { path: path.to_owned(), ..Self::default() };
        let bytes = match plain::named(path).and_then(|file| plain::read_all(file, MAX_STATE)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(state),
            Err(e) => return Err(io(e)),
        };
        for (n, line) in bytes.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
            let line = match reading::read::<StateLine>(line) {
                Reading::Readable(line) => line,
                Reading::TooNew(e) => return Err(refuse(format!("line {}: {e}", n + 1))),
                Reading::Damaged(why) => return Err(refuse(format!("line {}: {why}", n + 1))),
            };
            if line.log.as_ref().is_some_and(|log| log.remembered().is_none()) {
                return Err(refuse(format!("line {}: it does not remember what its note states", n + 1)));
            }
            line.log.map(|log| state.logs.insert((log.origin.clone(), log.signer.clone()), log));
            line.pack.map(|pack| state.packs.insert(pack.session_id, pack));
        }
        Ok(state)
    }

    /// The logs.
    pub fn logs(&self) -> impl Iterator<Item = &KnownLog> {
        self.logs.values()
    }

    /// The pack of a session.
    #[must_use]
    pub fn pack(&self, session: SessionId) -> Option<&KnownPack> {
        self.packs.get(&session)
    }

    /// Remembers a log; what was remembered of it is replaced.
    pub fn log(&mut self, log: KnownLog) {
        let before = self.logs.insert((log.origin.clone(), log.signer.clone()), log.clone());
        self.is_changed |= before != Some(log);
    }

    /// Remembers the pack of a session, unless one is known.
    pub fn seen(&mut self, pack: KnownPack) {
        if !self.packs.contains_key(&pack.session_id) {
            self.is_changed = true;
            self.packs.insert(pack.session_id, pack);
        }
    }

    /// Compares a pack with the one that is remembered of its session, and remembers one that is authentic where none is. What
    /// is TAMPERED or UNTRUSTED says nothing about anybody's session.
    pub fn judge(&mut self, report: &mut VerifyReport) {
        let facts = &report.facts;
        let (Some(doc), Some(manifest)) = (&facts.session, &facts.pack_manifest_sha256) else { return };
        if report.signer.verdict == SignerVerdict::Untrusted
            || !report.signature_holds()
            || report.exit() == Exit::Failed
        {
            return;
        }
        let pack = KnownPack { manifest_sha256: manifest.clone(), session_id: doc.session_id };
        report.memory = Some(match self.pack(doc.session_id) {
            None => Memory::FirstSeen,
            Some(known) if *known == pack => Memory::Consistent,
            Some(known) => {
                let what = "you saw another pack of this session";
                let finding = Finding::new(FORK, Stage::VerifySignature, what).file(MANIFEST);
                report.errors.push(finding.sides(&known.manifest_sha256, &pack.manifest_sha256));
                Memory::Fork
            }
        });
        if report.authentic() {
            self.seen(pack);
        }
    }

    /// Writes it, if anything is new.
    ///
    /// # Errors
    /// An I/O error; the file is then as it was.
    pub fn write(&self) -> io::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let logs = self.logs.values().map(|log| StateLine { log: Some(log.clone()), pack: None, v: STATE_VERSION });
        let packs = self.packs.values().map(|pack| StateLine { log: None, pack: Some(pack.clone()), v: STATE_VERSION });
        let mut bytes = Vec::new();
        for line in logs.chain(packs) {
            bytes.extend(to_line(&line)?);
            bytes.push(b'\n');
        }
        plain::replace(&self.path, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::checkpoint::text_of, tiles::Edge};

    fn known(size: u64) -> KnownLog {
        let mut edge = Edge::default();
        (0..size).for_each(|n| edge.push([n as u8; 32], &mut drop));
        KnownLog {
            dir: "/d".into(),
            edge: KnownLog::edge(edge.levels()),
            note: format!("{}\n\u{2014} o x\n", text_of("o", size, &edge.root())),
            origin: "o".into(),
            signer: "s".into(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is_taken() {
        let (tmp, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = tmp.path().join("state");
        let mut state = State::read(&path, dir.path()).unwrap();
        state.write().unwrap();
        assert!(!path.exists(), "nothing is new");
        let pack = |hash: &str| KnownPack { manifest_sha256: hash.into(), session_id: SessionId::from_bits(1) };
        state.log(known(300));
        state.log(known(700));
        state.seen(pack("a"));
        state.seen(pack("b"));
        state.write().unwrap();
        let again = State::read(&path, dir.path()).unwrap();
        assert_eq!(again.logs().collect::<Vec<_>>(), [&known(700)]);
        assert_eq!(again.logs().next().unwrap().remembered().unwrap().size, 700);
        assert_eq!(again.pack(SessionId::from_bits(1)), Some(&pack("a")));
        let text = std::fs::read_to_string(&path).unwrap();
        for bad in [
            text.replace("\"v\":1", "\"v\":2"),
            text.replace("\"v\":1", "\"v\":0"),
            text.replace("o\\n700", "o\\n701"),
            text.replace("\"origin\":\"o\"", "\"origin\":\"p\""),
            "x\n".into(),
        ] {
            std::fs::write(&path, &bad).unwrap();
            assert!(matches!(State::read(&path, dir.path()), Err(VerifyError::Option(_))), "{bad}");
        }
        for inside in ["state", "sub/state"] {
            std::fs::create_dir_all(dir.path().join("sub")).unwrap();
            assert!(State::read(&dir.path().join(inside), dir.path()).is_err());
        }
    }
}
