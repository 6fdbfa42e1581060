//! Sessions that are no longer wanted: chosen, named in the ledger by signed tombstones, then removed (docs/prune.md).
//!
//! A tombstone is on disk before anything of its session goes. Whoever prunes next finishes what one that was killed began.

use crate::{
    files::{self, Lock},
    model::{
        LedgerKind, WallTime,
        ledger::{Pruned, PrunedWhat},
        pack::{MANIFEST, Manifest},
        sha256_hex,
        surface::approval::SignedBy,
    },
    numbers::size,
    pack::{
        build::self_check,
        keys::Signer,
        verify::{later, tombstone},
    },
    paths::{AuditDir, SessionPaths},
    record::{
        ledger::{Ends, Entry, Ledger, SegmentEnd},
        store,
    },
    seal,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use std::{
    io::{self, Read as _},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

/// Tombstones that are written, and synced, at a time.
const BATCH: usize = 256;
/// Longest manifest, in bytes.
const MAX_MANIFEST: u64 = 64 << 20;
/// What a pack is called while it is removed, before the stem of its session.
const GOING: &str = ".pruned_";

/// What is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Whole sessions.
    Packs,
    /// Journals that their packs hold as well: nothing is lost.
    Journals,
    /// Investigation logs.
    Payloads,
}

/// What stays. What breaks any of these limits goes, the oldest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// What ended no longer ago than this.
    pub age: Option<Duration>,
    /// So many bytes of the newest sessions; the newest one stays whatever its size.
    pub bytes: Option<u64>,
    /// So many of the newest sessions.
    pub sessions: Option<u64>,
}

impl Keep {
    /// Whether it sets no limit.
    #[must_use]
    pub const fn is_everything(&self) -> bool {
        self.age.is_none() && self.bytes.is_none() && self.sessions.is_none()
    }

    /// With the limits of `other`, too.
    ///
    /// # Errors
    /// Both limit the same.
    pub fn and(self, other: Self) -> Result<Self, String> {
        fn one<T>(a: Option<T>, b: Option<T>, kind: &str) -> Result<Option<T>, String> {
            match (a, b) {
                (Some(_), Some(_)) => Err(format!("{kind} is limited twice")),
                (a, b) => Ok(a.or(b)),
            }
        }
        Ok(Self {
            age: one(self.age, other.age, "the age")?,
            bytes: one(self.bytes, other.bytes, "the size")?,
            sessions: one(self.sessions, other.sessions, "the number of sessions")?,
        })
    }

    /// The sessions that go; `sessions` are the newest first.
    #[must_use]
    pub fn choose(&self, sessions: Vec<Candidate>, now: WallTime) -> Vec<Candidate> {
        let (mut sessions, mut nth, mut bytes) = (sessions, 0_u64, 0_u64);
        sessions.retain(|one| {
            bytes = bytes.saturating_add(one.bytes);
            nth += 1;
            let old = u64::try_from(now.millis().saturating_sub(one.end.at.millis())).unwrap_or(0);
            self.age.is_some_and(|age| u128::from(old) > age.as_millis())
                || self.bytes.is_some_and(|most| bytes > most && nth > 1)
                || self.sessions.is_some_and(|most| nth > most)
        });
        sessions
    }
}

/// An age: a number with `h`, `d`, `w` or `y`.
///
/// # Errors
/// What was expected.
pub fn age(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text:?} is no age: expected a number with h, d, w or y, as in 90d");
    let hours = match text.chars().last() {
        Some('h') => 1,
        Some('d') => 24,
        Some('w') => 24 * 7,
        Some('y') => 24 * 365,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    number.checked_mul(hours * 3600).map(Duration::from_secs).ok_or_else(expected)
}

/// A size: a number with `K`, `M`, `G` or `T`, for powers of 1024.
///
/// # Errors
/// What was expected.
pub fn bytes(text: &str) -> Result<u64, String> {
    let expected = || format!("{text:?} is no size: expected a number with K, M, G or T, as in 10G");
    let number = text.trim_end_matches("iB").trim_end_matches('B');
    let shift = match number.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        _ => return Err(expected()),
    };
    let number: u64 = number[..number.len() - 1].parse().map_err(|_| expected())?;
    number.checked_mul(1 << shift).ok_or_else(expected)
}

impl FromStr for Keep {
    type Err = String;

    /// Limits with commas between them: an age (`90d`), a size (`10G`), a number of sessions (`1000`).
    fn from_str(text: &str) -> Result<Self, String> {
        let mut keep = Self::default();
        for part in text.split(',').map(str::trim) {
            let again = if let Ok(number) = part.parse() {
                keep.sessions.replace(number).is_some()
            } else if let Ok(most) = age(part) {
                keep.age.replace(most).is_some()
            } else if let Ok(most) = bytes(part) {
                keep.bytes.replace(most).is_some()
            } else {
                return Err(format!(
                    "{part:?} is no limit: expected an age (90d), a size (10G) or a number of sessions (1000), with commas \
                     between them"
                ));
            };
            if again {
                return Err(format!("{part:?} is a second limit of its kind"));
            }
        }
        Ok(keep)
    }
}

/// A sealed session, and what would be removed of it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Where its files are.
    pub paths: SessionPaths,
    /// How it ended.
    pub end: SegmentEnd,
    /// Bytes that would be freed.
    pub bytes: u64,
}

/// A session that is left alone, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// What is left.
    pub name: String,
    /// Why, in words.
    pub why: String,
    /// Whether something is wrong with it.
    pub wrong: bool,
}

impl Left {
    fn new(paths: &SessionPaths, why: impl Into<String>, wrong: bool) -> Self {
        Self { name: paths.stem.clone(), why: why.into(), wrong }
    }
}

/// What there is in an audit directory.
#[derive(Debug, Default)]
pub struct Survey {
    /// What can be removed, the newest first.
    pub sessions: Vec<Candidate>,
    /// Sessions that are not sealed, or that must not be touched.
    pub left: Vec<Left>,
    /// What a tombstone names and is still there: whoever wrote it was killed.
    pub unfinished: Vec<SessionPaths>,
}

/// Looks at an audit directory; changes nothing.
///
/// # Errors
/// The directory or its ledger cannot be read.
pub fn survey(dir: &AuditDir, what: What) -> io::Result<Survey> {
    let ends = Ends::read(dir)?;
    let mut out = Survey::default();
    for paths in dir.sessions().into_values() {
        if ends.pruned(paths.id, PrunedWhat::Pack).is_some() {
            out.unfinished.push(paths);
            continue;
        }
        match sealed(dir, &paths, &ends) {
            Err(why) => out.left.push(Left::new(&paths, why, false)),
            Ok(_) if ends.pruned(paths.id, PrunedWhat::Payloads).is_some() && paths.investigation.exists() => {
                out.unfinished.push(paths);
            }
            Ok(end) => {
                let mut files = files_of(&paths, what);
                if what == What::Packs {
                    files.extend(files_of(&paths, What::Payloads));
                }
                let bytes = files.iter().map(|(_, bytes)| bytes).sum();
                if bytes > 0 {
                    out.sessions.push(Candidate { end: end.clone(), bytes, paths });
                }
            }
        }
    }
    out.unfinished.extend(going(dir)?.into_iter().filter(|paths| !paths.pack.exists() && !paths.segment.exists()));
    out.sessions.sort_by(|a, b| (b.end.at, &b.paths.stem).cmp(&(a.end.at, &a.paths.stem)));
    Ok(out)
}

/// Sessions whose packs were being removed.
fn going(dir: &AuditDir) -> io::Result<Vec<SessionPaths>> {
    let names = dir.files().names(&dir.packs())?;
    let stem = |name: &std::ffi::OsString| Some(name.to_str()?.strip_prefix(GOING)?.to_owned());
    let paths = |stem: String| dir.session_of_segment(&format!("segment_{stem}.jsonl"));
    Ok(names.iter().filter_map(stem).filter_map(paths).collect())
}

/// How a session ended that is sealed and over; why it is left alone otherwise.
fn sealed<'a>(dir: &AuditDir, paths: &SessionPaths, ends: &'a Ends) -> Result<&'a SegmentEnd, String> {
    if ends.is_unread(paths.id) {
        return Err("a later version wrote of it in the ledger".to_owned());
    }
    if paths.card.exists() || dir.mark(paths.id).is_ok() || paths.segment.exists() && store::is_held(paths) {
        return Err("it is being recorded, or not finished".to_owned());
    }
    let end = ends.get(paths.id).ok_or("the ledger does not have its end")?;
    if paths.pack.join(MANIFEST).is_file() { Ok(end) } else { Err("it has no pack".to_owned()) }
}

/// The files that would be removed, with their lengths.
fn files_of(paths: &SessionPaths, what: What) -> Vec<(PathBuf, u64)> {
    let journal = paths.journal().map(Clone::clone);
    let mut all = match what {
        What::Payloads => vec![paths.investigation.clone()],
        What::Journals => journal.to_vec(),
        What::Packs => {
            let mut all = vec![paths.surface.clone()];
            all.extend(journal);
            let mut dirs = vec![paths.pack.clone()];
            while let Some(dir) = dirs.pop() {
                for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                    let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                    if is_dir { &mut dirs } else { &mut all }.push(entry.path());
                }
            }
            all
        }
    };
    all.sort();
    all.into_iter().filter_map(|path| path.symlink_metadata().ok().map(|m| (path, m.len()))).collect()
}

/// What a prune came to.
#[derive(Debug, Default)]
pub struct Done {
    /// Sessions of which something was removed.
    pub sessions: u64,
    /// Files that were removed.
    pub files: u64,
    /// Bytes that were freed.
    pub bytes: u64,
    /// Of the sessions, those that an earlier prune had begun to remove.
    pub finished: u64,
    /// What was left, and why.
    pub left: Vec<Left>,
}

/// One thing that is removed, with its tombstone.
struct Grave {
    paths: SessionPaths,
    end: SegmentEnd,
    segment: String,
    pruned: Pruned,
}

/// Finishes what others began, and removes what was chosen. One at a time may do so in an audit directory.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if somebody else does; the ledger cannot be written. What is wrong with a single session is in
/// [`Done::left`].
pub fn prune(
    dir: &AuditDir,
    what: What,
    unfinished: &[SessionPaths],
    chosen: &[Candidate],
    signer: &Signer,
) -> io::Result<Done> {
    let packs = dir.files().dir(&dir.packs())?;
    // A file system without locks has none that is busy.
    if matches!(files::try_lock(&packs), Ok(Lock::Busy)) {
        return Err(io::Error::new(io::ErrorKind::WouldBlock, "another prune is at work in this directory"));
    }
    let mut done = Done::default();
    if !unfinished.is_empty() {
        finish(dir, unfinished, signer, &mut done)?;
    }
    // It may have changed since it was looked at.
    let ends = if chosen.is_empty() { Ends::default() } else { Ends::read(dir)? };
    for batch in chosen.chunks(BATCH) {
        let mut graves = Vec::new();
        for one in batch {
            let dug = match sealed(dir, &one.paths, &ends) {
                Err(why) => Err(Left::new(&one.paths, why, false)),
                Ok(_) if what == What::Journals => journal(&one.paths, &mut done),
                Ok(end) => dig(&one.paths, end, what, signer, &mut graves),
            };
            done.left.extend(dug.err());
        }
        bury(dir, &graves, signer)?;
        for grave in &graves {
            match remove(&grave.paths, grave.pruned.what) {
                Ok(()) => {
                    done.sessions += u64::from(grave.pruned.what == PrunedWhat::Pack || what == What::Payloads);
                    done.files += grave.pruned.files;
                    done.bytes += grave.pruned.bytes;
                }
                Err(e) => done.left.push(Left::new(&grave.paths, format!("it is not gone yet: {e}"), true)),
            }
        }
    }
    // The tombstones hold by themselves. If this fails, the next session signs.
    if done.sessions > done.finished
        && let Err(e) = seal::sign_ledger(dir, signer)
    {
        tracing::warn!("the ledger has tombstones that no checkpoint covers: {e}");
    }
    Ok(done)
}

/// Removes a journal that is a second copy of what a sound pack has: nothing of it is lost, so there is no tombstone.
fn journal(paths: &SessionPaths, done: &mut Done) -> Result<(), Left> {
    let wrong = |why: String| Left::new(paths, why, true);
    if let Some(newer) = later(&paths.pack) {
        return Err(Left::new(paths, newer.to_string(), false));
    }
    if let Some(finding) = self_check(&paths.pack).first() {
        return Err(wrong(format!("its pack does not verify: {finding}")));
    }
    let files = files_of(paths, What::Journals).len() as u64;
    done.bytes += seal::drop_journal(paths).map_err(|e| wrong(e.to_string()))?;
    done.files += files;
    done.sessions += 1;
    Ok(())
}

/// Makes the tombstones of one session.
fn dig(
    paths: &SessionPaths,
    end: &SegmentEnd,
    what: What,
    signer: &Signer,
    graves: &mut Vec<Grave>,
) -> Result<(), Left> {
    let wrong = |e: io::Error| Left::new(paths, e.to_string(), true);
    if let Some(newer) = later(&paths.pack) {
        return Err(Left::new(paths, newer.to_string(), false));
    }
    let mut grave = |what, path: &PathBuf, files: &[(PathBuf, u64)], sha256, count| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        let signer = SignedBy {
            fingerprint: signer.fingerprint(),
            id: signer.id().to_string(),
            public_key: STANDARD.encode(signer.public()),
        };
        let (files, signature) = (files.len() as u64, String::new());
        let pruned = Pruned { bytes, count, files, name, sha256, signature, signer, what };
        graves.push(Grave { paths: paths.clone(), end: end.clone(), segment: store::segment_name(paths), pruned });
    };
    let pack = match what {
        What::Packs => {
            seal::journal_is_in_pack(paths).map_err(wrong)?;
            let manifest = paths.files.read(&paths.pack.join(MANIFEST), MAX_MANIFEST).map_err(wrong)?;
            let read: Manifest = serde_json::from_slice(&manifest)
                .map_err(|e| Left::new(paths, format!("its manifest does not read: {e}"), true))?;
            Some((sha256_hex(&manifest), read.receipt_count_expected))
        }
        What::Payloads | What::Journals => None,
    };
    let payloads = files_of(paths, What::Payloads);
    if !payloads.is_empty() {
        let (sha256, lines) = payloads_hash(paths).map_err(wrong)?;
        grave(PrunedWhat::Payloads, &paths.investigation, &payloads, sha256, lines);
    }
    if let Some((sha256, receipts)) = pack {
        grave(PrunedWhat::Pack, &paths.pack, &files_of(paths, What::Packs), sha256, receipts);
    }
    Ok(())
}

/// SHA-256 of an investigation log, and its lines.
fn payloads_hash(paths: &SessionPaths) -> io::Result<(String, u64)> {
    let mut file = paths.files.open(&paths.investigation)?;
    let (mut hash, mut lines, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((hex::encode(hash.finalize()), lines)),
            n => {
                hash.update(&buffer[..n]);
                lines += memchr::memchr_iter(b'\n', &buffer[..n]).count() as u64;
            }
        }
    }
}

/// Writes the tombstones, and waits until they are on disk.
fn bury(dir: &AuditDir, graves: &[Grave], signer: &Signer) -> io::Result<()> {
    if graves.is_empty() {
        return Ok(());
    }
    let entries = graves.iter().map(|grave| Entry {
        event_count: grave.end.events,
        complete: grave.end.complete,
        note: Some(format!("{} of {}", size(grave.pruned.bytes), grave.pruned.name)),
        pruned: Some(grave.pruned.clone()),
        ..Entry::new(LedgerKind::Pruned, Some(grave.paths.id), &grave.segment, &grave.end.hash)
    });
    let entries: Vec<Entry<'_>> = entries.collect();
    Ledger::lock(dir, None)?.append_all(&entries, &|bytes| Ok(STANDARD.encode(signer.sign(bytes)?)))
}

/// Removes what a tombstone names. The pack goes last, and from one instant to the next: it has another name while its files
/// go.
fn remove(paths: &SessionPaths, what: PrunedWhat) -> io::Result<()> {
    let files = &paths.files;
    if what == PrunedWhat::Payloads {
        return files.remove(&paths.investigation);
    }
    for path in [&paths.surface].into_iter().chain(paths.journal()) {
        files.remove(path)?;
    }
    let going = paths.pack.with_file_name(format!("{GOING}{}", paths.stem));
    if files.exists(&paths.pack) {
        files.remove_dir(&going)?;
        files.rename(&paths.pack, &going)?;
    }
    files.remove_dir(&going)
}

/// Finishes what a prune that was killed began: only what a tombstone names that this key signed, and that still is what it
/// names.
fn finish(dir: &AuditDir, unfinished: &[SessionPaths], signer: &Signer, done: &mut Done) -> io::Result<()> {
    let ends = Ends::read(dir)?;
    for paths in unfinished {
        let mut any = false;
        for what in [PrunedWhat::Payloads, PrunedWhat::Pack] {
            let Some(line) = ends.pruned(paths.id, what) else { continue };
            let checked = tombstone(line).and_then(|pruned| {
                if pruned.signer.fingerprint != signer.fingerprint() {
                    return Err(format!("another key signed its tombstone: {}", pruned.signer.fingerprint));
                }
                let there = match what {
                    PrunedWhat::Payloads if paths.investigation.exists() => {
                        Some(payloads_hash(paths).map(|(hash, _)| hash))
                    }
                    PrunedWhat::Pack if paths.pack.exists() => {
                        let manifest = paths.files.read(&paths.pack.join(MANIFEST), MAX_MANIFEST);
                        Some(manifest.map(|bytes| sha256_hex(&bytes)))
                    }
                    _ => None,
                };
                match there.transpose() {
                    Err(e) => Err(e.to_string()),
                    Ok(Some(hash)) if hash != pruned.sha256 => {
                        Err(format!("it is not what its tombstone names: {hash}, and not {}", pruned.sha256))
                    }
                    Ok(_) => Ok(pruned),
                }
            });
            match checked.and_then(|pruned| remove(paths, what).map(|()| pruned).map_err(|e| e.to_string())) {
                Ok(_) => any = true,
                Err(why) => done.left.push(Left::new(paths, why, true)),
            }
        }
        if any {
            done.sessions += 1;
            done.finished += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SessionId;

    #[test]
    fn limits_are_read_and_what_means_nothing_is_not() {
        let all: Keep = "90d, 10G,1000".parse().unwrap();
        let ninety = Some(Duration::from_hours(90 * 24));
        assert_eq!(all, Keep { age: ninety, bytes: Some(10 << 30), sessions: Some(1000) });
        assert_eq!("12h".parse::<Keep>().unwrap().age, Some(Duration::from_hours(12)));
        assert_eq!("2w".parse::<Keep>().unwrap().age, Some(Duration::from_hours(14 * 24)));
        for (text, most) in [("5K", 5 << 10), ("5MiB", 5 << 20), ("5MB", 5 << 20), ("1T", 1 << 40)] {
            assert_eq!(text.parse::<Keep>().unwrap().bytes, Some(most), "{text}");
        }
        assert!(Keep::default().is_everything() && !all.is_everything());
        for bad in ["", ",", "1,2", "1d,2d", "d", "1.5d", "-1d", "1m", "1k", "é", "99999999999999999999y", "99999999T"]
        {
            assert!(bad.parse::<Keep>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_breaks_any_limit_goes() {
        let hour = 3_600_000;
        let dir = AuditDir::at("/x");
        // The newest first, an hour and a KiB each.
        let all: Vec<Candidate> = (0..6_u8)
            .map(|n| {
                let at = WallTime::from_millis(hour * (10 - i64::from(n)));
                let paths = dir.session(at, SessionId::from_bits(n.into()));
                Candidate { paths, end: SegmentEnd { hash: String::new(), events: 1, at, complete: None }, bytes: 1024 }
            })
            .collect();
        let goes = |keep: &str| {
            let chosen = keep.parse::<Keep>().unwrap().choose(all.clone(), WallTime::from_millis(hour * 10));
            chosen.iter().map(|one| one.paths.id.bits()).collect::<Vec<_>>()
        };
        assert_eq!(goes("4"), [4, 5]);
        assert_eq!(goes("3h"), [4, 5]);
        assert_eq!(goes("4K"), [4, 5]);
        assert_eq!(goes("5,3K,4h"), [3, 4, 5]);
        assert_eq!(goes("0"), [0, 1, 2, 3, 4, 5]);
        // The newest stays whatever its size.
        assert_eq!(goes("0K"), [1, 2, 3, 4, 5]);
        assert_eq!(Keep::default().choose(all.clone(), WallTime::from_millis(0)).len(), 0);
    }
}
