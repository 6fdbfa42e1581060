//! The decisions that sessions are compared with: read again when somebody decides, and the first one written when nobody
//! has yet.

use super::{
    Status,
    surface::{Compared, SurfaceOptions, stamp},
};
use crate::{
    approvals::{first::first_use, standing::pinned, store::Draft},
    model::surface::{First, Identity, Mode, Snapshot},
    pack::keys::Signer,
    paths::AuditDir,
    surface::feed::SurfaceFeed,
};
use std::{
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

/// How often the file of decisions is looked at: a decision is in force within a second.
const EVERY: Duration = Duration::from_millis(400);

/// What sessions with this server are compared with; `None` where that is nothing. `signer` signs the first decision, if
/// there is one and anything can be written.
pub(super) fn begin(
    dir: &AuditDir,
    server: Identity,
    options: &SurfaceOptions,
    signer: Option<Arc<Signer>>,
    status: Status,
) -> Option<Arc<SurfaceFeed>> {
    let seen = stamp(dir);
    if options.compared == Compared::Never || options.compared == Compared::IfDecided && seen.is_none() {
        return None;
    }
    let now = pinned(dir, &server);
    if options.compared == Compared::IfDecided && !now.is_any() {
        return None;
    }
    if let Some(e) = now.error.as_ref().filter(|_| !options.enforce) {
        status.warn(&format!("what the server offers is compared with nothing, because decisions cannot be read: {e}"));
    }
    let mode = if options.enforce { Mode::Enforce } else { Mode::Report };
    let feed = Arc::new(SurfaceFeed::new(mode, options.first, options.rules.clone(), now));
    let keeper = Keeper { dir: dir.clone(), server, signer, status };
    let watched = Arc::downgrade(&feed);
    let run = move || keeper.run(&watched, seen);
    if let Err(e) = thread::Builder::new().name("assay-surface".into()).spawn(run) {
        status.warn(&format!("no thread for the decisions about the surface: {e}; new ones count in the next session"));
    }
    Some(feed)
}

struct Keeper {
    dir: AuditDir,
    server: Identity,
    signer: Option<Arc<Signer>>,
    status: Status,
}

impl Keeper {
    /// As long as anybody records.
    fn run(&self, watched: &Weak<SurfaceFeed>, mut seen: super::surface::Stamp) {
        loop {
            thread::sleep(EVERY);
            let Some(feed) = watched.upgrade() else { return };
            if let Some(first) = feed.offered() {
                // A guard has its own first decisions.
                if feed.mode() == Mode::Report && feed.first() == First::Tofu {
                    self.keep(&first);
                }
            }
            let now = stamp(&self.dir);
            if now != seen {
                seen = now;
                feed.tell(pinned(&self.dir, &self.server));
            }
        }
    }

    /// Makes what was seen first the baseline.
    fn keep(&self, seen: &Snapshot) {
        let Some(signer) = &self.signer else {
            return self
                .status
                .warn("what the server offers cannot be kept for comparing it: there is no key to sign with");
        };
        match first_use(&self.dir, &self.server, seen, signer) {
            Ok(Some(count)) => self.status.first_use(&Draft::first_use_in_words(&self.server.id, count)),
            Ok(None) => {}
            Err(e) => {
                self.status.warn(&format!("what the server offers cannot be kept for comparing it next time: {e}"));
            }
        }
    }
}
