//! Which part of the screen is what.

use super::Tab;
use crate::tui::{
    kit::{Part, Split, SplitPane},
    screen::At,
};
use ratatui::layout::Rect;

/// The list of receipts, and the selected one.
const SPLIT: Split = Split { beside: 100, columns: (9, 3), above: BELOW, lines: 9 };
/// The same for the stages, so that a hash still fits beside them.
const WITH_HASHES: u16 = 126;
/// Columns of the stages beside the rest, and where there is more room.
const STAGES: [u16; 2] = [46, 54];
/// From this number of lines, the detail is below the list.
const BELOW: u16 = 18;
/// Lines of what is said of the selected event.
const EVENT: u16 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Panes {
    /// The names of the parts.
    pub tabs: Rect,
    /// The names of the columns.
    pub head: Rect,
    pub list: Rect,
    /// What is beside or below it.
    pub side: Option<Rect>,
    /// Whether it is beside the list, not below.
    pub beside: bool,
    /// One line about the list.
    pub status: Rect,
    /// Calls that run, below the list.
    pub running: Rect,
    /// All but the tabs.
    pub body: Rect,
}

impl Panes {
    /// `running` calls have no receipt yet.
    pub(super) fn of(tab: Tab, inside: bool, running: usize, at: At) -> Self {
        let all = at.area;
        let bar = u16::from(all.height >= 4);
        let tabs = Rect { height: bar, ..all };
        let body = Rect { y: all.y + bar, height: all.height - bar, ..all };
        let none = Rect { height: 0, ..body };
        let mut panes =
            Self { tabs, head: none, list: body, side: None, beside: false, status: none, running: none, body };
        match tab {
            Tab::Verification => {
                if body.width >= WITH_HASHES {
                    panes.beside = true;
                    let stages = STAGES[usize::from(body.width >= WITH_HASHES + 8)];
                    panes.side = Some(Rect { width: stages, ..body });
                    let x = body.x + stages + 2;
                    panes.list = Rect { x, width: body.right() - x, ..body };
                }
            }
            Tab::Receipts => {
                let split = if inside && body.width < SPLIT.beside {
                    SplitPane::only(Part::Second, body)
                } else {
                    SplitPane::of(SPLIT, At { area: body, ..at }, if inside { Part::Second } else { Part::First })
                };
                (panes.side, panes.beside) = (split.second, split.beside);
                let list = split.first.unwrap_or(body);
                panes.split(list);
                panes.below(running);
            }
            Tab::Timeline | Tab::Surface => {}
            Tab::Chain | Tab::Messages => {
                let mut list = body;
                if body.height >= BELOW && !at.is_tiny() {
                    list.height = body.height - EVENT - 1;
                    panes.side = Some(Rect { y: list.bottom(), height: EVENT + 1, ..body });
                }
                panes.split(list);
            }
        }
        panes
    }

    /// Column names above a list, one line about it below.
    fn split(&mut self, list: Rect) {
        let head = u16::from(list.height >= 6);
        let foot = u16::from(list.height >= 3);
        self.head = Rect { height: head, ..list };
        self.list = Rect { y: list.y + head, height: list.height - head - foot, ..list };
        self.status = Rect { y: self.list.bottom(), height: foot, ..list };
    }

    /// Puts this many lines below the list, but at most a third of the area.
    fn below(&mut self, lines: usize) {
        let height = u16::try_from(lines).unwrap_or(u16::MAX).min(self.list.height / 3);
        self.list.height -= height;
        self.running = Rect { y: self.list.bottom(), height, ..self.list };
    }
}
