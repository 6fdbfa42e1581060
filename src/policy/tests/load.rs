//! Files that are no policies, and where they say so.

use super::*;

/// File, line, column, and words of the message.
const BAD: &[(&str, usize, usize, &str)] = &[
    ("", 1, 1, "the file is empty"),
    ("# nothing\n", 1, 1, "the file is empty"),
    ("- a\n", 1, 1, "expected a mapping"),
    ("version: \"1\"\n", 1, 1, "`default` is missing"),
    ("default: deny\n", 1, 1, "`version` is missing"),
    ("version: 1\ndefault: deny\n", 1, 10, "a number, expected a string"),
    ("version: \"2\"\ndefault: deny\n", 1, 10, "this version is not known"),
    ("version: \"1\"\ndefault: denied\n", 2, 10, "expected deny or allow"),
    ("version: \"1\"\ndefault: true\n", 2, 10, "a truth value, expected deny or allow"),
    ("version: \"1\"\ndefault:\n", 2, 9, "nothing, expected deny or allow"),
    ("version: \"1\"\ndefault: deny\nalowlist: [a]\n", 3, 1, "unknown key `alowlist`"),
    ("version: \"1\"\ndefault: deny\nallowlist: a\n", 3, 12, "expected a list"),
    ("version: \"1\"\ndefault: deny\nallowlist: [a, 7]\n", 3, 16, "a number, expected a string"),
    ("version: \"1\"\ndefault: deny\nallowlist: [a, true]\n", 3, 16, "a truth value, expected a string"),
    ("version: \"1\"\ndefault: deny\nallowlist:\n  - a\n  -\n", 5, 4, "nothing, expected a string"),
    ("version: \"1\"\ndefault: deny\nallowlist: [\"\"]\n", 3, 13, "an empty tool name"),
    ("version: \"1\"\ndefault: deny\nallowlist: [\"a[\"]\n", 3, 13, "bad glob"),
    ("version: \"1\"\ndefault: deny\nallowlist: [\"a{b\"]\n", 3, 13, "bad glob"),
    ("version: \"1\"\ndefault: deny\ndefault: allow\n", 3, 1, "`default` is there twice, first in line 2"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    max_calls: 1\n    max_calls: 2\n", 6, 5, "there twice"),
    ("version: \"1\"\ndefault: deny\nconstraints: {a: {max_calls: 1}, \"a\": {max_calls: 2}}\n", 3, 34, "there twice"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {}\n", 4, 3, "no constraint in it"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a:\n", 4, 5, "nothing, expected a mapping"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {max_calls: -1}\n", 4, 18, "no whole number"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {max_calls: 1.5}\n", 4, 18, "no whole number"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {max_calls: \"1\"}\n", 4, 18, "a string, expected a whole"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {deny_private_hosts: yes}\n", 4, 27, "expected true or false"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {allowed_path: [\"/x\"]}\n", 4, 7, "unknown key"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {allowed_paths: [\"!/x\"]}\n", 4, 22, "only excludes"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {allowed_paths: [\"/x/../y\"]}\n", 4, 23, "bad path pattern"),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a: {allowed_paths: [\"/x\", \"~you/y\"]}\n",
        4,
        29,
        "another user",
    ),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {allowed_paths: [\"/x[\"]}\n", 4, 23, "bad path pattern"),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    deny_patterns: [\"a\", \"(b\"]\n",
        5,
        26,
        "bad regular expression: unclosed group",
    ),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {deny_patterns: [\"(?=a)\"]}\n", 4, 23, "look-around"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {deny_patterns: ['(a)\\1']}\n", 4, 23, "backreferences"),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a: {deny_patterns: ['\\p{Nope}']}\n",
        4,
        23,
        "bad regular expression",
    ),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {deny_patterns: ['((a{100}){100}){100}']}\n", 4, 23, "too big"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    arguments: {type: strnig}\n", 5, 23, "bad JSON Schema"),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    arguments: {properties: {x: {minimum: a}}}\n",
        5,
        43,
        "bad JSON Schema",
    ),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    arguments: {properties: {x: {pattern: '(?=a)'}}}\n",
        5,
        1,
        "bad JSON Schema",
    ),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    arguments: {$ref: \"http://127.0.0.1/x\"}\n",
        5,
        1,
        "bad JSON Schema",
    ),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    arguments: {$ref: \"file:///etc/passwd\"}\n",
        5,
        1,
        "bad JSON Schema",
    ),
    (
        "version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    arguments: {$ref: \"#/nowhere\"}\n",
        5,
        1,
        "bad JSON Schema",
    ),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {arguments: true}\n", 4, 18, "expected a JSON Schema"),
    ("version: \"1\"\ndefault: deny\nbudget: {max_tool_call: 1}\n", 3, 10, "unknown key"),
    ("version: \"1\"\ndefault: deny\nbudget: {max_tool_calls: lots}\n", 3, 26, "expected a whole number"),
    ("version: \"1\"\ndefault: deny\nbudget: 7\n", 3, 9, "expected a mapping"),
    ("version: \"1\"\ndefault:\tdeny\n", 2, 9, "a tab"),
    ("version: \"1\"\ndefault: deny\nallowlist:\n\t- a\n", 4, 1, "a tab"),
    ("version: \"1\"\ndefault: deny\nallowlist: [!**/.env]\n", 3, 13, "tag"),
    ("version: \"1\"\ndefault: deny\nallowlist: [*x]\n", 3, 13, "alias"),
    ("version: \"1\"\ndefault: deny\nallowlist: &a [x]\ndenylist: *a\n", 3, 12, "anchor"),
    ("version: \"1\"\ndefault: deny\n? [a]\n: b\n", 3, 3, "a key that is no text"),
    ("version: \"1\"\ndefault: deny\n---\nversion: \"1\"\n", 3, 1, "a second document"),
    ("version: \"1\"\ndefault: deny\nallowlist: [a\n", 4, 1, "not YAML"),
    ("version: \"1\"\n default: deny\n", 2, 9, "not YAML"),
    ("version: \"1\ndefault: deny\n", 3, 1, "not YAML"),
    // assay-ai's shape.
    ("tools: [a]\n", 1, 8, "expected a mapping"),
    ("mode: guard\n", 1, 7, "neither audit nor enforce"),
    ("tools: {default: maybe}\n", 1, 18, "expected deny or allow"),
    ("tools: {alow: [a]}\n", 1, 9, "unknown key `alow`"),
    ("tools: {constraints: {a: {deny_private_hosts: true}}}\n", 1, 27, "unknown key"),
    ("tools: {}\nversion: \"1\"\nsurprise: 1\n", 3, 1, "unknown key"),
];

#[test]
fn what_is_wrong_is_said_at_its_place() {
    let mut wrong = Vec::new();
    for (text, line, column, words) in BAD {
        match Policy::parse(text.as_bytes(), "p.yaml") {
            Ok(_) => wrong.push(format!("{text:?} loads")),
            Err(e) => {
                let said = e.to_string();
                // Column 1 stands for "somewhere in this line" where the place is a library's.
                let place = e.line == Some(*line) && (e.column == Some(*column) || (*column == 1 && *line == 5));
                if !place || !said.contains(words) || !said.starts_with("p.yaml:") || !said.contains('^') {
                    wrong.push(format!("{text:?} wants {line}:{column} {words}\n{said}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
