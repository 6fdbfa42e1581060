//! The packs screen: what was recorded, what each pack verified to, and what is being recorded now.

pub mod check;
mod draw;
#[cfg(test)]
mod tests;
pub mod words;

use super::{
    cursor::Cursor,
    keymap::{Command, Contexts},
    kit::{self, ListPane},
    msg::{self, Effect, Job, Target, Ticket, Told},
    paint::{Pen, clean},
    screen::{At, Screen},
};
use crate::{
    filter::{Filter, FilterError},
    history::list::{self, Entry, Found, Places, Standing},
    live::{
        client::Update,
        protocol::{LiveLine, PackState, RunCard},
    },
    model::SessionId,
    numbers::{counted, grouped},
    pack::verify::{Integrity, VerifyError, VerifyReport},
    paths::AuditDir,
};
use check::{Checking, percent};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};
use words::Verdicts;

/// Packs up to so many bytes are verified without asking.
pub const SMALL: u64 = 64 << 20;

/// The verdicts, and what a later version wrote.
type Checked = (Verdicts, Option<String>);

/// What is known of a pack's verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Check {
    /// It is being verified; percent.
    Running(u64),
    /// They were computed from the files with this stamp.
    Known(Verdicts),
    /// They are those of a pack that is too new for more, and what of it is.
    TooNew(Verdicts, String),
    /// It cannot be verified, and why.
    Failed(String),
    /// The user stopped the verification.
    Stopped,
}

/// A verification that runs.
#[derive(Debug)]
struct Running {
    pack: PathBuf,
    ticket: Ticket<Checking<Checked>>,
    /// A person asked for it.
    asked: bool,
}

/// What is heard of a session that is recorded now.
#[derive(Debug, Clone, Default)]
struct Heard {
    receipts: u64,
    pack: Option<PathBuf>,
    /// `None` once the files tell its state.
    standing: Option<Standing>,
}

/// State of the screen Packs.
#[derive(Debug)]
pub struct PacksScreen {
    places: Places,
    signers: Vec<String>,
    entries: Vec<Entry>,
    /// Of the search that runs: what it has found so far.
    fresh: Vec<Entry>,
    search: Option<Ticket<Found>>,
    problems: Vec<String>,
    /// Whether a search has come to its end.
    listed: bool,
    checks: HashMap<PathBuf, (u64, Check)>,
    running: Option<Running>,
    heard: HashMap<SessionId, Heard>,
    marked: Option<PathBuf>,
    filter: String,
    parsed: Filter,
    /// Indexes into `entries` that pass the filter.
    shown: Vec<usize>,
    cursor: Cursor,
    /// It has been on the screen.
    seen: bool,
}

impl Default for PacksScreen {
    fn default() -> Self {
        Self::new(None, Vec::new())
    }
}

impl PacksScreen {
    /// Nothing is listed yet; packs of these signers are trusted.
    #[must_use]
    pub fn new(audit_dir: Option<PathBuf>, signers: Vec<String>) -> Self {
        Self {
            places: Places { audit_dir, ..Places::of_user() },
            signers,
            entries: Vec::new(),
            fresh: Vec::new(),
            search: None,
            problems: Vec::new(),
            listed: false,
            checks: HashMap::new(),
            running: None,
            heard: HashMap::new(),
            marked: None,
            filter: String::new(),
            parsed: Filter::default(),
            shown: Vec::new(),
            cursor: Cursor::default(),
            seen: false,
        }
    }

    /// The same with other places.
    #[cfg(test)]
    #[must_use]
    pub fn looking_at(mut self, places: Places) -> Self {
        self.places = places;
        self
    }

    /// It is shown now: the list is read again.
    pub fn shown(&mut self) -> Vec<Effect> {
        self.seen = true;
        self.look()
    }

    fn look(&mut self) -> Vec<Effect> {
        if let Some(old) = self.search.take() {
            old.cancel();
        }
        let ticket = Ticket::new();
        self.search = Some(ticket.clone());
        self.fresh.clear();
        self.problems.clear();
        let places = self.places.clone();
        let job = Job::new(&ticket, "look for packs", move |teller| {
            list::find(&places, &|found| teller.tell(found), &|| teller.cancelled());
        });
        vec![Effect::Start(job)]
    }

    /// Takes news of a live session: its pack's state moves. Cheap, for it comes with every event.
    pub fn live(&mut self, update: &Update) -> Vec<Effect> {
        let line = match update {
            Update::Line(line) => line,
            Update::Gone(gone) => {
                let known = self.heard.remove(&gone.session).is_some();
                return self.again(known);
            }
            Update::Call(_) | Update::Lost(_) | Update::Unread(_) | Update::TooNew { .. } => return Vec::new(),
        };
        match &**line {
            LiveLine::Session(head) => {
                self.add(&head.session);
                self.heard.entry(head.session.card.session_id).or_default().receipts = head.totals.finished;
            }
            LiveLine::PackProgress(p) => {
                let heard = self.heard.entry(p.session_id).or_default();
                heard.pack.clone_from(&p.pack);
                heard.standing = match p.state {
                    PackState::Sealing => Some(Standing::Sealing),
                    PackState::Failed => Some(Standing::Failed(p.problems.first().cloned().unwrap_or_default())),
                    PackState::Built | PackState::Verified | PackState::None => None,
                };
                let over = heard.standing.is_none();
                if over {
                    self.heard.remove(&p.session_id);
                }
                return self.again(over);
            }
            line => {
                if let Some(c) = line.chained()
                    && let Some(heard) = self.heard.get_mut(&c.session_id)
                {
                    heard.receipts = heard.receipts.max(c.totals.finished);
                }
            }
        }
        Vec::new()
    }

    fn again(&mut self, wanted: bool) -> Vec<Effect> {
        if wanted && self.seen { self.look() } else { Vec::new() }
    }

    /// A session that has just begun.
    fn add(&mut self, run: &RunCard) {
        let card = &run.card;
        let paths = AuditDir::at(&run.audit_dir).session(card.started_at, card.session_id);
        let heard = self.heard.entry(card.session_id).or_default();
        heard.standing.get_or_insert(Standing::Recording);
        let session = card.session_id.to_string();
        if self.entries.iter().any(|e| e.session == session) {
            return;
        }
        self.merge(vec![Entry {
            pack: paths.pack,
            session,
            server: card.server_id.clone(),
            started: card.started_at.to_string(),
            server_info: String::new(),
            client: String::new(),
            receipts: None,
            counts: None,
            complete: None,
            bytes: 0,
            standing: Standing::Recording,
            files: Some((run.segment.clone(), run.receipts.clone())),
            stamp: 0,
        }]);
    }

    /// Puts entries into the list; the selection stays on its pack.
    fn merge(&mut self, more: Vec<Entry>) {
        let selected = self.selected().map(|e| e.pack.clone());
        let mut at: HashMap<PathBuf, usize> =
            self.entries.iter().enumerate().map(|(i, e)| (e.pack.clone(), i)).collect();
        for e in more {
            if let Some(i) = at.get(&e.pack) {
                self.entries[*i] = e;
            } else {
                at.insert(e.pack.clone(), self.entries.len());
                self.entries.push(e);
            }
        }
        self.settle(selected.as_deref());
    }

    fn settle(&mut self, selected: Option<&Path>) {
        self.entries.sort_by_cached_key(Entry::rank);
        self.shown = (0..self.entries.len()).filter(|i| self.entries[*i].passes(&self.parsed)).collect();
        let found = selected.and_then(|p| self.shown.iter().position(|i| self.entries[*i].pack == p));
        if let Some(found) = found {
            self.cursor.at = found as u64;
        }
        self.cursor.at = self.cursor.at.min((self.shown.len() as u64).saturating_sub(1));
    }

    fn pane(&self, at: At) -> ListPane {
        ListPane::new(self.shown.len(), draw::body(at))
    }

    fn selected(&self) -> Option<&Entry> {
        self.entries.get(*self.shown.get(self.cursor.at as usize)?)
    }

    /// State of an entry, with what is heard of it.
    fn standing(&self, e: &Entry) -> Standing {
        let heard = SessionId::parse(&e.session).ok().and_then(|id| self.heard.get(&id));
        match (heard.and_then(|h| h.standing.clone()), &e.standing) {
            (Some(Standing::Recording), Standing::Packed) | (None, _) => e.standing.clone(),
            (Some(heard), _) => heard,
        }
    }

    fn receipts(&self, e: &Entry) -> Option<u64> {
        let heard = SessionId::parse(&e.session).ok().and_then(|id| self.heard.get(&id));
        e.receipts.or_else(|| heard.map(|h| h.receipts))
    }

    fn check(&self, e: &Entry) -> Option<&Check> {
        self.checks.get(&e.pack).filter(|(stamp, _)| *stamp == e.stamp).map(|(_, check)| check)
    }

    fn found(&mut self, found: Found, at: At) -> Vec<Effect> {
        match found {
            Found::Some(entries) => {
                self.fresh.extend(entries.iter().cloned());
                self.merge(entries);
            }
            Found::Problem(text) => self.problems.push(text),
            Found::All => {
                self.search = None;
                self.listed = true;
                let selected = self.selected().map(|e| e.pack.clone());
                let fresh = std::mem::take(&mut self.fresh);
                let live: Vec<Entry> = self
                    .entries
                    .drain(..)
                    .filter(|e| e.standing == Standing::Recording && !fresh.iter().any(|f| f.pack == e.pack))
                    .filter(|e| SessionId::parse(&e.session).is_ok_and(|id| self.heard.contains_key(&id)))
                    .collect();
                // What was found twice was found better the second time.
                let mut by_pack: HashMap<PathBuf, Entry> = HashMap::new();
                for e in live.into_iter().chain(fresh) {
                    by_pack.insert(e.pack.clone(), e);
                }
                self.entries = by_pack.into_values().collect();
                self.settle(selected.as_deref());
            }
        }
        self.next_check(at)
    }

    /// Starts the next verification: what is on the screen first, then everything small.
    fn next_check(&mut self, at: At) -> Vec<Effect> {
        if self.running.is_some() {
            return Vec::new();
        }
        let wanted = |e: &&Entry| e.standing == Standing::Packed && e.bytes <= SMALL && self.check(e).is_none();
        let window = self.cursor.window(self.shown.len() as u64, draw::rows(at));
        let visible = self.shown.get(window.start as usize..window.end as usize).unwrap_or_default();
        let first = visible.iter().filter_map(|i| self.entries.get(*i)).find(wanted);
        match first.or_else(|| self.entries.iter().find(wanted)) {
            Some(e) => {
                let e = e.clone();
                self.verify(&e, false)
            }
            None => Vec::new(),
        }
    }

    fn verify(&mut self, e: &Entry, asked: bool) -> Vec<Effect> {
        if let Some(old) = self.running.take() {
            old.ticket.cancel();
            self.checks.remove(&old.pack);
        }
        let ticket = Ticket::new();
        self.running = Some(Running { pack: e.pack.clone(), ticket: ticket.clone(), asked });
        self.checks.insert(e.pack.clone(), (e.stamp, Check::Running(0)));
        let of = |report: VerifyReport| (Verdicts::of(&report), report.too_new());
        vec![check::start(&ticket, "verify a pack of the list", e.pack.clone(), self.signers.clone(), of)]
    }

    fn verified(&mut self, result: Result<Checked, VerifyError>, at: At) -> Vec<Effect> {
        let Some(running) = self.running.take() else { return Vec::new() };
        let check = match result {
            Ok((verdicts, Some(why))) if verdicts.integrity == Integrity::Unsupported => Check::TooNew(verdicts, why),
            Ok((verdicts, _)) => Check::Known(verdicts),
            Err(VerifyError::Cancelled) => Check::Stopped,
            Err(e) => Check::Failed(e.to_string()),
        };
        if let Some(entry) = self.checks.get_mut(&running.pack) {
            entry.1 = check;
        }
        self.next_check(at)
    }

    fn open(&self) -> Vec<Effect> {
        self.subject().map(Effect::Open).into_iter().collect()
    }

    fn compare(&self) -> Vec<Effect> {
        let packed = self.selected().filter(|e| e.standing == Standing::Packed);
        match (&self.marked, packed) {
            (_, None) => vec![Effect::Warn("a session without a pack cannot be compared".to_owned())],
            (None, _) => vec![Effect::Warn("mark the baseline first: m on another pack".to_owned())],
            (Some(a), Some(b)) if *a == b.pack => {
                vec![Effect::Warn("this is the marked pack: select another one to compare it with".to_owned())]
            }
            (Some(a), Some(b)) => vec![Effect::Compare(a.clone(), b.pack.clone())],
        }
    }

    fn mark(&mut self) -> Vec<Effect> {
        let Some(e) = self.selected().cloned() else { return Vec::new() };
        if e.standing != Standing::Packed {
            return vec![Effect::Warn("only a pack can be a baseline".to_owned())];
        }
        if self.marked.take_if(|m| *m == e.pack).is_some() {
            return vec![Effect::Say("mark removed".to_owned())];
        }
        self.marked = Some(e.pack.clone());
        vec![Effect::Say(format!("baseline: {}; d on another pack compares", clean(&e.name())))]
    }

    fn check_now(&mut self) -> Vec<Effect> {
        let Some(e) = self.selected().cloned() else { return Vec::new() };
        if e.standing != Standing::Packed {
            return vec![Effect::Warn("there is no pack to verify yet".to_owned())];
        }
        self.verify(&e, true)
    }

    fn cancel(&mut self) -> Option<Vec<Effect>> {
        let running = self.running.take_if(|r| r.asked)?;
        running.ticket.cancel();
        if let Some(entry) = self.checks.get_mut(&running.pack) {
            entry.1 = Check::Stopped;
        }
        Some(vec![Effect::Say("verification stopped: no verdict; v starts it again".to_owned())])
    }
}

impl Screen for PacksScreen {
    fn subject(&self) -> Option<Target> {
        let e = self.selected()?;
        let has_dir = matches!(e.standing, Standing::Packed | Standing::Half);
        Some(match &e.files {
            Some((segment, receipts)) if !has_dir => {
                Target::Journal { title: e.name(), segment: segment.clone(), receipts: receipts.clone() }
            }
            _ => Target::Pack(e.pack.clone()),
        })
    }

    fn place(&self) -> Contexts {
        Contexts::PACKS
    }

    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        if self.pane(at).command(&mut self.cursor, command) {
            return Some(self.next_check(at));
        }
        Some(match command {
            Command::Enter | Command::Right => self.open(),
            Command::Mark => self.mark(),
            Command::Compare => self.compare(),
            Command::Verify => self.check_now(),
            Command::Next | Command::Previous => self.next_problem(command == Command::Next, at),
            Command::CopyValue | Command::CopyPath => {
                let text = self.selected()?.pack.to_string_lossy().into_owned();
                vec![Effect::Copy { what: "path".to_owned(), text }]
            }
            Command::CopyRaw => {
                let text = self.selected()?.session.clone();
                vec![Effect::Copy { what: "session id".to_owned(), text }]
            }
            Command::Back => return self.cancel(),
            _ => return None,
        })
    }

    fn told(&mut self, told: Told, at: At) -> Result<Vec<Effect>, Told> {
        let told = match msg::hear(self.search.as_ref(), told) {
            Ok(found) => return Ok(self.found(found, at)),
            Err(told) => told,
        };
        match msg::hear(self.running.as_ref().map(|r| &r.ticket), told)? {
            Checking::Progress(p) => {
                if let Some(entry) = self.running.as_ref().and_then(|r| self.checks.get_mut(&r.pack)) {
                    entry.1 = Check::Running(percent(p));
                }
                Ok(Vec::new())
            }
            Checking::Done(result) => Ok(self.verified(result, at)),
        }
    }

    fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect> {
        let hit = self.pane(at).click(&mut self.cursor, x, y);
        if hit && twice { self.open() } else { Vec::new() }
    }

    fn wheel(&mut self, _x: u16, _y: u16, lines: i64, at: At) -> Vec<Effect> {
        self.pane(at).step(&mut self.cursor, lines);
        self.next_check(at)
    }

    fn draw(&self, pen: &mut Pen<'_>, at: At) {
        draw::screen(self, pen, at);
    }

    fn title(&self) -> String {
        let (shown, all) = (self.shown.len() as u64, self.entries.len() as u64);
        let count = match (self.filter.is_empty(), all) {
            (false, _) => format!("{} of {}: {}", grouped(shown), grouped(all), clean(&self.filter)),
            (true, _) => counted(all, "session"),
        };
        if self.search.is_some() { format!("{count}, looking…") } else { count }
    }

    fn filter(&self) -> Option<&str> {
        Some(&self.filter)
    }

    fn set_filter(&mut self, text: &str, at: At) -> Result<Vec<Effect>, FilterError> {
        self.parsed = Filter::sessions(text)?;
        text.clone_into(&mut self.filter);
        let selected = self.selected().map(|e| e.pack.clone());
        self.settle(selected.as_deref());
        self.cursor.settle(self.shown.len() as u64, draw::rows(at));
        Ok(self.next_check(at))
    }
}

impl PacksScreen {
    /// The next one that a person should look at.
    fn next_problem(&mut self, forward: bool, at: At) -> Vec<Effect> {
        let bad = |i: usize| {
            let e = &self.entries[self.shown[i]];
            let known = match self.check(e) {
                Some(Check::Known(v)) => v.in_one().role != super::theme::Role::Good,
                Some(Check::Failed(_) | Check::TooNew(..)) => true,
                _ => false,
            };
            known
                || matches!(
                    self.standing(e),
                    Standing::Died | Standing::NotOurs | Standing::TooNew(_) | Standing::Failed(_) | Standing::Half
                )
        };
        match kit::next(self.cursor.at, self.shown.len(), forward, false, bad) {
            Some(line) => {
                self.pane(at).to(&mut self.cursor, line);
                Vec::new()
            }
            None => vec![Effect::Say("no other pack with a problem in this direction".to_owned())],
        }
    }
}
