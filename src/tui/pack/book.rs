//! A file of evidence lines as a list: read by pages, indexed and filtered beside the screen, so that a million of them open at
//! once and memory stays flat.
//!
//! In memory are the page on the screen, the offset of every 64th line, and the lines that pass the filter; of the chain of a
//! session that may still run also the calls in flight, which no receipt names yet.

use super::{
    read::{self, BookUpdate, FileLine, Folded, Known, Running, STRIDE, Source},
    row::Kind,
};
use crate::{
    filter::Filter,
    numbers::percent,
    tui::{
        cursor::Cursor,
        msg::{Effect, Job, Teller, Ticket, Told, hear},
    },
};
use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

/// Lines of a page in addition to those on the screen, before and after them.
const MARGIN: u64 = 60;

type Work = Box<dyn FnOnce(&Teller<BookUpdate>) + Send>;

/// What passes the filter.
#[derive(Debug, Default)]
struct Passed {
    filter: Filter,
    numbers: Vec<u32>,
    offsets: Vec<u64>,
    /// Lines and bytes that were looked at.
    seen: (u64, u64),
    /// All that there was has been looked at.
    done: bool,
}

/// The lines of a file of any length, of which a window is in memory.
#[derive(Debug)]
pub struct Book {
    source: Source,
    marks: Vec<u64>,
    lines: u64,
    bytes: (u64, u64),
    /// Bytes after the last whole line, once the end was seen.
    torn: Option<u64>,
    error: Option<String>,
    problems: Vec<u64>,
    index: Option<Ticket<BookUpdate>>,
    page: (u64, Vec<FileLine>),
    reading: Option<(Ticket<BookUpdate>, Range<u64>)>,
    filter: String,
    passed: Option<Passed>,
    scan: Option<Ticket<BookUpdate>>,
    /// For a chain whose session may still run: what it says about calls, and which still run.
    chain: Option<Arc<Mutex<Folded>>>,
    running: Running,
    /// The line that stays selected while a filter changes what is around it.
    anchor: Option<u64>,
    to_end: bool,
    /// Where the list is.
    pub cursor: Cursor,
}

impl Book {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(source: Source) -> Self {
        // Of events that are no messages nothing is listed.
        let passed = (source.kind == Kind::Messages).then(Passed::default);
        Self {
            source,
            marks: Vec::new(),
            lines: 0,
            bytes: (0, 0),
            torn: None,
            error: None,
            problems: Vec::new(),
            index: None,
            page: (0, Vec::new()),
            reading: None,
            filter: String::new(),
            passed,
            scan: None,
            chain: None,
            running: Running::default(),
            anchor: None,
            to_end: false,
            cursor: Cursor::default(),
        }
    }

    /// The events of a session that may still run.
    #[must_use]
    pub fn of_running(source: Source) -> Self {
        Self { chain: Some(Arc::default()), ..Self::new(source) }
    }

    /// The calls that run, if this is the chain of a session that may.
    #[must_use]
    pub const fn running(&self) -> &Running {
        &self.running
    }

    /// The file that is read.
    #[must_use]
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// Whether it was ever opened.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.index.is_some() || self.torn.is_some() || self.error.is_some()
    }

    /// Begins to read.
    pub fn open(&mut self) -> Vec<Effect> {
        let ticket = Ticket::new();
        self.index = Some(ticket.clone());
        let (source, chain) = (self.source.clone(), self.chain.clone());
        let mut effects = vec![Effect::Start(Job::new(&ticket, "index evidence", move |teller| {
            read::index(&source, None, chain.as_deref(), teller);
        }))];
        effects.extend(self.scan());
        effects
    }

    /// Whether only some of the lines are listed although there is no filter.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.source.kind == Kind::Messages
    }

    /// Checks whether the file has grown, and appends the new lines.
    pub fn renew(&mut self) -> Vec<Effect> {
        let Some(torn) = self.torn.filter(|_| self.error.is_none()) else { return Vec::new() };
        let mut effects = self.scan_on();
        if self.index.as_ref().is_some_and(|job| !job.is_over()) {
            return effects;
        }
        let mark = self.lines.saturating_sub(1) / STRIDE;
        let known = Known {
            lines: self.lines,
            bytes: self.bytes.0,
            torn,
            mark: (mark * STRIDE, self.marks.get(mark as usize).copied().unwrap_or(0)),
            problems: self.problems.len(),
        };
        let ticket = Ticket::new();
        self.index = Some(ticket.clone());
        let (source, chain) = (self.source.clone(), self.chain.clone());
        effects.push(Effect::Start(Job::new(&ticket, "look for more evidence", move |teller| {
            read::index(&source, Some(known), chain.as_deref(), teller);
        })));
        effects
    }

    /// Holds the filter against lines that have come since it was done.
    fn scan_on(&mut self) -> Vec<Effect> {
        let behind = self.passed.as_ref().filter(|p| p.done && p.seen.0 < self.lines);
        if behind.is_none() || self.scan.as_ref().is_some_and(|job| !job.is_over()) {
            return Vec::new();
        }
        self.scan()
    }

    fn scan(&mut self) -> Vec<Effect> {
        let Some(p) = &self.passed else { return Vec::new() };
        let (source, filter, from) = (self.source.clone(), p.filter.clone(), p.seen);
        let ticket = Ticket::new();
        self.scan = Some(ticket.clone());
        vec![Effect::Start(Job::new(&ticket, "filter evidence", move |teller| {
            read::scan(&source, &filter, from, teller);
        }))]
    }

    /// Stops the jobs that read the file.
    pub fn close(&mut self) {
        let reading = self.reading.take().map(|(t, _)| t);
        for ticket in [self.index.take(), self.scan.take(), reading].into_iter().flatten() {
            ticket.cancel();
        }
    }

    /// Lines of the list.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.passed.as_ref().map_or(self.lines, |p| p.numbers.len() as u64)
    }

    /// Lines of the file, so far.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether all of the file has been seen.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.torn.is_some()
    }

    /// Bytes after the last whole line.
    #[must_use]
    pub const fn torn(&self) -> u64 {
        match self.torn {
            Some(n) => n,
            None => 0,
        }
    }

    /// What keeps it from being read.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Lines that are worth a look, as far as the file was read.
    #[must_use]
    pub fn problems(&self) -> &[u64] {
        &self.problems
    }

    /// Percent of the file that was indexed, or that the filter has seen; `None` when nothing is left.
    #[must_use]
    pub fn percent(&self) -> Option<u64> {
        // It is not read to its end.
        let of = |done: u64| percent(done, self.bytes.1).min(99);
        match &self.passed {
            Some(p) if !p.done && self.scan.is_some() => Some(of(p.seen.1)),
            _ if self.index.is_some() && self.torn.is_none() => Some(of(self.bytes.0)),
            _ => None,
        }
    }

    /// The filter as typed.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// The filter, if there is one.
    #[must_use]
    pub fn passes(&self) -> Option<&Filter> {
        self.passed.as_ref().map(|p| &p.filter)
    }

    /// A line of the list, if it has been read.
    #[must_use]
    pub fn line(&self, at: u64) -> Option<&FileLine> {
        self.page.1.get(usize::try_from(at.checked_sub(self.page.0)?).ok()?)
    }

    /// Whether any line that was read last stores arguments.
    #[must_use]
    pub fn has_previews(&self) -> bool {
        self.page.1.iter().any(|line| line.preview.is_some())
    }

    /// The selected line.
    #[must_use]
    pub fn selected(&self) -> Option<&FileLine> {
        self.line(self.cursor.at)
    }

    /// Moves the selection.
    pub fn step(&mut self, lines: i64, height: u16) -> Vec<Effect> {
        self.anchor = None;
        self.to_end = lines == i64::MAX;
        self.cursor.step(lines, self.len(), height);
        self.need(height)
    }

    /// Goes to a line of the list.
    pub fn to(&mut self, at: u64, height: u16) -> Vec<Effect> {
        self.anchor = None;
        self.to_end = false;
        self.cursor.to(at, self.len(), height);
        self.need(height)
    }

    /// Goes to a line of the file, if it is in the list.
    pub fn go_to_number(&mut self, number: u64, height: u16) -> Option<Vec<Effect>> {
        let at = match &self.passed {
            Some(p) => p.numbers.binary_search(&u32::try_from(number).ok()?).ok()? as u64,
            None => Some(number).filter(|n| *n < self.lines)?,
        };
        Some(self.to(at, height))
    }

    /// Goes to the next problem in a direction; `None` if there is none.
    pub fn problem(&mut self, forward: bool, height: u16) -> Option<Vec<Effect>> {
        let here = self.number(self.cursor.at).unwrap_or(0);
        let from = self.problems.partition_point(|n| if forward { *n <= here } else { *n < here });
        let candidates: Vec<u64> = if forward {
            self.problems[from..].to_vec()
        } else {
            self.problems[..from].iter().rev().copied().collect()
        };
        // With a filter only what it lets through.
        candidates.into_iter().find_map(|n| self.go_to_number(n, height))
    }

    fn number(&self, at: u64) -> Option<u64> {
        match &self.passed {
            Some(p) => p.numbers.get(at as usize).map(|n| u64::from(*n)),
            None => Some(at),
        }
    }

    /// Narrows the list.
    pub fn narrow(&mut self, text: &str, filter: Filter, height: u16) -> Vec<Effect> {
        if text == self.filter {
            return Vec::new();
        }
        let anchor = self.anchor.or_else(|| self.number(self.cursor.at));
        text.clone_into(&mut self.filter);
        if let Some(old) = self.scan.take() {
            old.cancel();
        }
        self.forget();
        self.to_end = false;
        if filter.is_empty() && !self.is_partial() {
            self.passed = None;
            self.cursor.to(anchor.unwrap_or(0), self.lines, height);
            self.anchor = None;
            return self.need(height);
        }
        self.anchor = anchor;
        self.passed = Some(Passed { filter, ..Passed::default() });
        self.cursor = Cursor::default();
        self.scan()
    }

    fn forget(&mut self) {
        self.page = (0, Vec::new());
        if let Some((ticket, _)) = self.reading.take() {
            ticket.cancel();
        }
    }

    /// Asks for the lines on the screen, if they are not there.
    pub fn need(&mut self, height: u16) -> Vec<Effect> {
        let len = self.len();
        let window = self.cursor.window(len, height.max(1));
        let have = self.page.0..self.page.0 + self.page.1.len() as u64;
        if window.is_empty() || have.start <= window.start && window.end <= have.end {
            return Vec::new();
        }
        if self.reading.as_ref().is_some_and(|(_, r)| r.start <= window.start && window.end <= r.end) {
            return Vec::new();
        }
        let wanted = window.start.saturating_sub(MARGIN)..(window.end + MARGIN).min(len);
        if let Some((old, _)) = self.reading.take() {
            old.cancel();
        }
        let ticket = Ticket::new();
        self.reading = Some((ticket.clone(), wanted.clone()));
        let source = self.source.clone();
        let work: Work = if let Some(p) = &self.passed {
            let range = wanted.start as usize..wanted.end as usize;
            let numbers = p.numbers[range.clone()].iter().map(|n| u64::from(*n));
            let places: Vec<(u64, u64)> = numbers.zip(p.offsets[range].iter().copied()).collect();
            Box::new(move |teller| read::page_of(&source, wanted.start, &places, teller))
        } else {
            // A line before is read too: a link has two sides.
            let first = wanted.start.saturating_sub(1);
            let mark = self.marks.get((first / STRIDE) as usize).copied().unwrap_or(0);
            Box::new(move |teller| read::page(&source, &wanted, mark, teller))
        };
        vec![Effect::Start(Job::new(&ticket, "read evidence", work))]
    }

    /// Whether what comes takes the selection along: while the end is asked for, and later if it is where the list ends.
    fn follows(&self, free: bool) -> bool {
        let renewed = self.torn.is_some() && self.passed.as_ref().is_none_or(|p| p.done);
        if renewed { free && self.cursor.at + 1 >= self.len() } else { self.to_end }
    }

    /// Takes what a job of this book said; gives back what is another's. A selection that is not `free` stays where it is when
    /// more comes.
    pub fn told(&mut self, told: Told, height: u16, free: bool) -> Result<Vec<Effect>, Told> {
        let mut of_page = false;
        let news = hear(self.index.as_ref(), told)
            .or_else(|told| hear(self.scan.as_ref(), told))
            .or_else(|told| hear(self.reading.as_ref().map(|(t, _)| t), told).inspect(|_| of_page = true))?;
        let follows = self.follows(free);
        let mut effects = Vec::new();
        match news {
            BookUpdate::Indexed { marks, lines, bytes, problems } => {
                self.marks.extend(marks);
                self.lines = lines;
                self.bytes = bytes;
                self.problems.extend(problems);
                effects = self.scan_on();
            }
            BookUpdate::Whole { torn } => self.torn = Some(torn),
            BookUpdate::Page { from, lines } => {
                self.reading = None;
                self.page = (from, lines);
                return Ok(Vec::new());
            }
            BookUpdate::Running(running) => {
                self.running = *running;
                return Ok(Vec::new());
            }
            BookUpdate::Matches { more, seen, done } => self.passing(&more, seen, done, height),
            BookUpdate::Failed(why) if of_page => {
                self.reading = None;
                self.error = Some(why);
                return Ok(Vec::new());
            }
            BookUpdate::Failed(why) => {
                self.error = Some(why);
                self.index = None;
            }
        }
        if follows {
            self.cursor.to(u64::MAX, self.len(), height);
        }
        effects.extend(self.need(height));
        Ok(effects)
    }

    fn passing(&mut self, more: &[(u32, u64)], seen: (u64, u64), done: bool, height: u16) {
        let Some(p) = &mut self.passed else { return };
        let known = p.numbers.len();
        p.numbers.extend(more.iter().map(|m| m.0));
        p.offsets.extend(more.iter().map(|m| m.1));
        (p.seen, p.done) = (seen, p.done || done);
        let len = p.numbers.len() as u64;
        if let Some(anchor) = self.anchor {
            // The first at or after the line that was selected.
            let at = known as u64 + more.partition_point(|m| u64::from(m.0) < anchor) as u64;
            self.cursor.to(at, len, height);
            if at < len || done {
                self.anchor = None;
            }
        }
    }
}
