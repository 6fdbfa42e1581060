//! Files that are not policies, and where they say so.

use super::*;

/// File, line, column, and words of the message.
const BAD: &[(&str, usize, usize, &str)] = &[
    ("", 1, 1, "the file is empty"),
    ("# nothing\n", 1, 1, "the file is empty"),
    ("- a\n", 1, 1, "expected a mapping"),
    ("version: \"1\"\n", 1, 1, "`default` is missing"),
    ("default: deny\n", 1, 1, "`version` is missing"),
    ("version: 1\ndefault: deny\n", 1, 10, "a number, expected a string"),
    ("version: \"0\"\ndefault: deny\n", 1, 10, "this version is unknown"),
    ("version: \"2\"\ndefault: deny\n", 1, 10, "this policy is of version 2; this assay reads up to 1: too new"),
    ("version: \"1.1\"\ndefault: deny\n", 1, 10, "this policy is of version 1.1"),
    ("version: \"2\"\ntools: {}\n", 1, 10, "this policy is of version 2"),
    ("version: \"1\"\ndefault: denied\n", 2, 10, "expected deny or allow"),
    ("version: \"1\"\ndefault: true\n", 2, 10, "a boolean, expected deny or allow"),
    ("version: \"1\"\ndefault:\n", 2, 8, "nothing, expected deny or allow"),
    ("version: \"1\"\ndefault: deny\nalowlist: [a]\n", 3, 1, "unknown key `alowlist`"),
    ("version: \"1\"\ndefault: deny\nallowlist: a\n", 3, 12, "expected a list"),
    ("version: \"1\"\ndefault: deny\nallowlist: [a, 7]\n", 3, 16, "a number, expected a string"),
    ("version: \"1\"\ndefault: deny\nallowlist: [a, true]\n", 3, 16, "a boolean, expected a string"),
    ("version: \"1\"\ndefault: deny\nallowlist:\n  - a\n  -\n", 5, 4, "nothing, expected a string"),
    ("version: \"1\"\ndefault: deny\nallowlist: [\"\"]\n", 3, 13, "an empty tool name"),
    ("version: \"1\"\ndefault: deny\nallowlist: [\"a[\"]\n", 3, 13, "bad glob"),
    ("version: \"1\"\ndefault: deny\nallowlist: [\"a{b\"]\n", 3, 13, "bad glob"),
    ("version: \"1\"\ndefault: deny\ndefault: allow\n", 3, 1, "`default` occurs twice, first in line 2"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a:\n    max_calls: 1\n    max_calls: 2\n", 6, 5, "occurs twice"),
    ("version: \"1\"\ndefault: deny\nconstraints: {a: {max_calls: 1}, \"a\": {max_calls: 2}}\n", 3, 34, "occurs twice"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {}\n", 4, 3, "has no constraints"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a:\n", 4, 4, "nothing, expected a mapping"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {max_calls: -1}\n", 4, 18, "must be a whole number"),
    ("version: \"1\"\ndefault: deny\nconstraints:\n  a: {max_calls: 1.5}\n", 4, 18, "must be a whole number"),
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
    ("version: \"1\"\ndefault: deny\n? [a]\n: b\n", 3, 3, "this key is not text"),
    ("version: \"1\"\ndefault: deny\n---\nversion: \"1\"\n", 3, 1, "a second YAML document"),
    ("version: \"1\"\ndefault: deny\nallowlist: [a\n", 4, 1, "not YAML"),
    ("version: \"1\"\n default: deny\n", 2, 2, "not YAML"),
    ("version: \"1\ndefault: deny\n", 1, 10, "not YAML"),
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

#[test]
fn what_is_big_deep_or_multiplies_is_refused_at_once() {
    let deep = "{a: ".repeat(5000);
    let stairs: String = (0..1200).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let lists: String = (0..400).map(|n| format!("{}-\n", " ".repeat(n))).collect();
    let dashes = "- ".repeat(5000);
    let mut laughs = "a: &a [l,l,l,l,l,l,l,l,l]\n".to_owned();
    for n in 0..20 {
        laughs.push_str(&format!("b{n}: &b{n} [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"));
    }
    let long = format!("version: \"1\"\ndefault: deny\n# {}", "x".repeat(1 << 20));
    let key = "k".repeat(100_000);
    let merge = "version: \"1\"\ndefault: deny\nx: &x {}\n<<: *x\n".to_owned();
    for (text, words) in [
        (deep, "nested deeper"),
        ("[".repeat(5000), "nested deeper"),
        (stairs, "nested deeper"),
        (lists, "nested deeper"),
        (dashes, "nested deeper"),
        (laughs, "an anchor"),
        (merge, "an anchor"),
        (long, "longer than 1 MiB"),
        (format!("{key}: 1\n"), "no"),
        ("\u{feff}\u{feff}".to_owned(), "p.yaml"),
        ("a\0b: c".to_owned(), "p.yaml"),
        ("%YAML 9.9\n---\na: b".to_owned(), "p.yaml"),
    ] {
        let started = std::time::Instant::now();
        let e = Policy::parse(text.as_bytes(), "p.yaml").unwrap_err().to_string();
        assert!(e.contains(words), "{}: {e}", &text[..text.floor_char_boundary(40)]);
        assert!(e.len() < 2000, "{e}");
        // No wall-clock assertion of speed, but of that it ends.
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    let e = Policy::parse(b"version: \"1\"\ndefault: \xff\n", "p.yaml").unwrap_err();
    assert_eq!((e.line, e.column), (Some(2), Some(10)), "{e}");
}

#[test]
fn only_a_regular_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0).unwrap();
    let file = dir.path().join("p.yaml");
    std::fs::write(&file, "version: \"1\"\ndefault: deny\n").unwrap();
    let link = dir.path().join("link.yaml");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for (path, words) in [
        (dir.path().to_owned(), "it is a directory"),
        (fifo, "not a regular file"),
        (dir.path().join("nothing"), "no such file"),
        ("/dev/zero".into(), "not a regular file"),
    ] {
        let e = Policy::load(&path).unwrap_err();
        assert!(e.to_string().contains(words), "{e}");
        assert_eq!(e.path, path);
    }
    let policy = Policy::load(&link).unwrap();
    assert_eq!(policy.source(), std::fs::read(&file).unwrap());
    assert_eq!(policy.hash(), format!("sha256:{}", crate::canon::sha256_hex(policy.source())));
}

#[test]
fn an_error_shows_the_place_in_wide_and_hostile_text() {
    let text = "version: \"1\"\ndefault: deny\nallowlist: [\"日本\u{1b}[31m\", 7]\n";
    let e = Policy::parse(text.as_bytes(), "p\u{1b}.yaml").unwrap_err().to_string();
    assert!(!e.contains('\u{1b}'), "{e:?}");
    let text = "version: \"1\"\ndefault: deny\nallowlist: [\"日本\", 7]\n";
    let e = Policy::parse(text.as_bytes(), "p.yaml").unwrap_err().to_string();
    let lines: Vec<&str> = e.lines().collect();
    assert_eq!(lines[1], "  3 | allowlist: [\"日本\", 7]");
    assert_eq!(lines[2], "    |                     ^");
    assert_eq!(lines[3], "  hint: put it in quotes");
    let long = format!("version: \"1\"\ndefault: deny\nallowlist: [{}7]\n", "a, ".repeat(5000));
    let e = Policy::parse(long.as_bytes(), "p.yaml").unwrap_err().to_string();
    assert!(e.len() < 500 && e.contains('^'), "{e}");
}

#[test]
fn the_seeds_policy_loads() {
    let text = include_str!("../../../tests/data/policy/seed.yaml");
    let policy = Policy::parse(text.as_bytes(), "p.yaml").unwrap();
    assert_eq!(policy.rules().allow.texts(), ["web_search", "web_fetch", "read_file"]);
    assert_eq!(policy.rules().deny.texts(), ["shell_exec", "file_delete"]);
    assert!(policy.notes().is_empty());
}

/// Shape of assay-ai: policy, tool, arguments, verdict and reason as ours; assay-ai's verdict is the same.
const COMPAT: &[(&str, &str, &str, &str)] = &[
    ("tools: {}", "anything", "{}", "default"),
    ("mode: enforce", "anything", "{}", "default"),
    ("tools: {deny: [a]}", "a", "{}", "denylist"),
    ("tools: {deny: ['a*']}", "abc", "{}", "denylist"),
    ("tools: {deny: ['a*']}", "b", "{}", "default"),
    ("tools: {deny: ['{a,b}']}", "a", "{}", "default"),
    ("tools: {deny: ['{a,b}']}", "{a,b}", "{}", "denylist"),
    ("tools: {deny: ['{a,b}*']}", "{a,b}c", "{}", "denylist"),
    ("tools: {deny: ['a[!b]']}", "ac", "{}", "denylist"),
    ("tools: {deny: ['a[!b]']}", "ab", "{}", "default"),
    ("tools: {deny: ['a[b']}", "a[b", "{}", "denylist"),
    ("tools: {deny: ['a[]b]']}", "a]", "{}", "denylist"),
    ("tools: {deny: ['a\\*']}", "a\\b", "{}", "denylist"),
    ("tools: {deny: ['a\\*']}", "a*", "{}", "default"),
    ("tools: {default: deny}", "a", "{}", "not_in_allowlist"),
    ("tools: {default: deny, allow: [a]}", "a", "{}", "allowlist"),
    ("tools: {default: deny, allow: ['*']}", "a/b", "{}", "allowlist"),
    ("tools: {default: allow, allow: [a]}", "b", "{}", "default"),
    ("tools: {default: deny, allow: [a], deny: [a]}", "a", "{}", "denylist"),
    ("tools: {constraints: {a: {max_calls: 0}}}", "a", "{}", "constraint:max_calls"),
    ("tools: {constraints: {'a*': {max_calls: 0}}}", "ab", "{}", "default"),
    (
        "tools: {constraints: {a: {deny_patterns: [SECRET]}}}",
        "a",
        r#"{"x":{"y":["my secret"]}}"#,
        "constraint:deny_patterns",
    ),
    ("tools: {constraints: {a: {deny_patterns: [secret]}}}", "a", r#"{"SECRET":1}"#, "constraint:deny_patterns"),
    ("tools: {constraints: {a: {deny_patterns: [secret]}}}", "b", r#"{"x":"secret"}"#, "default"),
    ("tools: {constraints: {a: {deny_patterns: null, max_calls: null}}}", "a", "{}", "default"),
    ("tools:\nbudget: {max_tool_calls: 0}", "a", "{}", "budget:max_tool_calls"),
    ("tools:\nbudget: {max_tool_calls: null}", "a", "{}", "default"),
    ("server_id: s\nmode: audit\nstore_args: true\nauto_pack: false\naudit_dir: x\nversion: 1", "a", "{}", "default"),
];

#[test]
fn assay_ais_own_shape_is_understood() {
    for (policy, tool, arguments, reason) in COMPAT {
        let mut e = evaluator(policy);
        let r = decide(&mut e, tool, Arguments::Raw(arguments.as_bytes()));
        assert_eq!(r.reason.as_str(), *reason, "{policy} {tool} {arguments}");
        assert!(e.policy().notes()[0].text.contains("assay-ai"), "{policy}");
    }
    let policy = Policy::parse(b"mode: enforce\nserver_id: s\ntools: {default: allow, allow: [a]}\n", "p").unwrap();
    let notes: Vec<&str> = policy.notes().iter().map(|n| n.text.as_str()).collect();
    for words in ["--profile guard", "--server-id", "restricts nothing"] {
        assert!(notes.iter().any(|n| n.contains(words)), "{words}: {notes:?}");
    }
}

#[test]
fn rules_are_found_where_they_stand() {
    let native = "version: \"1\"\ndefault: deny\nallowlist: [a,\n  b]\ndenylist:\n  - x\n  - \"y*\"\nconstraints:\n  a.b:\n    \
                  max_calls: 1\n  a:\n    deny_patterns:\n      - 'p'\n      - 'q'\n    allowed_paths:\n      - /x\nbudget:\n  \
                  max_tool_calls: 5\n";
    let theirs = "tools:\n  default: deny\n  deny:\n    - x\n  constraints:\n    a:\n      max_calls: 1\n";
    let cases = [
        (
            native,
            vec![
                ("default", Some(2)),
                ("allowlist[0] (a)", Some(3)),
                ("allowlist[1] (b)", Some(4)),
                ("denylist[1] (y*)", Some(7)),
                ("constraints.a.b", Some(9)),
                ("constraints.a.b.max_calls", Some(10)),
                ("constraints.a.deny_patterns[1]", Some(14)),
                ("constraints.a.allowed_paths", Some(15)),
                ("budget.max_tool_calls", Some(18)),
                ("denylist[7] (z)", None),
                ("tool name", None),
                ("policy", None),
            ],
        ),
        (
            theirs,
            vec![
                ("tools.default", Some(2)),
                ("tools.deny[0] (x)", Some(4)),
                ("tools.constraints.a.max_calls", Some(7)),
            ],
        ),
    ];
    for (text, rules) in cases {
        let policy = Policy::parse(text.as_bytes(), "p.yaml").unwrap();
        let found = policy.lines(rules.iter().map(|(rule, _)| *rule));
        for (rule, line) in &rules {
            assert_eq!(found.get(rule).copied(), *line, "{rule}");
        }
    }
}
