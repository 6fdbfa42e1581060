//! The picture in the README is a capture of `assay demo`: this makes it, and fails when it shows something else than the
//! program prints. To make it anew: `UPDATE_ASSETS=1 cargo test --test it picture`, with `ASSAY_BINARY` naming another build of
//! the program (an optimized one, for the times that it shows).

use assay::text::{fit, width};
use assay_support::{
    rig::rig,
    svg::{Background, svg},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use std::{fs, path::PathBuf};

const COLUMNS: usize = 100;
fn picture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("assets/demo.svg")
}

/// What a newcomer sees, in colours, from the command to the changed byte; the home directory as `~`.
fn capture() -> String {
    let rig = rig!();
    let mut command = rig.command(std::env::var_os("ASSAY_BINARY").unwrap_or_else(|| rig.assay.into()));
    let out = command.arg("demo").env("CLICOLOR_FORCE", "1").env_remove("NO_COLOR").env_remove("ASSAY_HOME").output();
    let out = out.unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}");
    let end = text.find("What to do next").unwrap();
    let end = text[..end].trim_end_matches("\u{1b}[1m").trim_end().len();
    format!("\u{1b}[2m$\u{1b}[0m assay demo\n{}", text[..end].replace(rig.root.to_str().unwrap(), "~"))
}

/// Splits a line at its colour changes, and cuts what a terminal of [`COLUMNS`] would wrap.
fn spans(line: &str) -> Vec<Span<'static>> {
    let (mut all, mut left) = (Vec::new(), COLUMNS);
    for part in line.split("\u{1b}[") {
        let numbers = |code: &str| code.bytes().all(|b| b.is_ascii_digit() || b == b';');
        let (code, text) = part.split_once('m').filter(|(code, _)| numbers(code)).unwrap_or(("", part));
        let style = match code {
            "1" => Style::new().bold(),
            "2" => Style::new().dim(),
            "32" => Style::new().green(),
            "33" => Style::new().yellow(),
            "1;31" => Style::new().red().bold(),
            _ => Style::new(),
        };
        let text = fit(text, left).into_owned();
        left -= width(&text);
        if !text.is_empty() {
            all.push(Span::styled(text, style));
        }
    }
    all
}

fn drawn(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(spans).collect();
    let mut buffer = Buffer::empty(Rect::new(0, 0, COLUMNS as u16, lines.len() as u16));
    for (y, spans) in (0..).zip(lines) {
        buffer.set_line(0, y, &Line::from(spans), COLUMNS as u16);
    }
    svg(&buffer, None, Background::Dark, "assay demo")
}

/// The words of a picture: digits, and hex digits among them, are another time's, and so is the unit behind them.
fn words(svg: &str) -> Vec<String> {
    let text = |line: &str| -> String {
        let mut out = String::new();
        let mut inside = false;
        for c in line.chars() {
            match c {
                '<' => inside = true,
                '>' => inside = false,
                c if !inside => out.push(c),
                _ => {}
            }
        }
        out
    };
    let stable = |word: &&str| !word.contains(|c: char| c.is_ascii_digit()) && !["µs", "ms", "s"].contains(word);
    let place = |line: &str| line.split(" y=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
    let pieces: Vec<_> = svg.lines().filter(|l| l.starts_with("<text")).collect();
    let lines = pieces.chunk_by(|a, b| place(a) == place(b)).map(|of_line| of_line.iter().map(|l| text(l) + " "));
    lines.map(|l| l.collect::<String>().split_whitespace().filter(stable).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_picture_in_the_readme_is_what_the_program_prints() {
    let made = drawn(&capture());
    if std::env::var_os("UPDATE_ASSETS").is_some() {
        fs::create_dir_all(picture().parent().unwrap()).unwrap();
        fs::write(picture(), &made).unwrap();
    }
    let kept = fs::read_to_string(picture()).unwrap();
    assert_eq!(words(&kept), words(&made), "make it anew: UPDATE_ASSETS=1 cargo test --test it picture");
}

#[test]
fn colours_become_spans_and_long_lines_are_cut() {
    let parts = spans("a \u{1b}[1;31mbad\u{1b}[0m end");
    let red = Style::new().red().bold();
    assert_eq!(parts, [Span::raw("a "), Span::styled("bad", red), Span::raw(" end")]);
    let long = "x".repeat(300);
    assert_eq!(width(&spans(&long)[0].content), COLUMNS);
    assert!(drawn("<a & b>").contains(">&lt;a &amp; b&gt;<"));
}
