//! The differences between two JSON values: path (RFC 6901), old and new value.

use crate::text::where_they_part;
use serde::Serialize;
use serde_json::Value;

/// Differences that are listed of one pair of values.
pub const MAX_DIFFERENCES: usize = 50;
/// Bytes of a value that are shown; a longer one is cut.
const MAX_VALUE: usize = 1024;

/// How a place differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Only the second value has it.
    Added,
    /// Only the first value has it.
    Removed,
    /// Both values have it, with different contents.
    Changed,
}

/// A place that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// JSON Pointer (RFC 6901); empty for the whole value. Elements are numbered as in the second value, those that
    /// removed ones as in the first.
    pub path: String,
    /// Whether the value was added, removed or changed.
    pub kind: DifferenceKind,
    /// The old value; absent when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The new value; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
    /// Whether a value was too long and is a part of its JSON text instead: the beginning, or, of texts that begin alike,
    /// what follows shortly before they part.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// The differences, and how many more there are than `MAX_DIFFERENCES`.
#[must_use]
pub fn differences(old: &Value, new: &Value) -> (Vec<Difference>, u64) {
    let mut walk = Walk { path: String::new(), found: Vec::new(), omitted: 0 };
    walk.values(old, new);
    (walk.found, walk.omitted)
}

struct Walk {
    path: String,
    found: Vec<Difference>,
    omitted: u64,
}

impl Walk {
    fn at(&mut self, token: &str, f: impl FnOnce(&mut Self)) {
        let before = self.path.len();
        self.path.push('/');
        self.path.push_str(&token.replace('~', "~0").replace('/', "~1"));
        f(self);
        self.path.truncate(before);
    }

    fn found(&mut self, old: Option<&Value>, new: Option<&Value>) {
        if self.found.len() >= MAX_DIFFERENCES {
            self.omitted += 1;
            return;
        }
        let kind = match (old, new) {
            (None, _) => DifferenceKind::Added,
            (_, None) => DifferenceKind::Removed,
            _ => DifferenceKind::Changed,
        };
        let path = self.path.clone();
        let (a, b) = (text(old), text(new));
        let cut = a.len().max(b.len()) > MAX_VALUE;
        let (x, y) = where_they_part(&a, &b, if cut { MAX_VALUE / 2 } else { usize::MAX });
        let (old, new) = (old.map(|v| shown(v, &x, &a)), new.map(|v| shown(v, &y, &b)));
        self.found.push(Difference { path, kind, old, new, cut });
    }

    fn values(&mut self, old: &Value, new: &Value) {
        if old == new {
            return;
        }
        match (old, new) {
            (Value::Object(a), Value::Object(b)) => {
                for (name, x) in a {
                    match b.get(name) {
                        Some(y) => self.at(name, |w| w.values(x, y)),
                        None => self.at(name, |w| w.found(Some(x), None)),
                    }
                }
                for (name, y) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
                    self.at(name, |w| w.found(None, Some(y)));
                }
            }
            (Value::Array(a), Value::Array(b)) => self.arrays(a, b),
            _ => self.found(Some(old), Some(new)),
        }
    }

    /// What both begin and end with is passed over, so that one inserted element is one difference.
    fn arrays(&mut self, a: &[Value], b: &[Value]) {
        let start = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let (a, b) = (&a[start..], &b[start..]);
        let end = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
        let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
        for at in 0..a.len().max(b.len()) {
            let token = (start + at).to_string();
            match (a.get(at), b.get(at)) {
                (Some(x), Some(y)) => self.at(&token, |w| w.values(x, y)),
                (x, y) => self.at(&token, |w| w.found(x, y)),
            }
        }
    }
}

fn text(value: Option<&Value>) -> String {
    value.map(Value::to_string).unwrap_or_default()
}

/// `value`, or `part` of its text where that is not all of it, or too much.
fn shown(value: &Value, part: &str, whole: &str) -> Value {
    if part == whole && part.len() <= MAX_VALUE {
        return value.clone();
    }
    let end = part.floor_char_boundary(MAX_VALUE);
    Value::String(if end < part.len() { format!("{}…", &part[..end]) } else { part.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(old: &Value, new: &Value) -> Vec<String> {
        let (found, _) = differences(old, new);
        found.iter().map(|d| format!("{} {:?} {:?}", d.path, d.old.as_ref(), d.new.as_ref())).collect()
    }

    #[test]
    fn every_place_is_named_once() {
        let old = json!({"a/b~": 1, "gone": null, "deep": {"x": [1, 2, 3]}, "same": [1]});
        let new = json!({"a/b~": 2, "deep": {"x": [0, 1, 2, 3]}, "same": [1], "new": "n"});
        assert_eq!(
            said(&old, &new),
            [
                "/a~1b~0 Some(Number(1)) Some(Number(2))",
                "/deep/x/0 None Some(Number(0))",
                "/gone Some(Null) None",
                "/new None Some(String(\"n\"))"
            ]
        );
        assert!(said(&old, &old).is_empty());
        assert_eq!(said(&json!(1), &json!("1")), [" Some(Number(1)) Some(String(\"1\"))"]);
    }

    #[test]
    fn listings_and_values_are_bounded() {
        let (found, omitted) = differences(
            &json!({}),
            &json!((0..500).map(|n| (n.to_string(), n)).collect::<std::collections::BTreeMap<_, _>>()),
        );
        assert_eq!((found.len(), omitted), (MAX_DIFFERENCES, 450));
        let (found, _) = differences(&json!(""), &json!("é".repeat(1 << 20)));
        assert!(found[0].cut && found[0].new.as_ref().unwrap().as_str().unwrap().len() < 1100);
        let long = "é".repeat(1 << 20);
        let (found, _) = differences(&json!([format!("{long}a"), 1]), &json!([format!("{long}b"), 2]));
        let of = |v: &Option<Value>| v.as_ref().unwrap().as_str().unwrap().trim_matches(['…', 'é', '"']).to_owned();
        assert_eq!((of(&found[0].old), of(&found[0].new), found[0].cut), ("a".into(), "b".into(), true));
        assert!(!found[1].cut);
    }
}
