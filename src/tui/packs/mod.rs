//! The packs screen.

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
pub struct PacksScreen {}

impl Screen for PacksScreen {
    fn place(&self) -> Contexts {
        Contexts::PACKS
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
        "Packs".to_owned()
    }
}

impl PacksScreen {
    /// Nothing is listed yet.
    #[must_use]
    pub fn new(_audit_dir: Option<std::path::PathBuf>) -> Self {
        Self {}
    }

    /// Takes news of a live session: its pack's state moves.
    pub fn live(&mut self, _update: &crate::live::client::Update) {}

    /// It is shown now: the list is read again.
    pub fn shown(&mut self) -> Vec<Effect> {
        Vec::new()
    }
}
