//! What is over the screens: help, commands, the filter while it is typed, and messages.

use super::{input::TextInput, keymap::Contexts, palette::PaletteBox, theme::Role};
use crate::{filter::FilterError, model::WallTime};

/// What is over the screen.
#[derive(Debug)]
pub enum Overlay {
    /// The keys of this place.
    Help {
        /// The first line shown.
        top: u64,
        /// The screen whose keys are shown.
        place: Contexts,
    },
    /// The command palette.
    Palette(PaletteBox),
    /// The filter while it is typed.
    Filter {
        /// The filter as typed so far.
        line: TextInput,
        /// What it was before.
        before: String,
        /// What is wrong with it.
        error: Option<FilterError>,
    },
}

/// A message at the bottom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toast {
    /// What it says.
    pub text: String,
    /// How it is meant.
    pub bad: bool,
    /// How long it stays.
    pub until: WallTime,
}

impl Toast {
    /// How it is drawn.
    #[must_use]
    pub const fn role(&self) -> Role {
        if self.bad { Role::Bad } else { Role::Good }
    }
}
