//! Looking for lines in the background: newest first, with progress, until nobody wants to know any more.

use super::Pages;
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Lines that are looked at between two reports.
const BLOCK: u64 = 2048;
/// Lines that can be told apart: 32 MiB of bits. What lies behind is not looked at.
const MAX_LINES: u64 = 1 << 28;
/// Growth up to this is looked at by whoever asks, without a thread.
const INLINE: u64 = 4096;

type Test = dyn Fn(&[u8]) -> bool + Send + Sync;

/// A search over the lines of a file. Dropping it stops it.
pub struct Scan {
    pages: Pages,
    shared: Arc<Shared>,
}

/// How far a search is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Lines that were looked at.
    pub lines: u64,
    /// Lines that there are to look at; while they are being counted, as many as are known of.
    pub of: u64,
    /// Lines that were found.
    pub matches: u64,
    /// Whether it is over.
    pub done: bool,
    /// Why it ended early.
    pub error: Option<String>,
}

struct Shared {
    test: Box<Test>,
    found: Mutex<Found>,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct Found {
    bits: Bits,
    /// Lines before this number have been looked at, or are being.
    covered: u64,
    lines: u64,
    busy: bool,
    error: Option<String>,
}

impl Scan {
    pub(super) fn start(pages: Pages, test: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> io::Result<Self> {
        let found = Mutex::new(Found { busy: true, ..Found::default() });
        let shared = Arc::new(Shared { test: Box::new(test), found, stop: AtomicBool::new(false) });
        let scan = Self { pages, shared };
        scan.spawn()?;
        Ok(scan)
    }

    fn spawn(&self) -> io::Result<()> {
        let (pages, shared) = (self.pages.clone(), Arc::clone(&self.shared));
        thread::Builder::new().name("assay-scan".into()).spawn(move || shared.run(&pages)).map(drop)
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> ScanProgress {
        let found = self.shared.found();
        ScanProgress {
            lines: found.lines,
            of: found.covered.max(self.pages.len().min(MAX_LINES)),
            matches: found.bits.count(),
            done: !found.busy,
            error: found.error.clone(),
        }
    }

    /// Looks at lines that have come since. Few are looked at here, many in the background.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn refresh(&self) -> io::Result<()> {
        let len = self.pages.len().min(MAX_LINES);
        let mut found = self.shared.found();
        if found.busy || found.covered >= len || self.shared.stopped() || !self.pages.progress().is_done() {
            return Ok(());
        }
        found.busy = true;
        let few = len - found.covered <= INLINE;
        drop(found);
        if few {
            self.shared.run(&self.pages);
            return Ok(());
        }
        self.spawn().inspect_err(|_| self.shared.found().busy = false)
    }

    /// Stops it; what was found stays.
    pub fn cancel(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Number of the `nth` line that was found so far, in the order of the file.
    #[must_use]
    pub fn nth(&self, nth: u64) -> Option<u64> {
        self.shared.found().bits.nth(nth)
    }

    /// Numbers of the lines found so far from the `from`-th on, `count` at most, in the order of the file.
    #[must_use]
    pub fn matches(&self, from: u64, count: usize) -> Vec<u64> {
        let found = self.shared.found();
        let first = found.bits.nth(from);
        std::iter::successors(first, |line| found.bits.at_or_after(line + 1)).take(count).collect()
    }

    /// How many of the lines before this one were found.
    #[must_use]
    pub fn rank(&self, line: u64) -> u64 {
        self.shared.found().bits.rank(line)
    }

    /// Whether this line was found.
    #[must_use]
    pub fn contains(&self, line: u64) -> bool {
        self.shared.found().bits.at_or_after(line) == Some(line)
    }

    /// The first line behind this one that was found.
    #[must_use]
    pub fn after(&self, line: u64) -> Option<u64> {
        self.shared.found().bits.at_or_after(line.checked_add(1)?)
    }

    /// The last line before this one that was found.
    #[must_use]
    pub fn before(&self, line: u64) -> Option<u64> {
        let found = self.shared.found();
        found.bits.rank(line).checked_sub(1).and_then(|nth| found.bits.nth(nth))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Shared {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&self, pages: &Pages) {
        // Lines have their numbers for certain only when they have been counted.
        pages.wait(&mut |_| !self.stopped());
        let to = pages.len().min(MAX_LINES);
        let from = std::mem::replace(&mut self.found().covered, to);
        let looked = if self.stopped() { Ok(()) } else { self.look(pages, from, to) };
        let mut found = self.found();
        found.busy = false;
        found.error = looked.err().map(|e| e.to_string());
    }

    fn look(&self, pages: &Pages, from: u64, to: u64) -> io::Result<()> {
        let mut end = to;
        while end > from && !self.stopped() {
            let start = end.saturating_sub(BLOCK).max(from);
            let mut hits = Vec::new();
            pages.lines(start..end, &mut |line| {
                if line.bytes.is_some_and(|b| (self.test)(b)) {
                    hits.push(line.number);
                }
                !self.stopped()
            })?;
            let mut found = self.found();
            for line in hits {
                found.bits.set(line);
            }
            found.lines += end - start;
            end = start;
        }
        Ok(())
    }
}

/// Bits in a group whose number is kept.
const GROUP: u64 = 4096;

/// A set of line numbers, one bit each.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    /// How many are in each group.
    groups: Vec<u32>,
    count: u64,
}

impl Bits {
    fn set(&mut self, line: u64) {
        let (word, bit) = place(line);
        if word >= self.words.len() {
            let groups = word / (GROUP as usize / 64) + 1;
            self.groups.resize(groups, 0);
            self.words.resize(groups * (GROUP as usize / 64), 0);
        }
        if self.words[word] & bit == 0 {
            self.words[word] |= bit;
            self.groups[word / (GROUP as usize / 64)] += 1;
            self.count += 1;
        }
    }

    const fn count(&self) -> u64 {
        self.count
    }

    fn nth(&self, mut nth: u64) -> Option<u64> {
        let group = self.groups.iter().position(|n| {
            let here = nth < u64::from(*n);
            nth -= if here { 0 } else { u64::from(*n) };
            here
        })?;
        let first = group * (GROUP as usize / 64);
        for (at, word) in self.words[first..].iter().enumerate() {
            let ones = u64::from(word.count_ones());
            if nth < ones {
                let rest = (0..nth).fold(*word, |w, _| w & (w - 1));
                return Some((first + at) as u64 * 64 + u64::from(rest.trailing_zeros()));
            }
            nth -= ones;
        }
        None
    }

    fn rank(&self, line: u64) -> u64 {
        let (word, bit) = place(line);
        if word >= self.words.len() {
            return self.count;
        }
        let group = word / (GROUP as usize / 64);
        let groups: u64 = self.groups[..group].iter().map(|n| u64::from(*n)).sum();
        let words: u64 =
            self.words[group * (GROUP as usize / 64)..word].iter().map(|w| u64::from(w.count_ones())).sum();
        groups + words + u64::from((self.words[word] & (bit - 1)).count_ones())
    }

    fn at_or_after(&self, line: u64) -> Option<u64> {
        self.nth(self.rank(line))
    }
}

fn place(line: u64) -> (usize, u64) {
    (usize::try_from(line / 64).unwrap_or(usize::MAX), 1 << (line % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn bits_are_a_set(lines in prop::collection::btree_set(0u64..20_000, 0..300), at in 0u64..21_000) {
            let mut bits = Bits::default();
            lines.iter().rev().chain(lines.iter()).for_each(|l| bits.set(*l));
            prop_assert_eq!(bits.count(), lines.len() as u64);
            prop_assert_eq!((0..=lines.len() as u64).map_while(|n| bits.nth(n)).collect::<BTreeSet<_>>(), lines.clone());
            prop_assert_eq!(bits.rank(at), lines.range(..at).count() as u64);
            prop_assert_eq!(bits.at_or_after(at), lines.range(at..).next().copied());
        }
    }
}
