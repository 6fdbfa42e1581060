//! The jobs of a list of evidence: they read its file beside the screen.

use super::{
    book::{Kind, Line, News, Source},
    row::{Row, problem, read},
};
use crate::{
    filter::{Facts, Filter},
    live::state::facts,
    tui::msg::{News as Message, Teller},
};
use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _};

/// Lines from one mark to the next.
pub const STRIDE: u64 = 64;
/// Bytes read at once.
const CHUNK: usize = 256 << 10;
/// The longest line that is looked at (as in the verifier).
const MAX_LINE: usize = 64 << 20;
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

/// Reads whole lines from `offset` on: number from `first`, offset, bytes. Gives the bytes behind the last whole line.
fn lines(
    file: &File,
    first: u64,
    offset: u64,
    each: &mut dyn FnMut(u64, u64, &[u8]) -> bool,
) -> io::Result<Option<u64>> {
    let (mut number, mut start) = (first, offset);
    let mut buffer = vec![0; CHUNK];
    let mut have = 0;
    loop {
        let n = match file.read_at(&mut buffer[have..], start + have as u64) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if n == 0 {
            return Ok(Some(have as u64));
        }
        let mut from = 0;
        for at in memchr::memchr_iter(b'\n', &buffer[have..have + n]) {
            let end = have + at;
            if !each(number, start + from as u64, &buffer[from..end]) {
                return Ok(None);
            }
            number += 1;
            from = end + 1;
        }
        have += n;
        buffer.copy_within(from..have, 0);
        have -= from;
        start += from as u64;
        if have == buffer.len() {
            if have > MAX_LINE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long to be evidence"));
            }
            buffer.resize(have * 2, 0);
        } else if buffer.len() > 4 * CHUNK && have < CHUNK {
            buffer.truncate(CHUNK);
            buffer.shrink_to_fit();
        }
    }
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
    let done = lines(&file, from.mark.0, from.mark.1, &mut |number, offset, line| {
        let bad = problem(source.kind, number, line, &mut before);
        if number < from.lines {
            // Only what the next one hangs on.
            return !teller.cancelled();
        }
        if number.is_multiple_of(STRIDE) {
            marks.push(offset);
        }
        if bad && count < MAX_PROBLEMS {
            count += 1;
            problems.push(number);
        }
        seen = offset + line.len() as u64 + 1;
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
    let (mut more, mut seen, mut next) = (Vec::new(), from, from.1 + CHUNK as u64);
    let done = lines(&file, from.0, from.1, &mut |number, offset, line| {
        if passes(filter, &read(source.kind, line, None))
            && let Ok(number) = u32::try_from(number)
        {
            more.push((number, offset));
        }
        seen = (number + 1, offset + line.len() as u64 + 1);
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
    let done = lines(&file, first, mark, &mut |number, offset, line| {
        if number >= wanted.start {
            let row = read(source.kind, line, before.as_deref());
            out.push(Line { number, offset, bytes: line.len() as u64, row });
        }
        if source.kind == Kind::Events && number + 1 >= wanted.start {
            before = Some(line.to_vec());
        }
        number + 1 < wanted.end && !teller.cancelled()
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
        let done = lines(&file, *number, *offset, &mut |number, offset, line| {
            out.push(Line { number, offset, bytes: line.len() as u64, row: read(source.kind, line, None) });
            false
        });
        if let Err(e) = done {
            return failed(teller, source, &e);
        }
    }
    tell(teller, News::Page { from, lines: out });
}
