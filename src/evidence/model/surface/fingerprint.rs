//! The fingerprint `assay.surface/2`: one hash for each facet, and a root over them.

use super::{
    facet::Facet,
    item::{self, Ambiguity, Item},
    reason::Reason,
};
use crate::canon::{Digest, ScanError};
use serde::{Serialize, Serializer};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

/// The name of the rules by which hashes are made.
pub const FINGERPRINT: &str = "assay.surface/2";

/// A facet that is one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Digest of `content`.
    pub hash: Digest,
    /// What was hashed: canonical where there is a canonical form, else the bytes.
    pub content: Vec<u8>,
    /// Why it cannot be approved, if it cannot.
    pub ambiguity: Option<Ambiguity>,
}

impl Value {
    /// The value that these bytes are.
    ///
    /// # Errors
    /// If they are no JSON.
    pub fn of(raw: &[u8]) -> Result<Self, ScanError> {
        let (hash, content) = item::hashed(raw)?;
        Ok(Self { hash, content, ambiguity: item::ambiguity(hash.anomalies()) })
    }
}

/// What is known of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum List {
    /// Nobody asked for it.
    #[default]
    Unknown,
    /// The server does not have it.
    NotOffered,
    /// Part of it.
    Incomplete(Vec<Item>, Reason),
    /// All of it.
    Complete(Vec<Item>),
}

impl List {
    /// A complete list, in the order of names. Of equal items one is kept; items with one name and different hashes are
    /// ambiguous, each of them.
    #[must_use]
    pub fn complete(items: Vec<Item>) -> Self {
        Self::Complete(settled(items))
    }

    /// Part of a list, as [`List::complete`].
    #[must_use]
    pub fn incomplete(items: Vec<Item>, reason: Reason) -> Self {
        Self::Incomplete(settled(items), reason)
    }

    /// The items that were seen, sorted by name and hash.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        match self {
            Self::Unknown | Self::NotOffered => &[],
            Self::Incomplete(items, _) | Self::Complete(items) => items,
        }
    }
}

fn settled(mut items: Vec<Item>) -> Vec<Item> {
    let order = |a: &Item, b: &Item| {
        a.name
            .cmp(&b.name)
            .then_with(|| if a.hash == b.hash { Ordering::Equal } else { a.hash.to_string().cmp(&b.hash.to_string()) })
    };
    items.sort_by(order);
    items.dedup_by(|a, b| a.name == b.name && a.hash == b.hash && a.ambiguity == b.ambiguity);
    for n in 1..items.len() {
        if items[n].name == items[n - 1].name {
            for one in [n - 1, n] {
                items[one].ambiguity.get_or_insert(Ambiguity::TwoDefinitions);
            }
        }
    }
    items
}

/// A surface, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surface {
    /// What the server can do; `None` if it did not say.
    pub capabilities: Option<Value>,
    /// Its instructions; `None` if it has none.
    pub instructions: Option<Value>,
    /// Prompts, templates, resources and tools.
    pub lists: BTreeMap<Facet, List>,
}

/// Why a surface cannot be approved as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoot {
    /// A facet of which nothing is known.
    #[error("{0}: not listed yet")]
    Unknown(Facet),
    /// A facet that is not complete.
    #[error("{0}: incomplete: {1}")]
    Incomplete(Facet, Reason),
}

impl Surface {
    /// What is known of a list.
    #[must_use]
    pub fn list(&self, facet: Facet) -> &List {
        const NOTHING: &List = &List::Unknown;
        self.lists.get(&facet).unwrap_or(NOTHING)
    }

    /// The hash of a facet; `None` where there is none to hash: not offered, or not complete.
    #[must_use]
    pub fn facet_hash(&self, facet: Facet) -> Option<Digest> {
        match facet {
            Facet::Capabilities => self.capabilities.as_ref().map(|v| v.hash),
            Facet::Instructions => self.instructions.as_ref().map(|v| v.hash),
            list => match self.list(list) {
                List::Complete(items) => list_hash(items),
                _ => None,
            },
        }
    }

    /// The root: the digest over the hashes of all facets but those that a rule takes out, which count as not offered.
    ///
    /// # Errors
    /// The first facet that is not complete.
    pub fn root(&self, left_out: &BTreeSet<Facet>) -> Result<Digest, NoRoot> {
        let counts = |facet: Facet| !left_out.contains(&facet);
        for facet in Facet::LISTS.into_iter().filter(|f| counts(*f)) {
            match self.list(facet) {
                List::Unknown => return Err(NoRoot::Unknown(facet)),
                List::Incomplete(_, reason) => return Err(NoRoot::Incomplete(facet, *reason)),
                List::NotOffered | List::Complete(_) => {}
            }
        }
        let hash = |facet| Some(facet).filter(|f| counts(*f)).and_then(|f| self.facet_hash(f)).map(Shown);
        let root = Root {
            capabilities: hash(Facet::Capabilities),
            fingerprint: FINGERPRINT,
            instructions: hash(Facet::Instructions),
            prompts: hash(Facet::Prompts),
            resource_templates: hash(Facet::ResourceTemplates),
            resources: hash(Facet::Resources),
            tools: hash(Facet::Tools),
        };
        // Hex digits and names of ours: there is always a canonical form.
        digest(&root).ok_or(NoRoot::Unknown(Facet::Capabilities))
    }

    /// The facets that hold something that can be read in two ways: shown, never approvable.
    #[must_use]
    pub fn ambiguous(&self) -> BTreeSet<Facet> {
        let values = [(Facet::Capabilities, &self.capabilities), (Facet::Instructions, &self.instructions)];
        let values = values.into_iter().filter(|(_, v)| v.as_ref().is_some_and(|v| v.ambiguity.is_some()));
        let lists = self.lists.iter().filter(|(_, l)| l.items().iter().any(|i| i.ambiguity.is_some()));
        values.map(|(f, _)| f).chain(lists.map(|(f, _)| *f)).collect()
    }
}

struct Shown(Digest);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

#[derive(Serialize)]
struct Root {
    capabilities: Option<Shown>,
    fingerprint: &'static str,
    instructions: Option<Shown>,
    prompts: Option<Shown>,
    resource_templates: Option<Shown>,
    resources: Option<Shown>,
    tools: Option<Shown>,
}

fn list_hash(items: &[Item]) -> Option<Digest> {
    let pairs: BTreeSet<(&str, String)> = items.iter().map(|i| (i.name.as_str(), i.hash.to_string())).collect();
    digest(&pairs)
}

fn digest(value: &impl Serialize) -> Option<Digest> {
    crate::canon::digest(&serde_json::to_vec(value).ok()?, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon;

    fn tools(raw: &[&str]) -> Surface {
        let items = raw.iter().map(|r| Item::of(Facet::Tools, r.as_bytes(), &[]).unwrap()).collect();
        let mut lists: BTreeMap<Facet, List> = Facet::LISTS.into_iter().map(|f| (f, List::NotOffered)).collect();
        lists.insert(Facet::Tools, List::complete(items));
        Surface { lists, ..Surface::default() }
    }

    fn root(s: &Surface) -> Digest {
        s.root(&BTreeSet::new()).unwrap()
    }

    #[test]
    fn the_root_is_what_the_rules_say_counted_by_hand() {
        let mut s = tools(&[r#"{"name":"b","x":1.0}"#, r#"{"x":2,"name":"a"}"#, r#"{"name":"b","x":1}"#]);
        s.capabilities = Some(Value::of(br#"{"tools":{}}"#).unwrap());
        s.instructions = Some(Value::of(br#""h\u0069""#).unwrap());
        let hash = |text: &str| format!("sha256:{}", canon::sha256_hex(text.as_bytes()));
        let list = format!(r#"[["a","{}"],["b","{}"]]"#, hash(r#"{"name":"a","x":2}"#), hash(r#"{"name":"b","x":1}"#));
        let whole = format!(
            r#"{{"capabilities":"{}","fingerprint":"assay.surface/2","instructions":"{}","prompts":null,"resource_templates":null,"resources":null,"tools":"{}"}}"#,
            hash(r#"{"tools":{}}"#),
            hash(r#""hi""#),
            hash(&list)
        );
        assert_eq!(root(&s).to_string(), hash(&whole));
        assert!(s.ambiguous().is_empty());
    }

    #[test]
    fn order_and_repetition_do_not_count_and_everything_else_does() {
        let (a, b) = (r#"{"name":"a"}"#, r#"{"name":"b"}"#);
        let one = root(&tools(&[a, b]));
        for (other, same) in [
            (tools(&[b, a]), true),
            (tools(&[b, a, b]), true),
            (tools(&[a]), false),
            (tools(&[a, b, r#"{"name":"b","x":1}"#]), false),
            (Surface { instructions: Value::of(br#""x""#).ok(), ..tools(&[a, b]) }, false),
            (Surface { capabilities: Value::of(b"{}").ok(), ..tools(&[a, b]) }, false),
        ] {
            assert_eq!(root(&other) == one, same, "{other:?}");
        }
        assert_ne!(root(&tools(&[])), {
            let mut none = tools(&[]);
            none.lists.insert(Facet::Tools, List::NotOffered);
            root(&none)
        });
    }

    #[test]
    fn equal_names_are_ambiguous_each_of_them_and_an_unclear_twin_is_not_lost() {
        let s = tools(&[r#"{"name":"t","x":1}"#, r#"{"name":"u"}"#, r#"{"name":"t","x":2}"#]);
        let unclear: Vec<_> = s.list(Facet::Tools).items().iter().map(|i| (i.name.as_str(), i.ambiguity)).collect();
        let two = Some(Ambiguity::TwoDefinitions);
        assert_eq!(unclear, [("t", two), ("t", two), ("u", None)]);
        assert_eq!(s.ambiguous(), [Facet::Tools].into());
        // Same hash, and one of them could be read in two ways where it does not count.
        let clear = r#"{"name":"t"}"#;
        let twice = r#"{"name":"t","_meta":{"baggage":1,"baggage":2}}"#;
        for both in [[clear, twice], [twice, clear]] {
            assert_eq!(tools(&both).ambiguous(), [Facet::Tools].into());
        }
    }

    #[test]
    fn half_a_surface_has_no_root_unless_a_rule_takes_the_facet_out() {
        let mut s = tools(&[]);
        s.lists.remove(&Facet::Prompts);
        let none = BTreeSet::new();
        assert_eq!(s.root(&none), Err(NoRoot::Unknown(Facet::Prompts)));
        assert!(s.root(&[Facet::Prompts].into()).is_ok());
        s.lists.insert(Facet::Prompts, List::incomplete(Vec::new(), Reason::CursorTwice));
        assert_eq!(s.root(&none), Err(NoRoot::Incomplete(Facet::Prompts, Reason::CursorTwice)));
        let said = s.root(&none).unwrap_err().to_string();
        assert_eq!(said, "prompts: incomplete: the server gave a cursor a second time");
    }
}
