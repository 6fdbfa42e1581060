//! What matching a pattern may take, wherever a policy has one.

use super::{super::eval::MAX_TOOL, *};
use serde_json::{Value, json};

/// Costs many visits for each byte of a text in which no two places look alike.
const SLOW: &str = "[a-h][a-z ]{1000}q";

fn text(bytes: usize) -> String {
    let mut random = 1u64;
    let mut letter = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        b"abcdefgh ijklm"[(random >> 33) as usize % 14] as char
    };
    (0..bytes).map(|_| letter()).collect()
}

/// The reason for a call of `t`, whose constraint this is.
fn reason(constraint: &Value, arguments: &Value) -> &'static str {
    let mut e = evaluator(&format!("version: \"1\"\ndefault: allow\nconstraints: {{t: {constraint}}}\n"));
    decide(&mut e, "t", Arguments::Raw(arguments.to_string().as_bytes())).reason.as_str()
}

#[test]
fn both_sides_of_what_a_pattern_may_take() {
    let value = |text: &str| json!({"v": text});
    let member = |text: &str| json!({text: 1});
    let many =
        |text: &str| json!({"v": text.as_bytes().chunks(500).map(|c| String::from_utf8_lossy(c)).collect::<Vec<_>>()});
    let deny = json!({"deny_patterns": ["x9", SLOW]});
    let schema = json!({"arguments": {"properties": {"v": {"not": {"pattern": SLOW}}}}});
    let items = json!({"arguments": {"properties": {"v": {"items": {"not": {"pattern": SLOW}}}}}});
    let names = json!({"arguments": {"patternProperties": {SLOW: false}}});
    let all_names = json!({"arguments": {"propertyNames": {"not": {"pattern": SLOW}}}});
    for (constraint, arguments) in [
        (&deny, &value as &dyn Fn(&str) -> Value),
        (&deny, &member),
        (&deny, &many),
        (&schema, &value),
        (&items, &many),
        (&names, &member),
        (&all_names, &member),
    ] {
        assert_eq!(reason(constraint, &arguments(&text(2_000))), "default", "{constraint}");
        assert_eq!(reason(constraint, &arguments(&text(400_000))), "arguments_too_costly", "{constraint}");
        // It is the text that makes it slow.
        assert_eq!(reason(constraint, &arguments(&"a".repeat(400_000))), "default", "{constraint}");
    }
}

#[test]
fn what_matches_is_found_before_anything_is_too_costly() {
    let constraint = json!({"deny_patterns": [SLOW, "secret"]});
    assert_eq!(reason(&constraint, &json!({"v": "a secret", "w": text(400_000)})), "constraint:deny_patterns");
}

#[test]
fn names_of_members_are_matched_as_the_crate_does() {
    let constraint = json!({"arguments": {"patternProperties": {"^\\w{3,200}$": false}}});
    let long = "é".repeat(150);
    assert_eq!(reason(&constraint, &json!({"ab": 1})), "default");
    // `\w` of JSON Schema is of ASCII.
    assert_eq!(reason(&constraint, &json!({long: 1})), "default");
    assert_eq!(reason(&constraint, &json!({"a".repeat(150): 1})), "constraint:arguments");
}

#[test]
fn a_tool_whose_name_is_too_long_is_denied() {
    let mut e = evaluator("version: \"1\"\ndefault: allow\ndenylist: ['*????????????????????????????????q']\n");
    let r = decide(&mut e, &"a".repeat(MAX_TOOL), Arguments::Absent);
    assert_eq!(r.reason.as_str(), "default");
    let r = decide(&mut e, &"a".repeat(MAX_TOOL + 1), Arguments::Absent);
    assert_eq!((r.reason.as_str(), r.verdict), ("arguments_too_costly", Verdict::Denied));
}
