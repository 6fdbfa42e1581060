//! The recorder's end, also of a log that a killed process left behind.

use super::codec::{self, Unread};
use super::writer::{Pulse, Shared};
use super::{Entry, Flow};
use crate::relay::{Consumer, Direction};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The recorder's end: take the entries out with [`next`](Self::next), put what is needed into files, then
/// [`release`](Self::release).
#[derive(Debug)]
pub struct LogReader {
    consumer: Consumer,
    /// The other end, if it is in this process.
    writer: Option<Arc<Shared>>,
    next: u64,
    unreadable: u64,
}

/// An entry, and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<'a> {
    /// Offset in the log.
    pub at: u64,
    /// Offset in the log after it.
    pub end: u64,
    /// When it was put in, monotonic ns.
    pub ns: u64,
    /// The body that it is about.
    pub flow: Flow,
    /// The entry.
    pub entry: Entry<'a>,
}

impl LogReader {
    pub(super) fn new(consumer: Consumer, writer: Option<Arc<Shared>>) -> Self {
        let next = consumer.tail();
        Self { consumer, writer, next, unreadable: 0 }
    }

    /// Opens the log that a process left behind, and locks it for this process.
    ///
    /// # Errors
    /// As [`Consumer::open`]; [`io::ErrorKind::InvalidData`] if it is another capture.
    pub fn open(path: &Path) -> io::Result<Self> {
        let consumer = Consumer::open(path)?;
        if consumer.direction() != Direction::Log {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a log of exchanges"));
        }
        Ok(Self::new(consumer, None))
    }

    /// The next entry, which stays in the log until it is released; `None`: there is none (yet). What cannot be read
    /// is left out and [counted](Self::unreadable).
    // It lends what it returns, which an iterator cannot.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Record<'_>> {
        loop {
            let from = usize::try_from(self.next.saturating_sub(self.consumer.tail())).ok()?;
            let window = self.consumer.available().get(from..).filter(|window| !window.is_empty())?;
            let at = self.next;
            match codec::read(window) {
                Ok((stored, used)) => {
                    self.next += used as u64;
                    let codec::Stored { flow, ns, entry } = stored;
                    return Some(Record { at, end: self.next, ns, flow, entry });
                }
                // What is published ends with a record: this is damage, too.
                Err(Unread::Incomplete) => {
                    self.next += window.len() as u64;
                    self.unreadable += window.len() as u64;
                }
                Err(Unread::Damaged(bytes)) => {
                    self.next += bytes as u64;
                    self.unreadable += bytes as u64;
                }
            }
        }
    }

    /// The entries that [`next`](Self::next) will return, as far as they can be read.
    pub fn ahead(&self) -> impl Iterator<Item = Record<'_>> {
        let from = usize::try_from(self.next.saturating_sub(self.consumer.tail())).unwrap_or(usize::MAX);
        let mut window = self.consumer.available().get(from..).unwrap_or_default();
        let mut at = self.next;
        std::iter::from_fn(move || {
            let (codec::Stored { flow, ns, entry }, used) = codec::read(window).ok()?;
            window = window.get(used..).unwrap_or_default();
            at += used as u64;
            Some(Record { at: at - used as u64, end: at, ns, flow, entry })
        })
    }

    /// Bytes that fit into the log.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.consumer.capacity()
    }

    /// Passes over everything before this offset: what is in it is known already.
    pub fn skip_to(&mut self, at: u64) {
        self.next = self.next.max(at.min(self.consumer.head()));
    }

    /// Releases everything before this offset, as far as it was taken: its evidence is on disk. Wakes who waits for
    /// room.
    pub fn release(&mut self, upto: u64) {
        let bytes = upto.min(self.next).saturating_sub(self.consumer.tail());
        if bytes > 0 {
            self.consumer.advance(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.released();
        }
    }

    fn released(&self) {
        if let Some(writer) = &self.writer {
            writer.released();
        }
    }

    /// As [`Consumer::rewind`].
    pub fn rewind(&mut self, give_back: bool) {
        self.consumer.rewind(give_back);
        self.released();
    }

    /// As [`Consumer::prefault`].
    pub fn prefault(&self) {
        self.consumer.prefault();
    }

    /// Offset in the log of the first entry that is not released.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.consumer.tail()
    }

    /// Offset in the log after what was taken out with [`next`](Self::next).
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// Offset in the log after the last entry.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.consumer.head()
    }

    /// Whether the log is half full: who holds entries back should let them go.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        (self.consumer.head() - self.consumer.tail()) as usize > self.consumer.bound() / 2
    }

    /// Bytes that could not be read, so far. Only damage to the file makes any.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Bytes of bodies that passed unrecorded, and other entries that had no room, of which no entry tells. In a log
    /// that was left behind they are all that is known of them.
    #[must_use]
    pub fn untold(&self) -> (u64, u64) {
        self.consumer.untold()
    }

    /// As [`Consumer::is_closed`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.consumer.is_closed()
    }

    /// What tells the other end that one entry takes long.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.writer.as_ref().map(|writer| writer.pulse()).unwrap_or_default()
    }

    /// Whose log it is: 16 hex digits.
    #[must_use]
    pub fn process(&self) -> &str {
        self.consumer.session()
    }

    /// The file, if it has a name.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.consumer.path()
    }

    /// Removes the file, and the note of its place: everything in it is on disk elsewhere. Idempotent.
    ///
    /// # Errors
    /// An I/O error.
    pub fn remove(&self) -> io::Result<()> {
        self.consumer.remove()
    }

    /// As [`Consumer::set_wall_offset`].
    pub fn set_wall_offset(&self, ns: i64) {
        self.consumer.set_wall_offset(ns);
    }

    /// As [`Consumer::wall_offset`].
    #[must_use]
    pub fn wall_offset(&self) -> i64 {
        self.consumer.wall_offset()
    }

    /// As [`Consumer::note`].
    #[must_use]
    pub fn note(&self, index: usize) -> u64 {
        self.consumer.note(index)
    }

    /// As [`Consumer::set_note`].
    pub fn set_note(&self, index: usize, value: u64) {
        self.consumer.set_note(index, value);
    }
}
