//! The ledger as a log of C2SP: a tree over the hashes of its lines, tiles of it, and a checkpoint that the long-term key signs
//! (docs/formats.md, "The ledger as a log").
//!
//! | file | what | if it is lost or changed |
//! |---|---|---|
//! | `audit/log/origin` | the name of the log | it is made again from the ledger |
//! | `audit/log/tile/…` | the tree | likewise |
//! | `audit/log/checkpoint` | the newest signed note | the next session writes another one |
//! | `logs/….json` in the user directory | the largest checkpoint that this user signed of a log | the ledger is read as a whole |
//!
//! A log must never sign two trees of which one does not begin with the other. So the memory is written, and synced, before the
//! checkpoint, and what it says is compared before anything is signed.

use super::{
    checkpoint::Certify,
    ledger::{Back, Entry, LEDGER, Ledger},
    mark,
};
use crate::{
    files::{self, Tree},
    lines::Lines,
    model::{
        GENESIS, LedgerKind, LedgerLine, SessionId,
        checkpoint::{read_text, text_of},
        ledger::{LedgerMembers, LogName, MAX_LINE, Renewed, entry},
        line::{number, text},
        reading::{self, Reading, TooNew, versioned},
        sha256_hex,
    },
    note::{self, Key, Verifier},
    paths::AuditDir,
    text::counted,
    tiles::{Edge, Kind, Place, Tile, WIDTH, places},
    tree::{Hash, Nodes, leaf},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Format version of the file that remembers a log.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const LOG_MEMORY_VERSION: u32 = 1;

/// Bytes of the name of a log that are read.
const MAX_ORIGIN: u64 = 1 << 10;

/// `logs/<SHA-256 of the origin>.json` in the user directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMemory {
    /// The largest checkpoint that was signed, as a note.
    pub note: String,
    /// The name of the log.
    pub origin: String,
    /// Format version of the file, [`LOG_MEMORY_VERSION`].
    #[serde(deserialize_with = "reading::known::<LogMemory, _>")]
    pub v: u32,
}

versioned!(LogMemory, "memory of a log", LOG_MEMORY_VERSION);

/// Why a checkpoint was not signed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The ledger does not have what was signed, or written, before.
    #[error(
        "the ledger was rolled back: {0}; no checkpoint of it is signed. If that was you (a backup was restored), say so: \
         assay ledger renew"
    )]
    RolledBack(String),
    /// A file.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A later version remembers the log.
    #[error("{}: {source}; whether the ledger was rolled back is unknown, and no checkpoint of it is signed", .path.display())]
    TooNew {
        /// Path of the memory.
        path: PathBuf,
        /// What is known of it.
        source: TooNew,
    },
    /// The key cannot sign.
    #[error("it cannot be signed: {0}")]
    Unsigned(io::Error),
    /// The name of a log.
    #[error("{0:?} cannot be the name of a log")]
    Name(String),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LogError + use<> {
    let path = path.to_owned();
    move |source| LogError::Io { path, source }
}

/// A checkpoint as it was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The name of the log.
    pub origin: String,
    /// Lines that it covers.
    pub size: u64,
    /// The note.
    pub note: String,
    /// What lay beside the ledger did not fit it, and was made again.
    pub is_mended: bool,
}

/// A note that was signed of the log before.
struct Before {
    size: u64,
    root: Hash,
    note: String,
}

impl Before {
    /// Whoever read the note knows that it holds.
    fn of(note: &str, origin: &str) -> Option<Self> {
        let (said, size, root) = read_text(&note[..=note.rfind("\n\n")?])?;
        (said == origin && size > 0).then(|| Self { size, root, note: note.to_owned() })
    }
}

/// The tree of all lines, and the tiles of it that have to be written.
struct Built {
    edge: Edge,
    whole: Vec<Tile>,
    /// What was read of the log that was signed last was enough.
    is_quick: bool,
    /// It was not, although the log was signed before.
    is_mended: bool,
}

/// Signs a checkpoint of the ledger as it is, and writes the tiles. `holds` says whether a signature does.
///
/// # Errors
/// [`LogError`]; nothing is signed then.
pub fn sign(ledger: &Ledger, by: &dyn Certify, holds: Verifier<'_>) -> Result<Signed, LogError> {
    let dir = ledger.dir();
    if let Some(head) = ledger.lacks() {
        let what = format!("line {} of hash {}, which your recorder wrote, is not in it", head.ledger_seq, head.hash);
        return Err(LogError::RolledBack(what));
    }
    let log = Log::open(dir)?;
    let named = log.named();
    let quick = match &named {
        Some(origin) => log.memory(origin)?.map(|memory| log.go_on(ledger, &memory)).transpose()?.flatten(),
        None => None,
    };
    let (origin, built) = match (named, quick) {
        (Some(origin), Some(built)) => (origin, built),
        _ => log.build(ledger, by, holds)?,
    };
    log.put(&origin, &built, by)
}

/// Begins another log: the ledger is not what was signed before, and that is meant. The line that says so names the largest
/// checkpoint of the log before, and `reason`. `origin`: the name that the log gets, if its own line is not to name it.
///
/// # Errors
/// [`LogError`].
pub fn renew(
    dir: &AuditDir,
    by: &dyn Certify,
    reason: &str,
    origin: Option<&str>,
    holds: Verifier<'_>,
) -> Result<Signed, LogError> {
    if let Some(origin) = origin.filter(|origin| !LogName::is_free(origin)) {
        return Err(LogError::Name(origin.to_owned()));
    }
    let mut ledger = Ledger::lock(dir, None).map_err(at(&dir.ledger()))?;
    let checkpoint = {
        let log = Log::open(dir)?;
        let named = log.walk(&ledger, &mut |_, _| {})?;
        log.before(&named, by, holds)?.into_iter().max_by_key(|before| before.size).map(|before| before.note)
    };
    let renewed = Some(Renewed { checkpoint, origin: origin.map(ToOwned::to_owned) });
    let entry = Entry::new(LedgerKind::LogRenewed, None, LEDGER, GENESIS);
    ledger.append(&Entry { note: Some(reason.to_owned()), renewed, ..entry }).map_err(at(&dir.ledger()))?;
    ledger.forget_missing().map_err(at(&dir.ledger()))?;
    sign(&ledger, by, holds)
}

/// The hashes of the leaves of the first lines.
///
/// # Errors
/// [`LogError`]: also if there are fewer.
pub fn leaves(dir: &AuditDir, size: u64) -> Result<Vec<Hash>, LogError> {
    let file = dir.files().open(&dir.ledger()).map_err(at(&dir.ledger()))?;
    let mut leaves = Vec::new();
    lines_of(&file, &mut |n, entry| leaves.extend((n < size).then(|| leaf(&entry)))).map_err(at(&dir.ledger()))?;
    if leaves.len() as u64 == size { Ok(leaves) } else { Err(at(&dir.ledger())(io::ErrorKind::UnexpectedEof.into())) }
}

/// Hands out all lines of the ledger from the first on, each with its number.
///
/// # Errors
/// [`LogError::Io`].
pub fn each(dir: &AuditDir, see: &mut dyn FnMut(u64, &[u8])) -> Result<(), LogError> {
    let file = dir.files().open(&dir.ledger()).map_err(at(&dir.ledger()))?;
    each_line(&file, see).map_err(at(&dir.ledger()))
}

/// Shows a checkpoint with the signatures of witnesses, if what lies there is the same without. Who holds the ledger keeps
/// others from signing.
///
/// # Errors
/// [`LogError`].
pub fn show_cosigned(ledger: &Ledger, note: &str) -> Result<(), LogError> {
    let log = Log::open(ledger.dir())?;
    let there = log.dir.files().read(&log.path("checkpoint"), note::MAX_NOTE as u64);
    let is_same = there.is_ok_and(|there| note.as_bytes().starts_with(&there));
    if is_same { log.write("checkpoint", note.as_bytes()) } else { Ok(()) }
}

/// The key that a witness, or whoever verifies the log, is given. It reads the ledger, and changes nothing.
///
/// # Errors
/// [`LogError`].
pub fn verifier_key(dir: &AuditDir, public: [u8; 32]) -> Result<Key, LogError> {
    let file = dir.files().open(&dir.ledger()).map_err(at(&dir.ledger()))?;
    let origin = lines_of(&file, &mut |_, _| {}).map_err(at(&dir.ledger()))?;
    Key::new(&origin, public).ok_or(LogError::Name(origin))
}

/// The line about the end of a session, and where it stands in the tree that was signed last.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The line, without its line feed.
    pub line: Vec<u8>,
    /// Its number, from 0.
    pub index: u64,
    /// Roots of the subtrees beside it.
    pub path: Vec<Hash>,
    /// The signed note.
    pub note: String,
}

/// The line of the ledger about the end of a session, with what proves it to whoever has the note: the first note that witnesses
/// signed, then the newest one. None if there is no such line, or nobody has signed it yet. Whether the notes are signed is not
/// looked at. It reads, and changes nothing.
///
/// # Errors
/// [`LogError::Io`].
pub fn ended(dir: &AuditDir, session: SessionId) -> Result<Vec<Ended>, LogError> {
    let newest = match dir.files().read(&dir.log().join("checkpoint"), note::MAX_NOTE as u64) {
        Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(at(&dir.log())(e)),
    };
    let (mut leaves, mut found, mut anchor, wanted) = (Vec::new(), None, None, session.to_string());
    each(dir, &mut |n, bytes| {
        leaves.push(leaf(&entry(bytes)));
        let members = LedgerMembers::of_line(bytes).unwrap_or_default();
        let kind = text(members.kind).unwrap_or_default();
        if kind == LedgerKind::SegmentEnd.as_str() && text(members.session_id).as_deref() == Some(&*wanted) {
            found = Some((n, bytes.to_vec()));
        } else if kind == LedgerKind::Anchored.as_str()
            && let (None, Some((index, _)), Reading::Readable(line)) =
                (&anchor, &found, reading::read::<LedgerLine>(bytes))
        {
            let note = line.anchored.map(|anchored| anchored.checkpoint);
            anchor = note.filter(|note| size_of(note).is_some_and(|size| size > *index));
        }
    })?;
    let Some((index, line)) = found else { return Ok(Vec::new()) };
    let proven = |note: String| {
        let leaves = leaves.get(..usize::try_from(size_of(&note)?).ok()?)?;
        let path = Nodes::of(leaves.to_vec()).inclusion(index).ok()?;
        Some(Ended { line: line.clone(), index, path, note })
    };
    Ok(anchor.into_iter().chain([newest]).filter_map(proven).collect())
}

/// Lines that a note states.
fn size_of(note: &str) -> Option<u64> {
    read_text(note.get(..=note.rfind("\n\n")?)?).map(|(_, size, _)| size)
}

/// Where a log is, and what is remembered of it; while it is open nobody else signs it.
struct Log<'d> {
    dir: &'d AuditDir,
    home: Option<Tree>,
    _lock: Option<rustix::fd::OwnedFd>,
}

impl<'d> Log<'d> {
    fn open(dir: &'d AuditDir) -> Result<Self, LogError> {
        dir.files().make_dir(&dir.log()).map_err(at(&dir.log()))?;
        let Some(home) = dir.home() else { return Ok(Self { dir, home: None, _lock: None }) };
        let logs = home.join("logs");
        crate::paths::create_private_dir(home).map_err(|e| at(home)(io::Error::other(e)))?;
        let home = Tree::at(home);
        // Copies of a directory have logs of one name.
        let lock = home.make_dir(&logs).and_then(|()| {
            let lock = home.dir(&logs)?;
            files::lock(&lock)?;
            Ok(lock)
        });
        Ok(Self { dir, home: Some(home), _lock: Some(lock.map_err(at(&logs))?) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.log().join(name)
    }

    /// The name of the log, as its file has it.
    fn named(&self) -> Option<String> {
        let name = self.dir.files().read(&self.path("origin"), MAX_ORIGIN).ok()?;
        let name = String::from_utf8(name).ok()?;
        name.strip_suffix('\n').filter(|name| LogName::is_one(name)).map(ToOwned::to_owned)
    }

    fn memory_path(&self, origin: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.root().join("logs").join(format!("{}.json", sha256_hex(origin.as_bytes()))))
    }

    /// What this user signed last of a log.
    fn memory(&self, origin: &str) -> Result<Option<Before>, LogError> {
        let Some((home, path)) = self.home.as_ref().zip(self.memory_path(origin)) else { return Ok(None) };
        let bytes = match mark::read_own(home, &path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(at(&path)(e)),
        };
        let before = match reading::read::<LogMemory>(&bytes) {
            Reading::Readable(memory) => {
                Before::of(&memory.note, origin).ok_or("its note is not one of this log".into())
            }
            Reading::TooNew(source) => return Err(LogError::TooNew { path, source }),
            Reading::Damaged(why) => Err(why),
        };
        before.map(Some).map_err(|why: String| at(&path)(io::Error::new(io::ErrorKind::InvalidData, why)))
    }

    /// What was signed of a log before: what is remembered, and what lies beside the ledger with our signature.
    fn before(&self, origin: &str, by: &dyn Certify, holds: Verifier<'_>) -> Result<Vec<Before>, LogError> {
        let beside = self.dir.files().read(&self.path("checkpoint"), note::MAX_NOTE as u64).ok();
        let beside = beside.and_then(|bytes| String::from_utf8(bytes).ok());
        let ours = |note: &String| {
            let key = Key::new(origin, *by.key().public());
            key.is_some_and(|key| note::open(note, &key, holds).is_ok())
        };
        let beside = beside.filter(ours).and_then(|note| Before::of(&note, origin));
        Ok(self.memory(origin)?.into_iter().chain(beside).collect())
    }

    /// The tree that was signed last, with the lines that came since, if its tiles are there and the ledger goes on from it: then
    /// nothing else is read. `None`: whatever is the matter, the whole ledger says.
    fn go_on(&self, ledger: &Ledger, memory: &Before) -> Result<Option<Built>, LogError> {
        let tiles = places(memory.size).into_iter().map(|place| self.tile(place)).collect::<Option<Vec<_>>>();
        let edge = tiles.and_then(|tiles| Edge::of(memory.size, tiles)).filter(|edge| edge.root() == memory.root);
        let Some((mut edge, last)) = edge.zip(self.leaf(memory.size - 1)) else { return Ok(None) };
        let Some(mut missing) = ledger.next_seq().checked_sub(memory.size) else { return Ok(None) };
        let (mut since, mut back) = (Vec::new(), Back::of(ledger.file()).map_err(at(&self.dir.ledger()))?);
        while let Some(line) = back.next().map_err(at(&self.dir.ledger()))? {
            let entry = entry(line);
            if missing == 0 {
                if leaf(&entry) != last {
                    return Ok(None);
                }
                break;
            }
            let members = LedgerMembers::of_line(line).unwrap_or_default();
            let is_next = number(members.ledger_seq) == Some(memory.size + missing - 1);
            if !is_next || text(members.kind).is_none_or(|kind| kind == LedgerKind::LogRenewed.as_str()) {
                return Ok(None);
            }
            since.push(entry);
            missing -= 1;
        }
        if missing > 0 {
            return Ok(None);
        }
        let mut whole = Vec::new();
        since.into_iter().rev().for_each(|entry| edge.push(entry, &mut |tile| whole.push(tile)));
        Ok(Some(Built { edge, whole, is_quick: true, is_mended: false }))
    }

    fn tile(&self, place: Place) -> Option<Tile> {
        let bytes = self.dir.files().read(&self.path(&place.path()), place.len() as u64).ok()?;
        Tile::read(place, &bytes)
    }

    /// The hash of a leaf, from the tile that it is in.
    fn leaf(&self, index: u64) -> Option<Hash> {
        let wide = WIDTH as u64;
        let width = (index % wide) as usize + 1;
        let place = Place { kind: Kind::Level(0), index: index / wide, width };
        self.tile(place)?.hashes.last().copied()
    }

    /// Hands out the entries of all lines, each with its number; gives the name of the log.
    fn walk(&self, ledger: &Ledger, see: &mut dyn FnMut(u64, Hash)) -> Result<String, LogError> {
        lines_of(ledger.file(), see).map_err(at(&self.dir.ledger()))
    }

    /// The tree of the whole ledger, if it is none that contradicts what was signed before.
    fn build(&self, ledger: &Ledger, by: &dyn Certify, holds: Verifier<'_>) -> Result<(String, Built), LogError> {
        let origin = self.walk(ledger, &mut |_, _| {})?;
        let before = self.before(&origin, by, holds)?;
        let (mut edge, mut whole, mut other) = (Edge::default(), Vec::new(), None);
        self.walk(ledger, &mut |_, entry| {
            edge.push(entry, &mut |tile| whole.push(tile));
            other = other.or_else(|| before.iter().position(|b| b.size == edge.size() && b.root != edge.root()));
        })?;
        let missing = before.iter().find(|before| before.size > edge.size());
        if let Some(before) = other.and_then(|other| before.get(other)).or(missing) {
            let (signed, now) = (counted(before.size, "line"), edge.size());
            let what = if before.size > now {
                format!("you signed a checkpoint of {signed}, and it has {now}")
            } else {
                format!("its first {signed} are not those of which you signed a checkpoint")
            };
            return Err(LogError::RolledBack(what));
        }
        Ok((origin, Built { edge, whole, is_quick: false, is_mended: !before.is_empty() }))
    }

    /// Writes what was built, remembers the checkpoint, and then shows it.
    fn put(&self, origin: &str, built: &Built, by: &dyn Certify) -> Result<Signed, LogError> {
        let key = Key::new(origin, *by.key().public()).ok_or_else(|| LogError::Name(origin.to_owned()))?;
        let (size, root) = (built.edge.size(), built.edge.root());
        let text = text_of(origin, size, &root);
        let note = key.note(&text, &by.sign(text.as_bytes()).map_err(LogError::Unsigned)?);
        for tile in built.whole.iter().chain(&built.edge.partial()) {
            self.put_tile(tile, built.is_quick)?;
        }
        if !built.is_quick {
            self.write("origin", format!("{origin}\n").as_bytes())?;
        }
        if let Some((home, path)) = self.home.as_ref().zip(self.memory_path(origin)) {
            let memory = LogMemory { note: note.clone(), origin: origin.to_owned(), v: LOG_MEMORY_VERSION };
            mark::replace(home, &path, &memory, true).map_err(at(&path))?;
        }
        self.write("checkpoint", note.as_bytes())?;
        Ok(Signed { origin: origin.to_owned(), size, note, is_mended: built.is_mended })
    }

    /// Writes a tile in the place of narrower ones, unless it is there.
    fn put_tile(&self, tile: &Tile, is_new: bool) -> Result<(), LogError> {
        let (files, path) = (self.dir.files(), self.path(&tile.place.path()));
        let is_whole = tile.place.width == WIDTH;
        // One that is whole since now was never there.
        let there = if is_new && is_whole { None } else { files.read(&path, tile.place.len() as u64).ok() };
        let bytes = tile.bytes();
        if there.as_ref() == Some(&bytes) {
            return Ok(());
        }
        let narrower = if is_whole { path.with_extension("p") } else { path.parent().unwrap_or(&path).to_owned() };
        files.remove_dir(&narrower).map_err(at(&narrower))?;
        self.write(&tile.place.path(), &bytes)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), LogError> {
        let (files, path) = (self.dir.files(), self.path(name));
        let parent = path.parent().unwrap_or(&path).to_owned();
        let staged = parent.join(".new");
        let written = files.make_dir(&parent).and_then(|()| files.replace(&staged, &path, bytes, false));
        written.map_err(at(&path))
    }
}

/// Hands out the entries of all lines; gives the name of the log that they are.
fn lines_of(file: &std::fs::File, see: &mut dyn FnMut(u64, Hash)) -> io::Result<String> {
    let mut name = LogName::default();
    each_line(file, &mut |n, bytes| {
        see(n, entry(bytes));
        name.line(n, bytes);
    })?;
    Ok(name.into_origin())
}

/// Hands out all lines from the first on, each with its number.
fn each_line(file: &std::fs::File, see: &mut dyn FnMut(u64, &[u8])) -> io::Result<()> {
    let mut n = 0;
    Lines::of(file.try_clone()?).at_most(MAX_LINE).each(&mut |line| {
        see(n, line.bytes.unwrap_or_default());
        n += 1;
        true
    })?;
    Ok(())
}
