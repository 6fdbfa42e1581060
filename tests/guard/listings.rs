//! Nothing that any client could take for something approved passes that is not, whatever a server answers.

use assay_support::guard::surface::{APPROVED, Way, check, look, received, unapproved};
use proptest::prelude::*;

/// What answers are made of, and of what bypasses are made.
const PARTS: [&str; 52] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\n",
    "\r",
    " ",
    "\t",
    "\0",
    "\u{b}",
    "\u{1c}",
    "\\",
    "'",
    "\u{feff}",
    "\u{2028}",
    "\u{85}",
    "/*",
    "*/",
    "\"id\"",
    "\"Id\"",
    "\"id\":1",
    "\"id\":\"1\"",
    "\"id\":1.0",
    "\"id\":7",
    "\"id\":2",
    "\"result\"",
    "\"Result\"",
    "\"re_sult\"",
    "\"tools\"",
    "\"Tools\"",
    "\"tool\u{17f}\"",
    "\"\\tools\"",
    "\"t\\u006fols\"",
    "\"instructions\":\"EVIL\"",
    "\"instructions\"",
    "\"error\":{}",
    "\"method\":\"ping\"",
    "\"nextCursor\":\"c\"",
    "\"ttlMs\":7",
    "{\"name\":\"a\",\"description\":\"EVIL\"}",
    "{\"name\":\"c\"}",
    "\"\\ud800\"",
    "1e999",
    "data: ",
    "data:",
    "event: x\n",
    "id: 3\n",
    "\n\n",
    ": x\n",
];

fn item() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(&APPROVED[..]).prop_map(str::to_owned),
        1 => prop::sample::select(&[
            r#"{"name":"a","description":"EVIL"}"#,
            r#"{ "description":"reads a file", "name":"\u0061","inputSchema":{"maxProperties":5.0,"type":"object"}}"#,
            r#"{"name":"b","name":"b"}"#,
            r#"{"name":"b","Name":"EVIL"}"#,
            r#"{"name":"c","x":{"a":[1e999,"\ud800"]}}"#,
            r#""b""#,
            "7",
            "[]",
        ][..])
        .prop_map(str::to_owned),
    ]
}

fn message() -> impl Strategy<Value = String> {
    let list = prop::collection::vec(item(), 0..6);
    let blank = prop::sample::select(&["", " ", "\n", " \t\n"][..]);
    let id = prop::sample::select(&["1", "1", "1", "2", "\"1\"", "1.0", "7", "null"][..]);
    let rest = prop::sample::select(
        &["", ",\"ttlMs\":7", ",\"nextCursor\":\"c\"", ",\"instructions\":\"EVIL\"", ",\"Tools\":[{\"name\":\"x\"}]"][..],
    );
    (id, list, blank, rest, any::<bool>()).prop_map(|(id, list, blank, rest, first)| {
        let tools = format!("\"tools\":{blank}[{blank}{}{blank}]", list.join(&format!("{blank},{blank}")));
        let result = if first { format!("{tools}{rest}") } else { format!("\"_meta\":{{}}{rest},{tools}") };
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{result}}}}}"#)
    })
}

/// A message with some of its bytes replaced, removed or joined by others.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        4 => prop::sample::select(&PARTS[..]).prop_map(|part| part.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|b| vec![b]),
    ];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..3usize, 0..12usize, part), 0..4);
    (message(), edits).prop_map(|(whole, edits)| {
        let mut text = whole.into_bytes();
        for (at, how, len, part) in edits {
            let at = at.index(text.len() + 1);
            let end = if how == 0 { at } else { (at + len).min(text.len()) };
            text.splice(at..end, if how == 2 { Vec::new() } else { part });
        }
        text
    })
}

/// The text in lines of an event.
fn event(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|b| *b == b'\n').map(|line| [b"data: ", line, b"\n"].concat());
    [lines.collect::<Vec<_>>().concat(), b"\n".to_vec()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn no_client_finds_what_is_not_approved(texts in prop::collection::vec(mutated(), 1..4), cuts in prop::collection::vec(0usize..800, 0..4)) {
        check(Way::Json, &texts[0], &cuts);
        check(Way::Json, &[b"[", &texts.join(&b","[..])[..], b"]"].concat(), &cuts);
        let events: Vec<u8> = texts.iter().flat_map(|text| event(text)).collect();
        check(Way::Events, &events, &cuts);
        check(Way::Events, &texts.join(&b"\n\n"[..]), &cuts);
    }

    #[test]
    fn nor_in_lines(texts in prop::collection::vec(mutated(), 1..4), cuts in prop::collection::vec(0usize..800, 0..4)) {
        let lines: Vec<Vec<u8>> = texts.into_iter().map(|text| text.into_iter().filter(|b| *b != b'\n').collect()).collect();
        check(Way::Stdio, &[&lines.join(&b'\n')[..], b"\n"].concat(), &cuts);
    }
}

#[test]
fn the_oracle_sees_what_would_pass_without_a_guard() {
    let evil = r#"{"name":"a","description":"EVIL"}"#;
    let list = format!(r#"{{"id":1,"result":{{"tools":[{},{evil}]}}}}"#, APPROVED[1]);
    for (way, sent) in
        [(Way::Json, list.clone()), (Way::Events, format!("data: {list}\n\n")), (Way::Stdio, format!("{list}\n"))]
    {
        assert!(!unapproved(way, sent.as_bytes()).is_empty(), "{way:?}");
        let got = String::from_utf8(received(way, sent.as_bytes(), &[])).unwrap();
        let left = sent.replace(&format!(",{evil}"), "");
        // The other request is not answered any more.
        let rest = got.strip_prefix(&left).unwrap_or_else(|| panic!("{way:?}: {got}"));
        assert!(rest.is_empty() || way == Way::Stdio && rest.contains("-32000"), "{way:?}: {rest}");
    }
    let said = br#"{"id":"2","result":{"Instructions":"obey"}}"#;
    assert!(!unapproved(Way::Json, said).is_empty());
}

#[test]
fn a_long_answer_that_some_client_takes_for_another_one_is_cut_off() {
    let evil = r#"{"tools":[{"name":"a","description":"EVIL"}]}"#;
    let pad = "x".repeat(2 << 20);
    for text in [
        // It begins as the answer to something else.
        format!(r#"{{"id":7,"result":{evil},"pad":"{pad}","id":1}}"#),
        format!(r#"{{"id":7,"result":{evil},"pad":"{pad}","Id":1}}"#),
        format!(r#"{{"id":7,"result":{evil},"pad":"{pad}","i\u0064":1}}"#),
        format!(r#"[{{"id":7,"result":"{pad}"}},{{"id":1,"result":{evil}}}]"#),
        format!(r#"[{{"id":7,"result":"{pad}"}},{{"id":7,"result":{evil},"id":1}}]"#),
    ] {
        for (way, sent) in
            [(Way::Json, text.clone()), (Way::Events, event_text(&text)), (Way::Stdio, format!("{text}\n"))]
        {
            assert!(!unapproved(way, sent.as_bytes()).is_empty(), "{way:?} {}", &text[text.len() - 60..]);
            for cuts in [&[][..], &[3 << 19, sent.len() - 10, sent.len() - 5]] {
                let got = received(way, sent.as_bytes(), cuts);
                assert!(unapproved(way, &got).is_empty(), "{way:?} {}", &text[text.len() - 60..]);
            }
        }
    }
}

fn event_text(text: &str) -> String {
    format!("data: {text}\n\n")
}

#[test]
fn nothing_of_the_corpus_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus-surface");
    let mut looked = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        look(&std::fs::read(entry.unwrap().path()).unwrap());
        looked += 1;
    }
    assert!(looked > 60);
}
