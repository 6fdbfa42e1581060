//! Contents of the first and the last line, both for drawing and for mouse clicks.

use super::{
    keymap::{self, Command, Contexts},
    msg::ScreenId,
};
use crate::text::width;
use std::ops::Range;

const TABS: [(ScreenId, &str); 6] = [
    (ScreenId::Live, "Live"),
    (ScreenId::Packs, "Packs"),
    (ScreenId::Pack, "Pack"),
    (ScreenId::Diff, "Diff"),
    (ScreenId::Policy, "Policy"),
    (ScreenId::Surface, "Surface"),
];

/// Screens' names, each with its number and its columns, where `shown` is on the screen.
pub fn tabs(shown: ScreenId, columns: u16) -> impl Iterator<Item = (Range<u16>, ScreenId, String)> {
    let mut x = 0;
    // Where not all fit, the one that is shown.
    let all = TABS.iter().enumerate().filter(move |(_, (id, _))| columns >= 70 || *id == shown);
    all.map(move |(n, (id, name))| {
        let text = format!(" {} {name} ", n + 1);
        let from = x;
        x += text.len() as u16;
        (from..x, *id, text)
    })
}

/// Which screen's name is at a column of the header.
pub fn tab_at(shown: ScreenId, columns: u16, column: u16) -> Option<ScreenId> {
    tabs(shown, columns).find(|(r, ..)| r.contains(&column)).map(|(_, id, _)| id)
}

/// Hints that fit, with their columns.
pub fn hints(place: Contexts, columns: u16) -> Vec<(u16, String, Command)> {
    let mut x = 0;
    let mut out = Vec::new();
    for b in keymap::footer(place) {
        let Some(key) = b.keys.first() else { continue };
        let text = format!("{key} {}", b.command.word());
        let w = width(&text) as u16;
        if x + w > columns {
            break;
        }
        out.push((x, text, b.command));
        x += w + 2;
    }
    out
}

/// Which hint is at a column of the footer.
pub fn hint_at(place: Contexts, columns: u16, column: u16) -> Option<Command> {
    let found = hints(place, columns);
    found.into_iter().find(|(x, text, _)| (*x..*x + width(text) as u16).contains(&column)).map(|(_, _, c)| c)
}

/// How many lines the help of a place has.
#[must_use]
pub fn help_lines(place: Contexts) -> usize {
    keymap::TABLE.iter().filter(|b| b.contexts.has(place)).count()
}
