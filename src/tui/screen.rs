//! What every screen can do.

use super::{
    keymap::{Command, Contexts},
    msg::{Effect, Target, Told},
    paint::Pen,
};
use crate::{filter::FilterError, model::WallTime};
use crossterm::event::KeyEvent;
use ratatui::layout::Rect;

/// Where a screen is and when.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Its part of the terminal.
    pub area: Rect,
    /// The present time.
    pub now: WallTime,
}

impl At {
    /// Whether only the most important is shown, in one list.
    #[must_use]
    pub const fn is_tiny(&self) -> bool {
        // Without header and footer: 40×10 in all.
        self.area.width < 40 || self.area.height < 8
    }
}

/// A screen: a model that changes by [`Screen::command`] and [`Screen::told`] only, does no I/O, and is drawn from what it
/// is. Sizes are given to both, so that paging, clicks and drawing agree.
pub trait Screen {
    /// Where keys go now.
    fn place(&self) -> Contexts;

    /// Does what was asked for; `None` if it means nothing here.
    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>>;

    /// Takes what a job of this screen said; gives back what is another's, or of a job that was given up.
    ///
    /// # Errors
    /// It is not for this screen.
    fn told(&mut self, told: Told, at: At) -> Result<Vec<Effect>, Told>;

    /// What is selected, for another screen that can do something with it.
    fn subject(&self) -> Option<Target> {
        None
    }

    /// Takes a key that no command has, where text is typed.
    fn typed(&mut self, _event: KeyEvent, _at: At) -> Vec<Effect> {
        Vec::new()
    }

    /// Takes text that was pasted.
    fn pasted(&mut self, _text: &str, _at: At) -> Vec<Effect> {
        Vec::new()
    }

    /// A click, or with `twice` a second one at the same place.
    fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect>;

    /// The wheel, lines down.
    fn wheel(&mut self, x: u16, y: u16, lines: i64, at: At) -> Vec<Effect>;

    /// Draws itself into `at.area`.
    fn draw(&self, pen: &mut Pen<'_>, at: At);

    /// One line for the top of the screen, of ours and safe: what is shown here.
    fn title(&self) -> String;

    /// The filter as typed; `None` where there is nothing to filter.
    fn filter(&self) -> Option<&str> {
        None
    }

    /// Takes another filter, at every key while it is typed. A wrong one changes nothing.
    ///
    /// # Errors
    /// What is wrong with it and where.
    fn set_filter(&mut self, _text: &str, _at: At) -> Result<Vec<Effect>, FilterError> {
        Ok(Vec::new())
    }
}
