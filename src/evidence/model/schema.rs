//! The version that receipts are in, which is a text of theirs.

use super::{
    cursor::JsonCursor,
    form::Canonical,
    version::{self, TooNew},
};
use serde::{Deserialize as _, Deserializer, de::Error as _};

/// Schema version of receipts.
///
/// | version | change |
/// |---|---|
/// | 3.0 | the schema of assay-ai's receipts with the members of docs/formats.md |
/// | 3.1 | in `mcp_tool_call`: how the call's definition stood, `surface_age_ms` to `surface_state` |
/// | 3.2 | in `mcp_tool_call`: `arguments_redacted`; the members of 3.1 all or none |
/// | 3.3 | in `mcp_tool_call`: contents that are not what their hash says, where `anomalies` names the rules that redacted them; the members of 3.1, and `arguments_redacted`, or not |
/// | 3.4 | the same in `mcp_tool_requested` and `mcp_tool_executed`, which otherwise are of 3.0 |
pub const SCHEMA_VERSION: &str = "3.4";

/// The schema version of a receipt that a server wrote of itself, with a content that rules redacted.
pub const OWN_REDACTED_SCHEMA: &str = "3.4";

/// The schema version of the receipt of a call with contents that rules redacted.
pub const REDACTED_SCHEMA: &str = "3.3";

/// The schema version of the receipt of a call that has its arguments field by field, and nothing later.
pub const FIELDS_SCHEMA: &str = "3.2";

/// The schema version of the receipt of a call that says how its definition stood, and nothing later.
pub const SURFACE_SCHEMA: &str = "3.1";

/// The schema version of every receipt that has only what all of its type have.
pub const PLAIN_SCHEMA: &str = "3.0";

/// Reads the `schema_version` of a receipt that is no call's, and refuses each but the one that it has.
///
/// # Errors
/// It is another one.
pub fn known<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    one_of(d, &[PLAIN_SCHEMA])
}

/// The same of the receipt of a call.
///
/// # Errors
/// It is another one.
pub fn known_of_call<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    one_of(d, &[PLAIN_SCHEMA, SURFACE_SCHEMA, FIELDS_SCHEMA, REDACTED_SCHEMA])
}

/// The same of a receipt of a server that may have contents.
///
/// # Errors
/// It is another one.
pub fn known_of_server<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    one_of(d, &[PLAIN_SCHEMA, OWN_REDACTED_SCHEMA])
}

fn one_of<'de, D: Deserializer<'de>>(d: D, known: &[&str]) -> Result<String, D::Error> {
    let found = String::deserialize(d)?;
    if known.contains(&found.as_str()) {
        return Ok(found);
    }
    Err(D::Error::custom(format_args!("schema_version {found:?} of a receipt is unknown")))
}

/// The schema version of a call's receipt: what it has beside the members of every version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfCall {
    /// Nothing.
    Plain,
    /// How its definition stood.
    Surface,
    /// Its arguments, each in cleartext or as its hash; how its definition stood it may have.
    Fields,
    /// Contents that rules redacted; the others it may have.
    Redacted,
}

impl Canonical for OfCall {
    type View<'a> = Self;

    #[inline]
    fn read(c: &mut JsonCursor<'_>) -> Option<Self> {
        match c.string()? {
            v if v == PLAIN_SCHEMA.as_bytes() => Some(Self::Plain),
            v if v == SURFACE_SCHEMA.as_bytes() => Some(Self::Surface),
            v if v == FIELDS_SCHEMA.as_bytes() => Some(Self::Fields),
            v if v == REDACTED_SCHEMA.as_bytes() => Some(Self::Redacted),
            _ => None,
        }
    }
}

/// Whether the `schema_version` of a receipt is above the one that is read.
#[must_use]
pub fn newer_receipt(bytes: &[u8]) -> Option<TooNew> {
    // Of most lines this is all that is looked at: stored content may have such a member too, so it must be the only one.
    let mut named = memchr::memmem::find_iter(bytes, "\"schema_version\"");
    let here = named.next().map_or(&[][..], |at| &bytes[at..]);
    let is = |known: &str| here.starts_with(format!("\"schema_version\":\"{known}\"").as_bytes());
    if [PLAIN_SCHEMA, SURFACE_SCHEMA, FIELDS_SCHEMA, REDACTED_SCHEMA, OWN_REDACTED_SCHEMA].into_iter().any(is)
        && named.next().is_none()
    {
        return None;
    }
    later_receipt(bytes)
}

/// The same of a line that does not read as a receipt: looked at as a whole.
#[must_use]
pub fn later_receipt(bytes: &[u8]) -> Option<TooNew> {
    version::newer("receipt", bytes, "schema_version", SCHEMA_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_too_new_by_its_schema() {
        let newer = |v: &str| newer_receipt(format!(r#"{{"schema_version":"{v}"}}"#).as_bytes()).is_some();
        assert!(newer("3.5") && newer("4.0") && newer("3.10"));
        let decoy = br#"{"arguments_content":{"schema_version":"3.0"},"schema_version":"3.5"}"#;
        assert!(newer_receipt(decoy).is_some());
        assert!(
            !newer("3.0")
                && !newer("3.1")
                && !newer("3.2")
                && !newer("3.3")
                && !newer("3.4")
                && !newer("2.9")
                && !newer("x")
                && !newer("3")
                && newer_receipt(b"{}").is_none()
        );
    }
}
