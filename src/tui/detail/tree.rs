//! JSON as a tree that folds. What is shown is made from what is on the screen only, so that a large array costs no more than a
//! small one; the bytes on disk are authoritative (of a name that occurs twice in an object only the last value is
//! here).

mod fold;
mod lines;
mod path;

pub use fold::rows as text_rows;
pub use path::of_pointer;

use crate::{
    numbers::size,
    tui::{cursor::Cursor, keymap::Command, kit::ListPane, msg::Effect},
};
use fold::{Open, Path, can_open, children};
use ratatui::layout::Rect;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The largest content that is taken apart, in bytes.
pub const MAX_TREE: usize = 4 << 20;
/// Bytes from the beginning that are shown of anything else.
const HEAD: usize = 16 << 10;
/// A value of so few lines is unfolded from the start.
const SMALL: u64 = 60;
/// Columns of a path in a message.
const PATH_COLUMNS: usize = 48;

/// A JSON value, or bytes that are none, in a pane.
#[derive(Debug, Clone)]
pub struct Tree {
    name: String,
    body: Body,
    raw: Option<Arc<[u8]>>,
    cursor: Cursor,
    search: String,
}

#[derive(Debug, Clone)]
enum Body {
    Json {
        value: Value,
        open: Option<Open>,
        /// The width that texts are broken for.
        columns: u16,
    },
    Bytes {
        head: String,
        /// What is said of it, line by line.
        notes: Vec<String>,
    },
}

impl Tree {
    /// A tree of a value, the first level unfolded, all of it if it is small.
    #[must_use]
    pub fn new(name: &str, value: Value) -> Self {
        let open = if is_small(&value) { Open::all(&value) } else { Open::one(&value, 0) };
        let open = Some(open).filter(|_| children(&value) > 0);
        Self {
            name: name.to_owned(),
            body: Body::Json { value, open, columns: 0 },
            raw: None,
            cursor: Cursor::default(),
            search: String::new(),
        }
    }

    /// A tree of stored bytes. What is longer than [`MAX_TREE`] or not JSON is shown by its beginning, size and hash;
    /// that takes time for long ones, so a job should do it.
    #[must_use]
    pub fn of_bytes(name: &str, raw: Arc<[u8]>) -> Self {
        let why = if raw.len() > MAX_TREE {
            format!("more than {}, so not shown as a tree", size(MAX_TREE as u64))
        } else {
            match serde_json::from_slice(&raw) {
                Ok(value) => return Self { raw: Some(raw), ..Self::new(name, value) },
                Err(e) => format!("not JSON: {e}"),
            }
        };
        let notes = vec![
            format!("{}: {why}", size(raw.len() as u64)),
            format!("sha256:{}", hex::encode(Sha256::digest(&raw))),
            "ctrl-y copies the whole value, or writes it to a file".to_owned(),
            if raw.len() > HEAD { format!("the first {}:", size(HEAD as u64)) } else { "all of it:".to_owned() },
        ];
        let head = crate::text::visible_bytes(&raw[..raw.len().min(HEAD)]).replace('␊', "␊\n");
        Self {
            name: name.to_owned(),
            body: Body::Bytes { head, notes },
            raw: Some(raw),
            cursor: Cursor::default(),
            search: String::new(),
        }
    }

    /// The JSONPath (RFC 9535) of the selected place.
    #[must_use]
    pub fn selected_path(&self) -> String {
        match &self.body {
            Body::Json { value, .. } => path::json_path(value, &self.selected()),
            Body::Bytes { .. } => "$".to_owned(),
        }
    }

    /// The selected value.
    #[must_use]
    pub fn selected_value(&self) -> Option<&Value> {
        match &self.body {
            Body::Json { value, .. } => fold::at(value, &self.selected()),
            Body::Bytes { .. } => None,
        }
    }

    /// Looks for text in names and values from now on, and goes to the first place that has it, from the selected one on;
    /// whether there is any. Empty text ends the search.
    pub fn search(&mut self, text: &str, area: Rect) -> bool {
        self.search = text.to_lowercase();
        let here = self.selected();
        !self.search.is_empty() && self.find(true, Some(&here), area)
    }

    /// Does what was asked for in a pane of this size; `None` if it means nothing here. `n` and `N` mean something while there
    /// is text to look for; Left and Right until there is nothing more to fold on that side.
    pub fn command(&mut self, command: Command, area: Rect) -> Option<Vec<Effect>> {
        self.wrap(area.width);
        if self.pane(area).command(&mut self.cursor, command) {
            return Some(Vec::new());
        }
        match command {
            Command::Left => return self.left(area).then(Vec::new),
            Command::Right => return self.right(area).then(Vec::new),
            Command::Enter => return self.toggle(area).then(Vec::new),
            Command::FoldAll => self.fold_all(area),
            Command::Next | Command::Previous if !self.search.is_empty() => {
                if !self.find(command == Command::Next, None, area) {
                    return Some(vec![Effect::Say(format!("no match for “{}”", self.search))]);
                }
            }
            Command::CopyValue => return Some(self.copy_value()),
            Command::CopyPath => {
                let text = self.selected_path();
                return Some(vec![Effect::Copy { what: "JSON path".to_owned(), text }]);
            }
            Command::CopyRaw => return Some(self.copy_raw()),
            _ => return None,
        }
        Some(Vec::new())
    }

    /// A click on a line of the pane, counted from its top; a second one folds and unfolds.
    pub fn click(&mut self, line: u16, twice: bool, area: Rect) {
        self.wrap(area.width);
        if self.pane(area).click(&mut self.cursor, area.x, area.y.saturating_add(line)) && twice {
            self.toggle(area);
        }
    }

    /// The wheel over the pane, lines down.
    pub fn wheel(&mut self, lines: i64, area: Rect) {
        self.wrap(area.width);
        self.pane(area).step(&mut self.cursor, lines);
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.body {
            Body::Json { open, .. } => 1 + open.as_ref().map_or(0, Open::below),
            // Broken for another width there are others; what matters is that the end can be reached.
            Body::Bytes { head, notes } => 1 + notes.len() as u64 + fold::rows(head, BYTES_COLUMNS).len() as u64,
        }
    }

    /// Whether there is nothing; there never is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    fn pane(&self, area: Rect) -> ListPane {
        ListPane { len: self.len(), area }
    }

    fn selected(&self) -> Path {
        match &self.body {
            Body::Json { open: Some(open), .. } => {
                open.lines(self.cursor.at..self.cursor.at + 1).pop().map(|l| l.path).unwrap_or_default()
            }
            _ => Path::new(),
        }
    }

    fn go(&mut self, to: &Path, area: Rect) {
        if let Body::Json { open: Some(open), .. } = &self.body {
            let line = open.line_of(to);
            self.pane(area).to(&mut self.cursor, line);
        }
    }

    /// Breaks texts for another width; the selected place stays selected.
    fn wrap(&mut self, columns: u16) {
        let selected = self.selected();
        let Body::Json { value, open, columns: before } = &mut self.body else { return };
        if *before == columns {
            return;
        }
        *before = columns;
        if let Some(open) = open.as_mut().filter(|o| o.has_text()) {
            open.wrap(value, lines::text_columns(columns));
            self.cursor.at = open.line_of(&selected);
        }
    }

    /// Folds what is unfolded, goes to what it is in otherwise.
    fn left(&mut self, area: Rect) -> bool {
        let path = self.selected();
        let Body::Json { open: Some(open), .. } = &mut self.body else { return false };
        if path.is_empty() {
            return false;
        }
        if open.is_open(&path) {
            open.close(&path);
            self.go(&path, area);
        } else {
            self.go(&path[..path.len() - 1].to_vec(), area);
        }
        true
    }

    /// Unfolds, or goes to the first of what is unfolded.
    fn right(&mut self, area: Rect) -> bool {
        let path = self.selected();
        let Body::Json { open, value, .. } = &self.body else { return false };
        let opened = open.as_ref().is_some_and(|o| o.is_open(&path));
        let Some(here) = fold::at(value, &path).filter(|v| can_open(v)) else { return false };
        if !opened {
            return self.toggle(area);
        }
        if children(here) > 0 {
            self.pane(area).step(&mut self.cursor, 1);
            return true;
        }
        false
    }

    fn toggle(&mut self, area: Rect) -> bool {
        let path = self.selected();
        let Body::Json { value, open, columns } = &mut self.body else { return false };
        let columns = lines::text_columns(*columns);
        match open {
            Some(_) if path.is_empty() => *open = None,
            None if can_open(value) => *open = Some(Open::one(value, columns)),
            Some(open) if open.is_open(&path) => open.close(&path),
            Some(open) if fold::at(value, &path).is_some_and(can_open) => open.open(value, &path, columns),
            _ => return false,
        }
        self.go(&path, area);
        self.pane(area).step(&mut self.cursor, 0);
        true
    }

    /// Folds all but the first level, or unfolds everything if nothing but that is unfolded.
    fn fold_all(&mut self, area: Rect) {
        let path = self.selected();
        let Body::Json { value, open, .. } = &mut self.body else { return };
        if children(value) == 0 {
            return;
        }
        let deep = open.as_ref().is_some_and(Open::has_children);
        *open = Some(if deep { Open::one(value, 0) } else { Open::all(value) });
        self.go(&path, area);
    }

    /// Goes to the next place that has the text, round the end; from `at` on, or after the selected one.
    fn find(&mut self, forward: bool, at: Option<&Path>, area: Rect) -> bool {
        self.wrap(area.width);
        let here = self.selected();
        let Body::Json { value, open, columns } = &mut self.body else { return false };
        let mut hits = Hits { text: &self.search, first: None, before: None, behind: None, last: None };
        hits.look(value, None, &mut Path::new(), &here, at.is_some());
        let found = if forward { hits.behind.or(hits.first) } else { hits.before.or(hits.last) };
        let Some(found) = found else { return false };
        if let [inside @ .., _] = &found[..] {
            let open = open.get_or_insert_with(|| Open::one(value, lines::text_columns(*columns)));
            open.open(value, inside, lines::text_columns(*columns));
        }
        self.go(&found, area);
        true
    }

    fn copy_value(&self) -> Vec<Effect> {
        let Some(value) = self.selected_value() else { return self.copy_raw() };
        let text = match value {
            Value::String(text) => text.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        let path = self.selected_path();
        vec![Effect::Copy { what: format!("value of {}", crate::text::fit(&path, PATH_COLUMNS)), text }]
    }

    fn copy_raw(&self) -> Vec<Effect> {
        let text = match (&self.raw, &self.body) {
            (Some(raw), _) => String::from_utf8_lossy(raw).into_owned(),
            (None, Body::Json { value, .. }) => value.to_string(),
            (None, Body::Bytes { head, .. }) => head.clone(),
        };
        vec![Effect::Copy { what: format!("{}, as it is stored", self.name), text }]
    }
}

/// The width for which bytes that are not JSON are counted and broken.
const BYTES_COLUMNS: u16 = 64;

/// Places that have a text, around a place.
struct Hits<'a> {
    text: &'a str,
    first: Option<Path>,
    before: Option<Path>,
    behind: Option<Path>,
    last: Option<Path>,
}

impl Hits<'_> {
    fn look(&mut self, value: &Value, name: Option<&str>, path: &mut Path, here: &Path, with_here: bool) {
        let has = |text: &str| text.to_lowercase().contains(self.text);
        let hit = name.is_some_and(has)
            || match value {
                Value::String(text) => has(text),
                Value::Array(_) | Value::Object(_) => false,
                other => has(&other.to_string()),
            };
        if hit {
            self.first.get_or_insert_with(|| path.clone());
            self.last = Some(path.clone());
            if *path < *here {
                self.before = Some(path.clone());
            } else if *path > *here || with_here {
                self.behind.get_or_insert_with(|| path.clone());
            }
        }
        let mut inside = |this: &mut Self, i: usize, name: Option<&str>, v: &Value| {
            path.push(i);
            this.look(v, name, path, here, with_here);
            path.pop();
        };
        match value {
            Value::Array(a) => a.iter().enumerate().for_each(|(i, v)| inside(self, i, None, v)),
            Value::Object(o) => o.iter().enumerate().for_each(|(i, (k, v))| inside(self, i, Some(k), v)),
            _ => {}
        }
    }
}

/// Whether a value has few lines; stops looking when it has too many.
fn is_small(value: &Value) -> bool {
    fn count(value: &Value, left: &mut u64) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match value {
            Value::Array(a) => a.iter().all(|v| count(v, left)),
            Value::Object(o) => o.values().all(|v| count(v, left)),
            _ => true,
        }
    }
    count(value, &mut SMALL.clone())
}

#[cfg(test)]
mod tests;
