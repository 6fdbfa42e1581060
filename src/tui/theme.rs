//! What a meaning looks like. State is a word first, then a glyph, then a colour; the background is never painted.

use crate::zone::Zone;
use ratatui::style::{Color, Modifier, Style};

/// What something means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// Text of less importance.
    Dim,
    /// Text of headings.
    Strong,
    /// Good: intact, allowed, complete.
    Good,
    /// Something that deserves a look.
    Warn,
    /// Not as it should be.
    Bad,
    /// Names of keys, links, what can be opened.
    Accent,
    /// Numbers and strings in JSON.
    Value,
}

/// The palettes to choose from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Palette {
    /// The terminal's own 16 colours, the darker half: readable on light and dark.
    #[default]
    Terminal,
    /// The brighter half, for dark terminals with a dim palette.
    Bright,
    /// None: bold, dim, underlined and reversed only.
    Colourless,
}

/// Colours, glyphs and the zone of times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Theme {
    /// The palette in use.
    pub palette: Palette,
    /// Only ASCII glyphs.
    pub ascii: bool,
    /// In which zone times are.
    pub zone: Zone,
}

impl Theme {
    /// The theme that environment variables ask for: `NO_COLOR`, and a locale that speaks UTF-8.
    #[must_use]
    pub fn of_env(env: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| env(name).filter(|v| !v.is_empty());
        let locale =
            set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_lowercase();
        let linux_console = set("TERM").as_deref() == Some("linux");
        Self {
            palette: if set("NO_COLOR").is_some() { Palette::Colourless } else { Palette::Terminal },
            zone: Zone::Utc,
            ascii: linux_console || !(locale.contains("utf-8") || locale.contains("utf8")),
        }
    }

    /// The theme after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        let palette = match self.palette {
            Palette::Terminal => Palette::Bright,
            Palette::Bright => Palette::Colourless,
            Palette::Colourless => Palette::Terminal,
        };
        Self { palette, ..self }
    }

    /// Name of the palette, as the dashboard shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.palette {
            Palette::Terminal => "terminal colours",
            Palette::Bright => "bright",
            Palette::Colourless => "without colours",
        }
    }

    /// How a role is drawn.
    #[must_use]
    pub fn style(self, role: Role) -> Style {
        let plain = Style::new();
        let modified = match role {
            Role::Strong | Role::Bad => plain.add_modifier(Modifier::BOLD),
            Role::Dim => plain.add_modifier(Modifier::DIM),
            Role::Warn if self.palette == Palette::Colourless => plain.add_modifier(Modifier::UNDERLINED),
            _ => plain,
        };
        let colour = match (self.palette, role) {
            (Palette::Colourless, _) | (_, Role::Text | Role::Dim | Role::Strong) => return modified,
            (Palette::Terminal, Role::Good) => Color::Green,
            (Palette::Terminal, Role::Warn) => Color::Yellow,
            (Palette::Terminal, Role::Bad) => Color::Red,
            (Palette::Terminal, Role::Accent) => Color::Blue,
            (Palette::Terminal, Role::Value) => Color::Magenta,
            (Palette::Bright, Role::Good) => Color::LightGreen,
            (Palette::Bright, Role::Warn) => Color::LightYellow,
            (Palette::Bright, Role::Bad) => Color::LightRed,
            (Palette::Bright, Role::Accent) => Color::LightCyan,
            (Palette::Bright, Role::Value) => Color::LightMagenta,
        };
        modified.fg(colour)
    }

    /// What marks the selected row, over whatever is there. Reversed colours would make a patchwork of it.
    #[must_use]
    pub fn selected(self, focused: bool) -> Style {
        let plain = Style::new();
        if focused {
            plain.fg(Color::Reset).add_modifier(Modifier::REVERSED).remove_modifier(Modifier::DIM)
        } else {
            plain.add_modifier(Modifier::BOLD)
        }
    }

    /// A glyph, or its ASCII replacement.
    #[must_use]
    pub const fn glyph(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.ascii { ascii } else { unicode }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses() {
        let of = |pairs: &'static [(&str, &str)]| {
            Theme::of_env(|n| pairs.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_owned()))
        };
        assert_eq!(of(&[("LANG", "en_US.UTF-8")]), Theme::default());
        assert!(of(&[("LANG", "C")]).ascii && of(&[]).ascii);
        assert!(of(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]).ascii);
        assert_eq!(of(&[("NO_COLOR", "1"), ("LANG", "C.UTF-8")]).palette, Palette::Colourless);
        assert!(of(&[("LANG", "C.UTF-8"), ("TERM", "linux")]).ascii);
    }

    #[test]
    fn no_theme_paints_a_background_and_the_colourless_one_no_colour() {
        let roles = [Role::Text, Role::Dim, Role::Strong, Role::Good, Role::Warn, Role::Bad, Role::Accent, Role::Value];
        let mut theme = Theme::default();
        for _ in 0..3 {
            for role in roles {
                assert_eq!(theme.style(role).bg, None);
                assert!(theme.palette != Palette::Colourless || theme.style(role).fg.is_none());
            }
            assert_eq!(theme.selected(true).bg, None);
            theme = theme.next();
        }
        assert_eq!(theme, Theme::default());
    }
}
