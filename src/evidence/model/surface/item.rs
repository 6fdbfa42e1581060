//! One tool, prompt, resource or template, and its hash.
//!
//! An item's hash is the digest of its content: of all members but those that say nothing of what the item does
//! (`VOLATILE`), and but those that a rule leaves out. Whether it can be read in two ways is judged on all its bytes.

use super::facet::Facet;
use crate::canon::{self, Anomalies, Digest, Kind, ScanError};
use std::borrow::Cow;

/// Pointers into any item whose target does not count.
const VOLATILE: [&[&str]; 4] =
    [&["_meta", "traceparent"], &["_meta", "tracestate"], &["_meta", "baggage"], &["_meta", "progressToken"]];
/// The same for resources and templates.
const VOLATILE_RESOURCE: [&[&str]; 2] = [&["size"], &["annotations", "lastModified"]];

/// A pointer of a rule: what is left out of items.
///
/// `/FACET/NAME/MEMBER…` as in RFC 6901, where `*` stands for any one name, member or element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    facet: Facet,
    name: String,
    path: Vec<String>,
}

/// What is wrong with a pointer of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It does not start with `/`.
    #[error("a pointer starts with `/`, as in /tools/*/title")]
    Start,
    /// A `~` is followed by neither `0` nor `1`.
    #[error("`~` is written `~0` in a pointer, and `/` is written `~1`")]
    Escape,
    /// The first step names no list.
    #[error("the first step is one of tools, prompts, resources, resource_templates")]
    Facet,
    /// It would leave out a whole item.
    #[error("a pointer leads to a member of an item, as in /tools/*/title; to leave out a whole facet, set its mode")]
    Whole,
}

impl std::str::FromStr for Ignored {
    type Err = PointerError;

    fn from_str(pointer: &str) -> Result<Self, PointerError> {
        let steps = steps(pointer)?;
        let facet = Facet::LISTS.into_iter().find(|f| f.word() == steps[0]).ok_or(PointerError::Facet)?;
        let [_, name, path @ ..] = &steps[..] else { return Err(PointerError::Whole) };
        if path.is_empty() {
            return Err(PointerError::Whole);
        }
        Ok(Self { facet, name: name.clone(), path: path.to_vec() })
    }
}

/// The steps of a JSON pointer (RFC 6901) that leads into a value.
///
/// # Errors
/// [`PointerError::Start`], [`PointerError::Escape`].
pub fn steps(pointer: &str) -> Result<Vec<String>, PointerError> {
    pointer.strip_prefix('/').ok_or(PointerError::Start)?.split('/').map(unescaped).collect()
}

fn unescaped(step: &str) -> Result<String, PointerError> {
    let mut parts = step.split('~');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (c, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return Err(PointerError::Escape),
        };
        out.push(c);
        out.push_str(rest);
    }
    Ok(out)
}

/// Why an item cannot be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguity {
    /// Readers of JSON may see different things in it.
    Json(Anomalies),
    /// It is no object, or its name is no string.
    Unnamed,
    /// Another item of the facet has its name and another hash.
    TwoDefinitions,
}

/// One item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The list that it is in.
    pub facet: Facet,
    /// What it is pinned by ([`pinned_name`]); empty if it has none.
    pub name: String,
    /// Digest of `content`.
    pub hash: Digest,
    /// What was hashed: canonical where there is a canonical form, else the bytes.
    pub content: Vec<u8>,
    /// Why it cannot be approved, if it cannot.
    pub ambiguity: Option<Ambiguity>,
}

/// Bytes of a name in JSON up to which it is pinned as it is.
const MAX_NAME: usize = 256;

/// The name by which an item is pinned and found again: a tool's or prompt's name, or a URI template, as it is. Of a
/// resource it is `sha256-raw:` and the SHA-256 of its URI, since a list of URIs is content; likewise of a name that
/// takes more than 256 bytes in JSON.
#[must_use]
pub fn pinned_name(facet: Facet, name: &str) -> String {
    let long = || serde_json::to_string(name).map_or(usize::MAX, |json| json.len() - 2) > MAX_NAME;
    if facet == Facet::Resources || long() {
        return format!("sha256-raw:{}", canon::sha256_hex(name.as_bytes()));
    }
    name.to_owned()
}

impl Ambiguity {
    /// As it is written: the anomalies joined by `+`, `unnamed`, `two_definitions`.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Json(anomalies) => anomalies.names().collect::<Vec<_>>().join("+"),
            Self::Unnamed => "unnamed".to_owned(),
            Self::TwoDefinitions => "two_definitions".to_owned(),
        }
    }

    /// What a word stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "unnamed" => Some(Self::Unnamed),
            "two_definitions" => Some(Self::TwoDefinitions),
            anomalies => Anomalies::of(anomalies.split('+')).map(Self::Json),
        }
    }
}

/// Anomalies that leave only one reading: two readers may round a number, and its bytes are what is pinned.
const READABLE: Anomalies = Anomalies::NUMBER_OUT_OF_RANGE;

/// What readers may see in two ways, if anything.
pub(super) fn ambiguity(anomalies: Anomalies) -> Option<Ambiguity> {
    let clear = anomalies.is_empty() || anomalies == READABLE;
    (!clear).then_some(Ambiguity::Json(anomalies))
}

/// The digest of a value and the bytes that it is over.
pub(super) fn hashed(value: &[u8]) -> Result<(Digest, Vec<u8>), ScanError> {
    Ok(match canon::canonicalize(value) {
        Ok(text) => (Digest::Jcs(canon::sha256(&text)), text),
        Err(_) => (canon::digest(value, None)?, value.trim_ascii().to_vec()),
    })
}

impl Item {
    /// The item that an element of a list is.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn of(facet: Facet, raw: &[u8], ignored: &[Ignored]) -> Result<Self, ScanError> {
        let anomalies = canon::scan(raw)?;
        let name = facet.members().and_then(|(_, member)| string_member(raw, member));
        let known = name.as_deref().unwrap_or_default();
        let rules = ignored.iter().filter(|i| i.facet == facet && (i.name == "*" || i.name == known));
        let mut paths: Vec<Vec<&str>> = VOLATILE.iter().map(|p| p.to_vec()).collect();
        if matches!(facet, Facet::Resources | Facet::ResourceTemplates) {
            paths.extend(VOLATILE_RESOURCE.iter().map(|p| p.to_vec()));
        }
        // The members of the item's own format are taken by their names, never by a `*` that somebody put there.
        let exact = paths.len();
        paths.extend(rules.map(|i| i.path.iter().map(String::as_str).collect()));
        let patterns: Vec<Pattern<'_>> =
            paths.iter().enumerate().map(|(n, p)| Pattern { steps: p, wild: n >= exact }).collect();
        let (hash, content) = hashed(&without(raw, &patterns)?)?;
        let unnamed = name.is_none().then_some(Ambiguity::Unnamed);
        let ambiguity = ambiguity(anomalies | hash.anomalies()).or(unnamed);
        let name = name.as_deref().map(|name| pinned_name(facet, name)).unwrap_or_default();
        Ok(Self { facet, name, hash, content, ambiguity })
    }
}

/// The name by which an item with this content is pinned.
pub(super) fn name_in(facet: Facet, content: &[u8]) -> Option<String> {
    let (_, member) = facet.members()?;
    string_member(content, member).map(|name| pinned_name(facet, &name))
}

/// The one member of that name, if it is a string.
fn string_member(raw: &[u8], name: &str) -> Option<String> {
    let mut found = canon::members(raw).ok()?.flatten().filter(|m| m.key.as_deref() == Some(name));
    let value = found.next()?.value;
    canon::decode_string(&raw[value]).map(Cow::into_owned)
}

#[derive(Clone, Copy)]
struct Pattern<'a> {
    steps: &'a [&'a str],
    wild: bool,
}

impl Pattern<'_> {
    fn takes(&self, step: &str) -> bool {
        self.steps.first().is_some_and(|s| *s == step || (self.wild && *s == "*"))
    }
}

/// `raw` without what the patterns lead to. Borrowed where that is nothing.
fn without<'a>(raw: &'a [u8], patterns: &[Pattern<'_>]) -> Result<Cow<'a, [u8]>, ScanError> {
    let (open, close, parts) = match canon::kind(raw) {
        Some(Kind::Object) if !patterns.is_empty() => {
            let members = canon::members(raw)?.collect::<Result<Vec<_>, _>>()?;
            let parts = members.into_iter().map(|m| (m.key.unwrap_or_default().into_owned(), m.key_range, m.value));
            (b'{', b'}', parts.collect::<Vec<_>>())
        }
        Some(Kind::Array) if patterns.iter().any(|p| p.wild) => {
            let elements = canon::elements(raw)?.collect::<Result<Vec<_>, _>>()?;
            let parts = elements.into_iter().enumerate().map(|(n, e)| (n.to_string(), e.start..e.start, e));
            (b'[', b']', parts.collect())
        }
        _ => return Ok(Cow::Borrowed(raw)),
    };
    let mut changed = false;
    let mut out = vec![open];
    for (step, key, value) in parts {
        let here: Vec<Pattern<'_>> = patterns
            .iter()
            .filter(|p| p.takes(&step))
            .map(|p| Pattern { steps: &p.steps[1..], wild: p.wild })
            .collect();
        if here.iter().any(|p| p.steps.is_empty()) {
            changed = true;
            continue;
        }
        let inner = without(&raw[value], &here)?;
        changed |= matches!(inner, Cow::Owned(_));
        if out.len() > 1 {
            out.push(b',');
        }
        if !key.is_empty() {
            out.extend_from_slice(&raw[key]);
            out.push(b':');
        }
        out.extend_from_slice(&inner);
    }
    out.push(close);
    Ok(if changed { Cow::Owned(out) } else { Cow::Borrowed(raw) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(facet: Facet, raw: &str) -> Item {
        Item::of(facet, raw.as_bytes(), &[]).unwrap()
    }

    #[test]
    fn only_what_says_nothing_of_the_item_is_left_out() {
        let resource = r#"{"uri":"a","annotations":{"priority":1},"_meta":{"x":1}}"#;
        let tool = r#"{"name":"t","description":"d","_meta":{"x":1}}"#;
        for (facet, a, b, same) in [
            (
                Facet::Resources,
                resource,
                r#"{"size":9,"_meta":{"x":1.0},"uri":"\u0061","annotations":{"priority":1,"lastModified":"n"}}"#,
                true,
            ),
            (Facet::Resources, resource, r#"{"uri":"a","annotations":{"priority":2},"_meta":{"x":1}}"#, false),
            (
                Facet::Tools,
                tool,
                r#"{"name":"t","description":"d","_meta":{"x":1,"traceparent":"0","tracestate":1,"baggage":[],"progressToken":7}}"#,
                true,
            ),
            (Facet::Tools, tool, r#"{"name":"t","description":"d","_meta":{"x":1,"tr\u0061ceparent":"0"}}"#, true),
            (Facet::Tools, tool, r#"{"name":"t","description":"d","_meta":{"x":2}}"#, false),
            (Facet::Tools, tool, r#"{"name":"t","description":"d","_meta":{"x":1},"size":1}"#, false),
            (Facet::Tools, tool, r#"{"name":"t","description":"d","_meta":{"x":1},"traceparent":"0"}"#, false),
            (Facet::Tools, tool, r#"{"name":"t","description":"d ","_meta":{"x":1}}"#, false),
        ] {
            assert_eq!(of(facet, a).hash == of(facet, b).hash, same, "{b}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_said_also_where_it_does_not_count() {
        for (raw, ambiguous) in [
            (r#"{"name":"t","x":1e999}"#.as_bytes(), None),
            (br#"{"name":"t"}"#, None),
            (br#"{"name":"t","x":1,"x":1}"#, Some(Ambiguity::Json(Anomalies::DUPLICATE_KEY))),
            (br#"{"name":"t","_meta":{"baggage":1,"baggage":2}}"#, Some(Ambiguity::Json(Anomalies::DUPLICATE_KEY))),
            (br#"{"name":"t","_meta":{"baggage":"\ud800"}}"#, Some(Ambiguity::Json(Anomalies::LONE_SURROGATE))),
            (b"{\"name\":\"t\",\"x\":\"\xff\"}", Some(Ambiguity::Json(Anomalies::INVALID_UTF8))),
            (br#"{"name":7}"#, Some(Ambiguity::Unnamed)),
            (b"{}", Some(Ambiguity::Unnamed)),
            (b"8", Some(Ambiguity::Unnamed)),
        ] {
            let item = Item::of(Facet::Tools, raw, &[]).unwrap();
            assert_eq!(item.ambiguity, ambiguous, "{}", String::from_utf8_lossy(raw));
        }
        let deep = format!(r#"{{"name":"t","x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        assert_eq!(of(Facet::Tools, &deep).ambiguity, Some(Ambiguity::Json(Anomalies::DEPTH_EXCEEDED)));
        assert!(Item::of(Facet::Tools, b"{", &[]).is_err());
    }

    #[test]
    fn rules_leave_out_what_they_point_at_and_nothing_else() {
        for (pointer, a, b, same) in [
            ("/tools/*/title", r#"{"name":"t","title":"a"}"#, r#"{"name":"t","title":"b"}"#, true),
            ("/tools/t/title", r#"{"name":"t","title":"a"}"#, r#"{"name":"t"}"#, true),
            ("/tools/u/title", r#"{"name":"t","title":"a"}"#, r#"{"name":"t"}"#, false),
            ("/prompts/*/title", r#"{"name":"t","title":"a"}"#, r#"{"name":"t"}"#, false),
            (
                "/tools/*/p/*/title",
                r#"{"name":"t","p":{"x":{"title":1}}}"#,
                r#"{"name":"t","p":{"x":{"title":2}}}"#,
                true,
            ),
            (
                "/tools/*/p/*/title",
                r#"{"name":"t","p":[{"title":1},{"k":1}]}"#,
                r#"{"name":"t","p":[{},{"k":1}]}"#,
                true,
            ),
            (
                "/tools/*/p/*/title",
                r#"{"name":"t","p":[{"title":1},{"k":1}]}"#,
                r#"{"name":"t","p":[{},{"k":2}]}"#,
                false,
            ),
            ("/tools/*/a~1b~0", r#"{"name":"t","a/b~":1}"#, r#"{"name":"t"}"#, true),
        ] {
            let rule = [pointer.parse::<Ignored>().unwrap()];
            let hash = |raw: &str| Item::of(Facet::Tools, raw.as_bytes(), &rule).unwrap().hash;
            assert_eq!(hash(a) == hash(b), same, "{pointer} {a} {b}");
        }
        for (pointer, error) in [
            ("tools/*/title", PointerError::Start),
            ("", PointerError::Start),
            ("/tool/*/title", PointerError::Facet),
            ("/capabilities/*/x", PointerError::Facet),
            ("/tools", PointerError::Whole),
            ("/tools/*", PointerError::Whole),
            ("/tools/*/a~2", PointerError::Escape),
        ] {
            assert_eq!(pointer.parse::<Ignored>().unwrap_err(), error, "{pointer}");
        }
    }
}
