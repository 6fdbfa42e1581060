//! What screens are made of: a list with its cursor on the screen, two panes beside or above each other, sections that fold.

use super::{cursor::Cursor, keymap::Command, paint::Pen, screen::At};
use ratatui::layout::{Position, Rect};
use std::marker::PhantomData;

/// A list on the screen: its number of lines, and its area. Keys, clicks, the wheel and drawing go through it, so that
/// they agree about which line is where.
#[derive(Debug, Clone, Copy)]
pub struct ListPane {
    /// Lines of the list.
    pub len: u64,
    /// Where they are shown.
    pub area: Rect,
}

impl ListPane {
    /// A list in an area.
    #[must_use]
    pub const fn new(len: usize, area: Rect) -> Self {
        Self { len: len as u64, area }
    }

    /// Moves the cursor if the command is a movement; returns whether it is.
    pub fn command(self, cursor: &mut Cursor, command: Command) -> bool {
        let lines = super::cursor::lines(command, self.area.height);
        lines.is_some_and(|lines| {
            self.step(cursor, lines);
            true
        })
    }

    /// Moves the cursor by so many lines.
    pub fn step(self, cursor: &mut Cursor, lines: i64) {
        cursor.step(lines, self.len, self.area.height);
    }

    /// Moves the cursor to a line.
    pub fn to(self, cursor: &mut Cursor, line: u64) {
        cursor.to(line, self.len, self.area.height);
    }

    /// Which line of the list is there.
    #[must_use]
    pub fn line_at(self, cursor: &Cursor, x: u16, y: u16) -> Option<u64> {
        let down = self.area.contains(Position { x, y }).then(|| u64::from(y - self.area.y))?;
        Some(cursor.window(self.len, self.area.height).start + down).filter(|line| *line < self.len)
    }

    /// Moves the cursor to the line that is there; whether there is one.
    pub fn click(self, cursor: &mut Cursor, x: u16, y: u16) -> bool {
        let line = self.line_at(cursor, x, y);
        line.is_some_and(|line| {
            self.to(cursor, line);
            true
        })
    }

    /// Draws what is shown: `each` gets the number of a line and its place. The selected one is marked, if `marked` says
    /// whether the list has the focus.
    pub fn draw(
        self,
        cursor: &Cursor,
        pen: &mut Pen<'_>,
        marked: Option<bool>,
        mut each: impl FnMut(&mut Pen<'_>, usize, Rect),
    ) {
        for (n, y) in cursor.window(self.len, self.area.height).zip(self.area.y..self.area.bottom()) {
            let row = Rect { y, height: 1, ..self.area };
            each(pen, n as usize, row);
            if let Some(focused) = marked.filter(|_| n == cursor.at.min(self.len - 1)) {
                pen.select(row, focused);
            }
        }
    }
}

/// The next line that `is` one, after or before the selected one; with `round` also after the end.
pub fn next(at: u64, len: usize, forward: bool, round: bool, is: impl Fn(usize) -> bool) -> Option<u64> {
    let at = (at as usize).min(len);
    let behind = (at + 1).min(len);
    let rest = if round { 0..behind } else { 0..0 };
    let found = if forward {
        (behind..len).chain(rest).find(|n| is(*n))
    } else {
        let rest = if round { at..len } else { 0..0 };
        (0..at).rev().chain(rest.rev()).find(|n| is(*n))
    };
    found.map(|n| n as u64)
}

/// One of two panes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// The left or upper one: the list.
    #[default]
    First,
    /// The right or lower one: what is selected in it.
    Second,
}

impl Part {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// How a screen is divided in two.
#[derive(Debug, Clone, Copy)]
pub struct Split {
    /// From this number of columns, the panes are side by side.
    pub beside: u16,
    /// Columns of the first then, in twentieths, and columns between the two.
    pub columns: (u16, u16),
    /// From this number of lines, both are shown above each other.
    pub above: u16,
    /// Lines of the first then, in twentieths.
    pub lines: u16,
}

/// Two panes where they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitPane {
    /// The left or upper one.
    pub first: Option<Rect>,
    /// The right or lower one.
    pub second: Option<Rect>,
    /// They are side by side.
    pub beside: bool,
}

impl SplitPane {
    /// One pane alone.
    #[must_use]
    pub fn only(part: Part, area: Rect) -> Self {
        let shown = |p| Some(area).filter(|_| p == part);
        Self { first: shown(Part::First), second: shown(Part::Second), beside: false }
    }

    /// Divides a screen; where there is room for one pane only, it is that with the focus.
    #[must_use]
    pub fn of(split: Split, at: At, focus: Part) -> Self {
        let area = at.area;
        let beside = area.width >= split.beside;
        if at.is_tiny() || !beside && area.height < split.above {
            return Self::only(focus, area);
        }
        let part = |all: u16, twentieths: u16| (u32::from(all) * u32::from(twentieths) / 20) as u16;
        let (first, second) = if beside {
            let (width, gap) = (part(area.width, split.columns.0), split.columns.1);
            let x = area.x + width + gap;
            (Rect { width, ..area }, Rect { x, width: area.right() - x, ..area })
        } else {
            let height = part(area.height, split.lines);
            (Rect { height, ..area }, Rect { y: area.y + height, height: area.height - height, ..area })
        };
        Self { first: Some(first), second: Some(second), beside }
    }

    /// Which pane is there.
    #[must_use]
    pub fn part_at(&self, x: u16, y: u16) -> Option<Part> {
        let has = |pane: Option<Rect>| pane.is_some_and(|r| r.contains(Position { x, y }));
        if has(self.first) { Some(Part::First) } else { Some(Part::Second).filter(|_| has(self.second)) }
    }
}

/// Which sections of a list are folded. `S` counts them, from 0 to at most 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sections<S>(u8, PhantomData<fn(S)>);

impl<S> Default for Sections<S> {
    fn default() -> Self {
        Self(0, PhantomData)
    }
}

impl<S: Into<u8> + Copy> Sections<S> {
    /// Whether one is folded.
    pub fn has(self, section: S) -> bool {
        self.0 & 1 << section.into() != 0
    }

    /// Folds or unfolds one.
    pub fn set(&mut self, section: S, folded: bool) {
        if self.has(section) != folded {
            self.toggle(section);
        }
    }

    /// The other way round.
    pub fn toggle(&mut self, section: S) {
        self.0 ^= 1 << section.into();
    }

    /// Folds all, or unfolds all if any is folded.
    pub fn toggle_all(&mut self) {
        self.0 = if self.0 == 0 { u8::MAX } else { 0 };
    }

    /// The rows of all sections under their headings, without those of folded ones.
    pub fn rows<R>(
        self,
        all: impl IntoIterator<Item = S>,
        head: impl Fn(S) -> R,
        within: impl Fn(S) -> Vec<R>,
    ) -> Vec<R> {
        let each = all.into_iter().flat_map(|s| {
            let below = if self.has(s) { Vec::new() } else { within(s) };
            std::iter::once(head(s)).chain(below)
        });
        each.collect()
    }
}

/// The line of the heading above the selected one; the first where there is none.
pub fn head_above<R>(rows: &[R], at: u64, is_head: impl Fn(&R) -> bool) -> u64 {
    rows[..(at as usize).min(rows.len())].iter().rposition(is_head).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_click_finds_the_line_that_is_drawn_there() {
        let (mut cursor, pane) = (Cursor::default(), ListPane::new(50, Rect::new(3, 2, 20, 10)));
        pane.step(&mut cursor, 30);
        for (n, y) in cursor.window(50, 10).zip(2..) {
            assert_eq!(pane.line_at(&cursor, 5, y), Some(n));
        }
        assert_eq!([(2, 5), (23, 5), (5, 1), (5, 12)].map(|(x, y)| pane.line_at(&cursor, x, y)), [None; 4]);
        let few = ListPane::new(3, pane.area);
        assert!(few.click(&mut cursor, 5, 4) && cursor.at == 2 && !few.click(&mut cursor, 5, 5));
        assert!(
            pane.command(&mut cursor, Command::PageDown)
                && cursor.at == 11
                && !pane.command(&mut cursor, Command::Quit)
        );
    }

    #[test]
    fn the_next_one_is_looked_for_in_both_directions_and_round_the_end() {
        let is = |n: usize| n == 2 || n == 5;
        assert_eq!([0, 2, 5].map(|at| next(at, 7, true, false, is)), [Some(2), Some(5), None]);
        assert_eq!([6, 5, 2].map(|at| next(at, 7, false, false, is)), [Some(5), Some(2), None]);
        assert_eq!([next(5, 7, true, true, is), next(2, 7, false, true, is)], [Some(2), Some(5)]);
        assert_eq!([next(5, 6, true, true, |n| n == 5), next(9, 0, true, true, is)], [Some(5), None]);
    }

    #[test]
    fn a_screen_is_divided_as_there_is_room() {
        let split = Split { beside: 100, columns: (10, 3), above: 16, lines: 12 };
        let now = crate::model::WallTime::from_millis(0);
        let of = |w, h| SplitPane::of(split, At { area: Rect::new(0, 1, w, h), now }, Part::Second);
        let wide = of(101, 9);
        assert_eq!((wide.first, wide.second), (Some(Rect::new(0, 1, 50, 9)), Some(Rect::new(53, 1, 48, 9))));
        assert_eq!([of(101, 7).first, of(39, 40).first], [None; 2], "too small for two");
        assert_eq!(
            [wide.part_at(49, 1), wide.part_at(51, 1), wide.part_at(53, 5)],
            [Some(Part::First), None, Some(Part::Second)]
        );
        let high = of(80, 20);
        assert_eq!((high.first, high.second), (Some(Rect::new(0, 1, 80, 12)), Some(Rect::new(0, 13, 80, 8))));
        assert_eq!(of(80, 15), SplitPane::only(Part::Second, Rect::new(0, 1, 80, 15)));
    }
}
