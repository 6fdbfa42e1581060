//! Drawing the live screen.

use super::{Listed, LiveScreen, Pane, session};
use crate::{
    live::{
        row::CallRow,
        state::{State, rpc_text},
        words::CallState,
    },
    model::{PolicyVerdict, Profile, WallTime, receipt::PeerInfo},
    numbers::{counted, duration, grouped},
    text::width,
    tui::{
        detail::{bar, detail_line, role},
        kit::ListPane,
        messages::{Columns as MessageColumns, Shown},
        paint::Pen,
        screen::At,
        theme::Role,
    },
};
use ratatui::layout::Rect;

/// Lines that a session takes; one more where any of them has streams.
const SESSION_LINES: u16 = 3;
/// From this width on panes are side by side.
const WIDE: u16 = 100;
/// From this width on there is room for the names of clients and servers.
const ROOMY: u16 = 140;

/// Where everything is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panes {
    /// The line of numbers.
    stats: Option<Rect>,
    /// The sessions, heading included.
    pub sessions: Option<Rect>,
    /// The calls, heading included.
    pub calls: Rect,
    /// The detail, heading included.
    pub detail: Option<Rect>,
    /// What calls and detail have together, for the picture of time.
    pub picture: Rect,
    tiny: bool,
}

impl Panes {
    /// The rows of calls.
    pub fn calls_body(&self) -> Rect {
        let head = if self.tiny { 0 } else { 2.min(self.calls.height) };
        Rect { y: self.calls.y + head, height: self.calls.height - head, ..self.calls }
    }

    /// Tabs and text of the detail.
    pub fn detail_body(&self) -> Option<Rect> {
        self.detail.map(|r| Rect { y: r.y + 1.min(r.height), height: r.height.saturating_sub(1), ..r })
    }
}

/// Lines that each session takes.
pub(super) fn session_lines(state: &State) -> u16 {
    SESSION_LINES + u16::from(state.sessions().values().any(|view| view.open_streams().is_some()))
}

/// The list of sessions, where each takes one line: as high as so many have room, below their heading.
pub(super) fn session_list(area: Rect, lines: u16) -> Rect {
    Rect { y: area.y + 1, height: (area.height.saturating_sub(1) / lines).max(1), ..area }
}

/// Divides the screen.
pub(super) fn panes(at: At, sessions_open: Option<bool>, full: bool, in_sessions: bool) -> Panes {
    let area = at.area;
    let none = Rect { width: 0, height: 0, ..area };
    let mut out = Panes { stats: None, sessions: None, calls: area, detail: None, picture: area, tiny: at.is_tiny() };
    if full {
        return Panes { calls: none, detail: Some(area), ..out };
    }
    if out.tiny {
        // One list: that of the sessions while it is asked for.
        if sessions_open == Some(true) && in_sessions {
            return Panes { calls: none, sessions: Some(area), ..out };
        }
        return out;
    }
    out.stats = Some(Rect { height: 1, ..area });
    let mut rest = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let open = sessions_open.unwrap_or(area.width >= WIDE);
    if open {
        let w = match area.width {
            ROOMY.. => 32,
            WIDE.. => 26,
            narrow => (narrow / 3).clamp(16, 26),
        };
        out.sessions = Some(Rect { width: w, ..rest });
        rest = Rect { x: rest.x + w + 1, width: rest.width - w - 1, ..rest };
    }
    out.picture = rest;
    if area.width >= WIDE {
        let w = (rest.width / 3).max(40).min(rest.width / 2);
        out.detail = Some(Rect { x: rest.right() - w, width: w, ..rest });
        rest.width -= w + 1;
    } else if rest.height >= 14 {
        let h = (rest.height * 2 / 5).max(6);
        out.detail = Some(Rect { y: rest.bottom() - h, height: h, ..rest });
        rest.height -= h;
    }
    out.calls = rest;
    out
}

/// Draws the screen.
pub(super) fn draw(screen: &LiveScreen, pen: &mut Pen<'_>, at: At) {
    let panes = screen.panes(at);
    let seen = screen.seen();
    let mut rest = at.area;
    if let Some(text) = screen.passed_over().filter(|_| at.area.height > 4) {
        pen.outside(at.area.x, at.area.bottom() - 1, at.area.width, &format!("! {text}"), Role::Warn);
        rest.height -= 1;
    }
    if seen.state.sessions().is_empty() {
        nothing(screen, pen, rest);
        return;
    }
    if let Some(area) = panes.stats {
        stats(screen, pen, area);
    }
    if let Some(area) = panes.sessions {
        sessions(screen, pen, area, at.now);
        if area.right() < at.area.right() {
            pen.rule(area.right(), area.y, area.bottom());
        }
    }
    if screen.listed == Listed::Timeline && screen.pane != Pane::Sessions {
        let title = format!("Timeline  {}", counted(seen.calls.list.len() as u64, "call"));
        let body = if panes.tiny { panes.picture } else { pen.headed(panes.picture, &title, true) };
        screen.scope.draw(pen, &screen.timeline(at.now), body);
        return;
    }
    if panes.calls.height > 0 {
        match screen.listed {
            Listed::Calls | Listed::Timeline => calls(screen, pen, &panes, at.now),
            Listed::Messages => messages(screen, pen, &panes, at.now),
        }
    }
    if let (Some(area), Some(body)) = (panes.detail, panes.detail_body()) {
        if area.x > panes.calls.right() && panes.calls.width > 0 {
            pen.rule(area.x - 1, area.y, area.bottom());
        }
        if screen.pane == Pane::Sessions
            && let Some((id, view)) =
                seen.sessions.selected(&seen.state).and_then(|id| seen.state.sessions().get(&id).map(|view| (id, view)))
        {
            let card = view.card.as_ref().map(|c| &c.card);
            let title = card.map_or_else(|| id.to_string(), |c| c.server_id.chars().take(200).collect());
            pen.headed(area, &crate::tui::paint::clean(&title), false);
            let lines = session::lines((id, view), &seen.sessions, at.now, body.width, pen.theme.zone);
            for (y, line) in (body.y..body.bottom()).zip(&lines) {
                detail_line(pen, line, Rect { y, height: 1, ..body });
            }
            return;
        }
        let focused = screen.pane == Pane::Detail;
        if screen.listed == Listed::Messages {
            let title = screen.message().and_then(|row| row.method.as_deref()).unwrap_or("message");
            pen.headed(area, &crate::tui::paint::clean(&title.chars().take(200).collect::<String>()), focused);
            let lines = screen.message_lines(body.width, pen.theme);
            ListPane::new(lines.len(), body).draw(&screen.reading, pen, focused.then_some(true), |pen, n, row| {
                if let Some(line) = lines.get(n) {
                    detail_line(pen, line, row);
                }
            });
            return;
        }
        let row = screen.detail.subject().map(|s| &s.row);
        let tool = row.and_then(|r| r.tool_name.as_deref()).unwrap_or("no call");
        let title = crate::tui::paint::clean(&tool.chars().take(200).collect::<String>());
        pen.headed(area, &title, focused);
        screen.detail.draw(pen, At { area: body, ..at }, focused);
    }
}

/// How to begin.
fn nothing(screen: &LiveScreen, pen: &mut Pen<'_>, area: Rect) {
    let looking = if screen.heard { "No live session any more." } else { "No live session." };
    let found = &screen.hint.found;
    let count = found.missing as u64;
    let (first, second) = match (found.missing, found.recorded) {
        (0, 0) => ("Put the recorder in front of your clients' MCP servers,".to_owned(), "or of one server here:"),
        (0, recorded) => (
            format!(
                "{} of your clients {} recorded: start a client.",
                counted(recorded as u64, "local server"),
                if recorded == 1 { "is" } else { "are" }
            ),
            "To record one more, put the recorder in front of it:",
        ),
        _ => (
            format!("{} {} no evidence:", counted(count, "MCP server"), if count == 1 { "leaves" } else { "leave" }),
            "Put the recorder in front of your clients' servers, or of one here:",
        ),
    };
    let clients = names(&found.clients);
    let lines = [
        (looking, Role::Strong),
        ("", Role::Text),
        (first.as_str(), if count > 0 { Role::Warn } else { Role::Text }),
        (clients.as_str(), Role::Text),
        (second, Role::Text),
        ("", Role::Text),
        ("  assay wrap --all", Role::Accent),
        ("  assay mcp-proxy -- npx -y @modelcontextprotocol/server-filesystem .", Role::Accent),
        ("", Role::Text),
        ("The session appears here by itself. To see one at once:", Role::Text),
        ("", Role::Text),
        ("  assay demo --live", Role::Accent),
        ("", Role::Text),
        ("2 shows recorded packs, ? shows all keys.", Role::Dim),
    ];
    // Where no client is named there is no line for it.
    let lines: Vec<_> =
        lines.into_iter().enumerate().filter(|(n, l)| *n != 3 || !l.0.is_empty()).map(|(_, l)| l).collect();
    let wide = lines.iter().map(|(t, _)| width(t) as u16).max().unwrap_or(0);
    let x = area.x + area.width.saturating_sub(wide) / 2;
    let first = area.y + area.height.saturating_sub(lines.len() as u16) / 3;
    let x = if area.width < wide { area.x } else { x };
    for (y, (text, role)) in (first..area.bottom()).zip(lines) {
        let room = area.right().saturating_sub(x);
        let text = pen.fitted(text, room);
        pen.put(x, y, room, &text, role);
    }
}

/// Names of clients: the first few, and how many more there are.
fn names(clients: &[&str]) -> String {
    const SHOWN: usize = 4;
    let more = clients.len().saturating_sub(SHOWN);
    let shown = clients[..clients.len().min(SHOWN)].join(", ");
    match (shown.is_empty(), more) {
        (true, _) => shown,
        (_, 0) => format!("those of {shown}."),
        _ => format!("those of {shown} and {} more.", grouped(more as u64)),
    }
}

fn stats(screen: &LiveScreen, pen: &mut Pen<'_>, area: Rect) {
    let seen = screen.seen();
    let t = seen.sessions.totals(&seen.state);
    let missed: u64 = screen.missed.values().sum();
    let (word, tone) = seen.sessions.recorder(&seen.state, missed);
    let count = |n: u64, role: Role| if n == 0 { Role::Dim } else { role };
    let mut pieces: Vec<(String, Role)> = vec![
        (format!("{} ", if pen.theme.ascii { "*" } else { "●" }), tone),
        (format!("{word}  "), tone),
        (format!("{} in flight  ", grouped(t.in_flight())), count(t.in_flight(), Role::Accent)),
        (format!("{} denied  ", grouped(t.denied)), count(t.denied, Role::Bad)),
        (format!("{} failed  ", grouped(t.errors + t.timeouts)), count(t.errors + t.timeouts, Role::Bad)),
    ];
    if let (Some(p50), Some(p95)) = (seen.calls.quantile(500), seen.calls.quantile(950)) {
        pieces.push((format!("p50 {}  p95 {}  ", duration(p50), duration(p95)), Role::Text));
    }
    let alive = seen.state.sessions().iter().filter(|(id, view)| seen.sessions.is_alive(**id, view));
    let streams: u64 = alive.filter_map(|(_, view)| view.open_streams()).map(|s| s.total).sum();
    if streams > 0 {
        pieces.push((format!("{}  ", counted(streams, "stream")), Role::Accent));
    }
    pieces.push((format!("{} missed", grouped(missed)), count(missed, Role::Bad)));
    let mut x = area.x;
    for (text, role) in &pieces {
        let room = area.right().saturating_sub(x);
        if width(text.trim_end()) > room as usize {
            break;
        }
        x += pen.put(x, area.y, room, text, *role);
    }
}

fn sessions(screen: &LiveScreen, pen: &mut Pen<'_>, area: Rect, now: WallTime) {
    let seen = screen.seen();
    let listed = seen.sessions.listed(&seen.state);
    let focused = screen.pane == Pane::Sessions;
    let body = pen.headed(area, &format!("Sessions {}", listed.len()), focused);
    let each = session_lines(&seen.state);
    let top = seen.sessions.cursor.window(listed.len() as u64, session_list(area, each).height).start as usize;
    let at = seen.sessions.at(listed.len());
    for (n, (id, view)) in listed.iter().enumerate().skip(top) {
        let y = body.y + (n - top) as u16 * each;
        if y >= body.bottom() {
            break;
        }
        let (word, tone) = seen.sessions.word(*id, view);
        let only = seen.sessions.only() == Some(*id);
        let mark = if only { pen.theme.glyph("▸", ">") } else { " " };
        pen.put(body.x, y, body.width, mark, Role::Accent);
        let card = view.card.as_ref().map(|c| &c.card);
        let server = card.map_or_else(|| id.to_string(), |c| c.server_id.clone());
        let x = body.x + 2;
        let used = pen.outside(x, y, body.right().saturating_sub(x), &server, Role::Strong);
        let own = card.and_then(|c| c.server_info.as_ref()).map(|s| own_name(&server, s)).unwrap_or_default();
        pen.outside(x + used + 1, y, body.right().saturating_sub(x + used + 1), &own, Role::Dim);
        let mut line = |n: u16, text: &str, role: Role| {
            if y + n < body.bottom() {
                pen.outside(x, y + n, body.right().saturating_sub(x), text, role);
            }
        };
        let when = card.map(|c| session::ago(now, c.started_at)).unwrap_or_default();
        line(1, &format!("{word} {when}"), tone);
        let client =
            card.and_then(|c| c.client_info.as_ref()).map_or_else(|| "unknown client".to_owned(), ToString::to_string);
        let profile = if card.is_some_and(|c| c.profile == Profile::Guard) { "guard" } else { "audit" };
        let (transport, calls) = (session::transport(view), grouped(view.totals.started));
        line(2, &format!("{profile} {transport} {calls} {client}"), Role::Dim);
        if let Some(streams) = session::streams_in_short(view, now).filter(|_| seen.sessions.is_alive(*id, view)) {
            line(3, &streams, Role::Accent);
        }
        if n == at {
            pen.select(Rect { x: body.x, y, width: body.width, height: 1 }, focused);
        }
    }
}

/// What a server calls itself, beside its id: the version alone where its name is the id.
fn own_name(id: &str, server: &PeerInfo) -> String {
    match &server.version {
        Some(version) if server.name == id => version.clone(),
        None if server.name == id => String::new(),
        _ => server.to_string(),
    }
}

/// Columns of a tool's name beside what is asked for, and those that this wants.
const TOOL: u16 = 18;
const PREVIEW: u16 = 16;

/// Columns of the list, from left to right; the least important go first.
struct Columns {
    time: u16,
    server: u16,
    tool: u16,
    /// What it asks for.
    preview: u16,
    verdict: u16,
    outcome: u16,
    took: u16,
    bar: u16,
}

/// `previews`: there are any to show.
fn columns(room: u16, previews: bool) -> Columns {
    let mut c = Columns { time: 13, server: 15, tool: 0, preview: 0, verdict: 12, outcome: 12, took: 9, bar: 9 };
    let used = |c: &Columns| c.time + c.server + c.verdict + c.outcome + c.took + c.bar;
    let short = |c: &Columns| used(c) + 14 > room;
    if short(&c) {
        c.bar = 0;
    }
    if short(&c) {
        c.server = 0;
    }
    if short(&c) {
        c.time = 9;
    }
    if short(&c) {
        c.verdict = 0;
    }
    if short(&c) {
        c.time = 0;
    }
    if short(&c) && room < 30 {
        c.took = 0;
    }
    c.tool = room.saturating_sub(used(&c));
    if previews {
        // What is asked for says more than these.
        let narrower: [fn(&mut Columns); 5] =
            [|c| c.bar = 0, |c| c.server = 0, |c| c.verdict = 0, |c| c.time = c.time.min(9), |c| c.time = 0];
        for narrow in narrower {
            if room.saturating_sub(used(&c)) < TOOL + PREVIEW {
                narrow(&mut c);
            }
        }
        let both = room.saturating_sub(used(&c));
        c.preview = if both < PREVIEW + 10 { 0 } else { both - TOOL.min(both / 2) };
        c.tool = both - c.preview;
    }
    c
}

fn calls(screen: &LiveScreen, pen: &mut Pen<'_>, panes: &Panes, now: WallTime) {
    let seen = screen.seen();
    let focused = screen.pane == Pane::Calls;
    let body = panes.calls_body();
    let total = seen.sessions.totals(&seen.state).started;
    let c = columns(body.width, screen.previews.any(&seen.state));
    if !panes.tiny {
        let shown = if screen.filter_text.is_empty() && !seen.state.is_cut() {
            counted(seen.calls.list.len() as u64, "call")
        } else {
            format!("{} of {}", grouped(seen.calls.list.len() as u64), counted(total, "call"))
        };
        let mut title = shown;
        if !screen.filter_text.is_empty() {
            title = format!("{title}  /{}", crate::tui::paint::clean(&screen.filter_text));
        }
        let more = seen.state.is_cut() && seen.calls.list.at_top(body.height);
        let follows = match (screen.held.is_some(), seen.calls.list.follows(), seen.calls.list.new_ones()) {
            (true, ..) => "paused".to_owned(),
            _ if more => "for older calls, o opens its files".to_owned(),
            (_, true, _) => "following".to_owned(),
            (_, _, 0) => "f follows".to_owned(),
            (_, _, n) => format!("+{} new", grouped(n)),
        };
        pen.headed(panes.calls, &format!("{title}  {follows}"), focused);
        let time = format!("time {}", pen.theme.zone.name(now));
        let mut x = body.x;
        let y = panes.calls.y + 1;
        for (w, name) in [
            (c.time, time.as_str()),
            (c.server, "server"),
            (c.tool, "tool"),
            (c.preview, "arguments"),
            (c.verdict, "verdict"),
            (c.outcome, if c.verdict == 0 { "state" } else { "outcome" }),
        ] {
            if w > 1 && y < panes.calls.bottom() {
                pen.put(x, y, w - 1, name, Role::Dim);
            }
            x += w;
        }
        if c.took > 0 && y < panes.calls.bottom() {
            pen.right(x, y, c.took - 1, "ms", Role::Dim);
        }
        if c.bar > 0 && y < panes.calls.bottom() {
            pen.put(x + c.took, y, c.bar - 1, "phases", Role::Dim);
        }
    }
    let (ids, selected) = seen.calls.list.window(body.height);
    let rows: Vec<_> = ids.into_iter().filter_map(|i| seen.state.row(i)).collect();
    let slow = seen.calls.slow_us();
    for (y, row) in (body.y..body.bottom()).zip(&rows) {
        let preview = screen.previews.of(&seen.state, row).unwrap_or_default();
        call(pen, Rect { y, height: 1, ..body }, (row, preview), &c, now, slow);
    }
    if let Some(line) = selected {
        pen.select(Rect { y: body.y + line, height: 1, ..body }, focused);
    }
    if rows.is_empty() && body.height > 0 {
        let text = match (screen.filter_text.is_empty(), seen.sessions.only()) {
            (false, _) => "no call passes the filter; Esc clears it",
            (true, Some(_)) => "no call in this session yet; Esc shows all sessions",
            (true, None) => "no call yet",
        };
        let text = pen.fitted(text, body.width);
        pen.put(body.x, body.y, body.width, &text, Role::Dim);
    }
}

fn messages(screen: &LiveScreen, pen: &mut Pen<'_>, panes: &Panes, now: WallTime) {
    let seen = screen.seen();
    let (all, list) = (seen.state.messages(), &seen.messages.list);
    let focused = screen.pane == Pane::Calls;
    let body = panes.calls_body();
    let c = MessageColumns::of(body.width, true, all.has_contents());
    if !panes.tiny {
        let mut title = counted(list.len() as u64, "message");
        if !screen.filter_text.is_empty() {
            title = format!("{title}  /{}", crate::tui::paint::clean(&screen.filter_text));
        }
        let follows = match (screen.held.is_some(), list.follows(), list.new_ones()) {
            (true, ..) => "paused".to_owned(),
            _ if all.is_cut() && list.at_top(body.height) => "for older messages, o opens its files".to_owned(),
            (_, true, _) => "following".to_owned(),
            (_, _, 0) => "f follows".to_owned(),
            (_, _, n) => format!("+{} new", grouped(n)),
        };
        pen.headed(panes.calls, &format!("{title}  {follows}"), focused);
        let head = Rect { y: panes.calls.y + 1, height: u16::from(panes.calls.height > 1), ..body };
        c.head(pen, head, &format!("time {}", pen.theme.zone.name(now)));
    }
    let (ids, selected) = list.window(body.height);
    let mut any = false;
    for (y, row) in (body.y..body.bottom()).zip(ids.into_iter().filter_map(|id| all.row(id))) {
        any = true;
        let card = seen.state.sessions().get(&row.session_id).and_then(|view| view.card.as_ref());
        let shown = Shown {
            time: pen.theme.zone.clock(row.at),
            server: card.map(|card| card.card.server_id.as_str()),
            direction: row.direction,
            what: Some(row.what),
            method: row.method.as_deref(),
            tool: row.tool.as_deref().filter(|_| row.method.is_some()),
            note: row.note.as_deref(),
            id: row.rpc_id.as_ref().map(rpc_text),
            bytes: Some(row.wire_bytes),
            preview: all.content(row).map(|content| content.said.preview.as_str()),
        };
        c.draw(pen, Rect { y, height: 1, ..body }, &shown);
    }
    if let Some(line) = selected {
        pen.select(Rect { y: body.y + line, height: 1, ..body }, focused);
    }
    if !any && body.height > 0 {
        let text = match (screen.filter_text.is_empty(), seen.sessions.only()) {
            (false, _) => "no message passes the filter; Esc clears it",
            (true, Some(_)) => "no message in this session yet; Esc shows all sessions",
            (true, None) => "no message yet",
        };
        let text = pen.fitted(text, body.width);
        pen.put(body.x, body.y, body.width, &text, Role::Dim);
    }
}

/// One row of the list.
fn call(pen: &mut Pen<'_>, area: Rect, (row, preview): (&CallRow, &str), c: &Columns, now: WallTime, slow_us: u64) {
    let state = CallState::of(row);
    let (mut x, y) = (area.x, area.y);
    if c.time > 1 {
        let at = row.requested_at.or(row.ended_at).map(|at| pen.theme.zone.clock(at)).unwrap_or_default();
        let text: String = at.chars().take(c.time as usize - 1).collect();
        pen.put(x, y, c.time - 1, &text, Role::Dim);
    }
    x += c.time;
    if c.server > 1 {
        pen.outside(x, y, c.server - 1, row.server_id.as_deref().unwrap_or("?"), Role::Dim);
    }
    x += c.server;
    let tool = if state.is_problem() { role(state) } else { Role::Text };
    pen.outside(x, y, c.tool.saturating_sub(1), row.tool_name.as_deref().unwrap_or("?"), tool);
    x += c.tool;
    pen.outside(x, y, c.preview.saturating_sub(1), preview, Role::Value);
    x += c.preview;
    let ascii = pen.theme.ascii;
    if c.verdict > 1 {
        let (text, tone) = match row.policy_verdict {
            Some(PolicyVerdict::Allowed) => (format!("{} allowed", pen.theme.glyph("✓", "+")), Role::Good),
            Some(PolicyVerdict::Denied) => (format!("{} denied", pen.theme.glyph("✗", "x")), Role::Bad),
            Some(PolicyVerdict::NoPolicy) => (format!("{} no policy", pen.theme.glyph("–", "-")), Role::Dim),
            None => (String::new(), Role::Dim),
        };
        pen.put(x, y, c.verdict - 1, &text, tone);
    }
    x += c.verdict;
    let word = match state {
        // The verdict has a column of its own; without it, the state says both.
        CallState::Allowed | CallState::NotEnforced if c.verdict > 0 => "forwarded",
        CallState::NotEnforced => "advised",
        other => other.word(),
    };
    pen.put(x, y, c.outcome.saturating_sub(1), &format!("{} {word}", state.glyph(ascii)), role(state));
    x += c.outcome;
    let running = row.is_running();
    let us = if running {
        row.requested_at.map(|at| now.millis().saturating_sub(at.millis()).max(0).unsigned_abs() * 1000)
    } else {
        // What never reached a server took no time there.
        row.duration_ms.map(|d| d.0)
    };
    if let Some(us) = us.filter(|_| c.took > 1) {
        let tone = if running {
            Role::Accent
        } else if us >= slow_us {
            Role::Warn
        } else {
            Role::Text
        };
        let text = if running { duration(us / 100_000 * 100_000) } else { duration(us) };
        pen.right(x, y, c.took - 1, &text, tone);
    } else if c.took > 1 {
        pen.right(x, y, c.took - 1, pen.theme.glyph("–", "-"), Role::Dim);
    }
    x += c.took;
    if let Some(us) = us.filter(|_| c.bar > 1) {
        pen.put(x, y, c.bar - 1, &bar(&row.phases_us, us, c.bar as usize - 1, ascii), Role::Dim);
    }
}
