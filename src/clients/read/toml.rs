//! TOML.

use super::Fault;
use crate::clients::tree::{Kind, Member, Node, Span};
use toml_edit::{Document, Item, Key, Value};

pub fn read(text: &str, mark: usize) -> Result<Node, Fault> {
    let reader = Reader { mark, text };
    let document = Document::parse(&text[mark..]).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start) + mark;
        let what = e.message().lines().next().unwrap_or_default().to_owned();
        Fault::at(text, at, format!("not TOML: {what}"))
    })?;
    let table = document.as_table();
    Ok(reader.map(None, table.iter().map(|(key, item)| (table.key(key), key, item))))
}

struct Reader<'a> {
    mark: usize,
    text: &'a str,
}

impl Reader<'_> {
    fn span(&self, span: Option<Span>) -> Span {
        span.map_or(0..0, |span| span.start + self.mark..span.end + self.mark)
    }

    fn map<'k>(&self, at: Option<Span>, members: impl Iterator<Item = (Option<&'k Key>, &'k str, &'k Item)>) -> Node {
        let member = |(key, name, item): (Option<&Key>, &str, &Item)| Member {
            key: name.to_owned(),
            at: self.span(key.and_then(Key::span)),
            value: self.item(item),
        };
        Node::new(self.span(at), Kind::Map(members.map(member).collect()))
    }

    fn item(&self, item: &Item) -> Node {
        match item {
            Item::None => Node::new(0..0, Kind::Null),
            Item::Value(value) => self.value(value),
            Item::Table(table) => {
                let at = self.span(table.span()).start;
                let node = self.map(None, table.iter().map(|(key, item)| (table.key(key), key, item)));
                Node { span: at..at, ..node }
            }
            Item::ArrayOfTables(tables) => {
                let table = |table: &toml_edit::Table| {
                    let at = self.span(table.span()).start;
                    let node = self.map(None, table.iter().map(|(key, item)| (table.key(key), key, item)));
                    Node { span: at..at, ..node }
                };
                let at = self.span(tables.span()).start;
                Node::new(at..at, Kind::List(tables.iter().map(table).collect()))
            }
        }
    }

    fn value(&self, value: &Value) -> Node {
        let span = self.span(value.span());
        match value {
            Value::String(text) => Node::new(span, Kind::Text(text.value().clone())),
            Value::Boolean(flag) => Node::new(span, Kind::Flag(*flag.value())),
            Value::Array(list) => Node::new(span, Kind::List(list.iter().map(|value| self.value(value)).collect())),
            Value::InlineTable(table) => {
                // The members of a table of dotted keys stand in the table around it.
                let at = if table.is_dotted() { None } else { table.span() };
                let items = table.iter().map(|(key, value)| {
                    let name = table.key(key);
                    Member { key: key.to_owned(), at: self.span(name.and_then(Key::span)), value: self.value(value) }
                });
                Node::new(self.span(at), Kind::Map(items.collect()))
            }
            _ => {
                let raw = self.text.get(span.clone()).unwrap_or_default().to_owned();
                Node::new(span, Kind::Other(raw))
            }
        }
    }
}
