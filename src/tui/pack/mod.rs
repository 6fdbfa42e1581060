//! The pack screen: a pack is verified before one's eyes, every finding leads to its byte, receipts and chain can be walked.

mod book;
mod bytes;
mod copy;
mod draw;
mod layout;
mod prove;
mod read;
mod row;
mod rows;
mod surface;
#[cfg(test)]
mod tests;
mod walk;

use super::{
    cursor::{self, Cursor},
    detail::{Detail, Files, Subject, Who},
    keymap::{Command, Contexts},
    kit::ListPane,
    msg::{Effect, Job, Target, Ticket, Told, hear},
    packs::{
        check::{self, Checking, percent},
        words::Verdicts,
    },
    paint::{Pen, clean},
    screen::{At, Screen},
    timeline::Scope,
};
use crate::model::pack::{AUDIT_LOG, RECEIPTS};
use crate::{
    filter::{Filter, FilterError},
    live::{row::CallRow, state::facts},
    pack::{
        timeline::Timeline,
        verify::{Progress, VerifyError, VerifyReport},
    },
};
use book::Book;
use bytes::Bytes;
use layout::Panes;
use ratatui::layout::Position;
use read::Source;
use row::{EvidenceRow as Said, Kind};
use std::path::Path;

/// A journal is looked at again at most this often, milliseconds.
const RENEW_MS: i64 = 1000;

/// State of the verification.
#[derive(Debug)]
enum State {
    /// No pack is open.
    Empty,
    /// It runs; nothing was heard of it yet, or this.
    Running(Option<Progress>),
    /// The verification is done.
    Verified(Box<VerifyReport>),
    /// The user stopped the verification.
    Stopped,
    /// It could not be done.
    Failed(String),
    /// There is nothing to verify: a session without a pack.
    Journal,
}

/// The part that is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Tab {
    #[default]
    Verification,
    Receipts,
    Messages,
    Timeline,
    Chain,
    /// Only in packs that have one.
    Surface,
}

impl Tab {
    const ALL: [Self; 6] =
        [Self::Verification, Self::Receipts, Self::Messages, Self::Timeline, Self::Chain, Self::Surface];

    const fn name(self) -> &'static str {
        match self {
            Self::Verification => "verification",
            Self::Receipts => "receipts",
            Self::Chain => "chain",
            Self::Messages => "messages",
            Self::Timeline => "timeline",
            Self::Surface => "surface",
        }
    }

    /// Whether it is text, and not the lines of a file.
    const fn is_text(self) -> bool {
        matches!(self, Self::Verification | Self::Surface)
    }
}

/// State of the screen Pack.
#[derive(Debug)]
pub struct PackScreen {
    signers: Vec<String>,
    target: Option<Target>,
    name: String,
    state: State,
    check: Option<Ticket<Checking<Box<VerifyReport>>>>,
    tab: Tab,
    /// Where the list of the verification is.
    cursor: Cursor,
    receipts: Option<Book>,
    chain: Option<Book>,
    messages: Option<Book>,
    /// The calls in time, as far as they were read.
    timeline: Timeline,
    drawing: Option<Ticket<Timeline>>,
    scope: Scope,
    /// What the server offered; `None` where the pack does not say.
    surface: Option<Vec<rows::TextRow>>,
    offered: Option<Ticket<Option<Vec<rows::TextRow>>>>,
    detail: Detail,
    /// The detail has the keys.
    inside: bool,
    /// The line that the detail shows.
    detailed: Option<u64>,
    bytes: Option<Bytes>,
    /// The finding that the bytes are of.
    finding: Option<usize>,
    copying: Option<Ticket<Result<String, String>>>,
    /// What becomes of a proof, in words.
    proving: Option<Ticket<Result<String, String>>>,
    /// When the files of a session were last looked at again, milliseconds.
    renewed: i64,
}

impl Default for PackScreen {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl PackScreen {
    /// Nothing is open yet; packs of these signers are trusted.
    #[must_use]
    pub fn new(signers: Vec<String>) -> Self {
        Self {
            signers,
            target: None,
            name: String::new(),
            state: State::Empty,
            check: None,
            tab: Tab::default(),
            cursor: Cursor::default(),
            receipts: None,
            chain: None,
            messages: None,
            timeline: Timeline::default(),
            drawing: None,
            scope: Scope::default(),
            surface: None,
            offered: None,
            detail: Detail::default(),
            inside: false,
            detailed: None,
            bytes: None,
            finding: None,
            copying: None,
            proving: None,
            renewed: 0,
        }
    }

    /// Opens a pack, or the files of a session.
    pub fn open(&mut self, target: Target) -> Vec<Effect> {
        self.close();
        let signers = std::mem::take(&mut self.signers);
        *self = Self { target: Some(target.clone()), ..Self::new(signers) };
        let mut effects = Vec::new();
        match target {
            Target::Pack(dir) => {
                self.name = dir.file_name().map_or_else(|| dir.to_string_lossy(), |n| n.to_string_lossy()).into_owned();
                let book = |name: &str, kind| Book::new(Source { dir: dir.clone(), name: name.to_owned(), kind });
                self.receipts = Some(book(RECEIPTS, Kind::Receipts));
                self.chain = Some(book(AUDIT_LOG, Kind::Events));
                self.messages = Some(book(AUDIT_LOG, Kind::Messages));
                effects.extend(self.verify());
                let ticket = Ticket::new();
                effects.push(surface::read(&ticket, dir));
                self.offered = Some(ticket);
            }
            Target::Journal { title, segment, receipts } => {
                self.name = title;
                self.state = State::Journal;
                self.receipts = source_of(&receipts, Kind::Receipts).map(Book::new);
                self.chain = source_of(&segment, Kind::Events).map(Book::of_running);
                self.messages = source_of(&segment, Kind::Messages).map(Book::new);
                effects.extend(self.chain.as_mut().map(Book::open).unwrap_or_default());
            }
        }
        effects.extend(self.receipts.as_mut().map(Book::open).unwrap_or_default());
        effects.extend(self.detail.show(None));
        effects
    }

    fn close(&mut self) {
        for book in [&mut self.receipts, &mut self.chain, &mut self.messages].into_iter().flatten() {
            book.close();
        }
        if let Some(check) = self.check.take() {
            check.cancel();
        }
        for job in [self.copying.take(), self.proving.take()].into_iter().flatten() {
            job.cancel();
        }
    }

    fn verify(&mut self) -> Vec<Effect> {
        let Some(Target::Pack(dir)) = self.target.clone() else { return Vec::new() };
        if let Some(old) = self.check.take() {
            old.cancel();
        }
        let ticket = Ticket::new();
        self.check = Some(ticket.clone());
        self.state = State::Running(None);
        self.cursor = Cursor::default();
        vec![check::start(&ticket, "verify", dir, self.signers.clone(), Box::new)]
    }

    fn stop(&mut self) -> Option<Vec<Effect>> {
        self.check.take()?.cancel();
        self.state = State::Stopped;
        Some(vec![Effect::Say("verification stopped: no verdict; v starts it again".to_owned())])
    }

    fn again(&mut self) -> Vec<Effect> {
        match &self.target {
            None => Vec::new(),
            Some(Target::Pack(_)) => {
                let mut effects = self.verify();
                effects.push(Effect::Say("verifying again".to_owned()));
                effects
            }
            Some(journal) => {
                let (tab, journal) = (self.tab, journal.clone());
                let mut effects = self.open(journal);
                self.tab = tab;
                effects.extend(self.book_mut().filter(|book| !book.is_open()).map(Book::open).unwrap_or_default());
                if tab == Tab::Timeline {
                    effects.extend(self.read_timeline());
                }
                effects
            }
        }
    }

    fn book(&self) -> Option<&Book> {
        match self.tab {
            Tab::Receipts => self.receipts.as_ref(),
            Tab::Chain => self.chain.as_ref(),
            Tab::Messages => self.messages.as_ref(),
            Tab::Verification | Tab::Timeline | Tab::Surface => None,
        }
    }

    fn book_mut(&mut self) -> Option<&mut Book> {
        match self.tab {
            Tab::Receipts => self.receipts.as_mut(),
            Tab::Chain => self.chain.as_mut(),
            Tab::Messages => self.messages.as_mut(),
            Tab::Verification | Tab::Timeline | Tab::Surface => None,
        }
    }

    /// Where a file is, in words.
    fn place_of(book: Option<&Book>) -> String {
        book.map_or_else(|| "–".to_owned(), |b| b.source().path().to_string_lossy().into_owned())
    }

    fn panes(&self, at: At) -> Panes {
        let running = if self.tab == Tab::Receipts { self.running().0.len() } else { 0 };
        Panes::of(self.tab, self.inside, running, at)
    }

    /// The parts that there are.
    fn tabs(&self) -> &'static [Tab] {
        if self.surface.is_some() { &Tab::ALL } else { &Tab::ALL[..5] }
    }

    /// The next part, or the one before.
    fn beside(&self, forward: bool) -> Tab {
        let all = self.tabs();
        let by = if forward { 1 } else { all.len() - 1 };
        all[(self.tab as usize + by) % all.len()]
    }

    /// Shows another part.
    fn turn(&mut self, tab: Tab, at: At) -> Vec<Effect> {
        if tab.is_text() && tab != self.tab {
            self.cursor = Cursor::default();
        }
        self.tab = tab;
        self.inside = false;
        self.bytes = None;
        if tab == Tab::Timeline {
            return self.read_timeline();
        }
        let height = self.panes(at).list.height;
        let Some(book) = self.book_mut() else { return Vec::new() };
        let mut effects = if book.is_open() { Vec::new() } else { book.open() };
        effects.extend(book.need(height));
        effects.extend(self.follow(at));
        effects
    }

    /// Reads the calls of the receipts for the picture of time.
    fn read_timeline(&mut self) -> Vec<Effect> {
        let Some(source) = self.receipts.as_ref().map(|book| book.source().clone()) else { return Vec::new() };
        if let Some(old) = self.drawing.take() {
            old.cancel();
        }
        let ticket = Ticket::new();
        self.drawing = Some(ticket.clone());
        vec![Effect::Start(Job::new(&ticket, "timeline", move |teller| {
            if let Some(timeline) = read::timeline(&source, &teller.flag()) {
                teller.tell(timeline);
            }
        }))]
    }

    /// The next pane: list, detail, next part.
    fn pane(&mut self, forward: bool, at: At) -> Vec<Effect> {
        let has_detail = self.tab == Tab::Receipts && self.panes(at).side.is_some();
        match (forward, self.inside) {
            (true, false) if has_detail => {
                self.inside = true;
                Vec::new()
            }
            (false, true) => {
                self.inside = false;
                Vec::new()
            }
            (forward, _) => self.turn(self.beside(forward), at),
        }
    }

    /// Lets the detail show what is selected.
    fn follow(&mut self, at: At) -> Vec<Effect> {
        if self.tab != Tab::Receipts || !(self.inside || self.panes(at).side.is_some()) {
            return Vec::new();
        }
        let Some(book) = &self.receipts else { return Vec::new() };
        let line = book.selected();
        if line.is_none() && book.len() > 0 {
            // It is being read: what is shown stays until it is there.
            return Vec::new();
        }
        let (number, row) = match line {
            Some(line) => match &line.row {
                Said::Call(call) => (Some(line.number), Some((**call).clone())),
                _ => (Some(line.number), None),
            },
            None => (None, None),
        };
        if number == self.detailed {
            return self.detail.poll(at.now);
        }
        self.detailed = number;
        let path = |book: &Option<Book>| book.as_ref().map(|b| b.source().path()).unwrap_or_default();
        let files = Files { receipts: path(&self.receipts), events: path(&self.chain) };
        let who = match &self.state {
            State::Verified(report) => report.facts.session.as_ref(),
            _ => None,
        };
        let who = who.map(|doc| Who { client: doc.client_info.clone(), server: doc.server_info.clone() });
        let who = who.unwrap_or_default();
        let mut effects =
            self.detail.show(row.map(|row| Subject { row, files, line: number, who, sent: [None, None] }));
        effects.extend(self.detail.poll(at.now));
        effects
    }

    /// Time passes: the detail reads what it did not read at once, while one scrolled.
    pub fn tick(&mut self, now: crate::model::WallTime) -> Vec<Effect> {
        if self.tab == Tab::Receipts { self.detail.poll(now) } else { Vec::new() }
    }

    /// Time passes while it is shown: the files of a session are looked at again, for it may live.
    pub fn renew(&mut self, now: crate::model::WallTime) -> Vec<Effect> {
        let journal = matches!(self.target, Some(Target::Journal { .. }));
        if !journal || (now.millis() - self.renewed).abs() < RENEW_MS {
            return Vec::new();
        }
        self.renewed = now.millis();
        let mut effects: Vec<Effect> = [&mut self.receipts, &mut self.chain, &mut self.messages]
            .into_iter()
            .flatten()
            .flat_map(Book::renew)
            .collect();
        if self.tab == Tab::Timeline {
            effects.extend(self.read_timeline());
        }
        effects
    }

    /// The lines of the verification's list.
    fn list(&self, at: At) -> Vec<rows::TextRow> {
        let theme = super::theme::Theme::default();
        match &self.surface {
            Some(rows) if self.tab == Tab::Surface => rows.clone(),
            _ => draw::verification(self, at, theme),
        }
    }

    /// The calls that run and pass the filter, and how many others run.
    fn running(&self) -> (Vec<&CallRow>, usize) {
        let Some(running) = self.chain.as_ref().map(Book::running) else { return (Vec::new(), 0) };
        let filter = self.receipts.as_ref().map(Book::passes).unwrap_or_default();
        let shown: Vec<_> = running.calls.iter().filter(|call| filter.is_none_or(|f| f.passes(&facts(call)))).collect();
        let others = running.all - shown.len();
        (shown, others)
    }

    fn verdicts(&self, at: At) -> ListPane {
        ListPane::new(self.list(at).len(), self.panes(at).list)
    }

    /// While bytes are shown.
    fn in_bytes(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let width = at.area.width;
        let bytes = self.bytes.as_mut()?;
        let row = bytes::per_row(width) as i64;
        if let Some(lines) = cursor::lines(command, at.area.height / 2) {
            return Some(bytes.step(lines.saturating_mul(row)));
        }
        Some(match command {
            Command::Left => bytes.step(-1),
            Command::Right => bytes.step(1),
            Command::Enter => bytes.home(),
            Command::Back => {
                self.bytes = None;
                Vec::new()
            }
            _ => return None,
        })
    }

    fn step(&mut self, by: i64, at: At) -> Vec<Effect> {
        let height = self.panes(at).list.height;
        if self.tab.is_text() {
            self.verdicts(at).step(&mut self.cursor, by);
            return Vec::new();
        }
        let mut effects = self.book_mut().map(|b| b.step(by, height)).unwrap_or_default();
        effects.extend(self.follow(at));
        effects
    }

    fn of_books(&mut self, mut told: Told, height: u16) -> Result<Vec<Effect>, Told> {
        // What is being read is not taken away.
        let free = !self.inside && self.bytes.is_none();
        for book in [&mut self.receipts, &mut self.chain, &mut self.messages].into_iter().flatten() {
            told = match book.told(told, height, free) {
                Ok(effects) => return Ok(effects),
                Err(other) => other,
            };
        }
        Err(told)
    }

    fn verified(&mut self, result: Result<Box<VerifyReport>, VerifyError>) -> Vec<Effect> {
        self.check = None;
        match result {
            Ok(report) => self.state = State::Verified(report),
            Err(VerifyError::Cancelled) => self.state = State::Stopped,
            Err(e) => {
                self.state = State::Failed(e.to_string());
                // What else is missing is said too.
                return self.chain.as_mut().filter(|b| !b.is_open()).map(Book::open).unwrap_or_default();
            }
        }
        Vec::new()
    }
}

fn source_of(path: &Path, kind: Kind) -> Option<Source> {
    let (dir, name) = (path.parent()?.to_owned(), path.file_name()?.to_string_lossy().into_owned());
    Some(Source { dir, name, kind })
}

impl Screen for PackScreen {
    fn subject(&self) -> Option<Target> {
        self.target.clone()
    }

    fn place(&self) -> Contexts {
        match (self.tab, self.inside, self.bytes.is_some()) {
            (_, _, true) | (Tab::Verification | Tab::Surface, ..) => Contexts::PACK,
            (Tab::Receipts, true, _) => Contexts::DETAIL,
            (Tab::Receipts, ..) => Contexts::RECEIPTS,
            (Tab::Chain, ..) => Contexts::CHAIN,
            (Tab::Messages, ..) => Contexts::CROSSED,
            (Tab::Timeline, ..) => Contexts::TIMELINE,
        }
    }

    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let searched = self.inside && self.detail.searched().is_some_and(|text| !text.is_empty());
        match command {
            Command::Next if !searched => return Some(self.next(true, at)),
            Command::Previous if !searched => return Some(self.next(false, at)),
            // The search goes first.
            Command::Back if searched && self.bytes.is_none() => return None,
            Command::Verify => return Some(self.again()),
            _ => {}
        }
        if let Some(effects) = self.in_bytes(command, at) {
            return Some(effects);
        }
        if self.inside && self.bytes.is_none() {
            let area = self.panes(at).side.unwrap_or(at.area);
            if !matches!(command, Command::NextPane | Command::PreviousPane | Command::Back)
                && let Some(effects) = self.detail.command(command, At { area, ..at })
            {
                return Some(effects);
            }
            if matches!(command, Command::Back | Command::Left) {
                self.inside = false;
                return Some(Vec::new());
            }
        }
        match command {
            Command::NextPane => Some(self.pane(true, at)),
            Command::PreviousPane => Some(self.pane(false, at)),
            Command::NextTab => Some(self.turn(self.beside(true), at)),
            Command::PreviousTab => Some(self.turn(self.beside(false), at)),
            Command::Timeline => {
                let tab = if self.tab == Tab::Timeline { Tab::Receipts } else { Tab::Timeline };
                Some(self.turn(tab, at))
            }
            Command::Messages => {
                let tab = if self.tab == Tab::Messages { Tab::Receipts } else { Tab::Messages };
                Some(self.turn(tab, at))
            }
            command if self.tab == Tab::Timeline => {
                let area = self.panes(at).body;
                self.scope.command(command, &self.timeline, At { area, ..at }).map(|()| Vec::new())
            }
            Command::Enter => Some(self.enter(at)),
            Command::Right if self.tab == Tab::Receipts => Some(self.enter(at)),
            Command::CopyValue | Command::CopyPath | Command::CopyRaw => self.copy(command, at),
            Command::Prove => Some(self.prove()),
            Command::Back => self.stop(),
            command if self.inside => cursor::lines(command, 1).map(|_| Vec::new()),
            command => cursor::lines(command, self.panes(at).list.height).map(|by| self.step(by, at)),
        }
    }

    fn told(&mut self, told: Told, at: At) -> Result<Vec<Effect>, Told> {
        let told = match self.detail.told(told) {
            Ok(()) => return Ok(Vec::new()),
            Err(told) => told,
        };
        let height = self.panes(at).list.height;
        let mut told = match self.of_books(told, height) {
            Ok(mut effects) => {
                effects.extend(self.follow(at));
                return Ok(effects);
            }
            Err(told) => told,
        };
        if let Some(bytes) = &mut self.bytes {
            told = match bytes.told(told) {
                Ok(()) => return Ok(Vec::new()),
                Err(told) => told,
            };
        }
        told = match hear(self.offered.as_ref(), told) {
            Ok(surface) => {
                self.surface = surface;
                return Ok(Vec::new());
            }
            Err(told) => told,
        };
        told = match hear(self.drawing.as_ref(), told) {
            Ok(timeline) => {
                self.timeline = timeline;
                return Ok(Vec::new());
            }
            Err(told) => told,
        };
        let told = match hear(self.copying.as_ref(), told) {
            Ok(raw) => {
                self.copying = None;
                return Ok(vec![match raw {
                    Ok(text) => Effect::Copy { what: "line of evidence".to_owned(), text },
                    Err(why) => Effect::Warn(clean(&why)),
                }]);
            }
            Err(told) => told,
        };
        let told = match hear(self.proving.as_ref(), told) {
            Ok(said) => {
                self.proving = None;
                return Ok(vec![said.map_or_else(|why| Effect::Warn(clean(&why)), Effect::Say)]);
            }
            Err(told) => told,
        };
        match hear(self.check.as_ref(), told)? {
            Checking::Progress(p) => self.state = State::Running(Some(p)),
            Checking::Done(result) => return Ok(self.verified(result)),
        }
        Ok(Vec::new())
    }

    fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect> {
        let panes = self.panes(at);
        if let Some(tab) = draw::tab_at(self, &panes, x, y) {
            return self.turn(tab, at);
        }
        if self.bytes.is_some() || self.tab == Tab::Timeline {
            return Vec::new();
        }
        let here = Position { x, y };
        if self.tab == Tab::Receipts
            && let Some(side) = panes.side.filter(|r| r.contains(here))
        {
            self.inside = true;
            return self.detail.click(x, y, twice, At { area: side, ..at });
        }
        if !panes.list.contains(here) {
            return Vec::new();
        }
        self.inside = false;
        let mut effects = Vec::new();
        if self.tab.is_text() {
            if !self.verdicts(at).click(&mut self.cursor, x, y) {
                return effects;
            }
        } else {
            let Some(book) = self.book_mut() else { return effects };
            let pane = ListPane { len: book.len(), area: panes.list };
            let Some(line) = pane.line_at(&book.cursor, x, y) else { return effects };
            effects.extend(book.to(line, panes.list.height));
            effects.extend(self.follow(at));
        }
        if twice {
            effects.extend(self.enter(at));
        }
        effects
    }

    fn wheel(&mut self, x: u16, y: u16, lines: i64, at: At) -> Vec<Effect> {
        if let Some(bytes) = &mut self.bytes {
            return bytes.step(lines * bytes::per_row(at.area.width) as i64);
        }
        let panes = self.panes(at);
        if self.tab == Tab::Timeline {
            self.scope.wheel(lines, &self.timeline, At { area: panes.body, ..at });
            return Vec::new();
        }
        let over_side = panes.side.is_some_and(|r| r.contains(Position { x, y }));
        if self.tab == Tab::Receipts && (over_side || self.inside) {
            let area = panes.side.unwrap_or(at.area);
            self.detail.wheel(lines, At { area, ..at });
            return Vec::new();
        }
        self.step(lines, at)
    }

    fn draw(&self, pen: &mut Pen<'_>, at: At) {
        draw::screen(self, pen, at);
    }

    fn title(&self) -> String {
        let name = clean(self.name.strip_prefix("proof_pack_").unwrap_or(&self.name));
        match &self.state {
            State::Empty => "no pack".to_owned(),
            State::Running(p) => format!("verifying {} %  {name}", p.map_or(0, percent)),
            State::Verified(r) => format!("{}  {name}", Verdicts::of(r).in_one().word),
            State::Stopped => format!("not verified  {name}"),
            State::Failed(_) => format!("cannot be verified  {name}"),
            State::Journal => format!("no pack  {name}"),
        }
    }

    fn filter(&self) -> Option<&str> {
        if self.bytes.is_some() || !matches!(self.tab, Tab::Receipts | Tab::Messages) {
            return None;
        }
        if self.inside { self.detail.searched() } else { self.book().map(Book::filter) }
    }

    fn set_filter(&mut self, text: &str, at: At) -> Result<Vec<Effect>, FilterError> {
        let panes = self.panes(at);
        if self.inside {
            self.detail.search(text, At { area: panes.side.unwrap_or(at.area), ..at });
            return Ok(Vec::new());
        }
        let filter = Filter::parse(text)?;
        let height = panes.list.height;
        let Some(book) = self.book_mut() else { return Ok(Vec::new()) };
        let mut effects = book.narrow(text, filter, height);
        effects.extend(self.follow(at));
        Ok(effects)
    }
}
