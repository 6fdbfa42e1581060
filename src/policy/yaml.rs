//! YAML as a tree with places: every node knows its line and column. Reads events and no more, so that nothing is expanded,
//! guessed or nested without bound: aliases, anchors, tags, tabs and several documents are refused.

use super::PolicyError;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};
use std::{collections::HashMap, path::PathBuf};

/// Deepest nesting in a policy file.
pub const MAX_DEPTH: usize = 64;

/// A place in the file: line and column from 1, and how many characters stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
    pub width: usize,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    pub place: Place,
    pub kind: Kind,
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Text; `plain` when it stands without quotes and could be something else than a string.
    Scalar { text: String, plain: bool },
    /// `[…]` or `- …` lines.
    Sequence(Vec<Node>),
    /// Pairs in file order; keys are scalars, each there once.
    Mapping(Vec<(Node, Node)>),
}

/// What a scalar means in YAML 1.2's core schema.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
}

impl Scalar<'_> {
    /// The type in words.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
        }
    }
}

impl Node {
    /// The scalar's meaning; `None` for collections.
    pub fn scalar(&self) -> Option<Scalar<'_>> {
        let Kind::Scalar { text, plain } = &self.kind else { return None };
        Some(if *plain { resolve(text) } else { Scalar::Text(text) })
    }

    /// The type in words.
    pub fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar { .. } => self.scalar().map_or("a scalar", |s| s.what()),
            Kind::Sequence(_) => "a list",
            Kind::Mapping(_) => "a mapping",
        }
    }

    /// The same as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.kind {
            Kind::Sequence(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Kind::Mapping(pairs) => Value::Object(
                pairs.iter().map(|(key, value)| (key.text().unwrap_or_default().to_owned(), value.to_json())).collect(),
            ),
            Kind::Scalar { .. } => match self.scalar() {
                Some(Scalar::Bool(b)) => b.into(),
                Some(Scalar::Int(n)) => n.into(),
                Some(Scalar::Float(x)) => x.into(),
                Some(Scalar::Text(t)) => t.into(),
                Some(Scalar::Null) | None => Value::Null,
            },
        }
    }

    /// The node that a JSON pointer (RFC 6901) leads to, or the last one on the way.
    pub fn at(&self, pointer: &str) -> &Self {
        let mut node = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &node.kind {
                Kind::Mapping(pairs) => pairs.iter().find(|(key, _)| key.text() == Some(&part)).map(|(_, value)| value),
                Kind::Sequence(items) => part.parse::<usize>().ok().and_then(|n| items.get(n)),
                Kind::Scalar { .. } => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node
    }

    /// Where the member or element stands that a path leads to: the place of its name, where it has one.
    pub fn place_of(&self, path: &[&str]) -> Option<Place> {
        let Some((first, rest)) = path.split_first() else { return Some(self.place) };
        match &self.kind {
            Kind::Mapping(pairs) => {
                let (key, value) = pairs.iter().find(|(key, _)| key.text() == Some(first))?;
                if rest.is_empty() { Some(key.place) } else { value.place_of(rest) }
            }
            Kind::Sequence(items) => items.get(first.parse::<usize>().ok()?)?.place_of(rest),
            Kind::Scalar { .. } => None,
        }
    }

    /// The text of a scalar as it stands.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }
}

fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | "+.inf" | "-.inf" => return Scalar::Float(f64::INFINITY),
        _ => {}
    }
    if let Some(n) = text.strip_prefix("0x").and_then(|hex| i64::from_str_radix(hex, 16).ok()) {
        return Scalar::Int(n);
    }
    if let Some(n) = text.strip_prefix("0o").and_then(|octal| i64::from_str_radix(octal, 8).ok()) {
        return Scalar::Int(n);
    }
    if let Ok(n) = text.parse() {
        return Scalar::Int(n);
    }
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    match text.parse::<f64>() {
        Ok(x) if numeric && text.bytes().any(|b| b.is_ascii_digit()) => Scalar::Float(x),
        _ => Scalar::Text(text),
    }
}

/// A file's text and name, for errors that point at a place.
pub struct Source<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a place.
    pub fn error(&self, place: Place, message: impl Into<String>) -> PolicyError {
        PolicyError {
            path: PathBuf::from(self.name),
            line: Some(place.line),
            column: Some(place.column),
            message: message.into(),
            hint: None,
            excerpt: self.text.split('\n').nth(place.line.saturating_sub(1)).map(|l| l.trim_end().into()),
            width: place.width,
        }
    }

    /// Reads the one document that the file is.
    ///
    /// # Errors
    /// What YAML, or this module, does not allow, at its place.
    pub fn read(&self) -> Result<Node, PolicyError> {
        self.no_tabs()?;
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(self.text);
        let mut tree = Tree { source: self, open: Vec::new(), root: None };
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|e| self.scan_error(*e.marker(), e.info()))?;
            match event {
                Event::DocumentStart(_) if tree.root.is_some() => {
                    return Err(self.error(Self::place(span), "a second document: a policy is one document"));
                }
                Event::Alias(_) => return Err(self.reference(span, "an alias (*name)")),
                Event::Scalar(text, style, anchor, tag) => {
                    self.plain_node(span, anchor, tag.is_some())?;
                    let plain = style == ScalarStyle::Plain;
                    tree.add(Node { place: Self::place(span), kind: Kind::Scalar { text: text.into_owned(), plain } })?;
                }
                Event::SequenceStart(anchor, tag) => {
                    self.plain_node(span, anchor, tag.is_some())?;
                    tree.open(Self::start(span), false)?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.plain_node(span, anchor, tag.is_some())?;
                    tree.open(Self::start(span), true)?;
                }
                Event::SequenceEnd | Event::MappingEnd => tree.close()?,
                Event::StreamEnd => break,
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
            }
        }
        let nothing = Place { line: 1, column: 1, width: 1 };
        tree.root.ok_or_else(|| self.error(nothing, "the file is empty").hint("`assay policy init` writes a first one"))
    }

    /// A tab looks like blanks and is none to YAML.
    fn no_tabs(&self) -> Result<(), PolicyError> {
        for (n, line) in self.text.split('\n').enumerate() {
            let comment = line.trim_start().starts_with('#');
            if let Some(at) = line.find('\t').filter(|_| !comment || line.starts_with('\t')) {
                let place = Place { line: n + 1, column: line[..at].chars().count() + 1, width: 1 };
                return Err(self.error(place, "a tab").hint("use blanks; inside double quotes write \\t"));
            }
        }
        Ok(())
    }

    fn plain_node(&self, span: Span, anchor: usize, tag: bool) -> Result<(), PolicyError> {
        if anchor != 0 {
            return Err(self.reference(span, "an anchor (&name)"));
        }
        if tag {
            return Err(self.reference(span, "a tag (!…)"));
        }
        Ok(())
    }

    fn reference(&self, span: Span, what: &str) -> PolicyError {
        let mut place = Self::place(span);
        // The span is that of the node behind the anchor or tag.
        if let Some(line) = self.text.split('\n').nth(place.line.saturating_sub(1)) {
            let before: Vec<char> = line.chars().take(place.column.saturating_sub(1) + 1).collect();
            if let Some(at) = before.iter().rposition(|c| matches!(c, '!' | '&' | '*')) {
                place = Place { line: place.line, column: at + 1, width: 1 };
            }
        }
        self.error(place, format!("{what}; a policy has none")).hint(QUOTES)
    }

    fn scan_error(&self, at: Marker, info: &str) -> PolicyError {
        let place = Place { line: at.line().max(1), column: at.col() + 1, width: 1 };
        let here = self.text.split('\n').nth(place.line - 1).unwrap_or_default();
        let near = here.chars().skip(place.column.saturating_sub(2)).take(2).any(|c| matches!(c, '*' | '!' | '&'));
        let info = match info {
            "while parsing node, found unknown anchor" => "an alias (*name) of nothing; a policy has none",
            "recursion limit exceeded" => "nested deeper than a policy is",
            info => info,
        };
        let error = self.error(place, format!("not YAML: {info}"));
        let quotable = near || info.contains("alias") || info.contains("anchor") || info.contains("tag");
        if quotable { error.hint(QUOTES) } else { error }
    }

    fn start(span: Span) -> Place {
        Place { width: 1, ..Self::place(span) }
    }

    fn place(span: Span) -> Place {
        let width =
            if span.start.line() == span.end.line() { span.end.col().saturating_sub(span.start.col()) } else { 1 };
        Place { line: span.start.line().max(1), column: span.start.col() + 1, width: width.max(1) }
    }
}

const QUOTES: &str = "text that begins with *, & or ! stands in quotes: \"*\", \"!**/.env\"";

enum Open {
    Sequence(Place, Vec<Node>),
    Mapping { place: Place, pairs: Vec<(Node, Node)>, key: Option<Node>, seen: HashMap<String, Place> },
}

struct Tree<'a> {
    source: &'a Source<'a>,
    open: Vec<Open>,
    root: Option<Node>,
}

impl Tree<'_> {
    fn open(&mut self, place: Place, mapping: bool) -> Result<(), PolicyError> {
        if self.open.len() == MAX_DEPTH {
            return Err(self.source.error(place, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if let Some(Open::Mapping { key: None, .. }) = self.open.last() {
            return Err(self.source.error(place, "a key that is no text"));
        }
        self.open.push(if mapping {
            Open::Mapping { place, pairs: Vec::new(), key: None, seen: HashMap::new() }
        } else {
            Open::Sequence(place, Vec::new())
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), PolicyError> {
        let node = match self.open.pop() {
            Some(Open::Sequence(place, items)) => Node { place, kind: Kind::Sequence(items) },
            Some(Open::Mapping { place, pairs, .. }) => Node { place, kind: Kind::Mapping(pairs) },
            None => return Ok(()),
        };
        self.add(node)
    }

    fn add(&mut self, node: Node) -> Result<(), PolicyError> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::Sequence(_, items)) => items.push(node),
            Some(Open::Mapping { pairs, key, seen, .. }) => {
                if let Some(key) = key.take() {
                    pairs.push((key, node));
                    return Ok(());
                }
                let text = node.text().unwrap_or_default().to_owned();
                if let Some(first) = seen.insert(text.clone(), node.place) {
                    let message = format!("`{text}` is there twice, first in line {}", first.line);
                    return Err(self.source.error(node.place, message));
                }
                *key = Some(node);
            }
        }
        Ok(())
    }
}
