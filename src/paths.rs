//! Directories and permissions: the audit directory, the user directory, and how files in them are made (docs/formats.md, "Directories").

pub use crate::files::{sync_dir, write_new};

use crate::{
    files::{self, Tree},
    model::{SessionId, WallTime, ledger, pack},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Default audit directory, relative to the working directory.
pub const DEFAULT_AUDIT_DIR: &str = ".assay/mcp";

/// What the directory of a pack is called, before the stem of its session.
pub const PACK_PREFIX: &str = "proof_pack_";

/// The variable that names the audit directory where no option does.
pub const AUDIT_DIR_VARIABLE: &str = "ASSAY_AUDIT_DIR";

/// The audit directory that the environment names.
#[must_use]
pub fn audit_dir_of_environment() -> Option<PathBuf> {
    std::env::var_os(AUDIT_DIR_VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Something about a directory that keeps us from using it.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// It exists and is not a directory.
    #[error("{0} is not a directory")]
    NotADirectory(PathBuf),
    /// It is there and not as we would have made it: a link, or other users may write to it.
    #[error("{0}")]
    NotOurs(String),
    /// It cannot be made, opened or written.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Neither `ASSAY_HOME` nor a home directory is known.
    #[error("no home directory: set HOME, to an absolute path, or ASSAY_HOME")]
    NoHome,
}

impl PathError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            if files::is_refusal(&source) { Self::NotOurs(source.to_string()) } else { Self::Io { path, source } }
        }
    }
}

/// The user directory: `$ASSAY_HOME`, else `~/.assay`.
///
/// # Errors
/// [`PathError::NoHome`].
pub fn assay_home() -> Result<PathBuf, PathError> {
    if let Some(home) = std::env::var_os("ASSAY_HOME").filter(|h| !h.is_empty()) {
        return Ok(PathBuf::from(home));
    }
    home().map(|h| h.join(".assay")).ok_or(PathError::NoHome)
}

/// The name of this user, as the environment says it, or its number.
#[must_use]
pub fn user_name() -> String {
    let named = ["LOGNAME", "USER"].into_iter().find_map(|v| std::env::var(v).ok().filter(|n| !n.is_empty()));
    named.unwrap_or_else(|| format!("uid {}", rustix::process::geteuid().as_raw()))
}

/// The user's home. A relative one is not taken: it would depend on the working directory, where others may have
/// written.
#[must_use]
pub fn home() -> Option<PathBuf> {
    etcetera::home_dir().ok().filter(|home| home.is_absolute())
}

/// In front of an audit directory that is below the root of a repository.
pub const IN_REPOSITORY: &str = "repo:";

/// The root of the repository that a directory is in: the nearest one above it, or itself, that has `.git`.
#[must_use]
pub fn repository(dir: &Path) -> Option<&Path> {
    dir.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())
}

/// Whether an option names an audit directory as `repo:DIR`.
#[must_use]
pub fn is_in_repository(named: &Path) -> bool {
    named.to_str().is_some_and(|named| named.starts_with(IN_REPOSITORY))
}

/// The audit directory that an option names, and the directory below which it must not lead through links. `repo:DIR` is
/// below the root of the repository that the working directory is in, and outside one it is `~/.assay/mcp`: clients start
/// servers wherever they were started themselves.
///
/// # Errors
/// A `DIR` that leads out of the repository.
pub fn named_audit_dir(named: &Path) -> Result<(PathBuf, PathBuf), String> {
    let home = home().map_or_else(|| PathBuf::from(DEFAULT_AUDIT_DIR), |home| home.join(DEFAULT_AUDIT_DIR));
    named_from(named, std::env::current_dir().unwrap_or_default(), home)
}

fn named_from(named: &Path, here: PathBuf, home: PathBuf) -> Result<(PathBuf, PathBuf), String> {
    use std::path::Component;
    let Some(below) = named.to_str().and_then(|named| named.strip_prefix(IN_REPOSITORY)) else {
        return Ok((named.to_owned(), here));
    };
    let below = Path::new(below);
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !below.components().all(plain) || !below.components().any(|part| matches!(part, Component::Normal(_))) {
        return Err(format!(
            "--audit-dir {}: expected a directory below the repository, as in repo:{DEFAULT_AUDIT_DIR}",
            named.display()
        ));
    }
    Ok(match repository(&here) {
        Some(root) => (root.join(below), root.to_owned()),
        None => (home, here),
    })
}

/// Makes `dir` and its parents, 0700 for everything that is new; existing ones are left as they are.
///
/// # Errors
/// A parent that is a file, or what the system says.
pub fn create_private_dir(dir: &Path) -> Result<(), PathError> {
    match files::make_dirs(dir) {
        Ok(()) => Ok(()),
        Err(_) if dir.exists() && !dir.is_dir() => Err(PathError::NotADirectory(dir.to_owned())),
        Err(e) => {
            let file = dir.ancestors().skip(1).find(|a| a.exists()).filter(|a| !a.is_dir());
            Err(file.map_or_else(|| PathError::io(dir)(e), |f| PathError::NotADirectory(f.to_owned())))
        }
    }
}

/// Writes a new file of the user's, 0600, in a directory that is made, under a name that tells the time.
///
/// # Errors
/// The system's error.
pub fn write_dated(dir: &Path, extension: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    create_private_dir(dir).map_err(io::Error::other)?;
    let stem = WallTime::now().compact();
    for n in 0..100 {
        let path = dir.join(format!("{stem}-{n}.{extension}"));
        match write_new(&path, bytes) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            written => return written.map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The file of a pack that has the lines of this journal, wherever its session stands; `None` for what is no journal.
#[must_use]
pub fn in_pack(journal: &Path) -> Option<PathBuf> {
    let dir = journal.parent()?;
    let (kind, rest) = journal.file_name()?.to_str()?.split_once('_')?;
    let file = match (dir.file_name()?.to_str()?, kind) {
        ("audit", "segment") => pack::AUDIT_LOG,
        ("audit", "checkpoints") => pack::CHECKPOINTS,
        ("receipts", "session") => pack::RECEIPTS,
        _ => return None,
    };
    let stem = rest.strip_suffix(".jsonl")?;
    Some(dir.parent()?.join("packs").join(format!("{PACK_PREFIX}{stem}")).join(file))
}

/// Opens a journal to read it; once its session is sealed, what the pack has in its place.
///
/// # Errors
/// A refusal, or an I/O error.
pub fn open_journal(path: &Path) -> io::Result<File> {
    match files::plain(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => in_pack(path).map_or(Err(e), |there| files::plain(&there)),
        opened => opened,
    }
}

/// An audit directory: where everything is that docs/formats.md lists under "Directories". Holding one says nothing about what exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditDir {
    files: Tree,
    /// The user directory that remembers what was recorded here.
    home: Option<PathBuf>,
}

impl AuditDir {
    /// The audit directory at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { files: Tree::at(root), home: None }
    }

    /// The same; what was recorded here is remembered in this user directory. Without one nothing is known to be ours.
    #[must_use]
    pub fn remembered_in(mut self, home: Option<PathBuf>) -> Self {
        self.home = home;
        self
    }

    /// The same, remembered in the user's own directory.
    #[must_use]
    pub fn of_user(self) -> Self {
        let home = assay_home().and_then(|home| std::path::absolute(&home).map_err(PathError::io(&home)));
        self.remembered_in(home.ok())
    }

    /// The user directory that remembers it.
    #[must_use]
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// An audit directory that must not be used, and why.
    #[must_use]
    pub fn refused(root: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self { files: Tree::refused(root, why), home: None }
    }

    /// The audit directory that was named, or the default one: see [`named_audit_dir`] and [`files::reach`].
    ///
    /// # Errors
    /// [`PathError::NotOurs`] for a link that is not followed, or what the system says.
    pub fn reach(named: &Path) -> Result<Self, PathError> {
        let (dir, below) = named_audit_dir(named).map_err(PathError::NotOurs)?;
        files::reach_from(&dir, &below).map(Self::at).map_err(PathError::io(&dir))
    }

    /// Makes it and its parts, 0700. Whatever of it is there must be ours, also the parts that are made on first use.
    ///
    /// # Errors
    /// [`PathError`]; [`PathError::NotADirectory`] only for the directory itself and its parents.
    pub fn create(&self) -> Result<(), PathError> {
        let root = self.root();
        create_private_dir(root)?;
        for dir in [self.receipts(), self.audit(), self.packs(), self.live()] {
            self.files.make_dir(&dir).map_err(PathError::io(root))?;
        }
        for dir in [self.investigation(), self.surface(), self.policies()] {
            match self.files.dir(&dir) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(PathError::io(root)(e)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The audit directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.files.root()
    }

    /// How everything in it is opened.
    #[must_use]
    pub const fn files(&self) -> &Tree {
        &self.files
    }

    /// Directory of the receipts: `receipts/`.
    #[must_use]
    pub fn receipts(&self) -> PathBuf {
        self.root().join("receipts")
    }

    /// Directory of the chain: `audit/`.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.root().join("audit")
    }

    /// The ledger: `audit/ledger.jsonl`.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.audit().join("ledger.jsonl")
    }

    /// `audit/log/`: the ledger as a log, its tiles and its signed checkpoint; made on first use.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.audit().join("log")
    }

    /// `investigation/`; made on first use.
    #[must_use]
    pub fn investigation(&self) -> PathBuf {
        self.root().join("investigation")
    }

    /// Directory of the packs: `packs/`.
    #[must_use]
    pub fn packs(&self) -> PathBuf {
        self.root().join("packs")
    }

    /// `surface/`; made on first use.
    #[must_use]
    pub fn surface(&self) -> PathBuf {
        self.root().join("surface")
    }

    /// `surface/approvals.jsonl`: the decisions about surfaces.
    #[must_use]
    pub fn approvals(&self) -> PathBuf {
        self.surface().join("approvals.jsonl")
    }

    /// `surface/items/`: what was decided about, by its hash.
    #[must_use]
    pub fn surface_items(&self) -> PathBuf {
        self.surface().join("items")
    }

    /// `policy/`: snapshots of every policy that was in force; made on first use.
    #[must_use]
    pub fn policies(&self) -> PathBuf {
        self.root().join("policy")
    }

    /// `policy/policy_sha256_<hex>.yaml`: the snapshot of the policy with this `sha256:` hash.
    #[must_use]
    pub fn policy(&self, hash: &str) -> PathBuf {
        self.policies().join(pack::policy_file(hash))
    }

    /// Directory of the cards: `live/`.
    #[must_use]
    pub fn live(&self) -> PathBuf {
        self.root().join("live")
    }

    /// The files of one session.
    #[must_use]
    pub fn session(&self, started: WallTime, id: SessionId) -> SessionPaths {
        SessionPaths::new(self, &format!("{}_{}", started.compact(), id.hex()), id)
    }

    /// The files of the session whose segment has this file name; `None` if it is not the name of a segment.
    #[must_use]
    pub fn session_of_segment(&self, file_name: &str) -> Option<SessionPaths> {
        let (stem, id) = ledger::session_of_segment(file_name)?;
        Some(SessionPaths::new(self, stem, id))
    }

    /// The files of the session whose pack has this name; `None` if it is not the name of a pack.
    #[must_use]
    pub fn session_of_pack(&self, name: &str) -> Option<SessionPaths> {
        self.session_of_segment(&format!("segment_{}.jsonl", name.strip_prefix(PACK_PREFIX)?))
    }

    /// The sessions that have a segment or a pack, by their stems, the oldest first; none where nothing can be read.
    #[must_use]
    pub fn sessions(&self) -> BTreeMap<String, SessionPaths> {
        let names = |dir: &Path| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(|e| e.file_name().into_string().ok())
        };
        let packed = names(&self.packs()).filter_map(|name| self.session_of_pack(&name));
        let all = packed.chain(names(&self.audit()).filter_map(|name| self.session_of_segment(&name)));
        all.map(|paths| (paths.stem.clone(), paths)).collect()
    }
}

/// Where the files of one session are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPaths {
    /// How they are opened.
    pub files: Tree,
    /// Id of the session.
    pub id: SessionId,
    /// `<UTC>_<session>`, as it appears in every file name.
    pub stem: String,
    /// `audit/segment_<stem>.jsonl`.
    pub segment: PathBuf,
    /// `audit/checkpoints_<stem>.jsonl`.
    pub checkpoints: PathBuf,
    /// `receipts/session_<stem>.jsonl`.
    pub receipts: PathBuf,
    /// `investigation/session_<stem>.jsonl`.
    pub investigation: PathBuf,
    /// `surface/observed_<stem>.json`: the server's surface as this session saw it.
    pub surface: PathBuf,
    /// `packs/proof_pack_<stem>/`.
    pub pack: PathBuf,
    /// `live/<hex>.json`: the card of a live session, also what recovery starts from.
    pub card: PathBuf,
    /// `live/<hex>.c2s.spool` and `.s2c.spool`: a message too big for memory, while it crosses.
    pub spools: [PathBuf; 2],
}

impl SessionPaths {
    /// What a pack has as well, so that it goes when that stands: the segment last, for a session is found by it.
    #[must_use]
    pub const fn journal(&self) -> [&PathBuf; 3] {
        [&self.receipts, &self.checkpoints, &self.segment]
    }

    /// Where the chain of the session is: in its segment, or since that went, in its pack.
    #[must_use]
    pub fn chain(&self) -> PathBuf {
        let gone = !self.files.exists(&self.segment);
        in_pack(&self.segment).filter(|there| gone && self.files.exists(there)).unwrap_or_else(|| self.segment.clone())
    }

    fn new(dir: &AuditDir, stem: &str, id: SessionId) -> Self {
        let live = dir.live();
        Self {
            files: dir.files.clone(),
            id,
            stem: stem.to_owned(),
            segment: dir.audit().join(format!("segment_{stem}.jsonl")),
            checkpoints: dir.audit().join(format!("checkpoints_{stem}.jsonl")),
            receipts: dir.receipts().join(format!("session_{stem}.jsonl")),
            investigation: dir.investigation().join(format!("session_{stem}.jsonl")),
            surface: dir.surface().join(format!("observed_{stem}.json")),
            pack: dir.packs().join(format!("{PACK_PREFIX}{stem}")),
            card: live.join(format!("{}.json", id.hex())),
            spools: [live.join(format!("{}.c2s.spool", id.hex())), live.join(format!("{}.s2c.spool", id.hex()))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directories_are_private_and_a_file_in_the_way_is_named() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path().join("a/b"));
        dir.create().unwrap();
        for d in [tmp.path().join("a"), dir.receipts(), dir.live()] {
            assert_eq!(d.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        let file = tmp.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for (at, culprit) in [(file.clone(), &file), (file.join("sub"), &file)] {
            let err = AuditDir::at(at).create().unwrap_err();
            assert_eq!(err.to_string(), format!("{} is not a directory", culprit.display()));
        }
    }

    #[test]
    fn a_directory_in_the_repository_is_the_same_from_everywhere_in_it() {
        let tmp = tempfile::tempdir().unwrap();
        let (root, sub) = (tmp.path().join("r"), tmp.path().join("r/a/b"));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::create_dir(root.join(".git")).unwrap();
        let home = PathBuf::from("/h/.assay/mcp");
        let from = |named: &str, here: &Path| {
            named_from(Path::new(named), here.to_owned(), home.clone()).map(|(dir, below)| {
                let reached = files::reach_from(&dir, &below).map_err(|e| e.to_string());
                (dir, reached.err())
            })
        };
        for here in [&root, &sub] {
            assert_eq!(from("repo:.assay/mcp", here), Ok((root.join(".assay/mcp"), None)));
        }
        assert_eq!(from("repo:.assay/mcp", tmp.path()), Ok((home.clone(), None)));
        assert_eq!(from("./repo:x", &sub).unwrap().0, PathBuf::from("./repo:x"));
        for bad in ["repo:", "repo:../x", "repo:/x", "repo:a/../../x", "repo:."] {
            assert!(from(bad, &sub).is_err(), "{bad}");
        }
        // What came with the repository leads nowhere else.
        std::os::unix::fs::symlink(tmp.path(), root.join("link")).unwrap();
        for here in [&root, &sub] {
            assert!(from("repo:link/x", here).unwrap().1.is_some_and(|e| e.contains("symbolic link")));
        }
        // A worktree has a file of that name.
        std::fs::write(sub.join(".git"), "gitdir: elsewhere").unwrap();
        assert_eq!(from("repo:x", &sub), Ok((sub.join("x"), None)));
    }

    #[test]
    fn a_journal_leads_to_the_file_of_its_pack_and_nothing_else_does() {
        let paths = AuditDir::at("/x").session(WallTime::from_millis(0), SessionId::from_bits(5));
        assert_eq!(in_pack(&paths.segment), Some(paths.pack.join("audit_log.jsonl")));
        assert_eq!(in_pack(&paths.receipts), Some(paths.pack.join("receipt_pack.jsonl")));
        assert_eq!(in_pack(&paths.checkpoints), Some(paths.pack.join("checkpoints.jsonl")));
        let not = [&*paths.investigation, &paths.surface, &paths.card, Path::new("segment_x.jsonl"), Path::new("/")];
        assert!(not.iter().all(|path| in_pack(path).is_none()));
        let name = paths.pack.file_name().unwrap().to_str().unwrap();
        assert_eq!(AuditDir::at("/x").session_of_pack(name), Some(paths.clone()));
    }

    #[test]
    fn a_segment_name_leads_to_its_session_and_nothing_else_does() {
        let dir = AuditDir::at("/x");
        let paths = dir.session(WallTime::from_millis(0), SessionId::from_bits(5));
        assert_eq!(dir.session_of_segment("segment_19700101T000000Z_0000000000000005.jsonl"), Some(paths));
        for bad in
            ["segment_x_0000000000000005.jsonl", "segment_19700101T000000Z_../../../../etc.jsonl", "ledger.jsonl"]
        {
            assert_eq!(dir.session_of_segment(bad), None, "{bad}");
        }
    }
}
