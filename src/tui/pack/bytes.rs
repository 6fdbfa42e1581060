//! A file around one byte: what was expected, what is there, the line as text and the bytes as hex.

use super::{read::Source, row::Kind, rows::wrapped};
use crate::{
    lines,
    model::{event::EventMembers, line::text, pack::MANIFEST},
    pack::verify::Finding,
    tui::{
        msg::{Effect, Job, Ticket, Told},
        paint::Pen,
        screen::At,
        theme::Role,
    },
};
use std::{
    borrow::Cow,
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Bytes that are kept around the caret.
const CHUNK: u64 = 32 << 10;
/// Bytes of a line in which a value is looked for.
const SEARCH: usize = 4 << 20;

/// What is to be shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Name of the file, or of a field of the manifest.
    pub file: String,
    /// Line, from 1.
    pub line: Option<u64>,
    /// Where that line begins, or the byte itself.
    pub offset: Option<u64>,
    /// Code of the finding.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What should be there.
    pub expected: Option<String>,
    /// What is there.
    pub found: Option<String>,
}

impl From<&Finding> for Place {
    fn from(f: &Finding) -> Self {
        Self {
            file: f.file.clone().unwrap_or_else(|| MANIFEST.to_owned()),
            line: f.line,
            offset: f.offset,
            code: f.code.to_owned(),
            message: f.message.clone(),
            expected: f.expected.clone(),
            found: f.found.clone(),
        }
    }
}

/// Both sides of a link of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Lines of both, from 1.
    pub lines: (u64, u64),
    /// `hash` of the event before.
    pub hash: String,
    /// `prev_hash` of this one.
    pub prev_hash: String,
}

/// What was read.
#[derive(Debug, Clone, Default)]
pub struct Opened {
    /// The file, which may be another than the field that was named.
    pub file: String,
    /// Length in bytes.
    pub len: u64,
    /// Offset of the byte to look at, in the file.
    pub caret: u64,
    /// Its line, from 1, where that is known.
    pub line: Option<u64>,
    /// The first byte in `bytes`.
    pub from: u64,
    /// Bytes around the caret.
    pub bytes: Vec<u8>,
    /// Both sides, for an event.
    pub link: Option<Link>,
    /// The byte that is wrong is not known: the file as a whole is.
    pub whole: bool,
}

/// The bytes around a finding.
#[derive(Debug)]
pub struct Bytes {
    dir: PathBuf,
    /// What it is about.
    pub place: Place,
    /// What was read; `Err` says why nothing was.
    pub opened: Option<Result<Box<Opened>, String>>,
    /// The byte that is selected.
    pub caret: u64,
    ticket: Ticket<Result<Box<Opened>, String>>,
}

impl Bytes {
    /// A view, and the job that reads it.
    #[must_use]
    pub fn new(dir: PathBuf, place: Place) -> (Self, Vec<Effect>) {
        let ticket = Ticket::new();
        let (d, p) = (dir.clone(), place.clone());
        let job = Job::new(&ticket, "read bytes", move |teller| teller.tell(open(&d, &p).map(Box::new)));
        (Self { dir, place, opened: None, caret: 0, ticket }, vec![Effect::Start(job)])
    }

    /// Takes what its job said.
    pub fn told(&mut self, told: Told) -> Result<(), Told> {
        let opened = self.ticket.hear(told)?;
        if let (None, Ok(o)) = (&self.opened, &opened) {
            self.caret = o.caret;
        }
        // Only the bytes are new after the first time.
        self.opened = Some(match (self.opened.take(), opened) {
            (Some(Ok(old)), Ok(new)) => Ok(Box::new(Opened { from: new.from, bytes: new.bytes, len: new.len, ..*old })),
            (Some(Ok(old)), Err(_)) => Ok(old),
            (_, new) => new,
        });
        Ok(())
    }

    /// Moves the caret.
    pub fn step(&mut self, by: i64) -> Vec<Effect> {
        let Some(Ok(o)) = &self.opened else { return Vec::new() };
        self.caret = self.caret.saturating_add_signed(by).min(o.len.saturating_sub(1));
        let have = o.from..o.from + o.bytes.len() as u64;
        let near = self.caret.saturating_sub(512)..(self.caret + 512).min(o.len);
        if have.start <= near.start && near.end <= have.end {
            return Vec::new();
        }
        self.ticket.cancel();
        self.ticket = Ticket::new();
        let (dir, file, caret) = (self.dir.clone(), o.file.clone(), self.caret);
        vec![Effect::Start(Job::new(&self.ticket, "read bytes", move |teller| {
            let read = || -> Result<Opened, String> {
                let (file, len) = source(&dir, &file).open()?;
                around(&file, len, caret).map_err(|e| e.to_string())
            };
            teller.tell(read().map(Box::new));
        }))]
    }

    /// Back to where it began.
    pub fn home(&mut self) -> Vec<Effect> {
        let caret = match &self.opened {
            Some(Ok(o)) => o.caret,
            _ => return Vec::new(),
        };
        let by = caret as i64 - self.caret as i64;
        self.step(by)
    }

    /// `file:line, byte n`.
    #[must_use]
    pub fn where_it_is(&self) -> String {
        let (file, line) = match &self.opened {
            Some(Ok(o)) => (o.file.as_str(), o.line),
            _ => (self.place.file.as_str(), self.place.line),
        };
        match line {
            Some(line) => format!("{file}:{line}:{}", self.caret),
            None => format!("{file}:{}", self.caret),
        }
    }

    /// The byte as text for the clipboard.
    #[must_use]
    pub fn value(&self) -> String {
        self.place.found.clone().unwrap_or_else(|| self.place.message.clone())
    }
}

fn source(dir: &Path, name: &str) -> Source {
    Source { dir: dir.to_owned(), name: name.to_owned(), kind: Kind::Receipts }
}

/// Opens the file and finds the byte.
fn open(dir: &Path, place: &Place) -> Result<Opened, String> {
    let io = |e: io::Error| e.to_string();
    let (name, field) = match source(dir, &place.file).open() {
        Ok(_) => (place.file.as_str(), None),
        // A field of the manifest has no dot in its name; a file that is missing has.
        Err(why) if place.file.contains(['.', '/']) => return Err(why),
        Err(_) => (MANIFEST, Some(place.file.as_str())),
    };
    let (file, len) = source(dir, name).open()?;
    let (caret, line, whole) = match (place.line, place.offset, field) {
        (Some(line), Some(start), _) => {
            let found = in_line(&file, start, place).map_err(io)?;
            let hashes = [&place.expected, &place.found].map(|s| s.as_ref().is_some_and(|s| is_hash(s)));
            (start + found.unwrap_or(0), Some(line), found.is_none() && hashes == [true, true])
        }
        (_, Some(offset), _) => (offset, line_of(&file, offset).map_err(io)?, false),
        (_, None, Some(field)) => {
            let mut text = vec![0; usize::try_from(len).map_or(SEARCH, |len| len.min(SEARCH))];
            let n = lines::read_at(&file, &mut text, 0).map_err(io)?;
            let quoted = format!("\"{field}\": ");
            let at = memchr::memmem::find(&text[..n], quoted.as_bytes());
            let caret = at.map_or(0, |at| at + quoted.len()) as u64;
            (caret, line_of(&file, caret).map_err(io)?, at.is_none())
        }
        _ => (0, Some(1), true),
    };
    let caret = caret.min(len.saturating_sub(1));
    let link = match (place.line, place.offset) {
        (Some(line), Some(start)) if line > 1 && name.contains("audit_log") | name.contains("segment_") => {
            link(&file, line, start).map_err(io)?
        }
        _ => None,
    };
    let opened = around(&file, len, caret).map_err(io)?;
    Ok(Opened { file: name.to_owned(), caret, line, link, whole, ..opened })
}

fn around(file: &File, len: u64, caret: u64) -> io::Result<Opened> {
    let from = caret.saturating_sub(CHUNK / 2) / 16 * 16;
    let mut bytes = vec![0; CHUNK.min(len.saturating_sub(from)) as usize];
    let n = lines::read_at(file, &mut bytes, from)?;
    bytes.truncate(n);
    Ok(Opened { len, caret, from, bytes, ..Opened::default() })
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The byte of a line that a finding is about: where the found value is, else the member that the finding names.
fn in_line(file: &File, start: u64, place: &Place) -> io::Result<Option<u64>> {
    let (line, _) = lines::at(file, start, SEARCH)?;
    let find = |what: &str| (what.len() > 1).then(|| memchr::memmem::find(&line, what.as_bytes())).flatten();
    let at_byte = place.message.rsplit_once(" at byte ").and_then(|(_, n)| {
        n.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok().filter(|n| *n <= line.len())
    });
    let first = place.message.split([' ', ':']).next().unwrap_or_default();
    let member = || memchr::memmem::find(&line, format!("\"{first}\":").as_bytes()).map(|at| at + first.len() + 3);
    let sides = [place.found.as_deref(), place.expected.as_deref()];
    // A short value may be anywhere: then the named member is the safer choice.
    let long = |s: &&str| s.len() >= 16;
    let at = at_byte
        .or_else(|| sides.into_iter().flatten().filter(long).find_map(find))
        .or_else(member)
        .or_else(|| sides.into_iter().flatten().find_map(find));
    Ok(at.map(|at| at as u64))
}

/// The line, from 1, that holds a byte; `None` far from the beginning of the file.
fn line_of(file: &File, offset: u64) -> io::Result<Option<u64>> {
    if offset > SEARCH as u64 {
        return Ok(None);
    }
    let mut text = vec![0; offset as usize];
    let n = lines::read_at(file, &mut text, 0)?;
    Ok(Some(memchr::memchr_iter(b'\n', &text[..n]).count() as u64 + 1))
}

/// The event before and this one.
fn link(file: &File, line: u64, start: u64) -> io::Result<Option<Link>> {
    let before = lines::before(file, start, SEARCH)?;
    let (here, _) = lines::at(file, start, SEARCH)?;
    let [before, here] = [&before, &here].map(|line| EventMembers::of_line(line).unwrap_or_default());
    let member = |raw| text(raw).map(Cow::into_owned);
    Ok(member(before.hash).zip(member(here.prev_hash)).map(|(hash, prev_hash)| Link {
        lines: (line - 1, line),
        hash,
        prev_hash,
    }))
}

/// Bytes in a row of the dump.
pub(super) const fn per_row(width: u16) -> u64 {
    match width {
        0..44 => 4,
        44..78 => 8,
        _ => 16,
    }
}

pub(super) fn draw(b: &Bytes, pen: &mut Pen<'_>, at: At) {
    let area = at.area;
    if area.width == 0 || area.height == 0 {
        return;
    }
    let mut y = area.y;
    let mut put = |pen: &mut Pen<'_>, text: &str, role: Role| {
        if y < area.bottom() {
            pen.outside(area.x, y, area.width, text, role);
            y += 1;
        }
    };
    let o = match &b.opened {
        None => return put(pen, "reading…", Role::Dim),
        Some(Err(why)) => {
            put(pen, &b.place.message, Role::Bad);
            return put(pen, &format!("! {why}"), Role::Warn);
        }
        Some(Ok(o)) => o,
    };
    let line = o.line.map_or_else(String::new, |n| format!(" line {n},"));
    put(pen, &format!("{}{line} byte {} of {}", o.file, b.caret, o.len), Role::Strong);
    if !b.place.message.is_empty() {
        let named = !at.is_tiny() && !b.place.code.is_empty();
        let said = if named { format!("{}  {}", b.place.code, b.place.message) } else { b.place.message.clone() };
        let most = if at.is_tiny() { 1 } else { 3 };
        for line in wrapped(&said, "", area.width, Role::Bad).iter().take(most).flat_map(|l| &l.pieces) {
            put(pen, &line.0, Role::Bad);
        }
    }
    if !at.is_tiny() {
        if o.whole {
            let what = b.place.line.map_or("the file", |_| "the line");
            put(pen, &format!("{what} as a whole has changed; a hash cannot say which byte"), Role::Dim);
        }
        for (side, text, role) in [("expected", &b.place.expected, Role::Good), ("found", &b.place.found, Role::Bad)] {
            if let Some(text) = text {
                put(pen, &format!("  {side:<9}{text}"), role);
            }
        }
        if let Some(link) = &o.link {
            let broken = link.hash != link.prev_hash;
            let (mark, role) = if broken { ("✗ broken link", Role::Bad) } else { ("✓ link", Role::Good) };
            let mark = if pen.theme.ascii { mark.replace('✗', "x").replace('✓', "+") } else { mark.to_owned() };
            put(pen, &format!("{mark} between lines {} and {}", link.lines.0, link.lines.1), role);
            let number = link.lines.1.to_string().len();
            put(pen, &format!("  {:>number$} hash      {}", link.lines.0, link.hash), Role::Text);
            put(pen, &format!("  {:>number$} prev_hash {}", link.lines.1, link.prev_hash), Role::Text);
            if broken {
                let same = link.hash.bytes().zip(link.prev_hash.bytes()).take_while(|(a, b)| a == b).count();
                put(pen, &format!("{}^ differs from here", " ".repeat(13 + number + same)), Role::Bad);
            }
        }
    }
    let rest = area.bottom().saturating_sub(y);
    let area = ratatui::layout::Rect { y, height: rest, ..area };
    if rest > 8 {
        let used = text_of(b, o, pen, area);
        dump(b, o, pen, ratatui::layout::Rect { y: y + used, height: rest - used, ..area });
    } else {
        dump(b, o, pen, area);
    }
}

/// The line around the caret as text, with the caret below; four lines. Gives how many.
fn text_of(b: &Bytes, o: &Opened, pen: &mut Pen<'_>, area: ratatui::layout::Rect) -> u16 {
    use crate::text::{visible_bytes, width};
    let inner = pen.headed(area, "text", false);
    let Some(at) = b.caret.checked_sub(o.from).map(|n| n as usize).filter(|n| *n < o.bytes.len()) else { return 1 };
    let start = memchr::memrchr(b'\n', &o.bytes[..at]).map_or(0, |n| n + 1);
    let end = memchr::memchr(b'\n', &o.bytes[at..]).map_or(o.bytes.len(), |n| at + n);
    let room = usize::from(inner.width);
    // As much before the caret as leaves it in the first two thirds.
    let mut first = at.saturating_sub(room * 2 / 3).max(start);
    while first < at && o.bytes[first] & 0xc0 == 0x80 {
        first += 1;
    }
    while first < at && width(&visible_bytes(&o.bytes[first..at])) > room * 2 / 3 {
        first += 1;
        while first < at && o.bytes[first] & 0xc0 == 0x80 {
            first += 1;
        }
    }
    let column = width(&visible_bytes(&o.bytes[first..at])) as u16;
    let shown = visible_bytes(&o.bytes[first..end.min(at + 4 * room)]);
    pen.outside(inner.x, inner.y, inner.width, &shown, Role::Text);
    if inner.height > 1 && column < inner.width {
        pen.put(inner.x + column, inner.y + 1, 1, "^", Role::Bad);
    }
    3
}

fn dump(b: &Bytes, o: &Opened, pen: &mut Pen<'_>, area: ratatui::layout::Rect) {
    let inner = if area.height > 3 { pen.headed(area, "bytes", true) } else { area };
    let per = per_row(inner.width);
    let here = b.caret / per;
    let half = u64::from(inner.height) / 2;
    let last = o.len.saturating_sub(1) / per;
    let top = here.saturating_sub(half).min((last + 1).saturating_sub(u64::from(inner.height)));
    for (row, y) in (top..).zip(inner.y..inner.bottom()) {
        if row > last {
            return;
        }
        let mut x = inner.x;
        x += pen.put(x, y, inner.width, &format!("{:08x} ", row * per), Role::Dim);
        let text_at = x + per as u16 * 3 + 1;
        for n in 0..per {
            let byte = row * per + n;
            let Some(value) = byte.checked_sub(o.from).and_then(|i| o.bytes.get(i as usize)) else { continue };
            let role = if byte == b.caret { Role::Bad } else { Role::Text };
            let (cx, tx) = (x + n as u16 * 3, text_at + n as u16);
            let room = inner.right().saturating_sub(cx);
            pen.put(cx, y, room.min(2), &format!("{value:02x}"), role);
            let ch = if (0x20..0x7f).contains(value) { char::from(*value) } else { '.' };
            let room = inner.right().saturating_sub(tx);
            pen.put(tx, y, room.min(1), ch.encode_utf8(&mut [0; 4]), role);
            if byte == b.caret && cx < inner.right() {
                let cell = ratatui::layout::Rect { x: cx, y, width: 2.min(inner.right() - cx), height: 1 };
                pen.select(cell, true);
                if tx < inner.right() {
                    let style = pen.theme.selected(true);
                    pen.over(ratatui::layout::Rect { x: tx, y, width: 1, height: 1 }, style);
                }
            }
        }
    }
}
