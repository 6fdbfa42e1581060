//! The regular expressions of rules. None can take for ever: whether any matches is found out with work that is counted; where
//! each matches, by automata that give up, and then the whole text is taken out.

use crate::policy::constraints::metered_regex::{Patterns, Unbuilt, Visits};
use regex_automata::{
    Input,
    hybrid::{
        dfa::DFA,
        regex::{Cache, Regex},
    },
    nfa::thompson,
};
use std::ops::Range;

/// Bytes of one regular expression when it is compiled.
const SIZE_LIMIT: usize = 1 << 20;
/// Bytes of all of them.
const SET_LIMIT: usize = 16 << 20;
/// Bytes that the automaton of one takes while it is used.
const CACHE: usize = 2 << 20;
/// How often an automaton may begin anew before it gives up.
const CLEARS: usize = 4;
/// Bytes of texts that are looked through for places, again for each match, in one value.
const SCANNED: usize = 256 << 20;

/// What is wrong with a regular expression, in words.
fn wrong(unbuilt: Unbuilt) -> String {
    match unbuilt {
        Unbuilt::TooBig => {
            "too big when compiled (use smaller counts, or ASCII classes: (?-u:\\w) in place of \\w)".to_owned()
        }
        Unbuilt::Wrong(what) => what.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
    }
}

/// Looks whether a regular expression can be used.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    let hir = regex_syntax::parse(pattern).map_err(|e| match e {
        regex_syntax::Error::Parse(e) => format!("{} (at character {})", e.kind(), e.span().start.column),
        regex_syntax::Error::Translate(e) => format!("{} (at character {})", e.kind(), e.span().start.column),
        e => e.to_string(),
    })?;
    Patterns::new(&[pattern], false, SIZE_LIMIT).map_err(wrong)?;
    if hir.properties().minimum_len().unwrap_or(0) == 0 {
        return Err("it also matches where there is nothing".to_owned());
    }
    regex(pattern).map(drop)
}

fn regex(pattern: &str) -> Result<Regex, String> {
    let dfa = DFA::config()
        .unicode_word_boundary(true)
        .cache_capacity(CACHE)
        .skip_cache_capacity_check(true)
        .minimum_cache_clear_count(Some(CLEARS));
    let mut builder = Regex::builder();
    builder.dfa(dfa).thompson(thompson::Config::new().nfa_size_limit(Some(SIZE_LIMIT)));
    builder.build(pattern).map_err(|e| e.to_string())
}

/// Regular expressions, compiled together.
#[derive(Debug)]
pub(super) struct Texts {
    any: Patterns,
    each: Vec<Regex>,
    /// The rule that each is of.
    rules: Vec<usize>,
}

/// A value is looked through: what that may still cost.
pub(super) struct Search<'t> {
    texts: &'t Texts,
    visits: Visits,
    scanned: usize,
    caches: Vec<Option<Cache>>,
}

/// It takes too long to find out whether something matches.
pub(super) struct TooLong;

impl Texts {
    /// Of rules, by their index, that were checked; `None` for none.
    ///
    /// # Errors
    /// They are too big together, in words.
    pub(super) fn new(patterns: &[(usize, &str)]) -> Result<Option<Self>, String> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let texts: Vec<&str> = patterns.iter().map(|(_, text)| *text).collect();
        let any = Patterns::new(&texts, false, SET_LIMIT).map_err(wrong)?;
        let each = texts.into_iter().map(regex).collect::<Result<_, _>>()?;
        Ok(Some(Self { any, each, rules: patterns.iter().map(|(rule, _)| *rule).collect() }))
    }

    /// Begins with a value of so many bytes.
    pub(super) fn search(&self, bytes: usize) -> Search<'_> {
        Search { texts: self, visits: Visits::of(bytes), scanned: 0, caches: self.each.iter().map(|_| None).collect() }
    }
}

impl Search<'_> {
    /// Where something matches in a text, and of which rule: in order, never overlapping. What matches in some place that
    /// cannot be told is the whole text.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(super) fn places(&mut self, text: &str) -> Result<Vec<(Range<usize>, usize)>, TooLong> {
        let first = self.texts.any.first(text, &mut self.visits).map_err(|_| TooLong)?;
        let Some(first) = first else { return Ok(Vec::new()) };
        let whole = || vec![(0..text.len(), self.texts.rules[first])];
        let Some(mut all) = self.each(text).filter(|all| !all.is_empty()) else { return Ok(whole()) };
        all.sort_by_key(|(place, rule)| (place.start, *rule));
        let mut out: Vec<(Range<usize>, usize)> = Vec::with_capacity(all.len());
        for (place, rule) in all {
            match out.last_mut().filter(|(last, _)| place.start < last.end) {
                Some((last, _)) => last.end = last.end.max(place.end),
                None => out.push((place, rule)),
            }
        }
        Ok(out)
    }

    /// `None` where an automaton gave up.
    fn each(&mut self, text: &str) -> Option<Vec<(Range<usize>, usize)>> {
        let mut out = Vec::new();
        for (n, regex) in self.texts.each.iter().enumerate() {
            let cache = self.caches[n].get_or_insert_with(|| regex.create_cache());
            let mut at = 0;
            while at < text.len() {
                self.scanned = self.scanned.saturating_add(text.len() - at);
                if self.scanned > SCANNED {
                    return None;
                }
                let Some(found) = regex.try_search(cache, &Input::new(text).range(at..)).ok()? else { break };
                out.push((found.range(), self.texts.rules[n]));
                at = found.end();
            }
        }
        Some(out)
    }
}
