//! The lines of a session for subscribers: made once for all of them, bounded, the oldest dropped first.

use std::{collections::VecDeque, sync::Arc};

#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Cursor of the event; for what is not in the chain, of the next event.
    pub cursor: u64,
    /// Whether it is an event of the chain, so that its absence is a gap.
    pub chained: bool,
    /// Whether it is what a message holds: only for those who asked for it, and never in the way of anything else.
    pub is_content: bool,
    /// The line with its line feed.
    pub bytes: Arc<[u8]>,
}

/// The lines, numbered since the session began.
#[derive(Debug)]
pub(super) struct Ring {
    entries: VecDeque<Entry>,
    first: u64,
    bytes: usize,
    max: usize,
    /// Numbers of the contents that are kept, and their bytes.
    contents: VecDeque<u64>,
    content_bytes: usize,
}

impl Ring {
    /// An empty ring that keeps at most `max` bytes.
    pub const fn new(max: usize) -> Self {
        Self { entries: VecDeque::new(), first: 0, bytes: 0, max, contents: VecDeque::new(), content_bytes: 0 }
    }

    /// Bytes of all lines.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Most bytes to keep.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Sets the limit to `max` bytes.
    pub fn keep(&mut self, max: usize) {
        self.max = max;
        self.forget();
    }

    pub fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes.len();
        if entry.is_content {
            self.content_bytes += entry.bytes.len();
            self.contents.push_back(self.end());
        }
        self.entries.push_back(entry);
        self.forget();
    }

    /// Contents have at most a quarter of the room: the oldest of them become empty.
    fn forget_contents(&mut self) {
        while self.content_bytes > self.max / 4 {
            let Some(number) = self.contents.pop_front() else { return };
            let at = usize::try_from(number - self.first).ok();
            if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
                let bytes = std::mem::take(&mut entry.bytes).len();
                self.bytes -= bytes;
                self.content_bytes -= bytes;
            }
        }
    }

    fn forget(&mut self) {
        self.forget_contents();
        while self.bytes > self.max {
            let Some(old) = self.entries.pop_front() else { return };
            self.bytes -= old.bytes.len();
            if self.contents.front() == Some(&self.first) {
                self.contents.pop_front();
                self.content_bytes -= old.bytes.len();
            }
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

    /// Number of the first line at or after a cursor.
    pub fn find(&self, cursor: u64) -> u64 {
        self.first + self.entries.partition_point(|e| e.cursor < cursor) as u64
    }

    /// Cursor of the oldest line.
    pub fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|e| e.cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_push_no_event_out() {
        let mut ring = Ring::new(1 << 20);
        for n in 0..1000u64 {
            ring.push(Entry { cursor: n, chained: true, is_content: false, bytes: vec![b'e'; 500].into() });
            ring.push(Entry { cursor: n, chained: false, is_content: true, bytes: vec![b'c'; 20_000].into() });
        }
        assert_eq!((ring.first(), ring.end(), ring.oldest()), (0, 2000, Some(0)));
        assert!(ring.bytes() <= 1000 * 500 + (256 << 10), "{}", ring.bytes());
        assert!(ring.get(1).unwrap().bytes.is_empty() && ring.get(1999).unwrap().bytes.len() == 20_000);
        for n in 1000..4000u64 {
            ring.push(Entry { cursor: n, chained: true, is_content: false, bytes: vec![b'e'; 500].into() });
        }
        assert!(ring.bytes() <= 1 << 20 && ring.first() > 1);
        ring.keep(0);
        assert_eq!((ring.bytes(), ring.content_bytes, ring.contents.len()), (0, 0, 0));
    }

    #[test]
    fn lines_keep_their_numbers_when_old_ones_are_forgotten() {
        let mut ring = Ring::new(8 << 20);
        for n in 0..100u64 {
            ring.push(Entry { cursor: n, chained: true, is_content: false, bytes: vec![b'x'; 256 << 10].into() });
        }
        assert_eq!(ring.end(), 100);
        assert_eq!(ring.first(), 68);
        assert!(ring.get(67).is_none() && ring.get(100).is_none());
        assert_eq!(ring.get(70).unwrap().cursor, 70);
        assert_eq!((ring.find(70), ring.find(3), ring.find(200)), (70, 68, 100));
        assert_eq!(ring.oldest(), Some(68));
        ring.keep(1 << 20);
        assert_eq!((ring.first(), ring.end(), ring.bytes()), (96, 100, 1 << 20));
        ring.keep(0);
        assert_eq!((ring.oldest(), ring.end(), ring.bytes()), (None, 100, 0));
    }
}
