//! Surfaces on the screen: servers, their changes and items, and the selected one in full.

use super::{Pane, Row, SurfaceScreen};
use crate::{
    approvals::lockfile::named,
    model::surface::{Severity, State},
    tui::{
        kit::ListPane,
        paint::{Pen, wrapped},
        screen::At,
        theme::Role,
    },
};
use ratatui::layout::Rect;

/// Columns of the list of servers.
const SERVERS: u16 = 36;
/// From this width on, changes and the selected one are beside each other, and so are before and after.
const WIDE: u16 = 120;

/// Where the panes are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panes {
    pub(super) servers: Option<Rect>,
    pub(super) rows: Option<Rect>,
    pub(super) detail: Option<Rect>,
}

impl Panes {
    /// The panes that have room, each without its heading; in little room only that with the focus.
    pub(super) fn of(at: At, focus: Pane) -> Self {
        let area = at.area;
        let inner = |r: Rect| Rect { y: r.y + 1, height: r.height.saturating_sub(1), ..r };
        if area.width < 70 || area.height < 12 {
            let only = |pane| (pane == focus).then(|| inner(area));
            return Self { servers: only(Pane::Servers), rows: only(Pane::Rows), detail: only(Pane::Detail) };
        }
        let servers = Rect { width: SERVERS, ..area };
        let rest = Rect { x: area.x + SERVERS + 1, width: area.width - SERVERS - 1, ..area };
        let (rows, detail) = if area.width >= WIDE {
            let width = rest.width * 9 / 20;
            (Rect { width, ..rest }, Rect { x: rest.x + width + 1, width: rest.width - width - 1, ..rest })
        } else {
            let height = rest.height / 2;
            (Rect { height, ..rest }, Rect { y: rest.y + height, height: rest.height - height, ..rest })
        };
        Self { servers: Some(inner(servers)), rows: Some(inner(rows)), detail: Some(inner(detail)) }
    }
}

fn headed(pen: &mut Pen<'_>, inner: Rect, title: &str, focused: bool) {
    pen.headed(Rect { y: inner.y - 1, height: inner.height + 1, ..inner }, title, focused);
}

fn role_of(severity: Severity) -> Role {
    match severity {
        Severity::Critical | Severity::High => Role::Bad,
        Severity::Medium => Role::Warn,
        Severity::Low | Severity::Info => Role::Dim,
    }
}

/// Glyph, ASCII glyph and meaning of a state, of a server or of an item.
fn glyph(words: &str) -> (&'static str, &'static str, Role) {
    match words {
        "approved" | "approved, incomplete" => ("✓", "+", Role::Good),
        "first use" | "first use, incomplete" | "first_use" => ("○", "o", Role::Warn),
        "blocked" => ("✗", "x", Role::Dim),
        "incomplete" | "unreachable" => ("!", "!", Role::Warn),
        words if words.starts_with("disabled") || words.starts_with("pending") => ("-", "-", Role::Dim),
        words if words.starts_with("nothing approved") => ("?", "?", Role::Warn),
        _ => ("~", "~", Role::Bad),
    }
}

pub(super) fn screen(s: &SurfaceScreen, pen: &mut Pen<'_>, at: At) {
    let panes = Panes::of(at, s.focus);
    if let Some(area) = panes.servers {
        headed(pen, area, "servers", s.focus == Pane::Servers);
        if s.servers.is_empty() {
            nothing(s, pen, area);
        }
        let list = ListPane::new(s.servers.len(), area);
        list.draw(&s.at_server, pen, Some(s.focus == Pane::Servers), |pen, n, row| server(s, pen, n, row));
    }
    if let Some(area) = panes.rows {
        let title = s.server().map(|v| crate::tui::paint::clean(v.id())).unwrap_or_default();
        headed(pen, area, &format!("changes and items {title}"), s.focus == Pane::Rows);
        let list = ListPane::new(s.rows.len(), area);
        let marked = (!s.rows.is_empty()).then_some(s.focus == Pane::Rows);
        list.draw(&s.at_row, pen, marked, |pen, n, row| line(s, pen, n, row));
    }
    if let Some(area) = panes.detail {
        headed(pen, area, "selected", s.focus == Pane::Detail);
        let lines = detail(s, area.width);
        let top = usize::try_from(s.detail_top).unwrap_or_default().min(lines.len());
        for ((text, role), y) in lines[top..].iter().zip(area.y..area.bottom()) {
            pen.put(area.x, y, area.width, text, *role);
        }
        if lines.len() - top > usize::from(area.height) && area.height > 0 {
            let hidden = lines.len() - top - usize::from(area.height);
            let more = format!(" and {} ", crate::text::counted(hidden, "line"));
            pen.right(area.x, area.bottom() - 1, area.width, &more, Role::Accent);
        }
    }
    if let Some(line) = s.typing.as_ref().filter(|_| at.area.height > 0) {
        let y = at.area.bottom() - 1;
        pen.clear(Rect { y, height: 1, ..at.area });
        let used = pen.put(at.area.x, y, at.area.width, "reason: ", Role::Accent);
        line.draw(pen, at.area.x + used, y, at.area.width.saturating_sub(used));
    }
}

fn nothing(s: &SurfaceScreen, pen: &mut Pen<'_>, area: Rect) {
    let text = match (&s.problem, s.listed) {
        (Some(why), _) => why.clone(),
        (None, false) => "looking…".to_owned(),
        (None, true) => {
            "no surface was seen here. A recorded session leaves one; so does: assay surface snapshot -- COMMAND"
                .to_owned()
        }
    };
    let role = if s.problem.is_some() { Role::Bad } else { Role::Dim };
    for (text, y) in wrapped(&text, area.width).into_iter().zip(area.y..area.bottom()) {
        pen.outside(area.x, y, area.width, &text, role);
    }
}

fn server(s: &SurfaceScreen, pen: &mut Pen<'_>, n: usize, row: Rect) {
    let Some(server) = s.servers.get(n) else { return };
    let words = server.words();
    let (mark, ascii, role) = glyph(&words);
    let state = format!("{} {words}", pen.theme.glyph(mark, ascii));
    let state_width = (state.chars().count() as u16).min(row.width.saturating_sub(8));
    let name = row.width.saturating_sub(state_width + 1);
    pen.outside(row.x, row.y, name, server.id(), Role::Text);
    pen.put(row.x + name + 1, row.y, state_width, &state, role);
}

fn line(s: &SurfaceScreen, pen: &mut Pen<'_>, n: usize, row: Rect) {
    let (Some(server), Some(what)) = (s.server(), s.rows.get(n)) else { return };
    match what {
        Row::Group(n) => {
            let group = &s.groups[*n];
            let severity = format!("{:<9}", group.severity().as_str());
            let used = pen.put(row.x, row.y, row.width, &severity, role_of(group.severity()));
            let facet = group.facet.map(|f| f.to_string()).unwrap_or_default();
            let names = match group.names.as_slice() {
                [one] => one.clone(),
                all => format!("{} items", all.len()),
            };
            let new = if group.new_context { ", of a new client" } else { "" };
            let text = format!("{} {facet}{} {names}{new}", group.kind, group.path);
            pen.outside(row.x + used, row.y, row.width.saturating_sub(used), &text, Role::Text);
        }
        Row::Facet(facet) => {
            pen.put(row.x, row.y, row.width, &facet.to_string(), Role::Strong);
        }
        Row::Item(n) => {
            let item = &server.summary.items[*n];
            let (mark, ascii, role) = glyph(item.state.as_str());
            let state = format!("{} {:<10}", pen.theme.glyph(mark, ascii), item.state.as_str().replace('_', " "));
            let used = pen.put(row.x + 1, row.y, row.width.saturating_sub(1), &state, role) + 1;
            let name = if item.pin.name.is_empty() { item.pin.facet.to_string() } else { item.pin.name.clone() };
            pen.outside(row.x + used + 1, row.y, row.width.saturating_sub(used + 1), &name, Role::Text);
        }
    }
}

/// The selected line in full: nothing is cut but by the end of the pane, and that is said.
pub(super) fn detail(s: &SurfaceScreen, columns: u16) -> Vec<(String, Role)> {
    let mut out = Vec::new();
    let Some(server) = s.server() else { return out };
    match s.row().filter(|_| s.focus != Pane::Servers) {
        Some(Row::Group(n)) => {
            let group = &s.groups[n];
            let head = format!("{}: {}", group.severity(), group.kind);
            out.push((head, role_of(group.severity())));
            if !group.path.is_empty() {
                told(&mut out, columns, &format!("at {}", group.path), Role::Dim);
            }
            sides(&mut out, columns, group.before.as_deref(), group.after.as_deref());
            let place = |name: &String| group.facet.map_or_else(String::new, |f| named(f, name));
            for name in &group.names {
                told(&mut out, columns, &place(name), Role::Text);
            }
        }
        Some(Row::Item(n)) => {
            let item = &server.summary.items[n];
            let (.., role) = glyph(item.state.as_str());
            told(&mut out, columns, &named(item.pin.facet, &item.pin.name), Role::Strong);
            out.push((item.state.as_str().replace('_', " "), role));
            if let Some(id) = &item.approval_id {
                out.push((format!("by {id}"), Role::Dim));
            }
            told(&mut out, columns, &item.pin.hash, Role::Dim);
            if item.state == State::Changed {
                let known = server.approved.in_force.approved();
                let before = known
                    .filter(|(f, name, ..)| *f == item.pin.facet && *name == item.pin.name)
                    .find_map(|(_, _, hash, _)| server.approved.content.get(hash));
                let before = before.map(|bytes| pretty(&String::from_utf8_lossy(bytes)));
                sides(&mut out, columns, before.as_deref(), item.content.as_deref().map(pretty).as_deref());
            } else if let Some(content) = &item.content {
                told(&mut out, columns, &pretty(content), Role::Text);
            } else {
                out.push(("its content is not stored".to_owned(), Role::Dim));
            }
        }
        Some(Row::Facet(_)) | None => {
            let words = server.words();
            let (.., role) = glyph(&words);
            told(&mut out, columns, server.id(), Role::Strong);
            out.push((words, role));
            if let Some(service) = &server.service {
                let (state, health) = (service.state.replace('_', " "), &service.health);
                let why = service.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let role = if service.closed().is_some() { Role::Bad } else { Role::Text };
                told(&mut out, columns, &format!("service of a gateway: route {state}{why}"), role);
                told(&mut out, columns, &format!("checks: {health}; R has it looked at now"), Role::Dim);
            }
            let root = server.summary.root.clone().unwrap_or_else(|why| format!("no root: {why}"));
            told(&mut out, columns, &root, Role::Dim);
            for (state, n) in server.summary.states() {
                out.push((format!("{n} {}", state.as_str().replace('_', " ")), Role::Text));
            }
            let seen = &server.seen;
            let at = if seen.at.is_empty() { "never seen whole".to_owned() } else { format!("seen {}", seen.at) };
            told(&mut out, columns, &at, Role::Dim);
            told(&mut out, columns, &format!("endpoint {}", seen.snapshot.identity.endpoint), Role::Dim);
        }
    }
    if let Some(reason) = &s.reason {
        told(&mut out, columns, &format!("reason of the next decision: {reason}"), Role::Accent);
    }
    out
}

/// JSON with its members on lines of their own; other text as it is.
fn pretty(text: &str) -> String {
    let value = serde_json::from_str::<serde_json::Value>(text).ok();
    value.and_then(|v| serde_json::to_string_pretty(&v).ok()).unwrap_or_else(|| text.to_owned())
}

/// Text from outside, whole, in lines; what is hidden in it is visible.
fn told(out: &mut Vec<(String, Role)>, columns: u16, text: &str, role: Role) {
    for line in text.split('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let room = columns.saturating_sub(indent as u16);
        let chars: Vec<char> = line.trim_start_matches(' ').chars().collect();
        // What is wrapped at once is bounded; all of it is shown.
        for piece in chars.chunks(crate::tui::paint::WRAPPED) {
            for part in wrapped(&piece.iter().collect::<String>(), room) {
                out.push((format!("{}{part}", " ".repeat(indent)), role));
            }
        }
        if chars.is_empty() {
            out.push((String::new(), role));
        }
    }
}

/// Before and after: beside each other where there is room, else one below the other.
fn sides(out: &mut Vec<(String, Role)>, columns: u16, before: Option<&str>, after: Option<&str>) {
    let block = |mark: &str, text: Option<&str>, columns: u16, role: Role| {
        let mut lines = Vec::new();
        told(&mut lines, columns.saturating_sub(2), text.unwrap_or("nothing"), role);
        lines.into_iter().map(|(line, _)| format!("{mark} {line}")).collect::<Vec<_>>()
    };
    if columns < WIDE / 2 {
        out.extend(block("-", before, columns, Role::Bad).into_iter().map(|l| (l, Role::Bad)));
        out.extend(block("+", after, columns, Role::Good).into_iter().map(|l| (l, Role::Good)));
        return;
    }
    let half = columns / 2 - 1;
    let (left, right) = (block("-", before, half, Role::Bad), block("+", after, half, Role::Good));
    for n in 0..left.len().max(right.len()) {
        let (a, b) = (left.get(n).map_or("", String::as_str), right.get(n).map_or("", String::as_str));
        let blank = " ".repeat(usize::from(half).saturating_sub(crate::text::width(a)) + 2);
        let role = if left.get(n).map(|l| &l[1..]) == right.get(n).map(|r| &r[1..]) { Role::Dim } else { Role::Warn };
        out.push((format!("{a}{blank}{b}"), role));
    }
}
