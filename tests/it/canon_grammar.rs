//! The grammar of RFC 8259, held strictly, and what is flagged rather than refused.

use assay::canon::{
    Anomalies, CanonError, Digest, Kind, MAX_DEPTH, ScanErrorKind, canonicalize, decode_string, digest, elements,
    is_canonical, kind, members, scan, scan_at, sha256,
};

/// Documents that every parser must accept, named as in JSONTestSuite.
const ACCEPTED: &[(&str, &[u8])] = &[
    ("array_arraysWithSpaces", b"[[]   ]"),
    ("array_empty-string", b"[\"\"]"),
    ("array_empty", b"[]"),
    ("array_ending_with_newline", b"[\"a\"]\n"),
    ("array_heterogeneous", b"[null, 1, \"1\", {}]"),
    ("array_with_leading_space", b" [1]"),
    ("array_with_several_null", b"[1,null,null,null,2]"),
    ("array_with_trailing_space", b"[2] "),
    ("array_tabs_and_returns", b"[\t1\r\n,\r2\t]"),
    ("number_0e+1", b"[0e+1]"),
    ("number_0e1", b"[0e1]"),
    ("number_after_space", b"[ 4]"),
    (
        "number_double_close_to_zero",
        b"[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]",
    ),
    ("number_int_with_exp", b"[20e1]"),
    ("number_minus_zero", b"[-0]"),
    ("number_negative_int", b"[-123]"),
    ("number_real_capital_e_neg_exp", b"[1E-2]"),
    ("number_real_capital_e_pos_exp", b"[1E+2]"),
    ("number_real_fraction_exponent", b"[123.456e78]"),
    ("number_simple_real", b"[123.456789]"),
    ("number_leading_zero_exponent", b"[1e-007]"),
    ("object_basic", b"{\"asd\":\"sdf\"}"),
    ("object_empty_key", b"{\"\":0}"),
    ("object_escaped_null_in_key", b"{\"foo\\u0000bar\": 42}"),
    ("object_extreme_numbers", b"{ \"min\": -1.0e+28, \"max\": 1.0e+28 }"),
    ("object_with_newlines", b"{\n\"a\": \"b\"\n}"),
    ("object_spaces_around_colon", b"{\"a\" : \t1 , \"b\":2}"),
    ("string_1_2_3_bytes_UTF-8_sequences", b"[\"\\u0060\\u012a\\u12AB\"]"),
    ("string_accepted_surrogate_pair", b"[\"\\uD801\\udc37\"]"),
    ("string_allowed_escapes", b"[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]"),
    ("string_backslash_and_u_escaped_zero", b"[\"\\\\u0000\"]"),
    ("string_double_escape_a", b"[\"\\\\a\"]"),
    ("string_in_array_with_leading_space", b"[ \"asd\"]"),
    ("string_last_surrogates_1_and_2", b"[\"\\uDBFF\\uDFFF\"]"),
    ("string_nonCharacterInUTF-8_U+FFFF", "[\"\u{ffff}\"]".as_bytes()),
    ("string_null_escape", b"[\"\\u0000\"]"),
    ("string_u+2028_line_sep", "[\"\u{2028}\"]".as_bytes()),
    ("string_unescaped_char_delete", b"[\"\x7f\"]"),
    ("string_utf8", "[\"€𝄞\"]".as_bytes()),
    ("structure_lonely_false", b"false"),
    ("structure_lonely_int", b"42"),
    ("structure_lonely_negative_real", b"-0.1"),
    ("structure_lonely_null", b"null"),
    ("structure_lonely_string", b"\"asd\""),
    ("structure_lonely_true", b"true"),
    ("structure_string_empty", b"\"\""),
    ("structure_whitespace_array", b" \r\n\t[] \r\n\t"),
];

/// Documents that no strict parser accepts, named as in JSONTestSuite, and where the error is.
const REFUSED: &[(&str, &[u8], usize)] = &[
    ("array_1_true_without_comma", b"[1 true]", 3),
    ("array_colon_instead_of_comma", b"[\"\": 1]", 3),
    ("array_comma_after_close", b"[\"\"],", 4),
    ("array_comma_and_number", b"[,1]", 1),
    ("array_double_comma", b"[1,,2]", 3),
    ("array_extra_close", b"[\"x\"]]", 5),
    ("array_extra_comma", b"[\"\",]", 4),
    ("array_incomplete", b"[\"x\"", 4),
    ("array_inner_array_no_comma", b"[3[4]]", 2),
    ("array_just_comma", b"[,]", 1),
    ("array_just_minus", b"[-]", 2),
    ("array_unclosed", b"[\"\"", 3),
    ("array_unclosed_with_object_inside", b"[{}", 3),
    ("array_closed_as_object", b"[1}", 2),
    ("array_vertical_tab", b"[\"\x0b\"]", 2),
    ("incomplete_false", b"[fals]", 1),
    ("incomplete_null", b"nul", 3),
    ("misspelt_true", b"[trux]", 1),
    ("capital_true", b"[True]", 1),
    ("literal_with_tail", b"nulll", 4),
    ("number_++", b"[++1]", 1),
    ("number_+1", b"[+1]", 1),
    ("number_-01", b"[-01]", 2),
    ("number_-2.", b"[-2.]", 4),
    ("number_.-1", b"[.-1]", 1),
    ("number_.2e-3", b"[.2e-3]", 1),
    ("number_0.e1", b"[0.e1]", 3),
    ("number_0_capital_E", b"[0E]", 3),
    ("number_0e+", b"[0e+]", 4),
    ("number_1_000", b"[1 000.0]", 3),
    ("number_1eE2", b"[1eE2]", 3),
    ("number_2.e+3", b"[2.e+3]", 3),
    ("number_hex_1_digit", b"[0x1]", 2),
    ("number_Inf", b"[Inf]", 1),
    ("number_NaN", b"[NaN]", 1),
    ("number_-NaN", b"[-NaN]", 2),
    ("number_minus_space_1", b"[- 1]", 2),
    ("number_neg_with_garbage_at_end", b"[-1x]", 3),
    ("number_real_garbage_after_e", b"[1ea]", 3),
    ("number_with_leading_zero", b"[012]", 1),
    ("number_fullwidth_digit", "[１]".as_bytes(), 1),
    ("number_end_after_point", b"1.", 2),
    ("object_bad_value", b"[\"x\", truth]", 6),
    ("object_bracket_key", b"{[: \"x\"}", 1),
    ("object_comma_instead_of_colon", b"{\"x\", null}", 4),
    ("object_double_colon", b"{\"x\"::\"b\"}", 5),
    ("object_key_with_single_quotes", b"{key: 'value'}", 1),
    ("object_missing_value", b"{\"a\":", 5),
    ("object_missing_key", b"{:\"b\"}", 1),
    ("object_no_colon", b"{\"a\"", 4),
    ("object_non_string_key", b"{1:1}", 1),
    ("object_trailing_comma", b"{\"id\":0,}", 8),
    ("object_trailing_comment", b"{\"a\":\"b\"}/**/", 9),
    ("object_two_commas_in_a_row", b"{\"a\":\"b\",,\"c\":\"d\"}", 9),
    ("object_with_trailing_garbage", b"{\"a\":\"b\"}#", 9),
    ("object_closed_as_array", b"{\"a\":1]", 6),
    ("single_space", b" ", 1),
    ("string_1_surrogate_then_escape_u1x", b"[\"\\uD800\\u1x\"]", 8),
    ("string_backslash_00", b"[\"\\\x00\"]", 2),
    ("string_escape_x", b"[\"\\x00\"]", 2),
    ("string_escaped_emoji", "[\"\\🌀\"]".as_bytes(), 2),
    ("string_incomplete_escape", b"[\"\\\"]", 5),
    ("string_incomplete_escaped_character", b"[\"\\u00A\"]", 2),
    ("string_invalid_unicode_escape", b"[\"\\uqqqq\"]", 2),
    ("string_leading_uescaped_thinspace", b"[\\u0020\"asd\"]", 1),
    ("string_no_quotes_with_bad_escape", b"[\\n]", 1),
    ("string_single_doublequote", b"\"", 1),
    ("string_single_quote", b"['single quote']", 1),
    ("string_start_escape_unclosed", b"[\"\\", 3),
    ("string_unescaped_ctrl_char", b"[\"a\x00a\"]", 3),
    ("string_unescaped_newline", b"[\"new\nline\"]", 5),
    ("string_unescaped_tab", b"[\"\t\"]", 2),
    (
        "string_control_byte_far_in",
        b"\"0123456789012345678901234567890123456789012345678901234567890123456789\x1f\"",
        71,
    ),
    ("structure_angle_bracket", b"<null>", 0),
    ("structure_array_trailing_garbage", b"[1]x", 3),
    ("structure_BOM", b"\xef\xbb\xbf{}", 0),
    ("structure_no_data", b"", 0),
    ("structure_null-byte-outside-string", b"[\x00]", 1),
    ("structure_two_documents", b"{} {}", 3),
    ("structure_open_array_comma", b"[,", 1),
    ("structure_open_object_close_array", b"{]", 1),
    ("structure_single_star", b"*", 0),
    ("structure_U+2060_word_joined", "[\u{2060}]".as_bytes(), 1),
    ("structure_formfeed", b"[\x0c]", 1),
    ("structure_nbsp", "[\u{a0}]".as_bytes(), 1),
    ("structure_lone_invalid_utf8", b"\xff", 0),
];

#[test]
fn what_the_grammar_allows_is_accepted() {
    for (name, text) in ACCEPTED {
        assert_eq!(scan(text), Ok(Anomalies::NONE), "{name}");
        let canonical = canonicalize(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(is_canonical(&canonical), "{name}");
        assert_eq!(canonicalize(&canonical).as_ref(), Ok(&canonical), "{name}");
        assert_eq!(is_canonical(text), *text == canonical, "{name}");
        assert_eq!(scan_at(text, 0).unwrap(), text.trim_ascii_end().len(), "{name}");
        let parsed: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert_eq!(serde_jcs::to_vec(&parsed).unwrap(), canonical, "{name}");
    }
}

#[test]
fn what_the_grammar_forbids_is_refused_where_it_goes_wrong() {
    for (name, text, offset) in REFUSED {
        let error = scan(text).expect_err(name);
        assert_eq!(error.offset, *offset, "{name}: {error}");
        assert_eq!(canonicalize(text), Err(CanonError::Syntax(error)), "{name}");
        assert_eq!(digest(text, None), Err(error), "{name}");
        assert!(!is_canonical(text), "{name}");
        assert!(serde_json::from_slice::<serde_json::Value>(text).is_err(), "{name}");
    }
}

#[test]
fn errors_say_what_and_where() {
    assert_eq!(scan(b"[1,]").unwrap_err().to_string(), "unexpected byte 0x5d at byte 3");
    assert_eq!(scan(b"[1").unwrap_err().to_string(), "unexpected end of input at byte 2");
    assert_eq!(scan(b"\"\x01\"").unwrap_err().to_string(), "raw control byte in a string at byte 1");
    assert_eq!(scan(b"{} 1").unwrap_err().kind, ScanErrorKind::TrailingBytes);
    assert_eq!(scan(br#""\x""#).unwrap_err().kind, ScanErrorKind::BadEscape);
    assert_eq!(scan(b"01").unwrap_err().kind, ScanErrorKind::BadNumber);
    assert_eq!(scan(b"nope").unwrap_err().kind, ScanErrorKind::BadLiteral);
    let ambiguous = canonicalize(br#"{"a":1e999,"a":2}"#).unwrap_err();
    assert_eq!(ambiguous.to_string(), "no unambiguous canonical form: duplicate_key, number_out_of_range");
}

/// Every document here is accepted by lenient peers; none has a canonical form.
#[test]
fn what_has_no_canonical_form_is_flagged_and_hashed_raw() {
    let cases: &[(&[u8], Anomalies)] = &[
        (br#"{"a":1,"a":2}"#, Anomalies::DUPLICATE_KEY),
        (br#"{"a":1,"b":2,"\u0061":3}"#, Anomalies::DUPLICATE_KEY),
        (br#"{"\u0061":1,"\u0061":3}"#, Anomalies::DUPLICATE_KEY),
        (br#"[{"x":{"z":0,"\/":1,"/":2}}]"#, Anomalies::DUPLICATE_KEY),
        (r#"{"😂":1,"\ud83d\ude02":2}"#.as_bytes(), Anomalies::DUPLICATE_KEY),
        (
            br#"{"longer than eight bytes":1,"longer than eight":2,"longer than eight bytes":3}"#,
            Anomalies::DUPLICATE_KEY,
        ),
        (br#""\ud800""#, Anomalies::LONE_SURROGATE),
        (br#""\udc00\ud800""#, Anomalies::LONE_SURROGATE),
        (br#""\ud800\u0041""#, Anomalies::LONE_SURROGATE),
        (br#""\ud800\ud800\udc00""#, Anomalies::LONE_SURROGATE),
        (br#"{"\udead":1}"#, Anomalies::LONE_SURROGATE),
        (b"\"\xff\"", Anomalies::INVALID_UTF8),
        (b"\"\xc3\"", Anomalies::INVALID_UTF8),
        (b"\"\xc3\\n\xa9\"", Anomalies::INVALID_UTF8),
        (b"\"\xed\xa0\x80\"", Anomalies::INVALID_UTF8),
        (b"\"\xc0\xaf\"", Anomalies::INVALID_UTF8),
        (b"{\"\xf8\":0}", Anomalies::INVALID_UTF8),
        (b"9007199254740993", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"-9007199254740993", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"18446744073709551615", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"295147905179352830000", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"1e400", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"-1e400", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"1e99999999999999999999999", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"1e-400", Anomalies::NUMBER_OUT_OF_RANGE),
        (b"0.0000001e-400", Anomalies::NUMBER_OUT_OF_RANGE),
    ];
    for (text, anomalies) in cases {
        let name = String::from_utf8_lossy(text);
        assert_eq!(scan(text), Ok(*anomalies), "{name}");
        assert_eq!(canonicalize(text), Err(CanonError::Ambiguous(*anomalies)), "{name}");
        assert_eq!(digest(text, None), Ok(Digest::Raw(sha256(text), *anomalies)), "{name}");
        let padded = [b" \t", *text, b"\r"].concat();
        assert_eq!(digest(&padded, None), Ok(Digest::Raw(sha256(text), *anomalies)), "{name}");
        // The one that is canonical spelling of a double, 2^68, although it is flagged on the wire.
        assert_eq!(is_canonical(text), *text == b"295147905179352830000", "{name}");
    }
    let raw = digest(br#"{"a":1,"a":2}"#, None).unwrap().to_string();
    assert_eq!(raw, format!("sha256-raw:{}", assay::canon::sha256_hex(br#"{"a":1,"a":2}"#)));
}

#[test]
fn several_reasons_are_named_in_order() {
    let anomalies = scan(b"{\"a\":\"\\ud800\",\"a\":[1e999,\"\xff\"]}").unwrap();
    let names: Vec<_> = anomalies.names().collect();
    assert_eq!(names, ["duplicate_key", "invalid_utf8", "lone_surrogate", "number_out_of_range"]);
    assert!(names.is_sorted());
}

#[test]
fn numbers_are_spelt_as_ecmascript_does() {
    let cases = [
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e5", "0"),
        ("0.0000000000000000e-99999", "0"),
        ("9007199254740991", "9007199254740991"),
        ("9007199254740992", "9007199254740992"),
        ("-9007199254740992", "-9007199254740992"),
        ("9007199254740994", "9007199254740994"),
        ("9007199254740993.0", "9007199254740992"),
        ("18446744073709551616", "18446744073709552000"),
        ("10000000000000000000000", "1e+22"),
        ("1e23", "1e+23"),
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("100e-2", "1"),
        ("0.1", "0.1"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("0.000001", "0.000001"),
        ("0.0000012", "0.0000012"),
        ("0.0000001", "1e-7"),
        ("0.00000012", "1.2e-7"),
        ("123456789012345", "123456789012345"),
        ("1234567890.12345", "1234567890.12345"),
        ("1234567890123456", "1234567890123456"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("5e-324", "5e-324"),
        ("333333333.33333329", "333333333.3333333"),
    ];
    for (literal, expected) in cases {
        let canonical = canonicalize(literal.as_bytes()).unwrap_or_else(|error| panic!("{literal}: {error}"));
        assert_eq!(String::from_utf8_lossy(&canonical), expected, "{literal}");
        assert_eq!(is_canonical(literal.as_bytes()), literal == expected, "{literal}");
        assert!(is_canonical(expected.as_bytes()), "{expected}");
    }
    let huge = format!("1{}", "0".repeat(400));
    assert_eq!(scan(huge.as_bytes()), Ok(Anomalies::NUMBER_OUT_OF_RANGE));
    let exact = format!("{:.0}", f64::MAX);
    assert_eq!(canonicalize(exact.as_bytes()).unwrap(), b"1.7976931348623157e+308");
    let tiny = format!("0.{}1", "0".repeat(400));
    assert_eq!(scan(tiny.as_bytes()), Ok(Anomalies::NUMBER_OUT_OF_RANGE));
}

#[test]
fn names_are_sorted_by_utf16_code_units() {
    let text = "{\"\u{1f602}\":1,\"\u{fb33}\":2,\"\u{ffff}\":3,\"\u{20ac}\":4,\"a\":5,\"\":6,\"\\u0000\":7,\"a\\u0000\":8,\"aa\":9,\"\u{1f602}x\":10,\"\u{10ffff}\":11,\"\u{e000}\":12,\"\u{d7ff}\":13}";
    let expected = "{\"\":6,\"\\u0000\":7,\"a\":5,\"a\\u0000\":8,\"aa\":9,\"\u{20ac}\":4,\"\u{d7ff}\":13,\"\u{1f602}\":1,\"\u{1f602}x\":10,\"\u{10ffff}\":11,\"\u{e000}\":12,\"\u{fb33}\":2,\"\u{ffff}\":3}";
    assert_eq!(String::from_utf8(canonicalize(text.as_bytes()).unwrap()).unwrap(), expected);
    assert!(is_canonical(expected.as_bytes()));
}

#[test]
fn strings_carry_the_least_escapes() {
    let text = r#""\u0000\u0008\u0009\u000A\u000b\u000C\u000d\u001F\u0022\u005C\u002f\/\u007f\u0080\u00e9\u20AC\uD83D\uDE02\u2028""#;
    let expected = "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\//\u{7f}\u{80}é€😂\u{2028}\"";
    assert_eq!(String::from_utf8(canonicalize(text.as_bytes()).unwrap()).unwrap(), expected);
    for wrong in [r#""\/""#, r#""\u000a""#, r#""\u001F""#, r#""\u0020""#, r#""\u0041""#, r#""\u0022""#, r#""\u0008""#] {
        assert!(!is_canonical(wrong.as_bytes()), "{wrong}");
    }
}

#[test]
fn lines_that_mean_the_same_in_other_bytes_are_not_canonical() {
    assert!(is_canonical(br#"{"a":[1,{}],"b":"x"}"#));
    for other in [
        &br#"{"a":[1,{}],"b":"x"} "#[..],
        b" {\"a\":[1,{}],\"b\":\"x\"}",
        b"{\"a\":[1,{}],\"b\":\"x\"}\n",
        br#"{"b":"x","a":[1,{}]}"#,
        br#"{"a": [1,{}],"b":"x"}"#,
        br#"{"a":[1.0,{}],"b":"x"}"#,
        br#"{"a":[1,{}],"a":[1,{}],"b":"x"}"#,
        br#"{"a":[1,{}],"b":"\u0078"}"#,
        br#"{"a":[1,{ }],"b":"x"}"#,
        br#"{"a":[1,{}],"b":"x"}{}"#,
        b"\xef\xbb\xbf{\"a\":[1,{}],\"b\":\"x\"}",
    ] {
        assert!(!is_canonical(other), "{}", String::from_utf8_lossy(other));
    }
}

#[test]
fn depth_is_bounded_by_a_flag_and_never_by_the_stack() {
    let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert_eq!(scan(&nested(MAX_DEPTH)), Ok(Anomalies::NONE));
    assert_eq!(canonicalize(&nested(MAX_DEPTH)).unwrap(), nested(MAX_DEPTH));
    assert!(is_canonical(&nested(MAX_DEPTH)));
    let deep = nested(MAX_DEPTH + 1);
    assert_eq!(scan(&deep), Ok(Anomalies::DEPTH_EXCEEDED));
    assert!(!is_canonical(&deep));
    let million = nested(1_000_000);
    assert_eq!(digest(&million, None), Ok(Digest::Raw(sha256(&million), Anomalies::DEPTH_EXCEEDED)));
    assert_eq!(scan_at(&million, 0), Ok(2_000_000));
    assert!(!is_canonical(&million));
    assert_eq!(elements(&million).unwrap().map(Result::unwrap).next(), Some(1..1_999_999));
    let objects = [br#"{"a":"#.repeat(1_000_000), b"1".to_vec(), b"}".repeat(1_000_000)].concat();
    assert_eq!(scan(&objects), Ok(Anomalies::DEPTH_EXCEEDED));
    let open = br#"[{"":"#.repeat(1_000_000);
    assert_eq!(scan(&open).unwrap_err().kind, ScanErrorKind::UnexpectedEnd);
    // A mix of both, across the word boundaries of the level stack, closed in the wrong order once.
    let mixed = [br#"[{"":"#.repeat(100), b"0".to_vec(), b"}]".repeat(100)].concat();
    assert_eq!(scan(&mixed), Ok(Anomalies::DEPTH_EXCEEDED));
    let crossed = [br#"[{"":"#.repeat(100), b"0".to_vec(), b"}]".repeat(67), b"]}".to_vec(), b"}]".repeat(32)].concat();
    assert_eq!(scan(&crossed).unwrap_err().offset, 501 + 134);
}

#[test]
fn a_name_that_serde_json_treats_specially_stays_an_object() {
    for name in ["$serde_json::private::Number", "$serde_json::private::RawValue"] {
        let text = format!(r#"{{"{name}":"1.50"}}"#);
        assert_eq!(canonicalize(text.as_bytes()).unwrap(), text.as_bytes());
        assert!(is_canonical(text.as_bytes()));
    }
}

#[test]
fn members_come_as_they_stand() {
    let text = "\n{ \"b\" : [1, {\"x\":2}] ,\"\\u0061\":\"\", \"b\":null,\"\\ud800\":0,\"é\":-1.5e3}\t".as_bytes();
    let found: Vec<_> = members(text).unwrap().map(Result::unwrap).collect();
    let seen: Vec<_> =
        found.iter().map(|it| (it.key.as_deref(), std::str::from_utf8(&text[it.value.clone()]).unwrap())).collect();
    let expected =
        [(Some("b"), "[1, {\"x\":2}]"), (Some("a"), "\"\""), (Some("b"), "null"), (None, "0"), (Some("é"), "-1.5e3")];
    assert_eq!(seen, expected);
    assert_eq!(found[1].raw_key, br#""\u0061""#);
    assert_eq!(&text[found[1].key_range.clone()], br#""\u0061""#);
    assert_eq!(members(b"{ }").unwrap().count(), 0);
    assert_eq!(members(b" [1]").unwrap_err().kind, ScanErrorKind::NotAnObject);
    assert_eq!(members(b"").unwrap_err().kind, ScanErrorKind::UnexpectedEnd);
}

#[test]
fn members_and_elements_stop_at_the_first_error() {
    for (text, offset) in [
        (&br#"{"a":1,}"#[..], 7),
        (br#"{"a":1 "b":2}"#, 7),
        (br#"{"a" 1}"#, 5),
        (br#"{"a":1}x"#, 7),
        (br#"{"a":1"#, 6),
        (br#"{,"a":1}"#, 1),
        (br#"{"a":[1,]}"#, 8),
    ] {
        let mut walk = members(text).unwrap();
        let error = walk.find_map(Result::err).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(text)));
        assert_eq!(error.offset, offset, "{}", String::from_utf8_lossy(text));
        assert_eq!(walk.next(), None);
    }
    for (text, offset) in [(&b"[1,]"[..], 3), (b"[1 2]", 3), (b"[1]]", 3), (b"[", 1), (b"[,]", 1)] {
        let mut walk = elements(text).unwrap();
        let error = walk.find_map(Result::err).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(text)));
        assert_eq!(error.offset, offset, "{}", String::from_utf8_lossy(text));
        assert_eq!(walk.next(), None);
    }
    let ranges: Vec<_> = elements(b"[ 1, [2] ,\"3\"] ").unwrap().map(Result::unwrap).collect();
    assert_eq!(ranges, [2..3, 5..8, 10..13]);
    assert_eq!(elements(b"{}").unwrap_err().kind, ScanErrorKind::NotAnArray);
}

#[test]
fn a_value_is_skipped_where_it_stands() {
    assert_eq!(scan_at(b"x, [1,{\"a\":\"]\"}] rest", 2), Ok(16));
    assert_eq!(scan_at(b"1 2", 0), Ok(1));
    assert_eq!(scan_at(b"[1", 0).unwrap_err().offset, 2);
    assert_eq!(scan_at(b"1", 9).unwrap_err().kind, ScanErrorKind::UnexpectedEnd);
}

#[test]
fn strings_are_decoded_or_refused() {
    assert_eq!(decode_string(br#""plain""#).unwrap(), "plain");
    assert!(matches!(decode_string(br#""plain""#), Some(std::borrow::Cow::Borrowed(_))));
    assert_eq!(decode_string(br#""a\n\ud83d\ude02\u00e9""#).unwrap(), "a\n😂é");
    assert_eq!(decode_string(br#""""#).unwrap(), "");
    let long = format!("\"{}\\t{}\"", "é".repeat(100_000), "x".repeat(100_000));
    assert_eq!(decode_string(long.as_bytes()).unwrap().chars().count(), 200_001);
    let refused: [&[u8]; 10] =
        [b"", b"\"", b"\"a", b"a\"", b"1", b"\"a\"b\"", b"\"\\\"", b"\"\xff\"", b"\"\\ud800\"", b"\"\n\""];
    for raw in refused {
        assert_eq!(decode_string(raw), None, "{}", String::from_utf8_lossy(raw));
    }
}

#[test]
fn kinds_are_told_by_the_first_byte() {
    let cases: [(&[u8], Option<Kind>); 11] = [
        (b" {", Some(Kind::Object)),
        (b"\n[", Some(Kind::Array)),
        (b"\"", Some(Kind::String)),
        (b"-1", Some(Kind::Number)),
        (b"7", Some(Kind::Number)),
        (b"true", Some(Kind::Bool)),
        (b"false", Some(Kind::Bool)),
        (b"null", Some(Kind::Null)),
        (b"", None),
        (b"  ", None),
        (b"\xef\xbb\xbf{}", None),
    ];
    for (text, expected) in cases {
        assert_eq!(kind(text), expected, "{}", String::from_utf8_lossy(text));
    }
}

/// Long strings are handled in sections of 64 KiB, and within them in words and blocks: whatever stands across a border
/// has to come out as it does elsewhere.
#[test]
fn strings_are_the_same_across_every_internal_border() {
    let tails = ["é", "€", "😂", r"\n", r"\u00e9", r"\ud83d\ude02", r"\/", r#"\""#, r"\\\\", "\u{7f}x", r"\u001f"];
    let borders = (0..75).chain(250..300).chain(65_526..65_542).chain(131_062..131_074);
    for border in borders {
        let filler = "x".repeat(border);
        for tail in tails {
            let text = format!("\"{filler}{tail}{tail}{}\"", "yé".repeat(usize::from(border % 7 == 0) * 40));
            let decoded: String = serde_json::from_str(&text).unwrap();
            let canonical = serde_json::to_vec(&decoded).unwrap();
            assert_eq!(canonicalize(text.as_bytes()).unwrap(), canonical, "{border} {tail}");
            assert_eq!(decode_string(text.as_bytes()).unwrap(), decoded, "{border} {tail}");
            assert!(is_canonical(&canonical), "{border} {tail}");
            assert_eq!(is_canonical(text.as_bytes()), text.as_bytes() == canonical, "{border} {tail}");
            assert_eq!(digest(text.as_bytes(), None), Ok(Digest::Jcs(sha256(&canonical))), "{border} {tail}");
        }
        for bad in [&b"\xe2\x82"[..], b"\xff", b"\x80", b"\xf0\x9f\x98", b"\xc3\\n"] {
            let text = [b"\"", filler.as_bytes(), bad, b"\""].concat();
            assert_eq!(scan(&text), Ok(Anomalies::INVALID_UTF8), "{border} {bad:?}");
            assert!(!is_canonical(&text), "{border} {bad:?}");
        }
        for bad in ["\n", "\0", "\u{1f}", r"\x", r"\u12"] {
            let text = format!("\"{filler}{bad}\"");
            assert_eq!(scan(text.as_bytes()).unwrap_err().offset, border + 1, "{border} {bad:?}");
            assert!(!is_canonical(text.as_bytes()), "{border} {bad:?}");
        }
    }
}
