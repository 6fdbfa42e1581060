//! Sessions are sealed as they end, and those of other processes that died.

use super::{Sealed, Status, status::Tally};
use crate::{
    live::{hub::Hub, protocol::PackState},
    model::WallTime,
    pack::keys::Signer,
    paths::{AuditDir, SessionPaths},
    prune::{self, Done, Keep, What},
    record::{recover::RecoverError, session::Ended},
    seal::{forget, seal},
};
use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Sessions that are pruned when one has ended, at most.
const MOST: usize = 500;

/// Whose evidence it is, and how it is sealed.
#[derive(Clone)]
pub(super) struct Keeping {
    pub(super) dir: AuditDir,
    /// Whether anything can be written there.
    pub(super) usable: bool,
    pub(super) signer: Option<Arc<Signer>>,
    /// How long a session that grew goes without a checkpoint.
    pub(super) checkpoint_every: Duration,
    pub(super) auto_pack: bool,
    /// Which sessions of the directory stay when one has ended.
    pub(super) keep: Option<Keep>,
    /// Subscribers may have what messages hold.
    pub(super) live_content: bool,
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
        let (mut tally, mut packs, mut pruner) = (Tally::default(), 0_u64, Pruner::default());
        for Ended { mut store, doc, surface, pinned, .. } in ended {
            self.tell(doc.session_id, PackState::Sealing, None);
            let seen = (surface.as_deref(), pinned.as_deref());
            let mut sealed = seal(&mut store, &doc, seen, *auto_pack, signer.as_deref(), None);
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
            pruner.wake(&self.keeping);
        }
        pruner.end();
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

/// Prunes the directory in a thread of its own, so that no session waits for it.
#[derive(Default)]
struct Pruner(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl Pruner {
    /// A session has ended.
    fn wake(&mut self, keeping: &Keeping) {
        let Some((keep, signer)) = keeping.keep.zip(keeping.signer.clone()) else { return };
        if self.0.is_none() {
            let (ended, woken) = mpsc::channel();
            let dir = keeping.dir.clone();
            let run = move || {
                let _ = crate::sys::process::nice_this_thread(15);
                while woken.recv().is_ok() {
                    // Once for all that ended meanwhile.
                    while woken.try_recv().is_ok() {}
                    prune_now(&dir, keep, &signer);
                }
            };
            match std::thread::Builder::new().name("assay-prune".into()).spawn(run) {
                Ok(thread) => self.0 = Some((ended, thread)),
                Err(e) => tracing::warn!(error = %e, "cannot start a thread to prune"),
            }
        }
        if let Some((ended, _)) = &self.0 {
            let _ = ended.send(());
        }
    }

    /// Waits for what was begun.
    fn end(self) {
        if let Some((ended, thread)) = self.0 {
            drop(ended);
            let _ = thread.join();
        }
    }
}

/// Removes what is not to be kept, without waiting for a session to end; `None` where everything is.
pub(super) fn pruning(keeping: &Keeping) -> Option<impl FnOnce() + Send + use<>> {
    let (keep, signer) = keeping.keep.zip(keeping.signer.clone()).filter(|_| keeping.usable)?;
    let dir = keeping.dir.clone();
    Some(move || prune_now(&dir, keep, &signer))
}

/// Removes what `--keep` does not keep. The evidence of the session is sealed by now: that this fails is no more than a log line.
fn prune_now(dir: &AuditDir, keep: Keep, signer: &Signer) {
    let pruned = prune::survey(dir, What::Packs).and_then(|found| {
        let mut chosen = keep.choose(found.sessions, WallTime::now());
        // A process that ends is waited for; the next one goes on.
        chosen.drain(..chosen.len().saturating_sub(MOST));
        if chosen.is_empty() && found.unfinished.is_empty() {
            return Ok(Done::default());
        }
        prune::prune(dir, What::Packs, &found.unfinished, &chosen, signer)
    });
    match pruned {
        Ok(done) => {
            tracing::info!(sessions = done.sessions, bytes = done.bytes, "pruned");
            for left in done.left.iter().filter(|left| left.wrong) {
                tracing::warn!(session = %left.name, "it was not pruned: {}", left.why);
            }
        }
        Err(e) => tracing::warn!(error = %e, "nothing was pruned"),
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

/// Finishes the sessions of an audit directory whose process is gone, and notes them in the user's history.
///
/// # Errors
/// As [`seal::recover_dir`](crate::seal::recover_dir).
pub fn recover_dir(
    dir: &AuditDir,
    signer: &dyn Fn() -> Option<Arc<Signer>>,
    only_cards: bool,
) -> std::io::Result<Vec<Result<Sealed, RecoverError>>> {
    crate::seal::recover_dir(dir, signer, only_cards, &|paths| index(dir, paths))
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
