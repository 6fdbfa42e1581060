//! What a line of evidence is made of: one list of members for each kind of line, given to `line!`. From that list come
//!
//! | what | for whom |
//! |---|---|
//! | a struct with serde | writers of a line: the order of the members is that of RFC 8785 |
//! | [`Canonical`], a view of a line | strict readers: no tree, no allocation, no other form |
//! | its members, verbatim | readers that show a line which may be damaged or from another builder |
//!
//! A list that is not in the order of RFC 8785 does not compile.

use super::cursor::JsonCursor;
use crate::canon;
use std::borrow::Cow;

pub use super::form::{Canonical, Digest, Fixed, Sha256Hex, Words};

/// Texts in a row that a value may hold: no command line has more, and each costs far more in memory than in a line.
const MAX_TEXTS: usize = 1 << 20;

/// A value that serializes to exactly these bytes, for what is too rare to have a view: serde alone would also
/// read an array where an object must be.
pub fn exact<T: serde::de::DeserializeOwned + serde::Serialize>(c: &mut JsonCursor<'_>) -> Option<Box<T>> {
    let raw = c.value()?;
    // Quote, comma, quote appears between two texts and, since a quote within a text is escaped, nowhere else.
    if raw.len() > MAX_TEXTS && memchr::memmem::find_iter(raw, b"\",\"").nth(MAX_TEXTS).is_some() {
        return None;
    }
    let value: T = serde_json::from_slice(raw).ok()?;
    (super::to_line(&value).ok()? == raw).then(|| Box::new(value))
}

/// The value of the last member of this name, verbatim; `None` also for what is not a JSON object.
#[must_use]
pub fn member<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut found = None;
    for member in canon::members(line).ok()? {
        let member = member.ok()?;
        if member.key.as_deref() == Some(name) {
            found = Some(&line[member.value]);
        }
    }
    found
}

/// The texts of a member that may be anything; other elements are skipped.
pub fn texts(raw: Option<&[u8]>) -> impl Iterator<Item = Cow<'_, str>> {
    let raw = raw.unwrap_or_default();
    canon::elements(raw).into_iter().flatten().flatten().filter_map(|range| canon::decode_string(&raw[range]))
}

/// The number of a member that may be anything.
#[must_use]
pub fn number(raw: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(raw?).ok()?.parse().ok()
}

/// The text of a member that may be anything.
#[must_use]
pub fn text(raw: Option<&[u8]>) -> Option<Cow<'_, str>> {
    raw.and_then(canon::decode_string)
}

/// The truth value of a member that may be anything.
#[must_use]
pub fn truth(raw: Option<&[u8]>) -> Option<bool> {
    match raw {
        Some(b"true") => Some(true),
        Some(b"false") => Some(false),
        _ => None,
    }
}

/// The milliseconds of a member that may be anything, as microseconds.
#[must_use]
pub fn micros(raw: Option<&[u8]>) -> Option<u64> {
    let ms: f64 = std::str::from_utf8(raw?).ok()?.parse().ok()?;
    (ms.is_finite() && (0.0..1e15).contains(&ms)).then(|| (ms * 1000.0).round() as u64)
}

/// Whether these are in the order of RFC 8785, as far as names of ASCII letters go.
pub(super) const fn in_order(names: &[&str]) -> bool {
    let mut at = 1;
    while at < names.len() {
        let (a, b) = (names[at - 1].as_bytes(), names[at].as_bytes());
        let mut i = 0;
        while i < a.len() && i < b.len() && a[i] == b[i] {
            i += 1;
        }
        if i == b.len() || i < a.len() && a[i] > b[i] {
            return false;
        }
        at += 1;
    }
    true
}

/// A member's name.
macro_rules! name {
    (r#type) => {
        "type"
    };
    ($field:ident) => {
        stringify!($field)
    };
}
pub(super) use name;

/// A member's name as it appears in a line.
macro_rules! key {
    ($field:tt) => {
        concat!("\"", $crate::model::line::name!($field), "\":").as_bytes()
    };
}
pub(super) use key;

/// One kind of line, or of value in one. Each member is `name: Type`, and where that type alone does not say what may
/// be there `as Form`; a value that is always the same is `name: Type = value`, and views leave it out.
///
/// `struct Name, View<'a>, Members<'a>` has all three faces (`struct Name<D = Type>(member)` leaves the type of one open), `struct Name, View<'a>` no tolerant one. A `struct Name` without
/// texts is its own view. Of an `exact struct` the view is itself, read by serde.
macro_rules! line {
    ($(#[$about:meta])* pub struct $name:ident<$d:ident = $detail:ty>($member:ident), $view:ident<'a>, $members:ident<'a> {
        $($(#[$m:meta])* $field:ident: $type:ty $(as $form:ty)? $(= $fixed:expr)?,)+
    }) => {
        $crate::model::line::line!(@owned $(#[$about])* $name <$d = $detail> { $($(#[$m])* $field: $type,)+ });
        $crate::model::line::line!(@view $name $view {} {} $({ $field: $type $(as $form)? $(= $fixed)? })+);
        $crate::model::line::line!(@members $name $members { $($field)+ });

        impl<$d> $name<$d> {
            /// The same with another value of the member whose type is open, and the value that it had.
            #[must_use]
            pub fn with<T>(self, value: T) -> ($d, $name<T>) {
                let Self { $($field),+ } = self;
                let (had, $member) = ($member, value);
                (had, $name { $($field),+ })
            }
        }
    };
    ($(#[$about:meta])* pub struct $name:ident, $view:ident<'a>, $members:ident<'a> {
        $($(#[$m:meta])* $field:ident: $type:ty $(as $form:ty)? $(= $fixed:expr)?,)+
    }) => {
        $crate::model::line::line!(@owned $(#[$about])* $name { $($(#[$m])* $field: $type,)+ });
        $crate::model::line::line!(@view $name $view {} {} $({ $field: $type $(as $form)? $(= $fixed)? })+);
        $crate::model::line::line!(@members $name $members { $($field)+ });
    };
    ($(#[$about:meta])* pub struct $name:ident, $view:ident<'a> {
        $($(#[$m:meta])* $field:ident: $type:ty $(as $form:ty)? $(= $fixed:expr)?,)+
    }) => {
        $crate::model::line::line!(@owned $(#[$about])* $name { $($(#[$m])* $field: $type,)+ });
        $crate::model::line::line!(@view $name $view {} {} $({ $field: $type $(as $form)? $(= $fixed)? })+);
    };
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$m:meta])* $field:ident: $type:ty,)+
    }) => {
        $crate::model::line::line!(@owned $(#[$about])* $name { $($(#[$m])* $field: $type,)+ });

        impl $crate::model::line::Canonical for $name {
            type View<'a> = Self;

            #[inline]
            fn read(c: &mut $crate::model::cursor::JsonCursor<'_>) -> Option<Self> {
                let mut before = b'{';
                $($crate::model::line::line!(@step c before (read $field $type));)+
                c.lit(b"}")?;
                Some(Self { $($field),+ })
            }
        }
    };
    ($(#[$about:meta])* pub exact struct $name:ident, $members:ident<'a> {
        $($(#[$m:meta])* $field:ident: $type:ty,)+
    }) => {
        $crate::model::line::line!($(#[$about])* pub exact struct $name { $($(#[$m])* $field: $type,)+ });
        $crate::model::line::line!(@members $name $members { $($field)+ });
    };
    ($(#[$about:meta])* pub exact struct $name:ident {
        $($(#[$m:meta])* $field:ident: $type:ty,)+
    }) => {
        $crate::model::line::line!(@owned $(#[$about])* $name { $($(#[$m])* $field: $type,)+ });

        impl $crate::model::line::Canonical for $name {
            type View<'a> = Box<Self>;

            fn read(c: &mut $crate::model::cursor::JsonCursor<'_>) -> Option<Box<Self>> {
                $crate::model::line::exact(c)
            }
        }
    };

    (@owned $(#[$about:meta])* $name:ident $(<$d:ident = $detail:ty>)? {
        $($(#[$m:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$about])*
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name $(<$d = $detail>)? {
            $($(#[$m])* pub $field: $type,)+
        }

        impl $name {
            /// Its members, in the order of the line.
            pub const MEMBERS: &'static [&'static str] = &[$($crate::model::line::name!($field)),+];
        }

        const _: () = assert!($crate::model::line::in_order($name::MEMBERS));
    };

    (@view $name:ident $view:ident { $($fields:tt)* } { $($steps:tt)* }
        { $field:ident: $type:ty = $fixed:expr } $($rest:tt)*) => {
        $crate::model::line::line!(
            @view $name $view { $($fields)* } { $($steps)* (fixed $field $fixed) } $($rest)*
        );
    };
    (@view $name:ident $view:ident { $($fields:tt)* } { $($steps:tt)* }
        { $field:ident: $type:ty as $form:ty } $($rest:tt)*) => {
        $crate::model::line::line!(
            @view $name $view { $($fields)* ($field $form) } { $($steps)* (read $field $form) } $($rest)*
        );
    };
    (@view $name:ident $view:ident { $($fields:tt)* } { $($steps:tt)* }
        { $field:ident: $type:ty } $($rest:tt)*) => {
        $crate::model::line::line!(
            @view $name $view { $($fields)* ($field $type) } { $($steps)* (read $field $type) } $($rest)*
        );
    };
    (@view $name:ident $view:ident { $(($field:ident $form:ty))+ } { $($step:tt)+ }) => {
        #[doc = concat!("A borrowed view of a [`", stringify!($name), "`] whose line is in canonical form.")]
        #[derive(Debug)]
        pub struct $view<'a> {
            $(
                #[doc = concat!("The member `", stringify!($field), "` of [`", stringify!($name), "`].")]
                pub $field: <$form as $crate::model::line::Canonical>::View<'a>,
            )+
        }

        impl $crate::model::line::Canonical for $name {
            type View<'a> = $view<'a>;

            #[inline]
            fn read<'a>(c: &mut $crate::model::cursor::JsonCursor<'a>) -> Option<$view<'a>> {
                let mut before = b'{';
                $($crate::model::line::line!(@step c before $step);)+
                c.lit(b"}")?;
                Some($view { $($field),+ })
            }
        }
    };

    (@step $c:ident $before:ident (read $field:ident $form:ty)) => {
        let $field = <$form as $crate::model::line::Canonical>::member($c, &mut $before, $crate::model::line::key!($field))?;
    };
    (@step $c:ident $before:ident (fixed $field:ident $fixed:expr)) => {
        $crate::model::line::Fixed::member($fixed, $c, &mut $before, $crate::model::line::key!($field))?;
    };

    (@members $name:ident $members:ident { $($field:ident)+ }) => {
        #[doc = concat!("The raw members of a line that should be a [`", stringify!($name), "`], valid or not.")]
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $members<'a> {
            $(
                #[doc = concat!("The raw value of the last member `", stringify!($field), "` of the line; see [`", stringify!($name), "`].")]
                pub $field: Option<&'a [u8]>,
            )+
        }

        impl<'a> $members<'a> {
            /// Reads a line; `None` when it is not a JSON object. Other members are passed over.
            #[must_use]
            pub fn of_line(line: &'a [u8]) -> Option<Self> {
                let mut found = Self::default();
                for member in $crate::canon::members(line).ok()? {
                    let member = member.ok()?;
                    match member.key.as_deref() {
                        $(Some($crate::model::line::name!($field)) => found.$field = Some(&line[member.value]),)+
                        _ => {}
                    }
                }
                Some(found)
            }
        }
    };
}
pub(super) use line;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_may_be_anything_are_read_as_far_as_they_are_what_is_asked() {
        let line = br#"{"a":["x",1,"\u0079",null],"b":"t","n":7,"n":8,"t":"\"q\""}"#;
        let of = |name| member(line, name);
        assert_eq!(texts(of("a")).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!((number(of("n")), number(of("b")), number(of("gone"))), (Some(8), None, None));
        assert_eq!((text(of("t")).as_deref(), text(of("n"))), (Some("\"q\""), None));
        for raw in [None, Some(&b"7"[..]), Some(b"[")] {
            assert_eq!(texts(raw).count(), 0);
        }
        for other in [&b"[1]"[..], b"{", b"", b"{\"a\":1} x"] {
            assert_eq!(member(other, "a"), None);
        }
    }
}
