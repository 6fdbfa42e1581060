//! Values that have one form in evidence, and how they are read from it.

use super::{DurationMs, WallTime, cursor::JsonCursor};
use serde_json::value::RawValue;

/// A value that has exactly one form in evidence, read in place.
pub trait Canonical {
    /// The value as read. Texts are verbatim, without quotes and with their escapes: the form is canonical, so equal
    /// texts are equal bytes.
    type View<'a>;

    /// Reads a value; `None` for what is not of its form.
    fn read<'a>(c: &mut JsonCursor<'a>) -> Option<Self::View<'a>>;

    /// Reads a member of an object with what is before it: `{` or `,`, which becomes `,`. A value that some lines do not
    /// have leaves that as it is where the member is not.
    #[inline]
    fn member<'a>(c: &mut JsonCursor<'a>, before: &mut u8, name: &[u8]) -> Option<Self::View<'a>> {
        c.key(*before, name)?;
        *before = b',';
        Self::read(c)
    }

    /// Reads a line: nothing may follow.
    fn of_line(line: &[u8]) -> Option<Self::View<'_>> {
        let mut c = JsonCursor::new(line);
        let view = Self::read(&mut c)?;
        c.end()?;
        Some(view)
    }
}

/// A value that is always the same.
pub trait Fixed {
    /// Consumes this value; `None` if something else is here.
    fn pass(self, c: &mut JsonCursor<'_>) -> Option<()>;

    /// The same of a member, as [`Canonical::member`].
    #[inline]
    fn member(self, c: &mut JsonCursor<'_>, before: &mut u8, name: &[u8]) -> Option<()>
    where
        Self: Sized,
    {
        c.key(*before, name)?;
        *before = b',';
        self.pass(c)
    }
}

impl Fixed for &str {
    #[inline]
    fn pass(self, c: &mut JsonCursor<'_>) -> Option<()> {
        c.lit(b"\"")?;
        c.lit(self.as_bytes())?;
        c.lit(b"\"")
    }
}

impl Fixed for u32 {
    #[inline]
    fn pass(self, c: &mut JsonCursor<'_>) -> Option<()> {
        (c.uint()? == u64::from(self)).then_some(())
    }
}

/// Types that a method of [`JsonCursor`] reads.
macro_rules! canonical {
    ($($type:ty, $view:ty, $read:expr;)+) => {$(
        impl $crate::model::form::Canonical for $type {
            type View<'a> = $view;

            #[allow(clippy::elidable_lifetime_names, reason = "some views are of the line")]
            #[inline]
            fn read<'a>(c: &mut $crate::model::cursor::JsonCursor<'a>) -> Option<$view> {
                $read(c)
            }
        }
    )+};
}

pub(super) use canonical;

canonical! {
    u64, u64, JsonCursor::uint;
    i64, i64, JsonCursor::int;
    bool, bool, JsonCursor::bool;
    String, &'a [u8], JsonCursor::string;
    Box<RawValue>, &'a [u8], JsonCursor::value;
    WallTime, WallTime, JsonCursor::time;
    DurationMs, u64, JsonCursor::millis;
    Digest, &'a [u8], JsonCursor::digest;
    Sha256Hex, &'a [u8], JsonCursor::hex64;
    Words, &'a [u8], JsonCursor::strings;
}

impl<T: Canonical> Canonical for Option<T> {
    type View<'a> = Option<T::View<'a>>;

    #[inline]
    fn read<'a>(c: &mut JsonCursor<'a>) -> Option<Self::View<'a>> {
        c.opt(T::read)
    }
}

/// A text: `sha256:` or `sha256-raw:` and 64 hex digits.
pub struct Digest;
/// A text: 64 lower-case hex digits.
pub struct Sha256Hex;
/// An array of texts, kept verbatim.
pub struct Words;
