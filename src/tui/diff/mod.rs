//! The diff screen: what each pack verified to, then what differs, in one list; beside it or below it the selected difference.

mod detail;
mod list;
mod rows;
#[cfg(test)]
mod tests;

use super::{
    cursor::{self, Cursor},
    keymap::{Command, Contexts},
    kit::{self, ListPane, Part, Sections, Split, SplitPane},
    msg::{self, Effect, Job, Target, Teller, Ticket, Told},
    paint::{Pen, clean},
    screen::{At, Screen},
    theme::{Role, Theme},
};
use crate::{
    error::Failure,
    filter::{Filter, FilterError},
    numbers::{grouped, percent, size},
    pack::{
        diff::{Answer, DiffError, Document, diff},
        verify::{Progress, Stage, VerifyError, VerifyOptions},
    },
};
use ratatui::layout::Rect;
use rows::{DiffRow, Section};
use std::{ops::ControlFlow, path::PathBuf};

/// The list and what is selected in it.
const SPLIT: Split = Split { beside: 120, columns: (10, 3), above: 16, lines: 12 };

/// What its jobs say.
#[derive(Debug)]
pub enum DiffUpdate {
    /// How far the verification of one side is.
    Progress(Side, Progress),
    /// The finished comparison.
    Done(Box<Document>),
    /// The user stopped the comparison.
    Stopped,
    /// The packs could not be compared.
    Failed(Failure),
}

/// One of the two packs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Pack A, the baseline.
    A,
    /// What is compared with it.
    B,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Nothing,
    Running(Side, Option<Progress>),
    Done(Box<Document>),
    Stopped,
    Failed(Failure),
}

/// State of the screen Diff.
#[derive(Debug, Default)]
pub struct DiffScreen {
    signers: Vec<String>,
    asked: Option<(PathBuf, PathBuf)>,
    ticket: Option<Ticket<DiffUpdate>>,
    state: State,
    filter_text: String,
    filter: Filter,
    folds: Sections<Section>,
    rows: Vec<DiffRow>,
    cursor: Cursor,
    /// The row that the user chose; it is selected again when the filter that hid it is removed.
    held: Option<DiffRow>,
    focus: Part,
    /// The detail has all of the screen.
    whole: bool,
    detail: Cursor,
}

impl DiffScreen {
    /// Nothing is compared yet; packs of these signers are trusted.
    #[must_use]
    pub fn new(signers: Vec<String>) -> Self {
        Self { signers, ..Self::default() }
    }

    /// Compares pack `b` with the baseline `a`.
    pub fn compare(&mut self, a: PathBuf, b: PathBuf) -> Vec<Effect> {
        self.cancel();
        let ticket = Ticket::new();
        self.ticket = Some(ticket.clone());
        self.state = State::Running(Side::A, None);
        self.asked = Some((a.clone(), b.clone()));
        (self.rows, self.held) = (Vec::new(), None);
        (self.cursor, self.detail) = (Cursor::default(), Cursor::default());
        (self.focus, self.whole) = (Part::First, false);
        let options = VerifyOptions { signers: self.signers.clone(), ..VerifyOptions::default() };
        let job = Job::new(&ticket, "compare", move |teller| {
            teller.tell(work(&a, &b, &options, teller));
        });
        vec![Effect::Start(job)]
    }

    fn cancel(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.cancel();
        }
    }

    fn document(&self) -> Option<&Document> {
        match &self.state {
            State::Done(document) => Some(document),
            _ => None,
        }
    }

    fn places(&self, at: At) -> SplitPane {
        if self.whole && self.focus == Part::Second && at.area.width < SPLIT.beside {
            return SplitPane::only(Part::Second, at.area);
        }
        SplitPane::of(SPLIT, at, self.focus)
    }

    /// The list, and the lines of the detail.
    fn list(&self, places: &SplitPane) -> ListPane {
        ListPane::new(self.rows.len(), places.first.unwrap_or_default())
    }

    fn detail(&self, places: &SplitPane) -> ListPane {
        let lines = self.detail_lines(places, false).len();
        ListPane::new(lines, places.second.map(Self::inside).unwrap_or_default())
    }

    /// The part of a detail pane below its heading.
    fn inside(detail: Rect) -> Rect {
        Rect { y: detail.y + detail.height.min(1), height: detail.height.saturating_sub(1), ..detail }
    }

    fn selected(&self) -> Option<DiffRow> {
        self.rows.get(self.cursor.at as usize).copied()
    }

    fn detail_lines(&self, places: &SplitPane, pen_ascii: bool) -> Vec<detail::DiffLine> {
        match (self.document(), self.selected(), places.second) {
            (Some(document), Some(row), Some(area)) => {
                detail::lines(document, row, area.width, places.beside, pen_ascii)
            }
            _ => Vec::new(),
        }
    }

    /// Makes the rows again; the selected one stays selected where it still is.
    fn renew(&mut self, at: At) {
        self.rows = match &self.state {
            State::Done(document) => rows::rows(document, &self.filter, self.folds),
            _ => Vec::new(),
        };
        let found = self.held.and_then(|row| self.rows.iter().position(|r| *r == row));
        if found.is_none() {
            self.detail = Cursor::default();
        }
        let line = found.map_or(self.cursor.at, |n| n as u64);
        self.list(&self.places(at)).to(&mut self.cursor, line);
    }

    fn go(&mut self, to: u64, at: At) {
        let before = self.selected();
        self.list(&self.places(at)).to(&mut self.cursor, to);
        if self.selected() != before {
            self.detail = Cursor::default();
        }
        self.held = self.selected();
    }

    fn move_by(&mut self, lines: i64, at: At) {
        match self.focus {
            Part::First => self.go(self.cursor.at.saturating_add_signed(lines), at),
            Part::Second => self.detail(&self.places(at)).step(&mut self.detail, lines),
        }
    }

    fn problem(&mut self, forward: bool, at: At) -> Vec<Effect> {
        let places = self.places(at);
        if self.focus == Part::Second {
            let lines = self.detail_lines(&places, false);
            if let Some(line) = kit::next(self.detail.at, lines.len(), forward, false, |n| lines[n].begins) {
                self.detail(&places).to(&mut self.detail, line);
            }
            return Vec::new();
        }
        let Some(document) = self.document() else { return Vec::new() };
        let worse = |n: usize| rows::is_worse(document, self.rows[n]);
        match kit::next(self.cursor.at, self.rows.len(), forward, true, worse) {
            Some(line) => {
                self.go(line, at);
                Vec::new()
            }
            None => vec![Effect::Say("nothing in this list is worse in B".to_owned())],
        }
    }

    fn enter(&mut self, at: At) {
        if let Some(DiffRow::Head(section)) = self.selected() {
            self.held = self.selected();
            self.folds.toggle(section);
            self.renew(at);
        } else if self.document().is_some() {
            (self.focus, self.whole) = (Part::Second, true);
        }
    }

    fn left(&mut self, at: At) {
        if self.focus == Part::Second {
            (self.focus, self.whole) = (Part::First, false);
            return;
        }
        if let Some(DiffRow::Head(section)) = self.selected() {
            self.held = self.selected();
            self.folds.set(section, true);
            self.renew(at);
            return;
        }
        self.go(kit::head_above(&self.rows, self.cursor.at, |r| matches!(r, DiffRow::Head(_))), at);
    }

    fn right(&mut self, at: At) {
        match self.selected() {
            Some(DiffRow::Head(section)) if self.focus == Part::First => {
                if self.folds.has(section) {
                    self.held = self.selected();
                    self.folds.set(section, false);
                    self.renew(at);
                } else {
                    self.move_by(1, at);
                }
            }
            Some(_) if self.focus == Part::First => self.enter(at),
            _ => {}
        }
    }

    fn copy(&self, command: Command, at: At) -> Vec<Effect> {
        let (Some(document), Some(row)) = (self.document(), self.selected()) else { return Vec::new() };
        if command == Command::CopyRaw {
            let text = rows::raw(document, row);
            return vec![Effect::Copy { what: "this difference as JSON".to_owned(), text }];
        }
        let lines = self.detail_lines(&self.places(at), false);
        let line = lines.into_iter().nth(self.detail.at as usize).filter(|_| self.focus == Part::Second);
        let copied = match (line, command) {
            (Some(line), Command::CopyPath) => line.path.map(|p| ("JSON path".to_owned(), p)),
            (None, Command::CopyPath) => None,
            (Some(line), _) => line.copy,
            (None, _) => rows::copied(document, row),
        };
        match copied {
            Some((what, text)) => vec![Effect::Copy { what, text }],
            None if command == Command::CopyPath => {
                vec![Effect::Say("only places in a result have a JSON path: select one in the detail".to_owned())]
            }
            None => vec![Effect::Say("this line has nothing to copy".to_owned())],
        }
    }
}

/// Verifies and compares, on a thread of its own.
fn work(a: &std::path::Path, b: &std::path::Path, options: &VerifyOptions, teller: &Teller<DiffUpdate>) -> DiffUpdate {
    let mut side = Side::A;
    let mut begun = false;
    let compared = diff(a, b, options, None, &mut |p| {
        // The manifest is read first and at once: the second one is that of the other pack.
        if begun && matches!(p.stage, Stage::ValidateSchema | Stage::SignerTrust) {
            side = Side::B;
        }
        begun = true;
        teller.tell(DiffUpdate::Progress(side, p));
        if teller.cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match compared {
        _ if teller.cancelled() => DiffUpdate::Stopped,
        Ok(document) => DiffUpdate::Done(Box::new(document)),
        Err(DiffError::Verify(VerifyError::Cancelled)) => DiffUpdate::Stopped,
        Err(e) => DiffUpdate::Failed(e.into()),
    }
}

impl Screen for DiffScreen {
    fn subject(&self) -> Option<Target> {
        self.asked.as_ref().map(|(_, b)| Target::Pack(b.clone()))
    }

    fn place(&self) -> Contexts {
        Contexts::DIFF
    }

    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let places = self.places(at);
        let pane = if self.focus == Part::First { places.first } else { places.second.map(Self::inside) };
        let lines = cursor::lines(command, pane.map_or(1, |r| r.height));
        if let Some(lines) = lines.filter(|_| self.document().is_some()) {
            self.move_by(lines, at);
            return Some(Vec::new());
        }
        match command {
            Command::Back if matches!(self.state, State::Running(..)) => {
                self.cancel();
                self.state = State::Stopped;
                return Some(vec![Effect::Say("the comparison was cancelled".to_owned())]);
            }
            Command::Back if self.focus == Part::Second => (self.focus, self.whole) = (Part::First, false),
            Command::Verify => {
                let Some((a, b)) = self.asked.clone() else { return Some(Vec::new()) };
                return Some(self.compare(a, b));
            }
            _ if self.document().is_none() => return None,
            Command::Left => self.left(at),
            Command::Right => self.right(at),
            Command::Enter if self.focus == Part::First => self.enter(at),
            Command::Enter => self.whole = !self.whole,
            Command::NextPane | Command::PreviousPane => {
                self.focus = self.focus.other();
            }
            Command::FoldAll => {
                self.folds.toggle_all();
                self.renew(at);
            }
            Command::Next => return Some(self.problem(true, at)),
            Command::Previous => return Some(self.problem(false, at)),
            Command::CopyValue | Command::CopyPath | Command::CopyRaw => return Some(self.copy(command, at)),
            _ => return None,
        }
        Some(Vec::new())
    }

    fn told(&mut self, told: Told, at: At) -> Result<Vec<Effect>, Told> {
        match msg::hear(self.ticket.as_ref(), told)? {
            DiffUpdate::Progress(side, progress) => {
                self.state = State::Running(side, Some(progress));
                return Ok(Vec::new());
            }
            DiffUpdate::Done(document) => self.state = State::Done(document),
            DiffUpdate::Stopped => self.state = State::Stopped,
            DiffUpdate::Failed(failure) => self.state = State::Failed(failure),
        }
        self.ticket = None;
        self.renew(at);
        Ok(Vec::new())
    }

    fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect> {
        let places = self.places(at);
        match places.part_at(x, y) {
            Some(Part::First) => {
                self.focus = Part::First;
                if let Some(line) = self.list(&places).line_at(&self.cursor, x, y) {
                    self.go(line, at);
                    if twice {
                        self.enter(at);
                    }
                }
            }
            Some(Part::Second) if places.second.map(Self::inside).is_some_and(|r| y >= r.y) => {
                self.focus = Part::Second;
                self.detail(&places).click(&mut self.detail, x, y);
            }
            _ => {}
        }
        Vec::new()
    }

    fn wheel(&mut self, x: u16, y: u16, lines: i64, at: At) -> Vec<Effect> {
        let over = self.places(at).part_at(x, y).unwrap_or(Part::First);
        let focus = std::mem::replace(&mut self.focus, over);
        self.move_by(lines, at);
        self.focus = focus;
        Vec::new()
    }

    fn draw(&self, pen: &mut Pen<'_>, at: At) {
        let Some(document) = self.document() else { return self.draw_state(pen, at) };
        let places = self.places(at);
        if let Some(area) = places.first {
            let view = list::View { document, rows: &self.rows, folds: self.folds, filtered: !self.filter.is_empty() };
            view.draw(pen, area, &self.cursor, self.focus == Part::First);
        }
        if let Some(area) = places.second {
            if places.beside {
                pen.rule(area.x - 2, area.y, area.bottom());
            }
            let title = self.selected().map_or_else(String::new, |row| rows::title(document, row));
            let focused = self.focus == Part::Second;
            let inner = pen.headed(area, &clean(&title), focused);
            let lines = self.detail_lines(&places, pen.theme.ascii);
            detail::draw(pen, inner, &lines, &self.detail, focused);
        }
    }

    fn title(&self) -> String {
        match &self.state {
            State::Nothing => "no comparison".to_owned(),
            State::Running(side, _) => format!("verifying {side:?}"),
            State::Stopped => "cancelled".to_owned(),
            State::Failed(_) => "not compared".to_owned(),
            State::Done(document) => {
                let word = match document.answer {
                    Answer::NoRegression => "no regression",
                    Answer::Regression => "REGRESSION",
                    Answer::NotVerified | Answer::Unsupported => "NOT COMPARED",
                };
                if self.filter.is_empty() {
                    return word.to_owned();
                }
                let (shown, all) = rows::counts(document, &self.filter);
                format!("{} of {}  {word}", grouped(shown), grouped(all))
            }
        }
    }

    fn filter(&self) -> Option<&str> {
        self.document().map(|_| self.filter_text.as_str())
    }

    fn set_filter(&mut self, text: &str, at: At) -> Result<Vec<Effect>, FilterError> {
        self.filter = Filter::parse(text)?;
        text.clone_into(&mut self.filter_text);
        self.renew(at);
        Ok(Vec::new())
    }
}

impl DiffScreen {
    /// What is shown while there is no comparison.
    fn draw_state(&self, pen: &mut Pen<'_>, at: At) {
        let area = at.area;
        let mut y = area.y + u16::from(area.height > 6);
        let mut say = |pen: &mut Pen<'_>, text: &str, role| {
            if y < area.bottom() {
                pen.outside(area.x + 1, y, area.width.saturating_sub(2), text, role);
            }
            y += 1;
        };
        let names = self.asked.as_ref().map(|(a, b)| [(Side::A, a), (Side::B, b)]);
        match &self.state {
            State::Nothing | State::Done(_) => {
                say(pen, "No packs are compared.", Role::Strong);
                say(pen, "In the list of packs (2), m marks the baseline", Role::Dim);
                say(pen, "and d compares the selected pack with it.", Role::Dim);
                say(pen, "Or: assay diff BASELINE PACK --tui", Role::Dim);
                return;
            }
            State::Running(..) => say(pen, "Both packs are verified, then compared.", Role::Strong),
            State::Stopped => say(pen, "The comparison was cancelled.", Role::Warn),
            State::Failed(failure) => {
                say(pen, &failure.what, Role::Bad);
                if let Some(hint) = &failure.hint {
                    say(pen, hint, Role::Dim);
                }
            }
        }
        for (side, path) in names.into_iter().flatten() {
            say(pen, &format!("{side:?}  {}", path.display()), Role::Text);
            if let State::Running(now, progress) = &self.state {
                say(pen, &progress_words(side, *now, *progress), Role::Dim);
                if let Some(p) = progress.filter(|_| side == *now) {
                    let bar = bar(percent(p.done_bytes, p.total_bytes), area.width, pen.theme);
                    say(pen, &bar, Role::Accent);
                }
            }
        }
        match self.state {
            State::Running(..) => say(pen, "Esc cancels", Role::Dim),
            _ => say(pen, "v compares again", Role::Dim),
        }
        if pen.cursor.is_none() && area.height > 0 {
            pen.cursor = Some(ratatui::layout::Position::new(area.x, area.y));
        }
    }
}

fn progress_words(side: Side, now: Side, progress: Option<Progress>) -> String {
    let Some(p) = progress.filter(|_| side == now) else {
        return match (side, now) {
            (Side::A, Side::B) => "   verified".to_owned(),
            (Side::A, Side::A) => "   starting".to_owned(),
            (Side::B, _) => "   waiting".to_owned(),
        };
    };
    if side == Side::B && p.stage == Stage::SignerTrust {
        return "   verified; pairing the calls".to_owned();
    }
    let stage = p.stage.as_str().replace('_', " ");
    format!("   {} %  {stage}  {} of {}", percent(p.done_bytes, p.total_bytes), size(p.done_bytes), size(p.total_bytes))
}

fn bar(percent: u64, columns: u16, theme: Theme) -> String {
    let cells = usize::from(columns.saturating_sub(5).min(50));
    let full = cells * percent as usize / 100;
    format!("   {}{}", theme.glyph("█", "#").repeat(full), theme.glyph("░", ".").repeat(cells - full))
}
