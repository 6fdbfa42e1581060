//! The diff screen.

use super::{
    keymap::{Command, Contexts},
    msg::{Effect, Told},
    paint::Pen,
    screen::{At, Screen},
};

/// What its jobs say.
#[derive(Debug)]
pub enum News {}

/// The screen.
#[derive(Debug, Default)]
pub struct DiffScreen {}

impl Screen for DiffScreen {
    fn place(&self) -> Contexts {
        Contexts::DIFF
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
        "No comparison".to_owned()
    }
}

impl DiffScreen {
    /// Nothing is compared yet; packs of these signers are trusted.
    #[must_use]
    pub fn new(_signers: Vec<String>) -> Self {
        Self {}
    }

    /// Compares pack `b` with the baseline `a`.
    pub fn compare(&mut self, _a: std::path::PathBuf, _b: std::path::PathBuf) -> Vec<Effect> {
        Vec::new()
    }
}
