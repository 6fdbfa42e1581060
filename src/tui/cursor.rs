//! A place in a list that is longer than the screen.

use super::keymap::Command;
use std::ops::Range;

/// How many lines a command goes down where so many are shown; `None` for one that goes nowhere. Of a page one line stays.
#[must_use]
pub fn lines(command: Command, height: u16) -> Option<i64> {
    let page = i64::from(height.max(2)) - 1;
    Some(match command {
        Command::Up => -1,
        Command::Down => 1,
        Command::PageUp => -page,
        Command::PageDown => page,
        Command::HalfUp => -(page / 2).max(1),
        Command::HalfDown => (page / 2).max(1),
        Command::Top => i64::MIN,
        Command::Bottom => i64::MAX,
        _ => return None,
    })
}

/// Which line is selected and which is on top.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The selected line.
    pub at: u64,
    /// The first line that is shown.
    pub top: u64,
}

impl Cursor {
    /// Moves by `lines`, within a list of `len` shown in `height` lines.
    pub fn step(&mut self, lines: i64, len: u64, height: u16) {
        self.to(self.at.saturating_add_signed(lines), len, height);
    }

    /// Goes to a line.
    pub fn to(&mut self, line: u64, len: u64, height: u16) {
        self.at = line.min(len.saturating_sub(1));
        self.settle(len, height);
    }

    /// Keeps the selected line on the screen.
    pub fn settle(&mut self, len: u64, height: u16) {
        let height = u64::from(height.max(1));
        self.at = self.at.min(len.saturating_sub(1));
        self.top = self.top.min(len.saturating_sub(height)).min(self.at).max((self.at + 1).saturating_sub(height));
    }

    /// The lines that are shown.
    #[must_use]
    pub fn window(&self, len: u64, height: u16) -> Range<u64> {
        let mut shown = *self;
        shown.settle(len, height);
        shown.top..(shown.top + u64::from(height)).min(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_selected_line_is_always_shown(
            steps in prop::collection::vec((-2000i64..2000, 0u64..3000, 0u16..100), 1..50)
        ) {
            let mut cursor = Cursor::default();
            for (step, len, height) in steps {
                cursor.step(step, len, height);
                let window = cursor.window(len, height.max(1));
                prop_assert!(len == 0 || window.contains(&cursor.at), "{cursor:?} {window:?}");
                prop_assert!(window.end <= len.max(1));
            }
        }
    }
}
