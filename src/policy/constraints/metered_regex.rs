//! Regular expressions whose work is counted, so that no pattern and no text can make a verdict take for ever.
//!
//! An automaton that is built while it runs looks at nearly every text in one step a byte. What it builds is counted;
//! where that is too much, or it cannot continue (a Unicode word boundary beside a letter outside ASCII), the states
//! that a match can be in are followed one by one, each a visit. Neither engine of the `regex` crate can be stopped,
//! which is why it is not used.

use regex_automata::{
    Input, MatchKind, PatternSet,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson::{self, NFA, State},
    util::{pool::Pool, primitives::StateID, syntax},
};

/// Visits of states that one verdict may take, whatever the length of the arguments.
pub const VISITS: u64 = 1 << 24;
/// Visits that a verdict may take in addition to [`VISITS`], for each byte of the arguments.
pub const VISITS_PER_BYTE: u64 = 12;
/// Bytes that an automaton may take, for each thread that judges.
const CACHE: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

/// Visits that are left.
#[derive(Debug, Clone, Copy)]
pub struct Visits(u64);

impl Visits {
    /// Those of a verdict on this many bytes.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        Self(VISITS + VISITS_PER_BYTE * bytes as u64)
    }

    /// A budget of `all` visits.
    #[must_use]
    pub const fn new(all: u64) -> Self {
        Self(all)
    }

    /// How many are left.
    #[must_use]
    pub const fn left(self) -> u64 {
        self.0
    }

    fn take(&mut self, visits: u64) -> Result<(), Exhausted> {
        let left = self.0.checked_sub(visits);
        self.0 = left.unwrap_or(0);
        left.map(drop).ok_or(Exhausted)
    }
}

/// What did not compile.
#[derive(Debug)]
pub enum Unbuilt {
    /// It takes more memory than it may.
    TooBig,
    /// It is not a regular expression; what is wrong.
    Wrong(String),
}

/// Patterns, compiled into one automaton.
#[derive(Debug)]
pub struct Patterns {
    dfa: DFA,
    caches: Pool<Cache, Box<dyn Fn() -> Cache + Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>>,
    /// Visits that a new step of the automaton counts.
    step: u64,
}

/// The automaton cannot say.
struct Undecided;

impl Patterns {
    /// Compiles patterns that together take at most `limit` bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(texts: &[impl AsRef<str>], ignore_case: bool, limit: usize) -> Result<Self, Unbuilt> {
        let nfa = NFA::compiler()
            .syntax(syntax::Config::new().case_insensitive(ignore_case))
            .configure(
                thompson::Config::new().which_captures(thompson::WhichCaptures::None).nfa_size_limit(Some(limit)),
            )
            .build_many(texts)
            .map_err(|e| match e.size_limit() {
                Some(_) => Unbuilt::TooBig,
                None => Unbuilt::Wrong(e.to_string()),
            })?;
        // Few of all states are in a set at once; what it takes to keep a set is more than a visit.
        let step = 160 + nfa.states().len() as u64 / 4;
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .cache_capacity(CACHE)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|e| Unbuilt::Wrong(e.to_string()))?;
        let of = dfa.clone();
        Ok(Self { caches: Pool::new(Box::new(move || of.create_cache())), dfa, step })
    }

    /// Most visits that matching a text of this many bytes takes.
    #[must_use]
    pub fn most(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.dfa.get_nfa().states().len() as u64)
    }

    /// The first of the patterns that match somewhere in the text.
    ///
    /// # Errors
    /// [`Exhausted`], and nothing is left.
    pub fn first(&self, text: &str, visits: &mut Visits) -> Result<Option<usize>, Exhausted> {
        let mut cache = self.caches.get();
        match self.run(&mut cache, text, visits) {
            Ok(found) => Ok(found),
            Err(Undecided) => self.follow(text.as_bytes(), visits),
        }
    }

    fn run(&self, cache: &mut Cache, text: &str, visits: &mut Visits) -> Result<Option<usize>, Undecided> {
        // Half of what is left: the other way has to have some, too.
        let spare = visits.left() / 2;
        let mut build = || {
            visits.take(self.step).map_err(|_| Undecided)?;
            if visits.left() < spare { Err(Undecided) } else { Ok(()) }
        };
        let mut found: Option<usize> = None;
        let mut at = self.dfa.start_state_forward(cache, &Input::new(text)).map_err(|_| Undecided)?;
        for byte in text.bytes() {
            if at.is_tagged() {
                build()?;
                at = self.dfa.next_state(cache, at, byte).map_err(|_| Undecided)?;
            } else {
                let next = self.dfa.next_state_untagged(cache, at, byte);
                at = if next.is_unknown() {
                    build()?;
                    self.dfa.next_state(cache, at, byte).map_err(|_| Undecided)?
                } else {
                    next
                };
            }
            if at.is_tagged() {
                if at.is_match() {
                    found = found.into_iter().chain(self.matched(cache, at)).min();
                    if found == Some(0) {
                        return Ok(found);
                    }
                } else if at.is_dead() {
                    return Ok(found);
                } else if at.is_quit() {
                    return Err(Undecided);
                }
            }
        }
        let end = self.dfa.next_eoi_state(cache, at).map_err(|_| Undecided)?;
        if end.is_match() {
            found = found.into_iter().chain(self.matched(cache, end)).min();
        }
        Ok(found)
    }

    fn matched(&self, cache: &Cache, at: LazyStateID) -> Option<usize> {
        (0..self.dfa.match_len(cache, at)).map(|n| self.dfa.match_pattern(cache, at, n).as_usize()).min()
    }

    /// The same by following every state that a match can be in.
    fn follow(&self, text: &[u8], visits: &mut Visits) -> Result<Option<usize>, Exhausted> {
        let nfa = self.dfa.get_nfa();
        let (mut here, mut next) = (Set::new(nfa.states().len()), Set::new(nfa.states().len()));
        let mut todo = Vec::new();
        let mut found = PatternSet::new(nfa.pattern_len());
        let first = |found: &PatternSet| found.iter().next().map(|p| p.as_usize());
        self.reach(nfa.start_unanchored(), text, 0, &mut here, &mut todo, visits)?;
        for at in 0..=text.len() {
            for state in here.members.iter().copied() {
                let to = match nfa.state(state) {
                    State::ByteRange { trans } => trans.matches(text, at).then_some(trans.next),
                    State::Sparse(sparse) => sparse.matches(text, at),
                    State::Dense(dense) => dense.matches(text, at),
                    State::Match { pattern_id } => {
                        let _ = found.try_insert(*pattern_id);
                        None
                    }
                    _ => None,
                };
                if let Some(to) = to {
                    self.reach(to, text, at + 1, &mut next, &mut todo, visits)?;
                }
            }
            if first(&found) == Some(0) || next.members.is_empty() {
                break;
            }
            std::mem::swap(&mut here, &mut next);
            next.clear();
        }
        Ok(first(&found))
    }

    /// Adds a state and what is reached from it without a byte.
    fn reach(
        &self,
        from: StateID,
        text: &[u8],
        at: usize,
        set: &mut Set,
        todo: &mut Vec<StateID>,
        visits: &mut Visits,
    ) -> Result<(), Exhausted> {
        let nfa = self.dfa.get_nfa();
        todo.push(from);
        while let Some(state) = todo.pop() {
            visits.take(1)?;
            if !set.insert(state) {
                continue;
            }
            match nfa.state(state) {
                State::Look { look, next } if nfa.look_matcher().matches(*look, text, at) => todo.push(*next),
                State::Union { alternates } => todo.extend_from_slice(alternates),
                State::BinaryUnion { alt1, alt2 } => todo.extend([*alt1, *alt2]),
                State::Capture { next, .. } => todo.push(*next),
                _ => {}
            }
        }
        todo.clear();
        Ok(())
    }
}

/// States, in the order in which they were added.
struct Set {
    members: Vec<StateID>,
    /// By state, in which round it was added last.
    added: Vec<u32>,
    round: u32,
}

impl Set {
    fn new(states: usize) -> Self {
        Self { members: Vec::new(), added: vec![0; states], round: 1 }
    }

    fn insert(&mut self, state: StateID) -> bool {
        let added = std::mem::replace(&mut self.added[state.as_usize()], self.round) != self.round;
        if added {
            self.members.push(state);
        }
        added
    }

    fn clear(&mut self) {
        self.members.clear();
        self.round = self.round.checked_add(1).unwrap_or_else(|| {
            self.added.fill(0);
            1
        });
    }
}

#[cfg(test)]
mod tests;
