//! What is wrong with a JSON Schema that its own rules let pass: a keyword that is unknown, or does nothing where it
//! is, would switch a constraint off in silence; a schema that refers to itself on the spot would never be done.

use crate::yaml::distance;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Subschemas of one schema.
pub const MAX_SCHEMAS: usize = 10_000;
/// Places that are referred to in one schema.
pub const MAX_TARGETS: usize = 256;
/// Subschemas that one value can be judged by, one inside of the other.
pub const MAX_CHAIN: usize = 64;
/// Subschemas that one value can be judged by, all together.
pub const MAX_WIDTH: u64 = 10_000;

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// JSON pointer of the keyword.
    pub pointer: String,
    /// What is wrong, as text for people.
    pub what: String,
    /// What to do about it, as text for people.
    pub hint: Option<String>,
}

/// What is below a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    Nothing,
    /// A schema for a part of the value.
    Part,
    /// Schemas by name, likewise.
    Parts,
    /// A list of schemas, likewise.
    PartList,
    /// A schema or a list.
    PartOrList,
    /// A schema for the same value.
    Same,
    SameList,
    /// Schemas by name for the same value; lists of names are left out.
    Sames,
    /// Schemas that only references use.
    Definitions,
}

/// Drafts by number; 8 is 2019-09 and 9 is 2020-12.
const DRAFTS: [(u8, &str); 5] = [
    (4, "draft-04/schema"),
    (6, "draft-06/schema"),
    (7, "draft-07/schema"),
    (8, "2019-09/schema"),
    (9, "2020-12/schema"),
];

/// Keyword, first and last draft that has it, what is below, and the type of value that it judges (`""`: any).
type Keyword = (&'static str, u8, u8, Below, &'static str);
#[rustfmt::skip]
const KEYWORDS: [Keyword; 63] = [
    ("$schema", 4, 9, Below::Nothing, ""), ("id", 4, 4, Below::Nothing, ""), ("$id", 6, 9, Below::Nothing, ""),
    ("$ref", 4, 9, Below::Nothing, ""), ("$comment", 7, 9, Below::Nothing, ""), ("title", 4, 9, Below::Nothing, ""),
    ("description", 4, 9, Below::Nothing, ""), ("default", 4, 9, Below::Nothing, ""), ("examples", 6, 9, Below::Nothing, ""),
    ("readOnly", 7, 9, Below::Nothing, ""), ("writeOnly", 7, 9, Below::Nothing, ""), ("deprecated", 8, 9, Below::Nothing, ""),
    ("$anchor", 8, 9, Below::Nothing, ""), ("$dynamicRef", 9, 9, Below::Nothing, ""), ("$dynamicAnchor", 9, 9, Below::Nothing, ""),
    ("$recursiveRef", 8, 8, Below::Nothing, ""), ("$recursiveAnchor", 8, 8, Below::Nothing, ""), ("$vocabulary", 8, 9, Below::Nothing, ""),
    ("definitions", 4, 9, Below::Definitions, ""), ("$defs", 8, 9, Below::Definitions, ""),
    ("type", 4, 9, Below::Nothing, ""), ("enum", 4, 9, Below::Nothing, ""), ("const", 6, 9, Below::Nothing, ""),
    ("format", 4, 9, Below::Nothing, ""), ("contentEncoding", 7, 9, Below::Nothing, "string"),
    ("contentMediaType", 7, 9, Below::Nothing, "string"), ("contentSchema", 8, 9, Below::Part, "string"),
    ("multipleOf", 4, 9, Below::Nothing, "number"), ("maximum", 4, 9, Below::Nothing, "number"), ("minimum", 4, 9, Below::Nothing, "number"),
    ("exclusiveMaximum", 4, 9, Below::Nothing, "number"), ("exclusiveMinimum", 4, 9, Below::Nothing, "number"),
    ("maxLength", 4, 9, Below::Nothing, "string"), ("minLength", 4, 9, Below::Nothing, "string"), ("pattern", 4, 9, Below::Nothing, "string"),
    ("maxItems", 4, 9, Below::Nothing, "array"), ("minItems", 4, 9, Below::Nothing, "array"), ("uniqueItems", 4, 9, Below::Nothing, "array"),
    ("items", 4, 9, Below::PartOrList, "array"), ("prefixItems", 9, 9, Below::PartList, "array"),
    ("additionalItems", 4, 8, Below::Part, "array"), ("unevaluatedItems", 8, 9, Below::Part, "array"),
    ("contains", 6, 9, Below::Part, "array"), ("maxContains", 8, 9, Below::Nothing, "array"), ("minContains", 8, 9, Below::Nothing, "array"),
    ("maxProperties", 4, 9, Below::Nothing, "object"), ("minProperties", 4, 9, Below::Nothing, "object"), ("required", 4, 9, Below::Nothing, "object"),
    ("properties", 4, 9, Below::Parts, "object"), ("patternProperties", 4, 9, Below::Parts, "object"),
    ("additionalProperties", 4, 9, Below::Part, "object"), ("unevaluatedProperties", 8, 9, Below::Part, "object"),
    ("propertyNames", 6, 9, Below::Part, "object"), ("dependencies", 4, 7, Below::Sames, "object"),
    ("dependentRequired", 8, 9, Below::Nothing, "object"), ("dependentSchemas", 8, 9, Below::Sames, "object"),
    ("allOf", 4, 9, Below::SameList, ""), ("anyOf", 4, 9, Below::SameList, ""), ("oneOf", 4, 9, Below::SameList, ""),
    ("not", 4, 9, Below::Same, ""), ("if", 7, 9, Below::Same, ""), ("then", 7, 9, Below::Same, ""), ("else", 7, 9, Below::Same, ""),
];
/// Formats of all drafts.
const FORMATS: [&str; 22] = [
    "date",
    "time",
    "date-time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "host-name",
    "ipv4",
    "ip-address",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
    "uuid",
    "color",
];
/// What may be beside a `$ref` of the drafts that ignore everything beside one.
const BESIDE_REF: [&str; 10] = [
    "$ref",
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "definitions",
    "readOnly",
    "writeOnly",
    "$schema",
];
/// Keywords that do nothing without another one beside them.
const NEEDS: [(&str, &str); 4] =
    [("then", "if"), ("else", "if"), ("maxContains", "contains"), ("minContains", "contains")];

/// What was found in a schema.
#[derive(Debug, Default)]
pub struct Seen {
    /// Most `patternProperties` in one place.
    pub patterns: usize,
    /// Regular expressions of `pattern`, with the JSON pointers of their keywords.
    pub texts: Vec<(String, String)>,
    /// Those that names are matched against, likewise.
    pub names: Vec<(String, String)>,
    /// Where `format` is first.
    pub format: Option<String>,
}

/// Checks every keyword of a schema that is otherwise valid.
///
/// # Errors
/// The first thing that is wrong.
pub fn lint(schema: &Value) -> Result<Seen, Wrong> {
    let mut walk = Walk::new(draft(schema)?);
    walk.schema(schema, "")?;
    walk.connect(schema)?;
    walk.bounded()?;
    Ok(walk.seen)
}

fn wrong(pointer: &str, what: impl Into<String>, hint: Option<String>) -> Wrong {
    Wrong { pointer: pointer.to_owned(), what: what.into(), hint }
}

fn draft(schema: &Value) -> Result<u8, Wrong> {
    let Some(uri) = schema.get("$schema") else { return Ok(9) };
    let text = uri.as_str().unwrap_or_default().trim_end_matches('#');
    let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    let text = text.strip_prefix("json-schema.org/").map(|t| t.strip_prefix("draft/").unwrap_or(t));
    let known = DRAFTS.iter().find(|(_, name)| text == Some(name)).map(|(n, _)| *n);
    known.ok_or_else(|| {
        let hint =
            "https://json-schema.org/draft/2020-12/schema, or the URI of 2019-09, draft-07, draft-06 or draft-04";
        wrong("/$schema", "this version of JSON Schema is unknown", Some(hint.to_owned()))
    })
}

/// A subschema that was seen.
#[derive(Default)]
struct Place {
    pointer: String,
    /// What the same value is judged by.
    same: Vec<usize>,
}

struct Walk {
    draft: u8,
    places: Vec<Place>,
    by_pointer: HashMap<String, usize>,
    /// By name: `$anchor`, `$dynamicAnchor`, and `$id` of older drafts that begin with `#`.
    anchors: HashMap<String, Vec<usize>>,
    /// From where, by which keyword, to what.
    references: Vec<(usize, &'static str, String)>,
    seen: Seen,
}

impl Walk {
    fn new(draft: u8) -> Self {
        let (by_pointer, anchors) = (HashMap::new(), HashMap::new());
        Self { draft, places: Vec::new(), by_pointer, anchors, references: Vec::new(), seen: Seen::default() }
    }

    fn schema(&mut self, schema: &Value, pointer: &str) -> Result<usize, Wrong> {
        if self.places.len() == MAX_SCHEMAS {
            return Err(wrong(pointer, format!("more than {MAX_SCHEMAS} schemas in one"), None));
        }
        let here = self.places.len();
        self.by_pointer.insert(pointer.to_owned(), here);
        self.places.push(Place { pointer: pointer.to_owned(), same: Vec::new() });
        let Value::Object(members) = schema else { return Ok(here) };
        for (name, value) in members.iter().filter(|(name, _)| !name.starts_with("x-")) {
            let at = format!("{pointer}/{}", escaped(name));
            let Some(keyword) = KEYWORDS.iter().find(|k| k.0 == name && (k.1..=k.2).contains(&self.draft)) else {
                return Err(self.unknown(name, &at));
            };
            self.beside(members, keyword, &at)?;
            self.named(here, name, value, &at)?;
            self.below(here, keyword.3, value, &at)?;
        }
        Ok(here)
    }

    fn unknown(&self, name: &str, at: &str) -> Wrong {
        let what = format!("unknown keyword `{name}`");
        let hint = match (name, KEYWORDS.iter().find(|k| k.0 == name)) {
            ("additionalItems", _) => "in 2020-12 it is `items`, next to `prefixItems`".to_owned(),
            ("dependencies", _) => "in this draft it is `dependentRequired` or `dependentSchemas`".to_owned(),
            ("nullable", _) => "write type: [string, \"null\"]".to_owned(),
            (_, Some(_)) => "another version of JSON Schema has it: name the version with `$schema`".to_owned(),
            _ => {
                let known = KEYWORDS.iter().filter(|k| (k.1..=k.2).contains(&self.draft));
                match known.map(|k| (distance(name, k.0), k.0)).min() {
                    Some((distance, near)) if distance <= 3 && distance < near.len() => {
                        format!("did you mean `{near}`?")
                    }
                    _ => "keywords that begin with `x-` are yours to use".to_owned(),
                }
            }
        };
        wrong(at, what, Some(hint))
    }

    /// Keywords that do nothing because of what is, or is not, beside them.
    fn beside(&mut self, members: &Map<String, Value>, keyword: &Keyword, at: &str) -> Result<(), Wrong> {
        let name = keyword.0;
        if self.draft < 8 && members.contains_key("$ref") && !BESIDE_REF.contains(&name) {
            let what = format!("`{name}` has no effect next to `$ref` in this version of JSON Schema");
            return Err(wrong(at, what, Some("put both into an `allOf`".to_owned())));
        }
        if let Some((_, other)) = NEEDS.iter().find(|(n, other)| *n == name && !members.contains_key(*other)) {
            return Err(wrong(at, format!("`{name}` has no effect without `{other}` next to it"), None));
        }
        if name == "additionalItems" && !members.get("items").is_some_and(Value::is_array) {
            return Err(wrong(at, "`additionalItems` has no effect without a list of `items` next to it", None));
        }
        let types: Vec<&str> = match members.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let judges = |of: &&str| *of == keyword.4 || (*of == "integer" && keyword.4 == "number");
        if !keyword.4.is_empty() && !types.is_empty() && !types.iter().any(judges) {
            let what = format!("`{name}` has no effect if the type is {}", types.join(" or "));
            return Err(wrong(at, what, Some(format!("it is for type: {}", keyword.4))));
        }
        Ok(())
    }

    /// Keywords whose value names something.
    fn named(&mut self, here: usize, name: &str, value: &Value, at: &str) -> Result<(), Wrong> {
        let text = value.as_str().unwrap_or_default();
        match name {
            "$schema" if here != 0 => return Err(wrong(at, "`$schema` is only allowed at the top of a schema", None)),
            "format" if !FORMATS.contains(&text) => {
                let near = FORMATS.iter().map(|f| (distance(text, f), f)).min();
                let hint = near.filter(|(d, _)| *d <= 3).map(|(_, f)| format!("did you mean `{f}`?"));
                return Err(wrong(at, format!("unknown format `{text}`"), hint));
            }
            "format" => self.seen.format = self.seen.format.take().or_else(|| Some(at.to_owned())),
            "patternProperties" => {
                let patterns = || value.as_object().into_iter().flat_map(Map::keys);
                self.seen.patterns = self.seen.patterns.max(patterns().count());
                self.seen.names.extend(patterns().map(|text| (format!("{at}/{}", escaped(text)), text.clone())));
            }
            "pattern" => self.seen.texts.push((at.to_owned(), text.to_owned())),
            "id" | "$id" if self.draft < 8 && text.starts_with('#') => {
                self.anchors.entry(text[1..].to_owned()).or_default().push(here);
            }
            "id" | "$id" if here != 0 => {
                let hint = "put it under `$defs` and refer to it as #/$defs/NAME";
                return Err(wrong(
                    at,
                    format!("`{name}` is only allowed at the top of a schema"),
                    Some(hint.to_owned()),
                ));
            }
            "$anchor" | "$dynamicAnchor" => self.anchors.entry(text.to_owned()).or_default().push(here),
            "$ref" => self.references.push((here, "$ref", text.to_owned())),
            "$dynamicRef" => self.references.push((here, "$dynamicRef", text.to_owned())),
            "$recursiveRef" => self.references.push((here, "$recursiveRef", text.to_owned())),
            _ => {}
        }
        Ok(())
    }

    fn below(&mut self, here: usize, below: Below, value: &Value, at: &str) -> Result<(), Wrong> {
        let same = matches!(below, Below::Same | Below::SameList | Below::Sames);
        let is_one = match below {
            Below::Nothing => return Ok(()),
            Below::Part | Below::Same => true,
            Below::PartOrList if self.draft == 9 && value.is_array() => {
                return Err(wrong(at, "`items` is a list", Some("in 2020-12 that is `prefixItems`".to_owned())));
            }
            Below::PartOrList => !value.is_array(),
            _ => false,
        };
        let mut found = Vec::new();
        match value {
            _ if is_one => found.push(self.schema(value, at)?),
            Value::Array(all) => {
                for (n, one) in all.iter().enumerate() {
                    found.push(self.schema(one, &format!("{at}/{n}"))?);
                }
            }
            Value::Object(all) => {
                for (name, one) in all.iter().filter(|(_, one)| !one.is_array()) {
                    found.push(self.schema(one, &format!("{at}/{}", escaped(name)))?);
                }
            }
            _ => {}
        }
        if same {
            self.places[here].same.extend(found);
        }
        Ok(())
    }

    /// Follows the references (`$ref`) between the parts of the schema.
    fn connect(&mut self, root: &Value) -> Result<(), Wrong> {
        let id = root.get("$id").or_else(|| root.get("id")).and_then(Value::as_str).unwrap_or_default();
        let id = id.split('#').next().unwrap_or_default().to_owned();
        let mut all: Vec<usize> = Vec::new();
        for (from, keyword, to) in std::mem::take(&mut self.references) {
            let at = format!("{}/{keyword}", self.places[from].pointer);
            let local = to.strip_prefix('#').or_else(|| {
                let rest = to.strip_prefix(&id).filter(|_| !id.is_empty())?;
                if rest.is_empty() { Some(rest) } else { rest.strip_prefix('#') }
            });
            let Some(fragment) = local else {
                let what = format!("`{keyword}` refers to `{to}`, outside this schema");
                return Err(wrong(&at, what, Some("nothing is fetched: it must begin with #".to_owned())));
            };
            let fragment = percent_decode_str(fragment).decode_utf8_lossy();
            let mut targets = if fragment.is_empty() || fragment.starts_with('/') {
                self.by_pointer.get(fragment.as_ref()).copied().into_iter().collect()
            } else {
                self.anchors.get(fragment.as_ref()).cloned().unwrap_or_default()
            };
            if targets.is_empty() {
                let what = format!("`{keyword}` refers to `{to}`, which is not a schema");
                let hint = "refer to a schema inside this one, such as #/$defs/NAME";
                return Err(wrong(&at, what, Some(hint.to_owned())));
            }
            all.extend(&targets);
            self.places[from].same.append(&mut targets);
        }
        all.sort_unstable();
        all.dedup();
        if all.len() > MAX_TARGETS {
            return Err(wrong("", format!("more than {MAX_TARGETS} schemas are referred to"), None));
        }
        Ok(())
    }

    /// Checks that judging any value comes to an end.
    fn bounded(&self) -> Result<(), Wrong> {
        #[derive(Clone, Copy)]
        enum State {
            New,
            Open,
            Done(usize, u64),
        }
        let mut states = vec![State::New; self.places.len()];
        for start in 0..self.places.len() {
            let mut todo = vec![(start, false)];
            while let Some((n, left)) = todo.pop() {
                let place = &self.places[n];
                if !left {
                    match states[n] {
                        State::Done(..) => continue,
                        State::Open => {
                            let what =
                                "this schema refers to itself without going into the value, so judging would never end";
                            return Err(wrong(&place.pointer, what, None));
                        }
                        State::New => {}
                    }
                    states[n] = State::Open;
                    todo.push((n, true));
                    todo.extend(
                        place.same.iter().filter(|m| !matches!(states[**m], State::Done(..))).map(|m| (*m, false)),
                    );
                    continue;
                }
                let (mut chain, mut width) = (1, 1u64);
                for m in &place.same {
                    if let State::Done(c, w) = states[*m] {
                        chain = chain.max(c + 1);
                        width = width.saturating_add(w);
                    }
                }
                if chain > MAX_CHAIN || width > MAX_WIDTH {
                    let what = "too many schemas judge one value here";
                    let hint = format!("at most {MAX_CHAIN} nested and {MAX_WIDTH} together");
                    return Err(wrong(&place.pointer, what, Some(hint)));
                }
                states[n] = State::Done(chain, width);
            }
        }
        Ok(())
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
