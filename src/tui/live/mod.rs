//! The live screen.

use super::{
    keymap::{Command, Contexts},
    msg::{Effect, Told},
    paint::Pen,
    screen::{At, Screen},
};
use crate::live::client::Update;

/// The screen.
#[derive(Debug, Default)]
pub struct LiveScreen {}

impl LiveScreen {
    /// Takes news; whether anything that is shown changed.
    pub fn live(&mut self, _update: Update, _at: At) -> (bool, Vec<Effect>) {
        (false, Vec::new())
    }

    /// Whether a clock runs.
    #[must_use]
    pub fn has_clocks(&self) -> bool {
        false
    }

    /// Whether an age is shown.
    #[must_use]
    pub fn has_ages(&self) -> bool {
        false
    }

    /// One line about what was seen.
    #[must_use]
    pub fn farewell(&self) -> String {
        String::new()
    }

    /// Takes evidence that it asked for; gives back what is not for it.
    pub fn detail_told(&mut self, told: Told) -> Option<Told> {
        Some(told)
    }
}

impl Screen for LiveScreen {
    fn place(&self) -> Contexts {
        Contexts::CALLS
    }

    fn command(&mut self, _command: Command, _at: At) -> Option<Vec<Effect>> {
        None
    }

    fn told(&mut self, _told: Told, _at: At) -> Vec<Effect> {
        Vec::new()
    }

    fn click(&mut self, _x: u16, _y: u16, _twice: bool, _at: At) -> Vec<Effect> {
        Vec::new()
    }

    fn wheel(&mut self, _x: u16, _y: u16, _lines: i64, _at: At) -> Vec<Effect> {
        Vec::new()
    }

    fn draw(&self, _pen: &mut Pen<'_>, _at: At) {}

    fn title(&self) -> String {
        String::new()
    }
}
