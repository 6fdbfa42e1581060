//! What is around every screen: header, footer, overlays.

use super::{
    app::App,
    bars,
    keymap::{self, Contexts},
    overlay::Overlay,
    paint::Pen,
    palette::PaletteBox,
    theme::Role,
};
use crate::{
    filter::FilterError,
    text::{visible, width},
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

/// Draws everything; where the terminal's cursor goes.
#[must_use]
pub fn draw(app: &App, buffer: &mut Buffer) -> Option<Position> {
    let mut pen = Pen::new(buffer, app.theme);
    all(app, &mut pen);
    pen.cursor
}

fn all(app: &App, pen: &mut Pen<'_>) {
    let size = app.size().intersection(pen.area());
    if size.width == 0 || size.height == 0 {
        return;
    }
    let at = app.at();
    app.screen().draw(pen, at);
    if at.area.y > 0 {
        header(app, pen, size);
    }
    match app.overlay() {
        None => {}
        Some(Overlay::Help { top, place }) => help(pen, at.area, *top, *place),
        Some(Overlay::Palette(palette)) => commands(pen, at.area, palette),
        Some(Overlay::Filter { line, error, .. }) => {
            filter(pen, size, line, error.as_ref());
            return;
        }
    }
    if size.height > 1 {
        footer(app, pen, size);
    }
}

/// `1 Live  2 Packs …` and what the screen says of itself.
fn header(app: &App, pen: &mut Pen<'_>, size: Rect) {
    let mut x = 0;
    for (columns, id, text) in bars::tabs(app.shown(), size.width) {
        let here = id == app.shown();
        let role = if here { Role::Strong } else { Role::Dim };
        let used = pen.put(columns.start, 0, size.width.saturating_sub(columns.start), &text, role);
        if here {
            let style = pen.theme.selected(true);
            pen.over(Rect::new(columns.start, 0, used, 1), style);
        }
        x = columns.start + used;
    }
    let title = app.screen().title();
    pen.right(x + 1, 0, size.width.saturating_sub(x + 1), &title, Role::Text);
}

fn footer(app: &App, pen: &mut Pen<'_>, size: Rect) {
    let y = size.bottom() - 1;
    pen.clear(Rect::new(0, y, size.width, 1));
    if let Some(toast) = app.toast() {
        pen.outside(0, y, size.width, &toast.text, toast.role());
        return;
    }
    for (x, text, command) in bars::hints(app.place(), size.width) {
        let key = text.len() - command.word().len();
        let used = pen.put(x, y, size.width - x, &text[..key], Role::Accent);
        pen.put(x + used, y, size.width.saturating_sub(x + used), &text[key..], Role::Dim);
    }
}

/// The filter takes the last line, its error the one above.
fn filter(pen: &mut Pen<'_>, size: Rect, line: &super::input::TextInput, error: Option<&FilterError>) {
    let y = size.bottom() - 1;
    pen.clear(Rect::new(0, y, size.width, 1));
    let used = pen.put(0, y, size.width, "filter: ", Role::Accent);
    if let Some(e) = error.filter(|_| size.height > 2) {
        pen.clear(Rect::new(0, y - 1, size.width, 1));
        let before = line.text().get(..e.at).unwrap_or(line.text());
        let column = (used + width(&visible(before)) as u16).min(size.width.saturating_sub(2));
        // The caret is above the culprit; the words are where they fit.
        let words = e.to_string();
        let room = size.width.saturating_sub(column + 2);
        if width(&words) as u16 <= room {
            pen.put(column, y - 1, 1, pen.theme.glyph("↓", "v"), Role::Bad);
            pen.outside(column + 2, y - 1, room, &words, Role::Bad);
        } else {
            pen.outside(0, y - 1, column.saturating_sub(1), &words, Role::Bad);
            pen.put(column, y - 1, 1, pen.theme.glyph("↓", "v"), Role::Bad);
        }
    }
    line.draw(pen, used, y, size.width.saturating_sub(used));
}

/// A box in the middle.
fn middle(area: Rect, columns: u16, lines: u16) -> Rect {
    let (w, h) = (columns.min(area.width), lines.min(area.height));
    Rect { x: area.x + (area.width - w) / 2, y: area.y + (area.height - h) / 2, width: w, height: h }
}

fn help(pen: &mut Pen<'_>, area: Rect, top: u64, place: Contexts) {
    let title = Contexts::EACH.iter().find(|(p, _)| *p == place).map_or("", |(_, t)| *t);
    let lines = bars::help_lines(place);
    let popup = middle(area, 100, lines as u16 + 2);
    pen.clear(popup);
    let inner = pen.boxed(popup, &format!("Keys: {title}"), true);
    let rows = keymap::TABLE.iter().filter(|b| b.contexts.has(place)).skip(top as usize);
    for (y, b) in (inner.y..inner.bottom()).zip(rows) {
        let keys = b.keys.join(" ");
        pen.put(inner.x, y, 12.min(inner.width), &keys, Role::Accent);
        if inner.width > 30 {
            pen.put(inner.x + 13, y, inner.width - 13, &pen.fitted(b.command.help(), inner.width - 13), Role::Text);
        } else if inner.width > 13 {
            pen.put(inner.x + 13, y, inner.width - 13, b.command.word(), Role::Text);
        }
    }
    if lines > inner.height as usize && inner.height > 0 {
        let text = format!(" {}-{} of {lines} ", top + 1, (top as usize + inner.height as usize).min(lines));
        pen.right(popup.x + 1, popup.bottom() - 1, popup.width.saturating_sub(2), &text, Role::Dim);
    }
}

fn commands(pen: &mut Pen<'_>, area: Rect, palette: &PaletteBox) {
    let found = palette.fitting();
    let popup = middle(area, 70, found.len().clamp(1, 14) as u16 + 3);
    pen.clear(popup);
    let inner = pen.boxed(popup, "Commands", true);
    if inner.height == 0 {
        return;
    }
    let rows = inner.height.saturating_sub(1) as usize;
    let first = (palette.at() + 1).saturating_sub(rows);
    for (n, (command, keys)) in found.iter().enumerate().skip(first).take(rows) {
        let y = inner.y + 1 + (n - first) as u16;
        let used = pen.put(inner.x, y, 18.min(inner.width), command.word(), Role::Strong);
        pen.right(inner.x + used, y, 19u16.saturating_sub(used).max(12), "", Role::Dim);
        pen.put(inner.x + 19, y, inner.width.saturating_sub(19), &keys.join(" "), Role::Accent);
        let help = inner.width.saturating_sub(32);
        pen.put(inner.x + 32, y, help, &pen.fitted(command.help(), help), Role::Dim);
        if n == palette.at() {
            let style = pen.theme.selected(true);
            pen.over(Rect::new(inner.x, y, inner.width, 1), style);
        }
    }
    if found.is_empty() && rows > 0 {
        pen.put(inner.x, inner.y + 1, inner.width, "no command matches", Role::Dim);
    }
    let used = pen.put(inner.x, inner.y, inner.width, ": ", Role::Accent);
    palette.line().draw(pen, inner.x + used, inner.y, inner.width.saturating_sub(used));
}
