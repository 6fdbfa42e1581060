//! The whole dashboard as a value: what is shown, and how it changes. No I/O.

use super::{
    bars, cursor,
    diff::DiffScreen,
    input::TextInput,
    keymap::{self, Command, Contexts, Key},
    live::{LiveScreen, hint::Place},
    msg::{Effect, Msg, ScreenId, Target, Told},
    overlay::{Overlay, Toast},
    pack::PackScreen,
    packs::PacksScreen,
    palette::PaletteBox,
    policy::PolicyScreen,
    screen::{At, Screen},
    surface::SurfaceScreen,
    theme::Theme,
};
use crate::model::WallTime;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use std::path::PathBuf;

/// How long a message stays, milliseconds.
const TOAST_MS: i64 = 6000;
/// Lines that one turn of the wheel moves.
const WHEEL: i64 = 3;
/// Two clicks within this time are one double click, milliseconds.
const DOUBLE_MS: i64 = 400;

/// How the dashboard starts.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Colours and glyphs.
    pub theme: Theme,
    /// Whether the mouse is listened to.
    pub mouse: bool,
    /// Which audit directory the list of packs shows, besides the history.
    pub audit_dir: Option<PathBuf>,
    /// Where a gateway keeps its files, if not below the user directory.
    pub gateway: Option<PathBuf>,
    /// The first filter.
    pub filter: String,
    /// Something to open at once.
    pub open: Option<Target>,
    /// Two packs to compare at once.
    pub compare: Option<(PathBuf, PathBuf)>,
    /// Fingerprints of signers that are trusted.
    pub signers: Vec<String>,
    /// Whether live sessions are watched at all.
    pub live: bool,
    /// Whether drift of servers is said on every screen.
    pub surfaces: bool,
    /// Where servers that leave no evidence are looked for while no session is live.
    pub servers: Option<Place>,
    /// The policy file of the policy screen.
    pub policy: Option<PathBuf>,
    /// The policy screen is shown at once, on these recordings; on all of the audit directory if there are none.
    pub against: Option<Vec<PathBuf>>,
}

/// State of the whole dashboard: its screens, what is shown over them, and the jobs that run.
#[derive(Debug)]
pub struct App {
    size: Rect,
    now: WallTime,
    /// Colours and glyphs.
    pub theme: Theme,
    mouse: bool,
    shown: ScreenId,
    /// Where `q` and Esc go back to.
    before: Vec<ScreenId>,
    /// The screen of live sessions.
    pub live: LiveScreen,
    /// The list of packs.
    pub packs: PacksScreen,
    /// The screen of one pack.
    pub pack: PackScreen,
    /// The comparison of two packs.
    pub diff: DiffScreen,
    /// The screen of a policy: its text and what it would do.
    pub policy: PolicyScreen,
    /// What servers offer, and what of it is approved.
    pub surface: SurfaceScreen,
    overlay: Option<Overlay>,
    toast: Option<Toast>,
    clicked: Option<(u16, u16, WallTime)>,
    /// Whether the screen differs from what was drawn last.
    dirty: bool,
}

impl App {
    /// A dashboard of this size at this time, and what it wants done first.
    #[must_use]
    pub fn new(start: Start, columns: u16, lines: u16, now: WallTime) -> (Self, Vec<Effect>) {
        let edit = start.against.is_some();
        let mut app = Self {
            size: Rect::new(0, 0, columns, lines),
            now,
            theme: start.theme,
            mouse: start.mouse,
            shown: if start.live { ScreenId::Live } else { ScreenId::Packs },
            before: Vec::new(),
            live: LiveScreen::new(start.servers),
            policy: PolicyScreen::new(start.policy, start.audit_dir.clone(), start.against.unwrap_or_default()),
            surface: SurfaceScreen::new(start.audit_dir.as_deref(), start.gateway, start.surfaces),
            packs: PacksScreen::new(start.audit_dir, start.signers.clone()),
            pack: PackScreen::new(start.signers.clone()),
            diff: DiffScreen::new(start.signers),
            overlay: None,
            toast: None,
            clicked: None,
            dirty: true,
        };
        let mut effects = Vec::new();
        if !start.filter.is_empty()
            && let Ok(more) = app.live.set_filter(&start.filter, app.at())
        {
            effects.extend(more);
        }
        let mut wanted = Vec::new();
        if let Some(target) = start.open {
            wanted.push(Effect::Open(target));
        }
        if let Some((a, b)) = start.compare {
            wanted.push(Effect::Compare(a, b));
        }
        if edit {
            wanted.push(Effect::Show(ScreenId::Policy));
        }
        if wanted.is_empty() && !start.live {
            wanted.push(Effect::Show(ScreenId::Packs));
        }
        effects.extend(app.inside(wanted));
        if !start.live || edit {
            // What was opened is the first screen: leaving it leaves the program.
            app.before.clear();
        }
        (app, effects)
    }

    /// Takes what happened; what is to be done about it outside.
    pub fn update(&mut self, msg: Msg) -> Vec<Effect> {
        let effects = match msg {
            Msg::Key(event) => {
                self.dirty = true;
                self.key(event)
            }
            Msg::Paste(text) => {
                self.dirty = true;
                self.paste(&text)
            }
            Msg::Mouse(event) => self.mouse(event),
            Msg::Resize(columns, lines) => {
                self.size = Rect::new(0, 0, columns, lines);
                self.dirty = true;
                Vec::new()
            }
            Msg::Live(update) => {
                let mut effects = self.packs.live(&update);
                self.policy.live(&update);
                let at = self.at();
                let (changed, more) = self.live.live(update, at);
                self.dirty |= changed && matches!(self.shown, ScreenId::Live | ScreenId::Packs);
                effects.extend(more);
                effects
            }
            Msg::Told(told) => {
                self.dirty = true;
                self.told(told)
            }
            Msg::Ask(effect) => {
                self.dirty = true;
                vec![effect]
            }
            Msg::Tick(now) => self.tick(now),
        };
        self.inside(effects)
    }

    /// Whether something changed since [`Self::drawn`].
    #[must_use]
    pub const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// What is shown is on the screen.
    pub fn drawn(&mut self) {
        self.dirty = false;
    }

    /// The screen is to be drawn again.
    pub(super) const fn touch(&mut self) {
        self.dirty = true;
    }

    /// Whether a clock runs on the screen.
    #[must_use]
    pub fn has_clocks(&self) -> bool {
        self.shown == ScreenId::Live && self.live.has_clocks()
    }

    /// The screen that is shown.
    #[must_use]
    pub const fn shown(&self) -> ScreenId {
        self.shown
    }

    /// The message at the bottom.
    #[must_use]
    pub const fn toast(&self) -> Option<&Toast> {
        self.toast.as_ref()
    }

    /// One line about what was seen, for the normal screen afterwards.
    #[must_use]
    pub fn farewell(&self) -> String {
        self.live.farewell()
    }

    pub(super) const fn size(&self) -> Rect {
        self.size
    }

    pub(super) const fn overlay(&self) -> Option<&Overlay> {
        self.overlay.as_ref()
    }

    /// Where the screen is: all but the first line and the last.
    pub(super) fn at(&self) -> At {
        let r = self.size;
        let head = u16::from(r.height > 2);
        let foot = u16::from(r.height > 1);
        At { area: Rect { y: r.y + head, height: r.height - head - foot, ..r }, now: self.now }
    }

    /// Where keys go.
    pub(super) fn place(&self) -> Contexts {
        match &self.overlay {
            Some(Overlay::Help { .. }) => Contexts::READING,
            Some(Overlay::Palette(_)) => Contexts::PALETTE,
            Some(Overlay::Filter { .. }) => Contexts::TYPING,
            None => self.screen().place(),
        }
    }

    #[cfg(test)]
    pub(super) fn place_for_tests(&self) -> Contexts {
        self.place()
    }

    pub(super) fn screen(&self) -> &dyn Screen {
        match self.shown {
            ScreenId::Live => &self.live,
            ScreenId::Packs => &self.packs,
            ScreenId::Pack => &self.pack,
            ScreenId::Diff => &self.diff,
            ScreenId::Policy => &self.policy,
            ScreenId::Surface => &self.surface,
        }
    }

    fn screen_mut(&mut self) -> &mut dyn Screen {
        match self.shown {
            ScreenId::Live => &mut self.live,
            ScreenId::Packs => &mut self.packs,
            ScreenId::Pack => &mut self.pack,
            ScreenId::Diff => &mut self.diff,
            ScreenId::Policy => &mut self.policy,
            ScreenId::Surface => &mut self.surface,
        }
    }

    fn told(&mut self, mut told: Told) -> Vec<Effect> {
        let at = self.at();
        let screens: [&mut dyn Screen; 6] =
            [&mut self.live, &mut self.packs, &mut self.pack, &mut self.diff, &mut self.policy, &mut self.surface];
        for screen in screens {
            told = match screen.told(told, at) {
                Ok(effects) => return effects,
                Err(told) => told,
            };
        }
        // Nobody waits for it any more.
        Vec::new()
    }

    fn tick(&mut self, now: WallTime) -> Vec<Effect> {
        let moved = now.millis() / 1000 != self.now.millis() / 1000;
        self.now = now;
        self.dirty |= self.has_clocks() || moved && self.shown == ScreenId::Live && self.live.has_ages();
        if self.toast.as_ref().is_some_and(|t| now.millis() >= t.until.millis()) {
            self.toast = None;
            self.dirty = true;
        }
        let mut effects = self.live.tick(now);
        effects.extend(self.pack.tick(now));
        effects.extend(self.surface.tick(now, self.shown == ScreenId::Surface));
        match self.shown {
            ScreenId::Policy => effects.extend(self.policy.tick(now)),
            ScreenId::Pack => effects.extend(self.pack.renew(now)),
            _ => {}
        }
        effects
    }

    /// Does what can be done inside; the rest is for outside.
    pub(super) fn inside(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut outside = Vec::new();
        let mut queue = std::collections::VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Show(id) => queue.extend(self.show(id)),
                Effect::Open(target) => {
                    queue.extend(self.pack.open(target));
                    queue.extend(self.show(ScreenId::Pack));
                }
                Effect::Compare(a, b) => {
                    queue.extend(self.diff.compare(a, b));
                    queue.extend(self.show(ScreenId::Diff));
                }
                Effect::Say(text) => self.say(text, false),
                Effect::Warn(text) => self.say(text, true),
                other => outside.push(other),
            }
        }
        outside
    }

    fn say(&mut self, text: String, bad: bool) {
        let until = WallTime::from_millis(self.now.millis() + TOAST_MS);
        self.toast = Some(Toast { text, bad, until });
        self.dirty = true;
    }

    fn show(&mut self, id: ScreenId) -> Vec<Effect> {
        let subject = self.screen().subject();
        if id != self.shown {
            self.before.retain(|s| *s != id);
            self.before.push(self.shown);
            self.shown = id;
        }
        match id {
            ScreenId::Packs => self.packs.shown(),
            ScreenId::Policy => self.policy.shown(subject),
            ScreenId::Surface => self.surface.shown(),
            _ => Vec::new(),
        }
    }

    fn key(&mut self, event: KeyEvent) -> Vec<Effect> {
        let key = Key::of(&event);
        let place = self.place();
        if keymap::command(key, place) == Some(Command::Suspend) {
            return vec![Effect::Suspend];
        }
        if keymap::command(key, place) == Some(Command::Leave) {
            return vec![Effect::Leave];
        }
        match self.overlay.take() {
            Some(Overlay::Filter { line, before, .. }) => return self.filter_key(line, before, event),
            Some(Overlay::Palette(palette)) => return self.palette_key(palette, event),
            other => self.overlay = other,
        }
        if event.modifiers.contains(KeyModifiers::ALT) {
            return Vec::new();
        }
        match keymap::command(key, place) {
            Some(command) => self.command(command),
            None if place == Contexts::EDITOR => {
                let at = self.at();
                self.screen_mut().typed(event, at)
            }
            None => Vec::new(),
        }
    }

    fn filter_key(&mut self, mut line: TextInput, before: String, event: KeyEvent) -> Vec<Effect> {
        let at = self.at();
        match (event.code, event.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Esc, _) => return self.screen_mut().set_filter(&before, at).unwrap_or_default(),
            (KeyCode::Enter, _) => {
                let text = line.text().to_owned();
                match self.screen_mut().set_filter(&text, at) {
                    Ok(effects) => return effects,
                    Err(e) => {
                        self.overlay = Some(Overlay::Filter { line, before, error: Some(e) });
                        return Vec::new();
                    }
                }
            }
            _ => {
                line.key(event);
            }
        }
        self.filtered(line, before)
    }

    /// Narrows as far as what is typed means something.
    fn filtered(&mut self, line: TextInput, before: String) -> Vec<Effect> {
        let at = self.at();
        let (effects, error) = match self.screen_mut().set_filter(line.text(), at) {
            Ok(effects) => (effects, None),
            Err(e) => (Vec::new(), Some(e)),
        };
        self.overlay = Some(Overlay::Filter { line, before, error });
        effects
    }

    fn palette_key(&mut self, mut palette: PaletteBox, event: KeyEvent) -> Vec<Effect> {
        match event.code {
            KeyCode::Esc => Vec::new(),
            KeyCode::Enter => match palette.chosen() {
                Some(command) => self.command(command),
                None => Vec::new(),
            },
            _ => {
                palette.key(event);
                self.overlay = Some(Overlay::Palette(palette));
                Vec::new()
            }
        }
    }

    fn paste(&mut self, text: &str) -> Vec<Effect> {
        match self.overlay.take() {
            Some(Overlay::Filter { mut line, before, .. }) => {
                line.paste(text);
                self.filtered(line, before)
            }
            Some(Overlay::Palette(mut palette)) => {
                palette.paste(text);
                self.overlay = Some(Overlay::Palette(palette));
                Vec::new()
            }
            Some(other) => {
                self.overlay = Some(other);
                Vec::new()
            }
            None => {
                let at = self.at();
                self.screen_mut().pasted(text, at)
            }
        }
    }

    /// Whether the mouse is listened to.
    #[must_use]
    pub const fn listens_to_mouse(&self) -> bool {
        self.mouse
    }

    /// Does what a key, the palette or the mouse asked for.
    pub fn command(&mut self, command: Command) -> Vec<Effect> {
        let at = self.at();
        if let Some(Overlay::Help { top, place }) = &mut self.overlay {
            let lines = bars::help_lines(*place);
            let page = i64::from(at.area.height.saturating_sub(4).max(1));
            if command == Command::Redraw {
                return vec![Effect::Redraw];
            }
            let Some(step) = cursor::lines(command, page as u16 + 1) else {
                self.overlay = None;
                return Vec::new();
            };
            let last = (lines as u64).saturating_sub(page as u64);
            *top = top.saturating_add_signed(step).min(last);
            return Vec::new();
        }
        if let Some(effects) = self.screen_mut().command(command, at) {
            return effects;
        }
        match command {
            Command::Help => self.overlay = Some(Overlay::Help { top: 0, place: self.screen().place() }),
            Command::Palette => self.overlay = Some(Overlay::Palette(PaletteBox::new(self.screen().place()))),
            Command::Filter => {
                if let Some(before) = self.screen().filter().map(ToOwned::to_owned) {
                    self.overlay = Some(Overlay::Filter { line: TextInput::new(&before), before, error: None });
                }
            }
            Command::Back => {
                if self.screen().filter().is_some_and(|f| !f.is_empty()) {
                    return self.screen_mut().set_filter("", at).unwrap_or_default();
                }
                self.shown = self.before.pop().unwrap_or(self.shown);
            }
            Command::Quit => match self.before.pop() {
                Some(before) => self.shown = before,
                None => return vec![Effect::Leave],
            },
            Command::Leave => return vec![Effect::Leave],
            Command::ShowLive => return self.show(ScreenId::Live),
            Command::ShowPacks => return self.show(ScreenId::Packs),
            Command::ShowPack => return self.show(ScreenId::Pack),
            Command::ShowDiff => return self.show(ScreenId::Diff),
            Command::ShowPolicy => return self.show(ScreenId::Policy),
            Command::ShowSurface => return self.show(ScreenId::Surface),
            Command::Mouse => {
                self.mouse = !self.mouse;
                let word =
                    if self.mouse { "on: shift selects text in most terminals" } else { "off: the terminal selects" };
                self.say(format!("mouse {word}"), false);
                return vec![Effect::Mouse(self.mouse)];
            }
            Command::Theme => {
                self.theme = self.theme.next();
                self.say(format!("theme: {}", self.theme.name()), false);
            }
            Command::Zone => {
                self.theme.zone = self.theme.zone.other();
                self.say(format!("times are in {}", self.theme.zone.name(self.now)), false);
            }
            Command::Redraw => return vec![Effect::Redraw],
            Command::Suspend => return vec![Effect::Suspend],
            _ => {}
        }
        Vec::new()
    }

    fn mouse(&mut self, event: MouseEvent) -> Vec<Effect> {
        let (x, y, at) = (event.column, event.row, self.at());
        let lines = match event.kind {
            MouseEventKind::ScrollUp => -WHEEL,
            MouseEventKind::ScrollDown => WHEEL,
            MouseEventKind::Down(MouseButton::Left) => 0,
            _ => return Vec::new(),
        };
        self.dirty = true;
        if self.overlay.is_some() {
            return match lines {
                0 => {
                    self.overlay = None;
                    Vec::new()
                }
                n => {
                    let command = if n < 0 { Command::Up } else { Command::Down };
                    if matches!(self.overlay, Some(Overlay::Help { .. })) { self.command(command) } else { Vec::new() }
                }
            };
        }
        if lines != 0 {
            return self.screen_mut().wheel(x, y, lines, at);
        }
        if y < at.area.y {
            return bars::tab_at(self.shown, self.size.width, x).map(|id| self.show(id)).unwrap_or_default();
        }
        if y >= at.area.bottom() {
            let hint = bars::hint_at(self.place(), self.size.width, x).filter(|_| self.toast.is_none());
            return hint.map(|c| self.command(c)).unwrap_or_default();
        }
        let twice = self.clicked.take().is_some_and(|(cx, cy, when)| {
            (cx, cy) == (x, y) && self.now.millis().saturating_sub(when.millis()) < DOUBLE_MS
        });
        if !twice {
            self.clicked = Some((x, y, self.now));
        }
        self.screen_mut().click(x, y, twice, at)
    }
}
