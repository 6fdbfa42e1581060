//! Precedence, the other constraints, budgets, and what is not stored.

use super::*;

/// Rules (`version` is added), calls one after the other as `tool arguments=reason`, `-` for absent arguments and `?` for
/// such that were not stored.
const SEQUENCES: &[(&str, &[&str])] = &[
    // Precedence.
    ("default: allow", &["a -=default", "a {}=default"]),
    ("default: deny", &["a -=not_in_allowlist"]),
    ("default: deny\nallowlist: [a]", &["a -=allowlist", "b -=not_in_allowlist"]),
    ("default: allow\nallowlist: [a]", &["a -=allowlist", "b -=default"]),
    ("default: allow\ndenylist: [a]", &["a -=denylist", "b -=default"]),
    ("default: deny\nallowlist: [a]\ndenylist: [a]", &["a -=denylist"]),
    ("default: allow\nallowlist: ['*']\ndenylist: ['*']", &["a -=denylist"]),
    ("default: deny\nallowlist: [a]\nconstraints: {a: {max_calls: 0}}", &["a -=constraint:max_calls"]),
    ("default: deny\nconstraints: {a: {max_calls: 9}}", &["a -=not_in_allowlist"]),
    ("default: allow\nconstraints: {a: {max_calls: 0}}", &["a -=constraint:max_calls", "b -=default"]),
    ("default: allow\ndenylist: [a]\nconstraints: {a: {max_calls: 0}}", &["a -=denylist"]),
    (
        "default: deny\nconstraints: {a: {max_calls: 0}}\nbudget: {max_tool_calls: 0}",
        &["a -=constraint:max_calls", "b -=not_in_allowlist"],
    ),
    ("default: allow\nbudget: {max_tool_calls: 0}", &["a -=budget:max_tool_calls"]),
    ("default: deny\nallowlist: [a]\nbudget: {max_tool_calls: 0}", &["a -=budget:max_tool_calls"]),
    // Several constraints: all must hold, the first that fails is named.
    (
        "default: allow\nconstraints: {'a*': {deny_patterns: [x]}, ab: {deny_patterns: [y]}}",
        &[
            "ab {\"q\":\"x\"}=constraint:deny_patterns",
            "ab {\"q\":\"y\"}=constraint:deny_patterns",
            "ab {\"q\":\"z\"}=default",
            "ac {\"q\":\"y\"}=default",
        ],
    ),
    (
        "default: allow\nconstraints: {ab: {max_calls: 1}, 'a*': {max_calls: 2}}",
        &[
            "ab -=default",
            "ab -=constraint:max_calls",
            "ac -=default",
            "ac -=constraint:max_calls",
            "ad -=constraint:max_calls",
            "b -=default",
        ],
    ),
    // Counts.
    (
        "default: allow\nconstraints: {a: {max_calls: 2}}",
        &[
            "a -=default",
            "b -=default",
            "a -=default",
            "a -=constraint:max_calls",
            "b -=default",
            "a -=constraint:max_calls",
        ],
    ),
    (
        "default: allow\nbudget: {max_tool_calls: 2}",
        &["a -=default", "b -=default", "a -=budget:max_tool_calls", "c -=budget:max_tool_calls"],
    ),
    (
        "default: deny\nallowlist: [a]\nbudget: {max_tool_calls: 1}",
        &[
            "b -=not_in_allowlist",
            "b -=not_in_allowlist",
            "a -=allowlist",
            "a -=budget:max_tool_calls",
            "b -=not_in_allowlist",
        ],
    ),
    (
        "default: allow\ndenylist: [d]\nconstraints: {a: {max_calls: 1, deny_patterns: [x]}}",
        &[
            "a {\"q\":\"x\"}=constraint:deny_patterns",
            "a {\"q\":\"y\"}=default",
            "a {\"q\":\"y\"}=constraint:max_calls",
            "d -=denylist",
        ],
    ),
    // Patterns.
    (
        "default: allow\nconstraints: {a: {deny_patterns: ['secret', '(?i)token', '^rm ', '\\bsudo\\b', 'é']}}",
        &[
            "a -=default",
            "a {}=default",
            "a []=default",
            "a null=default",
            "a \"secret\"=constraint:deny_patterns",
            "a {\"q\":\"a secret here\"}=constraint:deny_patterns",
            "a {\"q\":\"SECRET\"}=default",
            "a {\"q\":\"my TOKEN\"}=constraint:deny_patterns",
            "a {\"secret\":1}=constraint:deny_patterns",
            "a {\"x\":{\"y\":[[{\"z\":[\"secret\"]}]]}}=constraint:deny_patterns",
            "a {\"x\":{\"y\":[[{\"secret\":[]}]]}}=constraint:deny_patterns",
            "a {\"q\":\"\\u0073ecret\"}=constraint:deny_patterns",
            "a {\"\\u0073ecret\":1}=constraint:deny_patterns",
            "a {\"q\":\"sec\\nret\"}=default",
            "a {\"q\":\"rm -rf /\"}=constraint:deny_patterns",
            "a {\"q\":\"farm -rf\"}=default",
            "a {\"q\":\"x sudo y\"}=constraint:deny_patterns",
            "a {\"q\":\"pseudosudo\"}=default",
            "a {\"q\":\"caf\\u00e9\"}=constraint:deny_patterns",
            "a {\"q\":\"sec\",\"r\":\"ret\"}=default",
            "a {\"q\":\"ok\",\"q\":\"secret\"}=constraint:deny_patterns",
            "a {\"q\":\"secret\",\"q\":\"ok\"}=constraint:deny_patterns",
            "a {\"n\":123,\"b\":true,\"z\":null}=default",
            "a {\"q\":\"\\ud800\"}=arguments_unreadable",
            "a {\"q\":1e999}=arguments_unreadable",
            "a {\"q\":=arguments_unreadable",
            "a {} {}=arguments_unreadable",
            "a =arguments_unreadable",
            "b {\"q\":\"secret\"}=default",
        ],
    ),
    (
        "default: allow\nconstraints: {a: {deny_patterns: ['127']}}",
        &["a {\"n\":127}=default", "a {\"n\":\"127\"}=constraint:deny_patterns"],
    ),
    ("default: allow\nconstraints: {a: {deny_patterns: []}}", &["a {\"q\":\"x\"}=default"]),
    (
        "default: allow\nconstraints: {a: {deny_patterns: ['']}}",
        &["a {}=default", "a {\"q\":1}=constraint:deny_patterns"],
    ),
    // Schemas.
    (
        "default: allow\nconstraints: {a: {arguments: {type: object, required: [q], additionalProperties: false, properties: {q: {type: string, maxLength: 3, pattern: '^[a-z]+$'}}}}}",
        &[
            "a -=constraint:arguments",
            "a {}=constraint:arguments",
            "a {\"q\":\"abc\"}=default",
            "a {\"q\":\"abcd\"}=constraint:arguments",
            "a {\"q\":\"ABC\"}=constraint:arguments",
            "a {\"q\":7}=constraint:arguments",
            "a {\"q\":\"a\",\"r\":1}=constraint:arguments",
            "a []=constraint:arguments",
            "a null=constraint:arguments",
            "a {\"q\":\"\\u0061\"}=default",
            "a {\"q\":=arguments_unreadable",
        ],
    ),
    (
        "default: allow\nconstraints: {a: {arguments: {properties: {n: {maximum: 10}}}}}",
        &[
            "a -=default",
            "a {\"n\":10}=default",
            "a {\"n\":10.5}=constraint:arguments",
            "a {\"n\":1e300}=constraint:arguments",
        ],
    ),
    (
        "default: allow\nconstraints: {a: {arguments: {$defs: {s: {enum: [1, two]}}, properties: {x: {$ref: '#/$defs/s'}}}}}",
        &["a {\"x\":1}=default", "a {\"x\":\"two\"}=default", "a {\"x\":2}=constraint:arguments"],
    ),
    ("default: allow\nconstraints: {a: {arguments: {}}}", &["a -=default", "a {\"x\":1}=default"]),
    ("default: allow\nconstraints: {a: {arguments: {not: {}}}}", &["a -=constraint:arguments"]),
    (
        "default: allow\nconstraints: {a: {arguments: {properties: {c: {$ref: '#'}}, additionalProperties: false}}}",
        &["a {\"c\":{\"c\":{\"c\":{}}}}=default", "a {\"c\":{\"c\":{\"d\":{}}}}=constraint:arguments"],
    ),
    // Not stored: the lists decide, arguments are unknown and never guessed.
    (
        "default: deny\nallowlist: [a]\ndenylist: [d]\nconstraints: {a: {deny_patterns: [x]}, c: {deny_patterns: [x]}}",
        &["d ?=denylist", "a ?=arguments_not_stored", "b ?=not_in_allowlist", "c ?=not_in_allowlist"],
    ),
    (
        "default: allow\nconstraints: {a: {deny_private_hosts: true}, b: {deny_private_hosts: false}, c: {max_calls: 1}}",
        &["a ?=arguments_not_stored", "b ?=default", "c ?=default", "c ?=constraint:max_calls"],
    ),
    (
        "default: allow\nconstraints: {a: {allowed_paths: []}}\nbudget: {max_tool_calls: 2}",
        &[
            "a ?=arguments_not_stored",
            "b ?=default",
            "b ?=budget:max_tool_calls",
            "a {\"path\":\"x\"}=constraint:allowed_paths",
        ],
    ),
    (
        "default: allow\nconstraints: {a: {arguments: {}, max_calls: 1}}",
        &["a ?=arguments_not_stored", "a {}=constraint:max_calls", "a {}=constraint:max_calls"],
    ),
    ("default: allow\nconstraints: {a: {arguments: {}, max_calls: 1}}", &["a {}=default", "a ?=constraint:max_calls"]),
];

#[test]
fn sequences_of_calls() {
    for (rules, calls) in SEQUENCES {
        let mut e = evaluator(&format!("version: \"1\"\n{rules}\n"));
        for (n, call) in calls.iter().enumerate() {
            let (call, reason) = call.rsplit_once('=').unwrap();
            let (tool, arguments) = call.split_once(' ').unwrap();
            let arguments = match arguments {
                "-" => Arguments::Absent,
                "?" => Arguments::NotStored,
                json => Arguments::Raw(json.as_bytes()),
            };
            let r = decide(&mut e, tool, arguments);
            assert_eq!(r.reason.as_str(), reason, "{rules}\n{n}: {call} ({})", r.message);
        }
    }
}

#[test]
fn a_count_that_depends_on_what_was_not_stored_is_unknown() {
    let mut e =
        evaluator("version: \"1\"\ndefault: allow\nconstraints: {a: {arguments: {}}}\nbudget: {max_tool_calls: 3}\n");
    let verdicts: Vec<_> = ["a", "b", "b", "b", "b", "b"]
        .iter()
        .map(|tool| decide(&mut e, tool, Arguments::NotStored))
        .map(|r| (r.verdict.as_str(), r.reason.as_str()))
        .collect();
    assert_eq!(
        verdicts,
        [
            ("unknown", "arguments_not_stored"),
            ("allowed", "default"),
            ("allowed", "default"),
            ("unknown", "budget:max_tool_calls"),
            ("unknown", "budget:max_tool_calls"),
            ("unknown", "budget:max_tool_calls"),
        ]
    );
}

#[test]
fn time_is_a_budget_too() {
    let mut e = evaluator(
        "version: \"1\"\ndefault: allow\ndenylist: [d]\nbudget: {max_wall_time_sec: 300, max_tool_calls: 2}\n",
    );
    for (tool, seconds, reason, rule) in [
        ("a", 0.0, "default", "default"),
        ("a", 300.0, "default", "default"),
        ("a", 300.001, "budget:max_wall_time_sec", "budget.max_wall_time_sec"),
        ("d", 301.0, "denylist", "denylist[0] (d)"),
        ("a", 300.0, "budget:max_tool_calls", "budget.max_tool_calls"),
    ] {
        let r = e.decide(&Call { tool, arguments: Arguments::Absent }, Duration::from_secs_f64(seconds));
        assert_eq!((r.reason.as_str(), r.rule.as_str()), (reason, rule), "{tool} {seconds}");
    }
}

#[test]
fn a_reload_changes_rules_and_keeps_counts() {
    let load = |text: &str| Arc::new(Policy::parse(format!("version: \"1\"\n{text}\n").as_bytes(), "p").unwrap());
    let mut e = evaluator("version: \"1\"\ndefault: allow\n");
    for tool in ["a", "a", "b", "db.x", "db.y"] {
        assert_eq!(decide(&mut e, tool, Arguments::Absent).verdict, Verdict::Allowed);
    }
    e.reload(load("default: allow\nconstraints: {a: {max_calls: 3}, 'db.*': {max_calls: 2}, b: {max_calls: 1}}"));
    for (tool, reason) in [
        ("a", "default"),
        ("a", "constraint:max_calls"),
        ("db.z", "constraint:max_calls"),
        ("b", "constraint:max_calls"),
        ("c", "default"),
    ] {
        assert_eq!(decide(&mut e, tool, Arguments::Absent).reason.as_str(), reason, "{tool}");
    }
    e.reload(load("default: allow\nbudget: {max_tool_calls: 8}"));
    assert_eq!(decide(&mut e, "x", Arguments::Absent).reason, Reason::Default);
    assert_eq!(decide(&mut e, "x", Arguments::Absent).reason, Reason::BudgetCalls);
    e.reload(load("default: deny"));
    assert_eq!(decide(&mut e, "a", Arguments::Absent).reason, Reason::NotInAllowlist);
    assert_eq!(e.policy().rules().default, model::Default::Deny);
}

#[test]
fn a_rule_is_named_as_the_file_names_it() {
    let mut e = evaluator(
        "version: \"1\"\ndefault: allow\ndenylist: [x, 'db.*']\nconstraints:\n  'f*': {deny_patterns: [a, b]}\n  s: {arguments: {required: [q]}}\n",
    );
    for (tool, json, rule, message) in [
        ("db.q", "{}", "denylist[1] (db.*)", "the tool db.q is on the denylist"),
        (
            "f",
            r#"{"k":"b"}"#,
            "constraints.f*.deny_patterns[1]",
            "a string in the arguments matches a pattern that is denied",
        ),
        ("s", "{}", "constraints.s.arguments", "the arguments do not satisfy the schema, at /required"),
        ("z\u{1b}[31m", "{}", "default", "the default allows every tool that no rule denies"),
    ] {
        let r = decide(&mut e, tool, Arguments::Raw(json.as_bytes()));
        assert_eq!((r.rule.as_str(), r.message.as_str()), (rule, message));
    }
    let mut e = evaluator("tools: {default: deny, deny: [x], constraints: {a: {max_calls: 0}}}");
    for (tool, rule) in [("x", "tools.deny[0] (x)"), ("a", "tools.constraints.a.max_calls"), ("y", "tools.default")] {
        assert_eq!(decide(&mut e, tool, Arguments::Absent).rule, rule);
    }
}

#[test]
fn no_message_holds_a_secret_from_the_arguments() {
    let mut e = evaluator(
        "version: \"1\"\ndefault: allow\nconstraints:\n  p: {deny_patterns: [hunter2]}\n  s: {arguments: {properties: {q: {type: integer, enum: [1]}}, patternProperties: {'^h': false}}}\n",
    );
    for (tool, json) in [("p", r#"{"q":"hunter2"}"#), ("s", r#"{"q":"hunter2"}"#), ("s", r#"{"hunter2":1}"#)] {
        let r = decide(&mut e, tool, Arguments::Raw(json.as_bytes()));
        assert_eq!(r.verdict, Verdict::Denied);
        assert!(!format!("{r:?}").contains("hunter2"), "{r:?}");
    }
}

#[test]
fn depth_is_bounded_and_everything_up_to_it_is_seen() {
    let mut e = evaluator("version: \"1\"\ndefault: allow\nconstraints: {a: {deny_patterns: [secret]}}\n");
    for (depth, reason) in [
        (1, "constraint:deny_patterns"),
        (100, "constraint:deny_patterns"),
        (126, "constraint:deny_patterns"),
        (129, "arguments_unreadable"),
        (1_000_000, "arguments_unreadable"),
    ] {
        let json = format!("{}\"secret\"{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(decide(&mut e, "a", Arguments::Raw(json.as_bytes())).reason.as_str(), reason, "{depth}");
    }
}

#[test]
fn names_without_end_do_not_fill_the_memory() {
    let mut e = evaluator("version: \"1\"\ndefault: allow\nconstraints: {'t*': {max_calls: 40000}}\n");
    for n in 0..40_000 {
        assert_eq!(decide(&mut e, &format!("t{n}"), Arguments::Absent).verdict, Verdict::Allowed);
    }
    assert_eq!(decide(&mut e, "t", Arguments::Absent).reason, Reason::MaxCalls);
    // Counts of tools that were not kept one by one count against every constraint of the next policy.
    let next = "version: \"1\"\ndefault: allow\nconstraints: {'u*': {max_calls: 20000}}\n";
    e.reload(Arc::new(Policy::parse(next.as_bytes(), "p").unwrap()));
    assert_eq!(decide(&mut e, "u", Arguments::Absent).reason, Reason::MaxCalls);
}

#[test]
fn a_schema_that_refers_to_itself_without_end_does_not_take_the_process_down() {
    for schema in [
        "{$ref: '#'}",
        "{allOf: [{$ref: '#'}]}",
        "{$defs: {a: {$ref: '#/$defs/b'}, b: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}",
    ] {
        let text = format!("version: \"1\"\ndefault: allow\nconstraints: {{a: {{arguments: {schema}}}}}\n");
        if let Ok(policy) = Policy::parse(text.as_bytes(), "p") {
            let around = Surroundings { cwd: "/".into(), home: None, dns: Dns::Off };
            let mut e = Evaluator::new(Arc::new(policy), Arc::new(around));
            decide(&mut e, "a", Arguments::Raw(b"{\"x\":1}"));
        }
    }
}

#[test]
fn ten_thousand_rules_load_and_decide() {
    let mut text = "version: \"1\"\ndefault: deny\nallowlist:\n".to_owned();
    for n in 0..5000 {
        text.push_str(&format!("  - tool_{n}\n"));
    }
    for n in 0..1000 {
        text.push_str(&format!("  - \"ns{n}.*_x?[ab]\"\n"));
    }
    text.push_str("constraints:\n");
    for n in 0..2000 {
        text.push_str(&format!("  tool_{n}: {{deny_patterns: ['secret{n}\\b', '(?i)tok[e3]n{n}']}}\n"));
    }
    let mut e = evaluator(&text);
    for (tool, json, reason) in [
        ("tool_4999", "{}", "allowlist"),
        ("ns999.q_xya", "{}", "allowlist"),
        ("ns999.q_xyc", "{}", "not_in_allowlist"),
        ("tool_1999", r#"{"q":"secret1999"}"#, "constraint:deny_patterns"),
        ("tool_1999", r#"{"q":"secret1998"}"#, "allowlist"),
        ("TOOL_1999", "{}", "denylist_lookalike"),
        ("tool_5000", "{}", "not_in_allowlist"),
    ] {
        assert_eq!(decide(&mut e, tool, Arguments::Raw(json.as_bytes())).reason.as_str(), reason, "{tool} {json}");
    }
}

#[test]
fn a_rule_that_is_too_big_denies() {
    // Beyond those that are compiled while the file is read.
    let many: String = (0..320).map(|n| format!("  t{n}: {{deny_patterns: [a]}}\n")).collect();
    let text = format!(
        "version: \"1\"\ndefault: allow\nconstraints:\n{many}  big: {{deny_patterns: ['((\\w{{100}}){{100}}){{100}}']}}\n"
    );
    let mut e = evaluator(&text);
    assert_eq!(decide(&mut e, "big", Arguments::Absent).reason, Reason::RuleUnusable);
    assert_eq!(decide(&mut e, "t319", Arguments::Absent).reason, Reason::Default);
}
