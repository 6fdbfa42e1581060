//! Rules that take something out of contents before they are stored, shown or exported (docs/redaction.md).
//!
//! | file | what |
//! |---|---|
//! | `load` | rules files, and errors in them |
//! | `preset` | rules for well-known secrets |
//! | `texts` | the regular expressions of rules, in bounded time |
//! | `apply` | one value, looked through |
//!
//! Judges (guard, policy, surface) and hashes have the original.

mod apply;
mod load;
mod preset;
mod texts;

pub use load::{LoadError, Loader, PRESET, REDACTION_VERSION, load};

use crate::{
    model::redaction::Side,
    record::redact::{NotApplied, Redacted, Redactor},
};
use texts::Texts;

/// Largest value that rules look through, in bytes.
const MAX_VALUE: usize = 16 << 20;

/// What a rule takes out.
#[derive(Debug)]
enum What {
    /// The value that a JSON pointer leads to; `*` is any one name or element.
    Pointer(Vec<String>),
    /// The text or number of a member of this name, wherever it is: in small letters, without `-` and `_`.
    Member(String),
    /// What a regular expression matches in texts, names of members and numbers.
    Regex(String),
}

/// One rule.
#[derive(Debug)]
struct Rule {
    name: String,
    what: What,
    /// Whether it looks at arguments and at results.
    sides: [bool; 2],
}

impl Rule {
    const fn is_for(&self, side: Side) -> bool {
        self.sides[side as usize]
    }
}

/// Rules, ready to be applied.
#[derive(Debug)]
pub struct Rules {
    all: Vec<Rule>,
    /// The regular expressions for arguments, and for results.
    texts: [Option<Texts>; 2],
}

impl Redactor for Rules {
    fn apply(&self, side: Side, value: &[u8]) -> Result<Option<Redacted>, NotApplied> {
        apply::value(self, side, value)
    }

    fn message(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, NotApplied> {
        apply::message(self, bytes)
    }

    fn touches(&self, text: &str) -> bool {
        [Side::Arguments, Side::Result].into_iter().any(|side| apply::touches(self, side, text))
    }
}

#[cfg(test)]
mod tests;
