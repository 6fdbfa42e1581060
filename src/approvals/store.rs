//! One more decision.
//!
//! | step | a kill after it leaves |
//! |---|---|
//! | what was decided about is written to `surface/items/`, by its hash | the old decision, and files that nothing names |
//! | the line is appended to `surface/approvals.jsonl` and synced | the old decision while the line is torn, the new one when it is whole |
//! | the ledger gets a line | the new decision |
//!
//! The file of decisions is locked all the while. The next writer cuts off a torn line, after it copied it beside the file,
//! and adds the line that the ledger lacks.

use super::chain::{Chain, ChainError, FILE};
use crate::{
    files,
    lines::GoodTail,
    model::{
        LedgerKind, WallTime, sha256_hex,
        surface::{
            Approval, Approver, Change, Context, Decision, Facets, Identity, Pin, SignedBy, Snapshot,
            approval::{APPROVAL_TYPE, APPROVAL_VERSION},
        },
        to_line,
    },
    pack::{keys::Signer, verify::approvals},
    paths::AuditDir,
    record::ledger::{self, Entry, Ledger},
};
use base64::Engine as _;
use std::{collections::BTreeMap, io, io::Write as _, path::PathBuf};

/// A decision as it is taken, before it has its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Who decides.
    pub approver: Approver,
    /// The changes that were shown.
    pub changes: Vec<Change>,
    /// Digest of all changes that were shown, whole.
    pub changes_hash: Option<String>,
    /// In which contexts the items were seen.
    pub contexts: Vec<Context>,
    /// What is decided.
    pub decision: Decision,
    /// The hash of each facet that was seen.
    pub facets: Facets,
    /// What is decided about.
    pub items: Vec<Pin>,
    /// Why.
    pub reason: Option<String>,
    /// The root that was seen.
    pub root: Option<String>,
    /// Digest of the rules.
    pub rules_hash: Option<String>,
    /// Whose surface it is.
    pub server: Identity,
}

/// What was decided about, by the hex digits of its hash.
pub type Contents = BTreeMap<String, Vec<u8>>;

/// Why a decision was not taken.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The decisions cannot be read.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// It does not fit what was decided meanwhile, or what was seen.
    #[error("{0}")]
    Conflict(String),
    /// It could not be written; nothing was decided.
    #[error("{path}: {source}; nothing was decided")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is decided, and the ledger lacks its line.
    #[error("decision {id} is in force, but the ledger {path} has no line of it yet: {source}")]
    Ledger {
        /// The decision.
        id: String,
        /// The ledger.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The key cannot sign.
    #[error("the decision cannot be signed, and nothing was decided: {0}")]
    Unsigned(io::Error),
    /// No random bytes for an id.
    #[error("cannot get random bytes for the id of a decision: {0}")]
    Random(getrandom::Error),
}

impl Draft {
    /// The decision that no person makes: what a proxy saw first is what later surfaces are compared with.
    #[must_use]
    pub fn first_use(server: Identity, seen: &Snapshot, items: Vec<Pin>, root: Option<String>) -> Self {
        Self {
            approver: Approver { auth: "local_user".into(), name: "assay".into(), via: "proxy".into() },
            changes: Vec::new(),
            changes_hash: None,
            contexts: vec![seen.context.clone()],
            decision: Decision::FirstUse,
            facets: seen.facets(),
            items,
            reason: None,
            root,
            rules_hash: seen.rules_hash.clone(),
            server,
        }
    }

    /// What is said of such a decision about so many definitions.
    #[must_use]
    pub fn first_use_in_words(server: &str, definitions: usize) -> String {
        let definitions = crate::text::counted(definitions as u64, "definition");
        format!("first use of {server}: {definitions} of this server to compare with from now on; nobody approved them")
    }

    /// The decision, signed, in its place after `chain`.
    ///
    /// # Errors
    /// There are no random bytes, or the key cannot sign.
    pub fn signed(self, chain: &Chain, signer: &Signer) -> Result<Approval, StoreError> {
        let previous = chain.last_of(&self.server.id).map(|a| a.approval_id.clone());
        let place = (chain.approvals.len() as u64, chain.head().to_owned());
        self.signed_at(new_id()?, place, previous, signer)
    }

    /// The decision under this id, signed, with this number and this `prev_hash`.
    pub(super) fn signed_at(
        self,
        approval_id: String,
        (seq, prev_hash): (u64, String),
        previous: Option<String>,
        signer: &Signer,
    ) -> Result<Approval, StoreError> {
        let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let mut approval = Approval {
            approval_id,
            approver: self.approver,
            at: WallTime::now(),
            changes: self.changes,
            changes_hash: self.changes_hash,
            contexts: self.contexts,
            decision: self.decision,
            endpoint: self.server.endpoint,
            facets: self.facets,
            hash: String::new(),
            items: self.items,
            prev_hash,
            previous,
            reason: self.reason,
            root: self.root,
            rules_hash: self.rules_hash,
            seq,
            server_id: self.server.id,
            signature: String::new(),
            signer: SignedBy {
                fingerprint: signer.fingerprint(),
                id: signer.id().to_string(),
                public_key: encode(&signer.public()),
            },
            r#type: APPROVAL_TYPE.to_owned(),
            v: APPROVAL_VERSION,
        };
        // Texts and integers: there is nothing that JSON cannot hold.
        approval.hash = approval.expected_hash().unwrap_or_default();
        let signature = signer.sign(&approval.signed_bytes()).map_err(StoreError::Unsigned)?;
        approval.signature = encode(&signature);
        Ok(approval)
    }
}

/// An id for a decision.
pub(super) fn new_id() -> Result<String, StoreError> {
    Ok(format!("sap_{:016x}", getrandom::u64().map_err(StoreError::Random)?))
}

/// A decision that is in no chain and that nobody signed, such as a lock file makes.
pub(super) fn unsigned(decision: Decision, server: &Identity, items: Vec<Pin>, root: Option<String>) -> Approval {
    Approval {
        approval_id: String::new(),
        approver: Approver { auth: String::new(), name: String::new(), via: "file".to_owned() },
        at: WallTime::from_millis(0),
        changes: Vec::new(),
        changes_hash: None,
        contexts: Vec::new(),
        decision,
        endpoint: server.endpoint.clone(),
        facets: Facets::default(),
        hash: String::new(),
        items,
        prev_hash: String::new(),
        previous: None,
        reason: None,
        root,
        rules_hash: None,
        seq: 0,
        server_id: server.id.clone(),
        signature: String::new(),
        signer: SignedBy { fingerprint: String::new(), id: String::new(), public_key: String::new() },
        r#type: APPROVAL_TYPE.to_owned(),
        v: APPROVAL_VERSION,
    }
}

/// Appends the decision that `decide` takes on the decisions so far, while nobody else can append one.
///
/// # Errors
/// The decisions are damaged, `decide` says no, or an I/O error: then nothing was decided, except after
/// [`StoreError::Ledger`].
pub fn append(
    dir: &AuditDir,
    contents: &Contents,
    decide: impl FnOnce(&Chain) -> Result<Approval, StoreError>,
) -> Result<Approval, StoreError> {
    let path = dir.approvals();
    let at = |path: PathBuf| move |source| StoreError::Io { path, source };
    dir.create().map_err(|e| StoreError::Conflict(e.to_string()))?;
    dir.files().make_dir(&dir.surface()).map_err(at(dir.surface()))?;
    let mut file = dir.files().append(&path).map_err(at(path.clone()))?;
    files::lock(&file).map_err(at(path.clone()))?;
    let chain = Chain::of(dir, &file)?;
    if chain.torn > 0 {
        let tail = GoodTail { end: chain.end, last: None, torn: chain.torn };
        ledger::set_aside(dir.files(), &file, &path, &tail, None).map_err(at(path.clone()))?;
    }
    // What was decided before and is not in the ledger, because its writer died.
    for approval in &chain.approvals[chain.in_ledger..] {
        to_ledger(dir, approval).map_err(at(dir.ledger()))?;
    }
    let approval = decide(&chain)?;
    let line = to_line(&approval).map_err(|e| at(path.clone())(io::Error::other(e)))?;
    if line.len() > approvals::MAX_APPROVAL {
        return Err(StoreError::Conflict(format!(
            "a decision about so many items is too long: {}",
            crate::text::counted(line.len(), "byte")
        )));
    }
    write_contents(dir, contents)?;
    let written = file.write_all(&[line.as_slice(), b"\n"].concat()).and_then(|()| files::sync_data(&file));
    if let Err(source) = written {
        let _ = file.set_len(chain.end);
        return Err(StoreError::Io { path, source });
    }
    if chain.approvals.is_empty() {
        let _ = files::sync_dir(&dir.surface());
    }
    match to_ledger(dir, &approval) {
        Ok(()) => Ok(approval),
        Err(source) => Err(StoreError::Ledger { id: approval.approval_id, path: dir.ledger(), source }),
    }
}

fn to_ledger(dir: &AuditDir, approval: &Approval) -> io::Result<()> {
    let entry = Entry::new(LedgerKind::SurfaceApproval, None, FILE, &approval.hash);
    Ledger::lock(dir, None)?.append(&Entry { event_count: approval.seq + 1, ..entry })
}

/// Keeps what is decided about, or will be.
///
/// # Errors
/// An I/O error.
pub fn write_contents(dir: &AuditDir, contents: &Contents) -> Result<(), StoreError> {
    let items = dir.surface_items();
    dir.files().make_dir(&items).map_err(|source| StoreError::Io { path: items.clone(), source })?;
    for (hash, bytes) in contents {
        let path = items.join(format!("{hash}.json"));
        let there = dir.files().read(&path, bytes.len() as u64).is_ok_and(|old| old == *bytes);
        if !there {
            let staged = items.join(format!(".{hash}.tmp"));
            let written = dir.files().replace(&staged, &path, bytes, true);
            written.map_err(|source| StoreError::Io { path, source })?;
        }
    }
    files::sync_dir(&items).map_err(|source| StoreError::Io { path: items.clone(), source })
}

/// Longest content of an item that is read back, in bytes.
const MAX_CONTENT: u64 = 16 << 20;

/// The content that a decision was about, by the digest of the item; `None` if it was not kept.
///
/// # Errors
/// It is not what its name says, or an I/O error.
pub fn content(dir: &AuditDir, digest: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(hash) = hex_of(digest) else { return Ok(None) };
    match dir.files().read(&dir.surface_items().join(format!("{hash}.json")), MAX_CONTENT) {
        Ok(bytes) if sha256_hex(&bytes) == hash => Ok(Some(bytes)),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("surface/items/{hash}.json was changed"))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The 64 hex digits of a digest.
#[must_use]
pub fn hex_of(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:").or_else(|| digest.strip_prefix("sha256-raw:"))?;
    (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))).then_some(hex)
}
