//! From ended evidence to a signed, self-checked pack; also for sessions that died.

use super::{Sealed, Status, status::Tally};
use crate::{
    files::{self, Lock},
    live::{hub::Hub, protocol::PackState},
    model::{
        WallTime,
        pack::{self, Manifest},
        reading::{self, Reading},
    },
    pack::{
        build::{self, BuildError},
        ci,
        keys::Signer,
    },
    paths::{AuditDir, SessionPaths},
    record::{
        ledger::Ends,
        recover::{self, RecoverError},
        session::Ended,
        store::Store,
    },
};
use std::{
    path::Path,
    sync::{Arc, mpsc::Receiver},
};

/// Bytes of a document of a pack that are read.
const MAX_DOCUMENT: u64 = 64 << 20;

/// Whose evidence it is, and how it is sealed.
#[derive(Clone)]
pub(super) struct Keeping {
    pub(super) dir: AuditDir,
    /// Whether anything can be written there.
    pub(super) usable: bool,
    pub(super) signer: Option<Arc<Signer>>,
    pub(super) auto_pack: bool,
    pub(super) status: Status,
}

/// Seals sessions as they end.
pub(super) struct Sealer {
    pub(super) keeping: Keeping,
    pub(super) live: Option<Arc<Hub>>,
}

impl Sealer {
    /// Runs until the recorder is gone; returns what became of the sessions.
    pub(super) fn run(self, ended: &Receiver<Ended>) -> Tally {
        let Keeping { dir, signer, auto_pack, status, .. } = &self.keeping;
        let (mut tally, mut packs) = (Tally::default(), 0_u64);
        for Ended { mut store, doc, surface, .. } in ended {
            self.tell(doc.session_id, PackState::Sealing, None);
            let mut sealed = seal(&mut store, &doc, surface.as_deref(), *auto_pack, signer.as_deref(), None);
            if sealed.problems.is_empty() {
                forget(dir, &store.paths, &mut sealed);
            }
            let state = match &sealed {
                s if !s.problems.is_empty() => PackState::Failed,
                s if s.verified => PackState::Verified,
                _ => PackState::None,
            };
            self.tell(doc.session_id, state, Some(&sealed));
            status.sealed(&sealed);
            index(dir, &store.paths);
            tally.add(&sealed);
            packs += 1;
        }
        tracing::debug!(dir = %dir.root().display(), packs, "sealing is done");
        tally
    }

    fn tell(&self, session: crate::model::SessionId, state: PackState, sealed: Option<&Sealed>) {
        if let Some(live) = &self.live {
            let pack = sealed.and_then(|s| s.pack.clone());
            live.pack(session, state, pack, sealed.map(|s| s.problems.clone()).unwrap_or_default());
        }
    }
}

/// Notes the session in the user's history. The evidence is sealed by now; that there is no index is no more than a log
/// line.
fn index(dir: &AuditDir, paths: &SessionPaths) {
    let noted = crate::paths::assay_home()
        .map_err(|e| e.to_string())
        .and_then(|home| crate::history::note(&home, dir, paths).map_err(|e| e.to_string()));
    if let Err(e) = noted {
        tracing::warn!(session = %paths.id, "the session is not in the history yet: {e}");
    }
}

/// The session is over: its card goes, and then what the user directory remembers. Without a card a mark is no more
/// than a leftover; a card without a mark would be named for ever.
fn forget(dir: &AuditDir, paths: &SessionPaths, sealed: &mut Sealed) {
    match paths.files.remove(&paths.card) {
        Err(e) => sealed.problems.push(format!("{}: {e}", paths.card.display())),
        Ok(()) => dir.marks().iter().for_each(|marks| marks.forget(paths.id)),
    }
}

/// Ends the segment in the ledger, builds the pack and verifies it.
fn seal(
    store: &mut Store,
    doc: &crate::model::SessionDoc,
    surface: Option<&[u8]>,
    auto_pack: bool,
    signer: Option<&Signer>,
    note: Option<String>,
) -> Sealed {
    let mut sealed = Sealed {
        session: doc.session_id,
        pack: None,
        verified: false,
        complete: doc.session_complete,
        end_reason: doc.end_reason.to_string(),
        policy_denied: doc.counts.policy_denied,
        calls: doc.counts.calls,
        problems: Vec::new(),
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
    sealed
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
/// themselves, without reading every segment. `signer` is asked only if there is a pack to sign.
///
/// # Errors
/// The directory cannot be read.
pub fn recover_dir(
    dir: &AuditDir,
    signer: &dyn Fn() -> Option<Arc<Signer>>,
    only_cards: bool,
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
    let found = recover::sessions(dir, only_cards)?;
    // Of the few that have a card the ledger is asked one by one.
    let ends = if only_cards { Ends::default() } else { Ends::read(dir)? };
    all.extend(found.unread.into_iter().map(Err));
    for paths in found.sessions {
        let recovered = match recover::recover(dir, &paths, &ends) {
            Ok(None) => continue,
            Ok(Some(recovered)) => recovered,
            Err(e) => {
                all.push(Err(e));
                continue;
            }
        };
        let recover::Recovered { mut store, doc, notes, surface } = recovered;
        let signer = signer();
        let mut sealed = seal(&mut store, &doc, surface.as_deref(), true, signer.as_deref(), notes.first().cloned());
        if sealed.problems.is_empty() {
            forget(dir, &paths, &mut sealed);
        }
        index(dir, &paths);
        all.push(Ok(sealed));
    }
    // Lines of a later version stay, whatever they are about, and are said once.
    let is_said = |one: &Result<Sealed, RecoverError>| one.as_ref().is_err_and(|e| e.path() == dir.ledger());
    if let Some(source) = ends.too_new().filter(|_| !all.iter().any(is_said)) {
        all.push(Err(RecoverError::TooNew { path: dir.ledger(), source: source.clone() }));
    }
    sweep_marks(dir, &ends);
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
        if over && paths.segment.exists() && !paths.card.exists() {
            marks.forget(paths.id);
        }
    }
}

/// Finishes the sessions of this directory whose cards say that they are not.
pub(super) fn recover_now(keeping: &Keeping) {
    let Keeping { dir, signer, status, .. } = keeping;
    match recover_dir(dir, &|| signer.clone(), true) {
        Ok(all) => all.iter().for_each(|one| match one {
            Ok(sealed) => status.recovered(sealed),
            Err(e) => status.warn(&format!("a session that died could not be recovered: {e}")),
        }),
        Err(e) => tracing::warn!(error = %e, "looking for sessions that died failed"),
    }
}

/// Finishes what earlier proxies left in this directory, beside the session that is starting.
pub(super) fn recover_in_background(keeping: &Keeping) {
    let keeping = keeping.clone();
    let run = move || {
        let _ = crate::sys::process::nice_this_thread(15);
        if let Some(said) = crate::record::rollback::look(&keeping.dir) {
            keeping.status.warn(&said.to_string());
        }
        recover_now(&keeping);
    };
    if let Err(e) = std::thread::Builder::new().name("assay-recover".into()).spawn(run) {
        tracing::warn!(error = %e, "cannot start a thread for recovery");
    }
}
