//! A member that lines of one version have and lines of another have not.

use super::{cursor::JsonCursor, form::Canonical};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The value of a member that not every version of its line has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Said<T> {
    /// There is no such member.
    #[default]
    Unsaid,
    /// There is; `None` for `null`.
    Said(Option<T>),
}

impl<T> Said<T> {
    /// Whether there is no such member.
    #[must_use]
    pub const fn is_unsaid(&self) -> bool {
        matches!(self, Self::Unsaid)
    }

    /// The value, if there is one.
    #[must_use]
    pub fn value(self) -> Option<T> {
        match self {
            Self::Unsaid => None,
            Self::Said(value) => value,
        }
    }

    /// The same of a reference.
    #[must_use]
    pub const fn get(&self) -> Option<&T> {
        match self {
            Self::Unsaid => None,
            Self::Said(value) => value.as_ref(),
        }
    }
}

impl<T: Serialize> Serialize for Said<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(to)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::deserialize(from).map(Self::Said)
    }
}

impl<T: Canonical> Canonical for Said<T> {
    type View<'a> = Said<T::View<'a>>;

    #[inline]
    fn read<'a>(c: &mut JsonCursor<'a>) -> Option<Self::View<'a>> {
        c.opt(T::read).map(Said::Said)
    }

    #[inline]
    fn member<'a>(c: &mut JsonCursor<'a>, before: &mut u8, name: &[u8]) -> Option<Self::View<'a>> {
        if c.key(*before, name).is_none() {
            return Some(Said::Unsaid);
        }
        *before = b',';
        Self::read(c)
    }
}
