//! Reading a policy file: our own shape (docs/policy.md), or assay-ai's.

use super::{
    Policy, PolicyError, compat,
    constraints::{
        paths::PathRules,
        schema::{Schema, Wrong},
    },
    model::{Budget, Constraint, PolicyShape, Rules},
    names::{NameSet, is_glob},
    read::Reader,
};
use crate::{
    files,
    yaml::{Kind, Node, Place, Source},
};
use std::{collections::HashMap, path::Path, time::Duration};

/// Bytes of a policy file.
pub const MAX_POLICY: u64 = 1 << 20;
/// Regular expressions and schemas that are compiled at once; of a longer policy the rest is compiled when it is
/// needed.
const EAGER: usize = 300;

/// Between two reads of a file that may be just being written, and how many of them there are at most.
const AGAIN: Duration = Duration::from_millis(100);
const READS: usize = 50;
/// A file that has not changed for this long is not being written.
const QUIET: Duration = Duration::from_secs(2);

const TOP: [&str; 6] = ["version", "default", "allowlist", "denylist", "constraints", "budget"];

impl Policy {
    /// Reads a file: regular, of at most 1 MiB, in the native shape or assay-ai's.
    ///
    /// # Errors
    /// [`PolicyError`], with line, column and caret where there is a place to point at.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        Self::parse(&Self::read(path)?, &path.to_string_lossy())
    }

    /// As [`load`](Self::load), of a file that may be just being written: what two reads in a row find is taken, and
    /// nothing when it keeps changing.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_whole(path: &Path) -> Result<Self, PolicyError> {
        let bytes = settled(|| Self::read(path), || std::thread::sleep(AGAIN), READS)?;
        let changing = || PolicyError::file(path, "it is being written").hint("write a new file and rename it");
        Self::parse(&bytes.ok_or_else(changing)?, &path.to_string_lossy())
    }

    /// As [`load_whole`](Self::load_whole), without a second read of a file that has not changed lately.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_if_quiet(path: &Path) -> Result<Self, PolicyError> {
        let modified = std::fs::metadata(path).and_then(|m| m.modified()).ok();
        // A time in the future is from another clock and says nothing.
        let is_quiet = modified.and_then(|t| t.elapsed().ok()).is_some_and(|age| age > QUIET);
        if is_quiet { Self::load(path) } else { Self::load_whole(path) }
    }

    /// The bytes of a file that could be a policy: regular, of at most 1 MiB.
    ///
    /// # Errors
    /// [`PolicyError`], of the whole file.
    pub fn read(path: &Path) -> Result<Vec<u8>, PolicyError> {
        let error = |what: String| PolicyError::file(path, what);
        let bytes = files::named(path).and_then(|file| files::read_all(file, MAX_POLICY));
        bytes.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                error("there is no such file".to_owned()).hint("to write a first one: `assay policy init`")
            }
            _ if path.is_dir() => error("it is a directory".to_owned()).hint("name the policy file in it"),
            _ if files::is_refusal(&e) && !path.is_file() => error("it is not a regular file".to_owned()),
            _ => error(e.to_string()),
        })
    }

    /// Reads a policy from memory; `name` takes the place of the path in errors.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn parse(text: &[u8], name: &str) -> Result<Self, PolicyError> {
        if text.len() as u64 > MAX_POLICY {
            return Err(too_long(name));
        }
        let source = Source::of(name, text)?;
        let start = Place { line: 1, column: 1, width: 1 };
        let empty = || source.error(start, "the file is empty").hint("to write a first one: `assay policy init`");
        let root = source.read()?.ok_or_else(empty)?;
        let mut reader = Reader { source, notes: Vec::new(), eager: EAGER };
        let top = reader.mapping(&root, "the file")?;
        let has = |key: &str| top.iter().any(|(k, _)| k.text() == Some(key));
        let rules =
            if compat::KEYS.iter().any(|key| has(key)) && !has("default") && !has("allowlist") && !has("denylist") {
                compat::rules(&mut reader, top)?
            } else {
                native(&mut reader, &root, top)?
            };
        let notes = reader.notes;
        Ok(Self {
            hash: format!("sha256:{}", crate::canon::sha256_hex(text)),
            source: text.to_vec(),
            name: name.to_owned(),
            notes,
            rules,
        })
    }
}

impl Policy {
    /// The lines, from 1, of the rules with these names (see [`Decision::rule`](super::Decision::rule)); rules that
    /// have no line are left out.
    #[must_use]
    pub fn lines<'a>(&self, rules: impl IntoIterator<Item = &'a str>) -> HashMap<&'a str, usize> {
        let text = String::from_utf8_lossy(&self.source);
        let source = Source { name: &self.name, text: text.strip_prefix('\u{feff}').unwrap_or(&text) };
        let Ok(Some(root)) = source.read() else { return HashMap::new() };
        let place = |rule: &'a str| Some((rule, root.place_of(&self.path(rule)?)?.line));
        rules.into_iter().filter_map(place).collect()
    }

    /// The way to a rule from the top of the file.
    fn path<'a>(&'a self, rule: &'a str) -> Option<Vec<&'a str>> {
        let words = self.rules.words();
        for list in [words.deny, words.allow] {
            if let Some(rest) = rule.strip_prefix(list).and_then(|rest| rest.strip_prefix('[')) {
                return Some(list.split('.').chain(rest.split(']').take(1)).collect());
            }
        }
        let Some(rest) = rule.strip_prefix(words.constraints).and_then(|rest| rest.strip_prefix('.')) else {
            return Some(rule.split('.').collect());
        };
        // Names of tools have dots in them, too.
        let keys = self.rules.constraints.iter().map(|c| c.key.as_str());
        let (key, below) = keys
            .filter_map(|key| {
                let below = rest.strip_prefix(key)?;
                if below.is_empty() { Some((key, below)) } else { Some((key, below.strip_prefix('.')?)) }
            })
            .max_by_key(|(key, _)| key.len())?;
        let below = below.split(['[', ']']).filter(|part| !part.is_empty());
        Some(words.constraints.split('.').chain([key]).chain(below).collect())
    }
}

/// What two reads in a row find; `None` if no two consecutive reads are alike.
fn settled<T: PartialEq, E>(
    mut read: impl FnMut() -> Result<T, E>,
    wait: impl Fn(),
    reads: usize,
) -> Result<Option<T>, E> {
    let mut before = read()?;
    for _ in 1..reads {
        wait();
        let now = read()?;
        if now == before {
            return Ok(Some(now));
        }
        before = now;
    }
    Ok(None)
}

#[cfg(test)]
#[test]
fn a_file_is_taken_when_two_reads_in_a_row_agree() {
    let reads = |all: &[&'static str]| {
        let mut all = all.iter().copied();
        settled(|| all.next().ok_or("read too often"), || {}, 4)
    };
    assert_eq!(reads(&["a", "a"]), Ok(Some("a")));
    assert_eq!(reads(&["", "a", "ab", "ab"]), Ok(Some("ab")));
    assert_eq!(reads(&["a", "b", "a", "b"]), Ok(None));
    assert_eq!(reads(&["a"]), Err("read too often"));
}

fn too_long(name: &str) -> PolicyError {
    PolicyError::file(name, format!("it is longer than {} MiB", MAX_POLICY >> 20))
}

fn native(reader: &mut Reader<'_>, root: &Node, top: &[(Node, Node)]) -> Result<Rules, PolicyError> {
    let mut version = false;
    let mut default = None;
    let (mut allow, mut deny) = (NameSet::default(), NameSet::default());
    let mut constraints = (Vec::new(), NameSet::default());
    let mut budget = Budget::default();
    for (key, value) in top {
        match key.text().unwrap_or_default() {
            "version" => {
                reader.version(value)?;
                reader.string(value, "version")?;
                version = true;
            }
            "default" => default = Some(reader.default(value, "default")?),
            "allowlist" => allow = reader.names(value, "allowlist", NameSet::add)?,
            "denylist" => deny = reader.names(value, "denylist", NameSet::add)?,
            "constraints" => constraints = constraints_of(reader, value)?,
            "budget" => budget = reader.budget(value)?,
            _ => return Err(reader.unknown(key, &TOP)),
        }
    }
    let place = Place { width: 1, ..root.place };
    if !version {
        return Err(reader.error(place, "`version` is missing").hint("write version: \"1\""));
    }
    let Some(default) = default else {
        return Err(reader.error(place, "`default` is missing").hint("write default: deny, or default: allow"));
    };
    let (constraints, constrained) = constraints;
    Ok(Rules { default, allow, deny, constraints, constrained, budget, shape: PolicyShape::Native })
}

fn constraints_of(reader: &mut Reader<'_>, node: &Node) -> Result<(Vec<Constraint>, NameSet), PolicyError> {
    let mut constraints = Vec::new();
    let mut names = NameSet::default();
    for (key, value) in reader.mapping(node, "constraints")? {
        let name = reader.name(key, "constraints")?;
        names.add(name).map_err(|e| reader.error(key.place, format!("bad glob: {e}")))?;
        reader.doubt(key.place, name);
        constraints.push(constraint(reader, name, key.place, value)?);
    }
    if let Err(n) = names.compile_if_small() {
        return Err(reader.error(node.place, format!("the globs from `{}` on are too big", names.text(n))));
    }
    Ok((constraints, names))
}

fn constraint(reader: &mut Reader<'_>, name: &str, place: Place, node: &Node) -> Result<Constraint, PolicyError> {
    let mut c = Constraint::new(name.to_owned(), place.line);
    let pairs = reader.mapping(node, name)?;
    if pairs.is_empty() {
        return Err(reader.error(place, format!("`{name}` has no constraints")));
    }
    for (key, value) in pairs {
        match key.text().unwrap_or_default() {
            "deny_private_hosts" => c.hosts = reader.flag(value, "deny_private_hosts")?,
            "allowed_paths" => c.paths = Some(paths(reader, value)?),
            "deny_patterns" => c.patterns = Some(reader.patterns(value, false)?),
            "max_calls" => c.max_calls = Some(reader.count(value, "max_calls")?),
            "arguments" => c.schema = Some(schema(reader, value)?),
            _ => return Err(reader.unknown(key, &Constraint::KEYS)),
        }
    }
    if is_glob(name) && c.max_calls.is_some() {
        reader.note(place, format!("max_calls of `{name}` counts the calls of all matching tools together"));
    }
    Ok(c)
}

fn paths(reader: &Reader<'_>, node: &Node) -> Result<PathRules, PolicyError> {
    let mut rules = PathRules::default();
    let items = reader.sequence(node, "allowed_paths")?;
    for item in items {
        let text = reader.string(item, "allowed_paths")?;
        rules.add(text).map_err(|e| reader.error(item.place, format!("bad path pattern: {e}")))?;
    }
    if !items.is_empty() && !rules.allows_any() {
        return Err(reader
            .error(node.place, "`allowed_paths` only excludes, so nothing would be allowed")
            .hint("first list what is allowed, such as \"/**\""));
    }
    rules.compile().map_err(|_| reader.error(node.place, "these patterns are too big together"))?;
    Ok(rules)
}

fn schema(reader: &mut Reader<'_>, node: &Node) -> Result<Schema, PolicyError> {
    if !matches!(node.kind, Kind::Mapping(_)) {
        return Err(reader.expected(node, "arguments", "a JSON Schema"));
    }
    let wrong = |reader: &Reader<'_>, wrong: Wrong| schema_error(&reader.source, node, &wrong);
    let schema = Schema::new(node.to_json()).map_err(|e| wrong(reader, e))?;
    if let Some(pointer) = schema.format() {
        reader.note(node.at(pointer).place, "`format` is an annotation and is not checked: use `pattern`");
    }
    if reader.eager > 0 {
        reader.eager -= 1;
        schema.compile().map_err(|e| wrong(reader, e))?;
    }
    Ok(schema)
}

/// What is wrong with a schema, at its keyword.
fn schema_error(source: &Source<'_>, node: &Node, wrong: &Wrong) -> PolicyError {
    let parts: Vec<String> =
        wrong.pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let keyword = node.place_of(&parts).filter(|_| wrong.hint.is_some() || wrong.what.starts_with('`'));
    let place = keyword.unwrap_or_else(|| node.at(&wrong.pointer).place);
    let error = source.error(place, format!("bad JSON Schema: {}", wrong.what));
    match &wrong.hint {
        Some(hint) => error.hint(hint.as_str()),
        None => error,
    }
}
