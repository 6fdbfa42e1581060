//! The policy screen: a policy that is edited, and beside it what it would do to the session or pack that is selected. This is
//! the way from `audit` to `guard`.

mod draw;
mod editor;
mod judge;
mod results;
#[cfg(test)]
mod tests;

pub use judge::{Judged, NotWritten, Scope};

use super::{
    cursor,
    keymap::{Command, Contexts},
    kit::{ListPane, Part, Split, SplitPane},
    msg::{self, Effect, Job, Target, Ticket, Told},
    paint::{Pen, clean},
    screen::{At, Screen},
};
use crate::{
    live::{client::Update, protocol::LiveLine},
    model::{SessionId, WallTime},
    paths::DEFAULT_AUDIT_DIR,
    policy::{
        MAX_POLICY, PolicyError,
        dry_run::DryRunProgress,
        init::{FILE, STARTER},
    },
};
use crossterm::event::KeyEvent;
use editor::{Editor, Note};
use judge::{DryRunUpdate, Filed};
use ratatui::layout::{Position, Rect};
use results::{ResultRow, Results};
use std::path::{Path, PathBuf};

/// The text, and what it does to calls.
const SPLIT: Split = Split { beside: 100, columns: (10, 1), above: 14, lines: 11 };
/// Calls that come while a session lives are judged at most so often, milliseconds.
const AGAIN_MS: i64 = 1000;

/// State of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum File {
    /// Nobody has looked yet.
    #[default]
    Unread,
    /// What is in the editor came from it.
    There,
    /// There is none: what is in the editor is a proposal.
    New,
    /// It cannot be edited, and why.
    Bad(String),
}

/// What is done when it is asked for a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sure {
    Write,
    Reread,
}

/// State of the screen Policy.
#[derive(Debug)]
pub struct PolicyScreen {
    path: PathBuf,
    audit_dir: PathBuf,
    file: File,
    filed: Option<Ticket<Filed>>,
    editor: Editor,
    typing: bool,
    focus: Part,
    /// The second pane has all of the screen, and shows all about the selected line.
    whole: bool,
    error: Option<Box<PolicyError>>,
    /// What was selected when the screen was shown.
    chosen: Option<(Scope, Option<Target>)>,
    /// All sessions are judged instead.
    everything: bool,
    judging: Option<Ticket<DryRunUpdate>>,
    progress: Option<DryRunProgress>,
    results: Results,
    /// Why there are none.
    nothing: Option<String>,
    /// They were made from an older text than the present one.
    old: bool,
    /// Calls came that were not judged yet.
    more: bool,
    judged_at: i64,
    sure: Option<Sure>,
}

impl Default for PolicyScreen {
    fn default() -> Self {
        Self::new(None, None, Vec::new())
    }
}

impl PolicyScreen {
    /// Makes the screen, with nothing read yet: the file, the audit directory, and the calls to judge, if the user
    /// named some.
    #[must_use]
    pub fn new(file: Option<PathBuf>, audit_dir: Option<PathBuf>, against: Vec<PathBuf>) -> Self {
        let audit_dir = audit_dir.unwrap_or_else(|| DEFAULT_AUDIT_DIR.into());
        let chosen = (!against.is_empty()).then(|| {
            let title = against.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join(", ");
            (Scope { title, paths: against, audit_dir: audit_dir.clone() }, None)
        });
        Self {
            path: file.unwrap_or_else(|| FILE.into()),
            audit_dir,
            file: File::Unread,
            filed: None,
            editor: Editor::default(),
            typing: false,
            focus: Part::First,
            whole: false,
            error: None,
            chosen,
            everything: false,
            judging: None,
            progress: None,
            results: Results::default(),
            nothing: None,
            old: false,
            more: false,
            judged_at: 0,
            sure: None,
        }
    }

    /// It is shown now; `subject` is what was selected where one came from.
    pub fn shown(&mut self, subject: Option<Target>) -> Vec<Effect> {
        let chosen = subject.map(|target| (scope_of(&target, &self.audit_dir), Some(target)));
        let other = chosen.is_some() && chosen != self.chosen;
        if other {
            self.chosen = chosen;
            self.everything = false;
            self.results.clear();
        }
        // Somebody else may have written it in the meantime.
        let read = self.file == File::Unread || !self.editor.is_modified() && self.filed.is_none();
        let mut effects = if read { self.read() } else { Vec::new() };
        if self.file != File::Unread && (other || self.more) {
            effects.extend(self.judge());
        }
        effects
    }

    /// What would be lost if the program ended now: the file it belongs to, and the text.
    #[must_use]
    pub fn unsaved(&self) -> Option<(&Path, String)> {
        self.editor.is_modified().then(|| (self.path.as_path(), self.editor.text()))
    }

    /// Takes news of a live session: if that session is in scope, its calls are judged.
    pub fn live(&mut self, update: &Update) {
        let Update::Line(line) = update else { return };
        if let LiveLine::CallFinished(c) = &**line {
            self.more |= self.is_about(c.session_id);
        }
    }

    fn is_about(&self, session: SessionId) -> bool {
        match &self.chosen {
            Some((_, Some(Target::Journal { receipts, .. }))) if !self.everything => {
                receipts.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(&session.hex()))
            }
            Some(_) if !self.everything => false,
            _ => true,
        }
    }

    /// Time passes while it is on the screen.
    pub fn tick(&mut self, now: WallTime) -> Vec<Effect> {
        let due = self.more && self.judging.is_none() && now.millis() - self.judged_at >= AGAIN_MS;
        if !due || matches!(self.file, File::Unread | File::Bad(_)) || self.error.is_some() {
            return Vec::new();
        }
        self.judged_at = now.millis();
        self.judge()
    }

    fn read(&mut self) -> Vec<Effect> {
        let ticket = Ticket::new();
        self.filed = Some(ticket.clone());
        let path = self.path.clone();
        vec![Effect::Start(Job::new(&ticket, "read a policy", move |teller| {
            teller.tell(Filed::Read(judge::read(&path)));
        }))]
    }

    fn scope(&self) -> Scope {
        match &self.chosen {
            Some((scope, _)) if !self.everything => scope.clone(),
            chosen => {
                let dir = chosen.as_ref().map_or(&self.audit_dir, |(scope, _)| &scope.audit_dir);
                let title = format!("all sessions of {}", dir.display());
                Scope { title, paths: vec![dir.clone()], audit_dir: dir.clone() }
            }
        }
    }

    /// Judges what is in scope by the text as it is now.
    fn judge(&mut self) -> Vec<Effect> {
        if let Some(old) = self.judging.take() {
            old.cancel();
        }
        let ticket = Ticket::new();
        self.judging = Some(ticket.clone());
        self.progress = None;
        self.more = false;
        self.old = self.results.judged().is_some();
        let (text, name, scope) = (self.editor.text(), self.name(), self.scope());
        vec![Effect::Start(Job::new(&ticket, "dry run", move |teller| judge::judge(&text, &name, &scope, teller)))]
    }

    /// The file's name.
    fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// The text was changed.
    fn changed(&mut self, at: At) -> Vec<Effect> {
        self.sure = None;
        self.settle(at);
        self.judge()
    }

    fn write(&mut self) -> Vec<Effect> {
        if let File::Bad(why) = &self.file {
            return vec![Effect::Warn(format!("{}: {why}", clean(&self.name())))];
        }
        if self.filed.is_some() {
            return Vec::new();
        }
        let sure = self.sure.take() == Some(Sure::Write);
        let ticket = Ticket::new();
        self.filed = Some(ticket.clone());
        let (path, text, before) = (self.path.clone(), self.editor.text(), self.editor.in_file().map(str::to_owned));
        vec![Effect::Start(Job::new(&ticket, "write a policy", move |teller| {
            let news = match judge::write(&path, &text, before.as_deref(), sure) {
                Ok(()) => Filed::Written(text),
                Err(why) => Filed::NotWritten(why),
            };
            teller.tell(news);
        }))]
    }

    fn reread(&mut self) -> Vec<Effect> {
        if self.editor.is_modified() && self.sure.take() != Some(Sure::Reread) {
            self.sure = Some(Sure::Reread);
            return vec![Effect::Warn("there are unwritten changes: R again drops them".to_owned())];
        }
        self.read()
    }

    fn propose(&mut self) -> Vec<Effect> {
        let ticket = Ticket::new();
        self.filed = Some(ticket.clone());
        let scope = self.scope();
        vec![Effect::Start(Job::new(&ticket, "propose a policy", move |teller| {
            if let Some(proposed) = judge::propose(&scope, teller) {
                teller.tell(Filed::Proposed(proposed));
            }
        }))]
    }

    fn places(&self, at: At) -> SplitPane {
        if self.whole { SplitPane::only(Part::Second, at.area) } else { SplitPane::of(SPLIT, at, self.focus) }
    }

    /// The lines of the text, below their heading.
    fn text_body(&self, at: At) -> Rect {
        let area = self.places(at).first.unwrap_or(Rect { height: 0, ..at.area });
        let head = u16::from(area.height > 1);
        Rect { y: area.y + head, height: area.height - head, ..area }
    }

    fn note(&self, area: Rect) -> Note {
        self.editor.note(self.error.as_deref(), area)
    }

    /// Keeps both cursors on the screen.
    fn settle(&mut self, at: At) {
        let body = self.text_body(at);
        let note = self.note(body);
        self.editor.settle(&note, body);
        self.results.cursor.settle(self.results.len(), self.pane(at).area.height);
    }

    /// The list of what was judged.
    fn pane(&self, at: At) -> ListPane {
        let area = self.places(at).second.map(|area| draw::parts(self, area).1).unwrap_or_default();
        ListPane { len: self.results.len(), area }
    }

    fn in_text(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        if let Some(lines) = cursor::lines(command, self.text_body(at).height) {
            self.editor.step(lines);
            self.settle(at);
            return Some(Vec::new());
        }
        match command {
            Command::Left => self.editor.aside(false),
            Command::Right => self.editor.aside(true),
            Command::Edit => {
                if let File::Bad(why) = &self.file {
                    return Some(vec![Effect::Warn(format!("{}: {why}", clean(&self.name())))]);
                }
                self.typing = self.file != File::Unread;
            }
            Command::Next | Command::Previous => {
                let place = self.error.as_ref().map(|e| (e.line.unwrap_or(1), e.column.unwrap_or(1)));
                let Some((line, column)) = place else {
                    return Some(vec![Effect::Say("there is no error in the text".to_owned())]);
                };
                self.editor.go(line, column);
            }
            Command::CopyValue => {
                let text = self.editor.current();
                return Some(vec![Effect::Copy { what: "this line".to_owned(), text }]);
            }
            Command::CopyRaw => {
                return Some(vec![Effect::Copy { what: "the policy".to_owned(), text: self.editor.text() }]);
            }
            _ => return None,
        }
        self.settle(at);
        Some(Vec::new())
    }

    fn in_judged(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let pane = self.pane(at);
        if pane.command(&mut self.results.cursor, command) { Some(Vec::new()) } else { self.on_row(command, at) }
    }

    fn on_row(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let pane = self.pane(at);
        match (command, self.results.selected()) {
            (Command::Back, _) if self.whole => self.whole = false,
            (Command::Enter, Some(ResultRow::Head(section))) => self.results.toggle(section),
            (Command::Enter, Some(_)) => self.whole = !self.whole,
            (Command::Left, Some(ResultRow::Head(section))) if !self.results.is_folded(section) => {
                self.results.toggle(section);
            }
            (Command::Right, Some(ResultRow::Head(section))) if self.results.is_folded(section) => {
                self.results.toggle(section);
            }
            // To the rule, unless it is not where it was judged.
            (Command::Right, Some(ResultRow::Call(_) | ResultRow::Rule(_) | ResultRow::Note(_))) => {
                let Some(line) = self.results.line_of_rule().filter(|_| self.error.is_none()) else {
                    return Some(vec![Effect::Say("this rule is not in the text".to_owned())]);
                };
                self.editor.go(line, 1);
                self.focus(Part::First);
            }
            (Command::Left, Some(ResultRow::Head(_))) => self.focus(Part::First),
            (Command::Left, Some(_)) => {
                let head = self.results.head();
                pane.to(&mut self.results.cursor, head);
            }
            (Command::Next | Command::Previous, _) => {
                let Some(line) = self.results.next_call(command == Command::Next) else {
                    return Some(vec![Effect::Say("no other call changes its verdict".to_owned())]);
                };
                pane.to(&mut self.results.cursor, line);
            }
            (Command::CopyValue, _) => {
                let (what, text) = self.results.copied()?;
                return Some(vec![Effect::Copy { what, text }]);
            }
            _ => return None,
        }
        self.settle(at);
        Some(Vec::new())
    }

    fn focus(&mut self, focus: Part) {
        (self.focus, self.whole) = (focus, false);
    }

    /// Does what is the same in both panes.
    fn both(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        match command {
            Command::Write => return Some(self.write()),
            Command::Reread => return Some(self.reread()),
            Command::Propose => return Some(self.propose()),
            Command::Undo | Command::Redo => {
                let done = if command == Command::Undo { self.editor.undo() } else { self.editor.redo() };
                if done {
                    return Some(self.changed(at));
                }
                let what = if command == Command::Undo { "nothing to undo" } else { "nothing to redo" };
                return Some(vec![Effect::Say(what.to_owned())]);
            }
            Command::Everything => {
                if self.chosen.is_none() {
                    let what = "judging all sessions; to judge one alone, select it on Live or Packs and press 5";
                    return Some(vec![Effect::Say(what.to_owned())]);
                }
                self.everything = !self.everything;
                self.results.clear();
                return Some(self.judge());
            }
            Command::OpenFiles => {
                let target = self.chosen.as_ref().and_then(|(_, target)| target.clone()).filter(|_| !self.everything);
                return Some(match target {
                    Some(target) => vec![Effect::Open(target)],
                    None => vec![Effect::Say("to see the packs of all sessions, press 2".to_owned())],
                });
            }
            Command::NextPane | Command::PreviousPane => {
                self.focus(self.focus.other());
                self.settle(at);
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    fn read_news(&mut self, read: Result<Option<String>, String>, at: At) -> Vec<Effect> {
        self.sure = None;
        match read {
            Ok(Some(text)) => {
                if self.file != File::There || self.editor.in_file().is_none() {
                    self.editor = Editor::new(&text, Some(text.clone()));
                } else if self.editor.text() != text {
                    self.editor.replace(&text);
                    self.editor.saved(text);
                } else {
                    self.editor.saved(text);
                    if self.results.judged().is_some() && !self.more {
                        return Vec::new();
                    }
                }
                self.file = File::There;
            }
            Ok(None) if matches!(self.file, File::Unread | File::Bad(_)) => {
                self.editor = Editor::new(STARTER, None);
                self.file = File::New;
            }
            // Somebody has removed it; what is here is all that is left of it.
            Ok(None) => self.file = File::New,
            Err(why) => {
                self.file = File::Bad(why);
                return Vec::new();
            }
        }
        self.settle(at);
        self.judge()
    }

    fn not_written(&mut self, why: NotWritten) -> Vec<Effect> {
        let file = clean(&self.name());
        let said = match why {
            NotWritten::Changed => {
                self.sure = Some(Sure::Write);
                format!("{file} was changed by somebody else: w again overwrites it, R reads it again")
            }
            NotWritten::Wrong(what) => {
                self.sure = Some(Sure::Write);
                format!("not written, it has an error ({what}): w again writes it anyway")
            }
            NotWritten::Failed(what) => format!("{file} was not written: {what}; the text is still here"),
        };
        vec![Effect::Warn(said)]
    }

    fn file_news(&mut self, news: Filed, at: At) -> Vec<Effect> {
        self.filed = None;
        match news {
            Filed::Read(read) => self.read_news(read, at),
            Filed::Written(text) => {
                self.editor.saved(text);
                self.file = File::There;
                vec![Effect::Say(format!("written: {}; guards that use it reload it at once", clean(&self.name())))]
            }
            Filed::NotWritten(why) => self.not_written(why),
            Filed::Proposed(Ok(text)) => {
                self.editor.replace(&text);
                let mut effects = self.changed(at);
                effects.push(Effect::Say("the smallest policy for these calls; u undoes it".to_owned()));
                effects
            }
            Filed::Proposed(Err(why)) => vec![Effect::Warn(format!("nothing to propose: {why}"))],
        }
    }

    fn judge_news(&mut self, news: DryRunUpdate, at: At) {
        match news {
            DryRunUpdate::Wrong(error) => {
                self.error = Some(error);
                self.judging = None;
            }
            DryRunUpdate::Right(notes) => {
                self.error = None;
                self.results.remark(notes);
            }
            DryRunUpdate::Nothing(why) => {
                self.results.clear();
                self.nothing = Some(why);
                self.judging = None;
            }
            DryRunUpdate::Judged(judged, progress) => {
                self.results.set(judged);
                self.nothing = None;
                self.old = false;
                self.progress = progress;
                if progress.is_none() {
                    self.judging = None;
                }
            }
        }
        self.settle(at);
    }
}

/// What is judged when this was selected.
fn scope_of(target: &Target, audit_dir: &Path) -> Scope {
    let root = |path: &Path, below: &str| {
        let dir = path.parent().filter(|dir| dir.file_name().is_some_and(|name| name == below));
        dir.and_then(Path::parent).map_or_else(|| audit_dir.to_owned(), Path::to_owned)
    };
    match target {
        Target::Pack(dir) => {
            let title =
                dir.file_name().map_or_else(|| dir.to_string_lossy(), |name| name.to_string_lossy()).into_owned();
            Scope { title, paths: vec![dir.clone()], audit_dir: root(dir, "packs") }
        }
        Target::Journal { title, receipts, .. } => {
            Scope { title: title.clone(), paths: vec![receipts.clone()], audit_dir: root(receipts, "receipts") }
        }
    }
}

impl Screen for PolicyScreen {
    fn place(&self) -> Contexts {
        match self.focus {
            Part::First if self.typing => Contexts::EDITOR,
            Part::First => Contexts::POLICY,
            Part::Second => Contexts::JUDGED,
        }
    }

    fn command(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        if !matches!(command, Command::Write | Command::Reread) {
            self.sure = None;
        }
        if command == Command::Back && self.typing {
            self.typing = false;
            self.settle(at);
            return Some(Vec::new());
        }
        if let Some(effects) = self.both(command, at) {
            return Some(effects);
        }
        match self.focus {
            Part::First => self.in_text(command, at),
            Part::Second => self.in_judged(command, at),
        }
    }

    fn typed(&mut self, event: KeyEvent, at: At) -> Vec<Effect> {
        use crossterm::event::KeyCode;
        let page = i64::from(self.text_body(at).height.max(2)) - 1;
        match event.code {
            KeyCode::PageUp => self.editor.step(-page),
            KeyCode::PageDown => self.editor.step(page),
            _ if self.editor.key(event) => return self.changed(at),
            _ => {}
        }
        self.settle(at);
        Vec::new()
    }

    fn pasted(&mut self, text: &str, at: At) -> Vec<Effect> {
        if self.typing && self.editor.paste(text, MAX_POLICY as usize) { self.changed(at) } else { Vec::new() }
    }

    fn told(&mut self, told: Told, at: At) -> Result<Vec<Effect>, Told> {
        match msg::hear(self.filed.as_ref(), told) {
            Ok(news) => return Ok(self.file_news(news, at)),
            Err(told) => self.judge_news(msg::hear(self.judging.as_ref(), told)?, at),
        }
        Ok(Vec::new())
    }

    fn click(&mut self, x: u16, y: u16, twice: bool, at: At) -> Vec<Effect> {
        match self.places(at).part_at(x, y) {
            Some(Part::First) => {
                self.focus(Part::First);
                let body = self.text_body(at);
                if body.contains(Position::new(x, y)) {
                    let note = self.note(body);
                    self.editor.click(x, y, &note, body);
                    if twice {
                        return self.in_text(Command::Edit, at).unwrap_or_default();
                    }
                }
            }
            Some(Part::Second) => {
                self.typing = false;
                self.focus = Part::Second;
                if self.pane(at).click(&mut self.results.cursor, x, y) && twice {
                    return self.on_row(Command::Enter, at).unwrap_or_default();
                }
            }
            None => {}
        }
        self.settle(at);
        Vec::new()
    }

    fn wheel(&mut self, x: u16, y: u16, lines: i64, at: At) -> Vec<Effect> {
        if self.places(at).part_at(x, y) == Some(Part::Second) {
            self.pane(at).step(&mut self.results.cursor, lines);
        } else {
            self.editor.step(lines);
            self.settle(at);
        }
        Vec::new()
    }

    fn draw(&self, pen: &mut Pen<'_>, at: At) {
        draw::screen(self, pen, at);
    }

    fn title(&self) -> String {
        match (&self.error, self.results.judged()) {
            (Some(_), _) => "an error in the policy".to_owned(),
            (None, Some(judged)) => judged.report.headline(),
            (None, None) => clean(&self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy()),
        }
    }
}
