//! From Rust values to canonical bytes.

use serde::Serialize;

use super::emit::canonicalize;
use super::error::SerializeError;

/// The RFC 8785 form of what `value` serializes to.
///
/// Fails where that has no unambiguous form, for instance an integer beyond 2^53 that a double does not hold. A float that
/// is not finite becomes `null`, as serde_json has it, although RFC 8785 §3.2.2.3 calls it an error.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, SerializeError> {
    Ok(canonicalize(&serde_json::to_vec(value)?)?)
}
