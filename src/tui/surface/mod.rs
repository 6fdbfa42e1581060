//! The screen of surfaces: what servers offer, what of it nobody approved, and the decision about it.

mod draw;
mod read;
#[cfg(test)]
mod tests;

use super::{
    cursor::Cursor,
    input::TextInput,
    keymap::{Command, Contexts},
    kit::{self, ListPane},
    msg::{self, Effect, Ticket, Told},
    paint::{Pen, clean},
    screen::{At, Screen},
};
use crate::{
    approvals::{chain::Chain, lockfile::named},
    model::{
        WallTime,
        surface::{Decision, Facet, State},
    },
    numbers::counted,
    paths::DEFAULT_AUDIT_DIR,
    surface::diff::{Group, groups},
};
use crossterm::event::{KeyCode, KeyEvent};
use draw::Panes;
use read::{Decided, Place, Read, Server, Stamp};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// How often it is looked for something new, milliseconds.
const LOOK_MS: i64 = 2000;

/// Which pane has the focus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Pane {
    /// The servers.
    #[default]
    Servers,
    /// Changes and items of the selected one.
    Rows,
    /// What is selected among those.
    Detail,
}

/// A line of the middle pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// A group of equal changes.
    Group(usize),
    /// The heading of a facet.
    Facet(Facet),
    /// An item.
    Item(usize),
}

/// State of the screen.
#[derive(Debug)]
pub struct SurfaceScreen {
    place: Place,
    /// Whether it is looked for drift while other screens are shown.
    watches: bool,
    servers: Vec<Server>,
    chain: Option<Chain>,
    stamp: Option<Stamp>,
    looked: Option<WallTime>,
    problem: Option<String>,
    search: Option<Ticket<Read>>,
    job: Option<Ticket<Decided>>,
    /// What became of a decision, until the files have been read again.
    answer: Option<Decided>,
    listed: bool,
    focus: Pane,
    at_server: Cursor,
    at_row: Cursor,
    detail_top: u64,
    groups: Vec<Group>,
    rows: Vec<Row>,
    /// The root for which a second `A` approves everything.
    asked: Option<String>,
    reason: Option<String>,
    typing: Option<TextInput>,
    /// Drift that was said, by server: its root.
    said: HashMap<String, Option<String>>,
}

impl SurfaceScreen {
    /// A screen of this audit directory, and of the gateway that keeps its files in `gateway` or below the user directory.
    /// With `watches`, drift is said on every screen.
    #[must_use]
    pub fn new(dir: Option<&Path>, gateway: Option<PathBuf>, watches: bool) -> Self {
        let dir = dir.map_or_else(|| PathBuf::from(DEFAULT_AUDIT_DIR), Path::to_owned);
        Self {
            place: Place { dir, home: None, gateway },
            watches,
            servers: Vec::new(),
            chain: None,
            stamp: None,
            looked: None,
            problem: None,
            search: None,
            job: None,
            answer: None,
            listed: false,
            focus: Pane::default(),
            at_server: Cursor::default(),
            at_row: Cursor::default(),
            detail_top: 0,
            groups: Vec::new(),
            rows: Vec::new(),
            asked: None,
            reason: None,
            typing: None,
            said: HashMap::new(),
        }
    }

    /// The same with another user directory.
    #[cfg(test)]
    #[must_use]
    pub fn at_home(mut self, home: PathBuf) -> Self {
        self.place.home = Some(home);
        self
    }

    /// It is shown now.
    pub fn shown(&mut self) -> Vec<Effect> {
        self.look(None)
    }

    /// Looks for something new from time to time, where anybody waits for it.
    pub fn tick(&mut self, now: WallTime, is_shown: bool) -> Vec<Effect> {
        let waited = self.looked.is_none_or(|then| now.millis() - then.millis() >= LOOK_MS);
        if !(self.watches || is_shown) || !waited || self.search.is_some() {
            return Vec::new();
        }
        self.looked = Some(now);
        self.look(self.stamp.clone())
    }

    fn look(&mut self, before: Option<Stamp>) -> Vec<Effect> {
        if let Some(old) = self.search.take() {
            old.cancel();
        }
        let ticket = Ticket::new();
        let job = read::read(&ticket, self.place.clone(), before);
        self.search = Some(ticket);
        vec![Effect::Start(job)]
    }

    fn server(&self) -> Option<&Server> {
        self.servers.get(self.at_server.at as usize)
    }

    fn row(&self) -> Option<Row> {
        self.rows.get(self.at_row.at as usize).copied()
    }

    fn read(&mut self, read: Read, at: At) -> Vec<Effect> {
        self.search = None;
        let (servers, stamp, chain) = match read {
            Read::Same => return Vec::new(),
            Read::Failed(why, stamp) => {
                let is_new = self.problem.as_ref() != Some(&why) || self.answer.take().is_some();
                (self.problem, self.stamp, self.listed) = (Some(why.clone()), Some(stamp), true);
                let warn = is_new.then(|| Effect::Warn(format!("surfaces: {}", clean(&why))));
                return warn.into_iter().collect();
            }
            Read::Servers(servers, stamp, chain) => (servers, stamp, chain),
        };
        let selected = self.server().map(|s| s.id().to_owned());
        (self.problem, self.stamp, self.chain, self.listed) = (None, Some(stamp), Some(*chain), true);
        self.servers = servers;
        let found = selected.and_then(|id| self.servers.iter().position(|s| s.id() == id));
        self.at_server.at = found.unwrap_or_default() as u64;
        self.settle(at);
        let drift = self.new_drift();
        // What became of a decision is said with what follows from it.
        match self.answer.take() {
            Some(Ok(text)) => vec![Effect::Say(clean(&text))],
            Some(Err(why)) => vec![Effect::Warn(clean(&why))],
            None => drift,
        }
    }

    /// Says drift that was not said before.
    fn new_drift(&mut self) -> Vec<Effect> {
        let mut out = Vec::new();
        for server in &self.servers {
            let root = server.summary.root.as_ref().ok().cloned();
            if !server.drifts() {
                self.said.remove(server.id());
            } else if self.said.insert(server.id().to_owned(), root.clone()) != Some(root) {
                let words = server.words();
                out.push(Effect::Warn(format!("drift: {} {words}; 6 shows it", clean(server.id()))));
            }
        }
        out
    }

    /// Makes the lines of the selected server again.
    fn settle(&mut self, at: At) {
        let before = self.row();
        self.rows.clear();
        self.groups.clear();
        let Some(server) = self.servers.get(self.at_server.at as usize) else { return };
        if server.summary.decided {
            self.groups = groups(server.summary.outcome.differences());
        }
        self.rows.extend((0..self.groups.len()).map(Row::Group));
        for facet in [
            Facet::Instructions,
            Facet::Capabilities,
            Facet::Tools,
            Facet::Prompts,
            Facet::ResourceTemplates,
            Facet::Resources,
        ] {
            let items = server.summary.items.iter().enumerate().filter(|(_, i)| i.pin.facet == facet);
            let items: Vec<Row> = items.map(|(n, _)| Row::Item(n)).collect();
            if !items.is_empty() {
                self.rows.push(Row::Facet(facet));
                self.rows.extend(items);
            }
        }
        let same = before.and_then(|row| self.rows.iter().position(|r| *r == row));
        let rows = Panes::of(at, self.focus).rows.unwrap_or_default();
        self.at_row.to(same.unwrap_or_default() as u64, self.rows.len() as u64, rows.height);
        self.detail_top = 0;
    }

    /// The items that the selected line is about.
    fn chosen(&self) -> Vec<(Facet, String)> {
        let Some(server) = self.server() else { return Vec::new() };
        match self.row() {
            Some(Row::Item(n)) => {
                let pin = &server.summary.items[n].pin;
                vec![(pin.facet, pin.name.clone())]
            }
            Some(Row::Group(n)) => {
                let group = &self.groups[n];
                let of = |facet: Facet| group.names.iter().map(move |name| (facet, name.clone()));
                group.facet.into_iter().flat_map(of).collect()
            }
            Some(Row::Facet(facet)) => {
                let of_it = server.summary.items.iter().filter(|i| i.pin.facet == facet && i.state != State::Blocked);
                of_it.map(|i| (i.pin.facet, i.pin.name.clone())).collect()
            }
            None => Vec::new(),
        }
    }

    fn take(&mut self, decision: Decision, items: Vec<(Facet, String)>) -> Vec<Effect> {
        if self.job.as_ref().is_some_and(|job| !job.is_over()) {
            return vec![Effect::Warn("a decision is being written".to_owned())];
        }
        let (Some(server), Some(chain)) = (self.server().cloned(), self.chain.clone()) else { return Vec::new() };
        let ticket = Ticket::new();
        let job = read::take(&ticket, self.place.clone(), (server, chain), (decision, items), self.reason.take());
        self.job = Some(ticket);
        vec![Effect::Start(job)]
    }

    fn decide(&mut self, decision: Decision) -> Vec<Effect> {
        let items = self.chosen();
        if items.is_empty() {
            return vec![Effect::Warn("select an item or a group of changes".to_owned())];
        }
        self.take(decision, items)
    }

    /// Asks first: root and counts are said.
    fn approve_all(&mut self) -> Vec<Effect> {
        let Some(server) = self.server() else { return Vec::new() };
        let root = match &server.summary.root {
            Ok(root) => root.clone(),
            Err(why) => return vec![Effect::Warn(format!("incomplete, and cannot be approved: {}", clean(why)))],
        };
        let items = counted(server.summary.items.len() as u64, "item");
        let text = format!("A again approves all {items} of {}, root {}", clean(server.id()), root);
        if self.asked.take().as_ref() == Some(&root) {
            return self.take(Decision::Approve, Vec::new());
        }
        self.asked = Some(root);
        vec![Effect::Say(text)]
    }

    /// Reads the files again; has the selected service looked at first, if it is one.
    fn again(&mut self) -> Vec<Effect> {
        let service = self.server().and_then(|s| Some((s.service.clone()?, s.id().to_owned())));
        let Some((service, name)) = service else { return self.look(None) };
        if self.job.as_ref().is_some_and(|job| !job.is_over()) {
            return vec![Effect::Warn("the gateway is busy with what was asked before".to_owned())];
        }
        let said = Effect::Say(format!("{} is looked at…", clean(&name)));
        let ticket = Ticket::new();
        let job = read::check(&ticket, service, name);
        self.job = Some(ticket);
        vec![said, Effect::Start(job)]
    }

    fn decided(&mut self, decided: Decided) -> Vec<Effect> {
        self.job = None;
        self.answer = Some(decided);
        self.look(None)
    }

    fn typed_reason(&mut self, keep: bool) -> Vec<Effect> {
        let Some(line) = self.typing.take() else { return Vec::new() };
        if keep {
            self.reason = Some(line.text().trim().to_owned()).filter(|text| !text.is_empty());
        }
        Vec::new()
    }

    fn next_pane(&mut self, forward: bool) {
        self.focus = match (self.focus, forward) {
            (Pane::Servers, true) | (Pane::Detail, false) => Pane::Rows,
            (Pane::Rows, true) | (Pane::Servers, false) => Pane::Detail,
            (Pane::Detail, true) | (Pane::Rows, false) => Pane::Servers,
        };
    }

    fn step(&mut self, command: Command, at: At) -> bool {
        let panes = Panes::of(at, self.focus);
        let area = |pane: Option<ratatui::layout::Rect>| pane.unwrap_or_default();
        match self.focus {
            Pane::Servers => {
                let before = self.at_server.at;
                let list = ListPane::new(self.servers.len(), area(panes.servers));
                let moved = list.command(&mut self.at_server, command);
                if moved && self.at_server.at != before {
                    self.at_row = Cursor::default();
                    self.settle(at);
                }
                moved
            }
            Pane::Rows => {
                let moved = ListPane::new(self.rows.len(), area(panes.rows)).command(&mut self.at_row, command);
                if moved {
                    self.detail_top = 0;
                }
                moved
            }
            Pane::Detail => {
                let pane = area(panes.detail);
                let lines = draw::detail(self, pane.width).len() as u64;
                let Some(step) = super::cursor::lines(command, pane.height) else { return false };
                let last = lines.saturating_sub(u64::from(pane.height));
                self.detail_top = self.detail_top.saturating_add_signed(step).min(last);
                true
            }
        }
    }

    fn next_change(&mut self, forward: bool, at: At) -> Vec<Effect> {
        let items = self.server().map(|s| s.summary.items.iter().map(|i| i.state.passes()).collect::<Vec<_>>());
        let items = items.unwrap_or_default();
        let open = |n: usize| match self.rows[n] {
            Row::Group(_) => true,
            Row::Facet(_) => false,
            Row::Item(i) => !items.get(i).copied().unwrap_or(true),
        };
        let Some(line) = kit::next(self.at_row.at, self.rows.len(), forward, false, open) else {
            return vec![Effect::Say("nothing else in this direction that is not approved".to_owned())];
        };
        let pane = Panes::of(at, Pane::Rows).rows.unwrap_or_default();
        self.focus = Pane::Rows;
        ListPane::new(self.rows.len(), pane).to(&mut self.at_row, line);
        self.detail_top = 0;
        Vec::new()
    }

    fn copy(&self, raw: bool) -> Option<Vec<Effect>> {
        let server = self.server()?;
        let item = match self.row().filter(|_| self.focus != Pane::Servers) {
            Some(Row::Item(n)) => Some(&server.summary.items[n]),
            _ => None,
        };
        let (what, text) = match item {
            Some(i) if raw => ("definition", i.content.clone().unwrap_or_else(|| i.pin.hash.clone())),
            Some(i) => ("item", named(i.pin.facet, &i.pin.name)),
            None => ("root", server.summary.root.clone().unwrap_or_else(|why| why)),
        };
        Some(vec![Effect::Copy { what: what.to_owned(), text }])
    }
}

impl Screen for SurfaceScreen {
    fn place(&self) -> Contexts {
        if self.typing.is_some() { Contexts::EDITOR } else { Contexts::SURFACE }
    }

    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        if self.typing.is_some() {
            return Some(self.typed_reason(command == Command::Write));
        }
        if command != Command::ApproveAll {
            self.asked = None;
        }
        if self.step(command, at) {
            return Some(Vec::new());
        }
        match command {
            Command::Enter | Command::Right if self.focus != Pane::Detail => self.next_pane(true),
            Command::Left | Command::Back if self.focus != Pane::Servers => self.next_pane(false),
            Command::NextPane => self.next_pane(true),
            Command::PreviousPane => self.next_pane(false),
            Command::Approve => return Some(self.decide(Decision::Approve)),
            Command::ApproveAll => return Some(self.approve_all()),
            Command::Block => return Some(self.decide(Decision::Block)),
            Command::Reason => self.typing = Some(TextInput::new(self.reason.as_deref().unwrap_or_default())),
            Command::Reread => return Some(self.again()),
            Command::Next => return Some(self.next_change(true, at)),
            Command::Previous => return Some(self.next_change(false, at)),
            Command::CopyValue | Command::CopyPath => return self.copy(false),
            Command::CopyRaw => return self.copy(true),
            _ => return None,
        }
        Some(Vec::new())
    }

    fn told(&mut self, told: Told, at: At) -> Result<Vec<Effect>, Told> {
        let told = match msg::hear(self.search.as_ref(), told) {
            Ok(read) => return Ok(self.read(read, at)),
            Err(told) => told,
        };
        self.decided_of(told)
    }

    fn typed(&mut self, event: KeyEvent, _at: At) -> Vec<Effect> {
        if event.code == KeyCode::Enter {
            return self.typed_reason(true);
        }
        if let Some(line) = &mut self.typing {
            line.key(event);
        }
        Vec::new()
    }

    fn pasted(&mut self, text: &str, _at: At) -> Vec<Effect> {
        if let Some(line) = &mut self.typing {
            line.paste(text);
        }
        Vec::new()
    }

    fn click(&mut self, x: u16, y: u16, _twice: bool, at: At) -> Vec<Effect> {
        let panes = Panes::of(at, self.focus);
        if let Some(area) = panes.servers
            && ListPane::new(self.servers.len(), area).click(&mut self.at_server, x, y)
        {
            self.focus = Pane::Servers;
            self.at_row = Cursor::default();
            self.settle(at);
        } else if let Some(area) = panes.rows
            && ListPane::new(self.rows.len(), area).click(&mut self.at_row, x, y)
        {
            self.focus = Pane::Rows;
            self.detail_top = 0;
        }
        Vec::new()
    }

    fn wheel(&mut self, _x: u16, _y: u16, lines: i64, at: At) -> Vec<Effect> {
        let command = if lines < 0 { Command::Up } else { Command::Down };
        for _ in 0..lines.unsigned_abs() {
            self.step(command, at);
        }
        Vec::new()
    }

    fn draw(&self, pen: &mut Pen<'_>, at: At) {
        draw::screen(self, pen, at);
    }

    fn title(&self) -> String {
        let drifting = self.servers.iter().filter(|s| s.drifts()).count() as u64;
        let all = counted(self.servers.len() as u64, "server");
        match (self.listed, drifting) {
            (false, _) => "looking…".to_owned(),
            (true, 0) => all,
            (true, n) => format!("{all}, {n} changed"),
        }
    }
}

impl SurfaceScreen {
    fn decided_of(&mut self, told: Told) -> Result<Vec<Effect>, Told> {
        msg::hear(self.job.as_ref(), told).map(|decided| self.decided(decided))
    }
}
