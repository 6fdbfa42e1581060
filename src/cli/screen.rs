//! What every command that has a screen is asked: colours, glyphs, mouse.

use crate::{
    tui::{
        app::Start,
        theme::{Palette, Theme},
    },
    zone::Zone,
};
use clap::{Args, ValueEnum};
use std::io::IsTerminal as _;

/// Colour themes of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colours {
    /// The terminal's own colours
    Terminal,
    /// The terminal's bright colours
    Bright,
    /// No colours
    None,
}

/// How the dashboard looks.
#[derive(Debug, Clone, Default, Args)]
pub struct ScreenArgs {
    /// Colours of the dashboard [default: the terminal's; none with NO_COLOR]
    #[arg(long, value_enum, value_name = "NAME")]
    pub theme: Option<Colours>,
    /// Draw with ASCII characters only; automatic if the locale is not UTF-8
    #[arg(long)]
    pub ascii: bool,
    /// Do not capture the mouse
    #[arg(long)]
    pub no_mouse: bool,
}

impl ScreenArgs {
    /// A dashboard that looks like this.
    #[must_use]
    pub fn start(&self) -> Start {
        let mut theme = Theme::of_env(|name| std::env::var(name).ok());
        theme.ascii |= self.ascii;
        theme.palette = match self.theme {
            None => theme.palette,
            Some(Colours::Terminal) => Palette::Terminal,
            Some(Colours::Bright) => Palette::Bright,
            Some(Colours::None) => Palette::Colourless,
        };
        theme.zone = Zone::Local;
        Start { theme, mouse: !self.no_mouse, ..Start::default() }
    }
}

/// Whether there is a terminal that a dashboard can use, for keys and for drawing.
#[must_use]
pub fn is_there() -> bool {
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb
}
