//! The jobs of a list of evidence: they read its file beside the screen.

use super::{
    book::{Kind, Line, News, Source},
    row::{Row, problem, read},
};
use crate::{
    filter::{Facts, Filter},
    live::{
        lines::{self, LineAt},
        state::facts,
    },
    tui::msg::{News as Message, Teller},
};
use std::{io, ops::Range};

/// Lines from one mark to the next.
pub const STRIDE: u64 = 64;
/// Bytes until the first report of a scan.
const SOON: u64 = 256 << 10;
/// Bytes between two reports of a scan.
const REPORT: u64 = 2 << 20;
/// Lines that are remembered as problems.
const MAX_PROBLEMS: usize = 100_000;

/// What is known of a file's lines.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Whole lines.
    pub lines: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes behind them.
    pub torn: u64,
    /// Number and offset of a line before the last one, or of that.
    pub mark: (u64, u64),
    /// Problems among them.
    pub problems: usize,
}

/// What a line says; `before` is the one before it, where that is known.
fn row(kind: Kind, line: &LineAt<'_>, before: Option<&[u8]>) -> Line {
    let row = match line.bytes {
        Some(bytes) => read(kind, bytes, before),
        None => Row::Bad { why: "too long to be evidence".to_owned(), head: String::new() },
    };
    Line { number: line.number, offset: line.offset, bytes: line.len, row }
}

fn tell(teller: &Teller, news: News) {
    teller.tell(Message::Pack(super::News::Lines(news)));
}

fn failed(teller: &Teller, source: &Source, e: &io::Error) {
    tell(teller, News::Failed(format!("{}: {e}", source.name)));
}

/// Reads what a file holds and is not known yet. Nothing is said of one that is as it was.
pub fn index(source: &Source, known: Option<Known>, teller: &Teller) {
    let (file, total) = match source.open() {
        Ok(opened) => opened,
        Err(why) => return tell(teller, News::Failed(why)),
    };
    let from = known.unwrap_or_default();
    if known.is_some() {
        if total == from.bytes + from.torn {
            return;
        }
        if total < from.bytes {
            return tell(teller, News::Failed(format!("shorter than it was, v reads it again: {}", source.name)));
        }
    }
    let (mut marks, mut problems, mut seen) = (Vec::new(), Vec::new(), from.bytes);
    let mut next = if known.is_some() { seen + REPORT } else { 0 };
    let mut count = from.problems;
    let mut before = None;
    let mut last = (from.lines, from.bytes);
    let done = lines::read(&file, from.mark.0, from.mark.1, &mut |line| {
        let number = line.number;
        let bad = line.bytes.is_none_or(|bytes| problem(source.kind, number, bytes, &mut before));
        if number < from.lines {
            // Only what the next one hangs on.
            return !teller.cancelled();
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
            tell(teller, News::Indexed { marks, lines: number + 1, bytes: (seen, total.max(seen)), problems });
        }
        !teller.cancelled()
    });
    let bytes = (last.1, total.max(last.1));
    tell(teller, News::Indexed { marks, lines: last.0, bytes, problems });
    match done {
        Ok(Some(torn)) => tell(teller, News::Whole { torn }),
        Ok(None) => {}
        Err(e) => failed(teller, source, &e),
    }
}

/// Looks for lines that pass, from the one with this number and offset on.
pub fn scan(source: &Source, filter: &Filter, from: (u64, u64), teller: &Teller) {
    let file = match source.open() {
        Ok((file, _)) => file,
        Err(why) => return tell(teller, News::Failed(why)),
    };
    let (mut more, mut seen, mut next) = (Vec::new(), from, from.1 + SOON);
    let done = lines::read(&file, from.0, from.1, &mut |line| {
        if passes(filter, &row(source.kind, &line, None).row)
            && let Ok(number) = u32::try_from(line.number)
        {
            more.push((number, line.offset));
        }
        seen = (line.number + 1, line.offset + line.len + 1);
        if seen.1 >= next {
            next = seen.1 + REPORT;
            tell(teller, News::Matches { more: std::mem::take(&mut more), seen, done: false });
        }
        !teller.cancelled()
    });
    tell(teller, News::Matches { more, seen, done: true });
    if let Err(e) = done {
        failed(teller, source, &e);
    }
}

fn passes(filter: &Filter, row: &Row) -> bool {
    match row {
        Row::Call(call) => filter.passes(&facts(call)),
        Row::Event(e) => filter.passes(&Facts { tool: e.tool.as_deref().unwrap_or_default(), ..Facts::default() }),
        _ => false,
    }
}

/// Reads lines of the file; a mark is where one shortly before them begins.
pub fn page(source: &Source, wanted: &Range<u64>, mark: u64, teller: &Teller) {
    let file = match source.open() {
        Ok((file, _)) => file,
        Err(why) => return tell(teller, News::Failed(why)),
    };
    let first = wanted.start.saturating_sub(1) / STRIDE * STRIDE;
    let mut out = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    let done = lines::read(&file, first, mark, &mut |line| {
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
        Ok(_) => tell(teller, News::Page { from: wanted.start, lines: out }),
    }
}

/// Reads the lines of a narrowed list, by number and offset.
pub fn page_of(source: &Source, from: u64, places: &[(u64, u64)], teller: &Teller) {
    let file = match source.open() {
        Ok((file, _)) => file,
        Err(why) => return tell(teller, News::Failed(why)),
    };
    let mut out = Vec::new();
    for (number, offset) in places {
        if teller.cancelled() {
            return;
        }
        let done = lines::read(&file, *number, *offset, &mut |line| {
            out.push(row(source.kind, &line, None));
            false
        });
        if let Err(e) = done {
            return failed(teller, source, &e);
        }
    }
    tell(teller, News::Page { from, lines: out });
}
