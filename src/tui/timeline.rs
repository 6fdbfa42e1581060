//! Calls as a picture of time: a lane for each server, calls in flight, and the totals by tool as bars.

use super::{
    cursor::{self, Cursor},
    keymap::Command,
    paint::Pen,
    screen::At,
    theme::{Role, Theme},
};
use crate::{
    model::WallTime,
    numbers::{counted, duration, grouped},
    pack::timeline::{Fate, Timeline},
    text::{fit, width},
    zone::Zone,
};
use ratatui::layout::Rect;

/// Columns of the names on the left.
const NAMES: u16 = 18;
/// The shortest stretch that is shown, microseconds.
const SHORTEST: i64 = 1_000;

/// Which part of the time is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scope {
    /// From and to, microseconds since 1970; all of it, up to now, if nothing else was asked for.
    stretch: Option<(i64, i64)>,
    cursor: Cursor,
}

/// A line of the picture: pieces that are safe.
type Line = Vec<(String, Role)>;

impl Scope {
    /// Does what was asked for; `None` if it means nothing here.
    pub fn command(&mut self, command: Command, timeline: &Timeline, at: At) -> Option<()> {
        let all = timeline.range().unwrap_or_default();
        let (from, to) = self.stretch.unwrap_or(all);
        let long = (to - from).max(SHORTEST);
        match command {
            Command::ZoomIn => self.look_at((from + long / 4, to - long / 4), all),
            Command::ZoomOut => self.look_at((from - long / 2, to + long / 2), all),
            Command::Left => self.look_at((from - long / 4, to - long / 4), all),
            Command::Right => self.look_at((from + long / 4, to + long / 4), all),
            command => {
                let lines = cursor::lines(command, at.area.height)?;
                let len = self.lines(timeline, at.area.width, Theme::default()).len() as u64;
                self.scroll(lines, len, at.area.height);
            }
        }
        Some(())
    }

    /// The wheel, lines down.
    pub fn wheel(&mut self, lines: i64, timeline: &Timeline, at: At) {
        let len = self.lines(timeline, at.area.width, Theme::default()).len() as u64;
        self.scroll(lines, len, at.area.height);
    }

    /// The first line that is shown goes down by so many.
    fn scroll(&mut self, lines: i64, len: u64, height: u16) {
        let most = len.saturating_sub(u64::from(height));
        self.cursor.top = self.cursor.top.min(most).saturating_add_signed(lines).min(most);
    }

    /// Another stretch, within all of the time and never shorter than what can be told apart.
    fn look_at(&mut self, (from, to): (i64, i64), all: (i64, i64)) {
        let long = (to - from).max(SHORTEST);
        if long >= all.1 - all.0 {
            self.stretch = None;
            return;
        }
        let from = from.clamp(all.0, all.1 - long);
        self.stretch = Some((from, from + long));
    }

    /// Draws the picture.
    pub fn draw(&self, pen: &mut Pen<'_>, timeline: &Timeline, area: Rect) {
        let lines = self.lines(timeline, area.width, pen.theme);
        let top = self.cursor.top.min((lines.len() as u64).saturating_sub(u64::from(area.height))) as usize;
        for (y, line) in (area.y..area.bottom()).zip(lines.iter().skip(top)) {
            let mut x = area.x;
            for (text, role) in line {
                x += pen.put(x, y, area.right().saturating_sub(x), text, *role);
            }
        }
    }

    fn lines(&self, timeline: &Timeline, columns: u16, theme: Theme) -> Vec<Line> {
        let Some(all) = timeline.range() else { return vec![vec![("no call yet".to_owned(), Role::Dim)]] };
        let names = if columns >= 3 * NAMES { NAMES } else { columns / 3 };
        let places = usize::from(columns.saturating_sub(names)).max(1);
        let (from, to) = self.stretch.unwrap_or(all);
        let view = timeline.view(from, to, places);
        let mut out = vec![scale((from, to), all, places, theme.zone)];
        let most = view.most();
        let mut flight = vec![name("in flight", Role::Dim, names)];
        flight.push((levels(&view.in_flight, most, theme.ascii), Role::Accent));
        out.push(flight);
        let label = format!("most at once: {}", grouped(u64::from(most)));
        out.push(vec![name("", Role::Dim, names), (fit(&label, places).into_owned(), Role::Dim)]);
        for lane in &view.lanes {
            for (n, row) in lane.rows.iter().enumerate() {
                let count = if n == 0 { format!(" {} ", grouped(lane.calls)) } else { String::new() };
                let wide = names.saturating_sub(count.len() as u16);
                let mut line =
                    vec![name(if n == 0 { &lane.server } else { "" }, Role::Strong, wide), (count, Role::Dim)];
                for run in row.chunk_by(|a, b| a == b) {
                    let (glyph, role) = run[0].map_or((" ", Role::Text), |fate| look(fate, theme));
                    line.push((glyph.repeat(run.len()), role));
                }
                out.push(line);
            }
        }
        if view.lanes.is_empty() {
            out.push(vec![("no call in this stretch".to_owned(), Role::Dim)]);
        }
        let legend = Fate::ALL.map(|fate| (format!("{} {}  ", look(fate, theme).0, fate.word()), look(fate, theme).1));
        out.push(std::iter::once(name("", Role::Dim, names)).chain(legend).collect());
        if timeline.left_out() > 0 {
            let text = format!("{} more are only in the totals", counted(timeline.left_out(), "call"));
            out.push(vec![(text, Role::Warn)]);
        }
        out.push(Line::new());
        out.extend(bars(timeline, columns, names, theme));
        out
    }
}

/// Which stretch of time is shown, and how much a column is.
fn scale((from, to): (i64, i64), all: (i64, i64), places: usize, zone: Zone) -> Line {
    let clock = |us: i64| zone.clock(WallTime::from_millis(us.div_euclid(1000)));
    let each = (to - from).unsigned_abs() / places as u64;
    let zone = zone.name(WallTime::from_millis(from.div_euclid(1000)));
    let long = duration((to - from).unsigned_abs());
    let part = if (from, to) == all { "all of it" } else { "a part" };
    vec![
        (format!("{} – {} {zone}", clock(from), clock(to)), Role::Strong),
        (format!("  {long}, {part}; a column is {}", duration(each)), Role::Dim),
    ]
}

/// A name on the left, with a blank behind it.
fn name(text: &str, role: Role, columns: u16) -> (String, Role) {
    let room = usize::from(columns).saturating_sub(1);
    let clean = super::paint::clean(&text.chars().take(200).collect::<String>());
    let shown = fit(&clean, room).into_owned();
    let pad = usize::from(columns).saturating_sub(width(&shown));
    (format!("{shown}{}", " ".repeat(pad)), role)
}

const fn look(fate: Fate, theme: Theme) -> (&'static str, Role) {
    match fate {
        Fate::Answered => (theme.glyph("█", "#"), Role::Good),
        Fate::Running => (theme.glyph("▒", "="), Role::Accent),
        Fate::Denied => (theme.glyph("✗", "x"), Role::Bad),
        Fate::Failed => ("!", Role::Bad),
    }
}

/// How many at each place, as heights.
fn levels(counts: &[u32], most: u32, ascii: bool) -> String {
    let glyphs: &[&str] = if ascii {
        &["1", "2", "3", "4", "5", "6", "7", "8"]
    } else {
        &["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"]
    };
    let glyph = |count: &u32| match count {
        0 => " ",
        n => glyphs[(u64::from(*n) * glyphs.len() as u64).div_ceil(u64::from(most.max(1))) as usize - 1],
    };
    counts.iter().map(glyph).collect()
}

/// The totals by tool, most time first.
fn bars(timeline: &Timeline, columns: u16, names: u16, theme: Theme) -> Vec<Line> {
    let tools = timeline.tools();
    let longest = tools.iter().map(|(_, t)| t.us).max().unwrap_or(0).max(1);
    let heads = [("tool", names), ("calls", 10), ("not ok", 10), ("time", 10)];
    let mut head = vec![name(heads[0].0, Role::Dim, names)];
    head.extend(heads[1..].iter().map(|(text, w)| (format!("{text:>w$}", w = usize::from(*w)), Role::Dim)));
    let mut out = vec![head];
    let room = usize::from(columns.saturating_sub(names + 32));
    for (tool, total) in tools {
        let wrong = total.denied + total.failed;
        let long = (u128::from(total.us) * room as u128).div_ceil(u128::from(longest)) as usize;
        out.push(vec![
            name(tool, Role::Text, names),
            (format!("{:>10}", grouped(total.calls)), Role::Text),
            (format!("{:>10}", grouped(wrong)), if wrong > 0 { Role::Bad } else { Role::Dim }),
            (format!("{:>10}  ", duration(total.us)), Role::Text),
            (theme.glyph("█", "#").repeat(long.min(room)), Role::Value),
        ]);
    }
    out
}
