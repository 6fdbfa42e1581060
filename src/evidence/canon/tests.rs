//! The large paths on small inputs: the second pass by the index against the in-memory writer.

use proptest::prelude::*;
use serde_json::Value;

use super::digest::digest_within;
use super::emit::canonicalize_within;
use super::error::{Anomalies, CanonError};
use super::index::Limits;
use super::{Digest, canonicalize, digest, scan, sha256};

/// Limits that send an object of `small` bytes and more through the index.
const fn tiny(small: usize) -> Limits {
    Limits { small, page: 7, verbatim: 5, ..Limits::DEFAULT }
}

fn streamed(bytes: &[u8], limits: &Limits) -> Result<Vec<u8>, CanonError> {
    let mut canonical = Vec::new();
    canonicalize_within(bytes, limits, None, &mut |part| {
        canonical.extend_from_slice(part);
    })?;
    Ok(canonical)
}

/// JSON text with shuffled and sometimes repeated names, odd white space and needless escapes.
fn arb_text() -> impl Strategy<Value = String> {
    let space = prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t ")];
    let string = prop_oneof![
        4 => "[a-c]{0,3}",
        1 => "\\PC{0,12}".prop_map(|text| text.replace(['"', '\\'], "")),
        1 => Just(r"\u0061".to_owned()),
        1 => Just(r"\ud83d\ude02\/\n".to_owned()),
        1 => Just("\u{fb33}\u{1f602}".to_owned()),
    ]
    .prop_map(|text| format!("\"{text}\""));
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i32>().prop_map(|number| number.to_string()),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(|number| format!("{number:e}")),
        string.clone(),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        let spaced = (space.clone(), inner, space.clone()).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        prop_oneof![
            prop::collection::vec(spaced.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((string.clone(), space.clone(), spaced), 0..6).prop_map(|members| {
                let members: Vec<_> =
                    members.into_iter().map(|(name, space, value)| format!("{space}{name}{space}:{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_second_pass_writes_what_the_writer_writes(text in arb_text(), small in 0usize..40) {
        let whole = canonicalize(text.as_bytes());
        prop_assert_eq!(&streamed(text.as_bytes(), &tiny(small)), &whole);
        let by_limits = digest_within(text.as_bytes(), &tiny(small), None).unwrap();
        prop_assert_eq!(by_limits, digest(text.as_bytes(), None).unwrap());
        match whole {
            Ok(canonical) => prop_assert_eq!(by_limits, Digest::Jcs(sha256(&canonical))),
            Err(CanonError::Ambiguous(anomalies)) => {
                prop_assert_eq!(anomalies, Anomalies::DUPLICATE_KEY);
                prop_assert_eq!(by_limits, Digest::Raw(sha256(text.trim_ascii().as_bytes()), anomalies));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), small in 0usize..20) {
        let whole = canonicalize(&bytes);
        prop_assert_eq!(streamed(&bytes, &tiny(small)), whole);
    }

    #[test]
    fn bytes_that_look_like_json_never_panic(
        bytes in prop::collection::vec(prop::sample::select(&b"{}[]\":,\\u0d8e1-. ntrfalse\xff\xc3\n"[..]), 0..60),
        small in 0usize..20,
    ) {
        let whole = canonicalize(&bytes);
        prop_assert_eq!(streamed(&bytes, &tiny(small)), whole);
    }
}

#[test]
fn an_object_beyond_the_member_cap_is_hashed_raw() {
    let text = br#"{"d":1,"c":{"x":1},"b":[{"y":1,"a":2}],"a":2}"#;
    let limits = Limits { open: 4, ..tiny(0) };
    let found = digest_within(text, &limits, None).unwrap();
    assert_eq!(found, Digest::Raw(sha256(text), Anomalies::TOO_MANY_MEMBERS));
    assert!(matches!(digest_within(text, &Limits { open: 6, ..tiny(0) }, None).unwrap(), Digest::Jcs(_)));
}

#[test]
fn large_objects_beyond_the_index_are_hashed_raw() {
    let text = br#"[{"b":1,"a":2},{"b":1,"a":2},{"b":1,"a":2}]"#;
    for limits in [Limits { kept: 5, ..tiny(4) }, Limits { objects: 2, ..tiny(4) }] {
        let found = digest_within(text, &limits, None).unwrap();
        assert_eq!(found, Digest::Raw(sha256(text), Anomalies::TOO_MANY_MEMBERS));
    }
    // The same objects are small by default, and as many of them as anyone likes need no index.
    assert!(matches!(digest_within(text, &Limits { kept: 0, objects: 0, ..tiny(20) }, None).unwrap(), Digest::Jcs(_)));
}

#[test]
fn other_anomalies_are_still_found_behind_too_many_members() {
    let text = br#"{"d":1,"c":{"x":1},"b":9007199254740993}"#;
    let found = digest_within(text, &Limits { open: 1, ..tiny(0) }, None).unwrap();
    let expected = Anomalies::TOO_MANY_MEMBERS | Anomalies::NUMBER_OUT_OF_RANGE;
    assert_eq!(found.anomalies(), expected);
}

#[test]
fn pages_rise_to_the_end_in_the_first_pass_and_stay_inside() {
    let text =
        format!(r#" {{"b":["{}"],"a":"{}\n{}"}} "#, "x".repeat(300_000), "é".repeat(200_000), "y".repeat(70_000));
    let seen = std::cell::RefCell::new(Vec::new());
    let limits = Limits { page: 65_536, small: 100, ..Limits::DEFAULT };
    let page = |at: usize| seen.borrow_mut().push(at);
    digest_within(text.as_bytes(), &limits, Some(&page)).unwrap();
    let seen = seen.into_inner();
    let rising = seen.windows(2).take_while(|pair| pair[0] < pair[1]).count() + 1;
    assert!(seen[rising - 1] > text.len() - 2 * 65_536 - 70_000, "{seen:?}");
    assert!(seen[..rising].windows(2).all(|pair| pair[1] - pair[0] <= 3 * 65_536), "{seen:?}");
    assert!(seen.len() > rising + 4, "the second pass reports too: {seen:?}");
    assert!(seen.iter().all(|&at| at <= text.len()), "{seen:?}");
}

#[test]
fn nested_large_objects_are_sorted_at_every_level() {
    let mut text = String::from("1");
    for level in 0..120 {
        text = format!(r#"{{"z":{level},"m":{text},"a":[{{"b":0,"a":1}}]}}"#);
    }
    let expected = serde_jcs::to_vec(&serde_json::from_str::<Value>(&text).unwrap()).unwrap();
    for small in [0, 30, 1000, 100_000] {
        assert_eq!(streamed(text.as_bytes(), &tiny(small)).unwrap(), expected, "{small}");
    }
    assert!(scan(text.as_bytes()).unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_value_in_a_document_has_the_hash_that_it_has_alone(
        text in arb_text(),
        long in prop::sample::select(vec![0usize, 70_000]),
        sorted in any::<bool>(),
        other in prop::sample::select(vec!["1", r#""\ud800""#, "1e999", r#"{"a":1,"a":2}"#]),
    ) {
        // A long string in the value, too, makes it one that is written by the index.
        let filler = "x".repeat(long);
        let value = if sorted { text } else { format!(r#"{{"z":"{filler}","a":{text}}}"#) };
        let document = format!(r#" {{"pad":"{filler}","v":{value},"other":{other}}}"#);
        let mut found = None;
        let indexed = super::index(document.as_bytes(), None, &mut |member| {
            if member.depth == 1 && member.raw_key == b"\"v\"" {
                found = Some(member.range);
            }
        });
        let read = std::cell::Cell::new(0);
        let page = |upto: usize| read.set(read.get().max(upto));
        let (whole, indexed) = (document.as_bytes(), indexed.unwrap());
        let both = super::digest_in(whole, &indexed, found.unwrap(), whole, Some(&page), &|| ());
        prop_assert_eq!(both.unwrap(), (digest(value.as_bytes(), None).unwrap(), sha256(whole)));
        prop_assert_eq!(read.get(), whole.len());
    }
}
