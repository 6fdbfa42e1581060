//! Names that are the same for some readers and not for others.
//!
//! Go's `encoding/json` matches members under Unicode simple case folding, so `paramſ` (U+017F) is `params` and the Kelvin
//! sign is a `k`; its second version can be told to leave out `_` and `-`; .NET and Java readers compare without case,
//! in some locales with dotless and dotted `i` as one.

use crate::canon;
use std::{borrow::Cow, collections::HashSet};

/// A character as the most lenient reader compares it.
fn folded(c: char) -> char {
    match c {
        'A'..='Z' => c.to_ascii_lowercase(),
        '\0'..='\u{7f}' => c,
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        // Full-width forms, for readers that normalize.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).map_or(c, |ascii| ascii.to_ascii_lowercase()),
        c => {
            let mut lower = c.to_lowercase();
            match (lower.next(), lower.next()) {
                (Some(one), None) => one,
                _ => c,
            }
        }
    }
}

/// What some reader does not see in a name.
fn is_left_out(c: char) -> bool {
    matches!(c, '_' | '-' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
        || c.is_whitespace()
        || c.is_control()
}

/// Whether `name` is `word` (lower-case or camel-case ASCII) for some reader.
#[must_use]
pub fn is_like(name: &str, word: &str) -> bool {
    // Nearly all names end here.
    if name.bytes().all(|b| b.is_ascii_lowercase()) && word.bytes().all(|b| b.is_ascii_lowercase()) {
        return name == word;
    }
    let mut name = name.chars().filter(|c| !is_left_out(*c)).map(folded);
    let mut word = word.chars().filter(|c| !is_left_out(*c)).map(folded);
    loop {
        match (name.next(), word.next()) {
            (None, None) => return true,
            (a, b) if a == b => {}
            _ => return false,
        }
    }
}

/// Whether two members of one object, at any depth, differ in case only. `json` must be JSON: this follows nothing but quotes
/// and braces, so that long strings cost nearly nothing.
#[must_use]
pub fn has_twins(json: &[u8]) -> bool {
    let mut open: Vec<Names<'_>> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        match byte {
            b'{' => open.push(Names::default()),
            b'}' => {
                open.pop();
            }
            b'"' => {
                let end = string_end(json, at);
                let blanks = json[end..].iter().take_while(|b| b.is_ascii_whitespace()).count();
                if json.get(end + blanks) == Some(&b':')
                    && let Some(names) = open.last_mut()
                    && canon::decode_string(&json[at..end]).is_some_and(|name| names.is_twin(name))
                {
                    return true;
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    false
}

/// The index behind the closing quote of the string that opens at `at`.
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

/// The names of one object so far. Exact duplicates are looked for elsewhere.
#[derive(Default)]
struct Names<'de> {
    plain: Vec<Cow<'de, str>>,
    folded: HashSet<String>,
    any_folded: bool,
}

impl<'de> Names<'de> {
    fn is_twin(&mut self, name: Cow<'de, str>) -> bool {
        let as_is = name.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase());
        // As long as every name is its own folded form, none can be another's.
        if as_is && !self.any_folded {
            self.plain.push(name);
            return false;
        }
        if !self.any_folded {
            self.any_folded = true;
            self.folded = self.plain.drain(..).map(Cow::into_owned).collect();
        }
        !self.folded.insert(name.chars().map(folded).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_reader_takes_for_the_protocols() {
        for (name, word, like) in [
            ("method", "method", true),
            ("Method", "method", true),
            ("METHOD", "method", true),
            ("param\u{17f}", "params", true),
            ("me_thod", "method", true),
            ("met-hod", "method", true),
            (" method\u{200b}", "method", true),
            ("ｍethod", "method", true),
            ("İD", "id", true),
            ("tas\u{212a}", "task", true),
            ("Tools/Call", "tools/call", true),
            ("sampling/createmessage", "sampling/createMessage", true),
            ("methods", "method", false),
            ("metho", "method", false),
            ("", "id", false),
            ("мethod", "method", false),
        ] {
            assert_eq!(is_like(name, word), like, "{name:?} {word}");
        }
    }

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
