//! What is copied: values, places, whole lines of evidence.

use super::{PackScreen, State, book::Book, read::Source, row::Kind};
use crate::{
    lines,
    tui::{
        keymap::Command,
        msg::{Effect, Job, Target, Ticket},
        screen::At,
    },
};
use std::path::PathBuf;

/// The longest line of evidence that is copied, in bytes.
const MAX_COPY: usize = 8 << 20;

impl PackScreen {
    pub(super) fn copy(&mut self, command: Command, at: At) -> Option<Vec<Effect>> {
        let copy = |what: &str, text: String| Some(vec![Effect::Copy { what: what.to_owned(), text }]);
        if let Some(bytes) = &self.bytes {
            return match command {
                Command::CopyValue => copy("what was found", bytes.value()),
                Command::CopyPath => copy("place", bytes.where_it_is()),
                _ => {
                    let place = bytes.place.clone();
                    let dir = bytes_dir(self.target.as_ref(), self.book());
                    Some(self.raw(Source { dir, name: place.file, kind: Kind::Receipts }, place.offset.unwrap_or(0)))
                }
            };
        }
        if self.tab.is_text() {
            let row = self.list(at).into_iter().nth(self.cursor.at as usize)?;
            let finding = match (&self.state, row.finding) {
                (State::Verified(r), Some(i)) => r.errors.get(i).cloned(),
                _ => None,
            };
            return match (command, finding) {
                (Command::CopyValue, _) if !row.value.is_empty() => copy("line", row.value),
                (Command::CopyPath, Some(f)) => {
                    let file = f.file.unwrap_or_default();
                    copy("place", f.line.map_or(file.clone(), |line| format!("{file}:{line}")))
                }
                (Command::CopyPath, None) => copy("path", self.path()),
                (Command::CopyRaw, Some(f)) => {
                    let (dir, name) = (PathBuf::from(self.path()), f.file.unwrap_or_default());
                    Some(self.raw(Source { dir, name, kind: Kind::Receipts }, f.offset.unwrap_or(0)))
                }
                _ => Some(vec![Effect::Warn("nothing to copy here".to_owned())]),
            };
        }
        let book = self.book()?;
        let line = book.selected()?;
        match command {
            Command::CopyValue => {
                let (what, text) = line.row.value();
                copy(what, text)
            }
            Command::CopyPath => {
                copy("place", format!("{}:{}", book.source().path().to_string_lossy(), line.number + 1))
            }
            _ => {
                let (source, offset) = (book.source().clone(), line.offset);
                Some(self.raw(source, offset))
            }
        }
    }

    /// Reads a line to be copied.
    pub(super) fn raw(&mut self, source: Source, offset: u64) -> Vec<Effect> {
        let ticket = Ticket::new();
        self.copying = Some(ticket.clone());
        vec![Effect::Start(Job::new(&ticket, "copy a line", move |teller| teller.tell(raw_line(&source, offset))))]
    }

    pub(super) fn path(&self) -> String {
        match &self.target {
            Some(Target::Pack(dir)) => dir.to_string_lossy().into_owned(),
            Some(Target::Journal { segment, .. }) => segment.to_string_lossy().into_owned(),
            None => String::new(),
        }
    }
}

fn bytes_dir(target: Option<&Target>, book: Option<&Book>) -> PathBuf {
    match (target, book) {
        (_, Some(book)) => book.source().dir.clone(),
        (Some(Target::Pack(dir)), None) => dir.clone(),
        _ => PathBuf::new(),
    }
}

fn raw_line(source: &Source, offset: u64) -> Result<String, String> {
    let (file, _) = source.open()?;
    let (text, whole) = lines::at(&file, offset, MAX_COPY).map_err(|e| e.to_string())?;
    if !whole {
        return Err("the line is too long to copy".to_owned());
    }
    String::from_utf8(text).map_err(|_| "the line is not UTF-8".to_owned())
}
