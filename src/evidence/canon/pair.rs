//! SHA-256 of texts that come in parts, two of them in one go.

use super::members::Page;
use crate::sha256::{INITIAL, compress};

/// Bytes between two releases of pages. 1 MiB.
const PAGED: usize = 1 << 20;

/// SHA-256 of a text that comes in parts.
#[derive(Debug, Clone)]
pub struct Hash {
    state: [u32; 8],
    bytes: u64,
    /// What came last and fills no block yet.
    partial: [u8; 64],
    filled: usize,
}

impl Default for Hash {
    fn default() -> Self {
        Self { state: INITIAL, bytes: 0, partial: [0; 64], filled: 0 }
    }
}

impl Hash {
    /// Of bytes in pages that can be released.
    #[must_use]
    pub fn paged(bytes: &[u8], page: Page<'_>) -> Self {
        let mut hash = Self::default();
        for part in bytes.chunks(PAGED) {
            hash.update(part);
            if let Some(page) = page {
                page(hash.bytes as usize);
            }
        }
        hash
    }

    /// The next part.
    pub fn update(&mut self, part: &[u8]) {
        let (blocks, tail) = self.take(part);
        compress((&mut self.state, blocks), (&mut [0; 8], &[]));
        self.keep(tail);
    }

    /// The next part of this text, and the next one of another text. If they are as long, that takes not much longer than
    /// one of them.
    pub fn update_both(&mut self, part: &[u8], other: &mut Self, of_other: &[u8]) {
        let ((blocks, tail), (beside, tail_beside)) = (self.take(part), other.take(of_other));
        compress((&mut self.state, blocks), (&mut other.state, beside));
        self.keep(tail);
        other.keep(tail_beside);
    }

    /// Fills the block that was begun; the whole blocks that follow, and what remains.
    fn take<'p>(&mut self, part: &'p [u8]) -> (&'p [[u8; 64]], &'p [u8]) {
        self.bytes += part.len() as u64;
        let (head, part) = part.split_at(part.len().min((64 - self.filled) % 64));
        self.partial[self.filled..self.filled + head.len()].copy_from_slice(head);
        self.filled += head.len();
        if self.filled == 64 {
            compress((&mut self.state, &[self.partial]), (&mut [0; 8], &[]));
            self.filled = 0;
        }
        part.as_chunks()
    }

    fn keep(&mut self, tail: &[u8]) {
        // A part that fills no block leaves nothing.
        self.partial[self.filled..self.filled + tail.len()].copy_from_slice(tail);
        self.filled += tail.len();
    }

    /// The hash of all parts.
    #[must_use]
    pub fn finish(mut self) -> [u8; 32] {
        let (last, count) = padded(&self.partial[..self.filled], self.bytes);
        compress((&mut self.state, &last[..count]), (&mut [0; 8], &[]));
        digest(&self.state)
    }
}

/// A text that comes in parts, hashed together with one that is there as a whole.
pub(super) struct Pair<'a> {
    parts: Hash,
    whole: Hash,
    /// What of the whole one is not hashed yet.
    rest: &'a [u8],
}

impl<'a> Pair<'a> {
    pub(super) fn new(whole: &'a [u8]) -> Self {
        Self { parts: Hash::default(), whole: Hash::default(), rest: whole }
    }

    /// The next part of the first text.
    pub(super) fn update(&mut self, part: &[u8]) {
        let (beside, rest) = self.rest.split_at(self.rest.len().min(part.len()));
        self.parts.update_both(part, &mut self.whole, beside);
        self.rest = rest;
    }

    /// Reads on in the whole text alone; how far that has come, in bytes. `None`: all of it is read.
    pub(super) fn go_on(&mut self, bytes: usize) -> Option<usize> {
        let (next, rest) = self.rest.split_at(self.rest.len().min(bytes));
        self.whole.update(next);
        self.rest = rest;
        (!next.is_empty()).then_some(self.whole.bytes as usize)
    }

    /// The hashes of the text that came in parts, and of the whole one.
    pub(super) fn finish(mut self) -> ([u8; 32], [u8; 32]) {
        self.whole.update(self.rest);
        (self.parts.finish(), self.whole.finish())
    }
}

/// The last blocks of a text of so many bytes (FIPS 180-4 §5.1.1), and how many they are.
fn padded(tail: &[u8], bytes: u64) -> ([[u8; 64]; 2], usize) {
    let mut last = [[0; 64]; 2];
    let flat = last.as_flattened_mut();
    flat[..tail.len()].copy_from_slice(tail);
    flat[tail.len()] = 0x80;
    let count = if tail.len() < 56 { 1 } else { 2 };
    flat[count * 64 - 8..count * 64].copy_from_slice(&(bytes * 8).to_be_bytes());
    (last, count)
}

fn digest(state: &[u32; 8]) -> [u8; 32] {
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::sha256;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_hashes_are_right(
            first in prop::collection::vec(any::<u8>(), 0..700),
            whole in prop::collection::vec(any::<u8>(), 0..700),
            mut cuts in prop::collection::vec(0usize..700, 0..9),
        ) {
            cuts.sort_unstable();
            let mut pair = Pair::new(&whole);
            let mut from = 0;
            for cut in cuts.into_iter().map(|cut| cut.min(first.len())).chain([first.len()]) {
                pair.update(&first[from..cut]);
                from = cut;
            }
            prop_assert_eq!(pair.finish(), (sha256(&first), sha256(&whole)));
        }
    }

    #[test]
    fn every_length_of_the_last_blocks() {
        let text: Vec<u8> = (0..=255).collect();
        for n in 0..200 {
            let mut pair = Pair::new(&text[..n]);
            pair.update(&text[..199 - n]);
            assert_eq!(pair.finish(), (sha256(&text[..199 - n]), sha256(&text[..n])), "{n}");
        }
    }
}
