//! Policies of assay-ai's own shape (version 1.23): `tools: {default, allow, deny, constraints}`, `mode`, `budget`, and
//! settings of its proxy.

use super::{
    PolicyError,
    model::{Budget, Constraint, Default, PolicyShape, Rules},
    names::NameSet,
    read::Reader,
};
use crate::yaml::{Kind, Node, Place, Scalar};

/// Top-level keys that only this shape has.
pub const KEYS: [&str; 7] = ["tools", "mode", "server_id", "store_args", "store_results", "auto_pack", "audit_dir"];

const TOP: [&str; 9] =
    ["version", "server_id", "mode", "store_args", "store_results", "auto_pack", "audit_dir", "tools", "budget"];

/// Reads the file's top level.
///
/// # Errors
/// What is not understood, at its place; assay-ai would ignore it.
pub fn rules(reader: &mut Reader<'_>, top: &[(Node, Node)]) -> Result<Rules, PolicyError> {
    let mut rules = Rules {
        default: Default::Allow,
        allow: NameSet::default(),
        deny: NameSet::default(),
        constraints: Vec::new(),
        constrained: NameSet::default(),
        budget: Budget::default(),
        shape: PolicyShape::AssayAi,
    };
    let mut has_tools = false;
    for (key, value) in top {
        let name = key.text().unwrap_or_default();
        match name {
            "version" => reader.version(value)?,
            "mode" => mode(reader, key.place, value)?,
            "tools" => {
                has_tools = true;
                tools(reader, value, &mut rules)?;
            }
            "budget" if is_null(value) => {}
            "budget" => rules.budget = reader.budget(&without_nulls(value))?,
            "server_id" | "audit_dir" => {
                reader.string(value, name)?;
                let flag = name.replace('_', "-");
                reader.note(key.place, format!("{name} is not a rule and has no effect here: use --{flag}"));
            }
            "store_args" | "store_results" | "auto_pack" => {
                reader.flag(value, name)?;
                let flag = name.replace('_', "-");
                reader.note(key.place, format!("{name} is not a rule and has no effect here: use --{flag}"));
            }
            _ => return Err(reader.unknown(key, &TOP)),
        }
    }
    let start = top.first().map_or(Place { line: 1, column: 1, width: 1 }, |(key, _)| key.place);
    if !has_tools {
        reader.note(start, "there is no `tools`: every tool is allowed, as in assay-ai");
    }
    reader.notes.insert(0, super::Note {
        line: Some(start.line),
        text: "read as assay-ai's shape: tools.deny is denylist, tools.allow is allowlist, tools.default is default; a call \
               gets the same verdict, but perhaps another reason (constraints come before the allowlist)"
            .to_owned(),
    });
    Ok(rules)
}

fn mode(reader: &mut Reader<'_>, place: Place, value: &Node) -> Result<(), PolicyError> {
    let profile = match value.scalar() {
        Some(Scalar::Text("audit")) => "audit",
        Some(Scalar::Text("enforce")) => "guard",
        _ => return Err(reader.error(value.place, "`mode` is neither audit nor enforce")),
    };
    reader.note(
        place,
        format!("mode has no effect here: the proxy's --profile decides; this mode is --profile {profile}"),
    );
    Ok(())
}

fn tools(reader: &mut Reader<'_>, node: &Node, rules: &mut Rules) -> Result<(), PolicyError> {
    if is_null(node) {
        return Ok(());
    }
    for (key, value) in reader.mapping(node, "tools")? {
        let name = key.text().unwrap_or_default();
        match name {
            "default" => rules.default = reader.default(value, "tools.default")?,
            "allow" | "deny" | "constraints" if is_null(value) => {}
            "allow" => rules.allow = reader.names(value, "tools.allow", add)?,
            "deny" => rules.deny = reader.names(value, "tools.deny", add)?,
            "constraints" => constraints(reader, value, rules)?,
            _ => return Err(reader.unknown(key, &["default", "allow", "deny", "constraints"])),
        }
    }
    if rules.default == Default::Allow && !rules.allow.texts().is_empty() {
        reader.note(node.place, "tools.default is allow: tools.allow restricts nothing");
    }
    Ok(())
}

fn constraints(reader: &mut Reader<'_>, node: &Node, rules: &mut Rules) -> Result<(), PolicyError> {
    for (key, value) in reader.mapping(node, "tools.constraints")? {
        let name = reader.name(key, "tools.constraints")?;
        reader.doubt(key.place, name);
        if name.contains(['*', '?', '[']) {
            reader.note(key.place, format!("`{name}` is taken as the exact name of a tool, as in assay-ai"));
        }
        let mut c = Constraint::new(name.to_owned(), key.place.line);
        for (key, value) in reader.mapping(value, name)? {
            match key.text().unwrap_or_default() {
                "max_calls" | "deny_patterns" if is_null(value) => {}
                "max_calls" => c.max_calls = Some(reader.count(value, "max_calls")?),
                "deny_patterns" => {
                    c.patterns = Some(reader.patterns(value, true)?);
                    reader.note(
                        key.place,
                        "deny_patterns ignore case, as in assay-ai, and are matched against each string in the arguments \
                         by itself (assay-ai matches all arguments, written as one Python value)",
                    );
                }
                _ => return Err(reader.unknown(key, &["max_calls", "deny_patterns"])),
            }
        }
        rules.constrained.add_exact(name);
        rules.constraints.push(c);
    }
    Ok(())
}

fn is_null(node: &Node) -> bool {
    node.scalar() == Some(Scalar::Null)
}

/// assay-ai takes an empty value of a limit as no limit.
fn without_nulls(node: &Node) -> Node {
    let mut node = node.clone();
    if let Kind::Mapping(pairs) = &mut node.kind {
        pairs.retain(|(_, value)| !is_null(value));
    }
    node
}

/// Adds an entry that Python's `fnmatch` understands: `*`, `?`, `[…]`, no escapes and no alternatives.
fn add(set: &mut NameSet, text: &str) -> Result<(), String> {
    if !text.contains(['*', '?', '[']) {
        set.add_exact(text);
        return Ok(());
    }
    let mut glob = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' | '{' | '}' | ']' => glob.extend(['\\', c]),
            '[' => {
                // The first character may be `]` itself.
                let skip = usize::from(rest.starts_with('!'));
                let first = rest[skip..].chars().next().map_or(0, char::len_utf8);
                match rest.get(skip + first..).and_then(|r| r.find(']')) {
                    None => glob.push_str("\\["),
                    Some(end) => {
                        let end = skip + first + end + 1;
                        glob.push('[');
                        glob.push_str(&rest[..end]);
                        rest = &rest[end..];
                    }
                }
            }
            c => glob.push(c),
        }
    }
    set.add_glob(text, &glob)
}
