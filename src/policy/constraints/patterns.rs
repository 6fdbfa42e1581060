//! `deny_patterns`: regular expressions over every string in the arguments, keys as well as values.

use super::walk::{Leaf, WalkError, walk};
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::{ops::ControlFlow, sync::OnceLock};

/// Bytes of a compiled pattern, and of a compiled list of them.
const SIZE_LIMIT: usize = 4 << 20;
const SET_LIMIT: usize = 16 << 20;
/// Bytes of a pattern as written.
const MAX_PATTERN: usize = 16 << 10;

/// A list of patterns, compiled together when first needed. Matching is linear in the text.
#[derive(Debug)]
pub struct Patterns {
    texts: Vec<String>,
    ignore_case: bool,
    set: OnceLock<Option<RegexSet>>,
}

impl Patterns {
    /// An empty list.
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
            format!("{} (character {at} of it)", e.kind())
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
        let built: Result<Regex, _> =
            RegexBuilder::new(text).case_insensitive(self.ignore_case).size_limit(SIZE_LIMIT).build();
        match built {
            Ok(_) => Ok(()),
            Err(regex::Error::CompiledTooBig(_)) => Err("too big when compiled".to_owned()),
            Err(e) => Err(e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()),
        }
    }

    /// Compiles all.
    ///
    /// # Errors
    /// They are too big together, or one is wrong.
    pub fn compile(&self) -> Result<&RegexSet, super::super::names::Unusable> {
        self.set
            .get_or_init(|| {
                RegexSetBuilder::new(&self.texts).case_insensitive(self.ignore_case).size_limit(SET_LIMIT).build().ok()
            })
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

    /// A pattern as it was written.
    #[must_use]
    pub fn text(&self, n: usize) -> &str {
        self.texts.get(n).map_or("", String::as_str)
    }

    /// The first pattern of the list that the first string with any match matches.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn find(&self, set: &RegexSet, arguments: &[u8]) -> Result<Option<usize>, WalkError> {
        let mut found = None;
        walk(arguments, &mut |leaf, _| {
            if let Leaf::Text(text) | Leaf::Key(text) = leaf
                // Which one it is costs more, and nearly nothing matches.
                && set.is_match(text)
                && let Some(n) = set.matches(text).iter().next()
            {
                found = Some(n);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}
