//! The lock file of a repository: what is approved, unsigned, in a file that is reviewed with the code.

use crate::{
    canon,
    model::{
        reading::{self, Reading, TooNew, versioned},
        sha256_hex,
        surface::{Context, FINGERPRINT, Facet, Identity, InForce, List, Pin, Snapshot, approval::Decision},
    },
    surface::diff::Approved,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::Path,
};

/// Format version of a lock file.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const SURFACE_LOCK_VERSION: u32 = 1;

/// Its usual name.
pub const FILE: &str = "assay.surface.lock";

/// `type` of a lock file.
const TYPE: &str = "assay.surface_lock";
/// Longest lock file, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// One item, and its content where that may be stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// What was hashed, as text; `null` for resources, whose content is not stored.
    pub content: Option<String>,
    /// Where it is.
    pub facet: Facet,
    /// Its hash.
    pub hash: String,
    /// Its name.
    pub name: String,
}

/// A lock file, in the order of RFC 8785.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurfaceLock {
    /// Rules by which the hashes are made.
    pub fingerprint: String,
    /// The items, in the order of facets and names.
    pub items: Vec<Locked>,
    /// The root of the surface.
    pub root: String,
    /// Digest of the rules; null for the defaults.
    pub rules_hash: Option<String>,
    /// Whose surface it is, for people.
    pub server_id: String,
    /// `assay.surface_lock`.
    pub r#type: String,
    /// [`SURFACE_LOCK_VERSION`].
    #[serde(deserialize_with = "reading::known::<SurfaceLock, _>")]
    pub v: u32,
}

versioned!(SurfaceLock, "surface lock file", SURFACE_LOCK_VERSION);

/// Why a lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A later version wrote it.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// It is not of the form.
    #[error("not a surface lock file: {0}")]
    Form(String),
}

/// Why a surface cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum Unlockable {
    /// It is not complete.
    #[error("the surface is incomplete: {0}")]
    Incomplete(String),
    /// Something in it can be read in two ways.
    #[error("{0} can be read in two ways")]
    Ambiguous(String),
}

impl SurfaceLock {
    /// The lock of a surface.
    ///
    /// # Errors
    /// The surface is not complete, or ambiguous.
    pub fn of(seen: &Snapshot) -> Result<Self, Unlockable> {
        let root = seen.root().map_err(|e| Unlockable::Incomplete(e.to_string()))?;
        let mut items = Vec::new();
        for (Pin { facet, hash, name }, content) in pins(seen) {
            let content = content.ok_or_else(|| Unlockable::Ambiguous(named(facet, &name)))?;
            items.push(Locked { content, facet, hash, name });
        }
        Ok(Self {
            fingerprint: FINGERPRINT.to_owned(),
            items,
            root: root.to_string(),
            rules_hash: seen.rules_hash.clone(),
            server_id: seen.identity.id.clone(),
            r#type: TYPE.to_owned(),
            v: SURFACE_LOCK_VERSION,
        })
    }

    /// The file: RFC 8785 form and a line feed.
    ///
    /// # Errors
    /// As `serde_json`; there is no value that JSON cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, canon::SerializeError> {
        let mut bytes = canon::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a lock file; every content has to be what its hash says.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn read(path: &Path) -> Result<Self, LockError> {
        Self::parse(&crate::files::named(path).and_then(|file| crate::files::read_all(file, MAX_BYTES))?)
    }

    /// The same of its bytes.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, LockError> {
        let form = LockError::Form;
        let anomalies = canon::scan(bytes).map_err(|e| form(e.to_string()))?;
        if !anomalies.is_empty() {
            return Err(form(anomalies.to_string()));
        }
        let lock = match reading::read::<Self>(bytes) {
            Reading::Readable(lock) => lock,
            Reading::TooNew(e) => return Err(e.into()),
            Reading::Damaged(why) => return Err(form(why)),
        };
        if lock.r#type != TYPE || lock.fingerprint != FINGERPRINT {
            return Err(form(format!("expected type {TYPE} and fingerprint {FINGERPRINT}")));
        }
        for item in &lock.items {
            let hash = super::store::hex_of(&item.hash).ok_or_else(|| form(format!("{:?} is no hash", item.hash)))?;
            if item.content.as_ref().is_some_and(|text| sha256_hex(text.as_bytes()) != hash) {
                return Err(form(format!("{}/{} is not what its hash says", item.facet, item.name)));
            }
        }
        Ok(lock)
    }

    /// What the lock approves, for a server wherever it is. It is unsigned: the file is the approval.
    #[must_use]
    pub fn approved(&self, server: &Identity, context: &Context) -> Approved {
        let items = self.items.iter().map(|i| Pin { facet: i.facet, hash: i.hash.clone(), name: i.name.clone() });
        let names = self.items.iter().map(|i| (i.facet, i.name.clone())).collect();
        let decision = super::store::unsigned(Decision::Approve, server, items.collect(), Some(self.root.clone()));
        let texts = self.items.iter().filter_map(|i| Some((i.hash.clone(), i.content.clone()?.into_bytes())));
        Approved {
            in_force: InForce::of([&decision], server),
            content: texts.collect::<HashMap<_, _>>(),
            contexts: BTreeMap::from([(context.clone(), names)]),
        }
    }
}

/// Every item of a surface that can be decided about, with what was hashed: `None` for what is ambiguous, `Some(None)` for
/// what may not be stored.
pub fn pins(seen: &Snapshot) -> Vec<(Pin, Option<Option<String>>)> {
    let mut all = Vec::new();
    let text = |content: &[u8]| std::str::from_utf8(content).ok().filter(|t| !t.is_empty()).map(str::to_owned);
    for (facet, value) in
        [(Facet::Capabilities, &seen.surface.capabilities), (Facet::Instructions, &seen.surface.instructions)]
    {
        if let Some(value) = value {
            let pin = Pin { facet, hash: value.hash.to_string(), name: String::new() };
            all.push((pin, value.ambiguity.is_none().then(|| text(&value.content))));
        }
    }
    for facet in Facet::LISTS {
        for item in seen.surface.list(facet).items() {
            let pin = Pin { facet, hash: item.hash.to_string(), name: item.name.clone() };
            let content = if facet == Facet::Resources { None } else { text(&item.content) };
            all.push((pin, item.ambiguity.is_none().then_some(content)));
        }
    }
    all.retain(|(pin, _)| !seen.left_out.contains(&pin.facet));
    all
}

/// How an item is named on the command line: `tools/NAME`, or `instructions`.
#[must_use]
pub fn named(facet: Facet, name: &str) -> String {
    if facet.members().is_none() { facet.to_string() } else { format!("{facet}/{name}") }
}

/// Whether all of a facet was seen.
#[must_use]
pub fn is_whole(seen: &Snapshot, facet: Facet) -> bool {
    match facet {
        Facet::Capabilities | Facet::Instructions => seen.surface.capabilities.is_some(),
        list => matches!(seen.surface.list(list), List::Complete(_) | List::NotOffered),
    }
}
