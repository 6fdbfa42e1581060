use super::*;
use crate::model::redaction;
use serde_json::{Value, json};

fn rules(text: &str) -> Rules {
    let mut loader = Loader::default();
    loader.file("r.yaml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    loader.finish().unwrap()
}

fn secrets() -> Rules {
    let mut loader = Loader::default();
    loader.preset("secrets").unwrap();
    loader.finish().unwrap()
}

/// What is left, and which rules took something out.
fn left(rules: &Rules, side: Side, value: &Value) -> (Value, Vec<String>) {
    match rules.apply(side, value.to_string().as_bytes()).unwrap() {
        None => (value.clone(), Vec::new()),
        Some(redacted) => {
            assert!(crate::canon::is_canonical(&redacted.value));
            let names: Vec<String> = redacted.rules.into_iter().collect();
            let words: Vec<String> = names.iter().map(|rule| redaction::word(side, rule)).collect();
            let words = words.iter().map(String::as_bytes);
            assert!(redaction::stands_for(&redacted.value, b"sha256:", words, side), "each rule has its placeholder");
            (serde_json::from_slice(&redacted.value).unwrap(), names)
        }
    }
}

#[test]
fn pointers_members_and_expressions_take_out_what_they_say() {
    let rules = rules(
        r#"
version: "1"
rules:
  - { name: where, pointer: /a/*/0, in: arguments }
  - { name: slash, pointer: "/x~1y/~0" }
  - { name: ticket, regex: 'TCK-[0-9]{3}' }
  - { name: long, regex: '[A-Z]{3}-[0-9]{3}-[0-9]' }
  - { name: number, regex: '^42' , in: results }
  - { name: pin, member: Pin_Code }
"#,
    );
    for (side, value, expected, names) in [
        (
            Side::Arguments,
            json!({"a": {"p": [1, 2], "q": [[3]], "r": {"0": "z"}, "s": "TCK-1"}}),
            json!({"a": {"p": ["[redacted:where]", 2], "q": ["[redacted:where]"], "r": {"0": "[redacted:where]"}, "s": "TCK-1"}}),
            &["where"][..],
        ),
        (Side::Result, json!({"a": {"p": [1, 2]}}), json!({"a": {"p": [1, 2]}}), &[]),
        (
            Side::Result,
            json!({"x/y": {"~": [1], "b": 2}}),
            json!({"x/y": {"~": "[redacted:slash]", "b": 2}}),
            &["slash"],
        ),
        (
            Side::Arguments,
            json!(["é TCK-123, TCK-456!", {"TCK-789": null}]),
            json!(["é [redacted:ticket], [redacted:ticket]!", {"[redacted:ticket]": null}]),
            &["ticket"],
        ),
        // Where two overlap, all that either matches is taken out, under the name of the first.
        (Side::Arguments, json!("TCK-123-4"), json!("[redacted:ticket]"), &["ticket"]),
        (Side::Arguments, json!("ABC-123-4"), json!("[redacted:long]"), &["long"]),
        (
            Side::Result,
            json!([42, 420.5, 142, "42"]),
            json!(["[redacted:number]", "[redacted:number]0.5", 142, "[redacted:number]"]),
            &["number"],
        ),
        (Side::Arguments, json!(42), json!(42), &[]),
        (
            Side::Arguments,
            json!({"pin-code": 1234, "PINCODE": "x", "pin": 1, "pinCode": {"pin_code": "y"}, "pinCodes": "z"}),
            json!({"pin-code": "[redacted:pin]", "PINCODE": "[redacted:pin]", "pin": 1, "pinCode": {"pin_code": "[redacted:pin]"}, "pinCodes": "z"}),
            &["pin"],
        ),
        (
            Side::Arguments,
            json!({"pin_code": "", "x": {"pin_code": null}}),
            json!({"pin_code": "", "x": {"pin_code": null}}),
            &[],
        ),
        // What is redacted already stays as it is.
        (Side::Arguments, json!({"a": {"p": ["[redacted:where]"]}}), json!({"a": {"p": ["[redacted:where]"]}}), &[]),
    ] {
        assert_eq!(left(&rules, side, &value), (expected, names.iter().map(|n| (*n).to_owned()).collect()), "{value}");
    }
    let whole = self::rules("version: \"1\"\nrules: [ { name: all, pointer: \"\" } ]");
    assert_eq!(left(&whole, Side::Result, &json!({"a": 1})).0, json!("[redacted:all]"));
}

#[test]
fn what_cannot_be_looked_through_is_not_kept() {
    let rules = rules("version: \"1\"\nrules: [ { name: x, regex: \"k[0-9]\" } ]");
    let names_collide = r#"{"k1":1,"k2":2}"#;
    let deep = "[".repeat(200) + &"]".repeat(200);
    for value in [r#"{"a":1,"a":2}"#, r#""\ud800""#, "{", "", names_collide, &deep] {
        assert_eq!(rules.apply(Side::Arguments, value.as_bytes()), Err(NotApplied), "{value}");
    }
    assert_eq!(rules.apply(Side::Arguments, format!("\"{}\"", "a".repeat(MAX_VALUE)).as_bytes()), Err(NotApplied));
    for value in ["[1]", r#"{"method":"x","method":"y"}"#, "Listening"] {
        assert_eq!(rules.message(value.as_bytes()), Err(NotApplied), "{value}");
    }
}

#[test]
fn where_it_cannot_be_told_what_matches_the_whole_text_is_taken_out() {
    // Places of a Unicode word boundary beside letters outside ASCII are nothing that the automaton can tell.
    let rules = rules("version: \"1\"\nrules: [ { name: w, regex: '\\bsecret\\b' } ]");
    assert_eq!(left(&rules, Side::Result, &json!("a secret b")).0, json!("a [redacted:w] b"));
    assert_eq!(left(&rules, Side::Result, &json!("é secret b")).0, json!("[redacted:w]"));
    assert_eq!(left(&rules, Side::Result, &json!("ésecret b")).0, json!("ésecret b"));
    // More matches than are looked for, one by one, in a long text.
    let text = "secret ".repeat(40_000);
    assert_eq!(left(&rules, Side::Result, &json!(text)).0, json!("[redacted:w]"));
    // The work that expressions like this one cause is bounded.
    let slow = self::rules("version: \"1\"\nrules: [ { name: s, regex: '(?:[a-z]+b){20}' } ]");
    let text = format!("\"{}\"", "ab".repeat(200_000));
    let redacted = slow.apply(Side::Result, text.as_bytes());
    assert!(redacted.is_err() || redacted.unwrap().unwrap().rules.contains("s"));
}

#[test]
fn of_a_message_pointers_lead_into_what_it_brings() {
    let rules = rules("version: \"1\"\nrules: [ { name: k, pointer: /key }, { name: t, regex: \"T-[0-9]+\" } ]");
    for (message, expected) in [
        (
            json!({"id": 1, "method": "tools/call", "params": {"arguments": {"key": "s", "n": "T-1"}, "name": "x"}}),
            Some(
                json!({"id": 1, "method": "tools/call", "params": {"arguments": {"key": "[redacted:k]", "n": "[redacted:t]"}, "name": "x"}}),
            ),
        ),
        (json!({"id": 1, "result": {"key": 1}}), Some(json!({"id": 1, "result": {"key": "[redacted:k]"}}))),
        (json!({"id": 1, "error": {"key": 1}}), Some(json!({"id": 1, "error": {"key": "[redacted:k]"}}))),
        (json!({"id": 1, "method": "ping", "key": 1}), None),
    ] {
        let left = rules.message(message.to_string().as_bytes()).unwrap();
        assert_eq!(left.map(|left| serde_json::from_slice::<Value>(&left).unwrap()), expected, "{message}");
    }
    assert!(rules.touches("see T-12") && !rules.touches("key"));
}

#[test]
fn what_a_file_says_wrong_is_said_at_its_place() {
    let head = "version: \"1\"\nrules:\n";
    for (text, place, said) in [
        (String::new(), "1:1", "it is empty"),
        ("rules: []".to_owned(), "1:1", "`version` is missing"),
        ("version: \"2\"".to_owned(), "1:10", "it needs a later assay"),
        ("version: 1\nrule: []".to_owned(), "2:1", "unknown key `rule`"),
        ("version: 1\npresets: [ secret ]".to_owned(), "2:12", "there is no preset `secret`; there is preset:secrets"),
        (format!("{head}  - {{ name: A, regex: x }}"), "3:13", "`A` is no name"),
        (format!("{head}  - {{ regex: x }}"), "3:5", "this rule has no `name`"),
        (format!("{head}  - {{ name: a }}"), "3:5", "no `pointer`, `regex` or `member`"),
        (format!("{head}  - {{ name: a, regex: x, member: y }}"), "3:26", "one of pointer, regex and member"),
        (format!("{head}  - {{ name: a, regex: \"(x\" }}"), "3:23", "unclosed group"),
        (format!("{head}  - {{ name: a, regex: \"x*\" }}"), "3:23", "where there is nothing"),
        (format!("{head}  - {{ name: a, regex: \"[\\\\w ]{{500}}\" }}"), "3:23", "too big when compiled"),
        (format!("{head}  - {{ name: a, pointer: x }}"), "3:25", "a pointer starts with `/`"),
        (format!("{head}  - {{ name: a, pointer: /~2 }}"), "3:25", "`~` is written `~0`"),
        (format!("{head}  - {{ name: a, member: \"-\" }}"), "3:24", "names no member"),
        (format!("{head}  - {{ name: a, regex: x, in: both }}"), "3:30", "`in` is arguments or results"),
        (format!("{head}  - {{ name: a, regex: x, tool: y }}"), "3:26", "unknown key `tool`"),
        (format!("{head}  - {{ name: a, regex: x }}\n  - {{ name: a, regex: y }}"), "4:13", "a rule `a` already"),
        (format!("{head}  - x"), "3:5", "expected a mapping"),
    ] {
        let error = Loader::default().file("r.yaml", text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("r.yaml:{place}: ")) && error.contains(said), "{text}: {error}");
    }
    assert!(Loader::default().preset("x").is_err());
}

/// A text of so many characters in place of a secret.
fn some(n: usize) -> String {
    "aB3dE5gH".chars().cycle().take(n).collect()
}

#[test]
fn every_rule_of_the_preset_finds_its_secret_and_leaves_alone_what_only_looks_like_one() {
    let rules = secrets();
    let capitals: String = "ABCDEFGH".repeat(2);
    let pem = |what: &str| format!("-----BEGIN {what}-----\nMIIB\nxyz\n-----END {what}-----");
    // The rule, a text with the secret, all of it that must be gone, and texts that must stay as they are.
    let cases: Vec<(&str, String, String, Vec<String>)> = vec![
        (
            "private-key",
            format!("before {} after", pem("RSA PRIVATE KEY")),
            "MIIB".into(),
            vec![pem("PUBLIC KEY"), pem("CERTIFICATE")],
        ),
        ("private-key", "-----BEGIN OPENSSH PRIVATE KEY-----\\nMIIB and then it is cut".into(), "MIIB".into(), vec![]),
        ("private-key", pem("PGP PRIVATE KEY BLOCK"), "MIIB".into(), vec![]),
        (
            "aws-access-key-id",
            format!("id=AKIA{capitals};"),
            format!("AKIA{capitals}"),
            vec![format!("XAKIA{capitals}"), format!("AKIA{capitals}A"), "AKIA and more".into()],
        ),
        ("github-token", format!("ghp_{}", some(36)), some(36), vec![format!("ghp_{}", some(20)), "ghp_".into()]),
        (
            "github-token",
            format!("(github_pat_{})", some(82)),
            some(82),
            vec!["github_pattern_of_words_that_is_long".into()],
        ),
        ("gitlab-token", format!("glpat-{}", some(20)), some(20), vec!["glpat-short".into()]),
        (
            "slack-token",
            format!("xoxb-17653672481-{}", some(24)),
            some(24),
            vec!["xoxo-hugs-and-kisses".into(), "xoxb-1-".into()],
        ),
        (
            "slack-webhook",
            format!("https://hooks.slack.com/services/T0/B0/{}", some(24)),
            some(24),
            vec!["https://hooks.slack.com/services/".into()],
        ),
        ("anthropic-key", format!("sk-ant-api03-{}", some(40)), some(40), vec!["sk-ant-eater".into()]),
        (
            "openai-key",
            format!("sk-proj-{}", some(48)),
            some(48),
            vec![
                "sk-learn is sklearn".into(),
                format!("task-{}", some(40)),
                "sk-project-of-many-words-in-a-row-here".into(),
            ],
        ),
        ("openai-key", format!("sk-{}", some(48)), some(48), vec![]),
        ("stripe-key", format!("rk_live_{}", some(24)), some(24), vec!["sk_live_".into(), "risk_live_data".into()]),
        ("google-api-key", format!("AIza{}", some(35)), some(35), vec![format!("AIza{}", some(20))]),
        ("google-oauth-token", format!("ya29.{}", some(40)), some(40), vec!["ya29.x".into()]),
        ("npm-token", format!("npm_{}", some(36)), some(36), vec!["npm_config_registry".into()]),
        ("pypi-token", format!("pypi-{}", some(60)), some(60), vec!["pypi-server".into()]),
        ("huggingface-token", format!("hf_{}", some(34)), some(34), vec!["hf_hub_download".into()]),
        ("sendgrid-key", format!("SG.{}.{}", some(22), some(43)), some(43), vec!["SG.en.SG".into()]),
        (
            "jwt",
            format!("t=eyJ{0}.eyJ{0}.{0}", some(20)),
            some(20),
            vec!["eyJhbGciOiJIUzI1NiJ9".into(), "a.b.c".into()],
        ),
        (
            "bearer",
            format!("curl -H 'X: Bearer {}'", some(24)),
            some(24),
            vec!["the bearer of this letter".into(), "bearer authentication".into()],
        ),
        (
            "basic-credentials",
            format!("Authorization: Basic {}==", some(16)),
            some(16),
            vec!["Authorization: Basic".into()],
        ),
        (
            "url-password",
            "postgres://user:hunter2@db.example.org/x".into(),
            "hunter2".into(),
            vec!["https://example.org:8080/a@b".into(), "ssh://git@example.org/x".into(), "12:30 a@b".into()],
        ),
        (
            "assigned-secret",
            "DB_PASSWORD=hunter22\nPORT=1".into(),
            "hunter22".into(),
            vec!["password: ".into(), "the password is on the desk".into(), "passwords=12345678".into()],
        ),
        (
            "assigned-secret",
            r#"{"api_key": "hunter22"}"#.into(),
            "hunter22".into(),
            vec![r#"{"api_key": null}"#.into()],
        ),
    ];
    for (rule, text, gone, stay) in &cases {
        for value in [json!(text), json!({"content": [{"text": format!("é\n{text}"), "type": "text"}]})] {
            let (kept, names) = left(&rules, Side::Result, &value);
            assert!(names.iter().any(|name| name == rule), "{rule}: {text}: {names:?}");
            assert!(!kept.to_string().contains(gone.as_str()), "{rule}: {kept}");
        }
        for text in stay {
            assert_eq!(left(&rules, Side::Arguments, &json!(text)), (json!(text), vec![]), "{rule}");
        }
    }
    for rule in rules.all.iter().filter(|rule| matches!(rule.what, What::Regex(_))) {
        assert!(cases.iter().any(|(name, _, _, stay)| *name == rule.name && !stay.is_empty()), "{}", rule.name);
    }
    let members = json!({"apiKey": "x", "API-KEY": "y", "Set-Cookie": "z", "password": 7, "secret": {"type": "string"}, "secrets": "w"});
    let (kept, names) = left(&rules, Side::Arguments, &members);
    assert_eq!(
        kept,
        json!({"apiKey": "[redacted:member-apikey]", "API-KEY": "[redacted:member-apikey]", "Set-Cookie": "[redacted:member-setcookie]",
               "password": "[redacted:member-password]", "secret": {"type": "string"}, "secrets": "w"})
    );
    assert_eq!(names, ["member-apikey", "member-password", "member-setcookie"]);
    for rule in &rules.all {
        assert!(redaction::is_name(&rule.name), "{}", rule.name);
        if let What::Regex(text) = &rule.what {
            texts::check(text).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
        }
    }
}

#[test]
fn ordinary_text_has_nothing_that_the_preset_takes_out() {
    let rules = secrets();
    for page in ["README.md", "docs/glossary.md", "docs/formats.md"] {
        let text = std::fs::read_to_string(page).unwrap();
        assert_eq!(left(&rules, Side::Result, &json!(text)).1, Vec::<String>::new(), "{page}");
    }
}
