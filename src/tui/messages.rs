//! Messages in a list: the same columns wherever they are shown.

use super::{paint::Pen, theme::Role};
use crate::{live::message::What, model::Direction, numbers::size};
use ratatui::layout::Rect;

/// What is shown of a message.
#[derive(Debug, Clone, Default)]
pub struct Shown<'a> {
    /// When it was read, as a time of day.
    pub time: String,
    /// Id of the server.
    pub server: Option<&'a str>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// What it is.
    pub what: Option<What>,
    /// Its method.
    pub method: Option<&'a str>,
    /// The tool that is called.
    pub tool: Option<&'a str>,
    /// What is wrong with it.
    pub note: Option<&'a str>,
    /// Its JSON-RPC id.
    pub id: Option<String>,
    /// Its length in bytes.
    pub bytes: Option<u64>,
    /// What it holds, in one line.
    pub preview: Option<&'a str>,
}

/// The columns that fit.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    time: u16,
    server: u16,
    what: u16,
    subject: u16,
    preview: u16,
    id: u16,
    size: u16,
}

impl Columns {
    /// For so many columns; `preview`: there are contents to show.
    #[must_use]
    pub const fn of(width: u16, servers: bool, preview: bool) -> Self {
        let mut c = Self { time: 13, server: 15, what: 16, subject: 0, preview: 0, id: 7, size: 9 };
        if !servers || width < 100 {
            c.server = 0;
        }
        if width < 70 {
            c.id = 0;
        }
        if width < 60 {
            c.time = 0;
        }
        if width < 36 {
            c.size = 0;
        }
        if width < 28 {
            c.what = 3;
        }
        let used = c.time + c.server + c.what + c.id + c.size;
        c.subject = width.saturating_sub(used);
        if preview && c.subject >= 44 {
            let subject = if c.subject >= 70 { 30 } else { 22 };
            c.preview = c.subject - subject;
            c.subject = subject;
        }
        c
    }

    /// The names of the columns; `time` is that of the first.
    pub fn head(self, pen: &mut Pen<'_>, r: Rect, time: &str) {
        if r.height == 0 {
            return;
        }
        let mut x = r.x;
        for (w, name) in [
            (self.time, time),
            (self.server, "server"),
            (self.what, "message"),
            (self.subject, "method"),
            (self.preview, "content"),
            (self.id, "id"),
        ] {
            if w > 1 {
                pen.put(x, r.y, w - 1, name, Role::Dim);
            }
            x += w;
        }
        if self.size > 0 {
            pen.right(x, r.y, self.size, "size", Role::Dim);
        }
    }

    /// One line.
    pub fn draw(self, pen: &mut Pen<'_>, row: Rect, m: &Shown<'_>) {
        let (mut x, y) = (row.x, row.y);
        if self.time > 1 {
            pen.put(x, y, self.time - 1, &m.time, Role::Dim);
        }
        x += self.time;
        if self.server > 1 {
            pen.outside(x, y, self.server - 1, m.server.unwrap_or("?"), Role::Dim);
        }
        x += self.server;
        let bad = m.what.is_some_and(What::is_problem);
        let role = if bad { Role::Bad } else { way_role(m.direction) };
        let mark = if bad { "! " } else { "" };
        let word = m.what.map_or("", What::word);
        pen.put(x, y, self.what.saturating_sub(1), &format!("{} {mark}{word}", way(pen, m.direction)), role);
        x += self.what;
        let subject = [m.method, m.tool, m.note].into_iter().flatten().collect::<Vec<_>>().join(" ");
        pen.outside(x, y, self.subject.saturating_sub(1), &subject, if bad { Role::Bad } else { Role::Text });
        x += self.subject;
        if self.preview > 1 {
            pen.outside(x, y, self.preview - 1, m.preview.unwrap_or_default(), Role::Value);
        }
        x += self.preview;
        if let Some(id) = m.id.as_ref().filter(|_| self.id > 1) {
            pen.outside(x, y, self.id - 1, id, Role::Dim);
        }
        x += self.id;
        if let Some(bytes) = m.bytes.filter(|_| self.size > 0) {
            pen.right(x, y, self.size, &size(bytes), Role::Text);
        }
    }
}

/// The glyph of a direction: to the right is to the server.
fn way(pen: &Pen<'_>, direction: Option<Direction>) -> &'static str {
    match direction {
        Some(Direction::ClientToServer) => pen.theme.glyph("→", ">"),
        Some(Direction::ServerToClient) => pen.theme.glyph("←", "<"),
        None => " ",
    }
}

const fn way_role(direction: Option<Direction>) -> Role {
    match direction {
        Some(Direction::ClientToServer) => Role::Accent,
        Some(Direction::ServerToClient) => Role::Good,
        None => Role::Text,
    }
}

/// A direction in words.
#[must_use]
pub const fn way_in_words(direction: Direction) -> &'static str {
    match direction {
        Direction::ClientToServer => "client to server",
        Direction::ServerToClient => "server to client",
    }
}
