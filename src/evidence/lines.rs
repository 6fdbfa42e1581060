//! Files of lines: the one way to read receipts, events, ledgers and other files whose lines end in line feeds.
//!
//! | what is wanted | with |
//! |---|---|
//! | every line once, what is torn at the end too, and what all bytes hash to | [`Lines::next`], [`Lines::finish`] |
//! | the whole lines of a file that still grows, as far as it is known to be good | [`Lines::whole`] |
//! | the whole lines from any place on, however long | [`Lines::each`] |
//! | a place: by offset, or by a key that rises | [`Lines::go`], [`Lines::seek`], [`Lines::bisect`] |
//! | the first line, one line, the line before a place | [`first`], [`at`], [`before`] |
//! | where the good part of a file ends | [`good_tail`], [`good_end`] |
//!
//! A line is a slice of the buffer: it is never copied. Memory is bounded by the longest line that is allowed and a quarter
//! of it, whatever the file holds. The file is read by offset: its own position is neither used nor moved.

mod places;
#[cfg(test)]
mod tests;

pub use places::{GoodTail, MAX_LINE, at, before, good_end, good_tail, read_at};

use places::CHUNK;
use sha2::{Digest as _, Sha256};
use std::{fs::File, io, ops::Range};

/// A buffer that is longer goes back to the system after the line that needed it, in bytes.
const KEEP: usize = 8 << 20;
/// Most lines without a readable key that bisection skips.
const UNREADABLE: u32 = 16;

/// One line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Without its line feed.
    pub bytes: &'a [u8],
    /// From 1, unless [`Lines::go`] set another number.
    pub number: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Whether a line feed ends it; only the last can lack one.
    pub terminated: bool,
}

/// A whole line, which may be longer than is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineAt<'a> {
    /// As in [`Line`].
    pub number: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes without its line feed.
    pub len: u64,
    /// Its bytes; `None` if it is too long.
    pub bytes: Option<&'a [u8]>,
}

/// Why reading ended before the end of a file.
#[derive(Debug)]
pub enum ReadStop {
    /// A line is longer than is allowed, or a file that is read whole.
    TooLong,
    /// So much of it reads as nothing that the rest does not matter.
    Garbage,
    /// The system's error.
    Io(io::Error),
    /// Who watches does not want more.
    Cancelled,
}

impl From<io::Error> for ReadStop {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<ReadStop> for io::Error {
    fn from(stop: ReadStop) -> Self {
        match stop {
            ReadStop::TooLong => Self::new(io::ErrorKind::InvalidData, "a line of evidence is too long"),
            ReadStop::Garbage => Self::new(io::ErrorKind::InvalidData, "too much of it is not evidence"),
            ReadStop::Cancelled => Self::new(io::ErrorKind::Interrupted, "it was cancelled"),
            ReadStop::Io(e) => e,
        }
    }
}

/// Who hears of every read and may end it; `()` does neither.
pub trait Watch {
    /// This many bytes more were read.
    ///
    /// # Errors
    /// [`ReadStop::Cancelled`] ends the reading.
    fn took(&mut self, bytes: usize) -> Result<(), ReadStop>;
}

impl Watch for () {
    fn took(&mut self, _: usize) -> Result<(), ReadStop> {
        Ok(())
    }
}

/// What is made of all bytes that are read: [`Sha256`], or nothing.
pub trait Sum: Default {
    /// Takes the next ones.
    fn take(&mut self, bytes: &[u8]);
}

impl Sum for () {
    fn take(&mut self, _: &[u8]) {}
}

impl Sum for Sha256 {
    fn take(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// A file, line by line.
#[derive(Debug)]
pub struct Lines<S = ()> {
    file: File,
    sum: S,
    longest: usize,
    /// Holds what was read and not given yet at `start..end`, `last` before it.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    last: Range<usize>,
    /// Offset in the file of `buffer[start]`.
    position: u64,
    /// Of the line that begins there.
    number: u64,
    /// [`next`](Self::next) has seen the end: what is appended since is not part of what it reads.
    ended: bool,
}

/// The first line of a file without its line feed, if it is whole and ends within the first `limit` bytes.
#[must_use]
pub fn first(file: File, limit: u64) -> Option<Vec<u8>> {
    Lines::of(file).whole(limit).ok()?.map(|line| line.bytes.to_vec())
}

impl Lines {
    /// The lines of a file from its beginning.
    #[must_use]
    pub fn of(file: File) -> Self {
        Self::new(file)
    }

    /// Goes to the line that begins at this offset and has this number.
    pub fn go(&mut self, offset: u64, number: u64) {
        (self.position, self.number) = (offset, number);
        (self.start, self.end, self.last) = (0, 0, 0..0);
    }

    /// Gives the memory for its buffer back until more is read.
    pub fn pause(&mut self) {
        self.go(self.position, self.number);
        self.buffer = Vec::new();
    }

    /// Goes to the first line that begins at or after `offset`, or to the end. Lines are counted from 1 there.
    ///
    /// # Errors
    /// The system's error.
    pub fn seek(&mut self, offset: u64) -> io::Result<()> {
        let start = match offset.checked_sub(1) {
            None => 0,
            Some(before) => match places::next_end(&self.file, before)? {
                Some(end) => end + 1,
                None => self.len()?.max(offset),
            },
        };
        self.go(start, 1);
        Ok(())
    }

    /// Goes to a line at or shortly before the first whose key is not below `wanted`, in the first `len` bytes of a file whose
    /// lines are ordered by their keys.
    ///
    /// # Errors
    /// The system's error.
    pub fn bisect<K: Ord>(&mut self, len: u64, key: &dyn Fn(&[u8]) -> Option<K>, wanted: &K) -> io::Result<()> {
        let (mut low, mut high) = (0, len);
        while high - low > 2 * CHUNK as u64 {
            let middle = low + (high - low) / 2;
            self.seek(middle + 1)?;
            let (mut found, mut tries) = (None, UNREADABLE);
            if self.position < high {
                self.each(&mut |line| {
                    found = line.bytes.and_then(key).map(|k| (line.offset, k));
                    tries -= 1;
                    found.is_none() && tries > 0 && line.offset + line.len < high
                })?;
            }
            match found.filter(|(at, k)| *at < high && k < wanted) {
                Some((at, _)) => low = at,
                None => high = middle,
            }
        }
        self.go(low, 1);
        Ok(())
    }

    /// Gives the whole lines from here on until `each` says that it is enough; of those that are too long, where they are.
    /// Returns the number of bytes after the last whole line, if the end was reached.
    ///
    /// # Errors
    /// The system's error.
    pub fn each(&mut self, each: &mut dyn FnMut(LineAt<'_>) -> bool) -> io::Result<Option<u64>> {
        loop {
            let line = match self.whole(u64::MAX) {
                Ok(Some(Line { bytes, number, offset, .. })) => {
                    LineAt { number, offset, len: bytes.len() as u64, bytes: Some(bytes) }
                }
                Ok(None) => return Ok(Some((self.end - self.start) as u64)),
                Err(ReadStop::TooLong) => {
                    let (number, offset) = (self.number, self.position);
                    let Some(end) = places::next_end(&self.file, offset)? else {
                        return Ok(Some(self.len()?.saturating_sub(offset)));
                    };
                    self.go(end + 1, number + 1);
                    LineAt { number, offset, len: end - offset, bytes: None }
                }
                Err(stop) => return Err(stop.into()),
            };
            if !each(line) {
                return Ok(None);
            }
        }
    }
}

impl Lines<Sha256> {
    /// The lines of a file from its beginning; all bytes are hashed.
    #[must_use]
    pub fn hashed(file: File) -> Self {
        Self::new(file)
    }

    /// Reads what is left, and gives the SHA-256 (hex) and the length of the whole file.
    ///
    /// # Errors
    /// [`ReadStop`].
    pub fn finish(mut self, watch: &mut impl Watch) -> Result<(String, u64), ReadStop> {
        while !self.ended {
            self.position += (self.end - self.start) as u64;
            self.start = self.end;
            self.ended = !self.fill(u64::MAX, watch)?;
        }
        let len = self.position + (self.end - self.start) as u64;
        Ok((hex::encode(self.sum.finalize()), len))
    }
}

impl<S: Sum> Lines<S> {
    fn new(file: File) -> Self {
        Self {
            file,
            sum: S::default(),
            longest: MAX_LINE,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            last: 0..0,
            position: 0,
            number: 1,
            ended: false,
        }
    }

    /// The same, where lines are at most so long, in bytes without their line feeds.
    #[must_use]
    pub fn at_most(mut self, longest: usize) -> Self {
        self.longest = longest;
        self
    }

    /// Length of the file in bytes now.
    ///
    /// # Errors
    /// The system's error.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether the file is empty now.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Offset of the next line.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The next line, the last one also without a line feed.
    ///
    /// # Errors
    /// [`ReadStop`]; of what is too long nothing was given.
    pub fn next(&mut self, watch: &mut impl Watch) -> Result<Option<Line<'_>>, ReadStop> {
        match self.find(u64::MAX, true, watch)? {
            Some(len) => Ok(Some(self.give(len, true))),
            None if self.start == self.end => Ok(None),
            None => Ok(Some(self.give(self.end - self.start, false))),
        }
    }

    /// The next whole line that ends before offset `limit`. Bytes after `limit` are not looked at: the writer may still
    /// take it back. `None` is not an end: the file may grow.
    ///
    /// # Errors
    /// [`ReadStop::TooLong`], as often as it is asked, or what the system says.
    pub fn whole(&mut self, limit: u64) -> Result<Option<Line<'_>>, ReadStop> {
        let found = self.find(limit, false, &mut ())?;
        Ok(found.map(|len| self.give(len, true)))
    }

    /// The bytes of the line that was given last.
    #[must_use]
    pub fn last(&self) -> &[u8] {
        &self.buffer[self.last.clone()]
    }

    /// Takes back the line that was given last, which had a line feed: it is the next one again.
    pub fn unread(&mut self) {
        let len = (self.start - self.last.start) as u64;
        if len > 0 {
            self.start = self.last.start;
            self.position -= len;
            self.number -= 1;
        }
        self.last = self.start..self.start;
    }

    /// Length of the next line, if its end is before `limit`. `once`: the file does not grow, and is not evidence once it
    /// reads as nothing.
    fn find(&mut self, limit: u64, once: bool, watch: &mut impl Watch) -> Result<Option<usize>, ReadStop> {
        let mut searched = 0;
        loop {
            let room = usize::try_from(limit.saturating_sub(self.position)).unwrap_or(usize::MAX);
            let have = (self.end - self.start).min(room);
            let new = &self.buffer[self.start + searched..self.start + have];
            if let Some(at) = memchr::memchr(b'\n', new) {
                let len = searched + at;
                return if len > self.longest { Err(ReadStop::TooLong) } else { Ok(Some(len)) };
            }
            // No text has these, and the holes of a sparse file nothing else.
            if once && new.len() >= CHUNK / 2 && new.iter().all(|b| *b == 0) {
                return Err(ReadStop::Garbage);
            }
            searched = have;
            if searched > self.longest {
                return Err(ReadStop::TooLong);
            }
            if self.ended || !self.fill(limit, watch)? {
                self.ended |= once;
                return Ok(None);
            }
        }
    }

    fn give(&mut self, len: usize, terminated: bool) -> Line<'_> {
        let (start, offset, number) = (self.start, self.position, self.number);
        let taken = len + usize::from(terminated);
        self.start += taken;
        self.position += taken as u64;
        self.number += 1;
        self.last = start..start + len;
        Line { bytes: &self.buffer[start..start + len], number, offset, terminated }
    }

    /// Reads more, but nothing after `limit`; `false`: there is no more.
    fn fill(&mut self, limit: u64, watch: &mut impl Watch) -> Result<bool, ReadStop> {
        let at = self.position + (self.end - self.start) as u64;
        let want = usize::try_from(limit.saturating_sub(at)).unwrap_or(usize::MAX).min(CHUNK);
        if want == 0 {
            return Ok(false);
        }
        self.make_room();
        let room = &mut self.buffer[self.end..self.end + want];
        let n = places::read_some(&self.file, room, at)?;
        self.sum.take(&room[..n]);
        self.end += n;
        watch.took(n)?;
        Ok(n > 0)
    }

    /// Room for a chunk after what is there.
    fn make_room(&mut self) {
        let rest = self.start..self.end;
        self.last = 0..0;
        (self.start, self.end) = (0, rest.len());
        if self.buffer.len() > KEEP && rest.len() <= CHUNK {
            let mut buffer = vec![0; 2 * CHUNK];
            buffer[..rest.len()].copy_from_slice(&self.buffer[rest]);
            self.buffer = buffer;
            return;
        }
        self.buffer.copy_within(rest, 0);
        if self.buffer.len() - self.end < CHUNK {
            // By a quarter beyond the first megabytes: a long line may not cost twice its length.
            let len = self.buffer.len();
            let grown = if len < KEEP { len * 2 } else { len / 4 * 5 };
            self.buffer.resize(grown.max(self.end + CHUNK).max(2 * CHUNK), 0);
        }
    }
}
