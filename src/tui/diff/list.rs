//! The list on the screen: columns are dropped, not squeezed.

use super::{
    Side,
    rows::{self, DiffRow, Section, side},
};
use crate::{
    model::surface::Severity,
    numbers::{NONE, duration, grouped, increase, increase_pct},
    pack::{
        diff::{CallChange, ContextChange, Document, Quantiles, SideView, SurfaceGroup, ToolRow},
        verify::{Claims, Completeness, Integrity, SignerVerdict},
    },
    text::width,
    tui::{
        cursor::Cursor,
        kit::{ListPane, Sections},
        paint::{Pen, clean},
        theme::{Role, Theme},
    },
};
use ratatui::layout::Rect;

/// A change of the 95th percentile that is coloured, in percent.
const SHIFT: f64 = 25.0;
/// Digits of a hash that tell calls apart.
const HASH: usize = 12;
/// Columns of `a → b` for two times.
const TIMES: u16 = 18;

/// What is drawn.
pub struct View<'a> {
    /// The comparison that is shown.
    pub document: &'a Document,
    /// The rows of the list.
    pub rows: &'a [DiffRow],
    /// What of it is folded.
    pub folds: Sections<Section>,
    /// Whether a filter hides some.
    pub filtered: bool,
}

impl View<'_> {
    /// Draws the rows that are on the screen.
    pub fn draw(&self, pen: &mut Pen<'_>, area: Rect, cursor: &Cursor, focused: bool) {
        ListPane::new(self.rows.len(), area).draw(cursor, pen, Some(focused), |pen, n, line| {
            if let Some(row) = self.rows.get(n) {
                self.row(pen, line, *row, n);
            }
        });
    }

    fn row(&self, pen: &mut Pen<'_>, line: Rect, row: DiffRow, at: usize) {
        let comparison = self.document.comparison.as_ref();
        match row {
            DiffRow::Head(section) => self.head(pen, line, section, at),
            DiffRow::Side(which) => pack(pen, line, which, side(self.document, which)),
            DiffRow::Verdicts(which) => verdicts(pen, line, side(self.document, which)),
            DiffRow::Finding(which, n) => {
                if let Some(finding) = side(self.document, which).errors.get(n) {
                    let used = mark(pen, line, 4, "!", Role::Bad);
                    let text = format!("{} {}", finding.code, finding.message);
                    pen.outside(line.x + used, line.y, line.width.saturating_sub(used), &text, Role::Text);
                }
            }
            DiffRow::NotCompared => {
                let used = mark(pen, line, 2, pen.theme.glyph("✗", "x"), Role::Bad);
                let room = line.width.saturating_sub(used);
                let text = not_compared(self.document);
                pen.put(line.x + used, line.y, room, &pen.fitted(&text, room), Role::Bad);
            }
            DiffRow::Worse(n) => {
                if let Some(r) = self.document.regressions.get(n) {
                    let used = mark(pen, line, 2, pen.theme.glyph("✗", "x"), Role::Bad);
                    pen.outside(line.x + used, line.y, line.width.saturating_sub(used), &r.what, Role::Text);
                }
            }
            DiffRow::Change(n) => {
                if let Some(change) = comparison.and_then(|c| c.changes.get(n)) {
                    call(pen, line, change);
                }
            }
            DiffRow::Omitted(section) => {
                let text =
                    format!("and {} more, counted but not listed", grouped(rows::omitted(self.document, section)));
                let room = line.width.saturating_sub(4);
                pen.put(line.x + 4.min(line.width), line.y, room, &pen.fitted(&text, room), Role::Dim);
            }
            DiffRow::AllTools => {
                if let Some(c) = comparison {
                    let calls = (c.totals_a.calls, c.totals_b.calls);
                    times(pen, line, "all tools", calls, &c.latency_a, &c.latency_b);
                }
            }
            DiffRow::Tool(n) => {
                if let Some(tool) = comparison.and_then(|c| c.tools.get(n)) {
                    tool_row(pen, line, tool);
                }
            }
            DiffRow::Context(n) => {
                if let Some(change) = comparison.and_then(|c| c.context.get(n)) {
                    context(pen, line, change);
                }
            }
            DiffRow::Surface(n) => {
                if let Some(group) = comparison.and_then(|c| c.surface.get(n)) {
                    surface(pen, line, group);
                }
            }
        }
    }

    fn head(&self, pen: &mut Pen<'_>, line: Rect, section: Section, at: usize) {
        let total = rows::total(self.document, section);
        let fold = match (total, self.folds.has(section)) {
            (0, _) => " ",
            (_, true) => pen.theme.glyph("▸", ">"),
            (_, false) => pen.theme.glyph("▾", "v"),
        };
        pen.put(line.x, line.y, 1, fold, Role::Dim);
        let role = if total == 0 { Role::Dim } else { Role::Strong };
        let room = line.width.saturating_sub(2);
        let mut used = 2 + pen.put(line.x + 2, line.y, room, &pen.fitted(section.title(), room), role);
        let mut put = |text: &str, role| {
            used += 2;
            let room = line.width.saturating_sub(used);
            used += pen.put(line.x + used, line.y, room, text, role);
        };
        match section {
            Section::Sides => {}
            Section::Worse if total == 0 => put("nothing", Role::Good),
            _ if total == 0 => put("none", Role::Dim),
            _ if self.filtered => {
                let after = &self.rows[(at + 1).min(self.rows.len())..];
                let own = after.iter().take_while(|r| !matches!(r, DiffRow::Head(_)));
                let shown = own.filter(|r| !matches!(r, DiffRow::Omitted(_))).count() as u64;
                put(&format!("{} of {}", grouped(shown), grouped(total)), Role::Dim);
            }
            _ => put(&grouped(total), Role::Dim),
        }
        if section == Section::Tools && total > 0 && !self.folds.has(section) {
            let used = used + 2;
            for (title, x, w) in columns(line.width).titles() {
                if x > used {
                    pen.right(line.x + x, line.y, w, title, Role::Dim);
                }
            }
        }
    }
}

/// Which side does not verify, and why.
pub fn not_compared(document: &Document) -> String {
    let why = |name: &str, s: &SideView| {
        rows::is_unverified(s).then(|| match s.integrity {
            Integrity::Pass => format!("{name} is not signed by a key that you named ({})", s.signer.verdict),
            bad @ Integrity::Tampered => format!("{name} does not verify ({bad})"),
            Integrity::Unsupported => format!("{name} is too new: a later version wrote part of it (UNSUPPORTED)"),
        })
    };
    let both: Vec<String> = [why("A", &document.a), why("B", &document.b)].into_iter().flatten().collect();
    format!("not compared: {}", both.join(", "))
}

fn mark(pen: &mut Pen<'_>, line: Rect, indent: u16, glyph: &str, role: Role) -> u16 {
    let indent = indent.min(line.width / 8);
    pen.put(line.x + indent, line.y, line.width.saturating_sub(indent).min(1), glyph, role);
    indent + 2
}

fn pack(pen: &mut Pen<'_>, line: Rect, which: Side, side: &SideView) {
    let used = mark(pen, line, 2, if which == Side::A { "A" } else { "B" }, Role::Strong);
    let room = line.width.saturating_sub(used);
    let many = side.receipts();
    let when =
        side.timestamp_start.as_deref().map(|t| clean(&t.chars().take(16).collect::<String>()).replace('T', " "));
    let mut note = String::new();
    if room >= 40 {
        note = many;
    }
    if let (Some(when), true) = (when, room >= 66) {
        note = format!("{note}  {when}");
    }
    let columns = width(&note) as u16;
    // The end of a path says more than its beginning.
    let path = clean(&side.path);
    let space = room.saturating_sub(columns + 2).max(1);
    let shown = if width(&path) <= space as usize { path.as_str() } else { path.rsplit('/').next().unwrap_or(&path) };
    pen.outside(line.x + used, line.y, space, shown, Role::Accent);
    pen.right(line.x + used, line.y, room, &note, Role::Dim);
}

/// The four verdicts, each with its glyph, word and role.
pub fn four(side: &SideView, theme: Theme) -> [(String, Role); 4] {
    let say = |good: Option<bool>, word: &str| {
        let (glyph, role) = match good {
            Some(true) => (theme.glyph("✓", "+"), Role::Good),
            None => ("!", Role::Warn),
            Some(false) => (theme.glyph("✗", "x"), Role::Bad),
        };
        (format!("{glyph} {word}"), role)
    };
    let claims = match side.claims {
        Claims::Pass => say(Some(true), "claims PASS"),
        Claims::HonestFail => say(Some(false), "claims HONEST_FAIL"),
        Claims::NotEvaluated => ("- claims NOT_EVALUATED".to_owned(), Role::Dim),
    };
    [
        match side.integrity {
            Integrity::Unsupported => say(None, side.integrity.as_str()),
            known => say(Some(known == Integrity::Pass), known.as_str()),
        },
        say(Some(true).filter(|_| side.completeness == Completeness::Complete), side.completeness.as_str()),
        match side.signer.verdict {
            SignerVerdict::Pinned => say(Some(true), "PINNED"),
            SignerVerdict::Unpinned => say(None, "UNPINNED"),
            SignerVerdict::Untrusted => say(Some(false), "UNTRUSTED"),
        },
        claims,
    ]
}

fn verdicts(pen: &mut Pen<'_>, line: Rect, side: &SideView) {
    let mut used = 4.min(line.width / 8) + 2 * u16::from(line.width < 32);
    let mut all = four(side, pen.theme);
    // What is wrong comes first, so that a narrow screen shows it.
    all.sort_by_key(|(_, role)| match role {
        _ if line.width >= 64 => 0,
        Role::Bad => 0,
        Role::Warn => 1,
        _ => 2,
    });
    for (text, role) in all {
        if used + width(&text) as u16 > line.width {
            break;
        }
        used += pen.put(line.x + used, line.y, line.width.saturating_sub(used), &text, role) + 2;
    }
}

fn call(pen: &mut Pen<'_>, line: Rect, change: &CallChange) {
    let t = pen.theme;
    let (glyph, role) = match (&change.a, &change.b) {
        (Some(_), Some(_)) if rows::change_is_worse(change) => (t.glyph("✗", "x"), Role::Bad),
        (Some(_), Some(_)) => (t.glyph("≠", "*"), Role::Warn),
        (None, _) => ("+", Role::Good),
        _ => ("-", Role::Warn),
    };
    let used = mark(pen, line, 2, glyph, role);
    let mut room = line.width.saturating_sub(used);
    let (words, times) = match (&change.a, &change.b) {
        (Some(a), Some(b)) => (a.changed(b, t.glyph("→", "->")).join(", "), Some((a.duration_us, b.duration_us))),
        (None, Some(one)) | (Some(one), None) => (one.outcome.clone(), None),
        (None, None) => (String::new(), None),
    };
    if room >= 90 {
        let hash = change.arguments_hash.rsplit(':').next().unwrap_or_default();
        let hash: String = clean(&hash.chars().take(HASH).collect::<String>());
        pen.right(line.x + used, line.y, room, &hash, Role::Dim);
        room -= HASH as u16 + 2;
    }
    if room >= 58 {
        let text = times.map_or_else(
            || change.b.as_ref().or(change.a.as_ref()).map_or_else(String::new, |s| time(s.duration_us, t)),
            |(a, b)| both(a, b, t),
        );
        pen.right(line.x + used, line.y, room, &text, Role::Text);
        room -= TIMES + 1;
    }
    // On a narrow screen the glyph says what is up with it; the name is worth more than half a word.
    let name = if room >= 32 { (room * 2 / 5).min(40) } else { room };
    let named = pen.outside(line.x + used, line.y, name, &change.tool, Role::Text);
    let x = used + if room >= 32 { name } else { named } + 2;
    let left = (used + room).saturating_sub(x);
    pen.outside(line.x + x, line.y, left, &words, if role == Role::Bad { Role::Bad } else { Role::Dim });
}

/// A time, or that there is none.
pub fn time(us: Option<u64>, theme: Theme) -> String {
    us.map_or_else(|| theme.glyph(NONE, "-").to_owned(), duration)
}

fn both(a: Option<u64>, b: Option<u64>, theme: Theme) -> String {
    format!("{:>7} {} {:>7}", time(a, theme), theme.glyph("→", ">"), time(b, theme))
}

/// By how much, in words, and how that is meant.
pub fn shift(a: Option<u64>, b: Option<u64>) -> (String, Role) {
    let pct = increase_pct(a, b);
    let role = match pct {
        Some(pct) if pct >= SHIFT => Role::Warn,
        Some(pct) if pct <= -SHIFT => Role::Good,
        _ => Role::Dim,
    };
    (increase(pct), role)
}

/// Where the columns of the tools are; 0 where one is not shown.
struct Columns {
    name: u16,
    calls: u16,
    p50: u16,
    p95: u16,
    p99: u16,
    shift: u16,
}

const CALLS: u16 = 15;
const PCT: u16 = 9;

fn columns(width: u16) -> Columns {
    let mut left = width.saturating_sub(4);
    let mut take = |w: u16, keep: u16| {
        let fits = left >= w + 1 + keep;
        if fits {
            left -= w + 1;
        }
        fits
    };
    let (shift, p95) = (take(PCT, 12), take(TIMES, 14));
    let (p50, p99, calls) = (take(TIMES, 16), take(TIMES, 16), take(CALLS, 18));
    let mut x = 4 + left + 1;
    let mut place = |is: bool, w: u16| {
        let at = if is { x } else { 0 };
        x += if is { w + 1 } else { 0 };
        at
    };
    Columns {
        name: left,
        calls: place(calls, CALLS),
        p50: place(p50, TIMES),
        p95: place(p95, TIMES),
        p99: place(p99, TIMES),
        shift: place(shift, PCT),
    }
}

impl Columns {
    fn titles(&self) -> impl Iterator<Item = (&'static str, u16, u16)> {
        let all = [
            ("calls", self.calls, CALLS),
            ("p50", self.p50, TIMES),
            ("p95", self.p95, TIMES),
            ("p99", self.p99, TIMES),
            ("p95 by", self.shift, PCT),
        ];
        all.into_iter().filter(|(_, x, _)| *x > 0)
    }
}

fn tool_row(pen: &mut Pen<'_>, line: Rect, tool: &ToolRow) {
    let calls = (tool.a.totals.calls, tool.b.totals.calls);
    times(pen, line, &tool.tool, calls, &tool.a.latency, &tool.b.latency);
}

fn times(pen: &mut Pen<'_>, line: Rect, name: &str, calls: (u64, u64), a: &Quantiles, b: &Quantiles) {
    let t = pen.theme;
    let c = columns(line.width);
    pen.outside(line.x + 4.min(line.width), line.y, c.name, name, Role::Text);
    let mut put = |x: u16, w: u16, text: &str, role| {
        if x > 0 {
            pen.right(line.x + x, line.y, w, text, role);
        }
    };
    let arrow = t.glyph("→", ">");
    put(c.calls, CALLS, &format!("{} {arrow} {}", grouped(calls.0), grouped(calls.1)), Role::Dim);
    put(c.p50, TIMES, &both(a.p50_us, b.p50_us, t), Role::Dim);
    put(c.p95, TIMES, &both(a.p95_us, b.p95_us, t), Role::Text);
    put(c.p99, TIMES, &both(a.p99_us, b.p99_us, t), Role::Dim);
    let (text, role) = match calls {
        (0, _) => ("new".to_owned(), Role::Warn),
        (_, 0) => ("gone".to_owned(), Role::Warn),
        _ => shift(a.p95_us, b.p95_us),
    };
    put(c.shift, PCT, &text, role);
}

/// How much a change of the surface matters, as a role.
pub const fn severity_role(severity: Severity) -> Role {
    match severity {
        Severity::Critical | Severity::High => Role::Bad,
        Severity::Medium => Role::Warn,
        Severity::Low | Severity::Info => Role::Dim,
    }
}

fn surface(pen: &mut Pen<'_>, line: Rect, group: &SurfaceGroup) {
    let role = severity_role(group.severity);
    let used = mark(pen, line, 2, pen.theme.glyph("≠", "*"), role);
    let room = line.width.saturating_sub(used);
    let (word, kind) = (group.severity.as_str(), group.kind.as_str());
    let place = group.place();
    // The columns are those of the longest words.
    let columns = [(0, 10, word, role), (10, 20, kind, Role::Text), (30, room.saturating_sub(30), &place, Role::Dim)];
    for (x, wide, text, role) in columns {
        if x < room {
            pen.outside(line.x + used + x, line.y, u16::min(wide, room - x), text, role);
        }
    }
}

fn context(pen: &mut Pen<'_>, line: Rect, change: &ContextChange) {
    let used = mark(pen, line, 2, pen.theme.glyph("≠", "*"), Role::Warn);
    let room = line.width.saturating_sub(used);
    let what = change.what.replace('_', " ");
    let name = if room >= 44 { 19 } else { width(&what) as u16 + 1 };
    pen.put(line.x + used, line.y, room, &pen.fitted(&what, room), Role::Text);
    let none = pen.theme.glyph("–", "-");
    let short = |t: &Option<String>| {
        let text = t.as_deref().unwrap_or(none);
        // The beginning of a hash is enough to tell two apart; the detail shows it in full.
        match text.strip_prefix("sha256:").unwrap_or(text) {
            hash if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => hash[..HASH].to_owned(),
            _ => text.to_owned(),
        }
    };
    let text = format!("{} {} {}", short(&change.a), pen.theme.glyph("→", "->"), short(&change.b));
    pen.outside(line.x + used + name, line.y, room.saturating_sub(name), &text, Role::Value);
}
