//! From ended evidence to a signed, self-checked pack; also for sessions that died.

use crate::{
    approvals,
    files::{self, Lock},
    model::{
        LedgerKind, SessionId, WallTime, checkpoint,
        pack::{self, Manifest},
        reading::{self, Reading},
        sha256_hex,
    },
    note::Key,
    pack::{
        build::{self, BuildError},
        ci,
        keys::Signer,
        verify,
    },
    paths::{AuditDir, SessionPaths, in_pack},
    record::{
        checkpoint::{Certify, EVERY},
        ledger::{self, Ends, Entry, Ledger},
        log::{self, LogError},
        recover::{self, RecoverError, Sealing},
        store::{Store, segment_name},
    },
    surface::feed::Pinned,
};
use std::{
    io,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Bytes of a document of a pack that are read.
const MAX_DOCUMENT: u64 = 64 << 20;

/// A signer, as it certifies keys of sessions and signs checkpoints of ledgers.
struct Certifier<S> {
    signer: S,
    key: Key,
    every: Duration,
}

impl<S: Deref<Target = Signer> + Send + Sync> Certify for Certifier<S> {
    fn key(&self) -> &Key {
        &self.key
    }

    fn sign(&self, text: &[u8]) -> io::Result<[u8; 64]> {
        self.signer.sign(text)
    }

    fn every(&self) -> Duration {
        self.every
    }
}

/// Certifies keys of sessions with the key that signs packs. `None`: its name cannot be in a certificate.
#[must_use]
pub fn certifier(signer: &Arc<Signer>) -> Option<Arc<dyn Certify>> {
    certifier_every(signer, EVERY)
}

/// The same for sessions that have a checkpoint so often.
#[must_use]
pub fn certifier_every(signer: &Arc<Signer>, every: Duration) -> Option<Arc<dyn Certify>> {
    let key = checkpoint::signer(signer.id().as_str(), signer.public())?;
    Some(Arc::new(Certifier { signer: signer.clone(), key, every }))
}

/// Whether an Ed25519 signature of a text holds.
fn holds(key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    verify::verify_ed25519(key, text, signature).is_ok()
}

/// Says in the ledger that the pack stands, and signs a checkpoint of the ledger.
fn to_log(store: &Store, doc: &crate::model::SessionDoc, pack: &Path, signer: &Signer, sealed: &mut Sealed) {
    let dir = store.dir();
    let written = || {
        let manifest = sha256_hex(&store.paths.files.read(&pack.join(pack::MANIFEST), MAX_DOCUMENT)?);
        let mut ledger = Ledger::lock(dir, Some(doc.session_id))?;
        let is_there = ledger::holds(dir, doc.session_id, LedgerKind::PackSealed)?
            .is_some_and(|line| line.pack_manifest_sha256.as_ref() == Some(&manifest));
        if !is_there {
            let segment = segment_name(&store.paths);
            ledger.append(&Entry {
                event_count: doc.event_count,
                complete: Some(doc.session_complete),
                manifest: Some(manifest),
                ..Entry::new(LedgerKind::PackSealed, Some(doc.session_id), &segment, &doc.chain_last)
            })?;
        }
        Ok::<_, io::Error>(ledger)
    };
    let ledger = match written() {
        Ok(ledger) => ledger,
        Err(e) => return sealed.problems.push(format!("the ledger could not name the pack: {e}")),
    };
    let Some(key) = checkpoint::signer(signer.id().as_str(), signer.public()) else { return };
    match log::sign(&ledger, &Certifier { signer, key, every: EVERY }, &holds) {
        Ok(signed) if signed.is_mended => {
            sealed.notes.push(format!("{} did not fit the ledger, and was made again", dir.log().display()));
        }
        Ok(_) => {}
        Err(e @ LogError::RolledBack(_)) => sealed.rolled_back = Some(e.to_string()),
        // The next session signs it.
        Err(e) => sealed.notes.push(format!("no checkpoint of the ledger was signed: {e}")),
    }
}

/// Signs a checkpoint of the ledger as it is.
///
/// # Errors
/// [`LogError`].
pub fn sign_ledger(dir: &AuditDir, signer: &Signer) -> Result<log::Signed, LogError> {
    let key = checkpoint::signer(signer.id().as_str(), signer.public());
    let key = key.ok_or_else(|| LogError::Name(signer.id().to_string()))?;
    let ledger = Ledger::lock(dir, None).map_err(|source| LogError::Io { path: dir.ledger(), source })?;
    log::sign(&ledger, &Certifier { signer, key, every: EVERY }, &holds)
}

/// Begins another log of an audit directory: see [`log::renew`].
///
/// # Errors
/// [`LogError`].
pub fn renew(dir: &AuditDir, signer: &Signer, reason: &str, origin: Option<&str>) -> Result<log::Signed, LogError> {
    let key = checkpoint::signer(signer.id().as_str(), signer.public());
    let key = key.ok_or_else(|| LogError::Name(signer.id().to_string()))?;
    log::renew(dir, &Certifier { signer, key, every: EVERY }, reason, origin, &holds)
}

/// What became of one session's evidence.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// Id of the session.
    pub session: SessionId,
    /// When it began.
    pub started: WallTime,
    /// The pack, if one was built.
    pub pack: Option<PathBuf>,
    /// Whether the pack verified.
    pub verified: bool,
    /// Whether the session is complete.
    pub complete: bool,
    /// Why the session ended, the `end_reason` of `session.json`.
    pub end_reason: String,
    /// Receipts whose policy verdict is `denied`.
    pub policy_denied: u64,
    /// Number of tool calls.
    pub calls: u64,
    /// What went wrong, as text for people.
    pub problems: Vec<String>,
    /// Why no checkpoint of the ledger was signed, if it lacks what it had before, as text for people.
    pub rolled_back: Option<String>,
    /// What recovery found, as text for people.
    pub notes: Vec<String>,
}

/// The session is over: its card goes, then what the user directory remembers, and then the journal, which is a second copy
/// of what the pack has. Without a card a mark is no more than a leftover; a card without a mark would be named for ever.
pub fn forget(dir: &AuditDir, paths: &SessionPaths, sealed: &mut Sealed) {
    if let Err(e) = paths.files.remove(&paths.card) {
        return sealed.problems.push(format!("{}: {e}", paths.card.display()));
    }
    dir.marks().iter().for_each(|marks| marks.forget(paths.id));
    if sealed.verified
        && let Err(e) = drop_journal(paths)
    {
        tracing::warn!(session = %paths.id, error = %e, "the journal stays beside the pack");
    }
}

/// Removes the journal of a session whose pack has each byte of it; gives how many bytes went. Of one that is not in the
/// pack nothing goes.
///
/// # Errors
/// As [`journal_is_in_pack`].
pub fn drop_journal(paths: &SessionPaths) -> io::Result<u64> {
    let bytes = journal_is_in_pack(paths)?;
    for path in paths.journal() {
        paths.files.remove(path)?;
    }
    Ok(bytes)
}

/// Whether the pack has what there is of the journal, byte for byte; gives how many bytes that are.
///
/// # Errors
/// The two are not the same, or an I/O error.
pub fn journal_is_in_pack(paths: &SessionPaths) -> io::Result<u64> {
    let mut bytes = 0;
    for (path, there) in paths.journal().into_iter().filter_map(|path| Some((path, in_pack(path)?))) {
        let file = match paths.files.open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        bytes += file.metadata()?.len();
        if !files::same(file, paths.files.open(&there)?)? {
            let what = format!("{} is not what its pack has in {}", path.display(), there.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
    Ok(bytes)
}

/// Ends the segment in the ledger, builds the pack and verifies it.
pub fn seal(
    store: &mut Store,
    doc: &crate::model::SessionDoc,
    (surface, pinned): (Option<&[u8]>, Option<&Pinned>),
    auto_pack: bool,
    signer: Option<&Signer>,
    note: Option<String>,
) -> Sealed {
    let mut sealed = Sealed {
        session: doc.session_id,
        started: doc.started_at,
        pack: None,
        verified: false,
        complete: doc.session_complete,
        end_reason: doc.end_reason.to_string(),
        policy_denied: doc.counts.policy_denied,
        calls: doc.counts.calls,
        problems: Vec::new(),
        rolled_back: None,
        notes: doc.recovery_notes.clone(),
    };
    if let Err(e) = store.end(doc, note) {
        sealed.problems.push(format!("the end of the segment could not be made durable: {e}"));
    }
    if !auto_pack {
        return sealed;
    }
    let Some(signer) = signer else {
        sealed.problems.push("no pack was built: there is no key to sign it with".to_owned());
        return sealed;
    };
    let policies = store.dir().policies();
    let input = build::Input {
        paths: &store.paths,
        session: doc,
        policies: Some(&policies),
        surface,
        decisions: pinned.and_then(decided),
        signer,
        ci_binding: ci::of_process(),
        now: WallTime::now(),
    };
    match build::build_checked(&input) {
        Ok(built) => {
            sealed.problems.extend(built.findings.iter().map(|f| format!("self-check: {}", f.message)));
            if let Some(e) = built.unsynced {
                sealed.problems.push(format!("the pack is in place, but may not survive a power cut: {e}"));
            }
            sealed.verified = true;
            sealed.pack = Some(built.dir);
        }
        Err(BuildError::Exists(dir)) => {
            match is_pack_of(&dir, doc, signer) {
                Ok(()) => sealed.verified = true,
                Err(why) => sealed.problems.push(format!("{} is where the pack should go: {why}", dir.display())),
            }
            sealed.pack = sealed.verified.then_some(dir);
        }
        Err(e) => sealed.problems.push(format!("no pack was built: {e}")),
    }
    if sealed.verified
        && let Some(pack) = sealed.pack.clone()
    {
        to_log(store, doc, &pack, signer, &mut sealed);
    }
    sealed
}

/// The decisions about the surface as a pack has them.
fn decided(pinned: &Pinned) -> Option<build::Decisions> {
    let approved = pinned.document().ok().filter(|_| pinned.error.is_none())?;
    Some(build::Decisions { approvals: pinned.bytes.clone(), approved })
}

/// Whether what is at a pack's place is the pack of this session, signed by this signer: an earlier recovery came so
/// far.
fn is_pack_of(pack: &Path, doc: &crate::model::SessionDoc, signer: &Signer) -> Result<(), String> {
    let findings = build::self_check(pack);
    if !findings.is_empty() {
        return Err(findings.join("; "));
    }
    let read = |name: &str| {
        let file = crate::files::plain(&pack.join(name));
        file.and_then(|file| files::read_all(file, MAX_DOCUMENT)).map_err(|e| format!("{name}: {e}"))
    };
    let manifest: Manifest = serde_json::from_slice(&read(pack::MANIFEST)?).map_err(|e| e.to_string())?;
    if manifest.signer_pubkey_sha256 != signer.fingerprint() {
        return Err("another key signed it".to_owned());
    }
    let there = match reading::read::<crate::model::SessionDoc>(&read(pack::SESSION)?) {
        Reading::Readable(there) => there,
        Reading::TooNew(e) => return Err(e.to_string()),
        Reading::Damaged(why) => return Err(why),
    };
    if (there.session_id, &there.chain_last) != (doc.session_id, &doc.chain_last) {
        return Err("it holds another chain".to_owned());
    }
    Ok(())
}

/// Finishes the sessions of an audit directory whose process is gone; `only_cards` looks at those alone that say so
/// themselves, without reading every segment. `signer` is asked only if there is a pack to sign; `sealed_at` is told
/// of each session that was finished.
///
/// # Errors
/// The directory cannot be read.
pub fn recover_dir(
    dir: &AuditDir,
    signer: &dyn Fn() -> Option<Arc<Signer>>,
    only_cards: bool,
    sealed_at: &dyn Fn(&SessionPaths),
) -> std::io::Result<Vec<Result<Sealed, RecoverError>>> {
    let mut all = Vec::new();
    // One recovery at a time in one directory: sessions of one process share captures. A proxy that starts does not
    // wait for another one that is recovering: it leaves the sessions to that.
    let live = match dir.files().dir(&dir.live()) {
        Ok(live) => live,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => dir.files().dir(&dir.audit())?,
        Err(e) => return Err(e),
    };
    let locked = if only_cards { files::try_lock(&live) } else { files::lock(&live) };
    // Any other error means a file system without locks.
    if matches!(locked, Ok(Lock::Busy)) {
        return Ok(all);
    }
    recover::begin_sessions(dir)?;
    let found = recover::sessions(dir, only_cards)?;
    // Of the few that have a card the ledger is asked one by one.
    let ends = if only_cards { Ends::default() } else { Ends::read(dir)? };
    all.extend(found.unread.into_iter().map(Err));
    let sealing = Sealing { certify: &|| signer().as_ref().and_then(certifier), holds: &holds };
    for paths in found.sessions {
        let recovered = match recover::recover(dir, &paths, &ends, &|server| approvals::pinned(dir, server), &sealing) {
            Ok(None) => continue,
            Ok(Some(recovered)) => recovered,
            Err(e) => {
                all.push(Err(e));
                continue;
            }
        };
        let recover::Recovered { mut store, doc, notes, surface, pinned } = recovered;
        let signer = signer();
        let seen = (surface.as_deref(), pinned.as_deref());
        let mut sealed = seal(&mut store, &doc, seen, true, signer.as_deref(), notes.first().cloned());
        if sealed.problems.is_empty() {
            forget(dir, &paths, &mut sealed);
        }
        sealed_at(&paths);
        all.push(Ok(sealed));
    }
    // Lines of a later version stay, whatever they are about, and are said once.
    let is_said = |one: &Result<Sealed, RecoverError>| one.as_ref().is_err_and(|e| e.path() == dir.ledger());
    if let Some(source) = ends.too_new().filter(|_| !all.iter().any(is_said)) {
        all.push(Err(RecoverError::TooNew { path: dir.ledger(), source: source.clone() }));
    }
    sweep_marks(dir, &ends);
    recover::sweep(dir)?;
    crate::record::card::sweep(dir);
    crate::relay::capture::sweep(&crate::relay::capture::search_dirs(&dir.live()));
    crate::live::discovery::sweep_all();
    Ok(all)
}

/// Forgets sessions that are over: their sealer was killed between its last two steps.
fn sweep_marks(dir: &AuditDir, ends: &Ends) {
    let Some(marks) = dir.marks() else { return };
    for mark in marks.of_dir(dir) {
        let paths = dir.session(mark.started_at, mark.session_id);
        let over = ends.get(paths.id).is_some() && recover::is_finished(&paths, ends.get(paths.id)).unwrap_or(false);
        let there = paths.segment.exists() || paths.pack.join(pack::MANIFEST).exists();
        if over && there && !paths.card.exists() {
            marks.forget(paths.id);
        }
    }
}
