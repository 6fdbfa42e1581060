//! Members of one object that some readers take for the same: [`alike`](crate::text::alike) says how.

use crate::{canon, text::alike::folded};
use std::collections::HashSet;

/// Whether two members of one object, at any depth, differ in case only. `json` must be JSON.
#[must_use]
pub fn has_twins(json: &[u8]) -> bool {
    // As long as every name is its own folded form, none can be another's.
    if pieces(json).all(|piece| !matches!(piece, Piece::Name(raw) if !is_folded(raw))) {
        return false;
    }
    let mut open: Vec<HashSet<String>> = Vec::new();
    pieces(json).any(|piece| {
        match piece {
            Piece::Open => open.push(HashSet::new()),
            Piece::Close => drop(open.pop()),
            Piece::Name(raw) => {
                if let (Some(names), Some(name)) = (open.last_mut(), canon::decode_string(raw)) {
                    return !names.insert(name.chars().map(folded).collect());
                }
            }
        }
        false
    })
}

/// Whether a name, with its quotes, is what [`folded`] makes of it.
fn is_folded(raw: &[u8]) -> bool {
    raw.iter().all(|b| b.is_ascii() && !b.is_ascii_uppercase() && *b != b'\\')
}

/// What makes the objects of a document.
enum Piece<'a> {
    Open,
    Close,
    /// A member's name, with its quotes.
    Name(&'a [u8]),
}

/// Looks only at quotes and braces, so that long strings cost nearly nothing.
fn pieces(json: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            match json.get(at)? {
                b'{' => {
                    at += 1;
                    return Some(Piece::Open);
                }
                b'}' => {
                    at += 1;
                    return Some(Piece::Close);
                }
                b'"' => {
                    let raw = &json[at..string_end(json, at)];
                    at += raw.len();
                    let blanks = json[at..].iter().take_while(|b| b.is_ascii_whitespace()).count();
                    if json.get(at + blanks) == Some(&b':') {
                        return Some(Piece::Name(raw));
                    }
                }
                _ => at += 1,
            }
        }
    })
}

/// The index after the closing quote of the string that opens at `at`.
fn string_end(json: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while let Some(n) = json.get(i..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        i += n;
        if json[i] == b'"' {
            return i + 1;
        }
        i += 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_at_any_depth() {
        for (json, twins) in [
            (r#"{"a":1,"b":2}"#, false),
            (r#"{"a":1,"A":2}"#, true),
            (r#"{"A":1,"a":2}"#, true),
            (r#"{"x":[{"path":1,"Path":2}]}"#, true),
            (r#"{"path":{"Path":1},"b":[{"Path":1},{"path":2}]}"#, false),
            ("{\"s\":1,\"\u{17f}\":2}", true),
            (r#"{"file_path":1,"filePath":2}"#, false),
            (r#"{"x":"{\"a\":1,\"A\":2}"}"#, false),
            (r#"{"x":"\\","X":1}"#, true),
            (r#"{"x" : "}" , "y":{"\u0058":1}, "\u0058" : 1}"#, true),
            (r#"{"x":["a","A","b\":"],"y":{},"z":[{}]}"#, false),
        ] {
            assert_eq!(has_twins(json.as_bytes()), twins, "{json}");
        }
    }
}
