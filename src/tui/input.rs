//! One line of text that is being typed.

use super::{paint::Pen, theme::Role};
use crate::text::{visible, width};
use crossterm::event::KeyEvent;
use ratatui::layout::Position;
use tui_textarea::{Input, Key, TextArea};

/// The longest text that is taken, in characters.
const MAX: usize = 512;

/// A line with a cursor in it.
#[derive(Debug, Clone)]
pub struct TextInput {
    area: TextArea<'static>,
}

impl TextInput {
    /// A line with text in it, the cursor at its end.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut area = TextArea::new(vec![text.replace(['\n', '\r'], " ")]);
        area.move_cursor(tui_textarea::CursorMove::End);
        Self { area }
    }

    /// The text of the line.
    #[must_use]
    pub fn text(&self) -> &str {
        self.area.lines().first().map(String::as_str).unwrap_or_default()
    }

    /// Takes a key; whether the text changed.
    pub fn key(&mut self, event: KeyEvent) -> bool {
        let input = Input::from(event);
        let whole = self.text().chars().count() >= MAX;
        match input {
            // They would make a second line; ctrl-m is Enter's other name.
            Input { key: Key::Enter, .. } | Input { key: Key::Char('m'), ctrl: true, .. } => false,
            Input { key: Key::Char(_), ctrl: false, alt: false, .. } if whole => false,
            // What every shell does.
            Input { key: Key::Char('u'), ctrl: true, .. } => self.area.delete_line_by_head(),
            input => self.area.input(input),
        }
    }

    /// Takes text that was pasted, on one line.
    pub fn paste(&mut self, text: &str) -> bool {
        let room = MAX.saturating_sub(self.text().chars().count());
        let text: String = text.chars().take(room).map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }).collect();
        self.area.insert_str(text)
    }

    /// Draws it with the terminal's cursor in it; the part around the cursor, if it is too long.
    pub fn draw(&self, pen: &mut Pen<'_>, x: u16, y: u16, columns: u16) {
        let at = self.area.cursor().1;
        let before: String = self.text().chars().take(at).collect();
        let mut shown = visible(self.text()).into_owned();
        let mut column = width(&visible(&before));
        // The cursor can be after the last character, so one column stays free.
        while column + 1 > columns as usize && !shown.is_empty() {
            let first = shown.remove(0);
            column -= width(first.encode_utf8(&mut [0; 4])).min(column);
        }
        pen.put(x, y, columns, &shown, Role::Text);
        // A label in front may have left no column at all.
        let last = pen.area().right().saturating_sub(1);
        pen.cursor = Some(Position::new((x + column as u16).min(last), y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Theme;
    use crossterm::event::{KeyCode, KeyModifiers};
    use ratatui::{buffer::Buffer, layout::Rect};

    #[test]
    fn a_line_stays_one_line_and_shows_its_cursor() {
        let mut line = TextInput::new("a\nb");
        line.paste("漢\r\n字\u{1b}");
        line.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        assert_eq!(line.text(), "a b漢  字\u{1b}");
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 1));
        let mut pen = Pen::new(&mut buffer, Theme::default());
        line.draw(&mut pen, 0, 0, 6);
        assert!(pen.cursor.unwrap().x < 6);
        line.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
        assert_eq!(line.text(), "");
    }
}
