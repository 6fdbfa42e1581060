//! Finding live sessions as they come, and following each.

use super::{
    client::{self, Update},
    discovery::{self, Unread},
    protocol::RunCard,
};
use crate::model::SessionId;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How often new sessions are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Sessions that are remembered in case that they are recovered.
const MAX_KNOWN: usize = 256;
/// How often a waiting thread checks whether it must stop.
const STEP: Duration = Duration::from_millis(50);

/// Which sessions to watch.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only the session whose hexadecimal digits begin with this.
    pub session: Option<String>,
    /// Only those of this audit directory, absolute and without links.
    pub audit_dir: Option<PathBuf>,
}

impl Wanted {
    /// Reads a session id as a person gives it: `mcp_…`, its digits, or their beginning.
    #[must_use]
    pub fn digits(id: &str) -> Option<String> {
        let digits = id.strip_prefix(SessionId::PREFIX).unwrap_or(id);
        let ok = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        ok.then(|| digits.to_ascii_lowercase())
    }

    /// Whether a session is selected.
    #[must_use]
    pub fn has(&self, card: &RunCard) -> bool {
        let same = |wanted: &Path| {
            wanted == card.audit_dir || std::fs::canonicalize(&card.audit_dir).is_ok_and(|dir| dir == wanted)
        };
        self.session.as_ref().is_none_or(|s| card.card.session_id.hex().starts_with(s))
            && self.audit_dir.as_deref().is_none_or(same)
    }

    /// Whether a session may be selected, judging by the name of its card alone.
    #[must_use]
    pub fn may_be(&self, card: &Unread) -> bool {
        let name = card.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        self.session.as_ref().is_none_or(|s| name.starts_with(s))
    }
}

/// Sessions that are followed, and those whose process has ended before they had a pack: somebody may recover them.
#[derive(Default)]
struct Known(BTreeMap<SessionId, RunCard>);

impl Known {
    fn add(&mut self, card: &RunCard) {
        self.0.insert(card.card.session_id, card.clone());
        if self.0.len() > MAX_KNOWN {
            self.0.pop_first();
        }
    }

    /// What is told of those that nobody follows and that have a pack now; they are forgotten.
    fn recovered(&mut self, follows: impl Fn(&RunCard) -> bool) -> Vec<Update> {
        let left = self.0.iter().filter(|(_, card)| !follows(card));
        let built: Vec<_> = left.filter_map(|(id, card)| Some((*id, client::built(card)?))).collect();
        built.into_iter().inspect(|(id, _)| drop(self.0.remove(id))).map(|(_, told)| told).collect()
    }
}

/// Starts following every live session that is wanted, now and later, until `stop`. The last `backlog` events
/// of each come first, and what their messages hold comes with them where proxies offer that.
///
/// # Errors
/// No thread could be made.
pub fn watch(
    wanted: Wanted,
    backlog: u64,
    updates: SyncSender<Update>,
    stop: Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("assay-find".into()).spawn(move || {
        // By socket: one thread per proxy, for any number of sessions.
        let mut followed: HashMap<PathBuf, JoinHandle<()>> = HashMap::new();
        let (mut unread, mut known) = (Vec::new(), Known::default());
        while !stop.load(Ordering::Relaxed) {
            followed.retain(|_, thread| !thread.is_finished());
            let live = discovery::look_around();
            let now: Vec<_> = live.unread.into_iter().filter(|card| wanted.may_be(card)).collect();
            if now != unread {
                unread.clone_from(&now);
                if updates.send(Update::Unread(now)).is_err() {
                    return;
                }
            }
            for card in live.sessions {
                let Some(socket) = card.card.socket.clone().filter(|_| wanted.has(&card)) else { continue };
                known.add(&card);
                if followed.contains_key(&socket) {
                    continue;
                }
                let only = wanted.session.clone();
                if let Ok(thread) = client::follow_only(card, only, (backlog, true), updates.clone(), Arc::clone(&stop))
                {
                    followed.insert(socket, thread);
                }
            }
            let follows =
                |card: &RunCard| card.card.socket.as_ref().is_some_and(|socket| followed.contains_key(socket));
            if known.recovered(follows).into_iter().any(|told| updates.send(told).is_err()) {
                return;
            }
            let until = Instant::now() + LOOK;
            while Instant::now() < until && !stop.load(Ordering::Relaxed) {
                thread::sleep(STEP);
            }
        }
    })
}
