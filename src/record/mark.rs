//! Marks: what this user's recorder remembers of the sessions that it began, one file each in the user directory.
//!
//! An audit directory may come from somebody else (a cloned repository), so nothing that is in it says whose it is. A
//! session is ours if the user directory has its mark: written before its card, removed when its pack is published.
//! Recovery signs nothing without one.

use crate::{
    files::Tree,
    model::{
        SessionId, WallTime,
        reading::{self, Reading, TooNew, versioned},
    },
    paths::{self, AuditDir},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Format version of a mark.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const MARK_VERSION: u32 = 1;

/// Bytes of a remembered file that are read.
const MAX_BYTES: u64 = 64 << 10;
/// States of the surface that a mark knows: the one on disk, and the one that is taking its place.
const SURFACES: usize = 2;

/// Identifies a directory by its path and by what the file system calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryPlace {
    /// Device number of the directory.
    pub dev: u64,
    /// Inode number of the directory.
    pub ino: u64,
    /// Its canonical path; `bytes:` and hex digits where that is not UTF-8.
    pub path: String,
}

impl DirectoryPlace {
    /// The place of an audit directory.
    ///
    /// # Errors
    /// An I/O error.
    pub fn of(root: &Path) -> io::Result<Self> {
        let canonical = root.canonicalize()?;
        let meta = canonical.metadata()?;
        let path = match canonical.to_str() {
            Some(path) => path.to_owned(),
            None => format!("bytes:{}", hex::encode(canonical.as_os_str().as_encoded_bytes())),
        };
        Ok(Self { dev: meta.dev(), ino: meta.ino(), path })
    }

    /// Whether it is the same directory, also after it was moved (the path is another) or mounted again (the device
    /// is). A copy is another directory, wherever it is.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.ino == other.ino && (self.dev == other.dev || self.path == other.path)
    }
}

/// The content of a mark, the file `sessions/<session>.json` in the user directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The audit directory that the session is recorded in.
    pub audit_dir: DirectoryPlace,
    /// Hash of its `chain_start` event; `null` until there is one.
    pub chain_start: Option<String>,
    /// Id of the session.
    pub session_id: SessionId,
    /// When the session began, wall clock.
    pub started_at: WallTime,
    /// SHA-256 of the surface that was written last, and of the one before; empty until there is one.
    pub surfaces: Vec<String>,
    /// Format version of the mark, [`MARK_VERSION`].
    #[serde(deserialize_with = "reading::known::<Mark, _>")]
    pub v: u32,
}

versioned!(Mark, "session mark", MARK_VERSION);

/// Why a session is not taken for one of this user's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOurs {
    /// No user directory is known.
    #[error("there is no user directory that could have its mark: set HOME or ASSAY_HOME")]
    NoHome,
    /// It has no mark.
    #[error("{} has no mark of it", .0.display())]
    NoMark(PathBuf),
    /// Its mark does not read.
    #[error("its mark {} cannot be read: {why}", .path.display())]
    Unreadable {
        /// Path of the mark.
        path: PathBuf,
        /// What is wrong, as text for people.
        why: String,
    },
    /// Its mark is of a later version.
    #[error("its mark {}: {source}", .path.display())]
    TooNew {
        /// Path of the mark.
        path: PathBuf,
        /// What is known of it.
        source: TooNew,
    },
    /// It began in another directory.
    #[error("it was begun in another directory, {0}: this is a copy")]
    Elsewhere(String),
    /// The chain here does not begin as it did.
    #[error("its chain does not begin with the event that the mark names")]
    OtherStart,
}

impl AuditDir {
    /// What the user directory remembers of sessions; `None` where there is no user directory.
    #[must_use]
    pub fn marks(&self) -> Option<Marks> {
        self.home().map(Marks::of)
    }

    /// The mark of a session that was begun here by this user.
    ///
    /// # Errors
    /// [`NotOurs`].
    pub fn mark(&self, session: SessionId) -> Result<Mark, NotOurs> {
        self.marks().ok_or(NotOurs::NoHome)?.of_session(self, session)
    }
}

/// The marks of one user.
#[derive(Debug, Clone)]
pub struct Marks {
    home: Tree,
    dir: PathBuf,
}

impl Marks {
    /// The marks in a user directory.
    #[must_use]
    pub fn of(home: &Path) -> Self {
        Self { home: Tree::at(home), dir: home.join("sessions") }
    }

    /// The file of a session.
    #[must_use]
    pub fn path(&self, session: SessionId) -> PathBuf {
        self.dir.join(format!("{}.json", session.hex()))
    }

    /// Remembers a session that begins.
    ///
    /// # Errors
    /// An I/O error.
    pub fn begin(&self, dir: &AuditDir, session: SessionId, started_at: WallTime) -> io::Result<()> {
        let audit_dir = DirectoryPlace::of(dir.root())?;
        let mark = Mark {
            audit_dir,
            chain_start: None,
            session_id: session,
            started_at,
            surfaces: Vec::new(),
            v: MARK_VERSION,
        };
        self.write(&mark, false)
    }

    /// Writes a mark; a reader sees all of it or the one before. `sync` makes that hold after a power cut, too.
    ///
    /// # Errors
    /// An I/O error.
    pub fn write(&self, mark: &Mark, sync: bool) -> io::Result<()> {
        replace(&self.home, &self.path(mark.session_id), mark, sync)
    }

    /// Remembers how the chain of a session begins; before its first event is on disk.
    ///
    /// # Errors
    /// An I/O error.
    pub fn chain_start(&self, dir: &AuditDir, session: SessionId, started_at: WallTime, hash: &str) -> io::Result<()> {
        let mut mark = match self.of_session(dir, session) {
            Ok(mark) => mark,
            Err(NotOurs::TooNew { source, .. }) => return Err(source.into()),
            Err(_) => {
                self.begin(dir, session, started_at)?;
                self.of_session(dir, session).map_err(io::Error::other)?
            }
        };
        mark.chain_start = Some(hash.to_owned());
        self.write(&mark, true)
    }

    /// Remembers the surface that is about to be written.
    ///
    /// # Errors
    /// An I/O error, or that there is no mark.
    pub fn surface(&self, dir: &AuditDir, session: SessionId, sha256: String) -> io::Result<()> {
        let mut mark = self.of_session(dir, session).map_err(io::Error::other)?;
        mark.surfaces.retain(|known| *known != sha256);
        mark.surfaces.insert(0, sha256);
        mark.surfaces.truncate(SURFACES);
        self.write(&mark, false)
    }

    /// The mark of a session of this audit directory.
    ///
    /// # Errors
    /// [`NotOurs`].
    pub fn of_session(&self, dir: &AuditDir, session: SessionId) -> Result<Mark, NotOurs> {
        let path = self.path(session);
        let unreadable = |why: String| NotOurs::Unreadable { path: path.clone(), why };
        let bytes = match read_own(&self.home, &path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(NotOurs::NoMark(self.dir.clone())),
            Err(e) => return Err(unreadable(e.to_string())),
        };
        let mark = match reading::read::<Mark>(&bytes) {
            Reading::Readable(mark) if mark.session_id == session => mark,
            Reading::Readable(_) => return Err(unreadable("it belongs to another session".to_owned())),
            Reading::TooNew(source) => return Err(NotOurs::TooNew { path, source }),
            Reading::Damaged(why) => return Err(unreadable(why)),
        };
        let here = DirectoryPlace::of(dir.root()).map_err(|e| unreadable(e.to_string()))?;
        if here.is(&mark.audit_dir) { Ok(mark) } else { Err(NotOurs::Elsewhere(mark.audit_dir.path)) }
    }

    /// Removes the mark of a session that is over: nothing is signed for it again.
    pub fn forget(&self, session: SessionId) {
        let _ = self.home.remove(&self.path(session));
    }

    /// Sessions of this audit directory that have a mark.
    #[must_use]
    pub fn of_dir(&self, dir: &AuditDir) -> Vec<Mark> {
        let names = self.home.names(&self.dir).unwrap_or_default();
        let session =
            |name: &str| SessionId::parse(&format!("{}{}", SessionId::PREFIX, name.strip_suffix(".json")?)).ok();
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        names.filter_map(|name| self.of_session(dir, session(&name)?).ok()).collect()
    }
}

/// What the user directory holds under `path`, which is in one of its directories; bounded.
///
/// # Errors
/// An I/O error; a refusal for what is not a plain file of ours.
pub(super) fn read_own(home: &Tree, path: &Path) -> io::Result<Vec<u8>> {
    home.read(path, MAX_BYTES)
}

/// Puts a document in the place of the one before.
///
/// # Errors
/// An I/O error; the one before it then stays.
pub(super) fn replace<T: Serialize>(home: &Tree, path: &Path, document: &T, sync: bool) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    paths::create_private_dir(home.root()).map_err(io::Error::other)?;
    home.make_dir(dir)?;
    let staged = path.with_extension(format!("{}.new", std::process::id()));
    let mut bytes = serde_json::to_vec(document)?;
    bytes.push(b'\n');
    home.replace(&staged, path, &bytes, sync)?;
    if sync { paths::sync_dir(dir) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (tempfile::TempDir, Marks, AuditDir) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path().join("audit"));
        dir.create().unwrap();
        let marks = Marks::of(&tmp.path().join("home"));
        (tmp, marks, dir)
    }

    #[test]
    fn a_mark_holds_for_its_directory_also_moved_and_for_no_copy() {
        let (tmp, marks, dir) = two();
        let id = SessionId::from_bits(7);
        assert!(matches!(marks.of_session(&dir, id), Err(NotOurs::NoMark(_))));
        marks.begin(&dir, id, WallTime::from_millis(0)).unwrap();
        marks.chain_start(&dir, id, WallTime::from_millis(0), "ab").unwrap();
        for n in ["1", "2", "3", "2"] {
            marks.surface(&dir, id, n.to_owned()).unwrap();
        }
        let mark = marks.of_session(&dir, id).unwrap();
        assert_eq!((mark.chain_start.as_deref(), mark.surfaces), (Some("ab"), vec!["2".to_owned(), "3".to_owned()]));
        let moved = AuditDir::at(tmp.path().join("moved"));
        std::fs::rename(dir.root(), moved.root()).unwrap();
        assert!(marks.of_session(&moved, id).is_ok());
        // The place is taken by a copy.
        dir.create().unwrap();
        assert!(matches!(marks.of_session(&dir, id), Err(NotOurs::Elsewhere(_))));
        assert_eq!((marks.of_dir(&moved).len(), marks.of_dir(&dir).len()), (1, 0));
        marks.forget(id);
        assert!(matches!(marks.of_session(&moved, id), Err(NotOurs::NoMark(_))));
    }

    #[test]
    fn a_mark_of_a_later_version_is_named_and_not_replaced() {
        let (_tmp, marks, dir) = two();
        let id = SessionId::from_bits(7);
        marks.begin(&dir, id, WallTime::from_millis(0)).unwrap();
        let path = marks.path(id);
        let text = std::fs::read_to_string(&path).unwrap();
        for later in ["2,\"x\":[]", "\"1.1\"", "4294967296"].map(|v| text.replace("\"v\":1", &format!("\"v\":{v}"))) {
            std::fs::write(&path, &later).unwrap();
            assert!(matches!(marks.of_session(&dir, id), Err(NotOurs::TooNew { .. })), "{later}");
            let begun = marks.chain_start(&dir, id, WallTime::from_millis(0), "ab").unwrap_err();
            assert!(TooNew::carried_by(&begun).is_some());
            assert!(marks.surface(&dir, id, "1".to_owned()).is_err());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), later);
        }
    }

    #[test]
    fn a_mark_that_is_no_plain_file_of_ours_is_none() {
        use std::os::unix::fs::PermissionsExt as _;
        let (tmp, marks, dir) = two();
        let id = SessionId::from_bits(7);
        marks.begin(&dir, id, WallTime::from_millis(0)).unwrap();
        let path = marks.path(id);
        let text = std::fs::read_to_string(&path).unwrap();
        let refused = || matches!(marks.of_session(&dir, id), Err(NotOurs::Unreadable { .. }));
        std::fs::write(&path, text.replace("\"v\":1", "\"v\":0")).unwrap();
        assert!(refused());
        std::fs::write(&path, text.replace("mcp_0000000000000007", "mcp_0000000000000008")).unwrap();
        assert!(refused());
        std::fs::write(&path, vec![b' '; 70 << 10]).unwrap();
        assert!(refused());
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert!(refused());
        std::fs::rename(&path, tmp.path().join("aside")).unwrap();
        std::os::unix::fs::symlink(tmp.path().join("aside"), &path).unwrap();
        assert!(refused());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
            .unwrap();
        assert!(refused());
    }
}
