//! Printing: to pipes that may be closed, in colours where they are wanted, and never a control character from outside.

pub use crate::print::{stderr, stdout};

use crate::{
    error::{Exit, Failure},
    text::{fit, visible},
};
use serde::Serialize;
use std::{
    borrow::Cow,
    io::{self, IsTerminal as _},
    path::Path,
};

/// Says it on stderr if the ledger of an audit directory lacks what this user's recorder wrote there.
pub fn warn_of_rollback(dir: &std::path::Path) {
    let dir = crate::paths::AuditDir::reach(dir).map(crate::paths::AuditDir::of_user);
    if let Some(said) = dir.ok().and_then(|dir| crate::record::rollback::look(&dir)) {
        stderr(&format!("assay: warning: {}", visible(&said.to_string())));
    }
}

/// One JSON document on stdout.
///
/// # Errors
/// As [`stdout`].
pub fn json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    text.push('\n');
    // What a terminal would obey is escaped; JSON readers see no difference.
    stdout(ascii_controls(&text).as_bytes())
}

/// JSON text with C1 controls, bidi marks and other hidden characters as `\uXXXX`; they can only be inside strings.
pub(super) fn ascii_controls(text: &str) -> Cow<'_, str> {
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

/// A failure where one JSON document was asked for.
///
/// # Errors
/// As [`stdout`].
pub fn json_failure(failure: &Failure) -> Result<(), Failure> {
    json(&serde_json::json!({
        "status": "error",
        "error": failure.what,
        "hint": failure.hint,
        "exit_code": failure.exit.code(),
    }))
}

/// Runs a command that can answer in JSON: then its failure is a document too, beside the words on stderr.
///
/// # Errors
/// Those of the command.
pub fn answering(as_json: bool, command: impl FnOnce() -> Result<Exit, Failure>) -> Result<Exit, Failure> {
    let result = command();
    if let (true, Err(failure)) = (as_json, &result) {
        json_failure(failure)?;
    }
    result
}

/// Writes a whole new file; nothing is ever replaced.
///
/// # Errors
/// One that exists, or what the system says.
pub fn new_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    crate::paths::write_new(path, bytes).map_err(|e| {
        let failure = Failure::bad_input(format_args!("{}: {e}", path.display()));
        match e.kind() {
            io::ErrorKind::AlreadyExists => failure.hint("nothing is overwritten; name a new file"),
            _ => failure,
        }
    })
}

/// Several lines, each made visible.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
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
    /// Worth a look.
    Warn,
    /// Not as it should be.
    Bad,
    /// Beside the point.
    Dim,
    /// A heading.
    Strong,
}

/// Whether to colour.
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

    /// Without colours.
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
