//! The surface of a server as it was observed: what it says it is and what it offers (MCP.md §2).
//!
//! It is whatever the client asked for: the recorder asks nothing itself. Each entry is hashed in its RFC 8785 form, lists are
//! sorted by name, and what only steers caching and paging (`ttlMs`, `cacheScope`, `resultType`, `nextCursor`, a result's
//! `_meta`) is left out. Resources are kept as hashes of their URIs unless results may be stored: a list of them is content.

use super::envelope::{Envelope, Fields};
use crate::{
    canon::{self, Digest},
    model::receipt::PeerInfo,
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Format version of `surface.json`.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const SURFACE_VERSION: u32 = 1;

/// Entries in full stop at this many bytes altogether; what comes after is kept as hashes.
const MAX_BYTES: usize = 4 << 20;
/// Entries of one list that are kept.
const MAX_ENTRIES: usize = 10_000;

/// A method whose result is part of the surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `initialize`, `server/discover`.
    Server,
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
}

impl Part {
    /// The part that a method's result is, if any.
    #[must_use]
    pub fn of(method: &str) -> Option<Self> {
        Some(match method {
            "initialize" | "server/discover" => Self::Server,
            "tools/list" => Self::Tools,
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            "resources/templates/list" => Self::Templates,
            _ => return None,
        })
    }

    /// Member of the result that holds the list, and member of an entry that names it.
    const fn members(self) -> (&'static str, &'static str) {
        match self {
            Self::Server | Self::Tools => ("tools", "name"),
            Self::Prompts => ("prompts", "name"),
            Self::Resources => ("resources", "uri"),
            Self::Templates => ("resourceTemplates", "uriTemplate"),
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Server | Self::Tools => 0,
            Self::Prompts => 1,
            Self::Resources => 2,
            Self::Templates => 3,
        }
    }
}

/// One tool, prompt, resource or template. Fields in JSON name order.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// The entry in canonical form, where it is kept.
    pub entry: Option<Box<RawValue>>,
    /// Its hash (FORMATS §2).
    pub hash: String,
    /// Name, URI or URI template; for a resource that is not kept, the hash of its URI.
    pub name: String,
}

type List = BTreeMap<String, Entry>;

/// `surface.json`, in JSON name order.
#[derive(Serialize)]
struct Document<'a> {
    capabilities: &'a Option<Box<RawValue>>,
    changes: u64,
    instructions: &'a Option<Box<RawValue>>,
    prompts: Vec<&'a Entry>,
    protocol_version: Option<&'a str>,
    resource_templates: Vec<&'a Entry>,
    resources: Vec<&'a Entry>,
    server_info: Option<&'a PeerInfo>,
    tools: Vec<&'a Entry>,
    truncated: bool,
    v: u32,
}

/// What was observed so far.
#[derive(Debug, Clone, Default)]
pub struct Surface {
    capabilities: Option<Box<RawValue>>,
    instructions: Option<Box<RawValue>>,
    lists: [Option<List>; 4],
    /// A listing whose last page has not come yet.
    open: [List; 4],
    bytes: usize,
    truncated: bool,
    changes: u64,
    dirty: bool,
}

impl Surface {
    /// Takes in a result. `follows`: the request asked for a further page. `keep_resources`: their URIs may be stored.
    pub fn observe(&mut self, part: Part, follows: bool, e: &Envelope<'_>, keep_resources: bool) {
        let Some(result) = e.result.clone().map(|r| &e.bytes[r]) else { return };
        if e.page.is_some() {
            // Too big to be kept; its hash is in the chain.
            self.truncated = true;
            return;
        }
        if part == Part::Server {
            self.server(result);
            return;
        }
        let Ok(f) = Fields::of(result, [part.members().0, "nextCursor"]) else { return };
        let which = part.index();
        if !follows {
            self.open[which].clear();
        }
        for range in f.get(0).and_then(|list| canon::elements(list).ok()).into_iter().flatten().flatten() {
            let Some(raw) = f.get(0).and_then(|list| list.get(range)) else { continue };
            self.entry(part, raw, keep_resources);
        }
        let more = f.get(1).is_some_and(|c| canon::kind(c) == Some(canon::Kind::String));
        if !more {
            self.close(which);
        }
    }

    fn server(&mut self, result: &[u8]) {
        let Ok(f) = Fields::of(result, ["capabilities", "instructions"]) else { return };
        self.capabilities = f.get(0).and_then(canonical);
        self.instructions = f.get(1).and_then(canonical);
        self.dirty = true;
    }

    fn entry(&mut self, part: Part, raw: &[u8], keep_resources: bool) {
        let Ok(digest) = canon::digest(raw, None) else { return };
        let name = Fields::of(raw, [part.members().1]).ok().and_then(|f| f.text(0)).unwrap_or_default();
        let keep = keep_resources || part != Part::Resources;
        let name = if keep {
            super::envelope::short(&name)
        } else {
            format!("sha256-raw:{}", canon::sha256_hex(name.as_bytes()))
        };
        let list = &mut self.open[part.index()];
        if list.len() >= MAX_ENTRIES {
            self.truncated = true;
            return;
        }
        let fits = self.bytes + raw.len() <= MAX_BYTES;
        self.truncated |= keep && !fits;
        let entry = (keep && fits && matches!(digest, Digest::Jcs(_))).then(|| canonical(raw)).flatten();
        self.bytes += entry.as_ref().map_or(0, |e| e.get().len());
        list.insert(name.clone(), Entry { entry, hash: digest.to_string(), name });
    }

    fn close(&mut self, which: usize) {
        let new = std::mem::take(&mut self.open[which]);
        let size = |list: &List| list.values().filter_map(|e| e.entry.as_ref()).map(|e| e.get().len()).sum::<usize>();
        if let Some(old) = &self.lists[which] {
            let same = old.len() == new.len()
                && old.values().zip(new.values()).all(|(a, b)| a.name == b.name && a.hash == b.hash);
            self.bytes = self.bytes.saturating_sub(size(old));
            self.changes += u64::from(!same);
            self.dirty |= !same;
        } else {
            self.dirty = true;
        }
        self.lists[which] = Some(new);
    }

    /// Whether there is something new since this was asked last.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// `surface.json`: the RFC 8785 form, without a newline; `None` if nothing was observed.
    #[must_use]
    pub fn document(&self, identity: &super::recorder::Identity) -> Option<Vec<u8>> {
        if self.capabilities.is_none() && self.lists.iter().all(Option::is_none) {
            return None;
        }
        let list = |i: usize| self.lists[i].iter().flat_map(BTreeMap::values).collect::<Vec<_>>();
        serde_json::to_vec(&Document {
            capabilities: &self.capabilities,
            changes: self.changes,
            instructions: &self.instructions,
            prompts: list(1),
            protocol_version: identity.protocol.as_deref(),
            resource_templates: list(3),
            resources: list(2),
            server_info: identity.server.as_ref(),
            tools: list(0),
            truncated: self.truncated,
            v: SURFACE_VERSION,
        })
        .ok()
    }
}

fn canonical(raw: &[u8]) -> Option<Box<RawValue>> {
    let text = canon::canonicalize(raw).ok().filter(|t| t.len() <= MAX_BYTES)?;
    RawValue::from_string(String::from_utf8(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{envelope, recorder::Identity};

    fn see(s: &mut Surface, part: Part, follows: bool, json: &str) {
        s.observe(part, follows, &envelope::parse(json.as_bytes(), None).unwrap(), false);
    }

    fn document(s: &Surface) -> serde_json::Value {
        let bytes = s.document(&Identity::default()).unwrap();
        assert!(canon::is_canonical(&bytes), "{}", String::from_utf8_lossy(&bytes));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn pages_make_one_sorted_list_and_caching_hints_do_not_matter() {
        let mut s = Surface::default();
        assert!(s.document(&Identity::default()).is_none());
        see(
            &mut s,
            Part::Tools,
            false,
            r#"{"id":1,"result":{"tools":[{"name":"b","x":1}],"nextCursor":"2","ttlMs":5}}"#,
        );
        assert!(s.document(&Identity::default()).is_none(), "half a list is none");
        see(&mut s, Part::Tools, true, r#"{"id":2,"result":{"tools":[{"x":1.0,"name":"a"}]}}"#);
        let one = document(&s);
        assert_eq!(one["tools"][0]["name"], "a");
        assert_eq!(one["tools"][1]["name"], "b");
        assert!(s.take_dirty() && !s.take_dirty());
        see(
            &mut s,
            Part::Tools,
            false,
            r#"{"id":3,"result":{"tools":[{"name":"a","x":1},{"name":"b","x":1}],"ttlMs":9}}"#,
        );
        assert_eq!(document(&s), one);
        assert!(!s.take_dirty());
        see(&mut s, Part::Tools, false, r#"{"id":4,"result":{"tools":[{"name":"a","x":2},{"name":"b","x":1}]}}"#);
        assert_eq!(document(&s)["changes"], 1);
        assert_ne!(document(&s)["tools"][0]["hash"], one["tools"][0]["hash"]);
    }

    #[test]
    fn resources_are_hashes_unless_results_may_be_stored() {
        let json = r#"{"id":1,"result":{"resources":[{"uri":"file:///home/me/secret","name":"s"}]}}"#;
        let mut s = Surface::default();
        see(&mut s, Part::Resources, false, json);
        assert!(!document(&s).to_string().contains("secret"));
        s.observe(Part::Resources, false, &envelope::parse(json.as_bytes(), None).unwrap(), true);
        assert_eq!(document(&s)["resources"][0]["name"], "file:///home/me/secret");
    }

    #[test]
    fn a_surface_has_a_limit_and_says_so() {
        let mut s = Surface::default();
        let big = "x".repeat(MAX_BYTES / 3);
        for n in 0..5 {
            let json = format!(r#"{{"id":1,"result":{{"tools":[{{"name":"t{n}","d":"{big}"}}],"nextCursor":"c"}}}}"#);
            see(&mut s, Part::Tools, n > 0, &json);
        }
        see(&mut s, Part::Tools, true, r#"{"id":1,"result":{"tools":[]}}"#);
        let d = document(&s);
        assert_eq!((d["truncated"].as_bool(), d["tools"].as_array().unwrap().len()), (Some(true), 5));
        assert!(d["tools"][4]["entry"].is_null() && d["tools"][4]["hash"].is_string());
    }
}
