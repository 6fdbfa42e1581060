//! The jobs of a list of evidence: they read its file beside the screen.

use super::row::{EvidenceRow, Kind, message, problem, read};
use crate::{
    filter::{Facts, Filter},
    lines::{LineAt, Lines},
    live::{evidence::arguments_in, fold::Fold, row::CallRow, state::facts},
    model::{
        AuditEvent,
        reading::{self, Reading},
    },
    pack::{
        calls::Seen,
        timeline::Timeline,
        verify::source::{OpenProblem, PackDir},
    },
    paths,
    tui::msg::Teller,
};
use std::{
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Lines from one mark to the next.
pub const STRIDE: u64 = 64;
/// Bytes until the first report of a scan.
const SOON: u64 = 256 << 10;
/// Bytes between two reports of a scan.
const REPORT: u64 = 2 << 20;
/// Lines that are remembered as problems.
const MAX_PROBLEMS: usize = 100_000;
/// Calls that run of which more than their number is known.
const MAX_RUNNING: usize = 1000;

/// Where a file of lines is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Directory of the file.
    pub dir: PathBuf,
    /// Name of the file.
    pub name: String,
    /// What kind of lines the file holds.
    pub kind: Kind,
}

impl Source {
    /// Opens it, if it is an ordinary file; never through a link, never waiting.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn open(&self) -> Result<(File, u64), String> {
        let dir = PackDir::open(&self.dir).map_err(|e| e.to_string())?;
        let opened = match dir.open_file(&self.name) {
            // A journal goes when its session is sealed; its lines are in the pack.
            Err(OpenProblem::Missing) => match paths::in_pack(&self.path()) {
                Some(sealed) => Self::beside(&sealed).unwrap_or(Err(OpenProblem::Missing)),
                None => Err(OpenProblem::Missing),
            },
            opened => opened,
        };
        opened.map_err(|e| match e {
            OpenProblem::Missing => format!("{} is missing", self.name),
            OpenProblem::Special(what) => format!("{} is {what}, not a plain file", self.name),
            OpenProblem::Io(e) => format!("{}: {e}", self.name),
        })
    }

    fn beside(path: &Path) -> Option<Result<(File, u64), OpenProblem>> {
        Some(PackDir::open(path.parent()?).ok()?.open_file(path.file_name()?.to_str()?))
    }

    /// The whole path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }
}

/// One line of the file.
#[derive(Debug, Clone)]
pub struct FileLine {
    /// Its number, from 0.
    pub number: u64,
    /// Byte offset at which the line begins.
    pub offset: u64,
    /// Its length without the newline.
    pub bytes: u64,
    /// What it says.
    pub row: EvidenceRow,
    /// The arguments that it stores, in one line.
    pub preview: Option<String>,
}

/// What the jobs of a book say.
#[derive(Debug)]
pub enum BookUpdate {
    /// The index grows.
    Indexed {
        /// Offsets of the lines `STRIDE · n`.
        marks: Vec<u64>,
        /// Lines indexed so far.
        lines: u64,
        /// Bytes so far, and of the file.
        bytes: (u64, u64),
        /// Lines that a person should look at.
        problems: Vec<u64>,
    },
    /// The index is complete; number of bytes after the last whole line.
    Whole {
        /// Bytes after the last whole line.
        torn: u64,
    },
    /// Lines of the list.
    Page {
        /// Place of the first in the list.
        from: u64,
        /// The lines that were read.
        lines: Vec<FileLine>,
    },
    /// Lines that pass the filter: number and offset.
    Matches {
        /// Places of further matching lines: number of the line, offset in bytes.
        more: Vec<(u32, u64)>,
        /// Lines and bytes so far.
        seen: (u64, u64),
        /// Whether this is the last message.
        done: bool,
    },
    /// The calls that run, by the chain as far as it was read; only when they are others than before.
    Running(Box<Running>),
    /// It cannot be read, or not further.
    Failed(String),
}

/// Calls that have begun and not ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    /// The oldest of them, oldest first.
    pub calls: Vec<CallRow>,
    /// How many there are.
    pub all: usize,
}

/// A chain as the reducer knows it, from one look at its file to the next.
#[derive(Debug, Default)]
pub struct Folded {
    fold: Fold,
    told: Running,
}

impl Folded {
    /// Takes the next event. One that does not parse adds nothing about calls; the list of the chain shows it.
    fn take(&mut self, line: &[u8]) {
        if let Reading::Readable(event) = reading::read::<AuditEvent>(line) {
            self.fold.event(&event);
        }
    }

    /// The calls that run, if they are others than when this was asked last.
    fn news(&mut self) -> Option<Running> {
        let mut calls: Vec<&CallRow> = self.fold.running().collect();
        let all = calls.len();
        calls.sort_by_key(|call| call.place());
        let now = Running { calls: calls.into_iter().take(MAX_RUNNING).cloned().collect(), all };
        if now == self.told {
            return None;
        }
        self.told.clone_from(&now);
        Some(now)
    }
}

/// What is known of a file's lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Number of whole lines.
    pub lines: u64,
    /// Length of the whole lines in bytes.
    pub bytes: u64,
    /// Bytes after the last whole line.
    pub torn: u64,
    /// Number and offset of a line before the last one, or of that.
    pub mark: (u64, u64),
    /// Number of lines with a problem.
    pub problems: usize,
}

/// What a line says; `before` is the one before it, where that is known.
fn row(kind: Kind, line: &LineAt<'_>, before: Option<&[u8]>) -> FileLine {
    let row = match line.bytes {
        Some(bytes) => read(kind, bytes, before),
        None => EvidenceRow::Bad { why: "too long to be evidence".to_owned(), head: String::new() },
    };
    let preview = line.bytes.filter(|_| kind == Kind::Receipts).and_then(arguments_in);
    FileLine { number: line.number, offset: line.offset, bytes: line.len, row, preview }
}

fn failed(teller: &Teller<BookUpdate>, source: &Source, e: &io::Error) {
    teller.tell(BookUpdate::Failed(format!("{}: {e}", source.name)));
}

/// Reads what a file holds and is not known yet. Nothing is said of one that is as it was.
/// `chain` is what the events of a session without a pack say of its calls: it may still run.
pub fn index(source: &Source, known: Option<Known>, chain: Option<&Mutex<Folded>>, teller: &Teller<BookUpdate>) {
    let (file, total) = match source.open() {
        Ok(opened) => opened,
        Err(why) => return teller.tell(BookUpdate::Failed(why)),
    };
    let from = known.unwrap_or_default();
    if known.is_some() {
        if total == from.bytes + from.torn {
            return;
        }
        if total < from.bytes {
            return teller.tell(BookUpdate::Failed(format!("shorter than before; v reads it again: {}", source.name)));
        }
    }
    let (mut marks, mut problems, mut seen) = (Vec::new(), Vec::new(), from.bytes);
    let mut next = if known.is_some() { seen + REPORT } else { 0 };
    let mut count = from.problems;
    let mut before = None;
    let mut last = (from.lines, from.bytes);
    let mut chain = chain.map(|folded| folded.lock().unwrap_or_else(PoisonError::into_inner));
    let mut all = Lines::of(file);
    all.go(from.mark.1, from.mark.0);
    let done = all.each(&mut |line| {
        let number = line.number;
        let bad = line.bytes.is_none_or(|bytes| problem(source.kind, number, bytes, &mut before));
        if number < from.lines {
            // Only what the next one hangs on.
            return !teller.cancelled();
        }
        if let (Some(folded), Some(bytes)) = (&mut chain, line.bytes) {
            folded.take(bytes);
        }
        if number.is_multiple_of(STRIDE) {
            marks.push(line.offset);
        }
        if bad && count < MAX_PROBLEMS {
            count += 1;
            problems.push(number);
        }
        seen = line.offset + line.len + 1;
        last = (number + 1, seen);
        // The first screen comes at once.
        if seen >= next || number == 2 * STRIDE {
            next = seen + REPORT;
            let (marks, problems) = (std::mem::take(&mut marks), std::mem::take(&mut problems));
            teller.tell(BookUpdate::Indexed { marks, lines: number + 1, bytes: (seen, total.max(seen)), problems });
        }
        !teller.cancelled()
    });
    let bytes = (last.1, total.max(last.1));
    teller.tell(BookUpdate::Indexed { marks, lines: last.0, bytes, problems });
    if let Some(running) = chain.as_mut().and_then(|folded| folded.news()) {
        teller.tell(BookUpdate::Running(Box::new(running)));
    }
    match done {
        Ok(Some(torn)) => teller.tell(BookUpdate::Whole { torn }),
        Ok(None) => {}
        Err(e) => failed(teller, source, &e),
    }
}

/// Looks for lines that pass, from the one with this number and offset on.
pub fn scan(source: &Source, filter: &Filter, from: (u64, u64), teller: &Teller<BookUpdate>) {
    let file = match source.open() {
        Ok((file, _)) => file,
        Err(why) => return teller.tell(BookUpdate::Failed(why)),
    };
    let (mut more, mut seen, mut next) = (Vec::new(), from, from.1 + SOON);
    let mut all = Lines::of(file);
    all.go(from.1, from.0);
    let done = all.each(&mut |line| {
        let is_listed = source.kind != Kind::Messages || line.bytes.is_some_and(|bytes| message(bytes).is_some());
        if is_listed
            && (filter.is_empty() || passes(filter, &row(source.kind, &line, None).row))
            && let Ok(number) = u32::try_from(line.number)
        {
            more.push((number, line.offset));
        }
        seen = (line.number + 1, line.offset + line.len + 1);
        if seen.1 >= next {
            next = seen.1 + REPORT;
            teller.tell(BookUpdate::Matches { more: std::mem::take(&mut more), seen, done: false });
        }
        !teller.cancelled()
    });
    teller.tell(BookUpdate::Matches { more, seen, done: true });
    if let Err(e) = done {
        failed(teller, source, &e);
    }
}

/// The calls of receipts as a picture of time, as far as they read; `None` if nobody waits for it any more.
pub fn timeline(source: &Source, stop: &AtomicBool) -> Option<Timeline> {
    let mut out = Timeline::default();
    let Ok((file, _)) = source.open() else { return Some(out) };
    let read = Lines::of(file).each(&mut |line| {
        if let Some(seen) = line.bytes.and_then(Seen::read) {
            out.receipt(&seen);
        }
        !stop.load(Ordering::Relaxed)
    });
    (read.is_err() || !stop.load(Ordering::Relaxed)).then_some(out)
}

fn passes(filter: &Filter, row: &EvidenceRow) -> bool {
    match row {
        EvidenceRow::Call(call) => filter.passes(&facts(call)),
        EvidenceRow::Event(e) => {
            let method = e.method.as_deref().unwrap_or_default();
            let ids = [e.rpc_id.clone(), e.invocation.clone(), e.method.clone()].into_iter().flatten();
            let ids = ids.chain(e.what.map(|what| what.word().to_owned())).collect();
            filter.passes(&Facts { tool: e.tool.as_deref().unwrap_or(method), ids, ..Facts::default() })
        }
        _ => false,
    }
}

/// Reads lines of the file; a mark is where one shortly before them begins.
pub fn page(source: &Source, wanted: &Range<u64>, mark: u64, teller: &Teller<BookUpdate>) {
    let file = match source.open() {
        Ok((file, _)) => file,
        Err(why) => return teller.tell(BookUpdate::Failed(why)),
    };
    let first = wanted.start.saturating_sub(1) / STRIDE * STRIDE;
    let mut out = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    let mut all = Lines::of(file);
    all.go(mark, first);
    let done = all.each(&mut |line| {
        if line.number >= wanted.start {
            out.push(row(source.kind, &line, before.as_deref()));
        }
        if source.kind == Kind::Events && line.number + 1 >= wanted.start {
            before = line.bytes.map(<[u8]>::to_vec);
        }
        line.number + 1 < wanted.end && !teller.cancelled()
    });
    match done {
        Err(e) => failed(teller, source, &e),
        Ok(_) => teller.tell(BookUpdate::Page { from: wanted.start, lines: out }),
    }
}

/// Reads the lines of a narrowed list, by number and offset.
pub fn page_of(source: &Source, from: u64, places: &[(u64, u64)], teller: &Teller<BookUpdate>) {
    let file = match source.open() {
        Ok((file, _)) => file,
        Err(why) => return teller.tell(BookUpdate::Failed(why)),
    };
    let (mut all, mut out) = (Lines::of(file), Vec::new());
    for (number, offset) in places {
        if teller.cancelled() {
            return;
        }
        all.go(*offset, *number);
        let done = all.each(&mut |line| {
            out.push(row(source.kind, &line, None));
            false
        });
        if let Err(e) = done {
            return failed(teller, source, &e);
        }
    }
    teller.tell(BookUpdate::Page { from, lines: out });
}
