//! Putting text on the screen: cells, clipped, never more columns than there are, and nothing that a terminal obeys.

use super::theme::{Role, Theme};
use crate::{
    numbers::NONE,
    text::{fit, visible, width},
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    style::Style,
};

/// A pen on a buffer.
#[derive(Debug)]
pub struct Pen<'a> {
    buffer: &'a mut Buffer,
    /// How meanings look.
    pub theme: Theme,
    /// Where the terminal's own cursor goes.
    pub cursor: Option<Position>,
}

impl<'a> Pen<'a> {
    /// A pen that draws into `buffer`.
    pub const fn new(buffer: &'a mut Buffer, theme: Theme) -> Self {
        Self { buffer, theme, cursor: None }
    }

    /// The whole screen.
    #[must_use]
    pub const fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes text of ours, clipped to `columns`; returns the columns used. Text from outside goes through [`Self::outside`].
    pub fn put(&mut self, x: u16, y: u16, columns: u16, text: &str, role: Role) -> u16 {
        let style = self.theme.style(role);
        if self.theme.ascii && text.contains(NONE) {
            return self.styled(x, y, columns, &text.replace(NONE, "-"), style);
        }
        self.styled(x, y, columns, text, style)
    }

    /// Writes text from outside: made visible, cut on a grapheme boundary with a mark where something was cut.
    pub fn outside(&mut self, x: u16, y: u16, columns: u16, text: &str, role: Role) -> u16 {
        // No terminal has more columns than this, and a megabyte is not measured for one line.
        let head: String = text.chars().take(4096).collect();
        let text = clean(&head);
        let text = self.fitted(&text, columns);
        let style = self.theme.style(role);
        self.styled(x, y, columns, &text, style)
    }

    /// `text` cut to `columns`, with the theme's mark.
    #[must_use]
    pub fn fitted(&self, text: &str, columns: u16) -> String {
        let cut = fit(text, columns as usize);
        if self.theme.ascii { cut.replace('…', "~") } else { cut.into_owned() }
    }

    /// Writes with a style.
    pub fn styled(&mut self, x: u16, y: u16, columns: u16, text: &str, style: Style) -> u16 {
        let area = self.buffer.area;
        if x >= area.right() || y >= area.bottom() || columns == 0 {
            return 0;
        }
        let columns = columns.min(area.right() - x);
        let plain = if self.theme.ascii && text.contains('µ') { text.replace('µ', "u") } else { String::new() };
        let text = if plain.is_empty() { text } else { &plain };
        let (end, _) = self.buffer.set_stringn(x, y, text, columns as usize, style);
        end - x
    }

    /// Writes several pieces, one after the other.
    pub fn pieces(&mut self, x: u16, y: u16, columns: u16, pieces: &[(&str, Role)]) -> u16 {
        let mut used = 0;
        for (text, role) in pieces {
            used += self.put(x + used, y, columns.saturating_sub(used), text, *role);
        }
        used
    }

    /// Writes `text` right-aligned into the `columns` from `x`.
    pub fn right(&mut self, x: u16, y: u16, columns: u16, text: &str, role: Role) {
        let text = self.fitted(text, columns);
        let w = width(&text) as u16;
        self.put(x + columns.saturating_sub(w), y, w, &text, role);
    }

    /// Adds a style to cells that are there.
    pub fn over(&mut self, area: Rect, style: Style) {
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }

    /// Marks a row as the selected one and puts the terminal's cursor there.
    pub fn select(&mut self, row: Rect, focused: bool) {
        self.over(row, self.theme.selected(focused));
        if focused {
            self.cursor = Some(Position::new(row.x, row.y));
        }
    }

    /// Empties an area for something that is over the rest; a wide glyph that it would cut in half goes as a whole.
    pub fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.buffer.area);
        for y in area.top()..area.bottom() {
            if let Some(left) = area.x.checked_sub(1).and_then(|x| self.buffer.cell_mut((x, y)))
                && width(left.symbol()) > 1
            {
                left.set_symbol(" ");
            }
            for x in area.left()..area.right() {
                if let Some(cell) = self.buffer.cell_mut((x, y)) {
                    cell.reset();
                }
            }
        }
    }

    /// A frame with a title; returns what is inside.
    pub fn boxed(&mut self, area: Rect, title: &str, focused: bool) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.width < 2 || area.height < 2 {
            return Rect { width: 0, height: 0, ..area };
        }
        let role = if focused { Role::Accent } else { Role::Dim };
        let t = self.theme;
        let across = t.glyph("─", "-").repeat(area.width as usize - 2);
        let corners = if t.ascii { ["+", "+", "+", "+"] } else { ["┌", "┐", "└", "┘"] };
        self.put(area.x, area.y, area.width, &format!("{}{across}{}", corners[0], corners[1]), role);
        self.put(area.x, area.bottom() - 1, area.width, &format!("{}{across}{}", corners[2], corners[3]), role);
        for y in area.y + 1..area.bottom() - 1 {
            self.put(area.x, y, 1, t.glyph("│", "|"), role);
            self.put(area.right() - 1, y, 1, t.glyph("│", "|"), role);
        }
        if area.width > 6 && !title.is_empty() {
            let title = self.fitted(title, area.width - 6);
            self.put(
                area.x + 2,
                area.y,
                area.width - 4,
                &format!(" {title} "),
                if focused { Role::Strong } else { Role::Dim },
            );
        }
        Rect { x: area.x + 1, y: area.y + 1, width: area.width - 2, height: area.height - 2 }
    }

    /// A heading over a pane without a frame: a rule with a title in it. Returns what is below.
    pub fn headed(&mut self, area: Rect, title: &str, focused: bool) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.height == 0 || area.width == 0 {
            return area;
        }
        let rule = self.theme.glyph("─", "-").repeat(area.width as usize);
        self.put(area.x, area.y, area.width, &rule, Role::Dim);
        let title = self.fitted(title, area.width.saturating_sub(3));
        if area.width > 3 {
            let role = if focused { Role::Strong } else { Role::Dim };
            self.put(area.x + 1, area.y, area.width - 2, &format!(" {title} "), role);
        }
        Rect { y: area.y + 1, height: area.height - 1, ..area }
    }

    /// A vertical rule.
    pub fn rule(&mut self, x: u16, top: u16, bottom: u16) {
        for y in top..bottom {
            self.put(x, y, 1, self.theme.glyph("│", "|"), Role::Dim);
        }
    }
}

/// Text from outside, safe: tabs become spaces, everything hidden becomes visible.
#[must_use]
pub fn clean(text: &str) -> String {
    visible(&text.replace('\t', "    ")).into_owned()
}

/// Characters of a text that [`wrapped`] shows.
pub const WRAPPED: usize = 2000;

/// Text from outside in lines of at most `columns`, but no less than 8, broken between words.
#[must_use]
pub fn wrapped(text: &str, columns: u16) -> Vec<String> {
    let room = usize::from(columns).max(8);
    let text = clean(&text.chars().take(WRAPPED).collect::<String>());
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        while let Some(line) = lines.last_mut() {
            let used = width(line);
            if used > 0 && used + 1 + width(&word) > room {
                lines.push(String::new());
                continue;
            }
            if used > 0 {
                line.push(' ');
            }
            // A word that is longer than a line is broken anywhere.
            let cut =
                word.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|i| width(&word[..*i]) <= room).last();
            let Some(cut) = cut.filter(|cut| *cut < word.len()) else {
                line.push_str(&word);
                break;
            };
            let rest = word.split_off(cut);
            line.push_str(&word);
            lines.push(String::new());
            word = rest;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_over_a_wide_glyph_takes_all_of_it() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 1));
        let mut pen = Pen::new(&mut buffer, Theme::default());
        pen.put(0, 0, 8, "漢字漢字", Role::Text);
        pen.clear(Rect::new(3, 0, 2, 1));
        pen.put(3, 0, 2, "ab", Role::Text);
        let text: String = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        assert_eq!(text.replace(' ', "."), "漢..ab.字.".replace(' ', "."), "{text:?}");
    }

    #[test]
    fn texts_from_outside_are_harmless_and_stay_in_their_columns() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        let mut pen = Pen::new(&mut buffer, Theme::default());
        assert!(pen.outside(0, 0, 6, "\u{1b}[31m\u{202e}漢字漢字", Role::Text) <= 6);
        for cell in buffer.content() {
            assert!(!cell.symbol().contains(['\u{1b}', '\u{202e}']));
        }
        assert_eq!(buffer.content()[7].symbol(), " ");
    }
}
