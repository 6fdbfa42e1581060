//! `surface_approved.json` of a pack: what was approved and blocked when the session ended, with the definitions themselves.

use super::{FINGERPRINT, Facet, InForce};
use crate::{
    canon::{self, Digest},
    model::reading::{self, versioned},
};
use serde::{Deserialize, Serialize};

/// Format version of `surface_approved.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const APPROVED_VERSION: u32 = 1;

/// One definition that was decided about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    /// The decision that it rests on; null for what is blocked.
    pub approval_id: Option<String>,
    /// What was hashed, as text; null for resources, and for what was not kept.
    pub content: Option<String>,
    /// Where it is.
    pub facet: Facet,
    /// Its hash.
    pub hash: String,
    /// Its name.
    pub name: String,
    /// `approved`, `first_use` or `blocked`.
    pub state: super::State,
}

/// The document, in the order of RFC 8785.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovedFile {
    /// Digest of the command, or of the URL.
    pub endpoint: String,
    /// Rules by which the hashes are made.
    pub fingerprint: String,
    /// The definitions, in the order of facets, names and hashes; what is approved comes first.
    pub items: Vec<Decided>,
    /// Whose they are.
    pub server_id: String,
    /// [`APPROVED_VERSION`].
    #[serde(deserialize_with = "reading::known::<ApprovedFile, _>")]
    pub v: u32,
}

versioned!(ApprovedFile, "approved surface", APPROVED_VERSION);

impl ApprovedFile {
    /// What decisions come to; `content` is asked for what was hashed.
    #[must_use]
    pub fn of(server: &super::Identity, in_force: &InForce, content: &dyn Fn(&str) -> Option<Vec<u8>>) -> Self {
        let text = |facet: Facet, hash: &str| {
            let content = (facet != Facet::Resources).then(|| content(hash)).flatten();
            content.and_then(|bytes| String::from_utf8(bytes).ok())
        };
        let approved = in_force.approved().map(|(facet, name, hash, by)| Decided {
            approval_id: Some(by.approval_id.clone()),
            content: text(facet, hash),
            facet,
            hash: hash.to_owned(),
            name: name.to_owned(),
            state: in_force.state(facet, name, hash),
        });
        let blocked = in_force.blocked().map(|(facet, name, hash)| Decided {
            approval_id: None,
            content: text(facet, hash),
            facet,
            hash: hash.to_owned(),
            name: name.to_owned(),
            state: super::State::Blocked,
        });
        Self {
            endpoint: server.endpoint.clone(),
            fingerprint: FINGERPRINT.to_owned(),
            items: approved.chain(blocked).collect(),
            server_id: server.id.clone(),
            v: APPROVED_VERSION,
        }
    }

    /// The file: RFC 8785 form, without a line feed.
    ///
    /// # Errors
    /// As `serde_json`; there is no value that JSON cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        crate::model::to_line(self)
    }

    /// The first definition whose content is not what its hash says.
    #[must_use]
    pub fn wrong(&self) -> Option<&Decided> {
        self.items.iter().find(|d| {
            let hash = d.content.as_ref().map(|text| {
                if d.hash.starts_with("sha256-raw:") {
                    format!("sha256-raw:{}", canon::sha256_hex(text.as_bytes()))
                } else {
                    Digest::Jcs(canon::sha256(text.as_bytes())).to_string()
                }
            });
            hash.is_some_and(|hash| hash != d.hash)
        })
    }
}
