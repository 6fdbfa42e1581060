//! What the policy would do, as a list: calls whose verdict changes, then rules and tools with their counts.

use super::judge::{Change, Changed, Judged};
use crate::{
    numbers::grouped,
    policy::{Note, dry_run::Counted},
    tui::{
        cursor::Cursor,
        kit::{ListPane, Sections, head_above, next},
        packs::words::{BAD, GOOD, LOOK},
        paint::{Pen, clean, wrapped},
        theme::{Role, Theme},
    },
};
use ratatui::layout::Rect;

/// A part of the list that folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Denied,
    Allowed,
    Unknown,
    Rules,
    Tools,
    Remarks,
}

impl From<Section> for u8 {
    fn from(section: Section) -> Self {
        section as Self
    }
}

/// Every section, in the order on the screen.
const SECTIONS: [Section; 6] =
    [Section::Denied, Section::Allowed, Section::Unknown, Section::Rules, Section::Tools, Section::Remarks];

/// A line of the list, by its index in what it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultRow {
    Head(Section),
    Call(usize),
    /// Calls of this section that are counted and not listed.
    More(Section, u64),
    Rule(usize),
    Tool(usize),
    Note(usize),
    Problem(usize),
}

#[derive(Debug, Default)]
pub(super) struct Results {
    judged: Option<Box<Judged>>,
    notes: Vec<Note>,
    folded: Sections<Section>,
    rows: Vec<ResultRow>,
    pub cursor: Cursor,
}

impl Results {
    pub fn set(&mut self, judged: Box<Judged>) {
        // Who has not moved sees what matters most.
        let held = self.selected().filter(|_| self.cursor.at > 0);
        let receipt = match held {
            Some(ResultRow::Call(n)) => self.call(n).map(|c| c.receipt.clone()),
            _ => None,
        };
        self.judged = Some(judged);
        self.renew();
        // The selection holds on to its call, or else to its heading or line.
        let found = match (receipt, held) {
            (Some(receipt), _) => self.rows.iter().position(|r| match r {
                ResultRow::Call(n) => self.call(*n).is_some_and(|c| c.receipt == receipt),
                _ => false,
            }),
            (None, Some(held)) => self.rows.iter().position(|r| *r == held),
            _ => None,
        };
        if let Some(found) = found {
            self.cursor.at = found as u64;
        }
    }

    pub fn clear(&mut self) {
        *self = Self { folded: self.folded, ..Self::default() };
    }

    pub fn remark(&mut self, notes: Vec<Note>) {
        self.notes = notes;
        self.renew();
    }

    pub fn judged(&self) -> Option<&Judged> {
        self.judged.as_deref()
    }

    pub fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    pub fn selected(&self) -> Option<ResultRow> {
        self.rows.get(self.cursor.at as usize).copied()
    }

    fn call(&self, n: usize) -> Option<&Changed> {
        self.judged.as_ref()?.calls.get(n)
    }

    fn count(&self, section: Section) -> u64 {
        let Some(judged) = &self.judged else {
            return if section == Section::Remarks { self.notes.len() as u64 } else { 0 };
        };
        let (report, total) = (&judged.report, &judged.report.total);
        match section {
            Section::Denied => total.newly_denied,
            Section::Allowed => total.newly_allowed,
            Section::Unknown => total.unknown,
            Section::Rules => report.rules.len() as u64,
            Section::Tools => report.tools.len() as u64,
            Section::Remarks => (self.notes.len() + report.problems.len()) as u64,
        }
    }

    fn renew(&mut self) {
        let there = SECTIONS.into_iter().filter(|s| self.count(*s) > 0);
        self.rows = self.folded.rows(there, ResultRow::Head, |section| self.section(section));
        self.cursor.at = self.cursor.at.min(self.len().saturating_sub(1));
    }

    fn section(&self, section: Section) -> Vec<ResultRow> {
        let count = self.count(section);
        let change = match section {
            Section::Denied => Change::Denied,
            Section::Allowed => Change::Allowed,
            Section::Unknown => Change::Unknown,
            Section::Remarks => {
                let problems = self.judged.as_ref().map_or(0, |j| j.report.problems.len());
                return (0..self.notes.len())
                    .map(ResultRow::Note)
                    .chain((0..problems).map(ResultRow::Problem))
                    .collect();
            }
            Section::Rules => return (0..count as usize).map(ResultRow::Rule).collect(),
            Section::Tools => return (0..count as usize).map(ResultRow::Tool).collect(),
        };
        let calls = self.judged.iter().flat_map(|j| j.calls.iter().enumerate());
        let mut rows: Vec<ResultRow> =
            calls.filter(|(_, c)| c.change == change).map(|(n, _)| ResultRow::Call(n)).collect();
        let more = count.saturating_sub(rows.len() as u64);
        rows.extend((more > 0).then_some(ResultRow::More(section, more)));
        rows
    }

    /// Folds or unfolds the section of a heading.
    pub fn toggle(&mut self, section: Section) {
        self.folded.toggle(section);
        self.renew();
    }

    /// Whether it is folded.
    pub fn is_folded(&self, section: Section) -> bool {
        self.folded.has(section)
    }

    /// The line of the heading above the selected one.
    pub fn head(&self) -> u64 {
        head_above(&self.rows, self.cursor.at, |r| matches!(r, ResultRow::Head(_)))
    }

    /// The next call whose verdict changes, or the one before; after the last one comes the first.
    pub fn next_call(&self, forwards: bool) -> Option<u64> {
        next(self.cursor.at, self.rows.len(), forwards, true, |n| matches!(self.rows[n], ResultRow::Call(_)))
    }

    /// The line of the text, from 1, that holds the rule of the selected line.
    pub fn line_of_rule(&self) -> Option<usize> {
        let judged = self.judged.as_ref()?;
        let rule = match self.selected()? {
            ResultRow::Call(n) => &judged.calls.get(n)?.rule,
            ResultRow::Rule(n) => &judged.report.rules.get(n)?.rule,
            ResultRow::Note(n) => return self.notes.get(n)?.line,
            _ => return None,
        };
        judged.lines.get(rule).copied()
    }

    /// What `y` takes.
    pub fn copied(&self) -> Option<(String, String)> {
        let report = self.judged.as_ref().map(|j| &j.report);
        Some(match self.selected()? {
            ResultRow::Call(n) => ("receipt id".to_owned(), self.call(n)?.receipt.clone()),
            ResultRow::Rule(n) => ("rule".to_owned(), report?.rules.get(n)?.rule.clone()),
            ResultRow::Tool(n) => ("tool".to_owned(), report?.tools.get(n)?.tool.clone()),
            ResultRow::Note(n) => ("remark".to_owned(), self.notes.get(n)?.text.clone()),
            ResultRow::Problem(n) => ("problem".to_owned(), report?.problems.get(n)?.clone()),
            ResultRow::Head(_) | ResultRow::More(..) => ("result".to_owned(), report?.headline()),
        })
    }

    /// Draws the lines that are on the screen.
    pub fn draw(&self, pen: &mut Pen<'_>, area: Rect, focused: bool) {
        ListPane::new(self.rows.len(), area).draw(&self.cursor, pen, Some(focused), |pen, n, line| {
            if let Some(row) = self.rows.get(n) {
                self.row(pen, line, *row);
            }
        });
    }

    fn row(&self, pen: &mut Pen<'_>, line: Rect, row: ResultRow) {
        let t = pen.theme;
        let report = self.judged.as_ref().map(|j| &j.report);
        match row {
            ResultRow::Head(section) => {
                let fold = if self.is_folded(section) { t.glyph("▸", ">") } else { t.glyph("▾", "v") };
                let n = grouped(self.count(section));
                let role = title_role(section);
                pen.pieces(
                    line.x,
                    line.y,
                    line.width,
                    &[
                        (fold, Role::Dim),
                        (" ", Role::Text),
                        (title(section), role),
                        ("  ", Role::Text),
                        (&n, Role::Dim),
                    ],
                );
            }
            ResultRow::Call(n) => {
                if let Some(call) = self.call(n) {
                    draw_call(pen, line, call);
                }
            }
            ResultRow::More(_, n) => {
                pen.put(
                    line.x + 2,
                    line.y,
                    line.width.saturating_sub(2),
                    &format!("and {} more", grouped(n)),
                    Role::Dim,
                );
            }
            ResultRow::Rule(n) => {
                if let Some(rule) = report.and_then(|r| r.rules.get(n)) {
                    counted(pen, line, &rule.rule, &rule.counts);
                }
            }
            ResultRow::Tool(n) => {
                if let Some(tool) = report.and_then(|r| r.tools.get(n)) {
                    counted(pen, line, &tool.tool, &tool.counts);
                }
            }
            ResultRow::Note(n) => {
                if let Some(note) = self.notes.get(n) {
                    pen.outside(line.x + 2, line.y, line.width.saturating_sub(2), &remark(note), Role::Text);
                }
            }
            ResultRow::Problem(n) => {
                if let Some(text) = report.and_then(|r| r.problems.get(n)) {
                    pen.outside(line.x + 2, line.y, line.width.saturating_sub(2), text, Role::Warn);
                }
            }
        }
    }

    /// All about the selected line, in lines of at most `columns`.
    pub fn about(&self, columns: u16) -> Vec<(String, Role)> {
        let mut out = Vec::new();
        let mut say = |text: &str, role| out.extend(wrapped(text, columns).into_iter().map(|l| (l, role)));
        let report = self.judged.as_ref().map(|j| &j.report);
        match self.selected() {
            Some(ResultRow::Call(n)) => {
                let Some(call) = self.call(n) else { return out };
                let (word, role) = change_words(call.change);
                say(&format!("{}: {word}", call.tool), role);
                say(&call.message, Role::Text);
                let line = self.line_of_rule().map_or_else(String::new, |line| format!(", line {line}"));
                say(&format!("rule {} ({}){line}", call.rule, call.reason), Role::Text);
                let at = call.at.map(|at| format!(" at {at}")).unwrap_or_default();
                say(&format!("receipt {} of {}{at}", call.receipt, call.session), Role::Dim);
            }
            Some(ResultRow::Rule(n)) => {
                let Some(rule) = report.and_then(|r| r.rules.get(n)) else { return out };
                say(&format!("{} ({}): {}", rule.rule, rule.reason, counts(&rule.counts)), Role::Text);
                for e in &rule.examples {
                    say(&format!("{}: {}", e.tool, e.message), Role::Dim);
                }
            }
            Some(ResultRow::Tool(n)) => {
                let Some(tool) = report.and_then(|r| r.tools.get(n)) else { return out };
                say(&format!("{}: {}", tool.tool, counts(&tool.counts)), Role::Text);
            }
            Some(ResultRow::Note(n)) => say(&self.notes.get(n).map(remark).unwrap_or_default(), Role::Text),
            Some(ResultRow::Problem(n)) => {
                say(report.and_then(|r| r.problems.get(n)).map_or("", String::as_str), Role::Warn);
            }
            Some(ResultRow::Head(section) | ResultRow::More(section, _)) => say(explained(section), Role::Dim),
            None => {}
        }
        out
    }
}

fn remark(note: &Note) -> String {
    note.line.map_or_else(|| note.text.clone(), |line| format!("line {line}: {}", note.text))
}

const fn title(section: Section) -> &'static str {
    match section {
        Section::Denied => "would now be denied",
        Section::Allowed => "would now be allowed",
        Section::Unknown => "unknown",
        Section::Rules => "by rule",
        Section::Tools => "by tool",
        Section::Remarks => "remarks",
    }
}

const fn title_role(section: Section) -> Role {
    match section {
        Section::Denied => Role::Bad,
        Section::Allowed => Role::Good,
        Section::Unknown | Section::Remarks => Role::Warn,
        Section::Rules | Section::Tools => Role::Strong,
    }
}

const fn explained(section: Section) -> &'static str {
    match section {
        Section::Denied => "Recorded calls that this policy denies. In guard mode they would not reach the server.",
        Section::Allowed => "Calls that were denied when they were recorded and that this policy allows.",
        Section::Unknown => {
            "Calls that depend on a rule about arguments, but whose arguments were not stored (--store-args). Nothing is \
             guessed."
        }
        Section::Rules => "Every rule that decided a call; most changes first.",
        Section::Tools => "Every tool that was called; most changes first.",
        Section::Remarks => "Notes on the policy, and recordings that could not be read.",
    }
}

const fn change_words(change: Change) -> (&'static str, Role) {
    match change {
        Change::Denied => ("would now be denied", Role::Bad),
        Change::Allowed => ("was denied, would now be allowed", Role::Good),
        Change::Unknown => ("unknown", Role::Warn),
    }
}

fn draw_call(pen: &mut Pen<'_>, line: Rect, call: &Changed) {
    let (glyph, role) = match call.change {
        Change::Denied => (BAD, Role::Bad),
        Change::Allowed => (GOOD, Role::Good),
        Change::Unknown => (LOOK, Role::Warn),
    };
    let used = 2 + pen.put(line.x + 2.min(line.width), line.y, 2, pen.theme.glyph(glyph.0, glyph.1), role) + 1;
    let mut room = line.width.saturating_sub(used);
    if room >= 50 {
        let time: String = call.at.map(|at| pen.theme.zone.clock(at).chars().take(8).collect()).unwrap_or_default();
        pen.right(line.x + used, line.y, room, &time, Role::Dim);
        room -= 9;
    }
    let name = if room >= 30 { (room * 2 / 5).min(32) } else { room };
    pen.outside(line.x + used, line.y, name, &call.tool, Role::Text);
    pen.outside(line.x + used + name + 1, line.y, room.saturating_sub(name + 1), &call.rule, Role::Dim);
}

/// A name and counts; as many of them as there is room for.
fn counted(pen: &mut Pen<'_>, line: Rect, name: &str, c: &Counted) {
    let x = line.x + 2.min(line.width);
    let room = line.width.saturating_sub(2);
    let words = short_counts(c, pen.theme);
    let taken = if room >= 30 { (crate::text::width(&words) as u16 + 1).min(room) } else { 0 };
    pen.outside(x, line.y, room - taken, name, Role::Text);
    if taken > 0 {
        let role = if c.newly_denied > 0 { Role::Bad } else { Role::Dim };
        pen.right(x, line.y, room, &words, role);
    }
}

fn short_counts(c: &Counted, theme: Theme) -> String {
    let mut out = Vec::new();
    for (n, glyph) in [(c.denied, BAD), (c.unknown, ("?", "?")), (c.allowed, GOOD)] {
        if n > 0 {
            out.push(format!("{} {}", theme.glyph(glyph.0, glyph.1), grouped(n)));
        }
    }
    out.join("  ")
}

fn counts(c: &Counted) -> String {
    let mut out = vec![format!("{} of {} allowed", grouped(c.allowed), grouped(c.calls))];
    for (n, what) in [
        (c.denied, "denied"),
        (c.newly_denied, "of these newly"),
        (c.unknown, "unknown"),
        (c.newly_allowed, "newly allowed"),
    ] {
        if n > 0 {
            out.push(format!("{} {what}", grouped(n)));
        }
    }
    clean(&out.join(", "))
}
