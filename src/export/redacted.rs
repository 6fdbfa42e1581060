//! A pack without what rules take out of its contents, for an export of it. The pack stays as it is, and so do all hashes.

use crate::{
    model::{
        CallAnomaly,
        redaction::{self, Side},
    },
    pack::stored::{Call, Stored},
    record::redact::{NotApplied, Redactor},
};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// Takes out of what was read of a pack what the rules match; a content to which they cannot be applied is left out.
pub fn take_out(stored: &mut Stored, rules: &dyn Redactor) {
    for call in &mut stored.calls {
        of_call(call, rules);
    }
    if let Some(session) = &mut stored.session {
        session.command.take_if(|words| words.iter().any(|word| rules.touches(word)));
        if let Some(http) = &mut session.http {
            http.endpoint.url.take_if(|url| rules.touches(url));
        }
    }
}

fn of_call(call: &mut Call, rules: &dyn Redactor) {
    let mut left = |side, value: Option<&[u8]>| match rules.apply(side, value?) {
        Ok(None) => value.map(<[u8]>::to_vec),
        Ok(Some(redacted)) => {
            call.anomalies.extend(redacted.rules.iter().map(|rule| redaction::word(side, rule)));
            Some(redacted.value)
        }
        Err(NotApplied) => {
            call.anomalies.push(CallAnomaly::RedactionNotPossible.as_str().to_owned());
            None
        }
    };
    call.arguments = left(Side::Arguments, call.arguments.as_deref());
    call.result = left(Side::Result, call.result.as_deref());
    let members = serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&call.line);
    let mut members = members.unwrap_or_default();
    for (name, side) in [
        ("arguments_content", Side::Arguments),
        ("arguments_redacted", Side::Arguments),
        ("meta", Side::Arguments),
        ("result_content", Side::Result),
        ("result_redacted", Side::Result),
    ] {
        if let Some(value) = members.get_mut(name).filter(|value| value.get() != "null") {
            let left = left(side, Some(value.get().as_bytes())).and_then(|left| String::from_utf8(left).ok());
            let left = left.unwrap_or_else(|| "null".to_owned());
            *value = RawValue::from_string(left).unwrap_or_default();
        }
    }
    call.anomalies.sort_unstable();
    call.anomalies.dedup();
    if let (Some(said), Ok(words)) = (members.get_mut("anomalies"), to_raw_value(&call.anomalies)) {
        *said = words;
    }
    call.line = serde_json::to_vec(&members).unwrap_or_default();
}
