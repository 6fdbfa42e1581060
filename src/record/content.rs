//! What of a message may be in a receipt: text that every verifier reads as one line, content that assay's
//! canonicalizer writes as ours does.

use crate::model::{CallAnomaly, RpcId, Word, exact_integer};
use std::{borrow::Cow, collections::BTreeSet};

/// Tool names and methods are kept up to this many bytes; the message's hash covers the rest.
pub const MAX_NAME: usize = 1024;
/// JSON-RPC ids are kept up to this many bytes.
pub const MAX_ID: usize = 256;

/// Characters that some readers of JSONL take for the end of a line (Python's `splitlines`), as they occur unescaped in
/// RFC 8785 strings.
const LINE_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// `text` as a receipt may hold it, and whether that differs: at most [`MAX_NAME`] bytes, no line breaks of any kind.
#[must_use]
pub fn receipt_text(text: &str) -> (Cow<'_, str>, bool) {
    let short = text.len() <= MAX_NAME;
    if short && !text.contains(LINE_BREAKS) {
        return (Cow::Borrowed(text), false);
    }
    let cut = &text[..text.floor_char_boundary(MAX_NAME)];
    let mut out: String = String::with_capacity(cut.len() + 3);
    for c in cut.chars() {
        if LINE_BREAKS.contains(&c) { out.push('\u{fffd}') } else { out.push(c) }
    }
    if !short {
        out.push('…');
    }
    (Cow::Owned(out), true)
}

/// Whether canonical JSON may be in a receipt: ASCII member names, no exponents, no line breaks (docs/formats.md,
/// "Proof pack").
#[must_use]
pub fn packable(canonical: &[u8]) -> bool {
    let mut at = 0;
    while at < canonical.len() {
        match canonical[at] {
            b'"' => {
                let end = string_end(canonical, at);
                let text = &canonical[at..end];
                if !text.is_ascii() {
                    let key = canonical.get(end) == Some(&b':');
                    let broken = std::str::from_utf8(text).map_or(true, |t| t.contains(LINE_BREAKS));
                    if key || broken {
                        return false;
                    }
                }
                at = end;
            }
            b'0'..=b'9' => {
                let len = canonical[at..].iter().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count();
                if canonical[at..at + len].iter().any(|b| b.eq_ignore_ascii_case(&b'e')) {
                    return false;
                }
                at += len;
            }
            _ => at += 1,
        }
    }
    true
}

/// The index after the closing quote of the string that opens at `at`.
fn string_end(json: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while let Some(n) = memchr::memchr2(b'"', b'\\', &json[i..]) {
        i += n;
        if json[i] == b'"' {
            return i + 1;
        }
        i = (i + 2).min(json.len());
    }
    json.len()
}

/// A JSON-RPC id, from its raw text, as evidence holds it; what had to be changed goes into `anomalies`.
pub fn evidence_id(raw: Option<&[u8]>, anomalies: &mut BTreeSet<Word<CallAnomaly>>) -> RpcId {
    let Some(raw) = raw else { return RpcId::Null };
    let mut flag = |word: CallAnomaly| {
        anomalies.insert(word.into());
    };
    if raw.len() > MAX_ID {
        flag(CallAnomaly::IdTooLong);
        return RpcId::Text(format!("sha256-raw:{}", crate::model::sha256_hex(raw)));
    }
    match raw.first() {
        Some(b'n') => RpcId::Null,
        Some(b'"') => {
            if let Some(text) = crate::canon::decode_string(raw) {
                let (text, changed) = receipt_text(&text);
                if changed {
                    flag(CallAnomaly::IdNotVerbatim);
                }
                RpcId::Text(text.into_owned())
            } else {
                flag(CallAnomaly::IdNotVerbatim);
                RpcId::Text(receipt_text(&String::from_utf8_lossy(raw)).0.into_owned())
            }
        }
        _ => exact_integer(raw).map_or_else(
            || {
                flag(CallAnomaly::IdOutOfRange);
                RpcId::Text(receipt_text(&String::from_utf8_lossy(raw)).0.into_owned())
            },
            RpcId::Int,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_that_assay_would_write_differently_or_split_is_not_packable() {
        for (json, ok) in [
            (r#"{"a":[1,2.5,"x",null,true],"b":"é日本"}"#, true),
            (r#"{"é":1}"#, false),
            (r#"{"a":{"b":{"日":1}}}"#, false),
            (r#"{"a":1e+21}"#, false),
            (r#"{"a":1.5e-7}"#, false),
            (r#"{"a":"1e+21 and \"é\":"}"#, true),
            ("{\"a\":\"x\u{2028}y\"}", false),
            ("{\"a\":\"x\u{85}y\"}", false),
            (r#""\\""#, true),
        ] {
            assert_eq!(packable(json.as_bytes()), ok, "{json}");
        }
    }

    #[test]
    fn ids_keep_type_and_precision_or_say_that_they_do_not() {
        let mut flags = BTreeSet::new();
        assert_eq!(evidence_id(Some(b"17"), &mut flags), RpcId::Int(17));
        assert_eq!(evidence_id(Some(b"\"17\""), &mut flags), RpcId::Text("17".into()));
        assert_eq!(evidence_id(Some(b"null"), &mut flags), RpcId::Null);
        assert_eq!(evidence_id(None, &mut flags), RpcId::Null);
        assert!(flags.is_empty());
        assert_eq!(evidence_id(Some(b"9007199254740993"), &mut flags), RpcId::Text("9007199254740993".into()));
        assert!(flags.contains(&CallAnomaly::IdOutOfRange.into()));
        for raw in ["-0", "9007199254740992", "-9007199254740992", "1.0", "1e2", "1e400", "0.1"] {
            let mut flags = BTreeSet::new();
            assert_eq!(evidence_id(Some(raw.as_bytes()), &mut flags), RpcId::Text(raw.into()));
            assert!(flags.contains(&CallAnomaly::IdOutOfRange.into()), "{raw}");
        }
        for raw in ["9007199254740991", "-9007199254740991", "0", "-1"] {
            let mut flags = BTreeSet::new();
            let id = evidence_id(Some(raw.as_bytes()), &mut flags);
            assert_eq!((serde_json::to_string(&id).unwrap().as_str(), flags.len()), (raw, 0));
        }
        let broken = evidence_id(Some("\"\\ud800\u{2028}\"".as_bytes()), &mut flags);
        assert!(matches!(broken, RpcId::Text(t) if !t.contains('\u{2028}')));
        evidence_id(Some(format!("\"{}\"", "x".repeat(300)).as_bytes()), &mut flags);
        assert!(flags.contains(&CallAnomaly::IdTooLong.into()));
    }

    #[test]
    fn long_and_broken_names_are_cut_on_a_character() {
        assert_eq!(receipt_text("echo").0, "echo");
        let name = "é".repeat(2000);
        let (long, changed) = receipt_text(&name);
        assert!(changed && long.len() <= MAX_NAME + 3);
        assert_eq!(receipt_text("a\u{2028}b").0, "a\u{fffd}b");
    }
}
