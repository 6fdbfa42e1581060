//! Environment, user, host, locale, time zone, paths and command lines of any kind.

use super::place::{Place, cases, name};
use proptest::prelude::*;
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

const VARIABLES: &[&str] = &[
    "GITHUB_SHA",
    "GITHUB_REPOSITORY",
    "GITHUB_REF",
    "GITHUB_RUN_ID",
    "GITHUB_RUN_ATTEMPT",
    "GITHUB_WORKFLOW_REF",
    "GITHUB_ACTOR",
    "USER",
    "LOGNAME",
    "HOSTNAME",
    "LANG",
    "LC_ALL",
    "LC_NUMERIC",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLUMNS",
    "NO_COLOR",
    "CI",
    "SOURCE_DATE_EPOCH",
];

/// Text of every kind that a variable or a path has held, bytes that are not UTF-8 among it.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(
            &[
                "",
                "1",
                "true",
                "C",
                "POSIX",
                "tr_TR.UTF-8",
                "de_DE@euro",
                "ar_EG",
                "żółw",
                "Zoë",
                "日本語",
                "😀",
                "\u{202e}x",
                "a\u{2028}b\u{2029}c\u{85}d",
                "\u{1}\u{1b}[31m\u{7f}",
                "\"quoted\\",
                "a b\tc\nd\r",
                "\u{feff}",
                "Asia/Kathmandu",
                ":/nowhere",
                "UTC-14",
                "-1",
                "18446744073709551616",
                "1e400",
                "{}",
                "null",
                "o/r",
                "refs/pull/1/merge"
            ][..]
        )
        .prop_map(|s| s.as_bytes().to_vec()),
        any::<String>().prop_map(String::into_bytes),
        "[a-z0-9/._@-]{1,60}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
        "\\PC{0,400}".prop_map(String::into_bytes),
    ]
}

fn variable(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes.into_iter().filter(|b| *b != 0).collect())
}

fn lines() -> Vec<Vec<u8>> {
    [
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"c","version":"1"}}}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{"serverInfo":{"name":"s"},"capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
    ]
    .map(|l| l.as_bytes().to_vec())
    .to_vec()
}

/// As in the runners of GitHub: everything set, the actor with a letter outside ASCII.
#[test]
fn a_session_in_github_actions_has_an_honest_pack() {
    let mut place = Place::new();
    let set = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    place.env = vec![set("GITHUB_ACTIONS", "true"), set("GITHUB_SHA", &"a".repeat(40))];
    place.env.extend(VARIABLES[1..7].iter().map(|v| set(v, "żółw/\u{2028}\u{7f}😀\"")));
    let pack = place.pack(&lines());
    let manifest = std::fs::read(pack.join("pack_manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["attestation"]["ci_binding"]["actor"], "żółw/\u{2028}\u{7f}😀\"");
}

/// Each flag stores what it says, and nothing else is anywhere on disk.
#[test]
fn a_flag_puts_into_a_pack_what_it_names() {
    fn files(dir: &std::path::Path, all: &mut Vec<u8>) {
        for entry in std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() { files(&entry, all) } else { all.extend(std::fs::read(&entry).unwrap()) }
        }
    }
    let mut lines = lines();
    lines[2] =
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"sent"}}}"#.to_vec();
    lines[3] = br#"{"jsonrpc":"2.0","id":1,"result":{"content":["gotten"]}}"#.to_vec();
    for (flags, kept) in [
        (&[][..], [false; 3]),
        (&["--store-args"], [true, false, false]),
        (&["--store-results"], [false, true, false]),
        (&["--store-command"], [false, false, true]),
    ] {
        let mut place = Place::new().flags(flags);
        place.arguments = vec!["--api-key=commanded".into()];
        let pack = place.pack(&lines);
        let (mut in_pack, mut anywhere) = (Vec::new(), Vec::new());
        files(&pack, &mut in_pack);
        files(&place.root().join("audit"), &mut anywhere);
        for (word, kept) in [b"sent".as_slice(), b"gotten", b"commanded"].into_iter().zip(kept) {
            let word = [b"\"".as_slice(), word].concat();
            let quoted = |text: &[u8]| text.windows(word.len()).any(|w| w == word);
            let key = |text: &[u8]| text.windows(13).any(|w| w == b"key=commanded");
            let has = |text: &[u8]| if word.ends_with(b"commanded") { key(text) } else { quoted(text) };
            assert_eq!((has(&in_pack), has(&anywhere)), (kept, kept), "{flags:?} {}", String::from_utf8_lossy(&word));
        }
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn nothing_around_a_session_makes_its_pack_fail(
        github in prop::option::of(prop_oneof![3 => "[0-9a-f]{40}".prop_map(String::into_bytes), 1 => bytes()]),
        set in prop::collection::vec((prop::sample::select(VARIABLES), bytes()), 0..12),
        place in bytes(),
        server in bytes(),
        arguments in prop::collection::vec(bytes(), 0..3),
        stored in any::<bool>(),
        guard in any::<bool>(),
    ) {
        let mut p = if guard { Place::new().guarded() } else { Place::new() };
        p.env = set.into_iter().map(|(k, v)| (k.into(), variable(v))).collect();
        if let Some(sha) = github {
            p.env.push(("GITHUB_ACTIONS".into(), "true".into()));
            p.env.push(("GITHUB_SHA".into(), variable(sha)));
        }
        p.name = name(&place);
        p.server = name(&server);
        p.arguments = arguments.into_iter().map(variable).collect();
        if stored {
            p.flags.extend(["--store-args", "--store-command"].map(OsString::from));
        }
        p.pack(&lines());
    }
}
