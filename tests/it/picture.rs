//! The picture in the README is a capture of `assay demo`: this makes it, and fails when it shows something else than the
//! program prints. To make it anew: `UPDATE_ASSETS=1 cargo test --test it picture`, with `ASSAY_BINARY` naming another build of
//! the program (an optimized one, for the times that it shows).

use assay::text::{fit, width};
use assay_support::rig::rig;
use std::{fmt::Write as _, fs, path::PathBuf};

const COLUMNS: usize = 100;
/// Advance of a character and of a line, in pixels at this font size.
const CHAR: f64 = 7.8;
const LINE: f64 = 18.0;
const FONT: u32 = 13;
const MARGIN: f64 = 18.0;

/// A piece of a line in one tone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    tone: &'static str,
    text: String,
}

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
fn spans(line: &str) -> Vec<Span> {
    let (mut all, mut left) = (Vec::new(), COLUMNS);
    for part in line.split("\u{1b}[") {
        let numbers = |code: &str| code.bytes().all(|b| b.is_ascii_digit() || b == b';');
        let (code, text) = part.split_once('m').filter(|(code, _)| numbers(code)).unwrap_or(("", part));
        let tone = match code {
            "1" => "strong",
            "2" => "dim",
            "32" => "good",
            "33" => "warn",
            "1;31" => "bad",
            _ => "plain",
        };
        let text = fit(text, left).into_owned();
        left -= width(&text);
        if !text.is_empty() {
            all.push(Span { tone, text });
        }
    }
    all
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn svg(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(spans).collect();
    let (w, h) = (COLUMNS as f64 * CHAR + 2.0 * MARGIN, lines.len() as f64 * LINE + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.0} {h:.0}\" role=\"img\">\n\
         <title>Terminal: assay demo records a session, verifies its pack and finds a changed byte</title>\n\
         <style>text {{ font: {FONT}px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre; }} \
         .plain {{ fill: #d6dae0; }} .strong {{ fill: #ffffff; font-weight: bold; }} .dim {{ fill: #8b949e; }} \
         .good {{ fill: #56d364; }} .warn {{ fill: #e3b341; }} .bad {{ fill: #ff7b72; font-weight: bold; }}</style>\n\
         <rect width=\"{w:.0}\" height=\"{h:.0}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (row, spans) in lines.iter().enumerate().filter(|(_, spans)| !spans.is_empty()) {
        let y = MARGIN + LINE * row as f64 + f64::from(FONT);
        let _ = write!(out, "<text xml:space=\"preserve\" y=\"{y:.0}\">");
        let mut column = 0;
        for span in spans {
            let x = MARGIN + CHAR * column as f64;
            let _ = write!(out, "<tspan x=\"{x:.1}\" class=\"{}\">{}</tspan>", span.tone, escape(&span.text));
            column += width(&span.text);
        }
        out.push_str("</text>\n");
    }
    out + "</svg>\n"
}

/// The words of a picture: digits, and hex digits among them, are another time's.
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
    let stable = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    let lines = svg.lines().filter(|l| l.starts_with("<text"));
    lines.map(|l| text(l).split_whitespace().filter(stable).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_picture_in_the_readme_is_what_the_program_prints() {
    let made = svg(&capture());
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
    let tones: Vec<_> = parts.iter().map(|s| (s.tone, s.text.as_str())).collect();
    assert_eq!(tones, [("plain", "a "), ("bad", "bad"), ("plain", " end")]);
    let long = "x".repeat(300);
    assert_eq!(width(&spans(&long)[0].text), COLUMNS);
    assert_eq!(escape("<a & b>"), "&lt;a &amp; b&gt;");
}
