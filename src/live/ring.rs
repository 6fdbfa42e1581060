//! The lines that are told to subscribers: made once for all of them, bounded, oldest forgotten first.

use std::{collections::VecDeque, sync::Arc};

/// Bytes that are kept.
const MAX_BYTES: usize = 8 << 20;

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Which of the process's sessions.
    pub session: u32,
    /// Cursor of the event; for what is not in the chain, of the next event.
    pub cursor: u64,
    /// Whether it is an event of the chain, so that its absence is a gap.
    pub chained: bool,
    /// The line with its line feed.
    pub bytes: Arc<[u8]>,
}

/// The lines, numbered since the process began.
#[derive(Debug, Default)]
pub(super) struct Ring {
    entries: VecDeque<Entry>,
    first: u64,
    bytes: usize,
}

impl Ring {
    pub fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes.len();
        self.entries.push_back(entry);
        while self.bytes > MAX_BYTES {
            let Some(old) = self.entries.pop_front() else { return };
            self.bytes -= old.bytes.len();
            self.first += 1;
        }
    }

    /// Number of the oldest line that is kept.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Number of the line that comes next.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// A line by its number.
    pub fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Number of the first line of a session at or behind a cursor.
    pub fn find(&self, session: u32, cursor: u64) -> u64 {
        self.first + self.entries.partition_point(|e| (e.session, e.cursor) < (session, cursor)) as u64
    }

    /// Cursor of the oldest line of a session.
    pub fn oldest(&self, session: u32) -> Option<u64> {
        self.get(self.find(session, 0)).filter(|e| e.session == session).map(|e| e.cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_numbers_when_old_ones_are_forgotten() {
        let mut ring = Ring::default();
        for n in 0..100u64 {
            let bytes = vec![b'x'; 256 << 10].into();
            ring.push(Entry { session: u32::from(n >= 50), cursor: n % 50, chained: true, bytes });
        }
        assert_eq!(ring.end(), 100);
        assert_eq!(ring.first(), 68);
        assert!(ring.get(67).is_none() && ring.get(100).is_none());
        assert_eq!(ring.get(70).unwrap().cursor, 20);
        assert_eq!(ring.find(1, 20), 70);
        assert_eq!(ring.find(1, 3), 68);
        assert_eq!(ring.find(1, 60), 100);
        assert_eq!((ring.oldest(0), ring.oldest(1)), (None, Some(18)));
    }
}
