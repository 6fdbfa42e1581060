//! Lines of the tree on the screen.

use super::{
    BYTES_COLUMNS, Body, Tree,
    fold::{self, Open, TreeLine, can_open, child, children},
};
use crate::{
    numbers::{grouped, size},
    text::width,
    tui::{
        kit::ListPane,
        paint::{Pen, clean},
        theme::Role,
    },
};
use ratatui::layout::Rect;
use serde_json::Value;
use std::{borrow::Cow, fmt::Write as _};

/// Characters of a value that are looked at for its line.
const PREVIEW: usize = 400;
/// What an unfolded text is indented by, beyond its name.
const TEXT_INDENT: u16 = 4;

/// The columns of an unfolded text in a pane of so many.
pub fn text_columns(pane: u16) -> u16 {
    pane.saturating_sub(2 * TEXT_INDENT + 2).max(8)
}

fn indent(depth: usize, columns: u16) -> u16 {
    (2 * depth as u16).min(columns / 3)
}

impl Tree {
    /// Draws the lines that are on the screen.
    pub fn draw(&self, pen: &mut Pen<'_>, area: Rect, focused: bool) {
        if area.width == 0 || area.height == 0 {
            return;
        }
        match &self.body {
            Body::Json { value, open, columns } => {
                let mut open = open.as_ref().map(Cow::Borrowed);
                let mut cursor = self.cursor;
                // The pane got another width and no command came since: the texts are broken for this frame only.
                if *columns != area.width
                    && let Some(o) = open.as_mut().filter(|o| o.has_text())
                {
                    let selected = self.selected();
                    o.to_mut().wrap(value, text_columns(area.width));
                    cursor.at = o.line_of(&selected);
                }
                let len = 1 + open.as_ref().map_or(0, |o| o.below());
                let pane = ListPane { len, area };
                let window = cursor.window(len, area.height);
                let lines = open.as_ref().map_or_else(
                    || vec![TreeLine { path: Vec::new(), row: None, open: false }],
                    |o: &Cow<'_, Open>| o.lines(window.clone()),
                );
                pane.draw(&cursor, pen, Some(focused), |pen, n, row| {
                    if let Some(line) = lines.get(n - window.start as usize) {
                        self.line(pen, row, value, line);
                    }
                });
            }
            Body::Bytes { head, notes } => self.bytes(pen, area, head, notes, focused),
        }
    }

    fn line(&self, pen: &mut Pen<'_>, row: Rect, root: &Value, line: &TreeLine) {
        let Some((value, name)) = place(root, line, &self.name) else { return };
        let x = indent(line.path.len(), row.width);
        let room = |used: u16| row.width.saturating_sub(used);
        if let (Some(bytes), Value::String(text)) = (&line.row, value) {
            let x = x.min(TEXT_INDENT) + TEXT_INDENT;
            let bar = pen.theme.glyph("│", "|");
            pen.put(row.x + x - 2, row.y, room(x - 2).min(1), bar, Role::Dim);
            let text = text.get(bytes.clone()).unwrap_or_default();
            pen.outside(row.x + x, row.y, room(x), text, Role::Value);
            return;
        }
        let mark = match (can_open(value), line.open) {
            (false, _) => " ",
            (true, true) => pen.theme.glyph("▾", "v"),
            (true, false) => pen.theme.glyph("▸", ">"),
        };
        pen.put(row.x + x, row.y, room(x).min(1), mark, Role::Dim);
        let mut used = x + 2;
        let (name, role) = name;
        used += pen.outside(row.x + used, row.y, (row.width / 2).max(8).min(room(used)), &name, role);
        used += pen.put(row.x + used, row.y, room(used), if children(value) > 0 { " " } else { ": " }, Role::Dim);
        preview(pen, Rect { x: row.x + used.min(row.width), width: room(used), ..row }, value, line.open);
    }

    fn bytes(&self, pen: &mut Pen<'_>, area: Rect, head: &str, notes: &[String], focused: bool) {
        let rows = fold::rows(head, BYTES_COLUMNS);
        ListPane::new(1 + notes.len() + rows.len(), area).draw(&self.cursor, pen, Some(focused), |pen, n, row| {
            let (text, role) = match n.checked_sub(1) {
                None => (self.name.as_str(), Role::Accent),
                Some(n) if n < notes.len() => (notes[n].as_str(), Role::Dim),
                Some(n) => {
                    let text = rows.get(n - notes.len()).and_then(|r| head.get(r.clone()));
                    (text.unwrap_or_default(), Role::Value)
                }
            };
            pen.outside(row.x, row.y, row.width, text, role);
        });
    }
}

type Name<'a> = (Cow<'a, str>, Role);

/// What a line is about, and what it is called there.
fn place<'a>(root: &'a Value, line: &TreeLine, name: &'a str) -> Option<(&'a Value, Name<'a>)> {
    let [inside @ .., last] = &line.path[..] else { return Some((root, (Cow::Borrowed(name), Role::Strong))) };
    let parent = fold::at(root, inside)?;
    match parent {
        Value::Object(members) => {
            let (name, value) = members.iter().nth(*last)?;
            Some((value, (Cow::Borrowed(name), Role::Accent)))
        }
        _ => Some((child(parent, *last)?, (Cow::Owned(last.to_string()), Role::Dim))),
    }
}

/// The part of a value that fits after its name.
fn preview(pen: &mut Pen<'_>, room: Rect, value: &Value, open: bool) {
    let put = |pen: &mut Pen<'_>, text: &str, role| pen.outside(room.x, room.y, room.width, text, role);
    match value {
        Value::String(text) if open => {
            put(pen, &size(text.len() as u64), Role::Dim);
        }
        Value::String(text) => {
            let head: String = text.chars().take(PREVIEW).collect();
            let shown = clean(&quoted(&head));
            let whole = head.len() == text.len() && width(&shown) <= room.width as usize;
            let note = format!(" {}", size(text.len() as u64));
            let note = if whole || room.width < 30 { "" } else { &note };
            let used = pen.outside(room.x, room.y, room.width - width(note) as u16, &shown, Role::Value);
            pen.put(room.x + used, room.y, room.width - used, note, Role::Dim);
        }
        Value::Array(_) | Value::Object(_) => {
            let many = children(value);
            let word = match (value, many) {
                (Value::Array(_), 0) => "[]".to_owned(),
                (_, 0) => "{}".to_owned(),
                (Value::Array(_), n) => format!("[{}]", grouped(n as u64)),
                (_, n) => format!("{{{}}}", grouped(n as u64)),
            };
            let used = put(pen, &word, Role::Dim) + 1;
            if !open && many > 0 && room.width > used {
                let mut text = String::new();
                inline(&mut text, value, 1);
                pen.outside(room.x + used, room.y, room.width - used, &text, Role::Dim);
            }
        }
        Value::Number(n) => {
            put(pen, &n.to_string(), Role::Value);
        }
        Value::Bool(b) => {
            put(pen, if *b { "true" } else { "false" }, Role::Text);
        }
        Value::Null => {
            put(pen, "null", Role::Dim);
        }
    }
}

/// A text in quotes; what is in it cannot end them.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The beginning of what a value holds, on one line; stops when there is more than anyone sees.
fn inline(out: &mut String, value: &Value, depth: u8) {
    match value {
        Value::Array(a) => {
            for v in a.iter().take(PREVIEW) {
                item(out, None, v, depth);
            }
        }
        Value::Object(o) => {
            for (name, v) in o.iter().take(PREVIEW) {
                item(out, Some(name), v, depth);
            }
        }
        _ => {}
    }
}

fn item(out: &mut String, name: Option<&str>, value: &Value, depth: u8) {
    if out.len() > PREVIEW {
        return;
    }
    if !out.is_empty() && !out.ends_with(['[', '{']) {
        out.push(' ');
    }
    if let Some(name) = name {
        out.extend(name.chars().take(60));
        out.push('=');
    }
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    match value {
        Value::String(text) => out.push_str(&quoted(&text.chars().take(60).collect::<String>())),
        Value::Array(_) | Value::Object(_) => {
            out.push(open);
            if depth > 0 {
                inline(out, value, depth - 1);
            } else if children(value) > 0 {
                let _ = write!(out, "{}", children(value));
            }
            out.push(close);
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}
