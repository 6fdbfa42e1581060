//! What can be wrong with a document: syntax errors, and reasons why valid syntax has no canonical form.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Why a value has no unambiguous JCS form: a small set of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Anomalies(u8);

impl Anomalies {
    /// No reason: the value has a canonical form.
    pub const NONE: Self = Self(0);
    /// Nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    pub const DEPTH_EXCEEDED: Self = Self(1);
    /// Two members of one object have the same decoded name.
    pub const DUPLICATE_KEY: Self = Self(1 << 1);
    /// A string holds bytes that are not UTF-8.
    pub const INVALID_UTF8: Self = Self(1 << 2);
    /// A `\u` escape names half of a surrogate pair.
    pub const LONE_SURROGATE: Self = Self(1 << 3);
    /// A number that an IEEE 754 double does not hold; the module documentation has the rule.
    pub const NUMBER_OUT_OF_RANGE: Self = Self(1 << 4);
    /// More members have to be sorted than the bounded index holds.
    pub const TOO_MANY_MEMBERS: Self = Self(1 << 5);

    const NAMES: [&'static str; 6] = [
        "depth_exceeded",
        "duplicate_key",
        "invalid_utf8",
        "lone_surrogate",
        "number_out_of_range",
        "too_many_members",
    ];

    /// Whether there is no reason.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every reason in `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set of these names; `None` for none at all, and if one is not known.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let bit = |name| Self::NAMES.iter().position(|known| *known == name).map(|n| Self(1 << n));
        names.into_iter().map(bit).try_fold(Self::NONE, |all, one| Some(all | one?)).filter(|all| !all.is_empty())
    }

    /// The names of the reasons as receipts spell them, sorted.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().enumerate().filter_map(move |(bit, name)| (self.0 >> bit & 1 == 1).then_some(name))
    }
}

impl BitOr for Anomalies {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Anomalies {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Anomalies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, name) in self.names().enumerate() {
            if nth > 0 {
                f.write_str(", ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// Where and how a document departs from the JSON grammar (RFC 8259).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset}")]
pub struct ScanError {
    /// Offset of the offending byte from the start of the slice that was passed in; its length where the input ended.
    pub offset: usize,
    /// What is wrong there.
    pub kind: ScanErrorKind,
}

impl ScanError {
    pub(super) const fn new(offset: usize, kind: ScanErrorKind) -> Self {
        Self { offset, kind }
    }

    /// The error for what is at `offset`, where something else had to be.
    pub(super) fn unexpected(bytes: &[u8], offset: usize) -> Self {
        let kind = bytes.get(offset).map_or(ScanErrorKind::UnexpectedEnd, |&byte| ScanErrorKind::UnexpectedByte(byte));
        Self { offset, kind }
    }
}

/// The kinds of [`ScanError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScanErrorKind {
    /// The input ends inside a value.
    #[error("unexpected end of input")]
    UnexpectedEnd,
    /// A byte that is not allowed here.
    #[error("unexpected byte 0x{0:02x}")]
    UnexpectedByte(u8),
    /// Starts like `true`, `false` or `null`, but is not one of them.
    #[error("misspelt literal")]
    BadLiteral,
    /// Not a number by RFC 8259 §6: a leading zero, a missing digit.
    #[error("malformed number")]
    BadNumber,
    /// A backslash with no escape of RFC 8259 §7 after it.
    #[error("malformed escape")]
    BadEscape,
    /// A raw byte below 0x20 inside a string.
    #[error("raw control byte in a string")]
    ControlByte,
    /// The value is followed by something other than white space.
    #[error("trailing bytes after the value")]
    TrailingBytes,
    /// Deeper than the scanner can follow in bounded memory (2^27 levels).
    #[error("nesting beyond all bounds")]
    TooDeep,
    /// [`members`](super::members()) was asked for the members of something else.
    #[error("not an object")]
    NotAnObject,
    /// [`elements`](super::elements) was asked for the elements of something else.
    #[error("not an array")]
    NotAnArray,
}

/// Why a document could not be brought into canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CanonError {
    /// The bytes are not valid JSON.
    #[error("{0}")]
    Syntax(#[from] ScanError),
    /// JSON, but without an unambiguous canonical form.
    #[error("no unambiguous canonical form: {0}")]
    Ambiguous(Anomalies),
}

/// Why a value could not be serialized to canonical form by [`to_vec`](super::to_vec).
#[derive(Debug, thiserror::Error)]
pub enum SerializeError {
    /// The value's own `Serialize` failed.
    #[error("{0}")]
    Serialize(#[from] serde_json::Error),
    /// It serializes to JSON that has no canonical form.
    #[error("{0}")]
    Canon(#[from] CanonError),
}
