//! The live screen: every live session of this user, and their calls as they come.

mod calls;
mod follow;
pub mod hint;
mod message;
mod previews;
pub(super) mod session;
mod sessions;
#[cfg(test)]
pub(super) mod tests;
mod view;

use super::{
    cursor::{self, Cursor},
    detail::{Detail, DetailLine, Files, Subject, Who, said},
    keymap::{Command, Contexts},
    kit::ListPane,
    msg::{Effect, Target, Told},
    paint::Pen,
    screen::{At, Screen},
    theme::{Role, Theme},
    timeline::Scope,
};
use crate::{
    filter::{Filter, FilterError},
    live::{
        client::Update,
        messages::{self, MessageRow},
        protocol::{LiveLine, PackState},
        row::CallRow,
        state::State,
    },
    model::{EventKind, SessionId, WallTime},
    numbers::counted,
    pack::timeline::{Fate, Timeline},
    text::endings,
};
use calls::{Calls, Messages};
use hint::Hint;
use previews::Previews;
use ratatui::layout::{Position, Rect};
use sessions::Sessions;
use std::{collections::BTreeMap, sync::Arc};
use view::Panes;

/// Lines of stderr that the detail shows, and how far around the call, milliseconds.
const STDERR_LINES: usize = 200;
const STDERR_MS: i64 = 5_000;

/// Where keys go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Pane {
    Sessions,
    #[default]
    Calls,
    Detail,
}

/// What the list in the middle shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Listed {
    #[default]
    Calls,
    Messages,
    /// Not a list: the calls as a picture.
    Timeline,
}

/// What is shown, or was when the screen was paused.
#[derive(Debug, Clone, Default)]
struct Seen {
    state: State,
    calls: Calls,
    messages: Messages,
    sessions: Sessions,
}

/// State of the screen Live.
#[derive(Debug, Default)]
pub struct LiveScreen {
    now: Seen,
    /// What is shown while the screen is held still.
    held: Option<Box<Seen>>,
    filter: Filter,
    filter_text: String,
    pane: Pane,
    listed: Listed,
    /// Which part of the time the picture shows.
    scope: Scope,
    /// Where the text about a message is.
    reading: Cursor,
    /// Shown, hidden, or as the width says.
    sessions_open: Option<bool>,
    /// The detail covers the rest.
    full: bool,
    detail: Detail,
    previews: Previews,
    /// Messages that recorders could not record, by the event that says so.
    missed: BTreeMap<(SessionId, u64), u64>,
    /// Whether anything was ever heard.
    heard: bool,
    /// What is skipped, in words: sessions whose cards do not parse, and those with files of a later version.
    unread: Vec<String>,
    newer: BTreeMap<SessionId, String>,
    /// What the empty screen says of this machine's servers.
    hint: Hint,
}

impl LiveScreen {
    /// A screen that has heard of nothing; while that is so, it says which servers of this place leave no evidence.
    #[must_use]
    pub fn new(place: Option<hint::Place>) -> Self {
        Self { hint: Hint::at(place), ..Self::default() }
    }

    fn seen(&self) -> &Seen {
        self.held.as_deref().unwrap_or(&self.now)
    }

    fn seen_mut(&mut self) -> &mut Seen {
        self.held.as_deref_mut().unwrap_or(&mut self.now)
    }

    /// Takes news; whether anything that is shown changed.
    pub fn live(&mut self, update: Update, at: At) -> (bool, Vec<Effect>) {
        self.heard |= !matches!(update, Update::Unread(_));
        let seen = &mut self.now;
        let (mut touched, mut crossed) = (Vec::new(), [None; 2]);
        match update {
            Update::Line(line) => {
                if let Some(c) = line.chained() {
                    touched.extend(c.call.as_ref().map(|row| row.invocation_id));
                    if c.kind == EventKind::RecorderGap {
                        self.missed.insert((c.session_id, c.cursor), messages(c.note.as_deref()));
                    }
                }
                crossed = messages::told_of(&line);
                seen.state.apply(&line);
                if let LiveLine::Session(head) = &*line {
                    seen.sessions.found(head.session.card.session_id);
                    seen.sessions.forget(&seen.state);
                }
            }
            Update::Call(row) => {
                touched.push(row.invocation_id);
                seen.state.call(*row);
            }
            Update::Unread(cards) => self.unread = cards.iter().map(ToString::to_string).collect(),
            Update::TooNew { session, why } => {
                self.newer.insert(session, why);
            }
            Update::Lost(session) => seen.sessions.lost(session),
            Update::Gone(gone) => {
                self.newer.remove(&gone.session);
                seen.sessions.gone(&gone);
                touched.extend(seen.state.died(gone.session));
            }
        }
        for invocation in touched {
            seen.calls.touched(&seen.state, invocation, &self.filter);
        }
        for id in crossed.into_iter().flatten() {
            seen.messages.touched(&seen.state, id, &self.filter);
        }
        if self.held.is_some() {
            return (false, Vec::new());
        }
        (true, self.refresh(at))
    }

    /// The selection shows what is known now.
    fn refresh(&mut self, at: At) -> Vec<Effect> {
        let height = self.panes(at).calls_body().height;
        let seen = self.held.as_deref().unwrap_or(&self.now);
        let row = seen.calls.list.selected().and_then(|i| seen.state.row(i));
        let subject = row.map(|row| Subject {
            row: row.clone(),
            files: files(&seen.state, row.session_id),
            line: None,
            who: who(&seen.state, row.session_id),
            sent: seen.state.messages().contents_of(row.session_id, row.invocation_id).map(Option::<&Arc<_>>::cloned),
        });
        let stderr = row.map(|row| stderr(&seen.state, row));
        let mut effects = self.detail.show(subject);
        self.detail.set_stderr(stderr);
        effects.extend(self.detail.poll(at.now));
        if self.listed == Listed::Calls {
            let seen = self.held.as_deref().unwrap_or(&self.now);
            let (shown, _) = seen.calls.list.window(height);
            let rows = shown.into_iter().filter_map(|i| seen.state.row(i));
            effects.extend(self.previews.poll(&seen.state, rows, at.now));
        }
        effects
    }

    /// Takes note of the time.
    pub fn tick(&mut self, now: WallTime) -> Vec<Effect> {
        let mut effects = self.detail.poll(now);
        if self.seen().state.sessions().is_empty() {
            effects.extend(self.hint.look(now));
        }
        effects
    }

    /// Whether a clock runs.
    #[must_use]
    pub fn has_clocks(&self) -> bool {
        self.held.is_none()
            && self.now.state.rows().next_back().is_some()
            && self.now.sessions.in_flight(&self.now.state) > 0
    }

    /// Whether an age is shown.
    #[must_use]
    pub fn has_ages(&self) -> bool {
        self.held.is_none() && !self.now.state.sessions().is_empty()
    }

    /// The call that is selected.
    #[cfg(test)]
    pub(super) fn selected(&self) -> Option<crate::model::InvocationId> {
        self.seen().calls.list.selected()
    }

    #[cfg(test)]
    pub(super) fn open_files_for_tests(&self) -> Option<Target> {
        self.open_files().into_iter().find_map(|e| if let Effect::Open(target) = e { Some(target) } else { None })
    }

    /// One line about what was seen.
    #[must_use]
    pub fn farewell(&self) -> String {
        let t = self.now.sessions.totals(&self.now.state);
        if self.now.state.sessions().is_empty() {
            return String::new();
        }
        format!(
            "assay: watched {}, {}, {}",
            counted(self.now.state.sessions().len() as u64, "session"),
            counted(t.finished, "call"),
            endings(t.denied, t.errors, t.timeouts)
        )
    }

    /// What is said of sessions that are passed over: the first, and how many there are.
    fn passed_over(&self) -> Option<String> {
        let sessions = self.now.state.sessions().iter();
        let events =
            sessions.filter(|(id, view)| view.unread.0 > 0 && !self.newer.contains_key(id)).map(|(id, view)| {
                let (events, why) = &view.unread;
                format!("{} of {id} not read: {why}", counted(*events, "event"))
            });
        let mut all = self.unread.iter().chain(self.newer.values()).cloned().chain(events);
        let first = all.next()?;
        let more = all.count();
        Some(if more == 0 { first } else { format!("1 of {}: {first}", more + 1) })
    }

    fn panes(&self, at: At) -> Panes {
        // Their line is the last one.
        let lines = u16::from(self.passed_over().is_some() && at.area.height > 4);
        let at = At { area: Rect { height: at.area.height - lines, ..at.area }, ..at };
        view::panes(at, self.sessions_open, self.full, self.pane == Pane::Sessions)
    }

    /// Commands of the list of calls.
    fn in_calls(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let height = self.panes(at).calls_body().height;
        let slow = self.seen().calls.slow_us();
        let beside = self.panes(at).sessions.is_some();
        let seen = self.seen_mut();
        let (calls, state) = (&mut seen.calls, &seen.state);
        if let Some(lines) = cursor::lines(command, height) {
            calls.list.step(lines, height);
            return Some(self.refresh(at));
        }
        match command {
            Command::Next | Command::Previous => {
                let forwards = command == Command::Next;
                if !calls.problem(state, forwards, slow, height) {
                    let word = if forwards { "below" } else { "above" };
                    return Some(vec![Effect::Say(format!("no denied, failed or slow call {word}"))]);
                }
            }
            Command::Enter => {
                calls.list.selected()?;
                self.full = self.panes(at).detail.is_none();
                self.pane = Pane::Detail;
            }
            Command::Right => {
                calls.list.selected()?;
                if self.panes(at).detail.is_some() {
                    self.pane = Pane::Detail;
                }
            }
            Command::Left if beside => self.pane = Pane::Sessions,
            Command::Back if seen.sessions.only().is_some() => {
                self.narrow(None);
                return Some(self.refresh(at));
            }
            Command::CopyValue => {
                let row = calls.list.selected().and_then(|i| state.row(i))?;
                let text = row.receipt_id.map_or_else(|| row.invocation_id.to_string(), |r| r.to_string());
                return Some(vec![Effect::Copy { what: format!("id {text}"), text }]);
            }
            Command::CopyRaw => return Some(vec![self.detail.copy_raw()]),
            Command::NextTab | Command::PreviousTab => return self.detail.command(command, self.detail_at(at)),
            _ => return None,
        }
        Some(self.refresh(at))
    }

    /// The calls that are listed, as a picture.
    fn timeline(&self, now: WallTime) -> Timeline {
        let seen = self.seen();
        let mut out = Timeline::default();
        for row in seen.calls.list.all().filter_map(|call| seen.state.row(call)) {
            let Some(from) = row.requested_at.or(row.ended_at) else { continue };
            let running =
                row.is_running().then(|| now.millis().saturating_sub(from.millis()).max(0).unsigned_abs() * 1000);
            let us = running.or(row.duration_ms.map(|d| d.0)).unwrap_or(0);
            let text = |name: &Option<String>| name.clone().unwrap_or_else(|| "?".to_owned());
            out.add(&text(&row.server_id), &text(&row.tool_name), from, us, Fate::of(row.outcome));
        }
        out
    }

    /// Commands of the picture.
    fn in_timeline(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let (timeline, area) = (self.timeline(at.now), self.panes(at).picture);
        if self.scope.command(command, &timeline, At { area, ..at }).is_some() {
            return Some(Vec::new());
        }
        match command {
            // The filter goes first.
            Command::Back if self.filter_text.is_empty() => {
                self.listed = Listed::Calls;
                Some(self.refresh(at))
            }
            _ => None,
        }
    }

    /// Whether the detail of a call has the keys.
    fn in_detail(&self) -> bool {
        self.pane == Pane::Detail && self.listed == Listed::Calls
    }

    /// The selected message.
    fn message(&self) -> Option<&MessageRow> {
        let seen = self.seen();
        seen.state.messages().row(seen.messages.list.selected()?)
    }

    /// The text about the selected message, in a pane so wide.
    fn message_lines(&self, columns: u16, theme: Theme) -> Vec<DetailLine> {
        let Some(row) = self.message() else { return vec![said("No message is selected.", Role::Dim)] };
        let state = &self.seen().state;
        let card = state.sessions().get(&row.session_id).and_then(|view| view.card.as_ref());
        let server = card.map(|card| card.card.server_id.as_str());
        let who = who(state, row.session_id);
        let content = state.messages().content(row).map(AsRef::as_ref);
        message::lines(row, (server, &who), content, columns, theme)
    }

    fn message_pane(&self, at: At) -> ListPane {
        let area = self.panes(at).detail_body().unwrap_or_default();
        ListPane::new(self.message_lines(area.width, Theme::default()).len(), area)
    }

    /// Commands of the list of messages, and of the text about the selected one.
    fn in_messages(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let inside = self.pane == Pane::Detail;
        let panes = self.panes(at);
        if inside && self.message_pane(at).command(&mut self.reading, command) {
            return Some(Vec::new());
        }
        let height = panes.calls_body().height;
        let Seen { state, messages, sessions, .. } = self.seen_mut();
        if let Some(lines) = cursor::lines(command, height) {
            messages.list.step(lines, height);
            self.reading = Cursor::default();
            return Some(Vec::new());
        }
        match command {
            Command::Next | Command::Previous => {
                let forwards = command == Command::Next;
                let is = |id| state.messages().row(id).is_some_and(|row| row.what.is_problem());
                if !messages.list.next(forwards, height, is) {
                    let word = if forwards { "below" } else { "above" };
                    return Some(vec![Effect::Say(format!("no error, junk or blocked message {word}"))]);
                }
                self.reading = Cursor::default();
            }
            Command::Enter | Command::Right if !inside => {
                messages.list.selected()?;
                if command == Command::Enter || panes.detail.is_some() {
                    self.full = panes.detail.is_none();
                    self.pane = Pane::Detail;
                }
            }
            Command::Back | Command::Quit | Command::Left if inside => (self.full, self.pane) = (false, Pane::Calls),
            Command::Left if panes.sessions.is_some() => self.pane = Pane::Sessions,
            Command::Back if sessions.only().is_some() => {
                self.narrow(None);
                return Some(self.refresh(at));
            }
            // The filter goes first.
            Command::Back if self.filter_text.is_empty() => {
                self.listed = Listed::Calls;
                return Some(self.refresh(at));
            }
            Command::CopyValue if inside => {
                let line =
                    self.message_lines(at.area.width, Theme::default()).into_iter().nth(self.reading.at as usize)?;
                return Some(vec![if line.copy.is_empty() {
                    Effect::Say("this line has nothing to copy".to_owned())
                } else {
                    Effect::Copy { what: "the value".to_owned(), text: line.copy }
                }]);
            }
            Command::CopyValue => {
                let text =
                    self.message().map(|row| row.method.clone().unwrap_or_else(|| row.what.word().to_owned()))?;
                return Some(vec![Effect::Copy { what: "the method".to_owned(), text }]);
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn in_sessions(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let pane = self.session_pane(at);
        if pane.command(&mut self.seen_mut().sessions.cursor, command) {
            return Some(Vec::new());
        }
        match command {
            Command::Right | Command::Back => self.pane = Pane::Calls,
            Command::Enter => {
                let seen = self.seen();
                let chosen = seen.sessions.selected(&seen.state)?;
                let only = if seen.sessions.only() == Some(chosen) { None } else { Some(chosen) };
                self.narrow(only);
                self.pane = Pane::Calls;
                return Some(self.refresh(at));
            }
            Command::CopyValue => {
                let text = self.seen().sessions.selected(&self.seen().state)?.to_string();
                return Some(vec![Effect::Copy { what: format!("id {text}"), text }]);
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn session_pane(&self, at: At) -> ListPane {
        let len = self.seen().sessions.listed(&self.seen().state).len();
        let lines = view::session_lines(&self.seen().state);
        ListPane::new(len, view::session_list(self.panes(at).sessions.unwrap_or_default(), lines))
    }

    fn detail_at(&self, at: At) -> At {
        let panes = self.panes(at);
        At { area: panes.detail_body().unwrap_or(at.area), ..at }
    }

    /// Shows only one session's calls, or all.
    fn narrow(&mut self, only: Option<SessionId>) {
        let filter = self.filter.clone();
        for seen in [Some(&mut self.now), self.held.as_deref_mut()].into_iter().flatten() {
            seen.sessions.set_only(only);
            seen.calls.only(&seen.state, only, &filter);
            seen.messages.only(&seen.state, only, &filter);
        }
    }

    /// The selected session, or that of the selected call.
    fn session(&self) -> Option<SessionId> {
        let seen = self.seen();
        match self.pane {
            Pane::Sessions => seen.sessions.selected(&seen.state),
            _ if self.listed == Listed::Messages => self.message().map(|row| row.session_id),
            _ => seen.calls.list.selected().and_then(|i| seen.state.row(i)).map(|row| row.session_id),
        }
    }

    /// The files of the selected session, on the pack screen: all its calls, also those that are no longer here.
    fn open_files(&self) -> Vec<Effect> {
        match (self.session(), self.subject()) {
            (None, _) => vec![Effect::Say("no session is selected".to_owned())],
            (_, Some(target)) => vec![Effect::Open(target)],
            (_, None) => vec![Effect::Say("it is not yet known where this session is recorded".to_owned())],
        }
    }
}

impl Screen for LiveScreen {
    fn subject(&self) -> Option<Target> {
        let id = self.session()?;
        let view = self.seen().state.sessions().get(&id)?;
        let built = view.pack.as_ref().filter(|p| matches!(p.state, PackState::Verified | PackState::Built));
        if let Some(pack) = built.and_then(|p| p.pack.clone()) {
            return Some(Target::Pack(pack));
        }
        view.card.as_ref().map(|card| Target::Journal {
            title: id.to_string(),
            segment: card.segment.clone(),
            receipts: card.receipts.clone(),
        })
    }

    fn place(&self) -> Contexts {
        match self.pane {
            Pane::Sessions => Contexts::SESSIONS,
            _ if self.listed == Listed::Messages => Contexts::MESSAGES,
            _ if self.listed == Listed::Timeline => Contexts::TIMELINE,
            Pane::Calls => Contexts::CALLS,
            Pane::Detail => Contexts::DETAIL,
        }
    }

    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let listed = self.listed;
        match command {
            Command::Follow => {
                let height = self.panes(at).calls_body().height;
                let Seen { calls, messages, .. } = self.seen_mut();
                if listed == Listed::Messages {
                    messages.list.toggle(height);
                } else {
                    calls.list.toggle(height);
                }
                return Some(self.refresh(at));
            }
            Command::Timeline => {
                self.listed = if listed == Listed::Timeline { Listed::Calls } else { Listed::Timeline };
                (self.full, self.pane, self.scope) = (false, Pane::Calls, Scope::default());
                return Some(self.refresh(at));
            }
            Command::Messages => {
                self.listed = if listed == Listed::Messages { Listed::Calls } else { Listed::Messages };
                (self.full, self.pane, self.reading) = (false, Pane::Calls, Cursor::default());
                return Some(self.refresh(at));
            }
            Command::Pause => {
                self.held = match self.held.take() {
                    Some(_) => None,
                    None => Some(Box::new(self.now.clone())),
                };
                return Some(self.refresh(at));
            }
            Command::Sessions => {
                let open = self.panes(at).sessions.is_some();
                self.sessions_open = Some(!open);
                self.pane = if open { Pane::Calls } else { Pane::Sessions };
                return Some(Vec::new());
            }
            Command::OpenFiles => return Some(self.open_files()),
            Command::NextPane | Command::PreviousPane => {
                let panes = self.panes(at);
                let mut order = vec![Pane::Calls];
                if panes.detail.is_some() {
                    order.push(Pane::Detail);
                }
                if panes.sessions.is_some() {
                    order.insert(0, Pane::Sessions);
                }
                let step = if command == Command::NextPane { 1 } else { order.len() - 1 };
                let here = order.iter().position(|p| *p == self.pane).unwrap_or(0);
                self.pane = order[(here + step) % order.len()];
                self.full &= self.pane == Pane::Detail;
                return Some(Vec::new());
            }
            _ => {}
        }
        match self.pane {
            Pane::Sessions => self.in_sessions(command, at),
            _ if listed == Listed::Timeline => self.in_timeline(command, at),
            _ if listed == Listed::Messages => self.in_messages(command, at),
            Pane::Calls => self.in_calls(command, at),
            Pane::Detail => match command {
                Command::Back if self.detail.searched().is_some_and(|s| !s.is_empty()) => None,
                Command::Back | Command::Quit => {
                    (self.full, self.pane) = (false, Pane::Calls);
                    Some(Vec::new())
                }
                Command::Next | Command::Previous if self.detail.searched().is_none_or(str::is_empty) => {
                    self.in_calls(command, at)
                }
                _ => self.detail.command(command, self.detail_at(at)),
            },
        }
    }

    fn told(&mut self, told: Told, _at: At) -> Result<Vec<Effect>, Told> {
        let told = self.hint.told(told).or_else(|told| self.previews.told(told));
        told.or_else(|told| self.detail.told(told)).map(|()| Vec::new())
    }

    fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect> {
        let panes = self.panes(at);
        let inside = |r: Rect| r.contains(Position { x, y });
        if let Some(body) = panes.detail_body().filter(|r| inside(*r) && self.listed != Listed::Timeline) {
            self.pane = Pane::Detail;
            if self.listed == Listed::Messages {
                self.message_pane(at).click(&mut self.reading, x, y);
                return Vec::new();
            }
            return self.detail.click(x, y, twice, At { area: body, ..at });
        }
        if let Some(list) = panes.sessions.filter(|r| inside(*r)) {
            self.pane = Pane::Sessions;
            let pane = self.session_pane(at);
            let line = u64::from((y - list.y).saturating_sub(1) / view::session_lines(&self.seen().state));
            let cursor = &mut self.seen_mut().sessions.cursor;
            let to = cursor.window(pane.len, pane.area.height).start + line;
            if to < pane.len {
                pane.to(cursor, to);
            }
            return if twice { self.in_sessions(Command::Enter, at).unwrap_or_default() } else { Vec::new() };
        }
        let body = panes.calls_body();
        if inside(body) {
            self.pane = Pane::Calls;
            let listed = self.listed;
            let Seen { calls, messages, .. } = self.seen_mut();
            match listed {
                Listed::Timeline => return Vec::new(),
                Listed::Calls => calls.list.click(y - body.y, body.height),
                Listed::Messages => messages.list.click(y - body.y, body.height),
            }
            self.reading = Cursor::default();
            let mut effects = self.refresh(at);
            if twice {
                effects.extend(self.command(Command::Enter, at).unwrap_or_default());
            }
            return effects;
        }
        Vec::new()
    }

    fn wheel(&mut self, x: u16, y: u16, lines: i64, at: At) -> Vec<Effect> {
        let panes = self.panes(at);
        let inside = |r: Rect| r.contains(Position { x, y });
        if panes.detail_body().is_some_and(inside) {
            if self.listed == Listed::Messages {
                self.message_pane(at).step(&mut self.reading, lines);
                return Vec::new();
            }
            self.detail.wheel(lines, self.detail_at(at));
            return Vec::new();
        }
        if panes.sessions.is_some_and(inside) {
            // Each has as many lines as the wheel moves.
            self.session_pane(at).step(&mut self.seen_mut().sessions.cursor, lines.signum());
            return Vec::new();
        }
        if self.listed == Listed::Timeline {
            let timeline = self.timeline(at.now);
            self.scope.wheel(lines, &timeline, At { area: panes.picture, ..at });
            return Vec::new();
        }
        let (height, listed) = (panes.calls_body().height, self.listed);
        let Seen { calls, messages, .. } = self.seen_mut();
        match listed {
            Listed::Calls | Listed::Timeline => calls.list.step(lines, height),
            Listed::Messages => messages.list.step(lines, height),
        }
        self.refresh(at)
    }

    fn draw(&self, pen: &mut Pen<'_>, at: At) {
        view::draw(self, pen, at);
    }

    fn title(&self) -> String {
        let t = self.now.sessions.totals(&self.now.state);
        let alive = self.now.sessions.alive(&self.now.state);
        let paused = if self.held.is_some() { "PAUSED  " } else { "" };
        format!("{paused}{} live  {}", counted(alive, "session"), counted(t.started, "call"))
    }

    fn filter(&self) -> Option<&str> {
        if self.in_detail() { self.detail.searched() } else { Some(&self.filter_text) }
    }

    fn set_filter(&mut self, text: &str, at: At) -> Result<Vec<Effect>, FilterError> {
        if self.in_detail() {
            self.detail.search(text, self.detail_at(at));
            return Ok(Vec::new());
        }
        let filter = Filter::parse(text)?;
        text.trim().clone_into(&mut self.filter_text);
        if filter != self.filter {
            self.filter = filter;
            let only = self.now.sessions.only();
            self.narrow(only);
        }
        Ok(self.refresh(at))
    }
}

/// Who takes part in a session.
fn who(state: &State, session: SessionId) -> Who {
    let card = state.sessions().get(&session).and_then(|v| v.card.as_ref()).map(|c| &c.card);
    card.map(|c| Who { client: c.client_info.clone(), server: c.server_info.clone() }).unwrap_or_default()
}

/// Where the evidence of a session is.
fn files(state: &State, session: SessionId) -> Files {
    let card = state.sessions().get(&session).and_then(|v| v.card.as_ref());
    card.map(|c| Files { receipts: c.receipts.clone(), events: c.segment.clone() }).unwrap_or_default()
}

/// The server's stderr around a call.
fn stderr(state: &State, row: &CallRow) -> Vec<(WallTime, String)> {
    let Some(view) = state.sessions().get(&row.session_id) else { return Vec::new() };
    let from = row.requested_at.map_or(i64::MIN, |at| at.millis() - STDERR_MS);
    let to = row.ended_at.map_or(i64::MAX, |at| at.millis() + STDERR_MS);
    let around = view.stderr.values().filter(|s| (from..=to).contains(&s.at.millis()));
    let mut lines: Vec<_> = around.map(|s| (s.at, s.line.chars().take(2000).collect())).collect();
    let first = lines.len().saturating_sub(STDERR_LINES);
    lines.drain(..first);
    lines
}

/// How many messages a gap says are missing.
fn messages(note: Option<&str>) -> u64 {
    let words = note.unwrap_or_default().rsplit(": ").next().unwrap_or_default();
    words.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1)
}
