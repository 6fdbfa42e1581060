//! YAML: one document of events. What `crate::yaml` refuses in our own files is allowed here wherever we change nothing.

use super::Fault;
use crate::clients::tree::{Kind, Member, Node, Span};
use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

/// Deepest nesting.
const DEEPEST: usize = 128;

pub fn read(text: &str, mark: usize) -> Result<Option<Node>, Fault> {
    let body = &text[mark..];
    let places = Places::of(body, mark);
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(body);
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    while let Some(event) = parser.next_event() {
        let (event, span) =
            event.map_err(|e| Fault::at(text, places.byte(e.marker().index()), format!("not YAML: {}", e.info())))?;
        let start = places.byte(span.start.index());
        let node = match event {
            Event::DocumentStart(_) if root.is_some() => {
                return Err(Fault::at(text, start, "a second YAML document; there must be one"));
            }
            Event::Alias(_) => Node { indirect: true, ..Node::new(start..start, Kind::Null) },
            Event::Scalar(value, style, anchor, tag) => {
                let end = places.byte(span.end.index());
                let indirect = anchor != 0 || tag.is_some();
                let span = if indirect { start..end } else { scalar_span(text, start, end, style) };
                let kind = if style == ScalarStyle::Plain { plain(&value) } else { Kind::Text(value.into_owned()) };
                Node { indirect, ..Node::new(span, kind) }
            }
            Event::SequenceStart(anchor, ref tag) | Event::MappingStart(anchor, ref tag) => {
                if open.len() == DEEPEST {
                    return Err(Fault::at(text, start, format!("nested deeper than {DEEPEST} levels")));
                }
                let flow = !span.is_empty();
                let indirect = anchor != 0 || tag.is_some();
                let map = matches!(event, Event::MappingStart(..));
                open.push(Open { start, flow, indirect, map, key: None, items: Vec::new(), members: Vec::new() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(closed) = open.pop() else { continue };
                let end = if closed.flow { start + 1 } else { closed.start };
                let kind = if closed.map { Kind::Map(closed.members) } else { Kind::List(closed.items) };
                Node { indirect: closed.indirect, ..Node::new(closed.start..end, kind) }
            }
            Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => continue,
        };
        match open.last_mut() {
            None => root = Some(node),
            Some(parent) if !parent.map => parent.items.push(node),
            Some(parent) => match parent.key.take() {
                None => parent.key = Some(node),
                Some(key) => {
                    let name = match (&key.kind, key.indirect) {
                        (Kind::Text(name) | Kind::Other(name), _) => name.clone(),
                        (Kind::Flag(flag), _) => flag.to_string(),
                        _ => String::new(),
                    };
                    let mut value = node;
                    value.indirect |= key.indirect;
                    parent.members.push(Member { key: name, at: key.span, value });
                }
            },
        }
    }
    Ok(root.filter(|node: &Node| !matches!(node.kind, Kind::Null) || node.indirect))
}

struct Open {
    start: usize,
    flow: bool,
    indirect: bool,
    map: bool,
    key: Option<Node>,
    items: Vec<Node>,
    members: Vec<Member>,
}

/// Where characters are, in bytes.
struct Places {
    mark: usize,
    /// Of a text that is more than ASCII, the byte of every character.
    bytes: Option<Vec<usize>>,
    len: usize,
}

impl Places {
    fn of(text: &str, mark: usize) -> Self {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { mark, bytes, len: text.len() }
    }

    fn byte(&self, char: usize) -> usize {
        let at = match &self.bytes {
            None => char.min(self.len),
            Some(bytes) => bytes.get(char).copied().unwrap_or(self.len),
        };
        at + self.mark
    }
}

/// The end that the parser gives for a scalar can lie behind blanks and comments that follow it.
fn scalar_span(text: &str, start: usize, end: usize, style: ScalarStyle) -> Span {
    let bytes = text.as_bytes();
    let end = match style {
        ScalarStyle::Plain => start + text[start..end].trim_end().len(),
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
            let quote = bytes.get(start).copied().unwrap_or_default();
            let mut at = start + 1;
            loop {
                match bytes.get(at) {
                    None => break end,
                    Some(b'\\') if quote == b'"' => at += 2,
                    Some(b'\'') if quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => at += 2,
                    Some(b) if *b == quote => break at + 1,
                    Some(_) => at += 1,
                }
            }
        }
        ScalarStyle::Literal | ScalarStyle::Folded => end,
    };
    start..end
}

/// What a scalar without quotes means in the core schema of YAML 1.2, and to clients that read YAML 1.1.
fn plain(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Flag(true),
        "false" | "False" | "FALSE" => return Kind::Flag(false),
        _ => {}
    }
    let number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && (text.parse::<f64>().is_ok()
            || text.strip_prefix("0x").is_some_and(|hex| i64::from_str_radix(hex, 16).is_ok())
            || text.strip_prefix("0o").is_some_and(|octal| i64::from_str_radix(octal, 8).is_ok()));
    if number { Kind::Other(text.to_owned()) } else { Kind::Text(text.to_owned()) }
}
