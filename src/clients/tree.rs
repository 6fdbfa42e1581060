//! One tree for JSON, TOML and YAML: values that know which bytes of the file they are.

use std::ops::Range;

/// Bytes of the text of a file.
pub type Span = Range<usize>;

/// A value.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its bytes, quotes and brackets included. Of what has no brackets (block collections of YAML, tables of TOML): where it
    /// begins, and nothing.
    pub span: Span,
    /// What it is.
    pub kind: Kind,
    /// It is named by an anchor, is an alias or has a tag (YAML): what it says is not all that it is.
    pub indirect: bool,
}

/// What a value is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A string.
    Text(String),
    /// `true` or `false`.
    Flag(bool),
    /// Nothing: `null`.
    Null,
    /// Any other scalar, as it is written.
    Other(String),
    /// A list.
    List(Vec<Node>),
    /// Members in the order of the file.
    Map(Vec<Member>),
}

/// A member of an object, a table or a mapping.
#[derive(Debug, Clone)]
pub struct Member {
    /// Its name.
    pub key: String,
    /// The bytes of its name.
    pub at: Span,
    /// Its value.
    pub value: Node,
}

/// What a member is looked up as.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// There is none.
    No,
    /// This one.
    One(&'a Member),
    /// More than one; the second.
    Twice(&'a Member),
}

impl Node {
    /// A value of this kind.
    #[must_use]
    pub const fn new(span: Span, kind: Kind) -> Self {
        Self { span, kind, indirect: false }
    }

    /// A string that stands nowhere, to compare with.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::new(0..0, Kind::Text(text.to_owned()))
    }

    /// A list that stands nowhere, to compare with.
    #[must_use]
    pub fn list(texts: &[String]) -> Self {
        Self::new(0..0, Kind::List(texts.iter().map(|text| Self::text(text)).collect()))
    }

    /// The members of a map.
    #[must_use]
    pub fn members(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Map(members) => Some(members),
            _ => None,
        }
    }

    /// The elements of a list.
    #[must_use]
    pub fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// A string.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The texts of a list that has strings alone.
    #[must_use]
    pub fn texts(&self) -> Option<Vec<String>> {
        self.items()?.iter().map(|item| item.as_text().map(str::to_owned)).collect()
    }

    /// Looks up a member.
    #[must_use]
    pub fn find(&self, key: &str) -> Found<'_> {
        let mut found = self.members().unwrap_or_default().iter().filter(|member| member.key == key);
        match (found.next(), found.next()) {
            (None, _) => Found::No,
            (Some(one), None) => Found::One(one),
            (Some(_), Some(second)) => Found::Twice(second),
        }
    }

    /// The value of a member; of one that is there twice, the last.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.members()?.iter().rfind(|member| member.key == key).map(|member| &member.value)
    }

    /// Whether it, or something in it, is an alias or has an anchor or a tag.
    #[must_use]
    pub fn has_indirect(&self) -> bool {
        self.indirect
            || match &self.kind {
                Kind::List(items) => items.iter().any(Self::has_indirect),
                Kind::Map(members) => members.iter().any(|member| member.value.has_indirect()),
                _ => false,
            }
    }

    /// The first member in it that is there twice.
    #[must_use]
    pub fn twice(&self) -> Option<&Member> {
        let mut seen = std::collections::HashSet::new();
        self.members().unwrap_or_default().iter().find(|member| !seen.insert(&member.key))
    }

    /// Whether both say the same, wherever they stand.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.indirect == other.indirect
            && match (&self.kind, &other.kind) {
                (Kind::Text(a), Kind::Text(b)) | (Kind::Other(a), Kind::Other(b)) => a == b,
                (Kind::Flag(a), Kind::Flag(b)) => a == b,
                (Kind::Null, Kind::Null) => true,
                (Kind::List(a), Kind::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b)),
                (Kind::Map(a), Kind::Map(b)) => {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.key == b.key && a.value.same(&b.value))
                }
                _ => false,
            }
    }

    /// What it is, in words.
    #[must_use]
    pub const fn what(&self) -> &'static str {
        match &self.kind {
            Kind::Text(_) => "a string",
            Kind::Flag(_) => "a boolean",
            Kind::Null => "nothing",
            Kind::Other(_) => "a number or a date",
            Kind::List(_) => "a list",
            Kind::Map(_) => "an object",
        }
    }

    /// The value that a path of steps leads to.
    #[must_use]
    pub fn at(&self, path: &[Step]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| match step {
            Step::Key(key) => node.get(key),
            Step::Item(n) => node.items()?.get(*n),
        })
    }

    /// The same, to change it.
    #[must_use]
    pub fn at_mut(&mut self, path: &[Step]) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, step| match (step, &mut node.kind) {
            (Step::Key(key), Kind::Map(members)) => {
                members.iter_mut().rfind(|member| member.key == *key).map(|member| &mut member.value)
            }
            (Step::Item(n), Kind::List(items)) => items.get_mut(*n),
            _ => None,
        })
    }
}

/// One step from a value into it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// To the member of this name.
    Key(String),
    /// To the element at this place, from 0.
    Item(usize),
}
