//! Tables of the command line: names on the left, what is counted or measured under its title.

use super::out::{Style, Tone, short};
use crate::{
    numbers::{NONE, grouped},
    text::{fit, width},
};
use std::fmt::Write as _;

/// Columns of a name.
const NAME: usize = 28;

/// Titles of the columns behind the name, each with its width.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a>(pub &'a [(&'static str, usize)]);

impl Table<'_> {
    /// The line of titles, after an empty one.
    pub fn head(self, out: &mut String, name: &str, style: Style) {
        let mut head = format!("{name:<NAME$}");
        for (title, columns) in self.0 {
            let _ = write!(head, "{title:>columns$}");
        }
        let _ = writeln!(out, "\n{}", style.paint(Tone::Strong, &head));
    }

    /// A row: a name from outside, which may be empty, and its cells.
    pub fn row(self, out: &mut String, name: &str, cells: &[String]) {
        let name = if name.is_empty() { NONE.to_owned() } else { short(name) };
        let name = fit(&name, NAME - 1);
        let _ = write!(out, "{name}{}", " ".repeat(NAME - width(&name).min(NAME)));
        for ((_, columns), cell) in self.0.iter().zip(cells) {
            let _ = write!(out, "{cell:>columns$}");
        }
        out.push('\n');
    }
}

/// Says of a list that is cut how much it leaves out.
pub fn and_more(out: &mut String, all: usize, shown: usize) {
    if all > shown {
        let _ = writeln!(out, "and {} more", grouped((all - shown) as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_keep_to_their_columns() {
        let table = Table(&[("calls", 9), ("p50", 11)]);
        let mut out = String::new();
        table.head(&mut out, "Tool", Style::plain());
        let cells = ["1 200".to_owned(), "500 µs".to_owned()];
        for name in ["read", "", "日本語の道具日本語の道具日本語", "a\u{1b}[2Jb"] {
            table.row(&mut out, name, &cells);
        }
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[1], format!("Tool{}    calls        p50", " ".repeat(24)));
        assert_eq!(lines[2], format!("read{}    1 200     500 µs", " ".repeat(24)));
        assert!(lines[3].starts_with("– ") && lines[5].starts_with("a␛[2Jb "), "{out}");
        assert!(lines[1..].iter().all(|line| width(line) == NAME + 20), "{out}");
        let mut more = String::new();
        and_more(&mut more, 20, 20);
        and_more(&mut more, 1220, 20);
        assert_eq!(more, "and 1 200 more\n");
    }
}
