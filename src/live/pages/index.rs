//! Where lines begin: of every 256th line, and at least once a mebibyte.

/// Lines between two marks.
const LINES: u64 = 256;
/// Bytes between two marks at most, but for a longer line.
const BYTES: u64 = 1 << 20;
/// Marks that are kept; beyond, every other one is dropped and the distance doubled.
const MARKS: usize = 1 << 19;

/// A sparse index of a file's lines, built in one pass.
#[derive(Debug)]
pub(super) struct Index {
    /// Number and offset of lines, ascending; the first is (0, 0).
    marks: Vec<(u64, u64)>,
    max: usize,
    lines_apart: u64,
    bytes_apart: u64,
    lines: u64,
    end: u64,
    read: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self::new(MARKS)
    }
}

impl Index {
    fn new(max: usize) -> Self {
        Self { marks: vec![(0, 0)], max, lines_apart: LINES, bytes_apart: BYTES, lines: 0, end: 0, read: 0 }
    }

    /// Takes the bytes that come next.
    pub fn take(&mut self, piece: &[u8]) {
        let (mut line, mut offset) = self.marks.last().copied().unwrap_or_default();
        for at in memchr::memchr_iter(b'\n', piece) {
            self.lines += 1;
            self.end = self.read + at as u64 + 1;
            if self.lines - line >= self.lines_apart || self.end - offset >= self.bytes_apart {
                self.marks.push((self.lines, self.end));
                if self.marks.len() > self.max {
                    self.thin();
                }
                (line, offset) = self.marks.last().copied().unwrap_or_default();
            }
        }
        self.read += piece.len() as u64;
    }

    fn thin(&mut self) {
        let mut kept = 0;
        self.marks.retain(|_| {
            kept += 1;
            kept % 2 == 1
        });
        self.lines_apart *= 2;
        self.bytes_apart *= 2;
    }

    /// Whole lines so far.
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Offset behind the last of them.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes so far.
    pub const fn read(&self) -> u64 {
        self.read
    }

    /// The last mark at or before a line.
    pub fn before(&self, number: u64) -> (u64, u64) {
        let behind = self.marks.partition_point(|(line, _)| *line <= number);
        behind.checked_sub(1).and_then(|at| self.marks.get(at)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index_of(text: &[u8], piece: usize, max: usize) -> Index {
        let mut index = Index { lines_apart: 4, bytes_apart: 50, ..Index::new(max) };
        text.chunks(piece).for_each(|p| index.take(p));
        index
    }

    proptest! {
        #[test]
        fn every_line_is_behind_a_mark_that_is_right(
            lines in prop::collection::vec(0usize..60, 0..300), torn in 0usize..9, piece in 1usize..99, max in 2usize..40,
        ) {
            let mut text = Vec::new();
            let mut starts = Vec::new();
            for len in &lines {
                starts.push(text.len() as u64);
                text.extend(std::iter::repeat_n(b'x', *len));
                text.push(b'\n');
            }
            let end = text.len() as u64;
            text.extend(std::iter::repeat_n(b't', torn));
            let index = index_of(&text, piece, max);
            prop_assert_eq!((index.lines(), index.end(), index.read()), (lines.len() as u64, end, text.len() as u64));
            prop_assert!(index.marks.len() <= max);
            for number in 0..starts.len() {
                let (line, offset) = index.before(number as u64);
                prop_assert!(line <= number as u64 && starts[usize::try_from(line).unwrap()] == offset);
                prop_assert!(number as u64 - line < index.lines_apart.max(4));
            }
        }
    }
}
