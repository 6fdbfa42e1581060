//! The list of packs on the screen. Columns are dropped by priority, never squeezed.

use super::{
    Check, PacksScreen,
    words::{self, Verdicts, Word},
};
use crate::{
    history::list::{Entry, Standing},
    model::WallTime,
    numbers::{counted, grouped, size},
    tui::{paint::Pen, screen::At, theme::Role},
    zone::Zone,
};
use ratatui::layout::Rect;

/// Lines above the list: the names of the columns.
const HEAD: u16 = 1;
/// Columns before the first: the mark.
const MARK: u16 = 2;
/// Least columns of a server's name.
const SERVER: u16 = 10;

/// A column, and how wide it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Time,
    Server,
    Receipts,
    Size,
    Integrity,
    Completeness,
    Claims,
    Signer,
    /// All four verdicts in one.
    Verdict,
    Pack,
}

impl Column {
    const fn title(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Server => "server",
            Self::Receipts => "receipts",
            Self::Size => "size",
            Self::Integrity => "integrity",
            Self::Completeness => "completeness",
            Self::Claims => "claims",
            Self::Signer => "signer",
            Self::Verdict => "verdict",
            Self::Pack => "pack",
        }
    }

    const fn width(self) -> u16 {
        match self {
            Self::Time => 16,
            Self::Server => SERVER,
            Self::Receipts | Self::Size => 9,
            Self::Integrity => 10,
            Self::Completeness | Self::Verdict | Self::Claims => 15,
            Self::Signer => 11,
            Self::Pack => 33,
        }
    }

    const fn is_verdict(self) -> bool {
        matches!(self, Self::Integrity | Self::Completeness | Self::Claims | Self::Signer | Self::Verdict)
    }

    const fn is_number(self) -> bool {
        matches!(self, Self::Receipts | Self::Size)
    }
}

/// Where the lines of the list are.
pub(super) fn body(at: At) -> Rect {
    let r = at.area;
    let (head, foot) = if at.is_tiny() { (0, u16::from(r.height > 1)) } else { (HEAD, 1) };
    Rect { y: r.y + head, height: r.height.saturating_sub(head + foot), ..r }
}

/// How many lines it shows.
pub(super) fn rows(at: At) -> u16 {
    body(at).height.max(1)
}

/// The columns that fit, from left to right.
fn columns(width: u16) -> Vec<Column> {
    // Left to right as they are shown, and when each is there.
    const SHOWN: [Column; 9] = [
        Column::Time,
        Column::Server,
        Column::Receipts,
        Column::Size,
        Column::Integrity,
        Column::Completeness,
        Column::Claims,
        Column::Signer,
        Column::Pack,
    ];
    const WANTED: [Column; 9] = [
        Column::Time,
        Column::Server,
        Column::Integrity,
        Column::Signer,
        Column::Completeness,
        Column::Receipts,
        Column::Size,
        Column::Claims,
        Column::Pack,
    ];
    let mut left = i32::from(width) - i32::from(MARK);
    let mut kept = Vec::new();
    for column in WANTED {
        left -= i32::from(column.width()) + 1;
        if left < -1 {
            break;
        }
        kept.push(column);
    }
    let whole = kept.contains(&Column::Completeness) && kept.contains(&Column::Signer);
    let mut out: Vec<Column> = SHOWN.into_iter().filter(|c| kept.contains(c)).collect();
    if !whole {
        out.retain(|c| !c.is_verdict());
        let used: u16 = out.iter().map(|c| c.width() + 1).sum();
        if used + MARK + Column::Verdict.width() > width {
            out.retain(|c| *c != Column::Receipts && *c != Column::Size);
        }
        out.push(Column::Verdict);
    }
    out
}

pub(super) fn screen(s: &PacksScreen, pen: &mut Pen<'_>, at: At) {
    if at.area.width == 0 || at.area.height == 0 {
        return;
    }
    if s.shown.is_empty() {
        return empty(s, pen, at.area);
    }
    let body = body(at);
    let columns = columns(at.area.width);
    let wide = server_width(&columns, at.area.width);
    if !at.is_tiny() {
        let mut x = at.area.x + MARK;
        for c in &columns {
            let w = if *c == Column::Server { wide } else { c.width() };
            if c.is_number() {
                pen.right(x, at.area.y, w, c.title(), Role::Dim);
            } else {
                pen.put(x, at.area.y, w, c.title(), Role::Dim);
            }
            x += w + 1;
        }
    }
    s.pane(at).draw(&s.cursor, pen, Some(true), |pen, line, row| {
        let Some(e) = s.shown.get(line).and_then(|i| s.entries.get(*i)) else { return };
        if at.is_tiny() {
            tiny(s, pen, row, e);
        } else {
            entry(s, pen, row, e, &columns, wide);
        }
    });
    if body.bottom() < at.area.bottom() {
        below(s, pen, Rect { y: at.area.bottom() - 1, height: 1, ..at.area }, at.is_tiny());
    }
}

/// What is left goes to the server's name.
fn server_width(columns: &[Column], width: u16) -> u16 {
    let rest: u16 = columns.iter().filter(|c| **c != Column::Server).map(|c| c.width() + 1).sum();
    width.saturating_sub(MARK + rest).clamp(SERVER.min(width), 40)
}

fn mark(s: &PacksScreen, pen: &mut Pen<'_>, row: Rect, e: &Entry) {
    if s.marked.as_ref() == Some(&e.pack) {
        let glyph = pen.theme.glyph("◆", "*");
        pen.put(row.x, row.y, 1, glyph, Role::Accent);
    }
}

fn entry(screen: &PacksScreen, pen: &mut Pen<'_>, row: Rect, e: &Entry, columns: &[Column], wide: u16) {
    mark(screen, pen, row, e);
    let mut x = row.x + MARK;
    let mut stated = false;
    for column in columns {
        let w = if *column == Column::Server { wide } else { column.width() };
        let left = row.right().saturating_sub(x);
        match column {
            Column::Time => {
                pen.outside(x, row.y, w.min(left), &when(&e.started, pen.theme.zone), Role::Text);
            }
            Column::Server => {
                let (w, id) = (w.min(left), if e.server.is_empty() { "–" } else { &e.server });
                let used = pen.outside(x, row.y, w, id, Role::Strong) + 1;
                if used + crate::text::width(&e.server_info) as u16 <= w {
                    pen.outside(x + used, row.y, w - used, &e.server_info, Role::Dim);
                }
            }
            Column::Receipts => {
                let n = screen.receipts(e).map(grouped).unwrap_or_default();
                pen.right(x, row.y, w.min(left), &n, Role::Text);
            }
            Column::Size => pen.right(x, row.y, w.min(left), &size(e.bytes), Role::Dim),
            Column::Pack => {
                pen.outside(x, row.y, w.min(left), &e.name(), Role::Dim);
            }
            _ => match known(screen, e) {
                Ok(v) => {
                    let word = match column {
                        Column::Integrity => words::integrity(v.integrity),
                        Column::Completeness => words::completeness(v.completeness),
                        Column::Claims => words::claims(v.claims),
                        Column::Signer => words::signer(v.signer),
                        _ => v.in_one(),
                    };
                    put(pen, x, row.y, w.min(left), word);
                }
                // One text over all of them.
                Err((text, role)) if !stated => {
                    stated = true;
                    let over: u16 = columns.iter().filter(|c| c.is_verdict()).map(|c| c.width() + 1).sum();
                    pen.outside(x, row.y, (over - 1).min(left), &text, role);
                }
                Err(_) => {}
            },
        }
        x += w + 1;
    }
}

fn put(pen: &mut Pen<'_>, x: u16, y: u16, columns: u16, word: Word) {
    let text = pen.fitted(&word.text(pen.theme), columns);
    pen.put(x, y, columns, &text, word.role);
}

/// The verdicts, or what there is to say instead.
fn known(s: &PacksScreen, e: &Entry) -> Result<Verdicts, (String, Role)> {
    let say = |text: &str, role| Err((text.to_owned(), role));
    match s.standing(e) {
        Standing::Packed => {}
        Standing::Half => return say("! half-written: no manifest", Role::Warn),
        Standing::Recording => return say("… recording", Role::Accent),
        Standing::Sealing => return say("… sealing its pack", Role::Accent),
        Standing::Failed(why) => return Err((format!("✗ no pack: {why}"), Role::Bad)),
        Standing::Ended => return say("– ended without a pack", Role::Dim),
        Standing::Died => return say("! died: assay recover", Role::Warn),
        Standing::TooNew(why) => return Err((format!("! left alone: {why}"), Role::Warn)),
        Standing::NotOurs => return say("! died, not yours: left alone", Role::Warn),
    }
    match s.check(e) {
        Some(Check::Known(v)) => Ok(*v),
        Some(Check::Running(percent)) => Err((format!("… verifying {percent} %"), Role::Accent)),
        Some(Check::TooNew(v, why)) => {
            let word = v.in_one();
            Err((format!("{} {}, too new: {why}", word.glyph.0, word.word), word.role))
        }
        Some(Check::Failed(why)) => Err((format!("! cannot be verified: {why}"), Role::Bad)),
        Some(Check::Stopped) => say("– stopped; v verifies", Role::Dim),
        None if e.bytes > super::SMALL => say("– not verified; v verifies", Role::Dim),
        None => say("– not verified yet", Role::Dim),
    }
}

/// A start time to the minute: `2026-03-15 11:30`.
fn when(started: &str, zone: Zone) -> String {
    WallTime::parse(started).map_or_else(|| "–".to_owned(), |at| zone.minute(at))
}

/// Time and the worst that is known.
fn tiny(s: &PacksScreen, pen: &mut Pen<'_>, row: Rect, e: &Entry) {
    let when = when(&e.started, pen.theme.zone);
    let used = pen.outside(row.x, row.y, row.width, when.get(5..).unwrap_or(&when), Role::Text) + 1;
    let left = row.width.saturating_sub(used);
    match known(s, e) {
        Ok(v) => put(pen, row.x + used, row.y, left, v.in_one()),
        Err((text, role)) => {
            pen.outside(row.x + used, row.y, left, &text, role);
        }
    }
}

/// What does not fit into the line of the selected one.
fn below(s: &PacksScreen, pen: &mut Pen<'_>, row: Rect, tiny: bool) {
    let Some(e) = s.selected() else { return };
    if tiny {
        let n = s.receipts(e).map_or_else(String::new, |n| format!(", {}", counted(n, "receipt")));
        pen.outside(row.x, row.y, row.width, &format!("{}{n}", e.server), Role::Dim);
        return;
    }
    if let Some(problem) = s.problems.first() {
        pen.outside(row.x, row.y, row.width, &format!("! {problem}"), Role::Warn);
        return;
    }
    let text = match known(s, e) {
        Err((text, _)) if crate::text::width(&text) > 40 => text,
        _ => {
            let names = [("server", &e.server_info), ("client", &e.client)].into_iter();
            let named = names.filter(|(_, name)| !name.is_empty()).map(|(what, name)| format!("{what} {name}  "));
            named.chain([e.pack.to_string_lossy().into_owned()]).collect()
        }
    };
    pen.outside(row.x, row.y, row.width, &text, Role::Dim);
}

/// Nothing to list: why, and what to do.
fn empty(s: &PacksScreen, pen: &mut Pen<'_>, area: Rect) {
    let dir = s
        .places
        .audit_dir
        .as_ref()
        .map_or_else(|| crate::paths::DEFAULT_AUDIT_DIR.to_owned(), |d| d.to_string_lossy().into_owned());
    let mut lines: Vec<(String, Role)> = Vec::new();
    if !s.entries.is_empty() {
        lines.push(("No pack matches the filter.".to_owned(), Role::Strong));
        lines.push(("Esc clears it, / changes it.".to_owned(), Role::Text));
    } else if !s.listed {
        lines.push(("Looking for packs…".to_owned(), Role::Dim));
    } else {
        lines.push(("Nothing has been recorded yet.".to_owned(), Role::Strong));
        lines.push((format!("Not in {dir}, and not in any directory you recorded in."), Role::Text));
        lines.push((String::new(), Role::Text));
        lines.push(("Record a session:".to_owned(), Role::Text));
        lines.push(("  assay mcp-proxy -- YOUR MCP SERVER'S COMMAND".to_owned(), Role::Accent));
        lines.push(("See one recorded and verified:".to_owned(), Role::Text));
        lines.push(("  assay demo".to_owned(), Role::Accent));
    }
    for problem in &s.problems {
        lines.push((format!("! {problem}"), Role::Warn));
    }
    let indent = if area.width >= 40 { 2 } else { 0 };
    let top = u16::from(area.height > lines.len() as u16 + 2);
    for ((text, role), y) in lines.into_iter().zip(area.y + top..area.bottom()) {
        pen.outside(area.x + indent, y, area.width.saturating_sub(indent), &text, role);
    }
}
