//! A YAML document as a tree: every node knows its line and column.

/// A place in the file, and how many characters of its line belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Width in characters.
    pub width: usize,
}

/// A node of the document.
#[derive(Debug, Clone)]
pub struct Node {
    /// Where the node begins.
    pub place: Place,
    /// The type of the node, with its content.
    pub kind: Kind,
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A scalar: a string, a number, `true`, `false` or `null`.
    Scalar {
        /// Its text, without quotes and escapes.
        text: String,
        /// Whether it has no quotes, and so could be another type than a string.
        plain: bool,
    },
    /// `[…]` or `- …` lines.
    Sequence(Vec<Node>),
    /// Pairs in file order; keys are scalars, each there once.
    Mapping(Vec<(Node, Node)>),
}

/// What a scalar means in YAML 1.2's core schema.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// `null`, `~`, or nothing at all.
    Null,
    /// A scalar that is `true` or `false`.
    Bool(bool),
    /// A whole number, decimal, `0x…` or `0o…`.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A scalar that is none of these, so a string.
    Text(&'a str),
}

impl Scalar<'_> {
    /// The type, as text for messages.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
        }
    }
}

impl Node {
    /// The scalar's meaning; `None` for collections.
    #[must_use]
    pub fn scalar(&self) -> Option<Scalar<'_>> {
        let Kind::Scalar { text, plain } = &self.kind else { return None };
        Some(if *plain { resolve(text) } else { Scalar::Text(text) })
    }

    /// The type, as text for messages.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar { .. } => self.scalar().map_or("a scalar", |s| s.what()),
            Kind::Sequence(_) => "a list",
            Kind::Mapping(_) => "a mapping",
        }
    }

    /// The same as JSON.
    #[must_use]
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
    #[must_use]
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

    /// Where the member or element is that a path leads to: the place of its name, where it has one.
    #[must_use]
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

    /// The text of a scalar as it is written.
    #[must_use]
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
