//! `Mcp-Param-*`: arguments of a tool call that its schema asks to be repeated in headers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use serde_json::Value;
use std::collections::HashMap;

/// Schemas are walked this deep.
const DEEPEST: usize = 32;

/// What the tools of a server ask for, as its `tools/list` answers said last.
#[derive(Debug, Default)]
pub(super) struct Params {
    tools: HashMap<String, Vec<Param>>,
}

/// One annotated parameter: where its value is in the arguments, and its header.
#[derive(Debug, PartialEq, Eq)]
struct Param {
    path: Vec<String>,
    header: HeaderName,
}

impl Params {
    /// Takes the result of a `tools/list` request. A page that continues another adds to it.
    pub(super) fn learn(&mut self, result: &Value, continues: bool) {
        if !continues {
            self.tools.clear();
        }
        for tool in result.get("tools").and_then(Value::as_array).into_iter().flatten() {
            let Some(name) = tool.get("name").and_then(Value::as_str) else { continue };
            let mut found = Vec::new();
            if let Some(schema) = tool.get("inputSchema") {
                walk(schema, &mut Vec::new(), &mut found);
            }
            self.tools.insert(name.to_owned(), found);
        }
    }

    /// The headers of a call of this tool.
    pub(super) fn headers(&self, tool: &str, arguments: &Value) -> Vec<(HeaderName, HeaderValue)> {
        let params = self.tools.get(tool).map(Vec::as_slice).unwrap_or_default();
        let header = |param: &Param| {
            let value = param.path.iter().try_fold(arguments, |at, name| at.get(name))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(yes) => yes.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((param.header.clone(), header_value(&text)?))
        };
        params.iter().filter_map(header).collect()
    }
}

fn walk(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Param>) {
    if path.len() >= DEEPEST {
        return;
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        path.push(name.clone());
        let asked = property.get("x-mcp-header").and_then(Value::as_str);
        let header = asked.and_then(|asked| HeaderName::from_bytes(format!("Mcp-Param-{asked}").as_bytes()).ok());
        // Of two parameters that want the same header the first by name has it.
        if let Some(header) = header.filter(|header| found.iter().all(|p| p.header != header)) {
            found.push(Param { path: path.clone(), header });
        }
        walk(property, path, found);
        path.pop();
    }
}

/// A text as a header value: as it is, or in the base64 form where a header could not carry it, or would be taken for
/// that form.
pub(super) fn header_value(text: &str) -> Option<HeaderValue> {
    let is_plain = text.bytes().all(|b| matches!(b, b' '..=b'~'))
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if is_plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", STANDARD.encode(text))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(params: &Params, tool: &str, arguments: &Value) -> Vec<String> {
        let show = |(name, value): &(HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        params.headers(tool, arguments).iter().map(show).collect()
    }

    fn schema() -> Value {
        json!({"tools": [{"name": "sql", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "sure": {"type": "boolean", "x-mcp-header": "Sure"},
            "options": {"type": "object", "properties": {"limit": {"type": "integer", "x-mcp-header": "Limit"}}},
            "bad": {"type": "string", "x-mcp-header": "Not A Token"},
            "zone": {"type": "string", "x-mcp-header": "region"},
            "plain": {"type": "string"},
        }}}]})
    }

    #[test]
    fn annotated_arguments_are_repeated_in_headers() {
        let mut params = Params::default();
        params.learn(&schema(), false);
        let all = json!({"region": "eu", "sure": false, "options": {"limit": 10}, "bad": "x", "plain": "y"});
        let mut headers = sent(&params, "sql", &all);
        headers.sort();
        assert_eq!(headers, ["mcp-param-limit: 10", "mcp-param-region: eu", "mcp-param-sure: false"]);
        assert!(sent(&params, "sql", &json!({"region": null, "options": 1})).is_empty());
        assert!(sent(&params, "sql", &json!({"region": {"a": 1}, "sure": []})).is_empty());
        assert!(sent(&params, "other", &all).is_empty());
    }

    #[test]
    fn pages_add_up_and_a_new_list_begins_anew() {
        let mut params = Params::default();
        params.learn(&schema(), false);
        params.learn(&json!({"tools": [{"name": "x"}]}), true);
        assert_eq!(sent(&params, "sql", &json!({"region": "eu"})).len(), 1);
        params.learn(&json!({"tools": [{"name": "x"}]}), false);
        assert!(sent(&params, "sql", &json!({"region": "eu"})).is_empty());
    }

    #[test]
    fn values_that_a_header_cannot_carry_are_in_base64() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("a b", "a b"),
            ("", ""),
            (" a", "=?base64?IGE=?="),
            ("a\tb", "=?base64?YQli?="),
            ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
            ("é", "=?base64?w6k=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(header_value(text).unwrap().to_str().unwrap(), value, "{text:?}");
        }
    }
}
