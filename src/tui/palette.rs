//! The list of commands that is searched by name and by key.

use super::{
    input::TextInput,
    keymap::{self, Command, Contexts},
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What is typed, and what fits.
#[derive(Debug)]
pub struct PaletteBox {
    line: TextInput,
    place: Contexts,
    at: usize,
}

impl PaletteBox {
    /// All commands of a place.
    #[must_use]
    pub fn new(place: Contexts) -> Self {
        Self { line: TextInput::new(""), place, at: 0 }
    }

    /// What is typed.
    #[must_use]
    pub const fn line(&self) -> &TextInput {
        &self.line
    }

    /// Which of [`Self::fitting`] is selected.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Commands that fit, the best first, with their keys.
    #[must_use]
    pub fn fitting(&self) -> Vec<(Command, &'static [&'static str])> {
        let typed = self.line.text().trim().to_lowercase();
        let here = Command::ALL.iter().filter_map(|c| keymap::keys(*c, self.place).map(|k| (*c, k)));
        let here = here.filter(|(c, _)| *c != Command::Palette);
        let mut ranked: Vec<(u8, (Command, &'static [&'static str]))> = here
            .filter_map(|(c, keys)| rank(c, keys, &typed, self.line.text().trim()).map(|r| (r, (c, keys))))
            .collect();
        ranked.sort_by_key(|(r, _)| *r);
        ranked.into_iter().map(|(_, found)| found).collect()
    }

    /// The selected command.
    #[must_use]
    pub fn chosen(&self) -> Option<Command> {
        self.fitting().get(self.at).map(|(c, _)| *c)
    }

    /// Takes a key.
    pub fn key(&mut self, event: KeyEvent) {
        let last = self.fitting().len().saturating_sub(1);
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Char('p') if ctrl => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(last),
            KeyCode::Char('n') if ctrl => self.at = (self.at + 1).min(last),
            _ => {
                if self.line.key(event) {
                    self.at = 0;
                }
            }
        }
    }

    /// Inserts pasted text.
    pub fn paste(&mut self, text: &str) {
        self.line.paste(text);
        self.at = 0;
    }
}

/// How well a command fits, smaller is better.
fn rank(command: Command, keys: &[&str], typed: &str, exact: &str) -> Option<u8> {
    let word = command.word();
    match typed {
        "" => Some(3),
        _ if keys.contains(&exact) => Some(0),
        t if word.starts_with(t) => Some(1),
        t if word.contains(t) || keys.iter().any(|k| k.to_lowercase() == t) => Some(2),
        t if command.help().to_lowercase().contains(t) => Some(4),
        t if subsequence(t, word) => Some(5),
        _ => None,
    }
}

fn subsequence(letters: &str, word: &str) -> bool {
    let mut rest = word.chars();
    letters.chars().all(|c| rest.any(|w| w == c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_name_key_and_letters() {
        let find = |text: &str| {
            let mut palette = PaletteBox::new(Contexts::CALLS);
            palette.paste(text);
            palette.chosen()
        };
        assert_eq!(find("foll"), Some(Command::Follow));
        assert_eq!(find("f"), Some(Command::Follow));
        assert_eq!(find("ctrl-y"), Some(Command::CopyRaw));
        assert_eq!(find("cpth"), Some(Command::CopyPath));
        assert_eq!(find("xyzzy"), None);
    }
}
