//! The policy screen on the terminal.

use super::{File, PolicyScreen};
use crate::{
    numbers::{counted, grouped, percent},
    tui::{
        kit::Part,
        paint::{Pen, clean, wrapped},
        screen::At,
        theme::Role,
    },
};
use ratatui::layout::Rect;

/// From this number of lines, the details of the selected line are below the list.
const ABOUT_FROM: u16 = 14;
/// Lines that it takes.
const ABOUT: u16 = 6;

/// Draws the screen.
pub(super) fn screen(s: &PolicyScreen, pen: &mut Pen<'_>, at: At) {
    let places = s.places(at);
    if let Some(area) = places.first {
        text(s, pen, area, at);
    }
    if let (Some(left), Some(right)) = (places.first, places.second)
        && right.x > left.x
    {
        pen.rule(right.x - 1, right.y, right.bottom());
    }
    if let Some(area) = places.second {
        judged(s, pen, area);
    }
}

fn text(s: &PolicyScreen, pen: &mut Pen<'_>, area: Rect, at: At) {
    let focused = s.focus == Part::First;
    let body = s.text_body(at);
    if body.y > area.y {
        pen.headed(area, &heading(s), focused);
    }
    match &s.file {
        File::Unread => {
            pen.put(body.x, body.y, body.width, "reading…", Role::Dim);
        }
        File::Bad(why) => {
            let said = format!("{} cannot be edited: {why}", s.name());
            lines(pen, body, &wrapped(&said, body.width).into_iter().map(|l| (l, Role::Bad)).collect::<Vec<_>>());
        }
        File::There | File::New => s.editor.draw(pen, &s.note(body), body, focused),
    }
}

/// The file, and the state of the text.
fn heading(s: &PolicyScreen) -> String {
    let name = s.path.file_name().map_or_else(|| s.path.to_string_lossy(), |n| n.to_string_lossy());
    let mut out = vec![clean(&name)];
    match s.file {
        File::New => out.push("new".to_owned()),
        _ if s.editor.is_modified() => out.push("changed".to_owned()),
        _ => {}
    }
    if s.typing {
        out.push("typing".to_owned());
    }
    if let Some(e) = &s.error {
        let place = e.line.zip(e.column).map_or_else(String::new, |(l, c)| format!(" at {l}:{c}"));
        out.push(format!("error{place}"));
    }
    out.join("  ")
}

fn lines(pen: &mut Pen<'_>, area: Rect, all: &[(String, Role)]) {
    for (y, (text, role)) in (area.y..area.bottom()).zip(all) {
        pen.outside(area.x, y, area.width, text, *role);
    }
}

/// Where summary, list and all about the selected line are, in the pane of what was judged.
pub(super) fn parts(s: &PolicyScreen, area: Rect) -> (Rect, Rect, Rect) {
    let head = u16::from(area.height > 3);
    let said = (summary(s, area.width).len() as u16).min(area.height.saturating_sub(head) / 2);
    let summary = Rect { y: area.y + head, height: said, ..area };
    let rest = Rect { y: summary.bottom(), height: area.height - head - said, ..area };
    if s.whole {
        return (summary, Rect { height: 0, ..rest }, rest);
    }
    let about = if area.height >= ABOUT_FROM && s.results.len() > 0 { ABOUT } else { 0 };
    let list = Rect { height: rest.height - about, ..rest };
    (summary, list, Rect { y: list.bottom(), height: about, ..rest })
}

fn judged(s: &PolicyScreen, pen: &mut Pen<'_>, area: Rect) {
    let focused = s.focus == Part::Second;
    let (said, list, about) = parts(s, area);
    if said.y > area.y {
        let scope = clean(&s.scope().title);
        pen.headed(area, &format!("against {scope}"), focused);
    }
    lines(pen, said, &summary(s, area.width));
    s.results.draw(pen, list, focused);
    if about.height > 0 {
        let inner = if s.whole { about } else { pen.headed(about, "why", false) };
        lines(pen, inner, &s.results.about(inner.width));
        if s.whole {
            pen.cursor = Some(ratatui::layout::Position::new(inner.x, inner.y));
        }
    }
}

/// What matters most, in lines.
fn summary(s: &PolicyScreen, columns: u16) -> Vec<(String, Role)> {
    let mut out = Vec::new();
    let mut say = |text: &str, role| out.extend(wrapped(text, columns).into_iter().map(|l| (l, role)));
    if let File::Bad(_) = s.file {
        say("There is no policy to judge with.", Role::Dim);
        return out;
    }
    if let Some(why) = &s.nothing {
        say(&format!("Nothing to judge: {why}."), Role::Warn);
        say(
            "Record a session (assay mcp-proxy -- SERVER), or select a session or pack on 1 or 2 and press 5.",
            Role::Dim,
        );
        return out;
    }
    let Some(judged) = s.results.judged() else {
        say(if s.error.is_some() { "The text is not a policy yet." } else { "judging…" }, Role::Dim);
        return out;
    };
    if s.error.is_some() {
        say("From the last text without an error:", Role::Warn);
    } else if let Some(p) = s.progress {
        say(&format!("judging, {} %", percent(p.done_bytes, p.total_bytes)), Role::Dim);
    }
    let report = &judged.report;
    let role = match (report.total.newly_denied, report.total.unknown) {
        (0, 0) => Role::Good,
        (0, _) => Role::Warn,
        _ => Role::Bad,
    };
    let role = if s.error.is_some() || s.old { Role::Dim } else { role };
    say(&report.headline(), role);
    for (n, what) in report.also() {
        say(&format!("{} {what}", grouped(n)), Role::Text);
    }
    if report.sessions != 1 {
        say(&format!("in {}", counted(report.sessions, "session")), Role::Dim);
    }
    out
}
