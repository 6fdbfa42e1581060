//! JSON with comments.

use super::{Extra, Fault, MARK};
use crate::clients::tree::{Kind, Member, Node, Span};
use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{ObjectPropName, Value},
    common::Range,
    parse_to_ast,
};

/// Comments and trailing commas, and nothing else that strict JSON has not.
const JSONC: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

pub fn read(text: &str, mark: usize) -> Result<Option<Node>, Fault> {
    let body = &text[mark..];
    let parsed = parse_to_ast(body, &CollectOptions::default(), &JSONC)
        .map_err(|e| Fault::at(text, e.range().start + mark, format!("not JSON: {}", e.kind()).to_lowercase()))?;
    Ok(parsed.value.map(|value| node(value, mark)))
}

fn node(value: Value<'_>, mark: usize) -> Node {
    let span = |range: Range| -> Span { range.start + mark..range.end + mark };
    match value {
        Value::StringLit(lit) => Node::new(span(lit.range), Kind::Text(lit.value.into_owned())),
        Value::NumberLit(lit) => Node::new(span(lit.range), Kind::Other(lit.value.to_owned())),
        Value::BooleanLit(lit) => Node::new(span(lit.range), Kind::Flag(lit.value)),
        Value::NullKeyword(lit) => Node::new(span(lit.range), Kind::Null),
        Value::Array(list) => {
            let items = list.elements.into_iter().map(|item| node(item, mark)).collect();
            Node::new(span(list.range), Kind::List(items))
        }
        Value::Object(object) => {
            let member = |prop: jsonc_parser::ast::ObjectProp<'_>| {
                let at = match &prop.name {
                    ObjectPropName::String(lit) => span(lit.range),
                    ObjectPropName::Word(lit) => span(lit.range),
                };
                Member { key: prop.name.into_string(), at, value: node(prop.value, mark) }
            };
            Node::new(span(object.range), Kind::Map(object.properties.into_iter().map(member).collect()))
        }
    }
}

pub fn has_extra(text: &str, extra: Extra) -> Option<Fault> {
    let body = text.trim_start_matches(MARK);
    let mark = text.len() - body.len();
    let (options, what) = match extra {
        Extra::Comments if !body.contains('/') => return None,
        Extra::Comments => (ParseOptions { allow_comments: false, ..JSONC }, "a comment"),
        Extra::TrailingCommas => {
            (ParseOptions { allow_trailing_commas: false, ..JSONC }, "a comma behind the last one")
        }
        Extra::Mark => return None,
    };
    let error = parse_to_ast(body, &CollectOptions::default(), &options).err()?;
    // What is no JSON at all has been said already.
    parse_to_ast(body, &CollectOptions::default(), &JSONC).ok()?;
    Some(Fault::at(text, error.range().start + mark, what))
}
