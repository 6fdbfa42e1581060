//! From text to a tree.

use super::{
    error::Error,
    tree::{Kind, Node, Place},
};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};
use std::{collections::HashMap, path::PathBuf};

/// Deepest nesting in a file.
pub const MAX_DEPTH: usize = 64;

/// A file's text and name, for errors that point at a place.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Path of the file, or what errors call it instead.
    pub name: &'a str,
    /// The whole text.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// The text of a file, which is UTF-8; a byte order mark is left out.
    ///
    /// # Errors
    /// The place where it is not UTF-8.
    pub fn of(name: &'a str, bytes: &'a [u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            let before = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let lossy = String::from_utf8_lossy(bytes);
            Source { name, text: &lossy }.error(Place { line, column, width: 1 }, "this is not UTF-8")
        })?;
        Ok(Self { name, text: text.strip_prefix('\u{feff}').unwrap_or(text) })
    }

    /// An error at a place.
    #[must_use]
    pub fn error(&self, place: Place, message: impl Into<String>) -> Error {
        Error {
            path: PathBuf::from(self.name),
            line: Some(place.line),
            column: Some(place.column),
            message: message.into(),
            hint: None,
            excerpt: self.text.split('\n').nth(place.line.saturating_sub(1)).map(|l| l.trim_end().into()),
            width: place.width,
        }
    }

    /// Reads the one document that the file is; `None` where there is nothing in it.
    ///
    /// # Errors
    /// What YAML, or this module, does not allow, at its place.
    pub fn read(&self) -> Result<Option<Node>, Error> {
        self.no_tabs()?;
        let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(self.text);
        let mut tree = Tree { source: self, open: Vec::new(), root: None };
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|e| self.scan_error(*e.marker(), e.info()))?;
            match event {
                Event::DocumentStart(_) if tree.root.is_some() => {
                    return Err(self.error(Self::place(span), "a second YAML document; the file can have only one"));
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
        Ok(tree.root)
    }

    /// A tab looks like blanks, but YAML does not take it for one.
    fn no_tabs(&self) -> Result<(), Error> {
        for (n, line) in self.text.split('\n').enumerate() {
            let comment = line.trim_start().starts_with('#');
            if let Some(at) = line.find('\t').filter(|_| !comment || line.starts_with('\t')) {
                let place = Place { line: n + 1, column: line[..at].chars().count() + 1, width: 1 };
                return Err(self
                    .error(place, "a tab, which YAML does not accept as a space")
                    .hint("use spaces; inside double quotes, write \\t"));
            }
        }
        Ok(())
    }

    fn plain_node(&self, span: Span, anchor: usize, tag: bool) -> Result<(), Error> {
        if anchor != 0 {
            return Err(self.reference(span, "an anchor (&name)"));
        }
        if tag {
            return Err(self.reference(span, "a tag (!…)"));
        }
        Ok(())
    }

    fn reference(&self, span: Span, what: &str) -> Error {
        let mut place = Self::place(span);
        // The span is that of the node after the anchor or tag.
        if let Some(line) = self.text.split('\n').nth(place.line.saturating_sub(1)) {
            let before: Vec<char> = line.chars().take(place.column.saturating_sub(1) + 1).collect();
            if let Some(at) = before.iter().rposition(|c| matches!(c, '!' | '&' | '*')) {
                place = Place { line: place.line, column: at + 1, width: 1 };
            }
        }
        self.error(place, format!("{what}, which is not allowed here")).hint(QUOTES)
    }

    fn scan_error(&self, at: Marker, info: &str) -> Error {
        let place = Place { line: at.line().max(1), column: at.col() + 1, width: 1 };
        let here = self.text.split('\n').nth(place.line - 1).unwrap_or_default();
        let near = here.chars().skip(place.column.saturating_sub(2)).take(2).any(|c| matches!(c, '*' | '!' | '&'));
        let info = match info {
            "while parsing node, found unknown anchor" => "an alias (*name), which is not allowed here",
            "recursion limit exceeded" => "nested deeper than is allowed",
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

const QUOTES: &str = "put text that begins with *, & or ! in quotes: \"*\", \"!**/.env\"";

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
    fn open(&mut self, place: Place, mapping: bool) -> Result<(), Error> {
        if self.open.len() == MAX_DEPTH {
            return Err(self.source.error(place, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if let Some(Open::Mapping { key: None, .. }) = self.open.last() {
            return Err(self.source.error(place, "this key is not text"));
        }
        self.open.push(if mapping {
            Open::Mapping { place, pairs: Vec::new(), key: None, seen: HashMap::new() }
        } else {
            Open::Sequence(place, Vec::new())
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let node = match self.open.pop() {
            Some(Open::Sequence(place, items)) => Node { place, kind: Kind::Sequence(items) },
            Some(Open::Mapping { place, pairs, .. }) => Node { place, kind: Kind::Mapping(pairs) },
            None => return Ok(()),
        };
        self.add(node)
    }

    fn add(&mut self, node: Node) -> Result<(), Error> {
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
                    let message = format!("`{text}` occurs twice, first in line {}", first.line);
                    return Err(self.source.error(node.place, message));
                }
                *key = Some(node);
            }
        }
        Ok(())
    }
}
