//! `deny_patterns`: regular expressions over every string in the arguments, keys as well as values.

use super::{
    metered_regex::{Exhausted, Patterns as Compiled, Unbuilt, Visits},
    walk::{Leaf, WalkError, walk},
};
use std::{ops::ControlFlow, sync::OnceLock};

/// Bytes of a compiled pattern, and of a compiled list of them.
const SIZE_LIMIT: usize = 4 << 20;
const SET_LIMIT: usize = 16 << 20;
/// Bytes of a pattern as written.
const MAX_PATTERN: usize = 16 << 10;

/// A list of patterns, compiled together when first needed. Matching takes a bounded number of steps for each byte.
#[derive(Debug)]
pub struct Patterns {
    texts: Vec<String>,
    ignore_case: bool,
    set: OnceLock<Option<Compiled>>,
}

impl Patterns {
    /// A list without patterns.
    #[must_use]
    pub fn new(ignore_case: bool) -> Self {
        Self { texts: Vec::new(), ignore_case, set: OnceLock::new() }
    }

    /// Adds a pattern after a look at its syntax.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("longer than {MAX_PATTERN} bytes"));
        }
        regex_syntax::ast::parse::ParserBuilder::new().nest_limit(200).build().parse(text).map_err(|e| {
            let at = e.span().start.column;
            format!("{} (at character {at})", e.kind())
        })?;
        self.texts.push(text.to_owned());
        self.set = OnceLock::new();
        Ok(())
    }

    /// Compiles the pattern that was added last.
    ///
    /// # Errors
    /// What is wrong with it, or that it is too big.
    pub fn compile_last(&self) -> Result<(), String> {
        let Some(text) = self.texts.last() else { return Ok(()) };
        Compiled::new(&[text], self.ignore_case, SIZE_LIMIT).map(drop).map_err(|e| match e {
            Unbuilt::TooBig => format!(
                "too big when compiled: more than {} MiB (use smaller counts, or ASCII classes: (?-u:\\w))",
                SIZE_LIMIT >> 20
            ),
            Unbuilt::Wrong(what) => what.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        })
    }

    /// Compiles all patterns of the list.
    ///
    /// # Errors
    /// They are too big together, or one is wrong.
    pub fn compile(&self) -> Result<&Compiled, super::super::names::Unusable> {
        self.set
            .get_or_init(|| Compiled::new(&self.texts, self.ignore_case, SET_LIMIT).ok())
            .as_ref()
            .ok_or(super::super::names::Unusable)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// The first pattern of the list that the first string with any match matches.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn find(&self, set: &Compiled, arguments: &[u8], visits: &mut Visits) -> Result<Found, WalkError> {
        let mut found = Found::Nothing;
        walk(arguments, &mut |leaf, _| {
            if let Leaf::Text(text) | Leaf::Key(text) = leaf {
                found = match set.first(text, visits) {
                    Ok(None) => return ControlFlow::Continue(()),
                    Ok(Some(n)) => Found::Pattern(n),
                    Err(Exhausted) => Found::TooCostly,
                };
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// What a look at the arguments gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// No pattern matches.
    Nothing,
    /// The pattern with this index matches.
    Pattern(usize),
    /// It takes too much to find out.
    TooCostly,
}
