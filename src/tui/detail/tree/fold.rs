//! Which parts of a value are unfolded, and with it which line of the screen is which place in it. Only what is unfolded costs
//! anything: a closed array of a million elements is one line.

use crate::{text::width, tui::paint::clean};
use serde_json::Value;
use std::{collections::BTreeMap, ops::Range};
use unicode_segmentation::UnicodeSegmentation as _;

/// A place in a value: which child of which child. Sorted as the value is read.
pub type Path = Vec<usize>;

/// An unfolded place.
#[derive(Debug, Clone, Default)]
pub struct Open {
    /// Its unfolded children.
    children: BTreeMap<usize, Self>,
    /// Lines below its own.
    below: u64,
    /// The rows of a text, as bytes of it.
    rows: Vec<Range<usize>>,
}

/// A line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeLine {
    /// What it belongs to.
    pub path: Path,
    /// The bytes of the text on this row, for a row of an unfolded text.
    pub row: Option<Range<usize>>,
    /// Whether it is unfolded.
    pub open: bool,
}

/// How many children a value has.
pub fn children(value: &Value) -> usize {
    match value {
        Value::Array(a) => a.len(),
        Value::Object(o) => o.len(),
        _ => 0,
    }
}

/// A child, by its index.
pub fn child(value: &Value, at: usize) -> Option<&Value> {
    match value {
        Value::Array(a) => a.get(at),
        Value::Object(o) => o.values().nth(at),
        _ => None,
    }
}

/// What is at a place in the tree.
pub fn at<'a>(value: &'a Value, path: &[usize]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, i| child(v, *i))
}

/// Whether there is something to unfold: children, or a text that may not fit on a line.
pub fn can_open(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() > 24 || text.contains('\n'),
        _ => children(value) > 0,
    }
}

impl Open {
    /// A value that is unfolded itself, and nothing in it.
    pub fn one(value: &Value, columns: u16) -> Self {
        match value {
            Value::String(text) => {
                let rows = rows(text, columns);
                Self { below: rows.len() as u64, rows, ..Self::default() }
            }
            _ => Self { below: children(value) as u64, ..Self::default() },
        }
    }

    /// A value that is unfolded as deep as it goes; texts stay on their lines.
    pub fn all(value: &Value) -> Self {
        let mut open = Self::one(value, 0);
        let mut visit = |i: usize, v: &Value| {
            if children(v) > 0 {
                let inner = Self::all(v);
                open.below += inner.below;
                open.children.insert(i, inner);
            }
        };
        match value {
            Value::Array(a) => a.iter().enumerate().for_each(|(i, v)| visit(i, v)),
            Value::Object(o) => o.values().enumerate().for_each(|(i, v)| visit(i, v)),
            _ => {}
        }
        open
    }

    /// Lines below the first.
    pub const fn below(&self) -> u64 {
        self.below
    }

    /// Whether anything in it is unfolded.
    pub fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// Whether a place is unfolded.
    pub fn is_open(&self, path: &[usize]) -> bool {
        path.iter().try_fold(self, |o, i| o.children.get(i)).is_some()
    }

    /// Unfolds a place in `value`, and all that it is in.
    pub fn open(&mut self, value: &Value, path: &[usize], columns: u16) {
        let [first, rest @ ..] = path else { return };
        let Some(v) = child(value, *first).filter(|v| can_open(v)) else { return };
        let before = self.children.get(first).map_or(0, |o| o.below);
        let inner = self.children.entry(*first).or_insert_with(|| Self::one(v, columns));
        inner.open(v, rest, columns);
        self.below = self.below + inner.below - before;
    }

    /// Folds a place.
    pub fn close(&mut self, path: &[usize]) {
        let [first, rest @ ..] = path else { return };
        let Some(inner) = self.children.get_mut(first) else { return };
        let before = inner.below;
        if rest.is_empty() {
            self.below -= before;
            self.children.remove(first);
        } else {
            inner.close(rest);
            self.below = self.below + inner.below - before;
        }
    }

    /// Breaks texts anew for another width; whether there is any.
    pub fn wrap(&mut self, value: &Value, columns: u16) {
        if let Value::String(_) = value {
            *self = Self::one(value, columns);
            return;
        }
        let mut below = children(value) as u64;
        for (i, inner) in &mut self.children {
            if inner.has_text()
                && let Some(v) = child(value, *i)
            {
                inner.wrap(v, columns);
            }
            below += inner.below;
        }
        self.below = below;
    }

    /// Whether a text is unfolded.
    pub fn has_text(&self) -> bool {
        !self.rows.is_empty() || self.children.values().any(Self::has_text)
    }

    /// The line of a place, counted from the line of this one; that of what it is folded into, if it is.
    pub fn line_of(&self, path: &[usize]) -> u64 {
        let mut line = 0;
        let mut open = self;
        for i in path {
            line += 1 + *i as u64 + open.children.range(..i).map(|(_, o)| o.below).sum::<u64>();
            match open.children.get(i) {
                Some(inner) => open = inner,
                None => break,
            }
        }
        line
    }

    /// These lines, counted from the line of this one.
    pub fn lines(&self, lines: Range<u64>) -> Vec<TreeLine> {
        let mut walk = Walk { skip: lines.start, left: lines.end.saturating_sub(lines.start), out: Vec::new() };
        let mut path = Path::new();
        walk.own(&path, true);
        walk.inside(self, &mut path);
        walk.out
    }
}

struct Walk {
    skip: u64,
    left: u64,
    out: Vec<TreeLine>,
}

impl Walk {
    fn own(&mut self, path: &Path, open: bool) {
        self.line(path, None, open);
    }

    fn line(&mut self, path: &Path, row: Option<Range<usize>>, open: bool) {
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.left > 0 {
            self.left -= 1;
            self.out.push(TreeLine { path: path.clone(), row, open });
        }
    }

    fn inside(&mut self, open: &Open, path: &mut Path) {
        if self.left == 0 || self.skip >= open.below {
            self.skip = self.skip.saturating_sub(open.below);
            return;
        }
        let skipped = self.skip.min(open.rows.len() as u64);
        self.skip -= skipped;
        for row in open.rows.iter().skip(skipped as usize).take(self.left as usize) {
            self.line(path, Some(row.clone()), false);
        }
        if !open.rows.is_empty() {
            return;
        }
        let inner: u64 = open.children.values().map(|o| o.below).sum();
        let len = (open.below - inner) as usize;
        let mut next = 0;
        for (i, below) in &open.children {
            self.plain(next..*i, path);
            path.push(*i);
            self.own(path, true);
            self.inside(below, path);
            path.pop();
            next = i + 1;
            if self.left == 0 {
                return;
            }
        }
        self.plain(next..len, path);
    }

    /// Children that are all folded.
    fn plain(&mut self, children: Range<usize>, path: &mut Path) {
        let skipped = self.skip.min(children.len() as u64);
        self.skip -= skipped;
        for i in children.skip(skipped as usize).take(self.left as usize) {
            path.push(i);
            self.line(path, None, false);
            path.pop();
        }
    }
}

/// A text in rows of at most so many columns, as it is shown; its own line breaks are kept.
pub fn rows(text: &str, columns: u16) -> Vec<Range<usize>> {
    let columns = columns.max(8) as usize;
    let mut out = Vec::new();
    let mut start = 0;
    for line in text.split('\n') {
        let end = start + line.len();
        if line.bytes().all(|b| matches!(b, b' '..=b'~')) {
            let mut from = start;
            while end - from > columns {
                out.push(from..from + columns);
                from += columns;
            }
            out.push(from..end);
        } else {
            graphemes(line, start, columns, &mut out);
        }
        start = end + 1;
    }
    out
}

fn graphemes(line: &str, start: usize, columns: usize, out: &mut Vec<Range<usize>>) {
    let (mut from, mut used) = (start, 0);
    for (i, g) in line.grapheme_indices(true) {
        let w = width(&clean(g));
        if used > 0 && used + w > columns {
            out.push(from..start + i);
            (from, used) = (start + i, 0);
        }
        used += w;
    }
    out.push(from..start + line.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// All lines, the slow and simple way.
    fn slow(value: &Value, open: Option<&Open>, path: &mut Path, out: &mut Vec<TreeLine>) {
        out.push(TreeLine { path: path.clone(), row: None, open: open.is_some() });
        let Some(open) = open else { return };
        for row in &open.rows {
            out.push(TreeLine { path: path.clone(), row: Some(row.clone()), open: false });
        }
        for i in 0..children(value) {
            path.push(i);
            slow(child(value, i).unwrap(), open.children.get(&i), path, out);
            path.pop();
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(1)), Just(json!("a\nb")), "[a-z \u{202e}漢]{0,60}".prop_map(Value::from)];
        leaf.prop_recursive(4, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::btree_map("[a-c]{1,2}", inner, 0..5).prop_map(|m| m.into_iter().collect())
            ]
        })
    }

    proptest! {
        #[test]
        fn lines_are_those_of_the_simple_walk(
            value in values(),
            steps in prop::collection::vec((any::<bool>(), prop::collection::vec(0usize..6, 1..4)), 0..12),
            columns in 1u16..40, window in (0u64..30, 0u64..30),
        ) {
            let mut open = if columns % 2 == 0 { Open::all(&value) } else { Open::one(&value, columns) };
            for (opens, path) in &steps {
                if *opens { open.open(&value, path, columns) } else { open.close(path) }
            }
            open.wrap(&value, columns + 3);
            let mut all = Vec::new();
            slow(&value, Some(&open), &mut Path::new(), &mut all);
            prop_assert_eq!(open.below() + 1, all.len() as u64);
            let (from, len) = window;
            let wanted: Vec<_> = all.iter().skip(from as usize).take(len as usize).cloned().collect();
            prop_assert_eq!(open.lines(from..from + len), wanted);
            for (n, line) in all.iter().enumerate().filter(|(_, l)| l.row.is_none()) {
                prop_assert_eq!(open.line_of(&line.path), n as u64);
            }
        }

        #[test]
        fn rows_hold_the_whole_text(text in "(\\PC|\n|\u{1b}|\u{202e}){0,200}", columns in 0u16..50) {
            let rows = rows(&text, columns);
            let back: Vec<&str> = text.split('\n').collect();
            let mut joined = vec![String::new()];
            let mut end = 0;
            for row in &rows {
                if row.start > end { joined.push(String::new()); }
                joined.last_mut().unwrap().push_str(&text[row.clone()]);
                end = row.end;
            }
            // An empty line is an empty row between two line breaks.
            prop_assert_eq!(joined.concat(), back.concat());
            prop_assert!(rows.len() >= back.len());
        }
    }
}
