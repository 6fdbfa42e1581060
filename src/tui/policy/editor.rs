//! The text of a policy while it is edited: what is typed, where the cursor is, and the error under its place.

use crate::{
    policy::PolicyError,
    text::width,
    tui::{
        cursor::Cursor,
        paint::{Pen, clean, wrapped},
        theme::Role,
    },
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Position, Rect};
use tui_textarea::{CursorMove, TextArea};
use unicode_segmentation::UnicodeSegmentation as _;

/// Columns of one level of nesting.
const INDENT: usize = 2;
/// Changes that can be taken back.
const UNDO: usize = 2000;
/// From this number of columns, lines have numbers.
const NUMBERED: u16 = 40;
/// Columns that the text moves aside at once when a line is longer than the pane.
const SHIFT: usize = 8;

/// Text with a cursor.
#[derive(Debug)]
pub(super) struct Editor {
    area: TextArea<'static>,
    /// Lines end in CR LF.
    crlf: bool,
    /// The text as it appears in the file; `None` while there is none.
    saved: Option<String>,
    modified: bool,
    /// The first row that is shown, and the row of the cursor: lines, and the error among them.
    rows: Cursor,
}

/// The rows that an error takes below its line.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// The line that it is about, from 0.
    line: usize,
    rows: Vec<(String, Role)>,
}

impl Default for Editor {
    fn default() -> Self {
        Self::new("", None)
    }
}

fn area(text: &str) -> (TextArea<'static>, bool) {
    let breaks = text.matches('\n').count();
    let crlf = breaks > 0 && text.matches("\r\n").count() == breaks;
    let lines = text.split('\n').map(|l| if crlf { l.strip_suffix('\r').unwrap_or(l) } else { l }.to_owned());
    let mut area = TextArea::new(lines.collect());
    area.set_max_histories(UNDO);
    (area, crlf)
}

impl Editor {
    /// The text, and what the file holds.
    pub fn new(text: &str, saved: Option<String>) -> Self {
        let (area, crlf) = area(text);
        let modified = saved.as_deref().is_some_and(|saved| saved != text);
        Self { area, crlf, saved, modified, rows: Cursor::default() }
    }

    /// The text, with the line ends that it came with.
    pub fn text(&self) -> String {
        self.area.lines().join(if self.crlf { "\r\n" } else { "\n" })
    }

    /// Whether something would be lost without writing.
    pub const fn is_modified(&self) -> bool {
        self.modified
    }

    /// This is in the file now.
    pub fn saved(&mut self, text: String) {
        self.modified = self.text() != text;
        self.saved = Some(text);
    }

    /// What is in the file.
    pub fn in_file(&self) -> Option<&str> {
        self.saved.as_deref()
    }

    /// The text was changed.
    fn changed(&mut self) {
        let text = self.text();
        self.modified = match &self.saved {
            Some(saved) => *saved != text,
            None => true,
        };
    }

    /// Puts another text in place of all; [`Self::undo`] takes it back.
    pub fn replace(&mut self, text: &str) {
        self.area.select_all();
        self.area.insert_str(text);
        self.area.move_cursor(CursorMove::Top);
        self.area.move_cursor(CursorMove::Head);
        self.changed();
    }

    /// Takes the last change back; `false` when there is none.
    pub fn undo(&mut self) -> bool {
        self.travel(TextArea::undo)
    }

    /// Makes it again.
    pub fn redo(&mut self) -> bool {
        self.travel(TextArea::redo)
    }

    fn travel(&mut self, step: fn(&mut TextArea<'static>) -> bool) -> bool {
        let done = step(&mut self.area);
        // A replacement is two changes, with nothing in between.
        if done && self.area.is_empty() {
            step(&mut self.area);
        }
        self.changed();
        done
    }

    fn line(&self) -> &str {
        self.area.lines().get(self.area.cursor().0).map(String::as_str).unwrap_or_default()
    }

    /// The line under the cursor.
    pub fn current(&self) -> String {
        self.line().to_owned()
    }

    /// Takes a key; whether the text changed.
    pub fn key(&mut self, event: KeyEvent) -> bool {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        if event.modifiers.contains(KeyModifiers::ALT) {
            return false;
        }
        let moved = match (event.code, ctrl) {
            (KeyCode::Left, false) => CursorMove::Back,
            (KeyCode::Right, false) => CursorMove::Forward,
            (KeyCode::Left, true) => CursorMove::WordBack,
            (KeyCode::Right, true) => CursorMove::WordForward,
            (KeyCode::Up, _) => CursorMove::Up,
            (KeyCode::Down, _) => CursorMove::Down,
            (KeyCode::Home, false) | (KeyCode::Char('a'), true) => CursorMove::Head,
            (KeyCode::End, false) | (KeyCode::Char('e'), true) => CursorMove::End,
            (KeyCode::Home, true) => CursorMove::Top,
            (KeyCode::End, true) => CursorMove::Bottom,
            _ => return self.edit(event.code, ctrl),
        };
        self.area.move_cursor(moved);
        false
    }

    fn edit(&mut self, code: KeyCode, ctrl: bool) -> bool {
        let changed = match (code, ctrl) {
            (KeyCode::Char('w'), true) => self.area.delete_word(),
            (KeyCode::Char('k'), true) => self.area.delete_line_by_end(),
            (KeyCode::Char('u'), true) => self.area.delete_line_by_head(),
            (KeyCode::Char('h'), true) | (KeyCode::Backspace, _) => self.area.delete_char(),
            (KeyCode::Char('d'), true) | (KeyCode::Delete, _) => self.area.delete_next_char(),
            (KeyCode::Enter, _) | (KeyCode::Char('j' | 'm'), true) => {
                let before: String = self.line().chars().take(self.area.cursor().1).collect();
                let mut deep = before.len() - before.trim_start_matches(' ').len();
                deep += if before.trim_end().ends_with(':') { INDENT } else { 0 };
                self.area.insert_str(format!("\n{}", " ".repeat(deep)))
            }
            // YAML knows no tabs.
            (KeyCode::Tab, _) => {
                let aside = INDENT - self.area.cursor().1 % INDENT;
                self.area.insert_str(" ".repeat(aside))
            }
            (KeyCode::BackTab, _) => self.outdent(),
            (KeyCode::Char(c), false) => {
                self.area.insert_char(c);
                true
            }
            _ => return false,
        };
        if changed {
            self.changed();
        }
        changed
    }

    fn outdent(&mut self) -> bool {
        let column = self.area.cursor().1;
        let n = self.line().chars().take(INDENT).take_while(|c| *c == ' ').count();
        self.area.move_cursor(CursorMove::Head);
        for _ in 0..n {
            self.area.delete_next_char();
        }
        for _ in 0..column.saturating_sub(n) {
            self.area.move_cursor(CursorMove::Forward);
        }
        n > 0
    }

    /// Takes text that was pasted, as far as there is room for `max` bytes in all.
    pub fn paste(&mut self, text: &str, max: usize) -> bool {
        let room = max.saturating_sub(self.text().len());
        let fits = text.floor_char_boundary(room);
        // Terminals send CR for a line's end.
        let text = text[..fits].replace("\r\n", "\n").replace('\r', "\n");
        let changed = self.area.insert_str(text);
        if changed {
            self.changed();
        }
        changed
    }

    /// Moves up or down.
    pub fn step(&mut self, lines: i64) {
        let (at, last) = (self.area.cursor().0, self.area.lines().len() - 1);
        let to = (at as u64).saturating_add_signed(lines).min(last as u64) as usize;
        match lines {
            i64::MIN => self.area.move_cursor(CursorMove::Top),
            i64::MAX => self.area.move_cursor(CursorMove::Bottom),
            _ => {
                let (move_, n) = if to < at { (CursorMove::Up, at - to) } else { (CursorMove::Down, to - at) };
                (0..n).for_each(|_| self.area.move_cursor(move_));
            }
        }
    }

    /// Moves left or right, over the end of a line.
    pub fn aside(&mut self, right: bool) {
        self.area.move_cursor(if right { CursorMove::Forward } else { CursorMove::Back });
    }

    /// Goes to a place, both from 1.
    pub fn go(&mut self, line: usize, column: usize) {
        let line = line.clamp(1, self.area.lines().len()) - 1;
        self.step(line as i64 - self.area.cursor().0 as i64);
        self.area.move_cursor(CursorMove::Head);
        let columns = self.line().chars().count().min(column.saturating_sub(1));
        (0..columns).for_each(|_| self.area.move_cursor(CursorMove::Forward));
    }

    /// The place of the cursor, from 1.
    #[cfg(test)]
    pub fn place(&self) -> (usize, usize) {
        let at = self.area.cursor();
        (at.0 + 1, at.1 + 1)
    }

    fn gutter(&self, area: Rect) -> u16 {
        if area.width < NUMBERED { 0 } else { (self.area.lines().len().to_string().len() as u16).max(2) + 1 }
    }

    /// Where the text is: beside the numbers of the lines.
    fn body(&self, area: Rect) -> Rect {
        let gutter = self.gutter(area);
        Rect { x: area.x + gutter, width: area.width - gutter, ..area }
    }

    /// Columns by which the text is scrolled to the left, so that the cursor is visible.
    fn shift(&self, columns: u16) -> usize {
        let at = before(self.line(), self.area.cursor().1);
        let over = (at + 1).saturating_sub(usize::from(columns.max(1)));
        over.div_ceil(SHIFT) * SHIFT.min(usize::from(columns.max(1)))
    }

    /// What an error takes below its line, in a pane.
    pub fn note(&self, error: Option<&PolicyError>, area: Rect) -> Note {
        let Some(error) = error else { return Note::default() };
        let columns = self.body(area).width;
        let line = error.line.unwrap_or(1).min(self.area.lines().len()).max(1) - 1;
        let text = self.area.lines().get(line).map(String::as_str).unwrap_or_default();
        let mut rows = Vec::new();
        let message = clean(&error.message);
        let mut said = false;
        if let Some(column) = error.column {
            let from = column.saturating_sub(1);
            let left = self.shift(columns);
            let (at, end) = (before(text, from), before(text, from + error.width.max(1)));
            if let Some(x) = at.checked_sub(left).filter(|x| *x < usize::from(columns)) {
                let carets = end.saturating_sub(at).max(1).min(usize::from(columns) - x);
                let mut caret = format!("{}{}", " ".repeat(x), "^".repeat(carets));
                if x + carets + 1 + width(&message) <= usize::from(columns) {
                    caret.push(' ');
                    caret.push_str(&message);
                    said = true;
                }
                rows.push((caret, Role::Bad));
            }
        }
        if !said {
            rows.extend(wrapped(&message, columns).into_iter().map(|row| (row, Role::Bad)));
        }
        if let Some(hint) = &error.hint {
            rows.extend(wrapped(&format!("hint: {hint}"), columns).into_iter().map(|row| (row, Role::Warn)));
        }
        // A line of the text stays above it in the smallest of panes.
        rows.truncate(usize::from(area.height.saturating_sub(1)));
        Note { line, rows }
    }

    /// Keeps the cursor on the screen, and the error below it.
    pub fn settle(&mut self, note: &Note, area: Rect) {
        let line = self.area.cursor().0;
        let len = (self.area.lines().len() + note.rows.len()) as u64;
        let row = note.row_of(line) as u64;
        if line == note.line {
            self.rows.to(row + note.rows.len() as u64, len, area.height);
        }
        self.rows.to(row, len, area.height);
    }

    /// Puts the cursor where the user clicked.
    pub fn click(&mut self, x: u16, y: u16, note: &Note, area: Rect) {
        let body = self.body(area);
        let row = self.window(note, area).start as usize + usize::from(y.saturating_sub(area.y));
        let Ok(line) = note.line_at(row) else { return };
        if line >= self.area.lines().len() {
            return self.step(i64::MAX);
        }
        let wanted = usize::from(x.saturating_sub(body.x)) + self.shift(body.width);
        let text = self.area.lines().get(line).cloned().unwrap_or_default();
        let mut used = 0;
        let column = text.chars().take_while(|c| {
            used += width(&clean(c.encode_utf8(&mut [0; 4])));
            used <= wanted
        });
        self.go(line + 1, column.count() + 1);
    }

    fn window(&self, note: &Note, area: Rect) -> std::ops::Range<u64> {
        self.rows.window((self.area.lines().len() + note.rows.len()) as u64, area.height)
    }

    /// Draws the rows that are on the screen, with the terminal's cursor when keys go here.
    pub fn draw(&self, pen: &mut Pen<'_>, note: &Note, area: Rect, focused: bool) {
        let body = self.body(area);
        let left = self.shift(body.width);
        let here = self.area.cursor();
        let window = self.window(note, area);
        for (y, row) in (area.y..area.bottom()).zip(window.start as usize..window.end as usize) {
            let line = match note.line_at(row) {
                Ok(line) => line,
                Err(n) => {
                    let (text, role) = &note.rows[n];
                    pen.outside(body.x, y, body.width, text, *role);
                    continue;
                }
            };
            let Some(text) = self.area.lines().get(line) else { break };
            if body.x > area.x {
                let role = if line == here.0 { Role::Text } else { Role::Dim };
                pen.right(area.x, y, body.x - area.x - 1, &(line + 1).to_string(), role);
            }
            let mut used = 0;
            for (piece, role) in aside(&pieces(text), left, usize::from(body.width)) {
                used += pen.put(body.x + used, y, body.width.saturating_sub(used), &piece, role);
            }
            if focused && line == here.0 && body.width > 0 {
                let column = before(text, here.1).saturating_sub(left) as u16;
                pen.cursor = Some(Position::new(body.x + column.min(body.width - 1), y));
            }
        }
    }
}

impl Note {
    /// The row of a line.
    fn row_of(&self, line: usize) -> usize {
        if line > self.line { line + self.rows.len() } else { line }
    }

    /// The line of a row, or which row of the error it is.
    fn line_at(&self, row: usize) -> Result<usize, usize> {
        match row.checked_sub(self.line + 1) {
            None => Ok(row),
            Some(n) if n < self.rows.len() => Err(n),
            Some(_) => Ok(row - self.rows.len()),
        }
    }
}

/// Columns of the first characters of a line.
fn before(line: &str, chars: usize) -> usize {
    let end = line.char_indices().nth(chars).map_or(line.len(), |(i, _)| i);
    width(&clean(&line[..end]))
}

/// A line of YAML in what can be told apart at a glance.
fn pieces(line: &str) -> [(String, Role); 2] {
    let bare = line.trim_start();
    if bare.starts_with('#') {
        return [(clean(line), Role::Dim), (String::new(), Role::Text)];
    }
    let key =
        line.find(": ").or_else(|| line.strip_suffix(':').map(str::len)).filter(|_| !bare.starts_with(['"', '\'']));
    let (key, rest) = line.split_at(key.unwrap_or(0));
    [(clean(key), Role::Accent), (clean(rest), Role::Text)]
}

/// The pieces from a column on, as far as they are seen; half of a wide glyph is a blank.
fn aside(pieces: &[(String, Role)], left: usize, columns: usize) -> Vec<(String, Role)> {
    let (mut at, end) = (0, left + columns);
    let mut out = Vec::new();
    for (text, role) in pieces {
        let mut shown = String::new();
        for g in text.graphemes(true) {
            let next = at + width(g);
            if at >= left && next <= end {
                shown.push_str(g);
            } else if next > left && at < left {
                shown.push_str(&" ".repeat(next - left));
            }
            at = next;
            if at >= end {
                break;
            }
        }
        out.push((shown, *role));
    }
    out
}
