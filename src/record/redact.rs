//! What of contents is kept: of a call's arguments field by field, and of all without what rules take out.

use super::content;
use crate::{
    canon::{self, Digest},
    model::{
        CallAnomaly, Word,
        line::member,
        redaction::{self, Side},
    },
};
use serde_json::value::RawValue;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The longest name of a field that is kept as it is, in bytes.
const MAX_FIELD: usize = 128;

/// What was unusual about a call.
pub type Anomalies = BTreeSet<Word<CallAnomaly>>;

/// Rules that take something out of contents before they are stored or shown. Who has them is `redact/`.
pub trait Redactor: fmt::Debug + Send + Sync {
    /// What the rules leave of a content; `None` if they take nothing out.
    ///
    /// # Errors
    /// They cannot be applied: nothing of it may be kept.
    fn apply(&self, side: Side, value: &[u8]) -> Result<Option<Redacted>, NotApplied>;

    /// What they leave of a whole message.
    ///
    /// # Errors
    /// They cannot be applied: nothing of it may be shown.
    fn message(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, NotApplied>;

    /// Whether they would take something out of a text.
    fn touches(&self, text: &str) -> bool;
}

/// What rules left of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// It, in canonical form.
    pub value: Vec<u8>,
    /// The names of the rules that took something out.
    pub rules: BTreeSet<String>,
}

/// The value has no canonical form, or it takes too long to look through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotApplied;

/// What rules leave of a content that is to be kept.
#[derive(Debug)]
pub enum Left {
    /// As it was sent.
    All,
    /// This, in canonical form.
    Part(Vec<u8>),
    /// They could not be applied.
    Nothing,
}

impl Left {
    /// What rules leave of a content; what they took out, or that they could not, goes into `flags`. `fits`: it is not too long
    /// to be looked through.
    pub fn of(rules: Option<&dyn Redactor>, side: Side, value: &[u8], fits: bool, flags: &mut Anomalies) -> Self {
        let Some(rules) = rules else { return Self::All };
        match if fits { rules.apply(side, value) } else { Err(NotApplied) } {
            Ok(None) => Self::All,
            Ok(Some(redacted)) => {
                flags.extend(redacted.rules.iter().map(|rule| Word::from(redaction::word(side, rule).as_str())));
                Self::Part(redacted.value)
            }
            Err(NotApplied) => {
                flags.insert(CallAnomaly::RedactionNotPossible.into());
                Self::Nothing
            }
        }
    }

    /// What may be kept of a value of which this is left.
    #[must_use]
    pub fn to_keep<'v>(&'v self, value: &'v [u8]) -> Option<&'v [u8]> {
        match self {
            Self::All => Some(value),
            Self::Part(left) => Some(left),
            Self::Nothing => None,
        }
    }

    /// It, if it is less than there was.
    #[must_use]
    pub fn part(&self) -> Option<&[u8]> {
        match self {
            Self::Part(left) => Some(left),
            Self::All | Self::Nothing => None,
        }
    }
}

/// Of which tools which fields are kept in cleartext.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cleartext(BTreeMap<String, BTreeSet<String>>);

impl Cleartext {
    /// Reads `TOOL=FIELD[,FIELD]`; `TOOL=` names no field.
    ///
    /// # Errors
    /// Something that has no name.
    pub fn entry(text: &str) -> Result<(String, Vec<String>), &'static str> {
        let (tool, fields) = text.split_once('=').unwrap_or_default();
        let fields: Vec<String> =
            if fields.is_empty() { Vec::new() } else { fields.split(',').map(str::to_owned).collect() };
        if tool.is_empty() || fields.iter().any(|field| field.trim() != field || field.is_empty()) {
            return Err("expected TOOL=FIELD[,FIELD], as in web_search=query,limit");
        }
        Ok((tool.to_owned(), fields))
    }

    /// Whether nothing was named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether fields of this tool were named, or that it has none to keep.
    #[must_use]
    pub fn names(&self, tool: &str) -> bool {
        self.0.contains_key(tool)
    }

    /// Keeps these fields of a tool, beside those that are kept already. Without a field, the others are hashed all the same.
    pub fn keep<'f>(&mut self, tool: &str, fields: impl IntoIterator<Item = &'f str>) {
        self.0.entry(tool.to_owned()).or_default().extend(fields.into_iter().map(str::to_owned));
    }

    /// Of an object: the fields that are kept as they are, and the others as the hash of their RFC 8785 form. `None` for a
    /// tool of which nothing was named, and for a value that has no fields or no canonical form. What is kept is taken from
    /// `left`, if rules have left no more than that; a field that they have renamed is hashed, and so is its name.
    #[must_use]
    pub fn redact(
        &self,
        tool: &str,
        value: &[u8],
        left: Option<&[u8]>,
        limit: usize,
        flags: &mut Anomalies,
    ) -> Option<Box<RawValue>> {
        let kept = self.0.get(tool)?;
        let Ok(value) = canon::canonicalize(value) else {
            flags.insert(CallAnomaly::CleartextNotKept.into());
            return None;
        };
        let mut fields = BTreeMap::new();
        for member in canon::members(&value).ok()? {
            let member = member.ok()?;
            let (name, field) = (member.key?, &value[member.value]);
            let left = left.map_or(Some(field), |left| self::member(left, &name));
            let fits = left.filter(|field| field.len() <= limit && content::packable(field));
            let shown = if let Some(field) = fits.filter(|_| kept.contains(&*name)) {
                String::from_utf8_lossy(field).into_owned()
            } else {
                if kept.contains(&*name) {
                    flags.insert(CallAnomaly::CleartextNotKept.into());
                }
                format!("\"sha256:{}\"", canon::sha256_hex(field))
            };
            let is_plain =
                left.is_some() && name.len() <= MAX_FIELD && name.bytes().all(|b| (b' '..=b'~').contains(&b));
            let name =
                if is_plain { name.into_owned() } else { format!("sha256:{}", canon::sha256_hex(name.as_bytes())) };
            fields.insert(name, RawValue::from_string(shown).ok()?);
        }
        serde_json::value::to_raw_value(&fields).ok()
    }
}

/// The hash of a value, as receipts have it; why it is over raw bytes goes into `flags`.
pub fn hash(value: &[u8], flags: &mut Anomalies) -> String {
    let digest =
        canon::digest(value, None).unwrap_or_else(|_| Digest::Raw(canon::sha256(value), canon::Anomalies::NONE));
    flags.extend(digest.anomalies().names().map(Word::from));
    digest.to_string()
}

/// A value in canonical form, where a pack can hold it.
pub fn store(value: &[u8], limit: usize, flags: &mut Anomalies) -> Option<Box<RawValue>> {
    let canonical = canon::canonicalize(value).ok().filter(|v| v.len() <= limit && content::packable(v));
    if canonical.is_none() {
        flags.insert(CallAnomaly::CleartextNotKept.into());
    }
    RawValue::from_string(String::from_utf8(canonical?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(kept: &[&str], value: &str) -> (Option<String>, Anomalies) {
        let mut all = Cleartext::default();
        all.keep("t", kept.iter().copied());
        let mut flags = Anomalies::new();
        let redacted = all.redact("t", value.as_bytes(), None, 64, &mut flags);
        assert!(redacted.as_ref().is_none_or(|raw| canon::is_canonical(raw.get().as_bytes())));
        (redacted.map(|raw| raw.get().to_owned()), flags)
    }

    fn sha(text: &str) -> String {
        format!("sha256:{}", canon::sha256_hex(text.as_bytes()))
    }

    #[test]
    fn only_fields_that_were_named_are_in_cleartext() {
        let (shown, flags) = redacted(&["query"], r#"{"token": "s3cret", "query": {"b": 1.0, "a": "x"}}"#);
        assert_eq!(shown.unwrap(), format!(r#"{{"query":{{"a":"x","b":1}},"token":"{}"}}"#, sha("\"s3cret\"")));
        assert!(flags.is_empty());
        let (shown, _) = redacted(&[], r#"{"n":true}"#);
        assert_eq!(shown.unwrap(), format!(r#"{{"n":"{}"}}"#, sha("true")));
        assert_eq!(redacted(&["a"], "{}").0.unwrap(), "{}");
        assert_eq!(
            Cleartext::default().redact("t", b"{}", None, 64, &mut Anomalies::new()).map(|raw| raw.to_string()),
            None
        );
    }

    #[test]
    fn an_entry_names_a_tool_and_its_fields() {
        let entry = |text| Cleartext::entry(text).map(|(tool, fields)| format!("{tool}:{}", fields.join("+")));
        for (text, read) in [("t=a", "t:a"), ("t=a,b", "t:a+b"), ("t=", "t:"), ("a/b.c=x=y", "a/b.c:x=y")] {
            assert_eq!(entry(text).as_deref(), Ok(read));
        }
        for bad in ["", "t", "=a", "=", "t=,", "t=a,", "t=,a", "t=a, b", "t= a"] {
            assert!(entry(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_pack_cannot_hold_is_hashed_and_said() {
        let long = format!("\"{}\"", "x".repeat(80));
        for value in [r"1e+30", r#"{"é":1}"#, &long] {
            let (shown, flags) = redacted(&["a"], &format!(r#"{{"a":{value}}}"#));
            assert!(shown.unwrap().starts_with(r#"{"a":"sha256:"#), "{value}");
            assert!(flags.contains(&CallAnomaly::CleartextNotKept.into()), "{value}");
        }
        let (shown, flags) = redacted(&["é", "a"], r#"{"é":1,"a":2}"#);
        assert_eq!(shown.unwrap(), format!(r#"{{"a":2,"{}":1}}"#, sha("é")));
        assert!(flags.is_empty());
        for ambiguous in [r#"{"a":1,"a":2}"#, "[1]", r#"{"a":9007199254740993}"#] {
            assert_eq!(redacted(&["a"], ambiguous).0, None, "{ambiguous}");
        }
    }
}
