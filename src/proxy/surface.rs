//! The decisions about a server's surface, for a running guard: read again when somebody decides, and the first ones
//! written when nobody has yet.

use super::Status;
use crate::{
    approvals::{
        chain::Chain,
        store::{self, Contents, Draft},
    },
    guard::surface::{self, Asked, SharedGate, locked},
    model::surface::{Facet, Identity, List, Pin, Snapshot, Value},
    pack::keys::Signer,
    paths::AuditDir,
    surface::{
        gate::{Baseline, Decided, First, Gate, Quarantine, Server},
        rules::Rules,
    },
};
use std::{
    os::unix::fs::MetadataExt as _,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

/// How often the file of decisions is looked at: a decision is in force within a second.
const EVERY: Duration = Duration::from_millis(200);

/// What is done about the surface of a server.
#[derive(Debug, Clone)]
pub struct SurfaceOptions {
    /// Whether what is not approved is kept back.
    pub enforce: bool,
    /// When the surface is compared with what was decided.
    pub compared: Compared,
    /// What is done while nothing was decided.
    pub first: First,
    /// What is kept back.
    pub quarantine: Quarantine,
    /// What is pinned.
    pub rules: Rules,
}

/// When the surface of a server is compared with what was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Never.
    Never,
    /// If anything was decided about it when its session begins.
    IfDecided,
    /// Always.
    Always,
}

impl Default for SurfaceOptions {
    fn default() -> Self {
        Self {
            enforce: false,
            compared: Compared::IfDecided,
            first: First::Tofu,
            quarantine: Quarantine::Item,
            rules: Rules::default(),
        }
    }
}

/// Keeps the decisions about a server in force, for all its clients.
#[derive(Clone)]
pub(super) struct Keeper(Arc<Kept>);

struct Kept {
    dir: AuditDir,
    identity: Identity,
    server: Server,
    rules_hash: Option<String>,
    /// Signs the first decisions, if there is one and anything can be written.
    signer: Option<Arc<Signer>>,
    status: Status,
    /// Held while decisions are written or read.
    seen: Mutex<Stamp>,
    clients: Mutex<Vec<Client>>,
}

/// Who is told of decisions.
struct Client {
    gate: Weak<Mutex<Gate<Asked>>>,
    tell: Box<Tell>,
}

/// Sends a client a message.
type Tell = dyn Fn(&[u8]) + Send;

/// Metadata by which a decision is noticed.
pub(super) type Stamp = Option<(u64, u64, i64, i64)>;

pub(super) fn stamp(dir: &AuditDir) -> Stamp {
    let m = std::fs::metadata(dir.approvals()).ok()?;
    Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
}

fn decided(dir: &AuditDir, server: &Identity, status: Status) -> Decided {
    match Chain::read(dir) {
        Ok(chain) => Decided { in_force: chain.in_force(server, None), unknown: None },
        Err(e) => {
            status.warn(&format!("every tool call is refused, because decisions about tools cannot be read: {e}"));
            Decided { unknown: Some(e.to_string()), ..Decided::default() }
        }
    }
}

impl Keeper {
    /// Begins with the decisions that are there, and takes up others as they are made.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn begin(
        dir: &AuditDir,
        identity: Identity,
        options: &SurfaceOptions,
        signer: Option<Arc<Signer>>,
        status: Status,
    ) -> Result<Self, String> {
        let seen = stamp(dir);
        let decided = decided(dir, &identity, status);
        let kept = Arc::new(Kept {
            dir: dir.clone(),
            identity,
            server: Server::new(decided, options.rules.clone(), options.first, options.quarantine),
            rules_hash: options.rules.hash(),
            signer,
            status,
            seen: Mutex::new(seen),
            clients: Mutex::default(),
        });
        let watched = Arc::downgrade(&kept);
        let run = move || {
            loop {
                thread::sleep(EVERY);
                let Some(kept) = watched.upgrade() else { return };
                kept.renew(false);
            }
        };
        let thread = thread::Builder::new().name("assay-surface".into()).spawn(run);
        thread.map_err(|e| format!("no thread for the decisions about the surface: {e}"))?;
        Ok(Self(kept))
    }

    /// What a client that begins is judged by.
    pub(super) fn gate(&self) -> SharedGate {
        surface::begin(self.0.server.clone())
    }

    /// `tell` sends the client a message, as long as it is there.
    pub(super) fn tells(&self, gate: &SharedGate, tell: impl Fn(&[u8]) + Send + 'static) {
        let client = Client { gate: Arc::downgrade(gate), tell: Box::new(tell) };
        let mut clients = self.0.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.gate.strong_count() > 0);
        clients.push(client);
    }

    /// Nothing more is asked of the server.
    pub(super) fn end(&self) {
        self.0.renew(true);
    }
}

impl Kept {
    /// Writes first decisions, and takes up what was decided meanwhile.
    fn renew(&self, over: bool) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.server.take_baselines(over);
        let ours = !first.is_empty();
        if ours && let Err(e) = self.write(&first) {
            self.status.warn(&format!("what the server offers cannot be kept for comparing it next time: {e}"));
        }
        let now = stamp(&self.dir);
        if *seen == now {
            return;
        }
        *seen = now;
        self.server.decide(decided(&self.dir, &self.identity, self.status));
        // What was seen first passed already: that it is written changes nothing for a client.
        if !ours {
            self.tell();
        }
    }

    /// Tells every client that was promised it.
    fn tell(&self) {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        for client in clients.iter() {
            let Some(gate) = client.gate.upgrade() else { continue };
            let promised = locked(&gate).promised().to_vec();
            for method in promised {
                (client.tell)(format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#).as_bytes());
            }
        }
    }

    fn write(&self, first: &[Baseline]) -> Result<(), String> {
        let Some(signer) = &self.signer else { return Err("there is no key to sign with".to_owned()) };
        let mut contents = Contents::new();
        // A list of resources is content, which is not stored.
        for item in first.iter().filter(|b| b.facet != Facet::Resources).flat_map(|b| &b.items) {
            if let Some(hex) = store::hex_of(&item.hash.to_string()) {
                contents.insert(hex.to_owned(), item.content.clone());
            }
        }
        let mut count = 0;
        store::append(&self.dir, &contents, |chain| {
            let in_force = chain.in_force(&self.identity, None);
            // What somebody decided about meanwhile needs no first decision.
            let open: Vec<&Baseline> = first.iter().filter(|b| !in_force.decides(b.facet)).collect();
            if open.is_empty() {
                return Err(store::StoreError::Conflict("somebody decided meanwhile".to_owned()));
            }
            let draft = self.first_use(&open);
            count = draft.items.len();
            draft.signed(chain, signer)
        })
        .map_err(|e| e.to_string())?;
        self.status.first_use(&Draft::first_use_in_words(&self.identity.id, count));
        Ok(())
    }

    /// The decision that no person made.
    fn first_use(&self, first: &[&Baseline]) -> Draft {
        let mut items = Vec::new();
        let rules_hash = self.rules_hash.clone();
        let mut seen = Snapshot { identity: self.identity.clone(), rules_hash, ..Snapshot::default() };
        for Baseline { facet, items: all, context } in first {
            seen.context = context.clone();
            items.extend(all.iter().map(|i| Pin { facet: *facet, hash: i.hash.to_string(), name: i.name.clone() }));
            let value = all.first().map(|i| Value { hash: i.hash, content: i.content.clone(), ambiguity: None });
            match facet {
                Facet::Capabilities => seen.surface.capabilities = value,
                Facet::Instructions => seen.surface.instructions = value,
                list => {
                    seen.surface.lists.insert(*list, List::complete(all.clone()));
                }
            }
        }
        Draft::first_use(self.identity.clone(), &seen, items, None)
    }
}
