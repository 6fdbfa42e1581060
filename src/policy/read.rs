//! Typed reading of YAML nodes: what is not expected is an error at its place.

use super::{
    Note, PolicyError,
    constraints::patterns::Patterns,
    model::{Budget, Default},
    names::{MAX_NAME, NameSet},
};
use crate::{
    model::version,
    yaml::{Node, Place, Scalar, Source},
};
use std::{ops::Deref, time::Duration};

/// Version of a policy file: `N`, or `N.M` for a later minor one.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const POLICY_VERSION: &str = "1";

/// A file being read, and the notes on it.
pub struct Reader<'a> {
    pub source: Source<'a>,
    pub notes: Vec<Note>,
    /// Regular expressions and schemas are compiled at once while there are few of them.
    pub eager: usize,
}

impl<'a> Deref for Reader<'a> {
    type Target = Source<'a>;

    fn deref(&self) -> &Source<'a> {
        &self.source
    }
}

impl Reader<'_> {
    pub fn note(&mut self, place: Place, text: impl Into<String>) {
        self.notes.push(Note { line: Some(place.line), text: text.into() });
    }

    /// Refuses each version but the one that is read.
    pub fn version(&self, value: &Node) -> Result<(), PolicyError> {
        let text = value.text();
        if text == Some(POLICY_VERSION) {
            return Ok(());
        }
        Err(match text.and_then(|text| version::newer_text("policy", text, POLICY_VERSION)) {
            Some(e) => self.error(value.place, e.to_string()),
            None => self.error(value.place, "this version is unknown").hint("write version: \"1\""),
        })
    }

    pub fn default(&self, node: &Node, key: &str) -> Result<Default, PolicyError> {
        match node.scalar() {
            Some(Scalar::Text("deny")) => Ok(Default::Deny),
            Some(Scalar::Text("allow")) => Ok(Default::Allow),
            Some(Scalar::Text(other)) => {
                Err(self.error(node.place, format!("`{key}` is `{other}`, expected deny or allow")))
            }
            _ => Err(self.expected(node, key, "deny or allow")),
        }
    }

    /// A tool name or glob, as `key` has them.
    pub fn name<'n>(&self, node: &'n Node, key: &str) -> Result<&'n str, PolicyError> {
        let text = self.string(node, key)?;
        if text.is_empty() {
            return Err(self.error(node.place, "an empty tool name"));
        }
        if text.len() > MAX_NAME {
            return Err(self.error(node.place, format!("a tool name of more than {MAX_NAME} bytes")));
        }
        Ok(text)
    }

    /// Notes that no tool of any server can have this name.
    pub fn doubt(&mut self, place: Place, name: &str) {
        if let Some(rest) = name.strip_prefix("mcp__") {
            let tool = rest.split_once("__").map_or("*", |(_, tool)| tool);
            self.note(
                place,
                format!(
                    "`{name}` is how a client names a tool, but policies use the server's own name: write `{tool}`"
                ),
            );
        } else if name.trim() != name {
            self.note(place, format!("`{name}` has spaces around it; tool names have none"));
        }
    }

    pub fn names(
        &mut self,
        node: &Node,
        key: &str,
        add: impl Fn(&mut NameSet, &str) -> Result<(), String>,
    ) -> Result<NameSet, PolicyError> {
        let mut set = NameSet::default();
        for item in self.sequence(node, key)? {
            let text = self.name(item, key)?;
            add(&mut set, text).map_err(|e| self.error(item.place, format!("bad glob: {e}")))?;
            self.doubt(item.place, text);
        }
        if let Err(n) = set.compile_if_small() {
            return Err(self.error(node.place, format!("the globs from `{}` on are too big", set.text(n))));
        }
        Ok(set)
    }

    pub fn budget(&self, node: &Node) -> Result<Budget, PolicyError> {
        let mut budget = Budget::default();
        for (key, value) in self.mapping(node, "budget")? {
            match key.text() {
                Some("max_tool_calls") => budget.max_tool_calls = Some(self.count(value, "max_tool_calls")?),
                Some("max_wall_time_sec") => {
                    budget.max_wall_time = Some(Duration::from_secs(self.count(value, "max_wall_time_sec")?));
                }
                _ => return Err(self.unknown(key, &["max_tool_calls", "max_wall_time_sec"])),
            }
        }
        Ok(budget)
    }

    pub fn patterns(&mut self, node: &Node, ignore_case: bool) -> Result<Patterns, PolicyError> {
        let mut patterns = Patterns::new(ignore_case);
        for item in self.sequence(node, "deny_patterns")? {
            let text = self.string(item, "deny_patterns")?;
            let wrong = |e| self.error(item.place, format!("bad regular expression: {e}"));
            patterns.add(text).map_err(wrong)?;
            if self.eager > 0 {
                self.eager -= 1;
                patterns.compile_last().map_err(|e| self.error(item.place, format!("bad regular expression: {e}")))?;
            }
        }
        if self.eager > 0 && patterns.compile().is_err() {
            return Err(self.error(node.place, "these patterns are too big together"));
        }
        Ok(patterns)
    }
}
