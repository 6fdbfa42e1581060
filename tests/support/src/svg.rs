//! A terminal as one SVG file that needs nothing else: every run of characters is stretched to its columns, box drawing and
//! blocks are shapes, so that it looks the same with any font.

use assay::text::width;
use ratatui::{
    buffer::{Buffer, Cell},
    layout::Position,
    style::{Color, Modifier},
};
use std::fmt::Write as _;

const COLUMN: f64 = 8.4;
const LINE: f64 = 18.0;
const MARGIN: f64 = 12.0;
const TITLE: f64 = 30.0;

/// What a terminal's colours are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// Light text on a dark ground.
    Dark,
    /// Dark text on a light ground.
    Light,
}

impl Background {
    /// Text, ground, frame.
    const fn own(self) -> [&'static str; 3] {
        match self {
            Self::Dark => ["#d4d7dd", "#16191f", "#2b303b"],
            Self::Light => ["#24292f", "#fdfdfc", "#d5d9df"],
        }
    }

    /// The 16 colours of a terminal.
    const fn colours(self) -> [&'static str; 16] {
        match self {
            Self::Dark => [
                "#3b4252", "#e0626c", "#8cbf6f", "#d9b35b", "#6ca8e8", "#c38be0", "#5dbdc4", "#c7cbd3", "#6b7385",
                "#ff7b86", "#a6d98a", "#f2cd79", "#8fc3ff", "#dca8f5", "#7fdbe2", "#ffffff",
            ],
            Self::Light => [
                "#24292f", "#b3202c", "#2a7a35", "#8a6100", "#1f5fb8", "#8036a8", "#17727a", "#6a717c", "#57606a",
                "#cf3541", "#3a9447", "#a87900", "#3a7bd5", "#9a4fc4", "#218c95", "#8c939d",
            ],
        }
    }
}

/// How cells look.
#[derive(Clone, Copy, PartialEq)]
struct Look {
    ink: &'static str,
    ground: Option<&'static str>,
    bold: bool,
    dim: bool,
    underlined: bool,
}

impl Look {
    fn of(cell: &Cell, background: Background) -> Self {
        let [text, ground, _] = background.own();
        let ink = colour(cell.fg, background);
        let under = colour(cell.bg, background);
        let has = |m| cell.modifier.contains(m);
        let (ink, ground) = if has(Modifier::REVERSED) {
            (under.unwrap_or(ground), Some(ink.unwrap_or(text)))
        } else {
            (ink.unwrap_or(text), under)
        };
        Self { ink, ground, bold: has(Modifier::BOLD), dim: has(Modifier::DIM), underlined: has(Modifier::UNDERLINED) }
    }
}

fn colour(colour: Color, background: Background) -> Option<&'static str> {
    let n = match colour {
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
        _ => return None,
    };
    background.colours().get(n).copied()
}

/// The picture; `cursor` is the terminal's own, where it is shown.
pub fn svg(buffer: &Buffer, cursor: Option<Position>, background: Background, title: &str) -> String {
    let area = buffer.area;
    let columns = f64::from(area.width) * COLUMN;
    let (w, h) = (columns + 2.0 * MARGIN, f64::from(area.height) * LINE + TITLE + MARGIN);
    let [text, ground, edge] = background.own();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w:.1} {h:.1}\" width=\"{w:.0}\" height=\"{h:.0}\" \
         font-family=\"'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace\" font-size=\"14\">\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{:.1}\" height=\"{:.1}\" rx=\"9\" fill=\"{ground}\" stroke=\"{edge}\"/>\n",
        w - 1.0,
        h - 1.0
    );
    for (n, fill) in ["#e0626c", "#d9b35b", "#8cbf6f"].iter().enumerate() {
        let x = 17.0 + 16.0 * n as f64;
        let _ = writeln!(out, "<circle cx=\"{x:.0}\" cy=\"15\" r=\"5\" fill=\"{fill}\" opacity=\"0.8\"/>");
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"19.5\" text-anchor=\"middle\" font-size=\"12\" fill=\"{text}\" opacity=\"0.6\">{}</text>",
        w / 2.0,
        escaped(title)
    );
    for y in area.top()..area.bottom() {
        line(&mut out, buffer, y, background);
    }
    if let Some(at) = cursor.filter(|at| area.contains(*at)) {
        let (x, y) = place(at.x - area.x, at.y - area.y);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{COLUMN:.1}\" height=\"2\" fill=\"{}\"/>",
            y + LINE - 3.0,
            background.colours()[3]
        );
    }
    out.push_str("</svg>\n");
    out
}

fn place(column: u16, line: u16) -> (f64, f64) {
    (MARGIN + f64::from(column) * COLUMN, TITLE + f64::from(line) * LINE)
}

/// A glyph with its place on the line.
struct Glyph<'a> {
    column: u16,
    columns: u16,
    symbol: &'a str,
    look: Look,
}

fn line(out: &mut String, buffer: &Buffer, y: u16, background: Background) {
    let area = buffer.area;
    let mut glyphs = Vec::new();
    let mut x = area.left();
    while x < area.right() {
        let cell = &buffer[(x, y)];
        let columns = width(cell.symbol()).max(1) as u16;
        glyphs.push(Glyph { column: x - area.x, columns, symbol: cell.symbol(), look: Look::of(cell, background) });
        x += columns;
    }
    for run in glyphs.chunk_by(|a, b| a.look.ground == b.look.ground) {
        let columns: u16 = run.iter().map(|g| g.columns).sum();
        if let Some(ground) = run[0].look.ground {
            let (x, y) = place(run[0].column, y - area.y);
            let w = f64::from(columns) * COLUMN;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{LINE:.1}\" fill=\"{ground}\"/>"
            );
        }
    }
    for run in glyphs.chunk_by(|a, b| a.look == b.look && is_shape(a.symbol) == is_shape(b.symbol)) {
        if is_shape(run[0].symbol) {
            shapes(out, run, y - area.y);
        } else {
            // A font that is wider or narrower than ours must not move what comes after a gap or a rare glyph.
            for piece in run.chunk_by(|a, b| is_plain(a.symbol) && is_plain(b.symbol)) {
                words(out, piece, y - area.y);
            }
        }
    }
}

fn is_plain(symbol: &str) -> bool {
    symbol.chars().all(|c| c < '\u{250}')
}

/// Writes a run, word by word where more than one space lies between.
fn words(out: &mut String, run: &[Glyph<'_>], line: u16) {
    let mut rest = run;
    while let Some(start) = rest.iter().position(|g| g.symbol != " ") {
        rest = &rest[start..];
        let gap = rest.windows(2).position(|pair| pair.iter().all(|g| g.symbol == " "));
        let mut piece = &rest[..gap.unwrap_or(rest.len())];
        rest = &rest[piece.len()..];
        while let [before @ .., Glyph { symbol: " ", .. }] = piece {
            piece = before;
        }
        word(out, piece, line);
    }
}

fn word(out: &mut String, run: &[Glyph<'_>], line: u16) {
    let [first, ..] = run else { return };
    let (x, y) = place(first.column, line);
    let columns: u16 = run.iter().map(|g| g.columns).sum();
    let text: String = run.iter().map(|g| escaped(g.symbol)).collect();
    let look = first.look;
    let mut style = String::new();
    if look.bold {
        style.push_str(" font-weight=\"bold\"");
    }
    if look.dim {
        style.push_str(" opacity=\"0.65\"");
    }
    if look.underlined {
        style.push_str(" text-decoration=\"underline\"");
    }
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         fill=\"{}\"{style}>{text}</text>",
        y + 13.5,
        f64::from(columns) * COLUMN,
        look.ink
    );
}

/// Which halves of a cell a box-drawing character fills: left, right, up, down.
fn strokes(symbol: &str) -> Option<[bool; 4]> {
    let of = |s: &str| s.chars().map(|c| c == '1').collect::<Vec<_>>().try_into().ok();
    match symbol {
        "─" => of("1100"),
        "│" => of("0011"),
        "┌" | "╭" => of("0101"),
        "┐" | "╮" => of("1001"),
        "└" | "╰" => of("0110"),
        "┘" | "╯" => of("1010"),
        "├" => of("0111"),
        "┤" => of("1011"),
        "┬" => of("1101"),
        "┴" => of("1110"),
        "┼" => of("1111"),
        _ => None,
    }
}

/// The part of a cell that a block fills: left, top, width, height.
fn block(symbol: &str) -> Option<[f64; 4]> {
    let mut chars = symbol.chars();
    let c = chars.next().filter(|_| chars.next().is_none())? as u32;
    match c {
        0x2580 => Some([0.0, 0.0, 1.0, 0.5]),
        0x2581..=0x2588 => {
            let part = f64::from(c - 0x2580) / 8.0;
            Some([0.0, 1.0 - part, 1.0, part])
        }
        0x2589..=0x258f => Some([0.0, 0.0, f64::from(0x2590 - c) / 8.0, 1.0]),
        0x2590 => Some([0.5, 0.0, 0.5, 1.0]),
        _ => None,
    }
}

fn is_shape(symbol: &str) -> bool {
    strokes(symbol).is_some() || block(symbol).is_some()
}

fn shapes(out: &mut String, run: &[Glyph<'_>], line: u16) {
    let look = run[0].look;
    let opacity = if look.dim { " opacity=\"0.5\"" } else { "" };
    let mut path = String::new();
    let mut columns = 0;
    for (n, glyph) in run.iter().enumerate() {
        let (x, y) = place(glyph.column, line);
        if let Some([left, top, w, h]) = block(glyph.symbol) {
            let _ = writeln!(
                out,
                "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{}\"{opacity}/>",
                x + left * COLUMN,
                y + top * LINE,
                w * COLUMN,
                h * LINE,
                look.ink
            );
            continue;
        }
        let Some([left, right, up, down]) = strokes(glyph.symbol) else { continue };
        let (mx, my) = (x + COLUMN / 2.0, y + LINE / 2.0);
        if glyph.symbol == "─" {
            // A rule is one stroke, however long it is.
            columns += 1;
            if run.get(n + 1).is_none_or(|next| next.symbol != "─") {
                let from = x - f64::from(columns - 1) * COLUMN;
                let _ = write!(path, "M{from:.1} {my:.1}H{:.1}", x + COLUMN);
                columns = 0;
            }
            continue;
        }
        for (is, to) in [
            (left, format!("H{x:.1}")),
            (right, format!("H{:.1}", x + COLUMN)),
            (up, format!("V{y:.1}")),
            (down, format!("V{:.1}", y + LINE)),
        ] {
            if is {
                let _ = write!(path, "M{mx:.1} {my:.1}{to}");
            }
        }
    }
    if !path.is_empty() {
        let width = if look.bold { 1.8 } else { 1.1 };
        let _ = writeln!(out, "<path d=\"{path}\" stroke=\"{}\" stroke-width=\"{width}\"{opacity}/>", look.ink);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
