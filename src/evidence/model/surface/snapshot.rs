//! A surface as it was seen: `surface.json` of a pack, and `surface/observed_*.json` (docs/formats.md, "Surface").

use super::{
    Context, FINGERPRINT, Facet, Facets, Identity, List, NoRoot, Reason, SURFACE_VERSION, Surface, Value,
    item::{self, Ambiguity, Item},
};
use crate::{
    canon::{self, Digest},
    model::{
        reading::{self, versioned},
        receipt::PeerInfo,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of content that a document holds; of what does not fit there is the hash alone.
const MAX_CONTENT: usize = 24 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    ambiguity: Option<String>,
    /// What was hashed: the value itself under a `sha256:`, a text of its bytes under a `sha256-raw:`.
    content: Option<Box<RawValue>>,
    hash: String,
    name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    items: Vec<Entry>,
    reason: Option<String>,
    state: String,
}

/// The document, in the order of RFC 8785. Its last two members are what [`super::is_truncated`] looks at.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    capabilities: Option<Entry>,
    changes: u64,
    context: Context,
    endpoint: String,
    facets: Facets,
    fingerprint: String,
    instructions: Option<Entry>,
    left_out: Vec<Facet>,
    prompts: Listed,
    protocol_version: Option<String>,
    resource_templates: Listed,
    resources: Listed,
    root: Option<String>,
    rules_hash: Option<String>,
    server_id: String,
    server_info: Option<PeerInfo>,
    tools: Listed,
    truncated: bool,
    #[serde(deserialize_with = "reading::known::<Document, _>")]
    v: u32,
}

versioned!(Document, "surface", SURFACE_VERSION);

/// A surface as it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose it is.
    pub identity: Identity,
    /// Who asked.
    pub context: Context,
    /// What was seen.
    pub surface: Surface,
    /// What the server calls itself; never part of its identity.
    pub server_info: Option<PeerInfo>,
    /// Protocol version of the session.
    pub protocol_version: Option<String>,
    /// Facets that the rules leave out of the root.
    pub left_out: BTreeSet<Facet>,
    /// Digest of the rules; `None` for the defaults.
    pub rules_hash: Option<String>,
    /// How often a list was seen to differ from itself before.
    pub changes: u64,
}

/// Why a document is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// A later version wrote it.
    #[error(transparent)]
    TooNew(#[from] crate::model::version::TooNew),
    /// It is not of the format.
    #[error("not a surface: {0}")]
    Damaged(String),
    /// A hash is not that of what is there.
    #[error("{0}: the hash is not that of what is recorded")]
    Hash(String),
}

fn entry(name: &str, hash: Digest, content: &[u8], ambiguity: Option<Ambiguity>, room: &mut usize) -> Entry {
    let text = match hash {
        Digest::Jcs(_) => String::from_utf8(content.to_vec()).ok(),
        Digest::Raw(..) => std::str::from_utf8(content).ok().and_then(|text| serde_json::to_string(text).ok()),
    };
    let kept = text.filter(|t| !content.is_empty() && t.len() <= *room);
    *room -= kept.as_ref().map_or(0, String::len);
    Entry {
        ambiguity: ambiguity.map(|a| a.word()),
        content: kept.and_then(|t| RawValue::from_string(t).ok()),
        hash: hash.to_string(),
        name: name.to_owned(),
    }
}

impl Snapshot {
    /// The root.
    ///
    /// # Errors
    /// The first facet that is not complete.
    pub fn root(&self) -> Result<Digest, NoRoot> {
        self.surface.root(&self.left_out)
    }

    /// The hash of each facet.
    #[must_use]
    pub fn facets(&self) -> Facets {
        let hash = |facet| self.surface.facet_hash(facet).map(|h| h.to_string());
        Facets {
            capabilities: hash(Facet::Capabilities),
            instructions: hash(Facet::Instructions),
            prompts: hash(Facet::Prompts),
            resource_templates: hash(Facet::ResourceTemplates),
            resources: hash(Facet::Resources),
            tools: hash(Facet::Tools),
        }
    }

    /// The document: the RFC 8785 form, without a newline. Of resources it holds hashes alone, since a list of them is
    /// content.
    ///
    /// # Errors
    /// As `serde_json`; there is no value that JSON cannot hold.
    pub fn document(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut room = MAX_CONTENT;
        let mut short = false;
        let mut value = |v: &Option<Value>| {
            v.as_ref().map(|v| {
                let e = entry("", v.hash, &v.content, v.ambiguity, &mut room);
                short |= e.content.is_none() && !v.content.is_empty() && std::str::from_utf8(&v.content).is_ok();
                e
            })
        };
        let (capabilities, instructions) = (value(&self.surface.capabilities), value(&self.surface.instructions));
        let mut list = |facet: Facet| {
            let of = |i: &Item| {
                let content = if facet == Facet::Resources { &[][..] } else { &i.content };
                let e = entry(&i.name, i.hash, content, i.ambiguity, &mut room);
                short |= e.content.is_none() && !content.is_empty() && std::str::from_utf8(content).is_ok();
                e
            };
            let known = self.surface.list(facet);
            let (state, reason) = match known {
                List::Unknown => ("unknown", None),
                List::NotOffered => ("not_offered", None),
                List::Incomplete(_, reason) => ("incomplete", Some(reason.word())),
                List::Complete(_) => ("complete", None),
            };
            Listed { items: known.items().iter().map(of).collect(), reason, state: state.to_owned() }
        };
        let tools = list(Facet::Tools);
        let prompts = list(Facet::Prompts);
        let resource_templates = list(Facet::ResourceTemplates);
        let resources = list(Facet::Resources);
        crate::model::to_line(&Document {
            capabilities,
            changes: self.changes,
            context: self.context.clone(),
            endpoint: self.identity.endpoint.clone(),
            facets: self.facets(),
            fingerprint: FINGERPRINT.to_owned(),
            instructions,
            left_out: self.left_out.iter().copied().collect(),
            prompts,
            protocol_version: self.protocol_version.clone(),
            resource_templates,
            resources,
            root: self.root().ok().map(|r| r.to_string()),
            rules_hash: self.rules_hash.clone(),
            server_id: self.identity.id.clone(),
            server_info: self.server_info.clone(),
            tools,
            truncated: short,
            v: SURFACE_VERSION,
        })
    }

    /// Reads a document, and recomputes every hash in it whose content it holds, the hash of each facet and the root.
    ///
    /// # Errors
    /// A later version, another format, or a hash that is not that of what is there.
    pub fn read(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let document = match reading::read::<Document>(bytes) {
            reading::Reading::Readable(d) => d,
            reading::Reading::TooNew(e) => return Err(e.into()),
            reading::Reading::Damaged(e) => return Err(SnapshotError::Damaged(e)),
        };
        if document.fingerprint != FINGERPRINT {
            return Err(SnapshotError::Damaged(format!("its fingerprint is {:?}", document.fingerprint)));
        }
        let value = |facet: Facet, e: Option<Entry>| e.map(|e| read_value(facet, &e)).transpose();
        let mut lists = BTreeMap::new();
        for (facet, listed) in [
            (Facet::Prompts, document.prompts),
            (Facet::ResourceTemplates, document.resource_templates),
            (Facet::Resources, document.resources),
            (Facet::Tools, document.tools),
        ] {
            lists.insert(facet, read_list(facet, &listed)?);
        }
        let out = Self {
            identity: Identity { endpoint: document.endpoint, id: document.server_id },
            context: document.context,
            surface: Surface {
                capabilities: value(Facet::Capabilities, document.capabilities)?,
                instructions: value(Facet::Instructions, document.instructions)?,
                lists,
            },
            server_info: document.server_info,
            protocol_version: document.protocol_version,
            left_out: document.left_out.into_iter().collect(),
            rules_hash: document.rules_hash,
            changes: document.changes,
        };
        if out.facets() != document.facets {
            return Err(SnapshotError::Hash("facets".to_owned()));
        }
        if out.root().ok().map(|r| r.to_string()) != document.root {
            return Err(SnapshotError::Hash("root".to_owned()));
        }
        Ok(out)
    }
}

/// The digest that a text names. Of raw bytes it is not known why they are raw until they are read.
fn parsed(hash: &str) -> Option<Digest> {
    let of = |hex: &str| {
        let lower = hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        hex::decode(hex).ok().filter(|_| lower).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
    };
    match hash.split_once(':')? {
        ("sha256", hex) => of(hex).map(Digest::Jcs),
        ("sha256-raw", hex) => of(hex).map(|hash| Digest::Raw(hash, canon::Anomalies::NONE)),
        _ => None,
    }
}

/// The digest of an entry and what was hashed; recomputed where the content is there.
fn checked(what: &str, e: &Entry) -> Result<(Digest, Vec<u8>), SnapshotError> {
    let said = parsed(&e.hash).ok_or_else(|| SnapshotError::Damaged(format!("{what}: {:?} is no hash", e.hash)))?;
    let Some(content) = &e.content else { return Ok((said, Vec::new())) };
    let damaged = |e: &dyn std::fmt::Display| SnapshotError::Damaged(format!("{what}: {e}"));
    let (hash, content) = match said {
        // Its RFC 8785 form need not have one itself: 2^67 is written in digits that no double holds exactly.
        Digest::Jcs(_) => {
            let content = content.get().as_bytes();
            if !canon::is_canonical(content) {
                return Err(damaged(&"its content is not in canonical form"));
            }
            (Digest::Jcs(canon::sha256(content)), content.to_vec())
        }
        Digest::Raw(..) => {
            let content = serde_json::from_str::<String>(content.get()).map_err(|e| damaged(&e))?.into_bytes();
            (canon::digest(&content, None).map_err(|e| damaged(&e))?, content)
        }
    };
    if hash.to_string() != e.hash {
        return Err(SnapshotError::Hash(what.to_owned()));
    }
    Ok((hash, content))
}

fn ambiguity_of(what: &str, e: &Entry, hash: Digest) -> Result<Option<Ambiguity>, SnapshotError> {
    let unknown = |word: &str| SnapshotError::Damaged(format!("{what}: {word:?} is no reason for ambiguity"));
    let recomputed = item::ambiguity(hash.anomalies());
    match e.ambiguity.as_deref() {
        Some(word) => Ambiguity::of(word).ok_or_else(|| unknown(word)).map(Some),
        None if recomputed.is_some() => Err(SnapshotError::Hash(what.to_owned())),
        None => Ok(None),
    }
}

fn read_value(facet: Facet, e: &Entry) -> Result<Value, SnapshotError> {
    let (hash, content) = checked(facet.word(), e)?;
    Ok(Value { hash, content, ambiguity: ambiguity_of(facet.word(), e, hash)? })
}

fn read_list(facet: Facet, listed: &Listed) -> Result<List, SnapshotError> {
    let damaged = |what: String| SnapshotError::Damaged(format!("{facet}: {what}"));
    let mut items = Vec::with_capacity(listed.items.len());
    for e in &listed.items {
        let what = format!("{facet}/{}", e.name);
        let (hash, content) = checked(&what, e)?;
        let ambiguity = ambiguity_of(&what, e, hash)?;
        let named = content.is_empty() || item::name_in(facet, &content).unwrap_or_default() == e.name;
        if !named {
            return Err(SnapshotError::Hash(what));
        }
        items.push(Item { facet, name: e.name.clone(), hash, content, ambiguity });
    }
    let reason = listed.reason.as_deref().and_then(Reason::of);
    let read = match (listed.state.as_str(), reason) {
        ("unknown", None) => List::Unknown,
        ("not_offered", None) => List::NotOffered,
        ("incomplete", Some(reason)) => List::incomplete(items.clone(), reason),
        ("complete", None) => List::complete(items.clone()),
        (state, _) => return Err(damaged(format!("{state:?} is no state of a list, or its reason is not known"))),
    };
    // In the order of names, none twice, and each that shares its name says so.
    if read.items() != items {
        return Err(damaged("its items are not in their order, or two of one name are not said to be".to_owned()));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let tools = [
            r#"{"name":"b","x":1}"#,
            r#"{"name":"a","n":9007199254740993}"#,
            r#"{"name":"b","x":2}"#,
            r#"{"name":"c","x":1,"x":2}"#,
            r#"{"name":"d","n":1.2345678901234568e20}"#,
            r#"{"title":"\ud800"}"#,
        ];
        let of = |facet, raw: &[&str]| raw.iter().map(|r| Item::of(facet, r.as_bytes(), &[]).unwrap()).collect();
        let lists = [
            (Facet::Tools, List::complete(of(Facet::Tools, &tools))),
            (
                Facet::Resources,
                List::complete(of(
                    Facet::Resources,
                    &[r#"{"uri":"file:///home/me/secret"}"#, r#"{"n":9007199254740993}"#],
                )),
            ),
            (Facet::Prompts, List::incomplete(of(Facet::Prompts, &[r#"{"name":"p"}"#]), Reason::Failed(-32000))),
            (Facet::ResourceTemplates, List::NotOffered),
        ];
        Snapshot {
            identity: Identity { endpoint: "sha256:1".into(), id: "files".into() },
            surface: Surface {
                capabilities: Value::of(br#"{"tools":{}}"#).ok(),
                instructions: Value::of(br#""be careful""#).ok(),
                lists: lists.into(),
            },
            left_out: [Facet::Prompts].into(),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_document_is_read_as_it_was_written_and_resources_are_hashes() {
        let seen = snapshot();
        let bytes = seen.document().unwrap();
        assert!(canon::is_canonical(&bytes), "{}", String::from_utf8_lossy(&bytes));
        assert!(!String::from_utf8_lossy(&bytes).contains("secret"));
        let read = Snapshot::read(&bytes).unwrap();
        assert_eq!(read.root().unwrap().to_string(), seen.root().unwrap().to_string());
        assert_eq!(read.document().unwrap(), bytes);
        assert_eq!(read.surface.list(Facet::Tools).items(), seen.surface.list(Facet::Tools).items());
    }

    #[test]
    fn a_changed_document_is_no_surface() {
        let text = String::from_utf8(snapshot().document().unwrap()).unwrap();
        for (from, to) in [
            (r#""x":1},"#, r#""x":3},"#),
            ("be careful", "be reckless"),
            (r#""name":"a"},{"#, r#""name":"z"},{"#),
            (r#""ambiguity":"two_definitions""#, r#""ambiguity":null"#),
            (r#""ambiguity":"duplicate_key""#, r#""ambiguity":null"#),
            (r#""reason":"error:-32000""#, r#""reason":null"#),
            (r#""left_out":["prompts"]"#, r#""left_out":[]"#),
            (r#""v":2"#, r#""v":3"#),
            ("assay.surface/2", "assay.surface/9"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text, "{from}");
            assert!(Snapshot::read(other.as_bytes()).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn what_does_not_fit_is_there_as_a_hash() {
        let big = "x".repeat(MAX_CONTENT / 2);
        let tools = ["a", "b", "c"]
            .map(|n| Item::of(Facet::Tools, format!(r#"{{"name":"{n}","d":"{big}"}}"#).as_bytes(), &[]).unwrap());
        let mut seen = snapshot();
        seen.surface.lists.insert(Facet::Tools, List::complete(tools.to_vec()));
        let bytes = seen.document().unwrap();
        assert!(super::super::is_truncated(&bytes) && bytes.len() < 2 * MAX_CONTENT);
        let read = Snapshot::read(&bytes).unwrap();
        assert_eq!(read.root().unwrap(), seen.root().unwrap());
    }
}
