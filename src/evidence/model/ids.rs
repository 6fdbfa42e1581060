//! Identifiers that are checked when they are made, so that none can be a path or hold unexpected characters.

use super::{cursor::JsonCursor, form::canonical};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An identifier that is not of its documented form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a valid {what}: {text:?}, expected {prefix} and 16 lower-case hex digits")]
pub struct IdError {
    what: &'static str,
    prefix: &'static str,
    text: String,
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u64);

        impl $name {
            /// The prefix before the 16 hex digits.
            pub const PREFIX: &'static str = $prefix;

            /// An identifier from its 64 bits.
            #[must_use]
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits)
            }

            /// The id as a 64-bit number.
            #[must_use]
            pub const fn bits(self) -> u64 {
                self.0
            }

            /// Only the 16 hex digits, as they appear in file names.
            #[must_use]
            pub fn hex(self) -> String {
                format!("{:016x}", self.0)
            }

            /// Reads the text form.
            ///
            /// # Errors
            /// Anything but the prefix and 16 lower-case hex digits.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                let error = || IdError { what: $what, prefix: $prefix, text: text.chars().take(80).collect() };
                let digits = text.strip_prefix($prefix).ok_or_else(error)?;
                hex_digits(digits).map(Self).ok_or_else(error)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:016x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        canonical! { $name, $name, |c: &mut JsonCursor<'a>| c.id(Self::PREFIX.as_bytes()).map(Self::from_bits); }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!($prefix, " and 16 lower-case hex digits"))
                    }
                    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<$name, E> {
                        $name::parse(v).map_err(E::custom)
                    }
                }
                d.deserialize_str(Visitor)
            }
        }
    };
}

hex_id!(
    /// One recording session: `mcp_` and 16 hex digits. Also the pack's `trace_id`.
    SessionId,
    "session id",
    "mcp_"
);
hex_id!(
    /// One tool call, or one other recorded request: `inv_` and 16 hex digits.
    InvocationId,
    "invocation id",
    "inv_"
);
hex_id!(
    /// One MCP session of a client with a server that records itself: `mcp_session_` and 16 hex digits. The id that the
    /// server gave the session is a credential, and this is a hash.
    ClientSessionId,
    "client session id",
    "mcp_session_"
);

/// What the prefix of a receipt's id says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReceiptPrefix {
    /// `mtc_`: a call that a proxy saw, or the session as a whole.
    Call,
    /// `mtr_`: a server's receipt of a call that is asked for.
    Requested,
    /// `mtd_`: a server's receipt of a call that its policy refused.
    Denied,
    /// `mte_`: a server's receipt of a call that its handler ran.
    Executed,
}

impl ReceiptPrefix {
    const ALL: [Self; 4] = [Self::Call, Self::Requested, Self::Denied, Self::Executed];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "mtc_",
            Self::Requested => "mtr_",
            Self::Denied => "mtd_",
            Self::Executed => "mte_",
        }
    }
}

/// One receipt: a [`ReceiptPrefix`] and 16 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReceiptId {
    bits: u64,
    prefix: ReceiptPrefix,
}

impl ReceiptId {
    /// The id of a call's receipt from its 64 bits: `mtc_`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self::of(ReceiptPrefix::Call, bits)
    }

    /// An identifier from its parts.
    #[must_use]
    pub const fn of(prefix: ReceiptPrefix, bits: u64) -> Self {
        Self { bits, prefix }
    }

    /// The digits as a 64-bit number: receipts of one call share it.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.bits
    }

    /// The prefix.
    #[must_use]
    pub const fn prefix(self) -> ReceiptPrefix {
        self.prefix
    }

    /// 64 bits that tell receipts of one session apart, also those of one call.
    #[must_use]
    pub const fn distinct(self) -> u64 {
        self.bits.rotate_left(16 * self.prefix as u32)
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// Anything but a prefix and 16 lower-case hex digits.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let prefix = ReceiptPrefix::ALL.into_iter().find(|p| text.starts_with(p.as_str()));
        let error = || IdError {
            what: "receipt id",
            prefix: "mtc_, mtr_, mtd_ or mte_",
            text: text.chars().take(80).collect(),
        };
        let prefix = prefix.ok_or_else(error)?;
        hex_digits(&text[prefix.as_str().len()..]).map(|bits| Self { bits, prefix }).ok_or_else(error)
    }
}

impl fmt::Display for ReceiptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:016x}", self.prefix.as_str(), self.bits)
    }
}

impl fmt::Debug for ReceiptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

canonical! { ReceiptId, ReceiptId, |c: &mut JsonCursor<'a>| ReceiptPrefix::ALL.into_iter().find_map(|prefix| {
    let mut ahead = c.clone();
    let bits = ahead.id(prefix.as_str().as_bytes())?;
    *c = ahead;
    Some(ReceiptId { bits, prefix })
}); }

impl Serialize for ReceiptId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReceiptId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The number of 16 lower-case hex digits.
fn hex_digits(digits: &str) -> Option<u64> {
    let lower = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (digits.len() == 16 && lower).then(|| u64::from_str_radix(digits, 16).ok())?
}

pub use super::limits::MAX_INTEGER;

canonical! { RpcId, &'a [u8], JsonCursor::rpc_id; }

/// A peer's number as evidence holds it: `Some` for an integer within ±[`MAX_INTEGER`] that is spelt as RFC 8785 spells it.
/// `-0`, `1.0`, `1e2` and integers beyond that range are not; they are kept as text, or left out with an anomaly.
#[must_use]
pub fn exact_integer(raw: &[u8]) -> Option<i64> {
    let n = std::str::from_utf8(raw).ok()?.parse::<i64>().ok()?;
    (n.unsigned_abs() <= MAX_INTEGER && n.to_string().as_bytes() == raw).then_some(n)
}

/// A JSON-RPC id as it is kept in evidence.
///
/// Numbers that are not [`exact_integer`] are kept as their text with the anomaly `id_out_of_range`, ids of more than 256
/// bytes as the hash of their text with `id_too_long`: correlation never uses this form but the raw text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RpcId {
    /// `null`, or no id at all.
    Null,
    /// An integer within ±[`MAX_INTEGER`]; the first release wrote ±2^53 too.
    Int(i64),
    /// A string, as the peer sent it.
    Text(String),
}

impl InvocationId {
    /// The id of the request at this stream offset; of an element of a batch, by its index.
    #[must_use]
    pub fn of_message(session: SessionId, direction: super::Direction, offset: u64, element: Option<u64>) -> Self {
        Self::at(&format!("{session}:{}:{offset}", direction.as_str()), element)
    }

    /// The id of the request at this offset of a body of an HTTP exchange; of an element of a batch, by its index.
    #[must_use]
    pub fn of_exchange(
        session: SessionId,
        exchange: u64,
        direction: super::Direction,
        offset: u64,
        element: Option<u64>,
    ) -> Self {
        Self::at(&format!("{session}:x{exchange}:{}:{offset}", direction.as_str()), element)
    }

    /// The id of the nth call, from 0, that a server recorded itself.
    #[must_use]
    pub fn of_call(session: SessionId, n: u64) -> Self {
        Self::at(&format!("{session}:call:{n}"), None)
    }

    fn at(place: &str, element: Option<u64>) -> Self {
        Self(element.map_or_else(|| bits_of(place), |i| bits_of(&format!("{place}:{i}"))))
    }
}

impl ReceiptId {
    /// The id of a receipt that belongs to the session as a whole: `session_start`, `session_end`, `gap`.
    #[must_use]
    pub fn of_session(session: SessionId, what: &str, seq: u64) -> Self {
        Self::from_bits(bits_of(&format!("{session}:{what}:{seq}")))
    }

    /// The id of what a task of the nth call came to.
    #[must_use]
    pub fn of_task(session: SessionId, n: u64) -> Self {
        Self::of(ReceiptPrefix::Executed, bits_of(&format!("{session}:task:{n}")))
    }
}

impl ClientSessionId {
    /// The id of a client's session; `of` is what the server calls it, or nothing over a pipe.
    #[must_use]
    pub fn of_session(recording: SessionId, of: Option<&str>) -> Self {
        Self(bits_of(&of.map_or_else(|| format!("{recording}:session"), |of| format!("{recording}:session:{of}"))))
    }
}

fn bits_of(place: &str) -> u64 {
    let hash = crate::canon::sha256(place.as_bytes());
    u64::from_be_bytes(*hash.first_chunk().unwrap_or(&[0; 8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_refuse_anything_else() {
        let id = SessionId::from_bits(0xab);
        assert_eq!(id.to_string(), "mcp_00000000000000ab");
        assert_eq!(SessionId::parse("mcp_00000000000000ab"), Ok(id));
        for bad in [
            "",
            "mcp_",
            "mcp_00000000000000AB",
            "inv_00000000000000ab",
            "mcp_../../../etc/pas",
            "mcp_0000000000000000a",
        ] {
            assert!(SessionId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_receipt_id_has_one_of_four_prefixes() {
        use crate::model::form::Canonical as _;
        for prefix in ReceiptPrefix::ALL {
            let id = ReceiptId::of(prefix, 0xab);
            let text = id.to_string();
            assert_eq!(text, format!("{}00000000000000ab", prefix.as_str()));
            assert_eq!(ReceiptId::parse(&text), Ok(id));
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<ReceiptId>(&json).unwrap(), id);
            assert_eq!(ReceiptId::of_line(json.as_bytes()), Some(id));
        }
        let distinct: std::collections::BTreeSet<u64> =
            ReceiptPrefix::ALL.iter().map(|p| ReceiptId::of(*p, 0xab).distinct()).collect();
        assert_eq!(distinct.len(), 4);
        for bad in ["mtx_00000000000000ab", "00000000000000ab", "mte_00000000000000aB", "mte_"] {
            assert!(ReceiptId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rpc_ids_keep_their_json_type() {
        for (json, id) in [("null", RpcId::Null), ("1", RpcId::Int(1)), ("\"1\"", RpcId::Text("1".into()))] {
            assert_eq!(serde_json::from_str::<RpcId>(json).unwrap(), id);
            assert_eq!(serde_json::to_string(&id).unwrap(), json);
        }
    }
}
