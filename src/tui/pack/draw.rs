//! The pack on the screen.

use super::{
    PackScreen, State, Tab,
    book::Book,
    bytes,
    layout::Panes,
    read::FileLine,
    row::{EventRow, EvidenceRow as Said, is_problem},
    rows::{self, TextRow},
};
use crate::{
    live::{message::What, row::CallRow, words::CallState},
    model::{Outcome, PolicyVerdict, WallTime},
    numbers::{counted, duration_if, grouped, size},
    tui::{
        kit::ListPane,
        messages::{Columns as MessageColumns, Shown, way_in_words},
        packs::words::{BAD, GOOD, LOOK, NONE},
        paint::Pen,
        screen::At,
        theme::{Role, Theme},
    },
    zone::Zone,
};
use ratatui::layout::Rect;

/// Columns of a time of day with milliseconds.
const TIME: u16 = 12;
/// Columns of a kind of event.
const KIND: u16 = 17;

pub(super) fn screen(s: &PackScreen, pen: &mut Pen<'_>, at: At) {
    if at.area.width == 0 || at.area.height == 0 {
        return;
    }
    let panes = s.panes(at);
    tabs(s, pen, &panes);
    if let Some(b) = &s.bytes {
        return bytes::draw(b, pen, At { area: panes.body, ..at });
    }
    match s.tab {
        Tab::Verification | Tab::Surface => verification_pane(s, pen, &panes, at),
        Tab::Receipts => receipts(s, pen, &panes, at),
        Tab::Chain => chain(s, pen, &panes),
        Tab::Messages => messages(s, pen, &panes, at.now),
        Tab::Timeline => s.scope.draw(pen, &s.timeline, panes.body),
    }
}

/// Names of the parts, with counts.
fn labels(s: &PackScreen, width: u16) -> Vec<(Tab, String)> {
    s.tabs()
        .iter()
        .copied()
        .filter(|tab| width >= 50 || *tab == s.tab)
        .map(|tab| {
            let book = match tab {
                Tab::Receipts => s.receipts.as_ref(),
                Tab::Chain => s.chain.as_ref(),
                Tab::Messages => s.messages.as_ref(),
                Tab::Verification | Tab::Timeline | Tab::Surface => None,
            };
            let count = book.filter(|b| b.lines() > 0).map_or_else(String::new, |b| {
                let (lines, is_whole) =
                    if b.is_partial() { (b.len(), b.percent().is_none()) } else { (b.lines(), b.is_whole()) };
                format!(" {}{}", grouped(lines), if is_whole { "" } else { "…" })
            });
            (tab, format!(" {}{count} ", tab.name()))
        })
        .collect()
}

fn tabs(s: &PackScreen, pen: &mut Pen<'_>, panes: &Panes) {
    if panes.tabs.height == 0 {
        return;
    }
    let r = panes.tabs;
    let mut x = r.x;
    for (tab, text) in labels(s, r.width) {
        let here = tab == s.tab;
        let text = if pen.theme.ascii { text.replace('…', "~") } else { text };
        let used = pen.put(x, r.y, r.right().saturating_sub(x), &text, if here { Role::Strong } else { Role::Dim });
        if here {
            let style = pen.theme.selected(!s.inside);
            pen.over(Rect { x, width: used, ..r }, style);
        }
        x += used + 1;
    }
}

/// Which tab's name is there.
pub(super) fn tab_at(s: &PackScreen, panes: &Panes, x: u16, y: u16) -> Option<Tab> {
    let mut left = panes.tabs.x;
    if panes.tabs.height == 0 || y != panes.tabs.y {
        return None;
    }
    for (tab, text) in labels(s, panes.tabs.width) {
        let right = left + crate::text::width(&text) as u16;
        if (left..right).contains(&x) {
            return Some(tab);
        }
        left = right + 1;
    }
    None
}

/// The lines of the verification's list at this size.
pub(super) fn verification(s: &PackScreen, at: At, theme: Theme) -> Vec<TextRow> {
    let panes = s.panes(at);
    let mut out = Vec::new();
    if at.is_tiny() {
        if let State::Running(p) = &s.state {
            out.push(TextRow {
                pieces: vec![(rows::progress(*p, panes.list.width, theme), Role::Accent)],
                ..TextRow::default()
            });
        }
    } else if !panes.beside && matches!(s.state, State::Running(_) | State::Verified(_) | State::Stopped) {
        out.extend(rows::stages(s, theme));
        if let State::Running(p) = &s.state {
            out.push(TextRow::default());
            out.push(TextRow {
                pieces: vec![(rows::progress(*p, panes.list.width, theme), Role::Accent)],
                ..TextRow::default()
            });
        }
        out.push(TextRow::default());
    }
    out.extend(rows::lines(s, panes.list.width, theme));
    out
}

fn pieces(pen: &mut Pen<'_>, row: Rect, line: &TextRow) {
    let mut x = row.x;
    for (text, role) in &line.pieces {
        let left = row.right().saturating_sub(x);
        if left == 0 {
            return;
        }
        x += pen.outside(x, row.y, left, text, *role);
    }
}

fn verification_pane(s: &PackScreen, pen: &mut Pen<'_>, panes: &Panes, at: At) {
    if let Some(side) = panes.side {
        let mut y = side.y;
        for line in rows::stages(s, pen.theme) {
            if y < side.bottom() {
                pieces(pen, Rect { y, height: 1, ..side }, &line);
            }
            y += 1;
        }
        if let State::Running(p) = &s.state
            && y + 1 < side.bottom()
        {
            let text = rows::progress(*p, side.width, pen.theme);
            pen.put(side.x, y + 1, side.width, &text, Role::Accent);
        }
        pen.rule(side.right(), side.y, side.bottom());
    }
    let lines = match &s.surface {
        Some(rows) if s.tab == Tab::Surface => rows.clone(),
        _ => verification(s, at, pen.theme),
    };
    ListPane::new(lines.len(), panes.list).draw(&s.cursor, pen, Some(true), |pen, n, row| {
        if let Some(line) = lines.get(n) {
            pieces(pen, row, line);
        }
    });
}

/// What there is to say about a list, and how many calls run that are not in it.
fn status(book: &Book, pen: &mut Pen<'_>, r: Rect, what: &str, running: usize) {
    if r.height == 0 {
        return;
    }
    let mut text = if book.filter().is_empty() {
        format!("{} {what}", grouped(book.len()))
    } else {
        format!("{} of {}", grouped(book.len()), grouped(book.lines()))
    };
    let mut role = Role::Dim;
    if let Some(percent) = book.percent() {
        text = format!("{text}, {percent} % read");
        role = Role::Accent;
    }
    if running > 0 && book.torn() == 0 {
        text = format!("{text}, {} running", grouped(running as u64));
    }
    if book.torn() > 0 {
        text = format!("{text}  ! {} after the last whole line: cut, or being written", counted(book.torn(), "byte"));
        role = Role::Warn;
    }
    if let Some(why) = book.error() {
        text = format!("! {why}");
        role = Role::Bad;
    }
    if !book.filter().is_empty() {
        text = format!("{text}  filter: {}", book.filter());
    }
    let problems = book.problems().len() as u64;
    let here = book.len().min(book.cursor.at + 1);
    let right =
        if r.width >= 60 { format!("{} to look at  {}", grouped(problems), grouped(here)) } else { String::new() };
    let room = r.width.saturating_sub(right.len() as u16 + 1);
    pen.outside(r.x, r.y, room, &text, role);
    pen.right(r.x + room, r.y, r.width - room, &right, Role::Dim);
}

/// Draws the lines of a book.
fn list(book: &Book, pen: &mut Pen<'_>, panes: &Panes, focused: bool, each: impl Fn(&mut Pen<'_>, Rect, &FileLine)) {
    let r = panes.list;
    if book.len() == 0 && r.height > 0 {
        let text = match (book.error(), book.percent()) {
            (Some(why), _) => format!("! {why}"),
            (None, Some(percent)) => format!("reading… {percent} %"),
            (None, None) if book.filter().is_empty() => "it is empty".to_owned(),
            (None, None) => "nothing matches the filter; Esc clears it".to_owned(),
        };
        let role = if book.error().is_some() { Role::Bad } else { Role::Dim };
        pen.outside(r.x, r.y, r.width, &text, role);
        return;
    }
    ListPane { len: book.len(), area: r }.draw(&book.cursor, pen, Some(focused), |pen, n, row| {
        match book.line(n as u64) {
            Some(line) => each(pen, row, line),
            None => {
                pen.put(row.x, row.y, row.width, pen.theme.glyph("…", "~"), Role::Dim);
            }
        }
    });
}

/// The time of day of a timestamp: `11:30:00.123`.
fn time_of(at: &str, zone: Zone) -> String {
    let said = || at.get(11..23).unwrap_or(at).to_owned();
    WallTime::parse(at).map_or_else(said, |at| zone.clock(at))
}

fn receipts(s: &PackScreen, pen: &mut Pen<'_>, panes: &Panes, at: At) {
    let Some(book) = &s.receipts else {
        pen.put(panes.body.x, panes.body.y, panes.body.width, "no receipts", Role::Dim);
        return;
    };
    let full = s.inside && !panes.beside;
    if !full {
        let columns = Columns::of(panes.list.width, book.has_previews());
        columns.head(pen, panes.head);
        list(book, pen, panes, !s.inside, |pen, row, line| columns.draw(pen, row, line));
        running(s, pen, panes, columns);
        status(book, pen, panes.status, "receipts", s.chain.as_ref().map_or(0, |chain| chain.running().all));
    }
    if let Some(side) = panes.side {
        if panes.beside {
            pen.rule(side.x - 2, side.y, side.bottom());
        }
        match book.selected().map(|l| &l.row) {
            Some(Said::Call(_)) | None => s.detail.draw(pen, At { area: side, ..at }, s.inside),
            Some(row) => other(pen, side, row),
        }
    }
}

/// The calls that have no receipt yet, the last ones where not all have room.
fn running(s: &PackScreen, pen: &mut Pen<'_>, panes: &Panes, columns: Columns) {
    let (calls, _) = s.running();
    let first = calls.len().saturating_sub(panes.running.height as usize);
    for (call, y) in calls[first..].iter().zip(panes.running.y..) {
        let row = Rect { y, height: 1, ..panes.running };
        let x = row.x + if columns.number > 0 { columns.number + 1 } else { 0 };
        columns.call(pen, row, x, (call, None));
    }
}

/// What there is to say about a receipt that is not a call's.
fn other(pen: &mut Pen<'_>, area: Rect, row: &Said) {
    let lines: Vec<(String, Role)> = match row {
        Said::Other { what, at, text, id, .. } => vec![
            (text.clone(), Role::Strong),
            (format!("type        {what}"), Role::Text),
            (format!("receipt id  {id}"), Role::Text),
            (format!("time        {at}"), Role::Text),
            ("Enter shows its bytes".to_owned(), Role::Dim),
        ],
        Said::Bad { why, head } => vec![
            (format!("! {why}"), Role::Bad),
            (head.clone(), Role::Text),
            ("Enter shows its bytes".to_owned(), Role::Dim),
        ],
        _ => Vec::new(),
    };
    for ((text, role), y) in lines.into_iter().zip(area.y..area.bottom()) {
        pen.outside(area.x, y, area.width, &text, role);
    }
}

/// The columns of receipts that fit.
#[derive(Debug, Clone, Copy)]
struct Columns {
    number: u16,
    time: u16,
    tool: u16,
    preview: u16,
    verdict: u16,
    outcome: u16,
    ms: u16,
}

impl Columns {
    /// `previews`: arguments are stored.
    fn of(width: u16, previews: bool) -> Self {
        let mut left = width;
        let mut take = |columns: u16, least: u16| {
            if left >= columns + 1 + least {
                left -= columns + 1;
                columns
            } else {
                0
            }
        };
        // A tool's name needs some room before anything else gets any.
        let outcome = take(11, 10);
        let ms = take(8, 12);
        let time = take(TIME, 14);
        let verdict = take(11, 16);
        let number = take(7, 20);
        // Of two columns, the name gets no more than it mostly needs.
        let preview = if previews && left >= 18 + 1 + 12 { left - 18 - 1 } else { 0 };
        let tool = if preview > 0 { 18 } else { left };
        Self { number, time, tool, preview, verdict, outcome, ms }
    }

    fn head(self, pen: &mut Pen<'_>, r: Rect) {
        if r.height == 0 {
            return;
        }
        let mut x = r.x;
        for (w, name) in [
            (self.number, "receipt"),
            (self.time, "time"),
            (self.tool, "tool"),
            (self.preview, "arguments"),
            (self.verdict, "verdict"),
            (self.outcome, "outcome"),
        ] {
            if w > 0 {
                pen.put(x, r.y, w, name, Role::Dim);
                x += w + 1;
            }
        }
        if self.ms > 0 {
            pen.right(x, r.y, self.ms, "took", Role::Dim);
        }
    }

    fn draw(self, pen: &mut Pen<'_>, row: Rect, line: &FileLine) {
        let mut x = row.x;
        if self.number > 0 {
            pen.right(x, row.y, self.number, &grouped(line.number + 1), Role::Dim);
            x += self.number + 1;
        }
        match &line.row {
            Said::Call(call) => self.call(pen, row, x, (call, line.preview.as_deref())),
            Said::Other { at, text, bad, .. } => {
                if self.time > 0 {
                    pen.outside(x, row.y, self.time, &time_of(at, pen.theme.zone), Role::Dim);
                    x += self.time + 1;
                }
                let role = if *bad { Role::Warn } else { Role::Dim };
                let mark = pen.theme.glyph(if *bad { "!" } else { "·" }, if *bad { "!" } else { "." });
                pen.outside(x, row.y, row.right().saturating_sub(x), &format!("{mark} {text}"), role);
            }
            Said::Bad { why, head } => {
                let mark = pen.theme.glyph(BAD.0, BAD.1);
                pen.outside(x, row.y, row.right().saturating_sub(x), &format!("{mark} {why}: {head}"), Role::Bad);
            }
            Said::Event(_) => {}
        }
    }

    fn call(self, pen: &mut Pen<'_>, row: Rect, mut x: u16, (call, preview): (&CallRow, Option<&str>)) {
        if self.time > 0 {
            let at = call.requested_at.map(|at| pen.theme.zone.clock(at)).unwrap_or_default();
            pen.outside(x, row.y, self.time, &at, Role::Dim);
            x += self.time + 1;
        }
        pen.outside(x, row.y, self.tool, call.tool_name.as_deref().unwrap_or("–"), Role::Text);
        x += self.tool + 1;
        if self.preview > 0 {
            pen.outside(x, row.y, self.preview, preview.unwrap_or_default(), Role::Value);
            x += self.preview + 1;
        }
        if self.verdict > 0 {
            let (glyph, word, role) = match call.policy_verdict {
                Some(PolicyVerdict::Allowed) => (GOOD, "allowed", Role::Good),
                Some(PolicyVerdict::Denied) => (BAD, "denied", Role::Bad),
                Some(PolicyVerdict::NoPolicy) => (NONE, "no policy", Role::Dim),
                None => (NONE, "", Role::Dim),
            };
            let text = format!("{} {word}", pen.theme.glyph(glyph.0, glyph.1));
            pen.put(x, row.y, self.verdict, &text, role);
            x += self.verdict + 1;
        }
        if self.outcome > 0 {
            let (glyph, word, role) = match call.outcome {
                Some(Outcome::Forwarded) => (GOOD, "forwarded", Role::Good),
                Some(Outcome::Denied) => (BAD, "denied", Role::Bad),
                Some(Outcome::Error) => (LOOK, "error", Role::Warn),
                Some(Outcome::Timeout) => (LOOK, "timeout", Role::Warn),
                None => (
                    (CallState::Running.glyph(false), CallState::Running.glyph(true)),
                    CallState::Running.word(),
                    Role::Accent,
                ),
            };
            let text = format!("{} {word}", pen.theme.glyph(glyph.0, glyph.1));
            pen.put(x, row.y, self.outcome, &text, role);
            x += self.outcome + 1;
        }
        if self.ms > 0 {
            let text = duration_if(call.duration_ms.map(|d| d.0));
            pen.right(x, row.y, self.ms, &text, Role::Value);
        }
    }
}

fn chain(s: &PackScreen, pen: &mut Pen<'_>, panes: &Panes) {
    let Some(book) = &s.chain else {
        pen.put(panes.body.x, panes.body.y, panes.body.width, "no audit events", Role::Dim);
        return;
    };
    if panes.head.height > 0 {
        event_head(pen, panes.head);
    }
    list(book, pen, panes, true, event);
    status(book, pen, panes.status, "events", 0);
    if let (Some(side), Some(line)) = (panes.side, book.selected()) {
        let inner = pen.headed(side, &format!("line {}, {}", grouped(line.number + 1), size(line.bytes)), false);
        event_below(pen, inner, &line.row);
    }
}

/// Columns of an event: mark, number, time, kind, what, hash. Zero where it is dropped.
const fn event_columns(width: u16) -> (u16, u16, u16, u16) {
    match width {
        0..30 => (0, 0, KIND, 0),
        30..50 => (7, 0, KIND, 0),
        50..70 => (7, TIME, KIND, 0),
        _ => (7, TIME, KIND, 16),
    }
}

fn event_head(pen: &mut Pen<'_>, r: Rect) {
    let (number, time, kind, hash) = event_columns(r.width);
    let mut x = r.x + 2;
    for (w, name) in [(number, "event"), (time, "time"), (kind, "kind")] {
        if w > 0 {
            pen.put(x, r.y, w, name, Role::Dim);
            x += w + 1;
        }
    }
    pen.put(x, r.y, r.right().saturating_sub(x), "method", Role::Dim);
    if hash > 0 {
        pen.put(r.right() - hash, r.y, hash, "hash", Role::Dim);
    }
}

/// The events that say that a message was read, as messages.
fn messages(s: &PackScreen, pen: &mut Pen<'_>, panes: &Panes, now: WallTime) {
    let Some(book) = &s.messages else {
        pen.put(panes.body.x, panes.body.y, panes.body.width, "no audit events", Role::Dim);
        return;
    };
    let columns = MessageColumns::of(panes.list.width, false, false);
    columns.head(pen, panes.head, &format!("time {}", pen.theme.zone.name(now)));
    list(book, pen, panes, true, |pen, row, line| match &line.row {
        Said::Event(e) => {
            let shown = Shown {
                time: time_of(&e.at, pen.theme.zone),
                direction: e.direction,
                what: e.what,
                method: e.method.as_deref(),
                tool: e.tool.as_deref(),
                note: e.note.as_deref().filter(|_| e.what.is_some_and(What::is_problem)),
                id: e.rpc_id.clone(),
                bytes: e.wire.as_ref().map(|wire| wire.0),
                ..Shown::default()
            };
            columns.draw(pen, row, &shown);
        }
        _ => event(pen, row, line),
    });
    status(book, pen, panes.status, "messages", 0);
    if let (Some(side), Some(line)) = (panes.side, book.selected()) {
        let inner = pen.headed(side, &format!("line {}, {}", grouped(line.number + 1), size(line.bytes)), false);
        message_below(pen, inner, &line.row);
    }
}

/// The selected message.
fn message_below(pen: &mut Pen<'_>, r: Rect, row: &Said) {
    let Said::Event(e) = row else { return event_below(pen, r, row) };
    let word = e.what.map_or("message", What::word);
    let id = e.rpc_id.as_ref().map_or_else(String::new, |id| format!(", id {id}"));
    let way = e.direction.map_or("", way_in_words);
    let mut lines = vec![(format!("{word} {}{id}, {way}", what(e)), Role::Strong)];
    lines.extend(
        e.wire.as_ref().map(|(bytes, sha)| {
            (format!("  {} ({}), SHA-256 {sha}", size(*bytes), counted(*bytes, "byte")), Role::Text)
        }),
    );
    lines.extend(e.invocation.as_ref().map(|call| (format!("  request {call}"), Role::Text)));
    lines.push(("  its content is not recorded; what is stored of calls is in the receipts".to_owned(), Role::Dim));
    for ((text, role), y) in lines.into_iter().zip(r.y..r.bottom()) {
        pen.outside(r.x, y, r.width, &text, role);
    }
}

fn event(pen: &mut Pen<'_>, row: Rect, line: &FileLine) {
    let (number, time, kind, hash) = event_columns(row.width);
    let problem = is_problem(&line.row);
    let broken = matches!(&line.row, Said::Event(e) if e.is_broken()) || matches!(&line.row, Said::Bad { .. });
    if broken {
        pen.put(row.x, row.y, 1, pen.theme.glyph(BAD.0, BAD.1), Role::Bad);
    } else if problem {
        pen.put(row.x, row.y, 1, LOOK.0, Role::Warn);
    }
    let mut x = row.x + 2;
    let Said::Event(e) = &line.row else {
        if let Said::Bad { why, head } = &line.row {
            pen.outside(x, row.y, row.right().saturating_sub(x), &format!("{why}: {head}"), Role::Bad);
        }
        return;
    };
    let role = if broken {
        Role::Bad
    } else if problem {
        Role::Warn
    } else {
        Role::Text
    };
    if number > 0 {
        pen.right(x, row.y, number, &grouped(e.seq), Role::Dim);
        x += number + 1;
    }
    if time > 0 {
        pen.outside(x, row.y, time, &time_of(&e.at, pen.theme.zone), Role::Dim);
        x += time + 1;
    }
    pen.outside(x, row.y, kind.min(row.right().saturating_sub(x)), &e.kind, role);
    x += kind + 1;
    let room = row.right().saturating_sub(x + if hash > 0 { hash + 1 } else { 0 });
    let said = match (broken, e.hashes_to.is_some()) {
        (true, true) => "hash does not match".to_owned(),
        (true, false) => "broken link to the previous event".to_owned(),
        _ => what(e),
    };
    pen.outside(x, row.y, room, &said, if broken { Role::Bad } else { Role::Text });
    if hash > 0 {
        let short = e.hash.get(..hash as usize).unwrap_or(&e.hash);
        pen.outside(row.right() - hash, row.y, hash, short, Role::Dim);
    }
}

/// Method, tool, note.
fn what(e: &EventRow) -> String {
    let parts = [e.method.as_deref(), e.tool.as_deref(), e.note.as_deref()];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The selected event, and both sides of its link.
fn event_below(pen: &mut Pen<'_>, r: Rect, row: &Said) {
    let mut lines: Vec<(String, Role)> = Vec::new();
    match row {
        Said::Event(e) => {
            let way = e.direction.map_or_else(String::new, |d| format!(", {}", way_in_words(d)));
            let id = e.rpc_id.as_ref().map_or_else(String::new, |id| format!(", id {id}"));
            let call = e.invocation.as_ref().map_or_else(String::new, |i| format!(", {i}"));
            lines.push((format!("event {} {} {}{id}{call}{way}", e.seq, e.kind, what(e)), Role::Strong));
            match (&e.hashes_to, &e.before) {
                (Some(hash), _) => {
                    let mark = pen.theme.glyph(BAD.0, BAD.1);
                    lines.push((format!("{mark} the event does not match its hash"), Role::Bad));
                    lines.push((format!("  its hash    {}", e.hash), Role::Text));
                    lines.push((format!("  hashes to   {hash}"), Role::Text));
                    lines.push((difference(&e.hash, hash, 14), Role::Bad));
                }
                (None, Some(before)) => {
                    let mark = pen.theme.glyph(BAD.0, BAD.1);
                    lines.push((format!("{mark} broken link: both sides"), Role::Bad));
                    lines.push((format!("  hash before {before}"), Role::Text));
                    lines.push((format!("  prev_hash   {}", e.prev_hash), Role::Text));
                    lines.push((difference(before, &e.prev_hash, 14), Role::Bad));
                }
                (None, None) => {
                    lines.push((format!("  hash        {}", e.hash), Role::Text));
                    lines.push((format!("  prev_hash   {}", e.prev_hash), Role::Text));
                    let mark = pen.theme.glyph(GOOD.0, GOOD.1);
                    let text = if e.linked {
                        format!("{mark} it matches its hash and is linked to the previous event")
                    } else {
                        format!("{mark} it matches its hash; it begins the chain of this file")
                    };
                    lines.push((text, Role::Good));
                }
            }
        }
        Said::Bad { why, head } => {
            lines.push((format!("! {why}"), Role::Bad));
            lines.push((head.clone(), Role::Text));
        }
        _ => {}
    }
    for ((text, role), y) in lines.into_iter().zip(r.y..r.bottom()) {
        pen.outside(r.x, y, r.width, &text, role);
    }
}

/// A caret below the first character in which two hashes differ.
fn difference(a: &str, b: &str, indent: usize) -> String {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    format!("{}^ differs from here", " ".repeat(indent + same))
}
