//! Strict JSON scanning, RFC 8785 canonical form and digests over `&[u8]`; independent of MCP.
//!
//! Every function takes the bytes as they crossed the wire, which may be a memory-mapped message of a gibibyte, and none
//! builds a tree of values. Three ways through a document share one grammar (RFC 8259):
//!
//! * [`scan()`], [`scan_at`], [`members()`], [`elements`], [`outline()`] walk it iteratively: a million nested arrays cost
//!   bits, not stack.
//! * [`canonicalize`] writes the JSON Canonicalization Scheme of RFC 8785: no white space (§3.2.1), minimal escapes
//!   (§3.2.2.2), ECMAScript numbers (§3.2.2.3), members sorted by UTF-16 code units (§3.2.3), UTF-8 (§3.2.4).
//! * [`digest()`] hashes that form without holding it: memory stays under about 48 MiB whatever the input.
//!
//! # What has no canonical form
//!
//! RFC 8785 §3.1 builds on I-JSON (RFC 7493), so some JSON that real peers accept has no unambiguous canonical form
//! (docs/formats.md, "What is hashed"). [`Anomalies`] names the reasons, and such a value is hashed over its exact bytes instead
//! ([`Digest::Raw`]):
//!
//! | name | meaning |
//! |---|---|
//! | `depth_exceeded` | arrays and objects nested deeper than [`MAX_DEPTH`] |
//! | `duplicate_key` | two members of one object have the same name after decoding |
//! | `invalid_utf8` | a string holds bytes that are not UTF-8 |
//! | `lone_surrogate` | a `\u` escape names half of a surrogate pair |
//! | `number_out_of_range` | see below |
//! | `too_many_members` | more members have to be sorted than the bounded index holds |
//!
//! A number is out of range when its literal overflows to infinity, when a literal with a non-zero digit underflows to
//! zero, and when an *integer literal* (no fraction, no exponent) is not held exactly by an IEEE 754 double: `2^53 + 1`
//! is flagged, `2^53` and `2^53 + 2` are not. A literal with a fraction or an exponent is a decimal that is merely
//! rounded, as RFC 8785 intends (`0.1`, `1e30`, `0.1000000000000000055511151231257827`), and is never flagged for that.

mod check;
mod digest;
mod emit;
mod error;
mod index;
mod members;
mod number;
mod order;
mod outline;
mod pair;
mod run;
mod scan;
mod ser;
mod string;
mod write;

#[cfg(test)]
mod tests;

pub use check::{is_canonical, scan, scan_paged};
pub use digest::{Digest, digest, digest_in, sha256, sha256_hex};
pub use emit::{canonicalize, canonicalize_to};
pub use error::{Anomalies, CanonError, ScanError, ScanErrorKind, SerializeError};
pub use members::{Elements, Member, Members, Page, elements, elements_paged, members, members_paged};
pub use outline::{Indexed, Outlined, index, outline};
pub use pair::Hash;
pub use scan::scan_at;
pub use ser::to_vec;
pub use string::decode_string;

/// Deepest nesting of arrays and objects that has a canonical form: `[[…]]` of 128 levels has one, of 129
/// has none. RFC 8259 §9 leaves the limit to the implementation.
pub const MAX_DEPTH: usize = 128;

/// The type of a JSON value (RFC 8259 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// A number, which starts with `-` or a digit.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

/// What kind of value `bytes` starts with, judged by its first byte after white space alone; `None` where no JSON value
/// can start so.
pub fn kind(bytes: &[u8]) -> Option<Kind> {
    Some(match bytes.get(scan::skip_ws(bytes, 0))? {
        b'{' => Kind::Object,
        b'[' => Kind::Array,
        b'"' => Kind::String,
        b'-' | b'0'..=b'9' => Kind::Number,
        b't' | b'f' => Kind::Bool,
        b'n' => Kind::Null,
        _ => return None,
    })
}
