//! Checkpoints of a session while it is recorded: how many events are on disk, with the root of their tree, signed by a key
//! that only this process has (docs/formats.md, "Checkpoints").
//!
//! The recorder only hands over the hashes of its events. Whoever syncs the files makes the tree and the checkpoints: what was
//! written is taken first, then synced, then stated, so that no checkpoint is ever beyond the disk.

use super::{
    ledger::{Entry, Ledger},
    sink::{Left, Sink},
};
use crate::{
    files,
    model::{
        LedgerKind,
        checkpoint::{Role, checkpoint_line, checkpoint_text, key_line, key_text, origin},
        sha256_hex,
    },
    note::Key,
    paths::{AuditDir, SessionPaths},
    tree::{Frontier, Hash, leaf},
};
use ed25519_dalek::{Signer as _, SigningKey};
use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// A session that grew has a checkpoint after so many events,
const EVERY_EVENTS: u64 = 1024;
/// or after so long, whichever comes first; both are looked at when files are synced.
pub const EVERY: Duration = Duration::from_secs(30);
/// The ledger names a checkpoint of a session that grew after so long.
const IN_LEDGER: Duration = Duration::from_mins(10);
/// Hashes that wait for whoever syncs; beyond this the recorder takes them into the tree itself. 2 MiB.
const MAX_WAITING: usize = 1 << 16;

/// A long-term key, which certifies keys of sessions. It may be slow.
pub trait Certify: Send + Sync {
    /// The key, as notes name it.
    fn key(&self) -> &Key;

    /// Its Ed25519 signature (RFC 8032) of a text.
    ///
    /// # Errors
    /// The key cannot be used now.
    fn sign(&self, text: &[u8]) -> io::Result<[u8; 64]>;

    /// How long a session that grew goes without a checkpoint at most.
    fn every(&self) -> Duration {
        EVERY
    }
}

/// What went wrong.
#[derive(Debug)]
pub enum Failed {
    /// A sync: what it covered may be gone, and no later sync would say so.
    Sync(io::Error),
    /// Nothing else than the checkpoint.
    Checkpoint(io::Error),
}

impl Failed {
    /// What the system said.
    #[must_use]
    pub fn into_inner(self) -> io::Error {
        match self {
            Self::Sync(e) | Self::Checkpoint(e) => e,
        }
    }
}

/// The checkpoints of one session.
pub struct Checkpoints {
    dir: AuditDir,
    paths: SessionPaths,
    /// Not known yet; nobody; or who certifies.
    by: OnceLock<Option<Arc<dyn Certify>>>,
    grown: Mutex<Grown>,
    writer: Mutex<Writer>,
}

/// What is written of the session.
#[derive(Debug, Clone, Default)]
struct Grown {
    /// Of all events but those whose hashes wait.
    tree: Frontier,
    hashes: Vec<Hash>,
    /// The hash of the last event that is in the tree, or that waits.
    last: Hash,
    /// The tree is being made.
    is_out: bool,
    /// Bytes of the segment, and of the receipts.
    segment: u64,
    receipts: u64,
}

/// A session's key.
type Secret = (Key, SigningKey);

/// Lines to append, and the key that had to be made for them.
type Stated = (Vec<u8>, Option<Secret>);

struct Writer {
    role: Role,
    key: Option<Secret>,
    /// The key's certificate is in the file.
    is_named: bool,
    /// Open only while a write has failed: a process may have a thousand sessions.
    sink: Option<Sink>,
    /// The file as it was left.
    left: Option<Left>,
    /// Events that the last checkpoint covers.
    size: u64,
    at: Instant,
    /// Events that the ledger names, and since when.
    in_ledger: (u64, Instant),
    /// A sync failed: this recorder states nothing more while the session runs.
    is_spoiled: bool,
    /// The key was not certified when that was asked for, and this is said.
    is_refused: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("path", &self.paths.checkpoints).finish_non_exhaustive()
    }
}

impl Checkpoints {
    /// None yet of the session with these files.
    #[must_use]
    pub fn new(dir: &AuditDir, paths: &SessionPaths, role: Role) -> Self {
        let writer = Writer {
            role,
            key: None,
            is_named: false,
            sink: None,
            left: None,
            size: 0,
            at: Instant::now(),
            in_ledger: (0, Instant::now()),
            is_spoiled: false,
            is_refused: false,
        };
        let (dir, paths, writer) = (dir.clone(), paths.clone(), Mutex::new(writer));
        Self { dir, paths, by: OnceLock::new(), grown: Mutex::default(), writer }
    }

    /// Who certifies; without anybody there are no checkpoints.
    pub fn certified_by(&self, by: Option<Arc<dyn Certify>>) {
        let _ = self.by.set(by);
    }

    /// SHA-256 of the recorder's public key, which is made if need be; `None` without anybody who certifies it, and once somebody else
    /// states what was found.
    pub(super) fn recorder_key(&self) -> Option<String> {
        self.by.get()?.as_ref()?;
        let mut writer = lock(&self.writer);
        if writer.role == Role::Recorder && writer.key.is_none() {
            writer.key = new_key(&self.paths).ok();
        }
        writer.recorder_key()
    }

    /// The root of all events that are written, if there are so many.
    pub(super) fn root_of(&self, events: u64) -> Option<Hash> {
        let _writer = lock(&self.writer);
        let grown = self.grown();
        (grown.tree.size() == events && matches!(self.by.get(), Some(Some(_)))).then(|| grown.tree.root())
    }

    /// The files hold this tree, and these checkpoints cover so many events of it.
    pub(super) fn found(&self, tree: Frontier, size: u64) {
        lock(&self.grown).tree = tree;
        lock(&self.writer).size = size;
    }

    /// These events were written; the segment and the receipts are so long now.
    pub(super) fn written(&self, hashes: &mut Vec<Hash>, segment: u64, receipts: u64) {
        if matches!(self.by.get(), Some(None)) {
            hashes.clear();
            return;
        }
        let mut grown = lock(&self.grown);
        grown.last = hashes.last().copied().unwrap_or(grown.last);
        grown.hashes.append(hashes);
        (grown.segment, grown.receipts) = (segment, receipts);
        if grown.hashes.len() > MAX_WAITING && !grown.is_out {
            let hashes = std::mem::take(&mut grown.hashes);
            grown.tree.extend(hashes.iter().map(|hash| leaf(hash)));
        }
    }

    /// What is written, with the tree of all events. The caller has the lock of the writer.
    fn grown(&self) -> Grown {
        let mut all = {
            let mut grown = lock(&self.grown);
            let all = Grown { tree: std::mem::take(&mut grown.tree), ..grown.clone() };
            grown.hashes.clear();
            grown.is_out = true;
            all
        };
        all.tree.extend(std::mem::take(&mut all.hashes).iter().map(|hash| leaf(hash)));
        let mut grown = lock(&self.grown);
        (grown.tree, grown.is_out) = (all.tree.clone(), false);
        all
    }

    /// Syncs those of the session's files that have another length than they were synced with, the receipts first, then the
    /// segment, then others; and states what was written before, if that is due or the session has ended (`is_last`).
    ///
    /// # Errors
    /// [`Failed`]; after a failed sync this recorder states nothing before the end.
    pub fn sync(&self, is_last: bool, files: &mut [(File, u64)]) -> Result<(), Failed> {
        let mut writer = lock(&self.writer);
        let grown = self.grown();
        for (file, synced) in &mut *files {
            let len = file.metadata().map_or(*synced + 1, |m| m.len());
            if len != *synced {
                if let Err(e) = files::sync_data(file) {
                    writer.is_spoiled = true;
                    return Err(Failed::Sync(e));
                }
                *synced = len;
            }
        }
        let Some(Some(by)) = self.by.get() else { return Ok(()) };
        if !writer.is_due(grown.tree.size(), is_last, by.every()) {
            return Ok(());
        }
        let places = [(&self.paths.receipts, grown.receipts), (&self.paths.segment, grown.segment)];
        for ((path, len), (file, _)) in places.into_iter().zip(&*files) {
            is_there(path, len, file).map_err(Failed::Checkpoint)?;
        }
        if !writer.state(&self.paths, by.as_ref(), &grown.tree)? {
            return Ok(());
        }
        let is_due = !is_last && grown.tree.size() > writer.in_ledger.0 && writer.in_ledger.1.elapsed() >= IN_LEDGER;
        if is_due && self.to_ledger(&grown, writer.recorder_key()).map_err(Failed::Checkpoint)? {
            writer.in_ledger = (grown.tree.size(), Instant::now());
        }
        Ok(())
    }

    /// Names in the ledger how far the session is; `false` if somebody else writes there, for whom nobody waits here.
    fn to_ledger(&self, grown: &Grown, session_key: Option<String>) -> io::Result<bool> {
        let session = Some(self.paths.id);
        let Some(mut ledger) = Ledger::try_lock(&self.dir, session)? else { return Ok(false) };
        let (segment, last) = (format!("segment_{}.jsonl", self.paths.stem), hex::encode(grown.last));
        let entry = Entry {
            event_count: grown.tree.size(),
            session_key,
            tree_root: Some(hex::encode(grown.tree.root())),
            ..Entry::new(LedgerKind::SegmentCheckpoint, session, &segment, &last)
        };
        ledger.append(&entry).map(|()| true)
    }

    /// What another process has done to the checkpoints since. While one is made that is not known.
    pub(super) fn damage(&self) -> Option<String> {
        let writer = self.writer.try_lock().ok()?;
        let path = &self.paths.checkpoints;
        match (&writer.sink, &writer.left) {
            (Some(sink), _) => Some(sink.damage(path)?.0),
            (None, left) => left.as_ref()?.damage(path),
        }
    }
}

/// Whether the file is still the one of this name, and holds what was written.
fn is_there(path: &Path, len: u64, file: &File) -> io::Result<()> {
    let (there, ours) = (fs::symlink_metadata(path)?, file.metadata()?);
    if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) && ours.len() >= len {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is not what was written", path.display())))
}

impl Writer {
    /// SHA-256 of the recorder's public key.
    fn recorder_key(&self) -> Option<String> {
        let key = self.key.as_ref().filter(|_| self.role == Role::Recorder);
        key.map(|(key, _)| sha256_hex(key.public()))
    }

    fn is_due(&self, size: u64, is_last: bool, every: Duration) -> bool {
        let grew = size.saturating_sub(self.size);
        let early = || self.size == 0 || grew >= EVERY_EVENTS || self.at.elapsed() >= every;
        grew > 0 && (is_last || !self.is_spoiled && early())
    }

    /// States the tree, which is synced; `false` where nobody certifies the key: the session goes on without checkpoints,
    /// and asks again.
    fn state(&mut self, paths: &SessionPaths, by: &dyn Certify, tree: &Frontier) -> Result<bool, Failed> {
        if self.is_spoiled && self.role == Role::Recorder {
            // Whoever saw the session cannot know what of it the disk lost.
            (self.role, self.key, self.is_named) = (Role::Recovery, None, false);
        }
        let Some((lines, made)) = self.lines(paths, by, tree).map_err(Failed::Checkpoint)? else { return Ok(false) };
        let mut sink = match self.sink.take() {
            Some(sink) => sink,
            None => self.open(paths).map_err(Failed::Checkpoint)?,
        };
        if let Err(e) = sink.append(&lines) {
            self.sink = Some(sink);
            return Err(Failed::Checkpoint(e));
        }
        self.key = made.or(self.key.take());
        self.is_named = true;
        (self.size, self.at) = (tree.size(), Instant::now());
        let synced = files::sync_data(sink.file());
        self.left = Some(sink.leave().map_err(Failed::Checkpoint)?);
        synced.map(|()| true).map_err(|e| {
            self.is_spoiled = true;
            Failed::Sync(e)
        })
    }

    /// Opens the file; the first time, makes sure that a power cut leaves its name and that of the segment.
    fn open(&self, paths: &SessionPaths) -> io::Result<Sink> {
        let path = &paths.checkpoints;
        if let Some(what) = self.left.as_ref().and_then(|left| left.damage(path)) {
            return Err(io::Error::other(format!("{} {what}", path.display())));
        }
        let sink = match (self.role, &self.left) {
            (Role::Recorder, None) => Sink::create(&paths.files, path)?,
            _ => Sink::append_to(&paths.files, path)?,
        };
        if self.left.is_none() {
            path.parent().map_or(Ok(()), files::sync_dir)?;
        }
        Ok(sink)
    }

    /// The lines that state this, and the key if one had to be made; `None`: nobody certifies it.
    fn lines(&mut self, paths: &SessionPaths, by: &dyn Certify, tree: &Frontier) -> io::Result<Option<Stated>> {
        let mut lines = Vec::new();
        let made = match &self.key {
            Some(_) => None,
            None => Some(new_key(paths)?),
        };
        let secret = made.as_ref().or(self.key.as_ref());
        if let Some((key, _)) = secret.filter(|_| !self.is_named) {
            let text = key_text(paths.id, key, self.role);
            let signature = match by.sign(text.as_bytes()) {
                Ok(signature) => signature,
                Err(e) => {
                    if !std::mem::replace(&mut self.is_refused, true) {
                        tracing::warn!(session = %paths.id, error = %e, "there are no checkpoints: the session's key is not certified");
                    }
                    return Ok(None);
                }
            };
            lines = key_line(by.key(), by.key().note(&text, &signature))?;
        }
        if let Some((key, secret)) = secret {
            let text = checkpoint_text(paths.id, tree.size(), &tree.root());
            lines.extend(checkpoint_line(key.note(&text, &secret.sign(text.as_bytes()).to_bytes()))?);
        }
        Ok(Some((lines, made)))
    }
}

fn new_key(paths: &SessionPaths) -> io::Result<Secret> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(io::Error::other)?;
    let secret = SigningKey::from_bytes(&seed);
    let key = Key::new(&origin(paths.id), secret.verifying_key().to_bytes());
    Ok((key.ok_or_else(|| io::Error::other("a session's name is not one of a key"))?, secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{
            SessionId, WallTime,
            checkpoint::{Checkpoints as Lines, Said, signer},
        },
        paths::AuditDir,
    };
    use ed25519_dalek::{Signature, VerifyingKey};
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Owner(SigningKey, Key, Arc<AtomicBool>, Duration);

    impl Certify for Owner {
        fn key(&self) -> &Key {
            &self.1
        }

        fn sign(&self, text: &[u8]) -> io::Result<[u8; 64]> {
            if self.2.load(Ordering::Relaxed) {
                Err(io::Error::other("locked"))
            } else {
                Ok(self.0.sign(text).to_bytes())
            }
        }

        fn every(&self) -> Duration {
            self.3
        }
    }

    fn holds(key: &[u8], text: &[u8], signature: &[u8]) -> bool {
        let key = VerifyingKey::from_bytes(key.try_into().unwrap()).unwrap();
        key.verify_strict(text, &Signature::from_slice(signature).unwrap()).is_ok()
    }

    struct Place {
        _tmp: tempfile::TempDir,
        dir: AuditDir,
        paths: SessionPaths,
        all: Checkpoints,
        files: Vec<(File, u64)>,
        tree: Frontier,
        locked: Arc<AtomicBool>,
    }

    impl Place {
        fn new(role: Role) -> Self {
            let tmp = tempfile::tempdir().unwrap();
            let dir = AuditDir::at(tmp.path().join("audit"));
            dir.create().unwrap();
            let paths = dir.session(WallTime::from_millis(0), SessionId::from_bits(1));
            let files = [&paths.receipts, &paths.segment].map(|path| (paths.files.append(path).unwrap(), 0));
            let all = Checkpoints::new(&dir, &paths, role);
            let secret = SigningKey::from_bytes(&[1; 32]);
            let key = signer("owner", secret.verifying_key().to_bytes()).unwrap();
            let locked = Arc::new(AtomicBool::new(false));
            all.certified_by(Some(Arc::new(Owner(secret, key, locked.clone(), EVERY))));
            Self { _tmp: tmp, dir, paths, all, files: files.into(), tree: Frontier::default(), locked }
        }

        /// So many events more are written, a byte each.
        fn grow(&mut self, n: u64) {
            let mut hashes: Vec<Hash> = (0..n).map(|n| [n as u8; 32]).collect();
            self.tree.extend(hashes.iter().map(|hash| leaf(hash)));
            io::Write::write_all(&mut &self.files[1].0, &vec![b'x'; n as usize]).unwrap();
            self.all.written(&mut hashes, self.tree.size(), 0);
            assert!(hashes.is_empty());
        }

        /// What was stated, each size with who stated it; the last is the tree.
        fn stated(&self) -> Vec<(u64, Role)> {
            let text = fs::read(&self.paths.checkpoints).unwrap_or_default();
            let mut lines = Lines::of(self.paths.id);
            let said = text
                .split(|b| *b == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| lines.line(line, &holds).unwrap());
            let all = said.filter_map(|said| match said {
                Said::Checkpoint { size, root, role } => {
                    assert!(size < self.tree.size() || root == self.tree.root());
                    Some((size, role))
                }
                Said::Key { .. } => None,
            });
            all.collect()
        }
    }

    #[test]
    fn a_checkpoint_is_made_at_once_then_after_many_events_and_at_the_end() {
        use Role::Recorder;
        let mut place = Place::new(Recorder);
        place.all.sync(false, &mut place.files).unwrap();
        assert_eq!(place.stated(), []);
        place.grow(3);
        place.all.sync(false, &mut place.files).unwrap();
        assert_eq!(place.stated(), [(3, Recorder)]);
        place.grow(1);
        place.all.sync(false, &mut place.files).unwrap();
        assert_eq!(place.stated(), [(3, Recorder)]);
        place.grow(EVERY_EVENTS - 1);
        place.all.sync(false, &mut place.files).unwrap();
        // More than may wait is taken by the recorder.
        place.grow(MAX_WAITING as u64 + 1);
        place.grow(1);
        place.all.sync(true, &mut place.files).unwrap();
        place.all.sync(true, &mut place.files).unwrap();
        let many = 3 + EVERY_EVENTS;
        assert_eq!(place.stated(), [(3, Recorder), (many, Recorder), (many + MAX_WAITING as u64 + 2, Recorder)]);
        assert_eq!(place.all.damage(), None);
        fs::remove_file(&place.paths.checkpoints).unwrap();
        assert_eq!(place.all.damage().as_deref(), Some("was removed"));
    }

    #[test]
    fn nothing_is_stated_that_is_not_there_any_more() {
        for meddle in [
            (|place| place.files[1].0.set_len(2).unwrap()) as fn(&Place),
            |place| fs::remove_file(&place.paths.segment).unwrap(),
            |place| fs::remove_file(&place.paths.receipts).unwrap(),
            |place| {
                let copy = place.paths.segment.with_extension("copy");
                fs::copy(&place.paths.segment, &copy).unwrap();
                fs::rename(copy, &place.paths.segment).unwrap();
            },
        ] {
            let mut place = Place::new(Role::Recorder);
            place.grow(3);
            meddle(&place);
            for is_last in [false, true] {
                assert!(matches!(place.all.sync(is_last, &mut place.files), Err(Failed::Checkpoint(_))));
                assert_eq!(place.stated(), []);
            }
        }
    }

    #[test]
    fn a_long_session_is_named_in_the_ledger() {
        let mut place = Place::new(Role::Recorder);
        let lines = |place: &Place| fs::read_to_string(place.dir.ledger()).unwrap_or_default();
        place.grow(3);
        place.all.sync(false, &mut place.files).unwrap();
        assert_eq!(lines(&place), "", "it is not long yet");
        let long_ago = Instant::now().checked_sub(IN_LEDGER).unwrap();
        let old = |place: &Place| lock(&place.all.writer).in_ledger.1 = long_ago;
        for grown in [EVERY_EVENTS, 2 * EVERY_EVENTS] {
            old(&place);
            place.grow(EVERY_EVENTS);
            // Whoever else writes there is not waited for.
            let busy = Ledger::lock(&place.dir, None).unwrap();
            place.all.sync(false, &mut place.files).unwrap();
            drop(busy);
            place.grow(EVERY_EVENTS);
            place.all.sync(false, &mut place.files).unwrap();
            let line = lines(&place).lines().next_back().map(str::to_owned).unwrap();
            let line: crate::model::LedgerLine = serde_json::from_str(&line).unwrap();
            assert!(line.is_of_its_kind() && line.kind == LedgerKind::SegmentCheckpoint, "{line:?}");
            assert_eq!(line.event_count, place.tree.size());
            assert_eq!(line.tree_root, Some(hex::encode(place.tree.root())));
            assert_eq!((line.session_key, line.segment_hash), (place.all.recorder_key(), hex::encode([255_u8; 32])));
            assert!(line.event_count > grown);
        }
        assert_eq!(lines(&place).lines().count(), 2);
    }

    #[test]
    fn after_a_failed_sync_the_end_is_stated_as_by_somebody_who_did_not_see_it() {
        let mut place = Place::new(Role::Recorder);
        place.grow(1);
        place.all.sync(false, &mut place.files).unwrap();
        lock(&place.all.writer).is_spoiled = true;
        place.grow(EVERY_EVENTS);
        place.all.sync(false, &mut place.files).unwrap();
        assert_eq!(place.stated(), [(1, Role::Recorder)]);
        place.all.sync(true, &mut place.files).unwrap();
        assert_eq!(place.stated(), [(1, Role::Recorder), (EVERY_EVENTS + 1, Role::Recovery)]);
    }

    #[test]
    fn a_session_that_grew_is_stated_as_often_as_was_asked_for() {
        let mut place = Place::new(Role::Recorder);
        place.all = Checkpoints::new(&place.dir, &place.paths, Role::Recorder);
        let secret = SigningKey::from_bytes(&[1; 32]);
        let key = signer("owner", secret.verifying_key().to_bytes()).unwrap();
        place.all.certified_by(Some(Arc::new(Owner(secret, key, place.locked.clone(), Duration::ZERO))));
        for size in 1..4 {
            place.grow(1);
            place.all.sync(false, &mut place.files).unwrap();
            place.all.sync(false, &mut place.files).unwrap();
            assert_eq!(place.stated().len(), size);
        }
    }

    #[test]
    fn who_certifies_later_finds_the_session_as_it_is_and_the_ledger_names_nothing_before() {
        let mut place = Place::new(Role::Recorder);
        place.locked.store(true, Ordering::Relaxed);
        place.grow(EVERY_EVENTS);
        lock(&place.all.writer).in_ledger.1 = Instant::now().checked_sub(IN_LEDGER).unwrap();
        for is_last in [false, true] {
            place.all.sync(is_last, &mut place.files).unwrap();
            assert!(place.stated().is_empty() && !place.dir.ledger().exists());
        }
        place.locked.store(false, Ordering::Relaxed);
        place.grow(1);
        place.all.sync(false, &mut place.files).unwrap();
        assert_eq!(place.stated(), [(EVERY_EVENTS + 1, Role::Recorder)]);
        assert!(place.dir.ledger().exists());
    }

    #[test]
    fn without_a_key_nothing_is_stated_and_nothing_is_kept() {
        let mut place = Place::new(Role::Recorder);
        place.all = Checkpoints::new(&place.dir, &place.paths, Role::Recorder);
        place.all.certified_by(None);
        place.grow(3);
        place.all.sync(true, &mut place.files).unwrap();
        assert!(place.stated().is_empty() && lock(&place.all.grown).hashes.is_empty());
    }
}
