//! The pack screen.

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
pub struct PackScreen {}

impl Screen for PackScreen {
    fn place(&self) -> Contexts {
        Contexts::PACK
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
        "No pack".to_owned()
    }
}

impl PackScreen {
    /// Nothing is open yet; packs of these signers are trusted.
    #[must_use]
    pub fn new(_signers: Vec<String>) -> Self {
        Self {}
    }

    /// Opens a pack, or the files of a session.
    pub fn open(&mut self, _target: super::msg::Target) -> Vec<Effect> {
        Vec::new()
    }
}
