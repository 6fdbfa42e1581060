//! Where something is in JSON, as JSONPath (RFC 9535): `$.a['b c'][3]`.

use super::fold::Path;
use crate::text::visible;
use serde_json::Value;
use std::fmt::Write as _;

/// The JSONPath of a place; plain ASCII names in short, everything else quoted, what is hidden escaped.
pub fn json_path(value: &Value, path: &Path) -> String {
    let mut out = String::from("$");
    let mut here = Some(value);
    for i in path {
        match here {
            Some(Value::Object(members)) => {
                if let Some((name, _)) = members.iter().nth(*i) {
                    member(&mut out, name);
                }
            }
            _ => {
                let _ = write!(out, "[{i}]");
            }
        }
        here = here.and_then(|v| super::fold::child(v, *i));
    }
    out
}

/// The same path for a JSON Pointer (RFC 6901); whether a number names an element or a member, the pointer does not say.
pub fn of_pointer(pointer: &str) -> String {
    let mut out = String::from("$");
    for token in pointer.split('/').skip(1) {
        if !token.is_empty() && token.bytes().all(|b| b.is_ascii_digit()) {
            let _ = write!(out, "[{token}]");
        } else {
            member(&mut out, &token.replace("~1", "/").replace("~0", "~"));
        }
    }
    out
}

fn member(out: &mut String, name: &str) {
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if first && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        let _ = write!(out, ".{name}");
        return;
    }
    out.push_str("['");
    for c in name.chars() {
        match c {
            '\'' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if visible(c.encode_utf8(&mut [0; 4])) != c.to_string() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push_str("']");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_short_where_they_can_be_and_harmless_always() {
        let value = json!({"a": {"b c": [0, 1, {"it's\\": {"\u{202e}\n\u{e0041}é": 1}}]}});
        assert_eq!(
            json_path(&value, &vec![0, 0, 2, 0, 0]),
            r"$.a['b c'][2]['it\'s\\']['\n\u202e\udb40\udc41é']".replace(r"\n\u202e", r"\u202e\n")
        );
        assert_eq!(json_path(&value, &vec![]), "$");
        assert_eq!(json_path(&json!({"": 1}), &vec![0]), "$['']");
        assert_eq!(of_pointer("/content/0/te~1xt"), "$.content[0]['te/xt']");
        assert_eq!(of_pointer(""), "$");
    }
}
