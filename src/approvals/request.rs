//! Decisions whose key is somewhere else: a request is written here, signed there, and the decision is brought back.
//!
//! The request already says where in the chain the decision will be, because the signature covers that. If something else is
//! decided meanwhile, the signed decision no longer fits, and another one has to be requested.

use super::{
    chain::Chain,
    store::{Contents, Draft, StoreError, append, hex_of},
};
use crate::{
    canon,
    model::{
        reading::{self, Reading, TooNew, versioned},
        sha256_hex,
        surface::{Approval, Approver, Change, Context, Decision, Facets, Identity, Pin},
        to_line,
    },
    pack::{keys::Signer, verify::approvals},
    paths::AuditDir,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Format version of a request.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const REQUEST_VERSION: u32 = 1;

/// `type` of a request.
const TYPE: &str = "mcp.surface_request";

/// Longest file with a request or a signed decision, in bytes.
pub const MAX_FILE: u64 = 64 << 20;

/// A request for a decision, in the order of RFC 8785.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The changes that there are to decide about.
    pub changes: Vec<Change>,
    /// Digest of all of them, whole.
    pub changes_hash: Option<String>,
    /// What is to be decided about, by the hex digits of its hash, as text; not of resources.
    pub contents: BTreeMap<String, String>,
    /// In which contexts it was seen.
    pub contexts: Vec<Context>,
    /// What is asked for.
    pub decision: Decision,
    /// Digest of the command, or of the URL.
    pub endpoint: String,
    /// The hash of each facet.
    pub facets: Facets,
    /// What is to be decided about.
    pub items: Vec<Pin>,
    /// `hash` of the decision that will be before.
    pub prev_hash: String,
    /// The decision before on the same server.
    pub previous: Option<String>,
    /// Why it is asked for.
    pub reason: Option<String>,
    /// The root that was seen.
    pub root: Option<String>,
    /// Digest of the rules.
    pub rules_hash: Option<String>,
    /// The number that the decision will have.
    pub seq: u64,
    /// Whose surface it is.
    pub server_id: String,
    /// `mcp.surface_request`.
    pub r#type: String,
    /// [`REQUEST_VERSION`].
    #[serde(deserialize_with = "reading::known::<Request, _>")]
    pub v: u32,
}

versioned!(Request, "request for a decision about a surface", REQUEST_VERSION);

/// Why a request cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A later version wrote it.
    #[error(transparent)]
    TooNew(#[from] TooNew),
    /// It is not of the form.
    #[error("not a request for a decision about a surface: {0}")]
    Form(String),
    /// What one would look at is not what one would sign.
    #[error("the content of {0} is not what its hash says")]
    Content(String),
    /// It cannot be signed.
    #[error(transparent)]
    Sign(#[from] StoreError),
}

impl Request {
    /// A request for a decision that would be the next one of this chain.
    #[must_use]
    pub fn new(draft: Draft, contents: &Contents, chain: &Chain) -> Self {
        let text = |(hash, bytes): (&String, &Vec<u8>)| Some((hash.clone(), String::from_utf8(bytes.clone()).ok()?));
        Self {
            changes: draft.changes,
            changes_hash: draft.changes_hash,
            contents: contents.iter().filter_map(text).collect(),
            contexts: draft.contexts,
            decision: draft.decision,
            facets: draft.facets,
            items: draft.items,
            prev_hash: chain.head().to_owned(),
            previous: chain.last_of(&draft.server.id).map(|a| a.approval_id.clone()),
            reason: draft.reason,
            root: draft.root,
            rules_hash: draft.rules_hash,
            seq: chain.approvals.len() as u64,
            endpoint: draft.server.endpoint,
            server_id: draft.server.id,
            r#type: TYPE.to_owned(),
            v: REQUEST_VERSION,
        }
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

    /// Reads a request; every content in it has to be what its hash says.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let form = RequestError::Form;
        let anomalies = canon::scan(bytes).map_err(|e| form(e.to_string()))?;
        if !anomalies.is_empty() {
            return Err(form(anomalies.to_string()));
        }
        let request = match reading::read::<Self>(bytes) {
            Reading::Readable(request) => request,
            Reading::TooNew(e) => return Err(e.into()),
            Reading::Damaged(why) => return Err(form(why)),
        };
        if request.r#type != TYPE {
            return Err(form(format!("its type is {:?}", request.r#type)));
        }
        for item in &request.items {
            let hash = hex_of(&item.hash).ok_or_else(|| form(format!("{:?} is no hash", item.hash)))?;
            if request.contents.get(hash).is_some_and(|text| sha256_hex(text.as_bytes()) != hash) {
                return Err(RequestError::Content(super::lockfile::named(item.facet, &item.name)));
            }
        }
        Ok(request)
    }

    /// The decision, signed: a line of the chain, for [`import`].
    ///
    /// # Errors
    /// There are no random bytes, or the key cannot sign.
    pub fn sign(self, signer: &Signer, reason: Option<String>) -> Result<Vec<u8>, RequestError> {
        let draft = Draft {
            approver: Approver { auth: "key".to_owned(), name: signer.id().to_string(), via: "file".to_owned() },
            changes: self.changes,
            changes_hash: self.changes_hash,
            contexts: self.contexts,
            decision: self.decision,
            facets: self.facets,
            items: self.items,
            reason: reason.or(self.reason),
            root: self.root,
            rules_hash: self.rules_hash,
            server: Identity { endpoint: self.endpoint, id: self.server_id },
        };
        let id = super::store::new_id()?;
        let approval = draft.signed_at(id, (self.seq, self.prev_hash), self.previous, signer)?;
        let mut line = to_line(&approval).map_err(|e| RequestError::Form(e.to_string()))?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Brings in a decision that was signed elsewhere. What it is about has to be kept already.
///
/// # Errors
/// It is no decision, its signature does not hold, its key is none of `approvers`, or something else was decided meanwhile.
pub fn import(
    dir: &AuditDir,
    bytes: &[u8],
    approvers: Option<&std::collections::BTreeSet<String>>,
) -> Result<Approval, StoreError> {
    let line = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let approval = approvals::read(line).map_err(|e| StoreError::Conflict(format!("not a signed decision: {e}")))?;
    if approvers.is_some_and(|keys| !keys.contains(&approval.signer.fingerprint)) {
        return Err(StoreError::Conflict(format!(
            "the decision is signed by {} with the key {}, which is none of the approvers",
            approval.signer.id, approval.signer.fingerprint
        )));
    }
    append(dir, &Contents::new(), |chain| {
        if chain.approvals.iter().any(|a| a.hash == approval.hash) {
            return Err(StoreError::Conflict(format!("{} was imported before", approval.approval_id)));
        }
        if approval.seq != chain.approvals.len() as u64 || approval.prev_hash != chain.head() {
            return Err(StoreError::Conflict(format!(
                "{} was signed as decision {} after {}, but there are {} now, the last of them {}: request it again",
                approval.approval_id,
                approval.seq + 1,
                short(&approval.prev_hash),
                chain.approvals.len(),
                short(chain.head()),
            )));
        }
        Ok(approval)
    })
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
