//! Everything about one call: evidence from the files, in tabs.

mod tabs;
mod timing;
pub mod tree;

pub(super) use tabs::{field, role, said};
pub(super) use timing::bar;

use super::{
    cursor::Cursor,
    keymap::Command,
    kit::ListPane,
    msg::{self, Effect, Job, Ticket, Told},
    paint::Pen,
    screen::At,
    theme::{Role, Theme},
};
use crate::{
    live::{
        content::Content,
        evidence::{self, Evidence},
        row::CallRow,
    },
    model::{WallTime, receipt::PeerInfo},
    text::width,
};
use ratatui::layout::Rect;
use serde_json::Value;
use std::{path::PathBuf, sync::Arc};
use tree::Tree;

/// Evidence is read again at most this often while the selection moves by itself, milliseconds.
const AGAIN_MS: i64 = 200;

/// Where a call's evidence is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Receipts: of a session that is recorded, or `receipt_pack.jsonl`.
    pub receipts: PathBuf,
    /// Audit events: a segment, or `audit_log.jsonl`.
    pub events: PathBuf,
}

/// The call to show in detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What is known of it.
    pub row: CallRow,
    /// Where the rest is.
    pub files: Files,
    /// Its line in the receipts, from 0, where that is known.
    pub line: Option<u64>,
    /// Who took part, as far as they named themselves.
    pub who: Who,
    /// What request and answer hold, if it was sent while they crossed and is recorded nowhere.
    pub sent: [Option<Arc<Content>>; 2],
}

/// Client and server of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// The client.
    pub client: Option<PeerInfo>,
    /// The server.
    pub server: Option<PeerInfo>,
}

#[derive(Debug, Default)]
struct Found {
    evidence: Evidence,
    events: Vec<Value>,
    /// The whole receipt.
    receipt: Option<Tree>,
    /// Arguments and result, as far as they are stored.
    content: Option<Tree>,
    /// Which of them are.
    stored: [bool; 2],
    /// Of the arguments some are, and the others as their hashes.
    redacted: bool,
}

impl Found {
    /// Reads and takes apart.
    fn new(evidence: Evidence) -> Self {
        let events = evidence.events.iter().filter_map(|e| serde_json::from_slice(e).ok()).collect();
        let mut out = Self { events, ..Self::default() };
        if let Some(line) = &evidence.receipt {
            let mut content = serde_json::Map::new();
            if let Ok(Value::Object(mut members)) = serde_json::from_slice::<Value>(line) {
                for (n, (name, member)) in CONTENT.into_iter().enumerate() {
                    if let Some(value) = members.remove(member).filter(|v| !v.is_null()) {
                        content.insert(name.to_owned(), value);
                        out.stored[n] = true;
                    }
                }
                if !out.stored[0]
                    && let Some(value) = members.remove("arguments_redacted").filter(|v| !v.is_null())
                {
                    content.insert("arguments".to_owned(), value);
                    out.redacted = true;
                }
            }
            out.content = (!content.is_empty()).then(|| Tree::new("call", Value::Object(content)));
            out.receipt = Some(Tree::of_bytes("receipt", Arc::from(line.as_slice())));
        }
        Self { evidence, ..out }
    }
}

/// What is stored of a call, and where in its receipt.
const CONTENT: [(&str, &str); 2] = [("arguments", "arguments_content"), ("result", "result_content")];

/// A tab of the pane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tab {
    /// What matters, in words.
    #[default]
    Summary,
    /// How long each phase of the call took.
    Timing,
    /// Arguments and result.
    Content,
    /// The receipt as a tree.
    Receipt,
    /// The audit events.
    Events,
    /// The server's stderr around that time.
    Stderr,
}

impl Tab {
    const ALL: [Self; 6] = [Self::Summary, Self::Timing, Self::Content, Self::Receipt, Self::Events, Self::Stderr];

    const fn name(self) -> &'static str {
        match self {
            Self::Summary => "summary",
            Self::Timing => "timing",
            Self::Content => "arguments/result",
            Self::Receipt => "receipt",
            Self::Events => "events",
            Self::Stderr => "stderr",
        }
    }

    fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|t| *t == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// A line of a tab.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DetailLine {
    /// What is there; safe.
    pub pieces: Vec<(String, Role)>,
    /// What `y` copies.
    pub copy: String,
    /// What `Y` copies.
    pub path: String,
}

/// The pane that shows one call in detail.
#[derive(Debug, Default)]
pub struct Detail {
    subject: Option<Subject>,
    /// The server's stderr around that time: when, what.
    stderr: Option<Vec<(WallTime, String)>>,
    found: Option<Box<Found>>,
    /// What was sent of its content, as a tree.
    sent: Option<Tree>,
    /// What is being read, and of which state of the call.
    reading: Option<(Ticket<Box<Found>>, CallRow)>,
    /// The state of the call of which `found` is.
    known: Option<CallRow>,
    started: i64,
    tab: Tab,
    cursor: Cursor,
    search: String,
}

impl Detail {
    /// Shows a call, or nothing. The same call again only renews what is known of it; another one stops what was read for
    /// the one before.
    pub fn show(&mut self, subject: Option<Subject>) -> Vec<Effect> {
        let same = |a: &Subject, b: &Subject| a.row.invocation_id == b.row.invocation_id && a.files == b.files;
        let other = match (&self.subject, &subject) {
            (Some(a), Some(b)) => !same(a, b),
            (None, None) => false,
            _ => true,
        };
        if other {
            if let Some((ticket, _)) = self.reading.take() {
                ticket.cancel();
            }
            (self.found, self.known) = (None, None);
            self.cursor = Cursor::default();
        }
        let sent = |subject: &Option<Subject>| subject.as_ref().map(|s| s.sent.clone()).unwrap_or_default();
        if other || sent(&self.subject) != sent(&subject) {
            self.sent = tree_of_sent(&sent(&subject));
        }
        self.subject = subject;
        Vec::new()
    }

    /// Starts reading what the tab needs and is not there yet. To be called after changes and as time passes; not more often
    /// than it makes sense will anything be read.
    pub fn poll(&mut self, now: WallTime) -> Vec<Effect> {
        let needed = matches!(self.tab, Tab::Content | Tab::Receipt | Tab::Events);
        let Some(subject) = self.subject.as_ref().filter(|_| needed) else { return Vec::new() };
        let fresh = self.known.as_ref() == Some(&subject.row);
        if fresh || self.reading.is_some() || (now.millis() - self.started).abs() < AGAIN_MS {
            return Vec::new();
        }
        self.started = now.millis();
        let ticket = Ticket::new();
        self.reading = Some((ticket.clone(), subject.row.clone()));
        let subject = subject.clone();
        let job = Job::new(&ticket, "evidence", move |teller| {
            let files = &subject.files;
            let evidence = evidence::find(&files.receipts, &files.events, &subject.row, &teller.flag());
            teller.tell(Box::new(Found::new(evidence)));
        });
        vec![Effect::Start(job)]
    }

    /// Sets the server's stderr around that time; `None` if it was not recorded.
    pub fn set_stderr(&mut self, lines: Option<Vec<(WallTime, String)>>) {
        self.stderr = lines;
    }

    /// The call that is shown.
    #[must_use]
    pub const fn subject(&self) -> Option<&Subject> {
        self.subject.as_ref()
    }

    /// Does what was asked for while the pane has the focus; `at.area` is the pane. `None` if it means nothing here.
    pub fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        if command != Command::CopyRaw
            && let Some((tree, area)) = self.tree_mut(at)
            && let Some(effects) = tree.command(command, area)
        {
            return Some(effects);
        }
        let lines = self.lines(at.area.width, at.now, Theme::default());
        if ListPane::new(lines.len(), below_tabs(at.area)).command(&mut self.cursor, command) {
            return Some(Vec::new());
        }
        let mut effects = Vec::new();
        match command {
            Command::NextTab | Command::Right => self.go(self.tab.step(1)),
            Command::PreviousTab | Command::Left => self.go(self.tab.step(Tab::ALL.len() - 1)),
            Command::CopyValue | Command::CopyPath => {
                let line = usize::try_from(self.cursor.at).ok().and_then(|at| lines.get(at))?;
                let path = command == Command::CopyPath;
                let text = if path { &line.path } else { &line.copy };
                if text.is_empty() {
                    return Some(vec![Effect::Say("this line has nothing to copy".to_owned())]);
                }
                let what = if path { "the path" } else { "the value" };
                effects.push(Effect::Copy { what: what.to_owned(), text: text.clone() });
            }
            Command::CopyRaw => effects.push(self.copy_raw()),
            _ => return None,
        }
        effects.extend(self.poll(at.now));
        Some(effects)
    }

    /// The wheel over the pane, lines down.
    pub fn wheel(&mut self, lines: i64, at: At) {
        if let Some((tree, area)) = self.tree_mut(at) {
            tree.wheel(lines, area);
            return;
        }
        let len = self.lines(at.area.width, at.now, Theme::default()).len();
        ListPane::new(len, below_tabs(at.area)).step(&mut self.cursor, lines);
    }

    /// Copies the receipt as it is on disk, or what is known when there is none yet.
    pub fn copy_raw(&self) -> Effect {
        let receipt = self.found.as_ref().and_then(|f| f.evidence.receipt.as_deref());
        match (receipt, &self.subject) {
            (Some(line), _) => {
                Effect::Copy { what: "the receipt's line".to_owned(), text: String::from_utf8_lossy(line).into_owned() }
            }
            (None, Some(subject)) => Effect::Copy {
                what: "what is known about the call".to_owned(),
                text: serde_json::to_string(&subject.row).unwrap_or_default(),
            },
            (None, None) => Effect::Say("no call is selected".to_owned()),
        }
    }

    /// The tree of the tab, and which part of the pane it has: all below the tabs and what is said above it.
    fn tree_at(&self, at: At) -> Option<(&Tree, Rect)> {
        let found = self.found.as_ref();
        let tree = match self.tab {
            Tab::Content => found.and_then(|f| f.content.as_ref()).or(self.sent.as_ref())?,
            Tab::Receipt => found?.receipt.as_ref()?,
            _ => return None,
        };
        let above = 1 + self.lines(at.area.width, at.now, Theme::default()).len() as u16;
        let area = at.area;
        let above = above.min(area.height);
        Some((tree, Rect { y: area.y + above, height: area.height - above, ..area }))
    }

    fn tree_mut(&mut self, at: At) -> Option<(&mut Tree, Rect)> {
        let area = self.tree_at(at)?.1;
        let found = self.found.as_mut();
        let tree = if self.tab == Tab::Content {
            found.and_then(|f| f.content.as_mut()).or(self.sent.as_mut())
        } else {
            found?.receipt.as_mut()
        };
        Some((tree?, area))
    }

    /// Looks for text in the tree of this tab; `None` when there is none.
    pub fn search(&mut self, text: &str, at: At) -> Option<bool> {
        let (tree, area) = self.tree_mut(at)?;
        let found = tree.search(text, area);
        text.clone_into(&mut self.search);
        Some(found)
    }

    /// What is looked for in this tab, if one can look for anything.
    #[must_use]
    pub fn searched(&self) -> Option<&str> {
        let found = self.found.as_ref();
        let has = match self.tab {
            Tab::Content => self.sent.is_some() || found.is_some_and(|f| f.content.is_some()),
            Tab::Receipt => found.is_some_and(|f| f.receipt.is_some()),
            _ => false,
        };
        has.then_some(self.search.as_str())
    }

    fn go(&mut self, tab: Tab) {
        if tab != self.tab {
            self.tab = tab;
            self.cursor = Cursor::default();
            self.search.clear();
        }
    }

    /// Takes what a job of this pane said; gives back what is not for it.
    ///
    /// # Errors
    /// It is another's.
    pub fn told(&mut self, told: Told) -> Result<(), Told> {
        let found = msg::hear(self.reading.as_ref().map(|(ticket, _)| ticket), told)?;
        self.known = self.reading.take().map(|(_, row)| row);
        self.found = Some(found);
        Ok(())
    }

    /// A click in the pane.
    pub fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect> {
        if y == at.area.y {
            if let Some((_, tab)) = self.tab_places(at.area).into_iter().find(|(r, _)| (r.x..r.right()).contains(&x)) {
                self.go(tab);
            }
            return self.poll(at.now);
        }
        if let Some((tree, area)) = self.tree_mut(at)
            && y >= area.y
        {
            tree.click(y - area.y, twice, area);
            return Vec::new();
        }
        let lines = self.lines(at.area.width, at.now, Theme::default()).len();
        ListPane::new(lines, below_tabs(at.area)).click(&mut self.cursor, x, y);
        Vec::new()
    }

    fn tab_places(&self, area: Rect) -> Vec<(Rect, Tab)> {
        let all: usize = Tab::ALL.iter().map(|t| t.name().len() + 2).sum();
        let mut x = area.x;
        let mut out = Vec::new();
        for tab in Tab::ALL {
            // Where not all fit, the one that is shown and arrows.
            if all > area.width as usize && tab != self.tab {
                continue;
            }
            let w = tab.name().len() as u16 + 2;
            out.push((Rect::new(x, area.y, w, 1), tab));
            x += w;
        }
        out
    }

    /// Draws the pane, tabs first.
    pub fn draw(&self, pen: &mut Pen<'_>, at: At, focused: bool) {
        let area = at.area;
        if area.height == 0 || area.width == 0 {
            return;
        }
        let places = self.tab_places(area);
        let cut = places.len() < Tab::ALL.len();
        for (r, tab) in &places {
            let role = if *tab == self.tab { Role::Strong } else { Role::Dim };
            let room = area.right().saturating_sub(r.x);
            let used = pen.put(r.x, r.y, room, &format!(" {} ", tab.name()), role);
            if *tab == self.tab {
                let style = pen.theme.selected(focused);
                pen.over(Rect { width: used, ..*r }, style);
            }
            if cut {
                let at = Tab::ALL.iter().position(|t| t == tab).unwrap_or(0) + 1;
                let text = format!(" {at} of {}  [ ]", Tab::ALL.len());
                pen.put(r.x + used, r.y, room.saturating_sub(used), &text, Role::Dim);
            }
        }
        let tree = self.tree_at(at);
        if let Some((tree, area)) = tree {
            tree.draw(pen, area, focused);
        }
        let body = below_tabs(area);
        let lines = self.lines(body.width, at.now, pen.theme);
        let marked = (focused && tree.is_none()).then_some(true);
        ListPane::new(lines.len(), body).draw(&self.cursor, pen, marked, |pen, n, row| {
            if let Some(line) = lines.get(n) {
                detail_line(pen, line, row);
            }
        });
    }
}

/// What was sent of request and answer; of one that was cut, its beginning as text.
fn tree_of_sent(sent: &[Option<Arc<Content>>; 2]) -> Option<Tree> {
    let mut all = serde_json::Map::new();
    for ((name, _), content) in CONTENT.into_iter().zip(sent) {
        let Some(content) = content else { continue };
        let value = content.value().unwrap_or_else(|| Value::String(content.text.clone()));
        all.insert(name.to_owned(), value);
    }
    (!all.is_empty()).then(|| Tree::new("call", Value::Object(all)))
}

/// Draws one line, cut where it is too long.
pub(super) fn detail_line(pen: &mut Pen<'_>, line: &DetailLine, area: Rect) {
    let mut x = area.x;
    for (text, role) in &line.pieces {
        let room = area.right().saturating_sub(x);
        let shown = if width(text) > room as usize { pen.fitted(text, room) } else { text.clone() };
        x += pen.put(x, area.y, room, &shown, *role);
    }
}

/// All of the pane but its first line.
fn below_tabs(area: Rect) -> Rect {
    Rect { y: area.y + area.height.min(1), height: area.height.saturating_sub(1), ..area }
}
