//! Every string and number in a call's arguments, decoded, in one pass that builds nothing.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, cell::Cell, fmt, ops::ControlFlow};

/// A piece of the arguments.
#[derive(Debug, Clone, Copy)]
pub enum Leaf<'a> {
    /// The name of a member.
    Key(&'a str),
    /// The value of a string.
    Text(&'a str),
    /// A number, as text.
    Number(&'a str),
}

/// Where a piece is: the names of the members around it, innermost first.
#[derive(Debug)]
pub struct Around<'a> {
    key: Option<&'a str>,
    outer: Option<&'a Around<'a>>,
    class: Cell<Option<u8>>,
}

impl<'a> Around<'a> {
    fn new(key: Option<&'a str>, outer: Option<&'a Self>) -> Self {
        Self { key, outer, class: Cell::new(None) }
    }

    /// What `classify` says of this place, asked once for all elements of an array.
    pub fn class(&self, classify: impl FnOnce(&Self) -> u8) -> u8 {
        self.class.get().unwrap_or_else(|| {
            let class = classify(self);
            self.class.set(Some(class));
            class
        })
    }

    /// The name of the member that the piece is the value of, or an element of, through any number of arrays. For a
    /// [`Leaf::Key`] that of the object it is in.
    #[must_use]
    pub fn key(&self) -> Option<&'a str> {
        self.key
    }

    /// The same of the object around that one, and so on.
    pub fn outer_keys(&self) -> impl Iterator<Item = &'a str> {
        let mut at = self.outer;
        std::iter::from_fn(move || {
            let here = at?;
            at = here.outer;
            here.key
        })
    }
}

/// Arguments that cannot be looked at: no JSON, deeper than 128 levels, text that is not Unicode, numbers beyond a
/// double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkError;

/// What is called with each piece.
pub type See<'s> = &'s mut dyn FnMut(Leaf<'_>, &Around<'_>) -> ControlFlow<()>;

/// Calls `see` with every piece until it breaks.
///
/// # Errors
/// [`WalkError`].
pub fn walk(json: &[u8], see: See<'_>) -> Result<(), WalkError> {
    let mut stopped = false;
    let mut reader = serde_json::Deserializer::from_slice(json);
    let top = Around::new(None, None);
    let walked = Value { around: &top, see, stopped: &mut stopped }.deserialize(&mut reader);
    match walked.and_then(|()| reader.end()) {
        Ok(()) => Ok(()),
        Err(_) if stopped => Ok(()),
        Err(_) => Err(WalkError),
    }
}

struct Value<'x, 's> {
    around: &'x Around<'x>,
    see: &'x mut (dyn FnMut(Leaf<'_>, &Around<'_>) -> ControlFlow<()> + 's),
    stopped: &'x mut bool,
}

impl Value<'_, '_> {
    fn leaf<E: de::Error>(self, leaf: Leaf<'_>) -> Result<(), E> {
        if (self.see)(leaf, self.around).is_break() {
            *self.stopped = true;
            return Err(E::custom("stopped"));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<(), E> {
        self.leaf(Leaf::Number(itoa::Buffer::new().format(n)))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<(), E> {
        self.leaf(Leaf::Number(itoa::Buffer::new().format(n)))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<(), E> {
        // `127.0` is an address to some, `127` is not.
        let text = if x.fract() == 0.0 { format!("{x:.1}") } else { x.to_string() };
        self.leaf(Leaf::Number(&text))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.leaf(Leaf::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq
            .next_element_seed(Value { around: self.around, see: &mut *self.see, stopped: &mut *self.stopped })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key_seed(Name)? {
            if (self.see)(Leaf::Key(&key), self.around).is_break() {
                *self.stopped = true;
                return Err(de::Error::custom("stopped"));
            }
            let around = Around::new(Some(&key), Some(self.around));
            map.next_value_seed(Value { around: &around, see: &mut *self.see, stopped: &mut *self.stopped })?;
        }
        Ok(())
    }
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}
