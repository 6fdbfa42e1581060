//! How things are said on a terminal or a pipe: in colours where they are wanted, and never with a control character from
//! outside.

use crate::{
    numbers::percent,
    options::Progress,
    text::{fit, visible},
};
use serde::Serialize;
use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
    ops::ControlFlow,
    panic::PanicHookInfo,
};

/// One JSON document, for people and programs: indented, with a line feed after it.
///
/// # Errors
/// As `serde_json`.
pub fn json<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    // What a terminal would obey is escaped; JSON readers see no difference.
    Ok(ascii_controls(&text).into_owned())
}

/// The document that is printed when no verdict could be given.
///
/// # Errors
/// As `serde_json`.
pub fn json_failure(what: &str, hint: Option<&str>, exit_code: u8) -> Result<String, serde_json::Error> {
    json(&serde_json::json!({"status": "error", "error": what, "hint": hint, "exit_code": exit_code}))
}

/// JSON text with C1 controls, bidi marks and other hidden characters as `\uXXXX`; they can only be inside strings.
#[must_use]
pub fn ascii_controls(text: &str) -> Cow<'_, str> {
    let hidden =
        |c: char| !c.is_ascii() && matches!(visible(c.encode_utf8(&mut [0; 4])), Cow::Owned(_)) || c == '\u{7f}';
    if !text.chars().any(hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 32);
    for c in text.chars() {
        if hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                use std::fmt::Write as _;
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Text from outside on one line of bounded length.
#[must_use]
pub fn short(text: &str) -> String {
    fit(&visible(&text.chars().take(2000).collect::<String>()), 400).into_owned()
}

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Something that deserves a look.
    Warn,
    /// Not as it should be.
    Bad,
    /// Text of less importance.
    Dim,
    /// Text of headings.
    Strong,
}

/// Whether to print with colours.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// For stdout: `NO_COLOR` wins, then `CLICOLOR_FORCE`, then whether it is a terminal that is not dumb.
    #[must_use]
    pub fn of_stdout() -> Self {
        Self::from(|name| std::env::var(name).ok(), io::stdout().is_terminal())
    }

    fn from(env: impl Fn(&str) -> Option<String>, terminal: bool) -> Self {
        let set = |name: &str| env(name).is_some_and(|v| !v.is_empty());
        let forced = set("CLICOLOR_FORCE") && env("CLICOLOR_FORCE").as_deref() != Some("0");
        let dumb = env("TERM").as_deref() == Some("dumb");
        let declined = env("CLICOLOR").as_deref() == Some("0");
        Self { colour: !set("NO_COLOR") && (forced || terminal && !dumb && !declined) }
    }

    /// A style without colours.
    #[must_use]
    pub const fn plain() -> Self {
        Self { colour: false }
    }

    /// `text` in a tone.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
            Tone::Dim => "2",
            Tone::Strong => "1",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Progress on stderr, where a person watches.
#[derive(Debug, Default)]
pub struct ProgressLine {
    terminal: bool,
    shown: Option<u64>,
}

impl ProgressLine {
    /// One that has shown nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: None }
    }

    /// Shows how far it is, and lets the verification continue.
    pub fn show(&mut self, p: Progress) -> ControlFlow<()> {
        let percent = percent(p.done_bytes, p.total_bytes);
        if self.terminal && self.shown != Some(percent) {
            self.shown = Some(percent);
            let _ = write!(io::stderr().lock(), "\rverifying {percent:>3} % {:<24}", p.stage.as_str());
        }
        ControlFlow::Continue(())
    }

    /// Erases the progress line.
    pub fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr().lock(), "\r{:<48}\r", "");
        }
    }
}

/// A defect of ours, with its place, on one line.
#[must_use]
pub fn defect(panic: &PanicHookInfo<'_>) -> String {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let payload = panic.payload();
    let what = payload.downcast_ref::<&str>().copied();
    let what = what.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    format!("internal error at {}: {}", visible(&place), visible(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_conventions() {
        let with = |pairs: &'static [(&str, &str)], tty| {
            Style::from(|n| pairs.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_owned()), tty).colour
        };
        assert!(with(&[], true) && !with(&[], false));
        assert!(with(&[("CLICOLOR_FORCE", "1")], false));
        assert!(!with(&[("CLICOLOR_FORCE", "0")], false));
        assert!(!with(&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], true));
        assert!(with(&[("NO_COLOR", "")], true));
        assert!(!with(&[("TERM", "dumb")], true));
        assert!(!with(&[("CLICOLOR", "0")], true));
    }

    #[test]
    fn json_for_a_terminal_holds_nothing_that_it_would_obey() {
        let value = serde_json::json!({"n": "\u{1b}[31m\u{9b}2J\u{202e}é\u{7f}\u{e0041}"});
        let text = serde_json::to_string(&value).unwrap_or_default();
        let shown = ascii_controls(&text);
        assert_eq!(shown, "{\"n\":\"\\u001b[31m\\u009b2J\\u202eé\\u007f\\udb40\\udc41\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
