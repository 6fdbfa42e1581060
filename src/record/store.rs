//! The files of one session.

use super::{
    card::Card,
    checkpoint::{Certify, Checkpoints, Failed},
    ledger::{self, Ledger},
    recorder::{Begin, Clock, Recorder, Setup, UnwrittenLines},
    sink::Sink,
};
use crate::{
    canon,
    files::{self, Lock},
    model::{LedgerKind, SessionDoc, SessionId, WallTime, checkpoint::Role},
    paths::{AuditDir, SessionPaths},
    sys::process,
};
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A session could not be begun on disk.
#[derive(thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct BeginError {
    /// Path of the file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
    /// What was to go over from the session before.
    pub rolled: Option<Box<Recorder>>,
}

impl std::fmt::Debug for BeginError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeginError").field("path", &self.path).field("source", &self.source).finish_non_exhaustive()
    }
}

/// The open files of one session. The segment's lock says that the session is alive.
#[derive(Debug)]
pub struct Store {
    /// Paths of the files of the session.
    pub paths: SessionPaths,
    dir: AuditDir,
    segment: Sink,
    receipts: Sink,
    investigation: Option<Sink>,
    checkpoints: Arc<Checkpoints>,
    locked: bool,
}

impl Store {
    /// Starts a session on disk: files, ledger line, `chain_start`.
    ///
    /// # Errors
    /// An I/O error, with the file, and `rolled` (or what was begun) to try again with; no file is left behind.
    pub fn begin(
        dir: &AuditDir,
        setup: &Arc<Setup>,
        started_ns: u64,
        started_at: WallTime,
        session: SessionId,
        certify: Option<Arc<dyn Certify>>,
        rolled: Option<Recorder>,
    ) -> Result<(Self, Recorder), BeginError> {
        let paths = dir.session(started_at, session);
        let name = segment_name(&paths);
        let opened = (|| {
            let segment = Sink::create(&paths.files, &paths.segment).map_err(|e| (e, paths.segment.clone()))?;
            let locked = lock(segment.file()).map_err(|e| (e, paths.segment.clone()))?;
            let receipts = Sink::create(&paths.files, &paths.receipts).map_err(|e| (e, paths.receipts.clone()))?;
            let ledger = Ledger::lock(dir, Some(session)).map_err(|e| (e, dir.ledger()))?;
            Ok((segment, receipts, ledger, locked))
        })();
        // It is tried again under the same name.
        let forget = || {
            let _ = paths.files.remove(&paths.segment);
            let _ = paths.files.remove(&paths.receipts);
        };
        let (segment, receipts, mut ledger, locked) = match opened {
            Ok(opened) => opened,
            Err((source, path)) => {
                if source.kind() != io::ErrorKind::AlreadyExists {
                    forget();
                }
                return Err(BeginError { path, source, rolled: rolled.map(Box::new) });
            }
        };
        let begin = Begin {
            session,
            continues: setup.http.as_ref().and_then(|http| http.continues),
            started_ns,
            started_at,
            clock: Clock::of_start(started_ns, started_at),
            prev_hash: ledger.head().to_owned(),
        };
        let mut recorder = match rolled {
            Some(old) => old.roll_into(begin),
            None => Recorder::begin(setup.clone(), begin),
        };
        if let Some(marks) = dir.marks()
            && let Err(e) = marks.chain_start(dir, session, started_at, recorder.chain().first())
        {
            tracing::error!(error = %e, "how the session begins could not be remembered: a crash cannot be recovered");
        }
        let checkpoints = Arc::new(Checkpoints::new(dir, &paths, Role::Recorder));
        checkpoints.certified_by(certify);
        let (dir, investigation) = (dir.clone(), None);
        let mut store = Self { paths: paths.clone(), dir, segment, receipts, investigation, checkpoints, locked };
        let started = store.write(&mut recorder.lines).and_then(|()| {
            ledger.append(&ledger::Entry {
                event_count: recorder.chain().len(),
                session_key: store.checkpoints.recorder_key(),
                ..ledger::Entry::new(LedgerKind::SegmentStart, Some(session), &name, recorder.chain().first())
            })
        });
        match started {
            Ok(()) => Ok((store, recorder)),
            Err(source) => {
                forget();
                Err(BeginError { path: paths.segment, source, rolled: Some(Box::new(recorder)) })
            }
        }
    }

    /// What another process has done to the segment or the receipts, and how many bytes of them that costs at most.
    #[must_use]
    pub fn damage(&self) -> Option<(String, u64)> {
        let said = |path: &Path, what: &str| format!("{} {what} while it was written", path.display());
        let files = [(&self.segment, &self.paths.segment), (&self.receipts, &self.paths.receipts)];
        let damaged = files.into_iter().find_map(|(sink, path)| {
            let (what, bytes) = sink.damage(path)?;
            Some((said(path, &what), bytes))
        });
        // No evidence is lost with its checkpoints, but nothing bounds what may be.
        damaged.or_else(|| Some((said(&self.paths.checkpoints, &self.checkpoints.damage()?), 0)))
    }

    /// Its checkpoints.
    #[must_use]
    pub const fn checkpoints(&self) -> &Arc<Checkpoints> {
        &self.checkpoints
    }

    /// The audit directory.
    #[must_use]
    pub const fn dir(&self) -> &AuditDir {
        &self.dir
    }

    /// Whether its lock tells others that it is alive: not every file system has locks.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        self.locked
    }

    /// Takes over the files of a session whose process is gone.
    ///
    /// # Errors
    /// `WouldBlock` if it is not; an I/O error, also where no lock and no card can tell.
    pub fn take_over(dir: &AuditDir, paths: &SessionPaths) -> io::Result<Self> {
        let segment = Sink::append_to(&paths.files, &paths.segment)?;
        let locked = lock(segment.file())?;
        if !locked {
            match Card::read(&paths.files, &paths.card) {
                Some(card) if process::is_alive(card.pid, card.pid_started) => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Some(_) => {}
                None => return Err(io::Error::new(io::ErrorKind::Unsupported, NO_LOCKS)),
            }
        }
        Ok(Self {
            paths: paths.clone(),
            dir: dir.clone(),
            segment,
            receipts: Sink::append_to(&paths.files, &paths.receipts)?,
            investigation: None,
            checkpoints: Arc::new(Checkpoints::new(dir, paths, Role::Recovery)),
            locked,
        })
    }

    /// Puts the receipts that wait in the place of those from byte `from` on, in one step: if the process is killed
    /// meanwhile, it leaves the old ones or the new ones.
    ///
    /// # Errors
    /// An I/O error; then the old ones stay, and the new ones still wait.
    pub fn write_receipts_again(&mut self, from: u64, lines: &mut UnwrittenLines) -> io::Result<()> {
        let files = &self.paths.files;
        let staged = self.paths.receipts.with_extension("jsonl.new");
        let before = lines.receipts.len().saturating_sub(lines.behind);
        files.remove(&staged)?;
        let placed = files.create(&staged).and_then(|mut out| {
            io::copy(&mut files.open(&self.paths.receipts)?.take(from), &mut out)?;
            out.write_all(&lines.receipts[..before])?;
            files::sync_all(&out)?;
            files.rename(&staged, &self.paths.receipts)
        });
        if placed.is_err() {
            let _ = files.remove(&staged);
        }
        placed?;
        lines.receipts.drain(..before);
        self.receipts = Sink::append_to(files, &self.paths.receipts)?;
        self.paths.receipts.parent().map_or(Ok(()), files::sync_dir)
    }

    /// Writes everything that waits, payloads and receipts before the events that bind them.
    ///
    /// # Errors
    /// An I/O error; what was not written still waits in `lines`, call again.
    pub fn write(&mut self, lines: &mut UnwrittenLines) -> io::Result<()> {
        if !lines.investigation.is_empty() {
            self.investigation()?.append(&lines.investigation)?;
            lines.investigation.clear();
        }
        let before = lines.receipts.len().saturating_sub(lines.behind);
        self.receipts.append(&lines.receipts[..before])?;
        lines.receipts.drain(..before);
        self.segment.append(&lines.segment)?;
        lines.segment.clear();
        self.receipts.append(&lines.receipts)?;
        lines.receipts.clear();
        lines.behind = 0;
        self.checkpoints.written(&mut lines.hashes, self.segment.len(), self.receipts.len());
        Ok(())
    }

    fn investigation(&mut self) -> io::Result<&mut Sink> {
        if self.investigation.is_none() {
            self.dir.files().make_dir(&self.dir.investigation())?;
            self.investigation = Some(Sink::append_to(&self.paths.files, &self.paths.investigation)?);
        }
        self.investigation.as_mut().ok_or_else(|| io::Error::other("no investigation log"))
    }

    /// Writes a payload that is too big for memory.
    ///
    /// # Errors
    /// An I/O error; nothing of it stays then.
    pub fn payload(&mut self, head: &[u8], value: &[u8], canonical: bool) -> io::Result<()> {
        self.investigation()?.stream(|out| {
            out.write_all(head)?;
            if canonical {
                let mut failed = None;
                let end = canon::canonicalize_to(value, &mut |part| {
                    if failed.is_none() {
                        failed = out.write_all(part).err();
                    }
                });
                match (failed, end) {
                    (Some(e), _) => return Err(e),
                    (None, Err(e)) => return Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
                    (None, Ok(())) => {}
                }
            } else {
                out.write_all(b"\"")?;
                let engine = &base64::engine::general_purpose::STANDARD;
                let mut encoder = base64::write::EncoderWriter::new(&mut *out, engine);
                encoder.write_all(value)?;
                encoder.finish()?;
                drop(encoder);
                out.write_all(b"\"")?;
            }
            out.write_all(b"}\n")
        })
    }

    /// Writes the observed surface, so that a reader sees all of it or the one before.
    ///
    /// # Errors
    /// An I/O error.
    pub fn surface(&self, document: &[u8]) -> io::Result<()> {
        self.dir.files().make_dir(&self.dir.surface())?;
        if let Some(marks) = self.dir.marks()
            && let Err(e) = marks.surface(&self.dir, self.paths.id, canon::sha256_hex(document))
        {
            tracing::warn!(error = %e, "the surface could not be remembered: recovery would leave it out");
        }
        let staged = self.paths.surface.with_extension("json.new");
        self.paths.files.replace(&staged, &self.paths.surface, document, true)
    }

    /// Length of the segment in bytes: whole lines that were written.
    #[must_use]
    pub const fn segment_len(&self) -> u64 {
        self.segment.len()
    }

    /// Handles for a syncing thread: receipts, segment, then what else there is.
    ///
    /// # Errors
    /// An I/O error.
    pub fn sync_handles(&self) -> io::Result<Vec<File>> {
        let mut files = vec![self.receipts.file().try_clone()?, self.segment.file().try_clone()?];
        if let Some(log) = &self.investigation {
            files.push(log.file().try_clone()?);
        }
        Ok(files)
    }

    /// Syncs everything, and states it in a checkpoint.
    ///
    /// # Errors
    /// An I/O error.
    pub fn seal(&self) -> io::Result<()> {
        let mut files: Vec<_> = self.sync_handles()?.into_iter().map(|file| (file, 0)).collect();
        self.checkpoints.sync(true, &mut files).map_err(Failed::into_inner)
    }

    /// Syncs everything, states it in the last checkpoint, and writes the ledger line of the segment's end, unless these are
    /// there.
    ///
    /// # Errors
    /// An I/O error.
    pub fn end(&mut self, doc: &SessionDoc, note: Option<String>) -> io::Result<()> {
        self.seal()?;
        let mut ledger = Ledger::lock(&self.dir, Some(doc.session_id))?;
        if ledger::holds(&self.dir, doc.session_id, LedgerKind::SegmentEnd)?.is_some() {
            return Ok(());
        }
        let segment = segment_name(&self.paths);
        ledger.append(&ledger::Entry {
            event_count: doc.event_count,
            complete: Some(doc.session_complete),
            note,
            session_key: self.checkpoints.recorder_key(),
            tree_root: self.checkpoints.root_of(doc.event_count).map(hex::encode),
            ..ledger::Entry::new(LedgerKind::SegmentEnd, Some(doc.session_id), &segment, &doc.chain_last)
        })
    }
}

/// File name of a session's segment.
#[must_use]
pub fn segment_name(paths: &SessionPaths) -> String {
    format!("segment_{}.jsonl", paths.stem)
}

/// Whether the segment's session is alive.
#[must_use]
pub fn is_held(paths: &SessionPaths) -> bool {
    let held = |file: &File| lock(file).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
    paths.files.open(&paths.segment).is_ok_and(|file| held(&file))
}

/// Why nothing is done about a session if it cannot be told whether it is alive.
const NO_LOCKS: &str = "the file system has no locks, so nothing tells whether this session is still running; it \
                        cannot be finished here: record into a directory on a local disk with --audit-dir";

/// Locks a segment without waiting; whether the file system has locks.
///
/// # Errors
/// `WouldBlock` if its session is alive.
pub fn lock(file: &File) -> io::Result<bool> {
    match files::try_lock(file)? {
        Lock::Taken => Ok(true),
        Lock::Unsupported => Ok(false),
        Lock::Busy => Err(io::ErrorKind::WouldBlock.into()),
    }
}
