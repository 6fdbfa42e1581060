//! JSON as a peer may send it, as text: any number, and what stands in for a number.

use proptest::prelude::*;

/// Where writers, verifiers and other languages part.
pub const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "-0.0",
    "0.0",
    "0e0",
    "-0e-9",
    "0e999999",
    "1",
    "-1",
    "1.0",
    "1e2",
    "1E+2",
    "10e-1",
    "0.1",
    "1.5e-7",
    "0.000001",
    "0.0000001",
    "9007199254740990",
    "9007199254740991",
    "-9007199254740991",
    "9007199254740992",
    "-9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "9007199254740992.0",
    "9007199254740991.5",
    "9.007199254740992e15",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "100000000000000000000",
    "999999999999999900000",
    "1e20",
    "1e21",
    "1e22",
    "295147905179352830000",
    "295147905179352825856",
    "2.9514790517935283e20",
    "333333333.33333329",
    "0.1000000000000000055511151231257827",
    "1.7976931348623157e308",
    "1e308",
    "1e309",
    "-1e400",
    "5e-324",
    "1e-400",
    "123456789012345678901234567890123456789012345678901234567890",
    "-32000",
    "-32000.0",
    "4294967296",
];

/// Any JSON number.
pub fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(NUMBERS).prop_map(str::to_owned),
        2 => any::<i64>().prop_map(|n| n.to_string()),
        1 => any::<u64>().prop_map(|n| n.to_string()),
        1 => (0u32..64, -2i128..3, any::<bool>())
            .prop_map(|(p, d, minus)| (((1i128 << p) + d) * if minus { -1 } else { 1 }).to_string()),
        2 => any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(|f| format!("{f:e}")),
        2 => any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(|f| format!("{f}")),
        2 => "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?",
    ]
}

/// The inside of a JSON string.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("a".to_owned()),
        Just("\\ud800".to_owned()),
        Just("\\udc00x".to_owned()),
        Just("\u{2028}".to_owned()),
        Just("\u{2029}\u{85}".to_owned()),
        Just("\\u2028".to_owned()),
        Just("\\u0000\\n".to_owned()),
        Just("\u{7f}\u{feff}".to_owned()),
        Just("\\\"\\\\\\/".to_owned()),
        Just("żółw 😀 \u{202e}".to_owned()),
        Just("x".repeat(300)),
        "[ !#-\\[\\]-~]{0,8}",
        "[ !#-\\[\\]-\u{10ffff}]{0,8}",
    ];
    prop::collection::vec(part, 0..4).prop_map(|parts| parts.concat())
}

/// Any value, numbers foremost.
pub fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => number(),
        3 => text().prop_map(|t| format!("\"{t}\"")),
        1 => prop::sample::select(&["null", "true", "false", "[]", "{}", "[1,-0,1e400]", "{\"a\":1,\"a\":2}"][..])
            .prop_map(str::to_owned),
        1 => (text(), number()).prop_map(|(t, n)| format!("{{\"{t}\":[{n}]}}")),
    ]
}
