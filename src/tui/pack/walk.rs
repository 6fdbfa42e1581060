//! From a finding or a line to its bytes, and from one problem to the next.

use super::{
    PackScreen, State, Tab,
    book::Book,
    bytes::{Bytes, Place},
    row::EvidenceRow as Said,
};
use crate::tui::{
    kit::next,
    msg::{Effect, Target},
    screen::At,
};

impl PackScreen {
    /// Opens what is selected.
    pub(super) fn enter(&mut self, at: At) -> Vec<Effect> {
        match self.tab {
            Tab::Verification => {
                let rows = self.list(at);
                match rows.get(self.cursor.at as usize).and_then(|r| r.finding) {
                    Some(i) => self.show_finding(i),
                    None => Vec::new(),
                }
            }
            Tab::Receipts => match self.receipts.as_ref().and_then(Book::selected).map(|l| &l.row) {
                Some(Said::Call(_)) => {
                    self.inside = true;
                    self.follow(at)
                }
                Some(_) => self.show_line(),
                None => Vec::new(),
            },
            Tab::Chain | Tab::Messages => self.show_line(),
            Tab::Timeline | Tab::Surface => Vec::new(),
        }
    }

    pub(super) fn show_finding(&mut self, i: usize) -> Vec<Effect> {
        let (State::Verified(report), Some(Target::Pack(dir))) = (&self.state, &self.target) else {
            return Vec::new();
        };
        let Some(finding) = report.errors.get(i) else { return Vec::new() };
        let (bytes, effects) = Bytes::new(dir.clone(), Place::from(finding));
        self.bytes = Some(bytes);
        self.finding = Some(i);
        effects
    }

    /// The bytes of the selected line.
    pub(super) fn show_line(&mut self) -> Vec<Effect> {
        let Some(book) = self.book() else { return Vec::new() };
        let Some(line) = book.selected() else { return Vec::new() };
        let mut place = Place {
            file: book.source().name.clone(),
            line: Some(line.number + 1),
            offset: Some(line.offset),
            ..Place::default()
        };
        match &line.row {
            Said::Event(e) => {
                if let Some(hash) = &e.hashes_to {
                    "the event does not match its hash".clone_into(&mut place.message);
                    (place.expected, place.found) = (Some(e.hash.clone()), Some(hash.clone()));
                } else if let Some(before) = &e.before {
                    "prev_hash is not the hash of the previous event".clone_into(&mut place.message);
                    (place.expected, place.found) = (Some(before.clone()), Some(e.prev_hash.clone()));
                }
            }
            Said::Bad { why, .. } => place.message.clone_from(why),
            _ => {}
        }
        let (bytes, effects) = Bytes::new(book.source().dir.clone(), place);
        self.bytes = Some(bytes);
        self.finding = None;
        effects
    }

    /// The next finding, or the next line that is worth a look.
    pub(super) fn next(&mut self, forward: bool, at: At) -> Vec<Effect> {
        let nothing = |what: &str| vec![Effect::Say(format!("no other {what} in this direction"))];
        if self.bytes.is_some() && self.tab == Tab::Verification {
            let State::Verified(report) = &self.state else { return Vec::new() };
            let here = self.finding.unwrap_or(0);
            let next = if forward { here.checked_add(1) } else { here.checked_sub(1) };
            return match next.filter(|n| *n < report.errors.len()) {
                Some(n) => self.show_finding(n),
                None => nothing("finding"),
            };
        }
        let height = self.panes(at).list.height;
        if self.tab.is_text() {
            let rows = self.list(at);
            return match next(self.cursor.at, rows.len(), forward, false, |n| rows[n].first) {
                Some(line) => {
                    self.verdicts(at).to(&mut self.cursor, line);
                    Vec::new()
                }
                None => nothing(if self.tab == Tab::Surface { "item that is not approved" } else { "finding" }),
            };
        }
        self.bytes = None;
        match self.book_mut().and_then(|b| b.problem(forward, height)) {
            Some(mut effects) => {
                effects.extend(self.follow(at));
                effects
            }
            None => match self.book().and_then(Book::percent) {
                Some(percent) => vec![Effect::Say(format!("no other problem in the {percent} % that were read"))],
                None => nothing("problem"),
            },
        }
    }
}
