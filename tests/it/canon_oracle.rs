//! Canonicalization against serde_jcs, over arbitrary JSON in arbitrary spellings.

use assay::canon::{self, canonicalize, canonicalize_to, digest, elements, is_canonical, members, scan, scan_at};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Map, Number, Value};

const EXACT: i64 = 1 << 53;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn arb_string() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{0,4}",
        2 => "\\PC{0,16}",
        2 => prop::collection::vec(any::<char>(), 0..12).prop_map(|it| it.into_iter().collect()),
        1 => prop::collection::vec(prop::sample::select(&['\0', '\u{1f}', '"', '\\', '/', '\n', '\u{e000}', '😂', '\u{ffff}'][..]), 0..6)
            .prop_map(|it| it.into_iter().collect()),
        1 => "[ -~é€]{60,200}",
    ]
}

fn arb_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-EXACT..=EXACT).prop_map(Value::from),
        (-1000i64..1000).prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |it| Number::from_f64(it).map(Value::Number)),
        (-10_000_000i32..10_000_000, 0u8..8).prop_filter_map("finite", |(it, digits)| {
            Number::from_f64(f64::from(it) / 10f64.powi(digits.into())).map(Value::Number)
        }),
        arb_string().prop_map(Value::String),
    ];
    leaf.prop_recursive(6, 96, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::vec((arb_string(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Spells a value in one of its many ways; `dice` decides.
struct Speller<'a> {
    dice: std::iter::Cycle<std::slice::Iter<'a, u8>>,
    text: String,
}

impl Speller<'_> {
    fn roll(&mut self, sides: u8) -> u8 {
        self.dice.next().copied().unwrap_or_default() % sides
    }

    fn space(&mut self) {
        let space = ["", "", "", " ", "\n", "\t\r\n "][usize::from(self.roll(6))];
        self.text.push_str(space);
    }

    fn string(&mut self, string: &str) {
        self.text.push('"');
        for character in string.chars() {
            let must = matches!(character, '"' | '\\' | '\0'..='\x1f');
            match (self.roll(8), character) {
                (0, '/') => self.text.push_str("\\/"),
                (1..7, '\n') => self.text.push_str("\\n"),
                (0, _) => self.units(character, true),
                (1, _) => self.units(character, false),
                _ if must => self.units(character, false),
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }

    fn units(&mut self, character: char, upper: bool) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.text.push_str(&if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") });
        }
    }

    fn number(&mut self, number: &Number) {
        let value = number.as_f64().unwrap();
        let text = match self.roll(3) {
            0 => format!("{value:e}"),
            1 if !number.is_f64() => format!("{number}.0"),
            _ => number.to_string(),
        };
        self.text.push_str(&text);
    }

    fn value(&mut self, value: &Value) {
        self.space();
        match value {
            Value::Number(number) => self.number(number),
            Value::String(string) => self.string(string),
            Value::Array(items) => {
                self.text.push('[');
                for (nth, item) in items.iter().enumerate() {
                    self.text.push_str(if nth > 0 { "," } else { "" });
                    self.value(item);
                }
                self.space();
                self.text.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                let turn = usize::from(self.roll(16));
                let length = members.len().max(1);
                members.rotate_left(turn % length);
                if turn > 8 {
                    members.reverse();
                }
                self.text.push('{');
                for (nth, (name, value)) in members.into_iter().enumerate() {
                    self.text.push_str(if nth > 0 { "," } else { "" });
                    self.space();
                    self.string(name);
                    self.space();
                    self.text.push(':');
                    self.value(value);
                }
                self.space();
                self.text.push('}');
            }
            other => self.text.push_str(&other.to_string()),
        }
        self.space();
    }
}

fn spell(value: &Value, dice: &[u8]) -> String {
    let mut speller = Speller { dice: dice.iter().cycle(), text: String::new() };
    speller.value(value);
    speller.text
}

proptest! {
    #![proptest_config(config(3_000))]

    #[test]
    fn every_spelling_has_the_canonical_form_that_serde_jcs_writes(
        value in arb_value(),
        dice in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let expected = serde_jcs::to_vec(&value).unwrap();
        let text = spell(&value, &dice);
        prop_assert_eq!(scan(text.as_bytes()), Ok(canon::Anomalies::NONE), "{}", text);
        let canonical = canonicalize(text.as_bytes()).unwrap();
        prop_assert_eq!(String::from_utf8_lossy(&canonical), String::from_utf8_lossy(&expected), "{}", text);
        prop_assert!(is_canonical(&expected));
        prop_assert_eq!(is_canonical(text.as_bytes()), text.as_bytes() == expected);
        let hash = format!("sha256:{}", canon::sha256_hex(&expected));
        prop_assert_eq!(digest(text.as_bytes(), None).unwrap().to_string(), hash);
        prop_assert_eq!(canon::to_vec(&value).unwrap(), expected);
    }

    #[test]
    fn members_and_elements_partition_what_serde_json_reads(
        value in arb_value(),
        dice in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let text = spell(&value, &dice);
        let bytes = text.as_bytes();
        prop_assert_eq!(scan_at(bytes, 0).unwrap(), text.trim_end().len());
        match &value {
            Value::Object(expected) => {
                let mut seen = 0;
                for member in members(bytes).unwrap() {
                    let member = member.unwrap();
                    let expected = &expected[member.key.unwrap().as_ref()];
                    let canonical = canonicalize(&bytes[member.value]).unwrap();
                    prop_assert_eq!(canonical, serde_jcs::to_vec(expected).unwrap());
                    seen += 1;
                }
                prop_assert_eq!(seen, expected.len());
            }
            Value::Array(expected) => {
                let found: Vec<_> = elements(bytes).unwrap().map(|it| canonicalize(&bytes[it.unwrap()]).unwrap()).collect();
                let expected: Vec<_> = expected.iter().map(|it| serde_jcs::to_vec(it).unwrap()).collect();
                prop_assert_eq!(found, expected);
            }
            _ => {
                prop_assert!(members(bytes).is_err());
                prop_assert!(elements(bytes).is_err());
            }
        }
    }

    #[test]
    fn a_changed_byte_is_never_taken_for_canonical_unless_it_is(
        value in arb_value(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut line = serde_jcs::to_vec(&value).unwrap();
        let at = at.index(line.len());
        line[at] = byte;
        let expected = canonicalize(&line).is_ok_and(|canonical| canonical == line);
        // Integers that stand for a double they are not, flagged on the wire, are the one exception.
        let flagged = scan(&line) == Ok(canon::Anomalies::NUMBER_OUT_OF_RANGE);
        prop_assert!(is_canonical(&line) == expected || flagged, "{}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn syntax_is_judged_as_serde_json_judges_it(
        value in arb_value(),
        dice in prop::collection::vec(any::<u8>(), 1..64),
        at in any::<prop::sample::Index>(),
        with in prop::sample::select(&["", "\"", "\\", ",", ":", "{", "}", "[", "]", "0", "-", "e", ".", " ", "\n", "\u{1}", "é", "u", "t"][..]),
    ) {
        let text = spell(&value, &dice);
        let mut bounds = text.char_indices().map(|(at, _)| at).collect::<Vec<_>>();
        bounds.push(text.len());
        let from = bounds[at.index(bounds.len())];
        let until = text[from..].chars().next().map_or(from, |it| from + it.len_utf8());
        let changed = format!("{}{with}{}", &text[..from], &text[until..]);
        let theirs = serde_json::from_str::<Value>(&changed);
        match scan(changed.as_bytes()) {
            Err(error) => prop_assert!(theirs.is_err(), "{} {}", changed, error),
            Ok(anomalies) if anomalies.is_empty() || anomalies == canon::Anomalies::DUPLICATE_KEY =>
                prop_assert!(theirs.is_ok(), "{}", changed),
            Ok(_) => {}
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..400) {
        let scanned = scan(&bytes);
        prop_assert_eq!(scan_at(&bytes, 0).is_err() && scanned.is_ok(), false);
        let _ = scan_at(&bytes, at);
        prop_assert_eq!(digest(&bytes, None).is_ok(), scanned.is_ok());
        prop_assert_eq!(canonicalize(&bytes).is_ok(), scanned.is_ok_and(canon::Anomalies::is_empty));
        prop_assert_eq!(is_canonical(&bytes), canonicalize(&bytes).is_ok_and(|it| it == bytes));
        let _ = canon::decode_string(&bytes);
        let _ = canon::kind(&bytes);
        prop_assert!(members(&bytes).is_err() || members(&bytes).unwrap().count() <= bytes.len());
        prop_assert!(elements(&bytes).is_err() || elements(&bytes).unwrap().count() <= bytes.len());
    }
}

/// A message of a few megabytes with everything in it, out of order, against the oracle: the path by the index.
#[test]
fn a_large_message_is_canonicalized_like_a_small_one() {
    let rows: Vec<Value> = (0..20_000)
        .map(|nth| serde_json::json!({"row": nth, "name": format!("n\u{e9}\n{nth}"), "é": [nth, 0.5, null], "a": {}}))
        .collect();
    let mut unsorted = Map::new();
    for nth in 0..30_000u32 {
        unsorted.insert(format!("key {}", nth.wrapping_mul(2_654_435_761)), Value::from(nth));
    }
    let message = serde_json::json!({
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"rows": rows, "index": unsorted, "content": [{"type": "text", "text": "x\"y€".repeat(100_000)}]},
    });
    let dice: Vec<u8> = (0..255u8).map(|nth| nth.wrapping_mul(97)).collect();
    let text = spell(&message, &dice);
    let expected = serde_jcs::to_vec(&message).unwrap();
    assert!(canonicalize(text.as_bytes()).unwrap() == expected);
    let mut parts = Vec::new();
    canonicalize_to(text.as_bytes(), &mut |part| parts.extend_from_slice(part)).unwrap();
    assert!(parts == expected);
    assert_eq!(digest(text.as_bytes(), None), Ok(canon::Digest::Jcs(canon::sha256(&expected))));
    assert!(is_canonical(&expected));
}

#[test]
fn serde_values_that_have_no_canonical_form_are_refused() {
    #[derive(Serialize)]
    struct Call<'a> {
        name: &'a str,
        id: u64,
        args: &'a serde_json::value::RawValue,
    }
    let args = serde_json::value::RawValue::from_string(r#"{"b":1.0,"a":2}"#.to_owned()).unwrap();
    let call = |id| canon::to_vec(&Call { name: "x", id, args: &args });
    assert_eq!(call(7).unwrap(), br#"{"args":{"a":2,"b":1},"id":7,"name":"x"}"#);
    assert!(matches!(
        call((1 << 53) + 1),
        Err(canon::SerializeError::Canon(canon::CanonError::Ambiguous(canon::Anomalies::NUMBER_OUT_OF_RANGE)))
    ));
    assert_eq!(canon::to_vec(&295_147_905_179_352_830_000f64).unwrap(), b"295147905179352830000");
}
