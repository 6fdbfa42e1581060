//! What passes from the server to the client.

use assay_support::{
    guard::lenient::{Reader, Value as Read, same},
    guard::oracle::let_out,
};
use proptest::prelude::*;
use serde_json::Value;

const NO_SAMPLING: &str = "version: \"1\"\ndefault: deny\nallowlist: [echo]\n";
const SAMPLING: &str = "version: \"1\"\ndefault: deny\nallowlist: [sampling/createMessage]\n";

/// The rules that the server is told, by id.
fn told(bytes: &[u8]) -> Vec<(Value, String)> {
    let lines = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let values = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    values.map(|v| (v["id"].clone(), v["error"]["data"]["rule"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn what_asks_for_the_clients_model_is_judged_whatever_its_length_and_order() {
    for (pad, allowed, rule) in [(10, true, "default"), (2 << 20, true, "default"), (7 << 19, false, "guard.too_large")]
    {
        let pad = "x".repeat(pad);
        for asks in [
            format!(r#"{{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{{"x":"{pad}"}}}}"#),
            format!(r#"{{"params":{{"x":"{pad}"}},"jsonrpc":"2.0","method":"sampling/createMessage","id":"s1"}}"#),
        ] {
            let sent = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{}}}}\n{asks}\n{{\"jsonrpc\":\"2.0\",\"method\":\"x\"}}\n"
            );
            let (passed, answers) = let_out(NO_SAMPLING, sent.as_bytes(), &[100, 70_000]);
            assert_eq!(String::from_utf8(passed).unwrap(), sent.replace(&format!("{asks}\n"), ""));
            assert_eq!(told(&answers), [("s1".into(), rule.to_owned())]);
            let (passed, answers) = let_out(SAMPLING, sent.as_bytes(), &[]);
            assert_eq!((passed == sent.as_bytes(), told(&answers).is_empty()), (allowed, allowed));
        }
    }
}

#[test]
fn answers_of_any_length_pass_and_so_does_what_is_no_question() {
    let pad = "x".repeat(5 << 20);
    let note = "y".repeat(2 << 20);
    let sent = [
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"text":"{pad} \"method\":\"sampling/createMessage\""}}}}"#),
        format!(r#"{{"result":{{"text":"{pad}"}},"jsonrpc":"2.0","id":2}}"#),
        format!(r#"[{{"jsonrpc":"2.0","id":3,"error":{{"code":1,"message":"{pad}"}}}},{{"jsonrpc":"2.0","id":4,"result":1}}]"#),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{note}"}}}}"#),
        r#"{"jsonrpc":"2.0","id":5,"result":{"Method":1,"method":"sampling/createMessage","a":1,"a":2}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":6,"method":"elicitation/create","params":{"text":"\u2028{'method':'sampling/createMessage'}"}}"#.to_owned(),
    ]
    .join("\n")
        + "\n";
    let (passed, answers) = let_out(NO_SAMPLING, sent.as_bytes(), &[]);
    assert!(passed == sent.as_bytes() && answers.is_empty());
}

#[test]
fn a_long_answer_that_some_client_takes_for_a_question_is_cut_off() {
    let pad = "x".repeat(2 << 20);
    for (begins, rest, rule) in [
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{pad}","method""#),
            r#":"sampling/createMessage"}"#,
            "guard.shape",
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{pad}","me\thod""#),
            r#":"sampling/createMessage"}"#,
            "guard.shape",
        ),
        (format!(r#"[{{"id":1,"result":"{pad}"}},{{"id":2,"method""#), r#":"sampling/createMessage"}]"#, "guard.shape"),
        (format!(r#"{{"id":1,"result":"{pad}"}}"#), r#"{"id":2,"method":"sampling/createMessage"}"#, "guard.malformed"),
        (format!(r#"{{"id":1,"result":"{pad}","#), r#"method:"sampling/createMessage","id":2}"#, "guard.malformed"),
    ] {
        let next = r#"{"jsonrpc":"2.0","method":"x"}"#;
        let sent = format!("{begins}{rest}\n{next}\n");
        for cuts in [&[][..], &[1 << 20, begins.len() + 3], &[3 << 19, begins.len()]] {
            let (passed, answers) = let_out(SAMPLING, sent.as_bytes(), cuts);
            let passed = String::from_utf8(passed).unwrap();
            assert!(passed == format!("{begins}\n{next}\n"), "{rule}: {}", &passed[passed.len().min(2 << 20)..]);
            assert!(answers.is_empty(), "the server asked nothing that waits for an answer");
        }
    }
}

#[test]
fn spellings_that_some_client_takes_for_it_are_refused() {
    for (asks, rule) in [
        (r#"{"id":1,"method":"Sampling/CreateMessage"}"#, "guard.bad_method"),
        (r#"{"id":1,"method":"ping","Method":"sampling/createMessage"}"#, "guard.bad_method"),
        (r#"{"Method":"sampling/createMessage","id":1}"#, "guard.bad_method"),
        (r#"{"id":1,"m\u0065thod":"sampling/createMessage"}"#, "guard.bad_method"),
        (r#"{"id":1,"method":"sampling/createMessage","method":"ping"}"#, "guard.bad_method"),
        (r#"{"id":1,"method":"sampling/createMessage","params":{},"Params":{}}"#, "guard.folded_name"),
        (r#"{"id":1,"method":"sampling/createMessage","result":{}}"#, "guard.shape"),
    ] {
        for policy in [NO_SAMPLING, SAMPLING] {
            let (passed, answers) = let_out(policy, format!("{asks}\n").as_bytes(), &[]);
            assert_eq!((passed.len(), told(&answers)), (0, vec![(1.into(), rule.to_owned())]), "{asks}");
        }
    }
    for unanswered in [
        r#"{"method":"sampling/createMessage"}"#,
        r#"[{"id":1,"result":{}},{"id":2,"method":"sampling/createMessage"}]"#,
        r#"{"Method":"sampling/createMessage"}"#,
        r#"[{"id":1,"result":{}},{"id":2,"_method":"sampling/createMessage"}]"#,
    ] {
        let (passed, answers) = let_out(NO_SAMPLING, unanswered.as_bytes(), &[]);
        assert_eq!((passed.len(), answers.len()), (0, 0), "{unanswered}");
    }
}

const PARTS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
    "\r",
    " ",
    "\"",
    "\\u0065",
    "_",
    "\u{17f}",
    "M",
    "\u{2028}",
    "\"method\":",
    "\"Method\":",
    "\"result\":{},",
    "\"id\":1,",
    "\"id\":2",
    "\"params\":{},",
    "\"sampling/createMessage\"",
    "\"ping\"",
    "Content-Length: 53\r\n\r\n",
];

const WHOLE: [&str; 5] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{},"method":"sampling/createMessage"}"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"method":"sampling/createMessage"}}"#,
    r#"[{"id":1,"result":{}},{"id":2,"method":"sampling/createMessage"}]"#,
    r#"{"id":2,"method":"sampling/createMessage","x":{}}"#,
];

fn line() -> impl Strategy<Value = String> {
    let edit = (any::<prop::sample::Index>(), 0..10usize, prop::sample::select(&PARTS[..]));
    (prop::sample::select(&WHOLE[..]), prop::collection::vec(edit, 0..4)).prop_map(|(whole, edits)| {
        let mut text: Vec<char> = whole.chars().collect();
        for (at, len, part) in edits {
            let at = at.index(text.len() + 1);
            let end = if len < 5 { at } else { (at + len).min(text.len()) };
            text.splice(at..end, part.chars());
        }
        text.into_iter().collect()
    })
}

/// Whether a client that reads lines, takes every one of several members and compares names as Go does finds a message here
/// that asks it to sample.
fn samples(received: &[u8]) -> bool {
    let asks = |value: &Read| {
        let Read::Members(members) = value else { return false };
        members.iter().any(|(key, value)| {
            same(key, "method") && matches!(value, Read::Text(text) if same(text, "sampling/createMessage"))
        })
    };
    received.split(|b| *b == b'\n').any(|line| {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
        let value = Reader { bytes: line, at: 0 }.value(0);
        is_json
            && match &value {
                Read::List(all) => all.iter().any(asks),
                one => asks(one),
            }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_client_finds_a_denied_question_in_what_passes(
        lines in prop::collection::vec(line(), 1..8),
        cuts in prop::collection::vec(0usize..800, 0..4),
    ) {
        let sent = lines.join("\n");
        let (passed, _) = let_out(NO_SAMPLING, sent.as_bytes(), &cuts);
        prop_assert!(!samples(&passed), "sent {sent}\nread {}", passed.escape_ascii());
    }
}

#[test]
fn the_lenient_client_sees_what_would_pass_without_a_guard() {
    assert!(WHOLE.iter().filter(|line| samples(line.as_bytes())).count() == 4);
}
