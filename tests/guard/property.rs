//! Nothing that any server could take for a denied call passes, whatever a client sends.

use assay_support::guard::{
    lenient::{NAMELESS, calls},
    oracle::{self, passed_with},
};
use proptest::prelude::*;

/// What messages are made of, and of what bypasses are made.
const PARTS: [&[u8]; 62] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\n",
    b"\r",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b"\x0b",
    b"\x1c",
    b"\\",
    b"'",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xe2\x80\xa9",
    b"\xc2\x85",
    b"\xff",
    b"\xc0\xaf",
    b"/*",
    b"*/",
    b"//",
    b"\"method\"",
    b"\"Method\"",
    b"\"m\\u0065thod\"",
    b"\"me_thod\"",
    b"\"method\\u0000\"",
    b"method",
    b"\"params\"",
    b"\"param\xc5\xbf\"",
    b"\"PARAMS\"",
    b"\"name\"",
    b"\"Name\"",
    b"\"n\\u0061me\"",
    b"\"arguments\"",
    b"\"id\"",
    b"\"jsonrpc\":\"2.0\"",
    b"\"result\":{}",
    b"\"error\":{}",
    b"\"tools/call\"",
    b"\"tools\\/call\"",
    b"\"Tools/Call\"",
    b"\"tools/call \"",
    b"\"ping\"",
    b"\"echo\"",
    b"\"rm\"",
    b"\"RM\"",
    b"\"db.drop\"",
    b"\"db.read\"",
    b"null",
    b"1",
    b"\"x\"",
    b"{}",
    b"[]",
    b"Content-Length: 60\r\n\r\n",
    b"Content-Length: 2\n\n",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}",
];

const WHOLE: [&str; 7] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm","arguments":{"a":"b"}}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":{"name":"rm"}}}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}}]"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"id":2,"method":"tools/call","params":{"name":"echo"}}]"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"method":"tools/call","params":{"name":"db.read"}}}"#,
    r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"db.drop"}}"#,
    r#"{"id":1,"result":{},"method":"tools/call","params":{"name":"rm"}}"#,
];

fn part() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(&PARTS[..]).prop_map(<[u8]>::to_vec),
        1 => any::<u8>().prop_map(|b| vec![b]),
    ]
}

/// A message with some of its bytes replaced, removed or joined by others.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..3usize, 0..12usize, part()), 0..5);
    (prop::sample::select(&WHOLE[..]), edits).prop_map(|(whole, edits)| {
        let mut text = whole.as_bytes().to_vec();
        for (at, how, len, part) in edits {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            let end = if how == 0 { at } else { (at + len).min(text.len()) };
            let part = if how == 2 { Vec::new() } else { part };
            text.splice(at..end, part);
        }
        text
    })
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![3 => mutated(), 1 => prop::collection::vec(part(), 0..24).prop_map(|p| p.concat())];
    prop::collection::vec(line, 1..12).prop_map(|lines| lines.join(&b'\n'))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn no_server_finds_a_denied_call_in_what_passes(sent in stream(), cuts in prop::collection::vec(0usize..1500, 0..4)) {
        oracle::check(&sent, &cuts);
    }
}

#[test]
fn the_oracle_sees_what_would_pass_without_a_gate() {
    assert!(calls(WHOLE[0].as_bytes()).iter().all(|name| name == "rm"));
    assert!(!calls(WHOLE[0].as_bytes()).is_empty());
    let sent = [WHOLE[1], "", WHOLE[4], ""].join("\n");
    assert_eq!(oracle::passed(sent.as_bytes(), &[5, 60]), sent.as_bytes());
    assert_eq!(oracle::passed(WHOLE[0].as_bytes(), &[]), b"");
}

#[test]
fn nothing_that_the_fuzzer_found_passes() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus");
    let mut looked = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        oracle::look(&std::fs::read(entry.unwrap().path()).unwrap());
        looked += 1;
    }
    assert!(looked > 0);
}

#[test]
fn where_no_decision_can_be_put_down_no_call_passes() {
    let call = |id: usize| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"}}}}"#);
    let mut sent: Vec<String> = (1000..1100).map(call).collect();
    sent.push(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned());
    let passed = passed_with((sent.join("\n") + "\n").as_bytes(), &[], 4096);
    let passed: Vec<&str> = std::str::from_utf8(&passed).unwrap().lines().collect();
    let (last, calls) = passed.split_last().unwrap();
    assert_eq!(*last, sent[100], "what needs no decision passes");
    assert!((4..40).contains(&calls.len()), "{}", calls.len());
    assert_eq!(calls, &sent[..calls.len()]);
}

#[test]
fn the_lenient_reader_finds_what_servers_would() {
    for (bytes, names) in [
        (&br#"{"method":"tools/call","params":{"name":"rm"}}"#[..], &["rm"][..]),
        (br#"{"Method":"tools/call","param\u017f":{"NAME":"rm"}}"#, &["rm"]),
        (br#"x{"id":1}{"method":"tools/call","params":{"name":"a","name":"rm"}} junk"#, &["a", "rm"]),
        (b"\xef\xbb\xbf [ {\"m\\u0065thod\":\"tools/call\",\"params\":[\"rm\"]}]", &["rm"]),
        (br#"{'method':'tools/call',/*x*/params:{name:'rm'}}"#, &["rm"]),
        (br#"{"method":"tools/call"}"#, &[NAMELESS]),
        (br#"{"method":"tools/call","params":{"arguments":{"#, &[]),
        (br#"{"method":"tools/call","params":{"name":"rm"#, &["rm"]),
        (br#"{"method":"tools/list"}"#, &[]),
    ] {
        let mut found = calls(bytes);
        found.dedup();
        assert_eq!(
            found.into_iter().collect::<std::collections::BTreeSet<_>>(),
            names.iter().map(|n| (*n).to_owned()).collect(),
            "{}",
            String::from_utf8_lossy(bytes)
        );
    }
    let split = b"{\"a\":\r{\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}\r}";
    assert!(calls(split).contains(&"rm".to_owned()));
}
