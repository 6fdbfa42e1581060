//! Stage `validate_receipts` for packs of other builders: assay's rules, with strict JSON.

use super::{
    claims_tally::{Fields, Tally},
    finding::Finding,
    notebook::Notebook,
    receipts::{Ids, MAX_RECEIPTS},
    source::{HashedLines, Line, ReadMeter, ReadStop},
    time::parse_iso,
    unread::not_json,
    words::Stage,
};
use crate::{
    canon,
    model::{cursor::shown, pack::RECEIPTS},
};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, fmt, ops::Range};

/// Top-level members that are not part of what is hashed (assay's projection `v0`).
pub const UNHASHED: [&str; 5] = ["anchor", "cose_signature", "receipt_hash", "signature", "signatures"];

/// What a file of receipts amounts to.
#[derive(Debug, Default)]
pub struct Foreign {
    /// Lines that are not blank.
    pub count: u64,
    /// Hash of the last receipt; `None` when it has none.
    pub head: Option<String>,
    /// Hash of the last line, verbatim. assay-ai's builder writes its own canonical form, whose exponents differ from
    /// RFC 8785 (`1E21`), and attests the hash of that.
    pub head_as_written: Option<String>,
    /// Receipts of this recorder's sessions among them.
    pub session_receipts: u64,
}

/// Walks the receipts.
///
/// # Errors
/// Why the file could not be read to its end.
pub fn walk(
    notes: &mut Notebook<'_>,
    tally: &mut Tally,
    meter: &mut ReadMeter<'_>,
    lines: &mut HashedLines,
) -> Result<Foreign, ReadStop> {
    let mut out = Foreign::default();
    let mut ids = Ids::default();
    while let Some(line) = lines.next(meter)? {
        if line.bytes.trim_ascii().is_empty() {
            continue;
        }
        if out.count >= MAX_RECEIPTS {
            return Err(ReadStop::TooLong);
        }
        out.head = receipt(notes, tally, &mut ids, &line, out.count, &mut out.session_receipts);
        if out.head.is_none() {
            notes.garbage(line.bytes.len())?;
        }
        out.head_as_written = Some(canon::sha256_hex(line.bytes));
        out.count += 1;
    }
    Ok(out)
}

/// The RFC 8785 form of a receipt without the members that are not hashed, as assay projects it: member names must be
/// ASCII at every depth, so that none can look like one of these.
///
/// # Errors
/// Why there is none: an error code and words.
pub fn projected(line: &[u8]) -> Result<Vec<u8>, (&'static str, String)> {
    if let Some(reason) = not_json(line) {
        return Err(reason);
    }
    if canon::kind(line) != Some(canon::Kind::Object) {
        return Err(("E_SCHEMA_UNKNOWN", "not an object".to_owned()));
    }
    if let Some(name) = foreign_name(line) {
        return Err(("E_CANON_MISMATCH", format!("member name {name:?} is not ASCII")));
    }
    let canonical = canon::canonicalize(line).map_err(|e| ("E_CANON_MISMATCH", e.to_string()))?;
    let mut out = Vec::with_capacity(canonical.len());
    out.push(b'{');
    for member in canon::members(&canonical).into_iter().flatten().flatten() {
        if member.key.as_deref().is_some_and(|k| UNHASHED.contains(&k)) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(&canonical[Range { start: member.key_range.start, end: member.value.end }]);
    }
    out.push(b'}');
    Ok(out)
}

fn receipt(
    notes: &mut Notebook<'_>,
    tally: &mut Tally,
    ids: &mut Ids,
    line: &Line<'_>,
    index: u64,
    session_receipts: &mut u64,
) -> Option<String> {
    let at = |code, what: String| {
        Finding::new(code, Stage::ValidateReceipts, what)
            .file(RECEIPTS)
            .line(line.number, line.offset)
            .receipt(index, None)
    };
    let canonical = match projected(line.bytes) {
        Ok(canonical) => canonical,
        Err((code, what)) => {
            let code = if what.starts_with("not JSON") { "E_MANIFEST_TAMPER" } else { code };
            notes.found(at(code, what).sides("a receipt", shown(line.bytes)));
            return None;
        }
    };
    let fields = Owned::of(line.bytes);
    for (name, value) in [("receipt_id", &fields.id), ("type", &fields.kind), ("timestamp", &fields.timestamp)] {
        if value.is_empty() {
            notes.found(at("E_SCHEMA_UNKNOWN", format!("required member {name} is missing or empty")));
        }
    }
    if !fields.timestamp.is_empty() && parse_iso(&fields.timestamp).is_none() {
        notes.found(
            at("E_TIMESTAMP_INVALID", "timestamp is not an ISO 8601 time".into()).sides("a time", &fields.timestamp),
        );
    }
    if !fields.id.is_empty() && !ids.add_text(fields.id.as_bytes()) {
        let mut f = at("E_DUPLICATE_ID", format!("receipt_id {} occurs twice", fields.id));
        f.receipt_id = Some(fields.id.to_string());
        notes.found(f);
    }
    *session_receipts += u64::from(fields.kind == crate::model::receipt::SESSION_START);
    tally.other(&Fields {
        id: &fields.id,
        kind: &fields.kind,
        timestamp: &fields.timestamp,
        schema_version: fields.schema_version.as_deref(),
        invocation: fields.invocation.as_deref(),
        request: fields.request.as_deref(),
        seq: fields.seq,
    });
    Some(canon::sha256_hex(&canonical))
}

#[derive(Default)]
struct Owned<'a> {
    id: Cow<'a, str>,
    kind: Cow<'a, str>,
    timestamp: Cow<'a, str>,
    schema_version: Option<Cow<'a, str>>,
    invocation: Option<Cow<'a, str>>,
    request: Option<Cow<'a, str>>,
    seq: Option<u64>,
}

impl<'a> Owned<'a> {
    fn of(line: &'a [u8]) -> Self {
        let mut out = Self::default();
        for member in canon::members(line).into_iter().flatten().flatten() {
            let raw = &line[member.value];
            let text = || canon::decode_string(raw);
            match member.key.as_deref() {
                // assay-ai takes any value that is not empty for these; a number shows as its digits.
                Some("receipt_id") => out.id = shown_value(raw),
                Some("type") => out.kind = shown_value(raw),
                Some("timestamp") => out.timestamp = shown_value(raw),
                Some("schema_version") => out.schema_version = text(),
                Some("invocation_id") => out.invocation = text(),
                Some("request_receipt_id") => out.request = text(),
                Some("seq") => out.seq = std::str::from_utf8(raw).ok().and_then(|s| s.parse().ok()),
                _ => {}
            }
        }
        out
    }
}

fn shown_value(raw: &[u8]) -> Cow<'_, str> {
    match raw {
        b"null" | b"false" | b"0" | b"[]" | b"{}" => Cow::Borrowed(""),
        _ => canon::decode_string(raw).unwrap_or_else(|| String::from_utf8_lossy(raw)),
    }
}

/// The first member name at any depth that is not ASCII.
fn foreign_name(line: &[u8]) -> Option<String> {
    if line.is_ascii() && memchr::memmem::find(line, b"\\u").is_none() {
        return None;
    }
    let mut found = None;
    // The scan before this bounded the depth; what serde refuses beyond that is refused elsewhere.
    let _ = Names(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(line));
    found
}

struct Names<'f>(&'f mut Option<String>);

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Names(self.0))?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            if name.is_ascii() {
                map.next_value_seed(Names(self.0))?;
            } else {
                self.0.get_or_insert_with(|| name.into_owned());
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}
