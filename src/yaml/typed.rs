//! Typed reading of nodes: what is not expected is an error at its place.

use super::{
    error::Error,
    near::distance,
    parse::Source,
    tree::{Kind, Node, Scalar},
};

impl Source<'_> {
    /// That `key` is something else than was expected.
    #[must_use]
    pub fn expected(&self, node: &Node, key: &str, what: &str) -> Error {
        self.error(node.place, format!("`{key}` is {}, expected {what}", node.what()))
    }

    /// The pairs of a mapping.
    ///
    /// # Errors
    /// What it is instead, at its place.
    pub fn mapping<'n>(&self, node: &'n Node, key: &str) -> Result<&'n [(Node, Node)], Error> {
        match &node.kind {
            Kind::Mapping(pairs) => Ok(pairs),
            _ => Err(self.expected(node, key, "a mapping")),
        }
    }

    /// The items of a list.
    ///
    /// # Errors
    /// What it is instead, at its place.
    pub fn sequence<'n>(&self, node: &'n Node, key: &str) -> Result<&'n [Node], Error> {
        match &node.kind {
            Kind::Sequence(items) => Ok(items),
            _ => Err(self.expected(node, key, "a list")),
        }
    }

    /// A string; what YAML takes for something else must be in quotes.
    ///
    /// # Errors
    /// What it is instead, at its place.
    pub fn string<'n>(&self, node: &'n Node, key: &str) -> Result<&'n str, Error> {
        match node.scalar() {
            Some(Scalar::Text(text)) => Ok(text),
            Some(Scalar::Null) | None => Err(self.expected(node, key, "a string")),
            Some(_) => Err(self.expected(node, key, "a string").hint("put it in quotes")),
        }
    }

    /// Reads a scalar as `true` or `false`.
    ///
    /// # Errors
    /// What it is instead, at its place.
    pub fn flag(&self, node: &Node, key: &str) -> Result<bool, Error> {
        match node.scalar() {
            Some(Scalar::Bool(b)) => Ok(b),
            _ => Err(self.expected(node, key, "true or false")),
        }
    }

    /// A whole number of 0 or more.
    ///
    /// # Errors
    /// What it is instead, at its place.
    pub fn count(&self, node: &Node, key: &str) -> Result<u64, Error> {
        match node.scalar() {
            Some(Scalar::Int(n)) if n >= 0 => Ok(n.unsigned_abs()),
            Some(Scalar::Int(_) | Scalar::Float(_)) => {
                Err(self.error(node.place, format!("`{key}` must be a whole number of 0 or more")))
            }
            _ => Err(self.expected(node, key, "a whole number of 0 or more")),
        }
    }

    /// The error that a key is not known, with the one that was probably meant.
    #[must_use]
    pub fn unknown(&self, key: &Node, known: &[&str]) -> Error {
        let text = key.text().unwrap_or_default();
        let error = self.error(key.place, format!("unknown key `{text}`"));
        match known.iter().map(|k| (distance(text, k), k)).min() {
            Some((distance, near)) if distance <= 3 => error.hint(format!("did you mean `{near}`?")),
            _ => error.hint(format!("known keys: {}", known.join(", "))),
        }
    }
}
