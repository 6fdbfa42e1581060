//! Frames of the dashboard as values: keys as text, pictures as text and SVG, and a clock that does not move.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test --lib tui` writes the pictures in `snapshots/` again; look at every one that changed.

#![allow(clippy::missing_panics_doc)]

pub use assay_support::svg::{Background, svg};

use super::{
    app::{App, Start},
    keymap::Key,
    msg::{Effect, Msg},
    paint::Pen,
    screen::{At, Screen},
    theme::Theme,
    view,
};
use crate::{model::WallTime, text::width};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};
use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// The sizes of which pictures are taken: columns, lines.
pub const SIZES: [(u16, u16); 3] = [(24, 8), (80, 24), (140, 40)];

/// The time of every frame: 2026-03-15T11:30:00Z.
pub fn now() -> WallTime {
    WallTime::from_millis(1_773_574_200_000)
}

/// What is on the screen.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// The drawn cells.
    pub buffer: Buffer,
    /// The terminal's own cursor.
    pub cursor: Option<Position>,
}

impl From<Buffer> for Frame {
    fn from(buffer: Buffer) -> Self {
        Self { buffer, cursor: None }
    }
}

/// The whole dashboard at a size.
pub fn frame(app: &mut App, columns: u16, lines: u16) -> Frame {
    let _ = app.update(Msg::Resize(columns, lines));
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, lines));
    let cursor = view::draw(app, &mut buffer);
    Frame { buffer, cursor }
}

/// One screen alone at a size.
pub fn frame_of_screen(screen: &dyn Screen, columns: u16, lines: u16) -> Frame {
    frame_of(columns, lines, |pen, area| screen.draw(pen, At { area, now: now() }))
}

/// Anything that draws, at a size.
pub fn frame_of(columns: u16, lines: u16, draw: impl FnOnce(&mut Pen<'_>, Rect)) -> Frame {
    let area = Rect::new(0, 0, columns, lines);
    let mut buffer = Buffer::empty(area);
    let mut pen = Pen::new(&mut buffer, Theme::default());
    draw(&mut pen, area);
    let cursor = pen.cursor;
    Frame { buffer, cursor }
}

/// The characters of a frame, line by line, and where the cursor is.
pub fn text(frame: &Frame) -> String {
    let area = frame.buffer.area;
    let mut out = String::new();
    for y in area.top()..area.bottom() {
        out.push_str(row(&frame.buffer, y).trim_end());
        out.push('\n');
    }
    match frame.cursor {
        Some(at) => {
            let _ = writeln!(out, "cursor: line {}, column {}", at.y, at.x);
        }
        None => out.push_str("cursor: hidden\n"),
    }
    out
}

/// One line as a terminal shows it: what a wide glyph covers is not there.
pub fn row(buffer: &Buffer, y: u16) -> String {
    let mut out = String::new();
    let mut x = buffer.area.left();
    while x < buffer.area.right() {
        let symbol = buffer[(x, y)].symbol();
        out.push_str(symbol);
        x += width(symbol).max(1) as u16;
    }
    out
}

/// Compares pictures of `draw` at every one of [`SIZES`] with `snapshots/<name>-<columns>x<lines>.snap` and `.svg`.
pub fn assert_frames<F: Into<Frame>>(name: &str, mut draw: impl FnMut(u16, u16) -> F) {
    for (columns, lines) in SIZES {
        assert_frame(&format!("{name}-{columns}x{lines}"), &draw(columns, lines).into());
    }
}

/// Compares one picture.
pub fn assert_frame(name: &str, frame: &Frame) {
    assert_picture(name, frame, Background::Dark);
}

/// Compares one picture as a terminal of this background shows it.
pub fn assert_picture(name: &str, frame: &Frame, background: Background) {
    let text = text(frame);
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"));
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|v| v == value);
    let update = is("UPDATE_SNAPSHOTS", "1") || is("INSTA_UPDATE", "always");
    if update {
        fs::create_dir_all(&dir).unwrap();
        let header = "---\nsource: src/tui/testkit.rs\n---\n";
        fs::write(dir.join(format!("{name}.snap")), format!("{header}{text}")).unwrap();
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(&dir);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));

    let picture = svg(&frame.buffer, frame.cursor, background, "assay");
    let file = dir.join(format!("{name}.svg"));
    if update {
        fs::write(&file, &picture).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        stored == picture,
        "{} is not what is drawn (colours?): UPDATE_SNAPSHOTS=1, and look at it",
        file.display()
    );
}

/// Keys from text: `"j j ctrl-d Enter"`; text to type is in quotes: `"/ 'tool:add x' Enter"`.
pub fn keys(text: &str) -> Vec<KeyEvent> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some((typed, after)) = rest.strip_prefix('\'').and_then(|r| r.split_once('\'')) {
            out.extend(typed.chars().map(|c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)));
            rest = after.trim_start();
            continue;
        }
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let key = Key::parse(word).unwrap_or_else(|| panic!("{word} is no key"));
        out.push(KeyEvent::new(key.code, if key.ctrl { KeyModifiers::CONTROL } else { KeyModifiers::NONE }));
        rest = after.trim_start();
    }
    out
}

/// A dashboard, 80×24, after everything that its start asked for was done.
pub fn app(start: Start) -> App {
    let (mut app, effects) = App::new(start, 80, 24, now());
    settle(&mut app, effects);
    app
}

/// Presses keys, one after the other; jobs are done at once and tell their news. What is to be done outside.
pub fn press(app: &mut App, text: &str) -> Vec<Effect> {
    let mut outside = Vec::new();
    for key in keys(text) {
        let effects = app.update(Msg::Key(key));
        outside.extend(settle(app, effects));
    }
    outside
}

/// Presses keys and lets nothing run; jobs are among what is asked for.
pub fn press_only(app: &mut App, text: &str) -> Vec<Effect> {
    keys(text).into_iter().flat_map(|key| app.update(Msg::Key(key))).collect()
}

/// Runs jobs on this thread, and those that their news start, until there are none; gives back everything else.
pub fn settle(app: &mut App, effects: Vec<Effect>) -> Vec<Effect> {
    let mut outside = Vec::new();
    let mut queue = std::collections::VecDeque::from(effects);
    while let Some(effect) = queue.pop_front() {
        let Effect::Start(job) = effect else {
            outside.push(effect);
            continue;
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        job.run(move |told| {
            ear.lock().unwrap().push(told);
            true
        });
        let told = std::mem::take(&mut *heard.lock().unwrap());
        for told in told {
            queue.extend(app.update(Msg::Told(told)));
        }
    }
    outside
}

/// Fails when a frame holds something that a terminal obeys, hides or shows otherwise than it was meant.
pub fn check(frame: &Frame) {
    let buffer = &frame.buffer;
    let area = buffer.area;
    for y in area.top()..area.bottom() {
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            let hidden = crate::text::visible(symbol) != symbol && !symbol.contains('\u{200d}');
            assert!(!hidden && !symbol.chars().any(char::is_control), "{symbol:?} at {x},{y}");
            let w = width(symbol);
            assert!(w >= 1, "{symbol:?} at {x},{y} has no width");
            assert!(x + w as u16 <= area.right(), "{symbol:?} at {x},{y} goes over the edge");
            for covered in x + 1..x + w as u16 {
                let under = buffer[(covered, y)].symbol();
                assert!(under == " ", "{symbol:?} at {x},{y} lies over {under:?}");
            }
            x += w as u16;
        }
    }
    if let Some(at) = frame.cursor {
        assert!(area.contains(at), "the cursor at {at:?} is outside of {area:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Role;

    #[test]
    fn keys_are_read_from_text() {
        let of = |text: &str| keys(text).iter().map(|k| Key::of(k).to_string()).collect::<Vec<_>>();
        assert_eq!(of("j ctrl-d Enter G"), ["j", "ctrl-d", "Enter", "G"]);
        assert_eq!(of("/ 'a b' Esc"), ["/", "a", "Space", "b", "Esc"]);
    }

    #[test]
    fn pictures_show_text_colours_and_wide_glyphs() {
        let draw = |columns, lines| {
            frame_of(columns, lines, |pen, area| {
                let inner = pen.boxed(area, "Frame <&> test", true);
                let roles =
                    [Role::Text, Role::Dim, Role::Strong, Role::Good, Role::Warn, Role::Bad, Role::Accent, Role::Value];
                for (y, role) in (inner.y..inner.bottom()).zip(roles) {
                    let text = format!("{role:?} ✓ ✗ 漢字 é 👩\u{200d}🚀 ▏▌█ … │ a  b \"q\"");
                    pen.put(inner.x, y, inner.width, &text, role);
                }
                pen.select(Rect { y: inner.y + 1, height: 1, ..inner }, true);
            })
        };
        assert_frames("testkit", draw);
        for (columns, lines) in SIZES {
            check(&draw(columns, lines));
        }
        assert_picture("testkit-light", &draw(60, 12), Background::Light);
    }

    #[test]
    fn the_help_is_a_frame() {
        let mut app = app(Start::default());
        assert!(press(&mut app, "4 ?").is_empty());
        let shown = text(&frame(&mut app, 80, 24));
        assert!(shown.contains("Keys: Diff"), "{shown}");
        press(&mut app, "Esc");
        assert!(matches!(press(&mut app, "ctrl-c")[..], [Effect::Leave]));
    }
}
