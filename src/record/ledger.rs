//! The ledger: one line per segment start and end, appended under an exclusive lock (docs/formats.md, "Ledger").

use super::rollback::{self, Head, check_length};
use crate::{
    files::{self, Lock, Tree},
    lines::{self, GoodTail, Lines},
    model::{
        GENESIS, LedgerKind, LedgerLine, SessionId, WallTime,
        ledger::{Anchored, LedgerMembers, MAX_LINE, Pruned, PrunedWhat, Renewed},
        line::{number, text},
        reading::{self, Reading, TooNew},
        to_line,
    },
    paths::AuditDir,
    text::{counted, either},
};
use sha2::Digest as _;
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
};

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;
/// Bytes that are read at a time from the end on.
const STEP: usize = 16 << 10;
/// Name of the file, in lines that are about itself.
pub const LEDGER: &str = "ledger.jsonl";

/// The ledger, locked for this process until dropped.
pub struct Ledger {
    dir: AuditDir,
    file: File,
    end: u64,
    seq: u64,
    head: String,
    /// A line that this user's recorder wrote here before, and that is not here now.
    lacks: Option<Head>,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// Held instead of a lock where the file system has none: the threads of one process take turns at least.
static TURN: Mutex<()> = Mutex::new(());

/// What a ledger line is about.
#[derive(Clone)]
pub struct Entry<'a> {
    /// What the line records, such as the start or the end of the segment.
    pub kind: LedgerKind,
    /// Id of the session; `None` for what is of none.
    pub session: Option<SessionId>,
    /// File name of the segment.
    pub segment: &'a str,
    /// Hash of its first or last event.
    pub segment_hash: &'a str,
    /// Number of events in the segment so far.
    pub event_count: u64,
    /// Whether the session was complete.
    pub complete: Option<bool>,
    /// More about it, as text for people.
    pub note: Option<String>,
    /// The tombstone, of the kind `pruned`; its signature is made as it is written.
    pub pruned: Option<Pruned>,
    /// The log that begins, of the kind `log_renewed`.
    pub renewed: Option<Renewed>,
    /// What witnesses have signed, of the kind `anchored`.
    pub anchored: Option<Anchored>,
    /// SHA-256 of the manifest, of the kind `pack_sealed`.
    pub manifest: Option<String>,
    /// SHA-256 of the public key with which the recorder signs checkpoints of the session.
    pub session_key: Option<String>,
    /// Root of the tree of so many events.
    pub tree_root: Option<String>,
}

impl<'a> Entry<'a> {
    /// A line about a file and the hash of something in it.
    #[must_use]
    pub const fn new(kind: LedgerKind, session: Option<SessionId>, segment: &'a str, segment_hash: &'a str) -> Self {
        Self {
            kind,
            session,
            segment,
            segment_hash,
            event_count: 0,
            complete: None,
            note: None,
            pruned: None,
            renewed: None,
            anchored: None,
            manifest: None,
            session_key: None,
            tree_root: None,
        }
    }
}

impl Ledger {
    /// Opens and locks the ledger of an audit directory, waiting for other proxies. A torn last line is set aside
    /// beside it and recorded as such. `session`: whose line is to be appended, if it is one of a session.
    ///
    /// # Errors
    /// An I/O error.
    pub fn lock(dir: &AuditDir, session: Option<SessionId>) -> io::Result<Self> {
        let file = dir.files().append(&dir.ledger())?;
        // Without locks the lines of two processes may collide; verification says so.
        let locked = files::lock(&file)?;
        Self::in_turn(dir, file, session, locked)
    }

    fn in_turn(dir: &AuditDir, file: File, session: Option<SessionId>, locked: Lock) -> io::Result<Self> {
        let turn = (locked == Lock::Unsupported).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
        Self::locked(dir, file, session, turn)
    }

    /// The same, if nobody else has it locked.
    ///
    /// # Errors
    /// An I/O error.
    pub fn try_lock(dir: &AuditDir, session: Option<SessionId>) -> io::Result<Option<Self>> {
        let file = dir.files().append(&dir.ledger())?;
        let turn = match files::try_lock(&file)? {
            Lock::Taken => None,
            Lock::Busy => return Ok(None),
            Lock::Unsupported => match TURN.try_lock() {
                Ok(turn) => Some(turn),
                Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
                Err(TryLockError::WouldBlock) => return Ok(None),
            },
        };
        Self::locked(dir, file, session, turn).map(Some)
    }

    fn locked(
        dir: &AuditDir,
        file: File,
        session: Option<SessionId>,
        turn: Option<MutexGuard<'static, ()>>,
    ) -> io::Result<Self> {
        let path = dir.ledger();
        check_length(&file)?;
        let tail = good_tail(&file)?;
        let (seq, head) = match &tail.last {
            None => (0, GENESIS.to_owned()),
            Some(line) => next_of(line),
        };
        let mut ledger = Self { dir: dir.clone(), file, end: tail.end, seq, head, lacks: None, _turn: turn };
        if tail.torn > 0 {
            let note = set_aside(dir.files(), &ledger.file, &path, &tail, session)?;
            let entry = Entry::new(LedgerKind::TornTail, session, LEDGER, GENESIS);
            ledger.append(&Entry { note: Some(note), ..entry })?;
        }
        Ok(ledger)
    }

    /// The audit directory.
    #[must_use]
    pub const fn dir(&self) -> &AuditDir {
        &self.dir
    }

    /// The file, with whole lines alone.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Number of the line that comes next.
    pub(super) const fn next_seq(&self) -> u64 {
        self.seq
    }

    /// A line that this user's recorder wrote here before, and that was not here when something was appended.
    #[must_use]
    pub const fn lacks(&self) -> Option<&Head> {
        self.lacks.as_ref()
    }

    /// What is missing was taken away on purpose.
    ///
    /// # Errors
    /// An I/O error; nothing is forgotten then.
    pub(super) fn forget_missing(&mut self) -> io::Result<()> {
        rollback::forget_missing(&self.dir)?;
        self.lacks = None;
        Ok(())
    }

    /// `hash` of the last line.
    #[must_use]
    pub fn head(&self) -> &str {
        &self.head
    }

    /// Appends a line and syncs it.
    ///
    /// # Errors
    /// An I/O error; the ledger is then as it was.
    pub fn append(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.append_all(std::slice::from_ref(entry), &|_| Ok(String::new()))
    }

    /// Appends lines and syncs them; `sign` signs tombstones, Base64.
    ///
    /// # Errors
    /// An I/O error, or a key that cannot sign; the ledger is then as it was.
    pub fn append_all(&mut self, entries: &[Entry<'_>], sign: &dyn Fn(&[u8]) -> io::Result<String>) -> io::Result<()> {
        let (mut bytes, mut last) = (Vec::new(), Head { hash: self.head.clone(), ledger_seq: self.seq });
        for (seq, entry) in (self.seq..).zip(entries) {
            let mut line = LedgerLine {
                anchored: entry.anchored.clone(),
                at: WallTime::now(),
                complete: entry.complete,
                event_count: entry.event_count,
                hash: String::new(),
                kind: entry.kind,
                ledger_seq: seq,
                note: entry.note.clone(),
                pack_manifest_sha256: entry.manifest.clone(),
                prev_hash: std::mem::take(&mut last.hash),
                pruned: entry.pruned.clone(),
                renewed: entry.renewed.clone(),
                segment: entry.segment.to_owned(),
                segment_hash: entry.segment_hash.to_owned(),
                session_id: entry.session,
                session_key: entry.session_key.clone(),
                tree_root: entry.tree_root.clone(),
                v: 0,
            };
            line.v = line.version();
            let signature = sign(&line.signed_bytes()?)?;
            line.pruned.iter_mut().for_each(|pruned| pruned.signature.clone_from(&signature));
            line.seal()?;
            bytes.extend(to_line(&line)?);
            bytes.push(b'\n');
            last = Head { hash: line.hash, ledger_seq: seq };
        }
        if entries.is_empty() {
            return Ok(());
        }
        if let Err(e) = self.file.write_all(&bytes).and_then(|()| files::sync_data(&self.file)) {
            // A new line must not be appended to half a line, and a whole one would record what did not happen.
            self.file.set_len(self.end)?;
            return Err(e);
        }
        self.end += bytes.len() as u64;
        self.seq = last.ledger_seq.saturating_add(1);
        self.head.clone_from(&last.hash);
        match rollback::remember(&self.dir, &self.file, last) {
            Ok(missing) => self.lacks = missing,
            Err(e) => tracing::warn!(
                error = %e, "the ledger's last line could not be remembered: that it goes missing would not be seen"
            ),
        }
        Ok(())
    }
}

/// Number and `prev_hash` of the line that follows this one.
fn next_of(line: &[u8]) -> (u64, String) {
    // Lines of later versions have these, too. What has not is not for us to judge: verification names it, and the
    // chain continues from its bytes.
    let link = LedgerMembers::of_line(line).unwrap_or_default();
    match (number(link.ledger_seq), text(link.hash)) {
        (Some(seq), Some(hash)) => (seq.saturating_add(1), hash.into_owned()),
        _ => (0, crate::model::sha256_hex(line)),
    }
}

/// The last line of this kind that the ledger holds for this session. It is looked for from the end, no further back than to the
/// session's start. Only lines that name the session are parsed.
///
/// # Errors
/// An I/O error; a line of a later version names the session. A ledger that is not there holds nothing.
pub fn holds(dir: &AuditDir, session: SessionId, kind: LedgerKind) -> io::Result<Option<LedgerLine>> {
    let file = match dir.files().open(&dir.ledger()) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    check_length(&file)?;
    let name = session.to_string();
    let name = memchr::memmem::Finder::new(name.as_bytes());
    let (mut found, mut back) = (None, Back::of(&file)?);
    while let Some(line) = back.next()? {
        if line.len() > MAX_LINE || name.find(line).is_none() {
            continue;
        }
        match reading::read::<LedgerLine>(line) {
            Reading::Readable(line) if line.session_id == Some(session) => {
                let is_start = line.kind == LedgerKind::SegmentStart;
                if line.kind == kind && found.is_none() {
                    found = Some(line);
                }
                if is_start {
                    break;
                }
            }
            Reading::TooNew(e) => return Err(e.into()),
            Reading::Readable(_) | Reading::Damaged(_) => {}
        }
    }
    Ok(found)
}

/// The lines of a file from the last to the first.
pub(super) struct Back<'f> {
    file: &'f File,
    /// Where what is held begins in the file.
    from: u64,
    /// What is held: whole lines at its end.
    held: Vec<u8>,
    /// Bytes of it that were not handed out yet.
    left: usize,
}

impl<'f> Back<'f> {
    pub(super) fn of(file: &'f File) -> io::Result<Self> {
        Ok(Self { file, from: file.metadata()?.len(), held: Vec::new(), left: 0 })
    }

    /// The line before, without its line feed.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            // The line feed that ends the line is not one that it begins after.
            let body = self.left.saturating_sub(1);
            if let Some(at) = memchr::memrchr(b'\n', &self.held[..body]) {
                let end = self.left - usize::from(self.held[body] == b'\n');
                self.left = at + 1;
                return Ok(Some(&self.held[at + 1..end]));
            }
            if self.from == 0 {
                let end = self.left - usize::from(self.left > 0 && self.held[body] == b'\n');
                let is_over = std::mem::take(&mut self.left) == 0;
                return Ok((!is_over).then_some(&self.held[..end]));
            }
            // Twice as much at a time, so that a long line is not copied for each of its pieces.
            let more = self.from.min((STEP.max(self.left)) as u64);
            let mut held = vec![0; usize::try_from(more).map_err(io::Error::other)?];
            self.file.read_exact_at(&mut held, self.from - more)?;
            held.extend_from_slice(&self.held[..self.left]);
            self.from -= more;
            self.left = held.len();
            self.held = held;
        }
    }
}

/// How a segment ended, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Hash of its last event.
    pub hash: String,
    /// Number of events in the segment.
    pub events: u64,
    /// When the line was written.
    pub at: WallTime,
    /// Whether the session was complete.
    pub complete: Option<bool>,
}

impl From<LedgerLine> for SegmentEnd {
    fn from(line: LedgerLine) -> Self {
        Self { hash: line.segment_hash, events: line.event_count, at: line.at, complete: line.complete }
    }
}

/// Every end of a segment that the ledger holds, read in one go.
#[derive(Debug, Default)]
pub struct Ends {
    known: HashMap<SessionId, SegmentEnd>,
    /// Tombstones, by what is removed: not verified here.
    pruned: HashMap<(SessionId, PrunedWhat), LedgerLine>,
    /// A line that only a later version reads, and the sessions that such lines name.
    too_new: Option<TooNew>,
    unread: HashSet<SessionId>,
}

impl Ends {
    /// Those of this directory.
    ///
    /// # Errors
    /// An I/O error; a ledger that is not there holds nothing.
    pub fn read(dir: &AuditDir) -> io::Result<Self> {
        let mut all = Self::default();
        walk(dir, &mut |line| match reading::read::<LedgerLine>(line) {
            Reading::Readable(line) if line.kind == LedgerKind::SegmentEnd => {
                all.known.extend(line.session_id.map(|session| (session, line.into())));
            }
            Reading::Readable(line) if line.kind == LedgerKind::Pruned => {
                let key = line.session_id.zip(line.pruned.as_ref().map(|pruned| pruned.what));
                all.pruned.extend(key.map(|key| (key, line)));
            }
            Reading::TooNew(e) => {
                all.too_new = Some(e);
                all.unread.extend(named(line));
            }
            // Verification reports a damaged line.
            Reading::Readable(_) | Reading::Damaged(_) => {}
        })?;
        Ok(all)
    }

    /// A line that only a later version reads.
    #[must_use]
    pub const fn too_new(&self) -> Option<&TooNew> {
        self.too_new.as_ref()
    }

    /// Whether a line that only a later version reads names this session.
    #[must_use]
    pub fn is_unread(&self, session: SessionId) -> bool {
        self.unread.contains(&session)
    }

    /// The tombstone of something of this session.
    #[must_use]
    pub fn pruned(&self, session: SessionId, what: PrunedWhat) -> Option<&LedgerLine> {
        self.pruned.get(&(session, what))
    }

    /// How the segment of this session ended.
    #[must_use]
    pub fn get(&self, session: SessionId) -> Option<&SegmentEnd> {
        self.known.get(&session)
    }
}

/// Sessions whose ids are somewhere in a line.
fn named(line: &[u8]) -> impl Iterator<Item = SessionId> + '_ {
    let id = |at: usize| line.get(at..at + SessionId::PREFIX.len() + 16).and_then(|id| std::str::from_utf8(id).ok());
    memchr::memmem::find_iter(line, SessionId::PREFIX).filter_map(move |at| SessionId::parse(id(at)?).ok())
}

/// Hands out the lines of the ledger that are no longer than a line may be; one that is not there has none.
///
/// # Errors
/// An I/O error.
pub fn walk(dir: &AuditDir, see: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let file = match dir.files().open(&dir.ledger()) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    check_length(&file)?;
    Lines::of(file).at_most(MAX_LINE).each(&mut |line| {
        if let Some(bytes) = line.bytes {
            see(bytes);
        }
        true
    })?;
    Ok(())
}

/// The last whole line of a file of evidence and what is torn after it; what is not a JSON object is torn as well.
///
/// # Errors
/// [`lines::good_tail`].
pub fn good_tail(file: &File) -> io::Result<GoodTail> {
    lines::good_tail(file, &|line| line.first() == Some(&b'{') && crate::canon::is_canonical(line))
}

/// Copies the torn end of a file beside it and cuts it off; returns a note that says so.
///
/// # Errors
/// An I/O error; nothing is cut off before the copy is on disk.
pub fn set_aside(
    files: &Tree,
    file: &File,
    path: &Path,
    tail: &GoodTail,
    session: Option<SessionId>,
) -> io::Result<String> {
    let note = copy_aside(files, file, path, tail, session)?;
    file.set_len(tail.end)?;
    files::sync_all(file)?;
    Ok(note)
}

/// Copies the end of a file beside it, and leaves it where it is; returns a note that says that it was set aside.
///
/// # Errors
/// An I/O error.
pub fn copy_aside(
    files: &Tree,
    file: &File,
    path: &Path,
    tail: &GoodTail,
    session: Option<SessionId>,
) -> io::Result<String> {
    let mut digest = sha2::Sha256::new();
    copy_from(file, tail, &mut |part| {
        digest.update(part);
        Ok(())
    })?;
    let sha256 = hex::encode(digest.finalize());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let session = session.map_or_else(|| "none".to_owned(), SessionId::hex);
    let aside = path.with_file_name(format!("{name}.torn_{session}_{}", &sha256[..16]));
    // A recovery that was interrupted may have left a part of it; its name says that it is a part of this.
    let there = match files.open(&aside) {
        Ok(there) => Some(there.metadata()?.len()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    // The same bytes may have been set aside before.
    if there != Some(tail.torn) {
        files.remove(&aside)?;
        let mut out = files.create(&aside)?;
        copy_from(file, tail, &mut |part| out.write_all(part))?;
        files::sync_all(&out)?;
    }
    let aside = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!(
        "{} at offset {} of {name} {} no whole line, set aside as {aside}, sha256 {sha256}",
        counted(tail.torn, "byte"),
        tail.end,
        either(tail.torn, "was", "were")
    ))
}

/// Hands out what is torn, in pieces: a payload may be of any size.
fn copy_from(file: &File, tail: &GoodTail, to: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut reader = file;
    reader.seek(SeekFrom::Start(tail.end))?;
    let mut reader = reader.take(tail.torn);
    let mut buffer = vec![0; PIECE];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(()),
            n => to(&buffer[..n])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> (tempfile::TempDir, AuditDir) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = AuditDir::at(tmp.path().join("audit"));
        dir.create().unwrap();
        (tmp, dir)
    }

    fn entry(session: SessionId) -> Entry<'static> {
        Entry::new(LedgerKind::SegmentStart, Some(session), "segment_x.jsonl", GENESIS)
    }

    fn lines(dir: &AuditDir) -> Vec<LedgerLine> {
        let text = std::fs::read_to_string(dir.ledger()).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn a_torn_or_zero_filled_tail_at_every_offset_is_set_aside_and_the_chain_goes_on() {
        let (_tmp, dir) = dir();
        let id = SessionId::from_bits(1);
        Ledger::lock(&dir, Some(id)).unwrap().append(&entry(id)).unwrap();
        let one = std::fs::read(dir.ledger()).unwrap();
        for cut in 1..one.len() {
            for zeros in [0, 7] {
                let mut torn = one.clone();
                torn.extend_from_slice(&one[..cut]);
                torn.extend(std::iter::repeat_n(0, zeros));
                std::fs::write(dir.ledger(), &torn).unwrap();
                let mut ledger = Ledger::lock(&dir, Some(id)).unwrap();
                ledger.append(&entry(id)).unwrap();
                drop(ledger);
                let all = lines(&dir);
                assert_eq!(all.len(), 3, "cut {cut}");
                assert_eq!(all[1].kind, LedgerKind::TornTail);
                assert_eq!(all[1].prev_hash, all[0].hash);
                assert_eq!(all[2].prev_hash, all[1].hash);
            }
        }
    }

    #[test]
    fn lines_are_read_back_whatever_their_length() {
        let mut file = tempfile::tempfile().unwrap();
        let lines: Vec<Vec<u8>> = (0..200).map(|n: usize| vec![b'a' + (n % 26) as u8; n * n * 7 % 50_000]).collect();
        for end in ["\n", ""] {
            file.set_len(0).unwrap();
            file.rewind().unwrap();
            file.write_all(&[&lines.join(&b'\n')[..], end.as_bytes()].concat()).unwrap();
            let mut back = Back::of(&file).unwrap();
            for line in lines.iter().rev() {
                assert_eq!(back.next().unwrap(), Some(&line[..]));
            }
            assert_eq!(back.next().unwrap(), None);
            assert_eq!(back.next().unwrap(), None);
        }
        file.set_len(0).unwrap();
        assert_eq!(Back::of(&file).unwrap().next().unwrap(), None);
    }

    #[test]
    fn what_a_session_left_is_found_from_the_end_on() {
        let (_tmp, dir) = dir();
        let ids = [1, 2].map(SessionId::from_bits);
        let append = |kind, id, count| {
            let entry = Entry { event_count: count, ..Entry::new(kind, Some(id), "segment_x.jsonl", GENESIS) };
            Ledger::lock(&dir, Some(id)).unwrap().append(&entry).unwrap();
        };
        let held = |id, kind| holds(&dir, id, kind).unwrap().map(|line| line.event_count);
        assert_eq!(held(ids[0], LedgerKind::SegmentStart), None);
        append(LedgerKind::SegmentStart, ids[0], 1);
        append(LedgerKind::SegmentStart, ids[1], 2);
        append(LedgerKind::SegmentEnd, ids[1], 3);
        assert_eq!(held(ids[0], LedgerKind::SegmentStart), Some(1));
        assert_eq!((held(ids[0], LedgerKind::SegmentEnd), held(ids[1], LedgerKind::SegmentEnd)), (None, Some(3)));
        append(LedgerKind::SegmentEnd, ids[0], 4);
        append(LedgerKind::SegmentEnd, ids[0], 5);
        assert_eq!(held(ids[0], LedgerKind::SegmentEnd), Some(5));
    }

    #[test]
    fn fifty_writers_make_one_chain_with_locks_and_without() {
        for has_locks in [true, false] {
            let (_tmp, dir) = dir();
            let write = |id| {
                let file = dir.files().append(&dir.ledger()).unwrap();
                let locked = if has_locks { files::lock(&file).unwrap() } else { Lock::Unsupported };
                Ledger::in_turn(&dir, file, Some(id), locked).unwrap().append(&entry(id)).unwrap();
            };
            std::thread::scope(|s| (0..50).for_each(|n| drop(s.spawn(move || write(SessionId::from_bits(n))))));
            let all = lines(&dir);
            assert_eq!(all.len(), 50);
            let mut head = GENESIS.to_owned();
            for (seq, line) in all.into_iter().enumerate() {
                assert_eq!((line.ledger_seq, line.prev_hash), (seq as u64, head));
                head = line.hash;
            }
        }
    }
}
