//! Everything about one call: evidence from the files, in tabs.

pub mod tree;

use super::{
    keymap::Command,
    msg::{Effect, Told},
    paint::Pen,
    screen::At,
};
use crate::live::row::CallRow;
use std::path::PathBuf;

/// Where a call's evidence lies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Receipts: of a session that is recorded, or `receipt_pack.jsonl`.
    pub receipts: PathBuf,
    /// Audit events: a segment, or `audit_log.jsonl`.
    pub events: PathBuf,
}

/// A call whose detail is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What is known of it.
    pub row: CallRow,
    /// Where the rest is.
    pub files: Files,
    /// Its line in the receipts, from 0, where that is known.
    pub line: Option<u64>,
}

/// What its jobs say.
#[derive(Debug)]
pub enum News {}

/// The pane.
#[derive(Debug, Default)]
pub struct Detail {}

impl Detail {
    /// Shows a call, or nothing. The same call again only renews what is known of it; another one stops what was read for
    /// the one before.
    pub fn show(&mut self, _subject: Option<Subject>) -> Vec<Effect> {
        Vec::new()
    }

    /// Does what was asked for while the pane has the focus; `at.area` is the pane. `None` if it means nothing here.
    pub fn command(&mut self, _command: Command, _at: At) -> Option<Vec<Effect>> {
        None
    }

    /// Takes what a job of this pane said; gives back what is not for it.
    pub fn told(&mut self, told: Told) -> Option<Told> {
        Some(told)
    }

    /// A click in the pane.
    pub fn click(&mut self, _x: u16, _y: u16, _at: At) -> Vec<Effect> {
        Vec::new()
    }

    /// Draws the pane, tabs first.
    pub fn draw(&self, _pen: &mut Pen<'_>, _at: At, _focused: bool) {}
}
