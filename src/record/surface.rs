//! The surface of a server as it was observed: what it says it is and what it offers (docs/formats.md, "Surface").
//!
//! It is whatever the client asked for: the recorder asks nothing itself. Each entry is hashed in its RFC 8785 form,
//! lists are sorted by name, and what only steers caching and paging (`ttlMs`, `cacheScope`, `resultType`,
//! `nextCursor`, a result's `_meta`) is left out. Of resources only hashes are kept, whatever may be stored: a list of
//! them is content, and the document is a fingerprint of what the server said, not of the recorder's flags.
//!
//! What finds no place in the document is hashed into `omitted_hash`, so that two servers never have one fingerprint
//! for having said too much.

use super::envelope::{self, Envelope, Fields};
use crate::{
    canon::{self, Digest},
    model::{receipt::PeerInfo, session::Identity, surface::SURFACE_VERSION},
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Bytes of entries in full, over all lists.
const MAX_TEXTS: usize = 96 << 20;
/// Bytes for names and hashes: more than the entries of 64 MiB need, if each has a name and a schema.
const MAX_INDEX: usize = 192 << 20;
/// Bytes that an entry takes in the document in addition to its own text and its name.
const FRAME: usize = 115;

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
struct Entry {
    /// The entry in canonical form, where it is kept.
    #[serde(rename = "entry")]
    text: Option<Box<RawValue>>,
    /// Its hash: `sha256:` or `sha256-raw:`.
    #[serde(serialize_with = "display")]
    hash: Digest,
    /// Name or URI template; for a resource, the hash of its URI.
    name: String,
}

fn display<S: Serializer>(digest: &Digest, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(digest)
}

impl Entry {
    fn key(&self) -> (&str, [u8; 32]) {
        let (Digest::Jcs(hash) | Digest::Raw(hash, _)) = self.hash;
        (&self.name, hash)
    }
}

/// One listing, or a part of one.
#[derive(Debug, Clone, Default)]
struct List {
    entries: Vec<Entry>,
    /// Bytes of the entries that are kept in full.
    texts: usize,
    /// Bytes of names and hashes.
    index: usize,
    /// Whether part of it is not kept in its usual form.
    truncated: bool,
    /// Hash over what has no entry.
    omitted: Option<[u8; 32]>,
}

/// Adds the hash of one more thing to the hash over all that is left out.
fn fold(omitted: &mut Option<[u8; 32]>, hash: &[u8]) {
    *omitted = Some(canon::sha256(&[&omitted.unwrap_or_default()[..], hash].concat()));
}

/// `surface.json`, in JSON name order. The last two members are what [`crate::model::surface::is_truncated`] looks at.
#[derive(Serialize)]
struct Document<'a> {
    capabilities: &'a Option<Box<RawValue>>,
    changes: u64,
    instructions: &'a Option<Box<RawValue>>,
    omitted_hash: Option<String>,
    prompts: &'a [Entry],
    protocol_version: Option<&'a str>,
    resource_templates: &'a [Entry],
    resources: &'a [Entry],
    server_info: Option<&'a PeerInfo>,
    tools: &'a [Entry],
    truncated: bool,
    v: u32,
}

/// What was observed so far.
#[derive(Debug, Clone, Default)]
pub struct Surface {
    capabilities: Option<Box<RawValue>>,
    instructions: Option<Box<RawValue>>,
    /// Of these two, what has no canonical form or is too long.
    omitted: Option<[u8; 32]>,
    truncated: bool,
    lists: [Option<List>; 4],
    /// A listing whose last page has not come yet.
    open: [List; 4],
    changes: u64,
    dirty: bool,
}

impl Surface {
    /// Takes in a result. `follows`: the request asked for a further page.
    pub fn observe(&mut self, part: Part, follows: bool, e: &Envelope<'_>) {
        let Some(range) = e.result.clone() else { return };
        let base = range.start;
        let result = &e.bytes[range];
        let page = e.page.map(|page| move |upto: usize| page(base + upto));
        let page = page.as_ref().map(|p| p as &dyn Fn(usize));
        if part == Part::Server {
            self.server(result, page);
            return;
        }
        let Ok(f) = Fields::paged(result, [part.members().0, "nextCursor"], page) else { return };
        let which = part.index();
        if !follows {
            self.open[which] = List::default();
        }
        if let Some(list) = f.range(0) {
            let page = page.map(|page| move |upto: usize| page(list.start + upto));
            let elements = canon::elements_paged(&result[list.clone()], page.as_ref().map(|p| p as &dyn Fn(usize)));
            for range in elements.into_iter().flatten().flatten() {
                self.entry(part, &result[list.clone()][range]);
            }
        }
        let more = f.get(1).is_some_and(|c| canon::kind(c) == Some(canon::Kind::String));
        if !more {
            self.close(which);
        }
    }

    fn server(&mut self, result: &[u8], page: canon::Page<'_>) {
        let Ok(f) = Fields::paged(result, ["capabilities", "instructions"], page) else { return };
        (self.omitted, self.truncated) = (None, false);
        let mut keep = |raw: &[u8]| {
            let kept = canonical(raw);
            if kept.is_none() {
                fold(&mut self.omitted, &canon::sha256(raw));
                self.truncated |= raw.len() > MAX_TEXTS;
            }
            kept
        };
        self.capabilities = f.get(0).and_then(&mut keep);
        self.instructions = f.get(1).and_then(&mut keep);
        self.dirty = true;
    }

    /// Bytes that all lists take except the one that `which` is about to replace.
    fn used(&self, which: usize, bytes: fn(&List) -> usize) -> usize {
        let closed = self.lists.iter().enumerate().filter(|(i, _)| *i != which).filter_map(|(_, l)| l.as_ref());
        closed.chain(&self.open).map(bytes).sum()
    }

    fn entry(&mut self, part: Part, raw: &[u8]) {
        let which = part.index();
        let text = canon::canonicalize(raw).ok();
        let hash = match &text {
            Some(text) => Digest::Jcs(canon::sha256(text)),
            None => match canon::digest(raw, None) {
                Ok(digest) => digest,
                Err(_) => return,
            },
        };
        let fields = Fields::of(raw, [part.members().1]).ok();
        let name = fields.as_ref().and_then(|f| f.get(0)).map(envelope::name_of).unwrap_or_default();
        let name = match part {
            Part::Resources => format!("sha256-raw:{}", canon::sha256_hex(name.as_bytes())),
            _ => envelope::short(&name),
        };
        let text = text.filter(|_| part != Part::Resources);
        let (texts, index) = (self.used(which, |l| l.texts), self.used(which, |l| l.index));
        let list = &mut self.open[which];
        let cost = FRAME + name.len();
        if index + cost > MAX_INDEX {
            list.truncated = true;
            fold(&mut list.omitted, hash.to_string().as_bytes());
            return;
        }
        let fits = text.as_ref().is_none_or(|t| texts + t.len() <= MAX_TEXTS);
        list.truncated |= !fits;
        let entry = text.filter(|_| fits).and_then(raw_value);
        list.texts += entry.as_ref().map_or(0, |e| e.get().len());
        list.index += cost;
        list.entries.push(Entry { text: entry, hash, name });
    }

    fn close(&mut self, which: usize) {
        let mut new = std::mem::take(&mut self.open[which]);
        new.entries.sort_by(|a, b| a.key().cmp(&b.key()));
        if let Some(old) = &self.lists[which] {
            let same =
                old.omitted == new.omitted && old.entries.iter().map(Entry::key).eq(new.entries.iter().map(Entry::key));
            self.changes += u64::from(!same);
            self.dirty |= !same;
        } else {
            self.dirty = true;
        }
        self.lists[which] = Some(new);
    }

    /// Whether anything is new since the last call.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// `surface.json`: the RFC 8785 form, without a newline; `None` if nothing was observed.
    #[must_use]
    pub fn document(&self, identity: &Identity) -> Option<Vec<u8>> {
        let lists = || self.lists.iter().flatten();
        if self.capabilities.is_none() && self.omitted.is_none() && lists().next().is_none() {
            return None;
        }
        let list = |i: usize| self.lists[i].as_ref().map_or(&[][..], |l| &l.entries);
        let mut omitted = None;
        for hash in lists().filter_map(|l| l.omitted).chain(self.omitted) {
            fold(&mut omitted, &hash);
        }
        serde_json::to_vec(&Document {
            capabilities: &self.capabilities,
            changes: self.changes,
            instructions: &self.instructions,
            omitted_hash: omitted.map(|hash| Digest::Jcs(hash).to_string()),
            prompts: list(1),
            protocol_version: identity.protocol.as_deref(),
            resource_templates: list(3),
            resources: list(2),
            server_info: identity.server.as_ref(),
            tools: list(0),
            truncated: self.truncated || lists().any(|l| l.truncated),
            v: SURFACE_VERSION,
        })
        .ok()
    }
}

fn canonical(raw: &[u8]) -> Option<Box<RawValue>> {
    canon::canonicalize(raw).ok().filter(|t| t.len() <= MAX_TEXTS).and_then(raw_value)
}

fn raw_value(canonical: Vec<u8>) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(canonical).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::surface::is_truncated;

    fn see(s: &mut Surface, part: Part, follows: bool, json: &str) {
        s.observe(part, follows, &envelope::parse(json.as_bytes(), None).unwrap());
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
    fn resources_are_hashes_and_the_order_and_number_of_entries_does_not_get_lost() {
        let json = r#"{"id":1,"result":{"resources":[{"uri":"file:///home/me/secret","name":"s"}]}}"#;
        let mut s = Surface::default();
        see(&mut s, Part::Resources, false, json);
        let text = document(&s).to_string();
        assert!(!text.contains("secret") && text.contains("\"name\":\"sha256-raw:"), "{text}");
        // Two entries with one name are both kept, in whichever order they come.
        let list = |tools: &str| {
            let mut s = Surface::default();
            see(&mut s, Part::Tools, false, &format!(r#"{{"id":1,"result":{{"tools":[{tools}]}}}}"#));
            document(&s)
        };
        let (a, b) = (r#"{"name":"t","x":1}"#, r#"{"name":"t","x":2}"#);
        assert_eq!(list(&format!("{a},{b}")), list(&format!("{b},{a}")));
        assert_eq!(list(&format!("{a},{b}"))["tools"].as_array().unwrap().len(), 2);
        assert_ne!(list(&format!("{a},{a}")), list(a));
        // Names that are cut, missing, or none at all.
        let long = "n".repeat(70_000);
        let names = list(&format!(r#"{{"name":"{long}a"}},{{"name":"{long}b"}},{{}},{{"name":7}},8"#));
        assert_eq!(names["tools"].as_array().unwrap().len(), 5);
    }

    #[test]
    fn a_long_list_has_all_its_names_and_hashes_also_page_by_page_and_again() {
        // 3 MiB in one message that is read from mapped pages, and 40 000 entries.
        let tools: Vec<String> = (0..40_000).map(|n| format!(r#"{{"name":"t{n:05}","d":"{n:060}"}}"#)).collect();
        let json = format!(r#"{{"id":1,"result":{{"tools":[{}]}}}}"#, tools.join(","));
        assert!(json.len() > 3 << 20);
        let release = |_: usize| ();
        let mut s = Surface::default();
        for again in 0..3 {
            s.observe(Part::Tools, false, &envelope::parse(json.as_bytes(), Some(&release)).unwrap());
            let d = document(&s);
            assert_eq!((&d["truncated"], &d["changes"]), (&false.into(), &0.into()), "{again}");
            assert_eq!(d["tools"].as_array().unwrap().len(), 40_000);
            assert_eq!(d["tools"][39_999]["entry"]["name"], "t39999");
        }
        let pages = |s: &mut Surface, all: &[String]| {
            for (n, page) in all.chunks(1000).enumerate() {
                let next = if n + 1 < all.len().div_ceil(1000) { r#","nextCursor":"x""# } else { "" };
                see(s, Part::Tools, n > 0, &format!(r#"{{"id":1,"result":{{"tools":[{}]{next}}}}}"#, page.join(",")));
            }
        };
        let mut paged = Surface::default();
        pages(&mut paged, &tools);
        assert_eq!(document(&paged), document(&s));
        // A listing that is begun over and over takes no room from the one that is finished.
        for _ in 0..50 {
            see(
                &mut paged,
                Part::Tools,
                false,
                &format!(r#"{{"id":1,"result":{{"tools":[{}],"nextCursor":"x"}}}}"#, tools[..1000].join(",")),
            );
        }
        pages(&mut paged, &tools);
        assert_eq!(document(&paged), document(&s));
    }

    #[test]
    fn a_limit_that_is_reached_is_said_and_servers_stay_different() {
        let big = "x".repeat(MAX_TEXTS / 3);
        let observed = |last: &str| {
            let mut s = Surface::default();
            for n in 0..4 {
                let json = format!(
                    r#"{{"id":1,"result":{{"tools":[{{"name":"t{n}","d":"{big}{last}"}}],"nextCursor":"c"}}}}"#
                );
                see(&mut s, Part::Tools, n > 0, &json);
            }
            see(&mut s, Part::Tools, true, r#"{"id":1,"result":{"tools":[]}}"#);
            s.document(&Identity::default()).unwrap()
        };
        let (a, b) = (observed("a"), observed("b"));
        assert!(is_truncated(&a) && a != b);
        let d: serde_json::Value = serde_json::from_slice(&a).unwrap();
        assert!(d["tools"][3]["entry"].is_null() && d["tools"][3]["hash"].is_string());
        let mut s = Surface::default();
        let room = Surface {
            open: [List { index: MAX_INDEX, ..List::default() }, List::default(), List::default(), List::default()],
            ..Surface::default()
        };
        let more = |name: &str| {
            let mut s = room.clone();
            see(&mut s, Part::Tools, true, &format!(r#"{{"id":1,"result":{{"tools":[{{"name":"{name}"}}]}}}}"#));
            s.document(&Identity::default()).unwrap()
        };
        assert!(is_truncated(&more("a")) && more("a") != more("b"));
        see(&mut s, Part::Tools, false, r#"{"id":1,"result":{"tools":[{"name":"t"}]}}"#);
        assert!(!is_truncated(&s.document(&Identity::default()).unwrap()));
    }

    #[test]
    fn what_has_no_canonical_form_still_tells_servers_apart() {
        let of = |text: &str| {
            let mut s = Surface::default();
            see(
                &mut s,
                Part::Server,
                false,
                &format!(r#"{{"id":1,"result":{{"capabilities":{{}},"instructions":{text}}}}}"#),
            );
            document(&s)
        };
        assert_ne!(of(r#""\ud800a""#), of(r#""\ud800b""#));
        assert!(of("\"x\"")["omitted_hash"].is_null());
    }
}
